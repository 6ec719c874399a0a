"""Progress bars of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bars:
    """One progress bar per stage, on `console`."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Callable[[int], None]]:
        """A bar for as long as the stage runs; the value is called with each step forward."""
        progress = Progress(
            TextColumn(f"{name:21}"),
            BarColumn(36),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self.console,
        )
        with progress:
            task = progress.add_task(name, total=total)
            yield lambda n: progress.advance(task, n)
