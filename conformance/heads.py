"""Heads made up to be hard, and heads made up to look real, for the checks beside the real model.

Each one attacks a stage: ties and near-ties attack `select` and `decide`, cancellation and scale attack
the width of the `screen`, subnormals and zeros attack rounding, odd sizes attack the tiling, and states
that no screen can handle must end in `fallback` with the stock head's token. Everything comes from a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

BF16 = torch.bfloat16
ULP = 2.0**-7  # spacing of BF16 in [1, 2)


@dataclass(frozen=True)
class SyntheticHead:
    """A head, the states that it meets, and what it is meant to break."""

    name: str
    about: str
    weight: torch.Tensor  # [V, K] BF16
    hidden: torch.Tensor  # [N, K] BF16


Maker = Callable[[torch.Generator], tuple[torch.Tensor, torch.Tensor]]


def synthetic_heads(seed: int) -> list[SyntheticHead]:
    """Every synthetic head; the same seed gives the same bits."""
    heads = []
    for number, make in enumerate(MAKERS):
        weight, hidden = make(torch.Generator().manual_seed(seed * len(MAKERS) + number))
        heads.append(
            SyntheticHead(
                name=make.__name__.strip("_").replace("_", "-"),
                about=(make.__doc__ or "").rstrip("."),
                weight=weight.to(BF16).contiguous(),
                hidden=hidden.to(BF16).contiguous(),
            )
        )
    return heads


def _normal(g: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=g)


def _integers(g: torch.Generator, low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=g).float()


def _massive(hidden: torch.Tensor, columns: tuple[int, ...], factor: float) -> torch.Tensor:
    """The same states with a few columns far above the others, as trained models have them."""
    hidden[:, list(columns)] *= factor
    return hidden


def realistic(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Gaussian rows of uneven norm; states with three massive columns, each leaning to one row."""
    weight = _normal(g, 8192, 320) * 0.05 * (0.3 * _normal(g, 8192, 1)).exp()
    lean = weight[torch.randint(8192, (160,), generator=g)]
    hidden = _massive(_normal(g, 160, 320), (7, 100, 311), 40.0)
    return weight, hidden + 40 * torch.rand(160, 1, generator=g) * lean


def flat(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Gaussian head whose best rows are close together: no state leans to any row."""
    return _normal(g, 2048, 512) * 0.05, _normal(g, 96, 512)


def near_ties(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows that differ from one base row in a single entry by one unit in the last place."""
    base = 1 + _integers(g, 0, 128, 1, 96) * ULP
    weight = base.repeat(320, 1)
    weight[torch.arange(320), torch.randint(96, (320,), generator=g)] += ULP
    return weight, _normal(g, 64, 96)


def exact_ties(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Small integers: many rows have exactly the same logit, and sums are exact in any order."""
    return _integers(g, -2, 3, 500, 24), _integers(g, -2, 3, 64, 24)


def ties_after_rounding(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits that differ exactly and are equal once they are rounded to BF16."""
    weight = torch.zeros(200, 16)
    weight[:, 0] = 16
    weight[:, 1] = _integers(g, 0, 9, 200) / 128  # below half of the spacing 1/8
    return weight, torch.ones(16, 16)


def midpoints(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums next to the midpoint of two BF16 values: the accumulation order decides the rounding."""
    weight = torch.zeros(64, 16)
    weight[:, 0] = 16
    weight[:, 1] = 1 / 16
    weight[:, 2] = 2.0**-30 * _integers(g, -2, 3, 64)
    return weight, torch.ones(16, 16)


def duplicates(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Every row five times, shuffled: the first of the equal rows must win."""
    weight = _normal(g, 120, 64).repeat(5, 1)[torch.randperm(600, generator=g)]
    return weight, _normal(g, 64, 64)


def all_rows_equal(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """More tied rows than the capacity holds: fallback(overflow)."""
    return _normal(g, 1, 48).repeat(2000, 1), _normal(g, 24, 48)


def cancellation(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Large products that cancel exactly and leave a small remainder to decide."""
    large = _normal(g, 256, 60).abs() * 100
    weight = torch.cat([large, large, _normal(g, 256, 8)], dim=1)
    state = _normal(g, 64, 60).abs() * 10
    return weight, torch.cat([state, -state, _normal(g, 64, 8)], dim=1)


def subnormal_weights(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights below the smallest normal number, which some kernels flush to zero."""
    return _integers(g, -127, 128, 128, 32) * 2.0**-133, _normal(g, 64, 32)


def subnormal_states(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """States below the smallest normal number beside ordinary ones."""
    hidden = _normal(g, 64, 40)
    hidden[::2] = _integers(g, -127, 128, 32, 40) * 2.0**-133
    return _normal(g, 128, 40), hidden


def mixed_scales(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Row norms over 24 binary orders of magnitude, entries over 16."""
    weight = _normal(g, 700, 80) * torch.exp2(_integers(g, -16, 9, 700, 1))
    return weight * torch.exp2(_integers(g, -16, 1, 700, 80)), _normal(g, 64, 80)


def huge_column(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """One column that outweighs all others in the weights and in the states."""
    weight, hidden = _normal(g, 400, 72), _normal(g, 64, 72)
    weight[:, 31] = 1000 * weight[:, 31].sign()
    return weight, _massive(hidden, (31,), 500.0)


def zero_rows(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Zero rows among rows that mostly lose to them."""
    weight = -_normal(g, 90, 33).abs()
    weight[10::7] = 0
    return weight, _normal(g, 48, 33).abs()


def zero_states(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """States that are +0 and -0 everywhere, beside ordinary ones."""
    hidden = _normal(g, 48, 33)
    hidden[::3] = 0
    hidden[1::3] = -0.0
    return _normal(g, 90, 33), hidden


def one_row(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """A vocabulary of one."""
    return _normal(g, 1, 20), _normal(g, 33, 20)


def one_column(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """K = 1: a logit is a single product."""
    return _normal(g, 257, 1), _normal(g, 50, 1)


def ragged(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Sizes that no block, group or tile divides."""
    return _normal(g, 1031, 241), _normal(g, 67, 241) * 3


def nonfinite_states(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """NaN and infinities in some states of a batch: fallback(nonfinite), the others unharmed."""
    hidden = _normal(g, 66, 50)
    for offset, value in enumerate((float("nan"), float("inf"), float("-inf"))):
        rows = torch.arange(offset, 66, 6)
        hidden[rows, torch.randint(50, (len(rows),), generator=g)] = value
    return _normal(g, 300, 50), hidden


def out_of_range_states(g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Some states at and beyond 2^16, where the specification refuses to screen."""
    hidden = _normal(g, 66, 50)
    hidden[::4, 3] = 2.0**16
    hidden[1::4, 4] = -(2.0**120)
    return _normal(g, 300, 50), hidden


MAKERS: tuple[Maker, ...] = (
    realistic,
    flat,
    near_ties,
    exact_ties,
    ties_after_rounding,
    midpoints,
    duplicates,
    all_rows_equal,
    cancellation,
    subnormal_weights,
    subnormal_states,
    mixed_scales,
    huge_column,
    zero_rows,
    zero_states,
    one_row,
    one_column,
    ragged,
    nonfinite_states,
    out_of_range_states,
)
