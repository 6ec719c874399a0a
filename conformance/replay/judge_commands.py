"""The commands that compare, judge and calibrate.

Everything heavy is imported when a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import BadInput
from .calibrate_files import Method
from .options import (
    EXIT_INCONCLUSIVE,
    EXIT_REJECT,
    ConventionOption,
    Json,
    Presets,
    Root,
    bad_input_is_exit_2,
    check_folder,
    echo_some,
    hash_of,
    write_json,
)
from .record import BadLine, Reader
from .summary import Convention
from .trace import Sample

if TYPE_CHECKING:
    from .exact_check import ExactCheck
    from .metrics import TokenMetrics
    from .verdict import Preset

PRESET = "document-bf16"


@bad_input_is_exit_2
def compare(
    worker: Annotated[Path, typer.Argument(help="The worker's evidence.", show_default=False)],
    verifier: Annotated[Path, typer.Argument(help="The verifier's scores of it.", show_default=False)],
    preset: Annotated[str, typer.Option(help="Thresholds, by name.")] = PRESET,
    presets: Presets = None,
    convention: ConventionOption = None,
    compared_topk: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Entries that the protocol convention compares.",
            show_default="the smaller of both files' promises",
        ),
    ] = None,
    root: Root = None,
    samples: Annotated[bool, typer.Option("--samples", help="Show every sample's metrics as well.")] = False,
    exact: Annotated[
        bool, typer.Option("--exact/--no-exact", help="Ask the exact questions as well as the statistics.")
    ] = True,
    json: Json = None,
) -> None:
    """Compare the two distributions at every token, and judge the batch.

    Metrics, each of an error, over all tokens: how far the chosen token's log probability moved (mean and
    quantiles), how often its rank changed, how many of the most likely tokens both lists share (Jaccard), and
    how far apart the distributions over both lists are (Jensen-Shannon, in nats: 0 to ln 2).

    Verdict: PASS when every accept rule of the preset holds; else REJECT when any reject rule does; else
    INCONCLUSIVE, as are batches with too few tokens or samples for the preset. A batch of which a part could
    not be compared (bad lines, samples without scores) never passes: what would be PASS is INCONCLUSIVE, so
    that nobody can pass by spoiling the lines that tell.

    Thresholds belong to a model, its engines and its devices. Those of the document are for Qwen3-8B in BF16,
    under which an honest SmolLM2-135M is inconclusive, or rejected; `calibrate` makes your own. A calibrated
    preset refuses to judge the prompts that it was derived from.

    Exact questions, beside the statistics: the share of BF16 logits that are bit-equal on both sides, up to
    one shift a position (all of them, on one device at one batch shape); whether a greedy worker's tokens are
    the first maxima of its own logits; and whether every token has a rank that the worker's sampling can
    choose (1 when greedy, k when it samples from the k most likely). Evidence that breaks the last
    contradicts itself: REJECT.

    Exit code: 0 PASS, 1 REJECT, 3 INCONCLUSIVE, 2 bad input.

    JSON (schema certhead.replay.compare/1): outcome, explanation, decided_by and reasons; preset, convention,
    compared_topk; summary and its exact fractions, and the same per sample; left_out, bad, unscored; exact
    (null with --no-exact); both variants; root of the worker's file.
    """
    from rich.console import Console

    from .calibrate import prompt_digest, refuse_overlap
    from .comparison_view import comparison_json, show_metrics, show_samples, show_variants
    from .pairing import compare_files, withhold
    from .verdict import explain, judge

    chosen = _preset(preset, presets)
    if convention is not None:
        chosen = chosen.under(convention)
    if root is not None:
        _check_root(worker, hash_of("--root", root))
    asked = _exact_check(worker) if exact else None
    prompts = set()

    def see(ours: Sample, theirs: Sample, _: TokenMetrics) -> None:
        prompts.add(prompt_digest(ours.input_ids))
        if asked is not None:
            asked.see(ours, theirs)

    found = compare_files(worker, verifier, chosen.convention, compared_topk, see)
    if not found.samples:
        echo_some([*found.bad, *found.bad_scores])
        raise BadInput(f"{worker} and {verifier}: no sample of one path in both")
    refuse_overlap(chosen, prompts)
    verdict = withhold(judge(found.summary, [s.summary for s in found.samples], chosen), found)
    if asked is not None:
        verdict = asked.overrule(verdict)
    write_json(json, {**comparison_json(found, verdict), "exact": asked and asked.to_json()})
    console = Console()
    show_variants(found, console)
    if samples:
        show_samples(found, console)
    show_metrics(found.summary, chosen, console)
    for line in asked.lines() if asked is not None else ():
        console.print(line, highlight=False)
    echo_some([*found.bad, *found.bad_scores, *(f"sample {i!r}: not scored" for i in found.unscored)])
    typer.echo(explain(verdict))
    raise typer.Exit({"PASS": 0, "REJECT": EXIT_REJECT, "INCONCLUSIVE": EXIT_INCONCLUSIVE}[verdict.outcome])


@bad_input_is_exit_2
def calibrate(
    worker: Annotated[Path, typer.Argument(help="An honest worker's evidence.", show_default=False)],
    verifier: Annotated[Path, typer.Argument(help="The verifier's scores of it.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="Preset to write, as TOML.", show_default=False)],
    cheat: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME,WORKER,VERIFIER",
            help="Evidence of a known cheat and the verifier's scores of it; once for each.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the preset.")] = "calibrated",
    method: Annotated[
        Method,
        typer.Option(
            help="quantile: from honest values, pass = 1.25 x q0.99 and reject = 3 x pass (Jaccard: "
            "q0.01 - 0.02, and a third). separation: 1/3 and 2/3 into the gap to the nearest cheat."
        ),
    ] = Method.QUANTILE,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples in the batches that will be judged.")] = 16,
    share: Annotated[float, typer.Option(min=0.05, max=0.95, help="Share of prompts to calibrate on.")] = 0.5,
    convention: Annotated[
        Convention, typer.Option(help="Of the metrics; see `compare`.")
    ] = Convention.RESEARCH,
    seed: Annotated[int, typer.Option(help="Seed of the split and of the batches.")] = 0,
    json: Json = None,
) -> None:
    """Derive thresholds from honest evidence, and judge by them what they were not derived from.

    Thresholds that are tuned and scored on the same data promise more than they keep. So the prompts are
    split, by a hash: one part makes the preset, and the error rates, with exact (Clopper-Pearson) intervals,
    are of the other part, in disjoint batches. The preset names the prompts that it was derived from,
    and `compare` refuses to judge them.

    Exit code: 0 no error on the other part, 1 an honest batch was rejected or a cheating one passed, 2 bad
    input.

    JSON (schema certhead.replay.calibrate/1): preset (as in the TOML file), method, batch_size, honest and
    each of cheats with batches, pass, reject, inconclusive and the error's rate and interval; auc: per cheat
    and metric, of single samples.
    """
    from .calibrate_files import calibrate_files
    from .calibrate_view import calibration_json, errors, show_calibration

    check_folder("OUT", out)
    cheats = dict(_cheat(text) for text in cheat or ())
    if len(cheats) < len(cheat or ()):
        raise BadInput("--cheat: two have one name")
    found = calibrate_files(
        name,
        (worker, verifier),
        cheats,
        convention=convention,
        method=method,
        batch_size=batch_size,
        share=Fraction(str(share)),
        seed=seed,
    )
    out.write_text(found.calibration.preset.to_toml(), "utf-8")
    write_json(json, calibration_json(found))
    show_calibration(found)
    typer.echo(f"preset {name!r} is in {out}")
    raise typer.Exit(1 if errors(found) else 0)


def _cheat(text: str) -> tuple[str, tuple[Path, Path]]:
    parts = text.split(",")
    if len(parts) != 3 or not all(parts):
        raise BadInput(f"--cheat {text}: must be NAME,WORKER,VERIFIER")
    return parts[0], (Path(parts[1]), Path(parts[2]))


def _preset(name: str, path: Path | None) -> Preset:
    from .verdict import SHIPPED, load_presets

    presets = load_presets(path or SHIPPED)
    if name not in presets:
        raise BadInput(f"--preset {name}: not one of {', '.join(presets)} ({path or SHIPPED})")
    return presets[name]


def _exact_check(worker: Path) -> ExactCheck:
    from .exact_check import ExactCheck

    with Reader(worker) as reader:
        return ExactCheck(reader.variant.sampling)


def _check_root(path: Path, wanted: bytes) -> None:
    with Reader(path) as reader:
        bad = sum(isinstance(item, BadLine) for item in reader)
    if reader.computed_root() != wanted:
        beside = f" ({bad} bad lines left out)" if bad else ""
        raise BadInput(f"{path}: has root {reader.computed_root().hex()}{beside}, not {wanted.hex()}")
