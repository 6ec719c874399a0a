"""One batch shape of a head as a CUDA graph: what a serving loop replays for each decode step."""

from __future__ import annotations

import torch

from .head import CertifiedHead
from .triton_engine import TritonEngine


class GraphedHead:
    """A head on the back end `cuda`, captured for M positions with static buffers.

    Fill `hidden` (bfloat16 [M, K]) and call `replay`, or call with the states to have them copied in. The
    returned tokens, int64 [M], are a static buffer that the next replay overwrites. What serves is what the
    head's plan for this M says; where that is enclosed mode, which must ask the device, the graph holds
    the stock head.

    Raises ValueError for a head on another back end, or M < 1.
    """

    def __init__(self, head: CertifiedHead, positions: int) -> None:
        engine = head.engine
        if not isinstance(engine, TritonEngine):
            raise ValueError(f"a CUDA graph needs a head on back end 'cuda', not {head.backend!r}")
        if positions < 1:
            raise ValueError(f"positions={positions} must be at least 1")
        self.head, self.engine, self.positions = head, engine, positions
        weight = head.weight
        self.hidden = torch.zeros((positions, weight.shape[1]), dtype=torch.bfloat16, device=weight.device)
        stream = torch.cuda.Stream(weight.device)
        stream.wait_stream(torch.cuda.current_stream(weight.device))
        self.graph = torch.cuda.CUDAGraph()
        with torch.no_grad(), torch.cuda.stream(stream), engine.uncounted():
            head(self.hidden)  # the plan, and every compilation, before the capture
            head(self.hidden)
            with torch.cuda.graph(self.graph, stream=stream):
                self._reason = engine.stock_reason(positions)
                self.tokens = head(self.hidden)
        torch.cuda.current_stream(weight.device).wait_stream(stream)

    def replay(self) -> torch.Tensor:
        """Tokens for what `hidden` holds."""
        self.graph.replay()
        if self._reason is not None:
            self.engine.count_stock(self._reason, self.positions)
        return self.tokens

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        """Tokens for these states; raises what the head raises for a wrong dtype or shape."""
        self.head.check_call(hidden)
        if hidden.shape[0] != self.positions:
            raise ValueError(
                f"hidden has {hidden.shape[0]} positions, the graph was captured for {self.positions}"
            )
        self.hidden.copy_(hidden)
        return self.replay()
