"""The page of a sweep: what it is, its phase diagrams, its frontier, its curves, and its tables."""

from __future__ import annotations

from collections.abc import Sequence

from .axes import View
from .document import Block, Heading, Picture, Table, Text
from .pages import Page
from .phases import phase_figure
from .spreads import curves_figure, settings_figure
from .sweeps import CURVES, Results, Row, axis_text, cells, label, overview

ROWS = 200  # of a long table


def sweep_page(results: Results, views: Sequence[View], rows: Sequence[Row], refresh: int | None = None) -> Page:
    """A sweep as a page; one that is still growing is read anew every ``refresh`` seconds."""
    header, lines = cells(rows)
    still = "" if refresh is None else " The sweep is still running, and this page with it."
    blocks: list[Block] = [Text(overview(results) + "." + still)]
    if results.axes:
        blocks += [Table(["axis", "values"], [[label(n), axis_text(x)] for n, x in results.axes.items()])]
    figures = {}
    for k, view in enumerate(views):
        name = "phases" if len(views) == 1 else f"phases-{k + 1}"
        figures[name] = phase_figure(results, view)
        blocks += [Heading("Phases")] * (k == 0) + [Picture(name, view.caption)]
    if results.has("mean", "p_unsafe"):
        figures["frontier"] = settings_figure(results)
        blocks += [Heading("What safety costs"), Picture("frontier", FRONTIER.format(over=_over(results)))]
    if results.has(*CURVES):
        figures["curves"] = curves_figure(results)
        blocks += [Heading("Along the runs"), Picture("curves", ALONG)]
    blocks += [Heading("Tables"), Table(header, lines[:ROWS]), Text(NOTES.format(over=_over(results)))]
    if len(lines) > ROWS:
        blocks += [Text(f"{len(lines) - ROWS:,} more rows are left out here; --json has them all.")]
    return Page(f"Sweep {results.folder.resolve().name}", blocks, figures, refresh)


def _over(results: Results) -> str:
    """What intervals resample (see :attr:`Results.units`)."""
    several = len(set(results.table["seed"].to_pylist())) > 1
    return "seeds, with the settings as they are" if several else "settings: there is one seed only"


FRONTIER = (
    "Mean return against P(unsafe), one point a setting, with 95 % intervals over {over} (of many settings, only of the best); the line joins settings that no other "
    "of the same learner beats in both. Settings in which some run never ends are left out."
)
ALONG = "Of the greedy policy at each time: the median over runs, and the middle 95 % of them."
NOTES = (
    "Intervals are 95 % bootstrap intervals of the mean over {over}. A mean return leaves out runs "
    "that have none, because they may never end."
)
