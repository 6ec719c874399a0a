"""The experiment's figures, drawn from its result (`certhead replay experiment --json`).

What a verifier measures of every worker, what a threshold on one metric can do, and how often a batch of some
size is judged rightly. `python -m certhead.conformance.replay.document` draws them for the documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import Any

from .calibrate import roc
from .verdict import BIGGER_IS_BETTER, Rule, load_presets

HONEST, CHEAT, GREY = "#1f5fa8", "#d1495b", "#777777"
CHEAT_COLOURS = ("#d1495b", "#e08e2b", "#6a4c93", "#2a9d8f", "#8d5524", "#c77dff", "#444444")
COLOURS = 128  # of the palette that a figure is reduced to, which makes small files
DOTS_PER_INCH = 110
METRIC_NAMES = {
    "mean_abs": "mean |Δ log probability|, nats",
    "p99_abs": "99th percentile of |Δ log probability|, nats",
    "jaccard_mean": "Jaccard index of the top 64, mean",
}
ROC_METRICS = ("mean_abs", "p99_abs", "jaccard_mean")
PRESET = "document-bf16"
SMALLEST = 2e-3  # left end of the metrics' axis; a value below it is drawn there
POWER_TOKENS = (32, 128)
METHODS = {
    "quantile": "thresholds from honest batches alone",
    "separating": "thresholds in the gap to known cheats",
}


def draw_metrics(groups: Mapping[str, Mapping[str, tuple[Mapping[str, Any], bool]]], path: Path) -> None:
    """Mean and 99th percentile of every run as dots, the document's thresholds as lines.

    groups: title → run's name → (its research metrics, whether it is honest).
    """
    rows: list[tuple[str, Mapping[str, Any], bool] | str] = []
    for title, runs in groups.items():
        rows += [title, *((name, metrics, honest) for name, (metrics, honest) in runs.items())]
    figure, panels = _figure(1, 2, (8.2, 0.9 + 0.24 * len(rows)), sharey=True)
    rules = load_presets()[PRESET]
    for axes, metric in zip(panels[0], ("mean_abs", "p99_abs"), strict=True):
        for place, row in enumerate(rows):
            if isinstance(row, str):
                continue
            _, metrics, honest = row
            value = max(metrics[metric], SMALLEST)
            marker = "<" if metrics[metric] < SMALLEST else "o"
            axes.plot(value, -place, marker, color=HONEST if honest else CHEAT, markersize=6)
        passing, rejecting = (float(_rule(some, metric).threshold) for some in (rules.accept, rules.reject))
        axes.axvline(passing, color=GREY, linestyle="--", linewidth=1)
        axes.axvline(rejecting, color=GREY, linewidth=1)
        axes.set_title(
            f"the document passes up to {passing:g} (dashed),\nand rejects above {rejecting:g} (solid)",
            fontsize=8.5,
        )
        axes.set_xscale("log")
        axes.set_xlim(SMALLEST * 0.85, None)
        axes.set_xlabel(METRIC_NAMES[metric], fontsize=9)
        axes.grid(axis="x", alpha=0.25)
    labels = [row if isinstance(row, str) else row[0] for row in rows]
    panels[0][0].set_yticks([-place for place in range(len(rows))], labels, fontsize=8.5)
    for label, row in zip(panels[0][0].get_yticklabels(), rows, strict=True):
        label.set_color("black" if isinstance(row, str) else HONEST if row[2] else CHEAT)
        label.set_fontweight("bold" if isinstance(row, str) else "normal")
    figure.suptitle("What an honest verifier measures: honest workers blue, cheats red", fontsize=10)
    _save(figure, path)


def draw_roc(honest: Mapping[str, Any], cheats: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """For three metrics of single samples: cheats caught against honest rejected, for every threshold.

    honest, and each of cheats by name: the columns of per-sample values.
    """
    figure, panels = _figure(1, len(ROC_METRICS), (8.2, 3.5), sharey=True)
    for axes, metric in zip(panels[0], ROC_METRICS, strict=True):
        for colour, (name, columns) in zip(cycle(CHEAT_COLOURS), cheats.items(), strict=False):
            values = [[Fraction(v) for v in side[metric] if v is not None] for side in (honest, columns)]
            curve = roc(*values, bigger_is_better=metric in BIGGER_IS_BETTER)
            points = [(float(p.honest_reject), float(p.cheat_reject)) for p in curve.points]
            label = f"{name}: {float(curve.auc):.3f}"
            axes.step(*zip(*points, strict=True), where="post", color=colour, linewidth=1.5, label=label)
        axes.plot([0, 1], [0, 1], color=GREY, linewidth=0.8, linestyle=":")
        axes.set_title(METRIC_NAMES[metric].replace(", ", ",\n", 1), fontsize=8.5)
        axes.set_xlabel("honest samples rejected", fontsize=8.5)
        axes.legend(fontsize=7.5, title="area under the curve", title_fontsize=7.5, loc="lower right")
        axes.grid(alpha=0.25)
    panels[0][0].set_ylabel("cheat's samples rejected", fontsize=8.5)
    figure.suptitle("Single samples: what any threshold on one metric can do", fontsize=10)
    _save(figure, path)


def draw_power(
    calibrated: Sequence[Mapping[str, Any]], honest: str, cheats: Sequence[str], path: Path
) -> None:
    """Shares of held-out batches judged rightly, with 95 % intervals, against samples in a batch.

    calibrated: entries of `evaluation.rates`; honest and cheats: the runs that are shown.
    """
    colours = {honest: HONEST, **dict(zip(cheats, cycle(CHEAT_COLOURS), strict=False))}
    figure, panels = _figure(len(POWER_TOKENS), len(METHODS), (8.2, 5.2), sharex=True, sharey=True)
    handles: dict[str, Any] = {}
    for row, tokens in enumerate(POWER_TOKENS):
        for column, (method, words) in enumerate(METHODS.items()):
            axes = panels[row][column]
            entries = [e for e in calibrated if e["method"] == method and e["tokens"] == tokens]
            _draw_power(axes, entries, colours, handles)
            axes.set_title(f"{words}; {tokens} tokens a sample", fontsize=8.5)
            axes.grid(alpha=0.25)
            axes.set_ylim(-0.03, 1.03)
    sizes = sorted({entry["batch_size"] for entry in calibrated})
    for axes in panels[-1]:
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.set_xlabel("samples in a batch", fontsize=8.5)
    for axes_row in panels:
        axes_row[0].set_ylabel("share of batches", fontsize=8.5)
    figure.legend(handles.values(), handles.keys(), fontsize=8, ncols=4, loc="outside lower center")
    figure.suptitle("Held-out batches judged rightly, with 95 % intervals", fontsize=10)
    _save(figure, path)


def _draw_power(
    axes: Any, entries: Sequence[Mapping[str, Any]], colours: Mapping[str, str], handles: dict[str, Any]
) -> None:
    for place, (name, colour) in enumerate(colours.items()):
        some = [(entry["batch_size"], entry["runs"][name]) for entry in entries if name in entry["runs"]]
        if not some:
            continue
        outcome, word = ("pass", "passed") if some[0][1]["honest"] else ("reject", "rejected")
        shares = [run[outcome]["events"] / run["batches"] for _, run in some]
        ends = [
            [share - run[outcome]["low"] for share, (_, run) in zip(shares, some, strict=True)],
            [run[outcome]["high"] - share for share, (_, run) in zip(shares, some, strict=True)],
        ]
        # side by side, so that equal shares do not hide one another
        across = [size * 2 ** (0.09 * (place - len(colours) / 2)) for size, _ in some]
        drawn = axes.errorbar(
            across,
            shares,
            [[max(0.0, end) for end in side] for side in ends],
            fmt="o",
            markersize=4,
            linewidth=1,
            color=colour,
        )
        handles.setdefault(f"{name}: {word}", drawn)


def _rule(rules: Sequence[Rule], metric: str) -> Rule:
    return next(rule for rule in rules if rule.metric == metric)


def _figure(
    rows: int, columns: int, size: tuple[float, float], *, sharex: bool = False, sharey: bool = False
) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, panels = plt.subplots(
        rows, columns, figsize=size, sharex=sharex, sharey=sharey, layout="constrained", squeeze=False
    )
    return figure, panels


def _save(figure: Any, path: Path) -> None:
    """Write the figure as a PNG with a small palette, and close it."""
    from matplotlib import pyplot as plt
    from PIL import Image

    full = BytesIO()
    figure.savefig(full, format="png", dpi=DOTS_PER_INCH)
    plt.close(figure)
    full.seek(0)
    with Image.open(full) as image:
        image.convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
