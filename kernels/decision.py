"""What a decision is: a token, the state that it was reached in, and why.

The codes are small integers because they live in device tensors; `State` and `Reason` name them.
Source: docs/spec.md, "decide" and "fallback".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch


class State(IntEnum):
    """How a position's token was decided."""

    EXACT = 0  # the candidates' stock accumulators were reproduced bit for bit
    ENCLOSED = 1  # every accumulator that the error model admits gives this token
    FALLBACK = 2  # the stock head decided (docs/spec.md says how on each back end)


class Reason(IntEnum):
    """Why a position fell back to the stock head."""

    NONE = 0
    NONFINITE = 1
    REFUSED = 2
    OVERFLOW = 3
    AMBIGUOUS = 4
    UNIDENTIFIED = 5
    CHECKSUM = 6
    SLOWER = 7  # the stock head is faster at this batch shape


REASON_NAMES: tuple[str | None, ...] = tuple(None if r is Reason.NONE else r.name.lower() for r in Reason)
"""The names that reports and pyref use, by code."""


@dataclass(frozen=True)
class Decision:
    """The decisions of one call; every tensor has shape [M] and lives on the head's device."""

    tokens: torch.Tensor  # int64
    states: torch.Tensor  # uint8, values of State
    reasons: torch.Tensor  # uint8, values of Reason
    candidates: torch.Tensor | None  # int32, rows whose rounded upper end reaches the threshold
    blocks: torch.Tensor  # int32, blocks that were rescored

    def counts(self) -> dict[str, int]:
        """Counters by state and by reason, e.g. `{"enclosed": 63, "fallback": 1, "ambiguous": 1}`."""
        out: dict[str, int] = {}
        for state in State:
            out[state.name.lower()] = int((self.states == state).sum())
        for reason in Reason:
            n = int((self.reasons == reason).sum())
            if reason is not Reason.NONE and n:
                out[reason.name.lower()] = n
        return out
