"""The gate: a kernel that changed without evidence, or that is wrong, turns the check red."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from certhead.conformance.gate import (
    REPOSITORY,
    SCHEMA,
    code_only,
    evidence_problems,
    meaning_files,
    source_hash,
)

GATE = ["gate", "--driver", "pyref", "--driver", "torch"]


def write_evidence(folder: Path, made_for: str, **changes: object) -> Path:
    record = {
        "schema": SCHEMA,
        "device": "test",
        "versions": {},
        "source_hash": made_for,
        "date": "2026-01-01",
        "stages": [{"stage": "screen", "compared": 10, "differing": 0}],
        "tokens": {"positions": 10, "differing": 0},
    }
    folder.mkdir(exist_ok=True)
    path = folder / "kernels-test.json"
    path.write_text(json.dumps(record | changes))
    return path


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the gate looks at, importable as `certhead`."""
    for part in ("pyref", "kernels", "conformance"):
        shutil.copytree(REPOSITORY / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    package = tmp_path / "certhead"
    package.mkdir()
    (package / "__init__.py").write_text("")
    for part in ("pyref", "kernels", "conformance"):
        (package / part).symlink_to(tmp_path / part)
    shutil.rmtree(tmp_path / "conformance" / "evidence", ignore_errors=True)
    return tmp_path


def gate(checkout: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from certhead.conformance.cli import app; app()", *GATE, *options]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=checkout)


def test_the_gate_in_a_checkout(checkout: Path) -> None:
    """Open with fresh evidence; closed for a kernel changed without, and for a wrong one even with it."""
    evidence, kernel = checkout / "conformance" / "evidence", checkout / "kernels" / "torch_stages.py"
    write_evidence(evidence, source_hash(checkout))
    opened = gate(checkout)
    assert opened.returncode == 0, opened.stdout + opened.stderr
    assert "gate: open" in opened.stdout

    source = kernel.read_text()
    kernel.write_text(source + "UNUSED = 1\n")  # right, but nobody has run it on a GPU
    changed = gate(checkout)
    assert changed.returncode == 1
    assert "made for sources" in changed.stdout
    assert "does not have the wanted bits" not in changed.stdout

    assert source.count("(hi >= level)") == 1
    kernel.write_text(source.replace("(hi >= level)", "(hi > level)"))
    write_evidence(evidence, source_hash(checkout))  # forged for the wrong kernel
    wrong = gate(checkout)
    assert wrong.returncode == 1
    assert "torch: decide/enclosed/0: decide.token[" in wrong.stdout
    assert "gate: torch: does not have the wanted bits" in wrong.stdout
    assert "made for sources" not in wrong.stdout


def test_missing_evidence_closes_the_gate(tmp_path: Path) -> None:
    assert evidence_problems(tmp_path) == [f"{tmp_path}: no kernels-*.json; run `certhead kernels` on a GPU"]


def test_fresh_evidence_is_enough_beside_stale(tmp_path: Path) -> None:
    stale = write_evidence(tmp_path, "0" * 64)
    assert "made for sources 0000000000000000" in evidence_problems(tmp_path)[0]
    stale.rename(tmp_path / "kernels-old.json")
    write_evidence(tmp_path, source_hash())
    assert evidence_problems(tmp_path) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "certhead.kernels/0"}, "schema 'certhead.kernels/0' is not"),
        ({"stages": [{"stage": "screen", "compared": 10, "differing": 1}]}, "stage screen: 1 of 10 values"),
        ({"stages": [{"stage": "screen", "compared": 0, "differing": 0}]}, "stage screen: 0 of 0 values"),
        ({"stages": []}, "0 of 10 tokens"),
        ({"tokens": {"positions": 10, "differing": 2}}, "2 of 10 tokens differ"),
        ({"tokens": {"positions": 0, "differing": 0}}, "0 of 0 tokens"),
        ({"tokens": None}, "not a kernel record"),
    ],
)
def test_evidence_that_shows_nothing_does_not_count(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    write_evidence(tmp_path, source_hash(), **change)
    assert message in evidence_problems(tmp_path)[0]


def test_prose_is_not_hashed_and_code_is(checkout: Path) -> None:
    before = source_hash(checkout)
    kernel = checkout / "kernels" / "decision.py"
    source = kernel.read_text()
    kernel.write_text(
        "# a comment\n" + source.replace('"""Why a position fell back', '"""The reason why it fell back')
    )
    assert kernel.read_text().count("The reason why") == 1
    assert source_hash(checkout) == before
    kernel.write_text(source.replace("OVERFLOW = 3", "OVERFLOW = 9"))
    assert source_hash(checkout) != before


def test_every_kernel_and_the_reference_are_hashed(checkout: Path) -> None:
    before = source_hash(checkout)
    for path in meaning_files(checkout):
        source = path.read_text()
        path.write_text(source + "changed = 1\n")
        assert source_hash(checkout) != before, path
        path.write_text(source)
    assert source_hash(checkout) == before
    names = {path.name for path in meaning_files()}
    assert {"triton_stages.py", "triton_head.py", "torch_stages.py", "quantize.py", "head.py"} <= names


def test_tiles_are_hashed_and_the_choice_between_them_is_not(checkout: Path) -> None:
    before = source_hash(checkout)
    plan = checkout / "kernels" / "plan.py"
    source = plan.read_text()
    assert source.count("Tile(64, 16, 256, 4, 3)") == 1
    plan.write_text(source.replace("Tile(64, 16, 256, 4, 3)", "Tile(64, 16, 256, 4, 2)"))
    assert source_hash(checkout) != before
    assert source.count("MIN_GAIN = 1.05") == 1
    plan.write_text(source.replace("MIN_GAIN = 1.05", "MIN_GAIN = 1.20"))
    assert source_hash(checkout) == before


def test_code_only_keeps_strings_that_are_values() -> None:
    source = (
        '"""Doc."""\nx = "# no comment"  # comment\n\ndef f():\n    """Doc.\n\n    More."""\n    return x\n'
    )
    assert code_only(source) == 'x = "# no comment"\ndef f():\n    return x\n'
