"""Serves a built-in driver over the protocol of `external`: `python -m ….drivers.serve NAME`.

Every built-in driver runs this way: so several run at a time, and one that crashes or hangs is one failed
case; and the interpreter must be chosen before Triton is imported.
"""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from certhead.conformance.cases import Case

from .base import CaseByCase, Unsupported
from .external import PROTOCOL
from .registry import in_process


def serve(driver: CaseByCase, requests: TextIO, replies: TextIO) -> None:
    """Answers until the requests end."""
    for line in requests:
        record = json.loads(line)
        if "protocol" in record:
            reply: dict[str, Any] = {"protocol": PROTOCOL, "name": driver.name}
        else:
            case = Case(record["id"], record["stage"], "", record["in"], {})
            try:
                reply = {"id": case.id, "out": driver.answer(case)}
            except Unsupported:
                reply = {"id": case.id, "unsupported": True}
            except Exception as problem:
                text = " ".join(str(problem).split())
                reply = {"id": case.id, "error": f"{type(problem).__name__}: {text[:300]}"}
        print(json.dumps(reply), file=replies, flush=True)


def main(name: str) -> None:
    """Makes the driver, or says in its first answer why there is none here."""
    try:
        driver = in_process(name)
    except Exception as problem:
        text = " ".join(str(problem).split())
        sys.stdin.readline()
        print(json.dumps({"error": f"{type(problem).__name__}: {text[:300]}"}), flush=True)
        return
    serve(driver, sys.stdin, sys.stdout)
    driver.close()


if __name__ == "__main__":
    main(sys.argv[1])
