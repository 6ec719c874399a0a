"""`certhead audit`: judge the stock head of the machine at hand, print one page, write the record.

On a CPU the order and the adder are found from outside and put to the test on directed dot products. On a
GPU the stock logits are compared with the re-score kernel as well; the long form of that, with single
steps and every shape, is `python -m certhead.conformance.audit.gpu`.
"""

from __future__ import annotations

import hashlib
import json as json_module
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from certhead.pyref.formats import BF16, FP32, Format
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..errors import BadInput
from .adder import measure
from .assumptions import assumptions
from .audit import Finding, find_order, refute, tasks
from .product import Product, torch_product
from .record import SCHEMA, Entry, Verdict

EXTRA_FP32 = (4096, 576, (1, 16))  # rows, columns, batch shapes of the FP32 product that is judged beside
FEW, MANY = 120_000, 300_000  # directed dot products at one position, where inputs cost most, and at more
GPU_LOGITS = 10_000_000


def audit(
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    shape: Annotated[str, typer.Option(help="Rows and columns of the head, V x K.")] = "49152x576",
    batch_sizes: Annotated[str, typer.Option(help="Batch shapes M, separated by commas.")] = "1,4,16,64",
    json: Annotated[Path | None, typer.Option(help="Write the record to this file, as JSON.")] = None,
    list_assumptions: Annotated[
        bool, typer.Option("--assumptions", help="List what a certificate rests on, and stop.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the directed inputs.")] = 0,
) -> None:
    """Find out what arithmetic the stock head has here, and try to refute it.

    Exit code 0: identified or enclosed at every batch shape. 1: refuted at one. 2: an option was wrong.
    """
    console = Console()
    if list_assumptions:
        show_assumptions(console)
        return
    try:
        rows, columns = _shape(shape)
        batches = _batches(batch_sizes)
        check_device(device)
        if json is not None and not json.absolute().parent.is_dir():
            raise BadInput(f"--json {json}: there is no folder {json.absolute().parent}")
        started = perf_counter()
        products = [torch_product(rows, columns, m, BF16, device) for m in batches]
        if device == "cpu":
            v, k, ms = EXTRA_FP32
            products += [torch_product(v, k, m, FP32) for m in ms]
        with progress_bar(console) as bar:
            findings = [judge_product(product, seed, bar) for product in products]
        entries = [_entry(finding, device) for finding in findings]
    except BadInput as problem:
        print(f"certhead audit: {problem}", file=sys.stderr)
        raise typer.Exit(2) from None
    show(findings, entries, console)
    seconds = perf_counter() - started
    console.print(f"{sum(e.logits for e in entries):,} results compared in {seconds:.0f} s", highlight=False)
    if json is not None:
        record = {
            "schema": SCHEMA,
            "device": entries[0].evidence_key["device"],
            "seconds": round(seconds, 1),
            "seed": seed,
            "entries": [entry.to_json() for entry in entries],
        }
        json.write_text(json_module.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if any(entry.verdict is Verdict.REFUTED for entry in entries if entry.dtype == BF16.name):
        raise typer.Exit(1)


def judge_product(
    product: Product, seed: int, bar: Callable[[str, int, int], None], dot_products: int | None = None
) -> Finding:
    """One product from order to refutation; `bar` is told what is being done, and steps done and to do."""
    wanted = dot_products or (FEW if product.positions == 1 else MANY)
    todo = list(tasks(product, wanted, seed))
    what = f"{product.inputs.name} M={product.positions}"
    finding = Finding(product)
    total = len(todo) + 2
    bar(f"{what}: order", 0, total)
    order = find_order(finding)
    bar(f"{what}: adder", 1, total)
    if order is not None:
        finding.adder = measure(product, order)
    for done, task in enumerate(todo, 2):
        bar(f"{what}: {task.name}", done, total)
        refute(finding, [task])
    bar(f"{what}: done", total, total)
    return finding


@contextmanager
def progress_bar(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """One bar for each product, in turn."""
    progress = Progress(
        TextColumn("{task.description:28}"),
        BarColumn(36),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
    with progress:
        current: list[Any] = []

        def bar(what: str, done: int, total: int) -> None:
            if done == 0:
                current[:] = [progress.add_task(what, total=total)]
            progress.update(current[0], description=what, completed=done, total=total)

        yield bar


def show(findings: Sequence[Finding], entries: Sequence[Entry], console: Console) -> None:
    """The verdicts, and the probe that fixed each parameter of the first product."""
    table = Table(title="audit of torch.matmul", title_justify="left", box=None, pad_edge=False)
    left = ("V×K", "type", "verdict")
    for column in ("V×K", "M", "type", "verdict", "compared", "differ", "outside", "err/bound"):
        table.add_column(column, justify="left" if column in left else "right", no_wrap=True)
    for entry in entries:
        table.add_row(
            f"{entry.rows}×{entry.columns}",
            str(entry.positions),
            entry.dtype,
            entry.verdict.value,
            f"{entry.logits:,}",
            f"{entry.mismatches:,}",
            f"{entry.outside:,}/{entry.enclosure_logits:,}",
            "—" if entry.largest_ratio is None else f"{entry.largest_ratio:.4f}",
        )
    console.print(table)
    for model in dict.fromkeys(entry.model for entry in entries):
        where = ", ".join(f"{e.dtype} M={e.positions}" for e in entries if e.model == model)
        console.print(f"{where}: {model}", highlight=False)
    for finding in findings:
        if finding.order_problem:
            where = f"{finding.product.inputs.name} M={finding.product.positions}"
            console.print(f"{where}: {finding.order_problem}", highlight=False)
    measured = next((f.adder for f in findings if f.adder is not None), None)
    if measured is not None:
        probes = Table(title="\nwhat fixed the adder", title_justify="left", box=None, pad_edge=False)
        for column in ("parameter", "value", "probes", "a probe that rules others out"):
            probes.add_column(column)
        for parameter in measured.parameters:
            probes.add_row(parameter.name, parameter.verdict, str(parameter.probes), parameter.witness or "—")
        console.print(probes)
    show_histogram(entries, console)
    for entry in entries:
        if entry.mismatches or entry.outside:
            console.print(f"counterexample, M={entry.positions}: {entry.counterexample}", highlight=False)


def show_histogram(entries: Sequence[Entry], console: Console) -> None:
    """How near the results come to the any-order bound, over all products."""
    total: dict[int, int] = {}
    for entry in entries:
        for name, results in (entry.histogram or {}).items():
            total[int(name)] = total.get(int(name), 0) + results
    if not total:
        return
    table = Table(title="\nerror/bound (any order)", title_justify="left", box=None, pad_edge=False)
    table.add_column("below", justify="right")
    table.add_column("results", justify="right")
    table.add_column("")
    for e in range(min(total), max(total) + 1):
        count = total.get(e, 0)
        table.add_row(f"2^{e}", f"{count:,}", "█" * round(40 * count / max(total.values())))
    console.print(table)


def show_assumptions(console: Console) -> None:
    """The table of assumptions."""
    table = Table(title="what a certificate rests on", title_justify="left", show_lines=True)
    for column in ("name", "assumption", "enters", "tested", "power"):
        table.add_column(column)
    for row in assumptions():
        table.add_row(row.name, row.says, row.enters, row.tested or "not tested: assumed", row.power or "—")
    console.print(table)


def check_device(device: str) -> None:
    """Raises `BadInput` for a device that is not there."""
    import torch

    if device not in ("cpu", "cuda"):
        raise BadInput(f"--device {device}: cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: torch sees no CUDA device")


def _entry(finding: Finding, device: str) -> Entry:
    rows, columns, positions = finding.product.shape
    if device == "cpu":
        key = cpu_key(rows, columns, positions, finding.product.inputs)
        return finding.entry(_hash(key), key)
    import torch

    from ..bench import Shape, gaussian_head
    from .device import Head, compare_logits

    seen = compare_logits(
        Head.of(gaussian_head(Shape(rows, columns), torch.device(device))), positions, GPU_LOGITS, 10.0
    )
    entry = finding.entry(seen["key"], seen["evidence_key"])
    # the re-score's bits are what exact mode uses: a difference there is no identification
    verdict = entry.verdict
    if seen["mismatches"] and verdict is Verdict.IDENTIFIED:
        verdict = Verdict.ENCLOSED
    return replace(
        entry,
        verdict=verdict,
        logits=seen["logits"],
        mismatches=seen["mismatches"],
        counterexample=entry.counterexample or seen["first"],
    )


def cpu_key(rows: int, columns: int, positions: int, inputs: Format) -> dict[str, Any]:
    """Everything that may change the arithmetic of torch's matmul on this CPU."""
    import torch

    return {
        "device": f"cpu {torch.backends.cpu.get_cpu_capability()}",
        "machine": platform.machine(),
        "torch": torch.__version__,
        "mkldnn": torch.backends.mkldnn.is_available(),
        "threads": torch.get_num_threads(),
        "dtype": inputs.name,
        "shape": [positions, rows, columns],
    }


def _hash(key: dict[str, Any]) -> str:
    return hashlib.sha256(json_module.dumps(key, sort_keys=True).encode()).hexdigest()[:24]


def _shape(text: str) -> tuple[int, int]:
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) != 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise BadInput(f"--shape {text}: not of the form 49152x576")
    return int(parts[0]), int(parts[1])


def _batches(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise BadInput(f"--batch-sizes {text}: whole numbers above 0, separated by commas")
    return list(dict.fromkeys(int(part) for part in parts))
