"""What a GPU earns its evidence with: every kernel output against the reference, and tokens by the million.

Three parts, each with counts: stages compared as bits over ragged shapes, tiles, limb counts and special
states; the same calls repeated, whose outputs must not change (a race would show); flipped bits, which
the checksums must catch; and whole positions at real head shapes, whose tokens must be the stock head's.
The record goes to `conformance/evidence/kernels-<device>.json`, bound to the hash of the sources.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from certhead.kernels.decision import Reason
from certhead.kernels.enclosure import check_enclosure
from certhead.kernels.identify import evidence_key, identify
from certhead.kernels.plan import decode_like, fitting, run_enclosed
from certhead.kernels.quantize import quantize
from certhead.kernels.triton_enclosed import EnclosedRescore
from certhead.kernels.triton_head import TritonPipeline, preferred_group
from certhead.pyref.models import ANY_ORDER
from rich.console import Console

from .bench import Shape, gaussian_head
from .enclosed_stages import compare_enclosed
from .gate import source_hash
from .kernel_stages import compare_kernels, merge
from .stages import StageResult

SCHEMA = "certhead.kernels/1"
RAGGED = ((5003, 2560), (2049, 576), (777, 100), (1, 64), (17, 1))
STAGE_BATCHES = (1, 3, 16, 17, 65, 256)
REAL_SHAPES = ((248_320, 2_560), (151_936, 4_096), (262_144, 640), (128_256, 4_096), (32_000, 4_096))
ODD_SHAPES = ((50_257, 768), (248_319, 2_560))  # not identified on an H200: enclosed mode, where it holds
BATCHES = (1, 2, 3, 4, 7, 8, 16, 17, 32, 48, 64, 96, 128, 192, 256)
RACE_BATCHES = (1, 16, 32, 64, 128, 256)
REPEATS = 20
CHAIN_ROWS = 200
DEVICE = torch.device("cuda")
Part = tuple[str, Callable[..., Any], tuple[Any, ...]]  # kind, function, arguments


def special(hidden: torch.Tensor) -> torch.Tensor:
    """The same states with some that no screen can handle, where there is room for them."""
    hidden = hidden.clone()
    for m, value in ((1, torch.nan), (2, 70_000.0), (4, torch.inf), (5, -torch.inf)):
        if m < len(hidden):
            hidden[m, hidden.shape[1] // 2] = value
    if len(hidden) > 3:
        hidden[3] = 0
    return hidden


def pipeline_of(weight: torch.Tensor) -> TritonPipeline:
    """The pipeline of a head, with the group that the kernels prefer."""
    columns = weight.shape[1]
    copy = quantize(weight, min(preferred_group(columns), columns))
    return TritonPipeline(weight, copy, ANY_ORDER.gamma_num(columns))


def gaussian_pipeline(rows: int, columns: int) -> TritonPipeline:
    """The pipeline of a Gaussian head."""
    return pipeline_of(gaussian_head(Shape(rows, columns), DEVICE))


def compare_stages_of(rows: int, columns: int) -> list[dict[str, Any]]:
    """Every tile that can be picked, ragged sizes and special states, for one head."""
    pipeline = gaussian_pipeline(rows, columns)
    results: list[StageResult] = []
    for positions in STAGE_BATCHES:
        hidden = special(decode_like(pipeline.weight, positions, positions))
        for c in fitting(pipeline, positions):
            results += compare_kernels(pipeline, hidden, c.tile, c.limb_count, chain_rows=CHAIN_ROWS)
        results += compare_enclosed(pipeline, hidden, c.tile, c.limb_count, runs=REPEATS)
    return [vars(r) for r in merge(results)]


def count_races(rows: int = 50_000, columns: int = 2_560) -> dict[str, int]:
    """Repeat calls on one large head; count outputs that are not the first call's bits."""
    pipeline = gaussian_pipeline(rows, columns)
    compared = differing = 0
    for positions in RACE_BATCHES:
        hidden = decode_like(pipeline.weight, positions, positions)
        for c in fitting(pipeline, positions):
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
    return {"repeats": REPEATS, "compared": compared, "differing": differing}


def inject_faults(faults: int = 60, rows: int = 20_000, columns: int = 2_560) -> dict[str, dict[str, int]]:
    """Flip one bit at a time where the checksums reach; count what was caught and tokens that differ."""
    pipeline = gaussian_pipeline(rows, columns)
    hidden = decode_like(pipeline.weight, 16, 0)
    c = fitting(pipeline, 16)[0]
    stock = torch.argmax(torch.matmul(hidden, pipeline.weight.T), dim=-1)
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
            pipeline.select(16, c.tile, c.limb_count)
            pipeline.rescore(hidden)
            if target is not None:
                target[at[0], at[1]] ^= bit
            caught += bool((pipeline.reasons[:16] == Reason.CHECKSUM).any())
            wrong += int((pipeline.tokens[:16] != stock).sum())
        out[place] = {"injected": faults, "caught": caught, "tokens_differing": wrong}
    return out


def count_tokens(rows: int, columns: int, saved_head: Path | None, scale: int) -> list[dict[str, Any]]:
    """Tokens of the kernels against the stock head, for every M and every configuration that may serve.

    saved_head: a safetensors file whose `weight` and `hidden` (bfloat16) take the place of the Gaussian
    head and its states. scale: calls for each M below 64; half as many from there on.
    """
    if saved_head is not None:
        from safetensors.torch import load_file

        tensors = load_file(saved_head, device=str(DEVICE))
        weight, hidden = tensors["weight"].contiguous(), tensors["hidden"]
        name = saved_head.stem
    else:
        weight, hidden, name = gaussian_head(Shape(rows, columns), DEVICE), None, "gaussian"

    def states(positions: int, seed: int) -> torch.Tensor:
        if hidden is None:
            return decode_like(weight, positions, seed)
        generator = torch.Generator().manual_seed(seed * 1000 + positions)
        return hidden[torch.randint(0, len(hidden), (positions,), generator=generator).to(DEVICE)]

    pipeline = pipeline_of(weight)
    enclosed = EnclosedRescore(pipeline)
    out = []
    for positions in BATCHES:
        found = identify(pipeline, positions)
        verdict, chosen = "identified", fitting(pipeline, positions)
        if not found.identified:
            holds = check_enclosure(weight, positions, pipeline.gamma_num).holds
            verdict, chosen = ("enclosed", chosen) if holds else ("not identified", [])
        calls = scale if positions < 64 else scale // 2
        pipeline.totals.zero_()
        differing = torch.zeros((), dtype=torch.int64, device=DEVICE)
        for seed in range(calls):
            h = states(positions, seed)
            stock = torch.argmax(torch.matmul(h, weight.T), dim=-1)
            for c in chosen:
                if found.identified:
                    tokens = pipeline.run(h, c.tile, c.limb_count)
                else:
                    tokens, _ = run_enclosed(pipeline, enclosed, h, c)
                differing += (tokens != stock).sum()
        totals = pipeline.totals.tolist()
        decided = totals[Reason.NONE]
        out.append(
            {
                "head": name,
                "V": weight.shape[0],
                "K": weight.shape[1],
                "M": positions,
                "verdict": verdict,
                "identified_on_logits": found.logits,
                "configurations": len(chosen),
                "positions": sum(totals),
                "differing": int(differing),
                "exact": decided * found.identified,
                "enclosed": decided * (not found.identified),
                "fallback": sum(totals) - decided,
            }
        )
    return out


def run_device(path: Path, saved_head: Path | None, console: Console, scale: int = 300) -> dict[str, Any]:
    """Run everything on the current CUDA device, parts in parallel, and write the record to `path`.

    Kernels compile for minutes and run for seconds, so the parts are processes of their own on one GPU.
    saved_head: a safetensors file with `weight` and `hidden` (bfloat16), e.g. a captured model's head.
    scale: see `count_tokens`. Raises RuntimeError without a CUDA device; a part that fails is recorded
    under `failures`, and the others go on.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("kernel evidence needs a CUDA device; none was found")
    key = evidence_key(torch.zeros(1, 1, dtype=torch.bfloat16, device=DEVICE), 0)
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "device": key["device"],
        "versions": {k: key[k] for k in ("driver", "cuda", "cublas", "torch", "triton")},
        "source_hash": source_hash(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "stages": [],
        "shapes": [],
        "failures": [],
    }
    parts: list[Part] = [
        *(("tokens", count_tokens, (*shape, None, scale)) for shape in REAL_SHAPES),
        *(("tokens", count_tokens, (*shape, None, scale // 4)) for shape in ODD_SHAPES),
        *([("tokens", count_tokens, (0, 0, saved_head, scale))] if saved_head else []),
        *(("stages", compare_stages_of, shape) for shape in RAGGED),
        ("races", count_races, ()),
        ("faults", inject_faults, ()),
    ]
    with ProcessPoolExecutor(len(parts), mp_context=get_context("spawn")) as pool:
        collect(parts, pool, record, path, console)
    return record


def collect(
    parts: Sequence[Part], pool: Executor, record: dict[str, Any], path: Path, console: Console
) -> None:
    """Run the parts in the pool; add what each finds to the record and write it, one part after another."""
    stages: list[StageResult] = []
    running = {pool.submit(part, *arguments): (kind, arguments) for kind, part, arguments in parts}
    for future in as_completed(running):
        kind, arguments = running[future]
        try:
            found = future.result()
        except Exception as error:  # one part must not take the others down
            record["failures"].append(f"{kind} {arguments}: {type(error).__name__}: {error}")
            console.print(record["failures"][-1], style="red", markup=False)
        else:
            if kind == "tokens":
                record["shapes"] += found
            elif kind == "stages":
                stages += [StageResult(**r) for r in found]
            else:
                record[kind] = found
            console.print(f"  {kind} {arguments}: {_summary(kind, found)}", markup=False)
        record["stages"] = [vars(r) for r in merge(stages)]
        record["tokens"] = {
            "positions": sum(r["positions"] for r in record["shapes"]),
            "differing": sum(r["differing"] for r in record["shapes"]),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")


def _summary(kind: str, found: Any) -> str:
    if kind == "tokens":
        return (
            f"{sum(r['positions'] for r in found):,} positions, {sum(r['differing'] for r in found)} differ"
        )
    if kind == "stages":
        return f"{sum(r['compared'] for r in found):,} values, {sum(r['differing'] for r in found)} differ"
    return str(found)


def passed(record: dict[str, Any]) -> bool:
    """Whether every part ran, nothing differed or changed on repetition, and every fault was caught."""
    faults = record.get("faults", {}).values()
    return (
        not record["failures"]
        and not any(s["differing"] for s in record["stages"])
        and record.get("races", {}).get("differing") == 0
        and record["tokens"]["differing"] == 0
        and bool(faults)
        and all(f["caught"] == f["injected"] and not f["tokens_differing"] for f in faults)
    )
