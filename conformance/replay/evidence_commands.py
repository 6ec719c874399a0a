"""The commands that make evidence and hold it to its word: record, commit, check, verify.

Everything heavy is imported when a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from ..errors import BadInput
from .commitment import Inclusion, check_inclusion, prove_inclusion, sample_commitment, variant_commitment
from .models import Engine
from .options import (
    BatchSize,
    Device,
    EngineOption,
    Evidence,
    Json,
    Model,
    Root,
    Weights,
    bad_input_is_exit_2,
    check_folder,
    echo_some,
    hash_of,
    progress,
    write_json,
)
from .record import BadLine, Reader
from .schema import header_data
from .trace import Sample, Sampling

INCLUSION_SCHEMA = "certhead.replay.inclusion/1"


@bad_input_is_exit_2
def record(
    out: Annotated[Path, typer.Argument(help="File to write, .jsonl or .jsonl.gz.", show_default=False)],
    prompts: Annotated[
        Path | None,
        typer.Option(
            help="A text with one prompt a line, or .jsonl lines with sample_id and input_ids.",
            show_default="the experiment's prompts",
        ),
    ] = None,
    each: Annotated[
        int, typer.Option(min=1, help="Of the experiment's prompts: how many of each length.")
    ] = 4,
    engine: EngineOption = Engine.TRANSFORMERS,
    model: Model = "smollm2",
    weights: Weights = "bf16",
    device: Device = "cpu",
    batch_size: BatchSize = 8,
    logprobs: Annotated[int, typer.Option(min=1, help="Most likely tokens to keep at each depth.")] = 64,
    max_new_tokens: Annotated[
        int, typer.Option(min=1, help="Tokens to generate for a prompt, at most.")
    ] = 128,
    temperature: Annotated[float, typer.Option(min=0, help="0: greedy.")] = 0.0,
    top_p: Annotated[
        float, typer.Option(help="Sample among the likeliest tokens that reach this share.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(min=0, help="Sample among so many of the likeliest; 0: all.")] = 0,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed, for a temperature above 0.")] = None,
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Generate past the text's end.")] = False,
    json: Json = None,
) -> None:
    """Generate, and keep the evidence of every token.

    That is: input_ids and output_ids, and at each depth d the chosen token's log probability and rank, and
    the k most likely tokens with theirs. Log probabilities are the model's own, before temperature and
    filters, whatever the tokens were sampled with.

    Every sample is in the file as soon as its batch is done; the same command goes on where a stopped one
    was. Publish the root that it prints before anyone asks: evidence that was changed later has another.

    JSON keys: file, samples, tokens, root, variant_commitment, variant.
    """
    from .models import load, read_prompts
    from .replay_prompts import make_prompts
    from .worker import describe
    from .worker import record as run

    if temperature > 0 and seed is None:
        raise BadInput(f"--temperature {temperature}: sampling needs a --seed")
    check_folder("OUT", out)
    loaded = load(engine, model, weights, device, logprobs)
    asked = make_prompts(loaded.encode, each=each) if prompts is None else read_prompts(prompts, loaded)
    variant = describe(
        loaded.backend,
        model=loaded.name,
        tokenizer_hash=loaded.tokenizer_hash,
        quantization=loaded.quantization,
        batch_size=batch_size,
        logprobs=logprobs,
        sampling=Sampling(temperature, top_p, top_k, max_new_tokens, seed),
        ignore_eos=ignore_eos,
    )
    with progress("recorded", len(asked)) as step:
        run(loaded.backend, variant, asked, out, step)
    _report_file(out, json)


@bad_input_is_exit_2
def commit(
    evidence: Evidence,
    prove: Annotated[
        str | None,
        typer.Option(
            metavar="SAMPLE_ID", help="Prove that this sample is in the batch; with --json, to a file."
        ),
    ] = None,
    json: Json = None,
) -> None:
    """Print the root that fixes a file: 32 bytes that cover the variant, every sample and their order.

    With --prove, print why the root covers one sample: the hashes beside its way up the Merkle tree. Whoever
    has the root can check that with `check --proof`, without the other samples. docs/replay-evidence.md has
    every byte.

    JSON keys: file, samples, tokens, root, variant_commitment, variant; with --prove those of an inclusion
    proof (schema certhead.replay.inclusion/1).
    """
    if prove is None:
        _report_file(evidence, json)
        return
    place = proved = None
    with Reader(evidence) as reader:
        for item in reader:
            if isinstance(item, Sample) and item.sample_id == prove:
                place, proved = len(reader.commitments) - 1, item
    if place is None or proved is None:
        raise BadInput(f"--prove {prove}: no such sample in {evidence}")
    proof = prove_inclusion(reader.commitments, place)
    result = {
        "schema": INCLUSION_SCHEMA,
        "sample_id": prove,
        "index": proof.index,
        "samples": proof.count,
        "commitment": sample_commitment(proved).hex(),
        "variant": variant_commitment(reader.variant).hex(),
        "siblings": [sibling.hex() for sibling in proof.siblings],
        "root": reader.computed_root().hex(),
    }
    write_json(json, result)
    typer.echo(json_module.dumps(result, indent=1))


@bad_input_is_exit_2
def check(
    evidence: Annotated[
        Path,
        typer.Argument(help="Evidence file; with --proof, one that holds the sample.", show_default=False),
    ],
    root: Root = None,
    proof: Annotated[
        Path | None, typer.Option(help="Inclusion proof, from `commit --prove`; needs --root.")
    ] = None,
    json: Json = None,
) -> None:
    """Check that a file keeps the format and is what was committed to.

    Every line is checked against every rule of docs/replay-evidence.md, each commitment in it against its
    content, and the last line's root, and --root if given, against the whole. With --proof, check instead
    that the root covers the one sample of the proof as it stands in this file.

    Exit code: 0 all well, 1 a bad line or another root, 2 bad input.

    JSON keys: file, passed, samples, tokens, root, root_confirmed (by the file's last line), bad (a text for
    each bad line), bad_count.
    """
    wanted = None if root is None else hash_of("--root", root)
    if proof is not None:
        if wanted is None:
            raise BadInput("--proof: needs the --root that was published")
        passed = _check_proof(evidence, proof, wanted)
        write_json(json, {"file": str(evidence), "proof": str(proof), "root": wanted.hex(), "passed": passed})
        typer.echo("the root covers the sample" if passed else "the root does not cover the sample")
        raise typer.Exit(0 if passed else 1)
    bad = []
    tokens = 0
    with Reader(evidence) as reader:
        for item in reader:
            if isinstance(item, BadLine):
                bad.append(str(item))
            else:
                tokens += len(item.output_ids)
    found = reader.computed_root()
    other = wanted is not None and wanted != found
    passed = not bad and not other
    result = {
        "file": str(evidence),
        "passed": passed,
        "samples": len(reader.commitments),
        "tokens": tokens,
        "root": found.hex(),
        "root_confirmed": reader.root is not None,
        "bad_count": len(bad),
        "bad": bad,
    }
    write_json(json, result)
    echo_some(bad)
    typer.echo(f"{evidence}: {len(reader.commitments):,} samples, {tokens:,} tokens, {len(bad)} bad lines")
    typer.echo(f"root {found.hex()}" + ("" if reader.has_footer else " (the file does not state one)"))
    if other:
        typer.echo(f"this is not the root that was asked for, {root}")
    raise typer.Exit(0 if passed else 1)


@bad_input_is_exit_2
def verify(
    evidence: Evidence,
    out: Annotated[Path, typer.Argument(help="File to write the scores to.", show_default=False)],
    engine: EngineOption = Engine.TRANSFORMERS,
    model: Model = "smollm2",
    weights: Weights = "bf16",
    device: Device = "cpu",
    batch_size: BatchSize = 8,
    logprobs: Annotated[
        int | None,
        typer.Option(min=1, help="Most likely tokens to keep.", show_default="as many as the worker"),
    ] = None,
    json: Json = None,
) -> None:
    """Score the worker's paths, as they are: nothing is generated, and no text is tokenised again.

    The path of a sample is input_ids + output_ids; output token d stands at position len(input_ids) + d, and
    the model's distribution at the position before it says how likely the token was. One prefill per sample
    gives them all. The scores go to a file of the worker's format, which names the evidence by its root.

    The verifier runs the model that the worker claims. The worker's numbers are not looked at here. Evidence
    of another tokenizer is refused. The same command goes on where a stopped one was.

    JSON keys: file, samples, tokens, root, variant_commitment, variant, bad (the evidence's bad lines).
    """
    from .models import load
    from .replay import verify as run
    from .worker import describe

    check_folder("OUT", out)
    with Reader(evidence) as reader:
        samples = sum(isinstance(item, Sample) for item in reader)
    if not samples:
        raise BadInput(f"{evidence}: holds no good sample")
    entries = logprobs or reader.variant.logprobs
    loaded = load(engine, model, weights, device, entries)
    variant = describe(
        loaded.backend,
        model=loaded.name,
        tokenizer_hash=loaded.tokenizer_hash,
        quantization=loaded.quantization,
        batch_size=batch_size,
        logprobs=entries,
        sampling=reader.variant.sampling,
        extra={"evidence_root": reader.computed_root().hex()},
    )
    with progress("scored", samples) as step:
        bad = [str(line) for line in run(loaded.backend, variant, evidence, out, step)]
    echo_some(bad)
    _report_file(out, json, bad=bad)


def _check_proof(evidence: Path, path: Path, root: bytes) -> bool:
    try:
        data = json_module.loads(path.read_text("utf-8"))
        if data["schema"] != INCLUSION_SCHEMA:
            raise BadInput(f"{path}: schema = {data['schema']!r}: not {INCLUSION_SCHEMA!r}")
        sample_id = data["sample_id"]
        siblings = tuple(hash_of(f"{path}: siblings", sibling) for sibling in data["siblings"])
        proof = Inclusion(int(data["index"]), int(data["samples"]), siblings)
    except OSError as problem:
        raise BadInput(f"{path}: {problem.strerror}") from None
    except (KeyError, TypeError, ValueError) as problem:
        if isinstance(problem, BadInput):
            raise
        raise BadInput(f"{path}: is no inclusion proof: {problem}") from None
    with Reader(evidence) as reader:
        for item in reader:
            if isinstance(item, Sample) and item.sample_id == sample_id:
                return check_inclusion(
                    root, variant_commitment(reader.variant), sample_commitment(item), proof
                )
    raise BadInput(f"{evidence}: holds no good sample {sample_id!r}")


def _report_file(path: Path, json: Path | None, **more: object) -> None:
    """Print a file's size and root. Raises BadInput for a bad line: no root would cover it."""
    tokens = 0
    with Reader(path) as reader:
        for item in reader:
            if isinstance(item, BadLine):
                raise BadInput(f"{item}; `certhead replay check` lists all bad lines")
            tokens += len(item.output_ids)
    root = reader.computed_root().hex()
    result = {
        "file": str(path),
        "samples": len(reader.commitments),
        "tokens": tokens,
        "root": root,
        "variant_commitment": variant_commitment(reader.variant).hex(),
        "variant": header_data(reader.variant)["variant"],
        **more,
    }
    write_json(json, result)
    typer.echo(f"{path}: {len(reader.commitments):,} samples, {tokens:,} tokens")
    typer.echo(f"root {root}")
