"""The synthetic heads are what their names say, so that the checks on them mean something."""

from __future__ import annotations

import pytest
import torch
from certhead.conformance.heads import SyntheticHead, synthetic_heads
from certhead.pyref.head import BLOCK, CAPACITY

HEADS = {head.name: head for head in synthetic_heads(0)}


def exact_logits(head: SyntheticHead) -> torch.Tensor:
    """FP64 logits of the states that are finite."""
    finite = head.hidden[head.hidden.isfinite().all(dim=1)]
    return finite.double() @ head.weight.double().T


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS.keys())
def test_a_head_can_be_certified_at_all(head: SyntheticHead) -> None:
    assert head.weight.dtype is head.hidden.dtype is torch.bfloat16
    assert head.weight.isfinite().all()
    assert head.weight.is_contiguous()
    assert head.weight.shape[1] == head.hidden.shape[1]
    assert len(head.about) > 15


def test_the_seed_decides_every_bit() -> None:
    again, other = synthetic_heads(0), synthetic_heads(1)
    for head, same, different in zip(HEADS.values(), again, other, strict=True):
        assert torch.equal(head.weight, same.weight)
        assert torch.equal(head.hidden.view(torch.int16), same.hidden.view(torch.int16))
        changed = not torch.equal(head.weight, different.weight)
        assert changed or not torch.equal(head.hidden, different.hidden)


def test_ties() -> None:
    top = exact_logits(HEADS["exact-ties"]).topk(2).values
    assert (top[:, 0] == top[:, 1]).float().mean() > 0.1
    logits = exact_logits(HEADS["ties-after-rounding"])
    assert len(logits[0].unique()) > 5
    assert len(logits.float().to(torch.bfloat16).unique()) == 1
    rows = HEADS["all-rows-equal"].weight
    assert len(rows.unique(dim=0)) == 1
    assert len(rows) > CAPACITY * BLOCK
    assert len(HEADS["duplicates"].weight.unique(dim=0)) * 5 == len(HEADS["duplicates"].weight)


def test_near_ties_differ_from_their_base_in_one_unit() -> None:
    rows = HEADS["near-ties"].weight
    base = rows.float().mode(dim=0).values.to(torch.bfloat16)
    assert ((rows != base).sum(dim=1) == 1).all()
    difference = (rows.view(torch.int16) - base.view(torch.int16)).abs()
    assert int(difference.max()) == 1


def test_cancellation_loses_most_of_the_magnitude() -> None:
    head = HEADS["cancellation"]
    mass = head.hidden.double().abs() @ head.weight.double().abs().T
    assert (exact_logits(head).abs() / mass).max() < 1e-2


def test_subnormals() -> None:
    smallest_normal = torch.finfo(torch.bfloat16).tiny
    weight, hidden = HEADS["subnormal-weights"].weight, HEADS["subnormal-states"].hidden
    assert (weight.abs() < smallest_normal).all()
    assert (weight != 0).float().mean() > 0.9
    assert (hidden[::2].abs() < smallest_normal).all()
    assert (hidden[1::2].abs() > smallest_normal).all()


def test_states_that_must_fall_back_stand_beside_others() -> None:
    hidden = HEADS["nonfinite-states"].hidden
    for present in (hidden.isnan(), hidden == torch.inf, hidden == -torch.inf):
        assert present.any()
    assert hidden.isfinite().all(dim=1).any()
    large = (HEADS["out-of-range-states"].hidden.abs() >= 2.0**16).any(dim=1)
    assert large.any()
    assert not large.all()
    assert (HEADS["zero-states"].hidden == 0).all(dim=1).any()
    assert (HEADS["zero-rows"].weight == 0).all(dim=1).any()
