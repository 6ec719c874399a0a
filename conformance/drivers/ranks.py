"""Heads split over ranks: each rank's rows are a head of their own to the driver, and the winners are merged.

A `head` case with `ranks` in `in`, the first row of each rank, wants the whole head's token, and each rank's
winner as a row of the whole head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from certhead.conformance.cases import Answer, Case, unpack
from certhead.conformance.cases import pack as packed
from certhead.pyref.codec import decode
from certhead.pyref.fdpa import HOPPER
from certhead.pyref.formats import BF16, FP32
from certhead.pyref.ranks import Winner, merge
from certhead.pyref.rounding import RoundingMode, round_to_bits


def shards(case: Case) -> list[tuple[int, Case]]:
    """(first row, the rank's head) of each rank. Raises ValueError unless every rank has a row."""
    weight, starts = case.given["weight"], case.given["ranks"]
    ends = [*starts[1:], len(weight)]
    if starts[0] != 0 or any(a >= b for a, b in zip(starts, ends, strict=True)):
        raise ValueError(f"ranks that start at rows {starts} do not divide {len(weight)} rows")
    rest = {name: value for name, value in case.given.items() if name != "ranks"}
    return [
        (a, Case(f"{case.id}/rank-{n}", case.stage, case.family, rest | {"weight": weight[a:b]}, {}))
        for n, (a, b) in enumerate(zip(starts, ends, strict=True))
    ]


def answer_ranks(answer: Callable[[Case], Answer], case: Case) -> Answer:
    """What a driver's heads give, one for each rank, merged; None where it does not say some rank's token."""
    parts = [(start, _tokens(answer(shard))) for start, shard in shards(case)]
    rows, states = case.rows("weight"), case.rows("hidden")
    winners: list[str | None] = []
    tokens: list[str | None] = []
    for m, state in enumerate(states):
        chosen = [(start, tokens_of[m]) for start, tokens_of in parts]
        found = [start + unpack("token", text)[0] for start, text in chosen if text]
        if len(found) < len(parts):
            winners.append(None)
            tokens.append(None)
            continue
        winners.append(packed("winners", found))
        tokens.append(packed("token", [merge([Winner(i, logit_bits(rows[i], state)) for i in found]).row]))
    return {"decide": {"winners": winners}, "token": {"token": tokens}}


def _tokens(answer: Answer) -> list[str | None]:
    """What the head returns; what it decided, where a driver does not say what a fallback returns."""
    fields = answer.get("token") or {"token": answer["decide"]["token"]}
    return [None if text == "none" else text for text in fields["token"]]


def logit_bits(row: Sequence[int], state: Sequence[int]) -> int:
    """The stock logit by the Hopper chain, BF16 bits."""
    bits = HOPPER.chain(state, row)
    value = decode(bits, FP32)
    if value - value != 0:  # NaN or infinite
        return bits >> 16 | (0x40 if value != value else 0)
    return round_to_bits(value, BF16, RoundingMode.RNE)
