"""Pieces of work in several processes: in order, once each, and what happens when one goes wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from certhead.conformance.resume import Unfinished
from certhead.conformance.workers import WorkerDied, one_thread, pieces


def square(x: int) -> tuple[int, int]:
    return x * x, os.getpid()


def fail(x: int) -> int:
    if x == 3:
        raise ValueError("three")
    return x


def die(x: int) -> int:
    if x == 3:
        os._exit(9)
    return x


@pytest.mark.parametrize("jobs", [1, 3])
def test_results_come_in_order_and_each_piece_is_told(jobs: int) -> None:
    told: list[int] = []
    with one_thread():
        found = pieces(square, [(n,) for n in range(7)], jobs=jobs, name="squares", done=told.append)
    assert [value for value, _ in found] == [n * n for n in range(7)]
    assert sorted(told) == list(range(7))
    assert (os.getpid() in {pid for _, pid in found}) == (jobs == 1)


def test_what_is_kept_is_not_run_again(tmp_path: Path) -> None:
    kept = Unfinished(tmp_path / "kept.pieces")
    with pytest.raises(ValueError, match="three"):
        pieces(fail, [(n,) for n in range(6)], jobs=1, name="numbers", unfinished=kept)
    again = Unfinished(tmp_path / "kept.pieces")
    assert again.resumed == 3
    found = pieces(square, [(n,) for n in range(6)], jobs=1, name="numbers", unfinished=again)
    assert found[:3] == [0, 1, 2]
    assert [value for value, _ in found[3:]] == [9, 16, 25]


def test_a_worker_that_dies_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    kept = Unfinished(tmp_path / "kept.pieces")
    with one_thread(), pytest.raises(WorkerDied, match="a worker process died during numbers"):
        pieces(die, [(n,) for n in range(8)], jobs=2, name="numbers", unfinished=kept)
    assert Unfinished(tmp_path / "kept.pieces").resumed <= 7


def test_an_error_in_a_fork_is_raised_here() -> None:
    with one_thread(), pytest.raises(ValueError, match="three"):
        pieces(fail, [(n,) for n in range(6)], jobs=2, name="numbers")


def test_the_threads_come_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before
