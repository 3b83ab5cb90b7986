"""Which axes of a sweep a picture shows, and how their values are laid out.

By default the two axes of numbers with the most values span a phase diagram, γ last. A third makes columns, models make
rows. A grid of values, even or in powers, becomes cells with true edges; random values are cut into ranges; what is neither
even nor in powers becomes a list of cells of one width.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from .. import _checks
from .._types import AnyArray, Floats, Ints
from .sweeps import Results, label, value_text

METRICS = {
    "verdict": "share of each verdict",
    "p_unsafe": "P(unsafe)",
    "mean": "mean return",
    "std": "standard deviation of the return",
    "cvar10": "CVaR₁₀",
}
CELLS = 48  # an axis of more values than this is cut into ranges
FACETS = 6


class View(NamedTuple):
    """What a phase diagram shows of one learner: its two axes, its facets, and what is averaged over."""

    learner: str
    x: str
    y: str | None
    columns: str | None
    rows: tuple[str, ...]
    pooled: tuple[str, ...]
    metric: str

    @property
    def caption(self) -> str:
        """The picture in words."""
        where = label(self.x) if self.y is None else f"{label(self.x)} and {label(self.y)}"
        if self.metric == "verdict":
            text = f"{self.learner} over {where}: each cell is filled with the ways that its runs take, by their share."
        else:
            text = f"{self.learner} over {where}: {METRICS[self.metric]}, on average over runs whose return has a mean."
        return text + (f" All values of {', '.join(map(label, self.pooled))} together." if self.pooled else "")


def choose_views(
    results: Results, x: str | None = None, y: str | None = None, by: Sequence[str] = (), metric: str | None = None
) -> list[View]:
    """A view of each learner that has the axes asked for; by default the two of most values, γ last.

    Where no metric is asked for, verdicts are shown, or else what was kept; if nothing was, there is no view.
    """
    for name, axis in (("--x", x), ("--y", y), *(("--by", axis) for axis in by)):
        if axis is not None:
            _checks.choice(f"axis for {name}", axis, results.settings)
    _checks.require(x is None or x != y, "--y", "differ from --x", y)
    if metric is None:
        metric = next((name for name in METRICS if results.has(name)), None)
        if metric is None:
            return []
    _checks.choice("metric", metric, METRICS)
    _checks.require(results.has(metric), "--metric", "be something that the sweep kept", metric)
    found = []
    codes, learners = results.levels("learner")
    for k, learner in enumerate(learners):
        view = _choose(results.where(codes == k), str(learner), x, y, by, metric)
        found += [view] if view is not None else []
    asked = ", ".join(axis for axis in (x, y) if axis)
    _checks.require(bool(found) or not asked, "axes", f"vary in some learner ({', '.join(results.axes)} do)", asked)
    return found


def _choose(
    results: Results, learner: str, x: str | None, y: str | None, by: Sequence[str], metric: str
) -> View | None:
    axes = results.axes
    ranked = sorted((n for n in axes if results.is_number(n)), key=lambda n: (n == "gamma", -len(axes[n])))
    free = [n for n in ranked if n not in (x, y, *by)]
    first = x or next(iter(free), None)
    second = y or next((n for n in free if n != first), None)
    if first is None or {first, *([y] if y else [])} - set(axes):
        return None
    if second == "v" and x is None and y is None:  # the paper's dial goes across
        first, second = second, first
    left = sorted((n for n in axes if n not in (first, second)), key=lambda n: -len(axes[n]))
    asked = [n for n in by if n in left]
    rest = [*asked, *(n for n in left if n not in asked)]
    many = len(results.levels("model").values) > 1
    rows = [*asked[1:], *([] if many or asked[1:] else rest[1:2])]
    pooled = tuple(n for n in left if n not in (*rest[:1], *rows))
    return View(learner, first, second, rest[0] if rest else None, ("model", *rows), pooled, metric)


# -- scales and facets ------------------------------------------------------------------------------------------------


class Scale(NamedTuple):
    """An axis as it is drawn: the cell of each of its values, and the edges of the cells."""

    name: str
    kind: str  #: "linear", "log", or "listed": cells of one width, each with its value
    cell: Ints  #: by value's code
    edges: Floats  #: [cells + 1]; exponents of 10 where it is "log"
    values: tuple[Any, ...]

    @property
    def cells(self) -> int:
        """How many there are."""
        return self.edges.size - 1

    def place(self, t: Any) -> AnyArray:
        """From the edges' coordinates to the axis' own."""
        return np.asarray(10.0 ** np.asarray(t) if self.kind == "log" else t)


def scale(results: Results, name: str, bins: int) -> Scale:
    """How the values of an axis are best drawn: as a grid, evenly or in powers, as ranges, or as a list."""
    values = results.levels(name).values
    if not results.is_number(name) or len(values) < 3 or None in values:
        return _listed(name, values)
    x = np.array(values, dtype=float)
    if len(values) > CELLS:
        return _ranges(name, x, bins)
    powers = np.asarray(np.log10(x), dtype=np.float64) if x[0] > 0 else None
    for kind, t in (("linear", x), ("log", powers)):
        if t is not None and _even(t):
            middle = (t[1:] + t[:-1]) / 2
            edges = np.array([2 * t[0] - middle[0], *middle, 2 * t[-1] - middle[-1]])
            return Scale(name, kind, np.arange(x.size), edges.astype(np.float64), values)
    return _listed(name, values)


def _listed(name: str, values: tuple[Any, ...]) -> Scale:
    return Scale(name, "listed", np.arange(len(values)), np.arange(len(values) + 1) - np.float64(0.5), values)


def _ranges(name: str, x: Floats, bins: int) -> Scale:
    """Random values in ranges of one width; in powers of ten where that spreads them more evenly."""
    log = x[0] > 0 and abs(_centre(np.log(x)) - 0.5) < abs(_centre(x) - 0.5) and x[-1] > 5 * x[0]
    t = np.log10(x) if log else x
    edges = np.linspace(t[0], t[-1], bins + 1)
    cell = np.clip(np.searchsorted(edges, t, "right") - 1, 0, bins - 1)
    return Scale(name, "log" if log else "linear", cell, edges, tuple(x))


def _centre(t: Floats) -> float:
    return float((t.mean() - t[0]) / (t[-1] - t[0]))


def _even(t: Floats) -> bool:
    gaps = np.diff(t)
    return bool(gaps.max() < 1.5 * gaps.min())


def facets(results: Results, name: str | None) -> tuple[Ints, list[str]]:
    """The column of each run, and the columns' titles; many values go together in ranges."""
    if name is None:
        return np.zeros(len(results), np.int64), [""]
    codes, values = results.levels(name)
    if len(values) <= FACETS or None in values:
        return codes, [f"{label(name)} = {value_text(x)}" for x in values]
    cuts = np.linspace(0, len(values), FACETS).astype(int)
    column = np.searchsorted(cuts, np.arange(len(values)), "right") - 1
    ends = [(value_text(values[a]), value_text(values[b - 1])) for a, b in pairwise(cuts)]
    return column[codes], [f"{label(name)} {a} … {b}" for a, b in ends]
