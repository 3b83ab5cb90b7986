"""The operator H of a shaped replay.

Replay changes the effective outcomes of a pair. They depend on two functions: ρ(s,a), the share of a pair's updates
that are replays, and ŵ(s',r|s,a) = w/W, the distribution of its replays:

    p̃(s',r|s,a)  =  (1 − ρ(s,a))·q(s',r|s,a)  +  ρ(s,a)·ŵ(s',r|s,a)
    HQ(s,a)      =  Σ p̃(s',r|s,a)·(r + γ·max_b Q(s',b))

The scheme determines W and ŵ, the mixing ρ. With d(s,a) the share of MDP iterations that visit the pair,

    ρ(s,a)  =  v·W(s,a) / ( (1−v)·d(s,a) + v·W(s,a) ).

The paper's equations 1–4 are the case d ≡ 1: its proof has Pr(s,a | MDP iteration) = Σ q = 1 in place of d(s,a). So
Algorithm 1 converges to the fixed point with d, and matched mixing to the one with d ≡ 1. H is a γ-contraction in
both cases, since p̃ is a distribution for each pair.

Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2, Eq. 3, Eq. 4, Lemma 2.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from .. import _checks
from .._types import Bools, Floats, Ints
from ..arrays import model_memory, slots_of, weights_of
from ..kernels import memory as mem
from ..kernels.memory import make_limit
from ..mdp import TabularMDP
from ..schemes import Scheme, check_tabular
from .solver import optimal, targets

MANY = 1e15  # visits that represent infinity


def limit_weights(mdp: TabularMDP, scheme: Scheme, Q: Floats | None = None, visitation: Floats | None = None) -> Floats:
    """w^∞ of every outcome, [K]: the limit of w_t when each outcome is seen infinitely often.

    For a scheme that depends on Q, Q is needed. One that counts visits but is FAITHFUL needs the visits d(s,a), equal
    if not given. A pair that cannot be reached has no weight.

    Ref: Szlak & Shamir (2021), Lemma 4.
    """
    if scheme.follows_values and Q is None:
        hint = "matched mixing and given visits have limits: fixed_point(mdp, scheme, v), or visitation=d"
        _checks.fail("scheme", "not depend on Q, unless Q is given", scheme, hint)
    known = scheme.has_limit or scheme.FAITHFUL or scheme.follows_values
    _checks.require(known, "scheme", "depend neither on TD errors nor on visits, to have a limit", scheme)
    check_tabular(scheme)
    memory = model_memory(mdp)
    d = np.ones(mdp.n_pairs) if visitation is None or not scheme.names("n") else visitation.ravel()
    n = d * MANY
    often = np.where(mdp.is_reachable[mdp.pair // mdp.n_actions], mdp.p * n[mdp.pair], 0.0)
    memory.count[:] = np.bincount(slots_of(mdp), weights=often, minlength=mdp.p.size)
    mean, variance = mdp.expect(mdp.r).ravel(), mdp.reward_variance.ravel()
    memory.stats[:, mem.MEAN], memory.stats[:, mem.M2] = mean, variance * n
    np.minimum.at(memory.stats[:, mem.R_MIN], mdp.pair, mdp.r)
    np.maximum.at(memory.stats[:, mem.R_MAX], mdp.pair, mdp.r)
    values = np.zeros(mdp.n_pairs) if Q is None else np.ascontiguousarray(Q, np.float64).ravel()
    wrong = _filler(*scheme.factors())(memory, values, mdp.gamma, mdp.n_actions, n, scheme.params())
    if wrong:
        scheme.refuse(memory, wrong - 1, MANY)
    return weights_of(memory)


_filler = lru_cache(maxsize=64)(make_limit)


class Transitions(NamedTuple):
    """p̃(s'|s,a) and R̃(s,a,s'): the outcomes of a pair with the same next state and end, combined.

    Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2.
    """

    pair: Ints  #: [J]
    s_next: Ints  #: [J]
    terminal: Bools  #: [J] whether the episode ends there
    p: Floats  #: [J] p̃(s'|s,a)
    R: Floats  #: [J] R̃(s,a,s'); 0 if p̃ is 0


class Operator(NamedTuple):
    """H for a scheme and a mixing on a model.

    Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2, Eq. 3, Eq. 4, Lemma 2.
    """

    mdp: TabularMDP
    p: Floats  #: p̃ of every outcome, [K]: (1−v)·φ₁ + v·φ₂ = (1−ρ)·q + ρ·ŵ
    rho: Floats  #: ρ(s,a), [S, A]
    w: Floats  #: w^∞ of every outcome, [K]
    phi1: Floats  #: φ₁ of every outcome, [K]: d·q / ((1−v)·d + v·W)
    phi2: Floats  #: φ₂ of every outcome, [K]: w / ((1−v)·d + v·W)

    def __call__(self, Q: Floats) -> Floats:
        """HQ, [S, A]."""
        return self.mdp.expect(targets(self.mdp, Q.max(1)), self.p)

    def fixed_point(self, near: Floats | None = None) -> Floats:
        """The Q with HQ = Q, [S, A]; ``near`` [S] are approximate values that speed up the search."""
        return optimal(self.mdp, self.p, near=near)

    @property
    def R(self) -> Floats:  # noqa: N802
        """R̃(s,a) = Σ p̃·r, the effective reward of a pair, [S, A]."""
        return self.mdp.expect(self.mdp.r, self.p)

    def transitions(self) -> Transitions:
        """p̃ and R̃ by next state, as the paper writes them."""
        mdp = self.mdp
        key = 2 * (mdp.pair * mdp.n_states + mdp.s_next) + mdp.terminal
        groups, member = np.unique(key, return_inverse=True)
        p = np.asarray(np.bincount(member, weights=self.p), np.float64)
        gained = np.bincount(member, weights=self.p * mdp.r)
        R = np.divide(gained, p, out=np.zeros_like(p), where=p > 0)
        place, terminal = np.divmod(groups, 2)
        pair, s_next = np.divmod(place, mdp.n_states)
        return Transitions(pair, s_next, terminal.astype(bool), p, R)


def operator(mdp: TabularMDP, scheme: Scheme, v: float = 0.5, visitation: Any = None) -> Operator:
    """H; ``visitation`` is d(s,a) [S, A], or None for the paper's d ≡ 1.

    A pair that is neither visited nor replayed keeps its own outcomes: p̃ = q.

    Ref: Szlak & Shamir (2021), Eq. 1, Eq. 2, Eq. 3, Eq. 4.
    """
    d = given_visits(mdp, v, visitation)
    return weighted(mdp, limit_weights(mdp, scheme, visitation=d), v, d)


def given_visits(mdp: TabularMDP, v: float, visitation: Any) -> Floats:
    """d(s,a) [S, A] as given, or 1; raises an error for invalid arguments."""
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    _checks.between("v", v, "[0, 1)")
    shape = (mdp.n_states, mdp.n_actions)
    d = np.ones(shape) if visitation is None else _checks.finite_array("visitation", visitation, shape)
    _checks.require(bool((d >= 0).all()), "visitation", "have no negative entry", float(d.min()))
    return d


def weighted(mdp: TabularMDP, w: Floats, v: float, d: Floats) -> Operator:
    """H for given weights w [K] and visits d [S, A], for callers with many d and one w."""
    W = np.bincount(mdp.pair, weights=w, minlength=mdp.n_pairs).reshape(d.shape)
    d = np.where((d == 0) & (v * W == 0), 1.0, d)
    updates = (1.0 - v) * d + v * W
    phi1 = (d / updates).ravel()[mdp.pair] * mdp.p
    phi2 = w / updates.ravel()[mdp.pair]
    return Operator(mdp, (1.0 - v) * phi1 + v * phi2, v * W / updates, w, phi1, phi2)
