"""Recording and replaying: batches, resuming after a stop, and what a verifier does with bad evidence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from certhead.conformance.errors import BadInput
from certhead.conformance.replay.backend import sample_seed
from certhead.conformance.replay.record import read
from certhead.conformance.replay.replay import verify
from certhead.conformance.replay.replay_prompts import PromptIds
from certhead.conformance.replay.trace import Sampling, Trace, Variant
from certhead.conformance.replay.transformers_backend import TransformersBackend
from certhead.conformance.replay.worker import bucket, describe, plan, record
from hypothesis import given
from hypothesis import strategies as st
from replay.replay_models import ExactModel, some_prompts

PROMPTS = some_prompts((3, 40, 5, 20, 7, 17, 33, 9))
K = 6


class Stopping(TransformersBackend):
    """Fails at the n-th batch, as a machine would."""

    def __init__(self, batches: int) -> None:
        super().__init__(ExactModel(), eos_ids=())
        self.left = batches
        self.asked: list[int] = []

    def decode(self, prompts: Sequence[Any], *args: Any, **more: Any) -> list[Trace]:
        self._count(len(prompts))
        return super().decode(prompts, *args, **more)

    def score(self, paths: Sequence[Any], *args: Any) -> list[Trace]:
        self._count(len(paths))
        return super().score(paths, *args)

    def _count(self, size: int) -> None:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        self.asked.append(size)


def variant(backend: TransformersBackend, **changes: Any) -> Variant:
    made = describe(
        backend,
        model="exact",
        tokenizer_hash="ab" * 32,
        quantization="none",
        batch_size=2,
        logprobs=K,
        sampling=Sampling(max_new_tokens=5),
    )
    return replace(made, **changes)


def test_batches_stay_within_a_bucket_and_leave_nothing_out() -> None:
    batches = plan(PROMPTS, 2)
    for batch in batches:
        assert len({bucket(len(prompt.input_ids)) for prompt in batch}) == 1
        assert len(batch) <= 2
    assert sorted(prompt.sample_id for batch in batches for prompt in batch) == [f"s{i}" for i in range(8)]
    assert [bucket(n) for n in (1, 16, 17, 32, 33, 256, 257)] == [16, 16, 32, 32, 64, 256, 512]


@given(st.lists(st.integers(1, 300), max_size=20), st.integers(1, 9))
def test_a_plan_depends_on_the_prompts_alone(lengths: list[int], size: int) -> None:
    prompts = [PromptIds(str(i), (1,) * length) for i, length in enumerate(lengths)]
    whole = plan(prompts, size)
    assert whole == plan(prompts, size)
    assert sorted(int(p.sample_id) for batch in whole for p in batch) == list(range(len(lengths)))


def test_a_stopped_recording_goes_on_and_gives_the_same_file(tmp_path: Path) -> None:
    undisturbed, stopped = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    record(Stopping(99), variant(Stopping(0)), PROMPTS, undisturbed)
    with pytest.raises(KeyboardInterrupt):
        record(Stopping(2), variant(Stopping(0)), PROMPTS, stopped)
    assert len(read(stopped).samples) == 4
    rest = Stopping(99)
    steps: list[tuple[int, int]] = []
    record(rest, variant(rest), PROMPTS, stopped, lambda done, total: steps.append((done, total)))
    assert rest.asked == [2, 2]  # of four batches
    assert stopped.read_bytes() == undisturbed.read_bytes()
    assert steps[-1] == (8, 8)
    assert read(stopped).root is not None


def test_a_batch_that_was_cut_short_is_run_again_whole(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    record(Stopping(99), variant(Stopping(0)), PROMPTS, whole)
    lines = whole.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]) + lines[4][:100])  # header, three samples, and a part of a line
    again = Stopping(99)
    record(again, variant(again), PROMPTS, path)
    assert again.asked == [2, 2, 2]
    assert path.read_bytes() == whole.read_bytes()


def test_replaying_honest_evidence_gives_its_own_numbers(tmp_path: Path) -> None:
    evidence, scores = tmp_path / "worker.jsonl", tmp_path / "verifier.jsonl"
    backend = Stopping(99)
    record(backend, variant(backend), PROMPTS, evidence)
    with pytest.raises(KeyboardInterrupt):
        verify(Stopping(1), variant(backend, batch_size=3), evidence, scores)
    assert verify(backend, variant(backend, batch_size=3), evidence, scores) == []
    worker = {sample.sample_id: sample for sample in read(evidence).samples}
    verifier = {sample.sample_id: sample for sample in read(scores).samples}
    assert worker.keys() == verifier.keys()
    for sample_id, sample in worker.items():
        assert sample.trace.logprobs.tolist() == verifier[sample_id].trace.logprobs.tolist()
        assert sample.trace.top_ids.tolist() == verifier[sample_id].trace.top_ids.tolist()


def test_a_verifier_does_not_look_at_the_workers_numbers(tmp_path: Path) -> None:
    evidence, scores = tmp_path / "worker.jsonl", tmp_path / "verifier.jsonl"
    backend = Stopping(99)
    record(backend, variant(backend), PROMPTS, evidence)
    header, *lines = [json.loads(line) for line in evidence.read_text().splitlines()][:-1]
    for line in lines:
        del line["commitment"]
        for step in line["trace"]:
            step["selected_logprob"] = step["selected_rank"] = None
            step["top_logprobs"] = [None] * K
    evidence.write_text("".join(json.dumps(line) + "\n" for line in (header, *lines)))
    assert verify(backend, variant(backend), evidence, scores) == []
    assert all(sample.trace.ranks.min() >= 1 for sample in read(scores).samples)


def test_bad_lines_are_returned_and_the_rest_is_scored(tmp_path: Path) -> None:
    evidence, scores = tmp_path / "worker.jsonl", tmp_path / "verifier.jsonl"
    backend = Stopping(99)
    record(backend, variant(backend), PROMPTS, evidence)
    lines = evidence.read_text().splitlines(keepends=True)
    lines[2] = lines[2].replace('"depth":1', '"depth":3', 1)
    evidence.write_text("".join(lines))
    bad = verify(backend, variant(backend), evidence, scores)
    assert (bad[0].line, bad[0].field) == (3, "trace[1].depth")
    assert len(read(scores).samples) == len(PROMPTS) - 1


def test_evidence_of_another_tokenizer_is_refused(tmp_path: Path) -> None:
    backend = Stopping(99)
    record(backend, variant(backend), PROMPTS, tmp_path / "a.jsonl")
    with pytest.raises(BadInput, match="tokenizer"):
        verify(
            backend, variant(backend, tokenizer_hash="cd" * 32), tmp_path / "a.jsonl", tmp_path / "b.jsonl"
        )


def test_sampled_evidence_is_the_same_in_any_batches(tmp_path: Path) -> None:
    backend = Stopping(99)
    sampled = Sampling(temperature=0.9, max_new_tokens=5, seed=4)
    for size in (2, 3):
        made = variant(backend, sampling=sampled, batch_size=size)
        record(backend, made, PROMPTS, tmp_path / f"{size}.jsonl")
    one, other = (
        {s.sample_id: s.output_ids for s in read(tmp_path / f"{size}.jsonl").samples} for size in (2, 3)
    )
    assert one == other
    assert sample_seed(4, "s0") != sample_seed(4, "s1")
    assert 0 <= sample_seed(4, "s0") < 2**63


def test_generation_past_the_end_is_what_the_variant_says(tmp_path: Path) -> None:
    model = ExactModel()
    ends = TransformersBackend(model, eos_ids=()).decode([PROMPTS[0].input_ids], Sampling(), K, 1)[0]
    backend = TransformersBackend(model, eos_ids=[int(ends.token_ids[0])])
    for ignore in (False, True):
        made = describe(
            backend,
            model="exact",
            tokenizer_hash="ab" * 32,
            quantization="none",
            batch_size=2,
            logprobs=K,
            sampling=Sampling(max_new_tokens=4),
            ignore_eos=ignore,
        )
        record(backend, made, PROMPTS[:1], tmp_path / f"{ignore}.jsonl")
        assert len(read(tmp_path / f"{ignore}.jsonl").samples[0].output_ids) == (4 if ignore else 1)
