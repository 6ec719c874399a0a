"""`report.html`: one self-contained page that says what was found, what it rests on, and shows the plots."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
import numpy as np

from .heads import synthetic_heads
from .history import SHOWN
from .results import Outcome, Run, stage_totals, states_by_shape
from .summary import cell_text, label, mutants_lines, rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TEMPLATES = Path(__file__).parent / "templates"
COLORS = {"exact": "#2f5d8a", "enclosed": "#4f9d8f", "fallback": "#d98a3d"}
INK, FAINT = "#2b2f36", "#d9dde3"
SIZE = (5.6, 3.5)  # inches; two plots side by side on a page of 1,200 pixels


def write_report(outcome: Outcome, path: Path) -> None:
    """Write the page to `path`; it needs no other file and no network."""
    path.write_text(render(outcome), encoding="utf-8")


def render(outcome: Outcome) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    table = rows(outcome)
    main = outcome.select("model") or list(outcome.runs)
    shapes = list(dict.fromkeys(run.batch_size for run in outcome.runs))
    fallbacks = sum(run.states["fallback"] for run in main)
    return environment.get_template("report.html.j2").render(
        outcome=outcome,
        model_rows=[row for row in table if row.shapes != "all"],
        synthetic_rows=[row for row in table if row.shapes == "all"],
        about={head.name: head.about for head in synthetic_heads(outcome.seed)},
        stages=stage_totals(outcome.stages),
        stages_compared=sum(total["compared"] for total in stage_totals(outcome.stages)),
        stock_logits=sum(check.logits for check in outcome.stock),
        main_decisions=sum(run.positions for run in main),
        main_fallbacks=fallbacks,
        stock=[(size, [c for c in outcome.stock if c.batch_size == size]) for size in shapes],
        shapes=shapes,
        label=label,
        cell_text=cell_text,
        mutants_lines=mutants_lines(outcome),
        trend=[*outcome.earlier[-SHOWN:], outcome.summary()],
        plots={name: plot(outcome) for name, plot in PLOTS.items()},
    )


def plot_candidates(outcome: Outcome) -> str:
    """Histogram of the candidate counts at the smallest batch shape; both axes logarithmic."""
    figure = _figure()
    axes = figure.subplots()
    smallest = min(run.batch_size for run in outcome.runs)
    groups = [(kind, _counts(outcome.select(kind), smallest)) for kind in ("model", "synthetic")]
    largest = max([1, *(int(counts.max()) for _, counts in groups if counts.size)])
    edges = 2.0 ** np.arange(0, np.floor(np.log2(largest)) + 2) - 0.5  # 1, 2–3, 4–7, ...
    for kind, counts in groups:
        if counts.size and kind == "model":
            axes.hist(counts, bins=edges.tolist(), color=COLORS["enclosed"], label="real model")
        elif counts.size:
            axes.hist(
                counts,
                bins=edges.tolist(),
                histtype="step",
                color=INK,
                linewidth=1.3,
                label="synthetic heads",
            )
    axes.set(xscale="log", yscale="log", xlabel="candidates per decision", ylabel="decisions")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False)
    return _svg(figure)


def plot_half_widths(outcome: Outcome) -> str:
    """Half-width of the winner's interval against the gap of the two largest stock logits."""
    figure = _figure()
    axes = figure.subplots()
    gaps, half_widths = outcome.margins.gaps, outcome.margins.half_widths
    finite = np.isfinite(gaps) & np.isfinite(half_widths)
    gaps, half_widths = gaps[finite], half_widths[finite]
    positive = gaps[gaps > 0]
    floor = float(positive.min()) / 2 if positive.size else 2.0**-10  # ties are drawn at the left edge
    axes.scatter(np.maximum(gaps, floor), half_widths, s=9, alpha=0.5, color=COLORS["exact"], linewidths=0)
    ends = np.array([floor, max(float(gaps.max(initial=floor)), floor * 2)])
    axes.plot(ends, ends / 2, color=INK, linewidth=1, linestyle="--", label="half-width = gap / 2")
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="gap between the two largest stock logits (ties at the left edge)",
        ylabel="half-width of the interval",
    )
    axes.legend(frameon=False)
    return _svg(figure)


def plot_states(outcome: Outcome) -> str:
    """Shares of the three states per batch shape, for the model and for the synthetic heads."""
    figure = _figure()
    kinds = [kind for kind in ("model", "synthetic") if outcome.select(kind)]
    grid = figure.subplots(1, len(kinds), squeeze=False, sharey=True)
    for axes, kind in zip(grid[0], kinds, strict=True):
        shapes = states_by_shape(outcome.select(kind))
        bottom = np.zeros(len(shapes))
        for state, color in COLORS.items():
            counts = np.array([shape[state] for shape in shapes.values()], dtype=float)
            totals = np.array([sum(shape[s] for s in COLORS) for shape in shapes.values()], dtype=float)
            share = 100 * counts / totals
            axes.bar(list(shapes), share, bottom=bottom, color=color, width=0.65, label=state)
            bottom += share
        axes.set(
            title="real model" if kind == "model" else "synthetic heads",
            xlabel="batch shape M",
            ylim=(0, 100),
        )
    grid[0][0].set_ylabel("decisions, %")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside upper center", ncols=3)
    return _svg(figure)


def plot_time(outcome: Outcome) -> str:
    """Seconds per stage of the run, in order."""
    figure = _figure()
    axes = figure.subplots()
    names, seconds = list(outcome.timings), list(outcome.timings.values())
    bars = axes.barh(names, seconds, color=COLORS["exact"], height=0.6)
    axes.bar_label(bars, [f"{s:.1f}" for s in seconds], padding=4)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("seconds")
    return _svg(figure)


PLOTS = {
    "candidates": plot_candidates,
    "half_widths": plot_half_widths,
    "states": plot_states,
    "time": plot_time,
}


def _counts(runs: Sequence[Run], batch_size: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    chosen = [run.candidate_counts for run in runs if run.batch_size == batch_size]
    return np.concatenate([np.empty(0, dtype=np.int64), *chosen])


def _figure() -> Figure:
    from matplotlib.figure import Figure  # without pyplot: no global state, no display

    return Figure(figsize=SIZE, layout="constrained")


def _svg(figure: Figure) -> str:
    """The figure as the source of an `img` element."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(FAINT)
        axes.tick_params(color=FAINT, labelcolor=INK, labelsize=9, which="both")
        axes.xaxis.label.set(color=INK, fontsize=9.5)
        axes.yaxis.label.set(color=INK, fontsize=9.5)
        axes.title.set(color=INK, fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
