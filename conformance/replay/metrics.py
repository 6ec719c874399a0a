"""The metrics of replay verification, fast: columns per position, one pass, exact results.

certhead.pyref.replay_metrics is the specification and docs/replay-metrics.md the text; every number that
leaves this module equals the specification's. What is an integer there is one here; the divergence is in
`divergence.py`, which asks the specification where FP64 cannot tell. `settled` counts how often that was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
from certhead.pyref import replay_metrics as spec
from numpy.typing import NDArray

from ..errors import BadInput
from .column import Column, ordered
from .divergence import (
    MAX_ID,
    MAX_SLOTS,
    SLOT_BITS,
    Bools,
    Floats,
    Ints,
    compared_entries,
    fixed_divergence,
    match,
    row_counts,
)
from .summary import Convention, Summary
from .trace import NO_TOKEN, Trace

COMMON_BITS = 16  # |A ∩ B| is kept above |A ∪ B|, in one integer


@dataclass(frozen=True)
class TokenMetrics:
    """Worker and verifier compared at D positions; a metric is undefined where its `has_` column is False."""

    convention: Convention
    missing: Bools  # [D] the selected log probability or the entries lack, on either side
    abs_diff: Floats | NDArray[np.uint32]  # [D] research: nats; protocol: units of 10^-6
    has_diff: Bools
    rank_differs: Bools
    rank_differs_beyond_ties: Bools  # and no rank fits both sides' ties
    has_ranks: Bools
    common: NDArray[np.uint16]  # [D] |A ∩ B|
    union: NDArray[np.uint16]  # [D] |A ∪ B|
    has_jaccard: Bools
    js: NDArray[np.uint32]  # [D] units of 10^-6
    has_js: Bools
    settled: int  # positions whose divergence the specification had to settle

    def __len__(self) -> int:
        return len(self.missing)


@dataclass(frozen=True)
class TieRanks:
    """Ranks among ties, as the specification's `tie_aware_rank` has them; 0 where nothing tells."""

    low: Ints  # [D] 1 + #greater
    high: Ints  # [D] #at least as great


def compare(worker: Trace, verifier: Trace, convention: Convention, compared_topk: int) -> TokenMetrics:
    """Compare two traces of one path, position by position.

    `compared_topk` is how many entries the protocol convention looks at and the ranks that it tells apart;
    the research convention takes all entries. Raises BadInput when the traces are not of one path, when an
    id is listed twice, and for numbers outside the ranges of docs/replay-metrics.md.
    """
    _check(worker, verifier, compared_topk)
    columns = _columns(len(worker), convention)
    _compare_selected(worker, verifier, convention, compared_topk, columns)
    slots = worker.top_ids.shape[1] + verifier.top_ids.shape[1]
    positions = (1 << SLOT_BITS) // max(slots, 1)
    settled = 0
    for start in range(0, len(worker), positions):
        rows = slice(start, start + positions)
        settled += _compare_entries(worker, verifier, convention, compared_topk, columns, rows)
    if convention is Convention.PROTOCOL:
        _keep_only(~columns["missing"], columns)
    differing = np.flatnonzero(columns["rank_differs"])
    columns["rank_differs_beyond_ties"][differing] = _apart(
        tie_aware_rank(_take(worker, differing)), tie_aware_rank(_take(verifier, differing))
    )
    return TokenMetrics(convention=convention, settled=settled, **columns)


def tie_aware_rank(trace: Trace) -> TieRanks:
    """The ranks that each position's selected token can claim among its ties, from its entries."""
    others, selected = _others_and_selected(trace)
    greater = row_counts(others > selected)
    at_least = row_counts(others >= selected)
    ends_below = (others < selected).any(axis=1)
    ranks = trace.ranks.astype(np.int64)
    reaches = ends_below | (at_least > greater)
    high = np.where(ends_below, 1 + at_least, np.maximum(1 + at_least, ranks))
    return TieRanks(np.where(reaches, 1 + greater, ranks), np.where(reaches, high, ranks))


def first_index_rank(trace: Trace) -> Ints:
    """Each position's rank when ties are ordered by id, as the specification has it; 0 where unknown."""
    others, selected = _others_and_selected(trace)
    ahead = (others > selected) | ((others == selected) & (trace.top_ids < trace.token_ids[:, None]))
    return np.where((others < selected).any(axis=1), 1 + row_counts(ahead), 0)


def displayed(value: Fraction, convention: Convention) -> int:
    """A metric as the convention's reports show it: to the nearest 10^-6, in units of 10^-6."""
    rounded = spec.half_even if convention is Convention.RESEARCH else spec.half_away
    return rounded(value * spec.SCALE)


class Accumulator:
    """The summary of any number of samples, in one pass: 12 bytes a position are kept (protocol: 8)."""

    def __init__(self, convention: Convention) -> None:
        self.convention = convention
        self.samples = self.tokens = self.missing = self.settled = 0
        self._ranked = self._rank_deltas = self._beyond_ties = 0
        research = convention is Convention.RESEARCH
        self._diffs = Column(np.dtype(np.float64 if research else np.uint32))
        self._jaccards: Counter[int] = Counter()  # by |A ∩ B| and |A ∪ B|
        self._divergences = Column(np.dtype(np.uint32))

    def add(self, metrics: TokenMetrics, samples: int = 1) -> None:
        """Add the positions of `samples` samples; 0 for the later parts of a sample that came in parts.

        Raises `ValueError` for metrics of the other convention.
        """
        if metrics.convention is not self.convention:
            raise ValueError(f"{metrics.convention} metrics in a summary of the {self.convention} convention")
        self.samples += samples
        self.tokens += len(metrics)
        self.settled += metrics.settled
        self.missing += int(np.count_nonzero(metrics.missing))
        self._ranked += int(np.count_nonzero(metrics.has_ranks))
        self._rank_deltas += int(np.count_nonzero(metrics.rank_differs))
        self._beyond_ties += int(np.count_nonzero(metrics.rank_differs_beyond_ties))
        self._diffs.append(metrics.abs_diff[metrics.has_diff])
        pairs = (metrics.common.astype(np.uint32) << COMMON_BITS) | metrics.union
        codes, counts = np.unique(pairs[metrics.has_jaccard], return_counts=True)
        self._jaccards.update(dict(zip(codes.tolist(), counts.tolist(), strict=True)))
        self._divergences.append(metrics.js[metrics.has_js])

    def summary(self) -> Summary:
        """The metrics of everything that was added."""
        collected = spec.Collected(
            tokens=self.tokens,
            missing=self.missing,
            ranked=self._ranked,
            rank_deltas=self._rank_deltas,
            rank_deltas_beyond_ties=self._beyond_ties,
            diffs=ordered(self._diffs.values()),
            jaccards=_jaccards(self._jaccards, self.convention),
            divergences=ordered(self._divergences.values()),
        )
        research = self.convention is Convention.RESEARCH
        metrics = spec.research_metrics(collected) if research else spec.protocol_metrics(collected)
        return Summary(convention=self.convention, samples=self.samples, **vars(metrics))


def _jaccards(pairs: Counter[int], convention: Convention) -> spec.Values:
    """The few different ratios, in order, and how often each occurs."""
    ratios: Counter[Fraction] = Counter()
    for pair, count in pairs.items():
        ratio = Fraction(pair >> COMMON_BITS, pair & ((1 << COMMON_BITS) - 1))
        if convention is Convention.PROTOCOL:
            ratio = Fraction(spec.half_away(ratio * spec.SCALE), spec.SCALE)
        ratios[ratio] += count
    values = sorted(ratios)
    ends = list(accumulate(ratios[value] for value in values))
    total = sum((value * count for value, count in ratios.items()), Fraction(0))
    return spec.Values(ratios.total(), lambda i: values[bisect_right(ends, i)], total)


def _check(worker: Trace, verifier: Trace, compared_topk: int) -> None:
    if compared_topk < 1:
        raise BadInput(f"compared_topk is {compared_topk}: it must be at least 1")
    if len(worker) != len(verifier):
        raise BadInput(f"the worker's trace has {len(worker)} positions, the verifier's {len(verifier)}")
    other = np.flatnonzero(worker.token_ids != verifier.token_ids)
    if other.size:
        i = int(other[0])
        raise BadInput(
            f"position {i}: the verifier scored token {verifier.token_ids[i]}, "
            f"the worker chose {worker.token_ids[i]}"
        )
    for name, trace in (("worker", worker), ("verifier", verifier)):
        d, shape = len(trace), trace.top_ids.shape
        if trace.logprobs.shape != (d,) or trace.ranks.shape != (d,):
            raise BadInput(f"{name}: logprobs or ranks are not {d} long")
        if len(shape) != 2 or shape[0] != d or trace.top_logprobs.shape != shape:
            raise BadInput(
                f"{name}: top_ids {shape} and top_logprobs {trace.top_logprobs.shape} are not [{d}, k]"
            )
        if trace.ranks.size and trace.ranks.min() < 0:
            raise BadInput(f"{name}: rank {trace.ranks.min()} is negative")
        if trace.top_ids.size and not (trace.top_ids.min() >= NO_TOKEN and trace.top_ids.max() < MAX_ID):
            raise BadInput(f"{name}: top_ids reach from {trace.top_ids.min()} to {trace.top_ids.max()}")
    slots = worker.top_ids.shape[1] + verifier.top_ids.shape[1]
    if slots > MAX_SLOTS:
        raise BadInput(f"{slots} entries at a position, both sides together: at most {MAX_SLOTS}")


def _columns(positions: int, convention: Convention) -> dict[str, NDArray[Any]]:
    """The columns of TokenMetrics, all zero."""
    dtypes: dict[str, Any] = {
        "abs_diff": np.float64 if convention is Convention.RESEARCH else np.uint32,
        "common": np.uint16,
        "union": np.uint16,
        "js": np.uint32,
    }
    names = [field.name for field in fields(TokenMetrics) if field.name not in ("convention", "settled")]
    return {name: np.zeros(positions, dtypes.get(name, np.bool_)) for name in names}


def _compare_selected(
    worker: Trace,
    verifier: Trace,
    convention: Convention,
    compared_topk: int,
    columns: dict[str, NDArray[Any]],
) -> None:
    """Fill the columns that need no entries: differences, ranks, and what is missing of them."""
    w, v = worker.logprobs, verifier.logprobs
    if convention is Convention.RESEARCH:
        with np.errstate(invalid="ignore", over="ignore"):
            diffs = np.abs(v - w)
        known = np.isfinite(diffs)
        ranked = (worker.ranks > 0) & (verifier.ranks > 0)
        differs = ranked & (worker.ranks != verifier.ranks)
    else:
        known = np.isfinite(w) & np.isfinite(v)
        fixed = _protocol_fixed(np.where(known, v, 0.0)) - _protocol_fixed(np.where(known, w, 0.0))
        diffs = np.minimum(np.abs(fixed), spec.SATURATED).astype(np.uint32)
        ranked = known
        differs = _effective_ranks(worker, compared_topk) != _effective_ranks(verifier, compared_topk)
    columns["abs_diff"][:] = np.where(known, diffs, 0)
    columns["has_diff"][:] = known
    columns["missing"][:] = ~known
    columns["has_ranks"][:] = ranked
    columns["rank_differs"][:] = differs


def _protocol_fixed(logprobs: Floats) -> Ints:
    """FP64 product with 10^6, half away from zero; taking the fraction off is exact, adding 0.5 is not."""
    with np.errstate(over="ignore"):
        scaled = np.abs(logprobs * spec.SCALE)
    if scaled.size and scaled.max() >= spec.FIXED_LIMIT:
        i = int(scaled.argmax())
        raise BadInput(f"position {i}: log probability {float(logprobs[i])!r} has no fixed point")
    whole = np.floor(scaled)
    magnitude = whole.astype(np.int64) + (scaled - whole >= 0.5)
    return np.where(logprobs < 0, -magnitude, magnitude)


def _effective_ranks(trace: Trace, compared_topk: int) -> Ints:
    inside = (trace.ranks >= 1) & (trace.ranks <= compared_topk)
    return np.where(inside, trace.ranks.astype(np.int64), compared_topk + 1)


def _keep_only(rows: Bools, columns: dict[str, NDArray[Any]]) -> None:
    """Under the protocol convention a position is compared in every metric or in none."""
    for name in ("has_diff", "has_ranks", "has_jaccard", "has_js"):
        columns[name][:] = rows
    columns["rank_differs"] &= rows


def _compare_entries(
    worker: Trace,
    verifier: Trace,
    convention: Convention,
    compared_topk: int,
    columns: dict[str, NDArray[Any]],
    rows: slice,
) -> int:
    """Fill the columns that come from the lists of entries; returns how many divergences were settled."""
    research = convention is Convention.RESEARCH
    limit = None if research else compared_topk
    sides = [compared_entries(trace, rows, limit) for trace in (worker, verifier)]
    matched = match(sides, rows.start)
    counts = [side.counts for side in sides]
    union = counts[0] + counts[1] - matched.common
    comparable = sides[0].finite & sides[1].finite
    either, both = union > 0, (counts[0] > 0) & (counts[1] > 0)
    defined = comparable & (either if research else both)
    columns["common"][rows] = matched.common
    columns["union"][rows] = union
    columns["has_jaccard"][rows] = either
    columns["has_js"][rows] = defined
    columns["missing"][rows] |= ~(both & comparable)
    columns["js"][rows], settled = fixed_divergence(sides, matched, research, defined)
    return settled


def _others_and_selected(trace: Trace) -> tuple[Floats, Floats]:
    """Log probabilities [D, k] of the entries but the selected token's own, and [D, 1] of the selected token.

    NaN, which compares False with everything, for those that are not finite.
    """
    other = (trace.top_ids != NO_TOKEN) & (trace.top_ids != trace.token_ids[:, None])
    others = np.where(other & np.isfinite(trace.top_logprobs), trace.top_logprobs, np.nan)
    return others, np.where(np.isfinite(trace.logprobs), trace.logprobs, np.nan)[:, None]


def _apart(worker: TieRanks, verifier: TieRanks) -> Bools:
    """Whether no rank fits both: the intervals are disjoint, or one side has none."""
    known = (worker.high > 0) & (verifier.high > 0)
    low, high = np.maximum(worker.low, verifier.low), np.minimum(worker.high, verifier.high)
    return ~known | (low > high)


def _take(trace: Trace, rows: Ints) -> Trace:
    return Trace(*(getattr(trace, field.name)[rows] for field in fields(Trace)))
