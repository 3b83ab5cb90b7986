"""What the theory says of the paper's grids: limits, conditions, and the gentlest replay under a limit on risk.

Ref: Szlak & Shamir (2021), Section 3, Section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import grids
from .._types import Floats
from ..learners import QLearning
from ..mdp import TabularMDP
from ..schedules import EpsilonGreedy
from ..schemes import VarianceReplay
from ..theory.conditions import CheckReport, check
from ..theory.limits import exact, fixed_point
from ..theory.theorem2 import Theorem2, theorem_2
from ..theory.tuning import Plan, tune
from ..theory.visits import SelfConsistent
from .experiments import GRIDS, MAX_STEPS, REPLAY, Effort, Work

#: The limits on P(unsafe) that are asked for, from the start distribution of each grid.
LIMITS = {"volatile": (0.05,), "cliff": (0.01, 0.02, 0.05)}


@dataclass(frozen=True)
class World:
    """A grid with an exploration, and what Algorithm 1 can converge to there."""

    name: str
    mdp: TabularMDP
    plain: Floats  #: Q*, [S, A]
    paper: Floats  #: the fixed point of the paper's mapping, [S, A]
    limits: tuple[SelfConsistent, ...]


def run_limits(effort: Effort, work: Work) -> list[World]:
    """Both grids at their defaults, and the cliff where the limit depends on the seed."""
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
    """One state, two actions: gamble for 20 or 0 and be done, or wait, which pays ±δ and changes nothing; and a scheme.

    As δ → 0 the gamble has all of the variance, and with β = 1/(1 − share) its loss has all of w: the theorem's premise.
    Replay lowers the gamble from 10 to 5. Waiting was worth 9, so the theorem says that the agent now waits. But what
    it waits for is the gamble: waiting is now worth 4.5.
    """
    rows = [(0, 0, 0.5, 1, 20.0, True), (0, 0, 0.5, 1, 0.0, True), (0, 1, 0.5, 0, delta), (0, 1, 0.5, 0, -delta)]
    mdp = TabularMDP.from_outcomes(2, 2, rows, gamma=0.9, start=0, name="waiting room")
    share = mdp.reward_variance[0, 0] / mdp.reward_variance.sum()
    return mdp, VarianceReplay(beta=1.0 / (1.0 - share))


def run_certificates(effort: Effort, work: Work) -> Certificates:
    """Check both grids as the paper has them: Algorithm 1, v = 0.5, β = 5."""

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
