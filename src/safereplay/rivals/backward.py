"""Episodic backward update: replay of a whole episode from its end to its start (Lee, Choi & Chung 2019).

With the episode's transitions (s_k, a_k, r_k, s_{k+1}), k = 1, ..., T, and a diffusion factor β,

    y_T = r_T + γ·max_b Q(s_{T+1}, b)          (r_T alone where the episode ended)
    Q̃(s_{k+1}, a_{k+1}) = β·y_{k+1} + (1−β)·Q(s_{k+1}, a_{k+1}),    Q̃ = Q for the other actions
    y_k = r_k + γ·max_b Q̃(s_{k+1}, b),    k = T−1, ..., 1

and Q(s_k,a_k) moves towards y_k. β = 1 carries a reward back through the whole episode at once; β = 0 is Q-learning's
update in backward order. The source uses a target network for Q; a table needs none, so Q is the current
one. An episode is drawn uniformly from those that lie fully in the window, and processed one replay at a time. The target
of the last step of a truncated episode still includes γ·max_b Q.

**Limit.** Where each pair has one outcome, Q*, for every β: y_T is off by at most γ·‖Q − Q*‖, and with y_{k+1} and Q both off
by at most ‖Q − Q*‖ so is their mixture, hence y_k by at most γ·‖Q − Q*‖: a γ-contraction towards Q*. With β = 0 the limit
is Q* in stochastic worlds as well, as the window grows. (A small window holds more episodes when they are short, so the outcomes
of a pair before short and long episodes are drawn with different probabilities. ``sr.exact`` gives the limit of a
long window for every window.) With β > 0 in a stochastic world there is **no such limit** in general: y_{k+1} is a single
sample. The mean of a maximum over it is at least the maximum of its mean: a low sample of a_{k+1} is replaced by the next
best action, a high one is not. So Q is too high where chance decides whether y_{k+1} or another action is better, by an
amount that depends on the exploration. Where chance does not decide that, or there is no other action, the samples
average out.

**w_t does not converge**: after (s_k,a_k) the transition before it is replayed with certainty.

**When it fails.** In stochastic worlds with β near 1, by the bias above: it underestimates danger, since the loss after
a bad outcome is replaced by the next best action's value. Measured on the cliff (20 seeds, 10⁶ steps each, ε = 0.1, α =
n^−0.6, v = 0.5): the value of the start, right for β = 0 (−0.35), is 0.3 too high for β = 0.5 and 1.1 too high for β =
1. The greedy policy is still that of Q-learning on every seed: it falls with probability 0.119.

Ref: Lee, Choi & Chung (2019), Sample-efficient deep reinforcement learning via episodic backward update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .. import _checks
from .._config import dial
from .._types import Floats
from ..mdp import TabularMDP
from ..theory.limits import limit_of
from ..theory.solver import optimal
from .histories import HistoryLearner


@dataclass(frozen=True)
class BackwardReplay(HistoryLearner):
    """Replay of whole episodes from their end to their start; ``beta`` is the diffusion factor.

    >>> import safereplay as sr
    >>> from safereplay.rivals.backward import BackwardReplay
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> sr.learn(mdp, BackwardReplay(v=0.5, beta=1.0), episodes=2_000, seeds=1).Q[0].max(1).round(3)
    array([2., 4., 8., 0.])
    """

    LABEL: ClassVar[str] = "backward"
    DIALS: ClassVar[tuple[str, ...]] = ("v", "beta")
    DIAL: ClassVar[str] = "beta"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    SETTLES: ClassVar[bool | None] = False
    WHY: ClassVar[str] = "the next replay is the transition before this one, so that w_t jumps from one to the other"
    v: float = 0.5
    beta: float = dial(0.5, "[0, 1]")
    window: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_window()

    @property
    def rule(self) -> str:
        """Episodes from their end."""
        return "backward"


@limit_of.register
def _(learner: BackwardReplay, mdp: TabularMDP) -> Floats:
    certain = learner.beta == 0.0 or learner.v == 0.0 or int(np.diff(mdp.row).max()) <= 1
    hint = "in a random world its target is a maximum over what happened once, which has no limit of its own"
    _checks.require(certain, "beta", "be 0 where outcomes are random", learner.beta, hint)
    return optimal(mdp, mdp.p)
