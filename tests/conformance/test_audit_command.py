"""`certhead audit` on this machine's CPU, small: verdicts, exit codes, the JSON record."""

from __future__ import annotations

from pathlib import Path

import pytest
from certhead.conformance.audit import command
from certhead.conformance.audit.emulated import WRONG
from certhead.conformance.audit.product import Product, torch_product
from certhead.conformance.audit.record import Verdict, load
from certhead.conformance.cli import app
from certhead.pyref.formats import BF16, Format
from typer.testing import CliRunner

SMALL = ("audit", "--shape", "512x64", "--batch-sizes", "2,8")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "FEW", 2_000)
    monkeypatch.setattr(command, "MANY", 4_000)
    monkeypatch.setattr(command, "EXTRA_FP32", (256, 64, (4,)))


def test_a_small_audit_of_torch(tmp_path: Path) -> None:
    path = tmp_path / "audit.json"
    result = CliRunner().invoke(app, [*SMALL, "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert "M=2: done" in result.output
    entries = load(path)
    assert [(e.dtype, e.positions) for e in entries] == [("BF16", 2), ("BF16", 8), ("FP32", 4)]
    for entry in entries:
        assert entry.outside == 0
        assert entry.enclosure_logits > 1_000
        # too few for an identification, whatever this machine's arithmetic is
        assert entry.verdict is Verdict.ENCLOSED
        assert entry.histogram is not None
        assert sum(entry.histogram.values()) == entry.enclosure_logits
        assert max(int(e) for e in entry.histogram) <= 0  # nothing reaches the bound


def test_torch_is_not_refuted_by_enough_dot_products() -> None:
    finding = command.judge_product(torch_product(512, 64, 16), 0, lambda *_: None, 120_000)
    assert finding.enclosure.outside == 0
    assert finding.verdict is not Verdict.REFUTED
    if finding.machine is not None and finding.mismatches == 0:
        assert finding.verdict is Verdict.IDENTIFIED


def test_a_refuted_head_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    (wrong,) = (device for device in WRONG if device.name == "split-K in BF16")

    def product(
        rows: int, columns: int, positions: int, inputs: Format = BF16, device: str = "cpu"
    ) -> Product:
        return wrong.product(rows, columns, positions)

    monkeypatch.setattr(command, "torch_product", product)
    result = CliRunner().invoke(app, ["audit", "--shape", "512x64", "--batch-sizes", "8"])
    assert result.exit_code == 1, result.output
    assert "refuted" in result.output
    assert "counterexample" in result.output


@pytest.mark.parametrize(
    "options",
    [
        ["--shape", "512"],
        ["--shape", "0x64"],
        ["--batch-sizes", "1,x"],
        ["--device", "tpu"],
        ["--json", "/no/such/folder/a.json"],
    ],
)
def test_wrong_options_are_named(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["audit", *options])
    assert result.exit_code == 2
    assert options[1] in result.stderr


def test_assumptions_are_listed() -> None:
    result = CliRunner().invoke(app, ["audit", "--assumptions"])
    assert result.exit_code == 0
    assert "any_order" in result.output
    assert "not tested" in result.output
