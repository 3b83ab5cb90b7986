"""Updates per second of :func:`safereplay.learn`, compared with ``benchmarks/plain.py``.

An update is one change of Q(s,a): an MDP iteration or a replay. plain.py is Algorithm 1 written directly from the paper.
Both run the same learner on the same grid for the same number of episodes on one thread, alternating, and the best round of
each counts. The loop is compiled beforehand; set-up is timed. Times are CPU seconds of this process, to reduce the effect
of other work on the machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import plain
from safereplay import _checks, grids
from safereplay.learners import (
    Learner,
    Pessimistic,
    QLearning,
    ReplayQLearning,
    RiskSensitive,
    WorstCase,
    WorstTransition,
)
from safereplay.mdp import TabularMDP
from safereplay.runs import learn
from safereplay.schemes import VarianceReplay

from .sheets import Effort, Part, Rows, Sheet, Task, span

GRIDS = tuple(grids.PAPER)
BETA = 5.0


@dataclass(frozen=True)
class Speed:
    """Updates per second of one learner on one grid, in plain Python and in safereplay.

    >>> Speed("cliff", "Q-learning", 20_000, plain=500_000.0, ours=25_000_000.0).ratio
    50.0
    """

    grid: str
    learner: str
    episodes: int
    plain: float
    ours: float

    @property
    def ratio(self) -> float:
        """The speed-up of safereplay."""
        return self.ours / self.plain


class Contest(NamedTuple):
    """A learner and its name in plain.py."""

    learner: Learner
    kind: str
    v: float = 0.0
    beta: float = BETA
    kappa: float = 0.5

    def dials(self) -> dict[str, Any]:
        """The learner's arguments of ``plain.run``."""
        return {"kind": self.kind, "v": self.v, "beta": self.beta, "kappa": self.kappa}


def contests() -> list[Contest]:
    """All learners that both sides have."""
    scheme = VarianceReplay(BETA)
    return [
        Contest(QLearning(), "q"),
        Contest(ReplayQLearning(scheme, v=0.0), "replay"),
        Contest(ReplayQLearning(scheme, v=0.5), "replay", v=0.5),
        Contest(ReplayQLearning(scheme, v=0.5, mixing="matched"), "matched", v=0.5),
        Contest(RiskSensitive(0.5), "mihatsch", kappa=0.5),
        Contest(Pessimistic(0.5), "gaskett", beta=0.5),
        Contest(WorstCase(), "worst"),
        Contest(WorstTransition(), "worst-transition"),
    ]


def plain_model(mdp: TabularMDP) -> dict[str, Any]:
    """A model as the arguments of ``plain.run``; its start must be uniform over some states."""
    starts = np.flatnonzero(mdp.start)
    alike = bool(np.allclose(mdp.start[starts], 1.0 / starts.size))
    _checks.require(alike, "start", "be uniform over its states", mdp.start)
    columns = (mdp.pair, mdp.p, mdp.r, mdp.s_next, mdp.terminal)
    outcomes: dict[tuple[int, int], list[tuple[float, tuple[float, int, bool]]]] = {}
    for i, p, r, s_next, ends in zip(*(column.tolist() for column in columns), strict=True):
        outcomes.setdefault(divmod(i, mdp.n_actions), []).append((p, (r, s_next, ends)))
    return {
        "outcomes": outcomes,
        "n_states": mdp.n_states,
        "n_actions": mdp.n_actions,
        "start_states": starts.tolist(),
        "gamma": mdp.gamma,
    }


def measure_speed(grid: str, contest: Contest, effort: Effort) -> Speed:
    """One learner on one grid: alternating runs of plain.py and of safereplay; the best of each."""
    mdp = grids.PAPER[_checks.choice("grid", grid, GRIDS)]()
    model = plain_model(mdp)
    learner, episodes = contest.learner, effort.episodes
    learn(mdp, learner, episodes=1, seeds=1, threads=1, quiet=True).whole()  # compiles

    def run_plain(seed: int) -> int:
        return int(plain.run(**model, **contest.dials(), episodes=episodes, seed=seed)[1])

    def run_ours(seed: int) -> int:
        return our_updates(mdp, learner, episodes, range(seed, seed + effort.seeds))

    speeds = [(rate(run_plain, i), rate(run_ours, i)) for i in range(effort.rounds)]
    best_plain, best_ours = (max(side) for side in zip(*speeds, strict=True))
    return Speed(grid, learner.describe(), episodes, best_plain, best_ours)


def our_updates(mdp: TabularMDP, learner: Learner, episodes: int, seeds: range) -> int:
    """Learn on one thread; return the number of updates."""
    runs = learn(mdp, learner, episodes, seeds, threads=1, quiet=True).whole()
    return int(runs.visits.sum() + runs.replays.sum())


def rate(run: Callable[[int], int], seed: int) -> float:
    """Updates per CPU second of a run."""
    began = time.process_time()
    updates = run(seed)
    return updates / max(time.process_time() - began, 1e-9)


def tasks(effort: Effort) -> list[Task]:
    """Every learner on both grids."""

    def measure(grid: str, contest: Contest) -> list[Speed]:
        return [measure_speed(grid, contest, effort)]

    entries = [(grid, contest) for grid in GRIDS for contest in contests()]
    return [Task(f"{grid}: {contest.learner.describe()}", partial(measure, grid, contest)) for grid, contest in entries]


def sheet(rows: Rows) -> Sheet:
    """The speeds as a table."""
    return Sheet(
        "updates per second, one thread",
        "`benchmarks/plain.py` is Algorithm 1 and its rivals, written directly from the papers in "
        "Python without numpy. CPU seconds, the best round of each; with set-up, without compiling.",
        ("grid", "learner", "plain Python", "safereplay", "ratio"),
        [(row.grid, row.learner, f"{row.plain:,.0f}", f"{row.ours:,.0f}", f"{row.ratio:.0f}×") for row in rows],
        f"safereplay does {span(row.ratio for row in rows)} times as many updates as plain Python.",
        words=2,
    )


PART = Part("plain", tasks, sheet)
