"""Ceilings: the best mean return of any policy under a limit on its risk, as solutions of constrained MDPs.

A limit on P(unsafe) is linear in the expected visits of pairs, so a mixture of two policies is the best:
:mod:`safereplay.theory.occupancy`. Limits on CVaR and on the standard deviation need the return so far: this module, by a
dual over the amount still owed.

**CVaR_α ≥ c.** CVaR_α(R) = max_η η − E[(η−R)⁺]/α, so the limit means that for some η, E[(η−R)⁺] ≤ α·(η−c). The best η is
a quantile, so a point of the rewards' lattice. The state includes the amount owed, z = η − return so far. By the duality
of linear programs the ceiling for one η is

    min_λ  max_π E[R] − λ·E[(η−R)⁺]  +  λ·α·(η−c),                                                                  (2)

and the inner maximum is a dynamic program that starts at z = η: solved once for a λ, it serves every η and every c. Any
set of λ gives an upper bound. Two policies that are equally good at a λ give, mixed, a value that is attained. λ are
added until the two meet.

**std ≤ σ.** Var R = min_a E[(R−a)²]: the same with z² in place of z⁺, over a mesh of a. The mean is within half a mesh
h of some a, so the condition is relaxed to E[(R−a)²] ≤ σ² + h²/4, which gives an upper bound. Only policies with a
mean of at most four standard deviations below the best one are considered; others have a lower mean anyway.

The amount owed is kept within a window. Beyond it, with V the best mean from there, no policy of mean μ ≤ V has less
E[(z−R)⁺] than (z−μ)⁺ (Jensen), so V at the cost (z−V)⁺ is a bound, exact if every return falls short of z.
So for any window the answer is an upper bound; ``reason`` says so where it may not be tight.

**Policies that never end** have no finite occupancy. The ceiling is over policies that end with probability 1. If some
loop gains forever, the mean return is **unbounded**. The *discounted* return always has a bound, with the cost discounted
as well. It is valid: a cost C ≥ 0 at step T counts γ^T·C ≤ C, so E[γ^T·C] ≤ E[C], and a policy that keeps the limit keeps
the discounted one. For a limit on CVaR or on the standard deviation it is not computed, since such a loop might
compensate for losses on the way to it.

Ref: Rockafellar & Uryasev (2000), Optimization of CVaR.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, floor, inf, isfinite, nan, sqrt
from typing import Any

import numpy as np
from scipy import sparse

from .. import _checks
from .._checks import Bools, Floats
from ..mdp import TabularMDP
from .occupancy import (
    INFEASIBLE,
    OPTIMAL,
    SLACK,
    UNBOUNDED,
    UNKNOWN,
    Ceiling,
    Game,
    Harm,
    Hull,
    Limit,
    Program,
    Relaxed,
)
from .risk import lattice
from .solver import ROUNDING, largest

MAX_VARIABLES = 60_000  # (state, owed, action) triples of a dynamic program
MESH = 4  # points per unit of reward for a limit on the standard deviation


class _Owed(Game):
    """max_π E[R] − λ·E[cost] as a dynamic program over (z, s), z the amount still owed, for all z at once."""

    def __init__(self, program: _Windowed, low: int, levels: int, gamma: float) -> None:
        mdp, endable = program.mdp, program.endable
        number = np.cumsum(endable.states) - 1
        k = np.flatnonzero(endable.use[mdp.pair])
        i, k = np.repeat(np.arange(levels), k.size), np.tile(k, levels)
        j = i - program.mesh * program.shift[k]
        z = np.asarray((low + j) * program.step, np.float64)
        inside = ~mdp.terminal[k] & (j >= 0) & (j < levels)
        left = ~mdp.terminal[k] & ~inside
        ahead = mdp.s_next[k]
        V = np.where(left, program.values[ahead], 0.0)
        beyond = V if gamma == 1.0 else np.where(left, program.values_discounted[ahead], 0.0)
        least = program.cost(np.maximum(0.0, z - V)) if gamma == 1.0 else np.zeros_like(z)
        price = np.where(mdp.terminal[k], program.cost(z), np.where(left, least, 0.0))
        exact = program.linear & (z >= program.luckiest[ahead])
        s, a = np.divmod(mdp.pair[k], mdp.n_actions)
        S, A = int(endable.states.sum()), mdp.n_actions
        N = levels * S
        row = (i * S + number[s]) * A + a
        columns = (mdp.r[k] + gamma * beyond, price, left & ~exact)
        sums = [np.bincount(row, weights=mdp.p[k] * c, minlength=N * A).astype(np.float64) for c in columns]
        entries = (gamma * mdp.p[k][inside], (row[inside], (j * S + number[ahead])[inside]))
        P = sparse.csr_array(entries, shape=(N * A, N))
        ends = np.bincount(row, weights=~inside, minlength=N * A) > 0 if gamma == 1.0 else None
        allowed = np.tile(endable.use.reshape(-1, A)[endable.states], (levels, 1))
        policy = np.tile(endable.policy[endable.states], levels)
        super().__init__(P, np.stack(sums, axis=1), ends, allowed, policy, mdp.start[endable.states], levels)


class _Windowed(Program):
    """A limit that needs the return so far, on the lattice of the rewards."""

    mesh = 1  #: points per unit of reward
    linear = True  #: whether cost(z − R) is linear if all R are below z

    def __init__(self, mdp: TabularMDP, alpha: float, use: Bools | None = None) -> None:
        super().__init__(mdp, alpha, use)
        if self.trouble:
            return
        unit, self.shift = lattice(mdp.r) or (nan, np.zeros(0, np.int64))
        self.step = unit / self.mesh
        if not isfinite(unit):
            self.trouble = "the rewards have no common unit"
        elif self.unlimited() == inf:
            self.trouble = "some loop gains for ever, which leaves open what the risk before it allows"
        elif isfinite(self.unlimited()) and self.window[1] * int(self.endable.use.sum()) > MAX_VARIABLES:
            self.trouble = f"a program that knows the return so far would have more than {MAX_VARIABLES:,} variables"

    def cost(self, z: Floats) -> Floats:
        """The cost of ending with z owed."""
        raise NotImplementedError

    def levels(self, typical: int) -> tuple[int, int]:
        """(lowest z in steps, number of levels), with room for ``typical`` steps beyond the range asked for."""
        raise NotImplementedError

    @property
    def window(self) -> tuple[int, int]:
        """(lowest z in steps, number of levels)."""
        return self.levels(self.typical)

    @cached_property
    def typical(self) -> int:
        """The number of steps of z in a typical episode, or many times as many if that is cheap."""
        once = ceil(abs(self.unlimited()) / self.step) + 4 * self.mesh * int(np.abs(self.shift).max())
        pairs = int(self.endable.use.sum())
        cheap = [k for k in (2, 4, 8, 16) if (self.levels(k * once)[1] + k * once) * pairs <= MAX_VARIABLES // 8]
        return max(cheap, default=1) * once

    @cached_property
    def pays_on_the_way(self) -> bool:
        """Whether the amount owed can fall before an end: then z needs room below the least z of a start."""
        mdp = self.mdp
        return bool((self.endable.use[mdp.pair] & ~mdp.terminal & (self.shift > 0)).any())

    @cached_property
    def luckiest(self) -> Floats:
        """The largest possible return from each state, [S]; inf if it is unbounded."""
        mdp, k = self.mdp, np.flatnonzero(self.endable.use[self.mdp.pair])
        best, s = np.full(mdp.n_states, -inf), mdp.pair[k] // mdp.n_actions
        for _ in range(mdp.n_states + 1):
            after = best.copy()
            np.maximum.at(after, s, mdp.r[k] + np.where(mdp.terminal[k], 0.0, best[mdp.s_next[k]]))
            if (after == best).all():
                return best
            best = after
        return np.full(mdp.n_states, inf)

    @cached_property
    def z(self) -> Floats:
        """The possible amounts owed at the start, [L]."""
        low, levels = self.window
        return np.asarray((low + np.arange(levels)) * self.step, np.float64)

    @cached_property
    def dual(self) -> Hull:
        """The dual of the return."""
        return Hull(_Owed(self, *self.window, 1.0))

    @cached_property
    def dual_discounted(self) -> Hull:
        """The dual of the discounted return, with more room for z, since levels beyond the window have no cost there."""
        low, levels = self.window
        return Hull(_Owed(self, low, levels + self.typical, self.mdp.gamma))

    def budget(self, limit: Limit) -> Floats | None:
        """The largest cost within the limit for each z, [L], −inf for excluded z; None if the limit is not binding."""
        raise NotImplementedError

    def rounded(self, budget: Floats) -> Floats:
        """A budget and the rounding error of costs."""
        unit = float(self.cost(np.array([self.mesh * self.step]))[0])
        least = max(SLACK * unit, ROUNDING * largest(self.dual.game.totals[:, 1]))
        return budget + np.maximum(least, SLACK * np.abs(np.where(budget > -inf, budget, 0.0)))

    def relaxed(self, limit: Limit, discounted: bool) -> Relaxed | None:
        """The best of any policy under the limit, with policies that may depend on the return so far."""
        if not self.endable.starts:
            return None
        if self.trouble:
            return self.unrestrained(discounted)
        if not limit.allows(self.best, self.size):
            return None
        budget = self.budget(limit)
        if budget is None:
            return self.unrestrained(discounted)
        found, game, states = self.dual.solve(self.rounded(budget)), self.dual.game, self.endable.states
        x, policies = np.zeros((self.mdp.n_states, self.mdp.n_actions)), []
        for share, line in found.lottery:
            visits = game.visits(((1.0, line),), found.level).reshape(game.levels, -1, x.shape[1]).sum(0)
            x[states] += share * visits
            policy = self.endable.policy.copy()
            policy[states] = np.where(visits.sum(1) > 0, visits.argmax(1), policy[states])
            policies.append(policy)
        return Relaxed(found.upper, x, policies)

    def solve(self, limit: Limit, attained: bool = True) -> Ceiling:
        """The ceiling under a feasible limit."""
        budget = self.budget(limit)
        if budget is None:
            risk = limit.risk(self.unlimited_profile)
            return Ceiling(limit, OPTIMAL, self.unlimited(), self.unlimited(True), risk, self.best)
        budget = self.rounded(budget)
        found = self.dual.solve(budget)
        reason = f"an upper bound: {found.loose:.2g} of probability is followed no further"
        reason = reason if found.loose > SLACK else ""
        discounted = self.dual_discounted.solve(np.concatenate([budget, np.full(self.typical, -inf)])).upper
        return Ceiling(limit, OPTIMAL, found.upper, discounted, limit.value, self.best, reason)


class Tail(_Windowed):
    """CVaR_α ≥ c."""

    def cost(self, z: Floats) -> Floats:
        """z⁺: the shortfall of the return below η."""
        return np.asarray(np.maximum(z, 0.0), np.float64)

    @cached_property
    def lowest(self) -> float:
        """CVaR of a policy with the best mean: a limit below it is not binding."""
        profile = self.unlimited_profile
        return profile.cvar(self.alpha) - 5.0 * profile.cvar_error(self.alpha)

    def highest_eta(self, c: float) -> float:
        """An upper bound on quantiles: E[R] ≥ α·CVaR + (1−α)·VaR, and no mean is above V."""
        return (self.unlimited() - self.alpha * c) / (1.0 - self.alpha) if self.alpha < 1.0 else c

    def levels(self, typical: int) -> tuple[int, int]:
        """From the lowest relevant η to the largest return."""
        low, high = floor(self.lowest / self.step), ceil(self.highest_eta(self.lowest) / self.step)
        lucky = ceil(min(float(self.luckiest[self.endable.states].max()) / self.step, 1e15))
        low -= typical * self.pays_on_the_way
        return low, max(high, min(high + typical, lucky)) - low + 1

    @cached_property
    def best(self) -> float:
        """The largest CVaR: max_η η − min E[(η−R)⁺]/α."""
        if self.alpha == 1.0:
            return self.unlimited()
        return float(np.max(self._worth))

    @property
    def target(self) -> float:
        """The η of the largest CVaR."""
        return float(self.z[int(np.argmax(self._worth))])

    @property
    def _worth(self) -> Floats:
        """η − min E[(η−R)⁺]/α for each η, [L]; −inf above every quantile."""
        of_interest = self.z <= self.highest_eta(self.lowest) + self.step
        return np.where(of_interest, self.z - self.dual.least / self.alpha, -inf)

    def budget(self, limit: Limit) -> Floats | None:
        """α·(η−c) for each η that may be a quantile."""
        c = limit.value
        if limit.allows(self.lowest, self.size):
            return None
        asked = (self.z >= c - self.step) & (self.z <= self.highest_eta(c) + self.step)
        return np.where(asked, self.alpha * (self.z - c), -inf)


class Spread(_Windowed):
    """std ≤ σ."""

    mesh, linear = MESH, False

    def cost(self, z: Floats) -> Floats:
        """z²: the squared distance of the return from a."""
        return np.asarray(z**2)

    @property
    def means(self) -> tuple[float, float]:
        """The range of a considered."""
        return self.unlimited() - 4.0 * self.unlimited_profile.std, self.unlimited()

    def levels(self, typical: int) -> tuple[int, int]:
        """From the lowest relevant mean to the largest typical amount owed."""
        low, high = (floor(m / self.step) for m in self.means)
        low -= typical * self.pays_on_the_way
        return low, high - low + typical + 2

    @property
    def scope(self) -> str:
        """The policies that ``best`` refers to."""
        return f"among policies with a mean of at least {self.means[0]:.4g}"

    @property
    def of_interest(self) -> Bools:
        """Which z are in the range of a, [L]."""
        return (self.z >= self.means[0] - self.step) & (self.z <= self.means[1] + self.step)

    @cached_property
    def best(self) -> float:
        """A lower bound on std over policies in ``scope``, less than half a mesh below the least."""
        return sqrt(max(0.0, float(self.dual.least[self.of_interest].min()) - self.step**2 / 4.0))

    def budget(self, limit: Limit) -> Floats | None:
        """σ² and the rounding of a to the mesh, for each a of interest."""
        if limit.allows(self.unlimited_profile.std, self.size):
            return None
        return np.where(self.of_interest, limit.value**2 + self.step**2 / 4.0, -inf)


@dataclass(frozen=True)
class CeilingPoint:
    """A point of the best frontier: under ``limit``, no policy has a mean above ``value``."""

    limit: float
    value: float
    value_discounted: float


def ceiling(mdp: TabularMDP, *, alpha: float = 0.1, start: Any = None, **limit: float | None) -> Ceiling:
    """The best mean return of any policy under one limit (max_p_unsafe, min_cvar, max_std), from the model's start or another.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> best = ceiling(mdp, max_p_unsafe=0.05, start=mdp.origin)
    >>> best.status, round(best.value, 3), round(best.profile.p_unsafe, 6)
    ('optimal', 0.78, 0.05)
    >>> infeasible = ceiling(mdp, max_p_unsafe=0.01, start=mdp.origin)
    >>> infeasible.status, round(infeasible.best, 4)
    ('infeasible', 0.0278)
    """
    one = Limit.one_of(alpha=alpha, **limit)
    return Ceilings(mdp, one, start).at(one.value)


def program_of(mdp: TabularMDP, limit: Limit, use: Bools | None = None) -> Program:
    """The program of a limit, over all policies or over those that take only some pairs."""
    kind: Any = {"p_unsafe": Harm, "cvar": Tail, "std": Spread}[limit.measure]
    program: Program = kind(mdp, limit.alpha, use)
    return program


class Ceilings:
    """Ceilings under one kind of limit, for any of its values. Shared parts are computed once."""

    def __init__(self, mdp: TabularMDP, limit: Limit, start: Any = None) -> None:
        _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
        self.limit = limit
        self._program = program_of(mdp if start is None else mdp.with_start(start), limit)

    @property
    def best(self) -> float:
        """The best risk of any policy; nan if unknown."""
        return nan if self._program.trouble else self._program.best

    def at(self, value: float, attained: bool = True) -> Ceiling:
        """The ceiling at a value of the limit; ``attained``: with a policy that attains it, if there is one."""
        limit, program = self.limit.at(value), self._program
        if not program.endable.starts:
            return Ceiling(limit, INFEASIBLE, nan, nan, nan, nan, program.trouble)
        if program.trouble:
            return Ceiling(limit, UNKNOWN, nan, program.unlimited(True), nan, nan, program.trouble)
        feasible = limit.allows(self.best, program.size)
        answer = program.solve(limit if feasible else limit.at(self.best), attained)
        if feasible:
            return replace(answer, limit=limit)
        return replace(answer, limit=limit, status=INFEASIBLE, reason=answer.reason or program.scope)

    def frontier(self, values: Iterable[float]) -> tuple[CeilingPoint, ...]:
        """The ceilings over a range of limits; infeasible ones are left out."""
        answers = [self.at(float(value), attained=False) for value in values]
        kept = [answer for answer in answers if answer.status in (OPTIMAL, UNBOUNDED)]
        return tuple(CeilingPoint(answer.limit.value, answer.value, answer.value_discounted) for answer in kept)
