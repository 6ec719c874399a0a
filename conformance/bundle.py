"""Many cases in one call: cases of one stage and shape, laid side by side, asked at once and taken apart.

A stage treats rows and positions independently of each other, so a bundle must return each case's own bits.
Starting a kernel costs more than a small case; and what one case's position does to another's would show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .cases import FIELDS, Answer, Case

ROWS: dict[str, tuple[str, ...]] = {
    "quantize": ("weight",),
    "screen": ("scale", "codes", "residual_codes", "norm_codes"),
    "rescore": ("weight",),
    "head": ("weight",),
}
"""Fields of `in` with one string for each row, by stage."""
POSITIONS: dict[str, tuple[str, ...]] = {
    "limbs": ("hidden",),
    "screen": ("unit_exp", "limb_hi", "limb_lo", "group_shift", "group_codes", "tail_codes"),
    "select": ("lo", "hi"),
    "rescore": ("hidden",),
    "decide": ("accumulators", "lo", "hi"),
    "head": ("hidden",),
}
"""Fields of `in` with one string for each position, by stage."""
PAIRS = ("screen", "rescore")  # stages whose answers have one string a position, with a value for each row
BUNDLED = ("quantize", "limbs", "screen", "select", "rescore", "decide")


def lists(case: Case, fields: dict[str, tuple[str, ...]]) -> list[str]:
    """The fields of those that the case has."""
    return [name for name in fields.get(case.stage, ()) if name in case.given]


def length(case: Case, fields: dict[str, tuple[str, ...]]) -> int:
    """How many rows or positions the case has; 0 for a stage without."""
    names = lists(case, fields)
    return len(case.given[names[0]]) if names else 0


def shape(case: Case) -> tuple[object, ...]:
    """What cases of one bundle have in common: the stage, everything but lists, and the strings' lengths."""
    laid = [*lists(case, ROWS), *lists(case, POSITIONS)]
    fixed = sorted((name, repr(value)) for name, value in case.given.items() if name not in laid)
    return (case.stage, *fixed, *((name, len(case.given[name][0])) for name in laid))


def merge(cases: Sequence[Case]) -> Case:
    """The bundle. Raises ValueError for cases of several shapes."""
    first = cases[0]
    if first.stage not in BUNDLED or len({shape(case) for case in cases}) != 1:
        raise ValueError("these cases do not make a bundle")
    given = dict(first.given)
    for name in [*lists(first, ROWS), *lists(first, POSITIONS)]:
        given[name] = [text for case in cases for text in case.given[name]]
    return Case(f"{first.id}+{len(cases) - 1}", first.stage, first.family, given, {})


def split(answer: Answer, cases: Sequence[Case]) -> Iterator[Answer]:
    """The answer of each case of the bundle."""
    row = position = 0
    for case in cases:
        rows, positions = length(case, ROWS), length(case, POSITIONS)
        taken: Answer = {}
        for stage, fields in answer.items():
            taken[stage] = {}
            for name, values in fields.items():
                if case.stage == "quantize":
                    taken[stage][name] = values[row : row + rows]
                    continue
                mine = values[position : position + positions]
                if case.stage in PAIRS:
                    digits = FIELDS[name][0]
                    mine = [v and v[row * digits : (row + rows) * digits] for v in mine]
                taken[stage][name] = mine
        yield taken
        row, position = row + rows, position + positions
