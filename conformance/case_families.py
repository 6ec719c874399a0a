"""Makes the cases: families of hard inputs, each from a seed, with pyref's bits as what is wanted.

Near ties are solved for, not hoped for: `solved_row` appends columns that bring a row's stock accumulator
to a chosen FP32 number exactly, so two rows can be equal, one BF16 spacing apart, or half of one and an
FP32 spacing more or less. `random.Random` alone is used, so every Python gives the same corpus.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

from certhead.pyref import head as spec
from certhead.pyref.codec import decode
from certhead.pyref.fdpa import HOPPER
from certhead.pyref.formats import BF16, FP32
from certhead.pyref.models import MODELS
from certhead.pyref.rounding import RoundingMode, round_to, round_to_bits

from .cases import Answer, Case, pack
from .drivers.pyref_driver import PyrefDriver, stock_token
from .drivers.ranks import shards

Given: TypeAlias = dict[str, Any]
Maker: TypeAlias = Callable[[random.Random], Iterator[Given]]

FP32_OFFSETS = {"equal": (0, 0), "ulp": (2, 0), "half-minus": (1, -1), "half": (1, 0), "half-plus": (1, 1)}
"""Distance of the second of two tied rows: half-spacings of BF16, then spacings of FP32."""


def generate(seed: int = 0) -> list[Case]:
    """The corpus. The same seed gives the same bits."""
    return [case for stage, maker in FAMILIES for case in family_cases(stage, maker, seed)]


def family_cases(stage: str, maker: Maker, seed: int) -> Iterator[Case]:
    """The cases of one family."""
    family = maker.__name__.split("_", 1)[1].replace("_", "-")
    rng = random.Random(f"{stage}/{family}/{seed}")
    for number, given in enumerate(maker(rng)):
        yield complete(Case(f"{stage}/{family}/{number}", stage, family, given, {}))


def complete(case: Case) -> Case:
    """The case with the bits that pyref returns."""
    special = {"fault": _fault_answer, "ranks": _ranks_answer}
    answer = next((a for name, a in special.items() if name in case.given), PyrefDriver().answer)
    want = answer(case)
    return Case(case.id, case.stage, case.family, case.given, want)


def _fault_answer(case: Case) -> Answer:
    """A flipped bit must end in fallback(checksum) wherever it changes a sum, with the stock token."""
    fault, hidden, group = case.given["fault"], case.rows("hidden"), case.given["group"]
    weight = case.rows("weight")
    rows = [spec.quantize_row(row, group) for row in weight]
    norm = spec.code_norm_bound([row.norm_code for row in rows], len(weight[0]))
    gamma_num = MODELS[case.given["model"]].gamma_num(len(weight[0]))
    reasons: list[str | None] = []
    for m, state in enumerate(hidden):
        limb = spec.limbs(state, group, gamma_num, norm, case.given["limb_count"])
        assert limb is not None
        if "code" in fault:
            column = fault["code"][1]
            touched = 256 * limb.hi[column] + limb.lo[column] != 0
        else:
            touched = fault["limb"][0] == m
        reasons.append("checksum" if touched else "none")
    tokens: list[str | None] = [pack("token", [stock_token(weight, state)]) for state in hidden]
    return {"decide": {"reason": reasons}, "token": {"token": tokens}}


def _ranks_answer(case: Case) -> Answer:
    """The token of the head that is not split, and the stock token of each rank's rows."""
    weight, states = case.rows("weight"), case.rows("hidden")
    parts = [(start, shard.rows("weight")) for start, shard in shards(case)]
    tokens: list[str | None] = [pack("token", [stock_token(weight, state)]) for state in states]
    winners: list[str | None] = [
        pack("winners", [start + stock_token(rows, state) for start, rows in parts]) for state in states
    ]
    return {"decide": {"winners": winners}, "token": {"token": tokens}}


def bf16(x: Fraction | int | float) -> int:
    """The nearest BF16 bits."""
    return round_to_bits(Fraction(x), BF16, RoundingMode.RNE)


def _two(exponent: int) -> Fraction:
    return Fraction(2) ** exponent


def normal(rng: random.Random, scale: Fraction | int = 1) -> int:
    """Bits of a bell-shaped number of about that size."""
    return bf16(scale * Fraction(sum(rng.randrange(-4096, 4097) for _ in range(6)), 3 * 4096))


def normals(rng: random.Random, columns: int, scale: Fraction | int = 1) -> list[int]:
    return [normal(rng, scale) for _ in range(columns)]


def small_integers(rng: random.Random, low: int, high: int, count: int) -> list[int]:
    return [bf16(rng.randrange(low, high)) for _ in range(count)]


def spread(rng: random.Random, columns: int, low: int, high: int) -> list[int]:
    """Random signs and significands, exponents between `low` and `high`."""
    return [
        bf16(
            rng.choice((-1, 1)) * Fraction(128 + rng.randrange(128), 128) * _two(rng.randrange(low, high + 1))
        )
        for _ in range(columns)
    ]


def _weight(rows: Sequence[Sequence[int]]) -> list[str]:
    return [pack("weight", row) for row in rows]


# quantize


def quantize_given(rows: Sequence[Sequence[int]], group: int) -> Given:
    return {"group": group, "weight": _weight(rows)}


def quantize_gaussian(rng: random.Random) -> Iterator[Given]:
    """Ragged widths and groups."""
    for columns, group in ((1, 1), (5, 5), (16, 16), (17, 16), (33, 16), (40, 48), (23, 3), (64, 16)):
        scale = Fraction(1 + rng.randrange(100), 64) * _two(rng.randrange(-9, 9))
        yield quantize_given([normals(rng, columns, scale) for _ in range(3)], group)


def quantize_ties(rng: random.Random) -> Iterator[Given]:
    """Weights halfway between two codes, of either parity and sign."""
    for exponent in (-3, 0, 7):
        row = [bf16(127 * _two(exponent))]
        row += [bf16((n + Fraction(1, 2)) * _two(exponent)) for n in (0, 1, 2, 3, 62, -1, -2, -3, -61)]
        yield quantize_given([row], 4)


def quantize_scale(rng: random.Random) -> Iterator[Given]:
    """Largest weights whose 127th part is a BF16 number, or is just above one."""
    rows = [
        [bf16(127), bf16(3)],
        [bf16(127) + 1, bf16(-5)],
        [bf16(127) - 1, bf16(1)],
        [bf16(65280), bf16(255)],
    ]
    rows += [[bf16(127 * _two(-50)), bf16(_two(-50))], [bf16(127 * _two(-50)) + 1, bf16(_two(-51))]]
    rows += [[bf16(126 * _two(-50)), bf16(_two(-49))], [1, 0x8001], [0, 0x8000], [0x007F, 0x0080]]
    yield quantize_given(rows, 2)


def quantize_norms(rng: random.Random) -> Iterator[Given]:
    """Norms that are whole numbers of their unit, and norms just above one."""
    for column in (Fraction(1, 4), Fraction(1, 2), Fraction(3, 8), Fraction(257, 1024)):
        rows = [[bf16(127), bf16(column), bf16(column)], [bf16(127), bf16(-column), 0], [bf16(127), 0, 0]]
        yield quantize_given(rows, 1)
    yield quantize_given([[bf16(127)] * 16, [bf16(127)] * 15 + [bf16(126)], [bf16(127)] * 4 + [0] * 12], 16)


# limbs


def limbs_given(
    states: Sequence[Sequence[int]],
    group: int,
    limb_count: int,
    gamma_num: int = 1 << 22,
    code_norm: int = 1000,
) -> Given:
    return {
        "group": group,
        "limb_count": limb_count,
        "gamma_num": pack("gamma_num", [gamma_num]),
        "code_norm": pack("code_norm", [code_norm]),
        "hidden": [pack("hidden", state) for state in states],
    }


def limbs_gaussian(rng: random.Random) -> Iterator[Given]:
    """Ragged widths and groups, one limb and two, any γ."""
    for columns, group in ((1, 1), (7, 3), (16, 16), (33, 16), (40, 40), (64, 16)):
        for limb_count in (1, 2):
            states = [normals(rng, columns, _two(rng.randrange(-20, 12))) for _ in range(3)]
            yield limbs_given(states, group, limb_count, rng.randrange(1, 1 << 26))


def limbs_ties(rng: random.Random) -> Iterator[Given]:
    """Entries halfway between two units, and limbs on the border between two high limbs."""
    for limb_count, top in ((2, 13), (1, 6)):
        halves = [bf16((n + Fraction(1, 2)) * s) for n in (0, 1, 2, 3, 30) for s in (1, -1)]
        yield limbs_given([[bf16(_two(top)), *halves]], 4, limb_count)
    borders = [128, -128, 127, -129, 129, -127, 128 + 256, -128 - 256, 255, 256]
    yield limbs_given([[bf16(_two(13)), *map(bf16, borders)]], 16, 2)
    yield limbs_given([[bf16(Fraction(255, 2)), bf16(Fraction(-255, 2)), bf16(127), bf16(64)]], 2, 1)
    yield limbs_given([[bf16(16320), bf16(-16320), bf16(16192), bf16(-16256)]], 2, 2)


def limbs_tiny(rng: random.Random) -> Iterator[Given]:
    """At and below the smallest unit: subnormals, both zeros, one nonzero entry."""
    for limb_count in (1, 2):
        states = [[0, 0x8000, 0], [1, 0x8001, 0x7F], [bf16(_two(-41)), bf16(3 * _two(-41)), bf16(_two(-40))]]
        states += [[bf16(_two(-27)), bf16(_two(-26)), bf16(_two(-70))], [bf16(_two(-34)), 0, bf16(_two(-33))]]
        yield limbs_given(states, 2, limb_count)


def limbs_refused(rng: random.Random) -> Iterator[Given]:
    """NaN, infinities and 2^16 beside ordinary positions and the largest that is allowed."""
    bad = [0x7FC0, 0xFFC1, 0x7F80, 0xFF80, bf16(65536), bf16(-65536), bf16(65280), 0xFF7F, 0x7F81]
    for limb_count in (1, 2):
        states = []
        for value in bad:
            state = normals(rng, 6)
            state[rng.randrange(6)] = value
            states.append(state)
        states.append([0x7F80, bf16(70000), 0, 0, 0, 0])
        yield limbs_given(states, 4, limb_count)


def limbs_shift(rng: random.Random) -> Iterator[Given]:
    """Group norms at 127 times a power of two, and just above."""
    tops = (127, 128, 254, 255, 126 * 128, 127 * 64)
    yield limbs_given([[bf16(8192), bf16(t)] for t in tops], 1, 2)
    yield limbs_given([[bf16(t)] for t in (16256, 16320, 8192)], 1, 2)
    for count in (2, 4, 16):
        yield limbs_given([[bf16(16256)] * count, [bf16(8192)] * count], 16, 2)


def limbs_int32(rng: random.Random) -> Iterator[Given]:
    """Bounds of the sums at 2^31 exactly, and one below: solved for through the code norm."""
    for gamma_num in (0, 1 << 20, 12345678):
        state = [bf16(_two(-40)), 0, 0]
        limb = spec.limbs(state, 4, gamma_num, 0, 2)
        assert limb is not None
        spread = 127 * sum(limb.group_codes) + 255 * limb.tail_code
        widest = 2 ** (limb.group_shift - spec.residual_shift(4)) * spread + 1
        for code_norm in (spec.INT32_LIMIT - widest, spec.INT32_LIMIT - widest - 1):
            yield limbs_given([state, normals(rng, 3)], 4, 2, gamma_num, code_norm)


def limbs_tail(rng: random.Random) -> Iterator[Given]:
    """Remainders below a unit: their norm and γ's term decide the tail code."""
    for columns in (3, 20):
        for number, gamma_num in enumerate((0, 1, 1 << 18, 1 << 30)):
            states = [spread(rng, columns, -16, 3), spread(rng, columns, -9, 0), [bf16(4)] * columns]
            yield limbs_given(states, 16, 1 + number % 2, gamma_num)
    # γ as large as a half, and few units: γ times the remainder shows
    yield limbs_given([spread(rng, 30, -46, -38) for _ in range(4)], 30, 2, 1 << 39, 1)


# screen


def screen_given(
    rng: random.Random, rows: int, columns: int, group: int, positions: int, **fixed: Any
) -> Given:
    groups, rho = spec.ceil_div(columns, group), spec.residual_shift(group)
    top = fixed.get("top", 64)
    shift = fixed.get("shift", 2)
    q_top = fixed.get("codes", 127)
    given: Given = {"group": group}
    given["scale"] = [
        pack("scale", [bf16(Fraction(128 + rng.randrange(128)) * _two(-15))]) for _ in range(rows)
    ]
    given["codes"] = [
        pack("codes", [rng.randrange(-q_top, q_top + 1) for _ in range(columns)]) for _ in range(rows)
    ]
    given["residual_codes"] = [
        pack("residual_codes", [rng.randrange(128) for _ in range(groups)]) for _ in range(rows)
    ]
    given["norm_codes"] = [pack("norm_codes", [rng.randrange(256)]) for _ in range(rows)]
    given["unit_exp"] = [pack("unit_exp", [rng.randrange(-20, 3)]) for _ in range(positions)]
    given["limb_hi"] = [
        pack("limb_hi", [rng.randrange(-top, top + 1) for _ in range(columns)]) for _ in range(positions)
    ]
    given["limb_lo"] = [
        pack("limb_lo", [rng.randrange(-128, 128) for _ in range(columns)]) for _ in range(positions)
    ]
    given["group_shift"] = [pack("group_shift", [rho + rng.randrange(shift + 1)]) for _ in range(positions)]
    given["group_codes"] = [
        pack("group_codes", [rng.randrange(128) for _ in range(groups)]) for _ in range(positions)
    ]
    given["tail_codes"] = [pack("tail_codes", [rng.randrange(4000)]) for _ in range(positions)]
    return given


def screen_random(rng: random.Random) -> Iterator[Given]:
    """All codes over their ranges; rows across tiles, columns across steps, ragged groups."""
    for rows, columns, group, positions in ((3, 5, 2, 1), (17, 33, 16, 2), (5, 70, 7, 3), (70, 20, 16, 2)):
        yield screen_given(rng, rows, columns, group, positions)
    yield screen_given(rng, 2, 6, 3, 18)


def screen_small(rng: random.Random) -> Iterator[Given]:
    """Centres near zero: ends of either sign, and zero ends, which are +0."""
    given = screen_given(rng, 4, 2, 2, 2, top=0, shift=0)
    given |= {
        "codes": [pack("codes", q) for q in ((1, 0), (0, 0), (1, 0), (-1, 0))],
        "residual_codes": ["00"] * 4,
        "norm_codes": ["00"] * 4,
        "limb_hi": [pack("limb_hi", (0, 0))] * 2,
        "limb_lo": [pack("limb_lo", (1, 0)), pack("limb_lo", (-1, 5))],
    }
    yield given
    yield screen_given(rng, 6, 3, 1, 3, top=0, shift=0, codes=3)


def screen_wide(rng: random.Random) -> Iterator[Given]:
    """Ends beyond 2^24, where the integer itself rounds, up to nearly 2^31."""
    for columns in (24, 200, 1030):
        given = screen_given(rng, 3, columns, columns, 2, top=63, shift=4)
        signs = [rng.choice((-1, 1)) for _ in range(columns)]
        given["codes"] = [
            pack("codes", [127 * s for s in signs]),
            pack("codes", [-127 * s for s in signs]),
            pack("codes", [rng.randrange(100, 128) * s for s in signs]),
        ]
        given["limb_hi"] = [
            pack("limb_hi", [63 * s for s in signs]),
            pack("limb_hi", [60 * s for s in signs]),
        ]
        yield given


def screen_midpoints(rng: random.Random) -> Iterator[Given]:
    """Ends on midpoints of FP32 just above 2^24, of either parity and sign, under scales with eight bits."""
    for low in (0, 1, 2, 3, 4):
        given = screen_given(rng, 2, 10, 10, 1, top=64, shift=0)
        # 127·8·2^14 + 1·8·2^14 = 2^24; the last column adds `low`, the width 1
        codes = [127] * 8 + [8, 1]
        given["codes"] = [pack("codes", codes), pack("codes", [-q for q in codes])]
        given["limb_hi"] = [pack("limb_hi", [64] * 9 + [0])]
        given["limb_lo"] = [pack("limb_lo", [0] * 9 + [low])]
        given["residual_codes"] = given["norm_codes"] = ["00"] * 2
        yield given


# select


def fp32(x: Fraction | int) -> int:
    return round_to_bits(Fraction(x), FP32, RoundingMode.RNE)


def select_given(
    ends: Sequence[tuple[Sequence[int], Sequence[int]]], block: int = 16, capacity: int = 64
) -> Given:
    return {
        "block": block,
        "capacity": capacity,
        "lo": [pack("lo", lo) for lo, _ in ends],
        "hi": [pack("hi", hi) for _, hi in ends],
    }


def select_random(rng: random.Random) -> Iterator[Given]:
    """Intervals of several widths around random centres; blocks across programs, a ragged last block."""
    for rows, width in ((1, 1), (37, 1), (100, 3), (600, 9)):
        ends = []
        for _ in range(2):
            centres = [Fraction(rng.randrange(-4096, 4096), 64) for _ in range(rows)]
            lo = [fp32(c - Fraction(rng.randrange(256) * width, 64)) for c in centres]
            hi = [fp32(c + Fraction(rng.randrange(256) * width, 64)) for c in centres]
            ends.append((lo, hi))
        yield select_given(ends)


def select_midpoints(rng: random.Random) -> Iterator[Given]:
    """Ends on, just below and just above the midpoint of two BF16 numbers, of either parity and sign."""
    for base in (0x3F80, 0x3F81, 0xBF80, 0xBF81):
        for step in (0x7FFF, 0x8000, 0x8001):
            best = (base << 16) + 0x8000
            lo = [0xC2000000] * 50
            hi = [0xC1000000] * 50
            lo[49], hi[49] = best, best + (1 if base < 0x8000 else -1)
            hi[3] = (base << 16) + step
            hi[20] = base << 16
            hi[35] = (base + (1 if base < 0x8000 else -1)) << 16
            yield select_given([(lo, hi)])


def select_equal(rng: random.Random) -> Iterator[Given]:
    """A candidate that only equals the threshold, in the first and in the last, ragged block; zeros."""
    for at in (0, 15, 16, 48, 49):
        lo, hi = [fp32(-8)] * 50, [fp32(-4)] * 50
        lo[25], hi[25] = fp32(1), fp32(2)
        hi[at] = fp32(1)
        yield select_given([(lo, hi)])
        lo, hi = [fp32(-8)] * 50, [fp32(-4)] * 50
        lo[25], hi[25] = 0, 0
        hi[at] = 0x80000000
        yield select_given([(lo, hi), (hi, [0] * 50)])


def select_capacity(rng: random.Random) -> Iterator[Given]:
    """As many candidate blocks as the capacity holds, and one more."""
    for count in (2, 3):
        lo, hi = [fp32(-8)] * 80, [fp32(-4)] * 80
        lo[0], hi[0] = fp32(1), fp32(1)
        for b in range(count):
            hi[16 * b + 5] = fp32(1)
        yield select_given([(lo, hi)], capacity=2)
    yield select_given([([fp32(1)] * 64, [fp32(1)] * 64)], capacity=4)
    yield select_given([([fp32(1)] * 7, [fp32(1)] * 7)], block=2, capacity=3)


# rescore


def rescore_given(rows: Sequence[Sequence[int]], states: Sequence[Sequence[int]], gamma_num: int) -> Given:
    return {
        "gamma_num": pack("gamma_num", [gamma_num]),
        "weight": _weight(rows),
        "hidden": [pack("hidden", s) for s in states],
    }


def rescore_random(rng: random.Random) -> Iterator[Given]:
    """Gaussian rows of every width around the step of 16."""
    for columns in (1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 65):
        rows = [normals(rng, columns) for _ in range(3)]
        states = [normals(rng, columns, 3) for _ in range(2)]
        yield rescore_given(rows, states, MODELS["any_order"].gamma_num(columns))


def rescore_spread(rng: random.Random) -> Iterator[Given]:
    """Exponents far apart, so that aligned terms lose their last bits."""
    for columns in (4, 16, 20, 40):
        for reach in (4, 10, 14):
            rows = [spread(rng, columns, -reach, 0) for _ in range(3)]
            yield rescore_given(rows, [spread(rng, columns, -reach, 0)], 1 << 21)


def rescore_cancelling(rng: random.Random) -> Iterator[Given]:
    """Large products that cancel and leave a small rest."""
    for columns in (6, 18, 36):
        half = spread(rng, columns // 2, 0, 6)
        row = half + [b ^ 0x8000 for b in half]
        row[-1] = bf16(_two(-9))
        state = spread(rng, columns // 2, -2, 2) * 2
        yield rescore_given([row, list(reversed(row))], [state], 1 << 22)


def rescore_fold(rng: random.Random) -> Iterator[Given]:
    """Sums that round in FP64, so that the order of the fold shows."""
    for columns in (3, 5, 6, 12):
        rows = [[bf16(_two(rng.choice((15, -15, -45, -80, 0)))) for _ in range(columns)] for _ in range(3)]
        states = [[bf16(rng.choice((1, -1)) * _two(rng.choice((10, -10, -30)))) for _ in range(columns)]]
        yield rescore_given(rows, states, 1 << 21)
    # halves cancel the large terms before the small ones are added; neighbours lose the small ones
    row = [bf16(_two(15)), bf16(_two(-12)), bf16(-_two(15)), bf16(_two(-12))]
    yield rescore_given([row], [[bf16(_two(15)), bf16(_two(-12))] * 2], 0)


def rescore_tiny(rng: random.Random) -> Iterator[Given]:
    """Zeros and subnormals: only η is left of the radius."""
    rows = [[0, 0x8000, 0], [1, 0x7F, 0x8001], [bf16(_two(-60)), 0, 0], [bf16(1), bf16(-1), 0]]
    yield rescore_given(rows, [[bf16(1), bf16(1), bf16(1)], [1, 1, 1], [0, 0, 0]], 1 << 22)


def rescore_integers(rng: random.Random) -> Iterator[Given]:
    """Small integers, whose sums are exact in every order."""
    for columns in (5, 16, 40, 70):
        rows = [small_integers(rng, -9, 10, columns) for _ in range(20)]
        yield rescore_given(rows, [small_integers(rng, -9, 10, columns) for _ in range(2)], 1 << 22)


# decide


def decide_exact(rng: random.Random) -> Iterator[Given]:
    """Ties at the first and last index, zeros of both signs, sums that tie once rounded to BF16."""
    rows: list[list[int]] = []
    low, high = fp32(1), fp32(2)
    for a, b in ((0, 19), (18, 19), (0, 1), (7, 12)):
        row = [low] * 20
        row[a] = row[b] = high
        rows.append(row)
    rows.append([0x80000000, 0, 0x80000000] + [fp32(-1)] * 17)
    rows.append([0x3F808000, 0x3F800000, 0x3F807FFF] + [low] * 17)
    rows.append([0x3F818000, 0x3F820000, 0x3F817FFF] + [low] * 17)
    rows.append([0x3F800000, 0x3F808001, 0x3F810000] + [low] * 17)
    rows.append([fp32(-i - 1) for i in range(20)])
    rows.append([0xBF808000, 0xBF800000] + [fp32(-2)] * 18)
    rows.append([0xBF818000, 0xBF820000, 0xBF828000] + [fp32(-2)] * 17)
    yield {"mode": "exact", "accumulators": [pack("accumulators", row) for row in rows]}


def decide_enclosed(rng: random.Random) -> Iterator[Given]:
    """Upper ends below, at and above the best lower end, before and after it; BF16 midpoints."""
    pairs: list[tuple[list[int], list[int]]] = []
    for other in (
        0x3F7FFFFF,
        0x3F800000,
        0x3F807FFF,
        0x3F808000,
        0x3F808001,
        0x3F810000,
        0x3F7F0000,
        0x3F7E8000,
    ):
        for k, j in ((3, 1), (1, 3), (0, 4), (4, 0)):
            lo, hi = [fp32(-2)] * 5, [fp32(-1)] * 5
            lo[k], hi[k] = 0x3F800000, 0x3FC00000
            hi[j] = other
            pairs.append((lo, hi))
    for k, j in ((3, 1), (1, 3)):
        lo, hi = [fp32(-2)] * 5, [fp32(-1)] * 5
        lo[k], hi[k] = 0x80000000, 0
        hi[j] = 0
        pairs.append((lo, hi))
    pairs.append(([fp32(1), fp32(1)], [fp32(1), fp32(1)]))
    for rows in (5, 2):
        some = [p for p in pairs if len(p[0]) == rows]
        yield {
            "mode": "enclosed",
            "lo": [pack("lo", lo) for lo, _ in some],
            "hi": [pack("hi", hi) for _, hi in some],
        }


# heads


def head_given(
    rows: Sequence[Sequence[int]], states: Sequence[Sequence[int]], mode: str = "exact", **options: Any
) -> Given:
    given = {
        "mode": mode,
        "model": "fdpa" if mode == "exact" else "any_order",
        "group": min(16, len(rows[0])),
        "block": 16,
        "capacity": 64,
        "limb_count": 2,
    }
    given |= options
    return given | {"weight": _weight(rows), "hidden": [pack("hidden", s) for s in states]}


def _value(bits: int) -> Fraction:
    return Fraction(decode(bits, FP32))


def spacing(bits: int) -> Fraction:
    """Distance from a positive FP32 number to the next."""
    return _value(bits + 1) - _value(bits)


def solved_row(prefix: Sequence[int], state: Sequence[int], target: Fraction) -> list[int] | None:
    """`prefix` and four more columns, at which the state is one, with the stock accumulator `target`.

    The columns before must end a step of the chain (a multiple of 16). None where four BF16 numbers do
    not hold the difference.
    """
    assert len(prefix) % 16 == 0
    assert state[len(prefix) :] == [bf16(1)] * 4
    rest = target - _value(HOPPER.chain(state[: len(prefix)], prefix))
    pieces = []
    for _ in range(4):
        piece = Fraction(round_to(rest, BF16, RoundingMode.RZ))
        pieces.append(bf16(piece))
        rest -= piece
    row = [*prefix, *pieces]
    return row if _value(HOPPER.chain(state, row)) == target else None


def tied_head(
    rng: random.Random, offset: tuple[int, int], places: tuple[int, int], rows: int, *, integers: bool = False
) -> tuple[list[list[int]], list[list[int]]]:
    """A head in which two rows lead, that far apart: the first at the lower logit, `places` their indices."""
    columns = 16
    state = (small_integers(rng, -3, 4, columns) if integers else normals(rng, columns)) + [bf16(1)] * 4
    # a sum near 6, like those of the prefixes, so that aligning cuts little; far above them for integers
    base = bf16(Fraction(200 if integers else 1, 1 if integers else 8) * (40 + rng.randrange(20)))
    low = _value(base << 16)
    half = (_value((base + 1) << 16) - low) / 2
    high = low + offset[0] * half + offset[1] * (1 if integers else spacing(base << 16))

    def solve(target: Fraction) -> list[int]:
        while True:
            prefix = small_integers(rng, -5, 6, columns) if integers else normals(rng, columns)
            row = solved_row(prefix, state, target)
            if row is not None:
                return row

    pair = [solve(low), solve(high)]
    weight = [solve(low - (2 + rng.randrange(40)) * half) for _ in range(rows - 2)]
    for place, row in sorted(zip(places, pair, strict=True)):
        weight.insert(place, row)
    return weight, [state]


def head_solved_ties(rng: random.Random) -> Iterator[Given]:
    """Two rows whose stock logits are equal, a BF16 spacing, or half of one ± an FP32 spacing apart."""
    for number, offset in enumerate(FP32_OFFSETS.values()):
        for places in ((0, 17), (17, 0), (15, 16)):
            weight, states = tied_head(rng, offset, places, 18)
            yield head_given(weight, states, "exact" if number % 2 == 0 or places[0] else "enclosed")


def head_integer_ties(rng: random.Random) -> Iterator[Given]:
    """The same in small integers, whose sums are exact in every order, across blocks and tiles of 64."""
    places = itertools.cycle(((0, 69), (69, 0), (63, 64)))
    for offset in FP32_OFFSETS.values():
        weight, states = tied_head(rng, offset, next(places), 70, integers=True)
        states.append(small_integers(rng, -3, 4, 16) + small_integers(rng, -1, 2, 4))
        yield head_given(weight, states, limb_count=rng.choice((1, 2)))


def head_gaussian(rng: random.Random) -> Iterator[Given]:
    """Random heads of ragged sizes in both modes."""
    for rows, columns, positions, mode in (
        (1, 5, 2, "exact"),
        (40, 1, 2, "exact"),
        (37, 33, 3, "exact"),
        (30, 40, 2, "enclosed"),
        (9, 7, 5, "enclosed"),
    ):
        weight = [normals(rng, columns) for _ in range(rows)]
        yield head_given(weight, [normals(rng, columns, 3) for _ in range(positions)], mode)


def head_integers(rng: random.Random) -> Iterator[Given]:
    """Small integers with many equal logits: ragged rows, columns and batches, one limb and two."""
    for rows, columns, positions, limb_count in (
        (70, 40, 3, 2),
        (150, 9, 2, 1),
        (20, 33, 18, 2),
        (300, 6, 2, 2),
    ):
        weight = [small_integers(rng, -3, 4, columns) for _ in range(rows)]
        states = [small_integers(rng, -4, 5, columns) for _ in range(positions)]
        yield head_given(weight, states, limb_count=limb_count)


def head_leading(rng: random.Random) -> Iterator[Given]:
    """One row far ahead, so that few blocks are left; also in the last, ragged block."""
    for rows, at in ((70, 69), (33, 32)):
        weight = [small_integers(rng, -3, 4, 24) for _ in range(rows)]
        states = [small_integers(rng, 1, 9, 24), small_integers(rng, -8, 9, 24)]
        weight[at] = [bf16(40)] * 24
        yield head_given(weight, states)


def head_duplicates(rng: random.Random) -> Iterator[Given]:
    """Every row several times: the first of equal rows wins. More than the capacity overflows."""
    rows = [small_integers(rng, -3, 4, 12) for _ in range(10)]
    weight = [rows[i % 10] for i in range(70)]
    yield head_given(weight, [small_integers(rng, -4, 5, 12) for _ in range(3)])
    yield head_given([rows[0]] * 70, [small_integers(rng, -4, 5, 12)])
    for capacity in (4, 5):
        yield head_given([rows[0]] * 70, [small_integers(rng, -4, 5, 12)], capacity=capacity)
    yield head_given([rows[1]] * 12, [small_integers(rng, -4, 5, 12)], "enclosed")


def head_zeros(rng: random.Random) -> Iterator[Given]:
    """Zero rows, zero states of both signs, subnormal weights."""
    weight = [small_integers(rng, -4, 0, 9) for _ in range(20)]
    weight[7] = weight[13] = [0] * 9
    weight[16] = [0x8000] * 9
    states = [small_integers(rng, 1, 5, 9), [0] * 9, [0x8000] * 9]
    yield head_given(weight, states)
    yield head_given(weight, states, "enclosed")
    yield head_given([[rng.randrange(0x80) for _ in range(9)] for _ in range(8)], states)


def head_scales(rng: random.Random) -> Iterator[Given]:
    """Rows and columns over many binary orders of magnitude."""
    for mode in ("exact", "enclosed"):
        weight = [spread(rng, 20, e, e + 6) for e in (rng.randrange(-14, 4) for _ in range(20))]
        yield head_given(weight, [spread(rng, 20, -8, 6), spread(rng, 20, 0, 0)], mode)


def head_nonfinite(rng: random.Random) -> Iterator[Given]:
    """NaN, infinities and states beyond the range beside ordinary positions, which stay unharmed."""
    weight = [small_integers(rng, -3, 4, 6) for _ in range(40)]
    states = [small_integers(rng, -4, 5, 6) for _ in range(7)]
    states[1][2], states[2][0], states[3][5] = 0x7FC0, 0x7F80, 0xFF80
    states[4] = [bf16(65536), 0, 0, 0, 0, 0]
    states[5] = [0, bf16(-(2**20)), 0, 0, 0, 0]
    weight[0] = [bf16(x) for x in (1, 1, 1, 1, 1, 1)]
    yield head_given(weight, states)


def head_faults(rng: random.Random) -> Iterator[Given]:
    """A flipped bit in the int8 copy, or in a limb after its checksum was taken."""
    weight = [small_integers(rng, -3, 4, 20) for _ in range(70)]
    states = [small_integers(rng, -4, 5, 20) for _ in range(2)]
    states[0][3] = states[1][3] = bf16(3)
    states[1][9] = 0
    for fault in ({"code": [5, 3, 6]}, {"code": [69, 9, 0]}, {"limb": [1, 4, 2]}):
        yield head_given(weight, states, fault=fault)
    weight = [small_integers(rng, -3, 4, 6) for _ in range(300)]
    states = [small_integers(rng, 1, 5, 6) for _ in range(2)]
    yield head_given(weight, states, fault={"code": [280, 2, 1]})


def head_enclosed(rng: random.Random) -> Iterator[Given]:
    """Enclosed decisions that more than one block takes part in, at the capacity, beside other fallbacks."""
    one, half_unit = bf16(1), bf16(Fraction(1, 256))
    midpoint = [one, half_unit, 0, 0]  # with a state of ones: halfway between two logits, so the ends differ
    low = [bf16(Fraction(1, 2)), 0, 0, 0]
    for places in ((2, 40), (40, 41), (3, 17, 60)):
        weight = [midpoint if i in places else low for i in range(70)]
        yield head_given(weight, [[one] * 4, [bf16(2), one, one, one]], "enclosed")
    weight = [small_integers(rng, -3, 4, 6) for _ in range(70)]
    weight[5] = weight[37] = [bf16(9)] * 6
    ahead, bad, far = [one] * 6, [0x7FC0] + [one] * 5, [bf16(2**17)] + [one] * 5
    for capacity in (1, 2, 3):
        yield head_given(weight, [ahead, bad, far, [bf16(-1)] * 6], "enclosed", capacity=capacity)


def head_ranks(rng: random.Random) -> Iterator[Given]:
    """Heads split over ranks: rows that lead in two of them, equal or nearly; equal rows in all; zeros."""
    splits = itertools.cycle(
        (((0, 39), [0, 20]), ((19, 20), [0, 10, 20, 30]), ((39, 0), [0, 16, 32]), ((0, 1), [0, 1, 39]))
    )
    for offset in FP32_OFFSETS.values():
        for places, ranks in itertools.islice(splits, 2):
            weight, states = tied_head(rng, offset, places, 40, integers=True)
            states.append(small_integers(rng, -3, 4, 16) + small_integers(rng, -1, 2, 4))
            yield head_given(weight, states, ranks=ranks)
    row = small_integers(rng, -3, 4, 12)
    state = small_integers(rng, 1, 5, 12)
    for capacity in (1, 64):
        yield head_given([row] * 40, [state], ranks=[0, 12, 24], capacity=capacity)
    yield head_given([row] * 40, [state], "enclosed", ranks=[0, 12, 24])
    weight = [small_integers(rng, -4, 0, 9) for _ in range(30)]
    weight[12], weight[25] = [0x8000] * 9, [0] * 9  # the largest, and equal, in two ranks
    yield head_given(weight, [small_integers(rng, 1, 5, 9), [0] * 9, [0x7FC0] * 9], ranks=[0, 10, 20])


FAMILIES: tuple[tuple[str, Maker], ...] = tuple(
    (maker.__name__.split("_", 1)[0], maker)
    for maker in (
        quantize_gaussian, quantize_ties, quantize_scale, quantize_norms,
        limbs_gaussian, limbs_ties, limbs_tiny, limbs_refused, limbs_shift, limbs_int32, limbs_tail,
        screen_random, screen_small, screen_wide, screen_midpoints,
        select_random, select_midpoints, select_equal, select_capacity,
        rescore_random, rescore_spread, rescore_cancelling, rescore_fold, rescore_tiny, rescore_integers,
        decide_exact, decide_enclosed,
        head_solved_ties, head_integer_ties, head_gaussian, head_integers, head_leading, head_duplicates,
        head_zeros, head_scales, head_nonfinite, head_faults, head_enclosed, head_ranks,
    )
)  # fmt: skip
