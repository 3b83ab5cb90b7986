"""Emphasising recent experience: the later in a cycle of updates, the younger what is replayed (Wang & Ross 2019).

    the k-th of K replays:    a transition uniformly from the c_k most recent,    c_k = max(N·η^(k·1000/K), c_min)

η = 1 is uniform replay from the window N; the smaller η, the more recent. The order matters as well: old transitions
come first in a cycle, so that they do not undo what the recent ones taught.

**On line.** The source makes its K updates after an episode of K steps. Here a replay comes with probability v at any time,
so the cycle runs on its own: k = 1, ..., K over the replays as they come, then again from 1, for a given K (``cycle``). With
the source's own cycle k would tell how long ago an episode ended. Given a pair, outcomes that end an episode would
then be replayed at another age than those that do not: that is a bias for or against ends, which the source does not want.

**Limit.** Q*: how often a transition is replayed at which age depends on k and c_k alone, not on what it is (see
:mod:`safereplay.rivals.histories`). While fewer than c_k transitions are stored, all of them are drawn from.

**w_t does not settle**: it goes round with k, and each of the c_k transitions moves it.

**When it fails.** Where what is rare matters: a small c_k forgets a rare outcome soon after it happened, and learns from it
many times just before. The mean stays right, the spread of Q around it grows. It is neutral to risk.
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
    WHY: ClassVar[str] = "w_t goes round with the cycle, and a share of c_k transitions moves by about 1/√c_k for ever"
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
