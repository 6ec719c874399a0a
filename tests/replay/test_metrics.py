"""Replay metrics: hand-computed fixtures of both conventions, the fast version against the specification, and
oracles for the divergence.

Every fixture runs on the specification and on the fast version. `MUTANTS` are one-line mistakes that a reader
would make; each must fail a fixture, so the fixtures can tell the two conventions apart everywhere.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import mpmath
import numpy as np
import pytest
from certhead.conformance.errors import BadInput
from certhead.conformance.replay import bench_metrics, column, divergence, metrics
from certhead.conformance.replay.summary import Convention, Summary
from certhead.conformance.replay.trace import NO_TOKEN, Trace
from certhead.pyref import replay_metrics as spec
from hypothesis import given, settings
from hypothesis import strategies as st

RESEARCH, PROTOCOL = Convention.RESEARCH, Convention.PROTOCOL
NAN = math.nan
Row = tuple[int, float, int, Sequence[tuple[int, float]]]
"""token, logprob, rank, entries"""


def trace(rows: Sequence[Row], width: int | None = None) -> Trace:
    """A trace of `width` columns, or as many as the longest list has."""
    k = max([len(entries) for *_, entries in rows], default=0) if width is None else width
    ids = np.full((len(rows), k), NO_TOKEN, np.int64)
    logprobs = np.full((len(rows), k), np.nan)
    for i, (*_, entries) in enumerate(rows):
        for j, (token, logprob) in enumerate(entries):
            ids[i, j], logprobs[i, j] = token, logprob
    return Trace(
        token_ids=np.array([row[0] for row in rows], np.int64),
        logprobs=np.array([row[1] for row in rows], np.float64),
        ranks=np.array([row[2] for row in rows], np.int32),
        top_ids=ids,
        top_logprobs=logprobs,
        top_ranks=np.zeros((len(rows), k), np.int32),
    )


def sides(trace: Trace, specification: ModuleType = spec) -> list[spec.Side]:
    """A trace as the specification takes it."""

    def exact(logprob: float) -> Fraction | None:
        return Fraction(logprob) if math.isfinite(logprob) else None

    return [
        specification.Side(
            int(trace.token_ids[i]),
            exact(float(trace.logprobs[i])),
            int(trace.ranks[i]),
            tuple(
                (int(token), exact(float(logprob)))
                for token, logprob in zip(trace.top_ids[i], trace.top_logprobs[i], strict=True)
                if token != NO_TOKEN
            ),
        )
        for i in range(len(trace))
    ]


def specified(
    worker: Trace, verifier: Trace, convention: Convention, topk: int, specification: ModuleType = spec
) -> tuple[list[spec.Position], spec.Metrics]:
    pairs = list(zip(sides(worker, specification), sides(verifier, specification), strict=True))
    if convention is RESEARCH:
        positions = [specification.research_position(w, v) for w, v in pairs]
        return positions, specification.research_metrics(specification.collect(positions))
    positions = [specification.protocol_position(w, v, topk) for w, v in pairs]
    return positions, specification.protocol_metrics(specification.collect(positions))


def fast(
    worker: Trace, verifier: Trace, convention: Convention, topk: int, module: ModuleType = metrics
) -> Summary:
    accumulator = module.Accumulator(convention)
    accumulator.add(module.compare(worker, verifier, convention, topk))
    summary: Summary = accumulator.summary()
    return summary


@dataclass(frozen=True)
class Fixture:
    """Two traces and some metrics of theirs, computed by hand; decimal strings and fractions are exact."""

    name: str
    worker: Sequence[Row]
    verifier: Sequence[Row]
    topk: int
    research: dict[str, str | None]
    protocol: dict[str, str | None]

    def failures(self, judge: Callable[[Trace, Trace, Convention, int], object]) -> list[str]:
        wrong = []
        for convention, expected in ((RESEARCH, self.research), (PROTOCOL, self.protocol)):
            got = judge(trace(self.worker), trace(self.verifier), convention, self.topk)
            for name, value in expected.items():
                want = None if value is None else Fraction(value)
                if getattr(got, name) != want:
                    wrong.append(f"{self.name} {convention} {name}: {getattr(got, name)}, not {value}")
        return wrong


SAME = [(1, -1.0), (2, -1.0)]  # two entries of one logprob: both have probability ½
NOTHING = dict.fromkeys(
    [
        field.name
        for field in fields(Summary)
        if field.name not in ("convention", "samples", "tokens", "missing")
    ]
)
WORST = {
    name: "1"
    if name.startswith(("js", "rank", "tie"))
    else "0"
    if name.startswith("jaccard")
    else "4294.967295"
    for name in NOTHING
}

FIXTURES = [
    # Differences 0, 1/8, 1/4, 3/4, 2, which FP64 and 10^-6 both hold. Σ = 25/8, n = 5, mean 5/8.
    # Linear: p50 at 4·0.50 = 2 -> 1/4. p90 at 3.6 -> 3/4 + 0.6·5/4 = 3/2. p95 at 3.8 -> 3/4 + 0.8·5/4 = 7/4.
    #         p99 at 3.96 -> 3/4 + 0.96·5/4 = 39/20.
    # Nearest rank: ⌈2.5⌉ = 3rd -> 1/4; ⌈4.5⌉, ⌈4.75⌉, ⌈4.95⌉ = 5th -> 2.
    Fixture(
        "quantiles of five",
        [(1, x, 1, SAME) for x in (-0.5, -1.0, -2.0, -0.25, -4.0)],
        [(1, x, 1, SAME) for x in (-0.5, -1.125, -1.75, -1.0, -2.0)],
        2,
        {
            "tokens": "5",
            "missing": "0",
            "mean_abs": "5/8",
            "p50_abs": "1/4",
            "p90_abs": "3/2",
            "p95_abs": "7/4",
            "p99_abs": "39/20",
            "max_abs": "2",
            "jaccard_mean": "1",
            "js_mean": "0",
        },
        {
            "tokens": "5",
            "missing": "0",
            "mean_abs": "5/8",
            "p50_abs": "1/4",
            "p90_abs": "2",
            "p95_abs": "2",
            "p99_abs": "2",
            "max_abs": "2",
            "jaccard_p05": "1",
            "js_p99": "0",
        },
    ),
    # n = 64, differences 0/4, 1/4, ..., 63/4. Nearest-rank p99: ⌈63.36⌉ = 64th, the maximum 63/4; p95:
    # ⌈60.8⌉ = 61st, 60/4. Linear: 63·0.99 = 62.37 -> 62.37/4 = 15.5925; 63·0.95 = 59.85 -> 14.9625.
    # The mean of both is (63·64/2)/64/4 = 63/8.
    Fixture(
        "p99 of 64 is the maximum",
        [(1, 0.0, 1, SAME)] * 64,
        [(1, -i / 4, 1, SAME) for i in range(64)],
        2,
        {"p99_abs": "15.5925", "p95_abs": "14.9625", "max_abs": "63/4", "mean_abs": "63/8"},
        {"p99_abs": "63/4", "p95_abs": "15", "max_abs": "63/4", "mean_abs": "63/8"},
    ),
    # 5·10^-7·10^6 is 0.5 in FP64: half away gives 1 unit a position, half even none. 25·10^-7 -> 2.5 -> 3.
    # 0.4 and 0.6 units apart by 0.2 of a unit are 0 and 1: rounded before subtracting. 0, 1, 1, 3: mean
    # 1.25 -> 1; p50: 2nd -> 1.
    Fixture(
        "half away, before subtracting",
        [(1, x, 1, SAME) for x in (0.0, 0.0, -4e-7, -0.0)],
        [(1, x, 1, SAME) for x in (0.0, -5e-7, -6e-7, -25e-7)],
        2,
        {"p50_abs": str((Fraction(5e-7) + Fraction(6e-7 - 4e-7)) / 2), "max_abs": str(Fraction(25e-7))},
        {"mean_abs": "0.000001", "p50_abs": "0.000001", "max_abs": "0.000003"},
    ),
    # The mean of 0 and 1 unit is half a unit: up, to 1 (to even it would be 0). vLLM clamps at -9999:
    # 9999·10^6 units saturate at 2^32 - 1; the mean is (2^32 - 1 + 0 + 0)/3 = 1431655765.
    Fixture(
        "means half up",
        [(1, 0.0, 1, SAME)] * 2,
        [(1, 0.0, 1, SAME), (1, -1e-6, 1, SAME)],
        2,
        {"mean_abs": str(Fraction(1e-6) / 2)},
        {"mean_abs": "0.000001", "p50_abs": "0", "max_abs": "0.000001"},
    ),
    Fixture(
        "saturation",
        [(1, 0.0, 1, SAME)] * 3,
        [(1, 0.0, 1, SAME), (1, -9999.0, 1, SAME), (1, 0.0, 1, SAME)],
        2,
        {"max_abs": "9999", "mean_abs": "3333"},
        {"max_abs": "4294.967295", "mean_abs": "1431.655765"},
    ),
    # Ranks (worker, verifier) with two required: (1, 1), (1, 2), (3, 500), (0, 3), (0, 1). Research compares
    # the first three: 2 of 3 differ. Protocol: 1=1, 1≠2, outside=outside, outside=outside, outside≠1: 2 of 5.
    Fixture(
        "ranks",
        [(9, -5.0, rank, SAME) for rank in (1, 1, 3, 0, 0)],
        [(9, -5.0, rank, SAME) for rank in (1, 2, 500, 3, 1)],
        2,
        {"rank_delta_rate": "2/3", "tie_aware_rank_delta_rate": "2/3", "missing": "0"},
        {"rank_delta_rate": "0.4", "tie_aware_rank_delta_rate": "0.4", "missing": "0"},
    ),
    # One rank delta of three is 333333.3 units: 0.333333 under protocol, 1/3 under research.
    Fixture(
        "rates are fixed point under protocol",
        [(9, -5.0, 1, SAME)] * 3,
        [(9, -5.0, rank, SAME) for rank in (1, 1, 2)],
        2,
        {"rank_delta_rate": "1/3"},
        {"rank_delta_rate": "0.333333"},
    ),
    # p = (½, ½, 0), q = (½, 0, ½): JS = ½·ln 2 = 0.34657359 -> 0.346574. J = 1/3 -> 0.333333. With -100 for
    # the missing id the divergence differs by about e^-99.
    Fixture(
        "half of the mass shared",
        [(1, -1.0, 1, [(1, -1.0), (2, -1.0)])],
        [(1, -1.0, 1, [(1, -3.0), (3, -3.0)])],
        2,
        {"js_mean": "0.346574", "js_p99": "0.346574", "jaccard_mean": "1/3", "jaccard_p05": "1/3"},
        {"js_mean": "0.346574", "js_p99": "0.346574", "jaccard_mean": "0.333333", "jaccard_p05": "0.333333"},
    ),
    # Nothing shared: probability 0 gives ln 2 = 0.69314718. Entries at -100 make the missing ids as likely as
    # the listed: p = q = (½, ½), JS 0. Entries at -99: p = (1 - t, t), q = (t, 1 - t) with t = 1/(1 + e)
    # = 0.26894142, m = (½, ½): JS = ln 2 - h(t), h(t) = 0.26894142·1.31326169 + 0.73105858·0.31326169
    # = 0.35319048 + 0.22901265 = 0.58220313, so JS = 0.11094405.
    Fixture(
        "a missing id at -100",
        [(1, -1.0, 1, [(1, -100.0)])],
        [(1, -1.0, 1, [(2, -100.0)])],
        1,
        {"js_mean": "0", "jaccard_mean": "0"},
        {"js_mean": "0.693147", "jaccard_mean": "0"},
    ),
    Fixture(
        "a missing id one below",
        [(1, -1.0, 1, [(1, -99.0)])],
        [(1, -1.0, 1, [(2, -99.0)])],
        1,
        {"js_mean": "0.110944"},
        {"js_mean": "0.693147"},
    ),
    # One id shared, one missing on each side: weights e, e, 1 over e + e + 1, so t = 0.42231880 and
    # r = 0.15536240; p = (t, t, r), q = (r, t, t), m = (t + r)/2 = 0.28884060 at the two ids that differ.
    # JS = t·ln(t/m) + r·ln(r/m) = 0.42231880·0.37988549 - 0.15536240·0.62011451
    #    = 0.16043279 - 0.09634248 = 0.06409031. Protocol: half of the mass shared.
    Fixture(
        "one shared, the missing ids one below",
        [(1, -1.0, 1, [(1, -99.0), (3, -99.0)])],
        [(1, -1.0, 1, [(2, -99.0), (3, -99.0)])],
        2,
        {"js_mean": "0.064090", "jaccard_mean": "1/3"},
        {"js_mean": "0.346574", "jaccard_mean": "0.333333"},
    ),
    # vLLM's k + 1: the token 7 is outside the two required. All ids: {1, 2, 7} and {1, 3, 7}, J = 2/4. The
    # first two: {1, 2} and {1, 3}, J = 1/3. The protocol skips an entry that is not finite and takes the
    # next; research keeps its id: {1, 2, 8} and {1, 2}, J = 2/3, JS undefined, so the position is missing.
    Fixture(
        "k + 1 entries",
        [(7, -9.0, 40, [(1, -1.0), (2, -1.0), (7, -9.0)])],
        [(7, -9.0, 41, [(1, -1.0), (3, -1.0), (7, -9.0)])],
        2,
        {"jaccard_mean": "1/2", "rank_delta_rate": "1"},
        {"jaccard_mean": "0.333333", "rank_delta_rate": "0"},
    ),
    Fixture(
        "an entry that is not finite",
        [(1, -1.0, 1, [(1, -1.0), (8, -math.inf), (2, -1.0)])],
        [(1, -1.0, 1, [(1, -1.0), (2, -1.0)])],
        2,
        {"jaccard_mean": "2/3", "js_mean": None, "missing": "1", "mean_abs": "0"},
        {"jaccard_mean": "1", "js_mean": "0", "missing": "0"},
    ),
    # Jaccards 1, 1/3: research mean 2/3, p05 at 0.05 -> 1/3 + 0.05·2/3 = 11/30. Protocol: mean of 1000000
    # and 333333 = 666666.5 -> 666667; p05: ⌈0.1⌉ = 1st -> 0.333333. Divergences 0 and 0.346574 (as above):
    # mean 0.173287; linear p95 at 0.95 -> 0.95·0.346574 = 0.3292453; nearest rank ⌈1.9⌉ = 2nd.
    Fixture(
        "Jaccard",
        [(1, -1.0, 1, SAME)] * 2,
        [(1, -1.0, 1, SAME), (1, -1.0, 1, [(1, -1.0), (3, -1.0)])],
        2,
        {"jaccard_mean": "2/3", "jaccard_p05": "11/30", "js_mean": "0.173287", "js_p95": "0.3292453"},
        {"jaccard_mean": "0.666667", "jaccard_p05": "0.333333", "js_mean": "0.173287", "js_p95": "0.346574"},
    ),
    # One id of 128 shared is 7812.5 units: half away, 7813.
    Fixture(
        "a Jaccard tie",
        [(1, -1.0, 1, [(i, -1.0) for i in range(64)])],
        [(1, -1.0, 1, [(i, -1.0) for i in range(63, 128)])],
        65,
        {"jaccard_mean": "1/128"},
        {"jaccard_mean": "0.007813"},
    ),
    # A missing logprob, and a side without entries: counted, and under protocol in no mean. The rest: one
    # position, difference 1/2. Research takes each metric where it is: differences of the 1st and 3rd
    # (1/2, 1/4), ranks of all, Jaccards 1, 1, 0, divergences 0, 0, and 0 of (½, ½) against two ids at -100.
    Fixture(
        "missing",
        [(1, -1.0, 1, SAME), (1, NAN, 1, SAME), (1, -1.0, 1, [])],
        [(1, -1.5, 1, SAME), (1, -1.0, 2, SAME), (1, -1.25, 1, SAME)],
        2,
        {
            "tokens": "3",
            "missing": "2",
            "mean_abs": "3/8",
            "rank_delta_rate": "1/3",
            "jaccard_mean": "2/3",
            "js_mean": "0",
        },
        {
            "tokens": "3",
            "missing": "2",
            "mean_abs": "1/2",
            "rank_delta_rate": "0",
            "jaccard_mean": "1",
            "js_mean": "0",
        },
    ),
    Fixture("nothing", [], [], 2, {"tokens": "0", **NOTHING}, {"tokens": "0", **WORST}),
    Fixture(
        "all missing",
        [(1, NAN, 0, [])],
        [(1, NAN, 0, [])],
        2,
        {"tokens": "1", "missing": "1", **NOTHING},
        {"tokens": "1", "missing": "1", **WORST},
    ),
    # The worker's first-index token ties with token 9 in BF16, so vLLM gives it rank 2; at the verifier the
    # tie is broken and it has rank 1. The plain rate reports a delta; [1, 2] and [1, 1] share rank 1. Next,
    # an engine that counts > says 1, and the verifier has the token second: [1, 2] and [2, 2] share rank 2.
    # Last, the token really fell behind: [2, 2] and [1, 1].
    Fixture(
        "a rank delta from a tie",
        [(3, -0.75, 2, [(3, -0.75), (9, -0.75), (5, -4.0)])],
        [(3, -0.75, 1, [(3, -0.75), (9, -1.0), (5, -4.0)])],
        3,
        {"rank_delta_rate": "1", "tie_aware_rank_delta_rate": "0"},
        {"rank_delta_rate": "1", "tie_aware_rank_delta_rate": "0"},
    ),
    Fixture(
        "a rank delta from counting >",
        [(3, -0.75, 1, [(3, -0.75), (9, -0.75), (5, -4.0)])],
        [(3, -1.0, 2, [(9, -0.75), (3, -1.0), (5, -4.0)])],
        3,
        {"rank_delta_rate": "1", "tie_aware_rank_delta_rate": "0"},
        {"rank_delta_rate": "1", "tie_aware_rank_delta_rate": "0"},
    ),
    Fixture(
        "a rank delta without a tie",
        [(3, -1.0, 2, [(9, -0.75), (3, -1.0), (5, -4.0)])],
        [(3, -0.75, 1, [(3, -0.75), (9, -1.0), (5, -4.0)])],
        3,
        {"rank_delta_rate": "1", "tie_aware_rank_delta_rate": "1"},
        {"rank_delta_rate": "1", "tie_aware_rank_delta_rate": "1"},
    ),
]


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
@pytest.mark.parametrize("judge", [lambda *args: specified(*args)[1], fast], ids=["spec", "fast"])
def test_hand_computed(fixture: Fixture, judge: Callable[[Trace, Trace, Convention, int], object]) -> None:
    assert fixture.failures(judge) == []


ROOT = Path(__file__).resolve().parents[2]
SPEC, FAST = "pyref/replay_metrics.py", "conformance/replay/metrics.py"
JS, COLUMN = "conformance/replay/divergence.py", "conformance/replay/column.py"
MUTANTS = [
    ("research takes the nearest rank", SPEC, "exact_mean, linear_quantile)", "exact_mean, nearest_rank)"),
    ("protocol interpolates", SPEC, "rounded_mean, nearest_rank)", "rounded_mean, linear_quantile)"),
    ("protocol means stay exact", SPEC, "rounded_mean, nearest_rank)", "exact_mean, nearest_rank)"),
    ("no interpolation", SPEC, "(values.at(whole + 1) - low) if rest else low", "0 + low"),
    (
        "linear over n",
        SPEC,
        "divmod((values.count - 1) * percent, 100)",
        "divmod(values.count * percent - 1, 100)",
    ),
    ("nearest rank rounds down", SPEC, "-(-values.count * percent // 100)", "values.count * percent // 100"),
    ("ties to even", SPEC, "return magnitude if x >= 0 else -magnitude", "return round(x)"),
    ("ties toward zero", SPEC, "abs(x.numerator) + x.denominator)", "abs(x.numerator) + x.denominator - 1)"),
    (
        "round after subtracting",
        SPEC,
        "abs(protocol_fixed(verifier.logprob) - protocol_fixed(worker.logprob))",
        "half_away(abs(verifier.logprob - worker.logprob) * SCALE)",
    ),
    ("no FP64 product", SPEC, "product = round_to(logprob * SCALE, FP64)", "product = logprob * SCALE"),
    ("no saturation", SPEC, "min(difference, SATURATED)", "difference"),
    ("research drops missing ids", SPEC, "= Fraction(-100)", "= None"),
    ("missing at -99", SPEC, "= Fraction(-100)", "= Fraction(-99)"),
    (
        "protocol fills missing ids",
        SPEC,
        "_fixed_js([a.get(token) for token in union], [b.get(token) for token in union])",
        "research_js(a, b)",
    ),
    (
        "Jaccard over one side",
        SPEC,
        "Fraction(len(a.keys() & b.keys()), len(union))",
        "Fraction(len(union), len(a))",
    ),
    (
        "all of a side",
        SPEC,
        "dict(list(_finite(worker.entries).items())[:compared_topk])",
        "_finite(worker.entries)",
    ),
    ("raw ranks", SPEC, "return rank if 1 <= rank <= compared_topk else compared_topk + 1", "return rank"),
    ("rank 0 is compared", SPEC, "worker.rank > 0 and verifier.rank > 0", "True"),
    ("rank counts > only", SPEC, "at_least = 1 + sum(logprob >= side", "at_least = 1 + sum(logprob > side"),
    ("lowest rank counts ties", SPEC, "greater = sum(logprob > side", "greater = sum(logprob >= side"),
    (
        "an empty side is compared",
        SPEC,
        "abs_diff is None or not a or not b or not",
        "abs_diff is None or not",
    ),
    (
        "nothing reads as agreement",
        SPEC,
        "_WORST_DIFF = Fraction(SATURATED, SCALE)",
        "_WORST_DIFF = Fraction(0)",
    ),
    ("fast: no -100", JS, "    if research:\n        missing", "    if False:\n        missing"),
    ("fast: always -100", JS, "    if research:\n        missing", "    if True:\n        missing"),
    ("fast: sides confused", JS, "for side in reversed(sides)]", "for side in sides]"),
    ("fast: -100 for too many", JS, "side.counts - matched.common for", "side.counts for"),
    ("fast: -100 is neglected", JS, "NEGLIGIBLE = 2.0**-100", "NEGLIGIBLE = 2.0"),
    ("fast: shared ids twice", JS, "s[:, 1:] -= second", "pass"),
    ("fast: all of a side", JS, "if ids.shape[1] > compared_topk:", "if False:"),
    ("fast: divergence cut off", JS, "(fraction >= 0.5)", "(fraction >= 1)"),
    (
        "fast: half even",
        FAST,
        "whole.astype(np.int64) + (scaled - whole >= 0.5)",
        "np.rint(scaled).astype(np.int64)",
    ),
    ("fast: toward zero", FAST, "(scaled - whole >= 0.5)", "(scaled - whole > 0.5)"),
    ("fast: no saturation", FAST, "np.minimum(np.abs(fixed), spec.SATURATED)", "np.abs(fixed)"),
    (
        "fast: raw ranks",
        FAST,
        "np.where(inside, trace.ranks.astype(np.int64), compared_topk + 1)",
        "trace.ranks",
    ),
    (
        "fast: rank counts > only",
        FAST,
        "at_least = row_counts(others >= selected)",
        "at_least = greater",
    ),
    (
        "fast: lowest rank counts ties",
        FAST,
        "where(reaches, 1 + greater, ranks)",
        "where(reaches, high, ranks)",
    ),
    (
        "fast: research Jaccard rounded",
        FAST,
        "if convention is Convention.PROTOCOL:\n            ratio",
        "if 1:\n            ratio",
    ),
    ("fast: missing positions count", FAST, '_keep_only(~columns["missing"], columns)', "pass"),
    ("fast: not sorted", COLUMN, "    values.sort()\n", ""),
    ("fast: a low half lost", COLUMN, " + int(low[i])", ""),
]


PACKAGES = {"pyref": "certhead.pyref", "conformance/replay": "certhead.conformance.replay"}


def mutated(path: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module at `path` with one change, in place of the real one for what is imported from now on."""
    source = (ROOT / path).read_text(encoding="utf-8")
    assert old == new or source.count(old) == 1, f"{path} has {source.count(old)} times: {old}"
    package = PACKAGES[str(Path(path).parent)]
    module = ModuleType(f"{package}.{Path(path).stem}")
    module.__package__ = package
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(source.replace(old, new), path, "exec"), module.__dict__)
    return module


def failing(path: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The fixtures that fail with `old` replaced by `new` in the module at `path`."""
    module = mutated(path, old, new, monkeypatch)
    if path in (JS, COLUMN):
        module = mutated(FAST, "", "", monkeypatch)  # as it is, on the changed part

    def judge(worker: Trace, verifier: Trace, convention: Convention, topk: int) -> object:
        if path == SPEC:
            return specified(worker, verifier, convention, topk, module)[1]
        return fast(worker, verifier, convention, topk, module)

    def fails(fixture: Fixture) -> bool:
        try:
            return bool(fixture.failures(judge))
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return True

    return [fixture.name for fixture in FIXTURES if fails(fixture)]


@pytest.mark.parametrize(("path", "old", "new"), [m[1:] for m in MUTANTS], ids=[m[0] for m in MUTANTS])
def test_mutant_fails_a_fixture(path: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failing(path, old, new, monkeypatch)


@pytest.mark.parametrize("path", [SPEC, FAST, JS, COLUMN])
def test_no_change_fails_no_fixture(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert failing(path, "", "", monkeypatch) == []


LOGPROBS = st.one_of(
    st.sampled_from(
        [0.0, -0.0, -9999.0, -100.0, -99.0, -1.0, NAN, -math.inf, math.inf, -5e-7, -25e-7, -800.0, -1e-300]
    ),
    st.integers(-12, 0).map(lambda i: i / 4),  # ties
    st.floats(-30, 0),
)
VOCABULARY = st.integers(0, 9)


@st.composite
def pairs_of_traces(draw: st.DrawFn) -> tuple[Trace, Trace]:
    """Two traces of one path: up to 5 positions and 6 entries a side, with holes, ties and extremes."""
    tokens = draw(st.lists(VOCABULARY, max_size=5))

    def side() -> Trace:
        rows: list[Row] = []
        for token in tokens:
            ids = draw(st.lists(VOCABULARY, unique=True, max_size=6))
            entries = [(i, draw(LOGPROBS)) for i in ids]
            if draw(st.booleans()):
                entries.sort(key=lambda entry: -entry[1])
            own = dict(entries).get(token)
            logprob = own if own is not None and draw(st.booleans()) else draw(LOGPROBS)
            rows.append((token, logprob, draw(st.integers(0, 8)), entries))
        return trace(rows, draw(st.integers(6, 8)))

    return side(), side()


@settings(max_examples=300, deadline=None)
@given(pairs_of_traces(), st.sampled_from(Convention), st.integers(1, 7))
def test_fast_is_the_specification(pair: tuple[Trace, Trace], convention: Convention, topk: int) -> None:
    positions, want = specified(*pair, convention, topk)
    columns = metrics.compare(*pair, convention, topk)
    unit = Fraction(1) if convention is RESEARCH else Fraction(1, spec.SCALE)
    for i, position in enumerate(positions):
        assert columns.missing[i] == position.missing
        diff = unit * Fraction(columns.abs_diff[i].item()) if columns.has_diff[i] else None
        assert diff == position.abs_diff
        ranks = (
            (columns.rank_differs[i], columns.rank_differs_beyond_ties[i]) if columns.has_ranks[i] else None
        )
        expected = (position.rank_differs, position.rank_differs_beyond_ties)
        assert (ranks or (None, None)) == expected
        js = Fraction(int(columns.js[i]), spec.SCALE) if columns.has_js[i] else None
        assert js == position.js
        if convention is RESEARCH:
            jaccard = (
                Fraction(int(columns.common[i]), int(columns.union[i])) if columns.has_jaccard[i] else None
            )
            assert jaccard == position.jaccard
    summary = fast(*pair, convention, topk)
    assert {name: getattr(summary, name) for name in vars(want)} == vars(want)


@settings(max_examples=100, deadline=None)
@given(pairs_of_traces())
def test_tie_aware_ranks_are_the_specification(pair: tuple[Trace, Trace]) -> None:
    for one in pair:
        ranks = metrics.tie_aware_rank(one)
        for i, side in enumerate(sides(one)):
            interval = (int(ranks.low[i]), int(ranks.high[i]))
            assert interval == (spec.tie_aware_rank(side) or (0, 0))
            assert int(metrics.first_index_rank(one)[i]) == (spec.first_index_rank(side) or 0)


def test_a_first_index_winner_of_a_tie() -> None:
    """facts: vLLM counts `>=`, so the token that a first-index argmax chose in a tie of two has rank 2."""
    tied = trace([(3, -0.75, 2, [(9, -0.75), (3, -0.75), (5, -4.0)])])
    ranks = metrics.tie_aware_rank(tied)
    assert (ranks.low[0], ranks.high[0], metrics.first_index_rank(tied)[0]) == (1, 2, 1)
    second = trace([(9, -0.75, 2, [(9, -0.75), (3, -0.75), (5, -4.0)])])
    assert metrics.first_index_rank(second)[0] == 2


def test_ties_that_pass_the_end_of_the_list() -> None:
    at_the_end = trace([(3, -2.0, 7, [(9, -0.75), (3, -2.0), (5, -2.0)])])
    outside = trace([(3, -9.0, 40, [(9, -0.75), (5, -2.0), (3, -9.0)])])
    unknown = trace([(3, -9.0, 0, [(9, -0.75), (5, -2.0)])])
    traces = (at_the_end, outside, unknown)
    got = [metrics.tie_aware_rank(one) for one in traces]
    assert [(ranks.low[0], ranks.high[0]) for ranks in got] == [(2, 7), (40, 40), (0, 0)]
    assert [metrics.first_index_rank(one)[0] for one in traces] == [0, 0, 0]


def rows(one: Trace, start: int, stop: int) -> Trace:
    return Trace(*(getattr(one, field.name)[start:stop] for field in fields(Trace)))


@pytest.mark.parametrize("convention", Convention)
def test_parts_are_the_whole(convention: Convention, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streaming, a smaller chunk of the cache, and blocks of columns that fill up change nothing."""
    pair = bench_metrics.synthetic_pair(1500)
    whole = fast(*pair, convention, 64)
    monkeypatch.setattr(metrics, "SLOT_BITS", 10)  # eight positions a chunk
    monkeypatch.setattr(column, "BLOCK", 100)
    accumulator = metrics.Accumulator(convention)
    cuts = [0, 1, 1, 8, 300, 777, 1500]
    for start, stop in pairwise(cuts):
        parts = [rows(one, start, stop) for one in pair]
        accumulator.add(metrics.compare(*parts, convention, 64), samples=int(start == 0 and stop > 0))
    assert accumulator.summary() == whole
    assert whole.samples == 1


@pytest.mark.parametrize("convention", Convention)
def test_fast_is_the_specification_at_64_entries(convention: Convention) -> None:
    pair = bench_metrics.synthetic_pair(40, seed=7)
    summary = fast(*pair, convention, 64)
    _, want = specified(*pair, convention, 64)
    assert {name: getattr(summary, name) for name in vars(want)} == vars(want)
    assert summary.js_p99


def oracle(a: spec.Distribution, b: spec.Distribution, missing: float) -> mpmath.mpf:
    """The divergence by its definition, in 60 digits."""
    with mpmath.workdps(60):
        union = list({*a, *b})
        p, q = (
            [mpmath.exp(mpmath.mpf(d[t].numerator) / d[t].denominator if t in d else missing) for t in union]
            for d in (a, b)
        )
        p, q = ([x / sum(side) for x in side] for side in (p, q))
        m = [(x + y) / 2 for x, y in zip(p, q, strict=True)]
        return sum(
            x * mpmath.log(x / mid) / 2 for side in (p, q) for x, mid in zip(side, m, strict=True) if x
        )


DISTRIBUTIONS = st.dictionaries(
    VOCABULARY,
    st.one_of(st.floats(-40, 0), st.sampled_from([0.0, -100.0, -9999.0])).map(Fraction),
    min_size=1,
    max_size=6,
)


@settings(max_examples=150, deadline=None)
@given(DISTRIBUTIONS, DISTRIBUTIONS)
def test_divergence_against_mpmath(a: spec.Distribution, b: spec.Distribution) -> None:
    with mpmath.workdps(60):
        assert spec.research_js(a, b) == int(mpmath.nint(oracle(a, b, -100) * 10**6))
        assert spec.protocol_js(a, b) == int(mpmath.nint(oracle(a, b, -mpmath.inf) * 10**6))


@settings(max_examples=60, deadline=None)
@given(DISTRIBUTIONS, DISTRIBUTIONS, st.integers(64, 300))
def test_divergence_is_enclosed(a: spec.Distribution, b: spec.Distribution, bits: int) -> None:
    union = list(a | b)
    lo, hi = spec._enclose_js([a.get(t) for t in union], [b.get(t) for t in union], bits)
    with mpmath.workdps(120):
        assert lo <= oracle(a, b, -mpmath.inf) * 2**bits <= hi or bits > 190  # the oracle has 60 digits
    assert hi - lo < 1 << 24


@settings(max_examples=150, deadline=None)
@given(DISTRIBUTIONS, DISTRIBUTIONS, st.booleans())
def test_fp64_stays_within_its_bound(a: spec.Distribution, b: spec.Distribution, research: bool) -> None:
    lists = [trace([(0, 0.0, 1, [(t, float(x)) for t, x in side.items()])]) for side in (a, b)]
    entries = [divergence.compared_entries(one, slice(0, 1), None) for one in lists]
    got = float(divergence.divergence(entries, divergence.match(entries, 0), research)[0])
    true = oracle(a, b, -100 if research else -mpmath.inf)
    assert abs(mpmath.mpf(got) - true) <= divergence.js_error(len(a) + len(b))


def two_entries(x: float) -> tuple[spec.Distribution, spec.Distribution]:
    return {1: Fraction(-1), 2: Fraction(-1)}, {1: Fraction(-1), 2: Fraction(x)}


@pytest.fixture(scope="module")
def neighbours() -> tuple[float, float]:
    """Adjacent FP64 numbers x: the divergence of `two_entries(x)` is below 12.5 units and above."""
    near, far = -1.0, -1.5
    while math.nextafter(near, far) != far:
        middle = (near + far) / 2
        if spec.protocol_js(*two_entries(middle)) <= 12:
            near = middle
        else:
            far = middle
    return near, far


def test_undecided_positions_go_to_the_specification(neighbours: tuple[float, float]) -> None:
    worker = trace([(1, -1.0, 1, [(1, -1.0), (2, -1.0)])])
    results = []
    for x in neighbours:
        verifier = trace([(1, -1.0, 1, [(1, -1.0), (2, x)])])
        for convention in Convention:
            columns = metrics.compare(worker, verifier, convention, 2)
            accumulator = metrics.Accumulator(convention)
            accumulator.add(columns)
            results.append((int(columns.js[0]), columns.settled, accumulator.settled))
    assert results == [(12, 1, 1), (12, 1, 1), (13, 1, 1), (13, 1, 1)]


def test_more_bits_are_asked_for(neighbours: tuple[float, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spec, "FIRST_BITS", 32)
    assert [spec.protocol_js(*two_entries(x)) for x in neighbours] == [12, 13]
    monkeypatch.setattr(spec, "LAST_BITS", 32)
    with pytest.raises(ArithmeticError, match="32 bits do not settle"):
        spec.protocol_js(*two_entries(neighbours[0]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(0, allow_infinity=False, allow_nan=False), max_size=20))
def test_exact_sum(values: list[float]) -> None:
    assert column.exact_sum(np.array(values)) == sum(map(Fraction, values), Fraction(0))


def test_exact_sum_past_a_block() -> None:
    values = np.full(column.BLOCK + 3, 2.0**53 - 1)
    assert column.exact_sum(values) == (2**53 - 1) * (column.BLOCK + 3)


def test_displayed_values_round_as_each_convention_does() -> None:
    half = Fraction(5, 2 * 10**6)  # 2.5 units
    assert metrics.displayed(half, RESEARCH) == 2
    assert metrics.displayed(half, PROTOCOL) == 3


ONE = [(1, -1.0, 1, SAME)]


@pytest.mark.parametrize("convention", Convention)
@pytest.mark.parametrize(
    ("worker", "verifier", "topk", "message"),
    [
        (ONE, ONE * 2, 2, "the worker's trace has 1 positions, the verifier's 2"),
        (ONE, [(2, -1.0, 1, SAME)], 2, "position 0: the verifier scored token 2, the worker chose 1"),
        (ONE, ONE, 0, "compared_topk is 0"),
        (ONE, [(1, -1.0, -1, SAME)], 2, "verifier: rank -1 is negative"),
        (
            ONE * 2,
            [*ONE, (1, -1.0, 1, [(4, -1.0), (5, -2.0), (4, -1.0)])],
            2,
            "position 1: the verifier lists token 4",
        ),
        ([(1, -1.0, 1, [(2, -1.0), (2, NAN)])], ONE, 1, "position 0: the worker lists token 2 twice"),
        (
            [(1, -1.0, 1, [(2, -1.0), (2, -1.0)])],
            [(1, -1.0, 1, [(2, -1.0)])],
            1,
            "the worker lists token 2 twice",
        ),
        ([(1, -1.0, 1, [(-2, -1.0)])], ONE, 2, "worker: top_ids reach from -2 to -2"),
    ],
)
def test_refused(
    worker: list[Row], verifier: list[Row], topk: int, message: str, convention: Convention
) -> None:
    with pytest.raises(BadInput, match=message):
        metrics.compare(trace(worker), trace(verifier), convention, topk)


def test_refused_by_the_specification() -> None:
    with pytest.raises(ValueError, match="listed twice"):
        spec.Side(1, None, 0, ((2, None), (2, Fraction(-1))))
    with pytest.raises(ValueError, match="scored token 2"):
        specified(trace(ONE), trace([(2, -1.0, 1, SAME)]), RESEARCH, 2)
    with pytest.raises(ValueError, match="no fixed point"):
        spec.protocol_fixed(Fraction(-1e14))


def test_too_large_for_a_fixed_point() -> None:
    with pytest.raises(BadInput, match=r"position 0: log probability -1000+\.0 has no fixed point"):
        metrics.compare(trace([(1, -1e14, 1, SAME)]), trace(ONE), PROTOCOL, 2)


def test_shapes_that_do_not_fit() -> None:
    good = trace(ONE)
    for bad in (
        replace(good, ranks=np.zeros(2, np.int32)),
        replace(good, top_logprobs=np.zeros((1, 1))),
        replace(good, top_ids=np.zeros(2, np.int64)),
        trace(ONE, divergence.MAX_SLOTS),
    ):
        with pytest.raises(BadInput):
            metrics.compare(good, bad, RESEARCH, 2)


def test_conventions_do_not_mix() -> None:
    with pytest.raises(ValueError, match="protocol metrics in a summary of the research convention"):
        metrics.Accumulator(RESEARCH).add(metrics.compare(trace(ONE), trace(ONE), PROTOCOL, 2))


def test_two_empty_lists_agree_completely() -> None:
    assert spec.protocol_jaccard([], []) == spec.SCALE


def test_benchmark_runs() -> None:
    figures = bench_metrics.bench(20_000)
    assert figures["peak_bytes"] > 0
    assert all(figure["rate"] > 0 for figure in figures["conventions"].values())
