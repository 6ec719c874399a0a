"""The Lean stages that the enclosure theorems speak about, and the whole head, against pyref: bit for bit."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import pytest
from certhead.conformance.lean import FP32_SCALE, LeanReference, fp32_integer, request
from certhead.pyref.fdpa import HOPPER, FdpaModel, Rules
from certhead.pyref.head import (
    GAMMA_BITS,
    Limbs,
    certify,
    limbs,
    quantize_row,
    rescore_enclosed,
    screen,
    stock_token,
)
from certhead.pyref.models import MODELS

PRODUCT_SCALE = 2 * FP32_SCALE
ZERO_RULES: list[int | None] = [None, -133, -126]
MODEL = MODELS["fdpa"]


@pytest.fixture(scope="module")
def lean() -> LeanReference:
    return LeanReference()


def integer(bits: int) -> int:
    """A finite BF16 code as an integer on the scale 2^-149."""
    return fp32_integer(bits << 16)


def on_scale(value: Fraction, scale: int) -> int:
    scaled = value * 2**scale
    assert scaled.denominator == 1
    return scaled.numerator


def bf16_row(rng: random.Random, columns: int) -> list[int]:
    """BF16 codes below 2^16: narrow, wide, sparse, equal, subnormal or zero rows."""
    center = rng.choice([127, 120, 127, 142, 60])
    spread = rng.choice([0, 1, 4, 20])
    kind = rng.choice(["normal", "normal", "normal", "sparse", "equal", "tiny", "zero"])
    fill = rng.randrange(128) | center << 7

    def one() -> int:
        field = max(0, min(142, center - rng.randrange(spread + 1)))
        code = rng.randrange(2) << 15 | field << 7 | rng.choice([0, 127, rng.randrange(128)])
        if kind == "sparse" and rng.random() < 0.9:
            return rng.choice([0, 0x8000])
        if kind == "equal":
            return fill
        if kind == "tiny":
            return rng.randrange(2) << 15 | rng.randrange(0x200)
        return 0 if kind == "zero" else code

    return [one() for _ in range(columns)]


def zero_words(exponent: int | None) -> tuple[int, int]:
    return (0, 0) if exponent is None else (1, exponent)


def pairs(a: Sequence[int], b: Sequence[int]) -> list[int]:
    return [x for pair in zip(a, b, strict=True) for x in pair]


def machine(exponent: int | None, group: int = 16, fraction_bits: int = 25) -> FdpaModel:
    return FdpaModel(
        "case", "test", group=group, fraction_bits=fraction_bits, rules=Rules(zero_exponent=exponent)
    )


def product_value(bits: int) -> str:
    """FP32 bits as the protocol writes an accumulator; overflow is `none`."""
    if bits >> 23 & 0xFF == 0xFF:
        return "none"
    return str(fp32_integer(bits) << (PRODUCT_SCALE - FP32_SCALE))


def test_fdpa_steps(lean: LeanReference) -> None:
    rng = random.Random(11)
    requests, expected = [], []
    for _ in range(600):
        group, fraction_bits, zero = rng.choice([4, 8, 16]), rng.choice([23, 24, 25]), rng.choice(ZERO_RULES)
        a, b = bf16_row(rng, group), bf16_row(rng, group)
        c = rng.choice([0, 0x3F800000, 1, 0x80000001, rng.randrange(0x47000000), 0x7F7FFFFF])
        step = machine(zero, group, fraction_bits).step(a, b, c)
        c_integer = fp32_integer(c) << (PRODUCT_SCALE - FP32_SCALE)
        adder = [group, fraction_bits, PRODUCT_SCALE, *zero_words(zero)]
        requests.append(request("fdpa-step", *adder, c_integer, *pairs(a, b)))
        expected.append(product_value(step))
    assert lean.ask(requests) == expected
    assert len(set(expected)) > 300


def test_fdpa_chains(lean: LeanReference) -> None:
    rng = random.Random(12)
    requests, expected = [], []
    for _ in range(300):
        zero, columns = rng.choice(ZERO_RULES), rng.randrange(1, 70)
        a, b = bf16_row(rng, columns), bf16_row(rng, columns)
        requests.append(request("fdpa-dot", 16, 25, PRODUCT_SCALE, *zero_words(zero), *pairs(a, b)))
        expected.append(product_value(machine(zero).chain(a, b)))
    assert lean.ask(requests) == expected


def test_quantize(lean: LeanReference) -> None:
    rng = random.Random(13)
    requests, expected = [], []
    for _ in range(200):
        columns = rng.randrange(1, 50)
        group = rng.choice([1, 16, columns, rng.randrange(1, 60)])
        bits = bf16_row(rng, columns)
        row = quantize_row(bits, group)
        requests.append(request("quantize", FP32_SCALE, group, *map(integer, bits)))
        numbers = [on_scale(row.scale, FP32_SCALE), *row.codes, *row.residual_codes, row.norm_code]
        expected.append(" ".join(map(str, numbers)))
    assert lean.ask(requests) == expected


def shown_limbs(found: Limbs | None) -> str:
    """Lean's answer without the norm N, which pyref does not keep."""
    if found is None:
        return "refused"
    unit = on_scale(Fraction(2) ** found.unit_exp, FP32_SCALE)
    numbers = [unit, found.group_shift, found.tail_code, *found.hi, *found.lo, *found.group_codes]
    return " ".join(map(str, numbers))


def test_limbs(lean: LeanReference) -> None:
    rng = random.Random(14)
    requests, expected = [], []
    for _ in range(200):
        columns, count = rng.randrange(1, 50), rng.choice([1, 2])
        group = rng.choice([16, columns, rng.randrange(1, 60)])
        gamma_num = rng.choice([MODEL.gamma_num(columns), rng.randrange(1 << 30)])
        code_norm = rng.choice([100, 1 << 14, 1 << 22])
        bits = bf16_row(rng, columns)
        words = [count, FP32_SCALE, group, gamma_num, code_norm]
        requests.append(request("limbs", *words, *map(integer, bits)))
        expected.append(shown_limbs(limbs(bits, group, gamma_num, code_norm, count)))
    answers = [a if a == "refused" else " ".join(a.split()[:2] + a.split()[3:]) for a in lean.ask(requests)]
    assert answers == expected
    assert "refused" in expected


def test_screen(lean: LeanReference) -> None:
    rng = random.Random(15)
    requests, expected = [], []
    while len(requests) < 200:
        columns, count = rng.randrange(1, 40), rng.choice([1, 2])
        group = rng.choice([16, columns, rng.randrange(1, 50)])
        gamma_num = MODEL.gamma_num(columns)
        w, h = bf16_row(rng, columns), bf16_row(rng, columns)
        position = limbs(h, group, gamma_num, 0, count)
        if position is None:
            continue
        found = screen(quantize_row(w, group), position, group)
        words = [count, FP32_SCALE, group, gamma_num, columns]
        requests.append(request("screen", *words, *map(integer, w), *map(integer, h)))
        ends = [product_value(found.lo_bits), product_value(found.hi_bits)]
        expected.append(" ".join([str(found.center), str(found.spread), str(found.width), *ends]))
    assert lean.ask(requests) == expected


def test_rescore(lean: LeanReference) -> None:
    rng = random.Random(17)
    requests, expected = [], []
    for _ in range(200):
        columns = rng.randrange(1, 70)
        gamma_num = rng.choice([MODEL.gamma_num(columns), MODELS["any_order"].gamma_num(columns)])
        w, h = bf16_row(rng, columns), bf16_row(rng, columns)
        lo, hi = rescore_enclosed(w, h, Fraction(gamma_num, 1 << GAMMA_BITS))
        requests.append(request("rescore", gamma_num, *pairs(w, h)))
        expected.append(f"{product_value(lo)} {product_value(hi)}")
    assert lean.ask(requests) == expected


def head_cases(count: int) -> list[tuple[list[list[int]], list[int], dict[str, int]]]:
    """Heads whose rows are copies of each other with few changes, so that ties and near ties are common."""
    rng = random.Random(16)
    cases = []
    for _ in range(count):
        rows, columns = rng.randrange(1, 20), rng.randrange(1, 24)
        base = bf16_row(rng, columns)
        weights = []
        for _ in range(rows):
            row = list(base) if rng.random() < 0.8 else bf16_row(rng, columns)
            for _ in range(rng.choice([0, 0, 1, 2])):
                k = rng.randrange(columns)
                row[k] = max(0, (row[k] & 0x7FFF) - rng.choice([1, 2, 127])) | row[k] & 0x8000
            weights.append(row)
        hidden = bf16_row(rng, columns)
        if rng.random() < 0.1:
            hidden[rng.randrange(columns)] = rng.choice([0x7F80, 0x7FC0, 143 << 7])
        choice = {
            "limb_count": rng.choice([1, 2]),
            "group": rng.choice([16, columns]),
            "block": rng.choice([1, 2, 4]),
            "capacity": rng.choice([1, 3, 16]),
        }
        cases.append((weights, hidden, choice))
    return cases


def test_whole_head(lean: LeanReference) -> None:
    """Outcome for outcome, and the stock token wherever there is a token."""
    requests, expected, stock = [], [], []
    zero = HOPPER.rules.zero_exponent
    for weights, hidden, choice in head_cases(200):
        found = certify(
            weights,
            hidden,
            MODEL,
            kernel=HOPPER.chain,
            limb_count=choice["limb_count"],
            group=choice["group"],
            block=choice["block"],
            capacity=choice["capacity"],
        )
        shape = [len(weights), len(hidden)]
        bits = [b for row in [*weights, hidden] for b in row]
        gamma_num = MODEL.gamma_num(len(hidden))
        words = [choice["limb_count"], choice["group"], gamma_num, choice["block"], choice["capacity"]]
        requests.append(request("head", *words, *zero_words(zero), *shape, *bits))
        if found.token is None:
            expected.append("fallback " + ("overflow" if found.reason == "overflow" else "refused"))
        else:
            expected.append(f"exact {found.token}")
            stock.append((request("stock-token", *zero_words(zero), *shape, *bits), found.token))
            assert found.token == stock_token(weights, hidden, HOPPER.chain)
    assert lean.ask(requests) == expected
    assert lean.ask([asked for asked, _ in stock]) == [str(token) for _, token in stock]
    assert {e.split()[0] for e in expected} == {"exact", "fallback"}
    assert {"fallback overflow", "fallback refused"} <= set(expected)


def test_whole_head_enclosed(lean: LeanReference) -> None:
    """Outcome for outcome with the any-order model; a token is the stock token of the Hopper chain too."""
    model = MODELS["any_order"]
    requests, expected = [], []
    for weights, hidden, choice in head_cases(150):
        found = certify(
            weights,
            hidden,
            model,
            limb_count=choice["limb_count"],
            group=choice["group"],
            block=choice["block"],
            capacity=choice["capacity"],
        )
        bits = [b for row in [*weights, hidden] for b in row]
        words = [choice["limb_count"], choice["group"], model.gamma_num(len(hidden)), choice["block"]]
        shape = [choice["capacity"], len(weights), len(hidden)]
        requests.append(request("head-enclosed", *words, *shape, *bits))
        if found.token is None:
            reason = found.reason if found.reason in ("overflow", "ambiguous") else "refused"
            expected.append(f"fallback {reason}")
        else:
            expected.append(f"enclosed {found.token}")
            assert found.token == stock_token(weights, hidden, HOPPER.chain)
    assert lean.ask(requests) == expected
    assert {"fallback ambiguous", "fallback overflow", "fallback refused"} <= set(expected)
    assert any(e.startswith("enclosed") for e in expected)


def test_too_small_gamma_is_refused(lean: LeanReference) -> None:
    """The program checks γ itself, so that the end-to-end theorem needs no assumption about it."""
    least = MODELS["fdpa_tight"].gamma_num(3)
    bits = [0x3F80, 0x4000, 0xBF80, 0x3F80, 0x3F80, 0x3F80]
    asked = [request("head", 2, 16, gamma_num, 4, 64, 0, 0, 1, 3, *bits) for gamma_num in (least - 1, least)]
    assert lean.ask(asked) == ["fallback refused", "exact 0"]
