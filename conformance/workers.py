"""Pieces of work in several processes: one for each core, with one torch thread each.

torch's threads wait by spinning, so two processes with two threads each on two cores are several times
slower than two processes with one; and one process with two threads is half as fast as two with one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, TypeVar

import torch

from .resume import Unfinished

T = TypeVar("T")
PR_SET_PDEATHSIG = 1  # prctl(2)


class WorkerDied(RuntimeError):
    """A process of the pool ended without an answer: out of memory, a crash in a library, a kill."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_thread() -> Iterator[None]:
    """torch with one thread; what it had before comes back."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pieces(
    run: Callable[..., T],
    arguments: Sequence[tuple[Any, ...]],
    *,
    jobs: int,
    name: str,
    unfinished: Unfinished | None = None,
    done: Callable[[int], None] = lambda number: None,
) -> list[T]:
    """`run(*arguments[i])` for every i, in order; `done(i)` as they come.

    With more than one job each process is a fork of this one, so `run` finds what the caller has made; the
    caller must be using one torch thread. A piece that an interrupted run finished is taken from
    `unfinished`. Raises what a piece raises, and WorkerDied.
    """
    results: dict[int, T] = {}
    for number, given in enumerate(arguments):
        kept = unfinished.get(f"{name} {given}") if unfinished else None
        if kept is not None:
            results[number] = kept
            done(number)

    def finished(number: int, result: T) -> None:
        results[number] = result
        if unfinished:
            unfinished.add(f"{name} {arguments[number]}", result)
        done(number)

    left = [number for number in range(len(arguments)) if number not in results]
    if jobs <= 1 or len(left) <= 1 or sys.platform != "linux":
        for number in left:
            finished(number, run(*arguments[number]))
    else:
        with ProcessPoolExecutor(
            min(jobs, len(left)), mp_context=get_context("fork"), initializer=_end_with_parent
        ) as pool:
            running = {pool.submit(run, *arguments[number]): number for number in left}
            try:
                for future in as_completed(running):
                    finished(running[future], future.result())
            except BrokenProcessPool:
                raise WorkerDied(f"a worker process died during {name}") from None
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return [results[number] for number in range(len(arguments))]


def _end_with_parent() -> None:
    """Without this a worker would outlive a parent that was killed, and print a traceback on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
