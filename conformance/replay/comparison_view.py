"""A comparison as JSON and on the terminal."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from rich.console import Console
from rich.table import Table

from .pairing import Comparison
from .schema import header_data
from .summary import Summary
from .verdict import Preset, Verdict, decimal, explain


def comparison_json(found: Comparison, verdict: Verdict) -> dict[str, Any]:
    """The whole comparison (schema certhead.replay.compare/1)."""
    return {
        "schema": "certhead.replay.compare/1",
        "outcome": verdict.outcome,
        "explanation": explain(verdict),
        "decided_by": [
            {
                "metric": f.metric,
                "value": _number(f.value),
                "relation": f.relation,
                "threshold": _number(f.threshold),
                "margin": _number(f.margin),
            }
            for f in verdict.decided_by
        ],
        "reasons": list(verdict.reasons),
        "preset": verdict.preset,
        "convention": found.summary.convention,
        "compared_topk": found.compared_topk,
        "summary": summary_json(found.summary),
        "samples": [{"sample_id": s.sample_id, **summary_json(s.summary)} for s in found.samples],
        "left_out": found.left_out,
        "bad": found.bad,
        "bad_scores": found.bad_scores,
        "unscored": found.unscored,
        "unasked": found.unasked,
        "root": None if found.root is None else found.root.hex(),
        "worker": header_data(found.worker)["variant"],
        "verifier": header_data(found.verifier)["variant"],
    }


def summary_json(summary: Summary) -> dict[str, Any]:
    """The metrics as numbers, and under `fractions` as they are; null where the convention defines none."""
    values = {k: v for k, v in vars(summary).items() if k != "convention"}
    return {
        **{name: _number(value) for name, value in values.items()},
        "fractions": {name: str(value) for name, value in values.items() if isinstance(value, Fraction)},
    }


def _number(value: Fraction | int | None) -> float | int | None:
    return float(value) if isinstance(value, Fraction) else value


def show_variants(found: Comparison, console: Console) -> None:
    """Who is compared with whom."""
    for who, variant in (("worker", found.worker), ("verifier", found.verifier)):
        console.print(
            f"{who:9}{variant.model}, {variant.dtype}, quantisation {variant.quantization}, {variant.engine} "
            f"{variant.engine_version} on {variant.device}, batches of {variant.batch_size}",
            highlight=False,
            markup=False,
        )


def show_metrics(summary: Summary, preset: Preset, console: Console) -> None:
    """The batch's metrics, and what the preset wants of them."""
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{summary.convention} metrics")
    for column in ("value", "accept", "reject"):
        table.add_column(column, justify="right")
    accept, reject = ({r.metric: r for r in rules} for rules in (preset.accept, preset.reject))
    for name, value in vars(summary).items():
        if name == "convention":
            continue
        shown = "—" if value is None else f"{value:,}" if isinstance(value, int) else f"{float(value):.6f}"
        rules = (
            f"{r.relation} {decimal(r.threshold)}" if (r := side.get(name)) else ""
            for side in (accept, reject)
        )
        table.add_row(name, shown, *rules)
    console.print(table)


def show_samples(found: Comparison, console: Console) -> None:
    """One line of metrics for each sample."""
    names = ("tokens", "missing", "mean_abs", "p99_abs", "rank_delta_rate", "jaccard_mean", "js_p99")
    table = Table(box=None, pad_edge=False)
    table.add_column("sample")
    for name in names:
        table.add_column(name, justify="right", overflow="fold")
    for sample in found.samples:
        values = (getattr(sample.summary, name) for name in names)
        table.add_row(
            sample.sample_id,
            *("—" if v is None else str(v) if isinstance(v, int) else f"{float(v):.6f}" for v in values),
        )
    console.print(table)
