"""What Q says of a state, and of the outcomes that a pair is remembered by."""

from math import inf

from . import memory as mem
from .compile import Array, at, jit


@jit
def greedy(Q: Array, s: int, n_actions: int) -> int:
    """argmax_a Q(s,a); the first of equals."""
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
def bleakest(memory: mem.Memory, Q: Array, i: int, gamma: float, n_actions: int) -> float:
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
def grimmest(memory: mem.Memory, Q: Array, i: int, gamma: float, n_actions: int) -> float:
    """min over the outcomes seen from pair i of r + γ·max_b Q(s',b)."""
    start = memory.first[at(i)]
    value = inf
    for k in range(start, start + memory.used[at(i)]):
        if memory.count[at(k)] > 0.0:
            value = min(value, target(memory, Q, k, gamma, n_actions))
    return value
