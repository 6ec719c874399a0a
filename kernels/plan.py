"""Which head serves a batch shape: chosen by measurement on the device, never slower than stock.

A plan is made once for each number of positions, outside graph capture: first the stock arithmetic is
identified (`identify.py`), then the candidates below and the stock head are timed as CUDA graphs on
states with a clear winner, and the fastest is kept.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .identify import Identification, identify
from .triton_head import Tile, TritonPipeline

REPLAYS = 7
CALLS = 8  # calls in one graph


@dataclass(frozen=True)
class Configuration:
    """A tile and a number of limbs for the screen."""

    tile: Tile
    limb_count: int


@dataclass(frozen=True)
class Plan:
    """What serves one batch shape. `configuration` is None where the stock head does."""

    configuration: Configuration | None
    identification: Identification
    stock_us: float
    certified_us: float | None


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


def planted_states(weight: torch.Tensor, positions: int, seed: int = 0) -> torch.Tensor:
    """Head inputs with one clear winner each, as most decode positions have: bfloat16 [positions, K]."""
    generator = torch.Generator(device=weight.device).manual_seed(seed)
    index = torch.randint(0, weight.shape[0], (positions,), generator=generator, device=weight.device)
    row = torch.nn.functional.normalize(weight[index].float(), dim=1)
    noise = torch.randn(positions, weight.shape[1], generator=generator, device=weight.device)
    noise = torch.nn.functional.normalize(noise, dim=1)
    return (150 * torch.nn.functional.normalize(0.35 * row + noise, dim=1)).bfloat16()


def graph_us(call: Callable[[], object], replays: int = REPLAYS) -> float:
    """Median microseconds of one call, from replays of a CUDA graph of CALLS calls."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
        call()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(CALLS):
                call()
    torch.cuda.synchronize()
    times = []
    for _ in range(replays):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e3 / CALLS)
    return statistics.median(times)


def make_plan(pipeline: TritonPipeline, positions: int) -> Plan:
    """Identify the stock arithmetic at this batch shape, then time what could serve it."""
    weight = pipeline.weight
    found = identify(pipeline, positions)
    hidden = planted_states(weight, positions)
    stock = graph_us(lambda: torch.argmax(torch.matmul(hidden, weight.T), dim=-1))
    if not found.identified:
        return Plan(None, found, stock, None)
    timed = [
        (graph_us(lambda c=c: pipeline.run(hidden, c.tile, c.limb_count)), i, c)
        for i, c in enumerate(fitting(pipeline, positions))
    ]
    best_us, _, best = min(timed)
    return Plan(best if best_us < stock else None, found, stock, best_us)
