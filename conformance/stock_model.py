"""The stock head as it runs on the machine at hand: its tokens, and the assumption about its logits.

The certificate rests on `|y - z| <= γ·Σ|w·h| + η` for the stock accumulator `y` (docs/spec.md). The BF16
kernel hides `y`; it shows `RNE_BF16(y)`, which by monotonicity must lie between the rounded ends of that
interval. This is a test over the logits that were looked at, not a proof about those that were not.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from certhead.kernels import CertifiedHead
from certhead.kernels.rounding import fp32_down, fp32_up
from certhead.pyref.head import ETA_EXP, GAMMA_BITS, RANGE_EXP

from .results import StockCheck

ROW_CHUNK = 8192


def batches(positions: int, size: int) -> Iterator[tuple[torch.Tensor, int]]:
    """Indices of batches of exactly `size` positions, each with how many of them count.

    The last batch is filled up with positions from the start, which do not count again: a smaller
    batch would be another batch shape, and the stock kernel may differ with the shape.
    """
    for start in range(0, positions, size):
        yield torch.arange(start, start + size) % positions, min(size, positions - start)


def stock_logits(weight: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """The unmodified stock product, BF16 [M, V]; written out here to be independent of the head's own."""
    return torch.matmul(hidden, weight.T)


@dataclass(frozen=True)
class StockTokens:
    """What the stock head chose at one batch shape, and how long it took when it ran."""

    tokens: torch.Tensor  # [N] int64, on the CPU
    seconds: float


def stock_tokens(
    weight: torch.Tensor, hidden: torch.Tensor, size: int, advance: Callable[[int], None]
) -> StockTokens:
    """The stock head's tokens for `hidden` [N, K], run in batches of `size`."""
    tokens, seconds = [], 0.0
    for index, counted in batches(len(hidden), size):
        began = time.perf_counter()
        tokens.append(torch.argmax(stock_logits(weight, hidden[index]), dim=-1)[:counted].cpu())
        seconds += time.perf_counter() - began
        advance(counted)
    return StockTokens(torch.cat(tokens), seconds)


def kept_stock_tokens(
    folder: Path, weight: torch.Tensor, hidden: torch.Tensor, size: int, advance: Callable[[int], None]
) -> StockTokens:
    """`stock_tokens` on the CPU, run once and kept in `folder`, which stands for the weight.

    The file's name is a hash of the states and of what else decides the bits: the machine, torch, its
    kernels and its threads.
    """
    decisive = [
        hashlib.sha256(hidden.contiguous().view(torch.int16).numpy().data).hexdigest(),
        (size, platform.node(), torch.__version__, torch.__config__.parallel_info()),
        (torch.backends.cpu.get_cpu_capability(), os.environ.get("ONEDNN_MAX_CPU_ISA")),
    ]
    key = hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:32]
    path = folder / f"stock-{size}-{key}.json"
    if path.exists():
        kept = json.loads(path.read_text("utf-8"))
        advance(len(hidden))
        return StockTokens(torch.tensor(kept["tokens"]), kept["seconds"])
    result = stock_tokens(weight, hidden, size, advance)
    partial = path.with_suffix(f".{os.getpid()}.tmp")
    partial.write_text(json.dumps({"tokens": result.tokens.tolist(), "seconds": result.seconds}), "utf-8")
    partial.replace(path)
    return result


def center_and_radius(
    state: torch.Tensor, rows: torch.Tensor, gamma_num: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The model's interval around the accumulators of float64 state [M, K] and rows [V, K]: float64 [M, V].

    The radius covers FP64's own rounding of the K additions of z and of Σ|w·h|, of itself and of the ends.
    """
    relative = gamma_num * 2.0**-GAMMA_BITS + 4 * (state.shape[1] + 4) * 2.0**-53
    return state @ rows.T, (state.abs() @ rows.abs().T) * relative + 2.0**ETA_EXP


def check_stock_model(
    source: str, head: CertifiedHead, hidden: torch.Tensor, batch_sizes: Sequence[int]
) -> list[StockCheck]:
    """Test every stock logit of `hidden` [N, K] at each batch shape; positions out of range are left out."""
    usable = (hidden.isfinite() & (hidden.abs() < 2.0**RANGE_EXP)).all(dim=1)
    hidden = hidden[usable]
    positions = len(hidden)
    if positions == 0:
        return []
    stock = {
        size: torch.cat([stock_logits(head.weight, hidden[i])[:n] for i, n in batches(positions, size)])
        for size in batch_sizes
    }
    violations = dict.fromkeys(batch_sizes, 0)
    first: dict[int, str] = {}
    state = hidden.double()
    for start in range(0, len(head.weight), ROW_CHUNK):
        rows = head.weight[start : start + ROW_CHUNK].double()
        center, radius = center_and_radius(state, rows, head.gamma_num)
        low = fp32_down(center - radius).to(torch.bfloat16)
        high = fp32_up(center + radius).to(torch.bfloat16)
        for size in batch_sizes:
            logits = stock[size][:, start : start + ROW_CHUNK]
            outside = ~((low <= logits) & (logits <= high))  # a NaN is outside
            count = int(outside.sum())
            violations[size] += count
            if count and size not in first:
                m, i = (int(x) for x in outside.nonzero()[0])
                got, ends = hex_bits(logits[m, i]), (hex_bits(low[m, i]), hex_bits(high[m, i]))
                first[size] = f"position {m}, row {start + i}: {got} is not in [{ends[0]}, {ends[1]}]"
    total = positions * len(head.weight)
    return [
        StockCheck(source, size, positions, total, violations[size], first.get(size)) for size in batch_sizes
    ]


def hex_bits(value: torch.Tensor) -> str:
    """One BF16 value as its bit pattern."""
    return f"0x{int(value.view(torch.int16)) & 0xFFFF:04x}"
