"""A claim cannot outlive its reason."""

from dataclasses import replace

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
