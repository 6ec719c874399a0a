"""A matrix product as the audit sees it: codes in, codes out, one fixed shape.

Libraries choose another kernel, and so another arithmetic, for another shape; so a product always runs at
its own shape, and fewer rows than that are filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from certhead.pyref.formats import BF16, FP16, FP32, Format

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Call: TypeAlias = "Callable[[Codes, Codes], Codes]"


@dataclass(frozen=True)
class Product:
    """`call(h [M, K], w [V, K])` gives [M, V] codes of `output`; h and w are codes of `inputs`."""

    name: str
    rows: int
    columns: int
    positions: int
    inputs: Format
    output: Format
    call: Call

    def __call__(self, h: Codes, w: Codes) -> Codes:
        """Every row of w, any number of them: [M, n]. Raises `ValueError` when h is not [M, K]."""
        if h.shape != (self.positions, self.columns) or w.shape[1:] != (self.columns,):
            raise ValueError(f"h {h.shape}, w {w.shape}: {self.name} multiplies {self.shape}")
        parts = []
        for start in range(0, len(w), self.rows):
            part = w[start : start + self.rows]
            filled = np.zeros((self.rows, self.columns), w.dtype)
            filled[: len(part)] = part
            parts.append(self.call(h, filled)[:, : len(part)])
        return np.concatenate(parts, axis=1)

    @property
    def shape(self) -> tuple[int, int, int]:
        """V, K, M."""
        return self.rows, self.columns, self.positions


def dtype_of(fmt: Format) -> type[np.unsignedinteger[Any]]:
    """The unsigned dtype that holds a format's codes."""
    return np.uint32 if fmt.width > 16 else np.uint16


def torch_product(
    rows: int, columns: int, positions: int, inputs: Format = BF16, device: str = "cpu"
) -> Product:
    """`torch.matmul(h, w.T)`, the stock head, on a device. The result has the inputs' format."""
    import torch

    dtypes = {BF16: torch.bfloat16, FP16: torch.float16, FP32: torch.float32}
    dtype = dtypes[inputs]
    integer, signed = (torch.int32, np.int32) if inputs.width > 16 else (torch.int16, np.int16)

    def tensor(codes: Codes) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(codes).view(signed)).to(device).view(dtype)

    def call(h: Codes, w: Codes) -> Codes:
        out = torch.matmul(tensor(h), tensor(w).T).contiguous().view(integer).cpu().numpy()
        codes: Codes = out.view(dtype_of(inputs))
        return codes

    return Product(f"torch {inputs.name} on {device}", rows, columns, positions, inputs, inputs, call)
