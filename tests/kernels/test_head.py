"""`CertifiedHead`: the stock head's tokens, an honest account of each, and one clear error for bad input."""

from __future__ import annotations

import dataclasses
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from certhead.conformance.heads import synthetic_heads
from certhead.conformance.stages import compare_stages
from certhead.kernels import CertifiedHead, Reason, State
from certhead.kernels.quantize import bits
from certhead.pyref.fdpa_vector import fdpa_chain_pairs, fdpa_chain_vector
from certhead.pyref.models import ANY_ORDER, FDPA
from head_strategies import Case, cases, tensor
from hypothesis import given, settings

HEADS = {head.name: head for head in synthetic_heads(2)}


def codes(x: torch.Tensor) -> np.ndarray[Any, np.dtype[np.uint16]]:
    return bits(x).numpy().astype(np.uint16)


def chain(hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The rescorer of a stock head that adds as the identified tensor cores do."""
    p, r, k = rows.shape
    h = codes(hidden)[:, None].repeat(r, axis=1).reshape(p * r, k)
    found = fdpa_chain_pairs(h, codes(rows).reshape(p * r, k))
    return torch.from_numpy(found.view(np.int32)).view(torch.float32).view(p, r)


class EmulatedHead(CertifiedHead):
    """A head whose stock logits are the chain's, on a machine that has no such hardware."""

    def emulated_tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        sums = fdpa_chain_vector(codes(hidden), codes(self.weight))
        logits = torch.from_numpy(sums.view(np.int32)).view(torch.float32).to(torch.bfloat16)
        return logits.argmax(dim=1)


def random_head(rows: int = 200, columns: int = 24, positions: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(rows + columns)
    return (
        torch.randn(rows, columns, generator=g).bfloat16(),
        torch.randn(positions, columns, generator=g).bfloat16(),
    )


# The contract


@pytest.mark.parametrize("name", HEADS)
def test_tokens_equal_the_stock_head(name: str) -> None:
    made = HEADS[name]
    head = CertifiedHead(made.weight)
    decision = head.decide(made.hidden)
    assert torch.equal(decision.tokens, head.stock_tokens(made.hidden))
    assert torch.equal(decision.tokens, torch.argmax(made.hidden @ made.weight.T, dim=1))
    assert torch.equal(head(made.hidden), decision.tokens)
    assert set(decision.states.tolist()) <= {State.ENCLOSED, State.FALLBACK}
    assert torch.equal(decision.states == State.FALLBACK, decision.reasons != Reason.NONE)


@pytest.mark.parametrize("name", ["flat", "realistic", "huge-column", "mixed-scales", "one-row", "ragged"])
def test_ordinary_heads_are_certified(name: str) -> None:
    made = HEADS[name]
    decision = CertifiedHead(made.weight).decide(made.hidden)
    assert (decision.states == State.ENCLOSED).float().mean() > 0.95
    if name != "huge-column":  # there BF16 makes half of the rows tie
        assert decision.candidates is not None
        assert decision.candidates.float().mean() < 40


@pytest.mark.parametrize("name", HEADS)
def test_exact_mode_leaves_no_position_that_can_be_screened_to_the_stock_head(name: str) -> None:
    made = HEADS[name]
    hidden = made.hidden[:7]
    head = EmulatedHead(made.weight[:600], model=FDPA, exact=chain)
    decision = head.decide(hidden)
    assert head.mode == "exact"
    ordinary = (hidden.float().abs() < 2.0**16).all(dim=1) & (decision.reasons != Reason.OVERFLOW)
    if not torch.isfinite(hidden).all():  # on a CPU one such state may reach the others' logits
        assert (decision.reasons == Reason.NONFINITE).all()
        return
    if name != "all-rows-equal":
        assert ordinary.any()
    assert (decision.states[ordinary] == State.EXACT).all()
    assert (decision.reasons[ordinary] == Reason.NONE).all()
    assert torch.equal(decision.tokens[ordinary], head.emulated_tokens(hidden)[ordinary])


@settings(max_examples=80)
@given(cases(max_rows=6, max_columns=40, max_states=3))
def test_exact_mode_equals_the_emulated_stock_head(case: Case) -> None:
    head = EmulatedHead(tensor(case.weight), model=FDPA, exact=chain, group=case.group)
    hidden = tensor(case.hidden)
    decision = head.decide(hidden)
    assert decision.states.tolist() == [State.EXACT] * len(hidden)
    assert torch.equal(decision.tokens, head.emulated_tokens(hidden))


def test_stages_in_exact_mode_equal_pyref() -> None:
    made = HEADS["duplicates"]
    head = CertifiedHead(made.weight[:100], model=FDPA, exact=chain)
    results = compare_stages(head, made.hidden, rows=3, positions=3)
    assert not [r for r in results if r.differing]


def test_a_state_that_is_not_finite_sends_its_batch_to_the_stock_head() -> None:
    """A CPU product may put its NaN into other states' logits, so those obey no model either."""
    made = HEADS["nonfinite-states"]
    head = CertifiedHead(made.weight)
    matmul = torch.matmul

    def leaking(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        logits = matmul(hidden, weight)
        logits[11] = torch.nan  # as torch 2.11 did
        return logits

    bad = ~made.hidden.isfinite().all(dim=1)
    assert bad.any()
    assert not bad[11]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "matmul", leaking)
        decision = head.decide(made.hidden)
        assert torch.equal(decision.tokens, head.stock_tokens(made.hidden))
    assert (decision.reasons == Reason.NONFINITE).all()
    assert (decision.states == State.FALLBACK).all()
    assert (head.decide(made.hidden[~bad]).states == State.ENCLOSED).all()


def test_reasons() -> None:
    decision = CertifiedHead(HEADS["out-of-range-states"].weight).decide(HEADS["out-of-range-states"].hidden)
    assert set(decision.reasons.tolist()) == {Reason.NONE, Reason.REFUSED}
    made = HEADS["all-rows-equal"]
    assert set(CertifiedHead(made.weight).decide(made.hidden).reasons.tolist()) == {Reason.OVERFLOW}
    assert CertifiedHead(made.weight, capacity=125).decide(made.hidden).counts()["enclosed"] >= 12
    made = HEADS["midpoints"]
    assert set(CertifiedHead(made.weight).decide(made.hidden).reasons.tolist()) == {Reason.AMBIGUOUS}


def test_an_identified_kernel_breaks_ties_that_enclosures_cannot() -> None:
    made = HEADS["midpoints"]
    head = EmulatedHead(made.weight, model=FDPA, exact=chain)
    assert torch.equal(head(made.hidden), head.emulated_tokens(made.hidden))
    assert head.counters["exact"] == len(made.hidden)


# The account


def test_counters_add_up_over_calls() -> None:
    weight, hidden = HEADS["nonfinite-states"].weight, HEADS["nonfinite-states"].hidden
    head = CertifiedHead(weight)
    head(hidden)
    head.decide(hidden[:10])
    total = Counter(head.decide(hidden).counts()) + Counter(head.decide(hidden[:10]).counts())
    assert head.counters["positions"] == 2 * (len(hidden) + 10)
    assert head.counters["enclosed"] == 2 * total["enclosed"]
    assert head.counters["fallback"] == 2 * total["fallback"] == head.counters["nonfinite"]
    assert head.counters["exact"] == 0


def test_a_decision_holds_nothing_of_the_size_of_the_logits() -> None:
    weight, hidden = random_head()
    decision = CertifiedHead(weight).decide(hidden)
    for field in dataclasses.fields(decision):
        value = getattr(decision, field.name)
        assert value.shape == (len(hidden),)
        assert value.untyped_storage().nbytes() <= 8 * len(hidden)
    assert decision.tokens.dtype is torch.int64
    assert [decision.states.dtype, decision.reasons.dtype] == [torch.uint8] * 2
    assert decision.counts() == {"exact": 0, "enclosed": 9, "fallback": 0}


def test_the_copy_is_all_that_is_kept() -> None:
    weight, _ = random_head(rows=50, columns=800)
    head = CertifiedHead(weight)
    assert head.weight.data_ptr() == weight.data_ptr()
    assert head.copy_bytes == 50 * 800
    assert head.metadata_bytes == 50 * (2 + 1 + -(-800 // head.group)) < 0.01 * head.copy_bytes
    assert not head.state_dict()
    assert repr(head) == "CertifiedHead(V=50, K=800, backend=torch, mode=enclosed, model=any_order)"
    assert head.exact is None
    assert (head.model_name, head.gamma_num) == ("any_order", ANY_ORDER.gamma_num(800))


def test_intervals_hold_the_logits() -> None:
    weight, hidden = random_head()
    lo, hi = CertifiedHead(weight).intervals(hidden)
    exact = hidden.double() @ weight.double().T
    assert lo.shape == hi.shape == (9, 200)
    assert (lo <= exact).all()
    assert (exact <= hi).all()
    assert (hi - lo).max() < 1


def test_progress_counts_rows() -> None:
    finished: list[int] = []
    CertifiedHead(random_head()[0], progress=finished.append)
    assert sum(finished) == 200


def test_no_gradient_is_kept() -> None:
    weight, hidden = random_head()
    head = CertifiedHead(torch.nn.Parameter(weight))
    assert not head.weight.requires_grad
    assert not head.intervals(hidden)[0].requires_grad
    states = hidden.clone().requires_grad_()
    assert torch.equal(head(states), head.stock_tokens(hidden))


# Errors


def test_weights_changed_in_place_are_noticed_at_once() -> None:
    weight, hidden = random_head()
    head = CertifiedHead(weight)
    head.verify()
    weight[3, 4] += 1
    for call in (head, head.decide, head.intervals, head.limbs):
        with pytest.raises(RuntimeError, match="modified in place after build"):
            call(hidden)
    with pytest.raises(RuntimeError, match=r"weights changed after build: digest [0-9a-f]{16}, was"):
        head.verify()


def test_weights_changed_behind_the_version_counter_are_noticed_by_the_digest() -> None:
    weight, _ = random_head()
    head = CertifiedHead(weight)
    weight.view(torch.int16).numpy()[7, 1] ^= 1
    with pytest.raises(RuntimeError, match="weights changed after build"):
        head.verify()
    weight.view(torch.int16).numpy()[7, 1] ^= 1
    head.verify()


def test_weights_whose_changes_cannot_be_noticed_are_refused() -> None:
    weight, hidden = random_head()
    with torch.inference_mode():
        untracked = weight.clone()
        assert torch.equal(CertifiedHead(weight)(hidden.clone()), torch.argmax(hidden @ weight.T, dim=1))
    with pytest.raises(ValueError, match=r"made under torch\.inference_mode"):
        CertifiedHead(untracked)


def changed(value: float, row: int = 1, column: int = 2) -> torch.Tensor:
    weight = torch.ones(3, 4, dtype=torch.bfloat16)
    weight[row, column] = value
    return weight


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        (torch.ones(3, 4), TypeError, "weight has dtype torch.float32"),
        (torch.ones(3, 4).half(), TypeError, "weight has dtype torch.float16"),
        (torch.ones(4).bfloat16(), ValueError, r"weight has shape \(4,\)"),
        (torch.ones(1, 3, 4).bfloat16(), ValueError, r"weight has shape \(1, 3, 4\)"),
        (torch.ones(0, 4).bfloat16(), ValueError, r"weight has shape \(0, 4\)"),
        (torch.ones(3, 0).bfloat16(), ValueError, r"weight has shape \(3, 0\)"),
        (torch.ones(1, 32769).bfloat16(), ValueError, "K=32769 exceeds 32768"),
        (torch.ones(4, 3).bfloat16().T, ValueError, r"weight has strides \(1, 3\)"),
        (changed(float("nan")), ValueError, r"weight\[1, 2\] = nan"),
        (changed(float("-inf")), ValueError, r"weight\[1, 2\] = -inf"),
        (changed(-(2.0**16), 2, 0), ValueError, r"weight\[2, 0\] = -65536.0: not finite and below 2\^16"),
    ],
)
def test_bad_weights_are_named(weight: torch.Tensor, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        CertifiedHead(weight)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "tpu"}, "backend 'tpu' is not one of auto, torch, cuda"),
        ({"block": 0}, "block=0 must be at least 1"),
        ({"capacity": -1}, "capacity=-1 must be at least 1"),
        ({"group": -16}, "group=-16 must be at least 1"),
        ({"group": 0}, "group=0 must be at least 1"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CertifiedHead(changed(2.0), **options)


def test_the_cuda_back_end_needs_a_cuda_weight() -> None:
    with pytest.raises(ValueError, match="backend 'cuda' needs a weight on a CUDA device, not on cpu"):
        CertifiedHead(changed(2.0), backend="cuda")


@pytest.mark.parametrize(
    ("hidden", "error", "message"),
    [
        (torch.ones(2, 4), TypeError, "hidden has dtype torch.float32"),
        (torch.ones(2, 4).half(), TypeError, "hidden has dtype torch.float16"),
        (torch.ones(4).bfloat16(), ValueError, r"hidden has shape \(4,\), the head needs \[M ≥ 1, 4\]"),
        (torch.ones(2, 5).bfloat16(), ValueError, r"hidden has shape \(2, 5\)"),
        (torch.ones(0, 4).bfloat16(), ValueError, r"hidden has shape \(0, 4\)"),
        (torch.ones(1, 2, 4).bfloat16(), ValueError, r"hidden has shape \(1, 2, 4\)"),
        (torch.ones(2, 4, device="meta").bfloat16(), ValueError, "hidden is on meta, the head on cpu"),
    ],
)
def test_bad_states_are_named(hidden: torch.Tensor, error: type[Exception], message: str) -> None:
    head = CertifiedHead(changed(2.0))
    for call in (head, head.decide, head.intervals, head.limbs):
        with pytest.raises(error, match=message):
            call(hidden)


# Models


def fake_model(weight: torch.Tensor, bias: bool = False, **config: Any) -> Any:
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias, dtype=weight.dtype)
    linear.weight = torch.nn.Parameter(weight)
    config = {"vocab_size": weight.shape[0], **config}
    return SimpleNamespace(get_output_embeddings=lambda: linear, config=SimpleNamespace(**config))


def test_the_head_of_a_model() -> None:
    weight, hidden = random_head()
    head = CertifiedHead.from_model(
        fake_model(weight, logit_scale=1.0, final_logit_softcapping=None), group=8
    )
    assert head.group == 8
    assert torch.equal(head(hidden), torch.argmax(hidden @ weight.T, dim=1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bias": True}, r"the head has a bias of shape \(3,\)"),
        ({"final_logit_softcapping": 30.0}, r"transformed \(final_logit_softcapping=30.0\)"),
        ({"logit_scale": 0.0625}, r"transformed \(logit_scale=0.0625\)"),
        ({"logits_scaling": 8}, r"transformed \(logits_scaling=8\)"),
        ({"lm_head_multiplier": 0.5}, r"transformed \(lm_head_multiplier=0.5\)"),
        ({"vocab_size": 2}, "3 rows for a vocabulary of 2: padded vocabularies"),
    ],
)
def test_heads_that_change_the_logits_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CertifiedHead.from_model(fake_model(changed(2.0), **options))


def test_a_head_that_was_moved_or_cast_is_refused() -> None:
    weight = torch.randn(20, 16).bfloat16()
    head = CertifiedHead(weight)
    hidden = torch.randn(2, 16).bfloat16()
    head(hidden)
    with pytest.raises(RuntimeError, match=r"moved or cast after build \(now torch\.float32 on cpu\)"):
        head.float()(hidden)
