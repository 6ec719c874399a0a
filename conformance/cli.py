"""The command line, `certhead`: one function per command."""

from __future__ import annotations

import json as json_module
import sys
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .audit.command import audit
from .bars import Bars
from .bench_reference import bench_reference
from .case_commands import cases, fuzz, gate, mutants
from .claims import trust
from .errors import BadInput
from .gpu_commands import bench, kernels, save_head
from .prove import prove
from .replay.command import app as replay

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Certified output heads: the stock BF16 head's token, and the reasons why.",
)
app.command()(prove)
app.command()(audit)
app.command()(bench)
app.command()(bench_reference)
app.command()(kernels)
app.command()(save_head)
app.command()(trust)
app.command()(cases)
app.command()(mutants)
app.command()(gate)
app.command()(fuzz)
app.add_typer(replay, name="replay")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"certhead {installed_version('certhead')}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Certified output heads: the stock BF16 head's token, and the reasons why."""


@app.command()
def conform(
    positions: Annotated[
        int | None, typer.Option(help="Real decode positions to check [default: all that were captured].")
    ] = None,
    batch_sizes: Annotated[str, typer.Option(help="Batch shapes M, separated by commas.")] = "1,4,16,64",
    json: Annotated[Path | None, typer.Option(help="Write the result to this file, as JSON.")] = None,
    report: Annotated[Path, typer.Option(help="Write the report to this file.")] = Path("report.html"),
    model: Annotated[
        bool, typer.Option("--model/--no-model", help="Check the real model, or synthetic heads only.")
    ] = True,
    corpus: Annotated[
        bool, typer.Option("--corpus/--no-corpus", help="Run the corpus of cases through every driver here.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Seed of the synthetic heads and of the samples.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")] = "auto",
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not go on with an interrupted run.")] = False,
) -> None:
    """Check that the certified head returns the stock head's token, and that every stage has the wanted bits.

    On a real model and on synthetic heads; and on the corpus of cases, through every driver that runs here.
    A run that was interrupted goes on where it stopped.

    Exit code: 0 when everything agrees, 1 on any disagreement, any value that differs from pyref, any
    stock logit outside the error model, or any corpus case without the wanted bits, 2 on bad input.

    \b
    JSON keys (schema certhead.conform/1):
      passed, verdict, failures      the result, in a word, a line, and a line per failure
      positions                      distinct head inputs, all heads together
      decisions                      tokens compared: positions times batch shapes
      disagreements                  certified tokens that are not the stock token
      states[M]                      decisions by state (exact, enclosed, fallback) and fallback reason
      candidates[M]                  mean, p50, p99, max of the rows that survived the screen, or null
      model                          the same for the real model alone, with its name; null without it
      head                           sizes, mode, error model and its γ, of the first head
      runs                           one entry per head and batch shape, with the first disagreement
      stages                         values compared with pyref, and how many differ, per stage
      stock_model                    logits tested against the error model, and how many lie outside
      audit                          the audit's verdict about this CPU's product; null on a GPU
      corpus                         its hash; cases, differences and seconds by driver; the matrix of
                                     stages, families and drivers; the slowest cases; null without it
      mutants                        the last full run of `certhead mutants`, or null
      earlier, changed               runs with the same options, the oldest first; what is new since the last
      resumed                        pieces of work that an interrupted run had finished
      date, seed, device, versions, timings (seconds per stage)
    """
    # torch takes seconds to import: `certhead --help` does not wait for it
    from .conform import choose_device
    from .conform import conform as run
    from .report import write_report
    from .summary import show
    from .workers import WorkerDied

    console = Console()
    try:
        sizes = _parse_batch_sizes(batch_sizes)
        if seed < 0:
            raise BadInput(f"--seed {seed}: must be 0 or more")
        if positions is not None and not model:
            raise BadInput(f"--positions {positions}: means nothing with --no-model")
        for option, path in (("--json", json), ("--report", report)):
            if path is not None and not path.absolute().parent.is_dir():
                raise BadInput(f"{option} {path}: there is no folder {path.absolute().parent}")
        outcome = run(
            positions=positions,
            batch_sizes=sizes,
            use_model=model,
            use_corpus=corpus,
            seed=seed,
            device=choose_device(device),
            fresh=fresh,
            bars=Bars(console).stage,
        )
    except BadInput as problem:
        print(f"certhead conform: {problem}", file=sys.stderr)
        raise typer.Exit(2) from None
    except WorkerDied as problem:
        print(f"certhead conform: {problem}; run it again to go on where it stopped", file=sys.stderr)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        print("certhead conform: interrupted; run it again to go on where it stopped", file=sys.stderr)
        raise typer.Exit(130) from None
    if json is not None:
        json.write_text(json_module.dumps(outcome.to_json(), indent=1, ensure_ascii=False) + "\n", "utf-8")
    show(outcome, console)
    write_report(outcome, report)
    console.print(f"report: {report}", highlight=False, soft_wrap=True)
    if not outcome.passed:
        raise typer.Exit(1)


def _parse_batch_sizes(text: str) -> list[int]:
    sizes = []
    for part in text.split(","):
        try:
            size = int(part)
        except ValueError:
            raise BadInput(f"--batch-sizes {text}: {part!r} is not a whole number") from None
        if size < 1:
            raise BadInput(f"--batch-sizes {text}: {size} must be at least 1")
        sizes.append(size)
    return list(dict.fromkeys(sizes))
