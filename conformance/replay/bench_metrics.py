"""How fast replay metrics are computed and how much memory a long stream of them takes.

`python -m certhead.conformance.replay.bench_metrics` prints one line per convention and the figures as JSON.
The goals are 200,000 positions a second at 64 entries on one core, and 10⁷ positions within 500 MB in all.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from timeit import repeat
from typing import Any

import numpy as np

from .metrics import Accumulator, compare
from .summary import Convention
from .trace import Trace

ENTRIES, VOCABULARY = 64, 49_152  # of SmolLM2-135M, and what its workers record
SAMPLE = 128  # positions
PART = 16_384  # positions that are compared at once; samples are shorter, and cost more a position
RUNS = 5  # of which the best counts, for short ones
GOAL_RATE, GOAL_BYTES = 200_000, 500 * 10**6


def bench(tokens: int) -> dict[str, Any]:
    """Stream `tokens` positions through both conventions; rates are positions a second of one core.

    `rate` is compare and add on long traces, `sample_rate` on samples of 128 positions, `peak_bytes` the
    process's largest resident set, Python and its libraries included.
    """
    worker, verifier = synthetic_pair(PART)
    short = synthetic_pair(SAMPLE)
    figures: dict[str, Any] = {"tokens": tokens, "entries": ENTRIES, "conventions": {}}
    for convention in Convention:
        accumulator = Accumulator(convention)
        wall, cpu = time.perf_counter(), time.process_time()
        while accumulator.tokens < tokens:
            accumulator.add(compare(worker, verifier, convention, ENTRIES))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        started = time.perf_counter()
        summary = accumulator.summary()
        figures["conventions"][convention.value] = {
            "rate": accumulator.tokens / cpu,
            "wall_rate": accumulator.tokens / wall,
            "sample_rate": _sample_rate(*short, convention),
            "summary_seconds": time.perf_counter() - started,
            "settled": accumulator.settled,
            "js_p99": float(summary.js_p99 or 0),
        }
    figures["peak_bytes"] = _peak_bytes()
    return figures


def synthetic_pair(positions: int, seed: int = 1) -> tuple[Trace, Trace]:
    """A worker's and an honest verifier's trace, a little apart; the last two ids are never shared."""
    rng = np.random.default_rng(seed)
    stride = VOCABULARY // ENTRIES
    ids = rng.permuted(rng.integers(0, stride, (positions, ENTRIES)) + stride * np.arange(ENTRIES), axis=1)
    logprobs = -np.sort(rng.exponential(6.0, (positions, ENTRIES)), axis=1)
    chosen = (rng.random(positions) < 0.2).astype(np.int64)
    rows = np.arange(positions)
    ranks = np.tile(np.arange(1, ENTRIES + 1, dtype=np.int32), (positions, 1))
    tokens = ids[rows, chosen]
    worker = Trace(tokens, logprobs[rows, chosen], ranks[rows, chosen], ids, logprobs, ranks)
    other = ids.copy()
    other[:, -2:] = VOCABULARY + np.arange(2)
    noisy = logprobs + rng.normal(0, 0.02, logprobs.shape)
    moved = ranks[rows, chosen] + (rng.random(positions) < 0.01).astype(np.int32)
    return worker, Trace(tokens, noisy[rows, chosen], moved, other, noisy, ranks)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="Speed and memory of replay metrics.")
    parser.add_argument("--tokens", type=int, default=10**7, help="positions to stream")
    figures = bench(parser.parse_args().tokens)
    for name, figure in figures["conventions"].items():
        print(
            f"{name}: {figure['rate']:,.0f} positions/s of one core (goal {GOAL_RATE:,}), "
            f"{figure['sample_rate']:,.0f} in samples of {SAMPLE}; "
            f"{figure['settled']} settled by the specification",
            file=sys.stderr,
        )
    print(
        f"peak {figures['peak_bytes'] / 1e6:,.0f} MB after {figures['tokens']:,} positions a convention "
        f"(goal {GOAL_BYTES / 1e6:,.0f} MB)",
        file=sys.stderr,
    )
    print(json.dumps(figures, indent=2))


def _sample_rate(worker: Trace, verifier: Trace, convention: Convention, samples: int = 50) -> float:
    accumulator = Accumulator(convention)

    def run() -> None:
        for _ in range(samples):
            accumulator.add(compare(worker, verifier, convention, ENTRIES))

    return samples * SAMPLE / min(repeat(run, timer=time.process_time, number=1, repeat=RUNS))


def _peak_bytes() -> int:
    """Linux counts in KiB, macOS in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main()
