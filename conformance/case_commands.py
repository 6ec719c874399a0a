"""The commands about cases: `certhead cases`, `certhead mutants`, `certhead gate`, `certhead fuzz`.

Everything heavy is imported when a command runs, so that the other commands start quickly.
"""

from __future__ import annotations

import json as json_module
import os
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from .cases import CORPUS, STAGES, Case, read_corpus, write_corpus
from .errors import BadInput

if TYPE_CHECKING:
    from .compare import Comparison
    from .mutants import Verdict

P = ParamSpec("P")
Json = Annotated[Path | None, typer.Option(help="Write the result to this file, as JSON.")]
Corpus = Annotated[Path, typer.Option(help="Folder of *.jsonl files.")]
Drivers = Annotated[
    list[str] | None,
    typer.Option(
        "--driver",
        help="pyref, torch, interpret, cuda, lean, or 'external:COMMAND'; once for each [default: "
        "pyref, torch, interpret, and cuda where there is a device].",
    ),
]


def _bad_input_is_exit_2(command: Callable[P, None]) -> Callable[P, None]:
    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except BadInput as problem:
            typer.echo(f"certhead {command.__name__}: {problem}", err=True)
            raise typer.Exit(2) from None

    return run


@_bad_input_is_exit_2
def cases(
    driver: Drivers = None,
    case: Annotated[
        str | None, typer.Option(help="Run this case alone, or all that start with this.")
    ] = None,
    corpus: Corpus = CORPUS,
    timeout: Annotated[float, typer.Option(help="Seconds that a program may take for one answer.")] = 60.0,
    write: Annotated[
        Path | None, typer.Option(help="Generate the corpus into this folder, and run nothing.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed for --write.")] = 0,
    json: Json = None,
) -> None:
    """Compare implementations with the corpus of cases, stage by stage, as bits.

    Exit code: 0 when every answer has the wanted bits, 1 on any difference or missing answer, 2 on bad
    input. The first differing stage of a case is reported, with the command that repeats it.
    """
    if write is not None:
        from .case_families import generate

        write_corpus(generate(seed), write)
        return
    chosen = read_corpus(corpus)
    if case is not None:
        exact = [c for c in chosen if c.id == case]
        chosen = exact or [c for c in chosen if c.id.startswith(case)]
        if not chosen:
            raise BadInput(f"--case {case}: no such case in {corpus}")
    outcomes = _compare(driver, chosen, timeout)
    if json is not None:
        json.write_text(json_module.dumps([o.to_json() for o in outcomes], indent=1) + "\n", "utf-8")
    if any(not o.passed for o in outcomes):
        raise typer.Exit(1)


def _compare(names: Sequence[str] | None, chosen: Sequence[Case], timeout: float) -> list[Comparison]:
    from .compare import run
    from .drivers.registry import available, make

    outcomes = [run(make(name, timeout), chosen) for name in names or available()]
    for o in outcomes:
        counts = ", ".join(f"{stage} {o.compared[stage]:,}" for stage in STAGES if o.compared[stage])
        typer.echo(
            f"{o.driver}: {o.cases} cases, {o.skipped} not offered; values compared: {counts or 'none'}; "
            f"{len(o.differences)} cases differ, {len(o.failures)} failed; {o.seconds:.1f} s"
        )
    for o in outcomes:
        for line in [*map(str, o.differences), *o.failures]:
            typer.echo(line)
        if not o.compared and not o.failures:
            typer.echo(f"{o.driver}: offers none of these cases")
    return outcomes


@_bad_input_is_exit_2
def mutants(
    only: Annotated[str, typer.Option(help="Run the mutants whose name holds this.")] = "",
    jobs: Annotated[int | None, typer.Option(help="Processes at a time [default: one a core].")] = None,
    corpus: Corpus = CORPUS,
    json: Json = None,
) -> None:
    """Run the corpus against wrong kernels: every one must be told from the right one.

    Exit code: 0 when every mutant is killed and the unchanged packages survive, else 1. The last column
    says whether comparing returned tokens alone would have killed it.
    """
    from .mutants import CONTROLS, run_mutants, to_json
    from .mutants_list import MUTANTS

    chosen = [m for m in MUTANTS + CONTROLS if only in m.name]
    if not chosen:
        raise BadInput(f"--only {only}: no mutant has this in its name")
    start = time.perf_counter()
    typer.echo(_ROW.format("mutant", "tokens", "after", "s", "killed by"))
    verdicts = run_mutants(read_corpus(corpus), chosen, jobs=jobs, done=_show)
    wrong = [v for v in verdicts if not v.right]
    dead = [v for v in verdicts if v.killed and not v.control]
    count, tokens = sum(not v.control for v in verdicts), sum(v.tokens_only for v in dead)
    typer.echo(
        f"{len(dead)} of {count} mutants killed, {tokens} of them by tokens alone; "
        f"{time.perf_counter() - start:.0f} s"
    )
    for v in wrong:
        typer.echo(f"{v.name}: " + (f"the unchanged package fails: {v.by}" if v.control else "survived"))
    if json is not None:
        json.write_text(to_json(verdicts), "utf-8")
    if wrong:
        raise typer.Exit(1)


_ROW = "{:36} {:6} {:>5} {:>5}  {}"


def _show(v: Verdict) -> None:
    fate = v.by or ("alive, as it must be" if v.control else "SURVIVED")
    after = "" if v.after is None else str(v.after)
    typer.echo(_ROW.format(v.name, "yes" if v.tokens_only else "no", after, f"{v.seconds:.1f}", fate))


@_bad_input_is_exit_2
def gate(
    driver: Drivers = None,
    evidence: Annotated[
        Path | None, typer.Option(help="Folder with GPU evidence [default: the repository's].")
    ] = None,
    gpu: Annotated[bool, typer.Option("--gpu/--no-gpu", help="Ask for GPU evidence.")] = True,
    corpus: Corpus = CORPUS,
    json: Json = None,
) -> None:
    """Refuse kernels that no evidence covers: run the corpus here, and look for GPU evidence with this hash.

    Exit code: 0 when both hold, else 1, with a line for each reason.
    """
    from .gate import EVIDENCE, evidence_problems, source_hash

    typer.echo(f"sources {source_hash()}")
    problems = evidence_problems(evidence or EVIDENCE) if gpu else []
    outcomes = _compare(driver, read_corpus(corpus), 60.0)
    problems += [f"{o.driver}: does not have the wanted bits" for o in outcomes if not o.passed]
    for line in problems:
        typer.echo(f"gate: {line}")
    typer.echo("gate: closed" if problems else "gate: open")
    if json is not None:
        record = {
            "schema": "certhead.gate/1",
            "source_hash": source_hash(),
            "open": not problems,
            "problems": problems,
            "cpu": [o.to_json() for o in outcomes],
        }
        json.write_text(json_module.dumps(record, indent=1) + "\n", "utf-8")
    if problems:
        raise typer.Exit(1)


@_bad_input_is_exit_2
def fuzz(
    minutes: Annotated[float, typer.Option(help="How long.")] = 1.0,
    driver: Annotated[str, typer.Option(help="torch or pyref (against itself).")] = "torch",
    seed: Annotated[int, typer.Option(help="First seed; each round takes the next.")] = 1,
    jobs: Annotated[int, typer.Option(help="Processes.")] = os.cpu_count() or 1,
    out: Annotated[Path, typer.Option(help="Where failing cases go, made small.")] = Path("build/fuzz.jsonl"),
    json: Annotated[Path | None, typer.Option(help="Write the counts to this file, as JSON.")] = None,
) -> None:
    """Compare a driver with pyref on ever new cases, until the time is up.

    Exit code: 0 when nothing differs, else 1; failing cases are made small and appended to --out.
    JSON, schema certhead.fuzz/1: `driver`, `first_seed`, `cases`, `seconds`, `failures`.
    """
    from .fuzz import failing_cases
    from .fuzz import fuzz as run

    if driver not in ("torch", "pyref"):
        raise BadInput(f"--driver {driver}: torch or pyref")
    rounds, failures, said, line = [], 0, 0.0, "0 cases"
    record: dict[str, object] = {"schema": "certhead.fuzz/1", "driver": driver, "first_seed": seed}
    for found, total, seconds in run(driver, minutes, seed, jobs):
        rounds.append(found)
        failures += len(found.failures)
        line = f"{total:,} cases, {total / seconds:.0f}/s, {failures} differ"
        record |= {"cases": total, "seconds": round(seconds, 1), "failures": failures}
        for difference, _ in found.failures:
            typer.echo(difference)
        if seconds - said > 10:
            typer.echo(line)
            said = seconds
    typer.echo(line)
    if json is not None:
        json.write_text(json_module.dumps(record, indent=1) + "\n")
    if failures:
        out.parent.mkdir(parents=True, exist_ok=True)
        with out.open("a", encoding="utf-8") as file:
            file.writelines(case.to_json() + "\n" for case in failing_cases(rounds))
        typer.echo(f"{failures} failing cases: {out}")
        raise typer.Exit(1)
