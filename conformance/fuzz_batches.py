"""The cases of the fuzzer: batches of small ones, of one stage and shape, from the strategies of the corpus.

Small, because a wrong bit shows in a small case as well and small ones are many; of one shape, so that a
batch costs little more than a case (`bundle`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from fractions import Fraction

from certhead.pyref.models import MODELS

from . import case_families as families
from .case_families import FP32_OFFSETS, Given, bf16
from .cases import Case, pack

Drawn = Callable[[random.Random], list[Given]]
SLOW = ("integer_ties", "integers", "leading", "duplicates", "ranks")  # families of large heads


def _state(rng: random.Random, columns: int) -> list[int]:
    """One of the kinds of states that the corpus has, or a mixture."""
    kind = rng.randrange(8)
    if kind < 3:
        return families.normals(rng, columns, Fraction(2) ** rng.randrange(-20, 12))
    if kind == 3:
        return families.spread(rng, columns, rng.randrange(-46, -4), rng.randrange(-4, 14))
    if kind == 4:  # halfway between two units
        top = bf16(Fraction(2) ** 13)
        halves = [bf16(Fraction(2 * rng.randrange(-300, 300) + 1, 2)) for _ in range(columns - 1)]
        return [top, *halves]
    if kind == 5:
        return families.small_integers(rng, -4, 5, columns)
    state = families.normals(rng, columns)
    specials = (0, 0x8000, 1, 0x8001, 0x7F, 0x477F, 0xC77F, 0x4780, 0x7F80, 0xFF80, 0x7FC0)
    state[rng.randrange(columns)] = rng.choice(specials[: 7 if kind == 6 else 11])
    return state


def limbs(rng: random.Random) -> list[Given]:
    """One position a case."""
    columns = rng.choice((1, 2, 3, 5, 8, 16, 17, 33))
    group = rng.choice((columns, max(1, columns // 2), 16))
    options = (rng.choice((1, 2)), rng.randrange(1 << rng.randrange(1, 31)), rng.randrange(1 << 12))
    return [families.limbs_given([_state(rng, columns)], group, *options) for _ in range(16)]


def screen(rng: random.Random) -> list[Given]:
    """Eight rows at two positions a case: a bundle is one tile of the Triton kernel."""
    columns = rng.choice((1, 2, 5, 8, 17, 40))
    group = rng.choice((columns, max(1, columns // 3), 16))
    ranges = {"top": rng.choice((0, 2, 64)), "shift": rng.randrange(4), "codes": rng.choice((1, 9, 127))}
    return [families.screen_given(rng, 8, columns, group, 2, **ranges) for _ in range(8)]


def select(rng: random.Random) -> list[Given]:
    """One position a case: random intervals, or ends around one BF16 number and its midpoints."""
    rows, capacity = rng.choice((1, 5, 16, 17, 33, 50)), rng.choice((1, 2, 64))
    return [families.select_given([_ends(rng, rows)], capacity=capacity) for _ in range(32)]


def _ends(rng: random.Random, rows: int) -> tuple[list[int], list[int]]:
    base = rng.choice((0x3F80, 0x3F81, 0xBF80, 0xBF81, 0x0000, 0x8000)) << 16
    if rng.randrange(2):
        near = [base + rng.choice((0, 0x7FFF, 0x8000, 0x8001, 0x10000, 0x18000)) for _ in range(2 * rows)]
        pairs = [sorted(pair, key=_order) for pair in zip(near[:rows], near[rows:], strict=True)]
    else:
        width = rng.choice((1, 30, 900))
        centres = [Fraction(rng.randrange(-4096, 4096), 64) for _ in range(rows)]
        pairs = [
            [families.fp32(c - Fraction(rng.randrange(width), 64)), families.fp32(c + rng.randrange(width))]
            for c in centres
        ]
    return [lo for lo, _ in pairs], [hi for _, hi in pairs]


def _order(bits: int) -> int:
    return -(bits & 0x7FFFFFFF) if bits >> 31 else bits


def decide(rng: random.Random) -> list[Given]:
    """One position a case."""
    rows, mode = rng.choice((1, 2, 5, 20)), rng.choice(("exact", "enclosed"))
    cases: list[Given] = []
    for _ in range(16):
        lo, hi = _ends(rng, rows)
        if mode == "exact":
            cases.append({"mode": mode, "accumulators": [pack("accumulators", lo)]})
        else:
            cases.append({"mode": mode, "lo": [pack("lo", lo)], "hi": [pack("hi", hi)]})
    return cases


def _row(rng: random.Random, columns: int) -> list[int]:
    kind = rng.randrange(4)
    if kind == 0:
        return families.spread(rng, columns, rng.randrange(-60, -8), rng.randrange(-8, 14))
    if kind == 1:  # halfway between two codes
        return [bf16(127), *(bf16(Fraction(2 * rng.randrange(-127, 127) + 1, 2)) for _ in range(columns - 1))]
    return families.normals(
        rng, columns, Fraction(1 + rng.randrange(100), 64) * Fraction(2) ** rng.randrange(-9, 9)
    )


def quantize(rng: random.Random) -> list[Given]:
    """One row a case."""
    columns = rng.choice((1, 3, 8, 16, 17, 40))
    group = rng.choice((columns, max(1, columns // 2), 16))
    return [families.quantize_given([_row(rng, columns)], group) for _ in range(8)]


def rescore(rng: random.Random) -> list[Given]:
    """One row at one position a case."""
    columns = rng.choice((1, 3, 8, 15, 16, 17, 33))
    gamma_num = rng.choice((0, 1 << 21, MODELS["any_order"].gamma_num(columns)))

    def finite() -> list[int]:
        return families.spread(rng, columns, rng.randrange(-16, -2), rng.randrange(-2, 10))

    return [families.rescore_given([_row(rng, columns)], [finite()], gamma_num) for _ in range(8)]


def head(rng: random.Random) -> list[Given]:
    """A whole small head: two rows that nearly tie, sums exact in every order."""
    offset = rng.choice(list(FP32_OFFSETS.values()))
    rows = rng.choice((3, 18))
    places = rng.choice(((0, rows - 1), (rows - 1, 0), (0, 1)))
    weight, states = families.tied_head(rng, offset, places, rows, integers=True)
    return [families.head_given(weight, states)]


BATCHES: tuple[tuple[Drawn, int], ...] = (
    (limbs, 2), (screen, 6), (select, 4), (decide, 3), (quantize, 1), (rescore, 1), (head, 2),
)  # fmt: skip
"""What a round draws, and how many batches of it: seconds go to every stage, cases to the cheap ones."""
FAMILY_ROUNDS = 25  # every so many rounds the corpus' families are drawn under this seed too


def batches(seed: int) -> Iterator[list[Case]]:
    """The batches of one round, without what is wanted."""
    rng = random.Random(f"fuzz/{seed}")
    for draw, count in BATCHES:
        name = draw.__name__
        for batch in range(count):
            yield [
                Case(f"{name}/fuzz/{seed}-{batch}-{number}", name, "fuzz", given, {})
                for number, given in enumerate(draw(rng))
            ]


def family_batches(seed: int) -> Iterator[list[Case]]:
    """The families of the corpus under a new seed, a case at a time; without the large heads."""
    for stage, maker in families.FAMILIES:
        if maker.__name__.partition("_")[2] in SLOW:
            continue
        for case in families.family_cases(stage, maker, seed):
            yield [Case(f"{case.id}@{seed}", case.stage, case.family, case.given, case.want)]
