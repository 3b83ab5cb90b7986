"""The risk of a policy: what its return and its chance of harm really are, exactly where that is possible.

Under a fixed policy the model is a chain. Mean and variance of the return, the chance of an unsafe outcome and the
chance of never ending are solutions of linear equations over its states. The distribution of the return is found by
carrying probability over (state, return so far) until all but 1e-12 of it has ended, which needs rewards on a common
lattice (−12, −1, 10 are; 0.1 and √2 are not) and an undiscounted return. Where that fails, episodes are sampled, and
the profile says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import gcd, inf, isfinite, lcm, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from .. import _checks
from .._types import Bools, Floats, Ints
from ..mdp import TabularMDP
from ..verdicts import checked_policy
from .linear import solve

RESIDUE = 1e-12  # probability that may be left unfinished when the distribution is cut off
MAX_WORK = 3e8  # (step, return, outcome) triples before sampling takes over
MAX_SAMPLED_STEPS = 5e7
MAX_SAMPLES = 200_000


class Distribution(NamedTuple):
    """A distribution of the return; ``exact`` says whether it was computed rather than sampled."""

    returns: Floats
    probabilities: Floats
    exact: bool


@dataclass(frozen=True)
class RiskProfile:
    """What a policy risks, from its start.

    Its moments and probabilities are solutions of linear equations. The distribution of the return, and with it
    quantiles and CVaR, is worked out when it is first asked for.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> edge = sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=mdp.origin)
    >>> round(edge.p_unsafe, 3), edge.quantile(0.5), edge.distribution.exact
    (0.119, 4.0, True)
    """

    mean: float
    std: float
    p_unsafe: float
    p_never: float  #: probability that the episode never ends
    length: float  #: expected steps
    source: _Source = field(repr=False, compare=False)

    @cached_property
    def distribution(self) -> Distribution:
        """The distribution of the return."""
        return _distribution(self.source)

    def quantile(self, q: float) -> float:
        """The smallest return that at least a share q of episodes does not exceed."""
        q = _checks.between("q", q, "(0, 1]")
        k = int(np.searchsorted(np.cumsum(self.distribution.probabilities), q - 1e-12))
        return float(self.distribution.returns[min(k, self.distribution.returns.size - 1)])

    def cvar(self, alpha: float = 0.1) -> float:
        """The mean return of the worst share α of episodes; −inf where the mean is not finite."""
        alpha = _checks.between("alpha", alpha, "(0, 1]")
        if not isfinite(self.mean):
            return -inf
        returns, probabilities, _ = self.distribution
        before = np.concatenate(([0.0], np.cumsum(probabilities)[:-1]))
        mass = np.clip(alpha - before, 0.0, probabilities)
        return float((mass * returns).sum() / mass.sum())

    def to_dict(self) -> dict[str, Any]:
        """The headline numbers, for JSON; what is not finite becomes None."""
        numbers = {n: getattr(self, n) for n in ("mean", "std", "p_unsafe", "p_never", "length")}
        numbers["cvar10"] = self.cvar(0.1)
        plain = {name: x if isfinite(x) else None for name, x in numbers.items()}
        return {**plain, "exact": not isfinite(self.mean) or self.distribution.exact}


class Chain(NamedTuple):
    """The outcomes that a policy meets: from state s with probability p to s_next, with r."""

    s: Ints
    p: Floats
    s_next: Ints
    r: Floats
    terminal: Bools
    unsafe: Bools
    n_states: int

    def solve(self, gain: Floats, passing: Bools | Floats, inside: Bools) -> Floats:
        """x(s) = Σ p·(gain + passing·x(s')) over the states ``inside``; x = 0 elsewhere."""
        onward = self.p * passing * inside[self.s_next] * inside[self.s]
        P = sparse.coo_array((onward, (self.s, self.s_next)), shape=(self.n_states, self.n_states))
        b = np.asarray(np.bincount(self.s, weights=self.p * gain, minlength=self.n_states) * inside, np.float64)
        return solve(P, b)

    def reached(self, start: Floats) -> Bools:
        """States that the start can lead to."""
        found = np.asarray(start > 0)
        while True:
            onward = np.bincount(self.s_next, weights=found[self.s] & ~self.terminal, minlength=self.n_states) > 0
            if not (onward & ~found).any():
                return found
            found = found | onward

    def can_reach(self, goal: Bools) -> Bools:
        """States from which an outcome marked ``goal`` [K] can be met."""
        found = np.bincount(self.s, weights=goal, minlength=self.n_states) > 0
        step_on = ~self.terminal
        while True:
            onward = np.bincount(self.s, weights=step_on & found[self.s_next], minlength=self.n_states) > 0
            if not (onward & ~found).any():
                return np.asarray(found)
            found = found | onward


def _closed(chain: Chain, ends: Bools) -> Chain:
    """The chain with an end wherever it would go on forever; for a return that is finite, nothing happens there."""
    return chain._replace(terminal=chain.terminal | ~ends[chain.s] | ~ends[chain.s_next])


class _Source(NamedTuple):
    """What a distribution is worked out from."""

    chain: Chain
    start: Floats
    gamma: float
    seed: int


def chain_of(mdp: TabularMDP, policy: Any) -> Chain:
    """The chain of a policy [S]."""
    actions = checked_policy(mdp, policy)
    s, a = np.divmod(mdp.pair, mdp.n_actions)
    k = np.flatnonzero(actions[s] == a)
    return Chain(s[k], mdp.p[k], mdp.s_next[k], mdp.r[k], mdp.terminal[k], mdp.unsafe[k], mdp.n_states)


def evaluate(
    mdp: TabularMDP, policy: Any, start: Any = None, *, discounted: bool = False, seed: int = 0
) -> RiskProfile:
    """The risk profile of a policy [S], from the model's start, a state, or a distribution over states.

    >>> import safereplay as sr
    >>> mdp = sr.grids.volatile()
    >>> risk = sr.evaluate(mdp, [1] * 20, start=mdp.origin)         # right: three gambles, then the goal
    >>> round(risk.mean), round(risk.p_unsafe, 3), round(risk.cvar(0.1))
    (210, 0.784, -78)
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    start_p = (mdp if start is None else mdp.with_start(start)).start
    chain = chain_of(mdp, policy)
    gamma = mdp.gamma if discounted else 1.0
    ends = chain.can_reach(chain.terminal)
    p_end = chain.solve(chain.terminal.astype(np.float64), ~chain.terminal, ends)
    exposed = chain.can_reach(chain.unsafe)
    p_unsafe = chain.solve(chain.unsafe.astype(np.float64), ~chain.terminal & ~chain.unsafe, exposed)
    p_never = _snap(1.0 - float(start_p @ p_end))
    mean, std, length = _moments(chain, start_p, gamma, ends, p_never)
    source = _Source(chain if gamma < 1.0 else _closed(chain, ends), start_p, gamma, seed)
    return RiskProfile(mean, std, _snap(float(start_p @ p_unsafe)), p_never, length, source)


def _snap(p: float) -> float:
    """A probability without the rounding of a solve: 0 and 1 where it is within 1e-12 of them."""
    return 0.0 if p < 1e-12 else 1.0 if p > 1.0 - 1e-12 else p


def _moments(chain: Chain, start: Floats, gamma: float, ends: Bools, p_never: float) -> tuple[float, float, float]:
    """Mean and standard deviation of the return, and the expected length."""
    forever = chain.r[~ends[chain.s] & chain.reached(start)[chain.s]]
    if gamma == 1.0 and forever.any():
        return -inf if forever.max() <= 0 else inf if forever.min() >= 0 else nan, nan, inf
    # Undiscounted, states that never end would make the equations singular; here the start does not reach them, or
    # nothing is gained or lost there.
    inside = ends if gamma == 1.0 else np.ones_like(ends)
    onward = np.where(chain.terminal, 0.0, gamma)
    m = chain.solve(chain.r, onward, inside)
    m2 = chain.solve(chain.r**2 + 2.0 * chain.r * onward * m[chain.s_next], onward * gamma, inside)
    mean = float(start @ m)
    length = inf if p_never > 0.0 else float(start @ chain.solve(np.ones_like(chain.r), ~chain.terminal, ends))
    return mean, sqrt(max(0.0, float(start @ m2) - mean**2)), length


def _lattice(r: Floats) -> tuple[float, Ints] | None:
    """(unit, r/unit as whole numbers), or None where rewards have no common unit of reasonable size."""
    fractions = [Fraction(float(x)).limit_denominator(1_000) for x in np.unique(r)]
    if not np.allclose([float(f) for f in fractions], np.unique(r), rtol=1e-12, atol=1e-12):
        return None
    denominator = lcm(*(f.denominator for f in fractions))
    unit = gcd(*(int(f * denominator) for f in fractions)) or 1
    steps = np.rint(r * denominator / unit).astype(np.int64)
    return unit / denominator, steps


def _distribution(source: _Source) -> Distribution:
    """Exact where rewards lie on a lattice, the return is undiscounted and episodes are short enough; else sampled."""
    chain, length = source.chain, inf
    lattice = _lattice(chain.r) if source.gamma == 1.0 else None
    if source.gamma == 1.0:
        steps_left = chain.solve(np.ones_like(chain.r), ~chain.terminal, chain.can_reach(chain.terminal))
        length = float(source.start @ steps_left)
    if lattice is not None:
        steps = -log(RESIDUE) * length
        span = int(np.ptp(np.append(lattice[1], 0)))
        if steps * steps * span * source.chain.s.size / 2 <= MAX_WORK:
            return Distribution(*_carried(source.chain, source.start, lattice), True)
    return Distribution(*_sampled(source, length), False)


def _carried(chain: Chain, start: Floats, lattice: tuple[float, Ints]) -> tuple[Floats, Floats]:
    """Probability carried over (return so far, state) until all but RESIDUE of it has ended."""
    unit, shift = lattice
    moves = [(int(value), _move(chain, shift == value)) for value in np.unique(shift)]
    down, up = min(0, int(shift.min())), max(0, int(shift.max()))
    low, alive = 0, start[None, :].copy()  # alive[x − low, s]: probability of being in s with return x·unit
    ended: dict[int, float] = {}
    while alive.sum() > RESIDUE:
        after = np.zeros((alive.shape[0] + up - down, chain.n_states + 1))
        for value, P in moves:
            after[value - down : value - down + alive.shape[0]] += alive @ P
        low += down
        for x in np.flatnonzero(after[:, -1]):
            ended[low + int(x)] = ended.get(low + int(x), 0.0) + float(after[x, -1])
        used = np.flatnonzero(after[:, :-1].sum(1) > 1e-300)
        if not used.size:
            break
        alive = after[used[0] : used[-1] + 1, :-1]
        low += int(used[0])
    points = np.array(sorted(ended))
    mass = np.array([ended[int(x)] for x in points])
    return points * unit, mass / mass.sum()


def _move(chain: Chain, k: Bools) -> Any:
    """Where the outcomes k take probability, [S, S + 1]; the last column is the end."""
    entries = (chain.p[k], (chain.s[k], np.where(chain.terminal[k], chain.n_states, chain.s_next[k])))
    return sparse.csr_array(entries, shape=(chain.n_states, chain.n_states + 1))


def _sampled(source: _Source, length: float) -> tuple[Floats, Floats]:
    """Returns of sampled episodes, each equally likely; one that has not ended in time counts what it had by then."""
    chain, start, gamma, seed = source
    generator = np.random.default_rng(seed)
    order = np.argsort(chain.s, kind="stable")
    row = np.searchsorted(chain.s[order], np.arange(chain.n_states + 1))
    cumulative = np.cumsum(chain.p[order])
    base = np.concatenate(([0.0], cumulative))[row[:-1]]
    usual = min(length, log(1e-9) / log(gamma) if gamma < 1.0 else inf, 1e4)
    count = int(np.clip(MAX_SAMPLED_STEPS / usual, 1_000, MAX_SAMPLES))
    total = np.zeros(count)
    s = generator.choice(chain.n_states, count, p=start)
    alive, discount = np.arange(count), 1.0
    for _ in range(int(20 * usual) + 1):
        x = base[s] + generator.random(s.size) * (1.0 - 1e-12)
        k = order[np.clip(np.searchsorted(cumulative, x, side="right"), row[s], row[s + 1] - 1)]
        total[alive] += discount * chain.r[k]
        discount *= gamma
        go_on = ~chain.terminal[k]
        alive, s = alive[go_on], chain.s_next[k][go_on]
        if not alive.size or discount < 1e-9:
            break
    returns, counts = np.unique(total, return_counts=True)
    return returns, counts / count
