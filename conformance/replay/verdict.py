"""Verdicts: what thresholds make of the metrics of a batch, and which metric decided.

All accept rules hold: PASS. Else any reject rule holds: REJECT. Else INCONCLUSIVE; so is a batch that is not
eligible (too few tokens or samples, no most-likely lists), whatever its metrics say. A metric that is
undefined satisfies no rule, so it never passes. Source of the order and of the tables: the document's lists
and the public code that they come from (see presets.toml, which names both).
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..errors import BadInput
from .summary import Convention, Summary

SHIPPED = Path(__file__).with_name("presets.toml")

LN2 = Fraction(6931471806, 10**10)  # rounded up
JS_SATURATION = Fraction(69, 100)  # unrelated models reach 0.69077 of ln 2 = 0.6931: above, nothing is told
DIFFERENCES = ("mean_abs", "p50_abs", "p90_abs", "p95_abs", "p99_abs", "max_abs")
SHARES = ("rank_delta_rate", "tie_aware_rank_delta_rate", "jaccard_mean", "jaccard_p05")
DIVERGENCES = ("js_mean", "js_p95", "js_p99")
RANGES: dict[str, tuple[Fraction, Fraction | None]] = {
    "missing": (Fraction(0), None),
    **dict.fromkeys(DIFFERENCES, (Fraction(0), None)),
    **dict.fromkeys(SHARES, (Fraction(0), Fraction(1))),
    **dict.fromkeys(DIVERGENCES, (Fraction(0), LN2)),
}
"""The metrics that rules may use, and what each can be."""
BIGGER_IS_BETTER = frozenset({"jaccard_mean", "jaccard_p05", "sample_accept_rate"})


class Relation(StrEnum):
    """Between a metric's value and a threshold."""

    AT_MOST = "<="
    BELOW = "<"
    AT_LEAST = ">="
    ABOVE = ">"

    @property
    def is_upper_bound(self) -> bool:
        """Whether small values satisfy it."""
        return self in (Relation.AT_MOST, Relation.BELOW)

    @property
    def is_strict(self) -> bool:
        """Whether the threshold itself does not satisfy it."""
        return self in (Relation.BELOW, Relation.ABOVE)


@dataclass(frozen=True)
class Rule:
    """`metric relation threshold`. ValueError for one that is always, or never, true: it could not decide."""

    metric: str
    relation: Relation
    threshold: Fraction

    def __post_init__(self) -> None:
        if self.metric not in RANGES:
            raise ValueError(f"{self.metric!r} is not a metric ({', '.join(RANGES)})")
        low, high = RANGES[self.metric]
        if self.metric in DIVERGENCES and self.threshold > JS_SATURATION:
            raise ValueError(
                f"{self}: the divergence of unrelated models saturates at ln 2 = 0.6931; "
                f"a threshold above {decimal(JS_SATURATION)} separates nothing"
            )
        at_high = self.holds(high) if high is not None else not self.relation.is_upper_bound
        if self.holds(low) == at_high:
            span = f"at least {decimal(low)}" if high is None else f"in [{decimal(low)}, {decimal(high)}]"
            raise ValueError(f"{self}: {'always' if at_high else 'never'} true of a value {span}")

    def __str__(self) -> str:
        return f"{self.metric} {self.relation} {decimal(self.threshold)}"

    @classmethod
    def parse(cls, text: str) -> Rule:
        """The rule that `text` writes, e.g. "mean_abs <= 0.015" or "js_p99 > 1/50". Raises ValueError."""
        parts = text.split()
        if len(parts) != 3:
            raise ValueError(f"{text!r} is not 'metric relation threshold'")
        metric, relation, threshold = parts
        if relation not in list(Relation):
            raise ValueError(f"{relation!r} in {text!r} is not one of {', '.join(Relation)}")
        try:
            number = Fraction(threshold)
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"{threshold!r} in {text!r} is not a number") from None
        return cls(metric, Relation(relation), number)

    def holds(self, value: Fraction | int | None) -> bool:
        """Whether the value satisfies the rule; an undefined one does not."""
        if value is None:
            return False
        match self.relation:
            case Relation.AT_MOST:
                return value <= self.threshold
            case Relation.BELOW:
                return value < self.threshold
            case Relation.AT_LEAST:
                return value >= self.threshold
            case Relation.ABOVE:
                return value > self.threshold

    def find(self, summary: Summary) -> Finding:
        """What the rule sees in a summary."""
        value: Fraction | int | None = getattr(summary, self.metric)
        exact = None if value is None else Fraction(value)
        return Finding(self.metric, exact, self.relation, self.threshold)

    def excludes(self, other: Rule) -> bool:
        """Whether no value satisfies both."""
        if self.relation.is_upper_bound == other.relation.is_upper_bound:
            return False
        upper, lower = (self, other) if self.relation.is_upper_bound else (other, self)
        if upper.threshold == lower.threshold:
            return upper.relation.is_strict or lower.relation.is_strict
        return upper.threshold < lower.threshold


@dataclass(frozen=True)
class Finding:
    """One metric against one threshold."""

    metric: str
    value: Fraction | None
    relation: Relation
    threshold: Fraction

    @property
    def margin(self) -> Fraction | None:
        """How far inside the relation the value is, in the metric's unit; negative where it is outside."""
        if self.value is None:
            return None
        distance = self.threshold - self.value
        return distance if self.relation.is_upper_bound else -distance

    @property
    def relative_margin(self) -> Fraction | None:
        """The margin as a share of what the threshold allows, which compares metrics of different size.

        What is allowed is the threshold's distance from a perfect match. Where that is 0, a match counts
        as 1 and a mismatch as minus its size.
        """
        if self.margin is None:
            return None
        allowed = 1 - self.threshold if self.metric in BIGGER_IS_BETTER else self.threshold
        if allowed:
            return self.margin / allowed
        return Fraction(1) if self.margin == 0 else self.margin

    def __str__(self) -> str:
        if self.value is None or self.margin is None:
            return f"{self.metric} is undefined, needs {self.relation} {decimal(self.threshold)}"
        inside = self.margin > 0 or (self.margin == 0 and not self.relation.is_strict)
        relation = self.relation if inside else _NEGATION[self.relation]
        amount = f"{relation} {decimal(self.threshold)} by {decimal(abs(self.margin))}"
        return f"{self.metric} = {decimal(self.value)} {amount}"


_NEGATION = {
    Relation.AT_MOST: Relation.ABOVE,
    Relation.BELOW: Relation.AT_LEAST,
    Relation.AT_LEAST: Relation.BELOW,
    Relation.ABOVE: Relation.AT_MOST,
}


@dataclass(frozen=True)
class Eligibility:
    """What there must be before a verdict; `tokens` counts positions where both sides spoke."""

    tokens: int = 0
    samples: int = 0
    topk: bool = False  # lists of most likely tokens, on both sides


@dataclass(frozen=True)
class SampleRules:
    """How single samples are judged, and what shares of them a passing batch needs."""

    accept: tuple[Rule, ...]
    reject: tuple[Rule, ...]
    tokens: int
    accept_rate: Fraction  # at least; of all samples, so one that is too short counts against it
    reject_rate: Fraction  # at most

    def __post_init__(self) -> None:
        _check_lists(self.accept, self.reject)
        for name, rate in (("accept_rate", self.accept_rate), ("reject_rate", self.reject_rate)):
            if not 0 <= rate <= 1:
                raise ValueError(f"{name} = {decimal(rate)} is not in [0, 1]")


@dataclass(frozen=True)
class Preset:
    """A named set of thresholds on metrics of one convention. ValueError for lists that contradict."""

    name: str
    convention: Convention
    accept: tuple[Rule, ...]
    reject: tuple[Rule, ...]
    eligibility: Eligibility = Eligibility()
    sample: SampleRules | None = None
    source: str = ""
    derived_from: frozenset[str] = frozenset()  # digests of prompts that this preset may not judge

    def __post_init__(self) -> None:
        _check_lists(self.accept, self.reject)

    def under(self, convention: Convention) -> Preset:
        """The same thresholds on the other convention's metrics, named so that no report confuses them."""
        if convention is self.convention:
            return self
        return replace(self, name=f"{self.name} ({convention})", convention=convention)

    def to_toml(self) -> str:
        """The preset as `load_presets` reads it."""

        def rules(title: str, some: Sequence[Rule]) -> list[str]:
            return [
                f"{title} = [",
                *(f'    "{r.metric} {r.relation} {_exact(r.threshold)}",' for r in some),
                "]",
            ]

        name = json.dumps(self.name)  # a JSON string is a TOML string
        lines = [f"[{name}]", f"source = {json.dumps(self.source)}", f'convention = "{self.convention}"']
        lines += rules("accept", self.accept) + rules("reject", self.reject)
        if self.derived_from:
            lines += ["derived_from = [", *(f'    "{prompt}",' for prompt in sorted(self.derived_from)), "]"]
        lines += [f"[{name}.eligibility]", f"tokens = {self.eligibility.tokens}"]
        lines += [f"samples = {self.eligibility.samples}", f"topk = {str(self.eligibility.topk).lower()}"]
        if self.sample is not None:
            lines += [f"[{name}.sample]", f"tokens = {self.sample.tokens}"]
            lines += [
                f'accept_rate = "{_exact(self.sample.accept_rate)}"',
                f'reject_rate = "{_exact(self.sample.reject_rate)}"',
            ]
            lines += rules("accept", self.sample.accept) + rules("reject", self.sample.reject)
        return "\n".join(lines) + "\n"


def _check_lists(accept: Sequence[Rule], reject: Sequence[Rule]) -> None:
    for title, rules in (("accept", accept), ("reject", reject)):
        if not rules:
            raise ValueError(f"{title} has no rule")
        metrics = [rule.metric for rule in rules]
        for metric in metrics:
            if metrics.count(metric) > 1:
                raise ValueError(f"{title} has two rules on {metric}")
    for rule in accept:
        for other in reject:
            if rule.metric == other.metric and not rule.excludes(other):
                raise ValueError(f"accept '{rule}' and reject '{other}' can both hold")


class Outcome(StrEnum):
    """What is said of a batch."""

    PASS = "PASS"
    REJECT = "REJECT"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True)
class Verdict:
    """An outcome and what it rests on.

    decided_by: PASS: all accept rules, the one nearest to failing first. REJECT: the reject rules that hold,
    the furthest first. INCONCLUSIVE: the accept rules that fail, the furthest first, where the batch is
    eligible; else nothing, and `reasons` say why.
    """

    outcome: Outcome
    preset: str
    convention: Convention
    decided_by: tuple[Finding, ...]
    reasons: tuple[str, ...] = ()


def judge(summary: Summary, per_sample: Sequence[Summary], preset: Preset) -> Verdict:
    """The verdict on a batch: `summary` of all its tokens pooled, `per_sample` of each sample by itself.

    A batch that is not eligible is never rejected (the public code rejects it where a reject rule holds): its
    few tokens prove neither. Raises ValueError where a summary is of another convention than the preset, or
    samples are missing from `per_sample` although the preset judges them.
    """
    for each in (summary, *per_sample):
        if each.convention is not preset.convention:
            raise ValueError(
                f"preset {preset.name} judges {preset.convention} metrics; the summary is {each.convention}"
            )
    if (per_sample or preset.sample) and len(per_sample) != summary.samples:
        raise ValueError(f"{len(per_sample)} summaries of single samples for a batch of {summary.samples}")
    ineligible = _ineligible(summary, preset.eligibility)
    if ineligible:
        return Verdict(Outcome.INCONCLUSIVE, preset.name, preset.convention, (), ineligible)
    rates = _sample_rates(per_sample, preset.sample) if preset.sample else []
    return _decide(summary, preset.accept, preset.reject, rates, preset.name)


def judge_sample(summary: Summary, preset: Preset) -> Verdict:
    """The verdict on one sample by the preset's table for single samples. ValueError where it has none."""
    if preset.sample is None:
        raise ValueError(f"preset {preset.name} has no table for single samples")
    if summary.convention is not preset.convention:
        raise ValueError(
            f"preset {preset.name} judges {preset.convention} metrics; the summary is {summary.convention}"
        )
    return _judge_sample(summary, preset.sample, f"{preset.name}, single sample")


def _judge_sample(summary: Summary, rules: SampleRules, name: str) -> Verdict:
    ineligible = _ineligible(summary, Eligibility(tokens=rules.tokens))
    if ineligible:
        return Verdict(Outcome.INCONCLUSIVE, name, summary.convention, (), ineligible)
    return _decide(summary, rules.accept, rules.reject, [], name)


def _sample_rates(per_sample: Sequence[Summary], rules: SampleRules) -> list[Finding]:
    outcomes = [_judge_sample(sample, rules, "").outcome for sample in per_sample]

    def share(outcome: Outcome) -> Fraction | None:
        return Fraction(outcomes.count(outcome), len(outcomes)) if outcomes else None

    return [
        Finding("sample_accept_rate", share(Outcome.PASS), Relation.AT_LEAST, rules.accept_rate),
        Finding("sample_reject_rate", share(Outcome.REJECT), Relation.AT_MOST, rules.reject_rate),
    ]


def _ineligible(summary: Summary, needs: Eligibility) -> tuple[str, ...]:
    reasons = []
    spoken = summary.tokens - summary.missing
    if spoken < needs.tokens:
        reasons.append(f"{spoken} tokens, needs {needs.tokens}")
    if summary.samples < needs.samples:
        reasons.append(f"{summary.samples} samples, needs {needs.samples}")
    if needs.topk and (summary.jaccard_mean is None or summary.js_p99 is None):
        reasons.append("no lists of most likely tokens to compare")
    return tuple(f"not eligible: {reason}" for reason in reasons)


def _decide(
    summary: Summary, accept: Sequence[Rule], reject: Sequence[Rule], rates: list[Finding], name: str
) -> Verdict:
    failing = [rule.find(summary) for rule in accept if not rule.holds(getattr(summary, rule.metric))]
    failing += [rate for rate in rates if rate.margin is None or rate.margin < 0]
    hits = [rule.find(summary) for rule in reject if rule.holds(getattr(summary, rule.metric))]
    if not failing:
        findings = [*(rule.find(summary) for rule in accept), *rates]
        return Verdict(Outcome.PASS, name, summary.convention, tuple(sorted(findings, key=_tightness)))
    if hits:
        furthest = tuple(sorted(hits, key=_tightness, reverse=True))
        return Verdict(Outcome.REJECT, name, summary.convention, furthest)
    return Verdict(Outcome.INCONCLUSIVE, name, summary.convention, tuple(sorted(failing, key=_tightness)))


def _tightness(finding: Finding) -> tuple[bool, Fraction]:
    """Sorts undefined values first, then by relative margin."""
    return finding.value is not None, finding.relative_margin or Fraction(0)


def explain(verdict: Verdict) -> str:
    """The verdict in one line: outcome, preset, what decided and by how much."""
    head = f"{verdict.outcome} ({verdict.preset}, {verdict.convention} metrics)"
    if not verdict.decided_by:
        return f"{head}: {'; '.join(verdict.reasons)}"
    first, *others = verdict.decided_by
    match verdict.outcome:
        case Outcome.PASS:
            return f"{head}: all {len(verdict.decided_by)} accept rules hold; the nearest to failing: {first}"
        case Outcome.REJECT:
            words = f"{head}: {first}"
        case Outcome.INCONCLUSIVE:
            words = f"{head}: no reject rule holds, but {first}"
    return words + (f"; also {'; '.join(map(str, others))}" if others else "")


def decimal(value: Fraction) -> str:
    """The value to 6 significant digits, marked where that is not all of it."""
    short = f"{float(value):.6g}"
    return short if Fraction(short) == value else f"{short}…"


def _exact(value: Fraction) -> str:
    """The value in full: as a decimal where six digits hold it, else as a fraction."""
    short = decimal(value)
    return str(value) if short.endswith("…") else short


def load_presets(path: Path = SHIPPED) -> dict[str, Preset]:
    """The presets of a TOML file by name; presets.toml in this folder shows and explains the form.

    Raises BadInput naming the file and the key.
    """
    try:
        tables = tomllib.loads(path.read_text("utf-8"), parse_float=str)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: {error.strerror if isinstance(error, OSError) else error}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"{path}: {error}") from None
    if not tables:
        raise BadInput(f"{path}: no preset")
    return {name: _Table(path, name, table).preset() for name, table in tables.items()}


class _Table:
    """One table of the file, read key by key."""

    def __init__(self, path: Path, key: str, table: object) -> None:
        self.path, self.key = path, key
        if not isinstance(table, Mapping):
            raise self.bad("", f"{table!r} is not a table")
        self.table: Mapping[str, Any] = table

    def bad(self, key: str, problem: object) -> BadInput:
        return BadInput(f"{self.path}: {'.'.join(filter(None, (self.key, key)))}: {problem}")

    def preset(self) -> Preset:
        self.only("source", "convention", "accept", "reject", "eligibility", "sample", "derived_from")
        text = self.get("convention", str, "a string")
        if text not in list(Convention):
            raise self.bad("convention", f"{text!r} is not one of {', '.join(Convention)}")
        parts = {name: self.inner(name) for name in ("eligibility", "sample")}
        try:
            return Preset(
                name=self.key,
                convention=Convention(text),
                accept=self.rules("accept"),
                reject=self.rules("reject"),
                eligibility=parts["eligibility"].eligibility() if parts["eligibility"] else Eligibility(),
                sample=parts["sample"].sample() if parts["sample"] else None,
                source=self.get("source", str, "a string", ""),
                derived_from=frozenset(self.strings("derived_from", [])),
            )
        except BadInput:
            raise
        except ValueError as error:
            raise self.bad("", error) from None

    def eligibility(self) -> Eligibility:
        self.only("tokens", "samples", "topk")
        return Eligibility(
            self.count("tokens"), self.count("samples"), self.get("topk", bool, "true or false", False)
        )

    def sample(self) -> SampleRules:
        self.only("tokens", "accept", "reject", "accept_rate", "reject_rate")
        rates = [self.number(name) for name in ("accept_rate", "reject_rate")]
        try:
            return SampleRules(self.rules("accept"), self.rules("reject"), self.count("tokens"), *rates)
        except BadInput:
            raise
        except ValueError as error:
            raise self.bad("", error) from None

    def inner(self, key: str) -> _Table | None:
        return _Table(self.path, f"{self.key}.{key}", self.table[key]) if key in self.table else None

    def only(self, *known: str) -> None:
        for key in self.table:
            if key not in known:
                raise self.bad(key, f"unknown key; there are {', '.join(known)}")

    def get(self, key: str, kind: type | tuple[type, ...], what: str, default: Any = None) -> Any:
        value = self.table.get(key, default)
        if value is None:
            raise self.bad(key, "missing")
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.bad(key, f"{value!r} is not {what}")
        return value

    def count(self, key: str) -> int:
        value: int = self.get(key, int, "a whole number", 0)
        if value < 0:
            raise self.bad(key, f"{value} is negative")
        return value

    def number(self, key: str) -> Fraction:
        value = self.get(key, (str, int), "a number")
        try:
            return Fraction(value)
        except (ValueError, ZeroDivisionError):
            raise self.bad(key, f"{value!r} is not a number") from None

    def strings(self, key: str, default: list[str] | None = None) -> list[str]:
        texts: list[str] = self.get(key, list, "a list", default)
        for place, text in enumerate(texts):
            if not isinstance(text, str):
                raise self.bad(f"{key}[{place}]", f"{text!r} is not a string")
        return texts

    def rules(self, key: str) -> tuple[Rule, ...]:
        rules = []
        for place, text in enumerate(self.strings(key)):
            try:
                rules.append(Rule.parse(text))
            except ValueError as error:
                raise self.bad(f"{key}[{place}]", error) from None
        return tuple(rules)
