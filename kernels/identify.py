"""Is the stock head on this device the tensor-core chain that the re-score repeats?

The contract names the stock head's arithmetic and never assumes it: exact mode is used only for a batch
shape at which this check compared the re-score's BF16 bits with the stock head's on at least a million
logits, over inputs chosen to bring out other orders and other adders, and found none that differ. The
verdict holds for the evidence key alone: any change of device, library or shape makes a new one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path

import torch
import triton

from . import audit_record
from .probes import DISTRIBUTIONS, masked_batches, probe_states, special_states
from .triton_head import TritonPipeline

LOGITS = 1_000_000  # compared per batch shape, at least
WANTED = ("masked", "special", *DISTRIBUTIONS)  # each at least once


@dataclass(frozen=True)
class Identification:
    """What was compared at one batch shape, and how much of it differed."""

    positions: int
    logits: int
    mismatches: int
    distributions: tuple[str, ...]
    key: str
    audited: str | None = None  # the verdict of an audit of this very key, where there is a record

    @property
    def identified(self) -> bool:
        """Whether exact mode may be used under this key."""
        return self.mismatches == 0 and self.logits >= LOGITS and set(WANTED) <= set(self.distributions)


def evidence_key(weight: torch.Tensor, positions: int) -> dict[str, object]:
    """Everything that may change the stock head's arithmetic."""
    properties = torch.cuda.get_device_properties(weight.device) if weight.is_cuda else None
    return {
        "device": properties.name if properties else "cpu",
        "capability": [properties.major, properties.minor] if properties else None,
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "cublas": _package("nvidia-cublas"),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "workspace": [os.environ.get(v) for v in ("CUBLAS_WORKSPACE_CONFIG", "CUBLASLT_WORKSPACE_SIZE")],
        "reduced_precision": str(torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
        "dtype": str(weight.dtype),
        "shape": [positions, *weight.shape],
        "strides": list(weight.stride()),
    }


def key_hash(key: dict[str, object]) -> str:
    """A short stable name for an evidence key."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]


def _driver() -> str | None:
    try:
        with open("/proc/driver/nvidia/version") as f:
            return f.readline().strip()
    except OSError:
        return None


def _package(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def identify(
    pipeline: TritonPipeline, positions: int, *, logits: int = LOGITS, seed: int = 0
) -> Identification:
    """Compare the re-score's BF16 bits with the stock head's at one batch shape.

    Runs everything that is WANTED and as many batches as `logits` needs; stops at the first batch with a
    difference. Synchronises; not for use under graph capture.
    """
    weight = pipeline.weight
    compared = mismatches = 0
    used: list[str] = []
    for name, hidden in _states(weight, positions, seed):
        count, differing = _compare(pipeline, hidden)
        mismatches += differing
        compared += count
        if name not in used:
            used.append(name)
        if mismatches or (compared >= logits and len(used) == len(WANTED)):
            break
    key = key_hash(evidence_key(weight, positions))
    return Identification(positions, compared, mismatches, tuple(used), key)


def _states(weight: torch.Tensor, positions: int, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
    for hidden in masked_batches(weight, positions, torch.arange(len(weight), device=weight.device), seed):
        yield "masked", hidden
    for hidden in special_states(weight, positions, seed):
        yield "special", hidden
    yield from probe_states(weight, positions, seed)


def recall_or_identify(pipeline: TritonPipeline, positions: int) -> Identification:
    """`identify`, or where an earlier run or an audit did so under the same key, a short re-check of it.

    An earlier run's verdict is checked on one batch, and a difference there discards it; those records are
    one file for each key under `$CERTHEAD_CACHE/identified` (default `~/.cache/certhead/identified`). An
    audit's is checked on everything WANTED once; an audit that did not identify this key is believed.
    """
    evidence = evidence_key(pipeline.weight, positions)
    key = key_hash(evidence)
    audited = audit_record.find(evidence)
    if audited is not None and not audited.exact:
        return Identification(positions, audited.logits, audited.mismatches, (), key, audited.verdict)
    path = audit_record.cache_root() / "identified" / f"{key}.json"
    known = _recall(path, key)
    if known is not None:
        name, hidden = next(probe_states(pipeline.weight, positions, seed=int.from_bytes(os.urandom(4))))
        compared, differing = _compare(pipeline, hidden)
        if not differing:
            used = tuple(dict.fromkeys((*known.distributions, name)))
            return replace(known, logits=known.logits + compared, distributions=used)
    if audited is not None:
        found = identify(pipeline, positions, logits=0)
        return replace(found, logits=audited.logits + found.logits, audited=audited.verdict)
    found = identify(pipeline, positions)
    with contextlib.suppress(OSError):  # without a record the next start identifies again
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}")
        part.write_text(json.dumps(as_record(found, pipeline.weight)))
        part.replace(path)
    return found


def _recall(path: Path, key: str) -> Identification | None:
    """The verdict in a record, if it is one that identifies and was made under this key."""
    try:
        record = json.loads(path.read_text())
        found = Identification(
            record["positions"], record["logits"], record["mismatches"], tuple(record["distributions"]), key
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.identified and record.get("key") == key else None


def _compare(pipeline: TritonPipeline, hidden: torch.Tensor) -> tuple[int, int]:
    """(logits compared, logits whose BF16 bits differ) for one batch; two NaN count as equal."""
    stock = torch.matmul(hidden, pipeline.weight.T)
    ours = pipeline.accumulators(hidden).to(torch.bfloat16)
    differ = stock.view(torch.int16) != ours.view(torch.int16)
    differ &= ~(stock.isnan() & ours.isnan())
    return stock.numel(), int(differ.sum())


def as_record(found: Identification, weight: torch.Tensor) -> dict[str, object]:
    """The JSON form that is cached and committed as evidence."""
    return {
        "verdict": "identified" if found.identified else "not identified",
        "model": "fdpa(group=16, fraction_bits=25) chain, as the device computes it",
        **asdict(found),
        "evidence_key": evidence_key(weight, found.positions),
    }
