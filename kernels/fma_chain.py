"""Exact mode on a CPU: the chain of FP32 multiply-adds that a BF16 matrix product runs, where it is one.

CPU libraries with BF16 instructions add the products of a row one by one into an FP32 accumulator, each
step a fused multiply-add rounded to nearest; instructions that take two columns at a time add the second
first, and a blocked loop over K starts a new accumulator for each block and adds the blocks in order.
Which of these the machine at hand runs is found by comparison: a candidate that gives the stock head's
BF16 bits at a batch shape, on logits made to show the order and on a million others, serves that shape.

A product of two BF16 numbers fits FP32, so a fused multiply-add is an ordinary FP32 addition of it. Tiny
operands are left to enclosed mode: with every nonzero one at least 2^-55, products are multiples of
2^-124 and no sum is subnormal, so it does not matter whether the machine flushes those.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .probes import DISTRIBUTIONS, MASKED, masked_states, probe_states

TINY_EXP = -55
LOGITS = 1_000_000  # compared per batch shape, at least
SAMPLE_ROWS = 4096  # rows compared for each probed state: both ends of the head and a sample between


@dataclass(frozen=True)
class FmaChain:
    """One order: blocks of `split` columns; in a block pairs of columns, the second first if `swapped`."""

    split: int
    swapped: bool

    def order(self, columns: int) -> list[list[int]]:
        """The columns of each block, in the order in which they are added."""
        blocks = []
        for start in range(0, columns, self.split):
            block = list(range(start, min(start + self.split, columns)))
            if self.swapped:
                block = [k for i in range(0, len(block), 2) for k in reversed(block[i : i + 2])]
            blocks.append(block)
        return blocks

    def __call__(self, hidden: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Accumulators, float32 [P, R], for hidden [P, K] and rows [P, R, K], bfloat16."""
        products = (rows.float() * hidden.float()[:, None, :]).permute(2, 0, 1).contiguous()
        total = None
        for block in self.order(products.shape[0]):
            accumulator = torch.zeros_like(products[0])
            for k in block:
                accumulator += products[k]
            total = accumulator if total is None else total + accumulator
        assert total is not None
        return total

    def __str__(self) -> str:
        return f"fma(split={self.split}, {'second of a pair first' if self.swapped else 'in order'})"


@dataclass(frozen=True)
class ChainFound:
    """What the comparison at one batch shape came to. `chain` is None where no candidate survived."""

    chain: FmaChain | None
    logits: int
    tried: int


def candidates(columns: int) -> list[FmaChain]:
    """The orders worth trying, those seen in the wild first."""
    splits = [s for s in (512, 1024, 256, 2048, 4096) if s < columns]
    return [FmaChain(split, swapped) for split in (*splits, columns) for swapped in (True, False)]


def has_tiny(x: torch.Tensor) -> bool:
    """Whether a nonzero entry is below 2^-55 in magnitude."""
    return bool(((x != 0) & (x.abs() < 2.0**TINY_EXP)).any())


def find_chain(weight: torch.Tensor, positions: int, *, logits: int = LOGITS, seed: int = 0) -> ChainFound:
    """The candidate whose BF16 bits are the stock head's at this batch shape, if there is one.

    weight: bfloat16 [V, K] on a CPU. First MASKED logits that show the order, then `logits` others, every
    distribution at least once. Heads of fewer rows than the sample are not tried: a million logits would
    take longer than they save.
    """
    rows, columns = weight.shape
    alive = candidates(columns)
    tried = len(alive)
    if rows < SAMPLE_ROWS or has_tiny(weight):
        return ChainFound(None, 0, tried)
    generator = torch.Generator().manual_seed(seed)
    middle = torch.randperm(rows, generator=generator)[: SAMPLE_ROWS // 2]
    ends = torch.cat([torch.arange(SAMPLE_ROWS // 4), torch.arange(rows - SAMPLE_ROWS // 4, rows)])
    sample = torch.cat([ends, middle]).unique()
    some = weight[sample].expand(1, -1, -1)
    shown = 0
    for _ in range(2 * -(-MASKED // positions)):
        hidden, targets = masked_states(weight, positions, sample, generator)
        if shown >= MASKED or not alive:
            break
        if not has_tiny(hidden):
            stock = torch.matmul(hidden, weight.T)[torch.arange(positions), targets].view(torch.int16)
            alive = [c for c in alive if _agrees(c, hidden, weight[targets][:, None], stock[:, None])]
            shown += positions
    if shown < MASKED or not alive:
        return ChainFound(None, shown, tried)
    compared, used = shown, set()
    for name, hidden in probe_states(weight, positions, seed):
        if has_tiny(hidden):
            continue
        stock = torch.matmul(hidden, weight.T)[:, sample].view(torch.int16)
        alive = [c for c in alive if _agrees(c, hidden, some.expand(positions, -1, -1), stock)]
        compared += stock.numel()
        used.add(name)
        if not alive or (compared >= logits and len(used) == len(DISTRIBUTIONS)):
            break
    return ChainFound(alive[0] if alive else None, compared, tried)


def _agrees(chain: FmaChain, hidden: torch.Tensor, rows: torch.Tensor, stock: torch.Tensor) -> bool:
    """Whether the chain's BF16 bits are the stock head's; one state at a time bounds the memory."""
    return all(
        torch.equal(chain(h[None], r[None])[0].to(torch.bfloat16).view(torch.int16), bits)
        for h, r, bits in zip(hidden, rows, stock, strict=True)
    )
