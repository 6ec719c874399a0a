"""Sums by trees: builders, one rounding a node (the processor's FP32 as oracle), and the entry for heads."""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from math import ceil, inf, isnan, log2, nan
from random import Random

import numpy as np
import numpy.typing as npt
import pytest
from certhead.pyref.codec import decode
from certhead.pyref.fdpa import HOPPER, MACHINES, fdpa_chain
from certhead.pyref.formats import BF16, FP16, FP32, Value
from certhead.pyref.rounding import RD, RNE, RU, RZ, round_to
from certhead.pyref.sums import (
    Tree,
    TreeModel,
    arbitrary,
    blocked,
    depth,
    exact_products,
    fused,
    pairwise,
    sequential,
    split_k,
    stock_accumulators,
    sum_tree,
)
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = (1, 2, 3, 7, 16, 17, 64, 100)

moderate_codes = st.builds(
    lambda e, m, sign: (e + 127) << 7 | m | sign,
    st.integers(-12, 12),
    st.integers(0, 127),
    st.sampled_from([0, 0x8000]),
)
pairs = st.lists(st.tuples(moderate_codes, moderate_codes), min_size=1, max_size=60)


def fp32_tree(products: list[Value], tree: Tree) -> float:
    """The tree by the processor's FP32 additions, nearest even."""
    values = [np.float32(float(p)) for p in products]
    for node in tree.nodes:
        values.append(reduce(np.add, [values[child] for child in node]))
    return float(values[-1])


def test_builders_have_the_depth_they_promise() -> None:
    for n in SIZES:
        assert depth(sequential(n)) == n
        assert depth(pairwise(n)) == max(1, ceil(log2(n)))
        for block in (1, 2, 5, 16):
            assert depth(fused(n, block)) == ceil(n / block)
            assert depth(blocked(n, block)) <= ceil(n / block) + ceil(log2(block))
        for splits in (1, 2, 5):
            size = ceil(n / splits)
            assert depth(split_k(n, splits)) <= size + ceil(n / size) - 1


def test_small_trees_are_what_the_words_say() -> None:
    assert sequential(3).nodes == ((0,), (3, 1), (4, 2))
    assert pairwise(5).nodes == ((0, 1), (5, 2), (3, 4), (6, 7))
    assert blocked(5, 2).nodes == ((0, 1), (2, 3), (5, 6), (7, 4))
    assert fused(5, 2).nodes == ((0, 1), (5, 2, 3), (6, 4))
    assert split_k(5, 2) == Tree(5, ((0,), (5, 1), (6, 2), (3,), (8, 4), (7, 9)), frozenset({2, 4}))
    assert split_k(3, 1) == sequential(3)
    assert split_k(4, 3).partials == frozenset({1, 3})  # parts of two: a third would be empty


def test_arbitrary_trees_use_everything_once_and_come_back_from_a_seed() -> None:
    shapes = set()
    for seed in range(50):
        tree = arbitrary(9, Random(seed), max_children=4)
        assert tree == arbitrary(9, Random(seed), max_children=4)
        assert max(map(len, tree.nodes)) <= 4
        shapes.add(tree)
    assert len(shapes) > 40
    assert arbitrary(1, Random(0)).nodes == ((0,),)


@pytest.mark.parametrize(
    ("leaves", "nodes", "partials"),
    [
        (0, ((0,),), ()),
        (1, (), ()),
        (2, ((0, 0),), ()),
        (2, ((0,),), ()),
        (3, ((0, 4), (1, 2), (3,)), ()),
        (2, ((0, 1), (0, 2)), ()),
        (1, ((0,), ()), ()),
        (1, ((0,),), (1,)),
    ],
)
def test_broken_trees_are_refused(
    leaves: int, nodes: tuple[tuple[int, ...], ...], partials: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"tree|used exactly once|computed yet|partials"):
        Tree(leaves, nodes, frozenset(partials))


def test_bad_arguments_are_named() -> None:
    for builder in (
        sequential,
        pairwise,
        lambda n: blocked(n, 4),
        lambda n: fused(n, 4),
        lambda n: split_k(n, 2),
    ):
        with pytest.raises(ValueError, match="in 0 products"):
            builder(0)
    with pytest.raises(ValueError, match="blocks of 0"):
        blocked(4, 0)
    with pytest.raises(ValueError, match="split into 0 parts"):
        split_k(4, 0)
    with pytest.raises(ValueError, match="2 products for a tree over 3"):
        sum_tree([1, 2], sequential(3))
    with pytest.raises(ValueError, match="1 values of one operand, 2 of the other"):
        exact_products([0], [0, 0])
    with pytest.raises(ValueError, match=r"h \(3,\) is not \[K\] for w \(2, 4\)"):
        stock_accumulators(np.zeros(3, np.uint16), np.zeros((2, 4), np.uint16), HOPPER)


@settings(max_examples=150, deadline=None)
@given(pairs, st.randoms(use_true_random=False))
def test_every_binary_tree_equals_fp32_addition(operands: list[tuple[int, int]], random: Random) -> None:
    products = exact_products([a for a, _ in operands], [b for _, b in operands])
    n = len(products)
    trees = (sequential(n), pairwise(n), blocked(n, 7), split_k(n, 3), arbitrary(n, random))
    for tree in trees:
        assert sum_tree(products, tree) == fp32_tree(products, tree)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(-(1 << 24), 1 << 24), min_size=2, max_size=40))
def test_truncation_equals_masked_fp64_addition(numerators: list[int]) -> None:
    """FP32 values of like size add exactly in FP64; clearing 29 bits truncates to FP32."""
    total = np.float64(0)
    for n in numerators:
        total = ((total + np.float64(n)).view(np.uint64) & ~np.uint64((1 << 29) - 1)).view(np.float64)
    assert sum_tree(numerators, sequential(len(numerators)), mode=RZ) == float(total)


def test_a_fused_node_rounds_once() -> None:
    products = [Fraction(1), Fraction(1, 1 << 24), Fraction(1, 1 << 24)]
    assert sum_tree(products, sequential(3)) == 1  # each half ulp ties to even
    assert sum_tree(products, fused(3, 3)) == 1 + Fraction(1, 1 << 23)


def test_a_rounded_product_is_not_a_fused_one() -> None:
    third = 1 + Fraction(1, 1 << 7)  # its square needs 15 bits
    products = [-third * third + Fraction(1, 1 << 14), third * third]
    tree = sequential(2)
    assert sum_tree(products, tree, fmt=BF16, product_fmt=BF16) == 0
    assert sum_tree(products, tree, fmt=BF16) == Fraction(1, 1 << 14)
    # BF16 products always fit FP32 unless they underflow: there the two differ
    tiny = [Fraction(3, 1 << 151), Fraction(3, 1 << 151)]
    assert sum_tree(tiny, fused(2, 2)) == Fraction(1, 1 << 148)
    assert sum_tree(tiny, fused(2, 2), product_fmt=FP32) == Fraction(1, 1 << 148)
    assert sum_tree(tiny, fused(2, 2), product_fmt=FP32, mode=RZ) == 0
    assert sum_tree(tiny, fused(2, 2), mode=RZ) == Fraction(1, 1 << 149)


def test_partials_stored_in_bf16_change_the_winner() -> None:
    """Rows (256, 5/2, -256, 0) and (0, 9/4, 0, 0), state all ones: 5/2 wins unless the partial 258.5
    is stored in BF16, as 258."""
    rows: tuple[list[Value | int], ...] = ([256, Fraction(5, 2), -256, 0], [0, Fraction(9, 4), 0, 0])
    tree = split_k(4, 2)
    assert [sum_tree(row, tree) for row in rows] == [Fraction(5, 2), Fraction(9, 4)]
    assert [sum_tree(row, tree, partial_fmt=BF16) for row in rows] == [2, Fraction(9, 4)]
    assert [sum_tree(row, sequential(4), partial_fmt=BF16) for row in rows] == [
        Fraction(5, 2),
        Fraction(9, 4),
    ]


def test_a_partial_is_rounded_to_fp32_before_it_is_stored() -> None:
    """1 + 2^-8 + 2^-40: FP32 drops 2^-40, and what is left is a tie in BF16."""
    products = [Fraction(1), Fraction(1, 1 << 8) + Fraction(1, 1 << 40), Fraction(0), Fraction(0)]
    assert sum_tree(products, split_k(4, 2), partial_fmt=BF16) == 1
    assert round_to(sum(products), BF16) == 1 + Fraction(1, 1 << 7)


def is_negative_zero(value: Value) -> bool:
    return isinstance(value, float) and value == 0 and str(value) == "-0.0"


def test_signed_zeros_follow_ieee() -> None:
    tree = sequential(2)
    assert is_negative_zero(sum_tree([-0.0, -0.0], tree))
    assert sum_tree([-0.0, 0], tree) == Fraction(0)
    assert not is_negative_zero(sum_tree([-0.0, Fraction(0)], tree))
    assert not is_negative_zero(sum_tree([1, -1], tree))
    assert is_negative_zero(sum_tree([1, -1], tree, mode=RD))
    assert is_negative_zero(sum_tree([-0.0, 0], fused(2, 2), mode=RD))
    assert not is_negative_zero(sum_tree([0, 0], tree, mode=RD))


def test_infinities_and_nan() -> None:
    assert sum_tree([inf, 1], sequential(2)) == inf
    assert isnan(sum_tree([inf, 1, -inf], fused(3, 3)))
    assert isnan(sum_tree([1, nan], sequential(2)))
    largest = FP32.max_finite
    assert sum_tree([largest, largest], sequential(2)) == inf
    assert sum_tree([largest, largest], sequential(2), mode=RZ) == largest
    assert sum_tree([largest, largest, -largest], sequential(3)) == inf
    assert sum_tree([largest, largest, -largest], fused(3, 3)) == largest


def test_products_of_special_codes() -> None:
    one, minus, zero, infinity, not_a_number = 0x3F80, 0x8000, 0x0000, 0x7F80, 0x7FC1
    got = exact_products(
        [one, minus, minus, infinity, infinity | minus, infinity, not_a_number, 0x0001],
        [0x4040, one, minus, one, one, zero, zero, one],
    )
    assert got[:1] == [3]
    assert is_negative_zero(got[1])
    assert not is_negative_zero(got[2])
    assert got[3:5] == [inf, -inf]
    assert isnan(got[5])
    assert isnan(got[6])
    assert got[7] == Fraction(1, 1 << 133)
    assert exact_products([0x3C00], [0x4200], FP16) == [3]


def random_head(rows: int, terms: int, seed: int) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16]]:
    rng = np.random.default_rng(seed)
    h, w = (
        (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        for shape in ((terms,), (rows, terms))
    )
    return h, w


def test_stock_accumulators_of_fused_machines() -> None:
    h, w = random_head(9, 70, seed=1)
    for machine in (HOPPER, MACHINES["ampere"]):
        got = stock_accumulators(h, w, machine)
        assert got.dtype == np.uint32
        assert got.tolist() == [machine.chain(h.tolist(), row.tolist()) for row in w]
    expected = [fdpa_chain(h.tolist(), row.tolist()) for row in w]
    assert stock_accumulators(h, w, HOPPER).tolist() == expected
    assert stock_accumulators(h.tolist(), w.tolist(), HOPPER).tolist() == expected
    with pytest.raises(OverflowError):
        stock_accumulators([1 << 16], [[0]], HOPPER)
    with pytest.raises(TypeError, match="expected uint16 codes of BF16, got int64"):
        stock_accumulators(h.astype(np.int64), w, HOPPER)


def test_stock_accumulators_of_trees() -> None:
    h, w = random_head(7, 70, seed=2)
    products = (h.astype(np.uint32) << 16).view(np.float32) * (w.astype(np.uint32) << 16).view(np.float32)
    expected = reduce(np.add, products.T)  # left to right, every row
    got = stock_accumulators(h, w, TreeModel("left to right", sequential))
    assert got.tolist() == expected.view(np.uint32).tolist()

    halves = TreeModel("BF16 halves", lambda n: split_k(n, 2), partial_fmt=BF16)
    got = stock_accumulators(h, w, halves)
    for row, bits in zip(products, got.tolist(), strict=True):
        left, right = (round_to(float(reduce(np.add, part)), BF16, RNE) for part in (row[:35], row[35:]))
        assert decode(bits, FP32) == round_to(Fraction(left) + Fraction(right), FP32, RNE)

    up, down = (
        stock_accumulators(h, w, TreeModel(mode.name, pairwise, mode=mode)).view(np.float32)
        for mode in (RU, RD)
    )
    assert (down <= up).all()
    assert (down < up).any()
