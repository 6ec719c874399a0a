"""The vLLM back end: the same contract over `LLM.generate`, for machines where vLLM is installed.

It has been tested against stand-ins with vLLM's documented result types only, never against a running vLLM:
`RequestOutput.outputs[0]` with `token_ids` and `logprobs` (a dict from token id to `Logprob` for each output
token), `RequestOutput.prompt_logprobs` (the same for each prompt token; None for the first, which follows
nothing), and `Logprob` with `logprob`, `rank` and `decoded_token`.

What the engine must be set to, and why:
- `max_logprobs` of k or more (its default is 20), or it refuses the request.
- `logprobs_mode="raw_logprobs"` (its default): the values before temperature and filters.
- `enable_prefix_caching=False` while scoring, or a replay may reuse what an earlier request computed.

vLLM returns k entries, or k + 1 where the token itself is none of the k; the token's own values go beside
the entries here, and k are kept. Its ranks follow two rules: a token outside the k has the number of
vocabulary entries at least as likely, but every token among the k, also the chosen one, its place in the
list, which says nothing about ties (and which of two tied tokens comes first is not defined). So the ranks
of listed tokens are counted here, as the contract has them; a tie with the last entry may go on beyond the
list and is then counted short.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np

from ..errors import BadInput
from .backend import Engine, Ids, check_prompts, check_sampling
from .trace import Sampling, Trace

HINT = "vllm is not installed: pip install vllm (it needs Linux and a GPU), or use the transformers back end"
MAX_LOGPROBS = 20  # vLLM's default for the engine argument of this name


class VllmBackend:
    """Decode and score with `llm`, a `vllm.LLM`.

    `max_logprobs` is the value that `llm` was made with. Raises BadInput where vLLM is not installed.
    """

    def __init__(
        self, llm: Any, *, dtype: str = "bfloat16", device: str = "cuda", max_logprobs: int = MAX_LOGPROBS
    ) -> None:
        self.llm = llm
        self.dtype = dtype
        self.device = device
        self.max_logprobs = max_logprobs
        self._vllm = import_vllm()

    @classmethod
    def load(cls, model: str, k: int, **engine_arguments: Any) -> VllmBackend:
        """Start an engine for `model` that returns k entries; other arguments go to `vllm.LLM`."""
        llm = import_vllm().LLM(
            model=model,
            dtype="bfloat16",
            max_logprobs=k,
            logprobs_mode="raw_logprobs",
            enable_prefix_caching=False,
            **engine_arguments,
        )
        return cls(llm, max_logprobs=k)

    def about(self) -> Engine:
        """The engine is vLLM."""
        return Engine(
            dtype=self.dtype,
            device=self.device,
            engine="vllm",
            engine_version=metadata.version("vllm"),
            extra={"logprobs_mode": "raw_logprobs"},
        )

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
        """See `Backend.decode`. At most `batch_size` prompts are handed to the engine at a time."""
        check_sampling(sampling, len(prompts), seeds)
        check_prompts(prompts)
        self._check_k(k)
        traces: list[Trace] = []
        for start in range(0, len(prompts), batch_size):
            batch = prompts[start : start + batch_size]
            parameters = [
                self._vllm.SamplingParams(
                    temperature=sampling.temperature,
                    top_p=sampling.top_p,
                    top_k=sampling.top_k,
                    max_tokens=sampling.max_new_tokens,
                    seed=None if seeds is None else seeds[start + index],
                    logprobs=k,
                    ignore_eos=ignore_eos,
                    detokenize=False,
                )
                for index in range(len(batch))
            ]
            for output in self._generate(batch, parameters):
                done = output.outputs[0]
                traces.append(parse(list(done.token_ids), done.logprobs, k, "outputs[0].logprobs"))
        return traces

    def score(self, paths: Sequence[tuple[Ids, Ids]], k: int, batch_size: int) -> list[Trace]:
        """See `Backend.score`. vLLM generates one token after each path, which is not looked at."""
        check_prompts([prompt for prompt, _ in paths])
        self._check_k(k)
        traces: list[Trace] = []
        for start in range(0, len(paths), batch_size):
            batch = paths[start : start + batch_size]
            parameters = self._vllm.SamplingParams(
                temperature=0.0, max_tokens=1, prompt_logprobs=k, detokenize=False
            )
            outputs = self._generate(
                [[*prompt, *output] for prompt, output in batch], [parameters] * len(batch)
            )
            for (prompt, output), result in zip(batch, outputs, strict=True):
                scored = result.prompt_logprobs
                if scored is None or len(scored) != len(prompt) + len(output):
                    raise BadInput(
                        f"vLLM returned {None if scored is None else len(scored)} prompt_logprobs "
                        f"for a path of {len(prompt) + len(output)} tokens"
                    )
                traces.append(parse(list(output), scored[len(prompt) :], k, "prompt_logprobs"))
        return traces

    def _generate(self, prompts: Sequence[Ids], parameters: Sequence[Any]) -> list[Any]:
        """One RequestOutput per prompt; vLLM returns them in the order of the prompts."""
        tokens = [self._vllm.TokensPrompt(prompt_token_ids=list(prompt)) for prompt in prompts]
        outputs: list[Any] = self.llm.generate(tokens, list(parameters), use_tqdm=False)
        return outputs

    def _check_k(self, k: int) -> None:
        if not 1 <= k <= self.max_logprobs:
            raise BadInput(
                f"k = {k}: this engine returns at most {self.max_logprobs} log probabilities; "
                "start it with max_logprobs of k or more"
            )


def import_vllm() -> Any:
    """The package's `LLM`, `SamplingParams` and `TokensPrompt`; BadInput where it is not installed."""
    try:
        return importlib.import_module("vllm")
    except ImportError:
        raise BadInput(HINT) from None


def parse(
    token_ids: Sequence[int], positions: Sequence[Mapping[int, Any] | None], k: int, where: str
) -> Trace:
    """The trace of `token_ids` from vLLM's entries at their positions.

    Raises BadInput when a position has no entries, none for its own token, or fewer than k.
    """
    if len(positions) != len(token_ids):
        raise BadInput(f"vLLM's {where} has {len(positions)} positions for {len(token_ids)} tokens")
    shape = (len(token_ids), k)
    top_ids, top_logprobs = np.zeros(shape, np.int64), np.zeros(shape, np.float64)
    logprobs, ranks = np.zeros(len(token_ids), np.float64), np.zeros(len(token_ids), np.int32)
    for depth, (token, entries) in enumerate(zip(token_ids, positions, strict=True)):
        if not entries or token not in entries:
            raise BadInput(f"vLLM's {where}[{depth}] has no entry for the path's token {token}")
        top = sorted(entries.items(), key=lambda entry: (-entry[1].logprob, entry[0]))[:k]
        if len(top) < k:
            raise BadInput(f"vLLM's {where}[{depth}] has {len(top)} entries; {k} were asked for")
        top_ids[depth] = [listed for listed, _ in top]
        top_logprobs[depth] = [entry.logprob for _, entry in top]
        logprobs[depth] = entries[token].logprob
        if token in top_ids[depth]:
            ranks[depth] = (top_logprobs[depth] >= logprobs[depth]).sum()
        else:
            ranks[depth] = entries[token].rank or 0
    at_least = top_logprobs[:, None, :] >= top_logprobs[:, :, None]
    return Trace(
        token_ids=np.array(token_ids, np.int64),
        logprobs=logprobs,
        ranks=ranks,
        top_ids=top_ids,
        top_logprobs=top_logprobs,
        top_ranks=at_least.sum(-1).astype(np.int32),
    )
