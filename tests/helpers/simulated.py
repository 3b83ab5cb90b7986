"""Runs of the GPU's kernel in numba's CUDA simulator beside those of the CPU, in a process of their own:

NUMBA_ENABLE_CUDASIM=1 NUMBA_DISABLE_JIT=1 python simulated.py
"""

import json
import sys
from dataclasses import dataclass

import numpy as np

import safereplay as sr
from safereplay.engines import cuda, work


@dataclass(frozen=True)
class Wary(sr.Scheme):
    """A scheme of one's own that needs every statistic."""

    beta: float = 0.5

    @staticmethod
    def pair_weight(n, mean, r_min, td):
        """Pairs seen often, with low rewards and large errors."""
        return n * (mean - r_min) + abs(td)

    @staticmethod
    def log_tilt(r, beta, mean):
        """The worst first."""
        return -beta * (r - mean)

    @staticmethod
    def next_weight(count):
        """As often as seen."""
        return count


LEARNERS = [
    sr.QLearning(),
    sr.ReplayQLearning(v=0.5),
    sr.ReplayQLearning(v=0.7, mixing="matched"),
    sr.ReplayQLearning(sr.Scheme(), v=0.4),
    sr.ReplayQLearning(Wary(0.5), v=0.5, T0=20),
    sr.RiskSensitive(0.5),
    sr.Pessimistic(0.2),
    sr.WorstCase(),
    sr.WorstTransition(),
]
EPISODES, SNAPSHOTS = 25, 3


def runs_of(mdp, learner):
    """Runs that differ in γ, in exploration and in seed."""
    explorations = sr.EpsilonGreedy(0.1), sr.EpsilonGreedy(0.5, power=0.5)
    points = [
        work.Point("m", mdp.with_gamma(gamma), learner, exploration, sr.PowerStep(), {})
        for gamma in (0.8, 0.95)
        for exploration in explorations
    ]
    return [work.Run("", point, seed) for seed in (0, 7) for point in points]


def difference(mdp, learner):
    """The largest difference between the simulated GPU's runs and sr.learn's, in Q, counts and snapshots."""
    terms, runs = work.Terms(EPISODES, 1_000, ("curves",), SNAPSHOTS), runs_of(mdp, learner)
    there, most = cuda.learn_there(runs, terms), 0.0
    for k, run in enumerate(runs):
        point = run.point
        here = sr.learn(
            point.mdp, learner, EPISODES, [run.seed], point.exploration, snapshots=SNAPSHOTS, threads=1, quiet=True
        )
        pairs = [(there.Q, here.Q), (there.visits, here.visits), (there.replays, here.replays)]
        pairs.append((there.snapshots, here.snapshots.Q))
        most = max([most, *(float(np.abs(a[k] - b[0]).max()) for a, b in pairs)])
    return most


if __name__ == "__main__":
    cuda.PER_SM, cuda.BLOCK, cuda.FIRST = 3, 2, 40  # threads take several runs, and launches stop half-way
    models = [sr.grids.volatile(), sr.grids.cliff()]
    found = {f"{mdp.name} {learner}": difference(mdp, learner) for mdp in models for learner in LEARNERS}
    json.dump(found, sys.stdout)
