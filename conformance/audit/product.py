"""A matrix product as the audit sees it: codes in, codes out, one fixed shape.

Libraries choose another kernel, and so another arithmetic, for another shape; so a product always runs at
its own shape, and fewer rows than that are filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from certhead.pyref.formats import BF16, FP16, FP32, Format

if TYPE_CHECKING:
    import torch

Codes: TypeAlias = npt.NDArray[np.unsignedinteger[Any]]
Call: TypeAlias = "Callable[[Codes, Codes], Codes]"
Rows: TypeAlias = "Callable[[Codes, Codes, int], Codes]"


@dataclass(frozen=True)
class Product:
    """`call(h [M, K], w [V, K])` gives [M, V] codes of `output`; h and w are codes of `inputs`.

    `call_rows(h, w [n, K], at)`, where there is one, gives the [M, n] results of those rows alone, placed
    from row `at` on in a weight of zeros: it spares carrying the zeros to a device.
    """

    name: str
    rows: int
    columns: int
    positions: int
    inputs: Format
    output: Format
    call: Call
    call_rows: Rows | None = None

    def __call__(self, h: Codes, w: Codes, *, at: int = 0) -> Codes:
        """Every row of w, any number of them: [M, n]; in the weight they are put from row `at` on.

        Raises `ValueError` when h is not [M, K].
        """
        if h.shape != (self.positions, self.columns) or w.shape[1:] != (self.columns,):
            raise ValueError(f"h {h.shape}, w {w.shape}: {self.name} multiplies {self.shape}")
        parts = [self._part(h, w[start : start + self.rows], at) for start in range(0, len(w), self.rows)]
        return np.concatenate(parts, axis=1)

    def _part(self, h: Codes, w: Codes, at: int) -> Codes:
        if self.call_rows is not None:
            return self.call_rows(h, w, at)
        filled = np.zeros((self.rows, self.columns), w.dtype)
        where = (at + np.arange(len(w))) % self.rows
        filled[where] = w
        return self.call(h, filled)[:, where]

    @property
    def shape(self) -> tuple[int, int, int]:
        """V, K, M."""
        return self.rows, self.columns, self.positions


def dtype_of(fmt: Format) -> type[np.unsignedinteger[Any]]:
    """The unsigned dtype that holds a format's codes."""
    return np.uint32 if fmt.width > 16 else np.uint16


def codes16(values: torch.Tensor) -> npt.NDArray[np.uint16]:
    """BF16 or FP16 values as their codes."""
    import torch

    return values.contiguous().view(torch.int16).cpu().numpy().view(np.uint16)


def codes32(values: torch.Tensor) -> npt.NDArray[np.uint32]:
    """FP32 values as their codes."""
    import torch

    return values.contiguous().view(torch.int32).cpu().numpy().view(np.uint32)


@lru_cache(maxsize=2)
def _zeros(rows: int, columns: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """One weight of zeros on the device, shared: who writes rows into it puts the zeros back."""
    import torch

    return torch.zeros((rows, columns), dtype=dtype, device=device)


def torch_product(
    rows: int,
    columns: int,
    positions: int,
    inputs: Format = BF16,
    device: str = "cpu",
    output: Format | None = None,
) -> Product:
    """`torch.matmul(h, w.T)`, the stock head, on a device.

    output: None for the inputs' own format; FP32 for the library's wide results of 16-bit inputs, which
    only some devices have.
    """
    import torch

    dtypes = {BF16: torch.bfloat16, FP16: torch.float16, FP32: torch.float32}
    dtype, out_format = dtypes[inputs], inputs if output is None else output

    def tensor(codes: Codes) -> torch.Tensor:
        signed = np.int32 if inputs.width > 16 else np.int16
        return torch.from_numpy(np.ascontiguousarray(codes).view(signed)).to(device).view(dtype)

    def multiply(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if out_format == inputs:
            return torch.matmul(hidden, weight.T)
        return torch.mm(hidden, weight.T, out_dtype=dtypes[out_format])

    def codes_of(values: torch.Tensor) -> Codes:
        return codes32(values) if out_format.width > 16 else codes16(values)

    def call(h: Codes, w: Codes) -> Codes:
        return codes_of(multiply(tensor(h), tensor(w)))

    def call_rows(h: Codes, w: Codes, at: int) -> Codes:
        weight = _zeros(rows, columns, dtype, device)
        where = (at + torch.arange(len(w), device=device)) % rows
        weight[where] = tensor(w)
        try:
            return codes_of(multiply(tensor(h), weight)[:, where])
        finally:
            weight[where] = 0

    name = f"torch {inputs.name} on {device}"
    if out_format != inputs:
        name += f", {out_format.name} results"
    return Product(name, rows, columns, positions, inputs, out_format, call, call_rows)
