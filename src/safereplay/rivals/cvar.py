"""CVaR of the return: Q-learning on the state and what is still owed.

CVaR_α, the mean return of the worst share α of episodes, is the modern measure of a bad tail. The best of it may need to
know the return so far: who has won can afford a risk, who has lost enough has nothing left to protect. With a target y₀,

    CVaR_α(G)  =  max_{y₀}  y₀ − E[(y₀ − G)⁺] / α,

and the learner is plain Q-learning on states (s, y), y = y₀ − return so far, with rewards y⁺ − (y − r)⁺ that add up to
y₀⁺ − (y₀ − G)⁺ (see :mod:`safereplay.theory.augmented`). ``training_model`` is the model it learns on, ``judging_model`` the same states
with the real rewards, in which its policy is judged.

**The target.** The outer maximum is not learned. ``target=None`` takes the best y₀ for α, worked out from the model; where
a loop gains for ever there is none, and it takes the α-quantile of what the best discounted policy returns.

**Limit.** That of Q-learning on the augmented model: the least expected shortfall of any policy, with memory or without.
With the best y₀ its CVaR is the best there is: see :func:`safereplay.theory.augmented.best_cvar`.

**When it fails.** The table grows: at α = 0.1 from 24 states to 99 on the cliff, from 20 to 3,848 on the volatile grid, from
28 to 1,516 on the lottery, from 40 to 275 on the bridge. The deeper the tail, the rarer what is learned from: on the
cliff after 100,000 episodes five runs are within 0.14 of the best CVaR at α = 0.1 (−0.40; after 20,000 within 1.3), and
within 1.4 at α = 0.02 (−6.15; after 20,000 within 3.5; Q-learning's limit is 8.3 below). Only the shortfall counts:
where no target above 0 is within reach of the tail, as on frozen_lake at α = 0.1, to never move is as good as any. Where
a loop gains for ever, as on the volatile grid, a high target goes round it: α = 0.9 asks for 349 where 145 is sure, and
64 % of episodes meet something unsafe; from α = 0.5 down none does. And a disaster rarer than α is averaged with what
is merely bad.

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
from ..theory.augmented import Augmented, augmented, best_target, least_shortfall
from ..theory.limits import exact, limit_of
from ..theory.risk import evaluate


@dataclass(frozen=True)
class CVaRQLearning(Learner):
    """Q-learning of the least expected shortfall of a target, on states that know what is still owed.

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
        """The target that it learns with."""
        if self.target is not None:
            return self.target
        found = best_target(mdp, self.alpha)
        if not found.trouble:
            return found.target
        quantile = evaluate(mdp, exact(mdp, QLearning()).argmax(1), quiet=True).quantile(self.alpha)
        return _checks.real("target that is worked out", quantile)

    def augmented(self, mdp: TabularMDP) -> Augmented:
        """The model with what is owed in its state."""
        return augmented(mdp, self.target_on(mdp))

    def training_model(self, mdp: TabularMDP) -> TabularMDP:
        """Where it learns: rewards are by how much the shortfall falls."""
        return self.augmented(mdp).training_model

    def judging_model(self, mdp: TabularMDP) -> TabularMDP:
        """Where its policy is judged: rewards are the model's own."""
        return self.augmented(mdp).judging_model

    def describe(self) -> str:
        """One short line for tables and legends."""
        return f"{self.LABEL}({f'alpha={self.alpha:g}' if self.target is None else f'target={self.target:g}'})"


@limit_of.register
def _(learner: CVaRQLearning, mdp: TabularMDP) -> Floats:
    """On the states of ``training_model(mdp)``: [N, A]."""
    return least_shortfall(learner.training_model(mdp))
