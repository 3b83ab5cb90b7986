"""The best that any policy could do under a limit on its risk: a constrained MDP, solved exactly.

A policy may be random, and may remember. What counts is its occupancy x(s,a), how often a pair is expected to be met in
an episode. The occupancies of the policies that end with probability 1 are exactly the solutions x ≥ 0 of

    Σ_a x(s',a)  −  Σ_{s,a} p(s', not ended | s,a)·x(s,a)  =  start(s'),                                            (1)

the mean return is Σ x·R, and a limit that is linear in x makes a linear program.

**P(unsafe) ≤ b.** The state remembers whether harm was done, where an unsafe outcome need not end the episode. The
chance of harm is Σ x·h, with h(s,a) the chance that the next outcome does the first harm; the program keeps it to 1e-10.

**CVaR_α ≥ c.** CVaR_α(R) = max_η η − E[(η−R)⁺]/α, so the limit says that for some η, E[(η−R)⁺] ≤ α·(η−c). The best η is
a quantile, so a point of the rewards' lattice. The state remembers what is owed, z = η − return so far. By the duality
of linear programs the ceiling for one η is

    min_λ  max_π E[R] − λ·E[(η−R)⁺]  +  λ·α·(η−c),                                                                  (2)

and the inner maximum is a dynamic program that starts at z = η: solved once for a λ, it serves every η and every c. Any
set of λ gives an upper bound, and two policies that a λ makes equally good give, mixed, what can be attained. λ are
added until the two meet.

**std ≤ σ.** Var R = min_a E[(R−a)²]: the same with z² in place of z⁺, over a mesh of a. The mean is within half a mesh
h of some a, so E[(R−a)²] ≤ σ² + h²/4 is what is asked: an upper bound that is a little generous. Only policies with a
mean of at least four standard deviations below the best mean are looked at; others have a lower mean anyway.

What is owed is kept within a window. Beyond it, with V the best mean from there, no policy of mean μ ≤ V has less
E[(z−R)⁺] than (z−μ)⁺ (Jensen), so V at the cost (z−V)⁺ bounds it, and exactly where every return falls short of z.
So whatever the window, the answer is an upper bound; ``reason`` says so where it could be generous.

**Policies that never end** have no finite occupancy. The ceiling is over policies that end with probability 1.

**Unbounded.** Where some loop gains for ever, the mean return has no upper bound. There is always one for the
*discounted* return, with cost discounted alike. It is valid: a cost C ≥ 0 that falls due at step T counts γ^T·C ≤ C, so
E[γ^T·C] ≤ E[C], and whoever keeps the limit keeps the discounted one. With a limit on CVaR the mean is unbounded too:
loop n times with a small probability, and since n gains outgrow their spread √n, E[(η−R)⁺] stays bounded.

Ref: Altman (1999), Constrained Markov Decision Processes; Rockafellar & Uryasev (2000), Optimization of CVaR.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import ceil, floor, inf, isfinite, nan, sqrt
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from scipy.sparse.linalg import splu

from .. import _checks
from .._types import Bools, Floats, Ints
from ..errors import SafeReplayError
from ..mdp import TabularMDP
from .risk import RiskProfile, _lattice, evaluate
from .safety import plain
from .solver import MAX_ROUNDS

MAX_VARIABLES = 60_000  # (state, owed, action) triples of a dynamic program
MAX_LINES = 60  # values of λ
MESH = 4  # points a unit of reward at which a spread is looked at
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
        return profile.p_never <= SLACK and self.allows(self.risk(profile))

    def allows(self, risk: float) -> bool:
        """Whether a risk is within the limit, to rounding."""
        return self.sign * (risk - self.value) <= SLACK * max(1.0, abs(self.value))

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


@dataclass(frozen=True)
class CeilingPoint:
    """A point of the best frontier that there is: under ``limit``, no policy has a mean above ``value``."""

    limit: float
    value: float
    value_discounted: float


def ceiling(
    mdp: TabularMDP,
    *,
    max_p_unsafe: float | None = None,
    min_cvar: float | None = None,
    max_std: float | None = None,
    alpha: float = 0.1,
    start: Any = None,
) -> Ceiling:
    """The best mean return that any policy can have under one limit, from the model's start or another.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> best = ceiling(mdp, max_p_unsafe=0.05, start=mdp.origin)
    >>> best.status, round(best.value, 3), round(best.profile.p_unsafe, 6)
    ('optimal', 0.78, 0.05)
    >>> nobody = ceiling(mdp, max_p_unsafe=0.01, start=mdp.origin)
    >>> nobody.status, round(nobody.best, 4)
    ('infeasible', 0.0278)
    """
    limit = Limit.one_of(max_p_unsafe, min_cvar, max_std, alpha=alpha)
    return Ceilings(mdp, limit, start).at(limit.value)


class Ceilings:
    """Ceilings under one kind of limit, at any of its values. What they share is worked out once.

    >>> import safereplay as sr
    >>> ceilings = Ceilings(sr.grids.cliff(), Limit("max_p_unsafe", 0.01))
    >>> [round(point.value, 2) for point in ceilings.frontier([0.005, 0.01, 0.02])]     # 0.5 % is out of reach
    [5.31, 5.45]
    """

    def __init__(self, mdp: TabularMDP, limit: Limit, start: Any = None) -> None:
        _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
        self.limit = limit
        kind = {"p_unsafe": _Harm, "cvar": _Tail, "std": _Spread}[limit.measure]
        self._program: _Program = kind(mdp if start is None else mdp.with_start(start), limit.alpha)

    @property
    def best(self) -> float:
        """The best risk that any policy can reach; nan where unknown."""
        return nan if self._program.trouble else self._program.best

    def at(self, value: float) -> Ceiling:
        """The ceiling at a value of the limit."""
        limit, program = self.limit.at(value), self._program
        if not program.endable.starts:
            return Ceiling(limit, INFEASIBLE, nan, nan, nan, nan, program.trouble)
        if program.trouble:
            return Ceiling(limit, UNKNOWN, nan, program.unlimited(True), nan, nan, program.trouble)
        feasible = limit.allows(self.best)
        answer = program.solve(limit if feasible else limit.at(self.best))
        if feasible:
            return replace(answer, limit=limit)
        return replace(answer, limit=limit, status=INFEASIBLE, reason=answer.reason or program.scope)

    def frontier(self, values: Iterable[float]) -> tuple[CeilingPoint, ...]:
        """The ceilings over a range of limits; those that nobody can meet are left out."""
        answers = [self.at(float(value)) for value in values]
        kept = [answer for answer in answers if answer.status in (OPTIMAL, UNBOUNDED)]
        return tuple(CeilingPoint(answer.limit.value, answer.value, answer.value_discounted) for answer in kept)


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


class _Program:
    """What the limits share: the model without one."""

    def __init__(self, mdp: TabularMDP, alpha: float) -> None:
        self.mdp, self.alpha = mdp, alpha
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


class _Harm(_Program):
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
        if not abs(profile.mean - answer.value) <= 1e-6 * max(1.0, abs(answer.value)):
            return replace(answer, reason=answer.reason or f"to rounding: its policy has a mean of {profile.mean:.6g}")
        shaped = policy if self.model is self.mdp else policy.reshape(2, *_shape(self.mdp))
        return replace(answer, policy=shaped, profile=profile)


class _Line(NamedTuple):
    """What the best policies at one λ have, for each z owed at the start: λ is inf where only the cost counts."""

    weight: float
    gain: Floats  #: [L]
    cost: Floats  #: [L]
    loose: Floats  #: [L] the chance of leaving the window where the bound there is not exact


class _Owed:
    """max_π E[R] − λ·E[cost] as a dynamic program over (z, s), z = what is still owed: for all z at once.

    Policy iteration. It begins with a policy that surely ends, and a change that strictly improves cannot make a policy
    that does not end, unless some loop gains for ever.
    """

    def __init__(self, program: _Windowed, low: int, levels: int, gamma: float) -> None:
        mdp, endable = program.mdp, program.endable
        number = np.cumsum(endable.states) - 1
        k = np.flatnonzero(endable.use[mdp.pair])
        i, k = np.repeat(np.arange(levels), k.size), np.tile(k, levels)
        j = i - program.mesh * program.shift[k]
        z = np.asarray((low + j) * program.step, np.float64)
        inside = ~mdp.terminal[k] & (j >= 0) & (j < levels)
        left = ~mdp.terminal[k] & ~inside
        ahead = mdp.s_next[k]
        V = np.where(left, program.values[ahead], 0.0)
        beyond = V if gamma == 1.0 else np.where(left, program.values_discounted[ahead], 0.0)
        least = program.cost(np.maximum(0.0, z - V)) if gamma == 1.0 else np.zeros_like(z)
        price = np.where(mdp.terminal[k], program.cost(z), np.where(left, least, 0.0))
        exact = program.linear & (z >= program.luckiest[ahead])
        s, a = np.divmod(mdp.pair[k], mdp.n_actions)
        self.n_states, self.n_actions, self.levels = int(endable.states.sum()), mdp.n_actions, levels
        self.N = levels * self.n_states
        row = (i * self.n_states + number[s]) * self.n_actions + a
        columns = (mdp.r[k] + gamma * beyond, price, left & ~exact)
        totals = [np.bincount(row, weights=mdp.p[k] * c, minlength=self.N * self.n_actions) for c in columns]
        self.totals = np.stack(totals, axis=1)  #: gain, cost and looseness of each (z, s, a)
        entries = (gamma * mdp.p[k][inside], (row[inside], (j * self.n_states + number[ahead])[inside]))
        self.P = sparse.csr_array(entries, shape=(self.N * self.n_actions, self.N))
        self.allowed = np.tile(endable.use.reshape(_shape(mdp))[endable.states], (levels, 1))
        self.policy = np.tile(endable.policy[endable.states], levels)
        self.start = mdp.start[endable.states]

    def line(self, weight: float) -> _Line:
        """The best policies at λ = weight."""
        reward, price = (0.0, 1.0) if weight == inf else (1.0, weight)
        states = np.arange(self.N)
        for _ in range(MAX_ROUNDS):
            rows = states * self.n_actions + self.policy
            X = splu(sparse.csc_array(sparse.eye_array(self.N) - self.P[rows])).solve(self.totals[rows])
            value = reward * X[:, 0] - price * X[:, 1]
            Q = reward * self.totals[:, 0] - price * self.totals[:, 1] + self.P @ value
            Q = np.where(self.allowed, Q.reshape(self.N, self.n_actions), -inf)
            better = Q.max(1) > Q[states, self.policy] + 1e-11 * max(1.0, float(np.abs(value).max()))
            if not better.any():
                break
            self.policy = np.where(better, Q.argmax(1), self.policy)
        return _Line(weight, *(self.start @ X[:, c].reshape(self.levels, self.n_states).T for c in range(3)))


class _Dual:
    """Equation (2) for every z owed at the start: lines, one a λ, added where they are needed."""

    def __init__(self, owed: _Owed) -> None:
        self.owed, self.lines = owed, [owed.line(0.0), owed.line(inf)]

    @property
    def least(self) -> Floats:
        """The least cost, [L]."""
        return self.lines[1].cost

    def solve(self, budget: Floats) -> tuple[float, float]:
        """(upper bound on the gain at a cost within the budget [L] of some z, chance that it is generous)."""
        asked = budget > -inf
        budget = np.where(asked, budget, 0.0)
        budget = budget + SLACK * np.maximum(1.0, np.abs(budget))
        while True:
            known = [line for line in self.lines if line.weight < inf]
            upper = np.min([line.gain + line.weight * (budget - line.cost) for line in known], axis=0)
            upper = np.where(asked & (self.least <= budget), upper, -inf)
            i = int(np.argmax(upper))
            attained, slope = _mixed([(line.cost[i], line.gain[i]) for line in self.lines], float(budget[i]))
            rounding = SLACK * max(1.0, abs(float(upper[i])))
            known_slope = slope in [line.weight for line in self.lines]
            if upper[i] - attained <= rounding or known_slope or len(self.lines) >= MAX_LINES:
                held = [x for x in self.lines if x.gain[i] + slope * (budget[i] - x.cost[i]) >= upper[i] - rounding]
                return float(upper[i]), max((float(line.loose[i]) for line in held), default=1.0)
            self.lines.append(self.owed.line(slope))


def _mixed(points: Sequence[tuple[float, float]], budget: float) -> tuple[float, float]:
    """The best gain of a lottery between two (cost, gain) within the budget, and the gain a unit of cost between them."""
    best, slope = max(((gain, 0.0) for cost, gain in points if cost <= budget), default=(-inf, 0.0))
    for cost, gain in points:
        for more, reward in points:
            if cost <= budget < more and reward > gain:
                rate = (reward - gain) / (more - cost)
                best, slope = max((best, slope), (gain + rate * (budget - cost), rate))
    return best, slope


class _Windowed(_Program):
    """A limit that needs the return so far, on the lattice of the rewards."""

    mesh = 1  #: points a unit of reward
    linear = True  #: whether cost(z − R) is linear once every R is below z

    def __init__(self, mdp: TabularMDP, alpha: float) -> None:
        super().__init__(mdp, alpha)
        if self.trouble:
            return
        unit, self.shift = _lattice(mdp.r) or (nan, np.zeros(0, np.int64))
        self.step = unit / self.mesh
        if not isfinite(unit):
            self.trouble = "the rewards have no common unit"
        elif isfinite(self.unlimited()) and self.window[1] * int(self.endable.use.sum()) > MAX_VARIABLES:
            self.trouble = f"a program that knows the return so far would have more than {MAX_VARIABLES:,} variables"

    def cost(self, z: Floats) -> Floats:
        """What it costs to end with z owed."""
        raise NotImplementedError

    def levels(self, typical: int) -> tuple[int, int]:
        """(lowest z in steps, number of levels), with room for ``typical`` steps beyond what is asked for."""
        raise NotImplementedError

    @property
    def window(self) -> tuple[int, int]:
        """(lowest z in steps, number of levels)."""
        return self.levels(self.typical)

    @cached_property
    def typical(self) -> int:
        """Steps of z that an episode may well go through; many times as many where that comes cheap."""
        once = ceil(abs(self.unlimited()) / self.step) + 4 * self.mesh * int(np.abs(self.shift).max())
        pairs = int(self.endable.use.sum())
        cheap = [k for k in (2, 4, 8, 16) if (self.levels(k * once)[1] + k * once) * pairs <= MAX_VARIABLES // 8]
        return max(cheap, default=1) * once

    @cached_property
    def pays_on_the_way(self) -> bool:
        """Whether less can be owed without an end: then z needs room below the least z of a start."""
        mdp = self.mdp
        return bool((self.endable.use[mdp.pair] & ~mdp.terminal & (self.shift > 0)).any())

    @cached_property
    def luckiest(self) -> Floats:
        """The largest return that can happen from each state, [S]; inf where luck can go on for ever."""
        mdp, k = self.mdp, np.flatnonzero(self.endable.use[self.mdp.pair])
        best, s = np.full(mdp.n_states, -inf), mdp.pair[k] // mdp.n_actions
        for _ in range(mdp.n_states + 1):
            after = best.copy()
            np.maximum.at(after, s, mdp.r[k] + np.where(mdp.terminal[k], 0.0, best[mdp.s_next[k]]))
            if (after == best).all():
                return best
            best = after
        return np.full(mdp.n_states, inf)

    @cached_property
    def z(self) -> Floats:
        """What may be owed at the start, [L]."""
        low, levels = self.window
        return np.asarray((low + np.arange(levels)) * self.step, np.float64)

    @cached_property
    def dual(self) -> _Dual:
        """Of the return."""
        return _Dual(_Owed(self, *self.window, 1.0))

    @cached_property
    def dual_discounted(self) -> _Dual:
        """Of the discounted return, with room to owe more: what lies beyond the window counts as free there."""
        low, levels = self.window
        return _Dual(_Owed(self, low, levels + self.typical, self.mdp.gamma))

    def answer(self, limit: Limit, budget: Floats) -> Ceiling:
        """The ceiling where the cost may be ``budget`` [L], −inf where z is out of question."""
        value, loose = self.dual.solve(budget)
        reason = f"an upper bound: {loose:.2g} of probability is followed no further" if loose > SLACK else ""
        wider = np.concatenate([budget, np.full(self.typical, -inf)])
        discounted = self.dual_discounted.solve(wider)[0]
        return Ceiling(limit, OPTIMAL, value, discounted, limit.value, self.best, reason)

    def unhindered(self, limit: Limit) -> Ceiling:
        """The ceiling where the limit is none."""
        risk = limit.risk(self.unlimited_profile)
        return Ceiling(limit, OPTIMAL, self.unlimited(), self.unlimited(True), risk, self.best)


class _Tail(_Windowed):
    """CVaR_α ≥ c."""

    def cost(self, z: Floats) -> Floats:
        """z⁺: what the return falls short of η."""
        return np.asarray(np.maximum(z, 0.0), np.float64)

    @cached_property
    def lowest(self) -> float:
        """CVaR of a policy with the best mean: a limit below it hinders nobody."""
        profile = self.unlimited_profile
        return profile.cvar(self.alpha) - 5.0 * profile.cvar_error(self.alpha)

    def highest_eta(self, c: float) -> float:
        """No quantile is above this: E[R] ≥ α·CVaR + (1−α)·VaR, and no mean is above V."""
        return (self.unlimited() - self.alpha * c) / (1.0 - self.alpha) if self.alpha < 1.0 else c

    def levels(self, typical: int) -> tuple[int, int]:
        """From the lowest η of interest to the luckiest return."""
        low, high = floor(self.lowest / self.step), ceil(self.highest_eta(self.lowest) / self.step)
        lucky = ceil(min(float(self.luckiest[self.endable.states].max()) / self.step, 1e15))
        low -= typical * self.pays_on_the_way
        return low, max(high, min(high + typical, lucky)) - low + 1

    @cached_property
    def best(self) -> float:
        """The largest CVaR: max_η η − min E[(η−R)⁺]/α."""
        if self.unlimited() == inf or self.alpha == 1.0:
            return self.unlimited()
        of_interest = self.z <= self.highest_eta(self.lowest) + self.step
        return float(np.max((self.z - self.dual.least / self.alpha)[of_interest]))

    def solve(self, limit: Limit) -> Ceiling:
        """The ceiling under CVaR_α ≥ limit."""
        if self.unlimited() == inf:
            reason = "some loop gains for ever; the discounted bound is that without a limit"
            return Ceiling(limit, UNBOUNDED, inf, self.unlimited(True), nan, self.best, reason)
        c = limit.value
        if limit.allows(self.lowest):
            return self.unhindered(limit)
        asked = (self.z >= c - self.step) & (self.z <= self.highest_eta(c) + self.step)
        return self.answer(limit, np.where(asked, self.alpha * (self.z - c), -inf))


class _Spread(_Windowed):
    """std ≤ σ."""

    mesh, linear = MESH, False

    def __init__(self, mdp: TabularMDP, alpha: float) -> None:
        super().__init__(mdp, alpha)
        if not self.trouble and self.unlimited() == inf:
            self.trouble = "some loop gains for ever, which leaves open what a limit on the spread allows"

    def cost(self, z: Floats) -> Floats:
        """z²: the square of how far the return is from a."""
        return np.asarray(z**2)

    @property
    def means(self) -> tuple[float, float]:
        """Which a are looked at."""
        return self.unlimited() - 4.0 * self.unlimited_profile.std, self.unlimited()

    def levels(self, typical: int) -> tuple[int, int]:
        """From the lowest mean of interest to what an episode may come to owe."""
        low, high = (floor(m / self.step) for m in self.means)
        low -= typical * self.pays_on_the_way
        return low, high - low + typical + 2

    @property
    def scope(self) -> str:
        """Of which policies ``best`` speaks."""
        return f"among policies with a mean of at least {self.means[0]:.4g}"

    @property
    def of_interest(self) -> Bools:
        """Which z are such a, [L]."""
        return (self.z >= self.means[0] - self.step) & (self.z <= self.means[1] + self.step)

    @cached_property
    def best(self) -> float:
        """A lower bound on every spread, less than half a mesh below the least."""
        return sqrt(max(0.0, float(self.dual.least[self.of_interest].min()) - self.step**2 / 4.0))

    def solve(self, limit: Limit) -> Ceiling:
        """The ceiling under std ≤ limit."""
        if limit.allows(self.unlimited_profile.std):
            return self.unhindered(limit)
        return self.answer(limit, np.where(self.of_interest, limit.value**2 + self.step**2 / 4.0, -inf))


def _shape(mdp: TabularMDP) -> tuple[int, int]:
    return mdp.n_states, mdp.n_actions
