"""The mutants, read from `mutants.toml`: what each changes, and how to apply it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).parent / "mutants.toml"


@dataclass(frozen=True)
class Mutant:
    """A named wrong version of one file; the name starts with the driver that must notice."""

    name: str
    path: str
    edits: tuple[tuple[str, str], ...]

    @property
    def driver(self) -> str:
        """The driver that runs the mutated package."""
        return self.name.partition("/")[0]

    def apply(self, source: str) -> str:
        """The mutated source. Raises ValueError where an edit does not apply to exactly one place."""
        for old, new in self.edits:
            if source.count(old) != 1:
                raise ValueError(f"{self.name}: {self.path} has {source.count(old)} places with {old!r}")
            source = source.replace(old, new)
        return source


def read_mutants(path: Path = LIST) -> tuple[Mutant, ...]:
    """All mutants, in the order of the file."""
    records = tomllib.loads(path.read_text("utf-8"))["mutant"]
    return tuple(Mutant(r["name"], r["path"], tuple((old, new) for old, new in r["edits"])) for r in records)


MUTANTS = read_mutants()
