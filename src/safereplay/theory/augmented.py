"""The state augmented by the remaining target: a model whose best policy minimises the expected shortfall.

With G the return and y₀ a target,

    CVaR_α(G)  =  max_{y₀}  y₀ − E[(y₀ − G)⁺] / α,

so the policy with the best CVaR minimises an expected shortfall. This depends on more than the state: the state is
augmented by the amount still owed, y = y₀ − return so far. A step from (s, y) leads to (s', y − r), and its reward is the
decrease of the shortfall,

    y⁺ − (y − r)⁺.

These add up to y₀⁺ − (y₀ − G)⁺ over an episode, so the best return has the least shortfall. If rewards lie on a lattice, y is a
whole number of units away from y₀, and the states reachable from the start form a table: an ordinary model.

**The window.** y is kept between two bounds, which depend on the state. Above the upper bound the excess is paid at once and
dropped; below the lower bound y is raised to it. With C and D the amounts so changed, an episode pays

    C + (y₀ − G − C + D)⁺  ≥  (y₀ − G)⁺,

so for any window the model's shortfall is not too small, and y₀ − shortfall/α is a lower bound on CVaR.
It is exact if the upper bound is the largest possible return from the state, since an excess over it cannot be recovered;
and if the lower bound is the return that some policy can guarantee, since with no more owed the shortfall can be 0.
Where there are none, the window ends SPAN rewards beyond 0 and the target. The lower bound has another effect: with
less owed than can be guaranteed, all actions would be equal; here the guaranteed return is still required.

**No discount.** A model needs γ < 1: it is 1 − 10⁻⁹ here, which changes a sum over 1,000 steps by a millionth.

Ref: Bäuerle & Ott (2011), Markov decision processes with Average-Value-at-Risk criteria; Rockafellar & Uryasev (2000),
Optimization of conditional value-at-risk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf, nan
from typing import Any, NamedTuple

import numpy as np

from .. import _checks
from .._types import Floats, Ints
from ..kernels import sweep
from ..mdp import Layout, TabularMDP, reached
from .constrained import Tail
from .risk import RiskProfile, evaluate, lattice
from .solver import EPSILON, made_ready

UNDISCOUNTED = 1.0 - 1e-9
MAX_STATES = 50_000  # pairs (state, owed)
MAX_SWEEPS = 10_000
MAX_EDGES = 20_000_000  # outcomes of all levels together
SPAN = 2  # the window extends this many largest rewards beyond 0 and the target


@dataclass(frozen=True, eq=False)
class Augmented:
    """The augmented model, twice: with rewards for learning and with the original rewards.

    Their states are the same: first the (s, y) that can be reached, then one for each state in which an episode ends.
    """

    training_model: TabularMDP = field(repr=False)  #: a reward is the decrease of the shortfall
    judging_model: TabularMDP = field(repr=False)  #: the original rewards
    state: Ints = field(repr=False)  #: [N] of the model
    owed: Floats = field(repr=False)  #: [N]; nan if the episode has ended
    target: float


class _Window(NamedTuple):
    """The lowest and the highest level of each state, [S]; level 0 is the target."""

    low: Ints
    high: Ints

    @property
    def levels(self) -> int:
        """The number of levels."""
        return int(self.high.max() - self.low.min()) + 1


def augmented(mdp: TabularMDP, target: float) -> Augmented:
    """The model whose state includes the amount still owed of ``target``.

    >>> import safereplay as sr
    >>> coin = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 0.5, 1, 5.0, True), (0, 0, 0.5, 1, -5.0, True)], start=0)
    >>> owed = augmented(coin, 2.0)
    >>> owed.owed[0], owed.training_model.outcomes(0, 0).r, owed.judging_model.outcomes(0, 0).r        # to owe 7, or nothing, after 2
    (np.float64(2.0), array([-5.,  2.]), array([-5.,  5.]))

    Ref: Bäuerle & Ott (2011).
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    target, units = _checks.real("target", target), lattice(mdp.r)
    if units is None:
        _checks.fail("rewards of mdp", "have a common unit", mdp)
    within, why = MAX_EDGES * units[0], f"rewards here are in steps of {units[0]:g}"
    _checks.require(abs(target) <= within, "target", f"lie within ±{within:g}", target, why)
    window = _window(mdp, target, *units)
    size = window.levels * mdp.r.size
    _checks.require(size <= MAX_EDGES, "outcomes of the augmented model", f"number at most {MAX_EDGES:,}", size)
    return _assembled(mdp, target, units[0], units[1], window)


def _window(mdp: TabularMDP, target: float, unit: float, shift: Ints) -> _Window:
    """The range of y: from the guaranteed return to the largest possible one, or SPAN rewards beyond 0 and the target."""
    span = SPAN * max(1, int(np.abs(shift).max()))
    least, most = -ceil(max(target, 0.0) / unit - 1e-9) - span, ceil(max(-target, 0.0) / unit - 1e-9) + span
    low = np.floor((guaranteed(mdp) - target) / unit + 1e-9)
    high = np.ceil((Tail(mdp, 1.0).luckiest - target) / unit - 1e-9)
    low = np.where(np.isfinite(low), np.maximum(low, least), least)
    high = np.where(high < most, np.maximum(high, 0.0), most)
    low = np.minimum(low, high)
    return _Window(low.astype(np.int64), high.astype(np.int64))


def guaranteed(mdp: TabularMDP) -> Floats:
    """The largest return that some policy guarantees from each state within |S| steps, [S]; −inf if there is none.

    >>> import safereplay as sr
    >>> guaranteed(sr.grids.from_map("S>.G", goal=10.0)).tolist()                    # one move may cost 100
    [-91.0, -90.0, 10.0, 0.0]
    """
    full = np.flatnonzero(np.diff(mdp.row) > 0)
    best = np.where(mdp.is_terminal, 0.0, -inf)
    for _ in range(mdp.n_states + 1):
        worst = np.full(mdp.n_pairs, -inf)
        worst[full] = np.minimum.reduceat(mdp.r + np.where(mdp.terminal, 0.0, best[mdp.s_next]), mdp.row[full])
        after = np.where(mdp.is_terminal, 0.0, worst.reshape(mdp.n_states, mdp.n_actions).max(1))
        if (after == best).all():
            break
        best = after
    return best


def _assembled(mdp: TabularMDP, target: float, unit: float, shift: Ints, window: _Window) -> Augmented:
    """All levels of all states, without those that cannot be reached."""
    S, A, lowest = mdp.n_states, mdp.n_actions, int(window.low.min())
    level, k = (index.ravel() for index in np.mgrid[lowest : lowest + window.levels, : mdp.r.size])
    s_next, on = mdp.s_next[k], ~mdp.terminal[k]
    before = np.where(on, np.maximum(level - shift[k], window.low[s_next]), level - shift[k])
    after = np.where(on, np.minimum(before, window.high[s_next]), before)
    here, there = (level - lowest) * S + mdp.pair[k] // A, (after - lowest) * S + s_next
    first = (np.maximum(0, window.low) - lowest) * S + np.arange(S)  # first states of episodes, by state
    seeds = first[np.union1d(np.flatnonzero(mdp.start > 0), [mdp.origin])]
    used = np.flatnonzero(reached(window.levels * S, seeds, here[on], there[on]))
    ends, N = np.unique(mdp.s_next[mdp.terminal]), used.size
    _checks.require(N <= MAX_STATES, "states (s, y) of the augmented model", f"number at most {MAX_STATES:,}", N)
    number = np.full(window.levels * S, -1, np.int64)
    number[used] = np.arange(N)
    kept = number[here] >= 0
    k, on = k[kept], on[kept]
    onto = np.where(on, number[np.where(on, there[kept], 0)], N + np.searchsorted(ends, mdp.s_next[k]))
    owes, leaves = (np.maximum(target + unit * x[kept], 0.0) for x in (level, after))
    falls = owes - leaves - unit * (before - after)[kept]
    start = np.zeros(N + ends.size)
    start[number[first[mdp.start > 0]]] = mdp.start[mdp.start > 0]
    state = np.concatenate([used % S, ends])
    layout = mdp.layout
    if layout is not None:
        layout = Layout(layout.text, tuple(layout.cells[i] for i in state), int(number[first[mdp.origin]]))

    def model(r: Floats, gamma: float, name: str) -> TabularMDP:
        rows = np.column_stack([number[here[kept]], mdp.pair[k] % A, mdp.p[k], onto, r, ~on, mdp.unsafe[k]])
        size, named = N + ends.size, f"{mdp.name}, {name}"
        return TabularMDP.from_outcomes(size, A, rows, gamma, start, layout=layout, name=named)

    training = model(falls, UNDISCOUNTED, "shortfall")
    owed = np.concatenate([target + unit * (lowest + used // S), np.full(ends.size, nan)])
    return Augmented(training, model(mdp.r[k], mdp.gamma, "return"), state, owed, target)


class BestCVaR(NamedTuple):
    """The best CVaR of any policy, with or without memory."""

    value: float  #: attained by ``policy``
    bound: float  #: no policy exceeds it
    target: float  #: y₀: the α-quantile of the best policy's return
    policy: Ints  #: [N]: on the states of ``model``
    model: Augmented
    profile: RiskProfile  #: of the policy, with the original rewards


class BestTarget(NamedTuple):
    """The target of the best CVaR, and that CVaR; or the reason why it cannot be computed."""

    target: float
    bound: float
    trouble: str = ""


def best_target(mdp: TabularMDP, alpha: float) -> BestTarget:
    """The best target, found over all targets at once: one dynamic program has the least shortfall of each.

    It is that of :mod:`safereplay.theory.constrained`. It keeps the amount owed within another window, and underestimates the
    shortfall beyond: so its CVaR is an upper bound, where that of :func:`augmented` is a lower one.

    >>> import safereplay as sr
    >>> best_target(sr.grids.volatile(), 0.1).trouble
    'some loop gains for ever, which leaves open what the risk before it allows'
    """
    tail = Tail(mdp, alpha)
    if tail.trouble:
        return BestTarget(nan, nan, tail.trouble)
    of_interest = tail.z <= tail.highest_eta(tail.lowest) + tail.step
    worth = np.where(of_interest, tail.z - tail.dual.least / alpha, -np.inf)
    return BestTarget(float(tail.z[int(np.argmax(worth))]), tail.best)


def best_cvar(mdp: TabularMDP, alpha: float = 0.1, start: Any = None) -> BestCVaR:
    """The best CVaR_α of the undiscounted return over all policies that may depend on the return so far.

    >>> import safereplay as sr
    >>> best = best_cvar(sr.grids.cliff(), 0.1)
    >>> round(best.value, 4), round(best.bound, 4), best.target
    (-0.4045, -0.4045, 2.0)

    Ref: Bäuerle & Ott (2011).
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    alpha = _checks.between("alpha", alpha, "(0, 1)")
    mdp = mdp if start is None else mdp.with_start(start)
    found = best_target(mdp, alpha)
    _checks.require(not found.trouble, "mdp", "have a best CVaR that can be computed", mdp, found.trouble)
    model = augmented(mdp, found.target)
    policy = np.asarray(least_shortfall(model.training_model).argmax(1), np.int64)
    profile = evaluate(model.judging_model, policy, quiet=True)
    return BestCVaR(profile.cvar(alpha), found.bound, found.target, policy, model, profile)


def least_shortfall(training: TabularMDP) -> Floats:
    """Q of the best policy of a nearly undiscounted model, by sweeps from 0 until only rounding changes, [N, A].

    n sweeps from 0 give the best of n steps. A state without an end, whose cost grows forever, stops after
    MAX_SWEEPS.

    >>> import safereplay as sr
    >>> float(least_shortfall(augmented(sr.grids.from_map("S..G", goal=5.0), 9.0).training_model)[0].max().round(6))
    3.0
    """
    model, chain, order = made_ready(training, training.p)
    V, Q = np.zeros(training.n_states), np.empty(training.n_pairs)
    width = int(np.diff(training.row).max())
    for _ in range(MAX_SWEEPS):
        change, size, _ = sweep.improve(model, chain, V)
        if change <= 4.0 * (width + 1) * EPSILON * size:
            break
    sweep.values(model, V, order, Q)
    return Q.reshape(training.n_states, training.n_actions)
