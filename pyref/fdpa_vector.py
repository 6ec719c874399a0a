"""The tensor-core step on whole heads: NumPy twins of `fdpa` and `fdpa_chain`, in int64.

`fdpa` is the specification; these return the same bits for every parameter, much faster. All products of
a step are lanes of one array, rows of `w` contiguous, so that aligning is one shift and summing adds
rows. A shift of 63 or more leaves nothing of a significand, so shifts are clamped there.

One shortcut needs its reason: a zero product's exponent (`Rules.zero_exponent`) reaches e_max through
the accumulator alone whenever it is at most -126. A zero accumulator brings that same exponent, and a
nonzero one brings at least -126; so e_max is the same with the zero products left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .fdpa import DEFAULT_RULES, FdpaModel, Rules
from .formats import BF16, FP32, Format
from .rounding import RZ, RoundingMode
from .vector_rounding import is_toward_zero, shift_right

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Int64: TypeAlias = npt.NDArray[np.int64]

ROWS = 2048  # rows of w per chunk: a step's [16, rows] int64 lanes stay in the second-level cache
ABSENT = -8192  # exponent of a zero: below every sum of two exponents, and twice that fits int16
MAX_SHIFT = 63


def fdpa_vector(
    a: Codes,
    b: Codes,
    c: npt.NDArray[np.uint32],
    *,
    inputs: Format = BF16,
    group: int = 16,
    fraction_bits: int = 25,
    rules: Rules = DEFAULT_RULES,
) -> npt.NDArray[np.uint32]:
    """`fdpa` on many steps: a, b [..., n] codes of `inputs` (n <= group), c [...] FP32 codes -> [...].

    Raises `ValueError` for shapes that do not fit, for more than `group` products, and for parameters
    whose sums do not fit int64; `TypeError` for dtypes other than uint8/16 and uint32.
    """
    step = _Step(inputs, group, fraction_bits, rules)
    if a.shape != b.shape or a.shape[:-1] != c.shape:
        raise ValueError(f"shapes a {a.shape}, b {b.shape}, c {c.shape} do not fit")
    if a.shape[-1] > group:
        raise ValueError(f"{a.shape[-1]} products in a step of {group}")
    products = a.shape[-1]
    flat_a = as_codes(a, inputs).reshape(c.size, products)
    flat_b = as_codes(b, inputs).reshape(c.size, products)
    flat_c = as_codes(c, FP32).reshape(c.size)
    d = np.empty(c.size, np.uint32)
    for rows in _chunks(c.size):
        d[rows] = step(step.operand(flat_a[rows].T), step.operand(flat_b[rows].T), flat_c[rows])
    return d.reshape(c.shape)


def fdpa_chain_vector(
    h: Codes,
    w: Codes,
    *,
    c: npt.NDArray[np.uint32] | int = 0,
    inputs: Format = BF16,
    group: int = 16,
    fraction_bits: int = 25,
    rules: Rules = DEFAULT_RULES,
) -> npt.NDArray[np.uint32]:
    """`fdpa_chain` for every row: h [K] or [M, K], w [V, K] codes of `inputs` -> [V] or [M, V] FP32 codes.

    `c` is the accumulator that the chains start from, broadcast to the result's shape. Raises as
    `fdpa_vector` does.
    """
    step = _Step(inputs, group, fraction_bits, rules)
    if h.ndim not in (1, 2) or w.ndim != 2 or h.shape[-1] != w.shape[1]:
        raise ValueError(f"h {h.shape} is not [K] or [M, K] for w {w.shape}")
    states, rows_of_w = as_codes(np.atleast_2d(h), inputs), as_codes(w, inputs)
    terms = w.shape[1]
    d = np.empty((len(states), len(w)), np.uint32)
    d[:] = c
    for rows in _chunks(len(w)):
        for k in range(0, terms, group):
            weights = step.operand(rows_of_w[rows, k : k + group].T)
            for m, state in enumerate(states):
                d[m, rows] = step(weights, step.operand(state[k : k + group, None]), d[m, rows])
    return d if h.ndim == 2 else d[0]


def fdpa_chain_pairs(
    h: Codes,
    w: Codes,
    *,
    inputs: Format = BF16,
    group: int = 16,
    fraction_bits: int = 25,
    rules: Rules = DEFAULT_RULES,
) -> npt.NDArray[np.uint32]:
    """`fdpa_chain` from +0 for pairs: h [N, K], w [N, K] codes of `inputs` -> [N] FP32 codes.

    For a few rows at each of many positions (rescoring candidates): one call with all pairs as lanes
    costs what one call a position would. Raises as `fdpa_vector` does.
    """
    step = _Step(inputs, group, fraction_bits, rules)
    if h.shape != w.shape or h.ndim != 2:
        raise ValueError(f"shapes h {h.shape}, w {w.shape} are not [N, K] twice")
    states, rows_of_w = as_codes(h, inputs), as_codes(w, inputs)
    d = np.zeros(len(w), np.uint32)
    for rows in _chunks(len(w)):
        for k in range(0, w.shape[1], group):
            columns = slice(k, k + group)
            weights, lanes = step.operand(rows_of_w[rows, columns].T), step.operand(states[rows, columns].T)
            d[rows] = step(weights, lanes, d[rows])
    return d


def fdpa_chain_model(
    model: FdpaModel, h: Codes, w: Codes, c: npt.NDArray[np.uint32] | int = 0
) -> npt.NDArray[np.uint32]:
    """`fdpa_chain_vector` with a named machine's parameters."""
    return fdpa_chain_vector(
        h,
        w,
        c=c,
        inputs=model.inputs,
        group=model.group,
        fraction_bits=model.fraction_bits,
        rules=model.rules,
    )


@dataclass(frozen=True)
class _Operand:
    """Unpacked codes: `(-1)^negative · significand · 2^(exponent - precision + 1)`.

    `special` is the infinity or NaN, and the sign of a finite value, as a float: products and sums of
    those say what a step with such operands returns. None when every value is finite.
    """

    significand: Int64
    exponent: npt.NDArray[np.int16]
    negative: Int64  # 0 or -1
    special: npt.NDArray[np.float32] | None


def _unpack(codes: Codes, fmt: Format) -> _Operand:
    one = codes.dtype.type(1)
    stored = codes.dtype.type(fmt.precision - 1)
    magnitude = codes & codes.dtype.type(fmt.sign_bit - 1)
    field = magnitude >> stored
    hidden = np.minimum(field, one)
    significand = (magnitude & ((one << stored) - one)) | (hidden << stored)
    exponent = (field - hidden).astype(np.int16) + np.int16(fmt.emin)
    exponent[magnitude == 0] = ABSENT
    negative = -(codes >> codes.dtype.type(fmt.width - 1)).astype(np.int64)
    special = None
    if magnitude.size and magnitude.max() > fmt.max_code:
        special = np.sign(magnitude.astype(np.float32))
        special[magnitude > fmt.max_code] = np.nan
        if fmt.infinities:
            special[magnitude == fmt.max_code + 1] = np.inf
        special[negative < 0] *= -1
    return _Operand(significand.astype(np.int64), exponent, negative, special)


@dataclass(frozen=True)
class _Step:
    """The parameters of a step, and the step on arrays of lanes."""

    inputs: Format
    group: int
    fraction_bits: int
    rules: Rules

    def __post_init__(self) -> None:
        if self.inputs.width > 16:
            raise ValueError(f"inputs of {self.inputs.width} bits: the array twin takes at most 16")
        sum_bits = self.fraction_bits + 2 + (self.group + 1).bit_length()
        if not (self.group >= 1 and self.fraction_bits >= 0 and sum_bits <= 53):
            raise ValueError(
                f"no exact int64 sums for group {self.group}, {self.fraction_bits} fraction bits"
            )

    @cached_property
    def product_bits(self) -> int:
        """Fraction bits of a product's significand in [1, 4)."""
        return 2 * (self.inputs.precision - 1)

    @cached_property
    def up(self) -> int:
        """Bits by which products are shifted up first, so that aligning is a shift to the right.

        A normalised product of subnormals can stand above its own exponent sum by all its bits.
        """
        return max(0, self.fraction_bits - self.product_bits) + (
            self.product_bits if self.rules.normalize_products else 0
        )

    def operand(self, codes: Codes) -> _Operand:
        """Codes [products, lanes] of the input format, made contiguous and unpacked."""
        operand = _unpack(np.ascontiguousarray(codes), self.inputs)
        if not self.rules.subnormal_inputs:
            tiny = operand.significand < 1 << (self.inputs.precision - 1)
            operand.significand[tiny] = 0
            operand.exponent[tiny] = ABSENT
        return operand

    def __call__(self, a: _Operand, b: _Operand, c: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
        """One step: a [products, lanes], b [products, lanes or 1], c [lanes] -> [lanes] codes."""
        rules = self.rules
        accumulator = _unpack(c, FP32)
        magnitude = a.significand * (b.significand << self.up)
        exponent = a.exponent + b.exponent
        negative = a.negative ^ b.negative

        term_exponent = exponent
        if rules.normalize_products:
            term_exponent = self._normalized(magnitude, exponent)
        top = np.maximum(
            self._with_zero_exponent(accumulator.exponent), term_exponent.max(axis=0, initial=4 * ABSENT)
        )
        if rules.zero_exponent is not None and rules.zero_exponent > FP32.emin:
            zeros = (exponent < ABSENT // 2).any(axis=0)
            top[zeros] = np.maximum(top[zeros], rules.zero_exponent)

        down = top - exponent
        down += np.int16(self.up + self.product_bits - self.fraction_bits)
        total = _aligned(magnitude, down, negative, rules.alignment).sum(axis=0)
        extra = max(0, self.fraction_bits - (FP32.precision - 1))
        down = top - accumulator.exponent
        down += np.int16(extra + FP32.precision - 1 - self.fraction_bits)
        total += _aligned(accumulator.significand << extra, down, accumulator.negative, rules.alignment)

        d = _rounded(total, top.astype(np.int64) - self.fraction_bits, rules)
        if rules.negative_zero:
            all_negative = (negative < 0).all(axis=0) & (accumulator.negative < 0)
            d[(total == 0) & all_negative] = FP32.sign_bit
        if a.special is not None or b.special is not None or accumulator.special is not None:
            self._overwrite_special(d, a, b, accumulator)
        return d

    def _with_zero_exponent(self, exponent: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
        zero = self.rules.zero_exponent
        return exponent if zero is None else np.where(exponent == ABSENT, np.int16(zero), exponent)

    def _normalized(self, magnitude: Int64, exponent: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
        """floor(log2) of the products: the exponent sum, moved by where the leading bit stands."""
        _, length = np.frexp(magnitude.astype(np.float64))  # below 2^53, so the conversion is exact
        moved = exponent + (length - 1 - self.up - self.product_bits).astype(np.int16)
        return np.where(magnitude > 0, moved, np.int16(2 * ABSENT))

    def _overwrite_special(
        self, d: npt.NDArray[np.uint32], a: _Operand, b: _Operand, accumulator: _Operand
    ) -> None:
        with np.errstate(invalid="ignore"):
            total = (_signs(a) * _signs(b)).sum(axis=0) + _signs(accumulator)
        d[np.isnan(total)] = self.rules.nan
        d[total == np.inf] = FP32.max_code + 1
        d[total == -np.inf] = FP32.sign_bit | (FP32.max_code + 1)


def _signs(operand: _Operand) -> npt.NDArray[np.float32]:
    if operand.special is not None:
        return operand.special
    return np.sign(operand.significand).astype(np.float32) * (1 + 2 * operand.negative).astype(np.float32)


def _aligned(magnitude: Int64, down: npt.NDArray[np.int16], negative: Int64, mode: RoundingMode) -> Int64:
    """`±magnitude / 2^down`, rounded to integers; magnitudes below 2^62."""
    shift = np.minimum(down, np.int16(MAX_SHIFT - 1)).astype(np.int64)
    if mode is RZ:
        magnitude >>= shift
    else:
        magnitude = _shift(magnitude, shift, negative, mode)
    magnitude ^= negative
    magnitude -= negative
    return magnitude


def _shift(magnitude: Int64, shift: Int64, negative: Int64, mode: RoundingMode) -> Int64:
    """`magnitude / 2^shift` rounded to integers, for shifts of 0..62 and magnitudes below 2^62."""
    doubled = (magnitude << 1).view(np.uint64)  # so that every shift is at least 1
    return shift_right(doubled, (shift + 1).view(np.uint64), negative < 0, mode).view(np.int64)


def _rounded(total: Int64, quantum: Int64, rules: Rules) -> npt.NDArray[np.uint32]:
    """The FP32 codes of `total·2^quantum`, |total| < 2^53, with the underflow and overflow rules."""
    output = rules.output
    magnitude = np.abs(total)
    negative = total >> 63
    _, length = np.frexp(magnitude.astype(np.float64))  # exact below 2^53
    top = length.astype(np.int64) + quantum - 1
    exponent = np.maximum(top, output.emin) - (output.precision - 1)
    down = np.minimum(exponent - quantum, MAX_SHIFT - 1)
    magnitude <<= np.maximum(-down, 0)
    down = np.maximum(down, 0)
    if rules.rounding is RZ:
        significand = magnitude >> down
    else:
        significand = _shift(magnitude, down, negative, rules.rounding)
    code: Int64 = ((exponent - output.quantum_exp) << (output.precision - 1)) + significand
    code[total == 0] = 0

    over = code > output.max_code
    if over.any():
        to_infinity = ~is_toward_zero(negative < 0, rules.rounding)
        if rules.overflow_to_inf:
            to_infinity = to_infinity | (top > output.emax)
        to_infinity = np.broadcast_to(to_infinity, over.shape)
        code[over] = output.max_code + to_infinity[over]
    code <<= FP32.precision - output.precision
    if not rules.subnormal_results:
        code[code < 1 << (FP32.precision - 1)] = 0
    sign = negative & FP32.sign_bit
    if not rules.signed_underflow:
        sign[code == 0] = 0
    code |= sign
    return code.astype(np.uint32)


def as_codes(codes: Codes | Sequence[Any], fmt: Format) -> Codes:
    """Codes as an array of the unsigned dtype that holds them: uint8, uint16 or uint32.

    An array must have that dtype already (`TypeError`); integers in lists must fit (`OverflowError`).
    """
    dtype: type[np.unsignedinteger[Any]] = (
        np.uint32 if fmt.width > 16 else np.uint16 if fmt.width > 8 else np.uint8
    )
    if not isinstance(codes, np.ndarray):
        return np.array(codes, dtype)
    if codes.dtype != dtype:
        raise TypeError(f"expected {np.dtype(dtype)} codes of {fmt}, got {codes.dtype}")
    return codes


def _chunks(rows: int) -> Iterator[slice]:
    return (slice(start, min(start + ROWS, rows)) for start in range(0, rows, ROWS))
