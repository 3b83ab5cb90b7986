"""A bar on the terminal for what takes longer than two seconds; nothing at all anywhere else."""

import sys
import time
from types import TracebackType
from typing import Any, Self

DELAY = 2.0  # seconds before a bar appears


class Bar:
    """Progress of one task, with the time left. Silent when standard error is not a terminal."""

    def __init__(self, label: str, total: float, quiet: bool = False) -> None:
        self._label, self._total = label, total
        self._began = time.monotonic()
        self._quiet = quiet or not sys.stderr.isatty()
        self._shown: Any = None
        self._task: Any = None

    def update(self, done: float, label: str | None = None) -> None:
        """Say how much is done, out of the total."""
        self._label = label or self._label
        if self._quiet or (self._shown is None and time.monotonic() - self._began < DELAY):
            return
        if self._shown is None:
            self._show()
        self._shown.update(self._task, completed=done, description=self._label)

    def _show(self) -> None:
        from rich import progress
        from rich.console import Console

        self._shown = progress.Progress(
            progress.TextColumn("{task.description:<40}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._shown.add_task(self._label, total=self._total)
        self._shown.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown is not None:
            self._shown.stop()
