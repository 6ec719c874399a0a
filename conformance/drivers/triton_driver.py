"""Drivers `interpret` and `cuda`: the Triton sources, each kernel with the inputs that the case gives.

Under the interpreter (`TRITON_INTERPRET=1`, set before this module is imported) `tl.dot` adds in another
order than a tensor core does; so accumulators and what follows from them are compared only where every
order gives the same sum. Buffers are poisoned, so that an element that no program wrote differs.
"""

from __future__ import annotations

import torch
from certhead.conformance.cases import Answer, Case, Fields, unpack
from certhead.conformance.kernel_stages import poison
from certhead.kernels.decision import Reason
from certhead.kernels.quantize import QuantizedHead, quantize
from certhead.kernels.rounding import floor_log2
from certhead.kernels.triton_enclosed import EnclosedRescore
from certhead.kernels.triton_head import INTERPRETED, Tile, TritonPipeline
from certhead.pyref import head as spec
from certhead.pyref.models import MODELS

from .base import CaseByCase, Unsupported
from .exact_sums import sums_are_exact
from .ranks import answer_ranks
from .tensors import bf16, copy_fields, copy_of, fp32, hex_of, reason_names

TILE = Tile(64, 16, 32, 4, 3)  # small, so that small heads have several
PROGRAMS = 3  # of the re-score: each takes several items, and the last one unpacks
CHUNK = 32  # blocks a program of `select`


class TritonDriver(CaseByCase):
    """Answers limbs, screen, select, rescore (sums) and heads; exact mode has no capacity."""

    def __init__(self) -> None:
        self.device = torch.device("cpu" if INTERPRETED else "cuda")
        self.name = "interpret" if INTERPRETED else "cuda"

    def answer(self, case: Case) -> Answer:
        """The bits of one case."""
        if "ranks" in case.given:
            return answer_ranks(self._head, case)
        if case.stage == "head":
            return self._head(case)
        if case.stage not in ("limbs", "screen", "select", "rescore"):
            raise Unsupported
        stage = getattr(self, f"_{case.stage}")
        return {case.stage: stage(case)}

    def _pipeline(
        self, weight: torch.Tensor, copy: QuantizedHead, gamma_num: int, positions: int
    ) -> TritonPipeline:
        moved = QuantizedHead(
            copy.codes.to(self.device),
            copy.scale.to(self.device),
            copy.residual_codes.to(self.device),
            copy.norm_codes.to(self.device),
            copy.group,
        )
        room = TILE.positions * spec.ceil_div(positions, TILE.positions)
        pipeline = TritonPipeline(weight.to(self.device), moved, gamma_num, max_positions=room)
        poison(pipeline)
        pipeline.best.fill_(0x5A5A5A5A)
        pipeline.winner.fill_(0x5A5A5A5A5A5A5A5A)
        return pipeline

    def _blank(self, group: int, columns: int, positions: int, rows: int = 1) -> TritonPipeline:
        """A pipeline of that shape, for a kernel that does not read the head."""
        weight = torch.zeros((rows, columns), dtype=torch.bfloat16)
        return self._pipeline(weight, quantize(weight, group), 0, positions)

    def _limbs(self, case: Case) -> Fields:
        hidden = bf16(case.rows("hidden")).to(self.device)
        positions, columns = hidden.shape
        pipeline = self._blank(case.given["group"], columns, positions)
        pipeline.gamma_num, pipeline.code_norm = case.number("gamma_num"), case.number("code_norm")
        pipeline.limbs(hidden, case.given["limb_count"])
        return _limb_fields(pipeline, positions, case.given["limb_count"])

    def _screen(self, case: Case) -> Fields:
        copy, positions = copy_of(case), len(case.given["unit_exp"])
        rows, columns = copy.codes.shape
        pipeline = self._pipeline(torch.zeros((rows, columns), dtype=torch.bfloat16), copy, 0, positions)
        unit = torch.tensor(case.singles("unit_exp"), dtype=torch.float32)
        buffers = {
            "hi": torch.tensor(case.rows("limb_hi")),
            "lo": torch.tensor(case.rows("limb_lo")),
            "group_codes": torch.tensor(case.rows("group_codes")),
            "tail_codes": torch.tensor(case.singles("tail_codes")),
            "shift": torch.tensor(case.singles("group_shift")) - spec.residual_shift(copy.group),
            "unit": torch.exp2(unit),
        }
        for name, value in buffers.items():
            target = getattr(pipeline, name)[:positions]
            (target[:, : value.shape[1]] if value.dim() == 2 else target).copy_(value)
        pipeline.best.fill_(-(2**31) + 1)
        return self._ends(pipeline, positions, 2)

    def _ends(self, pipeline: TritonPipeline, positions: int, limb_count: int) -> Fields:
        ends = torch.full((2, positions, pipeline.rows), torch.nan, device=self.device)
        pipeline.screen(positions, TILE, limb_count, ends=ends)
        return {
            "lo": [hex_of("lo", row) for row in ends[0]],
            "hi": [hex_of("hi", row) for row in ends[1]],
        }

    def _select(self, case: Case) -> Fields:
        if case.given["block"] != 16:
            raise Unsupported
        lo, hi = fp32(case.rows("lo")), fp32(case.rows("hi"))
        positions, rows = lo.shape
        pipeline = self._blank(1, 1, positions, rows)
        padded = torch.nn.functional.pad(hi, (0, -rows % 16), value=-torch.inf)
        pipeline.tops.view(-1)[: positions * pipeline.n_blocks] = (
            padded.view(positions, -1, 16).amax(dim=2).flatten().to(self.device)
        )
        best = (lo.amax(dim=1) + 0.0).view(torch.int32)
        pipeline.best[:positions] = torch.where(best < 0, -(best & 0x7FFFFFFF), best).to(self.device)
        pipeline.reasons.zero_()
        pipeline.counts.zero_()
        pipeline.select(positions, chunk=CHUNK)
        blocks = _within(case, pipeline, _blocks(pipeline, positions))
        if not any(blocks):
            raise Unsupported
        return {"blocks": blocks}

    def _rescore(self, case: Case) -> Fields:
        weight, hidden = bf16(case.rows("weight")), bf16(case.rows("hidden")).to(self.device)
        positions, rows = len(hidden), len(weight)
        group = min(16, weight.shape[1])
        pipeline = self._pipeline(weight, quantize(weight, group), case.number("gamma_num"), positions)
        pipeline.reasons.zero_()
        pipeline.counts.fill_(pipeline.n_blocks)
        item = torch.arange(positions * pipeline.n_blocks, dtype=torch.int32, device=self.device)
        pipeline.work[: len(item)] = (item // pipeline.n_blocks << 24) + item % pipeline.n_blocks
        pipeline.work_size.fill_(len(item))
        ends = torch.full((2, positions, rows), torch.nan, device=self.device)
        EnclosedRescore(pipeline, pipeline.n_blocks).run(hidden, ends, programs=PROGRAMS)
        fields: Fields = {
            "lo": [hex_of("lo", row) for row in ends[0]],
            "hi": [hex_of("hi", row) for row in ends[1]],
        }
        if not INTERPRETED:  # the identification's launch has thousands of programs; heads cover the kernel
            sums = pipeline.accumulators(hidden)
            fields["accumulators"] = [hex_of("accumulators", row) for row in sums]
        return fields

    def _head(self, case: Case) -> Answer:
        given = case.given
        if given["block"] != 16:
            raise Unsupported
        weight, hidden = bf16(case.rows("weight")), bf16(case.rows("hidden")).to(self.device)
        positions, limb_count = len(hidden), given["limb_count"]
        gamma_num = MODELS[given["model"]].gamma_num(weight.shape[1])
        pipeline = self._pipeline(weight, quantize(weight, given["group"]), gamma_num, positions)
        fault = given.get("fault")
        if fault and "code" in fault:
            row, column, bit = fault["code"]
            pipeline.codes[row, column] ^= 1 << bit
        pipeline.limbs(hidden, limb_count)
        limbs = _limb_fields(pipeline, positions, limb_count)
        if fault and "limb" in fault:
            position, column, bit = fault["limb"]
            pipeline.lo[position, column] ^= 1 << bit
        screen = self._ends(pipeline, positions, limb_count)
        pipeline.select(positions, TILE, limb_count, chunk=CHUNK)
        blocks = _blocks(pipeline, positions)
        if given["mode"] == "enclosed":
            return {"limbs": limbs, "screen": screen, **self._enclosed(case, pipeline, hidden, blocks)}
        decide: Fields = {"reason": reason_names(pipeline.reasons[:positions])}
        exact_sums = not INTERPRETED or sums_are_exact(case)
        sums = torch.full((positions, pipeline.rows), torch.nan, device=self.device)
        pipeline.rescore(hidden, sums, programs=PROGRAMS, step=TILE.columns)
        tokens: list[str | None] = [
            hex_of("token", t) if exact_sums else None for t in pipeline.tokens[:positions]
        ]
        answer: Answer = {"limbs": limbs, "screen": screen, "decide": decide, "token": {"token": tokens}}
        if not fault:
            answer["quantize"] = copy_fields(pipeline.copy)
            answer["select"] = {"blocks": _within(case, pipeline, blocks)}
            if exact_sums:
                answer["rescore"] = {
                    "accumulators": _kept_rows("accumulators", sums, answer["select"]["blocks"])
                }
            decide["reason"] = _within(case, pipeline, decide["reason"])
        return answer

    def _enclosed(
        self, case: Case, pipeline: TritonPipeline, hidden: torch.Tensor, blocks: list[str | None]
    ) -> Answer:
        """The stages after `select`; what the stock head returns where it decides is not said."""
        positions = len(hidden)
        ends = torch.full((2, positions, pipeline.rows), torch.nan, device=self.device)
        enclosed = EnclosedRescore(pipeline, case.given["capacity"])
        enclosed.run(hidden, ends, programs=PROGRAMS)
        reasons = pipeline.reasons[:positions]
        decided = (reasons == Reason.NONE).tolist()
        tokens = [hex_of("token", t) for t in pipeline.tokens[:positions]]
        said = _within(case, pipeline, blocks)
        fell_back = sum(not d for d in decided)
        undecided = int(enclosed.undecided)
        return {
            "quantize": copy_fields(pipeline.copy),
            "select": {"blocks": said},
            "rescore": {
                name: _kept_rows(name, rows, said) for name, rows in zip(("lo", "hi"), ends, strict=True)
            },
            "decide": {
                "token": [t if d else "none" for t, d in zip(tokens, decided, strict=True)],
                "reason": reason_names(reasons)
                if undecided == fell_back
                else [f"{fell_back} without a token, {undecided} counted"] * positions,
            },
            "token": {"token": [t if d else None for t, d in zip(tokens, decided, strict=True)]},
        }


def _limb_fields(pipeline: TritonPipeline, positions: int, limb_count: int) -> Fields:
    used = slice(0, positions)
    unit_exp = floor_log2(pipeline.unit[used].double())
    hi = pipeline.hi[used] if limb_count == 2 else torch.zeros_like(pipeline.lo[used])
    columns = {
        "unit_exp": unit_exp,
        "limb_hi": hi,
        "limb_lo": pipeline.lo[used],
        "group_shift": pipeline.shift[used] + spec.residual_shift(pipeline.group),
        "group_codes": pipeline.group_codes[used, : pipeline.groups],
        "tail_codes": pipeline.tail_codes[used],
    }
    fields: Fields = {"reason": reason_names(pipeline.reasons[used])}
    for name, x in columns.items():
        fields[name] = [hex_of(name, row) for row in x]
    return fields


def _blocks(pipeline: TritonPipeline, positions: int) -> list[str | None]:
    work = pipeline.work[: int(pipeline.work_size)].long().cpu()
    chosen = [(work[(work >> 24) == m] & 0xFFFFFF).sort().values for m in range(positions)]
    counted = pipeline.counts[:positions].tolist()
    return [
        hex_of("blocks", blocks) if len(blocks) == n else f"{n} counted, {len(blocks)} listed"
        for blocks, n in zip(chosen, counted, strict=True)
    ]


def _within(case: Case, pipeline: TritonPipeline, values: list[str | None]) -> list[str | None]:
    """Nothing said where more blocks are kept than the case's capacity, which these kernels do not have."""
    counts = pipeline.counts[: len(values)].tolist()
    return [None if n > case.given["capacity"] else v for n, v in zip(counts, values, strict=True)]


def _kept_rows(name: str, values: torch.Tensor, blocks: list[str | None]) -> list[str | None]:
    out: list[str | None] = []
    for row, text in zip(values, blocks, strict=True):
        if text is None or not set(text) <= set("0123456789abcdef"):
            out.append(None)
            continue
        index = spec.rows_of(unpack("blocks", text), len(row))
        out.append(hex_of(name, row[index]))
    return out
