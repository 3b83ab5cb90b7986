"""The page of a sweep: phase diagrams, the frontier of return against risk, curves, and tables.

A phase diagram shows the verdicts or risks of the runs over two axes.

By default the two numeric axes with the most values span a diagram, γ last. There is one panel per model (rows) and value
of a third axis (columns). Linear and logarithmic grids of values become cells to scale; random values are binned; other
values become a list of cells of equal width.

Each cell is filled with the verdicts of its runs, by their share: a cell whose seeds agree has one colour. Large cells
are separated and show each share as text. In small cells, a verdict is drawn next to the neighbour with the same
verdict, so that borders between verdicts are smooth where the shares are.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from scipy import ndimage

from .. import _checks
from .._checks import AnyArray, Bools, Floats, Ints
from .document import Block, Heading, Picture, Table, Text
from .drawing import BLUE, COLOURS, GREEN, GREY, INK, LETTERS, ORANGE, RED, new_figure, styled
from .intervals import estimates
from .pages import Page
from .sweeps import CURVES, Results, Row, axis_text, cells, label, overview, value_text, verdict_codes

METRICS = {
    "verdict": "share of each verdict",
    "p_unsafe": "P(unsafe)",
    "mean": "mean return",
    "std": "standard deviation of the return",
    "cvar10": "CVaR₁₀",
}
CELLS = 48  # an axis with more values than this is binned
FACETS = 6
LARGE, TEXT = (0.8, 0.35), 0.16  # inches: the smallest cell with text (width, height); the height of a line
MAPS = {"p_unsafe": "YlOrRd", "std": "YlOrRd"}  # darker is worse; for others, brighter is better
PALETTE = (BLUE, ORANGE, GREEN, RED, "#5b4b8a", GREY)
MARKERS = "osD^vP"
MANY = 20_000  # the largest number of curves for a band
ROWS = 200  # shown of a long table
FRONTIER = (
    "Mean return against P(unsafe). One point per setting, with 95 % intervals over {over}; if there are many settings, only for the best ones. "
    "The line joins the Pareto-optimal settings of a learner. Settings with a run that never ends are left out."
)
ALONG = "The greedy policy during the runs: median over runs, and the middle 95 % of them."
NOTES = "Intervals: 95 %, bootstrap of the mean over {over}. The mean return leaves out runs that may never end."


class View(NamedTuple):
    """A phase diagram of one learner: its two axes, its facets, and the axes that are pooled."""

    learner: str
    x: str
    y: str | None
    columns: str | None
    rows: tuple[str, ...]
    pooled: tuple[str, ...]
    metric: str

    @property
    def caption(self) -> str:
        """The caption of the picture."""
        where = label(self.x) if self.y is None else f"{label(self.x)} and {label(self.y)}"
        if self.metric == "verdict":
            text = f"{self.learner} over {where}: share of each verdict among the runs of a cell."
        else:
            text = f"{self.learner} over {where}: {METRICS[self.metric]}, mean over the runs that end."
        return text + (f" Pooled over {', '.join(map(label, self.pooled))}." if self.pooled else "")


def choose_views(
    results: Results, x: str | None = None, y: str | None = None, by: Sequence[str] = (), metric: str | None = None
) -> list[View]:
    """A view of each learner that has the given axes. By default the metric is the first one that was kept, if any."""
    for name, axis in (("--x", x), ("--y", y), *(("--by", axis) for axis in by)):
        if axis is not None:
            _checks.choice(f"axis for {name}", axis, results.settings)
    _checks.require(x is None or x != y, "--y", "differ from --x", y)
    if metric is None:
        metric = next((name for name in METRICS if results.has(name)), None)
        if metric is None:
            return []
    _checks.choice("metric", metric, METRICS)
    _checks.require(results.has(metric), "--metric", "be a result that the sweep kept", metric)
    codes, learners = results.levels("learner")
    views = [_choose(results.where(codes == k), str(name), x, y, by, metric) for k, name in enumerate(learners)]
    found = [view for view in views if view is not None]
    asked = ", ".join(axis for axis in (x, y) if axis)
    _checks.require(bool(found) or not asked, "axes", f"vary in some learner ({', '.join(results.axes)} do)", asked)
    return found


def _choose(results: Results, name: str, x: str | None, y: str | None, by: Sequence[str], metric: str) -> View | None:
    axes = results.axes
    ranked = sorted((n for n in axes if results.is_number(n)), key=lambda n: (n == "gamma", -len(axes[n])))
    free = [n for n in ranked if n not in (x, y, *by)]
    first = x or next(iter(free), None)
    second = y or next((n for n in free if n != first), None)
    if first is None or {first, *([y] if y else [])} - set(axes):
        return None
    if second == "v" and x is None and y is None:  # v is on the horizontal axis
        first, second = second, first
    left = sorted((n for n in axes if n not in (first, second)), key=lambda n: -len(axes[n]))
    asked = [n for n in by if n in left]
    rest = [*asked, *(n for n in left if n not in asked)]
    many = len(results.levels("model").values) > 1
    rows = [*asked[1:], *([] if many or asked[1:] else rest[1:2])]
    pooled = tuple(n for n in left if n not in (*rest[:1], *rows))
    return View(name, first, second, rest[0] if rest else None, ("model", *rows), pooled, metric)


class Scale(NamedTuple):
    """The layout of an axis: the cell of each value, and the edges of the cells."""

    kind: str  #: "linear", "log", or "listed": cells of equal width, each with its value
    cell: Ints  #: by value's code
    edges: Floats  #: [cells + 1]; exponents of 10 if it is "log"
    values: tuple[Any, ...]

    @property
    def cells(self) -> int:
        """The number of cells."""
        return self.edges.size - 1

    def place(self, t: Any) -> AnyArray:
        """Convert the edges' coordinates to the axis' values."""
        return np.asarray(10.0 ** np.asarray(t) if self.kind == "log" else t)


def scale(results: Results, name: str, bins: int) -> Scale:
    """The layout for the values of an axis: a linear or log grid, bins, or a list."""
    values = results.levels(name).values
    if not results.is_number(name) or len(values) < 3 or None in values:
        return _listed(values)
    x = np.array(values, dtype=float)
    if len(values) > CELLS:  # bins of equal width for random values, on a log scale if that spreads them more evenly
        log = x[0] > 0 and abs(_centre(np.log(x)) - 0.5) < abs(_centre(x) - 0.5) and x[-1] > 5 * x[0]
        t = np.log10(x) if log else x
        edges = np.linspace(t[0], t[-1], bins + 1)
        cell = np.clip(np.searchsorted(edges, t, "right") - 1, 0, bins - 1)
        return Scale("log" if log else "linear", cell, edges, tuple(x))
    for kind, t in {"linear": x, **({"log": np.log10(x)} if x[0] > 0 else {})}.items():
        gaps = np.diff(t)
        if gaps.max() < 1.5 * gaps.min():
            middle = (t[1:] + t[:-1]) / 2
            edges = np.array([2 * t[0] - middle[0], *middle, 2 * t[-1] - middle[-1]])
            return Scale(kind, np.arange(x.size), edges.astype(np.float64), values)
    return _listed(values)


def _listed(values: tuple[Any, ...]) -> Scale:
    return Scale("listed", np.arange(len(values)), np.arange(len(values) + 1) - np.float64(0.5), values)


def _centre(t: Floats) -> float:
    return float((t.mean() - t[0]) / (t[-1] - t[0]))


def facets(results: Results, name: str | None) -> tuple[Ints, list[str]]:
    """The column of each run, and the columns' titles; many values are binned."""
    if name is None:
        return np.zeros(len(results), np.int64), [""]
    codes, values = results.levels(name)
    if len(values) <= FACETS or None in values:
        return codes, [f"{label(name)} = {value_text(x)}" for x in values]
    cuts = np.linspace(0, len(values), FACETS).astype(int)
    column = np.searchsorted(cuts, np.arange(len(values)), "right") - 1
    ends = [(value_text(values[a]), value_text(values[b - 1])) for a, b in pairwise(cuts)]
    return column[codes], [f"{label(name)} {a} … {b}" for a, b in ends]


@styled
def phase_figure(results: Results, view: View) -> Figure:
    """Verdicts or risks over two axes, one panel per model and value of the third axis."""
    codes, learners = results.levels("learner")
    results = results.where(codes == learners.index(view.learner))
    member, keys = results.groups(view.rows)
    column, titles = facets(results, view.columns)
    beside = len(titles) == 1 and len(keys) <= 4  # rows of one panel each are placed in one row
    down, across = (1, len(keys)) if beside else (len(keys), len(titles))
    wide, high = max(1.75, min(4.2, 9.6 / across)), max(1.9, min(3.2, 8.0 / down))
    figure, axes = new_figure(wide * across + 1.0, high * down + 0.7, down, across)
    axes = axes.reshape(len(keys), len(titles))
    filled = np.bincount(member * len(titles) + column, minlength=axes.size).reshape(axes.shape) > 0
    seen: set[str] = set()
    shares = view.metric == "verdict"
    upright = "share of runs" if shares else METRICS[view.metric]
    for row, key in enumerate(keys):
        chosen = member == row
        panels = _Panels(results.where(chosen), view, column[chosen], len(titles))
        rest = zip(view.rows[1:], key[1:], strict=True)
        name = [str(key[0]), *(f"{label(n)} = {value_text(x)}" for n, x in rest)]
        seen |= panels.draw(figure, axes[row])
        for k, (ax, title) in enumerate(zip(axes[row], titles, strict=True)):
            ax.set_visible(filled[row, k])
            ax.set_title(", ".join([*name, title] if title else name), fontsize=8.5 if len(titles) > 3 else 10)
            if len(titles) == 1 or not filled[row + 1 :, k].any():  # the lowest of its column
                ax.set_xlabel(label(view.x))
            if not filled[row, :k].any():  # the first of its row
                ax.set_ylabel(label(view.y) if view.y else upright)
            elif view.y or shares:
                ax.tick_params(labelleft=False)
            if shares and not view.y:
                ax.set_ylim(0, 1)
    patches = [Patch(facecolor=COLOURS["stuck"], hatch="////", edgecolor="white", label="no run ends")]
    if shares:
        names = [name for name in (*LETTERS, *sorted(seen - set(LETTERS))) if name in seen]
        patches = [Patch(facecolor=COLOURS.get(n, "#5b4b8a"), label=f"{LETTERS.get(n, '?')}  {n}") for n in names]
    if seen:
        figure.legend(handles=patches, loc="outside lower center", ncols=len(patches), frameon=False, fontsize=8.5)
    return figure


class _Panels:
    """One row of a phase diagram: runs [n] counted by column and cell."""

    def __init__(self, results: Results, view: View, column: Ints, columns: int) -> None:
        self.view, self.columns = view, columns
        settings = len(results.groups([n for n in (view.x, view.y) if n]).keys) / columns
        bins = int(np.clip((settings / 3) ** (0.5 if view.y else 1.0), 6, 24))
        self.x = scale(results, view.x, bins)
        self.y = scale(results, view.y, bins) if view.y else None
        down = 1 if self.y is None else self.y.cells
        self.shape = (columns, self.x.cells, down)
        self.at = column * self.x.cells + self.x.cell[results.levels(view.x).codes]
        self.at = self.at * down + (self.y.cell[results.levels(view.y).codes] if view.y and self.y else 0)
        self.results = results
        self.runs = self.count()

    def count(self, weights: Floats | Bools | None = None) -> Floats:
        """Runs [columns, x, y], or the sum of their weights."""
        size = int(np.prod(self.shape))
        return np.bincount(self.at, weights, size).reshape(self.shape).astype(float)

    def draw(self, figure: Figure, axes: AnyArray) -> set[str]:
        """Draw each panel; return the entries of the legend."""
        labels = 8 if self.columns < 4 else 5  # on the horizontal axis: narrow panels have room for few
        for ax in axes:
            _set_scale(ax.xaxis, self.x, labels)
            if self.y is not None:
                _set_scale(ax.yaxis, self.y, 8)
        if self.view.metric != "verdict":
            return self._draw_metric(figure, axes)
        codes, names = verdict_codes(self.results)
        shares = np.stack([self.count(codes == k) for k in range(len(names))], -1)
        shares /= np.maximum(self.runs, 1.0)[..., None]
        for ax, panel in zip(axes, shares, strict=True):
            _fill(ax, self.x, self.y, panel, names)
        return {name for name, share in zip(names, shares.sum((0, 1, 2)), strict=True) if share > 0}

    def _draw_metric(self, figure: Figure, axes: AnyArray) -> set[str]:
        values = self.results.numbers(self.view.metric)
        finite = np.isfinite(values)
        runs = self.count(finite)
        total = self.count(np.where(finite, values, 0.0))
        mean = np.divide(total, runs, out=np.full(self.shape, np.nan), where=runs > 0)
        if self.y is None:  # the mean and its interval over the one axis
            found = np.array(estimates(values, self.at, self.results.units, int(np.prod(self.shape))))
            middles = self.x.place((self.x.edges[1:] + self.x.edges[:-1]) / 2)
            for ax, panel in zip(axes, found.reshape(self.columns, -1, 3).transpose(0, 2, 1), strict=True):
                ax.fill_between(middles, panel[1], panel[2], color=BLUE, alpha=0.2, lw=0)
                ax.plot(middles, panel[0], "o-", ms=3, color=BLUE)
            return set()
        norm = Normalize(*((float(np.nanmin(mean)), float(np.nanmax(mean))) if finite.any() else (0.0, 1.0)))
        if self.view.metric == "p_unsafe":
            norm.vmin = 0.0
        colours = MAPS.get(self.view.metric, "viridis")
        x, y = self.x.place(self.x.edges), self.y.place(self.y.edges)
        never = (runs == 0) & (self.runs > 0)
        for ax, shown, endless in zip(axes, mean, never, strict=True):
            ax.pcolormesh(x, y, np.ma.masked_invalid(shown.T), cmap=colours, norm=norm, rasterized=shown.size > 2_000)
            for i, j in np.argwhere(endless):
                corners = (x[i : i + 2], [y[j]] * 2, [y[j + 1]] * 2)
                ax.fill_between(*corners, facecolor=COLOURS["stuck"], hatch="////", edgecolor="white", lw=0)
        bar = figure.colorbar(ScalarMappable(norm, colours), ax=list(axes), fraction=0.04, pad=0.015, aspect=14)
        bar.set_label(METRICS[self.view.metric])
        return {"never ends"} if never.any() else set()


def _fill(ax: Axes, x: Scale, y: Scale | None, shares: Floats, names: Sequence[str]) -> None:
    """Fill the cells with verdicts, shares [x, y, verdicts]; label each share in large cells, or each verdict once."""
    y = y or Scale("linear", np.zeros(1, np.int64), np.array([0.0, 1.0]), ())
    assert ax.figure is not None
    wide, high = ax.bbox.width / ax.figure.dpi / x.cells, ax.bbox.height / ax.figure.dpi / y.cells  # before layout
    large = wide > LARGE[0] and high > LARGE[1]
    corners, colours = [], []
    for i, column in enumerate(shares):
        left, right = x.place(x.edges[i : i + 2])
        for first, last in pairwise(range(y.cells + 1) if large else (0, y.cells)):
            for k, low, top in _pieces(column[first:last], y.edges[first : last + 1]):
                a, b = y.place([low, top])
                corners.append([(left, a), (right, a), (right, b), (left, b)])
                colours.append(COLOURS.get(names[k], "#5b4b8a"))
                if large and column[first, k] * high > TEXT:
                    middle = x.place(x.edges[i : i + 2].mean()), y.place((low + top) / 2)
                    _write(ax, *middle, f"{names[k]} {column[first, k]:.0%}", 9)
    ax.add_collection(PolyCollection(corners, facecolors=colours, edgecolors=colours, linewidths=0.5))
    if large:  # gaps between cells
        for draw, found in ((ax.axvline, x), (ax.axhline, y)):
            for edge in found.place(found.edges[1:-1]):
                draw(float(edge), color="white", lw=5)
    for k, name in enumerate(names):
        spot = None if large else _spot(shares[..., k] > 0.5)
        if spot is not None:
            across, up = (s.place(s.edges[c : c + 2].mean()) for s, c in zip((x, y), spot, strict=True))
            _write(ax, across, up, LETTERS.get(name, "?"), 11)


def _write(ax: Axes, x: AnyArray, y: AnyArray, text: str, size: float) -> None:
    ax.text(float(x), float(y), text, ha="center", va="center", fontsize=size, color=INK, weight="bold")


def _pieces(column: Floats, edges: Floats) -> list[tuple[int, float, float]]:
    """A column of cells as (verdict, from, to), upwards; each verdict is next to the neighbour with more of it."""
    padded = np.pad(column, ((1, 1), (0, 0)))
    pieces: list[tuple[int, float, float]] = []
    for j, shares in enumerate(column):
        low, height = float(edges[j]), float(edges[j + 1] - edges[j])
        for k in np.argsort(padded[j + 2] - padded[j], kind="stable"):
            if shares[k] > 0:
                top = low + float(shares[k]) * height
                joins = bool(pieces) and pieces[-1][0] == k and abs(pieces[-1][2] - low) < 1e-9 * height
                pieces.append((int(k), pieces.pop()[1] if joins else low, top))
                low = top
    return pieces


def _spot(rules: Bools) -> tuple[int, int] | None:
    """The innermost cell of the largest region where a verdict dominates, if it is large enough for a letter."""
    regions, count = ndimage.label(rules)
    if not count:
        return None
    largest = regions == 1 + int(np.argmax(np.bincount(regions.ravel())[1:]))
    if largest.sum() < max(3, 0.025 * rules.size):
        return None
    depth = ndimage.distance_transform_edt(np.pad(largest, 1))[1:-1, 1:-1]
    i, j = np.unravel_index(int(np.argmax(depth)), depth.shape)
    return int(i), int(j)


def _set_scale(axis: Any, found: Scale, labels: int) -> None:
    if found.kind == "log":
        axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    elif found.kind == "linear" and len(found.values) <= labels:
        axis.set_ticks(found.values, map(value_text, found.values))
    elif found.kind == "linear":
        axis.set_major_locator(MaxNLocator(min(5, labels)))
    else:
        step = max(1, -(-found.cells // labels))
        first = found.values.index(0.0) % step if 0.0 in found.values else 0  # so that 0 is labelled
        axis.set_ticks(range(first, found.cells, step), [value_text(v) for v in found.values[first::step]])
    ends = found.place(found.edges[[0, -1]])
    axis.axes.set(**{f"{axis.axis_name}lim": tuple(ends)})


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
    look: Any = {"ms": 5, "mec": "white", "mew": 0.5, "lw": 1.2}
    pairs = zip(names, cycle(PALETTE), cycle(MARKERS), strict=False)
    handles = [Line2D([], [], color=colour, marker=marker, label=name, **look) for name, colour, marker in pairs]
    handles.append(Line2D([], [], color=INK, lw=1.2, drawstyle="steps-post", label="best settings (Pareto front)"))
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


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
        for k, (own, front) in enumerate(zip(chosen, fronts, strict=True)):
            use = own[inside[own]]
            colour, many = PALETTE[k % len(PALETTE)], use.size > 100
            if not many:  # many bars would hide the points
                ax.add_collection(LineCollection(_bars(risk[use], gain[use]), colors=colour, lw=0.5, alpha=0.25))
            ax.add_collection(LineCollection(_bars(risk[front], gain[front]), colors=colour, lw=0.7, alpha=0.45))
            ax.step(risk[front, 0], gain[front, 0], where="post", color=colour, lw=1.4, zorder=4)
            larger = 1 + 0.6 * (len(learners) - 1 - k)  # later learners may cover them
            style: Any = {
                "s": larger * (9 if many else 18),
                "alpha": 0.55 if many else 0.9,
                "rasterized": use.size > 2_000,
            }
            style |= {"color": colour, "marker": MARKERS[k % len(MARKERS)], "edgecolor": "white", "linewidth": 0.3}
            ax.scatter(risk[use, 0], gain[use, 0], **style, zorder=3)


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
            some = results.where((codes == row) & (owners == k))
            lengths = np.asarray(some.table["episodes"])
            some = some.where(lengths == lengths.max(initial=0))  # curves of shorter runs have other points
            if len(some):
                episodes = _matrix(some, "curve_episodes")[0]
                for ax, name in zip(axes[row], shown, strict=True):
                    low, middle, high = np.nanquantile(_matrix(some, name), [0.025, 0.5, 0.975], axis=0)
                    ax.fill_between(episodes, low, high, color=PALETTE[k % len(PALETTE)], alpha=0.18, lw=0)
                    ax.plot(episodes, middle, color=PALETTE[k % len(PALETTE)], lw=1.5)
        for ax, text in zip(axes[row], shown.values(), strict=True):
            ax.set(xscale="log", ylabel=text, xlabel="episodes" if row == len(models) - 1 else "")
            ax.set_title(str(model))
    handles = [Line2D([], [], color=PALETTE[k % len(PALETTE)], label=str(name)) for k, name in enumerate(learners)]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    return figure


def _matrix(results: Results, name: str) -> Floats:
    """A column of lists of equal length, [runs, points]; every k-th run if there are very many."""
    column = results.table[name].combine_chunks()
    flat = np.asarray(column.flatten(), dtype=float).reshape(len(column), -1)
    return flat[:: max(1, len(column) // MANY)]


def sweep_page(results: Results, views: Sequence[View], rows: Sequence[Row], refresh: int | None = None) -> Page:
    """A sweep as a page; browsers reload it every ``refresh`` seconds while the sweep runs."""
    header, lines = cells(rows)
    still = "" if refresh is None else " The sweep is still running."
    blocks: list[Block] = [Text(overview(results) + "." + still)]
    if results.axes:
        blocks += [Table(["axis", "values"], [[label(n), axis_text(x)] for n, x in results.axes.items()])]
    several = len(results.levels("seed").values) > 1
    over = "seeds (settings fixed)" if several else "settings (there is only one seed)"  # see Results.units
    figures = {}
    for k, view in enumerate(views):
        name = "phases" if len(views) == 1 else f"phases-{k + 1}"
        figures[name] = phase_figure(results, view)
        blocks += [Heading("Phases")] * (k == 0) + [Picture(name, view.caption)]
    if results.has("mean", "p_unsafe"):
        figures["frontier"] = settings_figure(results)
        blocks += [Heading("Return against risk"), Picture("frontier", FRONTIER.format(over=over))]
    if results.has(*CURVES):
        figures["curves"] = curves_figure(results)
        blocks += [Heading("During the runs"), Picture("curves", ALONG)]
    blocks += [Heading("Tables"), Table(header, lines[:ROWS]), Text(NOTES.format(over=over))]
    if len(lines) > ROWS:
        blocks += [Text(f"{len(lines) - ROWS:,} more rows are left out here; --json has them all.")]
    return Page(f"Sweep {results.folder.resolve().name}", blocks, figures, refresh)
