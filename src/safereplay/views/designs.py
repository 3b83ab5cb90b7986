"""The page of ``design``: both policies, the pairs that are replayed, and what the limit costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from ..grids import MOVES
from ..learners import QLearning
from ..theory.limits import exact
from ..theory.risk import RiskProfile, evaluate
from . import drawing
from .document import Block, Picture, Table, Text
from .pages import Page, number

if TYPE_CHECKING:
    from .._checks import Floats
    from ..mdp import TabularMDP
    from ..theory.design import Design, Replayed

ARROWS = "↑→↓←"
MEANINGS = (
    "ρ is the share of replays in the updates of a pair, p̃ the probabilities of its outcomes in all its updates. "
    "Its value is the mean of r + γ·V(s'), in the world and with replay."
)
PAIRS = ["pair", "what is replayed", "ρ", "true share", "share in p̃", "value", "with replay"]
LEARNER = "learner.json"  # the learner of the design, beside its page
LABELLED = 12  # replayed pairs, at most, whose ρ is written on the board


class Learned(NamedTuple):
    """A confirmation by learning: how many seeds ended with what was designed."""

    met: int
    seeds: int
    episodes: int


class Shown:
    """A design as it is shown: from the start of the episodes whose risk counts, beside plain Q-learning.

    Parameters
    ----------
    plan : Design
    here : TabularMDP; the model from that start
    learned : Learned, optional
    """

    def __init__(self, plan: Design, here: TabularMDP, learned: Learned | None = None) -> None:
        self.plan, self.here, self.learned = plan, here, learned

    @cached_property
    def plain(self) -> Floats:
        """Q of plain Q-learning, [S, A]."""
        return exact(self.plan.mdp, QLearning())

    @cached_property
    def profiles(self) -> tuple[RiskProfile, RiskProfile]:
        """The risk of plain Q-learning's policy and of the designed one."""
        price = self.plan.price
        if price is not None:
            return price.plain, price.profile
        before, after = (evaluate(self.here, p, quiet=True) for p in (self.plain.argmax(1), self.plan.policy))
        return before, after

    @property
    def goal(self) -> str:
        """What is asked for."""
        return "a given policy" if self.plan.price is None else str(self.plan.price.limit)

    @property
    def start(self) -> str:
        """Where the episodes start."""
        at = np.flatnonzero(self.here.start)
        return f"from {self.place(int(at[0]))}" if at.size == 1 else f"from {at.size} states"

    @property
    def replay(self) -> str:
        """The amount of replay."""
        n, v = len(self.plan.replays), self.plan.v
        pairs = "1 outcome is" if n == 1 else f"{n} outcomes are"
        return f"v = {v:.4g} with matched mixing; {pairs} replayed" if n else "Nothing needs to be replayed: v = 0"

    @property
    def confirmation(self) -> str:
        """What learning gave; empty if there was none."""
        if self.learned is None:
            return ""
        what = "learned the policy" if self.plan.price is None else "keep the limit"
        return f"{self.learned.met} of {self.learned.seeds} seeds {what} after {self.learned.episodes:,} episodes"

    @property
    def notes(self) -> list[str]:
        """Facts that limit what is claimed."""
        said, price, tied = [], self.plan.price, np.argwhere(self.plan.tied)
        if price is not None and price.found.gap > 0:
            said.append(
                f"The search was not finished: a deterministic policy may have a mean of up to {price.found.bound:.4g}."
            )
        for s, a in tied[:3]:
            said.append(
                f"{self.pair(s, a)} is as good as the designed action in the limit: learning may end with either."
            )
        return [*said, f"... and {len(tied) - 3} more such pairs."] if len(tied) > 3 else said

    def place(self, s: int) -> str:
        """A state: its cell on a grid."""
        layout = self.here.layout
        return f"state {s}" if layout is None else "({}, {})".format(*layout.cells[s])

    def pair(self, s: int, a: int) -> str:
        """A pair: the cell and an arrow on a grid."""
        return f"{self.place(s)} {f'action {a}' if self.here.layout is None else ARROWS[a]}"

    def outcome(self, one: Replayed) -> str:
        """A replayed outcome."""
        found = self.here.outcomes(one.state, one.action)
        alike = (found.s_next == one.s_next) & (found.r == one.r)
        return f"r = {one.r:g}, to {self.place(one.s_next)}" + ", unsafe" * bool(found.unsafe[alike].any())

    def pairs(self) -> list[list[str]]:
        """A row per replayed outcome, under :data:`PAIRS`."""
        rows = []
        for one in self.plan.replays:
            shares = [f"{x:.2%}" for x in (one.rho, one.p, one.p_shaped)]
            values = [f"{x:.3f}" for x in (one.value, one.value_shaped)]
            rows.append([self.pair(one.state, one.action), self.outcome(one), *shares, *values])
        return rows

    def points(self) -> list[tuple[str, float, float]]:
        """(policy, limited quantity, mean) of what is compared; P(unsafe) if a policy was given."""
        before, after = self.profiles
        price = self.plan.price
        if price is None:
            return [("plain Q-learning", before.p_unsafe, before.mean), ("designed replay", after.p_unsafe, after.mean)]
        named = {"plain Q-learning": before, "designed replay": after}
        named["best deterministic policy"] = price.deterministic.profile
        found = [(name, price.limit.risk(profile), profile.mean) for name, profile in named.items()]
        return [*found, ("best of all policies", price.ceiling.risk, price.ceiling.value)]

    def prices(self) -> tuple[list[str], list[list[str]]]:
        """The header and the rows of the comparison."""
        price = self.plan.price
        label = "P(unsafe)" if price is None else price.limit.label

        def risk(x: float) -> str:
            return "—" if not np.isfinite(x) else f"{x:.2%}" if label == "P(unsafe)" else f"{x:.3f}"

        return ["", label, "mean return"], [[name, risk(x), number(mean, 3)] for name, x, mean in self.points()]

    def sentences(self) -> str:
        """What was done, in three sentences."""
        before, after = self.profiles
        header, rows = self.prices()
        risks = {name: x for name, x, _ in rows}
        first = f"Q-learning's policy has {header[1]} {risks['plain Q-learning']} {self.start} and a mean return of {number(before.mean, 3)}."
        listed = self.plan.replays
        if not listed:
            return f"{first} It is already the best policy here, so nothing needs to be replayed."
        own = any(self.plan.policy[one.state] == one.action for one in listed)
        n = len({(one.state, one.action) for one in listed})
        whose, these, look = ("one pair", "it", "looks") if n == 1 else (f"each of {n} pairs", "they", "look")
        effect = "which changes their values" if own else f"so {these} {look} worse than in the world"
        second = f"One outcome of {whose} is replayed, {effect}, and the designed policy has the highest values."
        third = f"It has {header[1]} {risks['designed replay']} and a mean return of {number(after.mean, 3)}"
        if self.plan.price is not None:
            best = self.plan.price.deterministic.profile.mean, self.plan.price.ceiling.value
            third += f"; the best deterministic policy under this limit has {number(best[0], 3)}, the best of all policies {number(best[1], 3)}"
        return f"{first} {second} {third}."


def design_page(shown: Shown) -> Page:
    """Both policies, the pairs that are replayed, and the price."""
    header, rows = shown.prices()
    boards, caption = _boards(shown), "The policies of plain Q-learning and of designed replay."
    if shown.here.layout is not None:
        caption += " Cells are (row, column), from (0, 0) at the top left."
    if shown.plan.replays:
        caption += " Red: the pairs that are replayed"
        caption += "." if shown.here.layout is None else "; numbers: ρ, the share of replays in their updates."
    first, *beside = boards
    blocks: list[Block] = [Text(shown.sentences()), Picture(first, caption, tuple(beside))]
    if shown.plan.replays:
        pairs = [[row[0].replace(" ", "\u00a0"), *row[1:]] for row in shown.pairs()]
        blocks += [Text(f"{shown.replay}. {MEANINGS}"), Table(PAIRS, pairs)]
    blocks += [
        Text(f"The learner is in {LEARNER}, beside this page. To train it: safereplay learn MODEL --learner {LEARNER}")
    ]
    price = f"Mean return against {header[1]}, {shown.start}."
    if shown.plan.price is not None:
        price += " The best of all policies may choose actions at random, which a learned policy does not."
    blocks += [Picture("price", price), Table(header, rows)]
    said = [shown.confirmation and f"{shown.confirmation}.", *shown.notes]
    blocks += [Text(text) for text in said if text]
    return Page(
        f"Replay by design on {shown.plan.mdp.name}: {shown.goal}", blocks, {**boards, "price": price_figure(shown)}
    )


def _boards(shown: Shown) -> dict[str, Figure]:
    """The figures of both policies: one per grid, or one of both."""
    layout = shown.plan.mdp.layout
    if layout is None or len(layout.cells) > drawing.MANY_CELLS:
        return {"policies": boards_figure(shown)}
    return {"plain": boards_figure(shown, ("plain",)), "designed": boards_figure(shown, ("designed",))}


@drawing.styled
def boards_figure(shown: Shown, which: Sequence[str] = ("plain", "designed")) -> Figure:
    """The policies of plain Q-learning and of the design, with the pairs that are replayed; or one of them, on a grid."""
    plan, mdp, layout = shown.plan, shown.plan.mdp, shown.plan.mdp.layout
    before, after = shown.plain.argmax(1), plan.policy
    if layout is None or len(layout.cells) > drawing.MANY_CELLS:
        panels = [("plain Q-learning", shown.plain, before), ("designed replay", plan.Q, after)]
        figure = drawing.values_figure(mdp, [drawing.Panel(*panel) for panel in panels])
        for one in plan.replays if layout is None else ():
            corner = one.action - 0.5, one.state - 0.5
            figure.axes[1].add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=drawing.RED, lw=2, zorder=4))
        return figure
    rows, columns = layout.shape
    scale, n = min(0.75, 9.0 / max(rows, columns)), len(which)
    figure, axes = drawing.new_figure(n * (scale * columns + 0.3), scale * rows + 0.6, 1, n)
    boards = {
        "plain": ("plain Q-learning", before, drawing.ORANGE),
        "designed": ("designed replay", after, drawing.BLUE),
    }
    for ax, side in zip(axes[0], which, strict=True):
        name, policy, colour = boards[side]
        drawing.draw_grid(ax, mdp)
        drawing.draw_policy(ax, mdp, policy, colour)
        ax.set_title(name, fontsize=9)
        if side == "designed":
            draw_replays(ax, plan)
    return figure


def draw_replays(ax: Axes, plan: Design) -> None:
    """On a grid, the pairs that are replayed: a red bar on that side of the cell, with ρ."""
    layout = plan.mdp.layout
    if layout is None:
        return
    halo = [withStroke(linewidth=2, foreground="white")]
    for k, one in enumerate(plan.replays):
        (i, j), (dy, dx) = layout.cells[one.state], MOVES[one.action]
        wide, high = (0.7, 0.09) if dy else (0.09, 0.7)
        y, x = i + 0.5 + 0.4 * dy, j + 0.5 + 0.4 * dx
        ax.add_patch(Rectangle((x - wide / 2, y - high / 2), wide, high, facecolor=drawing.RED, lw=0, zorder=4))
        if k < LABELLED:
            style: Any = {"fontsize": 7, "color": drawing.RED, "weight": "bold", "va": "center", "path_effects": halo}
            style["ha"] = {-1: "left", 0: "center", 1: "right"}[dx]
            ax.text(j + 0.5 + 0.33 * dx, i + 0.5 + (0.24 * dy or -0.33), f"{one.rho:.0%}", zorder=5, **style)


@drawing.styled
def price_figure(shown: Shown) -> Figure:
    """Mean return against risk: plain Q-learning, the design, and the best of others."""
    price = shown.plan.price
    looks: Any = {
        "plain Q-learning": ("s", 8, drawing.ORANGE, "white"),
        "designed replay": ("*", 14, drawing.BLUE, "white"),
        "best deterministic policy": ("o", 15, "none", drawing.GREEN),
        "best of all policies": ("D", 7, drawing.GREY, "white"),
    }
    figure, axes = drawing.new_figure(5.6, 3.0)
    ax = axes[0, 0]
    for name, x, mean in shown.points():
        if np.isfinite([x, mean]).all():
            marker, size, colour, edge = looks[name]
            ax.plot(x, mean, marker, ms=size, mfc=colour, mec=edge, mew=1.2, lw=0, label=name, zorder=3)
    label = "P(unsafe)"
    if price is not None:
        label = price.limit.label
        ax.axvline(price.limit.value, color=drawing.RED, lw=1.0, ls="--", label=str(price.limit))
    if label == "P(unsafe)":
        ax.xaxis.set_major_formatter(lambda x, _: f"{100 * x:.3g}%")
    ax.margins(0.12, 0.2)
    ax.set(xlabel=label, ylabel="mean return")
    figure.legend(loc="outside right center", frameon=False, fontsize=8, labelspacing=0.9)
    return figure
