"""Studies around the paper's experiments.

Sensitivity: verdicts over what the paper leaves open, which is γ, exploration, layouts, slips, v and β.
Learning curves: w_t against w^∞, Q against its two limits, and the TD errors during learning.
Theory on the paper's grids: limits, conditions, and the gentlest replay under a limit on risk.

Ref: Szlak & Shamir (2021), Section 3, Section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import grids
from .._types import Floats, Ints
from ..learners import Learner, QLearning, ReplayQLearning, RiskSensitive
from ..mdp import TabularMDP
from ..schedules import EpsilonGreedy
from ..schemes import VarianceReplay
from ..theory.conditions import CheckReport, check
from ..theory.limits import exact, fixed_point
from ..theory.operator import limit_weights
from ..theory.solver import targets
from ..theory.theorem2 import Theorem2, theorem_2
from ..theory.tuning import Plan, tune
from ..theory.visits import SelfConsistent
from ..verdicts import VERDICTS, verdict
from .experiments import GRIDS, MATCHED, MAX_STEPS, REPLAY, Effort, Sweep, Work, run


@dataclass(frozen=True)
class Map:
    """Shares of verdicts over two settings."""

    title: str
    x_name: str
    y_name: str
    x: list[Any]
    y: list[Any]
    shares: Floats  #: [y, x, 4] in the order of VERDICTS


class Axis(NamedTuple):
    """A setting and its values."""

    name: str
    values: list[Any]


def run_maps(effort: Effort, work: Work) -> dict[str, list[Map]]:
    """Verdicts over γ, ε, layout, slip, v and β; by grid."""
    n = effort.map_points
    gammas = [round(float(g), 3) for g in np.linspace(0.8, 0.99, n)]
    epsilons = [0.01, 0.05, 0.1, 0.2, 0.3, 0.5][:: 1 if n > 5 else 2]
    vs = [round(float(v), 3) for v in np.linspace(0.1, 0.9, n)]
    betas = [round(float(b), 3) for b in np.linspace(-5, 5, n)]
    layouts = {"volatile": list(grids.VOLATILE_LAYOUTS), "cliff": list(grids.CLIFF_LAYOUTS)}
    maps: dict[str, list[tuple[str, Axis, Axis, Callable[..., tuple[TabularMDP, Learner, float]]]]] = {}
    for grid, make in GRIDS.items():
        eps, gamma, layout = Axis("ε", epsilons), Axis("γ", gammas), Axis("layout", layouts[grid])
        maps[grid] = [
            ("Q-learning", gamma, eps, lambda g, e, make=make: (make(g), QLearning(), e)),
            ("replay (v = 0.5, β = 5)", gamma, eps, lambda g, e, make=make: (make(g), REPLAY, e)),
            ("replay", Axis("v", vs), Axis("β", betas), lambda v, b, make=make: (make(), _shaped(v, b), 0.1)),
            ("Q-learning", gamma, layout, lambda g, text, make=make: (make(g, layout=text), QLearning(), 0.1)),
            ("replay (v = 0.5, β = 5)", gamma, layout, lambda g, text, make=make: (make(g, layout=text), REPLAY, 0.1)),
        ]
    slips = Axis("slip", [f"{p:g} {to}" for to in ("any", "others") for p in (0.0, 0.05, 0.1, 0.2, 0.3)])
    maps["cliff"] += [
        (title, Axis("γ", gammas), slips, lambda g, slip, who=who: (_slippery(g, slip), who, 0.1))
        for title, who in (("Q-learning", QLearning()), ("replay (v = 0.5, β = 5)", REPLAY))
    ]
    jobs = [
        (grid, k, x, y) for grid in maps for k, m in enumerate(maps[grid]) for y in m[2].values for x in m[1].values
    ]

    def job(item: tuple[str, int, Any, Any]) -> Floats:
        grid, k, x, y = item
        mdp, learner, epsilon = maps[grid][k][3](x, y)
        runs = run(mdp, learner, effort.map_episodes, effort.map_seeds, EpsilonGreedy(epsilon))
        return np.array([runs.verdicts.count(v) / effort.map_seeds for v in VERDICTS])

    shares = iter(work.map(job, jobs))
    return {
        grid: [
            Map(
                title,
                x.name,
                y.name,
                x.values,
                y.values,
                np.array([[next(shares) for _ in x.values] for _ in y.values]),
            )
            for title, x, y, _ in maps[grid]
        ]
        for grid in maps
    }


def _shaped(v: float, beta: float) -> Learner:
    return ReplayQLearning(VarianceReplay(beta), v)


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
    if shots is None or shots.w is None:
        raise AssertionError("a replaying run with snapshots has both")
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
        if shots is None:
            raise AssertionError("a run with snapshots has them")
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


@dataclass(frozen=True)
class World:
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
        found = fixed_point(
            mdp,
            REPLAY.scheme,
            REPLAY.v,
            "self",
            exploration=exploration,
            episodes=effort.episodes,
            seeds=effort.seeds,
            max_steps=MAX_STEPS,
        )
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
