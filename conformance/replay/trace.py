"""What one party says about one path of tokens: the data that workers record and verifiers compare.

A worker decodes and keeps, for every output depth, the token that it chose, that token's log probability and
rank, and the `k` most likely tokens. A verifier fixes the path `input_ids + output_ids`, scores it in one
prefill, and keeps the same; depth d is position `len(input_ids) + d` of the path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

NO_TOKEN = -1  # pads `top_ids` where fewer than k entries are known


@dataclass(frozen=True)
class Trace:
    """Log probabilities along one path: D depths, at most k entries at each.

    `ranks` is vLLM's: the number of vocabulary entries whose log probability is at least the token's own, so
    1-based, and 2 for a token that ties with one other at the top.
    """

    token_ids: NDArray[np.int64]  # [D], the path's output tokens
    logprobs: NDArray[np.float64]  # [D], natural log; NaN where it is missing
    ranks: NDArray[np.int32]  # [D]; 0 where it is missing
    top_ids: NDArray[np.int64]  # [D, k], most likely first; NO_TOKEN pads
    top_logprobs: NDArray[np.float64]  # [D, k]; NaN pads
    top_ranks: NDArray[np.int32]  # [D, k]; 0 pads

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class Sampling:
    """How the worker chose its tokens; temperature 0 is greedy, top_k 0 and top_p 1 cut nothing off."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    max_new_tokens: int = 128
    seed: int | None = None


@dataclass(frozen=True)
class Variant:
    """Who made a batch of traces, and with what."""

    model: str
    tokenizer_hash: str  # SHA-256, hex
    dtype: str
    quantization: str  # "none", "int8", "fp8", ...
    device: str
    engine: str
    engine_version: str
    batch_size: int
    logprobs: int  # k, the number of entries promised at each depth
    sampling: Sampling = field(default_factory=Sampling)
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Sample:
    """One prompt, the path that was taken from it, and what was said along the path."""

    sample_id: str
    input_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    trace: Trace
