"""The best mean gain under a bound on a mean cost, by a Lagrangian hull.

Each policy that ends with probability 1 has a mean gain g and a mean cost c. Random policies fill the convex hull of the
points (c, g) of deterministic ones, so the best gain within cost b lies on its upper edge. For a price λ ≥ 0 on the cost

    D(λ)  =  max_π g(π) − λ·c(π)

is an ordinary dynamic program, solved by policy iteration. Each λ gives an upper bound and a point of the hull:

    best gain within b   ≤   D(λ) + λ·b,          (c, g) of the policy that attains D(λ).

Two policies, one on each side of b, mixed so that the cost is b, attain a gain. The next λ is the slope
between the two. It either finds a point above the line between them, or shows that there is none: then the upper bound and
the attained gain are equal. Points and bounds are kept, and used for every b.

**What is proved.** A policy counts as the best for λ if no single change of action gains more than 1e-12 of the largest
value. So the bound D(λ) + λ·b holds to that share per step of an episode, as for a linear program.

Ref: Altman (1999), Constrained Markov Decision Processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .._types import Bools, Floats, Ints
from ..errors import SafeReplayError
from ..mdp import reached
from .solver import MAX_ROUNDS, slack, solve

STRICTLY = 1e-12  # least gain of a change of action, as a share of the largest value
GAP = 1e-9  # between the bound and the attained gain, as a share of the largest gain
MAX_LINES = 60  # values of λ for one bound

T = TypeVar("T")


class Line(NamedTuple):
    """The best policy at one λ, for each of L starts. λ is inf if only the cost counts."""

    weight: float  #: λ
    gain: Floats  #: [L]
    cost: Floats  #: [L]
    loose: Floats  #: [L] a third mean, which does not affect the choice of policies
    policy: Ints  #: [N]


class Game:
    """max_π E[gain] − λ·E[cost] by policy iteration, for one λ after another: each starts from the policy of the last.

    The N states are L levels of S states. The first policy ends with probability 1; a strict improvement also ends,
    unless some loop gains forever.
    """

    def __init__(
        self, P: Any, totals: Floats, ends: Bools | None, allowed: Bools, policy: Ints, start: Floats, levels: int = 1
    ) -> None:
        self.P, self.totals, self.allowed = P, totals, allowed  #: [N·A, N] transitions; [N·A, 3]; [N, A]
        self.ends = ends  #: [N·A] whether an episode may end there; None with a discount, where it need not end
        self.policy, self.start, self.levels = policy, start, levels  #: [N]; [S]; L

    def rows(self, policy: Ints) -> Ints:
        """The pairs of a policy, [N]."""
        return np.asarray(np.arange(policy.size) * self.allowed.shape[1] + policy)

    def means(self, policy: Ints) -> Floats | None:
        """Gain, cost and looseness of a policy from each state, [N, 3]; None if it may never end."""
        rows = self.rows(policy)
        P = self.P[rows]
        if self.ends is not None:
            there, here = P.nonzero()
            if not reached(policy.size, np.flatnonzero(self.ends[rows]), here, there).all():
                return None
        X = solve(P, self.totals[rows])
        return X if np.isfinite(X).all() else None

    def line(self, weight: float) -> Line | None:
        """The best policy at λ = weight; None if some loop gains forever, or rounding prevents a solution."""
        reward, price = (0.0, 1.0) if weight == inf else (1.0, weight)
        states, policy = np.arange(self.policy.size), self.policy
        for _ in range(MAX_ROUNDS):
            if (X := self.means(policy)) is None:
                return None
            Q = (reward * self.totals[:, 0] - price * self.totals[:, 1]) + self.P @ (reward * X[:, 0] - price * X[:, 1])
            Q = np.where(self.allowed, Q.reshape(self.allowed.shape), -inf)
            values, parts = (reward * np.abs(x[:, 0]) + price * np.abs(x[:, 1]) for x in (X, self.totals))
            better = Q.max(1) > Q[states, policy] + slack(STRICTLY, values, parts)
            if not better.any():
                self.policy = policy
                gain, cost, loose = (self.start @ X[:, c].reshape(self.levels, -1).T for c in range(3))
                return Line(weight, gain, cost, loose, policy)
            policy = np.where(better, Q.argmax(1), policy)
        return None


class Best(NamedTuple):
    """The best gain within a bound on the cost: no policy exceeds ``upper``, and a mixture has ``attained``."""

    upper: float
    attained: float
    cost: float  #: of the mixture
    loose: float  #: the largest third mean of the policies in question
    lottery: tuple[tuple[float, Line], ...]  #: (share, policy)


class Hull:
    """The best gain at any bound on the cost, for every start at once: one line per λ, added as needed."""

    def __init__(self, game: Game, lines: Sequence[Line] = ()) -> None:
        """``lines`` are lines already known: for λ = 0, λ = ∞, and others."""
        self.game = game
        self.lines = [*lines] or [settled(game.line(weight)) for weight in (0.0, inf)]

    @property
    def least(self) -> Floats:
        """The least cost, [L]."""
        return self.lines[1].cost

    def solve(self, budget: Floats) -> Best:
        """The best gain at a cost within the budget [L] of some start; −inf excludes a start."""
        asked = budget > -inf
        budget = np.where(asked, budget, 0.0)
        most = len(self.lines) + MAX_LINES
        while True:
            known = [line for line in self.lines if line.weight < inf]
            upper = np.min([line.gain + line.weight * (budget - line.cost) for line in known], axis=0)
            upper = np.where(asked & (self.least <= budget), upper, -inf)
            i = int(np.argmax(upper))
            points = [(float(line.cost[i]), float(line.gain[i])) for line in self.lines]
            attained, slope, shares = mixed(points, float(budget[i]))
            rounding = GAP * max(abs(gain) for _, gain in points)
            new = None
            if upper[i] - attained > rounding and slope not in [x.weight for x in known] and len(self.lines) < most:
                new = self.game.line(slope)
            if new is None:
                held = [x for x in self.lines if x.gain[i] + slope * (budget[i] - x.cost[i]) >= upper[i] - rounding]
                loose = max((float(line.loose[i]) for line in held), default=1.0)
                lottery = tuple((share, self.lines[k]) for share, k in shares)
                return Best(float(upper[i]), attained, sum(s * float(x.cost[i]) for s, x in lottery), loose, lottery)
            self.lines.append(new)


def settled(found: T | None) -> T:
    """The result, which must exist unless some loop gains forever; raises an error if rounding prevented it."""
    if found is None:
        raise SafeReplayError("values must be solvable to rounding, got some that are not")
    return found


def mixed(points: Sequence[tuple[float, float]], budget: float) -> tuple[float, float, tuple[tuple[float, int], ...]]:
    """The best gain of a mixture of two (cost, gain) within the budget, the gain per unit of cost between them, and
    the shares of the points.

    >>> mixed([(0.0, 1.0), (0.5, 2.0)], 0.25)
    (1.5, 2.0, ((0.5, 0), (0.5, 1)))
    """
    best: tuple[float, float, tuple[tuple[float, int], ...]] = (-inf, 0.0, ())
    for i, (cost, gain) in enumerate(points):
        if cost > budget:
            continue
        if gain > best[0]:
            best = gain, 0.0, ((1.0, i),)
        for j, (more, reward) in enumerate(points):
            if more > budget and reward > gain:
                rate, share = (reward - gain) / (more - cost), (budget - cost) / (more - cost)
                if gain + rate * (budget - cost) > best[0]:
                    best = gain + rate * (budget - cost), rate, ((1.0 - share, i), (share, j))
    return best
