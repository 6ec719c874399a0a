"""`certhead conform`: does the certified head return the stock head's token, and does every stage hold?

Four checks, on a real model's head inputs and on synthetic heads:
- tokens: the certified head against the unmodified stock head, position by position, at each batch shape;
- stages: the head's intermediate bits against `pyref`, on sampled rows and positions;
- stock model: the assumption about the stock kernel, on every logit of sampled positions;
- and counters, half-widths and candidate counts, which say why the tokens agree.
"""

from __future__ import annotations

import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
from certhead.kernels import CertifiedHead, State
from certhead.kernels.decision import REASON_NAMES, Reason
from certhead.pyref.head import GAMMA_BITS

from .capture import Capture, cache_dir, capture_smollm2
from .errors import BadInput
from .heads import synthetic_heads
from .prompts import PROMPTS
from .results import HeadFacts, Margins, ModelFacts, Outcome, Run, SourceStages, StockCheck
from .stages import compare_stages
from .stock_model import (
    StockTokens,
    batches,
    check_stock_model,
    hex_bits,
    kept_stock_tokens,
    stock_logits,
    stock_tokens,
)

BATCH_SIZES = (1, 4, 16, 64)
STOCK_POSITIONS = 128  # positions whose logits are all tested against the error model
MARGIN_POSITIONS = 256
MARGIN_BATCH = 64
STAGE_POSITIONS = 16  # positions that the stage comparison chooses from
STAGE_SAMPLES = {"model": (32, 4), "synthetic": (8, 3)}  # rows and positions that it looks at

RESCORED = (Reason.NONE, Reason.AMBIGUOUS)  # every other reason ends before candidates are counted

Advance = Callable[[int], None]
Bars = Callable[[str, int], AbstractContextManager[Advance]]  # (stage, total) -> advance(n)


@dataclass(frozen=True)
class Source:
    """A head and the states that it is checked on."""

    name: str
    kind: str  # "model" or "synthetic"
    weight: torch.Tensor
    hidden: torch.Tensor
    repeat: str  # the options that repeat its part of the run
    kept: Path | None = None  # folder for what need not be run again


@contextmanager
def no_bars(stage: str, total: int) -> Iterator[Advance]:
    """Progress that is shown to nobody."""
    yield lambda n: None


def choose_device(name: str) -> torch.device:
    """`auto`, or any torch device that works here. Raises BadInput naming it."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise BadInput(f"device {name!r} is not available here; try cpu or auto") from None
    return device


def conform(
    *,
    positions: int | None = None,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    use_model: bool = True,
    seed: int = 0,
    device: torch.device | None = None,
    bars: Bars = no_bars,
) -> Outcome:
    """Run every check. `positions` limits the real model's positions (None: all that were captured).

    Raises BadInput for a number that cannot be met, or when the model is not installed.
    """
    device = device or torch.device("cpu")
    for size in batch_sizes:
        if size < 1:
            raise BadInput(f"batch size {size} must be at least 1")
    timings: dict[str, float] = {}

    @contextmanager
    def stage(name: str, total: int) -> Iterator[Advance]:
        began = time.perf_counter()
        with bars(name, total) as advance:
            yield advance
        timings[name] = time.perf_counter() - began

    sources: list[Source] = []
    model: ModelFacts | None = None
    if use_model:
        with stage("capture the model", len(PROMPTS)) as advance:
            captured = _capture(advance)
        hidden = _sample(captured.hidden, positions)
        model = _model_facts(captured, len(hidden))
        sources.append(
            Source(captured.name, "model", captured.weight, hidden, "", cache_dir() / captured.key)
        )
    sources += [
        Source(head.name, "synthetic", head.weight, head.hidden, f"--no-model --seed {seed} ")
        for head in synthetic_heads(seed)
    ]
    sources = [replace(s, weight=s.weight.to(device), hidden=s.hidden.to(device)) for s in sources]
    with stage("quantise", sum(len(s.weight) for s in sources)) as advance:
        heads = [CertifiedHead(s.weight, identify=s.kind == "model", progress=advance) for s in sources]
    pairs = list(zip(sources, heads, strict=True))
    stock: list[StockCheck] = []
    with stage("stock model", len(pairs)) as advance:
        for source, head in pairs:
            sample = _evenly(source.hidden, STOCK_POSITIONS)
            stock += check_stock_model(source.name, head, sample, batch_sizes)
            advance(1)
    runs: list[Run] = []
    for kind in ("model", "synthetic"):
        chosen = [(s, h) for s, h in pairs if s.kind == kind]
        total = len(batch_sizes) * sum(len(s.hidden) for s, _ in chosen)
        if not chosen:
            continue
        with stage(f"stock, {kind}", total) as advance:
            expected = [[_stock(s, size, advance) for size in batch_sizes] for s, _ in chosen]
        with stage(f"certified, {kind}", total) as advance:
            runs += [
                run_head(source, head, size, tokens, advance)
                for (source, head), row in zip(chosen, expected, strict=True)
                for size, tokens in zip(batch_sizes, row, strict=True)
            ]
    stages: list[SourceStages] = []
    with stage("compare stages", len(pairs)) as advance:
        for source, head in pairs:
            rows, some = STAGE_SAMPLES[source.kind]
            sample = _evenly(source.hidden, STAGE_POSITIONS)
            results = compare_stages(head, sample, rows=rows, positions=some, seed=seed)
            stages.append(SourceStages(source.name, tuple(results)))
            advance(1)
    with stage("half-widths", 1) as advance:
        margins = measure_margins(sources[0], heads[0])
        advance(1)
    return Outcome(
        seed=seed,
        device=device.type,
        device_name=_device_name(device),
        versions=_versions(),
        head=_head_facts(sources[0], heads[0]),
        model=model,
        runs=runs,
        stock=stock,
        stages=stages,
        margins=margins,
        timings=timings,
    )


def run_head(source: Source, head: CertifiedHead, size: int, stock: StockTokens, advance: Advance) -> Run:
    """The certified head over all positions of a source in batches of `size`, against the stock tokens."""
    states: Counter[int] = Counter()
    reasons: Counter[int] = Counter()
    counts: list[torch.Tensor] = []
    disagreements, first, done, seconds = 0, None, 0, 0.0
    for index, counted in batches(len(source.hidden), size):
        hidden = source.hidden[index]
        began = time.perf_counter()
        decision = head.decide(hidden)
        tokens = decision.tokens[:counted].cpu()
        seconds += time.perf_counter() - began
        states.update(decision.states[:counted].tolist())
        why = decision.reasons[:counted].cpu()
        reasons.update(why[why != Reason.NONE].tolist())
        if decision.candidates is not None:
            rescored = torch.isin(why, torch.tensor(RESCORED, dtype=why.dtype))
            counts.append(decision.candidates[:counted].cpu()[rescored])
        expected = stock.tokens[done : done + counted]
        done += counted
        wrong = (tokens != expected).nonzero().flatten().tolist()
        disagreements += len(wrong)
        if wrong and first is None:
            m, logits = wrong[0], stock_logits(head.weight, hidden)
            got, want = int(tokens[m]), int(expected[m])
            first = (
                f"position {int(index[m])}: token {got} (logit {_logit(logits[m], got)}), "
                f"stock {want} (logit {_logit(logits[m], want)}), "
                f"state {State(int(decision.states[m])).name.lower()}; "
                f"repeat: certhead conform {source.repeat}--batch-sizes {size}"
            )
        advance(counted)
    return Run(
        source=source.name,
        kind=source.kind,
        batch_size=size,
        positions=len(source.hidden),
        states={state.name.lower(): states[state] for state in State},
        reasons={str(REASON_NAMES[code]): n for code, n in sorted(reasons.items())},
        candidate_counts=torch.cat([torch.empty(0, dtype=torch.int64), *counts]).numpy().astype(np.int64),
        disagreements=disagreements,
        first=first,
        stock_seconds=stock.seconds,
        certified_seconds=seconds,
    )


def measure_margins(source: Source, head: CertifiedHead) -> Margins:
    """The screen's half-width at the stock token, beside the gap between the two largest stock logits."""
    gaps, half_widths = [], []
    for hidden in _evenly(source.hidden, MARGIN_POSITIONS).split(MARGIN_BATCH):
        lo, hi = head.intervals(hidden)
        top = stock_logits(head.weight, hidden).double().topk(2, dim=-1)
        gaps.append((top.values[:, 0] - top.values[:, 1]).cpu())
        half = (hi.double() - lo.double()) / 2
        half_widths.append(half.gather(1, top.indices[:, :1]).squeeze(1).cpu())
    return Margins(source.name, torch.cat(gaps).numpy(), torch.cat(half_widths).numpy())


def _stock(source: Source, size: int, advance: Advance) -> StockTokens:
    if source.kept is None or source.hidden.device.type != "cpu":
        return stock_tokens(source.weight, source.hidden, size, advance)
    return kept_stock_tokens(source.kept, source.weight, source.hidden, size, advance)


def _logit(logits: torch.Tensor, token: int) -> str:
    return hex_bits(logits[token]) if 0 <= token < len(logits) else "none: no such row"


def _capture(advance: Advance) -> Capture:
    shown = 0

    def step(done: int, total: int) -> None:
        nonlocal shown
        advance(done * len(PROMPTS) // total - shown)
        shown = done * len(PROMPTS) // total

    return capture_smollm2(cache_dir(), step)


def _sample(hidden: torch.Tensor, positions: int | None) -> torch.Tensor:
    if positions is None:
        return hidden
    if not 1 <= positions <= len(hidden):
        raise BadInput(f"{positions} positions: the capture holds 1 to {len(hidden)}")
    return _evenly(hidden, positions)


def _evenly(hidden: torch.Tensor, count: int) -> torch.Tensor:
    """At most `count` positions, spread over all of them."""
    if len(hidden) <= count:
        return hidden
    return hidden[torch.arange(count, device=hidden.device) * len(hidden) // count]


def _model_facts(captured: Capture, positions: int) -> ModelFacts:
    return ModelFacts(
        name=captured.name,
        positions=positions,
        prompts=len(PROMPTS),
        kinds=tuple(dict.fromkeys(prompt.kind for prompt in PROMPTS)),
        capture_key=captured.key,
        cached=captured.cached,
    )


def _head_facts(source: Source, head: CertifiedHead) -> HeadFacts:
    rows, columns = head.weight.shape
    return HeadFacts(
        source=source.name,
        vocabulary=rows,
        columns=columns,
        mode=head.mode,
        identified=head.identifications(),
        error_model=head.model_name,
        gamma=head.gamma_num * 2.0**-GAMMA_BITS,
        copy_bytes=head.copy_bytes,
        metadata_bytes=head.metadata_bytes,
    )


def _device_name(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    kernels = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} CPU, {kernels} kernels, {torch.get_num_threads()} threads"


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("certhead", "torch", "numpy", "transformers", "triton"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
