"""Small models for the tests of replay: one that is exact by construction, one that is a real transformer."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from certhead.conformance.replay.replay_prompts import PromptIds
from certhead.conformance.replay.variants import Source, Weights, weights_of

VOCABULARY = 97
EOS = 5


class ExactModel(torch.nn.Module):
    """Looks like a causal model of transformers; its logits are small integers, the same in any batch shape.

    The hidden state at a position is the one-hot of a mix of its token and its place, and the head a fixed
    integer matrix with many ties. A mistake in alignment, padding or places changes the logits.
    """

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.head = torch.nn.Linear(VOCABULARY, VOCABULARY, bias=False)
        self.head.weight.data = torch.randint(-6, 7, (VOCABULARY, VOCABULARY), generator=generator).float()
        self.config = transformers.LlamaConfig(num_hidden_layers=1, eos_token_id=EOS)
        self.dtype = torch.float32
        self.calls: list[tuple[int, ...]] = []

    @property
    def base_model(self) -> Any:
        return _Base(self)

    def get_output_embeddings(self) -> torch.nn.Linear:
        return self.head

    def next_logits(self, token: int, place: int) -> torch.Tensor:
        """The logits after `token` at `place`, for tests that decode by hand."""
        return self.head.weight[:, (token * 31 + place * 7) % VOCABULARY].detach()


class _Base:
    def __init__(self, model: ExactModel) -> None:
        self.model = model

    def forward(self, input_ids: Any, past_key_values: Any = None) -> Any:  # the signature that is asked for
        raise AssertionError

    def __call__(
        self, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None, **_: Any
    ) -> SimpleNamespace:
        self.model.calls.append(tuple(input_ids.shape))
        places = torch.arange(input_ids.shape[1])[None] if position_ids is None else position_ids
        mixed = (input_ids * 31 + places * 7) % VOCABULARY
        hidden = torch.nn.functional.one_hot(mixed, VOCABULARY).float()
        return SimpleNamespace(last_hidden_state=hidden)


def tiny_llama(layers: int = 2) -> Any:
    """A Llama with random weights that are large enough for peaked distributions."""
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.3,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=EOS,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def some_prompts(lengths: tuple[int, ...] = (3, 9, 5, 12, 7)) -> list[PromptIds]:
    """Prompts of these lengths in a fixed order, all different."""
    return [
        PromptIds(f"s{index}", tuple((index * 17 + place * 5 + 1) % VOCABULARY for place in range(length)))
        for index, length in enumerate(lengths)
    ]


def encode(words: str) -> list[int]:
    """A stand-in tokenizer: one id for each pair of bytes."""
    data = words.encode()
    return [6 + sum(data[place : place + 2]) % (VOCABULARY - 6) for place in range(0, len(data), 2)]


class TinySource(Source):
    """The recipes' source with a small random model, and this file in place of the model's."""

    def __init__(self) -> None:
        super().__init__(Path(__file__))

    @cached_property
    def stored(self) -> Weights:
        return weights_of(tiny_llama())

    @cached_property
    def rounded(self) -> Weights:
        return Weights(self.stored.config, {n: v.bfloat16() for n, v in self.stored.state.items()})

    @cached_property
    def tokenizer(self) -> Any:
        return lambda words, add_special_tokens: {"input_ids": encode(words)}

    @cached_property
    def tokenizer_hash(self) -> str:
        return "ab" * 32
