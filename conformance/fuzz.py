"""Fuzzing: ever new small cases, pyref's bits against those of other drivers, until the time is up.

Cases come in batches of one stage and shape (`fuzz_batches`), and a driver answers a batch in one call
(`bundle`). Nothing is kept but a failing case, which is first made smaller: rows, positions and columns are
dropped as long as it still differs. Failing cases make a corpus that grows: each run starts with it.

Coverage does not guide it: a few rounds run every line of the stages (tested), so there is nothing to steer
by. What a stage gets wrong lies in its values, which the strategies aim at, not in lines not yet run.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .bundle import BUNDLED, POSITIONS, ROWS, length, lists, merge, split
from .cases import FIELDS, Case, parse, read_file
from .compare import FAILED, Comparison, Difference, run_all, take
from .drivers.base import CaseByCase, Result, Unsupported
from .drivers.exact_sums import has_subnormals
from .resume import Unfinished

LEAN_EVERY = 40  # batches of which Lean gets one: it takes as long for it as the others for all
LEAN_CASES = 4  # of such a batch
KEPT_A_PLACE = 5  # failing cases kept for one driver, stage and field


@dataclass(frozen=True)
class Round:
    """What one worker found under one seed: cases by driver, and the failing ones as lines, made small."""

    cases: Mapping[str, int]  # that a driver gave bits for
    generated: int
    everywhere: int  # cases for which every driver but lean gave bits
    failures: tuple[tuple[str, str], ...] = ()  # (difference, case)
    stages: Mapping[str, int] = field(default_factory=dict)  # cases of `everywhere`
    cpu_seconds: float = 0.0


def fuzz_round(names: Sequence[str], seed: int, lean: bool = False) -> Round:
    """The batches of one seed, and now and then the corpus' families under it.

    names: drivers to compare with pyref.
    """
    import torch

    from .fuzz_batches import FAMILY_ROUNDS, batches, family_batches

    torch.set_num_threads(1)
    drivers = _drivers(tuple(names))
    tally = _Tally(drivers)
    began = time.process_time()
    for number, batch in enumerate(batches(seed)):
        wanted = [_completed(case) for case in batch]
        tally.batch(wanted)
        if lean and (seed * 16 + number) % LEAN_EVERY == 0:
            tally.batch(wanted[:LEAN_CASES], _drivers(("lean",)))
    if seed % FAMILY_ROUNDS == 0:
        for batch in family_batches(seed):
            tally.batch(batch)
    return tally.round(time.process_time() - began)


def _completed(case: Case) -> Case:
    from .case_families import complete

    return complete(case)


_MADE: dict[str, CaseByCase] = {}


def _drivers(names: tuple[str, ...]) -> list[CaseByCase]:
    from .drivers.registry import in_process

    for name in names:
        if name not in _MADE:
            _MADE[name] = in_process(name)
    return [_MADE[name] for name in names]


class _Tally:
    def __init__(self, drivers: Sequence[CaseByCase]) -> None:
        self.drivers = drivers
        self.cases: Counter[str] = Counter()
        self.stages: Counter[str] = Counter()
        self.generated = self.everywhere = 0
        self.failures: list[tuple[str, str]] = []

    def batch(self, cases: Sequence[Case], drivers: Sequence[CaseByCase] | None = None) -> None:
        """Compares one batch with every driver; or with `drivers` in their stead, and counts for them."""
        told: Counter[str] = Counter()
        for driver in drivers or self.drivers:
            outcome = Comparison(driver.name)
            for case, result in zip(cases, answers(driver, cases), strict=True):
                misread = driver.name == "interpret" and has_subnormals(case)
                seen = take(outcome, case, Unsupported() if misread else result)
                if seen.compared:
                    self.cases[driver.name] += 1
                    told[case.id] += 1
                if seen.difference or seen.status == FAILED:
                    self._keep(driver, case, cases)
        if drivers is None:
            self.generated += len(cases)
            full = sum(count == len(self.drivers) for count in told.values())
            self.everywhere += full
            self.stages[cases[0].stage] += full

    def _keep(self, driver: CaseByCase, case: Case, batch: Sequence[Case]) -> None:
        if not differs(driver, case):  # only beside its neighbours
            case = replace(_completed(merge(batch)), id=f"{case.id}-bundle")
        small = shrink(driver, case)
        self.failures.append((str(differs(driver, small) or f"{driver.name}: {case.id}"), small.to_json()))

    def round(self, cpu_seconds: float) -> Round:
        """The counts."""
        return Round(
            dict(self.cases),
            self.generated,
            self.everywhere,
            tuple(self.failures),
            dict(self.stages),
            cpu_seconds,
        )


def answers(driver: CaseByCase, cases: Sequence[Case]) -> list[Result]:
    """One result for each case of a batch, asked at once where the stage allows it."""
    if len(cases) > 1 and cases[0].stage in BUNDLED:
        try:
            taken = split(driver.answer(merge(cases)), cases)
            return [_said(answer) for answer in taken]
        except Unsupported as problem:
            return [problem] * len(cases)
        except Exception:  # one of them, perhaps: each alone
            pass
    return [next(driver.results([case])) for case in cases]


def _said(answer: dict[str, dict[str, list[str | None]]]) -> Result:
    """The answer, or Unsupported where the driver says nothing in it."""
    if all(v is None for fields in answer.values() for values in fields.values() for v in values):
        return Unsupported()
    return answer


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
    given, digits = case.given, 4
    options = []
    for fields in (ROWS, POSITIONS):
        count = length(case, fields)
        for i in range(count if count > 1 else 0):
            cut = {name: _without(given[name], i) for name in lists(case, fields)}
            options.append(given | cut)
    if case.stage in ("select", "decide"):  # rows lie within the strings there
        names = lists(case, POSITIONS)
        rows = len(given[names[0]][0]) // FIELDS[names[0]][0]
        for i in range(rows if rows > 1 else 0):
            options.append(given | {n: [_without_value(t, i, FIELDS[n][0]) for t in given[n]] for n in names})
    width = min((len(t) for name in ("weight", "hidden") for t in given.get(name, ())), default=0) // digits
    for k in range(width if width > 1 else 0):
        cut_columns: dict[str, Any] = {
            name: [_without_value(t, k, digits) for t in given[name]]
            for name in ("weight", "hidden")
            if name in given
        }
        if "group" in given:  # a head's group is at most its columns
            cut_columns["group"] = min(given["group"], width - 1)
        options.append(given | cut_columns)
    for option in options:
        try:
            yield _completed(replace(case, given=option))
        except (ValueError, AssertionError, IndexError):  # no longer a case
            continue


def _without(values: Sequence[str], i: int) -> list[str]:
    return [*values[:i], *values[i + 1 :]]


def _without_value(text: str, i: int, digits: int) -> str:
    return text[: i * digits] + text[(i + 1) * digits :]


def fuzz(
    names: Sequence[str],
    minutes: float,
    seed: int,
    jobs: int,
    lean: bool = False,
    unfinished: Unfinished | None = None,
) -> Iterator[tuple[Round, float]]:
    """(round, seconds so far) as rounds come, until `minutes` are over; an interrupted run's rounds first."""
    before = 0.0
    for key, (kept, seconds) in unfinished.items() if unfinished else ():
        before, seed = max(before, seconds), max(seed, int(key) + 1)
        yield kept, seconds
    start = time.perf_counter() - before
    if time.perf_counter() - start > 60 * minutes:
        return
    # read by Triton when it is imported, which only the workers do
    environment = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    found_there = {name: os.environ.get(name) for name in environment}
    os.environ.update(environment)
    try:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_quiet) as pool:
            running: dict[Future[Round], int] = {}
            over = False
            while running or not over:
                over = over or time.perf_counter() - start > 60 * minutes
                while not over and len(running) < 2 * jobs:
                    running[pool.submit(fuzz_round, names, seed, lean)] = seed
                    seed += 1
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    number, seconds = running.pop(future), time.perf_counter() - start
                    if unfinished:
                        unfinished.add(str(number), (future.result(), seconds))
                    yield future.result(), seconds
    finally:
        for name, value in found_there.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _quiet() -> None:
    """Infinities and NaNs are among the cases; NumPy would warn of each."""
    import warnings

    warnings.filterwarnings("ignore", category=RuntimeWarning)


def grow(path: Path, failures: Sequence[tuple[str, str]]) -> list[tuple[str, Case]]:
    """Adds failing cases to the corpus at `path`, except where it has enough of the same place.

    Returns those added, with what differs.
    """
    known = read_file(path) if path.exists() else []
    ids = {case.id for case in known}
    places: Counter[str] = Counter()
    for case in known:
        places[case.family] += 1
    added = []
    for difference, line in failures:
        case = parse(line, "fuzz")
        place = f"{case.family}-{_place(difference)}"
        case = replace(case, family=place)
        if case.id in ids or places[place] >= KEPT_A_PLACE:
            continue
        ids.add(case.id)
        places[place] += 1
        added.append((difference, case))
    if added:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(case.to_json() + "\n" for _, case in added)
    return added


def _place(difference: str) -> str:
    """`driver-stage.field` of a difference, `driver-failed` of a crash."""
    driver, _, rest = difference.partition(": ")
    _, _, rest = rest.partition(": ")
    head = rest.partition("[")[0] if "[" in rest else "failed"
    return f"{driver}-{head if head.replace('.', '').isidentifier() else 'failed'}"


def still_failing(path: Path, names: Sequence[str]) -> list[tuple[str, str]]:
    """The cases of the grown corpus that still differ, or have no answer: (difference, case id)."""
    from .drivers import registry

    if not path.exists():
        return []
    cases = read_file(path)
    found = []
    for outcome in run_all([(registry.make(name), cases) for name in names], len(names)):
        for seen in outcome.seen:
            if seen.difference or seen.failure:
                found.append((str(seen.difference or seen.failure), seen.case))
    return found


def to_record(
    rounds: Sequence[Round], names: Sequence[str], seed: int, seconds: float, failures: int
) -> dict[str, object]:
    """The counts of a run, schema `certhead.fuzz/1`."""
    cases: Counter[str] = Counter()
    stages: Counter[str] = Counter()
    for found in rounds:
        cases.update(found.cases)
        stages.update(found.stages)
    everywhere = sum(found.everywhere for found in rounds)
    cpu = sum(found.cpu_seconds for found in rounds)
    return {
        "schema": "certhead.fuzz/1",
        "drivers": ["pyref", *names],
        "first_seed": seed,
        "cases": sum(found.generated for found in rounds),
        "cases_by_driver": dict(cases),
        "cases_everywhere": everywhere,
        "cases_everywhere_by_stage": dict(stages),
        "everywhere_per_second": round(everywhere / max(seconds, 1e-9), 1),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(cpu, 1),
        "everywhere_per_cpu_second": round(everywhere / max(cpu, 1e-9), 1),
        "load": list(os.getloadavg()),
        "failures": failures,
    }


def line_of(record: Mapping[str, Any]) -> str:
    """One line that says how it goes."""
    ways = len(record["drivers"])
    lean = record["cases_by_driver"].get("lean")
    return (
        f"{record['cases']:,} cases, {record['cases_everywhere']:,} of them {ways}-way "
        f"({', '.join(record['drivers'])}), {record['everywhere_per_second']:.0f}/s, "
        f"{record['everywhere_per_cpu_second']:.0f} a second of a core"
        + (f"; lean {lean:,}" if lean else "")
        + f"; {record['failures']} differ"
    )


def write_json(path: Path, record: Mapping[str, object]) -> None:
    """The record as a file."""
    path.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
