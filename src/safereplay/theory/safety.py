"""Is a replay safe? The paper's Assumption 1 on w, and what its Theorem 2 promises of the policy, on a given model.

**Assumption 1.** The paper asks three things of w, and says that its own scheme has them. Its w(s,a,·,r) can be read as
a sum over next states or as a statement on each, so every reading is checked:

    1  var(r(s,a)) > var(r(s',a'))  ⇒  w(s,a,·,r) > w(s',a',·,r);
    2  r < r'                       ⇒  w(s,a,·,r) > w(s,a,·,r');
    3  w(s,a,s',r_min) → 1/|S_rmin(s,a)| as the pair's share of all variance goes to 1.

Variance replay fails the first where a reward is the worst of a calm pair and the best of a volatile one. It meets the
second for β > 0, summed over next states. It fails the third for every finite β when the other pairs grow calm: what is
left is the softmax share of r_min, which is below 1. It meets the third when the pair's own spread grows without end.

**Theorem 2.** Let a be the best action of s without replay, Q₀ and V₀ the values then, Q* and V* those with it, T(V) and
U(V) the target of (s,a) over its own outcomes and over its worst ones:

    T(V) = Σ p·(r + γ·V(s')),        U(V) = r_min + γ·Σ_{s' ∈ S_rmin} V(s')/|S_rmin|.

The theorem says: if (s,a) has nearly all the variance and some b is worse by less than

    bound  =  T(V₀) − T(V*) + v·(T(V*) − U(V*)),                              then Q*(s,a) < Q*(s,b).

In the limit the bound is Q₀(s,a) − Q*(s,a), so the inequality says Q*(s,a) < Q₀(s,b). The proof then puts Q*(s,b) for
Q₀(s,b), since nothing of (s,b) is replayed. But b may lead back to s, whose value replay has lowered. Two ways to mend it:

    Q₀(s,a) − Q₀(s,b) + (Q₀(s,b) − Q*(s,b))  <  bound      the fall of b counts too: then equivalent to the switch;
    ρ·(T(V⁻) − U(V⁻))  >  T(V⁻) − V⁻(s)                    V⁻ the best values where a is not on offer in s.

The second needs no Q*: it gives the share ρ of replays from which on the policy leaves a, once and for all. The theorem
is right as it stands where b has no way back to s, or more generally where b is worth as much without a.

Ref: Szlak & Shamir (2021), Assumption 1, Theorem 2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from math import exp, inf, isfinite, isnan, log
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .. import _checks
from .._types import Bools, Floats, Ints
from ..kernels.compile import Array, Bound, digest_of, specialise
from ..kernels.memory import STATISTICS
from ..mdp import TabularMDP
from ..runs import slots_of
from ..schemes import Scheme
from .operator import MANY, Operator, limit_weights, operator
from .solver import optimal, targets

TIE = 1e-9  # variances, and values of Q, that differ by less (relative) are equal
LOG_TIE = 1e-10  # weights of different pairs whose logarithms differ by less are equal
WIDE = 1e8  # how far a pair's rewards are spread, over the widest pair's, to stand for 'without end'
NEARLY = 0.99  # a share of the variance, or of w, that counts as 'sufficiently close to 1'
SWEEP = 32  # values of v at which a switch is looked for
V_TOLERANCE = 1e-6  # of the v at which it happens


@dataclass(frozen=True)
class Part:
    """One thing that was checked: whether it holds (None where that cannot be said), and why."""

    holds: bool | None
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types; what is not finite becomes None."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}


def plain(value: Any) -> Any:
    """A result as JSON has it."""
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [plain(x) for x in value]
    if isinstance(value, np.generic):
        value = value.item()
    return value if not isinstance(value, float) or isfinite(value) else None


# -- w taken apart ----------------------------------------------------------------------------------------------------


class Entries(NamedTuple):
    """Parallel arrays of weights: of pairs, of their rewards, or of their outcomes. All sorted by pair, then reward.

    Weights are logarithms: e^{−1000} is small, and not 0. A tie by underflow would not be a tie.
    """

    pair: Ints
    r: Floats  #: nan where summed over rewards
    place: Ints  #: 2·s' + (whether the episode ends there); −1 where summed over next states
    within: Floats  #: log of the share of its pair's weight
    log_w: Floats  #: log w

    def argument(self, k: int) -> str:
        """The entry as the argument of w."""
        to = "·" if self.place[k] < 0 else f"s_next={self.place[k] // 2}"
        return "·, ·" if np.isnan(self.r[k]) else f"{to}, r={self.r[k]:g}"


class Weights(NamedTuple):
    """A scheme's w on a model: at each pair, summed over next states, and outcome by outcome."""

    raw: Floats  #: [P] pair_weight, not yet a share
    pairs: Entries
    rewards: Entries
    outcomes: Entries


class Table(NamedTuple):
    """The J distinct outcomes of a model, and the statistics of its pairs after endless visits."""

    pair: Ints  #: [J]
    r: Floats  #: [J]
    place: Ints  #: [J]
    seen: Floats  #: [J] counts
    stats: Floats  #: [P, 6] in the order of STATISTICS


def limit_table(mdp: TabularMDP) -> Table:
    """The outcomes and statistics that w^∞ is made of."""
    slot = slots_of(mdp)
    k = np.unique(slot)
    seen = np.asarray(np.bincount(slot, weights=mdp.p, minlength=mdp.p.size)[k] * MANY, np.float64)
    r_min, r_max = _extremes(mdp)
    columns = {
        "n": np.full(mdp.n_pairs, MANY),
        "mean": mdp.expect(mdp.r).ravel(),
        "var": mdp.reward_variance.ravel(),
        "r_min": r_min,
        "r_max": r_max,
        "td": np.zeros(mdp.n_pairs),
    }
    stats = np.column_stack([columns[name] for name in STATISTICS])
    return Table(mdp.pair[k], mdp.r[k], 2 * mdp.s_next[k] + mdp.terminal[k], seen, stats)


def _extremes(mdp: TabularMDP) -> tuple[Floats, Floats]:
    """r_min and r_max of each pair, [P]; 0 where it has no outcomes."""
    used = np.diff(mdp.row) > 0
    low, high = np.zeros(mdp.n_pairs), np.zeros(mdp.n_pairs)
    low[used], high[used] = mdp.r[mdp.row[:-1][used]], mdp.r[mdp.row[1:][used] - 1]  # rows are sorted by reward
    return low, high


def _evaluated(scheme: Scheme, table: Table) -> tuple[Floats, Floats, Floats]:
    """(pair_weight [P], log_tilt [J], next_weight [J])."""
    weight, tilt, share = np.empty(len(table.stats)), np.empty(table.r.size), np.empty(table.r.size)
    evaluate = _evaluator(*(scheme.bound(factor) for factor in scheme.OFFERS))
    evaluate(table.pair, table.r, table.seen, table.stats, scheme.params(), weight, tilt, share)
    return weight, tilt, share


@lru_cache(maxsize=64)
def _evaluator(pair_weight: Bound, log_tilt: Bound, next_weight: Bound) -> Callable[..., None]:
    weight_of, tilt_of, next_of = pair_weight.call, log_tilt.call, next_weight.call

    def evaluate(
        pair: Array, r: Array, count: Array, stats: Array, params: Any, weight: Array, tilt: Array, share: Array
    ) -> None:
        for i in range(weight.size):
            x = stats[i]
            weight[i] = weight_of((x[0], x[1], x[2], x[3], x[4], x[5], *params))
        for k in range(r.size):
            x = stats[pair[k]]
            tilt[k] = tilt_of((r[k], x[0], x[1], x[2], x[3], x[4], x[5], *params))
            share[k] = next_of((count[k], *params))

    return specialise(evaluate, digest_of([pair_weight, log_tilt, next_weight]))


def taken_apart(scheme: Scheme, table: Table) -> Weights:
    """w for these statistics, factor by factor."""
    raw, tilt, share = _evaluated(scheme, table)
    new = np.ones(table.r.size, bool)
    new[1:] = (np.diff(table.pair) != 0) | (np.diff(table.r) != 0)
    reward = np.cumsum(new) - 1
    pair, mass = table.pair[new], np.bincount(reward, weights=share)
    with np.errstate(divide="ignore", invalid="ignore"):  # log 0 is −inf, as it should be
        tilt = np.where(mass > 0, tilt[new], -inf)
        total = _log_sums(tilt, pair, raw.size)
        raw = np.where(np.isfinite(total), raw, 0.0)
        W = np.where(raw > 0, np.log(raw) - np.log(raw.sum()), -inf)
        tilt = np.where(W[pair] > -inf, tilt - total[pair], -inf)
        within = tilt[reward] + np.where(share > 0, np.log(share / mass[reward]), -inf)
    used = np.unique(pair)
    none = np.full(pair.size, -1)
    pairs = Entries(used, np.full(used.size, np.nan), none[: used.size], np.zeros(used.size), W[used])
    rewards = Entries(pair, table.r[new], none, tilt, W[pair] + tilt)
    return Weights(raw, pairs, rewards, Entries(table.pair, table.r, table.place, within, W[table.pair] + within))


def _log_sums(x: Floats, group: Ints, n_groups: int) -> Floats:
    """log Σ e^x within each group; −inf where there is nothing."""
    top = np.full(n_groups, -inf)
    np.maximum.at(top, group, x)
    top = np.where(np.isfinite(top), top, 0.0)
    return np.asarray(top + np.log(np.bincount(group, weights=np.exp(x - top[group]), minlength=n_groups)))


# -- Assumption 1 -----------------------------------------------------------------------------------------------------


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


def assumption_1(mdp: TabularMDP, scheme: Scheme) -> Assumption1:
    """Check the three points of Assumption 1 for a scheme's w^∞ on a model, each in every reading.

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
    limit_weights(mdp, scheme)  # refuses a scheme that has no w^∞, or whose factors give no numbers
    table = limit_table(mdp)
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
    calm[:, STATISTICS.index("var")] = 0.0
    for extreme in ("r_min", "r_max"):
        calm[:, STATISTICS.index(extreme)] = calm[:, STATISTICS.index("mean")]
    calm_weight = _evaluated(scheme, table._replace(stats=calm))[0]
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
    stats[:, STATISTICS.index("var")] *= scale**2
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
        on_worst = _log_sums(outcomes.within[worst], outcomes.pair[worst], n)
        elsewhere = _log_sums(outcomes.within[~worst], outcomes.pair[~worst], n)
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


# -- Theorem 2 --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Switch:
    """What Theorem 2 says of a state, and what is so."""

    s: int
    a: int  #: the best action without replay
    unique: bool  #: whether no other is as good
    share: float  #: var(r(s,a)) / Σ var
    w_worst: float  #: w(s,a,·,r_min): the premise is that it is nearly 1
    b: int  #: the best other action without replay
    gap: float  #: Q₀(s,a) − Q₀(s,b)
    bound: float  #: the theorem's right-hand side
    predicted: bool  #: gap < bound: the theorem's inequality
    rho: float  #: ρ(s,a), the share of the pair's updates that are replays; the theorem has v in its place
    fall: float  #: Q₀(s,b') − Q*(s,b') of the best other action b' with replay, which the theorem takes for 0
    needed: float  #: Q₀(s,a) − Q*(s,b'): the gap to b' and its fall
    bound_rho: float  #: the right-hand side with ρ for v
    corrected: bool  #: needed < bound_rho: the inequality put right
    way_back: bool  #: whether b can lead back to s, at once or later
    switched: bool  #: whether the policy has left a
    broken: bool  #: some b meets the theorem's inequality, and yet Q*(s,a) ≥ Q*(s,b)
    v_switch: float | None  #: the smallest v at which the policy leaves a; None where it never does


@dataclass(frozen=True)
class Theorem2(Part):
    """Theorem 2, state by state. ``holds`` speaks of states that meet its premise; None where there are none.

    Ref: Szlak & Shamir (2021), Theorem 2.
    """

    v: float
    states: tuple[Switch, ...]
    premise: int | None  #: the state whose best action has nearly all variance, and nearly all of w on its worst reward
    v_exact: float | None  #: the v at which that state's action changes, in closed form; inf if at none

    def count(self, name: str) -> int:
        """In how many states something is so: 'predicted', 'corrected', 'switched', 'broken', ..."""
        return sum(getattr(state, name) for state in self.states)


def theorem_2(mdp: TabularMDP, scheme: Scheme, v: float = 0.5, visitation: Any = None) -> Theorem2:
    """What Theorem 2 says of every state of a model, and what is so.

    ``visitation`` is d(s,a) [S, A], or None for the paper's d ≡ 1; it is held fixed while v is varied. The smallest v is
    looked for on 32 steps, then to 1e-6: a switch and its undoing within one step would be missed.

    >>> import safereplay as sr
    >>> rows = [(0, 0, 0.5, 1, 20, True), (0, 0, 0.5, 1, 0, True), (0, 1, 1, 0, 0)]     # gamble, or wait
    >>> wait = sr.TabularMDP.from_outcomes(2, 2, rows, gamma=0.9, start=0)
    >>> state = theorem_2(wait, sr.VarianceReplay(beta=5.0), v=0.5).states[0]
    >>> state.gap, state.bound, state.predicted, state.switched, state.corrected
    (1.0, 5.0, True, False, False)

    Ref: Szlak & Shamir (2021), Theorem 2.
    """
    H = operator(mdp, scheme, v, visitation)
    Q0, Q = optimal(mdp, mdp.p), H.fixed_point()
    a, s, tie = Q0.argmax(1), np.arange(mdp.n_states), TIE * max(1.0, float(np.abs(Q0).max()))
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
        "share": (variance / max(float(variance.sum()), 1e-300))[s, a],
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
    """The theorem's verdict: on the one state, if any, whose best action has nearly all the variance."""
    close = [x for x in states if x.unique and x.share >= NEARLY and x.w_worst >= NEARLY]
    if not close:
        most = max((x.share for x in states), default=0.0)
        reason = f"says nothing here: of all variance, no state's best action has more than {most:.0%}"
        if most >= NEARLY:
            reason = "says nothing here: too little of w is on the worst reward of the volatile pair"
        return Theorem2(None, reason, v, states, None, None)
    (x,) = close
    rho = critical_share(mdp, x.s, x.a)
    d = 1.0 if visitation is None else float(np.asarray(visitation)[x.s, x.a])
    W = float(mdp.expect(H.w, np.ones_like(H.w))[x.s, x.a])
    v_exact = rho * d / (W * (1.0 - rho) + rho * d) if isfinite(rho) else inf
    holds = False if x.broken else True if x.predicted else None
    compared = f"state {x.s}: gap {x.gap:.4g} {'<' if x.predicted else '≥'} bound {x.bound:.4g}"
    ends = {True: "and the action switches", False: "yet the action stays", None: "so nothing is promised"}[holds]
    return Theorem2(holds, f"{compared}, {ends}", v, states, x.s, v_exact)


def critical_share(mdp: TabularMDP, s: int, a: int) -> float:
    """The share ρ of replays from which on the policy leaves a in s, if only (s,a) is replayed, at its worst reward.

    Let V⁻ be the best values where a is not on offer in s. The policy has left a exactly when V⁻ is optimal with a on
    offer as well, that is when one a is worth no more than V⁻(s): (1−ρ)·T(V⁻) + ρ·U(V⁻) < V⁻(s). So

        ρ  >  ( T(V⁻) − V⁻(s) ) / ( T(V⁻) − U(V⁻) ),

    once and for all: it is linear in ρ. Infinity where no share below 1 will do, 0 where a is not the best to begin with.

    >>> import safereplay as sr
    >>> rows = [(0, 0, 0.5, 1, 20, True), (0, 0, 0.5, 1, 0, True), (0, 1, 1, 1, 6, True)]     # gamble, or take 6
    >>> critical_share(sr.TabularMDP.from_outcomes(2, 2, rows, start=0), 0, 0)
    0.4

    Ref: Szlak & Shamir (2021), Theorem 2.
    """
    here = mdp.pair == s * mdp.n_actions + a
    floor = -2.0 * float(np.abs(mdp.r).max()) / (1.0 - mdp.gamma) - 1.0  # below every value: never chosen
    without = replace(mdp, r=np.where(here, floor, mdp.r), terminal=mdp.terminal | here)
    V = optimal(without, mdp.p).max(1)
    y = targets(mdp, V)
    T, U = float(mdp.expect(y)[s, a]), float(mdp.expect(y, _worst_outcomes(mdp))[s, a])
    ahead = T - float(V[s])
    if ahead <= 0.0:
        return 0.0
    rho = ahead / (T - U) if T > U else inf
    return rho if rho < 1.0 else inf


def _without(Q: Floats, a: Ints) -> Floats:
    """Q with −inf for action a of each state."""
    rest = Q.copy()
    rest[np.arange(a.size), a] = -inf
    return rest


def _worst_outcomes(mdp: TabularMDP) -> Floats:
    """The limit of what is replayed at a pair: each next state of its worst reward alike, [K]."""
    slot = slots_of(mdp)
    worst = (slot == np.arange(slot.size)) & (mdp.r == _extremes(mdp)[0][mdp.pair])
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
    """The smallest v at which each state's policy leaves a, [S]; nan where none does.

    One sweep serves all states, and so does every further look: it narrows the bracket of each state it falls into.
    Looks aim at where a straight line would cross, a little to either side; each third one halves the bracket.
    """
    if mdp.n_actions == 1:
        return np.full(mdp.n_states, np.nan)
    look = _Lead(mdp, scheme, visitation, a, tie)
    low, high = np.zeros(mdp.n_states), np.full(mdp.n_states, np.nan)
    at_low = look(0.0)
    at_high = at_low.copy()
    for v in [*np.linspace(0.0, 1.0, SWEEP + 1)[1:-1].tolist(), 1.0 - V_TOLERANCE]:
        lead, searching = look(v), np.isnan(high)
        left, stays = searching & (lead < 0), searching & (lead >= 0)
        high[left], at_high[left] = v, lead[left]
        low[stays], at_low[stays] = v, lead[stays]
    tried = 0
    while (wide := np.flatnonzero(high - low > V_TOLERANCE)).size:
        s, side = wide[0], (0.45, -0.45, None)[tried % 3]
        line = low[s] + (high[s] - low[s]) * at_low[s] / (at_low[s] - at_high[s])
        v = float((low[s] + high[s]) / 2 if side is None else line + side * V_TOLERANCE)
        v = float(np.clip(v, low[s] + 0.1 * V_TOLERANCE, high[s] - 0.1 * V_TOLERANCE))
        lead, inside = look(v), (low < v) & (v < high)
        left, stays = inside & (lead < 0), inside & (lead >= 0)
        high[left], at_high[left] = v, lead[left]
        low[stays], at_low[stays] = v, lead[stays]
        tried += 1
    return high


class _Lead:
    """How far a leads the other actions of its state at v, [S]: below 0 once the policy has left it.

    Rewards are shaped by the values Φ found last, r + γ·Φ(s') − Φ(s). That changes no policy, and lets policy iteration
    start from the last one's.
    """

    def __init__(self, mdp: TabularMDP, scheme: Scheme, visitation: Any, a: Ints, tie: float) -> None:
        self.mdp, self.scheme, self.visitation, self.a, self.tie = mdp, scheme, visitation, a, tie
        self.phi = np.zeros(mdp.n_states)

    def __call__(self, v: float) -> Floats:
        mdp = self.mdp
        shaped = replace(mdp, r=targets(mdp, self.phi) - self.phi[mdp.pair // mdp.n_actions])
        Q = optimal(shaped, operator(mdp, self.scheme, v, self.visitation).p)
        self.phi = self.phi + Q.max(1)
        return np.asarray(Q[np.arange(self.a.size), self.a] - _without(Q, self.a).max(1) + self.tie)
