"""The paper's experiments, and some more around them: functions that run them, and their results as data.

Each experiment is a function from an :class:`Effort` to a frozen result. Jobs of one thread each run in parallel; where jobs
are few and differ in length, seeds run in parallel instead. This module draws and judges nothing.

Ref: Szlak & Shamir (2021), Section 5.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import groupby
from typing import Any, TypeVar

import numpy as np

from .. import grids
from .._checks import Floats, Ints
from ..learners import Learner, Pessimistic, QLearning, ReplayQLearning, RiskSensitive, WorstCase, WorstTransition
from ..mdp import TabularMDP
from ..runs import Runs, learn
from ..schedules import Exploration
from ..schemes import VarianceReplay
from ..theory.limits import exact
from ..theory.risk import RiskProfile, evaluate
from ..verdicts import verdict

T = TypeVar("T")
R = TypeVar("R")

GRIDS = grids.PAPER
REPLAY = ReplayQLearning(VarianceReplay(beta=5.0), v=0.5)
MAX_STEPS = 200  # per episode; a policy needs about ten to reach the goal of these grids
STEPS = 5  # of an average episode that ends, from uniform starts
MATCHED = ReplayQLearning(VarianceReplay(beta=5.0), v=0.5, mixing="matched")

#: The learners on each grid; the rivals' dials are at values that are safe wherever any value is.
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
    """The sizes of all experiments."""

    seeds: int = 20
    episodes: int = 50_000
    dose_seeds: int = 20  #: for each value of v and β
    long_episodes: int = 500_000
    sweep_step: float = 0.01  #: step of κ and of Gaskett's β
    map_seeds: int = 5
    map_steps: int = 160_000  #: of the MDP, for each seed: about 20,000 episodes that end
    map_points: int = 9  #: along each axis of a map
    curve_seeds: int = 20  #: for learning curves and TD errors
    snapshots: int = 40
    tune_episodes: int = 100_000  #: of the learners that confirm a plan
    random_models: int = 200  #: on which the two limits are compared
    random_steps: int = 500_000  #: of the run on each of them


FULL = Effort()
QUICK = Effort(
    episodes=30_000,
    dose_seeds=5,
    long_episodes=50_000,
    sweep_step=0.05,
    map_seeds=1,
    map_steps=40_000,
    map_points=4,
    curve_seeds=2,
    snapshots=20,
    tune_episodes=20_000,
    random_models=40,
    random_steps=100_000,
)


class Work:
    """Runs jobs in parallel and reports progress."""

    def __init__(self, tick: Callable[[float], None]) -> None:
        self.tick = tick
        self.threads = os.cpu_count() or 1

    def map(self, job: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The results of job(item), in order."""
        with ThreadPoolExecutor(self.threads) as pool:
            futures = [pool.submit(job, item) for item in items]
            try:
                for done, future in enumerate(as_completed(futures), start=1):
                    future.result()
                    self.tick(done / len(items))
            except BaseException:  # Ctrl-C as well: jobs that have not started are cancelled
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
    threads: int = 1,
    steps: int | None = None,
) -> Runs:
    """A quiet :func:`safereplay.learn`."""
    more: dict[str, Any] = {"max_steps": MAX_STEPS, "snapshots": snapshots, "threads": threads, "steps": steps}
    return learn(mdp, learner, episodes, seeds, exploration, quiet=True, **more).whole()


@dataclass(frozen=True)
class Cast:
    """All learners on both grids at the defaults."""

    mdps: dict[str, TabularMDP]
    runs: dict[tuple[str, str], Runs]  #: by (grid, name in CAST)
    risk: dict[tuple[str, str], RiskProfile]  #: of the policy that most seeds learned, from the origin

    def counts(self, grid: str, name: str) -> Counter[str]:
        """The number of seeds per verdict."""
        return Counter(self.runs[grid, name].verdicts)


def usual_policy(runs: Runs) -> Ints:
    """The policy of the first seed that has the most frequent verdict."""
    usual = Counter(runs.verdicts).most_common(1)[0][0]
    return np.asarray(runs.policy[runs.verdicts.index(usual)])


def run_cast(effort: Effort, work: Work) -> Cast:
    """Run the cast."""
    mdps = {name: make() for name, make in GRIDS.items()}
    runs: dict[tuple[str, str], Runs] = {}
    for grid, mdp in mdps.items():
        for name, learner in CAST.items():
            # Heger's learner stays on one spot on the cliff. Its episodes are a hundred times longer, so it gets fewer.
            episodes = effort.episodes // (10 if name.startswith("worst case") else 1)
            runs[grid, name] = run(mdp, learner, episodes, effort.seeds, threads=work.threads)
            work.tick(len(runs) / (len(mdps) * len(CAST)))
    risk = {key: evaluate(mdps[key[0]], usual_policy(r), start=mdps[key[0]].origin) for key, r in runs.items()}
    return Cast(mdps, runs, risk)


@dataclass(frozen=True)
class Sweep:
    """Verdicts over the whole range of a rival's dial: on the learned policy, and on the exact limit."""

    dial: str
    values: Floats
    learned: dict[str, list[str]]  #: by grid
    exact: dict[str, list[str]]
    episodes: int

    def band(self, grid: str, wanted: str, source: str = "exact") -> tuple[float, float] | None:
        """The longest contiguous range of the dial with a verdict; None if there is none."""
        best: tuple[int, int] | None = None
        start = 0
        for one, group in groupby(getattr(self, source)[grid]):
            n = len(list(group))
            if one == wanted and (best is None or n > best[1]):
                best = start, n
            start += n
        return None if best is None else (float(self.values[best[0]]), float(self.values[sum(best) - 1]))


def long_verdict(mdp: TabularMDP, learner: Learner, episodes: int, limit: str) -> str:
    """The verdict on one long run, which ends early once it is certain.

    A run ends after a fifth of its episodes if, there and after a tenth, its policy has the verdict of the exact limit. All
    other runs go on to their end. In the full study 371 of 402 runs end early, and none of them would have changed its verdict.
    """
    checks = [episodes // 10, episodes // 5]
    shots = run(mdp, learner, checks[-1], 1, snapshots=checks).snapshots
    assert shots is not None
    if all(verdict(mdp, Q.argmax(1)) == limit for Q in shots.Q[0]):
        return limit
    return run(mdp, learner, episodes, 1).verdicts[0]


def run_sweep(effort: Effort, work: Work, dial: str, make: Callable[[float], Learner], last: float) -> Sweep:
    """Sweep a rival's dial from 0 to ``last`` on both grids, one long run per value."""
    values = np.round(np.arange(0.0, last + 1e-9, effort.sweep_step), 6)
    mdps = {name: build() for name, build in GRIDS.items()}
    jobs = [(grid, float(x)) for grid in GRIDS for x in values]

    def job(item: tuple[str, float]) -> tuple[str, str]:
        mdp, learner = mdps[item[0]], make(item[1])
        limit = verdict(mdp, exact(mdp, learner).argmax(1))
        return long_verdict(mdp, learner, effort.long_episodes, limit), limit

    done = dict(zip(jobs, work.map(job, jobs), strict=True))
    learned, limits = ({g: [done[g, float(x)][k] for x in values] for g in GRIDS} for k in (0, 1))
    return Sweep(dial, values, learned, limits, effort.long_episodes)


def run_kappa(effort: Effort, work: Work) -> Sweep:
    """κ from 0 to 0.99 (κ = 1 itself is outside the method's range)."""
    return run_sweep(effort, work, "κ", RiskSensitive, 1.0 - effort.sweep_step)


def run_gaskett(effort: Effort, work: Work) -> Sweep:
    """Gaskett's β from 0 to 1."""
    return run_sweep(effort, work, "β", Pessimistic, 1.0)


@dataclass(frozen=True)
class Dose:
    """v or β: verdicts and exact risk of each seed's policy, by grid and value."""

    dial: str
    values: list[float]
    verdicts: dict[str, list[Counter[str]]]
    p_unsafe: dict[str, Floats]  #: [values, seeds]
    mean: dict[str, Floats]  #: [values, seeds]


def run_dose(
    effort: Effort,
    work: Work,
    dial: str,
    values: list[float],
    make: Callable[[float], Learner],
    steps: int | None = None,
) -> Dose:
    """Each value of a replay dial on both grids, over all seeds; for a number of episodes, or of steps."""
    mdps = {name: build() for name, build in GRIDS.items()}
    jobs = [(grid, x) for grid in GRIDS for x in values]
    by = {}
    for grid, x in jobs:
        by[grid, x] = run(mdps[grid], make(x), effort.episodes, effort.dose_seeds, threads=work.threads, steps=steps)
        work.tick(len(by) / len(jobs))
    risks = {(g, x): [evaluate(mdps[g], one, start=mdps[g].origin) for one in r.policy] for (g, x), r in by.items()}
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
    """β = 5, 0, −5: risk-averse, risk-neutral, risk-seeking.

    All have the same number of steps: with β = −5 episodes on the volatile grid do not end by themselves, and are fifty times longer.
    """
    values, steps = [5.0, 0.0, -5.0], STEPS * effort.episodes
    return run_dose(effort, work, "β", values, lambda beta: ReplayQLearning(VarianceReplay(beta), 0.5, mixing), steps)
