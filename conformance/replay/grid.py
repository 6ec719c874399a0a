"""The exact check: recover the BF16 logits behind log probabilities, and compare two sides in ulps of them.

A BF16 model's logits have 8 significant bits, and its log probabilities are those numbers minus one common
shift, in FP32: `logprob = RNE32(RNE32(x − max) − log_sum)` in torch (the log-softmax of CPU and CUDA) and in
vLLM's `_topk_log_softmax_kernel`, or `RNE32(x − log_sum_exp)` in older code. So a list of log probabilities
tells the *differences* of the logits exactly, and two lists can be compared for equality of bits instead of
by a threshold in nats. That a few log probabilities show the grid was observed by
y0mingzhang/precision-extraction; the enclosure and the search here are this module's own.

What is recovered
- A *reading* of a position is a shift at which every entry is a BF16 number within its rounding error. The
  errors are enclosed and the arithmetic is in integers, so a position without a reading is no FP32
  log-softmax of BF16 logits: `INCONSISTENT`. FP32 logits, another temperature, and invented or edited log
  probabilities end there.
- The readings found have the same differences. The shift itself is nearly never unique, since a finer grid
  holds a coarser one: moving all logits towards zero keeps them BF16 numbers. `lowest` and `highest` give the
  range of those found; sizes in ulps are those of the highest, the coarsest grid that fits. FP16 logits can
  read too, as smaller BF16 ones where the list is narrow: then `highest` is below the model's logits.
- A list that is short, or that reads only on very fine grids, would read by chance too. `evidence` is the
  number of bits by which chance is excluded; below `ENOUGH_EVIDENCE` the position is `AMBIGUOUS`. So it is
  where the reading has a logit nearer to zero than FP32 log probabilities resolve (about 2^-11). That logit
  is not `resolved`; one that a higher reading hides is known to the position's step only (2^-16 nats or less
  for log probabilities above −64).

Where it applies
- The logits must be the head's BF16 product. A soft cap, a scale or a bias in FP32 after it, or an FP32 head,
  leave no grid; then honest lists of *both* sides are inconsistent, and only statistics can speak.
- Two runs of one model agree in the bits of the logits only if every operation summed in the same order: the
  same device, engine, kernels and batch shape; decoding against decoding, or prefill against prefill. There,
  any share below 1 is a finding. Between devices or shapes, as between a worker's decoding and a verifier's
  prefill, honest logits differ by some ulps; then the shares and the histogram are statistics, to be
  calibrated on honest runs like any other metric.
- Whether one side's list reads at all, and whether its token is the first maximum of its own logits, are
  exact everywhere. They test the honesty of a list, not the model behind it: any BF16 model's lists read.
- No list tells a shift common to all its entries; the metrics in nats do.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from fractions import Fraction
from functools import cache

import numpy as np
import torch
from certhead.kernels import CertifiedHead
from numpy.typing import NDArray

from ..errors import BadInput
from .trace import NO_TOKEN, Trace

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

UNIT_BITS = 40
"""Everything is in integers of 2^-40 nats: an FP32 number above 2^-17 in magnitude is one exactly, and the
smaller ones are off by at most half a unit, which their error bounds include. Magnitudes stay below 2^15
nats, so that all sums fit int64."""

SIGNIFICANT_BITS = 8  # of BF16
FP32_BITS = 24
FINEST = 20  # no logit grid finer than 2^-20 is looked for
LARGEST_EXP = 14  # logits are below 2^14 in magnitude
MASKED = -9999.0  # vLLM's stand-in for −inf, a logit that was masked out: no entry
ENOUGH_EVIDENCE = 32.0  # bits
SHIFTS_BITS = 13.2  # log2 of the number of logits that can be the largest: the levels times 256
LEVELS = tuple(np.int64(1) << level for level in range(UNIT_BITS - FINEST, UNIT_BITS + LARGEST_EXP))
"""What the lowest bit of a logit can be."""
FAR = np.int64(1) << 60
CHUNK = 2048  # positions at a time: the arrays stay in the cache


class Status(IntEnum):
    """What a list of log probabilities says about the logits behind it."""

    IDENTIFIED = 0  # BF16 logits, known up to one common shift
    AMBIGUOUS = 1  # BF16 logits are possible, but chance or an unresolved entry is not excluded
    INCONSISTENT = 2  # not an FP32 log-softmax of BF16 logits
    ABSENT = 3  # fewer than two log probabilities


@dataclass(frozen=True)
class Grid:
    """The logits of P positions, K entries each, up to a shift per position; units of 2^-40 nats."""

    ids: Ints  # [P, K] token ids; NO_TOKEN where there is no entry
    below: Ints  # [P, K] largest logit minus this one; all off by one amount if the largest is not resolved
    resolved: Bools  # [P, K] whether `below` is known exactly; never where the position is inconsistent
    status: NDArray[np.uint8]  # [P] values of Status
    highest: Ints  # [P] the largest logit, in the highest reading
    lowest: Ints  # [P] and in the lowest
    evidence: NDArray[np.float64]  # [P] bits

    def __len__(self) -> int:
        return len(self.status)

    def logits(self) -> NDArray[np.float64]:
        """The logits [P, K] in the highest reading, each a BF16 number; NaN where not resolved."""
        values = np.ldexp((self.highest[:, None] - self.below).astype(np.float64), -UNIT_BITS)
        return np.where(self.resolved, values, np.nan)

    def counts(self) -> dict[Status, int]:
        """Positions by status."""
        return {status: int((self.status == status).sum()) for status in Status}


def recover(trace: Trace) -> Grid:
    """The logits behind a trace's lists, K = k + 1: the last column is the selected token.

    The selected log probability counts as one more entry of its list, so one that does not fit its list
    makes the position inconsistent.
    """
    listed = (trace.top_ids == trace.token_ids[:, None]) & (trace.top_ids != NO_TOKEN)
    repeated = np.zeros((len(trace), trace.top_ids.shape[1] + 1), dtype=np.bool_)
    repeated[:, -1] = listed.any(1)
    return recover_lists(
        np.concatenate([trace.top_ids, trace.token_ids[:, None]], axis=1),
        np.concatenate([trace.top_logprobs, trace.logprobs[:, None]], axis=1),
        repeated,
    )


def recover_lists(ids: Ints, logprobs: NDArray[np.float64], repeated: Bools | None = None) -> Grid:
    """The logits behind P lists [P, K] of log probabilities, NaN where there is no entry.

    The list must hold the largest logit, as most-likely lists do. repeated: entries that say again what
    another one of the list says; they must fit, but are no evidence.
    Raises BadInput for arrays that do not match.
    """
    if ids.shape != logprobs.shape or ids.ndim != 2:
        raise BadInput(f"token ids of shape {ids.shape} for log probabilities of shape {logprobs.shape}")
    if repeated is None:
        repeated = np.zeros(ids.shape, dtype=np.bool_)
    rows = range(0, max(len(ids), 1), CHUNK)
    parts = [_recover(ids[r : r + CHUNK], logprobs[r : r + CHUNK], repeated[r : r + CHUNK]) for r in rows]
    return Grid(*(np.concatenate([getattr(part, each.name) for part in parts]) for each in fields(Grid)))


@dataclass(frozen=True)
class _Entries:
    """Log probabilities as integers, with the half-widths that enclose each rounding."""

    value: Ints  # [P, K]
    error: Ints  # [P, K] |value − (logit − shift)| ≤ error
    present: Bools  # [P, K]

    def take(self, rows: Ints | slice) -> _Entries:
        return _Entries(self.value[rows], self.error[rows], self.present[rows])

    def widened(self) -> _Entries:
        return _Entries(self.value, 2 * self.error, self.present)


@dataclass(frozen=True)
class _Differences:
    """How far each logit is below the anchor's, snapped to the position's step."""

    below: Ints  # [P, K] multiples of step
    step: Ints  # [P]
    tolerance: Ints  # [P, K] error of the entry plus the anchor's
    measured: Ints  # [P, K] before snapping
    on_step: Bools  # [P, K] absent entries count as on it
    common: Bools  # [P] one shift fits all snapped differences

    def take(self, row: int) -> _Differences:
        return _Differences(*(getattr(self, each.name)[row : row + 1] for each in fields(self)))


@dataclass(frozen=True)
class _Readings:
    """The anchor logits at which every entry is a BF16 number."""

    exists: Bools  # [P]
    highest: Ints  # [P]
    lowest: Ints  # [P]


def _recover(ids: Ints, logprobs: NDArray[np.float64], repeated: Bools) -> Grid:
    count, width = ids.shape
    present = ~(np.isnan(logprobs) | (logprobs <= MASKED))
    with np.errstate(over="ignore"):  # to infinity, which is not the FP64 value
        possible = (logprobs.astype(np.float32) == logprobs) & (logprobs <= 0)
    impossible = (present & ~possible).any(1)
    entries = _enclose(np.where(present & possible, logprobs, 0.0), present & possible)
    value = np.where(entries.present, entries.value, -FAR)
    anchor = value.argmax(1) if width else np.zeros(count, dtype=np.int64)
    some = entries.present.sum(1) >= 2

    below = np.zeros((count, width), dtype=np.int64)
    resolved = np.zeros((count, width), dtype=np.bool_)
    highest, lowest = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    evidence = np.zeros(count)
    status = np.full(count, Status.ABSENT, dtype=np.uint8)
    if width and some.any():
        differences = _differences(entries, anchor)
        readings = _readings(differences, entries.present, some & ~impossible & differences.common)
        good = some & ~impossible & differences.common & readings.exists
        below = np.where(good[:, None], differences.below, 0)
        highest, lowest = np.where(good, readings.highest, 0), np.where(good, readings.lowest, 0)
        evidence = _evidence(differences, highest, entries.present & good[:, None] & ~repeated, anchor)
        near = differences.step[:, None] << (SIGNIFICANT_BITS - 1)
        fine = entries.present & good[:, None] & (np.abs(highest[:, None] - below) < near)
        resolved = entries.present & good[:, None] & ~fine
        status[some] = Status.INCONSISTENT
        identified = good & (evidence >= ENOUGH_EVIDENCE) & ~fine.any(1)
        status[good] = np.where(identified[good], Status.IDENTIFIED, Status.AMBIGUOUS)
        rest = np.flatnonzero(some & ~impossible & ~good)
        for at, (differences_there, resolved_there, top) in _near_zero(entries.take(rest)).items():
            row = rest[at]
            below[row], resolved[row], highest[row], lowest[row] = differences_there, resolved_there, top, top
            status[row] = Status.AMBIGUOUS
    status[impossible] = Status.INCONSISTENT
    return Grid(np.where(present, ids, NO_TOKEN), below, resolved, status, highest, lowest, evidence)


def _enclose(logprobs: NDArray[np.float64], present: Bools) -> _Entries:
    """Integers and error bounds of FP32 log probabilities.

    logprob = RNE32(d − log_sum) with d = x − max, or RNE32(x − s): half an ulp of the result in its own
    binade, which is the larger of the two at a power of two. d is exact in FP32 for logits on the position's
    step: |d| ≤ |logprob|, and the step is above the ulp of the largest |logprob| (`_differences`), so d is
    fewer than 2^24 steps. Logits off the step are `_near_zero`'s, at twice the bound. One unit covers the
    conversion of values below 2^-17.
    """
    value = np.rint(np.ldexp(logprobs, UNIT_BITS)).astype(np.int64)
    _, exponent = np.frexp(logprobs)  # |logprob| in [2^(exponent−1), 2^exponent)
    half_ulp_exp = exponent.astype(np.int64) - FP32_BITS - 1 + UNIT_BITS
    half_ulp = np.where(half_ulp_exp >= 0, np.int64(1) << np.maximum(half_ulp_exp, 0), 0)
    error = half_ulp + 1
    return _Entries(value, np.where(present, error, 0), present)


def _differences(entries: _Entries, anchor: Ints) -> _Differences:
    """Snap the differences from the anchor to the finest step that the errors leave unique."""
    rows = np.arange(len(anchor))
    at = entries.value[rows, anchor]
    tolerance = np.where(entries.present, entries.error + entries.error[rows, anchor][:, None], 0)
    # the smallest power of two above twice the tolerance: then at most one multiple is within it
    _, exponent = np.frexp(2.0 * tolerance.max(1))
    step = np.int64(1) << np.maximum(exponent.astype(np.int64), UNIT_BITS - FINEST)
    measured = np.where(entries.present, at[:, None] - entries.value, 0)
    below = (measured + step[:, None] // 2) & -step[:, None]
    off = np.abs(measured - below)
    # anchor logit − shift lies in below + value ± error for every entry
    centre = below + entries.value
    low = np.where(entries.present, centre - entries.error, -FAR).max(1)
    high = np.where(entries.present, centre + entries.error, FAR).min(1)
    return _Differences(below, step, tolerance, measured, off <= tolerance, low <= high)


def _readings(differences: _Differences, present: Bools, wanted: Bools) -> _Readings:
    """All anchor logits X for which every X − below is a BF16 number, by the power of two that divides X.

    A number whose lowest bit is 2^v is BF16 iff its magnitude is below 2^(v+8). Let X be an odd multiple of
    2^a, and 2^v the lowest bit of a difference. Then 2^min(a, v) is the lowest bit of the entry, or for v = a
    at most half of it; so the entries with v ≠ a bound X from both sides, exactly, and those with v = a do
    at twice the reach. That last bound is sufficient; it is necessary unless the entry is below −2^(a+9).
    `_deep` looks into that, and into X = 0, where nothing else is found and the position is `wanted` [P].
    """
    below, count = differences.below, len(differences.step)
    lowest_bit = np.where(below != 0, below & -below, FAR)
    exists = np.zeros(count, dtype=np.bool_)
    highest, lowest = np.full(count, -FAR), np.full(count, FAR)

    def note(found: Bools, least: Ints, largest: Ints) -> None:
        np.logical_or(exists, found, out=exists)
        np.copyto(highest, np.maximum(highest, largest), where=found)
        np.copyto(lowest, np.minimum(lowest, least), where=found)

    for bit in LEVELS:
        low, high = _bounds(below, lowest_bit, bit, present)
        largest = ((high - 1) & -bit) - np.where((high - 1) & bit, 0, bit)
        least = (low & -bit) + np.where(low & bit, 2 * bit, bit)
        note((largest > low) & (differences.step <= bit), least, largest)
    rest = np.flatnonzero(wanted & ~exists)
    for row in rest[_may_be_deep(below[rest], lowest_bit[rest], present[rest])]:
        some = _deep(below[row][present[row]])
        if some.size:
            exists[row], highest[row], lowest[row] = True, some.max(), some.min()
    return _Readings(exists, highest, lowest)


def _may_be_deep(below: Ints, lowest_bit: Ints, present: Bools) -> Bools:
    """Whether the entries that bound X exactly leave room for one; [P]."""
    room = np.zeros(len(below), dtype=np.bool_)
    for bit in LEVELS:
        low, high = _bounds(below, lowest_bit, bit, present & (lowest_bit != bit))
        room |= high - low > 1
    return room


def _bounds(below: Ints, lowest_bit: Ints, bit: np.int64, counted: Bools) -> tuple[Ints, Ints]:
    """The open interval in which anchors of lowest bit `bit` make the counted entries BF16 numbers."""
    reach = np.minimum(lowest_bit, bit) << (SIGNIFICANT_BITS + (lowest_bit == bit).astype(np.int64))
    low = np.where(counted, below - reach, -FAR).max(1)
    high = np.where(counted, below + reach, FAR).min(1)
    span = bit << SIGNIFICANT_BITS
    return np.maximum(low, -span), np.minimum(high, span)


def is_bf16(values: Ints) -> Bools:
    """Which integers of units are BF16 numbers (none here is so small that BF16 would underflow)."""
    result: Bools = (values == 0) | (np.abs(values) < (values & -values) << SIGNIFICANT_BITS)
    return result


@cache
def _all_logits() -> Ints:
    """Every BF16 number on the finest grid, in ascending order."""
    significands = np.arange(-(2**SIGNIFICANT_BITS), 2**SIGNIFICANT_BITS + 1, dtype=np.int64)
    return np.unique(significands[:, None] * np.array(LEVELS[:-SIGNIFICANT_BITS]))


def _deep(below: Ints) -> Ints:
    """All anchor logits of one position's differences, by trying every BF16 number."""
    tried = _all_logits()
    for each in sorted(set(below.tolist())):
        tried = tried[is_bf16(tried - each)]
    return tried


def _near_zero(entries: _Entries) -> dict[int, tuple[Ints, Bools, int]]:
    """Readings with logits so close to zero that their grid is finer than the errors.

    Such logits may be any number of that neighbourhood. x − max may be rounded for them, and for all entries
    if the largest is one of them, so the bounds are doubled. Returns, by row: below the largest [K],
    resolved [K], and the largest logit.
    """
    found: dict[int, tuple[Ints, Bools, int]] = {}
    wide = entries.widened()
    for least in (True, False):  # the least entry as anchor, then the largest: one of them is not near zero
        anchored = np.where(entries.present, entries.value, FAR if least else -FAR)
        differences = _differences(wide, anchored.argmin(1) if least else anchored.argmax(1))
        near = differences.step << (SIGNIFICANT_BITS - 1)  # from here on BF16 numbers are on the step
        off = ~differences.on_step
        highest = np.where(off, differences.measured, -FAR).max(1)
        lowest = np.where(off, differences.measured, FAR).min(1)
        close = off.any(1) & (highest - lowest <= 2 * (near + differences.tolerance.max(1)))
        # the neighbourhood's multiples of the step are BF16 numbers, so snapped differences must read
        snapped = np.logical_not(off.any(1))
        reads = _readings(differences, entries.present, snapped).exists
        for row in map(int, np.flatnonzero(close | (snapped & reads))):
            if row not in found:
                one = slice(row, row + 1)
                reading = _near_zero_row(
                    entries.take(one), wide.take(one), differences.take(row), int(near[row])
                )
                if reading is not None:
                    found[row] = reading
    return found


def _near_zero_row(
    entries: _Entries, wide: _Entries, differences: _Differences, near: int
) -> tuple[Ints, Bools, int] | None:
    """One position of `_near_zero` (every array [1, K]), each entry tried as one that is near zero."""
    present, on_step = entries.present[0], differences.on_step[0]
    below, measured, step = differences.below[0], differences.measured[0], int(differences.step[0])
    reach = near + differences.tolerance[0]
    centre = below + entries.value[0]
    largest = int(np.where(present, entries.value[0], -FAR).argmax())

    def one_shift(rest: Bools, error: Ints) -> Bools:
        low = np.where(rest, centre - error, -FAR).max(1)
        return low <= np.where(rest, centre + error, FAR).min(1)

    apart = np.abs(measured[:, None] - measured) > 2 * reach.max()  # not near zero together
    for member in np.flatnonzero(present & one_shift(present & apart, wide.error)):
        first = -(-(int(measured[member]) - int(reach[member])) // step)
        last = (int(measured[member]) + int(reach[member])) // step
        tried = np.arange(first, last + 1, dtype=np.int64) * step
        tried = tried[is_bf16(tried)][:, None]
        zero = present & (np.abs(tried - measured) <= reach)
        fits = (~present | zero | (on_step & is_bf16(tried - below))).all(1)
        rest = present & ~zero
        good = np.flatnonzero(
            fits & one_shift(rest, np.where(zero[:, largest, None], wide.error, entries.error))
        )
        if good.size:
            top = int(np.where(present, below, FAR).min())
            return np.where(present, below - top, 0), rest[good[-1]], int(tried[good[-1], 0]) - top
    return None


def _evidence(differences: _Differences, highest: Ints, counted: Bools, anchor: Ints) -> NDArray[np.float64]:
    """Bits by which chance is excluded, in the highest reading.

    An arbitrary number is within its tolerance of a grid of spacing u with probability 2·tolerance/u. The
    product over the entries, times the number of logits that the largest could be, estimates the chance.
    """
    magnitude = np.abs(highest[:, None] - differences.below)
    _, exponent = np.frexp(magnitude.astype(np.float64))
    spacing = np.ldexp(1.0, np.maximum(exponent - SIGNIFICANT_BITS, 0))
    bits = np.log2(np.maximum(spacing / (2.0 * differences.tolerance + 1.0), 1.0))
    others = counted.copy()
    others[np.arange(len(anchor)), anchor] = False
    total: NDArray[np.float64] = np.where(others, bits, 0.0).sum(1) - SHIFTS_BITS
    return np.maximum(total, 0.0)


HISTOGRAM = ((0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, None))
"""Bins of the histogram of ulp differences: first and last of each."""


@dataclass(frozen=True)
class GridComparison:
    """Two sides' logits compared, each position up to its common shift; counts add over samples."""

    positions: int
    compared: int  # positions where both sides' lists read and share a token
    identified: int  # of those, the ones that are identified on both sides
    worker: dict[Status, int]  # positions by status
    verifier: dict[Status, int]
    logits: int  # compared: in both lists, resolved on both sides
    equal: int  # bit-equal
    whole_equal: int  # positions where both lists hold the same tokens and all are bit-equal
    histogram: tuple[int, ...]  # logits by difference in ulps, bins as in HISTOGRAM; a lower bound of each

    @property
    def equal_share(self) -> Fraction | None:
        """Share of bit-equal logits; None where none was compared."""
        return Fraction(self.equal, self.logits) if self.logits else None

    @property
    def whole_share(self) -> Fraction | None:
        """Share of compared positions whose whole lists are bit-equal."""
        return Fraction(self.whole_equal, self.compared) if self.compared else None

    def __add__(self, other: GridComparison) -> GridComparison:
        return GridComparison(
            self.positions + other.positions,
            self.compared + other.compared,
            self.identified + other.identified,
            {status: self.worker[status] + other.worker[status] for status in Status},
            {status: self.verifier[status] + other.verifier[status] for status in Status},
            self.logits + other.logits,
            self.equal + other.equal,
            self.whole_equal + other.whole_equal,
            tuple(a + b for a, b in zip(self.histogram, other.histogram, strict=True)),
        )


@dataclass(frozen=True)
class PositionDifferences:
    """The differences behind a `GridComparison`, [P, K] in the worker's order of entries."""

    shared: Bools  # whether the entry is compared
    ulps: Ints  # |verifier − worker|, rounded up: 0 iff bit-equal up to the common shift
    same_tokens: Bools  # [P] whether both lists hold the same tokens


def compare_grids(worker: Grid, verifier: Grid) -> GridComparison:
    """Compare two sides of one path. Raises BadInput where the lengths differ.

    Each list's shift is fitted to most entries, so lists of unrelated models agree in some entries too.
    """
    differences = differences_in_ulps(worker, verifier)
    shared, ulps = differences.shared, differences.ulps
    compared = shared.any(1)
    both = (worker.status == Status.IDENTIFIED) & (verifier.status == Status.IDENTIFIED)
    whole = compared & differences.same_tokens & (~shared | (ulps == 0)).all(1)
    some = ulps[shared]
    return GridComparison(
        positions=len(worker),
        compared=int(compared.sum()),
        identified=int((compared & both).sum()),
        worker=worker.counts(),
        verifier=verifier.counts(),
        logits=len(some),
        equal=int((some == 0).sum()),
        whole_equal=int(whole.sum()),
        histogram=tuple(
            int(((some >= first) & ((some <= last) if last is not None else True)).sum())
            for first, last in HISTOGRAM
        ),
    )


def differences_in_ulps(worker: Grid, verifier: Grid) -> PositionDifferences:
    """Entry by entry, after moving each of the verifier's lists by the shift that most entries agree on.

    An ulp is that of the larger of the two logits, in the lower of the two sides' highest readings: the
    coarsest grid that fits both, so that counts of ulps are lower bounds.
    """
    if len(worker) != len(verifier):
        raise BadInput(f"the worker has {len(worker)} positions, the verifier {len(verifier)}")
    usable = [grid.resolved & (grid.ids != NO_TOKEN) for grid in (worker, verifier)]
    first = [_first_of_its_id(grid.ids, good) for grid, good in zip((worker, verifier), usable, strict=True)]
    place = _places(worker.ids, first[0], verifier.ids, first[1])
    shared = place >= 0
    rows = np.arange(len(worker))[:, None]
    ours = worker.highest[:, None] - worker.below
    theirs = (verifier.highest[:, None] - verifier.below)[rows, np.maximum(place, 0)]
    shift = _most_common(np.where(shared, theirs - ours, 0), shared)
    moved = np.abs(theirs - ours - shift[:, None])
    lower = np.minimum(shift, 0)[:, None]  # where the verifier's reading is lower, both are read there
    larger = np.maximum(np.abs(ours + lower), np.abs(theirs - shift[:, None] + lower))
    _, exponent = np.frexp(larger.astype(np.float64))
    ulp = np.int64(1) << np.maximum(exponent.astype(np.int64) - SIGNIFICANT_BITS, 0)
    ulps = np.where(shared, -(-moved // ulp), 0)
    same = first[0].sum(1) == first[1].sum(1)
    same &= shared.sum(1) == first[0].sum(1)
    return PositionDifferences(shared, ulps, same)


def _first_of_its_id(ids: Ints, usable: Bools) -> Bools:
    """The usable entries, without the later ones of the same token."""
    keys = np.where(usable, ids, -1 - np.arange(ids.shape[1])[None, :])  # distinct where unusable
    order = np.argsort(keys, axis=1, kind="stable")
    ordered = np.take_along_axis(keys, order, 1)
    new = np.ones(ids.shape, dtype=np.bool_)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    first = np.zeros(ids.shape, dtype=np.bool_)
    np.put_along_axis(first, order, new, 1)
    return first & usable


def _places(ids: Ints, usable: Bools, other_ids: Ints, other_usable: Bools) -> Ints:
    """For each usable entry, the column of the same token among the other's usable ones, or −1."""
    count, width = other_ids.shape
    place = np.full(ids.shape, -1, dtype=np.int64)
    if not ids.size or not width:
        return place
    span = int(max(ids.max(), other_ids.max(), 0)) + 2
    base = np.arange(count, dtype=np.int64)[:, None] * span
    rows, columns = np.nonzero(other_usable)
    keys = base[rows, 0] + other_ids[rows, columns]
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    wanted = (base + ids)[usable]
    found = np.minimum(np.searchsorted(keys, wanted), max(len(keys) - 1, 0))
    hit = keys[found] == wanted if len(keys) else np.zeros(len(wanted), dtype=np.bool_)
    place[usable] = np.where(hit, columns[order][found] if len(keys) else -1, -1)
    return place


def _most_common(values: Ints, counted: Bools) -> Ints:
    """The most frequent counted value of each row, the smallest in magnitude among equals; 0 for none."""
    count, width = values.shape
    result = np.zeros(count, dtype=np.int64)
    if not values.size:
        return result
    ordered = np.sort(np.where(counted, values, FAR), axis=1)
    new = np.ones(ordered.shape, dtype=np.bool_)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    run = np.cumsum(new, axis=1) - 1
    lengths = np.zeros((count, width), dtype=np.int64)
    rows = np.broadcast_to(np.arange(count)[:, None], ordered.shape)
    np.add.at(lengths, (rows, run), (ordered != FAR).astype(np.int64))
    frequency = np.take_along_axis(lengths, run, 1)
    best = frequency == frequency.max(1, keepdims=True)
    magnitude = np.where(best & (ordered != FAR), np.abs(ordered), FAR)
    some = counted.any(1)
    result[some] = ordered[np.arange(count), magnitude.argmin(1)][some]
    return result


@dataclass(frozen=True)
class GreedyCheck:
    """Whether selected tokens are the first maxima of their logits."""

    positions: int
    identical: int
    different: int
    undetermined: int

    def __add__(self, other: GreedyCheck) -> GreedyCheck:
        return GreedyCheck(
            self.positions + other.positions,
            self.identical + other.identical,
            self.different + other.different,
            self.undetermined + other.undetermined,
        )


def greedy_by_lists(trace: Trace, grid: Grid) -> GreedyCheck:
    """Whether each token is the first maximum (the lowest id among ties) of its own list's logits.

    grid: as `recover(trace)` gives it. Exact, and of one side only: it asks whether a worker that claims
    greedy decoding chose what its own logits say. Undetermined where the list does not read, or where ties
    at the top fill the whole list, so that a lower id may be outside it.
    """
    listed, selected = slice(0, -1), grid.below[:, -1]
    at_top = grid.resolved[:, listed] & (grid.below[:, listed] == 0)
    known = grid.resolved[:, -1] & at_top.any(1) & ~(at_top | (grid.ids[:, listed] == NO_TOKEN)).all(1)
    first = np.where(at_top, grid.ids[:, listed], np.iinfo(np.int64).max).min(
        1, initial=np.iinfo(np.int64).max
    )
    identical = known & (selected == 0) & (trace.token_ids == first)
    return GreedyCheck(
        positions=len(trace),
        identical=int(identical.sum()),
        different=int((known & ~identical).sum()),
        undetermined=int((~known).sum()),
    )


def greedy_by_logits(logits: torch.Tensor, tokens: torch.Tensor) -> GreedyCheck:
    """The same with whole rows of logits at hand: bfloat16 [M, V], tokens int64 [M]."""
    return _agreement(logits.argmax(-1), tokens)


def greedy_by_head(head: CertifiedHead, hidden: torch.Tensor, tokens: torch.Tensor) -> GreedyCheck:
    """The same with the states before the head at hand, by the certified head: no logits are computed.

    hidden: bfloat16 [M, K], at the batch shape and on the device that the stock head served them, since the
    head promises the stock head's tokens for that shape. tokens: int64 [M].
    """
    return _agreement(head.decide(hidden).tokens, tokens)


def _agreement(expected: torch.Tensor, tokens: torch.Tensor) -> GreedyCheck:
    if expected.shape != tokens.shape:
        raise BadInput(f"{tuple(tokens.shape)} tokens for {tuple(expected.shape)} positions")
    identical = int((expected == tokens.to(expected.device)).sum())
    return GreedyCheck(len(tokens), identical, len(tokens) - identical, 0)
