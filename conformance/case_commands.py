"""The commands about cases: `certhead cases`, `certhead mutants`, `certhead gate`, `certhead fuzz`.

Everything heavy is imported when a command runs, so that the other commands start quickly.
"""

from __future__ import annotations

import hashlib
import json as json_module
import os
import shlex
import time
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from .cases import CORPUS, Case, corpus_hash, read_corpus, write_corpus
from .errors import BadInput
from .resume import Unfinished

if TYPE_CHECKING:
    from .compare import Comparison
    from .fuzz import Round
    from .mutants import Verdict

P = ParamSpec("P")
FOUND = Path("build/fuzz/found.jsonl")
Jobs = Annotated[int | None, typer.Option(help="Processes at a time [default: one a core].")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Do not go on with an interrupted run.")]
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
        except KeyboardInterrupt:
            again = "run it again to go on where it stopped"
            typer.echo(f"certhead {command.__name__}: interrupted; {again}", err=True)
            raise typer.Exit(130) from None

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
    jobs: Jobs = None,
    fresh: Fresh = False,
    json: Json = None,
) -> None:
    """Compare implementations with the corpus of cases, stage by stage, as bits.

    Each driver is a program of its own, and several run at a time. A run that was interrupted goes on where
    it stopped. The first differing stage of a case is reported, with the command that repeats it.

    Exit code: 0 when every answer has the wanted bits, 1 on any difference or missing answer, 2 on bad input.
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
    unfinished = Unfinished.of("cases", corpus_hash(chosen), _programs(driver), fresh=fresh)
    outcomes = _compare(driver, chosen, timeout, jobs, unfinished, corpus)
    unfinished.complete()
    if json is not None:
        json.write_text(json_module.dumps([o.to_json() for o in outcomes], indent=1) + "\n", "utf-8")
    if any(not o.passed for o in outcomes):
        raise typer.Exit(1)


def _programs(names: Sequence[str] | None) -> list[tuple[str, str]]:
    """The hashes of the files that external commands name: another program's answers are not to be kept."""
    words = [word for name in names or () if name.startswith("external:") for word in shlex.split(name[9:])]
    files = [Path(word) for word in words if Path(word).is_file()]
    return [(str(path), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


def _compare(
    names: Sequence[str] | None,
    chosen: Sequence[Case],
    timeout: float,
    jobs: int | None = None,
    unfinished: Unfinished | None = None,
    corpus: Path = CORPUS,
) -> list[Comparison]:
    from .compare import run_all
    from .corpus_run import tasks_of, values_by_stage
    from .drivers.registry import available, make

    jobs = jobs or os.cpu_count() or 1
    names = list(dict.fromkeys(names or available()))
    drivers = [make(name, timeout) for name in names]
    slowest_first = sorted(drivers, key=lambda driver: driver.name not in ("interpret", "lean"))
    outcomes = run_all(tasks_of(slowest_first, chosen, jobs, timeout), jobs, unfinished)
    outcomes.sort(key=lambda outcome: names.index(outcome.driver))
    for o in outcomes:
        typer.echo(
            f"{o.driver}: {o.cases} cases, {o.skipped} not offered; values compared: {values_by_stage(o)}; "
            f"{len(o.differences)} cases differ, {len(o.failures)} failed; {o.seconds:.1f} s"
            + (f"; {o.resumed} from the interrupted run" if o.resumed else "")
        )
    for o in outcomes:
        for difference in o.differences:
            typer.echo(f"{difference}{'' if corpus == CORPUS else f' --corpus {corpus}'}")
        for line in o.failures:
            typer.echo(line)
        if not o.compared and not o.failures:
            typer.echo(f"{o.driver}: offers none of these cases")
    return outcomes


@_bad_input_is_exit_2
def mutants(
    only: Annotated[str, typer.Option(help="Run the mutants whose name holds this.")] = "",
    jobs: Jobs = None,
    corpus: Corpus = CORPUS,
    fresh: Fresh = False,
    json: Json = None,
) -> None:
    """Run the corpus against wrong kernels: every one must be told from the right one.

    A run that was interrupted goes on where it stopped; the record of a full one is kept for the report of
    `certhead conform`. The last column says whether comparing returned tokens alone would have killed it.

    Exit code: 0 when every mutant is killed and the unchanged packages survive, else 1; 1 too, and nothing
    is run, when a mutant no longer applies to the sources.
    """
    from .history import hash_under_test, keep_mutants
    from .mutants import CONTROLS, moved, run_mutants, to_record
    from .mutants_list import MUTANTS

    chosen = [m for m in MUTANTS + CONTROLS if only in m.name]
    if not chosen:
        raise BadInput(f"--only {only}: no mutant has this in its name")
    if problems := moved(chosen):
        for line in problems:
            typer.echo(line)
        typer.echo(f"{len(problems)} mutants do not apply: repair conformance/mutants.toml")
        raise typer.Exit(1)
    start = time.perf_counter()
    typer.echo(_ROW.format("mutant", "tokens", "after", "s", "killed by"))
    chosen_cases, sources = read_corpus(corpus), hash_under_test()
    unfinished = Unfinished.of("mutants", corpus_hash(chosen_cases), fresh=fresh)
    verdicts = run_mutants(chosen_cases, chosen, jobs=jobs, done=_show, unfinished=unfinished)
    unfinished.complete()
    wrong = [v for v in verdicts if not v.right]
    dead = [v for v in verdicts if v.killed and not v.control]
    count, tokens = sum(not v.control for v in verdicts), sum(v.tokens_only for v in dead)
    typer.echo(
        f"{len(dead)} of {count} mutants killed, {tokens} of them by tokens alone; "
        f"{time.perf_counter() - start:.0f} s"
    )
    for v in wrong:
        typer.echo(f"{v.name}: " + (f"the unchanged package fails: {v.by}" if v.control else "survived"))
    if unfinished.resumed:
        typer.echo(f"{unfinished.resumed} verdicts from the interrupted run")
    record = to_record(verdicts, sources)
    if len(chosen) == len(MUTANTS + CONTROLS) and corpus == CORPUS:
        keep_mutants(record)
    if json is not None:
        json.write_text(json_module.dumps(record, indent=1) + "\n", "utf-8")
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
    driver: Annotated[
        list[str] | None,
        typer.Option(
            help="torch, interpret or pyref, beside pyref; once for each [default: torch, interpret]."
        ),
    ] = None,
    lean: Annotated[
        bool, typer.Option("--lean/--no-lean", help="Lean takes part, in some batches, at its own pace.")
    ] = False,
    least: Annotated[
        int | None,
        typer.Option(help="Stop after so many cases that every driver answered; fail if time is up before."),
    ] = None,
    seed: Annotated[int, typer.Option(help="First seed; each round takes the next.")] = 1,
    jobs: Jobs = None,
    out: Annotated[Path, typer.Option(help="The corpus of failing cases, made small.")] = FOUND,
    fresh: Fresh = False,
    json: Annotated[Path | None, typer.Option(help="Write the counts to this file, as JSON.")] = None,
) -> None:
    """Compare drivers with pyref on ever new cases, until the time is up.

    Failing cases are made small and added to --out, a corpus that grows and that each run starts with. A run
    that was interrupted goes on where it stopped.

    Exit code: 0 when nothing differs, and --least was reached, else 1.

    \b
    JSON keys (schema certhead.fuzz/1):
      drivers, first_seed            what was compared, and where the seeds began
      cases                          small cases, all together
      cases_by_driver                for which a driver gave bits (lean is counted here alone)
      cases_everywhere               for which every driver gave bits; by stage, and for each second
      seconds, cpu_seconds, load     wall clock, time on cores, the machine's load averages at the end
      failures                       cases that differ
    """
    from .fuzz import fuzz as run
    from .fuzz import grow, line_of, still_failing, to_record, write_json

    names = list(dict.fromkeys(driver or ("torch", "interpret")))
    for name in names:
        if name not in ("torch", "interpret", "pyref"):
            raise BadInput(f"--driver {name}: torch, interpret or pyref")
    if lean:
        from .lean import reference_is_built

        if not reference_is_built():
            raise BadInput("--lean: the reference is not built; run `certhead cases --driver lean` once")
    again = still_failing(out, names)
    for difference, case in again:
        typer.echo(f"still {_repeat(out, difference, case)}")
    unfinished = Unfinished.of("fuzz", minutes, names, lean, seed, fresh=fresh)
    if unfinished.resumed:
        typer.echo(f"going on with an interrupted run: {unfinished.resumed} rounds are done")
    rounds: list[Round] = []
    said = 0.0
    record = to_record(rounds, names, seed, 0.0, len(again))
    differing = len(again)
    for found, seconds in run(names, minutes, seed, jobs or os.cpu_count() or 1, lean, unfinished):
        rounds.append(found)
        differing += len(found.failures)
        record = to_record(rounds, names, seed, seconds, differing)
        for difference, small in grow(out, found.failures):
            typer.echo(_repeat(out, difference, small.id))
        if seconds - said > 10:
            typer.echo(line_of(record))
            said = seconds
        everywhere = sum(round_.everywhere for round_ in rounds)
        if least is not None and everywhere >= least:
            break
    unfinished.complete()
    typer.echo(line_of(record))
    if json is not None:
        write_json(json, record)
    if differing:
        typer.echo(f"{differing} failing cases: {out}")
        raise typer.Exit(1)
    if least is not None and sum(round_.everywhere for round_ in rounds) < least:
        typer.echo(f"fewer than {least:,} cases within {minutes:g} minutes")
        raise typer.Exit(1)


def _repeat(out: Path, difference: str, case: str) -> str:
    what, driver = difference.partition("; repeat:")[0], difference.partition(":")[0]
    return f"{what}; repeat: certhead cases --corpus {out.parent} --driver {driver} --case {case}"
