"""Drawing: one style, one colour per verdict, and grids with their policies.

Functions here and in the modules of figures only draw. They use matplotlib Figures without pyplot: no global state, no
window. Each verdict has the same colour everywhere, and a letter or a hatch, so that no information is in colour alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from io import BytesIO
from pathlib import Path
from typing import Any, ParamSpec

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import FancyArrow, Rectangle
from matplotlib.patheffects import withStroke

from .._files import write_atomic
from .._types import Ints
from ..grids import ARROWS, MOVES
from ..mdp import TabularMDP
from ..verdicts import NO_PATH, has_paths, path

P = ParamSpec("P")

ORANGE, BLUE = "#e07b00", "#1f6fb4"  # the paper's: Q-learning, replay
GREEN, RED, GREY = "#2a9d5c", "#c8323c", "#8a8f98"
INK = "#1d2330"  # text
COLOURS = {"safe": "#3b8fc4", "risky": "#f0a23b", "jumps": "#b3384b", "stuck": "#b9bec7", NO_PATH: "#dcd6e8"}
ON = {name: "white" if name == "jumps" else INK for name in COLOURS}  # text on these colours
LETTERS = {"safe": "S", "risky": "R", "jumps": "J", "stuck": "–", NO_PATH: "N"}
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
}


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in this style, independent of the user's matplotlib settings."""

    @wraps(draw)
    def in_style(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return in_style


def save(figure: Figure, folder: Path, name: str) -> None:
    """Write a figure as ``name.svg`` and ``name.png``; the same figure gives the same bytes."""
    with rc_context(STYLE):
        engine = figure.get_layout_engine()
        if engine is not None:  # compute the layout once for both formats
            engine.execute(figure)
            figure.set_layout_engine(None)
        for kind, meta in (("svg", {"Date": None}), ("png", {"Software": None})):
            buffer = BytesIO()
            figure.savefig(buffer, format=kind, dpi=120, metadata=meta)
            write_atomic(folder / f"{name}.{kind}", buffer.getvalue())


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """A figure, and its axes [rows, columns]."""
    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
    return figure, figure.subplots(rows, columns, squeeze=False)


# -- grids ------------------------------------------------------------------------------------------------------------


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
    ax.text(
        start[1] + 0.07,
        start[0] + 0.07,
        "S",
        va="top",
        color=INK,
        weight="bold",
        fontsize=8,
        zorder=4,
        path_effects=halo,
    )
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
    start = (x + dx * offset, y + dy * offset)
    ax.add_patch(
        FancyArrow(
            *start,
            dx,
            dy,
            width=0.05,
            head_width=0.19,
            head_length=0.14,
            facecolor=colour,
            edgecolor=INK,
            length_includes_head=True,
            lw=0.7 if colour == "white" else 0,  # white arrows may lie on bright cells
            zorder=3,
        )
    )
