"""Tables for the terminal. If one is too wide, each cell is written on its own line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table

ANY_WIDTH = 10_000  # characters: wider than any table


class FittingTable(Table):
    """A table whose cells are never cut off. If it is too wide, it becomes one line per cell, with the column's name.

    >>> table = FittingTable("path", "P(unsafe)", box=None, pad_edge=False)
    >>> table.add_row("safe", "3.19%")
    >>> Console(width=40).print(table)
    path  P(unsafe)
    safe  3.19%
    """

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Any:
        """The table, or one line per cell."""
        needed = self.__rich_measure__(console, options.update(width=ANY_WIDTH)).minimum
        return super().__rich_console__(console, options) if needed <= options.max_width else self._lines()

    def _lines(self) -> Iterator[RenderableType]:
        if self.title is not None:
            yield self.title
        headers = [column.header for column in self.columns]
        for k, row in enumerate(zip(*(column.cells for column in self.columns), strict=True)):
            if k:
                yield ""
            lines = Table.grid("", "", padding=(0, 2, 0, 0))
            for column in lines.columns:
                column.overflow = "fold"
            for header, cell in zip(headers, row, strict=False):
                lines.add_row(header, cell)
            yield lines
