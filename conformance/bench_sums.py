"""How fast stock accumulators are recomputed: product terms a second, the best of several runs.

The goal for the array twin is 20 million product terms a second on two cores; it uses one.
"""

from __future__ import annotations

from timeit import repeat

import numpy as np
import numpy.typing as npt
from certhead.pyref.fdpa import HOPPER
from certhead.pyref.fdpa_vector import fdpa_chain_vector
from certhead.pyref.sums import exact_products, sequential, sum_tree

RUNS = 5


def bench_fdpa_chain_vector(rows: int = 4096, terms: int = 2560, batch_size: int = 1) -> float:
    """Product terms a second of Hopper chains: `batch_size` states against all rows."""
    h, w = _codes((batch_size, terms), seed=1), _codes((rows, terms), seed=2)
    seconds = min(repeat(lambda: fdpa_chain_vector(h, w), number=1, repeat=RUNS))
    return batch_size * rows * terms / seconds


def bench_fdpa_chain_scalar(terms: int = 2560) -> float:
    """Product terms a second of the scalar specification, one row."""
    h, w = _codes((terms,), seed=1).tolist(), _codes((terms,), seed=2).tolist()
    return terms / min(repeat(lambda: HOPPER.chain(h, w), number=1, repeat=RUNS))


def bench_sum_tree(terms: int = 2560) -> float:
    """Product terms a second of an exact tree sum, left to right in FP32."""
    products = exact_products(_codes((terms,), seed=1).tolist(), _codes((terms,), seed=2).tolist())
    tree = sequential(terms)
    return terms / min(repeat(lambda: sum_tree(products, tree), number=1, repeat=RUNS))


def _codes(shape: tuple[int, ...], seed: int) -> npt.NDArray[np.uint16]:
    """BF16 codes of normal variates."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return (values.view(np.uint32) >> 16).astype(np.uint16)
