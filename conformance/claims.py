"""The claims, as data: what is said, what kind of reason stands behind it, and where that reason is.

`TRUST.md` is rendered from this list and from `audit.assumptions`; a test checks that every theorem,
function, test and evidence file named here exists, so a claim cannot outlive its reason. Three words, used
strictly:

- *proved*: a theorem about the definitions in `formal/`, checked by Lean's kernel;
- *tested*: compared, with the counts that the named test or evidence file gives;
- *assumed*: neither; the entry says where it enters.
"""

from __future__ import annotations

import json as json_module
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

import typer

from .audit.assumptions import assumptions, missing

Status = Literal["proved", "tested"]
REPOSITORY = Path(__file__).resolve().parent.parent
EVIDENCE = Path("conformance") / "evidence"


@dataclass(frozen=True)
class Claim:
    """One claim. Tuples hold names: theorems of formal/, dotted pyref functions, test or evidence files."""

    says: str
    status: Status
    theorems: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    note: str = ""


CLAIMS = (
    Claim(
        "If the certified head answers in exact mode, the answer is the stock token, with the stock head "
        "defined as the chain of fused steps, one rounding to BF16 and the first maximum.",
        "proved",
        ("certified_token_is_the_stock_token", "stock_accumulator_is_within_gamma"),
        ("head.certify", "head.stock_token"),
        ("tests/pyref/test_head.py",),
    ),
    Claim(
        "In enclosed mode the answer is the stock token of every kernel whose error stays within "
        "γ·Σ|w·h| + η, whatever its order of summation.",
        "proved",
        (
            "enclosed_token_is_right_for_every_kernel_in_the_model",
            "enclosed_rescore_encloses",
            "certify_is_sound",
        ),
        ("head.certify", "head.decide_enclosed"),
        ("tests/pyref/test_head.py",),
    ),
    Claim(
        "The screen's interval holds the stock accumulator; any scale, codes and limbs would be sound.",
        "proved",
        ("quantized_screen_encloses_stock_accumulator", "any_scale_is_sound", "any_unit_and_ticks_are_sound"),
        ("head.screen", "head.quantize_row", "head.limbs"),
        ("tests/pyref/test_head.py", "tests/kernels/test_torch_stages.py"),
    ),
    Claim(
        "The integer sums of the screen fit int32 wherever a position is not refused.",
        "proved",
        ("codes_within_norm_bound",),
        ("head.limbs", "head.code_norm_bound"),
        ("tests/kernels/test_torch_stages.py",),
    ),
    Claim(
        "Dropping every block whose largest rounded upper end is below the threshold loses no winner and no "
        "tie; overflow of capacity gives no answer rather than a wrong one.",
        "proved",
        ("first_max_over_candidates", "candidate_rows_are_rescored", "select_overflows_iff"),
        ("head.select",),
        ("tests/pyref/test_head.py",),
    ),
    Claim(
        "BF16, FP16, FP32 and FP64 rounding is monotone, nearest with ties to even (or directed), with the "
        "usual error bounds; bit patterns and values correspond one to one.",
        "proved",
        ("roundNE_mono", "roundNE_half_ulp", "roundNE_tie_even", "narrowing_fp32_bf16", "roundModel_bf16"),
        ("rounding.round_to", "codec.encode", "codec.decode"),
        ("tests/pyref/test_rounding_oracles.py", "tests/pyref/test_codec.py"),
    ),
    Claim(
        "A sum in any order, with any split into FP32 partials and any multi-term adder that keeps 23 "
        "fraction bits, stays within γ = 2K·u/(1 − 2K·u), u = 2⁻²³.",
        "proved",
        ("any_order_bound", "sum_any_order_bound", "fdpa_dot_within_any_order"),
        ("models.ANY_ORDER",),
        ("tests/pyref/test_models.py",),
    ),
    Claim(
        "The chain of fused steps (16 products, 25 fraction bits, truncation) stays within pyref's γ.",
        "proved",
        ("hopper_dot_gamma_bound", "step_error_lt", "chain_gamma_bound"),
        ("models.FDPA", "fdpa.fdpa_chain"),
        ("tests/pyref/test_models.py", "tests/pyref/test_fdpa.py"),
    ),
    Claim(
        "The fused sum is not monotone in its terms, so nothing here uses that it were.",
        "proved",
        ("fused_sum_is_not_monotone",),
        ("fdpa.fdpa",),
        ("tests/pyref/test_fdpa.py",),
    ),
    Claim(
        "pyref computes what the Lean definitions compute, stage by stage.",
        "tested",
        (),
        ("head.certify",),
        ("tests/formal/test_reference_stages.py", "tests/formal/test_reference.py"),
    ),
    Claim(
        "Rounding agrees with NumPy, torch, gfloat, ml_dtypes, SoftFloat and MPFR, except where a named test "
        "shows the library wrong.",
        "tested",
        (),
        ("rounding.round_to",),
        ("tests/pyref/test_rounding_oracles.py",),
    ),
    Claim(
        "The emulated fused step gives the bits of an NVIDIA H100's tensor cores on 5,000 published vectors.",
        "tested",
        (),
        ("fdpa.fdpa",),
        ("tests/pyref/test_fdpa.py",),
        "The vectors are not redistributed; the test is skipped where they are absent.",
    ),
    Claim(
        "The emulated fused step gives the bits of an NVIDIA H200's tensor cores, by mma.sync and by wgmma, "
        "on every recorded step; those settle every corner: zeros, −0, subnormals, overflow, Inf − Inf, NaN.",
        "tested",
        (),
        ("fdpa.fdpa", "fdpa_vector.fdpa_chain_vector"),
        ("tests/conformance/test_audit_record.py", "conformance/evidence/audit-h200.json"),
    ),
    Claim(
        "The torch back end gives pyref's bits at every stage.",
        "tested",
        (),
        ("head.quantize_row", "head.limbs", "head.screen", "head.rescore_enclosed"),
        ("tests/kernels/test_torch_stages.py", "tests/kernels/test_quantize.py"),
    ),
    Claim(
        "The Triton kernels give the torch back end's bits at every stage: interpreted in CI, compiled "
        "on an H200 with the counts in the evidence file.",
        "tested",
        (),
        (),
        ("tests/kernels/test_triton.py", "conformance/evidence/kernels-h200.json"),
    ),
    Claim(
        "On the H200 the stock head's BF16 bits are those of the sequential tensor-core chain, for the batch "
        "shapes and heads listed in the evidence; where V is odd they are not, and at some batch sizes not "
        "even the any-order bound holds.",
        "tested",
        (),
        ("fdpa.fdpa_chain",),
        ("conformance/evidence/audit-h200.json", "conformance/evidence/kernels-h200.json"),
        "Each batch shape is identified again on the device before exact mode is used.",
    ),
    Claim(
        "Where the head says `exact` on a CPU, the stock product's BF16 bits were those of a chain of FP32 "
        "multiply-adds at that batch shape, on 192 logits made to show the order and a million others of a "
        "sample of rows.",
        "tested",
        (),
        (),
        ("tests/kernels/test_fma_chain.py",),
        "Found anew in each process; `certhead conform` prints the chain and the count.",
    ),
)


def render(root: Path = REPOSITORY) -> str:
    """`TRUST.md`, with the counts of the evidence under `root`."""
    lines = [
        "# What is proved, tested and assumed",
        "",
        "Generated from `conformance/claims.py`, `conformance/audit/assumptions.py` and the evidence files",
        "by `certhead trust --update`; a test checks that every theorem, function and file named here exists",
        "and that every count is the evidence's.",
        "",
        "- **proved**: a theorem about the definitions in `formal/`, checked by Lean's kernel "
        "(statements: `formal/STATEMENTS.md`)",
        "- **tested**: compared, with the counts that the named test or evidence gives",
        "- **assumed**: neither; the entry says where it enters",
        "",
    ]
    for status in get_args(Status):
        lines += [
            f"## {status.capitalize()}",
            "",
            "| claim | theorem | pyref | test or evidence |",
            "|---|---|---|---|",
        ]
        for claim in CLAIMS:
            if claim.status == status:
                says = claim.says + (f" *{claim.note}*" if claim.note else "")
                cells = (claim.theorems, claim.functions, claim.tests)
                lines.append(f"| {says} | " + " | ".join(_cell(c) for c in cells) + " |")
        lines.append("")
    lines += [
        "## What a certificate rests on",
        "",
        "Each of these is neither proved nor a definition. The last column counts what would have shown a",
        "violation on record; where nothing is counted, it is assumed.",
        "",
        "| assumption | status | where it enters | what tests it | with what power |",
        "|---|---|---|---|---|",
    ]
    for a in assumptions(root / EVIDENCE):
        row = (f"**{a.name}**: {a.says}", a.status, a.enters, a.tested or "–", a.power or "–")
        lines.append("| " + " | ".join(text.replace("|", r"\|") for text in row) + " |")
    lines += [
        "",
        "## The boundary",
        "",
        "The theorems speak about the definitions in `formal/`. `pyref` is compared with them, the",
        "torch back end with `pyref`, the Triton kernels with the torch back end: equality of bits at",
        "each step, tested. What no theorem and no test here covers: what the model's earlier layers",
        "compute (a change upstream changes both heads alike), other devices and library versions",
        "(identified anew, or not used), and heads with a bias, a soft cap, a scale or a padded",
        "vocabulary (refused).",
        "",
    ]
    return "\n".join(lines)


def _cell(names: tuple[str, ...]) -> str:
    return "<br>".join(f"`{n}`" for n in names) or "–"


def problems(root: Path = REPOSITORY) -> list[str]:
    """Names in the claims that do not exist, and a stale TRUST.md; one line each."""
    out = []
    statements = (root / "formal" / "STATEMENTS.md").read_text("utf-8")
    for claim in CLAIMS:
        short = claim.says[:50]
        for theorem in claim.theorems:
            if f"theorem {theorem} " not in statements and f"theorem {theorem}\n" not in statements:
                out.append(f"{short}…: no theorem {theorem} in formal/STATEMENTS.md")
        for name in claim.functions:
            module, function = name.split(".")
            source = root / "pyref" / f"{module}.py"
            text = source.read_text("utf-8") if source.is_file() else ""
            if f"def {function}(" not in text and f"\n{function} = " not in text:
                out.append(f"{short}…: no {function} in pyref/{module}.py")
        out += [f"{short}…: no file {t}" for t in claim.tests if not (root / t).is_file()]
        if not (claim.theorems or claim.tests):
            out.append(f"{short}…: {claim.status}, with no reason named")
    out += [f"assumptions: no evidence file {EVIDENCE / name}" for name in missing(root / EVIDENCE)]
    trust = root / "TRUST.md"
    if not trust.is_file() or trust.read_text("utf-8") != render(root):
        out.append("TRUST.md is not what conformance/claims.py renders: run `certhead trust --update`")
    return out


def trust(
    update: Annotated[bool, typer.Option("--update", help="Rewrite TRUST.md from the claims.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write the claims to this file, as JSON.")] = None,
) -> None:
    """Check that every claim's theorem, function and test exists, and that TRUST.md is up to date.

    JSON, schema certhead.trust/1: `claims` (says, status, theorems, functions, tests, note), `assumptions`
    (name, says, enters, tested, power, evidence, status) and `problems`.
    """
    if update:
        (REPOSITORY / "TRUST.md").write_text(render(), "utf-8")
    found, rests_on = problems(), assumptions()
    for line in found:
        typer.echo(line, err=True)
    if json is not None:
        record = {
            "schema": "certhead.trust/1",
            "claims": [asdict(c) for c in CLAIMS],
            "assumptions": [{**asdict(a), "status": a.status} for a in rests_on],
            "problems": found,
        }
        json.write_text(json_module.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    counts = ", ".join(f"{sum(c.status == s for c in CLAIMS)} {s}" for s in get_args(Status))
    tested = sum(a.status == "tested" for a in rests_on)
    typer.echo(
        f"{len(CLAIMS)} claims: {counts}; {len(rests_on)} assumptions, {tested} of them tested; "
        f"{len(found)} problems"
    )
    raise typer.Exit(1 if found else 0)
