"""Studies around the paper's experiments.

Sensitivity: verdicts over what the paper leaves open, which is γ, exploration, layouts, slips, v and β.
Learning curves: w_t against w^∞, Q against its two limits, and the TD errors during learning.
Theory on the paper's grids: limits, conditions, and the gentlest replay under a limit on risk.

Ref: Szlak & Shamir (2021), Section 3, Section 4.

The paper's theorem tested on random models: to which limit does learning converge, and how fast?

With d(s,a) the share of MDP iterations at a pair, the limit of Algorithm 1 is the fixed point of H with d; the paper's
proof takes d ≡ 1. On random models both limits are computed, and learning shows which one is right. Under matched mixing
the paper's limit is right, and its error is measured over the number of episodes. With step sizes n^−0.6 the noise of Q
falls as the square root of the step size, so a slope of −0.3 is the best possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from .. import grids
from .._checks import Bools, Floats, Ints
from ..learners import Learner, QLearning, ReplayQLearning, RiskSensitive
from ..mdp import TabularMDP
from ..schedules import EpsilonGreedy
from ..schemes import Scheme, VarianceReplay
from ..theory.conditions import CheckReport, check
from ..theory.limits import exact, fixed_point
from ..theory.operator import limit_weights
from ..theory.solver import targets
from ..theory.theorem2 import Theorem2, theorem_2
from ..theory.tuning import Plan, tune
from ..theory.visits import SelfConsistent, often_visited
from ..verdicts import VERDICTS, verdict
from .experiments import GRIDS, MATCHED, MAX_STEPS, REPLAY, Effort, Sweep, Work, run


class Axis(NamedTuple):
    """A setting and its values."""

    name: str
    values: list[Any]


class Map(NamedTuple):
    """Shares of verdicts over two settings."""

    title: str
    x: Axis
    y: Axis
    shares: Floats  #: [y, x, 4] in the order of VERDICTS


def run_maps(effort: Effort, work: Work) -> dict[str, list[Map]]:
    """Verdicts over γ, ε, layout, slip, v and β; by grid."""
    n, plain, shaped = effort.map_points, "Q-learning", "replay (v = 0.5, β = 5)"
    gamma, v, beta = (
        Axis(name, [round(float(x), 3) for x in np.linspace(low, high, n)])
        for name, low, high in (("γ", 0.8, 0.99), ("v", 0.1, 0.9), ("β", -5.0, 5.0))
    )
    eps = Axis("ε", [0.01, 0.05, 0.1, 0.2, 0.3, 0.5][:: 1 if n > 5 else 2])
    slips = Axis("slip", [f"{p:g} {to}" for to in ("any", "others") for p in (0.0, 0.05, 0.1, 0.2, 0.3)])
    plans: list[tuple[str, str, Axis, Axis, Callable[..., tuple[TabularMDP, Learner, float]]]] = []
    for grid, make in GRIDS.items():
        layout = Axis("layout", list(grids.VOLATILE_LAYOUTS if grid == "volatile" else grids.CLIFF_LAYOUTS))
        plans += [
            (grid, plain, gamma, eps, lambda g, e, make=make: (make(g), QLearning(), e)),
            (grid, shaped, gamma, eps, lambda g, e, make=make: (make(g), REPLAY, e)),
            (grid, "replay", v, beta, lambda v, b, make=make: (make(), ReplayQLearning(VarianceReplay(b), v), 0.1)),
            (grid, plain, gamma, layout, lambda g, text, make=make: (make(g, layout=text), QLearning(), 0.1)),
            (grid, shaped, gamma, layout, lambda g, text, make=make: (make(g, layout=text), REPLAY, 0.1)),
        ]
    plans += [
        ("cliff", plain, gamma, slips, lambda g, slip: (_slippery(g, slip), QLearning(), 0.1)),
        ("cliff", shaped, gamma, slips, lambda g, slip: (_slippery(g, slip), REPLAY, 0.1)),
    ]

    def job(item: tuple[Callable[..., tuple[TabularMDP, Learner, float]], Any, Any]) -> Floats:
        mdp, learner, epsilon = item[0](*item[1:])
        runs = run(mdp, learner, 0, effort.map_seeds, EpsilonGreedy(epsilon), steps=effort.map_steps)
        return np.array([runs.verdicts.count(v) / effort.map_seeds for v in VERDICTS])

    shares = iter(work.map(job, [(made, a, b) for *_, x, y, made in plans for b in y.values for a in x.values]))
    maps: dict[str, list[Map]] = {grid: [] for grid in GRIDS}
    for grid, title, x, y, _ in plans:
        maps[grid].append(Map(title, x, y, np.array([[next(shares) for _ in x.values] for _ in y.values])))
    return maps


def _slippery(gamma: float, slip: str) -> TabularMDP:
    p, to = slip.split()
    return grids.cliff(gamma, slip=float(p), slip_to=to)


class BandRow(NamedTuple):
    """The exact κ band that is safe under one reading of the cliff."""

    layout: str
    slip_to: str
    gamma: float
    band: tuple[float, float] | None


def run_bands(effort: Effort, work: Work) -> list[BandRow]:
    """For each reading of the cliff, the κ whose exact limit is safe: 6 layouts × 2 slips × 4 γ."""
    kappas = np.round(np.arange(0.0, 1.0, 2 * effort.sweep_step), 6)
    readings = [(t, to, g) for t in grids.CLIFF_LAYOUTS for to in ("any", "others") for g in (0.8, 0.9, 0.95, 0.99)]

    def job(reading: tuple[str, str, float]) -> BandRow:
        mdp = grids.cliff(reading[2], layout=reading[0], slip_to=reading[1])
        found = [verdict(mdp, exact(mdp, RiskSensitive(float(k))).argmax(1)) for k in kappas]
        sweep = Sweep("κ", kappas, {}, {"cliff": found}, 0)
        return BandRow(*reading, sweep.band("cliff", "safe"))

    return work.map(job, readings)


@dataclass(frozen=True)
class Curves:
    """Long runs and their limits, one row per seed. Errors are the largest |Q − limit| over the pairs that the run
    visited more than MIN_VISITS times, as a share of the range of Q over them."""

    grid: str
    mixing: str
    episodes: Ints  #: [m]
    w_distance: Floats  #: [seeds, m] total variation between w_t and w^∞
    error_paper: Floats  #: [seeds, m] against the paper's limit
    error_visited: Floats  #: [seeds, m] against the limit with d(s,a)


MIN_VISITS = 500


def run_curves(effort: Effort, work: Work) -> list[Curves]:
    """Both mixings on both grids: w_t against w^∞, and Q against the two limits."""
    points = np.unique(np.geomspace(100, effort.long_episodes, effort.snapshots).astype(np.int64))
    settings = [(grid, learner) for grid in GRIDS for learner in (REPLAY, MATCHED)]
    jobs = [(grid, learner, seed) for grid, learner in settings for seed in range(effort.curve_seeds)]
    done = work.map(lambda job: _curve(*job, effort.long_episodes, points), jobs)
    curves = []
    for k, (grid, learner) in enumerate(settings):
        mine = np.stack(done[k * effort.curve_seeds : (k + 1) * effort.curve_seeds])
        curves.append(Curves(grid, learner.mixing, points, mine[:, 0], mine[:, 1], mine[:, 2]))
    return curves


def _curve(grid: str, learner: ReplayQLearning, seed: int, episodes: int, points: Ints) -> Floats:
    """[3, m]: the distance of w_t, and the errors against the paper's limit and the one with d(s,a)."""
    mdp = GRIDS[grid]()
    shots = run(mdp, learner, episodes, [seed], snapshots=points.tolist()).snapshots
    assert shots is not None
    assert shots.w is not None
    distance = 0.5 * np.abs(shots.w[0] - limit_weights(mdp, learner.scheme)).sum(1)
    paper = fixed_point(mdp, learner.scheme, learner.v)
    visits = shots.visits[0, -1]
    seen = visits > min(MIN_VISITS, int(visits.max()) // 10)  # a short run has no pair visited so often
    errors = []
    for Q, visits in zip(shots.Q[0], shots.visits[0], strict=True):
        visited = fixed_point(mdp, learner.scheme, learner.v, visits / visits.sum())
        errors.append([np.abs(Q - limit)[seen].max() for limit in (paper, visited)])
    return np.vstack([distance, np.array(errors).T / np.ptp(shots.Q[0, -1][seen])])


@dataclass(frozen=True)
class TdErrors:
    """The TD errors during the runs of a Mihatsch–Neuneier learner, as a weighted sample."""

    delta: dict[str, Floats]
    weight: dict[str, Floats]
    kappa: float
    seeds: int

    def histogram(self, grid: str, bins: int = 60) -> tuple[Floats, Floats]:
        """(edges, share of the updates in each bin)."""
        shares, edges = np.histogram(self.delta[grid], bins=bins, weights=self.weight[grid])
        return np.asarray(edges, np.float64), np.asarray(shares / shares.sum(), np.float64)


def run_td_errors(effort: Effort, work: Work) -> TdErrors:
    """δ = r + γ·max_b Q(s',b) − Q(s,a) at each snapshot, weighted by the visits since the last and by q(s',r|s,a)."""
    kappa = 0.5
    points = np.unique(np.geomspace(1, effort.episodes, 4 * effort.snapshots).astype(int)).tolist()

    def job(grid: str) -> tuple[Floats, Floats]:
        mdp = GRIDS[grid]()
        shots = run(mdp, RiskSensitive(kappa), effort.episodes, effort.curve_seeds, snapshots=points).snapshots
        assert shots is not None
        deltas, weights = [], []
        for Q_t, visits_t in zip(shots.Q, shots.visits, strict=True):
            before = np.zeros_like(visits_t[0])
            for Q, visits in zip(Q_t, visits_t, strict=True):
                deltas.append(targets(mdp, Q.max(1)) - Q.ravel()[mdp.pair])
                weights.append((visits - before).ravel()[mdp.pair] * mdp.p)
                before = visits
        return np.concatenate(deltas), np.concatenate(weights)

    found = dict(zip(GRIDS, work.map(job, list(GRIDS)), strict=True))
    return TdErrors({g: f[0] for g, f in found.items()}, {g: f[1] for g, f in found.items()}, kappa, effort.curve_seeds)


#: The limits on P(unsafe) of the plans, from the start distribution of each grid.
LIMITS = {"volatile": (0.05,), "cliff": (0.01, 0.02, 0.05)}


class World(NamedTuple):
    """A grid with an exploration, and the possible limits of Algorithm 1."""

    name: str
    mdp: TabularMDP
    plain: Floats  #: Q*, [S, A]
    paper: Floats  #: the fixed point of the paper's mapping, [S, A]
    limits: tuple[SelfConsistent, ...]


def run_limits(effort: Effort, work: Work) -> list[World]:
    """Both grids at their defaults, and the cliff with settings at which the limit depends on the seed."""
    settings = [
        ("volatile grid", grids.volatile(), EpsilonGreedy()),
        ("cliff", grids.cliff(), EpsilonGreedy()),
        ("cliff at γ = 0.9, ε = 0.05", grids.cliff(gamma=0.9), EpsilonGreedy(0.05)),
    ]

    def job(setting: tuple[str, TabularMDP, EpsilonGreedy]) -> World:
        name, mdp, exploration = setting
        sizes = {"episodes": effort.episodes, "seeds": effort.seeds, "max_steps": MAX_STEPS}
        found = fixed_point(mdp, REPLAY.scheme, REPLAY.v, "self", exploration=exploration, **sizes)
        return World(name, mdp, exact(mdp, QLearning()), fixed_point(mdp, REPLAY.scheme, REPLAY.v), found)

    return work.map(job, settings)


@dataclass(frozen=True)
class Certificates:
    """The paper's conditions on both grids, and its Theorem 2 on the smallest world where its proof fails."""

    reports: dict[str, CheckReport]
    waiting: Theorem2


def waiting_room(delta: float = 0.01) -> tuple[TabularMDP, VarianceReplay]:
    """A model with one state and two actions, and a scheme. Gambling pays 20 or 0 and ends; waiting pays ±δ and stays.

    As δ → 0 the gamble has all of the variance, and with β = 1/(1 − share) its loss has all of w: the theorem's premise.
    Replay lowers the gamble's value from 10 to 5. Waiting was worth 9, so the theorem predicts that the agent waits. But
    after waiting the agent gambles, so the value of waiting falls too, to 4.5.
    """
    rows = [(0, 0, 0.5, 1, 20.0, True), (0, 0, 0.5, 1, 0.0, True), (0, 1, 0.5, 0, delta), (0, 1, 0.5, 0, -delta)]
    mdp = TabularMDP.from_outcomes(2, 2, rows, gamma=0.9, start=0, name="waiting room")
    share = mdp.reward_variance[0, 0] / mdp.reward_variance.sum()
    return mdp, VarianceReplay(beta=1.0 / (1.0 - share))


def run_certificates(effort: Effort, work: Work) -> Certificates:
    """Check both grids at the paper's settings: Algorithm 1, v = 0.5, β = 5."""

    def job(grid: str) -> CheckReport:
        episodes = min(effort.episodes, 20_000)
        return check(GRIDS[grid](), REPLAY.scheme, REPLAY.v, episodes=episodes, seeds=5, quiet=True)

    reports = dict(zip(GRIDS, work.map(job, list(GRIDS)), strict=True))
    return Certificates(reports, theorem_2(*waiting_room(), REPLAY.v))


def run_plans(effort: Effort, work: Work) -> dict[str, list[Plan]]:
    """The gentlest replay under each limit."""
    jobs = [(grid, limit) for grid, limits in LIMITS.items() for limit in limits]

    def job(item: tuple[str, float]) -> Plan:
        scheme = VarianceReplay(beta=5.0)
        episodes, seeds = effort.tune_episodes, effort.seeds
        return tune(GRIDS[item[0]](), scheme, max_p_unsafe=item[1], episodes=episodes, seeds=seeds, quiet=True)

    done = work.map(job, jobs)
    return {grid: [plan for plan, item in zip(done, jobs, strict=True) if item[0] == grid] for grid in LIMITS}


BETAS = (-1.0, -0.3, 0.0, 0.1, 0.3, 1.0, 5.0)
EPSILONS = (0.05, 0.1, 0.3)
LATE = 10  # snapshots in the second half of a run; their spread is the noise
RATE_MODELS = 6  # random models besides the grids
RATE_POINTS = 7  # numbers of episodes
RATE_FIRST = 1_000
RATE_LONGER = 2  # times the length of a long run
RATE_FEWER = 10  # times fewer episodes of a random model, which are about ten times longer


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


class Case(NamedTuple):
    """One run of literal replay, and both limits.

    Distances are the largest over the pairs that the run visited often, as a share of the range of Q there.
    """

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

    steps: int  #: of the MDP, per model
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
    cases = work.map(lambda seed: judge(draw(seed), seed, effort.random_steps), range(effort.random_models))
    return RandomModels(effort.random_steps, tuple(cases))


def judge(drawn: Drawn, seed: int, steps: int) -> Case:
    """Learn, and measure the distance to both limits.

    The noise is the largest spread of a pair's Q over the snapshots of the run's second half.
    """
    mdp, learner, exploration = drawn
    points = np.linspace(steps // 2, steps, LATE).astype(int).tolist()
    runs = run(mdp, learner, 0, [seed], exploration, points, steps=steps)
    assert runs.snapshots is not None
    Q, often = runs.Q[0], often_visited(runs.visits[0])
    visited = fixed_point(mdp, learner.scheme, learner.v, runs.visitation[0])
    paper = fixed_point(mdp, learner.scheme, learner.v)
    measured = (paper - visited, np.ptp(runs.snapshots.Q[0], axis=0), Q - visited, Q - paper)
    return Case(*(largest(x, often, visited) for x in measured))


def largest(differences: Floats, often: Bools, limit: Floats) -> float:
    """The largest |difference| over some pairs, as a share of the limit's range over them."""
    return float(np.abs(differences[often]).max()) / (float(np.ptp(limit[often])) or 1.0)


@dataclass(frozen=True)
class MatchedRate:
    """Matched mixing and the paper's limit, over the number of episodes.

    An error is the largest over the pairs that the run visited often, as a share of the limit's range.
    """

    episodes: dict[str, Ints]  #: by model: [m]
    errors: dict[str, Floats]  #: by model: [seeds, m]

    @property
    def slopes(self) -> dict[str, float]:
        """By model, the slope of log(median error over seeds) on log(episodes)."""
        points = {name: (np.log(self.episodes[name]), np.log(np.median(e, 0))) for name, e in self.errors.items()}
        return {name: float(np.polyfit(x, y, 1)[0]) for name, (x, y) in points.items()}


def run_matched_rate(effort: Effort, work: Work) -> MatchedRate:
    """Matched mixing on both grids, from 1,000 episodes to twice a long run, and on random models, with as many steps."""
    points = np.geomspace(RATE_FIRST, RATE_LONGER * effort.long_episodes, RATE_POINTS).astype(np.int64)
    models = {name: Drawn(make(), MATCHED, EpsilonGreedy()) for name, make in GRIDS.items()}
    for drawn in map(draw, range(RATE_MODELS)):
        models[drawn.mdp.name] = drawn._replace(learner=replace(drawn.learner, mixing="matched"))
    seeds = max(2, effort.curve_seeds // 5)
    jobs = [(name, seed) for name in models for seed in range(seeds)]
    episodes = {name: points if name in GRIDS else points // RATE_FEWER for name in models}
    done = np.array(work.map(lambda job: follow(models[job[0]], job[1], episodes[job[0]]), jobs))
    return MatchedRate(episodes, dict(zip(models, done.reshape(len(models), seeds, -1), strict=True)))


def follow(drawn: Drawn, seed: int, points: Ints) -> Floats:
    """The error against the paper's limit at each number of episodes, [m]."""
    mdp, learner, exploration = drawn
    runs = run(mdp, learner, int(points[-1]), [seed], exploration, points.tolist())
    assert runs.snapshots is not None
    limit, often = fixed_point(mdp, learner.scheme, learner.v), often_visited(runs.visits[0])
    return np.array([largest(Q - limit, often, limit) for Q in runs.snapshots.Q[0]])
