"""Replay of error states: outcomes that are marked unsafe, whatever they pay."""

from dataclasses import dataclass
from math import log

from .base import Scheme


@dataclass(frozen=True)
class ErrorReplay(Scheme):
    """Pairs by how uncertain it is whether they do harm; of their outcomes the unsafe ones e^β times as often.

        W(s,a) ∝ h·(1 − h),    h = P(unsafe | s,a)          ŵ(s',r | s,a) ∝ q̂(s',r | s,a) · e^{β·[unsafe]}

    This is the paper's idea with the indicator of an error state (Geibel & Wysotzki 2005) in the place of the reward: h(1−h)
    is its variance. Rewards play no part, so that a noisy reward which harms nobody is left alone, and a harm that pays well
    is not.

    **Limit.** w^∞ exists: the fixed point of H with it. An unsafe outcome of probability h seems to have the odds
    e^β·h/(1−h) where it is replayed. **Assumption 1** is stated in rewards: in general it fails, since neither the variance
    nor the worst reward plays a part.

    **Breaks** direction where harm pays: a pair whose unsafe outcome has the higher reward is valued above its mean.

    **When it fails.** It needs to be told what is unsafe; outcomes alike in all but that flag are one to the learner,
    and count as unsafe if any of them is. It moves what Q *expects*, not what Q *counts*: where harm costs no reward,
    only the future that it ends, it does little unless v is near 1. On the slippery 4×4 lake (β = 3) P(unsafe) stays at
    0.220 up to v = 0.95 and is 0.176, the least there is, from 0.97 on; on the 8×8 one it goes from 0.1062 to 0.1056 at
    v = 0.97. And where harm comes later than the step that decides it, that step has h = 0.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> [sr.verdict(mdp, sr.fixed_point(mdp, sr.ErrorReplay(beta), v=0.9).argmax(1)) for beta in (0.0, 3.0)]
    ['risky', 'safe']
    """

    beta: float = 3.0

    @staticmethod
    def pair_weight(harm: float) -> float:
        """h·(1 − h)."""
        return harm * (1.0 - harm)

    @staticmethod
    def log_tilt(count: float, unsafe: float, beta: float) -> float:
        """log n + β where the outcome is unsafe."""
        return log(count) + beta * unsafe
