"""The stages on plain torch tensors: back end `torch`, any device.

Each function is one stage of docs/spec.md and equals its namesake in `pyref.head` bit for bit. The
integer products run through `torch._int_mm` where a probe has shown it exact, else in FP64, which
holds them exactly. Ends are exact FP64 products followed by one directed conversion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import product

import torch
from certhead.pyref import head as spec

from .decision import Reason
from .quantize import QuantizedHead
from .rounding import floor_log2, fp32_down, fp32_up, power_of_two

SCREEN_ELEMENTS = 1 << 17  # interval ends computed at a time: what a core's cache holds, in doubles
RESCORE_ELEMENTS = 1 << 18  # products rescored at a time, likewise

Rescorer = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Identified stock arithmetic: hidden [P, K] and rows [P, R, K], bfloat16 → accumulators [P, R] float32."""


@dataclass(frozen=True)
class LimbTensors:
    """Integer form of M positions; names as in docs/spec.md."""

    reasons: torch.Tensor  # uint8 [M], Reason; rows with a reason hold zeros below
    unit_exp: torch.Tensor  # int64 [M]
    hi: torch.Tensor  # int8 [M, K]
    lo: torch.Tensor  # int8 [M, K]
    group_shift: torch.Tensor  # int64 [M]
    group_codes: torch.Tensor  # int8 [M, G]
    tail_codes: torch.Tensor  # int64 [M]


@dataclass(frozen=True)
class Pairs:
    """The (position, block) pairs to rescore, in ascending order."""

    position: torch.Tensor  # int64 [P]
    block: torch.Tensor  # int64 [P]


def limbs(
    hidden: torch.Tensor, group: int, gamma_num: int, code_norm: int, limb_count: int = 2
) -> LimbTensors:
    """Stage `limbs` for hidden, bfloat16 [M, K]; arguments as in `pyref.head.limbs`."""
    h = hidden.double()
    m, columns = h.shape
    largest = h.abs().amax(dim=1)
    reasons = torch.zeros(m, dtype=torch.uint8, device=h.device)
    reasons[largest >= 2.0**spec.RANGE_EXP] = Reason.REFUSED
    reasons[~torch.isfinite(h).all(dim=1)] = Reason.NONFINITE
    h = torch.where((reasons == Reason.NONE)[:, None], h, 0.0)
    largest = h.abs().amax(dim=1)
    unit_bits = spec.UNIT_BITS[limb_count]
    unit_exp = floor_log2(largest.clamp_min(2.0 ** (spec.UNIT_MIN_EXP + unit_bits))) - unit_bits
    scaled = h * power_of_two(-unit_exp)[:, None]
    t = scaled.round()
    if limb_count == 1:
        t = t.clamp(-127, 127)
    r_codes = ((scaled - t).abs() * 2.0**spec.RESIDUAL_BITS).ceil().to(torch.int64)
    t = t.to(torch.int64)
    hi = (t + 128) >> 8 if limb_count == 2 else torch.zeros_like(t)
    rho, nu = spec.residual_shift(group), spec.norm_shift(columns)
    padding = (-columns) % group
    squares = t * t
    grouped = torch.nn.functional.pad(squares, (0, padding)).view(m, -1, group).sum(dim=2)
    norms = _ceil_sqrt(grouped)
    group_shift = torch.full((m,), rho, dtype=torch.int64, device=h.device)
    peak = norms.amax(dim=1)
    for tau in range(rho, 32):
        group_shift += (-((-peak) >> tau) > 127).to(torch.int64)
    group_codes = -((-norms) >> group_shift[:, None])
    tail = _ceil_sqrt((r_codes * r_codes).sum(dim=1))
    whole = _ceil_sqrt(squares.sum(dim=1))
    numerator = (tail << spec.GAMMA_BITS) + gamma_num * ((whole << spec.RESIDUAL_BITS) + tail)
    tail_codes = -((-numerator) >> (spec.GAMMA_BITS + spec.RESIDUAL_BITS + group_shift - rho - nu))
    widest = ((127 * group_codes.sum(dim=1) + 255 * tail_codes) << (group_shift - rho)) + 1
    too_wide = code_norm * whole + widest >= spec.INT32_LIMIT
    reasons[too_wide & (reasons == Reason.NONE)] = Reason.REFUSED
    return LimbTensors(
        reasons=reasons,
        unit_exp=unit_exp,
        hi=hi.to(torch.int8),
        lo=(t - (hi << 8)).to(torch.int8),
        group_shift=group_shift,
        group_codes=group_codes.to(torch.int8),
        tail_codes=tail_codes,
    )


def _ceil_sqrt(n: torch.Tensor) -> torch.Tensor:
    """Smallest r with r² ≥ n, for int64 0 ≤ n < 2^52: FP64's root is off by less than one."""
    r = n.double().sqrt().to(torch.int64)
    r = r - ((r - 1) * (r - 1) >= n).to(torch.int64) * (r > 0)
    return r + (r * r < n).to(torch.int64)


@cache
def int_mm_is_exact(device: str) -> bool:
    """Whether `torch._int_mm` returns exact int32 sums here; some int8 paths saturate at 16 bits."""
    # both signs of either operand in neighbouring columns: paths that shift one operand to unsigned
    # saturate on pairs of equal signs only
    fills = product((-128, 127), (-127, 127), (1, 16), (24, 576))
    try:
        for left, right, m, columns in fills:
            a = torch.full((m, columns), left, dtype=torch.int8, device=device)
            a[:, ::3] = -1 - left
            b = torch.full((32, columns), right, dtype=torch.int8, device=device)
            b[:, ::5] = -right
            if not torch.equal(torch._int_mm(a, b.T).double(), a.double() @ b.double().T):
                return False
    except (RuntimeError, NotImplementedError):
        return False
    return True


def int_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b.T for int8 [M, K] and [V, K], exact, as float64."""
    # the shapes that the CUDA path of _int_mm takes; the CPU path takes any
    # but returns uninitialised memory at K = 1 (torch 2.13.0)
    on_cpu = a.device.type == "cpu" and a.shape[1] > 1
    shaped = on_cpu or (a.shape[0] > 16 and b.shape[0] % 8 == 0 and a.shape[1] % 8 == 0)
    if shaped and int_mm_is_exact(a.device.type):
        return torch._int_mm(a, b.T).double()
    return a.double() @ b.double().T


def integers(copy: QuantizedHead, rows: slice, limb: LimbTensors) -> tuple[torch.Tensor, torch.Tensor]:
    """(I, width) as exact float64 [M, rows]."""
    codes = copy.codes[rows]
    m = limb.hi.shape[0]
    both = int_product(torch.cat([limb.hi, limb.lo]), codes)
    center = 256 * both[:m] + both[m:]
    # G columns: too narrow for an int8 product to pay
    spread = limb.group_codes.double() @ copy.residual_codes[rows].double().T
    spread += limb.tail_codes.double()[:, None] * copy.norm_codes[rows].double()[None, :]
    shift = limb.group_shift - spec.residual_shift(copy.group)
    return center, spread * power_of_two(shift)[:, None] + 1


def ends(copy: QuantizedHead, rows: slice, limb: LimbTensors) -> tuple[torch.Tensor, torch.Tensor]:
    """The interval's ends, float32 [M, rows]."""
    center, width = integers(copy, rows, limb)
    factor = copy.scale[rows].double()[None, :] * power_of_two(limb.unit_exp)[:, None]
    return lower_end(factor, center - width), upper_end(factor, center + width)


def lower_end(factor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """RD32(factor · RD32(value)); the product of two FP32 values is exact in float64."""
    return fp32_down(fp32_down(value).double() * factor)


def upper_end(factor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """RU32(factor · RU32(value))."""
    return fp32_up(fp32_up(value).double() * factor)


def screen(copy: QuantizedHead, limb: LimbTensors, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Stage `screen`, summarised: best lower end [M] and largest upper end of each block [M, blocks].

    Both float32.
    """
    rows = copy.codes.shape[0]
    step = block * max(1, SCREEN_ELEMENTS // (block * limb.hi.shape[0]))
    best, tops = [], []
    for start in range(0, rows, step):
        lo, hi = ends(copy, slice(start, min(start + step, rows)), limb)
        best.append(lo.amax(dim=1))
        padding = (-hi.shape[1]) % block
        hi = torch.nn.functional.pad(hi, (0, padding), value=-torch.inf)
        tops.append(hi.view(hi.shape[0], -1, block).amax(dim=2))
    return torch.stack(best, dim=1).amax(dim=1), torch.cat(tops, dim=1)


def select(
    best: torch.Tensor, tops: torch.Tensor, reasons: torch.Tensor, capacity: int
) -> tuple[torch.Tensor, Pairs, torch.Tensor]:
    """Stage `select`: thresholds bfloat16 [M], pairs to rescore, and reasons with overflow marked."""
    threshold = best.to(torch.bfloat16)
    kept = (tops.to(torch.bfloat16) >= threshold[:, None]) & (reasons == Reason.NONE)[:, None]
    overflow = kept.sum(dim=1) > capacity
    reasons = torch.where(overflow, torch.full_like(reasons, Reason.OVERFLOW), reasons)
    position, block = (kept & ~overflow[:, None]).nonzero(as_tuple=True)
    return threshold, Pairs(position, block), reasons


def rows_of(pairs: Pairs, block: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row indices [P, block], clamped to the head, and which of them exist."""
    index = pairs.block[:, None] * block + torch.arange(block, device=pairs.block.device)
    return index.clamp_max(rows - 1), index < rows


def candidates(
    copy: QuantizedHead, limb: LimbTensors, threshold: torch.Tensor, pairs: Pairs, block: int
) -> torch.Tensor:
    """Rows of the pairs' blocks whose rounded upper end reaches the threshold: bool [P, block]."""
    index, exists = rows_of(pairs, block, copy.codes.shape[0])
    p = pairs.position
    t = (256 * limb.hi.double() + limb.lo.double())[p]
    center = torch.einsum("pbk,pk->pb", copy.codes[index].double(), t)
    spread = torch.einsum("pbg,pg->pb", copy.residual_codes[index].double(), limb.group_codes[p].double())
    spread += copy.norm_codes[index].double() * limb.tail_codes[p].double()[:, None]
    shift = limb.group_shift[p] - spec.residual_shift(copy.group)
    width = spread * power_of_two(shift)[:, None] + 1
    factor = copy.scale[index].double() * power_of_two(limb.unit_exp[p])[:, None]
    hi = upper_end(factor, center + width)
    return (hi.to(torch.bfloat16) >= threshold[p][:, None]) & exists


def fold(x: torch.Tensor) -> torch.Tensor:
    """FP64 halving sum along the last axis, in the order of docs/spec.md."""
    columns = x.shape[-1]
    x = torch.nn.functional.pad(x, (0, (1 << (columns - 1).bit_length()) - columns))
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]


def rescore_enclosed(
    hidden: torch.Tensor, rows: torch.Tensor, gamma_num: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Stage `rescore`, enclosed mode: float32 ends [P, R] for hidden [P, K] and rows [P, R, K]."""
    products = rows.double() * hidden.double()[:, None, :]
    z, mass = fold(products), fold(products.abs())
    factor = gamma_num * 2.0**-spec.GAMMA_BITS + float(spec.RESCORE_SLACK)
    radius = mass * factor + 2.0**spec.RADIUS_FLOOR_EXP
    return fp32_down(z - radius), fp32_up(z + radius)


def rescore(
    weight: torch.Tensor,
    hidden: torch.Tensor,
    pairs: Pairs,
    block: int,
    *,
    gamma_num: int,
    exact: Rescorer | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Stage `rescore`: (lo, hi) bfloat16-rounded [P, block], row indices, and which rows exist.

    With `exact` both ends are the stock accumulator's rounding.
    """
    index, exists = rows_of(pairs, block, weight.shape[0])
    step = max(1, RESCORE_ELEMENTS // (block * weight.shape[1]))
    lows, highs = [], []
    for start in range(0, len(index), step):
        part = slice(start, start + step)
        h, rows = hidden[pairs.position[part]], weight[index[part]]
        if exact is not None:
            lo = hi = exact(h, rows)
        else:
            lo, hi = rescore_enclosed(h, rows, gamma_num)
        lows.append(lo.to(torch.bfloat16))
        highs.append(hi.to(torch.bfloat16))
    empty = torch.empty((0, block), dtype=torch.bfloat16, device=weight.device)
    return torch.cat([empty, *lows]), torch.cat([empty, *highs]), index, exists


def decide(
    lo: torch.Tensor,
    hi: torch.Tensor,
    index: torch.Tensor,
    exists: torch.Tensor,
    pairs: Pairs,
    positions: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Stage `decide`: token int64 [M] (V where nothing was rescored) and whether it is fixed, bool [M].

    In exact mode lo equals hi, and the interval condition reduces to the first index of the maximum.
    """
    device = lo.device
    lo, hi = lo.float() + 0.0, hi.float() + 0.0  # −0 + 0 is +0
    low = torch.where(exists, lo, -torch.inf)
    by_position = pairs.position[:, None].expand_as(low).flatten()
    best = torch.full((positions,), -torch.inf, device=device)
    best = best.scatter_reduce(0, by_position, low.flatten(), "amax")
    attains = exists & (low == best[pairs.position][:, None])
    none = torch.iinfo(torch.int64).max
    token = torch.full((positions,), none, dtype=torch.int64, device=device)
    token = token.scatter_reduce(0, by_position, torch.where(attains, index, none).flatten(), "amin")
    chosen, level = token[pairs.position][:, None], best[pairs.position][:, None]
    contests = exists & (((index < chosen) & (hi >= level)) | ((index > chosen) & (hi > level)))
    contested = torch.zeros(positions, dtype=torch.int64, device=device)
    contested = contested.scatter_add(0, by_position, contests.flatten().to(torch.int64))
    return token, (contested == 0) & (token != none)
