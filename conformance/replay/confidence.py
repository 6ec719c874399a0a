"""How sure a measured error rate is: exact binomial intervals, and how a batch's size changes the rates.

Intervals are Clopper and Pearson's (Biometrika 26, 1934): the ends are where the binomial tail equals the
allowed error, so the coverage is at least the stated confidence for every n. The tails are computed in
integers and the ends rounded outwards to `RESOLUTION`; there is no floating point.

An interval speaks of independent trials from the population that the trials were drawn from: new prompts of
the same kind. Resampled batches are not independent trials (two of them share samples), so their rate comes
without an interval; the interval beside it is of disjoint batches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import TypeVar

from .verdict import Outcome, Verdict

CONFIDENCE = Fraction(95, 100)
RESOLUTION = Fraction(1, 2**32)  # the ends are rounded outwards to multiples of this

T = TypeVar("T")


class Side(StrEnum):
    """Which ends of an interval are allowed to be wrong."""

    BOTH = "two-sided"
    UPPER = "upper bound"
    LOWER = "lower bound"


@dataclass(frozen=True)
class Interval:
    """A rate of `events` in `trials` independent trials, and what is known of the true rate."""

    events: int
    trials: int
    confidence: Fraction
    side: Side
    low: Fraction
    high: Fraction

    @property
    def rate(self) -> Fraction | None:
        """The measured rate; None without trials."""
        return Fraction(self.events, self.trials) if self.trials else None

    def __str__(self) -> str:
        measured = "no trials" if self.rate is None else f"{percent(self.rate)}"
        ends = f"{percent(self.low)}, {percent(self.high)}"
        return f"{self.events}/{self.trials} = {measured} [{ends}] ({percent(self.confidence)} {self.side})"


def percent(share: Fraction) -> str:
    """The share in per cent, to 3 significant digits."""
    return f"{float(100 * share):.3g} %"


def lower_tail(events: int, trials: int, rate: Fraction) -> Fraction:
    """P(X ≤ events) for X binomial(trials, rate), exactly."""
    return Fraction(*_tail(events, trials, rate))


def _tail(events: int, trials: int, rate: Fraction) -> tuple[int, int]:
    """The same as (numerator, denominator), not reduced: reducing would take most of the time.

    The cost grows with the smaller of events and trials − events.
    """
    if not 0 <= rate <= 1:
        raise ValueError(f"rate {rate} is not in [0, 1]")
    if trials < 0:
        raise ValueError(f"{trials} trials")
    if events >= trials:
        return 1, 1
    if events < 0:
        return 0, 1
    if 2 * events >= trials:
        upper, whole = _tail(trials - events - 1, trials, 1 - rate)
        return whole - upper, whole
    yes, whole = rate.numerator, rate.denominator
    no = whole - yes
    total, power, choose = 1, 1, 1
    for i in range(1, events + 1):  # total = sum of C(trials, j) yes^j no^(i-j) over j ≤ i
        power *= yes
        choose = choose * (trials - i + 1) // i
        total = total * no + choose * power
    return total * no ** (trials - events), whole**trials


def _tail_within(error: Fraction, events: int, trials: int, rate: Fraction) -> bool:
    """Whether P(X ≤ events) ≤ error."""
    share, whole = _tail(events, trials, rate)
    return share * error.denominator <= error.numerator * whole


def clopper_pearson(
    events: int, trials: int, confidence: Fraction = CONFIDENCE, side: Side = Side.BOTH
) -> Interval:
    """The exact interval for a rate. Raises ValueError for counts that cannot be."""
    if not 0 <= events <= trials:
        raise ValueError(f"{events} events in {trials} trials")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not in (0, 1)")
    error = (1 - confidence) / (2 if side is Side.BOTH else 1)
    low, high = Fraction(0), Fraction(1)
    if side is not Side.UPPER and events > 0:  # P(X ≥ events) is P(trials − X ≤ trials − events)
        low = _last(lambda rate: _tail_within(error, trials - events, trials, 1 - rate))
    if side is not Side.LOWER and events < trials:
        high = 1 - _last(lambda rate: _tail_within(error, events, trials, 1 - rate))
    return Interval(events, trials, confidence, side, low, high)


def _last(holds: Callable[[Fraction], bool]) -> Fraction:
    """The largest multiple of the resolution in [0, 1) where `holds`: true from 0 up to there, then false."""
    good, bad = 0, RESOLUTION.denominator
    while bad - good > 1:
        middle = (good + bad) // 2
        if holds(middle * RESOLUTION):
            good = middle
        else:
            bad = middle
    return good * RESOLUTION


def rule_of_three(trials: int) -> Fraction:
    """3/n: the familiar approximate 95 % upper bound on a rate of which n trials showed no event.

    It is slightly above the exact one-sided bound 1 − 0.05^(1/n), so it errs on the safe side.
    """
    if trials < 1:
        raise ValueError(f"{trials} trials")
    return min(Fraction(1), Fraction(3, trials))


def samples_needed(rate: Fraction, confidence: Fraction = CONFIDENCE, events: int = 0) -> int:
    """The fewest trials of which `events` or fewer show, at `confidence`, that the true rate is below `rate`.

    The smallest n with P(X ≤ events | n, rate) ≤ 1 − confidence.
    """
    if not 0 < rate < 1:
        raise ValueError(f"rate {rate} is not in (0, 1)")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence {confidence} is not in (0, 1)")
    bad, good = events, events + 1  # with n = events the tail is 1
    while not _tail_within(1 - confidence, events, good, rate):
        bad, good = good, 2 * good
    while good - bad > 1:
        middle = (bad + good) // 2
        if _tail_within(1 - confidence, events, middle, rate):
            good = middle
        else:
            bad = middle
    return good


@dataclass(frozen=True)
class ErrorRates:
    """What verdicts on batches of known origin say about a preset."""

    honest_reject: Interval  # honest batches that were rejected
    honest_pass: Interval
    cheat_accept: Interval  # cheating batches that passed
    cheat_reject: Interval


def error_rates(
    honest: Iterable[Verdict], cheating: Iterable[Verdict], confidence: Fraction = CONFIDENCE
) -> ErrorRates:
    """The rates of both errors and of both right answers, from disjoint batches; INCONCLUSIVE is neither."""
    honest, cheating = list(honest), list(cheating)

    def rate(verdicts: list[Verdict], outcome: Outcome) -> Interval:
        events = sum(verdict.outcome is outcome for verdict in verdicts)
        return clopper_pearson(events, len(verdicts), confidence)

    return ErrorRates(
        honest_reject=rate(honest, Outcome.REJECT),
        honest_pass=rate(honest, Outcome.PASS),
        cheat_accept=rate(cheating, Outcome.PASS),
        cheat_reject=rate(cheating, Outcome.REJECT),
    )


def disjoint_batches(samples: Sequence[T], size: int, seed: int = 0) -> list[list[T]]:
    """As many batches of `size` as there are, no sample twice, in an order that `seed` decides.

    Samples that do not fill a last batch are left out.
    """
    if size < 1:
        raise ValueError(f"batches of {size} samples")
    shuffled = random.Random(seed).sample(list(samples), len(samples))
    return [shuffled[at : at + size] for at in range(0, len(shuffled) - size + 1, size)]


@dataclass(frozen=True)
class PowerPoint:
    """How often a decision falls for batches of `samples` samples, each cut to `tokens` tokens."""

    samples: int
    tokens: int | None  # None: all
    resampled: Fraction | None  # share among `resamples` drawn subsets of this finite set; no interval holds
    resamples: int
    disjoint: Interval  # among disjoint batches, which are independent trials


def power(
    samples: Sequence[T],
    decide: Callable[[Sequence[T], int | None], bool],
    *,
    sizes: Sequence[int],
    tokens: Sequence[int | None] = (None,),
    resamples: int = 200,
    seed: int = 0,
    confidence: Fraction = CONFIDENCE,
) -> list[PowerPoint]:
    """The share of batches for which `decide(batch, tokens)`, for every size and every number of tokens.

    samples: independent samples of one origin. decide: e.g. whether the batch, each sample cut to its first
    `tokens` tokens, is rejected: power for cheats, the false alarm for honest ones. The resampled share
    draws subsets without replacement: it smooths over which samples happen to share a batch, and describes
    this set of samples only. A size above the number of samples gives no trials and no share.
    """
    points = []
    for size in sizes:
        for cut in tokens:
            batches = disjoint_batches(samples, size, seed)
            hits = sum(decide(batch, cut) for batch in batches)
            share = None
            if batches and resamples:
                rng = random.Random(seed)
                drawn = sum(decide(rng.sample(list(samples), size), cut) for _ in range(resamples))
                share = Fraction(drawn, resamples)
            interval = clopper_pearson(hits, len(batches), confidence)
            points.append(PowerPoint(size, cut, share, resamples if batches else 0, interval))
    return points
