"""Driver `pyref`: the exact reference, one stage function after the other, and `certify` for the token."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from certhead.conformance.cases import Answer, Case, Fields, pack
from certhead.pyref import head as spec
from certhead.pyref.codec import decode
from certhead.pyref.fdpa import HOPPER
from certhead.pyref.formats import BF16, FP32
from certhead.pyref.models import MODELS
from certhead.pyref.rounding import RoundingMode, round_to_bits

from .base import CaseByCase, Unsupported
from .ranks import answer_ranks


class PyrefDriver(CaseByCase):
    """Answers every case but those with injected faults."""

    name = "pyref"

    def answer(self, case: Case) -> Answer:
        """The bits of one case."""
        if "ranks" in case.given:
            return answer_ranks(_head, case)
        if case.stage == "head":
            return _head(case)
        return {case.stage: _STAGES[case.stage](case)}

    def tokens(self, case: Case) -> list[str | None]:
        """By `certify` alone."""
        if "fault" in case.given:
            raise Unsupported
        if "ranks" in case.given:
            return self.answer(case)["token"]["token"]
        weight = case.rows("weight")
        rows = [spec.quantize_row(row, case.given["group"]) for row in weight]
        return [_returned(_certify(case, rows, state), weight, state) for state in case.rows("hidden")]


def _quantize(case: Case) -> Fields:
    return _copy([spec.quantize_row(row, case.given["group"]) for row in case.rows("weight")])


def _copy(rows: Sequence[spec.QuantizedRow]) -> Fields:
    return {
        "scale": [pack("scale", [bf16_bits(r.scale)]) for r in rows],
        "codes": [pack("codes", r.codes) for r in rows],
        "residual_codes": [pack("residual_codes", r.residual_codes) for r in rows],
        "norm_codes": [pack("norm_codes", [r.norm_code]) for r in rows],
    }


def bf16_bits(value: Fraction) -> int:
    """The bits of a value of BF16; zero is +0."""
    return round_to_bits(value, BF16, RoundingMode.RNE)


def _limbs(case: Case) -> Fields:
    options = (case.given["group"], case.number("gamma_num"), case.number("code_norm"))
    return _limb_fields(case.rows("hidden"), *options, case.given["limb_count"])[0]


def _limb_fields(
    states: Sequence[Sequence[int]], group: int, gamma_num: int, code_norm: int, limb_count: int
) -> tuple[Fields, list[spec.Limbs | None]]:
    names = ("unit_exp", "limb_hi", "limb_lo", "group_shift", "group_codes", "tail_codes")
    fields: Fields = {name: [] for name in ("reason", *names)}
    found = []
    for state in states:
        reason = spec.range_reason(state)
        limb = None if reason else spec.limbs(state, group, gamma_num, code_norm, limb_count)
        found.append(limb)
        fields["reason"].append("none" if limb else reason or "refused")
        values: tuple[Sequence[int] | None, ...] = (None,) * 6
        if limb:
            values = (
                [limb.unit_exp], limb.hi, limb.lo, [limb.group_shift], limb.group_codes, [limb.tail_code],
            )  # fmt: skip
        for name, value in zip(names, values, strict=True):
            fields[name].append("" if value is None else pack(name, value))
    return fields, found


def _screen(case: Case) -> Fields:
    rows = [
        spec.QuantizedRow(Fraction(decode(scale, BF16)), tuple(codes), tuple(residual), norm)
        for scale, codes, residual, norm in zip(
            case.singles("scale"),
            case.rows("codes"),
            case.rows("residual_codes"),
            case.singles("norm_codes"),
            strict=True,
        )
    ]
    positions = [
        spec.Limbs(x, tuple(hi), tuple(lo), tau, tuple(codes), tail)
        for x, hi, lo, tau, codes, tail in zip(
            case.singles("unit_exp"),
            case.rows("limb_hi"),
            case.rows("limb_lo"),
            case.singles("group_shift"),
            case.rows("group_codes"),
            case.singles("tail_codes"),
            strict=True,
        )
    ]
    screened = [[spec.screen(row, p, case.given["group"]) for row in rows] for p in positions]
    return _end_fields(screened)


def _end_fields(screened: Sequence[Sequence[spec.Screened] | None]) -> Fields:
    return {
        "lo": ["" if s is None else pack("lo", [one.lo_bits for one in s]) for s in screened],
        "hi": ["" if s is None else pack("hi", [one.hi_bits for one in s]) for s in screened],
    }


def _select(case: Case) -> Fields:
    fields: Fields = {"threshold": [], "candidates": [], "blocks": []}
    for lo, hi in zip(case.rows("lo"), case.rows("hi"), strict=True):
        screened = [spec.Screened(0, 0, 0, a, b) for a, b in zip(lo, hi, strict=True)]
        _add_selection(fields, _selection(screened, case))
    return fields


def _selection(screened: Sequence[spec.Screened], case: Case) -> spec.Selection:
    return spec.select(screened, block=case.given["block"], capacity=case.given["capacity"])


def _add_selection(fields: Fields, chosen: spec.Selection | None) -> None:
    if chosen is None:
        for values in fields.values():
            values.append("")
        return
    fields["threshold"].append(pack("threshold", [bf16_bits(chosen.threshold)]))
    fields["candidates"].append("none" if chosen.blocks is None else pack("candidates", chosen.candidates))
    fields["blocks"].append("none" if chosen.blocks is None else pack("blocks", chosen.blocks))


def _rescore(case: Case) -> Fields:
    gamma = Fraction(case.number("gamma_num"), 2**spec.GAMMA_BITS)
    fields: Fields = {"lo": [], "hi": [], "accumulators": []}
    for state in case.rows("hidden"):
        ends = [spec.rescore_enclosed(row, state, gamma) for row in case.rows("weight")]
        fields["lo"].append(pack("lo", [lo for lo, _ in ends]))
        fields["hi"].append(pack("hi", [hi for _, hi in ends]))
        fields["accumulators"].append(
            pack("accumulators", [HOPPER.chain(state, row) for row in case.rows("weight")])
        )
    return fields


def _decide(case: Case) -> Fields:
    tokens: list[str | None] = []
    if case.given["mode"] == spec.Mode.EXACT.value:
        for bits in case.rows("accumulators"):
            tokens.append(pack("token", [spec.decide_exact(range(len(bits)), bits)]))
    else:
        for lo, hi in zip(case.rows("lo"), case.rows("hi"), strict=True):
            token = spec.decide_enclosed(range(len(lo)), list(zip(lo, hi, strict=True)))
            tokens.append("none" if token is None else pack("token", [token]))
    return {"token": tokens}


def _head(case: Case) -> Answer:
    if "fault" in case.given:
        raise Unsupported
    weight, hidden, given = case.rows("weight"), case.rows("hidden"), case.given
    group, columns = given["group"], len(weight[0])
    exact = given["mode"] == spec.Mode.EXACT.value
    model = MODELS[given["model"]]
    rows = [spec.quantize_row(row, group) for row in weight]
    code_norm = spec.code_norm_bound([row.norm_code for row in rows], columns)
    limb_fields, found = _limb_fields(hidden, group, model.gamma_num(columns), code_norm, given["limb_count"])
    screened = [None if p is None else [spec.screen(row, p, group) for row in rows] for p in found]
    select: Fields = {"threshold": [], "candidates": [], "blocks": []}
    rescore: Fields = {"accumulators": []} if exact else {"lo": [], "hi": []}
    decide: Fields = {"token": [], "reason": []}
    token: Fields = {"token": []}
    gamma = Fraction(model.gamma_num(columns), 2**spec.GAMMA_BITS)
    for state, ends in zip(hidden, screened, strict=True):
        chosen = None if ends is None else _selection(ends, case)
        _add_selection(select, chosen)
        blocks = None if chosen is None else chosen.blocks
        index = spec.rows_of(blocks or (), len(rows), given["block"])
        if exact:
            sums = [HOPPER.chain(state, weight[i]) for i in index]
            rescore["accumulators"].append("" if blocks is None else pack("accumulators", sums))
        else:
            pairs = [spec.rescore_enclosed(weight[i], state, gamma) for i in index]
            for name, values in (("lo", [p[0] for p in pairs]), ("hi", [p[1] for p in pairs])):
                rescore[name].append("" if blocks is None else pack(name, values))
        certificate = _certify(case, rows, state)
        decide["token"].append("none" if certificate.token is None else pack("token", [certificate.token]))
        decide["reason"].append(certificate.reason or "none")
        token["token"].append(_returned(certificate, weight, state))
    return {
        "quantize": _copy(rows),
        "limbs": limb_fields,
        "screen": _end_fields(screened),
        "select": select,
        "rescore": rescore,
        "decide": decide,
        "token": token,
    }


def _certify(case: Case, rows: Sequence[spec.QuantizedRow], state: Sequence[int]) -> spec.Certificate:
    given = case.given
    return spec.certify(
        case.rows("weight"),
        state,
        MODELS[given["model"]],
        kernel=HOPPER.chain if given["mode"] == spec.Mode.EXACT.value else None,
        quantized=rows,
        group=given["group"],
        block=given["block"],
        capacity=given["capacity"],
        limb_count=given["limb_count"],
    )


def _returned(certificate: spec.Certificate, weight: Sequence[Sequence[int]], state: Sequence[int]) -> str:
    token = certificate.token
    return pack("token", [stock_token(weight, state) if token is None else token])


def stock_token(weight: Sequence[Sequence[int]], state: Sequence[int]) -> int:
    """The stock head's token by the Hopper chain; as in torch, the first NaN is the largest."""
    sums = [HOPPER.chain(state, row) for row in weight]
    values = [decode(bits, FP32) for bits in sums]
    for i, value in enumerate(values):
        if value != value:
            return i
    rounded = [v if isinstance(v, float) and v else spec.bf16_of(Fraction(v)) for v in values]
    return max(range(len(rounded)), key=lambda i: (rounded[i], -i))


_STAGES = {
    "quantize": _quantize,
    "limbs": _limbs,
    "screen": _screen,
    "select": _select,
    "rescore": _rescore,
    "decide": _decide,
}
