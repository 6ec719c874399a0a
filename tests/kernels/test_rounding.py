"""The torch roundings against the exact ones, on values where rounding is decided."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from certhead.kernels import rounding
from certhead.pyref.codec import encode
from certhead.pyref.formats import BF16, FP32, FP64
from certhead.pyref.rounding import RD, RU, next_down, next_up, round_to, round_to_bits
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import near_decisions


def bits32(x: torch.Tensor) -> list[int]:
    return [b & 0xFFFFFFFF for b in x.view(torch.int32).tolist()]


@st.composite
def near_fp32(draw: st.DrawFn) -> float:
    """FP64 values on and beside FP32 values and their midpoints; overflow is not the subject."""
    value = draw(near_decisions(FP32))
    return float(round_to(value if abs(value) < 2**120 else value / 2**40, FP64))


@given(st.lists(near_fp32(), min_size=1, max_size=20))
@example([0.0, -0.0, 2.0**-149, 2.0**-126, 1.0, -1.0, 1 + 2.0**-24, -1 - 2.0**-52, 2.0**31 - 1])
def test_fp32_directed(values: list[float]) -> None:
    x = torch.tensor(values, dtype=torch.float64)
    assert bits32(rounding.fp32_down(x)) == [round_to_bits(v, FP32, RD) for v in values]
    assert bits32(rounding.fp32_up(x)) == [round_to_bits(v, FP32, RU) for v in values]


@st.composite
def near_bf16(draw: st.DrawFn) -> float:
    """On a positive normal BF16 value or a midpoint, or a last place of FP32 or FP64 beside it."""
    value = 1 + draw(st.integers(0, 256)) * 2.0**-8
    return (
        value + draw(st.sampled_from([-1, 0, 1])) * draw(st.sampled_from([2.0**-23, 2.0**-52]))
    ) * 2.0 ** (draw(st.integers(-100, 100)))


@given(st.lists(near_bf16(), min_size=1, max_size=20))
def test_bf16_up(values: list[float]) -> None:
    got = rounding.bf16_up(torch.tensor(values, dtype=torch.float64))
    assert got.dtype is torch.bfloat16
    assert (got.view(torch.int16).int() & 0xFFFF).tolist() == [round_to_bits(v, BF16, RU) for v in values]


def test_bf16_up_at_every_scale_that_quantize_can_need() -> None:
    """largest/127 for every BF16 magnitude that a head may hold: FP64's division hides no tie."""
    codes = torch.arange(0x80, 0x4780, dtype=torch.int32).to(torch.int16)
    largest = codes.view(torch.bfloat16).double()
    keep = largest > 127 * 2.0**-50
    got = rounding.bf16_up(largest[keep] / 127).view(torch.int16).tolist()
    for value, code in list(zip(largest[keep].tolist(), got, strict=True))[::7]:
        assert code == round_to_bits(Fraction(value) / 127, BF16, RU)


def test_powers_and_logarithms() -> None:
    exponents = torch.arange(-1022, 1024)
    powers = rounding.power_of_two(exponents)
    assert powers.tolist() == [2.0**e for e in exponents.tolist()]
    assert torch.equal(rounding.floor_log2(powers), exponents)
    above = torch.tensor([float(next_up(Fraction(2) ** e, FP64)) for e in range(-50, 50)])
    assert rounding.floor_log2(above.double()).tolist() == list(range(-50, 50))
    below = [float(next_down(Fraction(2) ** e, FP64)) for e in range(-50, 50)]
    assert rounding.floor_log2(torch.tensor(below, dtype=torch.float64)).tolist() == list(range(-51, 49))


@pytest.mark.parametrize("value", [1.0, -1.0, 2.0**-149, 2.0**-126, -(2.0**100)])
def test_values_that_fp32_has_stay(value: float) -> None:
    x = torch.tensor([value], dtype=torch.float64)
    assert bits32(rounding.fp32_up(x)) == bits32(rounding.fp32_down(x)) == [encode(value, FP32)]
