"""``reproduce`` and ``bench``: the two commands about the project itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from .common import Json, Stages, app, complain, plain_table


@app.command()
def reproduce(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("reproduction"),
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A smaller version: about a minute."),
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
    """Updates a second of each learner beside plain Python, how cost grows, and exact solving beside its peers."""
    from rich.console import Console

    from ..bench import run_bench, scaling_table, solving_table, table
    from ..peers import missing

    with Stages() as stages:
        report = run_bench(quick, lambda done, label: stages.tell(label, done))
    if as_json:
        typer.echo(report.to_json())
    else:
        Console().print(table(report.rows), "", scaling_table(report.scaling), "", solving_table(report.solving))
    if missing():
        complain(f"{' and '.join(missing())} not installed, so left out: pip install 'safereplay[peers]'", 0)
