"""Occupancies: the best mean return of any policy as a linear program, without a limit and under P(unsafe) ≤ b.

A policy may be random, and may remember. What counts is its occupancy x(s,a), how often a pair is expected to be met in
an episode. The occupancy of a policy that ends with probability 1 is a solution x ≥ 0 of

    Σ_a x(s',a)  −  Σ_{s,a} p(s', not ended | s,a)·x(s,a)  =  start(s'),                                            (1)

and a solution is such an occupancy, but for flow that goes round in loops which no episode enters. The mean return is
Σ x·R, and a limit that is linear in x makes a linear program.

**P(unsafe) ≤ b.** The state remembers whether harm was done, where an unsafe outcome need not end the episode. The
chance of harm is Σ x·h, with h(s,a) the chance that the next outcome does the first harm; the program keeps it to 1e-10.

Ref: Altman (1999), Constrained Markov Decision Processes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, nan
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from .. import _checks
from .._config import plain
from .._types import Bools, Floats, Ints
from ..errors import SafeReplayError
from ..mdp import TabularMDP
from .linear import largest
from .risk import RiskProfile, evaluate

SLACK = 1e-9  # by which a limit may be missed and still count as met: rounding
OPTIMAL, INFEASIBLE, UNBOUNDED, UNKNOWN = "optimal", "infeasible", "unbounded", "unknown"


@dataclass(frozen=True)
class Limit:
    """A limit on risk: its name, its value, and α where it is one on CVaR.

    >>> str(Limit.one_of(max_p_unsafe=0.02)), str(Limit.one_of(min_cvar=-3, alpha=0.05))
    ('P(unsafe) ≤ 2%', 'CVaR 5% ≥ -3')
    """

    name: str
    value: float
    alpha: float = 0.1

    MEASURES: ClassVar[dict[str, str]] = {"max_p_unsafe": "p_unsafe", "min_cvar": "cvar", "max_std": "std"}

    @classmethod
    def one_of(
        cls,
        max_p_unsafe: float | None = None,
        min_cvar: float | None = None,
        max_std: float | None = None,
        *,
        alpha: float = 0.1,
    ) -> Limit:
        """The one limit that is given, checked."""
        offered = {"max_p_unsafe": max_p_unsafe, "min_cvar": min_cvar, "max_std": max_std}
        given = {name: value for name, value in offered.items() if value is not None}
        if len(given) != 1:
            _checks.fail("limit", "be exactly one of " + ", ".join(offered), tuple(given) or None)
        name, value = next(iter(given.items()))
        intervals = {"max_p_unsafe": "[0, 1]", "max_std": "[0, inf)"}
        value = _checks.between(name, value, intervals[name]) if name in intervals else _checks.real(name, value)
        return cls(name, value, _checks.between("alpha", alpha, "(0, 1]"))

    @property
    def measure(self) -> str:
        """What the limit is on, as a profile calls it."""
        return self.MEASURES[self.name]

    @property
    def sign(self) -> float:
        """+1 where less is better, −1 where more is."""
        return -1.0 if self.name == "min_cvar" else 1.0

    def risk(self, profile: RiskProfile) -> float:
        """What a policy has of it."""
        return profile.cvar(self.alpha) if self.measure == "cvar" else float(getattr(profile, self.measure))

    def met_by(self, profile: RiskProfile) -> bool:
        """Whether a policy keeps the limit and surely ends: to refuse to move is not to be safe."""
        return profile.p_never <= SLACK and self.allows(self.risk(profile), largest(profile.source.chain.r))

    def allows(self, risk: float, size: float) -> bool:
        """Whether a risk is within the limit, to rounding; ``size`` is that of the rewards."""
        return self.sign * (risk - self.value) <= SLACK * max(self.unit(size), abs(self.value))

    def unit(self, size: float) -> float:
        """What the risk is measured in: a chance has no unit, the others have that of the rewards."""
        return 1.0 if self.measure == "p_unsafe" else size

    def at(self, value: float) -> Limit:
        """The same limit at another value."""
        return replace(self, value=value)

    @property
    def label(self) -> str:
        """What the limit is on, as a reader calls it."""
        return {"p_unsafe": "P(unsafe)", "cvar": f"CVaR {100 * self.alpha:.3g}%", "std": "std"}[self.measure]

    def shown(self, value: float) -> str:
        """A value of it, as a reader wants it."""
        return f"{100 * value:.4g}%" if self.measure == "p_unsafe" else f"{value:.4g}"

    def __str__(self) -> str:
        return f"{self.label} {'≥' if self.sign < 0 else '≤'} {self.shown(self.value)}"


@dataclass(frozen=True, eq=False)
class Ceiling:
    """The best mean return that any policy can have under a limit.

    ``status`` is "optimal", "unbounded" (some loop gains for ever), "infeasible" (nobody can meet the limit: the rest
    is then said of ``best``, the best risk that anybody can reach), or "unknown", with the ``reason``.

    ``policy`` attains it: probabilities [S, A], or [2, S, A] where it must remember whether harm was done. A limit on
    CVaR or on the spread has none: what attains it is a lottery between two policies that know the return so far.

    >>> import safereplay as sr
    >>> from safereplay.theory.constrained import ceiling
    >>> tail = ceiling(sr.grids.cliff(), min_cvar=-1.0)
    >>> tail.status, round(tail.value, 3), round(tail.best, 3)
    ('optimal', 5.383, -0.405)
    """

    limit: Limit
    status: str
    value: float  #: of the mean return; inf where it is unbounded, nan where unknown
    value_discounted: float  #: of the mean discounted return: an upper bound
    risk: float  #: where it is attained
    best: float  #: the best risk that any policy can reach; nan where unknown
    reason: str = ""
    policy: Floats | None = field(default=None, repr=False)
    profile: RiskProfile | None = field(default=None, repr=False)  #: of the policy, evaluated

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, without the policy; what is not finite becomes None."""
        names = ("status", "value", "value_discounted", "risk", "best", "reason")
        return {"limit": plain(self.limit), **{name: plain(getattr(self, name)) for name in names}}


# -- who ends ---------------------------------------------------------------------------------------------------------


class _Endable(NamedTuple):
    """Where an end can be made certain: the pairs that keep it so, and a policy that brings it about."""

    use: Bools  #: [S·A]
    states: Bools  #: [S]
    policy: Ints  #: [S]
    starts: bool  #: whether the start is among the states


def _endable(mdp: TabularMDP, use: Bools) -> _Endable:
    """Shrink the states until each can reach an end over pairs that never leave them.

    The policy steps towards the end: it ends within |S| steps with some probability from everywhere, so in time surely.
    """
    s, states = mdp.pair // mdp.n_actions, ~mdp.is_terminal
    while True:
        lost = np.bincount(mdp.pair, weights=~mdp.terminal & ~states[mdp.s_next], minlength=mdp.n_pairs) > 0
        kept = use & ~lost & np.repeat(states, mdp.n_actions)
        found, policy = np.zeros(mdp.n_states, bool), np.zeros(mdp.n_states, np.int64)
        while (towards := kept[mdp.pair] & (mdp.terminal | found[mdp.s_next]) & ~found[s]).any():
            policy[s[towards]] = mdp.pair[towards] % mdp.n_actions
            found[s[towards]] = True
        if (found == states).all():
            return _Endable(kept, states, policy, not (mdp.start > 0)[~states].any())
        states = found


# -- the linear program -----------------------------------------------------------------------------------------------


class _Solution(NamedTuple):
    """What a program gave: a value, the occupancy of each pair, and what a unit of start is worth at each state."""

    status: str
    value: float = nan
    x: Floats = np.zeros(0)
    V: Floats = np.zeros(0)


class _Occupancy:
    """The linear programs over the occupancies of a model: over the pairs in ``use`` that the start can lead to."""

    def __init__(self, mdp: TabularMDP, use: Bools, start: Floats) -> None:
        s, on = mdp.pair // mdp.n_actions, use[mdp.pair] & ~mdp.terminal
        met = start > 0
        while (ahead := met[s] & on & ~met[mdp.s_next]).any():
            met[mdp.s_next[ahead]] = True
        self.pairs = np.flatnonzero(use & np.repeat(met, mdp.n_actions))  #: [n]
        self.states = np.flatnonzero(met)  #: [N]
        self.start, self._mdp, self._use = start[self.states], mdp, use

    def per_pair(self, values: Floats | Bools) -> Floats:
        """Σ p·values over the outcomes of each pair, [n]."""
        return self._mdp.expect(values.astype(np.float64)).ravel()[self.pairs]

    def balance(self, gamma: float) -> Any:
        """The left side of equation (1), [N, n]; with γ < 1, that of discounted occupancies."""
        mdp, n, shape = self._mdp, self.pairs.size, (self._mdp.n_states, self._mdp.n_pairs)
        on = ~mdp.terminal
        enter = sparse.csr_array((gamma * mdp.p[on], (mdp.s_next[on], mdp.pair[on])), shape=shape)
        leave = sparse.csr_array((np.ones(n), (self.pairs // mdp.n_actions, self.pairs)), shape=shape)
        return sparse.csr_array((leave - enter)[self.states][:, self.pairs])

    def solve(self, gain: Floats, cost: Floats | None = None, bound: float = inf, gamma: float = 1.0) -> _Solution:
        """Maximise Σ x·gain under Σ x·cost ≤ bound."""
        size = float(np.abs(gain).max(initial=0.0)) or 1.0
        limit: dict[str, Any] = {}
        if cost is not None and bound < inf:
            limit = {"A_ub": sparse.csr_array(cost[None, :]), "b_ub": np.array([bound])}
        flow: dict[str, Any] = {"A_eq": self.balance(gamma), "b_eq": self.start}
        sharp = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        # Presolve may leave open which of infeasible and unbounded it is, and sharp tolerances may be out of reach.
        tries: tuple[Any, ...] = (sharp, {**sharp, "presolve": False}, {"presolve": False})
        for options in tries:
            done = linprog(-gain / size, **limit, **flow, bounds=(0, None), method="highs", options=options)
            if done.status == 0:
                x, V = np.asarray(done.x, np.float64), -size * np.asarray(done.eqlin.marginals, np.float64)
                return _Solution(OPTIMAL, float(gain @ x), np.maximum(x, 0.0), V)
            if done.status in (2, 3):
                return _Solution(INFEASIBLE if done.status == 2 else UNBOUNDED)
        return _Solution(UNKNOWN)

    def policy(self, x: Floats, elsewhere: Ints) -> Floats:
        """x(s,a) / Σ_b x(s,b), [S, A]; where nothing leads to, the policy ``elsewhere``."""
        mdp = self._mdp
        flat = np.zeros(mdp.n_pairs)
        flat[self.pairs] = x
        counts = flat.reshape(_shape(mdp))
        total = counts.sum(1, keepdims=True)
        default: Floats = np.eye(mdp.n_actions)[elsewhere]
        return np.asarray(np.where(total > 0, counts / np.where(total > 0, total, 1.0), default))


# -- limits -----------------------------------------------------------------------------------------------------------


class Program:
    """What the limits share: the model without one."""

    def __init__(self, mdp: TabularMDP, alpha: float) -> None:
        self.mdp, self.alpha, self.size = mdp, alpha, largest(mdp.r)
        self.endable = _endable(mdp, np.ones(mdp.n_pairs, bool))
        self.trouble = "" if self.endable.starts else "no policy surely ends"

    @property
    def scope(self) -> str:
        """Of which policies ``best`` speaks, where that is not all that surely end."""
        return ""

    @property
    def best(self) -> float:
        """The best risk that any policy can reach."""
        raise NotImplementedError

    def solve(self, limit: Limit) -> Ceiling:
        """The ceiling under a limit that can be met."""
        raise NotImplementedError

    @cached_property
    def _everywhere(self) -> _Occupancy:
        """From every state that the start can lead to, so that each has its value."""
        reached = _Occupancy(self.mdp, self.endable.use, self.mdp.start).states
        start = np.bincount(reached, minlength=self.mdp.n_states) / reached.size
        return _Occupancy(self.mdp, self.endable.use, start)

    @cached_property
    def values(self) -> Floats:
        """The best mean return from each state, [S]; inf everywhere if some loop that can be reached gains for ever."""
        return self._values(1.0)[0]

    @cached_property
    def values_discounted(self) -> Floats:
        """The best discounted return from each state, [S]."""
        return self._values(self.mdp.gamma)[0]

    def _values(self, gamma: float) -> tuple[Floats, Floats]:
        """V and a policy [S, A] that has it."""
        solved = self._everywhere.solve(self._everywhere.per_pair(self.mdp.r), gamma=gamma)
        if solved.status != OPTIMAL:
            _settled(solved)
            return np.full(self.mdp.n_states, inf), np.zeros(0)
        V = np.zeros(self.mdp.n_states)
        V[self._everywhere.states] = solved.V
        return V, self._everywhere.policy(solved.x, self.endable.policy)

    def unlimited(self, discounted: bool = False) -> float:
        """The best mean return, or discounted return, without a limit."""
        k = self.mdp.start > 0
        return float(self.mdp.start[k] @ (self.values_discounted if discounted else self.values)[k])

    @cached_property
    def unlimited_profile(self) -> RiskProfile:
        """The risk of a policy that has the best mean return without a limit."""
        return evaluate(self.mdp, self._values(1.0)[1], quiet=True)


def _settled(solved: _Solution) -> _Solution:
    """What a program gave, if it gave anything: rounding may keep it from that."""
    if solved.status == UNKNOWN:
        raise SafeReplayError("the linear program must be solvable to rounding, got one that is not")
    return solved


class Harm(Program):
    """P(unsafe) ≤ b: the linear program over (harmed, s, a)."""

    @cached_property
    def model(self) -> TabularMDP:
        """The model that remembers harm, where harm need not be the end. Only the first harm is unsafe in it."""
        mdp = self.mdp
        if not (mdp.unsafe & ~mdp.terminal).any():
            return mdp
        S, (s, a) = mdp.n_states, np.divmod(mdp.pair, mdp.n_actions)
        rest = (mdp.r, mdp.terminal)
        unharmed = (s, a, mdp.p, mdp.s_next + S * (mdp.unsafe & ~mdp.terminal), *rest, mdp.unsafe)
        harmed = (s + S, a, mdp.p, mdp.s_next + S, *rest, np.zeros_like(mdp.unsafe))
        rows = np.concatenate([np.column_stack(unharmed), np.column_stack(harmed)])
        start = np.concatenate([mdp.start, np.zeros(S)])
        return TabularMDP.from_outcomes(2 * S, mdp.n_actions, rows, mdp.gamma, start)

    @cached_property
    def surely(self) -> _Endable:
        """Where an end can be made certain."""
        return _endable(self.model, np.ones(self.model.n_pairs, bool))

    @cached_property
    def harmless(self) -> _Endable:
        """Where an end without harm can be made certain."""
        return _endable(self.model, ~(self.model.expect(self.model.unsafe.astype(np.float64)).ravel() > 0))

    @cached_property
    def occupancy(self) -> _Occupancy:
        """Of the policies that surely end."""
        return _Occupancy(self.model, self.surely.use, self.model.start)

    @cached_property
    def _gentlest(self) -> _Solution:
        return _settled(self.occupancy.solve(-self.occupancy.per_pair(self.model.unsafe)))

    @cached_property
    def best(self) -> float:
        """The least chance of harm."""
        return 0.0 if self.harmless.starts else max(0.0, -self._gentlest.value)

    @cached_property
    def _at_best(self) -> _Occupancy:
        """Of the policies that have the least chance of harm.

        With U(s) the least chance from s, they are those that take only pairs with h(s,a) + Σ p·U(s') = U(s): such a
        pair loses nothing, and over an episode that ends these equations add up to the least chance from the start.
        """
        if self.harmless.starts:
            return _Occupancy(self.model, self.harmless.use, self.model.start)
        model, occupancy = self.model, self.occupancy
        U = np.zeros(model.n_states)
        U[occupancy.states] = -self._gentlest.V
        harm = np.where(model.unsafe, 1.0, 0.0)
        loss = model.expect(harm + np.where(model.terminal, 0.0, U[model.s_next])) - U[:, None]
        use = np.zeros(model.n_pairs, bool)
        use[occupancy.pairs] = loss.ravel()[occupancy.pairs] <= SLACK
        return _Occupancy(model, use, model.start)

    def solve(self, limit: Limit) -> Ceiling:
        """The ceiling under P(unsafe) ≤ limit."""
        at_best = limit.value <= self.best * (1.0 + SLACK)
        occupancy, reason = self._at_best if at_best else self.occupancy, ""
        elsewhere = self.harmless.policy if at_best and self.harmless.starts else self.surely.policy
        gain, harm = occupancy.per_pair(self.model.r), occupancy.per_pair(self.model.unsafe)
        for room in (0.0, 1e-6, 1e-5, 1e-4, 1e-3):  # near the least chance, rounding may leave no way through
            bound = inf if at_best else limit.value * (1.0 + room)
            solved = occupancy.solve(gain, harm, bound)
            if solved.status in (OPTIMAL, UNBOUNDED):
                break
            reason = f"an upper bound: to rounding, it is that under {limit.at(limit.value * (1.0 + 10.0 * room))}"
        value_discounted = self._discounted(max(limit.value, self.best * (1.0 + SLACK)))
        if solved.status == UNBOUNDED:
            return Ceiling(limit, UNBOUNDED, inf, value_discounted, nan, self.best, "some loop gains for ever")
        if solved.status != OPTIMAL:
            return Ceiling(limit, UNKNOWN, nan, value_discounted, nan, self.best, "rounding defeats the program")
        answer = Ceiling(limit, OPTIMAL, solved.value, value_discounted, float(harm @ solved.x), self.best, reason)
        return self._with_policy(answer, occupancy.policy(solved.x, elsewhere))

    def _discounted(self, bound: float) -> float:
        """The ceiling on the discounted return under E[γ^T·harm] ≤ bound; without a bound where rounding defeats it."""
        occupancy = self._at_best if bound == 0.0 else self.occupancy
        gain, harm = occupancy.per_pair(self.model.r), occupancy.per_pair(self.model.unsafe)
        solved = occupancy.solve(gain, harm, bound, self.mdp.gamma)
        return solved.value if solved.status == OPTIMAL else self.unlimited(True)

    def _with_policy(self, answer: Ceiling, policy: Floats) -> Ceiling:
        """The answer with its policy, unless an evaluation disagrees."""
        profile = evaluate(self.model, policy, quiet=True)
        if not abs(profile.mean - answer.value) <= 1e-6 * max(self.size, abs(answer.value)):
            return replace(answer, reason=answer.reason or f"to rounding: its policy has a mean of {profile.mean:.6g}")
        shaped = policy if self.model is self.mdp else policy.reshape(2, *_shape(self.mdp))
        return replace(answer, policy=shaped, profile=profile)


def _shape(mdp: TabularMDP) -> tuple[int, int]:
    return mdp.n_states, mdp.n_actions
