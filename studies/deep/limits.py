"""The prediction of theory for a run: on tabular worlds, the exact limit of shaped replay.

:func:`~safereplay.shaped_limit` computes the Q of p̃ = (1 − ρ)q + ρŵ, with the run's v and β, and with keys its tilt. Its greedy policy is run on
the same evaluation episodes as the network's, with the same seeds. Policies that agree in all visited states have equal
returns in every episode; any difference in a visited state shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from safereplay._checks import Floats
from safereplay.errors import BadInput
from safereplay.schemes import EntropicReplay, SurpriseReplay
from safereplay.theory.design import design
from safereplay.theory.shaped import shaped_limit

from .records import Job
from .summary import KEYED, OURS, PLAIN, Chapter, Group
from .training import evaluate
from .worlds import world_named

SHAPED = (PLAIN, OURS, KEYED)  #: families whose limit is known


class TablePolicy:
    """The greedy policy of a table Q, for observations that are unit vectors."""

    def __init__(self, Q: Floats) -> None:
        self._action = Q.argmax(1)

    def predict(self, observation: Any, deterministic: bool = True) -> tuple[Any, None]:
        """The best action of each row."""
        return self._action[np.asarray(observation).argmax(-1)], None


class Prediction(NamedTuple):
    """The results of the limit's policy, and how many runs have the same."""

    p: float  #: its P(catastrophe) in the evaluation episodes
    mean: float  #: its mean return
    same: int  #: runs with the same return in every episode
    of: int


Predicted = tuple[Chapter, Group, Prediction | None]


def prediction(group: Group, job: Job) -> Prediction | None:
    """The prediction for a setting; None if the world is not tabular, or the limit is unknown or does not exist."""
    s = job.setting
    if group.family not in SHAPED or world_named(s["world"]).mdp is None or s["tilt_on"] == "return":
        return None
    Q = _limit(s["world"], s["v"], s["beta"], s["key"], s["tilt_on"])
    if Q is None:
        return None
    told = [evaluate(TablePolicy(Q), world_named(s["world"]), s["episodes"], "test", run.seed) for run in group.runs]
    same = sum(np.array_equal(run.evaluation.returns, x["returns"]) for run, x in zip(group.runs, told, strict=True))
    p, mean = (float(np.mean([x[name] for x in told])) for name in ("p_catastrophe", "mean_return"))
    return Prediction(p, mean, same, group.seeds)


@cache
def _limit(world: str, v: float, beta: float, key: str, tilt_on: str) -> Floats | None:
    model = world_named(world).mdp
    assert model is not None
    try:
        return shaped_limit(model(), EntropicReplay(beta) if key else SurpriseReplay(beta=beta), v, tilt_on)
    except BadInput:  # the only possible reason: an iteration that does not converge
        return None


@cache
def best_return(world: str, most: float) -> float | None:
    """The mean return of the deterministic policy with the best discounted return that ends with probability 1 and has at most this P(catastrophe), from S.

    None without a table, or if replay cannot give any such policy.
    """
    make = world_named(world).mdp
    if make is None:
        return None
    model = make()
    try:
        price = design(model, max_p_unsafe=most, start=model.origin, quiet=True).price
    except BadInput:
        return None
    return None if price is None else price.deterministic.profile.mean


def predictions(chapters: Sequence[Chapter], jobs: Sequence[Job]) -> list[Predicted]:
    """All settings on tabular worlds, with their predictions."""
    job_of = {(job.setting["world"], job.family, job.dial): job for job in jobs}
    tables = [c for c in chapters if world_named(c.world).mdp is not None]
    groups = [(c, g) for c in tables for g in c.groups if g.family in SHAPED]
    return [(c, g, prediction(g, job_of[c.world, g.family, g.dial])) for c, g in groups]
