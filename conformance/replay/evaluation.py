"""How well thresholds do that were calibrated on some prompts and judge others: error rates with intervals.

For each batch size and length, thresholds come from the honest worker's batches on the calibration side of
the split (by quantiles of the honest alone, and by the gap to the known cheats), and every worker's disjoint
batches on the other side are judged by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any

from ..errors import BadInput
from .calibrate import (
    Calibration,
    derive_by_quantile,
    derive_by_separation,
    evaluate,
    is_calibration,
    prompt_digest,
    roc,
)
from .confidence import clopper_pearson, disjoint_batches
from .metrics import TokenMetrics
from .run_report import PER_SAMPLE, Measured, summarize
from .summary import Convention, Summary
from .verdict import BIGGER_IS_BETTER, Outcome

SIZES = (1, 2, 4, 8, 16)  # samples in a batch
LENGTHS = (32, 64, 128)  # output tokens of each sample that are looked at
FEWEST = 4  # honest calibration batches that thresholds are derived from


@dataclass(frozen=True)
class Item:
    """One sample of one worker: its prompt's digest and its metrics."""

    prompt: str
    calibration: bool
    metrics: TokenMetrics


def items(measured: Measured, convention: Convention, length: int, swapped: bool = False) -> list[Item]:
    """The samples of a run, cut to their first `length` tokens; `swapped` exchanges the split's sides."""
    return [
        Item(
            prompt_digest(pair.worker.input_ids),
            is_calibration(pair.worker.input_ids) is not swapped,
            _first(metrics, length),
        )
        for pair, metrics in zip(measured.pairs, measured.tokens[convention], strict=True)
    ]


def rates(
    honest: Mapping[str, Measured],
    cheats: Mapping[str, Measured],
    known: Sequence[str],
    *,
    sizes: Sequence[int] = SIZES,
    lengths: Sequence[int] = LENGTHS,
    convention: Convention = Convention.RESEARCH,
    swapped: bool = False,
) -> list[dict[str, Any]]:
    """One entry for each length, size and method of calibration: the preset, and rates for every run.

    Thresholds are from the first of `honest` and, where the method looks at cheats, from those of `known`.
    A size for which there are too few batches to calibrate on is left out, and so is a run whose samples are
    shorter than the length. `swapped` calibrates on the side that is judged otherwise.
    """
    found = []
    for length in lengths:
        good, bad = (
            {
                name: items(run, convention, length, swapped)
                for name, run in runs.items()
                if _reaches(run, length)
            }
            for runs in (honest, cheats)
        )
        if next(iter(honest)) not in good:
            continue
        reference = next(iter(good.values()))
        for size in sizes:
            calibrating = _batches(reference, size)
            if len(calibrating) < FEWEST:
                continue
            seen = [reference, *(bad[name] for name in known if name in bad)]
            prompts = {item.prompt for some in seen for item in some if item.calibration}
            against = {name: _batches(bad[name], size) for name in known if name in bad}
            for derived in _derive(calibrating, against, prompts, f"{size}x{length}"):
                found.append(_entry(derived, good, bad, size, length, convention))
    return found


def pooled(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The entries of `rates` and of `rates(swapped=True)` together.

    Every prompt is judged once, by thresholds from the half that it is not in; the rates are those of two
    presets, about half of the trials each.
    """
    found = []
    for first in one:
        key = ("method", "batch_size", "tokens")
        match = [second for second in other if all(first[name] == second[name] for name in key)]
        for second in match:
            runs = {}
            for name, run in first["runs"].items():
                trials = run["batches"] + second["runs"][name]["batches"]
                counts = {
                    outcome: run[outcome]["events"] + second["runs"][name][outcome]["events"]
                    for outcome in ("pass", "reject")
                }
                runs[name] = {
                    "honest": run["honest"],
                    "batches": trials,
                    **{outcome: _interval(events, trials) for outcome, events in counts.items()},
                }
            found.append({**{name: first[name] for name in key}, "runs": runs})
    return found


def areas(
    honest: Measured, cheats: Mapping[str, Measured], convention: Convention = Convention.RESEARCH
) -> dict[str, dict[str, float]]:
    """The area under each single-sample metric's ROC, for every cheat: 1 separates, 0.5 tells nothing."""
    found: dict[str, dict[str, float]] = {}
    for cheat, measured in cheats.items():
        found[cheat] = {}
        for metric in PER_SAMPLE:
            values = [
                [value for one in run.samples[convention] if (value := getattr(one, metric)) is not None]
                for run in (honest, measured)
            ]
            curve = roc(values[0], values[1], bigger_is_better=metric in BIGGER_IS_BETTER)
            found[cheat][metric] = round(float(curve.auc), 6)
    return found


def _reaches(measured: Measured, length: int) -> bool:
    return all(len(pair.worker.output_ids) >= length for pair in measured.pairs)


def _derive(
    honest: Sequence[Summary], cheats: Mapping[str, Sequence[Summary]], prompts: set[str], what: str
) -> list[Calibration]:
    derived = [derive_by_quantile(f"quantile-{what}", honest, prompts)]
    # where no metric separates any known cheat at this size, there is no gap to put thresholds in
    with suppress(BadInput):
        derived.append(derive_by_separation(f"separation-{what}", honest, cheats, prompts))
    return derived


def _entry(
    derived: Calibration,
    honest: Mapping[str, Sequence[Item]],
    cheats: Mapping[str, Sequence[Item]],
    size: int,
    length: int,
    convention: Convention,
) -> dict[str, Any]:
    reference = next(iter(honest))
    judged = {
        name: [item for item in some if not item.calibration]
        for name, some in (*honest.items(), *cheats.items())
    }
    outcome = evaluate(
        derived,
        judged[reference],
        {name: some for name, some in judged.items() if name != reference},
        batch_size=size,
        prompt=lambda item: item.prompt,
        summarise=lambda batch: (summarize(convention, [item.metrics for item in batch]), ()),
    )
    verdicts = {reference: outcome.honest, **outcome.cheats}
    return {
        "method": derived.method,
        "batch_size": size,
        "tokens": length,
        "calibrated_on": derived.honest,
        "accept": [str(rule) for rule in derived.preset.accept],
        "reject": [str(rule) for rule in derived.preset.reject],
        "separates": {metric: list(names) for metric, names in derived.separates.items()},
        "runs": {
            name: {
                "honest": name in honest,
                "batches": len(some),
                **{
                    outcome.lower(): _interval(sum(v.outcome is outcome for v in some), len(some))
                    for outcome in (Outcome.PASS, Outcome.REJECT)
                },
            }
            for name, some in verdicts.items()
        },
    }


def _interval(events: int, trials: int) -> dict[str, Any]:
    found = clopper_pearson(events, trials)
    return {"events": events, "low": round(float(found.low), 6), "high": round(float(found.high), 6)}


def _batches(some: Sequence[Item], size: int) -> list[Summary]:
    """Summaries of disjoint batches of the calibration side."""
    side = [item.metrics for item in some if item.calibration]
    return [summarize(Convention(batch[0].convention), batch) for batch in disjoint_batches(side, size)]


def _first(metrics: TokenMetrics, length: int) -> TokenMetrics:
    columns = {
        field.name: getattr(metrics, field.name)[:length]
        for field in fields(metrics)
        if field.name not in ("convention", "settled")
    }
    return replace(metrics, **columns)
