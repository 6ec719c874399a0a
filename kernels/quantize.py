"""Stage `quantize`: the int8 copy of a BF16 head, built once, off the hot path.

Every number equals `pyref.head.quantize_row` bit for bit. The norms are computed in FP64 with a known
relative error; where that error could change a ceiling, the row is recomputed in exact arithmetic.
Source of the formulas: docs/spec.md, "quantize".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import torch
from certhead.pyref import head as spec

from .rounding import bf16_up

CHUNK_ELEMENTS = 1 << 22  # FP64 working set of some 100 MB
NORM_ERROR = 2.0**-34  # > (2^15 + 8)·2^-53, the relative error of a sum of K squares, root and quotient


@dataclass(frozen=True)
class QuantizedHead:
    """The int8 copy: what the screen reads instead of the weights."""

    codes: torch.Tensor  # int8 [V, K]
    scale: torch.Tensor  # bfloat16 [V]
    residual_codes: torch.Tensor  # int8 [V, G], 0..127
    norm_codes: torch.Tensor  # uint8 [V]
    group: int

    @cached_property
    def code_norm(self) -> int:
        """Q of docs/spec.md: bounds every row's norm of codes."""
        return spec.code_norm_bound([int(self.norm_codes.max())], self.codes.shape[1])

    @property
    def metadata_bytes(self) -> int:
        """Bytes beside the codes."""
        return sum(t.numel() * t.element_size() for t in (self.scale, self.residual_codes, self.norm_codes))


def quantize(
    weight: torch.Tensor, group: int, progress: Callable[[int], None] | None = None
) -> QuantizedHead:
    """Build the copy of `weight`, bfloat16 [V, K], finite and below 2^16 in magnitude.

    progress, if given, is called with the number of rows finished in each chunk.
    """
    rows, columns = weight.shape
    n_groups = spec.ceil_div(columns, group)
    device = weight.device
    out = QuantizedHead(
        codes=torch.empty((rows, columns), dtype=torch.int8, device=device),
        scale=torch.empty(rows, dtype=torch.bfloat16, device=device),
        residual_codes=torch.empty((rows, n_groups), dtype=torch.int8, device=device),
        norm_codes=torch.empty(rows, dtype=torch.uint8, device=device),
        group=group,
    )
    step = max(1, CHUNK_ELEMENTS // columns)
    for start in range(0, rows, step):
        _quantize_chunk(weight[start : start + step], out, slice(start, min(start + step, rows)))
        if progress:
            progress(min(start + step, rows) - start)
    return out


def _quantize_chunk(weight: torch.Tensor, out: QuantizedHead, where: slice) -> None:
    w = weight.double()
    columns, group = w.shape[1], out.group
    largest = w.abs().amax(dim=1)
    scale = bf16_up((largest / 127).clamp_min(2.0**spec.SCALE_MIN_EXP))
    s = scale.double()
    codes = (w / s[:, None]).round()
    residual = w - s[:, None] * codes  # exact: both terms are multiples of a common quantum, 32 bits apart
    padding = (-columns) % group
    squares = torch.nn.functional.pad(residual * residual, (0, padding)).view(len(w), -1, group).sum(dim=2)
    rho, nu = spec.residual_shift(group), spec.norm_shift(columns)
    residual_codes, doubtful = _ceil_near(squares.sqrt() * 2.0**rho / s[:, None])
    norm_codes, doubtful_norm = _ceil_near((w * w).sum(dim=1).sqrt() * 2.0**-nu / s)
    out.codes[where] = codes.to(torch.int8)
    out.scale[where] = scale
    out.residual_codes[where] = residual_codes.to(torch.int8)
    out.norm_codes[where] = norm_codes.to(torch.uint8)
    for i in (doubtful.any(dim=1) | doubtful_norm).nonzero().flatten().tolist():
        row = spec.quantize_row(bits(weight[i]).tolist(), group)
        target = (where.start or 0) + i
        out.residual_codes[target] = torch.tensor(row.residual_codes, dtype=torch.int8)
        out.norm_codes[target] = row.norm_code


def _ceil_near(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """⌈x⌉ for x known to a relative NORM_ERROR, and where that does not settle it."""
    low, high = (x * (1 - NORM_ERROR)).ceil(), (x * (1 + NORM_ERROR)).ceil()
    return high, low != high


def bits(x: torch.Tensor) -> torch.Tensor:
    """BF16 bit patterns as int32 0..65535, on the CPU."""
    return x.detach().cpu().contiguous().view(torch.int16).to(torch.int32) & 0xFFFF


def row_of(copy: QuantizedHead, i: int) -> spec.QuantizedRow:
    """Row `i` in the form that pyref works on."""
    return spec.QuantizedRow(
        scale=Fraction(float(copy.scale[i])),
        codes=tuple(copy.codes[i].tolist()),
        residual_codes=tuple(copy.residual_codes[i].tolist()),
        norm_code=int(copy.norm_codes[i]),
    )
