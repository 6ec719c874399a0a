"""The stages of `torch_stages`, chained: back end `torch`."""

from __future__ import annotations

from collections import Counter

import torch
from certhead.pyref import head as spec

from . import torch_stages as stages
from .decision import Decision, Reason, State
from .quantize import QuantizedHead


class TorchEngine:
    """Back end `torch`: enclosed mode, or exact mode where the stock arithmetic is given."""

    def __init__(
        self,
        weight: torch.Tensor,
        copy: QuantizedHead,
        gamma_num: int,
        block: int,
        capacity: int,
        exact: stages.Rescorer | None,
    ) -> None:
        self.weight, self.copy, self.gamma_num = weight, copy, gamma_num
        self.block, self.capacity, self.exact = block, capacity, exact
        self._counts: Counter[str] = Counter()

    @property
    def mode(self) -> str:
        """`exact` or `enclosed`."""
        return (spec.Mode.EXACT if self.exact is not None else spec.Mode.ENCLOSED).value

    @property
    def metadata_bytes(self) -> int:
        """Bytes beside the int8 codes."""
        return self.copy.metadata_bytes

    def tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """Tokens, int64 [M]; counted."""
        decision = self.decide(hidden)
        self.count(decision)
        return decision.tokens

    def decide(self, hidden: torch.Tensor) -> Decision:
        """All stages for hidden, bfloat16 [M, K]."""
        positions = hidden.shape[0]
        limb = stages.limbs(hidden, self.copy.group, self.gamma_num, self.copy.code_norm)
        best, tops = stages.screen(self.copy, limb, self.block)
        threshold, pairs, reasons = stages.select(best, tops, limb.reasons, self.capacity)
        rows = stages.candidates(self.copy, limb, threshold, pairs, self.block)
        lo, hi, index, exists = stages.rescore(
            self.weight, hidden, pairs, self.block, gamma_num=self.gamma_num, exact=self.exact
        )
        tokens, fixed = stages.decide(lo, hi, index, exists, pairs, positions)
        undecided = (reasons == Reason.NONE) & ~fixed
        reasons = torch.where(undecided, torch.full_like(reasons, Reason.AMBIGUOUS), reasons)
        decided = reasons == Reason.NONE
        if not bool(decided.all()):
            stock = torch.argmax(torch.matmul(hidden, self.weight.T), dim=-1)
            tokens = torch.where(decided, tokens, stock)
        state = State.EXACT if self.exact is not None else State.ENCLOSED
        zeros = torch.zeros(positions, dtype=torch.int32, device=hidden.device)
        ones = torch.ones_like(pairs.position, dtype=torch.int32)
        return Decision(
            tokens=tokens,
            states=torch.where(decided, int(state), int(State.FALLBACK)).to(torch.uint8),
            reasons=reasons,
            candidates=zeros.scatter_add(0, pairs.position, rows.sum(dim=1, dtype=torch.int32)),
            blocks=zeros.scatter_add(0, pairs.position, ones),
        )

    def count(self, decision: Decision) -> None:
        """Add a decision to the counters."""
        self._counts.update(decision.counts())
        self._counts["positions"] += decision.tokens.numel()

    def counters(self) -> dict[str, int]:
        """Positions so far, by state and by reason."""
        return dict(self._counts)
