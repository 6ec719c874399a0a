"""Runs the mutants: does the corpus tell every wrong kernel from the right one, and would tokens have?

Each mutant is a copy of the package (links, and the one changed file) that a forked process imports in
place of the real one. It is killed by the first case whose bits differ; then the whole heads are run on,
to see whether the returned tokens alone would have shown it too. The unchanged package runs the same way,
as a control that must survive.
"""

from __future__ import annotations

import datetime
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .cases import Case
from .history import MUTANTS_SCHEMA
from .mutants_list import MUTANTS, Mutant
from .resume import REPOSITORY, Unfinished

PACKAGES = ("pyref", "kernels", "conformance")
TIME_LIMIT = 180.0  # seconds for one mutant; a hang counts as a kill by "time"
DRIVERS = ("pyref", "torch", "interpret")
CONTROLS = tuple(Mutant(f"{driver}/control", "", ()) for driver in DRIVERS)


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant. `by` is "case: stage", "case: error …" or "time"; None if it survived."""

    name: str
    killed: bool
    by: str | None
    after: int | None  # cases up to and with the one that killed it
    tokens_only: bool  # whether comparing returned tokens alone would have killed it
    seconds: float

    @property
    def control(self) -> bool:
        """Whether this is the unchanged package."""
        return self.name.endswith("/control")

    @property
    def right(self) -> bool:
        """Killed if wrong, alive if unchanged."""
        return self.killed != self.control


def run_mutants(
    cases: Sequence[Case],
    mutants: Sequence[Mutant] = MUTANTS + CONTROLS,
    *,
    jobs: int | None = None,
    done: Callable[[Verdict], None] = lambda verdict: None,
    unfinished: Unfinished | None = None,
) -> list[Verdict]:
    """One verdict for each mutant, in order; `done` is called with each as it comes.

    Verdicts in `unfinished` are not sought again, and new ones are kept there.

    Imports Triton for the interpreter into this process. Raises ValueError for an edit that does not apply.
    """
    os.environ["TRITON_INTERPRET"] = "1"
    _preload()
    context = multiprocessing.get_context("fork")
    stop = threading.Event()

    def one(mutant: Mutant) -> Verdict:
        kept: Verdict | None = unfinished.get(mutant.name) if unfinished else None
        if kept is not None:
            done(kept)
            return kept
        with tempfile.TemporaryDirectory(prefix="certhead-mutant-") as folder:
            make_copy(Path(folder), mutant)
            here, there = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(folder, mutant, cases, there))
            start = time.perf_counter()
            process.start()
            there.close()
            found: tuple[str | None, int | None, bool] = ("time", None, False)
            while not here.poll(1.0) and not stop.is_set() and time.perf_counter() - start < TIME_LIMIT:
                pass
            if here.poll():
                try:
                    found = here.recv()
                except EOFError:
                    found = ("error: the process ended without an answer", None, False)
            process.kill()
            process.join()
            if stop.is_set():
                raise InterruptedError
            by, after, tokens = found
            verdict = Verdict(
                mutant.name, by is not None, by, after, tokens, round(time.perf_counter() - start, 2)
            )
            if unfinished:
                unfinished.add(mutant.name, verdict)
            done(verdict)
            return verdict

    with ThreadPoolExecutor(jobs or os.cpu_count() or 1) as pool:
        try:
            return list(pool.map(one, mutants))
        except BaseException:
            stop.set()
            raise


def moved(mutants: Sequence[Mutant], root: Path = REPOSITORY) -> list[str]:
    """One line for each mutant whose edit no longer applies to exactly one place."""
    problems = []
    for mutant in mutants:
        if mutant.edits:
            try:
                mutant.apply((root / mutant.path).read_text("utf-8"))
            except (OSError, ValueError) as problem:
                problems.append(str(problem))
    return problems


def make_copy(folder: Path, mutant: Mutant, root: Path = REPOSITORY) -> None:
    """The package `certhead` below `folder`, with the mutant's edits. Raises ValueError as `Mutant.apply`."""
    package = folder / "certhead"
    package.mkdir()
    (package / "__init__.py").write_text("", "utf-8")
    changed, _, name = mutant.path.partition("/")
    for part in PACKAGES:
        if part != changed:
            (package / part).symlink_to(root / part)
            continue
        (package / part).mkdir()
        for source in (root / part).iterdir():
            if source.name not in (name, "__pycache__"):
                (package / part / source.name).symlink_to(source)
        source = root / mutant.path
        (package / part / name).write_text(mutant.apply(source.read_text("utf-8")), "utf-8")


def judge(driver_name: str, cases: Sequence[Case]) -> tuple[str | None, int | None, bool]:
    """(what killed it, after how many cases, whether tokens alone would have) of the importable package."""
    from certhead.conformance.compare import Comparison, take, tokens_differ
    from certhead.conformance.drivers.base import Unsupported
    from certhead.conformance.drivers.registry import in_process

    driver = in_process(driver_name)
    by: str | None = None
    after, tokens = None, False
    for number, case in enumerate(cases, 1):
        if tokens or (by and not _shows_tokens(driver_name, case)):
            continue
        try:
            if by:
                tokens = tokens_differ(case, driver.tokens(case))
                continue
            answer = driver.answer(case)
        except Unsupported:
            continue
        except Exception as problem:
            if by is None:
                by, after = f"{case.id}: error {type(problem).__name__}", number
            continue
        if by is None:
            outcome = Comparison(driver_name)
            take(outcome, case, answer)
            if outcome.differences:
                by, after = f"{case.id}: {outcome.differences[0].stage}", number
            elif outcome.failures:
                by, after = f"{case.id}: error", number
        if case.stage == "head":
            tokens = tokens_differ(case, answer["token"]["token"])
    return by, after, tokens


def _shows_tokens(driver_name: str, case: Case) -> bool:
    """Whether the driver says which token this case returns; the interpreter only if sums are exact."""
    from certhead.conformance.drivers.exact_sums import sums_are_exact

    return case.stage == "head" and (driver_name != "interpret" or sums_are_exact(case))


def _preload() -> None:
    """Imports what every child needs, once; nothing of it is run here, so forking is safe."""
    import numpy  # noqa: F401
    import sympy  # noqa: F401
    import torch  # noqa: F401
    import triton.language  # noqa: F401


def _child(folder: str, mutant: Mutant, cases: Sequence[Case], results: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it; its end must not look like a kill
    for name in [name for name in sys.modules if name.split(".")[0] == "certhead"]:
        del sys.modules[name]
    sys.path.insert(0, folder)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    import torch

    torch.set_num_threads(1)
    try:
        import certhead.kernels.torch_stages
        import certhead.pyref.head

        for module in (certhead.kernels.torch_stages, certhead.pyref.head):
            if not str(module.__file__).startswith(folder):
                raise RuntimeError(f"{module.__file__} was imported instead of the copy in {folder}")
        results.send(judge(mutant.driver, cases))
    except BaseException as problem:
        text = " ".join(str(problem).split())
        results.send((f"error: {type(problem).__name__}: {text[:200]}", None, False))
    finally:
        results.close()
        os._exit(0)


def to_record(verdicts: Sequence[Verdict], sources: str) -> dict[str, Any]:
    """Name, killed, by, after and tokens_only of every mutant, and the counts.

    sources: `hash_under_test` when the run began.
    """
    mutants = [v for v in verdicts if not v.control]
    return {
        "schema": MUTANTS_SCHEMA,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "sources": sources,
        "mutants": [asdict(v) for v in mutants],
        "controls": [asdict(v) for v in verdicts if v.control],
        "total": len(mutants),
        "killed": sum(v.killed for v in mutants),
        "killed_by_tokens_only": sum(v.tokens_only for v in mutants),
    }
