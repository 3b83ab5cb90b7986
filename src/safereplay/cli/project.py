"""``reproduce`` and ``bench``: the two commands about the project itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .common import Json, Stages, app, plain_table


@app.command()
def reproduce(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("reproduction"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A smaller version: half a minute, and 20 s more on the first run, to compile."),
    ] = False,
) -> None:
    """Every experiment, figure and claim of the paper: DIR/report.html, report.md, claims.json, figures/."""
    from ..paper.reproduce import reproduce as run_everything

    with Stages() as stages:
        verdicts = run_everything(out, quick, stages.tell)
    _show_claims(verdicts)
    typer.echo(f"\n{out / 'report.html'}")


def _show_claims(verdicts: Any) -> None:
    from rich.console import Console

    table = plain_table(["", "claim", "grid", "observed"], left=4)
    for v in verdicts:
        table.add_row("[green]holds[/]" if v.holds else "[red]does not hold[/]", v.claim, v.grid, v.observed)
    Console().print(table)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions and sizes.")] = False,
    as_json: Json = False,
) -> None:
    """Updates a second of each learner on one core, beside plain Python, and how cost grows with the pairs."""
    from rich.console import Console

    from ..bench import run_bench, scaling_table, table

    with Stages() as stages:
        report = run_bench(quick, lambda done, label: stages.tell(label, done))
    if as_json:
        typer.echo(report.to_json())
    else:
        Console().print(table(report.rows), "", scaling_table(report.scaling))
