"""`CertifiedHead`: the module that replaces `lm_head` and argmax and returns the same tokens.

It keeps the stock weight (for the few rows that are rescored, and for the fallback) and an int8 copy
(for the screen). See docs/spec.md for the stages and `decision.State` for how a position can end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import torch
from certhead.pyref import head as spec
from certhead.pyref.models import ANY_ORDER, ErrorModel

from . import torch_stages as stages
from .decision import Decision
from .engine import Engine
from .quantize import QuantizedHead, quantize
from .torch_engine import TorchEngine

BACKENDS = ("auto", "torch", "cuda")


class CertifiedHead(torch.nn.Module):
    """Greedy output head with the stock head's tokens.

    weight: bfloat16 [V, K], contiguous, finite, below 2^16 in magnitude; V ≥ 1, 1 ≤ K ≤ 2^15. It is
    referenced, not copied; changing it afterwards is an error that calls notice by its version counter
    and `verify` by its digest.
    backend: "torch" on any device, "cuda" for the Triton kernels, "auto" for the faster of those that run.
    model: the error model that the stock kernel is taken to satisfy.
    exact: for the torch back end, the identified stock arithmetic (see `torch_stages.Rescorer`), or None
    for enclosed mode. The cuda back end identifies it itself, for each batch shape.
    identify: for the torch back end on a CPU, look for the stock arithmetic at each new batch shape
    (`fma_chain.find_chain`, about a second each) and serve in exact mode where it was found.
    group, block, capacity: columns per residual norm, rows per candidate block, blocks per position.
    checksum: for the cuda back end, whether the screen's integer sums are checked on every call; None for
    "where a measurement says that it costs less than 3 %".
    progress: called with the number of rows quantised so far, chunk by chunk.

    Raises TypeError for a wrong dtype and ValueError for a wrong shape or value, naming it.
    """

    weight: torch.Tensor

    def __init__(
        self,
        weight: torch.Tensor,
        *,
        backend: str = "auto",
        model: ErrorModel = ANY_ORDER,
        exact: stages.Rescorer | None = None,
        identify: bool = False,
        group: int | None = None,
        block: int = spec.BLOCK,
        capacity: int = spec.CAPACITY,
        checksum: bool | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        super().__init__()
        if backend not in BACKENDS:
            raise ValueError(f"backend {backend!r} is not one of {', '.join(BACKENDS)}")
        if backend == "cuda" and not weight.is_cuda:
            raise ValueError(f"backend 'cuda' needs a weight on a CUDA device, not on {weight.device}")
        _check_weight(weight)
        for name, value in (("group", group), ("block", block), ("capacity", capacity)):
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        columns = weight.shape[1]
        weight = weight.detach()
        self.register_buffer("weight", weight, persistent=False)
        self.error_model = model
        self.block = block
        self.capacity = capacity
        self.backend = ("cuda" if weight.is_cuda else "torch") if backend == "auto" else backend
        if group is None:
            group = _kernel_group(columns) if self.backend == "cuda" else spec.default_group(columns)
        self.group = min(group, columns)
        self.gamma_num = model.gamma_num(columns)
        self.digest = _digest(weight)
        self._version = weight._version
        self._pointer = weight.data_ptr()
        copy = quantize(weight, self.group, progress)
        self.engine: Engine
        if self.backend == "cuda":
            from .triton_engine import TritonEngine  # Triton is an optional dependency

            self.engine = TritonEngine(weight, copy, self.gamma_num, block, capacity, checksum)
        else:
            self.engine = TorchEngine(
                weight, copy, self.gamma_num, block, capacity, exact, identify and not weight.is_cuda
            )

    @classmethod
    def from_model(cls, model: Any, **options: Any) -> CertifiedHead:
        """The head of a Hugging Face causal language model.

        Refuses (ValueError) what changes the logits after the product: a bias, a soft cap, a scale, and
        a vocabulary padded beyond the configured size.
        """
        linear, config = model.get_output_embeddings(), model.config
        if getattr(linear, "bias", None) is not None:
            raise ValueError(f"the head has a bias of shape {tuple(linear.bias.shape)}: not supported")
        for key in ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier"):
            value = getattr(config, key, None)
            if value not in (None, 1, 1.0):
                raise ValueError(f"the head's logits are transformed ({key}={value}): not supported")
        vocab = getattr(config, "vocab_size", linear.weight.shape[0])
        if linear.weight.shape[0] != vocab:
            raise ValueError(
                f"the head has {linear.weight.shape[0]} rows for a vocabulary of {vocab}: "
                "padded vocabularies are not supported"
            )
        return cls(linear.weight, **options)

    @property
    def mode(self) -> str:
        """`exact` or `enclosed`: how candidates are rescored."""
        return self.engine.mode

    @property
    def model_name(self) -> str:
        """Name of the error model that the intervals rest on."""
        return self.error_model.name

    @property
    def copy(self) -> QuantizedHead:
        """The int8 copy that the screen reads."""
        return self.engine.copy

    @property
    def exact(self) -> stages.Rescorer | None:
        """The identified stock arithmetic that candidates are rescored with; None in enclosed mode."""
        return self.engine.exact

    def exact_for(self, hidden: torch.Tensor) -> stages.Rescorer | None:
        """What re-scores these states exactly on the torch back end, or None (enclosed mode, or cuda)."""
        return self.engine.exact_for(hidden)

    def identifications(self) -> dict[int, tuple[str | None, int]]:
        """By number of positions: the stock arithmetic found (or None), and on how many logits."""
        return self.engine.identifications()

    @property
    def counters(self) -> dict[str, int]:
        """Positions served so far, by state and by reason; reading it waits for the device."""
        return self.engine.counters()

    @property
    def copy_bytes(self) -> int:
        """Bytes of int8 codes."""
        return self.copy.codes.numel()

    @property
    def metadata_bytes(self) -> int:
        """Bytes of scales, norms and checksums beside the codes."""
        return self.engine.metadata_bytes

    def extra_repr(self) -> str:
        v, k = self.weight.shape
        return f"V={v}, K={k}, backend={self.backend}, mode={self.mode}, model={self.model_name}"

    def stock_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The unmodified stock product, bfloat16 [M, V]."""
        return torch.matmul(hidden, self.weight.T)

    def stock_tokens(self, hidden: torch.Tensor) -> torch.Tensor:
        """The stock head's tokens, int64 [M]."""
        return torch.argmax(self.stock_logits(hidden), dim=-1)

    def verify(self) -> None:
        """Raise RuntimeError if the weights are not those that the copy was built from."""
        now = _digest(self.weight)
        if now != self.digest:
            raise RuntimeError(f"the weights changed after build: digest {now[:16]}, was {self.digest[:16]}")

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Tokens, int64 [M], for head inputs bfloat16 [M, K].

        On CUDA nothing here waits for the device, so a call can be captured in a graph once `plan` has
        run for its M; a batch shape first seen under capture is served by the stock head. The returned
        tensor is then a static buffer that the next call overwrites.
        """
        self.check_call(hidden)
        return self.engine.tokens(hidden)

    @torch.no_grad()
    def intervals(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Every interval of the screen, float32 [M, V] each: a diagnostic, not the hot path."""
        limb = self.limbs(hidden)
        return stages.ends(self.copy, slice(0, self.weight.shape[0]), limb)

    def limbs(self, hidden: torch.Tensor) -> stages.LimbTensors:
        """Stage `limbs`, after the checks that every call makes."""
        self.check_call(hidden)
        return stages.limbs(hidden, self.group, self.gamma_num, self.copy.code_norm)

    @torch.no_grad()
    def decide(self, hidden: torch.Tensor) -> Decision:
        """Tokens with the state, the reason and the candidate counts of each position.

        hidden: bfloat16 [M, K] on the weight's device, M ≥ 1. A non-finite position falls back.
        """
        self.check_call(hidden)
        decision = self.engine.decide(hidden)
        self.engine.count(decision)
        return decision

    def check_call(self, hidden: torch.Tensor) -> None:
        if self.weight.data_ptr() != self._pointer:
            now = f"{self.weight.dtype} on {self.weight.device}"
            raise RuntimeError(f"the head was moved or cast after build (now {now}); build a new head there")
        if hidden.dtype is not torch.bfloat16:
            raise TypeError(f"hidden has dtype {hidden.dtype}, the head needs torch.bfloat16")
        columns = self.weight.shape[1]
        if hidden.dim() != 2 or hidden.shape[1] != columns or hidden.shape[0] < 1:
            raise ValueError(f"hidden has shape {tuple(hidden.shape)}, the head needs [M ≥ 1, {columns}]")
        if hidden.device != self.weight.device:
            raise ValueError(f"hidden is on {hidden.device}, the head on {self.weight.device}")
        if self.weight._version != self._version:
            raise RuntimeError("the weights were modified in place after build; build a new head")


def _kernel_group(columns: int) -> int:
    from .triton_head import preferred_group

    return preferred_group(columns)


def _check_weight(weight: torch.Tensor) -> None:
    if weight.dtype is not torch.bfloat16:
        raise TypeError(f"weight has dtype {weight.dtype}, the head needs torch.bfloat16")
    if weight.dim() != 2 or 0 in weight.shape:
        raise ValueError(f"weight has shape {tuple(weight.shape)}, the head needs [V ≥ 1, K ≥ 1]")
    if weight.shape[1] > spec.K_MAX:
        raise ValueError(f"K={weight.shape[1]} exceeds {spec.K_MAX}")
    if not weight.is_contiguous():
        raise ValueError(f"weight has strides {weight.stride()}, the head needs contiguous rows")
    if weight.is_inference():
        raise ValueError("weight was made under torch.inference_mode: a change of it could not be noticed")
    bad = ~torch.isfinite(weight) | (weight.abs() >= 2.0**spec.RANGE_EXP)
    if bool(bad.any()):
        row, column = (int(i) for i in bad.nonzero()[0])
        value = float(weight[row, column])
        raise ValueError(f"weight[{row}, {column}] = {value}: not finite and below 2^{spec.RANGE_EXP}")


def _digest(weight: torch.Tensor) -> str:
    return hashlib.sha256(weight.cpu().contiguous().view(torch.int16).numpy().data).hexdigest()
