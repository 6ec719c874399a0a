"""The int8 copy against `pyref`: every number of every row, and the rows that FP64 cannot settle."""

from __future__ import annotations

import pytest
import torch
from certhead.conformance.heads import synthetic_heads
from certhead.kernels import quantize as module
from certhead.kernels.quantize import bits, quantize, row_of
from certhead.pyref import head as spec
from head_strategies import Case, cases, tensor
from hypothesis import given, settings

HEADS = {head.name: head for head in synthetic_heads(3)}


def assert_equal_rows(weight: torch.Tensor, group: int) -> None:
    copy = quantize(weight, group)
    for i in range(len(weight)):
        assert row_of(copy, i) == spec.quantize_row(bits(weight[i]).tolist(), group)


@settings(max_examples=150)
@given(cases(max_rows=6, max_columns=24))
def test_rows_equal_pyref(case: Case) -> None:
    weight = tensor(case.weight)
    assert_equal_rows(weight, case.group)
    assert bits(weight).tolist() == [list(row) for row in case.weight]


@pytest.mark.parametrize("name", HEADS)
def test_synthetic_heads_equal_pyref(name: str) -> None:
    weight = HEADS[name].weight
    assert_equal_rows(weight[:: max(1, len(weight) // 8)], spec.default_group(weight.shape[1]))


def test_norms_that_are_integers_are_settled_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scale 1 and integer or half-integer norms: FP64 alone could give one too many."""
    settled = []
    exact = spec.quantize_row

    def spy(row: list[int], group: int) -> spec.QuantizedRow:
        settled.append(row)
        return exact(row, group)

    rows = [
        [127, 0, 0, 0],  # norm 127
        [127, 63.5, 0.5, 0.5],
        [127, 0.375, 0.5, 0],  # residual norm 5/8
        [127, 0.40625, 0.25, 0.125],
        [127, 84, 12, 4],  # norm √(16129 + 7056 + 144 + 16)
        [3, 4, 12, 84],  # norm 85, scale 84/127 rounded up
        [0, 0, 0, 0],
    ]
    weight = torch.tensor(rows).bfloat16()
    monkeypatch.setattr(module.spec, "quantize_row", spy)
    copy = quantize(weight, 4)
    monkeypatch.undo()
    assert bits(weight[0]).tolist() in settled
    assert bits(weight[2]).tolist() in settled
    for i in range(len(weight)):
        assert row_of(copy, i) == spec.quantize_row(bits(weight[i]).tolist(), 4)
    assert int(copy.norm_codes[0]) == 127
    assert int(copy.residual_codes[2, 0]) == 40  # 2^6 · 5/8: ρ = 6 for a group of 4


def test_few_rows_of_an_ordinary_head_need_exact_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    exact, settled = spec.quantize_row, []

    def spy(row: list[int], group: int) -> spec.QuantizedRow:
        settled.append(row)
        return exact(row, group)

    monkeypatch.setattr(module.spec, "quantize_row", spy)
    quantize(torch.randn(4000, 64, generator=torch.Generator().manual_seed(0)).bfloat16(), 16)
    assert len(settled) < 40  # those whose scale is a power of two and whose norm is a dyadic number


@pytest.mark.parametrize("offset", [-(2.0**-36), 0.0, 2.0**-36])
def test_a_ceiling_is_doubtful_only_near_an_integer(offset: float) -> None:
    x = torch.tensor([7 * (1 + offset), 7.001, 6.999, 0.0], dtype=torch.float64)
    ceiling, doubtful = module._ceil_near(x)
    assert doubtful.tolist() == [True, False, False, False]
    assert ceiling.tolist()[1:] == [8, 7, 0]


def test_chunks_and_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(23, 10, generator=torch.Generator().manual_seed(1)).bfloat16()
    whole = quantize(weight, 4)
    monkeypatch.setattr(module, "CHUNK_ELEMENTS", 55)
    finished: list[int] = []
    parts = quantize(weight, 4, finished.append)
    assert finished == [5, 5, 5, 5, 3]
    for name in ("codes", "scale", "residual_codes", "norm_codes"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))
    assert [whole.codes.dtype, whole.scale.dtype] == [torch.int8, torch.bfloat16]
    assert [whole.residual_codes.dtype, whole.norm_codes.dtype] == [torch.int8, torch.uint8]
    assert whole.metadata_bytes == 23 * (2 + 3 + 1)
    assert whole.code_norm == spec.code_norm_bound(whole.norm_codes.tolist(), 10)


def test_metadata_is_under_a_percent_of_the_codes() -> None:
    for columns in (576, 2560, 4096):
        copy = quantize(torch.ones(3, columns, dtype=torch.bfloat16), spec.default_group(columns))
        assert copy.metadata_bytes < 0.01 * copy.codes.numel()
