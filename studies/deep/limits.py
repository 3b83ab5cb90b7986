"""What theory says of a run before it is made: on a world that is a table, the exact limit of shaped replay.

:func:`~safereplay.shaped_limit` has the Q that fits p̃ = (1 − ρ)q + ρŵ, with the run's own v, β and tilt. Its greedy policy is walked
through the very evaluation episodes that the network's is. Two policies that do the same wherever they come meet the same luck, so their
returns are equal episode by episode; a policy that differs in one state that is ever met shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from safereplay._types import Floats
from safereplay.errors import BadInput
from safereplay.schemes import EntropicReplay
from safereplay.theory.shaped import shaped_limit

from .records import Job
from .summary import OURS, PLAIN, REWARD, Chapter, Group
from .training import evaluate
from .worlds import world_named

SHAPED = (PLAIN, OURS, REWARD)  #: families whose limit is known: matched mixing


class TablePolicy:
    """The greedy policy of a table Q, for observations that are unit vectors."""

    def __init__(self, Q: Floats) -> None:
        self._action = Q.argmax(1)

    def predict(self, observation: Any, deterministic: bool = True) -> tuple[Any, None]:
        """The best action of each row."""
        return self._action[np.asarray(observation).argmax(-1)], None


class Prediction(NamedTuple):
    """What the limit's policy does, and how many runs do exactly that."""

    p: float  #: its P(catastrophe) in the evaluation episodes
    mean: float  #: its mean return
    same: int  #: runs whose returns are its own, episode by episode
    of: int


def prediction(group: Group, job: Job) -> Prediction | None:
    """Theory beside a setting's runs; None where the world is no table, or the limit is not known or does not settle."""
    s = job.setting
    if group.family not in SHAPED or world_named(s["world"]).mdp is None or s["tilt_on"] == "return":
        return None
    told = _told(s["world"], s["v"], s["beta"], s["tilt_on"], s["episodes"])
    if told is None:
        return None
    same = sum(np.array_equal(run.evaluation.returns, np.array(told["returns"])) for run in group.runs)
    return Prediction(told["p_catastrophe"], told["mean_return"], same, group.seeds)


@cache
def _told(world: str, v: float, beta: float, tilt_on: str, episodes: int) -> dict[str, Any] | None:
    spec = world_named(world)
    assert spec.mdp is not None
    try:
        Q = shaped_limit(spec.mdp(), EntropicReplay(beta), v, tilt_on)
    except BadInput:  # the only input that can be bad here: targets that do not settle
        return None
    return evaluate(TablePolicy(Q), spec, episodes, "test")


def predictions(chapters: Sequence[Chapter], jobs: Sequence[Job]) -> list[tuple[Chapter, Group, Prediction | None]]:
    """Every setting of which theory might say something."""
    job_of = {(job.setting["world"], job.family, job.dial): job for job in jobs}
    tables = [c for c in chapters if world_named(c.world).mdp is not None]
    groups = [(c, g) for c in tables for g in c.groups if g.family in SHAPED]
    return [(c, g, prediction(g, job_of[c.world, g.family, g.dial])) for c, g in groups]
