"""Runs of the GPU's kernel in numba's CUDA simulator beside those of the CPU, in a process of their own:

NUMBA_ENABLE_CUDASIM=1 NUMBA_DISABLE_JIT=1 python simulated.py [every n-th case]
"""

import json
import sys
from dataclasses import dataclass
from tempfile import TemporaryDirectory

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


@dataclass(frozen=True)
class Startled(sr.Scheme):
    """Weighs pairs by their variance, as the paper does, but tilts by the last error."""

    @staticmethod
    def pair_weight(var):
        """Volatile pairs."""
        return var

    @staticmethod
    def log_tilt(r, td):
        """Rewards of the other sign than the last error."""
        return -0.1 * r * td / (1.0 + abs(td))


@dataclass(frozen=True)
class Flagged(sr.Scheme):
    """Weighs pairs by their unsafe outcomes, and replays those most."""

    @staticmethod
    def pair_weight(harm):
        """Pairs with unsafe outcomes."""
        return 0.01 + harm

    @staticmethod
    def log_tilt(unsafe):
        """Unsafe outcomes first."""
        return 2.0 * unsafe


@dataclass(frozen=True)
class Gloomy(sr.ReplayQLearning):
    """Replay with the worst transition's update, which looks at the memory of every pair."""

    LABEL = "gloomy"

    @staticmethod
    def update(q, worst_state, alpha):
        """Towards the worst_state_value next state seen."""
        return (1.0 - alpha) * q + alpha * worst_state


def foggy():
    """A model whose rewards are certain and whose next states are not: nothing of it can ever be replayed."""
    rows = [(s, a, 0.5, t, -1.0 - s - 2.0 * a, t == 3, False) for s in range(3) for a in range(2) for t in (s, s + 1)]
    return sr.TabularMDP.from_outcomes(4, 2, rows, gamma=0.9, name="foggy")


@dataclass(frozen=True)
class Case:
    """Learners that share a compiled program, on one model."""

    name: str
    mdp: sr.TabularMDP
    learners: tuple[sr.Learner, ...]
    explorations: tuple[sr.Exploration, ...] = (sr.EpsilonGreedy(0.1), sr.EpsilonGreedy(0.5, power=0.5))
    max_steps: int = 1_000


GRIDS = (sr.grids.volatile(), sr.grids.cliff())
EVERY = (
    (sr.QLearning(),),
    (sr.ReplayQLearning(v=0.5), sr.ReplayQLearning(sr.VarianceReplay(-0.1), v=0.2)),
    (sr.ReplayQLearning(v=0.7, mixing="matched"),),
    (sr.ReplayQLearning(v=1.0, mixing="anchored"),),
    (sr.ReplayQLearning(sr.Scheme(), v=0.4),),
    (sr.ReplayQLearning(Wary(0.5), v=0.5, T0=20),),
    (sr.ReplayQLearning(Startled(), v=0.5),),
    (Gloomy(v=0.3),),
    (sr.RiskSensitive(0.5),),
    (sr.Pessimistic(0.2),),
    (sr.WorstCase(),),
    (sr.WorstTransition(),),
    (sr.Robust(0.5),),
    (sr.ExponentialUtility(-0.1),),
    (sr.ReplayQLearning(sr.ScoreReplay(), v=0.5),),
    (sr.ReplayQLearning(sr.BoldReplay(), v=0.5),),
    (sr.ReplayQLearning(Flagged(), v=0.5),),
    (sr.ReplayQLearning(sr.ReturnReplay(), v=0.5),),
    (sr.ReplayQLearning(sr.ErrorReplay(), v=0.5),),
    (sr.ReplayQLearning(sr.DownsideReplay(), v=0.5),),
    (sr.ReplayQLearning(sr.UniformReplay(), v=0.5),),
    (sr.ReplayQLearning(sr.DynaReplay(), v=0.5, mixing="matched"),),
    (sr.ReplayQLearning(sr.CVaRReplay(0.3), v=1.0, mixing="anchored"),),
    (sr.ReplayQLearning(sr.SpectralReplay(), v=1.0, mixing="anchored"),),
    (sr.ReplayQLearning(sr.ExpectileReplay(), v=0.5, mixing="anchored"),),
    (sr.ReplayQLearning(sr.EntropicReplay(1.0), v=0.5),),
    (sr.ReplayQLearning(sr.EntropicReplay(1.0), v=1.0, mixing="anchored"),),
)
CASES = [Case(f"{mdp.name} {learners}", mdp, learners) for mdp in GRIDS for learners in EVERY] + [
    Case("nothing to replay", foggy(), (sr.ReplayQLearning(v=0.5),)),
    Case("nothing to replay, matched", foggy(), (sr.ReplayQLearning(v=0.5, mixing="matched"),)),
    Case("softmax", sr.grids.cliff(), (sr.ReplayQLearning(v=0.5),), (sr.Softmax(1.0), sr.Softmax(5.0, power=0.5))),
    Case("cut off", sr.grids.cliff(), (sr.ReplayQLearning(v=0.5),), max_steps=3),
]
EPISODES, SNAPSHOTS = 20, 3


def runs_of(case):
    """Runs that differ in γ, in exploration, in dials and in seed."""
    points = [
        work.Point("m", case.mdp.with_gamma(gamma), learner, exploration, sr.PowerStep(), {})
        for learner in case.learners
        for gamma in (0.8, 0.95)
        for exploration in case.explorations
    ]
    return [work.Run("", point, seed) for seed in (0, 7) for point in points]


def difference(case):
    """The largest difference between the simulated GPU's runs and sr.learn's, in Q, counts and snapshots."""
    terms, most = work.Terms(EPISODES, case.max_steps, ("curves",), SNAPSHOTS), 0.0
    asked = {"snapshots": SNAPSHOTS, "max_steps": case.max_steps, "threads": 1, "quiet": True}
    for runs in work.groups(runs_of(case)):
        there = cuda.learn_there(runs, terms)
        for k, run in enumerate(runs):
            point = run.point
            here = sr.learn(point.mdp, point.learner, EPISODES, [run.seed], point.exploration, **asked)
            pairs = [(there.Q, here.Q), (there.visits, here.visits), (there.replays, here.replays)]
            pairs.append((there.snapshots, here.snapshots.Q))
            most = max([most, *(float(np.abs(a[k] - b[0]).max()) for a, b in pairs)])
    return most


def swept():
    """0.0 if a whole sweep on the simulated GPU writes the rows that threads write, and an interrupted one keeps a chunk."""
    spec = {
        "episodes": 15,
        "seeds": 3,
        "keep": ["Q", "policy", "visits", "verdict"],
        "models": {"volatile": {"gamma": [0.8, 0.9]}, "cliff": {}},
        "learners": {"q": {}, "replay": {"v": [0.0, 0.5]}},
    }
    cuda.CudaEngine.least = 4  # several chunks
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        here, there = sr.sweep(spec, one, quiet=True), sr.sweep(spec, other, engine="cuda", quiet=True)
        same = there.done == here.done == 27 and here.table().equals(there.table())
    return 0.0 if same and kept_when_stopped() else 1.0


def kept_when_stopped():
    """Whether a chunk that was learned comes out although Ctrl-C strikes in the next."""
    first, second = (tuple(runs_of(Case("", mdp, (sr.QLearning(),)))) for mdp in GRIDS)
    learn, found = cuda.learn_there, []

    def struck(runs, terms):
        if runs[0].point.mdp.name == second[0].point.mdp.name:
            raise KeyboardInterrupt
        return learn(runs, terms)

    cuda.learn_there = struck
    try:
        for done in cuda.CudaEngine().finish(iter([first, second]), work.Terms(5, 1_000, ("verdict",), 0)):
            found.append(len(done.chunk))
    except KeyboardInterrupt:
        return found == [len(first)]
    finally:
        cuda.learn_there = learn
    return False


if __name__ == "__main__":
    cuda.PER_SM, cuda.BLOCK, cuda.FIRST = 3, 2, 40  # threads take several runs, and launches stop half-way
    cases = CASES[:: int(sys.argv[1])]
    json.dump({case.name: difference(case) for case in cases} | {"a sweep": swept()}, sys.stdout)
