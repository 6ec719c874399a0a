"""The enclosed re-score on Triton against the torch stages and pyref, bit for bit, interpreted on a CPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from fractions import Fraction

import pytest
import torch
from certhead.conformance.heads import synthetic_heads
from certhead.kernels import Reason
from certhead.kernels import torch_stages as reference
from certhead.kernels.decision import REASON_NAMES
from certhead.kernels.quantize import bits, quantize
from certhead.kernels.rounding import fp32_down
from certhead.pyref import head as spec
from certhead.pyref.models import ANY_ORDER
from head_strategies import Case, cases, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from certhead.conformance.enclosed_stages import compare_enclosed, rescored
from certhead.kernels.triton_enclosed import NO_KEY, EnclosedRescore, sum_tile
from certhead.kernels.triton_head import MAX_POSITIONS, Tile, TritonPipeline, preferred_group

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS = {head.name: head for head in synthetic_heads(11)}
SMALL = Tile(64, 16, 64, 4, 2)
HALF_ULP = 2.0**-8  # of BF16 at 1: a sum of 1 + HALF_ULP is a midpoint, so its ends round apart


def make(weight: torch.Tensor, group: int | None = None, block: int = spec.BLOCK) -> TritonPipeline:
    weight = weight.bfloat16().contiguous().to(DEVICE)
    columns = weight.shape[1]
    copy = quantize(weight, min(group or preferred_group(columns), columns))
    return TritonPipeline(weight, copy, ANY_ORDER.gamma_num(columns), block=block)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=g).bfloat16()


def assert_equal(pipeline: TritonPipeline, hidden: torch.Tensor, **options: int) -> None:
    results = compare_enclosed(pipeline, hidden.bfloat16().to(DEVICE), SMALL, 2, **{"runs": 1, **options})
    assert [r.stage for r in results] == ["rescore enclosed", "decide enclosed"]
    assert not [r for r in results if r.differing], results


def selected(pipeline: TritonPipeline, positions: int, items: list[tuple[int, int]]) -> None:
    """The state after `select` with these (position, block) items, in this order."""
    work = torch.tensor([(m << 24) + b for m, b in items]).to(torch.int32)
    pipeline.work[: len(items)] = work.to(DEVICE)
    pipeline.work_size.fill_(len(items))
    pipeline.reasons[:positions] = 0
    owner = torch.tensor([m for m, _ in items], dtype=torch.int64)
    pipeline.counts[:positions] = torch.bincount(owner, minlength=positions).int().to(DEVICE)
    pipeline.totals.zero_()
    pipeline.tokens.fill_(-7)


def run(
    pipeline: TritonPipeline,
    hidden: torch.Tensor,
    items: list[tuple[int, int]] | None = None,
    capacity: int = spec.CAPACITY,
    programs: int = 5,
) -> tuple[torch.Tensor, list[int], list[int]]:
    """(ends [2, M, V], tokens, reasons) of the stage alone; without `items`, over every block."""
    hidden = hidden.bfloat16().to(DEVICE)
    positions = len(hidden)
    if items is None:
        items = [(m, b) for m in range(positions) for b in range(pipeline.n_blocks)]
    selected(pipeline, positions, items)
    ends = torch.full((2, positions, pipeline.rows), torch.nan, device=DEVICE)
    enclosed = EnclosedRescore(pipeline, capacity)
    enclosed.run(hidden, ends, programs=programs)
    reasons = pipeline.reasons[:positions].tolist()
    assert int(enclosed.undecided) == sum(r != Reason.NONE for r in reasons)
    assert pipeline.totals.tolist() == [reasons.count(r) for r in range(8)]
    return ends.cpu(), pipeline.tokens[:positions].tolist(), reasons


def decided(
    pipeline: TritonPipeline, hidden: torch.Tensor, items: list[tuple[int, int]]
) -> tuple[list[int], list[bool]]:
    """What the torch stages decide over the same items."""
    position, block = torch.tensor(sorted(items)).T
    pairs = reference.Pairs(position.to(DEVICE), block.to(DEVICE))
    lo, hi, index, exists = reference.rescore(
        pipeline.weight, hidden.bfloat16().to(DEVICE), pairs, pipeline.block,
        gamma_num=pipeline.gamma_num, exact=None,
    )  # fmt: skip
    token, fixed = reference.decide(lo, hi, index, exists, pairs, len(hidden))
    return token.tolist(), fixed.tolist()


def assert_ends_equal(pipeline: TritonPipeline, hidden: torch.Tensor) -> torch.Tensor:
    """Every row's ends at every position equal the torch stages' as bits; returns them."""
    hidden = hidden.bfloat16().to(DEVICE)
    got, _, _ = run(pipeline, hidden, capacity=1 << 20)
    position = torch.arange(len(hidden), device=DEVICE).repeat_interleave(pipeline.n_blocks)
    block = torch.arange(pipeline.n_blocks, device=DEVICE).repeat(len(hidden))
    want, _, _ = rescored(pipeline, hidden, reference.Pairs(position, block))
    assert not want.isnan().any()
    assert torch.equal(got.view(torch.int32), want.cpu().view(torch.int32))
    return got


# The whole call, after the screen


@pytest.mark.parametrize(
    ("rows", "columns", "positions"),
    [(1, 1, 1), (1, 1, 17), (1, 40, 3), (257, 1, 3), (16, 64, 1), (63, 65, 17), (131, 70, 3), (300, 33, 2),
     (33, 577, 3)],
)  # fmt: skip
def test_sizes_that_nothing_divides(rows: int, columns: int, positions: int) -> None:
    assert_equal(make(normal(rows, columns)), normal(positions, columns, seed=1) * 3, runs=2)


@pytest.mark.parametrize("name", HEADS)
def test_synthetic_heads(name: str) -> None:
    made = HEADS[name]
    assert_equal(make(made.weight[:100]), made.hidden[:3])


@pytest.mark.parametrize("capacity", [1, 2, 9])
def test_more_blocks_than_the_capacity_overflow(capacity: int) -> None:
    """Zero states keep all nine blocks, the others a few."""
    hidden = normal(5, 30, seed=2)
    hidden[2] = 0
    pipeline = make(normal(140, 30))
    assert_equal(pipeline, hidden, capacity=capacity)
    overflows = int(pipeline.reasons[2]) == Reason.OVERFLOW
    assert overflows == (capacity < pipeline.n_blocks)
    assert int(pipeline.tokens[2]) == (-1 if overflows else 0)


def test_special_states_keep_their_reasons_and_have_no_token() -> None:
    hidden = normal(7, 20, seed=3)
    hidden[1, 2], hidden[2, 0], hidden[3, 19] = torch.nan, torch.inf, -torch.inf
    hidden[4, 1] = 2.0**16
    hidden[5] = -0.0
    pipeline = make(normal(70, 20))
    assert_equal(pipeline, hidden)
    n, r = int(Reason.NONFINITE), int(Reason.REFUSED)
    assert pipeline.reasons[1:5].tolist() == [n, n, n, r]
    assert pipeline.tokens[1:5].tolist() == [-1] * 4


@settings(max_examples=25)
@given(cases(max_rows=12, max_columns=12, max_states=3), st.sampled_from([1, 2, 4]), st.integers(1, 6))
def test_whole_calls_equal_certify(case: Case, block: int, capacity: int) -> None:
    """Token and reason of every position as pyref has them; blocks of any power of two."""
    pipeline = make(tensor(case.weight), case.group, block)
    hidden = tensor(case.hidden).to(DEVICE)
    pipeline.limbs(hidden, case.limb_count)
    pipeline.screen(len(hidden), SMALL, case.limb_count)
    pipeline.select(len(hidden), SMALL, case.limb_count)
    EnclosedRescore(pipeline, capacity).run(hidden, programs=3)
    for m, state in enumerate(case.hidden):
        exact = spec.certify(
            case.weight, state, ANY_ORDER, group=pipeline.group, block=block, capacity=capacity,
            limb_count=case.limb_count,
        )  # fmt: skip
        assert REASON_NAMES[int(pipeline.reasons[m])] == exact.reason
        if exact.token is not None:
            assert int(pipeline.tokens[m]) == exact.token


# The ends


def finest(weight: torch.Tensor) -> TritonPipeline:
    """A pipeline whose radius is so small, a·2^-40, that a sum's rounding reaches the FP32 ends."""
    pipeline = make(weight)
    pipeline.gamma_num = 1
    return pipeline


def permuted(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The torch stages' ends [2, M, V] with the columns in another order."""
    order = torch.randperm(hidden.shape[1], generator=torch.Generator().manual_seed(0))
    rows = weight[:, order].expand(len(hidden), -1, -1)
    return torch.stack(reference.rescore_enclosed(hidden[:, order], rows, 1))


@pytest.mark.parametrize(
    "columns",
    [2, 3, 16, 31, 32, 33, 63, 64, 65, 127, 257, 511, 513, 1023, 1025, 2560, 4096, 4097, 8193, 1 << 15],
)
def test_the_sum_has_the_order_of_the_specification(columns: int) -> None:
    """Each product has its negative somewhere: what is left is the rounding of one order of the sum."""
    g = torch.Generator().manual_seed(columns)
    rows, positions = (19, 2) if columns < 1024 else (3, 1)
    weight = normal(rows, columns) * 2.0 ** torch.randint(-20, 15, (rows, columns), generator=g)
    hidden = normal(positions, columns, seed=1) * 2.0 ** torch.randint(-20, 13, (columns,), generator=g)
    order = torch.randperm(columns, generator=g)
    one, other = order[: columns // 2], order[columns // 2 : columns // 2 * 2]
    weight[:, other], hidden[:, other] = -weight[:, one], hidden[:, one]
    got = assert_ends_equal(finest(weight), hidden)
    if columns > 30:
        assert not torch.equal(permuted(hidden.bfloat16(), weight.bfloat16()), got)


@pytest.mark.parametrize("columns", [33, 300, 2560])
def test_the_sum_of_magnitudes_has_that_order_too(columns: int) -> None:
    """1024 · 33·2^-45 is an FP32 number, and one unit in the last place of the 1024 moves the end.

    Two small products, half such a unit each, make it where they meet before one is lost.
    """
    g = torch.Generator().manual_seed(columns)
    weight = torch.zeros(24, columns, dtype=torch.float64)
    for row in weight:
        at = torch.randperm(columns, generator=g)[:4]
        row[at] = torch.tensor([512.0, -512, 2.0**-43, -(2.0**-43)], dtype=torch.float64)
    got = assert_ends_equal(finest(weight), torch.ones(1, columns))
    order = torch.randperm(columns, generator=g)
    radius = reference.fold(weight.abs()[:, order]) * (33 * 2.0**-45) + 2.0**-90
    other = fp32_down(reference.fold(weight) - radius)
    assert 0 < int((got[0, 0] != other).sum()) < 24


@pytest.mark.parametrize("gamma_num", [1, 3, (1 << 35) + 1])
def test_any_gamma_enters_exactly(gamma_num: int) -> None:
    """Sums of zero, so that the ends are the radius and nothing else."""
    half = normal(20, 25)
    pipeline = make(torch.cat([half, -half], dim=1))
    pipeline.gamma_num = gamma_num
    states = normal(3, 25, seed=1)
    got = assert_ends_equal(pipeline, torch.cat([states, states], dim=1))
    assert torch.equal(got[0], -got[1])


def test_subnormal_zero_and_largest_ends() -> None:
    smallest, tiny, largest = 2.0**-133, 2.0**-126, 2.0**16 - 2.0**8
    weight = torch.zeros(20, 6)
    weight[1], weight[2] = smallest, -smallest
    weight[3], weight[4] = tiny, 2.0**-60
    weight[5], weight[6] = largest, -largest
    weight[7] = torch.tensor([largest, -largest, smallest, 0, 0, 0])
    weight[8] = torch.tensor([2.0**-45, 0, 0, 0, 0, 0])
    hidden = torch.stack([torch.full((6,), x) for x in (smallest, 2.0**-45, -1.0, largest, 0.0, -0.0)])
    got = assert_ends_equal(make(weight), hidden)
    assert float(got[1].max()) > 2.0**34
    assert float(got[1][got[1] > 0].min()) == 2.0**-90  # the radius of a zero row


def test_ends_below_the_normal_range() -> None:
    """Sums near −2^-90, which the floor of the radius cancels but for the part with γ."""
    weight = torch.tensor([[1 + k / 128, 0] for k in range(4)] + [[1.0, 2.0**-30]]) * 2.0**-45
    got = assert_ends_equal(finest(weight), torch.tensor([[-(2.0**-45)] * 2, [2.0**-45] * 2]))
    small = (got != 0) & (got.abs() < 2.0**-126)
    assert small.any(dim=2).tolist() == [[False, True], [True, False]]


@settings(max_examples=40)
@given(cases(max_rows=5, max_columns=24, max_states=2))
def test_ends_equal_pyref(case: Case) -> None:
    pipeline = make(tensor(case.weight))
    got, _, _ = run(pipeline, tensor(case.hidden))
    gamma = Fraction(pipeline.gamma_num, 2**spec.GAMMA_BITS)
    found = (got.view(torch.int32).long() & 0xFFFFFFFF).tolist()
    for m, state in enumerate(case.hidden):
        for i, row in enumerate(case.weight):
            assert (found[0][m][i], found[1][m][i]) == spec.rescore_enclosed(row, state, gamma)


def test_ends_of_long_rows_equal_pyref() -> None:
    weight, hidden = normal(3, 577), normal(1, 577, seed=1)
    pipeline = make(weight)
    got, _, _ = run(pipeline, hidden)
    gamma = Fraction(pipeline.gamma_num, 2**spec.GAMMA_BITS)
    for i in range(3):
        want = spec.rescore_enclosed(bits(weight[i]).tolist(), bits(hidden[0]).tolist(), gamma)
        assert tuple(int(x) & 0xFFFFFFFF for x in got[:, 0, i].view(torch.int32)) == want


# The decision


def test_equal_rows_go_to_the_first_and_zeros_of_both_signs_are_equal() -> None:
    weight = torch.zeros(90, 4)
    weight[[33, 50, 85]] = 1
    hidden = torch.tensor([[1.0, 1, 1, 1], [2, 2, 2, 2]])
    _, tokens, reasons = run(make(weight), hidden)
    assert (tokens, reasons) == ([33, 33], [0, 0])


@pytest.mark.parametrize(
    ("sums", "token", "reason"),
    [
        ([1, 1 + HALF_ULP, 0.5], 0, Reason.AMBIGUOUS),  # the midpoint may round up: row 1 contests
        ([1 + 2 * HALF_ULP, 1 + HALF_ULP, 0.5], 0, Reason.NONE),  # at most equal, and later
        ([1 + HALF_ULP, 1 + 2 * HALF_ULP, 0.5], 1, Reason.AMBIGUOUS),  # at most equal, but before
        ([1 + HALF_ULP, 0.5, 0.25], 0, Reason.NONE),  # the leader's own ends differ
        ([1 + HALF_ULP, 1 + HALF_ULP, 0.25], 0, Reason.AMBIGUOUS),
        ([0.5, 0.25, 1], 2, Reason.NONE),
        ([0.5, 0.25, 1 + HALF_ULP], 2, Reason.NONE),  # the rows past the end repeat it, and do not count
        ([-1, -1 - HALF_ULP, -2], 0, Reason.NONE),
        ([-1 - HALF_ULP, -1, -2], 1, Reason.AMBIGUOUS),
    ],
)
@pytest.mark.parametrize("apart", [1, 16, 40])
def test_near_ties(sums: list[float], token: int, reason: Reason, apart: int) -> None:
    """In one group of rows, in neighbouring blocks, and with a block between; items in either order."""
    weight = torch.full((2 * apart + 1, 2), -4.0)
    for i, value in enumerate(sums):
        high = torch.tensor(value).bfloat16().float()
        weight[i * apart] = torch.stack([high, torch.tensor(value) - high])
    pipeline = make(weight)
    items = [(0, b) for b in range(pipeline.n_blocks)]
    for order in (items, items[::-1]):
        for programs in (1, 2, 30):
            _, tokens, reasons = run(pipeline, torch.ones(1, 2), order, programs=programs)
            assert (tokens, reasons) == ([token * apart], [int(reason)])


def test_many_near_ties_in_any_order_of_the_items() -> None:
    """Sums on a grid of values and midpoints, so that every comparison of the decision is met."""
    g = torch.Generator().manual_seed(5)
    weight = torch.zeros(150, 30)
    weight[:, ::2] = 1 + torch.randint(0, 3, (150, 15), generator=g) * 2 * HALF_ULP
    weight[:, 1::2] = torch.randint(0, 2, (150, 15), generator=g) * HALF_ULP
    pipeline = make(weight)
    seen = set()
    for seed in range(4):
        hidden = torch.zeros(30, 30)
        pair = torch.randint(0, 15, (30,), generator=g)
        hidden[torch.arange(30), 2 * pair] = 1
        hidden[torch.arange(30), 2 * pair + 1] = 1
        hidden[::3] *= -1
        picked = [(m, b) for m in range(30) for b in torch.randperm(10, generator=g)[: 1 + m % 3].tolist()]
        items = [picked[i] for i in torch.randperm(len(picked), generator=g).tolist()]
        want, fixed = decided(pipeline, hidden, items)
        _, tokens, reasons = run(pipeline, hidden, items, programs=1 + 7 * (seed % 3))
        assert tokens == want
        assert reasons == [int(Reason.NONE if f else Reason.AMBIGUOUS) for f in fixed]
        seen |= set(reasons)
    assert seen == {Reason.NONE, Reason.AMBIGUOUS}


def test_positions_that_fell_back_are_left_alone() -> None:
    """Whatever the work list still holds of them, nothing is written but the missing token."""
    pipeline = make(normal(70, 20))
    hidden = normal(4, 20, seed=1).to(DEVICE)
    items = [(m, b) for m in range(4) for b in range(pipeline.n_blocks)]
    selected(pipeline, 4, items)
    pipeline.reasons[1], pipeline.reasons[3] = int(Reason.CHECKSUM), int(Reason.REFUSED)
    pipeline.counts[3] = 1000
    ends = torch.full((2, 4, 70), torch.nan, device=DEVICE)
    enclosed = EnclosedRescore(pipeline)
    enclosed.run(hidden, ends)
    assert ends.isnan().all(dim=2).tolist() == [[False, True, False, True]] * 2
    assert pipeline.reasons[[1, 3]].tolist() == [Reason.CHECKSUM, Reason.REFUSED]
    assert pipeline.tokens[[1, 3]].tolist() == [-1, -1]
    assert pipeline.totals.tolist() == [int((pipeline.reasons[:4] == r).sum()) for r in range(8)]
    assert int(enclosed.undecided) >= 2


def test_positions_beyond_the_batch_are_left_alone() -> None:
    pipeline = make(normal(20, 8))
    selected(pipeline, 2, [(0, 0), (1, 0), (0, 1)])
    pipeline.reasons[2:], pipeline.counts[2:] = 9, 1 << 20
    enclosed = EnclosedRescore(pipeline)
    enclosed.run(normal(2, 8).to(DEVICE))
    assert (pipeline.reasons[2:] == 9).all()
    assert (pipeline.tokens[2:] == -7).all()
    assert int(pipeline.totals.sum()) == 2


def test_work_items_with_the_sign_bit_and_positions_without_any() -> None:
    pipeline = make(normal(30, 8))
    hidden = normal(MAX_POSITIONS, 8, seed=4)
    items = [(m, m % 2) for m in range(120, MAX_POSITIONS, 8)]
    want, fixed = decided(pipeline, hidden, items)
    _, tokens, reasons = run(pipeline, hidden, items)
    chosen = [m for m, _ in items]
    assert [tokens[m] for m in chosen] == [want[m] for m in chosen]
    assert [r == Reason.NONE for r in reasons] == fixed
    assert sum(t == -1 for t in tokens) == MAX_POSITIONS - len(items)


def test_repeating_a_call_gives_the_same_bits_and_adds_to_the_totals() -> None:
    pipeline = make(normal(100, 30))
    hidden = normal(6, 30, seed=1).to(DEVICE)
    enclosed = EnclosedRescore(pipeline)
    seen = []
    for _ in range(3):
        pipeline.limbs(hidden)
        pipeline.screen(6, SMALL)
        pipeline.select(6, SMALL)
        enclosed.run(hidden)
        seen.append((pipeline.tokens[:6].tolist(), pipeline.reasons[:6].tolist(), int(enclosed.undecided)))
        for collecting in (enclosed.leader, enclosed.highest, enclosed.second):
            assert (collecting == NO_KEY).all()
        assert int(enclosed.arrivals) == 0
    assert seen[1:] == seen[:1] * 2
    assert int(pipeline.totals.sum()) == 18


# Shapes and buffers


def test_tiles_fit_every_number_of_columns() -> None:
    for columns in [*range(1, 1200), 2560, 4095, 4096, 4097, 7168, 16385, spec.K_MAX]:
        padded = 1 << (columns - 1).bit_length()
        for block in (1, 2, 16):
            rows, chunk, chunks = sum_tile(columns, block)
            assert chunk * chunks == padded
            assert block % rows == 0
            assert rows * chunk <= 512
            assert chunk == padded or 32 <= chunk <= 256
            assert chunks <= 128


COMPILE = """
import sys
import triton
from certhead.kernels.triton_enclosed_stages import enclose_kernel
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

columns, rows, chunk, chunks = map(int, sys.argv[1:])
types = {"weight": "*bf16", "hidden": "*bf16", "reasons": "*u8", "gamma_num": "i64"}
types |= dict.fromkeys(["lower_ends", "upper_ends"], "*fp32")
types |= dict.fromkeys(["leader", "highest", "second", "tokens", "totals"], "*i64")
types |= dict.fromkeys(["work", "work_size", "counts", "arrivals", "undecided"], "*i32")
types |= dict.fromkeys(["V", "M", "capacity"], "i32")
constants = {"K": columns, "BLOCK": 16, "ROWS": rows, "CHUNK": chunk, "CHUNKS": chunks, "M_PAD": 256}
constants |= {"DIAGNOSTIC": False, "SOFTWARE": False}
signature = {name: types.get(name, "constexpr") for name in enclose_kernel.arg_names}
source = ASTSource(enclose_kernel, signature, constants)
print(triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4}).asm["ptx"])
"""


@pytest.mark.parametrize("columns", [1, 40, 577])
def test_the_device_code_rounds_as_the_specification_does(columns: int) -> None:
    """Compiled for Hopper, which needs no GPU: the radius' product stays apart, subnormals survive."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    arguments = [str(n) for n in (columns, *sum_tile(columns, 16))]
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, *arguments], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    ptx = done.stdout
    products = re.findall(r"mul\.rn\.f64\s+(%\w+)", ptx)
    assert products
    for register in products:
        assert re.search(rf"add(?:\.rn)?\.f64\s+%\w+, {register}, 0d3A50000000000000;", ptx)
    assert ".ftz" not in ptx
    assert len(re.findall(r"cvt\.rn\.f32\.f64", ptx)) == 2 * len(products)


def test_the_buffers_are_small_whatever_the_head() -> None:
    assert EnclosedRescore(make(normal(20, 8))).work_bytes == 3 * 8 * MAX_POSITIONS + 8


def test_errors() -> None:
    pipeline = make(normal(20, 8))
    enclosed = EnclosedRescore(pipeline)
    for positions in (0, MAX_POSITIONS + 1):
        with pytest.raises(ValueError, match=f"^{positions} positions, the buffers hold 1 to 256$"):
            enclosed.run(torch.zeros(positions, 8).bfloat16())
    with pytest.raises(ValueError, match="capacity must be at least 1, not 0"):
        EnclosedRescore(pipeline, 0)


def test_the_comparison_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state off by one unit in the last place, and a leader that is not the best."""
    pipeline, hidden = make(normal(70, 8)), normal(2, 8, seed=1).to(DEVICE)
    stage = EnclosedRescore.run

    def moved(self: EnclosedRescore, states: torch.Tensor, ends: torch.Tensor) -> None:
        states = states.clone()
        states.view(torch.int16)[1, 3] += 1
        stage(self, states, ends)

    def led(self: EnclosedRescore, states: torch.Tensor, ends: torch.Tensor) -> None:
        self.leader[0] = 2**63 - 1
        stage(self, states, ends)

    for fault, name in ((moved, "rescore enclosed"), (led, "decide enclosed")):
        monkeypatch.setattr(EnclosedRescore, "run", fault)
        results = compare_enclosed(pipeline, hidden, SMALL, 2)
        assert name in {r.stage for r in results if r.differing}
