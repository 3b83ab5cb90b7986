"""Mean and variance of the return, learned together: the score is the mean minus a multiple of the variance.

The variance of the discounted return satisfies an equation like that of its mean. Sobel (1982), *The variance of
discounted Markov decision processes*, gives it for a fixed policy; Sato, Kimura & Kobayashi (2001), *TD algorithm for
the variance of return and mean-variance reinforcement learning*, learn it from the TD error δ = r + γ·X(s',b*) −
X(s,a):

    X(s,a) ← X(s,a) + α·δ,        M(s,a) ← M(s,a) + α·( δ² + γ²·M(s',b*) − M(s,a) ),        score = X − risk·M

They compute M for a given policy, and improve the policy by the gradient of the score in its parameters. The form
here is value-based: take the action with the best score.

**Limit.** For a fixed policy, mean and variance: the second equation is Sobel's, and a γ²-contraction once X has
converged. For the greedy policy, an equilibrium (see :mod:`safereplay.rivals.ledgers`): each action is best if
all later actions stay the same.

**When it fails.** (1) The equilibrium is not the best policy. The variance of the whole return is the variance *within*
branches plus that *between* their means. The score at s' includes only the first, and a price paid there for certainty
may increase the second. Finding the best policy is NP-hard in general, and it may depend on the return so
far: Mannor & Tsitsiklis (2011), *Mean-variance optimization in Markov decision processes*. Of 100 random worlds of
four states, at risk = 0.1, the equilibrium found had the best score of all 16 policies from the first
state in 77, and from all states in 58; in 39 no policy is best from all states. (2) There may be none: in 4 of these
worlds, and in a streak that continues with probability 0.9 and pays 10 per step, at risk = 0.3: one more step is worth
its variance, a whole streak is not. ``sr.exact`` then raises an error. The learner still converges, to a tie where each
action is taken some of the time; its tables are then those of no greedy policy. (3) There
may be several: in 6 of these worlds. Which one is learned depends on the initial Q. (4) A larger risk can be worse:
variance above the mean counts as much as below. On the cliff the limit at risk = 0.3 takes the safe way, and that at
risk = 1 jumps: a fall has the least variance. (5) δ² includes the error of X as well, so a pair with few visits
looks risky, is avoided, and keeps few visits. On the cliff at risk = 0.3 and ε = 0.1, where the limit takes
the safe way, all runs of 50,000 episodes still jump; runs of ten times as many take the safe way, and so do runs of
50,000 that always explore.
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

    ``risk`` ≥ 0 is in 1/reward: the price, in reward, of one (reward)² of variance.

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
        """γ²; 0 at the end of the episode."""
        return np.where(mdp.terminal, 0.0, mdp.gamma**2)


@limit_of.register
def _(learner: MeanVariance, mdp: TabularMDP) -> Floats:
    return settled(mdp, learner).score
