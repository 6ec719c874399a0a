"""The corpus: its schema, its bits, and that every implementation here returns them."""

from __future__ import annotations

import itertools
import json
from fractions import Fraction
from pathlib import Path

import pytest
from certhead.conformance.case_families import FP32_OFFSETS, generate, spacing, tied_head
from certhead.conformance.cases import CORPUS, MANIFEST, Case, pack, parse, read_corpus, unpack, write_corpus
from certhead.conformance.compare import Comparison, run, take
from certhead.conformance.drivers.registry import make
from certhead.conformance.errors import BadInput
from certhead.pyref.codec import decode
from certhead.pyref.fdpa import HOPPER
from certhead.pyref.formats import FP32
from certhead.pyref.head import bf16_of


@pytest.fixture(scope="module")
def corpus() -> list[Case]:
    return read_corpus()


def test_committed_corpus_is_what_the_generator_makes(tmp_path: Path) -> None:
    write_corpus(generate(0), tmp_path)
    made = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_bytes() for path in CORPUS.iterdir()}
    assert sum(map(len, made.values())) < 1 << 20


def test_a_seed_gives_other_cases_with_the_same_names(corpus: list[Case]) -> None:
    other = {case.id: case for case in generate(1)}
    assert {case.id for case in corpus} == set(other)
    assert sum(case.given != other[case.id].given for case in corpus) > len(corpus) // 2


@pytest.mark.parametrize("offset", FP32_OFFSETS)
@pytest.mark.parametrize("integers", [False, True])
def test_near_ties_are_what_they_claim(offset: str, integers: bool) -> None:
    import random

    halves, units = FP32_OFFSETS[offset]
    rng = random.Random(5)
    weight, (state,) = tied_head(rng, FP32_OFFSETS[offset], (0, 17), 18, integers=integers)
    sums = [HOPPER.chain(state, row) for row in weight]
    values = [Fraction(decode(bits, FP32)) for bits in sums]
    low, high = values[0], values[17]
    half = (Fraction(decode(sums[0] + 0x10000, FP32)) - low) / 2
    assert high - low == halves * half + units * (1 if integers else spacing(sums[0]))
    assert max(values[1:17]) < low
    rounded_up = offset in ("ulp", "half-plus") or (offset == "half" and sums[0] >> 16 & 1)
    assert (bf16_of(high) > bf16_of(low)) == bool(rounded_up)


def test_torch_and_pyref_have_the_wanted_bits(corpus: list[Case]) -> None:
    for name, least in (("pyref", 180), ("torch", 175)):
        outcome = run(make(name), corpus)
        assert outcome.passed, [*map(str, outcome.differences), *outcome.failures][:5]
        assert outcome.cases >= least
        assert set(outcome.compared) == {
            "quantize", "limbs", "screen", "select", "rescore", "decide", "token"
        }  # fmt: skip


def test_interpreted_triton_has_the_wanted_bits(corpus: list[Case]) -> None:
    pytest.importorskip("triton")
    per_family = [next(cases) for _, cases in itertools.groupby(corpus, key=lambda c: (c.stage, c.family))]
    outcome = run(make("interpret"), per_family)
    assert outcome.passed, [*map(str, outcome.differences), *outcome.failures][:5]
    assert set(outcome.compared) >= {"quantize", "limbs", "screen", "select", "rescore", "decide", "token"}


def test_every_bit_that_is_wanted_counts(corpus: list[Case]) -> None:
    """Flip one digit of each wanted field in turn: the comparison must name that stage and field."""
    seen = set()
    for case in corpus:
        for stage, fields in case.want.items():
            for name, values in fields.items():
                at = next((i for i, v in enumerate(values) if v and v != "none"), None)
                if name == "reason" or at is None or (case.stage, stage, name) in seen:
                    continue
                seen.add((case.stage, stage, name))
                text = values[at] or ""
                flipped = text[:-1] + f"{int(text[-1], 16) ^ 1:x}"
                answer = {
                    s: {
                        n: [*v] if (s, n) != (stage, name) else [*v[:at], flipped, *v[at + 1 :]]
                        for n, v in f.items()
                    }
                    for s, f in case.want.items()
                }
                outcome = Comparison("test")
                take(outcome, case, answer)
                (difference,) = outcome.differences
                assert (difference.stage, difference.field, difference.item) == (stage, name, at)
                assert difference.got.startswith("0x")
    assert len(seen) > 30


def test_hex_round_trip() -> None:
    assert pack("codes", [-1, -128, 127, 0]) == "ff807f00"
    assert unpack("codes", "ff807f00") == [-1, -128, 127, 0]
    assert unpack("hidden", "ffff0001") == [0xFFFF, 1]
    with pytest.raises(ValueError, match="no multiple of 4"):
        unpack("hidden", "fff")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "certhead.case/9"}, "schema 'certhead.case/9' is not"),
        ({"stage": "sample"}, "unknown stage 'sample'"),
        ({"in": {"group": 1}}, "in has no weight"),
        ({"in": {"group": 1, "weight": ["3f8"]}}, "in.weight: 3 digits"),
        ({"in": {"group": 1, "weight": ["zzzz"]}}, "in.weight: invalid literal"),
        ({"want": {"sample": {}}}, "unknown stages sample"),
    ],
)
def test_malformed_cases_are_named(corpus: list[Case], change: dict[str, object], message: str) -> None:
    record = json.loads(next(c for c in corpus if c.stage == "quantize").to_json())
    with pytest.raises(BadInput, match="here: ") as problem:
        parse(json.dumps(record | change), "here")
    assert message in str(problem.value)


def test_a_changed_corpus_file_is_refused(tmp_path: Path, corpus: list[Case]) -> None:
    write_corpus(corpus[:3], tmp_path)
    assert [c.id for c in read_corpus(tmp_path)] == [c.id for c in corpus[:3]]
    path = next(tmp_path.glob("*.jsonl"))
    path.write_text(path.read_text().replace("3f80", "3f81", 1) + " ")
    with pytest.raises(BadInput, match=MANIFEST):
        read_corpus(tmp_path)
