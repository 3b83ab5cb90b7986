"""A limit on the probability of harm, and a price on harm that rises while the limit is exceeded.

A constrained MDP maximises the mean return subject to P(unsafe) ≤ ``limit``. Its Lagrangian has a price λ on
harm:

    max_π min_{λ ≥ 0}  E[return] − λ·( P(unsafe) − limit )

Altman (1999), *Constrained Markov decision processes*, has the theory and the linear program; Borkar (2005), *An
actor-critic algorithm for constrained Markov decision processes*, learns policy and price together, the price more
slowly. Here the policy is greedy on a Q-table, as in the tabular form of either: X and M = P(ever unsafe) are learned
as in :class:`~safereplay.ErrorStates`, and after the k-th episode the price is updated from its harm,

    score = X − λ·M,        λ ← max(0, λ + η_k·(harm_k − limit)),        η_k = rate·k^−power

harm_k is 1 if the episode was harmed, else 0. With ``trust`` = 1 it is the learner's own forecast M(s₀,b*) for the
first state of the episode, which excludes harm caused only by exploration; values in between mix both. ``rate`` is in
units of reward. With ``power`` above that of the step sizes (0.6) the price changes more slowly than Q.

**Limit.** The price tends to that of the linear program, and the *average* over time to its solution: at λ* the best
policies on both sides of the limit have the same score, and the learner alternates between them. On the cliff
from its start, γ = 0.999, P(unsafe) ≤ 5 %, the program gives 0.780 at a price of 5.73; with trust = 1 and ε = 0.1, 20
seeds of 200,000 episodes have prices of 5.7 ± 0.9, and their greedy policies of the second half P(unsafe) = 4.9 % and
a mean of 0.773.

**When it fails.** (1) The last policy is one of the two, and the limit may lie between them. If the solution is a
randomised policy (:func:`bracket` finds it), the last greedy policy keeps the limit only in some runs: in 10 of 20
seeds on a fork that needs a fair coin, in 18 of 20 on that cliff. Only the average has a guarantee. (2) Harm from
exploration counts: with ε = 0.1 the cliff's safest behaviour is harmed in about 7 % of episodes. A limit of 5 % cannot
be met, the price rises forever, and the policy becomes the safest one. (3) Per episode the price falls by at most
η·limit and rises by up to η·(1 − limit): the effect of the first, bad episodes decays very slowly, and more slowly for
smaller limits. (4) The linear program's mean is not discounted, X is. Discounting reduces the goal and not the harm, so
a larger price is needed: 5.73 with γ → 1, 7.3 at 0.99, 11.4 at 0.95, 13.2 at 0.9, for the same limit on the same cliff.
The price adapts to that by itself; a price computed by the program would be wrong. (5) During learning the limit does
not hold: it is kept only in the long run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import _checks
from .._checks import Floats
from .._config import dial
from ..mdp import TabularMDP
from ..theory.limits import limit_of
from ..theory.solver import largest
from .ledgers import HarmLedger, Ledger, equilibrium, settled

PRECISION = 1e-7  # of a price found by bisection
DEAREST = 1e9  # highest price, in units of the largest reward


@dataclass(frozen=True)
class LagrangianQ(HarmLedger):
    """Primal–dual Q-learning under P(unsafe) ≤ limit, after Altman (1999) and Borkar (2005): score = X − λ·P(unsafe).

    Parameters
    ----------
    limit : float in [0, 1]; on P(unsafe)
    rate, power : float; η_k = rate·k^−power
    trust : float in [0, 1]; weight of the forecast in harm_k

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> learned = sr.learn(mdp, sr.LagrangianQ(0.02), episodes=10_000, seeds=3)
    >>> [sr.evaluate(mdp, policy).p_unsafe <= 0.02 for policy in learned.policy]
    [True, True, True]
    """

    LABEL: ClassVar[str] = "Lagrangian"
    DIALS: ClassVar[tuple[str, ...]] = ("limit", "rate", "power", "trust")
    DIAL: ClassVar[str] = "limit"
    SETTINGS: ClassVar[tuple[float, ...]] = (1.0, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.0)
    COMPARED: ClassVar[dict[str, float]] = {"trust": 1.0, "rate": 100.0}  # otherwise harm from exploration counts
    limit: float = dial(0.05, "[0, 1]", "limit", "the largest P(unsafe)", (0.0, 1.0, 0.005))
    rate: float = dial(30.0, "(0, inf)", "rate", "how fast the price of harm changes", (1.0, 100.0, 1.0))
    power: float = dial(0.7, "[0, 1]", "power", "how fast these changes become smaller", (0.0, 1.0, 0.05))
    trust: float = dial(0.0, "[0, 1]", "trust", "weight of the forecast in place of what happened", (0.0, 1.0, 0.05))

    @staticmethod
    def score(q: float, m: float, price: float) -> float:
        """X − λ·M."""
        return q - price * m

    @staticmethod
    def reprice(
        price: float,
        harmed: float,
        forecast: float,
        episode: float,
        limit: float,
        rate: float,
        power: float,
        trust: float,
    ) -> float:
        """max(0, λ + η_k·(harm_k − limit))."""
        harm = (1.0 - trust) * harmed + trust * forecast
        eta: float = rate * episode**-power
        return max(0.0, price + eta * (harm - limit))


class Side(NamedTuple):
    """A price, and its equilibrium."""

    price: float
    harm: float  #: P(unsafe)
    book: Ledger


class Bracket(NamedTuple):
    """Two prices: the limit is kept at one and exceeded at the other."""

    within: Side  #: keeps the limit
    beyond: Side | None  #: exceeds it, at a lower price; None if the limit is kept at price 0

    @property
    def price(self) -> float:
        """The price at which the limit is kept."""
        return self.within.price

    def share(self, limit: float) -> float:
        """The probability of the policy beyond the limit in a mixture that meets the limit exactly."""
        return 1.0 if self.beyond is None else (limit - self.within.harm) / (self.beyond.harm - self.within.harm)


def bracket(mdp: TabularMDP, limit: float, start: Any = None) -> Bracket:
    """The lowest price at which the equilibrium of X − price·M keeps the limit, from the model's start or another.

    The price is found by bisection, assuming that harm decreases with the price. This holds where both tables have the
    same discount (γ → 1) and harm ends the episode; elsewhere it is *a* price with the limit kept above, not below. If
    there is no equilibrium in between, the search ends, and the two prices differ.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> found = bracket(mdp, 0.05, mdp.origin)
    >>> round(found.price, 2), round(found.within.harm, 3), round(found.beyond.harm, 3)
    (11.43, 0.035, 0.119)
    """
    learner = LagrangianQ(_checks.between("limit", limit, "[0, 1]"))
    chances = (mdp if start is None else mdp.with_start(start)).start

    def look(price: float) -> Side | None:
        book = equilibrium(mdp, learner, price)
        return None if book is None else Side(price, _harm(book, chances), book)

    low = Side(0.0, 0.0, settled(mdp, learner))
    low = low._replace(harm=_harm(low.book, chances))
    if low.harm <= limit:
        return Bracket(low, None)
    price = largest(mdp.r) or 1.0
    dearest, high = DEAREST * price, look(price)
    while high is None or high.harm > limit:
        hint = "no lower price keeps it"
        _checks.require(price < dearest, "limit", f"be kept at a price below {dearest:g}", limit, hint)
        low, price = high or low, 4.0 * price
        high = look(price)
    while high.price - low.price > PRECISION * high.price:
        middle = look((low.price + high.price) / 2.0)
        if middle is None:
            break
        low, high = (low, middle) if middle.harm <= limit else (middle, high)
    return Bracket(high, low)


def _harm(book: Ledger, start: Floats) -> float:
    """P(unsafe) of the greedy policy, from a start [S]."""
    return float(start @ book.M[np.arange(start.size), book.policy])


@limit_of.register
def _(learner: LagrangianQ, mdp: TabularMDP) -> Floats:
    """Q-learning's, if the limit on harm is never binding; otherwise the learner alternates between two policies."""
    plain = settled(mdp, learner, 0.0)
    free = learner.limit == 1.0 or (learner.trust == 1.0 and _harm(plain, mdp.start) < learner.limit)
    hint = "it alternates between two policies (see bracket), and exploration changes the price"
    _checks.require(free, "limit", "be one that surely costs nothing, for an exact limit", learner.limit, hint)
    return plain.score
