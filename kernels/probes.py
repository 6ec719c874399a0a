"""Head inputs that tell one summation order, and one adder, from another."""

from __future__ import annotations

from collections.abc import Iterator

import torch

MASKED = 192  # states, at a batch shape, in which one row's logit shows the order of its sum
DISTRIBUTIONS = ("normal", "outliers", "geometric", "cancelling", "rows")


def probe_states(weight: torch.Tensor, positions: int, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    """Endless named batches of head inputs, bfloat16 [positions, K], chosen to expose other arithmetic."""
    rows, columns = weight.shape
    generator = torch.Generator(device=weight.device).manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, device=weight.device)

    while True:
        yield "normal", (normal(positions, columns) * 3).bfloat16()
        spikes = normal(positions, columns)
        spikes[:, torch.randint(0, columns, (4,), generator=generator, device=weight.device)] *= 100
        yield "outliers", spikes.bfloat16()
        exponents = torch.randint(-12, 8, (positions, columns), generator=generator, device=weight.device)
        yield "geometric", torch.ldexp(normal(positions, columns), exponents).bfloat16()
        # pairs of neighbouring columns that nearly cancel, so that the order of the sum shows
        half = normal(positions, (columns + 1) // 2).repeat_interleave(2, dim=1)[:, :columns]
        signs = torch.ones(columns, device=weight.device)
        signs[1::2] = -1
        yield "cancelling", (half * signs * 50).bfloat16()
        index = torch.randint(0, rows, (positions,), generator=generator, device=weight.device)
        row = weight[index].float()
        yield "rows", (row * 100 + normal(positions, columns)).bfloat16()


def masked_states(
    weight: torch.Tensor, positions: int, targets: torch.Tensor, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Head inputs bfloat16 [positions, K], each with one row of `targets` whose logit shows the order.

    Two columns are given the other's weight in that row, once negated: their products cancel exactly,
    and in between the accumulator is so large that the other terms are rounded to about their own size.
    So the logit tells which terms were added between the two (masking, in the manner of FPRev).
    """
    columns = weight.shape[1]
    device = weight.device

    def pick(limit: int) -> torch.Tensor:
        return torch.randint(0, limit, (positions,), generator=generator, device=device)

    rows = targets[pick(len(targets))]
    first = pick(columns)
    second = (first + 1 + pick(max(1, columns - 1))) % columns
    w = weight[rows].float()
    at = torch.arange(positions, device=device)
    a, b = w[at, first], w[at, second]
    peak = torch.maximum(a.abs(), b.abs()).clamp_min(2.0**-40)
    scale = torch.exp2(12 - torch.floor(torch.log2(peak)))
    rms = w.square().mean(dim=1).sqrt().clamp_min(2.0**-40)
    others = torch.randn(positions, columns, generator=generator, device=device)
    hidden = (others * ((a * b).abs() * scale / rms * 2.0**-22)[:, None]).bfloat16()
    hidden[at, first] = (b * scale).bfloat16()
    hidden[at, second] = (-a * scale).bfloat16()
    return hidden, rows


def masked_batches(
    weight: torch.Tensor, positions: int, targets: torch.Tensor, seed: int
) -> Iterator[torch.Tensor]:
    """Batches of `masked_states`, bfloat16 [positions, K], of at least MASKED states in all."""
    generator = torch.Generator(device=weight.device).manual_seed(seed)
    for _ in range(-(-MASKED // positions)):
        yield masked_states(weight, positions, targets, generator)[0]


SPECIAL = (torch.nan, torch.inf, -torch.inf, 70_000.0, -70_000.0)


def special_states(weight: torch.Tensor, positions: int, seed: int) -> Iterator[torch.Tensor]:
    """Batches of head inputs, bfloat16 [positions, K], that no screen handles: every kind of SPECIAL once.

    Each state has one entry that is not finite or beyond the range of the screen, among ordinary ones.
    """
    columns = weight.shape[1]
    generator = torch.Generator(device=weight.device).manual_seed(seed)
    for start in range(0, len(SPECIAL), positions):
        hidden = torch.randn(positions, columns, generator=generator, device=weight.device)
        at = torch.randint(0, columns, (positions,), generator=generator, device=weight.device)
        kinds = [SPECIAL[(start + m) % len(SPECIAL)] for m in range(positions)]
        hidden[torch.arange(positions, device=weight.device), at] = torch.tensor(kinds, device=weight.device)
        yield hidden.bfloat16()
