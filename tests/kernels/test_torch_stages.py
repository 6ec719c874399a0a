"""The torch stages against `pyref`, bit for bit, on small heads whole and on synthetic heads sampled."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from fractions import Fraction

import pytest
import torch
from certhead.conformance.heads import synthetic_heads
from certhead.conformance.stages import compare_stages, limbs_of
from certhead.kernels import CertifiedHead, Reason
from certhead.kernels import torch_stages as stages
from certhead.kernels.decision import REASON_NAMES
from certhead.kernels.quantize import QuantizedHead, quantize, row_of
from certhead.pyref import head as spec
from certhead.pyref.codec import decode, encode
from certhead.pyref.formats import BF16, FP32
from certhead.pyref.models import ANY_ORDER, FDPA, ErrorModel
from head_strategies import Case, cases, tensor
from hypothesis import given, settings
from hypothesis import strategies as st

HEADS = {head.name: head for head in synthetic_heads(1)}
STAGES = {"quantize", "limbs", "screen", "select", "rescore", "decide"}


@pytest.fixture(autouse=True)
def _forget_the_probe() -> Iterator[None]:
    yield
    stages.int_mm_is_exact.cache_clear()


def bits32(x: torch.Tensor) -> list[int]:
    return (x.contiguous().view(torch.int32).long() & 0xFFFFFFFF).flatten().tolist()


def copy_and_limbs(case: Case, gamma_num: int) -> tuple[QuantizedHead, stages.LimbTensors]:
    copy = quantize(tensor(case.weight), case.group)
    return copy, stages.limbs(tensor(case.hidden), case.group, gamma_num, copy.code_norm, case.limb_count)


@settings(max_examples=150)
@given(cases(max_rows=6, max_columns=24, max_states=3), st.sampled_from([ANY_ORDER, FDPA]))
def test_limbs_and_screen_equal_pyref(case: Case, model: ErrorModel) -> None:
    gamma_num = model.gamma_num(case.columns)
    copy, limb = copy_and_limbs(case, gamma_num)
    lo, hi = stages.ends(copy, slice(0, len(case.weight)), limb)
    center, width = stages.integers(copy, slice(0, len(case.weight)), limb)
    best, tops = stages.screen(copy, limb, 2)
    for m, state in enumerate(case.hidden):
        exact = spec.limbs(state, case.group, gamma_num, copy.code_norm, case.limb_count)
        assert exact is not None
        assert int(limb.reasons[m]) == Reason.NONE
        assert limbs_of(limb, m) == exact
        screened = [spec.screen(row_of(copy, i), exact, case.group) for i in range(len(case.weight))]
        assert center[m].tolist() == [s.center for s in screened]
        assert width[m].tolist() == [s.width for s in screened]
        assert bits32(lo[m]) == [s.lo_bits for s in screened]
        assert bits32(hi[m]) == [s.hi_bits for s in screened]
        uppers = [Fraction(decode(s.hi_bits, FP32)) for s in screened]
        assert Fraction(float(best[m])) == max(Fraction(decode(s.lo_bits, FP32)) for s in screened)
        assert [Fraction(t) for t in tops[m].tolist()] == [
            max(uppers[i : i + 2]) for i in range(0, len(uppers), 2)
        ]


@pytest.mark.parametrize("sign", [-1, 1])
def test_sums_beyond_24_bits_are_rounded_outwards(sign: int) -> None:
    weight = sign * (127 - torch.arange(6)[:, None] * torch.arange(300)[None] % 2).bfloat16()
    hidden = torch.full((1, 300), 255 / 128).bfloat16()
    hidden[0, ::3] = 253 / 128
    hidden[0, 1] = 3 / 8192
    head = CertifiedHead(weight)
    center, width = stages.integers(head.copy, slice(0, 6), head.limbs(hidden))
    assert (center.abs() - width > 2**24).all()
    for end in (center - width, center + width):
        assert (end.float() != end).any()
    assert not [r for r in compare_stages(head, hidden, rows=6) if r.differing]


@settings(max_examples=100)
@given(cases(max_rows=12, max_columns=12, max_states=3), st.integers(1, 3), st.integers(1, 6))
def test_whole_heads_equal_certify(case: Case, block: int, capacity: int) -> None:
    """Token, state, reason and counts of every position, with the stock head where it falls back."""
    weight, hidden = tensor(case.weight), tensor(case.hidden)
    head = CertifiedHead(weight, group=case.group, block=block, capacity=capacity)
    assert head.group == min(case.group, case.columns)
    got = head.decide(hidden)
    stock = head.stock_tokens(hidden)
    for m, state in enumerate(case.hidden):
        exact = spec.certify(case.weight, state, ANY_ORDER, group=head.group, block=block, capacity=capacity)
        token = int(stock[m]) if exact.token is None else exact.token
        assert int(got.tokens[m]) == token
        assert REASON_NAMES[int(got.reasons[m])] == exact.reason
        assert got.candidates is not None
        if exact.reason != "overflow":
            assert (int(got.candidates[m]), int(got.blocks[m])) == (exact.candidates, exact.blocks)


@pytest.mark.parametrize("name", HEADS)
def test_synthetic_heads_equal_pyref(name: str) -> None:
    made = HEADS[name]
    head = CertifiedHead(made.weight[:500])  # more rows cost time and show nothing new
    results = compare_stages(head, made.hidden, rows=3, positions=2, seed=4)
    assert {r.stage for r in results} <= STAGES
    assert not [r for r in results if r.differing], results
    assert all(r.compared for r in results)


@settings(max_examples=30)
@given(cases(max_rows=40, max_columns=12, max_states=3))
def test_small_heads_pass_the_stage_comparison(case: Case) -> None:
    head = CertifiedHead(tensor(case.weight), group=case.group)
    assert not [r for r in compare_stages(head, tensor(case.hidden), rows=5) if r.differing]


def test_the_comparison_can_fail() -> None:
    made = HEADS["ragged"]
    head = CertifiedHead(made.weight)
    head.copy.norm_codes.add_(1)
    failed = {r.stage for r in compare_stages(head, made.hidden, rows=3, positions=1) if r.differing}
    assert failed == {"quantize", "screen"}


@settings(max_examples=100)
@given(cases(max_rows=5, max_columns=24))
def test_the_enclosed_rescore_equals_pyref(case: Case) -> None:
    gamma_num = ANY_ORDER.gamma_num(case.columns)
    lo, hi = stages.rescore_enclosed(tensor(case.hidden), tensor(case.weight)[None], gamma_num)
    got = list(zip(bits32(lo), bits32(hi), strict=True))
    gamma = Fraction(gamma_num, 2**40)
    assert got == [spec.rescore_enclosed(row, case.hidden[0], gamma) for row in case.weight]


@given(st.lists(st.lists(st.integers(-100, 100).map(lambda n: n / 7), min_size=5, max_size=5), min_size=1))
def test_fold_equals_pyref(rows: list[list[float]]) -> None:
    got = stages.fold(torch.tensor(rows, dtype=torch.float64))
    assert [Fraction(v) for v in got.tolist()] == [spec.fold([Fraction(v) for v in row]) for row in rows]


ends = st.tuples(st.integers(-3, 3), st.integers(0, 2)).map(lambda p: (float(p[0]), float(sum(p))))


@given(
    st.lists(st.lists(st.one_of(ends, st.just((-0.0, 0.0))), min_size=7, max_size=7), min_size=1, max_size=3)
)
def test_decide_equals_pyref(positions: list[list[tuple[float, float]]]) -> None:
    """Blocks of two out of seven rows, so that the last block has a row that does not exist."""
    pairs = stages.Pairs(
        torch.arange(len(positions)).repeat_interleave(4), torch.arange(4).repeat(len(positions))
    )
    index, exists = stages.rows_of(pairs, 2, 7)
    both = torch.tensor(positions)[pairs.position[:, None], index].bfloat16()
    # the row that does not exist must not matter, whatever was computed for it
    both[~exists] = 100.0
    tokens, fixed = stages.decide(both[..., 0], both[..., 1], index, exists, pairs, len(positions))
    for m, values in enumerate(positions):
        exact = spec.decide_enclosed(range(7), [(encode(a, FP32), encode(b, FP32)) for a, b in values])
        assert (int(tokens[m]) if fixed[m] else None) == exact


def test_positions_without_rows_are_not_decided() -> None:
    pairs = stages.Pairs(torch.tensor([1]), torch.tensor([0]))
    index, exists = stages.rows_of(pairs, 2, 1)
    assert (index.tolist(), exists.tolist()) == ([[0, 0]], [[True, False]])
    level = torch.tensor([[1.0, 5.0]]).bfloat16()
    tokens, fixed = stages.decide(level, level, index, exists, pairs, 3)
    assert fixed.tolist() == [False, True, False]
    assert int(tokens[1]) == 0


def test_states_out_of_range_have_reasons_and_hold_zeros() -> None:
    states = torch.ones(6, 4, dtype=torch.bfloat16)
    for m, value in enumerate((float("nan"), float("inf"), -float("inf"), 2.0**16, -(2.0**127))):
        states[m, m % 4] = value
    limb = stages.limbs(states, 4, 1, 1)
    expected = [Reason.NONFINITE] * 3 + [Reason.REFUSED] * 2 + [Reason.NONE]
    assert limb.reasons.tolist() == [int(r) for r in expected]
    assert not limb.hi[:5].any()
    assert not limb.tail_codes[:5].any()
    both = torch.tensor([[float("inf"), 2.0**17]], dtype=torch.bfloat16)
    assert stages.limbs(both, 2, 1, 1).reasons.tolist() == [Reason.NONFINITE]


def test_sums_that_might_leave_int32_are_refused_exactly_from_the_limit_on() -> None:
    state = [encode(Fraction(255, 128), BF16)] * 300
    hidden = tensor((tuple(state),))
    last = bisect_left(range(20000), True, key=lambda q: spec.limbs(state, 50, 1 << 20, q) is None) - 1
    assert 100 < last < 19998
    assert stages.limbs(hidden, 50, 1 << 20, last).reasons.tolist() == [Reason.NONE]
    assert stages.limbs(hidden, 50, 1 << 20, last + 1).reasons.tolist() == [Reason.REFUSED]


@given(st.integers(0, 1 << 26), st.integers(-2, 2))
def test_integer_square_roots_round_up(root: int, offset: int) -> None:
    n = min(max(root * root + offset, 0), (1 << 52) - 1)
    assert int(stages._ceil_sqrt(torch.tensor([n]))) == spec.ceil_sqrt(n)


def test_small_working_sets_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, hidden = HEADS["ragged"].weight[:250], HEADS["ragged"].hidden[:5]
    head = CertifiedHead(weight)
    whole, limb = head.decide(hidden), head.limbs(hidden)
    best, tops = stages.screen(head.copy, limb, 16)
    monkeypatch.setattr(stages, "SCREEN_ELEMENTS", 100)
    monkeypatch.setattr(stages, "RESCORE_ELEMENTS", 9000)
    again = stages.screen(head.copy, limb, 16)
    assert torch.equal(best, again[0])
    assert torch.equal(tops, again[1])
    parts = head.decide(hidden)
    for name in ("tokens", "states", "reasons", "candidates", "blocks"):
        assert torch.equal(getattr(whole, name), getattr(parts, name))


def product(a: Sequence[Sequence[int]], b: Sequence[Sequence[int]]) -> list[list[int]]:
    return [[sum(x * y for x, y in zip(p, q, strict=True)) for q in b] for p in a]


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 9, 1), (3, 5, 7), (17, 16, 24), (2, 3, 300)])
def test_integer_products_are_exact(shape: tuple[int, int, int]) -> None:
    m, v, k = shape
    g = torch.Generator().manual_seed(m)
    a = torch.randint(-128, 128, (m, k), generator=g).to(torch.int8)
    b = torch.randint(-127, 128, (v, k), generator=g).to(torch.int8)
    a[0], b[0] = -128, 127
    assert stages.int_product(a, b).tolist() == product(a.tolist(), b.tolist())


@pytest.mark.parametrize("shifted", ["a", "b", None])
def test_an_inexact_integer_product_is_refused(monkeypatch: pytest.MonkeyPatch, shifted: str | None) -> None:
    """Some int8 paths shift one operand to unsigned and add pairs of products in 16 bits, saturating."""

    def broken(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if shifted is None:
            raise RuntimeError("not implemented here")
        left, right = a.int() + 128 * (shifted == "a"), b.int() + 128 * (shifted == "b")
        products = torch.nn.functional.pad(left[:, :, None] * right[None], (0, 0, 0, a.shape[1] % 2))
        pairs = products.view(a.shape[0], -1, 2, b.shape[1]).sum(dim=2).clamp(-(1 << 15), (1 << 15) - 1)
        extra = b.int().sum(dim=0)[None] if shifted == "a" else a.int().sum(dim=1)[:, None]
        return (pairs.sum(dim=1) - 128 * extra).int()

    made = HEADS["ragged"]
    weight, hidden = made.weight[:40], made.hidden[:3]
    before = CertifiedHead(weight).intervals(hidden)
    monkeypatch.setattr(torch, "_int_mm", broken)
    stages.int_mm_is_exact.cache_clear()
    assert not stages.int_mm_is_exact("cpu")
    after = CertifiedHead(weight).intervals(hidden)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    a = torch.full((1, 2), -128, dtype=torch.int8)
    b = torch.full((1, 2), 127, dtype=torch.int8)
    assert stages.int_product(a, b).tolist() == [[-2 * 128 * 127]]


def test_the_probe_accepts_an_exact_integer_product(monkeypatch: pytest.MonkeyPatch) -> None:
    used = []

    def exact(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        used.append(a.shape)
        return (a.double() @ b.double()).int()

    monkeypatch.setattr(torch, "_int_mm", exact)
    stages.int_mm_is_exact.cache_clear()
    assert stages.int_mm_is_exact("cpu")
    stages.int_product(torch.ones(2, 5, dtype=torch.int8), torch.ones(3, 5, dtype=torch.int8))
    assert used[-1] == (2, 5)
    stages.int_product(torch.ones(2, 1, dtype=torch.int8), torch.ones(3, 1, dtype=torch.int8))
    assert used[-1] == (2, 5)  # K = 1 is never given to it
