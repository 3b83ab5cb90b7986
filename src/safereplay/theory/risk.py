"""The risk of a policy: its return and its probability of harm, exact where possible.

Under a fixed policy the model is a chain (see :mod:`safereplay.theory.chain`). With G the return,

    m(s)   =  E[G]         =  Σ p·(r + γ·m(s')),
    σ²(s)  =  E[(G − m)²]  =  Σ p·((r + γ·m(s') − m(s))² + γ²·σ²(s')),

and the probability of an unsafe outcome, the probability of never ending and the expected length solve linear equations
of the same kind. The worst case is a shortest path. The whole distribution of the return is computed in one of three ways:

    carried      probability propagated over (state, return so far), if rewards have a lattice (−12, 0.1, 10; not √2);
    enumerated   the same for any rewards, discounted or not, over the pairs (state, return) that occur, if few;
    sampled      episodes are sampled; the distribution has their number and an error bound.

A discounted return without spread is its mean. A sampled episode that is truncated in state s after T steps counts
its return so far plus the expected rest, γ^T·m(s). This does not change the mean, but reduces the spread:
a variance of E[γ^2T·σ²(s)] is missing. With D the difference, CVaR is then too high, by at most

    sup { E[D | A] : P(A) = α }  ≤  √(E[D²] / α).

The first two stop when all but 1e-16 of the probability has ended, and the distribution has the remainder. An
episode that never ends has a return as well, the fate of its endless set: −∞, +∞, its sum so far, or nan.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from math import gcd, inf, isfinite, isnan, lcm, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from .. import _checks
from .._checks import Floats, Ints
from .._progress import shown, tell
from ..kernels import episodes as kernels
from ..mdp import TabularMDP
from .chain import ROUNDING, Chain, chain_of
from .solver import DENSE

RESIDUE = 1e-16  # probability that may remain when the distribution is cut off
MAX_WORK = 6e9  # (step, return, outcome) triples before the lattice is abandoned: seconds
STEP = 20_000  # fixed cost of a step of sparse products, in the same unit
MAX_CELLS = 2e7  # (state, return) pairs to hold at a time on a lattice
MAX_UNITS = 1e9  # a reward in units of the lattice
MAX_DENOMINATOR = 1_000_000  # of a reward as a fraction of the smallest
COMMON = 1e-14  # tolerance for such a fraction: several roundings
MAX_PAIRS = 50_000  # (state, return) pairs of one step before enumeration is abandoned
MAX_PAIR_WORK = 2e6  # and of all steps
MAX_SAMPLES = 1_000_000
MAX_SAMPLED_STEPS = 5e7  # of all episodes together, if that allows at least a thousand
MAX_LENGTH = 1e6  # steps after which a sampled episode is truncated, if it needs far more than the mean
DOUBT = 1e-3  # probability that a sampled distribution lies outside its stated error
NEGLIGIBLE = 1e-13  # of the largest reward: a smaller discounted tail is not enumerated
FAINT = 1e-9  # and not sampled
UNSEEN = 0.2  # share of the variance missing from samples above which they give no tail


class Distribution(NamedTuple):
    """A distribution of the return, by increasing return; ``exact`` tells whether it was computed or sampled.

    If sampled, P(return ≤ x) is off by at most ``error`` for all x at once, in 99.9 % of cases (the
    Dvoretzky–Kiefer–Wolfowitz band, and ``cut``). ``cut`` is the probability of episodes that were not followed to
    their end. If computed, they are left out. If sampled, they count with their return so far plus the expected rest,
    which differs from their true return by ``rest`` in the root mean square over all episodes.
    """

    returns: Floats
    probabilities: Floats
    exact: bool
    error: float = 0.0
    samples: int = 0
    cut: float = 0.0
    rest: float = 0.0

    @property
    def unseen(self) -> float:
        """The share of the variance of finite returns that is missing because of truncation: rest² / (rest² + σ²)."""
        if self.rest in (0.0, inf):
            return float(self.rest > 0.0)
        k = np.isfinite(self.returns)
        x, p = self.returns[k], self.probabilities[k] / self.probabilities[k].sum()
        return float(self.rest**2 / (self.rest**2 + (x - x @ p) ** 2 @ p))

    @property
    def known(self) -> bool:
        """Whether it gives quantiles: every episode has a return, and little is missing from the samples."""
        return not isnan(self.returns[-1]) and self.unseen <= UNSEEN


@dataclass(frozen=True, eq=False)
class PerState:
    """A risk profile for each possible start state, [S] each; 0 for terminal states."""

    mean: Floats
    std: Floats
    p_unsafe: Floats
    p_never: Floats
    length: Floats
    worst: Floats

    def __repr__(self) -> str:
        return f"PerState(mean, std, p_unsafe, p_never, length, worst of {self.mean.size} states)"


@dataclass(frozen=True)
class RiskProfile:
    """The risk of a policy from its start.

    Its moments and probabilities are solutions of linear equations. The distribution of the return, and with it
    quantiles and CVaR, is computed at first use; so are the worst case and the profile by state.

    Parameters
    ----------
    mean, std : float; of the return
    p_unsafe, p_never : float; probability of an unsafe outcome, and that the episode never ends
    length : float; expected steps
    source : the data that it was computed from

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> edge = sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=mdp.origin)
    >>> round(edge.p_unsafe, 3), edge.quantile(0.5), edge.distribution.exact
    (0.119, 4.0, True)
    >>> edge.worst, edge.per_state.worst.min()        # any number of slips in a row is possible
    (-inf, np.float64(-inf))
    """

    mean: float
    std: float
    p_unsafe: float
    p_never: float
    length: float
    source: _Source = field(repr=False, compare=False)

    @cached_property
    def worst(self) -> float:
        """The infimum of the possible returns; −inf if a loop of negative total can be taken."""
        return min(
            float(self.per_state.worst[self.source.start > 0].min()), self.mean
        )  # up to rounding; nan is ignored

    @cached_property
    def per_state(self) -> PerState:
        """The same numbers by state, for any start."""
        return PerState(*self.source.solved, self.source.chain.worst(self.source.gamma))

    @cached_property
    def distribution(self) -> Distribution:
        """The distribution of the return: carried, certain, enumerated or sampled, in this order."""
        source, gamma = self.source, self.source.gamma
        chain, start = (source.chain if gamma < 1.0 else source.chain.settled()).restricted(source.start)
        kept = np.isfinite(chain.r)
        atoms: list[tuple[float, float]] = []  # (return, probability) of episodes that never end
        for fate in (-inf, inf, nan) if not kept.all() else ():
            goal = np.isnan(chain.r) if isnan(fate) else chain.r == fate
            p = float(_snapped(start @ chain.solve(goal, ~chain.terminal, chain.can_reach(goal))))
            if p > 0.0:
                atoms.append((fate, p))
        if sum(p for _, p in atoms) >= 1.0 - RESIDUE:
            return Distribution(*_with_atoms(np.empty(0), np.empty(0), atoms), True)
        columns = ("s", "p", "s_next", "r", "terminal", "unsafe")
        finite = chain if kept.all() else replace(chain, **{c: getattr(chain, c)[kept] for c in columns})
        length = self.length
        if length == inf and chain.ends[chain.active].all():
            length = float(start @ chain.solve(np.ones_like(chain.p), ~chain.terminal, chain.active))
        units, found = lattice(finite.r) if gamma == 1.0 else None, None
        if units is not None and length * finite.s.size <= MAX_WORK:
            found = _by_length(finite, start, units, length) or _carried(finite, start, units, length)
        if found is None and gamma < 1.0:
            found = _sure(chain, start, gamma)
        if found is None:
            found = _enumerated(finite, start, gamma)
        if found is None:
            return _sampled(source, chain, start, length, atoms)
        return Distribution(*_with_atoms(*found[:2], atoms), True, cut=found[2])

    def quantile(self, q: float) -> float:
        """The smallest return that a share q of episodes does not exceed; nan if some have none, or samples miss too much."""
        q = _checks.between("q", q, "(0, 1]")
        if not self.distribution.known:
            return nan
        returns, probabilities = self.distribution[:2]
        k = int(np.searchsorted(np.cumsum(probabilities), q - 1e-12))
        return self._no_worse(float(returns[min(k, returns.size - 1)]))

    def cvar(self, alpha: float = 0.1) -> float:
        """The mean return of the worst share α of episodes, between the worst and the mean; nan where quantiles are."""
        alpha = _checks.between("alpha", alpha, "(0, 1]")
        if not self.distribution.known:
            return nan
        returns, probabilities = self.distribution[:2]
        mass = np.clip(alpha - np.concatenate(([0.0], np.cumsum(probabilities)[:-1])), 0.0, probabilities)
        k = mass > 0.0
        tail = returns[k]
        value = float(np.clip((mass[k] * tail).sum() / mass.sum(), tail[0], tail[-1]))
        return min(self._no_worse(value), self.mean)

    def _no_worse(self, x: float) -> float:
        """A return or a mean, raised to the worst return if rounding left it below."""
        return max(x, self.worst) if isfinite(x) else x

    def cvar_error(self, alpha: float = 0.1) -> float:
        """The standard error of :meth:`cvar`, σ((q − G)⁺) / (α·√n) with q the α-quantile, and a bound on its bias.

        The bias is that of truncated samples, rest / √α. The error is 0 if CVaR is exact, inf if too much is missing.
        """
        value, found = self.cvar(alpha), self.distribution
        if found.unseen > UNSEEN:
            return inf
        if found.exact or not isfinite(value):
            return nan if isnan(value) else 0.0
        short = np.maximum(self.quantile(alpha) - found.returns, 0.0)
        mean = float(short @ found.probabilities)
        spread = sqrt(float((short - mean) ** 2 @ found.probabilities) / found.samples) / alpha
        return spread + found.rest / sqrt(alpha)

    def to_dict(self) -> dict[str, Any]:
        """The headline numbers, for JSON; numbers that are not finite become None."""
        numbers = {n: getattr(self, n) for n in ("mean", "std", "p_unsafe", "p_never", "length", "worst")}
        numbers |= {"cvar10": self.cvar(0.1), "cvar_error": self.cvar_error(0.1)}
        numbers |= {"error": self.distribution.error, "cut": self.distribution.cut}
        plain = {name: x if isfinite(x) else None for name, x in numbers.items()}
        return {**plain, "exact": self.distribution.exact}


class _Source(NamedTuple):
    """The data that a profile is computed from."""

    chain: Chain
    start: Floats
    gamma: float
    solved: tuple[Floats, Floats, Floats, Floats, Floats]  #: the first five fields of PerState
    seed: int
    threads: int | None
    quiet: bool


def evaluate(
    mdp: TabularMDP,
    policy: Any,
    start: Any = None,
    *,
    discounted: bool = False,
    seed: int = 0,
    threads: int | None = None,
    quiet: bool = False,
) -> RiskProfile:
    """The risk profile of a policy, from the model's start, a state, or a distribution over states.

    Parameters
    ----------
    mdp : TabularMDP
    policy : array [S] or [S, A]; one action per state, or probabilities of actions
    start : state or distribution [S], optional; default: the model's start
    discounted : bool; whether the return is discounted
    seed, threads : int, optional; used only if the distribution must be sampled; the bits do not depend on ``threads``
    quiet : bool; without a progress bar

    Returns
    -------
    RiskProfile

    Raises
    ------
    BadInput : an argument is invalid, or rounding hides whether episodes end

    >>> import safereplay as sr
    >>> mdp = sr.grids.volatile()
    >>> risk = sr.evaluate(mdp, [1] * 20, start=mdp.origin)         # right: three gambles, then the goal
    >>> round(risk.mean), round(risk.p_unsafe, 3), round(risk.cvar(0.1)), risk.worst
    (210, 0.784, -78, -150.0)
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    start_p = (mdp if start is None else mdp.with_start(start)).start
    chain, gamma = chain_of(mdp, policy), mdp.gamma if _checks.flag("discounted", discounted) else 1.0
    seed = _checks.whole("seed", seed, 0, 64)
    threads = None if threads is None else _checks.whole("threads", threads, 1)
    with shown("evaluating", quiet):
        solved = _solved(chain, gamma)
    chain.forget()
    source = _Source(chain, start_p, gamma, solved, seed, threads, quiet)
    w, (m, s, unsafe, never, steps) = start_p[start_p > 0], (x[start_p > 0] for x in solved)
    with np.errstate(invalid="ignore"):  # inf − inf has no mean
        whole = float((w * m).sum())
    spread = sqrt(float(w @ (s**2 + (m - whole) ** 2))) if isfinite(whole) else nan
    return RiskProfile(whole, spread, float(_snapped(w @ unsafe)), float(_snapped(w @ never)), float(w @ steps), source)


def _solved(chain: Chain, gamma: float) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """The first five fields of :class:`PerState`."""
    mean, variance = _moments(chain, gamma)
    tell(0.6, "evaluating: ends")
    doomed = chain.active & ~chain.ends
    entering = ~chain.terminal & doomed[chain.s_next]
    may_not_end = chain.can_reach(entering)
    p_never = doomed + chain.solve(entering, ~chain.terminal, chain.ends & may_not_end)
    tell(0.7, "evaluating: length")
    steps = chain.solve(np.ones_like(chain.p), ~chain.terminal, chain.active & ~may_not_end)
    tell(0.8, "evaluating: harm")
    harmed = chain.can_reach(chain.unsafe)
    inside = chain.active if chain.ends[chain.active].all() else harmed  # the equation of the steps again, if harm ends
    p_unsafe = np.where(harmed, chain.solve(chain.unsafe, ~chain.terminal & ~chain.unsafe, inside), 0.0)
    std, length = np.sqrt(np.maximum(variance, 0.0)), np.where(may_not_end, inf, steps)
    return mean, std, _snapped(p_unsafe), _snapped(p_never), length


def _moments(chain: Chain, gamma: float) -> tuple[Floats, Floats]:
    """Mean and variance of the return by state."""
    inside, fallen, risen, unclear = chain.active, *np.zeros((3, chain.n_states), bool)
    if gamma == 1.0 and chain.endless.any():
        fate = chain.fate[chain.s]
        fallen, risen, unclear = (chain.can_reach(k) for k in (fate == -inf, fate == inf, np.isnan(fate)))
        # Endless sets would make the equations singular; with all rewards 0 they add nothing.
        inside = chain.active & ~chain.endless & ~(fallen | risen | unclear)
    onward = np.where(chain.terminal, 0.0, gamma)
    tell(0.1, "evaluating: mean")
    m = chain.solve(chain.r, onward, inside)
    tell(0.4, "evaluating: spread")
    variance = chain.solve((chain.r + onward * m[chain.s_next] - m[chain.s]) ** 2, onward**2, inside)
    m = np.select([unclear | (fallen & risen), fallen, risen], [nan, -inf, inf], m)
    return m, np.where(np.isfinite(m), variance, nan)


def _snapped(p: Any) -> Floats:
    """Probabilities without the rounding of a solve: 1 if within 1e-12 of it."""
    return np.where(p > 1.0 - 1e-12, 1.0, np.maximum(p, 0.0))


_Found = tuple[Floats, Floats, float]  # finite returns, their probabilities, and the part cut off


def _with_atoms(returns: Floats, probabilities: Floats, atoms: list[tuple[float, float]]) -> tuple[Floats, Floats]:
    """The distribution of finite returns, scaled to make room for the infinite ones, in order; nan comes last."""
    room = 1.0 - sum(p for _, p in atoms)
    total = float(probabilities.sum())
    scaled = probabilities * (room / total) if total > 0.0 else probabilities
    x = np.concatenate((returns, [x for x, _ in atoms]))
    order = np.argsort(x, kind="stable")
    return x[order], np.concatenate((scaled, [p for _, p in atoms]))[order]


def lattice(r: Floats) -> tuple[float, Ints] | None:
    """(unit, r/unit as whole numbers), or None if rewards have no common unit of reasonable size."""
    rewards = np.unique(r)
    one = float(
        np.abs(rewards[rewards != 0.0]).min(initial=inf)
    )  # multiples of it do not depend on the scale of rewards
    if one == inf:
        return 1.0, np.zeros(r.size, np.int64)
    fractions = [Fraction(float(x) / one).limit_denominator(MAX_DENOMINATOR) for x in rewards]
    if not np.allclose([float(f) for f in fractions], rewards / one, rtol=COMMON, atol=0.0):
        return None
    denominator = lcm(*(f.denominator for f in fractions))
    whole = [int(f * denominator) for f in fractions]
    unit = gcd(*whole)
    if max(abs(x) for x in whole) > MAX_UNITS * unit:
        return None
    steps = np.array([x // unit for x in whole], np.int64)
    return one * unit / denominator, steps[np.searchsorted(rewards, r)]


def _by_length(chain: Chain, start: Floats, units: tuple[float, Ints], length: float) -> _Found | None:
    """The same as :func:`_carried` if all steps but the last have one reward: by their number and the last reward.

    None if they do not, if the model is small, or if that is too much work.
    """
    (unit, shift), on = units, ~chain.terminal
    step, each = np.unique(shift[on]), chain.s.size + STEP
    if step.size != 1 or chain.n_states <= DENSE or 40.0 * length * each > MAX_WORK:
        return None
    last, kind = np.unique(shift[~on], return_inverse=True)
    moves = sparse.csr_array((chain.p[on], (chain.s_next[on], chain.s[on])), shape=(chain.n_states, chain.n_states))
    ends = sparse.csr_array((chain.p[~on], (kind, chain.s[~on])), shape=(last.size, chain.n_states))
    ended: list[Floats] = []
    left = start
    while left.sum() > RESIDUE:
        if len(ended) * each > MAX_WORK:
            return None
        ended.append(np.asarray(ends @ left))
        left = np.asarray(moves @ left)
    returns, place = np.unique(step * np.arange(len(ended))[:, None] + last, return_inverse=True)
    p = np.asarray(np.bincount(place.ravel(), weights=np.ravel(ended)), np.float64)
    return np.asarray(unit * returns[p > 0.0], np.float64), p[p > 0.0], float(left.sum())


def _carried(chain: Chain, start: Floats, units: tuple[float, Ints], length: float) -> _Found | None:
    """Propagate probability over (state, return so far) until all but RESIDUE has ended; None if that is too much work."""
    unit, shift = units
    down, up = min(0, int(shift.min())), max(0, int(shift.max()))
    target = np.where(chain.terminal, chain.n_states, chain.s_next)
    room = 8 * (1 + up - down)
    if 2 * chain.n_states * room > MAX_CELLS:
        return None
    zero = room  # index of return 0: ended[zero + x] is the probability of having ended with x units
    alive, ended = np.zeros((2, chain.n_states, room)), np.zeros(2 * room)
    alive[0, :, 0] = start
    window, sums = np.array([0, 0, 1, zero, 0]), np.array([start.sum(), 0.0, 0.0])
    budget, spare = MAX_WORK / 64, RESIDUE / length  # cut off at the ends, over all steps: at most RESIDUE
    moves = (chain.s, chain.p, target, shift, down, up)
    while said := kernels.carry(*moves, alive, ended, window, sums, RESIDUE, spare, budget):
        if said == kernels.TOO_MUCH:
            # The pace so far gives the total work: by the remaining steps, or by how fast episodes end.
            steps, left = max(1, window[kernels.STEPS]), float(sums[kernels.LEFT])
            ahead = float(sums[kernels.WORK]) * (length / steps if left > 0.5 else log(RESIDUE) / log(left))
            if budget >= MAX_WORK or ahead > MAX_WORK:
                return None
            budget *= 8
            continue
        if 3 * max(alive.size, ended.size) > MAX_CELLS:
            return None
        if window[kernels.WIDTH] + up - down > alive.shape[2]:
            alive = np.pad(alive, ((0, 0), (0, 0), (0, alive.shape[2])))
        else:
            zero, window[kernels.LOW] = zero + ended.size, window[kernels.LOW] + ended.size
            ended = np.pad(ended, ended.size)
    k = np.flatnonzero(ended)
    return np.asarray(unit * (k - zero), np.float64), ended[k], float(sums[kernels.CUT] + sums[kernels.LEFT])


def _sure(chain: Chain, start: Floats, gamma: float) -> _Found | None:
    """The discounted returns if each state has only one, its mean; None if outcomes differ by more than rounding."""
    m = _moments(chain, gamma)[0]
    after = np.where(chain.terminal, 0.0, gamma * m[chain.s_next])
    size = np.abs(chain.r) + np.abs(after) + np.abs(m[chain.s])
    if (np.abs(chain.r + after - m[chain.s]) > 4.0 * ROUNDING * size).any():
        return None
    s = np.flatnonzero(start)
    return *_merged(np.zeros(s.size, np.int64), m[s], start[s])[1:], 0.0


def _enumerated(chain: Chain, start: Floats, gamma: float) -> _Found | None:
    """Propagate probability over the pairs (state, return so far) that occur; None if they are too many."""
    s = np.flatnonzero(start)
    x, p, discount = np.zeros(s.size), start[s], 1.0
    sizes, done, cut, work = np.diff(chain.row), [(np.empty(0), np.empty(0))], 0.0, 0
    while s.size and p.sum() > RESIDUE and (gamma == 1.0 or discount > NEGLIGIBLE * (1.0 - gamma)):
        count = sizes[s]
        total = int(count.sum())
        work += total + 20  # a step has a fixed cost
        if total > MAX_PAIRS or work > MAX_PAIR_WORK:
            return None
        before = np.repeat(np.arange(s.size), count)
        k = chain.row[s][before] + np.arange(total) - np.repeat(np.cumsum(count) - count, count)
        x, p = x[before] + discount * chain.r[k], p[before] * chain.p[k]
        discount *= gamma
        end = chain.terminal[k]
        done.append((x[end], p[end]))
        s, x, p = _merged(chain.s_next[k][~end], x[~end], p[~end])
        slight = p < 1e-3 * RESIDUE / (p.size + 1)
        cut += float(p[slight].sum())
        s, x, p = s[~slight], x[~slight], p[~slight]
    if gamma < 1.0 and p.sum() > RESIDUE:
        done.append((x, p))  # the rest is negligible
    else:
        cut += float(p.sum())
    returns, mass = (np.concatenate(parts) for parts in zip(*done, strict=True))
    return *_merged(np.zeros(returns.size, np.int64), returns, mass)[1:], cut


def _merged(s: Ints, x: Floats, p: Floats) -> tuple[Ints, Floats, Floats]:
    """Pairs (s, x) in order; those equal up to rounding are merged."""
    if not s.size:
        return s, x, p
    order = np.lexsort((x, s))
    s, x, p = s[order], x[order], p[order]
    apart = np.diff(x) > 1e-13 * np.maximum(np.abs(x[1:]), np.abs(x[:-1]))
    first = np.flatnonzero(np.concatenate(([True], apart | (np.diff(s) > 0))))
    return s[first], x[first], np.add.reduceat(p, first)


def _sampled(
    source: _Source, chain: Chain, start: Floats, length: float, atoms: list[tuple[float, float]]
) -> Distribution:
    """Returns of sampled episodes, each equally likely; infinite ones have their true probability."""
    gamma = source.gamma
    horizon = log(FAINT * (1.0 - gamma)) / log(gamma) if gamma < 1.0 else inf
    limit = int(min(100.0 * length + 100.0, horizon + 1.0, MAX_LENGTH))
    count = int(np.clip(MAX_SAMPLED_STEPS / min(length, limit), 1_000, MAX_SAMPLES))
    played = chain.play(start, gamma, count, limit, source.seed, source.threads, source.quiet)
    expected, rest = np.zeros(count), 0.0  # of truncated episodes: the expected rest, [n], and its error √E[γ^2T·σ²]
    if not played.ended.all() and not np.isfinite(chain.r).all():
        rest = inf
    elif not played.ended.all():
        mean, variance = _moments(chain, gamma)
        discount = np.where(played.ended, 0.0, gamma**played.lengths)
        expected = discount * mean[played.last]
        rest = sqrt(float((discount**2 * np.maximum(variance, 0.0)[played.last]).mean()))
    returns, counts = np.unique((played.returns + expected)[np.isfinite(played.returns)], return_counts=True)
    samples = int(counts.sum())
    room = 1.0 - sum(p for _, p in atoms)
    cut = 0.0 if limit > horizon else 1.0 - float(played.ended.mean())
    error = room * sqrt(log(2.0 / DOUBT) / (2.0 * max(1, samples))) + cut
    found = _with_atoms(returns, counts.astype(np.float64), atoms)
    return Distribution(*found, False, min(1.0, error), samples, cut, rest)
