"""Serves a built-in driver over the protocol of `external`: `python -m ….drivers.serve NAME`.

`interpret` and `cuda` run this way, because the interpreter must be chosen before Triton is imported, and
so that a crash on a device is one failed case.
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


if __name__ == "__main__":
    serve(in_process(sys.argv[1]), sys.stdin, sys.stdout)
