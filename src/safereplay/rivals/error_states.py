"""The chance of ever coming to harm as a second table, and a weight between it and the value.

Geibel & Wysotzki (2005), *Risk-sensitive reinforcement learning applied to control under constraints*: the risk of a
policy is the probability of ever meeting an error state. It is a return of its own, a cost of 1 at the first unsafe
outcome, *not discounted*, and is learned like one:

    X(s,a) ← X(s,a) + α·( r + γ·X(s',b*) − X(s,a) )
    M(s,a) ← M(s,a) + α·( u − M(s,a) ),        u = 1 if the outcome is unsafe, else M(s',b*), 0 where the episode ended
    score  = (1 − weight)·X − weight·scale·M

The source compares by ξ·X − M, and begins at ξ = 0, all caution. That is the same order of actions at ξ = (1 −
weight)/(weight·scale); so a harm is priced at 1/ξ = scale·weight/(1 − weight) of reward. ``weight`` = 0 is plain
Q-learning, 1 looks at nothing but the chance of harm. Raising ξ as long as the risk stays within a limit ω, as the
source does, is :func:`safereplay.rivals.lagrangian.bracket` on a known model, and LagrangianQ in learning.

**Limit.** An equilibrium (see :mod:`safereplay.rivals.ledgers`). With γ → 1 in X too, and where harm ends the episode,
the score is a return itself, of r − price·(harm), and there is one equilibrium: its best policy. So it was in all of
100 random worlds of four states, against every policy.

**When it fails.** (1) With γ < 1 the two tables discount differently, and no stationary policy need be best from every
state (Feinberg & Shwartz 1999, *Constrained dynamic programming with two discount factors*): rewards far ahead fade,
risk does not. In 18 of such worlds (γ in 0.5–0.97, weight = 0.1) there is no such policy; the equilibrium is best from
every state in 79, from the first in 88. (2) There may be none: in 4 of these worlds, and wherever one step pays more
than its own risk costs, but going on for ever, which is sure to end in harm, does not. There *one step more, then
stop* is always best, and never comes true. ``sr.exact`` refuses; the learner rests at a tie and takes both some of the
time. (3) Where an unsafe outcome does not end the episode, a state does not tell whether harm was done already. M
counts the first harm *from now on*, so a learner that has nothing left to lose is as careful as one that has;
equilibria are then the best less often (in 67 of 100) and more often several (in 7). (4) To never end is safe. At
weight = 1 to walk in circles is as good as the goal; on frozen_lake, where nothing costs anything but time, that
begins at weight = 0.03. (5) All harms are one: how bad they are is not seen, nor is a loss that nobody marked as
unsafe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from .._config import dial
from .._types import Floats
from ..mdp import TabularMDP
from ..theory.limits import limit_of
from .ledgers import HarmLedger, settled


@dataclass(frozen=True)
class ErrorStates(HarmLedger):
    """Geibel & Wysotzki (2005): score = (1 − weight)·value − weight·scale·P(ever unsafe).

    ``scale`` is the reward that weight = 1/2 puts a harm on a level with.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> Qs = [sr.exact(mdp, sr.ErrorStates(weight)) for weight in (0.0, 0.2, 0.99)]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 4) for Q in Qs]
    [0.119, 0.0319, 0.0278]
    """

    LABEL: ClassVar[str] = "error states"
    DIALS: ClassVar[tuple[str, ...]] = ("weight", "scale")
    DIAL: ClassVar[str] = "weight"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 0.9, 0.99)
    weight: float = dial(0.5, "[0, 1]")
    scale: float = dial(100.0, "(0, inf)")

    @staticmethod
    def score(q: float, m: float, weight: float, scale: float) -> float:
        """(1 − weight)·X − weight·scale·M."""
        return (1.0 - weight) * q - weight * scale * m


@limit_of.register
def _(learner: ErrorStates, mdp: TabularMDP) -> Floats:
    return settled(mdp, learner).score
