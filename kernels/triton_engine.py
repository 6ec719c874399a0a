"""The Triton kernels with a plan for each batch shape: back end `cuda`."""

from __future__ import annotations

import torch
from certhead.pyref import head as spec

from .decision import REASON_NAMES, Decision, Reason, State
from .plan import Plan, make_plan
from .quantize import QuantizedHead
from .torch_stages import Rescorer
from .triton_head import MAX_POSITIONS, TritonPipeline


class TritonEngine:
    """Exact mode where the stock arithmetic was identified and the kernels are faster; else stock."""

    exact: Rescorer | None = None

    def __init__(
        self,
        weight: torch.Tensor,
        copy: QuantizedHead,
        gamma_num: int,
        block: int,
        checksum: bool | None = None,
    ) -> None:
        self.weight, self.checksum = weight, checksum
        self.pipeline = TritonPipeline(weight, copy, gamma_num, block=block)
        self.copy = self.pipeline.copy
        self.plans: dict[int, Plan] = {}
        self._stock = torch.zeros(len(Reason), dtype=torch.int64)

    @property
    def mode(self) -> str:
        """Candidates are rescored exactly or not at all."""
        return spec.Mode.EXACT.value

    @property
    def metadata_bytes(self) -> int:
        """Bytes beside the int8 codes."""
        return self.pipeline.metadata_bytes

    def exact_for(self, hidden: torch.Tensor) -> Rescorer | None:
        """None: the kernels re-score."""
        return None

    def plan(self, positions: int) -> Plan:
        """The plan for a batch shape, made on first use. Waits for the device."""
        if positions not in self.plans:
            self.plans[positions] = make_plan(self.pipeline, positions, self.checksum)
        return self.plans[positions]

    def _stock_reason(self, positions: int) -> Reason | None:
        """Why the stock head serves this call, or None where the kernels do."""
        if positions > MAX_POSITIONS:
            return Reason.REFUSED
        if positions not in self.plans and torch.cuda.is_current_stream_capturing():
            return Reason.UNIDENTIFIED
        plan = self.plan(positions)
        if plan.configuration is not None:
            return None
        return Reason.SLOWER if plan.identification.identified else Reason.UNIDENTIFIED

    def identifications(self) -> dict[int, tuple[str | None, int]]:
        """By number of positions: the stock arithmetic found (or None), and on how many logits."""
        found = {m: plan.identification for m, plan in self.plans.items()}
        return {m: ("fdpa(16, 25)" if f.identified else None, f.logits) for m, f in found.items()}

    def tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """Tokens, int64 [M]: a static buffer where the kernels serve."""
        reason = self._stock_reason(hidden.shape[0])
        if reason is not None:
            self._stock[reason] += hidden.shape[0]
            return torch.argmax(torch.matmul(hidden, self.weight.T), dim=-1)
        c = self.plans[hidden.shape[0]].configuration
        assert c is not None
        return self.pipeline.run(hidden.contiguous(), c.tile, c.limb_count, checksum=c.checksum)

    def decide(self, hidden: torch.Tensor) -> Decision:
        """Tokens with states, reasons and blocks; single candidates are not told apart here."""
        positions = hidden.shape[0]
        reason = self._stock_reason(positions)
        tokens = self.tokens(hidden).clone()
        if reason is not None:
            reasons = torch.full((positions,), int(reason), dtype=torch.uint8, device=hidden.device)
            blocks = torch.zeros(positions, dtype=torch.int32, device=hidden.device)
        else:
            reasons = self.pipeline.reasons[:positions].clone()
            blocks = self.pipeline.counts[:positions].clone()
        states = torch.where(reasons == Reason.NONE, int(State.EXACT), int(State.FALLBACK))
        return Decision(tokens, states.to(torch.uint8), reasons, None, blocks)

    def count(self, decision: Decision) -> None:
        """Nothing to add: the last kernel counts on the device, and stock calls count themselves."""

    def counters(self) -> dict[str, int]:
        """Positions so far, by state and by reason."""
        totals = self.pipeline.totals.cpu() + self._stock
        out = {"positions": int(totals.sum()), "exact": int(totals[Reason.NONE])}
        out["fallback"] = out["positions"] - out["exact"]
        out |= {str(REASON_NAMES[r]): int(totals[r]) for r in Reason if r and int(totals[r])}
        return out
