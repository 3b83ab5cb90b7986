"""Uniform replay from a window: the experience replay of Lin (1992), with the window as its dial (Liu & Zou 2017).

    with probability v:    (s, a, r, s') uniformly from the last N transitions;    Q(s,a) ← (1−α)·Q(s,a) + α·y
    y = r + γ·max_b Q(s',b)

**Limit.** Q*, for every window N and every v < 1. A transition stays in the window for N steps. In each of them it is
replayed v/(1−v)·1/N times on average, for any outcome: v/(1−v) times in all. So each outcome has a share q(s',r|s,a) of the
updates of its pair, and the mean target is Q-learning's (see :mod:`safereplay.rivals.histories`). Only the speed
changes: α falls with the number of updates, and replays are updates.

**w_t does not converge.** An outcome's share of N transitions keeps varying by about √(p·(1−p)/N). Theorem 1 does
not cover it; the argument above, on averages, does. Only for N → ∞ does w_t converge, to d(s,a)·q(s',r|s,a), if d does.

**When it fails.** Liu & Zou: a window that is too small replays what was just learned, one that is too large replays
transitions of old policies, and both learn more slowly. It is risk-neutral: it learns Q-learning's policy.
Measured on the cliff (20 seeds, 10⁶ steps each, ε = 0.1, α = n^−0.6): windows of 1, 100 and 10,000 at v = 0.5 and one of
10,000 at v = 0.8 all learn the policy of Q-learning on every seed, which falls with probability 0.119.

Ref: Lin (1992), Self-improving reactive agents based on reinforcement learning, planning and teaching.
Ref: Liu & Zou (2017), The effects of memory replay in reinforcement learning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._types import Floats
from ..mdp import TabularMDP
from ..theory.limits import limit_of
from ..theory.solver import optimal
from .histories import HistoryLearner


@dataclass(frozen=True)
class WindowReplay(HistoryLearner):
    """Replay of a transition drawn uniformly from the last ``window``.

    >>> import safereplay as sr
    >>> from safereplay.rivals.uniform import WindowReplay
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> sr.learn(mdp, WindowReplay(v=0.5, window=100), episodes=2_000, seeds=1).Q[0].max(1).round(3)
    array([2., 4., 8., 0.])
    """

    LABEL: ClassVar[str] = "uniform"
    DIALS: ClassVar[tuple[str, ...]] = ("v",)
    DIAL: ClassVar[str] = "window"
    SETTINGS: ClassVar[tuple[float, ...]] = (1, 10, 100, 1_000, 10_000, 100_000)
    SETTLES: ClassVar[bool | None] = False
    WHY: ClassVar[str] = "an outcome's share of a window of N transitions keeps varying by about 1/√N"
    v: float = 0.5
    window: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_window()

    @property
    def rule(self) -> str:
        """All transitions equally."""
        return "uniform"


@limit_of.register
def _(learner: WindowReplay, mdp: TabularMDP) -> Floats:
    return optimal(mdp, mdp.p)
