"""Replay from a history: a ring of the last transitions, and rules for drawing from it.

A transition is stored as the number k of an outcome of the model; pair, reward, next state and end follow from it. As in
Algorithm 1, an iteration is a replay with probability v, else a step of the MDP, whose transition is learned and stored.
A :class:`Rule` is five small functions that are compiled into the loop; unused functions cost nothing.

        recall    the outcome that this iteration replays, or NOTHING for an iteration of the MDP
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

from . import loop, ring, rng, step, tree
from .compile import Array, Bound, at, digest_of, jit
from .ring import AT, NOTHING, History
from .table import Model


class Rule(NamedTuple):
    """The functions of a replay rule."""

    recall: Callable[..., int]
    store: Callable[..., None] = ring.store
    note: Callable[..., None] = ring.forget
    factor: Callable[..., float] = ring.alike
    target: Callable[..., float] = ring.one_step


RULES = {
    "uniform": Rule(ring.recall_uniform),
    "recent": Rule(ring.recall_recent),
    "combined": Rule(ring.recall_combined),
    "proportional": Rule(ring.recall_proportional, ring.store_at_the_top, ring.note_proportional),
    "proportional weighed": Rule(
        ring.recall_proportional, ring.store_at_the_top, ring.note_proportional, ring.weigh_proportional
    ),
    "rank": Rule(ring.recall_by_rank, ring.store_in_heap, ring.note_by_rank),
    "rank weighed": Rule(ring.recall_by_rank, ring.store_in_heap, ring.note_by_rank, ring.weigh_by_rank),
    "backward": Rule(ring.recall_backward, ring.store_episode, ring.go_back, target=ring.target_backward),
    "dyna": Rule(ring.recall_last, ring.store_in_model),
    "dyna counted": Rule(ring.recall_counted, ring.store_in_model),
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
        kind, n = self.rule.split()[0], self.window
        ints = {
            "order": n if kind == "rank" else 1,
            "where": n if kind == "rank" else 1,
            "first": n if kind == "backward" else 1,
            "last": n if kind == "backward" else 1,
            "seen": mdp.r.size if kind == "dyna" else 1,
            "states": mdp.n_states if kind == "dyna" else 1,
        }
        marks = np.zeros(10, np.int64)
        marks[AT] = NOTHING  # no episode has begun
        weighed = self.rule == "proportional weighed"
        return History(
            ring=np.zeros(n, np.int64),
            pair=mdp.pair,
            marks=marks,
            numbers=np.array([self.top, 0.0]),
            tree=tree.allocate(n if kind == "proportional" else 1),
            least=np.full(tree.allocate(n).size, np.inf) if weighed else np.zeros(1),
            key=np.zeros(n if kind == "rank" else 1),
            law=np.zeros(n if kind == "rank" else 1),
            newest=np.full(mdp.n_pairs if kind == "dyna" else 1, NOTHING, np.int64),
            **{name: np.zeros(size, np.int64) for name, size in ints.items()},
        )


@jit
def shuffled(Q: Array, s: int, n_actions: int, generator: Array) -> int:
    """argmax_a Q(s,a), with random ties; draws no random number if there is no tie."""
    top = step.highest(Q, s, n_actions)
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


def make_learn(recipe: Recipe) -> Callable[..., None]:
    """The function that learns from outcome k of pair i, fresh or replayed."""
    step_size, rule = step.make_alpha(recipe.alpha), RULES[recipe.rule]
    target, factor, note = rule.target, rule.factor, rule.note

    @jit
    def learn(
        model: Model, memory: History, tables: step.Tables, i: int, k: int, fresh: bool, dials: step.Dials
    ) -> None:
        q = tables.Q[at(i)]
        alpha = step_size(tables.counts[at(i), step.VISITS] + tables.counts[at(i), step.REPLAYS] + 1, dials)
        if fresh:
            tables.counts[at(i), step.VISITS] += 1
            y = ring.one_step(model, memory, tables, k, dials)
        else:
            tables.counts[at(i), step.REPLAYS] += 1
            y = target(model, memory, tables, k, dials)
            alpha *= factor(memory, dials)
            note(memory, y - q, dials)
        tables.Q[at(i)] = (1.0 - alpha) * q + alpha * y

    return learn


def make_iterate(recipe: Recipe) -> Callable[..., int]:
    """The function of one iteration in state s, a replay or a step of the MDP; returns the next state."""
    recall, keep = RULES[recipe.rule].recall, RULES[recipe.rule].store
    choose, learn, shuffles = step.make_choose(recipe), make_learn(recipe), recipe.shuffles  # type: ignore[arg-type]

    @jit
    def iterate(model: Model, memory: History, tables: step.Tables, dials: step.Dials, s: int, max_steps: int) -> int:
        clock, generator = tables.clock, tables.generator
        if s == step.NO_STATE:
            s = loop.begin(model, tables)
        clock[step.ITERATION] += 1
        k = recall(model, memory, tables, dials) if clock[step.ITERATION] > dials.T0 else NOTHING
        if k != NOTHING:
            learn(model, memory, tables, memory.pair[at(k)], k, False, dials)
            return s
        if shuffles:
            best = shuffled(tables.Q, s, dials.n_actions, generator)
        else:
            best = step.greedy(tables.Q, s, dials.n_actions)
        i = s * dials.n_actions + choose(tables, s, best, dials)
        k = loop.sample(model, i, generator)
        learn(model, memory, tables, i, k, True, dials)
        s = loop.leave(tables, model.s_next[at(k)], model.ends[at(k)], max_steps)
        keep(model, memory, tables, k, s == step.NO_STATE, dials)
        return s

    return iterate


@lru_cache(maxsize=64)
def make(recipe: Recipe) -> Callable[..., None]:
    """The compiled loop for a recipe."""
    return loop.compiled(make_iterate(recipe), recipe.digest())
