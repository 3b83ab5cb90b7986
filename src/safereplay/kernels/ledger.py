"""The loop of learners with a second table besides the value of a pair, and a score of both.

Besides the tables of :mod:`safereplay.rivals.ledgers` a run has a *price*, and whether the current episode has been
harmed. Actions are compared by Q(s,a) = score(X, M, price). On a step (s, a, r, s'), with b* = argmax_b Q(s',b),

    X(s,a) ← value(q, m, r, best, ahead, unsafe, α, γ)       q = X(s,a), m = M(s,a), best = X(s',b*), ahead = M(s',b*)
    M(s,a) ← second(q, m, r, best, ahead, unsafe, α, γ)      best = ahead = 0 where the episode ended
    Q(s,a) ← score(q, m, price)                              of the new X(s,a) and M(s,a)

and after an episode from s₀ price ← reprice(price, harmed, forecast, episode), forecast = M(s₀,b*), and all
scores are recomputed. Each function names the quantities it needs, and the learner's own dials. Nothing is replayed. X
starts where Q does, M and the price at 0. A truncated episode counts as an episode.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from . import loop, step
from .compile import Array, Bound, at, digest_of, jit
from .memory import greedy
from .rng import Model, sample

#: Quantities that value and second may name, besides the learner's dials; then score, then reprice.
UPDATE_OFFERS = ("q", "m", "r", "best", "ahead", "unsafe", "alpha", "gamma")
SCORE_OFFERS = ("q", "m", "price")
REPRICE_OFFERS = ("price", "harmed", "forecast", "episode")

PRICE, HARMED, HARMS, START = range(4)  # entries of Memory.book


class Memory(NamedTuple):
    """The arrays of a run besides its tables."""

    X: Array  #: [P] mean value of a pair
    M: Array  #: [P] its second quantity
    unsafe: Array  #: [K] whether the outcome is unsafe
    book: Array  #: [4] price, whether this episode was harmed, number of harmed episodes, first state of this episode


class Recipe(NamedTuple):
    """Bound functions and switches that a run's code is built from."""

    alpha: Bound
    rate: Bound
    value: Bound
    second: Bound
    score: Bound
    reprice: Bound
    softmax: bool

    def digest(self) -> str | None:
        """A digest of the source of the compiled code; None if it must not be cached on disk."""
        return digest_of([x for x in self if isinstance(x, Bound)], "ledger", self.softmax)

    def make(self) -> Callable[..., None]:
        """The compiled loop."""
        return loop.compiled(make_iterate(self), self.digest())

    def room(self, mdp: Any) -> Memory:
        """The initial memory of a run."""
        return Memory(np.zeros(mdp.n_pairs), np.zeros(mdp.n_pairs), mdp.unsafe, np.zeros(4))


def make_iterate(recipe: Recipe) -> Callable[..., int]:
    """The function of one iteration in state s; returns the next state."""
    choose, step_size = step.make_choose(recipe), step.make_alpha(recipe.alpha)
    value, second, score = recipe.value.call, recipe.second.call, recipe.score.call
    reprice, priced = recipe.reprice.call, recipe.score.uses("price")

    @jit
    def renew(tables: step.Tables, memory: Memory, dials: step.Dials) -> None:
        """Recompute all scores."""
        for i in range(tables.Q.size):
            tables.Q[at(i)] = score((memory.X[at(i)], memory.M[at(i)], memory.book[PRICE], *dials.update_params))

    @jit
    def iterate(model: Model, memory: Memory, tables: step.Tables, dials: step.Dials, s: int, max_steps: int) -> int:
        clock, book, params = tables.clock, memory.book, dials.update_params
        if s == step.NO_STATE:
            if clock[step.ITERATION] == 0:
                for j in range(tables.Q.size):
                    memory.X[at(j)] = tables.Q[at(j)]
                renew(tables, memory, dials)
            s = loop.begin(model, tables)
            book[START] = s
        clock[step.ITERATION] += 1
        i = s * dials.n_actions + choose(tables, s, greedy(tables.Q, s, dials.n_actions), dials)
        k = sample(model, i, tables.generator)
        s_next, ends = model.s_next[at(k)], model.ends[at(k)]
        n = tables.counts[at(i), step.VISITS] + 1
        tables.counts[at(i), step.VISITS] = n
        alpha = step_size(n, dials)
        best = ahead = 0.0
        if not ends:
            j = s_next * dials.n_actions + greedy(tables.Q, s_next, dials.n_actions)
            best, ahead = memory.X[at(j)], memory.M[at(j)]
        harm = 1.0 if memory.unsafe[at(k)] else 0.0
        book[HARMED] = max(book[HARMED], harm)
        known = (memory.X[at(i)], memory.M[at(i)], model.r[at(k)], best, ahead, harm, alpha, dials.gamma, *params)
        q, m = value(known), second(known)
        memory.X[at(i)], memory.M[at(i)] = q, m
        tables.Q[at(i)] = score((q, m, book[PRICE], *params))
        s = loop.leave(tables, s_next, ends, max_steps)
        if s == step.NO_STATE:
            book[HARMS] += book[HARMED]
            if priced:
                start = int(book[START])
                j = start * dials.n_actions + greedy(tables.Q, start, dials.n_actions)
                forecast = memory.M[at(j)]
                book[PRICE] = reprice((book[PRICE], book[HARMED], forecast, float(clock[step.EPISODE]), *params))
                renew(tables, memory, dials)
            book[HARMED] = 0.0
        return s

    return iterate
