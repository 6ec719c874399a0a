"""`certhead replay …`: one command for each step of the protocol, in its order."""

from __future__ import annotations

import typer

from .evidence_commands import check, commit, record, verify
from .experiment_command import experiment
from .judge_commands import calibrate, compare

WORKER = "1. Worker evidence"
VERIFIER = "2. Verifier replay"
JUDGEMENT = "3. Metrics and verdict"
THRESHOLDS = "4. Thresholds, and how often they err"

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Replay verification: did the worker run the model that it claims?

    A worker generates text and records, for every token, how likely its model found it and which tokens its
    model found most likely. A verifier does not generate: it fixes the worker's path, input_ids + output_ids,
    scores it with the claimed model in one prefill, and compares the two distributions token by token.
    The same model differs a little from itself, by rounding, on other hardware or in another batch; another
    model, or other weights, differ more. Thresholds between the two give PASS, REJECT or INCONCLUSIVE.

    This is statistics, not a proof: a REJECT says that the evidence is not like the claimed model's, and a
    PASS that nothing in it speaks against the claim.
    """,
)

for panel, commands in (
    (WORKER, (record, commit, check)),
    (VERIFIER, (verify,)),
    (JUDGEMENT, (compare,)),
    (THRESHOLDS, (calibrate, experiment)),
):
    for command in commands:
        app.command(rich_help_panel=panel)(command)
