"""Trying to break a model: emulated chains to compare with, and the smallest inputs that still differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from certhead.pyref.fdpa_vector import fdpa_chain_vector
from certhead.pyref.formats import BF16, Format

from .distributions import ChainTask, Codes32, chain_inputs


def emulated_chains(task: ChainTask, fmt: Format = BF16) -> Codes32:
    """The FP32 codes [positions, rows] that a chain of `fdpa` steps gives for a task's inputs."""
    h, w = chain_inputs(task, fmt)
    return fdpa_chain_vector(h, w, inputs=fmt)


def minimise(
    differs: Callable[[Sequence[int]], bool],
    columns: Sequence[int],
    *,
    limit: int = 2000,
    seconds: float = float("inf"),
) -> list[int]:
    """A subset of `columns` for which `differs` still holds and no single one can be left out.

    Delta debugging (Zeller, Hildebrandt, IEEE TSE 2002): complements of ever smaller parts are tried.
    After `limit` trials or `seconds` the smallest set so far is returned. `differs` must hold for `columns`
    itself; raises `ValueError` otherwise.
    """
    kept = list(columns)
    trials, began = 0, monotonic()
    if not differs(kept):
        raise ValueError("the inputs do not differ to begin with")
    parts = 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        for start in range(0, len(kept), size):
            rest = kept[:start] + kept[start + size :]
            trials += 1
            if trials > limit or monotonic() - began > seconds:
                return kept
            if rest and differs(rest):
                kept, parts = rest, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(kept))
    return kept
