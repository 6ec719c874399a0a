"""The exact head: every inequality of docs/spec.md as exact rationals, and the contract by brute force.

The contract tests take a small head, form the interval that the error model admits for every row, and
require the certified token from every choice of accumulators at the corners of those intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest
from certhead.pyref import head as spec
from certhead.pyref.codec import decode, encode
from certhead.pyref.fdpa import fdpa_chain
from certhead.pyref.formats import BF16, FP32, FP64
from certhead.pyref.models import ANY_ORDER, FDPA, ErrorModel
from certhead.pyref.rounding import RD, RNE, RU, RoundingMode, next_down, next_up, round_to
from certhead.pyref.sums import TreeModel, arbitrary
from head_strategies import Case, cases, subnormal, wide
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

ETA = Fraction(1, 2**91)
RADIUS_FLOOR = Fraction(1, 2**90)


def bf16(*values: float | Fraction) -> list[int]:
    return [encode(v, BF16) for v in values]


def exact_values(bits: Sequence[int]) -> list[Fraction]:
    return [Fraction(decode(b, BF16)) for b in bits]


def fp32(bits: int) -> Fraction:
    return Fraction(decode(bits, FP32))


def dot(w: Sequence[Fraction], h: Sequence[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(w, h, strict=True)), Fraction(0))


def model_ends(row: Sequence[int], state: Sequence[int], model: ErrorModel) -> tuple[Fraction, Fraction]:
    """The interval that the model admits, exactly: the sum with γ·Σ|w·h| + η on either side."""
    w, h = exact_values(row), exact_values(state)
    z, mass = dot(w, h), dot(list(map(abs, w)), list(map(abs, h)))
    g = model.gamma(len(h)) * mass + ETA
    return z - g, z + g


def admissible(row: Sequence[int], state: Sequence[int], model: ErrorModel) -> tuple[Fraction, Fraction]:
    """The least and the greatest FP32 accumulator that the model admits."""
    low, high = model_ends(row, state, model)
    return Fraction(round_to(low, FP32, RU)), Fraction(round_to(high, FP32, RD))


def first_of_largest(values: Sequence[Fraction]) -> int:
    logits = [Fraction(round_to(v, BF16, RNE)) for v in values]
    return max(range(len(logits)), key=lambda i: (logits[i], -i))


def certify(case: Case, model: ErrorModel = ANY_ORDER, **options: object) -> spec.Certificate:
    options = {"group": case.group, "limb_count": case.limb_count, "block": 1, **options}
    return spec.certify(case.weight, case.hidden[0], model, **options)  # type: ignore[arg-type]


# The contract


@settings(max_examples=250)
@given(cases(), st.sampled_from([ANY_ORDER, FDPA]))
def test_an_answer_is_the_stock_token_for_every_admissible_accumulator(case: Case, model: ErrorModel) -> None:
    found = certify(case, model)
    event(found.state)
    if found.token is None:
        assert (found.state, found.reason in ("ambiguous", "refused")) == ("fallback", True)
        return
    assert (found.state, found.reason) == ("enclosed", None)
    for values in product(*(set(admissible(row, case.hidden[0], model)) for row in case.weight)):
        assert first_of_largest(values) == found.token


@settings(max_examples=150)
@given(cases(), st.data())
def test_exact_mode_follows_any_admissible_accumulators(case: Case, data: st.DataObject) -> None:
    """The kernel may return any value of the interval: the candidates must hold its winner."""
    state = case.hidden[0]
    ends = {row: admissible(row, state, ANY_ORDER) for row in case.weight}
    chosen = {row: data.draw(st.sampled_from(pair)) for row, pair in ends.items()}

    def kernel(_: Sequence[int], row: Sequence[int]) -> int:
        return encode(chosen[tuple(row)], FP32)

    found = certify(case, kernel=kernel)
    if found.state != "fallback":
        assert found.state == "exact"
        assert found.token == first_of_largest([chosen[row] for row in case.weight])
        assert found.token == spec.stock_token(case.weight, state, kernel)


@settings(max_examples=60)
@given(cases(max_rows=4, max_columns=40))
def test_the_tensor_core_chain_is_followed_in_both_modes(case: Case) -> None:
    stock = spec.stock_token(case.weight, case.hidden[0], fdpa_chain)
    exact = certify(case, FDPA, kernel=fdpa_chain)
    enclosed = certify(case, FDPA)
    assert exact.reason in (None, "refused")
    assert exact.token in (None, stock)
    assert enclosed.token in (None, stock)


@settings(max_examples=60)
@given(
    cases(max_rows=4, max_columns=12),
    st.randoms(use_true_random=False),
    st.sampled_from(tuple(RoundingMode)),
    st.sampled_from([None, FP32]),
)
def test_summation_trees_are_followed(
    case: Case, random: Random, mode: RoundingMode, product_fmt: None
) -> None:
    seed = random.randrange(1 << 30)
    stock = TreeModel(
        "random", lambda n: arbitrary(n, Random(seed), max_children=4), mode=mode, product_fmt=product_fmt
    )
    token = spec.stock_token(case.weight, case.hidden[0], stock.accumulator)
    assert certify(case).token in (None, token)
    assert certify(case, kernel=stock.accumulator).token in (None, token)


@pytest.mark.parametrize("limb_count", [1, 2])
def test_random_heads_are_answered(limb_count: int) -> None:
    random = Random(5)
    for _ in range(40):
        columns = random.randrange(3, 30)
        rows = [[encode(round_to(random.gauss(0, 1), BF16), BF16) for _ in range(columns)] for _ in range(12)]
        state = [encode(round_to(random.gauss(0, 3), BF16), BF16) for _ in range(columns)]
        rows[7] = rows[3] if random.random() < 0.3 else rows[7]
        found = spec.certify(rows, state, ANY_ORDER, block=2, limb_count=limb_count)
        assert (found.state, found.reason) == ("enclosed", None)
        assert 1 <= found.blocks <= found.candidates < 12


def test_a_tie_goes_to_the_first_row_only_where_the_sum_is_certain() -> None:
    equal = [bf16(1, 2), bf16(1, 2)]
    assert spec.certify(equal, bf16(1, 1), ANY_ORDER).reason is None  # 3 rounds to itself, whatever the order
    assert spec.certify(equal, bf16(1, 1), ANY_ORDER).token == 0
    near = [bf16(16, Fraction(1, 16)), bf16(16, Fraction(1, 16))]  # the midpoint between 16 and 16.125
    assert spec.certify(near, bf16(1, 1), ANY_ORDER).reason == "ambiguous"
    assert spec.certify(near, bf16(1, 1), FDPA, kernel=fdpa_chain).token == 0
    later = [bf16(1, 1), bf16(2, 1), bf16(1, 2), bf16(3, 0)]
    assert spec.certify(later, bf16(1, 1), ANY_ORDER).token == 1


def test_zeros_of_both_signs_tie() -> None:
    minus, plus = [0x8000, 0x8000], [0, 0]
    found = spec.certify([minus, plus], bf16(1, 1), FDPA, kernel=lambda h, w: 0x80000000 if w[0] else 0)
    assert found.token == 0
    assert spec.decide_exact([4, 9], [0x80000000, 0]) == 4
    assert spec.decide_enclosed([4, 9], [(0x80000000, 0x80000000), (0, 0)]) == 4
    assert spec.decide_enclosed([4, 9], [(0, 0), (0x80000000, 0x80000000)]) == 4


# Each stage


@settings(max_examples=150)
@given(cases(max_rows=1, max_columns=20))
def test_quantize_satisfies_its_inequalities_and_no_smaller_code_does(case: Case) -> None:
    w, row = exact_values(case.weight[0]), spec.quantize_row(case.weight[0], case.group)
    s, columns = row.scale, case.columns
    assert round_to(s, BF16) == s >= Fraction(1, 2**50)
    assert 127 * s >= max(map(abs, w))
    below = Fraction(next_down(s, BF16))
    assert s == Fraction(1, 2**50) or 127 * below < max(map(abs, w))
    rho, nu = spec.residual_shift(case.group), spec.norm_shift(columns)
    assert all(abs(q) <= 127 and abs(x - s * q) * 2 <= s for x, q in zip(w, row.codes, strict=True))
    for x, q in zip(w, row.codes, strict=True):
        if abs(x - s * q) * 2 == s:
            assert q % 2 == 0
    squares = [(x - s * q) ** 2 for x, q in zip(w, row.codes, strict=True)]
    assert len(row.residual_codes) == -(-columns // case.group)
    for g, code in enumerate(row.residual_codes):
        norm = 4**rho * sum(squares[g * case.group : (g + 1) * case.group])
        assert_smallest(code, lambda c, norm=norm: (c * s) ** 2 >= norm, 127)
    assert_smallest(row.norm_code, lambda c: (2**nu * c * s) ** 2 >= sum(x * x for x in w), 255)
    bound = spec.code_norm_bound([row.norm_code], columns)
    assert bound**2 >= sum(q * q for q in row.codes)


def assert_smallest(code: int, holds: object, limit: int | None = None) -> None:
    """The code satisfies the inequality, one less does not, and it fits its integer type."""
    assert callable(holds)
    assert code >= 0
    assert limit is None or code <= limit
    assert holds(code)
    assert code == 0 or not holds(code - 1)


@settings(max_examples=150)
@given(cases(max_rows=1, max_columns=20), st.integers(0, 1 << 30))
def test_limbs_satisfy_their_inequalities_and_no_smaller_code_does(case: Case, gamma_num: int) -> None:
    state = case.hidden[0]
    h, limb = exact_values(state), spec.limbs(state, case.group, gamma_num, 100, case.limb_count)
    assert limb is not None
    unit, tau = Fraction(2) ** limb.unit_exp, limb.group_shift
    t = [256 * a + b for a, b in zip(limb.hi, limb.lo, strict=True)]
    largest = max(map(abs, h))
    assert limb.unit_exp >= -40
    if limb.unit_exp > -40:
        digits = 13 if case.limb_count == 2 else 6
        assert unit * 2**digits <= largest < unit * 2 ** (digits + 1)
    if case.limb_count == 2:
        assert all(-64 <= a <= 64 and -128 <= b <= 127 for a, b in zip(limb.hi, limb.lo, strict=True))
        assert all(abs(n) <= 16320 for n in t)
        assert all(abs(x - unit * n) * 2 <= unit for x, n in zip(h, t, strict=True))
    else:
        assert set(limb.hi) == {0}
        assert all(abs(b) <= 127 for b in limb.lo)
        for x, n in zip(h, t, strict=True):
            clamped = abs(x) > 127 * unit
            assert (abs(n) == 127 and n * x > 0) if clamped else abs(x - unit * n) * 2 <= unit
    for x, n in zip(h, t, strict=True):
        clamped = case.limb_count == 1 and abs(x) > 127 * unit
        assert clamped or abs(x - unit * n) * 2 != unit or n % 2 == 0
    r_codes = [int(-(-(256 * abs(x - unit * n) / unit) // 1)) for x, n in zip(h, t, strict=True)]
    assert all(c <= 256 for c in r_codes)
    rho, nu = spec.residual_shift(case.group), spec.norm_shift(case.columns)
    norms = []
    for g, code in enumerate(limb.group_codes):
        square = sum(n * n for n in t[g * case.group : (g + 1) * case.group])
        norms.append(spec.ceil_sqrt(square))
        assert_smallest(norms[-1], lambda c, square=square: c * c >= square)
        assert_smallest(code, lambda c: c * 2**tau >= norms[-1], 127)
    assert tau == rho or max(norms) > 127 * 2 ** (tau - 1)
    r, n = spec.ceil_sqrt(sum(c * c for c in r_codes)), spec.ceil_sqrt(sum(i * i for i in t))
    gamma = Fraction(gamma_num, 2**40)
    need = (Fraction(r, 256) + gamma * (n + Fraction(r, 256))) * 2**nu
    assert_smallest(limb.tail_code, lambda c: c * 2 ** (tau - rho) >= need)


@settings(max_examples=200)
@given(cases(max_rows=2, max_columns=20), st.sampled_from([ANY_ORDER, FDPA]))
def test_the_screen_encloses_every_admissible_accumulator(case: Case, model: ErrorModel) -> None:
    state = case.hidden[0]
    rows = [spec.quantize_row(row, case.group) for row in case.weight]
    norm = spec.code_norm_bound([row.norm_code for row in rows], case.columns)
    limb = spec.limbs(state, case.group, model.gamma_num(case.columns), norm, case.limb_count)
    assert limb is not None
    for bits, row in zip(case.weight, rows, strict=True):
        found = spec.screen(row, limb, case.group)
        low, high = model_ends(bits, state, model)
        assert fp32(found.lo_bits) <= low
        assert high <= fp32(found.hi_bits)
        assert 0x80000000 not in (found.lo_bits, found.hi_bits)
        spread = dot_int(row.residual_codes, limb.group_codes) + row.norm_code * limb.tail_code
        assert found.spread == spread
        assert found.width == 2 ** (limb.group_shift - spec.residual_shift(case.group)) * spread + 1
        assert abs(found.center) + found.width < 2**31
        factor = row.scale * Fraction(2) ** limb.unit_exp
        assert round_to(factor, FP32) == factor
        inner = factor * round_to(found.center - found.width, FP32, RD)
        assert fp32(found.lo_bits) == round_to(inner, FP32, RD)


def dot_int(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


# products of ±2^-200 that cancel: FP64 adds their γ to the radius' floor without effect
VANISHING = Case(weight=((0x0D80, 0x8D80),), hidden=((0x0D80, 0x0D80),), group=2, limb_count=2)


@settings(max_examples=150)
@given(cases(max_rows=1, max_columns=20), st.sampled_from([ANY_ORDER, FDPA]))
@example(VANISHING, ANY_ORDER)
def test_the_enclosed_rescore_encloses_and_is_no_wider_than_it_must_be(case: Case, model: ErrorModel) -> None:
    row, state = case.weight[0], case.hidden[0]
    gamma = Fraction(model.gamma_num(case.columns), 2**40)
    lo, hi = (fp32(b) for b in spec.rescore_enclosed(row, state, gamma))
    low, high = model_ends(row, state, model)
    assert lo <= low
    assert high <= hi
    w, h = exact_values(row), exact_values(state)
    z, mass = dot(w, h), dot(list(map(abs, w)), list(map(abs, h)))
    slack = ((gamma + Fraction(1, 2**44)) * mass + RADIUS_FLOOR) * (1 + Fraction(1, 2**40))
    assert lo >= next_down(round_to(z - slack, FP32, RD), FP32)
    assert hi <= next_up(round_to(z + slack, FP32, RU), FP32)


@settings(max_examples=100)
@given(st.lists(st.floats(-1e30, 1e30), max_size=40))
@example([])
@example([1.0, 2.0**60, 1.0, -(2.0**60), 1.0])
def test_fold_is_what_float64_does(values: list[float]) -> None:
    size = 1
    while size < len(values):
        size *= 2
    x = np.zeros(size)
    x[: len(values)] = values
    while len(x) > 1:
        x = x[: len(x) // 2] + x[len(x) // 2 :]
    assert spec.fold([Fraction(v) for v in values]) == Fraction(float(x[0]))


@settings(max_examples=100)
@given(cases(max_rows=9, max_columns=4), st.integers(1, 4), st.integers(1, 5))
def test_select_keeps_what_can_win_and_counts_blocks(case: Case, block: int, capacity: int) -> None:
    state = case.hidden[0]
    rows = [spec.quantize_row(row, case.group) for row in case.weight]
    norm = spec.code_norm_bound([row.norm_code for row in rows], case.columns)
    limb = spec.limbs(state, case.group, ANY_ORDER.gamma_num(case.columns), norm)
    assert limb is not None
    screened = [spec.screen(row, limb, case.group) for row in rows]
    chosen = spec.select(screened, block=block, capacity=capacity)
    best = max(fp32(s.lo_bits) for s in screened)
    assert chosen.threshold == round_to(best, BF16)
    kept = [
        i for i, s in enumerate(screened) if Fraction(round_to(fp32(s.hi_bits), BF16)) >= chosen.threshold
    ]
    assert list(chosen.candidates) == kept
    blocks = sorted({i // block for i in kept})
    assert chosen.blocks == (tuple(blocks) if len(blocks) <= capacity else None)
    if chosen.blocks is not None:
        members = spec.rows_of(chosen.blocks, len(rows), block)
        assert members == [i for i in range(len(rows)) if i // block in blocks]


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.integers(-3, 3), st.integers(0, 2)).map(lambda p: (p[0], p[0] + p[1])),
        min_size=1,
        max_size=5,
    )
)
def test_the_enclosed_decision_is_exactly_what_the_interval_condition_can_say(
    pairs: list[tuple[int, int]],
) -> None:
    """An answer if and only if every choice inside the intervals has the same first maximum."""
    rows = [3 * i + 1 for i in range(len(pairs))]
    ends = [(encode(lo, FP32), encode(hi, FP32)) for lo, hi in pairs]
    winners = {
        max(range(len(pairs)), key=lambda i: (choice[i], -i))
        for choice in product(*(range(lo, hi + 1) for lo, hi in pairs))
    }
    assert spec.decide_enclosed(rows, ends) == (rows[winners.pop()] if len(winners) == 1 else None)


# Numbers worked out by hand


def test_quantize_by_hand() -> None:
    row = spec.quantize_row(bf16(127, -63.5, 0.25), 3)
    assert row.scale == 1
    assert row.codes == (127, -64, 0)  # −63.5 is a tie
    assert row.residual_codes == (72,)  # 2^7·√(0.5² + 0.25²) = 71.55
    assert row.norm_code == 142  # √20161.3125 = 141.99
    assert spec.quantize_row(bf16(127, -63.5, 0.25), 2).residual_codes == (64, 32)
    assert spec.quantize_row([0, 0x8000], 2) == spec.QuantizedRow(Fraction(1, 2**50), (0, 0), (0,), 0)
    assert spec.quantize_row(bf16(128), 1).scale == Fraction(65, 64)  # 129/128 is just below 128/127


def test_limbs_and_screen_by_hand() -> None:
    state = bf16(1, -0.5, Fraction(1, 2**20))
    limb = spec.limbs(state, 3, 1 << 30, 1)  # γ = 2^-10
    assert limb == spec.Limbs(
        unit_exp=-13, hi=(32, -16, 0), lo=(0, 0, 0), group_shift=7, group_codes=(72,), tail_code=9
    )  # T = ⌈√(8192² + 4096²)⌉ = 9159; R = 2; Y = ⌈2/256 + (9159 + 2/256)/1024⌉
    row = spec.quantize_row(bf16(127, -63.5, 0.25), 3)
    screened = spec.screen(row, limb, 3)
    assert screened.center == 127 * 8192 + 64 * 4096
    assert screened.spread == 72 * 72 + 142 * 9
    assert screened.width == 6463
    assert fp32(screened.lo_bits) == Fraction(1302528 - 6463, 8192)
    assert fp32(screened.hi_bits) == Fraction(1302528 + 6463, 8192)
    one = spec.limbs(bf16(127.5, -1.5), 2, 0, 1, limb_count=1)
    assert one is not None
    assert (one.unit_exp, one.lo, one.hi) == (0, (127, -2), (0, 0))  # 127.5 → 128 is clamped, −1.5 is a tie
    assert one.tail_code == 1
    two = spec.limbs(bf16(255, 129), 2, 0, 1)
    assert two is not None
    assert (two.unit_exp, two.hi, two.lo) == (-6, (64, 32), (-64, 64))
    zero = spec.limbs([0x8000, 0], 2, 1 << 30, 1)
    assert zero == spec.Limbs(-40, (0, 0), (0, 0), spec.residual_shift(2), (0,), 0)


def test_the_ends_are_rounded_outwards() -> None:
    """A centre beyond 2^24 and a scale with eight bits: both operations of an end round."""
    columns = 40
    row = spec.quantize_row(bf16(*[127] * (columns - 1), 126), columns)
    limb = spec.limbs(bf16(*[1.9921875] * columns), columns, 0, 1)
    assert limb is not None
    found = spec.screen(row, limb, columns)
    assert found.center == 16320 * (127 * 39 + 126) > 2**24
    factor = row.scale * Fraction(2) ** limb.unit_exp
    assert fp32(found.lo_bits) <= factor * (found.center - found.width)
    assert fp32(found.hi_bits) >= factor * (found.center + found.width)
    assert fp32(found.hi_bits) == round_to(factor * round_to(found.center + found.width, FP32, RU), FP32, RU)
    assert fp32(found.lo_bits) == round_to(factor * round_to(found.center - found.width, FP32, RD), FP32, RD)
    assert round_to(found.center + found.width, FP32, RD) != round_to(found.center + found.width, FP32, RU)


def test_shifts_are_the_finest_that_fit() -> None:
    for group in (1, 2, 3, 15, 16, 17, 64, 100, 576, 2560):
        rho = spec.residual_shift(group)
        assert 4**rho * group <= 254**2 < 4 ** (rho + 1) * group
    for columns in (1, 3, 4, 5, 16, 17, 576, 2560, 1 << 15):
        nu = spec.norm_shift(columns)
        assert 127**2 * columns <= 255**2 * 4**nu
        assert nu == 0 or 127**2 * columns > 255**2 * 4 ** (nu - 1)
    assert (spec.residual_shift(16), spec.residual_shift(64), spec.norm_shift(576)) == (5, 4, 4)


def test_the_default_group_costs_under_a_percent() -> None:
    for columns in (1, 20, 320, 399, 400, 576, 2560, 4096):
        group = spec.default_group(columns)
        if group == columns:
            assert all(100 * (-(-columns // g) + 3) >= columns for g in range(16, columns, 16))
        else:
            assert group % 16 == 0
            assert 100 * (-(-columns // group) + 3) < columns
            assert 100 * (-(-columns // (group - 16 or 1)) + 3) >= columns
    assert spec.default_group(576) == 288
    assert spec.default_group(2560) == 128


def test_small_helpers() -> None:
    assert [spec.ceil_sqrt(n) for n in (0, 1, 2, 4, 5, 9, 10)] == [0, 1, 2, 2, 3, 3, 4]
    assert [spec.ceil_div(a, 4) for a in (-5, -4, 0, 1, 4, 5)] == [-1, -1, 0, 1, 1, 2]
    assert [spec.nearest_even(Fraction(n, 2)) for n in (1, 3, 5, -1, -3)] == [0, 2, 2, 0, -2]
    assert spec.first_max([Fraction(1), Fraction(3), Fraction(3)]) == 1
    assert spec.groups(5, 2) == [range(0, 2), range(2, 4), range(4, 5)]


# Refusals


def test_states_out_of_range_are_refused_whatever_the_weights() -> None:
    weight = [bf16(1, 2), bf16(0, 0)]
    for special in (0x7F80, 0xFF80, 0x7FC0, 0xFFC1, 0x7F81):
        found = spec.certify(weight, [special, 0], ANY_ORDER)
        assert found == spec.Certificate(None, "fallback", "nonfinite", 0, 0)
    for large in (2.0**16, -(2.0**16), 2.0**120):
        assert spec.certify(weight, bf16(large, 0), ANY_ORDER).reason == "refused"
        assert spec.range_reason([*bf16(large), 0x7F80]) == "nonfinite"
    assert spec.certify(weight, [0x477F, 0], ANY_ORDER).token == 0


def test_sums_that_might_leave_int32_are_refused_exactly_from_the_limit_on() -> None:
    state = bf16(*[1.9921875] * 300)
    free = spec.limbs(state, 50, 1 << 20, 0)
    assert free is not None
    t = [256 * a + b for a, b in zip(free.hi, free.lo, strict=True)]
    whole = spec.ceil_sqrt(sum(n * n for n in t))
    shift = free.group_shift - spec.residual_shift(50)
    widest = 2**shift * (127 * sum(free.group_codes) + 255 * free.tail_code) + 1
    norm = (2**31 - 1 - widest) // whole  # the last Q with Q·N + width < 2^31
    assert spec.limbs(state, 50, 1 << 20, norm) == free
    assert spec.limbs(state, 50, 1 << 20, norm + 1) is None
    big = [bf16(*[1.0] * 1200), bf16(*[0.5] * 1200)]
    assert spec.certify(big, bf16(*[1.9921875] * 1200), ANY_ORDER).reason == "refused"
    assert spec.certify(big, bf16(*[1.9921875] * 1200), ANY_ORDER, limb_count=1).token == 0


def test_more_blocks_than_the_capacity_overflow() -> None:
    rows = [bf16(1, 2)] * 9
    assert spec.certify(rows, bf16(1, 1), ANY_ORDER, block=2, capacity=5).token == 0
    found = spec.certify(rows, bf16(1, 1), ANY_ORDER, block=2, capacity=4)
    assert found == spec.Certificate(None, "fallback", "overflow", 9, 0)


@pytest.mark.parametrize(
    ("weight", "hidden", "message"),
    [
        ([], [0], "V=0, K=1"),
        ([[]], [], "V=1, K=0"),
        ([[0], [0, 0]], [0], "row 1 has 2 columns, the state has 1"),
        ([[0] * 32769], [0] * 32769, "K=32769 exceeds 32768"),
        ([[0x3F80, 0x7F80]], [0, 0], "element 1 is not finite: BF16 bits 0x7f80"),
        ([[0x4780]], [0], r"weight magnitude 65536.0 is not below 2\^16"),
    ],
)
def test_bad_input_is_named(weight: list[list[int]], hidden: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        spec.certify(weight, hidden, ANY_ORDER)


def test_accumulators_that_are_not_finite_are_no_tokens() -> None:
    with pytest.raises(ValueError, match="not finite: FP32 bits 0x7f800000"):
        spec.stock_token([[0]], [0], lambda h, w: 0x7F800000)


@settings(max_examples=60)
@given(st.lists(st.one_of(wide, subnormal), min_size=1, max_size=20))
def test_prepared_rows_and_one_row_heads(row: list[int]) -> None:
    prepared = [spec.quantize_row(row, 4)]
    found = spec.certify([row], row, ANY_ORDER, quantized=prepared, group=4)
    assert (found.token, found.state, found.candidates, found.blocks) == (0, "enclosed", 1, 1)


def test_fp64_products_of_bf16_are_exact() -> None:
    """What `rescore` takes for granted: a product of two BF16 numbers fits FP64."""
    for a, b in product([0x0001, 0x007F, 0x477F, 0x3FFF, 0x80FF], repeat=2):
        exact = exact_values([a])[0] * exact_values([b])[0]
        assert round_to(exact, FP64) == exact
