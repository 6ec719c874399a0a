"""Somebody else's head under the same tests: plain NumPy, speaking JSON lines on stdin and stdout.

    certhead cases --driver "external:python examples/external_head.py"

It knows nothing of certhead: it answers the stages `decide` and `quantize` (codes and scales only) from
docs/spec.md. What a program does not offer it calls unsupported; what it offers must have the right bits.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

PROTOCOL = "certhead.protocol/1"


def values(text: str, dtype: str) -> np.ndarray:
    """Hex as big-endian integers of that type."""
    return np.frombuffer(bytes.fromhex(text), dtype=dtype)


def fp32(bits: np.ndarray) -> np.ndarray:
    """FP32 bit patterns as numbers."""
    return bits.astype(np.uint32).view(np.float32)


def round_bf16(x: np.ndarray) -> np.ndarray:
    """To BF16, nearest, ties to even; kept as FP32."""
    bits = x.view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32)


def decide(given: dict[str, Any]) -> dict[str, list[str]]:
    """Exact: the first largest logit. Enclosed: the row that no other can reach, or none."""
    exact = given["mode"] == "exact"
    lows = given["accumulators"] if exact else given["lo"]
    highs = lows if exact else given["hi"]
    tokens = []
    for low, high in zip(lows, highs, strict=True):
        lo = round_bf16(fp32(values(low, ">u4")))
        hi = round_bf16(fp32(values(high, ">u4")))
        k = int(np.argmax(lo))
        contested = bool((hi[:k] >= lo[k]).any() or (hi[k + 1 :] > lo[k]).any())
        tokens.append("none" if contested else f"{k:08x}")
    return {"token": tokens}


def quantize(given: dict[str, Any]) -> dict[str, list[str]]:
    """Scale and codes of every row."""
    scales, codes = [], []
    for text in given["weight"]:
        row = fp32(values(text, ">u2").astype(np.uint32) << 16).astype(np.float64)
        largest = max(np.abs(row).max() / 127, 2.0**-50)
        bits = int(np.float32(largest).view(np.uint32))
        if np.float64(np.uint32(bits).view(np.float32)) < largest:
            bits += 1
        scale = (bits + 0xFFFF) & 0xFFFF0000  # up to BF16
        step = np.float64(np.uint32(scale).view(np.float32))
        codes.append(np.rint(row / step).astype(np.int8).tobytes().hex())
        scales.append(f"{scale >> 16:04x}")
    return {"scale": scales, "codes": codes}


STAGES = {"decide": decide, "quantize": quantize}


def main() -> None:
    """Answers one line with one line until there are no more."""
    for line in sys.stdin:
        request = json.loads(line)
        if "protocol" in request:
            reply: dict[str, Any] = {"protocol": PROTOCOL, "name": "numpy"}
        elif request["stage"] not in STAGES:
            reply = {"id": request["id"], "unsupported": True}
        else:
            stage = request["stage"]
            reply = {"id": request["id"], "out": {stage: STAGES[stage](request["in"])}}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
