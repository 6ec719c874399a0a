"""Drivers that misbehave cost one clear line, and the rest goes on."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from certhead.conformance.cases import Case, read_corpus
from certhead.conformance.cli import app
from certhead.conformance.compare import run, run_all
from certhead.conformance.drivers.external import PROTOCOL, ExternalDriver
from certhead.conformance.drivers.interpreter import patch_once
from certhead.conformance.drivers.registry import make
from certhead.conformance.errors import BadInput
from typer.testing import CliRunner

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "external_head.py"
PROGRAM = """
import json, sys, time
for number, line in enumerate(sys.stdin):
    request = json.loads(line)
    if "protocol" in request:
        print(json.dumps({{"protocol": {protocol!r}}}), flush=True)
        continue
    {body}
    print(json.dumps({{"id": request["id"], "unsupported": True}}), flush=True)
"""


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [case for case in read_corpus() if case.stage in ("decide", "quantize")]


def program(tmp_path: Path, body: str, protocol: str = PROTOCOL) -> list[str]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(body=body, protocol=protocol))
    return [sys.executable, str(path)]


def test_the_numpy_head_has_the_wanted_bits(cases: list[Case]) -> None:
    outcome = run(ExternalDriver([sys.executable, str(EXAMPLE)]), cases)
    assert outcome.passed
    assert outcome.skipped == 0
    assert set(outcome.compared) == {"decide", "quantize"}


def test_a_wrong_answer_is_reported_with_bits_and_command(tmp_path: Path, cases: list[Case]) -> None:
    wrong = EXAMPLE.read_text().replace("hi[:k] >= lo[k]", "hi[:k] > lo[k]")
    assert wrong != EXAMPLE.read_text()
    path = tmp_path / "wrong.py"
    path.write_text(wrong)
    outcome = run(ExternalDriver([sys.executable, str(path)], name="external:wrong"), cases)
    assert not outcome.passed
    line = str(outcome.differences[0])
    assert line.startswith("external:wrong: decide/enclosed/0: decide.token[")
    assert "got 0000000" in line
    assert "want none" in line
    assert line.endswith("repeat: certhead cases --driver 'external:wrong' --case decide/enclosed/0")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if number == 1: sys.exit(7)", "the program ended with exit status 7"),
        ("if number == 1: time.sleep(60)", "no answer within 0.5 s"),
        ("if number == 1: print('hello', flush=True); continue", "answered 'hello', which is not JSON"),
        ("if number == 1: request['id'] = 'x'", "answered 'x' to 'decide/enclosed/0'"),
    ],
)
def test_a_misbehaving_program_fails_that_case_only(
    tmp_path: Path, cases: list[Case], body: str, message: str
) -> None:
    """The program misbehaves at its first case and is started again for the second, with the same result."""
    driver = ExternalDriver(program(tmp_path, body), name="bad", timeout=0.5)
    outcome = run(driver, cases[:2])
    assert [
        line
        for line in outcome.failures
        if message.replace("enclosed/0", "enclosed/") in line or message in line
    ]
    assert len(outcome.failures) == 2
    assert outcome.failures[0].startswith("bad: decide/enclosed/0: ProgramFailed: ")
    assert not outcome.passed


def test_it_is_given_up_after_some_failures(tmp_path: Path, cases: list[Case]) -> None:
    outcome = run(ExternalDriver(program(tmp_path, "sys.exit(1)"), name="bad"), cases)
    assert len(outcome.failures) == 5
    assert "failed 4 times; the rest was not run" in outcome.failures[-1]


def test_it_goes_on_after_a_crash(tmp_path: Path, cases: list[Case]) -> None:
    body = "if request['id'] == 'decide/enclosed/1': sys.exit(3)"
    outcome = run(ExternalDriver(program(tmp_path, body), name="bad"), cases)
    assert len(outcome.failures) == 1
    assert outcome.skipped == len(cases) - 1


def test_another_protocol_is_refused(tmp_path: Path, cases: list[Case]) -> None:
    outcome = run(ExternalDriver(program(tmp_path, "pass", "certhead.protocol/0"), name="old"), cases[:1])
    assert outcome.failures == [
        f"old: {cases[0].id}: ProgramFailed: speaks 'certhead.protocol/0', not '{PROTOCOL}'"
    ]


def test_an_empty_or_malformed_answer_is_no_agreement(tmp_path: Path, cases: list[Case]) -> None:
    for out in ("{}", "{'decide': {'token': 7}}", "{'decide': {'token': [7]}}"):
        body = f"print(json.dumps({{'id': request['id'], 'out': {out}}}), flush=True); continue"
        outcome = run(ExternalDriver(program(tmp_path, body), name="bad"), cases[:1])
        assert not outcome.passed


def test_an_unknown_driver_is_named() -> None:
    with pytest.raises(BadInput, match="'vulkan' is not one of pyref, torch"):
        make("vulkan")


def test_commands_exit_with_1_on_failure_and_2_on_bad_input(tmp_path: Path) -> None:
    runner = CliRunner()
    crash = " ".join(program(tmp_path, "sys.exit(1)"))
    failed = runner.invoke(
        app, ["cases", "--case", "decide", "--driver", f"external:{crash}", "--driver", "pyref"]
    )
    assert failed.exit_code == 1
    assert "exit status 1" in failed.output
    assert "pyref: 3 cases" in failed.output
    assert runner.invoke(app, ["cases", "--case", "nothing/such"]).exit_code == 2
    assert runner.invoke(app, ["cases", "--corpus", str(tmp_path)]).exit_code == 2
    assert runner.invoke(app, ["cases", "--case", "decide", "--driver", "pyref"]).exit_code == 0


def test_several_at_a_time_each_with_its_own_fate(tmp_path: Path, cases: list[Case]) -> None:
    """One says that it cannot run, one hangs, one is right; every one gets its line, and nothing waits."""
    folders = [tmp_path / name for name in ("unusable", "hangs")]
    for folder in folders:
        folder.mkdir()
    refuses = folders[0] / "program.py"
    refuses.write_text('print(\'{"error": "no toolchain here"}\', flush=True); input()')
    unusable = ExternalDriver([sys.executable, str(refuses)], name="unusable")
    hangs = ExternalDriver(program(folders[1], "time.sleep(60)"), name="hangs", timeout=0.3, start_timeout=20)
    right = ExternalDriver([sys.executable, str(EXAMPLE)], name="right")
    done: list[int] = []
    outcomes = run_all([(d, cases) for d in (unusable, hangs, right)], 3, None, done.append)
    assert [o.driver for o in outcomes] == ["unusable", "hangs", "right"]
    assert outcomes[0].failures == [
        f"unusable: {cases[0].id}: ProgramUnusable: no toolchain here; the rest was not run"
    ]
    assert len(outcomes[1].failures) == 5
    assert all("no answer within 0.3 s" in line for line in outcomes[1].failures[:4])
    assert outcomes[1].failures[4].endswith("failed 4 times; the rest was not run")
    assert outcomes[2].passed
    assert outcomes[2].cases == len(cases)


def test_a_driver_may_come_in_parts(cases: list[Case]) -> None:
    parts = [(ExternalDriver([sys.executable, str(EXAMPLE)], name="right"), cases[n::3]) for n in range(3)]
    (outcome,) = run_all(parts, 3)
    assert outcome.passed
    assert {seen.case for seen in outcome.seen} == {case.id for case in cases}


def test_what_a_program_started_ends_with_it(tmp_path: Path, cases: list[Case]) -> None:
    """A hanging program's child would otherwise go on for ever."""
    started = tmp_path / "child.txt"
    body = (
        "import subprocess; null = subprocess.DEVNULL; "
        "child = subprocess.Popen(['sleep', '60'], stdin=null, stdout=null); "
        f"open({str(started)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    outcome = run(ExternalDriver(program(tmp_path, body), name="bad", timeout=5.0), cases[:1])
    assert len(outcome.failures) == 1
    status = Path(f"/proc/{started.read_text()}/stat")

    def over() -> bool:
        try:
            return status.read_text().split()[2] == "Z"
        except OSError:
            return True

    deadline = time.monotonic() + 20  # a kill takes effect when the child is next scheduled; it sleeps for 60
    while not over() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert over()


def test_the_interpreter_is_patched_once() -> None:
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    patch_once()
    patched = interpreter._patch_lang
    patch_once()
    assert interpreter._patch_lang is patched
    assert patched.patched_once
