"""The stages as Triton kernels: back end `cuda`, and `interpret` (the same source on a CPU).

One kernel per launch of the pipeline; each names the stages of docs/spec.md that it computes. No kernel
writes V×M numbers, none needs the host between launches, and every output is the same bits as pyref's:
integer sums are exact, ends are exact FP64 products with one directed conversion, maxima are
order-free, and the re-score repeats the identified tensor-core chain.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOWEST_KEY = -(2**31)  # below the ordered form of every FP32 value
NONFINITE = tl.constexpr(1)
REFUSED = tl.constexpr(2)


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
    down = tl.inline_asm_elementwise("cvt.rm.f32.s32 $0, $1;", "=f,r", [end], tl.float32, is_pure=True, pack=1)
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
    gamma_num,
    code_norm,
    K: tl.constexpr,
    LIMBS: tl.constexpr,
    GROUP: tl.constexpr,
    G_PAD: tl.constexpr,
    RHO: tl.constexpr,
    NU: tl.constexpr,
):
    """Stage limbs, one position per program; also resets what the later launches accumulate."""
    m = tl.program_id(0).to(tl.int64)
    g = tl.arange(0, G_PAD)[:, None]
    k = g * GROUP + tl.arange(0, GROUP)[None, :]
    inside = k < K
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


@triton.jit
def screen_kernel(
    codes,  # int8 [V, K]
    scale,  # bf16 [V]
    residual_codes,  # int8 [V, G_PAD]
    norm_codes,  # uint8 [V]
    hi,  # the limbs; buffers hold BM rows at least, whatever M
    lo,
    group_codes,
    tail_codes,
    shift,
    unit,
    best,  # int32 [M]: ordered best lower end
    tops,  # float32 [M, blocks]: largest upper end of each block
    ends,  # float32 [2, M, V]: every end, only with DIAGNOSTIC
    V,
    M,
    n_blocks,
    K: tl.constexpr,
    LIMBS: tl.constexpr,
    G_PAD: tl.constexpr,
    BLOCK: tl.constexpr,
    BV: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    DIAGNOSTIC: tl.constexpr,
    SOFTWARE: tl.constexpr,
):
    """Stage screen and its block summary for BV rows and BM positions."""
    m_tiles = tl.cdiv(M, BM)
    tile = tl.program_id(0) // m_tiles  # neighbours share the rows, so the copy is read from memory once
    rows = tile * BV + tl.arange(0, BV)
    m = (tl.program_id(0) % m_tiles) * BM + tl.arange(0, BM)
    row_ok = rows < V
    m_ok = m < M
    safe_rows = tl.where(row_ok, rows, V - 1).to(tl.int64)
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
    g = tl.arange(0, G_PAD)
    e = tl.load(residual_codes + safe_rows[:, None] * G_PAD + g[None, :])
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
        tl.store(ends + where, lower, mask=keep)
        tl.store(ends + M.to(tl.int64) * V + where, upper, mask=keep)
    # rows past the end repeat the last one, which changes no maximum
    tl.atomic_max(best + m, _ordered(tl.max(lower, axis=0)), mask=m_ok, sem="relaxed")
    top = tl.max(tl.reshape(upper, (BV // BLOCK, BLOCK, BM)), axis=1)
    block = tile * (BV // BLOCK) + tl.arange(0, BV // BLOCK)
    keep_block = (block < n_blocks)[:, None] & m_ok[None, :]
    tl.store(tops + m[None, :].to(tl.int64) * n_blocks + block[:, None], top, mask=keep_block)


@triton.jit
def resolve_kernel(
    weight,  # bf16 [V, K]
    hidden,  # bf16 [M, K]
    reasons,
    best,
    tops,
    winner,  # int64 [M]: ordered BF16 logit above, complement of the index below
    counts,
    V,
    n_blocks,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
    BK: tl.constexpr,
    CAST: tl.constexpr,  # the interpreter multiplies BF16 wrongly in tl.dot (Triton 3.9.0 on a CPU)
):
    """Stages select, rescore and (by an order-free maximum) decide for CHUNK blocks at one position.

    A position with a reason to fall back has every block rescored: in exact mode that is the stock head.
    """
    m = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    fallback = tl.load(reasons + m) != 0
    threshold = _round_bf16(_from_ordered(tl.load(best + m)))
    top = tl.load(tops + m * n_blocks + block, mask=block < n_blocks, other=0.0)
    open_ = tl.where(((_round_bf16(top) >= threshold) | fallback) & (block < n_blocks), block, n_blocks)
    next_ = tl.min(open_, axis=0)
    found = 0
    while next_ < n_blocks:
        rows = next_ * BLOCK + tl.arange(0, BLOCK)
        row_ok = rows < V
        safe = tl.where(row_ok, rows, 0).to(tl.int64)
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
        value = tl.sum(tl.where(tl.arange(0, 16)[None, :] == 0, acc, 0.0), axis=1)
        # argmax takes NaN for the largest value
        order = tl.where(value == value, _ordered(_round_bf16(value)), 2147483647)
        key = (order.to(tl.int64) << 32) | (4294967295 - rows.to(tl.int64))
        key = tl.where(row_ok, key, -9223372036854775807)
        tl.atomic_max(winner + m, tl.max(key, axis=0), sem="relaxed")
        found += 1
        open_ = tl.where(open_ == next_, n_blocks, open_)
        next_ = tl.min(open_, axis=0)
    if found > 0:
        tl.atomic_add(counts + m, found, sem="relaxed")


@triton.jit
def decide_kernel(winner, tokens, M, BM: tl.constexpr):
    """Stage decide, exact mode: unpack the index of the first maximum."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    key = tl.load(winner + m, mask=m < M, other=0)
    tl.store(tokens + m, 4294967295 - (key & 4294967295), mask=m < M)
