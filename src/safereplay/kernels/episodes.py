"""Episodes of a Markov chain: sampled, propagated as a distribution, and the worst case.

Under a fixed policy the outcome table has one row per state: pair i of the model is state i. :func:`play` samples whole
episodes. :func:`carry` propagates the probability of all episodes. :func:`relax` computes the lowest return from each
state: the min-plus form of dynamic programming, one state at a time.
"""

from math import inf

from . import rng
from .compile import Array, at, jit, kernel
from .rng import Model, sample

SHEET, FIRST, WIDTH, LOW, STEPS = range(5)  # entries of carry's window
LEFT, CUT, WORK = range(3)  # and of its sums
DONE, NO_ROOM, TOO_MUCH = range(3)  # return values of carry

TOLERANCE = 1e-13  # relative to the terms of a sum: smaller decreases are rounding


@kernel
def play(
    model: Model,
    unsafe: Array,
    gamma: float,
    max_steps: int,
    generator: Array,
    returns: Array,
    lengths: Array,
    harmed: Array,
    ended: Array,
    last: Array,
) -> None:
    """Sample one episode per entry of ``returns``: Σ γ^t·r_t, its steps, whether it met an unsafe outcome, whether it
    ended, and its last state; an episode that has not ended after ``max_steps`` is truncated there."""
    for e in range(returns.size):
        s = rng.first_state(model, generator)
        total, discount, steps, harm, ends = 0.0, 1.0, 0, False, False
        while not ends and steps < max_steps:
            k = sample(model, s, generator)
            total += discount * model.r[at(k)]
            discount *= gamma
            harm = harm or unsafe[at(k)]
            ends = model.ends[at(k)]
            s = model.s_next[at(k)]
            steps += 1
        returns[at(e)], lengths[at(e)], last[at(e)] = total, steps, s
        harmed[at(e)], ended[at(e)] = harm, ends


@jit
def mass(sheet: Array, low: int, high: int) -> float:
    """The sum of sheet[:, low:high]."""
    total = 0.0
    for i in range(sheet.shape[0]):
        for x in range(low, high):
            total += sheet[at(i), at(x)]
    return total


@jit
def slight(sheet: Array, x: int, step: int, count: int, tail: float) -> int:
    """The number of columns x, x + step, ... among the next ``count`` that hold at most ``tail`` together."""
    total = 0.0
    for n in range(count):
        total += mass(sheet, x, x + 1)
        if total > tail:
            return n
        x += step
    return count


@kernel
def carry(
    s: Array,
    p: Array,
    target: Array,
    shift: Array,
    down: int,
    up: int,
    alive: Array,
    ended: Array,
    window: Array,
    sums: Array,
    residue: float,
    spare: float,
    budget: float,
) -> int:
    """Propagate the probability of all episodes, step by step, until at most ``residue`` of it is still running.

    Outcome k moves a share p[k] of s[k] to target[k] and shifts it by shift[k], between ``down`` ≤ 0 and ``up`` ≥ 0;
    target S is the end. Of the two sheets of ``alive`` [2, S, room], alive[SHEET, s, FIRST + x] is the probability of
    being in s at ended[LOW + x], for x < WIDTH. Ends of that range that hold at most a share ``spare`` of the running
    probability are cut off. Continues from ``window`` and ``sums``; returns one of DONE, NO_ROOM, TOO_MUCH.
    """
    n_states = alive.shape[1]
    while sums[LEFT] > residue:
        sheet, first, width, low = window[SHEET], window[FIRST], window[WIDTH], window[LOW]
        wide = width + up - down
        if wide > alive.shape[2] or low + down < 0 or low + width + up > ended.size:
            return NO_ROOM
        sums[WORK] += float(wide) * (p.size + n_states)
        if sums[WORK] > budget:
            return TOO_MUCH
        here, there = alive[sheet], alive[1 - sheet]
        for i in range(n_states):
            there[at(i), :wide] = 0.0
        for k in range(p.size):
            share = p[at(k)]
            source = here[at(s[at(k)])]
            ends = target[at(k)] == n_states
            goal = ended if ends else there[at(target[at(k)])]
            base = shift[at(k)] + low if ends else shift[at(k)] - down
            for x in range(width):
                goal[at(base + x)] += share * source[at(first + x)]
        tail = 0.5 * spare * sums[LEFT]
        first = slight(there, 0, 1, wide, tail)
        last = wide - slight(there, wide - 1, -1, wide - first, tail)
        sums[CUT] += mass(there, 0, first) + mass(there, last, wide)
        sums[LEFT] = mass(there, first, last)
        window[SHEET], window[FIRST] = 1 - sheet, first
        window[WIDTH], window[LOW] = last - first, low + down + first
        window[STEPS] += 1
    return DONE


@kernel
def relax(
    row: Array, source: Array, r: Array, gamma: float, x: Array, choice: Array, queue: Array, queued: Array, budget: int
) -> int:
    """Lower x(s) to r + γ·x(t) along every move s → t that lowers it, and record that move in ``choice``.

    The moves into t are row[t], ..., row[t+1] − 1, each from source[k] with r[k]. States are processed first in, first
    out, from every t with x(t) < ∞. Returns the number of updates; ``budget`` means that it was stopped.
    """
    n = x.size
    head = waiting = lowered = 0
    for t in range(n):
        queued[at(t)] = x[at(t)] < inf
        if queued[at(t)]:
            queue[at(waiting)] = t
            waiting += 1
    while waiting > 0 and lowered < budget:
        t = queue[at(head)]
        head = head + 1 if head + 1 < n else 0
        waiting -= 1
        queued[at(t)] = False
        for k in range(row[at(t)], row[at(t + 1)]):
            s = source[at(k)]
            value = r[at(k)] + gamma * x[at(t)]
            least = TOLERANCE * (abs(r[at(k)]) + abs(value)) if value > -inf else 0.0
            if value < x[at(s)] - least:
                x[at(s)] = value
                choice[at(s)] = k
                lowered += 1
                if not queued[at(s)]:
                    tail = head + waiting
                    queue[at(tail if tail < n else tail - n)] = s
                    queued[at(s)] = True
                    waiting += 1
    return lowered
