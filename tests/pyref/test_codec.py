"""Every code of the formats up to 16 bits, against the formula of the standard and other decoders."""

from __future__ import annotations

import math
import struct
from fractions import Fraction
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
import torch
from certhead.pyref.codec import decode, decode_dyadic, encode
from certhead.pyref.formats import BF16, FP8_E4M3, FP8_E5M2, FP16, FP32, FP64, Format
from hypothesis import given
from hypothesis import strategies as st
from strategies import FORMATS, TINY, TINY_FN, finite_codes, formats

SMALL = [BF16, FP16, FP8_E4M3, FP8_E5M2, TINY, TINY_FN]


def by_the_standard(code: int, fmt: Format) -> float:
    """IEEE 754-2019 section 3.4, with the field widths counted from the format's own parameters."""
    t, w = fmt.precision - 1, fmt.exponent_bits
    sign, field, trailing = code >> (t + w), (code >> t) % 2**w, code % 2**t
    if fmt.infinities and field == 2**w - 1:
        magnitude = math.inf if trailing == 0 else math.nan
    elif not fmt.infinities and code % 2 ** (t + w) == 2 ** (t + w) - 1:
        magnitude = math.nan
    elif field == 0:
        magnitude = math.ldexp(trailing, fmt.emin - t)
    else:
        magnitude = math.ldexp(2**t + trailing, field - fmt.bias - t)
    return (-1) ** sign * magnitude


def same(value: Fraction | float, expected: float) -> bool:
    """Equal as floating-point data: NaN equals NaN, and the sign of a zero counts."""
    if expected != expected:
        return value != value
    return value == expected and math.copysign(1, value) == math.copysign(1, expected)


@pytest.mark.parametrize("fmt", SMALL, ids=repr)
def test_every_code_decodes_as_the_standard_says_and_encodes_back(fmt: Format) -> None:
    nans = 0
    for code in range(1 << fmt.width):
        value = decode(code, fmt)
        assert same(value, by_the_standard(code, fmt)), f"{fmt} {code:#x} decodes to {value!r}"
        if value != value:
            nans += 1
            assert encode(value, fmt) == fmt.nan_code
        else:
            assert encode(value, fmt) == code
    assert nans == (2 * (2 ** (fmt.precision - 1) - 1) if fmt.infinities else 2)


@pytest.mark.parametrize("fmt", SMALL, ids=repr)
def test_codes_are_ordered_as_their_values(fmt: Format) -> None:
    values = [decode(code, fmt) for code in range(fmt.max_code + 1)]
    assert all(isinstance(value, Fraction) for value in values)
    assert all(low < high for low, high in pairwise(values))
    assert values[-1] == fmt.max_finite


@pytest.mark.parametrize("fmt", SMALL, ids=repr)
def test_dyadic_form_of_every_finite_code(fmt: Format) -> None:
    for code in range(1 << fmt.width):
        value = decode(code, fmt)
        if not math.isfinite(value):
            with pytest.raises(ValueError, match=f"{code:#x} is not finite"):
                decode_dyadic(code, fmt)
            continue
        m, e = decode_dyadic(code, fmt)
        assert m * Fraction(2) ** e == value
        assert e >= fmt.quantum_exp
        assert abs(m) < 2**fmt.precision
        assert e == fmt.quantum_exp or abs(m) >= 2 ** (fmt.precision - 1)


@pytest.mark.parametrize(
    ("fmt", "dtype", "torch_dtype"),
    [
        (BF16, ml_dtypes.bfloat16, torch.bfloat16),
        (FP16, np.float16, torch.float16),
        (FP8_E4M3, ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn),
        (FP8_E5M2, ml_dtypes.float8_e5m2, torch.float8_e5m2),
    ],
)
def test_every_code_agrees_with_numpy_and_torch(fmt: Format, dtype: type, torch_dtype: torch.dtype) -> None:
    codes = np.arange(1 << fmt.width, dtype=np.uint16 if fmt.width == 16 else np.uint8)
    ours = np.array([float(decode(int(code), fmt)) for code in codes])
    with np.errstate(invalid="ignore"):  # signalling NaNs are among the codes
        numpys = codes.view(dtype).astype(np.float64)
    torchs = torch.from_numpy(codes).view(torch_dtype).double().numpy()
    for theirs in (numpys, torchs):
        np.testing.assert_array_equal(ours, theirs)
        finite = ours == ours
        np.testing.assert_array_equal(np.signbit(ours)[finite], np.signbit(theirs)[finite])


@given(st.data(), st.sampled_from([FP32, FP64]))
def test_wide_codes_agree_with_struct(data: st.DataObject, fmt: Format) -> None:
    code = data.draw(st.one_of(finite_codes(fmt), st.integers(0, 2**fmt.width - 1)))
    integer, floating = ("<I", "<f") if fmt is FP32 else ("<Q", "<d")
    (expected,) = struct.unpack(floating, struct.pack(integer, code))
    value = decode(code, fmt)
    assert same(value, expected)
    assert encode(value, fmt) == (fmt.nan_code if value != value else code)


@given(st.data(), formats)
def test_what_lies_between_two_codes_does_not_encode(data: st.DataObject, fmt: Format) -> None:
    code = data.draw(finite_codes(fmt).filter(lambda code: code & (fmt.sign_bit - 1) < fmt.max_code))
    low, high = Fraction(decode(code, fmt)), Fraction(decode(code + 1, fmt))
    between = low + (high - low) * data.draw(
        st.sampled_from([Fraction(1, 2), Fraction(1, 3), Fraction(1, 2**90)])
    )
    with pytest.raises(ValueError, match=f"is not a value of {fmt}"):
        encode(between, fmt)


@pytest.mark.parametrize("fmt", [*FORMATS, TINY, TINY_FN], ids=repr)
def test_values_out_of_range_do_not_encode(fmt: Format) -> None:
    for value in (fmt.max_finite * 2, -fmt.max_finite - 1, fmt.min_subnormal / 2, -fmt.min_subnormal / 2):
        with pytest.raises(ValueError, match=r"is not a value of"):
            encode(value, fmt)


def test_encode_takes_every_kind_of_exact_number() -> None:
    for one in (1, 1.0, Fraction(1), (1, 0), (4, -2), np.float32(1), np.int64(1)):
        assert encode(one, BF16) == 0x3F80
    assert encode(-0.0, BF16) == 0x8000
    assert encode(0, BF16) == encode(0.0, BF16) == encode((0, 5), BF16) == 0
    assert [encode(x, BF16) for x in (math.inf, -math.inf, math.nan, -math.nan)] == [
        0x7F80,
        0xFF80,
        0x7FC0,
        0x7FC0,
    ]
    with pytest.raises(ValueError, match=r"0\.1 is not a value of BF16"):
        encode(0.1, BF16)


def test_a_format_without_infinity_has_no_code_for_one() -> None:
    assert encode(math.nan, FP8_E4M3) == 0x7F
    assert math.isnan(decode(0xFF, FP8_E4M3))
    for infinity in (math.inf, -math.inf):
        with pytest.raises(ValueError, match="inf is not a value of FP8_E4M3"):
            encode(infinity, FP8_E4M3)


@pytest.mark.parametrize("bits", [-1, 1 << 16])
def test_bits_outside_the_width_are_refused(bits: int) -> None:
    for function in (decode, decode_dyadic):
        with pytest.raises(ValueError, match=r"is not a code of BF16 \(16 bits\)"):
            function(bits, BF16)


def test_numpy_codes_decode() -> None:
    assert decode(np.uint16(0x3F80), BF16) == 1
    with pytest.raises(TypeError):
        decode(1.0, BF16)  # type: ignore[arg-type]
