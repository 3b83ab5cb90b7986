"""The memory M of a tabular learner: the distinct outcomes of each pair, and w_t over them, exact at every step.

Pair i = s·|A| + a owns the slots first[i], ..., first[i] + used[i] − 1, sorted by reward, then next state. A slot
is a distinct outcome (r, s', ends) with the number of times it was seen; an outcome not yet seen has count 0. If
only some pairs are stored, i is the row of a pair in the memory instead (see ``Memory.row``). The replay probabilities
factor as

    w_t(s,a,s',r)  =  pair_weight(s,a) / Σ pair_weight  ·  e^{log_tilt(r)} / Σ_{r'} e^{log_tilt(r')}  ·  next_weight(s') / Σ

where the second sum runs over the distinct rewards seen at the pair (M_t) and the third over the distinct next
states seen with that reward (L_t). The first factor is kept in a sum tree over pairs. The other two are, per pair, a
running sum ``share`` over its slots, computed in the log domain (the largest tilt is subtracted first, so no e^{−βr}
overflows) and rebuilt only when a quantity it depends on has changed.

A tilt that names a quantity of an outcome (OF_OUTCOME) is instead a softmax over the pair's distinct outcomes, times
next_weight. :func:`make_survey` computes the statistics that need all outcomes of a pair.

Mean and variance of numbers that are added and removed follow Welford (1962): M2 is the sum of squares about the mean.

Ref: Szlak & Shamir (2021), Lemma 4.
"""

from collections.abc import Callable
from math import exp, inf
from typing import Any, NamedTuple

import numpy as np

from . import tree
from .compile import Array, Bound, at, digest_of, jit, kernel, specialise
from .rng import pick

#: Quantities of a pair that a scheme's functions may name. ``down``, ``harm`` and ``spread`` are surveyed (see
#: :func:`make_survey`); ``pair`` is its number, s·|A| + a; ``value`` is Q(s,a).
STATISTICS = ("n", "mean", "var", "r_min", "r_max", "td", "down", "harm", "spread", "pair", "value")
MEAN, M2, R_MIN, R_MAX, TD, DOWN, HARM, SPREAD = range(8)  # columns of Memory.stats
N_STATS, FEWER = 8, 2  # all of them; only mean and variance
#: Quantities of an outcome that a tilt may name besides its reward: times seen, r + γ·max_b Q(s',b), whether it was unsafe,
#: the next state, whether the episode ends there; its share of the pair's visits, the share of visits with a lower y (of
#: equal ones, those in earlier slots), and a uniform number that is drawn for each replay.
OF_OUTCOME = ("count", "y", "unsafe", "s_next", "ends", "freq", "below", "luck")
NOTHING = (0.0,) * len(OF_OUTCOME)  #: their values for a tilt that names none
FOLLOW_Q = ("td", "spread", "y", "below", "value")  #: quantities that change with Q
MIDDLE = 0.5  #: ``luck`` between replays
NO_ROW = -1  # no row of the memory
GRID = 4  # actions on a grid: their argmax and max are written out, since loops of unknown length are slower


class Memory(NamedTuple):
    """The arrays of a memory of P pairs and K slots."""

    first: Array  #: [P] first slot of each pair
    used: Array  #: [P] slots in use
    r: Array  #: [K] reward of the slot
    s_next: Array  #: [K] next state
    ends: Array  #: [K] whether the episode ends there
    count: Array  #: [K] times seen
    replayed: Array  #: [K] times replayed
    distinct: Array  #: [K] distinct rewards that the slot stands for: 1, or more where near rewards were merged
    unsafe: Array  #: [K] whether the outcome is unsafe; empty if not needed
    share: Array  #: [K] running sum of tilt × next state over the pair's slots
    stats: Array  #: [P, N_STATS] running statistics of the pair's reward; [P, FEWER] if the others are not needed
    tree: Array  #: [2·leaves] sum tree of the pair weights
    row: Array  #: [pairs] if only some pairs are stored: the row of each of the P stored pairs, NO_ROW for others
    pair: Array  #: [P] the pair of each row; both arrays are empty if row i is pair i


def allocate(
    first: Array,
    used: Array,
    r: Array,
    s_next: Array,
    ends: Array,
    n_pairs: int,
    columns: tuple[Array, ...] | None = None,
    unsafe: Array = None,
    n_stats: int = N_STATS,
) -> Memory:
    """An empty memory over given slots; ``columns`` are zero arrays for count, replayed and share, if no slot will
    stand for several rewards. ``n_stats`` is N_STATS, or FEWER if the others are not needed.
    """
    if columns is None:
        count, replayed, share = np.zeros(r.size), np.zeros(r.size, np.int64), np.zeros(r.size)
        distinct = np.ones(r.size)
    else:
        count, replayed, share = columns
        distinct = np.broadcast_to(1.0, r.size)  # ones that take no memory and are read-only
    stats = np.zeros((n_pairs, n_stats))
    if n_stats == N_STATS:
        stats[:, R_MIN], stats[:, R_MAX] = inf, -inf
    unsafe, none = np.zeros(0, np.bool_) if unsafe is None else unsafe, np.zeros(0, np.int64)
    table, counts = (first, used, r, s_next, ends), (count, replayed, distinct, unsafe)
    return Memory(*table, *counts, share, stats, tree.allocate(n_pairs), none, none)


@jit
def statistics(memory: Memory, Q: Array, i: int, n: float) -> tuple[float, ...]:
    """The tuple of STATISTICS of pair i after n visits; 0 for those not kept."""
    stats = memory.stats[at(i)]
    kept = stats.size == N_STATS
    low, high, td = (stats[R_MIN], stats[R_MAX], stats[TD]) if kept else (0.0, 0.0, 0.0)
    down, harm, spread = (stats[DOWN], stats[HARM], stats[SPREAD]) if kept else (0.0, 0.0, 0.0)
    pair = memory.pair[at(i)] if memory.pair.size > 0 else i
    kept_or_0 = low, high, td, down, harm, spread
    var = stats[M2] / max(n, 1) if stats[M2] != 0.0 else 0.0  # no division where the reward is certain
    return float(n), stats[MEAN], var, *kept_or_0, float(pair), float(Q[at(pair)])


def make_record(ranges: bool) -> Callable[..., None]:
    """The function that stores visit number n of pair i: outcome ``slot`` with reward r. ``ranges``: also update r_min and r_max."""

    @jit
    def record(memory: Memory, i: int, slot: int, r: float, n: int) -> None:
        stats = memory.stats[at(i)]
        seen, mean, m2 = memory.count[at(slot)], stats[MEAN], stats[M2]  # read together, then changed
        memory.count[at(slot)] = seen + 1.0
        stats[MEAN], stats[M2] = joined(mean, m2, r, n)
        if ranges:
            stats[R_MIN] = min(stats[R_MIN], r)
            stats[R_MAX] = max(stats[R_MAX], r)

    return record


@jit
def total_share(memory: Memory, i: int) -> float:
    """The end of pair i's running sum; 0 while none of its outcomes can be replayed."""
    return float(memory.share[at(memory.first[at(i)] + memory.used[at(i)] - 1)])


@jit
def draw(memory: Memory, i: int, u: float) -> int:
    """The slot of pair i for the uniform number u: the first whose share exceeds u·total."""
    start = memory.first[at(i)]
    stop = start + memory.used[at(i)]
    return int(pick(memory.share, start, stop, u * memory.share[at(stop - 1)]))


@kernel
def weights(memory: Memory, out: Array) -> None:
    """w_t of every slot into ``out`` [K], which may be ``share`` itself; all zero while no pair has weight."""
    total = memory.tree[1]
    for i in range(memory.first.size):
        start = memory.first[i]
        stop = start + memory.used[i]
        weight = tree.leaf(memory.tree, i)
        before, last = 0.0, memory.share[stop - 1]
        for k in range(start, stop):
            if weight > 0.0:
                share = memory.share[k]
                out[k] = (weight / total) * (share - before) / last
                before = share
            else:
                out[k] = 0.0


@jit
def precedes(memory: Memory, k: int, r: float, s_next: int, ends: bool) -> bool:
    """Whether slot k sorts before an outcome: by reward, then next state, then end."""
    if memory.r[k] != r:
        return bool(memory.r[k] < r)
    if memory.s_next[k] != s_next:
        return bool(memory.s_next[k] < s_next)
    return bool(memory.ends[k] < ends)


@kernel
def locate(memory: Memory, i: int, r: float, s_next: int, ends: bool) -> int:
    """The slot of pair i that holds this outcome, or −1 − (where it belongs) if there is none."""
    low = memory.first[i]
    high = low + memory.used[i]
    while low < high:
        k = (low + high) >> 1
        if memory.r[k] == r and memory.s_next[k] == s_next and memory.ends[k] == ends:
            return int(k)
        if precedes(memory, k, r, s_next, ends):
            low = k + 1
        else:
            high = k
    return int(-1 - low)


@kernel
def insert(memory: Memory, i: int, slot: int, r: float, s_next: int, ends: bool) -> None:
    """Make room at ``slot`` and put a new outcome with count 0 there."""
    for k in range(memory.first[i] + memory.used[i], slot, -1):
        move(memory, k - 1, k)
    memory.r[slot], memory.s_next[slot], memory.ends[slot] = r, s_next, ends
    memory.count[slot], memory.replayed[slot], memory.distinct[slot] = 0.0, 0, 1.0
    memory.used[i] += 1


@jit
def move(memory: Memory, source: int, target: int) -> None:
    """Copy an outcome from one slot to another."""
    memory.r[target] = memory.r[source]
    memory.s_next[target] = memory.s_next[source]
    memory.ends[target] = memory.ends[source]
    memory.count[target] = memory.count[source]
    memory.replayed[target] = memory.replayed[source]
    memory.distinct[target] = memory.distinct[source]


@kernel
def squeeze(memory: Memory, i: int) -> None:
    """Free one slot of a full pair: merge the two nearest rewards with the same next state and end.

    They become one slot at their mean weighted by counts, which stands for both distinct rewards; their replays are added.
    If no two slots have the same next state and end, the outcome with the smallest replay probability is dropped (of ties,
    the one seen least): a cautious scheme must not lose a catastrophe because it is rare.
    """
    start = memory.first[i]
    stop = start + memory.used[i]
    keep, drop, gap = -1, -1, inf
    for k in range(start + 1, stop):
        for j in range(k - 1, start - 1, -1):
            if memory.r[k] - memory.r[j] >= gap:
                break
            if memory.s_next[j] == memory.s_next[k] and memory.ends[j] == memory.ends[k]:
                keep, drop, gap = j, k, memory.r[k] - memory.r[j]
                break
    if drop < 0:
        least, before = inf, 0.0
        for k in range(start, stop):
            share = memory.share[k] - before
            before = memory.share[k]
            if share < least or (share == least and memory.count[k] < memory.count[drop]):
                drop, least = k, share
    else:
        both = memory.count[keep] + memory.count[drop]
        merged = memory.r[keep] + (memory.r[drop] - memory.r[keep]) * (memory.count[drop] / both)
        replayed = memory.replayed[keep] + memory.replayed[drop]
        distinct = memory.distinct[keep] + memory.distinct[drop]
        s_next, ends = memory.s_next[keep], memory.ends[keep]
        while keep + 1 < drop and precedes(memory, keep + 1, merged, s_next, ends):  # the slots stay sorted
            move(memory, keep + 1, keep)
            keep += 1
        memory.r[keep], memory.s_next[keep], memory.ends[keep] = merged, s_next, ends
        memory.count[keep], memory.replayed[keep], memory.distinct[keep] = both, replayed, distinct
    for k in range(drop, stop - 1):
        move(memory, k + 1, k)
    memory.used[i] -= 1


@jit
def joined(mean: float, m2: float, x: float, n: float) -> tuple[float, float]:
    """Mean and M2 after adding a number; n counts it."""
    delta = x - mean
    if delta == 0.0:
        return mean, m2
    mean += delta / n
    return mean, m2 + delta * (x - mean)


@jit
def parted(mean: float, m2: float, x: float, n: float) -> tuple[float, float]:
    """Mean and M2 after removing a number, the inverse of :func:`joined`; n no longer counts it."""
    if n == 0:
        return 0.0, 0.0
    delta = x - mean
    mean -= delta / n
    return mean, max(m2 - delta * (x - mean), 0.0)


@kernel
def returns(
    slots: Array,
    rewards: Array,
    ends: Array,
    gamma: float,
    n_open: Array,
    waiting: Array,
    sums: Array,
    out: Array,
    out_x: Array,
) -> int:
    """Process steps of environments in turn. The result is the number of n-step returns that became known; ``out`` has their
    slots, ``out_x`` their values.

    ``waiting`` and ``sums`` [n_envs, n] are slots and returns so far of the steps that wait, oldest first; ``n_open`` [n_envs]
    is their number; ``out`` and ``out_x`` have room for all waiting and new steps.
    """
    n_envs, n = waiting.shape
    known = 0
    for k in range(slots.size):
        e = k % n_envs
        waiting[e, n_open[e]], sums[e, n_open[e]] = slots[k], 0.0
        n_open[e] += 1
        discount = 1.0
        for j in range(n_open[e] - 1, -1, -1):  # the newest gets this reward undiscounted
            sums[e, j] += discount * rewards[k]
            discount *= gamma
        leaving = n_open[e] if ends[k] else n_open[e] // n  # all, or the oldest of a full window
        for j in range(leaving):
            out[known], out_x[known] = waiting[e, j], sums[e, j]
            known += 1
        for j in range(leaving, n_open[e]):
            waiting[e, j - leaving], sums[e, j - leaving] = waiting[e, j], sums[e, j]
        n_open[e] -= leaving
    return known


@jit
def greedy(Q: Array, s: int, n_actions: int) -> int:
    """argmax_a Q(s,a); ties go to the first."""
    i = s * n_actions
    if n_actions == GRID:
        x, y, z, w = Q[at(i)], Q[at(i + 1)], Q[at(i + 2)], Q[at(i + 3)]
        low, high = int(y > x), 2 + int(w > z)
        return high if max(z, w) > max(x, y) else low
    best = i
    for j in range(i + 1, i + n_actions):
        if Q[at(j)] > Q[at(best)]:
            best = j
    return best - i


def _extreme(of: Callable[[float, float], float]) -> Callable[[Array, int, int], float]:
    @jit
    def extreme(Q: Array, s: int, n_actions: int) -> float:
        i = s * n_actions
        if n_actions == GRID:
            return float(of(of(of(Q[at(i)], Q[at(i + 1)]), Q[at(i + 2)]), Q[at(i + 3)]))
        value = Q[at(i)]
        for j in range(i + 1, i + n_actions):
            value = of(value, Q[at(j)])
        return float(value)

    return extreme


highest = _extreme(max)  #: max_a Q(s,a), of (Q, s, n_actions)
lowest = _extreme(min)  #: min_a Q(s,a)


@jit
def worst_state_value(memory: Memory, Q: Array, i: int, gamma: float, n_actions: int) -> float:
    """min over next states seen from pair i of (mean reward seen on the way there) + γ·max_b Q(s',b)."""
    start = memory.first[at(i)]
    stop = start + memory.used[at(i)]
    value = inf
    for k in range(start, stop):
        if memory.count[at(k)] > 0.0:
            total = n = 0.0
            for j in range(start, stop):
                if memory.s_next[at(j)] == memory.s_next[at(k)] and memory.ends[at(j)] == memory.ends[at(k)]:
                    total += memory.count[at(j)] * memory.r[at(j)]
                    n += memory.count[at(j)]
            ahead = 0.0 if memory.ends[at(k)] else gamma * highest(Q, memory.s_next[at(k)], n_actions)
            value = min(value, total / n + ahead)
    return value


@jit
def target(memory: Memory, Q: Array, k: int, gamma: float, n_actions: int) -> float:
    """y of slot k: r + γ·max_b Q(s',b), or r where the episode ends."""
    ahead = 0.0 if memory.ends[at(k)] else gamma * highest(Q, memory.s_next[at(k)], n_actions)
    return float(memory.r[at(k)] + ahead)


@jit
def worst_outcome_value(memory: Memory, Q: Array, i: int, gamma: float, n_actions: int) -> float:
    """min over the outcomes seen from pair i of r + γ·max_b Q(s',b)."""
    start = memory.first[at(i)]
    value = inf
    for k in range(start, start + memory.used[at(i)]):
        if memory.count[at(k)] > 0.0:
            value = min(value, target(memory, Q, k, gamma, n_actions))
    return value


SURVEYED = ("down", "harm", "spread")  # statistics that need all outcomes of a pair


def make_survey(pair_weight: Bound, log_tilt: Bound) -> Callable[..., None]:
    """The function that computes, after n visits, the statistics of pair i that need all its outcomes:

    down     Σ min(r − mean, 0)² / n, the part of the reward's variance that lies below its mean
    harm     the share of visits that were unsafe
    spread   the variance of y = r + γ·max_b Q(s',b), weighted by the counts of outcomes
    """
    needs_down, needs_harm, needs_spread = (pair_weight.uses(x) or log_tilt.uses(x) for x in SURVEYED)

    @jit
    def survey(memory: Memory, Q: Array, i: int, n: float, gamma: float, n_actions: int) -> None:
        stats, start = memory.stats[at(i)], memory.first[at(i)]
        down = harm = mean = m2 = seen = 0.0
        for k in range(start, start + memory.used[at(i)]):
            count = memory.count[at(k)]
            if count > 0.0:
                if needs_down:
                    below = min(memory.r[at(k)] - stats[MEAN], 0.0)
                    down += count * below * below
                if needs_harm and memory.unsafe[at(k)]:
                    harm += count
                if needs_spread:
                    seen += count
                    off = target(memory, Q, k, gamma, n_actions) - mean
                    mean += off * (count / seen)
                    m2 += off * off * count * (1.0 - count / seen)
        stats[DOWN], stats[HARM], stats[SPREAD] = down / max(n, 1), harm / max(n, 1), m2 / max(n, 1)

    return survey


def make_refresh(log_tilt: Bound, next_weight: Bound) -> Callable[..., bool]:
    """The function that rebuilds a pair's running sum for these two factors. It returns whether they gave valid numbers:
    tilts below infinity, weights of at least 0. If not, the pair is not replayed.

    ``log_tilt`` takes (r, *STATISTICS, *OF_OUTCOME, *scheme's fields), ``next_weight`` takes (count, *scheme's fields).
    """
    tilt_of, weight_of = log_tilt.call, next_weight.call
    by_outcome, needs_harm = log_tilt.uses(*OF_OUTCOME), log_tilt.uses("unsafe")
    needs_y, needs_below, needs_freq = (log_tilt.uses(*x) for x in (("y", "below"), ("below",), ("freq", "below")))
    by_visits = log_tilt.uses("count", "freq")  # then a slot of merged rewards already has the weight of all of them

    @jit
    def tilt_at(
        memory: Memory, Q: Array, i: int, k: int, stats: Any, gamma: float, n_actions: int, luck: float, params: Any
    ) -> float:
        y = target(memory, Q, k, gamma, n_actions) if needs_y else 0.0
        unsafe = 1.0 if needs_harm and memory.unsafe[at(k)] else 0.0
        s_next, ends = float(memory.s_next[at(k)]), 1.0 if memory.ends[at(k)] else 0.0
        lower, total, count = 0.0, 1.0, memory.count[at(k)]
        if needs_freq:
            total = 0.0
            start = memory.first[at(i)]
            for j in range(start, start + memory.used[at(i)]):
                total += memory.count[at(j)]
                if needs_below and memory.count[at(j)] > 0.0:
                    other = target(memory, Q, j, gamma, n_actions)
                    if other < y or (other == y and j < k):
                        lower += memory.count[at(j)]
        of_outcome = count, y, unsafe, s_next, ends, count / total, lower / total, luck
        return tilt_of((memory.r[at(k)], *stats, *of_outcome, *params))

    @jit
    def refresh(
        memory: Memory, Q: Array, i: int, n: float, gamma: float, n_actions: int, luck: float, params: Any
    ) -> bool:
        start = memory.first[at(i)]
        stop = start + memory.used[at(i)]
        stats = statistics(memory, Q, i, n)
        top, usable = -inf, True
        for k in range(start, stop):
            if memory.count[at(k)] > 0.0:
                weight = weight_of((memory.count[at(k)], *params))
                tilt = tilt_at(memory, Q, i, k, stats, gamma, n_actions, luck, params)
                usable = usable and tilt < inf and 0.0 <= weight < inf
                if weight > 0.0:
                    top = max(top, tilt)
        if not usable or top == -inf:
            memory.share[start:stop] = 0.0
            return usable
        total, k = 0.0, start
        while k < stop:
            mass = distinct = 0.0  # over the next states seen with this reward; or of this outcome only
            after = k
            while after < stop and (after == k or (not by_outcome and memory.r[at(after)] == memory.r[at(k)])):
                if memory.count[at(after)] > 0.0:
                    mass += weight_of((memory.count[at(after)], *params))
                    distinct = 1.0 if by_visits else max(distinct, memory.distinct[at(after)])
                after += 1
            tilt = 0.0
            if mass > 0.0:
                tilt = distinct * exp(tilt_at(memory, Q, i, k, stats, gamma, n_actions, luck, params) - top)
            for j in range(k, after):
                if mass > 0.0 and memory.count[at(j)] > 0.0:
                    total += tilt * weight_of((memory.count[at(j)], *params)) / (1.0 if by_outcome else mass)
                memory.share[at(j)] = total
            k = after
        return True

    return refresh


def make_limit(pair_weight: Bound, log_tilt: Bound, next_weight: Bound) -> Callable[..., int]:
    """Fill a memory with given counts and statistics with the scheme's w for them and for Q, as in a run.

    ``n`` [P] are the visits; ``lucks`` and ``parts`` are the nodes and weights of the mean over ``luck``, with room for it in
    ``mass`` [K]. Returns 0, or 1 + a pair whose factors gave an invalid number.
    """
    refresh, weigh = make_refresh(log_tilt, next_weight), pair_weight.call
    survey = make_survey(pair_weight, log_tilt)
    surveys = pair_weight.uses(*SURVEYED) or log_tilt.uses(*SURVEYED)
    lucky = log_tilt.uses("luck")

    def fill(
        memory: Memory,
        Q: Array,
        gamma: float,
        n_actions: int,
        n: Array,
        lucks: Array,
        parts: Array,
        mass: Array,
        params: Any,
    ) -> int:
        for i in range(memory.first.size):
            if memory.used[at(i)] > 0:
                if surveys:
                    survey(memory, Q, i, n[at(i)], gamma, n_actions)
                usable = refresh(memory, Q, i, n[at(i)], gamma, n_actions, MIDDLE, params)
                if lucky and memory.used[at(i)] > 1 and total_share(memory, i) > 0.0:
                    start = memory.first[at(i)]
                    for j in range(lucks.size):
                        refresh(memory, Q, i, n[at(i)], gamma, n_actions, lucks[at(j)], params)
                        total = total_share(memory, i)
                        for k in range(start, start + memory.used[at(i)]):
                            mass[at(k)] += parts[at(j)] * memory.share[at(k)] / total
                    for k in range(start, start + memory.used[at(i)]):
                        memory.share[at(k)] = mass[at(k)]
                weight = weigh((*statistics(memory, Q, i, n[at(i)]), *params))
                if not usable or not 0.0 <= weight < inf:
                    return i + 1
                tree.put(memory.tree, i, weight if total_share(memory, i) > 0.0 else 0.0)
        return 0

    return specialise(fill, digest_of([pair_weight, log_tilt, next_weight]))
