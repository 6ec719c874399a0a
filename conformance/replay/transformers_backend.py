"""The embedded back end: a causal language model of transformers, on a CPU or a GPU, with BF16 logits.

Decoding pads a batch on the left and keeps a key-value cache. Scoring pads on the right, where causal
attention never looks, so that it needs no mask; only output positions pass through the head, a slice at a
time, so that memory is bounded by the slice and not by positions times vocabulary. A batch without padding is
run without a mask in both, which lets the attention take its fast path.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import numpy as np
import torch

from ..errors import BadInput
from .backend import Engine, Ids, check_prompts, check_sampling
from .trace import Sampling, Trace

HEAD_BYTES = 2**27  # of FP32 log probabilities at a time


@dataclass(frozen=True)
class Rows:
    """What is kept of N positions; the columns of a `Trace` as tensors on the CPU."""

    tokens: torch.Tensor  # [N] int64
    logprobs: torch.Tensor  # [N] FP64
    ranks: torch.Tensor  # [N] int32
    top_ids: torch.Tensor  # [N, k] int64
    top_logprobs: torch.Tensor  # [N, k] FP64
    top_ranks: torch.Tensor  # [N, k] int32

    def trace(self, rows: slice) -> Trace:
        """The trace that these rows of the N make."""
        return Trace(
            token_ids=self.tokens[rows].numpy().astype(np.int64),
            logprobs=self.logprobs[rows].numpy().astype(np.float64),
            ranks=self.ranks[rows].numpy().astype(np.int32),
            top_ids=self.top_ids[rows].numpy().astype(np.int64),
            top_logprobs=self.top_logprobs[rows].numpy().astype(np.float64),
            top_ranks=self.top_ranks[rows].numpy().astype(np.int32),
        )


class TransformersBackend:
    """Decode and score with `model`, a causal language model of transformers, where it lies.

    `eos_ids` are the tokens that end a text; by default the ones that the model's configuration names.
    """

    def __init__(self, model: Any, eos_ids: Sequence[int] | None = None) -> None:
        self.model = model.eval()
        named = model.config.eos_token_id if eos_ids is None else eos_ids
        self.eos_ids = frozenset(() if named is None else [named] if isinstance(named, int) else named)
        self.vocabulary: int = model.get_output_embeddings().weight.shape[0]
        # transformers renamed the argument; the cache is filled in place under either name
        takes = inspect.signature(model.base_model.forward).parameters
        self._cache_name = "cache" if "cache" in takes else "past_key_values"

    def about(self) -> Engine:
        """The engine is transformers; torch, which computes, is named beside it."""
        device = self._device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        return Engine(
            dtype=str(self.model.dtype).removeprefix("torch."),
            device=name,
            engine="transformers",
            engine_version=metadata.version("transformers"),
            extra={
                "torch": str(torch.__version__),
                "attention": str(getattr(self.model.config, "_attn_implementation", "unknown")),
            },
        )

    @torch.no_grad()
    def decode(
        self,
        prompts: Sequence[Ids],
        sampling: Sampling,
        k: int,
        batch_size: int,
        *,
        seeds: Sequence[int] | None = None,
        ignore_eos: bool = False,
    ) -> list[Trace]:
        """See `Backend.decode`. A prompt that has ended stays in its batch, unread, until the last has."""
        check_sampling(sampling, len(prompts), seeds)
        check_prompts(prompts)
        self._check_k(k)
        traces: list[Trace] = []
        for start in range(0, len(prompts), batch_size):
            batch = slice(start, start + batch_size)
            draws = [] if seeds is None else [torch.Generator().manual_seed(seed) for seed in seeds[batch]]
            traces += self._decode_batch(prompts[batch], sampling, k, draws, ignore_eos)
        return traces

    @torch.no_grad()
    def score(self, paths: Sequence[tuple[Ids, Ids]], k: int, batch_size: int) -> list[Trace]:
        """See `Backend.score`. Paths of like length share a batch, whatever the order they came in."""
        check_prompts([prompt for prompt, _ in paths])
        self._check_k(k)
        order = sorted(range(len(paths)), key=lambda i: len(paths[i][0]) + len(paths[i][1]))
        traces: dict[int, Trace] = {}
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            scored = self._score_batch([paths[i] for i in chosen], k)
            traces.update(zip(chosen, scored, strict=True))
        return [traces[i] for i in range(len(paths))]

    @property
    def _device(self) -> torch.device:
        device: torch.device = self.model.get_output_embeddings().weight.device
        return device

    def _check_k(self, k: int) -> None:
        if not 1 <= k <= self.vocabulary:
            raise BadInput(f"k = {k}: must be between 1 and the vocabulary's {self.vocabulary} entries")

    def _decode_batch(
        self,
        prompts: Sequence[Ids],
        sampling: Sampling,
        k: int,
        draws: Sequence[torch.Generator],
        ignore_eos: bool,
    ) -> list[Trace]:
        from transformers import DynamicCache

        longest = max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.int64)
        mask = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask[row, longest - len(prompt) :] = 1
        padded = not bool(mask.all())
        places = (mask.cumsum(-1) - 1).clamp_min(0).to(self._device)
        ids, mask = ids.to(self._device), mask.to(self._device)
        cache = {self._cache_name: DynamicCache(config=self.model.config)}
        lengths = [0] * len(prompts)
        steps: list[Rows] = []
        while len(steps) < sampling.max_new_tokens and 0 in lengths:
            hidden = self.model.base_model(
                input_ids=ids,
                attention_mask=mask if padded else None,
                position_ids=places,
                use_cache=True,
                **cache,
            ).last_hidden_state[:, -1]
            logits = self.model.get_output_embeddings()(hidden)
            logprobs = logits.float().log_softmax(-1)
            chosen = choose(logits, logprobs, sampling, draws)
            steps.append(read_rows(logprobs, chosen, k))
            for row, token in enumerate(chosen.tolist()):
                if lengths[row] == 0 and not ignore_eos and token in self.eos_ids:
                    lengths[row] = len(steps)
            ids = chosen[:, None]
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
            places = places[:, -1:] + 1
        by_prompt = [
            torch.stack(columns, dim=1).flatten(0, 1)
            for columns in zip(*(vars(step).values() for step in steps), strict=True)
        ]
        rows = Rows(*by_prompt)
        return [
            rows.trace(slice(index * len(steps), index * len(steps) + (length or len(steps))))
            for index, length in enumerate(lengths)
        ]

    def _score_batch(self, paths: Sequence[tuple[Ids, Ids]], k: int) -> list[Trace]:
        longest = max(len(prompt) + len(output) for prompt, output in paths)
        ids = torch.zeros(len(paths), longest, dtype=torch.int64)
        for row, (prompt, output) in enumerate(paths):
            ids[row, : len(prompt) + len(output)] = torch.tensor([*prompt, *output])
        hidden = self.model.base_model(input_ids=ids.to(self._device), use_cache=False).last_hidden_state
        # the logits that score position i come from the hidden state at i - 1
        inputs = torch.cat(
            [hidden[row, len(p) - 1 : len(p) + len(o) - 1] for row, (p, o) in enumerate(paths)]
        )
        targets = torch.cat([torch.tensor(output, dtype=torch.int64) for _, output in paths])
        at_once = max(1, HEAD_BYTES // (4 * self.vocabulary))
        parts = [
            read_rows(
                self.model.get_output_embeddings()(inputs[start : start + at_once]).float().log_softmax(-1),
                targets[start : start + at_once].to(self._device),
                k,
            )
            for start in range(0, len(inputs), at_once)
        ]
        columns = [torch.cat(c) for c in zip(*(vars(part).values() for part in parts), strict=True)]
        rows, ends = Rows(*columns), np.cumsum([len(output) for _, output in paths])
        return [
            rows.trace(slice(int(end) - len(output), int(end)))
            for end, (_, output) in zip(ends, paths, strict=True)
        ]


def read_rows(logprobs: torch.Tensor, chosen: torch.Tensor, k: int) -> Rows:
    """Keep of FP32 log probabilities [N, V] the chosen tokens [N], their ranks and the k most likely.

    `topk` may return either of two tied entries, so the entries are sought that are at least as likely as the
    k-th: they are a set without a choice in it, which is then put in order (a tie in order of id) and cut.
    """
    own = logprobs.gather(1, chosen[:, None])
    ranks = (logprobs >= own).sum(-1)
    least = logprobs.topk(k).values[:, -1:]
    tied = int((logprobs >= least).sum(-1).max())
    values, ids = logprobs.topk(tied)
    by_id = ids.argsort(-1)
    values, ids = values.gather(1, by_id), ids.gather(1, by_id)
    values, by_value = values.sort(dim=-1, descending=True, stable=True)
    ids = ids.gather(1, by_value)
    # "at least as likely" counts run to the end of a tie: search among the negated, ascending values
    top_ranks = torch.searchsorted((-values).contiguous(), (-values[:, :k]).contiguous(), right=True)
    return Rows(
        tokens=chosen.cpu(),
        logprobs=own[:, 0].double().cpu(),
        ranks=ranks.int().cpu(),
        top_ids=ids[:, :k].cpu(),
        top_logprobs=values[:, :k].double().cpu(),
        top_ranks=top_ranks.int().cpu(),
    )


def choose(
    logits: torch.Tensor, logprobs: torch.Tensor, sampling: Sampling, draws: Sequence[torch.Generator]
) -> torch.Tensor:
    """The next tokens [B] for logits [B, V].

    Greedy takes the first maximum of the logits in their own format. Sampling divides the log probabilities
    by the temperature, keeps the `top_k` most likely, then the fewest of these whose probabilities reach
    `top_p`, and inverts their cumulative distribution in FP64 at one uniform number per prompt.
    """
    if sampling.temperature == 0:
        return logits.argmax(-1)
    scaled = logprobs.double() / sampling.temperature
    uniform = torch.cat([torch.rand(1, generator=g, dtype=torch.float64) for g in draws])
    order = None
    if sampling.top_k or sampling.top_p < 1:
        scaled, order = scaled.sort(dim=-1, descending=True, stable=True)
        if sampling.top_k:
            scaled[:, sampling.top_k :] = -torch.inf
        probabilities = scaled.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        scaled = scaled.masked_fill(before >= sampling.top_p, -torch.inf)
    cumulative = scaled.softmax(-1).cumsum(-1)
    wanted = uniform.to(cumulative.device)[:, None] * cumulative[:, -1:]
    place = torch.searchsorted(cumulative, wanted, right=True)
    # rounding may leave `wanted` on the last sum: take the last entry with a probability
    last = (cumulative < cumulative[:, -1:]).sum(-1, keepdim=True)
    place = torch.minimum(place, last)
    return (place if order is None else order.gather(1, place))[:, 0]
