"""The verifier's part: score the paths of an evidence file in one prefill each, and keep what the model says.

Nothing is generated and no text is tokenised: the worker's ids are the path.
"""

from __future__ import annotations

from pathlib import Path

from .backend import Backend
from .record import BadLine, Reader, Writer
from .replay_prompts import PromptIds
from .trace import Sample, Variant
from .worker import Step, nothing, plan


def verify(
    backend: Backend, variant: Variant, evidence: Path, path: Path, step: Step = nothing
) -> list[BadLine]:
    """Score every sample of `evidence` as `variant` says and append the scores to `path`, or go on there.

    Returns the evidence's bad lines, which have no scores. Raises BadInput for evidence of another tokenizer,
    for a `path` of another variant, and for what the back end refuses.
    """
    bad: list[BadLine] = []
    inputs: list[PromptIds] = []
    outputs: dict[str, tuple[int, ...]] = {}
    with Reader(evidence, variant.tokenizer_hash) as reader:
        for item in reader:
            if isinstance(item, BadLine):
                bad.append(item)
            else:  # the path alone: the worker's numbers are not the verifier's to see
                inputs.append(PromptIds(item.sample_id, item.input_ids))
                outputs[item.sample_id] = item.output_ids
    with Writer(path, variant) as writer:
        for batch in plan(inputs, variant.batch_size):
            step(len(writer.finished), len(inputs))
            if all(sample.sample_id in writer.finished for sample in batch):
                continue
            traces = backend.score(
                [(sample.input_ids, outputs[sample.sample_id]) for sample in batch],
                variant.logprobs,
                variant.batch_size,
            )
            for sample, trace in zip(batch, traces, strict=True):
                if sample.sample_id not in writer.finished:
                    writer.append(
                        Sample(sample.sample_id, sample.input_ids, outputs[sample.sample_id], trace)
                    )
        step(len(writer.finished), len(inputs))
    return bad
