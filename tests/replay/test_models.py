"""Models by name: a folder's model and tokenizer, and names that mean nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch
from certhead.conformance.errors import BadInput
from certhead.conformance.replay.models import Engine, load
from certhead.conformance.replay.trace import Sampling

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
WORDS = ["<pad>", "<s>", "</s>", "<user>", "hello", "world", "[UNK]"]
TEMPLATE = "{% for m in messages %}<user> {{ m['content'] }}{% endfor %}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        intermediate_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(path)
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    fast.chat_template = TEMPLATE
    fast.save_pretrained(path)
    return path


def test_a_folder_is_loaded_with_its_tokenizer(folder: Path) -> None:
    loaded = load(Engine.TRANSFORMERS, str(folder), "bf16", "cpu", 4)
    assert (loaded.name, loaded.quantization) == (folder.name, "none")
    assert list(loaded.encode("hello world")) == [4, 5]
    assert loaded.chat is not None
    assert list(loaded.chat("hello")) == [3, 4]
    (trace,) = loaded.backend.decode([[4, 5]], Sampling(max_new_tokens=3), 4, 1, ignore_eos=True)
    assert trace.top_ids.shape == (3, 4)
    assert loaded.backend.about().dtype == "bfloat16"
    again = load(Engine.TRANSFORMERS, str(folder), "bf16", "cpu", 4)
    assert again.tokenizer_hash == loaded.tokenizer_hash
    assert len(bytes.fromhex(loaded.tokenizer_hash)) == hashlib.sha256().digest_size


@pytest.mark.parametrize(
    ("engine", "model", "weights", "message"),
    [
        (Engine.TRANSFORMERS, "smollm2", "int3", "--weights int3: not one of bf16, "),
        (Engine.TRANSFORMERS, "nowhere", "bf16", "--model nowhere: is no folder with a config.json"),
        (Engine.TRANSFORMERS, "nowhere", "int8", "--weights int8: only smollm2 with transformers has"),
        (Engine.VLLM, "smollm2", "bf16", "--model smollm2: is no folder with a config.json"),
    ],
)
def test_names_that_mean_nothing_are_refused(engine: Engine, model: str, weights: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        load(engine, model, weights, "cpu", 4)


def test_a_missing_engine_and_a_broken_folder_are_named(folder: Path, tmp_path: Path) -> None:
    try:
        import vllm  # noqa: F401
    except ImportError:
        with pytest.raises(BadInput, match="vllm is not installed"):
            load(Engine.VLLM, str(folder), "bf16", "cpu", 4)
    (tmp_path / "config.json").write_text("{}", "utf-8")
    with pytest.raises(BadInput, match=f"--model {tmp_path}: "):
        load(Engine.TRANSFORMERS, str(tmp_path), "bf16", "cpu", 4)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_named() -> None:
    with pytest.raises(BadInput, match="--device cuda: there is no GPU"):
        load(Engine.TRANSFORMERS, "smollm2", "bf16", "cuda", 4)
