"""Assumption 1: what the paper asks of w, so that a replay is safe, checked on a given model.

It asks three things, and says that its own scheme has them. Its w(s,a,·,r) can be read as a sum over next states or as
a statement on each, so every reading is checked:

    1  var(r(s,a)) > var(r(s',a'))  ⇒  w(s,a,·,r) > w(s',a',·,r);
    2  r < r'                       ⇒  w(s,a,·,r) > w(s,a,·,r');
    3  w(s,a,s',r_min) → 1/|S_rmin(s,a)| as the pair's share of all variance goes to 1.

Variance replay fails the first where a reward is the worst of a calm pair and the best of a volatile one. It meets the
second for β > 0, summed over next states. It fails the third for every finite β when the other pairs grow calm: what is
left is the softmax share of r_min, which is below 1. It meets the third when the pair's own spread grows without end.

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
WIDE = 1e8  # how far a pair's rewards are spread, over the widest pair's, to stand for 'without end'
NEARLY = 0.99  # a share of the variance, or of w, that counts as 'sufficiently close to 1'


@dataclass(frozen=True)
class Part:
    """One thing that was checked: whether it holds (None where that cannot be said), and why."""

    holds: bool | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; what is not finite becomes None."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


@dataclass(frozen=True)
class Witness:
    """Where a point fails: the pairs (s, a), rewards and next states compared, and log w on both sides."""

    text: str
    pairs: tuple[tuple[int, int], ...]
    rewards: tuple[float, ...]
    s_next: tuple[int, ...]
    log_w: tuple[float, float]  #: of what should be larger, and of what it is compared with

    @property
    def w(self) -> tuple[float, float]:
        """w on both sides; 0 where it is too small for a float."""
        return exp(self.log_w[0]), exp(self.log_w[1])


@dataclass(frozen=True)
class Reading:
    """One way to read a point: whether it holds so, how many comparisons that took, how many fail, and the worst."""

    name: str
    holds: bool
    compared: int
    broken: int
    witness: Witness | None


@dataclass(frozen=True)
class Point(Part):
    """One of the three points; ``holds`` is that of its first reading."""

    readings: tuple[Reading, ...]


@dataclass(frozen=True)
class Assumption1(Part):
    """Assumption 1, point by point.

    Ref: Szlak & Shamir (2021), Assumption 1.
    """

    points: tuple[Point, ...]


def assumption_1(mdp: TabularMDP, scheme: Scheme, v: float = 0.5) -> Assumption1:
    """Check the three points of Assumption 1 for a scheme's w^∞ on a model, each in every reading.

    Of a scheme that looks at values it is the w of the paper's mapping at ``v``; nobody else needs v.

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
    limit_weights(mdp, scheme, Q)  # refuses a scheme that has no w^∞, or whose factors give no numbers
    table = limit_table(mdp, Q)
    weights = taken_apart(scheme, table)
    points = (_point_1(mdp, weights), _point_2(mdp, weights), _point_3(mdp, scheme, table, weights))
    failed = [str(k) for k, point in enumerate(points, 1) if not point.holds]
    said = f"point{'s' * (len(failed) > 1)} {' and '.join(failed)} fail{'s' * (len(failed) == 1)}"
    return Assumption1(not failed, said if failed else "all three points hold", points)


def _point_1(mdp: TabularMDP, weights: Weights) -> Point:
    """Higher variance, higher w.

    At *every* reward no scheme at all can do it, once a calm pair has a reward that a more volatile one has not: there
    w of the volatile pair is 0. So the first reading asks it only of rewards that both pairs can give.
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
    """Ranks of the variances; those that differ by no more than rounding share one."""
    order = np.argsort(variance, kind="stable")
    rising = np.diff(variance[order]) > TIE * variance[order][1:]
    level = np.empty(variance.size, np.int64)
    level[order] = np.concatenate(([0], np.cumsum(rising)))
    return level


def _rising(mdp: TabularMDP, name: str, entries: Entries, level: Ints, key: Ints) -> Reading:
    """Whether weights rise with the level of their pair, among entries of the same key."""
    broken, by, compared = _outweighed(key, level[entries.pair], entries.log_w)
    if not broken.size:
        return Reading(name, True, compared, 0, None)
    worst = int(np.argmax(entries.log_w[by]))
    witness = _volatile_but_light(mdp, entries, int(broken[worst]), int(by[worst]))
    return Reading(name, False, compared, int(broken.size), witness)


def _outweighed(key: Ints, level: Ints, log_w: Floats) -> tuple[Ints, Ints, int]:
    """Entries with no more weight than one of a lower level and the same key: (which, by which, how many had such one).

    Sorted by key and level, the heaviest entry so far is a running maximum; ranks shifted by key keep keys apart.
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
    """Entry i is of a pair that varies more than entry j's and has no more weight; or pair ``lacks`` has none at all."""
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
    """Point 1 at each reward that either pair can give; the one that cannot give it has w = 0 there."""
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
    """Lower reward, higher w, within a pair. W cancels there: only the tilt and the next states' shares are compared."""
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
    """Whether weights fall along each column: the lightest entry of one row above the heaviest of the next."""
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
    """A weight given by its logarithm."""
    return f"{exp(log_w):.3g}" if log_w > -700.0 or log_w == -inf else f"10^{log_w / log(10.0):.0f}"


def _point_3(mdp: TabularMDP, scheme: Scheme, table: Table, weights: Weights) -> Point:
    """w(s,a,s',r_min) → 1/|S_rmin| as a pair's share of all variance goes to 1, which can come about in two ways.

    The others grow calm: each gives its mean reward for sure, and only the pair keeps its rewards. Or its own rewards
    spread, r_min + λ·(r − r_min) with λ → ∞, and the others keep theirs. Either way raw pair weights are enough: the
    pair's own, over that and the sum of the others'.
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
    """The table with the rewards of each volatile pair spread to WIDE times the widest of all."""
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
    """Whether w(s,a,s',r_min) is 1/|S_rmin| at each volatile pair, but for a share ``slack``.

    ``own`` has the pair's weights, ``others`` [P] the raw weights that all other pairs have. What is missing is added up,
    not subtracted from 1: so 10^−434 is still more than nothing.
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
        uneven = least + np.log(size) - on_worst  # log of the least next state's share, over an even one
        even = np.abs(uneven) < 1e-12
        missing = np.where(even, np.logaddexp(rest - total, W + elsewhere), np.log(-np.expm1(W + least + np.log(size))))
        missing = np.where(np.isnan(missing), 0.0, missing)[volatile]  # a weight that is no number reaches nothing
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
    """Σ_{j ≠ i} x_j for each i, without taking x_i from the sum: the rest may be smaller than its rounding."""
    before, after = np.cumsum(x)[:-1], np.cumsum(x[::-1])[::-1][1:]
    return np.asarray(np.append(0.0, before) + np.append(after, 0.0))
