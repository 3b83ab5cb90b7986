"""Random models that several test modules share."""

import numpy as np

import safereplay as sr


def random_model(seed, n_states=6, n_actions=3):
    generator = np.random.default_rng(seed)
    rows = []
    for s in range(n_states - 1):
        for a in range(n_actions):
            p = generator.dirichlet(np.ones(4))
            for k in range(4):
                s_next = int(generator.integers(n_states))
                rows.append((s, a, p[k], s_next, float(generator.integers(-9, 10)), s_next == n_states - 1, False))
    return sr.TabularMDP.from_outcomes(n_states, n_actions, rows, gamma=float(generator.uniform(0.5, 0.97)))
