"""Does the stock head stay inside the intervals that enclosed mode rests on?

Where the stock arithmetic was not identified, enclosed mode needs that its FP32 accumulators obey the error
model. A library may break even the any-order bound (split sums kept in BF16 do), so a back end asks at each
batch shape before it serves that way: a logit outside its interval refuses the shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .probes import DISTRIBUTIONS, masked_batches, probe_states
from .torch_stages import rescore_enclosed

LOGITS = 1_000_000  # tried per batch shape, at least
SAMPLE_ROWS = 4096
ELEMENTS = 1 << 26  # of FP64 products at once


@dataclass(frozen=True)
class EnclosureCheck:
    """What was tried at one batch shape."""

    positions: int
    logits: int
    outside: int

    @property
    def holds(self) -> bool:
        """Whether enclosed mode may be used there: enough was tried and nothing was outside."""
        return self.outside == 0 and self.logits >= LOGITS


def check_enclosure(weight: torch.Tensor, positions: int, gamma_num: int, *, seed: int = 0) -> EnclosureCheck:
    """Try the stock head's logits at one batch shape against the re-score's rounded ends.

    weight: bfloat16 [V, K]. The rows are a sample with both ends of the head; states are those that show
    the order, then every distribution of `probes` until LOGITS logits were tried, or one was outside.
    """
    rows = weight.shape[0]
    generator = torch.Generator(device=weight.device).manual_seed(seed)
    some = torch.randint(0, rows, (SAMPLE_ROWS,), generator=generator, device=weight.device)
    sample = torch.cat([some, torch.tensor([0, rows - 1], device=weight.device)]).unique()
    tried = outside = 0
    used: set[str] = set()
    for name, hidden in _states(weight, positions, sample, seed):
        stock = torch.matmul(hidden, weight.T)[:, sample]
        outside += _outside(stock, hidden, weight[sample], gamma_num)
        tried += stock.numel()
        used.add(name)
        if outside or (tried >= LOGITS and len(used) == len(DISTRIBUTIONS) + 1):
            break
    return EnclosureCheck(positions, tried, outside)


def _states(
    weight: torch.Tensor, positions: int, sample: torch.Tensor, seed: int
) -> Iterator[tuple[str, torch.Tensor]]:
    for hidden in masked_batches(weight, positions, sample, seed + 1):
        yield "masked", hidden
    yield from probe_states(weight, positions, seed)


def _outside(stock: torch.Tensor, hidden: torch.Tensor, rows: torch.Tensor, gamma_num: int) -> int:
    """Logits of stock [M, R] that are not between the rounded ends."""
    count = 0
    step = max(1, ELEMENTS // rows.numel())
    for start in range(0, len(hidden), step):
        states = hidden[start : start + step]
        lo, hi = rescore_enclosed(states, rows.expand(len(states), -1, -1), gamma_num)
        value = stock[start : start + step]
        count += int((~((lo.bfloat16() <= value) & (value <= hi.bfloat16()))).sum())
    return count
