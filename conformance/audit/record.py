"""The audit's verdicts, as data: what may be trusted at which shape, and how often it was put to the test.

`identified`: the results were the model's, bit for bit, on everything that was tried, so exact mode may
recompute them. `enclosed only`: the bits are not those of a known model, but nothing left the error
model's interval. `refuted`: something did, and neither mode may be used. All three are findings about one
evidence key; another key has no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

SCHEMA = "certhead.audit/1"


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
    order: str | None = None  # the summation order that the masking probes revealed
    distributions: Mapping[str, Sequence[int]] = field(default_factory=dict)  # compared, mismatches
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


def find(entries: Sequence[Entry], key: str) -> Entry | None:
    """The entry for an evidence key; None where the machine at hand has not earned any verdict."""
    return next((entry for entry in entries if entry.key == key), None)


def load(path: Path) -> list[Entry]:
    """The entries of a committed record. Raises `ValueError` for another schema."""
    data = json.loads(path.read_text("utf-8"))
    if data.get("schema") != SCHEMA:
        raise ValueError(f"{path}: schema {data.get('schema')!r}, not {SCHEMA!r}")
    return [Entry.from_json(entry) for entry in data["entries"]]
