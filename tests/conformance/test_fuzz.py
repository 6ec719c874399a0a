"""Fuzzing finds a wrong driver, makes the case small, and keeps nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from certhead.conformance import fuzz
from certhead.conformance.case_families import family_cases, head_gaussian
from certhead.conformance.cases import Answer, Case, read_file
from certhead.conformance.cli import app
from certhead.conformance.drivers.torch_driver import TorchDriver
from typer.testing import CliRunner


class Wrong(TorchDriver):
    """Wrong for every head in which some weight is negative."""

    def answer(self, case: Case) -> Answer:
        answer = super().answer(case)
        if any(b >= 0x8000 for row in case.rows("weight") for b in row):
            answer["decide"]["token"] = ["ffffffff"] * len(case.given["hidden"])
        return answer


def test_a_failing_case_is_made_as_small_as_it_gets() -> None:
    case = next(c for c in family_cases("head", head_gaussian, 3) if len(c.given["weight"]) == 9)
    small = fuzz.shrink(Wrong(), case)
    assert len(small.given["weight"]) == 1
    assert len(small.given["weight"][0]) == 4
    assert len(small.given["hidden"]) == 1
    assert "decide.token[0]" in str(fuzz.differs(Wrong(), small))


def test_what_is_right_is_left_alone() -> None:
    case = next(iter(family_cases("head", head_gaussian, 3)))
    assert fuzz.differs(TorchDriver(), case) is None
    assert fuzz.shrink(TorchDriver(), case) == case


def test_a_round_counts_and_finds_nothing() -> None:
    found = fuzz.fuzz_round("torch", 11)
    assert found.cases > 150
    assert found.failures == ()


def test_the_command_writes_failing_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(iter(family_cases("head", head_gaussian, 3)))
    rounds = [(fuzz.Round(5, (("torch: differs", case.to_json()),)), 5, 1.0)]
    monkeypatch.setattr(fuzz, "fuzz", lambda *_: iter(rounds))
    out = tmp_path / "found.jsonl"
    ran = CliRunner().invoke(app, ["fuzz", "--out", str(out)])
    assert ran.exit_code == 1
    assert "5 cases, 5/s, 1 differ" in ran.output
    assert read_file(out) == [case]
    monkeypatch.setattr(fuzz, "fuzz", lambda *_: iter([(fuzz.Round(5, ()), 5, 1.0)]))
    assert CliRunner().invoke(app, ["fuzz", "--out", str(tmp_path / "none.jsonl")]).exit_code == 0
    assert not (tmp_path / "none.jsonl").exists()
