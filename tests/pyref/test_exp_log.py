"""Enclosures of exp and log: the truth lies inside, and they are narrow."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest
from certhead.pyref import exp_log
from hypothesis import example, given, settings
from hypothesis import strategies as st

BITS = st.integers(64, 400)


@settings(max_examples=300, deadline=None)
@given(st.fractions(-20_000, 0) | st.floats(-50, 0).map(Fraction), BITS)
@example(Fraction(0), 64)
@example(Fraction(-9999), 64)
@example(Fraction(-1, 10**30), 96)
def test_exp(x: Fraction, bits: int) -> None:
    lo, hi = exp_log.exp(x, bits)
    with mpmath.workprec(bits + 80):
        assert lo <= mpmath.exp(mpmath.mpf(x.numerator) / x.denominator) * 2**bits <= hi
    assert 0 <= hi - lo <= 8 * (bits + abs(x))  # ln 2 is as wide as its series is long, and enters |x| times


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 2**300), st.integers(0, 2**40), BITS)
@example(1, 0, 64)
@example(2**64, 0, 64)
@example(2**63 - 1, 2, 64)
def test_log(lowest: int, width: int, bits: int) -> None:
    lo, hi = exp_log.log((lowest, lowest + width), bits)
    with mpmath.workprec(bits + 400):
        assert lo <= mpmath.log(mpmath.mpf(lowest) / 2**bits) * 2**bits
        assert mpmath.log(mpmath.mpf(lowest + width) / 2**bits) * 2**bits <= hi
    spread = Fraction(width << bits, lowest)  # ln(1 + w/l) <= w/l
    assert hi - lo <= spread + 8 * bits * (bits + 300)


def test_ends_that_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 0"):
        exp_log.exp(Fraction(1, 9), 64)
    with pytest.raises(ValueError, match="more bits"):
        exp_log.log((0, 5), 64)
    with pytest.raises(ValueError, match="more bits"):
        exp_log.exp(Fraction(-9999), 8)
