"""Hex to tensors and back, for the drivers that run on torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from certhead.conformance.cases import Case, Fields, pack
from certhead.kernels.decision import REASON_NAMES
from certhead.kernels.quantize import QuantizedHead


def bf16(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """BF16 bit patterns as a bfloat16 tensor."""
    return _signed(rows, 16).to(torch.int16).view(torch.bfloat16)


def fp32(rows: Sequence[Sequence[int]]) -> torch.Tensor:
    """FP32 bit patterns as a float32 tensor."""
    return _signed(rows, 32).to(torch.int32).view(torch.float32)


def _signed(rows: Sequence[Sequence[int]], width: int) -> torch.Tensor:
    x = torch.tensor(rows, dtype=torch.int64)
    return torch.where(x >= 1 << (width - 1), x - (1 << width), x)


def hex_of(name: str, x: torch.Tensor) -> str:
    """The values of a tensor as the hex of a field; floating point as its bits."""
    x = x.detach().cpu().contiguous()
    if x.dtype is torch.bfloat16:
        x = x.view(torch.int16)
    elif x.dtype is torch.float32:
        x = x.view(torch.int32)
    return pack(name, x.flatten().tolist())


def copy_of(case: Case) -> QuantizedHead:
    """The int8 copy that a `screen` case gives."""
    return QuantizedHead(
        codes=torch.tensor(case.rows("codes"), dtype=torch.int8),
        scale=bf16([case.singles("scale")])[0],
        residual_codes=torch.tensor(case.rows("residual_codes"), dtype=torch.int8),
        norm_codes=torch.tensor(case.singles("norm_codes"), dtype=torch.uint8),
        group=case.given["group"],
    )


def copy_fields(copy: QuantizedHead) -> Fields:
    """Stage `quantize` of a copy."""
    rows = range(copy.codes.shape[0])
    return {
        "scale": [hex_of("scale", copy.scale[i]) for i in rows],
        "codes": [hex_of("codes", copy.codes[i]) for i in rows],
        "residual_codes": [hex_of("residual_codes", copy.residual_codes[i]) for i in rows],
        "norm_codes": [hex_of("norm_codes", copy.norm_codes[i]) for i in rows],
    }


def reason_names(reasons: torch.Tensor) -> list[str | None]:
    """Reasons as words."""
    return [REASON_NAMES[code] or "none" for code in reasons.tolist()]
