"""How verdicts move with what the paper leaves open: γ, exploration, layouts, slips, v and β."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import grids
from .._types import Floats
from ..learners import Learner, QLearning, ReplayQLearning, RiskSensitive
from ..mdp import TabularMDP
from ..schedules import EpsilonGreedy
from ..schemes import VarianceReplay
from ..theory.limits import exact
from ..verdicts import VERDICTS, verdict
from .experiments import GRIDS, REPLAY, Effort, Sweep, Work, run


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
