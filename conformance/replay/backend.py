"""What a worker and a verifier need of an inference engine: decode a prompt, score a fixed path.

Every back end keeps the same contract, whatever its engine does inside:

- A path is token ids, never text: the verifier scores the worker's ids and tokenises nothing.
- Log probabilities are *raw*: FP32 `log_softmax` over the engine's logits before temperature and filters,
  kept as FP64 (which holds every FP32 value).
- A rank is vLLM's: the number of vocabulary entries whose log probability is at least the token's own, so
  1-based, and 2 for a token that ties with one other at the top.
- At every depth there are exactly k entries, most likely first, a tie in order of id; the chosen token's own
  log probability and rank stand beside them, also when it is none of the k.
- Depth d of a path is position `len(input_ids) + d` of `input_ids + output_ids`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import BadInput
from .trace import Sampling, Trace

Ids = Sequence[int]
GREEDY = Sampling()


@dataclass(frozen=True)
class Engine:
    """What a back end knows about itself: the part of a `Variant` that it can fill in."""

    dtype: str
    device: str
    engine: str
    engine_version: str
    extra: Mapping[str, str]


class Backend(Protocol):
    """An engine with one model in it."""

    def about(self) -> Engine:
        """Name the engine, the device and the number format, as evidence records them."""
        ...

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
        """Generate for each prompt, in batches of `batch_size` in the order given; one trace per prompt.

        A trace ends after `sampling.max_new_tokens` tokens or, unless `ignore_eos`, with the token that ends
        the text. `seeds` has one seed per prompt (needed unless greedy): a prompt's draws depend on its own
        seed alone, not on its batch.
        """
        ...

    def score(self, paths: Sequence[tuple[Ids, Ids]], k: int, batch_size: int) -> list[Trace]:
        """Score each fixed path (input_ids, output_ids) in one prefill; one trace per path, in order."""
        ...


def sample_seed(seed: int, sample_id: str) -> int:
    """A prompt's own seed, below 2^63: the draws of one sample tell nothing of another's."""
    digest = hashlib.sha256(f"{seed}:{sample_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def check_sampling(sampling: Sampling, prompts: int, seeds: Sequence[int] | None) -> None:
    """Raise BadInput when no engine could draw as asked."""
    if sampling.temperature < 0:
        raise BadInput(f"temperature {sampling.temperature}: must be 0 (greedy) or more")
    if not 0 < sampling.top_p <= 1:
        raise BadInput(f"top_p {sampling.top_p}: must be above 0 and at most 1")
    if sampling.top_k < 0:
        raise BadInput(f"top_k {sampling.top_k}: must be 0 (off) or more")
    if sampling.max_new_tokens < 1:
        raise BadInput(f"max_new_tokens {sampling.max_new_tokens}: must be 1 or more")
    if sampling.temperature > 0 and (seeds is None or len(seeds) != prompts):
        raise BadInput("sampling at a temperature above 0 needs one seed per prompt")


def check_prompts(prompts: Sequence[Ids]) -> None:
    """Raise BadInput for a prompt without tokens: its first output token has nothing to follow."""
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise BadInput(f"prompt {index} has no tokens")
