"""How far the loop is: bars on a terminal, plain lines everywhere else."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

LINE_EVERY_SECONDS = 10.0
NARROWEST_BAR = 6
WIDEST_BAR = 24
COUNT_WIDTH = len("1000 of 1000")
COLUMNS_BESIDE_THE_BAR = 72  # the longest stage, the counts, the clock, the gaps, and some of what is at work


class LoopDisplay:
    """One line per stage, and the seconds each one took."""

    def __init__(self, console: Console, *, num_stages: int) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}
        self._num_stages = num_stages
        self._bars = _bars(console) if console.is_terminal else None
        self._task: TaskID | None = None
        self._told_at = 0.0

    def __enter__(self) -> "LoopDisplay":
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_error: object) -> None:
        if self._bars is not None:
            self._bars.stop()

    @contextmanager
    def stage(self, title: str) -> Iterator[None]:
        """Show a stage while the block runs; its seconds are kept under its title, also when it fails."""
        started = self._told_at = time.monotonic()
        number = f"[{len(self.seconds) + 1}/{self._num_stages}]"
        if self._bars is not None:
            self._task = self._bars.add_task(f"{number} {title}", total=None, count="", detail="")
        else:
            self._print(f"{number} {title}")
        try:
            yield
        finally:
            seconds = self.seconds[title] = time.monotonic() - started
            if self._bars is None:
                self._print(f"      {seconds:.1f} s")
            elif self._task is not None:
                total = self._bars.tasks[self._task].total or 1
                self._bars.update(self._task, total=total, completed=total, detail="")
                self._bars.stop_task(self._task)
                self._task = None

    def tell(self, what: str, done: int, total: int | None) -> None:
        """`done` of `total` units are finished in the present stage; `what` says which one is at work."""
        if self._bars is not None:
            if self._task is not None:
                self._bars.update(self._task, completed=done, total=total, count=_count(done, total), detail=what)
            return
        if time.monotonic() - self._told_at >= LINE_EVERY_SECONDS:
            self._told_at = time.monotonic()
            self._print(f"      {_count(done, total)}: {what}")

    def _print(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False)
        self.console.file.flush()


def _count(done: int, total: int | None) -> str:
    return str(done) if total is None else f"{done} of {total}"


def _bars(console: Console) -> Progress:
    """Stage, bar, counts and clock always whole; what is at work takes the room that is left and is cut first."""
    return Progress(
        SpinnerColumn(finished_text="✓"),
        TextColumn("{task.description}", markup=False, table_column=Column()),
        BarColumn(bar_width=min(WIDEST_BAR, max(NARROWEST_BAR, console.width - COLUMNS_BESIDE_THE_BAR))),
        TextColumn("{task.fields[count]}", markup=False, table_column=Column(min_width=COUNT_WIDTH, no_wrap=True)),
        TimeElapsedColumn(table_column=Column(min_width=len("0:00:00"), no_wrap=True)),
        TextColumn(
            "{task.fields[detail]}",
            style="dim",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        console=console,
        expand=True,
    )
