"""The operator H of a shaped replay, and the exact limits of every learner.

Replay changes what a pair seems to lead to. Everything reduces to two functions: ρ(s,a), the share of a pair's updates
that are replays, and ŵ(s',r|s,a) = w/W, what is replayed there:

    p̃(s',r|s,a)  =  (1 − ρ(s,a))·q(s',r|s,a)  +  ρ(s,a)·ŵ(s',r|s,a)
    HQ(s,a)      =  Σ p̃(s',r|s,a)·(r + γ·max_b Q(s',b))

The scheme owns W and ŵ, the mixing owns ρ. With d(s,a) the share of MDP iterations that visit the pair,

    ρ(s,a)  =  v·W(s,a) / ( (1−v)·d(s,a) + v·W(s,a) ).

The paper's equations 1–4 are the case d ≡ 1: its proof puts Pr(s,a | MDP iteration) = Σ q = 1 where d(s,a) belongs. So
Algorithm 1 converges to the fixed point with d, and matched mixing to the one with d ≡ 1. H is a γ-contraction either
way, since p̃ is a distribution for each pair.

Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2, Eq. 3, Eq. 4, Lemma 2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, singledispatch
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from .. import _checks
from .._types import Floats
from ..kernels import memory as mem
from ..kernels import step
from ..learners import Learner, Pessimistic, QLearning, ReplayQLearning, RiskSensitive, WorstCase, WorstTransition
from ..mdp import TabularMDP
from ..runs import model_memory, refuse_scheme, slots_of, weights_of
from ..schedules import EpsilonGreedy, PowerStep
from ..schemes import Scheme
from .linear import solve

MANY = 1e15  # visits that stand for infinitely many
TOLERANCE = 1e-10  # of a fixed point, as a share of the largest value
MAX_ROUNDS = 1_000  # of policy iteration; it needs a handful


def limit_weights(mdp: TabularMDP, scheme: Scheme) -> Floats:
    """w^∞ of every outcome, [K]: what w_t settles at once each outcome has been seen again and again.

    Ref: Szlak & Shamir (2021), Lemma 4.
    """
    _checks.require(scheme.has_limit, "scheme", "depend neither on TD errors nor on visits, to have a limit", scheme)
    memory = model_memory(mdp)
    memory.count[:] = np.bincount(slots_of(mdp), weights=mdp.p, minlength=mdp.p.size) * MANY
    mean, variance = mdp.expect(mdp.r).ravel(), mdp.reward_variance.ravel()
    memory.stats[:, mem.MEAN], memory.stats[:, mem.M2] = mean, variance * MANY
    np.minimum.at(memory.stats[:, mem.R_MIN], mdp.pair, mdp.r)
    np.maximum.at(memory.stats[:, mem.R_MAX], mdp.pair, mdp.r)
    recipe = ReplayQLearning(scheme).recipe(EpsilonGreedy(), PowerStep())
    wrong = _filler(recipe)(memory, MANY, scheme.params())
    if wrong:
        refuse_scheme(scheme, memory, wrong - 1, MANY)
    return weights_of(memory)


@lru_cache(maxsize=64)
def _filler(recipe: step.Recipe) -> Callable[..., int]:
    return step.make_limit(recipe)


class Operator(NamedTuple):
    """H for a scheme and a mixing on a model."""

    mdp: TabularMDP
    p: Floats  #: p̃ of every outcome, [K]
    rho: Floats  #: ρ(s,a), [S, A]
    w: Floats  #: w^∞ of every outcome, [K]

    def __call__(self, Q: Floats) -> Floats:
        """HQ, [S, A]."""
        return self.mdp.expect(targets(self.mdp, Q.max(1)), self.p)

    def fixed_point(self) -> Floats:
        """The Q with HQ = Q, [S, A]."""
        return optimal(self.mdp, self.p)


def operator(mdp: TabularMDP, scheme: Scheme, v: float = 0.5, visitation: Any = None) -> Operator:
    """H; ``visitation`` is d(s,a) [S, A], or None for the paper's d ≡ 1.

    Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2, Eq. 3, Eq. 4.
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    v = _checks.between("v", v, "[0, 1)")
    shape = (mdp.n_states, mdp.n_actions)
    d = np.ones(shape) if visitation is None else _checks.finite_array("visitation", visitation, shape)
    _checks.require(bool((d >= 0).all()), "visitation", "have no negative entry", float(d.min()))
    w = limit_weights(mdp, scheme)
    W = np.bincount(mdp.pair, weights=w, minlength=mdp.n_pairs).reshape(shape)
    replayed, fresh = v * W, (1.0 - v) * d
    rho = np.divide(replayed, replayed + fresh, out=np.zeros(shape), where=replayed > 0)
    share = rho.ravel()[mdp.pair]
    replays = np.divide(w, W.ravel()[mdp.pair], out=np.zeros_like(w), where=w > 0)
    return Operator(mdp, (1.0 - share) * mdp.p + share * replays, rho, w)


def fixed_point(mdp: TabularMDP, scheme: Scheme, v: float = 0.5, visitation: Any = None) -> Floats:
    """What a shaped replay converges to: the fixed point of H, [S, A].

    ``visitation`` None is the paper's mapping, which matched mixing converges to; an array d(s,a) [S, A], as in
    ``runs.visitation``, gives the limit of Algorithm 1 itself.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> Q = sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5)
    >>> sr.verdict(mdp, Q.argmax(1))
    'safe'

    Ref: Szlak & Shamir (2021), Theorem 1.
    """
    _checks.require(isinstance(scheme, Scheme), "scheme", "be a Scheme", scheme)
    return operator(mdp, scheme, v, visitation).fixed_point()


def targets(mdp: TabularMDP, V: Floats) -> Floats:
    """r + γ·V(s') of every outcome, [K]; V counts for nothing where the episode ends."""
    return mdp.r + mdp.gamma * np.where(mdp.terminal, 0.0, V[mdp.s_next])


def optimal(mdp: TabularMDP, p: Floats) -> Floats:
    """Q of the best policy when outcomes have probabilities p [K]: policy iteration, [S, A]."""
    reward = mdp.expect(mdp.r, p)
    onward = np.where(mdp.terminal, 0.0, p)
    policy = reward.argmax(1)
    states = np.arange(mdp.n_states)
    for _ in range(MAX_ROUNDS):
        chosen = np.flatnonzero(policy[mdp.pair // mdp.n_actions] == mdp.pair % mdp.n_actions)
        entries = (onward[chosen], (mdp.pair[chosen] // mdp.n_actions, mdp.s_next[chosen]))
        P = sparse.coo_array(entries, shape=(mdp.n_states, mdp.n_states))
        V = solve(mdp.gamma * P, reward[states, policy])
        Q = mdp.expect(targets(mdp, V), p)
        better = Q.max(1) > Q[states, policy] + 1e-12 * max(1.0, float(np.abs(V).max()))
        if not better.any():
            break
        policy = np.where(better, Q.argmax(1), policy)
    return Q


def iterate(H: Callable[[Floats], Floats], Q: Floats, gamma: float) -> Floats:
    """The fixed point of a γ-contraction by repeated application, to TOLERANCE of the largest value."""
    while True:
        after = H(Q)
        change, size = float(np.abs(after - Q).max()), max(1.0, float(np.abs(after).max()))
        Q = after
        if change * gamma / (1.0 - gamma) <= TOLERANCE * size:
            return Q


def exact(mdp: TabularMDP, learner: Learner) -> Floats:
    """The exact limit of a learner, [S, A].

    Literal replay has one only together with what it visits: see :func:`fixed_point` with ``visitation``.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> [sr.verdict(mdp, sr.exact(mdp, sr.RiskSensitive(k)).argmax(1)) for k in (0.0, 0.6, 0.95)]
    ['risky', 'safe', 'jumps']
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    return _exact(learner, mdp)


@singledispatch
def _exact(learner: Learner, mdp: TabularMDP) -> Floats:
    _checks.fail("learner", "have an exact limit", learner)


@_exact.register
def _(learner: QLearning, mdp: TabularMDP) -> Floats:
    return optimal(mdp, mdp.p)


@_exact.register
def _(learner: ReplayQLearning, mdp: TabularMDP) -> Floats:
    hint = "the limit of literal mixing depends on what is visited: use fixed_point(..., visitation=d)"
    _checks.require(learner.mixing == "matched" or learner.v == 0.0, "mixing", "be 'matched'", learner.mixing, hint)
    return fixed_point(mdp, learner.scheme, learner.v)


@_exact.register
def _(learner: RiskSensitive, mdp: TabularMDP) -> Floats:
    """E[(1 − κ·sign δ)·δ] = 0 makes Q(s,a) an expectile of r + γ·max_b Q(s',b): a mean under reweighted outcomes.

    Solve for the best policy under fixed weights, reweigh, and repeat until the weights stay.
    """
    p = mdp.p
    for _ in range(MAX_ROUNDS):
        Q = optimal(mdp, p)
        after = _expectile_weights(mdp, targets(mdp, Q.max(1)), learner.kappa)
        if np.array_equal(after, p):
            break
        p = after
    return Q


def _expectile_weights(mdp: TabularMDP, y: Floats, kappa: float) -> Floats:
    """The reweighted p under which the mean of y is its κ-expectile, pair by pair."""
    p = mdp.p
    for _ in range(MAX_ROUNDS):
        above = y > mdp.expect(y, p).ravel()[mdp.pair]
        weights = mdp.p * np.where(above, 1.0 - kappa, 1.0 + kappa)
        after = weights / mdp.expect(weights, np.ones_like(p)).ravel()[mdp.pair]
        if np.array_equal(after, p):
            break
        p = after
    return p


@_exact.register
def _(learner: Pessimistic, mdp: TabularMDP) -> Floats:
    def H(Q: Floats) -> Floats:  # noqa: N802
        return mdp.expect(targets(mdp, (1.0 - learner.beta) * Q.max(1) + learner.beta * Q.min(1)))

    return iterate(H, np.zeros((mdp.n_states, mdp.n_actions)), mdp.gamma)


@_exact.register
def _(learner: WorstCase, mdp: TabularMDP) -> Floats:
    return _worst_of(mdp, mdp.pair, mdp.r, mdp.s_next, mdp.terminal)


@_exact.register
def _(learner: WorstTransition, mdp: TabularMDP) -> Floats:
    keys = np.stack([mdp.pair, mdp.s_next, mdp.terminal])
    groups, member = np.unique(keys, axis=1, return_inverse=True)
    mass = np.bincount(member, weights=mdp.p)
    mean = np.bincount(member, weights=mdp.p * mdp.r) / mass
    return _worst_of(mdp, groups[0], mean, groups[1], groups[2].astype(bool))


def _worst_of(mdp: TabularMDP, pair: Any, r: Floats, s_next: Any, terminal: Any) -> Floats:
    """The fixed point of Q(s,a) = min over the entries of the pair of r + γ·max_b Q(s',b)."""

    def H(Q: Floats) -> Floats:  # noqa: N802
        y = r + mdp.gamma * np.where(terminal, 0.0, Q.max(1)[s_next])
        worst = np.full(mdp.n_pairs, np.inf)
        np.minimum.at(worst, pair, y)
        return np.where(np.isfinite(worst), worst, 0.0).reshape(mdp.n_states, mdp.n_actions)

    return iterate(H, np.zeros((mdp.n_states, mdp.n_actions)), mdp.gamma)
