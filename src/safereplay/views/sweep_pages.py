"""The page of a sweep: its overview, phase diagrams, frontier of return against risk, curves, and tables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .._types import AnyArray, Bools, Floats, Ints
from .document import Block, Heading, Picture, Table, Text
from .drawing import BLUE, GREEN, GREY, INK, ORANGE, RED, new_figure, styled
from .intervals import estimates
from .pages import Page
from .phases import View, log_ticks, phase_figure
from .sweeps import CURVES, Results, Row, axis_text, cells, label, overview

PALETTE = (BLUE, ORANGE, GREEN, RED, "#5b4b8a", GREY)
MARKERS = "osD^vP"
MANY = 20_000  # the largest number of curves for a band


@styled
def settings_figure(results: Results) -> Figure:
    """Mean return against P(unsafe): a point per setting, with intervals, and each learner's Pareto front as a step line."""
    codes, models = results.levels("model")
    across = min(3, len(models))
    down = -(-len(models) // across)
    figure, axes = new_figure(max(5.2, 4.4 * across), 3.4 * down + 0.5, down, across)
    names = [str(x) for x in results.levels("learner").values]
    for k, ax in enumerate(axes.ravel()):
        if k < len(models):
            _draw_settings(ax, results.where(codes == k), names)
            ax.set_title(str(models[k]))
            ax.set(xlabel="P(unsafe)", ylabel="mean return" if k % across == 0 else "")
        else:
            ax.set_visible(False)
    handles = [_handle(k, name) for k, name in enumerate(names)]
    handles.append(Line2D([], [], color=INK, lw=1.2, drawstyle="steps-post", label="best settings (Pareto front)"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def _handle(k: int, name: str) -> Line2D:
    colour, marker = PALETTE[k % len(PALETTE)], MARKERS[k % len(MARKERS)]
    return Line2D([], [], color=colour, marker=marker, ms=5, mec="white", mew=0.5, lw=1.2, label=name)


def _draw_settings(ax: Axes, results: Results, learners: Sequence[str]) -> None:
    member, keys = results.groups(results.settings)
    unit, count = results.units, len(keys)
    risk = np.array(estimates(results.numbers("p_unsafe"), member, unit, count))  # [settings, (mean, low, high)]
    gain = np.array(estimates(results.numbers("mean"), member, unit, count))
    ends = np.bincount(member, ~np.isfinite(results.numbers("mean")), count) == 0
    at = results.settings.index("learner")
    owner = np.array([learners.index(str(key[at])) for key in keys])
    chosen = [np.flatnonzero((owner == k) & ends) for k in range(len(learners))]
    fronts = [use[_front(risk[use, 0], gain[use, 0])] for use in chosen]
    if ends.any():
        inside = _look_at(ax, risk, gain, np.concatenate(fronts), ends)
        for k, (use, front) in enumerate(zip(chosen, fronts, strict=True)):
            _draw_points(ax, risk, gain, use[inside[use]], front, k, larger=1 + 0.6 * (len(learners) - 1 - k))


def _look_at(ax: Axes, risk: Floats, gain: Floats, front: Ints, ends: Bools) -> Bools:
    """Limit the axes to the fronts and their intervals, with a margin; return which settings are inside."""
    x, y = risk[:, 0], gain[:, 0]
    low, high, left, right = y[front].min(), y[front].max(), x[front].min(), x[front].max()
    low = max(y[ends].min(), low - (high - low)) if high > low else y[ends].min()
    right = min(x[ends].max(), right + 0.5 * (right - left)) if right > left else x[ends].max()
    across, up = 0.05 * (right - left or 0.02), 0.06 * (high - low or 1.0)
    inside: Bools = ends & (y >= low) & (x <= right)
    left, right = min(left, np.nanmin(risk[front])), max(right, np.nanmax(risk[front]))
    low, high = min(low, np.nanmin(gain[front])), max(high, np.nanmax(gain[front]))
    ax.set(xlim=(left - across, right + across), ylim=(low - up, high + up))
    outside = int(ends.sum() - inside.sum())
    if outside:
        text = f"{outside:,} of {ends.sum():,} settings not shown"
        ax.text(0.98, 0.03, text, transform=ax.transAxes, ha="right", fontsize=8, color="#5b6472")
    return inside


def _draw_points(ax: Axes, risk: Floats, gain: Floats, use: Ints, front: Ints, k: int, larger: float) -> None:
    """The settings of one learner, with intervals, and its Pareto front; ``larger`` if others may cover them."""
    colour, many = PALETTE[k % len(PALETTE)], use.size > 100
    if not many:  # many bars would hide the points
        ax.add_collection(LineCollection(_bars(risk[use], gain[use]), colors=colour, lw=0.5, alpha=0.25))
    ax.add_collection(LineCollection(_bars(risk[front], gain[front]), colors=colour, lw=0.7, alpha=0.45))
    ax.step(risk[front, 0], gain[front, 0], where="post", color=colour, lw=1.4, zorder=4)
    ax.scatter(
        risk[use, 0],
        gain[use, 0],
        s=larger * (9 if many else 18),
        marker=MARKERS[k % len(MARKERS)],
        color=colour,
        edgecolor="white",
        linewidth=0.3,
        alpha=0.55 if many else 0.9,
        zorder=3,
        rasterized=use.size > 2_000,
    )


def _bars(risk: Floats, gain: Floats) -> list[AnyArray]:
    """The finite intervals of points, horizontal and vertical, as lines [2n, 2 ends, (x, y)]."""
    across = np.stack([risk[:, 1:], np.repeat(gain[:, :1], 2, axis=1)], -1)
    upright = np.stack([np.repeat(risk[:, :1], 2, axis=1), gain[:, 1:]], -1)
    bars = np.concatenate([across, upright])
    known = np.isfinite(bars).all((1, 2)) & (np.ptp(bars, axis=1).max(1) > 0)
    return list(np.unique(bars[known], axis=0))


def _front(risk: Floats, gain: Floats) -> Ints:
    """The Pareto-optimal points, from the safest on."""
    order = np.lexsort((-gain, risk))
    best = np.maximum.accumulate(gain[order])
    first = np.concatenate(([True], best[1:] > best[:-1]))
    return order[first[: order.size]]


@styled
def curves_figure(results: Results) -> Figure:
    """P(unsafe) of the greedy policy, and the value of the origin, during the runs: median and middle 95 %."""
    shown = {"curve_p_unsafe": "P(unsafe)", "curve_value": "max Q(origin, ·)"}
    codes, models = results.levels("model")
    owners, learners = results.levels("learner")
    figure, axes = new_figure(9.0, 2.6 * len(models) + 0.6, len(models), len(shown))
    for row, model in enumerate(models):
        for k in range(len(learners)):
            some = _longest(results.where((codes == row) & (owners == k)))
            if len(some):
                episodes = _matrix(some, "curve_episodes")[0]
                for ax, name in zip(axes[row], shown, strict=True):
                    _draw_band(ax, episodes, _matrix(some, name), k)
        for ax, text in zip(axes[row], shown.values(), strict=True):
            ax.set(xscale="log", ylabel=text, xlabel="episodes" if row == len(models) - 1 else "")
            log_ticks(ax.xaxis, float(np.log10(ax.get_xlim()[1] / ax.get_xlim()[0])))
            ax.set_title(str(model))
    handles = [Line2D([], [], color=PALETTE[k % len(PALETTE)], label=str(name)) for k, name in enumerate(learners)]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def _longest(results: Results) -> Results:
    """The runs with the most episodes; curves of other runs have other points."""
    episodes = np.asarray(results.table["episodes"])
    return results.where(episodes == episodes.max(initial=0))


def _matrix(results: Results, name: str) -> Floats:
    """A column of lists of equal length, [runs, points]; every k-th run if there are very many."""
    column = results.table[name].combine_chunks()
    flat = np.asarray(column.flatten(), dtype=float).reshape(len(column), -1)
    return flat[:: max(1, len(column) // MANY)]


def _draw_band(ax: Axes, episodes: Floats, curves: Floats, k: int) -> None:
    low, middle, high = np.nanquantile(curves, [0.025, 0.5, 0.975], axis=0)
    colour = PALETTE[k % len(PALETTE)]
    ax.fill_between(episodes, low, high, color=colour, alpha=0.18, lw=0)
    ax.plot(episodes, middle, color=colour, lw=1.5)


ROWS = 200  # shown of a long table


def sweep_page(results: Results, views: Sequence[View], rows: Sequence[Row], refresh: int | None = None) -> Page:
    """A sweep as a page; browsers reload it every ``refresh`` seconds while the sweep runs."""
    header, lines = cells(rows)
    still = "" if refresh is None else " The sweep is still running."
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
        blocks += [Heading("Return against risk"), Picture("frontier", FRONTIER.format(over=_over(results)))]
    if results.has(*CURVES):
        figures["curves"] = curves_figure(results)
        blocks += [Heading("During the runs"), Picture("curves", ALONG)]
    blocks += [Heading("Tables"), Table(header, lines[:ROWS]), Text(NOTES.format(over=_over(results)))]
    if len(lines) > ROWS:
        blocks += [Text(f"{len(lines) - ROWS:,} more rows are left out here; --json has them all.")]
    return Page(f"Sweep {results.folder.resolve().name}", blocks, figures, refresh)


def _over(results: Results) -> str:
    """What intervals resample (see :attr:`Results.units`)."""
    several = len(set(results.table["seed"].to_pylist())) > 1
    return "seeds (settings fixed)" if several else "settings (there is only one seed)"


FRONTIER = (
    "Mean return against P(unsafe). One point per setting, with 95 % intervals over {over}; if there are many settings, only for the best ones. "
    "The line joins the Pareto-optimal settings of a learner. Settings with a run that never ends are left out."
)
ALONG = "The greedy policy during the runs: median over runs, and the middle 95 % of them."
NOTES = "Intervals: 95 %, bootstrap of the mean over {over}. The mean return leaves out runs that may never end."
