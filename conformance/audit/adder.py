"""What a node of the summation tree does with its terms: directed probes, each for one parameter.

With the order of the sum known, a probe puts a few products into one node and others into the node before
it, and everything else is zero. For each parameter every value it can have is emulated, and those whose
bits equal the product's on all probes of that parameter remain. One value remains: it is measured. Several
remain: the difference cannot be seen through this product's results (a BF16 result hides what happens
below 2^-133). None remains: the machine is none of those that are known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from certhead.pyref.codec import encode
from certhead.pyref.formats import Format
from certhead.pyref.rounding import RD, RNA, RNE, RU, RZ, round_to

from .distributions import digest
from .product import Codes, Product, dtype_of
from .tree import Order
from .tree_sum import Adder, Machine, Partials

Pair = tuple[float, float]  # w, h: their product is one term
_PREDICTED: dict[tuple[object, ...], Codes] = {}  # emulated results are the same at every batch shape
MIDDLE = 0.6  # where along the chain probes sit; others sit at its start and end


@dataclass(frozen=True)
class Probe:
    """Products in one node (`terms`), in the node before it (`before`), and in another part of K."""

    topic: str
    terms: tuple[Pair, ...]
    before: tuple[Pair, ...] = ()
    apart: tuple[Pair, ...] = ()


@dataclass(frozen=True)
class Parameter:
    """What the probes of one topic said: the values that remain, and how many probes there were."""

    name: str
    remaining: tuple[Any, ...]
    probes: int
    witness: str | None  # the probe that rules out most of the other values

    @property
    def measured(self) -> bool:
        """Exactly one value explains the bits."""
        return len(self.remaining) == 1

    @property
    def verdict(self) -> str:
        """One word or value for a table."""
        if not self.remaining:
            return "none of the known"
        return _show(self.remaining[0]) if self.measured else "not visible"


@dataclass(frozen=True)
class Measured:
    """The adder that explains every probe, if there is one."""

    adder: Adder | None
    parameters: tuple[Parameter, ...]
    probes: int
    unexplained: int  # probes that the final adder does not reproduce


def measure(product: Product, order: Order) -> Measured:
    """Find the adder of a product whose order is known."""
    layout = _Layout(order, product)
    bench = _Bench(product, order, layout)
    adder = Adder(25 if order.group > 1 else None)
    if order.group == 1:
        adder = replace(adder, rules=replace(adder.rules, rounding=RNE))
    parameters = []
    for name, values in _choices(order):
        probes = list(_probes(name, adder))
        placed = [where for probe in probes for where in layout.place(probe)]
        got = bench.run(placed)
        predictions = {value: bench.predict(placed, _with(adder, name, value)) for value in values}
        remaining = tuple(v for v in values if (predictions[v] == got).all())
        votes = sum((predictions[v] != got).astype(int) for v in values)
        witness = probes[int(np.argmax(votes)) // layout.places] if np.max(votes, initial=0) else None
        parameters.append(Parameter(name, remaining, len(placed), _describe(witness) if witness else None))
        if remaining:
            adder = _with(adder, name, remaining[0])
    everything = [
        where
        for name, _ in _choices(order)
        for probe in _probes(name, adder)
        for where in layout.place(probe)
    ]
    unexplained = int((bench.run(everything) != bench.predict(everything, adder)).sum())
    explained = unexplained == 0 and all(p.remaining for p in parameters)
    return Measured(adder if explained else None, tuple(parameters), len(everything), unexplained)


def _choices(order: Order) -> Iterator[tuple[str, list[Any]]]:
    """Parameters in the order in which they are fixed; the usual value of each comes first."""
    if order.group > 1:
        yield "fraction_bits", list(range(25, 9, -1)) + list(range(26, 40))
        yield "alignment", [RZ, RNE, RNA, RU, RD]
        yield "normalize_products", [False, True]
        yield "rounding", [RZ, RNE, RNA, RU, RD]
        yield "zero_exponent", [-133, -126, None]
        yield "overflow_to_inf", [True, False]
    else:
        yield "rounding", [RNE, RZ]
    yield "subnormal_inputs", [True, False]
    yield "subnormal_results", [True, False]
    if order.tree.partials:
        yield "partials", list(Partials)


def _with(adder: Adder, name: str, value: Any) -> Adder:
    if name in ("fraction_bits", "partials"):
        return replace(adder, **{name: value})
    return replace(adder, rules=replace(adder.rules, **{name: value}))


def _probes(name: str, adder: Adder) -> Iterator[Probe]:
    """Both signs everywhere; full significands (1.99·1.99) beside powers of two."""
    fraction = 23 if adder.fraction_bits is None else adder.fraction_bits
    full = 255 / 128
    for s in (1.0, -1.0):
        match name:
            case "fraction_bits":
                for k in range(8, 42):
                    small = s * 2.0**-k
                    yield Probe(name, ((1, 1), (-1, 1), (small, 1)))
                    yield Probe(name, ((1, 1), (-1, 1)), before=((small, 1),))
                    yield Probe(name, ((-1, 1), (small, 1)), before=((1, 1),))
            case "alignment":
                for m in (0.5, 0.625, 0.75, 1.25, 1.5, 1.75, full * full, 2.5):
                    for a, b in ((m, 1.0),) if m < 2 or m == 2.5 else ((full, full),):
                        yield Probe(name, ((1, 1), (-1, 1), (s * a * 2.0**-fraction, b)))
                        yield Probe(name, ((1, 1), (-1, 1)), before=((s * a * 2.0**-fraction, b),))
            case "normalize_products":
                for k in range(fraction - 3, fraction + 3):
                    yield Probe(name, ((1.5, 1.5), (-1.5, 1.5), (s * 2.0**-k, 1)))
                    yield Probe(name, ((full, full), (-full, full), (s * 2.0**-k, 1)))
            case "rounding":
                for odd in (0.0, 2.0**-23):
                    for m in (0.5, 1.0, 1.25, 1.5):
                        kept = ((s, 1), (s * odd, 1), (s * m * 2.0**-24, 1))
                        yield Probe(name, ((-s, 1),), before=kept)
                for m in (1.0, 1.5):
                    yield Probe(name, ((-s, 1),), before=((s, 1), (-s * m * 2.0**-25, 1)))
                yield Probe(
                    name, ((-s * full, full),), before=((s * full, full), (s * full * 2.0**-12, full))
                )
                yield Probe(
                    name,
                    ((-s, 1), (-s * full, full)),
                    before=((s, 1), (s * full, full), (s * full * 2.0**-22, 1)),
                )
            case "zero_exponent":
                for low in (-152, -155, -157, -159, -161):
                    yield Probe(name, ((2.0**-73, 2.0**-72), (-s * 2.0**-80, 2.0 ** (low + 80))))
            case "overflow_to_inf":
                yield Probe(name, ((-s * 2.0**127, 1),), before=((s * 2.0**127, 1), (s * 2.0**127, 1)))
            case "subnormal_inputs":
                for e in (-133, -130, -127):
                    yield Probe(name, ((s * 2.0**e, 2.0**100),))
                    yield Probe(name, ((2.0**100, s * 2.0**e),))
                    yield Probe(name, ((s * 2.0**e, 2.0**127), (2.0**-20, 1)))
            case "subnormal_results":
                for e in (-127, -130, -133):
                    yield Probe(name, ((s * 2.0**-60, 2.0 ** (e + 60)),))
                    yield Probe(name, ((2.0**-60, 2.0**-66),), before=((s * 2.0**-60, 2.0 ** (e + 60)),))
                    yield Probe(name, ((-s * 2.0**-60, 2.0**-66),), before=((s * 1.5 * 2.0**-60, 2.0**-66),))
            case "partials":
                for k in range(6, 24):
                    yield Probe(name, ((s, 1), (s * 2.0**-k, 1)), apart=((-s, 1),))
                    yield Probe(name, ((-s, 1),), apart=((s, 1), (s * 2.0**-k, 1)))


@dataclass(frozen=True)
class _Placed:
    """One probe at its columns."""

    h: bytes
    w: Codes


class _Layout:
    """Which columns belong to one node, to the node before it, and to another part of K."""

    def __init__(self, order: Order, product: Product) -> None:
        self.inputs, self.columns = product.inputs, product.columns
        tree = order.tree
        chains: list[list[list[int]]] = []
        of_node: dict[int, list[list[int]]] = {}
        for j, node in enumerate(tree.nodes):
            leaves = [child for child in node if child < tree.leaves]
            sums = [child for child in node if child >= tree.leaves]
            chain = of_node.pop(sums[0]) if len(sums) == 1 and leaves else []
            if leaves:
                chain.append(leaves)
            if not chain or len(sums) > 1:
                continue
            of_node[tree.leaves + j] = chain
            if not any(chain is other for other in chains):
                chains.append(chain)
        chains.sort(key=len, reverse=True)
        self.chain = chains[0]
        self.other = chains[1] if len(chains) > 1 else None
        if order.group == 1:
            self.chain = [[k] for leaves in self.chain for k in leaves]
            self.other = [[k] for leaves in self.other for k in leaves] if self.other else None
        self.group = order.group
        full = [i for i in range(1, len(self.chain)) if len(self.chain[i]) == len(self.chain[0])]
        room = 4 if order.group == 1 else 0
        last = full[-1] - room
        self.at = (
            sorted({max(full[0], 3 if room else 1), int(MIDDLE * last), last})
            if last > 3
            else [max(full[0], room)]
        )

    @property
    def places(self) -> int:
        """At how many places of the chain each probe is tried."""
        return len(self.at)

    def place(self, probe: Probe) -> list[_Placed]:
        """The probe's operands at each place."""
        out = []
        for at in self.at:
            h = np.full(self.columns, _code(1.0, self.inputs), dtype_of(self.inputs))
            w: Codes = np.zeros(self.columns, dtype_of(self.inputs))
            slots: list[tuple[int, Pair]] = []
            if self.group == 1:
                early, late = self.chain[at - len(probe.before) : at], self.chain[at : at + len(probe.terms)]
                slots += [(k[0], pair) for k, pair in zip(early, probe.before, strict=True)]
                slots += [(k[0], pair) for k, pair in zip(late, probe.terms, strict=True)]
            else:
                slots += zip(self.chain[at - 1][::-1], probe.before, strict=False)
                slots += zip(self.chain[at], probe.terms, strict=False)
            if self.other and probe.apart:
                slots += [(k[0], pair) for k, pair in zip(self.other, probe.apart, strict=False)]
            for k, (a, b) in slots:
                w[k], h[k] = _code(a, self.inputs), _code(b, self.inputs)
            out.append(_Placed(h.tobytes(), w))
        return out


class _Bench:
    """Runs placed probes on the product, and on machines."""

    def __init__(self, product: Product, order: Order, layout: _Layout) -> None:
        self.product, self.order = product, order

    def run(self, placed: Sequence[_Placed]) -> Codes:
        """The product's results, one a probe; up to M different states share one call."""
        states = list(dict.fromkeys(probe.h for probe in placed))
        dtype = dtype_of(self.product.inputs)
        out = np.zeros(len(placed), dtype_of(self.product.output))
        for start in range(0, len(states), self.product.positions):
            part = states[start : start + self.product.positions]
            filled = [*part, *[part[0]] * (self.product.positions - len(part))]
            h = np.stack([np.frombuffer(state, dtype) for state in filled])
            index = [i for i, probe in enumerate(placed) if probe.h in part]
            results = self.product(h, np.stack([placed[i].w for i in index]))
            for column, i in enumerate(index):
                out[i] = results[part.index(placed[i].h), column]
        return out

    def predict(self, placed: Sequence[_Placed], adder: Adder) -> Codes:
        """What a machine with this adder returns."""
        product, order = self.product, self.order
        operands = digest(*(np.frombuffer(probe.h, np.uint8) for probe in placed), *(p.w for p in placed))
        key = (order.name, product.columns, product.inputs, product.output, adder, operands)
        if key not in _PREDICTED:
            _PREDICTED[key] = self._emulate(placed, adder)
        return _PREDICTED[key]

    def _emulate(self, placed: Sequence[_Placed], adder: Adder) -> Codes:
        product, order = self.product, self.order
        machine = Machine(order.tree, adder, product.inputs, product.output, order.group)
        out = np.zeros(len(placed), dtype_of(product.output))
        for state in dict.fromkeys(probe.h for probe in placed):
            index = [i for i, probe in enumerate(placed) if probe.h == state]
            h = np.frombuffer(state, dtype_of(product.inputs))[None, :]
            out[index] = machine.results(h, np.stack([placed[i].w for i in index]))[0]
        return out


def _code(value: float, fmt: Format) -> int:
    return encode(round_to(value, fmt), fmt)


def _describe(probe: Probe) -> str:
    def terms(pairs: tuple[Pair, ...]) -> str:
        return " + ".join(f"{w:g}·{h:g}" for w, h in pairs)

    text = terms(probe.terms)
    if probe.before:
        text = f"({terms(probe.before)}), then {text}"
    return f"{text} | {terms(probe.apart)}" if probe.apart else text


def _show(value: Any) -> str:
    if isinstance(value, Partials):
        return value.value
    return str(getattr(value, "name", value))
