"""exp and log enclosed between integers: the transcendental functions that a specification needs.

A real number y is held as a pair of integers `(lo, hi)` with `lo <= y·2^bits <= hi`. Every step rounds its
lower end down and its upper end up, so an enclosure is never wrong, only wide; whoever needs a narrower one
asks again with more bits. Both series have positive terms, which gives each a remainder bound in one line.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

Enclosure = tuple[int, int]


def enclose(x: Fraction, bits: int) -> Enclosure:
    """`x` itself: the integers next to `x·2^bits`."""
    scaled = x.numerator << bits
    return scaled // x.denominator, -(-scaled // x.denominator)


def exp(x: Fraction, bits: int) -> Enclosure:
    """e^x for x <= 0, a few units wide: `e^x = 2^-n · e^r` with `r = x + n·ln 2` in [0, 1).

    Raises `ValueError` for x > 0, where the enclosure's width would grow with the value, and where `bits` are
    too few for an x so far from 0.
    """
    if x > 0:
        raise ValueError(f"exp of {x}: only arguments of at most 0 are enclosed")
    lo, hi = enclose(x, bits)
    ln2_lo, ln2_hi = log2(bits)
    n = -(lo // ln2_lo)  # then lo + n·ln2_lo >= 0, and r < ln 2 + a few units
    r_hi = hi + n * ln2_hi
    if r_hi >= 1 << bits:
        raise ValueError(f"exp of {x} with {bits} bits: ask with more bits")
    return _exp_low(lo + n * ln2_lo, bits) >> n, -(-_exp_high(r_hi, bits) >> n)


def log(y: Enclosure, bits: int) -> Enclosure:
    """The natural logarithm of everything in `y`. Raises `ValueError` unless `y` lies above 0."""
    lo, hi = y
    if lo <= 0:
        raise ValueError(f"log of an enclosure that reaches {lo}: ask with more bits")
    return _log_end(lo, bits)[0], _log_end(hi, bits)[1]


@lru_cache(maxsize=64)
def log2(bits: int) -> Enclosure:
    """ln 2 = 2·atanh(1/3)."""
    lo, hi = _atanh(Fraction(1, 3), bits)
    return 2 * lo, 2 * hi


def _exp_low(r: int, bits: int) -> int:
    """A lower bound of e^(r/2^bits)·2^bits, r >= 0: the first terms of Σ r^j/j!, each cut off."""
    total = term = 1 << bits
    j = 0
    while term:
        j += 1
        term = (term * r >> bits) // j
        total += term
    return total


def _exp_high(r: int, bits: int) -> int:
    """An upper bound of e^(r/2^bits)·2^bits for 0 <= r < 2^bits.

    Past the term T_j the series is below `T_j · Σ_(i>=1) (r/(j+1))^i <= T_j` since `r/(j+1) <= 1/2` in units
    of one; the loop ends at `T_j <= 1`, so one unit more covers the rest.
    """
    total = term = 1 << bits
    j = 0
    while term > 1:
        j += 1
        term = -((-term * r >> bits) // j)
        total += term
    return total + 1


def _log_end(y: int, bits: int) -> Enclosure:
    """ln(y/2^bits), y > 0: `y/2^bits = m·2^e` with m in [1/2, 1), and `ln m = -2·atanh((1-m)/(1+m))`."""
    length = y.bit_length()
    lo, hi = _atanh(Fraction((1 << length) - y, (1 << length) + y), bits)
    e = length - bits
    ln2_lo, ln2_hi = log2(bits)
    shift = (e * ln2_lo, e * ln2_hi) if e >= 0 else (e * ln2_hi, e * ln2_lo)
    return shift[0] - 2 * hi, shift[1] - 2 * lo


def _atanh(z: Fraction, bits: int) -> Enclosure:
    """atanh z = Σ z^(2j+1)/(2j+1) for 0 <= z <= 1/3.

    After a term whose power `z^(2j+1)` is at most one unit, the rest is below `1·Σ_(i>=1) 9^-i = 1/8` of a
    unit, so one unit more covers it.
    """
    z_lo, z_hi = enclose(z, bits)
    square_lo, square_hi = z_lo * z_lo >> bits, -(-z_hi * z_hi >> bits)
    low, high = z_lo, z_hi
    lo, hi = z_lo, z_hi
    odd = 1
    while high > 1:
        odd += 2
        low, high = low * square_lo >> bits, -(-high * square_hi >> bits)
        lo += low // odd
        hi += -(-high // odd)
    return lo, hi + 1
