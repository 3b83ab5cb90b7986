"""The best that any policy could do under a limit on its risk: a constrained MDP, solved exactly.

A limit on P(unsafe) is linear in how often pairs are met, so a lottery between two policies is the best:
:mod:`safereplay.theory.occupancy`.
Limits on CVaR and on the spread need the return so far: :mod:`safereplay.theory.owed`.

**Policies that never end** have no finite occupancy. The ceiling is over policies that end with probability 1.

**Unbounded.** Where some loop gains for ever, the mean return has no upper bound. There is always one for the
*discounted* return, with cost discounted alike. It is valid: a cost C ≥ 0 that falls due at step T counts γ^T·C ≤ C, so
E[γ^T·C] ≤ E[C], and whoever keeps the limit keeps the discounted one. With a limit on CVaR or on the spread it is left
open: whether such a loop can make good what may happen on the way to it is not worked out.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import nan
from typing import Any

from .. import _checks
from ..mdp import TabularMDP
from .occupancy import INFEASIBLE, OPTIMAL, UNBOUNDED, UNKNOWN, Ceiling, Harm, Limit, Program
from .owed import Spread, Tail


@dataclass(frozen=True)
class CeilingPoint:
    """A point of the best frontier that there is: under ``limit``, no policy has a mean above ``value``."""

    limit: float
    value: float
    value_discounted: float


def ceiling(
    mdp: TabularMDP,
    *,
    max_p_unsafe: float | None = None,
    min_cvar: float | None = None,
    max_std: float | None = None,
    alpha: float = 0.1,
    start: Any = None,
) -> Ceiling:
    """The best mean return that any policy can have under one limit, from the model's start or another.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> best = ceiling(mdp, max_p_unsafe=0.05, start=mdp.origin)
    >>> best.status, round(best.value, 3), round(best.profile.p_unsafe, 6)
    ('optimal', 0.78, 0.05)
    >>> nobody = ceiling(mdp, max_p_unsafe=0.01, start=mdp.origin)
    >>> nobody.status, round(nobody.best, 4)
    ('infeasible', 0.0278)
    """
    limit = Limit.one_of(max_p_unsafe, min_cvar, max_std, alpha=alpha)
    return Ceilings(mdp, limit, start).at(limit.value)


class Ceilings:
    """Ceilings under one kind of limit, at any of its values. What they share is worked out once.

    >>> import safereplay as sr
    >>> ceilings = Ceilings(sr.grids.cliff(), Limit("max_p_unsafe", 0.01))
    >>> [round(point.value, 2) for point in ceilings.frontier([0.005, 0.01, 0.02])]     # 0.5 % is out of reach
    [5.31, 5.45]
    """

    def __init__(self, mdp: TabularMDP, limit: Limit, start: Any = None) -> None:
        _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
        self.limit = limit
        kind = {"p_unsafe": Harm, "cvar": Tail, "std": Spread}[limit.measure]
        self._program: Program = kind(mdp if start is None else mdp.with_start(start), limit.alpha)

    @property
    def best(self) -> float:
        """The best risk that any policy can reach; nan where unknown."""
        return nan if self._program.trouble else self._program.best

    def at(self, value: float) -> Ceiling:
        """The ceiling at a value of the limit."""
        limit, program = self.limit.at(value), self._program
        if not program.endable.starts:
            return Ceiling(limit, INFEASIBLE, nan, nan, nan, nan, program.trouble)
        if program.trouble:
            return Ceiling(limit, UNKNOWN, nan, program.unlimited(True), nan, nan, program.trouble)
        feasible = limit.allows(self.best, program.size)
        answer = program.solve(limit if feasible else limit.at(self.best))
        if feasible:
            return replace(answer, limit=limit)
        return replace(answer, limit=limit, status=INFEASIBLE, reason=answer.reason or program.scope)

    def frontier(self, values: Iterable[float]) -> tuple[CeilingPoint, ...]:
        """The ceilings over a range of limits; those that nobody can meet are left out."""
        answers = [self.at(float(value)) for value in values]
        kept = [answer for answer in answers if answer.status in (OPTIMAL, UNBOUNDED)]
        return tuple(CeilingPoint(answer.limit.value, answer.value, answer.value_discounted) for answer in kept)
