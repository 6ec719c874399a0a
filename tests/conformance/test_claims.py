"""A claim cannot outlive its reason."""

from dataclasses import replace
from pathlib import Path

import pytest
from certhead.conformance import claims


def test_every_name_in_the_claims_exists_and_trust_is_up_to_date() -> None:
    assert claims.problems() == []


@pytest.mark.parametrize(
    ("field", "names", "complaint"),
    [
        ("theorems", ("no_such_theorem",), "no theorem no_such_theorem"),
        ("functions", ("head.no_such_function",), "no no_such_function in pyref/head.py"),
        ("tests", ("tests/no_such_file.py",), "no file tests/no_such_file.py"),
    ],
)
def test_a_missing_reason_is_found(
    monkeypatch: pytest.MonkeyPatch, field: str, names: tuple[str, ...], complaint: str
) -> None:
    broken = replace(claims.CLAIMS[0], **{field: names})
    monkeypatch.setattr(claims, "CLAIMS", (broken, *claims.CLAIMS[1:]))
    assert any(complaint in line for line in claims.problems())


def test_a_claim_without_a_reason_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = replace(claims.CLAIMS[0], theorems=(), functions=(), tests=())
    monkeypatch.setattr(claims, "CLAIMS", (bare,))
    assert any("no reason named" in line for line in claims.problems())


def test_trust_shows_every_assumption_with_the_counts_of_the_evidence() -> None:
    text = claims.render()
    for assumption in claims.assumptions():
        assert f"| **{assumption.name}**: " in text
        assert (assumption.power or "–").replace("|", r"\|") in text


def test_without_its_evidence_an_assumption_is_assumed_and_trust_is_stale(tmp_path: Path) -> None:
    for name in ("formal", "pyref", "tests", "TRUST.md"):
        (tmp_path / name).symlink_to(claims.REPOSITORY / name)
    folder = tmp_path / claims.EVIDENCE
    folder.mkdir(parents=True)
    for path in (claims.REPOSITORY / claims.EVIDENCE).glob("*.json"):
        (folder / path.name).symlink_to(path)
    assert claims.problems(tmp_path) == []
    (folder / "audit-h200.json").unlink()
    found = claims.problems(tmp_path)
    assert any("no evidence file" in line and "audit-h200.json" in line for line in found)
    assert any("TRUST.md is not" in line for line in found)
    assert "NVIDIA H200: 0 of" in claims.render()
    order = next(line for line in claims.render(tmp_path).splitlines() if line.startswith("| **order**"))
    assert "| assumed |" in order
