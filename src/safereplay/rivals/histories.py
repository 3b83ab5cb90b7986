"""Learners that replay from a history of transitions, and what they have in common.

The last ``window`` transitions are kept. Each iteration is a replay with probability v, else a step of the MDP, whose
transition is learned from and stored: as in Algorithm 1, so that v means the same for everybody. Batches and episodes
are gone through one replay at a time, over as many iterations as they have.

**Why most of them converge to Q***. Let m_j be how often a transition is replayed on average while it is j steps old. It
depends on the rule, and not on what the transition is, where rules look at age alone. So each transition is replayed
M = Σ_j m_j times on average, whatever its outcome, and of the updates of a pair (s,a) a share q(s',r|s,a) is of each
outcome, fresh or replayed. The mean of the target at (s,a) is then Σ q(s',r|s,a)·(r + γ·max_b Q(s',b)): that of
Q-learning, whose limit is Q*. Replay speeds learning up and leaves its limit alone. A rule that looks at what it
replays, at TD errors or at what came after, is free of this argument and biased in general.

Ref: Lin (1992), Self-improving reactive agents based on reinforcement learning, planning and teaching.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import _checks
from ..kernels import history
from ..kernels.compile import trouble
from ..learners import Learner
from ..schedules import Exploration, StepSize


@dataclass(frozen=True)
class HistoryLearner(Learner):
    """What learners have in common that replay from a history: a subclass names its rule and how much it keeps.

    >>> import safereplay as sr
    >>> from safereplay.rivals.histories import HistoryLearner
    >>> from safereplay.rivals.uniform import WindowReplay
    >>> issubclass(WindowReplay, HistoryLearner), WindowReplay.SETTLES
    (True, False)
    """

    @property
    def rule(self) -> str:
        """Which of the rules of :mod:`safereplay.kernels.history` it replays by."""
        raise NotImplementedError

    @property
    def kept(self) -> int:
        """How many transitions are kept."""
        return int(getattr(self, "window", 1))

    def recipe(self, exploration: Exploration, step_size: StepSize) -> history.Recipe:
        """What the compiled loop is built from."""
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
        """The priority of what is stored before the first replay, for rules that have priorities."""
        return 1.0

    def describe(self) -> str:
        """One short line for tables and legends."""
        window = f", window={self.kept:g}" if hasattr(self, "window") else ""
        return super().describe().replace(")", f"{window})")

    def _check_window(self) -> None:
        _checks.between("v", getattr(self, "v", 0.0), "[0, 1)")
        window = getattr(self, "window", 1)
        if isinstance(window, float) and window.is_integer():  # a sweep's numbers may all be floats
            object.__setattr__(self, "window", int(window))
        _checks.whole("window", getattr(self, "window", 1), 1, bits=24)
