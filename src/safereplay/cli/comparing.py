"""``compare``: every system on the same worlds with the same experience, and a page of who wins where."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .common import Json, app, plain_table, print_json

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

if TYPE_CHECKING:
    from ..arena.results import Comparison


@app.command()
def compare(
    preset: Annotated[
        str, typer.Option(help="quick: the paper's own comparison; paper: every system on every world.")
    ] = "quick",
    learner: Annotated[
        list[str] | None, typer.Option(help="A learner of the catalog, over its dial; repeatable.")
    ] = None,
    scheme: Annotated[
        list[str] | None, typer.Option(help="A scheme of the catalog, replayed in both mixings over v; repeatable.")
    ] = None,
    world: Annotated[
        list[str] | None, typer.Option(help="A world of the catalog, a map file or a Gymnasium id; repeatable.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, at least 20.")] = 20,
    steps: Annotated[
        int | None, typer.Option(help="Steps of the MDP that every run takes; default as many as the world needs.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of results and of the page.")] = Path("compare"),
    threads: Annotated[int | None, typer.Option(help="Workers; default one a core.")] = None,
    as_json: Json = False,
) -> None:
    """Compare systems: risk against return under the ceiling, areas, sample cost, useful bands. Stopped, it goes on."""
    _leave_cores_to_learning()
    from .. import _checks
    from ..arena.comparing import compare as run_comparison
    from ..arena.comparing import planned

    if threads is not None:
        _checks.whole("threads", threads, 1)
    plan = planned(learner, scheme, world, seeds, steps, preset)
    found, page = run_comparison(plan, out, threads=threads)
    if as_json:
        print_json({**found.to_dict(), "page": str(page)})
    else:
        _show(found, page)


def _leave_cores_to_learning() -> None:
    """Let linear algebra, which judges, take one thread: those that learn have all cores. It can be said only at first."""
    if "numpy" not in sys.modules:
        for name in ONE_THREAD:
            os.environ.setdefault(name, "1")


def _show(found: Comparison, page: Path) -> None:
    from rich.console import Console

    from ..arena.sentences import ours, overall, own_record, percent, points

    console = Console()
    for line in (overall(found), own_record(found)):
        if line:
            console.print(line, highlight=False)
    table = plain_table(["world", "best", "area", "the paper's own", "area", "behind"], left=2)
    for chapter in found.chapters:
        if not chapter.standings:
            continue
        first, own = chapter.standings[0], ours(chapter)
        mine = ("—", "", "") if own is None else (own.family.label, percent(own.area.mean, 1), points(own.behind))
        table.add_row(chapter.title, first.family.label, percent(first.area.mean, 1), *mine)
    console.print(table)
    console.print(f"\n{page}", highlight=False, soft_wrap=True)
