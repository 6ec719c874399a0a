"""`certhead audit`: judge the stock head of the machine at hand, print one page, write record and report.

The order and the adder of the product are found from outside and put to the test on directed dot products,
on any device. On a GPU the stock logits of a whole head are compared with the re-score's kernel as well;
the long form of that, with recorded single steps, is `python -m certhead.conformance.audit.gpu`.
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer
from certhead.pyref.formats import BF16, FP32
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..errors import BadInput
from .adder import Measured, measure
from .assumptions import assumptions
from .audit import Finding, RealInputs, find_order, refute, tasks
from .product import Product, torch_product
from .record import SCHEMA, Entry, Verdict, one_line_an_item, slug

if TYPE_CHECKING:
    import torch

    from .saved_head import SavedHead

Bar = Callable[[str, int, int], None]  # what is being done, steps done, steps in all
SHAPE = "49152x576"
BATCHES = {"cpu": "1,4,16,64", "cuda": "1,2,3,4,7,8,16,17,32,48,64,96,128,192,256"}
EXTRA_FP32 = (4096, 576, (1, 16))  # rows, columns, batch shapes of the FP32 product that is judged beside
FEW, MANY = 120_000, 300_000  # directed dot products at one position, where inputs cost most, and at more
GPU_DIRECTED = 120_000  # at each of many batch shapes: more than REQUIRED, and millions in all
GPU_LOGITS = 100_000_000
GPU_LIMIT_S = 200  # after which no batch shape is started
CPU_LIMIT_S = 600
MAX_POSITIONS = 256  # of the re-score's kernel
SWEEP = range(1, MAX_POSITIONS + 1)  # batch shapes of the short form on a GPU
WIDE_AT = 16  # the batch shape at which the library's FP32 results are judged as well, if it is there


def audit(
    device: Annotated[str, typer.Option(help="cpu, or cuda.")] = "cpu",
    shape: Annotated[str | None, typer.Option(help=f"Rows and columns of the head, V x K [{SHAPE}].")] = None,
    batch_sizes: Annotated[
        str | None,
        typer.Option(help=f"Batch shapes M [cpu: {BATCHES['cpu']}; cuda: {BATCHES['cuda']}]."),
    ] = None,
    head: Annotated[
        Path | None,
        typer.Option(help="A saved head (`certhead save-head`): its rows and inputs are used as well."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the record to this file [audit-<device>.json].")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write the report to this file [audit-<device>.html].")
    ] = None,
    list_assumptions: Annotated[
        bool, typer.Option("--assumptions", help="List what a certificate rests on, and stop.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the directed inputs.")] = 0,
    limit: Annotated[
        float | None,
        typer.Option(help=f"Seconds after which no batch shape is started [cuda: {GPU_LIMIT_S}]."),
    ] = None,
    workspace: Annotated[
        str | None, typer.Option(help="CUBLAS_WORKSPACE_CONFIG of this run, e.g. :16:8.")
    ] = None,
    reduced_precision: Annotated[
        bool,
        typer.Option(
            "--reduced-precision/--no-reduced-precision",
            help="Whether torch lets cuBLAS keep BF16 partials (allow_bf16_reduced_precision_reduction).",
        ),
    ] = True,
    sweep: Annotated[
        bool, typer.Option("--sweep/--no-sweep", help="On a GPU: the short form at every M from 1 to 256.")
    ] = True,
) -> None:
    """Find out what arithmetic the stock head has here, and try to refute it.

    Exit code 0: identified or enclosed at every batch shape. 1: refuted at one, or one was not reached in
    time. 2: an option was wrong.

    JSON, schema certhead.audit/1: `device`, `versions`, `entries` (per batch shape: verdict, model, counts,
    distributions, evidence key), `probes` (what fixed each parameter), `sweeps`, `skipped`, `seconds`.
    """
    console = Console()
    if list_assumptions:
        show_assumptions(console)
        return
    try:
        for option, path in (("--json", json), ("--report", report)):
            if path is not None and not path.absolute().parent.is_dir():
                raise BadInput(f"{option} {path}: there is no folder {path.absolute().parent}")
        check_device(device)
        if device == "cuda":
            set_cublas(workspace, reduced_precision)
        run = start(device, shape, batch_sizes or BATCHES[device], head, seed)
        seconds = limit if limit is not None else {"cpu": CPU_LIMIT_S, "cuda": GPU_LIMIT_S}[device]
        outputs = (json or Path(f"audit-{run.slug}.json"), report or Path(f"audit-{run.slug}.html"))
        with progress_bar(console) as bar:
            (examine_cuda if device == "cuda" else examine_cpu)(run, bar, seconds, outputs[0], sweep)
    except BadInput as problem:
        print(f"certhead audit: {problem}", file=sys.stderr)
        raise typer.Exit(2) from None
    from .report import write_report

    show(run, console)
    record = run.write(outputs[0])
    keep(record)
    write_report(record, outputs[1])
    console.print(
        f"{sum(e.logits for e in run.entries):,} results compared in {run.seconds:.0f} s; "
        f"wrote {outputs[0]} and {outputs[1]}",
        highlight=False,
        soft_wrap=True,
    )
    if run.skipped or any(entry.verdict is Verdict.REFUTED for entry in run.entries if entry.dtype != "FP32"):
        raise typer.Exit(1)


@dataclass
class Run:
    """What is audited, and what was found until now."""

    device: str
    rows: int
    columns: int
    batches: list[int]
    seed: int
    loaded: SavedHead | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    probes: list[dict[str, Any]] = field(default_factory=list)
    sweeps: list[dict[str, Any]] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    started: float = field(default_factory=perf_counter)

    @property
    def seconds(self) -> float:
        """Since the run began."""
        return perf_counter() - self.started

    @property
    def slug(self) -> str:
        """The device in a file name."""
        return slug(self.facts["device"])

    @property
    def real(self) -> RealInputs | None:
        """The saved head's rows and inputs, if there are any."""
        return self.loaded.real if self.loaded else None

    def note(self, product: Product, adder: Measured | None) -> None:
        """Keep what the probes of one product fixed, once for all batch shapes that give the same."""
        if adder is None:
            return
        kind = f"{product.inputs.name} inputs, {product.output.name} results"
        for p in adder.parameters:
            row = {
                "product": kind,
                "shape": [product.rows, product.columns],
                "parameter": p.name,
                "value": p.verdict,
                "probes": p.probes,
                "witness": p.witness,
            }
            same = next(
                (r for r in self.probes if {**r, "positions": None} == {**row, "positions": None}), None
            )
            if same is None:
                self.probes.append({**row, "positions": [product.positions]})
            else:
                same["positions"].append(product.positions)

    def to_json(self) -> dict[str, Any]:
        """The record."""
        return {
            "schema": SCHEMA,
            **self.facts,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "probes": self.probes,
            "sweeps": self.sweeps,
            "skipped": self.skipped,
            "entries": [entry.to_json() for entry in self.entries],
        }

    def write(self, path: Path) -> dict[str, Any]:
        """Write the record so far, and return it."""
        record = self.to_json()
        path.write_text(one_line_an_item(record), "utf-8")
        return record


def start(device: str, shape: str | None, batch_sizes: str, head: Path | None, seed: int) -> Run:
    """Parse the options and load the head. Raises `BadInput`."""
    if head is not None and shape is not None:
        raise BadInput(f"--shape {shape}: --head says which shape it is")
    loaded = None
    if head is not None:
        from .saved_head import load_head

        loaded = load_head(head, _place(device))
    rows, columns = loaded.weight.shape if loaded else parse_shape(shape or SHAPE)
    batches = parse_batches(batch_sizes)
    if device == "cuda" and max(batches) > MAX_POSITIONS:
        raise BadInput(f"--batch-sizes {batch_sizes}: at most {MAX_POSITIONS} on a GPU")
    return Run(device, rows, columns, batches, seed, loaded, facts_of(device))


def facts_of(device: str) -> dict[str, Any]:
    """The device, the date and the versions."""
    import torch

    versions: dict[str, Any] = {"torch": torch.__version__, "python": platform.python_version()}
    if device == "cuda":
        from certhead.kernels.identify import evidence_key

        key = evidence_key(torch.zeros((1, 1), dtype=torch.bfloat16, device=_place(device)), 1)
        name = str(key["device"])
        versions |= {part: key[part] for part in ("driver", "cuda", "cublas", "triton")}
    else:
        from .cpu import cpu_name

        name = cpu_name()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"device": name, "date": date, "versions": versions}


def _place(device: str) -> torch.device:
    import torch

    if device == "cpu":
        return torch.device(device)
    from .device import DEVICE

    return DEVICE


def set_cublas(workspace: str | None, reduced_precision: bool) -> None:
    """The settings of cuBLAS, before it starts: it reads its workspace once in a process."""
    import torch

    if workspace is not None:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = workspace
    if not reduced_precision:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def examine_cpu(run: Run, bar: Bar, seconds: float, path: Path, sweep: bool) -> None:
    """Every batch shape of the BF16 product, then two of the FP32 one."""
    from .cpu import cpu_key, key_hash

    v, k, fp32 = EXTRA_FP32
    products = [torch_product(run.rows, run.columns, m, BF16, "cpu") for m in run.batches]
    products += [torch_product(v, k, m, FP32) for m in fp32]
    for product in products:
        if run.seconds > seconds:
            run.skipped.append(product.positions)
            continue
        finding = judge_product(product, run.seed, bar, real=run.real if product.inputs == BF16 else None)
        run.note(product, finding.adder)
        key = cpu_key(*product.shape, product.inputs)
        run.entries.append(finding.entry(key_hash(key), key))


def examine_cuda(run: Run, bar: Bar, seconds: float, path: Path, sweep: bool) -> None:
    """Every batch shape, each written to `path` as soon as it is done; then the sweep."""
    from . import device
    from .stock_head import SWEEP_LOGITS, entry_of, head_of
    from .stock_head import measure as measure_head

    bar("the head", 0, 1)
    head = head_of(run.loaded, run.rows, run.columns)
    bar("the head", 1, 1)
    name = run.loaded.name if run.loaded else None
    wide_at = WIDE_AT if WIDE_AT in run.batches else run.batches[0]
    for positions in run.batches:
        if run.seconds > seconds:
            run.skipped.append(positions)
            continue
        product = torch_product(run.rows, run.columns, positions, BF16, "cuda")
        finding = judge_product(product, run.seed, bar, GPU_DIRECTED, run.real)
        run.note(product, finding.adder)
        wide = None
        if positions == wide_at:
            wide_product = torch_product(run.rows, run.columns, positions, BF16, "cuda", FP32)
            try:
                wide = judge_product(wide_product, run.seed, bar, GPU_DIRECTED, run.real)
            except (RuntimeError, TypeError) as problem:  # older libraries have no FP32 results
                finding.order_problem = finding.order_problem or f"FP32 results: {str(problem)[:120]}"
            else:
                run.note(wide_product, wide.adder)
        measured = measure_head(head, positions, GPU_LOGITS, bar)
        run.entries.append(entry_of(finding, measured, head, name, wide))
        run.write(path)
    if sweep and run.seconds > seconds:
        print("certhead audit: no time was left for the sweep", file=sys.stderr)
    elif sweep:
        bar("every M to 256", 0, 1)
        found = device.sweep(head, SWEEP, SWEEP_LOGITS)
        run.sweeps.append(
            {"shape": [run.rows, run.columns], "condition": condition_of(run), "head": name, **found}
        )
        bar("every M to 256", 1, 1)


def condition_of(run: Run) -> str | None:
    """The settings that are not the default, as the run's entries have them."""
    return run.entries[0].condition if run.entries else None


def keep(record: dict[str, Any]) -> None:
    """Put every entry where heads of this machine look for it, each in its own file."""
    from certhead.kernels.audit_record import own_folder

    shared = {name: record[name] for name in ("schema", "device", "date", "versions")}
    folder = own_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in record["entries"]:
            part = folder / f"{entry['key']}.{os.getpid()}"
            part.write_text(one_line_an_item({**shared, "entries": [entry]}), "utf-8")
            part.replace(folder / f"audit-{entry['key']}.json")
    except OSError as problem:  # without it the record is only where it was asked for
        print(f"certhead audit: the record was not kept in {folder}: {problem}", file=sys.stderr)


def judge_product(
    product: Product,
    seed: int,
    bar: Bar,
    dot_products: int | None = None,
    real: RealInputs | None = None,
) -> Finding:
    """One product from order to refutation; `bar` is told what is being done, and steps done and to do."""
    wanted = dot_products or (FEW if product.positions == 1 else MANY)
    todo = list(tasks(product, wanted, seed, real=real is not None))
    what = f"{product.output.name} M={product.positions}"
    finding = Finding(product)
    total = len(todo) + 2
    bar(f"{what}: order", 0, total)
    order = find_order(finding)
    bar(f"{what}: adder", 1, total)
    if order is not None:
        finding.adder = measure(product, order)
    for done, task in enumerate(todo, 2):
        bar(f"{what}: {task.name}", done, total)
        refute(finding, [task], real)
    bar(f"{what}: done", total, total)
    return finding


@contextmanager
def progress_bar(console: Console) -> Iterator[Bar]:
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


def show(run: Run, console: Console) -> None:
    """The verdicts, and the probe that fixed each parameter of the first product."""
    entries = run.entries
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
    for entry in entries:
        for note in entry.notes:
            console.print(f"{entry.dtype} M={entry.positions}: {note}", highlight=False)
        for what, (compared, differ) in entry.checks.items():
            if differ:
                console.print(
                    f"M={entry.positions}, {what}: {differ:,} of {compared:,} differ", highlight=False
                )
    for swept in run.sweeps:
        console.print(
            f"every M to {swept['batches']}: {swept['logits']:,} logits, "
            f"differing at {', '.join(swept['differing']) or 'none'}",
            highlight=False,
        )
    if run.skipped:
        console.print(f"not reached in time: M = {', '.join(map(str, run.skipped))}", highlight=False)
    if run.probes:
        probes = Table(title="\nwhat fixed the adder", title_justify="left", box=None, pad_edge=False)
        for column in ("parameter", "value", "probes", "a probe that rules others out"):
            probes.add_column(column)
        first = [r for r in run.probes if r["product"] == run.probes[0]["product"]]
        for row in {r["parameter"]: r for r in reversed(first)}.values():
            probes.add_row(row["parameter"], row["value"], str(row["probes"]), row["witness"] or "—")
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
    for column in ("name", "assumption", "enters", "tested by", "power", "status"):
        table.add_column(column)
    for row in assumptions():
        table.add_row(
            row.name, row.says, row.enters, row.tested or "not tested", row.power or "—", row.status
        )
    console.print(table)


def check_device(device: str) -> None:
    """Raises `BadInput` for a device that is not there."""
    import torch

    if device not in ("cpu", "cuda"):
        raise BadInput(f"--device {device}: cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: torch sees no CUDA device")


def parse_shape(text: str) -> tuple[int, int]:
    parts = text.lower().replace("×", "x").split("x")
    if len(parts) != 2 or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise BadInput(f"--shape {text}: not of the form 49152x576")
    return int(parts[0]), int(parts[1])


def parse_batches(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise BadInput(f"--batch-sizes {text}: whole numbers above 0, separated by commas")
    return list(dict.fromkeys(int(part) for part in parts))


if __name__ == "__main__":
    typer.run(audit)
