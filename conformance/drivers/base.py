"""What a driver is, and what every driver needs to answer a case about a whole head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

from certhead.conformance.cases import Answer, Case

Result: TypeAlias = Answer | Exception
"""An answer, `Unsupported`, or whatever else went wrong with this case."""


class Unsupported(Exception):
    """The driver does not offer this case: skipped and counted, not a failure."""


class Driver(Protocol):
    """One implementation of the stages."""

    name: str

    def ready(self) -> None:
        """Starts what the driver needs; what goes wrong is told with the first case."""

    def results(self, cases: Sequence[Case]) -> Iterator[Result]:
        """One result for each case, in order; never raises for a single case."""

    def close(self) -> None:
        """Ends whatever the driver started."""


class CaseByCase:
    """A driver that answers one case after the other: `answer` returns the bits or raises."""

    name: str

    def answer(self, case: Case) -> Answer:
        """The bits of one case."""
        raise NotImplementedError

    def tokens(self, case: Case) -> list[str | None]:
        """What a head returns, alone: faster than `answer` where the other stages are not on the way."""
        return self.answer(case)["token"]["token"]

    def ready(self) -> None:
        """Nothing to start."""

    def results(self, cases: Sequence[Case]) -> Iterator[Result]:
        """One result for each case, in order."""
        for case in cases:
            try:
                yield self.answer(case)
            except Exception as problem:
                yield problem

    def close(self) -> None:
        """Nothing was started."""
