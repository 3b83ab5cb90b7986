"""Exponential utility: Q-learning on certainty equivalents.

A random amount y has the certainty equivalent CE(y) = −(1/θ)·log E e^{−θy}: E[y] − (θ/2)·var y + …, less than the mean
for θ > 0, more for θ < 0. The learner averages e^{−θy} where Q-learning averages y:

    e^{−θQ(s,a)}  ←  (1−α)·e^{−θQ(s,a)} + α·e^{−θ(r + γ·max_b Q(s',b))},

computed as Q + (−1/θ)·log(1 + α·(e^{−θδ} − 1)) with δ = r + γ·max_b Q(s',b) − Q(s,a), in a form in which no
exponential can overflow. θ = 0 is Q-learning.

**Limit.** Q(s,a) = −(1/θ)·log E e^{−θ(r + γ·max_b Q(s',b))}: a γ-contraction, since CE(y + c) = CE(y) + c and CE is
monotone. This is the risk of a single step, nested; because of discounting it is not the exponential utility of the
discounted return. Howard & Matheson's criterion, the utility of the whole episode without discounting, is solved
exactly by :func:`safereplay.theory.criteria.exponential_utility`; as γ → 1 the nested limit tends to it. From the
start of the cliff at θ = 0.1 it is −1.753 for γ = 0.95, −0.0004 for 0.999, 0.0457 for 0.99999, and 0.0462 without γ.

**Sources.** Borkar learns the product form, as a table, for the average cost of a process that never ends, with a
reference state that keeps it bounded; here γ < 1 does so. Basu et al. use linear function approximation.

**When it fails.** θ has the unit 1/reward, so one value does not suit all worlds. In the
limit the path on the cliff (rewards −12 to 10) is safe for θ from 0.0664 to 1.490 and jumps off beyond; the volatile
grid (−100 to 150) is safe from θ = 0.00595 on, the lottery from 0.0427. A large θ learns slowly from below: a bad draw
lowers Q at once by its full amount, a good one raises it by at most −log(1−α)/θ. On the volatile grid after 20,000
episodes (ε = 0.1, c0 = 0) Q of pairs visited 500 times is too low by up to 0.4 of its range at θ = 0.3 and by 1.8 at
θ = 3; from c0 = 1500, above every return, it is right to 1e-4. The path is safe either way.

Ref: Howard & Matheson (1972), Risk-sensitive Markov decision processes; Borkar (2002), Q-learning for risk-sensitive
control; Basu, Bhattacharyya & Borkar (2008), A learning algorithm for risk-sensitive cost.
"""

from dataclasses import dataclass
from math import expm1, log1p
from typing import ClassVar

from .. import _checks
from .._types import Floats
from ..learners import Learner
from ..mdp import TabularMDP
from ..theory.criteria import entropic
from ..theory.limits import limit_of
from ..theory.solver import iterate, targets


@dataclass(frozen=True)
class ExponentialUtility(Learner):
    """Q-learning of certainty equivalents under exponential utility; θ > 0 is risk-averse, θ < 0 risk-seeking.

        e^{−θQ(s,a)} ← (1−α)·e^{−θQ(s,a)} + α·e^{−θ(r + γ·max_b Q(s',b))}

    >>> import safereplay as sr
    >>> from safereplay.rivals.exponential import ExponentialUtility
    >>> mdp = sr.grids.cliff()
    >>> [sr.verdict(mdp, sr.exact(mdp, ExponentialUtility(theta)).argmax(1)) for theta in (0.0, 0.3, 3.0)]
    ['risky', 'safe', 'jumps']
    """

    LABEL: ClassVar[str] = "exponential utility"
    DIALS: ClassVar[tuple[str, ...]] = ("theta",)
    DIAL: ClassVar[str] = "theta"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    theta: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.real("theta", self.theta)

    @staticmethod
    def update(q: float, r: float, best: float, alpha: float, gamma: float, theta: float) -> float:
        """The certainty equivalent of Q(s,a) with probability 1−α and the new target with probability α."""
        target = r + gamma * best
        x = -theta * (target - q)
        if abs(x) < 1e-16 or alpha == 1.0:  # the two differ by less than rounding
            return (1.0 - alpha) * q + alpha * target
        if x > 0.0:
            return target - log1p((1.0 - alpha) * expm1(-x)) / theta
        return q - log1p(alpha * expm1(x)) / theta


@limit_of.register
def _(learner: ExponentialUtility, mdp: TabularMDP) -> Floats:
    def H(Q: Floats) -> Floats:  # noqa: N802
        return entropic(mdp, targets(mdp, Q.max(1)), learner.theta)

    return iterate(H, mdp)
