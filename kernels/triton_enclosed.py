"""Launching the enclosed re-score and decide on the device: static buffers, no host in between."""

from __future__ import annotations

import torch
from certhead.pyref import head as spec

from . import triton_enclosed_stages as kernels
from .triton_head import INTERPRETED, MAX_POSITIONS, TritonPipeline

NO_KEY = -(2**63) + 1  # below every key that a row can have
TILE_ELEMENTS = 512  # FP64 products held at a time: 4 a thread, and as many of each level of the sum
WARPS = 4


def sum_tile(columns: int, block: int) -> tuple[int, int, int]:
    """(rows, columns, number) of the chunks that a block's sums are taken in, all powers of two.

    At least 16 chunks where they can have 32 columns or more, and at most 256 columns: narrow chunks leave
    threads without a column, wide ones fewer levels of the sum that need no exchange between threads.
    """
    padded = 1 << (columns - 1).bit_length()
    chunk = min(padded, max(32, min(256, padded // 16)))
    return min(block, TILE_ELEMENTS // chunk), chunk, padded // chunk


class EnclosedRescore:
    """Stages rescore and decide in enclosed mode over the work list of `pipeline.select`.

    What it decides is in `pipeline.tokens`, `pipeline.reasons` and `undecided`: the number of positions
    with a reason, int32 [1], for the host to read once. A position with more than `capacity` blocks
    overflows. Nothing about the stock arithmetic is assumed beyond its error model.
    """

    def __init__(self, pipeline: TritonPipeline, capacity: int = spec.CAPACITY) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        self.pipeline, self.capacity = pipeline, capacity
        device = pipeline.weight.device
        self.leader = torch.full((MAX_POSITIONS,), NO_KEY, dtype=torch.int64, device=device)
        self.highest, self.second = self.leader.clone(), self.leader.clone()
        self.arrivals = torch.zeros(1, dtype=torch.int32, device=device)
        self.undecided = torch.zeros(1, dtype=torch.int32, device=device)

    @property
    def work_bytes(self) -> int:
        """Bytes of the static work buffers beside the pipeline's."""
        parts = (self.leader, self.highest, self.second, self.arrivals, self.undecided)
        return sum(t.numel() * t.element_size() for t in parts)

    def run(self, hidden: torch.Tensor, ends: torch.Tensor | None = None, *, programs: int = 528) -> None:
        """Re-score and decide hidden, contiguous bfloat16 [M, K], after `pipeline.select`.

        With `ends` (float32 [2, M, V]) the ends of every re-scored row are written as well.
        Raises ValueError where M does not fit the buffers.
        """
        p = self.pipeline
        positions = hidden.shape[0]
        limit = min(MAX_POSITIONS, p.reasons.shape[0])
        if not 1 <= positions <= limit:
            raise ValueError(f"{positions} positions, the buffers hold 1 to {limit}")
        rows, chunk, chunks = sum_tile(p.columns, p.block)
        kernels.enclose_kernel[(programs,)](
            p.weight, hidden, p.work, p.work_size, p.counts, p.reasons, self.arrivals,
            self.leader, self.highest, self.second, p.tokens, self.undecided, p.totals,
            *((p.tops, p.tops) if ends is None else (ends[0], ends[1])), p.rows, positions,
            p.gamma_num, self.capacity, K=p.columns, BLOCK=p.block, ROWS=rows, CHUNK=chunk, CHUNKS=chunks,
            M_PAD=MAX_POSITIONS, DIAGNOSTIC=ends is not None, SOFTWARE=INTERPRETED, num_warps=WARPS,
        )  # fmt: skip
