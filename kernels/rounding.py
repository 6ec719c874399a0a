"""The few roundings that the stages name, on torch tensors, each correctly rounded once."""

from __future__ import annotations

import torch


def power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2^exponent as float64, exactly, for integer exponents in the normal range."""
    return ((exponent.to(torch.int64) + 1023) << 52).view(torch.float64)


def fp32_down(x: torch.Tensor) -> torch.Tensor:
    """float64 → float32 toward −∞."""
    y = x.to(torch.float32)
    return torch.where(y.double() > x, torch.nextafter(y, y.new_tensor(-torch.inf)), y)


def fp32_up(x: torch.Tensor) -> torch.Tensor:
    """float64 → float32 toward +∞."""
    y = x.to(torch.float32)
    return torch.where(y.double() < x, torch.nextafter(y, y.new_tensor(torch.inf)), y)


def bf16_up(x: torch.Tensor) -> torch.Tensor:
    """Positive float64 → bfloat16 toward +∞, for values in BF16's normal range."""
    bits = fp32_up(x).view(torch.int32)
    return ((bits + 0xFFFF) & -0x10000).view(torch.float32).to(torch.bfloat16)


def floor_log2(x: torch.Tensor) -> torch.Tensor:
    """⌊log2 x⌋ as int64 for positive, normal float64 x."""
    return (x.view(torch.int64) >> 52) - 1023
