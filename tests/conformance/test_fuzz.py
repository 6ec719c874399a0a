"""Fuzzing finds a wrong driver, makes the case small, and keeps nothing else."""

from __future__ import annotations

import ast
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest
from certhead.conformance import fuzz
from certhead.conformance.case_families import family_cases, head_gaussian, select_random
from certhead.conformance.cases import Answer, Case, parse, read_file
from certhead.conformance.cli import app
from certhead.conformance.drivers import registry
from certhead.conformance.drivers.torch_driver import TorchDriver
from certhead.kernels import torch_stages
from certhead.pyref import head as spec
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


def test_a_case_of_every_stage_is_made_small() -> None:
    """Wrong for one row, or one position, of the stages that have no weight or state."""

    class WrongSelect(TorchDriver):
        def answer(self, case: Case) -> Answer:
            answer = super().answer(case)
            if any("40" in text for text in case.given["hi"]):
                answer["select"]["blocks"] = [
                    None if b is None else "ffffffff" for b in answer["select"]["blocks"]
                ]
            return answer

    case = next(c for c in family_cases("select", select_random, 3) if len(c.given["lo"][0]) == 8 * 37)
    small = fuzz.shrink(WrongSelect(), case)
    assert len(small.given["lo"]) == 1
    assert len(small.given["lo"][0]) == 8
    assert fuzz.differs(WrongSelect(), small)


def test_a_round_counts_and_finds_nothing() -> None:
    found = fuzz.fuzz_round(["torch"], 11)
    assert found.generated == found.everywhere == found.cases["torch"] > 200
    assert set(found.stages) == {"quantize", "limbs", "screen", "select", "rescore", "decide", "head"}
    assert found.failures == ()
    assert found.cpu_seconds > 0


def test_a_round_with_the_families_of_the_corpus() -> None:
    found = fuzz.fuzz_round(["torch"], 25)
    assert found.stages["head"] > 20
    assert found.everywhere < found.generated  # injected faults are not offered
    assert found.failures == ()


STAGES = {
    spec: ("limbs", "screen", "_scaled_end", "select", "rows_of", "fold", "rescore_enclosed", "decide_exact",
           "decide_enclosed", "first_max", "code_norm_bound", "residual_shift", "norm_shift"),
    torch_stages: ("limbs", "integers", "ends", "screen", "select", "rescore_enclosed", "decide"),
}  # fmt: skip


def lines_of(module: ModuleType) -> set[int]:
    """Where the statements of the stages are; errors aside, which no case may bring about."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in STAGES[module]]
    assert len(functions) == len(STAGES[module])
    statements = [s for f in functions for s in ast.walk(f) if isinstance(s, ast.stmt) and s is not f]
    errors = {id(s) for n in statements if isinstance(n, ast.If) for s in n.body if isinstance(s, ast.Raise)}
    return {s.lineno for s in statements if not isinstance(s, ast.Expr) and id(s) not in errors}


def test_a_few_rounds_run_every_line_of_the_stages() -> None:
    """Which is why coverage does not guide the fuzzer."""
    hit: dict[str, set[int]] = {str(module.__file__): set() for module in STAGES}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        lines = hit.get(frame.f_code.co_filename)
        if lines is None:
            return None
        lines.add(frame.f_lineno)
        return trace

    sys.settrace(trace)
    try:
        for seed in (1, 2, 3, 4, 25):
            fuzz.fuzz_round(["torch"], seed)
    finally:
        sys.settrace(None)
    missed = []
    for module in STAGES:
        source = Path(str(module.__file__)).read_text("utf-8").splitlines()
        missed += [source[n - 1].strip() for n in lines_of(module) - hit[str(module.__file__)]]
    # for a fraction that is not dyadic, which no BF16 number is
    assert set(missed) <= {"exponent -= 1"}


def test_a_wrong_driver_is_found_in_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    class WrongLimbs(TorchDriver):
        """Wrong where a position has a negative limb."""

        def answer(self, case: Case) -> Answer:
            answer = super().answer(case)
            if case.stage == "limbs":
                low = answer["limbs"]["limb_lo"]
                answer["limbs"]["limb_lo"] = ["00" * (len(t) // 2) if t and "f" in t else t for t in low]
            return answer

    monkeypatch.setitem(fuzz._MADE, "torch", WrongLimbs())
    failures = [failure for seed in (1, 2, 3) for failure in fuzz.fuzz_round(["torch"], seed).failures]
    assert failures
    for difference, line in failures:
        assert "limbs.limb_lo[0]" in difference
        assert len(parse(line, "here").given["hidden"]) == 1


def test_a_position_that_spoils_its_neighbour_is_kept_as_a_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    class Neighbours(TorchDriver):
        """Right for one position, wrong for the last of several."""

        def answer(self, case: Case) -> Answer:
            answer = super().answer(case)
            if case.stage == "decide" and len(answer["decide"]["token"]) > 1:
                answer["decide"]["token"][-1] = "ffffffff"
            return answer

    monkeypatch.setitem(fuzz._MADE, "torch", Neighbours())
    found = fuzz.fuzz_round(["torch"], 11)
    assert len(found.failures) == 3  # one for each batch
    for _, line in found.failures:
        case = parse(line, "here")
        assert case.id.endswith("-bundle")
        assert len(case.given.get("lo", case.given.get("accumulators"))) == 2


def test_the_corpus_of_failing_cases_grows_and_is_run_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = next(iter(family_cases("head", head_gaussian, 3)))
    difference = f"torch: {case.id}: decide.token[0]: got 1, want 0"
    out = tmp_path / "found.jsonl"
    (kept,) = fuzz.grow(out, [(difference, case.to_json())])
    assert kept[1].family == "gaussian-torch-decide.token"
    assert fuzz.grow(out, [(difference, case.to_json())]) == []
    others = [(difference, replace(case, id=f"x/{n}").to_json()) for n in range(9)]
    assert len(fuzz.grow(out, others)) == fuzz.KEPT_A_PLACE - 1
    assert len(read_file(out)) == fuzz.KEPT_A_PLACE
    assert fuzz.still_failing(out, ["torch"]) == []
    monkeypatch.setattr(registry, "make", lambda name: Wrong())
    assert len(fuzz.still_failing(out, ["torch"])) == fuzz.KEPT_A_PLACE


def test_the_command_writes_failing_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path))
    case = next(iter(family_cases("head", head_gaussian, 3)))
    difference = f"torch: {case.id}: decide.token[0]: got 1, want 0"
    round_ = fuzz.Round({"torch": 5, "interpret": 4}, 5, 4, ((difference, case.to_json()),), {}, 2.0)
    monkeypatch.setattr(fuzz, "fuzz", lambda *_: iter([(round_, 1.0)]))
    out, record = tmp_path / "found.jsonl", tmp_path / "o.json"
    ran = CliRunner().invoke(app, ["fuzz", "--out", str(out), "--json", str(record)])
    assert ran.exit_code == 1
    assert (
        "5 cases, 4 of them 3-way (pyref, torch, interpret), 4/s, 2 a second of a core; 1 differ"
        in ran.output
    )
    repeat = f"repeat: certhead cases --corpus {tmp_path} --driver torch --case {case.id}"
    assert f"{difference}; {repeat}" in ran.output.replace("\n", "")
    assert [found.given for found in read_file(out)] == [case.given]
    assert json.loads(record.read_text())["failures"] == 1
    right = fuzz.Round({"torch": 5, "interpret": 5}, 5, 5)
    monkeypatch.setattr(fuzz, "fuzz", lambda *_: iter([(right, 1.0)] * 9))
    enough = CliRunner().invoke(app, ["fuzz", "--least", "12", "--out", str(tmp_path / "none.jsonl")])
    assert enough.exit_code == 0
    assert "15 cases, 15 of them 3-way" in enough.output.splitlines()[-1]
    fewer = CliRunner().invoke(app, ["fuzz", "--least", "99", "--out", str(tmp_path / "none.jsonl")])
    assert fewer.exit_code == 1
    assert "fewer than 99 cases within 1 minutes" in fewer.output
    assert CliRunner().invoke(app, ["fuzz", "--out", str(tmp_path / "none.jsonl")]).exit_code == 0
    assert not (tmp_path / "none.jsonl").exists()


def test_two_processes_three_ways(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    rounds = list(fuzz.fuzz(["torch", "interpret"], 0.001, 40, 1))
    assert rounds
    found = rounds[0][0]
    assert found.failures == ()
    assert found.cases["interpret"] >= found.everywhere > 100
    assert {"limbs", "screen", "select", "head"} <= {stage for stage, n in found.stages.items() if n}
