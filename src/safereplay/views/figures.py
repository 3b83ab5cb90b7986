"""Pictures of the theory: values and policies, distributions of the return, the frontier, certificates, X-rays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from .._types import Floats, Ints
from ..mdp import TabularMDP
from ..theory.risk import Distribution
from .drawing import draw_grid, draw_policy, new_figure, styled

VALUES = "viridis"
MANY_CELLS = 900  # above this a grid is drawn as an image of V, without arrows
#: The corners, in (column, row) within a cell, of the triangle that stands for up, right, down, left.
TRIANGLES = np.array(
    [
        [(0, 0), (1, 0), (0.5, 0.5)],
        [(1, 0), (1, 1), (0.5, 0.5)],
        [(1, 1), (0, 1), (0.5, 0.5)],
        [(0, 1), (0, 0), (0.5, 0.5)],
    ]
)


class Panel(NamedTuple):
    """Action values to look at, and what to call them."""

    title: str
    Q: Floats  #: [S, A]
    policy: Ints  #: [S]


@styled
def values_figure(mdp: TabularMDP, panels: list[Panel]) -> Figure:
    """Q as colour, one triangle an action, and the policy as arrows; all panels share one scale."""
    rows, columns = mdp.layout.shape if mdp.layout else (4, 6)
    scale = min(0.75, 9.0 / max(rows, columns))
    width = len(panels) * scale * columns + 1.2
    figure, axes = new_figure(width, scale * rows + 0.9, 1, len(panels))
    shown = np.concatenate([panel.Q[~mdp.is_terminal].ravel() for panel in panels])
    norm = Normalize(float(shown.min()), float(shown.max()) or 1.0)
    for ax, panel in zip(axes[0], panels, strict=True):
        _draw_values(ax, mdp, panel, norm)
        ax.set_title(panel.title, fontsize=9)
    bar = figure.colorbar(ScalarMappable(norm, VALUES), ax=axes.ravel().tolist(), fraction=0.03, pad=0.01)
    bar.set_label("Q(s,a)")
    return figure


def _draw_values(ax: Axes, mdp: TabularMDP, panel: Panel, norm: Normalize) -> None:
    layout = mdp.layout
    if layout is None:
        _draw_table(ax, mdp, panel, norm)
    elif len(layout.cells) > MANY_CELLS:
        image = np.full(layout.shape, np.nan)
        cells = np.array(layout.cells)
        image[cells[:, 0], cells[:, 1]] = np.where(mdp.is_terminal, np.nan, panel.Q.max(1))
        ax.imshow(image, cmap=VALUES, norm=norm, interpolation="nearest")
        ax.set(xticks=[], yticks=[])
    else:
        draw_grid(ax, mdp)
        free = np.flatnonzero(~mdp.is_terminal)
        corners = np.array(layout.cells)[free][:, None, None, ::-1] + TRIANGLES[None]
        coloured = PolyCollection(list(corners.reshape(-1, 3, 2)), cmap=VALUES, norm=norm, lw=0.2, edgecolor="white")
        coloured.set_array(panel.Q[free].ravel())
        ax.add_collection(coloured)
        draw_policy(ax, mdp, panel.policy, "white")


def _draw_table(ax: Axes, mdp: TabularMDP, panel: Panel, norm: Normalize) -> None:
    """Where there is no grid: states down, actions across, a dot on the chosen one."""
    ax.imshow(panel.Q, cmap=VALUES, norm=norm, aspect="auto", interpolation="nearest")
    free = np.flatnonzero(~mdp.is_terminal)
    if free.size <= MANY_CELLS:
        ax.plot(panel.policy[free], free, "o", ms=3, mfc="white", mec="#1d2330", mew=0.6, lw=0)
    ax.set(xlabel="action", ylabel="state", xticks=range(mdp.n_actions))


@styled
def returns_figure(distributions: Mapping[str, Mapping[str, Distribution]], colours: Mapping[str, str]) -> Figure:
    """The chance that the return stays at or below x: one panel a world, one line a policy."""
    figure, axes = new_figure(4.1 * len(distributions), 2.6, 1, len(distributions))
    for ax, (world, by_policy) in zip(axes[0], distributions.items(), strict=True):
        low = 0.0
        for name, found in by_policy.items():
            x = np.concatenate(([found.returns[0]], found.returns))
            total = np.concatenate(([0.0], np.cumsum(found.probabilities)))
            ax.step(x, total, where="post", color=colours[name], label=name)
            low = min(low, float(found.returns[np.searchsorted(total[1:], 1e-4)]))
        ax.set_xlim(left=max(float(ax.get_xlim()[0]), low - 1.0))  # a tail of 1 in 10,000 would squeeze the rest
        ax.set(xlabel="return x", ylabel="P(return ≤ x)", ylim=(0, 1.03))
        ax.set_title(f"Returns, {world}")
        ax.legend(frameon=False, fontsize=8)
    return figure
