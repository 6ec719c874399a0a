"""The worker's part: decode prompts in batches and keep the evidence, so that a stop costs one batch.

Batches are planned from the prompts alone, so that an interrupted run goes on with the batches that it would
have had: what a batch shape does to the bits is then the same in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from .backend import Backend, sample_seed
from .record import Writer
from .replay_prompts import PromptIds
from .trace import Sample, Sampling, Variant

Step = Callable[[int, int], None]  # (samples done, samples in all)
IGNORE_EOS = "ignore_eos"  # the key in a variant's `extra`; "true" where generation ran past the text's end
SMALLEST_BUCKET = 16  # tokens


def nothing(done: int, total: int) -> None:
    """A step that shows nothing."""


def describe(
    backend: Backend,
    *,
    model: str,
    tokenizer_hash: str,
    quantization: str,
    batch_size: int,
    logprobs: int,
    sampling: Sampling | None = None,
    ignore_eos: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Variant:
    """The variant that evidence of this back end names: what it says of itself, and what it was asked for."""
    about = backend.about()
    return Variant(
        model=model,
        tokenizer_hash=tokenizer_hash,
        dtype=about.dtype,
        quantization=quantization,
        device=about.device,
        engine=about.engine,
        engine_version=about.engine_version,
        batch_size=batch_size,
        logprobs=logprobs,
        sampling=sampling or Sampling(),
        extra={**about.extra, **({IGNORE_EOS: "true"} if ignore_eos else {}), **(extra or {})},
    )


def bucket(length: int) -> int:
    """The bucket that a length belongs to: the next power of two, 16 at least."""
    return max(SMALLEST_BUCKET, 1 << (length - 1).bit_length())


def plan(prompts: Sequence[PromptIds], batch_size: int) -> list[list[PromptIds]]:
    """Batches of at most `batch_size` prompts of one length bucket each, short buckets first."""
    buckets: dict[int, list[PromptIds]] = {}
    for prompt in prompts:
        buckets.setdefault(bucket(len(prompt.input_ids)), []).append(prompt)
    return [
        members[start : start + batch_size]
        for _, members in sorted(buckets.items())
        for start in range(0, len(members), batch_size)
    ]


def record(
    backend: Backend, variant: Variant, prompts: Sequence[PromptIds], path: Path, step: Step = nothing
) -> None:
    """Decode `prompts` as `variant` says and append the evidence to `path`, or go on where it stopped.

    Raises BadInput for a file of another variant, and for what the back end refuses.
    """
    with Writer(path, variant) as writer:
        for batch in plan(prompts, variant.batch_size):
            step(len(writer.finished), len(prompts))
            if all(prompt.sample_id in writer.finished for prompt in batch):
                continue
            seed = variant.sampling.seed
            traces = backend.decode(
                [prompt.input_ids for prompt in batch],
                variant.sampling,
                variant.logprobs,
                variant.batch_size,
                seeds=None if seed is None else [sample_seed(seed, p.sample_id) for p in batch],
                ignore_eos=variant.extra.get(IGNORE_EOS) == "true",
            )
            for prompt, trace in zip(batch, traces, strict=True):
                if prompt.sample_id not in writer.finished:  # a batch that was cut short is run again whole
                    output_ids = tuple(trace.token_ids.tolist())
                    writer.append(Sample(prompt.sample_id, prompt.input_ids, output_ids, trace))
        step(len(writer.finished), len(prompts))
