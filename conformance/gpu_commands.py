"""The commands that need a GPU, `certhead bench` and `certhead kernels`, and the head file they can use.

Everything heavy is imported when a command runs, so that the other commands start quickly.
"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

EVIDENCE = Path("conformance/evidence")
Json = Annotated[Path | None, typer.Option(help="Write the record to this file, as JSON.")]


def _slug(device: object) -> str:
    return str(device).lower().replace("nvidia", "").strip().replace(" ", "-")


def _need_cuda(what: str) -> Any:
    import torch

    if not torch.cuda.is_available():
        typer.echo(f"certhead: {what} needs a CUDA device; torch {torch.__version__} finds none", err=True)
        raise typer.Exit(2)
    return torch


def _pairs(text: str) -> tuple[tuple[int, int], ...]:
    try:
        out = tuple((int(v), int(k)) for v, k in (part.split("x") for part in text.split(",")))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of shapes such as 248320x2560,49152x576") from None
    if not out or min(min(p) for p in out) < 1:
        raise typer.BadParameter(f"{text!r} holds a size below 1")
    return out


def _batches(text: str) -> tuple[int, ...]:
    try:
        out = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a list of batch sizes such as 1,16,64") from None
    if min(out) < 1 or max(out) > 256:
        raise typer.BadParameter(f"{text!r}: batch sizes go from 1 to 256")
    return out


def bench(
    shapes: Annotated[str, typer.Option(help="Heads to time, V x K.")] = "248320x2560,151936x4096,49152x576",
    batches: Annotated[str, typer.Option(help="Batch shapes M.")] = "1,2,4,8,16,32,48,64,96,128,192,256",
    json: Json = None,
    plot: Annotated[Path | None, typer.Option(help="Draw ratio against M into this PNG.")] = None,
) -> None:
    """Time the certified head against the stock head, interleaved in one run on this GPU.

    Writes schema certhead.bench/1: `device`, `versions`, and one entry of `rows` for each shape and M with
    `stock_us`, `certified_us`, `ratio`, `served_by`, `stages_us`, `screen_tb_per_s`, `checksum_cost`,
    `fallback`, `identification`. Default file: conformance/evidence/bench-<device>.json.
    """
    wanted, sizes = _pairs(shapes), _batches(batches)
    torch = _need_cuda("bench")
    from .bench import draw, run_bench, show

    console = Console()
    path = json or EVIDENCE / f"bench-{_slug(torch.cuda.get_device_name())}.json"
    record = run_bench(wanted, sizes, path, console)
    show(record, console)
    if plot is not None:
        draw(record, plot)
    console.print(f"wrote {path}")


def kernels(
    head: Annotated[
        Path | None,
        typer.Option(help="A saved head (`certhead save-head`) to run beside the synthetic ones."),
    ] = None,
    scale: Annotated[int, typer.Option(help="Calls for each head and M below 64; half from there on.")] = 300,
    json: Json = None,
) -> None:
    """Earn this GPU's evidence: every kernel output against the reference, and tokens by the million.

    Writes schema certhead.kernels/1: `device`, `versions`, `source_hash`, `stages` (compared, differing),
    `races`, `faults`, `shapes` (per head and M: positions, differing, verdict, exact, fallback) and
    `tokens`. Exit code 1 if anything differs. Default file: conformance/evidence/kernels-<device>.json.
    """
    if scale < 2:
        raise typer.BadParameter(f"--scale {scale} must be at least 2")
    if head is not None and not head.is_file():
        raise typer.BadParameter(f"--head {head}: no such file")
    torch = _need_cuda("kernels")
    from .device import passed, run_device

    console = Console()
    path = json or EVIDENCE / f"kernels-{_slug(torch.cuda.get_device_name())}.json"
    record = run_device(path, head, console, scale)
    ok = passed(record)
    tokens = record["tokens"]
    console.print(
        f"{'passed' if ok else 'FAILED'}: {tokens['positions']:,} positions, "
        f"{tokens['differing']} tokens differ; wrote {path}"
    )
    raise typer.Exit(0 if ok else 1)


def save_head(
    file: Annotated[Path, typer.Argument(help="The safetensors file to write.")],
    json: Json = None,
) -> None:
    """Save the captured model's head and its inputs, to carry them to another machine.

    JSON, schema certhead.save-head/1: `file`, `model`, `V`, `K`, `positions`.
    """
    from safetensors.torch import save_file

    from .capture import cache_dir, capture_smollm2

    captured = capture_smollm2(cache_dir(), lambda done, total: None)
    save_file({"weight": captured.weight, "hidden": captured.hidden}, file)
    facts = {"V": captured.weight.shape[0], "K": captured.weight.shape[1], "positions": len(captured.hidden)}
    typer.echo(f"wrote {file}: {facts}")
    if json is not None:
        record = {"schema": "certhead.save-head/1", "file": str(file), "model": captured.name, **facts}
        json.write_text(json_module.dumps(record, indent=1) + "\n")
