"""The proof check can fail: each way of cheating turns a small tree red."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from certhead.conformance.lean import OFFLINE, REPOSITORY, toolchain
from certhead.conformance.prove import (
    FORBIDDEN,
    SNAPSHOT,
    Module,
    Report,
    audit,
    axiom_questions,
    check_proofs,
    declarations,
    forbidden_words,
    read_axiom_answers,
    snapshot,
    without_comments,
)

HONEST = """/-! A sorry in a comment is no sorry. -/
namespace CertHead
/-- Twice a number. -/
def twice (n : Nat) : Nat := n + n
/-- Being even, and "axiom" is only a word here. -/
def Even (n : Nat) : Prop := ∃ k, n = twice k
/-- **Twice a number is even.** -/
theorem twice_is_even (n : Nat) : Even (twice n) := ⟨n, rfl⟩
end CertHead
"""
WEAKENED = """import CertHead
/-- Every number is even, which is false. -/
theorem every_number_is_even (n : Nat) : CertHead.Even n :=
  ⟨n, rfl⟩ -- rejected: type mismatch
"""


def make_tree(root: Path, **changes: str) -> Path:
    """A tree with one honest module and one rejected variant. `changes` replaces or adds files by key."""
    files = {"Small": HONEST, "Ref/Main": "def main : IO Unit := pure ()\n", "variant": WEAKENED} | changes
    formal = root / "formal"
    (formal / "CertHead" / "Ref").mkdir(parents=True)
    (formal / "variants").mkdir()
    (formal / "CertHead.lean").write_text("import CertHead.Small\nimport CertHead.Ref.Main\n")
    (formal / "variants" / "EveryNumberIsEven.lean").write_text(files.pop("variant"))
    for name, text in files.items():
        (formal / "CertHead" / name).with_suffix(".lean").write_text(text)
    for name in ("lakefile.lean", "lean-toolchain"):
        shutil.copy(REPOSITORY / name, root / name)
    (root / SNAPSHOT).write_text(snapshot(root))
    return root


def test_honest_tree_is_green(tmp_path: Path) -> None:
    report = check_proofs(make_tree(tmp_path))
    assert report.problems == []
    assert {m.name for m in report.modules} == {"CertHead", "CertHead.Small", "CertHead.Ref.Main"}
    assert [m.axioms for m in report.modules if m.name == "CertHead.Small"] == [
        {"CertHead.twice_is_even": []}
    ]
    assert [v.lines for v in report.variants] == [[4]]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"Small": HONEST.replace("⟨n, rfl⟩", "sorry")}, "sorry"),
        ({"Small": HONEST.replace("end CertHead", "axiom cheat : 1 = 2\nend CertHead")}, "names axiom"),
        ({"Small": HONEST.replace("⟨n, rfl⟩", "⟨n + 1, rfl⟩")}, "error"),
        ({"Orphan": "theorem orphan : True := trivial\n"}, "not reachable"),
        (
            {"variant": WEAKENED.replace("Even n", "Even (CertHead.twice n)")},
            "accepts the weakened statement",
        ),
        ({"variant": WEAKENED.replace("type mismatch", "no such reason")}, "another reason"),
        (
            {"variant": WEAKENED.replace("  ⟨", "\n  ⟨").replace("import CertHead", "import CertHed")},
            "CertHed",
        ),
        ({"variant": WEAKENED.split(" -- rejected")[0] + "\n"}, "no line is marked"),
    ],
    ids=["sorry", "axiom", "wrong proof", "unreachable", "true variant", "other reason", "typo", "unmarked"],
)
def test_cheating_is_red(tmp_path: Path, changes: dict[str, str], complaint: str) -> None:
    problems = check_proofs(make_tree(tmp_path, **changes)).problems
    assert any(complaint in p for p in problems), problems


@pytest.mark.parametrize(
    "weakened",
    [
        HONEST.replace("Even (twice n)", "Even (twice (n + 1))").replace("⟨n,", "⟨n + 1,"),
        HONEST.replace("∃ k, n = twice k", "∃ k, k = n ∨ n = twice k").replace("⟨n, rfl⟩", "⟨n, .inr rfl⟩"),
        HONEST.replace("n + n", "n * 2"),
    ],
    ids=["statement", "proposition under it", "definition under that"],
)
def test_weakening_is_red_until_the_snapshot_is_renewed(tmp_path: Path, weakened: str) -> None:
    root = make_tree(tmp_path, variant=WEAKENED.replace("type mismatch", ""))
    (root / "formal" / "CertHead" / "Small.lean").write_text(weakened)
    assert [p for p in check_proofs(root).problems if "stale" not in p] == []
    assert any("STATEMENTS.md is stale" in p for p in check_proofs(root).problems)
    (root / SNAPSHOT).write_text(snapshot(root))
    assert check_proofs(root).problems == []


@pytest.mark.parametrize("word", FORBIDDEN)
def test_ways_around_the_kernel_are_named(tmp_path: Path, word: str) -> None:
    root = make_tree(tmp_path, Small=HONEST + f"-- {word}\n#check ({word})\n")
    assert forbidden_words(root) == [f"formal/CertHead/Small.lean:11: names {word}"]


def test_axioms_outside_the_three_are_named() -> None:
    """What the words cannot show: an axiom that a theorem inherits."""
    module = Module("CertHead.Basic", axioms={"CertHead.t": ["propext", "Lean.ofReduceBool"]}, compiled=False)
    report = Report("none", modules=[module])
    audit(REPOSITORY, report)
    assert report.problems == ["CertHead.Basic: CertHead.t depends on the axiom Lean.ofReduceBool"]


@pytest.mark.skipif(toolchain().lake, reason="the question file is what lake itself runs")
def test_axiom_questions_are_answered_by_lean(tmp_path: Path) -> None:
    """The path of a real toolchain, `#print axioms`, run through the offline Lean."""
    root = make_tree(tmp_path)
    build = tmp_path / "modules"
    report = check_proofs(root, build=build)
    for module in report.modules:
        module.axioms = {}
    (tmp_path / "Axioms.lean").write_text(axiom_questions(root))
    command = [str(OFFLINE / "lean"), "-path", str(build), str(tmp_path / "Axioms.lean")]
    ran = subprocess.run(command, capture_output=True, text=True)
    read_axiom_answers(root, ran.stdout, report)
    assert {m.name: m.axioms for m in report.modules}["CertHead.Small"] == {"CertHead.twice_is_even": []}


def test_comments_and_strings_are_not_code() -> None:
    assert without_comments('a /- x /- y -/ z -/ b -- c\n"d -- e" f') == 'a  b \n"" f'


def test_statements_end_before_their_proofs() -> None:
    source = "namespace A\n/-- Doc\nmore. -/\ntheorem t (x : Nat := 1) : x = x\n  | y => rfl\nend A\n"
    (found,) = declarations(source)
    assert (found.name, found.doc, found.text) == ("A.t", "Doc more.", "theorem t (x : Nat := 1) : x = x")
