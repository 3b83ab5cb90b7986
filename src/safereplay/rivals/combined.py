"""Combined replay: each batch of replays includes the newest transition (Zhang & Sutton 2017).

    a batch of n replays:    the newest transition, then n − 1 drawn uniformly from the last N

The source corrects a drawback of large windows: a new transition may wait long for its first replay. The batch size does
not change. Here a batch is spread over n replays. Algorithm 1's own step already learns from the newest transition once;
combined replay does so again. n = 1 replays only the newest, n → ∞ is uniform replay.

**Limit.** Q*: whether a transition is replayed as the newest depends on when it happened, not on its outcome; later
it is drawn like all others (see :mod:`safereplay.rivals.histories`).

**w_t does not converge**: a share 1/n of it lies on the newest transition, which changes with each step.

**When it fails.** With small n, the same outcome is learned from twice in a row: this moves Q as far as a step size of
1 − (1−α)² would, and Q varies more around its mean. It is risk-neutral.
Measured on the cliff (20 seeds, 10⁶ steps each, ε = 0.1, α = n^−0.6): batches of 1 and 8 at v = 0.5 learn the policy of
Q-learning on every seed, which falls with probability 0.119.

Ref: Zhang & Sutton (2017), A deeper look at experience replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .. import _checks
from .._types import Floats
from ..mdp import TabularMDP
from ..theory.limits import limit_of
from ..theory.solver import optimal
from .histories import HistoryLearner


@dataclass(frozen=True)
class CombinedReplay(HistoryLearner):
    """Replay in batches: the newest transition, then ``batch`` − 1 drawn uniformly from the last ``window``.

    >>> import safereplay as sr
    >>> from safereplay.rivals.combined import CombinedReplay
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> sr.learn(mdp, CombinedReplay(v=0.5, batch=4), episodes=2_000, seeds=1).Q[0].max(1).round(3)
    array([2., 4., 8., 0.])
    """

    LABEL: ClassVar[str] = "combined"
    DIALS: ClassVar[tuple[str, ...]] = ("v", "batch")
    DIAL: ClassVar[str] = "batch"
    SETTINGS: ClassVar[tuple[float, ...]] = (64, 32, 16, 8, 4, 2, 1)
    SETTLES: ClassVar[bool | None] = False
    WHY: ClassVar[str] = "a share 1/batch of the replays lies on the newest transition, which changes with each step"
    v: float = 0.5
    batch: int = 8
    window: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_window()
        _checks.whole("batch", self.batch, 1, bits=32)

    @property
    def rule(self) -> str:
        """The newest, then uniform."""
        return "combined"


@limit_of.register
def _(learner: CombinedReplay, mdp: TabularMDP) -> Floats:
    return optimal(mdp, mdp.p)
