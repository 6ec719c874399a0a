"""Comparison: equality of bits, stage by stage; the first stage that differs is the report."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from typing import Any

from .cases import FIELDS, STAGES, Answer, Case, Fields
from .drivers.base import Driver, Result, Unsupported
from .resume import Unfinished

EQUAL, DIFFERS, NOT_OFFERED, FAILED = "equal", "differs", "not offered", "failed"


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


@dataclass(frozen=True)
class Seen:
    """What came of one case with one driver."""

    case: str
    stage: str  # of the case
    family: str
    status: str  # EQUAL, DIFFERS, NOT_OFFERED or FAILED
    compared: Mapping[str, int] = field(default_factory=dict)  # values by stage
    difference: Difference | None = None
    failure: str | None = None
    seconds: float = 0.0


@dataclass
class Comparison:
    """What came of one driver's run over the cases."""

    driver: str
    seen: list[Seen] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)  # one line for each case without a usable answer
    seconds: float = 0.0
    resumed: int = 0  # cases that an interrupted run had finished

    def add(self, seen: Seen) -> None:
        """Counts one case."""
        self.seen.append(seen)
        if seen.failure:
            self.failures.append(seen.failure)

    @property
    def cases(self) -> int:
        """Cases that the driver offers."""
        return sum(s.status != NOT_OFFERED for s in self.seen)

    @property
    def skipped(self) -> int:
        """Cases that it does not offer."""
        return sum(s.status == NOT_OFFERED for s in self.seen)

    @property
    def compared(self) -> Counter[str]:
        """Values compared, by stage."""
        total: Counter[str] = Counter()
        for s in self.seen:
            total.update(s.compared)
        return total

    @property
    def differences(self) -> list[Difference]:
        """The first differing stage of each case that differs."""
        return [s.difference for s in self.seen if s.difference]

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
            "resumed": self.resumed,
        }


def run(
    driver: Driver,
    cases: Sequence[Case],
    unfinished: Unfinished | None = None,
    stop: threading.Event | None = None,
    done: Callable[[int], None] = lambda n: None,
) -> Comparison:
    """All cases through one driver. Nothing that a driver does ends the run.

    Cases in `unfinished` are not run again; answers are kept there as they come, failures are not.
    """
    outcome = Comparison(driver.name)
    start = time.perf_counter()
    left = []
    for case in cases:
        kept = unfinished.get(f"{driver.name}|{case.id}") if unfinished else None
        if kept is None:
            left.append(case)
            continue
        outcome.add(kept)
        outcome.resumed += 1
        done(1)
    if left and not (stop and stop.is_set()):
        driver.ready()
    results = iter(driver.results(left))
    for case in left:
        if stop and stop.is_set():
            break
        began = time.perf_counter()
        try:
            result: Result = next(results)
        except StopIteration:
            outcome.failures.append(f"{driver.name}: {case.id}: no answer, nor to the cases after it")
            break
        except Exception as problem:
            outcome.failures.append(f"{driver.name}: {case.id}: {_line(problem)}; the rest was not run")
            break
        seen = take(outcome, case, result, time.perf_counter() - began)
        if unfinished and seen.status != FAILED and not (stop and stop.is_set()):
            unfinished.add(f"{driver.name}|{case.id}", seen)
        done(1)
    outcome.seconds = time.perf_counter() - start
    with contextlib.suppress(OSError):
        driver.close()
    return outcome


def run_all(
    tasks: Sequence[tuple[Driver, Sequence[Case]]],
    jobs: int,
    unfinished: Unfinished | None = None,
    done: Callable[[int], None] = lambda n: None,
) -> list[Comparison]:
    """Several drivers at a time, each a program of its own; one comparison for each name, in order.

    A driver may come several times, with a part of the cases each.
    """
    stop = threading.Event()
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        futures = [pool.submit(run, driver, cases, unfinished, stop, done) for driver, cases in tasks]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:  # interrupted: end the programs, so that the threads that wait for them end
            stop.set()
            for future in futures:
                future.cancel()
            for driver, _ in tasks:
                driver.close()
            raise
    merged: dict[str, Comparison] = {}
    for future in futures:
        part = future.result()
        whole = merged.setdefault(part.driver, Comparison(part.driver))
        whole.seen += part.seen
        whole.failures += part.failures
        whole.seconds += part.seconds
        whole.resumed += part.resumed
    return list(merged.values())


def take(outcome: Comparison, case: Case, result: Result, seconds: float = 0.0) -> Seen:
    """Adds the result of one case."""
    seen = _judge(outcome.driver, case, result, seconds)
    outcome.add(seen)
    return seen


def _judge(driver: str, case: Case, result: Result, seconds: float) -> Seen:
    def seen(status: str, **facts: Any) -> Seen:
        return Seen(case.id, case.stage, case.family, status, seconds=seconds, **facts)

    if isinstance(result, Unsupported):
        return seen(NOT_OFFERED)
    if isinstance(result, Exception):
        return seen(FAILED, failure=f"{driver}: {case.id}: {_line(result)}")
    compared: Counter[str] = Counter()
    try:
        difference = first_difference(driver, case, result, compared)
    except (TypeError, ValueError, AttributeError) as problem:
        return seen(FAILED, failure=f"{driver}: {case.id}: malformed answer: {_line(problem)}")
    if difference:
        return seen(DIFFERS, compared=compared, difference=difference)
    if not compared:
        return seen(FAILED, failure=f"{driver}: {case.id}: the answer holds nothing to compare")
    return seen(EQUAL, compared=compared)


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
