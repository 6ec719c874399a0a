"""Commitments against a second, deliberately naive implementation, written from the document alone.

The naive one (the functions named `naive_…`) uses nothing but hashlib, json and struct; the document is
docs/replay-evidence.md.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import struct
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certhead.conformance.replay.commitment import (
    Inclusion,
    batch_root,
    check_inclusion,
    prove_inclusion,
    root_of,
    sample_commitment,
    variant_commitment,
)
from certhead.conformance.replay.record import read, write
from certhead.conformance.replay.trace import NO_TOKEN, Sample, Sampling, Trace, Variant
from hypothesis import given
from hypothesis import strategies as st
from replay_strategies import files

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "replay"
DOCUMENT = ROOT / "docs" / "replay-evidence.md"
GOLDEN_ROOTS = {
    "example.jsonl": "8f41d29e6cda1516dbafbe9186ab510ecb61d8dca241da41d087ec49c59a03c9",
    "corners.jsonl": "447190746c49e4975e849ed38ec1834df208a1fb966bba4a32f928ffa575c0bf",
    "corners.jsonl.gz": "447190746c49e4975e849ed38ec1834df208a1fb966bba4a32f928ffa575c0bf",
}


def naive_u64(n: int) -> bytes:
    return bytes((n >> shift) % 256 for shift in (56, 48, 40, 32, 24, 16, 8, 0))


def naive_hash(purpose: str, *parts: bytes) -> bytes:
    message = b""
    for part in (b"certhead.replay/1 " + purpose.encode("utf-8"), *parts):
        message = message + naive_u64(len(part)) + part
    return hashlib.sha256(message).digest()


def naive_number(x: float | None) -> bytes:
    if x is None:
        return b"\x7f\xf8\x00\x00\x00\x00\x00\x00"
    return struct.pack(">d", 0.0 if x == 0 else x)


def naive_sample(line: dict[str, Any]) -> bytes:
    logprobs = ranks = entry_ids = entry_logprobs = entry_ranks = b""
    for step in line["trace"]:
        logprobs += naive_number(step["selected_logprob"])
        ranks += naive_u64(0 if step["selected_rank"] is None else step["selected_rank"])
        for entry in step["top_logprobs"]:
            entry_ids += naive_u64(2**64 - 1 if entry is None else entry[0])
            entry_logprobs += naive_number(None if entry is None else entry[1])
            entry_ranks += naive_u64(0 if entry is None else entry[2])
    return naive_hash(
        "sample",
        line["sample_id"].encode("utf-8"),
        b"".join(naive_u64(i) for i in line["input_ids"]),
        b"".join(naive_u64(i) for i in line["output_ids"]),
        logprobs,
        ranks,
        entry_ids,
        entry_logprobs,
        entry_ranks,
    )


def naive_variant(v: dict[str, Any]) -> bytes:
    s = v["sampling"]
    parts = [v["model"].encode("utf-8"), v["tokenizer_hash"].encode("utf-8"), v["dtype"].encode("utf-8")]
    parts += [v["quantization"].encode("utf-8"), v["device"].encode("utf-8"), v["engine"].encode("utf-8")]
    parts += [v["engine_version"].encode("utf-8"), naive_u64(v["batch_size"]), naive_u64(v["logprobs"])]
    parts += [naive_number(s["temperature"]), naive_number(s["top_p"])]
    parts += [naive_u64(s["top_k"]), naive_u64(s["max_new_tokens"])]
    parts += [b"" if s["seed"] is None else naive_u64(s["seed"]), naive_u64(len(v["extra"]))]
    for key in sorted(v["extra"], key=lambda k: k.encode("utf-8")):
        parts += [key.encode("utf-8"), v["extra"][key].encode("utf-8")]
    return naive_hash("variant", *parts)


def naive_root(header: dict[str, Any], lines: list[dict[str, Any]]) -> bytes:
    level = [naive_hash("leaf", naive_sample(line)) for line in lines]
    while len(level) > 1:
        above = []
        while len(level) >= 2:
            left, right, *level = level
            above.append(naive_hash("node", left, right))
        level = above + level
    tree = level[0] if level else b""
    return naive_hash("batch", naive_variant(header["variant"]), naive_u64(len(lines)), tree)


def naive_text(file: list[dict[str, Any]]) -> str:
    """A whole file, with commitments and footer."""
    header, *lines = file
    footer = {"root": naive_root(header, lines).hex(), "samples": len(lines)}
    committed = [{"commitment": naive_sample(line).hex(), **line} for line in lines]
    return "".join(json.dumps(line) + "\n" for line in (header, *committed, footer))


def naive_check(text: str) -> str:
    """The root of a file's text, after every commitment in it was found right."""
    header, *lines, footer = [json.loads(line) for line in text.split("\n")[:-1]]
    for line in lines:
        assert line["commitment"] == naive_sample(line).hex()
    assert footer == {"samples": len(lines), "root": naive_root(header, lines).hex()}
    return str(footer["root"])


def golden() -> tuple[Variant, list[Sample]]:
    batch = read(DATA / "example.jsonl")
    return batch.variant, batch.samples


@pytest.mark.parametrize("name", GOLDEN_ROOTS)
def test_both_implementations_agree_on_the_golden_files(name: str) -> None:
    batch = read(DATA / name)
    assert batch.bad == []
    assert batch.root is not None
    assert batch.root.hex() == GOLDEN_ROOTS[name]
    assert batch_root(batch.variant, batch.samples) == batch.root
    assert naive_check((DATA / name.removesuffix(".gz")).read_text("utf-8")) == GOLDEN_ROOTS[name]


def test_the_documents_example_is_the_golden_file() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert (DATA / "example.jsonl").read_text("utf-8") in text
    variant, samples = golden()
    commitments = [sample_commitment(sample) for sample in samples]
    proof = prove_inclusion(commitments, 2)
    wanted = {"variant": variant_commitment(variant), "root": batch_root(variant, samples)}
    wanted["node ab"] = proof.siblings[0]
    wanted["leaf b"] = prove_inclusion(commitments, 0).siblings[0]
    wanted["leaf a"] = prove_inclusion(commitments, 1).siblings[0]
    for name, value in wanted.items():
        assert re.search(rf"^ +{name} +{value.hex()}$", text, re.MULTILINE), name
    rows = re.findall(r"^    ([0-9a-f]{16}) ([0-9a-f]*) +[a-z_ ]+$", text, re.MULTILINE)
    assert len(rows) == 9
    message = bytes.fromhex("".join(length + content for length, content in rows))
    assert f"{len(message)} in all" in text
    assert hashlib.sha256(message).digest() == commitments[2]


@given(files())
def test_the_naive_files_are_read_as_they_were_meant(
    tmp_path_factory: pytest.TempPathFactory, file: list[dict[str, Any]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "naive.jsonl"
    path.write_text(naive_text(file), "utf-8")
    batch = read(path)
    assert batch.bad == []
    assert batch.root == naive_root(file[0], file[1:])
    assert [sample_commitment(s) for s in batch.samples] == [naive_sample(line) for line in file[1:]]


@given(files())
def test_what_is_written_passes_the_naive_check_and_holds_the_same_data(
    tmp_path_factory: pytest.TempPathFactory, file: list[dict[str, Any]]
) -> None:
    source, copy = (tmp_path_factory.getbasetemp() / name for name in ("source.jsonl", "copy.jsonl"))
    source.write_text("".join(json.dumps(line) + "\n" for line in file), "utf-8")  # no commitments: optional
    batch = read(source)
    assert batch.bad == []
    assert batch.root is None
    write(copy, batch.variant, batch.samples)
    text = copy.read_bytes().decode("utf-8")
    assert naive_check(text) == batch_root(batch.variant, batch.samples).hex()
    header, *lines, _ = [json.loads(line) for line in text.split("\n")[:-1]]
    assert [header, *[{k: v for k, v in line.items() if k != "commitment"} for line in lines]] == file


def edits(sample: Sample) -> list[Sample]:
    """Every sample that differs in one number or text, each in two ways, and in the length of a list."""
    changed = [replace(sample, sample_id=sample.sample_id + suffix) for suffix in ("x", "\0")]
    for name in ("input_ids", "output_ids"):
        ids = getattr(sample, name)
        for place in range(len(ids)):
            changed += [
                replace(sample, **{name: (*ids[:place], ids[place] + step, *ids[place + 1 :])})
                for step in (1, 2**40)
            ]
        changed += [replace(sample, **{name: (*ids, 0)}), replace(sample, **{name: ids[1:]})]
    for field in fields(Trace):
        if field.name == "token_ids":  # output_ids again, as every reader checks
            continue
        column = getattr(sample.trace, field.name)
        for place in range(column.size):
            old = column.flat[place]
            if column.dtype == np.float64:
                others = [np.nextafter(old, -1.0), np.nan] if not np.isnan(old) else [0.0, -1.0]
            else:
                others = [old ^ 1, old ^ 2]
            for value in others:
                edited = column.copy()
                edited.flat[place] = value
                changed.append(replace(sample, trace=replace(sample.trace, **{field.name: edited})))
    return changed


def test_every_single_edit_of_a_sample_changes_its_commitment() -> None:
    for name in ("example.jsonl", "corners.jsonl"):
        for sample in read(DATA / name).samples:
            commitments = [sample_commitment(s) for s in (sample, *edits(sample)) if storable(s)]
            assert len(commitments) > 10
            assert len(set(commitments)) == len(commitments)


def storable(sample: Sample) -> bool:
    """Whether all integers fit into the file's integers: the largest one cannot be stepped up."""
    return (
        all(i < 2**63 for i in (*sample.input_ids, *sample.output_ids))
        and bool((sample.trace.top_ids >= NO_TOKEN).all() and (sample.trace.ranks >= 0).all())
        and bool((sample.trace.top_ranks >= 0).all())
    )


def test_every_single_edit_of_the_variant_changes_the_root() -> None:
    variant, samples = golden()
    texts = ("model", "tokenizer_hash", "dtype", "quantization", "device", "engine", "engine_version")
    variants = [replace(variant, **{name: getattr(variant, name) + "0"}) for name in texts]
    variants += [
        replace(variant, **{name: getattr(variant, name) + 1}) for name in ("batch_size", "logprobs")
    ]
    variants += [
        replace(variant, sampling=sampling)
        for sampling in (
            Sampling(temperature=0.7),
            Sampling(top_p=0.9),
            Sampling(top_k=1),
            Sampling(max_new_tokens=129),
            Sampling(seed=0),
            Sampling(seed=1),
        )
    ]
    extras = ({"a": ""}, {"": "a"}, {"a": "b"}, {"ab": ""}, {"a": "", "b": ""}, {"a": "b", "": ""})
    variants += [replace(variant, extra=extra) for extra in extras]
    roots = {batch_root(v, samples) for v in (variant, *variants)}
    assert len(roots) == 1 + len(variants)


def test_a_text_moved_from_one_field_to_the_next_changes_the_commitment() -> None:
    variant, _ = golden()
    assert variant_commitment(replace(variant, model="ab", dtype="c")) != variant_commitment(
        replace(variant, model="a", dtype="bc")
    )


def test_the_order_of_extra_does_not_matter() -> None:
    variant, _ = golden()
    one, two = {"é": "1", "z": "2"}, {"z": "2", "é": "1"}
    assert variant_commitment(replace(variant, extra=one)) == variant_commitment(replace(variant, extra=two))


def test_negative_zero_is_zero() -> None:
    _, (sample, *_) = golden()
    zero, negative = (
        replace(sample, trace=replace(sample.trace, logprobs=np.array([z, -1.5]))) for z in (0.0, -0.0)
    )
    assert sample_commitment(zero) == sample_commitment(negative)


VARIANT = bytes(32)


def leaves(count: int) -> list[bytes]:
    return [hashlib.sha256(bytes([i])).digest() for i in range(count)]


@pytest.mark.parametrize("count", range(1, 10))
def test_a_list_of_samples_with_another_order_or_number_has_another_root(count: int) -> None:
    whole = leaves(count)
    lists = {tuple(whole)}
    for i, j in itertools.combinations(range(count), 2):
        swapped = whole.copy()
        swapped[i], swapped[j] = swapped[j], swapped[i]
        lists.add(tuple(swapped))
    for i in range(count):
        lists.add((*whole[:i], *whole[i + 1 :]))
        for place in range(count + 1):
            lists.add((*whole[:place], whole[i], *whole[place:]))  # a duplicate, anywhere
    for start in range(count):
        lists.add((*whole, *whole[start:]))  # the duplicated tail of the classic forgery
    assert len({root_of(VARIANT, commitments) for commitments in lists}) == len(lists)


@pytest.mark.parametrize("count", [*range(1, 18), 100])
def test_inclusion_is_proved_for_every_sample_and_for_no_other(count: int) -> None:
    whole = leaves(count)
    root = root_of(VARIANT, whole)
    for index in range(count):
        proof = prove_inclusion(whole, index)
        assert check_inclusion(root, VARIANT, whole[index], proof)
        assert not check_inclusion(root, VARIANT, whole[index][::-1], proof)
        assert not check_inclusion(root[::-1], VARIANT, whole[index], proof)
        assert not check_inclusion(root, root, whole[index], proof)
        for other in (index - 1, index + 1, count, -1):
            assert not check_inclusion(root, VARIANT, whole[index], replace(proof, index=other))
        for other in (count - 1, count + 1, 2 * count, 0, -1, 2**63, 2**70):
            assert not check_inclusion(root, VARIANT, whole[index], replace(proof, count=other))
        for altered in altered_siblings(proof):
            assert not check_inclusion(root, VARIANT, whole[index], altered)


def altered_siblings(proof: Inclusion) -> list[Inclusion]:
    path = proof.siblings
    others = [(*path, bytes(32)), (bytes(32), *path)]
    for place in range(len(path)):
        others += [
            (*path[:place], *path[place + 1 :]),
            (*path[:place], path[place][::-1], *path[place + 1 :]),
            (*path[:place], path[place][:31], *path[place + 1 :]),
            (*path[:place], b"", *path[place + 1 :]),
        ]
    return [replace(proof, siblings=siblings) for siblings in others]


def test_an_inner_node_does_not_pass_for_a_sample() -> None:
    whole = leaves(4)
    root = root_of(VARIANT, whole)
    inner, beside = prove_inclusion(whole, 2).siblings[1], prove_inclusion(whole, 0).siblings[1]
    for count in (2, 4):
        assert not check_inclusion(root, VARIANT, inner, Inclusion(0, count, (beside,)))


@given(st.integers(0, 40), st.integers(-3, 43))
def test_there_is_a_proof_for_each_place_and_none_beyond(count: int, index: int) -> None:
    whole = leaves(count)
    if 0 <= index < count:
        assert check_inclusion(root_of(VARIANT, whole), VARIANT, whole[index], prove_inclusion(whole, index))
    else:
        with pytest.raises(IndexError):
            prove_inclusion(whole, index)
