"""Make docs/compare.md: ``python docs/comparison.py FOLDER``, of a folder that ``compare --preset paper`` wrote, or goes on with."""

import sys
from pathlib import Path

from safereplay import _files
from safereplay.arena.figures import overview_figure
from safereplay.arena.report import HEADER, TITLE, compare, designed_row, method, opening, planned, refusals, row
from safereplay.arena.results import Comparison, ours
from safereplay.views.document import Block, Heading, Table, Text, to_markdown
from safereplay.views.drawing import save

COMMAND = "safereplay compare --preset paper"


def write_docs(found: Comparison, docs: Path) -> Path:
    """Write ``compare.md`` and img/compare-overview.svg|png to a folder, without the sections of single worlds."""
    folder = _files.make_folder(docs)
    save(overview_figure(found), _files.make_folder(folder / "img"), "compare-overview")
    blocks = [*opening(found), *_standings(found), *refusals(found), *method(found)]
    blocks.append(Text(f"Made by `{COMMAND}`, which also writes a picture and a table per world."))
    text = to_markdown(TITLE, blocks).replace("(figures/overview", "(img/compare-overview")
    return _files.write_atomic(folder / "compare.md", text)


def _standings(found: Comparison) -> list[Block]:
    """The three largest areas of each world, and the paper's replay."""
    rows = []
    for chapter in found.chapters:
        own = ours(chapter)
        chosen = [*chapter.standings[:3], *([own] if own is not None and own not in chapter.standings[:3] else [])]
        cells = [*(row(standing, found) for standing in chosen), *designed_row(chapter)]
        rows += [[chapter.title if k == 0 else "", *some] for k, some in enumerate(cells)]
    return [
        Heading("The three largest areas of each world, and the paper's replay"),
        Table(["world", *HEADER], rows, folded=True),
    ]


if __name__ == "__main__":
    found, _ = compare(planned(base="paper"), sys.argv[1])
    write_docs(found, Path(__file__).parent)
