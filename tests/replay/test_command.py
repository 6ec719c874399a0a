"""`certhead replay`, command by command, with a back end that is no model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import replay_fakes
from certhead.conformance.cli import app
from certhead.conformance.replay import models
from certhead.conformance.replay.commitment import batch_root
from certhead.conformance.replay.record import read, write
from certhead.conformance.replay.trace import Sample
from click.testing import Result
from typer.testing import CliRunner

PROMPTS = 6
TOKENS = 24


@pytest.fixture(autouse=True)
def fake_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "load", replay_fakes.load)


def run(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["replay", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_text("\n\n".join(f"Tell me about number {n}." for n in range(PROMPTS)) + "\n", "utf-8")
    return path


@pytest.fixture
def worker(tmp_path: Path, prompts: Path) -> Path:
    return record(tmp_path / "worker.jsonl", prompts)


def record(out: Path, prompts: Path, *more: object, weights: str = "bf16") -> Path:
    options = ("--logprobs", 16, "--max-new-tokens", TOKENS, "--ignore-eos", "--weights", weights)
    run("record", out, "--prompts", prompts, *options, *more)
    return out


def verify(evidence: Path, weights: str = "bf16") -> Path:
    out = evidence.with_name(f"scores-{weights}-{evidence.name}")
    run("verify", evidence, out, "--weights", weights)
    return out


def compare(worker: Path, verifier: Path, *more: object, code: int) -> tuple[dict[str, Any], str]:
    out = worker.with_name("compared.json")
    result = run("compare", worker, verifier, "--json", out, *more, code=code)
    return json.loads(out.read_text("utf-8")), result.output


def edit(path: Path, change: Any) -> Path:
    """Another file, with every sample changed."""
    batch = read(path)
    out = path.with_name("edited-" + path.name)
    write(out, batch.variant, [change(sample) for sample in batch.samples])
    return out


def test_help_is_the_protocol_in_its_order() -> None:
    text = run("--help").output
    panels = ["1. Worker evidence", "2. Verifier replay", "3. Metrics and verdict", "4. Thresholds"]
    places = [text.index(panel) for panel in panels]
    assert places == sorted(places)
    assert "input_ids + output_ids" in text
    assert text.index("record") < text.index("verify ") < text.rindex("compare")


def test_record_writes_evidence_and_says_its_root(tmp_path: Path, prompts: Path) -> None:
    out, result = tmp_path / "out.jsonl.gz", tmp_path / "result.json"
    run("record", out, "--prompts", prompts, "--logprobs", 16, "--max-new-tokens", 5, "--json", result)
    batch = read(out)
    assert batch.bad == []
    assert [s.sample_id for s in batch.samples] == [f"line-{2 * n + 1}" for n in range(PROMPTS)]
    assert batch.variant.logprobs == 16
    said = json.loads(result.read_text("utf-8"))
    assert batch.root is not None
    assert said["root"] == batch.root.hex() == batch_root(batch.variant, batch.samples).hex()
    assert said["samples"] == PROMPTS
    assert said["tokens"] == sum(len(s.output_ids) for s in batch.samples)


def test_record_goes_on_where_it_stopped(tmp_path: Path, prompts: Path, worker: Path) -> None:
    whole = worker.read_bytes()
    worker.write_bytes(whole[: len(whole) // 2])
    record(worker, prompts)
    assert worker.read_bytes() == whole


def test_record_takes_ids_as_they_are(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"sample_id": "x", "input_ids": [3, 1, 4]}\n', "utf-8")
    (sample,) = read(record(tmp_path / "out.jsonl", prompts)).samples
    assert (sample.sample_id, sample.input_ids) == ("x", (3, 1, 4))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.txt", "\n \n", "p.txt: holds no prompt"),
        ("p.jsonl", "{", "p.jsonl:1: not an object"),
        (
            "p.jsonl",
            '{"sample_id": "x"}',
            "p.jsonl:1: not an object with sample_id and input_ids: 'input_ids'",
        ),
        ("p.jsonl", '{"sample_id": 1, "input_ids": [1]}', "p.jsonl:1: sample_id 1: must be a text"),
        (
            "p.jsonl",
            '{"sample_id": "x", "input_ids": [1.5]}',
            "p.jsonl:1: input_ids: must be a list of token ids",
        ),
        (
            "p.jsonl",
            '{"sample_id": "x", "input_ids": [1]}\n' * 2,
            "p.jsonl:2: sample_id 'x': an earlier line",
        ),
    ],
)
def test_bad_prompts_are_named(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, "utf-8")
    assert message in run("record", tmp_path / "out.jsonl", "--prompts", tmp_path / name, code=2).output
    assert not (tmp_path / "out.jsonl").exists()


def test_sampling_needs_a_seed(tmp_path: Path, prompts: Path) -> None:
    output = run("record", tmp_path / "o.jsonl", "--prompts", prompts, "--temperature", 0.8, code=2).output
    assert "certhead replay record: --temperature 0.8: sampling needs a --seed" in output


def test_a_root_is_said_again_and_checked(worker: Path, tmp_path: Path) -> None:
    root = read(worker).root
    assert root is not None
    assert f"root {root.hex()}" in run("commit", worker).output
    assert f"{PROMPTS} samples" in run("check", worker, "--root", root.hex()).output
    other = run("check", worker, "--root", "0" * 64, code=1).output
    assert "this is not the root that was asked for" in other
    assert "--root abc: must be 64 hexadecimal digits" in run("check", worker, "--root", "abc", code=2).output


def test_edited_evidence_fails_the_check(worker: Path, tmp_path: Path) -> None:
    text = worker.read_text("utf-8")
    first = read(worker).samples[0]
    worker.write_text(text.replace(f"[{first.input_ids[0]},", f"[{first.input_ids[0] + 1},", 1), "utf-8")
    result = tmp_path / "check.json"
    output = run("check", worker, "--json", result, code=1).output
    assert f"{worker}:2: commitment = " in output
    said = json.loads(result.read_text("utf-8"))
    assert (said["passed"], said["bad_count"], said["samples"], said["root_confirmed"]) == (
        False,
        1,
        5,
        False,
    )
    assert "lists all bad lines" in run("commit", worker, code=2).output


def test_recomputed_commitments_do_not_save_an_edit_from_the_published_root(worker: Path) -> None:
    root = read(worker).root
    assert root is not None
    edited = edit(worker, lambda s: replace(s, input_ids=(*s.input_ids, 1)))
    assert run("check", edited).exit_code == 0
    run("check", edited, "--root", root.hex(), code=1)
    assert "has root" in run("compare", edited, edited, "--root", root.hex(), code=2).output


def test_one_sample_is_shown_to_be_in_a_batch(worker: Path, tmp_path: Path) -> None:
    root = read(worker).root
    assert root is not None
    proof = tmp_path / "proof.json"
    run("commit", worker, "--prove", "line-7", "--json", proof)
    arguments = ("--proof", proof, "--root", root.hex())
    batch = read(worker)
    alone = tmp_path / "alone.jsonl"
    write(alone, batch.variant, [s for s in batch.samples if s.sample_id == "line-7"])
    assert "the root covers the sample" in run("check", alone, *arguments).output
    assert "does not cover" in run("check", edit(alone, moved), *arguments, code=1).output
    assert "does not cover" in run("check", alone, "--proof", proof, "--root", "0" * 64, code=1).output
    data = json.loads(proof.read_text("utf-8"))
    for change, code in (
        ({"index": 2}, 1),
        ({"samples": 7}, 1),
        ({"siblings": data["siblings"][1:]}, 1),
        ({"siblings": ["zz"]}, 2),
        ({"schema": "x"}, 2),
        ({"index": None}, 2),
        ({"sample_id": "nobody"}, 2),
    ):
        proof.write_text(json.dumps({**data, **change}), "utf-8")
        run("check", alone, *arguments, code=code)
    assert "needs the --root" in run("check", alone, "--proof", proof, code=2).output
    assert "no such sample" in run("commit", worker, "--prove", "nobody", code=2).output


def moved(sample: Sample) -> Sample:
    """The sample with its least likely entries a little less likely."""
    logprobs = sample.trace.top_logprobs.copy()
    logprobs[:, -1] -= 1.0
    return replace(sample, trace=replace(sample.trace, top_logprobs=logprobs))


def test_an_honest_worker_passes(worker: Path) -> None:
    scores = verify(worker)
    batch = read(scores)
    root = read(worker).root
    assert root is not None
    assert batch.variant.extra["evidence_root"] == root.hex()
    assert [s.output_ids for s in batch.samples] == [s.output_ids for s in read(worker).samples]
    said, output = compare(worker, scores, "--samples", "--root", root.hex(), code=0)
    assert said["outcome"] == "PASS"
    assert said["summary"]["tokens"] == PROMPTS * TOKENS
    assert said["summary"]["max_abs"] == 0
    assert len(said["samples"]) == PROMPTS
    assert said["root"] == root.hex()
    exact = said["exact"]
    assert exact["bits"]["logits"] == exact["bits"]["equal"] > 1000
    assert exact["greedy"]["different"] == exact["beyond_bound"] == 0
    assert "PASS (document-bf16, research metrics): all 6 accept rules hold" in output
    assert "line-1 " in output


def test_a_cheating_worker_is_rejected(tmp_path: Path, prompts: Path) -> None:
    evidence = record(tmp_path / "cheat.jsonl", prompts, weights="int4")
    said, output = compare(evidence, verify(evidence), code=1)
    assert said["outcome"] == "REJECT"
    assert said["decided_by"][0]["margin"] > 0
    assert said["exact"]["beyond_bound"] == 0  # by its own, wrong, logits it chose well
    assert "REJECT (document-bf16, research metrics): " in output


def test_a_small_difference_is_inconclusive(tmp_path: Path, prompts: Path) -> None:
    evidence = record(tmp_path / "near.jsonl", prompts, weights="int8")
    said, _ = compare(evidence, verify(evidence), code=3)
    assert said["outcome"] == "INCONCLUSIVE"


def test_text_of_a_cheap_model_with_a_prefill_of_the_right_one_contradicts_itself(
    tmp_path: Path, prompts: Path
) -> None:
    cheap = record(tmp_path / "cheap.jsonl", prompts, weights="int4")
    prefilled = verify(cheap)  # the right model's numbers on the cheap model's path
    said, output = compare(prefilled, verify(prefilled), code=1)
    assert said["summary"]["max_abs"] == 0  # no metric tells
    assert said["exact"]["beyond_bound"] > 0
    assert said["decided_by"][0]["metric"] == "worker_rank_beyond_bound"
    assert "rank 1 at most" in output
    said, _ = compare(prefilled, verify(prefilled), "--no-exact", code=0)
    assert said["exact"] is None


def test_a_worker_that_sampled_may_choose_any_rank(tmp_path: Path, prompts: Path) -> None:
    sampled = record(tmp_path / "s.jsonl", prompts, "--temperature", 1.0, "--seed", 3)
    scores = verify(sampled)
    said, _ = compare(sampled, scores, code=0)
    assert said["exact"]["rank_bound"] is said["exact"]["greedy"] is said["exact"]["beyond_bound"] is None
    batch = read(sampled)
    assert batch.samples[0].trace.ranks.max() > 1
    top_k = replace(batch.variant, sampling=replace(batch.variant.sampling, top_k=2))
    write(sampled, top_k, batch.samples)
    said, _ = compare(sampled, scores, code=1)
    assert said["exact"]["rank_bound"] == 2
    above = [(s.trace.top_logprobs > s.trace.logprobs[:, None]).sum(1) for s in batch.samples]
    assert said["exact"]["beyond_bound"] == sum(int((a > 1).sum()) for a in above) > 0


def test_a_tie_at_the_top_breaks_no_bound(tmp_path: Path, prompts: Path) -> None:
    """The first of two tied tokens has rank 2, as vLLM counts, and a list of one does not show the other."""
    evidence = record(tmp_path / "worker.jsonl", prompts, "--logprobs", 1)
    batch = read(evidence)
    tied = [replace(s, trace=replace(s.trace, ranks=s.trace.ranks + 1)) for s in batch.samples]
    write(evidence, batch.variant, tied)
    said, _ = compare(evidence, evidence, code=0)
    assert said["exact"]["beyond_bound"] == 0


def test_a_batch_with_a_spoilt_line_never_passes(worker: Path) -> None:
    scores = verify(worker)
    text = worker.read_text("utf-8")
    worker.write_text(text.replace('"depth":3,', '"depth":4,', 1), "utf-8")
    said, output = compare(worker, scores, code=3)
    assert said["outcome"] == "INCONCLUSIVE"
    assert said["left_out"] == 1
    assert said["unasked"] == ["line-1"]
    assert len(said["samples"]) == PROMPTS - 1
    assert f"{worker}:2: trace[3].depth = 4: depth 3 is missing" in output
    assert "1 of the worker's samples could not be judged; the others would pass" in output


def test_a_batch_with_an_unscored_sample_never_passes(worker: Path) -> None:
    batch = read(verify(worker))
    write(scores := worker.with_name("some.jsonl"), batch.variant, batch.samples[1:])
    said, output = compare(worker, scores, code=3)
    assert said["unscored"] == ["line-1"]
    assert "sample 'line-1': not scored" in output


def test_the_order_of_the_scores_does_not_matter(worker: Path) -> None:
    batch = read(scores := verify(worker))
    said, _ = compare(worker, scores, code=0)
    write(scores, batch.variant, batch.samples[::-1])
    again, _ = compare(worker, scores, code=0)
    assert again["summary"] == said["summary"]
    assert sorted(s["sample_id"] for s in again["samples"]) == sorted(s["sample_id"] for s in said["samples"])


def test_scores_of_another_path_are_not_compared(worker: Path) -> None:
    scores = edit(verify(worker), lambda s: replace(s, input_ids=(*s.input_ids, 1)))
    output = run("compare", worker, scores, code=2).output
    assert "sample 'line-1': the verifier scored other input_ids" in output
    assert "no sample of one path in both" in output


def test_another_tokenizer_is_refused(worker: Path, tmp_path: Path) -> None:
    scores = verify(worker)
    output = run("verify", worker, tmp_path / "other.jsonl", "--model", "other", code=2).output
    assert "certhead replay verify: " in output
    assert "another tokenizer than the expected" in output
    batch = read(scores)
    write(scores, replace(batch.variant, tokenizer_hash="1" * 64), batch.samples)
    assert "another tokenizer" in run("compare", worker, scores, code=2).output


def test_conventions_and_presets_are_chosen_by_name(worker: Path, tmp_path: Path) -> None:
    scores = verify(worker)
    said, output = compare(worker, scores, "--convention", "protocol", code=0)
    assert said["convention"] == "protocol"
    assert "PASS (document-bf16 (protocol), protocol metrics)" in output
    output = run("compare", worker, scores, "--preset", "mine", code=2).output
    assert "--preset mine: not one of document-bf16" in output
    said, _ = compare(worker, scores, "--preset", "qwen3-8b-bf16-4090-v1", code=3)
    assert "needs 512" in said["reasons"][0]
    assert (
        "nothing.toml"
        in run("compare", worker, scores, "--presets", tmp_path / "nothing.toml", code=2).output
    )


def test_missing_numbers_are_counted(worker: Path) -> None:
    def forget(sample: Sample) -> Sample:
        trace = sample.trace
        gone = np.full_like(trace.logprobs, np.nan)
        nothing = np.full_like(trace.top_ids, -1)
        return replace(
            sample,
            trace=replace(
                trace,
                logprobs=gone,
                top_ids=nothing,
                top_logprobs=np.full_like(trace.top_logprobs, np.nan),
                top_ranks=np.zeros_like(trace.top_ranks),
            ),
        )

    said, _ = compare(edit(worker, forget), verify(worker), code=1)
    assert said["exact"]["beyond_bound"] == 0
    assert said["summary"]["missing"] == said["summary"]["tokens"] == PROMPTS * TOKENS
    assert said["summary"]["mean_abs"] is None


def test_files_that_are_not_there_are_named(tmp_path: Path, worker: Path) -> None:
    for arguments in (
        ("commit", tmp_path / "no.jsonl"),
        ("check", tmp_path / "no.jsonl"),
        ("compare", worker, tmp_path / "no.jsonl"),
        ("verify", tmp_path / "no.jsonl", tmp_path / "out.jsonl"),
    ):
        assert f"{tmp_path / 'no.jsonl'}: No such file" in run(*arguments, code=2).output
    nowhere = tmp_path / "no" / "out.jsonl"
    assert f"OUT {nowhere}: there is no folder" in run("record", nowhere, code=2).output
    assert f"--json {nowhere}: there is no folder" in run("commit", worker, "--json", nowhere, code=2).output


def many_prompts(tmp_path: Path, count: int = 48) -> Path:
    path = tmp_path / "many.jsonl"
    lines = [{"sample_id": f"p{n}", "input_ids": [1 + n % 47, 1 + n // 47, 5]} for n in range(count)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    return path


def test_thresholds_are_derived_on_one_part_and_judged_on_the_other(tmp_path: Path) -> None:
    prompts = many_prompts(tmp_path)
    pairs = {
        weights: (
            evidence := record(tmp_path / f"{weights}.jsonl", prompts, weights=weights),
            verify(evidence),
        )
        for weights in ("int8", "int4")  # int8 is the honest worker here: a little off, as another device is
    }
    preset, result = tmp_path / "mine.toml", tmp_path / "calibrated.json"
    arguments = (*pairs["int8"], preset, "--cheat", "cheap,{},{}".format(*pairs["int4"]), "--batch-size", 6)
    for method in ("quantile", "separation"):
        output = run("calibrate", *arguments, "--method", method, "--json", result).output
        assert "on the other prompts, in disjoint batches of 6" in output
        said = json.loads(result.read_text("utf-8"))
        assert said["honest"]["reject"] == said["cheats"]["cheap"]["pass"] == 0
        assert said["cheats"]["cheap"]["reject"] == said["cheats"]["cheap"]["batches"] >= 2
        assert said["cheats"]["cheap"]["error"]["interval"][0] == 0
        assert said["auc"]["cheap"]["mean_abs"] == 1
        assert 0 < len(said["preset"]["derived_from"]) < 48
    chosen = ("--presets", preset, "--preset", "calibrated")
    refused = run("compare", *pairs["int8"], *chosen, code=2).output
    assert "its thresholds were derived from" in refused
    fresh = record(tmp_path / "fresh.jsonl", prompts_not_in(tmp_path), weights="int4")
    said, _ = compare(fresh, verify(fresh), *chosen, code=1)
    assert said["preset"] == "calibrated"


def prompts_not_in(tmp_path: Path) -> Path:
    path = tmp_path / "fresh-prompts.txt"
    path.write_text("".join(f"another prompt, number {n}\n" for n in range(8)), "utf-8")
    return path


def test_an_error_on_the_other_part_is_exit_1(tmp_path: Path) -> None:
    """A cheat that is the honest worker again passes, as it must."""
    prompts = many_prompts(tmp_path)
    evidence = record(tmp_path / "w.jsonl", prompts, weights="int8")
    scores = verify(evidence)
    arguments = (
        evidence,
        scores,
        tmp_path / "p.toml",
        "--cheat",
        f"none,{evidence},{scores}",
        "--batch-size",
        6,
    )
    run("calibrate", *arguments, code=1)
    refused = run("calibrate", *arguments, "--method", "separation", code=2).output
    assert "no metric separates any of none" in refused


def test_what_cannot_be_calibrated_is_named(worker: Path, tmp_path: Path) -> None:
    scores = verify(worker)
    preset = tmp_path / "p.toml"
    assert "each half needs a batch of 16" in run("calibrate", worker, scores, preset, code=2).output
    for cheat in ("a,b", "a,b,", ",b,c"):
        output = run("calibrate", worker, scores, preset, "--cheat", cheat, code=2).output
        assert f"--cheat {cheat}: must be NAME,WORKER,VERIFIER" in output
    twice = [part for _ in range(2) for part in ("--cheat", f"a,{worker},{scores}")]
    assert "two have one name" in run("calibrate", worker, scores, preset, *twice, code=2).output
    worker.write_text(worker.read_text("utf-8").replace('"depth":3,', '"depth":4,', 1), "utf-8")
    output = run("calibrate", worker, scores, preset, code=2).output
    assert "depth 3 is missing; thresholds are calibrated on whole files alone" in output
    assert not preset.exists()


def test_the_experiment_is_given_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = pytest.importorskip("certhead.conformance.replay.experiment")
    given: list[tuple[object, dict[str, object]]] = []
    monkeypatch.setattr(
        experiment, "run_experiment", lambda folder, console, **more: given.append((folder, more))
    )
    out = tmp_path / "result.json"
    run("experiment", "--folder", tmp_path, "--runs", "honest,int8", "--threads", 1, "--json", out)
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path / "cache"))
    run("experiment", "--per-bucket", 2, "--new-tokens", 16)
    (first, more), (second, rest) = given
    assert (first, second) == (tmp_path, tmp_path / "cache" / "replay")
    assert (more["runs"], more["threads"], more["json_path"]) == (["honest", "int8"], 1, out)
    assert (rest["runs"], rest["per_bucket"], rest["new_tokens"]) == ([], 2, 16)


def test_an_unknown_run_is_named(tmp_path: Path) -> None:
    output = run("experiment", "--folder", tmp_path, "--runs", "honest,int3", code=2).output
    assert "certhead replay experiment: --runs int3: not one of honest, " in output
