"""The CPU's chain of multiply-adds: its bits against exact arithmetic, and what counts as finding it."""

from fractions import Fraction

import pytest
import torch
from certhead.conformance.stages import compare_stages
from certhead.kernels import CertifiedHead, State, fma_chain
from certhead.kernels.fma_chain import ChainFound, FmaChain, candidates, find_chain, has_tiny
from certhead.kernels.quantize import bits
from certhead.pyref import BF16, FP32, RoundingMode, decode, round_to


def exact_chain(chain: FmaChain, hidden: list[int], row: list[int]) -> Fraction:
    """The same chain on rationals: each step one rounding of the exact sum."""

    def add(a: Fraction, b: Fraction) -> Fraction:
        return Fraction(round_to(a + b, FP32, RoundingMode.RNE))

    total: Fraction | None = None
    for block in chain.order(len(row)):
        accumulator = Fraction(0)
        for k in block:
            product = Fraction(decode(hidden[k], BF16)) * Fraction(decode(row[k], BF16))
            accumulator = add(accumulator, product)
        total = accumulator if total is None else add(total, accumulator)
    assert total is not None
    return total


@pytest.mark.parametrize(
    "chain",
    [FmaChain(4, True), FmaChain(4, False), FmaChain(5, True), FmaChain(64, True), FmaChain(16, False)],
)
@pytest.mark.parametrize("columns", [1, 2, 7, 48])
def test_the_chain_has_the_bits_of_exact_arithmetic(chain: FmaChain, columns: int) -> None:
    g = torch.Generator().manual_seed(columns)
    scale = torch.ldexp(torch.ones(columns), torch.randint(-9, 9, (columns,), generator=g))
    hidden = (torch.randn(2, columns, generator=g) * scale).bfloat16()
    rows = torch.randn(2, 5, columns, generator=g).bfloat16()
    got = chain(hidden, rows)
    for p in range(2):
        for r in range(5):
            want = exact_chain(chain, bits(hidden[p]).tolist(), bits(rows[p, r]).tolist())
            assert Fraction(float(got[p, r])) == want


def test_orders_by_hand() -> None:
    assert FmaChain(4, True).order(7) == [[1, 0, 3, 2], [5, 4, 6]]
    assert FmaChain(4, False).order(7) == [[0, 1, 2, 3], [4, 5, 6]]
    assert len(candidates(576)) == len(set(candidates(576))) == 6


WEIGHT = (torch.randn(4200, 64, generator=torch.Generator().manual_seed(0)) * 0.1).bfloat16()


def stock_is(monkeypatch: pytest.MonkeyPatch, chain: FmaChain | None) -> None:
    """Let the stock product be a chain, or (None) a sum in FP64."""

    def matmul(hidden: torch.Tensor, transposed: torch.Tensor) -> torch.Tensor:
        weight = transposed.T
        if chain is None:
            return (hidden.double() @ weight.double().T).to(torch.bfloat16)
        return torch.stack([chain(h[None], weight[None])[0] for h in hidden]).to(torch.bfloat16)

    monkeypatch.setattr(torch, "matmul", matmul)


@pytest.mark.parametrize("chain", candidates(64))
def test_the_stock_order_is_found(monkeypatch: pytest.MonkeyPatch, chain: FmaChain) -> None:
    stock_is(monkeypatch, chain)
    found = find_chain(WEIGHT, 3, logits=60_000)
    assert found.chain == chain
    assert found.logits >= 60_000


@pytest.mark.parametrize("other", [FmaChain(16, True), FmaChain(32, False), FmaChain(2, True), None])
def test_another_arithmetic_is_not_taken_for_one(
    monkeypatch: pytest.MonkeyPatch, other: FmaChain | None
) -> None:
    stock_is(monkeypatch, other)
    assert find_chain(WEIGHT, 3, logits=60_000).chain is None


def test_small_heads_and_tiny_weights_are_left_alone() -> None:
    assert find_chain(WEIGHT[:4000], 1) == ChainFound(None, 0, 2)
    tiny = WEIGHT.clone()
    tiny[7, 7] = 2.0**-56
    assert has_tiny(tiny)
    assert not has_tiny(WEIGHT)
    assert find_chain(tiny, 1) == ChainFound(None, 0, 2)


def test_the_head_serves_exactly_where_it_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    chain = FmaChain(64, True)
    stock_is(monkeypatch, chain)
    monkeypatch.setattr(fma_chain.find_chain, "__kwdefaults__", {"logits": 60_000, "seed": 0})
    head = CertifiedHead(WEIGHT, identify=True)
    hidden = torch.randn(3, 64, generator=torch.Generator().manual_seed(5)).bfloat16()
    decision = head.decide(hidden)
    assert decision.states.tolist() == [State.EXACT] * 3
    assert torch.equal(decision.tokens, head.stock_tokens(hidden))
    assert head.identifications() == {3: (str(chain), head.engine.chains[3, torch.get_num_threads()].logits)}  # type: ignore[attr-defined]
    assert not any(r.differing for r in compare_stages(head, hidden))
    hidden[1, 2] = 2.0**-60  # a machine may flush what comes of it
    assert head.decide(hidden).states[0] != State.EXACT
    assert torch.equal(head(hidden), head.stock_tokens(hidden))


def test_without_identification_the_head_encloses() -> None:
    head = CertifiedHead(WEIGHT)
    assert head.mode == "enclosed"
    assert head.exact_for(WEIGHT[:1]) is None
    assert head.identifications() == {}
