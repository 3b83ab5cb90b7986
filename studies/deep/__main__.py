"""``python -m studies.deep``: run the study, or its remaining runs, and write its page.

    DIR/runs/*.json            one file per run
    DOCS/deep.md, DOCS/img/    the page and its pictures

Exit codes: 0 done, 1 if a run failed or Ctrl-C stopped it, 2 bad input, with one line on standard error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperCommand

from safereplay._progress import Bar
from safereplay.cli.common import Stoppable, complain, run_app

if TYPE_CHECKING:
    from .records import Job

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


class _Study(Stoppable, TyperCommand):
    pass


@app.command(cls=_Study, context_settings={"help_option_names": ["-h", "--help"]})
def study(
    smoke: Annotated[bool, typer.Option("--smoke", help="Two worlds, two seeds, a few hundred steps.")] = False,
    out: Annotated[Path, typer.Option(help="The folder of the runs.")] = Path("deep-study"),
    docs: Annotated[
        Path | None,
        typer.Option(help="The folder of deep.md and its pictures; default: that of the runs.", show_default=False),
    ] = None,
    worlds: Annotated[str | None, typer.Option(help="Some worlds, separated by commas.", show_default=False)] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds; default 20.", show_default=False)] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = os.cpu_count() or 1,
    budget: Annotated[
        float | None, typer.Option(help="Start no new run after this many seconds.", show_default=False)
    ] = None,
    report_only: Annotated[
        bool, typer.Option("--report-only", help="Only write the page from the finished runs.")
    ] = False,
) -> int:
    """Deep RL with shaped replay: plain and shaped replay, and rivals, on ten worlds. Finished runs are not repeated."""
    from safereplay.errors import stopping

    from . import report
    from . import study as it
    from .records import collect

    preset = it.SMOKE if smoke else it.FULL
    preset = preset._replace(
        worlds=preset.worlds if worlds is None else tuple(name.strip() for name in worlds.split(",") if name.strip()),
        seeds=preset.seeds if seeds is None else seeds,
    ).checked()
    planned = it.plan(preset)
    failed: list[str] = []

    def do(these: Sequence[Job], budget: float | None) -> None:
        with Bar("runs", len(these)) as bar:
            outcome = it.run_jobs(these, out, jobs, budget, lambda done, line: bar.update(done, line))
        for line in outcome.failed:
            complain(f"failed: {line}", 1)
        failed.extend(outcome.failed)
        left = f", {outcome.left} left for later" if outcome.left else ""
        typer.echo(f"{outcome.done} runs done, {outcome.kept} done before, {len(outcome.failed)} failed{left}")

    began = time.monotonic()
    if not report_only:
        do(planned, budget)
    if further := it.further(preset, planned, collect(planned, out).chapters):
        planned += further
        if not report_only:
            do(further, None if budget is None else max(0.0, budget - (time.monotonic() - began)))
    with stopping(lambda: "the runs are finished, but not the page"):
        page = report.write_page(planned, out, docs or out)
    typer.echo(page if page is not None else "no page: no world has runs of the plain learner and a random policy yet")
    return 1 if failed else 0


def run(arguments: list[str]) -> int:
    """Run the command and return its exit code."""
    return run_app(app, arguments, "python -m studies.deep")


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
