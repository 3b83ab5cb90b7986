"""Small worlds for learners with two tables, and their tables worked out another way: by moments and by doubling."""

import itertools

import numpy as np

import safereplay as sr

END = 1  # the terminal state of the worlds with one choice


def one_choice(rows, gamma=0.9):
    """State 0 with two actions: to stop, which pays nothing, and to do what ``rows`` (p, ends, r, unsafe) say."""
    stop = (0, 0, 1.0, END, 0.0, True, False)
    go = [(0, 1, p, END if ends else 0, r, ends, unsafe) for p, ends, r, unsafe in rows]
    return sr.TabularMDP.from_outcomes(2, 2, [stop, *go], gamma)


def random_world(seed, n_states=4, gamma=None, ends=False):
    """Two actions of three outcomes each; with ``ends`` every pair may end, and whatever is unsafe does."""
    generator, rows = np.random.default_rng(seed), []
    for s, a in itertools.product(range(n_states), range(2)):
        for k, p in enumerate(generator.dirichlet(np.ones(3))):
            t = n_states if ends and k == 0 else int(generator.integers(n_states + 1))
            r = float(generator.integers(-9, 10))
            unsafe = t == n_states and generator.random() < 0.3 if ends else generator.random() < 0.15
            rows.append((s, a, p, t, r, t == n_states, unsafe))
    drawn = float(generator.uniform(0.5, 0.97))
    return sr.TabularMDP.from_outcomes(n_states + 1, 2, rows, drawn if gamma is None else gamma)


def policies(mdp):
    """Every deterministic policy."""
    free = [range(1 if end else mdp.n_actions) for end in mdp.is_terminal]
    return np.array(list(itertools.product(*free)))


def dense(mdp, values, targets=None):
    """Σ p·values by pair, [S, A], or also by next state, [S, A, S]; outcomes that end lead nowhere."""
    out = np.zeros((mdp.n_pairs, mdp.n_states if targets is not None else 1))
    for k, i in enumerate(mdp.pair):
        out[i, 0 if targets is None else targets[k]] += mdp.p[k] * values[k]
    return out.reshape(mdp.n_states, mdp.n_actions, -1)


def least(P, b):
    """The least x ≥ 0 with x = b + P·x, b ≥ 0: the sum of all P^k·b, by doubling."""
    x = b
    for _ in range(60):
        x, P = x + P @ x, P @ P
    return x


class Tables:
    """What follows of a policy, by moments of the return and by the chance of harm; for any policy of one model."""

    def __init__(self, mdp):
        self.mdp, on = mdp, np.where(mdp.terminal, 0.0, 1.0)
        safe = np.where(mdp.unsafe, 0.0, on)
        self.r, self.rr, self.u = (dense(mdp, x)[..., 0] for x in (mdp.r, mdp.r**2, mdp.unsafe * 1.0))
        self.P, self.rP, self.safe = (dense(mdp, x, mdp.s_next) for x in (on, on * mdp.r, safe))

    def mean(self, policy):
        """(X of the states, X of the pairs)."""
        s, gamma = np.arange(self.mdp.n_states), self.mdp.gamma
        x = np.linalg.solve(np.eye(s.size) - gamma * self.P[s, policy], self.r[s, policy])
        return x, self.r + gamma * self.P @ x

    def variance(self, policy):
        """The variance of the discounted return by pair: second moment less squared mean."""
        s, gamma = np.arange(self.mdp.n_states), self.mdp.gamma
        x, X = self.mean(policy)
        now = self.rr + 2.0 * gamma * self.rP @ x
        second = np.linalg.solve(np.eye(s.size) - gamma**2 * self.P[s, policy], now[s, policy])
        return now + gamma**2 * self.P @ second - X**2

    def harm(self, policy):
        """P(ever unsafe) by pair."""
        s = np.arange(self.mdp.n_states)
        return self.u + self.safe @ least(self.safe[s, policy], self.u[s, policy])


class Survey:
    """Every policy's own score, and which policies no single change of action improves, what follows being the same."""

    def __init__(self, mdp, score):
        self.all, states = policies(mdp), np.arange(mdp.n_states)
        scores = np.array([score(policy) for policy in self.all])
        self.own = np.array([table[states, policy] for table, policy in zip(scores, self.all, strict=True)])
        slack = 1e-9 * np.maximum(1.0, np.abs(scores).max((1, 2)))
        self.equilibria = self.all[(scores.max(2) - self.own).max(1) <= slack]
        self.best = self.own.max(0)

    def holds(self, policy):
        """Whether a policy is among the equilibria."""
        return bool((self.equilibria == policy).all(1).any())

    def falls_short(self, value):
        """By how much scores [S] lie below the best of any policy, by state."""
        return self.best - value
