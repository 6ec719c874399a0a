"""`Format` against the tables of the standards."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from certhead.pyref.formats import BF16, FP8_E4M3, FP8_E5M2, FP16, FP32, FP64, Format
from strategies import FORMATS, TINY, TINY_FN

NUMPY_TYPES = {
    BF16: ml_dtypes.bfloat16,
    FP16: np.float16,
    FP32: np.float32,
    FP64: np.float64,
    FP8_E4M3: ml_dtypes.float8_e4m3fn,
    FP8_E5M2: ml_dtypes.float8_e5m2,
}


@pytest.mark.parametrize(
    ("fmt", "width", "exponent_bits", "bias", "max_finite", "min_normal", "min_subnormal"),
    [  # IEEE 754-2019 table 3.5 for the binary formats; OCP 8-bit Floating Point, revision 1.0, table 2
        (FP16, 16, 5, 15, 65504, Fraction(1, 2**14), Fraction(1, 2**24)),
        (FP32, 32, 8, 127, (2**24 - 1) * 2**104, Fraction(1, 2**126), Fraction(1, 2**149)),
        (FP64, 64, 11, 1023, (2**53 - 1) * 2**971, Fraction(1, 2**1022), Fraction(1, 2**1074)),
        (BF16, 16, 8, 127, 255 * 2**120, Fraction(1, 2**126), Fraction(1, 2**133)),
        (FP8_E4M3, 8, 4, 7, 448, Fraction(1, 2**6), Fraction(1, 2**9)),
        (FP8_E5M2, 8, 5, 15, 57344, Fraction(1, 2**14), Fraction(1, 2**16)),
        (TINY, 6, 3, 3, 14, Fraction(1, 4), Fraction(1, 16)),
        (TINY_FN, 6, 3, 3, 24, Fraction(1, 4), Fraction(1, 16)),
    ],
)
def test_parameters_are_those_of_the_standard(
    fmt: Format,
    width: int,
    exponent_bits: int,
    bias: int,
    max_finite: int,
    min_normal: Fraction,
    min_subnormal: Fraction,
) -> None:
    assert (fmt.width, fmt.exponent_bits, fmt.bias) == (width, exponent_bits, bias)
    assert (fmt.max_finite, fmt.min_normal, fmt.min_subnormal) == (max_finite, min_normal, min_subnormal)
    assert fmt.width == 1 + fmt.exponent_bits + fmt.precision - 1


@pytest.mark.parametrize("fmt", FORMATS, ids=repr)
def test_extremes_agree_with_the_numpy_types(fmt: Format) -> None:
    info = ml_dtypes.finfo(NUMPY_TYPES[fmt])
    assert float(info.max) == fmt.max_finite
    assert float(info.smallest_normal) == fmt.min_normal
    assert float(info.smallest_subnormal) == fmt.min_subnormal
    assert (info.bits, info.nmant) == (fmt.width, fmt.precision - 1)


@pytest.mark.parametrize(
    ("fmt", "max_code", "nan_code", "sign_bit"),
    [
        (BF16, 0x7F7F, 0x7FC0, 0x8000),
        (FP16, 0x7BFF, 0x7E00, 0x8000),
        (FP32, 0x7F7FFFFF, 0x7FC00000, 0x80000000),
        (FP64, 0x7FEFFFFFFFFFFFFF, 0x7FF8000000000000, 0x8000000000000000),
        (FP8_E4M3, 0x7E, 0x7F, 0x80),
        (FP8_E5M2, 0x7B, 0x7E, 0x80),
    ],
)
def test_named_codes(fmt: Format, max_code: int, nan_code: int, sign_bit: int) -> None:
    assert (fmt.max_code, fmt.nan_code, fmt.sign_bit) == (max_code, nan_code, sign_bit)


@pytest.mark.parametrize(
    ("precision", "emin", "emax", "infinities"),
    [(8, -126, 128, True), (8, -126, 126, True), (4, -6, 7, False), (1, -2, 3, True), (3, 5, 2, True)],
)
def test_impossible_formats_are_refused(precision: int, emin: int, emax: int, infinities: bool) -> None:
    with pytest.raises(ValueError, match="ODD"):
        Format("ODD", precision, emin, emax, infinities)


def test_a_format_is_a_constant() -> None:
    with pytest.raises(FrozenInstanceError):
        BF16.precision = 9  # type: ignore[misc]
    assert Format("BF16", 8, -126, 127) == BF16
    assert {BF16: 1}[Format("BF16", 8, -126, 127)] == 1
