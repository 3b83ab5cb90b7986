"""A small document that can be written as one HTML file or as Markdown, and tables for the terminal.

A document is a list of blocks. Its HTML is self-contained: styles and pictures are embedded.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, TypeAlias

from rich import table
from rich.console import Console, ConsoleOptions, RenderableType


@dataclass(frozen=True)
class Heading:
    """A section's title."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Picture:
    """A figure in ``figures/`` (both .svg and .png exist), with a caption; ``beside`` it more, or below on a narrow screen."""

    name: str
    caption: str
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows under a header. Cells 'yes', 'no' and 'open' of the column ``badge`` become badges; ``folded``: shown on click."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    badge: int | None = None
    folded: bool = False


Block: TypeAlias = Heading | Text | Picture | Table

CSS = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5b6472; --line: #dfe3ea; --paper: #ffffff; --card: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebf0; --soft: #a2abb9; --line: #333b48; --paper: #14181f; } }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 5rem; background: var(--paper); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .5rem; } h2 { margin: 2.8rem 0 .6rem; font-size: 1.3rem; }
p { max-width: 46rem; } nav { font-size: .92rem; color: var(--soft); } a { color: #1f6fb4; }
figure { margin: 1.4rem 0; } figure img { max-width: 100%; height: auto; background: var(--card); border-radius: .5rem;
  border: 1px solid var(--line); padding: .6rem; box-sizing: border-box; }
figcaption { color: var(--soft); font-size: .9rem; max-width: 46rem; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .88rem; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .45rem .7rem; border-bottom: 1px solid var(--line); }
.badged td:nth-child(2) { min-width: 11rem; } .badged td:last-child { min-width: 16rem; } th { color: var(--soft); font-weight: 600; } .badge { display: inline-block; padding: .05rem .55rem; border-radius: 1rem;
  font-weight: 600; white-space: nowrap; color: #fff; } .yes { background: #1c7c48; } .no { background: #b3261e; }
.open { background: #5b6472; }
@media (max-width: 40rem) { figure { overflow-x: auto; } figure img { max-width: none; } /* scrolled, not shrunk */
  figure.several img { max-width: 100%; } }
"""
BADGES = {"yes": "✓ holds", "no": "✗ does not hold", "open": "– undecided"}
FOLDED = "The table ({} rows)"  # the line shown for a folded table


def to_html(title: str, blocks: Sequence[Block], figures: Path, refresh: int | None = None) -> str:
    """One self-contained page; pictures are read from the folder ``figures``; browsers reload it every ``refresh`` seconds."""
    contents = [b.text for b in blocks if isinstance(b, Heading)]
    links = " · ".join(f'<a href="#{_anchor(text)}">{escape(text)}</a>' for text in contents)
    body = "\n".join(_html(block, figures) for block in blocks)
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><title>{escape(title)}</title>'
    head += "" if refresh is None else f'<meta http-equiv="refresh" content="{refresh}">'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{CSS}</style></head>\n'
        f"<body><h1>{escape(title)}</h1>\n<nav>{links}</nav>\n{body}\n</body></html>\n"
    )


def _anchor(text: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in text.lower()).split())


def _html(block: Block, figures: Path) -> str:
    match block:
        case Heading(text, level):
            return f'<h{level} id="{_anchor(text)}">{escape(text)}</h{level}>'
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Picture(name, caption, beside):
            data = [base64.b64encode((figures / f"{one}.svg").read_bytes()).decode() for one in (name, *beside)]
            images = (f'<img src="data:image/svg+xml;base64,{one}" alt="{escape(caption)}">' for one in data)
            kind = ' class="several"' if beside else ""
            return f"<figure{kind}>{' '.join(images)}<figcaption>{escape(caption)}</figcaption></figure>"
        case Table(header, rows, badge, folded):
            top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in header)
            lines = "".join(f"<tr>{''.join(_cell(c, k == badge) for k, c in enumerate(row))}</tr>" for row in rows)
            kind = "" if badge is None else ' class="badged"'
            table = f'<div class="wide"><table{kind}><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'
            return f"<details><summary>{FOLDED.format(len(rows))}</summary>{table}</details>" if folded else table


def _cell(text: str, is_badge: bool) -> str:
    if is_badge:
        return f'<td><span class="badge {escape(text)}">{BADGES.get(text, escape(text))}</span></td>'
    return f"<td>{escape(text)}</td>"


def to_markdown(title: str, blocks: Sequence[Block]) -> str:
    """The same as Markdown, with pictures linked from ``figures/``."""
    return f"# {title}\n\n" + "\n\n".join(_markdown(block) for block in blocks) + "\n"


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Picture(name, caption, beside):
            return " ".join(f"![{caption}](figures/{one}.png)" for one in (name, *beside)) + f"\n\n*{caption}*"
        case Table(header, rows, badge, folded):
            lines = [[BADGES.get(c, c) if k == badge else c for k, c in enumerate(row)] for row in rows]
            cells = [list(header), ["---"] * len(header), *lines]
            table = "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in cells)
            return fold(FOLDED.format(len(rows)), table) if folded else table


def fold(summary: str, text: str) -> str:
    """Folded Markdown, which also works on the site (its md_in_html)."""
    return f'<details markdown="1"><summary>{summary}</summary>\n\n{text}\n\n</details>'


ANY_WIDTH = 10_000  # characters: wider than any table


class FittingTable(table.Table):
    """A table whose cells are never cut off. If it is too wide, it becomes one line per cell, with the column's name.

    >>> risks = FittingTable("path", "P(unsafe)", box=None, pad_edge=False)
    >>> risks.add_row("safe", "3.19%")
    >>> Console(width=40).print(risks)
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
            lines = table.Table.grid("", "", padding=(0, 2, 0, 0))
            for column in lines.columns:
                column.overflow = "fold"
            for header, cell in zip(headers, row, strict=False):
                lines.add_row(header, cell)
            yield lines
