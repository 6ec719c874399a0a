"""The stock head of a GPU under audit: what is measured beside the emulator's comparison, and the verdict.

`audit` finds the order and the adder of a product and compares it with their emulation; here the stock
logits of a whole head meet the kernel that the re-score uses, by the hundred million, and the entry that
comes of both says what exact mode may rest on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from certhead.conformance.bench import Shape, gaussian_head
from certhead.kernels.identify import evidence_key, key_hash

from . import device
from .audit import REQUIRED, Finding
from .enclosure import Enclosure
from .record import CHAIN, REQUIRED_LOGITS, Entry, checks_of, judge
from .saved_head import SavedHead

LIMIT_S = 15.0  # for the logits of one batch shape; an H200 needs 3
SWEEP_LOGITS = 1_000_000  # at each batch shape of the sweep
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def head_of(loaded: SavedHead | None, rows: int, columns: int) -> device.Head:
    """The head whose logits are compared: the saved one, or a Gaussian one."""
    if loaded is not None:
        return device.Head.of(loaded.weight, loaded.hidden)
    return device.Head.of(gaussian_head(Shape(rows, columns), device.DEVICE))


def condition() -> str | None:
    """The settings that are not the default, in words."""
    parts = [f"{WORKSPACE}={os.environ[WORKSPACE]}"] if os.environ.get(WORKSPACE) else []
    if not _reduced_precision():
        parts.append("allow_bf16_reduced_precision_reduction=False")
    return ", ".join(parts) or None


def _reduced_precision() -> bool:
    allowed = torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    return bool(allowed[0] if isinstance(allowed, tuple) else allowed)


@dataclass
class Measured:
    """What one batch shape came to; a measurement that failed is a line in `problems`, not a zero."""

    positions: int
    found: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def measure(head: device.Head, positions: int, logits: int, bar: Callable[[str, int, int], None]) -> Measured:
    """Every measurement of `device.measurements` at one batch shape; `bar` is told which, and how many."""
    out = Measured(positions)
    todo = device.measurements(head, positions, logits=logits, seconds=LIMIT_S)
    for done, (name, work) in enumerate(todo.items()):
        bar(f"stock M={positions}: {name}", done, len(todo))
        try:
            out.found[name] = work()
        except Exception as problem:  # one measurement must not take the others down
            out.problems.append(f"{name} was not measured: {type(problem).__name__}: {str(problem)[:200]}")
    bar(f"stock M={positions}: done", len(todo), len(todo))
    return out


def entry_of(
    finding: Finding, measured: Measured, head: device.Head, name: str | None, wide: Finding | None = None
) -> Entry:
    """One batch shape of a GPU as a record. wide: what was found about the library's FP32 results there.

    Where the emulator's comparison identified another machine than the re-score's chain, the entry speaks
    of that machine, on the directed dot products; otherwise of the chain, on the stock logits and on
    everything else that was compared with it.
    """
    key = evidence_key(head.weight, measured.positions)
    found = measured.found
    seen: Mapping[str, Any] = found.get("logits") or {
        "logits": 0, "mismatches": 0, "by_distribution": {}, "first": None,
    }  # fmt: skip
    enclosure = Enclosure()
    for part in (finding.enclosure, found.get("enclosure"), wide and wide.enclosure):
        if part:
            enclosure.merge(part)
    compared = checks_of(found)
    if wide is not None and wide.machine is not None:
        compared["directed, FP32 results"] = [wide.dot_products, wide.mismatches]
    library = compared.get("FP32 results", [0, 0])
    notes = [*measured.problems, *([finding.order_problem] if finding.order_problem else [])]
    other_machine = finding.machine is not None and finding.model != CHAIN and not finding.mismatches
    if other_machine:
        logits, mismatches, enough = finding.dot_products, 0, finding.dot_products >= REQUIRED
        compared["the re-score's chain"] = [seen["logits"], seen["mismatches"]]
        notes.append("another machine than the re-score's chain: exact mode does not serve it")
    else:
        logits = seen["logits"]
        mismatches = seen["mismatches"] + library[1] + finding.mismatches
        tried = finding.dot_products >= REQUIRED or finding.machine is None
        enough = tried and logits >= REQUIRED_LOGITS
        if mismatches and not seen["mismatches"]:
            notes.append(f"{mismatches:,} FP32 results or directed dot products are not the model's")
    return replace(
        finding.entry(key_hash(key), key),
        dtype="bfloat16",
        verdict=judge(
            compared=logits if enough else 0,
            required=1,
            mismatches=mismatches,
            enclosure_logits=enclosure.logits,
            outside=enclosure.outside,
        ),
        model=finding.model if other_machine else CHAIN,
        logits=logits,
        mismatches=0 if other_machine else seen["mismatches"],
        dot_products=library[0],
        dot_product_mismatches=library[1],
        enclosure_logits=enclosure.logits,
        outside=enclosure.outside,
        largest_ratio=None if enclosure.ratio is None else float(f"{enclosure.ratio:.4g}"),
        condition=condition(),
        head=name,
        distributions=seen["by_distribution"],
        checks=compared,
        histogram={str(e): n for e, n in sorted(enclosure.histogram.items())} or None,
        kernels=[
            n for n in found.get("kernels", ()) if not n.startswith(("cuda", "cuLaunch", "Activity", "Mem"))
        ],
        counterexample=enclosure.first or seen["first"] or finding.counterexample,
        notes=notes,
    )
