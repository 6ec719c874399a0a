"""The stages of `torch_stages`, chained: back end `torch`."""

from __future__ import annotations

from collections import Counter

import torch
from certhead.pyref import head as spec

from . import torch_stages as stages
from .decision import Decision, Reason, State
from .fma_chain import ChainFound, find_chain, has_tiny
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
        identify: bool = False,
    ) -> None:
        self.weight, self.copy, self.gamma_num = weight, copy, gamma_num
        self.block, self.capacity, self.exact = block, capacity, exact
        self.identify = identify
        self.chains: dict[tuple[int, int], ChainFound] = {}  # by positions and threads
        self._counts: Counter[str] = Counter()

    @property
    def mode(self) -> str:
        """`exact` or `enclosed`, or `exact where identified`."""
        if self.identify:
            return "exact where identified"
        return (spec.Mode.EXACT if self.exact is not None else spec.Mode.ENCLOSED).value

    @property
    def metadata_bytes(self) -> int:
        """Bytes beside the int8 codes."""
        return self.copy.metadata_bytes

    def exact_for(self, hidden: torch.Tensor) -> stages.Rescorer | None:
        """The stock arithmetic at this batch shape, if it is known and these states are within it."""
        if self.exact is not None or not self.identify:
            return self.exact
        key = (hidden.shape[0], torch.get_num_threads())
        if key not in self.chains:
            self.chains[key] = find_chain(self.weight, hidden.shape[0])
        return None if has_tiny(hidden) else self.chains[key].chain

    def identifications(self) -> dict[int, tuple[str | None, int]]:
        """By number of positions: the stock arithmetic found (or None), and on how many logits."""
        return {m: (str(f.chain) if f.chain else None, f.logits) for (m, _), f in self.chains.items()}

    def tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """Tokens, int64 [M]; counted."""
        decision = self.decide(hidden)
        self.count(decision)
        return decision.tokens

    def decide(self, hidden: torch.Tensor) -> Decision:
        """All stages for hidden, bfloat16 [M, K]."""
        positions = hidden.shape[0]
        exact = self.exact_for(hidden)
        limb = stages.limbs(hidden, self.copy.group, self.gamma_num, self.copy.code_norm)
        best, tops = stages.screen(self.copy, limb, self.block)
        threshold, pairs, reasons = stages.select(best, tops, limb.reasons, self.capacity)
        rows = stages.candidates(self.copy, limb, threshold, pairs, self.block)
        lo, hi, index, exists = stages.rescore(
            self.weight, hidden, pairs, self.block, gamma_num=self.gamma_num, exact=exact
        )
        tokens, fixed = stages.decide(lo, hi, index, exists, pairs, positions)
        undecided = (reasons == Reason.NONE) & ~fixed
        reasons = torch.where(undecided, torch.full_like(reasons, Reason.AMBIGUOUS), reasons)
        if not hidden.is_cuda and bool((reasons == Reason.NONFINITE).any()):
            # torch 2.11 on an AVX-512 CPU put a state's NaN into its neighbour's logits: the product of
            # such a batch obeys no model, so the stock head decides all of it
            reasons = torch.where(reasons == Reason.NONE, Reason.NONFINITE, reasons)
        decided = reasons == Reason.NONE
        if not bool(decided.all()):
            stock = torch.argmax(torch.matmul(hidden, self.weight.T), dim=-1)
            tokens = torch.where(decided, tokens, stock)
        state = State.EXACT if exact is not None else State.ENCLOSED
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
