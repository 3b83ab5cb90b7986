"""The probability of harm as a second table, weighted against the value.

Geibel & Wysotzki (2005), *Risk-sensitive reinforcement learning applied to control under constraints*: the risk of a
policy is the probability of ever reaching an error state. It is itself a return, with a cost of 1 at the first unsafe
outcome and *no discount*, and is learned like one:

    X(s,a) ← X(s,a) + α·( r + γ·X(s',b*) − X(s,a) )
    M(s,a) ← M(s,a) + α·( u − M(s,a) ),        u = 1 if the outcome is unsafe, else M(s',b*), 0 where the episode ended
    score  = (1 − weight)·X − weight·scale·M

The source compares by ξ·X − M, and begins at ξ = 0, full caution. The order of actions is the same for ξ = (1 −
weight)/(weight·scale), so the price of a harm is 1/ξ = scale·weight/(1 − weight) in reward. ``weight`` = 0 is plain
Q-learning; 1 uses only the probability of harm. The source raises ξ while the risk stays within a limit ω;
:func:`safereplay.rivals.lagrangian.bracket` does so on a known model, and LagrangianQ while learning.

**Limit.** An equilibrium (see :mod:`safereplay.rivals.ledgers`). With γ → 1 in X too, and where harm ends the episode,
the score is itself a return, of r − price·(harm), and the equilibrium is unique: its best policy. This held in all of
100 random worlds of four states, compared with every policy.

**When it fails.** (1) With γ < 1 the two tables discount differently, and no stationary policy need be best from every
state (Feinberg & Shwartz 1999, *Constrained dynamic programming with two discount factors*): distant rewards are
discounted, risk is not. In 18 of such worlds (γ in 0.5–0.97, weight = 0.1) there is no such policy; the equilibrium is
best from every state in 79, from the first in 88. (2) There may be no equilibrium: in 4 of these worlds, and wherever
one step pays more than its risk costs, but continuing forever, which ends in harm with probability 1, does not. There
*one step more, then stop* is always best, and never carried out. ``sr.exact`` raises an error; the learner ends at a
tie and takes each action some of the time. (3) If an unsafe outcome does not end the episode, the state does not show
whether harm has already happened. M counts the first harm *from now on*, so the learner is as careful after a harm as
before; equilibria are then less often the best (in 67 of 100) and more often several (in 7). (4) Never ending is safe.
At weight = 1 walking in circles is as good as the goal; on frozen_lake, where only time has a cost, that begins at
weight = 0.03. (5) All harms count the same: neither their size is used, nor losses that are not marked unsafe.
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

    ``scale`` is the price of a harm, in reward, at weight = 1/2.

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
