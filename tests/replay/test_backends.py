"""Both back ends keep the contract of backend.py: an exact model, a small transformer, vLLM's types."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from certhead.conformance.errors import BadInput
from certhead.conformance.replay.backend import sample_seed
from certhead.conformance.replay.trace import Sampling, Trace
from certhead.conformance.replay.transformers_backend import TransformersBackend, choose, read_rows
from certhead.conformance.replay.vllm_backend import VllmBackend, parse
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.replay_models import EOS, VOCABULARY, ExactModel, some_prompts, tiny_llama

PROMPTS = [prompt.input_ids for prompt in some_prompts()]
GREEDY = Sampling(max_new_tokens=11)
K = 6


def same(a: Trace, b: Trace) -> bool:
    return all(np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(Trace))


def same_but_for_ties_beyond_the_list(a: Trace, b: Trace) -> bool:
    """The vLLM back end's trace `b` counts a tie with the last entry as far as the list goes."""
    last = a.top_logprobs[:, -1]
    tied = a.top_logprobs == last[:, None]
    known = replace(a, top_ranks=np.where(tied, K, a.top_ranks))
    return same(replace(known, ranks=np.where(a.logprobs == last, b.ranks, a.ranks)), b)


@given(
    logits=st.lists(
        st.lists(st.sampled_from([-3.0, -0.5, 0.0, 0.25, 2.0]), min_size=7, max_size=7),
        min_size=1,
        max_size=4,
    ),
    k=st.integers(1, 7),
    token=st.integers(0, 6),
)
@settings(max_examples=60)
def test_rows_are_what_a_sort_of_the_whole_vocabulary_says(
    logits: list[list[float]], k: int, token: int
) -> None:
    logprobs = torch.tensor(logits).log_softmax(-1)
    rows = read_rows(logprobs, torch.full((len(logits),), token), k)
    for row, values in enumerate(logprobs.tolist()):
        order = sorted(range(7), key=lambda i: (-values[i], i))[:k]
        rank_of = [sum(value >= values[i] for value in values) for i in range(7)]
        assert rows.top_ids[row].tolist() == order
        assert rows.top_logprobs[row].tolist() == [values[i] for i in order]
        assert rows.top_ranks[row].tolist() == [rank_of[i] for i in order]
        assert (rows.logprobs[row].item(), rows.ranks[row].item()) == (values[token], rank_of[token])


def test_a_chosen_token_outside_the_entries_keeps_its_own_values() -> None:
    logprobs = torch.tensor([[4.0, 3.0, 2.0, 1.0]]).log_softmax(-1)
    rows = read_rows(logprobs, torch.tensor([3]), 2)
    assert rows.top_ids.tolist() == [[0, 1]]
    assert (rows.logprobs.item(), rows.ranks.item()) == (logprobs[0, 3].item(), 4)


def test_decoding_is_what_one_gets_by_hand() -> None:
    model = ExactModel()
    traces = TransformersBackend(model, eos_ids=()).decode(PROMPTS, GREEDY, K, 3)
    for prompt, trace in zip(PROMPTS, traces, strict=True):
        path = list(prompt)
        for depth in range(GREEDY.max_new_tokens):
            logits = model.next_logits(path[-1], len(path) - 1)
            token = int(logits.argmax())
            assert trace.token_ids[depth] == token
            assert trace.logprobs[depth] == logits.log_softmax(-1)[token].item()
            assert trace.ranks[depth] == int((logits >= logits[token]).sum())
            path.append(token)


@pytest.mark.parametrize("batch_size", [1, 2, 5, 8])
def test_scoring_a_path_gives_the_bits_of_decoding_it(batch_size: int) -> None:
    backend = TransformersBackend(ExactModel(), eos_ids=())
    decoded = backend.decode(PROMPTS, GREEDY, K, 3)
    paths = [(prompt, trace.token_ids.tolist()) for prompt, trace in zip(PROMPTS, decoded, strict=True)]
    scored = backend.score(paths, K, batch_size)
    assert all(same(a, b) for a, b in zip(decoded, scored, strict=True))


def test_scoring_takes_the_given_tokens_and_not_its_own() -> None:
    model = ExactModel()
    trace = TransformersBackend(model).score([((1, 2, 3), (4, 4, EOS, 4))], K, 1)[0]
    assert trace.token_ids.tolist() == [4, 4, EOS, 4]
    logits = model.next_logits(4, 4)  # depth 2 is position 5, which the token at 4 precedes
    assert trace.logprobs[2] == logits.log_softmax(-1)[EOS].item()


def test_memory_of_scoring_is_bounded_by_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = TransformersBackend(ExactModel(), eos_ids=())
    paths = [(prompt, tuple(range(10, 30))) for prompt in PROMPTS]
    whole = backend.score(paths, K, 5)
    monkeypatch.setattr(
        "certhead.conformance.replay.transformers_backend.HEAD_BYTES", 4 * VOCABULARY * 7
    )  # seven rows at a time
    assert all(same(a, b) for a, b in zip(whole, backend.score(paths, K, 5), strict=True))


def test_a_text_ends_with_its_end_token_unless_told_otherwise() -> None:
    model = ExactModel()
    long = TransformersBackend(model, eos_ids=()).decode(PROMPTS, GREEDY, K, 5)
    ends = [int(trace.token_ids[4]) for trace in long]  # a token that surely comes
    stopping = TransformersBackend(model, eos_ids=ends[:1])
    for one, trace in zip(long, stopping.decode(PROMPTS, GREEDY, K, 5), strict=True):
        stop = one.token_ids.tolist().index(ends[0]) + 1 if ends[0] in one.token_ids else len(one)
        assert trace.token_ids.tolist() == one.token_ids[:stop].tolist()
        assert trace.top_ids.shape == (stop, K)
    assert all(
        same(a, b) for a, b in zip(long, stopping.decode(PROMPTS, GREEDY, K, 5, ignore_eos=True), strict=True)
    )


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=0.8, max_new_tokens=9),
        Sampling(temperature=1.3, top_p=0.7, max_new_tokens=9),
        Sampling(temperature=1.0, top_k=4, max_new_tokens=9),
        Sampling(temperature=0.6, top_k=9, top_p=0.5, max_new_tokens=9),
    ],
)
def test_draws_depend_on_the_seed_and_not_on_the_batch(sampling: Sampling) -> None:
    backend = TransformersBackend(ExactModel(), eos_ids=())
    seeds = [sample_seed(3, str(index)) for index in range(len(PROMPTS))]
    once = backend.decode(PROMPTS, sampling, K, 5, seeds=seeds)
    again = backend.decode(PROMPTS[::-1], sampling, K, 2, seeds=seeds[::-1])[::-1]
    assert all(same(a, b) for a, b in zip(once, again, strict=True))
    other = backend.decode(PROMPTS, sampling, K, 5, seeds=[seed + 1 for seed in seeds])
    assert not all(same(a, b) for a, b in zip(once, other, strict=True))


def test_recorded_log_probabilities_are_those_before_the_temperature() -> None:
    backend = TransformersBackend(ExactModel(), eos_ids=())
    seeds = list(range(len(PROMPTS)))
    warm = backend.decode(PROMPTS, Sampling(temperature=1.7, max_new_tokens=5), K, 5, seeds=seeds)
    paths = [(prompt, trace.token_ids.tolist()) for prompt, trace in zip(PROMPTS, warm, strict=True)]
    assert all(same(a, b) for a, b in zip(warm, backend.score(paths, K, 5), strict=True))


def naive_choice(values: list[float], sampling: Sampling, uniform: float) -> int:
    """The draw of `choose`, one token at a time and in plain floats."""
    weights = {i: np.exp(v / sampling.temperature) for i, v in enumerate(values)}
    order = sorted(weights, key=lambda i: (-weights[i], i))[: sampling.top_k or None]
    total, kept, mass = sum(weights[i] for i in order), [], 0.0
    for i in order:
        if mass >= sampling.top_p:
            break
        kept.append(i)
        mass += weights[i] / total
    if not sampling.top_k and sampling.top_p == 1:
        kept = sorted(kept)  # nothing was cut: the draw goes through the vocabulary in order
    left = uniform * sum(weights[i] for i in kept)
    for i in kept:
        left -= weights[i]
        if left < 0:
            return i
    return kept[-1]


@given(
    values=st.lists(st.floats(-8, 8), min_size=9, max_size=9, unique=True),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_p=st.sampled_from([1.0, 0.9, 0.37, 1e-9]),
    top_k=st.sampled_from([0, 1, 3, 8]),
    seed=st.integers(0, 2**63 - 1),
)
@settings(max_examples=80)
def test_choices_are_the_naive_ones(
    values: list[float], temperature: float, top_p: float, top_k: int, seed: int
) -> None:
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k)
    logprobs = torch.tensor([values]).log_softmax(-1)
    chosen = choose(logprobs, logprobs, sampling, [torch.Generator().manual_seed(seed)])
    uniform = torch.rand(1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).item()
    assert chosen.item() == naive_choice(logprobs[0].double().tolist(), sampling, uniform)


def test_greedy_takes_the_first_of_tied_logits() -> None:
    logits = torch.tensor([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]], dtype=torch.bfloat16)
    assert choose(logits, logits.float().log_softmax(-1), Sampling(), []).tolist() == [1, 0]


def test_a_transformer_says_the_same_padded_and_alone() -> None:
    backend = TransformersBackend(tiny_llama(), eos_ids=())
    together = backend.decode(PROMPTS, GREEDY, K, len(PROMPTS))
    alone = backend.decode(PROMPTS, GREEDY, K, 1)
    scored = backend.score(
        [(prompt, trace.token_ids.tolist()) for prompt, trace in zip(PROMPTS, alone, strict=True)], K, 5
    )
    for a, b, c in zip(together, alone, scored, strict=True):
        assert a.token_ids.tolist() == b.token_ids.tolist()
        # FP32 sums in other orders: close, where a wrong mask or place is off by whole nats
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-4)
        np.testing.assert_allclose(c.logprobs, b.logprobs, atol=1e-4)
    about = backend.about()
    assert (about.engine, about.dtype, about.device) == ("transformers", "float32", "cpu")


def test_like_lengths_share_a_batch_of_scores() -> None:
    model = ExactModel()
    paths = [((1,) * length, (2,)) for length in (40, 3, 41, 4)]
    TransformersBackend(model).score(paths, K, 2)
    assert model.calls == [(2, 5), (2, 42)]


@pytest.mark.parametrize(
    ("sampling", "seeds", "words"),
    [
        (Sampling(temperature=-1.0), None, "temperature -1.0"),
        (Sampling(temperature=1.0), None, "one seed per prompt"),
        (Sampling(temperature=1.0), [1], "one seed per prompt"),
        (Sampling(top_p=0.0), None, "top_p 0.0"),
        (Sampling(top_k=-1), None, "top_k -1"),
        (Sampling(max_new_tokens=0), None, "max_new_tokens 0"),
    ],
)
def test_impossible_sampling_is_refused(sampling: Sampling, seeds: list[int] | None, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        TransformersBackend(ExactModel()).decode(PROMPTS, sampling, K, 2, seeds=seeds)


def test_bad_sizes_are_refused() -> None:
    backend = TransformersBackend(ExactModel())
    with pytest.raises(BadInput, match="prompt 1 has no tokens"):
        backend.decode([(1,), ()], GREEDY, K, 2)
    with pytest.raises(BadInput, match="k = 98"):
        backend.score([((1,), (2,))], VOCABULARY + 1, 1)


@dataclass
class Logprob:
    """vLLM's documented type."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


class FakeLlm:
    """Answers as vLLM's `LLM.generate` is documented to, with the numbers of another back end."""

    def __init__(self, backend: TransformersBackend) -> None:
        self.backend = backend
        self.batches: list[int] = []

    def generate(self, prompts: list[Any], parameters: list[Any], use_tqdm: bool) -> list[Any]:
        assert not use_tqdm
        self.batches.append(len(prompts))
        return [self._answer(p["prompt_token_ids"], s) for p, s in zip(prompts, parameters, strict=True)]

    def _answer(self, ids: list[int], asked: SimpleNamespace) -> SimpleNamespace:
        prompt_logprobs = None
        if asked.prompt_logprobs is not None:
            trace = self.backend.score([(ids[:1], ids[1:])], asked.prompt_logprobs, 1)[0]
            prompt_logprobs = [None, *entries(trace)]
        sampling = Sampling(asked.temperature, asked.top_p, asked.top_k, asked.max_tokens)
        seeds = None if asked.seed is None else [asked.seed]
        trace = self.backend.decode([ids], sampling, K, 1, seeds=seeds, ignore_eos=asked.ignore_eos)[0]
        done = SimpleNamespace(token_ids=tuple(trace.token_ids.tolist()), logprobs=entries(trace))
        return SimpleNamespace(prompt_logprobs=prompt_logprobs, outputs=[done])


def entries(trace: Trace) -> list[dict[int, Logprob]]:
    """A trace in vLLM's form: the token itself with its rank, which its place in the list overwrites."""
    return [
        {
            int(trace.token_ids[d]): Logprob(float(trace.logprobs[d]), int(trace.ranks[d])),
            **{
                int(token): Logprob(float(logprob), place)
                for place, (token, logprob) in enumerate(
                    zip(trace.top_ids[d], trace.top_logprobs[d], strict=True), 1
                )
            },
        }
        for d in range(len(trace))
    ]


def sampling_params(**asked: Any) -> SimpleNamespace:
    defaults = {"top_p": 1.0, "top_k": 0, "seed": None, "logprobs": None, "prompt_logprobs": None}
    return SimpleNamespace(**{"ignore_eos": False, **defaults, **asked})


@pytest.fixture
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        sys.modules, "vllm", SimpleNamespace(SamplingParams=sampling_params, TokensPrompt=dict)
    )


@pytest.mark.usefixtures("vllm")
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_vllm_gives_the_traces_that_its_answers_hold(temperature: float) -> None:
    own = TransformersBackend(ExactModel())
    backend = VllmBackend(FakeLlm(own), max_logprobs=K)
    seeds = [7, 8, 9, 10, 11] if temperature else None
    sampling = Sampling(temperature=temperature, max_new_tokens=8)
    expected = own.decode(PROMPTS, sampling, K, 1, seeds=seeds)
    decoded = backend.decode(PROMPTS, sampling, K, 2, seeds=seeds)
    assert backend.llm.batches == [2, 2, 1]
    assert all(same_but_for_ties_beyond_the_list(a, b) for a, b in zip(expected, decoded, strict=True))
    paths = [(prompt, trace.token_ids.tolist()) for prompt, trace in zip(PROMPTS, decoded, strict=True)]
    scored = backend.score(paths, K, 4)
    assert all(
        same_but_for_ties_beyond_the_list(a, b) for a, b in zip(own.score(paths, K, 4), scored, strict=True)
    )


def test_vllm_keeps_k_of_k_plus_one_entries_and_the_token_beside_them() -> None:
    trace = parse([9], [{9: Logprob(-5.0, 40), 3: Logprob(-0.5, 1), 1: Logprob(-1.5, 2)}], 2, "logprobs")
    assert trace.top_ids.tolist() == [[3, 1]]
    assert (trace.logprobs.tolist(), trace.ranks.tolist()) == ([-5.0], [40])


@pytest.mark.parametrize(
    ("positions", "words"),
    [
        ([], "0 positions for 1 tokens"),
        ([None], r"logprobs\[0\] has no entry for the path's token 9"),
        ([{3: Logprob(-0.5, 1)}], "no entry for the path's token 9"),
        ([{9: Logprob(-0.5, 1)}], "1 entries; 2 were asked for"),
    ],
)
def test_vllm_answers_that_lack_something_are_refused(positions: list[Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse([9], positions, 2, "logprobs")


@pytest.mark.usefixtures("vllm")
def test_vllm_that_returns_too_few_entries_is_refused_before_it_runs() -> None:
    with pytest.raises(BadInput, match="start it with max_logprobs of k or more"):
        VllmBackend(FakeLlm(TransformersBackend(ExactModel()))).score([((1,), (2,))], 64, 1)


def test_without_vllm_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(BadInput, match="pip install vllm"):
        VllmBackend(object())


def test_ranks_of_listed_tokens_are_counted_and_not_taken_from_their_place() -> None:
    entries = {9: Logprob(-0.5, 1), 3: Logprob(-0.5, 2), 1: Logprob(-1.5, 3)}
    trace = parse([9], [entries], 3, "logprobs")
    assert trace.top_ids.tolist() == [[3, 9, 1]]
    assert (trace.ranks.tolist(), trace.top_ranks.tolist()) == ([2], [[2, 2, 3]])
