"""The lines of an evidence file as plain JSON data, and every rule that they must keep.

docs/replay-evidence.md is the definition. What is written passes through the same rules as what is read, so
that no file can be written that would be refused.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from .commitment import SCHEMA
from .trace import NO_TOKEN, Sample, Sampling, Trace, Variant

LARGEST = 2**63 - 1  # of token ids and counts
LARGEST_RANK = 2**31 - 1
VARIANT_TEXTS = ("model", "dtype", "quantization", "device", "engine", "engine_version")
VARIANT_KEYS = {*VARIANT_TEXTS, "tokenizer_hash", "batch_size", "logprobs", "sampling", "extra"}
SAMPLING_KEYS = {"temperature", "top_p", "top_k", "max_new_tokens", "seed"}
SAMPLE_KEYS = {"sample_id", "input_ids", "output_ids", "trace"}
STEP_KEYS = {"depth", "target_token_id", "selected_logprob", "selected_rank", "top_logprobs"}
FOOTER_KEYS = {"samples", "root"}
HASH = re.compile("[0-9a-f]{64}")


class Flaw(ValueError):
    """A line that breaks a rule: the field, its value (shortened), and the rule."""

    def __init__(self, field: str, value: object, reason: str) -> None:
        self.field, self.value, self.reason = field, shown(value), reason
        super().__init__(field, self.value, reason)

    def __str__(self) -> str:
        return f"{self.field} = {self.value}: {self.reason}"

    def inside(self, where: str) -> Flaw:
        """The same flaw, seen from the object around it."""
        outer = Flaw(f"{where}.{self.field}" if self.field else where, None, self.reason)
        outer.value = self.value
        return outer


def shown(value: object) -> str:
    """A value in at most 70 characters of one line."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 70 else text[:67] + "..."


def parse(line: bytes) -> dict[str, Any]:
    """One line as a JSON object. Raises Flaw; NaN and Infinity are left to the field that holds them."""
    line = line.rstrip(b"\r\n")
    try:
        data = json.loads(line.decode(), object_pairs_hook=_unique)
    except UnicodeDecodeError as problem:
        raise Flaw("line", line[:40].decode(errors="replace"), f"byte {problem.start} is not UTF-8") from None
    except json.JSONDecodeError as problem:
        near = problem.doc[max(problem.pos - 20, 0) : problem.pos + 20]
        raise Flaw("line", near, f"malformed JSON, column {problem.pos + 1}: {problem.msg}") from None
    except Flaw:
        raise
    except (RecursionError, ValueError) as problem:  # nested too deep; an integer of thousands of digits
        raise Flaw("line", line[:40].decode(errors="replace"), f"malformed JSON: {problem}") from None
    if type(data) is not dict:
        raise Flaw("line", data, "must be a JSON object")
    return data


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise Flaw(_name(twice), data[twice], "given twice in one object")
    return data


def _name(key: str) -> str:
    """A field's name as it may be shown, whatever is in it."""
    return shown(key)[1:-1] if len(key) <= 40 else shown(key[:40])[1:-1] + "..."


def header_data(variant: Variant) -> dict[str, Any]:
    """The first line of a file. Raises Flaw for a variant that no file can hold."""
    sampling = variant.sampling
    data = {
        "schema": SCHEMA,
        "variant": {
            "model": variant.model,
            "tokenizer_hash": variant.tokenizer_hash,
            "dtype": variant.dtype,
            "quantization": variant.quantization,
            "device": variant.device,
            "engine": variant.engine,
            "engine_version": variant.engine_version,
            "batch_size": variant.batch_size,
            "logprobs": variant.logprobs,
            "sampling": {
                "temperature": sampling.temperature,
                "top_p": sampling.top_p,
                "top_k": sampling.top_k,
                "max_new_tokens": sampling.max_new_tokens,
                "seed": sampling.seed,
            },
            "extra": dict(variant.extra),
        },
    }
    parse_header(data)
    return data


def parse_header(data: dict[str, Any]) -> Variant:
    """The variant that a first line names. Raises Flaw for any other schema and any broken rule."""
    if data.get("schema") != SCHEMA:
        raise Flaw("schema", data.get("schema"), f"not {SCHEMA!r}")
    _check_keys(data, {"schema", "variant"})
    try:
        return _parse_variant(data["variant"])
    except Flaw as flaw:
        raise flaw.inside("variant") from None


def _parse_variant(data: Any) -> Variant:
    if type(data) is not dict:
        raise Flaw("", data, "must be an object")
    _check_keys(data, VARIANT_KEYS)
    extra = data["extra"]
    if type(extra) is not dict:
        raise Flaw("extra", extra, "must be an object of texts")
    try:
        sampling = _parse_sampling(data["sampling"])
    except Flaw as flaw:
        raise flaw.inside("sampling") from None
    return Variant(
        **{name: _text(data[name], name) for name in VARIANT_TEXTS},
        tokenizer_hash=_hash(data["tokenizer_hash"], "tokenizer_hash"),
        batch_size=_integer(data["batch_size"], "batch_size", 1),
        logprobs=_integer(data["logprobs"], "logprobs", 1),
        sampling=sampling,
        extra={_text(key, "extra"): _text(value, f"extra.{_name(key)}") for key, value in extra.items()},
    )


def _parse_sampling(data: Any) -> Sampling:
    if type(data) is not dict:
        raise Flaw("", data, "must be an object")
    _check_keys(data, SAMPLING_KEYS)
    temperature = _number(data["temperature"], "temperature")
    if temperature < 0:
        raise Flaw("temperature", temperature, "must be 0 or more")
    top_p = _number(data["top_p"], "top_p")
    if not 0 <= top_p <= 1:
        raise Flaw("top_p", top_p, "must be from 0 to 1")
    seed = data["seed"]
    return Sampling(
        temperature=temperature,
        top_p=top_p,
        top_k=_integer(data["top_k"], "top_k", 0),
        max_new_tokens=_integer(data["max_new_tokens"], "max_new_tokens", 1),
        seed=None if seed is None else _integer(seed, "seed", 0),
    )


def sample_data(sample: Sample, promised: int) -> dict[str, Any]:
    """A sample's line, without its commitment. Raises Flaw for a sample that no file can hold.

    `promised` is the variant's `logprobs`, the width of the trace's tables.
    """
    trace = sample.trace
    steps = []
    for depth, (target, logprob, rank, *entries) in enumerate(
        zip(
            trace.token_ids.tolist(),
            trace.logprobs.tolist(),
            trace.ranks.tolist(),
            trace.top_ids.tolist(),
            trace.top_logprobs.tolist(),
            trace.top_ranks.tolist(),
            strict=True,
        )
    ):
        steps.append(
            {
                "depth": depth,
                "target_token_id": target,
                "selected_logprob": None if math.isnan(logprob) else logprob,
                "selected_rank": rank or None,
                "top_logprobs": [
                    None if token == NO_TOKEN else [token, value, place]
                    for token, value, place in zip(*entries, strict=True)
                ],
            }
        )
    data = {
        "sample_id": sample.sample_id,
        "input_ids": list(sample.input_ids),
        "output_ids": list(sample.output_ids),
        "trace": steps,
    }
    parse_sample(data, promised)
    return data


def parse_sample(data: dict[str, Any], promised: int) -> Sample:
    """The sample on a line, with `promised` entries at each depth. Raises Flaw for any broken rule.

    The line's commitment is the caller's to compare.
    """
    _check_keys(data, SAMPLE_KEYS, optional={"commitment"})
    sample_id = _text(data["sample_id"], "sample_id")
    if not sample_id:
        raise Flaw("sample_id", sample_id, "must not be empty")
    input_ids = _ids(data["input_ids"], "input_ids")
    output_ids = _ids(data["output_ids"], "output_ids")
    steps = data["trace"]
    if type(steps) is not list:
        raise Flaw("trace", steps, "must be a list")
    rows = []
    for depth, step in enumerate(steps):
        try:
            rows.append(_parse_step(step, depth, output_ids, promised))
        except Flaw as flaw:
            raise flaw.inside(f"trace[{depth}]") from None
    if len(rows) < len(output_ids):
        raise Flaw(f"trace[{len(rows)}].depth", None, f"is missing: there are {len(output_ids)} output_ids")
    logprobs, ranks, top_ids, top_logprobs, top_ranks = zip(*rows, strict=True)
    trace = Trace(
        token_ids=np.array(output_ids, np.int64),
        logprobs=np.array(logprobs, np.float64),
        ranks=np.array(ranks, np.int32),
        top_ids=np.array(top_ids, np.int64),
        top_logprobs=np.array(top_logprobs, np.float64) + 0.0,  # zero is positive zero
        top_ranks=np.array(top_ranks, np.int32),
    )
    return Sample(sample_id, input_ids, output_ids, trace)


def _parse_step(
    step: Any, depth: int, output_ids: tuple[int, ...], promised: int
) -> tuple[float, int, Sequence[int], Sequence[float], Sequence[int]]:
    """One depth's row of each column of a Trace after the first, padded to the promised width."""
    if type(step) is not dict:
        raise Flaw("", step, "must be an object")
    _check_keys(step, STEP_KEYS)
    found = _integer(step["depth"], "depth", 0)
    if found != depth:
        raise Flaw("depth", found, f"depth {depth} is missing" if found > depth else "out of order")
    if depth >= len(output_ids):
        raise Flaw("depth", found, f"there are {len(output_ids)} output_ids")
    target = _integer(step["target_token_id"], "target_token_id", 0)
    if target != output_ids[depth]:
        raise Flaw("target_token_id", target, f"output_ids[{depth}] is {output_ids[depth]}")
    logprob, rank = step["selected_logprob"], step["selected_rank"]
    if logprob is not None:
        logprob = _logprob(logprob, "selected_logprob")
    if rank is not None:
        _integer(rank, "selected_rank", 1, LARGEST_RANK)
    ids, logprobs, ranks = _parse_entries(step["top_logprobs"], promised)
    _check_agreement(target, logprob, ids, logprobs, promised)
    if len(ids) < promised:
        unknown = promised - len(ids)
        ids, logprobs, ranks = (
            [*ids, *[NO_TOKEN] * unknown],
            [*logprobs, *[math.nan] * unknown],
            [*ranks, *[0] * unknown],
        )
    return math.nan if logprob is None else logprob, rank or 0, ids, logprobs, ranks


def parse_commitment(data: dict[str, Any]) -> bytes | None:
    """A line's commitment; None where it has none. Raises Flaw."""
    return bytes.fromhex(_hash(data["commitment"], "commitment")) if "commitment" in data else None


def footer_data(count: int, root: bytes) -> dict[str, Any]:
    """The last line of a file."""
    return {"samples": count, "root": root.hex()}


def is_footer(data: dict[str, Any]) -> bool:
    """Whether a line is meant as the last one."""
    return "root" in data


def parse_footer(data: dict[str, Any]) -> tuple[int, bytes]:
    """Number of samples and root, as a last line gives them. Raises Flaw."""
    _check_keys(data, FOOTER_KEYS)
    return _integer(data["samples"], "samples", 0), bytes.fromhex(_hash(data["root"], "root"))


def _parse_entries(top: Any, promised: int) -> tuple[Sequence[int], Sequence[float], Sequence[int]]:
    """Token ids, log probabilities and ranks of the entries at one depth, those that are null left out."""
    if type(top) is not list:
        raise Flaw("top_logprobs", top, "must be a list")
    if len(top) != promised:
        raise Flaw("top_logprobs", top, f"{len(top)} entries, and {promised} are promised (variant.logprobs)")
    known = promised
    while known and top[known - 1] is None:
        known -= 1
    entries = top[:known] if known < promised else top
    return _sound_columns(entries) or _check_entries(entries)


def _sound_columns(entries: list[Any]) -> tuple[tuple[int, ...], tuple[float, ...], tuple[int, ...]] | None:
    """The columns of entries that `_check_entries` accepts, found in a tenth of its time; None: ask there."""
    if set(map(type, entries)) != {list} or set(map(len, entries)) != {3}:
        return None
    ids, logprobs, ranks = zip(*entries, strict=True)
    if set(map(type, ids)) != {int} or set(map(type, ranks)) != {int} or set(map(type, logprobs)) != {float}:
        return None
    sound = (
        len(set(ids)) == len(ids)
        and min(ids) >= 0
        and max(ids) <= LARGEST
        and min(ranks) >= 1
        and max(ranks) <= LARGEST_RANK
        and all(map(math.isfinite, logprobs))
        and logprobs[0] <= 0
        and all(map(operator.ge, logprobs, logprobs[1:]))
    )
    return (ids, logprobs, ranks) if sound else None


def _check_entries(entries: list[Any]) -> tuple[list[int], list[float], list[int]]:
    """The columns of entries, one by one. Raises Flaw, which names the first that breaks a rule."""
    ids: dict[int, int] = {}  # and their places
    logprobs: list[float] = []
    ranks: list[int] = []
    last = 0.0
    for place, entry in enumerate(entries):
        try:
            if type(entry) is not list or len(entry) != 3:
                after = " (null may only follow the last entry)" if entry is None else ""
                raise Flaw("", entry, "must be [token_id, logprob, rank]" + after)
            token = _integer(entry[0], "token_id", 0)
            if token in ids:
                raise Flaw("token_id", token, f"the token of entry {ids[token]} again")
            logprob = _logprob(entry[1], "logprob")
            if logprob > last:
                raise Flaw("logprob", logprob, f"more likely than the entry before, {last!r}")
            ranks.append(_integer(entry[2], "rank", 1, LARGEST_RANK))
        except Flaw as flaw:
            raise flaw.inside(f"top_logprobs[{place}]") from None
        ids[token] = place
        logprobs.append(logprob)
        last = logprob
    return list(ids), logprobs, ranks


def _check_agreement(
    target: int, logprob: float | None, ids: Sequence[int], logprobs: Sequence[float], promised: int
) -> None:
    """The chosen token has one log probability, and is listed where it is among the most likely."""
    if target in ids:
        listed = logprobs[ids.index(target)]
        if logprob != listed:
            raise Flaw("selected_logprob", logprob, f"the token's entry in top_logprobs says {listed!r}")
    elif logprob is not None and len(ids) == promised and logprob > logprobs[-1]:
        raise Flaw(
            "selected_logprob",
            logprob,
            f"above the last entry, {logprobs[-1]!r}, and the token is not listed",
        )


def _check_keys(data: dict[str, Any], keys: Set[str], optional: Set[str] = frozenset()) -> None:
    for key in sorted(keys - data.keys()):
        raise Flaw(key, None, "is missing")
    for key in data:
        if key not in keys and key not in optional:
            raise Flaw(_name(key), data[key], "no such field in this schema")


def _text(value: Any, where: str) -> str:
    if type(value) is not str:
        raise Flaw(where, value, "must be a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Flaw(where, value, "holds half a surrogate pair") from None
    return value


def _hash(value: Any, where: str) -> str:
    if type(value) is not str or not HASH.fullmatch(value):
        raise Flaw(where, value, "must be 64 hexadecimal digits in lower case")
    return value


def _ids(value: Any, where: str) -> tuple[int, ...]:
    if type(value) is not list or not value:
        raise Flaw(where, value, "must be a list of one token id or more")
    return tuple(_integer(token, f"{where}[{place}]", 0) for place, token in enumerate(value))


def _integer(value: Any, where: str, least: int, most: int = LARGEST) -> int:
    if type(value) is not int:  # True is an int by inheritance, and 3.0 is none
        raise Flaw(where, value, "must be an integer")
    if not least <= value <= most:
        raise Flaw(where, value, f"must be {least} or more" if value < least else f"must be at most {most}")
    return value


def _logprob(value: Any, where: str) -> float:
    """A log probability; zero is positive zero, whatever its sign in the file."""
    number = _number(value, where)
    if number > 0:
        raise Flaw(where, value, "a log probability is at most 0")
    return number


def _number(value: Any, where: str) -> float:
    if type(value) not in (int, float):
        raise Flaw(where, value, "must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Flaw(where, value, "must be finite: write null for what is missing")
    return number + 0.0
