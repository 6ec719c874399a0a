"""Long columns of per-position values: kept in blocks, summed exactly, ordered for quantiles."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from certhead.pyref import replay_metrics as spec
from numpy.typing import NDArray

BLOCK = 1 << 18  # rows


class Column:
    """An append-only column in blocks, so that growing never copies what is there."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._blocks: list[NDArray[Any]] = []
        self._room = 0  # rows free in the last block

    def append(self, values: NDArray[Any]) -> None:
        """Add rows at the end."""
        while len(values):
            if not self._room:
                self._blocks.append(np.empty(BLOCK, self._dtype))
                self._room = BLOCK
            part, values = values[: self._room], values[self._room :]
            start = BLOCK - self._room
            self._blocks[-1][start : start + len(part)] = part
            self._room -= len(part)

    def values(self) -> NDArray[Any]:
        """All rows, in a new array."""
        blocks = [*self._blocks[:-1], *(block[: BLOCK - self._room] for block in self._blocks[-1:])]
        return np.concatenate([np.empty(0, self._dtype), *blocks])


def ordered(values: NDArray[Any]) -> spec.Values:
    """FP64 nats as they are, uint32 as units of 10^-6; sorts `values` in place."""
    values.sort()
    if values.dtype == np.float64:
        return spec.Values(len(values), lambda i: Fraction(float(values[i])), exact_sum(values))
    total = Fraction(int(values.sum(dtype=np.uint64)), spec.SCALE)
    return spec.Values(len(values), lambda i: Fraction(int(values[i]), spec.SCALE), total)


def exact_sum(values: NDArray[np.float64]) -> Fraction:
    """The sum of finite FP64 values that are not negative, without rounding.

    Significands are split into halves of 26 and 27 bits and summed per exponent: 2^18 of them stay below
    2^45, where FP64 (which `bincount` sums in) is exact.
    """
    low_bits, least = 26, -1073  # frexp's exponent of the smallest subnormal
    total = 0
    for start in range(0, len(values), BLOCK):
        significands, exponents = np.frexp(values[start : start + BLOCK])
        integers = np.ldexp(significands, 53).astype(np.int64)
        bins = exponents - least
        high = np.bincount(bins, weights=integers >> low_bits)
        low = np.bincount(bins, weights=integers & ((1 << low_bits) - 1))
        for i in np.flatnonzero(high + low).tolist():
            total += ((int(high[i]) << low_bits) + int(low[i])) << i
    return Fraction(total, 1 << (53 - least))
