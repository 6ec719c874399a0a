"""A head that was saved with its model's inputs (`certhead save-head`), for the audit to use."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from certhead.pyref.head import RANGE_EXP

from ..errors import BadInput
from .audit import REAL_ROWS, REAL_STATES, RealInputs
from .product import codes16


@dataclass(frozen=True)
class SavedHead:
    """A saved head: weight bfloat16 [V, K], and what its model gave it, [N, K], or None."""

    name: str
    weight: torch.Tensor
    hidden: torch.Tensor | None

    @property
    def real(self) -> RealInputs | None:
        """A sample of rows and inputs, as codes."""
        if self.hidden is None:
            return None
        some = torch.linspace(0, len(self.weight) - 1, min(REAL_ROWS, len(self.weight))).long()
        states = self.hidden[:REAL_STATES]
        return RealInputs(codes16(self.weight[some.to(self.weight.device)]), codes16(states))


def load_head(file: Path, where: torch.device) -> SavedHead:
    """A safetensors file with `weight`, and `hidden` where there is one. Raises `BadInput`."""
    try:
        from safetensors.torch import load_file

        tensors = load_file(file, device=str(where))
        weight, hidden = tensors["weight"].contiguous(), tensors.get("hidden")
    except ImportError:
        raise BadInput(f"--head {file}: reading it needs the package safetensors") from None
    except KeyError:
        raise BadInput(f"--head {file}: holds no tensor named weight") from None
    except Exception as problem:
        raise BadInput(f"--head {file}: {problem}") from None
    for name, tensor in (("weight", weight), ("hidden", hidden)):
        if tensor is not None and (tensor.dtype != torch.bfloat16 or tensor.dim() != 2 or not len(tensor)):
            raise BadInput(
                f"--head {file}: {name} is {tensor.dtype} {list(tensor.shape)}, not bfloat16 [n, K]"
            )
    if hidden is not None and hidden.shape[1] != weight.shape[1]:
        raise BadInput(f"--head {file}: weight has {weight.shape[1]} columns, hidden {hidden.shape[1]}")
    if not bool((weight.abs() < 2.0**RANGE_EXP).all()):
        raise BadInput(f"--head {file}: a weight is not finite and below 2^{RANGE_EXP}")
    if hidden is not None:
        hidden = hidden[(hidden.abs() < 2.0**RANGE_EXP).all(dim=1)]  # others are never certified
    return SavedHead(file.stem, weight, hidden if hidden is not None and len(hidden) else None)
