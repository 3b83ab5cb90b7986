"""Mean and variance of the return, learned together: the score is the one less a multiple of the other.

The variance of the discounted return obeys an equation like that of its mean. Sobel (1982), *The variance of
discounted Markov decision processes*, has it for a fixed policy; Sato, Kimura & Kobayashi (2001), *TD algorithm for
the variance of return and mean-variance reinforcement learning*, learn it from the TD error δ = r + γ·X(s',b*) −
X(s,a):

    X(s,a) ← X(s,a) + α·δ,        M(s,a) ← M(s,a) + α·( δ² + γ²·M(s',b*) − M(s,a) ),        score = X − risk·M

They have M for a policy that is given, and improve the policy by the gradient of the score in its parameters. The form
here is the value-based one: follow the action of the best score.

**Limit.** Of a fixed policy, mean and variance: the second equation is Sobel's, and a γ²-contraction once X has
settled. Of the greedy one, an equilibrium (see :mod:`safereplay.rivals.ledgers`): the action that is best when what
follows it stays as it is.

**When it fails.** (1) The equilibrium is not the best policy. The variance of the whole return is that *within*
branches and that *between* their means; the score at s' sees only the first, and what is paid there for certainty may
widen the gap to another branch. To find the best policy is NP-hard in general, and it may have to remember what was
gained: Mannor & Tsitsiklis (2011), *Mean-variance optimization in Markov decision processes*. Of 100 random worlds of
four states, at risk = 0.1, the equilibrium found had the best score that any of the 16 policies has from the first
state in 77, and from all states in 58; in 39 no policy is best from all states. (2) There may be none: in 4 of these
worlds, and in a streak that goes on with probability 0.9 and pays 10 per step, at risk = 0.3: one step more is worth its
variance, a whole streak is not. ``sr.exact`` then refuses. The learner comes to rest all the same, where both actions
tie and each is taken some of the time; its tables are then those of no policy that it could follow greedily. (3) There
may be several: in 6 of these worlds. Which one is learned depends on where Q starts. (4) More can be worse: variance
is disliked above the mean as below it. On the cliff the limit at risk = 0.3 goes the safe way, and that at risk = 1
jumps: a fall is the surest return there is. (5) δ² counts the error of X as well, so that what is little known is
taken for risky, is left alone, and stays little known. On the cliff at risk = 0.3 and ε = 0.1, where the limit goes
the safe way, all runs of 50,000 episodes still jump; ten times as many go the safe way, and so do 50,000 that explore
all the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .._config import dial
from .._types import Floats
from ..mdp import TabularMDP
from ..theory.limits import limit_of
from .ledgers import LedgerLearner, settled


@dataclass(frozen=True)
class MeanVariance(LedgerLearner):
    """Sato, Kimura & Kobayashi (2001), value-based: score = mean − risk·variance of the discounted return.

    ``risk`` ≥ 0 is in 1/reward: by how much reward one more (reward)² of variance has to be paid for.

    >>> import safereplay as sr
    >>> mdp = sr.grids.volatile()
    >>> [sr.verdict(mdp, sr.exact(mdp, sr.MeanVariance(risk)).argmax(1)) for risk in (0.0, 0.01)]
    ['risky', 'safe']
    """

    LABEL: ClassVar[str] = "mean–variance"
    DIALS: ClassVar[tuple[str, ...]] = ("risk",)
    DIAL: ClassVar[str] = "risk"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    risk: float = dial(0.03, "[0, inf)")

    @staticmethod
    def second(q: float, m: float, r: float, best: float, ahead: float, alpha: float, gamma: float) -> float:
        """M(s,a) + α·(δ² + γ²·M(s',b*) − M(s,a))."""
        delta = r + gamma * best - q
        return m + alpha * (delta * delta + gamma * gamma * ahead - m)

    @staticmethod
    def score(q: float, m: float, risk: float) -> float:
        """X − risk·M."""
        return q - risk * m

    def gain(self, mdp: TabularMDP, error: Floats) -> Floats:
        """δ²."""
        return error**2

    def passing(self, mdp: TabularMDP) -> Floats:
        """γ², and nothing from beyond the end."""
        return np.where(mdp.terminal, 0.0, mdp.gamma**2)


@limit_of.register
def _(learner: MeanVariance, mdp: TabularMDP) -> Floats:
    return settled(mdp, learner).score
