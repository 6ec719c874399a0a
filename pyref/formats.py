"""The binary floating-point formats that the stages name, described by numbers alone.

A format is a set of values `m * 2^e`: a precision (significant bits, the hidden one included) and the
exponents `emin..emax` of the normal values `1.xxx * 2^e`, with gradual underflow below `2^emin`.
Everything else (widths, bias, extremes) follows. IEEE 754-2019 section 3.3; BF16 is FP32 with 16 bits
cut off; FP8 is the OCP 8-bit Floating Point Specification, revision 1.0, table 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

Value: TypeAlias = Fraction | float
"""A value of a format. Finite ones are a `Fraction` (so +0 is `Fraction(0)`); the four that no `Fraction`
is (-0, the infinities, NaN) are the floats `-0.0`, `inf`, `-inf`, `nan`."""


@dataclass(frozen=True)
class Format:
    """One sign bit, an exponent field and `precision - 1` stored significand bits.

    `infinities=False` is the "FN" convention of OCP E4M3: the top exponent field holds ordinary values,
    only the all-ones code of each sign is NaN, and there is no infinity. Raises `ValueError` when the
    exponents `emin..emax` would not fill an exponent field exactly.
    """

    name: str
    precision: int
    emin: int
    emax: int
    infinities: bool = True

    def __post_init__(self) -> None:
        if self.precision < 2:
            raise ValueError(f"{self.name}: precision must be at least 2, got {self.precision}")
        fields = self.emax - self.emin + (3 if self.infinities else 2)
        if fields < 2 or fields & (fields - 1):
            raise ValueError(f"{self.name}: exponents {self.emin}..{self.emax} do not fill an exponent field")

    def __repr__(self) -> str:
        return self.name

    @cached_property
    def exponent_bits(self) -> int:
        return (self.emax - self.emin + 1).bit_length()

    @cached_property
    def width(self) -> int:
        """Bits of a code: sign, exponent field, stored significand."""
        return self.exponent_bits + self.precision

    @cached_property
    def bias(self) -> int:
        """Exponent field of a normal value minus its exponent."""
        return 1 - self.emin

    @cached_property
    def quantum_exp(self) -> int:
        """Every finite value is an integer multiple of `2^quantum_exp`, the smallest subnormal."""
        return self.emin - self.precision + 1

    @cached_property
    def sign_bit(self) -> int:
        """The code of -0."""
        return 1 << (self.width - 1)

    @cached_property
    def max_code(self) -> int:
        """The code of the largest finite value; finite magnitudes are the codes 0..max_code, in order."""
        if self.infinities:
            return self.sign_bit - (1 << (self.precision - 1)) - 1
        return self.sign_bit - 2

    @cached_property
    def nan_code(self) -> int:
        """The canonical quiet NaN: sign clear, only the leading significand bit set (FN: all ones)."""
        if self.infinities:
            return self.max_code + 1 + (1 << (self.precision - 2))
        return self.sign_bit - 1

    @cached_property
    def max_finite(self) -> Fraction:
        significand = (1 << self.precision) - (1 if self.infinities else 2)
        return significand * Fraction(2) ** (self.emax - self.precision + 1)

    @cached_property
    def min_normal(self) -> Fraction:
        return Fraction(2) ** self.emin

    @cached_property
    def min_subnormal(self) -> Fraction:
        return Fraction(2) ** self.quantum_exp


BF16 = Format("BF16", precision=8, emin=-126, emax=127)
FP16 = Format("FP16", precision=11, emin=-14, emax=15)
FP32 = Format("FP32", precision=24, emin=-126, emax=127)
FP64 = Format("FP64", precision=53, emin=-1022, emax=1023)
FP8_E4M3 = Format("FP8_E4M3", precision=4, emin=-6, emax=8, infinities=False)
FP8_E5M2 = Format("FP8_E5M2", precision=3, emin=-14, emax=15)
