"""Hypothesis strategies for numbers: codes, values, and exact numbers where rounding is decided.

Uniform numbers hardly ever come near a midpoint, a subnormal or the overflow threshold. So the exact
numbers here are built from a code of a format and a displacement measured in half-spacings.
"""

from __future__ import annotations

from fractions import Fraction

from certhead.pyref.codec import decode
from certhead.pyref.formats import BF16, FP8_E4M3, FP8_E5M2, FP16, FP32, FP64, Format
from certhead.pyref.rounding import RoundingMode, ulp
from hypothesis import strategies as st

FORMATS = (BF16, FP16, FP32, FP64, FP8_E4M3, FP8_E5M2)

TINY = Format("TINY", precision=3, emin=-2, emax=3)
"""64 codes: small enough to try every value for every answer."""
TINY_FN = Format("TINY_FN", precision=3, emin=-2, emax=4, infinities=False)
"""The same without infinities."""

formats = st.sampled_from(FORMATS)
modes = st.sampled_from(tuple(RoundingMode))


def finite_codes(fmt: Format) -> st.SearchStrategy[int]:
    """Codes of finite values of either sign, the ends of the range and of the subnormals oftener."""
    first_normal = 1 << (fmt.precision - 1)
    magnitudes = st.one_of(
        st.integers(0, fmt.max_code),
        st.integers(0, 2 * first_normal),
        st.integers(fmt.max_code - first_normal, fmt.max_code),
        st.sampled_from([0, 1, first_normal - 1, first_normal, fmt.max_code]),
    )
    return st.builds(lambda magnitude, sign: magnitude | sign, magnitudes, st.sampled_from([0, fmt.sign_bit]))


def finite_values(fmt: Format) -> st.SearchStrategy[Fraction]:
    """Finite values of a format; both zeros give `Fraction(0)`."""
    return finite_codes(fmt).map(lambda code: Fraction(decode(code, fmt)))


@st.composite
def near_decisions(draw: st.DrawFn, fmt: Format) -> Fraction:
    """An exact number on, or next to, a value of the format or the midpoint above it.

    The displacement from there is nothing, a power of two far below any wider format's resolution, or a
    third of one (no dyadic number at all). Beyond the largest finite value the spacing goes on, so the
    overflow threshold is among the midpoints.
    """
    value = draw(finite_values(fmt))
    half_spacing = ulp(value, fmt) / 2
    halves = draw(st.integers(-2, 2))
    offset = draw(st.sampled_from([-1, 0, 1])) * Fraction(2) ** -draw(st.integers(1, 80))
    return value + half_spacing * (halves + offset * draw(st.sampled_from([1, Fraction(1, 3)])))


def ratios(largest_exponent: int = 200) -> st.SearchStrategy[Fraction]:
    """Fractions with integers of any size and a power of two up to the given one, either way."""
    integers = st.integers(-(1 << 70), 1 << 70)
    return st.builds(
        lambda n, d, e: Fraction(n, d) * Fraction(2) ** e,
        integers,
        st.integers(1, 1 << 70),
        st.integers(-largest_exponent, largest_exponent),
    )


def exact_numbers(fmt: Format) -> st.SearchStrategy[Fraction]:
    """Exact numbers of every kind that matters to a format, most of them where rounding is decided."""
    return st.one_of(near_decisions(fmt), ratios(2 * fmt.emax + 80))
