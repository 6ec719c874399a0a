"""Which head serves a batch shape: chosen by measurement on the device, never slower than stock.

A plan is made once for each number of positions, outside graph capture: first the stock arithmetic is
identified (`identify.py`), then the candidates below and the stock head are timed as CUDA graphs on
decode-like states, and the fastest is kept; a gain below MIN_GAIN counts as none. Where it is not
identified but stays inside the error model's intervals (`enclosure.py`), enclosed mode is timed instead,
call by call: it waits for the device once, to learn whether a position is left to the stock head.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from certhead.pyref.head import Mode

from .audit_record import REFUTED
from .enclosure import EnclosureCheck, check_enclosure
from .identify import Identification, recall_or_identify
from .triton_enclosed import EnclosedRescore
from .triton_head import Tile, TritonPipeline

REPLAYS = 7
CALLS = 8  # calls in one graph
CHECKSUM_LIMIT = 0.03  # checksums are on where they cost less
MIN_GAIN = 1.05  # the certified time varies with the states, the stock head's does not
INPUTS = 4  # rotating states


@dataclass(frozen=True)
class Configuration:
    """A tile and a number of limbs for the screen."""

    tile: Tile
    limb_count: int
    checksum: bool = True


@dataclass(frozen=True)
class Plan:
    """What serves one batch shape. `configuration` is None where the stock head does."""

    configuration: Configuration | None
    mode: Mode | None  # None where neither mode may be used
    identification: Identification
    stock_us: float
    certified_us: float | None
    checksum_cost: float | None  # share of the certified time that the checksums add
    enclosure: EnclosureCheck | None = None  # tried where the arithmetic was not identified


def configurations(positions: int) -> list[Configuration]:
    """The screens worth timing; measured on an H200, smallest traffic first."""
    if positions <= 16:
        return [Configuration(Tile(64, 16, 256, 4, 3), 2), Configuration(Tile(64, 16, 128, 4, 6), 2)]
    if positions <= 32:
        return [Configuration(Tile(128, 32, 128, 4, 3), limbs) for limbs in (1, 2)]
    return [
        Configuration(Tile(128, 64, 128, 4, 3), 1),
        Configuration(Tile(128, 64, 128, 4, 3), 2),
        Configuration(Tile(128, 128, 128, 8, 4), 1),
    ]


def fitting(pipeline: TritonPipeline, positions: int) -> list[Configuration]:
    """`configurations` with the column step cut to what divides K, where one does."""
    out = []
    for c in configurations(positions):
        step = c.tile.columns
        while step > 64 and pipeline.columns % step:
            step //= 2
        tile = Tile(c.tile.rows, c.tile.positions, step, c.tile.warps, c.tile.stages)
        if Configuration(tile, c.limb_count) not in out:
            out.append(Configuration(tile, c.limb_count))
    return out


def decode_like(
    weight: torch.Tensor, positions: int, seed: int, planted: int = 24, norm: float = 159.0
) -> torch.Tensor:
    """Head inputs whose logits look like a decode step's: bfloat16 [positions, K].

    A Gaussian floor, and `planted` rows above it: a leader, a second below it by a gap with median 5 and
    heavy spread (published medians for a 4B model: 7.3, tenth percentile 0.68), and a tail of others
    spaced 0.7 apart on average. The norm is the published median of head inputs.
    """
    device = weight.device
    generator = torch.Generator(device=device).manual_seed(seed)
    noise = torch.randn(positions, weight.shape[1], generator=generator, device=device)
    base = torch.nn.functional.normalize(noise, dim=1)
    index = torch.randint(0, weight.shape[0], (positions, planted), generator=generator, device=device)
    gap = 5 * torch.exp(1.5 * torch.randn(positions, 1, generator=generator, device=device))
    tail = torch.empty(positions, planted - 2, device=device).exponential_(1 / 0.7, generator=generator)
    second = 12 + 4 * torch.rand(positions, 1, generator=generator, device=device)
    logits = torch.cat([second + gap.clamp_max(25), second, second - tail.cumsum(1)], dim=1).clamp_min(0)
    rows = weight[index].float()
    cosine = logits / (norm * rows.norm(dim=2))
    directions = torch.nn.functional.normalize(rows, dim=2)
    rest = (1 - (cosine**2).sum(1, keepdim=True)).clamp_min(0.05).sqrt()
    mixed = base * rest + (cosine[:, :, None] * directions).sum(1)
    return (norm * torch.nn.functional.normalize(mixed, dim=1)).bfloat16()


def capture(call: Callable[[], object], calls: int = CALLS) -> torch.cuda.CUDAGraph:
    """A CUDA graph of so many calls, after two that compile what they need."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(calls):
                call()
    torch.cuda.synchronize()
    return graph


def graphs_us(calls: Sequence[Callable[[], object]], replays: int = REPLAYS) -> list[float]:
    """Median microseconds of each call, from CUDA graphs of CALLS calls that are replayed in turn.

    Every second round goes backwards, so that none is always timed after the same other one.
    """
    graphs = [capture(call) for call in calls]
    times: list[list[float]] = [[] for _ in graphs]
    for turn in range(replays):
        order = list(enumerate(graphs))
        for i, graph in order if turn % 2 == 0 else reversed(order):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times[i].append(start.elapsed_time(end) * 1e3 / CALLS)
    return [statistics.median(t) for t in times]


def graph_us(call: Callable[[], object], replays: int = REPLAYS) -> float:
    """Median microseconds of one call, as `graphs_us` takes it."""
    return graphs_us([call], replays)[0]


def rotating(call: Callable[[torch.Tensor], object], inputs: Sequence[torch.Tensor]) -> Callable[[], object]:
    """A call without arguments that takes the inputs in turn."""
    turn = itertools.cycle(inputs)
    return lambda: call(next(turn))


def calls_us(calls: Sequence[Callable[[], object]], replays: int = REPLAYS) -> list[float]:
    """Median microseconds of each call, which may wait for the device; taken in turn."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(replays * CALLS):
        for i, call in enumerate(calls):
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            times[i].append((time.perf_counter() - start) * 1e6)
    return [statistics.median(t) for t in times]


def run_enclosed(
    pipeline: TritonPipeline, enclosed: EnclosedRescore, hidden: torch.Tensor, c: Configuration
) -> tuple[torch.Tensor, int]:
    """Tokens in enclosed mode, int64 [M], and how many of them are the stock head's. Waits once."""
    positions = hidden.shape[0]
    pipeline.limbs(hidden, c.limb_count)
    pipeline.screen(positions, c.tile, c.limb_count, checksum=c.checksum)
    pipeline.select(positions, c.tile if c.checksum else None, c.limb_count)
    enclosed.run(hidden)
    tokens = pipeline.tokens[:positions]
    open_ = int(enclosed.undecided)
    if open_:
        stock = torch.argmax(torch.matmul(hidden, pipeline.weight.T), dim=-1)
        tokens = torch.where(pipeline.reasons[:positions] == 0, tokens, stock)
    return tokens, open_


def make_plan(
    pipeline: TritonPipeline, enclosed: EnclosedRescore, positions: int, checksum: bool | None = None
) -> Plan:
    """Identify the stock arithmetic at this batch shape, then time what could serve it.

    checksum: whether the screen checks its sums; None for "where that costs less than CHECKSUM_LIMIT".
    """
    weight = pipeline.weight
    found = recall_or_identify(pipeline, positions)
    mode: Mode | None = Mode.EXACT
    measure: Callable[[Sequence[Callable[[], object]]], list[float]] = graphs_us
    enclosure = None
    if not found.identified:
        mode, measure = Mode.ENCLOSED, calls_us
        if found.audited != REFUTED:
            enclosure = check_enclosure(weight, positions, pipeline.gamma_num)
        if enclosure is None or not enclosure.holds:
            mode = None
    inputs = [decode_like(weight, positions, seed) for seed in range(INPUTS)]

    def run(hidden: torch.Tensor, c: Configuration) -> torch.Tensor:
        if mode is Mode.ENCLOSED:
            return run_enclosed(pipeline, enclosed, hidden, c)[0]
        return pipeline.run(hidden, c.tile, c.limb_count, checksum=c.checksum)

    bare = [replace(c, checksum=False) for c in fitting(pipeline, positions)] if mode is not None else []
    candidates = [*bare, *(replace(c, checksum=True) for c in bare)]
    stock_us, *times = measure(
        [
            rotating(lambda h: torch.argmax(torch.matmul(h, weight.T), dim=-1), inputs),
            *(rotating(partial(run, c=c), inputs) for c in candidates),
        ]
    )
    if mode is None:
        return Plan(None, None, found, stock_us, None, None, enclosure)
    fastest = min(range(len(bare)), key=lambda i: times[i])
    bare_us, checked_us = times[fastest], times[fastest + len(bare)]
    cost = checked_us / bare_us - 1
    wanted = cost < CHECKSUM_LIMIT if checksum is None else checksum
    best, best_us = (candidates[fastest + len(bare)], checked_us) if wanted else (bare[fastest], bare_us)
    chosen = best if best_us * MIN_GAIN < stock_us else None
    return Plan(chosen, mode, found, stock_us, best_us, cost, enclosure)
