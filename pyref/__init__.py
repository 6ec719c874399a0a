"""Exact arithmetic: formats, rounding, sums, error models and the reference certifier.

Integers and exact rationals only; the scalar functions are the specification, the `*_vector` twins are
for whole heads and are tested equal to them.
"""

from .codec import decode, encode
from .fdpa import fdpa, fdpa_chain
from .fdpa_vector import fdpa_chain_vector, fdpa_vector
from .formats import BF16, FP8_E4M3, FP8_E5M2, FP16, FP32, FP64, Format
from .head import certify, stock_token
from .models import ANY_ORDER, FDPA, ErrorModel
from .rounding import RoundingMode, next_down, next_up, round_to, sqrt_round, ulp

__all__ = [
    "ANY_ORDER",
    "BF16",
    "FDPA",
    "FP8_E4M3",
    "FP8_E5M2",
    "FP16",
    "FP32",
    "FP64",
    "ErrorModel",
    "Format",
    "RoundingMode",
    "certify",
    "decode",
    "encode",
    "fdpa",
    "fdpa_chain",
    "fdpa_chain_vector",
    "fdpa_vector",
    "next_down",
    "next_up",
    "round_to",
    "sqrt_round",
    "stock_token",
    "ulp",
]
