"""Sums by a known tree, on arrays: what a machine with that order and adder must return, bit for bit.

`Adder` holds what a probe can fix about the arithmetic of a node. Products are exact in FP64 for inputs
of up to 24 significant bits, so a fused multiply-add is an FP64 sum rounded to odd and then to FP32,
which rounds once (Boldo, Melquiond, IEEE TC 2008: two more bits are enough, 29 are there).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from certhead.pyref.fdpa import DEFAULT_RULES, Rules
from certhead.pyref.fdpa_vector import fdpa_chain_vector, fdpa_vector
from certhead.pyref.formats import BF16, FP16, Format
from certhead.pyref.rounding import RNE, RZ
from certhead.pyref.sums import Tree, fused
from certhead.pyref.vector_rounding import bf16_bits_from_fp32, bf16_to_fp32

from .product import Codes, dtype_of

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]
SMALLEST_NORMAL = 2.0**-126


class Partials(Enum):
    """How the results of the parts of a split K are kept until they are added."""

    FP32 = "FP32"
    BF16 = "BF16"  # each part rounded to BF16, then all added in FP32
    BF16_IN_TURN = "BF16 in turn"  # each part adds what the parts before it left, rounded to BF16


@dataclass(frozen=True)
class Adder:
    """The arithmetic of a node.

    `fraction_bits` is None for an ordinary adder (one rounding to FP32 a node, products not rounded);
    then only the subnormal rules, `rules.rounding` (RNE or RZ) and `partials` count. Otherwise a node with
    products is a fused step with `rules`. `partials`: how the results of the parts of a split K are kept.
    """

    fraction_bits: int | None
    rules: Rules = field(default=DEFAULT_RULES)
    partials: Partials = Partials.FP32


@dataclass(frozen=True)
class Machine:
    """An order and an adder: everything needed to compute what a product returns."""

    tree: Tree
    adder: Adder
    inputs: Format
    output: Format
    group: int

    @cached_property
    def is_fused_chain(self) -> bool:
        """Whether pyref's own chain says it all."""
        return self.adder.fraction_bits is not None and self.tree == fused(self.tree.leaves, self.group)

    def accumulators(self, h: Codes, w: Codes) -> npt.NDArray[np.uint32]:
        """h [M, K], w [V, K] codes of `inputs` -> [M, V] FP32 codes."""
        if self.is_fused_chain:
            assert self.adder.fraction_bits is not None
            return fdpa_chain_vector(
                h, w, inputs=self.inputs, group=self.group,
                fraction_bits=self.adder.fraction_bits, rules=self.adder.rules,
            )  # fmt: skip
        return self._by_tree(h, w)

    def results(self, h: Codes, w: Codes) -> Codes:
        """What the product returns: the accumulators rounded to `output`, nearest, ties to even."""
        return narrow(self.accumulators(h, w), self.output)

    def _by_tree(self, h: Codes, w: Codes) -> npt.NDArray[np.uint32]:
        rules, tree = self.adder.rules, self.tree
        states, rows = values_of(h, self.inputs), values_of(w, self.inputs)
        if not rules.subnormal_inputs:
            states, rows = _flush(states), _flush(rows)
        columns = np.ascontiguousarray(rows.T)
        kept: dict[int, Floats] = {}
        rounded = self._rounded_nodes()
        product_of = _exact32(states, columns) if self._is_plain(states, rows) else None
        shape = (len(h), len(w))
        for j, node in enumerate(tree.nodes):
            leaves = [child for child in node if child < tree.leaves]
            sums = [kept.pop(child) for child in node if child >= tree.leaves]
            if self.adder.fraction_bits is not None and leaves:
                total = self._fused(h, w, leaves, sums, shape)
            else:
                total = sums[0] if sums else np.zeros(shape, np.float32)
                if product_of is not None:
                    for other in sums[1:]:
                        total = total + other
                    for k in leaves:
                        total += product_of(k)
                    leaves, sums = [], []
                for other in sums[1:]:
                    total = add_once(total.astype(np.float64), other.astype(np.float64), rules)
                for k in leaves:
                    product = states[:, k, None].astype(np.float64) * columns[k][None, :].astype(np.float64)
                    total = add_once(product, total.astype(np.float64), rules)
            if j in rounded:
                total = bf16_to_fp32(bf16_bits_from_fp32(total))
            kept[tree.leaves + j] = total
        (root,) = kept.values()
        return root.view(np.uint32)

    def _rounded_nodes(self) -> frozenset[int]:
        """Nodes whose sums are rounded to BF16."""
        tree = self.tree
        match self.adder.partials:
            case Partials.FP32:
                return frozenset()
            case Partials.BF16:
                return tree.partials
            case Partials.BF16_IN_TURN:
                joins = {j for j, node in enumerate(tree.nodes) if min(node) >= tree.leaves}
                return frozenset({min(tree.partials), *joins} - {len(tree.nodes) - 1})

    def _is_plain(self, states: Floats, rows: Floats) -> bool:
        """Whether FP32's own multiplication and addition do: products exact, nothing near underflow.

        Products of BF16 values that are 0 or at least 2^-100 are multiples of 2^-114, and so are their
        sums before and after rounding: no sum is subnormal.
        """
        if self.adder.fraction_bits is not None or self.inputs is not BF16:
            return False
        if self.adder.rules.rounding is not RNE:
            return False
        low, high = [], []
        for values in (states, rows):
            magnitude = np.abs(values)
            low.append(float(np.min(magnitude, where=magnitude > 0, initial=np.inf)))
            high.append(float(magnitude.max(initial=0)))
        return low[0] * low[1] >= 2.0**-100 and high[0] * high[1] * self.tree.leaves < 2.0**127

    def _fused(
        self, h: Codes, w: Codes, leaves: list[int], sums: list[Floats], shape: tuple[int, int]
    ) -> Floats:
        if len(sums) > 1:
            raise ValueError("a fused node adds products and at most one earlier sum")
        assert self.adder.fraction_bits is not None
        c = sums[0].view(np.uint32) if sums else np.zeros(shape, np.uint32)
        a = np.broadcast_to(h[:, None, leaves], (*shape, len(leaves)))
        b = np.broadcast_to(w[None, :, leaves], (*shape, len(leaves)))
        return fdpa_vector(
            a, b, c, inputs=self.inputs, group=max(self.group, len(leaves)),
            fraction_bits=self.adder.fraction_bits, rules=self.adder.rules,
        ).view(np.float32)  # fmt: skip


def _exact32(states: Floats, columns: Floats) -> Callable[[int], Floats]:
    return lambda k: states[:, k, None] * columns[k][None, :]


def values_of(codes: Codes, fmt: Format) -> Floats:
    """Codes of a format within FP32 as float32 values."""
    if fmt is BF16:
        return bf16_to_fp32(codes.astype(np.uint16))
    if fmt is FP16:
        return codes.astype(np.uint16).view(np.float16).astype(np.float32)
    return codes.astype(np.uint32).view(np.float32)


def narrow(codes: npt.NDArray[np.uint32], fmt: Format) -> Codes:
    """FP32 codes rounded to a format's codes, nearest, ties to even."""
    if fmt is BF16:
        return bf16_bits_from_fp32(codes)
    if fmt is FP16:
        with np.errstate(over="ignore"):
            return codes.view(np.float32).astype(np.float16).view(np.uint16)
    return codes.astype(dtype_of(fmt))


def _flush(x: Floats) -> Floats:
    return np.where(np.abs(x) < np.float32(SMALLEST_NORMAL), np.copysign(np.float32(0), x), x)


def add_once(x: Doubles, y: Doubles, rules: Rules) -> Floats:
    """`x + y` rounded once to FP32: to nearest, or toward zero."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        total = x + y
        z = total - x
        error = (x - (total - z)) + (y - z)
        code = total.view(np.int64)
        inexact = (error != 0) & np.isfinite(total)
        # toward zero by one code where the sum was rounded away from zero, then the last bit set
        away = inexact & ((error < 0) == (total > 0))
        code = np.where(inexact, (code - away) | 1, code)
        exact = code.view(np.float64)
        result = exact.astype(np.float32)
        if rules.rounding is RZ:
            wide = result.astype(np.float64)
            back = np.isfinite(exact) & (np.abs(wide) > np.abs(exact))
            result = np.where(back, (result.view(np.int32) - 1).view(np.float32), result)
    if not rules.subnormal_results:
        result = _flush(result)
    return result
