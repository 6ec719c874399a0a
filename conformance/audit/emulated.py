"""Emulated devices: the identified machine, and wrong ones that an audit must tell from it and name.

Each is a `Product` with BF16 results, so nothing but the bits of logits is seen of it, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from certhead.pyref.fdpa import DEFAULT_RULES, Rules
from certhead.pyref.formats import BF16
from certhead.pyref.rounding import RNE
from certhead.pyref.sums import Tree, fused

from .product import Codes, Product
from .tree import relabel, split
from .tree_sum import Adder, Machine, Partials

TreeOf = Callable[[int, int], Tree]


@dataclass(frozen=True)
class Device:
    """A machine by name: what it does, and what the audit must say about it."""

    name: str
    about: str
    group: int
    adder: Adder
    tree: TreeOf  # of the columns and the positions

    def product(self, rows: int, columns: int, positions: int) -> Product:
        """The device's matrix product at one shape."""
        machine = Machine(self.tree(columns, positions), self.adder, BF16, BF16, self.group)

        def call_rows(h: Codes, w: Codes, at: int) -> Codes:
            return machine.results(h, w)  # no row of these depends on another

        return Product(self.name, rows, columns, positions, BF16, BF16, machine.results, call_rows)


def _chain(group: int) -> TreeOf:
    return lambda columns, positions: fused(columns, group)


def _reversed(columns: int, positions: int) -> Tree:
    return relabel(fused(columns, 16), range(columns - 1, -1, -1))


def _halves(columns: int, positions: int) -> Tree:
    half = 16 * (-(-columns // 32))
    return split(columns, (range(half), range(half, columns)), 16)


def _by_positions(columns: int, positions: int) -> Tree:
    return fused(columns, 16) if positions < 8 else _halves(columns, positions)


def _rules(**changes: object) -> Rules:
    return replace(DEFAULT_RULES, **changes)  # type: ignore[arg-type]


HOPPER = Device("fdpa(16, 25)", "the identified machine", 16, Adder(25), _chain(16))
WRONG = (
    Device("24 fraction bits", "one bit less, as on Ampere", 16, Adder(24), _chain(16)),
    Device("groups of 8", "a step of 8 products, as on Ampere", 8, Adder(25), _chain(8)),
    Device(
        "rounds to nearest", "each step rounded to nearest", 16, Adder(25, _rules(rounding=RNE)), _chain(16)
    ),
    Device(
        "normalised products",
        "products brought to [1, 2) before the alignment",
        16,
        Adder(25, _rules(normalize_products=True)),
        _chain(16),
    ),
    Device("decreasing k", "the same steps in the other order", 16, Adder(25), _reversed),
    Device("split-K in BF16", "halves of K, kept in BF16", 16, Adder(25, partials=Partials.BF16), _halves),
    Device(
        "split-K in turn in BF16",
        "the second half of K takes in the first, kept in BF16",
        16,
        Adder(25, partials=Partials.BF16_IN_TURN),
        _halves,
    ),
    Device("order depends on M", "K split in two from M = 8", 16, Adder(25), _by_positions),
    Device(
        "flushes subnormal inputs",
        "right except for subnormals",
        16,
        Adder(25, _rules(subnormal_inputs=False)),
        _chain(16),
    ),
)
