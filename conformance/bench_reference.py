"""How fast the reference rounds: CPU seconds a value, the best of several runs, on seeded numbers.

The reference need not be fast to be right, but it has to check whole heads; the goals are 3 µs for a
scalar and 50 ns for an element of an array.
"""

from __future__ import annotations

import json as json_module
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from random import Random
from time import process_time
from timeit import repeat
from typing import Annotated

import numpy as np
import typer
from certhead.pyref.formats import BF16, FP32
from certhead.pyref.rounding import Exact, round_to
from certhead.pyref.vector_rounding import bf16_bits_from_fp64

from .bench_sums import bench_fdpa_chain_scalar, bench_fdpa_chain_vector

RUNS = 7
SCHEMA = "certhead.bench-reference/1"


def bench_round_scalar(values: int = 4000) -> float:
    """Seconds for one `round_to` (RNE, to BF16 and FP32) over dyadic and other ratios, pairs and floats."""
    random = Random(1)
    numbers: list[Exact] = []
    for _ in range(values // 4):
        n, d, e = random.getrandbits(60) - (1 << 59), random.getrandbits(40) + 1, random.randrange(-140, 100)
        dyadic = Fraction(n) * Fraction(2) ** e
        numbers += [dyadic, Fraction(n, d), (n, e), float(dyadic)]

    def run() -> None:
        for number in numbers:
            round_to(number, BF16)
            round_to(number, FP32)

    return _best(run) / (2 * len(numbers))


def bench_round_vector(values: int = 1 << 20) -> float:
    """Seconds an element of `bf16_bits_from_fp64` (RNE) over float64 of every size that BF16 has.

    One in six is tiny enough to become a subnormal or zero, the slower path.
    """
    rng = np.random.default_rng(1)
    x = np.ldexp(rng.standard_normal(values), rng.integers(-150, 30, values))
    return _best(lambda: bf16_bits_from_fp64(x)) / values


def _best(run: Callable[[], object]) -> float:
    return min(repeat(run, timer=process_time, number=1, repeat=RUNS))


def bench_reference(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file, as JSON.")] = None,
) -> None:
    """Time the exact reference: rounding, and chains of fused steps. Wants an idle machine.

    JSON, schema certhead.bench-reference/1: `round_scalar_us`, `round_vector_ns`,
    `fdpa_vector_terms_per_s`, `fdpa_scalar_terms_per_s`.
    """
    figures = {
        "round_scalar_us": bench_round_scalar() * 1e6,
        "round_vector_ns": bench_round_vector() * 1e9,
        "fdpa_vector_terms_per_s": bench_fdpa_chain_vector(),
        "fdpa_scalar_terms_per_s": bench_fdpa_chain_scalar(),
    }
    typer.echo(f"round_to, scalar                  {figures['round_scalar_us']:8.2f} µs a value    (goal 3)")
    typer.echo(f"rounding to BF16, arrays          {figures['round_vector_ns']:8.1f} ns a value    (goal 50)")
    terms = figures["fdpa_vector_terms_per_s"] / 1e6
    typer.echo(f"FDPA chain, arrays                {terms:8.1f} M terms/s     (goal 20)")
    typer.echo(f"FDPA chain, scalar specification  {figures['fdpa_scalar_terms_per_s'] / 1e6:8.2f} M terms/s")
    if json is not None:
        json.write_text(json_module.dumps({"schema": SCHEMA, **figures}, indent=1) + "\n")
