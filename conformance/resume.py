"""An interrupted run goes on where it stopped: finished pieces of work are kept until the run is complete.

The file is named by a hash of everything that decides the results (sources, versions, inputs, options), so
nothing stale is ever believed; and it is removed when the run is complete, so a run that was not interrupted
always does its work itself. Pieces are pickled: the file is private to the user, and the sources that read
it are the ones that wrote it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import platform
import threading
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from .cache import cache_dir

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = (
    "pyref/**/*.py",
    "kernels/**/*.py",
    "conformance/**/*.py",
    "conformance/*.toml",
    "formal/**/*.lean",
)
LIBRARIES = ("torch", "numpy", "triton")
FORGOTTEN = 14 * 86400  # seconds after which a record that nobody resumed is removed


def source_files_hash(root: Path = REPOSITORY, patterns: Sequence[str] = SOURCES) -> str:
    """SHA-256 over files as they lie there: by default every source of the packages and of the proofs."""
    digest = hashlib.sha256()
    for path in sorted({path for pattern in patterns for path in root.glob(pattern)}):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def _installed(library: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(library)
    return None


class Unfinished:
    """The finished pieces of one run. `get` and `add` are safe from several threads of one process."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        self._lock = threading.Lock()
        if fresh:
            path.unlink(missing_ok=True)
        self._pieces = _read(path)
        self.resumed = len(self._pieces)

    @classmethod
    def of(cls, command: str, *decisive: object, fresh: bool = False) -> Unfinished:
        """The record of `command` with these inputs; `decisive` must be what JSON can hold."""
        key = [
            source_files_hash(),
            platform.python_version(),
            platform.node(),
            [_installed(library) for library in LIBRARIES],
            *decisive,
        ]
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        folder = cache_dir() / "unfinished"
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.pieces"):
            with contextlib.suppress(OSError):
                if time.time() - old.stat().st_mtime > FORGOTTEN:
                    old.unlink()
        return cls(folder / f"{command}-{name}.pieces", fresh=fresh)

    def get(self, key: str) -> Any | None:
        """The result of a piece, or None."""
        return self._pieces.get(key)

    def add(self, key: str, result: object) -> None:
        """Keeps a result; it is on the disk when this returns."""
        with self._lock:
            self._pieces[key] = result
            with self.path.open("ab") as file:
                pickle.dump((key, result), file)

    def items(self) -> list[tuple[str, Any]]:
        """Everything kept, in the order in which it was finished."""
        return list(self._pieces.items())

    def complete(self) -> None:
        """Forgets everything: the run has ended by itself."""
        self.path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """The pieces up to the first that is not whole, where the file is cut off."""
    pieces: dict[str, Any] = {}
    if not path.exists():
        return pieces
    with path.open("r+b") as file:
        while True:
            whole = file.tell()
            try:
                key, result = pickle.load(file)
            except Exception:  # a torn end can look like anything
                file.truncate(whole)
                return pieces
            pieces[key] = result
