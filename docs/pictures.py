"""The pictures of the site that no report has: what replay does to one move, to a policy, to a world."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import safereplay as sr
from safereplay.theory.operator import operator
from safereplay.views.drawing import BLUE, COLOURS, GREY, ON, ORANGE, RED, draw_grid, draw_policy, new_figure, styled

SCHEME = sr.VarianceReplay(beta=5.0)


@styled
def pair_figure() -> Figure:
    """One move along the edge: what it leads to, what is replayed of it, and what it then seems to lead to."""
    mdp = sr.grids.cliff()
    s, a = mdp.layout.cells.index((2, 1)), 1  # the second cell above the cliff, to the right
    one = mdp.outcomes(s, a)
    rewards = [("falls", one.unsafe), ("walks on", ~one.unsafe)]
    here = mdp.pair == s * mdp.n_actions + a
    shaped = operator(mdp, SCHEME, 0.6)
    w = shaped.w[here] / shaped.w[here].sum()
    panels = [
        ("what the move leads to, q", one.p, ORANGE),
        ("what is replayed of it, ŵ", w, GREY),
        ("what it seems to lead to, p̃", shaped.p[here], BLUE),
    ]
    figure, axes = new_figure(8.4, 1.75, 1, 3)
    for ax, (title, p, colour) in zip(axes[0], panels, strict=True):
        shares = [float(p[mask].sum()) for _, mask in rewards]
        bars = ax.barh([name for name, _ in rewards], shares, color=[RED, colour], height=0.62)
        ax.bar_label(bars, [f"{share:.1%}" for share in shares], padding=3, fontsize=9)
        ax.set(xlim=(0, 1.25), xticks=[])
        ax.spines[["bottom", "left"]].set_visible(False)
        ax.tick_params(length=0)
        ax.set_title(title, fontsize=9)
    return figure


@styled
def dial_figure() -> Figure:
    """The same world as the dial is turned: exact limits of matched mixing."""
    mdp = sr.grids.cliff()
    figure, axes = new_figure(9.2, 1.95, 1, 4)
    for ax, v in zip(axes[0], (0.0, 0.45, 0.7, 0.9), strict=True):
        policy = sr.fixed_point(mdp, SCHEME, v).argmax(1)
        found = sr.verdict(mdp, policy)
        risk = sr.evaluate(mdp, policy)
        draw_grid(ax, mdp)
        draw_policy(ax, mdp, policy, ORANGE if found == "risky" else BLUE)
        ax.set_title(f"v = {v:g}: {found}\nfalls {risk.p_unsafe:.1%}, mean {risk.mean:.2f}", fontsize=9)
    return figure


@styled
def worlds_figure() -> Figure:
    """A danger that replay by the variance of the reward detects, and one that it cannot detect."""
    figure, axes = new_figure(9.2, 3.5, 2, 3)
    names = ("volatile", "cliff", "frozen_lake")
    for column, name in enumerate(names):
        mdp = getattr(sr.grids, name)()
        for row, (label, v) in enumerate((("plain", 0.0), ("shaped, v = 0.5", 0.5))):
            policy = sr.fixed_point(mdp, SCHEME, v).argmax(1)
            risk = sr.evaluate(mdp, policy, start=mdp.origin)
            draw_grid(axes[row, column], mdp)
            draw_policy(axes[row, column], mdp, policy, BLUE if v else ORANGE)
            axes[row, column].set_title(
                f"{name}, {label}\nunsafe {risk.p_unsafe:.1%}, mean {risk.mean:.4g}", fontsize=9
            )
    return figure


@styled
def verdict_strip_figure() -> Figure:
    """The rivals' dials on the cliff, from none to most: which way the exact limit goes."""
    mdp = sr.grids.cliff()
    rows = [
        ("replay (matched): v", np.linspace(0, 0.99, 100), lambda x: sr.ReplayQLearning(SCHEME, v=x, mixing="matched")),
        ("Mihatsch–Neuneier: κ", np.linspace(0, 0.99, 100), sr.RiskSensitive),
        ("Gaskett: β", np.linspace(0, 0.99, 100), sr.Pessimistic),
    ]
    figure, axes = new_figure(8.4, 1.9)
    ax = axes[0, 0]
    for y, (_, values, make) in enumerate(rows):
        found = [sr.verdict(mdp, sr.exact(mdp, make(float(x))).argmax(1)) for x in values]
        for x, verdict in zip(values, found, strict=True):
            ax.barh(y, 0.01, left=x, color=COLOURS[verdict], height=0.7, linewidth=0)
        for verdict in dict.fromkeys(found):
            inside = [x for x, one in zip(values, found, strict=True) if one == verdict]
            if len(inside) > 8:
                ax.text(
                    float(np.mean(inside)) + 0.005, y, verdict, ha="center", va="center", color=ON[verdict], fontsize=9
                )
    ax.set(yticks=range(len(rows)), yticklabels=[name for name, _, _ in rows], xlim=(0, 1), xlabel="value of the dial")
    ax.invert_yaxis()
    ax.spines[["left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.set_title("the cliff: which way the exact limit goes", fontsize=9)
    return figure


FIGURES = {
    "idea-pair": pair_figure,
    "idea-dial": dial_figure,
    "idea-worlds": worlds_figure,
    "dials": verdict_strip_figure,
}
