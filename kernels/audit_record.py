"""What an audit found under an evidence key: the part of its record that a head reads before it serves.

`certhead audit` writes records, the one of an H200 is committed, and a head looks its own key up here. An
entry speaks for exactly one key: device, driver, library versions, settings, dtype, batch shape, V and K.
A record narrows what may be used and never widens it: `identified` still needs the comparison at start,
`enclosed only` and `refuted` mean that exact mode must not be used, and no entry means that nothing is
known. This module reads files and nothing else, so it needs neither torch nor the audit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

SCHEMA = "certhead.audit/1"
CHAIN = "fdpa(group=16, fraction_bits=25) chain in increasing k"
"""The model that the re-score repeats, by the name under which a record holds it."""
IDENTIFIED = "identified"
REFUTED = "refuted"
COMMITTED = Path(__file__).resolve().parent.parent / "conformance" / "evidence"


@dataclass(frozen=True)
class Audited:
    """What one record says about one key."""

    verdict: str  # identified, enclosed only, or refuted
    model: str
    logits: int
    mismatches: int
    distributions: tuple[str, ...]
    source: str  # the record's file name

    @property
    def exact(self) -> bool:
        """Whether the stock head was identified as the chain that the re-score repeats."""
        return self.verdict == IDENTIFIED and self.model == CHAIN and not self.mismatches


def find(key: Mapping[str, object], folders: Sequence[Path] | None = None) -> Audited | None:
    """What the records say about this evidence key; None where none holds exactly it.

    Where several do, the least favourable counts. folders: by default where `certhead audit` keeps records
    of this machine, and where the committed ones are. A file that is no record is passed over.
    """
    wanted = json.loads(json.dumps(key))
    found = [
        entry
        for folder in (default_folders() if folders is None else folders)
        for path in sorted(folder.glob("audit-*.json"))
        for entry in _entries(path, _stamp(path))
        if entry[0] == wanted
    ]
    return min((audited for _, audited in found), key=lambda a: (a.exact, a.verdict != REFUTED), default=None)


def default_folders() -> tuple[Path, ...]:
    """This machine's own records (`$CERTHEAD_CACHE/audit`, default `~/.cache/certhead/audit`), then the
    committed ones."""
    return own_folder(), COMMITTED


def cache_root() -> Path:
    """Where this machine's findings are kept: `$CERTHEAD_CACHE`, else `~/.cache/certhead`."""
    return Path(os.environ.get("CERTHEAD_CACHE") or Path.home() / ".cache" / "certhead")


def own_folder() -> Path:
    """Where `certhead audit` keeps what it found on this machine."""
    return cache_root() / "audit"


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=32)
def _entries(path: Path, stamp: int) -> tuple[tuple[dict[str, Any], Audited], ...]:
    """A file's keys with what it says about each; `stamp` makes a changed file be read again."""
    return tuple(_read(path))


def _read(path: Path) -> Iterator[tuple[dict[str, Any], Audited]]:
    try:
        data = json.loads(path.read_text("utf-8"))
        if data["schema"] != SCHEMA:
            return
        for entry in data["entries"]:
            used = tuple(entry.get("distributions", ()))
            audited = Audited(
                entry["verdict"], entry["model"], entry["logits"], entry["mismatches"], used, path.name
            )
            yield entry["evidence_key"], audited
    except (OSError, ValueError, KeyError, TypeError):
        return
