"""The certified head in exact arithmetic: the specification that every kernel is compared with.

One function per stage of docs/spec.md, on integers and exact rationals only. Bit patterns come in
and go out as plain integers (BF16 in 16 bits, FP32 in 32 bits). Nothing here is fast, and nothing
is a float: `kernels/` holds the fast versions, tested equal to these bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from math import isqrt

from .codec import decode, decode_dyadic
from .formats import BF16, FP32, FP64
from .models import ErrorModel
from .rounding import RoundingMode, round_to, round_to_bits

SCALE_MIN_EXP = -50  # s·2^x ≥ 2^-90 > η for every row and position
UNIT_MIN_EXP = -40
RANGE_EXP = 16  # |w|, |h| < 2^16: underflow costs at most η and no accumulator overflows
ETA_EXP = -91  # η
RADIUS_FLOOR_EXP = -90  # twice η: FP64 adds a tiny γ·a to η itself without effect
UNIT_BITS = {1: 6, 2: 13}  # by limb count: |t| ≤ 127 fits one int8, |t| ≤ 16320 fits two
RESIDUAL_BITS = 8  # r_code counts 2^-8 of a unit
GAMMA_BITS = 40  # γ enters as gamma_num/2^40
K_MAX = 1 << 15
INT32_LIMIT = 1 << 31
BLOCK = 16
CAPACITY = 64
RESCORE_SLACK = Fraction(1, 1 << 45)  # > (24 + 4)·2^-53·2: the fold's own rounding for K ≤ 2^15


class Mode(Enum):
    """How candidates are rescored."""

    EXACT = "exact"
    ENCLOSED = "enclosed"


@dataclass(frozen=True)
class QuantizedRow:
    """One row of the int8 copy."""

    scale: Fraction
    codes: tuple[int, ...]
    residual_codes: tuple[int, ...]
    norm_code: int


@dataclass(frozen=True)
class Limbs:
    """One position's integer form. `unit_exp` is x; the other names are those of docs/spec.md."""

    unit_exp: int
    hi: tuple[int, ...]
    lo: tuple[int, ...]
    group_shift: int
    group_codes: tuple[int, ...]
    tail_code: int


@dataclass(frozen=True)
class Screened:
    """One row at one position: the integers and the interval's ends as FP32 bits."""

    center: int
    spread: int
    width: int
    lo_bits: int
    hi_bits: int


@dataclass(frozen=True)
class Selection:
    """The rows that can still win. `blocks` is None on overflow."""

    threshold: Fraction
    candidates: tuple[int, ...]
    blocks: tuple[int, ...] | None


@dataclass(frozen=True)
class Certificate:
    """What `certify` found: `token` is None exactly when `state` is "fallback"."""

    token: int | None
    state: str
    reason: str | None
    candidates: int
    blocks: int


def ceil_sqrt(n: int) -> int:
    """The smallest r ≥ 0 with r² ≥ n, for n ≥ 0."""
    return 0 if n <= 0 else isqrt(n - 1) + 1


def ceil_div(a: int, b: int) -> int:
    """⌈a/b⌉ for b > 0."""
    return -(-a // b)


def nearest_even(x: Fraction) -> int:
    """The nearest integer, ties to even."""
    return round(x)


def groups(columns: int, group: int) -> list[range]:
    """The column ranges of the groups; the last may be shorter."""
    return [range(start, min(start + group, columns)) for start in range(0, columns, group)]


def default_group(columns: int) -> int:
    """The smallest multiple of 16 whose metadata, G + 3 bytes a row, is under 1 % of the codes.

    At most `columns`: below some 400 columns even one group costs more.
    """
    for group in range(16, columns, 16):
        if 100 * (ceil_div(columns, group) + 3) < columns:
            return group
    return columns


def residual_shift(group: int) -> int:
    """ρ: the finest power of two with 2^ρ·½√group ≤ 127, so that residual codes fit 7 bits."""
    shift = 0
    while 4 ** (shift + 1) * group <= 254 * 254:
        shift += 1
    return shift


def norm_shift(columns: int) -> int:
    """ν: the smallest ν ≥ 0 with 127·√K ≤ 255·2^ν, so that norm codes fit 8 bits."""
    shift = 0
    while 127 * 127 * columns > 255 * 255 * 4**shift:
        shift += 1
    return shift


def _values(bits: Sequence[int]) -> list[Fraction]:
    """Finite BF16 bits as exact rationals; ValueError names the first that is not finite."""
    out = []
    for k, b in enumerate(bits):
        if b & 0x7F80 == 0x7F80:
            raise ValueError(f"element {k} is not finite: BF16 bits 0x{b:04x}")
        m, e = decode_dyadic(b, BF16)
        out.append(Fraction(m) * Fraction(2) ** e)
    return out


def _sum_squares(values: Sequence[Fraction], columns: range) -> Fraction:
    return sum((values[k] * values[k] for k in columns), Fraction(0))


def _finite(bits: int) -> Fraction:
    value = decode(bits, FP32)
    if isinstance(value, float):
        if value == 0:
            return Fraction(0)
        raise ValueError(f"not finite: FP32 bits 0x{bits:08x}")
    return value


def bf16_of(value: Fraction) -> Fraction:
    """RNE to BF16 as a comparable number: a zero of either sign is 0."""
    rounded = round_to(value, BF16, RoundingMode.RNE)
    return Fraction(0) if rounded == 0 else Fraction(rounded)


def quantize_row(row_bits: Sequence[int], group: int) -> QuantizedRow:
    """Stage `quantize` for one row. Raises ValueError on a non-finite or out-of-range weight."""
    w = _values(row_bits)
    largest = max((abs(x) for x in w), default=Fraction(0))
    if largest >= Fraction(2) ** RANGE_EXP:
        raise ValueError(f"weight magnitude {float(largest)} is not below 2^{RANGE_EXP}")
    scale = Fraction(2) ** SCALE_MIN_EXP
    if largest > 127 * scale:
        scale = Fraction(round_to(largest / 127, BF16, RoundingMode.RU))
    codes = tuple(nearest_even(x / scale) for x in w)
    residual = [x - scale * q for x, q in zip(w, codes, strict=True)]
    square = scale * scale
    rho, nu = residual_shift(group), norm_shift(len(w))
    return QuantizedRow(
        scale=scale,
        codes=codes,
        residual_codes=tuple(
            ceil_sqrt(-((-(4**rho) * _sum_squares(residual, g)) // square)) for g in groups(len(w), group)
        ),
        norm_code=ceil_sqrt(-(-_sum_squares(w, range(len(w))) // (square * 4**nu))),
    )


def code_norm_bound(norm_codes: Sequence[int], columns: int) -> int:
    """Q: no row of codes has a larger Euclidean norm, since ‖q‖ ≤ ‖w‖/s + ‖e‖/s."""
    return 2 ** norm_shift(columns) * max(norm_codes) + ceil_sqrt(ceil_div(columns, 4))


def range_reason(hidden_bits: Sequence[int]) -> str | None:
    """Why a position cannot be certified whatever the weights: "nonfinite", "refused" or None."""
    if any(b & 0x7F80 == 0x7F80 for b in hidden_bits):
        return "nonfinite"
    if any(abs(x) >= Fraction(2) ** RANGE_EXP for x in _values(hidden_bits)):
        return "refused"
    return None


def limbs(
    hidden_bits: Sequence[int], group: int, gamma_num: int, code_norm: int, limb_count: int = 2
) -> Limbs | None:
    """Stage `limbs` for one position, or None where the sums might leave int32 (`refused`).

    `gamma_num/2^40` bounds the stock model's γ from above, `code_norm` the norm of every row's codes.
    Raises ValueError on non-finite input.
    """
    h = _values(hidden_bits)
    columns = len(h)
    largest = max((abs(x) for x in h), default=Fraction(0))
    x = UNIT_MIN_EXP
    if largest:
        exponent = largest.numerator.bit_length() - largest.denominator.bit_length()
        if Fraction(2) ** exponent > largest:
            exponent -= 1
        x = max(exponent - UNIT_BITS[limb_count], UNIT_MIN_EXP)
    unit = Fraction(2) ** x
    t = [nearest_even(v / unit) for v in h]
    if limb_count == 1:
        t = [max(-127, min(127, n)) for n in t]
    r = [ceil_div_fraction(abs(v - unit * n) * 2**RESIDUAL_BITS, unit) for v, n in zip(h, t, strict=True)]
    hi = tuple((n + 128) // 256 if limb_count == 2 else 0 for n in t)
    rho, nu = residual_shift(group), norm_shift(columns)
    norms = [ceil_sqrt(sum(t[k] * t[k] for k in g)) for g in groups(columns, group)]
    tau = rho
    while any(ceil_div(n, 2**tau) > 127 for n in norms):
        tau += 1
    group_codes = tuple(ceil_div(n, 2**tau) for n in norms)
    tail = Fraction(ceil_sqrt(sum(c * c for c in r)), 2**RESIDUAL_BITS)
    whole = ceil_sqrt(sum(n * n for n in t))
    gamma = Fraction(gamma_num, 2**GAMMA_BITS)
    tail_code = ceil_div_fraction((tail + gamma * (whole + tail)) * 2**nu, Fraction(2 ** (tau - rho)))
    widest = 2 ** (tau - rho) * (127 * sum(group_codes) + 255 * tail_code) + 1
    if code_norm * whole + widest >= INT32_LIMIT:
        return None
    return Limbs(
        unit_exp=x,
        hi=hi,
        lo=tuple(n - 256 * a for n, a in zip(t, hi, strict=True)),
        group_shift=tau,
        group_codes=group_codes,
        tail_code=tail_code,
    )


def ceil_div_fraction(a: Fraction, b: Fraction) -> int:
    """⌈a/b⌉ for rationals, b > 0."""
    return -int(-a // b)


def screen(row: QuantizedRow, position: Limbs, group: int) -> Screened:
    """Stage `screen`: the interval around the stock accumulator of one row at one position."""
    center = sum(q * (256 * a + b) for q, a, b in zip(row.codes, position.hi, position.lo, strict=True))
    spread = sum(e * h for e, h in zip(row.residual_codes, position.group_codes, strict=True))
    spread += row.norm_code * position.tail_code
    width = 2 ** (position.group_shift - residual_shift(group)) * spread + 1
    factor = row.scale * Fraction(2) ** position.unit_exp
    return Screened(
        center=center,
        spread=spread,
        width=width,
        lo_bits=_scaled_end(factor, center - width, RoundingMode.RD),
        hi_bits=_scaled_end(factor, center + width, RoundingMode.RU),
    )


def _scaled_end(factor: Fraction, end: int, mode: RoundingMode) -> int:
    return round_to_bits(factor * Fraction(round_to(end, FP32, mode)), FP32, mode)


def select(screened: Sequence[Screened], *, block: int = BLOCK, capacity: int = CAPACITY) -> Selection:
    """Stage `select`: blocks that hold a row whose rounded upper end reaches the threshold."""
    threshold = bf16_of(max(_finite(s.lo_bits) for s in screened))
    candidates = tuple(i for i, s in enumerate(screened) if bf16_of(_finite(s.hi_bits)) >= threshold)
    blocks = tuple(dict.fromkeys(i // block for i in candidates))
    return Selection(threshold, candidates, blocks if len(blocks) <= capacity else None)


def rows_of(blocks: Sequence[int], rows: int, block: int = BLOCK) -> list[int]:
    """The row indices of the blocks, ascending; the last block may be short."""
    return [i for b in blocks for i in range(b * block, min((b + 1) * block, rows))]


def fold(values: Sequence[Fraction]) -> Fraction:
    """FP64 halving sum: pad with +0 to a power of two, then x[:n/2] + x[n/2:] until one is left."""
    level = list(values) or [Fraction(0)]
    level += [Fraction(0)] * ((1 << (len(level) - 1).bit_length()) - len(level))
    while len(level) > 1:
        half = len(level) // 2
        level = [_rne64(level[i] + level[half + i]) for i in range(half)]
    return level[0]


def _rne64(x: Fraction) -> Fraction:
    return Fraction(round_to(x, FP64, RoundingMode.RNE))


def rescore_enclosed(row_bits: Sequence[int], hidden_bits: Sequence[int], gamma: Fraction) -> tuple[int, int]:
    """Stage `rescore`, enclosed mode: FP32 bits of an interval that holds the stock accumulator."""
    products = [a * b for a, b in zip(_values(row_bits), _values(hidden_bits), strict=True)]
    z, mass = fold(products), fold([abs(p) for p in products])
    radius = _rne64(_rne64(mass * (gamma + RESCORE_SLACK)) + Fraction(2) ** RADIUS_FLOOR_EXP)
    return (
        round_to_bits(_rne64(z - radius), FP32, RoundingMode.RD),
        round_to_bits(_rne64(z + radius), FP32, RoundingMode.RU),
    )


def first_max(values: Sequence[Fraction]) -> int:
    """The smallest index of the largest value."""
    best = 0
    for i, v in enumerate(values):
        if v > values[best]:
            best = i
    return best


def decide_exact(rows: Sequence[int], accumulator_bits: Sequence[int]) -> int:
    """Stage `decide`, exact mode: the first row of the largest BF16-rounded accumulator."""
    return rows[first_max([bf16_of(_finite(b)) for b in accumulator_bits])]


def decide_enclosed(rows: Sequence[int], ends: Sequence[tuple[int, int]]) -> int | None:
    """Stage `decide`, enclosed mode: the row that the interval condition fixes, or None."""
    low = [bf16_of(_finite(lo)) for lo, _ in ends]
    k = first_max(low)
    for j, (_, hi) in enumerate(ends):
        top = bf16_of(_finite(hi))
        if (j < k and top >= low[k]) or (j > k and top > low[k]):
            return None
    return rows[k]


Accumulator = Callable[[Sequence[int], Sequence[int]], int]
"""The stock kernel's sum: (hidden bits, row bits) → FP32 bits."""


def stock_token(weight_bits: Sequence[Sequence[int]], hidden_bits: Sequence[int], kernel: Accumulator) -> int:
    """The contract: first index of the largest BF16-rounded accumulator, over all rows."""
    return first_max([bf16_of(_finite(kernel(hidden_bits, row))) for row in weight_bits])


def certify(
    weight_bits: Sequence[Sequence[int]],
    hidden_bits: Sequence[int],
    model: ErrorModel,
    *,
    kernel: Accumulator | None = None,
    quantized: Sequence[QuantizedRow] | None = None,
    group: int | None = None,
    block: int = BLOCK,
    capacity: int = CAPACITY,
    limb_count: int = 2,
) -> Certificate:
    """All stages for one position.

    weight_bits: V rows of K BF16 patterns. hidden_bits: K BF16 patterns. model: the error model that
    the stock kernel is taken to satisfy. kernel: the identified stock arithmetic, which selects exact
    mode; None selects enclosed mode. quantized: the rows' codes, if already built with this group.
    Raises ValueError for empty or ragged input and for weights outside the range.
    """
    columns = len(hidden_bits)
    if not weight_bits or not columns:
        raise ValueError(f"the head needs V ≥ 1 and K ≥ 1, not V={len(weight_bits)}, K={columns}")
    if columns > K_MAX:
        raise ValueError(f"K={columns} exceeds {K_MAX}")
    for i, row in enumerate(weight_bits):
        if len(row) != columns:
            raise ValueError(f"row {i} has {len(row)} columns, the state has {columns}")
    group = min(group or default_group(columns), columns)
    rows = quantized or [quantize_row(row, group) for row in weight_bits]
    reason = range_reason(hidden_bits)
    norm = code_norm_bound([row.norm_code for row in rows], columns)
    gamma_num = model.gamma_num(columns)
    position = None if reason else limbs(hidden_bits, group, gamma_num, norm, limb_count)
    if position is None:
        return Certificate(None, "fallback", reason or "refused", 0, 0)
    chosen = select([screen(row, position, group) for row in rows], block=block, capacity=capacity)
    if chosen.blocks is None:
        return Certificate(None, "fallback", "overflow", len(chosen.candidates), 0)
    counts = (len(chosen.candidates), len(chosen.blocks))
    indices = rows_of(chosen.blocks, len(rows), block)
    if kernel is not None:
        bits = [kernel(hidden_bits, weight_bits[i]) for i in indices]
        return Certificate(decide_exact(indices, bits), "exact", None, *counts)
    gamma = Fraction(gamma_num, 2**GAMMA_BITS)
    token = decide_enclosed(indices, [rescore_enclosed(weight_bits[i], hidden_bits, gamma) for i in indices])
    if token is None:
        return Certificate(None, "fallback", "ambiguous", *counts)
    return Certificate(token, "enclosed", None, *counts)
