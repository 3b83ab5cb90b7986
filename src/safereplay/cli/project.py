"""The commands ``reproduce``, ``compile``, ``bench`` and ``play``, about the project itself, and ``show``, for results of sweeps."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .common import Json, Out, Stages, app, check_page_folder, complain, echo, parse_options, plain_table, show_result

if TYPE_CHECKING:
    from rich.console import Group

    from ..views.phases import View
    from ..views.sweeps import Reader, Results, Row

EVERY = 2.0  # seconds between readings
PATIENCE = 4.0  # the pause before a page is drawn again, in multiples of the drawing time
LINES = 60  # shown of a table on the terminal


@app.command()
def reproduce(
    out: Annotated[Path, typer.Option(help="The folder to write to.")] = Path("reproduction"),
    quick: Annotated[bool, typer.Option("--quick", help="A smaller version: about 12 seconds.")] = False,
) -> None:
    """Run every experiment, figure and claim of the paper: DIR/report.html, report.md, claims.json, figures/."""
    from rich.console import Console

    from .._processes import processes
    from ..paper.report import reproduce as run_everything

    gc.freeze()  # what is imported is never garbage: not to be searched again and again
    with Stages() as stages:
        verdicts = run_everything(out, quick, stages.tell, processes(1))
    table = plain_table(["", "claim", "grid", "observed"], left=4)
    for v in verdicts:
        table.add_row("[green]holds[/]" if v.holds else "[red]does not hold[/]", v.claim, v.grid, v.observed)
    Console().print(table)
    echo(f"\n{out / 'report.html'}")


@app.command("compile")
def compile_ahead() -> None:
    """Compile the paper's learners now, so that a first run answers at once: half a minute, once after installing."""
    from ..errors import BadInput
    from ..kernels.compile import is_kept
    from ..kernels.memory import weights
    from ..paper.experiments import CAST, GRIDS, MATCHED
    from ..runs import learn
    from ..theory.limits import exact
    from ..theory.risk import evaluate

    if not is_kept(weights):
        raise BadInput(
            "compiled code must be kept on disk, got no cache: set NUMBA_CACHE_DIR to a folder that can be written to"
        )
    mdp = GRIDS["cliff"]()
    with Stages() as stages:
        for k, learner in enumerate(CAST.values()):
            stages.tell(f"compiling {learner.describe()}", k / len(CAST))
            runs = learn(mdp, learner, episodes=1, seeds=1, quiet=True)
            evaluate(mdp, runs.policy[0], start=mdp.origin, quiet=True).cvar(0.1)
    exact(mdp, MATCHED)


@app.command()
def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions and sizes: about a minute.")] = False,
    only: Annotated[
        str | None,
        typer.Option(
            help="Parts, separated by commas: plain, c, mushroom, tree, threads, engines, pairs, solving, sb3, jax.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write performance.md and its picture to this folder.", show_default=False)
    ] = None,
    mushroom: Annotated[
        str | None, typer.Option(help="A Python with MushroomRL: see benchmarks/mushroom.py.", show_default=False)
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
            Console().print(sheet.shown(), sheet.reading, "", sep="\n")
    for line in report_of.left_out(report):
        complain(line, 0)
    if out is not None:
        echo(page.write_page(report, out), err=as_json)


def _benchmarks(name: str) -> Any:
    """A module of ``benchmarks/speed``, which is in a checkout only, not in the installed package."""
    from importlib import import_module

    from .. import _checks

    package, root = Path(__file__).parents[1], Path(__file__).parents[3]
    there = (root / "benchmarks" / "speed").is_dir()
    _checks.require(there, "safereplay bench", "be run from a checkout of the repository", str(package))
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
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the page with recorded answers to this folder, as a site that needs no server, and end.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Open the playground in a browser: draw a world, change v and β, and see the policy change."""
    from ..web.serving import serve

    if export is None:
        serve(host, port, open_browser=not no_browser)
        return
    from ..web.export import export as write_site

    echo(write_site(export))


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of a sweep.", show_default=False)],
    x: Annotated[str | None, typer.Option(help="The horizontal axis of the phase diagram, such as v.")] = None,
    y: Annotated[str | None, typer.Option(help="The vertical axis, such as beta.")] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="AXIS", help="One row of the table and one panel of the diagram per value; repeatable."),
    ] = None,
    metric: Annotated[
        str | None, typer.Option(help="What the diagram shows: verdict (default), p_unsafe, mean, std or cvar10.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Only runs with this setting; repeatable.")
    ] = None,
    out: Out = None,
    live: Annotated[bool, typer.Option("--live", help="Update until the sweep is complete, or Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """Show tables and pictures of a sweep: verdicts and risks with intervals, phase diagrams, the frontier, curves."""
    from .. import _checks
    from ..views.phases import METRICS, choose_views
    from ..views.sweeps import Reader, matching, summarise, to_dict

    _checks.choice("metric", metric or "verdict", METRICS)
    _checks.require(not (live and as_json), "--json", "go without --live", "both")
    reader = Reader(folder, curves=out is not None)
    axes, settings = by or [], parse_options(where or [], "--where")

    def look(results: Results) -> Shown:
        """The selected runs, with their table and the views of their phase diagrams."""
        for name in axes:
            _checks.choice("axis for --by", name, results.settings)
        results = matching(results, settings) if settings else results
        return Shown(results, choose_views(results, x, y, axes, metric), summarise(results, axes))

    if live:
        watch(reader, look, out)
        return
    shown = look(reader.read())
    check_page_folder(out)
    page = None if out is None else shown.write(out)
    show_result(as_json, lambda: to_dict(shown.results, shown.rows), lambda: _print(shown), page)


@dataclass(frozen=True)
class Shown:
    """The selected runs, and what is shown of them."""

    results: Results
    views: list[View]
    rows: list[Row]

    def write(self, out: Path, refresh: int | None = None) -> Path:
        """Write the page and return its path."""
        from ..views.pages import write_page
        from ..views.phases import sweep_page

        return write_page(sweep_page(self.results, self.views, self.rows, refresh), out)

    def tables(self) -> Group:
        """The sweep in one line, its axes, and the results of its runs."""
        from rich.console import Group, RenderableType
        from rich.text import Text

        from ..views.sweeps import RISK_TITLES, axis_text, cells, label, overview

        parts: list[RenderableType] = [Text(str(self.results.folder), "bold"), Text(overview(self.results)), ""]
        axes = plain_table(["axis", "values"], left=2)
        for name, values in self.results.axes.items():
            axes.add_row(Text(label(name)), Text(axis_text(values)))
        header, lines = cells(self.rows)
        table = plain_table(header, left=header.index("runs"))
        table.padding = (0, 1, 0, 0)
        for column in table.columns:
            column.no_wrap = column.header not in RISK_TITLES.values()
            column.overflow = "fold"
        for line in lines[:LINES]:
            table.add_row(*map(Text, line))
        parts += [axes, "", table] if self.results.axes else [table]
        if len(lines) > LINES:
            parts.append(f"… {len(lines) - LINES:,} more rows: --json has them all")
        return Group(*parts)


def _print(shown: Shown) -> None:
    from rich.console import Console

    Console().print(shown.tables(), highlight=False)


def watch(reader: Reader, look: Callable[[Results], Shown], out: Path | None) -> None:
    """Read, show and draw repeatedly until the sweep is complete or Ctrl-C; then once more."""
    from ..errors import Stopped

    check_page_folder(out)
    shown: Shown | None = None
    try:
        with _screen() as say:
            for shown in _news(reader, look, out, say):
                say(shown)
        stopped = False
    except KeyboardInterrupt:
        stopped = True
    if shown is not None:
        page = None if out is None else shown.write(out)
        _print(shown)
        if page is not None:
            echo(f"\n{page}")
    if stopped and shown is None:
        raise Stopped("there were no runs to show")
    if stopped:
        raise Stopped("the runs read so far are shown; the sweep is not stopped")


def _news(
    reader: Reader, look: Callable[[Results], Shown], out: Path | None, say: Callable[[str | Shown], None]
) -> Iterator[Shown]:
    """Yield what is shown whenever there are new runs; draw the page at most as often as :data:`PATIENCE` allows."""
    from ..errors import BadInput

    count, rest, results = 0, 0.0, None
    while results is None or not results.complete:
        results = reader.peek()
        if results is None:
            say(f"waiting for the first runs of {reader.folder}")
        elif len(results) != count:
            count = len(results)
            try:
                shown = look(results)
            except BadInput as error:
                if results.complete:
                    raise
                say(f"not yet: {error}")
            else:
                yield shown
                if out is not None and not results.complete and monotonic() >= rest:
                    began = monotonic()
                    shown.write(out, refresh=round(EVERY) + 3)
                    rest = monotonic() + PATIENCE * (monotonic() - began)
        if results is None or not results.complete:
            sleep(EVERY)


@contextmanager
def _screen() -> Iterator[Callable[[str | Shown], None]]:
    """A function that shows updates: tables in place on a terminal; elsewhere one line on standard error each."""
    from rich.console import Console
    from rich.live import Live

    from ..views.sweeps import overview

    said = ""

    def line(news: str | Shown) -> None:
        nonlocal said
        text = news if isinstance(news, str) else overview(news.results)
        if text != said:
            complain(text, 0)
        said = text

    if not sys.stdout.isatty():
        yield line
        return
    with Live(console=Console(), transient=True, auto_refresh=False) as live:
        yield lambda news: live.update(news if isinstance(news, str) else news.tables(), refresh=True)
