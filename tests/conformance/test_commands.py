"""What every command has in common: a record as data, and one clear line for bad input."""

import json
from pathlib import Path

import pytest
from certhead.conformance.cli import app
from typer.testing import CliRunner

COMMANDS = sorted(c.name or c.callback.__name__ for c in app.registered_commands if c.callback)  # type: ignore[union-attr]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_writes_json(command: str) -> None:
    shown = CliRunner().invoke(app, [command.replace("_", "-"), "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0
    assert "--json" in shown.stdout


def test_trust_writes_the_claims(tmp_path: Path) -> None:
    path = tmp_path / "trust.json"
    done = CliRunner().invoke(app, ["trust", "--json", str(path)])
    record = json.loads(path.read_text())
    assert done.exit_code == 0, done.output
    assert record["schema"] == "certhead.trust/1"
    assert record["problems"] == []
    assert {c["status"] for c in record["claims"]} == {"proved", "tested"}
    assert {a["status"] for a in record["assumptions"]} == {"tested", "assumed"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "--shapes", "12"], "12"),
        (["bench", "--batches", "0"], "0"),
        (["kernels", "--scale", "1"], "1"),
        (["fuzz", "--driver", "magic"], "magic"),
    ],
)
def test_bad_input_is_named(arguments: list[str], message: str) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code != 0
    assert message in done.output + str(done.exception or "")
