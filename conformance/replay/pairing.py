"""Two evidence files compared: each of the worker's samples with the verifier's scores of the same path.

The files are read side by side, so memory holds the samples that one file is ahead of the other (none, where
both are in one order) and the few bytes a position that `metrics.Accumulator` keeps.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from ..errors import BadInput
from .metrics import Accumulator, TokenMetrics, compare
from .record import BadLine, Reader
from .summary import Convention, Summary
from .trace import Sample, Variant
from .verdict import Outcome, Verdict

See = Callable[
    [Sample, Sample, TokenMetrics], None
]  # worker's and verifier's sample, and what they differ by


@dataclass(frozen=True)
class Judged:
    """One sample's metrics."""

    sample_id: str
    summary: Summary


@dataclass(frozen=True)
class Comparison:
    """What two files say of one another; every sample of the worker's is in exactly one of the lists."""

    worker: Variant
    verifier: Variant
    root: bytes | None  # of the worker's file, where its last line confirms it
    compared_topk: int
    summary: Summary  # all tokens pooled
    samples: list[Judged]
    bad: list[str]  # lines and paths that are not judged, in words: of the worker's file
    bad_scores: list[str]  # the same for the verifier's file
    unscored: list[str]  # sample_ids that the worker gave and the verifier did not
    unasked: list[str]  # the reverse

    @property
    def left_out(self) -> int:
        """Samples or lines of the worker's that no verdict covers."""
        return len(self.bad) + len(self.unscored)


def compare_files(
    worker: Path,
    verifier: Path,
    convention: Convention,
    compared_topk: int | None = None,
    see: See | None = None,
) -> Comparison:
    """Compare a worker's file with a verifier's, sample by sample.

    A path that comes again under another sample_id is left out: it would count as evidence twice.
    `compared_topk` is by default the smaller of the two promised numbers of entries. `see` is called with
    each pair. Raises BadInput for files that cannot be compared: a wrong header, or two tokenizers.
    """
    with Reader(worker) as ours, Reader(verifier, ours.variant.tokenizer_hash) as theirs:
        topk = compared_topk or min(ours.variant.logprobs, theirs.variant.logprobs)
        bad: list[str] = []
        bad_scores: list[str] = []
        alone: tuple[dict[str, Sample], dict[str, Sample]] = ({}, {})
        total = Accumulator(convention)
        judged = []
        paths: dict[bytes, str] = {}
        for pair in _pairs(ours, theirs, alone, (bad, bad_scores)):
            try:
                _check_paths(*pair)
                _check_new(pair[0], paths)
                metrics = compare(pair[0].trace, pair[1].trace, convention, topk)
            except BadInput as problem:
                bad.append(f"sample {pair[0].sample_id!r}: {problem}")
                continue
            single = Accumulator(convention)
            single.add(metrics)
            total.add(metrics)
            judged.append(Judged(pair[0].sample_id, single.summary()))
            if see is not None:
                see(*pair, metrics)
        return Comparison(
            worker=ours.variant,
            verifier=theirs.variant,
            root=ours.root,
            compared_topk=topk,
            summary=total.summary(),
            samples=judged,
            bad=bad,
            bad_scores=bad_scores,
            unscored=list(alone[0]),
            unasked=list(alone[1]),
        )


def withhold(verdict: Verdict, found: Comparison) -> Verdict:
    """The verdict, unless it would pass a batch of which a part was not judged."""
    if verdict.outcome is not Outcome.PASS or not found.left_out:
        return verdict
    reason = f"{found.left_out} of the worker's samples could not be judged; the others would pass"
    return replace(verdict, outcome=Outcome.INCONCLUSIVE, decided_by=(), reasons=(reason,))


def _pairs(
    ours: Reader,
    theirs: Reader,
    alone: tuple[dict[str, Sample], dict[str, Sample]],
    bad: tuple[list[str], list[str]],
) -> Iterator[tuple[Sample, Sample]]:
    """The pairs, in the order in which their second halves come; what stays in `alone` has none."""
    for items in zip_longest(ours, theirs):
        for side, item in enumerate(items):
            if isinstance(item, BadLine):
                bad[side].append(str(item))
            elif item is not None:
                alone[side][item.sample_id] = item
        for item in items:
            if isinstance(item, Sample) and all(item.sample_id in waiting for waiting in alone):
                yield alone[0].pop(item.sample_id), alone[1].pop(item.sample_id)


def _check_paths(worker: Sample, verifier: Sample) -> None:
    for name in ("input_ids", "output_ids"):
        if getattr(worker, name) != getattr(verifier, name):
            raise BadInput(f"the verifier scored other {name}")


def _check_new(sample: Sample, paths: dict[bytes, str]) -> None:
    """Raise BadInput for a path that an earlier sample has; `paths` maps those seen to their sample_ids."""
    path = hashlib.sha256(f"{sample.input_ids} {sample.output_ids}".encode()).digest()
    first = paths.setdefault(path, sample.sample_id)
    if first != sample.sample_id:
        raise BadInput(f"the same path as sample {first!r}")
