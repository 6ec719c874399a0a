"""The tables and figures of docs/replay.md, made from the committed evidence.

The document holds blocks `<!-- replay NAME: EVIDENCE.json -->` … `<!-- /replay -->`; NAME is a table here and
the path is from the repository's root. `python -m certhead.conformance.replay.document` writes all blocks and
figures anew; a test compares the document with its evidence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import BadInput
from .confidence import Side, clopper_pearson, percent, samples_needed
from .experiment_runs import BY_NAME, KNOWN
from .plots import POWER_TOKENS, draw_metrics, draw_power, draw_roc
from .variants import RECIPES

Result = Mapping[str, Any]

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "replay.md"
BLOCK = re.compile(r"(<!-- replay (\S+): (\S+) -->\n).*?\n?(<!-- /replay -->)", re.DOTALL)
METRICS = {
    "mean_abs": "mean Δ",
    "p95_abs": "p95",
    "p99_abs": "p99",
    "rank_delta_rate": "rank Δ",
    "tie_aware_rank_delta_rate": "no tie",
    "jaccard_mean": "Jaccard",
    "js_p99": "JS p99",
}
SIZE, TOKENS = 4, 64  # of the batches that every run is judged in
SAME_WORKER = ("honest", "honest-further")  # on other prompts
WANTED = Fraction(1, 100)  # of honest batches, at most, may be rejected
PRESETS = ("document-bf16", "qwen3-8b-bf16-4090-v1")


def render(text: str, root: Path = ROOT) -> str:
    """The document with every block as its evidence has it. Raises BadInput for an unknown block or file."""

    def block(found: re.Match[str]) -> str:
        head, name, path, tail = found.groups()
        if name not in TABLES:
            raise BadInput(f"block {name}: not one of {', '.join(TABLES)}")
        return f"{head}{TABLES[name](_read(root / path))}\n{tail}"

    return BLOCK.sub(block, text)


def draw(text: str, folder: Path, root: Path = ROOT) -> list[Path]:
    """Draw the figures from the evidence that the document's blocks name; returns their files."""
    results = {path: _read(root / path) for _, _, path, _ in BLOCK.findall(text)}
    groups, cpu = {}, None
    for result in results.values():
        if "settings" in result:
            cpu = result
            groups["worker and verifier on a CPU"] = result["runs"]
        else:
            groups[f"on the {result['device']['device']}, and across"] = result["runs"]
    if cpu is None:
        raise BadInput("the document names no result of `certhead replay experiment`")
    paths = [folder / f"replay-{name}.png" for name in ("metrics", "roc", "power")]
    draw_metrics(
        {
            title: {name: (run["metrics"]["research"], is_honest(name)) for name, run in runs.items()}
            for title, runs in groups.items()
        },
        paths[0],
    )
    cheats = [name for name in _cheats(cpu) if not BY_NAME[name].short]
    samples = {name: cpu["runs"][name]["per_sample"] for name in ("honest", *cheats)}
    tokens = {name: cpu["runs"][name]["worker"]["new_tokens"] for name in samples}
    alike = [name for name in cheats if tokens[name] == tokens["honest"]]
    draw_roc(samples["honest"], {name: samples[name] for name in alike}, paths[1])
    draw_power(cpu["calibrated_both_halves"], "honest", cheats, paths[2])
    return paths


def is_honest(name: str) -> bool:
    """Whether a run of either result is of an honest worker, by its name."""
    if name in BY_NAME:
        return BY_NAME[name].honest
    worker = name.partition("/")[0]
    return RECIPES[worker].honest if worker in RECIPES else not worker.startswith("prefill")


def runs_table(result: Result) -> str:
    """Every run's metrics and its share of bit-equal logits."""
    rows = []
    for name, run in result["runs"].items():
        metrics = run["metrics"]["research"]
        values = [f"{metrics[metric]:.4f}" for metric in METRICS]
        kind = "honest" if is_honest(name) else "cheat"
        rows.append([name, kind, f"{run['tokens']:,}", *values, _equal(run)])
    return _table(["run", "", "tokens", *METRICS.values(), "equal logits"], rows)


def about_table(result: Result) -> str:
    """What each run is."""
    rows = [[name, run["about"]] for name, run in result["runs"].items()]
    return _table(["run", "worker"], rows)


def verdicts_table(result: Result) -> str:
    """What the shipped presets and the calibrated thresholds say of every run."""
    entries = {
        method: _entry(result["calibrated_both_halves"], method, SIZE, TOKENS)
        for method in ("quantile", "separating")
    }
    rows = []
    for name, run in result["runs"].items():
        cells = [run["verdicts"][preset]["outcome"] for preset in PRESETS]
        for entry in entries.values():
            judged = entry and entry["runs"].get(name)
            cells.append(
                f"{judged['pass']['events']} / {judged['reject']['events']} of {judged['batches']}"
                if judged
                else "–"
            )
        rows.append([name, "honest" if is_honest(name) else "cheat", *cells])
    words = f"pass / reject, batches of {SIZE} × {TOKENS} tokens"
    heads = [*PRESETS, f"quantile: {words}", f"gap: {words}"]
    return _table(["run", "", *heads], rows)


def honest_text(result: Result) -> str:
    """What the document's thresholds do to honest workers, and how sure the calibrated ones are."""
    lines = []
    for name, run in result["runs"].items():
        if is_honest(name):
            words = run["verdicts"]["document-bf16"]["explanation"].partition(": ")[2]
            lines.append(f"- {name}: {run['verdicts']['document-bf16']['outcome']}: {words}")
    return "\n".join(lines)


def power_table(result: Result) -> str:
    """Honest batches and those of the known cheats, by size."""
    entries = [entry for entry in result["calibrated_both_halves"] if entry["method"] == "separating"]
    cheats = [name for name in KNOWN if any(name in entry["runs"] for entry in entries)]
    rows = []
    for entry in entries:
        honest = entry["runs"]["honest"]
        caught = [
            _rate(entry["runs"][name]["reject"], entry["runs"][name]["batches"])
            if name in entry["runs"]
            else "–"
            for name in cheats
        ]
        shares = [_rate(honest[outcome], honest["batches"]) for outcome in ("pass", "reject")]
        rows.append([f"{entry['batch_size']} × {entry['tokens']}", *shares, *caught])
    heads = ["samples × tokens", "honest passed", "honest rejected", *(f"{n} rejected" for n in cheats)]
    return _table(heads, rows)


def bound_text(result: Result) -> str:
    """Whether the experiment shows that at most 1 % of honest batches are rejected, and at which power."""
    entry = _entry(result["calibrated_both_halves"], "separating", 1, max(POWER_TOKENS))
    if entry is None:
        return "The runs are too short for this."
    honest = [entry["runs"][name] for name in SAME_WORKER if name in entry["runs"]]
    events, trials = sum(run["reject"]["events"] for run in honest), sum(run["batches"] for run in honest)
    bound = clopper_pearson(events, trials, side=Side.UPPER)
    ends = clopper_pearson(events, trials)
    rejected = {"events": events, "low": float(ends.low), "high": float(ends.high)}
    shown = (
        "that is shown"
        if bound.high <= WANTED
        else (f"that is not shown; {samples_needed(WANTED)} batches without a rejection would show it")
    )
    caught = [
        f"{name} {_rate(run['reject'], run['batches'])}"
        for name, run in entry["runs"].items()
        if not run["honest"] and name in KNOWN
    ]
    most, size, batches = max(
        (
            (run["reject"], f"{other['batch_size']} × {other['tokens']}", run["batches"])
            for other in result["calibrated_both_halves"]
            if other["method"] == "separating"
            for run in [other["runs"]["honest"]]
        ),
        key=lambda found: found[0]["low"],
    )
    return (
        f"Single samples of {entry['tokens']} tokens, other prompts included: honest rejected "
        f"{_rate(rejected, trials)}, so at 95 % confidence the rate is below {percent(bound.high)}. "
        f"Wanted is at most {percent(WANTED)}: {shown}. The power at these thresholds: {', '.join(caught)}. "
        f"Over all sizes and lengths, honest batches are most surely rejected at {size}: "
        f"{_rate(most, batches)}."
    )


def attacks_table(result: Result) -> str:
    """What each attack meets, with rates and intervals."""
    entry = _entry(result["calibrated_both_halves"], "separating", SIZE, TOKENS)
    rows = []
    for name in _cheats(result):
        if entry and name in entry["runs"]:
            judged = entry["runs"][name]
            rate = f"rejected {_rate(judged['reject'], judged['batches'])}"
            passed = f"passed {_rate(judged['pass'], judged['batches'])}"
            events = judged["reject"]["events"]
            by = "metrics" if events == judged["batches"] else "metrics, in part" if events else "nothing"
            rows.append([name, result["runs"][name]["about"], by, f"{rate}; {passed}"])
    others = {**result["runs"], **result["attacks"]}
    for name, run in others.items():
        if name not in result["attacks"] and (is_honest(name) or BY_NAME[name].paths_of is None):
            continue
        found = [f"metrics alone, by document-bf16: {run['verdicts']['document-bf16']['outcome']}"]
        means = []
        exact = run["exact"]
        if exact["beyond_bound"]:
            means.append("ranks")
            found.append(_beyond(exact))
        bits = exact["bits"]["worker"]
        if bits["inconsistent"]:
            means.append("grid")
            found.append(
                f"no BF16 log-softmax at {bits['inconsistent']:,} of {exact['positions']:,} positions"
            )
        if run["verdicts"]["document-bf16"]["outcome"] == "REJECT":
            means.insert(0, "metrics")
        rows.append([name, run["about"], ", ".join(means) or "nothing", "; ".join(found)])
    return _table(["attack", "what the worker does", "caught by", "rate, 95 % interval"], rows)


def repeats_table(result: Result) -> str:
    """Which bits come again on one device, and across."""
    rows = [
        [
            what,
            f"{found['equal_outputs']} of {found['samples']}",
            f"{found['equal_samples']} of {found['samples']}",
            f"{found['equal_positions']:,} of {found['same_path_positions']:,} "
            f"({_share(found['equal_positions'], found['same_path_positions'])})",
        ]
        for what, found in result["repeats"].items()
    ]
    heads = [
        "a second time",
        "same tokens",
        "same bits throughout",
        "same bits, of positions after the same path",
    ]
    return _table(heads, rows)


def exact_table(result: Result) -> str:
    """Whether lists read as BF16 logits, and how many logits are equal on both sides."""
    rows = []
    for name, run in result["runs"].items():
        bits, positions = run["exact"]["bits"], run["exact"]["positions"]
        read = [f"{bits[side]['identified']:,} of {positions:,}" for side in ("worker", "verifier")]
        near = sum(step["logits"] for step in bits["ulps"] if step["last"] is not None and step["last"] <= 2)
        greedy = run["exact"]["greedy"]
        first = (
            "–" if greedy is None else f"{greedy['identical']:,} of {positions - greedy['undetermined']:,}"
        )
        shares = [_equal(run), _share(near, bits["logits"]), f"{bits['whole_equal']:,}"]
        rows.append([name, *read, first, *shares])
    heads = [
        "run",
        "worker's lists that read",
        "verifier's",
        "tokens that are the first maximum",
        "equal logits",
        "within 2 ulps",
        "positions all equal",
    ]
    return _table(heads, rows)


def setup_text(result: Result) -> str:
    """The circumstances in one paragraph."""
    machine, versions, settings = result["machine"], result["versions"], result["settings"]
    lengths = ", ".join(map(str, settings["input_tokens"]))
    return (
        f"{result['model']['name']}, {settings['prompts']} prompts of {lengths} tokens "
        f"({settings['short_prompts']} more of {settings['short_input_tokens']}), "
        f"the {settings['logprobs']} most likely tokens at each depth. {machine['processor']} "
        f"({machine['capability']}, {machine['threads']} thread), torch {versions['torch']}, "
        f"transformers {versions['transformers']}."
    )


def judged_table(result: Result) -> str:
    """Honest workers across devices under thresholds that were calibrated on the CPU alone."""
    entries = [e for e in result["judged_by_cpu_thresholds"] if e["method"] == "separating"]
    names = list(dict.fromkeys(n for e in entries for n, run in e["runs"].items() if run["honest"]))
    rows = []
    for entry in entries:
        runs = entry["runs"]
        shares = [
            "; ".join(f"{word} {_rate(runs[n][word], runs[n]['batches'])}" for word in ("pass", "reject"))
            for n in names
        ]
        rows.append([f"{entry['batch_size']} × {entry['tokens']}", *shares])
    return _table(["samples × tokens", *names], rows)


TABLES: Mapping[str, Callable[[Result], str]] = {
    "setup": setup_text,
    "about": about_table,
    "runs": runs_table,
    "verdicts": verdicts_table,
    "honest": honest_text,
    "power": power_table,
    "attacks": attacks_table,
    "exact": exact_table,
    "repeats": repeats_table,
    "bound": bound_text,
    "judged": judged_table,
}

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    document: Annotated[Path, typer.Argument(help="The document with the blocks.")] = DOCUMENT,
    folder: Annotated[
        Path | None, typer.Option(help="For the figures.", show_default="the document's")
    ] = None,
) -> None:
    """Write the document's tables anew and draw its figures, from the evidence that it names."""
    text = document.read_text("utf-8")
    document.write_text(render(text), "utf-8")
    for path in draw(text, folder or document.parent):
        print(f"{path.stat().st_size:8,}  {path}")


def _read(path: Path) -> Result:
    try:
        result: Result = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as problem:
        raise BadInput(f"{path}: {problem}") from None
    return result


def _cheats(result: Result) -> list[str]:
    """The cheating workers that decoded their own text."""
    return [name for name in result["runs"] if not is_honest(name) and BY_NAME[name].paths_of is None]


def _entry(entries: Sequence[Result], method: str, size: int, tokens: int) -> Result | None:
    wanted = {"method": method, "batch_size": size, "tokens": tokens}
    return next((e for e in entries if all(e[key] == value for key, value in wanted.items())), None)


def _equal(run: Result) -> str:
    bits = run["exact"]["bits"]
    return _share(bits["equal"], bits["logits"])


def _beyond(exact: Result) -> str:
    words = (
        f"rank above {exact['rank_bound']} at {exact['beyond_bound']:,} of {exact['positions']:,} positions"
    )
    if exact.get("samples_beyond_bound") is None:
        return words
    interval = clopper_pearson(exact["samples_beyond_bound"], exact["samples"])
    return (
        f"{words}, in {interval.events} of {interval.trials} samples "
        f"[{percent(interval.low)}, {percent(interval.high)}]"
    )


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "–"


def _rate(counted: Result, trials: int) -> str:
    ends = (f"{100 * counted[end]:.1f}" for end in ("low", "high"))
    return f"{counted['events']} of {trials} [{', '.join(ends)} %]"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    try:
        app(standalone_mode=True)
    except BadInput as problem:
        raise SystemExit(f"document: {problem}") from None
