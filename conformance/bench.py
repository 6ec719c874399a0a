"""Head-only time of the stock head and the certified head, interleaved in one run on one device.

Both arms run as CUDA graphs over the same rotating inputs (in enclosed mode, which waits for the device,
as plain calls); each row is a median over replays that alternate between the arms, all stages and
fallbacks included. The record goes to `conformance/evidence/bench-<device>.json`; the plot is drawn from
it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from certhead.kernels import CertifiedHead
from certhead.kernels.identify import as_record, evidence_key
from certhead.kernels.plan import (
    INPUTS,
    Configuration,
    calls_us,
    decode_like,
    graph_us,
    graphs_us,
    rotating,
)  # fmt: skip
from certhead.kernels.triton_engine import TritonEngine
from certhead.pyref.head import Mode
from rich.console import Console
from rich.table import Table

SCHEMA = "certhead.bench/1"
BATCHES = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256)
SHAPES = ((248_320, 2_560), (151_936, 4_096), (49_152, 576))
REPLAYS = 15


@dataclass(frozen=True)
class Shape:
    """A head's shape, V rows by K columns."""

    rows: int
    columns: int


def gaussian_head(shape: Shape, device: torch.device, seed: int = 0) -> torch.Tensor:
    """A head with the published row norm (0.65), bfloat16 [V, K]."""
    generator = torch.Generator(device=device).manual_seed(seed)
    weight = torch.randn(shape.rows, shape.columns, generator=generator, device=device)
    return (weight * (0.65 / shape.columns**0.5)).bfloat16()


def bench_head(weight: torch.Tensor, batches: tuple[int, ...], console: Console) -> list[dict[str, Any]]:
    """One row for each batch shape of one head."""
    head = CertifiedHead(weight, backend="cuda")
    engine = head.engine
    assert isinstance(engine, TritonEngine)
    return [_bench_batch(engine, weight, positions, console) for positions in batches]


def _bench_batch(
    engine: TritonEngine, weight: torch.Tensor, positions: int, console: Console
) -> dict[str, Any]:
    plan = engine.plan(positions)
    inputs = [decode_like(weight, positions, seed) for seed in range(INPUTS)]
    before = engine.counters()
    blocks = [engine.decide(h).blocks.float() for h in inputs]
    after = engine.counters()
    # enclosed mode waits for the device, so that no graph can hold it: both arms are timed call by call
    enclosed = plan.configuration is not None and plan.mode is Mode.ENCLOSED
    stock_us, certified_us = (calls_us if enclosed else graphs_us)(
        [
            rotating(lambda h: torch.argmax(torch.matmul(h, weight.T), dim=-1), inputs),
            rotating(engine.tokens, inputs),
        ],
        REPLAYS,
    )
    row: dict[str, Any] = {
        "V": weight.shape[0],
        "K": weight.shape[1],
        "M": positions,
        "stock_us": round(stock_us, 2),
        "certified_us": round(certified_us, 2),
        "ratio": round(stock_us / certified_us, 4),
        "blocks_mean": round(float(torch.cat(blocks).mean()), 3),
        "served_by": "certified" if plan.configuration else "stock",
        "mode": plan.mode.value if plan.mode else None,
        "timed": "calls" if enclosed else "graph replays",
        "planned_us": [round(t, 2) for t in (plan.stock_us, plan.certified_us) if t is not None],
        "identification": as_record(plan.identification, weight),
        "fallback": after["fallback"] - before["fallback"],
        "positions": after["positions"] - before["positions"],
    }
    if plan.configuration is not None:
        row["limbs"] = plan.configuration.limb_count
        row["checksum"] = plan.configuration.checksum
        row["checksum_cost"] = round(plan.checksum_cost or 0.0, 4)
        row["tile"] = vars(plan.configuration.tile)
        row["stages_us"] = _stages(engine, inputs[0], plan.configuration, enclosed)
        screened = engine.copy.codes.numel() + engine.metadata_bytes
        row["screen_tb_per_s"] = round(screened / row["stages_us"]["screen"] / 1e6, 3)
    console.print(
        f"  {weight.shape[0]}×{weight.shape[1]} M={positions}: stock {stock_us:.1f} µs, "
        f"certified {certified_us:.1f} µs, ratio {stock_us / certified_us:.3f} ({row['served_by']})"
    )
    return row


def _stages(engine: TritonEngine, hidden: torch.Tensor, c: Configuration, enclosed: bool) -> dict[str, float]:
    """µs of each stage alone; select and rescore less the resets that repeating them needs."""
    pipeline, positions = engine.pipeline, hidden.shape[0]
    pipeline.run(hidden, c.tile, c.limb_count)

    def select() -> None:
        pipeline.counts.zero_()
        pipeline.work_size.zero_()
        pipeline.select(positions, c.tile if c.checksum else None, c.limb_count)

    def rescore() -> None:
        if enclosed:
            pipeline.reasons.zero_()  # in place of the reset, which this kernel does itself
            engine.enclosed.run(hidden)
        else:
            pipeline.arrivals.zero_()
            pipeline.rescore(hidden)

    reset = graph_us(lambda: (pipeline.digests.zero_(), pipeline.arrivals.zero_())) / 2
    times = {
        "limbs": graph_us(lambda: pipeline.limbs(hidden, c.limb_count)),
        "screen": graph_us(lambda: pipeline.screen(positions, c.tile, c.limb_count, checksum=c.checksum)),
        "select": graph_us(select) - 2 * reset,
        "rescore": graph_us(rescore) - reset,
    }
    return {name: round(us, 2) for name, us in times.items()}


def run_bench(
    shapes: tuple[tuple[int, int], ...], batches: tuple[int, ...], path: Path, console: Console
) -> dict[str, Any]:
    """Measure every shape and batch on the current CUDA device and write the record to `path`.

    A record that is already there keeps its rows of other shapes.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("the benchmark needs a CUDA device; none was found")
    device = torch.device("cuda")
    record: dict[str, Any] = {"schema": SCHEMA, "rows": []}
    if path.is_file():
        record = json.loads(path.read_text())
        record["rows"] = [r for r in record["rows"] if (r["V"], r["K"]) not in shapes]
    for rows, columns in shapes:
        weight = gaussian_head(Shape(rows, columns), device)
        record["rows"] += bench_head(weight, batches, console)
        key = evidence_key(weight, 0)
        record |= {
            "device": key["device"],
            "versions": {k: key[k] for k in ("cuda", "cublas", "torch", "triton")},
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
        del weight
        torch.cuda.empty_cache()
    return record


def show(record: dict[str, Any], console: Console) -> None:
    """The table that the README quotes."""
    table = Table("V × K", "M", "stock µs", "certified µs", "ratio", "served by", "screen TB/s")
    for r in record["rows"]:
        table.add_row(
            f"{r['V']:,} × {r['K']:,}", str(r["M"]), f"{r['stock_us']:.1f}", f"{r['certified_us']:.1f}",
            f"{r['ratio']:.2f}", r["served_by"], f"{r.get('screen_tb_per_s', 0):.2f}",
        )  # fmt: skip
    console.print(table)


def markdown(record: dict[str, Any]) -> str:
    """The README's table; a test compares the two."""
    shapes = list(dict.fromkeys((r["V"], r["K"]) for r in record["rows"]))
    lines = [
        "| M | " + " | ".join(f"V={v:,} K={k:,}" for v, k in shapes) + " |",
        "|---|" + "---|" * len(shapes),
    ]
    for m in dict.fromkeys(r["M"] for r in record["rows"]):
        cells = []
        for shape in shapes:
            row = next(r for r in record["rows"] if (r["V"], r["K"]) == shape and r["M"] == m)
            if row["served_by"] == "stock":
                cells.append(f"{row['stock_us']:.0f} (stock serves)")
            else:
                times = f"{row['stock_us']:.0f} → {row['certified_us']:.0f}"
                cells.append(f"{times} (**{row['ratio']:.2f}×**)")
        lines.append(f"| {m} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def draw(record: dict[str, Any], path: Path) -> None:
    """Ratio of stock to certified time against M, one line for each head."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for shape in dict.fromkeys((r["V"], r["K"]) for r in record["rows"]):
        rows = [r for r in record["rows"] if (r["V"], r["K"]) == shape]
        batches = [r["M"] for r in rows]
        axes.plot(batches, [r["ratio"] for r in rows], marker="o", label=f"{shape[0]:,} × {shape[1]:,}")
    axes.axhline(1, color="grey", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(batches, [str(m) for m in batches])
    axes.set_xlabel("positions in one call, M")
    axes.set_ylabel("stock time ÷ certified time")
    axes.set_title(f"Output head on one {record['device']}, all stages and fallbacks included")
    axes.legend(title="V × K", loc="upper right")
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    plt.close(figure)
