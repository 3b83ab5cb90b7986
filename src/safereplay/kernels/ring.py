"""A history of transitions, and the functions of the rules that draw from it.

A transition is stored as the number k of an outcome of the model; pair, reward, next state and end follow from it. The
last N are kept in a ring: transition t is at t mod N. Each function takes O(log N). The heap of ranks is sorted every N
steps, which is O(log N) per step as well. :mod:`safereplay.kernels.history` describes the rules.
"""

from typing import NamedTuple

from . import rng, step, tree
from .compile import Array, at, jit
from .table import Model, pick

NOTHING = -1
SCALE = 1000.0  # η is the decay over this many updates, in a cycle of any length

# Entries of History.marks. Transitions, and episodes, are numbered 0, 1, 2, ... as they happen.
STORED, PHASE, AT, LOW, LAST, BEGUN, EPISODES, OLDEST, STATES, SORTED = range(10)
TOP, AHEAD = range(2)  # entries of History.numbers


class History(NamedTuple):
    """The arrays of a history; those that a rule does not use have one entry."""

    ring: Array  #: [N] outcomes; transition t is at t mod N
    pair: Array  #: [K] the pair of each outcome
    marks: Array  #: [10] transitions stored, position in a cycle, and the rules' own state
    numbers: Array  #: [2] the largest priority so far; the target of the next step
    tree: Array  #: proportional: sum tree of the priorities
    least: Array  #: proportional: tree of their minima
    key: Array  #: rank: [N] |δ| of each ring position
    order: Array  #: rank: [N] the heap: a ring position at each heap position
    where: Array  #: rank: [N] the heap position of each ring position
    law: Array  #: rank: [N] running sum of rank^−α
    first: Array  #: backward: [N] the first transition of each complete episode
    last: Array  #: backward: [N] its last
    newest: Array  #: dyna: [P] the last outcome of each pair, NOTHING if it was not tried
    seen: Array  #: dyna: [K] how often each outcome happened
    states: Array  #: dyna: [S] the states that were seen


# -- common to rules ---------------------------------------------------------------------------------------------------


@jit
def due(tables: step.Tables, dials: step.Dials) -> bool:
    """Whether this iteration is a replay; with v = 0 no random number is drawn."""
    v = dials.update_params[0]
    return v > 0.0 and rng.uniform(tables.generator) < v


@jit
def filled(memory: History) -> int:
    """The number of transitions in the ring."""
    return int(min(memory.marks[STORED], memory.ring.size))


@jit
def put_in(memory: History, k: int) -> int:
    """Store a transition; returns its position."""
    place = memory.marks[STORED] % memory.ring.size
    memory.ring[at(place)] = k
    memory.marks[STORED] += 1
    return int(place)


@jit
def one_step(model: Model, memory: History, tables: step.Tables, k: int, dials: step.Dials) -> float:
    """r + γ·max_b Q(s',b); r if the episode ends."""
    best = 0.0
    if not model.ends[at(k)]:
        best = step.highest(tables.Q, model.s_next[at(k)], dials.n_actions)
    return float(model.r[at(k)] + dials.gamma * best)


@jit
def alike(memory: History, dials: step.Dials) -> float:
    """No importance weights."""
    return 1.0


@jit
def store(model: Model, memory: History, tables: step.Tables, k: int, stops: bool, dials: step.Dials) -> None:
    """Store in the ring only."""
    put_in(memory, k)


@jit
def forget(memory: History, delta: float, dials: step.Dials) -> None:
    """Ignore the TD error of a replay."""


# -- by age -------------------------------------------------------------------------------------------------------------


@jit
def recall_uniform(model: Model, memory: History, tables: step.Tables, dials: step.Dials) -> int:
    """Any transition of the ring."""
    if not due(tables, dials):
        return NOTHING
    return int(memory.ring[at(rng.below(tables.generator, filled(memory)))])


@jit
def recall_recent(model: Model, memory: History, tables: step.Tables, dials: step.Dials) -> int:
    """The k-th replay of a cycle of K: one of the c_k most recent."""
    if not due(tables, dials):
        return NOTHING
    _, eta, least, cycle = dials.update_params
    memory.marks[PHASE] = memory.marks[PHASE] % int(cycle) + 1
    reach = max(memory.ring.size * eta ** (memory.marks[PHASE] * SCALE / cycle), least)
    age = rng.below(tables.generator, min(max(int(reach), 1), filled(memory)))
    return int(memory.ring[at((memory.marks[STORED] - 1 - age) % memory.ring.size)])


@jit
def recall_combined(model: Model, memory: History, tables: step.Tables, dials: step.Dials) -> int:
    """The newest transition once per batch, else any."""
    if not due(tables, dials):
        return NOTHING
    phase = memory.marks[PHASE]
    memory.marks[PHASE] = (phase + 1) % int(dials.update_params[1])
    if phase == 0:
        return int(memory.ring[at((memory.marks[STORED] - 1) % memory.ring.size)])
    return int(memory.ring[at(rng.below(tables.generator, filled(memory)))])


# -- by TD error --------------------------------------------------------------------------------------------------------


@jit
def put_least(least: Array, i: int, value: float) -> None:
    """Set entry i of a tree of minima."""
    j = (least.size >> 1) + i
    least[at(j)] = value
    while j > 1:
        j >>= 1
        least[at(j)] = min(least[at(2 * j)], least[at(2 * j + 1)])


@jit
def prioritise(memory: History, place: int, priority: float) -> None:
    """Set the priority of a ring position."""
    tree.put(memory.tree, place, priority)
    if memory.least.size > 1:
        put_least(memory.least, place, priority)


@jit
def store_at_the_top(
    model: Model, memory: History, tables: step.Tables, k: int, stops: bool, dials: step.Dials
) -> None:
    """Store a new transition with the largest priority so far."""
    prioritise(memory, put_in(memory, k), memory.numbers[TOP])


@jit
def recall_proportional(model: Model, memory: History, tables: step.Tables, dials: step.Dials) -> int:
    """A transition drawn in proportion to its priority."""
    if not due(tables, dials):
        return NOTHING
    memory.marks[AT] = tree.find(memory.tree, rng.uniform(tables.generator) * tree.total(memory.tree))
    return int(memory.ring[at(memory.marks[AT])])


@jit
def weigh_proportional(memory: History, dials: step.Dials) -> float:
    """(N·P(i))^−β over the largest such weight: (min p / p_i)^β."""
    return float((memory.least[1] / tree.leaf(memory.tree, memory.marks[AT])) ** dials.update_params[2])


@jit
def note_proportional(memory: History, delta: float, dials: step.Dials) -> None:
    """p_i = (|δ_i| + ε)^α."""
    _, alpha, _, floor = dials.update_params
    priority = (abs(delta) + floor) ** alpha
    memory.numbers[TOP] = max(memory.numbers[TOP], priority)
    prioritise(memory, memory.marks[AT], priority)


@jit
def swap(memory: History, i: int, j: int) -> None:
    """Exchange two positions of the heap."""
    a, b = memory.order[at(i)], memory.order[at(j)]
    memory.order[at(i)], memory.order[at(j)] = b, a
    memory.where[at(b)], memory.where[at(a)] = i, j


@jit
def key_at(memory: History, j: int) -> float:
    """The key at a position of the heap."""
    return float(memory.key[at(memory.order[at(j)])])


@jit
def rise(memory: History, j: int) -> None:
    """Move the entry at position j up to its place; the largest is at 0."""
    while j > 0 and key_at(memory, j) > key_at(memory, (j - 1) >> 1):
        swap(memory, j, (j - 1) >> 1)
        j = (j - 1) >> 1


@jit
def sink(memory: History, j: int, size: int, sign: float) -> None:
    """Move it down; sign −1 is for a heap with the smallest at 0."""
    while 2 * j + 1 < size:
        child = 2 * j + 1
        if child + 1 < size and sign * key_at(memory, child + 1) > sign * key_at(memory, child):
            child += 1
        if not sign * key_at(memory, child) > sign * key_at(memory, j):
            return
        swap(memory, j, child)
        j = child


@jit
def sort(memory: History) -> None:
    """Sort the heap in decreasing order; the result is a heap, and positions are ranks."""
    size = filled(memory)
    for j in range(size // 2 - 1, -1, -1):
        sink(memory, j, size, -1.0)
    for end in range(size - 1, 0, -1):
        swap(memory, 0, end)
        sink(memory, 0, end, -1.0)


@jit
def store_in_heap(model: Model, memory: History, tables: step.Tables, k: int, stops: bool, dials: step.Dials) -> None:
    """Store a new transition with the largest |δ| so far, at the heap position of the one that it replaces."""
    j = memory.marks[STORED]
    place = put_in(memory, k)
    if j < memory.ring.size:
        memory.order[at(j)], memory.where[at(j)] = j, j
        before = memory.law[at(j - 1)] if j > 0 else 0.0
        memory.law[at(j)] = before + float(j + 1) ** -dials.update_params[1]
    memory.key[at(place)] = memory.numbers[TOP]
    rise(memory, memory.where[at(place)])
    if memory.marks[STORED] - memory.marks[SORTED] >= memory.ring.size:
        memory.marks[SORTED] = memory.marks[STORED]
        sort(memory)


@jit
def recall_by_rank(model: Model, memory: History, tables: step.Tables, dials: step.Dials) -> int:
    """A position of the heap drawn ∝ rank^−α."""
    if not due(tables, dials):
        return NOTHING
    size = filled(memory)
    j = pick(memory.law, 0, size, rng.uniform(tables.generator) * memory.law[at(size - 1)])
    memory.marks[AT] = memory.order[at(j)]
    return int(memory.ring[at(memory.marks[AT])])


@jit
def weigh_by_rank(memory: History, dials: step.Dials) -> float:
    """(N·P(i))^−β over the largest such weight: (rank / N)^(α·β)."""
    _, alpha, beta, _ = dials.update_params
    rank = memory.where[at(memory.marks[AT])] + 1.0
    return float((rank / filled(memory)) ** (alpha * beta))


@jit
def note_by_rank(memory: History, delta: float, dials: step.Dials) -> None:
    """Move the transition in the heap according to |δ_i|."""
    place = memory.marks[AT]
    memory.key[at(place)] = abs(delta)
    memory.numbers[TOP] = max(memory.numbers[TOP], abs(delta))
    rise(memory, memory.where[at(place)])
    sink(memory, memory.where[at(place)], filled(memory), 1.0)


# -- by episode ---------------------------------------------------------------------------------------------------------


@jit
def store_episode(model: Model, memory: History, tables: step.Tables, k: int, stops: bool, dials: step.Dials) -> None:
    """Store a transition; at the end of an episode record it, and drop episodes that are no longer complete."""
    marks, size = memory.marks, memory.ring.size
    put_in(memory, k)
    if stops:
        memory.first[at(marks[EPISODES] % size)] = marks[BEGUN]
        memory.last[at(marks[EPISODES] % size)] = marks[STORED] - 1
        marks[EPISODES] += 1
        marks[BEGUN] = marks[STORED]
    while marks[OLDEST] < marks[EPISODES] and memory.first[at(marks[OLDEST] % size)] < marks[STORED] - size:
        marks[OLDEST] += 1


@jit
def recall_backward(model: Model, memory: History, tables: step.Tables, dials: step.Dials) -> int:
    """The transition before the last replayed one; at the start of an episode, the last one of another episode."""
    if not due(tables, dials):
        return NOTHING
    marks, size = memory.marks, memory.ring.size
    if marks[AT] < max(marks[LOW], marks[STORED] - size):  # done, or overwritten since
        if marks[OLDEST] == marks[EPISODES]:
            return NOTHING
        e = (marks[OLDEST] + rng.below(tables.generator, marks[EPISODES] - marks[OLDEST])) % size
        marks[LOW], marks[LAST] = memory.first[at(e)], memory.last[at(e)]
        marks[AT] = marks[LAST]
    return int(memory.ring[at(marks[AT] % size)])


@jit
def target_backward(model: Model, memory: History, tables: step.Tables, k: int, dials: step.Dials) -> float:
    """r + γ·max_b Q̃(s',b), where Q̃ of the action taken there is β·y' + (1−β)·Q, with y' its target."""
    marks = memory.marks
    if marks[AT] == marks[LAST]:
        y = one_step(model, memory, tables, k, dials)
    else:
        beta, n_actions = dials.update_params[1], dials.n_actions
        taken = memory.pair[at(memory.ring[at((marks[AT] + 1) % memory.ring.size)])]
        best = beta * memory.numbers[AHEAD] + (1.0 - beta) * tables.Q[at(taken)]
        start = model.s_next[at(k)] * n_actions
        for j in range(start, start + n_actions):
            if j != taken:
                best = max(best, tables.Q[at(j)])
        y = model.r[at(k)] + dials.gamma * best
    memory.numbers[AHEAD] = y
    return float(y)


@jit
def go_back(memory: History, delta: float, dials: step.Dials) -> None:
    """Move one step towards the start of the episode."""
    memory.marks[AT] -= 1


# -- from a model -------------------------------------------------------------------------------------------------------


@jit
def store_in_model(model: Model, memory: History, tables: step.Tables, k: int, stops: bool, dials: step.Dials) -> None:
    """Store the outcome in Model(s,a); n planning steps become due."""
    i = memory.pair[at(k)]
    s = i // dials.n_actions
    known = False
    for j in range(s * dials.n_actions, (s + 1) * dials.n_actions):
        known = known or memory.newest[at(j)] != NOTHING
    if not known:
        memory.states[at(memory.marks[STATES])] = s
        memory.marks[STATES] += 1
    memory.newest[at(i)] = k
    memory.seen[at(k)] += 1
    memory.marks[PHASE] = int(dials.update_params[0])


@jit
def draw_pair(memory: History, tables: step.Tables, dials: step.Dials) -> int:
    """A state seen before, and an action tried there."""
    s = memory.states[at(rng.below(tables.generator, memory.marks[STATES]))]
    start = s * dials.n_actions
    tried = 0
    for j in range(start, start + dials.n_actions):
        tried += memory.newest[at(j)] != NOTHING
    left = rng.below(tables.generator, tried)
    i = start
    for j in range(start, start + dials.n_actions):
        if memory.newest[at(j)] != NOTHING:
            if left == 0:
                i = j
            left -= 1
    return int(i)


@jit
def recall_last(model: Model, memory: History, tables: step.Tables, dials: step.Dials) -> int:
    """The last outcome of such a pair."""
    if memory.marks[PHASE] <= 0:
        return NOTHING
    memory.marks[PHASE] -= 1
    return int(memory.newest[at(draw_pair(memory, tables, dials))])


@jit
def recall_counted(model: Model, memory: History, tables: step.Tables, dials: step.Dials) -> int:
    """An outcome of such a pair, drawn in proportion to its count."""
    if memory.marks[PHASE] <= 0:
        return NOTHING
    memory.marks[PHASE] -= 1
    i = draw_pair(memory, tables, dials)
    left = rng.below(tables.generator, tables.counts[at(i), step.VISITS])
    k = model.first[at(i)]
    while left >= memory.seen[at(k)]:
        left -= memory.seen[at(k)]
        k += 1
    return int(k)
