"""The weights of the experiment: what each recipe changes, and pieces that unpack to the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from certhead.conformance.errors import BadInput
from certhead.conformance.replay.packed_model import (
    MANIFEST,
    PackedSource,
    unpack_blocks,
)
from certhead.conformance.replay.replay_prompts import BUCKETS, PER_BUCKET, SHORT, make_prompts, text
from certhead.conformance.replay.variants import (
    PROJECTIONS,
    RECIPES,
    build,
    round_to_fp8,
    round_to_nearest,
    weights_hash,
    weights_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from replay.replay_models import TinySource, encode, tiny_llama

WEIGHT = torch.randn(6, 64, generator=torch.Generator().manual_seed(3))


def is_projection(name: str) -> bool:
    return name.split(".")[-2] in PROJECTIONS


@pytest.mark.parametrize(("bits", "group"), [(8, None), (4, 32), (4, 64), (4, None)])
def test_rounding_is_to_the_nearest_of_an_integer_grid(bits: int, group: int | None) -> None:
    found = round_to_nearest(WEIGHT, bits, group).reshape(6, -1, group or 64)
    wide = WEIGHT.reshape(6, -1, group or 64)
    largest = 2 ** (bits - 1) - 1
    for row in range(6):
        for place in range(wide.shape[1]):
            scale = wide[row, place].abs().max() / largest
            grid = torch.arange(-largest, largest + 1) * scale
            distance = (wide[row, place, :, None] - grid).abs()
            assert torch.equal(found[row, place], grid[distance.argmin(-1)])


def test_rounding_keeps_zeros() -> None:
    assert not round_to_nearest(torch.zeros(2, 64), 4, 32).any()
    assert not round_to_fp8(torch.zeros(2, 64)).any()


def test_fp8_has_three_bits_of_mantissa_below_each_rows_largest() -> None:
    found = round_to_fp8(WEIGHT)
    largest = WEIGHT.abs().amax(-1, keepdim=True)
    assert torch.allclose(found.abs().amax(-1, keepdim=True), largest, rtol=2**-23, atol=0)
    normal = WEIGHT.abs() > largest * 2.0**-14  # 448 times this is E4M3's smallest normal number
    error = ((found - WEIGHT) / WEIGHT)[normal].abs().max()
    assert 2**-6 < error <= 2**-4 + 2**-20


def test_every_recipe_changes_what_it_says_and_nothing_else() -> None:
    source = TinySource()
    honest = source.weights(RECIPES["bf16"])
    hashes = {}
    for name, recipe in RECIPES.items():
        weights = source.weights(recipe)
        hashes[name] = weights_hash(weights)
        assert all(value.dtype == recipe.dtype for value in weights.state.values())
        changed = {
            n for n, value in weights.state.items() if not torch.equal(value.float(), honest.state[n].float())
        }
        if name in ("int8", "fp8", "int4-g32", "int4-g64", "noise"):
            assert changed == {n for n in honest.state if is_projection(n)}
        elif name == "29-layers":
            assert not changed
            assert {n.split(".")[2] for n in honest.state if n not in weights.state} == {"1"}
        elif name == "other":
            assert changed
            for n in changed:
                partner = n.replace("layers.0", "layers.x").replace("layers.1", "layers.0")
                partner = partner.replace("layers.x", "layers.1")
                assert torch.equal(weights.state[n], honest.state[partner])
        elif name == "stored-fp32":
            assert changed
            assert all(torch.equal(weights.state[n].bfloat16(), honest.state[n]) for n in honest.state)
        else:
            assert not changed
    assert len(set(hashes.values())) == len(hashes)
    assert hashes == {name: weights_hash(source.weights(recipe)) for name, recipe in RECIPES.items()}


def test_a_built_model_has_the_bits_of_the_one_that_was_loaded(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16)
    again = build(weights_of(model), torch.bfloat16)
    ids = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    with torch.no_grad():
        assert torch.equal(model(ids).logits, again(ids).logits)
    assert again.model.rotary_emb.inv_freq.dtype == torch.float32


def test_a_model_without_its_last_layer_runs() -> None:
    model = TinySource().build(RECIPES["29-layers"])
    assert model.config.num_hidden_layers == 1
    with torch.no_grad():
        assert model(torch.tensor([[1, 2, 3]])).logits.isfinite().all()


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 3), blocks=st.integers(1, 3))
@settings(max_examples=15)
@pytest.mark.parametrize("kind", ["Q4_1", "Q8_0"])
def test_blocks_unpack_as_the_reader_of_the_format_says(kind: str, seed: int, rows: int, blocks: int) -> None:
    gguf = pytest.importorskip("gguf")
    values = np.random.default_rng(seed).normal(size=(rows, 32 * blocks)).astype(np.float32)
    kind_of = gguf.GGMLQuantizationType[kind]
    packed = gguf.quants.quantize(values, kind_of)
    expected = gguf.quants.dequantize(packed, kind_of)
    found = unpack_blocks(torch.from_numpy(packed), kind).numpy()
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_a_missing_piece_and_other_weights_are_named(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    with pytest.raises(BadInput, match="pack the model first"):
        PackedSource(tmp_path)
    manifest = {"config": {}, "kinds": {"a": "F32"}, "parts": 1, "weights_sha256": "00", "tokenizer_hash": ""}
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(BadInput, match=r"model-0.safetensors: is missing; there are 1 parts"):
        _ = PackedSource(tmp_path).rounded
    save_file({"a": torch.ones(2)}, tmp_path / "model-0.safetensors")
    with pytest.raises(BadInput, match="unpack to other weights than were packed"):
        _ = PackedSource(tmp_path).rounded


def test_prompts_have_their_lengths_and_are_all_different() -> None:
    prompts = make_prompts(encode)
    assert [len(prompt.input_ids) for prompt in prompts] == [n for n in BUCKETS for _ in range(PER_BUCKET)]
    short = make_prompts(encode, (SHORT,))
    assert {len(prompt.input_ids) for prompt in short} == {SHORT}
    assert len({prompt.sample_id for prompt in prompts}) == len(prompts) == 208
    assert len({text(number) for number in range(1040)}) == 1040


def test_a_length_beyond_the_texts_is_refused() -> None:
    with pytest.raises(ValueError, match="not 90000"):
        make_prompts(encode, (90_000,), 1)
