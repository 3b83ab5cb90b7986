"""Drawing: one style, one colour per verdict, grids with their policies, and pictures of the theory.

Functions that draw use matplotlib Figures without pyplot: no global state, no window. Each verdict has the same colour
everywhere, and a letter or a hatch, so that no information is in colour alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrow, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from .._checks import Floats, Ints
from .._files import write_atomic
from ..grids import ARROWS, MOVES
from ..theory.occupancy import SLACK
from ..verdicts import NO_PATH, has_paths, path

if TYPE_CHECKING:
    from ..mdp import TabularMDP
    from ..theory.conditions import Settling
    from ..theory.losses import EquivalentLoss
    from ..theory.risk import Distribution
    from ..theory.theorem2 import Theorem2
    from ..theory.tuning import Plan
    from ..theory.xray import Xray

P = ParamSpec("P")
ORANGE, BLUE = "#e07b00", "#1f6fb4"  # the paper's: Q-learning, replay
GREEN, RED, GREY = "#2a9d5c", "#c8323c", "#8a8f98"
INK = "#1d2330"  # text
COLOURS = {"safe": "#3b8fc4", "risky": "#f0a23b", "jumps": "#b3384b", "stuck": "#b9bec7", NO_PATH: "#dcd6e8"}
ON = {name: "white" if name == "jumps" else INK for name in COLOURS}  # text on these colours
LETTERS = {"safe": "S", "risky": "R", "jumps": "J", "stuck": "–", NO_PATH: "N"}
VALUES = "viridis"
MANY_CELLS = 900  # above this a grid is drawn as an image of V, without arrows
#: The corners, in (column, row) within a cell, of the triangles for up, right, down and left.
CORNERS = [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]
TRIANGLES = np.array([[a, b, (0.5, 0.5)] for a, b in pairwise(CORNERS)])
Files: TypeAlias = dict[str, bytes]  #: a figure that was rendered: content by kind of file
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.hashsalt": "safereplay",
    "svg.fonttype": "path",
    "figure.dpi": 110,
    "text.hinting": "none",  # faster
}
EXPONENT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in this style, independent of the user's matplotlib settings."""

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc_context(STYLE):
            figure = draw(*args, **kwargs)
            for ax in figure.axes:
                for axis in (ax.xaxis, ax.yaxis):
                    if axis.get_scale() == "log":
                        _log_ticks(axis)
            return figure

    return in_style


def _log_ticks(axis: Axis) -> None:
    """Label a short logarithmic axis with plain numbers, and a long one with powers of ten.

    Without matplotlib's minor ticks and formulas, which take a fifth of the time of a page.
    """
    low, high = np.log10(axis.get_view_interval())
    if (decades := high - low) < 3:
        subs = (1.0, 2.0, 5.0) if decades < 2 else (1.0, 3.0) if decades < 2.5 else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs))
        axis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    else:
        axis.set_major_formatter(lambda x, _: "10" + f"{np.log10(x):.0f}".translate(EXPONENT))
    axis.set_minor_locator(NullLocator())


def render(figure: Figure) -> Files:
    """A figure as the content of an SVG and of a PNG file; the same figure gives the same bytes."""
    with rc_context(STYLE):
        engine = figure.get_layout_engine()
        if engine is not None:  # compute the layout once for both formats
            engine.execute(figure)
            figure.set_layout_engine(None)
        files = {}
        for kind, meta in (("svg", {"Date": None}), ("png", {"Software": None})):
            buffer = BytesIO()
            figure.savefig(buffer, format=kind, dpi=120, metadata=meta)
            files[kind] = buffer.getvalue()
    return files


def save(figure: Figure | Files, folder: Path, name: str) -> None:
    """Write a figure as ``name.svg`` and ``name.png``."""
    for kind, content in (render(figure) if isinstance(figure, Figure) else figure).items():
        write_atomic(folder / f"{name}.{kind}", content)


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """A figure, and its axes [rows, columns]."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw_grid(ax: Axes, mdp: TabularMDP) -> None:
    """The cells of a grid: walls dark, hazards red and crossed, goals green with a G, the start yellow with an S."""
    layout = mdp.layout
    if layout is None:
        raise TypeError("only a grid can be drawn")
    fill = {"#": "#3d4450", "X": "#f3c6c9", "G": "#cdead8"}
    start = layout.cells[layout.origin]
    for i, line in enumerate(layout.rows):
        for j, symbol in enumerate(line):
            shade = "#fdf0c4" if (i, j) == start else fill.get(symbol, "white")
            ax.add_patch(Rectangle((j, i), 1, 1, facecolor=shade, edgecolor="#c9ced6", lw=0.8))
            if symbol == "X":
                ax.plot([j + 0.25, j + 0.75], [i + 0.25, i + 0.75], color=RED, lw=1.2, alpha=0.7)
                ax.plot([j + 0.25, j + 0.75], [i + 0.75, i + 0.25], color=RED, lw=1.2, alpha=0.7)
            elif symbol == "G":
                ax.text(j + 0.5, i + 0.5, "G", ha="center", va="center", color=GREEN, weight="bold", fontsize=12)
    halo = [withStroke(linewidth=2, foreground="white")]  # for dark cells
    y, x = start[0] + 0.07, start[1] + 0.07
    ax.text(x, y, "S", va="top", color=INK, weight="bold", fontsize=8, zorder=4, path_effects=halo)
    ax.set(xlim=(0, layout.shape[1]), ylim=(layout.shape[0], 0), xticks=[], yticks=[], aspect="equal")
    for spine in ax.spines.values():
        spine.set_visible(False)


def draw_marked_moves(ax: Axes, mdp: TabularMDP) -> None:
    """Panel A: volatile moves red, moves into the goal green, moves that fall red as well."""
    layout = mdp.layout
    if layout is None:
        return
    for s, cell in enumerate(layout.cells):
        for a in range(4):
            outcome = mdp.outcomes(s, a)
            if not outcome.p.size:
                continue
            k = int(outcome.p.argmax())
            symbol = layout.rows[cell[0]][cell[1]]
            if outcome.terminal[k]:
                _arrow(ax, cell, a, RED if outcome.unsafe[k] else GREEN)
            elif symbol in ARROWS and ARROWS.index(symbol) == a:
                _arrow(ax, cell, a, RED)


def draw_policy(ax: Axes, mdp: TabularMDP, policy: Ints, colour: str, shift: float = 0.0) -> None:
    """A policy as one arrow per cell; if the model has paths, the one from the origin as a line under the arrows."""
    layout = mdp.layout
    if layout is None:
        return
    drawn = [layout.cells[s] for s in path(mdp, policy).states] if has_paths(mdp) else []
    xs, ys = [c[1] + 0.5 + shift for c in drawn], [c[0] + 0.5 + shift for c in drawn]
    ax.plot(xs, ys, color=colour, lw=6, alpha=0.25, solid_capstyle="round", solid_joinstyle="round")
    for s, cell in enumerate(layout.cells):
        if not mdp.is_terminal[s]:
            _arrow(ax, cell, int(policy[s]), colour, shift=shift, length=0.34)


def _arrow(ax: Axes, cell: tuple[int, int], a: int, colour: str, shift: float = 0.0, length: float = 0.42) -> None:
    dy, dx = (length * step for step in MOVES[a])
    y, x = cell[0] + 0.5 + shift, cell[1] + 0.5 + shift
    offset = 0.25 if length > 0.4 else -0.5  # a marked move crosses the cell's border, a policy's arrow stays inside
    style: Any = {"width": 0.05, "head_width": 0.19, "head_length": 0.14, "length_includes_head": True, "zorder": 3}
    style |= {"facecolor": colour, "edgecolor": INK, "lw": 0.7 if colour == "white" else 0}  # for bright cells
    ax.add_patch(FancyArrow(x + dx * offset, y + dy * offset, dx, dy, **style))


class Panel(NamedTuple):
    """Action values, their policy and a title."""

    title: str
    Q: Floats  #: [S, A]
    policy: Ints  #: [S]


@styled
def values_figure(mdp: TabularMDP, panels: list[Panel]) -> Figure:
    """Q as colour, one triangle per action, and the policy as arrows; all panels share one scale."""
    layout = mdp.layout
    rows, columns = layout.shape if layout else (4, 6)
    across = len(panels) if len(panels) <= 3 else 2
    scale = min(0.75 if across <= 2 else 0.52, 9.0 / max(rows, columns))
    down = -(-len(panels) // across)
    figure, axes = new_figure(across * scale * columns + 1.2, down * (scale * rows + 0.5) + 0.4, down, across)
    shown = np.concatenate([panel.Q[~mdp.is_terminal].ravel() for panel in panels])
    norm = Normalize(float(shown.min()), float(shown.max()) or 1.0)
    for ax, panel in zip(axes.ravel(), panels, strict=False):
        if layout is None:  # states as rows, actions as columns, a dot on the chosen action
            ax.imshow(panel.Q, cmap=VALUES, norm=norm, aspect="auto", interpolation="nearest")
            free = np.flatnonzero(~mdp.is_terminal)
            if free.size <= MANY_CELLS:
                ax.plot(panel.policy[free], free, "o", ms=3, mfc="white", mec=INK, mew=0.6, lw=0)
            ax.set(xlabel="action", ylabel="state", xticks=range(mdp.n_actions))
            ax.yaxis.set_major_locator(MaxNLocator(integer=True))
        elif len(layout.cells) > MANY_CELLS:
            image = np.full(layout.shape, np.nan)
            cells = np.array(layout.cells)
            image[cells[:, 0], cells[:, 1]] = np.where(mdp.is_terminal, np.nan, panel.Q.max(1))
            ax.imshow(image, cmap=VALUES, norm=norm, interpolation="nearest")
            ax.set(xticks=[], yticks=[])
        else:
            _draw_triangles(ax, mdp, panel.Q, cmap=VALUES, norm=norm, lw=0.2, edgecolor="white")
            draw_policy(ax, mdp, panel.policy, "white")
        ax.set_title(panel.title, fontsize=9)
    for ax in axes.ravel()[len(panels) :]:
        ax.set_visible(False)
    bar = figure.colorbar(ScalarMappable(norm, VALUES), ax=axes.ravel().tolist(), fraction=0.03, pad=0.01)
    bar.set_label("Q(s,a)")
    return figure


def _draw_triangles(ax: Axes, mdp: TabularMDP, values: Floats, **style: Any) -> PolyCollection:
    """A grid whose cells have one coloured triangle per action; values [S, A]."""
    draw_grid(ax, mdp)
    free = np.flatnonzero(~mdp.is_terminal)
    cells = np.array(mdp.layout.cells if mdp.layout else ())[free]
    triangles = PolyCollection(list((cells[:, None, None, ::-1] + TRIANGLES[None]).reshape(-1, 3, 2)), **style)
    triangles.set_array(values[free].ravel())
    ax.add_collection(triangles)
    return triangles


@styled
def returns_figure(distributions: Mapping[str, Mapping[str, Distribution]], colours: Mapping[str, str]) -> Figure:
    """P(return ≤ x): one panel per world, one line per policy."""
    figure, axes = new_figure(max(5.6, 4.1 * len(distributions)), 3.0, 1, len(distributions))
    for ax, (world, by_policy) in zip(axes[0], distributions.items(), strict=True):
        low = 0.0
        for name, found in by_policy.items():
            x = np.concatenate(([found.returns[0]], found.returns))
            total = np.concatenate(([0.0], np.cumsum(found.probabilities)))
            ax.step(x, total, where="post", color=colours[name], label=name)
            low = min(low, float(found.returns[np.searchsorted(total[1:], 1e-3)]))
        ax.set_xlim(left=max(float(ax.get_xlim()[0]), low - 1.0))  # cut off the lowest 1 in 1,000
        ax.set(xlabel="return x", ylabel="P(return ≤ x)", ylim=(0, 1.03))
        ax.set_title(f"Returns, {world}")
    handles = {name: Line2D([], [], color=colours[name]) for by in distributions.values() for name in by}
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


@styled
def frontier_figure(plan: Plan) -> Figure:
    """Mean return against risk: all exact limits of replay, the best of all policies, and the limit on risk."""
    limit, shown = plan.limit, plan.limit.measure
    discounted = not np.isfinite(plan.ceiling.value)  # then compare discounted returns
    mean = "mean_discounted" if discounted else "mean"
    best = [(p.limit, p.value_discounted if discounted else p.value) for p in plan.ceiling_frontier]
    best = [point for point in best if np.isfinite(point).all()]
    chosen_mean = plan.profile.mean
    if discounted:
        same = [p.mean_discounted for p in plan.frontier if np.array_equal(plan.policies[p.policy], plan.policy)]
        chosen_mean = same[0] if same else float("nan")
    points = [
        p for p in plan.frontier if np.isfinite([getattr(p, shown), getattr(p, mean)]).all() and p.p_never <= SLACK
    ]
    figure, axes = new_figure(6.4, 3.8)
    ax = axes[0, 0]
    if best:
        x, y = np.array(sorted(best)).T
        ax.plot(x, y, color=GREY, lw=1.4, label="best of all policies (linear program)")
        ax.fill_between(x, y, np.nanmin([*y, *(getattr(p, mean) for p in points)]), color=GREY, alpha=0.08, lw=0)
    style: Any = {"cmap": "viridis_r", "vmin": 0.0, "vmax": 1.0, "linewidth": 0.8, "zorder": 3}
    style |= {"s": [42 if p.pareto else 18 for p in points], "edgecolor": [INK if p.pareto else "none" for p in points]}
    style |= {"c": [p.v for p in points], "label": "replay, exact limits (black edge: not dominated)"}
    dots = ax.scatter([getattr(p, shown) for p in points], [getattr(p, mean) for p in points], **style)
    figure.colorbar(dots, ax=ax, label="v", fraction=0.04, pad=0.02)
    for point, marker, colour, name in (
        ((getattr(plan.plain, shown), getattr(plan.plain, mean)), "s", ORANGE, "plain Q-learning"),
        ((plan.risk, chosen_mean), "*", BLUE, plan.learner.describe()),
    ):
        ax.plot(*point, marker, ms=13 if marker == "*" else 8, mfc=colour, mec="white", lw=0, label=name, zorder=4)
    ax.axvline(limit.value, color=RED, lw=1.0, ls="--", label=str(limit))
    ax.set(xlabel=limit.label, ylabel="discounted return" if discounted else "mean return")
    ax.set_title("Mean return against risk")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


@styled
def settling_figure(found: Settling) -> Figure:
    """The distance of w_t from its limit during the runs."""
    figure, axes = new_figure(4.1, 2.7)
    ax = axes[0, 0]
    distance = np.array(found.distance)
    use = distance > 0
    x = np.array(found.episodes)[use]
    ax.loglog(x, distance[use], "o-", ms=3, color="#5b4b8a", label="root mean square of the runs")
    if use.sum() > 1 and np.isfinite(found.rate):
        centre = np.exp(np.log(distance[use]).mean() - found.rate * np.log(x).mean())
        ax.loglog(x, centre * x**found.rate, ":", color=GREY, label=f"∝ episodes^{found.rate:.2f}")
    ax.set(xlabel="episodes", ylabel="total variation")
    ax.set_title("w_t to w^∞" if found.limit else "w_t to w_2t")
    ax.legend(frameon=False, fontsize=8)
    return figure


@styled
def loss_figure(found: EquivalentLoss, reach: float = 3.0) -> Figure:
    """The weights of a scheme by TD error, and its equivalent loss beside the squared loss, for errors up to ``reach``."""
    figure, axes = new_figure(7.6, 2.9, 1, 2)
    left, right = axes[0]
    delta = np.linspace(-reach, reach, 301)
    name = type(found.scheme).__name__
    left.plot(delta, found.weight(delta), color=BLUE, label=name)
    left.axhline(1.0, color=GREY, lw=1, ls="--", label="uniform replay")
    left.set(title="Weight of an outcome, g(δ)", xlabel="TD error δ", ylim=(0, None))
    right.plot(delta, found.loss(delta), color=BLUE, label=f"equivalent to {name}")
    right.plot(delta, delta**2 / 2, color=GREY, lw=1, ls="--", label="squared loss, δ²/2")
    right.set(title="Loss, L(δ)", xlabel="TD error δ", ylim=(0, None))
    for ax in (left, right):
        ax.legend(frameon=False, loc="upper center")
    return figure


@styled
def switch_figure(mdp: TabularMDP, theorem: Theorem2) -> Figure:
    """The smallest v at which each state's action changes; grey where it never does."""
    layout = mdp.layout
    first = {x.s: x.v_switch for x in theorem.states}
    if layout is None:
        figure, axes = new_figure(6.4, 2.6)
        s = [x for x in first if first[x] is not None]
        axes[0, 0].bar(s, [first[x] or 0.0 for x in s], color=BLUE)
        axes[0, 0].set(xlabel="state", ylabel="smallest v", ylim=(0, 1))
        axes[0, 0].set_title("Where replay changes the action")
        return figure
    rows, columns = layout.shape
    figure, axes = new_figure(0.75 * columns + 1.4, 0.75 * rows + 0.6)
    ax = axes[0, 0]
    draw_grid(ax, mdp)
    norm = Normalize(0.0, 1.0)
    colour = ScalarMappable(norm, "Blues_r")
    for x in theorem.states:
        i, j = layout.cells[x.s]
        shade = "#eceff3" if x.v_switch is None else colour.cmap(norm(x.v_switch))
        ax.add_patch(Rectangle((j, i), 1, 1, facecolor=shade, edgecolor="white", lw=0.8))
        dark = x.v_switch is not None and x.v_switch < 0.5
        text = "–" if x.v_switch is None else f"{x.v_switch:.2g}"
        ink = "white" if dark else "#3d4450"
        ax.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8, color=ink, weight="bold")
    figure.colorbar(colour, ax=ax, label="smallest v", fraction=0.04, pad=0.02)
    ax.set_title("Where replay changes the action")
    return figure


@styled
def xray_figure(mdp: TabularMDP | None, found: Xray) -> Figure:
    """Left: the distance of each pair's updates from its outcomes. Right: p and p̃ of what was replayed most."""
    top = found.most_replayed(8)[::-1]
    grid = mdp is not None and mdp.layout is not None and len(mdp.layout.cells) <= MANY_CELLS
    figure, axes = new_figure(9.2 if grid else 5.4, 3.2, 1, 1 + grid)
    if grid and mdp is not None:
        ax, style = axes[0, 0], {"cmap": "Reds", "norm": Normalize(0, 1), "lw": 0.3, "edgecolor": "#dfe3ea"}
        shifted = _draw_triangles(ax, mdp, np.nan_to_num(found.shift), **style)
        ax.set_title("Shift of the outcomes in updates")
        figure.colorbar(shifted, ax=ax, label="½ Σ |p̃ − p|", fraction=0.04, pad=0.02)
    ax, y = axes[0, -1], np.arange(len(top))
    ax.barh(y + 0.2, [x.p for x in top], 0.36, color=GREY, label="p: in the world")
    ax.barh(y - 0.2, [x.p_tilde for x in top], 0.36, color=RED, label="p̃: in the updates")
    labels = [f"{found.place(x.s)} {found.action(x.a)}, r = {x.r:g} ({x.share:.0%})" for x in top]
    ax.set_yticks(y, labels, fontsize=8)
    ax.set(xlim=(0, 1), xlabel="probability")
    ax.set_title("Replayed most (share of all replays)")
    figure.legend(loc="outside lower right", ncols=2, frameon=False, fontsize=8)
    return figure
