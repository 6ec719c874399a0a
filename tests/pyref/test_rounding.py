"""`round_to` against its definition: the answer found by trying every value of a small format.

The brute force below knows the values (from their codes) and the definition of each mode, and nothing
of how `rounding` works. The other tests fix the conventions: zeros, overflow, kinds of input, neighbours.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import gmpy2
import numpy as np
import pytest
from certhead.pyref.codec import decode, encode
from certhead.pyref.formats import BF16, FP8_E4M3, FP8_E5M2, FP32, FP64, Format, Value
from certhead.pyref.rounding import (
    RD,
    RNA,
    RNE,
    RU,
    RZ,
    Exact,
    RoundingMode,
    exact,
    next_down,
    next_up,
    round_to,
    round_to_bits,
    sqrt_round,
    ulp,
)
from certhead.pyref.vector_rounding import (
    bf16_bits_from_fp32,
    bf16_bits_from_fp64,
    bf16_to_fp32,
    fp32_bits_from_fp64,
)
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import FORMATS, TINY, TINY_FN, exact_numbers, finite_codes, formats, modes, near_decisions


def identical(a: Value, b: Value) -> bool:
    """The same `Value`: same kind, NaN equal to NaN, zeros told apart by their sign."""
    return repr(a) == repr(b)


def brute_force(x: Fraction, fmt: Format, mode: RoundingMode) -> Value:
    """`x` rounded by search among the values of `fmt` and one more beyond either end.

    That one, a spacing further out, is where a format with one more code would go on; it stands for the
    overflow, and whatever is larger lies between it and the largest finite value for every mode.
    """
    beyond = fmt.max_finite + ulp(fmt.max_finite, fmt)
    magnitudes = [*(Fraction(decode(code, fmt)) for code in range(fmt.max_code + 1)), beyond]
    grid = [*magnitudes, *(-value for value in magnitudes)]
    if abs(x) >= beyond:
        x = (1 if x > 0 else -1) * (fmt.max_finite + 3 * beyond) / 4
    below = max(value for value in grid if value <= x)
    above = min(value for value in grid if value >= x)
    toward_zero, away = sorted((below, above), key=abs)
    nearest = min(below, above, key=lambda value: abs(x - value))
    tie = x - below == above - x
    # Codes of neighbouring magnitudes are consecutive, and the even code has the even significand.
    toward_zero_is_even = magnitudes.index(abs(toward_zero)) % 2 == 0
    chosen = {
        RD: below,
        RU: above,
        RZ: toward_zero,
        RNA: away if tie else nearest,
        RNE: (toward_zero if toward_zero_is_even else away) if tie else nearest,
    }[mode]
    if abs(chosen) > fmt.max_finite:
        return math.nan if not fmt.infinities else math.copysign(math.inf, x)
    return -0.0 if chosen == 0 and x < 0 else chosen


def eighths(fmt: Format) -> list[Fraction]:
    """Every value, midpoint, quarter and eighth of the format's spacing up to well past its range."""
    step = fmt.min_subnormal / 8
    limit = fmt.max_finite + 2 * ulp(fmt.max_finite, fmt)
    near_zero = [k * step for k in range(int(4 * fmt.min_normal / step))]
    rest = [
        Fraction(decode(code, fmt)) + k * ulp(decode(code, fmt), fmt) / 8
        for code in range(fmt.max_code + 1)
        for k in range(17)
    ]
    points = {x for x in near_zero + rest if x < limit}
    return sorted(points | {-x for x in points})


@pytest.mark.parametrize("mode", RoundingMode)
@pytest.mark.parametrize("fmt", [TINY, TINY_FN], ids=repr)
def test_small_formats_round_as_the_search_says(fmt: Format, mode: RoundingMode) -> None:
    for x in eighths(fmt):
        for nudge in (Fraction(0), Fraction(1, 3**40), -Fraction(1, 2**90)):
            expected = brute_force(x + nudge, fmt, mode)
            assert identical(round_to(x + nudge, fmt, mode), expected), f"{x} {nudge} {mode}"


@settings(max_examples=200)
@given(st.data(), modes, st.sampled_from([TINY, TINY_FN, FP8_E4M3, FP8_E5M2]))
def test_search_agrees_on_arbitrary_rationals(data: st.DataObject, mode: RoundingMode, fmt: Format) -> None:
    x = data.draw(near_decisions(fmt) | st.fractions(-fmt.max_finite, fmt.max_finite))
    assert identical(round_to(x, fmt, mode), brute_force(x, fmt, mode))


@settings(max_examples=500)
@given(st.data(), formats, modes)
def test_rounding_moves_less_than_one_spacing_the_right_way(
    data: st.DataObject, fmt: Format, mode: RoundingMode
) -> None:
    x = data.draw(exact_numbers(fmt))
    rounded = round_to(x, fmt, mode)
    assert round_to_bits(x, fmt, mode) == (fmt.nan_code if rounded != rounded else encode(rounded, fmt))
    if not math.isfinite(rounded):
        assert abs(x) > fmt.max_finite
        return
    assert decode(encode(rounded, fmt), fmt) == rounded
    error = abs(x - Fraction(rounded))
    if abs(x) <= fmt.max_finite:
        assert error < ulp(x, fmt)
        if mode in (RNE, RNA):
            assert 2 * error <= ulp(x, fmt)
    if mode is RZ:
        assert abs(rounded) <= abs(x)
    if mode is RU:
        assert rounded >= x
    if mode is RD:
        assert rounded <= x


@given(st.data(), formats, modes)
def test_rounding_is_monotone(data: st.DataObject, fmt: Format, mode: RoundingMode) -> None:
    x = data.draw(near_decisions(fmt))
    y = data.draw(st.one_of(near_decisions(fmt), st.just(x + Fraction(1, 2**2000))))
    low, high = sorted((x, y))
    a, b = round_to(low, fmt, mode), round_to(high, fmt, mode)
    assert a != a or b != b or a <= b


@given(st.data(), formats, modes)
def test_representable_values_stay(data: st.DataObject, fmt: Format, mode: RoundingMode) -> None:
    code = data.draw(finite_codes(fmt))
    assert round_to_bits(decode(code, fmt), fmt, mode) == code


@given(st.data(), formats)
def test_modes_mirror_each_other(data: st.DataObject, fmt: Format) -> None:
    x = data.draw(exact_numbers(fmt).filter(bool))
    for mode, mirrored in ((RNE, RNE), (RNA, RNA), (RZ, RZ), (RU, RD)):
        negated = round_to_bits(-x, fmt, mirrored)
        expected = round_to_bits(x, fmt, mode)
        assert negated == expected if expected == fmt.nan_code else negated == expected ^ fmt.sign_bit


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_exact_zero_is_plus_zero_and_minus_zero_stays(fmt: Format) -> None:
    for mode in RoundingMode:
        for zero in (0, Fraction(0), 0.0, (0, 7), (0, -5000), np.float32(0), gmpy2.mpq(0)):
            assert identical(round_to(zero, fmt, mode), Fraction(0))
            assert round_to_bits(zero, fmt, mode) == 0
        for zero in (-0.0, np.float32(-0.0)):
            assert identical(round_to(zero, fmt, mode), -0.0)
            assert round_to_bits(zero, fmt, mode) == fmt.sign_bit


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
@pytest.mark.parametrize("exponent", [-2, -3, -60, -100000, -(10**12)])
def test_what_rounds_to_zero_keeps_its_sign(fmt: Format, exponent: int) -> None:
    smallest = fmt.min_subnormal
    tiny = (1, fmt.quantum_exp + exponent)
    minus_tiny = (-1, fmt.quantum_exp + exponent)
    for mode in (RNE, RNA, RZ, RD):
        assert identical(round_to(tiny, fmt, mode), Fraction(0))
    for mode in (RNE, RNA, RZ, RU):
        assert identical(round_to(minus_tiny, fmt, mode), -0.0)
        assert round_to_bits(minus_tiny, fmt, mode) == fmt.sign_bit
    assert round_to(tiny, fmt, RU) == smallest
    assert round_to(minus_tiny, fmt, RD) == -smallest


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_half_of_the_smallest_subnormal(fmt: Format) -> None:
    half = fmt.min_subnormal / 2
    assert identical(round_to(half, fmt, RNE), Fraction(0))
    assert identical(round_to(-half, fmt, RNE), -0.0)
    assert round_to(half, fmt, RNA) == fmt.min_subnormal
    assert round_to(3 * half, fmt, RNE) == 2 * fmt.min_subnormal
    assert round_to(half + Fraction(1, 2**3000), fmt, RNE) == fmt.min_subnormal


@pytest.mark.parametrize("fmt", [fmt for fmt in FORMATS if fmt.infinities], ids=repr)
def test_overflow_by_mode(fmt: Format) -> None:
    largest = fmt.max_finite
    threshold = largest + ulp(largest, fmt) / 2
    inside = threshold - Fraction(1, 2**2000)
    for x in (threshold, 2**fmt.emax * 2, (1, fmt.emax + 1), (1, 10**12), (3 << 5000, 0)):
        expected = {RNE: math.inf, RNA: math.inf, RZ: largest, RU: math.inf, RD: largest}
        for mode, value in expected.items():
            assert identical(round_to(x, fmt, mode), value)
            assert round_to_bits(x, fmt, mode) == encode(value, fmt)
    for x in (-threshold, (-1, fmt.emax + 1), (-1, 10**12)):
        expected = {RNE: -math.inf, RNA: -math.inf, RZ: -largest, RU: -largest, RD: -math.inf}
        for mode, value in expected.items():
            assert identical(round_to(x, fmt, mode), value)
            assert round_to_bits(x, fmt, mode) == encode(value, fmt)
    for mode, value in {RNE: largest, RNA: largest, RZ: largest, RU: math.inf, RD: largest}.items():
        assert identical(round_to(inside, fmt, mode), value)
        assert identical(round_to(largest, fmt, mode), largest)


def test_overflow_without_infinity() -> None:
    cases: list[tuple[Exact, RoundingMode, float]] = [
        (464, RNE, 448),  # the midpoint to the missing 480: 448 has the even significand
        (464, RNA, math.nan),
        (464, RZ, 448),
        (464, RU, math.nan),
        (464, RD, 448),
        (449, RNE, 448),
        (449, RU, math.nan),
        (Fraction(464) + Fraction(1, 2**99), RNE, math.nan),
        (480, RNE, math.nan),
        (10**9, RZ, 448),
        (10**9, RD, 448),
        (-(10**9), RU, -448),
        (-(10**9), RD, math.nan),
        (-(10**9), RNE, math.nan),
        ((1, 10**12), RNE, math.nan),
    ]
    for x, mode, expected in cases:
        rounded = round_to(x, FP8_E4M3, mode)
        assert rounded == expected or (rounded != rounded and expected != expected), (x, mode)
        assert round_to_bits(x, FP8_E4M3, mode) == (
            0x7F if expected != expected else encode(expected, FP8_E4M3)
        )
    for infinity in (math.inf, -math.inf):
        for mode in RoundingMode:
            assert math.isnan(round_to(infinity, FP8_E4M3, mode))
            assert round_to_bits(infinity, FP8_E4M3, mode) == 0x7F


def test_infinities_and_nan_pass_through_every_mode() -> None:
    for mode in RoundingMode:
        assert round_to(math.inf, BF16, mode) == math.inf
        assert round_to(np.float32(-np.inf), BF16, mode) == -math.inf
        assert math.isnan(round_to(math.nan, BF16, mode))
        bits = [round_to_bits(x, BF16, mode) for x in (math.inf, -math.inf, math.nan, -math.nan)]
        assert bits == [0x7F80, 0xFF80, 0x7FC0, 0x7FC0]


@given(st.data(), formats, modes)
def test_every_kind_of_number_is_taken_exactly(data: st.DataObject, fmt: Format, mode: RoundingMode) -> None:
    x = data.draw(st.floats(allow_nan=False))
    bits = round_to_bits(x, fmt, mode)
    kinds: list[Exact] = [np.float64(x), np.longdouble(x)]
    if math.isfinite(x) and not (x == 0 and math.copysign(1, x) < 0):
        n, d = x.as_integer_ratio()
        kinds += [Fraction(x), gmpy2.mpq(n, d), (n, 1 - d.bit_length()), (n << 9, -8 - d.bit_length())]
        if d == 1:
            kinds += [n, gmpy2.mpz(n)]
    for kind in kinds:
        assert round_to_bits(kind, fmt, mode) == bits, repr(kind)


def test_numbers_that_no_fp64_holds() -> None:
    one = Fraction(1)
    assert round_to(one + Fraction(1, 2**8), BF16) == 1
    assert round_to(one + Fraction(1, 2**8) + Fraction(1, 2**5000), BF16) == Fraction(129, 128)
    assert round_to((2**5000 + 2**4992 + 1, -5000), BF16) == Fraction(129, 128)
    assert round_to(one - Fraction(1, 3**3000), FP64, RZ) == Fraction(2**53 - 1, 2**53)
    assert round_to(gmpy2.mpq(10**400 + 1, 10**400), FP64, RU) == 1 + Fraction(1, 2**52)
    assert round_to(2**1000 + 1, FP64, RU) == 2**1000 + 2**948
    assert round_to(np.longdouble(1) + np.finfo(np.longdouble).eps, FP64, RU) == 1 + Fraction(1, 2**52)


def test_numpy_integers_do_not_wrap() -> None:
    assert round_to(np.int64(2**62 + 1), FP64, RU) == 2**62 + 2**10
    assert round_to((np.int64(2**62 + 1), np.int64(60)), FP64, RU) == (2**62 + 2**10) * 2**60  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["1", None, 1j, [1], np.array([1.0])])
def test_what_is_no_number_is_refused(bad: Any) -> None:
    with pytest.raises(TypeError):
        round_to(bad, BF16)


def test_a_mode_is_not_a_string() -> None:
    with pytest.raises(TypeError, match="not a RoundingMode: 'RNE'"):
        round_to(0.1, BF16, "RNE")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a RoundingMode: 'RNE'"):
        bf16_bits_from_fp64(np.array([0.1]), "RNE")  # type: ignore[arg-type]


def test_mode_names() -> None:
    assert RoundingMode.NEAREST_EVEN is RNE is RoundingMode.RNE
    assert [RoundingMode.NEAREST_AWAY, RoundingMode.TOWARD_ZERO] == [RNA, RZ]
    assert [RoundingMode.UP, RoundingMode.DOWN] == [RU, RD]
    assert len(RoundingMode) == 5


def test_exact_keeps_the_number() -> None:
    assert identical(exact(0.1), Fraction(0.1))
    assert identical(exact((3, -2)), Fraction(3, 4))
    assert identical(exact(np.float32(-0.0)), -0.0)
    assert identical(exact(-math.inf), -math.inf)


@pytest.mark.parametrize("fmt", [TINY, TINY_FN, FP8_E5M2, FP8_E4M3, BF16], ids=repr)
def test_neighbours_of_every_value(fmt: Format) -> None:
    top = math.inf if fmt.infinities else math.nan
    values = [*(decode(code, fmt) for code in range(fmt.max_code + 1)), top]
    for value, above in pairwise(values):
        assert identical(next_up(value, fmt), above)
        assert identical(next_down(-value, fmt), -above)
        if above is not top:
            assert identical(next_down(above, fmt), value)
            assert identical(next_up(-above, fmt), -value if value else -0.0)
            assert ulp(value, fmt) == above - value


def test_neighbours_of_the_values_that_are_no_fractions() -> None:
    for fmt in FORMATS:
        assert next_up(-0.0, fmt) == next_up(0.0, fmt) == fmt.min_subnormal
        assert next_down(-0.0, fmt) == next_down(0, fmt) == -fmt.min_subnormal
        assert next_up(-math.inf, fmt) == -fmt.max_finite
        assert next_down(math.inf, fmt) == fmt.max_finite
        assert math.isnan(next_up(math.nan, fmt))
    assert next_up(math.inf, FP32) == math.inf
    assert next_down(-math.inf, FP32) == -math.inf
    assert math.isnan(next_up(math.inf, FP8_E4M3))


@given(st.data(), formats)
def test_neighbours_of_any_number_enclose_it_tightly(data: st.DataObject, fmt: Format) -> None:
    x = data.draw(near_decisions(fmt).filter(lambda x: abs(x) <= fmt.max_finite))
    low, high = next_down(x, fmt), next_up(x, fmt)
    assert low < x or low != low
    assert high > x or high != high
    if math.isfinite(high) and math.isfinite(low):
        assert next_up(low, fmt) in (x, high)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_fp64_neighbours_and_ulp_are_those_of_math(x: float) -> None:
    assert ulp(x, FP64) == math.ulp(x)
    assert next_up(x, FP64) == math.nextafter(x, math.inf)
    assert next_down(x, FP64) == math.nextafter(x, -math.inf)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_fp32_neighbours_and_ulp_are_those_of_numpy(x: float) -> None:
    with np.errstate(over="ignore"):
        assert next_up(x, FP32) == np.nextafter(np.float32(x), np.float32(np.inf))
        assert next_down(x, FP32) == np.nextafter(np.float32(x), np.float32(-np.inf))
    if abs(x) < FP32.max_finite:  # NumPy has no spacing there
        assert ulp(x, FP32) == abs(np.spacing(np.float32(x)))


@given(st.data(), formats)
def test_ulp_never_decreases(data: st.DataObject, fmt: Format) -> None:
    low, high = sorted((data.draw(exact_numbers(fmt)), data.draw(exact_numbers(fmt))), key=abs)
    assert ulp(low, fmt) <= ulp(high, fmt)
    assert ulp(-low, fmt) == ulp(low, fmt)


def test_ulp_of_non_values() -> None:
    assert ulp(Fraction(1, 3), BF16) == Fraction(1, 2**9)
    assert ulp(Fraction(10**30, 3), BF16) == Fraction(2) ** (98 - 7)
    assert ulp((1, 500), BF16) == Fraction(2) ** 493
    for x in (math.inf, -math.inf, math.nan):
        with pytest.raises(ValueError, match="no spacing at"):
            ulp(x, BF16)


@settings(max_examples=300)
@given(st.data(), formats, modes)
def test_square_roots_are_bracketed(data: st.DataObject, fmt: Format, mode: RoundingMode) -> None:
    """The root's neighbours and midpoints, squared, decide: no root is taken here."""
    near_root = data.draw(near_decisions(fmt).filter(lambda r: 0 < r < fmt.max_finite))
    x = data.draw(st.sampled_from([near_root**2, near_root])) + data.draw(
        st.sampled_from([Fraction(0), Fraction(1, 2**5000)])
    )
    if x >= fmt.max_finite**2:
        return
    low = sqrt_round(x, fmt, RD)
    high = sqrt_round(x, fmt, RU)
    assert isinstance(low, Fraction)
    assert low**2 <= x
    assert high != high or high**2 >= x
    assert identical(high, low) if low**2 == x else identical(high, next_up(low, fmt))
    if not isinstance(high, Fraction):
        return
    middle = (low + high) / 2
    even = low if encode(low, fmt) % 2 == 0 else high
    nearest = low if middle**2 > x else high
    expected = {
        RD: low,
        RZ: low,
        RU: high,
        RNE: even if middle**2 == x and low != high else nearest,
        RNA: high if middle**2 == x else nearest,
    }
    if low == high:
        expected[RNE] = expected[RNA] = low
    assert identical(sqrt_round(x, fmt, mode), expected[mode])


def test_square_root_conventions() -> None:
    assert identical(sqrt_round(0, FP32), Fraction(0))
    assert identical(sqrt_round(-0.0, FP32, RD), -0.0)
    assert sqrt_round(math.inf, FP32) == math.inf
    assert math.isnan(sqrt_round(math.nan, FP32))
    assert sqrt_round((1, -4000), BF16, RU) == BF16.min_subnormal
    assert sqrt_round((1, 4000), BF16, RD) == BF16.max_finite
    for negative in (-1, -math.inf, Fraction(-1, 10**9), (-3, 5)):
        with pytest.raises(ValueError, match="square root of a negative number: "):
            sqrt_round(negative, FP32)


@settings(max_examples=60)
@given(st.data(), modes)
def test_vector_twins_equal_the_scalar_near_every_decision(data: st.DataObject, mode: RoundingMode) -> None:
    for fmt, twin in ((BF16, bf16_bits_from_fp64), (FP32, fp32_bits_from_fp64)):
        numbers = data.draw(st.lists(near_decisions(fmt), min_size=1, max_size=8))
        x = np.array([float(round_to(number, FP64, RZ)) for number in numbers])
        expected = [round_to_bits(value, fmt, mode) for value in x]
        assert twin(x, mode).tolist() == expected


@given(st.floats(), modes)
@example(math.nan, RU)
@example(-0.0, RD)
@example(5e-324, RU)
@example(-5e-324, RD)
@example(-5e-324, RU)
@example(1.7976931348623157e308, RNE)
@example(1.7976931348623157e308, RZ)
@example(-math.inf, RU)
def test_vector_twins_equal_the_scalar_on_any_float(x: float, mode: RoundingMode) -> None:
    array = np.array([x])
    assert bf16_bits_from_fp64(array, mode)[0] == round_to_bits(x, BF16, mode)
    assert fp32_bits_from_fp64(array, mode)[0] == round_to_bits(x, FP32, mode)


def test_vector_twins_keep_shapes_and_strides() -> None:
    x = np.linspace(-3, 3, 24).reshape(2, 3, 4)
    codes = bf16_bits_from_fp64(x)
    assert codes.shape == x.shape
    assert codes.dtype == np.uint16
    np.testing.assert_array_equal(bf16_bits_from_fp64(x.transpose(2, 0, 1)), codes.transpose(2, 0, 1))
    np.testing.assert_array_equal(bf16_bits_from_fp32(x.astype(np.float32)[:, ::2]), codes[:, ::2])
    assert fp32_bits_from_fp64(np.array(1.5)).shape == ()
    assert bf16_bits_from_fp64(np.zeros((0, 3))).shape == (0, 3)
    assert bf16_to_fp32(codes).shape == x.shape


def test_vector_twins_leave_their_input_alone() -> None:
    x = np.array([1.1, -0.0, 1e-320, np.inf, np.nan, -1e300])
    before = x.view(np.uint64).copy()
    narrow = np.array([1.1, -0.0, 1e-42, np.inf, np.nan, -3.4e38], dtype=np.float32)
    narrow_before = narrow.view(np.uint32).copy()
    for mode in RoundingMode:
        bf16_bits_from_fp64(x, mode)
        fp32_bits_from_fp64(x, mode)
        bf16_bits_from_fp32(narrow, mode)
    np.testing.assert_array_equal(x.view(np.uint64), before)
    np.testing.assert_array_equal(narrow.view(np.uint32), narrow_before)


@pytest.mark.parametrize(
    "twin", [bf16_bits_from_fp64, fp32_bits_from_fp64, bf16_bits_from_fp32, bf16_to_fp32]
)
def test_vector_twins_refuse_other_types(twin: Any) -> None:
    with pytest.raises(TypeError, match=r"expected .*, got int64"):
        twin(np.arange(3))


def test_bf16_widens_exactly() -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    wide = bf16_to_fp32(codes)
    for code in range(1 << 16):
        value = decode(code, BF16)
        assert float(wide[code]) == value or (value != value and np.isnan(wide[code]))
    np.testing.assert_array_equal(wide.view(np.uint32) >> 16, codes)
