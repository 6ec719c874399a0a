"""Fuzzing: the case families under ever new seeds, pyref against another driver, until the time is up.

A family is drawn at a time, so the seconds go to many kinds of input. Nothing is kept but a failing case,
which is first made smaller: rows, positions and columns are dropped as long as it still differs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

from .cases import Case, parse
from .compare import Comparison, Difference, take
from .drivers.base import CaseByCase, Unsupported

SLOW = ("integer_ties", "integers", "leading", "duplicates")  # heads of 70 rows and more: every tenth round


@dataclass(frozen=True)
class Round:
    """One round of one worker: cases compared, and the failing ones as lines of a corpus, made small."""

    cases: int
    failures: tuple[tuple[str, str], ...]  # (difference, case)


def fuzz_round(driver_name: str, seed: int) -> Round:
    """All families under one seed."""
    import torch

    from .case_families import FAMILIES, family_cases
    from .drivers.registry import in_process

    torch.set_num_threads(1)
    driver, compared, failures = in_process(driver_name), 0, []
    for stage, maker in FAMILIES:
        if seed % 10 and maker.__name__.removeprefix("head_") in SLOW:
            continue
        for case in family_cases(stage, maker, seed):
            case = replace(case, id=f"{case.id}@{seed}")
            problem = differs(driver, case)
            compared += problem is not SKIPPED
            if problem:
                small = shrink(driver, case)
                failures.append((str(differs(driver, small)), small.to_json()))
    return Round(compared, tuple(failures))


SKIPPED = ""


def differs(driver: CaseByCase, case: Case) -> Difference | str | None:
    """The difference, or a line about a crash; None if all is equal, SKIPPED if the case is not offered."""
    try:
        answer = driver.answer(case)
    except Unsupported:
        return SKIPPED
    except Exception as problem:
        return f"{driver.name}: {case.id}: {type(problem).__name__}: {problem}"
    outcome = Comparison(driver.name)
    take(outcome, case, answer)
    found: list[Difference | str] = [*outcome.differences, *outcome.failures]
    return found[0] if found else None


def shrink(driver: CaseByCase, case: Case) -> Case:
    """A case with nothing to drop: without any one row, position or column it would no longer differ."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in _without_one(case):
            if differs(driver, candidate):
                case, smaller = candidate, True
                break
    return case


def _without_one(case: Case) -> Iterator[Case]:
    from .case_families import complete

    given, digits = case.given, 4
    options = []
    for name in ("weight", "hidden"):
        values = given.get(name, ())
        for i in range(len(values) if len(values) > 1 else 0):
            options.append(given | {name: [*values[:i], *values[i + 1 :]]})
    width = min((len(t) for name in ("weight", "hidden") for t in given.get(name, ())), default=0) // digits
    for k in range(width if width > 1 else 0):
        start, end = k * digits, (k + 1) * digits
        cut: dict[str, Any] = {
            name: [t[:start] + t[end:] for t in given[name]] for name in ("weight", "hidden") if name in given
        }
        if "group" in given:  # a head's group is at most its columns
            cut["group"] = min(given["group"], width - 1)
        options.append(given | cut)
    for option in options:
        try:
            yield complete(replace(case, given=option))
        except (ValueError, AssertionError, IndexError):  # no longer a case
            continue


def fuzz(driver_name: str, minutes: float, seed: int, jobs: int) -> Iterator[tuple[Round, int, float]]:
    """(round, cases so far, seconds so far) as rounds come, until `minutes` are over."""
    start, total = time.perf_counter(), 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: set[Future[Round]] = set()
        over = False
        while running or not over:
            over = over or time.perf_counter() - start > 60 * minutes
            while not over and len(running) < 2 * jobs:
                running.add(pool.submit(fuzz_round, driver_name, seed))
                seed += 1
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                total += future.result().cases
                yield future.result(), total, time.perf_counter() - start


def failing_cases(rounds: Sequence[Round]) -> list[Case]:
    """The shrunk cases of all rounds."""
    return [parse(line, "fuzz") for r in rounds for _, line in r.failures]
