"""What the audit runs on a GPU: single tensor-core steps, chains, stock products and their trees.

Every function takes and returns arrays or plain data, so that what was seen can be judged elsewhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from certhead.kernels.identify import evidence_key, key_hash
from certhead.kernels.probes import DISTRIBUTIONS as PROBED
from certhead.kernels.probes import probe_states
from certhead.kernels.quantize import quantize
from certhead.kernels.triton_head import TritonPipeline
from certhead.pyref.formats import BF16, Format
from certhead.pyref.head import default_group
from certhead.pyref.models import ANY_ORDER

from . import device_kernels as kernels
from .distributions import Codes16, Codes32
from .enclosure import Enclosure
from .product import codes16, codes32
from .refute import minimise
from .tree import BIG, pairs_of

Matmul = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
INSTRUCTION = re.compile(r"wgmma\.mma_async[\w.]*|mma\.sync[\w.]*")
FEW_COLUMNS = 64  # a larger counterexample is not written out
TILES = {"mma.sync": (16, 16, 1), "wgmma": (64, 64, 4)}  # rows, positions, warps
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MINIMISE_S = 3.0  # after which the smallest counterexample so far is kept
GATHERED = (16, 1000, 1001)  # rows gathered: a block, a multiple of 8, an odd number
REAL = "real"  # the name of a head's own inputs among the distributions


def from_codes(codes: Codes16, fmt: Format = BF16) -> torch.Tensor:
    """Codes as a tensor of their format on the GPU."""
    dtype = torch.bfloat16 if fmt is BF16 else torch.float16
    return torch.from_numpy(np.ascontiguousarray(codes).view(np.int16)).to(DEVICE).view(dtype)


def run_steps(
    a: Codes16, b: Codes16, c: Codes32, instruction: str, fmt: Format = BF16
) -> tuple[Codes32, dict[str, int]]:
    """Results of single steps [N], and the instructions in the kernel's PTX."""
    tile, _, warps = TILES[instruction]
    count = len(a)
    padded = -(-count // tile) * tile
    x, y = (from_codes(np.pad(codes, ((0, padded - count), (0, 0))), fmt) for codes in (a, b))
    z = torch.from_numpy(np.pad(c, (0, padded - count)).view(np.int32)).to(DEVICE).view(torch.float32)
    d = torch.full_like(z, 12345.0)
    compiled = kernels.step_kernel[(padded // tile,)](x, y, z, d, T=tile, num_warps=warps)
    return codes32(d)[:count], instructions(compiled)


def instructions(compiled: Any) -> dict[str, int]:
    """The matrix instructions of a compiled kernel and how often each is written."""
    return {} if compiled is None else dict(Counter(INSTRUCTION.findall(compiled.asm["ptx"])))


def chain(hidden: torch.Tensor, weight: torch.Tensor, instruction: str = "wgmma") -> torch.Tensor:
    """The plain loop's accumulators, float32 [M, V]."""
    rows, positions, warps = TILES[instruction]
    (m, terms), v = hidden.shape, len(weight)
    out = torch.empty((m, v), device=hidden.device)
    grid = (-(-v // rows), -(-m // positions))
    kernels.chain_kernel[grid](
        hidden, weight, out, m, v, terms, BM=positions, BV=rows, BK=64, num_warps=warps, num_stages=2
    )
    return out


def stock(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The stock head: BF16 (or FP16) logits [M, V]."""
    return torch.matmul(hidden, weight.T)


def stock_fp32(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """The library's own FP32 results for 16-bit inputs."""
    return torch.mm(hidden, weight.T, out_dtype=torch.float32)


def difference(got: npt.NDArray[Any], expected: npt.NDArray[Any]) -> dict[str, Any]:
    """How two arrays of codes differ: how many, how many only in a zero's sign or a NaN's payload."""
    width = got.dtype.itemsize * 8
    sign = got.dtype.type(1 << (width - 1))
    infinity = got.dtype.type(0x7F800000 if width == 32 else 0x7F80)
    wrong = got != expected
    g, e = got & ~sign, expected & ~sign
    where = np.flatnonzero(wrong)[:5]
    return {
        "compared": int(got.size),
        "mismatches": int(wrong.sum()),
        "only_nan_code": int((wrong & (g > infinity) & (e > infinity)).sum()),
        "only_zero_sign": int((wrong & (g == 0) & (e == 0)).sum()),
        "first": [
            {"index": int(i), "got": f"{int(got.flat[i]):#x}", "expected": f"{int(expected.flat[i]):#x}"}
            for i in where
        ],
    }


def tensor_difference(got: torch.Tensor, expected: torch.Tensor) -> int:
    """Values whose bits differ, two NaN counting as equal."""
    dtype = torch.int32 if got.dtype == torch.float32 else torch.int16
    differ = got.view(dtype) != expected.view(dtype)
    return int((differ & ~(got.isnan() & expected.isnan())).sum())


@dataclass(frozen=True)
class Head:
    """A weight on the GPU with the pipeline whose re-score is compared with the stock head."""

    weight: torch.Tensor
    pipeline: TritonPipeline
    hidden: torch.Tensor | None = None  # bfloat16 [N, K]: what a model gave this head, finite, below 2^16

    @staticmethod
    def of(weight: torch.Tensor, hidden: torch.Tensor | None = None, positions: int = 256) -> Head:
        """Quantise the weight; only the re-score's kernel is used, but it needs the buffers."""
        columns = weight.shape[1]
        copy = quantize(weight, min(default_group(columns), columns))
        pipeline = TritonPipeline(weight, copy, ANY_ORDER.gamma_num(columns), max_positions=positions)
        return Head(weight, pipeline, hidden)

    @property
    def kinds(self) -> int:
        """How many named distributions `states` goes round."""
        return len(PROBED) + (self.hidden is not None)

    def states(self, positions: int, seed: int) -> Iterator[tuple[str, torch.Tensor]]:
        """`probe_states`, with a batch of the head's own inputs after every round, where there are any."""
        generator = torch.Generator().manual_seed(seed)
        for batch, probe in enumerate(probe_states(self.weight, positions, seed), 1):
            yield probe
            if self.hidden is not None and batch % len(PROBED) == 0:
                index = torch.randint(0, len(self.hidden), (positions,), generator=generator)
                yield REAL, self.hidden[index.to(self.hidden.device)]


def compare_logits(head: Head, positions: int, logits: int, limit_s: float, seed: int = 0) -> dict[str, Any]:
    """BF16 logits of the stock head against the re-score's, over every distribution of the head.

    Goes on after a difference, to count; stops after `logits` or `limit_s`, each distribution taken once.
    """
    start = monotonic()
    compared: Counter[str] = Counter()
    mismatches: Counter[str] = Counter()
    first: dict[str, Any] | None = None
    for batch, (name, hidden) in enumerate(head.states(positions, seed)):
        theirs = stock(hidden, head.weight)
        ours = head.pipeline.accumulators(hidden).to(torch.bfloat16)
        count = tensor_difference(theirs, ours)
        compared[name] += theirs.numel()
        mismatches[name] += count
        if count and first is None:
            m, i = (int(x) for x in (theirs.view(torch.int16) != ours.view(torch.int16)).nonzero()[0])
            first = {"batch": batch, "distribution": name, "seed": seed, "position": m, "row": i}
            first |= {
                "stock": f"{int(codes16(theirs[m, i])):#06x}",
                "chain": f"{int(codes16(ours[m, i])):#06x}",
            }
            differing = hidden
        elapsed = monotonic() - start
        if batch + 1 >= head.kinds and (compared.total() >= logits or elapsed > limit_s):
            break
    seconds = monotonic() - start
    if first is not None:
        first |= smallest_difference(head.weight, differing, first["position"], first["row"])
    key = evidence_key(head.weight, positions)
    return {
        "V": head.weight.shape[0],
        "K": head.weight.shape[1],
        "M": positions,
        "logits": compared.total(),
        "mismatches": mismatches.total(),
        "by_distribution": {name: [compared[name], mismatches[name]] for name in compared},
        "first": first,
        "evidence_key": key,
        "key": key_hash(key),
        "seconds": round(seconds, 2),
    }


def smallest_difference(weight: torch.Tensor, hidden: torch.Tensor, m: int, i: int) -> dict[str, Any]:
    """A minimal set of columns of position m for which row i's stock logit still is not the chain's."""

    def differs(columns: Sequence[int]) -> bool:
        masked = hidden.clone()
        masked[m] = 0
        index = torch.tensor(columns, device=hidden.device)
        masked[m, index] = hidden[m, index]
        theirs = stock(masked, weight)[m, i]
        ours = chain(masked[m : m + 1], weight[i : i + 1]).to(torch.bfloat16)[0, 0]
        return bool(theirs.view(torch.int16) != ours.view(torch.int16))

    try:
        kept = minimise(differs, range(weight.shape[1]), limit=300, seconds=MINIMISE_S)
    except ValueError as problem:
        return {"minimal": str(problem)}
    masked = torch.zeros_like(hidden)
    masked[m, kept] = hidden[m, kept]
    few = len(kept) <= FEW_COLUMNS  # a larger one is made again from its batch and seed
    return {
        **({"columns": kept} if few else {"minimal_columns": len(kept)}),
        **({"h": [f"{int(x):#06x}" for x in codes16(hidden[m, kept])]} if few else {}),
        **({"w": [f"{int(x):#06x}" for x in codes16(weight[i, kept])]} if few else {}),
        "minimal_stock": f"{int(codes16(stock(masked, weight)[m, i])):#06x}",
        "minimal_chain_fp32": f"{int(codes32(chain(masked[m : m + 1], weight[i : i + 1]))[0, 0]):#010x}",
    }


def enclosure(head: Head, positions: int, batches: int, seed: int = 1) -> Enclosure:
    """Stock logits, and the library's FP32 results, against the any-order interval."""
    seen = Enclosure()
    for batch, (name, hidden) in enumerate(islice(head.states(positions, seed), batches)):
        try:
            wide: torch.Tensor | None = stock_fp32(hidden, head.weight)
        except (RuntimeError, TypeError):
            wide = None
        where = {"distribution": name, "batch": batch, "seed": seed}
        seen.add(hidden, head.weight, stock(hidden, head.weight), wide, where)
    return seen


def compare_wide(head: Head, positions: int, seed: int = 2) -> dict[str, Any]:
    """FP32 bits, one batch of each distribution: library against loop, loop against re-score."""
    out: dict[str, Any] = {"values": 0, "library_fp32": 0, "rescore": 0, "mma_sync": 0}
    for _, hidden in islice(head.states(positions, seed), head.kinds):
        loop = chain(hidden, head.weight)
        out["values"] += loop.numel()
        out["rescore"] += tensor_difference(head.pipeline.accumulators(hidden), loop)
        out["mma_sync"] += tensor_difference(chain(hidden, head.weight, "mma.sync"), loop)
        try:
            out["library_fp32"] += tensor_difference(stock_fp32(hidden, head.weight), loop)
        except (RuntimeError, TypeError) as problem:
            out["library_fp32_problem"] = str(problem)[:200]
    return out


def compare_gathered(head: Head, positions: int, seed: int = 4) -> dict[str, dict[str, int]]:
    """Do a row's bits depend on the rows beside it? Gathered rows against the same rows in place.

    By number of rows: `library` counts BF16 logits of the stock product over the gathered rows alone that
    are not those of the whole product, `loop` the same of the plain loop's FP32 values.
    """
    out = {}
    generator = torch.Generator().manual_seed(seed)
    for (_, hidden), count in zip(head.states(positions, seed), GATHERED, strict=False):
        index = torch.randperm(len(head.weight), generator=generator)[:count].to(head.weight.device)
        rows = head.weight[index]
        whole = {
            "library": stock(hidden, head.weight)[:, index],
            "loop": chain(hidden, head.weight)[:, index],
        }
        alone = {"library": stock(hidden, rows), "loop": chain(hidden, rows)}
        differ = {how: tensor_difference(alone[how], whole[how]) for how in whole}
        out[str(len(index))] = {"values": whole["loop"].numel(), **differ}
    return out


def compare_fp16(weight: torch.Tensor, positions: int, seed: int = 3) -> dict[str, Any]:
    """FP16 inputs: the library's FP16 and FP32 results against the loop, three batches."""
    weight = weight.half()
    out: dict[str, Any] = {"values": 0, "fp16": 0, "fp32": 0}
    for _, hidden in islice(probe_states(weight.bfloat16(), positions, seed), 3):
        hidden = hidden.half()
        loop = chain(hidden, weight)
        out["values"] += loop.numel()
        out["fp16"] += tensor_difference(stock(hidden, weight), loop.half())
        try:
            out["fp32"] += tensor_difference(stock_fp32(hidden, weight), loop)
        except (RuntimeError, TypeError) as problem:
            out["fp32_problem"] = str(problem)[:200]
    return out


def measurements(
    head: Head, positions: int, *, logits: int, seconds: float, fp16: bool = True
) -> dict[str, Callable[[], Any]]:
    """Everything that is measured at one batch shape, by name; each stands on its own."""
    columns = head.weight.shape[1]
    hidden = torch.ones((positions, columns), dtype=torch.bfloat16, device=head.weight.device)
    out: dict[str, Callable[[], Any]] = {
        "logits": lambda: compare_logits(head, positions, logits, seconds),
        "kernels": lambda: kernel_names(lambda: stock(hidden, head.weight)),
        "wide": lambda: compare_wide(head, positions),
        "gathered": lambda: compare_gathered(head, positions),
        "enclosure": lambda: enclosure(head, positions, head.kinds),
    }
    if fp16:
        out["fp16"] = lambda: compare_fp16(head.weight, positions)
    return out


def sweep(head: Head, batches: Sequence[int], logits: int) -> dict[str, Any]:
    """The short form at many batch shapes: logits compared with the re-score, and where some differ.

    Two batches at least of each, the distributions taken in turn.
    """
    compared = 0
    differing: dict[str, int] = {}
    for positions in batches:
        seen = mismatches = 0
        states = islice(head.states(positions, 5), positions % head.kinds, None)
        for batch, (_, hidden) in enumerate(states, 1):
            theirs = stock(hidden, head.weight)
            mismatches += tensor_difference(theirs, head.pipeline.accumulators(hidden).to(torch.bfloat16))
            seen += theirs.numel()
            if mismatches or (batch >= 2 and seen >= logits):
                break
        compared += seen
        if mismatches:
            differing[str(positions)] = mismatches
    return {"batches": len(batches), "logits": compared, "differing": differing}


def survivors(
    matmul: Matmul, rows: int, terms: int, positions: int, columns: Sequence[int], *, roll: int = 0
) -> npt.NDArray[np.float32]:
    """Masking probes for all pairs of `columns`: what every position returns, [positions, pairs].

    Each row of a [rows, terms] weight holds one pair's masks, so the product keeps its real shape; `roll`
    moves the probes to other rows.
    """
    first, second = (torch.from_numpy(x).to(DEVICE) for x in pairs_of(columns))
    hidden = torch.ones((positions, terms), dtype=torch.bfloat16, device=DEVICE)
    weight = torch.empty((rows, terms), dtype=torch.bfloat16, device=DEVICE)
    index = torch.tensor(list(columns), device=DEVICE)
    parts = []
    for start in range(0, len(first), rows):
        i, j = first[start : start + rows], second[start : start + rows]
        row = torch.arange(len(i), device=DEVICE)
        weight.zero_()
        weight[:, index] = 1.0
        weight[row, i], weight[row, j] = BIG, -BIG
        out = matmul(hidden, weight.roll(roll, 0))
        parts.append(out.roll(-roll, 1)[:, : len(i)].float())
    return torch.cat(parts, dim=1).cpu().numpy()


def kernel_names(call: Callable[[], object]) -> list[str]:
    """The GPU kernels that a call launches, by the profiler; empty where it does not work."""
    try:
        call()
        torch.cuda.synchronize()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            call()
            torch.cuda.synchronize()
        return [event.key[:160] for event in profile.key_averages()]
    except Exception as problem:
        return [f"profiler: {str(problem)[:120]}"]
