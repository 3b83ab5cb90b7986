"""Emphasising recent experience: later updates of a cycle replay more recent transitions (Wang & Ross 2019).

    the k-th of K replays:    a transition uniformly from the c_k most recent,    c_k = max(N·η^(k·1000/K), c_min)

η = 1 is uniform replay from the window N; a smaller η favours recent transitions. The order matters as well: old
transitions come first in a cycle, so that they do not overwrite the updates of the recent ones.

**Online.** The source makes its K updates after an episode of K steps. Here a replay happens with probability v at any
time, so the cycle is independent of episodes: k = 1, ..., K over the replays, then again from 1, for a given K (``cycle``).
With the source's cycle, k would depend on the time since the last episode ended. Outcomes that end an episode would
then be replayed at another age than others of the same pair: a bias for or against ends, which is not intended.

**Limit.** Q*: the number of replays at each age depends on k and c_k alone, not on the outcome (see
:mod:`safereplay.rivals.histories`). While fewer than c_k transitions are stored, all of them are drawn from.

**w_t does not converge**: it cycles with k, and changes with each new transition.

**When it fails.** If rare outcomes matter: a small c_k forgets a rare outcome soon after it happened, and learns from it
many times just before. The mean stays right, but Q varies more around it. It is risk-neutral.
Measured on the cliff (20 seeds, 10⁶ steps each, ε = 0.1, α = n^−0.6): η = 0.996 at v = 0.5 and η = 0.98 at v = 0.8 learn the
policy of Q-learning on every seed, which falls with probability 0.119.

Ref: Wang & Ross (2019), Boosting soft actor-critic: emphasizing recent experience without forgetting the past.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .. import _checks
from .._config import dial
from .._types import Floats
from ..mdp import TabularMDP
from ..theory.limits import limit_of
from ..theory.solver import optimal
from .histories import HistoryLearner


@dataclass(frozen=True)
class RecentReplay(HistoryLearner):
    """Replay of a transition drawn uniformly from the c_k most recent; ``least`` is c_min, ``cycle`` K.

    >>> import safereplay as sr
    >>> from safereplay.rivals.recency import RecentReplay
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> learner = RecentReplay(v=0.5, eta=0.99, least=10, window=1_000)
    >>> sr.learn(mdp, learner, episodes=2_000, seeds=1).Q[0].max(1).round(3)
    array([2., 4., 8., 0.])
    """

    LABEL: ClassVar[str] = "recent"
    DIALS: ClassVar[tuple[str, ...]] = ("v", "eta", "least", "cycle")
    DIAL: ClassVar[str] = "eta"
    SETTINGS: ClassVar[tuple[float, ...]] = (1.0, 0.9998, 0.9995, 0.999, 0.998, 0.996, 0.99, 0.98)
    SETTLES: ClassVar[bool | None] = False
    WHY: ClassVar[str] = "w_t cycles with k, and an outcome's share of c_k transitions keeps varying by about 1/√c_k"
    v: float = 0.5
    eta: float = dial(0.996, "(0, 1]")
    least: int = 50
    cycle: int = 1_000
    window: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_window()
        _checks.whole("least", self.least, 1, bits=32)
        _checks.whole("cycle", self.cycle, 1, bits=32)

    @property
    def rule(self) -> str:
        """By age."""
        return "recent"


@limit_of.register
def _(learner: RecentReplay, mdp: TabularMDP) -> Floats:
    return optimal(mdp, mdp.p)
