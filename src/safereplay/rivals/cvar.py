"""CVaR of the return: Q-learning on the state and the remaining target.

CVaR_α is the mean return of the worst share α of episodes. A policy that maximises it may depend on the return so far:
after gains it can take a risk, after large losses there is nothing left to protect. With a target y₀,

    CVaR_α(G)  =  max_{y₀}  y₀ − E[(y₀ − G)⁺] / α,

and the learner is plain Q-learning on states (s, y), y = y₀ − return so far, with rewards y⁺ − (y − r)⁺ that add up to
y₀⁺ − (y₀ − G)⁺ (see :mod:`safereplay.theory.criteria`). It learns on ``training_model``; its policy is evaluated on
``judging_model``, which has the same states and the real rewards.

**The target.** The outer maximum is not learned. ``target=None`` uses the best y₀ for α, computed from the model. If
a loop gains forever there is none, and the α-quantile of the best discounted policy's return is used.

**Limit.** That of Q-learning on the augmented model: the least expected shortfall of any policy, with or without memory.
With the best y₀ its CVaR is the maximum: see :func:`safereplay.theory.criteria.best_cvar`.

**When it fails.** The table grows: at α = 0.1 from 24 states to 99 on the cliff, from 20 to 3,848 on the volatile grid, from
28 to 1,516 on the lottery, from 40 to 275 on the bridge. For small α the relevant episodes are rare: on the
cliff after 100,000 episodes five runs are within 0.14 of the best CVaR at α = 0.1 (−0.40; after 20,000 within 1.3), and
within 1.4 at α = 0.02 (−6.15; after 20,000 within 3.5; Q-learning's limit is 8.3 below). Only the shortfall counts: if
the tail cannot reach a target above 0, as on frozen_lake at α = 0.1, never moving is as good as any policy. Where a
loop gains forever, as on the volatile grid, a high target repeats it: α = 0.9 has the target 349 where 145 is certain, and
64 % of episodes have an unsafe outcome; from α = 0.5 down none has. And a disaster rarer than α is averaged with
moderate losses.

Ref: Bäuerle & Ott (2011), Markov decision processes with Average-Value-at-Risk criteria; Rockafellar & Uryasev (2000),
Optimization of conditional value-at-risk.
"""

from dataclasses import dataclass
from typing import ClassVar

from .. import _checks
from .._config import dial
from .._types import Floats
from ..learners import Learner, QLearning
from ..mdp import TabularMDP
from ..theory.constrained import Tail
from ..theory.criteria import Augmented, augmented, least_shortfall
from ..theory.limits import exact, limit_of
from ..theory.risk import evaluate


@dataclass(frozen=True)
class CVaRQLearning(Learner):
    """Q-learning that minimises the expected shortfall of a target, on states that include the remaining target.

    ``alpha`` chooses the target, unless one is given.

    >>> import safereplay as sr
    >>> from safereplay.rivals.cvar import CVaRQLearning
    >>> mdp, learner = sr.grids.cliff(), CVaRQLearning(0.1)
    >>> policy = sr.exact(mdp, learner).argmax(1)
    >>> plain = sr.exact(mdp, sr.QLearning()).argmax(1)
    >>> [round(sr.evaluate(*x).cvar(0.1), 3) for x in ((learner.judging_model(mdp), policy), (mdp, plain))]
    [-0.405, -2.392]
    """

    LABEL: ClassVar[str] = "CVaR"
    GIVEN: ClassVar[str] = "the best target for its α"
    DIAL: ClassVar[str] = "alpha"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02)
    alpha: float = dial(0.1, "(0, 1)")
    target: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.real("target", 0.0 if self.target is None else self.target)

    def target_on(self, mdp: TabularMDP) -> float:
        """The target used for learning."""
        if self.target is not None:
            return self.target
        found = Tail(mdp, self.alpha)
        if not found.trouble:
            return found.target
        quantile = evaluate(mdp, exact(mdp, QLearning()).argmax(1), quiet=True).quantile(self.alpha)
        return _checks.real("target that is worked out", quantile)

    def augmented(self, mdp: TabularMDP) -> Augmented:
        """The model with the remaining target in its state."""
        return augmented(mdp, self.target_on(mdp))

    def training_model(self, mdp: TabularMDP) -> TabularMDP:
        """The model it learns on: a reward is the decrease of the shortfall."""
        return self.augmented(mdp).training_model

    def judging_model(self, mdp: TabularMDP) -> TabularMDP:
        """The model for evaluating its policy: the rewards are the original ones."""
        return self.augmented(mdp).judging_model

    def describe(self) -> str:
        """One short line for tables and legends."""
        return f"{self.LABEL}({f'alpha={self.alpha:g}' if self.target is None else f'target={self.target:g}'})"


@limit_of.register
def _(learner: CVaRQLearning, mdp: TabularMDP) -> Floats:
    """On the states of ``training_model(mdp)``: [N, A]."""
    return least_shortfall(learner.training_model(mdp))
