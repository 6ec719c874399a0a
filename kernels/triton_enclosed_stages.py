"""The enclosed re-score and decide as a Triton kernel, for heads whose stock arithmetic is not identified.

One launch after `select_kernel`. Every FP64 operation is the one that docs/spec.md names, in its order, so
the ends are the same bits as pyref's; the decision is made of order-free maxima. Products of two BF16 values
are exact in FP64: a compiler that fuses one into the sum that follows changes no bit. The radius is the one
product that is rounded, and `_product` keeps it apart from its sum.
"""

from __future__ import annotations

import triton
import triton.language as tl

from .triton_stages import _fp32_down, _fp32_up, _ordered, _round_bf16

OVERFLOW = tl.constexpr(3)
AMBIGUOUS = tl.constexpr(4)
NO_KEY = tl.constexpr(-9223372036854775807)
GAMMA_UNIT = tl.constexpr(2.0**-40)
SLACK = tl.constexpr(2.0**-45)
RADIUS_FLOOR = tl.constexpr(2.0**-90)


@triton.jit
def _product(a, b, SOFTWARE: tl.constexpr):
    """RNE64(a·b), which no compiler may fuse with an addition."""
    if SOFTWARE:
        return a * b
    return tl.inline_asm_elementwise(
        "mul.rn.f64 $0, $1, $2;", "=d,d,d", [a, b], tl.float64, is_pure=True, pack=1
    )


@triton.jit
def _fp64(x):
    """BF16 → FP64, through the bits: the interpreter's own cast loses subnormals (Triton 3.9.0)."""
    bits = x.to(tl.uint16, bitcast=True).to(tl.uint32) << 16
    return bits.to(tl.float32, bitcast=True).to(tl.float64)


@triton.jit
def _fold_chunks(
    w_ptr,  # bf16 [ROWS, CHUNK]: the rows' first chunk
    h_ptr,  # bf16 [ROWS, CHUNK]: the state's first chunk, once a row
    K: tl.constexpr,
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,
    FIRST: tl.constexpr,
    STRIDE: tl.constexpr,
):
    """(fold(p), fold(|p|)) over the chunks FIRST, FIRST + STRIDE, … below CHUNKS: float64 [ROWS, CHUNK].

    The halving order pairs the top bit of an index first, so its last addition joins the even and the odd
    members. One compiled instance per (FIRST, STRIDE), all of them inlined: the call ends at compile time.
    """
    if STRIDE == CHUNKS:
        if (FIRST + 1) * CHUNK <= K:
            w = tl.load(w_ptr + FIRST * CHUNK)
            h = tl.load(h_ptr + FIRST * CHUNK)
        else:
            inside = (FIRST * CHUNK + tl.arange(0, CHUNK))[None, :] < K
            w = tl.load(w_ptr + FIRST * CHUNK, mask=inside, other=0.0)
            h = tl.load(h_ptr + FIRST * CHUNK, mask=inside, other=0.0)
        p = _fp64(w) * _fp64(h)
        return p, tl.abs(p)
    else:
        z, a = _fold_chunks(w_ptr, h_ptr, K, CHUNK, CHUNKS, FIRST, 2 * STRIDE)
        # chunks beyond K add zeros: at most the sign of a zero would change, and the radius is never 0
        if (FIRST + STRIDE) * CHUNK < K:
            odd_z, odd_a = _fold_chunks(w_ptr, h_ptr, K, CHUNK, CHUNKS, FIRST + STRIDE, 2 * STRIDE)
            z += odd_z
            a += odd_a
        return z, a


@triton.jit
def _fold_columns(x, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The halving sum along the columns of float64 [ROWS, COLUMNS]: [ROWS]."""
    if COLUMNS == 1:
        return tl.reshape(x, (ROWS,))
    else:
        # a sum of two is one addition, in either order
        halves = tl.reshape(x, (ROWS, 2, COLUMNS // 2))
        return _fold_columns(tl.sum(halves, axis=1), ROWS, COLUMNS // 2)


@triton.jit
def _key(end, rows, row_ok):
    """int64 that sorts by RNE_BF16(end), then by lower row: the greater key wins a comparison."""
    order = _ordered(_round_bf16(end)).to(tl.int64)
    return tl.where(row_ok, (order << 32) | (4294967295 - rows.to(tl.int64)), NO_KEY)


@triton.jit(do_not_specialize=["V", "M", "gamma_num", "capacity"])
def enclose_kernel(
    weight,  # bf16 [V, K]
    hidden,  # bf16 [M, K]
    work,  # int32: position·2^24 + block
    work_size,  # int32 [1]
    counts,  # int32 [M]: blocks kept
    reasons,  # uint8 [M] in and out
    arrivals,  # int32 [1]: programs finished; 0 between launches
    leader,  # int64 [M]: largest key of a lower end; NO_KEY between launches, as the next two
    highest,  # int64 [M]: largest key of an upper end
    second,  # int64 [M]: largest key of an upper end but that one
    tokens,  # int64 [M] out: the leader, −1 where nothing was re-scored
    undecided,  # int32 [1] out: positions with a reason
    totals,  # int64 [8]: positions so far by reason
    lower_ends,  # float32 [M, V] out, only with DIAGNOSTIC
    upper_ends,
    V,
    M,
    gamma_num,
    capacity,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,  # rows at a time; divides BLOCK
    CHUNK: tl.constexpr,
    CHUNKS: tl.constexpr,  # CHUNK·CHUNKS is the power of two that K is padded to
    M_PAD: tl.constexpr,
    DIAGNOSTIC: tl.constexpr,
    SOFTWARE: tl.constexpr,
):
    """Stages rescore and decide, enclosed mode: the work list's rows, ROWS at a time.

    The leader k is the row with the largest key of L⁻. A row j ≠ k contests it exactly if the key of
    L⁺[j] exceeds the key of L⁻[k]: L⁺ above the level, or equal to it and j before k. So the two largest
    keys of L⁺ decide: k's own is at least its key of L⁻, thus no row contests k exactly if the largest is
    k's and the next does not exceed k's key of L⁻. A value that leaves `highest`, or never gets there, is
    offered to `second` by the program that saw it, in whatever order the programs come. The last of them
    settles every position.
    """
    PARTS: tl.constexpr = BLOCK // ROWS
    factor = gamma_num.to(tl.float64) * GAMMA_UNIT + SLACK  # exact
    size = tl.load(work_size) * PARTS
    unit = tl.program_id(0)
    while unit < size:
        packed = tl.load(work + unit // PARTS)
        m = ((packed >> 24) & 255).to(tl.int64)
        if (tl.load(counts + m) <= capacity) & (tl.load(reasons + m) == 0):
            rows = (packed & 16777215) * BLOCK + (unit % PARTS) * ROWS + tl.arange(0, ROWS)
            row_ok = rows < V
            safe = tl.where(row_ok, rows, V - 1).to(tl.int64)
            k = tl.arange(0, CHUNK)[None, :]
            w_ptr = weight + safe[:, None] * K + k
            # as large as w's tile: both then have one layout, and nothing is exchanged before the sum
            h_ptr = hidden + m * K + k + tl.zeros((ROWS, 1), tl.int32)
            z, a = _fold_chunks(w_ptr, h_ptr, K, CHUNK, CHUNKS, 0, 1)
            z = _fold_columns(z, ROWS, CHUNK)
            radius = _product(_fold_columns(a, ROWS, CHUNK), factor, SOFTWARE) + RADIUS_FLOOR
            # radius ≥ 2^−90: an end is zero or above 2^−149 in magnitude, so none rounds to −0
            lower = _fp32_down(z - radius)
            upper = _fp32_up(z + radius)
            if DIAGNOSTIC:
                tl.store(lower_ends + m * V + rows, lower, mask=row_ok)
                tl.store(upper_ends + m * V + rows, upper, mask=row_ok)
            tl.atomic_max(leader + m, tl.max(_key(lower, rows, row_ok), axis=0), sem="relaxed")
            upper_key = _key(upper, rows, row_ok)
            top = tl.max(upper_key, axis=0)
            next_key = tl.max(tl.where(upper_key == top, NO_KEY, upper_key), axis=0)
            old = tl.atomic_max(highest + m, top, sem="relaxed")
            tl.atomic_max(second + m, tl.maximum(next_key, tl.minimum(old, top)), sem="relaxed")
        unit += tl.num_programs(0)
    if tl.atomic_add(arrivals, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        m = tl.arange(0, M_PAD)
        inside = m < M
        key = tl.load(leader + m, mask=inside, other=NO_KEY, cache_modifier=".cg")
        high = tl.load(highest + m, mask=inside, other=NO_KEY, cache_modifier=".cg")
        runner_up = tl.load(second + m, mask=inside, other=NO_KEY, cache_modifier=".cg")
        nothing = key == NO_KEY
        contested = nothing | ((high & 4294967295) != (key & 4294967295)) | (runner_up > key)
        tl.store(tokens + m, tl.where(nothing, -1, 4294967295 - (key & 4294967295)), mask=inside)
        reason = tl.load(reasons + m, mask=inside, other=0).to(tl.int32)
        found = tl.where(tl.load(counts + m, mask=inside, other=0) > capacity, OVERFLOW, 0)
        found = tl.where((found == 0) & contested, AMBIGUOUS, found)
        reason = tl.where(reason == 0, found, reason)
        tl.store(reasons + m, reason.to(tl.uint8), mask=inside)
        r = tl.arange(0, 8)
        n = tl.sum(tl.where(inside[:, None] & (reason[:, None] == r[None, :]), 1, 0), axis=0)
        tl.store(totals + r, tl.load(totals + r) + n)
        tl.store(undecided, tl.sum(tl.where(r != 0, n, 0), axis=0))
        # after sums over all positions, so after every load above
        reset = tl.full((M_PAD,), NO_KEY, tl.int64)
        tl.store(leader + m, reset, mask=inside)
        tl.store(highest + m, reset, mask=inside)
        tl.store(second + m, reset, mask=inside)
        tl.store(arrivals, 0)
