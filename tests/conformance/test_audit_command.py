"""`certhead audit` on this machine's CPU, small: verdicts, exit codes, the JSON record."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from certhead.conformance.audit import command, cpu
from certhead.conformance.audit.emulated import WRONG
from certhead.conformance.audit.product import Product, torch_product
from certhead.conformance.audit.record import Verdict, load
from certhead.conformance.cli import app
from certhead.kernels import audit_record
from certhead.pyref.formats import BF16, Format
from safetensors.torch import save_file
from typer.testing import CliRunner

SMALL = ("audit", "--shape", "512x64", "--batch-sizes", "2,8")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(audit_record, "COMMITTED", tmp_path / "none")
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
    (page,) = tmp_path.glob("audit-cpu*.html")
    text = page.read_text()
    assert "<h2>Verdicts</h2>" in text
    assert "<h2>What fixed the adder</h2>" in text
    assert "the bound" in text
    assert "http" not in text  # no other file, no network
    assert len(list((tmp_path / "cache" / "audit").glob("audit-*.json"))) == 3
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


def test_a_real_head_is_audited_on_a_cpu_too(tmp_path: Path) -> None:
    file = tmp_path / "head.safetensors"
    save_file({"weight": torch.randn(300, 64).bfloat16(), "hidden": torch.randn(20, 64).bfloat16()}, file)
    result = CliRunner().invoke(app, ["audit", "--head", str(file), "--batch-sizes", "4"])
    assert result.exit_code == 0, result.output
    entries = load(next(tmp_path.glob("audit-cpu*.json")))
    assert (entries[0].rows, entries[0].columns) == (300, 64)
    assert entries[0].directed["real"][0] > 0
    assert "real" not in entries[1].directed


def test_the_cpu_verdict_is_one_line_from_a_record_or_from_a_short_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu, "SHORT", (128, 40, 4))
    monkeypatch.setattr(cpu, "SHORT_DOT_PRODUCTS", 2_000)
    first = cpu.cpu_verdict_line()
    assert "at M = 4" in first
    assert "\n" not in first

    def never() -> str:
        raise AssertionError("run again")

    monkeypatch.setattr(cpu, "short_form", never)
    assert cpu.cpu_verdict_line() == first
    monkeypatch.setattr(command, "SHAPE", "512x64")
    monkeypatch.setitem(command.BATCHES, "cpu", "2,8")
    CliRunner().invoke(app, ["audit"])
    full = cpu.cpu_verdict_line()
    assert "512 × 64" in full
    assert "M = 2, 8" in full


def test_an_audit_of_another_setting_says_nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "SHORT", (128, 40, 4))
    monkeypatch.setattr(cpu, "SHORT_DOT_PRODUCTS", 2_000)
    cpu.cpu_verdict_line()
    monkeypatch.setattr(cpu, "cpu_name", lambda: "cpu ANOTHER")
    monkeypatch.setattr(cpu, "short_form", lambda: "run again")
    assert cpu.cpu_verdict_line() == "run again"


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
        ["--report", "/no/such/folder/a.html"],
        ["--head", "/no/such/file"],
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
    assert "assumed" in result.output
