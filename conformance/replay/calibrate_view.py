"""A calibration as JSON and on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from .calibrate_files import Calibrated
from .confidence import Interval, clopper_pearson
from .verdict import Outcome, Verdict, decimal


def errors(found: Calibrated) -> int:
    """Batches of the other half that got the wrong verdict: honest rejected, or cheating passed."""
    wrong = [(found.evaluation.honest, Outcome.REJECT)]
    wrong += [(verdicts, Outcome.PASS) for verdicts in found.evaluation.cheats.values()]
    return sum(verdict.outcome is outcome for verdicts, outcome in wrong for verdict in verdicts)


def calibration_json(found: Calibrated) -> dict[str, Any]:
    """The whole calibration (schema certhead.replay.calibrate/1)."""
    preset = found.calibration.preset
    return {
        "schema": "certhead.replay.calibrate/1",
        "preset": {
            "name": preset.name,
            "convention": preset.convention,
            "source": preset.source,
            "accept": [str(rule) for rule in preset.accept],
            "reject": [str(rule) for rule in preset.reject],
            "eligibility": vars(preset.eligibility),
            "derived_from": sorted(preset.derived_from),
        },
        "method": found.calibration.method,
        "batch_size": found.evaluation.batch_size,
        "honest": _outcomes(found.evaluation.honest, Outcome.REJECT),
        "cheats": {
            origin: _outcomes(verdicts, Outcome.PASS) for origin, verdicts in found.evaluation.cheats.items()
        },
        "auc": {
            origin: {metric: float(roc.auc) for metric, roc in rocs.items()}
            for origin, rocs in found.rocs.items()
        },
    }


def show_calibration(found: Calibrated) -> None:
    """Thresholds, then what they do on the other half."""
    console = Console()
    preset, separates = found.calibration.preset, found.calibration.separates
    rules = Table(title=f"{preset.convention} metrics, {preset.source}", title_justify="left", box=None)
    for column in ("metric", "accept", "reject", "separates"):
        rules.add_column(column)
    reject = {rule.metric: rule for rule in preset.reject}
    for rule in preset.accept:
        against = reject.get(rule.metric)
        rules.add_row(
            rule.metric,
            f"{rule.relation} {decimal(rule.threshold)}",
            f"{against.relation} {decimal(against.threshold)}" if against else "",
            ", ".join(separates.get(rule.metric, ())),
        )
    console.print(rules)
    title = f"on the other prompts, in disjoint batches of {found.evaluation.batch_size}"
    judged = Table(title=title, title_justify="left", box=None)
    for column in ("origin", "batches", "PASS", "REJECT", "INCONCLUSIVE", "error, with 95 % interval"):
        judged.add_column(column)
    origins = [("honest", found.evaluation.honest, Outcome.REJECT)]
    origins += [(name, verdicts, Outcome.PASS) for name, verdicts in found.evaluation.cheats.items()]
    for name, verdicts, wrong in origins:
        counts = [str(sum(v.outcome is outcome for v in verdicts)) for outcome in Outcome]
        judged.add_row(name, str(len(verdicts)), *counts, f"{wrong}: {_interval(verdicts, wrong)}")
    console.print(judged)


def _outcomes(verdicts: Sequence[Verdict], wrong: Outcome) -> dict[str, Any]:
    interval = _interval(verdicts, wrong)
    return {
        "batches": len(verdicts),
        **{outcome.lower(): sum(v.outcome is outcome for v in verdicts) for outcome in Outcome},
        "error": {
            "is": wrong,
            "rate": None if interval.rate is None else float(interval.rate),
            "interval": [float(interval.low), float(interval.high)],
            "confidence": float(interval.confidence),
        },
    }


def _interval(verdicts: Sequence[Verdict], wrong: Outcome) -> Interval:
    return clopper_pearson(sum(v.outcome is wrong for v in verdicts), len(verdicts))
