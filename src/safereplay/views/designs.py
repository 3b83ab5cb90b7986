"""The page of ``design``: both policies, the pairs that are replayed, and what the limit costs."""

from __future__ import annotations

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
PAIRS = ["pair", "ρ", "what is replayed", "true share", "share in p̃", "value", "with replay"]
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
        mdp = self.here
        found = mdp.outcomes(one.state, one.action)
        alike = (found.s_next == one.s_next) & (found.r == one.r)
        end = ", the end" * bool(found.terminal[alike].all()) + ", unsafe" * bool(found.unsafe[alike].any())
        return f"r = {one.r:g}, to {self.place(one.s_next)}{end}"

    def pairs(self) -> list[list[str]]:
        """A row per replayed outcome, under :data:`PAIRS`."""
        rows = []
        for one in self.plan.replays:
            shares = [f"{one.p:.2%}", f"{one.p_shaped:.2%}", f"{one.value:.3f}", f"{one.value_shaped:.3f}"]
            rows.append([self.pair(one.state, one.action), f"{one.rho:.2%}", self.outcome(one), *shares])
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
        look = "change the value of a few pairs" if own else "make a few other pairs look worse than they are"
        n = len({(one.state, one.action) for one in listed})
        second = f"Replays of one outcome each at {n} pair{'s' * (n != 1)} {look}, so that the designed policy has the highest values."
        third = f"It has {header[1]} {risks['designed replay']} and a mean return of {number(after.mean, 3)}"
        if self.plan.price is not None:
            best = self.plan.price.deterministic.profile.mean, self.plan.price.ceiling.value
            third += f"; the best deterministic policy under this limit has {number(best[0], 3)}, the best of all policies {number(best[1], 3)}"
        return f"{first} {second} {third}."


def design_page(shown: Shown) -> Page:
    """Both policies, the pairs that are replayed, and the price."""
    header, rows = shown.prices()
    figures = {"policies": boards_figure(shown), "price": price_figure(shown)}
    blocks: list[Block] = [
        Text(shown.sentences()),
        Picture(
            "policies",
            "Left: plain Q-learning. Right: designed replay. Red: pairs that are replayed, with ρ, the share of their updates.",
        ),
    ]
    if shown.plan.replays:
        blocks += [Text(f"{shown.replay}."), Table(PAIRS, shown.pairs())]
    blocks += [Picture("price", f"Mean return against {header[1]}, {shown.start}."), Table(header, rows)]
    said = [shown.confirmation and f"{shown.confirmation}.", *shown.notes]
    blocks += [Text(text) for text in said if text]
    return Page(f"Replay by design on {shown.plan.mdp.name}: {shown.goal}", blocks, figures)


@drawing.styled
def boards_figure(shown: Shown) -> Figure:
    """The policies of plain Q-learning and of the design, with the pairs that are replayed."""
    mdp, layout, plan = shown.plan.mdp, shown.plan.mdp.layout, shown.plan
    policies = [
        ("plain Q-learning", shown.plain.argmax(1), drawing.ORANGE),
        ("designed replay", plan.policy, drawing.BLUE),
    ]
    if layout is None or len(layout.cells) > drawing.MANY_CELLS:
        values = (shown.plain, plan.Q)
        return drawing.values_figure(
            mdp, [drawing.Panel(n, Q, p) for (n, p, _), Q in zip(policies, values, strict=True)]
        )
    rows, columns = layout.shape
    scale = min(0.75, 9.0 / max(rows, columns))
    figure, axes = drawing.new_figure(2 * scale * columns + 0.6, scale * rows + 0.6, 1, 2)
    for ax, (name, policy, colour) in zip(axes[0], policies, strict=True):
        drawing.draw_grid(ax, mdp)
        drawing.draw_policy(ax, mdp, policy, colour)
        ax.set_title(name, fontsize=9)
    draw_replays(axes[0, 1], shown)
    return figure


def draw_replays(ax: Axes, shown: Shown) -> None:
    """The pairs that are replayed, as red bars on that side of their cell, with ρ."""
    layout = shown.plan.mdp.layout
    if layout is None:
        return
    halo = [withStroke(linewidth=2, foreground="white")]
    for k, one in enumerate(shown.plan.replays):
        (i, j), (dy, dx) = layout.cells[one.state], MOVES[one.action]
        along: Any = (0.7, 0.09) if dy else (0.09, 0.7)
        x, y = j + 0.5 + 0.4 * dx, i + 0.5 + 0.4 * dy
        ax.add_patch(Rectangle((x - along[0] / 2, y - along[1] / 2), *along, facecolor=drawing.RED, lw=0, zorder=4))
        if k < LABELLED:
            place: Any = {"ha": "center", "va": "center", "fontsize": 7, "color": drawing.RED, "weight": "bold"}
            ax.text(j + 0.5 + 0.24 * dx, i + 0.5 + 0.24 * dy, f"{one.rho:.0%}", zorder=5, path_effects=halo, **place)


@drawing.styled
def price_figure(shown: Shown) -> Figure:
    """Mean return against risk: plain Q-learning, the design, and the best of others."""
    price = shown.plan.price
    looks: Any = {
        "plain Q-learning": ("s", 8, drawing.ORANGE, "white"),
        "designed replay": ("*", 14, drawing.BLUE, "white"),
        "best deterministic policy": ("o", 17, "none", drawing.GREEN),
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
    figure.legend(loc="outside right center", frameon=False, fontsize=8)
    return figure
