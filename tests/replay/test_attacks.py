"""What a cheating worker may try, on a real (tiny, random) transformer with the experiment's own recipes.

Tested elsewhere: edited evidence (test_commitment, test_record, and test_command's check of the published
root), a sample id that comes twice (test_record), sampling that claims to be greedy and rounded numbers
(test_experiment), cheap text with a prefill of the right model through the command line (test_command).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from certhead.conformance.errors import BadInput
from certhead.conformance.replay.calibrate import (
    Calibration,
    derive_by_separation,
    evaluate,
    is_calibration,
    prompt_digest,
)
from certhead.conformance.replay.confidence import disjoint_batches
from certhead.conformance.replay.exact_check import ExactCheck
from certhead.conformance.replay.grid import Status, recover
from certhead.conformance.replay.metrics import TokenMetrics, compare
from certhead.conformance.replay.pairing import compare_files, withhold
from certhead.conformance.replay.record import write
from certhead.conformance.replay.run_report import Pair, pair_up, summarize
from certhead.conformance.replay.summary import Convention, Summary
from certhead.conformance.replay.trace import Sample, Sampling
from certhead.conformance.replay.transformers_backend import TransformersBackend
from certhead.conformance.replay.variants import RECIPES, Weights, build, weights_of
from certhead.conformance.replay.verdict import Outcome, judge
from certhead.conformance.replay.worker import describe
from replay.replay_models import some_prompts, tiny_llama

RESEARCH = Convention.RESEARCH
TOPK = 16
BATCH = 4  # samples that are judged together
GREEDY = Sampling(max_new_tokens=16)
WARM = Sampling(temperature=0.8, max_new_tokens=16, seed=1)
PROMPTS = some_prompts((8, 16, 24) * 32)
QUANTISED = ("int8", "fp8", "int4-g32")
CHEATS = (*QUANTISED, "29-layers", "other", "another-model")


@cache
def honest_weights() -> Weights:
    stored = weights_of(tiny_llama(layers=3))
    return Weights(stored.config, {name: value.bfloat16() for name, value in stored.state.items()})


@cache
def backend(name: str) -> TransformersBackend:
    """A model by its recipe; "another-model" has the honest one's shape and other random weights."""
    honest = honest_weights()
    if name == "another-model":
        torch.manual_seed(1)
        spread = {n: v.float().std() if v.dim() > 1 else 0.0 for n, v in honest.state.items()}
        weights = Weights(
            honest.config,
            {n: (v + spread[n] * torch.randn(v.shape)).bfloat16() for n, v in honest.state.items()},
        )
    else:
        weights = RECIPES[name].change(honest)
    return TransformersBackend(build(weights, torch.bfloat16), eos_ids=())


@cache
def worker(name: str, sampling: Sampling = GREEDY) -> tuple[Sample, ...]:
    """A worker's evidence, decoded in batches of 24."""
    seeds = None if sampling.seed is None else [sampling.seed + place for place in range(len(PROMPTS))]
    prompts = [prompt.input_ids for prompt in PROMPTS]
    traces = backend(name).decode(prompts, sampling, TOPK, 24, seeds=seeds, ignore_eos=True)
    return tuple(
        Sample(prompt.sample_id, prompt.input_ids, tuple(trace.token_ids.tolist()), trace)
        for prompt, trace in zip(PROMPTS, traces, strict=True)
    )


def score(samples: tuple[Sample, ...], batch_size: int = 13) -> tuple[Sample, ...]:
    """The honest model scores the paths: as a verifier does, or a worker who forges by prefill."""
    traces = backend("bf16").score([(s.input_ids, s.output_ids) for s in samples], TOPK, batch_size)
    return tuple(replace(s, trace=trace) for s, trace in zip(samples, traces, strict=True))


@cache
def pairs(name: str) -> tuple[Pair, ...]:
    return tuple(pair_up(worker(name), score(worker(name))))


def tokens(pair: Pair) -> TokenMetrics:
    return compare(pair.worker.trace, pair.verifier.trace, RESEARCH, TOPK)


def summary(some: tuple[Pair, ...] | list[Pair]) -> Summary:
    return summarize(RESEARCH, map(tokens, some))


def scaled(sample: Sample, factor: float) -> Sample:
    """The sample with all log probabilities times `factor`."""
    trace = sample.trace
    return replace(
        sample,
        trace=replace(trace, logprobs=factor * trace.logprobs, top_logprobs=factor * trace.top_logprobs),
    )


def digest(pair: Pair) -> str:
    return prompt_digest(pair.worker.input_ids)


@cache
def calibration() -> Calibration:
    """Thresholds from one side of the split, against the two mildest known cheats."""

    def batches(name: str) -> list[Summary]:
        side = [pair for pair in pairs(name) if is_calibration(pair.worker.input_ids)]
        return [summary(batch) for batch in disjoint_batches(side, BATCH)]

    prompts = [digest(pair) for pair in pairs("bf16") if is_calibration(pair.worker.input_ids)]
    cheats = {name: batches(name) for name in ("int8", "fp8")}
    return derive_by_separation("tiny", batches("bf16"), cheats, prompts)


def held_out(name: str) -> list[Pair]:
    return [pair for pair in pairs(name) if not is_calibration(pair.worker.input_ids)]


@pytest.mark.parametrize("cheat", CHEATS)
def test_every_metric_of_a_cheat_is_worse_than_the_honest_workers(cheat: str) -> None:
    honest, cheating = summary(pairs("bf16")), summary(pairs(cheat))
    for metric in ("mean_abs", "p90_abs", "p95_abs", "p99_abs", "rank_delta_rate", "js_p95", "js_p99"):
        assert getattr(honest, metric) < getattr(cheating, metric), metric
    for metric in ("jaccard_mean", "jaccard_p05"):
        assert getattr(honest, metric) > getattr(cheating, metric), metric


def test_thresholds_of_half_the_prompts_reject_every_cheating_batch_of_the_other_half() -> None:
    found = evaluate(
        calibration(),
        held_out("bf16"),
        {cheat: held_out(cheat) for cheat in CHEATS},
        batch_size=BATCH,
        prompt=digest,
        summarise=lambda batch: (summary(list(batch)), ()),
    )
    assert len(found.honest) >= 10
    assert {verdict.outcome for verdict in found.honest} == {Outcome.PASS}
    for cheat, verdicts in found.cheats.items():
        assert len(verdicts) == len(found.honest), cheat
        assert {verdict.outcome for verdict in verdicts} == {Outcome.REJECT}, cheat
        # what the numbers promise, and no more: so few batches leave room for a rate of a quarter
        assert 0 < found.rates(cheat).cheat_accept.high < 0.35


@pytest.mark.parametrize("cheat", QUANTISED)
def test_prompts_of_eight_tokens_are_enough(cheat: str) -> None:
    short = {name: [p for p in held_out(name) if len(p.worker.input_ids) == 8] for name in ("bf16", cheat)}
    assert len(short["bf16"]) >= 2 * BATCH
    for name, outcome in (("bf16", Outcome.PASS), (cheat, Outcome.REJECT)):
        for batch in disjoint_batches(short[name], BATCH):
            assert judge(summary(batch), (), calibration().preset).outcome is outcome


def test_only_the_ranks_tell_of_cheap_text_with_a_prefill_of_the_right_model() -> None:
    forged = score(worker("int4-g32"), 7)
    made = pair_up(forged, score(forged))
    verdict = judge(summary(made), (), calibration().preset)
    assert verdict.outcome is Outcome.PASS
    check = ExactCheck(GREEDY)
    for pair in made:
        check.see(pair.worker, pair.verifier)
    assert check.beyond_bound > 0
    overruled = check.overrule(verdict)
    assert overruled.outcome is Outcome.REJECT
    assert overruled.decided_by[0].metric == "worker_rank_beyond_bound"
    # a worker that claims to sample has no bound: nothing in such evidence speaks against it
    unbounded = ExactCheck(WARM)
    unbounded.see(made[0].worker, made[0].verifier)
    assert unbounded.overrule(verdict).outcome is Outcome.PASS


def test_another_temperature_is_seen_where_it_claims_to_be_none_and_where_it_is_in_the_numbers() -> None:
    warm = worker("bf16", WARM)
    made = pair_up(warm, score(warm))
    check = ExactCheck(GREEDY)
    for pair in made:
        check.see(pair.worker, pair.verifier)
    assert check.beyond_bound > 0
    # numbers after the temperature are another distribution's
    after = [replace(pair, worker=scaled(pair.worker, 1 / 0.8)) for pair in made]
    assert judge(summary(after), (), calibration().preset).outcome is Outcome.REJECT


def test_a_temperature_other_than_the_claimed_one_is_not_seen() -> None:
    """Evidence holds the model's own numbers, so the metrics of hot and warm text do not differ in kind."""
    hot = worker("bf16", replace(WARM, temperature=1.5))
    made = pair_up(hot, score(hot))
    check = ExactCheck(WARM)
    check.see(made[0].worker, made[0].verifier)
    assert check.beyond_bound == 0
    spread = [float(summary(some).js_p99 or 0) for some in (made, list(pairs("bf16")), list(pairs("int8")))]
    assert abs(spread[0] - spread[1]) < 0.2 * (spread[2] - spread[1])


def test_forged_numbers_leave_the_grid_of_bf16() -> None:
    """Noise on honest numbers that every threshold lets pass is no log-softmax of BF16 logits."""
    rng = np.random.default_rng(0)
    honest = worker("bf16")[:BATCH]
    forged = [
        replace(
            sample,
            trace=replace(
                sample.trace, top_logprobs=sample.trace.top_logprobs - 1e-3 * rng.random((16, TOPK))
            ),
        )
        for sample in honest
    ]
    made = pair_up(forged, score(honest))
    assert judge(summary(made), (), calibration().preset).outcome is Outcome.PASS
    assert all(recover(s.trace).counts()[Status.INCONSISTENT] == 0 for s in honest)
    assert all((recover(s.trace).status == Status.INCONSISTENT).all() for s in forged)


def test_a_cheap_models_numbers_drawn_towards_certainty_are_rejected() -> None:
    """Scaling hides neither the other distribution (metrics) nor the scale (grid)."""
    forged = [replace(pair, worker=scaled(pair.worker, 0.9)) for pair in held_out("int8")]
    assert judge(summary(forged), (), calibration().preset).outcome is Outcome.REJECT
    assert (recover(forged[0].worker.trace).status == Status.INCONSISTENT).mean() > 0.9


def test_a_sample_that_comes_again_under_another_id_is_left_out(tmp_path: Path) -> None:
    some = pairs("bf16")[:BATCH]
    variant = describe(
        backend("bf16"),
        model="tiny",
        tokenizer_hash="ab" * 32,
        quantization="none",
        batch_size=24,
        logprobs=TOPK,
        sampling=GREEDY,
    )
    files = tmp_path / "worker.jsonl", tmp_path / "verifier.jsonl"
    for file, samples in zip(files, ([p.worker for p in some], [p.verifier for p in some]), strict=True):
        write(file, variant, [*samples, *(replace(s, sample_id=f"{s.sample_id}-again") for s in samples)])
    found = compare_files(*files, RESEARCH)
    assert found.summary == summary(some)
    assert found.bad[0] == "sample 's0-again': the same path as sample 's0'"
    assert found.left_out == BATCH
    passing = judge(found.summary, (), calibration().preset)
    assert passing.outcome is Outcome.PASS
    assert withhold(passing, found).outcome is Outcome.INCONCLUSIVE


def test_one_prompt_under_two_ids_is_not_two_trials() -> None:
    some = held_out("bf16")[:BATCH]
    with pytest.raises(BadInput, match="honest: 4 samples repeat another one's prompt"):
        evaluate(
            calibration(),
            [*some, *some],
            {},
            batch_size=BATCH,
            prompt=digest,
            summarise=lambda batch: (summary(list(batch)), ()),
        )
