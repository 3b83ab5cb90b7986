"""What is known about a learner before training: its schedules, whether its replay converges, and its limit.

:func:`safereplay.check` checks the paper's conditions for a scheme of Algorithm 1. Other learners have no w_t of that
kind; their class attributes ``SETTLES`` and ``WHY`` state whether their replay distribution converges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .. import _checks
from .._config import plain
from ..errors import BadInput
from ..learners import Learner, ReplayQLearning
from ..mdp import TabularMDP
from ..runs import resolved
from ..schedules import Exploration, StepSize
from .assumption1 import Part
from .conditions import Exploring, StepSizes, exploring, step_sizes
from .limits import exact


@dataclass(frozen=True)
class Prospects:
    """The result of :func:`prospects`; printing it gives a report."""

    mdp: str
    learner: Learner
    steps: StepSizes
    exploring: Exploring
    settling: Part  #: of its replay distribution
    limit: Part  #: whether an exact limit is known here

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        parts = {name: getattr(self, name).to_dict() for name in ("steps", "exploring", "settling", "limit")}
        return {"mdp": self.mdp, "learner": plain(self.learner), **parts}

    def __str__(self) -> str:
        said = {True: "yes", False: "no", None: "open"}
        names = {"steps": "step sizes", "exploring": "exploration", "settling": "w_t settles", "limit": "exact limit"}
        lines = [
            f"  {label:<12} {said[(part := getattr(self, name)).holds]:<5} {part.reason}"
            for name, label in names.items()
        ]
        return "\n".join([f"{self.learner.describe()} on {self.mdp}", *lines])


def prospects(
    mdp: TabularMDP, learner: Learner, exploration: Exploration | None = None, step_size: StepSize | None = None
) -> Prospects:
    """What is known about a learner on a model before training.

    >>> import safereplay as sr
    >>> print(prospects(sr.grids.cliff(), sr.PrioritisedReplay()).settling.holds)
    False
    >>> prospects(sr.grids.cliff(), sr.WindowReplay()).limit.holds
    True
    """
    exploration, step_size = resolved(mdp, learner, exploration, step_size)
    hint = "use check(mdp, learner.scheme, v, mixing=...)"
    _checks.require(not isinstance(learner, ReplayQLearning), "learner", "be another than Algorithm 1", learner, hint)
    return Prospects(
        mdp.name,
        learner,
        step_sizes(step_size),
        exploring(mdp, exploration, mdp.is_reachable),
        Part(learner.SETTLES, learner.WHY) if learner.WHY else Part(True, "nothing is replayed: there is no w_t"),
        _limit(mdp, learner),
    )


def _limit(mdp: TabularMDP, learner: Learner) -> Part:
    try:
        exact(mdp, learner)
    except BadInput as error:
        return Part(False, str(error))
    return Part(True, "known: sr.exact(mdp, learner)")
