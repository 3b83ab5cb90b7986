"""The operator H of a shaped replay.

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
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import _checks
from .._types import Floats
from ..kernels import memory as mem
from ..kernels import step
from ..learners import ReplayQLearning
from ..mdp import TabularMDP
from ..runs import model_memory, refuse_scheme, slots_of, weights_of
from ..schedules import EpsilonGreedy, PowerStep
from ..schemes import Scheme
from .solver import optimal, targets

MANY = 1e15  # visits that stand for infinitely many


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
