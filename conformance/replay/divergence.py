"""The Jensen-Shannon divergence of two lists of entries, fast: FP64 with an error bound.

Rows are positions. The ids of both sides are matched by one sort per row; the divergence is then a few passes
over the slots, and its fixed point is certain unless the middle between two multiples of 10^-6 lies within
`js_error` of it. Those rows go to the specification, certhead.pyref.replay_metrics, so that every result is
the specification's. docs/replay-metrics.md has the formula and the bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from certhead.pyref import replay_metrics as spec
from numpy.typing import NDArray

from ..errors import BadInput
from .trace import NO_TOKEN, Trace

Bools: TypeAlias = NDArray[np.bool_]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

SLOT_BITS = 16  # a chunk has at most 2^16 slots: small enough for the cache, and an index fits a sort key
MAX_SLOTS = 4096  # entries of both sides at one position; `js_error` is argued up to here
MAX_ID = 1 << 40
MISSING = float(spec.MISSING_LOGPROB)
LN2 = math.log(2)
TINY = 1e-300  # below it s·ln s is 0 in every sum here
LEAST = -1000.0  # e^x is 0 in FP64 from here on
NEGLIGIBLE = 2.0**-100  # a probability that changes no sum here by as much as the error bound


@dataclass(frozen=True)
class Entries:
    """One side's lists at C positions, k slots each."""

    ids: Ints  # [C, k]
    logprobs: Floats  # [C, k]; -inf where the slot is not used or not finite
    listed: Bools  # [C, k] the slot holds an id
    used: Bools  # [C, k] the convention compares it
    counts: Ints  # [C] how many slots are used
    finite: Bools  # [C] all used slots are

    def distribution(self, i: int) -> spec.Distribution:
        """Position i's entries as the specification takes them."""
        used = self.used[i]
        logprobs = map(Fraction, self.logprobs[i, used].tolist())
        return dict(zip(self.ids[i, used].tolist(), logprobs, strict=True))


def compared_entries(trace: Trace, rows: slice, compared_topk: int | None) -> Entries:
    """The entries that a convention compares: all, or the first `compared_topk` finite ones."""
    ids, logprobs = trace.top_ids[rows], trace.top_logprobs[rows]
    listed, finite = ids != NO_TOKEN, np.isfinite(logprobs)
    usable = listed & finite
    used = listed
    if compared_topk is not None:
        used = usable
        if ids.shape[1] > compared_topk:
            used = usable & (np.cumsum(usable, axis=1) <= compared_topk)
    usable &= used
    if not usable.all():
        logprobs = np.where(usable, logprobs, -np.inf)
    return Entries(ids, logprobs, listed, used, row_counts(used), (usable | ~used).all(axis=1))


@dataclass(frozen=True)
class Matched:
    """The slots of both sides, n at each of C positions, in order of their ids.

    A slot is its flat index in the two sides' arrays, one after the other.
    """

    slots: Ints  # [C, n]
    pairs: Bools  # [C, n] the next slot has the same id, and both sides use it; the worker's comes first
    common: Ints  # [C] how many pairs


def js_error(slots: int) -> float:
    """A bound on |FP64 divergence - divergence| for `slots <= MAX_SLOTS` entries of both sides together.

    With n slots, u = 2^-53, exp and log within a relative 4u (assumed of NumPy, and tested) and sums in any
    order, the steps of `divergence` add up to less than 50·n·u: docs/replay-metrics.md. This is 256·n·u.
    """
    return slots * 2.0**-45


def fixed_divergence(
    sides: list[Entries], matched: Matched, research: bool, defined: Bools
) -> tuple[Ints, int]:
    """The divergence in units of 10^-6, 0 where not `defined`; and how many the specification settled."""
    scaled = divergence(sides, matched, research) * spec.SCALE
    whole = np.floor(scaled)
    fraction = scaled - whole
    units = np.where(defined, np.maximum(whole + (fraction >= 0.5), 0), 0).astype(np.int64)
    tolerance = js_error(matched.slots.shape[1]) * spec.SCALE + 2.0**-30  # and the product's own rounding
    doubtful = np.flatnonzero((np.abs(fraction - 0.5) <= tolerance) & defined)
    settle = spec.research_js if research else spec.protocol_js
    for i in doubtful.tolist():
        units[i] = settle(*(side.distribution(i) for side in sides))
    return units, len(doubtful)


def match(sides: list[Entries], start: int) -> Matched:
    """Sort each row's slots of both sides by id. `start` is the position of row 0, for messages.

    Raises BadInput for an id that a side lists twice.
    """
    positions = len(sides[0].ids)
    keys = np.concatenate([side.ids for side in sides], axis=1, dtype=np.int64)
    slots = keys.shape[1]
    if not all(side.listed.all() for side in sides):
        listed = np.concatenate([side.listed for side in sides], axis=1)
        keys = np.where(listed, keys, MAX_ID + np.arange(slots))  # an id of its own: no pair
    keys <<= SLOT_BITS
    workers = sides[0].ids.size
    split = sides[0].ids.shape[1]
    keys[:, :split] |= np.arange(workers).reshape(positions, split)
    keys[:, split:] |= np.arange(workers, keys.size).reshape(positions, slots - split)
    keys.sort(axis=1)
    order = keys & ((1 << SLOT_BITS) - 1)
    keys >>= SLOT_BITS
    pairs = np.zeros((positions, slots), np.bool_)
    np.equal(keys[:, :-1], keys[:, 1:], out=pairs[:, :-1])
    verifiers = order >= workers
    twice = pairs[:, :-1] & (verifiers[:, :-1] | ~verifiers[:, 1:])
    if twice.any():
        row, slot = (int(index[0]) for index in np.nonzero(twice))
        name = "verifier" if verifiers[row, slot] else "worker"
        raise BadInput(f"position {start + row}: the {name} lists token {keys[row, slot]} twice")
    if not all(side.used.all() for side in sides):
        used = _flat([side.used for side in sides])[order]
        pairs[:, :-1] &= used[:, :-1] & used[:, 1:]
    return Matched(order, pairs, row_counts(pairs))


def divergence(sides: list[Entries], matched: Matched, research: bool) -> Floats:
    """The divergence per row, FP64, nats: ln 2 + (Σ p·ln p + Σ q·ln q - Σ s·ln s)/2 with s = p + q.

    An id that a side lacks has log probability -100 if `research`, else probability 0. Rows where the
    convention leaves it undefined hold any number.
    """
    order, pairs = matched.slots, matched.pairs
    missing: list[Ints | None] = [None, None]
    if research:
        missing = [side.counts - matched.common for side in reversed(sides)]  # the other's, less the shared
    softmaxes = [_softmax(side.logprobs, lacking) for side, lacking in zip(sides, missing, strict=True)]
    s = _flat([softmax.p for softmax in softmaxes])[order]
    second = s[:, 1:] * pairs[:, :-1]
    if max(float(softmax.absent.max()) for softmax in softmaxes) > NEGLIGIBLE:
        alone = _flat([side.used for side in sides])[order] & ~pairs
        alone[:, 1:] &= ~pairs[:, :-1]
        verifiers = order >= sides[0].ids.size
        absent = np.where(verifiers, softmaxes[0].absent[:, None], softmaxes[1].absent[:, None])
        s += np.where(alone, absent, 0.0)
    s[:, :-1] += second
    s[:, 1:] -= second  # exactly 0: the pair's sum is at its first slot
    mixed = np.einsum("ij,ij->i", s, np.log(np.maximum(s, TINY)))
    js: Floats = LN2 + (softmaxes[0].p_log_p + softmaxes[1].p_log_p - mixed) / 2
    return js


@dataclass(frozen=True)
class _Softmax:
    p: Floats  # [C, k]
    absent: Floats  # [C] the probability of an id that is missing
    p_log_p: Floats  # [C] Σ p·ln p over the union


def _softmax(logprobs: Floats, missing: Ints | None) -> _Softmax:
    """Normalise rows of log probabilities, `missing` more ids at -100 among them; -inf is probability 0."""
    top = logprobs.max(axis=1, initial=-np.inf)
    if missing is not None:
        top = np.where(missing > 0, np.maximum(top, MISSING), top)
    top = np.where(np.isfinite(top), top, 0.0)  # a row without entries: undefined, but no NaN
    with np.errstate(over="ignore"):
        x = logprobs - top[:, None]
    np.maximum(x, LEAST, out=x)
    p = np.exp(x)
    total = p.sum(axis=1)
    absent = np.zeros_like(total)
    x_absent = MISSING - top
    if missing is not None:
        absent = np.where(missing > 0, np.exp(np.minimum(x_absent, 0.0)), 0.0)
        total += missing * absent
    total = np.where(total > 0, total, 1.0)
    p /= total[:, None]
    absent /= total
    p_log_p = np.einsum("ij,ij->i", p, x) - np.log(total)
    if missing is not None:
        p_log_p += missing * absent * x_absent
    return _Softmax(p, absent, p_log_p)


def _flat(arrays: list[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([array.reshape(-1) for array in arrays])


def row_counts(mask: Bools) -> Ints:
    """How many are True in each row."""
    counts: Ints = mask.sum(axis=1, dtype=np.int64)
    return counts
