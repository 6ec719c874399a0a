"""`certhead conform`: does the certified head return the stock head's token, and does every stage hold?

The corpus of cases, through every driver that runs here; and, on a real model's head inputs and on synthetic
heads:
- tokens: the certified head against the unmodified stock head, position by position, at each batch shape;
- stages: the head's intermediate bits against `pyref`, on sampled rows and positions;
- stock model: the assumption about the stock kernel, on every logit of sampled positions;
- and counters, half-widths and candidate counts, which say why the tokens agree.
"""

from __future__ import annotations

import contextlib
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from certhead.kernels import CertifiedHead, State
from certhead.kernels.decision import REASON_NAMES, Reason
from certhead.kernels.fma_chain import ChainFound
from certhead.kernels.torch_engine import TorchEngine
from certhead.pyref.head import GAMMA_BITS

from .audit.cpu import cpu_verdict_line
from .cache import cache_dir
from .capture import Capture, capture_smollm2
from .corpus_run import CorpusRun, expected_cases, run_corpus
from .errors import BadInput
from .heads import synthetic_heads
from .history import keep_run, kind_of, last_mutants, runs_like
from .prompts import PROMPTS
from .results import HeadFacts, Margins, ModelFacts, Outcome, Run, SourceStages, StockCheck
from .resume import Unfinished, source_files_hash
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
from .workers import cores, one_thread, pieces

BATCH_SIZES = (1, 4, 16, 64)
STOCK_POSITIONS = 128  # positions whose logits are all tested against the error model
PARTS = 16  # pieces of the real model's positions at one batch shape, for the processes and for resuming
CORPUS_STEPS = 100  # of its progress bar
MARGIN_POSITIONS = 256
MARGIN_BATCH = 64
STAGE_POSITIONS = 16  # positions that the stage comparison chooses from
STAGE_SAMPLES = {"model": (32, 4), "synthetic": (8, 3)}  # rows and positions that it looks at

RESCORED = (Reason.NONE, Reason.AMBIGUOUS)  # every other reason ends before candidates are counted

T = TypeVar("T")
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
    use_corpus: bool = True,
    seed: int = 0,
    device: torch.device | None = None,
    fresh: bool = False,
    bars: Bars = no_bars,
) -> Outcome:
    """Run every check. `positions` limits the real model's positions (None: all that were captured).

    An interrupted run with the same options goes on where it stopped, unless `fresh`. Raises BadInput for a
    number that cannot be met, or when the model is not installed, and WorkerDied.
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
    options = [model and model.capture_key, positions, list(batch_sizes), use_corpus, seed, device.type]
    unfinished = Unfinished.of("conform", options, _decisive(), fresh=fresh)
    jobs = cores() if device.type == "cpu" else 1
    with one_thread() if device.type == "cpu" else contextlib.nullcontext():
        with stage("quantise", sum(len(s.weight) for s in sources)) as advance:
            heads = [CertifiedHead(s.weight, identify=s.kind == "model", progress=advance) for s in sources]
        check = _Check(sources, heads, batch_sizes, seed, jobs, unfinished)
        with stage("identify", len(batch_sizes)) as advance:
            check.identify(advance)
        with stage("stock model", len(sources)) as advance:
            stock = check.stock_model(advance)
        runs: list[Run] = []
        for kind in ("model", "synthetic"):
            total = len(batch_sizes) * sum(len(s.hidden) for s in sources if s.kind == kind)
            if not total:
                continue
            with stage(f"stock, {kind}", total) as advance:
                check.stock_tokens(kind, advance)
            with stage(f"certified, {kind}", total) as advance:
                runs += check.certified(kind, advance)
        with stage("compare stages", len(sources)) as advance:
            stages = check.stages(advance)
        with stage("half-widths", 1) as advance:
            margins = check.margins(advance)
        device_name = _device_name(device, jobs)
        audit = None
        if device.type == "cpu":
            with stage("audit", 1) as advance:
                audit = cpu_verdict_line()
                advance(1)
    corpus = None
    if use_corpus:
        with stage("corpus", CORPUS_STEPS) as advance:
            corpus = _corpus(advance, unfinished)
    outcome = Outcome(
        seed=seed,
        device=device.type,
        device_name=device_name,
        versions=_versions(),
        head=_head_facts(sources[0], heads[0]),
        model=model,
        runs=runs,
        stock=stock,
        stages=stages,
        margins=margins,
        corpus=corpus,
        mutants=last_mutants(),
        earlier=runs_like(kind_of(options)),
        resumed=unfinished.resumed,
        kind=kind_of(options),
        sources_hash=source_files_hash(),
        audit=audit,
        timings=timings,
    )
    keep_run(outcome.summary())
    unfinished.complete()
    return outcome


_CHECK: _Check  # found by the pieces, in a fork as in this process


class _Check:
    """The heads under test; its methods run the pieces of one stage and put them together.

    A piece is a method that takes numbers only, so that it can be named, sent to a fork and kept.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        heads: Sequence[CertifiedHead],
        batch_sizes: Sequence[int],
        seed: int,
        jobs: int,
        unfinished: Unfinished,
    ) -> None:
        self.sources, self.heads, self.batch_sizes, self.seed = sources, heads, batch_sizes, seed
        self.jobs, self.unfinished = jobs, unfinished
        self.expected: dict[tuple[int, int], StockTokens] = {}

    def _pieces(
        self,
        method: Callable[..., T],
        arguments: Sequence[tuple[Any, ...]],
        advance: Advance,
        weight: Callable[[int], int] = lambda number: 1,
    ) -> list[T]:
        global _CHECK
        _CHECK = self
        return pieces(
            _call,
            [(method.__name__, *given) for given in arguments],
            jobs=self.jobs,
            name=method.__name__.strip("_"),
            unfinished=self.unfinished,
            done=lambda number: advance(weight(number)),
        )

    def _of(self, kind: str) -> list[int]:
        return [n for n, s in enumerate(self.sources) if s.kind == kind]

    def identify(self, advance: Advance) -> None:
        """The stock arithmetic at each batch shape, before the work is dealt out."""
        head = self.heads[0]
        if not isinstance(head.engine, TorchEngine) or not head.engine.identify:
            advance(len(self.batch_sizes))
            return
        for found in self._pieces(self._identified, [(size,) for size in self.batch_sizes], advance):
            head.engine.chains.update(found)

    def _identified(self, size: int) -> dict[tuple[int, int], ChainFound]:
        head = self.heads[0]
        assert isinstance(head.engine, TorchEngine)
        index, _ = next(batches(len(self.sources[0].hidden), size))
        head.exact_for(self.sources[0].hidden[index])
        return head.engine.chains

    def stock_model(self, advance: Advance) -> list[StockCheck]:
        """The assumption about the stock kernel, on sampled positions of every source."""
        found = self._pieces(self._stock_model, [(n,) for n in range(len(self.sources))], advance)
        return [check for checks in found for check in checks]

    def _stock_model(self, n: int) -> list[StockCheck]:
        source = self.sources[n]
        sample = _evenly(source.hidden, STOCK_POSITIONS)
        return check_stock_model(source.name, self.heads[n], sample, self.batch_sizes)

    def stock_tokens(self, kind: str, advance: Advance) -> None:
        """What the stock head says, for every source of this kind at every batch shape."""
        chosen = [(n, size) for n in self._of(kind) for size in self.batch_sizes]
        found = self._pieces(
            self._stock_tokens, chosen, advance, lambda number: len(self.sources[chosen[number][0]].hidden)
        )
        self.expected.update(zip(chosen, found, strict=True))

    def _stock_tokens(self, n: int, size: int) -> StockTokens:
        source = self.sources[n]
        if source.kept is None or source.hidden.device.type != "cpu":
            return stock_tokens(source.weight, source.hidden, size, lambda done: None)
        return kept_stock_tokens(source.kept, source.weight, source.hidden, size, lambda done: None)

    def certified(self, kind: str, advance: Advance) -> list[Run]:
        """The certified head on every source of this kind at every batch shape."""
        arguments: list[tuple[int, int, int, int]] = []
        for n in self._of(kind):
            for size in self.batch_sizes:
                count = -(-len(self.sources[n].hidden) // size)
                parts = min(PARTS, count) if kind == "model" else 1
                edges = [count * i // parts for i in range(parts + 1)]
                arguments += [(n, size, a, b) for a, b in pairwise(edges)]

        def positions(number: int) -> int:
            n, size, first, last = arguments[number]
            return min(last * size, len(self.sources[n].hidden)) - first * size

        found = self._pieces(self._certified, arguments, advance, positions)
        runs: dict[tuple[int, int], Run] = {}
        for (n, size, *_), run in zip(arguments, found, strict=True):
            runs[n, size] = runs[n, size].plus(run) if (n, size) in runs else run
        return list(runs.values())

    def _certified(self, n: int, size: int, first: int, last: int) -> Run:
        return run_head(self.sources[n], self.heads[n], size, self.expected[n, size], slice(first, last))

    def stages(self, advance: Advance) -> list[SourceStages]:
        """Every stage of every head against pyref, on samples."""
        return self._pieces(self._stages, [(n,) for n in range(len(self.sources))], advance)

    def _stages(self, n: int) -> SourceStages:
        source = self.sources[n]
        rows, some = STAGE_SAMPLES[source.kind]
        sample = _evenly(source.hidden, STAGE_POSITIONS)
        results = compare_stages(self.heads[n], sample, rows=rows, positions=some, seed=self.seed)
        return SourceStages(source.name, tuple(results))

    def margins(self, advance: Advance) -> Margins:
        """Half-widths and gaps of the first head."""
        return self._pieces(self._margins, [()], advance)[0]

    def _margins(self) -> Margins:
        return measure_margins(self.sources[0], self.heads[0])


def _call(method: str, *arguments: Any) -> Any:
    return getattr(_CHECK, method)(*arguments)


def run_head(
    source: Source, head: CertifiedHead, size: int, stock: StockTokens, part: slice = slice(None)
) -> Run:
    """The certified head over positions of a source in batches of `size`, against the stock tokens.

    `part` chooses some of the batches, for a run in pieces.
    """
    states: Counter[int] = Counter()
    reasons: Counter[int] = Counter()
    counts: list[torch.Tensor] = []
    disagreements, first, seconds = 0, None, 0.0
    start = done = (part.start or 0) * size
    for index, counted in list(batches(len(source.hidden), size))[part]:
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
    return Run(
        source=source.name,
        kind=source.kind,
        batch_size=size,
        positions=done - start,
        states={state.name.lower(): states[state] for state in State},
        reasons={str(REASON_NAMES[code]): n for code, n in sorted(reasons.items())},
        candidate_counts=torch.cat([torch.empty(0, dtype=torch.int64), *counts]).numpy().astype(np.int64),
        disagreements=disagreements,
        first=first,
        stock_seconds=stock.seconds if start == 0 else 0.0,
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


def _device_name(device: torch.device, jobs: int) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    kernels = torch.backends.cpu.get_cpu_capability()
    threads = torch.get_num_threads()
    each = f"{threads} torch thread{'' if threads == 1 else 's'}"
    return f"{platform.machine()} CPU, {kernels} kernels, {jobs} processes of {each}"


def _decisive() -> list[object]:
    """What else decides bits on a CPU."""
    return [torch.backends.cpu.get_cpu_capability(), os.environ.get("ONEDNN_MAX_CPU_ISA")]


def _corpus(advance: Advance, unfinished: Unfinished) -> CorpusRun:
    """The corpus; progress in hundredths, since drivers differ in how many cases they get."""
    total, done, shown = expected_cases(), 0, 0
    lock = threading.Lock()

    def step(n: int) -> None:
        nonlocal done, shown
        with lock:
            done += n
            now = min(CORPUS_STEPS, CORPUS_STEPS * done // max(1, total))
            advance(now - shown)
            shown = now

    found = run_corpus(cores(), step, unfinished)
    advance(CORPUS_STEPS - shown)
    return found


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("certhead", "torch", "numpy", "transformers", "triton"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions
