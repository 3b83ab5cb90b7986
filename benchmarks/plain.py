"""Algorithm 1 of Szlak & Shamir (2021) and its rivals as a plain Python loop, written directly from the paper.

It shares no code with the package: an independent check of results, and the baseline for speed. Run it to measure its speed.
"""

import math
import random
import time
from collections import Counter, defaultdict

KINDS = ("q", "replay", "matched", "mihatsch", "gaskett", "worst", "worst-transition")


def step(outcomes, s, a, rng):
    """Take action a in state s: (reward, next state, whether the episode ends)."""
    u, choices = rng.random(), outcomes[s, a]
    for p, outcome in choices:
        u -= p
        if u < 0.0:
            return outcome
    return choices[-1][1]


class Memory:
    """The distinct outcomes of each pair with their counts, the variance of its reward, and w of Lemma 4."""

    def __init__(self, beta):
        self.beta, self.total = beta, 0.0  # total: sum of the variances
        self.seen = defaultdict(Counter)  # pair -> count of each outcome
        self.moments = defaultdict(lambda: (0, 0.0, 0.0))  # pair -> n, mean, sum of squared deviations
        self.var = defaultdict(float)  # pair -> variance of its reward

    def store(self, pair, outcome):
        self.seen[pair][outcome] += 1
        n, mean, squares = self.moments[pair]
        n, delta = n + 1, outcome[0] - mean
        mean += delta / n
        squares += delta * (outcome[0] - mean)
        self.moments[pair] = n, mean, squares
        self.total += squares / n - self.var[pair]
        self.var[pair] = squares / n

    def draw(self, pair, rng):
        """An outcome, by e^{−βr} over the distinct rewards, divided equally among the next states seen with each."""
        rewards = [r for r, _, _ in self.seen[pair]]
        top = max(-self.beta * r for r in rewards)  # subtracted against overflow
        weights = [math.exp(-self.beta * r - top) / rewards.count(r) for r in rewards]
        return rng.choices(list(self.seen[pair]), weights)[0]

    def bleakest(self, pair, ahead):
        """The minimum over the next states seen from the pair of the mean reward plus the value ahead."""
        sums = defaultdict(lambda: (0, 0.0))
        for (r, s_next, ends), count in self.seen[pair].items():
            n, total = sums[s_next, ends]
            sums[s_next, ends] = n + count, total + count * r
        return min(total / n + ahead(*where) for where, (n, total) in sums.items())


def run(outcomes, n_states, n_actions, start_states, gamma, v, beta, episodes, seed,
        epsilon=0.1, power=0.6, max_steps=1000, kind="replay", kappa=0.5):  # fmt: skip
    """Q as a list of lists, and the number of updates: MDP iterations and replays.

    ``outcomes[s, a]`` lists (probability, (reward, next state, whether the episode ends)).
    ``beta`` is the tilt of what is replayed, or the pessimism of ``gaskett``; ``kappa`` is for ``mihatsch``.
    """
    rng, memory = random.Random(seed), Memory(beta)
    r_max = max(r for rows in outcomes.values() for _, (r, _, _) in rows)
    c0 = max(0.0, r_max / (1 - gamma)) if kind == "worst" else 0.0
    Q, n_updates = ([[x] * n_actions for _ in range(n_states)] for x in (c0, 0))
    rival, remembers = kind in KINDS[3:], kind in ("replay", "matched", "worst-transition")

    def ahead(s, ends):
        return 0.0 if ends else gamma * max(Q[s])

    def update(s, a, r, s_next, ends):
        n_updates[s][a] += 1
        alpha, target = n_updates[s][a] ** -power, r + ahead(s_next, ends)
        if rival:
            if kind == "mihatsch":
                alpha *= 1 - kappa if target > Q[s][a] else 1 + kappa
            elif kind == "worst":
                alpha, target = 1.0, min(Q[s][a], target)
            elif kind == "worst-transition":
                target = memory.bleakest((s, a), ahead)
            elif not ends:  # gaskett
                target = r + gamma * ((1 - beta) * max(Q[s_next]) + beta * min(Q[s_next]))
        Q[s][a] += alpha * (target - Q[s][a])

    for _ in range(episodes):
        s = rng.choice(start_states)
        for _ in range(max_steps):
            while kind == "replay" and rng.random() < v and memory.total > 0.0:
                pair = rng.choices(list(memory.var), memory.var.values())[0]
                update(*pair, *memory.draw(pair, rng))
            a = rng.randrange(n_actions) if rng.random() < epsilon else Q[s].index(max(Q[s]))
            outcome = step(outcomes, s, a, rng)
            if remembers:
                memory.store((s, a), outcome)
            update(s, a, *outcome)
            if kind == "matched" and memory.total > 0.0:
                for _ in range(int(v / (1 - v) * memory.var[s, a] / memory.total + rng.random())):
                    update(s, a, *memory.draw((s, a), rng))
            _, s, ends = outcome
            if ends:
                break
    return Q, sum(map(sum, n_updates))


if __name__ == "__main__":  # a cliff of 3 × 5: from the lower left corner to the lower right
    ends = {11: -12.0, 12: -12.0, 13: -12.0, 14: 10.0}
    outcomes = {}
    for s in range(11):
        ways = s - 5 * (s > 4), s + (s % 5 < 4), s + 5 * (s < 10), s - (s % 5 > 0)
        moves = [(ends.get(where, -1.0), where, where in ends) for where in ways]
        outcomes.update({(s, a): [(0.9, moves[a]), *((0.025, move) for move in moves)] for a in range(4)})
    for kind in KINDS:
        began = time.perf_counter()
        _, updates = run(outcomes, 15, 4, range(11), 0.95, 0.5, 0.5, 5_000, seed=0, kind=kind)
        print(f"{kind:16} {updates / (time.perf_counter() - began):10,.0f} updates per second")
