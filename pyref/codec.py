"""Codes to values and back: what the bits of a format mean.

A code is a Python `int` in `0 .. 2^width - 1`: sign, exponent field, stored significand, from the top.
Every code decodes; `encode(decode(c)) == c` for every code but the NaNs, which all decode to `nan` and
encode to the canonical one.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan
from operator import index
from typing import SupportsIndex

from .formats import Format, Value
from .rounding import RZ, Exact, dyadic_value, exact, round_to_bits


def decode(bits: SupportsIndex, fmt: Format) -> Value:
    """The value of a code. Raises `ValueError` when `bits` is not a code of `fmt`."""
    code = _code(bits, fmt)
    magnitude = code & (fmt.sign_bit - 1)
    if magnitude > fmt.max_code:
        if fmt.infinities and magnitude == fmt.max_code + 1:
            return -inf if code & fmt.sign_bit else inf
        return nan
    if magnitude == 0:
        return -0.0 if code else Fraction(0)
    return dyadic_value(*decode_dyadic(code, fmt))


def decode_dyadic(bits: SupportsIndex, fmt: Format) -> tuple[int, int]:
    """The finite value of a code as `(m, e)`, meaning `m * 2^e`, with `|m| < 2^precision`.

    Not reduced: `e` is the exponent of the code's own quantum, so a normal value has
    `2^(precision-1) <= |m|`. Both zeros give `m = 0`. Raises `ValueError` for NaN and infinities, and
    when `bits` is not a code of `fmt`.
    """
    code = _code(bits, fmt)
    magnitude = code & (fmt.sign_bit - 1)
    if magnitude > fmt.max_code:
        raise ValueError(f"{fmt} code {code:#x} is not finite")
    stored_bits = fmt.precision - 1
    field = magnitude >> stored_bits
    significand = magnitude & ((1 << stored_bits) - 1)
    exponent = fmt.quantum_exp
    if field:
        significand |= 1 << stored_bits
        exponent += field - 1
    return (-significand if code & fmt.sign_bit else significand), exponent


def encode(value: Exact, fmt: Format) -> int:
    """The code of a value of `fmt`; NaN gives the canonical quiet NaN.

    Raises `ValueError` naming the value when `fmt` does not have it: nothing is rounded here.
    """
    number = exact(value)
    code = round_to_bits(number, fmt, RZ)
    if number == number and decode(code, fmt) != number:
        raise ValueError(f"{value!r} is not a value of {fmt}")
    return code


def _code(bits: SupportsIndex, fmt: Format) -> int:
    code = index(bits)
    if not 0 <= code < 2 * fmt.sign_bit:
        raise ValueError(f"{code:#x} is not a code of {fmt} ({fmt.width} bits)")
    return code
