"""Comparison: equality of bits, stage by stage; the first stage that differs is the report."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .cases import FIELDS, STAGES, Answer, Case, Fields
from .drivers.base import Driver, Result, Unsupported


@dataclass(frozen=True)
class Difference:
    """The first stage of a case in which a driver's bits are not the wanted ones."""

    driver: str
    case: str
    stage: str
    field: str
    item: int
    element: int
    got: str
    want: str

    def __str__(self) -> str:
        place = f"{self.stage}.{self.field}[{self.item}]"
        place += f" element {self.element}" if self.element >= 0 else ""
        return f"{self.driver}: {self.case}: {place}: got {self.got}, want {self.want}; repeat: {self.repeat}"

    @property
    def repeat(self) -> str:
        """The command that runs this case alone."""
        return f"certhead cases --driver '{self.driver}' --case {self.case}"


@dataclass
class Comparison:
    """What came of one driver's run over the cases."""

    driver: str
    cases: int = 0
    skipped: int = 0
    compared: Counter[str] = field(default_factory=Counter)  # values by stage
    differences: list[Difference] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # one line for each case without a usable answer
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether something was compared, nothing differed, and every answer came."""
        return bool(self.compared) and not self.differences and not self.failures

    def to_json(self) -> dict[str, Any]:
        """For reports."""
        return {
            "driver": self.driver,
            "cases": self.cases,
            "skipped": self.skipped,
            "compared": dict(self.compared),
            "differences": [vars(d) | {"repeat": d.repeat} for d in self.differences],
            "failures": self.failures,
            "seconds": round(self.seconds, 3),
        }


def run(driver: Driver, cases: Sequence[Case]) -> Comparison:
    """All cases through one driver. Nothing that a driver does ends the run."""
    outcome = Comparison(driver.name)
    start = time.perf_counter()
    results = iter(driver.results(cases))
    for case in cases:
        try:
            result: Result = next(results)
        except StopIteration:
            outcome.failures.append(f"{driver.name}: {case.id}: no answer, nor to the cases after it")
            break
        except Exception as problem:
            outcome.failures.append(f"{driver.name}: {case.id}: {_line(problem)}; the rest was not run")
            break
        take(outcome, case, result)
    outcome.seconds = time.perf_counter() - start
    with contextlib.suppress(OSError):
        driver.close()
    return outcome


def take(outcome: Comparison, case: Case, result: Result) -> None:
    """Adds the result of one case."""
    if isinstance(result, Unsupported):
        outcome.skipped += 1
        return
    outcome.cases += 1
    if isinstance(result, Exception):
        outcome.failures.append(f"{outcome.driver}: {case.id}: {_line(result)}")
        return
    compared: Counter[str] = Counter()
    try:
        difference = first_difference(outcome.driver, case, result, compared)
    except (TypeError, ValueError, AttributeError) as problem:
        outcome.failures.append(f"{outcome.driver}: {case.id}: malformed answer: {_line(problem)}")
        return
    outcome.compared += compared
    if difference:
        outcome.differences.append(difference)
    elif not compared:
        outcome.failures.append(f"{outcome.driver}: {case.id}: the answer holds nothing to compare")


def first_difference(driver: str, case: Case, answer: Answer, compared: Counter[str]) -> Difference | None:
    """The first difference in pipeline order; `compared` counts the values that were looked at."""
    for stage in STAGES:
        want, got = case.want.get(stage, {}), answer.get(stage, {})
        for name in want:
            if name in got:
                found = _first_in_field(driver, case.id, stage, name, want, got, compared)
                if found:
                    return found
    return None


def _first_in_field(
    driver: str, case: str, stage: str, name: str, wanted: Fields, got: Fields, compared: Counter[str]
) -> Difference | None:
    want, have = wanted[name], got[name]
    if len(want) != len(have):
        return Difference(driver, case, stage, name, 0, -1, f"{len(have)} items", f"{len(want)} items")
    digits = FIELDS[name][0] if name in FIELDS else 1
    for item, (w, g) in enumerate(zip(want, have, strict=True)):
        if not w or g is None:  # unspecified, or not said
            continue
        compared[stage] += 1 if name not in FIELDS or w == "none" else max(1, len(w) // digits)
        if w == g:
            continue
        if name not in FIELDS or len(w) != len(g) or "none" in (w, g):
            return Difference(driver, case, stage, name, item, -1, g, w)
        at = next(i for i in range(0, len(w), digits) if w[i : i + digits] != g[i : i + digits])
        where = slice(at, at + digits)
        return Difference(driver, case, stage, name, item, at // digits, f"0x{g[where]}", f"0x{w[where]}")
    return None


def tokens_differ(case: Case, tokens: Sequence[str | None]) -> bool:
    """Whether the tokens that the head returns, all that a user sees, already tell the driver wrong."""
    want = case.want["token"]["token"]
    return any(g is not None and w and g != w for w, g in zip(want, tokens, strict=True))


def _line(problem: Exception) -> str:
    text = " ".join(str(problem).split()) or type(problem).__name__
    return f"{type(problem).__name__}: {text[:300]}"
