"""The audit of one product: its order, its adder, an attempt to refute both, and a verdict.

Works on any `Product`, so the same code judges torch on this machine's CPU, a GPU, and the emulated
devices of the tests.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from certhead.pyref.formats import BF16

from .adder import Measured
from .distributions import ALL, ChainTask, chain_inputs, digest
from .enclosure import Enclosure
from .product import Codes, Product
from .record import CHAIN, Entry, Verdict, judge
from .refute import minimise
from .tree import Counts, NotATree, Order, column_sets, observe, recognise
from .tree_sum import Adder, Machine, values_of

REQUIRED = 100_000  # directed dot products without a difference before a product counts as identified
FAST = ("paired_cut", "cut", "cancelling", "geometric", "zero_mixed", "normal")  # in range; emulated fast
_RECOGNISED: dict[tuple[object, ...], Order | None] = {}  # most batch shapes show the same counts
REAL = "real"  # the name of a head's own rows and inputs among the distributions
REAL_ROWS, REAL_STATES = 8192, 4096  # kept of them
SEEDS = 4  # batches of each distribution: what all rows of one share (the columns of "cut") must vary
MINIMISE_S = 10.0  # after which the smallest counterexample so far is kept
ROLL = 4099  # how far the second observation moves the probes to other rows


@dataclass(frozen=True)
class RealInputs:
    """Rows of a real head [R, K] and inputs that its model gave it [N, K], as codes: a distribution."""

    rows: Codes
    states: Codes

    def inputs(self, task: ChainTask) -> tuple[Codes, Codes]:
        """h [positions, K] and w [rows, K], drawn with the task's seed."""
        rng = np.random.Generator(np.random.PCG64([task.seed, 2000]))
        return (
            self.states[rng.integers(0, len(self.states), task.positions)],
            self.rows[rng.integers(0, len(self.rows), task.rows)],
        )


@dataclass
class Finding:
    """What was found out about one product."""

    product: Product
    order: Order | None = None
    order_problem: str | None = None
    same_for_positions: bool = True
    same_for_rows: bool = True
    adder: Measured | None = None
    compared: dict[str, list[int]] = field(default_factory=dict)  # name -> compared, mismatches
    inputs: list[str] = field(default_factory=list)  # SHA-256 of each batch of operands
    counterexample: dict[str, Any] | None = None
    enclosure: Enclosure = field(default_factory=Enclosure)

    @property
    def machine(self) -> Machine | None:
        """The machine that explains the probes, if there is one."""
        if self.order is None or self.adder is None or self.adder.adder is None:
            return None
        product = self.product
        return Machine(self.order.tree, self.adder.adder, product.inputs, product.output, self.order.group)

    @property
    def model(self) -> str:
        """The machine in words."""
        machine = self.machine
        if machine is None or self.order is None:
            return "none found"
        if machine.is_fused_chain and (machine.group, machine.adder) == (16, Adder(25)):
            return CHAIN
        adder = machine.adder
        kind = (
            f"fused steps with F = {adder.fraction_bits}"
            if adder.fraction_bits is not None
            else f"FP32 multiply-add, {adder.rules.rounding.name}"
        )
        traits = [kind, self.order.name]
        usual = {"rounding": "RZ", "alignment": "RZ"} if adder.fraction_bits is not None else {}
        traits += [
            f"{name} {getattr(adder.rules, name).name}"
            for name, value in usual.items()
            if getattr(adder.rules, name).name != value
        ]
        if adder.rules.normalize_products:
            traits.append("products normalised first")
        if not adder.rules.subnormal_inputs:
            traits.append("subnormal inputs read as zero")
        if not adder.rules.subnormal_results:
            traits.append("subnormal results flushed to zero")
        if self.order.tree.partials:
            traits.append(f"parts kept in {adder.partials.value}")
        return "; ".join(traits)

    @property
    def dot_products(self) -> int:
        """Directed dot products compared."""
        return sum(compared for compared, _ in self.compared.values())

    @property
    def mismatches(self) -> int:
        """How many of them were not the machine's."""
        return sum(wrong for _, wrong in self.compared.values())

    @property
    def inputs_sha256(self) -> str | None:
        """SHA-256 over those of all batches, in order."""
        return hashlib.sha256("".join(self.inputs).encode()).hexdigest() if self.inputs else None

    @property
    def verdict(self) -> Verdict:
        """What the counts support."""
        return judge(
            compared=self.dot_products if self.machine else 0,
            required=REQUIRED,
            mismatches=self.mismatches,
            enclosure_logits=self.enclosure.logits,
            outside=self.enclosure.outside,
        )

    def entry(self, key: str, evidence_key: Mapping[str, Any]) -> Entry:
        """The finding as a record."""
        rows, columns, positions = self.product.shape
        notes = [] if self.order_problem is None else [self.order_problem]
        return Entry(
            rows=rows,
            columns=columns,
            positions=positions,
            dtype=self.product.inputs.name,
            verdict=self.verdict,
            model=self.model,
            logits=self.dot_products,
            mismatches=self.mismatches,
            dot_products=0,
            dot_product_mismatches=0,
            enclosure_logits=self.enclosure.logits,
            outside=self.enclosure.outside,
            largest_ratio=self.enclosure.ratio,
            key=key,
            evidence_key=evidence_key,
            order=None if self.order is None else self.order.name,
            directed=self.compared,
            inputs_sha256=self.inputs_sha256,
            histogram={str(e): n for e, n in sorted(self.enclosure.histogram.items())} or None,
            counterexample=self.enclosure.first or self.counterexample,
            notes=notes,
        )


def find_order(finding: Finding) -> Order | None:
    """Reveal the tree: all positions and two places in the weight must agree."""
    product = finding.product
    observed: dict[str, tuple[Sequence[int], Counts]] = {}
    try:
        for number, (name, columns) in enumerate(column_sets(product.columns).items()):
            counts = observe(product, columns)
            finding.same_for_positions &= bool((counts == counts[:1]).all())
            if number == 0:
                rolled = observe(product, columns, roll=ROLL)
                finding.same_for_rows &= bool((counts == rolled).all())
            observed[name] = (columns, counts[0])
        key = (product.columns, *(digest(counts) for _, counts in observed.values()))
        if key not in _RECOGNISED:
            _RECOGNISED[key] = recognise(observed, product.columns)
        finding.order = _RECOGNISED[key]
    except NotATree as problem:
        finding.order_problem = str(problem)
        return None
    if not (finding.same_for_positions and finding.same_for_rows):
        finding.order_problem = "the order depends on the position or on the row"
        finding.order = None
    elif finding.order is None:
        finding.order_problem = "the order has no pattern that is known here"
    return finding.order


def tasks(product: Product, dot_products: int, seed: int, *, real: bool = False) -> Iterator[ChainTask]:
    """Directed batches at the product's own K and M, in turn over the distributions, that many in all.

    The distributions that leave FP32's normal range are emulated slowly and get fewer rows.
    """
    fast = (*FAST, REAL) if real else FAST
    others = [name for name in ALL if name not in FAST]
    share = dot_products / (len(fast) + 0.1 * len(others))
    for name in (*fast, *others):
        wanted = share if name in fast else 0.1 * share
        rows = max(16, min(product.rows, int(np.ceil(wanted / product.positions / SEEDS))))
        batches = max(SEEDS, int(np.ceil(wanted / (rows * product.positions))))
        for batch in range(batches):
            yield ChainTask(name, seed + batch, rows, product.positions, product.columns)


def refute(finding: Finding, todo: Sequence[ChainTask], real: RealInputs | None = None) -> None:
    """Compare the product with the machine, and with the any-order interval where that speaks."""
    import torch

    product, machine = finding.product, finding.machine
    for task in todo:
        h, w = real.inputs(task) if real and task.name == REAL else chain_inputs(task, product.inputs)
        finding.inputs.append(digest(h, w))
        got = product(h, w)
        if machine is not None:
            wrong = _differ(got, machine.results(h, w), product)
            total = finding.compared.setdefault(task.name, [0, 0])
            total[0] += got.size
            total[1] += int(wrong.sum())
            if wrong.any() and finding.counterexample is None:
                m, i = (int(x[0]) for x in np.nonzero(wrong))
                finding.counterexample = smallest(product, machine, task, h, w, m, i)
        if task.name in FAST or task.name == REAL:
            hidden, weight, results = (
                torch.from_numpy(values_of(codes, fmt))
                for codes, fmt in ((h, product.inputs), (w, product.inputs), (got, product.output))
            )
            narrow = results.to(torch.bfloat16) if product.output is BF16 else None
            wide = None if product.output is BF16 else results
            finding.enclosure.add(
                hidden, weight, narrow, wide, {"distribution": task.name, "seed": task.seed}
            )


def smallest(
    product: Product, machine: Machine, task: ChainTask, h: Codes, w: Codes, m: int, i: int
) -> dict[str, Any]:
    """A counterexample with as few columns as still differ: the operands and both results, in bits."""

    def masked(columns: Sequence[int]) -> tuple[Codes, Codes]:
        state, row = np.zeros_like(h), np.zeros_like(w[i : i + 1])
        state[m, columns], row[0, columns] = h[m, columns], w[i, columns]
        return state, row

    def differs(columns: Sequence[int]) -> bool:
        state, row = masked(columns)
        return bool(_differ(product(state, row), machine.results(state, row), product)[m, 0])

    found: dict[str, Any] = {"distribution": task.name, "seed": task.seed, "position": m, "row": i}
    try:
        kept = minimise(differs, range(product.columns), seconds=MINIMISE_S)
    except ValueError:
        return found | {"minimal": "the difference depends on other rows or positions"}
    state, row = masked(kept)
    digits = 4 if product.inputs.width == 16 else 8
    return found | {
        "columns": kept,
        "h": [f"{int(x):#0{digits + 2}x}" for x in h[m, kept]],
        "w": [f"{int(x):#0{digits + 2}x}" for x in w[i, kept]],
        "product": f"{int(product(state, row)[m, 0]):#x}",
        "machine": f"{int(machine.results(state, row)[m, 0]):#x}",
    }


def _differ(got: Codes, expected: Codes, product: Product) -> Any:
    """Where bits differ, two NaN counting as equal and zeros of both signs too.

    The contract compares logits: a NaN has no order, and -0 equals +0.
    """
    both_nan = np.isnan(values_of(got, product.output)) & np.isnan(values_of(expected, product.output))
    sign = got.dtype.type(product.output.sign_bit)
    both_zero = ((got | expected) & ~sign) == 0
    return (got != expected) & ~both_nan & ~both_zero
