"""Driver `lean`: the executable reference, for the stages that its protocol offers.

It answers `quantize`, `limbs` of finite positions, re-scored sums, `select`, `decide` and the token of
whole exact-mode heads. Its integers are values on a scale of 2^-B; here they become bits again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeAlias

from certhead.conformance.cases import Answer, Case, pack
from certhead.conformance.lean import BF16_GRID, FP32_SCALE, LeanReference, fp32_integer, request
from certhead.pyref import head as spec
from certhead.pyref.fdpa import HOPPER
from certhead.pyref.formats import BF16, FP32
from certhead.pyref.models import MODELS
from certhead.pyref.rounding import RoundingMode, round_to_bits

from .base import CaseByCase, Unsupported
from .ranks import answer_ranks

PRODUCT_SCALE = 2 * FP32_SCALE
Question: TypeAlias = tuple[list[str], Callable[[list[str]], Answer]]
"""Request lines, and what makes an answer of their replies."""


class LeanDriver(CaseByCase):
    """Builds the reference when it is made, which raises RuntimeError with Lean's words if that fails."""

    name = "lean"

    def __init__(self) -> None:
        self._asked = LeanReference().start()

    def answer(self, case: Case) -> Answer:
        """The bits of one case. Raises ValueError with the reference's words where it refuses a request."""
        if "ranks" in case.given:
            return answer_ranks(self._ask, case)
        return self._ask(case)

    def _ask(self, case: Case) -> Answer:
        question = _QUESTIONS[case.stage](case) if case.stage in _QUESTIONS else None
        if question is None:
            raise Unsupported
        lines, answer = question
        replies = [self._asked.ask(line) for line in lines]
        for reply in replies:
            if reply.startswith("error"):
                raise ValueError(reply)
        return answer(replies)

    def close(self) -> None:
        """Ends the reference."""
        self._asked.close()


def _zero_words() -> tuple[int, int]:
    exponent = HOPPER.rules.zero_exponent
    return (0, 0) if exponent is None else (1, exponent)


def _integers(row: Sequence[int]) -> list[int]:
    return [fp32_integer(bits << 16) for bits in row]


def _finite(rows: Sequence[Sequence[int]]) -> bool:
    return all(b & 0x7F80 != 0x7F80 for row in rows for b in row)


def _bits(name: str, value: int) -> str:
    fmt = BF16 if name == "scale" else FP32
    return pack(name, [round_to_bits(Fraction(value, 2**FP32_SCALE), fmt, RoundingMode.RNE)])


def _quantize(case: Case) -> Question:
    group, weight = case.given["group"], case.rows("weight")
    columns = len(weight[0])
    lines = [request("quantize", FP32_SCALE, group, *_integers(row)) for row in weight]

    def answer(replies: list[str]) -> Answer:
        rows = [[int(word) for word in reply.split()] for reply in replies]
        return {
            "quantize": {
                "scale": [_bits("scale", row[0]) for row in rows],
                "codes": [pack("codes", row[1 : 1 + columns]) for row in rows],
                "residual_codes": [pack("residual_codes", row[1 + columns : -1]) for row in rows],
                "norm_codes": [pack("norm_codes", row[-1:]) for row in rows],
            }
        }

    return lines, answer


def _limbs(case: Case) -> Question | None:
    states = case.rows("hidden")
    if not _finite(states) or any(spec.range_reason(state) for state in states):
        return None
    options = (case.given["group"], case.number("gamma_num"), case.number("code_norm"))
    lines = [
        request("limbs", case.given["limb_count"], FP32_SCALE, *options, *_integers(state))
        for state in states
    ]
    columns = len(states[0])

    def answer(replies: list[str]) -> Answer:
        names = ("unit_exp", "group_shift", "tail_codes", "limb_hi", "limb_lo", "group_codes")
        fields: dict[str, list[str | None]] = {name: [] for name in ("reason", *names)}
        for reply in replies:
            refused = reply == "refused"
            fields["reason"].append("refused" if refused else "none")
            if refused:
                for name in names:
                    fields[name].append(None)
                continue
            unit, tau, _, tail, *rest = (int(word) for word in reply.split())
            parts = (
                [unit.bit_length() - 1 - FP32_SCALE], [tau], [tail],
                rest[:columns], rest[columns : 2 * columns], rest[2 * columns :],
            )  # fmt: skip
            for name, values in zip(names, parts, strict=True):
                fields[name].append(pack(name, values))
        return {"limbs": fields}

    return lines, answer


def _select(case: Case) -> Question:
    lines = []
    for lo, hi in zip(case.rows("lo"), case.rows("hi"), strict=True):
        ends = [fp32_integer(b) for pair in zip(lo, hi, strict=True) for b in pair]
        lines.append(
            request("select", *BF16_GRID, len(lo), case.given["block"], case.given["capacity"], *ends)
        )

    def answer(replies: list[str]) -> Answer:
        blocks: list[str | None] = [
            "none" if reply == "overflow" else pack("blocks", map(int, reply.split()[1:]))
            for reply in replies
        ]
        return {"select": {"blocks": blocks}}

    return lines, answer


def _rescore(case: Case) -> Question:
    states, weight = case.rows("hidden"), case.rows("weight")
    lines = [
        request(
            "fdpa-dot",
            16,
            25,
            PRODUCT_SCALE,
            *_zero_words(),
            *(b for p in zip(state, row, strict=True) for b in p),
        )
        for state in states
        for row in weight
    ]

    def answer(replies: list[str]) -> Answer:
        values = [Fraction(int(reply), 2**PRODUCT_SCALE) for reply in replies]
        bits = [round_to_bits(value, FP32, RoundingMode.RNE) for value in values]
        rows = len(weight)
        sums: list[str | None] = [
            pack("accumulators", bits[m * rows : (m + 1) * rows]) for m in range(len(states))
        ]
        return {"rescore": {"accumulators": sums}}

    return lines, answer


def _decide(case: Case) -> Question:
    lines = []
    if case.given["mode"] == "exact":
        for row in case.rows("accumulators"):
            lines.append(request("decide-exact", *BF16_GRID, *map(fp32_integer, row)))
    else:
        for lo, hi in zip(case.rows("lo"), case.rows("hi"), strict=True):
            ends = [fp32_integer(b) for pair in zip(lo, hi, strict=True) for b in pair]
            lines.append(request("decide-enclosed", *BF16_GRID, *ends))

    def answer(replies: list[str]) -> Answer:
        return {"decide": {"token": [_token(reply) for reply in replies]}}

    return lines, answer


def _token(reply: str) -> str:
    kind, value = reply.split()
    return "none" if kind == "fallback" else pack("token", [int(value)])


def _head(case: Case) -> Question | None:
    states, weight, given = case.rows("hidden"), case.rows("weight"), case.given
    if given["mode"] != "exact" or "fault" in given or not _finite(states):
        return None
    if any(spec.range_reason(state) for state in states):
        return None
    gamma_num = MODELS[given["model"]].gamma_num(len(weight[0]))
    words = [given["limb_count"], given["group"], gamma_num, given["block"], given["capacity"]]
    flat = [b for row in weight for b in row]
    shape = (len(weight), len(weight[0]))
    lines = [request("head", *words, *_zero_words(), *shape, *flat, *state) for state in states]

    def answer(replies: list[str]) -> Answer:
        tokens: list[str | None] = [_token(reply) for reply in replies]
        reasons: list[str | None] = [
            reply.split()[1] if reply.startswith("fallback") else "none" for reply in replies
        ]
        return {"decide": {"token": tokens, "reason": reasons}}

    return lines, answer


_QUESTIONS: dict[str, Callable[[Case], Question | None]] = {
    "quantize": _quantize,
    "limbs": _limbs,
    "select": _select,
    "rescore": _rescore,
    "decide": _decide,
    "head": _head,
}
