"""The stages as Triton kernels: back end `cuda`, and `interpret` (the same source on a CPU).

One kernel per launch of the pipeline; each names the stages of docs/spec.md that it computes. No kernel
writes V×M numbers, none needs the host between launches, and every output is the same bits as pyref's:
integer sums are exact, ends are exact FP64 products with one directed conversion, maxima are
order-free, and the re-score repeats the identified tensor-core chain.
"""

from __future__ import annotations

import triton
import triton.language as tl

NONFINITE = tl.constexpr(1)
REFUSED = tl.constexpr(2)
CHECKSUM = tl.constexpr(6)


@triton.jit
def _ordered(x):
    """FP32 → int32 that sorts as the value does; both zeros give 0."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return tl.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


@triton.jit
def _from_ordered(key):
    bits = tl.where(key < 0, (-key) | -2147483648, key)
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def _fp32_up(x):
    """float64 → float32 toward +∞, finite results."""
    y = x.to(tl.float32)
    key = _ordered(y)
    return _from_ordered(tl.where(y.to(tl.float64) < x, key + 1, key))


@triton.jit
def _fp32_down(x):
    """float64 → float32 toward −∞, finite results."""
    y = x.to(tl.float32)
    key = _ordered(y)
    return _from_ordered(tl.where(y.to(tl.float64) > x, key - 1, key))


@triton.jit
def _upper_end(factor, end, SOFTWARE: tl.constexpr):
    """RU32(factor · RU32(end)) for int32 end and float32 factor."""
    if SOFTWARE:
        return _fp32_up(_fp32_up(end.to(tl.float64)).to(tl.float64) * factor.to(tl.float64))
    up = tl.inline_asm_elementwise("cvt.rp.f32.s32 $0, $1;", "=f,r", [end], tl.float32, is_pure=True, pack=1)
    return tl.inline_asm_elementwise(
        "mul.rp.f32 $0, $1, $2;", "=f,f,f", [up, factor], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _lower_end(factor, end, SOFTWARE: tl.constexpr):
    """RD32(factor · RD32(end)) for int32 end and float32 factor."""
    if SOFTWARE:
        return _fp32_down(_fp32_down(end.to(tl.float64)).to(tl.float64) * factor.to(tl.float64))
    down = tl.inline_asm_elementwise(
        "cvt.rm.f32.s32 $0, $1;", "=f,r", [end], tl.float32, is_pure=True, pack=1
    )
    return tl.inline_asm_elementwise(
        "mul.rm.f32 $0, $1, $2;", "=f,f,f", [down, factor], tl.float32, is_pure=True, pack=1
    )


@triton.jit
def _round_bf16(x):
    """RNE to BF16, kept as FP32; NaN stays NaN only if its payload survives, so callers test for it."""
    bits = x.to(tl.int32, bitcast=True)
    bits = bits + 0x7FFF + ((bits >> 16) & 1)
    return (bits & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _power_of_two(exponent):
    return ((exponent.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)


@triton.jit
def _ceil_sqrt(n):
    """Smallest r with r² ≥ n for exact float64 0 ≤ n < 2^52, as int64."""
    m = n.to(tl.int64)
    r = tl.sqrt(n).to(tl.int64)
    r = tl.where((r > 0) & ((r - 1) * (r - 1) >= m), r - 1, r)
    return tl.where(r * r < m, r + 1, r)


@triton.jit
def limbs_kernel(
    hidden,  # bf16 [M, K]
    hi,  # int8 [M, K] out, two limbs only
    lo,  # int8 [M, K] out
    group_codes,  # int8 [M, G_PAD] out; columns from G on are zero
    tail_codes,  # int32 [M] out
    shift,  # int32 [M] out: τ − ρ
    unit,  # float32 [M] out: 2^x
    reasons,  # uint8 [M] out
    best,  # int32 [M] out: ordered best lower end, reset
    winner,  # int64 [M] out: packed best candidate, reset
    counts,  # int32 [M] out: blocks rescored, reset
    work_size,  # int32 [1] out: reset
    arrivals,  # int32 [1] out: reset
    digests,  # int32 [M] out: checksum of the limbs
    gamma_num,
    code_norm,
    K: tl.constexpr,
    LIMBS: tl.constexpr,
    GROUP: tl.constexpr,
    GROUP_PAD: tl.constexpr,
    G_PAD: tl.constexpr,
    RHO: tl.constexpr,
    NU: tl.constexpr,
):
    """Stage limbs, one position per program; also resets what the later launches accumulate."""
    m = tl.program_id(0).to(tl.int64)
    g = tl.arange(0, G_PAD)[:, None]
    within = tl.arange(0, GROUP_PAD)[None, :]
    k = g * GROUP + within
    inside = (within < GROUP) & (k < K)
    h = tl.load(hidden + m * K + k, mask=inside, other=0.0).to(tl.float32)
    magnitude = tl.abs(h)
    finite = magnitude < float("inf")  # false for NaN too
    bad = tl.max(tl.max(tl.where(finite, 0, 1), axis=1), axis=0)
    largest = tl.max(tl.max(tl.where(finite, magnitude, 0.0), axis=1), axis=0)
    reason = tl.where(bad > 0, NONFINITE, tl.where(largest >= 65536.0, REFUSED, 0))
    h = tl.where(reason == 0, h, 0.0).to(tl.float64)
    UNIT_BITS: tl.constexpr = 13 if LIMBS == 2 else 6
    largest = tl.where(reason == 0, largest, 0.0).to(tl.float64)
    x = ((largest.to(tl.int64, bitcast=True) >> 52) - 1023 - UNIT_BITS).to(tl.int32)
    x = tl.maximum(x, -40)
    scaled = h * _power_of_two(-x)
    # |scaled| < 2^14, so adding 1.5·2^52 rounds to the nearest even integer
    t = (scaled + 6755399441055744.0) - 6755399441055744.0
    if LIMBS == 1:
        t = tl.minimum(tl.maximum(t, -127.0), 127.0)
    r = tl.abs(scaled - t) * 256.0
    r_whole = r.to(tl.int64).to(tl.float64)
    r_code = tl.where(r_whole < r, r_whole + 1.0, r_whole)
    ti = t.to(tl.int32)
    tl.store(digests + m, tl.sum(tl.sum(tl.where(inside, ti * (2 * k + 1), 0), axis=1), axis=0))
    if LIMBS == 2:
        a = (ti + 128) >> 8
        tl.store(hi + m * K + k, a.to(tl.int8), mask=inside)
        ti = ti - (a << 8)
    tl.store(lo + m * K + k, ti.to(tl.int8), mask=inside)
    squares = tl.sum(t * t, axis=1)  # exact: below 2^44
    norms = _ceil_sqrt(squares)
    peak = tl.max(norms, axis=0)
    tau = tl.zeros((), tl.int64) + RHO
    for step in tl.static_range(RHO, 32):
        tau += tl.where(((peak + (1 << step) - 1) >> step) > 127, 1, 0)
    codes = (norms + (1 << tau) - 1) >> tau
    columns = tl.arange(0, G_PAD)
    tl.store(group_codes + m * G_PAD + columns, codes.to(tl.int8))
    whole = _ceil_sqrt(tl.sum(squares, axis=0))
    tail = _ceil_sqrt(tl.sum(tl.sum(r_code * r_code, axis=1), axis=0))
    numerator = (tail << 40) + gamma_num * ((whole << 8) + tail)
    drop = 48 + tau - RHO - NU
    one = tl.full((), 1, tl.int64)
    y = (numerator + (one << drop) - 1) >> drop
    widest = ((127 * tl.sum(codes, axis=0) + 255 * y) << (tau - RHO)) + 1
    too_wide = code_norm * whole + widest >= 2147483648
    reason = tl.where((reason == 0) & too_wide, REFUSED, reason)
    tl.store(tail_codes + m, tl.where(too_wide, 0, y).to(tl.int32))
    tl.store(shift + m, (tau - RHO).to(tl.int32))
    tl.store(unit + m, _power_of_two(x).to(tl.float32))
    tl.store(reasons + m, reason.to(tl.uint8))
    tl.store(best + m, -2147483647)
    tl.store(winner + m, tl.full((), -9223372036854775807, tl.int64))
    tl.store(counts + m, 0)
    if m == 0:
        tl.store(work_size, 0)
        tl.store(arrivals, 0)


@triton.jit(do_not_specialize=["M"])
def screen_kernel(
    codes,  # int8 [V + checksum rows, K]
    scale,  # bf16 [V]
    residual_codes,  # int8 [V, G_STRIDE], columns from G on zero
    norm_codes,  # uint8 [V]
    hi,  # the limbs; buffers hold BM rows at least, whatever M
    lo,
    group_codes,
    tail_codes,
    shift,
    unit,
    best,  # int32 [M]: ordered best lower end
    tops,  # float32 [M, blocks]: largest upper end of each block
    lower_ends,  # float32 [M, V], only with DIAGNOSTIC
    upper_ends,
    observed,  # int32 [M, row tiles]: sum of the tile's rows, modulo 2^32
    expected,  # int32 [M, checksum rows]: what the checksum rows give
    V,
    n_checks,
    M,
    n_blocks,
    K: tl.constexpr,
    LIMBS: tl.constexpr,
    G_STRIDE: tl.constexpr,
    G_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    BV: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    CHECKSUM_ROWS: tl.constexpr,
    DIAGNOSTIC: tl.constexpr,
    SOFTWARE: tl.constexpr,
):
    """Stage screen and its block summary for BV rows and BM positions.

    With CHECKSUM_ROWS the last tiles take the checksum rows, whose integer product is the sum of the
    products of the rows that they sum up: `select_kernel` compares the two.
    """
    m_tiles = tl.cdiv(M, BM)
    row_tiles = tl.cdiv(V, BV)
    tile = tl.program_id(0) // m_tiles  # neighbours share the rows, so the copy is read from memory once
    m = (tl.program_id(0) % m_tiles) * BM + tl.arange(0, BM)
    m_ok = m < M
    first = tile * BV
    end = V
    if CHECKSUM_ROWS:
        first = tl.where(tile >= row_tiles, V + (tile - row_tiles) * BV, first)
        end = tl.where(tile >= row_tiles, V + n_checks, V)
    rows = first + tl.arange(0, BV)
    row_ok = rows < end
    safe_rows = tl.where(row_ok, rows, end - 1).to(tl.int64)
    k = tl.arange(0, BK)
    q_ptr = codes + safe_rows[:, None] * K + k[None, :]
    a_ptr = hi + m[None, :] * K + k[:, None]
    b_ptr = lo + m[None, :] * K + k[:, None]
    acc_a = tl.zeros((BV, BM), tl.int32)
    acc_b = tl.zeros((BV, BM), tl.int32)
    for start in range(0, K, BK):
        if K % BK == 0:
            q = tl.load(q_ptr)
            b = tl.load(b_ptr)
        else:
            q = tl.load(q_ptr, mask=(start + k)[None, :] < K, other=0)
            b = tl.load(b_ptr, mask=(start + k)[:, None] < K, other=0)
        if LIMBS == 2:
            if K % BK == 0:
                a = tl.load(a_ptr)
            else:
                a = tl.load(a_ptr, mask=(start + k)[:, None] < K, other=0)
            acc_a = tl.dot(q, a, acc_a, out_dtype=tl.int32)
        acc_b = tl.dot(q, b, acc_b, out_dtype=tl.int32)
        q_ptr += BK
        a_ptr += BK
        b_ptr += BK
    if LIMBS == 2:
        acc_b += acc_a * 256
    if CHECKSUM_ROWS:
        if tile >= row_tiles:
            check = m[None, :].to(tl.int64) * n_checks + (rows - V)[:, None]
            tl.store(expected + check, acc_b, mask=row_ok[:, None] & m_ok[None, :])
            return
        total = tl.sum(tl.where(row_ok[:, None], acc_b, 0), axis=0)
        tl.store(observed + m.to(tl.int64) * row_tiles + tile, total, mask=m_ok)
    g = tl.arange(0, G_PAD)
    e = tl.load(
        residual_codes + safe_rows[:, None] * G_STRIDE + g[None, :], mask=(g < G_STRIDE)[None, :], other=0
    )
    h = tl.load(group_codes + m[None, :] * G_PAD + g[:, None])
    width = tl.dot(e, h, out_dtype=tl.int32)
    x = tl.load(norm_codes + safe_rows).to(tl.int32)
    width += x[:, None] * tl.load(tail_codes + m)[None, :]
    width = (width << tl.load(shift + m)[None, :]) + 1
    factor = tl.load(scale + safe_rows).to(tl.float32)[:, None] * tl.load(unit + m)[None, :]
    upper = _upper_end(factor, acc_b + width, SOFTWARE)
    lower = _lower_end(factor, acc_b - width, SOFTWARE)
    if DIAGNOSTIC:
        where = m[None, :].to(tl.int64) * V + safe_rows[:, None]
        keep = row_ok[:, None] & m_ok[None, :]
        tl.store(lower_ends + where, lower, mask=keep)
        tl.store(upper_ends + where, upper, mask=keep)
    # rows past the end repeat the last one, which changes no maximum
    tl.atomic_max(best + m, _ordered(tl.max(lower, axis=0)), mask=m_ok, sem="relaxed")
    top = tl.max(tl.reshape(upper, (BV // BLOCK, BLOCK, BM)), axis=1)
    block = tile * (BV // BLOCK) + tl.arange(0, BV // BLOCK)
    keep_block = (block < n_blocks)[:, None] & m_ok[None, :]
    tl.store(tops + m[None, :].to(tl.int64) * n_blocks + block[:, None], top, mask=keep_block)


@triton.jit
def select_kernel(
    reasons,
    best,
    tops,
    counts,  # int32 [M]: blocks kept
    work,  # int32 [capacity]: position·2^24 + block
    work_size,  # int32 [1]
    n_blocks,
    hi,
    lo,
    digests,
    observed,
    expected,
    row_tiles,
    n_groups,
    K: tl.constexpr,
    K_PAD: tl.constexpr,
    LIMBS: tl.constexpr,
    CHUNK: tl.constexpr,
    GROUPS: tl.constexpr,  # checksum groups of CHUNK blocks; 0 where nothing is checked
    TILES: tl.constexpr,  # row tiles of one checksum group
):
    """Stage select for CHUNK blocks at one position: append what can still win to the work list.

    A position with a reason to fall back keeps nothing here: the re-score takes all of its rows. With
    GROUPS the checksums of the same rows are compared, and those of the limbs as the screen read them; a
    difference is such a reason, whatever was kept.
    """
    m = tl.program_id(1).to(tl.int64)
    first = tl.program_id(0)
    block = first * CHUNK + tl.arange(0, CHUNK)
    inside = block < n_blocks
    reason = tl.load(reasons + m)
    # another program of this launch may have found a checksum; what is kept must not depend on that
    open_ = (reason != NONFINITE) & (reason != REFUSED)
    threshold = _round_bf16(_from_ordered(tl.load(best + m)))
    top = tl.load(tops + m * n_blocks + block, mask=inside, other=0.0)
    kept = tl.where(inside & open_ & (_round_bf16(top) >= threshold), 1, 0)
    n = tl.sum(kept, axis=0)
    if n > 0:
        tl.atomic_add(counts + m, n, sem="relaxed")
        slot = tl.atomic_add(work_size, n, sem="relaxed") + tl.cumsum(kept, axis=0) - 1
        tl.store(work + slot, m.to(tl.int32) * 16777216 + block, mask=kept == 1)
    if GROUPS > 0:
        group = first * GROUPS + tl.arange(0, GROUPS)
        some = group < n_groups
        tile = group[:, None] * TILES + tl.arange(0, TILES)[None, :]
        part = tl.load(observed + m * row_tiles + tile, mask=tile < row_tiles, other=0)
        high = tl.load(expected + m * 2 * n_groups + 2 * group, mask=some, other=0)
        low = tl.load(expected + m * 2 * n_groups + 2 * group + 1, mask=some, other=0)
        wrong = tl.sum(tl.where(tl.sum(part, axis=1) != high * 256 + low, 1, 0), axis=0)
        if first == 0:
            k = tl.arange(0, K_PAD)
            t = tl.load(lo + m * K + k, mask=k < K, other=0).to(tl.int32)
            if LIMBS == 2:
                t += tl.load(hi + m * K + k, mask=k < K, other=0).to(tl.int32) * 256
            wrong += tl.where(tl.sum(t * (2 * k + 1), axis=0) != tl.load(digests + m), 1, 0)
        if (wrong > 0) & (reason == 0):
            tl.store(reasons + m, tl.full((), CHECKSUM, tl.uint8))


@triton.jit(do_not_specialize=["M"])
def rescore_kernel(
    weight,  # bf16 [V, K]
    hidden,  # bf16 [M, K]
    work,
    work_size,
    arrivals,  # int32 [1]: programs finished
    winner,  # int64 [M]: ordered BF16 logit above, complement of the index below
    tokens,  # int64 [M] out
    reasons,
    totals,  # int64 [8]: positions so far by reason
    accumulators,  # float32 [M, V] out, only with DIAGNOSTIC
    V,
    M,
    n_blocks,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    BK: tl.constexpr,
    M_PAD: tl.constexpr,
    DIAGNOSTIC: tl.constexpr,
    CAST: tl.constexpr,  # the interpreter multiplies BF16 wrongly in tl.dot (Triton 3.9.0 on a CPU)
):
    """Stages rescore and decide, exact mode: the work list's rows through the tensor cores.

    After the work list come all blocks of every position with a reason to fall back. K is taken in
    increasing order, 16 products a step, into one FP32 accumulator: the chain that the audit identifies
    the stock head with. The maximum by BF16 value, then lowest index, is order-free;
    the program that finishes last unpacks it.
    """
    size = tl.load(work_size)
    position = tl.arange(0, M_PAD)
    reason = tl.load(reasons + position, mask=position < M, other=0).to(tl.int32)
    flagged = tl.where(reason != 0, 1, 0)
    items = size + tl.sum(flagged, axis=0) * n_blocks
    item = tl.program_id(0)
    while item < items:
        if item < size:
            packed = tl.load(work + item)
            m = ((packed >> 24) & 255).to(tl.int64)
            block = packed & 16777215
        else:
            nth = (item - size) // n_blocks
            here = flagged * tl.where(tl.cumsum(flagged, axis=0) == nth + 1, position, 0)
            m = tl.sum(here, axis=0).to(tl.int64)
            block = (item - size) % n_blocks
        rows = block * BLOCK + tl.arange(0, BLOCK)
        row_ok = rows < V
        safe = tl.where(row_ok, rows, V - 1).to(tl.int64)
        k = tl.arange(0, BK)
        w_ptr = weight + safe[:, None] * K + k[None, :]
        h_ptr = hidden + m * K + k[:, None] + tl.zeros((1, 16), tl.int32)
        acc = tl.zeros((BLOCK, 16), tl.float32)
        for start in range(0, K, BK):
            if K % BK == 0:
                w = tl.load(w_ptr)
                h = tl.load(h_ptr)
            else:
                w = tl.load(w_ptr, mask=(start + k)[None, :] < K, other=0.0)
                h = tl.load(h_ptr, mask=(start + k)[:, None] < K, other=0.0)
            if CAST:
                acc = tl.dot(w.to(tl.float32), h.to(tl.float32), acc, input_precision="ieee")
            else:
                acc = tl.dot(w, h, acc)
            w_ptr += BK
            h_ptr += BK
        # all 16 columns are equal; take the first
        value = tl.sum(tl.where(tl.arange(0, 16)[None, :] == 0, acc, 0.0), axis=1)
        if DIAGNOSTIC:
            tl.store(accumulators + m * V + rows, value, mask=row_ok)
        # argmax takes NaN for the largest value
        order = tl.where(value == value, _ordered(_round_bf16(value)), 2147483647)
        key = (order.to(tl.int64) << 32) | (4294967295 - rows.to(tl.int64))
        key = tl.where(row_ok, key, -9223372036854775807)
        tl.atomic_max(winner + m, tl.max(key, axis=0), sem="relaxed")
        item += tl.num_programs(0)
    if tl.atomic_add(arrivals, 1, sem="acq_rel") == tl.num_programs(0) - 1:
        key = tl.load(winner + position, mask=position < M, other=0, cache_modifier=".cg")
        tl.store(tokens + position, 4294967295 - (key & 4294967295), mask=position < M)
        for r in tl.static_range(8):
            n = tl.sum(tl.where((reason == r) & (position < M), 1, 0), axis=0)
            tl.store(totals + r, tl.load(totals + r) + n)
