"""The paper's theorem tested on random models: to which limit does learning converge, and how fast?

With d(s,a) the share of MDP iterations at a pair, the limit of Algorithm 1 is the fixed point of H with d; the paper's
proof takes d ≡ 1. On random models both limits are computed, and learning shows which one is right. Under matched mixing
the paper's limit is right, and its error is measured over the number of episodes. With step sizes n^−0.6 the noise of Q
falls as the square root of the step size, so a slope of −0.3 is the best possible.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan
from typing import NamedTuple

import numpy as np

from .._types import Bools, Floats, Ints
from ..learners import ReplayQLearning
from ..mdp import TabularMDP
from ..schedules import EpsilonGreedy
from ..schemes import Scheme, VarianceReplay
from ..theory.limits import fixed_point
from ..theory.visits import often_visited
from .experiments import GRIDS, MATCHED, Effort, Work, run

BETAS = (-1.0, -0.3, 0.0, 0.1, 0.3, 1.0, 5.0)
EPSILONS = (0.05, 0.1, 0.3)
LATE = 10  # snapshots in the second half of a run; their spread is the noise
RATE_MODELS = 6  # random models besides the grids
RATE_POINTS = 7  # numbers of episodes
RATE_FIRST = 1_000
RATE_LONGER = 2  # times the length of a long run


@dataclass(frozen=True)
class TiltReplay(Scheme):
    """Equal weights of pairs, rewards ∝ e^{−βr}: shaped replay that does not prefer volatile pairs."""

    beta: float = 1.0

    @staticmethod
    def log_tilt(r: float, beta: float) -> float:
        """−βr."""
        return -beta * r


class Drawn(NamedTuple):
    """A random model, its learner and its exploration."""

    mdp: TabularMDP
    learner: ReplayQLearning
    exploration: EpsilonGreedy


def draw(seed: int) -> Drawn:
    """A model of 3–9 states and 2–4 actions, with its γ, scheme, β, v and ε: all from one seed.

    >>> draw(0).mdp.n_states, draw(0).learner.describe()
    (8, 'replay(v=0.66)')
    """
    generator = np.random.default_rng(seed)
    S, A = int(generator.integers(3, 10)), int(generator.integers(2, 5))
    rows = []
    for s in range(S - 1):
        for a in range(A):
            n = int(generator.integers(1, 5))
            for p in generator.dirichlet(np.ones(n)):
                s_next, r = int(generator.integers(S)), float(generator.integers(-9, 10))
                rows.append((s, a, p, s_next, r, s_next == S - 1, r <= -5.0))
    gamma, v = round(float(generator.uniform(0.5, 0.97)), 3), round(float(generator.uniform(0.1, 0.9)), 2)
    beta, epsilon = float(generator.choice(BETAS)), float(generator.choice(EPSILONS))
    scheme = (VarianceReplay(beta), VarianceReplay(beta), TiltReplay(beta), Scheme())[int(generator.integers(4))]
    mdp = TabularMDP.from_outcomes(S, A, rows, gamma, name=f"random {seed}")
    return Drawn(mdp, ReplayQLearning(scheme, v), EpsilonGreedy(epsilon))


# -- which limit --------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One run of literal replay, and both limits.

    Distances are the largest over the pairs that the run visited often, as a share of the range of Q there.
    """

    model: str
    seed: int
    n_states: int
    n_actions: int
    gamma: float
    scheme: str
    beta: float  #: NaN for a scheme without β
    v: float
    epsilon: float
    apart: float  #: distance of the two limits
    noise: float  #: the spread of Q over the second half of the run
    error_visited: float  #: distance of the learned Q from the limit with d(s,a)
    error_paper: float  #: distance from the paper's limit

    @property
    def differs(self) -> bool:
        """Whether the limits differ by more than the noise."""
        return self.apart > self.noise

    @property
    def nearer(self) -> bool:
        """Whether the learned Q is nearer to the limit with d(s,a)."""
        return self.error_visited < self.error_paper


@dataclass(frozen=True)
class RandomModels:
    """Literal replay on random models."""

    episodes: int
    cases: tuple[Case, ...]

    @property
    def differing(self) -> tuple[Case, ...]:
        """Models whose limits differ by more than the noise."""
        return tuple(case for case in self.cases if case.differs)

    @property
    def exceptions(self) -> tuple[Case, ...]:
        """The differing models on which the learned Q is at least as near to the paper's limit."""
        return tuple(case for case in self.differing if not case.nearer)


def run_random_models(effort: Effort, work: Work) -> RandomModels:
    """Literal replay on each of 200 random models (40 in a quick study), one run per model."""
    episodes = effort.map_episodes
    cases = work.map(lambda seed: judge(draw(seed), seed, episodes), range(effort.random_models))
    return RandomModels(episodes, tuple(cases))


def judge(drawn: Drawn, seed: int, episodes: int) -> Case:
    """Learn, and measure the distance to both limits.

    The noise is the largest spread of a pair's Q over the snapshots of the run's second half.
    """
    mdp, learner, exploration = drawn
    points = np.linspace(episodes // 2, episodes, LATE).astype(int).tolist()
    runs = run(mdp, learner, episodes, [seed], exploration, points)
    if runs.snapshots is None:
        raise AssertionError("a run with snapshots has them")
    Q, often = runs.Q[0], often_visited(runs.visits[0])
    visited = fixed_point(mdp, learner.scheme, learner.v, runs.visitation[0])
    paper = fixed_point(mdp, learner.scheme, learner.v)
    measured = (paper - visited, np.ptp(runs.snapshots.Q[0], axis=0), Q - visited, Q - paper)
    return Case(
        mdp.name,
        seed,
        mdp.n_states,
        mdp.n_actions,
        mdp.gamma,
        type(learner.scheme).__name__,
        float(getattr(learner.scheme, "beta", nan)),
        learner.v,
        exploration.epsilon,
        *(largest(x, often, visited) for x in measured),
    )


def largest(differences: Floats, often: Bools, limit: Floats) -> float:
    """The largest |difference| over some pairs, as a share of the limit's range over them."""
    return float(np.abs(differences[often]).max()) / (float(np.ptp(limit[often])) or 1.0)


# -- how fast, where the limit is the paper's -----------------------------------------------------------------------------


@dataclass(frozen=True)
class MatchedRate:
    """Matched mixing and the paper's limit, over the number of episodes.

    An error is the largest over the pairs that the run visited often, as a share of the limit's range.
    """

    episodes: Ints  #: [m]
    errors: dict[str, Floats]  #: by model: [seeds, m]

    @property
    def slopes(self) -> dict[str, float]:
        """By model, the slope of log(median error over seeds) on log(episodes)."""
        x = np.log(self.episodes)
        return {name: float(np.polyfit(x, np.log(np.median(e, 0)), 1)[0]) for name, e in self.errors.items()}


def run_matched_rate(effort: Effort, work: Work) -> MatchedRate:
    """Matched mixing on both grids and on random models, from 1,000 episodes to twice a long run."""
    points = np.geomspace(RATE_FIRST, RATE_LONGER * effort.long_episodes, RATE_POINTS).astype(np.int64)
    models = {name: Drawn(make(), MATCHED, EpsilonGreedy()) for name, make in GRIDS.items()}
    for drawn in map(draw, range(RATE_MODELS)):
        models[drawn.mdp.name] = drawn._replace(learner=replace(drawn.learner, mixing="matched"))
    seeds = max(2, effort.curve_seeds // 5)
    jobs = [(name, seed) for name in models for seed in range(seeds)]
    done = np.array(work.map(lambda job: follow(models[job[0]], job[1], points), jobs))
    return MatchedRate(points, dict(zip(models, done.reshape(len(models), seeds, -1), strict=True)))


def follow(drawn: Drawn, seed: int, points: Ints) -> Floats:
    """The error against the paper's limit at each number of episodes, [m]."""
    mdp, learner, exploration = drawn
    runs = run(mdp, learner, int(points[-1]), [seed], exploration, points.tolist())
    if runs.snapshots is None:
        raise AssertionError("a run with snapshots has them")
    limit, often = fixed_point(mdp, learner.scheme, learner.v), often_visited(runs.visits[0])
    return np.array([largest(Q - limit, often, limit) for Q in runs.snapshots.Q[0]])
