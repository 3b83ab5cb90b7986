"""Pictures of the study: frontiers, the risk of the contestants, learning curves, and the point's paths.

Each family has its own colour and marker in every picture, so that no information is in colour alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle

from safereplay import point
from safereplay._checks import Floats
from safereplay.views.drawing import BLUE, GREEN, GREY, INK, ORANGE, RED, new_figure, styled

from .frontier import pareto, points
from .summary import CVAR, MEAN, OURS, PLAIN, Chapter, Group, Run

PURPLE = "#8e4a9e"
COLOURS = {PLAIN: ORANGE, OURS: BLUE, MEAN: GREY, CVAR: PURPLE}
MARKERS = {PLAIN: "*", OURS: "o", MEAN: "D", CVAR: "s"}
RING: Any = {"marker": "o", "ls": "", "ms": 13, "mfc": "none", "mec": INK, "mew": 1.1}
BELOW: Any = {"marker": "v", "ls": "", "ms": 6, "mfc": "none"}
ACROSS = 3  # panels per row
BINS = 24  # bins of a learning curve
COLLAPSED = (
    0.25,
    1.0,
)  #: settings that lose more of the gap are drawn at the edge; the second value, if a chosen setting lost the first


def _panels(count: int, height: float, rows: int = 1) -> tuple[Figure, Any]:
    """A figure of ``count`` panels of ``rows`` axes each, at most :data:`ACROSS` per row: axes [count, rows]."""
    across = min(count, ACROSS)
    down = -(-count // across)
    figure, axes = new_figure(3.0 * across + 0.2, down * height + 0.5, down * rows, across)
    blocks = axes.reshape(down, rows, across).transpose(0, 2, 1).reshape(-1, rows)
    for ax in blocks[count:].ravel():
        ax.set_visible(False)
    return figure, blocks[:count]


def _legend(figure: Figure, names: Sequence[str], line: str = "", others: Sequence[Line2D] = ()) -> None:
    handles = [
        Line2D([], [], color=COLOURS[name], marker=MARKERS[name], ls=line, ms=9 if name == PLAIN else 6, label=name)
        for name in names
    ]
    handles += others
    across = min(len(handles), int(figure.get_figwidth() / 1.45))
    figure.legend(handles=handles, loc="outside lower center", ncols=across, frameon=False, fontsize=9)


# -- risk against return -----------------------------------------------------------------------------------------------


@styled
def frontier_figure(chapters: Sequence[Chapter]) -> Figure:
    """Mean return against P(catastrophe): all settings; lines join Pareto-optimal ones, rings mark chosen ones."""
    figure, axes = _panels(len(chapters), 2.7)
    for (ax,), chapter in zip(axes, chapters, strict=True):
        bottom = _floor(chapter)
        for name in (CVAR, OURS):
            _draw_family(ax, chapter, name, bottom)
        for name in (MEAN, PLAIN):
            for group in chapter.family(name):
                _draw_setting(ax, group, bottom, 13 if name == PLAIN else 6.5)
        for choice in chapter.choices.values():
            x, y = 100 * choice.group.p.mean, max(choice.group.mean.mean, bottom)
            ax.plot(x, y, **RING, zorder=6)
        ax.set_title(chapter.title)
        ax.set(xlabel="P(catastrophe), %", ylabel="mean return")
        ax.margins(0.07)
        ax.set_xlim(left=min(ax.get_xlim()[0], -0.02 * ax.get_xlim()[1]))
    others = [Line2D([], [], **RING, label="chosen"), Line2D([], [], **BELOW, mec=GREY, label="below the axis")]
    _legend(figure, [name for name in COLOURS if any(chapter.family(name) for chapter in chapters)], others=others)
    return figure


def _floor(chapter: Chapter) -> float:
    """The return below which a setting is drawn at the edge, so that bad settings do not compress the scale."""
    shown = [group for name in COLOURS for group in chapter.family(name)]
    gap = chapter.plain.mean.mean - chapter.random.mean.mean
    least = min(group.mean.mean for group in shown)
    chosen = min([choice.group.mean.mean for choice in chapter.choices.values()], default=np.inf)
    limits = [chapter.plain.mean.mean - part * gap for part in COLLAPSED]
    limit = limits[0] if chosen > limits[0] else limits[1]
    fine = [g.mean.mean for g in shown if g.mean.mean > limit]
    collapsed = gap > 0 and fine and least < min(fine)
    return min(fine) - 0.05 * (max(fine) - min(fine)) if collapsed else -np.inf


def _draw_family(ax: Axes, chapter: Chapter, name: str, bottom: float) -> None:
    groups = chapter.dialled(name)
    if not chapter.family(name):
        return
    found = points(groups)
    best = found[pareto(found) & (found[:, 1] >= bottom)]
    best = best[np.argsort(best[:, 0])]
    ax.step(100 * best[:, 0], best[:, 1], where="post", color=COLOURS[name], lw=1.6, alpha=0.55, zorder=2)
    for group in chapter.family(name):
        _draw_setting(ax, group, bottom, 5.5)


def _draw_setting(ax: Axes, group: Group, bottom: float, size: float) -> None:
    colour, p, mean = COLOURS[group.family], group.p, group.mean
    if mean.mean < bottom:
        ax.plot(100 * p.mean, bottom, **BELOW, mec=colour, clip_on=False, zorder=4)
        return
    for xs, ys in (([p.low, p.high], [mean.mean] * 2), ([p.mean] * 2, [max(mean.low, bottom), mean.high])):
        ax.plot(100 * np.array(xs), ys, color=colour, lw=0.8, alpha=0.35, zorder=1)
    ax.plot(100 * p.mean, mean.mean, MARKERS[group.family], ms=size, color=colour, zorder=5, mec="white", mew=0.7)


# -- side by side ------------------------------------------------------------------------------------------------------


@styled
def risk_figure(chapters: Sequence[Chapter]) -> Figure:
    """P(catastrophe) of the contestants on each world, with intervals, and their losses in return."""
    figure, axes = _panels(len(chapters), 1.75)
    for k, ((ax,), chapter) in enumerate(zip(axes, chapters, strict=True)):
        rows = chapter.contestants[::-1]
        for y, group in enumerate(rows):
            p, colour = group.p, COLOURS[group.family]
            ax.plot(100 * np.array([p.low, p.high]), [y, y], color=colour, lw=2.2, alpha=0.4, solid_capstyle="butt")
            size = 12 if group.family == PLAIN else 7
            ax.plot(100 * p.mean, y, MARKERS[group.family], ms=size, color=colour, mec="white", mew=0.7)
            ax.annotate(
                _side_note(chapter, group),
                (1.0, y),
                (4, 0),
                ("axes fraction", "data"),
                "offset points",
                va="center",
                fontsize=8,
                color="#3d4450",
            )
        first = k % ACROSS == 0
        ax.set_yticks(range(len(rows)), [group.family for group in rows] if first else [""] * len(rows))
        ax.set(ylim=(-0.6, len(rows) - 0.4), xlabel="P(catastrophe), %")
        ax.set_xlim(left=0.0)
        ax.grid(axis="y", color="#eceff3")
        ax.set_axisbelow(True)
        ax.set_title(chapter.title)
        ax.set_title("return", loc="right", fontsize=8, weight="normal", color="#3d4450", x=1.16)
    return figure


def _side_note(chapter: Chapter, group: Group) -> str:
    """The change in return of a setting, in percent of the gap, with its sign."""
    lost = chapter.lost(group).mean
    if group is chapter.plain or not np.isfinite(lost):
        return ""
    return f"{-100 * lost:+.0f} %".replace("-", "−") if abs(lost) >= 0.005 else "±0 %"


# -- learning ----------------------------------------------------------------------------------------------------------


def binned(run: Run, ends: Floats) -> Floats:
    """Mean return and share of catastrophes of the training episodes that ended in each bin of steps, [bins, 2]."""
    at = np.searchsorted(ends, run.training.steps, side="left")
    count = np.bincount(at, minlength=ends.size)[: ends.size]
    columns = (run.training.returns, run.training.unsafe.astype(float))
    sums = [np.bincount(at, x, ends.size)[: ends.size] for x in columns]
    return np.column_stack([np.divide(x, count, out=np.full(ends.size, np.nan), where=count > 0) for x in sums])


@styled
def curves_figure(chapters: Sequence[Chapter]) -> Figure:
    """Return and catastrophes of training episodes, with exploration: mean over seeds, and their range."""
    figure, axes = _panels(len(chapters), 3.6, rows=2)
    for (above, below), chapter in zip(axes, chapters, strict=True):
        for group in chapter.contestants:
            _draw_curves((above, below), group)
        above.set_title(chapter.title)
        above.set(ylabel="return", xticklabels=[])
        below.set(ylabel="catastrophes, %", xlabel="steps, thousands")
        below.set_ylim(bottom=0.0)
    _legend(figure, [n for n in COLOURS if any(g.family == n for c in chapters for g in c.contestants)], "-")
    return figure


def _draw_curves(axes: tuple[Axes, Axes], group: Group) -> None:
    last = max((int(run.training.steps[-1]) for run in group.runs if run.training.steps.size), default=0)
    if last == 0:
        return
    ends = np.linspace(0, last, BINS + 1)[1:]
    found = np.array([binned(run, ends) for run in group.runs])  # [seeds, bins, 2]
    seen = np.isfinite(found).any(axis=(0, 2))
    found, x = found[:, seen], (ends[seen] - 0.5 * ends[0]) / 1000
    colour = COLOURS[group.family]
    for ax, values in zip(axes, (found[..., 0], 100 * found[..., 1]), strict=True):
        ax.fill_between(x, np.nanmin(values, 0), np.nanmax(values, 0), color=colour, alpha=0.13, lw=0)
        mean = np.nanmean(values, 0)
        ax.plot(x, mean, color=colour, lw=1.5)
        every = max(1, x.size // 6)
        ax.plot(x[every // 2 :: every], mean[every // 2 :: every], MARKERS[group.family], ms=4, color=colour)


# -- the point's paths -------------------------------------------------------------------------------------------------


@styled
def paths_figure(groups: Sequence[Group]) -> Figure:
    """Evaluation paths of the point over its map, one panel per setting; paths into the pit are red with a cross."""
    figure, axes = new_figure(2.3 * len(groups) + 0.2, 2.4, 1, len(groups))
    for ax, group in zip(axes[0], groups, strict=True):
        _draw_map(ax)
        for path in (path for run in group.runs for path in run.paths):
            fell = bool(point.in_pit(path[-1]))
            colour = RED if fell else COLOURS[group.family]
            ax.plot(path[:, 0], path[:, 1], color=colour, lw=1.0, alpha=0.8 if fell else 0.45, zorder=3 + fell)
            if fell:
                ax.plot(*path[-1], "x", ms=6, mew=1.6, color=RED, zorder=5)
        ax.set_title(group.name, fontsize=9)
    return figure


def _draw_map(ax: Axes) -> None:
    left, right, top = point.PIT
    ax.add_patch(Rectangle((left, 0), right - left, top, facecolor="#f3c6c9", edgecolor=RED, lw=0.8))
    left, right, bottom, top = point.GUSTY
    size = (right - left, top - bottom)
    ax.add_patch(Rectangle((left, bottom), *size, facecolor="#f4f1e6", edgecolor=GREY, ls=":", lw=1.0))
    ax.text((left + right) / 2, top - 0.04, "gusts ↓", ha="center", va="top", color="#5b6472", fontsize=9)
    ax.text((left + right) / 2, 0.1, "pit", ha="center", va="center", color=RED, weight="bold", fontsize=9)
    ax.add_patch(Circle(point.GOAL, point.REACH, facecolor="#cdead8", edgecolor=GREEN, lw=1.0))
    ax.text(*point.GOAL, "G", ha="center", va="center", color=GREEN, weight="bold", zorder=7)
    ax.plot(*point.START, "o", ms=8, mfc="none", mec="#3d4450", mew=1.2, zorder=6)
    ax.text(point.START[0], point.START[1] + 0.06, "S", ha="center", color=INK, weight="bold", zorder=7)
    ax.set(xlim=(0, 1), ylim=(0, 0.85), xticks=[], yticks=[], aspect="equal")
    for spine in ax.spines.values():
        spine.set(visible=True, color="#c9ced6")
