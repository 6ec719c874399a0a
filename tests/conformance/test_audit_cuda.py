"""`certhead audit --device cuda` without a GPU: its whole path over emulated devices in the GPU's place."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from certhead.conformance.audit import command
from certhead.conformance.audit.audit import Finding
from certhead.conformance.audit.emulated import HOPPER, WRONG, Device
from certhead.conformance.audit.product import Product, codes16
from certhead.conformance.audit.record import CHAIN, Verdict, load, merged
from certhead.conformance.audit.saved_head import SavedHead
from certhead.conformance.audit.tree_sum import Adder, Machine, Partials
from certhead.conformance.cli import app
from certhead.kernels import audit_record
from certhead.pyref.formats import BF16, FP16, FP32, Format
from typer.testing import CliRunner

pytest.importorskip("triton")
pytest.importorskip("safetensors")

from certhead.conformance.audit import device as on_device
from certhead.conformance.audit import stock_head
from safetensors.torch import save_file

ROWS, COLUMNS = 64, 48
COMMAND = ("audit", "--device", "cuda", "--shape", f"{ROWS}x{COLUMNS}", "--batch-sizes", "1,3,16")
Fake = Callable[[Device], None]


def machine(
    device: Device, columns: int, positions: int, inputs: Format = BF16, output: Format = FP32
) -> Machine:
    return Machine(device.tree(columns, positions), device.adder, inputs, output, device.group)


@dataclass
class Pipeline:
    """Stands for the re-score's kernel: the identified machine's accumulators."""

    weight: torch.Tensor

    def accumulators(self, hidden: torch.Tensor) -> torch.Tensor:
        return emulate(HOPPER, hidden, self.weight, FP32)


def emulate(device: Device, hidden: torch.Tensor, weight: torch.Tensor, output: Format) -> torch.Tensor:
    fmt = FP16 if hidden.dtype == torch.float16 else BF16
    codes = machine(device, weight.shape[1], len(hidden), fmt, output).results(
        codes16(hidden), codes16(weight)
    )
    signed = codes.view("int32" if output.width > 16 else "int16")
    dtypes = {BF16: torch.bfloat16, FP16: torch.float16, FP32: torch.float32}
    return torch.from_numpy(signed).view(dtypes[output])


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fake:
    """Puts an emulated device where the GPU would be, and makes everything small."""

    def install(device: Device) -> None:
        def product(
            rows: int,
            columns: int,
            positions: int,
            inputs: Format = BF16,
            where: str = "cuda",
            output: Format | None = None,
        ) -> Product:
            made = device.product(rows, columns, positions)
            if output is None:
                return made
            wide = machine(device, columns, positions, inputs, output)
            return replace(
                made, output=output, call=wide.results, call_rows=lambda h, w, at: wide.results(h, w)
            )

        def stock(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return emulate(device, hidden, weight, FP16 if hidden.dtype == torch.float16 else BF16)

        def chain(hidden: torch.Tensor, weight: torch.Tensor, instruction: str = "wgmma") -> torch.Tensor:
            return emulate(HOPPER, hidden, weight, FP32)

        def head_of(loaded: SavedHead | None, rows: int, columns: int) -> on_device.Head:
            weight = loaded.weight if loaded else torch.randn(rows, columns).bfloat16()
            return on_device.Head(weight, Pipeline(weight), loaded.hidden if loaded else None)  # type: ignore[arg-type]

        monkeypatch.setattr(command, "torch_product", product)
        monkeypatch.setattr(stock_head, "head_of", head_of)
        monkeypatch.setattr(on_device, "DEVICE", torch.device("cpu"))
        monkeypatch.setattr(on_device, "stock", stock)
        monkeypatch.setattr(on_device, "chain", chain)
        monkeypatch.setattr(on_device, "stock_fp32", lambda h, w: emulate(device, h, w, FP32))
        monkeypatch.setattr(on_device, "kernel_names", lambda call: ["cudaLaunchKernel", "emulated"])

    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    monkeypatch.setattr(command, "check_device", lambda device: None)
    monkeypatch.setattr(command, "GPU_DIRECTED", 4_000)
    monkeypatch.setattr(command, "GPU_LOGITS", 2_000)
    monkeypatch.setattr(command, "SWEEP", range(1, 4))
    monkeypatch.setattr(on_device, "GATHERED", (16, 24, 25))
    monkeypatch.setattr(stock_head, "SWEEP_LOGITS", 1_000)
    monkeypatch.setattr(stock_head, "REQUIRED", 2_000)
    monkeypatch.setattr(stock_head, "REQUIRED_LOGITS", 1_500)
    return install


def run(*options: str, code: int) -> dict[str, Any]:
    result = CliRunner().invoke(app, [*COMMAND, *options])
    assert result.exit_code == code, (result.output, result.exception)
    (path,) = Path().glob("audit-*.json")
    assert Path(path.stem + ".html").is_file()
    record: dict[str, Any] = json.loads(path.read_text())
    return record


def test_the_identified_machine_is_identified_everywhere(fake: Fake) -> None:
    fake(HOPPER)
    record = run(code=0)
    entries = load(next(Path().glob("audit-*.json")))
    assert [e.positions for e in entries] == [1, 3, 16]
    for e in entries:
        assert (e.verdict, e.model, e.mismatches, e.outside) == (Verdict.IDENTIFIED, CHAIN, 0, 0)
        assert e.order == "groups of 16, increasing k"
        assert e.logits >= 1_500
        assert sum(n for n, _ in e.directed.values()) >= 2_000
        assert e.kernels == ["emulated"]
        assert {"FP32 results", "FP16 inputs, FP32 results", "16 rows gathered, stock"} <= set(e.checks)
        assert all(compared and not differ for compared, differ in e.checks.values())
        assert e.histogram is not None
        assert e.inputs_sha256 is not None
        assert e.head is None
        assert not e.notes
    assert "directed, FP32 results" in entries[2].checks
    assert record["sweeps"][0] | {"logits": 0} == {
        "shape": [ROWS, COLUMNS], "condition": None, "head": None, "batches": 3, "logits": 0, "differing": {},
    }  # fmt: skip
    fixed = {(p["product"], p["parameter"]): p["value"] for p in record["probes"]}
    assert fixed["BF16 inputs, BF16 results", "fraction_bits"] == "25"
    assert fixed["BF16 inputs, FP32 results", "zero_exponent"] == "-133"  # hidden by BF16 results


def test_a_head_finds_what_was_kept(fake: Fake) -> None:
    fake(HOPPER)
    record = run(code=0)
    key = record["entries"][1]["evidence_key"]
    found = audit_record.find(key)
    assert found is not None
    assert found.exact
    assert found.logits == record["entries"][1]["logits"]
    assert audit_record.find({**key, "driver": "another"}) is None


@pytest.mark.parametrize("device", WRONG, ids=lambda device: device.name)
def test_no_other_machine_is_served(fake: Fake, device: Device) -> None:
    fake(device)
    refuted = "BF16" in device.name
    record = run("--no-sweep", "--batch-sizes", "3,16", code=1 if refuted else 0)
    different = record["entries"]
    if device.name == "order depends on M":
        assert (different[0]["verdict"], different[0]["model"]) == ("identified", CHAIN)
        different = different[1:]
    for e in different:
        if refuted:
            assert e["verdict"] == "refuted"
            assert e["outside"]
            assert e["counterexample"]
        else:
            assert e["verdict"] == "identified"
            assert any("exact mode does not serve it" in note for note in e["notes"])
            assert e["checks"]["the re-score's chain"][0] >= 1_500
            assert e["model"] != CHAIN
        audited = audit_record.find(e["evidence_key"])
        assert audited is not None
        assert not audited.exact


def test_a_difference_of_the_whole_head_alone_is_no_identification(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(HOPPER)
    accumulators = Pipeline.accumulators

    def sometimes(self: Pipeline, hidden: torch.Tensor) -> torch.Tensor:
        out = accumulators(self, hidden)
        out[0, 7] *= 1.02
        return out

    monkeypatch.setattr(Pipeline, "accumulators", sometimes)
    record = run("--no-sweep", code=0)
    for e in record["entries"]:
        assert e["verdict"] == "enclosed only"
        assert e["mismatches"] > 0
        assert e["counterexample"]["row"] == 7
        assert e["counterexample"]["stock"] != e["counterexample"]["chain"]


def test_a_real_head_is_one_distribution_more(fake: Fake, tmp_path: Path) -> None:
    fake(HOPPER)
    file = tmp_path / "head.safetensors"
    hidden = torch.randn(40, COLUMNS).bfloat16()
    hidden[3, 5] = torch.inf
    save_file({"weight": torch.randn(ROWS, COLUMNS).bfloat16(), "hidden": hidden}, file)
    command_line = [*COMMAND[:3], "--head", str(file), "--batch-sizes", "1,3", "--no-sweep"]
    result = CliRunner().invoke(app, command_line)
    assert result.exit_code == 0, (result.output, result.exception)
    for e in load(next(Path().glob("audit-*.json"))):
        assert (e.rows, e.columns, e.head) == (ROWS, COLUMNS, "head")
        assert e.distributions["real"][0] > 0
        assert e.directed["real"][0] > 0
        assert e.verdict is Verdict.IDENTIFIED


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({"other": torch.zeros(4, 4)}, "no tensor named weight"),
        ({"weight": torch.zeros(4, 4)}, "not bfloat16"),
        ({"weight": torch.full((4, 4), torch.inf, dtype=torch.bfloat16)}, "not finite"),
        (
            {
                "weight": torch.zeros(4, 4, dtype=torch.bfloat16),
                "hidden": torch.zeros(4, 5, dtype=torch.bfloat16),
            },
            "4 columns, hidden 5",
        ),
    ],
)
def test_a_head_that_cannot_be_used_is_named(
    fake: Fake, tmp_path: Path, tensors: dict[str, torch.Tensor], says: str
) -> None:
    fake(HOPPER)
    file = tmp_path / "head.safetensors"
    save_file(tensors, file)
    result = CliRunner().invoke(app, ["audit", "--device", "cuda", "--head", str(file)])
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_measurement_that_fails_is_a_note_and_no_identification(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake(HOPPER)

    def broken(*arguments: Any, **options: Any) -> Any:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(on_device, "compare_logits", broken)
    for e in run("--no-sweep", code=0)["entries"]:
        assert e["verdict"] == "enclosed only"
        assert e["logits"] == 0
        assert e["notes"] == ["logits was not measured: RuntimeError: no such kernel"]


def test_a_setting_is_named(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(HOPPER)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")  # so that it is put back afterwards
    try:
        record = run("--workspace", ":16:8", "--no-reduced-precision", "--no-sweep", code=0)
    finally:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    for e in record["entries"]:
        assert e["condition"] == (
            "CUBLAS_WORKSPACE_CONFIG=:16:8, allow_bf16_reduced_precision_reduction=False"
        )
        assert e["evidence_key"]["workspace"][0] == ":16:8"


def test_what_is_not_reached_in_time_is_said_and_fails(fake: Fake) -> None:
    fake(HOPPER)
    record = run("--limit", "0", "--no-sweep", code=1)
    assert record["skipped"] == [1, 3, 16]
    assert record["entries"] == []


def test_gathered_rows_that_change_bits_are_counted(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(HOPPER)
    wrong = next(device for device in WRONG if device.name == "split-K in BF16")
    stock = on_device.stock

    def by_rows(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return stock(hidden, weight) if len(weight) % 8 == 0 else emulate(wrong, hidden, weight, BF16)

    monkeypatch.setattr(on_device, "stock", by_rows)
    weight = torch.randn(ROWS, COLUMNS).bfloat16()
    head = on_device.Head(weight, Pipeline(weight))  # type: ignore[arg-type]
    found = on_device.compare_gathered(head, 16)
    assert (found["16"]["library"], found["24"]["library"]) == (0, 0)
    assert found["25"]["library"] > 0
    assert all(part["loop"] == 0 and part["values"] for part in found.values())


def test_a_sweep_names_the_batch_shapes_that_differ(fake: Fake) -> None:
    by_m = next(device for device in WRONG if device.name == "order depends on M")
    fake(replace(by_m, adder=Adder(25, partials=Partials.BF16)))
    weight = torch.randn(ROWS, COLUMNS).bfloat16()
    head = on_device.Head(weight, Pipeline(weight))  # type: ignore[arg-type]
    assert set(on_device.sweep(head, (2, 7, 8, 12), 3_000)["differing"]) == {"8", "12"}


def test_runs_are_merged_by_key_and_head(fake: Fake) -> None:
    fake(HOPPER)
    first = run("--no-sweep", code=0)
    again = json.loads(json.dumps(first))
    again["entries"] = [{**again["entries"][0], "logits": 5}, {**again["entries"][1], "head": "real"}]
    both = merged(first, again)
    assert [(e["positions"], e["logits"] == 5, e["head"]) for e in both["entries"]] == [
        (1, True, None), (3, False, None), (16, False, None), (3, False, "real"),
    ]  # fmt: skip
    assert len(both["runs"]) == 1
    assert both["probes"] == first["probes"]
    with pytest.raises(ValueError, match="does not belong"):
        merged(first, {**again, "device": "another"})


def test_a_gpu_takes_256_positions_at_most(fake: Fake) -> None:
    fake(HOPPER)
    result = CliRunner().invoke(app, ["audit", "--device", "cuda", "--batch-sizes", "257"])
    assert result.exit_code == 2
    assert "257" in result.stderr


def test_a_finding_without_a_machine_is_judged_by_the_logits(fake: Fake) -> None:
    fake(HOPPER)
    weight = torch.randn(ROWS, COLUMNS).bfloat16()
    head = on_device.Head(weight, Pipeline(weight))  # type: ignore[arg-type]
    measured = stock_head.measure(head, 3, 2_000, lambda *_: None)
    finding = Finding(HOPPER.product(ROWS, COLUMNS, 3))
    entry = stock_head.entry_of(finding, measured, head, None)
    assert (entry.verdict, entry.model) == (Verdict.IDENTIFIED, CHAIN)
