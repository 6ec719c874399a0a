"""What earlier runs found: kept, bounded, and never taken for what it is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from certhead.conformance import history
from certhead.conformance.history import hash_under_test, keep_mutants, keep_run, last_mutants, runs_like
from certhead.conformance.mutants import Verdict, to_record


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(history, "EVIDENCE", tmp_path / "evidence")
    return tmp_path / "cache"


VERDICTS = [
    Verdict("pyref/a", True, "head/x/0: select", 3, False, 0.1),
    Verdict("torch/b", True, "head/x/0: decide", 3, True, 0.1),
    Verdict("torch/c", True, "limbs/y/1: error ValueError", 9, False, 0.1),
    Verdict("torch/d", True, "time", None, False, 180.0),
    Verdict("interpret/e", False, None, None, False, 5.0),
    Verdict("torch/control", False, None, None, False, 5.0),
]


def test_the_mutants_table() -> None:
    keep_mutants(to_record(VERDICTS, hash_under_test()))
    kept = last_mutants()
    assert kept is not None
    assert kept.fresh
    assert kept.by_driver == [("pyref", 1, 1, 0), ("torch", 3, 3, 1), ("interpret", 1, 0, 0)]
    assert kept.most_killing == [("head/x/0", 2), ("limbs/y/1", 1)]
    assert kept.survivors == ["interpret/e"]
    assert kept.to_json()["killed"] == 4


def test_a_record_for_other_sources_is_said_to_be_one() -> None:
    keep_mutants(to_record(VERDICTS, "0" * 64))
    kept = last_mutants()
    assert kept is not None
    assert not kept.fresh


def test_fresh_evidence_goes_before_a_stale_record(tmp_path: Path) -> None:
    keep_mutants(to_record(VERDICTS, "0" * 64))
    (tmp_path / "evidence").mkdir()
    fresh = to_record(VERDICTS[:2], hash_under_test())
    (tmp_path / "evidence" / history.MUTANTS_RECORD).write_text(json.dumps(fresh))
    kept = last_mutants()
    assert kept is not None
    assert kept.fresh
    assert kept.record["total"] == 2


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"schema": "certhead.mutants/1"}', '{"schema": "other/1"}']
)
def test_what_is_no_record_is_none(cache: Path, text: str) -> None:
    assert last_mutants() is None
    cache.mkdir()
    (cache / history.MUTANTS_RECORD).write_text(text)
    assert last_mutants() is None


def test_runs_of_one_kind_in_order_and_not_too_many(cache: Path) -> None:
    assert runs_like("a") == []
    for n in range(history.KEPT + 5):
        keep_run({"kind": "ab"[n % 2], "n": n})
    kept = runs_like("a") + runs_like("b")
    assert len(kept) == history.KEPT
    assert runs_like("a") == sorted(runs_like("a"), key=lambda run: run["n"])
    assert max(run["n"] for run in kept) == history.KEPT + 4
    (cache / history.RUNS).write_text('{"kind": "a", "n": 1}\nnot json\n{"other": 1}\n')
    assert runs_like("a") == [{"kind": "a", "n": 1}]
