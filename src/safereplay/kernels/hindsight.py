"""The loop of hindsight replay: play an episode under its goal, then learn it again under goals that it reached.

A state of a goal-conditioned model is x = g·S + s: cell s under goal number g. Moves do not depend on the goal, so a
transition (s, a, s') made under g is also one of the pair ((s, g'), a). :mod:`safereplay.rivals.hindsight` has its reward
and the strategies; an unsafe outcome keeps its reward. Each step is learned as in Q-learning, and the latest ``window``
are stored. After the episode they are relabelled in order. A goal is skipped if its cell is not a goal, such as that of a
fall, or if the transition begins there. A relabelled update is one iteration and one replay of its pair.

Ref: Andrychowicz et al. (2017), Algorithm 1 and Section 4.5.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import loop, rng, step
from .compile import Array, Bound, at, digest_of, jit
from .memory import greedy, highest
from .rng import Model, sample

NONE, FUTURE, FINAL = range(3)  # strategies
WRITTEN, TURN, OVER = range(3)  # entries of Memory.cursor
NO_GOAL = -1


class Memory(NamedTuple):
    """The transitions of the episode that is played or relabelled, and the data for relabelling."""

    pair: Array  #: [window] cell·|A| + action of a transition; transition t is kept at t mod window
    outcome: Array  #: [window] its outcome in the model
    cursor: Array  #: [3] transitions written, relabelled updates tried, and whether the episode is over
    goal_of: Array  #: [S] number of the goal at a cell, or NO_GOAL
    unsafe: Array  #: [K] whether the outcome is unsafe
    pays: Array  #: [2] reward of a step that does not reach the goal, and of one that does


class Recipe(NamedTuple):
    """Bound functions and switches that a run's code is built from."""

    alpha: Bound
    rate: Bound
    softmax: bool
    strategy: int
    window: int  #: transitions kept per episode; not compiled in

    def digest(self) -> str | None:
        """A digest of the source of the compiled code; None if it must not be cached on disk."""
        return digest_of([self.alpha, self.rate], "hindsight", self.softmax, self.strategy)

    def make(self) -> Callable[..., None]:
        """The compiled loop."""
        return loop.compiled(make_iterate(self), self.digest())

    def room(self, mdp: Any) -> Memory:
        """The initial memory of a run, for a goal-conditioned model."""
        goal_of = np.full(mdp.n_cells, NO_GOAL, np.int64)
        goal_of[mdp.goals] = np.arange(mdp.goals.size)
        window = self.window if self.strategy != NONE else 1
        pair, outcome = np.zeros((2, window), np.int64)
        return Memory(pair, outcome, np.zeros(3, np.int64), goal_of, mdp.unsafe, np.array([mdp.step, mdp.reward]))


def make_backup(recipe: Recipe) -> Callable[..., None]:
    """The function that learns from a transition of pair i: Q ← (1−α)·Q + α·(r + γ·max_b Q(x',b))."""
    step_size = step.make_alpha(recipe.alpha)

    @jit
    def backup(tables: step.Tables, i: int, r: float, x_next: int, ends: bool, column: int, dials: step.Dials) -> None:
        alpha = step_size(tables.counts[at(i), step.VISITS] + tables.counts[at(i), step.REPLAYS] + 1, dials)
        best = 0.0 if ends else highest(tables.Q, x_next, dials.n_actions)
        tables.counts[at(i), column] += 1
        tables.Q[at(i)] = (1.0 - alpha) * tables.Q[at(i)] + alpha * (r + dials.gamma * best)

    return backup


def make_again(recipe: Recipe) -> Callable[..., bool]:
    """The function that learns the next relabelled transition of an episode that is over; False when none is left."""
    backup, strategy = make_backup(recipe), recipe.strategy

    @jit
    def again(model: Model, memory: Memory, tables: step.Tables, dials: step.Dials) -> bool:
        if strategy == NONE:
            return False
        cursor, window, A, S = memory.cursor, memory.pair.size, dials.n_actions, memory.goal_of.size
        times = int(dials.update_params[0]) if strategy == FUTURE else min(1, int(dials.update_params[0]))
        stop = cursor[WRITTEN]
        first = max(0, stop - window)
        while cursor[TURN] < (stop - first) * times:
            t = first + cursor[TURN] // times
            cursor[TURN] += 1
            later = t + rng.below(tables.generator, stop - t) if strategy == FUTURE else stop - 1
            g = memory.goal_of[at(model.s_next[at(memory.outcome[at(later % window)])] % S)]
            pair, k = memory.pair[at(t % window)], memory.outcome[at(t % window)]
            if g == NO_GOAL or memory.goal_of[at(pair // A)] == g:
                continue
            tables.clock[step.ITERATION] += 1
            s_next = model.s_next[at(k)] % S
            there = memory.goal_of[at(s_next)] == g
            r = model.r[at(k)] if memory.unsafe[at(k)] else memory.pays[1 if there else 0]
            backup(tables, g * S * A + pair, r, g * S + s_next, there, step.REPLAYS, dials)
            return True
        return False

    return again


def make_iterate(recipe: Recipe) -> Callable[..., int]:
    """The function of one iteration: a step of the MDP in state x, or a relabelled update after an episode."""
    choose, backup, again = step.make_choose(recipe), make_backup(recipe), make_again(recipe)
    keeps = recipe.strategy != NONE

    @jit
    def iterate(model: Model, memory: Memory, tables: step.Tables, dials: step.Dials, x: int, max_steps: int) -> int:
        clock, cursor = tables.clock, memory.cursor
        if cursor[OVER] != 0:
            if not again(model, memory, tables, dials):
                cursor[OVER] = 0
                clock[step.EPISODE] += 1
            return x
        if x == step.NO_STATE:
            x = loop.begin(model, tables)
            cursor[WRITTEN] = 0
        clock[step.ITERATION] += 1
        i = x * dials.n_actions + choose(tables, x, greedy(tables.Q, x, dials.n_actions), dials)
        k = sample(model, i, tables.generator)
        x_next, ends = model.s_next[at(k)], model.ends[at(k)]
        backup(tables, i, model.r[at(k)], x_next, ends, step.VISITS, dials)
        if keeps:
            place = cursor[WRITTEN] % memory.pair.size
            memory.pair[at(place)] = i % (memory.goal_of.size * dials.n_actions)
            memory.outcome[at(place)] = k
            cursor[WRITTEN] += 1
        clock[step.STEP] += 1
        if ends or clock[step.STEP] >= max_steps:
            cursor[TURN], cursor[OVER] = 0, 1
            x_next = step.NO_STATE
        return int(x_next)

    return iterate
