"""Pictures of the study: the whole result, frontiers, learning curves, and the point's paths.

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
from .sentences import PART, judged, share
from .summary import (
    CVAR,
    IQN,
    KEYED,
    LAGRANGIAN,
    LIMITED,
    MAY_LOSE,
    OURS,
    PENALTY,
    PLAIN,
    RIVALS,
    STATIC,
    Chapter,
    Group,
    Run,
    ratio,
)

PURPLE, PINK, BROWN, SKY, TEAL = "#8e4a9e", "#d46a9f", "#8a5a2b", "#6fb7e0", "#12857c"
COLOURS = {
    PLAIN: ORANGE,
    OURS: BLUE,
    LIMITED: TEAL,
    KEYED: SKY,
    PENALTY: GREEN,
    CVAR: PURPLE,
    IQN: PINK,
    STATIC: BROWN,
    LAGRANGIAN: GREY,
}
MARKERS = {
    PLAIN: "*",
    OURS: "o",
    LIMITED: "h",
    KEYED: "P",
    PENALTY: "^",
    CVAR: "s",
    IQN: "D",
    STATIC: "p",
    LAGRANGIAN: "X",
}
RING: Any = {"marker": "o", "ls": "", "ms": 13, "mfc": "none", "mec": INK, "mew": 1.1}
BELOW: Any = {"marker": "v", "ls": "", "ms": 6, "mfc": "none"}
ACROSS = 4  # panels per row
BINS = 24  # bins of a learning curve
COLLAPSED = (
    0.25,
    1.0,
)  #: settings that lose more of the gap are drawn at the edge; the second value, if the default of shaped replay lost the first


def panels(count: int, height: float, rows: int = 1) -> tuple[Figure, Any]:
    """A figure of ``count`` panels of ``rows`` axes each, at most :data:`ACROSS` per row: axes [count, rows]."""
    across = min(count, ACROSS)
    down = -(-count // across)
    figure, axes = new_figure(2.6 * across + 0.2, down * height + 0.5, down * rows, across)
    blocks = axes.reshape(down, rows, across).transpose(0, 2, 1).reshape(-1, rows)
    for ax in blocks[count:].ravel():
        ax.set_visible(False)
    return figure, blocks[:count]


def legend(figure: Figure, names: Sequence[str], line: str = "", others: Sequence[Line2D] = ()) -> None:
    """A legend of families below the panels."""
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
    """Mean return against P(catastrophe): all settings; lines join the Pareto-optimal ones of a family."""
    figure, axes = panels(len(chapters), 2.7)
    for (ax,), chapter in zip(axes, chapters, strict=True):
        bottom = _floor(chapter)
        for name in (*RIVALS, KEYED, LIMITED, OURS, PLAIN):
            _draw_family(ax, chapter, name, bottom)
        if chapter.default:
            ax.plot(100 * chapter.default.p.mean, max(chapter.default.mean.mean, bottom), **RING, zorder=8)
        ax.set_title(chapter.title)
        ax.set(xlabel="P(catastrophe), %", ylabel="mean return")
        ax.margins(0.07)
        ax.set_xlim(left=min(ax.get_xlim()[0], -0.02 * ax.get_xlim()[1]))
    others = [
        Line2D([], [], **RING, label="shaped, default"),
        Line2D([], [], **BELOW, mec=GREY, label="below the axis"),
    ]
    legend(figure, [name for name in COLOURS if any(chapter.family(name) for chapter in chapters)], others=others)
    return figure


def _floor(chapter: Chapter) -> float:
    """The return below which a setting is drawn at the edge, so that bad settings do not compress the scale."""
    shown = [group for name in COLOURS for group in chapter.family(name)]
    gap = chapter.plain.mean.mean - chapter.random.mean.mean
    least = min(group.mean.mean for group in shown)
    limits = [chapter.plain.mean.mean - part * gap for part in COLLAPSED]
    limit = limits[1] if chapter.default and chapter.default.mean.mean <= limits[0] else limits[0]
    fine = [g.mean.mean for g in shown if g.mean.mean > limit]
    collapsed = gap > 0 and fine and least < min(fine)
    return min(fine) - 0.05 * (max(fine) - min(fine)) if collapsed else -np.inf


def _draw_family(ax: Axes, chapter: Chapter, name: str, bottom: float) -> None:
    if not chapter.family(name):
        return
    found = points(chapter.family(name) if name in (KEYED, LIMITED) else chapter.dialled(name))
    best = found[pareto(found) & (found[:, 1] >= bottom)]
    best = best[np.argsort(best[:, 0])]
    ax.step(
        100 * best[:, 0],
        best[:, 1],
        where="post",
        color=COLOURS[name],
        lw=2.2 if name == OURS else 1.0,
        alpha=0.6,
        zorder=2,
    )
    for group in chapter.family(name):
        _draw_setting(ax, group, bottom, {PLAIN: 13.0, OURS: 7.0, KEYED: 7.0, LIMITED: 7.0}.get(name, 5.0))


def _draw_setting(ax: Axes, group: Group, bottom: float, size: float) -> None:
    colour, p, mean = COLOURS[group.family], group.p, group.mean
    if mean.mean < bottom:
        ax.plot(100 * p.mean, bottom, **BELOW, mec=colour, clip_on=False, zorder=4)
        return
    if group.family in (PLAIN, OURS):
        for xs, ys in (([p.low, p.high], [mean.mean] * 2), ([p.mean] * 2, [max(mean.low, bottom), mean.high])):
            ax.plot(100 * np.array(xs), ys, color=colour, lw=0.8, alpha=0.35, zorder=1)
    ax.plot(100 * p.mean, mean.mean, MARKERS[group.family], ms=size, color=colour, zorder=5, mec="white", mew=0.7)


# -- the whole result --------------------------------------------------------------------------------------------------


@styled
def risk_figure(chapters: Sequence[Chapter]) -> Figure:
    """Shaped replay at its default on each world: P(catastrophe) as a share of the plain learner's, and the loss in return, with the aim."""
    there = judged(chapters)[::-1]
    figure, axes = new_figure(8.6, 0.36 * len(there) + 1.2, 1, 2)
    left, right = axes[0]
    for y, (c, group) in enumerate(there):
        for ax, found, met in ((left, ratio(group, c.plain), PART), (right, c.lost(group), MAY_LOSE)):
            colour = BLUE if found.mean <= met else RED
            ax.plot(100 * np.array([found.low, found.high]), [y, y], color=colour, lw=2.2, alpha=0.4)
            ax.plot(100 * found.mean, y, MARKERS[OURS] if found.mean <= met else "X", ms=7, color=colour, mec="white")
        risks = f"{share(c.plain.p.mean)} → {share(group.p.mean)}"
        right.annotate(risks, (1.0, y), (6, 0), ("axes fraction", "data"), "offset points", va="center", fontsize=8)
    left.set_yticks(range(len(there)), [c.title for c, _ in there])
    right.set_yticks(range(len(there)), [""] * len(there))
    (low, high), most = right.get_xlim(), left.get_xlim()[1]
    far = [120 * max(ratio(g, c.plain).mean for c, g in there), 120 * max(c.lost(g).mean for c, g in there)]
    left.set(xlabel="P(catastrophe), % of the plain learner's", xlim=(-4, np.clip(most, 110, max(200, far[0]))))
    right.set(
        xlabel="loss in return, % of the gap to random",
        xlim=(np.clip(low, -50, -5), np.clip(high, 30, max(130, far[1]))),
    )
    for ax, plain in ((left, 100), (right, 0)):
        ax.axvline(plain, color=ORANGE, lw=1.2, ls="--", zorder=1)
    for ax, met in ((left, PART), (right, MAY_LOSE)):
        ax.axvspan(ax.get_xlim()[0], 100 * met, color=BLUE, alpha=0.08, lw=0)
        ax.set_ylim(-0.6, len(there) - 0.4)
        ax.grid(axis="y", color="#eceff3")
        ax.set_axisbelow(True)
    note = {"xytext": (6, 8), "textcoords": "offset points", "fontsize": 8, "weight": "bold"}
    right.annotate("plain → shaped", (1.0, 1.0), xycoords="axes fraction", **note)
    return figure


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
    figure, axes = panels(len(chapters), 3.6, rows=2)
    for (above, below), chapter in zip(axes, chapters, strict=True):
        for group in filter(None, (chapter.plain, chapter.default)):
            _draw_curves((above, below), group)
        above.set_title(chapter.title)
        above.set(ylabel="return", xticklabels=[])
        below.set(ylabel="catastrophes, %", xlabel="steps, thousands")
        below.set_ylim(bottom=0.0)
    legend(figure, [PLAIN, *([OURS] if any(c.default for c in chapters) else [])], "-")
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
