"""The audit's page: one self-contained HTML file that shows a record's verdicts and what they rest on.

Everything on it comes from the record, so the page of a committed record can be made again:
`python -m certhead.conformance.audit.report RECORD.json PAGE.html`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path
from typing import Any

import jinja2

from .enclosure import LEAST
from .record import Entry, Verdict, read

TEMPLATES = Path(__file__).parents[1] / "templates"
COLORS = {Verdict.IDENTIFIED: "exact", Verdict.ENCLOSED: "enclosed", Verdict.REFUTED: "refuted"}
TOP = 4  # the histogram's last bin holds everything from 2^TOP on


@dataclass(frozen=True)
class Group:
    """The entries of one weight shape, head and setting, in the order of their batch shapes."""

    entries: tuple[Entry, ...]

    @property
    def title(self) -> str:
        """The shape with what sets it apart."""
        first = self.entries[0]
        parts = [f"{first.rows:,} × {first.columns:,}"]
        parts += [first.dtype] if first.dtype == "FP32" else []
        parts += [f"head {first.head}"] if first.head else []
        parts += [first.condition] if first.condition else []
        return ", ".join(parts)

    @property
    def model(self) -> str | None:
        """The model of all entries, or None where they differ."""
        models = {entry.model for entry in self.entries}
        return models.pop() if len(models) == 1 else None


@dataclass(frozen=True)
class Strip:
    """One line of the histogram: a batch shape, or all of them; `bars` are heights from 0 to 1 by bin."""

    label: str
    results: int
    bars: tuple[float, ...]
    counts: tuple[int, ...]


def groups(entries: Sequence[Entry]) -> list[Group]:
    """The entries by weight shape, type, head and setting, in order of appearance."""
    kinds: dict[tuple[object, ...], list[Entry]] = {}
    for e in entries:
        kinds.setdefault((e.rows, e.columns, e.dtype, e.head, e.condition), []).append(e)
    return [Group(tuple(sorted(part, key=lambda e: e.positions))) for part in kinds.values()]


def strip(label: str, histograms: Sequence[Mapping[str, int] | None]) -> Strip | None:
    """The sum of histograms on a logarithmic scale; None where nothing was counted."""
    counts = [0] * (TOP - LEAST + 1)
    for histogram in histograms:
        for e, n in (histogram or {}).items():
            counts[min(int(e), TOP) - LEAST] += n
    top = max(counts)
    if not top:
        return None
    bars = tuple(0.0 if n == 0 else (1 + log10(n)) / (1 + log10(top)) for n in counts)
    return Strip(label, sum(counts), bars, tuple(counts))


def probes(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row for each kind of product, parameter and value, with the batch shapes at which it was fixed."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for p in record.get("probes", ()):
        row = rows.setdefault(
            (p["product"], p["parameter"], p["value"]), {**p, "probes": 0, "where": set(), "witness": None}
        )
        row["probes"] += p["probes"] * len(p["positions"])
        row["where"] |= set(p["positions"])
        row["witness"] = row["witness"] or p["witness"]
    return [{**row, "where": ", ".join(map(str, sorted(row["where"])))} for row in rows.values()]


def step_parameters(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parameters that recorded single steps fixed: one row each, with all values that they rule out."""
    rows: dict[str, dict[str, Any]] = {}
    for p in record.get("parameters", ()):
        if p["parameter"] == "all":
            continue
        row = rows.setdefault(
            p["parameter"], {**p, "alternatives": [], "witness": p["witness"], "fewest": p["mismatches"]}
        )
        row["alternatives"].append(p["alternative"])
        row["fewest"] = min(row["fewest"], p["mismatches"])
    return list(rows.values())


def render(record: Mapping[str, Any]) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    entries = [Entry.from_json(entry) for entry in record["entries"]]
    counts = {verdict: sum(e.verdict is verdict for e in entries) for verdict in Verdict}
    return environment.get_template("audit.html.j2").render(
        record=record,
        versions=record.get("versions") or record.get("environment", {}),
        entries=entries,
        groups=groups(entries),
        counts=counts,
        colors=COLORS,
        verdicts=Verdict,
        overall=strip("all", [e.histogram for e in entries]),
        strip=strip,
        least=LEAST,
        top=TOP,
        probes=probes(record),
        parameters=step_parameters(record),
        directed=sum(compared for e in entries for compared, _ in e.directed.values()),
        logits=sum(e.logits for e in entries),
        mismatches=sum(e.mismatches for e in entries if e.verdict is Verdict.IDENTIFIED),
        enclosed=sum(e.enclosure_logits for e in entries),
        outside=sum(e.outside for e in entries),
    )


def write_report(record: Mapping[str, Any], path: Path) -> None:
    """Write the page to `path`; it needs no other file and no network."""
    path.write_text(render(record), "utf-8")


def main() -> None:
    """Command line: a record, and where to put its page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("page", type=Path)
    arguments = parser.parse_args()
    write_report(read(arguments.record), arguments.page)


if __name__ == "__main__":
    main()
