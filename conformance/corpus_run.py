"""The corpus through every driver that runs here, as a part of `certhead conform`; and what it shows.

Each driver is a program of its own, several at a time. Lean runs the cases that fit the time: its
reference is a proof assistant's interpreter, and the largest heads take it minutes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .cases import CASE_STAGES, CORPUS, STAGES, Case, corpus_hash, read_corpus
from .compare import DIFFERS, FAILED, NOT_OFFERED, Comparison, Seen, run_all
from .drivers.base import Driver
from .drivers.external import TIMEOUT, ExternalDriver
from .drivers.registry import available, make
from .lean import reference_is_built
from .resume import Unfinished

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "external_head.py"
LEAN_WORK = 2000  # weights times positions of a head, up to which Lean answers within a second or so
SPLIT = "interpret"  # the slowest driver: its cases are dealt to as many programs as there are cores
SLOWEST = 5  # cases that are shown
SHOWN = 3  # failures of a driver that are shown


@dataclass
class Cell:
    """What one driver did with the cases of one stage or family."""

    cases: int = 0
    values: int = 0
    differing: int = 0
    failed: int = 0

    def add(self, seen: Seen) -> None:
        """Counts one case that the driver offers."""
        self.cases += 1
        self.values += sum(seen.compared.values())
        self.differing += seen.status == DIFFERS
        self.failed += seen.status == FAILED

    @property
    def wrong(self) -> int:
        """Cases that differ or have no answer."""
        return self.differing + self.failed


@dataclass(frozen=True)
class Line:
    """One line of the matrix: a stage as a whole (`family` is None) or one of its families, by driver."""

    stage: str
    family: str | None
    total: int  # cases that the corpus has there
    cells: dict[str, Cell] = field(default_factory=dict)  # none where the driver offers no case


@dataclass(frozen=True)
class CorpusRun:
    """What came of the corpus."""

    sha256: str
    cases: int
    comparisons: Sequence[Comparison]
    left_out: dict[str, int]  # by driver: cases not given to it, to keep the time
    seconds: float
    places: Sequence[tuple[str, str]]  # stage and family of every case

    @property
    def passed(self) -> bool:
        """Whether every driver has the wanted bits in every case that it was given."""
        return bool(self.comparisons) and all(c.passed for c in self.comparisons)

    @property
    def values(self) -> int:
        """Values compared, over all drivers."""
        return sum(sum(c.compared.values()) for c in self.comparisons)

    @property
    def differing(self) -> int:
        """Cases that differ or have no answer, over all drivers."""
        return sum(len(c.differences) + len(c.failures) for c in self.comparisons)

    def failures(self) -> list[str]:
        """The first differing stages and missing answers of each driver, with the command that repeats."""
        lines = []
        for c in self.comparisons:
            found = [*map(str, c.differences), *c.failures]
            lines += [f"corpus, {line}" for line in found[:SHOWN]]
            if len(found) > SHOWN:
                lines.append(f"corpus, {c.driver}: {len(found) - SHOWN} more")
            if not found and not c.passed:
                lines.append(f"corpus, {c.driver}: nothing was compared")
        return lines

    def matrix(self) -> list[Line]:
        """Stages in pipeline order, each followed by its families."""
        lines: list[Line] = []
        for stage in CASE_STAGES:
            families = [f for s, f in self.places if s == stage]
            for family in (None, *dict.fromkeys(families)):
                total = len(families) if family is None else families.count(family)
                if total:
                    lines.append(Line(stage, family, total, self._cells(stage, family)))
        return lines

    def _cells(self, stage: str, family: str | None) -> dict[str, Cell]:
        cells: dict[str, Cell] = {}
        for c in self.comparisons:
            for seen in c.seen:
                if seen.stage == stage and family in (None, seen.family) and seen.status != NOT_OFFERED:
                    cells.setdefault(c.driver, Cell()).add(seen)
        return cells

    def slowest(self) -> list[tuple[str, str, float]]:
        """(driver, case, seconds), the slowest first."""
        every = [(c.driver, s.case, s.seconds) for c in self.comparisons for s in c.seen]
        return sorted(every, key=lambda found: -found[2])[:SLOWEST]

    def to_json(self) -> dict[str, Any]:
        """For `certhead conform --json`."""
        return {
            "sha256": self.sha256,
            "cases": self.cases,
            "differing": self.differing,
            "seconds": round(self.seconds, 2),
            "left_out": self.left_out,
            "drivers": [c.to_json() for c in self.comparisons],
            "matrix": [
                {
                    "stage": line.stage,
                    "family": line.family,
                    "cases": line.total,
                    "drivers": {name: vars(cell) for name, cell in line.cells.items()},
                }
                for line in self.matrix()
            ],
            "slowest": [
                {"driver": driver, "case": case, "seconds": round(seconds, 3)}
                for driver, case, seconds in self.slowest()
            ],
        }


def drivers_here() -> list[Driver]:
    """Every driver that runs here without building anything first, the slowest first."""
    names = sorted(available(), key=lambda name: name != SPLIT)
    drivers = [make(name) for name in names]
    if reference_is_built():
        drivers.insert(1, make("lean"))
    if EXAMPLE.is_file():
        # named by the command that a person would give, which is shorter
        name = f"external:python {EXAMPLE.parent.name}/{EXAMPLE.name}"
        drivers.append(ExternalDriver([sys.executable, str(EXAMPLE)], name=name))
    return drivers


def fits_lean(case: Case) -> bool:
    """Whether Lean answers the case in about a second."""
    if case.stage != "head":
        return True
    given = case.given
    return sum(map(len, given["weight"])) // 4 * len(given["hidden"]) <= LEAN_WORK


def tasks_of(
    drivers: Sequence[Driver], cases: Sequence[Case], jobs: int, timeout: float = TIMEOUT
) -> list[tuple[Driver, Sequence[Case]]]:
    """The cases of each driver; those of the slowest dealt to several programs."""
    tasks: list[tuple[Driver, Sequence[Case]]] = []
    for driver in drivers:
        parts = jobs if driver.name == SPLIT else 1
        for n in range(parts):
            tasks.append((driver if n == 0 else make(driver.name, timeout), cases[n::parts]))
    return tasks


def expected_cases(folder: Path = CORPUS) -> int:
    """How many times a case will be counted as done, over all drivers."""
    return len(read_corpus(folder)) * len(drivers_here())


def run_corpus(
    jobs: int, done: Callable[[int], None], unfinished: Unfinished | None = None, folder: Path = CORPUS
) -> CorpusRun:
    """The committed corpus through `drivers_here`. Raises BadInput for a corpus that is not whole."""
    cases = read_corpus(folder)
    start = time.perf_counter()
    tasks: list[tuple[Driver, Sequence[Case]]] = []
    left_out = {}
    for driver in drivers_here():
        chosen = [c for c in cases if driver.name != "lean" or fits_lean(c)]
        if len(chosen) < len(cases):
            left_out[driver.name] = len(cases) - len(chosen)
            done(len(cases) - len(chosen))
        tasks += tasks_of([driver], chosen, jobs)
    comparisons = sorted(run_all(tasks, jobs, unfinished, done), key=_place)
    places = [(c.stage, c.family) for c in cases]
    return CorpusRun(
        corpus_hash(cases), len(cases), comparisons, left_out, time.perf_counter() - start, places
    )


def _place(comparison: Comparison) -> int:
    """Where a driver stands in tables: the reference first, other people's programs last."""
    order = ("pyref", "lean", "torch", "interpret", "cuda")
    return order.index(comparison.driver) if comparison.driver in order else len(order)


def values_by_stage(comparison: Comparison) -> str:
    """E.g. `quantize 36,420, limbs 7,812`."""
    counts = [f"{stage} {comparison.compared[stage]:,}" for stage in STAGES if comparison.compared[stage]]
    return ", ".join(counts) or "none"
