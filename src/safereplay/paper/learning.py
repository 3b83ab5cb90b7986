"""How learning gets there: w_t against w^∞, Q against its two limits, and the TD errors on the way."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._types import Floats, Ints
from ..learners import ReplayQLearning, RiskSensitive
from ..theory.limits import fixed_point
from ..theory.operator import limit_weights
from ..theory.solver import targets
from .experiments import GRIDS, MATCHED, REPLAY, Effort, Work, run


@dataclass(frozen=True)
class Curves:
    """Long runs beside their limits, one row a seed. Errors are the largest |Q − limit| over the pairs that the run
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
    """The TD errors that a Mihatsch–Neuneier learner meets over its run, as a weighted sample."""

    delta: dict[str, Floats]
    weight: dict[str, Floats]
    kappa: float
    seeds: int


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


def td_histogram(td: TdErrors, grid: str, bins: int = 60) -> tuple[Floats, Floats]:
    """(edges, share of the updates in each bin)."""
    shares, edges = np.histogram(td.delta[grid], bins=bins, weights=td.weight[grid])
    return np.asarray(edges, np.float64), np.asarray(shares / shares.sum(), np.float64)
