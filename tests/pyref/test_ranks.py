"""Merging the winners of ranks gives the first maximum of all rows, however the rows are split."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from certhead.pyref.codec import decode
from certhead.pyref.formats import BF16
from certhead.pyref.head import first_max
from certhead.pyref.ranks import Winner, better, merge
from hypothesis import given
from hypothesis import strategies as st

# few values, so that ties are the rule; zeros of both signs, infinities and the smallest subnormals
LOGITS = st.lists(
    st.sampled_from([0, 0x8000, 1, 0x8001, 0x3F80, 0x3F81, 0xBF80, 0x7F80, 0xFF80]), min_size=1, max_size=12
)


def whole(logits: list[int]) -> int:
    values = [decode(bits, BF16) for bits in logits]
    return max(range(len(values)), key=lambda i: (values[i], -i))


@given(LOGITS, st.sets(st.integers(1, 11)), st.randoms())
def test_any_split_and_order_gives_the_token_of_the_whole_head(
    logits: list[int], cuts: set[int], rng: random.Random
) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(logits)), len(logits)]
    winners = []
    for start, end in pairwise(edges):
        row = start + whole(logits[start:end])
        winners.append(Winner(row, logits[row]))
    rng.shuffle(winners)
    assert merge(winners).row == whole(logits)


@given(LOGITS)
def test_the_whole_head_is_the_spec(logits: list[int]) -> None:
    finite = [bits for bits in logits if bits & 0x7F80 != 0x7F80] or [0]
    ranks = [Winner(i, bits) for i, bits in enumerate(finite)]
    assert merge(ranks).row == first_max([decode(bits, BF16) for bits in finite])


def test_a_tie_goes_to_the_lower_row_and_the_first_nan_is_the_largest() -> None:
    assert better(Winner(7, 0x3F80), Winner(3, 0x3F80)).row == 3
    assert better(Winner(3, 0x3F80), Winner(7, 0x3F80)).row == 3
    assert merge([Winner(9, 0x8000), Winner(2, 0xBF80), Winner(11, 0)]).row == 9
    assert merge([Winner(0, 0x7F80), Winner(8, 0x7FC0), Winner(5, 0xFFC0)]).row == 5


def test_no_rank_is_no_winner() -> None:
    with pytest.raises(ValueError, match="no rank"):
        merge([])
