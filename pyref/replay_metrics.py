"""The metrics of replay verification in exact arithmetic, under both public conventions: the specification.

A worker and a verifier each say, at one position of one path, what the selected token's log probability and
rank are and which tokens are the most likely (`Side`). `research_position` and `protocol_position` compare
the two; `research_metrics` and `protocol_metrics` are the metrics of many positions. Everything is an
integer or a Fraction; log probabilities come in as the exact values of FP64 numbers. The formulas, and where
each comes from, are docs/replay-metrics.md; certhead.conformance.replay.metrics is the fast version, tested
equal to this one.

The Jensen-Shannon divergence is a real number that no Fraction is. It is enclosed between integers with ever
more bits until one multiple of 10^-6 is nearest to everything in the enclosure. No proof is known that it
can't lie exactly between two multiples, so the search ends with an error rather than never.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from .exp_log import Enclosure, enclose, exp, log, log2
from .formats import FP64
from .rounding import round_to

SCALE = 10**6  # fixed point of both conventions: one unit is 10^-6
SATURATED = 2**32 - 1  # protocol: differences are uint32
FIXED_LIMIT = 2**62  # protocol: one side's fixed point is below this, so that a difference fits int64
MISSING_LOGPROB = Fraction(-100)  # research: of an id that one side did not return
FIRST_BITS, LAST_BITS = 96, 1 << 14  # of the enclosure of the divergence

Distribution = dict[int, Fraction]
"""Token id to log probability."""


@dataclass(frozen=True)
class Side:
    """What one party says at one position. None, or rank 0, is what it does not say.

    `entries` are (token id, log probability), most likely first; a log probability that is not finite is
    None. Raises `ValueError` for an id that is listed twice.
    """

    token: int
    logprob: Fraction | None
    rank: int
    entries: tuple[tuple[int, Fraction | None], ...]

    def __post_init__(self) -> None:
        ids = [token for token, _ in self.entries]
        if len(set(ids)) < len(ids):
            raise ValueError(f"an id is listed twice in {ids}")


@dataclass(frozen=True)
class Position:
    """One position compared; None where a metric is undefined. Nothing undefined escapes `missing`."""

    missing: bool
    abs_diff: Fraction | None  # |verifier - worker| of the selected log probability, nats
    rank_differs: bool | None
    rank_differs_beyond_ties: bool | None
    jaccard: Fraction | None
    js: Fraction | None  # a multiple of 10^-6, nats


@dataclass(frozen=True)
class Metrics:
    """The metrics of many positions, named as in certhead.conformance.replay.summary.Summary."""

    tokens: int
    missing: int
    mean_abs: Fraction | None
    p50_abs: Fraction | None
    p90_abs: Fraction | None
    p95_abs: Fraction | None
    p99_abs: Fraction | None
    max_abs: Fraction | None
    rank_delta_rate: Fraction | None
    tie_aware_rank_delta_rate: Fraction | None
    jaccard_mean: Fraction | None
    jaccard_p05: Fraction | None
    js_mean: Fraction | None
    js_p95: Fraction | None
    js_p99: Fraction | None


def research_position(worker: Side, verifier: Side) -> Position:
    """Compare one position as the research code does. Raises `ValueError` when the tokens differ."""
    _same_token(worker, verifier)
    abs_diff = _research_diff(worker.logprob, verifier.logprob)
    a, b = dict(worker.entries), dict(verifier.entries)
    finite = all(logprob is not None for logprob in (*a.values(), *b.values()))
    union = a.keys() | b.keys()
    ranked = worker.rank > 0 and verifier.rank > 0
    return Position(
        missing=abs_diff is None or not a or not b or not finite,
        abs_diff=abs_diff,
        rank_differs=worker.rank != verifier.rank if ranked else None,
        rank_differs_beyond_ties=(
            worker.rank != verifier.rank and not _ranks_overlap(worker, verifier) if ranked else None
        ),
        jaccard=Fraction(len(a.keys() & b.keys()), len(union)) if union else None,
        js=Fraction(research_js(_finite(worker.entries), _finite(verifier.entries)), SCALE)
        if union and finite
        else None,
    )


def protocol_position(worker: Side, verifier: Side, compared_topk: int) -> Position:
    """Compare one position as the protocol code does: the first `compared_topk` finite entries.

    Raises `ValueError` when the tokens differ, when `compared_topk` is below 1, and for a log probability
    whose fixed point does not fit.
    """
    _same_token(worker, verifier)
    if compared_topk < 1:
        raise ValueError(f"compared_topk {compared_topk} is below 1")
    a = dict(list(_finite(worker.entries).items())[:compared_topk])
    b = dict(list(_finite(verifier.entries).items())[:compared_topk])
    if worker.logprob is None or verifier.logprob is None or not a or not b:
        return Position(True, None, None, None, None, None)
    difference = abs(protocol_fixed(verifier.logprob) - protocol_fixed(worker.logprob))
    differs = effective_rank(worker.rank, compared_topk) != effective_rank(verifier.rank, compared_topk)
    return Position(
        missing=False,
        abs_diff=Fraction(min(difference, SATURATED), SCALE),
        rank_differs=differs,
        rank_differs_beyond_ties=differs and not _ranks_overlap(worker, verifier),
        jaccard=Fraction(protocol_jaccard(a.keys(), b.keys()), SCALE),
        js=Fraction(protocol_js(a, b), SCALE),
    )


def protocol_fixed(logprob: Fraction) -> int:
    """The protocol's fixed point of an FP64 number: its FP64 product with 10^6, rounded half away from zero.

    Raises `ValueError` at 2^62 units and beyond.
    """
    product = round_to(logprob * SCALE, FP64)
    if not isinstance(product, Fraction) or abs(product) >= FIXED_LIMIT:
        raise ValueError(f"log probability {float(logprob)!r} has no fixed point")
    return half_away(product)


def effective_rank(rank: int, compared_topk: int) -> int:
    """The protocol's rank: one past the required ones for a token that is not among them."""
    return rank if 1 <= rank <= compared_topk else compared_topk + 1


def protocol_jaccard(a: Iterable[int], b: Iterable[int]) -> int:
    """|A ∩ B| / |A ∪ B| in units of 10^-6, half away from zero; two empty lists agree completely."""
    left, right = set(a), set(b)
    if not left | right:
        return SCALE
    return half_away(Fraction(len(left & right) * SCALE, len(left | right)))


def research_js(a: Distribution, b: Distribution) -> int:
    """The divergence over A ∪ B in units of 10^-6; a missing id has log probability -100.

    Raises `ValueError` when both are empty.
    """
    union = list(a | b)
    return _fixed_js(
        [a.get(token, MISSING_LOGPROB) for token in union], [b.get(token, MISSING_LOGPROB) for token in union]
    )


def protocol_js(a: Distribution, b: Distribution) -> int:
    """The divergence over A ∪ B in units of 10^-6; a missing id has probability 0.

    Raises `ValueError` when either is empty: there is nothing to normalise.
    """
    union = list(a | b)
    return _fixed_js([a.get(token) for token in union], [b.get(token) for token in union])


def _same_token(worker: Side, verifier: Side) -> None:
    if worker.token != verifier.token:
        raise ValueError(f"the verifier scored token {verifier.token}, the worker chose {worker.token}")


def _finite(entries: Sequence[tuple[int, Fraction | None]]) -> Distribution:
    return {token: logprob for token, logprob in entries if logprob is not None}


def _research_diff(worker: Fraction | None, verifier: Fraction | None) -> Fraction | None:
    """|verifier - worker|, one FP64 subtraction; None where a side is missing or the result overflows."""
    if worker is None or verifier is None:
        return None
    difference = round_to(abs(verifier - worker), FP64)
    return difference if isinstance(difference, Fraction) else None


def tie_aware_rank(side: Side) -> tuple[int, int] | None:
    """All ranks that the selected token can claim: `[1 + #greater, #at least as great]`, its own included.

    The counts come from the other listed entries, and are whole where one of those lies below the token.
    Where the last of them ties with it, the tie may go on past the list, up to the engine's rank. Where all
    lie above it, the list says nothing and the engine's rank stands alone; None where there is none.
    """
    others = _others(side)
    if side.logprob is None or all(logprob > side.logprob for logprob in others.values()):
        return (side.rank, side.rank) if side.rank else None
    greater = sum(logprob > side.logprob for logprob in others.values())
    at_least = 1 + sum(logprob >= side.logprob for logprob in others.values())
    if min(others.values()) == side.logprob:
        at_least = max(at_least, side.rank)
    return 1 + greater, at_least


def first_index_rank(side: Side) -> int | None:
    """The token's rank when equal log probabilities are ordered by token id, as a first-index argmax does.

    None where the list does not reach below the token: a smaller id could tie with it past the list.
    """
    others = _others(side)
    if side.logprob is None or all(logprob >= side.logprob for logprob in others.values()):
        return None
    ahead = (
        logprob > side.logprob or (logprob == side.logprob and token < side.token)
        for token, logprob in others.items()
    )
    return 1 + sum(ahead)


def _others(side: Side) -> Distribution:
    return {token: logprob for token, logprob in _finite(side.entries).items() if token != side.token}


def _ranks_overlap(worker: Side, verifier: Side) -> bool:
    """Whether one rank fits both sides, so that ties alone can explain that the engines' ranks differ."""
    w, v = tie_aware_rank(worker), tie_aware_rank(verifier)
    return w is not None and v is not None and max(w[0], v[0]) <= min(w[1], v[1])


def _fixed_js(a: Sequence[Fraction | None], b: Sequence[Fraction | None]) -> int:
    """The divergence of two lists of log probabilities over one union, to the nearest unit of 10^-6."""
    bits = FIRST_BITS
    while bits <= LAST_BITS:
        lo, hi = _enclose_js(a, b, bits)
        nearest = {half_away(Fraction(end * SCALE, 1 << bits)) for end in (lo, hi)}
        if len(nearest) == 1:
            return nearest.pop()
        bits *= 2
    raise ArithmeticError(f"{LAST_BITS} bits do not settle the divergence of {a} and {b}")


def _enclose_js(a: Sequence[Fraction | None], b: Sequence[Fraction | None], bits: int) -> Enclosure:
    """JS = ln 2 + (Σ p·ln p + Σ q·ln q - Σ s·ln s)/2 with s = p + q, since Σ s = 2; None is probability 0."""
    p, p_entropy = _softmax(a, bits)
    q, q_entropy = _softmax(b, bits)
    mixed = [
        _times_log((p_lo + q_lo, p_hi + q_hi), bits) for (p_lo, p_hi), (q_lo, q_hi) in zip(p, q, strict=True)
    ]
    ln2 = log2(bits)
    lo = 2 * ln2[0] - p_entropy[1] - q_entropy[1] - sum(high for _, high in mixed)
    hi = 2 * ln2[1] - p_entropy[0] - q_entropy[0] - sum(low for low, _ in mixed)
    return lo // 2, -(-hi // 2)


def _softmax(logprobs: Sequence[Fraction | None], bits: int) -> tuple[list[Enclosure], Enclosure]:
    """The probabilities p and their entropy -Σ p·ln p = ln U - Σ p·x, with x = logprob - max, U = Σ e^x."""
    known = [logprob for logprob in logprobs if logprob is not None]
    if not known:
        raise ValueError("a divergence needs an entry on both sides")
    top, one = max(known), 1 << bits
    weights = [(0, 0) if logprob is None else exp(logprob - top, bits) for logprob in logprobs]
    total_lo, total_hi = sum(lo for lo, _ in weights), sum(hi for _, hi in weights)
    p = [(lo * one // total_hi, -(-hi * one // total_lo)) for lo, hi in weights]
    mean_lo = mean_hi = 0
    for (lo, hi), logprob in zip(p, logprobs, strict=True):
        x_lo, x_hi = enclose(Fraction(0) if logprob is None else logprob - top, bits)  # both at most 0
        mean_lo += hi * x_lo >> bits
        mean_hi += -(-lo * x_hi >> bits)
    ln_lo, ln_hi = log((total_lo, total_hi), bits)
    return p, (ln_lo - mean_hi, ln_hi - mean_lo)


def _times_log(s: Enclosure, bits: int) -> Enclosure:
    """s·ln s for s in [0, 2]."""
    lo, hi = s
    if hi == 0:
        return 0, 0
    if hi << 2 < 1 << bits:  # decreasing on [0, 1/4]: the ends change places
        low = log((hi, hi), bits)[0] * hi >> bits
        high = -(-log((lo, lo), bits)[1] * lo >> bits) if lo else 0
        return low, high
    ln_lo, ln_hi = log(s, bits)
    products = [factor * ln for factor in s for ln in (ln_lo, ln_hi)]
    return min(products) >> bits, -(-max(products) >> bits)


@dataclass(frozen=True)
class Values:
    """All values of one metric, however they are stored: order statistics and the exact sum."""

    count: int
    at: Callable[[int], Fraction]  # the i-th smallest, from 0
    total: Fraction


@dataclass(frozen=True)
class Collected:
    """What the metrics of many positions are made of."""

    tokens: int
    missing: int
    ranked: int  # positions with a rank delta
    rank_deltas: int  # and it is not 0
    rank_deltas_beyond_ties: int
    diffs: Values
    jaccards: Values
    divergences: Values


def collect(positions: Sequence[Position]) -> Collected:
    """Every metric over the positions where it is defined."""
    return Collected(
        tokens=len(positions),
        missing=sum(p.missing for p in positions),
        ranked=sum(p.rank_differs is not None for p in positions),
        rank_deltas=sum(p.rank_differs is True for p in positions),
        rank_deltas_beyond_ties=sum(p.rank_differs_beyond_ties is True for p in positions),
        diffs=_values(p.abs_diff for p in positions),
        jaccards=_values(p.jaccard for p in positions),
        divergences=_values(p.js for p in positions),
    )


def research_metrics(collected: Collected) -> Metrics:
    """Exact means and linearly interpolated quantiles; None where nothing has the metric."""
    return _metrics(collected, exact_mean, linear_quantile)


def protocol_metrics(collected: Collected) -> Metrics:
    """Means to the nearest 10^-6 and nearest-rank quantiles; the worst values where nothing was compared."""
    if collected.tokens == collected.missing:
        return Metrics(collected.tokens, collected.missing, *WORST)
    return _metrics(collected, rounded_mean, nearest_rank)


def exact_mean(total: Fraction, count: int) -> Fraction:
    """The research mean of n >= 1 values."""
    return total / count


def rounded_mean(total: Fraction, count: int) -> Fraction:
    """The protocol's mean of n >= 1 values that are not negative: a multiple of 10^-6, half up."""
    return Fraction(half_away(total * SCALE / count), SCALE)


def linear_quantile(values: Values, percent: int) -> Fraction:
    """The research quantile of n >= 1 values: linear between those next to (n - 1)·percent/100, from 0."""
    whole, rest = divmod((values.count - 1) * percent, 100)
    low = values.at(whole)
    return low + Fraction(rest, 100) * (values.at(whole + 1) - low) if rest else low


def nearest_rank(values: Values, percent: int) -> Fraction:
    """The protocol quantile of n >= 1 values: the ⌈n·percent/100⌉-th smallest, from 1."""
    return values.at(max(-(-values.count * percent // 100), 1) - 1)


def half_away(x: Fraction) -> int:
    """The integer nearest to `x`, ties away from zero: protocol values."""
    magnitude = (2 * abs(x.numerator) + x.denominator) // (2 * x.denominator)
    return magnitude if x >= 0 else -magnitude


def half_even(x: Fraction) -> int:
    """The integer nearest to `x`, ties to even: Python's `round`, and so what the research code displays."""
    return round(x)


def _metrics(
    collected: Collected,
    mean_of: Callable[[Fraction, int], Fraction],
    quantile_of: Callable[[Values, int], Fraction],
) -> Metrics:
    def mean(values: Values) -> Fraction | None:
        return mean_of(values.total, values.count) if values.count else None

    def quantile(values: Values, percent: int) -> Fraction | None:
        return quantile_of(values, percent) if values.count else None

    def rate(count: int) -> Fraction | None:
        return mean_of(Fraction(count), collected.ranked) if collected.ranked else None

    diffs = collected.diffs
    return Metrics(
        tokens=collected.tokens,
        missing=collected.missing,
        mean_abs=mean(diffs),
        p50_abs=quantile(diffs, 50),
        p90_abs=quantile(diffs, 90),
        p95_abs=quantile(diffs, 95),
        p99_abs=quantile(diffs, 99),
        max_abs=diffs.at(diffs.count - 1) if diffs.count else None,
        rank_delta_rate=rate(collected.rank_deltas),
        tie_aware_rank_delta_rate=rate(collected.rank_deltas_beyond_ties),
        jaccard_mean=mean(collected.jaccards),
        jaccard_p05=quantile(collected.jaccards, 5),
        js_mean=mean(collected.divergences),
        js_p95=quantile(collected.divergences, 95),
        js_p99=quantile(collected.divergences, 99),
    )


def _values(found: Iterable[Fraction | None]) -> Values:
    values = sorted(value for value in found if value is not None)
    return Values(len(values), values.__getitem__, sum(values, Fraction(0)))


_WORST_DIFF = Fraction(SATURATED, SCALE)
WORST = (*[_WORST_DIFF] * 6, Fraction(1), Fraction(1), *[Fraction(0)] * 2, *[Fraction(1)] * 3)
"""Of nothing: the largest difference, every rank changed, no id shared, divergence 1 (above ln 2)."""
