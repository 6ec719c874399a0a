"""NumPy twins of `round_to_bits` for whole arrays, between FP64, FP32 and BF16.

One rounding, by integer arithmetic on the bit patterns: no float operation, so neither the processor's
rounding mode nor flushing of subnormals can change a bit. Every function equals the scalar on every
element: subnormals, signed zeros and overflow follow the conventions of `rounding`, and NaN gives the
canonical quiet NaN. Shapes are kept. Each raises `TypeError` for any dtype but the stated one.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .formats import BF16, FP32, FP64, Format
from .rounding import RD, RNA, RNE, RU, RZ, RoundingMode

Bools: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]


def bf16_bits_from_fp64(x: npt.NDArray[np.float64], mode: RoundingMode = RNE) -> npt.NDArray[np.uint16]:
    """float64 values to BF16 codes, rounded once (not through FP32)."""
    return _narrow_fp64(x, BF16, mode).astype(np.uint16)


def fp32_bits_from_fp64(x: npt.NDArray[np.float64], mode: RoundingMode = RNE) -> npt.NDArray[np.uint32]:
    """float64 values to FP32 codes."""
    return _narrow_fp64(x, FP32, mode).astype(np.uint32)


def bf16_bits_from_fp32(
    x: npt.NDArray[np.float32] | npt.NDArray[np.uint32], mode: RoundingMode = RNE
) -> npt.NDArray[np.uint16]:
    """float32 values, or FP32 codes as uint32, to BF16 codes.

    The two formats share their exponents, so subnormals and overflow need no case of their own: a
    carry goes to the next code, and from the largest finite one to infinity.
    """
    if x.dtype not in (np.float32, np.uint32):
        raise TypeError(f"expected float32 or uint32, got {x.dtype}")
    code = x.view(np.uint32).reshape(-1)
    magnitude = code & np.uint32(FP32.sign_bit - 1)
    negative = code != magnitude
    rounded = shift_right(magnitude, np.uint32(16), negative, mode).astype(np.uint16)
    rounded |= negative.astype(np.uint16) << np.uint16(15)
    rounded[magnitude > FP32.max_code + 1] = BF16.nan_code
    return rounded.reshape(x.shape)


def bf16_to_fp32(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """BF16 codes (uint16) to the float32 values they stand for, exactly."""
    if bits.dtype != np.uint16:
        raise TypeError(f"expected uint16, got {bits.dtype}")
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def _narrow_fp64(x: npt.NDArray[np.float64], fmt: Format, mode: RoundingMode) -> Codes:
    """Codes, in uint64, of float64 values rounded to a format with infinities and a narrower exponent."""
    if x.dtype != np.float64:
        raise TypeError(f"expected float64, got {x.dtype}")
    code = x.view(np.uint64).reshape(-1)
    magnitude = code & np.uint64(FP64.sign_bit - 1)
    negative = code != magnitude

    stored_bits = FP64.precision - 1
    rebias = np.uint64((FP64.bias - fmt.bias) << stored_bits)
    shift = np.uint64(FP64.precision - fmt.precision)
    rounded = shift_right(magnitude - rebias, shift, negative, mode)  # meaningless where tiny

    tiny = magnitude < (fmt.emin + FP64.bias) << stored_bits
    if tiny.any():
        rounded[tiny] = _tiny_codes(magnitude[tiny], negative[tiny], fmt, mode)

    infinity = np.uint64(fmt.max_code + 1)
    overflows_to = infinity - is_toward_zero(negative, mode)
    rounded = np.minimum(rounded, overflows_to)
    rounded[magnitude == FP64.max_code + 1] = infinity
    rounded |= negative.astype(np.uint64) << np.uint64(fmt.width - 1)
    rounded[magnitude > FP64.max_code + 1] = fmt.nan_code
    return rounded.reshape(x.shape)


def _tiny_codes(magnitude: Codes, negative: Bools, fmt: Format, mode: RoundingMode) -> Codes:
    """Codes of FP64 magnitudes below the smallest normal value of `fmt`: multiples of its quantum."""
    stored_bits = FP64.precision - 1
    field = magnitude >> np.uint64(stored_bits)
    hidden = (field > 0).astype(np.uint64) << np.uint64(stored_bits)
    significand = (magnitude & np.uint64((1 << stored_bits) - 1)) | hidden
    # One too low for FP64's own subnormals, of which nothing but "not zero" is left anyway.
    exponent = field.astype(np.int64) - 1 + FP64.quantum_exp
    # 63 shifts out every bit of a 53-bit significand, and leaves room for the increment.
    shift = np.minimum(fmt.quantum_exp - exponent, 63).astype(np.uint64)
    return shift_right(significand, shift, negative, mode)


def shift_right(
    magnitude: Codes, shift: Codes | np.unsignedinteger[Any], negative: Bools, mode: RoundingMode
) -> Codes:
    """`magnitude / 2^shift` to an integer, for the magnitudes of numbers with the given signs.

    One unsigned dtype throughout, at least one bit of shift, and `magnitude + 2^shift` must fit it.
    """
    one = magnitude.dtype.type(1)
    increment: Codes | np.unsignedinteger[Any]
    if mode is RNE:
        increment = (one << (shift - one)) - one + ((magnitude >> shift) & one)
    elif mode is RNA:
        increment = one << (shift - one)
    else:
        increment = ((one << shift) - one) * ~is_toward_zero(negative, mode)
    return (magnitude + increment) >> shift


def is_toward_zero(negative: Bools, mode: RoundingMode) -> Bools | np.bool_:
    """Where the mode discards what lies below the quantum and so never leaves the finite range."""
    if mode is RNE or mode is RNA:
        return np.False_
    if mode is RZ:
        return np.True_
    if mode is RU:
        return negative
    if mode is RD:
        return ~negative
    raise TypeError(f"not a RoundingMode: {mode!r}")
