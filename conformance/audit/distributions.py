"""Named input distributions, as bit patterns from a seed: what a model of an adder is tried on.

Each one attacks a rule of the step: alignment, truncation, the order of the sum, underflow, overflow.
A generator is PCG64 and only integers are drawn from it, so that the bits do not depend on a library's
sampling of reals; recorded results are kept with the SHA-256 of their inputs, and inputs are made again.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from certhead.pyref.formats import BF16, Format
from certhead.pyref.vector_rounding import bf16_to_fp32

from .product import dtype_of

Codes16: TypeAlias = npt.NDArray[np.uint16]
Codes32: TypeAlias = npt.NDArray[np.uint32]
Int64: TypeAlias = npt.NDArray[np.int64]

DISTRIBUTIONS = (
    "finite_bits",
    "edges",
    "zero_mixed",
    "normal",
    "near_emin",
    "cancelling",
    "geometric",
    "cut",
    "overflow",
)
"""Those of the recorded H200 vectors."""
ALL = (*DISTRIBUTIONS, "paired_cut")
ABOUT = {
    "finite_bits": "bit patterns uniform over all finite codes",
    "edges": "zeros, subnormals, powers of two and their neighbours, the largest finite value",
    "zero_mixed": "normal with half of the values replaced by a zero of either sign",
    "normal": "bell-shaped around zero, full significands",
    "near_emin": "subnormal and barely normal values times values around one",
    "cancelling": "neighbouring products that cancel but for a unit in the last place of one factor",
    "geometric": "exponents uniform over 25 binades, full significands",
    "cut": "products of one beside products around the last fraction bit that a step keeps",
    "overflow": "products around the largest finite FP32 value",
    "paired_cut": "pairs of products in [1, 4) that cancel, beside products around the last bit kept",
}
PRODUCTS = 16


@dataclass(frozen=True)
class ChainTask:
    """Dot products to make from a seed: `positions` states against `rows` rows of `terms` products."""

    name: str
    seed: int
    rows: int
    positions: int
    terms: int


def step_inputs(
    name: str, seed: int, count: int, fmt: Format = BF16, *, specials: bool = False
) -> tuple[Codes16, Codes16, Codes32]:
    """Operands of single steps: a, b [count, 16] codes of `fmt`, c [count] FP32 codes.

    specials: one step in two gets an infinity or a NaN somewhere.
    """
    rng = np.random.Generator(np.random.PCG64([seed, ALL.index(name)]))
    shape = (count, PRODUCTS)
    a, b = _operands(name, rng, shape, shape, fmt, chained=False)
    c = _accumulators(rng, a, b, fmt)
    if specials:
        for codes, width, top in ((a, fmt.width, fmt.max_code), (b, fmt.width, fmt.max_code)):
            where = rng.integers(0, 64, shape) == 0
            codes[where] = (_special(rng, shape, width, top))[where].astype(np.uint16)
        where = rng.integers(0, 16, count) == 0
        c[where] = _special(rng, (count,), 32, 0x7F7FFFFF)[where].astype(np.uint32)
    return a, b, c


def chain_inputs(task: ChainTask, fmt: Format = BF16) -> tuple[Codes16, Codes16]:
    """Operands of chains: h [positions, terms] and w [rows, terms], codes of `fmt`."""
    rng = np.random.Generator(np.random.PCG64([task.seed, 1000 + ALL.index(task.name)]))
    return _operands(task.name, rng, (task.positions, task.terms), (task.rows, task.terms), fmt, chained=True)


def digest(*arrays: npt.NDArray[Any]) -> str:
    """SHA-256 over the little-endian bytes of arrays, in order."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes())
    return total.hexdigest()


def _operands(
    name: str,
    rng: np.random.Generator,
    h_shape: tuple[int, int],
    w_shape: tuple[int, int],
    fmt: Format,
    *,
    chained: bool,
) -> tuple[Codes16, Codes16]:
    """Chained sums would soon be infinite or NaN, which tells nothing: there, large values are rarer."""
    stored, bias = fmt.precision - 1, fmt.bias
    top = fmt.max_code >> stored

    def both(low: int, high: int, low_w: int | None = None, high_w: int | None = None) -> tuple[Int64, Int64]:
        h = _codes(rng, h_shape, low, high, fmt)
        return h, _codes(
            rng, w_shape, low if low_w is None else low_w, high if high_w is None else high_w, fmt
        )

    match name:
        case "finite_bits" if chained:
            field = rng.integers(0, top + 1, h_shape[1])
            room = np.minimum(top, 2 * bias + top // 2 - 12 - field)
            h = (field << stored) | rng.integers(0, 1 << stored, h_shape)
            w = (rng.integers(0, room + 1, w_shape) << stored) | rng.integers(0, 1 << stored, w_shape)
            h, w = _signed(rng, h, fmt), _signed(rng, w, fmt)
        case "finite_bits":
            h, w = (_signed(rng, rng.integers(0, fmt.max_code + 1, s), fmt) for s in (h_shape, w_shape))
        case "edges":
            h, w = (
                _signed(rng, edges[rng.integers(0, len(edges), s)], fmt)
                for s, edges in (
                    (h_shape, _edges(fmt, largest=not chained)),
                    (w_shape, _edges(fmt, largest=False)),
                )
            )
        case "zero_mixed":
            h, w = (_bell(rng, s, fmt) for s in (h_shape, w_shape))
            h, w = (np.where(rng.integers(0, 2, x.shape) == 0, x & fmt.sign_bit, x) for x in (h, w))
        case "normal":
            h, w = (_bell(rng, s, fmt) for s in (h_shape, w_shape))
        case "near_emin":
            h, w = both(0, 3, bias - 24, bias + 3)
        case "cancelling":
            h, w = both(bias - 3, bias + 3)
            h[:, 1::2] = h[:, 0 : h.shape[1] - 1 : 2]
            odd = w[:, 0 : w.shape[1] - 1 : 2] ^ fmt.sign_bit
            w[:, 1::2] = odd ^ (rng.integers(0, 4, odd.shape) == 0)
        case "geometric":
            h, w = both(bias - 12, bias + 12)
        case "cut":
            mask = rng.integers(0, 8, h_shape if h_shape == w_shape else h_shape[1]) == 0
            h, w = both(bias - 14, bias - 11)
            h, w = (np.where(mask, (x & fmt.sign_bit) | (bias << stored), x) for x in (h, w))
        case "paired_cut":
            h, w = both(bias - 14, bias - 11)
            for x in (h, w):
                large = _codes(rng, x.shape, bias, bias, fmt)
                x[:] = np.where(_pair_mask(h_shape[1]), large, x)
            pairs = np.flatnonzero(_pair_mask(h_shape[1]))[::2]
            h[:, pairs + 1], w[:, pairs + 1] = h[:, pairs], w[:, pairs] ^ fmt.sign_bit
        case "overflow":
            h, w = both(top - 2, top, *((bias - 9, bias - 4) if chained else (bias - 2, bias + 2)))
        case _:
            raise ValueError(f"no distribution {name!r}; there are {', '.join(ALL)}")
    return h.astype(dtype_of(fmt)), w.astype(dtype_of(fmt))


def _pair_mask(columns: int) -> npt.NDArray[np.bool_]:
    """Columns 2k and 2k + 1 of every 16, for one k that moves on by 3 from group to group."""
    column = np.arange(columns)
    pair = 2 * ((3 * (column // 16)) % 8)
    return (column % 16 - pair >> 1 == 0) & (column // 2 * 2 + 1 < columns)


def _signed(rng: np.random.Generator, magnitude: Int64, fmt: Format) -> Int64:
    return magnitude | rng.integers(0, 2, magnitude.shape) * fmt.sign_bit


def _codes(rng: np.random.Generator, shape: tuple[int, int], low: int, high: int, fmt: Format) -> Int64:
    """Signed codes with exponent fields uniform in [low, high] and uniform significands."""
    stored = fmt.precision - 1
    field = rng.integers(max(low, 0), min(high, fmt.max_code >> stored) + 1, shape)
    return _signed(rng, (field << stored) | rng.integers(0, 1 << stored, shape), fmt)


def _bell(rng: np.random.Generator, shape: tuple[int, int], fmt: Format) -> Int64:
    """A bell curve of twelve uniform integers, cut to the format's significand."""
    total = rng.integers(-(1 << 15), 1 << 15, (12, *shape)).sum(axis=0)
    _, length = np.frexp(np.abs(total).astype(np.float64))
    shift = length.astype(np.int64) - fmt.precision
    significand = np.where(
        shift >= 0, np.abs(total) >> np.maximum(shift, 0), np.abs(total) << np.maximum(-shift, 0)
    )
    field = fmt.bias - 17 + length
    code = np.where(total == 0, 0, (field << (fmt.precision - 1)) + significand - (1 << (fmt.precision - 1)))
    return np.where(total < 0, code | fmt.sign_bit, code).astype(np.int64)


def _edges(fmt: Format, *, largest: bool) -> Int64:
    stored, bias = fmt.precision - 1, fmt.bias
    least = 1 << stored
    codes = [0, 1, 2, least - 1, least, least + 1]
    if largest:
        codes += [fmt.max_code, fmt.max_code - 1, (bias + bias // 2) << stored]
    for e in (-bias // 2, -25, -24, -13, -12, -8, -1, 0, 1, 8, 12, 13, 24):
        if abs(e) < bias - 1:
            one = (bias + e) << stored
            codes += [one, one + 1, one - 1]
    return np.array(codes)


def _special(rng: np.random.Generator, shape: tuple[int, ...], width: int, max_code: int) -> Int64:
    """Half infinities, half NaN of any payload, both signs."""
    infinity = max_code + 1
    payload = rng.integers(infinity + 1, 1 << (width - 1), shape)
    magnitude = np.where(rng.integers(0, 2, shape) == 0, infinity, payload)
    return magnitude | rng.integers(0, 2, shape) << (width - 1)


def _accumulators(rng: np.random.Generator, a: Codes16, b: Codes16, fmt: Format) -> Codes32:
    """Accumulators near the first product: in 26 binades around it, its negative, or a zero."""
    count = len(a)
    stored = fmt.precision - 1
    field = (((a[:, 0] & (fmt.sign_bit - 1)) >> stored).astype(np.int64) - fmt.bias) + (
        ((b[:, 0] & (fmt.sign_bit - 1)) >> stored).astype(np.int64) - fmt.bias
    )
    field = np.clip(field + rng.integers(-26, 27, count) + 127, 0, 254)
    c = (field << 23) | rng.integers(0, 1 << 23, count) | rng.integers(0, 2, count) << 31
    kind = rng.integers(0, 8, count)
    c = np.where(kind == 0, c & 0x80000000, c)
    if fmt is BF16:
        with np.errstate(over="ignore", under="ignore"):
            product = -(bf16_to_fp32(a[:, 0]) * bf16_to_fp32(b[:, 0]))
        code = product.view(np.uint32).astype(np.int64)
        low = np.minimum(code & 0x7FFFFFFF, 0x7F7FFFFE) ^ rng.integers(0, 2, count)
        c = np.where(kind == 1, (code & 0x80000000) | low, c)
    return c.astype(np.uint32)
