"""The commands about the project itself: ``reproduce``, ``bench`` and ``play``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .common import Json, Stages, app, complain, echo, plain_table


@app.command()
def reproduce(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("reproduction"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A smaller version: about a minute."),
    ] = False,
) -> None:
    """Run every experiment, figure and claim of the paper: DIR/report.html, report.md, claims.json, figures/."""
    from ..paper.report import reproduce as run_everything

    with Stages() as stages:
        verdicts = run_everything(out, quick, stages.tell)
    _show_claims(verdicts)
    echo(f"\n{out / 'report.html'}")


def _show_claims(verdicts: Any) -> None:
    from rich.console import Console

    table = plain_table(["", "claim", "grid", "observed"], left=4)
    for v in verdicts:
        table.add_row("[green]holds[/]" if v.holds else "[red]does not hold[/]", v.claim, v.grid, v.observed)
    Console().print(table)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions and sizes: about a minute.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            help="Parts, separated by commas: plain, mushroom, tree, threads, engines, pairs, solving, sb3.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Also write performance.md and its picture to this folder.", show_default=False),
    ] = None,
    mushroom: Annotated[
        str | None,
        typer.Option(help="A Python with MushroomRL: see benchmarks/mushroom.py.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure speed: against plain Python and other libraries, and over threads, engines and sizes of models."""
    from rich.console import Console

    page, report_of = _benchmarks("page"), _benchmarks("report")
    if out is not None:
        page.page_folder(out)
    parts = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
    with Stages() as stages:
        report = report_of.run_bench(quick, lambda done, label: stages.tell(label, done), parts, mushroom)
    if as_json:
        echo(report.to_json())
    else:
        for sheet in report.sheets():
            Console().print(sheet.shown(), "")
    for line in report_of.left_out(report):
        complain(line, 0)
    if out is not None:
        echo(page.write_page(report, out), err=as_json)


def _benchmarks(name: str) -> Any:
    """A module of ``benchmarks/speed``, which is in a checkout only, not in the installed package."""
    from importlib import import_module

    from .. import _checks

    root = Path(__file__).parents[3]
    there = (root / "benchmarks" / "speed").is_dir()
    _checks.require(
        there, "safereplay bench", "be run from a checkout of the repository", str(Path(__file__).parents[1])
    )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    return import_module(f"benchmarks.speed.{name}")


@app.command()
def play(
    host: Annotated[
        str, typer.Option(help="The address to listen on; any other than the default opens the page to the network.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(help="The port; default: 8421 or the next free one; 0: any.", show_default=False)
    ] = None,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
) -> None:
    """Open the playground in a browser: draw a world, change v and β, and see the policy change."""
    from ..web.serving import serve

    serve(host, port, open_browser=not no_browser)
