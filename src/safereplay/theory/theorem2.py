"""Theorem 2: where replay makes the policy leave a volatile action, compared with the exact limit of a model.

Let a be the best action of s without replay, Q₀ and V₀ the values without and Q* and V* those with replay, T(V) and
U(V) the target of (s,a) over its own outcomes and over its worst ones:

    T(V) = Σ p·(r + γ·V(s')),        U(V) = r_min + γ·Σ_{s' ∈ S_rmin} V(s')/|S_rmin|.

The theorem says: if (s,a) has nearly all the variance and some b is worse by less than

    bound  =  T(V₀) − T(V*) + v·(T(V*) − U(V*)),                              then Q*(s,a) < Q*(s,b).

In the limit the bound is Q₀(s,a) − Q*(s,a), so the inequality says Q*(s,a) < Q₀(s,b). The proof then replaces Q₀(s,b) by
Q*(s,b), since (s,b) is not replayed. But b may lead back to s, whose value replay has lowered. Two corrections:

        Q₀(s,a) − Q₀(s,b) + (Q₀(s,b) − Q*(s,b))  <  bound      the fall of b counts too: equivalent to the switch;
        ρ·(T(V⁻) − U(V⁻))  >  T(V⁻) − V⁻(s)                    V⁻ the best values if a is not available in s.

The second does not need Q*: it gives the share ρ of replays above which the policy leaves a. The theorem
is right as stated if b cannot lead back to s, or more generally if the value of b does not depend on a.

Ref: Szlak & Shamir (2021), Theorem 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .._types import Bools, Floats, Ints
from ..arrays import slots_of
from ..mdp import TabularMDP
from ..schemes import Scheme
from .assumption1 import NEARLY, Part
from .operator import Operator, operator
from .solver import largest, optimal, slack, targets
from .valued import Along
from .weights import extremes

TIE = 1e-9  # values of Q that differ by less (relative) are equal
SWEEP = 32  # values of v at which a switch is searched
V_TOLERANCE = 1e-6  # of the v of the switch


@dataclass(frozen=True)
class Switch:
    """The prediction of Theorem 2 for a state, and the exact result."""

    s: int
    a: int  #: the best action without replay
    unique: bool  #: whether no other action ties
    share: float  #: var(r(s,a)) / Σ var
    w_worst: float  #: w(s,a,·,r_min): the premise is that it is nearly 1
    b: int  #: the best other action without replay
    gap: float  #: Q₀(s,a) − Q₀(s,b)
    bound: float  #: the theorem's right-hand side
    predicted: bool  #: gap < bound: the theorem's inequality
    rho: float  #: ρ(s,a), the share of the pair's updates that are replays; the theorem has v in its place
    fall: float  #: Q₀(s,b') − Q*(s,b') of the best other action b' with replay, which the theorem assumes to be 0
    needed: float  #: Q₀(s,a) − Q*(s,b'): the gap to b' and its fall
    bound_rho: float  #: the right-hand side with ρ for v
    corrected: bool  #: needed < bound_rho: the corrected inequality
    way_back: bool  #: whether b can lead back to s, at once or later
    switched: bool  #: whether the policy has left a
    broken: bool  #: whether some b satisfies the theorem's inequality, but Q*(s,a) ≥ Q*(s,b)
    v_switch: float | None  #: the smallest v at which the policy leaves a; None if it never does


@dataclass(frozen=True)
class Theorem2(Part):
    """Theorem 2 for each state. ``holds`` refers to states that satisfy its premise; None if there are none.

    Ref: Szlak & Shamir (2021), Theorem 2.
    """

    v: float
    states: tuple[Switch, ...]
    premise: int | None  #: the state whose best action has nearly all variance, and nearly all of w on its worst reward
    v_limit: float | None  #: the v at which its action changes if nothing else is replayed; inf if it never does

    def count(self, name: str) -> int:
        """The number of states where a field is true: 'predicted', 'corrected', 'switched', 'broken', ..."""
        return sum(getattr(state, name) for state in self.states)


def theorem_2(mdp: TabularMDP, scheme: Scheme, v: float = 0.5, visitation: Any = None) -> Theorem2:
    """The predictions of Theorem 2 for every state of a model, and the exact results.

    ``visitation`` is d(s,a) [S, A], or None for the paper's d ≡ 1; it is held fixed while v is varied. The smallest v is
    searched on 32 steps, then to 1e-6: a switch that is reversed within one step would be missed.

    >>> import safereplay as sr
    >>> rows = [(0, 0, 0.5, 1, 20, True), (0, 0, 0.5, 1, 0, True), (0, 1, 1, 0, 0)]     # gamble, or wait
    >>> wait = sr.TabularMDP.from_outcomes(2, 2, rows, gamma=0.9, start=0)
    >>> state = theorem_2(wait, sr.VarianceReplay(beta=5.0), v=0.5).states[0]
    >>> state.gap, state.bound, state.predicted, state.switched, state.corrected
    (1.0, 5.0, True, False, False)

    Ref: Szlak & Shamir (2021), Theorem 2.
    """
    mdp = mdp.reachable_part()
    H = operator(mdp, scheme, v, visitation)
    Q0, Q = optimal(mdp, mdp.p), H.fixed_point()
    a, s, tie = Q0.argmax(1), np.arange(mdp.n_states), slack(TIE, Q0, mdp.r)
    y, lean = targets(mdp, Q.max(1)), _worst_outcomes(mdp)
    T, U = mdp.expect(y), mdp.expect(y, lean)
    bound, bound_rho = (Q0 - T + x * (T - U) for x in (v, H.rho))
    before, now = _without(Q0, a), _without(Q, a)  # the other actions
    b, rival = before.argmax(1), now.argmax(1)
    gap, needed = Q0[s, a] - before.max(1), Q0[s, a] - now.max(1)
    met = Q0[s, a][:, None] - before < bound[s, a][:, None] - tie
    variance = mdp.reward_variance
    columns = {
        "s": s,
        "a": a,
        "unique": gap > tie,
        "share": (variance / (float(variance.sum()) or 1.0))[s, a],
        "w_worst": mdp.expect(H.w, (lean > 0).astype(np.float64))[s, a],
        "b": b,
        "gap": gap,
        "bound": bound[s, a],
        "predicted": met.any(1),
        "rho": H.rho[s, a],
        "fall": Q0[s, rival] - Q[s, rival],
        "needed": needed,
        "bound_rho": bound_rho[s, a],
        "corrected": needed < bound_rho[s, a] - tie,
        "way_back": _ways_back(mdp)[s, b],
        "switched": Q[s, a] < now.max(1) - tie,
        "broken": (met & (now <= Q[s, a][:, None] + tie)).any(1),
        "v_switch": _first_switch(mdp, scheme, visitation, a, tie),
    }
    live = np.flatnonzero(~mdp.is_terminal & (mdp.n_actions > 1))
    rows = [{name: column[k].item() for name, column in columns.items()} for k in live]
    states = tuple(Switch(**{**row, "v_switch": None if isnan(row["v_switch"]) else row["v_switch"]}) for row in rows)
    return _judged(mdp, v, states, H, visitation)


def _judged(mdp: TabularMDP, v: float, states: tuple[Switch, ...], H: Operator, visitation: Any) -> Theorem2:
    """The theorem's verdict, on the state, if any, whose best action has nearly all the variance."""
    close = [x for x in states if x.unique and x.share >= NEARLY and x.w_worst >= NEARLY]
    if not close:
        most = max((x.share for x in states), default=0.0)
        reason = f"says nothing here: of all variance, no state's best action has more than {most:.1%}"
        if most >= NEARLY:
            reason = "says nothing here: too little of w is on the worst reward of the volatile pair"
        return Theorem2(None, reason, v, states, None, None)
    (x,) = close
    rho = critical_share(mdp, x.s, x.a)
    d = 1.0 if visitation is None else float(np.asarray(visitation)[x.s, x.a])
    W = float(mdp.expect(H.w, np.ones_like(H.w))[x.s, x.a])
    v_limit = rho * d / (W * (1.0 - rho) + rho * d) if isfinite(rho) else inf
    # The share goes to 1 in the theorem, so it is refuted only if the action also stays with all the variance there.
    refuted = x.broken and v <= rho
    holds = False if refuted else True if x.predicted and not x.broken else None
    compared = f"state {x.s}: gap {x.gap:.4g} {'<' if x.predicted else '≥'} bound {x.bound:.4g}"
    open_end = "yet the action stays: too near to call at this share" if x.broken else "so nothing is promised"
    ends = {True: "and the action switches", False: "yet the action stays", None: open_end}[holds]
    return Theorem2(holds, f"{compared}, {ends}", v, states, x.s, v_limit)


def critical_share(mdp: TabularMDP, s: int, a: int) -> float:
    """The share ρ of replays above which the policy leaves a in s, if only (s,a) is replayed, at its worst reward.

    Let V⁻ be the best values if a is not available in s. The policy has left a exactly if V⁻ is also optimal with a
    available, that is, if taking a once is worth no more than V⁻(s): (1−ρ)·T(V⁻) + ρ·U(V⁻) < V⁻(s). So

        ρ  >  ( T(V⁻) − V⁻(s) ) / ( T(V⁻) − U(V⁻) ),

    for all larger ρ as well, since it is linear. Infinity if no share below 1 is enough, 0 if a is not the best action.

    >>> import safereplay as sr
    >>> rows = [(0, 0, 0.5, 1, 20, True), (0, 0, 0.5, 1, 0, True), (0, 1, 1, 1, 6, True)]     # gamble, or take 6
    >>> critical_share(sr.TabularMDP.from_outcomes(2, 2, rows, start=0), 0, 0)
    0.4

    Ref: Szlak & Shamir (2021), Theorem 2.
    """
    here = mdp.pair == s * mdp.n_actions + a
    floor = -2.0 * largest(mdp.r) / (1.0 - mdp.gamma)  # below every value, so it is never chosen
    without = replace(mdp, r=np.where(here, floor, mdp.r), terminal=mdp.terminal | here)
    V = optimal(without, mdp.p).max(1)
    y = targets(mdp, V)
    T, U = float(mdp.expect(y)[s, a]), float(mdp.expect(y, _worst_outcomes(mdp))[s, a])
    ahead = T - float(V[s])
    if ahead <= 0.0:
        return 0.0
    rho = ahead / (T - U) if T > U else inf
    return rho if rho < 1.0 else inf


def lead(Q: Floats, a: Ints) -> Floats:
    """The lead of action a of each state over the others, [S]: below 0 if one of them is better."""
    return np.asarray(Q[np.arange(a.size), a] - _without(Q, a).max(1))


def _without(Q: Floats, a: Ints) -> Floats:
    """Q with −inf for action a of each state."""
    rest = Q.copy()
    rest[np.arange(a.size), a] = -inf
    return rest


def _worst_outcomes(mdp: TabularMDP) -> Floats:
    """The limit of the replays of a pair: the next states of its worst reward equally, [K]."""
    slot = slots_of(mdp)
    worst = (slot == np.arange(slot.size)) & (mdp.r == extremes(mdp)[0][mdp.pair])
    size = np.bincount(mdp.pair, weights=worst, minlength=mdp.n_pairs)
    return np.asarray(worst / size[mdp.pair])


def _ways_back(mdp: TabularMDP) -> Bools:
    """Whether an action of s can lead back to s, at once or later, [S, A]: to a state of the same strong component."""
    s, on = mdp.pair // mdp.n_actions, ~mdp.terminal
    graph = sparse.coo_array((np.ones(int(on.sum())), (s[on], mdp.s_next[on])), shape=(mdp.n_states,) * 2)
    component = connected_components(graph, directed=True, connection="strong")[1]
    returns = on & (component[s] == component[mdp.s_next])
    return mdp.expect(returns.astype(np.float64)) > 0


def _first_switch(mdp: TabularMDP, scheme: Scheme, visitation: Any, a: Ints, tie: float) -> Floats:
    """The smallest v at which each state's policy leaves a, [S]; nan if none does."""
    if mdp.n_actions == 1:
        return np.full(mdp.n_states, np.nan)
    grid = [*np.linspace(0.0, 1.0, SWEEP + 1)[:-1].tolist(), 1.0 - V_TOLERANCE]
    along = Along(mdp, scheme, visitation)
    return first_below(lambda v: lead(along(v), a) + tie, grid, V_TOLERANCE)


def first_below(look: Callable[[float], Floats], grid: Sequence[float], tight: float) -> Floats:
    """The smallest x at which each entry of look(x) [S] is below 0, from above, to ``tight``; nan if none is.

    The grid begins where no entry is below 0; an entry that falls below and returns within one step is missed. Each
    evaluation serves all entries: it narrows the bracket of each entry that contains it. Evaluations are at the crossing of
    a straight line, slightly to either side; each third one bisects the bracket.

    >>> first_below(lambda x: np.array([1.0, 0.3]) - x, [0.0, 0.5], 0.01).round(2)
    array([nan, 0.3])
    """
    at_low = look(grid[0])
    low, high, at_high = np.full(at_low.size, grid[0]), np.full(at_low.size, np.nan), at_low.copy()
    for x in grid[1:]:
        lead, searching = look(x), np.isnan(high)
        left, stays = searching & (lead < 0), searching & (lead >= 0)
        high[left], at_high[left] = x, lead[left]
        low[stays], at_low[stays] = x, lead[stays]
    tried = 0
    while (wide := np.flatnonzero(high - low > tight)).size:
        s, side = wide[0], (0.45, -0.45, None)[tried % 3]
        line = low[s] + (high[s] - low[s]) * at_low[s] / (at_low[s] - at_high[s])
        x = float((low[s] + high[s]) / 2 if side is None else line + side * tight)
        x = float(np.clip(x, low[s] + 0.1 * tight, high[s] - 0.1 * tight))
        lead, inside = look(x), (low < x) & (x < high)
        left, stays = inside & (lead < 0), inside & (lead >= 0)
        high[left], at_high[left] = x, lead[left]
        low[stays], at_low[stays] = x, lead[stays]
        tried += 1
    return high
