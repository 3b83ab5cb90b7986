"""The paper, transcribed as plainly as it can be: lists and dictionaries, the raw history kept whole.

Nothing here comes from the package. It is slow on purpose: w_t is computed from the whole history whenever it is needed.
"""

import math
from collections import Counter, defaultdict
from fractions import Fraction

MASK = (1 << 64) - 1


class Xoshiro:
    """xoshiro256++ 1.0, Blackman & Vigna: https://prng.di.unimi.it/xoshiro256plusplus.c, on Python's own integers."""

    def __init__(self, state):
        self.s = [int(word) for word in state]

    @staticmethod
    def rotl(x, k):
        return ((x << k) | (x >> (64 - k))) & MASK

    def word(self):
        s = self.s
        result = (self.rotl((s[0] + s[3]) & MASK, 23) + s[0]) & MASK
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = self.rotl(s[3], 45)
        return result

    def uniform(self):
        return (self.word() >> 11) / 2**53

    def below(self, n):
        return int(self.uniform() * n)

    def pick(self, probabilities):
        """The first index whose running sum exceeds a uniform number; the last one if rounding leaves none."""
        u, total = self.uniform(), 0.0
        for k, p in enumerate(probabilities):
            total += p
            if total > u:
                return k
        return len(probabilities) - 1


def exact_mean(values):
    return sum(n * Fraction(x) for x, n in Counter(values).items()) / len(values)


def exact_variance(values):
    """The variance of a list of floats, in exact arithmetic."""
    mean = exact_mean(values)
    return sum(n * (Fraction(x) - mean) ** 2 for x, n in Counter(values).items()) / len(values)


def lemma4(history, beta):
    """Lemma 4, word for word. ``history`` lists (pair, r, s', ends); the answer is {(pair, r, (s', ends)): w}.

    var_t(r(s,a)) / Σ var_t · e^{−βr} / Σ_{r' ∈ M_t(s,a)} e^{−βr'} · 1 / |L_t(s,a,r)|, and nothing while Σ var_t = 0.
    """
    rewards = defaultdict(list)
    places = defaultdict(set)
    for pair, r, s_next, ends in history:
        rewards[pair].append(r)
        places[pair, r].add((s_next, ends))
    variance = {pair: exact_variance(seen) for pair, seen in rewards.items()}
    total = sum(variance.values())
    if total == 0:
        return {}
    w = {}
    for pair, seen in rewards.items():
        M = set(seen)
        reference = min(M) if beta > 0 else max(M)
        tilt = {r: math.exp(-beta * (r - reference)) for r in M}
        for r in M:
            L = places[pair, r]
            for place in L:
                w[pair, r, place] = float(variance[pair] / total) * (tilt[r] / math.fsum(tilt.values())) / len(L)
    return w


class Statistics(dict):
    """What a scheme may know of a pair, from the raw list of its rewards."""

    def __init__(self, rewards, td):
        super().__init__(
            n=float(len(rewards)),
            mean=float(exact_mean(rewards)),
            var=float(exact_variance(rewards)),
            r_min=min(rewards),
            r_max=max(rewards),
            td=td,
        )


def factored(history, td, pair_weight, log_tilt, next_weight):
    """w_t of any scheme, from the raw history and the last TD error of each pair: {(pair, r, (s', ends)): w}.

    ``pair_weight(stats)``, ``log_tilt(r, stats)``, ``next_weight(count)``; stats as in Statistics.
    """
    rewards, counts = defaultdict(list), defaultdict(int)
    for pair, r, s_next, ends in history:
        rewards[pair].append(r)
        counts[pair, r, (s_next, ends)] += 1
    stats = {pair: Statistics(seen, td.get(pair, 0.0)) for pair, seen in rewards.items()}
    weight = {pair: pair_weight(x) for pair, x in stats.items()}
    total = math.fsum(weight.values())
    if total == 0.0:
        return {}
    w = {}
    for pair, seen in rewards.items():
        logs = {r: log_tilt(r, stats[pair]) for r in set(seen)}
        top = max(logs.values())
        tilts = {r: math.exp(x - top) for r, x in logs.items()}
        for r, tilt in tilts.items():
            shares = {key: next_weight(n) for key, n in counts.items() if key[:2] == (pair, r)}
            for key, share in shares.items():
                w[key] = weight[pair] / total * tilt / math.fsum(tilts.values()) * share / math.fsum(shares.values())
    return w


# The updates, from their papers. Each gets Q (a list of lists), the history and the transition.


def q_learning(Q, s, a, r, ahead, alpha, gamma, seen):
    """Watkins: Q ← (1−α)·Q + α·(r + γ·max Q(s',·))."""
    return (1 - alpha) * Q[s][a] + alpha * (r + gamma * max(ahead))


def mihatsch_neuneier(kappa):
    """Mihatsch & Neuneier (2002), eq. 12: Q ← Q + α·X^κ(d), X^κ(x) = (1−κ)x for x > 0, (1+κ)x otherwise."""

    def update(Q, s, a, r, ahead, alpha, gamma, seen):
        d = r + gamma * max(ahead) - Q[s][a]
        return Q[s][a] + alpha * ((1 - kappa) * d if d > 0 else (1 + kappa) * d)

    return update


def gaskett(beta):
    """Gaskett (2003): the next action is the worst one with probability β."""

    def update(Q, s, a, r, ahead, alpha, gamma, seen):
        return Q[s][a] + alpha * (r + gamma * ((1 - beta) * max(ahead) + beta * min(ahead)) - Q[s][a])

    return update


def heger(Q, s, a, r, ahead, alpha, gamma, seen):
    """Heger (1994): Q̂ ← min(Q̂, r + γ·max Q̂(s',·))."""
    return min(Q[s][a], r + gamma * max(ahead))


def worst_transition(Q, s, a, r, ahead, alpha, gamma, seen):
    """The worst next state ever seen from here, at the mean of the rewards seen on the way there."""
    rewards = defaultdict(list)
    for reward, s_next, ends in seen:
        rewards[s_next, ends].append(reward)
    worst_state = min(sum(x) / len(x) + gamma * (0.0 if ends else max(Q[t])) for (t, ends), x in rewards.items())
    return (1 - alpha) * Q[s][a] + alpha * worst_state


class Algorithm1:
    """Algorithm 1, one iteration of the MDP at a time, with every random number drawn in the documented order.

    ``table[s][a]`` lists (p, s', r, ends), ``start`` lists (p, s). ``weights(history, td)`` is w_t, or None for a learner
    that does not replay.
    """

    def __init__(
        self,
        table,
        start,
        gamma,
        state,
        *,
        v=0.0,
        T0=1,
        c0=0.0,
        mixing="literal",
        weights=None,
        update=q_learning,
        alpha=lambda n: n**-0.6,
        epsilon=lambda n: 0.1,
        temperature=None,
        max_steps=1000,
    ):
        self.table, self.start, self.gamma, self.max_steps = table, start, gamma, max_steps
        self.v, self.T0, self.mixing, self.weights, self.update = v, T0, mixing, weights, update
        self.alpha, self.epsilon, self.temperature = alpha, epsilon, temperature
        self.random = Xoshiro(state)
        self.n_actions = max(len(actions) for actions in table)
        self.Q = [[c0] * self.n_actions for _ in table]
        self.updates = defaultdict(int)
        self.visits, self.replays, self.state_visits = defaultdict(int), defaultdict(int), defaultdict(int)
        self.history, self.td = [], {}
        self.t, self.s, self.step, self.episode = 0, None, 0, 0

    def learn_from(self, s, a, r, s_next, ends):
        pair = s * self.n_actions + a
        self.updates[pair] += 1
        ahead = [0.0] if ends else self.Q[s_next]
        seen = [tuple(x[1:]) for x in self.history if x[0] == pair]
        td = r + self.gamma * max(ahead) - self.Q[s][a]
        self.Q[s][a] = self.update(self.Q, s, a, r, ahead, self.alpha(self.updates[pair]), self.gamma, seen)
        self.td[pair] = td

    def w(self):
        return self.weights(self.history, self.td)

    def replay(self, pair):
        """One transition of the pair, from w_t given the pair: by reward, then next state."""
        mine = sorted((key[1], *key[2], share) for key, share in self.w().items() if key[0] == pair)
        total = math.fsum(x[-1] for x in mine)
        r, s_next, ends, _ = mine[self.random.pick([x[-1] / total for x in mine])]
        self.replays[pair] += 1
        self.learn_from(*divmod(pair, self.n_actions), r, s_next, ends)

    def share_of_pairs(self):
        shares = defaultdict(float)
        for key, share in self.w().items():
            shares[key[0]] += share
        return shares

    def choose(self, s):
        self.state_visits[s] += 1
        n = self.state_visits[s]
        if self.t <= self.T0:
            return self.random.below(self.n_actions)
        if self.temperature is not None:
            scaled = [math.exp((q - max(self.Q[s])) / self.temperature(n)) for q in self.Q[s]]
            return self.random.pick([x / sum(scaled) for x in scaled])
        if self.random.uniform() < self.epsilon(n):
            return self.random.below(self.n_actions)
        return self.Q[s].index(max(self.Q[s]))

    def iterate(self):
        """One iteration: a replay, or one of the MDP and what matched mixing adds to it."""
        if self.s is None:
            self.s, self.step = self.start[self.random.pick([p for p, _ in self.start])][1], 0
        self.t += 1
        literal = self.weights is not None and self.mixing == "literal"
        if literal and self.t > self.T0 and self.random.uniform() < self.v:
            shares = self.share_of_pairs()
            if shares:
                pairs = sorted(shares)
                self.replay(pairs[self.random.pick([shares[i] for i in pairs])])
                return
        s = self.s
        a = self.choose(s)
        outcomes = self.table[s][a]
        k = 0 if len(outcomes) == 1 else self.random.pick([x[0] for x in outcomes])
        _, s_next, r, ends = outcomes[k]
        pair = s * self.n_actions + a
        self.visits[pair] += 1
        self.history.append((pair, r, s_next, ends))
        self.learn_from(s, a, r, s_next, ends)
        if self.weights is not None and self.mixing == "matched" and self.t >= self.T0:
            shares = self.share_of_pairs()
            if shares:
                times = self.v * shares[pair] / (1 - self.v) + self.random.uniform()
                for _ in range(int(times)):
                    self.replay(pair)
                    self.t += 1
        self.step += 1
        over = ends or self.step >= self.max_steps
        self.episode += over
        self.s = None if over else s_next
