"""One worker's samples against one verifier's: every metric, the exact checks, and what each preset says.

The experiment on a CPU and the one across devices report the same things; they come from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .comparison_view import summary_json
from .exact_check import ExactCheck
from .metrics import Accumulator, TokenMetrics, compare
from .summary import Convention, Summary
from .trace import Sample, Sampling, Trace
from .verdict import Preset, Verdict, explain, judge

PER_SAMPLE = ("mean_abs", "p95_abs", "p99_abs", "rank_delta_rate", "jaccard_mean", "js_p99")
DIGITS = 6  # significant, of the per-sample numbers, which plots and ROC curves are made of


@dataclass(frozen=True)
class Pair:
    """One path as both sides saw it."""

    worker: Sample
    verifier: Sample


@dataclass(frozen=True)
class Measured:
    """What a list of pairs amounts to."""

    pairs: Sequence[Pair]
    tokens: Mapping[Convention, Sequence[TokenMetrics]]  # of each pair
    samples: Mapping[Convention, Sequence[Summary]]
    batch: Mapping[Convention, Summary]
    exact: ExactCheck

    def verdicts(self, presets: Iterable[Preset]) -> dict[str, Verdict]:
        """Each preset's verdict on the batch by metrics alone."""
        return {
            preset.name: judge(self.batch[preset.convention], list(self.samples[preset.convention]), preset)
            for preset in presets
        }


def pair_up(worker: Sequence[Sample], verifier: Sequence[Sample]) -> list[Pair]:
    """Pairs by sample_id, in the worker's order. Raises ValueError where the two differ in a path."""
    scores = {sample.sample_id: sample for sample in verifier}
    if scores.keys() != {sample.sample_id for sample in worker}:
        raise ValueError("worker and verifier have other samples")
    pairs = [Pair(sample, scores[sample.sample_id]) for sample in worker]
    for pair in pairs:
        for name in ("input_ids", "output_ids"):
            if getattr(pair.worker, name) != getattr(pair.verifier, name):
                raise ValueError(f"sample {pair.worker.sample_id!r}: {name} differ")
    return pairs


def first_tokens(sample: Sample, tokens: int) -> Sample:
    """The sample cut to its first output tokens."""
    trace = Trace(**{name: column[:tokens] for name, column in vars(sample.trace).items()})
    return Sample(sample.sample_id, sample.input_ids, sample.output_ids[:tokens], trace)


def measure(pairs: Sequence[Pair], sampling: Sampling, topk: int) -> Measured:
    """Compare every pair under both conventions; `sampling` is what the worker claims."""
    exact = ExactCheck(sampling)
    for pair in pairs:
        exact.see(pair.worker, pair.verifier)
    tokens = {
        convention: [compare(p.worker.trace, p.verifier.trace, convention, topk) for p in pairs]
        for convention in Convention
    }
    return Measured(
        pairs=pairs,
        tokens=tokens,
        samples={c: [summarize(c, [one]) for one in each] for c, each in tokens.items()},
        batch={c: summarize(c, each) for c, each in tokens.items()},
        exact=exact,
    )


def summarize(convention: Convention, samples: Iterable[TokenMetrics]) -> Summary:
    """The metrics of some samples, all tokens pooled."""
    total = Accumulator(convention)
    for sample in samples:
        total.add(sample)
    return total.summary()


def measured_json(measured: Measured, presets: Iterable[Preset]) -> dict[str, Any]:
    """The batch's metrics under both conventions, the exact checks, the verdicts and per-sample columns."""
    return {
        "samples": len(measured.pairs),
        "tokens": measured.batch[Convention.RESEARCH].tokens,
        "metrics": {c: _plain(summary) for c, summary in measured.batch.items()},
        "exact": measured.exact.to_json(),
        "verdicts": {
            name: {"outcome": verdict.outcome, "explanation": explain(verdict)}
            for name, verdict in measured.verdicts(presets).items()
        },
        "per_sample": {
            "sample_ids": [pair.worker.sample_id for pair in measured.pairs],
            **{
                name: [_short(getattr(one, name)) for one in measured.samples[Convention.RESEARCH]]
                for name in PER_SAMPLE
            },
        },
    }


def _plain(summary: Summary) -> dict[str, Any]:
    return {name: value for name, value in summary_json(summary).items() if name != "fractions"}


def _short(value: Any) -> float | None:
    return None if value is None else float(f"{float(value):.{DIGITS}g}")
