"""How far the stock accumulator can be from the exact sum: the relative bound of each error model.

A model promises, for the stock accumulator `y` of a row `w` and a state `h` of length `K`,

    |y - Σ w·h|  <=  γ(K)·Σ|w·h| + η,

and the stages `limbs`, `screen` and `rescore` take γ from here. Each γ is written once, as a SymPy
expression in named symbols; the exact number, the dyadic `gamma_num/2^40` of docs/spec.md, the FP64
number and the text in a report all come from that expression. Nothing is rounded before the last step,
and that step rounds up. η (2^-91, docs/spec.md) pays for underflow and subnormal operands; γ does not.

Both bounds rest on one lemma about trees (Higham, *Accuracy and Stability of Numerical Algorithms*,
2nd ed., sections 3.1 and 4.2, there for binary trees). Let every node return `ŝ` with
`|ŝ - Σ children| <= u_v·Σ|children|`. A leaf's value reaches the root through the nodes of its path,
each of which multiplies the magnitude by at most `1 + u_v`; by induction from the leaves the error at
the root is at most `(Π (1 + u_v) - 1)·Σ|leaves|`, the product being the largest over the paths. With
one unit `u` and `depth` nodes on the longest path that is `TREE_EXPRESSION`.

One node of a fused adder (`fdpa`): with e the exponent that all terms are aligned to, every term but
the leading one loses less than `2^(e-F)` (the leading one has no more than F fraction bits, so it loses
nothing), and `2^e <= |leading term|` as long as its operands are normal. The truncated magnitudes are
no larger than the terms', so rounding the sum adds at most `u·Σ|terms|`. With t terms that can be cut,
`u_v = t·2^-F + u`.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil

import sympy  # type: ignore[import-untyped]

from .formats import FP64
from .rounding import RU, round_to

GAMMA_BITS = 40  # docs/spec.md: gamma_num counts units of 2^-40

K = sympy.Symbol("K", positive=True, integer=True)  # products in the sum
u = sympy.Symbol("u", positive=True)  # unit of one rounding to FP32 in any direction
L = sympy.Symbol("L", positive=True, integer=True)  # products of one fused step
F = sympy.Symbol("F", positive=True, integer=True)  # fraction bits kept below the leading exponent
t = sympy.Symbol("t", positive=True, integer=True)  # terms of one fused step that can be cut
depth = sympy.Symbol("depth", positive=True, integer=True)  # nodes on the longest path of a tree

TWO = sympy.Integer(2)  # 2**-25 on Python integers is a float; on this it stays a rational
UNIT_ANY_DIRECTION = TWO**-23  # FP32 keeps 24 bits; truncation and directed rounding lose < 1 ulp
UNIT_NEAREST = TWO**-24

TREE_EXPRESSION = (1 + u) ** depth - 1
STEPS = sympy.ceiling(K / L)
STEP_UNIT = t * TWO**-F + u
ANY_ORDER_EXPRESSION = 2 * K * u / (1 - 2 * K * u)
FDPA_EXPRESSION = (1 + STEP_UNIT) ** STEPS - 1
FDPA_SPLIT_K_EXPRESSION = (1 + STEP_UNIT) ** STEPS * (1 + u) ** STEPS - 1

_UNDERFLOW = (
    "operands below 2^-126 in magnitude and results below FP32's normal range cost an absolute error "
    "that η covers, not γ (enters in 2^e <= |leading term|)"
)
_OVERFLOW = "no operand is infinite or NaN and no partial sum overflows (enters at every node)"


@dataclass(frozen=True)
class ErrorModel:
    """One bound γ(K): its expression, the constants that make it a number, what it takes for granted.

    `constants` gives every symbol of `expression` but `K` an exact value. `assumptions` are plain
    sentences, each saying where in the derivation it enters; they are assumed, not checked, here.
    """

    name: str
    expression: sympy.Expr
    constants: tuple[tuple[sympy.Symbol, sympy.Rational], ...]
    assumptions: tuple[str, ...]

    def __post_init__(self) -> None:
        unbound = self.expression.free_symbols - {symbol for symbol, _ in self.constants} - {K}
        if unbound:
            raise ValueError(f"{self.name}: no value for {sorted(map(str, unbound))}")

    def gamma(self, terms: int) -> Fraction:
        """γ for `terms` products, exact. Raises `ValueError` for `terms < 1` or where γ is not a
        bound (the any-order model ends where 2·K·u reaches 1)."""
        if terms < 1:
            raise ValueError(f"{self.name}: a sum has at least one product, got K = {terms}")
        value = evaluate(self.expression, (*self.constants, (K, sympy.Integer(terms))))
        if value < 0:
            raise ValueError(f"{self.name}: no bound at K = {terms}")
        return value

    def gamma_num(self, terms: int) -> int:
        """The smallest integer n with `γ <= n/2^40`: how γ enters the integer stages."""
        return ceil(self.gamma(terms) * (1 << GAMMA_BITS))

    def gamma_fp64(self, terms: int) -> float:
        """The smallest FP64 number that is at least γ."""
        return float(round_to(self.gamma(terms), FP64, RU))


def gamma_num(model: ErrorModel | str, terms: int) -> int:
    """`ErrorModel.gamma_num` of a model or of the model with that name. Raises `KeyError`."""
    return (MODELS[model] if isinstance(model, str) else model).gamma_num(terms)


def tree_gamma(nodes: int, unit: Fraction) -> Fraction:
    """The lemma's bound for a tree with at most `nodes` roundings on a path, each of that unit.

    The unit is 2^-23 for FP32 under any rounding direction, 2^-24 for rounding to nearest; a partial
    sum stored in BF16 is a node of unit 2^-8.
    """
    if nodes == 0:
        return Fraction(0)
    return evaluate(
        TREE_EXPRESSION,
        ((depth, sympy.Integer(nodes)), (u, sympy.Rational(unit.numerator, unit.denominator))),
    )


@lru_cache(maxsize=4096)
def evaluate(expression: sympy.Expr, values: tuple[tuple[sympy.Symbol, sympy.Rational], ...]) -> Fraction:
    """An expression at exact values, as an exact rational.

    Raises `TypeError` for a value that is not a SymPy rational (a Float has been rounded already) and
    `ValueError` when the result is not one, e.g. because a symbol was left without a value: symbols
    with the same name but other assumptions are different symbols, and SymPy then replaces nothing.
    """
    for symbol, value in values:
        if not isinstance(value, sympy.Rational):
            raise TypeError(f"{symbol} = {value!r} is not an exact rational")
    result = expression.xreplace(dict(values))
    if not isinstance(result, sympy.Rational):
        raise ValueError(f"{expression} at {dict(values)} is not a rational number: {result}")
    return Fraction(int(result.p), int(result.q))


ANY_ORDER = ErrorModel(
    name="any_order",
    expression=ANY_ORDER_EXPRESSION,
    constants=((u, UNIT_ANY_DIRECTION),),
    assumptions=(
        "every partial sum is FP32 or wider, in any order and any split (enters as u = 2^-23 at every "
        "node); partial sums stored in BF16 are outside this model",
        "every node rounds its sum in some direction, and a multi-term adder keeps at least 23 fraction "
        "bits below its leading exponent (enters as u_v <= (m + 1)·u for a node with m + 1 addends)",
        "at most two roundings on a path combine nothing, e.g. one of the product and one of a scale "
        "(enters as the 2 in n = (2K - 2) + 2)",
        _UNDERFLOW,
        _OVERFLOW,
    ),
)
"""Any tree, any split into FP32 partials, any rounding direction, with or without fused adders.

Derivation: a node with m + 1 addends that are not zero cuts at most m of them, so with F >= 23 its unit
is at most `m·2^-23 + 2^-23 = (m + 1)·u`. Over the whole tree the m add up to K - 1 (each node turns
m + 1 values into one), and at most K - 1 nodes have m >= 1; so on any path the units add up to at most
`(K - 1)u + (K - 1)u`, and two unary nodes make it `2K·u = n·u`. A product of `1 + u_v` whose u_v add up
to x < 1 is at most `1/(1 - x)`, hence γ = n·u/(1 - n·u) with n = 2K and u = 2^-23.
"""


def fdpa_model(
    group: int = 16, fraction_bits: int = 25, *, split_k: bool = False, leading_term_cut: bool = True
) -> ErrorModel:
    """The bound for a chain of fused steps in increasing k: `group` products and the accumulator each.

    Derivation: the chain is a path of `ceil(K/L)` nodes with unit `p = t·2^-F + 2^-23`, so
    γ = (1+p)^ceil(K/L) - 1. All `t = L + 1` addends are counted as cut by default, as in the published
    Hopper bound; the leading one never is, and `leading_term_cut=False` gives the narrower `t = L`.
    `split_k` also allows that the products are dealt to several chains whose FP32 partials are then
    added, rounded in any direction: at most one addition for each step, so a factor
    `(1 + 2^-23)^ceil(K/L)`. Raises `ValueError` when F is below the accumulator's 23 fraction bits,
    where the leading term can lose bits and the derivation ends.
    """
    if fraction_bits < 23:
        raise ValueError(f"the bound needs at least 23 fraction bits, got {fraction_bits}")
    name = "fdpa_split_k" if split_k else "fdpa"
    if (group, fraction_bits) != (16, 25):
        name += f"_{group}_{fraction_bits}"
    if not leading_term_cut:
        name += "_tight"
    assumptions = [
        f"the stock kernel is a chain of fused steps, {group} products and the accumulator each "
        f"(enters as the number of nodes, ceil(K/{group}))",
        f"a step cuts each term toward zero at {fraction_bits} fraction bits below the largest exponent "
        f"(enters as t·2^-{fraction_bits} in the unit of a node)",
        "a step's sum is rounded to FP32 once, in any direction (enters as 2^-23 in the unit of a node)",
        _UNDERFLOW,
        _OVERFLOW,
    ]
    if split_k:
        assumptions.append(
            "if the products are split over several chains, the partials are FP32 and there are at most "
            "as many as steps (enters as the factor (1+2^-23)^ceil(K/L)); BF16 partials are outside"
        )
    else:
        assumptions.append("there is one chain: no split over K (enters as the order of the steps)")
    return ErrorModel(
        name=name,
        expression=FDPA_SPLIT_K_EXPRESSION if split_k else FDPA_EXPRESSION,
        constants=(
            (L, sympy.Integer(group)),
            (F, sympy.Integer(fraction_bits)),
            (t, sympy.Integer(group + 1 if leading_term_cut else group)),
            (u, UNIT_ANY_DIRECTION),
        ),
        assumptions=tuple(assumptions),
    )


FDPA = fdpa_model()
FDPA_SPLIT_K = fdpa_model(split_k=True)
FDPA_TIGHT = fdpa_model(leading_term_cut=False)

MODELS = {model.name: model for model in (ANY_ORDER, FDPA, FDPA_SPLIT_K, FDPA_TIGHT)}
