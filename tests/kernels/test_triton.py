"""The Triton kernels against the torch stages, bit for bit: on a GPU, or interpreted on small shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from certhead.conformance.heads import synthetic_heads
from certhead.kernels import CertifiedHead, Reason, State
from certhead.kernels.quantize import QuantizedHead, quantize
from certhead.pyref import head as spec
from certhead.pyref.models import FDPA

pytest.importorskip("triton")

from certhead.conformance.kernel_stages import compare_kernels, merge
from certhead.kernels import identify as identification
from certhead.kernels import plan, triton_engine
from certhead.kernels.plan import Configuration, configurations, fitting
from certhead.kernels.triton_head import (
    CHECK_ROWS,
    INTERPRETED,
    MAX_POSITIONS,
    Tile,
    TritonPipeline,
    checksum_rows,
    preferred_group,
)

# NaN and infinities in the interpreter's products are the point of some tests
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered in matmul")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS = {head.name: head for head in synthetic_heads(7)}
SMALL = Tile(64, 16, 64, 4, 2)
NAN, INF = float("nan"), float("inf")


def make(
    weight: torch.Tensor, group: int | None = None, max_positions: int = MAX_POSITIONS
) -> TritonPipeline:
    weight = weight.bfloat16().contiguous().to(DEVICE)
    columns = weight.shape[1]
    group = min(group or preferred_group(columns), columns)
    copy = quantize(weight, group)
    return TritonPipeline(weight, copy, FDPA.gamma_num(columns), max_positions=max_positions)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=g).bfloat16()


def poison(pipeline: TritonPipeline, positions: int) -> None:
    """What the comparison itself leaves alone: an element that no program writes must show."""
    for buffer in (pipeline.hi, pipeline.lo, pipeline.group_codes, pipeline.tail_codes, pipeline.digests):
        buffer[:positions] = 99
    for buffer in (pipeline.shift, pipeline.reasons, pipeline.best, pipeline.winner, pipeline.unit):
        buffer[:positions] = 3


def assert_equal(pipeline: TritonPipeline, hidden: torch.Tensor, tile: Tile, limb_count: int) -> None:
    poison(pipeline, len(hidden))
    results = compare_kernels(pipeline, hidden.to(DEVICE), tile, limb_count, chain_rows=64)
    assert [r.stage for r in results if r.stage != "rescore"] == [
        "limbs", "screen", "summary", "select", "decide",
    ]  # fmt: skip
    assert not [r for r in results if r.differing], results
    assert all(r.compared for r in results if r.stage != "rescore")  # no finite state, no chain


def test_without_a_gpu_the_kernels_are_interpreted() -> None:
    assert (DEVICE == "cpu") == INTERPRETED


# Sizes, tiles, limbs


@pytest.mark.parametrize("limb_count", [1, 2])
@pytest.mark.parametrize(
    ("rows", "columns", "positions", "group"),
    [
        (1, 1, 1, 1),
        (1, 40, 2, 7),
        (257, 1, 3, 1),
        (16, 64, 16, 16),
        (63, 65, 17, 16),
        (131, 70, 5, 3),
        (300, 33, 2, 33),
        (530, 17, 1, 5),
    ],
)
def test_sizes_that_nothing_divides(
    rows: int, columns: int, positions: int, group: int, limb_count: int
) -> None:
    pipeline = make(normal(rows, columns), group)
    assert_equal(pipeline, normal(positions, columns, seed=1) * 3, SMALL, limb_count)


@pytest.mark.parametrize("columns", [70, 256])
@pytest.mark.parametrize("positions", [3, 17, 33])
def test_every_tile_that_a_plan_can_pick(positions: int, columns: int) -> None:
    pipeline = make(normal(140, columns))
    hidden = normal(positions, columns, seed=2)
    picked = {(c.tile, c.limb_count) for c in fitting(pipeline, positions)}
    assert len(picked) >= 2
    for tile, limb_count in sorted(picked, key=str):
        assert_equal(pipeline, hidden, tile, limb_count)


def test_rows_of_a_tile_that_no_checksum_group_fills() -> None:
    """Two checksum groups, the second short; a tile of 128 rows holds checksum rows and nothing else."""
    assert_equal(make(normal(CHECK_ROWS + 5, 20)), normal(2, 20), Tile(128, 32, 128, 4, 2), 2)


@pytest.mark.parametrize(
    "name",
    ["near-ties", "exact-ties", "midpoints", "duplicates", "cancellation", "subnormal-weights",
     "subnormal-states", "mixed-scales", "huge-column", "zero-rows", "zero-states", "one-row",
     "one-column", "all-rows-equal", "nonfinite-states", "out-of-range-states", "ragged"],
)  # fmt: skip
def test_synthetic_heads(name: str) -> None:
    made = HEADS[name]
    assert_equal(make(made.weight[:100]), made.hidden[:3], SMALL, 2)


@pytest.mark.parametrize("limb_count", [1, 2])
def test_the_largest_integers_of_the_limbs(limb_count: int) -> None:
    """127.5 is the largest BF16 below 128: ±128 units are clamped with one limb, ±16320 fit two."""
    hidden = torch.tensor([[127.5, -127.5, -127.0, 1.0, -0.5], [1.0, -127.5, 0.0, 0.0, 0.0]]).bfloat16()
    assert_equal(make(normal(20, 5)), hidden, SMALL, limb_count)


def specials(columns: int) -> torch.Tensor:
    """States that end in every reason, between ordinary ones."""
    hidden = normal(9, columns, seed=3)
    hidden[1, 2] = NAN
    hidden[2, 0] = INF
    hidden[3, columns - 1] = -INF
    hidden[4, 1] = 2.0**16
    hidden[5, 3] = -(2.0**100)
    hidden[6] = 0
    hidden[7] = -0.0
    return hidden


@pytest.mark.parametrize("limb_count", [1, 2])
def test_special_states_are_decided_by_the_stock_head(limb_count: int) -> None:
    weight, hidden = normal(70, 20), specials(20)
    weight[5, 0] = 0  # 0·∞ is NaN, and NaN wins
    pipeline = make(weight)
    assert_equal(pipeline, hidden, SMALL, limb_count)
    pipeline.totals.zero_()
    for tensor in (pipeline.tokens, pipeline.work, pipeline.counts):
        tensor.fill_(-7)
    tokens = pipeline.run(hidden.to(DEVICE), SMALL, limb_count)
    stock = torch.argmax((hidden.float() @ weight.float().T).bfloat16(), dim=1)
    assert tokens.cpu().tolist()[1:] == stock.tolist()[1:]
    assert int(tokens[2]) == 5
    expected = [0, *[Reason.NONFINITE] * 3, *[Reason.REFUSED] * 2, 0, 0, 0]
    assert pipeline.reasons[:9].tolist() == [int(r) for r in expected]
    blocks = pipeline.n_blocks
    assert pipeline.counts[1:8].tolist() == [0] * 5 + [blocks] * 2  # zero states tie everywhere
    assert pipeline.totals.tolist() == [4, 3, 2, 0, 0, 0, 0, 0]


def test_sums_that_might_leave_int32_are_refused() -> None:
    weight = torch.ones(20, 1200).bfloat16()
    weight[13, :10] = 2
    hidden = torch.full((2, 1200), 255 / 128).bfloat16()
    hidden[1] = normal(1, 1200)[0]
    pipeline = make(weight)
    tokens = pipeline.run(hidden.to(DEVICE), SMALL, 2)
    assert pipeline.reasons[:2].tolist() == [Reason.REFUSED, Reason.NONE]
    assert int(pipeline.counts[0]) == 0  # the re-score takes all of its rows
    assert int(tokens[0]) == 13
    pipeline.run(hidden.to(DEVICE), SMALL, 1)
    assert pipeline.reasons[:2].tolist() == [Reason.NONE, Reason.NONE]


# The whole call


def integer_head(rows: int, positions: int) -> tuple[TritonPipeline, torch.Tensor, torch.Tensor]:
    """A head whose sums are exact in any order, states without a zero, and the stock head's tokens."""
    g = torch.Generator().manual_seed(rows)
    weight = torch.randint(-127, 128, (rows, 30), generator=g)
    hidden = torch.randint(1, 50, (positions, 30), generator=g) * (
        2 * torch.randint(0, 2, (positions, 30), generator=g) - 1
    )
    stock = (hidden @ weight.T).float().bfloat16().argmax(dim=1)
    return make(weight), hidden.bfloat16().to(DEVICE), stock.to(DEVICE)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("limb_count", [1, 2])
def test_run_gives_the_tokens_of_the_full_rescore(limb_count: int, checksum: bool) -> None:
    pipeline, hidden, want = integer_head(270, 19)
    for tensor in (pipeline.tokens, pipeline.work, pipeline.counts, pipeline.observed, pipeline.expected):
        tensor.fill_(-7)
    tokens = pipeline.run(hidden, SMALL, limb_count, checksum=checksum)
    assert torch.equal(tokens, want)
    assert tokens.data_ptr() == pipeline.tokens.data_ptr()
    assert not pipeline.reasons[:19].any()
    assert pipeline.totals.tolist() == [19, 0, 0, 0, 0, 0, 0, 0]
    assert (pipeline.counts[:19] < pipeline.n_blocks).all()


def test_repeating_a_call_gives_the_same_bits() -> None:
    pipeline = make(normal(70, 30))
    hidden = specials(30).to(DEVICE)
    seen = []
    for _ in range(3):
        pipeline.tops.fill_(NAN)
        pipeline.run(hidden, SMALL, 2)
        size = int(pipeline.work_size)
        seen.append(
            [
                pipeline.tokens[:9].clone(),
                pipeline.reasons[:9].clone(),
                pipeline.counts[:9].clone(),
                pipeline.best[:9].clone(),
                pipeline.winner[:9].clone(),
                pipeline.work[:size].sort().values,
                pipeline.tops.flatten()[: 9 * pipeline.n_blocks].view(torch.int32).clone(),
            ]
        )
    for again in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], again, strict=True))
    assert pipeline.totals.tolist() == [12, 9, 6, 0, 0, 0, 0, 0]


def test_a_smaller_batch_after_a_larger_one_sees_nothing_of_it() -> None:
    pipeline, hidden, want = integer_head(70, 2)
    pipeline.run(specials(30).to(DEVICE), SMALL, 2)
    assert torch.equal(pipeline.run(hidden, SMALL, 1), want)
    assert_equal(pipeline, hidden, SMALL, 2)


def test_accumulators_are_the_sums_of_every_row() -> None:
    g = torch.Generator().manual_seed(0)
    weight = torch.randint(-3, 4, (75, 37), generator=g)
    hidden = torch.randint(-3, 4, (3, 37), generator=g)
    found = make(weight).accumulators(hidden.bfloat16().to(DEVICE))
    assert torch.equal(found.cpu().long(), hidden @ weight.T)


def test_ties_go_to_the_first_row_and_zeros_of_both_signs_tie() -> None:
    weight = torch.zeros(90, 4)
    weight[[33, 50, 85]] = 1
    hidden = torch.tensor([[1.0, 1, 1, 1], [-1, -1, -1, -1], [0, 0, 0, 0], [-0.0, -0.0, -0.0, -0.0]])
    assert make(weight).run(hidden.bfloat16().to(DEVICE), SMALL, 2).tolist() == [33, 0, 0, 0]


def test_positions_whose_work_items_use_the_sign_bit() -> None:
    """Select and rescore alone, since 130 positions of `limbs` take the interpreter long."""
    pipeline, hidden, want = integer_head(19, 130)
    pipeline.reasons.zero_()
    pipeline.best.zero_()
    pipeline.tops.fill_(-1.0)
    pipeline.tops.flatten()[2 * 120 : 2 * 130] = 1.0
    pipeline.winner.fill_(-(2**63) + 1)
    for buffer in (pipeline.counts, pipeline.work_size, pipeline.arrivals):
        buffer.zero_()
    pipeline.select(130)
    assert pipeline.counts[:130].tolist() == [0] * 120 + [2] * 10
    pipeline.rescore(hidden)
    assert torch.equal(pipeline.tokens[120:130], want[120:])


def test_midpoints_of_bf16_go_to_the_even_neighbour() -> None:
    """16 + 1/16 rounds down to 16 and ties with it; 16.125 + 1/16 rounds up to 16.25."""
    weight = torch.tensor([[16.0, 0], [16, 1], [16, -1]]).repeat_interleave(17, dim=0)
    hidden = torch.tensor([[1.0, 1 / 16]]).bfloat16().to(DEVICE)
    assert make(weight).run(hidden, SMALL, 2).tolist() == [0]
    weight[:, 1] += 2
    weight[45:, 1] = 4  # 16.25 itself
    assert make(weight).run(hidden, SMALL, 2).tolist() == [17]


def test_sums_beyond_24_bits_are_rounded_outwards() -> None:
    weight = 127 - torch.arange(20)[:, None] * torch.arange(400)[None] % 2
    hidden = torch.full((2, 400), 255 / 128)
    hidden[1, ::3] = 253 / 128
    hidden[:, 1] = 3 / 8192
    for limb_count in (1, 2):
        assert_equal(make(weight), hidden.bfloat16(), SMALL, limb_count)
        assert_equal(make(-weight), hidden.bfloat16(), SMALL, limb_count)


# Checksums


def test_checksum_rows_are_the_column_sums_in_two_digits() -> None:
    codes = torch.randint(-127, 128, (CHECK_ROWS * 2 + 9, 6), generator=torch.Generator().manual_seed(0))
    codes[:CHECK_ROWS, 0], codes[:CHECK_ROWS, 1] = 127, -127
    rows = checksum_rows(codes.to(torch.int8))
    assert rows.shape == (6, 6)
    for i in range(3):
        total = codes[i * CHECK_ROWS : (i + 1) * CHECK_ROWS].sum(dim=0)
        assert torch.equal(256 * rows[2 * i].long() + rows[2 * i + 1], total)


Fault = Callable[[TritonPipeline], None]


def flip(tensor: torch.Tensor, index: tuple[int, ...], bit: int) -> None:
    mask = 1 << bit
    if bit == 8 * tensor.element_size() - 1:
        mask -= 2 << bit  # the sign bit
    tensor[index] ^= mask


FAULTS: dict[str, tuple[str, Fault]] = {
    "a code": ("build", lambda p: flip(p.codes, (77, 11), 0)),
    "a sign of a code": ("build", lambda p: flip(p.codes, (269, 0), 7)),
    "the first row": ("build", lambda p: flip(p.codes, (0, 29), 3)),
    "a high checksum digit": ("build", lambda p: flip(p.codes, (p.rows + 2, 4), 1)),
    "a low checksum digit": ("build", lambda p: flip(p.codes, (p.rows + 1, 4), 6)),
    "a low limb": ("limbs", lambda p: flip(p.lo, (1, 29), 0)),
    "a sum": ("screen", lambda p: flip(p.observed, (0,), 31)),
    "the last sum": ("screen", lambda p: flip(p.observed, (3 * 5 - 1,), 0)),
    "an expectation": ("screen", lambda p: flip(p.expected, (1,), 9)),
    "a high expectation": ("screen", lambda p: flip(p.expected, (2,), 2)),
}
HIGH_LIMB: tuple[str, Fault] = ("limbs", lambda p: flip(p.hi, (2, 3), 0))


def run_with_fault(
    pipeline: TritonPipeline, hidden: torch.Tensor, limb_count: int, stage: str, fault: Fault
) -> None:
    positions = hidden.shape[0]
    if stage == "build":
        fault(pipeline)
    pipeline.limbs(hidden, limb_count)
    if stage == "limbs":
        fault(pipeline)
    pipeline.screen(positions, SMALL, limb_count)
    if stage == "screen":
        fault(pipeline)
    pipeline.select(positions, SMALL, limb_count)
    pipeline.rescore(hidden)


@pytest.mark.parametrize(
    ("limb_count", "name"),
    [*((2, f) for f in FAULTS), (2, "a high limb"), (1, "a code"), (1, "a low limb"), (1, "a sum")],
)
def test_a_flipped_bit_is_caught_and_costs_no_token(limb_count: int, name: str) -> None:
    stage, fault = {**FAULTS, "a high limb": HIGH_LIMB}[name]
    pipeline, hidden, want = integer_head(270, 3)
    assert pipeline.n_groups == 2
    run_with_fault(pipeline, hidden, limb_count, stage, fault)
    caught = pipeline.reasons[:3] == Reason.CHECKSUM
    assert int(caught.sum()) == (3 if stage == "build" else 1)
    assert torch.equal(pipeline.tokens[:3], want)
    assert int(pipeline.totals[Reason.CHECKSUM]) == int(caught.sum())
    assert int(pipeline.totals.sum()) == 3


def test_a_checksum_does_not_hide_another_reason() -> None:
    pipeline = make(normal(70, 20))
    hidden = specials(20).to(DEVICE)
    run_with_fault(pipeline, hidden, 2, "build", lambda p: flip(p.codes, (3, 0), 2))
    n, r = int(Reason.NONFINITE), int(Reason.REFUSED)
    c = int(Reason.CHECKSUM)
    assert pipeline.reasons[:9].tolist() == [c, n, n, n, r, r, 0, 0, c]  # zero states meet no code


# Buffers and plans


def test_the_copy_is_held_once_and_the_buffers_are_bounded() -> None:
    rows, columns = 248_320, 16
    copy = QuantizedHead(
        codes=torch.zeros((rows, columns), dtype=torch.int8),
        scale=torch.ones(rows, dtype=torch.bfloat16),
        residual_codes=torch.zeros((rows, 1), dtype=torch.int8),
        norm_codes=torch.zeros(rows, dtype=torch.uint8),
        group=16,
    )
    pipeline = TritonPipeline(torch.zeros((rows, columns), dtype=torch.bfloat16), copy, 1)
    limb_bytes = 2 * MAX_POSITIONS * (2560 - columns)
    assert pipeline.work_bytes + limb_bytes < 64 << 20
    assert pipeline.copy.codes.data_ptr() == pipeline.codes.data_ptr()
    assert pipeline.copy.residual_codes.data_ptr() == pipeline.residual_codes.data_ptr()


@pytest.mark.parametrize("columns", [2560, 4096])
def test_metadata_is_under_two_percent(columns: int) -> None:
    copy = quantize(torch.ones(512, columns).bfloat16(), preferred_group(columns))
    pipeline = TritonPipeline(torch.ones(512, columns).bfloat16(), copy, 1)
    assert pipeline.metadata_bytes == 512 * (16 + 3) + 4 * columns < 0.02 * 512 * columns


def test_groups_fit_one_load() -> None:
    for columns in (1, 16, 256, 257, 576, 2560, 4096, 1 << 15):
        group = preferred_group(columns)
        assert group % 16 == 0
        assert -(-columns // group) <= 16


def test_a_step_that_divides_the_columns_is_preferred() -> None:
    pipeline = make(normal(20, 192))
    steps = {c.tile.columns for c in fitting(pipeline, 1)}
    assert steps == {64}
    assert len(fitting(pipeline, 1)) == 2  # they still differ in the pipeline's depth
    assert {c.tile.columns for c in fitting(make(normal(20, 70)), 1)} == {64}
    assert fitting(make(normal(20, 256)), 1) == configurations(1)
    assert replace(configurations(1)[0], checksum=False) != Configuration(SMALL, 2)


def test_timing_states_look_like_a_decode_step() -> None:
    weight = normal(500, 64).to(DEVICE)
    hidden = plan.decode_like(weight, 30, seed=1)
    assert hidden.dtype is torch.bfloat16
    assert torch.allclose(hidden.float().norm(dim=1), torch.full((30,), 159.0, device=DEVICE), rtol=0.01)
    top = (hidden.float() @ weight.float().T).topk(2, dim=1).values
    assert (top[:, 0] - top[:, 1]).median() > 1
    assert torch.equal(hidden, plan.decode_like(weight, 30, seed=1))


def emulate(
    monkeypatch: pytest.MonkeyPatch, pipeline: TritonPipeline, wrong: Callable[[], int]
) -> list[torch.Tensor]:
    """Let the re-score return the stock head's logits, one of them with `wrong()` in its bits."""
    calls: list[torch.Tensor] = []

    def accumulators(hidden: torch.Tensor) -> torch.Tensor:
        calls.append(hidden)
        stock = torch.matmul(hidden, pipeline.weight.T)
        stock.view(torch.int16)[0, 17] ^= wrong()
        return stock.float()

    monkeypatch.setattr(pipeline, "accumulators", accumulators)
    return calls


@pytest.mark.parametrize(("wrong", "logits"), [(0, 1_000_000), (1, 1_000_000), (0, 10)])
def test_identification_needs_a_million_equal_logits(
    monkeypatch: pytest.MonkeyPatch, wrong: int, logits: int
) -> None:
    pipeline = make(torch.ones(400, 8))
    emulate(monkeypatch, pipeline, lambda: wrong)
    found = identification.identify(pipeline, 32, logits=logits)
    assert found.identified == (not wrong and logits >= 1_000_000)
    assert found.mismatches == wrong
    if not wrong:
        assert set(found.distributions) == set(identification.WANTED)
    else:
        assert found.logits == 32 * 400  # stops at the first batch with a difference
    record = identification.as_record(found, pipeline.weight)
    assert record["verdict"] == ("identified" if found.identified else "not identified")


def test_an_identification_is_recalled_until_a_batch_differs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path))
    pipeline, wrong = make(torch.ones(4000, 8)), [0]
    calls = emulate(monkeypatch, pipeline, lambda: wrong[0])
    first = identification.recall_or_identify(pipeline, 32)
    assert first.identified
    full = len(calls)
    again = identification.recall_or_identify(pipeline, 32)
    assert (len(calls), again.identified) == (full + 1, True)
    assert again.logits == first.logits + 32 * 4000
    wrong[0] = 1
    assert not identification.recall_or_identify(pipeline, 32).identified
    wrong[0] = 0
    before = len(calls)
    assert identification.recall_or_identify(pipeline, 32).identified  # no verdict is recalled but a good one
    assert len(calls) == before + full
    (record,) = (tmp_path / "identified").iterdir()
    for text in ("", "[]", "{}", record.read_text().replace(first.key, "another")):
        record.write_text(text)
        before = len(calls)
        assert identification.recall_or_identify(pipeline, 32).identified
        assert len(calls) == before + full


# The back end


def served(monkeypatch: pytest.MonkeyPatch, planned: Configuration | None, identified: bool) -> CertifiedHead:
    """A head on the Triton back end with one plan for every batch shape, on any device."""
    pipeline, _, _ = integer_head(70, 1)
    head = CertifiedHead(pipeline.weight)
    found = identification.Identification(1, 1_000_000 * identified, 0, identification.WANTED, "")
    made = plan.Plan(planned, spec.Mode.EXACT if identified else None, found, 1.0, None, None)
    monkeypatch.setattr(triton_engine, "make_plan", lambda *_: made)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    head.engine = triton_engine.TritonEngine(pipeline.weight, head.copy, head.gamma_num, head.block)
    return head


def test_the_back_end_accounts_for_every_position(monkeypatch: pytest.MonkeyPatch) -> None:
    head = served(monkeypatch, Configuration(SMALL, 2), identified=True)
    _, hidden, want = integer_head(70, 3)
    hidden = torch.cat([hidden, hidden])
    hidden[4, 1] = NAN
    decision = head.decide(hidden)
    assert decision.tokens.tolist() == [*want.tolist(), int(want[0]), 0, int(want[2])]
    assert decision.states.tolist() == [State.EXACT] * 4 + [State.FALLBACK, State.EXACT]
    assert decision.reasons.tolist() == [Reason.NONE] * 4 + [Reason.NONFINITE, Reason.NONE]
    assert decision.candidates is None
    wide = torch.cat([hidden[:3], hidden[:3]], dim=1)[:, :30]
    assert not wide.is_contiguous()
    assert torch.equal(head(wide), want)
    assert head.counters == {"positions": 9, "exact": 8, "fallback": 1, "nonfinite": 1}
    again = head.decide(hidden[:3])
    head(-hidden[:3])
    assert torch.equal(again.tokens, want)  # a decision outlives the next call
    assert (head.mode, head.exact) == ("exact", None)
    assert head.metadata_bytes > head.copy.metadata_bytes


@pytest.mark.parametrize(("identified", "reason"), [(True, Reason.SLOWER), (False, Reason.UNIDENTIFIED)])
def test_the_stock_head_serves_where_the_plan_says_so(
    monkeypatch: pytest.MonkeyPatch, identified: bool, reason: Reason
) -> None:
    head = served(monkeypatch, None, identified)
    _, hidden, want = integer_head(70, 3)
    decision = head.decide(hidden)
    assert torch.equal(decision.tokens, want)
    assert decision.reasons.tolist() == [reason] * 3
    assert decision.states.tolist() == [State.FALLBACK] * 3
    head(hidden)
    name = reason.name.lower()
    assert head.counters == {"positions": 6, "exact": 0, "fallback": 6, name: 6}


def test_a_batch_shape_first_seen_under_capture_goes_to_the_stock_head(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    head = served(monkeypatch, Configuration(SMALL, 2), identified=True)
    _, hidden, want = integer_head(70, 3)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    decision = head.decide(hidden)
    assert torch.equal(decision.tokens, want)
    assert decision.reasons.tolist() == [Reason.UNIDENTIFIED] * 3
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    assert head.decide(hidden).states.tolist() == [State.EXACT] * 3
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert head.decide(hidden).states.tolist() == [State.EXACT] * 3


def test_batches_beyond_the_buffers_go_to_the_stock_head(monkeypatch: pytest.MonkeyPatch) -> None:
    head = served(monkeypatch, Configuration(SMALL, 2), identified=True)
    _, hidden, want = integer_head(70, MAX_POSITIONS + 1)
    decision = head.decide(hidden)
    assert torch.equal(decision.tokens, want)
    assert set(decision.reasons.tolist()) == {Reason.REFUSED}
    for call in (head, head.decide):
        with pytest.raises(ValueError, match=r"hidden has shape \(0, 30\), the head needs \[M ≥ 1, 30\]"):
            call(hidden[:0])


def test_results_merge_by_stage() -> None:
    pipeline = make(normal(20, 8))
    once = compare_kernels(pipeline, normal(2, 8).to(DEVICE), SMALL, 2)
    twice = merge([*once, *once])
    assert [(r.stage, r.compared) for r in twice] == [(r.stage, 2 * r.compared) for r in once]


def test_the_comparison_can_fail() -> None:
    pipeline = make(normal(70, 8))
    pipeline.residual_codes[3, 0] += 1
    pipeline.copy = replace(pipeline.copy, residual_codes=pipeline.copy.residual_codes.clone())
    pipeline.copy.residual_codes[3, 0] -= 1
    results = compare_kernels(pipeline, normal(2, 8).to(DEVICE), SMALL, 2)
    assert "screen" in {r.stage for r in results if r.differing}
