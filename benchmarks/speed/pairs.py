"""Time per update and bytes per pair on models of 10² to 4·10⁶ pairs.

Every pair's reward is random, so every pair that was visited often enough has a weight in the sum tree. Next states are
uniform, so memory access is random: the worst case. Set-up and a warm-up that visits the pairs are not timed. Times are
CPU seconds of this process.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial

import numpy as np

from safereplay.arrays import model_memory, sampling_model
from safereplay.footprints import footprint
from safereplay.kernels import rng, step
from safereplay.learners import ReplayQLearning
from safereplay.mdp import TabularMDP
from safereplay.runs import make_program
from safereplay.schedules import EpsilonGreedy, PowerStep
from safereplay.schemes import VarianceReplay

from .sheets import Effort, Part, Rows, Sheet, Task

ACTIONS = 4
TIMED_STEPS = 400_000  # iterations per timed round
FOREVER = 1 << 60  # episodes


@dataclass(frozen=True)
class Scaling:
    """The time of an update on a random model with a number of pairs."""

    pairs: int
    nanoseconds: float  #: per update
    visited: float  #: share of the pairs that were visited
    weighted: float  #: share of the pairs that have a weight in the sum tree
    bytes: float  #: per pair, of one run besides the model (see :func:`safereplay.footprint`)


def random_model(n_pairs: int, seed: int = 0) -> TabularMDP:
    """A model of ``n_pairs`` pairs with two outcomes each: uniform next states, different rewards, 1 in 50 ends."""
    generator = np.random.default_rng(seed)
    n_states, n_outcomes = n_pairs // ACTIONS, 2 * n_pairs
    pair = np.repeat(np.arange(n_pairs), 2)
    p = generator.uniform(0.2, 0.8, n_pairs)
    columns = [
        pair // ACTIONS,
        pair % ACTIONS,
        np.column_stack((p, 1.0 - p)).ravel(),
        generator.integers(n_states, size=n_outcomes),
        generator.normal(size=n_outcomes),
        generator.random(n_outcomes) < 0.02,
        np.zeros(n_outcomes),
    ]
    return TabularMDP.from_outcomes(n_states, ACTIONS, np.column_stack(columns), 0.9, name=f"random-{n_pairs}")


def measure_scaling(n_pairs: int, warm_up: float, rounds: int = 7) -> Scaling:
    """The time of an update of replay (v = ½), after a warm-up of ``warm_up`` MDP iterations per pair; the best round."""
    mdp = random_model(n_pairs)
    learner = ReplayQLearning(VarianceReplay(1.0), v=0.5)
    program = make_program(learner, EpsilonGreedy(0.5), PowerStep(), mdp.gamma, mdp.n_actions)
    model, memory = sampling_model(mdp), model_memory(mdp)
    tables = step.allocate(mdp.n_states, mdp.n_actions, 0.0, rng.seeded(0))

    def nanoseconds(steps: int) -> float:
        before, began = int(tables.counts.sum()), time.process_time_ns()
        program.advance(model, memory, tables, FOREVER, 1_000, steps)
        spent = time.process_time_ns() - began
        return spent / (int(tables.counts.sum()) - before)

    nanoseconds(max(TIMED_STEPS, int(2 * warm_up * n_pairs)))
    best = min(nanoseconds(TIMED_STEPS) for _ in range(rounds))
    weights = memory.tree[memory.tree.size // 2 :][:n_pairs]
    visited = float((tables.counts[:, step.VISITS] > 0).mean())
    held = footprint(mdp, learner, threads=1).total / n_pairs
    return Scaling(n_pairs, best, visited, float((weights > 0.0).mean()), held)


def tasks(effort: Effort) -> list[Task]:
    """Every size."""

    def measure(n_pairs: int) -> list[Scaling]:
        return [measure_scaling(n_pairs, effort.warm_up)]

    return [Task(f"{n_pairs:,} pairs", partial(measure, n_pairs)) for n_pairs in effort.pairs]


def sheet(rows: Rows) -> Sheet:
    """The time of an update by the number of pairs, as a table."""
    return Sheet(
        "cost against pairs",
        "An update of replay (v = ½) on random models with two outcomes per pair and uniform next states, so that memory access is "
        "random, after a warm-up over all reachable pairs. Bytes are those of one run besides the model.",
        ("pairs", "ns per update", "relative to the first", "bytes per pair", "visited", "with weight"),
        [
            (
                f"{row.pairs:,}",
                f"{row.nanoseconds:.0f}",
                f"{row.nanoseconds / rows[0].nanoseconds:.1f}×",
                f"{row.bytes:.0f}",
                f"{row.visited:.0%}",
                f"{row.weighted:.0%}",
            )
            for row in rows
        ],
        words=0,
    )


PART = Part("pairs", tasks, sheet)
