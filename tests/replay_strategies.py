"""Hypothesis strategies for evidence files as plain JSON data: header, sample lines; no product code."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

IDS = st.one_of(st.integers(0, 9), st.integers(0, 2**63 - 1))
RANKS = st.one_of(st.integers(1, 3), st.integers(1, 2**31 - 1))
LOGPROBS = st.floats(max_value=0.0, allow_nan=False, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=6)
COUNTS = st.integers(1, 2**63 - 1)


@st.composite
def headers(draw: st.DrawFn, promised: int) -> dict[str, Any]:
    """A first line that promises that many entries."""
    texts = {
        name: draw(TEXTS) for name in ("model", "dtype", "quantization", "device", "engine", "engine_version")
    }
    return {
        "schema": "certhead.replay/1",
        "variant": {
            **texts,
            "tokenizer_hash": draw(st.binary(min_size=32, max_size=32)).hex(),
            "batch_size": draw(COUNTS),
            "logprobs": promised,
            "sampling": {
                "temperature": draw(st.floats(0.0, 1e300)),
                "top_p": draw(st.floats(0.0, 1.0)),
                "top_k": draw(st.integers(0, 100)),
                "max_new_tokens": draw(COUNTS),
                "seed": draw(st.none() | st.integers(0, 2**63 - 1)),
            },
            "extra": draw(st.dictionaries(TEXTS, TEXTS, max_size=3)),
        },
    }


@st.composite
def steps(draw: st.DrawFn, depth: int, promised: int) -> dict[str, Any]:
    """The object for one depth; missing values, ties and targets outside the list included."""
    known = draw(st.integers(0, promised))
    ids = draw(st.lists(IDS, min_size=known, max_size=known, unique=True))
    logprobs = sorted(draw(st.lists(LOGPROBS, min_size=known, max_size=known)), reverse=True)
    target = draw(st.sampled_from(ids) | IDS if ids else IDS)
    if target in ids:
        selected: float | None = logprobs[ids.index(target)]
    else:
        ceiling = logprobs[-1] if known == promised else 0.0
        selected = draw(st.none() | LOGPROBS.map(lambda x: min(x, ceiling)))
    entries = [[i, x, draw(RANKS)] for i, x in zip(ids, logprobs, strict=True)]
    return {
        "depth": depth,
        "target_token_id": target,
        "selected_logprob": selected,
        "selected_rank": draw(st.none() | RANKS),
        "top_logprobs": [*entries, *[None] * (promised - known)],
    }


@st.composite
def samples(draw: st.DrawFn, sample_id: str, promised: int) -> dict[str, Any]:
    """A sample line without a commitment."""
    trace = [draw(steps(d, promised)) for d in range(draw(st.integers(1, 3)))]
    return {
        "sample_id": sample_id,
        "input_ids": draw(st.lists(IDS, min_size=1, max_size=4)),
        "output_ids": [step["target_token_id"] for step in trace],
        "trace": trace,
    }


@st.composite
def files(draw: st.DrawFn, most: int = 6) -> list[dict[str, Any]]:
    """The lines of a file without commitments and footer: a header, and at most `most` samples."""
    promised = draw(st.integers(1, 4))
    names = draw(st.lists(TEXTS.filter(bool), max_size=most, unique=True))
    return [draw(headers(promised)), *[draw(samples(name, promised)) for name in names]]
