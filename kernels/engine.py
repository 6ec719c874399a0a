"""What a back end offers to `CertifiedHead`."""

from __future__ import annotations

from typing import Protocol

import torch

from .decision import Decision
from .quantize import QuantizedHead
from .torch_stages import Rescorer


class Engine(Protocol):
    """One back end: the stages, chained, for one head."""

    copy: QuantizedHead
    exact: Rescorer | None

    @property
    def mode(self) -> str:
        """`exact` or `enclosed`."""

    @property
    def metadata_bytes(self) -> int:
        """Bytes that the back end keeps beside the int8 codes."""

    def exact_for(self, hidden: torch.Tensor) -> Rescorer | None:
        """What re-scores these states exactly, where that is done outside the kernels; else None."""

    def identifications(self) -> dict[int, tuple[str | None, int]]:
        """By number of positions: the stock arithmetic found (or None), and on how many logits."""

    def tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """Tokens, int64 [M]."""

    def decide(self, hidden: torch.Tensor) -> Decision:
        """Tokens with their states and reasons."""

    def count(self, decision: Decision) -> None:
        """Add a decision to the counters, where the stages have not."""

    def counters(self) -> dict[str, int]:
        """Positions so far, by state and by reason."""
