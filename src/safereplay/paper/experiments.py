"""The paper's experiments, and ours around them, as data: what is run, and what came out.

Each experiment is a function from an :class:`Effort` to a frozen result. Runs of one experiment share both cores: a
job is one call of :func:`safereplay.learn` on one thread, and jobs run side by side. Nothing here draws or judges.

Ref: Szlak & Shamir (2021), Section 5.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .. import grids
from .._types import Floats, Ints
from ..learners import Learner, Pessimistic, QLearning, ReplayQLearning, RiskSensitive, WorstCase, WorstTransition
from ..mdp import TabularMDP
from ..runs import Runs, learn
from ..schedules import EpsilonGreedy, Exploration
from ..schemes import VarianceReplay
from ..theory.operator import exact, fixed_point, limit_weights, targets
from ..theory.risk import RiskProfile, evaluate
from ..verdicts import VERDICTS, verdict

T = TypeVar("T")
R = TypeVar("R")

GRIDS = grids.NAMED
REPLAY = ReplayQLearning(VarianceReplay(beta=5.0), v=0.5)
MAX_STEPS = 200  # of an episode; a policy that reaches the goal of these grids needs about ten
MATCHED = ReplayQLearning(VarianceReplay(beta=5.0), v=0.5, mixing="matched")

#: Who is compared on each grid; the rivals' dials are ones that are safe where any are.
CAST: dict[str, Learner] = {
    "Q-learning": QLearning(),
    "replay": REPLAY,
    "replay, matched": MATCHED,
    "Mihatsch–Neuneier": RiskSensitive(0.6),
    "Gaskett": Pessimistic(0.2),
    "worst case (Heger)": WorstCase(),
    "worst transition": WorstTransition(),
}


@dataclass(frozen=True)
class Effort:
    """How much is run."""

    seeds: int = 20
    episodes: int = 50_000
    dose_seeds: int = 20  #: for each value of replay's own dials
    long_episodes: int = 500_000
    sweep_step: float = 0.01  #: of κ and of Gaskett's β
    map_seeds: int = 5
    map_episodes: int = 20_000
    map_points: int = 9  #: along each axis of a map
    curve_seeds: int = 20  #: for learning curves and TD errors
    snapshots: int = 60


FULL = Effort()
QUICK = Effort(
    episodes=30_000,
    dose_seeds=5,
    long_episodes=50_000,
    sweep_step=0.05,
    map_seeds=1,
    map_episodes=5_000,
    map_points=4,
    curve_seeds=2,
    snapshots=20,
)


class Work:
    """Runs jobs side by side and says how far they are."""

    def __init__(self, tick: Callable[[float], None]) -> None:
        self._tick = tick
        self.threads = os.cpu_count() or 1

    def map(self, job: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """job of each item, in order."""
        with ThreadPoolExecutor(self.threads) as pool:
            futures = [pool.submit(job, item) for item in items]
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    future.result()
                    self._tick(done / len(items))
            except BaseException:  # Ctrl-C as well: what has not begun is not begun
                pool.shutdown(cancel_futures=True)
                raise
        return [future.result() for future in futures]


def run(
    mdp: TabularMDP,
    learner: Learner,
    episodes: int,
    seeds: int | Iterable[int],
    exploration: Exploration | None = None,
    snapshots: int | Sequence[int] = 0,
) -> Runs:
    """One job: a quiet :func:`safereplay.learn` on one thread."""
    return learn(
        mdp,
        learner,
        episodes,
        seeds,
        exploration,
        max_steps=MAX_STEPS,
        threads=1,
        quiet=True,
        snapshots=snapshots,
    )


# -- the cast on both grids -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cast:
    """Every learner on every grid at the defaults."""

    mdps: dict[str, TabularMDP]
    runs: dict[tuple[str, str], Runs]  #: by (grid, name in CAST)
    risk: dict[tuple[str, str], RiskProfile]  #: of the policy that most seeds learned, from the origin

    def counts(self, grid: str, name: str) -> Counter[str]:
        """How many seeds got which verdict."""
        return Counter(self.runs[grid, name].verdicts)


def usual_policy(runs: Runs) -> Ints:
    """The policy whose drawn verdict most seeds share; of those, the first seed's."""
    usual = Counter(runs.verdicts).most_common(1)[0][0]
    return np.asarray(runs.policy[runs.verdicts.index(usual)])


def run_cast(effort: Effort, work: Work) -> Cast:
    """Run the cast, one job a seed."""
    mdps = {name: make() for name, make in GRIDS.items()}
    jobs = [(grid, name, seed) for grid in GRIDS for name in CAST for seed in range(effort.seeds)]
    # Heger's learner refuses to move on the cliff, and an episode of it is a hundred times longer: fewer will do.
    episodes = {name: effort.episodes // (10 if name.startswith("worst case") else 1) for name in CAST}
    done = work.map(lambda job: run(mdps[job[0]], CAST[job[1]], episodes[job[1]], [job[2]]), jobs)
    runs = {}
    for grid in GRIDS:
        for name in CAST:
            runs[grid, name] = joined([r for r, job in zip(done, jobs, strict=True) if job[:2] == (grid, name)])
    risk = {key: evaluate(mdps[key[0]], usual_policy(r), start=mdps[key[0]].origin) for key, r in runs.items()}
    return Cast(mdps, runs, risk)


def joined(parts: Sequence[Runs]) -> Runs:
    """Runs of one learner on one model that were done apart, as one."""
    w = None if parts[0].w is None else np.concatenate([p.w for p in parts if p.w is not None])
    return replace(
        parts[0],
        seeds=tuple(seed for p in parts for seed in p.seeds),
        Q=np.concatenate([p.Q for p in parts]),
        visits=np.concatenate([p.visits for p in parts]),
        replays=np.concatenate([p.replays for p in parts]),
        w=w,
    )


# -- one dial ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """A rival's dial from end to end: the verdict on what it learned, and on its exact limit."""

    dial: str
    values: Floats
    learned: dict[str, list[str]]  #: by grid
    exact: dict[str, list[str]]
    episodes: int

    def band(self, grid: str, wanted: str, source: str = "exact") -> tuple[float, float] | None:
        """The longest unbroken range of the dial with a verdict; None if there is none."""
        best: tuple[int, int] | None = None
        start = None
        found = getattr(self, source)[grid]
        for k, one in enumerate([*found, ""]):
            if one == wanted and start is None:
                start = k
            if one != wanted and start is not None:
                if best is None or k - start > best[1] - best[0] + 1:
                    best = (start, k - 1)
                start = None
        return None if best is None else (float(self.values[best[0]]), float(self.values[best[1]]))


def run_sweep(effort: Effort, work: Work, dial: str, make: Callable[[float], Learner], last: float) -> Sweep:
    """Sweep a rival's dial from 0 to ``last`` on both grids, one long run a value."""
    values = np.round(np.arange(0.0, last + 1e-9, effort.sweep_step), 6)
    mdps = {name: build() for name, build in GRIDS.items()}
    jobs = [(grid, float(x)) for grid in GRIDS for x in values]

    def job(item: tuple[str, float]) -> tuple[str, str]:
        mdp, learner = mdps[item[0]], make(item[1])
        learned = run(mdp, learner, effort.long_episodes, 1).verdicts[0]
        return learned, verdict(mdp, exact(mdp, learner).argmax(1))

    done = work.map(job, jobs)
    split = {grid: [d for d, j in zip(done, jobs, strict=True) if j[0] == grid] for grid in GRIDS}
    learned = {grid: [d[0] for d in found] for grid, found in split.items()}
    limits = {grid: [d[1] for d in found] for grid, found in split.items()}
    return Sweep(dial, values, learned, limits, effort.long_episodes)


def run_kappa(effort: Effort, work: Work) -> Sweep:
    """κ from 0 to 0.99 (κ = 1 itself is outside the method's range)."""
    return run_sweep(effort, work, "κ", RiskSensitive, 1.0 - effort.sweep_step)


def run_gaskett(effort: Effort, work: Work) -> Sweep:
    """Gaskett's β from 0 to 1."""
    return run_sweep(effort, work, "β", Pessimistic, 1.0)


# -- more replay, and replay of either sign -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Dose:
    """Replay's own dial: verdicts and exact risk of each seed's policy, by grid and value."""

    dial: str
    values: list[float]
    verdicts: dict[str, list[Counter[str]]]
    p_unsafe: dict[str, Floats]  #: [values, seeds]
    mean: dict[str, Floats]  #: [values, seeds]


def run_dose(effort: Effort, work: Work, dial: str, values: list[float], make: Callable[[float], Learner]) -> Dose:
    """Each value of a replay dial on both grids, over all seeds."""
    mdps = {name: build() for name, build in GRIDS.items()}
    jobs = [(grid, x) for grid in GRIDS for x in values]
    done = work.map(lambda job: run(mdps[job[0]], make(job[1]), effort.episodes, effort.dose_seeds), jobs)
    by = dict(zip(jobs, done, strict=True))

    def profiles(grid: str, x: float) -> list[RiskProfile]:
        return [evaluate(mdps[grid], policy, start=mdps[grid].origin) for policy in by[grid, x].policy]

    risks = {job: profiles(*job) for job in jobs}
    return Dose(
        dial,
        values,
        {g: [Counter(by[g, x].verdicts) for x in values] for g in GRIDS},
        {g: np.array([[r.p_unsafe for r in risks[g, x]] for x in values]) for g in GRIDS},
        {g: np.array([[r.mean for r in risks[g, x]] for x in values]) for g in GRIDS},
    )


def run_amount(effort: Effort, work: Work) -> Dose:
    """v from 0 to 0.9."""
    values = [round(0.1 * k, 1) for k in range(10)]
    return run_dose(effort, work, "v", values, lambda v: ReplayQLearning(VarianceReplay(5.0), v))


def run_sign(effort: Effort, work: Work, mixing: str = "literal") -> Dose:
    """β = 5, 0, −5: averse to risk, neutral, fond of it."""
    return run_dose(
        effort, work, "β", [5.0, 0.0, -5.0], lambda beta: ReplayQLearning(VarianceReplay(beta), 0.5, mixing)
    )


# -- what the verdicts depend on ----------------------------------------------------------------------------------------


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
    """How verdicts move with γ, ε, layout, slip, v and β; by grid."""
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


# -- learning, against the limits -----------------------------------------------------------------------------------------


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


# -- TD errors ------------------------------------------------------------------------------------------------------------


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
