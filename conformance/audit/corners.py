"""Directed single steps: one question each about the tensor-core step, with operands that answer it.

A step has 16 products and an FP32 accumulator. Products that a probe does not name are +0·+0: the
hardware always has all sixteen. `corner_steps` gives every probe's operands as arrays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from .distributions import PRODUCTS, Codes16, Codes32

ONE, MINUS_ONE, ZERO, MINUS_ZERO = 0x3F80, 0xBF80, 0x0000, 0x8000
INF, MINUS_INF, NAN = 0x7F80, 0xFF80, 0x7FC0
MAX = 0x7F7F
ONE32, MINUS_ZERO32, INF32, MAX32 = 0x3F800000, 0x80000000, 0x7F800000, 0x7F7FFFFF


@dataclass(frozen=True)
class Corner:
    """One step and the question that its result answers. `products`: pairs of BF16 codes."""

    topic: str
    name: str
    products: tuple[tuple[int, int], ...]
    c: int = 0
    fill: tuple[int, int] = (ZERO, ZERO)

    def operands(self) -> tuple[list[int], list[int], int]:
        """The 16 codes of a, the 16 of b, and c."""
        pairs = [*self.products, *[self.fill] * (PRODUCTS - len(self.products))]
        return [a for a, _ in pairs], [b for _, b in pairs], self.c


def power(e: int, sign: int = 1) -> int:
    """The BF16 code of ±2^e, subnormal below 2^-126."""
    code = (e + 127) << 7 if e >= -126 else 1 << (e + 133)
    return code | (0x8000 if sign < 0 else 0)


def power32(e: int, sign: int = 1) -> int:
    """The FP32 code of ±2^e, subnormal below 2^-126."""
    code = (e + 127) << 23 if e >= -126 else 1 << (e + 149)
    return code | (0x80000000 if sign < 0 else 0)


def corner_steps(corners: Sequence[Corner]) -> tuple[Codes16, Codes16, Codes32]:
    """a, b [n, 16] BF16 codes and c [n] FP32 codes of the probes, in order."""
    operands = [corner.operands() for corner in corners]
    a, b, c = zip(*operands, strict=True)
    return np.array(a, np.uint16), np.array(b, np.uint16), np.array(c, np.uint32)


def all_corners() -> list[Corner]:
    """Every directed probe."""
    return [*_zeros(), *_subnormals(), *_overflow(), *_specials(), *_fraction_bits(), *_group(), *_masks()]


def _zeros() -> Iterator[Corner]:
    topic = "zero exponent"
    yield Corner(topic, "2^-145 - 2^-159, c=+0", ((power(-73), power(-72)), (power(-80, -1), power(-79))))
    yield Corner(topic, "2^-145 - 2^-155, c=+0", ((power(-73), power(-72)), (power(-80, -1), power(-75))))
    for c in (0, MINUS_ZERO32):
        yield Corner(topic, f"-2^-150, c={c:#x}", ((power(-100, -1), power(-50)),), c)
        yield Corner(topic, f"2^-150, c={c:#x}", ((power(-100), power(-50)),), c)
        # all sixteen products nonzero, so that only c is a zero
        yield Corner(topic, f"16 of -2^-150, c={c:#x}", ((power(-100, -1), power(-50)),) * 16, c)
        yield Corner(topic, f"16 of 2^-152, c={c:#x}", ((power(-100), power(-52)),) * 16, c)
        yield Corner(topic, f"16 of -2^-160, c={c:#x}", ((power(-100, -1), power(-60)),) * 16, c)
    full = [(power(-73), power(-72)), (power(-80, -1), power(-79))]
    filler = [(power(-110), power(-90)), (power(-110, -1), power(-90))] * 7
    yield Corner(topic, "2^-145 - 2^-159, no zero product, c=+0", (*full, *filler))
    yield Corner(topic, "2^-145 - 2^-159, no zero product, c=2^-149", (*full, *filler), 1)
    for e in range(-165, -118, 3):
        yield Corner(
            topic, f"2^{e} - 2^{e - 14}", ((power(-60), power(e + 60)), (power(-80, -1), power(e + 66)))
        )
    # a zero factor with a large partner: does its exponent field count?
    for e in (0, 60, 127):
        for zero in (ZERO, MINUS_ZERO):
            yield Corner(topic, f"0·2^{e} beside 2^-30", ((zero, power(e)), (power(-10), power(-20))))
            yield Corner(topic, f"2^{e}·0 beside 2^-140", ((power(e), zero), (power(-70), power(-70))))
    topic = "negative zero"
    for name, fill in (
        ("-0·+0", (MINUS_ZERO, ZERO)),
        ("+0·+0", (ZERO, ZERO)),
        ("-0·-0", (MINUS_ZERO, MINUS_ZERO)),
    ):
        for c in (0, MINUS_ZERO32):
            yield Corner(topic, f"16 of {name}, c={c:#x}", (), c, fill)
    for c in (0, MINUS_ZERO32):
        yield Corner(topic, f"1 - 1, c={c:#x}", ((ONE, ONE), (ONE, MINUS_ONE)), c)
        yield Corner(topic, f"-1 + 1 and -0, c={c:#x}", ((ONE, MINUS_ONE), (ONE, ONE)), c, (MINUS_ZERO, ZERO))
        yield Corner(topic, f"one +0, the rest -0, c={c:#x}", ((ZERO, ZERO),), c, (MINUS_ZERO, ZERO))
    yield Corner(topic, "-1 with c=1", ((ONE, MINUS_ONE),), ONE32, (MINUS_ZERO, ZERO))
    yield Corner(topic, "1 with c=-1", ((ONE, ONE),), ONE32 | MINUS_ZERO32, (MINUS_ZERO, ZERO))


def _subnormals() -> Iterator[Corner]:
    topic = "subnormal inputs"
    for sign in (1, -1):
        for e in (-133, -130, -127, -126):
            for f in (0, 7, 20, 100, 127):
                yield Corner(topic, f"{sign}·2^{e} times 2^{f}", ((power(e, sign), power(f)),))
                yield Corner(topic, f"2^{f} times {sign}·2^{e}", ((power(f), power(e, sign)),))
    yield Corner(topic, "2^-133·2^-133", ((1, 1),))
    yield Corner(topic, "largest subnormal squared", ((0x7F, 0x7F),) * 16)
    # aligned by the exponent field (-126) the second product is cut, normalised it is kept
    for low in (-23, -24, -25, -26, -28, -30, -31, -32):
        yield Corner(topic, f"2^-133·2^127 beside 2^{low}", ((1, power(127)), (power(low), ONE)))
        yield Corner(topic, f"2^127·-2^-133 beside 2^{low}", ((power(127), 0x8001), (power(low), ONE)))
    topic = "subnormal accumulator"
    for code in (1, 2, 3, 0x7F, 0x400000, 0x7FFFFF, 0x800000, 0x800001):
        for sign in (0, MINUS_ZERO32):
            yield Corner(topic, f"c={code | sign:#x} alone", (), code | sign)
            yield Corner(topic, f"c={code | sign:#x} beside 2^-126", ((power(-63), power(-63)),), code | sign)
            yield Corner(topic, f"c={code | sign:#x} beside 2^-103", ((power(-51), power(-52)),), code | sign)
    topic = "subnormal results"
    for e in range(-160, -120):
        for sign in (1, -1):
            yield Corner(topic, f"{sign}·(2^{e}) · 1.99²", ((0x7F | power(-64, sign), 0x7F | power(e + 64)),))
    for e in (-149, -150, -151, -152, -153):
        for sign in (1, -1):
            yield Corner(
                topic,
                f"2^-126 and {sign}·2^{e}",
                ((power(-63), power(-63)), (power(-70, sign), power(e + 70))),
            )
            yield Corner(topic, f"c=2^-149 and {sign}·2^{e}", ((power(-70, sign), power(e + 70)),), 1)


def _overflow() -> Iterator[Corner]:
    topic = "overflow"
    for s in (1, -1):
        yield Corner(topic, f"{s}·(2^127 + 2^127)", ((power(127, s), ONE),) * 2)
        yield Corner(topic, f"{s}·2^128 in one product", ((power(64, s), power(64)),))
        yield Corner(
            topic,
            f"{s}·(2^254 - 2^254) + 1",
            ((power(127, s), power(127)), (power(127, -s), power(127)), (ONE, ONE)),
        )
        yield Corner(topic, f"{s}·(2^128 - 2^127)", ((power(64, s), power(64)), (power(127, -s), ONE)))
        yield Corner(topic, f"{s}·(2^128 - 2^127), c first", ((power(64, s), power(64)),), power32(127, -s))
        yield Corner(topic, f"{s}·(2^128 - 2^103)", ((power(64, s), power(64)), (power(103, -s), ONE)))
        yield Corner(topic, f"{s}·(2^128 - 2^102)", ((power(64, s), power(64)), (power(102, -s), ONE)))
        for e in (101, 102, 103, 104, 105):
            sign = 0 if s > 0 else MINUS_ZERO32
            yield Corner(topic, f"{s}·(max + 2^{e})", ((power(e, s), ONE),), MAX32 | sign)
            yield Corner(topic, f"{s}·max in c, -{s}·2^{e}", ((power(e, -s), ONE),), MAX32 | sign)
            yield Corner(topic, f"{s}·(max + 16·2^{e - 4})", ((power(e - 4, s), ONE),) * 16, MAX32 | sign)
        yield Corner(topic, f"{s}·16 of the largest product", ((MAX, MAX if s > 0 else MAX | 0x8000),) * 16)
        yield Corner(
            topic, f"{s}·8 and -{s}·8 of the largest product", ((MAX, MAX), (MAX, MAX | 0x8000)) * 8, ONE32
        )


def _specials() -> Iterator[Corner]:
    topic = "infinities"
    minus_inf32 = INF32 | MINUS_ZERO32
    yield Corner(topic, "Inf·1", ((INF, ONE),))
    yield Corner(topic, "-Inf·1", ((MINUS_INF, ONE),))
    yield Corner(topic, "Inf·-2^-133", ((INF, 0x8001),))
    yield Corner(topic, "Inf - Inf, products", ((INF, ONE), (INF, MINUS_ONE)))
    yield Corner(topic, "Inf + Inf, products", ((INF, ONE), (INF, ONE)))
    yield Corner(topic, "Inf with c=-Inf", ((INF, ONE),), minus_inf32)
    yield Corner(topic, "Inf with c=Inf", ((INF, ONE),), INF32)
    yield Corner(topic, "c=Inf alone", (), INF32)
    yield Corner(topic, "c=-Inf alone", (), minus_inf32)
    yield Corner(topic, "c=-Inf with 2^254", ((power(127), power(127)),), minus_inf32)
    yield Corner(topic, "Inf with -2^254", ((INF, ONE), (power(127, -1), power(127))))
    yield Corner(topic, "Inf·+0", ((INF, ZERO),))
    yield Corner(topic, "-Inf·-0", ((MINUS_INF, MINUS_ZERO),))
    topic = "NaN"
    for code in (NAN, 0x7FC1, 0x7F81, 0x7FFF, 0xFFC0, 0xFF81, 0xFFFF):
        yield Corner(topic, f"a={code:#x}", ((code, ONE),))
        yield Corner(topic, f"b={code:#x}", ((ONE, code),))
        yield Corner(topic, f"a={code:#x} times 0", ((code, ZERO),))
        yield Corner(topic, f"a={code:#x} with Inf", ((code, ONE), (INF, ONE)))
    for code in (0x7FC00000, 0x7FC12345, 0x7F800001, 0x7FFFFFFF, 0xFFC00000, 0xFFFFFFFF, 0xFF800001):
        yield Corner(topic, f"c={code:#x}", (), code)
        yield Corner(topic, f"c={code:#x} with 1", ((ONE, ONE),), code)


def _fraction_bits() -> Iterator[Corner]:
    topic = "fraction bits"
    # the leading term is cancelled, so that what was kept of the small one shows in full
    for s in (1, -1):
        for k in range(20, 31):
            small = (power(-k, s), ONE)
            yield Corner(topic, f"1 - 1 and {s}·2^-{k}", ((ONE, ONE), (ONE, MINUS_ONE), small))
            yield Corner(topic, f"c=1, -1 and {s}·2^-{k}", ((ONE, MINUS_ONE), small), ONE32)
            yield Corner(topic, f"1 - 1 and c={s}·2^-{k}", ((ONE, ONE), (ONE, MINUS_ONE)), power32(-k, s))
            full = (0x3FFF - (k << 7) | (0x8000 if s < 0 else 0), 0x3FFF)
            yield Corner(topic, f"1 - 1 and {s}·1.99²·2^-{k}", ((ONE, ONE), (ONE, MINUS_ONE), full))
            yield Corner(
                topic, f"1 - 1 and 14 of {s}·1.99²·2^-{k}", ((ONE, ONE), (ONE, MINUS_ONE), *[full] * 14)
            )
            low = 0x7FFFFF | power32(-k, s)
            yield Corner(topic, f"1 - 1 and c={s}·1.9999999·2^-{k}", ((ONE, ONE), (ONE, MINUS_ONE)), low)
            # a leading product with significand in [2, 4): normalising it would cost the small one a bit
            wide = (0x3FC0, 0x3FC0)
            yield Corner(topic, f"2.25 - 2.25 and {s}·2^-{k}", (wide, (0x3FC0, 0xBFC0), small))
            yield Corner(
                topic, f"2.25 - 2.25 and 13 of {s}·1.99²·2^-{k}", (wide, (0x3FC0, 0xBFC0), *[full] * 13)
            )
    topic = "final rounding"
    for s in (1, -1):
        sign = 0 if s > 0 else MINUS_ZERO32
        for k in range(22, 28):
            yield Corner(topic, f"{s}·(1 + 2^-{k})", ((power(0, s), ONE), (power(-k, s), ONE)))
            yield Corner(topic, f"{s}·(1 - 2^-{k})", ((power(0, s), ONE), (power(-k, -s), ONE)))
            yield Corner(topic, f"c={s}·1.0000001, {s}·2^-{k}", ((power(-k, s), ONE),), ONE32 | 1 | sign)
            yield Corner(
                topic, f"c={s}·1.9999999, {s}·2^-{k}", ((power(-k, s), ONE),), ONE32 | 0x7FFFFF | sign
            )
            yield Corner(
                topic,
                f"c={s}·1.9999999, {s}·(2^-24 + 2^-{k})",
                ((power(-24, s), ONE), (power(-k, s), ONE)),
                ONE32 | 0x7FFFFF | sign,
            )
        for count in range(1, 16):
            yield Corner(
                topic,
                f"{s}·{count} of 1.99²",
                ((0x3FFF if s > 0 else 0xBFFF, 0x3FFF),) * count,
                0x3F812345 | sign,
            )


def _group() -> Iterator[Corner]:
    topic = "group"
    # were the products of another slot added in another step, 2^-24 would be lost or kept there
    for i in range(PRODUCTS):
        for j in range(PRODUCTS):
            if i != j:
                pairs = [(ZERO, ZERO)] * PRODUCTS
                pairs[i], pairs[j] = (ONE, ONE), (power(-24), ONE)
                yield Corner(topic, f"1 in slot {i}, 2^-24 in slot {j}, c=-1", tuple(pairs), 0xBF800000)


def _masks() -> Iterator[Corner]:
    topic = "masks"
    # ±2^100 at two of 17 places, ones elsewhere: the sum counts the ones not added between them
    for i in range(PRODUCTS + 1):
        for j in range(PRODUCTS + 1):
            if i != j:
                pairs = [(ONE, ONE)] * PRODUCTS
                c = ONE32
                for place, sign in ((i, 1), (j, -1)):
                    if place < PRODUCTS:
                        pairs[place] = (power(50, sign), power(50))
                    else:
                        c = power32(100, sign)
                yield Corner(topic, f"2^100 at {i}, -2^100 at {j}", tuple(pairs), c)
