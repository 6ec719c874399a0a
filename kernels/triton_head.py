"""Launching the Triton kernels: tiles, static buffers, one CUDA graph per batch shape."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
from certhead.pyref import head as spec

from . import triton_stages as kernels
from .quantize import QuantizedHead

INTERPRETED = not isinstance(kernels.limbs_kernel, triton.JITFunction)
MAX_POSITIONS = 256
MIN_ROWS = 64  # of a screen tile
CHECK_ROWS = 256  # rows under one pair of checksum rows: 127·256 fits two int8 digits; 0.8 % more bytes


@dataclass(frozen=True)
class Tile:
    """Shape of one screen program: rows, positions, columns a step; warps and pipeline stages."""

    rows: int
    positions: int
    columns: int
    warps: int
    stages: int


def preferred_group(columns: int) -> int:
    """Columns per residual norm that give at most 16 groups: one aligned load a row."""
    return 16 * spec.ceil_div(columns, 256)


def checksum_rows(codes: torch.Tensor) -> torch.Tensor:
    """Two int8 rows for each CHECK_ROWS rows: their column sums as 256·first + second."""
    padding = (-codes.shape[0]) % CHECK_ROWS
    sums = torch.nn.functional.pad(codes, (0, 0, 0, padding)).view(-1, CHECK_ROWS, codes.shape[1])
    total = sums.sum(dim=1, dtype=torch.int32)
    high = (total + 128) >> 8
    return torch.stack([high, total - (high << 8)], dim=1).flatten(0, 1).to(torch.int8)


class TritonPipeline:
    """The launches limbs → screen → select → rescore over static buffers, for M ≤ `max_positions`.

    weight: bfloat16 [V, K]; copy: its int8 copy on the same device. Exact mode: the stock arithmetic
    must have been identified as the sequential tensor-core chain that `rescore_kernel` repeats.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        copy: QuantizedHead,
        gamma_num: int,
        *,
        block: int = spec.BLOCK,
        max_positions: int = MAX_POSITIONS,
    ) -> None:
        self.weight, self.gamma_num, self.block = weight, gamma_num, block
        self.scale, self.norm_codes = copy.scale, copy.norm_codes
        rows, columns = weight.shape
        self.n_groups = spec.ceil_div(rows, CHECK_ROWS)
        self.codes = torch.cat([copy.codes, checksum_rows(copy.codes)])
        device = weight.device
        self.rows, self.columns, self.group = rows, columns, copy.group
        groups = copy.residual_codes.shape[1]
        self.groups_padded = max(32, triton.next_power_of_2(groups))
        self.groups = groups
        self.groups_stride = 16 * spec.ceil_div(groups, 16)  # rows of residual codes start at 16 bytes
        padding = (0, self.groups_stride - groups)
        self.residual_codes = torch.nn.functional.pad(copy.residual_codes, padding).contiguous()
        residual_codes = self.residual_codes[:, :groups]
        self.copy = replace(copy, codes=self.codes[:rows], residual_codes=residual_codes)  # held once
        self.n_blocks = spec.ceil_div(rows, block)
        m = self.max_positions = max_positions
        self.code_norm = copy.code_norm
        # zeroed: a tile reads rows past M and discards what comes of them
        self.hi = torch.zeros((m, columns), dtype=torch.int8, device=device)
        self.lo = torch.zeros_like(self.hi)
        self.group_codes = torch.zeros((m, self.groups_padded), dtype=torch.int8, device=device)
        self.tail_codes = torch.zeros(m, dtype=torch.int32, device=device)
        self.shift = torch.zeros_like(self.tail_codes)
        self.unit = torch.zeros(m, dtype=torch.float32, device=device)
        self.reasons = torch.empty(m, dtype=torch.uint8, device=device)
        self.best = torch.empty_like(self.tail_codes)
        self.winner = torch.empty(m, dtype=torch.int64, device=device)
        self.counts = torch.empty_like(self.tail_codes)
        self.tokens = torch.empty_like(self.winner)
        self.work = torch.empty(m * self.n_blocks, dtype=torch.int32, device=device)
        self.work_size = torch.zeros(1, dtype=torch.int32, device=device)
        self.arrivals = torch.zeros_like(self.work_size)
        self.digests = torch.zeros(m, dtype=torch.int32, device=device)
        self.observed = torch.empty(m * spec.ceil_div(rows, MIN_ROWS), dtype=torch.int32, device=device)
        self.expected = torch.empty(m * 2 * self.n_groups, dtype=torch.int32, device=device)
        self.totals = torch.zeros(8, dtype=torch.int64, device=device)
        self.tops = torch.empty((m, self.n_blocks), dtype=torch.float32, device=device)

    @property
    def metadata_bytes(self) -> int:
        """Bytes beside the codes: residual and norm codes, scales, checksum rows."""
        parts = (self.residual_codes, self.norm_codes, self.scale, self.codes[self.rows :])
        return sum(t.numel() * t.element_size() for t in parts)

    @property
    def work_bytes(self) -> int:
        """Bytes of the static work buffers."""
        parts = (
            self.hi, self.lo, self.group_codes, self.tail_codes, self.shift, self.unit, self.reasons,
            self.best, self.winner, self.counts, self.tokens, self.work, self.digests, self.observed,
            self.expected, self.totals, self.tops,
        )  # fmt: skip
        return sum(t.numel() * t.element_size() for t in parts)

    def limbs(self, hidden: torch.Tensor, limb_count: int = 2) -> None:
        """Stage limbs into the static buffers. Raises ValueError where M is outside them."""
        if not 1 <= hidden.shape[0] <= self.max_positions:
            raise ValueError(f"M={hidden.shape[0]} is not from 1 to {self.max_positions}")
        kernels.limbs_kernel[(hidden.shape[0],)](
            hidden, self.hi, self.lo, self.group_codes, self.tail_codes, self.shift, self.unit,
            self.reasons, self.best, self.winner, self.counts, self.work_size, self.arrivals,
            self.digests, self.gamma_num, self.code_norm, K=self.columns, LIMBS=limb_count, GROUP=self.group,
            GROUP_PAD=triton.next_power_of_2(self.group), G_PAD=self.groups_padded,
            RHO=spec.residual_shift(self.group), NU=spec.norm_shift(self.columns), num_warps=8,
        )  # fmt: skip

    def screen(
        self,
        positions: int,
        tile: Tile,
        limb_count: int = 2,
        *,
        checksum: bool = True,
        ends: torch.Tensor | None = None,
    ) -> None:
        """Stage screen; with `ends` (float32 [2, M, V]) every interval end is written as well.

        Raises ValueError where the tile's rows are not a part of CHECK_ROWS that the buffers allow.
        """
        if tile.rows < MIN_ROWS or CHECK_ROWS % tile.rows:
            raise ValueError(f"a tile of {tile.rows} rows: not a divisor of {CHECK_ROWS} from {MIN_ROWS} on")
        tiles = triton.cdiv(self.rows, tile.rows)
        if checksum:
            tiles += triton.cdiv(2 * self.n_groups, tile.rows)
        grid = (tiles * triton.cdiv(positions, tile.positions),)
        kernels.screen_kernel[grid](
            self.codes, self.scale, self.residual_codes, self.norm_codes, self.hi, self.lo,
            self.group_codes, self.tail_codes, self.shift, self.unit, self.best, self.tops,
            *((self.tops, self.tops) if ends is None else (ends[0], ends[1])), self.observed,
            self.expected, self.rows, 2 * self.n_groups, positions, self.n_blocks,
            K=self.columns, LIMBS=limb_count, G_STRIDE=self.groups_stride, G_PAD=self.groups_padded,
            BLOCK=self.block, BV=tile.rows, BM=tile.positions, BK=tile.columns, CHECKSUM_ROWS=checksum,
            DIAGNOSTIC=ends is not None, SOFTWARE=INTERPRETED,
            num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip

    def select(
        self, positions: int, tile: Tile | None = None, limb_count: int = 2, *, chunk: int = 1024
    ) -> None:
        """Stage select into the work list; with `tile` the last screen, made with it, is checked as well.

        chunk: blocks a program, a power of two; with checks, at least CHECK_ROWS rows.
        """
        checked = 0 if tile is None else chunk * self.block // CHECK_ROWS
        rows = CHECK_ROWS if tile is None else tile.rows
        kernels.select_kernel[(triton.cdiv(self.n_blocks, chunk), positions)](
            self.reasons, self.best, self.tops, self.counts, self.work, self.work_size, self.n_blocks,
            self.hi, self.lo, self.digests, self.observed, self.expected, triton.cdiv(self.rows, rows),
            self.n_groups, K=self.columns, K_PAD=triton.next_power_of_2(self.columns), LIMBS=limb_count,
            CHUNK=chunk, GROUPS=checked, TILES=CHECK_ROWS // rows, num_warps=4,
        )  # fmt: skip

    def rescore(
        self,
        hidden: torch.Tensor,
        accumulators: torch.Tensor | None = None,
        *,
        programs: int = 528,
        step: int = 128,
        stages: int = 6,
    ) -> None:
        """Stages rescore and decide; with `accumulators` (float32 [M, V]) every rescored sum is written."""
        kernels.rescore_kernel[(programs,)](
            self.weight, hidden, self.work, self.work_size, self.arrivals, self.winner, self.tokens,
            self.reasons, self.totals,
            self.tops if accumulators is None else accumulators, self.rows, hidden.shape[0], self.n_blocks,
            K=self.columns, BLOCK=self.block, BK=step, M_PAD=MAX_POSITIONS,
            DIAGNOSTIC=accumulators is not None, CAST=INTERPRETED, num_warps=4, num_stages=stages,
        )  # fmt: skip

    def accumulators(self, hidden: torch.Tensor) -> torch.Tensor:
        """Every accumulator that the re-score computes, float32 [M, V]: for the identification."""
        positions = hidden.shape[0]
        self.limbs(hidden)
        position = torch.arange(positions, dtype=torch.int32, device=hidden.device) << 24
        block = torch.arange(self.n_blocks, dtype=torch.int32, device=hidden.device)
        size = positions * self.n_blocks
        self.work[:size] = (position[:, None] + block[None, :]).flatten()
        self.work_size.fill_(size)
        out = torch.full((positions, self.rows), torch.nan, device=hidden.device)
        self.rescore(hidden, out, programs=2112)
        return out

    def run(
        self, hidden: torch.Tensor, tile: Tile, limb_count: int = 2, *, checksum: bool = True
    ) -> torch.Tensor:
        """All stages; returns the static token buffer's first M entries."""
        positions = hidden.shape[0]
        self.limbs(hidden, limb_count)
        self.screen(positions, tile, limb_count, checksum=checksum)
        self.select(positions, tile if checksum else None, limb_count)
        self.rescore(hidden)
        return self.tokens[:positions]
