"""A back end that runs in no time: its logits are drawn from a hash of the tokens before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from certhead.conformance.replay import backend
from certhead.conformance.replay.models import Engine, Loaded
from certhead.conformance.replay.trace import Sampling, Trace
from certhead.conformance.replay.transformers_backend import read_rows

VOCABULARY = 48
EOS = 0


class FakeBackend(backend.Backend):
    """A model of 48 tokens with BF16 logits. `error` is how far its logits are from the honest ones."""

    def __init__(self, error: float = 0.0) -> None:
        self.error = error
        self.decoded = self.scored = 0  # sequences

    def about(self) -> backend.Engine:
        return backend.Engine("bfloat16", "nowhere", "fake", "1", {})

    def logits(self, prefix: Sequence[int]) -> torch.Tensor:
        digest = hashlib.sha256(np.array(prefix, np.int64).tobytes()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        values = 3 * rng.standard_normal(VOCABULARY) + self.error * rng.standard_normal(VOCABULARY)
        values[EOS] -= 4
        return torch.from_numpy(values).bfloat16()

    def decode(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        k: int,
        batch_size: int,
        *,
        seeds: Sequence[int] | None = None,
        ignore_eos: bool = False,
    ) -> list[Trace]:
        traces = []
        for index, prompt in enumerate(prompts):
            path = list(prompt)
            draws = None if seeds is None else np.random.default_rng(seeds[index])
            while len(path) < len(prompt) + sampling.max_new_tokens:
                logits = self.logits(path).float()
                if draws is None:
                    path.append(int(logits.argmax()))
                else:
                    shares = (logits.double() / sampling.temperature).softmax(-1).numpy()
                    path.append(int(draws.choice(VOCABULARY, p=shares)))
                if path[-1] == EOS and not ignore_eos:
                    break
            traces.append(self._trace(prompt, path[len(prompt) :], k))
            self.decoded += 1
        return traces

    def score(
        self, paths: Sequence[tuple[Sequence[int], Sequence[int]]], k: int, batch_size: int
    ) -> list[Trace]:
        self.scored += len(paths)
        return [self._trace(prompt, output, k) for prompt, output in paths]

    def _trace(self, prompt: Sequence[int], output: Sequence[int], k: int) -> Trace:
        path = [*prompt, *output]
        rows = torch.stack([self.logits(path[:end]) for end in range(len(prompt), len(path))])
        read = read_rows(rows.float().log_softmax(-1), torch.tensor(list(output)), k)
        return read.trace(slice(None))


def load(engine: Engine, model: str, weights: str, device: str, logprobs: int) -> Loaded:
    """In place of `models.load`: the weights "bf16" are honest, "int4" far off, "int8" a little."""
    error = {"bf16": 0.0, "int8": 0.02, "int4": 0.5}[weights]
    return Loaded(
        backend=FakeBackend(error),
        name=model,
        quantization="none",  # as every worker says
        tokenizer_hash=hashlib.sha256(model.encode()).hexdigest(),
        encode=lambda text: [1 + byte % (VOCABULARY - 1) for byte in text.encode()],
        chat=None,
    )
