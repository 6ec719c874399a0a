"""The tensor-core step, bit by bit: a fused dot product that aligns, truncates and adds integers.

This is the specification of exact mode: where the audit has identified a GPU's stock head as a chain of
these steps, the candidates' stock accumulators are recomputed with it and nothing is left to a bound.

One step takes up to `group` products `p_k = a_k·b_k` (exact) and an FP32 accumulator `c`:

    E(x)   the exponent of x's code: floor(log2|x|), and emin for a subnormal
    e_k    = E(a_k) + E(b_k), so a product is not normalised: its significand lies in [1, 4)
    e_max  = max(e_1, ..., e_n, E(c))
    S      = Σ trunc(p_k·2^(F - e_max)) + trunc(c·2^(F - e_max))      integers
    d      = RZ_FP32(S·2^(e_max - F))

and a chain over K feeds each step's `d` to the next as its `c`. The last step of a chain may be short:
a missing product is absent, it is not a zero (the two differ where `Rules.zero_exponent` counts).

Sources: Fasi, Higham, Mikaitis, Pranesh (PeerJ CS 7:e330, 2021) for Volta to Ampere; Khattak, Mikaitis
(arXiv 2512.07004) and the models of MMA-Sim (arXiv 2511.10909) for Hopper. What those leave open, or
contradict each other in, is a named field of `Rules`. The defaults are what an H200 does: for `group`,
`fraction_bits`, where the accumulator joins, and every rule, conformance/evidence/audit-h200.json
(`parameters`) names a probe and counts the recorded steps that rule the other values out.
Everything here is exact integer arithmetic; `fdpa_vector` holds the fast twin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan

from .codec import decode, decode_dyadic
from .formats import BF16, FP8_E4M3, FP16, FP32, Format
from .rounding import RZ, RoundingMode, round_to_bits

CANONICAL_NAN = 0x7FFFFFFF  # every NaN, whatever its operands; published and measured
FLOOR_EXPONENT = -133  # the least exponent that a step aligns to; published and measured


@dataclass(frozen=True)
class Rules:
    """Everything about a step besides its input format, its group and its fraction bits.

    alignment           rounding of each aligned term to an integer; toward zero on every GPU measured.
    rounding            rounding of the sum to `output`.
    output              format of the result, within FP32: narrower for FP8 inputs on some chips.
    normalize_products  True brings each product's significand back to [1, 2) before the alignment,
                        i.e. e_k = floor(log2|p_k|). Measured wrong on Hopper; kept for the audit.
    zero_exponent       the exponent that a zero product or a zero accumulator brings to e_max. None: it
                        takes no part. Published models say -133 (newer) and -126 (older); measured -133:
                        2^-145 - 2^-159 gives 2^-145, and 2^-145 - 2^-155 gives 15·2^-149. It matters
                        only where all terms are tiny: a nonzero accumulator has exponent >= -126.
    negative_zero       True gives -0 when every term is negative or -0 and S = 0; False always +0.
                        Published models disagree; measured: sixteen -0 and c = -0 give +0.
    signed_underflow    True: a nonzero S that rounds to zero keeps its sign; False: +0. Measured:
                        -2^-150 gives +0.
    subnormal_inputs    False reads subnormal a, b (not c) as zeros of their sign.
    subnormal_results   False replaces a subnormal result by a zero of its sign.
    overflow_to_inf     True: a sum of 2^128 or more is an infinity whatever the rounding (published,
                        also under RZ). False: as the rounding mode says, so RZ gives the largest FP32.
    nan                 the code returned for every NaN: a NaN operand, 0·Inf, Inf - Inf.
    """

    alignment: RoundingMode = RZ
    rounding: RoundingMode = RZ
    output: Format = FP32
    normalize_products: bool = False
    zero_exponent: int | None = FLOOR_EXPONENT
    negative_zero: bool = False
    signed_underflow: bool = False
    subnormal_inputs: bool = True
    subnormal_results: bool = True
    overflow_to_inf: bool = True
    nan: int = CANONICAL_NAN

    def __post_init__(self) -> None:
        if (self.output.emin, self.output.emax) != (FP32.emin, FP32.emax) or self.output.precision > 24:
            raise ValueError(f"output {self.output} does not lie within FP32")


DEFAULT_RULES = Rules()


def fdpa(
    a_bits: Sequence[int],
    b_bits: Sequence[int],
    c_bits: int,
    *,
    inputs: Format = BF16,
    group: int = 16,
    fraction_bits: int = 25,
    rules: Rules = DEFAULT_RULES,
) -> int:
    """One step. Codes of `inputs` and one FP32 code in, one FP32 code out.

    At most `group` products; fewer means that the others are absent. Raises `ValueError` when the
    operands differ in length or are too many, and for anything that is not a code of its format.
    """
    if len(a_bits) != len(b_bits):
        raise ValueError(f"{len(a_bits)} values of a, {len(b_bits)} of b")
    if len(a_bits) > group:
        raise ValueError(f"{len(a_bits)} products in a step of {group}")
    pairs = list(zip(a_bits, b_bits, strict=True))
    special = _special(pairs, c_bits, inputs)
    if special is not None:
        return rules.nan if isnan(special) else round_to_bits(special, FP32)

    terms = [_product(a, b, inputs, rules) for a, b in pairs]
    terms.append(_accumulator(c_bits, rules))
    exponents = [term.exponent for term in terms if term.exponent is not None]
    if not exponents:
        return _signed_zero(terms, rules)
    quantum = max(exponents) - fraction_bits
    total = sum(_align(term, quantum, rules.alignment) for term in terms)
    if total == 0:
        return _signed_zero(terms, rules)
    return _round_sum(total, quantum, rules)


def fdpa_chain(
    h_bits: Sequence[int],
    w_bits: Sequence[int],
    *,
    c_bits: int = 0,
    inputs: Format = BF16,
    group: int = 16,
    fraction_bits: int = 25,
    rules: Rules = DEFAULT_RULES,
) -> int:
    """A dot product as a chain of steps in increasing k, from the accumulator `c_bits` (+0).

    `len(h_bits) = K`; the last step holds the `K mod group` products that are left. Without products
    the result is `c_bits`. Raises `ValueError` as `fdpa` does.
    """
    if len(h_bits) != len(w_bits):
        raise ValueError(f"{len(h_bits)} values of h, {len(w_bits)} of w")
    for k in range(0, len(h_bits), group):
        c_bits = fdpa(
            h_bits[k : k + group],
            w_bits[k : k + group],
            c_bits,
            inputs=inputs,
            group=group,
            fraction_bits=fraction_bits,
            rules=rules,
        )
    return c_bits


@dataclass(frozen=True)
class FdpaModel:
    """A named machine: the parameters of its step, and where they were published or measured."""

    name: str
    source: str
    inputs: Format = BF16
    group: int = 16
    fraction_bits: int = 25
    rules: Rules = DEFAULT_RULES

    def step(self, a_bits: Sequence[int], b_bits: Sequence[int], c_bits: int) -> int:
        """`fdpa` with this machine's parameters."""
        return fdpa(
            a_bits,
            b_bits,
            c_bits,
            inputs=self.inputs,
            group=self.group,
            fraction_bits=self.fraction_bits,
            rules=self.rules,
        )

    def chain(self, h_bits: Sequence[int], w_bits: Sequence[int], c_bits: int = 0) -> int:
        """`fdpa_chain` with this machine's parameters."""
        return fdpa_chain(
            h_bits,
            w_bits,
            c_bits=c_bits,
            inputs=self.inputs,
            group=self.group,
            fraction_bits=self.fraction_bits,
            rules=self.rules,
        )


_KHATTAK = "Khattak, Mikaitis, arXiv 2512.07004, and its public MATLAB models"
_E8M13 = Format("E8M13", precision=14, emin=FP32.emin, emax=FP32.emax)

HOPPER = FdpaModel("hopper", f"{_KHATTAK}; MMA-Sim; measured on an H200 for this project")
MACHINES = {
    machine.name: machine
    for machine in (
        FdpaModel("volta_fp16", f"{_KHATTAK}; MMA-Sim", inputs=FP16, group=4, fraction_bits=23),
        FdpaModel("ampere", f"{_KHATTAK}; MMA-Sim", group=8, fraction_bits=24),
        FdpaModel("ada", f"{_KHATTAK}; MMA-Sim", group=8, fraction_bits=24),
        HOPPER,
        FdpaModel("blackwell", f"{_KHATTAK}; MMA-Sim"),
        FdpaModel(
            "hopper_fp8_e4m3",
            f"MMA-Sim (13 fraction bits in the sum and in the result); {_KHATTAK} for the group",
            inputs=FP8_E4M3,
            group=32,
            fraction_bits=13,
            rules=Rules(output=_E8M13),
        ),
    )
}
"""Parameters published for other chips. Only `hopper` has been compared with hardware vectors here."""


@dataclass(frozen=True)
class _Term:
    """`magnitude·2^quantum` with a sign, and the exponent it brings to e_max (None: none)."""

    negative: bool
    magnitude: int
    quantum: int
    exponent: int | None


def _product(a_bits: int, b_bits: int, inputs: Format, rules: Rules) -> _Term:
    (a, a_quantum), (b, b_quantum) = decode_dyadic(a_bits, inputs), decode_dyadic(b_bits, inputs)
    negative = (a_bits ^ b_bits) & inputs.sign_bit != 0
    if not rules.subnormal_inputs and min(abs(a), abs(b)) < 1 << (inputs.precision - 1):
        a = 0
    magnitude, quantum = abs(a * b), a_quantum + b_quantum
    if magnitude == 0:
        return _Term(negative, 0, 0, rules.zero_exponent)
    if rules.normalize_products:
        return _Term(negative, magnitude, quantum, quantum + magnitude.bit_length() - 1)
    return _Term(negative, magnitude, quantum, quantum + 2 * (inputs.precision - 1))


def _accumulator(c_bits: int, rules: Rules) -> _Term:
    c, quantum = decode_dyadic(c_bits, FP32)
    negative = c_bits & FP32.sign_bit != 0
    exponent = quantum + FP32.precision - 1 if c else rules.zero_exponent
    return _Term(negative, abs(c), quantum, exponent)


def _align(term: _Term, quantum: int, mode: RoundingMode) -> int:
    """The term in units of `2^quantum`, rounded to an integer."""
    shift = quantum - term.quantum
    if shift <= 0:
        magnitude = term.magnitude << -shift
    else:
        magnitude, rest = divmod(term.magnitude, 1 << shift)
        half = 1 << (shift - 1)
        match mode:
            case RoundingMode.RZ:
                away = False
            case RoundingMode.RD:
                away = rest > 0 and term.negative
            case RoundingMode.RU:
                away = rest > 0 and not term.negative
            case RoundingMode.RNE:
                away = rest > half or (rest == half and magnitude & 1 == 1)
            case RoundingMode.RNA:
                away = rest >= half
        magnitude += away
    return -magnitude if term.negative else magnitude


def _round_sum(total: int, quantum: int, rules: Rules) -> int:
    """The FP32 code of `total·2^quantum`, total not zero, rounded and with the underflow rules."""
    sign = FP32.sign_bit if total < 0 else 0
    infinity = FP32.max_code + 1
    if rules.overflow_to_inf and abs(total).bit_length() + quantum > FP32.emax + 1:
        return sign | infinity
    narrow = round_to_bits((total, quantum), rules.output, rules.rounding)
    code = narrow << (FP32.precision - rules.output.precision)
    magnitude = code & (FP32.sign_bit - 1)
    if magnitude == 0 and not rules.signed_underflow:
        return 0
    if not rules.subnormal_results and magnitude < 1 << (FP32.precision - 1):
        return sign if rules.signed_underflow else 0
    return code


def _signed_zero(terms: list[_Term], rules: Rules) -> int:
    return FP32.sign_bit if rules.negative_zero and all(term.negative for term in terms) else 0


def _special(pairs: list[tuple[int, int]], c_bits: int, inputs: Format) -> float | None:
    """The step's result when an operand is infinite or NaN, as a float; None when all are finite."""
    finite = all(code & (inputs.sign_bit - 1) <= inputs.max_code for pair in pairs for code in pair)
    if finite and c_bits & (FP32.sign_bit - 1) <= FP32.max_code:
        return None
    terms = [float(decode(c_bits, FP32))]
    for a_bits, b_bits in pairs:
        a, b = float(decode(a_bits, inputs)), float(decode(b_bits, inputs))
        if not (isfinite(a) and isfinite(b)):
            terms.append(_sign(a) * inf * _sign(b))
    return sum(term for term in terms if not isfinite(term))


def _sign(x: float) -> float:
    """-1, 0 or 1; NaN for NaN."""
    return x if isnan(x) else float((x > 0) - (x < 0))
