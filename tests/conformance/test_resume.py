"""An interrupted run goes on where it stopped: nothing done twice, nothing lost, nothing stale believed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from certhead.conformance import resume
from certhead.conformance.cases import read_corpus
from certhead.conformance.fuzz import Round, fuzz
from certhead.conformance.mutants import Verdict, run_mutants
from certhead.conformance.mutants_list import MUTANTS
from certhead.conformance.resume import Unfinished

PROGRAM = """
import json, pathlib, sys, time
log = pathlib.Path(__file__).with_name("asked.txt")
for line in sys.stdin:
    request = json.loads(line)
    if "protocol" in request:
        print(json.dumps({"protocol": "certhead.protocol/1"}), flush=True)
        continue
    with log.open("a") as file:
        file.write(request["id"] + "\\n")
    time.sleep(0.05)
    print(json.dumps({"id": request["id"], "out": WANTED[request["id"]]}), flush=True)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_pieces_are_kept_until_the_run_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.pieces"
    kept = Unfinished(path)
    kept.add("one", {"x": 1})
    kept.add("two", [2.5])
    again = Unfinished(path)
    assert (again.resumed, again.get("one"), again.get("two"), again.get("three")) == (
        2,
        {"x": 1},
        [2.5],
        None,
    )
    assert Unfinished(path, fresh=True).resumed == 0
    kept.add("three", 3)
    kept.complete()
    assert not path.exists()


@pytest.mark.parametrize("cut", [1, 5, 12])
def test_a_torn_end_is_cut_off_and_written_over(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.pieces"
    kept = Unfinished(path)
    kept.add("one", "x" * 50)
    kept.add("two", "y" * 50)
    path.write_bytes(path.read_bytes()[:-cut])
    again = Unfinished(path)
    assert (again.get("one"), again.get("two")) == ("x" * 50, None)
    again.add("two", "z")
    assert dict(Unfinished(path).items()) == {"one": "x" * 50, "two": "z"}


def test_other_sources_or_inputs_have_another_record(monkeypatch: pytest.MonkeyPatch) -> None:
    first = Unfinished.of("cases", "corpus", ["torch"])
    first.add("one", 1)
    assert Unfinished.of("cases", "corpus", ["torch"]).resumed == 1
    assert Unfinished.of("cases", "other", ["torch"]).resumed == 0
    assert Unfinished.of("mutants", "corpus", ["torch"]).resumed == 0
    monkeypatch.setattr(resume, "source_files_hash", lambda: "changed")
    assert Unfinished.of("cases", "corpus", ["torch"]).resumed == 0


def test_the_hash_is_of_what_lies_there(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "a.py").write_text("x = 1\n")
    before = resume.source_files_hash(tmp_path)
    (tmp_path / "kernels" / "a.py").write_text("x = 2\n")
    assert resume.source_files_hash(tmp_path) != before
    (tmp_path / "kernels" / "a.py").write_text("x = 1\n")
    (tmp_path / "notes.txt").write_text("no source")
    assert resume.source_files_hash(tmp_path) == before


def test_old_records_are_forgotten(cache: Path) -> None:
    kept = Unfinished.of("cases", "corpus")
    kept.add("one", 1)
    long_ago = time.time() - resume.FORGOTTEN - 10
    os.utime(kept.path, (long_ago, long_ago))
    Unfinished.of("cases", "other")
    assert not kept.path.exists()


def test_a_killed_run_over_the_corpus_goes_on(tmp_path: Path) -> None:
    """The command is killed midway; the second answers only what is left, and reports everything."""
    cases = [case for case in read_corpus() if case.stage in ("decide", "quantize")]
    log, program = tmp_path / "asked.txt", tmp_path / "program.py"
    program.write_text(f"WANTED = { ({case.id: case.want for case in cases})!r}\n" + PROGRAM)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "some.jsonl").write_text("".join(case.to_json() + "\n" for case in cases))
    command = [
        *(sys.executable, "-c", "from certhead.conformance.cli import app; app()"),
        *("cases", "--corpus", str(corpus), "--json", str(tmp_path / "out.json")),
        *("--driver", f"external:{sys.executable} {program}"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as first:
        while not log.exists() or len(log.read_text().splitlines()) < 6:
            assert first.poll() is None
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
    time.sleep(0.5)
    asked = log.read_text().splitlines()
    assert 6 <= len(asked) < len(cases)
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "from the interrupted run" in ran.stdout
    again = log.read_text().splitlines()[len(asked) :]
    # the one that was being asked when the command died has no answer that could be kept
    assert set(asked[:-1]).isdisjoint(again)
    assert set(asked) | set(again) == {case.id for case in cases}
    (outcome,) = json.loads((tmp_path / "out.json").read_text())
    assert outcome["cases"] == len(cases)
    assert outcome["resumed"] in (len(asked) - 1, len(asked))
    assert not list((tmp_path / "cache" / "unfinished").glob("*.pieces"))


def test_verdicts_on_mutants_are_kept(tmp_path: Path) -> None:
    kept = Unfinished(tmp_path / "a.pieces")
    mutants = MUTANTS[:3]
    verdicts = [Verdict(m.name, True, "decide/exact/0: decide", 1, False, 0.1) for m in mutants]
    for verdict in verdicts:
        kept.add(verdict.name, verdict)
    told: list[Verdict] = []
    # an edit that does not apply anywhere would raise, had the mutant to be made
    assert run_mutants([], mutants, jobs=1, done=told.append, unfinished=kept) == verdicts
    assert told == verdicts


def test_fuzzing_goes_on_with_the_next_seed_and_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Unfinished(tmp_path / "a.pieces")
    done = Round({"torch": 5}, 5, 5)
    kept.add("7", (done, 50.0))
    kept.add("8", (done, 59.9))
    rounds = list(fuzz(["torch"], 59.9 / 60, 7, 1, unfinished=kept))
    assert [found for found, _ in rounds] == [done, done]
    more = list(fuzz(["torch"], 59.91 / 60, 7, 1, unfinished=Unfinished(tmp_path / "a.pieces")))
    assert [found for found, _ in more[:2]] == [done, done]
    keys = [key for key, _ in Unfinished(tmp_path / "a.pieces").items()]
    assert keys[:2] == ["7", "8"]
    assert set(keys[2:]) <= {"9", "10"}
