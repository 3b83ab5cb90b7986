"""Theorem 2 and its premise, Assumption 1, compared with the exact limit of a model.

**Assumption 1** states three points on w, and the paper claims them for its own scheme. Its w(s,a,·,r) can be read as a sum over next states or
as a statement on each, so every reading is checked:

    1  var(r(s,a)) > var(r(s',a'))  ⇒  w(s,a,·,r) > w(s',a',·,r);
    2  r < r'                       ⇒  w(s,a,·,r) > w(s,a,·,r');
    3  w(s,a,s',r_min) → 1/|S_rmin(s,a)| as the pair's share of all variance goes to 1.

Variance replay fails the first where a reward is the worst of a low-variance pair and the best of a volatile one. It satisfies
the second for β > 0, summed over next states. It fails the third for every finite β as the other variances go to 0, since
the softmax share of r_min stays below 1. It satisfies the third as the pair's own spread goes to infinity.

**Theorem 2** says where replay makes the policy leave a volatile action. Let a be the best action of s without replay, Q₀ and V₀ the values without and Q* and V* those with replay, T(V) and
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

Ref: Szlak & Shamir (2021), Assumption 1, Theorem 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, inf, isfinite, isnan, log
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .. import _checks
from .._checks import Bools, Floats, Ints
from .._config import plain
from ..arrays import slots_of
from ..kernels.memory import STATISTICS
from ..mdp import TabularMDP
from ..schemes import Scheme
from .operator import Along, Entries, Table, Weights, evaluated, limit_table, limit_weights, operator, taken_apart
from .solver import TIE, extremes, first_below, largest, lead, log_sums, optimal, slack, targets, without

LOG_TIE = 1e-10  # weights of different pairs whose logarithms differ by less are equal
WIDE = 1e8  # spread of a pair's rewards, relative to the widest pair's, that stands for infinity
NEARLY = 0.99  # a share of the variance, or of w, that counts as 'sufficiently close to 1'
SWEEP = 32  # values of v at which a switch is searched
V_TOLERANCE = 1e-6  # of the v of the switch


@dataclass(frozen=True)
class Part:
    """One checked condition: whether it holds (None if unknown), and why."""

    holds: bool | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; numbers that are not finite become None."""
        return dict(plain(self))


@dataclass(frozen=True)
class Witness:
    """A counterexample to a point: the pairs (s, a), rewards and next states compared, and log w on both sides."""

    text: str
    pairs: tuple[tuple[int, int], ...]
    rewards: tuple[float, ...]
    s_next: tuple[int, ...]
    log_w: tuple[float, float]  #: of the entry that should be larger, and of the one it is compared with

    @property
    def w(self) -> tuple[float, float]:
        """w on both sides; 0 on underflow."""
        return exp(self.log_w[0]), exp(self.log_w[1])


@dataclass(frozen=True)
class Reading:
    """One reading of a point: whether it holds, the number of comparisons and of failures, and the worst failure."""

    name: str
    holds: bool
    compared: int
    broken: int
    witness: Witness | None


@dataclass(frozen=True)
class Point(Part):
    """One of the three points; ``holds`` is that of the first reading."""

    readings: tuple[Reading, ...]

    @classmethod
    def of(cls, readings: tuple[Reading, ...], vacuous: str, holds: str, fails: str) -> Point:
        """The point, with one of three reasons: nothing to compare, it holds, or how often it fails."""
        first = readings[0]
        failed = fails.format(first.broken, first.compared)
        return cls(first.holds, vacuous if not first.compared else holds if first.holds else failed, readings)


@dataclass(frozen=True)
class Assumption1(Part):
    """Assumption 1, point by point.

    Ref: Szlak & Shamir (2021), Assumption 1.
    """

    points: tuple[Point, ...]


def assumption_1(mdp: TabularMDP, scheme: Scheme, v: float = 0.5) -> Assumption1:
    """Check the three points of Assumption 1 for a scheme's w^∞ on a model, each in every reading.

    For a scheme that depends on Q, w is that of the paper's mapping at ``v``; other schemes do not use v.

    >>> import safereplay as sr
    >>> found = assumption_1(sr.grids.cliff(), sr.VarianceReplay(beta=5.0))
    >>> [point.holds for point in found.points]
    [False, True, False]
    >>> print(found.points[0].readings[0].witness.text)
    (s=13, a=2) varies more than (s=17, a=3), 8.39 > 2.95, but w(·, r=-1) is 1.15e-25 there, not above 0.031

    Ref: Szlak & Shamir (2021), Assumption 1.
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    _checks.require(isinstance(scheme, Scheme), "scheme", "be a Scheme", scheme)
    mdp = mdp.reachable_part()
    Q = Along(mdp, scheme)(v) if scheme.follows_values else None
    limit_weights(mdp, scheme, Q)  # raises an error for a scheme without w^∞, or with invalid factors
    table = limit_table(mdp, Q)
    weights = taken_apart(scheme, table)
    points = (_point_1(mdp, weights), _point_2(mdp, weights), _point_3(mdp, scheme, table, weights))
    failed = [str(k) for k, point in enumerate(points, 1) if not point.holds]
    said = f"point{'s' * (len(failed) > 1)} {' and '.join(failed)} fail{'s' * (len(failed) == 1)}"
    return Assumption1(not failed, said if failed else "all three points hold", points)


def _point_1(mdp: TabularMDP, weights: Weights) -> Point:
    """Higher variance, higher w.

    No scheme can satisfy this at *every* reward if a pair has a reward that a more volatile one lacks: there
    w of the volatile pair is 0. So the first reading compares only rewards that both pairs can give.
    """
    variance = mdp.reward_variance.ravel()
    order, level = np.argsort(variance, kind="stable"), np.empty(variance.size, np.int64)
    rising = np.diff(variance[order]) > TIE * variance[order][1:]
    level[order] = np.concatenate(([0], np.cumsum(rising)))  # ranks; variances equal up to rounding share one
    rewards, outcomes = weights.rewards, weights.outcomes
    same_reward = np.unique(rewards.r, return_inverse=True)[1]
    same_outcome = np.unique(np.stack([outcomes.r, outcomes.place]), axis=1, return_inverse=True)[1].ravel()
    shared = _rising(mdp, "at each reward that both can give", rewards, level, same_reward)
    readings = (
        shared,
        _rising(mdp, "at each reward and next state that both can give", outcomes, level, same_outcome),
        _rising(mdp, "summed over rewards", weights.pairs, level, np.zeros_like(weights.pairs.pair)),
        _at_every_reward(mdp, weights, level, same_reward, shared),
    )
    vacuous = "no two pairs of different variance share a reward"
    holds = "more volatile pairs have more weight at each reward that both can give"
    fails = "{} of {} rewards of a pair have no more weight than at a calmer pair"
    return Point.of(readings, vacuous, holds, fails)


def _rising(mdp: TabularMDP, name: str, entries: Entries, level: Ints, key: Ints) -> Reading:
    """Whether weights increase with the level of their pair, among entries of the same key."""
    level, log_w, size = level[entries.pair], entries.log_w, entries.log_w.size
    by_weight = np.argsort(log_w, kind="stable")
    rank = np.empty(size, np.int64)
    rank[by_weight] = np.arange(size)
    order = np.lexsort((level, key))
    new = np.ones(size, bool)
    new[1:] = (np.diff(key[order]) != 0) | (np.diff(level[order]) != 0)
    run, first = np.cumsum(new) - 1, np.flatnonzero(new)
    run_key = key[order[first]]
    # The heaviest entry so far is a running maximum; ranks offset by key keep keys separate.
    heaviest = np.maximum.accumulate(run_key * size + np.maximum.reduceat(rank[order], first))
    has_lower = np.concatenate(([False], run_key[1:] == run_key[:-1]))[run]
    entry = order[has_lower]
    rival = by_weight[heaviest[run[has_lower] - 1] - key[entry] * size]
    margin = LOG_TIE + 1e-13 * np.abs(np.where(np.isfinite(log_w[rival]), log_w[rival], 0.0))
    lost = ~(log_w[entry] > log_w[rival] + margin)
    if not lost.any():
        return Reading(name, True, int(entry.size), 0, None)
    broken, by = entry[lost], rival[lost]
    worst = int(np.argmax(log_w[by]))
    witness = _volatile_but_light(mdp, entries, int(broken[worst]), int(by[worst]))
    return Reading(name, False, int(entry.size), int(broken.size), witness)


def _volatile_but_light(mdp: TabularMDP, entries: Entries, i: int, j: int, lacks: int | None = None) -> Witness:
    """A counterexample: entry i's pair varies more than entry j's but has no more weight; or pair ``lacks`` has none."""
    pairs = int(entries.pair[i] if lacks is None else lacks), int(entries.pair[j])
    log_w = float(entries.log_w[i]) if lacks is None else -inf, float(entries.log_w[j])
    var = mdp.reward_variance.ravel()[list(pairs)]
    text = (
        f"{_named(mdp, pairs[0])} varies more than {_named(mdp, pairs[1])}, {var[0]:.3g} > {var[1]:.3g}, "
        f"but w({entries.argument(j)}) is {_shown(log_w[0])} there, not above {_shown(log_w[1])}"
    )
    rewards = () if np.isnan(entries.r[j]) else (float(entries.r[j]),)
    s_next = () if entries.place[j] < 0 else (int(entries.place[j]) // 2,)
    return Witness(text, tuple(divmod(i, mdp.n_actions) for i in pairs), rewards, s_next, log_w)


def _at_every_reward(mdp: TabularMDP, weights: Weights, level: Ints, key: Ints, shared: Reading) -> Reading:
    """Point 1 at each reward that either pair can give; w = 0 for a pair that cannot give it."""
    name, entries, used = "at each reward that either can give", weights.rewards, weights.pairs.pair
    calmest = np.full(int(key.max()) + 1, level.size)
    np.minimum.at(calmest, key, level[entries.pair])
    more_volatile = used.size - np.searchsorted(np.sort(level[used]), calmest, side="right")
    givers = np.bincount(key, weights=level[entries.pair] > calmest[key], minlength=calmest.size)
    lacking = np.flatnonzero(givers < more_volatile)
    compared, broken = int(more_volatile.sum()), shared.broken + int((more_volatile - givers).sum())
    if shared.witness is not None or not lacking.size:
        return Reading(name, not broken, compared, broken, shared.witness)
    members = np.flatnonzero(key == lacking[0])
    calm = int(members[np.argmin(level[entries.pair[members]])])
    without = np.setdiff1d(used[level[used] > calmest[lacking[0]]], entries.pair[members])
    return Reading(name, False, compared, broken, _volatile_but_light(mdp, entries, calm, calm, int(without[0])))


def _point_2(mdp: TabularMDP, weights: Weights) -> Point:
    """Lower reward, higher w, within a pair. W cancels: only the tilt and the next states' shares are compared."""
    rewards, outcomes = weights.rewards, weights.outcomes
    by_reward = np.arange(rewards.pair.size)
    column = np.unique(np.stack([outcomes.pair, outcomes.place]), axis=1, return_inverse=True)[1].ravel()
    by_place = np.argsort(column, kind="stable")
    group = np.concatenate(([0], np.cumsum((np.diff(outcomes.pair) != 0) | (np.diff(outcomes.r) != 0))))
    order = np.lexsort((outcomes.within, group))
    first = np.searchsorted(group, by_reward)
    last = np.append(first[1:], group.size) - 1
    readings = (
        _falling(mdp, "summed over next states", rewards, by_reward, by_reward, rewards.pair),
        _falling(mdp, "for each next state", outcomes, by_place, by_place, column[by_place]),
        _falling(mdp, "for any two outcomes", outcomes, order[first], order[last], rewards.pair),
    )
    failed = "{} of {} rewards have no more weight than the next higher one of the pair"
    return Point.of(readings, "no pair has two rewards", "within each pair, lower rewards have more weight", failed)


def _falling(mdp: TabularMDP, name: str, entries: Entries, lightest: Ints, heaviest: Ints, column: Ints) -> Reading:
    """Whether weights decrease along each column: the lightest entry of one row above the heaviest of the next."""
    row = np.flatnonzero(np.diff(column) == 0)
    low, high = lightest[row], heaviest[row + 1]
    bad = np.flatnonzero(~(entries.within[low] > entries.within[high]))
    if not bad.size:
        return Reading(name, True, int(row.size), 0, None)
    worst = bad[np.argmax(entries.log_w[high[bad]])]
    i, j = int(low[worst]), int(high[worst])
    pair, log_w = int(entries.pair[i]), (float(entries.log_w[i]), float(entries.log_w[j]))
    lighter, heavier = (f"w({entries.argument(k)}) = {_shown(x)}" for k, x in zip((i, j), log_w, strict=True))
    s_next = () if entries.place[i] < 0 else (int(entries.place[i]) // 2, int(entries.place[j]) // 2)
    text, rewards = f"{_named(mdp, pair)}: {lighter}, not above {heavier}", (float(entries.r[i]), float(entries.r[j]))
    witness = Witness(text, (divmod(pair, mdp.n_actions),), rewards, s_next, log_w)
    return Reading(name, False, int(row.size), int(bad.size), witness)


def _named(mdp: TabularMDP, i: int) -> str:
    return "(s={}, a={})".format(*divmod(i, mdp.n_actions))


def _shown(log_w: float) -> str:
    """A weight, given its logarithm."""
    return f"{exp(log_w):.3g}" if log_w > -700.0 or log_w == -inf else f"10^{log_w / log(10.0):.0f}"


def _point_3(mdp: TabularMDP, scheme: Scheme, table: Table, weights: Weights) -> Point:
    """w(s,a,s',r_min) → 1/|S_rmin| as a pair's share of all variance goes to 1, in either of two ways.

    Either the variance of the others goes to 0: each gives its mean reward with certainty, and only the pair keeps its
    rewards. Or its own rewards spread, r_min + λ·(r − r_min) with λ → ∞, and the others keep theirs. Either way raw pair weights are
    enough: the pair's own, divided by it plus the sum of the others'.
    """
    volatile, calm = np.flatnonzero(mdp.reward_variance.ravel() > 0), table.stats.copy()

    def columns(*names: str) -> list[int]:
        return [STATISTICS.index(name) for name in names]

    calm[:, columns("var", "down", "spread")] = 0.0
    calm[:, columns("r_min", "r_max")] = calm[:, columns("mean")]
    calm_weight = evaluated(scheme, table._replace(stats=calm))[0]
    calm_weight[np.diff(mdp.row) == 0] = 0.0
    # The rewards of each volatile pair, spread to WIDE times the widest range.
    low, high = table.stats[:, columns("r_min", "r_max")].T
    width, scale, wide = high - low, np.ones(low.size), table.stats.copy()
    scale[volatile] = WIDE * width.max(initial=0.0) / width[volatile]
    rewards = columns("mean", "r_min", "r_max")
    wide[:, rewards] = low[:, None] + scale[:, None] * (wide[:, rewards] - low[:, None])
    wide[:, columns("var", "down")] *= scale[:, None] ** 2
    r = low[table.pair] + scale[table.pair] * (table.r - low[table.pair])
    spread = taken_apart(scheme, table._replace(r=r, stats=wide))
    readings = (
        _reaching(mdp, "as the variance of the other pairs goes to 0", weights, calm_weight, volatile, 0.0),
        _reaching(mdp, "as the pair's own rewards spread", spread, weights.raw, volatile, 1.0 - NEARLY),
    )
    failed = "w stays below 1/|S_rmin| at {} of {} volatile pairs"
    return Point.of(readings, "no pair is volatile", "all of w is on the worst reward of the pair", failed)


def _reaching(mdp: TabularMDP, name: str, own: Weights, others: Floats, volatile: Ints, slack: float) -> Reading:
    """Whether w(s,a,s',r_min) is 1/|S_rmin| at each volatile pair, up to a share ``slack``.

    ``own`` has the pair's weights, ``others`` [P] the raw weights of all other pairs. The missing share is summed,
    not subtracted from 1, so even 10^−434 counts.
    """
    outcomes, n = own.outcomes, mdp.n_pairs
    low = np.full(n, inf)
    np.minimum.at(low, outcomes.pair, outcomes.r)
    worst = outcomes.r == low[outcomes.pair]
    size = np.bincount(outcomes.pair[worst], minlength=n)
    least = np.full(n, inf)
    np.minimum.at(least, outcomes.pair[worst], outcomes.within[worst])
    with np.errstate(divide="ignore", invalid="ignore"):
        on_worst = log_sums(outcomes.pair[worst], n, outcomes.within[worst])
        elsewhere = log_sums(outcomes.pair[~worst], n, outcomes.within[~worst])
        # Σ_{j ≠ i} x_j for each i, without subtracting x_i from the sum, which could lose the rest to rounding.
        before, after = np.cumsum(others)[:-1], np.cumsum(others[::-1])[::-1][1:]
        rest = np.log(np.append(0.0, before) + np.append(after, 0.0))
        total = np.logaddexp(np.log(own.raw), rest)
        W = np.log(own.raw) - total
        uneven = least + np.log(size) - on_worst  # log of the smallest next state's share, relative to an even one
        even = np.abs(uneven) < 1e-12
        missing = np.where(even, np.logaddexp(rest - total, W + elsewhere), np.log(-np.expm1(W + least + np.log(size))))
        missing = np.where(np.isnan(missing), 0.0, missing)[volatile]  # a NaN weight misses all (log 1)
    short = missing > (log(slack) if slack > 0 else -inf)
    if not short.any():
        return Reading(name, True, int(volatile.size), 0, None)
    i = int(volatile[np.argmax(missing)])
    wanted, log_w = -log(size[i]), -inf if np.isnan(W[i]) else float(W[i] + least[i])
    k = int(np.flatnonzero(worst & (outcomes.pair == i) & (outcomes.within == least[i]))[0])
    r, s_next = float(mdp.r[mdp.row[i]]), int(outcomes.place[k]) // 2
    text = (
        f"{_named(mdp, i)}: w(s_next={s_next}, r={r:g}) → {_shown(log_w)}, "
        f"short of {_shown(wanted)} by {_shown(float(missing.max()) + wanted)}"
    )
    witness = Witness(text, (divmod(i, mdp.n_actions),), (r,), (s_next,), (log_w, wanted))
    return Reading(name, False, int(volatile.size), int(short.sum()), witness)


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
    before, now = without(Q0, a), without(Q, a)  # the other actions
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
    return _judged(mdp, v, states, H.w, visitation)


def _judged(mdp: TabularMDP, v: float, states: tuple[Switch, ...], w: Floats, visitation: Any) -> Theorem2:
    """The theorem's verdict, on the state, if any, whose best action has nearly all the variance."""
    close = [x for x in states if x.unique and x.share >= NEARLY and x.w_worst >= NEARLY]
    if not close:
        most = max((x.share for x in states), default=0.0)
        why = f"of all variance, no state's best action has more than {most:.1%}"
        why = "too little of w is on the worst reward of the volatile pair" if most >= NEARLY else why
        return Theorem2(None, f"says nothing here: {why}", v, states, None, None)
    (x,) = close
    rho = critical_share(mdp, x.s, x.a)
    d = 1.0 if visitation is None else float(np.asarray(visitation)[x.s, x.a])
    W = float(mdp.expect(w, np.ones_like(w))[x.s, x.a])
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

    Ref: Szlak & Shamir (2021), Theorem 2.
    """
    here = mdp.pair == s * mdp.n_actions + a
    floor = -2.0 * largest(mdp.r) / (1.0 - mdp.gamma)  # below every value, so it is never chosen
    V = optimal(replace(mdp, r=np.where(here, floor, mdp.r), terminal=mdp.terminal | here), mdp.p).max(1)
    y = targets(mdp, V)
    T, U = float(mdp.expect(y)[s, a]), float(mdp.expect(y, _worst_outcomes(mdp))[s, a])
    if (ahead := T - float(V[s])) <= 0.0:
        return 0.0
    rho = ahead / (T - U) if T > U else inf
    return rho if rho < 1.0 else inf


def _worst_outcomes(mdp: TabularMDP) -> Floats:
    """The limit of the replays of a pair: the next states of its worst reward equally, [K]."""
    slot = slots_of(mdp)
    worst = (slot == np.arange(slot.size)) & (mdp.r == extremes(mdp)[0][mdp.pair])
    return np.asarray(worst / np.bincount(mdp.pair, weights=worst, minlength=mdp.n_pairs)[mdp.pair])


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
