"""Where the order of a sum does not matter, a driver with another order must still give the same bits."""

from __future__ import annotations

from fractions import Fraction

from certhead.conformance.cases import Case
from certhead.pyref.codec import decode_dyadic
from certhead.pyref.formats import BF16


def sums_are_exact(case: Case) -> bool:
    """Whether every partial sum of every row at every position is an FP32 number, in any order.

    True when all products of a pair are multiples of one quantum and their magnitudes add up to less than
    2^24 of it. States that are not finite are left out: their sums are infinities and NaNs in any order.
    False with subnormal operands, which the interpreter converts wrongly (Triton 3.9.0 on a CPU).
    """
    if has_subnormals(case):
        return False
    weight = [[decode_dyadic(b, BF16) for b in row] for row in case.rows("weight")]
    for state in case.rows("hidden"):
        if any(b & 0x7F80 == 0x7F80 for b in state):
            continue
        h = [decode_dyadic(b, BF16) for b in state]
        for row in weight:
            products = [_reduced(a * c, e + f) for (a, e), (c, f) in zip(row, h, strict=True) if a * c]
            quantum = min((e for _, e in products), default=0)
            mass = sum(Fraction(abs(n)) * 2 ** (e - quantum) for n, e in products)
            if mass >= 1 << 24 or not -149 <= quantum <= 100:
                return False
    return True


def has_subnormals(case: Case) -> bool:
    """Whether a weight or state is subnormal: the interpreter loses some of their bits (Triton 3.9.0)."""
    names = [name for name in ("weight", "hidden") if name in case.given]
    return any(0 < b & 0x7FFF < 0x80 for name in names for row in case.rows(name) for b in row)


def _reduced(n: int, e: int) -> tuple[int, int]:
    zeros = (n & -n).bit_length() - 1
    return n >> zeros, e + zeros
