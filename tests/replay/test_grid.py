"""The BF16 grid behind log probabilities: recovered, refused where there is none, and compared in ulps.

The truth is made with torch: logits rounded to BF16, FP32 log-softmax, the most likely entries. What is a
BF16 number is decided here by the bits of an FP32 number, and readings are searched by trying all of them in
exact fractions, which shares nothing with the module.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor, log2

import numpy as np
import pytest
import torch
from certhead.conformance.errors import BadInput
from certhead.conformance.replay.grid import (
    HISTOGRAM,
    UNIT_BITS,
    Grid,
    Status,
    compare_grids,
    differences_in_ulps,
    greedy_by_head,
    greedy_by_lists,
    greedy_by_logits,
    recover,
    recover_lists,
)
from certhead.conformance.replay.trace import NO_TOKEN, Trace
from certhead.kernels import CertifiedHead
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def bf16_logits(
    positions: int, vocabulary: int, scale: float, offset: float = 0.0, seed: int = 0
) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(positions, vocabulary, generator=generator) * scale + offset).bfloat16()


def lists(logits: torch.Tensor, k: int) -> tuple[Ints, Floats]:
    values, ids = torch.log_softmax(logits.float(), -1).topk(k, -1)
    return ids.numpy(), values.double().numpy()


def shifted_lists(logits: torch.Tensor, k: int) -> tuple[Ints, Floats]:
    """The other way to compute them: one subtraction of the log-sum-exp."""
    values, ids = (logits.float() - logits.float().logsumexp(-1, keepdim=True)).topk(k, -1)
    return ids.numpy(), values.clamp(max=0).double().numpy()


def trace_of(logits: torch.Tensor, k: int, tokens: torch.Tensor | None = None) -> Trace:
    tokens = logits.argmax(-1) if tokens is None else tokens
    ids, values = lists(logits, k)
    selected = torch.log_softmax(logits.float(), -1).gather(-1, tokens[:, None])[:, 0]
    ranks = (selected[:, None] <= torch.log_softmax(logits.float(), -1)).sum(-1)
    return Trace(
        token_ids=tokens.numpy(),
        logprobs=selected.double().numpy(),
        ranks=ranks.numpy().astype(np.int32),
        top_ids=ids,
        top_logprobs=values,
        top_ranks=np.zeros(ids.shape, dtype=np.int32),
    )


def true_differences(logits: torch.Tensor, ids: Ints) -> Floats:
    chosen = logits.double().numpy()[np.arange(len(ids))[:, None], ids]
    return chosen.max(1, keepdims=True) - chosen


def in_nats(below: Ints) -> Floats:
    return below.astype(np.float64) * 2.0**-UNIT_BITS


def is_bf16(value: Fraction) -> bool:
    with np.errstate(over="ignore"):
        rounded = np.float32(float(value))
    return Fraction(float(rounded)) == value and int(rounded.view(np.uint32)) & 0xFFFF == 0


def half_ulp(logprob: float) -> Fraction:
    return Fraction(float(np.spacing(np.float32(-logprob)))) / 2


def reads(logprobs: list[float], logits: list[Fraction]) -> bool:
    """Whether one shift explains the list as rounded differences from these logits; exact."""
    shifts = [(x - Fraction(p), half_ulp(p)) for x, p in zip(logits, logprobs, strict=True)]
    return max(shift - half for shift, half in shifts) <= min(shift + half for shift, half in shifts)


SHAPES = [
    (0.5, 0.0),
    (1.0, 0.0),
    (3.0, 0.0),
    (3.0, 15.0),
    (3.0, -10.0),
    (3.0, -50.0),
    (20.0, 0.0),
    (60.0, 0.0),
]


@pytest.mark.parametrize(("scale", "offset"), SHAPES)
@pytest.mark.parametrize("vocabulary", [100, 3000])
def test_logits_are_recovered_up_to_a_shift(scale: float, offset: float, vocabulary: int) -> None:
    logits = bf16_logits(200, vocabulary, scale, offset)
    ids, values = lists(logits, 64)
    grid = recover_lists(ids, values)
    assert not (grid.status == Status.INCONSISTENT).any()
    assert (grid.status == Status.IDENTIFIED).mean() >= 0.95  # the others have a logit near zero
    assert grid.resolved.mean() > 0.999
    assert (in_nats(grid.below) == true_differences(logits, ids))[grid.resolved].all()
    known = grid.logits()[grid.resolved].astype(np.float32)
    assert not (known.view(np.uint32) & 0xFFFF).any()  # each is a BF16 number


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**31),
    st.floats(0.5, 60),
    st.floats(-60, 60),
    st.integers(2, 60),
    st.booleans(),
    st.booleans(),
)
def test_honest_lists_always_read(
    seed: int, scale: float, offset: float, k: int, ties: bool, one_subtraction: bool
) -> None:
    logits = bf16_logits(20, 60, scale, offset, seed)
    if ties:
        logits[:, ::3] = logits[:, :1]
    ids, values = (shifted_lists if one_subtraction else lists)(logits, k)
    grid = recover_lists(ids, values)
    assert not (grid.status == Status.INCONSISTENT).any()
    assert (in_nats(grid.below) == true_differences(logits, ids))[grid.resolved].all()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(-24, -6), st.integers(1, 40), st.booleans())
def test_logits_near_zero_are_never_called_inconsistent(
    seed: int, exponent: int, how_many: int, at_top: bool
) -> None:
    """Also where they are finer than FP32 log probabilities can tell; then they are not resolved."""
    logits = bf16_logits(20, 40, 4.0, 0.0, seed)
    if at_top:
        logits = -logits.abs() * 4 - 1
    tiny = bf16_logits(20, 40, 2.0**exponent, 0.0, seed + 1)
    logits[:, :how_many] = tiny[:, :how_many]
    ids, values = lists(logits, 40)
    grid = recover_lists(ids, values)
    assert not (grid.status == Status.INCONSISTENT).any()
    wrong = in_nats(grid.below) - true_differences(logits, ids)
    assert (np.abs(wrong)[grid.resolved] < 2**-13).all()  # a few steps: another reading may hide them
    true = logits.double().numpy()[np.arange(20)[:, None], ids]
    exact = grid.resolved & (np.abs(true) >= 2**-9)  # the others are off by nothing, or all by one amount
    assert all(len(set(row[known])) <= 1 for row, known in zip(wrong, exact, strict=True))


def test_a_largest_logit_of_zero_is_read() -> None:
    """Its bits say nothing of the grid, and differences of three sizes admit no other."""
    logits = torch.tensor([[0.0, -255 * 2**-10, -129 * 2**-6, -255.0]]).bfloat16()
    ids, values = lists(logits, 4)
    grid = recover_lists(ids, values)
    assert (grid.highest[0], grid.lowest[0]) == (0, 0)
    assert (in_nats(grid.below) == true_differences(logits, ids)).all()


def test_a_logit_too_near_zero_is_not_resolved() -> None:
    logits = bf16_logits(1, 40, 4.0)
    logits[0, 5] = 1.5 * 2.0**-19
    ids, values = lists(logits, 40)
    grid = recover_lists(ids, values)
    assert grid.status[0] == Status.AMBIGUOUS
    assert (grid.resolved == (ids != 5)).all()
    assert (in_nats(grid.below) == true_differences(logits, ids))[grid.resolved].all()


@pytest.mark.parametrize(("scale", "offset"), SHAPES)
def test_unrounded_logits_are_inconsistent(scale: float, offset: float) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(200, 3000, generator=generator) * scale + offset
    grid = recover_lists(*lists(logits, 64))
    assert (grid.status == Status.INCONSISTENT).all()
    assert not grid.resolved.any()


@pytest.mark.parametrize("temperature", [0.7, 1.3])
def test_another_temperature_is_inconsistent(temperature: float) -> None:
    logits = bf16_logits(100, 3000, 3.0, 12.0).float() / temperature
    assert (recover_lists(*lists(logits, 64)).status == Status.INCONSISTENT).all()


def test_a_finer_format_reads_only_with_smaller_logits() -> None:
    """FP16's grid at 16 is BF16's at 2: the list reads, but not with logits of the true size."""
    logits = (bf16_logits(100, 3000, 3.0, 12.0).float() * 1.002).half().float()
    narrow = recover_lists(*lists(logits, 64))
    assert (in_nats(narrow.highest) < 16).all()
    assert (logits.max(-1).values > 16).all()
    wide = (bf16_logits(100, 300, 12.0, 12.0).float() * 1.002).half().float()
    statuses = recover_lists(*lists(wide, 64)).status
    assert (statuses == Status.INCONSISTENT).mean() > 0.9  # few lists of more than 16 nats have such a grid


def test_noise_of_a_thousandth_is_inconsistent() -> None:
    ids, values = lists(bf16_logits(200, 3000, 3.0, 12.0), 64)
    noise = np.random.default_rng(0).normal(0, 1e-3, values.shape)
    forged = np.minimum((values + noise).astype(np.float32), 0).astype(np.float64)
    assert (recover_lists(ids, forged).status == Status.INCONSISTENT).all()


def test_one_forged_entry_is_enough() -> None:
    ids, values = lists(bf16_logits(200, 3000, 3.0, 12.0), 64)
    forged = values.copy()
    forged[:, 17] = (values[:, 17] - 1e-2).astype(np.float32)
    assert (recover_lists(ids, forged).status == Status.INCONSISTENT).all()


def test_an_entry_a_few_fp32_ulps_off_is_not_identified() -> None:
    """It is still nearest to the same grid point, but no one shift explains it and the others."""
    ids, values = lists(bf16_logits(200, 50, 3.0, 12.0), 50)
    forged = values.astype(np.float32)
    forged[:, 30] += 3 * np.spacing(np.abs(forged[:, 30]))
    assert not (recover_lists(ids, forged.astype(np.float64)).status == Status.IDENTIFIED).any()


def test_numbers_that_fp32_does_not_have_are_inconsistent() -> None:
    """A log probability that was kept with six decimals is not the FP32 number that the model gave."""
    ids, values = lists(bf16_logits(20, 3000, 3.0, 12.0), 64)
    assert (recover_lists(ids, np.round(values, 6)).status == Status.INCONSISTENT).all()


def test_probabilities_above_one_are_inconsistent() -> None:
    """Whatever their grid: a shift of a whole list keeps it."""
    logits = bf16_logits(20, 3000, 3.0, 12.0)
    ids, _ = lists(logits, 64)
    moved = np.where(np.arange(20) == 3, 0.5, -0.5)[:, None] - true_differences(logits, ids)
    status = recover_lists(ids, moved).status
    assert status[3] == Status.INCONSISTENT
    assert (np.delete(status, 3) == Status.IDENTIFIED).all()


@pytest.mark.parametrize("k", [2, 3])
def test_short_lists_of_any_numbers_are_never_identified(k: int) -> None:
    """Two numbers often differ like two BF16 numbers, three sometimes: that is no evidence."""
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(2000, 1000, generator=generator) * 3 + 12
    statuses = recover_lists(*lists(logits, k)).status
    assert not (statuses == Status.IDENTIFIED).any()
    if k == 2:
        assert (statuses == Status.AMBIGUOUS).mean() > 0.5


def test_evidence_is_counted_in_bits() -> None:
    """Two entries of [8, 16) below one of [16, 32): steps of 1/16 where errors are half an ulp of FP32."""
    values = np.array([[-0.5, -4.5625, -4.8125]])
    grid = recover_lists(np.arange(3)[None], values)
    top = in_nats(grid.highest)[0]
    expected = -13.2  # there are about 2^13.2 logits for the first entry
    for value in values[0, 1:]:
        spacing = 2.0 ** (floor(log2(abs(top + 0.5 + value))) - 7)
        expected += log2(spacing / (2 * (2**-22 + 2**-25)))
    assert abs(grid.evidence[0] - expected) < 0.01


def test_missing_entries_are_no_entries() -> None:
    ids, values = lists(bf16_logits(4, 3000, 3.0, 12.0), 64)
    values[0, 1:] = np.nan
    values[1, 40:] = np.nan
    values[2, 63] = -9999.0
    values[3, 63] = -np.inf
    grid = recover_lists(ids, values)
    assert grid.status.tolist() == [Status.ABSENT, *[Status.IDENTIFIED] * 3]
    assert grid.resolved.sum(1).tolist() == [0, 40, 63, 63]
    assert (grid.ids[1, 40:] == NO_TOKEN).all()


GRID = np.unique(
    np.ldexp(np.arange(-255, 256)[:, None], np.arange(-14, 4)[None, :])
)  # BF16 numbers up to 2^11 in magnitude, and all of those above 2^-7


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-255, 255), min_size=2, max_size=6),
    st.integers(-6, 2),
    st.lists(st.integers(0, 3), min_size=6, max_size=6),
    st.booleans(),
)
def test_the_search_finds_what_trying_every_logit_finds(
    significands: list[int], exponent: int, finer: list[int], off_grid: bool
) -> None:
    """Whether there is a reading, and that the highest is the highest; signs and binades are mixed."""
    logits = [Fraction(s) * Fraction(2) ** (exponent - f) for s, f in zip(significands, finer, strict=False)]
    if off_grid:
        logits[0] += Fraction(2) ** (exponent - 9)
    largest = max(logits)
    values = [float(np.float32(float(x - largest - Fraction(3, 7)))) for x in logits]
    grid = recover_lists(np.arange(len(values))[None], np.array([values]))
    read = GRID[:, None] - np.array([float(largest - x) for x in logits])  # exact: few bits
    narrow = read.astype(np.float32)
    found = GRID[((narrow == read) & (narrow.view(np.uint32) & 0xFFFF == 0)).all(1)]
    if not found.size:
        return  # it may still read on finer steps, or with other differences within the errors
    assert reads(values, logits)
    assert grid.status[0] != Status.INCONSISTENT
    assert in_nats(grid.highest)[0] >= found.max()
    if grid.resolved.all():
        for end in (grid.highest, grid.lowest):
            assert all(is_bf16(Fraction(int(end[0] - below), 2**UNIT_BITS)) for below in grid.below[0])
        assert [Fraction(int(b), 2**UNIT_BITS) for b in grid.below[0]] == [largest - x for x in logits]


def test_a_reading_explains_the_list_exactly() -> None:
    logits = bf16_logits(50, 500, 4.0, 6.0)
    ids, values = lists(logits, 20)
    grid = recover_lists(ids, values)
    for row in range(50):
        read = [Fraction(x) for x in grid.logits()[row]]
        assert all(map(is_bf16, read))
        assert reads(values[row].tolist(), read)


def test_the_range_of_readings_holds_the_truth() -> None:
    for scale, offset in ((0.5, 0.0), (3.0, 0.0), (3.0, 15.0), (60.0, 0.0)):
        logits = bf16_logits(100, 3000, scale, offset)
        grid = recover_lists(*lists(logits, 64))
        top = logits.double().max(-1).values.numpy()
        assert (in_nats(grid.lowest) <= top).all()
        assert (in_nats(grid.highest) >= top).all()


def test_a_logit_moved_by_one_ulp_is_found_where_it_is() -> None:
    logits = bf16_logits(300, 3000, 3.0, 12.0)
    ids, _ = lists(logits, 64)
    rng = np.random.default_rng(4)
    columns = rng.integers(1, 40, 300)  # away from the list's end, so that the same tokens stay in it
    moved = logits.clone()
    raw = moved.view(torch.int16)
    for row, column in enumerate(columns):
        raw[row, ids[row, column]] += 1 if rng.integers(2) else -1  # the next BF16 number
    worker, verifier = (recover(trace_of(each, 64, logits.argmax(-1))) for each in (logits, moved))
    differences = differences_in_ulps(worker, verifier)
    expected = np.zeros((300, 65), dtype=np.bool_)
    expected[np.arange(300), columns] = True
    where = differences.shared & (differences.ulps != 0)
    assert (where[:, :64] == expected[:, :64]).all()
    assert (differences.ulps[where] == 1).all()
    comparison = compare_grids(worker, verifier)
    assert comparison.logits - comparison.equal == 300
    assert comparison.equal_share == Fraction(comparison.equal, comparison.logits)
    assert comparison.whole_equal == 0
    assert comparison.histogram[:2] == (comparison.equal, 300)


def test_the_largest_logit_moved_moves_no_other() -> None:
    """The shift is the one that most entries agree on, not the largest entry's."""
    logits = bf16_logits(100, 3000, 3.0, 12.0)
    moved = logits.clone()
    moved.view(torch.int16)[torch.arange(100), logits.argmax(-1)] += 1
    worker, verifier = recover(trace_of(logits, 64)), recover(trace_of(moved, 64, logits.argmax(-1)))
    differences = differences_in_ulps(worker, verifier)
    assert (differences.shared & (worker.ids == logits.argmax(-1).numpy()[:, None])).any(1).all()
    assert (differences.ulps == (differences.shared & (worker.ids == worker.ids[:, -1:]))).all()


def test_equal_logits_are_equal_whatever_the_log_sum() -> None:
    """A worker whose log-sum is off by many ulps has other log probabilities and the same logits."""
    logits = bf16_logits(100, 3000, 3.0, 12.0)
    ids, values = lists(logits, 64)
    shift = np.float32(0.003)
    other = (values.astype(np.float32)[:, :1] - shift) + -(true_differences(logits, ids)).astype(np.float32)
    comparison = compare_grids(recover_lists(ids, values), recover_lists(ids, other.astype(np.float64)))
    assert (other != values).all()
    assert comparison.equal == comparison.logits == 6400
    assert comparison.whole_equal == comparison.compared == comparison.identified == 100
    assert comparison.whole_share == 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(0, 4))
def test_differences_count_steps_of_the_grid(seed: int, most: int) -> None:
    """Against the distance between BF16 bit patterns, where the whole list keeps its shift."""
    logits = bf16_logits(10, 400, 3.0, 20.0, seed)
    steps = np.random.default_rng(seed).integers(-most, most + 1, (10, 400))
    steps[:, np.random.default_rng(seed + 1).permutation(400)[:260]] = 0  # most entries agree on the shift
    moved = (logits.view(torch.int16) + torch.tensor(steps, dtype=torch.int16)).view(torch.bfloat16)
    worker, verifier = recover(trace_of(logits, 60)), recover(trace_of(moved, 60, logits.argmax(-1)))
    differences = differences_in_ulps(worker, verifier)
    shared = differences.shared
    true_steps = np.abs(np.take_along_axis(steps, np.maximum(worker.ids, 0), 1))
    assert ((differences.ulps == 0) == (true_steps == 0))[shared].all()
    assert (differences.ulps <= true_steps)[shared].all()


entries = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12), st.booleans()), min_size=3, max_size=6)


@settings(max_examples=200, deadline=None)
@given(entries, entries, st.integers(8, 40), st.integers(8, 40))
@example([(i, i, True) for i in (1, 2, 3)], [(1, 0, True), (2, 1, True), (3, 4, True)], 40, 8)
def test_pairing_by_token_equals_a_naive_one(
    ours: list[tuple[int, int, bool]], theirs: list[tuple[int, int, bool]], top: int, other_top: int
) -> None:
    """Repeated tokens, unresolved entries and padding in any order, with eighths as logits."""
    eighth = 2 ** (UNIT_BITS - 3)

    def grid(some: list[tuple[int, int, bool]], highest: int) -> Grid:
        ids, below, resolved = (np.array([column]) for column in zip(*some, strict=True))
        return Grid(
            ids - 1,  # so that NO_TOKEN occurs
            below * eighth,
            resolved,
            np.array([Status.IDENTIFIED], dtype=np.uint8),
            np.array([highest * eighth]),
            np.array([highest * eighth]),
            np.array([99.0]),
        )

    def known(some: list[tuple[int, int, bool]], highest: int) -> dict[int, int]:
        logits: dict[int, int] = {}
        for token, below, resolved in some:
            if resolved and token - 1 != NO_TOKEN:
                logits.setdefault(token - 1, highest - below)
        return logits

    left, right = known(ours, top), known(theirs, other_top)
    both = left.keys() & right.keys()
    found = differences_in_ulps(grid(ours, top), grid(theirs, other_top))
    assert set(grid(ours, top).ids[found.shared].tolist()) == both
    assert found.shared.sum() == len(both)
    assert found.same_tokens[0] == (left.keys() == right.keys())
    if not both:
        return
    votes = Counter(right[token] - left[token] for token in both)
    shift = min(votes, key=lambda each: (-votes[each], abs(each), each))
    for column in np.flatnonzero(found.shared[0]):
        token = ours[column][0] - 1
        x, y = Fraction(left[token], 8), Fraction(right[token] - shift, 8)
        larger = max(abs(each + min(Fraction(shift, 8), 0)) for each in (x, y))
        ulp = Fraction(2) ** (floor(log2(larger)) - 7) if larger else Fraction(1, 2**UNIT_BITS)
        assert found.ulps[0, column] == ceil(abs(x - y) / ulp)


def test_other_models_share_little_and_counts_add() -> None:
    one = recover(trace_of(bf16_logits(60, 200, 3.0, 12.0, 1), 64))
    two = recover(trace_of(bf16_logits(60, 200, 3.0, 12.0, 2), 64))
    comparison = compare_grids(one, two)
    assert comparison.equal_share is not None
    assert comparison.equal_share < Fraction(1, 4)
    assert comparison.whole_equal == 0
    assert sum(comparison.histogram) == comparison.logits
    assert len(comparison.histogram) == len(HISTOGRAM)

    def rows(grid: Grid, part: slice) -> Grid:
        return replace(grid, **{name: getattr(grid, name)[part] for name in grid.__dataclass_fields__})

    parts = [compare_grids(rows(one, part), rows(two, part)) for part in (slice(0, 13), slice(13, 60))]
    assert parts[0] + parts[1] == comparison


def test_inconsistent_positions_are_counted_and_not_compared() -> None:
    trace = trace_of(bf16_logits(10, 3000, 3.0, 12.0), 64)
    forged = replace(trace, logprobs=np.where(np.arange(10) < 3, -0.123, trace.logprobs))
    comparison = compare_grids(recover(trace), recover(forged))
    assert comparison.verifier[Status.INCONSISTENT] == 3
    assert comparison.worker[Status.IDENTIFIED] == 10
    assert comparison.compared == comparison.whole_equal == 7


def test_a_selected_token_outside_the_list_is_one_more_entry() -> None:
    logits = bf16_logits(20, 3000, 3.0, 12.0)
    tokens = logits.float().argsort(-1, descending=True)[:, 100]
    grid = recover(trace_of(logits, 64, tokens))
    assert (grid.status == Status.IDENTIFIED).all()
    assert (grid.ids[:, -1] == tokens.numpy()).all()
    assert (in_nats(grid.below) == true_differences(logits, grid.ids)).all()


def test_a_selected_token_of_the_list_is_no_more_evidence() -> None:
    logits = bf16_logits(200, 3000, 3.0, 12.0)
    second = logits.float().argsort(-1, descending=True)[:, 1]
    trace = trace_of(logits, 3, second)
    alone = recover_lists(trace.top_ids, trace.top_logprobs)
    assert (recover(trace).evidence == alone.evidence).all()
    assert (alone.evidence > 0).any()


def test_lengths_must_match() -> None:
    one, two = (recover(trace_of(bf16_logits(n, 300, 3.0), 8)) for n in (3, 4))
    with pytest.raises(BadInput, match="the worker has 3 positions, the verifier 4"):
        compare_grids(one, two)
    with pytest.raises(BadInput, match=r"shape \(1, 2\) for log probabilities of shape \(1, 3\)"):
        recover_lists(np.zeros((1, 2), dtype=np.int64), np.zeros((1, 3)))


def test_no_positions_are_no_finding() -> None:
    grid = recover_lists(np.zeros((0, 4), dtype=np.int64), np.zeros((0, 4)))
    comparison = compare_grids(grid, grid)
    assert (comparison.positions, comparison.equal_share, comparison.whole_share) == (0, None, None)


def test_greedy_tokens_are_the_first_maxima_of_their_lists() -> None:
    logits = bf16_logits(50, 3000, 3.0, 12.0)
    logits[:10, 7] = logits[:10].max(-1).values  # ties, and the lower id is the first maximum
    logits[:10, 9] = logits[:10, 7]
    trace = trace_of(logits, 64)
    check = greedy_by_lists(trace, recover(trace))
    assert (check.positions, check.identical, check.different, check.undetermined) == (50, 50, 0, 0)
    later = trace_of(logits, 64, torch.where(torch.arange(50) < 10, 9, logits.argmax(-1)))
    check = greedy_by_lists(later, recover(later))
    assert (check.identical, check.different) == (40, 10)  # as likely, but not the first
    second = trace_of(logits, 64, logits.float().argsort(-1, descending=True)[:, 1])
    assert greedy_by_lists(second, recover(second)).identical <= 10
    both = check + greedy_by_lists(trace, recover(trace))
    assert (both.positions, both.identical) == (100, 90)


def test_ties_that_fill_the_list_are_undetermined() -> None:
    logits = bf16_logits(5, 300, 3.0, 12.0)
    logits[:, 100:120] = logits.max(-1, keepdim=True).values
    trace = trace_of(logits, 8)
    assert greedy_by_lists(trace, recover(trace)).undetermined == 5
    trace = trace_of(logits, 40)
    assert greedy_by_lists(trace, recover(trace)).identical == 5


def test_greedy_tokens_by_logits_and_by_the_certified_head() -> None:
    generator = torch.Generator().manual_seed(0)
    head = CertifiedHead((torch.randn(200, 64, generator=generator) * 0.1).bfloat16(), backend="torch")
    hidden = torch.randn(8, 64, generator=generator).bfloat16()
    tokens = head.stock_tokens(hidden)
    wrong = tokens.clone()
    wrong[3] = (wrong[3] + 1) % 200
    for expected, given_tokens in ((8, tokens), (7, wrong)):
        assert greedy_by_head(head, hidden, given_tokens).identical == expected
        assert greedy_by_logits(head.stock_logits(hidden), given_tokens).identical == expected
    with pytest.raises(BadInput, match=r"\(7,\) tokens for \(8,\) positions"):
        greedy_by_head(head, hidden, tokens[:7])


def test_it_is_fast_enough_for_a_run() -> None:
    """25,000 positions at top-64 in less than 30 s: a tenth of them here."""
    ids, values = lists(bf16_logits(2500, 2000, 3.0, 12.0), 64)
    start = time.perf_counter()
    grid = recover_lists(ids, values)
    compare_grids(grid, grid)
    assert time.perf_counter() - start < 3
