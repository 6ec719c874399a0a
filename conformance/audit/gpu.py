"""The audit's run on a GPU: `python -m certhead.conformance.audit.gpu --out DIR`.

Sections run one after another, each on its own: a failure is recorded and the next one starts. What was
found goes to `DIR/results.json` and `DIR/*.npz` after every section; `evidence` turns that folder into
the committed record. Torch is imported late, so that the emulating processes start fast.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from .corners import all_corners, corner_steps
from .distributions import DISTRIBUTIONS, ChainTask, Codes16, Codes32, chain_inputs, digest, step_inputs
from .product import codes16, codes32
from .refute import emulated_chains

DEADLINE = 185.0  # seconds after which no section starts
STEPS = 4096  # recorded single steps of each distribution
SPECIAL_STEPS = 256
MORE_STEPS = 1 << 17  # compared, not recorded
CHAINS = ((64, 2048, 32), (256, 1024, 32))  # terms, rows, positions
CHAIN_SEEDS = 4
SHAPES = ((50_257, 768), (49_152, 576), (248_320, 2_560), (151_936, 4_096))
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LOGITS = 120_000_000
TREES = (
    (50_257, 768, (1, 2, 4, 8, 12, 16, 24, 32, 128)),
    (49_152, 576, (1, 16, 128)),
    (50_257, 256, (1, 4, 8, 16)),
    (50_264, 256, (1, 16, 128)),
    (32_768, 64, (1, 16)),
)
ODD_BATCHES = (1, 4, 8, 12, 16, 32)
ODD_DISTRIBUTIONS = ("normal", "cancelling", "geometric", "cut", "near_emin")


class Run:
    """The results so far, and where they are written."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.start = monotonic()
        self.results: dict[str, Any] = {"failures": []}
        out.mkdir(parents=True, exist_ok=True)

    def section(self, name: str, work: Callable[[dict[str, Any]], None]) -> None:
        """Run one part; whatever it raises is recorded, with what it had found until then."""
        elapsed = monotonic() - self.start
        if elapsed > DEADLINE:
            self.results["failures"].append({"section": name, "error": "out of time"})
            return
        print(f"[{elapsed:6.1f} s] {name}", flush=True)
        found: dict[str, Any] = {}
        self.results[name] = found
        try:
            work(found)
        except Exception:
            error = traceback.format_exc()
            print(error, flush=True)
            self.results["failures"].append({"section": name, "error": error[-2000:]})
        found["section_seconds"] = round(monotonic() - self.start - elapsed, 2)
        self.write()

    def write(self) -> None:
        """The results so far."""
        (self.out / "results.json").write_text(json.dumps(self.results, indent=1) + "\n")


def save(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Arrays under names that may hold slashes, compressed."""
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def environment(found: dict[str, Any]) -> None:
    """Versions, device, driver."""
    import torch
    import triton

    properties = torch.cuda.get_device_properties(0)
    found |= {
        "device": properties.name,
        "capability": [properties.major, properties.minor],
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "workspace": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "reduced_precision": str(torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
    }
    query = ["nvidia-smi", "--query-gpu=name,driver_version,vbios_version", "--format=csv,noheader"]
    try:
        found["nvidia_smi"] = subprocess.run(query, capture_output=True, text=True, timeout=20).stdout.strip()
    except OSError as problem:
        found["nvidia_smi"] = str(problem)


def step_batches() -> dict[str, tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint16], Codes32]]:
    """The recorded single steps, by name, in the order in which their results are stored."""
    batches = {"corners": corner_steps(all_corners())}
    for name in DISTRIBUTIONS:
        batches[name] = step_inputs(name, 0, STEPS)
        batches[f"{name}+specials"] = step_inputs(name, 1, SPECIAL_STEPS, specials=True)
    return batches


def steps(run: Run, found: dict[str, Any]) -> None:
    """Record single steps through both instructions; compare many more with the emulator."""
    from certhead.pyref.fdpa_vector import fdpa_vector
    from certhead.pyref.formats import FP16

    from . import device

    arrays: dict[str, npt.NDArray[Any]] = {}
    inputs = {}
    for name, (a, b, c) in step_batches().items():
        inputs[name] = digest(a, b, c)
        results = {}
        for instruction in device.TILES:
            results[instruction], used = device.run_steps(a, b, c, instruction)
            found.setdefault("instructions", {})[instruction] = used
        arrays[name] = results["mma.sync"]
        same = bool((results["mma.sync"] == results["wgmma"]).all())
        if not same:
            arrays[f"{name}/wgmma"] = results["wgmma"]
        emulated = fdpa_vector(a, b, c)
        found[name] = {"wgmma_equals_mma_sync": same, **device.difference(results["mma.sync"], emulated)}
        print(
            "   ",
            name,
            found[name]["mismatches"],
            "differ from the emulator;",
            "same" if same else "NOT same",
        )
    found["inputs_sha256"] = inputs
    a, b, c = corner_steps(all_corners())
    try:
        wide = device.stock_fp32(device.from_codes(a), device.from_codes(b))
        arrays["corners/library"] = codes32(wide.diagonal())
        alone = c == 0
        expected = arrays["corners"][alone]
        found["corners/library"] = device.difference(arrays["corners/library"][alone], expected)
    except (RuntimeError, TypeError) as problem:
        found["corners/library"] = {"problem": str(problem)[:300]}
    save(run.out / "steps.npz", arrays)
    run.write()
    for name in DISTRIBUTIONS:
        a, b, c = step_inputs(name, 2, MORE_STEPS)
        emulated = fdpa_vector(a, b, c)
        for instruction in device.TILES:
            got, _ = device.run_steps(a, b, c, instruction)
            found[f"more/{name}/{instruction}"] = device.difference(got, emulated)
    halves: dict[str, npt.NDArray[Any]] = {}
    for name in DISTRIBUTIONS:
        a, b, c = step_inputs(name, 3, 2048, FP16)
        got, used = device.run_steps(a, b, c, "wgmma", FP16)
        halves[name] = got
        found[f"fp16/{name}"] = {
            "inputs_sha256": digest(a, b, c),
            "instructions": used,
            **device.difference(got, fdpa_vector(a, b, c, inputs=FP16)),
        }
    save(run.out / "steps_fp16.npz", halves)


def chain_tasks() -> list[ChainTask]:
    """Every batch of chained dot products."""
    return [
        ChainTask(name, seed, rows, positions, terms)
        for seed in range(CHAIN_SEEDS)
        for name in DISTRIBUTIONS
        for terms, rows, positions in CHAINS
    ]


def chains(run: Run, pending: dict[ChainTask, Future[Codes32]], found: dict[str, Any]) -> None:
    """FP32 bits of chained dot products: both instructions and the library against the emulator."""
    import torch

    from . import device

    recorded: dict[str, npt.NDArray[Any]] = {}
    for task, future in pending.items():
        h, w = chain_inputs(task)
        emulated = future.result(timeout=120)
        hidden, weight = device.from_codes(h), device.from_codes(w)
        loop = device.chain(hidden, weight)
        narrow = codes16(loop.to(torch.bfloat16))
        got = {
            "wgmma": device.difference(codes32(loop), emulated),
            "mma.sync": device.difference(codes32(device.chain(hidden, weight, "mma.sync")), emulated),
            "library_bf16": device.difference(codes16(device.stock(hidden, weight)), narrow),
        }
        try:
            wide = codes32(device.stock_fp32(hidden, weight))
            got["library_fp32"] = device.difference(wide, emulated)
        except (RuntimeError, TypeError) as problem:
            found["library_fp32_problem"] = str(problem)[:300]
        entry = found.setdefault(f"{task.name}/{task.terms}", {})
        for how, result in got.items():
            total = entry.setdefault(
                how, dict.fromkeys(("compared", "mismatches", "only_nan_code", "only_zero_sign"), 0)
            )
            for field in ("compared", "mismatches", "only_nan_code", "only_zero_sign"):
                total[field] += result[field]
            if result["first"] and "first" not in total:
                total["first"] = {"seed": task.seed, **result["first"][0]}
        if task.seed == 0:
            part = codes32(loop)[:4, :256]
            recorded[f"{task.name}/{task.terms}"] = part
            entry["inputs_sha256"] = digest(h, w)
    save(run.out / "chains.npz", recorded)


def trees(run: Run, found: dict[str, Any]) -> None:
    """Masking probes of stock products: all pairs, all positions, two places in the weight."""
    import torch

    from . import device
    from .tree import column_sets

    arrays: dict[str, npt.NDArray[Any]] = {}
    for rows, terms, batches in TREES:
        for positions in batches:
            for name, columns in column_sets(terms).items():
                label = f"{rows}x{terms}/M{positions}/{name}"
                seen = device.survivors(device.stock, rows, terms, positions, columns)
                rolled = device.survivors(device.stock, rows, terms, positions, columns, roll=4099)
                entry: dict[str, Any] = {
                    "same_for_all_positions": bool((seen == seen[:1]).all()),
                    "same_for_other_rows": bool((seen == rolled).all()),
                    "sha256": digest(seen[0]),
                    "distinct": sorted(np.unique(seen[0]).tolist())[:40],
                }
                arrays.setdefault(f"survivors/{entry['sha256'][:16]}", _small(seen[0]))
                for m in range(1, positions):
                    if (seen[m] != seen[0]).any():
                        entry.setdefault("other_positions", {})[str(m)] = digest(seen[m])
                        arrays.setdefault(f"survivors/{digest(seen[m])[:16]}", _small(seen[m]))
                        if len(entry["other_positions"]) >= 4:
                            break
                found[label] = entry
        save(run.out / "trees.npz", arrays)
        for positions in batches:
            hidden = torch.ones((positions, terms), dtype=torch.bfloat16, device=device.DEVICE)
            weight = torch.ones((rows, terms), dtype=torch.bfloat16, device=device.DEVICE)
            found[f"{rows}x{terms}/M{positions}/kernels"] = device.kernel_names(
                partial(device.stock, hidden, weight)
            )
    if (50_257, 768) in {(rows, terms) for rows, terms, _ in TREES}:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        try:
            for name, columns in column_sets(768).items():
                seen = device.survivors(device.stock, 50_257, 768, 16, columns)
                found[f"50257x768/M16/{name}/no reduced precision"] = {"sha256": digest(seen[0])}
                arrays.setdefault(f"survivors/{digest(seen[0])[:16]}", _small(seen[0]))
        finally:
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True
    save(run.out / "trees.npz", arrays)


def _small(counts: npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Counts as bytes where they are counts, else as they are."""
    whole = counts.astype(np.uint8, copy=True) if np.isfinite(counts).all() else None
    return whole if whole is not None and (whole == counts).all() else counts


def stock_shape(
    run: Run,
    shape: tuple[int, int],
    found: dict[str, Any],
    *,
    batches: Sequence[int] = (),
    logits: int | None = None,
    seconds: float = 2.5,
) -> None:
    """One weight shape at every batch shape, and twice more where split-K needs a look."""
    import torch
    from certhead.conformance.bench import Shape, gaussian_head

    from . import device

    head = device.Head.of(gaussian_head(Shape(*shape), device.DEVICE))
    logits = LOGITS if logits is None else logits
    for positions in batches or BATCHES:
        found[f"M{positions}"] = stock_batch(run, head, positions, logits, seconds)
        run.write()
    if shape[1] != 768:
        return
    found["M12"] = stock_batch(run, head, 12, logits, seconds)
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    try:
        for positions in (12, 16):
            label = f"M{positions} without reduced precision"
            found[label] = stock_batch(run, head, positions, logits, seconds)
    finally:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True


def stock_batch(run: Run, head: Any, positions: int, logits: int, seconds: float) -> dict[str, Any]:
    """One batch shape: logits, FP32 values, the any-order interval, FP16 inputs; each on its own."""
    from . import device

    rows, columns = head.weight.shape
    entry: dict[str, Any] = {}

    def attempt(name: str, work: Callable[[], Any]) -> None:
        try:
            found = work()
            entry[name] = found if isinstance(found, dict | list) else vars(found)
        except Exception:
            error = traceback.format_exc()[-1500:]
            run.results["failures"].append(
                {"section": f"{rows}x{columns} M={positions} {name}", "error": error}
            )

    fp16 = positions in (1, 16, 128)
    for name, work in device.measurements(head, positions, logits=logits, seconds=seconds, fp16=fp16).items():
        attempt(name, work)
    seen, outside = entry.get("logits", {}), entry.get("enclosure", {}).get("outside")
    counts = f"{seen.get('mismatches')} of {seen.get('logits')} logits differ in {seen.get('seconds')} s"
    print(f"    M={positions}: {counts}; {outside} outside the any-order interval", flush=True)
    return entry


def odd_inputs(name: str, positions: int, kept: int) -> tuple[Codes16, Codes16]:
    """h [positions, 768] and w [256, 768] for the shape with an odd V; only `kept` columns are not zero."""
    h, w = chain_inputs(ChainTask(name, 7, 256, positions, 768))
    w[:, kept:] = 0
    return h, w


def odd(run: Run, found: dict[str, Any]) -> None:
    """BF16 results of the shape with an odd V, whose kernels are others: to find their arithmetic later."""
    import torch

    from . import device

    recorded: dict[str, npt.NDArray[Any]] = {}
    weight = torch.zeros((50_257, 768), dtype=torch.bfloat16, device=device.DEVICE)
    for positions in ODD_BATCHES:
        for name in ODD_DISTRIBUTIONS:
            for kept in (16, 768):
                h, w = odd_inputs(name, positions, kept)
                weight[: len(w)] = device.from_codes(w)
                logits = device.stock(device.from_codes(h), weight)[:4, : len(w)]
                label = f"M{positions}/{name}/{kept}"
                recorded[label] = codes16(logits)
                found[label] = digest(h, w)
    save(run.out / "odd.npz", recorded)


def workspace(run: Run, found: dict[str, Any]) -> None:
    """The same comparison under another cuBLAS workspace, which a process fixes when it starts."""
    command = [
        sys.executable,
        "-m",
        "certhead.conformance.audit.gpu",
        "--out",
        str(run.out / "w"),
        "--workspace",
    ]
    done = subprocess.run(
        command,
        env={**os.environ, "CUBLAS_WORKSPACE_CONFIG": ":16:8"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    found["output"] = done.stdout[-1500:] + done.stderr[-1500:]
    found["results"] = json.loads((run.out / "w" / "results.json").read_text())


def workspace_run(run: Run) -> None:
    """What the other process does: three shapes, three batch shapes."""
    run.section("environment", environment)
    for shape in ((50_257, 768), (49_152, 576), (248_320, 2_560)):
        run.section(
            f"stock {shape[0]}x{shape[1]}",
            partial(stock_shape, run, shape, batches=(1, 16, 128), logits=20_000_000, seconds=1.0),
        )


def main() -> None:
    """Parse the arguments and run every section."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workspace", action="store_true", help="only the part for another workspace")
    arguments = parser.parse_args()
    run = Run(arguments.out)
    if arguments.workspace:
        workspace_run(run)
        return
    workers = max(1, min(12, (os.cpu_count() or 2) - 2))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        pending = {task: pool.submit(emulated_chains, task) for task in chain_tasks()}
        run.section("environment", environment)
        run.section("steps", lambda found: steps(run, found))
        run.section("chains", lambda found: chains(run, pending, found))
    run.section("trees", lambda found: trees(run, found))
    for shape in SHAPES:
        run.section(
            f"stock {shape[0]}x{shape[1]}",
            partial(stock_shape, run, shape),
        )
    run.section("odd", lambda found: odd(run, found))
    run.section("workspace", lambda found: workspace(run, found))
    run.results["seconds"] = round(monotonic() - run.start, 1)
    run.write()
    print("done in", run.results["seconds"], "s;", len(run.results["failures"]), "failures", flush=True)


if __name__ == "__main__":
    main()
