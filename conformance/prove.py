"""`certhead prove`: checks every proof, and that the proofs say what they are said to say.

What is checked, and fails:
- each module below `formal/CertHead` compiles, and is reachable from `formal/CertHead.lean`;
- no way around the kernel is named there (`FORBIDDEN`), comments aside;
- every theorem depends on no axiom but `AXIOMS`;
- `formal/STATEMENTS.md` is the snapshot of the main theorems' statements and of every definition that they
  rest on, so that a weakened one shows in review; `--update` rewrites it;
- each weakened statement in `formal/variants` is rejected, at the marked lines and for the marked reasons.
"""

from __future__ import annotations

import hashlib
import json as json_module
import re
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from .lean import OFFLINE, REFERENCE, REPOSITORY, closure, elaborate, toolchain

ROOT_MODULE = "CertHead"
AXIOMS = frozenset({"propext", "Quot.sound", "Classical.choice"})
FORBIDDEN = (
    "sorry",
    "sorryAx",
    "admit",
    "native_decide",
    "bv_decide",
    "implemented_by",
    "extern",
    "unsafe",
    "axiom",
    "debug.skipKernelTC",
)
REJECTED = "-- rejected: "  # at the end of a variant's line: the error must be there and contain what follows
REPORT_WIDTH = 140  # columns, where the output is not a terminal
SNAPSHOT = Path("formal") / "STATEMENTS.md"


@dataclass(frozen=True)
class Declaration:
    """A named declaration in a source file. `text` is the statement (theorems) or the whole (the others)."""

    name: str
    kind: str
    doc: str | None
    text: str
    private: bool


@dataclass
class Module:
    """What the checker said about one module; `axioms` by theorem."""

    name: str
    seconds: float = 0.0
    axioms: dict[str, list[str]] = field(default_factory=dict)
    compiled: bool = False


@dataclass(frozen=True)
class Variant:
    """A weakened statement and the lines where Lean refused it."""

    name: str
    lines: list[int]
    reasons: list[str]


@dataclass
class Report:
    """Everything that one check found; it passed when `problems` is empty."""

    checker: str
    modules: list[Module] = field(default_factory=list)
    variants: list[Variant] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def without_comments(source: str) -> str:
    """The source with comments and the inside of strings blanked, every line break kept."""
    out: list[str] = []
    depth = i = 0
    while i < len(source):
        two, c = source[i : i + 2], source[i]
        if two == "/-":
            depth, i = depth + 1, i + 2
        elif depth:
            if two == "-/":
                depth, i = depth - 1, i + 2
            else:
                out.append("\n" if c == "\n" else "")
                i += 1
        elif two == "--":
            end = source.find("\n", i)
            i = len(source) if end < 0 else end
        elif c == '"':
            end = i + 1
            while end < len(source) and source[end] != '"':
                end += 2 if source[end] == "\\" else 1
            out.append('"' + "\n" * source.count("\n", i, end) + '"')
            i = end + 1
        else:
            out.append(c)
            i += 1
    return "".join(out)


def forbidden_words(root: Path) -> list[str]:
    """The places below `formal/CertHead` that name a way around the kernel."""
    found = []
    for path in sorted((root / "formal" / ROOT_MODULE).rglob("*.lean")):
        code = without_comments(path.read_text(encoding="utf-8"))
        for number, line in enumerate(code.splitlines(), 1):
            words = re.findall(r"[A-Za-z_][\w.']*", line)
            place = f"{path.relative_to(root)}:{number}"
            found += [f"{place}: names {word}" for word in FORBIDDEN if word in words]
    return found


def unreachable(root: Path) -> list[str]:
    """Files below `formal/CertHead` that the root module does not import, directly or not."""
    reached = set(closure(root, ROOT_MODULE).values())
    files = (root / "formal" / ROOT_MODULE).rglob("*.lean")
    return [
        f"{f.relative_to(root)}: not reachable from formal/CertHead.lean"
        for f in sorted(files)
        if f not in reached
    ]


_DECLARATION = re.compile(
    r"(?:/--(?P<doc>(?:(?!-/).)*)-/\s*\n)?"
    r"(?:@\[[^\]]*\]\s*)*(?P<private>private )?(?:protected |noncomputable )*"
    r"(?P<kind>theorem|def|structure|inductive|abbrev|namespace|end)[ ](?P<name>\S+)",
    flags=re.DOTALL | re.MULTILINE,
)


def declarations(source: str) -> list[Declaration]:
    """The declarations of one file that start at the beginning of a line, in order."""
    found: list[Declaration] = []
    spaces: list[str] = []
    for match in _DECLARATION.finditer(source):
        start = match.start("kind")
        head = source.rfind("\n", 0, start) + 1
        before = source[head:start]
        if before.strip() and not re.fullmatch(
            r"(?:@\[.*\]\s*)?(?:private |protected |noncomputable )*", before
        ):
            continue
        kind, name = match["kind"], match["name"]
        if kind == "namespace":
            spaces.append(name)
        elif kind == "end":
            if spaces and spaces[-1] == name:
                spaces.pop()
        else:
            text = _statement(source, start) if kind == "theorem" else _whole(source, start)
            doc = " ".join(match["doc"].split()) if match["doc"] else None
            full = ".".join([*spaces, name])
            found.append(Declaration(full, kind, doc, text, private=bool(match["private"])))
    return found


def _statement(source: str, start: int) -> str:
    """From the keyword to the `:=` or the first pattern of the proof."""
    depth = 0
    for i in range(start, len(source)):
        c = source[i]
        depth += (c in "([{⟨") - (c in ")]}⟩")
        if depth == 0 and (source.startswith(":=", i) or re.match(r"\n\s+\| ", source[i : i + 40])):
            return source[start:i].rstrip()
    return source[start:].rstrip()


def _whole(source: str, start: int) -> str:
    """From the keyword to the next line that starts in the first column."""
    end = re.compile(r"\n(?=\S)").search(source, start)
    return source[start : end.start() if end else len(source)].rstrip()


def snapshot(root: Path) -> str:
    """The text of `formal/STATEMENTS.md`: the main theorems, and what every definition under them hashes to.

    Main theorems are those with bold words in their docstring. A definition belongs if its name occurs
    in a main statement or in a definition that belongs, so that weakening one shows as well.
    """
    modules = {
        name: [d for d in declarations(path.read_text(encoding="utf-8")) if not d.private]
        for name, path in closure(root, ROOT_MODULE).items()
        if name != REFERENCE  # it names the protocol's words; no theorem speaks about it
    }
    everything = [d for found in modules.values() for d in found]
    main = [d for d in everything if d.kind == "theorem" and d.doc and "**" in d.doc]
    needed = _needed(main, [d for d in everything if d.kind != "theorem"])
    lines = [
        "# Statements",
        "",
        "Generated by `scripts/check_lean.sh --update`; the check fails when it is stale. The main theorems",
        "of `formal/CertHead`, and at the end every definition that they rest on with a hash of its text.",
    ]
    for name, found in modules.items():
        shown = [d for d in found if d in main]
        lines += ["", f"## {name}"] if shown else []
        for d in shown:
            lines += ["", d.doc or "", "", "```lean", d.text, "```"]
    lines += ["", "## Definitions under these statements", ""]
    lines += [f"- `{d.name}` {_fingerprint(d)}" for d in everything if d.name in needed]
    return "\n".join(lines) + "\n"


def _fingerprint(d: Declaration) -> str:
    code = " ".join(without_comments(d.text).split())
    return hashlib.sha256(code.encode()).hexdigest()[:8]


def _needed(statements: list[Declaration], definitions: list[Declaration]) -> set[str]:
    """The definitions that a text names, by the last part of their names, and those that these name."""
    by_name: dict[str, list[Declaration]] = {}
    for d in definitions:
        by_name.setdefault(d.name.split(".")[-1], []).append(d)
    needed: set[str] = set()
    waiting = list(statements)
    while waiting:
        for word in set(re.findall(r"[^\W\d]\w*[?!']*", without_comments(waiting.pop().text))):
            fresh = [d for d in by_name.get(word, []) if d.name not in needed]
            needed |= {d.name for d in fresh}
            waiting += fresh
    return needed


def stale_snapshot(root: Path) -> list[str]:
    """A problem if `formal/STATEMENTS.md` is not what the sources say now."""
    path = root / SNAPSHOT
    if path.is_file() and path.read_text(encoding="utf-8") == snapshot(root):
        return []
    return [f"{SNAPSHOT} is stale; review and run scripts/check_lean.sh --update"]


def compile_offline(root: Path, build: Path, report: Report) -> None:
    """Compiles everything with tools/lean-offline; its audit reads axioms out of the compiled modules."""
    order = closure(root, ROOT_MODULE)
    names = {str(path.relative_to(root)): name for name, path in order.items()}
    command = [str(OFFLINE / "check"), "-v", "--root", "formal", "--build", str(build), *names]
    ran = subprocess.run(command, cwd=root, capture_output=True, text=True)
    current: Module | None = None
    for line in ran.stdout.splitlines():
        head = re.match(r"(ok  |FAIL)\s+([\d.]+)s  (\S+)", line)
        theorem = re.match(r"    ([\w.'«»?!]+): (no axioms|\w[\w.]*(?:, \w[\w.]*)*)$", line)
        if head and head[3] in names:
            current = Module(names[head[3]], float(head[2]), compiled=head[1] == "ok  ")
            report.modules.append(current)
        elif current and theorem:
            current.axioms[theorem[1]] = [] if theorem[2] == "no axioms" else theorem[2].split(", ")
        elif current and not current.compiled and re.match(r"    \S", line):
            report.problems.append(f"{current.name}: {line.strip()}")
        elif current and not current.compiled and line.startswith("     "):
            report.problems[-1] += " " + line.strip()
    if ran.returncode != 0 and not report.problems:
        report.problems.append(f"{OFFLINE.name}/check failed: {(ran.stdout + ran.stderr).strip()[-2000:]}")


def compile_lake(root: Path, report: Report) -> None:
    """`lake build`, then `#print axioms` for every theorem that the sources declare."""
    ran = subprocess.run(["lake", "build"], cwd=root, capture_output=True, text=True)
    report.modules += [Module(name, compiled=ran.returncode == 0) for name in closure(root, ROOT_MODULE)]
    if ran.returncode != 0:
        report.problems.append(f"lake build failed: {(ran.stdout + ran.stderr).strip()[-4000:]}")
        return
    with tempfile.TemporaryDirectory() as folder:
        asking = Path(folder) / "Axioms.lean"
        asking.write_text(axiom_questions(root), encoding="utf-8")
        answers = subprocess.run(
            ["lake", "env", "lean", str(asking)], cwd=root, capture_output=True, text=True
        )
    read_axiom_answers(root, answers.stdout, report)


def axiom_questions(root: Path) -> str:
    """A Lean file that prints the axioms of every public theorem."""
    lines = [f"import {ROOT_MODULE}"]
    for path in closure(root, ROOT_MODULE).values():
        found = declarations(path.read_text(encoding="utf-8"))
        lines += [f"#print axioms {d.name}" for d in found if d.kind == "theorem" and not d.private]
    return "\n".join(lines) + "\n"


def read_axiom_answers(root: Path, text: str, report: Report) -> None:
    """Fills `Module.axioms` from what Lean printed."""
    flat = re.sub(r"\s+", " ", text)
    answers = {
        m[1]: m[2].split(", ") if m[2] else []
        for m in re.finditer(
            r"'([^ ]+)' (?:depends on axioms: \[([^\]]*)\]|does not depend on any axioms)", flat
        )
    }
    sources = closure(root, ROOT_MODULE)
    for module in report.modules:
        for d in declarations(sources[module.name].read_text(encoding="utf-8")):
            if d.name in answers:
                module.axioms[d.name] = answers[d.name]


def audit(root: Path, report: Report) -> None:
    """Every theorem that the sources declare was audited, and depends on allowed axioms only."""
    sources = closure(root, ROOT_MODULE)
    for module in report.modules:
        for name, axioms in module.axioms.items():
            report.problems += [
                f"{module.name}: {name} depends on the axiom {a}" for a in axioms if a not in AXIOMS
            ]
        if module.compiled:
            declared = declarations(sources[module.name].read_text(encoding="utf-8"))
            public = {d.name for d in declared if d.kind == "theorem" and not d.private}
            missing = sorted(public - module.axioms.keys())
            report.problems += [f"{module.name}: the audit did not see {name}" for name in missing]
            module.axioms = {name: a for name, a in module.axioms.items() if name in public}


def check_variant(path: Path, command: list[str], root: Path) -> tuple[Variant, list[str]]:
    """Runs Lean on a weakened statement. It must fail exactly at the marked lines, for the marked reasons."""
    source = path.read_text(encoding="utf-8").splitlines()
    expected = {n: line.split(REJECTED)[1].strip() for n, line in enumerate(source, 1) if REJECTED in line}
    ran = subprocess.run([*command, str(path)], cwd=root, capture_output=True, text=True)
    found: dict[int, str] = {}
    for block in re.split(r"\n(?=\S+:\d+:\d+: )", ran.stdout + ran.stderr):
        error = re.match(r"\S+:(\d+):\d+: error[^:]*: (.*)", block, flags=re.DOTALL)
        if error:
            found[int(error[1])] = found.get(int(error[1]), "") + " ".join(error[2].split()) + "\n"
    name = path.stem
    problems = []
    if not expected:
        problems.append(f"variants/{name}: no line is marked `{REJECTED.strip()}`")
    for line, reason in expected.items():
        if line not in found:
            problems.append(f"variants/{name}:{line}: Lean accepts the weakened statement")
        elif reason not in found[line]:
            problems.append(
                f"variants/{name}:{line}: rejected for another reason: {found[line].strip()[:300]}"
            )
    problems += [
        f"variants/{name}:{line}: unexpected error: {text.strip()[:300]}"
        for line, text in found.items()
        if line not in expected
    ]
    return Variant(name, sorted(found), [expected[n] for n in sorted(expected)]), problems


def check_proofs(root: Path = REPOSITORY, *, build: Path | None = None) -> Report:
    """The whole check on one tree; the tree needs `formal/` only. `build` keeps the compiled modules."""
    tools = toolchain()
    report = Report(checker=tools.name)
    report.problems += unreachable(root) + forbidden_words(root) + stale_snapshot(root)
    with tempfile.TemporaryDirectory() as scratch:
        compiled = build or Path(scratch)
        if tools.lake:
            compile_lake(root, report)
        else:
            compile_offline(root, compiled, report)
        audit(root, report)
        if not all(module.compiled for module in report.modules):
            report.problems.append("the variants were not checked, since a module failed")
            return report
        for path in sorted((root / "formal" / "variants").glob("*.lean")):
            variant, problems = check_variant(path, elaborate(compiled), root)
            report.variants.append(variant)
            report.problems += problems
    return report


def show(report: Report, console: Console) -> None:
    """Prints the modules, the variants and the verdict."""
    table = Table(Column("module", no_wrap=True), "theorems", "axioms", "seconds")
    for module in report.modules:
        used = sorted({a for axioms in module.axioms.values() for a in axioms})
        state = ", ".join(used) or "none" if module.compiled else "[red]failed[/red]"
        table.add_row(module.name, str(len(module.axioms)), state, f"{module.seconds:.1f}")
    console.print(table)
    rejected = Table("weakened statement", "rejected at line", "because")
    for variant in report.variants:
        rejected.add_row(variant.name, ", ".join(map(str, variant.lines)) or "-", "; ".join(variant.reasons))
    console.print(rejected)
    for problem in report.problems:
        console.print(f"✗ {problem}", style="red", highlight=False, markup=False)
    theorems = sum(len(m.axioms) for m in report.modules)
    verdict = f"{len(report.problems)} problems" if report.problems else "all proofs check"
    console.print(
        f"{verdict}: {theorems} theorems in {len(report.modules)} modules, "
        f"{len(report.variants)} weakened statements, checked with {report.checker}",
        style="bold red" if report.problems else "bold green",
    )


def prove(
    json: Annotated[
        Path | None, typer.Option(help="write the report, with every theorem's axioms, here")
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="rewrite formal/STATEMENTS.md first")] = False,
) -> None:
    """Check every Lean proof, its axioms, the statements' snapshot and the weakened statements."""
    if update:
        (REPOSITORY / SNAPSHOT).write_text(snapshot(REPOSITORY), encoding="utf-8")
    report = check_proofs()
    console = Console()
    show(report, console if console.is_terminal else Console(width=REPORT_WIDTH))
    if json is not None:
        json.write_text(
            json_module.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    if report.problems:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(prove)
