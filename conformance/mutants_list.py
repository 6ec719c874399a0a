"""Wrong kernels and certifiers by name, each a line or so away from the right one.

A mutant is a driver and edits of one file of the repository: every old text must be there exactly once.
Equivalent changes are left out: a dropped mask of one operand of a product whose other operand is masked,
and `−0` kept where every comparison takes both zeros for equal.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A named wrong version of one file, and the driver that must notice."""

    name: str
    driver: str
    path: str
    edits: tuple[tuple[str, str], ...]

    def apply(self, source: str) -> str:
        """The mutated source. Raises ValueError where an edit does not apply to exactly one place."""
        for old, new in self.edits:
            if source.count(old) != 1:
                raise ValueError(f"{self.name}: {self.path} has {source.count(old)} places with {old!r}")
            source = source.replace(old, new)
        return source


def _group(driver: str, path: str, *mutants: tuple[str, str, str]) -> tuple[Mutant, ...]:
    return tuple(Mutant(f"{driver}/{name}", driver, path, ((old, new),)) for name, old, new in mutants)


PYREF = _group(
    "pyref",
    "pyref/head.py",
    ("tie-to-last-index", "if v > values[best]:", "if v >= values[best]:"),
    ("candidate-strictly-above", "_finite(s.hi_bits)) >= threshold)", "_finite(s.hi_bits)) > threshold)"),
    ("contest-before-strict", "(j < k and top >= low[k])", "(j < k and top > low[k])"),
    ("contest-after-loose", "(j > k and top > low[k])", "(j > k and top >= low[k])"),
    ("margin-halved", "residual_shift(group)) * spread + 1", "residual_shift(group)) * spread // 2 + 1"),
    ("margin-without-one", "residual_shift(group)) * spread + 1", "residual_shift(group)) * spread"),
    ("norms-rounded-down", "0 if n <= 0 else isqrt(n - 1) + 1", "isqrt(n)"),
    ("norms-rounded-to-nearest", "0 if n <= 0 else isqrt(n - 1) + 1", "(isqrt(4 * n) + 1) // 2"),
    ("norms-one-too-many", "0 if n <= 0 else isqrt(n - 1) + 1", "0 if n <= 0 else isqrt(n) + 1"),
    ("round-half-up", "return round(x)", "return int((x + Fraction(1, 2)) // 1)"),
    ("scale-to-nearest", "round_to(largest / 127, BF16, RoundingMode.RU)", "round_to(largest / 127, BF16)"),
    ("scale-by-128", "round_to(largest / 127, BF16", "round_to(largest / 128, BF16"),
    ("scale-floor-ignored", "if largest > 127 * scale:", "if largest:"),
    ("high-limb-rounding", "hi = tuple((n + 128) // 256", "hi = tuple((n + 127) // 256"),
    ("low-limb-sign", "q * (256 * a + b) for", "q * (256 * a - b) for"),
    ("clamp-at-128", "[max(-127, min(127, n)) for n in t]", "[max(-128, min(128, n)) for n in t]"),
    ("unit-one-bit-finer", "UNIT_BITS = {1: 6, 2: 13}", "UNIT_BITS = {1: 6, 2: 14}"),
    ("unit-floor-ignored", "max(exponent - UNIT_BITS[limb_count], UNIT_MIN_EXP)", "exponent - UNIT_BITS[limb_count]"),
    ("tail-without-gamma", "(tail + gamma * (whole + tail))", "tail"),
    ("tail-without-remainder", "(tail + gamma * (whole + tail))", "(gamma * (whole + tail))"),
    ("gamma-without-remainder", "(tail + gamma * (whole + tail))", "(tail + gamma * whole)"),
    ("remainder-to-nearest", "r = [ceil_div_fraction(abs(v - unit * n) * 2**RESIDUAL_BITS, unit)",
     "r = [nearest_even(abs(v - unit * n) * 2**RESIDUAL_BITS / unit)"),
    ("int32-bound-off-by-one", "code_norm * whole + widest >= INT32_LIMIT", "code_norm * whole + widest > INT32_LIMIT"),
    ("group-shift-early", "2**tau) > 127 for n in norms", "2**tau) >= 127 for n in norms"),
    ("group-codes-rounded-down", "tuple(ceil_div(n, 2**tau) for n in norms)", "tuple(n // 2**tau for n in norms)"),
    ("off-by-one-group", "min(start + group, columns))", "min(start + group - 1, columns))"),
    ("lower-end-to-nearest", "center - width, RoundingMode.RD)", "center - width, RoundingMode.RNE)"),
    ("upper-end-to-nearest", "center + width, RoundingMode.RU)", "center + width, RoundingMode.RNE)"),
    ("end-rounded-once", "factor * Fraction(round_to(end, FP32, mode))", "factor * end"),
    ("capacity-ignored", "blocks if len(blocks) <= capacity else None", "blocks"),
    ("capacity-cuts-off", "blocks if len(blocks) <= capacity else None", "blocks[:capacity]"),
    ("capacity-off-by-one", "if len(blocks) <= capacity else", "if len(blocks) < capacity else"),
    ("threshold-from-upper-ends", "max(_finite(s.lo_bits) for s in screened)", "max(_finite(s.hi_bits) for s in screened)"),
    ("last-row-dropped", "min((b + 1) * block, rows)", "min((b + 1) * block, rows - 1)"),
    ("infinity-only", "if any(b & 0x7F80 == 0x7F80 for b in hidden_bits)", "if any(b & 0x7FFF == 0x7F80 for b in hidden_bits)"),
    ("range-end-allowed", "abs(x) >= Fraction(2) ** RANGE_EXP for x in", "abs(x) > Fraction(2) ** RANGE_EXP for x in"),
    ("fold-of-neighbours", "level[i] + level[half + i]", "level[2 * i] + level[2 * i + 1]"),
    ("radius-without-floor", "(gamma + RESCORE_SLACK)) + Fraction(2) ** RADIUS_FLOOR_EXP)", "(gamma + RESCORE_SLACK)))"),
    ("radius-without-slack", "mass * (gamma + RESCORE_SLACK)", "mass * gamma"),
    ("rescored-end-to-nearest", "_rne64(z - radius), FP32, RoundingMode.RD", "_rne64(z - radius), FP32, RoundingMode.RNE"),
    ("bf16-toward-zero", "round_to(value, BF16, RoundingMode.RNE)", "round_to(value, BF16, RoundingMode.RZ)"),
) + _group(
    "pyref",
    "pyref/fdpa.py",
    ("24-fraction-bits", 'measured on an H200 for this project")', 'measured on an H200 for this project", fraction_bits=24)'),
    ("steps-of-8", 'measured on an H200 for this project")', 'measured on an H200 for this project", group=8)'),
    ("accumulate-to-nearest", 'measured on an H200 for this project")',
     'measured on an H200 for this project", rules=Rules(rounding=RoundingMode.RNE))'),
    ("products-normalised", 'measured on an H200 for this project")',
     'measured on an H200 for this project", rules=Rules(normalize_products=True))'),
    ("reversed-k", "for k in range(0, len(h_bits), group):", "for k in reversed(range(0, len(h_bits), group)):"),
    ("accumulator-not-zero", "w_bits: Sequence[int], c_bits: int = 0) -> int:", "w_bits: Sequence[int], c_bits: int = 0x33800000) -> int:"),
)  # fmt: skip

TORCH = _group(
    "torch",
    "kernels/quantize.py",
    ("doubtful-norms-kept", "(doubtful.any(dim=1) | doubtful_norm).nonzero()", "(doubtful.any(dim=1) & False).nonzero()"),
    ("stale-scale", "s = scale.double()", "s = scale.double().roll(1)"),
    ("round-half-up", "(w / s[:, None]).round()", "(w / s[:, None] + 0.5).floor()"),
) + _group(
    "torch",
    "kernels/rounding.py",
    ("scale-to-nearest", "(bits + 0xFFFF) & -0x10000", "(bits + 0x7FFF) & -0x10000"),
    ("lower-end-to-nearest", "_step(y, (y.double() > x).to(torch.int32).neg_())", "y"),
    ("upper-end-one-too-far", "(y.double() < x).to", "(y.double() <= x).to"),
    ("step-toward-zero", "bits + by * ((bits >> 31) | 1)", "bits + by"),
) + _group(
    "torch",
    "kernels/torch_stages.py",
    ("high-limb-rounding", "hi = (t + 128) >> 8", "hi = (t + 127) >> 8"),
    ("nan-not-seen", "reasons[~torch.isfinite(h).all(dim=1)]", "reasons[h.isinf().any(dim=1)]"),
    ("clamp-at-minus-128", "t.clamp(-127, 127)", "t.clamp(-128, 127)"),
    ("remainder-to-nearest", "2.0**spec.RESIDUAL_BITS).ceil()", "2.0**spec.RESIDUAL_BITS).round()"),
    ("group-codes-rounded-down", "-((-norms) >> group_shift[:, None])", "norms >> group_shift[:, None]"),
    ("int32-bound-off-by-one", "code_norm * whole + widest >= spec.INT32_LIMIT", "code_norm * whole + widest > spec.INT32_LIMIT"),
    ("gamma-without-remainder", "((whole << spec.RESIDUAL_BITS) + tail)", "(whole << spec.RESIDUAL_BITS)"),
    ("limb-weight-128", "256 * both[:m] + both[m:]", "128 * both[:m] + both[m:]"),
    ("margin-without-one", "return center, spread * power_of_two(shift)[:, None] + 1", "return center, spread * power_of_two(shift)[:, None]"),
    ("margin-without-tail", "limb.tail_codes.double()[:, None] * copy.norm_codes[rows]", "0 * limb.tail_codes.double()[:, None] * copy.norm_codes[rows]"),
    ("end-rounded-once", "fp32_down(fp32_down(value).double() * factor)", "fp32_down(value.double() * factor)"),
    ("tail-mask-too-large", "(0, padding), value=-torch.inf)", "(0, padding), value=torch.inf)"),
    ("best-of-upper-ends", "best.append(lo.amax(dim=1))", "best.append(hi.amax(dim=1))"),
    ("block-strictly-above", "(tops.to(torch.bfloat16) >= threshold[:, None])", "(tops.to(torch.bfloat16) > threshold[:, None])"),
    ("capacity-off-by-one", "kept.sum(dim=1) > capacity", "kept.sum(dim=1) >= capacity"),
    ("capacity-ignored", "kept.sum(dim=1) > capacity", "kept.sum(dim=1) > kept.shape[1]"),
    ("ragged-row-repeated", "index.clamp_max(rows - 1), index < rows", "index.clamp_max(rows - 1), index <= rows"),
    ("candidate-strictly-above", "(hi.to(torch.bfloat16) >= threshold[p]", "(hi.to(torch.bfloat16) > threshold[p]"),
    ("fold-of-neighbours", "x = x[..., :half] + x[..., half:]", "x = x[..., ::2] + x[..., 1::2]"),
    ("fold-in-fp32", "z, mass = fold(products)", "z, mass = fold(products.float()).double()"),
    ("radius-without-slack", "+ float(spec.RESCORE_SLACK)", ""),
    ("swapped-batch-rows", "hidden[pairs.position[part]], weight[index[part]]", "hidden[pairs.position[part].flip(0)], weight[index[part]]"),
    ("contest-before-strict", "(index < chosen) & (hi >= level)", "(index < chosen) & (hi > level)"),
    ("contest-after-loose", "(index > chosen) & (hi > level)", "(index > chosen) & (hi >= level)"),
) + _group(
    "torch",
    "kernels/torch_engine.py",
    ("ambiguity-ignored", "(reasons == Reason.NONE) & ~fixed", "(reasons == Reason.NONE) & False"),
    ("fallback-ignored", "tokens = torch.where(decided, tokens, stock)", "tokens = tokens.clamp_max(len(self.weight) - 1)"),
)  # fmt: skip

TRITON = _group(
    "interpret",
    "kernels/triton_stages.py",
    ("row-tail-mask", "row_ok = rows < end", "row_ok = rows <= end"),
    ("high-limb-ignored", "acc_b += acc_a * 256", "acc_b += acc_a * 128"),
    ("accumulator-not-zero", "acc_b = tl.zeros((BV, BM), tl.int32)", "acc_b = tl.full((BV, BM), 1, tl.int32)"),
    ("margin-without-one", "width = (width << tl.load(shift + m)[None, :]) + 1", "width = width << tl.load(shift + m)[None, :]"),
    ("margin-halved", "width = (width << tl.load(shift + m)[None, :]) + 1", "width = ((width << tl.load(shift + m)[None, :]) >> 1) + 1"),
    ("shift-ignored", "width = (width << tl.load(shift + m)[None, :]) + 1", "width = width + 1"),
    ("stale-scale", "factor = tl.load(scale + last)", "factor = tl.load(scale + last - last)"),
    ("upper-end-to-nearest", "tl.where(y.to(tl.float64) < x, key + 1, key)", "key"),
    ("end-rounded-once", "_fp32_down(_fp32_down(end.to(tl.float64)).to(tl.float64) * factor.to(tl.float64))",
     "_fp32_down(end.to(tl.float64) * factor.to(tl.float64))"),
    ("best-of-upper-ends", "_ordered(tl.max(lower, axis=0))", "_ordered(tl.max(upper, axis=0))"),
    ("best-overwritten", 'tl.atomic_max(best + m, _ordered(tl.max(lower, axis=0)), mask=m_ok, sem="relaxed")',
     "tl.store(best + m, _ordered(tl.max(lower, axis=0)), mask=m_ok)"),
    ("best-starts-at-zero", "tl.store(best + m, -2147483647)", "tl.store(best + m, 0)"),
    ("block-least-upper-end", "top = tl.max(tl.reshape(upper", "top = tl.min(tl.reshape(upper"),
    ("swapped-position-tiles", "(tl.program_id(0) % m_tiles) * BM + tl.arange(0, BM)", "(m_tiles - 1 - tl.program_id(0) % m_tiles) * 0 + tl.arange(0, BM)"),
    ("bf16-half-up", "bits + 0x7FFF + ((bits >> 16) & 1)", "bits + 0x8000"),
    ("block-strictly-above", "(_round_bf16(top) >= threshold)", "(_round_bf16(top) > threshold)"),
    ("fallback-not-kept", "inside & (fallback | (_round_bf16(top) >= threshold))", "inside & (_round_bf16(top) >= threshold) & (fallback == 0)"),
    ("work-slot-off-by-one", "tl.cumsum(kept, axis=0) - 1", "tl.cumsum(kept, axis=0)"),
    ("checksum-ignored", "(wrong > 0) & (tl.load(reasons + m) == 0)", "(wrong > 999) & (tl.load(reasons + m) == 0)"),
    ("checksum-of-limbs-ignored", "wrong += tl.where(tl.sum(t * (2 * k + 1), axis=0)", "wrong += 0 * tl.where(tl.sum(t * (2 * k + 1), axis=0)"),
    ("checksum-digit", "high * 256 + low", "high * 255 + low"),
    ("checksum-one-tile", "part = tl.load(observed + m * row_tiles + tile,", "part = tl.load(observed + m * row_tiles + tile * 0,"),
    ("nan-as-minus-infinity", "_ordered(_round_bf16(value)), 2147483647)", "_ordered(_round_bf16(value)), -2147483647)"),
    ("logit-not-rounded", "tl.where(value == value, _ordered(_round_bf16(value)),", "tl.where(value == value, _ordered(value),"),
    ("winner-starts-at-zero", "tl.store(winner + m, tl.full((), -9223372036854775807, tl.int64))", "tl.store(winner + m, tl.full((), 0, tl.int64))"),
    ("wrong-batch-row", "h_ptr = hidden + m * K", "h_ptr = hidden + (m ^ m) * K"),
    ("position-of-four-bits", "((packed >> 24) & 255)", "((packed >> 24) & 15)"),
    ("last-item-dropped", "while item < size:", "while item < size - 1:"),
    ("high-limb-rounding", "a = (ti + 128) >> 8", "a = (ti + 127) >> 8"),
    ("group-shift-early", ">> step) > 127, 1, 0)", ">> step) >= 127, 1, 0)"),
    ("remainder-cut", "tl.where(r_whole < r, r_whole + 1.0, r_whole)", "r_whole"),
    ("round-half-up", "t = (scaled + 6755399441055744.0) - 6755399441055744.0", "t = tl.floor(scaled + 0.5)"),
    ("group-codes-rounded-down", "codes = (norms + (1 << tau) - 1) >> tau", "codes = norms >> tau"),
    ("int32-bound-off-by-one", "code_norm * whole + widest >= 2147483648", "code_norm * whole + widest > 2147483648"),
    ("range-end-allowed", "largest >= 65536.0, REFUSED", "largest > 65536.0, REFUSED"),
    ("nan-not-seen", 'finite = magnitude < float("inf")', 'finite = magnitude != float("inf")'),
    ("unit-floor-lower", "x = tl.maximum(x, -40)", "x = tl.maximum(x, -60)"),
    ("off-by-one-group", "inside = (within < GROUP) & (k < K)", "inside = (within < GROUP) & (k < K - 1)"),
    ("norms-one-too-many", "tl.where(r * r < m, r + 1, r)", "tl.where(r * r <= m, r + 1, r)"),
    ("int32-wrap", "numerator = (tail << 40) + gamma_num * ((whole << 8) + tail)",
     "numerator = (tail << 40) + (gamma_num * ((whole << 8) + tail)).to(tl.int32).to(tl.int64)"),
) + (
    Mutant(
        "interpret/tie-to-last-index",
        "interpret",
        "kernels/triton_stages.py",
        (
            ("(4294967295 - rows.to(tl.int64))", "rows.to(tl.int64)"),
            ("4294967295 - (key & 4294967295)", "key & 4294967295"),
        ),
    ),
)  # fmt: skip

MUTANTS = PYREF + TORCH + TRITON
