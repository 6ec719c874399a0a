"""The Triton kernels with a plan for each batch shape: back end `cuda`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from certhead.pyref import head as spec

from .decision import REASON_NAMES, Decision, Reason, State
from .plan import Plan, make_plan, run_enclosed
from .quantize import QuantizedHead
from .torch_stages import Rescorer
from .triton_enclosed import EnclosedRescore
from .triton_head import MAX_POSITIONS, TritonPipeline


class TritonEngine:
    """Exact mode where the stock arithmetic was identified, else enclosed mode where its error model held.

    The stock head serves where neither may be used, and where it is faster.
    """

    exact: Rescorer | None = None

    def __init__(
        self,
        weight: torch.Tensor,
        copy: QuantizedHead,
        gamma_num: int,
        block: int,
        capacity: int = spec.CAPACITY,
        checksum: bool | None = None,
    ) -> None:
        self.weight, self.checksum = weight, checksum
        self.pipeline = TritonPipeline(weight, copy, gamma_num, block=block)
        self.enclosed = EnclosedRescore(self.pipeline, capacity)
        self.copy = self.pipeline.copy
        self.plans: dict[int, Plan] = {}
        self._stock = torch.zeros(len(Reason), dtype=torch.int64)
        self._enclosed = 0  # positions decided so

    @property
    def mode(self) -> str:
        """`exact`, or what serves where the arithmetic was not identified."""
        modes = {plan.mode for plan in self.plans.values() if plan.configuration is not None}
        return (spec.Mode.ENCLOSED if modes == {spec.Mode.ENCLOSED} else spec.Mode.EXACT).value

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
            with self.uncounted():
                self.plans[positions] = make_plan(self.pipeline, self.enclosed, positions, self.checksum)
        return self.plans[positions]

    @contextlib.contextmanager
    def uncounted(self) -> Iterator[None]:
        """Calls inside are no positions served: the counters come back as they were."""
        totals, stock, enclosed = self.pipeline.totals.clone(), self._stock.clone(), self._enclosed
        try:
            yield
        finally:
            self.pipeline.totals.copy_(totals)
            self._stock, self._enclosed = stock, enclosed

    def stock_reason(self, positions: int) -> Reason | None:
        """Why the stock head serves a call of this batch shape, or None where the kernels do."""
        if positions > MAX_POSITIONS:
            return Reason.REFUSED
        capturing = torch.cuda.is_current_stream_capturing()
        if positions not in self.plans and capturing:
            return Reason.UNIDENTIFIED
        plan = self.plan(positions)
        if plan.mode is None or (capturing and plan.mode is spec.Mode.ENCLOSED):
            return Reason.UNIDENTIFIED
        return Reason.SLOWER if plan.configuration is None else None

    def count_stock(self, reason: Reason, positions: int) -> None:
        """Count positions that the stock head served."""
        self._stock[reason] += positions

    def identifications(self) -> dict[int, tuple[str | None, int]]:
        """By number of positions: the stock arithmetic found (or None), and on how many logits."""
        found = {m: plan.identification for m, plan in self.plans.items()}
        return {m: ("fdpa(16, 25)" if f.identified else None, f.logits) for m, f in found.items()}

    def tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """Tokens, int64 [M]: a static buffer where the kernels serve in exact mode."""
        positions = hidden.shape[0]
        reason = self.stock_reason(positions)
        if reason is not None:
            if not torch.cuda.is_current_stream_capturing():  # a graph's owner counts its replays
                self.count_stock(reason, positions)
            return torch.argmax(torch.matmul(hidden, self.weight.T), dim=-1)
        plan = self.plans[positions]
        c = plan.configuration
        assert c is not None
        if plan.mode is spec.Mode.ENCLOSED:
            tokens, open_ = run_enclosed(self.pipeline, self.enclosed, hidden.contiguous(), c)
            self._enclosed += positions - open_
            return tokens
        return self.pipeline.run(hidden.contiguous(), c.tile, c.limb_count, checksum=c.checksum)

    def decide(self, hidden: torch.Tensor) -> Decision:
        """Tokens with states, reasons and blocks; single candidates are not told apart here."""
        positions = hidden.shape[0]
        reason = self.stock_reason(positions)
        tokens = self.tokens(hidden).clone()
        if reason is not None:
            reasons = torch.full((positions,), int(reason), dtype=torch.uint8, device=hidden.device)
            blocks = torch.zeros(positions, dtype=torch.int32, device=hidden.device)
        else:
            reasons = self.pipeline.reasons[:positions].clone()
            blocks = self.pipeline.counts[:positions].clone()
        plan = self.plans.get(positions)
        served = State.ENCLOSED if plan is not None and plan.mode is spec.Mode.ENCLOSED else State.EXACT
        states = torch.where(reasons == Reason.NONE, int(served), int(State.FALLBACK))
        return Decision(tokens, states.to(torch.uint8), reasons, None, blocks)

    def count(self, decision: Decision) -> None:
        """Nothing to add: the last kernel counts on the device, and stock calls count themselves."""

    def counters(self) -> dict[str, int]:
        """Positions so far, by state and by reason."""
        totals = self.pipeline.totals.cpu() + self._stock
        decided, everything = int(totals[Reason.NONE]), int(totals.sum())
        out = {"positions": everything, "exact": decided - self._enclosed}
        if self._enclosed:
            out["enclosed"] = self._enclosed
        out["fallback"] = everything - decided
        out |= {str(REASON_NAMES[r]): int(totals[r]) for r in Reason if r and int(totals[r])}
        return out
