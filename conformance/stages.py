"""Stage-by-stage comparison of a `CertifiedHead` with `pyref`: equality of bits, nothing else.

pyref is exact and slow, so a real head is compared on sampled rows and positions; a small head whole.
The comparison of `select` and `decide` takes the head's own earlier outputs for the rows that were
not sampled: an error there shows in the earlier stage that made it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from certhead.kernels import CertifiedHead, Decision
from certhead.kernels import torch_stages as fast
from certhead.kernels.decision import REASON_NAMES, Reason
from certhead.kernels.quantize import bits, row_of
from certhead.pyref import head as spec


@dataclass(frozen=True)
class StageResult:
    """How many values of one stage were compared, how many differ, and the first that does."""

    stage: str
    compared: int
    differing: int
    first: str | None = None


class _Tally:
    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {}
        self.first: dict[str, str] = {}

    def equal(self, stage: str, where: str, fast_value: object, exact_value: object) -> None:
        count = self.counts.setdefault(stage, [0, 0])
        count[0] += 1
        if fast_value != exact_value:
            count[1] += 1
            self.first.setdefault(stage, f"{where}: got {fast_value}, pyref has {exact_value}")

    def results(self) -> list[StageResult]:
        return [StageResult(s, n, bad, self.first.get(s)) for s, (n, bad) in self.counts.items()]


def compare_stages(
    head: CertifiedHead, hidden: torch.Tensor, *, rows: int = 16, positions: int = 4, seed: int = 0
) -> list[StageResult]:
    """Compare every stage on `rows` sampled rows (plus candidates) and `positions` sampled positions.

    hidden: bfloat16 [M, K]. Returns one result per stage, in pipeline order.
    """
    rng = random.Random(seed)
    n_rows, n_positions = head.weight.shape[0], hidden.shape[0]
    tally = _Tally()
    some = sorted(rng.sample(range(n_positions), min(positions, n_positions)))
    sample = sorted(rng.sample(range(n_rows), min(rows, n_rows)))
    limb = head.limbs(hidden)
    lo, hi = head.intervals(hidden)
    decision = head.decide(hidden)
    lo_bits, hi_bits = _fp32_bits(lo), _fp32_bits(hi)
    exact_rows = {i: spec.quantize_row(bits(head.weight[i]).tolist(), head.group) for i in sample}
    for i, row in exact_rows.items():
        tally.equal("quantize", f"row {i}", row_of(head.copy, i), row)
    for m in some:
        state = bits(hidden[m]).tolist()
        reason = spec.range_reason(state)
        exact_limb = None if reason else spec.limbs(state, head.group, head.gamma_num, head.copy.code_norm)
        got = REASON_NAMES[int(limb.reasons[m])]
        tally.equal("limbs", f"position {m}, reason", got, reason or (None if exact_limb else "refused"))
        if exact_limb is None:
            continue
        tally.equal("limbs", f"position {m}", limbs_of(limb, m), exact_limb)
        for i, row in exact_rows.items():
            exact = spec.screen(row, exact_limb, head.group)
            ends = (f"{int(lo_bits[m, i]):08x}", f"{int(hi_bits[m, i]):08x}")
            want = (f"{exact.lo_bits:08x}", f"{exact.hi_bits:08x}")
            tally.equal("screen", f"position {m}, row {i}", ends, want)
        if head.backend == "torch":
            _compare_choice(head, hidden, m, lo_bits[m].tolist(), hi_bits[m].tolist(), decision, tally)
    return tally.results() + (_kernel_results(head, hidden) if head.backend == "cuda" else [])


def _kernel_results(head: CertifiedHead, hidden: torch.Tensor) -> list[StageResult]:
    """The Triton kernels' outputs at this batch shape, whole, with the tiles that may serve it."""
    from certhead.kernels.plan import fitting
    from certhead.kernels.triton_engine import TritonEngine

    from .kernel_stages import compare_kernels, merge

    assert isinstance(head.engine, TritonEngine)
    pipeline = head.engine.pipeline
    return merge(
        result
        for c in fitting(pipeline, hidden.shape[0])
        for result in compare_kernels(pipeline, hidden, c.tile, c.limb_count, chain_rows=64)
    )


def _compare_choice(
    head: CertifiedHead,
    hidden: torch.Tensor,
    m: int,
    lo: Sequence[int],
    hi: Sequence[int],
    decision: Decision,
    tally: _Tally,
) -> None:
    """Stages select, rescore and decide at one position, from the head's own interval ends."""
    screened = [spec.Screened(0, 0, 0, a, b) for a, b in zip(lo, hi, strict=True)]
    chosen = spec.select(screened, block=head.block, capacity=head.capacity)
    where = f"position {m}"
    reason = REASON_NAMES[int(decision.reasons[m])]
    tally.equal("select", f"{where}, overflow", reason == "overflow", chosen.blocks is None)
    if chosen.blocks is None:
        return
    tally.equal("select", f"{where}, blocks", int(decision.blocks[m]), len(chosen.blocks))
    if decision.candidates is not None:
        tally.equal("select", f"{where}, rows", int(decision.candidates[m]), len(chosen.candidates))
    index = spec.rows_of(chosen.blocks, head.weight.shape[0], head.block)
    weight, state = [bits(head.weight[i]).tolist() for i in index], bits(hidden[m]).tolist()
    gathered = head.weight[torch.tensor(index, device=head.weight.device)]
    exact = head.exact_for(hidden)
    if exact is not None:
        accumulators = _fp32_bits(exact(hidden[m : m + 1], gathered[None])[0]).tolist()
        token: int | None = spec.decide_exact(index, accumulators)
    else:
        gamma = Fraction(head.gamma_num, 2**spec.GAMMA_BITS)
        ends = fast.rescore_enclosed(hidden[m : m + 1], gathered[None], head.gamma_num)
        pairs = list(zip(_fp32_bits(ends[0][0]).tolist(), _fp32_bits(ends[1][0]).tolist(), strict=True))
        for i, row, pair in list(zip(index, weight, pairs, strict=True))[:: max(1, len(index) // 4)]:
            exact_pair = spec.rescore_enclosed(row, state, gamma)
            tally.equal("rescore", f"{where}, row {i}", pair, exact_pair)
        token = spec.decide_enclosed(index, pairs)
    if reason == REASON_NAMES[Reason.NONFINITE]:  # this state is finite: a neighbour decides for the batch
        tally.equal("decide", f"{where}, whole batch finite", bool(hidden.isfinite().all()), False)
        return
    decided = int(decision.tokens[m]) if int(decision.reasons[m]) == Reason.NONE else None
    tally.equal("decide", where, decided, token)


def limbs_of(limb: fast.LimbTensors, m: int) -> spec.Limbs:
    """Position `m` in the form that pyref works on."""
    return spec.Limbs(
        unit_exp=int(limb.unit_exp[m]),
        hi=tuple(limb.hi[m].tolist()),
        lo=tuple(limb.lo[m].tolist()),
        group_shift=int(limb.group_shift[m]),
        group_codes=tuple(limb.group_codes[m].tolist()),
        tail_code=int(limb.tail_codes[m]),
    )


def _fp32_bits(x: torch.Tensor) -> torch.Tensor:
    return x.cpu().contiguous().view(torch.int32).to(torch.int64) & 0xFFFFFFFF
