"""A bundle returns each case's own bits, for the reference and for a kernel."""

from __future__ import annotations

import pytest
from certhead.conformance.bundle import BUNDLED, merge, split
from certhead.conformance.case_families import complete
from certhead.conformance.cases import Case
from certhead.conformance.drivers.base import CaseByCase
from certhead.conformance.drivers.registry import in_process
from certhead.conformance.fuzz import answers
from certhead.conformance.fuzz_batches import BATCHES, batches


def batch_of(stage: str, seed: int) -> list[Case]:
    return next(b for b in batches(seed) if b[0].stage == stage)


@pytest.mark.parametrize("stage", BUNDLED)
@pytest.mark.parametrize("name", ["pyref", "torch"])
def test_a_bundle_is_its_cases(stage: str, name: str) -> None:
    driver = in_process(name)
    for seed in (1, 2, 3):
        cases = batch_of(stage, seed)
        assert len(cases) > 1
        alone = [driver.answer(case) for case in cases]
        assert list(split(driver.answer(merge(cases)), cases)) == alone
        assert answers(driver, cases) == alone


def test_cases_of_other_shapes_are_no_bundle() -> None:
    one, other = batch_of("limbs", 1), batch_of("screen", 1)
    with pytest.raises(ValueError, match="do not make a bundle"):
        merge([one[0], other[0]])
    wider = Case("x", "limbs", "", one[0].given | {"hidden": ["3f80" * 99]}, {})
    with pytest.raises(ValueError, match="do not make a bundle"):
        merge([one[0], wider])


def test_a_bundle_that_fails_is_asked_case_by_case() -> None:
    class Fussy(CaseByCase):
        name = "fussy"

        def answer(self, case: Case) -> dict[str, dict[str, list[str | None]]]:
            if len(case.given["hidden"]) > 1:
                raise MemoryError
            return in_process("pyref").answer(case)

    cases = batch_of("limbs", 1)
    wanted = [complete(case).want for case in cases]
    assert answers(Fussy(), cases) == wanted


def test_every_round_has_every_stage_and_a_seed_gives_the_same_bits() -> None:
    found = [case for batch in batches(5) for case in batch]
    assert {case.stage for case in found} == {draw.__name__ for draw, _ in BATCHES}
    assert found == [case for batch in batches(5) for case in batch]
    assert found != [case for batch in batches(6) for case in batch]
    assert len({case.id for case in found}) == len(found)
