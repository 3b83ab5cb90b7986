"""The best deterministic policy under a limit on risk: branch and bound over the actions of states.

Of all policies, mixtures of two deterministic ones are the best under a limit (:mod:`safereplay.theory.occupancy`). But Q-learning ends
with a deterministic policy, and so does replay. The best one is a combinatorial problem. A node is a set of allowed pairs. Its bound is
the best of *any* policy over these pairs, and its expected visits x(s,a) show in which states that policy mixes actions. Branching
fixes the action of such a state on one side and forbids it on the other. A node is closed if its best policy is deterministic and
accepted, if its bound is below the best policy found, or if no allowed policy keeps the limit.

The bound of the open nodes is a proof: no deterministic policy that keeps the limit has a mean above it. If no node is left open, the
answer is exact. The number of nodes is limited, and the gap that is left is part of the answer.

A mixed-integer program over x(s,a) needs an upper bound of each x, and there is none: a policy may stay anywhere for as long as
it likes. Branch and bound needs none.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from math import inf
from typing import NamedTuple

import numpy as np

from .._checks import Bools, Floats, Ints
from .._progress import Bar
from ..mdp import TabularMDP, reached
from .constrained import program_of
from .occupancy import SLACK, Limit, Program
from .risk import RiskProfile, evaluate

MAX_NODES = 400  # of a search
WORK = 400_000  # nodes × pairs of a search
FAINT = 1e-9  # expected visits below this share of the largest are rounding


class Found(NamedTuple):
    """The best deterministic policy that was found."""

    policy: Ints  #: [S]; −1 in states that it never meets
    profile: RiskProfile
    value: float  #: its mean return, or its discounted one if the mean is unbounded
    bound: float  #: no deterministic policy that keeps the limit has more

    @property
    def gap(self) -> float:
        """What is not proved: bound − value."""
        return max(0.0, self.bound - self.value)


class _Node(NamedTuple):
    """Some allowed pairs and the best of any policy over them."""

    use: Bools  #: [S·A]
    bound: float
    x: Floats  #: [S, A] expected visits of that policy


def best_policy(
    mdp: TabularMDP, limit: Limit, accept: Callable[[Ints], bool] = lambda policy: True, quiet: bool = True
) -> Found | None:
    """The best deterministic policy under a limit that is accepted; None if none was found.

    ``mdp`` begins at the start of the episodes whose risk is limited; ``accept`` takes a policy [S], −1 in states that it never meets.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> found = best_policy(mdp.with_start(mdp.origin), Limit.one_of(max_p_unsafe=0.035))
    >>> round(found.profile.p_unsafe, 4), round(found.value, 3), found.gap
    (0.0319, 0.653, 0.0)
    """
    search = _Search(mdp, limit, accept)
    with Bar("the best deterministic policy", search.most, quiet) as bar:
        for done in search.steps():
            bar.update(done)
    return search.result()


class _Search:
    def __init__(self, mdp: TabularMDP, limit: Limit, accept: Callable[[Ints], bool]) -> None:
        self.mdp, self.limit, self.accept = mdp, limit, accept
        self.discounted = Program(mdp, limit.alpha).unlimited() == inf
        self.best: Found | None = None
        self.seen: dict[bytes, bool] = {}
        self.most = max(20, min(MAX_NODES, WORK // mdp.n_pairs))
        self.order = count()
        self.open: list[tuple[float, int, _Node]] = []

    def result(self) -> Found | None:
        """The best policy, and the bound of what was not searched."""
        if self.best is None:
            return None
        rest = max((-bound for bound, _, _ in self.open), default=-inf)
        return self.best._replace(bound=max(self.best.value, rest))

    def steps(self) -> Iterator[int]:
        """Search, one node at a time; yields their number."""
        self.add(np.ones(self.mdp.n_pairs, bool))
        for done in range(self.most):
            if not self.open or -self.open[0][0] <= self.least():
                self.open.clear()
                return
            yield done
            node = heapq.heappop(self.open)[2]
            s = self.branching_state(node)
            if s is None:
                continue
            a = int(node.x[s].argmax())
            pairs = s * self.mdp.n_actions + np.arange(self.mdp.n_actions)
            only, without = node.use.copy(), node.use.copy()
            only[pairs] &= np.arange(self.mdp.n_actions) == a
            without[pairs[a]] = False
            for use in (only, without):
                self.add(use)

    def least(self) -> float:
        """What a node must exceed to be of interest."""
        return -inf if self.best is None else self.best.value + SLACK * max(1.0, abs(self.best.value))

    def add(self, use: Bools) -> None:
        """Open a node over these pairs, unless no policy over them keeps the limit; try the policies that it suggests."""
        relaxed = program_of(self.mdp, self.limit, use).relaxed(self.limit, self.discounted)
        if relaxed is None:
            return
        bound, visits, policies = relaxed
        for policy in policies:
            self.try_out(policy)
        if bound > self.least():
            heapq.heappush(self.open, (-bound, next(self.order), _Node(use, bound, visits)))

    def met(self, policy: Ints) -> Bools:
        """The states that a policy meets from the start, [S]."""
        mdp = self.mdp
        on = (policy[mdp.pair // mdp.n_actions] == mdp.pair % mdp.n_actions) & ~mdp.terminal
        found = reached(mdp.n_states, np.flatnonzero(mdp.start > 0), mdp.pair[on] // mdp.n_actions, mdp.s_next[on])
        return np.asarray(found & ~mdp.is_terminal)

    def try_out(self, policy: Ints) -> bool:
        """Whether a policy keeps the limit and is accepted; if so and it is better than the best so far, keep it."""
        policy = np.where(self.met(policy), policy, -1)
        key = policy.tobytes()
        if key not in self.seen:
            whole = np.maximum(policy, 0)
            profile = evaluate(self.mdp, whole, quiet=True)
            self.seen[key] = self.limit.met_by(profile)
            value = evaluate(self.mdp, whole, discounted=True, quiet=True).mean if self.discounted else profile.mean
            if self.seen[key] and value > self.least():
                self.seen[key] = self.accept(policy)
                if self.seen[key]:
                    self.best = Found(policy, profile, value, value)
        return self.seen[key]

    def branching_state(self, node: _Node) -> int | None:
        """The state whose second action is visited most; if there is none, one whose action is not fixed; else None."""
        mdp, x = self.mdp, node.x
        second = np.sort(x, axis=1)[:, -2] if mdp.n_actions > 1 else np.zeros(mdp.n_states)
        if second.max() > FAINT * x.max():
            return int(second.argmax())
        policy = np.where(self.met(x.argmax(1)), x.argmax(1), -1)
        if self.try_out(policy):
            return None
        allowed = node.use.reshape(x.shape) & (np.diff(mdp.row) > 0).reshape(x.shape)
        free = (policy >= 0) & (allowed.sum(1) > 1)
        return int(np.where(free, x.sum(1), -1.0).argmax()) if free.any() else None
