"""The best mean return of any policy that ends with probability 1, without a limit and under P(unsafe) ≤ b.

A policy may be random and may have memory. Its occupancy x(s,a) is the expected number of visits of a pair per
episode. The occupancy of a policy that ends with probability 1 solves

    Σ_a x(s',a)  −  Σ_{s,a} p(s', not ended | s,a)·x(s,a)  =  start(s').                                            (1)

Mean return and mean cost are linear in x. So the occupancy (1−q)·x + q·x' of a mixture of two policies is that of the
policy with probabilities ∝ x(s,a), which needs no memory of the draw.

**P(unsafe) ≤ b.** If an unsafe outcome need not end the episode, the state includes whether harm has happened. The
probability of harm is Σ x·h, with h(s,a) the probability that the next outcome is the first harm: a mean cost. The hull
gives an upper bound, and a mixture of two deterministic policies that attains it. Both are reported, and an evaluation of
the policy must agree.

**The hull.** Each policy that ends with probability 1 has a mean gain g and a mean cost c. Random policies fill the convex
hull of the points (c, g) of deterministic ones, so the best gain within cost b lies on its upper edge. For a price λ ≥ 0

    D(λ)  =  max_π g(π) − λ·c(π)

on the cost it is an ordinary dynamic program, solved by policy iteration. Each λ gives an upper bound and a point of the hull:

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
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, nan
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from .. import _checks
from .._checks import Bools, Floats, Ints
from .._config import plain
from ..errors import SafeReplayError
from ..mdp import TabularMDP, reached
from .risk import RiskProfile, evaluate
from .solver import MAX_ROUNDS, ROUNDING, largest, slack, solve

SLACK = 1e-9  # a limit missed by less counts as met: rounding
OPTIMAL, INFEASIBLE, UNBOUNDED, UNKNOWN = "optimal", "infeasible", "unbounded", "unknown"
STRICTLY = 1e-12  # least gain of a change of action, as a share of the largest value
GAP = 1e-9  # between the bound and the attained gain, as a share of the largest gain
MAX_LINES = 60  # values of λ for one bound
AHEAD = 40  # improvements of a policy before its values are solved again: a product with P is far cheaper

T = TypeVar("T")


@dataclass(frozen=True)
class Limit:
    """A limit on risk: its name, its value, and α for one on CVaR.

    >>> str(Limit.one_of(max_p_unsafe=0.02)), str(Limit.one_of(min_cvar=-3, alpha=0.05))
    ('P(unsafe) ≤ 2%', 'CVaR 5% ≥ -3')
    """

    name: str
    value: float
    alpha: float = 0.1

    MEASURES: ClassVar[dict[str, str]] = {"max_p_unsafe": "p_unsafe", "min_cvar": "cvar", "max_std": "std"}

    @classmethod
    def one_of(cls, *, alpha: float = 0.1, **limits: float | None) -> Limit:
        """The single limit given: max_p_unsafe, min_cvar or max_std, checked."""
        given = {_checks.choice("limit", name, cls.MEASURES): x for name, x in limits.items() if x is not None}
        if len(given) != 1:
            _checks.fail("limit", "be exactly one of " + ", ".join(cls.MEASURES), tuple(given) or None)
        name, value = next(iter(given.items()))
        intervals = {"max_p_unsafe": "[0, 1]", "max_std": "[0, inf)"}
        value = _checks.between(name, value, intervals[name]) if name in intervals else _checks.real(name, value)
        return cls(name, value, _checks.between("alpha", alpha, "(0, 1]"))

    @property
    def measure(self) -> str:
        """The limited quantity, as a field of a profile."""
        return self.MEASURES[self.name]

    @property
    def sign(self) -> float:
        """+1 if less is better, −1 if more is."""
        return -1.0 if self.name == "min_cvar" else 1.0

    def risk(self, profile: RiskProfile) -> float:
        """The limited quantity of a policy."""
        return profile.cvar(self.alpha) if self.measure == "cvar" else float(getattr(profile, self.measure))

    def met_by(self, profile: RiskProfile) -> bool:
        """Whether a policy keeps the limit and ends with probability 1: not moving does not count as safe."""
        return profile.p_never <= SLACK and self.allows(self.risk(profile), largest(profile.source.chain.r))

    def allows(self, risk: float, size: float) -> bool:
        """Whether a risk is within the limit, up to rounding; ``size`` is that of the rewards."""
        return self.sign * (risk - self.value) <= SLACK * max(self.unit(size), abs(self.value))

    def unit(self, size: float) -> float:
        """The unit of the risk: 1 for a probability, the rewards' size for others."""
        return 1.0 if self.measure == "p_unsafe" else size

    def at(self, value: float) -> Limit:
        """The same limit at another value."""
        return replace(self, value=value)

    @property
    def label(self) -> str:
        """The limited quantity, for display."""
        return {"p_unsafe": "P(unsafe)", "cvar": f"CVaR {100 * self.alpha:.3g}%", "std": "std"}[self.measure]

    def shown(self, value: float) -> str:
        """A value of it, for display."""
        return f"{100 * value:.4g}%" if self.measure == "p_unsafe" else f"{value:.4g}"

    def __str__(self) -> str:
        return f"{self.label} {'≥' if self.sign < 0 else '≤'} {self.shown(self.value)}"


@dataclass(frozen=True, eq=False)
class Ceiling:
    """The best mean return of any policy under a limit.

    ``status`` is "optimal", "unbounded" (some loop gains forever), "infeasible" (no policy can meet the limit: the other
    fields then refer to ``best``, the best risk of any policy), or "unknown", with the ``reason``.

    ``policy`` attains it: probabilities [S, A], or [2, S, A] if it depends on whether harm has happened. A limit on
    CVaR or on the standard deviation has none: a mixture of two policies that depend on the return so far attains it.
    """

    limit: Limit
    status: str
    value: float  #: of the mean return; inf if it is unbounded, nan if unknown
    value_discounted: float  #: of the mean discounted return: an upper bound
    risk: float  #: of the policy that attains it
    best: float  #: the best risk of any policy; nan if unknown
    reason: str = ""
    policy: Floats | None = field(default=None, repr=False)
    profile: RiskProfile | None = field(default=None, repr=False)  #: of the policy, evaluated

    @property
    def attained(self) -> float:
        """The mean of the policy, evaluated: at most ``value``, up to rounding; nan if there is no policy."""
        return nan if self.profile is None else self.profile.mean

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, without the policy; numbers that are not finite become None."""
        names = ("status", "value", "attained", "value_discounted", "risk", "best", "reason")
        return {"limit": plain(self.limit), **{name: plain(getattr(self, name)) for name in names}}


class _Endable(NamedTuple):
    """States from which an end can be made certain: the pairs that keep it so, and a policy that ends."""

    use: Bools  #: [S·A]
    states: Bools  #: [S]
    policy: Ints  #: [S]
    starts: bool  #: whether the start is among the states


def _endable(mdp: TabularMDP, use: Bools) -> _Endable:
    """Remove states until each can reach an end over pairs that never leave the rest.

    The policy takes the shortest path to an end, where a step of probability p has length 1/p. It can end from
    every state, so it ends with probability 1.
    """
    S, states = mdp.n_states, ~mdp.is_terminal
    while True:
        lost = np.bincount(mdp.pair, weights=~mdp.terminal & ~states[mdp.s_next], minlength=mdp.n_pairs) > 0
        kept = use & ~lost & np.repeat(states, mdp.n_actions)
        k = np.flatnonzero(kept[mdp.pair] & (mdp.p > 0))
        s, target, tries = mdp.pair[k] // mdp.n_actions, np.where(mdp.terminal[k], S, mdp.s_next[k]), 1.0 / mdp.p[k]
        order = np.argsort(target, kind="stable")
        row = np.searchsorted(target[order], np.arange(S + 2))
        far = dijkstra(sparse.csr_array((tries[order], s[order], row), shape=(S + 1, S + 1)), indices=[S])[0]
        found = np.isfinite(far[:S])
        if (found == states).all():
            policy, nearest = np.zeros(S, np.int64), np.lexsort((tries + far[target], s))
            here, first = np.unique(s[nearest], return_index=True)
            policy[here] = mdp.pair[k][nearest[first]] % mdp.n_actions
            return _Endable(kept, states, policy, not (mdp.start > 0)[~states].any())
        states = found


class Relaxed(NamedTuple):
    """The best of any policy under a limit, as a relaxation of the best deterministic policy."""

    bound: float  #: of the mean return, or of the discounted one
    x: Floats  #: [S, A] expected visits of a policy that attains it
    policies: list[Ints]  #: [S] each: deterministic policies that it mixes


class Occupancy:
    """The policies over some pairs, on the N states reached from the start over them; games of reward and unsafe outcomes."""

    def __init__(self, mdp: TabularMDP, endable: _Endable, start: Floats) -> None:
        A, on = mdp.n_actions, endable.use[mdp.pair] & ~mdp.terminal
        met = reached(mdp.n_states, np.flatnonzero(start > 0), mdp.pair[on] // A, mdp.s_next[on])
        self.mdp, self.states, self.start = mdp, np.flatnonzero(met), start[met]  #: states [N]
        pairs = (self.states[:, None] * A + np.arange(A)).ravel()
        onward, shape = np.where(mdp.terminal, 0.0, mdp.p), (mdp.n_pairs, mdp.n_states)
        self.P = sparse.csr_array((onward, (mdp.pair, mdp.s_next)), shape=shape)[pairs][:, self.states]
        self.P.eliminate_zeros()
        means = [mdp.expect(x.astype(np.float64)).ravel()[pairs] for x in (mdp.r, mdp.unsafe, mdp.terminal)]
        self.totals, self.ends = np.stack([*means[:2], np.zeros(pairs.size)], 1), means[2] > 0
        self.allowed, self.first = endable.use[pairs].reshape(-1, A), endable.policy[self.states]

    def game(self, gamma: float = 1.0) -> Game:
        """The game of mean return and mean harm; with γ < 1, of discounted ones."""
        surely = self.ends if gamma == 1.0 else None
        return Game(gamma * self.P, self.totals, surely, self.allowed, self.first, self.start)

    def unfolded(self, game: Game, lottery: Lottery, n_states: int) -> tuple[Floats, list[Ints]]:
        """Expected visits [S, A] and the policies of a mixture, where state s + S is a copy of s."""
        x, s = np.zeros((n_states, self.mdp.n_actions)), self.states % n_states
        np.add.at(x, s, game.visits(lottery))
        policies = [np.zeros(n_states, np.int64) for _ in lottery]
        for policy, (_, line) in zip(policies, lottery, strict=True):
            policy[s[::-1]] = line.policy[::-1]  # the first copy decides
        return x, policies

    def policy(self, lottery: Lottery, elsewhere: Ints) -> Floats:
        """x(s,a) / Σ_b x(s,b) of a mixture, [S, A]; the policy ``elsewhere`` in states that are not reached."""
        x = self.game().visits(lottery)
        total = x.sum(1, keepdims=True)
        chosen: Floats = np.eye(self.mdp.n_actions)[elsewhere]
        chosen[self.states] = np.where(total > 0, x / np.where(total > 0, total, 1.0), chosen[self.states])
        return chosen


class Program:
    """The base class of limits: the model without a limit."""

    def __init__(self, mdp: TabularMDP, alpha: float, use: Bools | None = None) -> None:
        self.mdp, self.alpha, self.size = mdp, alpha, largest(mdp.r)
        self.use = np.ones(mdp.n_pairs, bool) if use is None else use  #: [S·A] the pairs that a policy may take
        self.endable = _endable(mdp, self.use)
        self.trouble = "" if self.endable.starts else "no policy surely ends"

    @property
    def scope(self) -> str:
        """The policies that ``best`` refers to, if not all that end with probability 1."""
        return ""

    @property
    def best(self) -> float:
        """The best risk of any policy."""
        raise NotImplementedError

    def solve(self, limit: Limit, attained: bool = True) -> Ceiling:
        """The ceiling under a feasible limit; with a policy that attains it, if there is one and it is asked for."""
        raise NotImplementedError

    def relaxed(self, limit: Limit, discounted: bool) -> Relaxed | None:
        """The best of any policy under a limit; None if no policy keeps it."""
        raise NotImplementedError

    def unrestrained(self, discounted: bool) -> Relaxed:
        """The best of any policy without a limit."""
        occupancy = Occupancy(self.mdp, self.endable, self.mdp.start)
        game = occupancy.game(self.mdp.gamma if discounted else 1.0)
        line = settled(game.line(0.0))
        return Relaxed(float(line.gain[0]), *occupancy.unfolded(game, ((1.0, line),), self.mdp.n_states))

    @cached_property
    def values(self) -> Floats:
        """The best mean return from each state, [S]; inf everywhere if a reachable loop gains forever."""
        return self._values(1.0)[0]

    @cached_property
    def values_discounted(self) -> Floats:
        """The best discounted return from each state, [S]."""
        return self._values(self.mdp.gamma)[0]

    def _values(self, gamma: float) -> tuple[Floats, Ints]:
        """V and a policy [S] that attains it; 0 in states that cannot be reached from the start."""
        occupancy = Occupancy(self.mdp, self.endable, self.mdp.start)
        game, policy = occupancy.game(gamma), self.endable.policy.copy()
        line = game.line(0.0)
        if line is None:
            return np.full(self.mdp.n_states, inf), policy
        V = np.zeros(self.mdp.n_states)
        V[occupancy.states], policy[occupancy.states] = settled(game.means(line.policy))[:, 0], line.policy
        return V, policy

    def unlimited(self, discounted: bool = False) -> float:
        """The best mean return, or discounted return, without a limit."""
        k = self.mdp.start > 0
        return float(self.mdp.start[k] @ (self.values_discounted if discounted else self.values)[k])

    @cached_property
    def unlimited_profile(self) -> RiskProfile:
        """The risk of a policy with the best mean return without a limit."""
        return evaluate(self.mdp, self._values(1.0)[1], quiet=True)


class Harm(Program):
    """P(unsafe) ≤ b: the best mixture of policies on (harmed, s)."""

    @cached_property
    def model(self) -> TabularMDP:
        """The model with harm in its state, if harm need not end the episode. Only the first harm is unsafe in it."""
        mdp = self.mdp
        if not (mdp.unsafe & ~mdp.terminal).any():
            return mdp
        S, (s, a) = mdp.n_states, np.divmod(mdp.pair, mdp.n_actions)
        rest = (mdp.r, mdp.terminal)
        unharmed = (s, a, mdp.p, mdp.s_next + S * (mdp.unsafe & ~mdp.terminal), *rest, mdp.unsafe)
        harmed = (s + S, a, mdp.p, mdp.s_next + S, *rest, np.zeros_like(mdp.unsafe))
        rows = np.concatenate([np.column_stack(unharmed), np.column_stack(harmed)])
        return TabularMDP.from_outcomes(2 * S, mdp.n_actions, rows, mdp.gamma, np.concatenate([mdp.start, np.zeros(S)]))

    @cached_property
    def surely(self) -> _Endable:
        """States from which an end can be made certain."""
        return _endable(self.model, np.resize(self.use, self.model.n_pairs))

    @cached_property
    def harmless(self) -> _Endable:
        """States from which an end without harm can be made certain."""
        harm = self.model.expect(self.model.unsafe.astype(np.float64)).ravel() > 0
        return _endable(self.model, ~harm & np.resize(self.use, self.model.n_pairs))

    @cached_property
    def occupancy(self) -> Occupancy:
        """The policies that end with probability 1."""
        return Occupancy(self.model, self.surely, self.model.start)

    @cached_property
    def _gentlest(self) -> Line:
        return settled(self.occupancy.game().line(inf))

    @cached_property
    def best(self) -> float:
        """The least probability of harm."""
        return 0.0 if self.harmless.starts else max(0.0, float(self._gentlest.cost[0]))

    @cached_property
    def _at_best(self) -> Occupancy:
        """The policies with the least probability of harm.

        With U(s) the least probability from s, they are those that take only pairs with h(s,a) + Σ p·U(s') = U(s). Over
        an episode that ends, these equations add up to the least probability from the start.
        """
        if self.harmless.starts:
            return Occupancy(self.model, self.harmless, self.model.start)
        model, occupancy, gentlest = self.model, self.occupancy, self._gentlest.policy
        U, policy = np.zeros(model.n_states), self.surely.policy.copy()
        U[occupancy.states], policy[occupancy.states] = settled(occupancy.game().means(gentlest))[:, 1], gentlest
        harm = np.where(model.unsafe, 1.0, 0.0)
        loss = model.expect(harm + np.where(model.terminal, 0.0, U[model.s_next])) - U[:, None]
        use = self.surely.use & (loss.ravel() <= 2.0 * STRICTLY * U.max())
        return Occupancy(model, self.surely._replace(use=use, policy=policy), model.start)

    @cached_property
    def _unhindered(self) -> Line | None:
        return self.occupancy.game().line(0.0)

    @cached_property
    def _careful(self) -> Line | None:
        return self._at_best.game().line(0.0)

    @cached_property
    def _hull(self) -> Hull:
        lines = [settled(self._unhindered), self._gentlest]
        if self._careful is not None:
            policy = self.surely.policy.copy()
            policy[self._at_best.states] = self._careful.policy
            lines.append(self._careful._replace(weight=inf, policy=policy[self.occupancy.states]))
        return Hull(self.occupancy.game(), lines)

    @cached_property
    def _hull_discounted(self) -> Hull:
        return Hull(self.occupancy.game(self.mdp.gamma))

    @property
    def _least(self) -> float:
        """Probabilities below it are equal to the least up to rounding."""
        return self.best * (1.0 + SLACK) + ROUNDING

    def relaxed(self, limit: Limit, discounted: bool) -> Relaxed | None:
        """The best of any policy under P(unsafe) ≤ limit; with a discount, of the discounted probability."""
        if not self.surely.starts or not limit.allows(self.best, self.size):
            return None
        gamma = self.mdp.gamma if discounted else 1.0
        if limit.value <= self._least:
            occupancy = self._at_best
            game = occupancy.game(gamma)
            line = settled(game.line(0.0))
            bound = float(line.gain[0])
            lottery: Lottery = ((1.0, line),)
        else:
            occupancy, hull = self.occupancy, self._hull_discounted if discounted else self._hull
            found = hull.solve(np.array([limit.value]))
            game, bound, lottery = hull.game, found.upper, found.lottery
        return Relaxed(bound, *occupancy.unfolded(game, lottery, self.mdp.n_states))

    def solve(self, limit: Limit, attained: bool = True) -> Ceiling:
        """The ceiling under P(unsafe) ≤ limit; if an evaluation of its policy disagrees, an upper bound without it."""
        at_best = limit.value <= self._least
        bound = max(limit.value, self._least)
        if bound <= ROUNDING:
            discounted = float(settled(self._at_best.game(self.mdp.gamma).line(0.0)).gain[0])
        else:  # under E[γ^T·harm] ≤ bound
            discounted = self._hull_discounted.solve(np.array([bound])).upper
        line = self._careful if at_best else self._unhindered
        if line is None:
            return Ceiling(limit, UNBOUNDED, inf, discounted, nan, self.best, "some loop gains for ever")
        if at_best:
            gain, cost = float(line.gain[0]), float(line.cost[0])
            found, occupancy = Best(gain, gain, cost, 0.0, ((1.0, line),), 0), self._at_best
        else:
            found, occupancy = self._hull.solve(np.array([limit.value])), self.occupancy
        value = found.upper
        answer = Ceiling(limit, OPTIMAL, value, discounted, found.cost, self.best)
        if not attained:
            return answer
        elsewhere = self.harmless if at_best and self.harmless.starts else self.surely
        policy = occupancy.policy(found.lottery, elsewhere.policy)
        profile = evaluate(self.model, policy, quiet=True)
        if not abs(profile.mean - value) <= 1e-6 * max(self.size, abs(value)):
            return replace(answer, reason=f"an upper bound: the best policy found has a mean of {profile.mean:.6g}")
        shaped = policy if self.model is self.mdp else policy.reshape(2, self.mdp.n_states, self.mdp.n_actions)
        return replace(answer, policy=shaped, profile=profile)


class Line(NamedTuple):
    """The best policy at one λ, for each of L starts. λ is inf if only the cost counts."""

    weight: float  #: λ
    gain: Floats  #: [L]
    cost: Floats  #: [L]
    loose: Floats  #: [L] a third mean, which does not affect the choice of policies
    policy: Ints  #: [N]


Lottery: TypeAlias = tuple[tuple[float, Line], ...]  #: (share, policy) of a mixture


class Game:
    """max_π E[gain] − λ·E[cost] by policy iteration, for one λ after another: each starts from the policy of the last.

    The N states are L levels of S states. The first policy ends with probability 1; a strict improvement also ends,
    unless some loop gains forever. A policy is improved several times before it is evaluated: V ← max_a total + P·V only
    raises V, which stays below the values of the policy that attains the last maximum.
    """

    def __init__(
        self, P: Any, totals: Floats, ends: Bools | None, allowed: Bools, policy: Ints, start: Floats, levels: int = 1
    ) -> None:
        self.P, self.totals, self.allowed = P, totals, allowed  #: [N·A, N] transitions; [N·A, 3]; [N, A]
        self.ends = ends  #: [N·A] whether an episode may end there; None with a discount, where it need not end
        self.policy, self.start, self.levels = policy, start, levels  #: [N]; [S]; L

    def means(self, policy: Ints) -> Floats | None:
        """Gain, cost and looseness of a policy from each state, [N, 3]; None if it may never end."""
        rows = np.arange(policy.size) * self.allowed.shape[1] + policy  # its pairs
        P = self.P[rows]
        if self.ends is not None:
            there, here = P.nonzero()
            if not reached(policy.size, np.flatnonzero(self.ends[rows]), here, there).all():
                return None
        X = solve(P, self.totals[rows])
        return X if np.isfinite(X).all() else None

    def visits(self, lottery: Lottery, level: int = 0) -> Floats:
        """Expected visits of a mixture that starts at a level, [N, A]."""
        x, states, size = np.zeros(self.allowed.shape), np.arange(self.policy.size), self.start.size
        start = np.zeros(states.size)
        start[level * size : (level + 1) * size] = self.start
        for share, line in lottery:
            P = self.P[states * self.allowed.shape[1] + line.policy]
            x[states, line.policy] += share * np.maximum(solve(sparse.csr_array(P.T), start), 0.0)
        return x

    def line(self, weight: float) -> Line | None:
        """The best policy at λ = weight; None if some loop gains forever, or rounding prevents a solution."""
        reward, price = (0.0, 1.0) if weight == inf else (1.0, weight)
        states, policy = np.arange(self.policy.size), self.policy
        total = reward * self.totals[:, 0] - price * self.totals[:, 1]
        for _ in range(MAX_ROUNDS):
            if (X := self.means(policy)) is None:
                return None
            values, parts = (reward * np.abs(x[:, 0]) + price * np.abs(x[:, 1]) for x in (X, self.totals))
            V, least, evaluated = reward * X[:, 0] - price * X[:, 1], slack(STRICTLY, values, parts), policy
            for _ in range(AHEAD):
                Q = np.where(self.allowed, (total + self.P @ V).reshape(self.allowed.shape), -inf)
                better = Q.max(1) > Q[states, policy] + least
                if not better.any():
                    break
                policy = np.where(better, Q.argmax(1), policy)
                V = Q[states, policy]
            if policy is evaluated:
                self.policy = policy
                gain, cost, loose = (self.start @ X[:, c].reshape(self.levels, -1).T for c in range(3))
                return Line(weight, gain, cost, loose, policy)
        return None


class Best(NamedTuple):
    """The best gain within a bound on the cost: no policy exceeds ``upper``, and a mixture has ``attained``."""

    upper: float
    attained: float
    cost: float  #: of the mixture
    loose: float  #: the largest third mean of the policies in question
    lottery: Lottery
    level: int  #: the start in question


class Hull:
    """The best gain at any bound on the cost, for every start at once: one line per λ, added as needed."""

    def __init__(self, game: Game, lines: Sequence[Line] = ()) -> None:
        self.game = game  # and the lines already known: for λ = 0, λ = ∞, and others
        self.lines = [*lines] or [settled(game.line(weight)) for weight in (0.0, inf)]

    @property
    def least(self) -> Floats:
        """The least cost, [L]."""
        return self.lines[1].cost

    def solve(self, budget: Floats) -> Best:
        """The best gain at a cost within the budget [L] of some start; −inf excludes a start."""
        asked, most = budget > -inf, len(self.lines) + MAX_LINES
        budget = np.where(asked, budget, 0.0)
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
                self.game.policy = min(known, key=lambda line: abs(line.weight - slope)).policy
                new = self.game.line(slope)
            if new is None:
                held = [x for x in self.lines if x.gain[i] + slope * (budget[i] - x.cost[i]) >= upper[i] - rounding]
                loose = max((float(line.loose[i]) for line in held), default=1.0)
                lottery = tuple((share, self.lines[k]) for share, k in shares)
                return Best(float(upper[i]), attained, sum(s * float(x.cost[i]) for s, x in lottery), loose, lottery, i)
            self.lines.append(new)


def settled(found: T | None) -> T:
    """The result, which must exist unless some loop gains forever; raises an error if rounding prevented it."""
    if found is None:
        raise SafeReplayError("values must be solvable to rounding, got some that are not")
    return found


def mixed(points: Sequence[tuple[float, float]], budget: float) -> tuple[float, float, tuple[tuple[float, int], ...]]:
    """The best gain of a mixture of two (cost, gain) within the budget, its gain per unit of cost, and the shares."""
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
