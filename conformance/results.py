"""What a conformance run found, as data: the table, the report and the JSON file are views of it."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from .corpus_run import CorpusRun
from .history import MutantsRecord
from .stages import StageResult

SCHEMA = "certhead.conform/1"


@dataclass(frozen=True)
class Candidates:
    """How many rows survived the screen, over the positions that were rescored."""

    mean: float
    p50: int
    p99: int
    max: int

    @staticmethod
    def of(counts: npt.NDArray[np.int64]) -> Candidates | None:
        """None when no position was rescored. Percentiles are by nearest rank, so they are counts."""
        if counts.size == 0:
            return None
        p50, p99 = (int(np.percentile(counts, q, method="inverted_cdf")) for q in (50, 99))
        return Candidates(float(counts.mean()), p50, p99, int(counts.max()))


@dataclass(frozen=True)
class Run:
    """One head at one batch shape: the certified tokens against the stock tokens."""

    source: str
    kind: str  # "model" or "synthetic"
    batch_size: int
    positions: int
    states: dict[str, int]  # exact, enclosed, fallback
    reasons: dict[str, int]  # of the fallbacks
    candidate_counts: npt.NDArray[np.int64]  # of the positions that were rescored
    disagreements: int
    first: str | None  # the first disagreement, in bits
    stock_seconds: float
    certified_seconds: float

    @property
    def candidates(self) -> Candidates | None:
        """Summary of `candidate_counts`."""
        return Candidates.of(self.candidate_counts)

    def plus(self, other: Run) -> Run:
        """This run and the next piece of it, of the same head at the same batch shape, as one."""
        return replace(
            self,
            positions=self.positions + other.positions,
            states={name: n + other.states[name] for name, n in self.states.items()},
            reasons=dict(Counter(self.reasons) + Counter(other.reasons)),
            candidate_counts=np.concatenate([self.candidate_counts, other.candidate_counts]),
            disagreements=self.disagreements + other.disagreements,
            first=self.first or other.first,
            stock_seconds=self.stock_seconds + other.stock_seconds,
            certified_seconds=self.certified_seconds + other.certified_seconds,
        )


@dataclass(frozen=True)
class StockCheck:
    """The tested assumption: every stock logit lies where the error model says it can."""

    source: str
    batch_size: int
    positions: int
    logits: int
    violations: int
    first: str | None


@dataclass(frozen=True)
class SourceStages:
    """The comparison with pyref, stage by stage, for one head."""

    source: str
    results: tuple[StageResult, ...]


@dataclass(frozen=True)
class Margins:
    """Half-width of the winning row's interval beside the gap of the two largest stock logits."""

    source: str
    gaps: npt.NDArray[np.float64]
    half_widths: npt.NDArray[np.float64]


@dataclass(frozen=True)
class HeadFacts:
    """What the certified head of the first source is made of."""

    source: str
    vocabulary: int
    columns: int
    mode: str
    identified: dict[int, tuple[str | None, int]]  # by batch shape: stock arithmetic, logits compared
    error_model: str
    gamma: float
    copy_bytes: int
    metadata_bytes: int


@dataclass(frozen=True)
class ModelFacts:
    """The real model and the capture of it."""

    name: str
    positions: int
    prompts: int
    kinds: tuple[str, ...]
    capture_key: str
    cached: bool


@dataclass(frozen=True)
class Outcome:
    """Everything that one `certhead conform` found."""

    seed: int
    device: str
    device_name: str
    versions: dict[str, str]
    head: HeadFacts
    model: ModelFacts | None
    runs: Sequence[Run]
    stock: Sequence[StockCheck]
    stages: Sequence[SourceStages]
    margins: Margins
    corpus: CorpusRun | None  # None where it was left out
    mutants: MutantsRecord | None  # of the last full run of `certhead mutants`, if there is one
    earlier: Sequence[dict[str, Any]]  # summaries of earlier runs with the same options, the oldest first
    resumed: int  # pieces that an interrupted run had finished
    kind: str  # names the options: runs of one kind may be compared
    sources_hash: str
    audit: str | None = None  # the audit's verdict about this CPU's product, in a line
    timings: dict[str, float] = field(default_factory=dict)
    date: str = field(
        default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    )

    @property
    def positions(self) -> int:
        """Distinct head inputs, over all sources."""
        return sum({run.source: run.positions for run in self.runs}.values())

    @property
    def decisions(self) -> int:
        """Tokens compared: head inputs times batch shapes."""
        return sum(run.positions for run in self.runs)

    @property
    def disagreements(self) -> int:
        """Certified tokens that are not the stock token."""
        return sum(run.disagreements for run in self.runs)

    @property
    def differing(self) -> int:
        """Values that differ from pyref in some stage."""
        return sum(result.differing for source in self.stages for result in source.results)

    @property
    def violations(self) -> int:
        """Stock logits outside the error model."""
        return sum(check.violations for check in self.stock)

    @property
    def passed(self) -> bool:
        """No disagreement, no differing stage, no stock logit outside the model, every corpus case right."""
        right = self.corpus is None or self.corpus.passed
        return right and self.disagreements == self.differing == self.violations == 0

    @property
    def seconds(self) -> float:
        """Wall clock of all stages."""
        return sum(self.timings.values())

    def arithmetic(self) -> dict[str, list[int]]:
        """What the stock head's arithmetic was identified as, in words, with the batch shapes."""
        shapes: dict[str | None, list[int]] = {}
        for m, (name, _) in sorted(self.head.identified.items()):
            shapes.setdefault(name, []).append(m)
        return {self._in_words(name, sizes): sizes for name, sizes in shapes.items()}

    def _in_words(self, name: str | None, sizes: Sequence[int]) -> str:
        if name is None:
            return "not identified"
        least = min(self.head.identified[m][1] for m in sizes)
        return f"{name}, compared on at least {least:,} logits each"

    def select(self, kind: str) -> list[Run]:
        """The runs of the real model, or of the synthetic heads."""
        return [run for run in self.runs if run.kind == kind]

    def failures(self) -> list[str]:
        """One line for each kind of failure at each place where it was first seen."""
        lines = [
            f"token, {run.source}, M={run.batch_size}: "
            f"{run.disagreements} of {run.positions}; first: {run.first}"
            for run in self.runs
            if run.disagreements
        ]
        lines += [
            f"stage {result.stage}, {source.source}: "
            f"{result.differing} of {result.compared}; first: {result.first}"
            for source in self.stages
            for result in source.results
            if result.differing
        ]
        lines += [
            f"stock model, {check.source}, M={check.batch_size}: "
            f"{check.violations} of {check.logits} logits; first: {check.first}"
            for check in self.stock
            if check.violations
        ]
        return lines + (self.corpus.failures() if self.corpus else [])

    def verdict(self) -> str:
        """The closing line."""
        counts = (
            f"{self.disagreements:,} disagreements in {self.decisions:,} decisions, "
            f"{self.differing:,} values that differ from pyref, "
            f"{self.violations:,} stock logits outside the error model"
        )
        if self.corpus:
            drivers = len(self.corpus.comparisons)
            counts += f", {self.corpus.differing:,} corpus cases wrong over {drivers} drivers"
        return f"{'PASS' if self.passed else 'FAIL'}: {counts}"

    def summary(self) -> dict[str, Any]:
        """What a later run is compared with."""
        return {
            "kind": self.kind,
            "date": self.date,
            "sources": self.sources_hash,
            "versions": self.versions,
            "device": self.device_name,
            "passed": self.passed,
            "positions": self.positions,
            "decisions": self.decisions,
            "fallbacks": sum(run.states["fallback"] for run in self.runs),
            "disagreements": self.disagreements,
            "cases": {c.driver: c.cases for c in self.corpus.comparisons} if self.corpus else {},
            "corpus": self.corpus.sha256 if self.corpus else None,
            "wrong_cases": self.corpus.differing if self.corpus else None,
            "mutants_killed": self.mutants.record["killed"] if self.mutants else None,
            "seconds": round(self.seconds, 1),
        }

    def changed(self) -> list[str]:
        """What differs from the run before, in words; empty if there was none or nothing does."""
        if not self.earlier:
            return []
        before, now = self.earlier[-1], self.summary()
        words = [f"{name} changed" for name in ("sources", "corpus", "device") if before[name] != now[name]]
        libraries = sorted(before["versions"].keys() | now["versions"].keys())
        for name in libraries:
            old, new = (run["versions"].get(name, "none") for run in (before, now))
            if old != new:
                words.append(f"{name} {old} → {new}")
        return words

    def to_json(self) -> dict[str, Any]:
        """The document that `--json` writes; keys are described in `cli.conform`."""
        return {
            "schema": SCHEMA,
            "passed": self.passed,
            "verdict": self.verdict(),
            "failures": self.failures(),
            "positions": self.positions,
            "decisions": self.decisions,
            "disagreements": self.disagreements,
            "states": states_by_shape(self.runs),
            "candidates": candidates_by_shape(self.runs),
            "model": self._model_json(),
            "head": vars(self.head),
            "runs": [_run_json(run) for run in self.runs],
            "stages": stage_totals(self.stages),
            "stock_model": {
                "logits": sum(check.logits for check in self.stock),
                "violations": self.violations,
                "checks": [vars(check) for check in self.stock],
            },
            "audit": self.audit,
            "corpus": self.corpus.to_json() if self.corpus else None,
            "mutants": self.mutants.to_json() if self.mutants else None,
            "earlier": list(self.earlier),
            "changed": self.changed(),
            "resumed": self.resumed,
            "date": self.date,
            "seed": self.seed,
            "device": {"type": self.device, "name": self.device_name},
            "versions": self.versions,
            "timings": {stage: round(seconds, 3) for stage, seconds in self.timings.items()},
        }

    def _model_json(self) -> dict[str, Any] | None:
        if self.model is None:
            return None
        runs = self.select("model")
        return {
            **vars(self.model),
            "disagreements": sum(run.disagreements for run in runs),
            "states": states_by_shape(runs),
            "candidates": candidates_by_shape(runs),
        }


def states_by_shape(runs: Sequence[Run]) -> dict[str, dict[str, int]]:
    """Counts of states, and of the reasons of fallbacks, per batch shape."""
    out: dict[str, dict[str, int]] = {}
    for run in runs:
        total = out.setdefault(str(run.batch_size), {})
        for name, count in (*run.states.items(), *run.reasons.items()):
            total[name] = total.get(name, 0) + count
    return out


def candidates_by_shape(runs: Sequence[Run]) -> dict[str, dict[str, float] | None]:
    """Summary of the candidate counts per batch shape; null where nothing was rescored."""
    out: dict[str, dict[str, float] | None] = {}
    for size in dict.fromkeys(run.batch_size for run in runs):
        counts = np.concatenate([run.candidate_counts for run in runs if run.batch_size == size])
        summary = Candidates.of(counts)
        out[str(size)] = None if summary is None else vars(summary)
    return out


def stage_totals(stages: Sequence[SourceStages]) -> list[dict[str, Any]]:
    """Compared and differing values per stage, over all sources, in pipeline order."""
    totals: dict[str, dict[str, Any]] = {}
    for source in stages:
        for result in source.results:
            total = totals.setdefault(
                result.stage, {"stage": result.stage, "compared": 0, "differing": 0, "first": None}
            )
            total["compared"] += result.compared
            total["differing"] += result.differing
            if total["first"] is None and result.first is not None:
                total["first"] = f"{source.source}, {result.first}"
    return list(totals.values())


def _run_json(run: Run) -> dict[str, Any]:
    return {
        "source": run.source,
        "kind": run.kind,
        "batch_size": run.batch_size,
        "positions": run.positions,
        "states": run.states,
        "reasons": run.reasons,
        "candidates": None if run.candidates is None else vars(run.candidates),
        "disagreements": run.disagreements,
        "first_disagreement": run.first,
        "stock_seconds": round(run.stock_seconds, 4),
        "certified_seconds": round(run.certified_seconds, 4),
    }
