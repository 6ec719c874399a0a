"""The summary table of a conformance run: its rows, and how the terminal shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .corpus_run import Cell, CorpusRun
from .results import Candidates, Outcome, Run, stage_totals


@dataclass(frozen=True)
class Row:
    """One line of the table: one head at one batch shape, or over all of them."""

    source: str
    shapes: str
    decisions: int
    states: dict[str, int]
    reasons: dict[str, int]
    candidates: Candidates | None
    disagreements: int
    certified_seconds: float
    stock_seconds: float

    @property
    def reasons_text(self) -> str:
        """E.g. `3 ambiguous, 1 overflow`."""
        return ", ".join(f"{count:,} {name}" for name, count in self.reasons.items())


def row_of(runs: Sequence[Run], shapes: str) -> Row:
    """The sum of some runs of one head."""
    states: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for run in runs:
        states.update(run.states)
        reasons.update(run.reasons)
    return Row(
        source=runs[0].source,
        shapes=shapes,
        decisions=sum(run.positions for run in runs),
        states=dict(states),
        reasons=dict(reasons),
        candidates=Candidates.of(np.concatenate([run.candidate_counts for run in runs])),
        disagreements=sum(run.disagreements for run in runs),
        certified_seconds=sum(run.certified_seconds for run in runs),
        stock_seconds=sum(run.stock_seconds for run in runs),
    )


def rows(outcome: Outcome) -> list[Row]:
    """The model once per batch shape, then each synthetic head once over all shapes."""
    out = [row_of([run], str(run.batch_size)) for run in outcome.select("model")]
    synthetic: dict[str, list[Run]] = {}
    for run in outcome.select("synthetic"):
        synthetic.setdefault(run.source, []).append(run)
    return out + [row_of(runs, "all") for runs in synthetic.values()]


def show(outcome: Outcome, console: Console) -> None:
    """Print the table, what was compared besides tokens, every failure, and the verdict."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("head", no_wrap=True)
    for name in ("tokens", "exact", "enclosed", "fallback"):
        table.add_column(name, justify="right")
    table.add_column("candidates\nmean/50/99/max", justify="right", no_wrap=True)
    table.add_column("dis-\nagree", justify="right")
    table.add_column("sec", justify="right")
    titles = {"all": "synthetic, every M"}
    shown: set[str] = set()
    for row in rows(outcome):
        title = titles.get(row.shapes, row.source)
        if title not in shown:
            table.add_row(Text(title, style="bold cyan"))
            shown.add(title)
        c = row.candidates
        table.add_row(
            row.source if row.shapes == "all" else f"M = {row.shapes}",
            f"{row.decisions:,}",
            *(f"{row.states[state]:,}" for state in ("exact", "enclosed", "fallback")),
            "-" if c is None else f"{c.mean:.3g}/{c.p50}/{c.p99}/{c.max}",
            Text(f"{row.disagreements:,}", style="bold red" if row.disagreements else "green"),
            f"{row.certified_seconds:.1f}",
        )
    console.print(table)
    console.print()
    if outcome.corpus:
        _show_corpus(outcome.corpus, console)
        console.print()
    stages = ", ".join(f"{total['stage']} {total['compared']:,}" for total in stage_totals(outcome.stages))
    head = outcome.head
    facts = Table.grid(padding=(0, 2, 0, 0))
    for kind in ("model", "synthetic"):
        if runs := outcome.select(kind):
            facts.add_row(Text(f"fallbacks, {kind}", style="dim"), row_of(runs, "all").reasons_text or "none")
    for label, text in (
        ("compared with pyref", f"{stages}; {outcome.differing:,} differ"),
        (
            "stock error model",
            f"{head.error_model}, γ = {head.gamma:.3e}; "
            f"{sum(check.logits for check in outcome.stock):,} logits tested, {outcome.violations:,} outside",
        ),
        *(
            ("stock arithmetic", f"M={'/'.join(map(str, sizes))}: {found}")
            for found, sizes in outcome.arithmetic().items()
        ),
        *(("audit", line) for line in [outcome.audit] if line),
        (
            "int8 copy",
            f"V={head.vocabulary:,} K={head.columns:,}: {head.copy_bytes / 2**20:.1f} MiB "
            f"+ {100 * head.metadata_bytes / head.copy_bytes:.2f} % metadata, mode {head.mode}",
        ),
        *(("mutants", line) for line in mutants_lines(outcome)),
        *(("since the run before", line) for line in [trend_line(outcome)] if line),
        *(("resumed", f"{outcome.resumed} pieces of an interrupted run") for _ in [0] if outcome.resumed),
        ("ran on", f"{outcome.device_name}; {', '.join(f'{k} {v}' for k, v in outcome.versions.items())}"),
        ("time", f"{outcome.seconds:.0f} s"),
    ):
        facts.add_row(Text(label, style="dim", no_wrap=True), text)
    console.print(facts, highlight=False)
    for failure in outcome.failures():
        console.print(Text(f"✗ {failure}", style="red"), soft_wrap=True)
    style = "bold green" if outcome.passed else "bold red"
    console.print(Text(outcome.verdict(), style=style), soft_wrap=True)


def label(driver: str) -> str:
    """A driver's name without its command."""
    return driver.partition(":")[0]


def cell_text(cell: Cell | None) -> str:
    """E.g. `15 · 1,526` cases and values, `2 of 15 wrong`, or nothing where no case is offered."""
    if cell is None:
        return "–"
    if cell.wrong:
        return f"{cell.wrong} of {cell.cases} wrong"
    return f"{cell.cases} · {cell.values:,}"


def _cases_text(cell: Cell | None) -> Text:
    if cell is None:
        return Text("–", style="dim")
    return Text(f"{cell.wrong} wrong", style="bold red") if cell.wrong else Text(f"{cell.cases}")


def _show_corpus(corpus: CorpusRun, console: Console) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("cases of the corpus", no_wrap=True)
    table.add_column("all", justify="right")
    for c in corpus.comparisons:
        table.add_column(label(c.driver), justify="right")
    for line in corpus.matrix():
        if line.family is None:
            cells = [line.cells.get(c.driver) for c in corpus.comparisons]
            table.add_row(line.stage, f"{line.total:,}", *map(_cases_text, cells))
    values = [f"{sum(c.compared.values()):,}" for c in corpus.comparisons]
    table.add_row("values compared", f"{corpus.values:,}", *values, style="dim")
    console.print(table)
    slowest = ", ".join(f"{label(d)} {case} {seconds:.1f} s" for d, case, seconds in corpus.slowest()[:3])
    left = "".join(
        f"; {n} of the cases left to `certhead cases --driver {d}`" for d, n in corpus.left_out.items()
    )
    console.print(Text(f"slowest: {slowest}{left}", style="dim"), soft_wrap=True)


def mutants_lines(outcome: Outcome) -> list[str]:
    """The last full run of the mutants in a line or two."""
    if outcome.mutants is None:
        return ["not run here yet: certhead mutants"]
    record = outcome.mutants.record
    most = ", ".join(f"{case} ({n})" for case, n in outcome.mutants.most_killing[:3])
    stale = "" if outcome.mutants.fresh else "; the sources have changed since"
    return [
        f"{record['killed']} of {record['total']} killed on {record['date'][:10]}, "
        f"{record['killed_by_tokens_only']} by tokens alone{stale}; most by {most}"
    ]


def trend_line(outcome: Outcome) -> str | None:
    """What is different from the run before with the same options; None without one."""
    if not outcome.earlier:
        return None
    before, now = outcome.earlier[-1], outcome.summary()
    parts = [f"{before['date'][:16].replace('T', ' ')}, {before['seconds']:.0f} s"]
    for key, name in (
        ("decisions", "decisions"),
        ("fallbacks", "fallbacks"),
        ("disagreements", "disagreements"),
    ):
        if before[key] != now[key]:
            parts.append(f"{name} {before[key]:,} → {now[key]:,}")
    cases_before, cases_now = sum(before["cases"].values()), sum(now["cases"].values())
    if cases_before != cases_now:
        parts.append(f"answers compared {cases_before:,} → {cases_now:,}")
    return "; ".join([*parts, *(outcome.changed() or ["nothing changed"])])
