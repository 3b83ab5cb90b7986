"""``sweep``: every run of a spec, into a folder that survives being stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .common import Json, app, complain, print_json


@app.command()
def sweep(
    spec: Annotated[Path, typer.Argument(help="A TOML file: models, learners, ranges, seeds.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="The folder of the dataset; default sweeps/NAME for NAME.toml.")
    ] = None,
    engine: Annotated[str, typer.Option(help="threads, ray or cuda.")] = "threads",
    address: Annotated[str | None, typer.Option(help="Of a Ray cluster; default one on this machine.")] = None,
    threads: Annotated[int | None, typer.Option(help="Workers; default one a core.")] = None,
    extend: Annotated[
        bool, typer.Option("--extend", help="Add the runs of a spec that changed to the folder's dataset.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Do every run of a spec that its folder lacks. Stopped at any moment, the same command goes on."""
    from ..engines.sweeps import sweep as run_sweep

    found = run_sweep(spec, out, engine, threads=threads, address=address, extend=extend)
    if as_json:
        print_json(found.to_dict())
    else:
        there = f", {found.already:,} were there already" if found.already else ""
        typer.echo(f"{found.done:,} runs done{there}: {found.folder}")
    if found.interrupted:
        left = found.runs - found.done - found.already
        complain(f"stopped: {left:,} of {found.runs:,} runs are left; the same command goes on", 1)
        raise typer.Exit(1)
