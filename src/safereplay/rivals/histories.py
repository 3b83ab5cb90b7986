"""Base class of learners that replay from a history of transitions.

The last ``window`` transitions are kept. Each iteration is a replay with probability v, else a step of the MDP, whose
transition is learned from and stored. This is as in Algorithm 1, so v has the same meaning for all learners. Batches and
episodes are processed one replay per iteration.

**Why most of them converge to Q***. Let m_j be the mean number of replays of a transition while it is j steps old. For
rules that use age alone, it does not depend on the transition's outcome. So each transition is replayed
M = Σ_j m_j times on average, and each outcome has a share q(s',r|s,a) of the updates of its pair (s,a), fresh or
replayed. The mean of the target at (s,a) is then Σ q(s',r|s,a)·(r + γ·max_b Q(s',b)), as in
Q-learning, whose limit is Q*. Replay changes the speed of learning, not its limit. The argument does not apply to rules
that use TD errors or later events; these are biased in general.

Ref: Lin (1992), Self-improving reactive agents based on reinforcement learning, planning and teaching.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import _checks
from ..kernels import history
from ..kernels.compile import trouble
from ..learners import Learner, replay_chance
from ..schedules import Exploration, StepSize


@dataclass(frozen=True)
class HistoryLearner(Learner):
    """The base class of learners that replay from a history; a subclass defines its rule and how much is kept.

    >>> import safereplay as sr
    >>> from safereplay.rivals.histories import HistoryLearner
    >>> from safereplay.rivals.uniform import WindowReplay
    >>> issubclass(WindowReplay, HistoryLearner), WindowReplay.SETTLES
    (True, False)
    """

    @property
    def rule(self) -> str:
        """The rule of :mod:`safereplay.kernels.history` that it replays by."""
        raise NotImplementedError

    @property
    def kept(self) -> int:
        """The number of transitions kept."""
        return int(getattr(self, "window", 1))

    def recipe(self, exploration: Exploration, step_size: StepSize) -> history.Recipe:
        """The recipe that the compiled loop is built from."""
        parts = {"alpha": (step_size, step_size.bound()), "rate": (exploration, exploration.bound())}
        for name, (owner, bound) in parts.items():
            where, reason = f"{name} of {type(owner).__name__}", trouble(bound)
            _checks.require(reason is None, where, "be code that numba can compile", reason)
        alpha, rate = (bound for _, bound in parts.values())
        return history.Recipe(alpha, rate, exploration.SOFTMAX, self.rule, self.kept, self._shuffles(), self._top())

    def _shuffles(self) -> bool:
        """Whether ties between equal actions are broken at random."""
        return False

    def _top(self) -> float:
        """The priority of transitions stored before the first replay, for rules with priorities."""
        return 1.0

    def describe(self) -> str:
        """One short line for tables and legends."""
        window = f", window={self.kept:g}" if hasattr(self, "window") else ""
        return super().describe().replace(")", f"{window})")

    def _check_window(self) -> None:
        replay_chance(getattr(self, "v", 0.0))
        window = getattr(self, "window", 1)
        if isinstance(window, float) and window.is_integer():  # a sweep may pass all numbers as floats
            object.__setattr__(self, "window", int(window))
        _checks.whole("window", getattr(self, "window", 1), 1, bits=24)
