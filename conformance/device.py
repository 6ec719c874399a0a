"""What a GPU earns its evidence with: every kernel output against the reference, and tokens by the million.

Three parts, each with counts: stages compared as bits over ragged shapes, tiles, limb counts and special
states; the same calls repeated, whose outputs must not change (a race would show); flipped bits, which
the checksums must catch; and whole positions at real head shapes, whose tokens must be the stock head's.
The record goes to `conformance/evidence/kernels-<device>.json`, bound to the hash of the sources.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from certhead.kernels import CertifiedHead
from certhead.kernels.decision import Reason
from certhead.kernels.identify import evidence_key
from certhead.kernels.plan import configurations, decode_like, fitting
from certhead.kernels.quantize import quantize
from certhead.kernels.triton_engine import TritonEngine
from certhead.kernels.triton_head import TritonPipeline, preferred_group
from certhead.pyref.models import ANY_ORDER
from rich.console import Console

from .bench import Shape, gaussian_head
from .gate import source_hash
from .kernel_stages import compare_kernels, merge
from .stages import StageResult

SCHEMA = "certhead.kernels/1"
RAGGED = ((5003, 2560), (2049, 576), (777, 100), (1, 64), (17, 1))
STAGE_BATCHES = (1, 3, 16, 17, 65, 256)
REAL_SHAPES = ((248_320, 2_560), (151_936, 4_096), (262_144, 640), (128_256, 4_096), (32_000, 4_096))
BATCHES = (1, 2, 3, 4, 7, 8, 16, 17, 32, 48, 64, 96, 128, 192, 256)
REPEATS = 20
CHAIN_ROWS = 200
Line = Callable[[str], None]


def special(hidden: torch.Tensor) -> torch.Tensor:
    """The same states with some that no screen can handle, where there is room for them."""
    hidden = hidden.clone()
    for m, value in ((1, torch.nan), (2, 70_000.0), (4, torch.inf), (5, -torch.inf)):
        if m < len(hidden):
            hidden[m, hidden.shape[1] // 2] = value
    if len(hidden) > 3:
        hidden[3] = 0
    return hidden


def ragged_pipelines(device: torch.device) -> Iterator[TritonPipeline]:
    """Small heads whose sizes are no multiple of any tile."""
    for rows, columns in RAGGED:
        weight = gaussian_head(Shape(rows, columns), device)
        copy = quantize(weight, min(preferred_group(columns), columns))
        yield TritonPipeline(weight, copy, ANY_ORDER.gamma_num(columns))


def compare_stages_everywhere(device: torch.device, line: Line) -> list[StageResult]:
    """Every tile that can be picked, one and two limbs, ragged sizes, special states."""
    results: list[StageResult] = []
    for pipeline in ragged_pipelines(device):
        for positions in STAGE_BATCHES:
            hidden = special(decode_like(pipeline.weight, positions, positions))
            for c in fitting(pipeline, positions):
                results += compare_kernels(pipeline, hidden, c.tile, c.limb_count, chain_rows=CHAIN_ROWS)
        line(f"stages: V={pipeline.rows} K={pipeline.columns}: {sum(r.compared for r in results):,} values")
    return merge(results)


def count_races(device: torch.device, line: Line) -> dict[str, int]:
    """Repeat calls on one large head; count outputs that are not the first call's bits."""
    weight = gaussian_head(Shape(50_000, 2_560), device)
    pipeline = TritonPipeline(weight, quantize(weight, 160), ANY_ORDER.gamma_num(2_560))
    compared = differing = 0
    for positions in (1, 16, 32, 64, 128, 256):
        hidden = decode_like(weight, positions, positions)
        for c in configurations(positions):
            first: list[torch.Tensor] = []
            for _ in range(REPEATS):
                pipeline.tops.fill_(torch.nan)
                pipeline.run(hidden, c.tile, c.limb_count)
                now = [
                    pipeline.tops.flatten()[: positions * pipeline.n_blocks].view(torch.int32).clone(),
                    pipeline.winner[:positions].clone(),
                    pipeline.counts[:positions].clone(),
                ]
                first = first or now
                compared += sum(t.numel() for t in now)
                differing += sum(int((a != b).sum()) for a, b in zip(first, now, strict=True))
    line(f"repeats: {REPEATS} of each call, {compared:,} values, {differing} changed")
    return {"repeats": REPEATS, "compared": compared, "differing": differing}


def inject_faults(device: torch.device, line: Line, faults: int = 60) -> dict[str, dict[str, int]]:
    """Flip one bit at a time where the checksums reach; count what was caught and tokens that differ."""
    weight = gaussian_head(Shape(20_000, 2_560), device)
    pipeline = TritonPipeline(weight, quantize(weight, 160), ANY_ORDER.gamma_num(2_560))
    hidden = decode_like(weight, 16, 0)
    c = configurations(16)[0]
    stock = torch.argmax(torch.matmul(hidden, weight.T), dim=-1)
    generator = torch.Generator().manual_seed(0)
    out: dict[str, dict[str, int]] = {}
    for place in ("codes", "limbs", "accumulators"):
        caught = wrong = 0
        for _ in range(faults):
            target = {"codes": pipeline.codes[: pipeline.rows], "limbs": pipeline.lo[:16]}.get(place)
            pipeline.limbs(hidden, c.limb_count)
            if target is not None:
                at = [int(torch.randint(0, n, (1,), generator=generator)) for n in target.shape]
                bit = 1 << int(torch.randint(0, 7, (1,), generator=generator))
                target[at[0], at[1]] ^= bit
            pipeline.screen(16, c.tile, c.limb_count)
            if place == "accumulators":
                tiles = -(-pipeline.rows // c.tile.rows)
                at = [int(torch.randint(0, n, (1,), generator=generator)) for n in (16, tiles)]
                bit = 1 << int(torch.randint(0, 31, (1,), generator=generator))
                pipeline.observed[at[0] * tiles + at[1]] ^= bit
            pipeline.verify(16, c.tile, c.limb_count)
            pipeline.select(16)
            pipeline.rescore(hidden)
            if target is not None:
                target[at[0], at[1]] ^= bit
            caught += bool((pipeline.reasons[:16] == Reason.CHECKSUM).any())
            wrong += int((pipeline.tokens[:16] != stock).sum())
        out[place] = {"injected": faults, "caught": caught, "tokens_differing": wrong}
        line(f"faults: {place}: {caught} of {faults} caught, {wrong} tokens differ")
    return out


def count_tokens(
    weight: torch.Tensor, states: Callable[[int, int], torch.Tensor], budget: int, line: Line
) -> list[dict[str, Any]]:
    """Tokens of `CertifiedHead` against the stock head, M by M; `states(M, seed)` makes the inputs."""
    head = CertifiedHead(weight, backend="cuda")
    engine = head.engine
    assert isinstance(engine, TritonEngine)
    out = []
    for positions in BATCHES:
        plan = engine.plan(positions)
        batches = max(
            4, budget // (len(BATCHES) * positions) if positions < 64 else budget // (4 * positions)
        )
        before, differing = engine.counters(), 0
        for seed in range(batches):
            hidden = states(positions, seed)
            differing += int((head(hidden) != head.stock_tokens(hidden)).sum())
        after = engine.counters()
        row = {
            "V": weight.shape[0],
            "K": weight.shape[1],
            "M": positions,
            "positions": positions * batches,
            "differing": differing,
            "verdict": "identified" if plan.identification.identified else "not identified",
            "identified_on_logits": plan.identification.logits,
            "served_by": "certified" if plan.configuration else "stock",
            "exact": after["exact"] - before["exact"],
            "fallback": after["fallback"] - before["fallback"],
        }
        out.append(row)
    total = sum(r["positions"] for r in out)
    line(f"tokens: {weight.shape[0]}×{weight.shape[1]}: {total:,} positions, "
         f"{sum(r['differing'] for r in out)} differ")  # fmt: skip
    return out


def run_device(path: Path, saved_head: Path | None, console: Console, budget: int = 60_000) -> dict[str, Any]:
    """Run everything on the current CUDA device and write the record to `path`.

    saved_head: a safetensors file with `weight` and `hidden` (bfloat16), e.g. a captured model's head.
    budget: positions per batch class and shape. Raises RuntimeError without a CUDA device.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("kernel evidence needs a CUDA device; none was found")
    device, line = torch.device("cuda"), console.print
    probe = torch.zeros(1, 1, dtype=torch.bfloat16, device=device)
    key = evidence_key(probe, 0)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "device": key["device"],
        "versions": {k: key[k] for k in ("driver", "cuda", "cublas", "torch", "triton")},
        "source_hash": source_hash(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "shapes": [],
    }

    def save() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")

    record["stages"] = [vars(r) for r in compare_stages_everywhere(device, line)]
    record["races"] = count_races(device, line)
    record["faults"] = inject_faults(device, line)
    save()
    if saved_head is not None:
        from safetensors.torch import load_file

        tensors = load_file(saved_head, device="cuda")
        hidden = tensors["hidden"]

        def real_states(positions: int, seed: int) -> torch.Tensor:
            generator = torch.Generator().manual_seed(seed * 1000 + positions)
            index = torch.randint(0, len(hidden), (positions,), generator=generator)
            return hidden[index.to(device)].contiguous()

        rows = count_tokens(tensors["weight"].contiguous(), real_states, budget, line)
        record["shapes"] += [r | {"head": "SmolLM2-135M-Instruct"} for r in rows]
        save()
    for rows_, columns in REAL_SHAPES:
        weight = gaussian_head(Shape(rows_, columns), device)

        def states(positions: int, seed: int, weight: torch.Tensor = weight) -> torch.Tensor:
            return decode_like(weight, positions, seed)

        record["shapes"] += [r | {"head": "gaussian"} for r in count_tokens(weight, states, budget, line)]
        record["tokens"] = {
            "positions": sum(r["positions"] for r in record["shapes"]),
            "differing": sum(r["differing"] for r in record["shapes"]),
        }
        save()
        del weight
        torch.cuda.empty_cache()
    return record


def passed(record: dict[str, Any]) -> bool:
    """Whether nothing differed, nothing changed on repetition, and every fault was caught."""
    return (
        not any(s["differing"] for s in record["stages"])
        and record["races"]["differing"] == 0
        and record["tokens"]["differing"] == 0
        and all(f["caught"] == f["injected"] and not f["tokens_differing"] for f in record["faults"].values())
    )
