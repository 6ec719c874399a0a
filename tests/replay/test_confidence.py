"""Exact intervals: printed tables, the definition another way, coverage, and what batches may claim."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from math import comb

import pytest
from certhead.conformance.replay.confidence import (
    RESOLUTION,
    Side,
    clopper_pearson,
    disjoint_batches,
    error_rates,
    lower_tail,
    power,
    rule_of_three,
    samples_needed,
)
from certhead.conformance.replay.summary import Convention
from certhead.conformance.replay.verdict import Outcome, Verdict
from hypothesis import given
from hypothesis import strategies as st

TABLE = [  # 95 % two-sided, as printed in tables of the binomial distribution
    (0, 10, "0.0000", "0.3085"),
    (1, 10, "0.0025", "0.4450"),
    (5, 10, "0.1871", "0.8129"),
    (10, 10, "0.6915", "1.0000"),
    (5, 20, "0.0866", "0.4910"),
    (10, 100, "0.0490", "0.1762"),
    (50, 100, "0.3983", "0.6017"),
]


@pytest.mark.parametrize(("events", "trials", "low", "high"), TABLE)
def test_printed_tables(events: int, trials: int, low: str, high: str) -> None:
    interval = clopper_pearson(events, trials)
    assert f"{float(interval.low):.4f}" == low
    assert f"{float(interval.high):.4f}" == high


@pytest.mark.parametrize("rate", [Fraction(0), Fraction(1, 3), Fraction(7, 10), Fraction(1)])
def test_the_tail_is_the_sum_over_all_outcomes(rate: Fraction) -> None:
    """By enumerating every sequence of 6 trials, which knows nothing of binomial coefficients."""
    for events in range(-1, 8):
        total = Fraction(0)
        for outcome in itertools.product((0, 1), repeat=6):
            if sum(outcome) <= events:
                total += rate ** sum(outcome) * (1 - rate) ** (6 - sum(outcome))
        assert lower_tail(events, 6, rate) == total


def upper_tail(events: int, trials: int, rate: Fraction) -> Fraction:
    return sum(
        (comb(trials, i) * rate**i * (1 - rate) ** (trials - i) for i in range(events, trials + 1)),
        Fraction(0),
    )


counts = st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))
confidences = st.sampled_from([Fraction(8, 10), Fraction(95, 100), Fraction(999, 1000)])


@given(counts, confidences, st.sampled_from(Side))
def test_the_ends_are_where_the_tails_equal_the_allowed_error(
    count: tuple[int, int], confidence: Fraction, side: Side
) -> None:
    events, trials = count
    interval = clopper_pearson(events, trials, confidence, side)
    error = (1 - confidence) / (2 if side is Side.BOTH else 1)
    if events == 0 or side is Side.UPPER:
        assert interval.low == 0
    else:
        assert upper_tail(events, trials, interval.low) <= error
        assert upper_tail(events, trials, interval.low + RESOLUTION) > error
    if events == trials or side is Side.LOWER:
        assert interval.high == 1
    else:
        assert 1 - upper_tail(events + 1, trials, interval.high) <= error
        assert 1 - upper_tail(events + 1, trials, interval.high - RESOLUTION) > error


@given(counts, confidences)
def test_counting_the_other_outcome_mirrors_the_interval(
    count: tuple[int, int], confidence: Fraction
) -> None:
    events, trials = count
    one, other = (
        clopper_pearson(events, trials, confidence),
        clopper_pearson(trials - events, trials, confidence),
    )
    assert one.low == 1 - other.high
    assert one.high == 1 - other.low


@pytest.mark.parametrize("side", Side)
def test_coverage_is_at_least_the_confidence_at_every_rate(side: Side) -> None:
    trials, confidence = 15, Fraction(9, 10)
    intervals = [clopper_pearson(k, trials, confidence, side) for k in range(trials + 1)]
    for rate in (Fraction(i, 97) for i in range(98)):
        covered = sum(
            comb(trials, k) * rate**k * (1 - rate) ** (trials - k)
            for k, interval in enumerate(intervals)
            if interval.low <= rate <= interval.high
        )
        assert covered >= confidence


def test_no_trials_say_nothing() -> None:
    interval = clopper_pearson(0, 0)
    assert (interval.rate, interval.low, interval.high) == (None, 0, 1)
    assert str(interval).startswith("0/0 = no trials [0 %, 100 %]")


def test_the_interval_in_words() -> None:
    assert str(clopper_pearson(69, 714)) == "69/714 = 9.66 % [7.6 %, 12.1 %] (95 % two-sided)"
    assert str(clopper_pearson(0, 200, side=Side.UPPER)) == "0/200 = 0 % [0 %, 1.49 %] (95 % upper bound)"


@pytest.mark.parametrize("count", [(-1, 3), (4, 3)])
def test_impossible_counts_are_refused(count: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="events in 3 trials"):
        clopper_pearson(*count)


def test_thousands_of_trials_are_exact_too() -> None:
    """No underflow: 0.9^20000 is below the smallest double."""
    interval = clopper_pearson(200, 20_000)
    assert Fraction(86, 10_000) < interval.low < Fraction(1, 100) < interval.high < Fraction(115, 10_000)
    assert lower_tail(0, 20_000, Fraction(1, 10)) == Fraction(9, 10) ** 20_000


def test_the_rule_of_three_is_above_the_exact_bound() -> None:
    for trials in (1, 2, 3, 10, 100, 300):
        exact = clopper_pearson(0, trials, side=Side.UPPER).high
        assert exact <= rule_of_three(trials) <= 1
    assert rule_of_three(300) == Fraction(1, 100)
    with pytest.raises(ValueError, match="0 trials"):
        rule_of_three(0)


@pytest.mark.parametrize(
    ("rate", "events", "needed"),
    [("0.01", 0, 299), ("0.01", 1, 473), ("0.05", 0, 59), ("0.5", 0, 5), ("0.97", 0, 1)],
)
def test_samples_needed_is_the_smallest_number_that_shows_the_rate(
    rate: str, events: int, needed: int
) -> None:
    """59 and 299 are the familiar numbers of acceptance sampling."""
    assert samples_needed(Fraction(rate), events=events) == needed
    assert clopper_pearson(events, needed, side=Side.UPPER).high <= Fraction(rate) + RESOLUTION
    assert clopper_pearson(events, needed - 1, side=Side.UPPER).high > Fraction(rate)


@pytest.mark.parametrize("call", [(Fraction(0),), (Fraction(1),), (Fraction(1, 2), Fraction(1))])
def test_rates_that_no_number_shows_are_refused(call: tuple[Fraction, ...]) -> None:
    with pytest.raises(ValueError, match="is not in"):
        samples_needed(*call)


def test_error_rates_count_inconclusive_as_neither() -> None:
    def verdicts(*counts: int) -> list[Verdict]:
        made = zip(Outcome, counts, strict=True)
        return [Verdict(o, "p", Convention.RESEARCH, ()) for o, n in made for _ in range(n)]

    rates = error_rates(verdicts(90, 1, 9), verdicts(2, 40, 8))
    assert (rates.honest_pass.events, rates.honest_reject.events) == (90, 1)
    assert (rates.cheat_accept.events, rates.cheat_reject.events) == (2, 40)
    assert (rates.honest_reject.trials, rates.cheat_accept.trials) == (100, 50)


@given(st.integers(0, 40), st.integers(1, 12), st.integers(0, 5))
def test_batches_share_no_sample_and_repeat_for_a_seed(n: int, size: int, seed: int) -> None:
    batches = disjoint_batches(range(n), size, seed)
    drawn = [sample for batch in batches for sample in batch]
    assert len(batches) == n // size
    assert all(len(batch) == size for batch in batches)
    assert len(set(drawn)) == len(drawn)
    assert batches == disjoint_batches(range(n), size, seed)


def test_power_separates_resampling_from_independent_trials() -> None:
    """One bad sample of 40: a batch of 10 holds it with probability 1/4, and one of 4 disjoint ones does."""

    def holds_the_bad_one(batch: Sequence[int], tokens: int | None) -> bool:
        return 0 in batch and tokens != 1

    points = power(range(40), holds_the_bad_one, sizes=[10, 41], tokens=[None, 1], resamples=400, seed=3)
    whole, cut, too_large, _ = points
    assert (whole.samples, whole.tokens, whole.disjoint.events, whole.disjoint.trials) == (10, None, 1, 4)
    assert whole.resampled is not None
    assert abs(whole.resampled - Fraction(1, 4)) < Fraction(1, 10)
    assert (cut.resampled, cut.disjoint.events) == (0, 0)
    assert (too_large.resampled, too_large.resamples, too_large.disjoint.trials) == (None, 0, 0)
    assert points == power(
        range(40), holds_the_bad_one, sizes=[10, 41], tokens=[None, 1], resamples=400, seed=3
    )


def test_batches_of_no_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="batches of 0 samples"):
        disjoint_batches([1], 0)
