"""Value iteration in plain numpy, pair by pair: what a model is worth by a way that shares nothing with the package's."""

import numpy as np


def plain_values(mdp, p=None, rounds=20_000):
    """Q [S, A] of the best policy where outcomes have probabilities p [K], the model's own if none are given."""
    p, Q = mdp.p if p is None else p, np.zeros((mdp.n_states, mdp.n_actions))
    pairs = [divmod(i, mdp.n_actions) for i in mdp.pair.tolist()]
    for _ in range(rounds):
        before, V = Q, Q.max(1)
        Q = np.zeros_like(before)
        for k, (s, a) in enumerate(pairs):
            Q[s, a] += p[k] * (mdp.r[k] + (0.0 if mdp.terminal[k] else mdp.gamma * V[mdp.s_next[k]]))
        if np.abs(Q - before).max() <= 1e-12 * max(1.0, np.abs(Q).max()) * (1.0 - mdp.gamma):
            return Q
    raise AssertionError("no end")
