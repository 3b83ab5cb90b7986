"""Values of states and outcomes, and w of a pair.

:func:`greedy` to :func:`worst_outcome_value` read Q at a state, or at the remembered outcomes of a pair.

:func:`make_survey` computes the statistics of a pair that need all its outcomes and Q of their next states.

A tilt that names a quantity of an outcome (``count``, ``y``, ``unsafe``) is a softmax over the pair's distinct outcomes,
times next_weight; one that names only rewards and statistics is over distinct rewards (:mod:`safereplay.kernels.memory`).
"""

from collections.abc import Callable
from math import exp, inf
from typing import Any

from . import memory as mem
from . import tree
from .compile import Array, Bound, at, digest_of, jit, specialise


@jit
def greedy(Q: Array, s: int, n_actions: int) -> int:
    """argmax_a Q(s,a); ties go to the first."""
    i = s * n_actions
    best = i
    for j in range(i + 1, i + n_actions):
        if Q[at(j)] > Q[at(best)]:
            best = j
    return best - i


@jit
def highest(Q: Array, s: int, n_actions: int) -> float:
    """max_a Q(s,a)."""
    i = s * n_actions
    value = Q[at(i)]
    for j in range(i + 1, i + n_actions):
        value = max(value, Q[at(j)])
    return float(value)


@jit
def lowest(Q: Array, s: int, n_actions: int) -> float:
    """min_a Q(s,a)."""
    i = s * n_actions
    value = Q[at(i)]
    for j in range(i + 1, i + n_actions):
        value = min(value, Q[at(j)])
    return float(value)


@jit
def worst_state_value(memory: mem.Memory, Q: Array, i: int, gamma: float, n_actions: int) -> float:
    """min over next states seen from pair i of (mean reward seen on the way there) + γ·max_b Q(s',b)."""
    start = memory.first[at(i)]
    stop = start + memory.used[at(i)]
    value = inf
    for k in range(start, stop):
        if memory.count[at(k)] > 0.0:
            total = 0.0
            n = 0.0
            for j in range(start, stop):
                if memory.s_next[at(j)] == memory.s_next[at(k)] and memory.ends[at(j)] == memory.ends[at(k)]:
                    total += memory.count[at(j)] * memory.r[at(j)]
                    n += memory.count[at(j)]
            ahead = 0.0 if memory.ends[at(k)] else gamma * highest(Q, memory.s_next[at(k)], n_actions)
            value = min(value, total / n + ahead)
    return value


@jit
def target(memory: mem.Memory, Q: Array, k: int, gamma: float, n_actions: int) -> float:
    """y of slot k: r + γ·max_b Q(s',b), or r where the episode ends."""
    ahead = 0.0 if memory.ends[at(k)] else gamma * highest(Q, memory.s_next[at(k)], n_actions)
    return float(memory.r[at(k)] + ahead)


@jit
def worst_outcome_value(memory: mem.Memory, Q: Array, i: int, gamma: float, n_actions: int) -> float:
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
    def survey(memory: mem.Memory, Q: Array, i: int, n: float, gamma: float, n_actions: int) -> None:
        row = memory.stats[at(i)]
        start = memory.first[at(i)]
        down = 0.0
        harm = 0.0
        mean = 0.0
        m2 = 0.0
        seen = 0.0
        for k in range(start, start + memory.used[at(i)]):
            count = memory.count[at(k)]
            if count > 0.0:
                if needs_down:
                    below = min(memory.r[at(k)] - row[mem.MEAN], 0.0)
                    down += count * below * below
                if needs_harm and memory.unsafe[at(k)]:
                    harm += count
                if needs_spread:
                    seen += count
                    off = target(memory, Q, k, gamma, n_actions) - mean
                    mean += off * (count / seen)
                    m2 += off * off * count * (1.0 - count / seen)
        row[mem.DOWN] = down / max(n, 1)
        row[mem.HARM] = harm / max(n, 1)
        row[mem.SPREAD] = m2 / max(n, 1)

    return survey


def make_refresh(log_tilt: Bound, next_weight: Bound) -> Callable[..., bool]:
    """The function that rebuilds pair i's running sum, by rewards or outcomes; False if a factor gave an invalid number."""
    by_reward = mem.make_refresh(log_tilt, next_weight)
    tilt_of, weight_of = log_tilt.call, next_weight.call
    by_outcome, needs_y, needs_harm = log_tilt.uses(*mem.OF_OUTCOME), log_tilt.uses("y"), log_tilt.uses("unsafe")

    @jit
    def tilt_at(
        memory: mem.Memory, Q: Array, k: int, stats: tuple[float, ...], gamma: float, n_actions: int, params: Any
    ) -> float:
        y = target(memory, Q, k, gamma, n_actions) if needs_y else 0.0
        unsafe = 1.0 if needs_harm and memory.unsafe[at(k)] else 0.0
        return tilt_of((memory.r[at(k)], *stats, memory.count[at(k)], y, unsafe, *params))

    @jit
    def refresh(memory: mem.Memory, Q: Array, i: int, n: float, gamma: float, n_actions: int, params: Any) -> bool:
        if not by_outcome:
            return by_reward(memory, i, n, params)
        start = memory.first[at(i)]
        stop = start + memory.used[at(i)]
        stats = mem.statistics(memory, i, n)
        top = -inf
        usable = True
        for k in range(start, stop):
            if memory.count[at(k)] > 0.0:
                weight = weight_of((memory.count[at(k)], *params))
                tilt = tilt_at(memory, Q, k, stats, gamma, n_actions, params)
                usable = usable and tilt < inf and 0.0 <= weight < inf
                if weight > 0.0:
                    top = max(top, tilt)
        usable_now = usable and top > -inf
        total = 0.0
        for k in range(start, stop):
            if usable_now and memory.count[at(k)] > 0.0:
                tilt = tilt_at(memory, Q, k, stats, gamma, n_actions, params)
                total += memory.distinct[at(k)] * exp(tilt - top) * weight_of((memory.count[at(k)], *params))
            memory.share[at(k)] = total
        return usable

    return refresh


def make_limit(pair_weight: Bound, log_tilt: Bound, next_weight: Bound) -> Callable[..., int]:
    """Fill a memory with given counts and statistics with the scheme's w for them and for Q, as in a run.

    ``n`` [P] are the visits. Returns 0, or 1 + a pair whose factors gave an invalid number.
    """
    refresh, weigh = make_refresh(log_tilt, next_weight), pair_weight.call
    survey = make_survey(pair_weight, log_tilt)
    surveys = pair_weight.uses(*SURVEYED) or log_tilt.uses(*SURVEYED)

    def fill(memory: mem.Memory, Q: Array, gamma: float, n_actions: int, n: Array, params: Any) -> int:
        for i in range(memory.first.size):
            if memory.used[at(i)] > 0:
                if surveys:
                    survey(memory, Q, i, n[at(i)], gamma, n_actions)
                usable = refresh(memory, Q, i, n[at(i)], gamma, n_actions, params)
                weight = weigh((*mem.statistics(memory, i, n[at(i)]), *params))
                if not usable or not 0.0 <= weight < inf:
                    return i + 1
                tree.put(memory.tree, i, weight if mem.total_share(memory, i) > 0.0 else 0.0)
        return 0

    return specialise(fill, digest_of([pair_weight, log_tilt, next_weight]))
