"""Rounding against independent implementations, and the places where one of those is wrong.

The narrow formats are checked whole: every finite code, every midpoint between neighbours (the overflow
threshold included) and both FP32 neighbours of every midpoint, under every mode. What is expected there
follows from the order of the codes alone: between code `c` and code `c + 1` there is nothing else to
decide. FP32 and FP64 are checked where rounding is decided, against libraries that share no code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import gfloat
import gfloat.formats
import gmpy2
import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import softfloatpy
import torch
from certhead.pyref.codec import decode, encode
from certhead.pyref.formats import BF16, FP8_E4M3, FP8_E5M2, FP16, FP32, FP64, Format
from certhead.pyref.rounding import RD, RNA, RNE, RU, RZ, RoundingMode, round_to, round_to_bits, sqrt_round
from certhead.pyref.vector_rounding import bf16_bits_from_fp32, bf16_bits_from_fp64, fp32_bits_from_fp64
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import exact_numbers, finite_codes, modes

NARROW = [BF16, FP16, FP8_E4M3, FP8_E5M2]
NUMPY_TYPES: dict[Format, Any] = {
    BF16: ml_dtypes.bfloat16,
    FP16: np.float16,
    FP32: np.float32,
    FP8_E4M3: ml_dtypes.float8_e4m3fn,
    FP8_E5M2: ml_dtypes.float8_e5m2,
}
TORCH_TYPES = {
    BF16: torch.bfloat16,
    FP16: torch.float16,
    FP32: torch.float32,
    FP8_E4M3: torch.float8_e4m3fn,
    FP8_E5M2: torch.float8_e5m2,
}
GFLOAT_FORMATS = {
    BF16: gfloat.formats.format_info_bfloat16,
    FP16: gfloat.formats.format_info_binary16,
    FP32: gfloat.formats.format_info_binary32,
    FP8_E4M3: gfloat.formats.format_info_ocp_e4m3,
    FP8_E5M2: gfloat.formats.format_info_ocp_e5m2,
}
GFLOAT_MODES = {
    RNE: gfloat.RoundMode.TiesToEven,
    RNA: gfloat.RoundMode.TiesToAway,
    RZ: gfloat.RoundMode.TowardZero,
    RU: gfloat.RoundMode.TowardPositive,
    RD: gfloat.RoundMode.TowardNegative,
}
SOFTFLOAT_MODES = {
    RNE: softfloatpy.RoundingMode.NEAR_EVEN,
    RNA: softfloatpy.RoundingMode.NEAR_MAX_MAG,
    RZ: softfloatpy.RoundingMode.MIN_MAG,
    RU: softfloatpy.RoundingMode.MAX,
    RD: softfloatpy.RoundingMode.MIN,
}
MPFR_MODES = {  # MPFR rounds to nearest with ties to even only
    RNE: gmpy2.RoundToNearest,
    RZ: gmpy2.RoundToZero,
    RU: gmpy2.RoundUp,
    RD: gmpy2.RoundDown,
}
each_mode = pytest.mark.parametrize("mode", RoundingMode)


@dataclass(frozen=True)
class Points:
    """Numbers between a code and the next: `x` (FP64) just there, with `low` the code of smaller magnitude.

    `side` is 0 on the value of `low` itself, and 1, 2, 3 below, on and above the midpoint.
    """

    x: npt.NDArray[np.float64]
    low: npt.NDArray[np.uint64]
    side: npt.NDArray[np.int64]

    def expected(self, fmt: Format, mode: RoundingMode) -> npt.NDArray[np.uint64]:
        """The codes that these numbers round to, from the order of the codes."""
        negative = np.signbit(self.x)
        odd = (self.low & np.uint64(1)).astype(bool)
        up = {
            RNE: (self.side == 3) | ((self.side == 2) & odd),
            RNA: self.side >= 2,
            RZ: np.zeros(len(self.x), bool),
            RU: (self.side > 0) & ~negative,
            RD: (self.side > 0) & negative,
        }[mode]
        magnitude = self.low + up
        signed = magnitude | (negative.astype(np.uint64) << np.uint64(fmt.width - 1))
        return np.where(magnitude == fmt.nan_code, magnitude, signed)  # E4M3 has NaN where others have inf


def codes_to_fp64(codes: npt.NDArray[np.uint64], fmt: Format) -> npt.NDArray[np.float64]:
    """Finite codes to FP64 by the bit fields; a code past the last gives what would come there."""
    stored = fmt.precision - 1
    field = (codes >> np.uint64(stored)).astype(np.int64)
    trailing = (codes & np.uint64((1 << stored) - 1)).astype(np.float64)
    significand = trailing + np.where(field > 0, 2.0**stored, 0.0)
    return np.ldexp(significand, np.maximum(field, 1) - fmt.bias - stored)


def points(fmt: Format, magnitudes: npt.NDArray[np.uint64], neighbours_in: type = np.float32) -> Points:
    """Each code, the midpoint above it and the midpoint's neighbours in a wider type, in both signs."""
    low = codes_to_fp64(magnitudes, fmt)
    middle = (low + codes_to_fp64(magnitudes + np.uint64(1), fmt)) / 2
    wide = middle.astype(neighbours_in)
    assert (wide == middle).all()
    below = np.nextafter(wide, neighbours_in(0)).astype(np.float64)
    above = np.nextafter(wide, neighbours_in(np.inf)).astype(np.float64)
    x = np.concatenate([low, below, middle, above])
    side = np.repeat(np.arange(4), len(magnitudes))
    return Points(np.concatenate([x, -x]), np.tile(magnitudes, 8), np.tile(side, 2))


def all_points(fmt: Format) -> Points:
    return points(fmt, np.arange(fmt.max_code + 1, dtype=np.uint64))


def fp32_points() -> Points:
    """FP64 numbers around FP32's decisions: the ends of every binade and random codes."""
    rng = np.random.default_rng(20260801)
    binades = np.arange(0, FP32.max_code, 1 << 23)[:, None] + np.array(
        [0, 1, 2, (1 << 23) - 2, (1 << 23) - 1]
    )
    subnormal = np.arange(64)
    top = np.arange(FP32.max_code - 63, FP32.max_code + 1)
    anywhere = rng.integers(0, FP32.max_code, 4000)
    magnitudes = np.unique(np.concatenate([binades.ravel(), subnormal, top, anywhere]))
    return points(FP32, magnitudes[magnitudes <= FP32.max_code].astype(np.uint64), np.float64)


def bits_of(array: Any, fmt: Format) -> npt.NDArray[np.uint64]:
    """The codes of an array in the format's own NumPy or torch type, with canonical NaN."""
    if isinstance(array, torch.Tensor):
        unsigned = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32}[array.element_size()]
        array = array.view(unsigned).numpy()
    codes = array.view(f"u{array.itemsize}").astype(np.uint64)
    magnitude = codes & np.uint64(fmt.sign_bit - 1)
    return np.where(magnitude > fmt.max_code + fmt.infinities, np.uint64(fmt.nan_code), codes)


@contextmanager
def softfloat_rounding(mode: RoundingMode) -> Iterator[None]:
    softfloatpy.set_rounding_mode(SOFTFLOAT_MODES[mode])
    try:
        yield
    finally:
        softfloatpy.set_rounding_mode(softfloatpy.RoundingMode.NEAR_EVEN)


def assert_same_codes(ours: Any, theirs: Any, x: npt.NDArray[np.float64]) -> None:
    ours, theirs = np.asarray(ours, np.uint64), np.asarray(theirs, np.uint64)
    wrong = np.flatnonzero(ours != theirs)
    shown = [f"{float(x[i]).hex()}: {int(ours[i]):#x} != {int(theirs[i]):#x}" for i in wrong[:5]]
    assert not len(wrong), f"{len(wrong)} of {len(x)} differ: {shown}"


@pytest.mark.parametrize("fmt", NARROW, ids=repr)
def test_the_points_cover_every_code(fmt: Format) -> None:
    covered = all_points(fmt)
    on_values = covered.side == 0
    own_type = np.arange(1 << fmt.width, dtype=f"u{fmt.width // 8}").view(NUMPY_TYPES[fmt])
    with np.errstate(invalid="ignore"):
        finite = own_type.astype(np.float64)
    finite = finite[np.isfinite(finite)]
    assert len(finite) == 2 * (fmt.max_code + 1) == on_values.sum()
    np.testing.assert_array_equal(np.sort(finite), np.sort(covered.x[on_values]))


@each_mode
@pytest.mark.parametrize("fmt", NARROW, ids=repr)
def test_scalar_is_right_at_every_value_midpoint_and_neighbour(fmt: Format, mode: RoundingMode) -> None:
    every = all_points(fmt)
    assert_same_codes(
        [round_to_bits(x, fmt, mode) for x in every.x.tolist()], every.expected(fmt, mode), every.x
    )


@pytest.mark.parametrize("fmt", NARROW, ids=repr)
def test_scalar_values_are_those_of_the_codes(fmt: Format) -> None:
    every = all_points(fmt)
    values = {code: repr(decode(code, fmt)) for code in range(1 << fmt.width)}
    for x, code in zip(every.x.tolist(), every.expected(fmt, RNE).tolist(), strict=True):
        assert repr(round_to(x, fmt)) == values[code], x.hex()


@each_mode
def test_vector_bf16_is_right_at_every_value_midpoint_and_neighbour(mode: RoundingMode) -> None:
    every = all_points(BF16)
    expected = every.expected(BF16, mode)
    assert_same_codes(bf16_bits_from_fp64(every.x, mode), expected, every.x)
    narrow = every.x.astype(np.float32)
    assert_same_codes(bf16_bits_from_fp32(narrow, mode), expected, every.x)
    assert_same_codes(bf16_bits_from_fp32(narrow.view(np.uint32), mode), expected, every.x)
    closest = points(BF16, np.arange(BF16.max_code + 1, dtype=np.uint64), np.float64)
    assert_same_codes(bf16_bits_from_fp64(closest.x, mode), closest.expected(BF16, mode), closest.x)


@each_mode
def test_vector_bf16_from_every_upper_half_of_an_fp32_code(mode: RoundingMode) -> None:
    """All 65,536 upper halves, so infinities and NaN payloads too, over the lower halves that decide."""
    upper = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    for lower in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        codes = upper | np.uint32(lower)
        with np.errstate(invalid="ignore"):
            x = codes.view(np.float32).astype(np.float64)
        expected = bf16_bits_from_fp64(x, mode)
        np.testing.assert_array_equal(bf16_bits_from_fp32(codes, mode), expected)
        special = np.flatnonzero(~np.isfinite(x))
        assert [round_to_bits(v, BF16, mode) for v in x[special].tolist()] == expected[special].tolist()


@each_mode
def test_fp32_is_right_at_its_decisions(mode: RoundingMode) -> None:
    near = fp32_points()
    expected = near.expected(FP32, mode)
    assert_same_codes(fp32_bits_from_fp64(near.x, mode), expected, near.x)
    assert_same_codes([round_to_bits(x, FP32, mode) for x in near.x.tolist()], expected, near.x)


@pytest.mark.parametrize("fmt", NARROW, ids=repr)
def test_numpy_and_ml_dtypes_round_fp32_alike(fmt: Format) -> None:
    every = all_points(fmt)
    with np.errstate(over="ignore"):
        theirs = every.x.astype(np.float32).astype(NUMPY_TYPES[fmt])
    assert_same_codes(every.expected(fmt, RNE), bits_of(theirs, fmt), every.x)


@pytest.mark.parametrize("fmt", [BF16, FP16, FP8_E5M2], ids=repr)
def test_torch_rounds_fp32_alike(fmt: Format) -> None:
    every = all_points(fmt)
    theirs = torch.from_numpy(every.x.astype(np.float32)).to(TORCH_TYPES[fmt])
    assert_same_codes(every.expected(fmt, RNE), bits_of(theirs, fmt), every.x)


@each_mode
@pytest.mark.parametrize("fmt", [*NARROW, FP32], ids=repr)
def test_gfloat_rounds_alike(fmt: Format, mode: RoundingMode) -> None:
    near = fp32_points() if fmt is FP32 else all_points(fmt)
    theirs = gfloat.round_ndarray(GFLOAT_FORMATS[fmt], near.x, GFLOAT_MODES[mode])
    expected = near.expected(fmt, mode)
    infinite = expected & np.uint64(fmt.sign_bit - 1) > fmt.max_code
    ours = codes_to_fp64(expected & np.uint64(fmt.sign_bit - 1), fmt)
    ours[infinite] = np.inf if fmt.infinities else np.nan
    ours = np.copysign(ours, near.x)
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.signbit(ours[~infinite]), np.signbit(theirs[~infinite]))


@each_mode
@pytest.mark.parametrize(
    ("fmt", "convert"),
    [(BF16, softfloatpy.f32_to_bf16), (FP16, softfloatpy.f32_to_f16)],
    ids=["BF16", "FP16"],
)
def test_softfloat_rounds_fp32_alike(fmt: Format, convert: Callable[[Any], Any], mode: RoundingMode) -> None:
    every = all_points(fmt)
    patterns = every.x.astype(">f4").tobytes()
    with softfloat_rounding(mode):
        theirs = [
            int.from_bytes(convert(softfloatpy.Float32.from_bytes(patterns[i : i + 4])).to_bytes(), "big")
            for i in range(0, len(patterns), 4)
        ]
    assert_same_codes(every.expected(fmt, mode), theirs, every.x)


@each_mode
def test_softfloat_rounds_fp64_to_fp32_alike(mode: RoundingMode) -> None:
    near = fp32_points()
    patterns = near.x.astype(">f8").tobytes()
    with softfloat_rounding(mode):
        theirs = [
            int.from_bytes(
                softfloatpy.f64_to_f32(softfloatpy.Float64.from_bytes(patterns[i : i + 8])).to_bytes(), "big"
            )
            for i in range(0, len(patterns), 8)
        ]
    assert_same_codes(near.expected(FP32, mode), theirs, near.x)


def test_numpy_and_torch_round_fp64_to_fp32_alike() -> None:
    near = fp32_points()
    expected = near.expected(FP32, RNE)
    with np.errstate(over="ignore"):
        assert_same_codes(expected, bits_of(near.x.astype(np.float32), FP32), near.x)
    assert_same_codes(expected, bits_of(torch.from_numpy(near.x).float(), FP32), near.x)


def test_numpy_rounds_fp64_to_fp16_once() -> None:
    near = points(FP16, np.arange(FP16.max_code + 1, dtype=np.uint64), np.float64)
    with np.errstate(over="ignore"):
        theirs = near.x.astype(np.float16)
    assert_same_codes(near.expected(FP16, RNE), bits_of(theirs, FP16), near.x)
    assert_same_codes([round_to_bits(x, FP16) for x in near.x.tolist()], near.expected(FP16, RNE), near.x)


def mpfr_context(fmt: Format, mode: RoundingMode) -> gmpy2.context:
    """MPFR significands lie in [1/2, 1), so its exponents are one more than IEEE's."""
    return gmpy2.context(
        precision=fmt.precision,
        emin=fmt.quantum_exp + 1,
        emax=fmt.emax + 1,
        subnormalize=True,
        round=MPFR_MODES[mode],
    )


def same_float(ours: Fraction | float, theirs: Any) -> bool:
    """Equal, with the sign of a zero, which `Fraction(0)` has as +0."""
    return ours == theirs and math.copysign(1, ours) == math.copysign(1, theirs)


@pytest.mark.parametrize("fmt", [BF16, FP16, FP32, FP64, FP8_E5M2], ids=repr)
@settings(max_examples=300)
@given(data=st.data(), mode=st.sampled_from(tuple(MPFR_MODES)))
def test_mpfr_rounds_exact_rationals_alike(fmt: Format, data: st.DataObject, mode: RoundingMode) -> None:
    x = data.draw(exact_numbers(fmt))
    with mpfr_context(fmt, mode):
        theirs = gmpy2.mpfr(gmpy2.mpq(x.numerator, x.denominator))
    assert same_float(round_to(x, fmt, mode), theirs), f"{x} {mode}"


@pytest.mark.parametrize("fmt", [BF16, FP16], ids=repr)
@pytest.mark.parametrize("mode", MPFR_MODES)
def test_mpfr_rounds_every_point_alike(fmt: Format, mode: RoundingMode) -> None:
    every = all_points(fmt)
    with mpfr_context(fmt, mode):
        theirs = np.array([float(gmpy2.mpfr(x)) for x in every.x.tolist()])
    expected = every.expected(fmt, mode)
    overflow = expected & np.uint64(fmt.sign_bit - 1) > fmt.max_code
    ours = np.copysign(codes_to_fp64(expected & np.uint64(fmt.sign_bit - 1), fmt), every.x)
    ours[overflow] *= np.inf
    np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(np.signbit(ours), np.signbit(theirs))


@settings(max_examples=300)
@given(exact_numbers(FP64))
def test_python_divides_integers_alike(x: Fraction) -> None:
    rounded = round_to(x, FP64)
    if math.isinf(rounded):
        with pytest.raises(OverflowError):
            x.numerator / x.denominator
    else:
        assert same_float(rounded, x.numerator / x.denominator)


OPERATIONS: dict[str, Callable[[Fraction, Fraction, Fraction], Fraction]] = {
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "mul": lambda a, b, c: a * b,
    "div": lambda a, b, c: a / b,
    "mul_add": lambda a, b, c: a * b + c,
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("fmt", [FP16, FP32, FP64], ids=repr)
@settings(max_examples=150)
@given(data=st.data(), mode=modes)
def test_softfloat_arithmetic_is_one_rounding_of_the_exact_result(
    fmt: Format, operation: str, data: st.DataObject, mode: RoundingMode
) -> None:
    """Products, quotients and fused multiply-adds need far more bits than FP64 has."""
    float_type = {FP16: softfloatpy.Float16, FP32: softfloatpy.Float32, FP64: softfloatpy.Float64}[fmt]
    codes = [data.draw(finite_codes(fmt)) for _ in range(3 if operation == "mul_add" else 2)]
    a, b, c = [Fraction(decode(code, fmt)) for code in (*codes, 0)[:3]]
    if operation == "div" and b == 0:
        return
    result = OPERATIONS[operation](a, b, c)
    if result == 0:  # the sign of an exact zero follows rules of the operation, not of rounding
        return
    operands = [float_type.from_bytes(code.to_bytes(fmt.width // 8, "big")) for code in codes]
    with softfloat_rounding(mode):
        theirs = getattr(softfloatpy, f"f{fmt.width}_{operation}")(*operands)
    assert round_to_bits(result, fmt, mode) == int.from_bytes(theirs.to_bytes(), "big")


@pytest.mark.parametrize("fmt", [FP16, FP32, FP64], ids=repr)
@settings(max_examples=300)
@given(data=st.data(), mode=modes)
def test_softfloat_square_roots_agree(fmt: Format, data: st.DataObject, mode: RoundingMode) -> None:
    float_type = {FP16: softfloatpy.Float16, FP32: softfloatpy.Float32, FP64: softfloatpy.Float64}[fmt]
    code = data.draw(finite_codes(fmt)) & (fmt.sign_bit - 1)
    with softfloat_rounding(mode):
        operand = float_type.from_bytes(code.to_bytes(fmt.width // 8, "big"))
        theirs = getattr(softfloatpy, f"f{fmt.width}_sqrt")(operand)
    ours = encode(sqrt_round(decode(code, fmt), fmt, mode), fmt)
    assert ours == int.from_bytes(theirs.to_bytes(), "big")


@settings(max_examples=300)
@given(st.floats(min_value=0, allow_infinity=False), st.floats(min_value=0, allow_infinity=False, width=32))
def test_python_and_numpy_square_roots_agree(x: float, narrow: float) -> None:
    assert sqrt_round(x, FP64) == math.sqrt(x)
    assert sqrt_round(narrow, FP32) == np.sqrt(np.float32(narrow))


@settings(max_examples=300)
@given(st.fractions(min_value=0), st.sampled_from([BF16, FP32, FP64]), st.sampled_from(tuple(MPFR_MODES)))
def test_mpfr_square_roots_of_rationals_agree(x: Fraction, fmt: Format, mode: RoundingMode) -> None:
    """MPFR roots its own numbers only: so that of a 400-bit one, which no rounding can tell apart."""
    with gmpy2.context(precision=400):
        wide = gmpy2.sqrt(gmpy2.mpfr(gmpy2.mpq(x.numerator, x.denominator)))
    if math.isqrt(x.numerator) ** 2 == x.numerator and math.isqrt(x.denominator) ** 2 == x.denominator:
        wide = gmpy2.mpq(math.isqrt(x.numerator), math.isqrt(x.denominator))
    with mpfr_context(fmt, mode):
        theirs = gmpy2.mpfr(wide) + 0
    assert same_float(sqrt_round(x, fmt, mode), theirs)


HALFWAY_AND_A_LITTLE = 1 + 2.0**-8 + 2.0**-40


def test_fp64_to_bf16_is_rounded_once() -> None:
    x = np.array([HALFWAY_AND_A_LITTLE])
    assert round_to(HALFWAY_AND_A_LITTLE, BF16) == Fraction(129, 128)
    assert bf16_bits_from_fp64(x).tolist() == [0x3F81]
    assert gfloat.round_float(GFLOAT_FORMATS[BF16], HALFWAY_AND_A_LITTLE) == 1.0078125


def test_ml_dtypes_rounds_fp64_to_bf16_twice() -> None:
    """A disagreement, and the oracle is wrong: through FP32 the 2^-40 is lost, and the tie goes to 1."""
    assert float(np.array([HALFWAY_AND_A_LITTLE]).astype(ml_dtypes.bfloat16)[0]) == 1.0
    assert float(ml_dtypes.bfloat16(HALFWAY_AND_A_LITTLE)) == 1.0
    assert round_to(round_to(HALFWAY_AND_A_LITTLE, FP32), BF16) == 1


def test_torch_rounds_fp64_to_bf16_twice() -> None:
    """A disagreement, and the oracle is wrong, for the same reason as ml_dtypes."""
    assert torch.tensor([HALFWAY_AND_A_LITTLE], dtype=torch.float64).to(torch.bfloat16).item() == 1.0


def test_torch_rounds_fp64_to_fp16_twice_and_numpy_does_not() -> None:
    """A disagreement, and torch is wrong: 1 + 2^-11 + 2^-40 is above the midpoint of 1 and 1 + 2^-10."""
    x = 1 + 2.0**-11 + 2.0**-40
    assert torch.tensor([x], dtype=torch.float64).to(torch.float16).item() == 1.0
    assert round_to(x, FP16) == np.float16(np.float64(x)) == 1 + 2.0**-10


@pytest.mark.parametrize("fmt", [FP8_E4M3, FP8_E5M2], ids=repr)
def test_ml_dtypes_and_torch_round_fp64_to_fp8_twice(fmt: Format) -> None:
    """A disagreement, and both oracles are wrong; gfloat rounds once."""
    x = 1 + 2.0**-fmt.precision + 2.0**-40
    above_one = 1 + 2.0 ** (1 - fmt.precision)
    assert float(np.array([x]).astype(NUMPY_TYPES[fmt])[0]) == 1.0
    assert torch.tensor([x], dtype=torch.float64).to(TORCH_TYPES[fmt]).float().item() == 1.0
    assert gfloat.round_float(GFLOAT_FORMATS[fmt], x) == above_one
    assert round_to(x, fmt) == above_one


def test_double_rounding_errs_only_where_fp32_lands_on_a_midpoint() -> None:
    """How far ml_dtypes and torch can be trusted from FP64: wrong exactly next to midpoints, RNE."""
    closest = points(BF16, np.arange(BF16.max_code + 1, dtype=np.uint64), np.float64)
    right = closest.expected(BF16, RNE)
    with np.errstate(over="ignore"):
        fp32 = closest.x.astype(np.float32)
    collapsed = (fp32.astype(np.float64) != closest.x) & (fp32.view(np.uint32) & 0xFFFF == 0x8000)
    pulled_down = collapsed & (closest.side == 3) & (closest.low % 2 == 0)
    pushed_up = collapsed & (closest.side == 1) & (closest.low % 2 == 1)
    for theirs in (closest.x.astype(ml_dtypes.bfloat16), torch.from_numpy(closest.x).to(torch.bfloat16)):
        wrong = bits_of(theirs, BF16) != right
        np.testing.assert_array_equal(wrong, pulled_down | pushed_up)
        assert wrong.sum() == 2 * (BF16.max_code + 1)  # one side of every midpoint, in both signs


def test_torch_saturates_e4m3_and_ml_dtypes_does_not() -> None:
    """OCP leaves the choice open; here overflow gives NaN, as in ml_dtypes and gfloat."""
    large = np.array([465, 480, 1e9], dtype=np.float32)
    assert torch.from_numpy(large).to(torch.float8_e4m3fn).float().tolist() == [448.0] * 3
    assert np.isnan(large.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)).all()
    assert all(math.isnan(gfloat.round_float(GFLOAT_FORMATS[FP8_E4M3], float(x))) for x in large)
    assert all(math.isnan(round_to(x, FP8_E4M3)) for x in large)


def test_torch_rounds_fp32_to_e4m3_alike_below_the_overflow() -> None:
    every = all_points(FP8_E4M3)
    inside = np.abs(every.x) <= 464
    theirs = torch.from_numpy(every.x.astype(np.float32)).to(torch.float8_e4m3fn)
    ours = every.expected(FP8_E4M3, RNE)
    assert_same_codes(ours[inside], bits_of(theirs, FP8_E4M3)[inside], every.x[inside])
