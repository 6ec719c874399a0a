"""The experiment on a tiny random model: its files, its analysis, its attacks, the run across devices."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from certhead.conformance.errors import BadInput
from certhead.conformance.replay import cross_device, experiment, experiment_runs
from certhead.conformance.replay.cross_device import Runner, repeats
from certhead.conformance.replay.evaluation import pooled, rates
from certhead.conformance.replay.experiment import run_experiment, show
from certhead.conformance.replay.experiment_runs import BY_NAME, Experiment
from certhead.conformance.replay.record import read
from certhead.conformance.replay.run_report import first_tokens, measure, pair_up
from certhead.conformance.replay.trace import Sample, Sampling
from replay.replay_models import TinySource
from rich.console import Console

PER_BUCKET, NEW_TOKENS = 2, 6
NAMES = [
    "honest",
    "int8",
    "int4-g32",
    "29-layers",
    "fp32-verifier",
    "honest-sampled",
    "prefill-int4-g32",
    "honest-8",
]
WANTED = [BY_NAME[name] for name in NAMES]


def silent() -> Console:
    return Console(file=StringIO(), width=200)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("replay")


@pytest.fixture(scope="module")
def made(folder: Path) -> Iterator[Experiment]:
    patch = pytest.MonkeyPatch()
    patch.setattr(experiment_runs, "LOGPROBS", 8)
    patch.setattr(experiment, "LOGPROBS", 8)
    patch.setattr(cross_device, "LOGPROBS", 8)
    patch.setattr(experiment_runs, "Source", TinySource)
    tiny = Experiment(folder, per_bucket=PER_BUCKET, new_tokens=NEW_TOKENS)
    run_experiment(
        folder,
        silent(),
        runs=NAMES,
        json_path=folder / "result.json",
        per_bucket=PER_BUCKET,
        new_tokens=NEW_TOKENS,
    )
    yield tiny
    patch.undo()


@pytest.fixture(scope="module")
def result(made: Experiment, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return found


def test_every_run_leaves_its_two_files(made: Experiment) -> None:
    for run in WANTED:
        worker, verifier = read(made.worker_path(run)), read(made.verifier_path(run))
        assert worker.root is not None
        assert verifier.root is not None
        assert {s.sample_id for s in worker.samples} == {s.sample_id for s in verifier.samples}
        count = PER_BUCKET * (1 if run.short else 4)
        assert len(worker.samples) == count
        assert all(len(s.output_ids) == NEW_TOKENS for s in worker.samples)
        assert verifier.variant.extra["weights"] == run.verifier
    assert not list(made.folder.glob("*.part.jsonl.gz"))


def test_a_second_look_builds_no_model(made: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise AssertionError("a model was built")

    monkeypatch.setattr(experiment_runs, "build", refused)
    for run in WANTED:
        made.make(run, refused)
    files = [made.load(made.worker_path(run)) for run in WANTED]
    monkeypatch.setattr(experiment_runs, "read", refused)
    again = [made.load(made.worker_path(run)) for run in WANTED]  # from the columns beside the files
    for one, other in zip(files, again, strict=True):
        assert one.variant == other.variant
        for a, b in zip(one.samples, other.samples, strict=True):
            assert (a.sample_id, a.input_ids, a.output_ids) == (b.sample_id, b.input_ids, b.output_ids)
            for name, column in vars(a.trace).items():
                assert np.array_equal(column, getattr(b.trace, name))
                assert column.dtype == getattr(b.trace, name).dtype


def test_a_changed_file_is_not_read_from_old_columns(made: Experiment, tmp_path: Path) -> None:
    run = BY_NAME["honest"]
    made.load(made.worker_path(run))
    for name in ("worker-honest.npz", "worker-honest.jsonl.gz"):
        shutil.copyfile(made.folder / name, tmp_path / name)
    shutil.copyfile(made.verifier_path(BY_NAME["int8"]), tmp_path / "worker-honest.jsonl.gz")
    assert made.load(tmp_path / "worker-honest.jsonl.gz").variant.batch_size == 13


def test_other_circumstances_have_another_folder(made: Experiment, folder: Path) -> None:
    assert Experiment(folder, per_bucket=PER_BUCKET, new_tokens=NEW_TOKENS).folder == made.folder
    assert Experiment(folder, per_bucket=PER_BUCKET, new_tokens=NEW_TOKENS + 1).folder != made.folder


def test_honest_and_cheating_runs_are_told_apart(result: dict[str, Any]) -> None:
    mean = {name: run["metrics"]["research"]["mean_abs"] for name, run in result["runs"].items()}
    assert mean["honest"] < mean["int8"] < mean["int4-g32"]
    assert mean["honest"] < mean["29-layers"]
    assert result["runs"]["honest"]["honest"]
    assert not result["runs"]["29-layers"]["honest"]
    assert result["runs"]["29-layers"]["verdicts"]["document-bf16"]["outcome"] == "REJECT"
    assert result["roc_areas"]["29-layers"]["mean_abs"] == 1.0


def test_text_of_a_cheap_model_with_evidence_of_the_right_one_breaks_its_own_ranks(
    result: dict[str, Any],
) -> None:
    run = result["runs"]["prefill-int4-g32"]
    # all metrics look as if the worker were honest, and only the ranks tell
    assert (
        run["metrics"]["research"]["mean_abs"]
        < 0.1 * result["runs"]["int4-g32"]["metrics"]["research"]["mean_abs"]
    )
    assert run["exact"]["rank_bound"] == 1
    assert run["exact"]["beyond_bound"] > 0
    assert result["runs"]["honest"]["exact"]["beyond_bound"] == 0


def test_sampling_that_claims_to_be_greedy_breaks_its_own_ranks(result: dict[str, Any]) -> None:
    assert result["attacks"]["claims-greedy"]["exact"]["beyond_bound"] > 0
    assert result["runs"]["honest-sampled"]["exact"]["rank_bound"] is None


def test_rounded_numbers_are_no_log_softmax_of_bf16(result: dict[str, Any]) -> None:
    honest = result["runs"]["honest"]["exact"]["bits"]["worker"]
    forged = result["attacks"]["forged-rounded"]["exact"]["bits"]["worker"]
    assert honest["inconsistent"] == 0
    assert forged["inconsistent"] > 0.9 * result["attacks"]["forged-rounded"]["tokens"]


def test_the_table_has_a_line_for_every_run_and_attack(result: dict[str, Any]) -> None:
    console = silent()
    show(result, console)
    words = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(name in words for name in (*result["runs"], *result["attacks"]))


def test_per_sample_columns_have_one_number_per_sample(result: dict[str, Any]) -> None:
    for run in result["runs"].values():
        assert {len(column) for column in run["per_sample"].values()} == {run["samples"]}


def test_unknown_runs_are_refused(folder: Path) -> None:
    with pytest.raises(BadInput, match="--runs nonsense"):
        run_experiment(folder, silent(), runs=["nonsense"])


def spread(made: Experiment, name: str, copies: int) -> list[Any]:
    """A run's pairs many times over under other prompts, so that there is enough to calibrate on."""
    run = BY_NAME[name]
    worker, verifier = (made.load(p).samples for p in (made.worker_path(run), made.verifier_path(run)))

    def copy(sample: Sample, number: int) -> Sample:
        ids = (*sample.input_ids, number % 90, number // 90)
        return replace(sample, sample_id=f"{sample.sample_id}-{number}", input_ids=ids)

    numbers = range(copies)
    return pair_up(
        [copy(s, n) for n in numbers for s in worker], [copy(s, n) for n in numbers for s in verifier]
    )


def test_thresholds_of_one_half_judge_the_other(made: Experiment) -> None:
    honest = {"honest": measure(spread(made, "honest", 8), Sampling(), 8)}
    cheats = {name: measure(spread(made, name, 8), Sampling(), 8) for name in ("int4-g32", "29-layers")}
    found = rates(honest, cheats, ["29-layers"], sizes=(1, 4, 64), lengths=(NEW_TOKENS, 999))
    assert {(entry["batch_size"], entry["tokens"]) for entry in found} == {(1, NEW_TOKENS), (4, NEW_TOKENS)}
    separated = next(e for e in found if e["method"] == "separating" and e["batch_size"] == 4)
    assert separated["runs"]["honest"]["reject"]["events"] == 0
    assert separated["runs"]["29-layers"]["reject"]["events"] == separated["runs"]["29-layers"]["batches"] > 5
    assert separated["runs"]["29-layers"]["pass"]["high"] < 0.5
    swapped = rates(honest, cheats, ["29-layers"], sizes=(4,), lengths=(NEW_TOKENS,), swapped=True)
    together = pooled(found, swapped)
    assert {entry["batch_size"] for entry in together} == {4}
    run = next(e for e in together if e["method"] == "separating")["runs"]["29-layers"]
    assert run["reject"]["events"] == run["batches"] > separated["runs"]["29-layers"]["batches"]
    assert run["reject"]["low"] > separated["runs"]["29-layers"]["reject"]["low"]


def test_repeats_count_equal_bits_up_to_the_first_other_token(made: Experiment) -> None:
    samples = made.load(made.worker_path(BY_NAME["honest"])).samples
    all_same = repeats(samples, samples[::-1])
    total = PER_BUCKET * 4
    assert all_same == {
        "samples": total,
        "equal_outputs": total,
        "equal_samples": total,
        "positions": total * NEW_TOKENS,
        "same_path_positions": total * NEW_TOKENS,
        "equal_positions": total * NEW_TOKENS,
    }
    first = samples[0]
    ids = first.trace.token_ids.copy()
    ids[2] += 1
    logprobs = first.trace.logprobs.copy()
    logprobs[0] = np.nextafter(logprobs[0], -9)
    other = replace(first, trace=replace(first.trace, token_ids=ids, logprobs=logprobs))
    assert repeats([first], [other]) == {
        "samples": 1,
        "equal_outputs": 0,
        "equal_samples": 0,
        "positions": NEW_TOKENS,
        "same_path_positions": 3,
        "equal_positions": 1,
    }


def test_a_sample_is_cut_to_its_first_tokens(made: Experiment) -> None:
    sample = made.load(made.worker_path(BY_NAME["honest"])).samples[0]
    cut = first_tokens(sample, 2)
    assert cut.output_ids == sample.output_ids[:2]
    assert len(cut.trace) == 2
    assert cut.trace.top_ids.shape == (2, 8)


def test_the_run_across_devices_on_one_device(
    made: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Packed(TinySource):
        manifest: ClassVar = {"name": "tiny"}

    cpu = made.load(made.worker_path(BY_NAME["honest"])).samples
    runner = Runner(Packed(), "cpu", NEW_TOKENS, tmp_path)  # type: ignore[arg-type]
    runner.run(cpu, ["int8", "int4-g32"], made.prompts["short"])
    reports = json.loads((tmp_path / cross_device.REPORTS).read_text())
    assert reports["repeats"]["decode, again"]["equal_samples"] == len(cpu)
    assert reports["repeats"]["decode, on the CPU"]["equal_samples"] == len(cpu)
    assert reports["repeats"]["score, again"]["equal_samples"] == len(cpu)
    assert reports["runs"]["prefill-int4-g32/gpu-verifier"]["exact"]["beyond_bound"] > 0
    assert {"more/gpu-verifier", "int8/gpu-verifier"} <= reports["runs"].keys()
    assert reports["calibrated"] == []  # too few tokens
    for name in (cross_device.GPU_WORKER, cross_device.GPU_VERIFIER):
        assert len(read(tmp_path / name).samples) == len(cpu)

    shutil.copyfile(made.worker_path(BY_NAME["honest"]), tmp_path / cross_device.CPU_WORKER)
    monkeypatch.setattr(cross_device, "PackedSource", lambda folder: Packed())
    monkeypatch.setattr(cross_device, "cache_dir", lambda: tmp_path)
    cross_device.finish_command(back=tmp_path, json_path=tmp_path / "all.json", folder=tmp_path)
    finished = json.loads((tmp_path / "all.json").read_text())
    assert finished["runs"]["gpu-worker/cpu-verifier"]["samples"] == len(cpu)
    assert finished["judged_by_cpu_thresholds"] == []  # there is no evidence of this CPU below that folder
    assert finished["repeats"] == reports["repeats"]
