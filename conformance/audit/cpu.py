"""What the audit says about this machine's CPU, in one line: for `certhead conform`, and for who asks.

A full audit takes a minute or two and leaves its verdicts where heads of this machine look for them. Where
there is none under the current key, a short form is run once: one batch shape of a smaller head, over
enough directed dot products for a verdict.
"""

from __future__ import annotations

import hashlib
import json
import platform
from typing import Any

import torch
from certhead.kernels.audit_record import find
from certhead.pyref.formats import BF16, Format

from .audit import REQUIRED

SHORT = (4096, 576, 4)  # rows, columns and positions of the short form
SHORT_DOT_PRODUCTS = REQUIRED


def cpu_name() -> str:
    """The CPU by the instructions that torch's matmul takes it for."""
    return f"cpu {torch.backends.cpu.get_cpu_capability()}"


def cpu_key(rows: int, columns: int, positions: int, inputs: Format) -> dict[str, Any]:
    """Everything that may change the arithmetic of torch's matmul on this CPU."""
    return {
        "device": cpu_name(),
        "machine": platform.machine(),
        "torch": torch.__version__,
        "mkldnn": torch.backends.mkldnn.is_available(),
        "threads": torch.get_num_threads(),
        "dtype": inputs.name,
        "shape": [positions, rows, columns],
    }


def key_hash(key: dict[str, Any]) -> str:
    """A short stable name for a key."""
    return hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:24]


def cpu_verdict_line() -> str:
    """The audit's verdict about this CPU's BF16 product: from a record, or from the short form, run now.

    Looks up the batch shapes of the default audit first. Takes a few seconds once under each key, and
    milliseconds from then on.
    """
    from .command import BATCHES, SHAPE, parse_batches, parse_shape

    rows, columns = parse_shape(SHAPE)
    for v, k, batches in ((rows, columns, parse_batches(BATCHES["cpu"])), (SHORT[0], SHORT[1], [SHORT[2]])):
        found = {m: audited for m in batches if (audited := find(cpu_key(v, k, m, BF16))) is not None}
        if len(found) == len(batches):
            verdicts = dict.fromkeys(a.verdict for a in found.values())
            parts = [
                f"{verdict} at M = {', '.join(str(m) for m, a in found.items() if a.verdict == verdict)}"
                for verdict in verdicts
            ]
            models = list(dict.fromkeys(a.model for a in found.values()))
            results = sum(a.logits for a in found.values())
            return _line(f"{v:,} × {k:,}", "; ".join(parts), models, results)
    return short_form()


def short_form() -> str:
    """Audit one batch shape now, keep what was found, and say it."""
    from .command import Run, facts_of, judge_product, keep
    from .product import torch_product

    rows, columns, positions = SHORT
    product = torch_product(rows, columns, positions)
    finding = judge_product(product, 0, lambda *_: None, SHORT_DOT_PRODUCTS)
    key = cpu_key(rows, columns, positions, BF16)
    entry = finding.entry(key_hash(key), key)
    keep(Run("cpu", rows, columns, [positions], 0, facts=facts_of("cpu"), entries=[entry]).to_json())
    verdict = f"{entry.verdict.value} at M = {positions}"
    return _line(f"{rows:,} × {columns:,}", verdict, [entry.model], entry.logits)


def _line(shape: str, verdict: str, models: list[str], results: int) -> str:
    machines = "; or ".join(models)
    return f"audit of {cpu_name()}, {shape}: {verdict} ({machines}); {results:,} directed dot products"
