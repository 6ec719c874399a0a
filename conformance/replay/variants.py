"""The weights that workers and verifiers of the experiment run: an honest model, and what could replace it.

The model is the one that `capture` finds. Its file holds Q4_1 layers (groups of 32, a scale and a minimum)
and a Q8_0 embedding; *honest* here means those stored values, dequantised and rounded to BF16, run in BF16:
the served model is defined by these BF16 weights, and the file's own quantisation is part of the model, not a
cheat. Every variant starts from the stored or from the rounded values.

A quantised variant rounds the seven projection matrices of each layer to nearest and back, and runs the
result in BF16; embedding, head and norms stay, as in the usual weight-only schemes. So it has the errors of
the quantised weights, not the speed and not a quantised kernel's own rounding. The four-bit grids are
symmetric, because an asymmetric one of 32 would find the stored Q4_1 grid again and change almost nothing.

`other` stands for another model with the same tokenizer. No second trained model with this vocabulary can be
had offline, so its middle layers are exchanged; `noise` stands for a fine-tuned or merged one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ..capture import find_model_file, load_gguf

State = Mapping[str, torch.Tensor]
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
FP8_MAX = 448.0  # of E4M3 without infinities: 1.75 · 2^8
NOISE = 0.02  # standard deviation of the noise, relative to that of each row of weights
NOISE_SEED = 0


@dataclass(frozen=True)
class Weights:
    """A model that can be built without its file: configuration and parameters."""

    config: Mapping[str, Any]
    state: State


@dataclass(frozen=True)
class Recipe:
    """How one variant's weights come from the stored model, and what it runs them in."""

    name: str
    about: str  # one line
    quantization: str  # as evidence names it
    change: Callable[[Weights], Weights]  # of the FP32 or BF16 weights; returns the same format
    dtype: torch.dtype = torch.bfloat16
    honest: bool = False  # the served model, but for the rounding of arithmetic or of the last bit of weights
    stored: bool = False  # starts from the dequantised values before they are rounded to BF16


class Source:
    """The model file, read at most once in each format."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or find_model_file()

    @cached_property
    def rounded(self) -> Weights:
        """The honest weights, BF16."""
        return self._loaded[0]

    @cached_property
    def stored(self) -> Weights:
        """The dequantised values as the file gives them, FP32."""
        return weights_of(load_gguf(self.path, torch.float32)[0])

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, of transformers."""
        return self._loaded[1]

    @cached_property
    def tokenizer_hash(self) -> str:
        """SHA-256 of the tokenizer's JSON form."""
        return hashlib.sha256(self.tokenizer.backend_tokenizer.to_str().encode()).hexdigest()

    def build(self, recipe: Recipe) -> Any:
        """The recipe's model, ready to run on the CPU."""
        return build(self.weights(recipe), recipe.dtype)

    def weights(self, recipe: Recipe) -> Weights:
        """The recipe's weights, in the format that it runs in."""
        changed = recipe.change(self.stored if recipe.stored else self.rounded)
        return Weights(
            changed.config, {name: value.to(recipe.dtype) for name, value in changed.state.items()}
        )

    @cached_property
    def _loaded(self) -> tuple[Weights, Any]:
        model, tokenizer = load_gguf(self.path)
        return weights_of(model), tokenizer


def weights_of(model: Any) -> Weights:
    """The configuration and parameters of a loaded model; tied parameters are there once."""
    config = {key: value for key, value in model.config.to_dict().items() if key != "quantization_config"}
    return Weights(config, {name: value.detach() for name, value in model.named_parameters()})


def build(weights: Weights, dtype: torch.dtype) -> Any:
    """A model of transformers with these weights, on the CPU.

    Parameters alone are cast: the rotary frequencies are a buffer and stay FP32, as when a file is loaded.
    """
    import transformers

    config = transformers.AutoConfig.for_model(**weights.config)
    model = transformers.AutoModelForCausalLM.from_config(config)
    named = dict(model.named_parameters())
    if named.keys() != weights.state.keys():
        raise ValueError(f"parameters differ: {sorted(named.keys() ^ weights.state.keys())[:4]}")
    for name, parameter in named.items():
        parameter.requires_grad_(False)
        parameter.data = weights.state[name].to(dtype)
    return model.eval()


def weights_hash(weights: Weights) -> str:
    """SHA-256 of the sizes and of every parameter's name, format, shape and bytes, in order of name."""
    sizes = {key: weights.config.get(key) for key in ("model_type", "num_hidden_layers", "rope_parameters")}
    digest = hashlib.sha256(json.dumps(sizes, sort_keys=True).encode())
    for name in sorted(weights.state):
        value = weights.state[name].contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def round_to_nearest(weight: torch.Tensor, bits: int, group: int | None) -> torch.Tensor:
    """Symmetric integer quantisation of a matrix [out, in] and back, FP32.

    One scale per row, or per `group` neighbours in a row: the largest magnitude over 2^(bits-1) - 1, so that
    the lowest of the 2^bits codes stays unused. Ties go to even.
    """
    grouped = weight.float().reshape(weight.shape[0], -1, group or weight.shape[1])
    scale = grouped.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    codes = (grouped / scale.where(scale > 0, 1.0)).round()
    return (codes * scale).reshape(weight.shape)


def round_to_fp8(weight: torch.Tensor) -> torch.Tensor:
    """E4M3 and back, FP32, one scale per row: the largest magnitude becomes the format's largest."""
    wide = weight.float()
    scale = wide.abs().amax(-1, keepdim=True) / FP8_MAX
    return (wide / scale.where(scale > 0, 1.0)).to(torch.float8_e4m3fn).float() * scale


def _unchanged(weights: Weights) -> Weights:
    return weights


def _projections(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Weights], Weights]:
    """The change that maps each projection matrix and leaves the rest."""

    def changed(weights: Weights) -> Weights:
        return Weights(
            weights.config,
            {
                name: change(value).to(value.dtype) if name.split(".")[-2] in PROJECTIONS else value
                for name, value in weights.state.items()
            },
        )

    return changed


def _without_last_layer(weights: Weights) -> Weights:
    layers = weights.config["num_hidden_layers"] - 1
    return Weights(
        {**weights.config, "num_hidden_layers": layers},
        {n: value for n, value in weights.state.items() if not n.startswith(f"model.layers.{layers}.")},
    )


def _swapped_layers(weights: Weights) -> Weights:
    middle = weights.config["num_hidden_layers"] // 2
    first, second = (f"model.layers.{layer}." for layer in (middle - 1, middle))
    partner = {first: second, second: first}

    def source(name: str) -> str:
        for prefix, other in partner.items():
            if name.startswith(prefix):
                return other + name.removeprefix(prefix)
        return name

    return Weights(weights.config, {name: weights.state[source(name)] for name in weights.state})


def _noised(weights: Weights) -> Weights:
    generator = torch.Generator().manual_seed(NOISE_SEED)

    def noised(weight: torch.Tensor) -> torch.Tensor:
        wide = weight.float()
        return wide + NOISE * wide.std(-1, keepdim=True) * torch.randn(wide.shape, generator=generator)

    return _projections(noised)(weights)


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "bf16", "the file's values rounded to BF16: the honest model", "none", _unchanged, honest=True
        ),
        Recipe(
            "fp32", "the honest weights, computed in FP32", "none", _unchanged, torch.float32, honest=True
        ),
        Recipe(
            "stored-fp32",
            "the file's Q4_1 and Q8_0 values before they are rounded to BF16, computed in FP32",
            "gguf-q4_1",
            _unchanged,
            torch.float32,
            honest=True,
            stored=True,
        ),
        Recipe(
            "int8",
            "projections in 8-bit integers, one scale per output channel",
            "int8",
            _projections(lambda w: round_to_nearest(w, 8, None)),
        ),
        Recipe(
            "fp8",
            "projections in FP8 E4M3, one scale per output channel",
            "fp8-e4m3",
            _projections(round_to_fp8),
        ),
        Recipe(
            "int4-g32",
            "projections in symmetric 4-bit integers, groups of 32",
            "int4-g32",
            _projections(lambda w: round_to_nearest(w, 4, 32)),
        ),
        Recipe(
            "int4-g64",
            "projections in symmetric 4-bit integers, groups of 64",
            "int4-g64",
            _projections(lambda w: round_to_nearest(w, 4, 64)),
        ),
        Recipe("29-layers", "the last of the 30 layers left out", "none", _without_last_layer),
        Recipe(
            "noise", f"projections with Gaussian noise of {NOISE:.0%} of each row's spread", "none", _noised
        ),
        Recipe(
            "other",
            "a stand-in for another model: the two middle layers exchanged",
            "none",
            _swapped_layers,
        ),
    )
}
