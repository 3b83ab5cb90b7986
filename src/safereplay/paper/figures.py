"""Pictures of the reproduction: the paper's two figures, verdicts over one and two dials, curves, distributions.

Ref: Szlak & Shamir (2021), Figure 1, Figure 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..verdicts import VERDICTS
from ..views import drawing
from ..views.drawing import BLUE, COLOURS, GREEN, GREY, ON, ORANGE, RED, new_figure, styled
from .experiments import Cast, Dose, Sweep, usual_policy

if TYPE_CHECKING:
    from .studies import BandRow, Curves, Map, MatchedRate, RandomModels, TdErrors


@styled
def paper_figure(cast: Cast, grid: str, number: int) -> Figure:
    """Figure 1 or 2 of the paper: A the grid with its marked moves, B the learned policies."""
    mdp = cast.mdps[grid]
    rows, columns = mdp.layout.shape if mdp.layout else (1, 1)
    figure, axes = new_figure(1.75 * columns + 0.4, 0.86 * rows + 0.9, 1, 2)
    a, b = axes[0]
    drawing.draw_grid(a, mdp)
    drawing.draw_marked_moves(a, mdp)
    a.set_title(f"Figure {number}A. The {grid} grid")
    drawing.draw_grid(b, mdp)
    for name, colour, shift in (("Q-learning", ORANGE, -0.09), ("replay", BLUE, 0.09)):
        drawing.draw_policy(b, mdp, usual_policy(cast.runs[grid, name]), colour, shift)
    b.set_title(f"Figure {number}B. What is learned")
    marks = [
        Patch(color=RED, label="volatile move" if grid == "volatile" else "move off the cliff"),
        Patch(color=GREEN, label="move to the goal"),
    ]
    a.legend(handles=marks, loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=2, frameon=False)
    learners = [Patch(color=ORANGE, label="Q-learning"), Patch(color=BLUE, label="replay (v = 0.5, β = 5)")]
    b.legend(handles=learners, loc="upper center", bbox_to_anchor=(0.5, -0.01), ncols=2, frameon=False)
    return figure


@styled
def cast_figure(cast: Cast, grid: str) -> Figure:
    """The most frequent policy of every learner on one grid."""
    names = [name for g, name in cast.runs if g == grid]
    mdp = cast.mdps[grid]
    columns = 4
    rows = -(-len(names) // columns)
    height, width = mdp.layout.shape if mdp.layout else (1, 1)
    figure, axes = new_figure(columns * 0.52 * width + 0.4, rows * (0.52 * height + 0.5), rows, columns)
    for ax, name in zip(axes.ravel(), names, strict=False):
        drawing.draw_grid(ax, mdp)
        counts = cast.counts(grid, name).most_common(1)[0]
        drawing.draw_policy(ax, mdp, usual_policy(cast.runs[grid, name]), COLOURS[counts[0]])
        ax.set_title(f"{name}\n{counts[0]} in {counts[1]} of {len(cast.runs[grid, name].seeds)}", fontsize=8.5)
    for ax in axes.ravel()[len(names) :]:
        ax.set_visible(False)
    return figure


def verdict_legend(figure: Figure) -> None:
    """One legend of the four verdicts, under the picture."""
    handles = [Patch(facecolor=COLOURS[v], edgecolor="white", label=v) for v in VERDICTS]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False)


@styled
def sweep_figure(sweep: Sweep, title: str) -> Figure:
    """Verdicts over a dial, learned and exact, on each grid."""
    grids = list(sweep.exact)
    figure, axes = new_figure(8.2, 0.95 * len(grids) + 1.0, len(grids), 1)
    half = float(sweep.values[1] - sweep.values[0]) / 2
    ends = (sweep.values[0] - half, sweep.values[-1] + half)
    for ax, grid in zip(axes[:, 0], grids, strict=True):
        for y, found in ((1, sweep.learned[grid]), (0, sweep.exact[grid])):
            colours = np.array([[to_rgb(COLOURS[one]) for one in found]])
            ax.imshow(colours, extent=(*ends, y + 0.06, y + 0.94), aspect="auto", interpolation="nearest")
            start = 0
            for name, group in groupby(found):
                end = start + len(list(group))
                if end - start >= max(4, len(found) // 16):
                    middle = float(sweep.values[start] + sweep.values[end - 1]) / 2
                    ax.text(middle, y + 0.5, name, color=ON[name], ha="center", va="center", fontsize=8, weight="bold")
                start = end
        ax.set(xlim=ends, ylim=(0, 2), yticks=[0.5, 1.5])
        ax.set_yticklabels(["exact limit", f"learned,\n{sweep.episodes:,} episodes"])
        ax.set_title(f"{title}, {grid} grid")
        ax.tick_params(left=False)
        ax.spines["left"].set_visible(False)
    axes[-1, 0].set_xlabel(sweep.dial)
    verdict_legend(figure)
    return figure


@styled
def bands_figure(bands: Sequence[BandRow]) -> Figure:
    """The κ whose exact limit is safe on the cliff, as a bar for each layout and slip, one panel per γ."""
    gammas = sorted({row.gamma for row in bands})
    layouts = list(dict.fromkeys(row.layout for row in bands))[::-1]
    figure, axes = new_figure(9.6, 0.36 * len(layouts) + 1.1, 1, len(gammas))
    for ax, gamma in zip(axes[0], gammas, strict=True):
        for row in (row for row in bands if row.gamma == gamma):
            y = layouts.index(row.layout) + (0.18 if row.slip_to == "any" else -0.18)
            hatch = None if row.slip_to == "any" else "////"
            if row.band is None:
                ax.plot(0.03, y, marker="x", ms=4, color=GREY)
            else:
                width = max(row.band[1] - row.band[0], 0.01)
                ax.barh(y, width, 0.3, left=row.band[0], color=COLOURS["safe"], hatch=hatch, edgecolor="white", lw=0.3)
        ax.set(xlim=(0, 1), ylim=(-0.6, len(layouts) - 0.4), xlabel="κ", yticks=range(len(layouts)))
        ax.set_yticklabels(layouts if ax is axes[0, 0] else [])
        ax.set_title(f"γ = {gamma:g}")
    safe, other = COLOURS["safe"], "safe, a slip goes one of the other ways"
    handles = [
        Patch(facecolor=safe, label="safe, a slip goes any way"),
        Patch(facecolor=safe, edgecolor="white", hatch="////", label=other),
        Line2D([], [], marker="x", ms=4, color=GREY, lw=0, label="no κ is safe"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
    return figure


@styled
def maps_figure(maps: Sequence[Map], grid: str) -> Figure:
    """Verdicts over two settings: a cell's colour mixes its seeds' verdicts, its letter is the most frequent one, large if all agree."""
    columns = min(3, len(maps))
    rows = -(-len(maps) // columns)
    figure, axes = new_figure(3.5 * columns, 3.0 * rows + 0.3, rows, columns)
    palette = np.array([to_rgb(COLOURS[v]) for v in VERDICTS])
    for ax, found in zip(axes.ravel(), maps, strict=False):
        ax.imshow(found.shares @ palette, aspect="auto", origin="lower")
        top = found.shares.argmax(-1)
        for k, name in enumerate(VERDICTS):
            y, x = np.nonzero(top == k)
            sure = found.shares[y, x, k] == 1.0
            ax.scatter(x, y, s=np.where(sure, 40, 16), marker=f"${drawing.LETTERS[name]}$", color=ON[name], lw=0.3)
        columns_at, rows_at = found.x.values, found.y.values
        ax.set_xticks(range(len(columns_at)), [f"{x:g}" for x in columns_at], rotation=60, fontsize=8)
        ax.set_yticks(range(len(rows_at)), [y if isinstance(y, str) else f"{y:g}" for y in rows_at], fontsize=8)
        ax.set(xlabel=found.x.name, ylabel=found.y.name)
        ax.set_title(f"{found.title}, {grid}", fontsize=9)
    for ax in axes.ravel()[len(maps) :]:
        ax.set_visible(False)
    verdict_legend(figure)
    return figure


@styled
def dose_figure(dose: Dose) -> Figure:
    """The exact risk and mean return of the learned policies over v or β."""
    grids = list(dose.verdicts)
    figure, axes = new_figure(8.2, 2.5 * len(grids), len(grids), 2)
    for (risk_ax, mean_ax), grid in zip(axes, grids, strict=True):
        for ax, data, name in ((risk_ax, dose.p_unsafe[grid], "P(unsafe)"), (mean_ax, dose.mean[grid], "mean return")):
            ax.plot(dose.values, data, ".", color=BLUE, alpha=0.25, ms=4)
            ax.plot(dose.values, np.median(data, 1), "-", color=BLUE, lw=1.8)
            ax.set(xlabel=dose.dial, ylabel=name)
            ax.set_title(f"{name}, {grid}")
        risk_ax.set_ylim(bottom=-0.005)
    return figure


@styled
def curves_figure(curves: Sequence[Curves]) -> Figure:
    """w_t against w^∞, and Q against the paper's limit and the limit with d(s,a), for both mixings."""
    grids = list(dict.fromkeys(c.grid for c in curves))
    figure, axes = new_figure(9.6, 2.7 * len(grids), len(grids), 3)
    for row, grid in zip(axes, grids, strict=True):
        for c in (c for c in curves if c.grid == grid):
            style = "-" if c.mixing == "literal" else "--"
            row[0].loglog(c.episodes, np.median(c.w_distance, 0), style, color="#5b4b8a", label=c.mixing)
            ax = row[1 if c.mixing == "literal" else 2]
            for errors, colour, name in (
                (c.error_paper, RED, "the paper's limit"),
                (c.error_visited, GREEN, "the limit with d(s,a)"),
            ):
                ax.loglog(c.episodes, errors.T, color=colour, alpha=0.25, lw=0.8)
                ax.loglog(c.episodes, np.median(errors, 0), color=colour, label=name)
            ax.set_title(f"{c.mixing} mixing, {grid}")
        row[0].set_title(f"distance of w_t, {grid}")
        row[0].set_ylabel("total variation to w^∞")
        row[1].set_ylabel("largest error / range of Q")
        for ax in row:
            ax.set_xlabel("episodes")
            ax.legend(frameon=False, fontsize=8.5)
    return figure


@styled
def random_figure(random: RandomModels) -> Figure:
    """Each random model as a dot: the learned Q's error against the paper's limit, and against the one with d(s,a)."""
    figure, axes = new_figure(5.2, 3.9)
    ax = axes[0, 0]
    groups = (
        ([c for c in random.cases if not c.differs], GREY, "x", "limits differ by less than the noise"),
        ([c for c in random.differing if c.nearer], GREEN, "o", "nearer to the limit with d(s,a)"),
        (list(random.exceptions), RED, "D", "nearer to the paper's limit"),
    )
    for cases, colour, marker, name in groups:
        x, y = [c.error_paper for c in cases], [c.error_visited for c in cases]
        ax.loglog(x, y, marker, color=colour, ms=4, lw=0, alpha=0.75, label=f"{name} ({len(cases)})")
    ends = [min(ax.get_xlim()[0], ax.get_ylim()[0]), max(ax.get_xlim()[1], ax.get_ylim()[1])]
    ax.plot(ends, ends, color="#3d4450", lw=0.8, ls=":")
    ax.set(xlabel="error against the paper's limit / range of Q", ylabel="error against the limit with d(s,a)")
    ax.set_title(f"{len(random.cases)} random models")
    ax.legend(frameon=False, fontsize=8.5)
    return figure


@styled
def rate_figure(rate: MatchedRate) -> Figure:
    """Matched mixing against the paper's limit, as episodes grow."""
    figure, axes = new_figure(5.2, 3.9)
    ax = axes[0, 0]
    for name, errors in rate.errors.items():
        colour = {"volatile": RED, "cliff": BLUE}.get(name, GREY)
        label = f"{name}: slope {rate.slopes[name]:.2f}" if colour != GREY else None
        ax.loglog(rate.episodes[name], np.median(errors, 0), "o-", ms=3, color=colour, label=label, alpha=0.9)
    others = [slope for name, slope in rate.slopes.items() if name not in ("volatile", "cliff")]
    if others:
        span = f"{min(others):.2f} to {max(others):.2f}"
        ax.plot([], [], "o-", ms=3, color=GREY, label=f"{len(others)} random models: {span}")
    ax.set(xlabel="episodes", ylabel="largest error / range of Q", title="Matched mixing against the paper's limit")
    ax.legend(frameon=False, fontsize=8.5)
    return figure


@styled
def td_figure(td: TdErrors) -> Figure:
    """The TD errors of a risk-sensitive learner, one panel per grid."""
    figure, axes = new_figure(8.2, 2.5, 1, len(td.delta))
    for ax, grid in zip(axes[0], td.delta, strict=True):
        edges, shares = td.histogram(grid)
        ax.stairs(shares, edges, fill=True, color=BLUE, alpha=0.8)
        ax.set_yscale("log")
        ax.set(xlabel="TD error δ", ylabel="share of updates")
        ax.set_title(f"TD errors, {grid} grid, κ = {td.kappa:g}")
    return figure


@styled
def hero_figure(cast: Cast) -> Figure:
    """The README's first picture: the cliff under plain Q-learning and under shaped replay."""
    mdp = cast.mdps["cliff"]
    figure, axes = new_figure(8.4, 3.3, 1, 2)
    for ax, name, colour in zip(axes[0], ("Q-learning", "replay"), (ORANGE, BLUE), strict=True):
        drawing.draw_grid(ax, mdp)
        drawing.draw_policy(ax, mdp, usual_policy(cast.runs["cliff", name]), colour)
        risk = cast.risk["cliff", name]
        label = "Q-learning" if name == "Q-learning" else "Q-learning with shaped replay"
        ax.set_title(f"{label}\nfalls in {risk.p_unsafe:.1%} of episodes", color=colour, fontsize=12)
    return figure
