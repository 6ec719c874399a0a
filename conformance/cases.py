"""Conformance cases as data: one JSON object a line, every value as bits in hex.

A case gives the inputs of one stage of docs/spec.md, or of a whole head (`stage` = "head"), and the bits
that every implementation must return. Schema `certhead.case/1`:

    {"schema": "certhead.case/1", "id": "limbs/ties/3", "stage": "limbs", "family": "ties",
     "in": {...}, "want": {"limbs": {"unit_exp": ["fff3"], ...}}}

`in` holds integers for shapes and options (`group`, `block`, `capacity`, `limb_count`; `ranks`, the first
row of each rank of a head that is split), words for `mode`
and `model`, and hex for values. A list has one string for each row (of the weight) or each position; a
string holds that row's values one after the other, `FIELDS` digits each, two's complement where signed.
In `want`, "" means that the specification says nothing there, "none" that there is no value (no token,
blocks beyond the capacity); `reason` is a word of docs/spec.md, "fallback", or "none".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from .errors import BadInput

SCHEMA = "certhead.case/1"
STAGES = ("quantize", "limbs", "screen", "select", "rescore", "decide", "token")
"""Stages of an answer in pipeline order. "token" is what the head returns, the fallback included."""
CASE_STAGES = (*STAGES[:-1], "head")
CORPUS = Path(__file__).parent / "corpus"
MANIFEST = "SHA256SUMS"

Fields: TypeAlias = dict[str, list[str | None]]
Answer: TypeAlias = dict[str, Fields]
"""Stage → field → one string for each row or position; None where an implementation does not say."""

FIELDS: dict[str, tuple[int, bool]] = {  # digits, signed
    "weight": (4, False), "hidden": (4, False), "scale": (4, False), "codes": (2, True),
    "residual_codes": (2, False), "norm_codes": (2, False), "unit_exp": (4, True), "limb_hi": (2, True),
    "limb_lo": (2, True), "group_shift": (2, False), "group_codes": (2, False), "tail_codes": (8, False),
    "lo": (8, False), "hi": (8, False), "threshold": (4, False), "candidates": (8, False),
    "blocks": (8, False), "accumulators": (8, False), "token": (8, False), "gamma_num": (10, False),
    "code_norm": (8, False), "winners": (8, False),
}  # fmt: skip
NEEDS: dict[str, tuple[str, ...]] = {
    "quantize": ("group", "weight"),
    "limbs": ("group", "limb_count", "gamma_num", "code_norm", "hidden"),
    "screen": (
        "group", "scale", "codes", "residual_codes", "norm_codes", "unit_exp", "limb_hi", "limb_lo",
        "group_shift", "group_codes", "tail_codes",
    ),
    "select": ("block", "capacity", "lo", "hi"),
    "rescore": ("gamma_num", "weight", "hidden"),
    "decide": ("mode",),
    "head": ("mode", "model", "group", "block", "capacity", "limb_count", "weight", "hidden"),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One line of a corpus."""

    id: str
    stage: str
    family: str
    given: dict[str, Any]
    want: Answer

    def to_json(self) -> str:
        """The line, without its end."""
        record = {"schema": SCHEMA, "id": self.id, "stage": self.stage, "family": self.family}
        return json.dumps(record | {"in": self.given, "want": self.want}, separators=(",", ":"))

    def number(self, name: str) -> int:
        """A single hex value of `in`."""
        return int(self.given[name], 16)

    def rows(self, name: str) -> list[list[int]]:
        """A field of `in` as integers, one list for each row or position."""
        return [unpack(name, text) for text in self.given[name]]

    def singles(self, name: str) -> list[int]:
        """A field of `in` that has one value for each row or position."""
        return [row[0] for row in self.rows(name)]


def pack(name: str, values: Iterable[int]) -> str:
    """Values of a field as hex."""
    digits = FIELDS[name][0]
    mask = (1 << 4 * digits) - 1
    return "".join(f"{v & mask:0{digits}x}" for v in values)


def unpack(name: str, text: str) -> list[int]:
    """The inverse of `pack`. Raises ValueError for a length that does not fit or a digit that is none."""
    digits, signed = FIELDS[name]
    if len(text) % digits:
        raise ValueError(f"{len(text)} digits are no multiple of {digits}")
    half, full = 1 << (4 * digits - 1), 1 << 4 * digits
    values = [int(text[i : i + digits], 16) for i in range(0, len(text), digits)]
    return [v - full if signed and v >= half else v for v in values]


def parse(line: str, where: str) -> Case:
    """A case from its line. Raises BadInput naming `where` and what is wrong."""
    try:
        record = json.loads(line)
    except json.JSONDecodeError as problem:
        raise BadInput(f"{where}: not JSON: {problem}") from None
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        got = record.get("schema") if isinstance(record, dict) else type(record).__name__
        raise BadInput(f"{where}: schema {got!r} is not {SCHEMA!r}")
    missing = [key for key in ("id", "stage", "family", "in", "want") if key not in record]
    if missing:
        raise BadInput(f"{where}: no {', '.join(missing)}")
    if record["stage"] not in CASE_STAGES:
        raise BadInput(f"{where}: unknown stage {record['stage']!r}")
    given, want = record["in"], record["want"]
    missing = [key for key in NEEDS[record["stage"]] if key not in given]
    if missing:
        raise BadInput(f"{where}: in has no {', '.join(missing)}")
    unknown = set(want) - set(STAGES)
    if unknown:
        raise BadInput(f"{where}: want has unknown stages {', '.join(sorted(unknown))}")
    for name, value in given.items():
        if name in FIELDS:
            try:
                for text in [value] if isinstance(value, str) else value:
                    unpack(name, text)
            except (TypeError, ValueError) as problem:
                raise BadInput(f"{where}: in.{name}: {problem}") from None
    return Case(record["id"], record["stage"], record["family"], given, want)


def read_file(path: Path) -> list[Case]:
    """The cases of one file. Raises BadInput naming file and line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except OSError as problem:
        raise BadInput(f"{path}: {problem.strerror}") from None
    return [parse(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()]


def read_corpus(folder: Path = CORPUS) -> list[Case]:
    """Every case of a folder, in the order of the file names; the manifest, if there is one, must hold."""
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise BadInput(f"{folder}: no *.jsonl files")
    manifest = folder / MANIFEST
    if manifest.exists() and manifest.read_text("utf-8") != manifest_of(paths):
        raise BadInput(f"{manifest}: does not match the files beside it")
    return [case for path in paths for case in read_file(path)]


def write_corpus(cases: Sequence[Case], folder: Path) -> None:
    """One file for each stage and family, and the manifest. Removes other `*.jsonl` files there."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.jsonl"):
        old.unlink()
    files: dict[str, list[str]] = {}
    for case in cases:
        files.setdefault(f"{case.stage}-{case.family}.jsonl", []).append(case.to_json())
    for name, lines in files.items():
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    (folder / MANIFEST).write_text(manifest_of(sorted(folder / name for name in files)), "utf-8")


def manifest_of(paths: Sequence[Path]) -> str:
    """The manifest as `sha256sum` writes it."""
    return "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in paths)


def corpus_hash(cases: Sequence[Case]) -> str:
    """SHA-256 over the cases, in order."""
    digest = hashlib.sha256()
    for case in cases:
        digest.update(case.to_json().encode() + b"\n")
    return digest.hexdigest()
