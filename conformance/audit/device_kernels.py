"""Two Triton kernels that show the tensor core's own arithmetic: single steps, and plain chains.

`step_kernel` gives each of T steps its own row of `a` and column of `b` and keeps the diagonal of the
T×T product; with T = 16 the compiler uses `mma.sync`, with T = 64 and four warps `wgmma`.
"""

import triton
import triton.language as tl


@triton.jit
def step_kernel(a, b, c, d, T: tl.constexpr):
    """d[n] = c[n] + Σ a[n, :]·b[n, :] for a, b [N, 16], N a multiple of T."""
    i = tl.arange(0, T)
    k = tl.arange(0, 16)
    base = tl.program_id(0) * T
    x = tl.load(a + (base + i)[:, None] * 16 + k[None, :])
    y = tl.load(b + (base + i)[None, :] * 16 + k[:, None])
    diagonal = i[:, None] == i[None, :]
    where = base + i[:, None] + 0 * i[None, :]
    accumulator = tl.load(c + where, mask=diagonal, other=0.0)
    accumulator = tl.dot(x, y, accumulator)
    tl.store(d + where, accumulator, mask=diagonal)


@triton.jit
def chain_kernel(h, w, out, M, V, K, BM: tl.constexpr, BV: tl.constexpr, BK: tl.constexpr):
    """out[m, i] = Σ_k h[m, k]·w[i, k] in increasing k: h [M, K], w [V, K], out float32 [M, V]."""
    rows = (tl.program_id(0) * BV + tl.arange(0, BV)).to(tl.int64)
    positions = tl.program_id(1) * BM + tl.arange(0, BM)
    k = tl.arange(0, BK)
    accumulator = tl.zeros((BV, BM), tl.float32)
    for start in range(0, K, BK):
        inside = start + k < K
        x = tl.load(
            w + rows[:, None] * K + (start + k)[None, :],
            mask=(rows < V)[:, None] & inside[None, :],
            other=0.0,
        )
        y = tl.load(
            h + positions[None, :] * K + (start + k)[:, None],
            mask=(positions < M)[None, :] & inside[:, None],
            other=0.0,
        )
        accumulator = tl.dot(x, y, accumulator)
    where = positions.to(tl.int64)[None, :] * V + rows[:, None]
    tl.store(out + where, accumulator, mask=(rows < V)[:, None] & (positions < M)[None, :])
