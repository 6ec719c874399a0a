"""Verdicts: the tables' own numbers, the order of the outcomes, what decided, what presets are refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from pathlib import Path

import pytest
from certhead.conformance.errors import BadInput
from certhead.conformance.replay.summary import Convention, Summary
from certhead.conformance.replay.verdict import (
    RANGES,
    Finding,
    Outcome,
    Preset,
    Relation,
    Rule,
    decimal,
    explain,
    judge,
    judge_sample,
    load_presets,
)
from hypothesis import given
from hypothesis import strategies as st
from replay_summaries import summary

PRESETS = load_presets()
DOCUMENT = PRESETS["document-bf16"]
FULL = PRESETS["qwen3-8b-bf16-4090-v1"]
TINY = Fraction(1, 10**9)

DOCUMENT_LISTS = """
mean_abs <= 0.015        mean_abs > 0.020
p95_abs <= 0.090         p95_abs > 0.120
p99_abs <= 0.200         p99_abs > 0.250
rank_delta_rate <= 0.012 rank_delta_rate > 0.030
jaccard_mean >= 0.940    jaccard_mean < 0.920
js_p99 <= 0.012          js_p99 > 0.020
"""


def outcome_of(batch: Summary, preset: Preset = DOCUMENT, **single: object) -> Outcome:
    return judge(batch, samples_of(batch, **single), preset).outcome


def samples_of(batch: Summary, **changes: object) -> list[Summary]:
    return [summary(samples=1, tokens=128, **changes)] * batch.samples


def test_the_documents_lists_are_the_preset() -> None:
    words = DOCUMENT_LISTS.split()
    rules = [Rule.parse(" ".join(words[at : at + 3])) for at in range(0, len(words), 3)]
    assert list(DOCUMENT.accept) == rules[::2]
    assert list(DOCUMENT.reject) == rules[1::2]
    assert DOCUMENT.convention is Convention.RESEARCH


def test_every_number_of_a_summary_but_its_size_may_be_ruled_on() -> None:
    names = {each.name for each in fields(Summary)}
    assert set(RANGES) == names - {"convention", "samples", "tokens"}


def test_parsing_a_rule_reads_what_it_prints() -> None:
    rule = Rule.parse("js_p99 > 1/50")
    assert rule == Rule("js_p99", Relation.ABOVE, Fraction(1, 50))
    assert str(rule) == "js_p99 > 0.02"


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
@pytest.mark.parametrize("metric", RANGES)
def test_each_threshold_decides_at_its_own_place(preset: Preset, metric: str) -> None:
    """The threshold itself passes, a hair beyond does not; a hair beyond the reject threshold rejects."""
    accept = {rule.metric: rule for rule in preset.accept}.get(metric)
    reject = {rule.metric: rule for rule in preset.reject}.get(metric)
    if accept is None:
        assert reject is None  # every reject threshold has its accept threshold
        return
    beyond = 1 if metric == "missing" else TINY if accept.relation.is_upper_bound else -TINY
    at = int(accept.threshold) if metric == "missing" else accept.threshold
    assert outcome_of(summary(**{metric: at}), preset) is Outcome.PASS
    past = outcome_of(summary(**{metric: at + beyond}), preset)
    if reject is None:
        assert past is Outcome.INCONCLUSIVE
        return
    assert past is (Outcome.REJECT if reject.threshold == accept.threshold else Outcome.INCONCLUSIVE)
    at = int(reject.threshold) if metric == "missing" else reject.threshold
    assert outcome_of(summary(**{metric: at + beyond}), preset) is Outcome.REJECT
    if metric != "missing":
        assert outcome_of(summary(**{metric: at}), preset) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("metric", [rule.metric for rule in FULL.accept if rule.metric != "missing"])
def test_an_undefined_metric_never_passes(metric: str) -> None:
    verdict = judge(batch := summary(**{metric: None}), samples_of(batch), FULL)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "undefined" in explain(verdict) or "no lists" in explain(verdict)


def test_one_reject_rule_is_enough_and_the_furthest_is_named_first() -> None:
    batch = summary(mean_abs="0.021", p99_abs="2.5", jaccard_mean="0.9")
    verdict = judge(batch, [], DOCUMENT)
    assert verdict.outcome is Outcome.REJECT
    assert [finding.metric for finding in verdict.decided_by] == ["p99_abs", "jaccard_mean", "mean_abs"]
    assert verdict.decided_by[0].margin == Fraction("2.25")
    assert explain(verdict) == (
        "REJECT (document-bf16, research metrics): p99_abs = 2.5 > 0.25 by 2.25; "
        "also jaccard_mean = 0.9 < 0.92 by 0.02; mean_abs = 0.021 > 0.02 by 0.001"
    )


def test_a_pass_names_what_came_nearest_to_failing() -> None:
    verdict = judge(summary(p95_abs="0.0899"), [], DOCUMENT)
    assert explain(verdict) == (
        "PASS (document-bf16, research metrics): all 6 accept rules hold; "
        "the nearest to failing: p95_abs = 0.0899 <= 0.09 by 0.0001"
    )
    # 0.001 below a perfect match's distance of 0.06 is nearer than 0.005 of 0.09
    assert (
        judge(summary(p95_abs="0.085", jaccard_mean="0.941"), [], DOCUMENT).decided_by[0].metric
        == "jaccard_mean"
    )


def test_between_the_lists_is_inconclusive_and_says_why() -> None:
    verdict = judge(summary(rank_delta_rate="0.02"), [], DOCUMENT)
    assert explain(verdict) == (
        "INCONCLUSIVE (document-bf16, research metrics): no reject rule holds, but "
        "rank_delta_rate = 0.02 > 0.012 by 0.008"
    )


def test_what_is_undefined_is_named_before_what_fails() -> None:
    verdict = judge(summary(mean_abs="0.016", p95_abs=None), [], DOCUMENT)
    assert [finding.metric for finding in verdict.decided_by] == ["p95_abs", "mean_abs"]


def test_all_accept_rules_win_over_the_order_of_the_lists() -> None:
    """Accept and reject on different metrics can both hold; then it is a PASS."""
    preset = Preset(
        "p", Convention.RESEARCH, (Rule.parse("mean_abs <= 0.1"),), (Rule.parse("p99_abs > 0.01"),)
    )
    assert outcome_of(summary(), preset) is Outcome.PASS
    assert outcome_of(summary(mean_abs="0.11"), preset) is Outcome.REJECT
    assert outcome_of(summary(mean_abs="0.11", p99_abs="0.01"), preset) is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tokens": 511}, "511 tokens, needs 512"),
        ({"tokens": 520, "missing": 9}, "511 tokens, needs 512"),
        ({"samples": 3}, "3 samples, needs 4"),
        ({"jaccard_mean": None, "js_p99": None}, "no lists of most likely tokens"),
    ],
)
def test_ineligible_is_inconclusive_even_where_a_reject_rule_holds(
    changes: dict[str, object], reason: str
) -> None:
    batch = summary(mean_abs="3", **changes)
    verdict = judge(batch, samples_of(batch), FULL)
    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert reason in explain(verdict)
    assert outcome_of(summary(mean_abs="3"), FULL) is Outcome.REJECT


def test_eligibility_at_its_limits_passes() -> None:
    assert outcome_of(summary(tokens=512, samples=4), FULL) is Outcome.PASS


def test_the_shares_of_single_samples_stand_between_a_batch_and_its_pass() -> None:
    batch = summary(samples=100)
    good, bad = summary(samples=1, tokens=128), summary(samples=1, tokens=128, mean_abs="0.031")
    between, short = summary(samples=1, tokens=128, mean_abs="0.025"), summary(samples=1, tokens=63)
    for others, expected in (
        ([bad] * 2, Outcome.PASS),
        ([bad] * 3, Outcome.INCONCLUSIVE),
        ([between] * 10, Outcome.PASS),
        ([between] * 11, Outcome.INCONCLUSIVE),
        ([short] * 11, Outcome.INCONCLUSIVE),
    ):
        verdict = judge(batch, [good] * (100 - len(others)) + others, FULL)
        assert verdict.outcome is expected, explain(verdict)
    verdict = judge(batch, [good] * 97 + [bad] * 3, FULL)
    assert [f.metric for f in verdict.decided_by] == ["sample_reject_rate"]
    assert "sample_reject_rate = 0.03 > 0.02 by 0.01" in explain(verdict)


def test_the_single_sample_table() -> None:
    assert FULL.sample is not None
    assert judge_sample(summary(samples=1, tokens=64, mean_abs="0.02"), FULL).outcome is Outcome.PASS
    assert judge_sample(summary(samples=1, tokens=64, mean_abs="0.03"), FULL).outcome is Outcome.INCONCLUSIVE
    assert judge_sample(summary(samples=1, tokens=64, mean_abs="0.0301"), FULL).outcome is Outcome.REJECT
    short = judge_sample(summary(samples=1, tokens=63, mean_abs="1"), FULL)
    assert explain(short).endswith("single sample, research metrics): not eligible: 63 tokens, needs 64")
    with pytest.raises(ValueError, match="no table for single samples"):
        judge_sample(summary(samples=1), DOCUMENT)


def test_metrics_of_the_other_convention_are_refused() -> None:
    other = summary(convention=Convention.PROTOCOL)
    with pytest.raises(ValueError, match="judges research metrics; the summary is protocol"):
        judge(other, [], DOCUMENT)
    with pytest.raises(ValueError, match="judges research metrics"):
        judge_sample(other, FULL)
    verdict = judge(other, [], DOCUMENT.under(Convention.PROTOCOL))
    assert "document-bf16 (protocol), protocol metrics" in explain(verdict)
    assert DOCUMENT.under(Convention.RESEARCH) is DOCUMENT


def test_forgotten_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="7 summaries of single samples for a batch of 8"):
        judge(summary(), samples_of(summary(samples=7)), FULL)
    with pytest.raises(ValueError, match="0 summaries"):
        judge(summary(), [], FULL)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("js_p99 <= 0.691", "saturates"),
        ("js_p95 > 0.7", "saturates"),
        ("js_mean >= 0", "always"),
        ("jaccard_mean >= 0", "always"),
        ("jaccard_p05 < 0", "never"),
        ("rank_delta_rate > 1", "never"),
        ("rank_delta_rate <= 1", "always"),
        ("mean_abs <= -0.1", "never"),
        ("mean_abs >= 0", "always"),
        ("mean_abs < 0", "never"),
        ("mean <= 0.1", "'mean' is not a metric"),
        ("tokens >= 4", "'tokens' is not a metric"),
        ("mean_abs == 0.1", "'==' in"),
        ("mean_abs <= nan", "'nan' in"),
        ("mean_abs <= 1/0", "'1/0' in"),
        ("mean_abs<=0.1", "is not 'metric relation threshold'"),
    ],
)
def test_rules_that_cannot_decide_are_refused(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Rule.parse(text)


def test_saturation_itself_is_a_threshold_and_zero_missing_too() -> None:
    assert Rule.parse("js_p99 <= 0.69").threshold == Fraction(69, 100)
    assert Rule.parse("missing <= 0").holds(0)
    assert not Rule.parse("missing <= 0").holds(1)


values = st.fractions(0, 1, max_denominator=50)


@given(st.sampled_from(list(Relation)), values, st.sampled_from(list(Relation)), values, st.lists(values))
def test_lists_that_exclude_each_other_never_both_hold(
    one: Relation, at: Fraction, other: Relation, also_at: Fraction, tried: list[Fraction]
) -> None:
    try:
        first, second = Rule("mean_abs", one, at), Rule("mean_abs", other, also_at)
    except ValueError:
        return
    some = [*tried, at, also_at, (at + also_at) / 2, Fraction(0), Fraction(2)]
    both = any(first.holds(value) and second.holds(value) for value in some)
    assert first.excludes(second) is not both


@given(st.sampled_from(list(Relation)), values, st.none() | values)
def test_the_margin_has_the_sign_of_the_rule(
    relation: Relation, threshold: Fraction, value: Fraction | None
) -> None:
    finding = Finding("mean_abs", value, relation, threshold)
    if value is None:
        assert finding.margin is None
        assert finding.relative_margin is None
    elif value != threshold:
        assert finding.margin is not None
        assert (finding.margin > 0) is eval(f"value {relation} threshold")
        assert abs(finding.margin) == abs(value - threshold)


@pytest.mark.parametrize(
    ("accept", "reject", "problem"),
    [
        ([], ["mean_abs > 0.1"], "accept has no rule"),
        (["mean_abs <= 0.1"], [], "reject has no rule"),
        (["mean_abs <= 0.1", "mean_abs <= 0.2"], ["mean_abs > 0.3"], "two rules on mean_abs"),
        (["mean_abs <= 0.1"], ["mean_abs > 0.05"], "can both hold"),
        (["mean_abs <= 0.1"], ["mean_abs >= 0.1"], "can both hold"),
    ],
)
def test_lists_that_contradict_are_refused(accept: list[str], reject: list[str], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Preset("p", Convention.RESEARCH, tuple(map(Rule.parse, accept)), tuple(map(Rule.parse, reject)))


LISTS = 'accept = ["mean_abs <= 0.1"]\nreject = ["mean_abs > 0.1"]\n'
GOOD = '[mine]\nconvention = "protocol"\n' + LISTS


def test_a_users_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    assert load_presets(path)["mine"].accept == (Rule("mean_abs", Relation.AT_MOST, Fraction(1, 10)),)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=list(PRESETS))
def test_what_is_written_is_read_back(preset: Preset, tmp_path: Path) -> None:
    odd = Rule("max_abs", Relation.AT_MOST, Fraction(22, 7))
    preset = Preset(
        'a "name"',
        preset.convention,
        (*preset.accept, odd),
        preset.reject,
        preset.eligibility,
        preset.sample,
        derived_from=frozenset({"0a", "1b"}),
    )
    path = tmp_path / "written.toml"
    path.write_text(preset.to_toml())
    assert load_presets(path) == {preset.name: preset}


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda s: "", "mine.toml: no preset"),
        (lambda s: "[mine", "mine.toml: Expected"),
        (lambda s: "mine = 3", "mine.toml: mine: 3 is not a table"),
        (
            lambda s: s.replace("protocol", "mixed"),
            "mine.convention: 'mixed' is not one of research, protocol",
        ),
        (lambda s: s.replace("convention", "conventoin"), "mine.conventoin: unknown key"),
        (lambda s: "[mine]\n" + LISTS, "mine.convention: missing"),
        (
            lambda s: s.replace("mean_abs <= 0.1", "js_p99 <= 0.7"),
            r"mine.accept\[0\]: js_p99 <= 0.7: .*saturates",
        ),
        (lambda s: s.replace('"mean_abs > 0.1"', "7"), r"mine.reject\[0\]: 7 is not a string"),
        (lambda s: s.replace('["mean_abs > 0.1"]', "7"), "mine.reject: 7 is not a list"),
        (lambda s: s.replace("> 0.1", "> 0.05"), "mine: accept .* can both hold"),
        (lambda s: s + "eligibility = 1", "mine.eligibility: 1 is not a table"),
        (lambda s: s + "[mine.eligibility]\ntokens = -1", "mine.eligibility.tokens: -1 is negative"),
        (
            lambda s: s + "[mine.eligibility]\ntokens = true",
            "mine.eligibility.tokens: True is not a whole number",
        ),
        (lambda s: s + "[mine.sample]\n" + LISTS, "mine.sample.accept_rate: missing"),
        (
            lambda s: s + "[mine.sample]\naccept_rate = 1.5\nreject_rate = 0.1\n" + LISTS,
            r"mine.sample: accept_rate = 1.5 is not in \[0, 1\]",
        ),
    ],
)
def test_bad_files_name_the_file_and_the_key(
    edit: Callable[[str], str], problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(edit(GOOD))
    with pytest.raises(BadInput, match=problem) as caught:
        load_presets(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"nowhere\.toml: No such file"):
        load_presets(tmp_path / "nowhere.toml")


def test_decimals_say_where_they_are_cut() -> None:
    assert decimal(Fraction(1, 8)) == "0.125"
    assert decimal(Fraction(1, 3)) == "0.333333…"
