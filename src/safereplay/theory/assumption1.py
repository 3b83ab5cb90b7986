"""Assumption 1: the paper's conditions on w for safe replay, checked on a given model.

The paper states three points, and claims them for its own scheme. Its w(s,a,·,r) can be read as a sum over next states or
as a statement on each, so every reading is checked:

    1  var(r(s,a)) > var(r(s',a'))  ⇒  w(s,a,·,r) > w(s',a',·,r);
    2  r < r'                       ⇒  w(s,a,·,r) > w(s,a,·,r');
    3  w(s,a,s',r_min) → 1/|S_rmin(s,a)| as the pair's share of all variance goes to 1.

Variance replay fails the first where a reward is the worst of a calm pair and the best of a volatile one. It satisfies
the second for β > 0, summed over next states. It fails the third for every finite β as the other variances go to 0, since
the softmax share of r_min stays below 1. It satisfies the third as the pair's own spread goes to infinity.

Ref: Szlak & Shamir (2021), Assumption 1.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import exp, inf, log
from typing import Any

import numpy as np

from .. import _checks
from .._config import plain
from .._types import Floats, Ints
from ..kernels.memory import STATISTICS
from ..mdp import TabularMDP
from ..schemes import Scheme
from .operator import limit_weights
from .valued import valued
from .weights import Entries, Table, Weights, evaluated, limit_table, log_sums, taken_apart

TIE = 1e-9  # variances that differ by less (relative) are equal
LOG_TIE = 1e-10  # weights of different pairs whose logarithms differ by less are equal
WIDE = 1e8  # spread of a pair's rewards, relative to the widest pair's, that stands for infinity
NEARLY = 0.99  # a share of the variance, or of w, that counts as 'sufficiently close to 1'


@dataclass(frozen=True)
class Part:
    """One checked condition: whether it holds (None if unknown), and why."""

    holds: bool | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; numbers that are not finite become None."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


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
    shape = (mdp.n_states, mdp.n_actions)
    Q = valued(mdp, scheme, v, np.ones(shape))[0] if scheme.follows_values else None
    limit_weights(mdp, scheme, Q)  # raises an error for a scheme without w^∞, or with invalid factors
    table = limit_table(mdp, Q)
    weights = taken_apart(scheme, table)
    points = (_point_1(mdp, weights), _point_2(mdp, weights), _point_3(mdp, scheme, table, weights))
    failed = [str(k) for k, point in enumerate(points, 1) if not point.holds]
    said = f"point{'s' * (len(failed) > 1)} {' and '.join(failed)} fail{'s' * (len(failed) == 1)}"
    return Assumption1(not failed, said if failed else "all three points hold", points)


def _point_1(mdp: TabularMDP, weights: Weights) -> Point:
    """Higher variance, higher w.

    No scheme can satisfy this at *every* reward if a calm pair has a reward that a more volatile one lacks: there
    w of the volatile pair is 0. So the first reading compares only rewards that both pairs can give.
    """
    level = _levels(mdp.reward_variance.ravel())
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
    if not shared.compared:
        reason = "no two pairs of different variance share a reward"
    elif shared.holds:
        reason = "more volatile pairs have more weight at each reward that both can give"
    else:
        reason = f"{shared.broken} of {shared.compared} rewards of a pair have no more weight than at a calmer pair"
    return Point(shared.holds, reason, readings)


def _levels(variance: Floats) -> Ints:
    """Ranks of the variances; those equal up to rounding share one."""
    order = np.argsort(variance, kind="stable")
    rising = np.diff(variance[order]) > TIE * variance[order][1:]
    level = np.empty(variance.size, np.int64)
    level[order] = np.concatenate(([0], np.cumsum(rising)))
    return level


def _rising(mdp: TabularMDP, name: str, entries: Entries, level: Ints, key: Ints) -> Reading:
    """Whether weights increase with the level of their pair, among entries of the same key."""
    broken, by, compared = _outweighed(key, level[entries.pair], entries.log_w)
    if not broken.size:
        return Reading(name, True, compared, 0, None)
    worst = int(np.argmax(entries.log_w[by]))
    witness = _volatile_but_light(mdp, entries, int(broken[worst]), int(by[worst]))
    return Reading(name, False, compared, int(broken.size), witness)


def _outweighed(key: Ints, level: Ints, log_w: Floats) -> tuple[Ints, Ints, int]:
    """Entries with at most the weight of one of lower level and the same key: (which, by which, how many were compared).

    Sorted by key and level, the heaviest entry so far is a running maximum; ranks offset by key keep keys separate.
    """
    size = log_w.size
    by_weight = np.argsort(log_w, kind="stable")
    rank = np.empty(size, np.int64)
    rank[by_weight] = np.arange(size)
    order = np.lexsort((level, key))
    new = np.ones(size, bool)
    new[1:] = (np.diff(key[order]) != 0) | (np.diff(level[order]) != 0)
    run, first = np.cumsum(new) - 1, np.flatnonzero(new)
    run_key = key[order[first]]
    heaviest = np.maximum.accumulate(run_key * size + np.maximum.reduceat(rank[order], first))
    has_lower = np.concatenate(([False], run_key[1:] == run_key[:-1]))[run]
    entry = order[has_lower]
    rival = by_weight[heaviest[run[has_lower] - 1] - key[entry] * size]
    margin = LOG_TIE + 1e-13 * np.abs(np.where(np.isfinite(log_w[rival]), log_w[rival], 0.0))
    lost = ~(log_w[entry] > log_w[rival] + margin)
    return entry[lost], rival[lost], int(entry.size)


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
    return Witness(text, (_pair(mdp, pairs[0]), _pair(mdp, pairs[1])), rewards, s_next, log_w)


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
    summed = _falling(mdp, "summed over next states", rewards, by_reward, by_reward, rewards.pair)
    column = np.unique(np.stack([outcomes.pair, outcomes.place]), axis=1, return_inverse=True)[1].ravel()
    by_place = np.argsort(column, kind="stable")
    group = np.concatenate(([0], np.cumsum((np.diff(outcomes.pair) != 0) | (np.diff(outcomes.r) != 0))))
    order = np.lexsort((outcomes.within, group))
    first = np.searchsorted(group, by_reward)
    last = np.append(first[1:], group.size) - 1
    readings = (
        summed,
        _falling(mdp, "for each next state", outcomes, by_place, by_place, column[by_place]),
        _falling(mdp, "for any two outcomes", outcomes, order[first], order[last], rewards.pair),
    )
    if not summed.compared:
        reason = "no pair has two rewards"
    elif summed.holds:
        reason = "within each pair, lower rewards have more weight"
    else:
        reason = (
            f"{summed.broken} of {summed.compared} rewards have no more weight than the next higher one of the pair"
        )
    return Point(summed.holds, reason, readings)


def _falling(mdp: TabularMDP, name: str, entries: Entries, lightest: Ints, heaviest: Ints, column: Ints) -> Reading:
    """Whether weights decrease along each column: the lightest entry of one row above the heaviest of the next."""
    row = np.flatnonzero(np.diff(column) == 0)
    low, high = lightest[row], heaviest[row + 1]
    bad = np.flatnonzero(~(entries.within[low] > entries.within[high]))
    if not bad.size:
        return Reading(name, True, int(row.size), 0, None)
    worst = bad[np.argmax(entries.log_w[high[bad]])]
    i, j = int(low[worst]), int(high[worst])
    log_w = float(entries.log_w[i]), float(entries.log_w[j])
    pair = int(entries.pair[i])
    text = (
        f"{_named(mdp, pair)}: w({entries.argument(i)}) = {_shown(log_w[0])}, "
        f"not above w({entries.argument(j)}) = {_shown(log_w[1])}"
    )
    s_next = () if entries.place[i] < 0 else (int(entries.place[i]) // 2, int(entries.place[j]) // 2)
    rewards = float(entries.r[i]), float(entries.r[j])
    return Reading(
        name, False, int(row.size), int(bad.size), Witness(text, (_pair(mdp, pair),), rewards, s_next, log_w)
    )


def _pair(mdp: TabularMDP, i: int) -> tuple[int, int]:
    return i // mdp.n_actions, i % mdp.n_actions


def _named(mdp: TabularMDP, i: int) -> str:
    return "(s={}, a={})".format(*_pair(mdp, i))


def _shown(log_w: float) -> str:
    """A weight, given its logarithm."""
    return f"{exp(log_w):.3g}" if log_w > -700.0 or log_w == -inf else f"10^{log_w / log(10.0):.0f}"


def _point_3(mdp: TabularMDP, scheme: Scheme, table: Table, weights: Weights) -> Point:
    """w(s,a,s',r_min) → 1/|S_rmin| as a pair's share of all variance goes to 1, in either of two ways.

    Either the others become calm: each gives its mean reward with certainty, and only the pair keeps its rewards. Or its
    own rewards spread, r_min + λ·(r − r_min) with λ → ∞, and the others keep theirs. Either way raw pair weights are
    enough: the pair's own, divided by it plus the sum of the others'.
    """
    variance = mdp.reward_variance.ravel()
    volatile = np.flatnonzero(variance > 0)
    calm = table.stats.copy()
    for none in ("var", "down", "spread"):
        calm[:, STATISTICS.index(none)] = 0.0
    for extreme in ("r_min", "r_max"):
        calm[:, STATISTICS.index(extreme)] = calm[:, STATISTICS.index("mean")]
    calm_weight = evaluated(scheme, table._replace(stats=calm))[0]
    calm_weight[np.diff(mdp.row) == 0] = 0.0
    spread = taken_apart(scheme, _spread(table, volatile))
    readings = (
        _reaching(mdp, "as the other pairs grow calm", weights, calm_weight, volatile, 0.0),
        _reaching(mdp, "as the pair's own rewards spread", spread, weights.raw, volatile, 1.0 - NEARLY),
    )
    first = readings[0]
    if not volatile.size:
        reason = "no pair is volatile"
    elif first.holds:
        reason = "all of w is on the worst reward of the pair"
    else:
        reason = f"w stays below 1/|S_rmin| at {first.broken} of {first.compared} volatile pairs"
    return Point(first.holds, reason, readings)


def _spread(table: Table, volatile: Ints) -> Table:
    """The table with the rewards of each volatile pair spread to WIDE times the widest range."""
    low, high = (table.stats[:, STATISTICS.index(name)] for name in ("r_min", "r_max"))
    width = high - low
    scale = np.ones(low.size)
    scale[volatile] = WIDE * width.max(initial=0.0) / width[volatile]
    stats = table.stats.copy()
    for name in ("mean", "r_min", "r_max"):
        column = STATISTICS.index(name)
        stats[:, column] = low + scale * (stats[:, column] - low)
    for squared in ("var", "down"):
        stats[:, STATISTICS.index(squared)] *= scale**2
    return table._replace(r=low[table.pair] + scale[table.pair] * (table.r - low[table.pair]), stats=stats)


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
        on_worst = log_sums(outcomes.within[worst], outcomes.pair[worst], n)
        elsewhere = log_sums(outcomes.within[~worst], outcomes.pair[~worst], n)
        rest = np.log(_sums_of_the_others(others))
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
    witness = Witness(text, (_pair(mdp, i),), (r,), (s_next,), (log_w, wanted))
    return Reading(name, False, int(volatile.size), int(short.sum()), witness)


def _sums_of_the_others(x: Floats) -> Floats:
    """Σ_{j ≠ i} x_j for each i, without subtracting x_i from the sum, which could lose the rest to rounding."""
    before, after = np.cumsum(x)[:-1], np.cumsum(x[::-1])[::-1][1:]
    return np.asarray(np.append(0.0, before) + np.append(after, 0.0))
