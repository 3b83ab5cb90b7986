"""The best policies for two measures of risk of a whole episode: the exponential utility of the return, and its CVaR.

**Exponential utility.** With θ > 0 risk-averse and θ < 0 risk-seeking, a return G has the certainty equivalent

    CE(G)  =  −(1/θ)·log E e^{−θG}  =  E[G] − (θ/2)·var G + O(θ²).

e^{−θG} is a product, so W(s) = E e^{−θG} solves a linear equation for a fixed policy, without a discount, and the best
policy needs no memory of the return so far:

    W(s)  =  opt_a  Σ p·e^{−θr}·W(s'),    W = 1 where the episode has ended,    opt = min for θ > 0, max for θ < 0.

:func:`exponential_utility` solves it by policy iteration, as Howard & Matheson do. They treat processes that never end,
whose *certain equivalent gain* g per step is −(1/θ)·log of the largest eigenvalue of (p·e^{−θr}). Both agree if an
ended episode begins again: with rewards r − g the episode has CE 0. For processes that end, see Denardo & Rothblum and
Patek. The maximum is over policies that end with probability 1. All numbers are logarithms: a policy is swept a few times
to estimate the size of its W, and the linear equation for W over that size is solved. So large θ·r cause no overflow.

*Small θ.* W is then nearly 1, and rounding hides G. With W = 1 − θU the equation becomes

    U(s)  =  max_a  Σ p·( (1 − e^{−θr})/θ + e^{−θr}·U(s') ),        CE  =  −(1/θ)·log(1 − θU),

for θ of either sign. As θ → 0 it becomes that of the mean, without loss of precision. If every |log W| is below SLIGHT,
policy iteration continues with U. If that finds a loop that gains forever, W is used again.

*Infinite.* A cost c that recurs with probability p has E e^{θ·cost} = ∞ once p·e^{θc} ≥ 1. For θ > 0 that makes CE
−∞ if it holds for every policy. Policy iteration first minimises the part of W that comes from giving up, which
counts e^0 in any state; if this cannot be brought to 0, every policy has W = ∞. For θ < 0, CE is ∞ if
some policy's is. A loop that gains forever has CE ∞ as well.

**CVaR.** With G the return and y₀ a target,

    CVaR_α(G)  =  max_{y₀}  y₀ − E[(y₀ − G)⁺] / α,

so the policy with the best CVaR minimises an expected shortfall. The state is augmented by the amount still owed,
y = y₀ − return so far. A step from (s, y) leads to (s', y − r), and its reward is the decrease of the shortfall,
y⁺ − (y − r)⁺. These add up to y₀⁺ − (y₀ − G)⁺ over an episode, so the best return has the least shortfall. If rewards lie
on a lattice, y is a whole number of units away from y₀, and the states reachable from the start form an ordinary model.
Its γ < 1 is 1 − 10⁻⁹, which changes a sum over 1,000 steps by a millionth.

*The window.* y is kept between two bounds, which depend on the state. Above the upper bound the excess is paid at once and
dropped; below the lower bound y is raised to it. With C and D the amounts so changed, an episode pays

    C + (y₀ − G − C + D)⁺  ≥  (y₀ − G)⁺,

so for any window the model's shortfall is not too small, and y₀ − shortfall/α is a lower bound on CVaR.
It is exact if the upper bound is the largest possible return from the state, since an excess over it cannot be recovered;
and if the lower bound is the return that some policy can guarantee, since with no more owed the shortfall can be 0.
Where there are none, the window ends SPAN rewards beyond 0 and the target. The lower bound has another effect: with
less owed than can be guaranteed, all actions would be equal; here the guaranteed return is still required.

Ref: Howard & Matheson (1972), Risk-sensitive Markov decision processes; Denardo & Rothblum (1979), Optimal stopping,
exponential utility, and linear programming; Patek (2001), On terminating Markov decision processes with a risk-averse
objective function; Bäuerle & Ott (2011), Markov decision processes with Average-Value-at-Risk criteria; Rockafellar &
Uryasev (2000), Optimization of conditional value-at-risk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf, nan
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from .. import _checks
from .._checks import Bools, Floats, Ints
from ..kernels import sweep
from ..mdp import Layout, TabularMDP, reached
from .constrained import Tail
from .occupancy import Program
from .risk import RiskProfile, evaluate, lattice
from .solver import EPSILON, MAX_ROUNDS, log_sums, made_ready, slack, solve

GIVE_UP = -1  # in place of an action
TINY = 1e-15  # below any probability that is distinct from rounding
STRICTLY = 1e-12  # least improvement of a logarithm, as a share of the largest
SLIGHT = 1e-3  # |log W| below which U is used


class CertaintyEquivalent(NamedTuple):
    """The highest certainty equivalent of the return, and its policy."""

    value: float  #: from the start
    values: Floats  #: [S]; 0 for terminal states, nan if no policy ends with probability 1
    policy: Ints  #: [S]


def exponential_utility(mdp: TabularMDP, theta: float, start: Any = None) -> CertaintyEquivalent:
    """The highest certainty equivalent −(1/θ)·log E e^{−θG} of the undiscounted return, and its policy.

    If a loop gains forever the value, ∞, is a supremum: policies that repeat the loop more often approach it, and none
    attains it. The policy returned may then never end.

    A coin for 0 or −10 has mean −5, and its certainty equivalent at θ = 0.1 is about 1.2 less.

    Parameters
    ----------
    mdp : TabularMDP
    theta : float; θ ≠ 0: above 0 risk-averse, below 0 risk-seeking
    start : state or distribution [S], optional; default: the model's start

    Returns
    -------
    CertaintyEquivalent : ``value`` from the start, ``values`` [S] and ``policy`` [S]

    Raises
    ------
    BadInput : an argument is invalid, or no policy ends with probability 1

    >>> import safereplay as sr
    >>> coin = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 0.5, 1, 0.0, True), (0, 0, 0.5, 1, -10.0, True)], start=0)
    >>> [round(exponential_utility(coin, theta).value, 2) for theta in (1e-9, 0.1, 1.0, 100.0)]
    [-5.0, -6.2, -9.31, -9.99]

    Ref: Howard & Matheson (1972).
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    _checks.require(_checks.real("theta", theta) != 0.0, "theta", "differ from 0", theta, "at 0 it is the mean")
    mdp = mdp if start is None else mdp.with_start(start)
    endable = Program(mdp, 1.0).endable
    _checks.require(endable.starts, "mdp", "have a policy that surely ends", mdp)
    game = _Multiplicative(mdp, float(theta), endable.use & np.repeat(endable.states, mdp.n_actions))
    log_W, policy = game.averse(endable.states) if theta > 0.0 else game.fond(endable.states, endable.policy)
    begins, CE = mdp.start > 0.0, game.certain
    if game.is_slight(log_W, endable.states):
        U, policy = game.by_means(policy, endable.states)
        if U is not None:
            values = np.where(endable.states | mdp.is_terminal, CE(U), np.nan)
            return CertaintyEquivalent(float(CE(mdp.start[begins] @ U[begins])), values, policy)
        log_W, policy = (game.averse if theta > 0.0 else game.fond)(endable.states, policy)
    values = np.where(mdp.is_terminal, 0.0, np.where(endable.states, -log_W / theta, np.nan))
    total = log_sums(np.zeros(int(begins.sum()), np.int64), 1, np.log(mdp.start[begins]) + log_W[begins])[0]
    return CertaintyEquivalent(float(-total / theta), values, np.maximum(policy, 0))


def entropic(mdp: TabularMDP, y: Floats, theta: float) -> Floats:
    """−(1/θ)·log E e^{−θy} of each pair, for values y of outcomes: [K] → [S, A]; the mean if θ·(range of y) is below rounding."""
    if abs(theta) * float(np.ptp(y)) < EPSILON:
        return mdp.expect(y)
    full = np.flatnonzero(np.diff(mdp.row) > 0)  # pairs with outcomes
    most = np.zeros(mdp.n_pairs)  # the y with the largest weight; relative to it no exponential overflows
    most[full] = (np.minimum if theta > 0.0 else np.maximum).reduceat(y, mdp.row[full])
    with np.errstate(over="ignore"):  # e^−∞ is 0
        excess = mdp.expect(np.expm1(-theta * (y - most[mdp.pair])))
    return np.asarray(most.reshape(excess.shape) - np.log1p(np.maximum(excess, TINY - 1.0)) / theta)


def _over_x(f: Any, x: Floats) -> Floats:
    """f(x)/x for expm1 and log1p, and its limit 1 as x → 0."""
    return np.asarray(np.divide(f(x), x, out=np.ones_like(x), where=np.abs(x) > EPSILON), np.float64)


class _Multiplicative:
    """W(s) = opt_a Σ p·e^{−θr}·W(s') over the allowed pairs, in logarithms."""

    def __init__(self, mdp: TabularMDP, theta: float, allowed: Bools) -> None:
        k = np.flatnonzero(allowed[mdp.pair])
        self.S, self.A, self.allowed = mdp.n_states, mdp.n_actions, allowed.reshape(mdp.n_states, mdp.n_actions)
        self.pair, self.s_next, self.ends = mdp.pair[k], mdp.s_next[k], mdp.terminal[k]
        self.log_p = np.log(mdp.p[k]) - theta * mdp.r[k]
        self.theta, self.r = theta, mdp.r[k]

    def is_slight(self, log_W: Floats, inside: Bools) -> bool:
        """Whether W is so near to 1 that U is more accurate."""
        return bool((np.abs(log_W[inside]) <= SLIGHT).all())

    def certain(self, U: Any) -> Floats:
        """−(1/θ)·log(1 − θU)."""
        return np.asarray(U * _over_x(np.log1p, -self.theta * np.asarray(U)))

    def by_means(self, policy: Ints, inside: Bools) -> tuple[Floats | None, Ints]:
        """The largest U, [S], starting from a policy, and its policy; None in place of U if W is not near 1."""
        here, states = self.pair // self.A, np.arange(self.S)
        onward = np.where(self.ends, 0.0, np.exp(self.log_p))
        gain = np.exp(self.log_p + self.theta * self.r) * self.r * _over_x(np.expm1, -self.theta * self.r)
        for _ in range(MAX_ROUNDS):
            if not self.is_slight(self._solved(policy, inside, 0.0)[0], inside):
                return None, policy
            k = np.flatnonzero(inside[here] & (policy[here] == self.pair % self.A))
            P = sparse.csr_array((onward[k], (here[k], self.s_next[k])), shape=(self.S, self.S))
            U = solve(P, np.bincount(here[k], weights=gain[k], minlength=self.S).astype(np.float64))
            Q = np.bincount(self.pair, weights=gain + onward * U[self.s_next], minlength=self.S * self.A)
            Q = np.where(self.allowed, Q.reshape(self.S, self.A), -inf)
            better = inside & (Q.max(1) > Q[states, policy] + slack(STRICTLY, U, self.r))
            if not better.any():
                break
            policy = np.where(better, Q.argmax(1), policy)
        return U, policy

    def averse(self, inside: Bools, begin: Ints | None = None) -> tuple[Floats, Ints]:
        """log of the least W, [S], and its policy, from ``begin`` on: −inf if a loop gains forever, inf if every W is infinite."""
        giving_up, policy = self._improved(np.where(inside, GIVE_UP, 0), inside, -inf, self.allowed)
        finite = inside & (giving_up == -inf)
        leads_out = np.bincount(self.pair, weights=~self.ends & ~finite[self.s_next], minlength=self.S * self.A) > 0
        allowed = self.allowed & ~leads_out.reshape(self.S, self.A) & finite[:, None]
        log_W, policy = self._improved(policy if begin is None else begin, finite, 0.0, allowed)
        return np.where(inside & ~finite, inf, log_W), policy

    def _improved(self, policy: Ints, inside: Bools, end: float, allowed: Bools) -> tuple[Floats, Ints]:
        """The least W starting from a policy, where an ended episode counts e^end and giving up 1."""
        states = np.arange(self.S)
        for _ in range(MAX_ROUNDS):
            log_W = self._solved(policy, inside, end)[0]
            Q = np.where(allowed, self._pairs(log_W, end), inf)
            now = np.where(policy == GIVE_UP, 0.0, Q[states, policy])
            better = inside & (Q.min(1) < now - self._slack(log_W))
            if not better.any():
                break
            policy = np.where(better, Q.argmin(1), policy)
        return log_W, policy

    def fond(self, inside: Bools, policy: Ints) -> tuple[Floats, Ints]:
        """log of the largest W, [S], and its policy: inf if some policy's W is infinite."""
        states, finite = np.arange(self.S), inside
        for _ in range(MAX_ROUNDS):
            log_W, endless = self._solved(policy, finite, 0.0)
            endless = endless | (finite & (log_W == -inf))  # never ends, but improves on the policy before
            if endless.any():
                here = self.pair // self.A
                on = ~self.ends & inside[here]
                finite = finite & ~reached(self.S, np.flatnonzero(endless), self.s_next[on], here[on])
                continue
            Q = np.where(self.allowed & finite[:, None], self._pairs(log_W, 0.0), -inf)
            better = finite & (Q.max(1) > Q[states, policy] + self._slack(log_W))
            if not better.any():
                break
            policy = np.where(better, Q.argmax(1), policy)
        return np.where(inside & ~finite, inf, log_W), policy

    def _pairs(self, log_W: Floats, end: float) -> Floats:
        """log Σ p·e^{−θr}·W(s') of each pair, [S, A]."""
        ahead = self.log_p + np.where(self.ends, end, log_W[self.s_next])
        return log_sums(self.pair, self.S * self.A, ahead).reshape(self.S, self.A)

    def _slack(self, log_W: Floats) -> float:
        return STRICTLY * max(1.0, float(np.abs(log_W[np.isfinite(log_W)]).max(initial=0.0)))

    def _solved(self, policy: Ints, inside: Bools, end: float) -> tuple[Floats, Bools]:
        """log W of a policy, and the states whose own loops make W infinite, [S] each; −inf if nothing ends."""
        here = self.pair // self.A
        chosen = inside[here] & (policy[here] == self.pair % self.A)
        on = chosen & ~self.ends
        s, s_next, log_p = here[on], self.s_next[on], self.log_p[on]
        last = log_sums(here[chosen & self.ends], self.S, self.log_p[chosen & self.ends] + end)
        last = np.where(inside & (policy == GIVE_UP), 0.0, last)
        size = last
        for _ in range(self.S):  # before loops matter, a sweep changes no logarithm by more than the last one did
            before = size
            size = np.logaddexp(last, log_sums(s, self.S, log_p + before[s_next]))
            known = np.isfinite(size)
            grown = bool((known != np.isfinite(before)).any())
            if not grown and float(np.abs(size[known] - before[known]).max(initial=0.0)) < 1.0:
                break
        both = np.isfinite(size[s]) & np.isfinite(size[s_next])
        s, s_next, known = s[both], s_next[both], np.isfinite(size)
        P = sparse.csr_array((np.exp(log_p[both] + size[s_next] - size[s]), (s, s_next)), shape=(self.S, self.S))
        if (endless := _endless(P)).any():
            return np.where(endless, inf, size), endless
        x = solve(P, np.where(known, np.exp(last - np.where(known, size, 0.0)), 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(known, size + np.log(x), -inf), endless


def _endless(P: Any) -> Bools:
    """The states of classes on which the powers of P ≥ 0 do not vanish, [S].

    On a class where they vanish, x = 1 + P·x has a solution of at least 1: then P·x < x, and P shrinks x.
    """
    x, found = solve(P, np.ones(P.shape[0])), np.zeros(P.shape[0], bool)
    if np.isfinite(x).all() and (x >= 1.0 - 1e-9).all():
        return found
    count, label = connected_components(P, connection="strong")
    for one in range(count):
        k = np.flatnonzero(label == one)
        found[k] = float(np.abs(np.linalg.eigvals(P[k][:, k].toarray())).max()) >= 1.0 - 1e-12
    return found


UNDISCOUNTED = 1.0 - 1e-9
MAX_STATES = 50_000  # pairs (state, owed)
MAX_SWEEPS = 10_000
MAX_EDGES = 20_000_000  # outcomes of all levels together
SPAN = 2  # the window extends this many largest rewards beyond 0 and the target


@dataclass(frozen=True, eq=False)
class Augmented:
    """The augmented model, twice, with the same states: with rewards for learning and with the original rewards."""

    training_model: TabularMDP = field(repr=False)  #: a reward is the decrease of the shortfall
    judging_model: TabularMDP = field(repr=False)  #: the original rewards
    state: Ints = field(
        repr=False
    )  #: [N] of the model: first the (s, y) that can be reached, then those where episodes end
    owed: Floats = field(repr=False)  #: [N]; nan if the episode has ended
    target: float


def augmented(mdp: TabularMDP, target: float) -> Augmented:
    """The model whose state includes the amount still owed of ``target``. Ref: Bäuerle & Ott (2011)."""
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    target, units = _checks.real("target", target), lattice(mdp.r)
    if units is None:
        _checks.fail("rewards of mdp", "have a common unit", mdp)
    within, why = MAX_EDGES * units[0], f"rewards here are in steps of {units[0]:g}"
    _checks.require(abs(target) <= within, "target", f"lie within ±{within:g}", target, why)
    low, high = _window(mdp, target, *units)
    (unit, shift), S, A, lowest = units, mdp.n_states, mdp.n_actions, int(low.min())
    levels = int(high.max()) - lowest + 1
    size = levels * mdp.r.size
    _checks.require(size <= MAX_EDGES, "outcomes of the augmented model", f"number at most {MAX_EDGES:,}", size)
    # All levels of all states, without those that cannot be reached.
    level, k = (index.ravel() for index in np.mgrid[lowest : lowest + levels, : mdp.r.size])
    s_next, on = mdp.s_next[k], ~mdp.terminal[k]
    before = np.where(on, np.maximum(level - shift[k], low[s_next]), level - shift[k])
    after = np.where(on, np.minimum(before, high[s_next]), before)
    here, there = (level - lowest) * S + mdp.pair[k] // A, (after - lowest) * S + s_next
    first = (np.maximum(0, low) - lowest) * S + np.arange(S)  # first states of episodes, by state
    seeds = first[np.union1d(np.flatnonzero(mdp.start > 0), [mdp.origin])]
    used = np.flatnonzero(reached(levels * S, seeds, here[on], there[on]))
    ends, N = np.unique(mdp.s_next[mdp.terminal]), used.size
    _checks.require(N <= MAX_STATES, "states (s, y) of the augmented model", f"number at most {MAX_STATES:,}", N)
    number = np.full(levels * S, -1, np.int64)
    number[used] = np.arange(N)
    kept = number[here] >= 0
    k, on = k[kept], on[kept]
    onto = np.where(on, number[np.where(on, there[kept], 0)], N + np.searchsorted(ends, mdp.s_next[k]))
    owes, leaves = (np.maximum(target + unit * x[kept], 0.0) for x in (level, after))
    falls = owes - leaves - unit * (before - after)[kept]
    start = np.zeros(N + ends.size)
    start[number[first[mdp.start > 0]]] = mdp.start[mdp.start > 0]
    state, layout = np.concatenate([used % S, ends]), mdp.layout
    if layout is not None:
        layout = Layout(layout.text, tuple(layout.cells[i] for i in state), int(number[first[mdp.origin]]))

    def model(r: Floats, gamma: float, name: str) -> TabularMDP:
        rows = np.column_stack([number[here[kept]], mdp.pair[k] % A, mdp.p[k], onto, r, ~on, mdp.unsafe[k]])
        return TabularMDP.from_outcomes(start.size, A, rows, gamma, start, layout=layout, name=f"{mdp.name}, {name}")

    training = model(falls, UNDISCOUNTED, "shortfall")
    owed = np.concatenate([target + unit * (lowest + used // S), np.full(ends.size, nan)])
    return Augmented(training, model(mdp.r[k], mdp.gamma, "return"), state, owed, target)


def _window(mdp: TabularMDP, target: float, unit: float, shift: Ints) -> tuple[Ints, Ints]:
    """The lowest and the highest level of each state, [S]: the guaranteed and the largest return, within SPAN; 0 is the target."""
    span = SPAN * max(1, int(np.abs(shift).max()))
    least, most = -ceil(max(target, 0.0) / unit - 1e-9) - span, ceil(max(-target, 0.0) / unit - 1e-9) + span
    low = np.floor((guaranteed(mdp) - target) / unit + 1e-9)
    high = np.ceil((Tail(mdp, 1.0).luckiest - target) / unit - 1e-9)
    low = np.where(np.isfinite(low), np.maximum(low, least), least)
    high = np.where(high < most, np.maximum(high, 0.0), most)
    return np.minimum(low, high).astype(np.int64), high.astype(np.int64)


def guaranteed(mdp: TabularMDP) -> Floats:
    """The largest return that some policy guarantees from each state within |S| steps, [S]; −inf if there is none."""
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


class BestCVaR(NamedTuple):
    """The best CVaR of any policy, with or without memory."""

    value: float  #: attained by ``policy``
    bound: float  #: no policy exceeds it
    target: float  #: y₀: the α-quantile of the best policy's return
    policy: Ints  #: [N]: on the states of ``model``
    model: Augmented
    profile: RiskProfile  #: of the policy, with the original rewards


def best_cvar(mdp: TabularMDP, alpha: float = 0.1, start: Any = None) -> BestCVaR:
    """The best CVaR_α of the undiscounted return over all policies that may depend on the return so far.

    The target is found over all targets at once, by the program of :mod:`safereplay.theory.constrained`. It underestimates
    the shortfall beyond its window, so its CVaR is an upper bound, where that of :func:`augmented` is a lower one.

    Parameters
    ----------
    mdp : TabularMDP
    alpha : float; share of the worst episodes, in (0, 1)
    start : state or distribution [S], optional; default: the model's start

    Returns
    -------
    BestCVaR

    Raises
    ------
    BadInput : an argument is invalid, rewards have no common unit, some loop gains forever, or the model is too large

    >>> import safereplay as sr
    >>> best = best_cvar(sr.grids.cliff(), 0.1)
    >>> round(best.value, 4), round(best.bound, 4), best.target
    (-0.4045, -0.4045, 2.0)

    Ref: Bäuerle & Ott (2011).
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    alpha = _checks.between("alpha", alpha, "(0, 1)")
    mdp = mdp if start is None else mdp.with_start(start)
    found = Tail(mdp, alpha)
    _checks.require(not found.trouble, "mdp", "have a best CVaR that can be computed", mdp, found.trouble)
    model = augmented(mdp, found.target)
    policy = np.asarray(least_shortfall(model.training_model).argmax(1), np.int64)
    profile = evaluate(model.judging_model, policy, quiet=True)
    return BestCVaR(profile.cvar(alpha), found.best, found.target, policy, model, profile)


def least_shortfall(training: TabularMDP) -> Floats:
    """Q of the best policy of a nearly undiscounted model, by sweeps from 0 until only rounding changes, [N, A].

    n sweeps from 0 give the best of n steps. A state without an end, whose cost grows forever, stops after MAX_SWEEPS.
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
