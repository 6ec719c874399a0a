"""Thresholds from honest data, judged on other data: splits, derivation, ROC, batches.

Thresholds that are tuned and scored on the same samples promise more than they keep. So samples are split by
their prompt, a derived preset carries the prompts that it was derived from, and `judge_split` refuses those.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, floor
from typing import TypeVar

from certhead.pyref.replay_metrics import Values, linear_quantile

from ..errors import BadInput
from .confidence import CONFIDENCE, ErrorRates, disjoint_batches, error_rates
from .summary import Convention, Summary
from .trace import Sample
from .verdict import (
    BIGGER_IS_BETTER,
    DIVERGENCES,
    JS_SATURATION,
    Eligibility,
    Preset,
    Relation,
    Rule,
    Verdict,
    judge,
)

METRICS = (
    "mean_abs",
    "p90_abs",
    "p95_abs",
    "p99_abs",
    "rank_delta_rate",
    "jaccard_mean",
    "jaccard_p05",
    "js_p95",
    "js_p99",
)
"""Those of the public preset, without the median: an honest one of 0 would reject any drift."""

HEADROOM = Fraction(5, 4)  # pass = q0.99 of the honest values times this
REJECT_FACTOR = 3  # reject = pass times this; for the Jaccard index, pass divided by it
JACCARD_SLACK = Fraction(2, 100)  # pass = q0.01 of the honest values minus this
GRAIN = 10**6  # thresholds are multiples of 1/GRAIN, the fixed point of the protocol convention

T = TypeVar("T")


@dataclass(frozen=True)
class Split:
    """Samples for deriving thresholds, and others for judging by them."""

    calibration: list[Sample]
    judgement: list[Sample]


def prompt_digest(input_ids: Sequence[int]) -> str:
    """SHA-256, hex, of a prompt's token ids: what makes two samples samples of one prompt."""
    return hashlib.sha256(",".join(map(str, input_ids)).encode()).hexdigest()


def is_calibration(input_ids: Sequence[int], seed: int = 0, share: Fraction = Fraction(1, 2)) -> bool:
    """On which side of the split a prompt is, for every batch and variant that it occurs in.

    By a hash of the prompt and `seed`, so it does not depend on the other samples, and one prompt under two
    sample ids is not on both sides. About `share` of all prompts are calibration.
    """
    digest = hashlib.sha256(f"{seed}:{prompt_digest(input_ids)}".encode()).digest()
    return Fraction(int.from_bytes(digest, "big"), 2**256) < share


def split(samples: Iterable[Sample], seed: int = 0, share: Fraction = Fraction(1, 2)) -> Split:
    """Split samples by their prompts (`is_calibration`). Raises BadInput where one id has two prompts."""
    sides = Split([], [])
    prompts: dict[str, tuple[int, ...]] = {}
    for sample in samples:
        if prompts.setdefault(sample.sample_id, sample.input_ids) != sample.input_ids:
            raise BadInput(f"sample {sample.sample_id!r} occurs with two prompts")
        side = is_calibration(sample.input_ids, seed, share)
        (sides.calibration if side else sides.judgement).append(sample)
    return sides


@dataclass(frozen=True)
class Calibration:
    """A derived preset and how it came about."""

    preset: Preset
    method: str
    honest: int  # summaries that it was derived from
    separates: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # metric → cheats it rejects


def derive_by_quantile(
    name: str,
    honest: Sequence[Summary],
    prompts: Iterable[str],
    *,
    metrics: Sequence[str] = METRICS,
    eligibility: Eligibility | None = None,
) -> Calibration:
    """Thresholds from honest summaries alone, by the public code's derivation helper.

    pass = 1.25·q0.99 and reject = 3·pass; for the Jaccard indices pass = q0.01 − 0.02 and reject = pass/3.
    Quantiles are linear. The summaries are of what will be judged: of batches of one size, since a batch's
    metrics scatter less than a sample's; smaller batches are not eligible, unless `eligibility` says
    otherwise. prompts: digests of all prompts behind them (`prompt_digest`).
    Thresholds are rounded to 10^-6, to the lenient side. One that could decide nothing is left out: a reject
    threshold of 0, or one beyond the metric's range. Raises BadInput where nothing is left, or the summaries
    do not fit.
    """
    accept, reject = [], []
    for metric in metrics:
        values = _values(metric, honest, "honest")
        if metric in BIGGER_IS_BETTER:
            passing = _quantile(values, 1) - JACCARD_SLACK
            accept += _rule(metric, Relation.AT_LEAST, passing)
            reject += _rule(metric, Relation.BELOW, passing / REJECT_FACTOR)
        else:
            passing = _quantile(values, 99) * HEADROOM
            accept += _rule(metric, Relation.AT_MOST, passing)
            reject += _rule(metric, Relation.ABOVE, passing * REJECT_FACTOR)
    source = f"derived by quantiles of {len(honest)} honest summaries"
    return _calibration(name, "quantile", honest, prompts, accept, reject, eligibility, source, {})


def derive_by_separation(
    name: str,
    honest: Sequence[Summary],
    cheats: Mapping[str, Sequence[Summary]],
    prompts: Iterable[str],
    *,
    metrics: Sequence[str] = METRICS,
    eligibility: Eligibility | None = None,
) -> Calibration:
    """Thresholds in the gap between honest summaries and those of known cheats.

    A metric separates a cheat when all of the cheat's values lie beyond the worst honest one by at least the
    honest values' spread: a narrower gap is within what other honest batches may reach, and one reject rule
    is enough to reject them. Between the two lies a gap; pass is a third into it and reject two thirds, with
    the nearest cheat that the metric separates. A metric that separates none passes up to a third of the
    spread beyond the worst honest value and rejects nothing. The rest is as for `derive_by_quantile`. Raises
    BadInput also where no metric separates any cheat.
    """
    accept, reject = [], []
    separates: dict[str, tuple[str, ...]] = {}
    for metric in metrics:
        sign = -1 if metric in BIGGER_IS_BETTER else 1  # so that larger is worse
        values = [sign * value for value in _values(metric, honest, "honest")]
        worst, spread = max(values), max(values) - min(values)
        nearest = {
            cheat: min(sign * value for value in _values(metric, summaries, cheat))
            for cheat, summaries in cheats.items()
        }
        beyond = {c: value for c, value in nearest.items() if value > worst and value - worst >= spread}
        gap = min(beyond.values(), default=worst + spread) - worst
        relations = (Relation.AT_LEAST, Relation.BELOW) if sign < 0 else (Relation.AT_MOST, Relation.ABOVE)
        accept += _rule(metric, relations[0], sign * (worst + gap / 3))
        rule = _rule(metric, relations[1], sign * (worst + 2 * gap / 3)) if beyond else []
        reject += rule
        if rule:
            separates[metric] = tuple(beyond)
    if not separates:
        raise BadInput(f"{name}: no metric separates any of {', '.join(cheats) or 'no cheats'}")
    source = f"derived by separating {len(honest)} honest summaries from {', '.join(cheats)}"
    return _calibration(name, "separating", honest, prompts, accept, reject, eligibility, source, separates)


def _calibration(
    name: str,
    method: str,
    honest: Sequence[Summary],
    prompts: Iterable[str],
    accept: list[Rule],
    reject: list[Rule],
    eligibility: Eligibility | None,
    source: str,
    separates: Mapping[str, tuple[str, ...]],
) -> Calibration:
    derived_from = frozenset(prompts)
    if not derived_from:
        raise BadInput(f"{name}: the prompts behind the thresholds are not named")
    convention = _one_convention(honest)
    if any(summary.missing for summary in honest):
        raise BadInput(f"{name}: honest summaries with missing positions; find out why before calibrating")
    if eligibility is None:
        eligibility = Eligibility(
            tokens=min(summary.tokens for summary in honest),
            samples=min(summary.samples for summary in honest),
        )
    accept.insert(0, Rule("missing", Relation.AT_MOST, Fraction(0)))
    reject.insert(0, Rule("missing", Relation.ABOVE, Fraction(0)))
    if len(accept) == 1:
        raise BadInput(f"{name}: no metric of the honest summaries gives a threshold that decides anything")
    preset = Preset(
        name, convention, tuple(accept), tuple(reject), eligibility, source=source, derived_from=derived_from
    )
    return Calibration(preset, method, len(honest), separates)


def _one_convention(summaries: Sequence[Summary]) -> Convention:
    conventions = {summary.convention for summary in summaries}
    if len(conventions) != 1:
        raise BadInput(
            f"the summaries are of {', '.join(sorted(conventions)) or 'no'} convention, not of one"
        )
    return conventions.pop()


def _values(metric: str, summaries: Sequence[Summary], origin: str) -> list[Fraction]:
    """The metric of each summary. Raises BadInput for none, or where it is undefined."""
    values = [getattr(summary, metric) for summary in summaries]
    if not values or None in values:
        raise BadInput(
            f"{origin}: {metric} is undefined for {values.count(None) or 'all'} of {len(values)} summaries"
        )
    return values


def _quantile(values: Sequence[Fraction], percent: int) -> Fraction:
    ordered = sorted(values)
    return linear_quantile(Values(len(ordered), ordered.__getitem__, sum(ordered, Fraction(0))), percent)


def _rule(metric: str, relation: Relation, threshold: Fraction) -> list[Rule]:
    """The rule, if it can decide anything; the threshold is rounded to the lenient side."""
    threshold *= GRAIN
    threshold = Fraction(floor(threshold) if metric in BIGGER_IS_BETTER else ceil(threshold), GRAIN)
    if relation is Relation.ABOVE and threshold == 0:
        return []  # three times nothing is no margin
    if metric in DIVERGENCES and relation is Relation.ABOVE:
        threshold = min(threshold, JS_SATURATION)
    try:
        return [Rule(metric, relation, threshold)]
    except ValueError:
        return []


def judge_split(
    calibration: Calibration,
    prompts: Iterable[str],
    summary: Summary,
    per_sample: Sequence[Summary] = (),
) -> Verdict:
    """The verdict on a batch of other prompts than the calibration's; `prompts` are the digests of its own.

    Raises BadInput where a prompt of the batch was calibrated on, or none is named.
    """
    refuse_overlap(calibration.preset, prompts)
    return judge(summary, per_sample, calibration.preset)


def refuse_overlap(preset: Preset, prompts: Iterable[str]) -> None:
    """Raise BadInput where the preset was derived from one of these prompts (digests), or none is named."""
    prompts = set(prompts)
    if not prompts:
        raise BadInput("the prompts of the batch are not named")
    shared = prompts & preset.derived_from
    if shared:
        raise BadInput(
            f"preset {preset.name}: its thresholds were derived from {len(shared)} of the {len(prompts)} "
            f"prompts to be judged (one has the digest {min(shared)[:16]}…); judge other prompts"
        )


@dataclass(frozen=True)
class Evaluation:
    """What a calibration does on batches of other prompts."""

    batch_size: int
    honest: list[Verdict]
    cheats: dict[str, list[Verdict]]

    def rates(self, cheat: str, confidence: Fraction = CONFIDENCE) -> ErrorRates:
        """The error rates against one cheat, with intervals: the batches are disjoint."""
        return error_rates(self.honest, self.cheats[cheat], confidence)


def evaluate(
    calibration: Calibration,
    honest: Sequence[T],
    cheats: Mapping[str, Sequence[T]],
    *,
    batch_size: int,
    prompt: Callable[[T], str],
    summarise: Callable[[Sequence[T]], tuple[Summary, Sequence[Summary]]],
    seed: int = 0,
) -> Evaluation:
    """Judge disjoint batches of `batch_size` samples of each origin.

    prompt: the digest of a sample's prompt. summarise: the pooled summary of a batch and those of its
    samples. Raises BadInput where a prompt was calibrated on, or occurs twice in one origin: then batches
    would not be independent.
    """

    def verdicts(origin: str, samples: Sequence[T]) -> list[Verdict]:
        prompts = [prompt(sample) for sample in samples]
        if len(set(prompts)) < len(prompts):
            raise BadInput(
                f"{origin}: {len(prompts) - len(set(prompts))} samples repeat another one's prompt"
            )
        return [
            judge_split(calibration, map(prompt, batch), *summarise(batch))
            for batch in disjoint_batches(samples, batch_size, seed)
        ]

    return Evaluation(
        batch_size, verdicts("honest", honest), {cheat: verdicts(cheat, s) for cheat, s in cheats.items()}
    )


@dataclass(frozen=True)
class RocPoint:
    """What a threshold does: values at least as bad as it are rejected; None rejects nothing."""

    threshold: Fraction | None
    honest_reject: Fraction  # share of the honest values
    cheat_reject: Fraction  # share of the cheat's


@dataclass(frozen=True)
class Roc:
    """All that a metric's threshold can do, from rejecting nothing to rejecting all."""

    points: tuple[RocPoint, ...]
    auc: Fraction  # probability that a cheat's value is worse than an honest one's, ties counted half


def roc(honest: Sequence[Fraction], cheat: Sequence[Fraction], *, bigger_is_better: bool = False) -> Roc:
    """The exact ROC of one metric, and its area (Mann and Whitney's statistic).

    Raises BadInput where either side has no values.
    """
    if not honest or not cheat:
        raise BadInput(
            f"a ROC needs values of both kinds; there are {len(honest)} honest and {len(cheat)} of a cheat"
        )
    sign = -1 if bigger_is_better else 1  # so that larger is worse
    good, bad = sorted(sign * value for value in honest), sorted(sign * value for value in cheat)

    def share(values: list[Fraction], at: Fraction) -> Fraction:
        return Fraction(len(values) - bisect_left(values, at), len(values))

    points = [RocPoint(None, Fraction(0), Fraction(0))]
    points += [
        RocPoint(sign * at, share(good, at), share(bad, at)) for at in sorted({*good, *bad}, reverse=True)
    ]
    halves = sum(bisect_left(good, value) + bisect_right(good, value) for value in bad)
    return Roc(tuple(points), Fraction(halves, 2 * len(good) * len(bad)))
