"""The audit's verdicts, as data: what may be trusted at which shape, and how often it was put to the test.

`identified`: the results were the model's, bit for bit, on everything that was tried, so exact mode may
recompute them. `enclosed only`: the bits are not those of a known model, but nothing left the error
model's interval. `refuted`: something did, and neither mode may be used. All three are findings about one
evidence key; another key has no verdict. `kernels.audit_record` is what the head reads of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

# as in kernels.audit_record, which reads these records; importing it would import torch
SCHEMA = "certhead.audit/1"
CHAIN = "fdpa(group=16, fraction_bits=25) chain in increasing k"
REQUIRED_LOGITS = 100_000_000  # stock logits without a difference before a shape on a GPU is identified


class Verdict(Enum):
    """What an entry allows."""

    IDENTIFIED = "identified"
    ENCLOSED = "enclosed only"
    REFUTED = "refuted"


@dataclass(frozen=True)
class Entry:
    """One product at one shape. Counts that were not taken are None, never zero."""

    rows: int
    columns: int
    positions: int
    dtype: str
    verdict: Verdict
    model: str  # the model that the bits were compared with
    logits: int  # compared as the stock head returns them
    mismatches: int  # of those
    dot_products: int  # compared otherwise: FP32 results, or directed inputs
    dot_product_mismatches: int  # of those
    enclosure_logits: int  # tried against the any-order interval
    outside: int  # of those
    largest_ratio: float | None  # largest |error|/bound seen
    key: str  # hash of `evidence_key`
    evidence_key: Mapping[str, Any]
    condition: str | None = None  # a setting that is not the default
    head: str | None = None  # what weight it was; None: a Gaussian one
    order: str | None = None  # the summation order that the masking probes revealed
    distributions: Mapping[str, Sequence[int]] = field(default_factory=dict)  # compared, mismatches
    directed: Mapping[str, Sequence[int]] = field(default_factory=dict)  # the same, with the emulated model
    checks: Mapping[str, Sequence[int]] = field(default_factory=dict)  # the same, of other products
    inputs_sha256: str | None = None  # of all directed inputs, in order
    histogram: Mapping[str, int] | None = None  # "e": results with error/bound in [2^(e-1), 2^e)
    kernels: Sequence[str] = field(default_factory=list)
    counterexample: Mapping[str, Any] | None = None
    notes: Sequence[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The entry as it is committed."""
        return {**asdict(self), "verdict": self.verdict.value}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Entry:
        """The inverse of `to_json`. Raises `TypeError` or `ValueError` for anything else."""
        return Entry(**{**data, "verdict": Verdict(data["verdict"])})


def judge(*, compared: int, required: int, mismatches: int, enclosure_logits: int, outside: int) -> Verdict:
    """The verdict that counts support.

    Nothing compared is nothing identified; an interval that was never tried encloses nothing.
    """
    if outside:
        return Verdict.REFUTED
    if mismatches == 0 and compared >= required:
        return Verdict.IDENTIFIED
    return Verdict.ENCLOSED if enclosure_logits else Verdict.REFUTED


def checks_of(found: Mapping[str, Any]) -> dict[str, list[int]]:
    """The comparisons beside the BF16 logits at one batch shape: how many values, how many differ.

    found: what `device.measurements` returned, by name.
    """
    out: dict[str, list[int]] = {}
    wide, fp16, gathered = found.get("wide"), found.get("fp16"), found.get("gathered")
    if wide:
        if "library_fp32_problem" not in wide:
            out["FP32 results"] = [wide["values"], wide["library_fp32"]]
        out["re-score and plain loop"] = [wide["values"], wide["rescore"]]
        out["mma.sync and wgmma"] = [wide["values"], wide["mma_sync"]]
    if fp16:
        out["FP16 inputs, FP16 results"] = [fp16["values"], fp16["fp16"]]
        if "fp32_problem" not in fp16:
            out["FP16 inputs, FP32 results"] = [fp16["values"], fp16["fp32"]]
    for count, seen in (gathered or {}).items():
        out[f"{count} rows gathered, stock"] = [seen["values"], seen["library"]]
        out[f"{count} rows gathered, loop"] = [seen["values"], seen["loop"]]
    return out


def find(entries: Sequence[Entry], key: str) -> Entry | None:
    """The entry for an evidence key; None where the machine at hand has not earned any verdict."""
    return next((entry for entry in entries if entry.key == key), None)


def load(path: Path) -> list[Entry]:
    """The entries of a committed record. Raises `ValueError` for another schema."""
    return [Entry.from_json(entry) for entry in read(path)["entries"]]


def read(path: Path) -> dict[str, Any]:
    """A whole record. Raises `ValueError` for another schema."""
    data: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if data.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {data.get('schema')!r}, not {SCHEMA!r}")
    return data


def merged(record: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """A record with the entries of another run on the same device; one of the same key and head is replaced.

    Probes and sweeps of both are kept, and `runs` says when and with what each was made. Raises `ValueError`
    when the devices differ.
    """
    if record["device"] != run["device"]:
        raise ValueError(f"a record of {run['device']} does not belong to one of {record['device']}")
    new = {_identity(entry): entry for entry in run["entries"]}
    entries = [new.pop(_identity(entry), entry) for entry in record["entries"]] + list(new.values())
    out = {**record, "entries": entries}
    for name in ("probes", "sweeps"):
        both = [*record.get(name, ()), *run.get(name, ())]
        out[name] = [item for i, item in enumerate(both) if item not in both[:i]]
    made = {name: run.get(name) for name in ("date", "versions", "seed", "seconds")}
    out["runs"] = [*record.get("runs", ()), made]
    return out


def slug(device: str) -> str:
    """A device's name in a file name."""
    return re.sub(r"[^a-z0-9]+", "-", device.lower().replace("nvidia", "")).strip("-")


def _identity(entry: Mapping[str, Any]) -> tuple[str, str | None]:
    return entry["key"], entry.get("head")


def one_line_an_item(record: Mapping[str, Any]) -> str:
    """JSON with one line for each item of the top-level lists and tables: short, and diffs stay readable."""

    def compact(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    parts = []
    for name, value in record.items():
        if isinstance(value, dict) and len(compact(value)) > 200:
            lines = ",\n".join(f"  {compact(key)}: {compact(item)}" for key, item in value.items())
            parts.append(f" {compact(name)}: {{\n{lines}\n }}")
        elif isinstance(value, list) and value:
            lines = ",\n".join(f"  {compact(item)}" for item in value)
            parts.append(f" {compact(name)}: [\n{lines}\n ]")
        else:
            parts.append(f" {compact(name)}: {compact(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"
