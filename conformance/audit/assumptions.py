"""Every assumption that a certificate rests on, as data: where it enters, how it is tested, how hard.

`TRUST.md` and `certhead audit --assumptions` are views of this table. `proved` and `tested` are strict
words: what is in this table is neither proved nor a definition. It is *tested* where something would have
shown a violation and committed evidence counts how often; otherwise it is *assumed*. The counts are read
from the evidence files, so without a file its assumptions are assumed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from .record import CHAIN, Entry, Verdict, load

EVIDENCE = Path(__file__).parents[1] / "evidence"
AUDIT, KERNELS, BENCH, CPU = (
    "audit-h200.json",
    "kernels-h200.json",
    "bench-h200.json",
    "audit-cpu-avx512.json",
)


@dataclass(frozen=True)
class Assumption:
    """`enters`: the hypothesis or parameter that it becomes. `tested`: None where nothing tests it."""

    name: str
    says: str
    enters: str
    tested: str | None
    power: str | None  # what would have shown a violation, with counts
    evidence: tuple[str, ...] = ()  # files of conformance/evidence that the counts come from

    @property
    def status(self) -> str:
        """`tested` only where something is counted that would have shown a violation."""
        return "tested" if self.tested and self.power else "assumed"


def assumptions(evidence: Path = EVIDENCE) -> list[Assumption]:
    """The table, with the counts of the committed evidence where there is any."""
    counts = _Counts(evidence)
    return [
        Assumption(
            "step",
            "a tensor-core step is fdpa(group=16, fraction_bits=25) with the rules of the record",
            "pyref.fdpa.FdpaModel, Rules; Lean Fdpa.hopper",
            "recorded single steps and directed chains, as FP32 bits",
            counts.steps,
            (AUDIT,),
        ),
        Assumption(
            "order",
            "the stock kernel adds the steps in increasing k into one FP32 accumulator, without split-K",
            "exact mode: pyref.fdpa.fdpa_chain; kernels.rescore_kernel",
            "masking probes; stock logits against the loop at the very shape, at every start",
            counts.logits,
            (AUDIT,),
        ),
        Assumption(
            "cpu_order",
            "a CPU's stock product is a chain of FP32 multiply-adds, where the head says so",
            "exact mode on a CPU: kernels.fma_chain.FmaChain",
            "logits that show the order and others, in each process; directed dot products in the audit",
            counts.cpu,
            (CPU,),
        ),
        Assumption(
            "any_order",
            "|y − Σ w·h| ≤ γ·Σ|w·h| + η: every partial sum is FP32 or wider, in any order",
            "enclosed mode: pyref.models.ANY_ORDER; Lean hypothesis of the screen's enclosure",
            "stock logits against the interval of an FP64 product",
            counts.enclosed,
            (AUDIT,),
        ),
        Assumption(
            "cpu_any_order",
            "the same of a CPU's stock product",
            "enclosed mode: pyref.models.ANY_ORDER",
            "directed dot products in the audit; each `certhead conform` run takes every logit of the "
            "sampled positions at every batch shape, and fails on a violation",
            counts.cpu_enclosed,
            (CPU,),
        ),
        Assumption(
            "key",
            "the arithmetic does not change while the evidence key stays the same",
            "kernels.identify.evidence_key: a record is used under its key alone",
            "every start compares logits again before exact mode is used",
            counts.starts,
            (BENCH, KERNELS),
        ),
        Assumption(
            "inputs",
            "the identification's distributions bring out a difference that real inputs would meet",
            "kernels.identify.probe_states, audit.distributions",
            "nine emulated wrong machines are each told apart and named; stock kernels of another order",
            counts.other_orders,
            (AUDIT,),
        ),
        Assumption(
            "epilogue",
            "the stock head rounds the accumulator to BF16 once, to nearest, ties to even",
            "docs/spec.md: RNE_BF16(y); Lean RoundModel",
            "the same comparison: BF16 logits against rounded accumulators",
            counts.logits,
            (AUDIT,),
        ),
        Assumption(
            "range",
            "weights and states are below 2^16 and K ≤ 2^15, so that no accumulator overflows",
            "docs/spec.md: RANGE_EXP; Lean hypotheses of the range theorems",
            "checked at run time: weights when the copy is built, states in stage limbs",
            "every value; what is outside falls back",
        ),
        Assumption(
            "repeatable",
            "the stock head is deterministic: the same input at the same batch shape gives the same bits",
            "where a fallback's token, or an identification, stands for a later call",
            None,
            None,
        ),
        Assumption(
            "integer",
            "the device multiplies int8 and adds int32 exactly",
            "stage screen: I and J",
            "every kernel output against the reference; calls repeated; flipped bits, for the checksums",
            counts.stages,
            (KERNELS,),
        ),
        Assumption(
            "rounding",
            "named IEEE operations (directed FP32 multiplication and conversion, FP64) are IEEE 754's",
            "stages screen and rescore",
            "the same comparison, bit by bit",
            counts.stages,
            (KERNELS,),
        ),
        Assumption(
            "memory",
            "what is read is what was written: no bit flips, no races in other software. The checksums, "
            "where they are on, show one in the int8 codes, the limbs or their sums; they do not reach the "
            "group, tail and norm codes, the scales, or the summaries",
            "everywhere",
            None,
            None,
        ),
        Assumption(
            "checker",
            "Lean's kernel is right, and without a toolchain so is the small core library of "
            "tools/lean-offline; the axioms are propext, Quot.sound and Classical.choice",
            "every theorem",
            None,
            None,
        ),
    ]


def missing(root: Path) -> list[str]:
    """Evidence files that the table names and that are not there."""
    names = {name for assumption in assumptions(root) for name in assumption.evidence}
    return sorted(name for name in names if not (root / name).is_file())


@dataclass(frozen=True)
class _Counts:
    """What the evidence counted, in words; None where there is no evidence."""

    folder: Path

    @cached_property
    def audit(self) -> dict[str, Any] | None:
        return self._read(AUDIT)

    @cached_property
    def entries(self) -> list[Entry]:
        return load(self.folder / AUDIT) if self.audit else []

    @property
    def steps(self) -> str | None:
        """Single steps and chains, as FP32 bits."""
        if not self.audit:
            return None
        parts = self.audit["more_steps"].values()
        wrong = sum(row["mismatches"] for row in self.audit["parameters"] if row["parameter"] == "all")
        wrong += sum(part["mismatches"] for part in parts)
        steps = self.audit["recorded_steps"] + sum(part["compared"] for part in parts)
        chains = [part["wgmma"] for part in self.audit["chains"].values()]
        return (
            f"{self.audit['device']}: {wrong} of {steps:,} steps, "
            f"{sum(c['mismatches'] for c in chains)} of {sum(c['compared'] for c in chains):,} chains differ"
        )

    @property
    def logits(self) -> str | None:
        """Stock logits against the chain, where it was identified."""
        chosen = [e for e in self.entries if e.verdict is Verdict.IDENTIFIED and e.model == CHAIN]
        return _compared(self.audit, chosen) if self.audit and chosen else None

    @property
    def enclosed(self) -> str | None:
        """Stock logits against the any-order interval."""
        return _enclosed(self.audit, self.entries) if self.audit else None

    @property
    def other_orders(self) -> str | None:
        """How plainly stock kernels of another order showed, among those that keep to the interval."""
        if not self.audit:
            return None
        chain = "the re-score's chain"
        seen = [e.checks.get(chain, (e.logits, e.mismatches)) for e in self.entries]
        rates = [differ / compared for compared, differ in seen if differ]
        if not rates:
            return None
        return (
            f"{self.audit['device']}: {len(rates)} other kernels differed on at least "
            f"{1e6 * min(rates):.0f} logits in a million, and a million are compared; a rarer difference can "
            "escape"
        )

    @cached_property
    def cpu_record(self) -> dict[str, Any] | None:
        return self._read(CPU)

    @property
    def cpu_entries(self) -> list[Entry]:
        """Those of the BF16 product."""
        return [e for e in load(self.folder / CPU) if e.dtype == "BF16"] if self.cpu_record else []

    @property
    def cpu(self) -> str | None:
        """Directed dot products where the CPU's machine was identified."""
        chosen = [e for e in self.cpu_entries if e.verdict is Verdict.IDENTIFIED]
        return _compared(self.cpu_record, chosen) if self.cpu_record and chosen else None

    @property
    def cpu_enclosed(self) -> str | None:
        """Directed dot products against the any-order interval."""
        return _enclosed(self.cpu_record, self.cpu_entries) if self.cpu_record else None

    @property
    def starts(self) -> str | None:
        """What starts of the head compared before it served exactly."""
        logits: list[int] = []
        if bench := self._read(BENCH):
            found = [row["identification"] for row in bench["rows"]]
            logits += [f["logits"] for f in found if f["verdict"] == "identified"]
        if kernels := self._read(KERNELS):
            shapes = kernels["shapes"]
            logits += [s["identified_on_logits"] for s in shapes if s["verdict"] == "identified"]
        if not logits:
            return None
        return f"{len(logits)} starts on record, each with at least {min(logits):,} logits and no difference"

    @property
    def stages(self) -> str | None:
        """Kernel outputs against the reference, repetitions, flipped bits."""
        kernels = self._read(KERNELS)
        if not kernels:
            return None
        stages, races, faults = kernels["stages"], kernels["races"], kernels["faults"].values()
        return (
            f"{kernels['device']}: {sum(s['differing'] for s in stages)} of "
            f"{sum(s['compared'] for s in stages):,} values differ; {races['differing']} of "
            f"{races['compared']:,} changed on repetition; {sum(f['caught'] for f in faults)} of "
            f"{sum(f['injected'] for f in faults)} flipped bits caught"
        )

    def _read(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        if not path.is_file():
            return None
        data: dict[str, Any] = json.loads(path.read_text("utf-8"))
        return data


def _compared(record: dict[str, Any], chosen: Sequence[Entry]) -> str:
    logits, differ = sum(e.logits for e in chosen), sum(e.mismatches for e in chosen)
    return f"{record['device']}: {differ} of {logits:,} results differ at {len(chosen)} shapes and settings"


def _enclosed(record: dict[str, Any] | None, entries: Sequence[Entry]) -> str | None:
    kept = [e for e in entries if e.verdict is not Verdict.REFUTED and e.enclosure_logits]
    if not record or not kept:
        return None
    refuted = sum(e.verdict is Verdict.REFUTED for e in entries)
    ratio = max((e.largest_ratio or 0.0) for e in kept)
    text = (
        f"{record['device']}: {sum(e.outside for e in kept)} of {sum(e.enclosure_logits for e in kept):,} "
        f"results outside, largest |error|/bound {ratio:.4f}"
    )
    return f"{text}; refuted at {refuted} shapes and settings, which must not be used" if refuted else text
