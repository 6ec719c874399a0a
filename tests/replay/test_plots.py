"""The experiment's document: its tables are the evidence's, its figures small, and one command makes both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from certhead.conformance.errors import BadInput
from certhead.conformance.replay.document import BLOCK, DOCUMENT, ROOT, TABLES, app, is_honest, render
from typer.testing import CliRunner

MOST = 60_000  # bytes of a figure


def evidence() -> dict[str, dict[str, Any]]:
    text = DOCUMENT.read_text("utf-8")
    return {path: json.loads((ROOT / path).read_text("utf-8")) for _, _, path, _ in BLOCK.findall(text)}


def test_the_document_quotes_its_evidence() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert {name for _, name, _, _ in BLOCK.findall(text)} == TABLES.keys()
    assert text.count("<!-- replay ") == len(BLOCK.findall(text))
    assert render(text) == text


def test_honesty_by_name_is_what_the_experiment_says() -> None:
    for result in evidence().values():
        for name, run in result["runs"].items():
            assert run.get("honest", is_honest(name)) is is_honest(name), name
    assert is_honest("gpu-worker/cpu-verifier")
    assert not is_honest("prefill-int4-g32/gpu-verifier")


def test_one_command_writes_tables_and_small_figures(tmp_path: Path) -> None:
    document = tmp_path / "replay.md"
    document.write_text(BLOCK.sub(r"\1\4", DOCUMENT.read_text("utf-8")), "utf-8")
    result = CliRunner().invoke(app, [str(document)])
    assert result.exit_code == 0, result.output
    assert document.read_text("utf-8") == DOCUMENT.read_text("utf-8")
    figures = sorted(path.name for path in tmp_path.glob("*.png"))
    assert figures == ["replay-metrics.png", "replay-power.png", "replay-roc.png"]
    for name in figures:
        assert f"]({name})" in document.read_text("utf-8")
        assert 5_000 < (tmp_path / name).stat().st_size < MOST
        assert (DOCUMENT.parent / name).stat().st_size < MOST


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("<!-- replay nonsense: a.json -->\n<!-- /replay -->", "block nonsense: not one of setup, "),
        ("<!-- replay runs: missing.json -->\n<!-- /replay -->", "missing.json: "),
    ],
)
def test_a_block_without_table_or_evidence_is_named(tmp_path: Path, block: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        render(block, tmp_path)
