"""From the folder that the GPU run left to the committed record and its vectors.

`python -m certhead.conformance.audit.evidence DIR` writes `conformance/evidence/audit-h200.json` and
`tests/data/h200_fdpa.npz`; `--merge FILE...` takes the entries of `certhead audit` runs into the record.
Nothing is taken on trust from the GPU's machine but the bits it returned: inputs are made again from their
seeds and checked against the recorded SHA-256, and every count of the parameter table is taken here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from certhead.pyref.fdpa import DEFAULT_RULES, Rules
from certhead.pyref.fdpa_vector import fdpa_vector
from certhead.pyref.formats import BF16
from certhead.pyref.rounding import RD, RNA, RNE, RU

from .corners import all_corners
from .distributions import Codes16, Codes32, digest
from .gpu import ODD_BATCHES, ODD_DISTRIBUTIONS, TREES, odd_inputs, step_batches
from .record import CHAIN, REQUIRED_LOGITS, SCHEMA, Entry, checks_of, judge, merged, one_line_an_item, read
from .report import write_report
from .tree import Order, column_sets, counts_of, recognise
from .tree_sum import Adder, Machine, Partials, add_once

Steps = tuple[Codes16, Codes16, Codes32]

MEASURED = Rules(zero_exponent=-133, negative_zero=False, signed_underflow=False)
"""What the recorded steps leave of the choices in `Rules`: no other value of any of them fits."""
REQUIRED_ELSEWHERE = 20_000_000  # logits under a setting that is not the default
EVIDENCE = Path(__file__).parents[1] / "evidence"
VECTORS = Path("tests") / "data" / "h200_fdpa.npz"


@dataclass(frozen=True)
class Alternative:
    """Another value of one parameter, and how it fares on the recorded steps."""

    parameter: str
    measured: str
    alternative: str
    mismatches: int
    steps: int
    witness: str | None


def alternatives(vectors: Mapping[str, Codes32]) -> list[Alternative]:
    """Every parameter of the step with the recorded steps that rule its other values out."""
    batches = step_batches()
    corners = all_corners()
    found = []
    for parameter, measured, other, run in _variants():
        mismatches, total, witness = 0, 0, None
        for name, steps in batches.items():
            hardware = vectors[f"steps/{name}"]
            wrong = np.flatnonzero(run(steps) != hardware)
            mismatches += len(wrong)
            total += len(hardware)
            if len(wrong) and witness is None:
                i = int(wrong[0])
                what = f"{corners[i].topic}: {corners[i].name}" if name == "corners" else f"{name}, step {i}"
                witness = f"{what} gives {int(hardware[i]):#010x}"
        found.append(Alternative(parameter, measured, other, mismatches, total, witness))
    return found


def _variants() -> Iterator[tuple[str, str, str, Any]]:
    def step(fraction_bits: int = 25, **changes: Any) -> Any:
        rules = replace(MEASURED, **changes)
        return lambda steps: fdpa_vector(*steps, fraction_bits=fraction_bits, rules=rules)

    def in_groups(group: int) -> Any:
        def run(steps: Steps) -> Codes32:
            a, b, c = steps
            for k in range(0, 16, group):
                c = fdpa_vector(a[:, k : k + group], b[:, k : k + group], c, group=group, rules=MEASURED)
            return c

        return run

    def accumulator_last(steps: Steps) -> Codes32:
        a, b, c = steps
        with np.errstate(invalid="ignore"):
            products = fdpa_vector(a, b, np.zeros_like(c), rules=MEASURED).view(np.float32)
            total = add_once(products.astype(np.float64), c.view(np.float32).astype(np.float64), MEASURED)
        return total.view(np.uint32)

    yield "all", "", "as measured", step()
    for bits in (23, 24, 26, 27):
        yield "fraction_bits", "25", str(bits), step(bits)
    for group in (4, 8):
        yield "group", "16", str(group), in_groups(group)
    yield "accumulator", "aligned with the products", "added to their rounded sum", accumulator_last
    for mode in (RNE, RNA, RU, RD):
        yield "alignment", "RZ", mode.name, step(alignment=mode)
    for mode in (RNE, RNA, RU, RD):
        yield "rounding", "RZ", mode.name, step(rounding=mode)
    yield "normalize_products", "False", "True", step(normalize_products=True)
    for exponent in (-126, None):
        yield "zero_exponent", "-133", str(exponent), step(zero_exponent=exponent)
    yield "negative_zero", "False", "True", step(negative_zero=True)
    yield "signed_underflow", "False", "True", step(signed_underflow=True)
    yield "subnormal_inputs", "True", "False", step(subnormal_inputs=False)
    yield "subnormal_results", "True", "False", step(subnormal_results=False)
    yield "overflow_to_inf", "True", "False", step(overflow_to_inf=False)
    yield "nan", f"{DEFAULT_RULES.nan:#x}", "0x7fc00000", step(nan=0x7FC00000)


def load_run(folder: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """The run's results, and all its arrays under `file/name`."""
    results = json.loads((folder / "results.json").read_text("utf-8"))
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name in ("steps", "steps_fp16", "chains", "odd", "trees"):
        with np.load(folder / f"{name}.npz") as stored:
            arrays |= {f"{name}/{key}": stored[key] for key in stored.files}
    return results, arrays


def orders(
    results: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> dict[tuple[int, int, int], Order | None]:
    """The summation order that the masking probes show, by V, K, M."""
    found: dict[tuple[int, int, int], Order | None] = {}
    for rows, terms, batches in TREES:
        for positions in batches:
            observed = {}
            for name, columns in column_sets(terms).items():
                entry = results["trees"][f"{rows}x{terms}/M{positions}/{name}"]
                survivors = arrays[f"trees/survivors/{entry['sha256'][:16]}"].astype(np.int64)
                observed[name] = (columns, counts_of(survivors[None], len(columns))[0])
            found[rows, terms, positions] = recognise(observed, terms)
    return found


def explain_odd(order: Order, positions: int, arrays: Mapping[str, npt.NDArray[Any]]) -> str | None:
    """The machine that returns every recorded logit of the shape with an odd V, in words; None: none does."""
    if positions not in ODD_BATCHES:
        return None
    for partials in Partials if order.tree.partials else (Partials.FP32,):
        machine = Machine(order.tree, Adder(25, MEASURED, partials), BF16, BF16, order.group)
        compared = 0
        for name in ODD_DISTRIBUTIONS:
            for kept in (16, 768):
                h, w = odd_inputs(name, positions, kept)
                recorded = arrays[f"odd/M{positions}/{name}/{kept}"]
                if (machine.results(h[: len(recorded)], w) != recorded).any():
                    break
                compared += recorded.size
            else:
                continue
            break
        else:
            kept_in = f", parts kept in {partials.value}" if order.tree.partials else ""
            return f"fused steps, F = 25, {order.name}{kept_in}: all of {compared:,} recorded logits"
    return None


def entries(results: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> list[Entry]:
    """One entry for each shape, batch shape and setting."""
    known = orders(results, arrays)
    out = []
    for section, found in results.items():
        if section.startswith("stock "):
            out += [
                _entry(label, data, known, arrays, None)
                for label, data in found.items()
                if label.startswith("M")
            ]
    for section, found in results.get("workspace", {}).get("results", {}).items():
        if section.startswith("stock "):
            out += [
                _entry(label, data, {}, arrays, "CUBLAS_WORKSPACE_CONFIG=:16:8")
                for label, data in found.items()
                if label.startswith("M")
            ]
    return out


def _entry(
    label: str,
    data: Mapping[str, Any],
    known: Mapping[tuple[int, int, int], Order | None],
    arrays: Mapping[str, npt.NDArray[Any]],
    condition: str | None,
) -> Entry:
    seen, enclosure, wide = data["logits"], data["enclosure"], data["wide"]
    if "without reduced precision" in label:
        setting = "allow_bf16_reduced_precision_reduction=False"
        condition = setting if condition is None else f"{condition}, {setting}"
    shape = (seen["V"], seen["K"], seen["M"])
    order = known.get(shape) if condition is None else None
    notes = []
    if order is not None and shape[:2] == (50_257, 768):
        explanation = explain_odd(order, shape[2], arrays)
        if explanation:
            notes.append(f"explained by another machine: {explanation}")
    required = REQUIRED_LOGITS if condition is None else REQUIRED_ELSEWHERE
    ratios = [enclosure["ratio_bf16"] or 0.0, enclosure["ratio_fp32"] or 0.0]
    return Entry(
        rows=shape[0],
        columns=shape[1],
        positions=shape[2],
        dtype="bfloat16",
        verdict=judge(
            compared=seen["logits"],
            required=required,
            mismatches=seen["mismatches"] + wide["library_fp32"],
            enclosure_logits=enclosure["logits"],
            outside=enclosure["outside"],
        ),
        model=CHAIN,
        logits=seen["logits"],
        mismatches=seen["mismatches"],
        dot_products=wide["values"],
        dot_product_mismatches=wide["library_fp32"],
        enclosure_logits=enclosure["logits"],
        outside=enclosure["outside"],
        largest_ratio=float(f"{max(ratios):.4g}"),
        key=seen["key"],
        evidence_key=seen["evidence_key"],
        condition=condition,
        order=None if order is None else order.name,
        distributions=seen["by_distribution"],
        checks=checks_of(data),
        histogram=enclosure.get("histogram"),
        kernels=[
            name for name in data["kernels"] if not name.startswith(("cuda", "cuLaunch", "Activity", "Mem"))
        ],
        counterexample=enclosure["first"] or seen["first"],
        notes=notes,
    )


def build(folder: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """The record and the vectors. Raises `ValueError` when inputs made again are not those recorded."""
    results, arrays = load_run(folder)
    for name, steps in step_batches().items():
        if digest(*steps) != results["steps"]["inputs_sha256"][name]:
            raise ValueError(f"the inputs of {name} are not the ones that ran on the GPU")
    vectors = {name: array for name, array in arrays.items() if name.split("/")[0] != "trees"}
    table = alternatives({name: array for name, array in vectors.items() if name.startswith("steps/")})
    chains = {
        name: {how: _counts(part) for how, part in entry.items() if isinstance(part, dict)}
        for name, entry in results["chains"].items()
        if isinstance(entry, dict)
    }
    more = {
        name: _counts(part) for name, part in results["steps"].items() if name.startswith(("more/", "fp16/"))
    }
    record = {
        "schema": SCHEMA,
        "device": results["environment"]["device"],
        "environment": results["environment"],
        "gpu_seconds": results["seconds"],
        "failures": results["failures"],
        "model": CHAIN,
        "rules": {name: str(getattr(MEASURED, name)) for name in Rules.__dataclass_fields__},
        "instructions": results["steps"]["instructions"],
        "wgmma_equals_mma_sync": all(
            part["wgmma_equals_mma_sync"]
            for part in results["steps"].values()
            if isinstance(part, dict) and "wgmma_equals_mma_sync" in part
        ),
        "parameters": [vars(row) for row in table],
        "recorded_steps": sum(
            len(a) for n, a in vectors.items() if n.startswith("steps/") and n.count("/") == 1
        ),
        "more_steps": more,
        "chains": chains,
        "inputs_sha256": {
            **results["steps"]["inputs_sha256"],
            **{
                f"chains/{n}": e["inputs_sha256"] for n, e in results["chains"].items() if isinstance(e, dict)
            },
            **{f"odd/{n}": sha for n, sha in results["odd"].items() if isinstance(sha, str)},
        },
        "orders": {
            f"{v}x{k}/M{m}": None if order is None else order.name
            for (v, k, m), order in orders(results, arrays).items()
        },
        "entries": [entry.to_json() for entry in entries(results, arrays)],
    }
    return record, vectors


def _counts(part: Mapping[str, Any]) -> dict[str, int]:
    return {name: part[name] for name in ("compared", "mismatches", "only_nan_code", "only_zero_sign")}


def write(folder: Path, evidence: Path, vectors: Path) -> dict[str, Any]:
    """Build and write both files; the record names the vectors' SHA-256."""
    record, arrays = build(folder)
    vectors.parent.mkdir(parents=True, exist_ok=True)
    evidence.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(vectors, **arrays)  # type: ignore[arg-type]
    record["vectors"] = {
        "file": vectors.as_posix(),
        "sha256": hashlib.sha256(vectors.read_bytes()).hexdigest(),
        "arrays_sha256": digest(*(arrays[name] for name in sorted(arrays))),
    }
    evidence.write_text(one_line_an_item(record), "utf-8")
    return record


def main() -> None:
    """Command line: the run's folder or records to merge, and where to write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--merge", type=Path, nargs="+", default=[])
    parser.add_argument("--evidence", type=Path, default=EVIDENCE / "audit-h200.json")
    parser.add_argument("--vectors", type=Path, default=VECTORS)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        write(arguments.folder, arguments.evidence, arguments.vectors)
    record = read(arguments.evidence)
    for run in arguments.merge:
        record = merged(record, read(run))
    arguments.evidence.write_text(one_line_an_item(record), "utf-8")
    write_report(record, arguments.evidence.with_suffix(".html"))
    for entry in record["entries"]:
        shape = f"{entry['rows']}x{entry['columns']} M={entry['positions']}"
        print(
            f"{shape:22} {entry['verdict']:14} {entry['mismatches']:>12,} of {entry['logits']:,}",
            entry["condition"] or "",
        )
    print(f"{arguments.evidence}, {arguments.vectors}")


if __name__ == "__main__":
    main()
