"""What may serve a batch shape: identification, audit records, the enclosure check, enclosed mode."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from certhead.conformance.heads import synthetic_heads
from certhead.kernels import CertifiedHead, Reason
from certhead.kernels import enclosure as enclosing
from certhead.kernels.probes import SPECIAL, special_states
from certhead.pyref.models import ANY_ORDER

pytest.importorskip("triton")

from certhead.kernels import audit_record, plan, triton_engine
from certhead.kernels import identify as identification
from certhead.kernels.graph import GraphedHead
from certhead.kernels.plan import Configuration
from certhead.kernels.triton_head import Tile, TritonPipeline
from certhead.pyref import head as spec

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = Tile(64, 16, 64, 4, 2)


def random_head(rows: int, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows)
    return (torch.randn(rows, columns, generator=generator) / columns**0.5).bfloat16().to(DEVICE)


# The enclosure check


def test_the_stock_product_stays_inside_its_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enclosing, "LOGITS", 20_000)
    weight = random_head(900, 96)
    tried = enclosing.check_enclosure(weight, 16, ANY_ORDER.gamma_num(96))
    assert tried.holds
    assert tried.logits >= 20_000


def test_a_product_that_keeps_partial_sums_in_bf16_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library does when it splits K over programs and adds their BF16 results."""
    matmul = torch.matmul

    def split(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        half = a.shape[1] // 2
        return matmul(a[:, :half], b[:half]) + matmul(a[:, half:], b[half:])

    monkeypatch.setattr(torch, "matmul", split)
    tried = enclosing.check_enclosure(random_head(900, 96), 16, ANY_ORDER.gamma_num(96))
    assert tried.outside
    assert not tried.holds


def test_an_enclosure_tried_on_too_few_logits_does_not_hold() -> None:
    assert not enclosing.EnclosureCheck(1, enclosing.LOGITS - 1, 0).holds


@pytest.mark.parametrize("positions", [1, 3, 8])
def test_every_special_kind_is_met(positions: int) -> None:
    met = set()
    for hidden in special_states(random_head(20, 16), positions, 0):
        assert hidden.shape == (positions, 16)
        met |= {str(x) for x in hidden.flatten().float().tolist() if not abs(x) < 60_000}
    assert len(met) == len(SPECIAL)


# Audit records


def audited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: str) -> TritonPipeline:
    """A pipeline whose key has an audit record, and whose re-score gives the stock head's logits."""
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path))
    head = CertifiedHead(random_head(300, 16))
    pipeline = TritonPipeline(head.weight, head.copy, head.gamma_num)
    entry = {
        "evidence_key": identification.evidence_key(head.weight, 32),
        "verdict": verdict,
        "model": audit_record.CHAIN,
        "logits": 100_000_000,
        "mismatches": 0 if verdict == "identified" else 7,
    }
    folder = audit_record.own_folder()
    folder.mkdir(parents=True)
    record = {"schema": audit_record.SCHEMA, "entries": [entry]}
    (folder / "audit-here.json").write_text(json.dumps(record))
    monkeypatch.setattr(
        pipeline, "accumulators", lambda hidden: torch.matmul(hidden, pipeline.weight.T).float()
    )
    return pipeline


def test_an_audited_shape_is_checked_once_and_identified(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pipeline = audited(monkeypatch, tmp_path, "identified")
    found = identification.recall_or_identify(pipeline, 32)
    assert found.identified
    assert found.audited == "identified"
    assert found.logits > 100_000_000
    assert set(found.distributions) == set(identification.WANTED)


@pytest.mark.parametrize("verdict", ["enclosed only", "refuted"])
def test_an_audit_that_did_not_identify_a_shape_is_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: str
) -> None:
    pipeline = audited(monkeypatch, tmp_path, verdict)
    found = identification.recall_or_identify(pipeline, 32)
    assert not found.identified
    assert found.audited == verdict
    other = identification.recall_or_identify(pipeline, 31)  # another key: nothing is known of it
    assert other.identified


def test_a_difference_overrules_an_audit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pipeline = audited(monkeypatch, tmp_path, "identified")
    monkeypatch.setattr(
        pipeline, "accumulators", lambda hidden: torch.matmul(hidden, pipeline.weight.T).float() + 1
    )
    assert not identification.recall_or_identify(pipeline, 32).identified


@pytest.mark.parametrize(
    ("verdict", "outside", "mode"),
    [
        ("identified", 0, spec.Mode.EXACT),
        ("enclosed only", 0, spec.Mode.ENCLOSED),
        ("enclosed only", 1, None),
        ("refuted", 0, None),
    ],
)
def test_the_mode_follows_from_what_was_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: str, outside: int, mode: spec.Mode | None
) -> None:
    pipeline = audited(monkeypatch, tmp_path, verdict)
    monkeypatch.setattr(plan, "check_enclosure", lambda *_: enclosing.EnclosureCheck(32, 1_000_000, outside))
    for name in ("graphs_us", "calls_us"):
        monkeypatch.setattr(plan, name, lambda calls: [100.0] * len(calls))
    made = plan.make_plan(pipeline, plan.EnclosedRescore(pipeline), 32)
    assert made.mode is mode
    assert made.configuration is None  # 100 against 100: no gain


# Enclosed mode on the back end `cuda`


def enclosed_head(monkeypatch: pytest.MonkeyPatch, weight: torch.Tensor) -> CertifiedHead:
    """A head that serves every batch shape in enclosed mode, on any device."""
    head = CertifiedHead(weight, backend="torch")
    found = identification.Identification(1, 1_000_000, 3, identification.WANTED, "")
    made = plan.Plan(Configuration(SMALL, 2), spec.Mode.ENCLOSED, found, 1.0, 1.0, 0.0)
    monkeypatch.setattr(triton_engine, "make_plan", lambda *_: made)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    head.engine = triton_engine.TritonEngine(weight, head.copy, head.gamma_num, head.block)
    return head


def test_enclosed_positions_are_counted_apart_from_those_left_to_the_stock_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = next(h for h in synthetic_heads(0) if h.name == "near-ties")
    weight, hidden = made.weight.to(DEVICE), made.hidden[:60].to(DEVICE).clone()
    hidden[2, 3] = 70_000.0  # out of range; a NaN would send the reference's whole batch to the stock head
    reference = CertifiedHead(weight, backend="torch")
    head = enclosed_head(monkeypatch, weight)
    decision, want = head.decide(hidden), reference.decide(hidden)
    for name in ("tokens", "states", "reasons", "blocks"):
        assert torch.equal(getattr(decision, name), getattr(want, name)), name
    counts = reference.counters
    assert counts["ambiguous"] > 0
    assert counts["enclosed"] > 0
    assert head.counters == counts
    assert head.mode == "enclosed"


def test_enclosed_mode_is_not_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    head = enclosed_head(monkeypatch, random_head(270, 40))
    hidden = random_head(3, 40)
    head(hidden)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    decision = head.decide(hidden)
    assert decision.reasons.tolist() == [Reason.UNIDENTIFIED] * 3
    assert head.counters["positions"] == 3  # a capture serves nobody


def test_a_graph_needs_the_right_back_end() -> None:
    head = CertifiedHead(random_head(20, 16), backend="torch")
    with pytest.raises(ValueError, match="a CUDA graph needs a head on back end 'cuda', not 'torch'"):
        GraphedHead(head, 1)
