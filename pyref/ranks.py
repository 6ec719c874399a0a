"""A head split over ranks: each decides its own rows, and the winners are merged into the whole head's token.

A rank holds consecutive rows. Whatever state it ends in, it returns the first maximum of its own rows: the
row's index in the whole head, and its logit as the stock head rounds it. Merging by "larger logit, lower
index on a tie" gives the first maximum of all rows, for any number of ranks and any order of merging
(`any_reduction_order_finds_first_max` in `formal/CertHead/Decision/Reduce.lean`); so a tie between ranks
goes to the lower index, as in a head that is not split. Source: docs/spec.md, "ranks".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce

from .codec import decode
from .formats import BF16, Value


@dataclass(frozen=True)
class Winner:
    """What a rank returns for one position: the row in the whole head, and its rounded logit's BF16 bits."""

    row: int
    logit_bits: int


def better(a: Winner, b: Winner) -> Winner:
    """The winner of two ranks. Zeros of both signs are equal; a NaN is the largest, as in the stock head."""
    x, y = _order(a), _order(b)
    return b if y > x or (y == x and b.row < a.row) else a


def merge(winners: Sequence[Winner]) -> Winner:
    """The winner of all ranks, given at least one, in any order. Raises ValueError without any."""
    if not winners:
        raise ValueError("no rank returned a winner")
    return reduce(better, winners)


def _order(winner: Winner) -> tuple[bool, Value]:
    value = decode(winner.logit_bits, BF16)
    return (True, Fraction(0)) if value != value else (False, value)
