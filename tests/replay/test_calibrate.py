"""Calibration: splits that keep prompts apart, thresholds by hand, refusals, ROC by its definition."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from certhead.conformance.errors import BadInput
from certhead.conformance.replay.calibrate import (
    Calibration,
    derive_by_quantile,
    derive_by_separation,
    evaluate,
    is_calibration,
    judge_split,
    prompt_digest,
    refuse_overlap,
    roc,
    split,
)
from certhead.conformance.replay.summary import Convention, Summary
from certhead.conformance.replay.trace import Sample, Trace
from certhead.conformance.replay.verdict import Eligibility, Outcome, explain, load_presets
from hypothesis import given
from hypothesis import strategies as st
from replay_summaries import summary

EMPTY = Trace(
    token_ids=np.zeros(0, dtype=np.int64),
    logprobs=np.zeros(0),
    ranks=np.zeros(0, dtype=np.int32),
    top_ids=np.zeros((0, 1), dtype=np.int64),
    top_logprobs=np.zeros((0, 1)),
    top_ranks=np.zeros((0, 1), dtype=np.int32),
)


def sample(sample_id: str, *input_ids: int) -> Sample:
    return Sample(sample_id, input_ids, (), EMPTY)


def rules(calibration: Calibration) -> tuple[set[str], set[str]]:
    return tuple(
        {str(rule) for rule in each} for each in (calibration.preset.accept, calibration.preset.reject)
    )


prompts = st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=3), max_size=30)


@given(prompts, st.integers(0, 3))
def test_one_prompt_is_on_one_side_under_any_id_and_in_any_batch(ids: list[list[int]], seed: int) -> None:
    samples = [sample(f"s{i}", *each) for i, each in enumerate(ids)]
    sides = split(samples, seed)
    calibration = {s.input_ids for s in sides.calibration}
    judgement = {s.input_ids for s in sides.judgement}
    assert not calibration & judgement
    assert len(sides.calibration) + len(sides.judgement) == len(samples)
    alone = [split([s], seed) for s in samples]
    assert [s for one in alone for s in one.calibration] == sides.calibration


def test_the_seed_and_the_share_decide_the_sides() -> None:
    inputs = [(i, i + 1) for i in range(2000)]
    halves = [[is_calibration(each, seed) for each in inputs] for seed in (0, 1)]
    assert halves[0] != halves[1]
    assert 900 < sum(halves[0]) < 1100
    assert 400 < sum(is_calibration(each, 0, Fraction(1, 4)) for each in inputs) < 600
    assert halves[0] == [is_calibration(list(each), 0) for each in inputs]


def test_prompts_are_told_apart_by_tokens_not_by_digits() -> None:
    assert prompt_digest([1, 23]) != prompt_digest([12, 3])


def test_one_id_with_two_prompts_is_refused() -> None:
    with pytest.raises(BadInput, match="sample 'a' occurs with two prompts"):
        split([sample("a", 1), sample("a", 2)])


def test_quantile_thresholds_by_hand() -> None:
    """101 summaries: the 0.99 quantile of 0…100 is 99, the 0.01 quantile is 1."""
    honest = [summary(mean_abs=Fraction(i, 1000), jaccard_mean=Fraction(800 + i, 1000)) for i in range(101)]
    calibration = derive_by_quantile("p", honest, ["a"], metrics=["mean_abs", "jaccard_mean"])
    accept, reject = rules(calibration)
    # 0.099 · 1.25 and three times it; 0.801 − 0.02 and a third of it
    assert accept == {"missing <= 0", "mean_abs <= 0.12375", "jaccard_mean >= 0.781"}
    assert reject == {
        "missing > 0",
        "mean_abs > 0.37125",
        "jaccard_mean < 0.260333",
    }  # rounded down, to the lenient side


def test_a_quantile_between_two_values_is_linear() -> None:
    calibration = derive_by_quantile(
        "p", [summary(mean_abs="0"), summary(mean_abs="1")], ["a"], metrics=["mean_abs"]
    )
    assert "mean_abs <= 1.2375" in rules(calibration)[0]


def test_thresholds_that_decide_nothing_are_left_out() -> None:
    honest = [summary(mean_abs="0", rank_delta_rate="0.5", js_p99="0.3", jaccard_mean="0.01")] * 3
    accept, reject = rules(
        derive_by_quantile(
            "p", honest, ["a"], metrics=["mean_abs", "rank_delta_rate", "js_p99", "jaccard_mean"]
        )
    )
    assert accept == {"missing <= 0", "mean_abs <= 0", "rank_delta_rate <= 0.625", "js_p99 <= 0.375"}
    assert reject == {"missing > 0", "js_p99 > 0.69"}  # 0 · 3, 1.875 and a negative index decide nothing


def test_the_honest_batches_that_it_was_derived_from_pass() -> None:
    honest = [summary(mean_abs=Fraction(i, 5000)) for i in range(50)]
    calibration = derive_by_quantile("p", honest, ["a"])
    assert all(judge_split(calibration, ["b"], each).outcome is Outcome.PASS for each in honest)


CHEATS = {
    "int4": [summary(mean_abs="0.3", jaccard_mean="0.5"), summary(mean_abs="0.4", jaccard_mean="0.5")],
    "int8": [summary(mean_abs="0.03", jaccard_mean="0.96"), summary(mean_abs="0.05", jaccard_mean="0.96")],
    "like": [summary(mean_abs="0.02", jaccard_mean="0.98")],
}
HONEST = [summary(mean_abs="0.02", jaccard_mean="0.97"), summary(mean_abs="0.01", jaccard_mean="0.95")]


def test_separating_thresholds_lie_in_the_gap() -> None:
    calibration = derive_by_separation(
        "p", HONEST, CHEATS, ["a"], metrics=["mean_abs", "jaccard_mean", "p99_abs"]
    )
    accept, reject = rules(calibration)
    # a third and two thirds of the way from 0.02 to 0.03, rounded up; 0.95 − 0.45/3; p99 separates none
    assert accept == {"missing <= 0", "mean_abs <= 0.023334", "jaccard_mean >= 0.8", "p99_abs <= 0.1"}
    assert reject == {"missing > 0", "mean_abs > 0.026667", "jaccard_mean < 0.65"}
    assert calibration.separates == {"mean_abs": ("int4", "int8"), "jaccard_mean": ("int4",)}
    for cheat, expected in (("int4", Outcome.REJECT), ("int8", Outcome.REJECT), ("like", Outcome.PASS)):
        assert judge_split(calibration, ["b"], CHEATS[cheat][0]).outcome is expected
    assert all(judge_split(calibration, ["b"], each).outcome is Outcome.PASS for each in HONEST)


def test_a_gap_narrower_than_the_honest_spread_separates_nothing() -> None:
    near = {"near": [summary(mean_abs="0.029")], "int8": [summary(mean_abs="0.03")]}
    calibration = derive_by_separation("p", HONEST, near, ["a"], metrics=["mean_abs"])
    assert calibration.separates == {"mean_abs": ("int8",)}
    assert rules(calibration)[1] == {"missing > 0", "mean_abs > 0.026667"}
    with pytest.raises(BadInput, match="p: no metric separates any of near"):
        derive_by_separation("p", HONEST, {"near": near["near"]}, ["a"], metrics=["mean_abs"])


def test_a_smaller_batch_than_those_behind_the_thresholds_is_inconclusive() -> None:
    calibration = derive_by_quantile("p", HONEST, ["a"])
    assert calibration.preset.eligibility == Eligibility(tokens=1024, samples=8)
    for change in ({"tokens": 1023}, {"samples": 7}):
        assert judge_split(calibration, ["b"], summary(**change)).outcome is Outcome.INCONCLUSIVE


def test_nothing_to_separate_is_refused() -> None:
    with pytest.raises(BadInput, match="p: no metric separates any of like"):
        derive_by_separation("p", HONEST, {"like": CHEATS["like"]}, ["a"], metrics=["mean_abs"])
    with pytest.raises(BadInput, match="no cheats"):
        derive_by_separation("p", HONEST, {}, ["a"])


def test_a_batch_with_a_calibration_prompt_is_refused() -> None:
    seen, other = prompt_digest([1, 2]), prompt_digest([3])
    calibration = derive_by_quantile("p", HONEST, [seen])
    assert judge_split(calibration, [other], summary()).outcome is Outcome.PASS
    with pytest.raises(BadInput, match=f"derived from 1 of the 2 prompts .*{seen[:16]}"):
        judge_split(calibration, [other, seen], summary())
    with pytest.raises(BadInput, match="not named"):
        judge_split(calibration, [], summary())


def test_the_refusal_survives_the_file(tmp_path: Path) -> None:
    calibration = derive_by_quantile("mine", HONEST, [prompt_digest([1, 2])])
    path = tmp_path / "mine.toml"
    path.write_text(calibration.preset.to_toml())
    read = load_presets(path)["mine"]
    assert read == calibration.preset
    with pytest.raises(BadInput, match="preset mine: its thresholds were derived from 1 of the 1 prompts"):
        refuse_overlap(read, [prompt_digest([1, 2])])


def test_smaller_batches_than_calibrated_are_not_eligible() -> None:
    calibration = derive_by_quantile("p", [summary(samples=20), summary(samples=30)], ["a"])
    verdict = judge_split(calibration, ["b"], summary(samples=19))
    assert explain(verdict).endswith("not eligible: 19 samples, needs 20")
    own = derive_by_quantile("p", [summary(samples=20)], ["a"], eligibility=Eligibility(tokens=4))
    assert judge_split(own, ["b"], summary(samples=1)).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("honest", "named", "problem"),
    [
        ([], ["a"], "honest: mean_abs is undefined for all of 0 summaries"),
        ([summary(), summary(mean_abs=None)], ["a"], "honest: mean_abs is undefined for 1 of 2 summaries"),
        ([summary()], [], "p: the prompts behind the thresholds are not named"),
        ([summary(missing=1)], ["a"], "p: honest summaries with missing positions"),
        (
            [summary(), summary(convention=Convention.PROTOCOL)],
            ["a"],
            "the summaries are of protocol, research convention, not of one",
        ),
    ],
)
def test_data_that_give_no_thresholds_are_refused(
    honest: Sequence[Summary], named: list[str], problem: str
) -> None:
    with pytest.raises(BadInput, match=problem):
        derive_by_quantile("p", honest, named)


def test_batches_are_disjoint_and_their_rates_have_intervals() -> None:
    """One sample is (prompt, mean difference); a batch's mean is that of its samples."""

    def summarise(batch: Sequence[tuple[str, Fraction]]) -> tuple[Summary, list[Summary]]:
        seen.append([each[0] for each in batch])
        mean = sum((each[1] for each in batch), Fraction(0)) / len(batch)
        return summary(samples=len(batch), mean_abs=mean), []

    seen: list[list[str]] = []
    calibration = derive_by_quantile("p", [summary(samples=4, mean_abs="0.01")], ["calibrated"])
    honest = [(f"p{i}", Fraction(1, 100)) for i in range(42)]
    cheats = {"bad": [(f"p{i}", Fraction(1, 2)) for i in range(42)]}
    evaluation = evaluate(
        calibration, honest, cheats, batch_size=4, prompt=lambda each: each[0], summarise=summarise
    )
    assert [len(batch) for batch in seen] == [4] * 20
    assert len({each for batch in seen[:10] for each in batch}) == 40
    rates = evaluation.rates("bad")
    assert (rates.honest_pass.events, rates.honest_pass.trials) == (10, 10)
    assert (rates.cheat_reject.events, rates.cheat_accept.events, rates.cheat_accept.trials) == (10, 0, 10)
    assert rates.cheat_accept.high > Fraction(1, 4)  # ten batches prove little

    for samples, problem in (
        ([("p1", Fraction(0))] * 2, "honest: 1 samples repeat another one's prompt"),
        ([("calibrated", Fraction(0)), *honest[:3]], "derived from 1 of the 4 prompts"),
    ):
        with pytest.raises(BadInput, match=problem):
            evaluate(calibration, samples, {}, batch_size=4, prompt=lambda each: each[0], summarise=summarise)


few = st.lists(st.fractions(0, 1, max_denominator=6), min_size=1, max_size=12)


@given(few, few)
def test_the_area_is_the_chance_that_a_cheat_looks_worse(
    honest: list[Fraction], cheat: list[Fraction]
) -> None:
    curve = roc(honest, cheat)
    wins = sum(Fraction((c > h) * 2 + (c == h), 2) for c in cheat for h in honest)
    assert curve.auc == wins / (len(honest) * len(cheat))
    trapezoids = sum(
        (b.honest_reject - a.honest_reject) * (a.cheat_reject + b.cheat_reject) / 2
        for a, b in zip(curve.points, curve.points[1:], strict=False)
    )
    assert trapezoids == curve.auc
    assert (curve.points[0].honest_reject, curve.points[-1].honest_reject) == (0, 1)
    for point in curve.points[1:]:
        assert point.threshold is not None
        assert point.honest_reject == Fraction(sum(h >= point.threshold for h in honest), len(honest))
        assert point.cheat_reject == Fraction(sum(c >= point.threshold for c in cheat), len(cheat))


def test_where_bigger_is_better_the_curve_is_mirrored() -> None:
    curve = roc([Fraction(9, 10), Fraction(8, 10)], [Fraction(8, 10), Fraction(1, 10)], bigger_is_better=True)
    assert curve.auc == Fraction(7, 8)
    assert [point.threshold for point in curve.points] == [None, *(Fraction(t, 10) for t in (1, 8, 9))]
    assert curve.points[2].honest_reject == Fraction(1, 2)
    with pytest.raises(BadInput, match="2 honest and 0 of a cheat"):
        roc([Fraction(1), Fraction(2)], [])
