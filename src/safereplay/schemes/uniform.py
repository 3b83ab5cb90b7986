"""Replay as it happened: uniform over all transitions so far, or over all pairs so far as Dyna plans.

**The lemma that settles both.** What is replayed at a pair is distributed as what happened there: ŵ = q̂ → q. So
p̃ = (1−ρ)·q + ρ·ŵ = q for every v, every mixing and every weight of the pairs, and learning goes to Q*. Replay of this kind
makes learning faster; it cannot make it safer. (The paper's factors with β = 0 are *not* of this kind: they replay each
distinct reward of a pair alike, however rare.)
"""

from dataclasses import dataclass
from math import log
from typing import ClassVar

from .base import Scheme


@dataclass(frozen=True)
class UniformReplay(Scheme):
    """Every transition so far alike (Lin 1992, with a memory that forgets nothing).

        w_t(s,a,s',r) = n_t(s,a,s',r) / t

    **Limit.** Q*, by ŵ = q. **Assumption 1** fails: nothing is replayed more for being volatile or bad. **w_t** follows
    what is visited and settles if that does; the limit does not need it to. With a window instead of a memory without
    end, see :class:`~safereplay.WindowReplay`.

    All four promises of a sound tilt hold, since p̃ = q.

    **When it fails.** Always, as a means to safety: the risk of its limit is that of Q-learning.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> bool(abs(sr.fixed_point(mdp, sr.UniformReplay(), v=0.9) - sr.exact(mdp, sr.QLearning())).max() < 1e-9)
    True
    """

    FAITHFUL: ClassVar[bool] = True

    @staticmethod
    def pair_weight(n: float) -> float:
        """n_t(s,a)."""
        return n

    @staticmethod
    def log_tilt(count: float) -> float:
        """log n_t(s,a,s',r)."""
        return log(count)


@dataclass(frozen=True)
class DynaReplay(Scheme):
    """Replay as planning: a pair seen before, each alike, and an outcome from the model learned of it.

        w_t(s,a,s',r) = 1 / |pairs seen|  ·  n_t(s,a,s',r) / n_t(s,a)

    This is Dyna-Q (Sutton 1990) with a model of counts instead of the last outcome. That planning and replay can be one is
    van Seijen & Sutton's (2015), who show it exactly for a method of policy evaluation. See :class:`~safereplay.DynaQ` for
    the textbook's form.

    **Limit.** Q*, by ŵ = q. **Assumption 1** fails. **w_t** settles: its factors are continuous in what was counted.

    All four promises of a sound tilt hold, since p̃ = q.

    **When it fails.** As a means to safety, always. As a means to speed where pairs that no longer matter are many: they
    get the same share of planning.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> bool(abs(sr.fixed_point(mdp, sr.DynaReplay(), v=0.9) - sr.exact(mdp, sr.QLearning())).max() < 1e-9)
    True
    """

    FAITHFUL: ClassVar[bool] = True

    @staticmethod
    def log_tilt(count: float) -> float:
        """log n_t(s,a,s',r)."""
        return log(count)
