"""The experiment across devices: a CPU's evidence scored on a GPU, and a GPU's evidence for a CPU to score.

The machine with the GPU needs torch, transformers, numpy and this package: no model file, no tokenizer, no
network. Three steps, each `python -m certhead.conformance.replay.cross_device STEP`:

- `pack`, on the machine with the model: the model in pieces and the CPU worker's evidence, to carry over.
- `run`, on the machine with the GPU: scores the CPU worker's paths; decodes the same prompts twice and once
  more in other batches, to see which bits repeat; decodes with every recipe's weights and scores that with
  the honest ones; decodes many more prompts honestly, so that the rate of false alarms has a narrow interval.
  Reports are made there; of the evidence, what the CPU needs comes back.
- `finish`, on the first machine: scores the GPU worker's paths on the CPU, judges both directions by
  thresholds that were calibrated on the CPU alone, and puts all reports together.
"""

from __future__ import annotations

import gc
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from ..capture import cache_dir
from ..errors import BadInput
from .backend import sample_seed
from .evaluation import areas, rates
from .experiment import processor
from .experiment_runs import (
    BY_NAME,
    KNOWN,
    LOGPROBS,
    NEW_TOKENS,
    SAMPLED,
    VERIFIER_BATCH,
    WORKER_BATCH,
    Experiment,
)
from .packed_model import PackedSource, pack
from .record import read, write
from .replay import verify
from .replay_prompts import BUCKETS, PromptIds
from .run_report import Measured, first_tokens, measure, measured_json, pair_up
from .trace import Sample, Sampling, Trace, Variant
from .transformers_backend import TransformersBackend
from .variants import RECIPES, build, weights_hash
from .verdict import load_presets
from .worker import IGNORE_EOS, describe, plan

CPU_WORKER = "cpu-worker.jsonl.gz"
GPU_WORKER = "gpu-worker.jsonl.gz"
GPU_VERIFIER = "gpu-verifier.jsonl.gz"
REPORTS = "cross-device.json"
MORE_PROMPTS = "more-prompts.json"
MORE = 1040  # prompts
OTHER_BATCH = 26

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)
Folder = Annotated[Path, typer.Option(help="The folder that travels.")]


@app.command("pack")
def pack_command(folder: Folder = Path(".certhead")) -> None:
    """Write the model's pieces and the honest CPU worker's evidence, which must be complete."""
    experiment = Experiment(cache_dir() / "replay")
    evidence = experiment.worker_path(BY_NAME["honest"])
    for path in pack(experiment.source, folder):
        print(f"{path.stat().st_size:11,}  {path}")
    if not evidence.exists():
        raise BadInput(f"{evidence}: is missing: run the experiment on this machine first")
    shutil.copyfile(evidence, folder / CPU_WORKER)
    more = experiment.further_prompts(MORE // len(BUCKETS))
    (folder / MORE_PROMPTS).write_text(json.dumps([asdict(prompt) for prompt in more]), encoding="utf-8")
    for name in (CPU_WORKER, MORE_PROMPTS):
        print(f"{(folder / name).stat().st_size:11,}  {folder / name}")


@app.command("run")
def run_command(
    out: Annotated[Path, typer.Option(help="The folder for what comes back.")],
    folder: Folder = Path(".certhead"),
    device: Annotated[str, typer.Option(help="cuda, or cpu to try it out.")] = "cuda",
    recipes: Annotated[str, typer.Option(help="Of the cheats: all, none, or names with commas.")] = "all",
    samples: Annotated[int | None, typer.Option(help="Take the first of the samples only.")] = None,
    more: Annotated[int, typer.Option(help="How many further prompts to decode honestly.")] = MORE,
    new_tokens: Annotated[int, typer.Option(help="Tokens to generate, and of the CPU's paths.")] = NEW_TOKENS,
) -> None:
    """Score, decode and report on this machine's device."""
    names = [name for name in RECIPES if name != "bf16"] if recipes == "all" else recipes.split(",")
    names = [] if recipes == "none" else names
    for name in names:
        if name not in RECIPES:
            raise BadInput(f"--recipes {name}: not one of {', '.join(RECIPES)}")
    evidence = read(folder / CPU_WORKER)
    if evidence.bad:
        raise BadInput(str(evidence.bad[0]))
    out.mkdir(parents=True, exist_ok=True)
    further = json.loads((folder / MORE_PROMPTS).read_text(encoding="utf-8"))[:more]
    prompts = [PromptIds(prompt["sample_id"], tuple(prompt["input_ids"])) for prompt in further]
    Runner(PackedSource(folder), device, new_tokens, out).run(evidence.samples[:samples], names, prompts)


@app.command("finish")
def finish_command(
    back: Annotated[Path, typer.Option(help="The folder with what came back.")],
    json_path: Annotated[Path, typer.Option("--json", help="Write all reports to this file.")],
    folder: Folder = Path(".certhead"),
) -> None:
    """Score the GPU worker's paths on this CPU and write all reports together."""
    source = PackedSource(folder)
    reports = json.loads((back / REPORTS).read_text(encoding="utf-8"))
    backend = TransformersBackend(source.build(RECIPES["bf16"]))
    variant = describe(
        backend,
        model=source.manifest["name"],
        tokenizer_hash=source.tokenizer_hash,
        quantization=RECIPES["bf16"].quantization,
        batch_size=VERIFIER_BATCH,
        logprobs=LOGPROBS,
        extra={"threads": str(torch.get_num_threads())},
    )
    scores = folder / "cpu-verifier.jsonl.gz"
    verify(backend, variant, back / GPU_WORKER, scores, lambda done, total: print(f"{done}/{total}"))
    sampling = Sampling(max_new_tokens=reports["new_tokens"])
    across = {
        name: measure(pair_up(read(worker).samples, read(verifier).samples), sampling, LOGPROBS)
        for name, worker, verifier in (
            ("cpu-worker/gpu-verifier", folder / CPU_WORKER, back / GPU_VERIFIER),
            ("gpu-worker/cpu-verifier", back / GPU_WORKER, scores),
        )
    }
    for name, measured in across.items():
        reports["runs"][name] = measured_json(measured, load_presets().values())
    reports["cpu"] = {
        **vars(backend.about()),
        "processor": processor(),
        "extra": {**backend.about().extra, "threads": str(torch.get_num_threads())},
    }
    reports["judged_by_cpu_thresholds"] = _judge_by_cpu(Experiment(cache_dir() / "replay"), across)
    json_path.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")


def _judge_by_cpu(experiment: Experiment, across: Mapping[str, Measured]) -> list[dict[str, Any]]:
    """Honest runs across devices, judged by thresholds from the CPU's honest worker and known cheats."""
    measured = {
        name: measure(
            pair_up(experiment.load(worker).samples, experiment.load(verifier).samples),
            Sampling(),
            LOGPROBS,
        )
        for name in ("honest", *KNOWN)
        if (worker := experiment.worker_path(BY_NAME[name])).exists()
        and (verifier := experiment.verifier_path(BY_NAME[name])).exists()
    }
    if "honest" not in measured:
        return []
    honest = {"honest": measured.pop("honest"), **across}
    return rates(honest, measured, KNOWN, lengths=(NEW_TOKENS,))


class Runner:
    """One device with the honest model on it, and the reports so far."""

    def __init__(self, source: PackedSource, device: str, new_tokens: int, out: Path) -> None:
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise BadInput(f"--device {device}: torch {torch.__version__} finds no such device")
        self.source, self.device, self.out = source, device, out
        self.sampling = Sampling(max_new_tokens=new_tokens)
        self.honest = self._backend("bf16")
        self.measured: dict[str, Measured] = {}
        self.started = time.monotonic()
        self.seconds: dict[str, float] = {}
        about = self.honest.about()
        self.reports: dict[str, Any] = {
            "schema": "certhead.replay.cross-device/1",
            "device": {**vars(about), "extra": dict(about.extra)},
            "weights_sha256": weights_hash(source.rounded),
            "logprobs": LOGPROBS,
            "new_tokens": new_tokens,
            "repeats": {},
            "runs": {},
        }

    def run(self, cpu: Sequence[Sample], recipes: Sequence[str], more: Sequence[PromptIds]) -> None:
        """Everything, most important first; the reports are on disk after each part."""
        cpu = [first_tokens(sample, self.sampling.max_new_tokens) for sample in cpu]
        prompts = [PromptIds(sample.sample_id, sample.input_ids) for sample in cpu]
        scores = self._score(self.honest, cpu)
        self._write(GPU_VERIFIER, scores, VERIFIER_BATCH)
        self._add("cpu-worker/gpu-verifier", cpu, scores)
        first = self._decode(self.honest, prompts, WORKER_BATCH)
        self._write(GPU_WORKER, first, WORKER_BATCH)
        own = self._score(self.honest, first)
        self._add("gpu-worker/gpu-verifier", first, own)
        again = self._decode(self.honest, prompts, WORKER_BATCH)
        other = self._decode(self.honest, prompts, OTHER_BATCH)
        self.reports["repeats"] = {
            "decode, again": repeats(first, again),
            f"decode, batches of {OTHER_BATCH}": repeats(first, other),
            "score, again": repeats(own, self._score(self.honest, first)),
            "score, batches of 1": repeats(own, self._score(self.honest, first, 1)),
            "decode, on the CPU": repeats(cpu, first),
        }
        self._add("gpu-worker-batch-26/gpu-verifier", other, self._score(self.honest, other))
        sampled = replace(SAMPLED, max_new_tokens=self.sampling.max_new_tokens)
        drawn = self._decode(self.honest, prompts, WORKER_BATCH, sampled)
        self._add("gpu-worker-sampled/gpu-verifier", drawn, self._score(self.honest, drawn), sampled)
        for name in recipes:
            backend = self._backend(name)
            decoded = self._decode(backend, prompts, WORKER_BATCH)
            self._add(f"{name}/gpu-verifier", decoded, self._score(self.honest, decoded))
            if name == "fp32":
                self._add("gpu-worker/fp32-gpu-verifier", first, self._score(backend, first))
            if name == "int4-g32":
                made = self._score(self.honest, decoded, WORKER_BATCH)
                self._add("prefill-int4-g32/gpu-verifier", made, self._score(self.honest, decoded))
            del backend
            gc.collect()
        if more:
            decoded = self._decode(self.honest, more, WORKER_BATCH)
            self._add("more/gpu-verifier", decoded, self._score(self.honest, decoded))
        self._judge(recipes)

    def _backend(self, recipe: str) -> TransformersBackend:
        weights = self.source.weights(RECIPES[recipe])
        return TransformersBackend(build(weights, RECIPES[recipe].dtype).to(self.device))

    def _decode(
        self,
        backend: TransformersBackend,
        prompts: Sequence[PromptIds],
        batch_size: int,
        sampling: Sampling | None = None,
    ) -> list[Sample]:
        sampling = sampling or self.sampling

        def decode(batch: Sequence[PromptIds]) -> list[Trace]:
            seed = sampling.seed
            return backend.decode(
                [prompt.input_ids for prompt in batch],
                sampling,
                LOGPROBS,
                batch_size,
                seeds=None if seed is None else [sample_seed(seed, p.sample_id) for p in batch],
                ignore_eos=True,
            )

        return self._timed("decode", prompts, batch_size, decode)

    def _score(
        self, backend: TransformersBackend, samples: Sequence[Sample], batch_size: int = VERIFIER_BATCH
    ) -> list[Sample]:
        outputs = {sample.sample_id: sample.output_ids for sample in samples}

        def score(batch: Sequence[PromptIds]) -> list[Trace]:
            paths = [(prompt.input_ids, outputs[prompt.sample_id]) for prompt in batch]
            return backend.score(paths, LOGPROBS, batch_size)

        prompts = [PromptIds(sample.sample_id, sample.input_ids) for sample in samples]
        return self._timed("score", prompts, batch_size, score)

    def _timed(
        self,
        what: str,
        prompts: Sequence[PromptIds],
        batch_size: int,
        make: Callable[[Sequence[PromptIds]], list[Trace]],
    ) -> list[Sample]:
        """Samples in the order of the plan; the seconds are added up under `what`."""
        start = time.monotonic()
        made = [
            Sample(prompt.sample_id, prompt.input_ids, tuple(trace.token_ids.tolist()), trace)
            for batch in plan(prompts, batch_size)
            for prompt, trace in zip(batch, make(batch), strict=True)
        ]
        took = time.monotonic() - start
        self.seconds[what] = self.seconds.get(what, 0.0) + took
        print(
            f"{time.monotonic() - self.started:6.1f} s  {what} {len(made)} samples: {took:.1f} s", flush=True
        )
        return made

    def _add(
        self,
        name: str,
        worker: Sequence[Sample],
        verifier: Sequence[Sample],
        sampling: Sampling | None = None,
    ) -> None:
        start = time.monotonic()
        measured = measure(pair_up(worker, verifier), sampling or self.sampling, LOGPROBS)
        report = self.reports["runs"][name] = measured_json(measured, load_presets().values())
        self.measured[name] = measured
        self.seconds["report"] = self.seconds.get("report", 0.0) + time.monotonic() - start
        research = report["metrics"]["research"]
        self._say(
            f"{name}: mean {research['mean_abs']:.4f}, p99 {research['p99_abs']:.4f}, "
            f"rank {research['rank_delta_rate']:.4f}"
        )
        self._save()

    def _judge(self, recipes: Sequence[str]) -> None:
        """Calibrate on some prompts of this device's runs and judge the others."""
        start = time.monotonic()
        cheats = {
            name: measured
            for name, measured in self.measured.items()
            if (recipe := name.partition("/")[0]) in recipes and not RECIPES[recipe].honest
        }
        honest = {
            name: measured
            for name, measured in self.measured.items()
            if name not in cheats and not name.startswith(("prefill", "cpu"))
        }
        first = "more/gpu-verifier" if "more/gpu-verifier" in honest else "gpu-worker/gpu-verifier"
        honest = {first: honest[first], **honest}
        known = [f"{name}/gpu-verifier" for name in KNOWN]
        self.reports["calibrated"] = rates(honest, cheats, known)
        self.reports["roc_areas"] = areas(honest[first], cheats)
        self.seconds["judge"] = time.monotonic() - start
        self._save()

    def _say(self, line: str) -> None:
        print(f"{time.monotonic() - self.started:6.1f} s  {line}", flush=True)

    def _write(self, name: str, samples: Sequence[Sample], batch_size: int) -> None:
        variant: Variant = describe(
            self.honest,
            model=self.source.manifest["name"],
            tokenizer_hash=self.source.tokenizer_hash,
            quantization=RECIPES["bf16"].quantization,
            batch_size=batch_size,
            logprobs=LOGPROBS,
            sampling=self.sampling,
            ignore_eos=True,
            extra={"weights": "bf16", "weights_sha256": self.reports["weights_sha256"]},
        )
        assert variant.extra[IGNORE_EOS] == "true"
        write(self.out / name, variant, samples)

    def _save(self) -> None:
        self.reports["seconds"] = {what: round(took, 1) for what, took in self.seconds.items()}
        (self.out / REPORTS).write_text(json.dumps(self.reports) + "\n", encoding="utf-8")


def repeats(one: Sequence[Sample], other: Sequence[Sample]) -> dict[str, int]:
    """How far two batches of the same prompts are the same, to the bit.

    `same_path_positions` counts positions before the first other token of each sample: there both sides
    speak of the same path, and `equal_positions` of them have all the same bits.
    """
    by_id = {sample.sample_id: sample for sample in other}
    counts = {"samples": 0, "equal_outputs": 0, "equal_samples": 0}
    counts |= {"positions": 0, "same_path_positions": 0, "equal_positions": 0}
    for sample in one:
        a, b = sample.trace, by_id[sample.sample_id].trace
        length = min(len(a), len(b))
        differing = np.flatnonzero(a.token_ids[:length] != b.token_ids[:length])
        # the first differing token is still chosen from a distribution after the same path
        path = int(differing[0]) + 1 if differing.size else length
        equal = np.ones(path, dtype=np.bool_)
        for name in ("token_ids", "logprobs", "ranks"):
            equal &= getattr(a, name)[:path] == getattr(b, name)[:path]
        for name in ("top_ids", "top_logprobs", "top_ranks"):
            equal &= (getattr(a, name)[:path] == getattr(b, name)[:path]).all(axis=1)
        same_output = len(a) == len(b) and not differing.size
        counts["samples"] += 1
        counts["equal_outputs"] += same_output
        counts["equal_samples"] += same_output and bool(equal.all())
        counts["positions"] += length
        counts["same_path_positions"] += path
        counts["equal_positions"] += int(equal.sum())
    return counts


if __name__ == "__main__":
    try:
        app(standalone_mode=True)
    except BadInput as problem:
        raise SystemExit(f"cross_device: {problem}") from None
