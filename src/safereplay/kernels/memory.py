"""The memory M of a tabular learner: the distinct outcomes of each pair, and w_t over them, exact at every step.

Pair i = s·|A| + a owns the slots first[i], ..., first[i] + used[i] − 1, sorted by reward, then next state. A slot
is a distinct outcome (r, s', ends) with the number of times it was seen; an outcome not yet seen has count 0. The
replay probabilities factor as

    w_t(s,a,s',r)  =  pair_weight(s,a) / Σ pair_weight  ·  e^{log_tilt(r)} / Σ_{r'} e^{log_tilt(r')}  ·  next_weight(s') / Σ

where the second sum runs over the distinct rewards seen at the pair (M_t) and the third over the distinct next
states seen with that reward (L_t). The first factor is kept in a sum tree over pairs. The other two are, per pair, a
running sum ``share`` over its slots, computed in the log domain (the largest tilt is subtracted first, so no e^{−βr}
overflows) and rebuilt only when a quantity it depends on has changed.

Ref: Szlak & Shamir (2021), Lemma 4.
"""

from collections.abc import Callable
from math import exp, inf
from typing import NamedTuple

import numpy as np

from . import moments, tree
from .compile import Array, Bound, at, jit, kernel

#: Statistics of a pair that a scheme's functions may name. The last three are surveyed (see ``weighing.make_survey``).
STATISTICS = ("n", "mean", "var", "r_min", "r_max", "td", "down", "harm", "spread")
MEAN, M2, R_MIN, R_MAX, TD, DOWN, HARM, SPREAD = range(8)  # columns of Memory.stats
N_STATS, FEWER = 8, 2  # all of them; only mean and variance
#: Quantities of an outcome that a tilt may name besides its reward: times seen, r + γ·max_b Q(s',b), whether it was unsafe.
OF_OUTCOME = ("count", "y", "unsafe")
NOTHING = (0.0, 0.0, 0.0)  #: their values for a tilt that names none
NO_ROW = -1


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
    return Memory(
        first,
        used,
        r,
        s_next,
        ends,
        count,
        replayed,
        distinct,
        np.zeros(0, np.bool_) if unsafe is None else unsafe,
        share,
        stats,
        tree.allocate(n_pairs),
        np.zeros(0, np.int64),
        np.zeros(0, np.int64),
    )


@jit
def statistics(memory: Memory, i: int, n: float) -> tuple[float, ...]:
    """The tuple of STATISTICS of pair i after n visits; 0 for those not kept."""
    row = memory.stats[at(i)]
    kept = row.size == N_STATS
    low, high, td = (row[R_MIN], row[R_MAX], row[TD]) if kept else (0.0, 0.0, 0.0)
    down, harm, spread = (row[DOWN], row[HARM], row[SPREAD]) if kept else (0.0, 0.0, 0.0)
    return float(n), row[MEAN], row[M2] / max(n, 1), low, high, td, down, harm, spread


def make_record(ranges: bool) -> Callable[..., None]:
    """The function that stores visit number n of pair i: outcome ``slot`` with reward r. ``ranges``: also update r_min and r_max."""

    @jit
    def record(memory: Memory, i: int, slot: int, r: float, n: int) -> None:
        row = memory.stats[at(i)]
        seen, mean, m2 = memory.count[at(slot)], row[MEAN], row[M2]  # read together, then changed
        memory.count[at(slot)] = seen + 1.0
        row[MEAN], row[M2] = moments.joined(mean, m2, r, n)
        if ranges:
            row[R_MIN] = min(row[R_MIN], r)
            row[R_MAX] = max(row[R_MAX], r)

    return record


@jit
def total_share(memory: Memory, i: int) -> float:
    """The end of pair i's running sum; 0 while none of its outcomes can be replayed."""
    return float(memory.share[at(memory.first[at(i)] + memory.used[at(i)] - 1)])


@jit
def draw(memory: Memory, i: int, u: float) -> int:
    """The slot of pair i for the uniform number u: the first whose share exceeds u·total."""
    low = memory.first[at(i)]
    high = low + memory.used[at(i)] - 1
    x = u * memory.share[at(high)]
    while low < high:
        middle = (low + high) >> 1
        if memory.share[at(middle)] > x:
            high = middle
        else:
            low = middle + 1
    return int(low)


def make_refresh(log_tilt: Bound, next_weight: Bound) -> Callable[..., bool]:
    """The function that rebuilds a pair's running sum for these two factors. It returns whether they gave valid numbers:
    tilts below infinity, weights of at least 0. If not, the pair is not replayed.

    ``log_tilt`` takes (r, *STATISTICS, *OF_OUTCOME, *scheme's fields), ``next_weight`` takes (count, *scheme's fields). A
    tilt that names a quantity of an outcome is a softmax over outcomes: see ``weighing.make_refresh``.
    """
    tilt_of, weight_of = log_tilt.call, next_weight.call

    @jit
    def refresh(memory: Memory, i: int, n: int, params: tuple[float, ...]) -> bool:
        start = memory.first[i]
        stop = start + memory.used[i]
        stats = statistics(memory, i, n)
        top = -inf
        usable = True
        for k in range(start, stop):
            if memory.count[k] > 0.0:
                weight = weight_of((memory.count[k], *params))
                tilt = tilt_of((memory.r[k], *stats, *NOTHING, *params))
                usable = usable and tilt < inf and 0.0 <= weight < inf
                if weight > 0.0:
                    top = max(top, tilt)
        if not usable or top == -inf:
            memory.share[start:stop] = 0.0
            return usable
        total = 0.0
        k = start
        while k < stop:
            mass = 0.0  # sum over the next states seen with this reward
            distinct = 0.0
            after = k
            while after < stop and memory.r[after] == memory.r[k]:
                if memory.count[after] > 0.0:
                    mass += weight_of((memory.count[after], *params))
                    distinct = max(distinct, memory.distinct[after])
                after += 1
            if mass > 0.0:
                tilt = distinct * exp(tilt_of((memory.r[k], *stats, *NOTHING, *params)) - top)
                for j in range(k, after):
                    if memory.count[j] > 0.0:
                        total += tilt * weight_of((memory.count[j], *params)) / mass
                    memory.share[j] = total
            else:
                for j in range(k, after):
                    memory.share[j] = total
            k = after
        return True

    return refresh


@kernel
def weights(memory: Memory, out: Array) -> None:
    """w_t of every slot into ``out`` [K], which may be ``share`` itself; all zero while no pair has weight."""
    total = memory.tree[1]
    for i in range(memory.first.size):
        start = memory.first[i]
        stop = start + memory.used[i]
        weight = tree.leaf(memory.tree, i)
        before = 0.0
        last = memory.share[stop - 1]
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
    memory.r[slot] = r
    memory.s_next[slot] = s_next
    memory.ends[slot] = ends
    memory.count[slot] = 0.0
    memory.replayed[slot] = 0
    memory.distinct[slot] = 1.0
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
    If no two slots have the same next state and end, the outcome replayed least is dropped (of ties, the one seen least):
    a cautious scheme must not lose a catastrophe because it is rare.
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
        memory.count[keep] = both
        memory.replayed[keep] += memory.replayed[drop]
        memory.distinct[keep] += memory.distinct[drop]
        settle(memory, keep, drop, merged)
    for k in range(drop, stop - 1):
        move(memory, k + 1, k)
    memory.used[i] -= 1


@jit
def settle(memory: Memory, keep: int, drop: int, merged: float) -> None:
    """Set the merged reward of slot ``keep``, and move it up so that the slots below ``drop`` stay sorted."""
    s_next, ends = memory.s_next[keep], memory.ends[keep]
    count, replayed, distinct = memory.count[keep], memory.replayed[keep], memory.distinct[keep]
    k = keep
    while k + 1 < drop and precedes(memory, k + 1, merged, s_next, ends):
        move(memory, k + 1, k)
        k += 1
    memory.r[k] = merged
    memory.s_next[k] = s_next
    memory.ends[k] = ends
    memory.count[k] = count
    memory.replayed[k] = replayed
    memory.distinct[k] = distinct
