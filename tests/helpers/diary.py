"""Replay from a history, as plainly as it can be written: the whole past in a list, each rule from its definition.

Nothing here comes from the package but the seed's words and the numbers of the model. Ranks are exact here.
"""

import math

import numpy as np
from reference import Xoshiro


class Diary:
    """One run. ``rule(diary)`` gives the index of the past transition to replay, or None; it draws from ``diary.random``.

    A transition is [pair, r, s', ends, stops, outcome, priority]; ``past[-window:]`` is the window.
    """

    def __init__(self, mdp, words, rule, window=10**9, v=0.0, alpha=None, epsilon=0.1, max_steps=1_000):
        self.mdp, self.random, self.rule, self.window, self.v = mdp, Xoshiro(words), rule, window, v
        self.alpha, self.epsilon, self.max_steps = alpha, epsilon, max_steps
        self.Q = [0.0] * mdp.n_pairs
        self.updates, self.visits, self.replays = ([0] * mdp.n_pairs for _ in range(3))
        self.past, self.s, self.step, self.episodes = [], None, 0, 0
        self.top, self.ages = 1.0, []  # the largest priority so far; how old each replayed transition was
        self.starts = np.flatnonzero(mdp.start > 0).tolist()

    def oldest(self):
        return max(0, len(self.past) - self.window)

    def best(self, s):
        return max(self.Q[s * self.mdp.n_actions : (s + 1) * self.mdp.n_actions])

    def one_step(self, r, s_next, ends):
        return r + self.mdp.gamma * (0.0 if ends else self.best(s_next))

    def learn(self, pair, y, weight=1.0):
        self.updates[pair] += 1
        a = self.alpha(self.updates[pair]) * weight
        self.Q[pair] = (1.0 - a) * self.Q[pair] + a * y

    def iterate(self, first):
        if self.s is None:
            self.s, self.step = self.starts[self.random.pick(self.mdp.start[self.starts].tolist())], 0
        found = None if first else self.rule(self)
        if found is None:
            self.walk(first)
        else:
            self.replay(*found)

    def replay(self, t, y=None, weight=1.0, priority=None):
        pair, r, s_next, ends, *_ = self.past[t]
        y = self.one_step(r, s_next, ends) if y is None else y
        if priority is not None:
            self.past[t][6] = priority(abs(y - self.Q[pair]))
            self.top = max(self.top, self.past[t][6])
        self.replays[pair] += 1
        self.ages.append(len(self.past) - 1 - t)
        self.learn(pair, y, weight)

    def walk(self, first):
        A = self.mdp.n_actions
        values = self.Q[self.s * A : (self.s + 1) * A]
        if first or self.random.uniform() < self.epsilon:
            a = self.random.below(A)
        else:
            a = values.index(max(values))
        pair = self.s * A + a
        low, high = int(self.mdp.row[pair]), int(self.mdp.row[pair + 1])
        k = low if high - low == 1 else low + self.random.pick(self.mdp.p[low:high].tolist())
        r, s_next, ends = float(self.mdp.r[k]), int(self.mdp.s_next[k]), bool(self.mdp.terminal[k])
        self.visits[pair] += 1
        self.learn(pair, self.one_step(r, s_next, ends))
        self.step += 1
        stops = ends or self.step >= self.max_steps
        self.past.append([pair, r, s_next, ends, stops, k, self.top])
        self.s, self.episodes = (None, self.episodes + 1) if stops else (s_next, self.episodes)

    def due(self):
        return self.v > 0 and self.random.uniform() < self.v


def uniform(diary):
    """Any of the window."""
    if not diary.due():
        return None
    return (oldest_first(diary, diary.random.below(min(len(diary.past), diary.window))),)


def oldest_first(diary, place):
    """The transition at a place of a ring: t with t mod window = place."""
    n, N = len(diary.past), diary.window
    return place if n <= N else next(t for t in range(n - N, n) if t % N == place)


def recent(eta, least, cycle):
    """The k-th of a cycle from the most recent c_k."""
    k = 0

    def rule(diary):
        nonlocal k
        if not diary.due():
            return None
        k = 1 if k == cycle else k + 1
        c = min(int(max(diary.window * eta ** (k * 1000.0 / cycle), least)), len(diary.past), diary.window)
        return (len(diary.past) - 1 - diary.random.below(max(c, 1)),)

    return rule


def combined(batch):
    """The newest first, then any."""
    done = 0

    def rule(diary):
        nonlocal done
        if not diary.due():
            return None
        done += 1
        if (done - 1) % batch == 0:
            return (len(diary.past) - 1,)
        return (oldest_first(diary, diary.random.below(min(len(diary.past), diary.window))),)

    return rule


def proportional(alpha, beta, floor):
    """∝ priorities, summed one by one over places of the ring."""

    def rule(diary):
        if not diary.due():
            return None
        N = diary.window
        window = sorted(range(diary.oldest(), len(diary.past)), key=lambda t: t % N)
        p = [diary.past[t][6] for t in window]
        x, total = diary.random.uniform() * sum(p), 0.0
        t = window[-1]
        for place, weight in zip(window, p, strict=True):
            total += weight
            if x < total:
                t = place
                break
        w = (min(p) / diary.past[t][6]) ** beta
        by_definition = (len(p) * diary.past[t][6] / sum(p)) ** -beta / max((len(p) * x / sum(p)) ** -beta for x in p)
        assert math.isclose(w, by_definition, rel_tol=1e-9)  # of the two, the one that ties round alike
        return t, None, w, lambda error: (error + floor) ** alpha

    return rule


def backward(beta):
    """Whole episodes from their end."""
    going, ahead = [], None  # transitions of the episode that are left, and the target of the one after

    def rule(diary):
        nonlocal going, ahead
        if not diary.due():
            return None
        if not going or going[-1] < diary.oldest():
            going, ahead = drawn_episode(diary), None
            if not going:
                return None
        t = going.pop()
        _, r, s_next, ends, *_ = diary.past[t]
        if ahead is None:
            ahead = diary.one_step(r, s_next, ends)
        else:
            A, after = diary.mdp.n_actions, diary.past[t + 1][0]
            mixed = [diary.Q[s_next * A + a] for a in range(A)]
            assert after // A == s_next
            mixed[after % A] = beta * ahead + (1.0 - beta) * diary.Q[after]
            ahead = r + diary.mdp.gamma * max(mixed)
        return t, ahead

    return rule


def drawn_episode(diary):
    """The transitions of an episode that is whole in the window; none if there is none."""
    ends = [t for t, one in enumerate(diary.past) if one[4]]
    episodes = [range(a, b + 1) for a, b in zip([0, *(t + 1 for t in ends)], ends, strict=False)]
    whole = [list(e) for e in episodes if e[0] >= diary.oldest()]
    return whole[diary.random.below(len(whole))] if whole else []


def dyna(n, counted):
    """Planning from a state seen before and an action tried there."""
    left = 0
    walked = 0

    def rule(diary):
        nonlocal left, walked
        if len(diary.past) != walked:
            left, walked = n, len(diary.past)
        if left == 0:
            return None
        left -= 1
        A = diary.mdp.n_actions
        states = list(dict.fromkeys(one[0] // A for one in diary.past))
        s = states[diary.random.below(len(states))]
        tried = sorted({one[0] for one in diary.past if one[0] // A == s})
        pair = tried[diary.random.below(len(tried))]
        past = [t for t, one in enumerate(diary.past) if one[0] == pair]
        if counted:  # in the order of the model's outcomes
            past.sort(key=lambda t: diary.past[t][5])
            return (past[diary.random.below(len(past))],)
        return (past[-1],)

    return rule


def kept(mdp, seed_words, rule, iterations, **options):
    """A diary of so many iterations."""
    diary = Diary(mdp, seed_words, rule, **options)
    for t in range(iterations):
        diary.iterate(first=t == 0)
    return diary
