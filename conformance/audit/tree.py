"""The summation tree of a matrix product, seen from outside, by masking probes.

With +2^100 at place i, -2^100 at place j and ones elsewhere, every one that is added to a partial sum
holding exactly one of the two is absorbed; the result counts the ones added after both have met. So
`n - result` is the number of leaves below the lowest node that has i and j under it, and those numbers
for all pairs fix the tree, up to the order of a node's children. After FPRev (USENIX ATC 2025), extended
to nodes with many children, which is what fused adders are.

Counts up to 256 are exact in BF16, so a product that rounds its results to BF16 is seen as clearly as one
that does not, as long as at most 256 ones take part: more columns are counted in several windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from certhead.pyref.codec import encode
from certhead.pyref.formats import Format
from certhead.pyref.rounding import round_to
from certhead.pyref.sums import Tree, blocked, fused, pairwise, sequential

from .distributions import digest
from .product import Codes, Product, dtype_of

BIG = 2.0**100
MAX_ONES = 256
GROUPS = (2, 4, 8, 16, 32, 64)
SWAPPED = "the second of each pair of columns first"
Counts: TypeAlias = npt.NDArray[np.int64]


class NotATree(ValueError):
    """What the probes returned cannot come from one summation tree."""


@dataclass(frozen=True)
class Order:
    """A summation tree over K columns with the name of its pattern, if it has one."""

    name: str
    group: int  # products of one node; 1 where products are added one by one
    tree: Tree


def pairs_of(columns: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """All i < j among `columns`, as two arrays of column numbers, in a fixed order."""
    first, second = np.triu_indices(len(columns), k=1)
    numbers = np.asarray(columns, np.int64)
    return numbers[first], numbers[second]


def column_sets(terms: int) -> dict[str, list[int]]:
    """Named sets of at most 256 columns that together show a regular tree over `terms` columns."""
    if terms <= MAX_ONES:
        return {"all": list(range(terms))}
    stride = -(-terms // MAX_ONES)
    sets = {f"every {stride}": list(range(0, terms, stride))}
    for start in range(0, terms, MAX_ONES):
        sets[f"from {start}"] = list(range(start, min(start + MAX_ONES, terms)))
    return sets


def observe(product: Product, columns: Sequence[int] | None = None, *, roll: int = 0) -> Counts:
    """Leaves below the lowest common node of each pair of `columns` (default: all), [M, n, n].

    The diagonal holds 1. `roll` is the row of the weight at which the probes start. Raises `NotATree` where
    a result is no count.
    """
    columns = list(range(product.columns)) if columns is None else list(columns)
    n = len(columns)
    first, second = np.triu_indices(n, k=1)
    numbers = np.asarray(columns, np.int64)
    one, big = (encode(round_to(x, product.inputs), product.inputs) for x in (1, 1 << 100))
    h = np.full((product.positions, product.columns), one, dtype_of(product.inputs))
    survivors = np.zeros((product.positions, len(first)), np.int64)
    for window in range(0, n, MAX_ONES):
        ones = numbers[window : window + MAX_ONES]
        for start in range(0, len(first), product.rows):
            i, j = numbers[first[start : start + product.rows]], numbers[second[start : start + product.rows]]
            w: Codes = np.zeros((len(i), product.columns), dtype_of(product.inputs))
            w[:, ones] = one
            row = np.arange(len(i))
            w[row, i], w[row, j] = big, big | product.inputs.sign_bit
            out = product(h, w, at=roll)
            survivors[:, start : start + product.rows] += _as_counts(out, product.output)
    if (survivors == survivors[:1]).all():  # as usual: then one position's counts say it all
        return np.broadcast_to(counts_of(survivors[:1], n), (len(survivors), n, n))
    return counts_of(survivors, n)


def counts_of(survivors: npt.NDArray[np.int64], n: int) -> Counts:
    """[M, pairs] results of masking probes as [M, n, n] numbers of leaves."""
    first, second = np.triu_indices(n, k=1)
    counts = np.ones((len(survivors), n, n), np.int64)
    counts[:, first, second] = counts[:, second, first] = n - survivors
    return counts


def _as_counts(codes: Codes, fmt: Format) -> npt.NDArray[np.int64]:
    wide = codes.astype(np.uint32) << np.uint32(32 - fmt.width)  # BF16 and FP32 share their exponents
    values = wide.view(np.float32).astype(np.float64)
    if not (np.isfinite(values).all() and (values == np.rint(values)).all() and (values >= 0).all()):
        wrong = values[~(np.isfinite(values) & (values == np.rint(values)) & (values >= 0))]
        raise NotATree(f"a masking probe returned {wrong[0]}: not a count of ones")
    return values.astype(np.int64)


def lca_counts(tree: Tree, columns: Sequence[int] | None = None) -> Counts:
    """What `observe` must return for a tree: leaves among `columns` below each pair's lowest node, [n, n]."""
    columns = range(tree.leaves) if columns is None else columns
    place = {column: i for i, column in enumerate(columns)}
    members = [np.array([place[c]] if c in place else [], np.int64) for c in range(tree.leaves)]
    counts = np.ones((len(place), len(place)), np.int64)
    for node in tree.nodes:
        parts = [members[child] for child in node]
        under = np.concatenate(parts)
        for a, part in enumerate(parts):
            for other in parts[a + 1 :]:
                counts[np.ix_(part, other)] = counts[np.ix_(other, part)] = len(under)
        members.append(under)
    return counts


def tree_of(counts: Counts) -> Tree:
    """The tree with these counts [n, n]. Raises `NotATree` when there is none."""
    n = len(counts)
    nodes: list[tuple[int, ...]] = []

    def build(leaves: npt.NDArray[np.int64]) -> int:
        """Nodes for these leaves, deepest first; an explicit spine keeps long chains off Python's stack."""
        spine: list[list[npt.NDArray[np.int64]]] = []
        while len(leaves) > 1:
            size = counts[leaves[0], leaves].max()
            if size != len(leaves):
                raise NotATree(f"{size} leaves are below a node that should hold {len(leaves)}")
            children, left = [], leaves
            while len(left):
                together = (counts[left[0], left] < size) | (left == left[0])
                children.append(left[together])
                left = left[~together]
            children.sort(key=len)
            leaves = children.pop()
            spine.append(children)
        value = int(leaves[0])
        for children in reversed(spine):
            others = [build(child) for child in children]
            nodes.append(tuple(sorted((value, *others), key=lambda v: (v < n, v))))
            value = n + len(nodes) - 1
        return value

    build(np.arange(n))
    if not nodes:
        nodes.append((0,))
    tree = Tree(n, tuple(nodes))
    if (lca_counts(tree) != counts).any():
        raise NotATree("the counts of some pairs contradict the others")
    return tree


def relabel(tree: Tree, columns: Sequence[int]) -> Tree:
    """The same tree with leaf i taken from column `columns[i]`."""
    names = [*columns, *range(tree.leaves, tree.leaves + len(tree.nodes))]
    return Tree(
        tree.leaves, tuple(tuple(names[child] for child in node) for node in tree.nodes), tree.partials
    )


def split(terms: int, parts: Iterable[Sequence[int]], group: int) -> Tree:
    """Chains over the given parts of the columns, their results added from left to right."""
    nodes: list[tuple[int, ...]] = []
    results: list[int] = []
    for part in parts:
        previous: tuple[int, ...] = ()
        for k in range(0, len(part), group):
            nodes.append((*previous, *part[k : k + group]))
            previous = (terms + len(nodes) - 1,)
        results.extend(previous)
    total = results[0]
    for result in results[1:]:
        nodes.append((total, result))
        total = terms + len(nodes) - 1
    partials = frozenset(r - terms for r in results) if len(results) > 1 else frozenset()
    return Tree(terms, tuple(nodes), partials)


def known_orders(terms: int, blocks: Iterable[int] = ()) -> Iterator[Order]:
    """The patterns that have a name, for `terms` columns; `blocks`: sizes at which K may be split."""
    columns = list(range(terms))
    yield Order("one by one, increasing k", 1, sequential(terms))
    yield Order(f"one by one, {SWAPPED}", 1, relabel(sequential(terms), _swapped(columns)))
    yield Order("one by one, decreasing k", 1, relabel(sequential(terms), columns[::-1]))
    for group in GROUPS:
        yield Order(f"groups of {group}, increasing k", group, fused(terms, group))
        yield Order(f"groups of {group}, decreasing k", group, relabel(fused(terms, group), columns[::-1]))
    for block in blocks:
        ranges = [columns[k : k + block] for k in range(0, terms, block)]
        what = f"K split every {block}, each part in"
        yield Order(f"{what} order, one by one", 1, split(terms, ranges, 1))
        pairs = [_swapped(part) for part in ranges]
        yield Order(f"{what} order, {SWAPPED}", 1, split(terms, pairs, 1))
        for group in GROUPS:
            yield Order(f"{what} groups of {group}", group, split(terms, ranges, group))
    for lanes in (2, 4, 8, 16, 32):
        interleaved = [columns[lane::lanes] for lane in range(min(lanes, terms))]
        yield Order(f"{lanes} interleaved sums", 1, split(terms, interleaved, 1))
    yield Order("pairwise halves", 1, pairwise(terms))
    for block in (4, 8, 16, 32):
        yield Order(f"pairwise in blocks of {block}", 1, blocked(terms, block))


def _swapped(columns: Sequence[int]) -> list[int]:
    return [columns[i ^ 1] if i ^ 1 < len(columns) else columns[i] for i in range(len(columns))]


def recognise(observed: Mapping[str, tuple[Sequence[int], Counts]], terms: int) -> Order | None:
    """The pattern that explains every observation: name -> (columns, counts [n, n]).

    Where no named pattern does and all columns were observed together, the tree itself, named by its
    hash. None: a regular pattern was looked for and not found. Raises `NotATree`.
    """
    for order in known_orders(terms, _split_sizes(observed)):
        if all((lca_counts(order.tree, columns) == counts).all() for columns, counts in observed.values()):
            return order
    for columns, counts in observed.values():
        if len(columns) == terms:
            tree = tree_of(counts)
            widest = max(sum(child < terms for child in node) for node in tree.nodes)
            return Order(f"tree {digest(counts)[:12]}", 1 if widest <= 2 else widest, tree)
    return None


def _split_sizes(observed: Mapping[str, tuple[Sequence[int], Counts]]) -> list[int]:
    """Where the second part of a split K can begin, by the observations that begin at column 0."""
    sizes: set[int] = set()
    for columns, counts in observed.values():
        if columns[0] != 0:
            continue
        tree = tree_of(counts)
        lowest = list(range(tree.leaves))
        starts = []
        for node in tree.nodes:
            if sum(child >= tree.leaves for child in node) > 1:
                starts += [lowest[child] for child in node if lowest[child] > 0]
            lowest.append(min(lowest[child] for child in node))
        if starts:
            start = min(starts)
            sizes.update(range(columns[start - 1] + 1, columns[start] + 1))
    return sorted(sizes)
