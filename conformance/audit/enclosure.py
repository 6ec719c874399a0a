"""Results of a product against the any-order interval: how many lie outside, how close the rest come.

`|y - Σ w·h| <= γ·Σ|w·h| + η` (docs/spec.md) must hold for the accumulator; a BF16 logit must then lie
between the rounded ends. The error of such a logit is taken beyond the half unit that its own rounding may
add, so its ratio is a lower estimate; for FP32 results the ratio is that of the error itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from certhead.pyref.models import ANY_ORDER

if TYPE_CHECKING:  # torch takes seconds to import, and this module is imported with the command line
    import torch

ROW_CHUNK = 8192
LEAST = -24  # ratios below 2^-24 share the lowest bin of the histogram


@dataclass
class Enclosure:
    """Counts so far. A ratio is None where nothing was measured that way."""

    logits: int = 0
    outside: int = 0
    ratio_bf16: float | None = None
    ratio_fp32: float | None = None
    first: dict[str, Any] | None = None
    histogram: dict[int, int] = field(default_factory=dict)  # e: results with error/bound in [2^(e-1), 2^e)

    def add(
        self,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        logits: torch.Tensor | None,
        wide: torch.Tensor | None,
        where: Mapping[str, object],
    ) -> None:
        """Check hidden [M, K] times weight [V, K]: BF16 logits and FP32 results [M, V], whichever there are.

        Inputs must be finite and below 2^16 in magnitude, where η is what it is.
        """
        import torch
        from certhead.kernels.rounding import fp32_down, fp32_up

        from ..stock_model import center_and_radius

        gamma_num = ANY_ORDER.gamma_num(weight.shape[1])
        state = hidden.double()
        for start in range(0, len(weight), ROW_CHUNK):
            part = slice(start, min(start + ROW_CHUNK, len(weight)))
            rows = weight[part].double()
            center, radius = center_and_radius(state, rows, gamma_num)
            if wide is not None:
                error = (wide[:, part].double() - center).abs()
                self.ratio_fp32 = max(self.ratio_fp32 or 0.0, self._note(error / radius))
                if logits is None:
                    self._count(error > radius, wide[:, part], where, start)
            if logits is not None:
                value = logits[:, part]
                low = fp32_down(center - radius).to(torch.bfloat16)
                high = fp32_up(center + radius).to(torch.bfloat16)
                self._count(~((low <= value) & (value <= high)), value, where, start, low, high)
                exact = value.double()
                half_unit = torch.ldexp(torch.ones_like(exact), torch.frexp(exact).exponent - 9)
                beyond = ((exact - center).abs() - half_unit).clamp_min(0) / radius
                self.ratio_bf16 = max(self.ratio_bf16 or 0.0, self._note(beyond))
        self.logits += hidden.shape[0] * len(weight)

    @property
    def ratio(self) -> float | None:
        """The largest |error|/bound seen, however it was measured."""
        return max((r for r in (self.ratio_bf16, self.ratio_fp32) if r is not None), default=None)

    def merge(self, other: Enclosure) -> None:
        """Take in what another one counted."""
        self.logits += other.logits
        self.outside += other.outside
        self.first = self.first or other.first
        for name in ("ratio_bf16", "ratio_fp32"):
            seen = [r for r in (getattr(self, name), getattr(other, name)) if r is not None]
            setattr(self, name, max(seen, default=None))
        for e, count in other.histogram.items():
            self.histogram[e] = self.histogram.get(e, 0) + count

    def _note(self, ratio: torch.Tensor) -> float:
        """The largest ratio; all of them go into the histogram."""
        import torch

        exponent = torch.where(ratio > 0, torch.frexp(ratio).exponent, LEAST).clamp(LEAST, 64)
        counts = torch.bincount((exponent - LEAST).flatten().long())
        for e, count in enumerate(counts.tolist(), LEAST):
            if count:
                self.histogram[e] = self.histogram.get(e, 0) + count
        return float(ratio.max())

    def _count(
        self,
        outside: torch.Tensor,
        value: torch.Tensor,
        where: Mapping[str, object],
        start: int,
        *ends: torch.Tensor,
    ) -> None:
        from ..stock_model import hex_bits

        count = int(outside.sum())
        self.outside += count
        if count and self.first is None:
            m, i = (int(x) for x in outside.nonzero()[0])
            self.first = {
                **where,
                "position": m,
                "row": start + i,
                "result": float(value[m, i]),
                "interval": [hex_bits(end[m, i]) for end in ends],
            }
