"""The executable Lean reference against pyref, bit for bit, and a sample through the kernel."""

from __future__ import annotations

import random
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
from certhead.conformance.lean import (
    BF16_GRID,
    FP32_GRID,
    FP32_SCALE,
    REPOSITORY,
    LeanReference,
    elaborate,
    fp32_integer,
    request,
)
from certhead.pyref.formats import BF16, FP32, Format, Value
from certhead.pyref.head import Screened, decide_enclosed, decide_exact, first_max, rows_of, select
from certhead.pyref.rounding import RoundingMode, round_to

MODES = {
    "round-ne": RoundingMode.RNE,
    "round-z": RoundingMode.RZ,
    "round-up": RoundingMode.RU,
    "round-down": RoundingMode.RD,
}
GRIDS: dict[str, tuple[Format, tuple[int, int, int]]] = {"BF16": (BF16, BF16_GRID), "FP32": (FP32, FP32_GRID)}


@pytest.fixture(scope="module")
def lean() -> LeanReference:
    return LeanReference()


def shown(value: Value) -> str:
    """A value of a format as the protocol writes it: an integer on the scale 2^-149, or an infinity."""
    if isinstance(value, float) and value != 0:
        return "inf" if value > 0 else "-inf"
    scaled = Fraction(value) * 2**FP32_SCALE
    assert scaled.denominator == 1
    return str(scaled.numerator)


def hard_integers(rng: random.Random, grid: tuple[int, int, int], count: int) -> list[int]:
    """Ties and their neighbours, subnormals, powers of two, the overflow threshold, and random ones."""
    prec, qmin, top = grid
    out = []
    for _ in range(count):
        exponent = rng.choice([qmin, qmin + 1, qmin + prec, rng.randrange(qmin, top), top - prec])
        significand = rng.choice([0, 1, 2**prec - 1, rng.randrange(2**prec)])
        half = 2**exponent // 2
        offset = rng.choice([0, half, half + 1, half - 1, rng.randrange(2**exponent + 1)])
        x = significand * 2**exponent + offset
        out.append(rng.choice([1, -1]) * x)
    return [*out, 2**top, 2**top - 1, 2**top - 2 ** (top - prec - 1), -(2**top), 0]


@pytest.mark.parametrize("stage", MODES)
@pytest.mark.parametrize("name", GRIDS)
def test_rounding(lean: LeanReference, stage: str, name: str) -> None:
    fmt, grid = GRIDS[name]
    integers = hard_integers(random.Random(f"{stage} {name}"), grid, 500)
    (answer,) = lean.ask([request(stage, *grid, *integers)])
    expected = [shown(round_to((x, -FP32_SCALE), fmt, MODES[stage])) for x in integers]
    wrong = [(x, a, e) for x, a, e in zip(integers, answer.split(), expected, strict=True) if a != e]
    assert wrong == []


def close_bits(rng: random.Random) -> int:
    """FP32 codes that crowd a few BF16 values, so that ties, midpoints and both signs are common."""
    base = rng.choice([0x41800000, 0x41810000, 0x41820000, 0xC1800000, 0, 0x80000000, 0x00010000])
    return base + rng.choice([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, rng.randrange(0x10000)])


def interval_bits(rng: random.Random) -> tuple[int, int]:
    lo, hi = sorted([close_bits(rng), close_bits(rng)], key=fp32_integer)
    return lo, rng.choice([lo, hi])


def integers_of(ends: list[tuple[int, int]]) -> list[int]:
    return [fp32_integer(b) for end in ends for b in end]


def test_select(lean: LeanReference) -> None:
    rng = random.Random(1)
    requests, expected = [], []
    for _ in range(600):
        rows, block, capacity = rng.randrange(1, 40), rng.randrange(1, 6), rng.randrange(1, 9)
        ends = [interval_bits(rng) for _ in range(rows)]
        chosen = select([Screened(0, 0, 0, lo, hi) for lo, hi in ends], block=block, capacity=capacity)
        requests.append(request("select", *BF16_GRID, rows, block, capacity, *integers_of(ends)))
        expected.append(
            "overflow" if chosen.blocks is None else " ".join(["blocks", *map(str, chosen.blocks)])
        )
    assert lean.ask(requests) == expected
    assert {e.split()[0] for e in expected} == {"blocks", "overflow"}


def test_decide(lean: LeanReference) -> None:
    rng = random.Random(2)
    requests, expected = [], []
    for _ in range(600):
        bits = [close_bits(rng) for _ in range(rng.randrange(1, 12))]
        requests.append(request("decide-exact", *BF16_GRID, *map(fp32_integer, bits)))
        expected.append(f"exact {decide_exact(range(len(bits)), bits)}")
        ends = [interval_bits(rng) for _ in range(rng.choice([1, 1, 2, 2, 3, 5]))]
        token = decide_enclosed(range(len(ends)), ends)
        requests.append(request("decide-enclosed", *BF16_GRID, *integers_of(ends)))
        expected.append("fallback ambiguous" if token is None else f"enclosed {token}")
    assert lean.ask(requests) == expected
    assert {e.split()[0] for e in expected} == {"exact", "enclosed", "fallback"}


def certify_cases(count: int) -> list[tuple[tuple[int, int, int], list[int], list[int], str]]:
    """Shape, the screen's ends, the accumulators inside them, and what pyref's stages answer."""
    rng = random.Random(3)
    cases = []
    for _ in range(count):
        shape = rng.randrange(1, 30), rng.randrange(1, 6), rng.randrange(1, 7)
        rows, block, capacity = shape
        ends = [interval_bits(rng) for _ in range(rows)]
        values = [rng.choice(end) for end in ends]
        chosen = select([Screened(0, 0, 0, lo, hi) for lo, hi in ends], block=block, capacity=capacity)
        if chosen.blocks is None:
            answer = "fallback overflow"
        else:
            kept = rows_of(chosen.blocks, rows, block)
            answer = f"exact {decide_exact(kept, [values[i] for i in kept])}"
        cases.append((shape, integers_of(ends), [fp32_integer(v) for v in values], answer))
    return cases


def test_certify(lean: LeanReference) -> None:
    cases = certify_cases(600)
    asked = [request("certify-exact", *BF16_GRID, *shape, *ends, *values) for shape, ends, values, _ in cases]
    assert lean.ask(asked) == [answer for *_, answer in cases]
    for _, _, values, answer in cases:
        if answer.startswith("exact"):
            logits = [round_to((v, -FP32_SCALE), BF16) for v in values]
            assert answer == f"exact {first_max([Fraction(v) for v in logits])}", "the stock token"


def test_certify_enclosed_by_the_screen(lean: LeanReference) -> None:
    """Rescoring that returns the screen's own intervals: the token is certified or it is ambiguous."""
    cases = certify_cases(300)
    asked = [request("certify-enclosed", *BF16_GRID, *shape, *ends, *ends) for shape, ends, _, _ in cases]
    for (_, _, values, exact), answer in zip(cases, lean.ask(asked), strict=True):
        logits = [Fraction(round_to((v, -FP32_SCALE), BF16)) for v in values]
        if exact == "fallback overflow":
            assert answer == exact
        else:
            assert answer in ("fallback ambiguous", f"enclosed {first_max(logits)}")


def test_misunderstood_lines_say_so(lean: LeanReference) -> None:
    answers = lean.ask(["nonsense 1", "round-ne 8 16 277 x", "select 8 16 277 2 1 1 0 0", ""])
    assert answers == [
        "error unknown stage nonsense",
        "error not an integer: x",
        "error 8 integers where 10 are needed",
        "error unknown stage ",
    ]


def test_kernel_agrees_with_the_evaluator(lean: LeanReference, tmp_path: Path) -> None:
    """Cases as `example … := by decide +kernel`, so that the evaluator is not trusted alone.

    The same file with wrong tokens shows that the kernel would refuse.
    """
    lines = [
        "import CertHead.Decision.Code",
        "import CertHead.Float.Round",
        "open CertHead",
        "def ends (l : List (Int × Int)) (i : Nat) : Interval := ⟨(l.getD i (0, 0)).1, (l.getD i (0, 0)).2⟩",
    ]
    cases = certify_cases(16)
    for shape, ends, values, answer in cases:
        pairs = ", ".join(f"({lo}, {hi})" for lo, hi in zip(ends[::2], ends[1::2], strict=True))
        kind, result = answer.split()
        outcome = f".exact {result}" if kind == "exact" else f".fallback .{result}"
        lines.append(
            f"example : certify (roundNE ⟨8, 16, 277⟩) ⟨{', '.join(map(str, shape))}⟩ (ends [{pairs}])\n"
            f"  (.exact fun i => ({values} : List Int).getD i 0) = {outcome} := by decide +kernel"
        )
    source = tmp_path / "Examples.lean"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = [*elaborate(lean.modules), str(source)]
    ran = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    source.write_text("\n".join(lines).replace("= .exact 0", "= .exact 1") + "\n", encoding="utf-8")
    assert subprocess.run(command, cwd=REPOSITORY, capture_output=True).returncode != 0
