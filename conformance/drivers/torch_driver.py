"""Driver `torch`: the portable back end, stage by stage and as `CertifiedHead`."""

from __future__ import annotations

import numpy as np
import torch
from certhead.conformance.cases import Answer, Case, Fields, pack
from certhead.kernels import CertifiedHead
from certhead.kernels import torch_stages as stages
from certhead.kernels.decision import Reason
from certhead.kernels.quantize import bits, quantize
from certhead.pyref.fdpa_vector import fdpa_chain_pairs
from certhead.pyref.models import MODELS

from .base import CaseByCase, Unsupported
from .exact_sums import sums_are_exact
from .ranks import answer_ranks
from .tensors import bf16, copy_fields, copy_of, fp32, hex_of, reason_names


class TorchDriver(CaseByCase):
    """Answers every case but injected faults and heads of one limb, which this back end does not have."""

    name = "torch"

    def answer(self, case: Case) -> Answer:
        """The bits of one case."""
        if "ranks" in case.given:
            return answer_ranks(_head, case)
        if case.stage == "head":
            return _head(case)
        return {case.stage: _STAGES[case.stage](case)}


def chain_rescorer(hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """The Hopper chain as the identified arithmetic of exact mode (`torch_stages.Rescorer`)."""
    positions, count, columns = rows.shape
    states = hidden[:, None, :].expand(-1, count, -1).reshape(-1, columns)
    sums = fdpa_chain_pairs(
        bits(states).numpy().astype(np.uint16), bits(rows.reshape(-1, columns)).numpy().astype(np.uint16)
    )
    return torch.from_numpy(sums.view(np.int32)).view(torch.float32).view(positions, count)


def _quantize(case: Case) -> Fields:
    return copy_fields(quantize(bf16(case.rows("weight")), case.given["group"]))


def _limbs(case: Case) -> Fields:
    options = (case.given["group"], case.number("gamma_num"), case.number("code_norm"))
    return _limb_fields(stages.limbs(bf16(case.rows("hidden")), *options, case.given["limb_count"]))


def _limb_fields(limb: stages.LimbTensors) -> Fields:
    columns = {
        "unit_exp": limb.unit_exp, "limb_hi": limb.hi, "limb_lo": limb.lo, "group_shift": limb.group_shift,
        "group_codes": limb.group_codes, "tail_codes": limb.tail_codes,
    }  # fmt: skip
    fields: Fields = {"reason": reason_names(limb.reasons)}
    for name, x in columns.items():
        fields[name] = [hex_of(name, row) for row in x]
    return fields


def _screen(case: Case) -> Fields:
    copy = copy_of(case)
    limb = stages.LimbTensors(
        reasons=torch.zeros(len(case.given["unit_exp"]), dtype=torch.uint8),
        unit_exp=torch.tensor(case.singles("unit_exp")),
        hi=torch.tensor(case.rows("limb_hi"), dtype=torch.int8),
        lo=torch.tensor(case.rows("limb_lo"), dtype=torch.int8),
        group_shift=torch.tensor(case.singles("group_shift")),
        group_codes=torch.tensor(case.rows("group_codes"), dtype=torch.int8),
        tail_codes=torch.tensor(case.singles("tail_codes")),
    )
    return _end_fields(*stages.ends(copy, slice(0, len(copy.codes)), limb))


def _end_fields(lo: torch.Tensor, hi: torch.Tensor) -> Fields:
    return {"lo": [hex_of("lo", row) for row in lo], "hi": [hex_of("hi", row) for row in hi]}


def _select(case: Case) -> Fields:
    lo, hi, block = fp32(case.rows("lo")), fp32(case.rows("hi")), case.given["block"]
    padded = torch.nn.functional.pad(hi, (0, -hi.shape[1] % block), value=-torch.inf)
    tops = padded.view(len(hi), -1, block).amax(dim=2)
    reasons = torch.zeros(len(lo), dtype=torch.uint8)
    threshold, pairs, reasons = stages.select(lo.amax(dim=1), tops, reasons, case.given["capacity"])
    return _selection(threshold, pairs, reasons)


def _selection(threshold: torch.Tensor, pairs: stages.Pairs, reasons: torch.Tensor) -> Fields:
    positions = range(len(reasons))
    blocks = [hex_of("blocks", pairs.block[pairs.position == m]) for m in positions]
    overflow = [int(reasons[m]) == Reason.OVERFLOW for m in positions]
    return {
        "threshold": [hex_of("threshold", row) for row in threshold + 0.0],
        "blocks": ["none" if overflow[m] else blocks[m] for m in positions],
    }


def _rescore(case: Case) -> Fields:
    hidden, weight = bf16(case.rows("hidden")), bf16(case.rows("weight"))
    rows = weight[None].expand(len(hidden), -1, -1)
    lo, hi = stages.rescore_enclosed(hidden, rows, case.number("gamma_num"))
    return _end_fields(lo, hi)


def _decide(case: Case) -> Fields:
    if case.given["mode"] == "exact":
        lo = hi = fp32(case.rows("accumulators"))
    else:
        lo, hi = fp32(case.rows("lo")), fp32(case.rows("hi"))
    positions, rows = lo.shape
    index = torch.arange(rows).expand(positions, -1)
    exists = torch.ones_like(index, dtype=torch.bool)
    pairs = stages.Pairs(torch.arange(positions), torch.zeros(positions, dtype=torch.int64))
    low, high = lo.to(torch.bfloat16), hi.to(torch.bfloat16)
    token, fixed = stages.decide(low, high, index, exists, pairs, positions)
    return {"token": _tokens(token, fixed)}


def _tokens(token: torch.Tensor, decided: torch.Tensor) -> list[str | None]:
    return [
        pack("token", [t]) if d else "none" for t, d in zip(token.tolist(), decided.tolist(), strict=True)
    ]


def _head(case: Case) -> Answer:
    given = case.given
    if "fault" in given or given["limb_count"] != 2:
        raise Unsupported
    hidden, exact = bf16(case.rows("hidden")), given["mode"] == "exact"
    head = CertifiedHead(
        bf16(case.rows("weight")),
        backend="torch",
        model=MODELS[given["model"]],
        exact=chain_rescorer if exact else None,
        group=given["group"],
        block=given["block"],
        capacity=given["capacity"],
    )
    limb, decision = head.limbs(hidden), head.decide(hidden)
    best, tops = stages.screen(head.copy, limb, head.block)
    threshold, pairs, reasons = stages.select(best, tops, limb.reasons, head.capacity)
    kept = stages.candidates(head.copy, limb, threshold, pairs, head.block)
    index, exists = stages.rows_of(pairs, head.block, len(head.weight))
    positions = range(len(hidden))
    select = _selection(threshold, pairs, reasons)
    select["candidates"] = [
        "none"
        if int(reasons[m]) == Reason.OVERFLOW
        else hex_of("candidates", index[pairs.position == m][kept[pairs.position == m]])
        for m in positions
    ]
    rows = head.weight[index]
    states = hidden[pairs.position]
    values = (
        {"accumulators": chain_rescorer(states, rows)}
        if exact
        else dict(zip(("lo", "hi"), stages.rescore_enclosed(states, rows, head.gamma_num), strict=True))
    )
    rescore: Fields = {
        name: [hex_of(name, x[pairs.position == m][exists[pairs.position == m]]) for m in positions]
        for name, x in values.items()
    }
    decided = decision.reasons == Reason.NONE
    # on a CPU a state that is not finite sends its batch to the stock head: nothing is said of the others
    spared = (decision.reasons == Reason.NONFINITE) & (limb.reasons == Reason.NONE)
    tokens = _unless(spared, _tokens(decision.tokens, decided))
    reasons_said = _unless(spared, reason_names(decision.reasons))
    return {
        "quantize": copy_fields(head.copy),
        "limbs": _limb_fields(limb),
        "screen": _end_fields(*head.intervals(hidden)),
        "select": select,
        "rescore": rescore,
        "decide": {"token": tokens, "reason": reasons_said},
        "token": {"token": _returned(case, tokens, decision.tokens)},
    }


def _unless(spared: torch.Tensor, said: list[str | None]) -> list[str | None]:
    return [None if s else value for s, value in zip(spared.tolist(), said, strict=True)]


def _returned(case: Case, decided: list[str | None], tokens: torch.Tensor) -> list[str | None]:
    """Where the head falls back, this machine's product decides: the Hopper chain's if sums are exact."""
    exact = sums_are_exact(case)
    return [
        pack("token", [token]) if exact or d not in ("none", None) else None
        for d, token in zip(decided, tokens.tolist(), strict=True)
    ]


_STAGES = {
    "quantize": _quantize,
    "limbs": _limbs,
    "screen": _screen,
    "select": _select,
    "rescore": _rescore,
    "decide": _decide,
}
