"""The committed H200 record: the emulator returns the hardware's bits, and the verdicts say what they may."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from certhead.conformance.audit.assumptions import assumptions
from certhead.conformance.audit.audit import Finding
from certhead.conformance.audit.corners import all_corners, corner_steps
from certhead.conformance.audit.distributions import DISTRIBUTIONS, chain_inputs, digest, step_inputs
from certhead.conformance.audit.evidence import EVIDENCE, MEASURED
from certhead.conformance.audit.evidence import main as evidence_main
from certhead.conformance.audit.gpu import chain_tasks, step_batches
from certhead.conformance.audit.product import torch_product
from certhead.conformance.audit.record import CHAIN, SCHEMA, Entry, Verdict, find, judge, load, slug
from certhead.conformance.audit.report import probes, render, strip
from certhead.kernels import audit_record
from certhead.pyref.fdpa import HOPPER, fdpa
from certhead.pyref.fdpa_vector import fdpa_chain_vector, fdpa_vector
from certhead.pyref.formats import BF16, FP16

ROOT = Path(__file__).parents[2]
RECORD = EVIDENCE / "audit-h200.json"
VECTORS = ROOT / "tests" / "data" / "h200_fdpa.npz"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    data: dict[str, Any] = json.loads(RECORD.read_text("utf-8"))
    return data


@pytest.fixture(scope="module")
def vectors() -> dict[str, npt.NDArray[Any]]:
    with np.load(VECTORS) as stored:
        return {name: stored[name] for name in stored.files}


def test_the_vectors_are_the_recorded_ones(record: dict[str, Any]) -> None:
    assert hashlib.sha256(VECTORS.read_bytes()).hexdigest() == record["vectors"]["sha256"]
    assert VECTORS.stat().st_size < 2_000_000


def test_pyref_has_the_measured_rules() -> None:
    assert (HOPPER.group, HOPPER.fraction_bits, HOPPER.rules) == (16, 25, MEASURED)


def test_the_emulator_returns_the_bits_of_every_recorded_step(
    record: dict[str, Any], vectors: dict[str, npt.NDArray[Any]]
) -> None:
    total = 0
    for name, steps in step_batches().items():
        assert digest(*steps) == record["inputs_sha256"][name], f"the inputs of {name} changed"
        assert (fdpa_vector(*steps, rules=MEASURED) == vectors[f"steps/{name}"]).all(), name
        total += len(steps[2])
    assert total == record["recorded_steps"] >= 20_000


def test_the_scalar_step_returns_the_bits_of_every_directed_probe(
    vectors: dict[str, npt.NDArray[Any]],
) -> None:
    a, b, c = (x.tolist() for x in corner_steps(all_corners()))
    hardware = vectors["steps/corners"].tolist()
    for corner, x, y, z, bits in zip(all_corners(), a, b, c, hardware, strict=True):
        got = fdpa(x, y, z, rules=MEASURED)
        assert got == bits, f"{corner.topic}: {corner.name}: {got:#010x}, not {bits:#010x}"


def test_fp16_steps(vectors: dict[str, npt.NDArray[Any]]) -> None:
    for name in DISTRIBUTIONS:
        steps = step_inputs(name, 3, 2048, FP16)
        assert (fdpa_vector(*steps, inputs=FP16, rules=MEASURED) == vectors[f"steps_fp16/{name}"]).all(), name


def test_the_emulator_returns_the_bits_of_recorded_chains(
    record: dict[str, Any], vectors: dict[str, npt.NDArray[Any]]
) -> None:
    for task in chain_tasks():
        if task.seed:
            continue
        name = f"{task.name}/{task.terms}"
        h, w = chain_inputs(task)
        assert digest(h, w) == record["inputs_sha256"][f"chains/{name}"]
        recorded = vectors[f"chains/{name}"]
        rows = recorded.shape[1]
        got = fdpa_chain_vector(h[: len(recorded)], w[:rows], rules=MEASURED)
        assert (got == recorded).all(), name


def test_every_parameter_is_fixed_by_recorded_bits(record: dict[str, Any]) -> None:
    rows = record["parameters"]
    assert [row["mismatches"] for row in rows if row["parameter"] == "all"] == [0]
    others = [row for row in rows if row["parameter"] != "all"]
    assert all(row["mismatches"] > 0 and row["witness"] for row in others)
    fixed = {row["parameter"] for row in others}
    rules = {
        "alignment",
        "rounding",
        "normalize_products",
        "zero_exponent",
        "negative_zero",
        "signed_underflow",
    }
    assert fixed >= rules | {"subnormal_inputs", "subnormal_results", "overflow_to_inf", "nan"}
    assert fixed >= {"group", "fraction_bits", "accumulator"}


@pytest.mark.parametrize(
    ("topic", "name", "bits"),
    [
        ("zero exponent", "2^-145 - 2^-159, c=+0", 0x00000010),
        ("zero exponent", "2^-145 - 2^-155, c=+0", 0x0000000F),
        ("zero exponent", "-2^-150, c=0x0", 0x00000000),
        ("negative zero", "16 of -0·+0, c=0x80000000", 0x00000000),
        ("subnormal inputs", "1·2^-133 times 2^0", 0x00010000),
        ("subnormal accumulator", "c=0x80000001 alone", 0x80000001),
        ("overflow", "1·(2^127 + 2^127)", 0x7F800000),
        ("overflow", "-1·(2^254 - 2^254) + 1", 0x00000000),
        ("infinities", "Inf - Inf, products", 0x7FFFFFFF),
        ("NaN", "c=0x7fc12345", 0x7FFFFFFF),
    ],
)
def test_the_open_corners(vectors: dict[str, npt.NDArray[Any]], topic: str, name: str, bits: int) -> None:
    (index,) = (i for i, corner in enumerate(all_corners()) if (corner.topic, corner.name) == (topic, name))
    assert int(vectors["steps/corners"][index]) == bits


def test_both_instructions_agree(record: dict[str, Any], vectors: dict[str, npt.NDArray[Any]]) -> None:
    assert record["wgmma_equals_mma_sync"]
    assert not [name for name in vectors if name.endswith("/wgmma")]
    assert any("wgmma" in name for name in record["instructions"]["wgmma"])
    assert any("mma.sync" in name for name in record["instructions"]["mma.sync"])


def test_chains_were_compared_by_the_million(record: dict[str, Any]) -> None:
    for how in ("wgmma", "mma.sync", "library_fp32", "library_bf16"):
        parts = [chain[how] for chain in record["chains"].values()]
        assert sum(part["compared"] for part in parts) >= 1_000_000
        assert sum(part["mismatches"] for part in parts) == 0


def test_verdicts_of_the_record() -> None:
    entries = load(RECORD)
    at = {(e.rows, e.columns, e.positions): e for e in entries if e.condition is e.head is None}
    for rows, columns in ((49_152, 576), (248_320, 2_560), (151_936, 4_096)):
        for positions in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            entry = at[rows, columns, positions]
            assert entry.verdict is Verdict.IDENTIFIED
            assert entry.logits >= 100_000_000
            assert entry.mismatches == entry.dot_product_mismatches == entry.outside == 0
            assert find(entries, entry.key) == entry
    split = at[50_257, 768, 16]
    assert split.verdict is Verdict.REFUTED
    assert split.outside > 0
    assert split.counterexample is not None
    assert any("parts kept in BF16" in text for text in (split.model, *split.notes))
    # the same steps in groups of 8: not what the re-score repeats, whatever else it may be
    assert (at[50_257, 768, 8].verdict, at[50_257, 768, 8].model) != (Verdict.IDENTIFIED, CHAIN)
    assert at[50_257, 768, 8].order == "groups of 8, increasing k"
    assert find(entries, "another key") is None


@pytest.mark.parametrize(
    ("compared", "mismatches", "enclosed", "outside", "verdict"),
    [
        (100, 0, 10, 0, Verdict.IDENTIFIED),
        (100, 0, 0, 0, Verdict.IDENTIFIED),
        (99, 0, 10, 0, Verdict.ENCLOSED),
        (100, 1, 10, 0, Verdict.ENCLOSED),
        (100, 1, 0, 0, Verdict.REFUTED),
        (0, 0, 0, 0, Verdict.REFUTED),
        (100, 0, 10, 1, Verdict.REFUTED),
    ],
)
def test_judge(compared: int, mismatches: int, enclosed: int, outside: int, verdict: Verdict) -> None:
    assert verdict is judge(
        compared=compared, required=100, mismatches=mismatches, enclosure_logits=enclosed, outside=outside
    )


def test_entries_survive_json() -> None:
    entry = Finding(torch_product(8, 4, 1, BF16)).entry("k", {"device": "none"})
    assert Entry.from_json(json.loads(json.dumps(entry.to_json()))) == entry


def test_a_record_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"schema": "other"}')
    with pytest.raises(ValueError, match="schema"):
        load(path)


def test_the_head_and_the_audit_mean_the_same_record() -> None:
    assert (audit_record.SCHEMA, audit_record.CHAIN) == (SCHEMA, CHAIN)
    assert audit_record.COMMITTED.samefile(EVIDENCE)
    assert Verdict.IDENTIFIED.value == audit_record.IDENTIFIED
    assert Verdict.REFUTED.value == audit_record.REFUTED


def test_a_head_finds_the_committed_verdict_of_its_key_and_of_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path))
    for entry in load(RECORD):
        audited = audit_record.find(entry.evidence_key)
        assert audited is not None
        assert audited.exact == (entry.verdict is Verdict.IDENTIFIED and entry.model == CHAIN)
        for part in entry.evidence_key:
            changed = {**entry.evidence_key, part: "another"}
            assert audit_record.find(changed) is None, part


def test_the_least_favourable_record_counts(tmp_path: Path) -> None:
    entry = load(RECORD)[20]
    assert entry.verdict is Verdict.IDENTIFIED
    for name, verdict in (("a", "identified"), ("b", "refuted"), ("c", "enclosed only")):
        record = {"schema": SCHEMA, "entries": [{**entry.to_json(), "verdict": verdict}]}
        (tmp_path / f"audit-{name}.json").write_text(json.dumps(record))
    (tmp_path / "audit-d.json").write_text("no record")
    (tmp_path / "audit-e.json").write_text('{"schema": "other"}')
    found = audit_record.find(entry.evidence_key, [tmp_path, tmp_path / "none"])
    assert found is not None
    assert (found.verdict, found.exact, found.source) == ("refuted", False, "audit-b.json")
    (tmp_path / "audit-b.json").unlink()
    found = audit_record.find(entry.evidence_key, [tmp_path])
    assert found is not None
    assert found.verdict == "enclosed only"


def test_the_kernels_do_not_import_the_audit() -> None:
    for path in (ROOT / "kernels").glob("*.py"):
        assert "certhead.conformance" not in path.read_text("utf-8"), path.name


def test_the_page_shows_every_verdict(record: dict[str, Any]) -> None:
    page = render(record)
    for verdict in Verdict:
        assert f">{verdict.value}<" in page
    assert "What fixed the tensor-core step" in page
    assert "Counterexamples" in page


@pytest.mark.parametrize(
    ("device", "name"),
    [("NVIDIA H200", "h200"), ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"), ("cpu AMX", "cpu-amx")],
)
def test_a_device_in_a_file_name(device: str, name: str) -> None:
    assert slug(device) == name


def test_assumptions_are_named_and_counted() -> None:
    rows = assumptions()
    assert len({row.name for row in rows}) == len(rows)
    (order,) = (row for row in rows if row.name == "order")
    assert order.power is not None
    chosen = [e for e in load(RECORD) if e.verdict is Verdict.IDENTIFIED and e.model == CHAIN]
    assert f"0 of {sum(e.logits for e in chosen):,} " in order.power
    assert {row.name for row in rows if row.status == "assumed"} == {"memory", "checker", "repeatable"}


def test_assumptions_without_evidence_are_assumed(tmp_path: Path) -> None:
    for row in assumptions(tmp_path):
        assert row.power is None or row.name == "range"
        assert row.status == ("tested" if row.name == "range" else "assumed")


def test_a_changed_count_changes_the_assumption(tmp_path: Path, record: dict[str, Any]) -> None:
    record = json.loads(json.dumps(record))
    entry = next(e for e in record["entries"] if e["verdict"] == "identified" and e["model"] == CHAIN)
    entry["logits"] += 1
    (tmp_path / RECORD.name).write_text(json.dumps(record))
    (before,) = (row.power for row in assumptions() if row.name == "order")
    (after,) = (row.power for row in assumptions(tmp_path) if row.name == "order")
    assert before != after


def test_runs_are_merged_into_a_record_by_a_command(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, record: dict[str, Any]
) -> None:
    kept = tmp_path / "audit-h200.json"
    kept.write_text(json.dumps(record))
    changed = {**record["entries"][0], "logits": 123, "histogram": {"-9": 3, "2": 1}}
    versions = {"torch": "2.11.0"}
    run = {
        "schema": SCHEMA,
        "device": record["device"],
        "date": "2026-11-29",
        "versions": versions,
        "seed": 0,
    }
    (tmp_path / "run.json").write_text(json.dumps({**run, "seconds": 1.0, "entries": [changed]}))
    monkeypatch.setattr(
        "sys.argv", ["evidence", "--evidence", str(kept), "--merge", str(tmp_path / "run.json")]
    )
    evidence_main()
    after = json.loads(kept.read_text())
    assert [e["logits"] for e in after["entries"]][:2] == [123, record["entries"][1]["logits"]]
    assert len(after["entries"]) == len(record["entries"])
    assert after["runs"][-1]["versions"] == versions
    assert {**after, "entries": [], "runs": [], "probes": [], "sweeps": []} == {
        **record, "entries": [], "runs": [], "probes": [], "sweeps": [],
    }  # fmt: skip
    assert "Error against the any-order bound" in (tmp_path / "audit-h200.html").read_text()


def test_a_histogram_is_drawn_on_a_logarithmic_scale() -> None:
    line = strip("all", [{"-24": 999, "1": 1}, None, {"90": 9, "-24": 1}])
    assert line is not None
    assert (line.results, line.counts[0], line.counts[-1]) == (1010, 1000, 9)
    assert line.bars[0] == 1.0
    assert 0 < line.bars[25] < line.bars[-1] < 1  # one result, then nine
    assert line.bars[1] == 0.0
    assert strip("none", [None, {}]) is None


def test_probes_of_several_batch_shapes_share_a_row() -> None:
    row = {
        "product": "p",
        "shape": [8, 8],
        "parameter": "rounding",
        "value": "RZ",
        "probes": 5,
        "witness": None,
    }
    rows = probes({"probes": [{**row, "positions": [1, 16]}, {**row, "positions": [3], "witness": "1·1"}]})
    assert [(r["probes"], r["where"], r["witness"]) for r in rows] == [(15, "1, 3, 16", "1·1")]
