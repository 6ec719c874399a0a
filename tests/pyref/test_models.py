"""The error models: their published numbers, their roundings, and that they hold and are not slack.

A bound is tested from both sides. Hypothesis looks for a sum that exceeds it; committed sums show that
the same bound with one node fewer is false.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import nextafter
from random import Random

import pytest
import sympy  # type: ignore[import-untyped]
from certhead.pyref import models
from certhead.pyref.codec import decode
from certhead.pyref.fdpa import FdpaModel, fdpa_chain
from certhead.pyref.formats import BF16, FP32
from certhead.pyref.models import (
    ANY_ORDER,
    FDPA,
    FDPA_SPLIT_K,
    FDPA_TIGHT,
    MODELS,
    ErrorModel,
    fdpa_model,
    gamma_num,
    tree_gamma,
)
from certhead.pyref.rounding import RD, RNE, RU, RZ, RoundingMode, round_to
from certhead.pyref.sums import Tree, arbitrary, depth, exact_products, split_k, sum_tree
from hypothesis import given, settings
from hypothesis import strategies as st

SIZES = (1, 2, 15, 16, 17, 576, 640, 2304, 2560, 7168, 1 << 15, 1 << 16)
U = Fraction(1, 1 << 23)

ONE = 0x3F80
ALMOST_TWO = 0x3FFF  # 2 - 2^-7; its square is 3.96875

Operands = tuple[list[int], list[int]]


def power(e: int) -> int:
    """The BF16 code of 2^e."""
    return (e + 127) << 7


def error_and_mass(y_bits: int, operands: Operands) -> tuple[Fraction, Fraction]:
    """|y - Σ w·h| and Σ|w·h|, exact."""
    products = [Fraction(p) for p in exact_products(*operands)]
    return abs(Fraction(decode(y_bits, FP32)) - sum(products)), sum(map(abs, products), Fraction(0))


# Numbers


def test_published_numbers() -> None:
    assert f"{float(ANY_ORDER.gamma(2560)):.8e}" == "6.10724319e-04"
    assert f"{float(FDPA_SPLIT_K.gamma(2560)):.7e}" == "1.1921636e-04"
    assert f"{float(FDPA.gamma(2560)):.7e}" == "1.0014079e-04"


@pytest.mark.parametrize("terms", SIZES)
def test_expressions_equal_the_formulas_on_fractions(terms: int) -> None:
    n, steps = 2 * terms, -(-terms // 16)
    assert ANY_ORDER.gamma(terms) == n * U / (1 - n * U)
    p = Fraction(17, 1 << 25) + U
    assert FDPA.gamma(terms) == (1 + p) ** steps - 1
    assert FDPA_SPLIT_K.gamma(terms) == (1 + p) ** steps * (1 + U) ** steps - 1
    assert FDPA_TIGHT.gamma(terms) == (1 + p - Fraction(1, 1 << 25)) ** steps - 1
    assert tree_gamma(steps, U) == (1 + U) ** steps - 1


@pytest.mark.parametrize("name", MODELS)
def test_rounding_is_upward_and_no_further(name: str) -> None:
    for terms in SIZES:
        gamma, count = MODELS[name].gamma(terms), gamma_num(name, terms)
        assert Fraction(count - 1, 1 << 40) < gamma <= Fraction(count, 1 << 40)
        rounded = MODELS[name].gamma_fp64(terms)
        assert Fraction(nextafter(rounded, 0.0)) < gamma <= Fraction(rounded)
        assert gamma_num(MODELS[name], terms) == MODELS[name].gamma_num(terms) == count


def test_gamma_num_at_the_sizes_of_the_spec() -> None:
    assert [gamma_num(name, 2560) for name in ("any_order", "fdpa", "fdpa_split_k", "fdpa_tight")] == [
        671498491,
        110105959,
        131079778,
        104862569,
    ]


def test_models_widen_in_order_and_with_size() -> None:
    for terms in SIZES[1:]:
        ordered = [MODELS[name].gamma(terms) for name in ("fdpa_tight", "fdpa", "fdpa_split_k", "any_order")]
        if terms >= 16:
            assert ordered == sorted(ordered)
            assert len(set(ordered)) == 4
        assert all(m.gamma(terms) >= m.gamma(terms - 1) for m in MODELS.values())


def test_other_machines_have_their_own_bound() -> None:
    ampere = fdpa_model(8, 24)
    assert ampere.name == "fdpa_8_24"
    assert ampere.gamma(2560) == (1 + Fraction(9, 1 << 24) + U) ** 320 - 1
    with pytest.raises(ValueError, match="at least 23 fraction bits, got 13"):
        fdpa_model(32, 13)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="any_order: a sum has at least one product, got K = 0"):
        ANY_ORDER.gamma(0)
    with pytest.raises(ValueError, match="any_order: no bound at K = 4194305"):
        ANY_ORDER.gamma(2**22 + 1)
    with pytest.raises(ValueError, match="is not a rational number: zoo"):
        ANY_ORDER.gamma(2**22)
    with pytest.raises(ValueError, match=r"no value for \['F', 'L', 't', 'u'\]"):
        ErrorModel("unbound", models.FDPA_EXPRESSION, (), ())
    with pytest.raises(KeyError):
        gamma_num("no such model", 1)


def test_every_model_says_what_it_takes_for_granted() -> None:
    for model in MODELS.values():
        assert len(model.assumptions) >= 4
        assert all("enters" in sentence or "outside" in sentence for sentence in model.assumptions)


# SymPy: the ways in which an exact expression quietly stops being one


def test_floats_are_refused() -> None:
    with pytest.raises(TypeError, match="not an exact rational"):
        models.evaluate(
            models.TREE_EXPRESSION, ((models.depth, sympy.Integer(2)), (models.u, sympy.Float(2**-23)))
        )


def test_a_symbol_with_other_assumptions_is_another_symbol() -> None:
    plain = sympy.Symbol("K")
    assert plain != models.K
    assert ANY_ORDER.expression.subs(plain, 2560) == ANY_ORDER.expression
    with pytest.raises(ValueError, match="is not a rational number"):
        models.evaluate(
            ANY_ORDER.expression, ((models.u, models.UNIT_ANY_DIRECTION), (plain, sympy.Integer(2560)))
        )


def test_constants_are_rationals_although_python_would_make_floats() -> None:
    assert isinstance(2**-25, float)
    assert isinstance(sympy.sympify(2**-23), sympy.Float)
    for model in MODELS.values():
        assert all(isinstance(value, sympy.Rational) for _, value in model.constants)
    assert not ANY_ORDER.expression.atoms(sympy.Float)


def test_evalf_rounds_below_the_bound() -> None:
    """Why the last step is ours: SymPy's own conversion goes to nearest, so it can fall below γ."""
    below = [
        k
        for k in range(1, 200)
        if Fraction(float(sympy.Rational(*FDPA.gamma(k).as_integer_ratio()))) < FDPA.gamma(k)
    ]
    assert below


# The bounds hold


normal_codes = st.builds(
    lambda e, m, sign: power(e) | m | sign,
    st.integers(-20, 14),
    st.integers(0, 127),
    st.sampled_from([0, 0x8000]),
)
"""BF16 codes whose products stay far from underflow and overflow, so that η is not needed."""


@st.composite
def operand_lists(draw: st.DrawFn, max_terms: int = 70) -> Operands:
    """Operands whose products are arbitrary, cancel, fall off geometrically, or sit on exact ties."""
    kind = draw(st.sampled_from(["any", "cancel", "geometric", "ties"]))
    terms = draw(st.integers(1, max_terms))
    if kind == "geometric":
        step, sign = draw(st.integers(1, 6)), draw(st.sampled_from([0, 0x8000]))
        mantissas = draw(st.lists(st.integers(0, 127), min_size=terms, max_size=terms))
        return [power(max(14 - step * i, -20)) | m for i, m in enumerate(mantissas)], [ONE | sign] * terms
    if kind == "ties":
        places = draw(st.lists(st.sampled_from([-22, -23, -24, -25, -26]), min_size=terms, max_size=terms))
        signs = draw(st.lists(st.sampled_from([0, 0x8000]), min_size=terms, max_size=terms))
        leading = draw(st.sampled_from([ONE, 0x3F7F, ALMOST_TWO]))
        return [leading, *(power(e // 2) for e in places[1:])], [
            ONE,
            *(power(e - e // 2) | s for e, s in zip(places[1:], signs[1:], strict=True)),
        ]
    a = draw(st.lists(normal_codes, min_size=terms, max_size=terms))
    b = draw(st.lists(normal_codes, min_size=terms, max_size=terms))
    if kind == "cancel":
        a, b = a + a, b + [x ^ 0x8000 for x in b]
        order = draw(st.permutations(range(len(a))))
        a, b = [a[i] for i in order], [b[i] for i in order]
    return a, b


@settings(max_examples=150, deadline=None)
@given(
    operand_lists(), st.randoms(use_true_random=False), st.sampled_from([RNE, RZ, RU, RD]), st.integers(2, 5)
)
def test_every_tree_is_within_its_bound(
    operands: Operands, random: Random, mode: RoundingMode, max_children: int
) -> None:
    tree = arbitrary(len(operands[0]), random, max_children=max_children)
    y = sum_tree(exact_products(*operands), tree, mode=mode)
    products = [Fraction(p) for p in exact_products(*operands)]
    error, mass = abs(Fraction(y) - sum(products)), sum(map(abs, products), Fraction(0))
    assert error <= tree_gamma(depth(tree), U / 2 if mode is RNE else U) * mass
    assert error <= ANY_ORDER.gamma(len(products)) * mass


@settings(max_examples=60, deadline=None)
@given(operand_lists(), st.integers(1, 9))
def test_fp32_partials_stay_within_any_order(operands: Operands, splits: int) -> None:
    y = sum_tree(exact_products(*operands), split_k(len(operands[0]), splits), mode=RZ)
    products = [Fraction(p) for p in exact_products(*operands)]
    mass = sum(map(abs, products), Fraction(0))
    assert abs(Fraction(y) - sum(products)) <= ANY_ORDER.gamma(len(products)) * mass


@settings(max_examples=150, deadline=None)
@given(operand_lists())
def test_every_hopper_chain_is_within_its_bound(operands: Operands) -> None:
    error, mass = error_and_mass(fdpa_chain(*operands), operands)
    assert error <= FDPA_TIGHT.gamma(len(operands[0])) * mass
    assert error <= ANY_ORDER.gamma(len(operands[0])) * mass


@settings(max_examples=100, deadline=None)
@given(operand_lists(), st.integers(1, 32), st.integers(23, 27))
def test_other_fused_adders_are_within_any_order(operands: Operands, group: int, fraction_bits: int) -> None:
    y = fdpa_chain(*operands, group=group, fraction_bits=fraction_bits)
    error, mass = error_and_mass(y, operands)
    terms = len(operands[0])
    assert error <= ANY_ORDER.gamma(terms) * mass
    assert error <= fdpa_model(group, fraction_bits, leading_term_cut=False).gamma(terms) * mass


@settings(max_examples=60, deadline=None)
@given(operand_lists(), st.integers(1, 4), st.sampled_from([RNE, RZ, RU, RD]))
def test_split_chains_are_within_the_wider_hopper_bound(
    operands: Operands, splits: int, mode: RoundingMode
) -> None:
    a, b = operands
    size = -(-len(a) // splits)
    size += -size % 16
    total: Fraction = Fraction(0)
    for k in range(0, len(a), size):
        partial = Fraction(decode(fdpa_chain(a[k : k + size], b[k : k + size]), FP32))
        total = Fraction(round_to(total + partial, FP32, mode))
    products = [Fraction(p) for p in exact_products(a, b)]
    mass = sum(map(abs, products), Fraction(0))
    assert abs(total - sum(products)) <= FDPA_SPLIT_K.gamma(len(a)) * mass


wide_codes = st.builds(
    lambda field, m, sign: field << 7 | m | sign,
    st.integers(0, 142),
    st.integers(0, 127),
    st.sampled_from([0, 0x8000]),
)
"""Every BF16 code below 2^16, subnormals included: the range of the specification."""


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(wide_codes, wide_codes), min_size=1, max_size=50), st.randoms(use_true_random=False)
)
def test_eta_covers_subnormals_and_underflow(pairs: list[tuple[int, int]], random: Random) -> None:
    operands = [a for a, _ in pairs], [b for _, b in pairs]
    eta = Fraction(1, 1 << 90)
    error, mass = error_and_mass(fdpa_chain(*operands), operands)
    assert error <= FDPA.gamma(len(pairs)) * mass + eta
    products = exact_products(*operands)
    y = sum_tree(products, arbitrary(len(pairs), random), mode=RZ, product_fmt=FP32)
    exact = sum((Fraction(p) for p in products), Fraction(0))
    assert abs(Fraction(y) - exact) <= ANY_ORDER.gamma(len(pairs)) * mass + eta


def test_a_subnormal_operand_needs_eta() -> None:
    """Its exponent field aligns the step as if it were normal, so the others lose more than γ allows."""
    operands = [0x0001, power(-25)], [power(15), power(-111 - 1)]
    error, mass = error_and_mass(fdpa_chain(*operands), operands)
    assert error > FDPA.gamma(2) * mass
    assert error < Fraction(1, 1 << 90)


# The bounds are not slack: worst sums found, and one node fewer refuted


def worst_chain(steps: int) -> Operands:
    """Each step loses almost 1 quantum (2^-25) of each of 15 products, and almost 4 of one more: the
    accumulator stays 1. The first step holds the 1 itself."""
    cut, lost = (ALMOST_TWO, ALMOST_TWO - (27 << 7)), (ALMOST_TWO, ALMOST_TWO - (25 << 7))
    step = [cut] * 15 + [lost]
    pairs = [(ONE, ONE), *step[1:]] + step * (steps - 1)
    return [a for a, _ in pairs], [b for _, b in pairs]


def test_worst_hopper_chain_reaches_nine_tenths_of_the_bound(
    record_property: Callable[[str, object], None],
) -> None:
    operands = worst_chain(160)
    y = fdpa_chain(*operands)
    assert y == 0x3F800000
    error, mass = error_and_mass(y, operands)
    ratios = {
        m.name: float(error / (m.gamma(2560) * mass)) for m in (FDPA_TIGHT, FDPA, FDPA_SPLIT_K, ANY_ORDER)
    }
    record_property("worst_error_over_bound", ratios)
    print("worst error/bound at K = 2560:", ratios)
    assert 0.94 < ratios["fdpa_tight"] <= 1
    assert 0.89 < ratios["fdpa"] <= 1
    assert 0.75 < ratios["fdpa_split_k"] <= 1
    assert 0.14 < ratios["any_order"] <= 1


@pytest.mark.parametrize("steps", [2, 3, 9])
def test_a_hopper_bound_with_one_node_fewer_is_false(steps: int) -> None:
    operands = worst_chain(steps)
    error, mass = error_and_mass(fdpa_chain(*operands), operands)
    terms = 16 * steps
    assert error > FDPA.gamma(terms - 16) * mass
    assert error > FDPA_TIGHT.gamma(terms - 16) * mass
    assert error <= FDPA_TIGHT.gamma(terms) * mass


def test_a_hopper_bound_without_the_final_rounding_is_false() -> None:
    operands = worst_chain(2)
    error, mass = error_and_mass(fdpa_chain(*operands), operands)
    assert error > ((1 + Fraction(17, 1 << 25)) ** 2 - 1) * mass


def left_to_right(terms: int) -> Tree:
    """`terms - 1` binary nodes."""
    return Tree(terms, ((0, 1), *((terms + j, j + 2) for j in range(terms - 2))))


@pytest.mark.parametrize(
    ("mode", "unit", "small"),
    [(RZ, U, (ALMOST_TWO, ALMOST_TWO - (25 << 7))), (RNE, U / 2, (power(-12), power(-12)))],
    ids=["truncation", "ties to even"],
)
def test_a_tree_bound_with_one_node_fewer_is_false(
    mode: RoundingMode, unit: Fraction, small: tuple[int, int]
) -> None:
    """1 + x + x + ...: truncation loses x = 0.99·2^-23 each time, ties to even x = 2^-24."""
    terms = 64
    operands = [ONE, *[small[0]] * (terms - 1)], [ONE, *[small[1]] * (terms - 1)]
    tree = left_to_right(terms)
    products = [Fraction(p) for p in exact_products(*operands)]
    y = sum_tree(products, tree, mode=mode)
    assert y == 1
    error, mass = abs(Fraction(y) - sum(products)), sum(products, Fraction(0))
    assert depth(tree) == 63
    assert tree_gamma(62, unit) * mass < error <= tree_gamma(63, unit) * mass


def test_any_order_with_half_the_roundings_is_false() -> None:
    """n = 2K has a factor of about two to spare; n = K - 2 no longer covers a chain of 23-bit adders."""
    terms = 512
    cut = (ALMOST_TWO, ALMOST_TWO - (25 << 7))
    operands = [ONE, *[cut[0]] * (terms - 1)], [ONE, *[cut[1]] * (terms - 1)]
    y = FdpaModel("23 bits", "test", fraction_bits=23).chain(*operands)
    error, mass = error_and_mass(y, operands)
    assert 0.49 < error / (ANY_ORDER.gamma(terms) * mass) <= 1
    n = terms - 8
    assert error > n * U / (1 - n * U) * mass


def test_21_fraction_bits_are_outside_any_order() -> None:
    cut = (ALMOST_TWO, ALMOST_TWO - (23 << 7))
    operands = [ONE, *[cut[0]] * 511], [ONE, *[cut[1]] * 511]
    error, mass = error_and_mass(fdpa_chain(*operands, fraction_bits=21), operands)
    assert error > ANY_ORDER.gamma(512) * mass


def test_bf16_partials_are_outside_every_model() -> None:
    """256 + 5/2 - 256 in two parts: 258.5 becomes 258 in BF16, so 2 is left of 5/2."""
    products = [Fraction(x) for x in ("256", "5/2", "-256", "0")]
    tree = split_k(4, 2)
    assert sum_tree(products, tree) == Fraction(5, 2)
    y = Fraction(sum_tree(products, tree, partial_fmt=BF16))
    assert y == 2
    assert abs(y - Fraction(5, 2)) > max(m.gamma(4) for m in MODELS.values()) * Fraction(1029, 2)
