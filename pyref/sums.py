"""Floating-point sums in any order: the stock accumulator where it is not a chain of fused steps.

A `Tree` says which partial sums are formed, and `sum_tree` rounds once at every node. The any-order
error model speaks about all of them; tests and the audit draw from them. `stock_accumulators` is the
one entry for a whole head: it takes a machine (`FdpaModel`) or a tree with its formats (`TreeModel`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import copysign, inf, isfinite, isnan, nan
from random import Random
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from .codec import decode, encode
from .fdpa import FdpaModel
from .fdpa_vector import Codes, as_codes, fdpa_chain_model
from .formats import BF16, FP32, Format, Value
from .rounding import RD, RNE, RoundingMode, round_to

Builder: TypeAlias = "Callable[[int], Tree]"


@dataclass(frozen=True)
class Tree:
    """A summation tree over `leaves` products, its nodes in the order in which they are computed.

    A node is the tuple of the values that it adds: `i < leaves` is product i, `leaves + j` is node j.
    Every product and every node but the last is used exactly once; the last node is the root. A node
    with one child only rounds; one with more than two is a multi-term adder that rounds once. Nodes in
    `partials` are also stored in the partial format (split-K). Raises `ValueError` otherwise.
    """

    leaves: int
    nodes: tuple[tuple[int, ...], ...]
    partials: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if self.leaves < 1 or not self.nodes:
            raise ValueError("a tree has at least one product and one node")
        used = [child for node in self.nodes for child in node]
        if sorted(used) != list(range(self.leaves + len(self.nodes) - 1)):
            raise ValueError("each product and each node but the root must be used exactly once")
        for j, node in enumerate(self.nodes):
            if not node or max(node) >= self.leaves + j:
                raise ValueError(f"node {j} adds {node}: nothing, or something not computed yet")
        if not all(0 <= j < len(self.nodes) for j in self.partials):
            raise ValueError(f"partials {sorted(self.partials)} are not nodes")


def depth(tree: Tree) -> int:
    """Nodes on the longest path from a product to the root: the roundings that a product can meet."""
    levels = [0] * tree.leaves
    for node in tree.nodes:
        levels.append(1 + max(levels[child] for child in node))
    return levels[-1]


def sequential(leaves: int) -> Tree:
    """From left to right, starting from +0: `leaves` nodes, the first of which rounds one product.

    With exact products this is a chain of fused multiply-adds.
    """
    return blocked(leaves, 1)


def pairwise(leaves: int) -> Tree:
    """Halves, recursively, the left one no smaller: depth `ceil(log2(leaves))`, at least 1."""
    return blocked(leaves, leaves)


def blocked(leaves: int, block: int) -> Tree:
    """Pairwise within blocks of `block` products, then a running sum of the blocks from +0."""
    builder = _Builder(leaves)
    builder.running_sum([builder.halves(chunk) for chunk in _chunks(leaves, block)])
    return builder.tree()


def fused(leaves: int, block: int) -> Tree:
    """A running sum of multi-term nodes: the previous sum and `block` products, rounded once."""
    builder = _Builder(leaves)
    previous: tuple[int, ...] = ()
    for chunk in _chunks(leaves, block):
        previous = (builder.add((*previous, *chunk)),)
    return builder.tree()


def split_k(leaves: int, splits: int) -> Tree:
    """`splits` running sums over consecutive parts, stored as partials and added from left to right.

    Each part has `ceil(leaves/splits)` products, the last one what is left; parts without any product
    do not exist, and a single part is no partial.
    """
    if splits < 1:
        raise ValueError(f"a sum split into {splits} parts")
    builder = _Builder(leaves)
    parts = [builder.running_sum(part) for part in _chunks(leaves, -(-leaves // splits))]
    if len(parts) > 1:
        builder.partials.update(part - leaves for part in parts)
    builder.running_sum(parts)
    return builder.tree()


def arbitrary(leaves: int, random: Random, *, max_children: int = 2) -> Tree:
    """A random tree: groups of 2 to `max_children` values, drawn from all that are left, are added."""
    builder = _Builder(leaves)
    left = list(range(leaves))
    while len(left) > 1 or left[0] < leaves:
        count = min(len(left), random.randint(2, max_children))
        children = [left.pop(random.randrange(len(left))) for _ in range(count)]
        left.append(builder.add(children))
    return builder.tree()


def sum_tree(
    products: Sequence[Value | int],
    tree: Tree,
    *,
    fmt: Format = FP32,
    mode: RoundingMode = RNE,
    product_fmt: Format | None = None,
    partial_fmt: Format = FP32,
    partial_mode: RoundingMode = RNE,
) -> Value:
    """The root's value: every node adds exactly and rounds once to `fmt`.

    `product_fmt` rounds each product first (a multiplication followed by an addition); None leaves it
    exact (a fused multiply-add). Partials are rounded to `fmt`, then stored in `partial_fmt`. Infinities
    and NaN (floats) are taken as IEEE 754 adds them. Raises `ValueError` when the number of products is
    not the tree's.
    """
    if len(products) != tree.leaves:
        raise ValueError(f"{len(products)} products for a tree over {tree.leaves}")
    values = [
        Fraction(p) if isinstance(p, int) else p if product_fmt is None else round_to(p, product_fmt, mode)
        for p in products
    ]
    for j, node in enumerate(tree.nodes):
        total = round_to(_exact_sum([values[child] for child in node], mode), fmt, mode)
        if j in tree.partials:
            total = round_to(total, partial_fmt, partial_mode)
        values.append(total)
    return values[-1]


@dataclass(frozen=True)
class TreeModel:
    """A stock head that adds products by a tree, which `tree` builds for the number of products."""

    name: str
    tree: Builder
    inputs: Format = BF16
    mode: RoundingMode = RNE
    product_fmt: Format | None = None
    partial_fmt: Format = FP32

    def accumulator(self, h_bits: Sequence[int], w_bits: Sequence[int]) -> int:
        """The FP32 code of one row's accumulator. Raises `ValueError` for different lengths or K = 0."""
        products = exact_products(h_bits, w_bits, self.inputs)
        total = sum_tree(
            products,
            self.tree(len(products)),
            mode=self.mode,
            product_fmt=self.product_fmt,
            partial_fmt=self.partial_fmt,
        )
        return encode(total, FP32)


SumModel: TypeAlias = FdpaModel | TreeModel


def stock_accumulators(
    h_bits: Codes | Sequence[int], w_bits_rows: Codes | Sequence[Sequence[int]], model: SumModel
) -> npt.NDArray[np.uint32]:
    """The stock accumulators of rows: h [K], w [V, K] codes of the model's inputs -> [V] FP32 codes.

    FDPA chains take the array twin, trees the scalar sum. Raises `ValueError` for shapes that do not
    fit, `TypeError` for arrays of another dtype than the codes', `OverflowError` for integers that are
    no codes.
    """
    h, w = (as_codes(bits, model.inputs) for bits in (h_bits, w_bits_rows))
    if h.ndim != 1 or w.ndim != 2 or h.size != w.shape[1]:
        raise ValueError(f"h {h.shape} is not [K] for w {w.shape}")
    if isinstance(model, FdpaModel):
        return fdpa_chain_model(model, h, w)
    state = h.tolist()
    return np.array([model.accumulator(state, row) for row in w.tolist()], np.uint32)


def exact_products(a_bits: Sequence[int], b_bits: Sequence[int], inputs: Format = BF16) -> list[Value]:
    """`a_k·b_k` without rounding: a `Fraction`, or -0, an infinity or NaN as IEEE 754 has it."""
    if len(a_bits) != len(b_bits):
        raise ValueError(f"{len(a_bits)} values of one operand, {len(b_bits)} of the other")
    products: list[Value] = []
    for a, b in ((decode(x, inputs), decode(y, inputs)) for x, y in zip(a_bits, b_bits, strict=True)):
        if isinstance(a, Fraction) and isinstance(b, Fraction) and (a and b):
            products.append(a * b)
        else:
            sign = copysign(1.0, a) * copysign(1.0, b)
            products.append(_special_product(a, b, sign))
    return products


def _special_product(a: Value, b: Value, sign: float) -> Value:
    if isnan(a) or isnan(b):
        return nan
    if isfinite(a) and isfinite(b):
        return -0.0 if sign < 0 else Fraction(0)
    return nan if a == 0 or b == 0 else sign * inf


def _exact_sum(values: Sequence[Value], mode: RoundingMode) -> Value:
    """The sum without rounding; an exact zero has the sign of IEEE 754-2019, section 6.3."""
    total = Fraction(0)
    for value in values:
        if not isfinite(value):
            return sum(float(v) for v in values if not isfinite(v))
        if isinstance(value, Fraction):
            total += value
    if total:
        return total
    signs = {copysign(1.0, value) for value in values}
    if len(signs) == 1 and not any(values):
        return -0.0 if signs == {-1.0} else total
    return -0.0 if mode is RD else total


class _Builder:
    """Collects nodes; values are numbered as in `Tree`."""

    def __init__(self, leaves: int) -> None:
        self.leaves = leaves
        self.nodes: list[tuple[int, ...]] = []
        self.partials: set[int] = set()

    def add(self, children: Iterable[int]) -> int:
        self.nodes.append(tuple(children))
        return self.leaves + len(self.nodes) - 1

    def running_sum(self, values: Sequence[int]) -> int:
        total = values[0] if values[0] >= self.leaves else self.add((values[0],))
        for value in values[1:]:
            total = self.add((total, value))
        return total

    def halves(self, values: Sequence[int]) -> int:
        if len(values) == 1:
            return values[0]
        middle = (len(values) + 1) // 2
        return self.add((self.halves(values[:middle]), self.halves(values[middle:])))

    def tree(self) -> Tree:
        return Tree(self.leaves, tuple(self.nodes), frozenset(self.partials))


def _chunks(leaves: int, size: int) -> list[range]:
    if leaves < 1 or size < 1:
        raise ValueError(f"no blocks of {size} in {leaves} products")
    return [range(start, min(start + size, leaves)) for start in range(0, leaves, size)]
