"""Limits of literal replay: self-consistent action values and visits.

In Algorithm 1 as written, the share of a pair's updates that are replays depends on d(s,a), the share of MDP iterations
that visit it, and the visits depend on the policy, which explores by Q. So a limit is a self-consistent pair,

    Q  =  H_d Q,        d  =  the visits of the policy that explores by Q.

A run of at most T steps from the start, under probabilities π(a|s), visits

    d(s,a)  ∝  π(a|s) · Σ_{t<T} (start · P_π^t)(s),        P_π(s,s')  =  Σ_a π(a|s) · q(s'|s,a), ends left out.

There can be many limits. A greedy pair is visited often, so fewer of its updates are replays; with pessimistic replay
this keeps it greedy, so a policy reinforces itself. Under ε-greedy exploration d depends on the greedy policy alone. So
a policy that is greedy for the Q of its own visits is a limit, and it is attracting: d is constant near it, and H is a
contraction. With optimistic replay, two policies may each make the other one greedy. Learning then alternates between
them, and its average is a mixture of their visits for which both are greedy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import nnls

from .. import _checks
from .._checks import Bools, Floats, Ints
from ..learners import ReplayQLearning
from ..mdp import TabularMDP
from ..runs import Runs, learn, resolved
from ..schedules import EpsilonGreedy, Exploration, StepSize
from ..schemes import Scheme
from .operator import limit_weights, weighted
from .solver import DENSE, optimal

OFTEN = 500  # visits above which a learned value is compared with a limit
NEAR = 0.15  # largest distance of a learned Q from its limit, as a share of the limit's range
TIE = 1e-9  # values that differ by less than this share of the range are equal
ALIKE = 1e-6  # limits that differ by less than this share of the range are the same
RESIDUAL = 1e-3  # of a mixture, as a share of the range, maximum
ROUNDS = 1_000  # of an iteration, maximum
# Rounds of averaging, in blocks; each block uses only the one before: where W is small, even few old visits matter.
BLOCKS = (32, 32, 64, 128, 256, 512)
NEWTON = 8  # steps of Newton's method, maximum
NUDGE = 1e-5  # of its differences
LOOK = 16  # steps between two checks of the remaining probability
HEAVY = 1e4  # weight of 'shares sum to 1' relative to 'gaps close', and of that relative to 'stay near'


def behaviour(Q: Any, exploration: Exploration | None = None) -> Floats:
    """The probabilities of the actions in the limit of infinite learning, [S, A].

    Greedy (ties go to the first) with probability 1 − ε, else uniform, the greedy action included; or ∝ e^{Q/T}.
    A rate that falls to 0 leaves the greedy action. ``exploration`` defaults to ε-greedy with ε = 0.1.
    """
    exploration = EpsilonGreedy() if exploration is None else exploration
    _checks.require(isinstance(exploration, Exploration), "exploration", "be an Exploration", exploration)
    Q = _checks.finite_array("Q", Q)
    _checks.require(Q.ndim == 2 and Q.size > 0, "Q", "have shape (states, actions)", Q.shape)
    rate = exploration.limit_rate
    if exploration.SOFTMAX and rate > 0.0:
        scaled = np.exp((Q - Q.max(1, keepdims=True)) / rate)
        return np.asarray(scaled / scaled.sum(1, keepdims=True))
    epsilon = 0.0 if exploration.SOFTMAX else min(max(rate, 0.0), 1.0)
    greedy = np.eye(Q.shape[1])[Q.argmax(1)]
    return np.asarray((1.0 - epsilon) * greedy + epsilon / Q.shape[1])


def visitation(mdp: TabularMDP, behaviour: Any, max_steps: int = 1_000) -> Floats:
    """d(s,a) of a behaviour [S, A]: the share of steps at each pair over infinitely many episodes, [S, A].

    An episode begins at the model's start, and ends with a terminal outcome or after ``max_steps`` steps, as in
    :func:`safereplay.learn`. Exact: Σ_{t<T} start·P^t, by doubling t for small models, else step by step.
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    b = _checks.finite_array("behaviour", behaviour, (mdp.n_states, mdp.n_actions))
    fair = bool((b >= 0.0).all() and np.allclose(b.sum(1)[~mdp.is_terminal], 1.0, rtol=0.0, atol=1e-9))
    _checks.require(fair, "behaviour", "be probabilities that sum to 1 in each state", b)
    steps = _checks.whole("max_steps", max_steps, 1)
    onward = np.where(mdp.terminal, 0.0, mdp.p * b.ravel()[mdp.pair])
    moves = sparse.coo_array((onward, (mdp.pair // mdp.n_actions, mdp.s_next)), shape=(mdp.n_states, mdp.n_states))
    x, total = mdp.start, np.zeros(mdp.n_states)
    if mdp.n_states <= DENSE:  # G_k = Σ_{t<k} P^t, and G_2k = G_k + P^k·G_k: T is split into powers of two
        P, G = moves.toarray(), np.eye(mdp.n_states)
        while steps:
            if steps % 2:
                total, x = total + x @ G, x @ P
            steps //= 2
            if steps:
                G, P = G + P @ G, P @ P
    else:  # until the remaining probability is negligible
        back = sparse.csr_array(moves.T)
        for step in range(steps):
            total += x
            x = back @ x
            if step % LOOK == 0 and x.sum() <= 1e-17 * total.sum():
                break
    return np.asarray(total[:, None] * b / total.sum())


class SelfConsistent(NamedTuple):
    """A limit of literal replay: Q is the fixed point of H with d, and d are the visits when exploring by Q.

    Parameters
    ----------
    Q, d : array [S, A]
    policy : array [S]; greedy for Q; for a mixture, the policy with the largest share
    starts : int; number of starts of the search that led here
    learned, distance : float or None
        Share of the seeds whose learning ends here, and the median of their largest |Q_learned − Q| as a share of Q's
        range; None without seeds.
    settled : bool; whether the policy is greedy for its own Q; otherwise a mixture of policies at a tie
    residual : float; how far a policy of the mixture falls short of greedy (softmax: d from its own visits)

    >>> import safereplay as sr
    >>> bold = sr.VarianceReplay(beta=-2.0)
    >>> rows = [(0, 0, 0.5, 1, 1.0, True), (0, 0, 0.5, 1, -1.0, True), (0, 1, 1.0, 1, 0.7, True)]
    >>> coin = sr.TabularMDP.from_outcomes(2, 2, rows)            # toss a coin for ±1, or take 0.7
    >>> (limit,) = sr.fixed_point(coin, bold, v=0.5, visitation="self", seeds=0)
    >>> limit.settled, limit.Q[0].round(3), limit.d[0].round(3)   # tossed as often as makes it worth 0.7
    (False, array([0.7, 0.7]), array([0.377, 0.623]))
    """

    Q: Floats
    d: Floats
    policy: Ints
    starts: int
    learned: float | None
    distance: float | None
    settled: bool
    residual: float

    def __repr__(self) -> str:
        learned = "" if self.learned is None else f", learned={self.learned:g}"
        distance = "" if self.distance is None else f", distance={self.distance:.3g}"
        kind = "settled" if self.settled else f"mixture, residual={self.residual:.2g}"
        low, high = float(self.Q.min()), float(self.Q.max())
        return f"SelfConsistent(Q from {low:.4g} to {high:.4g}, starts={self.starts}{learned}{distance}, {kind})"

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON."""
        return {name: x.tolist() if isinstance(x, np.ndarray) else x for name, x in self._asdict().items()}


def self_consistent(
    mdp: TabularMDP,
    scheme: Scheme,
    v: float = 0.5,
    exploration: Exploration | None = None,
    *,
    starts: int = 64,
    seeds: int = 20,
    episodes: int = 50_000,
    step_size: StepSize | None = None,
    max_steps: int = 1_000,
    seed: int = 0,
    solves: int | None = None,
    quiet: bool = True,
) -> tuple[SelfConsistent, ...]:
    """The limits of literal replay that the search finds, those that learning ends at most often first.

    From each of ``starts`` policies, and from the results of ``seeds`` runs of the learner, the iteration
    policy → d → Q → greedy policy is followed until it stops changing. If it cycles instead, visits are averaged,
    d ← d + (d_π − d)/k with π greedy for the Q of d. This converges, or reaches a tie between policies that each make
    another one greedy, or is abandoned. So every limit listed is one, up to its residual; other limits may exist.
    Each run then counts for the limit nearest to its Q, over the pairs that it
    visited often; if all are further away than 0.15 of the range, it counts for none.

    Policies that differ only in tied actions belong to one limit. ``seeds`` 0 trains nothing. The scheme must have a
    limit, and every pair that the scheme replays must be reachable from the start. Exploration is assumed to visit every
    pair infinitely often: with ε = 0 it does not, and runs are near no limit.

    ``solves`` bounds the search: about this many fixed points of H are solved. All starts are followed first, since
    those that converge do so soon; the rest is used for averaging. If no limit is found, the best approximation is
    listed, with its residual.
    """
    # Limits exist for any v below 1; runs of literal replay, made below, accept v up to MOST_V.
    learner = ReplayQLearning(scheme, v, mixing="matched")
    exploration, step_size = resolved(mdp, learner, exploration, step_size)
    count, runs_wanted = _checks.whole("starts", starts, 1), _checks.whole("seeds", seeds, 0, bits=24)
    _checks.whole("episodes", episodes, 1)
    _checks.flag("quiet", quiet)
    first = _checks.whole("seed", seed, 0)
    most = inf if solves is None else _checks.whole("solves", solves, 1)
    search = _Search(mdp, scheme, learner.v, exploration, _checks.whole("max_steps", max_steps, 1), most)
    for Q in _starts(search, count, first):
        search.follow(Q, 1)
    search.average_cycles()
    if not runs_wanted:
        return search.ranked(None)
    listed = range(first, first + runs_wanted)
    learner = replace(learner, mixing="literal")
    runs = learn(mdp, learner, episodes, listed, exploration, step_size, max_steps=max_steps, quiet=quiet).whole()
    for Q in runs.Q:
        search.follow(Q, 0)
    for k in np.flatnonzero(search.nearest(runs)[0] < 0):
        search.average([runs.visitation[k]], runs.policy[k], 0)
    return search.ranked(runs)


def _starts(search: _Search, count: int, seed: int) -> Iterator[Floats]:
    """Q*, the Q of constant visits, 0 as the learner's initial Q, and random values between the extremes of the first two."""
    mdp, shape = search.mdp, (search.mdp.n_states, search.mdp.n_actions)
    known = [optimal(mdp, mdp.p), *(search.values(np.full(shape, x)) for x in (1.0, 1.0 / mdp.n_pairs, 0.0))]
    low, high = min(float(Q.min()) for Q in known), max(float(Q.max()) for Q in known)
    known.append(np.zeros(shape))
    yield from known[:count]
    generator = np.random.default_rng(seed)
    for _ in range(count - len(known)):
        yield generator.uniform(low, high, shape)


class _Mix(NamedTuple):
    """A mixture of policies: the policies, their shares of the time, and the visits of each."""

    policies: Ints  #: [m, S]
    shares: Floats  #: [m], largest first
    visits: Floats  #: [m, S, A]

    @property
    def d(self) -> Floats:
        """The visits of the mixture, [S, A]."""
        return np.asarray(np.tensordot(self.shares, self.visits, 1))


class _Seen(NamedTuple):
    """The features that distinguish limits."""

    met: Bools  #: [S] states that are visited
    best: Bools  #: [S, A] which actions tie with the best
    width: float  #: the range of Q


class _Search:
    """The search: the limits found so far, and the steps that find them."""

    def __init__(
        self, mdp: TabularMDP, scheme: Scheme, v: float, exploration: Exploration, max_steps: int, most: float = inf
    ) -> None:
        self.mdp, self.scheme, self.v, self.exploration, self.max_steps = mdp, scheme, v, exploration, max_steps
        self.w, self.most, self.solved = limit_weights(mdp, scheme), most, 0
        self.near: Floats | None = None  # the last values, from which the next search starts
        self.smooth = exploration.SOFTMAX and exploration.limit_rate > 0.0
        self.found: list[SelfConsistent] = []
        self.seen: list[_Seen] = []  # features of each of these
        self.averaged: dict[bytes, SelfConsistent | None] = {}
        self.cycles: list[tuple[list[Floats], Ints, int]] = []  # cycles that a bounded search has still to average
        self.open: list[SelfConsistent] = []  # results of averaging that did not converge
        self.states = np.arange(mdp.n_states)
        H = weighted(mdp, self.w, v, np.zeros((mdp.n_states, mdp.n_actions)))
        anything = np.full(H.rho.shape, 1.0 / mdp.n_actions)
        lost = (visitation(mdp, anything, max_steps) == 0.0) & (H.rho > 0.0)
        said = f"{int(lost.sum())} that cannot be reached"
        _checks.require(not lost.any(), "start", "lead to every pair that is replayed", said)

    def values(self, d: Floats) -> Floats:
        """Q = H_d Q."""
        self.solved += 1
        Q = weighted(self.mdp, self.w, self.v, d).fixed_point(self.near)
        self.near = Q.max(1)
        return Q

    def exhausted(self, ahead: int = 0) -> bool:
        """Whether ``ahead`` more fixed points would exceed the bound."""
        return self.solved + ahead >= self.most

    @property
    def listed(self) -> list[SelfConsistent]:
        """The limits found; if there are none and the search was cut short, the best approximation."""
        return self.found or sorted(self.open, key=lambda one: one.residual)[:1]

    def visits(self, Q: Floats) -> Floats:
        """d when exploring by Q."""
        return visitation(self.mdp, behaviour(Q, self.exploration), self.max_steps)

    def visits_of(self, policy: Ints) -> Floats:
        """d when exploring around a greedy policy."""
        return self.visits(np.eye(self.mdp.n_actions)[policy])

    def width(self, Q: Floats) -> float:
        """The range of Q over states with outcomes; 1 if it is 0."""
        return float(np.ptp(Q[~self.mdp.is_terminal])) or 1.0

    def improved(self, Q: Floats, policy: Ints) -> Ints:
        """The greedy policy for Q, which keeps its action unless another is better."""
        better = ~self.mdp.is_terminal & (Q.max(1) > Q[self.states, policy] + TIE * self.width(Q))
        return np.where(better, Q.argmax(1), policy)

    def follow(self, Q: Floats, starts: int) -> None:
        """Iterate policy → d → Q → policy from the greedy policy of Q, and keep the result."""
        if self.smooth:
            return self.relax(Q, starts)
        policy = self.improved(Q, np.zeros(self.mdp.n_states, np.int64))
        trail: dict[bytes, Floats] = {}
        while policy.tobytes() not in trail and len(trail) < ROUNDS and not (self.exhausted() and trail):
            d = trail[policy.tobytes()] = self.visits_of(policy)
            Q = self.values(d)
            after = self.improved(Q, policy)
            if np.array_equal(after, policy):
                return self.keep(SelfConsistent(Q, d, policy, starts, None, None, True, 0.0))
            policy = after
        names = list(trail)
        cycle = names[names.index(policy.tobytes()) if policy.tobytes() in trail else len(names) // 2 :]
        self.cycles.append(([trail[name] for name in cycle], policy, starts))
        return None if self.most < inf else self.average_cycles()

    def average_cycles(self) -> None:
        """Average the cycles; a search that has reached its bound does so only if it has found nothing."""
        for cycle in self.cycles:
            if not (self.exhausted() and self.listed):
                self.average(*cycle)
        self.cycles.clear()

    def relax(self, Q: Floats, starts: int) -> None:
        """d ← d + η·(d(Q(d)) − d), η halved whenever the step does not shrink: for exploration that is smooth in Q."""
        d, eta, before = self.visits(Q), 1.0, np.inf
        for _ in range(ROUNDS):
            Q = self.values(d)
            step = self.visits(Q) - d
            residual = float(np.abs(step).sum())
            if residual <= TIE:
                policy = np.asarray(Q.argmax(1), np.int64)
                return self.keep(SelfConsistent(Q, d, policy, starts, None, None, True, residual))
            eta = eta if residual < before else eta / 2.0
            d, before = d + eta * step, residual
        return None

    def average(self, visits: list[Floats], policy: Ints, starts: int) -> None:
        """Average visits, starting from the mean of these, once, and keep the result."""
        if self.smooth:
            return self.relax(self.values(visits[0]), starts)
        d = np.mean(visits, 0)
        key = d.round(12).tobytes()
        if key not in self.averaged:
            self.averaged[key] = self.averaging(d, len(visits), policy)
        found = self.averaged[key]
        return None if found is None else self.keep(found._replace(starts=starts))

    def averaging(self, d: Floats, k: int, policy: Ints) -> SelfConsistent | None:
        """d ← d + (d_π − d)/k, π greedy for the Q of d: a settled policy, a tie, or None."""
        known: dict[bytes, Floats] = {}
        for rounds in BLOCKS:
            met: Counter[bytes] = Counter()
            for _ in range(rounds):
                if self.exhausted() and met:
                    break
                policy = self.improved(self.values(d), policy)
                name = policy.tobytes()
                if name not in known:
                    known[name] = self.visits_of(policy)
                met[name] += 1
                k += 1
                d = d + (known[name] - d) / k
            names, counts = zip(*met.most_common(), strict=True)
            policies = np.array([np.frombuffer(name, np.int64) for name in names])
            mix = _Mix(policies, np.array(counts) / met.total(), np.array([known[name] for name in names]))
            found = self.tied(mix) or self.balance(mix)
            if found.residual <= TIE or self.exhausted():
                break
            d, k = mix.d, rounds
        if found.residual <= RESIDUAL:
            return found
        self.open += [found] * self.exhausted()
        return None

    def tied(self, mix: _Mix) -> SelfConsistent | None:
        """The earlier mixture whose ties include all differences between these policies."""
        mixtures = [one for one in self.found if not one.settled]
        inside = (one._replace(residual=0.0) for one in mixtures if self.best(one)[self.states, mix.policies].all())
        return next(inside, None) if len(mix.shares) > 1 else None

    def balance(self, mix: _Mix) -> SelfConsistent:
        """The shares for which all policies with a positive share are greedy, by Newton's method, as near as it gets."""
        found = self.mixture(mix)
        for _ in range(NEWTON):
            if found.residual <= TIE or len(mix.shares) == 1 or self.exhausted(len(mix.shares)):
                break
            mix = self.newton(mix)
            found = min(found, self.mixture(mix), key=lambda one: one.residual)
        return found

    def mixture(self, mix: _Mix) -> SelfConsistent:
        """The Q of mixed visits, and how far the worst of the policies falls short of greedy for it."""
        d = mix.d
        Q = self.values(d)
        residual = float((Q.max(1) - Q[self.states, mix.policies]).max()) / self.width(Q)
        settled = len(mix.shares) == 1 and residual <= TIE
        return SelfConsistent(Q, d, mix.policies[0], 0, None, None, settled, residual)

    def newton(self, mix: _Mix) -> _Mix:
        """The mix with shares one Newton step nearer to closing the gaps between the actions in which its policies differ.

        Adding z_i of the visits of policy i alone, the gaps are g + Σ z_i·g_i to first order. The least z that closes
        them gives the new shares; if one of these is negative, the shares x ≥ 0 that minimise g + Σ x_i·g_i are used.
        """

        def gaps(d: Floats) -> Floats:
            Q = self.values(d)
            return np.asarray((Q[self.states, mix.policies[1:]] - Q[self.states, mix.policies[0]]).ravel())

        d, m = mix.d, len(mix.shares)
        here = gaps(d)
        slopes = np.stack([(gaps(d + NUDGE * (other - d)) - here) / NUDGE for other in mix.visits], 1)
        z = np.linalg.lstsq(slopes, -here, rcond=1e-8)[0]
        x = mix.shares * (1.0 - z.sum()) + z
        if x.min() < 0.0:
            scale = float(np.abs(slopes).max())
            rows = np.vstack([slopes / scale, np.full((1, m), HEAVY), np.eye(m) / HEAVY])
            x = nnls(rows, np.concatenate([-here / scale, [HEAVY], mix.shares / HEAVY]))[0]
        kept = np.flatnonzero(x > 0.0)
        return _Mix(mix.policies[kept], x[kept] / x.sum(), mix.visits[kept])

    def keep(self, new: SelfConsistent) -> None:
        """Add a limit, or count it for one that is equal in Q, or in the set of best actions."""
        seen = _Seen(new.d.sum(1) > 0.0, self.best(new), self.width(new.Q))
        for k, (old, known) in enumerate(zip(self.found, self.seen, strict=True)):
            either = (known.met | seen.met)[:, None]  # the states that either visits
            tied_alike = not self.smooth and not (either & (known.best != seen.best)).any()
            if tied_alike or np.abs(old.Q - new.Q).max(where=either, initial=0.0) <= ALIKE * known.width:
                self.found[k] = old._replace(starts=old.starts + new.starts)
                return
        self.found.append(new)
        self.seen.append(seen)

    def best(self, one: SelfConsistent) -> Bools:
        """Which actions tie with the best, [S, A]."""
        short = one.Q.max(1, keepdims=True) - one.Q
        return np.asarray(short <= max(ALIKE, 2.0 * one.residual) * self.width(one.Q))

    def nearest(self, runs: Runs) -> tuple[Ints, Floats]:
        """For each run, the limit nearest to its Q, −1 if none is near, and its distance."""
        which, far = np.full(len(runs.seeds), -1), np.full(len(runs.seeds), np.inf)
        for i, (Q, visits) in enumerate(zip(runs.Q, runs.visits, strict=True)):
            often = often_visited(visits)
            errors = [float(np.abs(Q - one.Q)[often].max()) / self.width(one.Q) for one in self.found]
            if min(errors, default=np.inf) <= NEAR:
                which[i], far[i] = int(np.argmin(errors)), min(errors)
        return which, far

    def ranked(self, runs: Runs | None) -> tuple[SelfConsistent, ...]:
        """The limits found, with the share of runs that end there, most frequent first."""
        found = self.listed
        if runs is not None:
            which, far = self.nearest(runs)
            shares = [float(np.mean(which == k)) for k in range(len(found))]
            medians = [float(np.median(far[which == k])) if x else None for k, x in enumerate(shares)]
            found = [one._replace(learned=x, distance=m) for one, x, m in zip(found, shares, medians, strict=True)]
        return tuple(sorted(found, key=lambda one: (-(one.learned or 0.0), -one.starts)))


def often_visited(visits: Ints) -> Bools:
    """Pairs visited more than 500 times, or more than a tenth of the maximum if there are none, [S, A]."""
    return np.asarray(visits > min(OFTEN, int(visits.max()) // 10))
