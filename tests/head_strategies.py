"""Hypothesis strategies for whole heads, built where a certifier could go wrong.

A head is BF16 bits: a base of one kind of numbers, then changes that make rows tie, nearly tie, repeat,
cancel or vanish. Every number is finite and below 2^16, so that the head itself is never refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from certhead.pyref.codec import encode
from certhead.pyref.formats import BF16
from hypothesis import strategies as st

LARGEST = 0x477F  # the last BF16 below 2^16
SIGN = 0x8000
ONE = 0x3F80


@dataclass(frozen=True)
class Case:
    """One head with a few states, as bits, and the parameters of the stages."""

    weight: tuple[tuple[int, ...], ...]
    hidden: tuple[tuple[int, ...], ...]
    group: int
    limb_count: int

    @property
    def columns(self) -> int:
        return len(self.hidden[0])


def signed(magnitudes: st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    """Codes of either sign."""
    return st.builds(lambda m, s: m | s, magnitudes, st.sampled_from([0, SIGN]))


small_integers = st.sampled_from([encode(i, BF16) for i in range(-3, 4)])
ordinary = signed(st.integers(120 << 7, (134 << 7) - 1))
subnormal = signed(st.integers(0, 0x7F))
wide = signed(st.one_of(st.integers(0, LARGEST), st.sampled_from([0, 1, 0x7F, 0x80, ONE, LARGEST])))
in_range = st.one_of(small_integers, ordinary, subnormal, wide)
kinds = st.sampled_from([small_integers, ordinary, ordinary, subnormal, wide, in_range])


@st.composite
def cases(draw: st.DrawFn, max_rows: int = 5, max_columns: int = 9, max_states: int = 1) -> Case:
    """Heads with at most that many rows, columns and states; groups smaller and larger than K."""
    columns = draw(st.integers(1, max_columns))
    entry = draw(kinds)
    weight = draw(
        st.lists(st.lists(entry, min_size=columns, max_size=columns), min_size=1, max_size=max_rows)
    )
    entry = draw(kinds)
    hidden = draw(
        st.lists(st.lists(entry, min_size=columns, max_size=columns), min_size=1, max_size=max_states)
    )
    for change in draw(st.lists(st.sampled_from(CHANGES), max_size=2)):
        change(draw, weight, hidden)
    return Case(
        weight=tuple(map(tuple, weight)),
        hidden=tuple(map(tuple, hidden)),
        group=draw(st.integers(1, columns + 3)),
        limb_count=draw(st.sampled_from([1, 2])),
    )


Rows = list[list[int]]


def _near_ties(draw: st.DrawFn, weight: Rows, hidden: Rows) -> None:
    """Every row is the first one with one entry moved by one unit in the last place."""
    for row in weight[1:]:
        row[:] = weight[0]
        k = draw(st.integers(0, len(row) - 1))
        row[k] = _moved(row[k], draw(st.sampled_from([-1, 1])))


def _moved(code: int, by: int) -> int:
    """The neighbouring code of the same sign, inside the range."""
    return (code & SIGN) | min(max((code & ~SIGN) + by, 0), LARGEST)


def _duplicates(draw: st.DrawFn, weight: Rows, hidden: Rows) -> None:
    """Some row once more, at a random place."""
    copy = list(draw(st.sampled_from(weight)))
    weight[draw(st.integers(0, len(weight) - 1))] = copy


def _ties_after_rounding(draw: st.DrawFn, weight: Rows, hidden: Rows) -> None:
    """Logits 16·h + a little: different sums that round to one BF16 value, or sit at its edges."""
    for state in hidden:
        state[:] = [ONE] * len(state)
    for row in weight:
        row[:] = [0] * len(row)
        row[-1] = encode(Fraction(draw(st.integers(-16, 17)), 128), BF16)
        row[0] = encode(16, BF16)


def _cancel(draw: st.DrawFn, weight: Rows, hidden: Rows) -> None:
    """Neighbouring columns of the states are opposite, and the rows repeat: large sums that vanish."""
    for rows, flip in ((weight, 0), (hidden, SIGN)):
        for row in rows:
            for k in range(1, len(row) - 1, 2):
                row[k] = row[k - 1] ^ flip


def _huge_column(draw: st.DrawFn, weight: Rows, hidden: Rows) -> None:
    """One column outweighs the others by 2^13 and more."""
    k = draw(st.integers(0, len(hidden[0]) - 1))
    for row in (*weight, *hidden):
        row[k] = (row[k] & SIGN) | (140 << 7) | (row[k] & 0x7F)


def _zero_row(draw: st.DrawFn, weight: Rows, hidden: Rows) -> None:
    """A row of zeros of both signs."""
    row = draw(st.sampled_from(weight))
    row[:] = [SIGN * (k & 1) for k in range(len(row))]


def _zero_state(draw: st.DrawFn, weight: Rows, hidden: Rows) -> None:
    """A state of zeros of both signs."""
    row = draw(st.sampled_from(hidden))
    row[:] = [SIGN * (k & 1) for k in range(len(row))]


CHANGES = (
    _near_ties,
    _duplicates,
    _ties_after_rounding,
    _cancel,
    _huge_column,
    _zero_row,
    _zero_state,
)


def tensor(rows: tuple[tuple[int, ...], ...]) -> torch.Tensor:
    """Bits as a bfloat16 tensor."""
    codes = torch.tensor(rows, dtype=torch.int32)
    return (codes - ((codes & SIGN) << 1)).to(torch.int16).view(torch.bfloat16)
