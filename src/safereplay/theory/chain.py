"""The Markov chain of a policy: its outcomes and their probabilities.

Under a policy π an outcome of (s,a) has probability π(a|s)·q(s',r|s,a). Questions about the policy are of four kinds:

    expectation   x(s) = Σ p·(g + f·x(s')),          a linear equation (:meth:`Chain.solve`),
    possibility   which outcomes can be reached?      a search in the graph of moves (:meth:`Chain.can_reach`),
    worst case    x(s) = min (r + γ·x(s')),           a shortest path (:meth:`Chain.worst`),
    sampling      episodes drawn at random            (:meth:`Chain.play`).

**Never ending.** A set of states that the chain cannot leave and where no episode ends is *endless*. An episode that
enters one never ends. Its return is the limit of its sums, the *fate* of the set: constant if all of its rewards
are 0, else −∞ or +∞ by the sign of the mean gain of a lap. If a lap gains 0 on average, there is no limit.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf, nan
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .. import _checks
from .._checks import Bools, Floats, Ints
from .._progress import Bar, ctrl_c_afterwards
from ..arrays import sampling_model
from ..kernels import episodes as kernels
from ..kernels import rng
from ..mdp import TabularMDP, reached
from ..verdicts import checked_policy
from .solver import Equation, matrix

CHUNK = 1_024  # episodes per random stream
SHORT = 1 << 22  # steps between two checks for Ctrl-C: less than a second
ROUNDING = float(np.finfo(np.float64).eps)
BALANCED = 8.0 * kernels.TOLERANCE  # a short lap whose gain is a smaller share of its rewards gains nothing
LASTING = 1.0 / (8.0 * ROUNDING)  # expected steps from which on rounding hides whether there is an end


class Episodes(NamedTuple):
    """Sampled episodes, [n] each. A truncated one (not ``ended``) counts its return so far, in state ``last``."""

    returns: Floats
    lengths: Ints
    unsafe: Bools
    ended: Bools
    last: Ints


@dataclass(frozen=True, eq=False)
class Chain:
    """The outcomes of a policy: from state s with probability p to s_next, with r; sorted by s."""

    s: Ints
    p: Floats
    s_next: Ints
    r: Floats
    terminal: Bools
    unsafe: Bools
    n_states: int

    def solve(self, gain: Floats | Bools, passing: Bools | Floats, inside: Bools) -> Floats:
        """x(s) = Σ p·(gain + passing·x(s')) over the states ``inside``; x = 0 elsewhere.

        With L the largest expected number of steps inside, |x| ≤ L·max |b|, and the relative rounding error of x is about
        L·1e-16. If that would leave nothing of x, an error is raised.
        """
        x, most = self._solve(gain, passing, inside)
        if not np.abs(x).max() <= LASTING * most:
            here = np.flatnonzero(inside[self.s])
            k = here[np.argmin(self.p[here])]
            condition = "lead to an end with a probability above rounding"
            _checks.fail(
                f"outcomes of s={self.s[k]}", condition, float(self.p[k]), "the least likely outcome on the way"
            )
        return x

    def _solve(self, gain: Floats | Bools, passing: Bools | Floats, inside: Bools) -> tuple[Floats, float]:
        """x as above and max |b|; nan if the equations are singular. The last equation is cached."""
        here = inside[self.s]
        weights = np.where(here, self.p * gain, 0.0)
        if not weights.any():
            return np.zeros(self.n_states), 0.0
        onward = self.p * passing * (here & inside[self.s_next])
        b = np.bincount(self.s, weights=weights, minlength=self.n_states).astype(np.float64)
        if not (self._last and np.array_equal(self._last[0][0], onward)):
            self._last[:] = [(onward, Equation(matrix(onward, self.s, self.s_next, self.n_states)))]
        return np.where(inside, self._last[0][1].solve(b), 0.0), float(np.abs(b).max())

    @cached_property
    def _last(self) -> list[tuple[Floats, Equation]]:
        return []

    def forget(self) -> None:
        """Drop the cached equation, which may be large."""
        self._last.clear()

    @cached_property
    def row(self) -> Ints:
        """State s has outcomes row[s], ..., row[s+1] − 1."""
        return np.searchsorted(self.s, np.arange(self.n_states + 1)).astype(np.int64)

    @cached_property
    def active(self) -> Bools:
        """The states that have outcomes, [S]."""
        return np.asarray(np.diff(self.row) > 0)

    def reached(self, start: Floats | Bools) -> Bools:
        """States that can be reached from the start [S]."""
        on = ~self.terminal
        return reached(self.n_states, np.flatnonzero(start > 0), self.s[on], self.s_next[on])

    def can_reach(self, goal: Bools) -> Bools:
        """States from which an outcome marked ``goal`` [K] can be reached."""
        on = ~self.terminal
        return reached(self.n_states, np.unique(self.s[goal]), self.s_next[on], self.s[on])

    @cached_property
    def classes(self) -> Ints:
        """The strongly connected component of each state, by number, [S]."""
        on = ~self.terminal
        moves = (np.ones(int(on.sum())), (self.s[on], self.s_next[on]))
        graph = sparse.csr_array(moves, shape=(self.n_states, self.n_states))
        return np.asarray(connected_components(graph, directed=True, connection="strong")[1], np.int64)

    @cached_property
    def inner(self) -> Bools:
        """The outcomes that stay within a strongly connected component, [K]."""
        return np.asarray(~self.terminal & (self.classes[self.s] == self.classes[self.s_next]))

    @cached_property
    def ends(self) -> Bools:
        """The states from which the episode can end, [S]; states without outcomes excluded."""
        return self.can_reach(self.terminal)

    @cached_property
    def endless(self) -> Bools:
        """The states of endless sets, [S]."""
        if self.ends[self.active].all():
            return np.zeros(self.n_states, bool)
        left = np.bincount(self.classes[self.s], weights=~self.inner, minlength=self.n_states) > 0
        return np.asarray(self.active & ~left[self.classes])

    @cached_property
    def fate(self) -> Floats:
        """The limit of an episode's sum in endless sets, [S]: −inf, inf, nan for none; 0 if constant, and elsewhere."""
        low, high = self._range(self.endless[self.s])
        fate = np.select([high > 0.0, low < 0.0], [inf, -inf], 0.0)[self.classes]
        mixed = self.endless & ((low < 0.0) & (high > 0.0))[self.classes]
        if mixed.any():
            fate[mixed] = self._drift(mixed)[self.classes[mixed]]
        return np.where(self.endless, fate, 0.0)

    def _range(self, k: Bools) -> tuple[Floats, Floats]:
        """The lowest and the highest of 0 and the rewards of outcomes k within each component, by its number."""
        low, high = np.zeros(self.n_states), np.zeros(self.n_states)
        np.minimum.at(low, self.classes[self.s[k]], self.r[k])
        np.maximum.at(high, self.classes[self.s[k]], self.r[k])
        return low, high

    def _drift(self, mixed: Bools) -> Floats:
        """−inf, inf, or nan for none, by the mean sum of a lap: between two visits of one state of the set.

        The gain of a lap has a rounding error of about 1e-16 of its rewards times its expected length: less counts as 0.
        """
        states = np.flatnonzero(mixed)
        numbers, first = np.unique(self.classes[states], return_index=True)
        onward = ~np.isin(self.s_next, states[first])
        lap, moved = (self._solve(r, onward, mixed)[0][states[first]] for r in (self.r, np.abs(self.r)))
        length = np.zeros(self.n_states)
        np.maximum.at(length, self.classes[states], self._solve(np.ones_like(self.p), onward, mixed)[0][states])
        drift = np.zeros(self.n_states)
        least = np.maximum(BALANCED, 8.0 * ROUNDING * length[numbers]) * moved
        drift[numbers] = np.where(np.abs(lap) > least, np.copysign(inf, lap), nan)
        return drift

    def settled(self) -> Chain:
        """The chain with an end in each endless set, whose reward is the set's fate."""
        if not self.endless.any():
            return self
        there = self.endless[self.s]
        return replace(self, r=np.where(there, self.fate[self.s], self.r), terminal=self.terminal | there)

    def restricted(self, start: Floats) -> tuple[Chain, Floats]:
        """The chain and its start, restricted to the states reachable from the start, renumbered; ends lead to state 0."""
        kept = self.reached(start)
        number = np.cumsum(kept) - 1
        k = kept[self.s]
        target = np.where(self.terminal, 0, number[self.s_next])[k]
        outcomes = (number[self.s[k]], self.p[k], target, self.r[k], self.terminal[k], self.unsafe[k])
        return Chain(*outcomes, int(kept.sum())), start[kept]

    def play(
        self, start: Floats, gamma: float, episodes: int, max_steps: int, seed: int, threads: int | None, quiet: bool
    ) -> Episodes:
        """Sample episodes from a start [S], in chunks with their own random streams, on several threads."""
        workers = _checks.whole("threads", os.cpu_count() if threads is None else threads, 1)
        columns = (self.row, self.p, self.s_next, self.r, self.terminal, self.unsafe)
        model = sampling_model(TabularMDP(self.n_states, 1, *columns, start, gamma))
        (lengths, last), (harmed, ended) = np.zeros((2, episodes), np.int64), np.empty((2, episodes), bool)
        played = Episodes(np.empty(episodes), lengths, harmed, ended, last)

        stop, few = threading.Event(), min(CHUNK, max(1, SHORT // max_steps))

        def one(chunk: int) -> None:
            stream, end = rng.seeded(seed, chunk), min(episodes, (chunk + 1) * CHUNK)
            for k in range(chunk * CHUNK, end, few):
                if stop.is_set():
                    return
                part = slice(k, min(k + few, end))
                kernels.play(model, self.unsafe, gamma, max_steps, stream, *(x[part] for x in played))

        with Bar("sampling episodes", episodes, quiet) as bar, ThreadPoolExecutor(workers) as pool:
            try:
                left = {pool.submit(one, chunk) for chunk in range(ceil(episodes / CHUNK))}
                while left:
                    with ctrl_c_afterwards():
                        ready, left = wait(left, timeout=0.2)
                    for chunk in ready:
                        chunk.result()
                    bar.update(int(np.count_nonzero(lengths)))
            finally:
                stop.set()  # stop the other chunks, whatever ended the wait
        return played

    def worst(self, gamma: float = 1.0) -> Floats:
        """The infimum of the possible returns, [S]; 0 for states without outcomes.

        Undiscounted it is −inf if a loop of negative total can be taken: any number of times if the episode can still
        end, and below every bound at some time if it cannot. An endless set without such a loop gives inf if it has one
        of positive total, else the lowest sum that recurs.
        """
        if gamma < 1.0:  # x = min (r + γ·x'), by relaxation; loops are evaluated directly along the moves chosen so far
            moves = _Moves.of(self, np.ones(self.s.size, bool))
            choice = np.full(self.n_states + 1, -1)
            falling = np.argsort(-moves.r, kind="stable")
            choice[moves.source[falling]] = falling  # the last of a state's moves, which has the lowest reward
            x, settled = moves.value(choice, gamma), False
            while not settled:
                settled = moves.relax(x, choice, gamma)
                x = moves.value(choice, gamma)
            return np.asarray(x[:-1])
        low, high = self._range(self.inner)
        h = np.where(low < 0.0, -inf, 0.0)[self.classes]  # a loop with a loss and no gain; for other loops see below
        mixed = (low < 0.0) & (high > 0.0)
        if mixed.any():  # the lowest sum of a walk from each state within its component; −inf with a negative loop
            within = np.append(np.where(mixed[self.classes], 0.0, inf), inf)
            _Moves.of(self, self.inner & mixed[self.classes[self.s]]).descend(within)
            h = np.where(mixed[self.classes], within[:-1], h)
        lost = self.can_reach(h[self.s] == -inf)
        x = np.append(np.where(self._rests(h), h, inf), 0.0)
        _Moves.of(self, ~lost[self.s]).descend(x)
        return np.where(lost, -inf, np.where(self.active, x[:-1], 0.0))

    def _rests(self, h: Floats) -> Bools:
        """The states of endless sets all of whose loops have total 0, [S], given the lowest sums h within components."""
        if not self.endless.any():
            return self.endless
        k = self.endless[self.s] & np.isfinite(h[self.s])
        here, there, r = h[self.s[k]], h[self.s_next[k]], self.r[k]
        tense = r + there - here > 8.0 * kernels.TOLERANCE * (np.abs(r) + np.abs(here) + np.abs(there))
        gains = np.bincount(self.classes[self.s[k]], weights=tense, minlength=self.n_states) > 0
        return np.asarray(self.endless & np.isfinite(h) & ~gains[self.classes])


@dataclass(frozen=True, eq=False)
class _Moves:
    """Moves s → t sorted by target, with the end as an extra state; for relaxation."""

    row: Ints  #: [S + 2]
    source: Ints
    target: Ints
    r: Floats

    @classmethod
    def of(cls, chain: Chain, k: Bools) -> _Moves:
        """The outcomes k [K] as moves."""
        target = np.where(chain.terminal, chain.n_states, chain.s_next)[k]
        order = np.argsort(target, kind="stable")
        row = np.searchsorted(target[order], np.arange(chain.n_states + 2)).astype(np.int64)
        return cls(row, chain.s[k][order], target[order], chain.r[k][order])

    def relax(self, x: Floats, choice: Ints, gamma: float) -> bool:
        """Lower x and record the moves chosen, until nothing changes; False if that takes many rounds."""
        queue, queued = np.empty(x.size, np.int64), np.empty(x.size, bool)
        budget = 4 * x.size
        return kernels.relax(self.row, self.source, self.r, gamma, x, choice, queue, queued, budget) < budget

    def value(self, choice: Ints, gamma: float) -> Floats:
        """x = r + γ·x' along the moves chosen, by doubling: 1, 2, 4, ... steps at a time. x = 0 without a move."""
        x = np.where(choice >= 0, self.r[choice], 0.0)
        ahead = self._ahead(choice)
        while gamma > 1e-18:
            x = x + gamma * x[ahead]
            ahead, gamma = ahead[ahead], gamma * gamma
        return x

    def descend(self, x: Floats) -> None:
        """Relax undiscounted sums in place until they converge; −inf where the moves chosen form a loop."""
        choice = np.full(x.size, -1)
        while not self.relax(x, choice, 1.0):
            ahead = self._ahead(choice)
            for _ in range(x.size.bit_length()):
                ahead = ahead[ahead]
            looping = choice[ahead] >= 0  # with a negative total: each move on the loop was the last to lower
            x[looping], choice[looping] = -inf, -1

    def _ahead(self, choice: Ints) -> Ints:
        return np.where(choice >= 0, self.target[choice], np.arange(choice.size))


def chain_of(mdp: TabularMDP, policy: Any) -> Chain:
    """The chain of a policy: actions [S], or probabilities of actions [S, A], where rows of terminal states are ignored."""
    s, a = np.divmod(mdp.pair, mdp.n_actions)
    try:
        dimensions = np.ndim(policy)
    except ValueError:
        _checks.fail("policy", "be actions [S] or probabilities [S, A]", policy, "its rows differ in length")
    if dimensions == 2:
        pi = _checks.finite_array("policy", policy, (mdp.n_states, mdp.n_actions))
        sums = np.where(mdp.is_terminal, 1.0, pi.sum(1))
        for i in np.flatnonzero(~mdp.is_terminal & (pi.min(1) < 0.0))[:1]:
            _checks.fail(f"policy of s={i}", "have no negative entry", float(pi[i].min()))
        for i in np.flatnonzero(np.abs(sums - 1.0) > 1e-9)[:1]:
            _checks.fail(f"policy of s={i}", "sum to 1", float(sums[i]))
        p = mdp.p * _checks.rescaled(pi, sums[:, None])[s, a]
    else:
        p = np.where(checked_policy(mdp, policy)[s] == a, mdp.p, 0.0)
    k = np.flatnonzero(p)
    return Chain(s[k], p[k], mdp.s_next[k], mdp.r[k], mdp.terminal[k], mdp.unsafe[k], mdp.n_states)
