"""A model in pieces that are small enough to carry: the quantised blocks of its file, and how to unpack them.

`pack` writes, where the model file and its reader are, the file's own blocks under the parameter names of
transformers; `PackedSource` gives the weights back with nothing but torch and safetensors, and refuses
anything but the bits that were packed. Block layouts: GGML's Q4_1 (32 weights: scale and minimum in FP16,
then 16 bytes whose low nibbles are the first 16 codes and whose high nibbles the others; scale · code +
minimum) and Q8_0 (32 weights: scale in FP16, 32 signed bytes; scale · code).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ..errors import BadInput
from .variants import Source, State, Weights, weights_hash

MANIFEST = "model.json"
PART_BYTES = 50_000_000
BLOCK = 32  # weights
NAMES = {  # of a layer's tensors: in the file, and in transformers
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def part(folder: Path, number: int) -> Path:
    """The file of one piece."""
    return folder / f"model-{number}.safetensors"


def pack(source: Source, folder: Path) -> list[Path]:
    """Write the pieces and the manifest of the source's honest weights; returns the files.

    Raises ValueError where the unpacked blocks are not the weights that transformers loads.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    groups: list[dict[str, torch.Tensor]] = [{}]
    packed: dict[str, torch.Tensor] = {}
    kinds: dict[str, str] = {}
    for name, kind, blocks in _blocks(source):
        size = sum(t.numel() * t.element_size() for t in groups[-1].values())
        if groups[-1] and size + blocks.numel() * blocks.element_size() > PART_BYTES:
            groups.append({})
        groups[-1][name] = packed[name] = blocks
        kinds[name] = kind
    unpacked = _unpack(packed, kinds)
    expected = source.rounded.state
    if unpacked.keys() != expected.keys():
        raise ValueError(f"parameters differ: {sorted(unpacked.keys() ^ expected.keys())[:4]}")
    for name, value in expected.items():
        if not torch.equal(unpacked[name], value):
            raise ValueError(f"{name}: unpacking the file's blocks does not give what transformers loads")
    files = [part(folder, number) for number in range(len(groups))]
    for path, group in zip(files, groups, strict=True):
        save_file(group, path)
    manifest = folder / MANIFEST
    manifest.write_text(
        json.dumps(
            {
                "name": source.path.stem.split(".")[0],
                "config": dict(source.rounded.config),
                "kinds": kinds,
                "parts": len(files),
                "weights_sha256": weights_hash(source.rounded),
                "tokenizer_hash": source.tokenizer_hash,
            }
        ),
        encoding="utf-8",
    )
    return [manifest, *files]


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `pack` wrote beside the pieces. Raises BadInput where it is not there."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as problem:
        raise BadInput(f"{folder / MANIFEST}: {problem.strerror}: pack the model first") from None
    return manifest


class PackedSource(Source):
    """The model from its pieces in `folder`; there is no tokenizer.

    Raises BadInput naming a piece that is missing, or when the weights have another hash than was packed.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.manifest = read_manifest(folder)

    @cached_property
    def rounded(self) -> Weights:
        """See `Source`."""
        weights = Weights(self.manifest["config"], _unpack(self._packed, self.manifest["kinds"]))
        if weights_hash(weights) != self.manifest["weights_sha256"]:
            raise BadInput(f"{self.path}: the parts unpack to other weights than were packed")
        return weights

    @cached_property
    def stored(self) -> Weights:
        """See `Source`."""
        return Weights(self.manifest["config"], _unpack(self._packed, self.manifest["kinds"], torch.float32))

    @cached_property
    def tokenizer_hash(self) -> str:
        """See `Source`."""
        return str(self.manifest["tokenizer_hash"])

    @cached_property
    def _packed(self) -> dict[str, torch.Tensor]:
        from safetensors.torch import load_file

        packed: dict[str, torch.Tensor] = {}
        for number in range(self.manifest["parts"]):
            path = part(self.path, number)
            if not path.exists():
                raise BadInput(f"{path}: is missing; there are {self.manifest['parts']} parts")
            packed.update(load_file(path))
        return packed


def unpack_blocks(blocks: torch.Tensor, kind: str) -> torch.Tensor:
    """The FP32 weights [rows, columns] of blocks uint8 [rows, bytes]; ValueError for other kinds."""
    rows = blocks.shape[0]
    if kind == "Q4_1":
        each = blocks.reshape(rows, -1, 4 + BLOCK // 2)
        scale, minimum = (_fp16(each[..., 2 * i : 2 * i + 2]) for i in range(2))
        codes = torch.cat([each[..., 4:] & 15, each[..., 4:] >> 4], dim=-1).float()
        return (scale * codes + minimum).reshape(rows, -1)
    if kind == "Q8_0":
        each = blocks.reshape(rows, -1, 2 + BLOCK)
        codes = each[..., 2:].contiguous().view(torch.int8).float()
        return (_fp16(each[..., :2]) * codes).reshape(rows, -1)
    raise ValueError(f"{kind}: only Q4_1 and Q8_0 blocks can be unpacked")


def _fp16(pairs: torch.Tensor) -> torch.Tensor:
    """FP32 [..., 1] from two little-endian bytes [..., 2] of FP16."""
    return pairs.contiguous().view(torch.float16).float()


def _unpack(
    packed: State, kinds: dict[str, str], dtype: torch.dtype = torch.bfloat16
) -> dict[str, torch.Tensor]:
    return {
        name: (blocks if kinds[name] == "F32" else unpack_blocks(blocks, kinds[name])).to(dtype)
        for name, blocks in packed.items()
    }


def _blocks(source: Source) -> Iterator[tuple[str, str, torch.Tensor]]:
    """Name, kind, and blocks uint8 [rows, bytes] or FP32 values of each parameter, in transformers' order."""
    from gguf import GGUFReader

    config = source.rounded.config
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    for tensor in GGUFReader(source.path).tensors:
        kind = tensor.tensor_type.name
        data = torch.from_numpy(tensor.data.copy())
        match tensor.name.split("."):
            case ["token_embd", "weight"]:
                name = "model.embed_tokens.weight"
            case ["output_norm", "weight"]:
                name = "model.norm.weight"
            case ["blk", layer, which, "weight"] if which in NAMES:
                name = f"model.layers.{layer}.{NAMES[which]}.weight"
                if which in heads:  # the file interleaves the two halves of each head's rotary pairs
                    by_head = data.reshape(heads[which], -1, 2, data.shape[-1])
                    data = by_head.transpose(1, 2).reshape(data.shape).contiguous()
            case _:
                raise ValueError(f"{tensor.name}: a tensor without a place in this model")
        yield name, kind, data
