"""The enclosed re-score and decide of the Triton kernels against the torch stages, as bits.

The torch stages are compared with `pyref` in `stages.py`. Which rows are re-scored, at which positions, is
what the torch stages select from the same states. Outputs are poisoned first: a row that no program wrote
differs, and so does one that none should have written.
"""

from __future__ import annotations

import torch
from certhead.kernels import torch_stages as reference
from certhead.kernels.decision import Reason
from certhead.kernels.triton_enclosed import EnclosedRescore
from certhead.kernels.triton_head import Tile, TritonPipeline
from certhead.pyref import head as spec

from .kernel_stages import _compare, poison
from .stages import StageResult


def compare_enclosed(
    pipeline: TritonPipeline,
    hidden: torch.Tensor,
    tile: Tile,
    limb_count: int,
    *,
    capacity: int = spec.CAPACITY,
    runs: int = 2,
) -> list[StageResult]:
    """Compare one call's enclosed stages: every interval end, and every decision with its counters.

    hidden: bfloat16 [M, K] on the head's device. runs: how often, on one selection; a second run shows
    that the buffers that collect are left as the first found them, more show races.
    """
    positions = hidden.shape[0]
    enclosed = EnclosedRescore(pipeline, capacity)
    limb = reference.limbs(hidden, pipeline.group, pipeline.gamma_num, pipeline.code_norm, limb_count)
    best, tops = reference.screen(pipeline.copy, limb, pipeline.block)
    _, pairs, reasons = reference.select(best, tops, limb.reasons, capacity)
    want, index, exists = rescored(pipeline, hidden, pairs)
    lo, hi = want[:, pairs.position[:, None], index].to(torch.bfloat16)
    token, fixed = reference.decide(lo, hi, index, exists, pairs, positions)
    token = torch.where(token == torch.iinfo(torch.int64).max, -1, token)
    ambiguous = torch.full_like(reasons, Reason.AMBIGUOUS)
    reasons = torch.where(fixed | (reasons != Reason.NONE), reasons, ambiguous)
    counts = torch.bincount(reasons.long(), minlength=len(Reason))

    poison(pipeline)
    pipeline.limbs(hidden, limb_count)
    pipeline.screen(positions, tile, limb_count)
    pipeline.select(positions, tile, limb_count)
    selected = pipeline.reasons.clone()
    ends, decided = [], []
    for _ in range(runs):
        pipeline.reasons.copy_(selected)
        pipeline.totals.zero_()
        pipeline.tokens.fill_(-7)
        enclosed.undecided.fill_(-7)
        got = torch.full_like(want, torch.nan)
        enclosed.run(hidden, got)
        ends += [(got[0], want[0]), (got[1], want[1])]
        decided += [
            (pipeline.tokens[:positions].clone(), token),
            (pipeline.reasons[:positions].clone(), reasons),
            (enclosed.undecided.clone(), (positions - counts[:1]).int()),
            (pipeline.totals.clone(), counts),
        ]
    return [_compare("rescore enclosed", ends), _compare("decide enclosed", decided)]


def rescored(
    pipeline: TritonPipeline, hidden: torch.Tensor, pairs: reference.Pairs
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ends float32 [2, M, V], NaN where no pair has the row, with the pairs' rows and which exist."""
    weight, block = pipeline.weight, pipeline.block
    ends = torch.full((2, hidden.shape[0], weight.shape[0]), torch.nan, device=weight.device)
    index, exists = reference.rows_of(pairs, block, weight.shape[0])
    step = max(1, reference.RESCORE_ELEMENTS // (block * weight.shape[1]))
    for start in range(0, len(index), step):
        position, rows = pairs.position[start : start + step], index[start : start + step]
        lo, hi = reference.rescore_enclosed(hidden[position], weight[rows], pipeline.gamma_num)
        # a row past the end repeats the last one, ends included
        ends[0, position[:, None], rows] = lo
        ends[1, position[:, None], rows] = hi
    return ends, index, exists
