"""Driver `external`: any program that speaks JSON lines on its standard input and output.

The program first gets `{"protocol": "certhead.protocol/1"}` and answers
`{"protocol": "certhead.protocol/1", "name": "..."}`. Then each line is a case without what is wanted,
`{"id": ..., "stage": ..., "in": {...}}`, answered by one of

    {"id": ..., "out": {"limbs": {"unit_exp": ["fff3"], ...}}}
    {"id": ..., "unsupported": true}
    {"id": ..., "error": "one line"}

or, to the first line, by `{"error": "one line"}`, which says that it cannot answer anything here.

A program that dies, answers late or answers nonsense fails that case and is started again, a few times. It
runs as the head of a session of its own, so that whatever it starts ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from certhead.conformance.cases import Case

from .base import Result, Unsupported

PROTOCOL = "certhead.protocol/1"
TIMEOUT = 60.0  # seconds for one answer
RESTARTS = 3


class ProgramFailed(Exception):
    """The program died, hung, or broke the protocol."""


class ProgramUnusable(Exception):
    """The program says that it cannot run here at all."""


class ExternalDriver:
    """Runs `command` and asks it case after case."""

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        name: str | None = None,
        timeout: float = TIMEOUT,
        start_timeout: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.command = shlex.split(command) if isinstance(command, str) else list(command)
        self.name = name or f"external:{shlex.join(self.command)}"
        self.timeout = timeout
        self.start_timeout = start_timeout or timeout
        self.environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._refused: ProgramFailed | ProgramUnusable | None = None

    def ready(self) -> None:
        """Starts the program."""
        try:
            self._start()
        except (ProgramFailed, ProgramUnusable) as problem:
            self.close()
            self._refused = problem

    def results(self, cases: Sequence[Case]) -> Iterator[Result]:
        """One result for each case. Raises ProgramFailed when the program failed too often to go on, and
        ProgramUnusable when it says that it cannot run.
        """
        failures = 0
        for case in cases:
            if failures > RESTARTS:
                raise ProgramFailed(f"the program failed {failures} times")
            try:
                yield self._ask(case)
            except Unsupported as skipped:
                yield skipped
            except ProgramFailed as problem:
                failures += 1
                self.close()
                yield problem

    def _ask(self, case: Case) -> Result:
        refused, self._refused = self._refused, None
        if refused:
            raise refused
        if self._process is None:
            self._start()
        reply = self._exchange({"id": case.id, "stage": case.stage, "in": case.given}, self.timeout)
        if reply.get("id") != case.id:
            raise ProgramFailed(f"answered {reply.get('id')!r} to {case.id!r}")
        if reply.get("unsupported"):
            raise Unsupported
        if "error" in reply:
            return ValueError(str(reply["error"]))
        out = reply.get("out")
        if not isinstance(out, dict) or not all(isinstance(fields, dict) for fields in out.values()):
            raise ProgramFailed("the answer has no usable 'out'")
        return out

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
                env=self.environment,
                start_new_session=True,
            )
        except OSError as problem:
            raise ProgramFailed(f"{self.command[0]}: {problem.strerror}") from None
        self._lines = queue.Queue()
        threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()
        hello = self._exchange({"protocol": PROTOCOL}, self.start_timeout)
        if "error" in hello:
            raise ProgramUnusable(str(hello["error"]))
        if hello.get("protocol") != PROTOCOL:
            raise ProgramFailed(f"speaks {hello.get('protocol')!r}, not {PROTOCOL!r}")

    def _exchange(self, request: dict[str, Any], timeout: float) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None:
            raise ProgramFailed("the program was ended")
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = self._lines.get(timeout=timeout)
        except (OSError, ValueError):  # ValueError: the pipe was closed from another thread
            line = None
        except queue.Empty:
            raise ProgramFailed(f"no answer within {timeout:g} s") from None
        if line is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=5)
            raise ProgramFailed(f"the program ended with exit status {process.returncode}")
        try:
            reply = json.loads(line)
        except json.JSONDecodeError:
            raise ProgramFailed(f"answered {line.strip()[:80]!r}, which is not JSON") from None
        if not isinstance(reply, dict):
            raise ProgramFailed(f"answered {line.strip()[:80]!r}, which is not an object")
        return reply

    def close(self) -> None:
        """Ends the program."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    assert process.stdout is not None
    with contextlib.suppress(ValueError):  # closed while waiting
        for line in process.stdout:
            lines.put(line)
    lines.put(None)
