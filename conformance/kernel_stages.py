"""Every output of the Triton kernels against the torch stages, as bits, on a device or interpreted.

The torch stages are compared with `pyref` in `stages.py`; here whole heads fit, so every element of every
stage is compared: limbs, all V×M interval ends, block summaries, work lists, checksums, re-scored
accumulators (with the FDPA chain of `pyref` on sampled rows) and tokens. Outputs are poisoned first, so
an element that no program wrote differs.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from certhead.kernels import torch_stages as reference
from certhead.kernels.decision import Reason
from certhead.kernels.quantize import bits
from certhead.kernels.rounding import power_of_two
from certhead.kernels.triton_head import INTERPRETED, Tile, TritonPipeline
from certhead.pyref.fdpa_vector import fdpa_chain_vector

from .stages import StageResult


def compare_kernels(
    pipeline: TritonPipeline, hidden: torch.Tensor, tile: Tile, limb_count: int, *, chain_rows: int = 0
) -> list[StageResult]:
    """Compare one call's stages; one result each.

    hidden: bfloat16 [M, K] on the head's device. chain_rows: rows whose re-scored FP32 bits are compared
    with pyref's FDPA chain (on a device; the interpreter's dot is another sum).
    """
    positions, rows = hidden.shape[0], pipeline.rows
    poison(pipeline)
    pipeline.limbs(hidden, limb_count)
    ends = torch.full((2, positions, rows), torch.nan, device=hidden.device)
    pipeline.screen(positions, tile, limb_count, ends=ends)
    pipeline.select(positions, tile, limb_count)
    out: list[StageResult] = []
    limb = reference.limbs(hidden, pipeline.group, pipeline.gamma_num, pipeline.code_norm, limb_count)
    limb_pairs = [
        (pipeline.lo[:positions], limb.lo),
        (pipeline.group_codes[:positions, : pipeline.groups], limb.group_codes),
        (pipeline.tail_codes[:positions].long(), limb.tail_codes),
        (pipeline.unit[:positions], power_of_two(limb.unit_exp).float()),
        (pipeline.reasons[:positions], limb.reasons),
    ]
    if limb_count == 2:
        limb_pairs.append((pipeline.hi[:positions], limb.hi))
    out.append(_compare("limbs", limb_pairs))
    lo, hi = reference.ends(pipeline.copy, slice(0, rows), limb)
    out.append(_compare("screen", [(ends[0], lo), (ends[1], hi)]))
    best, tops = reference.screen(pipeline.copy, limb, pipeline.block)
    written = pipeline.tops.flatten()[: positions * pipeline.n_blocks].view(positions, -1)
    out.append(_compare("summary", [(written, tops), (_unordered(pipeline.best[:positions]), best)]))
    flagged = limb.reasons != Reason.NONE
    keep = (tops.to(torch.bfloat16) >= best.to(torch.bfloat16)[:, None]) & ~flagged[:, None]
    position, block = keep.nonzero(as_tuple=True)
    size = int(pipeline.work_size)
    want = ((position << 24) + block).to(torch.int64)
    got = (pipeline.work[:size].long() & 0xFFFFFFFF).sort().values
    out.append(_compare("select", [(got, want), (pipeline.counts[:positions].long(), keep.sum(dim=1))]))
    position, block = (keep | flagged[:, None]).nonzero(as_tuple=True)  # all rows of what fell back
    sums = torch.full((positions, rows), torch.nan, device=hidden.device)
    pipeline.rescore(hidden, sums)
    index = (block[:, None] * pipeline.block + torch.arange(pipeline.block, device=hidden.device)).flatten()
    owner = position.repeat_interleave(pipeline.block)
    owner, index = owner[index < rows], index[index < rows]
    if chain_rows and not INTERPRETED:
        out.append(_compare_chain(pipeline, hidden, sums, owner, index, chain_rows))
    out.append(_compare("decide", [(pipeline.tokens[:positions], _tokens(sums, owner, index, positions))]))
    return out


def merge(results: Iterable[StageResult]) -> list[StageResult]:
    """Totals by stage, in the order in which stages appear."""
    merged: dict[str, StageResult] = {}
    for r in results:
        old = merged.get(r.stage, StageResult(r.stage, 0, 0))
        compared, differing = old.compared + r.compared, old.differing + r.differing
        merged[r.stage] = StageResult(r.stage, compared, differing, old.first or r.first)
    return list(merged.values())


def poison(pipeline: TritonPipeline) -> None:
    pipeline.tops.fill_(torch.nan)
    pipeline.work.fill_(-1)
    pipeline.observed.fill_(0x5A5A5A5A)
    pipeline.expected.fill_(-0x5A5A5A5A)
    pipeline.tokens.fill_(-1)
    pipeline.counts.fill_(-1)


def _unordered(key: torch.Tensor) -> torch.Tensor:
    return torch.where(key < 0, (-key) | -(2**31), key).view(torch.float32)


def _compare(stage: str, pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> StageResult:
    compared = differing = 0
    first = None
    for number, (got, want) in enumerate(pairs):
        if got.shape != want.shape or got.dtype != want.dtype:
            shapes = f"{tuple(got.shape)} {got.dtype}, not {tuple(want.shape)} {want.dtype}"
            return StageResult(stage, compared + 1, differing + 1, f"output {number}: {shapes}")
        a, b = got, want
        if got.dtype is torch.float32:
            a, b = got.contiguous().view(torch.int32), want.contiguous().view(torch.int32)
        wrong = a != b
        compared += wrong.numel()
        bad = int(wrong.sum())
        if bad and first is None:
            where = tuple(int(i) for i in wrong.nonzero()[0])
            first = f"output {number}{list(where)}: {int(a[where]):#x}, not {int(b[where]):#x}"
        differing += bad
    return StageResult(stage, compared, differing, first)


def _compare_chain(
    pipeline: TritonPipeline,
    hidden: torch.Tensor,
    sums: torch.Tensor,
    owner: torch.Tensor,
    index: torch.Tensor,
    limit: int,
) -> StageResult:
    """Re-scored FP32 bits against pyref's chain; positions that are not finite are left out."""
    finite = torch.isfinite(hidden.float()).all(dim=1)[owner]
    owner, index = owner[finite][:limit], index[finite][:limit]
    got = sums[owner, index].cpu().view(torch.int32).numpy().view(np.uint32)
    want = np.empty_like(got)
    for m in owner.unique().tolist():
        mine = (owner == m).cpu().numpy()
        rows = bits(pipeline.weight[index[owner == m]]).numpy().astype(np.uint16)
        want[mine] = fdpa_chain_vector(bits(hidden[m]).numpy().astype(np.uint16), rows)
    bad = int((got != want).sum())
    first = None
    if bad:
        i = int(np.nonzero(got != want)[0][0])
        first = f"position {int(owner[i])}, row {int(index[i])}: {got[i]:#010x}, not {want[i]:#010x}"
    return StageResult("rescore", len(got), bad, first)


def _tokens(sums: torch.Tensor, owner: torch.Tensor, index: torch.Tensor, positions: int) -> torch.Tensor:
    """First index of the largest BF16-rounded accumulator, NaN largest, over the rescored rows."""
    logits = torch.full_like(sums, -torch.inf)
    logits[owner, index] = sums[owner, index].to(torch.bfloat16).float()
    # where every rescored logit is −inf, the first rescored row must win over rows that were not
    everything = torch.zeros_like(sums, dtype=torch.bool)
    everything[owner, index] = True
    value = torch.where(everything, logits + 0.0, -torch.inf)
    value = torch.where(value.isnan(), torch.inf, value)
    best = value.amax(dim=1, keepdim=True)
    nan = (everything & logits.isnan()).any(dim=1, keepdim=True)
    attains = everything & torch.where(nan, logits.isnan(), value == best)
    return attains.to(torch.int8).argmax(dim=1)
