"""Every assumption that a certificate rests on, as data: where it enters, how it is tested, how hard.

`TRUST.md` and `certhead audit --assumptions` are views of this table. `proved` and `tested` are strict
words: what is in this table is neither proved nor a definition; it is tested or only assumed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from .record import Verdict, load

EVIDENCE = Path(__file__).parents[1] / "evidence"


@dataclass(frozen=True)
class Assumption:
    """`enters`: the hypothesis or parameter that it becomes. `tested`: None where nothing tests it."""

    name: str
    says: str
    enters: str
    tested: str | None
    power: str | None  # what would have shown a violation, with counts


def assumptions(evidence: Path = EVIDENCE) -> list[Assumption]:
    """The table, with the counts of the committed H200 record where there is one."""
    counts = _Counts.of(evidence / "audit-h200.json")
    return [
        Assumption(
            "step",
            "a tensor-core step is fdpa(group=16, fraction_bits=25) with the rules of the record",
            "pyref.fdpa.FdpaModel, Rules; Lean Fdpa.hopper",
            "recorded single steps and directed chains, as FP32 bits",
            counts.steps,
        ),
        Assumption(
            "order",
            "the stock kernel adds the steps in increasing k into one FP32 accumulator, without split-K",
            "exact mode: pyref.fdpa.fdpa_chain; kernels.rescore_kernel",
            "masking probes; stock logits against the loop at the very shape, at every start",
            counts.logits,
        ),
        Assumption(
            "any_order",
            "|y - Σ w·h| <= γ·Σ|w·h| + η: every partial sum is FP32 or wider, in any order",
            "enclosed mode: pyref.models.ANY_ORDER; Lean hypothesis of the screen's enclosure",
            "stock logits against the interval of an FP64 product",
            counts.enclosed,
        ),
        Assumption(
            "key",
            "the arithmetic does not change while the evidence key stays the same",
            "kernels.identify.evidence_key: a cached identification is used under its key",
            "every start compares a million logits again before exact mode is used",
            None,
        ),
        Assumption(
            "inputs",
            "the identification's distributions bring out a difference that real inputs would meet",
            "kernels.identify.probe_states, audit.distributions",
            "nine emulated wrong machines are each told apart and named; stock kernels of another order",
            counts.other_orders,
        ),
        Assumption(
            "epilogue",
            "the stock head rounds the accumulator to BF16 once, to nearest, ties to even",
            "docs/spec.md: RNE_BF16(y); Lean RoundModel",
            "the same comparison: BF16 logits against rounded accumulators",
            counts.logits,
        ),
        Assumption(
            "range",
            "weights and states below 2^16 and K <= 2^15, so that no accumulator overflows",
            "docs/spec.md: RANGE_EXP; Lean hypotheses of the range theorems",
            "checked at run time: weights when the copy is built, states in stage limbs",
            "every value; what is outside falls back",
        ),
        Assumption(
            "integer",
            "the device multiplies int8 and adds int32 exactly",
            "stage screen: I and J",
            "conformance suite against pyref; checksums at run time where the plan has them",
            None,
        ),
        Assumption(
            "rounding",
            "named IEEE operations (directed FP32 multiplication and conversion, FP64) are IEEE 754's",
            "stages screen and rescore",
            "conformance suite, bit by bit",
            None,
        ),
        Assumption(
            "memory",
            "what is read is what was written: no bit flips, no races in other software",
            "everywhere",
            None,
            None,
        ),
        Assumption(
            "checker",
            "Lean's kernel, and the axioms propext, Quot.sound and Classical.choice",
            "every theorem",
            None,
            None,
        ),
    ]


@dataclass(frozen=True)
class _Counts:
    steps: str | None
    logits: str | None
    enclosed: str | None
    other_orders: str | None

    @staticmethod
    def of(path: Path) -> _Counts:
        """What the record counted, in words; None where there is no record."""
        if not path.is_file():
            return _Counts(None, None, None, None)
        data = json.loads(path.read_text("utf-8"))
        entries = load(path)
        identified = [entry for entry in entries if entry.verdict is Verdict.IDENTIFIED]
        refuted = [entry for entry in entries if entry.verdict is Verdict.REFUTED]
        recorded, more = data["recorded_steps"], sum(part["compared"] for part in data["more_steps"].values())
        chains = sum(part["wgmma"]["compared"] for part in data["chains"].values())
        differ = sum(part["wgmma"]["mismatches"] for part in data["chains"].values())
        logits = sum(entry.logits for entry in identified)
        enclosed = sum(entry.enclosure_logits for entry in entries if entry.verdict is not Verdict.REFUTED)
        ratio = max((entry.largest_ratio or 0.0) for entry in entries if entry.verdict is not Verdict.REFUTED)
        rates = [e.mismatches / e.logits for e in entries if e.mismatches and e.condition is None]
        return _Counts(
            f"{data['device']}: 0 of {recorded:,} recorded steps, {more:,} more, "
            f"{differ} of {chains:,} chains differ",
            f"{data['device']}: 0 of {logits:,} logits differ at {len(identified)} shapes and settings",
            f"{data['device']}: 0 of {enclosed:,} logits outside, largest |error|/bound {ratio:.4f}; "
            f"refuted at {len(refuted)} shapes and settings, which must not be used",
            f"{data['device']}: other orders differed on at least {1e6 * min(rates):.0f} logits in "
            "a million, and a million are compared; a rarer difference can escape",
        )
