"""Calibration from evidence files: thresholds from half of the prompts, error rates on the other half."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from ..errors import BadInput
from .calibrate import (
    Calibration,
    Evaluation,
    Roc,
    derive_by_quantile,
    derive_by_separation,
    evaluate,
    is_calibration,
    prompt_digest,
    roc,
)
from .confidence import disjoint_batches
from .metrics import Accumulator, TokenMetrics
from .pairing import compare_files
from .summary import Convention, Summary
from .trace import Sample
from .verdict import BIGGER_IS_BETTER

ROC_METRICS = ("mean_abs", "p99_abs", "rank_delta_rate", "jaccard_mean", "js_p99")


class Method(StrEnum):
    """How thresholds come from values."""

    QUANTILE = "quantile"  # from honest values alone
    SEPARATION = "separation"  # into the gap between honest values and those of the cheats that are given


@dataclass(frozen=True)
class Compared:
    """One sample's metrics and its prompt."""

    prompt: str  # digest
    calibrates: bool  # on which side of the split it is
    metrics: TokenMetrics


@dataclass(frozen=True)
class Calibrated:
    """Thresholds, and what they do on prompts that they were not derived from."""

    calibration: Calibration
    evaluation: Evaluation
    rocs: dict[str, dict[str, Roc]]  # by cheat and metric, of single samples of the other half


def calibrate_files(
    name: str,
    honest: tuple[Path, Path],
    cheats: Mapping[str, tuple[Path, Path]],
    *,
    convention: Convention,
    method: Method,
    batch_size: int,
    share: Fraction,
    seed: int,
) -> Calibrated:
    """Derive a preset for batches of `batch_size` samples from pairs of files, worker's and verifier's.

    About `share` of the prompts calibrate, the same in every pair; the others are judged, in disjoint
    batches. Raises BadInput for files with samples that cannot be judged, and where a half holds no batch.
    """
    origins = {origin: _compare(*pair, convention, share, seed) for origin, pair in cheats.items()}
    honest_samples = _compare(*honest, convention, share, seed)

    def batches(samples: Sequence[Compared]) -> list[Summary]:
        chosen = [sample for sample in samples if sample.calibrates]
        return [_summarise(batch)[0] for batch in disjoint_batches(chosen, batch_size, seed)]

    derived = batches(honest_samples)
    judged = [sample for sample in honest_samples if not sample.calibrates]
    if not derived or len(judged) < batch_size:
        raise BadInput(
            f"{len(honest_samples) - len(judged)} prompts to calibrate on and {len(judged)} to judge: "
            f"each half needs a batch of {batch_size}"
        )
    prompts = [s.prompt for some in (honest_samples, *origins.values()) for s in some if s.calibrates]
    if method is Method.SEPARATION:
        known = {origin: batches(samples) for origin, samples in origins.items()}
        calibration = derive_by_separation(name, derived, known, prompts)
    else:
        calibration = derive_by_quantile(name, derived, prompts)
    others = {
        origin: [sample for sample in samples if not sample.calibrates] for origin, samples in origins.items()
    }
    evaluation = evaluate(
        calibration,
        judged,
        others,
        batch_size=batch_size,
        prompt=lambda sample: sample.prompt,
        summarise=_summarise,
        seed=seed,
    )
    rocs = {origin: _rocs(judged, samples) for origin, samples in others.items()}
    return Calibrated(calibration, evaluation, rocs)


def _compare(
    worker: Path, verifier: Path, convention: Convention, share: Fraction, seed: int
) -> list[Compared]:
    samples: list[Compared] = []

    def see(ours: Sample, _: Sample, metrics: TokenMetrics) -> None:
        ids = ours.input_ids
        samples.append(Compared(prompt_digest(ids), is_calibration(ids, seed, share), metrics))

    found = compare_files(worker, verifier, convention, see=see)
    if found.left_out:
        first = [*found.bad, *(f"{verifier}: sample {i!r} is not scored" for i in found.unscored)][0]
        raise BadInput(f"{first}; thresholds are calibrated on whole files alone")
    return samples


def _summarise(batch: Sequence[Compared]) -> tuple[Summary, list[Summary]]:
    convention = batch[0].metrics.convention
    pooled, singles = Accumulator(convention), []
    for sample in batch:
        pooled.add(sample.metrics)
        single = Accumulator(convention)
        single.add(sample.metrics)
        singles.append(single.summary())
    return pooled.summary(), singles


def _rocs(honest: Sequence[Compared], cheat: Sequence[Compared]) -> dict[str, Roc]:
    """One ROC for each metric that is defined for every sample."""
    good, bad = (_summarise(samples)[1] if samples else [] for samples in (honest, cheat))
    rocs = {}
    for metric in ROC_METRICS:
        values = [[getattr(summary, metric) for summary in side] for side in (good, bad)]
        if all(values) and not any(None in side for side in values):
            rocs[metric] = roc(*values, bigger_is_better=metric in BIGGER_IS_BETTER)
    return rocs
