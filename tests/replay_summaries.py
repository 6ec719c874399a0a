"""Summaries of comparisons for tests of what is made of them."""

from __future__ import annotations

from fractions import Fraction

from certhead.conformance.replay.summary import Convention, Summary


def summary(**changes: object) -> Summary:
    """A batch of 8 samples that every shipped preset passes, with `changes`; strings are decimals."""
    fields: dict[str, object] = {
        "convention": Convention.RESEARCH,
        "samples": 8,
        "tokens": 1024,
        "missing": 0,
        "mean_abs": "0.008",
        "p50_abs": "0",
        "p90_abs": "0.03",
        "p95_abs": "0.05",
        "p99_abs": "0.1",
        "max_abs": "0.5",
        "rank_delta_rate": "0.006",
        "jaccard_mean": "0.97",
        "jaccard_p05": "0.9",
        "js_mean": "0.0005",
        "js_p95": "0.002",
        "js_p99": "0.006",
        "tie_aware_rank_delta_rate": "0.002",
    } | changes
    exact = {k: Fraction(v) if type(v) is str else v for k, v in fields.items()}
    return Summary(**exact)  # type: ignore[arg-type]
