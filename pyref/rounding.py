"""Correct rounding of exact numbers into a `Format`: the scalar specification of every rounding step.

Integers only. A number is reduced to a dyadic `m * 2^e` that rounds as it does; the quantum at its
magnitude is a power of two; what lies below the quantum decides, by one line per mode. There is one
rounding, whatever the size of the number: nothing passes through FP64.

Conventions, the same for every function here (IEEE 754-2019, sections 4.3 and 7.4):

- *zero*: an exact zero gives +0; a nonzero value that rounds to zero keeps its sign (`-0.0` for a
  negative one); the float `-0.0` stays `-0.0`.
- *overflow*: the value is rounded as if the exponent had no upper bound. If that exceeds the largest
  finite value, the modes that moved away from zero (RNE, RNA; RU above; RD below) give an infinity and
  the others (RZ; RD above; RU below) the largest finite value of that sign.
- *formats without infinity* (FP8_E4M3): where the rule says infinity, the result is NaN (the
  non-saturating conversion of the OCP specification), for an infinite input too. RNE takes 464, the
  midpoint between 448 and the missing 480, to 448, whose significand is even.
- *NaN* gives NaN.
"""

from __future__ import annotations

from enum import Enum
from fractions import Fraction
from math import copysign, inf, isfinite, isqrt, nan
from operator import index
from typing import Any, Protocol, SupportsInt, TypeAlias

import numpy as np

from .formats import Format, Value


class Ratio(Protocol):
    """What `int`, `Fraction`, NumPy integers and `gmpy2.mpq` have in common."""

    @property
    def numerator(self) -> SupportsInt: ...
    @property
    def denominator(self) -> SupportsInt: ...


Exact: TypeAlias = Ratio | float | tuple[int, int] | np.floating[Any]
"""A number taken exactly: a ratio, a binary float, or the dyadic pair `(m, e)` for `m * 2^e`."""


class RoundingMode(Enum):
    """The five rounding-direction attributes of IEEE 754-2019, section 4.3."""

    RNE = "nearest, ties to even"
    RNA = "nearest, ties away from zero"
    RZ = "toward zero"
    RU = "toward +infinity"
    RD = "toward -infinity"

    NEAREST_EVEN = RNE
    NEAREST_AWAY = RNA
    TOWARD_ZERO = RZ
    UP = RU
    DOWN = RD


RNE, RNA, RZ, RU, RD = RoundingMode
_FLOATS = (float, np.floating)


def round_to(x: Exact, fmt: Format, mode: RoundingMode = RNE) -> Value:
    """The value of `fmt` that `x` rounds to, by the conventions of this module.

    Raises `TypeError` for anything that is not a number in the sense of `Exact`.
    """
    number = _dyadic(x, fmt.precision)
    if isinstance(number, float):
        return number if fmt.infinities or isfinite(number) else nan
    m, e = number
    if m == 0:
        return Fraction(0)
    significand, exponent = _round_magnitude(abs(m), e, m < 0, fmt, mode)
    if significand < 0:
        return nan if not fmt.infinities else -inf if m < 0 else inf
    if significand == 0 and m < 0:
        return -0.0
    return dyadic_value(-significand if m < 0 else significand, exponent)


def round_to_bits(x: Exact, fmt: Format, mode: RoundingMode = RNE) -> int:
    """The code of `round_to(x, fmt, mode)`; NaN is the canonical quiet NaN `fmt.nan_code`."""
    number = _dyadic(x, fmt.precision)
    if isinstance(number, float):
        if number == 0.0:
            return fmt.sign_bit
        if number != number or not fmt.infinities:
            return fmt.nan_code
        return fmt.max_code + 1 + (fmt.sign_bit if number < 0 else 0)
    m, e = number
    if m == 0:
        return 0
    significand, exponent = _round_magnitude(abs(m), e, m < 0, fmt, mode)
    if significand < 0:
        if not fmt.infinities:
            return fmt.nan_code
        code = fmt.max_code + 1
    else:
        code = magnitude_code(significand, exponent, fmt)
    return code | fmt.sign_bit if m < 0 else code


def sqrt_round(x: Exact, fmt: Format, mode: RoundingMode = RNE) -> Value:
    """The square root of `x`, rounded once. `sqrt(-0.0)` is `-0.0`; raises `ValueError` below zero.

    `isqrt` gives two bits more than the precision; whether anything is left over becomes one more.
    """
    number = exact(x)
    if number < 0:
        raise ValueError(f"square root of a negative number: {x!r}")
    if isinstance(number, float) or number == 0:
        return round_to(number, fmt, mode)
    n, d = number.numerator, number.denominator
    scale = fmt.precision + 3 - (n.bit_length() - d.bit_length()) // 2
    n, d = (n << 2 * scale, d) if scale >= 0 else (n, d << -2 * scale)
    root = isqrt(n // d)
    return round_to((2 * root + (root * root * d != n), -scale - 1), fmt, mode)


def next_up(x: Exact, fmt: Format) -> Value:
    """The least value of `fmt` above `x` (any exact number, not only a value of `fmt`).

    As IEEE nextUp: above `-min_subnormal` comes `-0.0`, above either zero `min_subnormal`, above
    `max_finite` the infinity (NaN where there is none), which is its own successor.
    """
    return _neighbour(x, fmt, RU)


def next_down(x: Exact, fmt: Format) -> Value:
    """The greatest value of `fmt` below `x`; the mirror image of `next_up`."""
    return _neighbour(x, fmt, RD)


def ulp(x: Exact, fmt: Format) -> Fraction:
    """The spacing of `fmt` at the magnitude of `x`: `2^(max(floor(log2|x|), emin) - precision + 1)`.

    `x` need not be a value of `fmt`; at zero it is the smallest subnormal, and above the largest finite
    value the formula goes on. It never decreases with `|x|`. Raises `ValueError` for NaN and infinities.
    """
    number = _dyadic(x, fmt.precision)
    if isinstance(number, float):
        if number != 0:
            raise ValueError(f"no spacing at {x!r}")
        return fmt.min_subnormal
    m, e = number
    top = m.bit_length() + e - 1 if m else fmt.emin
    return dyadic_value(1, max(top, fmt.emin) - fmt.precision + 1)


def exact(x: Exact) -> Value:
    """`x` itself: a `Fraction`, or the float that says -0, an infinity or NaN."""
    if isinstance(x, _FLOATS) and _is_special(x):
        return float(x)
    return Fraction(*_ratio(x))


def dyadic_value(m: int, e: int) -> Fraction:
    """`m * 2^e` as a `Fraction`."""
    return Fraction(m << e) if e >= 0 else Fraction(m, 1 << -e)


def magnitude_code(significand: int, exponent: int, fmt: Format) -> int:
    """The code of `significand * 2^exponent`, normalised as `_round_magnitude` leaves it.

    The hidden bit of a normal significand adds the one by which its exponent field exceeds a
    subnormal's; a significand of `2^precision` carries into the field the same way.
    """
    return ((exponent - fmt.quantum_exp) << (fmt.precision - 1)) + significand


def _round_magnitude(n: int, e: int, negative: bool, fmt: Format, mode: RoundingMode) -> tuple[int, int]:
    """Round `n * 2^e` (n > 0), the magnitude of a number with the given sign.

    Returns `(significand, exponent)`, a multiple of the quantum at that magnitude; a significand of -1
    says infinity.
    """
    precision = fmt.precision
    length = n.bit_length()
    top = length + e - 1
    if top > fmt.emax:  # also keeps a huge exponent from being shifted out
        return _overflow(negative, fmt, mode)
    exponent = (top if top > fmt.emin else fmt.emin) - precision + 1
    shift = exponent - e
    if shift <= 0:
        significand = n << -shift
    else:
        if shift > length + 1:  # far below half of the quantum: keep only that it is not zero
            n, shift = 1, 2
        significand = n >> shift
        rest = n - (significand << shift)
        if rest:
            half = 1 << (shift - 1)
            if mode is RNE:
                away = rest > half or (rest == half and significand & 1 == 1)
            elif mode is RNA:
                away = rest >= half
            elif mode is RZ:
                away = False
            elif mode is RU:
                away = not negative
            elif mode is RD:
                away = negative
            else:
                raise TypeError(f"not a RoundingMode: {mode!r}")
            significand += away
    if top == fmt.emax and magnitude_code(significand, exponent, fmt) > fmt.max_code:
        return _overflow(negative, fmt, mode)
    return significand, exponent


def _overflow(negative: bool, fmt: Format, mode: RoundingMode) -> tuple[int, int]:
    toward_zero = mode is RZ or mode is (RU if negative else RD)
    if not toward_zero:
        return -1, 0
    exponent = fmt.emax - fmt.precision + 1
    return fmt.max_code - magnitude_code(0, exponent, fmt), exponent


def _neighbour(x: Exact, fmt: Format, direction: RoundingMode) -> Value:
    number = exact(x)
    if not isfinite(number):
        outward = number != number or (number > 0) == (direction is RU)
        return round_to(number, fmt) if outward else (fmt.max_finite if number > 0 else -fmt.max_finite)
    rounded = round_to(number, fmt, direction)
    if rounded != number:
        return rounded
    step = fmt.min_subnormal / 2  # leaves the value, and reaches no other
    moved = Fraction(number) + (step if direction is RU else -step)
    return round_to(moved, fmt, direction)


def _is_special(x: float | np.floating[Any]) -> bool:
    """Whether no ratio stands for this float: NaN, an infinity or -0."""
    return not isfinite(x) or (x == 0 and copysign(1, x) < 0)


def _ratio(x: Exact) -> tuple[int, int]:
    """Numerator and positive denominator. Raises `ValueError` for NaN and infinities."""
    if type(x) is Fraction or type(x) is int:
        return x.numerator, x.denominator
    if isinstance(x, tuple):
        m, e = _pair(x)
        return (m << e, 1) if e >= 0 else (m, 1 << -e)
    if isinstance(x, _FLOATS):
        if not isfinite(x):
            raise ValueError(f"not a finite number: {x!r}")
        n, d = x.as_integer_ratio()
        return int(n), int(d)
    try:
        return int(x.numerator), int(x.denominator)
    except AttributeError:
        raise TypeError(f"not an exact number: {x!r} ({type(x).__name__})") from None


def _pair(x: tuple[int, int]) -> tuple[int, int]:
    """A dyadic pair in Python integers, since NumPy's would wrap when shifted."""
    m, e = x
    return index(m), index(e)


def _dyadic(x: Exact, precision: int) -> tuple[int, int] | float:
    """`(m, e)` such that `m * 2^e` rounds as `x` does at this precision or a smaller one.

    The floats that no pair stands for (-0, infinities, NaN) come back as they are. Any other ratio is
    cut to two bits more than the precision, and one more says whether something was cut off: no
    midpoint and no value of the format lies between the two.
    """
    if isinstance(x, tuple):
        return _pair(x)
    if isinstance(x, _FLOATS) and _is_special(x):
        return float(x)
    n, d = _ratio(x)
    if d & (d - 1) == 0:
        return n, 1 - d.bit_length()
    scale = precision + 3 - (n.bit_length() - d.bit_length())
    quotient, rest = divmod(abs(n) << scale, d) if scale >= 0 else divmod(abs(n), d << -scale)
    sticky = 2 * quotient + (rest != 0)
    return (-sticky if n < 0 else sticky), -scale - 1
