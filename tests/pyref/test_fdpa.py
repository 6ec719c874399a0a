"""The tensor-core step: hardware vectors, a naive second model, and the array twin's equality.

`naive_step` is written from the formula alone, on fractions, and shares no code with pyref's step. The
committed vectors (tests/data/fdpa_vectors.json) are made by it: run this file as a script to write them.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
from dataclasses import replace
from fractions import Fraction
from math import floor, isnan, trunc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from certhead.pyref.fdpa import HOPPER, MACHINES, FdpaModel, Rules, fdpa, fdpa_chain
from certhead.pyref.fdpa_vector import fdpa_chain_model, fdpa_chain_pairs, fdpa_chain_vector, fdpa_vector
from certhead.pyref.formats import BF16, FP8_E5M2, FP16, FP32, Format
from certhead.pyref.rounding import RD, RNA, RNE, RU

ROOT = Path(__file__).parents[2]
HARDWARE = ROOT.parent / "shared" / "data" / "mma-h100-bf16"
VECTORS = ROOT / "tests" / "data" / "fdpa_vectors.json"

Steps = tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16], npt.NDArray[np.uint32]]

ONE, TWO, MINUS_ONE = 0x3F80, 0x4000, 0xBF80  # BF16
INF, NAN = 0x7F80, 0x7FC0
MINUS = 0x8000
ONE32, TWO32 = 0x3F800000, 0x40000000  # FP32


def power(e: int) -> int:
    """The BF16 code of 2^e."""
    return (e + 127) << 7


def fp32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def naive_step(a_bits: list[int], b_bits: list[int], c_bits: int) -> int:
    """Hopper's step, straight from its formula: floats for the operands, fractions for the rest."""
    a, b = ([fp32(x << 16) for x in bits] for bits in (a_bits, b_bits))
    c = fp32(c_bits)
    if not all(abs(x) < float("inf") for x in (*a, *b, c)):
        special = c + sum(x * y for x, y in zip(a, b, strict=True))
        return 0x7FFFFFFF if isnan(special) else 0x7F800000 if special > 0 else 0xFF800000

    def field(bits: int) -> int:
        return max((bits >> 23) & 255, 1) - 127

    terms = [
        (Fraction(x) * Fraction(y), field(i << 16) + field(j << 16))
        for x, y, i, j in zip(a, b, a_bits, b_bits, strict=True)
    ]
    terms.append((Fraction(c), field(c_bits)))
    top = max(e if value else -133 for value, e in terms)
    total = sum(trunc(value * Fraction(2) ** (25 - top)) for value, _ in terms) * Fraction(2) ** (top - 25)
    sign = 1 << 31 if total < 0 else 0
    if abs(total) >= 2**128:
        return sign | 0x7F800000
    e = -126
    while abs(total) >= Fraction(2) ** (e + 1):
        e += 1
    significand = floor(abs(total) / Fraction(2) ** (e - 23))
    return sign | ((e + 126) << 23) + significand if significand else 0


def adversarial_steps(seed: int, count: int, fmt: Format = BF16, products: int = 16) -> Steps:
    """Steps of every kind that has ever gone wrong: [count, products] codes twice, [count] FP32 codes.

    Kinds, in turn: ordinary; huge spread; cancelling pairs; subnormals; zeros of both signs; only zeros;
    around e_max - F (what is just cut off); near overflow; infinities and NaN; tiny with zero c; a power of
    two and much smaller terms below the normal range.
    """
    rng = np.random.default_rng(seed)
    dtype = np.uint16 if fmt.width > 8 else np.uint8
    shape = (count, products)
    stored = fmt.precision - 1
    middle, top = fmt.bias, fmt.max_code >> stored

    def codes(low: int, high: int, lanes: tuple[int, ...]) -> npt.NDArray[np.int64]:
        low = max(low, 0)
        field = rng.integers(low, max(low, min(high, top)) + 1, lanes)
        code = (field << stored) | rng.integers(0, 1 << stored, lanes)
        signed: npt.NDArray[np.int64] = (
            np.minimum(code, fmt.max_code) | rng.integers(0, 2, lanes) * fmt.sign_bit
        )
        return signed

    a, b = codes(middle - 3, middle + 3, shape), codes(middle - 3, middle + 3, shape)
    c = rng.integers(97 << 23, 140 << 23, count) | rng.integers(0, 2, count) << 31
    kind = np.arange(count) % 11

    def rows(k: int) -> npt.NDArray[np.intp]:
        return np.flatnonzero(kind == k)

    r = rows(1)
    a[r], b[r] = codes(0, top, (len(r), products)), codes(0, top, (len(r), products))
    c[r] = rng.integers(0, 1 << 32, len(r)) & 0xFF7FFFFF
    r = rows(2)
    half = products // 2
    a[r, half : 2 * half] = a[r, :half]
    b[r, half : 2 * half] = b[r, :half] ^ fmt.sign_bit
    c[r] &= 0x80000001
    r = rows(3)
    a[r], b[r] = codes(0, 1, (len(r), products)), codes(middle - 20, top - 1, (len(r), products))
    c[r] = rng.integers(0, 1 << 24, len(r)) | rng.integers(0, 2, len(r)) << 31
    r = rows(4)
    a[r] = np.where(rng.random((len(r), products)) < 0.5, a[r] & fmt.sign_bit, a[r])
    r = rows(5)
    a[r] &= fmt.sign_bit
    c[r] &= 1 << 31
    r = r[::2]
    a[r], b[r], c[r] = fmt.sign_bit, b[r] & ~fmt.sign_bit, 1 << 31
    r = rows(6)
    spread = codes(middle - 14, middle - 10, (len(r), products))
    a[r], b[r] = spread, codes(middle - 14, middle - 10, (len(r), products))
    a[r, :1], b[r, :1] = middle << stored, middle << stored
    c[r] = np.where(rng.random(len(r)) < 0.5, 0xBF800000, 0x3FFFFFFF)
    r = rows(7)
    a[r], b[r] = codes(top - 2, top, (len(r), products)), codes(middle - 2, middle + 2, (len(r), products))
    c[r] = rng.integers(0x7E800000, 0x7F800000, len(r)) | rng.integers(0, 2, len(r)) << 31
    r = rows(8)
    specials = rng.integers(fmt.max_code - 1, fmt.sign_bit, (len(r), products))
    specials |= rng.integers(0, 2, (len(r), products)) * fmt.sign_bit
    a[r] = np.where(rng.random((len(r), products)) < 0.06, specials, a[r])
    b[r] = np.where(rng.random((len(r), products)) < 0.06, b[r] & fmt.sign_bit, b[r])
    c[r] = np.where(rng.random(len(r)) < 0.1, 0xFF800000, c[r])
    r = rows(9)
    a[r], b[r] = (
        codes(0, middle // 2, (len(r), products)),
        codes(middle // 3, middle // 2 + 9, (len(r), products)),
    )
    c[r] &= 1 << 31
    r = rows(10)
    a[r], b[r] = (
        codes(middle // 3, middle // 2 - 13, (len(r), products)),
        codes(0, middle // 3, (len(r), products)),
    )
    a[r, :1], b[r, :1] = rng.integers(max(middle // 2 - 8, 0), middle // 2, (2, len(r), 1)) << stored
    c[r] = 0
    return a.astype(dtype), b.astype(dtype), c.astype(np.uint32)


def scalar_steps(steps: Steps, model: FdpaModel) -> list[int]:
    a, b, c = (x.tolist() for x in steps)
    return [model.step(x, y, z) for x, y, z in zip(a, b, c, strict=True)]


def vector_steps(steps: Steps, model: FdpaModel) -> list[int]:
    d = fdpa_vector(
        *steps, inputs=model.inputs, group=model.group, fraction_bits=model.fraction_bits, rules=model.rules
    )
    result: list[int] = d.tolist()
    return result


def assert_same_bits(got: list[int], expected: list[int], steps: Steps, what: str) -> None:
    wrong = [i for i, (x, y) in enumerate(zip(got, expected, strict=True)) if x != y]
    if wrong:
        i = wrong[0]
        a, b, c = steps[0][i], steps[1][i], steps[2][i]
        operands = f"a={[hex(x) for x in a]} b={[hex(x) for x in b]} c={hex(c)}"
        pytest.fail(
            f"{what}: {len(wrong)} differ; step {i}: {got[i]:#010x}, not {expected[i]:#010x}; {operands}"
        )


def read_hardware() -> tuple[Steps, list[int]]:
    a, b = (
        np.array([[int(x, 16) >> 16 for x in line.split()] for line in (HARDWARE / name).open()], np.uint16)
        for name in ("a_H100_bf16.txt", "b_H100_bf16.txt")
    )
    c, d = (
        [int(line, 2) for line in (HARDWARE / name).open()] for name in ("c_H100_fp32.txt", "d_H100_fp32.txt")
    )
    return (a, b, np.array(c, np.uint32)), d


needs_hardware_vectors = pytest.mark.skipif(not HARDWARE.is_dir(), reason="hardware vectors are not here")


@needs_hardware_vectors
def test_reproduces_every_h100_vector() -> None:
    steps, expected = read_hardware()
    assert len(expected) == 5000
    assert_same_bits(scalar_steps(steps, HOPPER), expected, steps, "scalar")
    assert_same_bits(vector_steps(steps, HOPPER), expected, steps, "array twin")


@needs_hardware_vectors
@pytest.mark.parametrize(
    ("wrong", "matches"),
    [
        (replace(HOPPER, fraction_bits=23), 3580),
        (replace(HOPPER, fraction_bits=24), 4509),
        (replace(HOPPER, fraction_bits=26), 4842),
        (replace(HOPPER, fraction_bits=27), 4806),
        (replace(HOPPER, rules=Rules(rounding=RNE)), 3317),
        (replace(HOPPER, rules=Rules(alignment=RNE)), 4816),
        (replace(HOPPER, rules=Rules(alignment=RD)), 4963),
        (replace(HOPPER, rules=Rules(normalize_products=True)), 4854),
    ],
    ids=["F=23", "F=24", "F=26", "F=27", "RNE result", "RNE alignment", "floor alignment", "normalised"],
)
def test_h100_vectors_refute_other_parameters(wrong: FdpaModel, matches: int) -> None:
    steps, expected = read_hardware()
    assert sum(x == y for x, y in zip(vector_steps(steps, wrong), expected, strict=True)) == matches


def test_committed_vectors() -> None:
    content = json.loads(VECTORS.read_text())
    canonical = json.dumps(content["cases"], separators=(",", ":")).encode()
    assert hashlib.sha256(canonical).hexdigest() == content["sha256"]
    assert len(content["cases"]) == 200
    for case in content["cases"]:
        a, b = ([int(x, 16) for x in case[name]] for name in "ab")
        c, d = int(case["c"], 16), int(case["d"], 16)
        assert fdpa(a, b, c) == d, f"case {case['id']}"
        lane = fdpa_vector(np.array([a], np.uint16), np.array([b], np.uint16), np.array([c], np.uint32))
        assert lane.tolist() == [d], f"case {case['id']}"


def test_step_equals_the_naive_model() -> None:
    steps = adversarial_steps(seed=1, count=4000)
    a, b, c = (x.tolist() for x in steps)
    expected = [naive_step(x, y, z) for x, y, z in zip(a, b, c, strict=True)]
    assert_same_bits(scalar_steps(steps, HOPPER), expected, steps, "scalar against naive")


def test_twin_equals_the_scalar_on_adversarial_steps() -> None:
    steps = adversarial_steps(seed=2, count=24_000)
    expected = scalar_steps(steps, HOPPER)
    assert_same_bits(vector_steps(steps, HOPPER), expected, steps, "hopper")
    codes = np.array(expected, np.uint32)
    magnitudes = codes & 0x7FFFFFFF
    assert (magnitudes == 0x7F800000).sum() > 500  # the cases do reach every corner
    assert (magnitudes > 0x7F800000).sum() > 500
    assert ((magnitudes > 0) & (magnitudes < 0x800000)).sum() > 500
    assert (magnitudes == 0).sum() > 500
    assert (codes == 0x80000000).sum() == 0  # the step has no negative zero


RULES = {
    "RNE result": Rules(rounding=RNE),
    "RNA result": Rules(rounding=RNA),
    "RU result": Rules(rounding=RU),
    "RD result": Rules(rounding=RD),
    "RNE result, saturating": Rules(rounding=RNE, overflow_to_inf=False),
    "RU result, saturating": Rules(rounding=RU, overflow_to_inf=False),
    "RD result, saturating": Rules(rounding=RD, overflow_to_inf=False),
    "saturating": Rules(overflow_to_inf=False),
    "RNE alignment": Rules(alignment=RNE),
    "RNA alignment": Rules(alignment=RNA),
    "RU alignment": Rules(alignment=RU),
    "RD alignment": Rules(alignment=RD),
    "normalised": Rules(normalize_products=True),
    "normalised, no zero exponent": Rules(normalize_products=True, zero_exponent=None),
    "zero exponent -126": Rules(zero_exponent=-126),
    "zero exponent -140": Rules(zero_exponent=-140),
    "zero exponent 5": Rules(zero_exponent=5),
    "no zero exponent": Rules(zero_exponent=None),
    "negative zero": Rules(negative_zero=True),
    "signed underflow": Rules(signed_underflow=True),
    "input subnormals flushed": Rules(subnormal_inputs=False),
    "result subnormals flushed": Rules(subnormal_results=False),
    "flushed, signed": Rules(subnormal_results=False, signed_underflow=True),
    "other NaN": Rules(nan=0x7FC00000),
    "narrow result": Rules(output=Format("E8M13", precision=14, emin=-126, emax=127)),
    "narrow RNE result": Rules(rounding=RNE, output=Format("E8M13", precision=14, emin=-126, emax=127)),
}


@pytest.mark.parametrize("name", RULES)
def test_twin_equals_the_scalar_under_every_rule_and_each_rule_matters(name: str) -> None:
    steps = adversarial_steps(seed=3, count=1500)
    model = replace(HOPPER, rules=RULES[name])
    expected = scalar_steps(steps, model)
    assert_same_bits(vector_steps(steps, model), expected, steps, name)
    assert expected != scalar_steps(steps, HOPPER)


@pytest.mark.parametrize(
    "model",
    [
        *MACHINES.values(),
        FdpaModel("e5m2", "test", inputs=FP8_E5M2, group=32, fraction_bits=13),
        FdpaModel("fp16 F=14", "test", inputs=FP16, fraction_bits=14),
        FdpaModel("bf16 F=9", "test", fraction_bits=9),
        FdpaModel("fp16 normalised", "test", inputs=FP16, rules=Rules(normalize_products=True)),
        FdpaModel("bf16 F=10 normalised", "test", fraction_bits=10, rules=Rules(normalize_products=True)),
        FdpaModel("bf16 F=40", "test", fraction_bits=40),
        FdpaModel("one product", "test", group=1),
    ],
    ids=lambda model: model.name,
)
def test_twin_equals_the_scalar_for_other_machines(model: FdpaModel) -> None:
    steps = adversarial_steps(seed=4, count=1500, fmt=model.inputs, products=model.group)
    assert_same_bits(vector_steps(steps, model), scalar_steps(steps, model), steps, model.name)


@pytest.mark.parametrize("products", [0, 1, 7, 15])
def test_missing_products_are_absent(products: int) -> None:
    steps = adversarial_steps(seed=5, count=600, products=products)
    expected = scalar_steps(steps, HOPPER)
    assert_same_bits(vector_steps(steps, HOPPER), expected, steps, f"{products} products")
    if products == 0:  # the accumulator alone comes back, but for the sign of zero and a NaN's payload
        for c, d in zip(steps[2].tolist(), expected, strict=True):
            assert d == (0 if c == 1 << 31 else c if c & 0x7FFFFFFF <= 0x7F800000 else 0x7FFFFFFF)


@pytest.mark.parametrize("terms", [1, 16, 17, 100])
def test_chains_equal_the_scalar(terms: int) -> None:
    rows, positions = 40, 3
    a, b, c = adversarial_steps(seed=terms, count=rows * positions, products=terms)
    h, w = b[:positions], a[:rows]
    start = c.reshape(positions, rows)
    got = fdpa_chain_vector(h, w, c=start)
    expected = [
        [fdpa_chain(h[m].tolist(), w[i].tolist(), c_bits=int(start[m, i])) for i in range(rows)]
        for m in range(positions)
    ]
    assert got.tolist() == expected
    assert fdpa_chain_vector(h[0], w, c=start[0]).tolist() == expected[0]


def test_long_chains_cross_chunks_and_equal_the_scalar() -> None:
    rng = np.random.default_rng(6)
    h, w = (
        (rng.standard_normal(shape).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        for shape in ((200,), (2100, 200))
    )
    got = fdpa_chain_vector(h, w)
    for i in (0, 1, 2047, 2048, 2099):
        assert int(got[i]) == fdpa_chain(h.tolist(), w[i].tolist())


@pytest.mark.parametrize("terms", [0, 5, 40])
def test_pairs_equal_the_scalar(terms: int) -> None:
    a, b, _ = adversarial_steps(seed=9, count=2100, products=terms)
    got = fdpa_chain_pairs(a, b)
    for i in (*range(40), 2047, 2048, 2099):
        assert int(got[i]) == fdpa_chain(a[i].tolist(), b[i].tolist())


def test_machine_methods_use_the_machine() -> None:
    ampere = MACHINES["ampere"]
    a, b, _ = adversarial_steps(seed=8, count=20, products=24)
    for h, w in zip(a, b, strict=True):
        expected = fdpa_chain(h.tolist(), w.tolist(), group=8, fraction_bits=24)
        assert ampere.chain(h.tolist(), w.tolist()) == expected
        assert fdpa_chain_model(ampere, h, w[None]).tolist() == [expected]


# The published probes (arXiv 2512.07004 and the crafted inputs used on Hopper), one operand being 1.


def probe(values: list[int], c: int = 0, model: FdpaModel = HOPPER) -> int:
    return model.step(values, [ONE] * len(values), c)


def test_25_fraction_bits_survive() -> None:
    for e in range(1, 41):
        expected = ((127 - e) << 23) if e <= 25 else 0
        assert probe([ONE, power(-e), MINUS_ONE]) == expected
        assert probe([power(-e), MINUS_ONE], c=ONE32) == expected  # the accumulator is aligned too
        assert probe([ONE, MINUS | power(-e), MINUS_ONE]) == (expected | 1 << 31 if expected else 0)


def test_what_is_cut_off_is_truncated_toward_zero() -> None:
    for cut in (0x3F400000, 0x3F600000, 0x3F7F0000):  # 0.75, 0.875, nearly 1 times 2^-25
        value = (cut >> 16) - (25 << 7)
        assert probe([ONE, value, MINUS_ONE]) == 0
        assert probe([ONE, MINUS | value, MINUS_ONE]) == 0


def test_the_sum_is_truncated_to_fp32() -> None:
    assert probe([ONE, power(-23), power(-24)]) == ONE32 + 1
    assert probe([MINUS_ONE, MINUS | power(-24)]) == ONE32 | 1 << 31
    assert probe([ONE, power(-24), power(-25)]) == ONE32


def test_a_group_has_16_products() -> None:
    for j in range(2, 40):
        values = [ONE, MINUS_ONE] + [0] * 38
        values[j] = power(-60)
        expected = (127 - 60) << 23 if j >= 16 else 0
        assert fdpa_chain(values, [ONE] * 40) == expected


def test_products_are_not_normalised() -> None:
    three_halves, tiny = 0x3FC0, power(-25)
    # 1.5·1.5 = 2.25 is aligned at 2^0, 2·1.125 = 2.25 at 2^1, where 2^-25 is cut off: equal products,
    # different sums.
    terms = ([three_halves] + [tiny] * 15, [three_halves] + [ONE] * 15)
    assert fdpa([three_halves, *[tiny] * 15], [three_halves, *[ONE] * 15], 0) == 0x40100001
    assert fdpa([TWO, *[tiny] * 15], [0x3F90, *[ONE] * 15], 0) == 0x40100000
    assert fdpa(*terms, 0, rules=Rules(normalize_products=True)) == 0x40100000


def test_the_fused_sum_is_not_monotone_in_its_terms() -> None:
    """Sixteen products of 2^-25. Raising c from 2 - 2^-23 to 2 moves e_max up, so all of them are cut
    off: a larger accumulator gives a smaller sum."""
    a, b = [power(-25)] * 16, [ONE] * 16
    below, above = fdpa(a, b, 0x3FFFFFFF), fdpa(a, b, TWO32)
    assert (below, above) == (0x40000001, 0x40000000)
    assert fp32(0x3FFFFFFF) < fp32(TWO32)
    assert fp32(below) > fp32(above)


# One concrete case for each corner: the default, which an H200 showed, and what the other choice would give.


def test_zero_exponent_decides_what_survives_among_tiny_terms() -> None:
    # 2^-145 - 2^-159 with c = +0. Aligned at -133 the quantum is 2^-158, so the small term is cut off and
    # 2^-145 remains; without a zero's exponent the difference is exact and truncates to 15·2^-149.
    a, b = [power(-73), MINUS | power(-80)], [power(-72), power(-79)]
    assert fdpa(a, b, 0) == 16
    assert fdpa(a, b, 0, rules=Rules(zero_exponent=None)) == 15
    # 2^-145 - 2^-155: kept at -133, cut off at -126 (quantum 2^-151)
    a, b = [power(-73), MINUS | power(-80)], [power(-72), power(-75)]
    assert fdpa(a, b, 0) == 15
    assert fdpa(a, b, 0, rules=Rules(zero_exponent=-126)) == 16
    # a nonzero accumulator closes the corner: its own exponent is at least -126
    assert fdpa(a, b, 1) == fdpa(a, b, 1, rules=Rules(zero_exponent=None)) == 17


def test_sign_of_an_all_zero_sum() -> None:
    assert fdpa([MINUS] * 16, [ONE] * 16, 1 << 31) == 0
    assert fdpa([MINUS] * 16, [ONE] * 16, 1 << 31, rules=Rules(negative_zero=True)) == 1 << 31
    assert fdpa([MINUS] * 16, [ONE] * 16, 0, rules=Rules(negative_zero=True)) == 0
    assert fdpa([ONE, MINUS_ONE], [ONE, ONE], 0, rules=Rules(negative_zero=True)) == 0


def test_sign_of_an_underflowing_sum() -> None:
    a, b = [MINUS | power(-100)], [power(-50)]  # -2^-150
    assert fdpa(a, b, 0) == 0
    assert fdpa(a, b, 0, rules=Rules(signed_underflow=True)) == 1 << 31


def test_subnormal_inputs_keep_the_exponent_of_their_field() -> None:
    smallest = 0x0001  # 2^-133, exponent field -126
    assert fdpa([smallest], [power(0)], 0) == 0x00010000
    assert fdpa([smallest], [power(0)], 0, rules=Rules(subnormal_inputs=False)) == 0
    # aligned at -126 + 127 = 1, although the product is only 2^-6: 2^-25 is cut off, 2^-24 is not
    assert fdpa([smallest, power(-25)], [power(127), ONE], 0) == (127 - 6) << 23
    assert fdpa([smallest, power(-24)], [power(127), ONE], 0) > (127 - 6) << 23


def test_subnormal_results_are_kept() -> None:
    assert fdpa([power(-100)], [power(-40)], 0) == 1 << 9
    assert fdpa([power(-100)], [power(-40)], 0, rules=Rules(subnormal_results=False)) == 0
    assert fdpa([], [], 0x80000001) == 0x80000001


def test_overflow_is_an_infinity() -> None:
    assert fdpa([power(127)], [TWO], 0) == 0x7F800000
    assert fdpa([power(127)], [MINUS | TWO], 0) == 0xFF800000
    assert fdpa([power(127)], [TWO], 0, rules=Rules(overflow_to_inf=False)) == 0x7F7FFFFF
    assert fdpa([power(127), power(127)], [TWO, MINUS | TWO], ONE32) == 0  # 2^128 inside a step is finite
    assert fdpa([0x7F7F], [ONE], 0x7F7F0000 - 0x7F000000) == 0x7F7F0000


def test_infinities_and_nan() -> None:
    assert fdpa([INF], [ONE], 0) == 0x7F800000
    assert fdpa([INF], [MINUS_ONE], 0) == 0xFF800000
    assert fdpa([INF], [INF | MINUS], 0x7F800000) == 0x7FFFFFFF
    assert fdpa([INF, INF], [ONE, MINUS_ONE], 0) == 0x7FFFFFFF
    assert fdpa([INF], [0], 0) == 0x7FFFFFFF
    assert fdpa([NAN | MINUS], [0], 0) == 0x7FFFFFFF
    assert fdpa([ONE], [ONE], 0xFFC00001) == 0x7FFFFFFF
    assert fdpa([NAN], [ONE], 0, rules=Rules(nan=0x7FC00000)) == 0x7FC00000
    # an infinity made on the way stays, and meets its opposite
    assert fdpa_chain([power(127)] + [0] * 16, [TWO] + [0] * 16, group=1) == 0x7F800000
    assert fdpa_chain([power(127)] * 2, [TWO, MINUS | TWO], group=1) == 0x7F800000
    assert fdpa_chain([power(127), INF], [TWO, MINUS_ONE], group=1) == 0x7FFFFFFF


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="17 products in a step of 16"):
        fdpa([0] * 17, [0] * 17, 0)
    with pytest.raises(ValueError, match="2 values of a, 1 of b"):
        fdpa([0, 0], [0], 0)
    with pytest.raises(ValueError, match="0x10000 is not a code of BF16"):
        fdpa([0x10000], [0], 0)
    with pytest.raises(ValueError, match="2 values of h, 1 of w"):
        fdpa_chain([0, 0], [0])
    with pytest.raises(ValueError, match="does not lie within FP32"):
        Rules(output=FP16)
    codes = np.zeros((2, 17), np.uint16)
    with pytest.raises(ValueError, match="17 products in a step of 16"):
        fdpa_vector(codes, codes, np.zeros(2, np.uint32))
    with pytest.raises(ValueError, match="do not fit"):
        fdpa_vector(codes, codes[:1], np.zeros(2, np.uint32))
    with pytest.raises(TypeError, match="uint16 codes of BF16, got int64"):
        fdpa_chain_vector(codes.astype(np.int64)[0], codes.astype(np.int64))
    with pytest.raises(ValueError, match="is not"):
        fdpa_chain_vector(codes[0], codes[:, :3])
    with pytest.raises(ValueError, match=r"are not \[N, K\] twice"):
        fdpa_chain_pairs(codes, codes[:1])
    with pytest.raises(ValueError, match="at most 16"):
        fdpa_chain_vector(codes[0], codes, inputs=FP32)
    with pytest.raises(ValueError, match="no exact int64 sums"):
        fdpa_chain_vector(codes[0], codes, fraction_bits=50)


def vector_content() -> dict[str, Any]:
    a, b, c = (x.tolist() for x in adversarial_steps(seed=2026, count=200))
    chooser = random.Random(2026)
    cases = []
    for i, (x, y, z) in enumerate(zip(a, b, c, strict=True)):
        products = chooser.choice([1, 5, 16, 16, 16, 16])
        x, y = x[:products], y[:products]
        cases.append(
            {
                "id": i,
                "a": [f"{v:04x}" for v in x],
                "b": [f"{v:04x}" for v in y],
                "c": f"{z:08x}",
                "d": f"{naive_step(x, y, z):08x}",
            }
        )
    canonical = json.dumps(cases, separators=(",", ":")).encode()
    return {
        "about": "One Hopper BF16 step: a, b BF16 codes, c, d FP32 codes; made by a model on fractions.",
        "sha256": hashlib.sha256(canonical).hexdigest(),
        "cases": cases,
    }


def test_committed_vectors_are_the_naive_models() -> None:
    assert json.loads(VECTORS.read_text()) == vector_content()


if __name__ == "__main__":
    VECTORS.write_text(json.dumps(vector_content(), indent=None, separators=(",", ":")) + "\n")
