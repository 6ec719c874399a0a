"""Trees from masking probes, sums by a known tree, and the search for a smallest counterexample."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest
from certhead.conformance.audit.distributions import (
    ALL,
    ChainTask,
    chain_inputs,
    digest,
    step_inputs,
)
from certhead.conformance.audit.product import Codes, Product
from certhead.conformance.audit.refute import minimise
from certhead.conformance.audit.tree import (
    NotATree,
    column_sets,
    known_orders,
    lca_counts,
    observe,
    recognise,
    split,
    tree_of,
)
from certhead.conformance.audit.tree_sum import Adder, Machine, add_once
from certhead.pyref.codec import decode, encode
from certhead.pyref.fdpa import Rules
from certhead.pyref.formats import BF16, FP32
from certhead.pyref.rounding import RNE, RZ, RoundingMode, round_to
from certhead.pyref.sums import (
    Tree,
    arbitrary,
    blocked,
    exact_products,
    fused,
    pairwise,
    sequential,
    sum_tree,
)

TREES = {
    "sequential": sequential(20),
    "pairwise": pairwise(23),
    "fused": fused(37, 16),
    "blocked": blocked(40, 8),
    "split": split(30, (range(0, 16), range(16, 30)), 4),
    "random": arbitrary(24, Random(5)),
    "random, many children": arbitrary(24, Random(6), max_children=5),
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_counts_fix_the_tree(tree: Tree) -> None:
    counts = lca_counts(tree)
    assert (lca_counts(tree_of(counts)) == counts).all()


def test_contradicting_counts_are_no_tree() -> None:
    counts = lca_counts(pairwise(8))
    counts[0, 5] = counts[5, 0] = 3
    with pytest.raises(NotATree):
        tree_of(counts)


def test_a_product_that_rounds_its_counts_is_no_tree() -> None:
    def call(h: Codes, w: Codes) -> Codes:
        return np.full((len(h), len(w)), 0x3F01, np.uint16)  # about 0.5

    with pytest.raises(NotATree, match="not a count"):
        observe(Product("half", 64, 8, 1, BF16, BF16, call))


@pytest.mark.parametrize("columns", [24, 300])
def test_orders_are_recognised_through_a_bf16_product(columns: int) -> None:
    adder = Adder(None, Rules(rounding=RNE))
    ranges = (range(0, 17), range(17, columns))
    trees = {
        "one by one, increasing k": sequential(columns),
        "pairwise halves": pairwise(columns),
        "K split every 17, each part in order, one by one": split(columns, ranges, 1)
        if columns < 35
        else None,
    }
    for name, tree in trees.items():
        if tree is None:
            continue
        machine = Machine(tree, adder, BF16, BF16, 1)
        product = Product(name, 4096, columns, 2, BF16, BF16, machine.results)
        observed = {}
        for label, chosen in column_sets(columns).items():
            counts = observe(product, chosen)
            assert (counts[0] == counts[1]).all()
            observed[label] = (chosen, counts[0])
        order = recognise(observed, columns)
        assert order is not None
        assert order.name == name


def test_an_order_without_a_name_is_named_by_its_hash() -> None:
    tree = arbitrary(20, Random(9))
    order = recognise({"all": (range(20), lca_counts(tree))}, 20)
    assert order is not None
    assert order.name.startswith("tree ")
    assert (lca_counts(order.tree) == lca_counts(tree)).all()


def test_no_two_names_mean_the_same_order() -> None:
    seen: dict[str, str] = {}
    for order in known_orders(140, (70,)):
        key = digest(lca_counts(order.tree))
        assert key not in seen, f"{order.name} is {seen.get(key)}"
        seen[key] = order.name


@pytest.mark.parametrize("mode", [RNE, RZ])
@pytest.mark.parametrize("name", ["normal", "near_emin", "cancelling", "finite_bits"])
@pytest.mark.parametrize(
    "tree", [sequential(9), pairwise(9), arbitrary(9, Random(2))], ids=["seq", "pair", "any"]
)
def test_array_sums_are_the_scalar_sums(tree: Tree, name: str, mode: RoundingMode) -> None:
    h, w = chain_inputs(ChainTask(name, 1, 30, 2, 9))
    machine = Machine(tree, Adder(None, Rules(rounding=mode)), BF16, FP32, 1)
    got = machine.results(h, w)
    for m in range(2):
        for i in range(30):
            expected = round_each_leaf(h[m].tolist(), w[i].tolist(), tree, mode)
            assert int(got[m, i]) & 0x7FFFFFFF == expected & 0x7FFFFFFF
            assert expected & 0x7FFFFFFF == 0 or int(got[m, i]) == expected


def round_each_leaf(h: list[int], w: list[int], tree: Tree, mode: RoundingMode) -> int:
    """`sum_tree` with every node a chain of fused multiply-adds, which is what `Adder(None)` means."""
    products = exact_products(h, w)
    nodes: list[tuple[int, ...]] = []
    renamed: dict[int, int] = {}
    for j, node in enumerate(tree.nodes):
        leaves = [child for child in node if child < tree.leaves]
        sums = [renamed[child] for child in node if child >= tree.leaves]
        total: tuple[int, ...] = tuple(sums[:2]) if len(sums) > 1 else ()
        if total:
            nodes.append(total)
            current: tuple[int, ...] = (tree.leaves + len(nodes) - 1,)
        else:
            current = tuple(sums)
        for leaf in leaves:
            nodes.append((*current, leaf))
            current = (tree.leaves + len(nodes) - 1,)
        renamed[tree.leaves + j] = current[0]
    value = sum_tree(products, Tree(tree.leaves, tuple(nodes)), mode=mode)
    return encode(value, FP32)


@pytest.mark.parametrize("mode", [RNE, RZ])
def test_one_addition_rounds_once(mode: RoundingMode) -> None:
    random = Random(11)
    x, y = [], []
    for _ in range(4000):
        x.append(random.uniform(1, 2) * 2.0 ** random.randint(-150, -20))
        # near a tie or a representable value of the sum, with a tail far below
        y.append(random.choice((1, -1)) * (random.getrandbits(24) + 0.5) * 2.0 ** random.randint(-60, 0))
    got = add_once(np.array(x), np.array(y), Rules(rounding=mode))
    for a, b, c in zip(x, y, got.tolist(), strict=True):
        assert c == round_to(Fraction(a) + Fraction(b), FP32, mode)


def test_flushing_keeps_the_sign() -> None:
    got = add_once(np.array([-(2.0**-130)]), np.array([0.0]), Rules(rounding=RNE, subnormal_results=False))
    assert got.view(np.uint32)[0] == 0x80000000


@pytest.mark.parametrize("wanted", [{3}, {2, 17}, {0, 1, 2, 3, 40}, set(range(7, 29))])
def test_minimise_keeps_exactly_what_is_needed(wanted: set[int]) -> None:
    calls = 0

    def differs(columns: object) -> bool:
        nonlocal calls
        calls += 1
        return wanted <= set(columns)  # type: ignore[call-overload]

    assert set(minimise(differs, range(50))) == wanted
    assert calls < 2000


def test_minimise_stops_in_time_with_what_it_has() -> None:
    kept = minimise(lambda columns: {3, 40} <= set(columns), range(50), seconds=0)
    assert kept == list(range(50))
    assert minimise(lambda columns: {3, 40} <= set(columns), range(50), seconds=60) == [3, 40]


def test_minimise_wants_a_difference() -> None:
    with pytest.raises(ValueError, match="do not differ"):
        minimise(lambda columns: False, range(4))


@pytest.mark.parametrize("name", ALL)
def test_inputs_are_finite_and_repeatable(name: str) -> None:
    a, b, c = step_inputs(name, 4, 64)
    assert ((a & 0x7FFF) < 0x7F80).all()
    assert ((b & 0x7FFF) < 0x7F80).all()
    assert ((c & 0x7FFFFFFF) < 0x7F800000).all()
    assert digest(a, b, c) == digest(*step_inputs(name, 4, 64))
    assert digest(a, b, c) != digest(*step_inputs(name, 5, 64))


def test_special_steps_hold_infinities_and_nan() -> None:
    a, _, c = step_inputs("normal", 1, 256, specials=True)
    values = [decode(int(code), BF16) for code in a.ravel()[(a.ravel() & 0x7FFF) >= 0x7F80]]
    assert any(value != value for value in values)
    assert any(value == value for value in values)
    assert ((c & 0x7FFFFFFF) >= 0x7F800000).any()
