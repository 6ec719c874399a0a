"""`certhead replay experiment`: a real model, honest and cheating workers, and what a verifier makes of them.

Evidence is made once and kept (`experiment_runs`); everything that is said about it is computed from it anew.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from ..bars import Bars
from ..errors import BadInput
from .evaluation import areas, pooled, rates
from .experiment_runs import BY_NAME, KNOWN, LOGPROBS, NEW_TOKENS, RUNS, Evidence, Experiment, Run
from .replay_prompts import BUCKETS, PER_BUCKET, SHORT
from .run_report import Measured, Pair, measure, measured_json, pair_up
from .summary import Convention
from .trace import Sample, Sampling, Trace
from .verdict import Preset, load_presets

SCHEMA = "certhead.replay.experiment/1"
ROUNDED_TO = 3  # decimals, of the forgery that reports rounded numbers
SCALED_BY = 0.9  # of the forgery that makes a cheap model's numbers more confident


def run_experiment(
    folder: Path,
    console: Console,
    *,
    runs: Sequence[str] = (),
    threads: int | None = None,
    json_path: Path | None = None,
    per_bucket: int | None = None,
    new_tokens: int | None = None,
) -> dict[str, Any]:
    """Make the evidence that is missing below `folder`, judge all of it, and show a table on `console`.

    `runs` names some of RUNS, by default all; "honest" is always among them. `threads` is torch's, and part
    of what decides bits. `per_bucket` and `new_tokens` make the experiment smaller. `json_path` takes the
    result (schema certhead.replay.experiment/1). Raises BadInput for unknown runs, and where the model cannot
    be loaded.
    """
    unknown = [name for name in runs if name not in BY_NAME]
    if unknown:
        raise BadInput(f"--runs {unknown[0]}: not one of {', '.join(BY_NAME)}")
    if threads is not None:
        torch.set_num_threads(threads)
    experiment = Experiment(folder, per_bucket=per_bucket or PER_BUCKET, new_tokens=new_tokens or NEW_TOKENS)
    wanted = [run for run in RUNS if not runs or run.name in runs or run.name == "honest"]
    bars = Bars(console).stage
    for run in wanted:
        experiment.make(run, bars)
    result = analyse(experiment, wanted)
    if json_path is not None:
        json_path.write_text(json.dumps(result) + "\n", encoding="utf-8")
    show(result, console)
    return result


def analyse(experiment: Experiment, wanted: Sequence[Run]) -> dict[str, Any]:
    """Everything that the evidence of the runs says, as JSON data."""
    presets = list(load_presets().values())
    evidence = {run.name: _load(experiment, run) for run in wanted}
    measured = {
        name: measure(pair_up(worker.samples, verifier.samples), worker.variant.sampling, LOGPROBS)
        for name, (worker, verifier) in evidence.items()
    }
    judged = {run.name: measured[run.name] for run in wanted if run.paths_of is None}
    honest = {name: one for name, one in judged.items() if BY_NAME[name].honest}
    cheats = {name: one for name, one in judged.items() if not BY_NAME[name].honest}
    long = {name: one for name, one in judged.items() if name != "honest" and not BY_NAME[name].short}
    worker = evidence["honest"][0].variant
    calibrated = rates(honest, cheats, KNOWN)
    return {
        "schema": SCHEMA,
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "threads": worker.extra.get("threads"),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "platform": platform.platform(),
        },
        "versions": {
            "python": platform.python_version(),
            "torch": worker.extra.get("torch"),
            "transformers": worker.engine_version,
            "numpy": metadata.version("numpy"),
        },
        "model": {
            "name": experiment.model,
            "file": experiment.model_file.name,
            "sha256": experiment.model_sha256,
            "weights_sha256": worker.extra.get("weights_sha256"),
            "tokenizer_sha256": worker.tokenizer_hash,
        },
        "settings": {
            "input_tokens": list(BUCKETS),
            "short_input_tokens": SHORT,
            "prompts": len(experiment.prompts["long"]),
            "short_prompts": len(experiment.prompts["short"]),
            "logprobs": LOGPROBS,
            "key": experiment.folder.name,
        },
        "runs": {
            name: _run_json(BY_NAME[name], evidence[name], measured[name], presets) for name in measured
        },
        "attacks": {
            name: {
                "about": about,
                **measured_json(measure(pairs, sampling, LOGPROBS), presets),
            }
            for name, (about, pairs, sampling) in _attacks(measured).items()
        },
        "calibrated": calibrated,
        "calibrated_both_halves": pooled(calibrated, rates(honest, cheats, KNOWN, swapped=True)),
        "calibrated_protocol": rates(honest, cheats, KNOWN, convention=Convention.PROTOCOL, lengths=(128,)),
        "roc_areas": areas(measured["honest"], long),
    }


def show(result: Mapping[str, Any], console: Console) -> None:
    """The runs as a table."""
    table = Table(title="Workers and what an honest BF16 verifier measures (research convention)")
    columns = ("mean_abs", "p95_abs", "p99_abs", "rank_delta_rate", "jaccard_mean", "js_p99")
    for name in ("run", "tokens", *columns, "equal logits", "document-bf16"):
        table.add_column(name, justify="left" if name == "run" else "right")
    for name, run in {**result["runs"], **result["attacks"]}.items():
        bits = run["exact"]["bits"]
        share = bits["equal"] / bits["logits"] if bits and bits["logits"] else None
        table.add_row(
            name,
            f"{run['tokens']:,}",
            *(f"{run['metrics']['research'][column]:.4f}" for column in columns),
            "–" if share is None else f"{share:.2%}",
            run["verdicts"]["document-bf16"]["outcome"],
        )
    console.print(table)


def processor() -> str:
    """The processor's name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _load(experiment: Experiment, run: Run) -> tuple[Evidence, Evidence]:
    """A run's two files."""
    return experiment.load(experiment.worker_path(run)), experiment.load(experiment.verifier_path(run))


def _run_json(
    run: Run, files: tuple[Evidence, Evidence], measured: Measured, presets: Sequence[Preset]
) -> dict[str, Any]:
    worker, verifier = (file.variant for file in files)
    return {
        "about": run.about,
        "honest": run.honest,
        "short": run.short,
        "worker": {
            "weights": worker.extra.get("weights"),
            "weights_sha256": worker.extra.get("weights_sha256"),
            "dtype": worker.dtype,
            "batch_size": worker.batch_size,
            "temperature": worker.sampling.temperature,
            "new_tokens": worker.sampling.max_new_tokens,
        },
        "verifier": {
            "weights": verifier.extra.get("weights"),
            "dtype": verifier.dtype,
            "batch_size": verifier.batch_size,
        },
        **measured_json(measured, presets),
    }


def _attacks(measured: Mapping[str, Measured]) -> dict[str, tuple[str, list[Pair], Sampling]]:
    """Evidence that is made from other evidence, and what its worker claims."""
    attacks: dict[str, tuple[str, list[Pair], Sampling]] = {}
    if "honest-sampled" in measured:
        about = "the honest model sampling at temperature 0.8, claimed to be greedy"
        attacks["claims-greedy"] = (about, list(measured["honest-sampled"].pairs), Sampling())
    about = f"the honest worker's log probabilities rounded to {ROUNDED_TO} decimals"
    pairs = [replace(p, worker=_forged(p.worker, _rounded)) for p in measured["honest"].pairs]
    attacks["forged-rounded"] = (about, pairs, Sampling())
    if "int8" in measured:
        about = f"int8's log probabilities times {SCALED_BY}"
        pairs = [replace(p, worker=_forged(p.worker, _scaled)) for p in measured["int8"].pairs]
        attacks["forged-scaled-int8"] = (about, pairs, Sampling())
    return attacks


def _forged(sample: Sample, change: Any) -> Sample:
    trace: Trace = replace(
        sample.trace,
        logprobs=change(sample.trace.logprobs),
        top_logprobs=change(sample.trace.top_logprobs),
    )
    return replace(sample, trace=trace)


def _rounded(values: Any) -> Any:
    return np.round(values, ROUNDED_TO)


def _scaled(values: Any) -> Any:
    return values * SCALED_BY
