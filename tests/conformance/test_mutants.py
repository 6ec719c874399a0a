"""The mutants apply, and the suite tells wrong from right. `certhead mutants` runs all of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from certhead.conformance.mutants import moved
from certhead.conformance.mutants_list import MUTANTS, Mutant, read_mutants
from certhead.conformance.resume import REPOSITORY


def test_every_mutant_applies_to_exactly_one_place() -> None:
    for mutant in MUTANTS:
        source = (REPOSITORY / mutant.path).read_text("utf-8")
        mutated = mutant.apply(source)
        assert mutated != source
        compile(mutated, mutant.path, "exec")
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    counts = Counter(m.driver for m in MUTANTS)
    assert set(counts) == {"pyref", "torch", "interpret"}
    assert min(counts.values()) >= 30


def test_an_edit_that_does_not_apply_is_named() -> None:
    with pytest.raises(ValueError, match=r"torch/x: a\.py has 0 places with 'old'"):
        Mutant("torch/x", "a.py", (("old", "new"),)).apply("nothing")
    with pytest.raises(ValueError, match="2 places"):
        Mutant("torch/x", "a.py", (("old", "new"),)).apply("old old")


def test_moved_mutants_are_named_all_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    mutants = [
        Mutant("torch/right", "a.py", (("x = 1", "x = 2"),)),
        Mutant("torch/moved", "a.py", (("y = 1", "y = 2"),)),
        Mutant("torch/gone", "b.py", (("y = 1", "y = 2"),)),
        Mutant("torch/control", "", ()),
    ]
    first, second = moved(mutants, tmp_path)
    assert first == "torch/moved: a.py has 0 places with 'y = 1'"
    assert "b.py" in second
    assert moved(MUTANTS) == []


def mutants_command(*options: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: the command forks, and chooses the interpreter for its process."""
    command = [sys.executable, "-c", "from certhead.conformance.cli import app; app()", "mutants", *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)


def test_mutants_die_and_the_unchanged_package_survives(tmp_path: Path) -> None:
    """One back end in full; the others run in CI by the command."""
    pytest.importorskip("triton")
    path = tmp_path / "mutants.json"
    ran = mutants_command("--only", "torch/", "--json", str(path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    record = json.loads(path.read_text())
    assert record["killed"] == record["total"] == sum(m.driver == "torch" for m in MUTANTS)
    assert {"name", "killed", "by", "after", "tokens_only"} <= set(record["mutants"][0])
    # the argument for comparing stages: tokens alone miss most of them
    assert 0 < record["killed_by_tokens_only"] < record["total"] // 2
    assert [c["killed"] for c in record["controls"]] == [False]


def test_a_survivor_fails_the_command(tmp_path: Path) -> None:
    """With a corpus that cannot tell them apart."""
    pytest.importorskip("triton")
    corpus = REPOSITORY / "conformance" / "corpus" / "quantize-norms.jsonl"
    (tmp_path / corpus.name).write_bytes(corpus.read_bytes())
    ran = mutants_command("--only", "pyref/tie-to-last-index", "--corpus", str(tmp_path))
    assert ran.returncode == 1
    assert "pyref/tie-to-last-index: survived" in ran.stdout
    assert mutants_command("--only", "no-such-mutant").returncode == 2


def test_the_list_is_read_in_order() -> None:
    assert read_mutants() == MUTANTS


def test_an_interrupted_run_goes_on_and_believes_no_torn_verdict(tmp_path: Path) -> None:
    """Ctrl-C, which every process of the terminal gets, after the first verdict."""
    pytest.importorskip("triton")
    environment = {**os.environ, "CERTHEAD_CACHE": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    code = "from certhead.conformance.cli import app; app()"
    command = [sys.executable, "-c", code, "mutants", "--only", "pyref/ranks-", "--jobs", "1"]
    chosen = [m for m in MUTANTS if "pyref/ranks-" in m.name]
    assert len(chosen) >= 2
    first = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert first.stdout is not None
    while not first.stdout.readline().startswith("pyref/ranks-"):
        assert first.poll() is None
    os.killpg(first.pid, signal.SIGINT)
    _, errors = first.communicate()
    assert first.returncode == 130, errors
    assert "interrupted; run it again to go on where it stopped" in errors
    again = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert again.returncode == 0, again.stdout + again.stderr
    assert f"{len(chosen)} of {len(chosen)} mutants killed" in again.stdout
    assert re.search(r"[12] verdicts from the interrupted run", again.stdout)
    assert "error" not in again.stdout
    assert not list(tmp_path.glob("unfinished/*.pieces"))
