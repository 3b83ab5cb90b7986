"""Dynamic programming on an outcome table: Q of the best policy, for any probabilities of its outcomes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from .._types import Floats
from ..mdp import TabularMDP
from .linear import solve

TOLERANCE = 1e-10  # of a fixed point, as a share of the largest value
MAX_ROUNDS = 1_000  # of policy iteration; it needs a handful


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
