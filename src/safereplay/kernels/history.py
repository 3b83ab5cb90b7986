"""Replay from a history: a ring of the last transitions, and rules for drawing from it.

A transition is stored as the number k of an outcome of the model; pair, reward, next state and end follow from it. The
last N are kept in a ring: transition t is at t mod N. As in Algorithm 1, an iteration is a replay with probability v, else a step of the MDP, whose transition is learned and stored.
A :class:`Rule` is six small functions that are compiled into the loop; unused functions cost nothing.

        due       whether this iteration is a replay
        recall    the outcome that it replays, or NOTHING if there is none yet
        target    the target of a replayed Q(s,a); r + γ·max_b Q(s',b) by default
        factor    the factor of a replay's step size: an importance weight, or 1
        store     stores a transition that has just happened
        note      records the TD error of a replay

    uniform        from the whole ring
    recent         the k-th of a cycle of K replays from the c_k = max(N·η^(k·1000/K), c_min) most recent
    combined       the first of each batch is the newest, the others uniform
    proportional   ∝ p_i = (|δ_i| + ε)^α, in a sum tree
    rank           ∝ rank(i)^−α, the rank a position in a binary heap that is sorted periodically
    backward       an episode, from its end to its start
    dyna           a state seen before, an action tried there, and its last outcome or one drawn from its counts

The rules' parameters are ``dials.update_params``, v first (the planning steps n for ``dyna``). Each update takes
O(log N) for a ring of N, including the sort every N steps.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from . import loop, rng, step, tree
from .compile import Array, Bound, at, digest_of, jit
from .memory import greedy, highest
from .rng import Model, pick, sample
from .step import Dials, Tables

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


@jit
def due(memory: History, tables: Tables, dials: Dials) -> bool:
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
def one_step(model: Model, memory: History, tables: Tables, k: int, dials: Dials) -> float:
    """r + γ·max_b Q(s',b); r if the episode ends."""
    best = 0.0 if model.ends[at(k)] else highest(tables.Q, model.s_next[at(k)], dials.n_actions)
    return float(model.r[at(k)] + dials.gamma * best)


@jit
def alike(memory: History, dials: Dials) -> float:
    """No importance weights."""
    return 1.0


@jit
def store(model: Model, memory: History, tables: Tables, k: int, stops: bool, dials: Dials) -> None:
    """Store in the ring only."""
    put_in(memory, k)


@jit
def forget(memory: History, delta: float, dials: Dials) -> None:
    """Ignore the TD error of a replay."""


@jit
def recall_uniform(model: Model, memory: History, tables: Tables, dials: Dials) -> int:
    """Any transition of the ring."""
    return int(memory.ring[at(rng.below(tables.generator, filled(memory)))])


@jit
def recall_recent(model: Model, memory: History, tables: Tables, dials: Dials) -> int:
    """The k-th replay of a cycle of K: one of the c_k most recent."""
    _, eta, least, cycle = dials.update_params
    memory.marks[PHASE] = memory.marks[PHASE] % int(cycle) + 1
    reach = max(memory.ring.size * eta ** (memory.marks[PHASE] * SCALE / cycle), least)
    age = rng.below(tables.generator, min(max(int(reach), 1), filled(memory)))
    return int(memory.ring[at((memory.marks[STORED] - 1 - age) % memory.ring.size)])


@jit
def recall_combined(model: Model, memory: History, tables: Tables, dials: Dials) -> int:
    """The newest transition once per batch, else any."""
    phase = memory.marks[PHASE]
    memory.marks[PHASE] = (phase + 1) % int(dials.update_params[1])
    if phase == 0:
        return int(memory.ring[at((memory.marks[STORED] - 1) % memory.ring.size)])
    return int(memory.ring[at(rng.below(tables.generator, filled(memory)))])


@jit
def prioritise(memory: History, place: int, priority: float) -> None:
    """Set the priority of a ring position."""
    tree.put(memory.tree, place, priority)
    least = memory.least
    if least.size > 1:
        j = (least.size >> 1) + place
        least[at(j)] = priority
        while j > 1:
            j >>= 1
            least[at(j)] = min(least[at(2 * j)], least[at(2 * j + 1)])


@jit
def store_at_the_top(model: Model, memory: History, tables: Tables, k: int, stops: bool, dials: Dials) -> None:
    """Store a new transition with the largest priority so far."""
    prioritise(memory, put_in(memory, k), memory.numbers[TOP])


@jit
def recall_proportional(model: Model, memory: History, tables: Tables, dials: Dials) -> int:
    """A transition drawn in proportion to its priority."""
    memory.marks[AT] = tree.find(memory.tree, rng.uniform(tables.generator) * tree.total(memory.tree))
    return int(memory.ring[at(memory.marks[AT])])


@jit
def weigh_proportional(memory: History, dials: Dials) -> float:
    """(N·P(i))^−β over the largest such weight: (min p / p_i)^β."""
    return float((memory.least[1] / tree.leaf(memory.tree, memory.marks[AT])) ** dials.update_params[2])


@jit
def note_proportional(memory: History, delta: float, dials: Dials) -> None:
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
def store_in_heap(model: Model, memory: History, tables: Tables, k: int, stops: bool, dials: Dials) -> None:
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
def recall_by_rank(model: Model, memory: History, tables: Tables, dials: Dials) -> int:
    """A position of the heap drawn ∝ rank^−α."""
    size = filled(memory)
    j = pick(memory.law, 0, size, rng.uniform(tables.generator) * memory.law[at(size - 1)])
    memory.marks[AT] = memory.order[at(j)]
    return int(memory.ring[at(memory.marks[AT])])


@jit
def weigh_by_rank(memory: History, dials: Dials) -> float:
    """(N·P(i))^−β over the largest such weight: (rank / N)^(α·β)."""
    _, alpha, beta, _ = dials.update_params
    rank = memory.where[at(memory.marks[AT])] + 1.0
    return float((rank / filled(memory)) ** (alpha * beta))


@jit
def note_by_rank(memory: History, delta: float, dials: Dials) -> None:
    """Move the transition in the heap according to |δ_i|."""
    place = memory.marks[AT]
    memory.key[at(place)] = abs(delta)
    memory.numbers[TOP] = max(memory.numbers[TOP], abs(delta))
    rise(memory, memory.where[at(place)])
    sink(memory, memory.where[at(place)], filled(memory), 1.0)


@jit
def store_episode(model: Model, memory: History, tables: Tables, k: int, stops: bool, dials: Dials) -> None:
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
def recall_backward(model: Model, memory: History, tables: Tables, dials: Dials) -> int:
    """The transition before the last replayed one; at the start of an episode, the last one of another episode."""
    marks, size = memory.marks, memory.ring.size
    if marks[AT] < max(marks[LOW], marks[STORED] - size):  # done, or overwritten since
        if marks[OLDEST] == marks[EPISODES]:
            return NOTHING
        e = (marks[OLDEST] + rng.below(tables.generator, marks[EPISODES] - marks[OLDEST])) % size
        marks[LOW], marks[LAST] = memory.first[at(e)], memory.last[at(e)]
        marks[AT] = marks[LAST]
    return int(memory.ring[at(marks[AT] % size)])


@jit
def target_backward(model: Model, memory: History, tables: Tables, k: int, dials: Dials) -> float:
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
def go_back(memory: History, delta: float, dials: Dials) -> None:
    """Move one step towards the start of the episode."""
    memory.marks[AT] -= 1


@jit
def store_in_model(model: Model, memory: History, tables: Tables, k: int, stops: bool, dials: Dials) -> None:
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
def planned(memory: History, tables: Tables, dials: Dials) -> bool:
    """Whether a planning step is due."""
    if memory.marks[PHASE] <= 0:
        return False
    memory.marks[PHASE] -= 1
    return True


@jit
def draw_pair(memory: History, tables: Tables, dials: Dials) -> int:
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
def recall_last(model: Model, memory: History, tables: Tables, dials: Dials) -> int:
    """The last outcome of such a pair."""
    return int(memory.newest[at(draw_pair(memory, tables, dials))])


@jit
def recall_counted(model: Model, memory: History, tables: Tables, dials: Dials) -> int:
    """An outcome of such a pair, drawn in proportion to its count."""
    i = draw_pair(memory, tables, dials)
    left = rng.below(tables.generator, tables.counts[at(i), step.VISITS])
    k = model.first[at(i)]
    while left >= memory.seen[at(k)]:
        left -= memory.seen[at(k)]
        k += 1
    return int(k)


class Rule(NamedTuple):
    """The functions of a replay rule."""

    recall: Callable[..., int]
    store: Callable[..., None] = store
    note: Callable[..., None] = forget
    factor: Callable[..., float] = alike
    target: Callable[..., float] = one_step
    due: Callable[..., bool] = due


RULES = {
    "uniform": Rule(recall_uniform),
    "recent": Rule(recall_recent),
    "combined": Rule(recall_combined),
    "proportional": Rule(recall_proportional, store_at_the_top, note_proportional),
    "proportional weighed": Rule(recall_proportional, store_at_the_top, note_proportional, weigh_proportional),
    "rank": Rule(recall_by_rank, store_in_heap, note_by_rank),
    "rank weighed": Rule(recall_by_rank, store_in_heap, note_by_rank, weigh_by_rank),
    "backward": Rule(recall_backward, store_episode, go_back, target=target_backward),
    "dyna": Rule(recall_last, store_in_model, due=planned),
    "dyna counted": Rule(recall_counted, store_in_model, due=planned),
}


class Recipe(NamedTuple):
    """The source of a run's code, and the length of its ring."""

    alpha: Bound
    rate: Bound
    softmax: bool  #: explore by softmax, else by ε-greedy
    rule: str  #: one of RULES
    window: int  #: transitions kept
    shuffles: bool = False  #: break ties between equal actions at random; otherwise take the first
    top: float = 1.0  #: the priority of transitions stored before the first replay

    def digest(self) -> str | None:
        """A digest of the source of the compiled code; None if it must not be cached on disk."""
        return digest_of([self.alpha, self.rate], "history", self.softmax, self.rule, self.shuffles)

    def make(self) -> Callable[..., None]:
        """The compiled loop, the same for all windows and first priorities."""
        return make(self._replace(window=1, top=1.0))

    def room(self, mdp: Any) -> History:
        """An empty history for a model."""
        kind, n, marks = self.rule.split()[0], self.window, np.zeros(10, np.int64)
        marks[AT] = NOTHING  # no episode has begun
        ranks, episodes = n if kind == "rank" else 1, n if kind == "backward" else 1
        outcomes, states, pairs = (mdp.r.size, mdp.n_states, mdp.n_pairs) if kind == "dyna" else (1, 1, 1)
        return History(
            ring=np.zeros(n, np.int64),
            pair=mdp.pair,
            marks=marks,
            numbers=np.array([self.top, 0.0]),
            tree=tree.allocate(n if kind == "proportional" else 1),
            least=np.full(tree.allocate(n).size, np.inf) if self.rule == "proportional weighed" else np.zeros(1),
            key=np.zeros(ranks),
            order=np.zeros(ranks, np.int64),
            where=np.zeros(ranks, np.int64),
            law=np.zeros(ranks),
            first=np.zeros(episodes, np.int64),
            last=np.zeros(episodes, np.int64),
            newest=np.full(pairs, NOTHING, np.int64),
            seen=np.zeros(outcomes, np.int64),
            states=np.zeros(states, np.int64),
        )


@jit
def shuffled(Q: Array, s: int, n_actions: int, generator: Array) -> int:
    """argmax_a Q(s,a), with random ties; draws no random number if there is no tie."""
    top = highest(Q, s, n_actions)
    ties = 0
    for j in range(s * n_actions, (s + 1) * n_actions):
        ties += Q[at(j)] == top
    left = rng.below(generator, ties) if ties > 1 else 0
    best = 0
    for j in range(s * n_actions, (s + 1) * n_actions):
        if Q[at(j)] == top:
            if left == 0:
                best = j - s * n_actions
            left -= 1
    return best


def make_iterate(recipe: Recipe) -> Callable[..., int]:
    """The function of one iteration in state s, a replay or a step of the MDP; returns the next state."""
    recall, keep, note, factor, target, due = RULES[recipe.rule]
    choose, step_size, shuffles = step.make_choose(recipe), step.make_alpha(recipe.alpha), recipe.shuffles

    @jit
    def learn(model: Model, memory: History, tables: Tables, i: int, k: int, fresh: bool, dials: Dials) -> None:
        """Learn from outcome k of pair i, fresh or replayed."""
        q = tables.Q[at(i)]
        alpha = step_size(tables.counts[at(i), step.VISITS] + tables.counts[at(i), step.REPLAYS] + 1, dials)
        if fresh:
            tables.counts[at(i), step.VISITS] += 1
            y = one_step(model, memory, tables, k, dials)
        else:
            tables.counts[at(i), step.REPLAYS] += 1
            y = target(model, memory, tables, k, dials)
            alpha *= factor(memory, dials)
            note(memory, y - q, dials)
        tables.Q[at(i)] = (1.0 - alpha) * q + alpha * y

    @jit
    def iterate(model: Model, memory: History, tables: Tables, dials: Dials, s: int, max_steps: int) -> int:
        clock, generator = tables.clock, tables.generator
        if s == step.NO_STATE:
            s = loop.begin(model, tables)
        clock[step.ITERATION] += 1
        replays = clock[step.ITERATION] > dials.T0 and due(memory, tables, dials)
        k = recall(model, memory, tables, dials) if replays else NOTHING
        if k != NOTHING:
            learn(model, memory, tables, memory.pair[at(k)], k, False, dials)
            return s
        best = shuffled(tables.Q, s, dials.n_actions, generator) if shuffles else greedy(tables.Q, s, dials.n_actions)
        i = s * dials.n_actions + choose(tables, s, best, dials)
        k = sample(model, i, generator)
        learn(model, memory, tables, i, k, True, dials)
        s = loop.leave(tables, model.s_next[at(k)], model.ends[at(k)], max_steps)
        keep(model, memory, tables, k, s == step.NO_STATE, dials)
        return s

    return iterate


@lru_cache(maxsize=64)
def make(recipe: Recipe) -> Callable[..., None]:
    """The compiled loop for a recipe."""
    return loop.compiled(make_iterate(recipe), recipe.digest())
