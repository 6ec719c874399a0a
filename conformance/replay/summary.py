"""The metrics of a comparison, by name: what verdicts are made of and reports show.

Every value is exact (a Fraction) under the convention that it was computed with; None where the convention
leaves it undefined (an empty set).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class Convention(StrEnum):
    """The two public definitions of the metrics, which disagree; every number is of one of them."""

    RESEARCH = "research"  # linear quantiles; a missing id has log probability -100
    PROTOCOL = "protocol"  # nearest-rank quantiles; fixed point 1e-6; a missing id has probability 0


@dataclass(frozen=True)
class Summary:
    """One comparison of worker and verifier: a sample's, or a batch's with all tokens pooled."""

    convention: Convention
    samples: int
    tokens: int  # positions compared
    missing: int  # positions where either side lacks the selected log probability or its entries
    mean_abs: Fraction | None  # |verifier - worker| of the selected log probability, nats
    p50_abs: Fraction | None
    p90_abs: Fraction | None
    p95_abs: Fraction | None
    p99_abs: Fraction | None
    max_abs: Fraction | None
    rank_delta_rate: Fraction | None  # share of positions whose selected rank differs
    jaccard_mean: Fraction | None  # of the sets of most likely tokens
    jaccard_p05: Fraction | None
    js_mean: Fraction | None  # Jensen-Shannon divergence over the union of the two sets, nats
    js_p95: Fraction | None
    js_p99: Fraction | None
    tie_aware_rank_delta_rate: Fraction | None = None  # the rank changes that no tie explains
