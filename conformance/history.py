"""What earlier runs found, kept in the cache: for the trend, and the mutants' table, of the report."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cache import cache_dir
from .resume import REPOSITORY, source_files_hash

RUNS = "conform-runs.jsonl"
MUTANTS_RECORD = "mutants.json"
MUTANTS_SCHEMA = "certhead.mutants/1"
KEPT = 50  # runs
SHOWN = 4  # earlier runs that a report shows
TESTED_SOURCES = (
    "pyref/**/*.py",
    "kernels/**/*.py",
    "conformance/mutants.toml",
    "conformance/corpus/*.jsonl",
)
MOST_KILLING = 5  # cases that are shown
EVIDENCE = Path(__file__).parent / "evidence"


def hash_under_test(root: Path = REPOSITORY) -> str:
    """SHA-256 of what a mutants' run is about: reference, kernels, mutants, corpus."""
    return source_files_hash(root, TESTED_SOURCES)


@dataclass(frozen=True)
class MutantsRecord:
    """The last full run of the mutants."""

    record: dict[str, Any]
    fresh: bool  # made for the sources as they are

    @property
    def by_driver(self) -> list[tuple[str, int, int, int]]:
        """(driver, mutants, killed, killed by tokens alone)."""
        rows: dict[str, list[int]] = {}
        for mutant in self.record["mutants"]:
            row = rows.setdefault(mutant["name"].partition("/")[0], [0, 0, 0])
            row[0] += 1
            row[1] += mutant["killed"]
            row[2] += mutant["tokens_only"]
        return [(driver, *counts) for driver, counts in rows.items()]  # type: ignore[misc]

    @property
    def most_killing(self) -> list[tuple[str, int]]:
        """(case, mutants that it was the first to kill), the deadliest first."""
        counts: dict[str, int] = {}
        for mutant in self.record["mutants"]:
            if mutant["killed"] and mutant["after"] is not None:
                case = mutant["by"].partition(":")[0]
                counts[case] = counts.get(case, 0) + 1
        return sorted(counts.items(), key=lambda found: -found[1])[:MOST_KILLING]

    @property
    def survivors(self) -> list[str]:
        """Mutants that no case told from the right package."""
        return [mutant["name"] for mutant in self.record["mutants"] if not mutant["killed"]]

    def to_json(self) -> dict[str, Any]:
        """For `certhead conform --json`."""
        return {
            "date": self.record["date"],
            "fresh": self.fresh,
            "total": self.record["total"],
            "killed": self.record["killed"],
            "killed_by_tokens_only": self.record["killed_by_tokens_only"],
            "survivors": self.survivors,
            "most_killing": [{"case": case, "mutants": n} for case, n in self.most_killing],
            "mutants": self.record["mutants"],
        }


def keep_mutants(record: dict[str, Any]) -> None:
    """Keeps the record of a full run; without a place to keep it there is none."""
    with contextlib.suppress(OSError):
        cache_dir().mkdir(parents=True, exist_ok=True)
        (cache_dir() / MUTANTS_RECORD).write_text(json.dumps(record, indent=1) + "\n", "utf-8")


def last_mutants() -> MutantsRecord | None:
    """The last full run here, else the committed one; None if there is none that can be read."""
    now = hash_under_test()
    found: list[MutantsRecord] = []
    for path in (cache_dir() / MUTANTS_RECORD, EVIDENCE / MUTANTS_RECORD):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            record = json.loads(path.read_text("utf-8"))
            if record["schema"] == MUTANTS_SCHEMA:
                kept = MutantsRecord(record, record["sources"] == now)
                kept.to_json()  # a record that lacks something is none
                found.append(kept)
    return next((kept for kept in found if kept.fresh), found[0] if found else None)


def runs_like(kind: str) -> list[dict[str, Any]]:
    """The summaries of earlier `certhead conform` runs of this kind, the oldest first."""
    runs = []
    with contextlib.suppress(OSError):
        for line in (cache_dir() / RUNS).read_text("utf-8").splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                run = json.loads(line)
                if run["kind"] == kind:
                    runs.append(run)
    return runs


def keep_run(run: dict[str, Any]) -> None:
    """Adds the summary of a run, and forgets the oldest."""
    path = cache_dir() / RUNS
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        lines = [*lines, json.dumps(run, sort_keys=True)][-KEPT:]
        path.write_text("\n".join(lines) + "\n", "utf-8")


def kind_of(*options: object) -> str:
    """A name for runs that may be compared with each other: those with the same options."""
    return hashlib.sha256(json.dumps(options).encode()).hexdigest()[:16]
