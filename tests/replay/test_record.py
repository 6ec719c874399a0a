"""Evidence files: what is refused and how it is named, what a crash leaves, what memory a pass takes."""

from __future__ import annotations

import copy
import gzip
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from certhead.conformance.errors import BadInput
from certhead.conformance.replay import record, schema
from certhead.conformance.replay.commitment import batch_root, sample_commitment
from certhead.conformance.replay.record import BadLine, Batch, Reader, Writer, read, write
from certhead.conformance.replay.trace import NO_TOKEN, Sample, Trace, Variant
from hypothesis import given
from hypothesis import strategies as st

DATA = Path(__file__).parents[1] / "data" / "replay"
EXAMPLE = DATA / "example.jsonl"
TEXT = EXAMPLE.read_text("utf-8")
HEADER, *SAMPLES, FOOTER = [json.loads(line) for line in TEXT.splitlines()]
NAMES = ["file.jsonl", "file.jsonl.gz"]


def same(a: Batch, b: Batch) -> bool:
    """Whether two batches hold the same data; commitments cover every bit of it, and its order."""
    return batch_root(a.variant, a.samples) == batch_root(b.variant, b.samples)


def save(path: Path, lines: list[Any]) -> Path:
    """Write lines as they are: JSON values, or texts that may be malformed."""
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines), "utf-8")
    return path


def without_commitment(line: dict[str, Any]) -> dict[str, Any]:
    """A copy that may be edited without being caught for the edit."""
    return {key: copy.deepcopy(value) for key, value in line.items() if key != "commitment"}


def set_step(name: str, value: Any, depth: int = 0) -> Callable[[dict[str, Any]], None]:
    return lambda line: line["trace"][depth].update({name: value})


def set_top(*entries: Any) -> Callable[[dict[str, Any]], None]:
    return set_step("top_logprobs", list(entries))


def set_field(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda line: line.update({name: value})


def delete(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda line: line.pop(name)


def delete_step(name: str) -> Callable[[dict[str, Any]], None]:
    return lambda line: line["trace"][1].pop(name)


# edits of the first sample: input_ids [1, 42], output_ids [7, 9],
# depth 0: [7, -0.25, 1], [3, -2, 2]; depth 1: [4, -0.5, 1], [9, -1.5, 2]
REFUSED = {
    "no sample_id": (delete("sample_id"), "sample_id = null: is missing"),
    "empty sample_id": (set_field("sample_id", ""), 'sample_id = "": must not be empty'),
    "sample_id that is no text": (set_field("sample_id", 7), "sample_id = 7: must be a text"),
    "half a surrogate": (
        set_field("sample_id", "\ud800"),
        'sample_id = "\\ud800": holds half a surrogate pair',
    ),
    "duplicate sample_id": (set_field("sample_id", "b"), 'sample_id = "b": an earlier line has it'),
    "no input": (set_field("input_ids", []), "input_ids = []: must be a list of one token id or more"),
    "no output": (set_field("output_ids", []), "output_ids = []: must be a list of one token id or more"),
    "id that is a text": (set_field("input_ids", [1, "42"]), 'input_ids[1] = "42": must be an integer'),
    "id that is a float": (set_field("input_ids", [1.0, 42]), "input_ids[0] = 1.0: must be an integer"),
    "id that is true": (set_field("output_ids", [True, 9]), "output_ids[0] = true: must be an integer"),
    "negative id": (set_field("input_ids", [-1]), "input_ids[0] = -1: must be 0 or more"),
    "id beyond 64 bits": (
        set_field("input_ids", [2**63]),
        "input_ids[0] = 9223372036854775808: must be at most 9223372036854775807",
    ),
    "trace that is no list": (set_field("trace", None), "trace = null: must be a list"),
    "unknown field": (set_field("note", "hi"), 'note = "hi": no such field in this schema'),
    "unknown field in a depth": (set_step("text", "x"), 'trace[0].text = "x": no such field in this schema'),
    "field with a strange name": (set_field("\ud800\n", 1), "\\ud800\\n = 1: no such field in this schema"),
    "depth that is no object": (lambda s: s["trace"].insert(0, 3), "trace[0] = 3: must be an object"),
    "first depth missing": (lambda s: s["trace"].pop(0), "trace[0].depth = 1: depth 0 is missing"),
    "last depth missing": (
        lambda s: s["trace"].pop(1),
        "trace[1].depth = null: is missing: there are 2 output_ids",
    ),
    "depths out of order": (lambda s: s["trace"].reverse(), "trace[0].depth = 1: depth 0 is missing"),
    "depth twice": (lambda s: s["trace"].append(s["trace"][1]), "trace[2].depth = 1: out of order"),
    "depth too many": (
        lambda s: s["trace"].append({**s["trace"][1], "depth": 2}),
        "trace[2].depth = 2: there are 2 output_ids",
    ),
    "no depth field": (delete_step("depth"), "trace[1].depth = null: is missing"),
    "no selected_rank": (delete_step("selected_rank"), "trace[1].selected_rank = null: is missing"),
    "other target": (set_step("target_token_id", 8), "trace[0].target_token_id = 8: output_ids[0] is 7"),
    "output_ids too long": (
        set_field("output_ids", [7, 9, 9]),
        "trace[2].depth = null: is missing: there are 3 output_ids",
    ),
    "NaN": (
        set_step("selected_logprob", float("nan")),
        "trace[0].selected_logprob = NaN: must be finite: write null for what is missing",
    ),
    "infinity": (
        set_top([7, -0.25, 1], [3, float("-inf"), 2]),
        "trace[0].top_logprobs[1].logprob = -Infinity: must be finite: write null for what is missing",
    ),
    "integer beyond FP64": (
        set_step("selected_logprob", -(10**400)),
        f"trace[0].selected_logprob = -1{'0' * 65}...: must be finite: write null for what is missing",
    ),
    "logprob that is a text": (
        set_step("selected_logprob", "-0.25"),
        'trace[0].selected_logprob = "-0.25": must be a number',
    ),
    "logprob above 0": (
        set_step("selected_logprob", 0.25),
        "trace[0].selected_logprob = 0.25: a log probability is at most 0",
    ),
    "logprob above 0 in an entry": (
        set_top([7, 0.25, 1], [3, -2.0, 2]),
        "trace[0].top_logprobs[0].logprob = 0.25: a log probability is at most 0",
    ),
    "rank 0": (set_step("selected_rank", 0), "trace[0].selected_rank = 0: must be 1 or more"),
    "rank beyond 32 bits": (
        set_step("selected_rank", 2**31),
        "trace[0].selected_rank = 2147483648: must be at most 2147483647",
    ),
    "rank 0 of an entry": (
        set_top([7, -0.25, 1], [3, -2.0, 0]),
        "trace[0].top_logprobs[1].rank = 0: must be 1 or more",
    ),
    "entries that are no list": (
        set_step("top_logprobs", None),
        "trace[0].top_logprobs = null: must be a list",
    ),
    "too few entries": (
        set_top([7, -0.25, 1]),
        "trace[0].top_logprobs = [[7, -0.25, 1]]: 1 entries, and 2 are promised (variant.logprobs)",
    ),
    "too many entries": (
        set_top([7, -0.25, 1], None, None),
        "trace[0].top_logprobs = [[7, -0.25, 1], null, null]: 3 entries, "
        "and 2 are promised (variant.logprobs)",
    ),
    "entry that is an object": (
        set_top([7, -0.25, 1], {"token_id": 3}),
        'trace[0].top_logprobs[1] = {"token_id": 3}: must be [token_id, logprob, rank]',
    ),
    "entry that is short": (
        set_top([7, -0.25], [3, -2.0, 2]),
        "trace[0].top_logprobs[0] = [7, -0.25]: must be [token_id, logprob, rank]",
    ),
    "null before an entry": (
        set_top(None, [7, -0.25, 1]),
        "trace[0].top_logprobs[0] = null: must be [token_id, logprob, rank] "
        "(null may only follow the last entry)",
    ),
    "token listed twice": (
        set_top([7, -0.25, 1], [7, -0.25, 2]),
        "trace[0].top_logprobs[1].token_id = 7: the token of entry 0 again",
    ),
    "entries out of order": (
        set_top([3, -2.0, 2], [7, -0.25, 1]),
        "trace[0].top_logprobs[1].logprob = -0.25: more likely than the entry before, -2.0",
    ),
    "selected and listed disagree": (
        set_step("selected_logprob", -0.26),
        "trace[0].selected_logprob = -0.26: the token's entry in top_logprobs says -0.25",
    ),
    "listed but said to be missing": (
        set_step("selected_logprob", None),
        "trace[0].selected_logprob = null: the token's entry in top_logprobs says -0.25",
    ),
    "likely but not listed": (
        set_top([1, -0.2, 1], [3, -2.0, 2]),
        "trace[0].selected_logprob = -0.25: above the last entry, -2.0, and the token is not listed",
    ),
    "wrong commitment": (
        set_field("commitment", "0" * 64),
        f'commitment = "{"0" * 64}": the line\'s content has {SAMPLES[0]["commitment"]}',
    ),
    "commitment in capitals": (
        set_field("commitment", "A" * 64),
        f'commitment = "{"A" * 64}": must be 64 hexadecimal digits in lower case',
    ),
}


VALUES = st.sampled_from(
    [
        0,
        1,
        2,
        3,
        -1,
        True,
        None,
        "1",
        1.0,
        -0.0,
        -1.0,
        -1.5,
        0.5,
        2**31,
        2**63,
        -(10**400),
        float("nan"),
        -1e309,
        [],
    ]
)
ENTRIES = st.tuples(st.integers(-1, 9), st.floats(-1, 1), st.integers(0, 3)).map(list)


@given(st.lists(ENTRIES | st.lists(VALUES, min_size=2, max_size=4) | VALUES, max_size=4))
def test_the_quick_check_of_entries_accepts_nothing_that_the_slow_one_refuses(entries: list[Any]) -> None:
    for some in (entries, sorted(filter(is_entry, entries), key=lambda entry: -entry[1])):
        quick = schema._sound_columns(some)
        if quick is not None:
            assert [list(column) for column in quick] == list(map(list, schema._check_entries(some)))


def is_entry(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and isinstance(value[1], float)


@pytest.mark.parametrize("name", REFUSED)
def test_a_bad_line_is_named_and_the_rest_of_the_batch_is_returned(tmp_path: Path, name: str) -> None:
    edit, message = REFUSED[name]
    line = without_commitment(SAMPLES[0])
    edit(line)
    path = save(tmp_path / "file.jsonl", [HEADER, *SAMPLES[1:], line])
    batch = read(path)
    assert [str(bad) for bad in batch.bad] == [f"{path}:4: {message}"]
    assert [sample.sample_id for sample in batch.samples] == ["b", "c"]
    assert batch.bad[0].sample_id == (line.get("sample_id") if name != "sample_id that is no text" else None)


MALFORMED = {
    "": 'line = "": malformed JSON, column 1: Expecting value',
    "{": 'line = "{": malformed JSON, column 2: Expecting property name enclosed in double quotes',
    "[]": "line = []: must be a JSON object",
    "null": "line = null: must be a JSON object",
    "7" * 5000: f'line = "{"7" * 40}": malformed JSON: Exceeds the limit',
    "[" * 100_000: f'line = "{"[" * 40}": malformed JSON: maximum recursion depth exceeded',
    '{"sample_id":"a","sample_id":"b"}': 'sample_id = "b": given twice in one object',
    '{"trace":[{"depth":0,"depth":1}]}': "depth = 1: given twice in one object",
}


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_line_is_named(tmp_path: Path, text: str) -> None:
    path = save(tmp_path / "file.jsonl", [HEADER, text, *SAMPLES])
    batch = read(path)
    (bad,) = batch.bad
    assert str(bad).startswith(f"{path}:2: {MALFORMED[text]}"[:150])
    assert len(batch.samples) == 3


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_bytes(TEXT.splitlines()[0].encode() + b'\n{"sample_id":"\xff"}\n')
    assert [str(bad) for bad in read(path).bad] == [
        f'{path}:2: line = "{{\\"sample_id\\":\\"\\ufffd\\"}}": byte 14 is not UTF-8'
    ]


def test_a_line_that_is_too_long_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_LINE", 1000)
    monkeypatch.setattr(record, "CHUNK", 7)
    path = save(tmp_path / "file.jsonl", [HEADER, "x" * 1000, "y" * 999, *SAMPLES])
    batch = read(path)
    assert [bad.line for bad in batch.bad] == [2, 3]
    assert batch.bad[0].reason == "longer than 1000 bytes"
    assert "malformed" in batch.bad[1].reason
    assert len(batch.samples) == 3


@pytest.mark.parametrize(
    ("footer", "message"),
    [
        ({**FOOTER, "samples": 2}, "samples = 2: the file holds 3"),
        ({**FOOTER, "root": "0" * 64}, "the file's content has " + FOOTER["root"]),
        ({**FOOTER, "root": None}, "root = null: must be 64 hexadecimal digits in lower case"),
        ({"root": FOOTER["root"]}, "samples = null: is missing"),
        ({**FOOTER, "more": 1}, "more = 1: no such field in this schema"),
    ],
)
def test_a_wrong_footer_is_named(tmp_path: Path, footer: dict[str, Any], message: str) -> None:
    path = save(tmp_path / "file.jsonl", [HEADER, *SAMPLES, footer])
    batch = read(path)
    (bad,) = batch.bad
    assert bad.line == 5
    assert str(bad).endswith(message)
    assert batch.root is None
    assert len(batch.samples) == 3


def test_a_promise_of_any_size_takes_no_memory(tmp_path: Path) -> None:
    header = edited("variant", "logprobs", value=2**62)
    batch = read(save(tmp_path / "file.jsonl", [header, *SAMPLES]))
    assert [bad.field for bad in batch.bad] == ["trace[0].top_logprobs"] * 3


def test_nothing_may_follow_the_footer(tmp_path: Path) -> None:
    path = save(tmp_path / "file.jsonl", [HEADER, *SAMPLES[:2], FOOTER, SAMPLES[2], FOOTER])
    assert [bad.line for bad in read(path).bad] == [4, 5, 6]


def test_a_root_is_not_confirmed_beside_bad_lines_and_not_counted_as_bad(tmp_path: Path) -> None:
    path = save(tmp_path / "file.jsonl", [HEADER, *SAMPLES[:2], "{", FOOTER])
    batch = read(path)
    assert [bad.line for bad in batch.bad] == [4]
    assert batch.root is None


def test_a_file_without_commitments_and_footer_is_valid(tmp_path: Path) -> None:
    path = save(tmp_path / "file.jsonl", [HEADER, *map(without_commitment, SAMPLES)])
    batch = read(path)
    assert batch.bad == []
    assert batch.root is None
    assert same(batch, read(EXAMPLE))


def edited(*path: str, value: Any) -> dict[str, Any]:
    header = copy.deepcopy(HEADER)
    place = header
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return header


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("", 'line = "": malformed JSON, column 1: Expecting value'),
        ({}, "schema = null: not 'certhead.replay/1'"),
        (SAMPLES[0], "schema = null: not 'certhead.replay/1'"),
        (
            edited("schema", value="certhead.replay/2"),
            "schema = \"certhead.replay/2\": not 'certhead.replay/1'",
        ),
        (edited("schema", value=1), "schema = 1: not 'certhead.replay/1'"),
        (edited("more", value=1), "more = 1: no such field in this schema"),
        (edited("variant", value=None), "variant = null: must be an object"),
        (edited("variant", "more", value=1), "variant.more = 1: no such field in this schema"),
        (edited("variant", "model", value=None), "variant.model = null: must be a text"),
        (
            edited("variant", "tokenizer_hash", value="abc"),
            'variant.tokenizer_hash = "abc": must be 64 hexadecimal digits in lower case',
        ),
        (edited("variant", "logprobs", value=0), "variant.logprobs = 0: must be 1 or more"),
        (edited("variant", "batch_size", value=8.0), "variant.batch_size = 8.0: must be an integer"),
        (edited("variant", "sampling", value=[]), "variant.sampling = []: must be an object"),
        (
            edited("variant", "sampling", "temperature", value=-1),
            "variant.sampling.temperature = -1.0: must be 0 or more",
        ),
        (
            edited("variant", "sampling", "temperature", value=float("inf")),
            "variant.sampling.temperature = Infinity: must be finite: write null for what is missing",
        ),
        (
            edited("variant", "sampling", "top_p", value=1.5),
            "variant.sampling.top_p = 1.5: must be from 0 to 1",
        ),
        (edited("variant", "sampling", "seed", value=-1), "variant.sampling.seed = -1: must be 0 or more"),
        (edited("variant", "extra", value=[]), "variant.extra = []: must be an object of texts"),
        (edited("variant", "extra", value={"a": 1}), "variant.extra.a = 1: must be a text"),
    ],
)
def test_a_wrong_header_refuses_the_file(tmp_path: Path, first: Any, message: str) -> None:
    path = save(tmp_path / "file.jsonl", [first, *SAMPLES])
    with pytest.raises(BadInput) as refusal:
        read(path)
    assert str(refusal.value) == f"{path}:1: {message}"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "plain.jsonl.gz").write_text(TEXT)
    for name, message in (
        ("none.jsonl", "No such file or directory"),
        (".", "Is a directory"),
        ("empty.jsonl", "is empty: the first line must be a header"),
        ("plain.jsonl.gz", "cannot be read: Not a gzipped file"),
    ):
        with pytest.raises(BadInput, match=message) as refusal:
            read(tmp_path / name)
        assert str(refusal.value).startswith(str(tmp_path / name))


def test_another_tokenizer_refuses_the_file() -> None:
    assert read(EXAMPLE, tokenizer_hash="5f" * 32).bad == []
    with pytest.raises(BadInput) as refusal:
        read(EXAMPLE, tokenizer_hash="0" * 64)
    assert str(refusal.value).startswith(f'{EXAMPLE}:1: variant.tokenizer_hash = "5f5f')
    assert "0" * 64 in str(refusal.value)


def test_every_edit_of_one_byte_shows(tmp_path: Path) -> None:
    original = read(EXAMPLE)
    path = tmp_path / "file.jsonl"
    text = TEXT.encode()
    news = (b"", b"0", b"1", b"-", b'"', b"\n", None)
    spellings = 0
    for place in range(len(text)):
        new = news[place % len(news)]
        path.write_bytes(
            text[:place] + (bytes([text[place] ^ 1]) if new is None else new) + text[place + 1 :]
        )
        try:
            batch = read(path)
        except BadInput:
            continue
        if not batch.bad:
            # no edit, another spelling of a number, or the loss of the last line's end
            assert same(batch, original)
            assert batch.root == original.root
            spellings += 1
    assert spellings < 60


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_is_cut_anywhere_can_be_resumed_to_the_same_bytes(tmp_path: Path, name: str) -> None:
    batch = read(EXAMPLE)
    whole, path = tmp_path / ("whole-" + name), tmp_path / name
    write(whole, batch.variant, batch.samples)
    wanted = whole.read_bytes()
    resumed = set()
    for length in range(0, len(wanted) + 1, 2):
        path.write_bytes(wanted[:length])
        with Writer(path, batch.variant) as writer:
            resumed.add(len(writer.finished))
            for sample in batch.samples:
                if sample.sample_id not in writer.finished:
                    writer.append(sample)
        assert path.read_bytes() == wanted
    assert resumed == {0, 1, 2, 3}


@pytest.mark.parametrize("name", NAMES)
def test_samples_can_be_read_as_soon_as_they_are_appended(tmp_path: Path, name: str) -> None:
    batch = read(EXAMPLE)
    path = tmp_path / name
    with Writer(path, batch.variant) as writer:
        for done, sample in enumerate(batch.samples, 1):
            assert writer.append(sample) == sample_commitment(sample)
            seen = read(path)
            assert (len(seen.samples), seen.bad, seen.root) == (done, [], None)
    assert read(path).root == writer.root == batch.root


def test_a_block_that_ends_by_an_exception_leaves_the_file_unfinished(tmp_path: Path) -> None:
    batch = read(EXAMPLE)
    path = tmp_path / "file.jsonl"

    def interrupted() -> None:
        with Writer(path, batch.variant) as writer:
            writer.append(batch.samples[0])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert read(path).root is None
    assert Writer(path, batch.variant).finished == {"a"}


def test_a_writer_refuses_what_it_cannot_resume(tmp_path: Path) -> None:
    variant = read(EXAMPLE).variant
    damaged = save(tmp_path / "damaged.jsonl", [HEADER, SAMPLES[0], "{", SAMPLES[1]])
    foreign = tmp_path / "notes.txt"
    foreign.write_text("buy milk")
    listed = save(tmp_path / "list.txt", ["buy milk", "and bread"])
    one_member = tmp_path / "one.jsonl.gz"
    one_member.write_bytes(gzip.compress(TEXT.encode()))
    for path, message in (
        (damaged, "a damaged file cannot be appended to"),
        (foreign, "is no evidence file"),
        (listed, "malformed JSON"),
        (one_member, "not one gzip member each"),
        (tmp_path / "no" / "folder.jsonl", "No such file or directory"),
    ):
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(BadInput, match=message) as refusal:
            Writer(path, variant)
        assert str(path) in str(refusal.value)
        assert (path.read_bytes() if path.exists() else None) == before


def test_a_writer_refuses_another_variant_and_names_the_difference(tmp_path: Path) -> None:
    batch = read(EXAMPLE)
    path = tmp_path / "file.jsonl"
    write(path, batch.variant, batch.samples)
    before = path.read_bytes()
    with pytest.raises(BadInput, match="another variant wrote it: batch_size = 8 there, 4 now"):
        Writer(path, replace(batch.variant, batch_size=4))
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", NAMES)
def test_a_gzip_file_that_is_cut_costs_the_rest_only(tmp_path: Path, name: str) -> None:
    batch = read(EXAMPLE)
    path = tmp_path / name
    write(path, batch.variant, batch.samples)
    path.write_bytes(path.read_bytes()[:-80])
    cut = read(path)
    assert len(cut.samples) == 3 if name.endswith("jsonl") else 2
    assert cut.root is None
    assert len(cut.bad) == 1


def test_a_writer_writes_nothing_that_a_reader_refuses(tmp_path: Path) -> None:
    variant, (sample, *_) = (batch := read(EXAMPLE)).variant, batch.samples
    path = tmp_path / "file.jsonl"

    def traced(**columns: Any) -> Sample:
        return replace(sample, trace=replace(sample.trace, **columns))

    wrong = {
        "sample_id": replace(sample, sample_id=""),
        "input_ids": replace(sample, input_ids=()),
        "output_ids": replace(sample, output_ids=(7,)),
        "target_token_id": traced(token_ids=np.array([7, 8])),
        "selected_logprob": traced(logprobs=np.array([-0.25, -np.inf])),
        "selected_rank": traced(ranks=np.array([-1, 2], np.int32)),
        "top_logprobs": traced(
            **{n: getattr(sample.trace, n)[:, :1] for n in ("top_ids", "top_logprobs", "top_ranks")}
        ),
        "token_id": traced(top_ids=np.array([[7, 7], [4, 9]])),
        "must be \\[": traced(top_ids=np.array([[NO_TOKEN, 3], [4, 9]])),
        "finite": traced(top_logprobs=np.array([[-0.25, np.nan], [-0.5, -1.5]])),
        "zip": traced(ranks=np.array([1], np.int32)),
    }
    with Writer(path, variant) as writer:
        for field, bad in wrong.items():
            with pytest.raises(ValueError, match=field):
                writer.append(bad)
        writer.append(sample)
        with pytest.raises(ValueError, match="in the file already"):
            writer.append(sample)
    assert [s.sample_id for s in read(path).samples] == ["a"]
    with pytest.raises(ValueError, match="tokenizer_hash"):
        Writer(tmp_path / "other.jsonl", replace(variant, tokenizer_hash="?"))
    assert not (tmp_path / "other.jsonl").exists()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    batch = read(EXAMPLE)
    path = tmp_path / "file.jsonl"
    write(path, batch.variant, batch.samples)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="in the file already"):
        write(path, batch.variant, [*batch.samples, *batch.samples])
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def large_sample(number: int, depths: int = 64, entries: int = 16) -> Sample:
    ids = np.tile(np.arange(entries, dtype=np.int64), (depths, 1))
    logprobs = np.tile(-np.arange(1.0, entries + 1) / 7, (depths, 1))
    trace = Trace(
        ids[:, 0].copy(),
        logprobs[:, 0].copy(),
        np.ones(depths, np.int32),
        ids,
        logprobs,
        (ids + 1).astype(np.int32),
    )
    return Sample(f"sample-{number}", (1,), (0,) * depths, trace)


@pytest.mark.parametrize("name", NAMES)
def test_a_pass_over_a_large_file_holds_one_sample_at_a_time(tmp_path: Path, name: str) -> None:
    variant = replace(read(EXAMPLE).variant, logprobs=16)
    path = tmp_path / name
    write(path, variant, (large_sample(i) for i in range(60)))
    plain = len(gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes())
    assert plain > 1_500_000
    tracemalloc.start()
    with Reader(path) as reader:
        assert sum(isinstance(item, Sample) for item in reader) == 60
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert reader.root is not None
    assert peak < 700_000


def test_a_reader_yields_samples_and_bad_lines_in_the_order_of_the_file(tmp_path: Path) -> None:
    path = save(tmp_path / "file.jsonl", [HEADER, SAMPLES[0], "{", SAMPLES[1]])
    with Reader(path) as reader:
        assert isinstance(reader.variant, Variant)
        kinds = [type(item) for item in reader]
    assert kinds == [Sample, BadLine, Sample]
    assert reader.bad == 1
