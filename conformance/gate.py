"""The gate: a kernel may change only together with evidence that it still computes the same bits.

`source_hash` names the meaning of the kernels and of the reference that they are compared with; evidence
carries the hash that it was made for, and evidence for another hash does not count.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
KERNELS = (
    "decision", "quantize", "rounding", "torch_stages", "triton_enclosed", "triton_enclosed_stages",
    "triton_head", "triton_stages",
)  # fmt: skip
TILES = ("configurations", "fitting")  # functions of kernels/plan.py


def meaning_files(root: Path = REPOSITORY) -> list[Path]:
    """The sources that decide which bits a kernel computes: stages, launches, and the spec's constants.

    What only chooses between them (plan, identification, the module) is left out: no choice of theirs can
    change a bit of a stage.
    """
    return sorted([*(root / "kernels" / f"{name}.py" for name in KERNELS), root / "pyref" / "head.py"])


def code_only(source: str) -> str:
    """Python source without comments, docstrings and blank lines: prose may change without new evidence.

    Works on positions, not on printed trees, so that every Python version gives the same text.
    """
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            first, last = node.lineno, node.end_lineno or node.lineno
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip()) + "\n"


def tiles(root: Path = REPOSITORY) -> str:
    """The code that lists the tiles a screen may run with."""
    source = (root / "kernels" / "plan.py").read_text("utf-8")
    nodes = (n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name in TILES)
    return "".join(code_only(ast.get_source_segment(source, n) or "") for n in nodes)


def source_hash(root: Path = REPOSITORY) -> str:
    """SHA-256 of what decides a kernel's bits, in hex; the same on every machine and Python version."""
    digest = hashlib.sha256()
    for path in meaning_files(root):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0")
        digest.update(code_only(path.read_text("utf-8")).encode() + b"\0")
    digest.update(tiles(root).encode())
    return digest.hexdigest()


SCHEMA = "certhead.kernels/1"
EVIDENCE = Path(__file__).parent / "evidence"


def evidence_problems(folder: Path = EVIDENCE, root: Path = REPOSITORY) -> list[str]:
    """Why the GPU evidence does not cover the sources as they are: one line a reason, none if it does.

    One `kernels-*.json` with the present hash and no difference is enough; evidence for other sources is
    history, unless there is no other.
    """
    paths = sorted(folder.glob("kernels-*.json"))
    if not paths:
        return [f"{folder}: no kernels-*.json; run `certhead kernels` on a GPU"]
    now = source_hash(root)
    problems = []
    for path in paths:
        found = _record_problems(path, now)
        if not found:
            return []
        problems += found
    return problems


def _record_problems(path: Path, now: str) -> list[str]:
    try:
        record = json.loads(path.read_text("utf-8"))
        schema, made_for, stages, tokens = (record[k] for k in ("schema", "source_hash", "stages", "tokens"))
        if schema != SCHEMA:
            return [f"{path}: schema {schema!r} is not {SCHEMA!r}"]
        if made_for != now:
            return [
                f"{path}: made for sources {made_for[:16]}, these are {now[:16]}; "
                "run `certhead kernels` on a GPU"
            ]
        problems = [
            f"{path}: stage {s['stage']}: {s['differing']} of {s['compared']} values differ"
            for s in stages
            if s["differing"] or not s["compared"]
        ]
        if tokens["differing"] or not tokens["positions"] or not stages:
            problems.append(f"{path}: {tokens['differing']} of {tokens['positions']} tokens differ")
    except (OSError, ValueError, KeyError, TypeError) as problem:
        return [f"{path}: not a kernel record: {type(problem).__name__}: {problem}"]
    return problems
