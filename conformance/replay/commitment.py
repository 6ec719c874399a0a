"""Commitments to evidence: 32 bytes, published before the evidence is, that fix every number in it.

A sample's commitment is SHA-256 over its fields; a batch's root is over the variant, the number of samples
and a Merkle tree of the samples' commitments. docs/replay-evidence.md, "Commitments", defines every byte.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .trace import Sample, Variant

SCHEMA = "certhead.replay/1"


def sample_commitment(sample: Sample) -> bytes:
    """The 32 bytes that stand for one sample: its id, both paths, and every number of its trace."""
    trace = sample.trace
    return _hash(
        "sample",
        sample.sample_id.encode(),
        _integers(sample.input_ids),
        _integers(sample.output_ids),
        _numbers(trace.logprobs),
        _integers(trace.ranks),
        _integers(trace.top_ids),
        _numbers(trace.top_logprobs),
        _integers(trace.top_ranks),
    )


def variant_commitment(variant: Variant) -> bytes:
    """The 32 bytes that stand for who made a batch, and with what."""
    sampling = variant.sampling
    texts = (
        variant.model,
        variant.tokenizer_hash,
        variant.dtype,
        variant.quantization,
        variant.device,
        variant.engine,
        variant.engine_version,
    )
    extra = sorted((key.encode(), value.encode()) for key, value in variant.extra.items())
    return _hash(
        "variant",
        *(text.encode() for text in texts),
        _integers([variant.batch_size]),
        _integers([variant.logprobs]),
        _numbers([sampling.temperature]),
        _numbers([sampling.top_p]),
        _integers([sampling.top_k]),
        _integers([sampling.max_new_tokens]),
        b"" if sampling.seed is None else _integers([sampling.seed]),
        _integers([len(extra)]),
        *(text for pair in extra for text in pair),
    )


def batch_root(variant: Variant, samples: Iterable[Sample]) -> bytes:
    """The 32 bytes that stand for a batch: the variant, and all samples in their order."""
    return root_of(variant_commitment(variant), [sample_commitment(sample) for sample in samples])


def root_of(variant: bytes, commitments: Sequence[bytes]) -> bytes:
    """`batch_root` from the commitments of the variant and of the samples."""
    levels = _levels(commitments)
    return _batch(variant, len(commitments), levels[-1][0] if commitments else b"")


@dataclass(frozen=True)
class Inclusion:
    """Why a sample is in a batch: its place, and the hashes beside its way up the tree, lowest first."""

    index: int
    count: int  # samples in the batch
    siblings: tuple[bytes, ...]


def prove_inclusion(commitments: Sequence[bytes], index: int) -> Inclusion:
    """The proof for sample `index` of a batch. Raises IndexError where there is no such sample."""
    if not 0 <= index < len(commitments):
        raise IndexError(f"no sample {index} in a batch of {len(commitments)}")
    siblings = []
    place = index
    for level in _levels(commitments):
        beside = place ^ 1
        if beside < len(level):
            siblings.append(level[beside])
        place //= 2
    return Inclusion(index, len(commitments), tuple(siblings))


def check_inclusion(root: bytes, variant: bytes, commitment: bytes, proof: Inclusion) -> bool:
    """Whether `proof` shows that `root` covers the sample with `commitment` under the variant's commitment.

    Sides are worked out from the place and the count, never taken from the proof, so that one sample has one
    proof.
    """
    if not 0 <= proof.index < proof.count or proof.count >= 1 << 63:
        return False
    node, place, width = _hash("leaf", commitment), proof.index, proof.count
    siblings = iter(proof.siblings)
    while width > 1:
        if place ^ 1 < width:
            sibling = next(siblings, None)
            if sibling is None or len(sibling) != 32:
                return False
            node = _node(sibling, node) if place & 1 else _node(node, sibling)
        place, width = place // 2, (width + 1) // 2
    return next(siblings, None) is None and _batch(variant, proof.count, node) == root


def _levels(commitments: Sequence[bytes]) -> list[list[bytes]]:
    """The tree from its leaves to its top; a node without a partner moves up as it is, never doubled."""
    levels = [[_hash("leaf", commitment) for commitment in commitments]]
    while len(levels[-1]) > 1:
        below = levels[-1]
        above = [_node(left, right) for left, right in zip(below[::2], below[1::2], strict=False)]
        levels.append(above + below[2 * len(above) :])
    return levels


def _node(left: bytes, right: bytes) -> bytes:
    return _hash("node", left, right)


def _batch(variant: bytes, count: int, tree: bytes) -> bytes:
    return _hash("batch", variant, _integers([count]), tree)


def _hash(what: str, *fields: bytes) -> bytes:
    """SHA-256 over the purpose and the fields, each behind its length: no two lists of fields read alike."""
    digest = hashlib.sha256()
    for part in (f"{SCHEMA} {what}".encode(), *fields):
        digest.update(struct.pack(">Q", len(part)))
        digest.update(part)
    return digest.digest()


def _integers(values: ArrayLike) -> bytes:
    """Eight bytes each, big-endian; NO_TOKEN is all ones."""
    return np.asarray(values, dtype=np.int64).astype(">i8").tobytes()


def _numbers(values: ArrayLike) -> bytes:
    """FP64, big-endian; every missing number is the same NaN, and every zero positive."""
    array: NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    return np.where(np.isnan(array), np.nan, array + 0.0).astype(">f8").tobytes()
