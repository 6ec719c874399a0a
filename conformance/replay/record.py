"""Evidence files: JSON lines that a worker or a verifier writes sample by sample, and anyone can read.

docs/replay-evidence.md defines the format. A bad line costs one sample, never the file: it is named, counted
and passed over. A file whose first line is wrong is refused as a whole. Names that end in `.gz` are
compressed, one gzip member for each line, so that what was flushed can be read after a crash.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, cast

from ..errors import BadInput
from .commitment import root_of, sample_commitment, variant_commitment
from .schema import (
    Flaw,
    footer_data,
    header_data,
    is_footer,
    parse,
    parse_commitment,
    parse_footer,
    parse_header,
    parse_sample,
    sample_data,
    shown,
)
from .trace import Sample, Variant

MAX_LINE = 1 << 26  # bytes; 16,384 depths of 64 entries take 34 MB, and some 0.5 GB when parsed
CHUNK = 1 << 20


@dataclass(frozen=True)
class BadLine:
    """A line that is not judged, and why."""

    file: str
    line: int  # the first is 1
    field: str
    value: str  # shortened to fit
    reason: str
    sample_id: str | None = None  # where the line still tells

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field} = {self.value}: {self.reason}"


@dataclass(frozen=True)
class Batch:
    """A whole file in memory."""

    variant: Variant
    samples: list[Sample]
    bad: list[BadLine]
    root: bytes | None  # the last line's, confirmed; None where there is none, or bad lines forbid to tell


def read(path: Path | str, tokenizer_hash: str | None = None) -> Batch:
    """The samples of a file, and its bad lines.

    Raises BadInput where the file cannot be opened, its first line is not a header of this schema, or the
    header names another tokenizer than `tokenizer_hash`.
    """
    samples, bad = [], []
    with Reader(path, tokenizer_hash) as reader:
        for item in reader:
            if isinstance(item, BadLine):
                bad.append(item)
            else:
                samples.append(item)
    return Batch(reader.variant, samples, bad, reader.root)


class Reader:
    """One pass over a file: iterate to get a Sample, or a BadLine, for each line.

    One sample is held at a time; beside it, some 200 bytes for each sample that has gone by (its id, to find
    duplicates, and its commitment, for the root). Raises BadInput as `read` does.
    """

    def __init__(self, path: Path | str, tokenizer_hash: str | None = None) -> None:
        self.path = Path(path)
        self.root: bytes | None = None  # set by the last line, where it is right
        self.commitments: list[bytes] = []  # of the samples so far
        self.sample_ids: set[str] = set()  # of the samples so far
        self.has_footer = False
        self.bad = 0
        try:
            self._file = _open(self.path)
        except OSError as problem:
            raise BadInput(f"{self.path}: {problem.strerror or problem}") from None
        self._lines = _lines(self._file)
        try:
            self.variant = self._header(tokenizer_hash)
        except BaseException:
            self._file.close()
            raise
        self._variant_commitment = variant_commitment(self.variant)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[Sample | BadLine]:
        number = 1
        try:
            for number, line in enumerate(self._lines, 2):
                item = self._item(number, line)
                if item is not None:
                    yield item
        except (OSError, EOFError, zlib.error) as problem:
            self.bad += 1
            yield BadLine(str(self.path), number + 1, "line", "null", f"cannot be read: {problem}")

    def computed_root(self) -> bytes:
        """The root of the samples so far, bad lines left out."""
        return root_of(self._variant_commitment, self.commitments)

    def _header(self, tokenizer_hash: str | None) -> Variant:
        try:
            line = next(self._lines, b"")
            if not line:
                raise BadInput(f"{self.path}: is empty: the first line must be a header")
            variant = parse_header(parse(line))
        except Flaw as flaw:
            raise BadInput(f"{self.path}:1: {flaw}") from None
        except (OSError, EOFError, zlib.error) as problem:
            raise BadInput(f"{self.path}: cannot be read: {problem}") from None
        if tokenizer_hash is not None and variant.tokenizer_hash != tokenizer_hash:
            raise BadInput(
                f"{self.path}:1: variant.tokenizer_hash = {shown(variant.tokenizer_hash)}: "
                f"another tokenizer than the expected {tokenizer_hash}"
            )
        return variant

    def _item(self, number: int, line: bytes | None) -> Sample | BadLine | None:
        """What a line holds; None for a last line that is right."""
        sample_id = None
        try:
            if line is None:
                raise Flaw("line", None, f"longer than {MAX_LINE} bytes")
            data = parse(line)
            if isinstance(data.get("sample_id"), str):
                sample_id = data["sample_id"]
            if self.has_footer:
                raise Flaw("line", sample_id, "follows the last line, which holds the root")
            if is_footer(data):
                self.has_footer = True
                self._check_footer(data)
                return None
            return self._sample(data)
        except Flaw as flaw:
            self.bad += 1
            return BadLine(str(self.path), number, flaw.field, flaw.value, flaw.reason, sample_id)

    def _sample(self, data: dict[str, Any]) -> Sample:
        sample = parse_sample(data, self.variant.logprobs)
        if sample.sample_id in self.sample_ids:
            raise Flaw("sample_id", sample.sample_id, "an earlier line has it")
        commitment, claimed = sample_commitment(sample), parse_commitment(data)
        if claimed is not None and claimed != commitment:
            raise Flaw("commitment", claimed.hex(), f"the line's content has {commitment.hex()}")
        self.sample_ids.add(sample.sample_id)
        self.commitments.append(commitment)
        return sample

    def _check_footer(self, data: dict[str, Any]) -> None:
        count, root = parse_footer(data)
        if self.bad:
            return  # a root cannot be confirmed without every sample
        if count != len(self.commitments):
            raise Flaw("samples", count, f"the file holds {len(self.commitments)}")
        if root != self.computed_root():
            raise Flaw("root", root.hex(), f"the file's content has {self.computed_root().hex()}")
        self.root = root


def write(path: Path | str, variant: Variant, samples: Iterable[Sample]) -> bytes:
    """Write a whole file, in place of any that is there, and return its root.

    The name appears when the file is complete. Raises ValueError for a sample that no file can hold.
    """
    path = Path(path)
    partial = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        with Writer(partial, variant) as writer:
            for sample in samples:
                writer.append(sample)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return writer.root


class Writer:
    """Append samples to a file, each flushed as it comes; on a file that is there, go on where it stopped.

    A last line that a crash cut short is dropped, and the root of a finished file is taken off until `close`.
    Leaving a `with` block closes, unless by an exception: then the file stays unfinished and can be resumed.

    Raises BadInput where the file cannot be written, holds a bad line, or is of another variant.
    """

    def __init__(self, path: Path | str, variant: Variant) -> None:
        self.path = Path(path)
        self.variant = variant
        self.finished: set[str] = set()  # sample_ids in the file
        self._commitments: list[bytes] = []
        header = _encode(header_data(variant))
        try:
            resumed = self._resume(header)
            self._file = self.path.open("ab")
        except OSError as problem:
            raise BadInput(f"{self.path}: {problem.strerror or problem}") from None
        if not resumed:
            self._write(header)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._file.close()

    @property
    def root(self) -> bytes:
        """The root of the samples so far."""
        return root_of(variant_commitment(self.variant), self._commitments)

    def append(self, sample: Sample) -> bytes:
        """Write one sample and return its commitment.

        Raises ValueError for a sample that no file can hold, or whose id the file has.
        """
        if sample.sample_id in self.finished:
            raise ValueError(f"{self.path}: sample_id {sample.sample_id!r} is in the file already")
        data = sample_data(sample, self.variant.logprobs)
        commitment = sample_commitment(sample)
        self._write(_encode({**data, "commitment": commitment.hex()}))
        self.finished.add(sample.sample_id)
        self._commitments.append(commitment)
        return commitment

    def close(self) -> None:
        """Write the root as the last line: the file is finished."""
        if not self._file.closed:
            self._write(_encode(footer_data(len(self._commitments), self.root)))
            self._file.close()

    def _write(self, line: bytes) -> None:
        self._file.write(self._stored(line))
        self._file.flush()

    def _stored(self, line: bytes) -> bytes:
        return gzip.compress(line, mtime=0) if _compressed(self.path) else line

    def _resume(self, header: bytes) -> bool:
        """Cut the file back to its whole lines without a root, and learn what they hold; False: no lines."""
        if not self.path.exists():
            return False
        ends = list(_line_ends(self.path))
        if not ends:
            with self.path.open("rb") as file:
                start = file.read(CHUNK)
            if not self._stored(header).startswith(start):
                raise BadInput(f"{self.path}: is no evidence file: it cannot be appended to")
            os.truncate(self.path, 0)
            return False
        with Reader(self.path) as reader:
            if reader.variant != self.variant:
                difference = _difference(reader.variant, self.variant)
                raise BadInput(f"{self.path}: another variant wrote it: {difference}")
        os.truncate(self.path, ends[-1])
        with Reader(self.path) as reader:
            for item in reader:
                if isinstance(item, BadLine):
                    raise BadInput(f"{item}; a damaged file cannot be appended to")
        if len(ends) != 1 + len(reader.commitments) + reader.has_footer:
            raise BadInput(f"{self.path}: cannot be appended to: its lines are not one gzip member each")
        if reader.has_footer:
            os.truncate(self.path, ends[-2])
        self.finished, self._commitments = reader.sample_ids, reader.commitments
        return True


def _compressed(path: Path) -> bool:
    return path.suffix == ".gz"


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path)) if _compressed(path) else path.open("rb")


def _encode(data: dict[str, Any]) -> bytes:
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.encode("ascii") + b"\n"


def _difference(there: Variant, here: Variant) -> str:
    """The first field in which two variants differ."""
    name = next(n for n in vars(there) if getattr(there, n) != getattr(here, n))
    return f"{name} = {getattr(there, name)!r} there, {getattr(here, name)!r} now"


def _lines(file: IO[bytes]) -> Iterator[bytes | None]:
    """The lines of a file; None for one that is too long to hold."""
    while line := file.readline(MAX_LINE):
        if len(line) < MAX_LINE or line.endswith(b"\n"):
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(CHUNK)
        yield None


def _line_ends(path: Path) -> Iterator[int]:
    """Where each whole line ends: byte offsets in the file, of gzip members where it is compressed."""
    with path.open("rb") as file:
        if not _compressed(path):
            offset = 0
            while chunk := file.read(CHUNK):
                place = -1
                while (place := chunk.find(b"\n", place + 1)) >= 0:
                    yield offset + place + 1
                offset += len(chunk)
            return
        member = zlib.decompressobj(wbits=31)
        while chunk := file.read(CHUNK):
            while chunk:
                try:
                    member.decompress(chunk)
                except zlib.error:
                    return
                chunk = member.unused_data
                if member.eof:
                    yield file.tell() - len(chunk)
                    member = zlib.decompressobj(wbits=31)
