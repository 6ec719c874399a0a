"""What two evidence files say beside statistics: bits of the logits, and contradictions in the worker's own.

Three questions, each exact where it applies:
- Are the BF16 logits that `grid` recovers from both sides equal, up to one shift a position? That can be
  expected on the same device and engine, at the same batch shape, alone.
- Is a greedy worker's token the first maximum of the worker's own logits?
- Is each token among those that the worker's sampling could choose at all, by the worker's own numbers? A
  greedy worker's rank is 1, and one that samples from the k most likely has rank k at most. Text that a cheap
  model wrote, with evidence from one prefill of the right model, breaks this (the defence that the
  document's public code names: rank ≤ k at every position).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .grid import HISTOGRAM, GreedyCheck, GridComparison, compare_grids, greedy_by_lists, recover
from .trace import Sample, Sampling, Trace
from .verdict import Finding, Outcome, Relation, Verdict


def rank_bound(sampling: Sampling) -> int | None:
    """The highest rank that a worker can choose, its own ties apart; None where any token is possible."""
    if sampling.temperature == 0:
        return 1
    return sampling.top_k or None


@dataclass
class ExactCheck:
    """Counts over pairs of samples; give `see` to `compare_files`."""

    sampling: Sampling  # the worker's
    bits: GridComparison | None = None
    greedy: GreedyCheck | None = None  # of the worker's lists, where it claims to be greedy
    positions: int = 0
    beyond_bound: int = 0  # positions where the worker lists as many tokens above the chosen one as the bound
    samples: int = 0
    samples_beyond_bound: int = 0  # samples with such a position

    def see(self, worker: Sample, verifier: Sample) -> None:
        """Count one pair."""
        grid = recover(worker.trace)
        bits = compare_grids(grid, recover(verifier.trace))
        self.bits = bits if self.bits is None else self.bits + bits
        self.positions += len(worker.trace)
        self.samples += 1
        if self.sampling.temperature == 0:
            greedy = greedy_by_lists(worker.trace, grid)
            self.greedy = greedy if self.greedy is None else self.greedy + greedy
        bound = rank_bound(self.sampling)
        if bound is not None:
            beyond = int((_listed_above(worker.trace) >= bound).sum())
            self.beyond_bound += beyond
            self.samples_beyond_bound += beyond > 0

    def overrule(self, verdict: Verdict) -> Verdict:
        """REJECT where the worker's evidence contradicts its sampling, whatever the metrics say."""
        if not self.beyond_bound:
            return verdict
        share = Fraction(self.beyond_bound, self.positions)
        finding = Finding("worker_rank_beyond_bound", share, Relation.ABOVE, Fraction(0))
        decided = verdict.decided_by if verdict.outcome is Outcome.REJECT else ()
        return Verdict(Outcome.REJECT, verdict.preset, verdict.convention, (finding, *decided))

    def to_json(self) -> dict[str, Any]:
        """The counts; null for questions that do not apply."""
        bound = rank_bound(self.sampling)
        return {
            "positions": self.positions,
            "samples": self.samples,
            "rank_bound": bound,
            "beyond_bound": None if bound is None else self.beyond_bound,
            "samples_beyond_bound": None if bound is None else self.samples_beyond_bound,
            "greedy": None if self.greedy is None else vars(self.greedy),
            "bits": None if self.bits is None else _bits_json(self.bits),
        }

    def lines(self) -> list[str]:
        """The counts in words."""
        lines = []
        if self.bits is not None and self.bits.equal_share is not None:
            lines.append(
                f"BF16 logits recovered on both sides: {self.bits.logits:,} compared, "
                f"{float(self.bits.equal_share):.4%} bit-equal up to a shift a position"
            )
        elif self.bits is not None:
            lines.append("BF16 logits: none could be recovered on both sides")
        if self.greedy is not None:
            lines.append(
                f"greedy identity of the worker's own lists: {self.greedy.identical:,} of "
                f"{self.greedy.positions:,} tokens are the first maximum, {self.greedy.different:,} are not, "
                f"{self.greedy.undetermined:,} undetermined"
            )
        if (bound := rank_bound(self.sampling)) is not None:
            lines.append(
                f"rank {bound} at most, which the worker's sampling implies: broken by its own evidence at "
                f"{self.beyond_bound:,} of {self.positions:,} positions"
            )
        return lines


def _listed_above(trace: Trace) -> NDArray[np.int64]:
    """How many listed tokens are more likely than the chosen one, [D]; 0 where that is missing.

    Counted in the list and not taken from the stated rank, which counts ties.
    """
    above: NDArray[np.int64] = (trace.top_logprobs > trace.logprobs[:, None]).sum(axis=1)
    return above


def _bits_json(bits: GridComparison) -> dict[str, Any]:
    return {
        "positions": bits.positions,
        "compared": bits.compared,
        "identified": bits.identified,
        "worker": {status.name.lower(): count for status, count in bits.worker.items()},
        "verifier": {status.name.lower(): count for status, count in bits.verifier.items()},
        "logits": bits.logits,
        "equal": bits.equal,
        "whole_equal": bits.whole_equal,
        "ulps": [
            {"first": first, "last": last, "logits": count}
            for (first, last), count in zip(HISTOGRAM, bits.histogram, strict=True)
        ],
    }
