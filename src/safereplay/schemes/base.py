"""What is replayed: a replay probability function w_t, as three small factors.

    w_t(s,a,s',r)  =  W(s,a)  ·  tilt(r | s,a)  ·  next(s' | s,a,r)

W is the pair's weight as a share of all pairs' weights; the tilt is a softmax over the distinct rewards seen at the
pair; the last factor divides a reward's share among the next states seen with it. Each factor is one plain function
that *names* what it needs and is compiled into the learner's loop:

    pair_weight(...)  ≥ 0, of the pair's statistics
    log_tilt(r, ...)  of a reward, and of the pair's statistics if it likes
    next_weight(...)  ≥ 0, of ``count``, how often that outcome was seen

Statistics of a pair: ``n`` visits, ``mean`` and ``var`` of its reward, ``r_min``, ``r_max``; ``td``, the TD error of its
last update; ``down``, the part of the variance that lies below the mean, E[min(r − mean, 0)²]; ``harm``, the share of its
visits that were unsafe; ``spread``, the variance of y = r + γ·max_b Q(s',b). A scheme's own fields can be named too.

A tilt may also name what belongs to one outcome: ``count``, ``y`` and ``unsafe`` (1 or 0). It is then a softmax over the
distinct outcomes seen, not over rewards, times next_weight.

From the names the loop knows when a factor can have changed, so nothing is computed twice, and w_t is exact at every step;
only what looks at Q (``td``, ``y``, ``spread``) is of the pair's last update.

A scheme of one's own:

>>> import safereplay as sr
>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class GapReplay(sr.Scheme):
...     '''Replay pairs by how far their worst reward lies below the mean, worst first.'''
...     beta: float = 0.1
...     @staticmethod
...     def pair_weight(mean, r_min): return mean - r_min
...     @staticmethod
...     def log_tilt(r, beta): return -beta * r
>>> sr.ReplayQLearning(GapReplay(beta=0.2), v=0.3).scheme
GapReplay(beta=0.2)

Ref: Szlak & Shamir (2021), Section 4.1.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import ClassVar

from .. import _checks
from .._config import Config
from ..kernels.compile import MOST_NAMES, Bound, bind, parameters
from ..kernels.memory import OF_OUTCOME, STATISTICS


def if_seen(n: float) -> float:
    """The weight of a pair: 1 once it was visited."""
    return 1.0 if n > 0.0 else 0.0


def no_tilt() -> float:
    """The logarithm of a reward's weight within its pair: each reward alike."""
    return 0.0


def alike() -> float:
    """The weight of a next state among those seen with the same reward: each alike."""
    return 1.0


@dataclass(frozen=True)
class Scheme(Config):
    """A replay probability function. Subclass it with your own factors; its numeric fields are their dials.

    Left as they are, the factors replay each pair seen equally often, each distinct reward of it equally often.
    """

    OFFERS: ClassVar[dict[str, tuple[str, ...]]] = {
        "pair_weight": STATISTICS,
        "log_tilt": ("r", *STATISTICS, *OF_OUTCOME),
        "next_weight": ("count",),
    }

    pair_weight: ClassVar[Callable[..., float]] = staticmethod(if_seen)
    log_tilt: ClassVar[Callable[..., float]] = staticmethod(no_tilt)
    next_weight: ClassVar[Callable[..., float]] = staticmethod(alike)

    def __post_init__(self) -> None:
        for name in self.params_names():
            _checks.real(name, getattr(self, name))
        for factor in self.OFFERS:
            offered = self._offered(factor)
            _checks.own_names(type(self).__name__, self.params_names(), self.OFFERS[factor])
            names = parameters(getattr(type(self), factor))
            _checks.arguments(f"{type(self).__name__}.{factor}", names, offered, MOST_NAMES)

    @classmethod
    def params_names(cls) -> tuple[str, ...]:
        """The names of the scheme's dials."""
        return tuple(f.name for f in fields(cls))

    def params(self) -> tuple[float, ...]:
        """The dials' values, in order."""
        return tuple(float(getattr(self, name)) for name in self.params_names())

    def bound(self, factor: str) -> Bound:
        """A factor, compiled."""
        return bind(getattr(type(self), factor), self._offered(factor))

    def _offered(self, factor: str) -> tuple[str, ...]:
        return (*self.OFFERS[factor], *self.params_names())

    #: Whether what is replayed at a pair is distributed as what happens there, ŵ = q. Then p̃ = q for every v and mixing,
    #: and learning goes to Q*, whatever the pair weights do.
    FAITHFUL: ClassVar[bool] = False

    #: The unit of β; empty where it has none.
    UNIT: ClassVar[str] = ""

    #: Whether x is measured in the unit of the whole memory and each replay draws its slope uniformly between 0 and the tilt's.
    #: Only a memory of transitions has that unit (:class:`~safereplay.PairIndex`).
    POOLED: ClassVar[bool] = False

    @property
    def has_limit(self) -> bool:
        """Whether w_t depends on the outcomes alone, so that it settles as their statistics do (w^∞ exists).

        TD errors and targets depend on Q, and visits on what is explored; only whether a pair was seen at all does not
        matter.
        """
        return not self.names("td", "y", "spread", "n")

    @property
    def follows_values(self) -> bool:
        """Whether w_t depends on Q ahead of a pair: then limits are pairs of a Q and a w that make each other."""
        return self.names("y", "spread") and not self.names("td", "n")

    def names(self, *quantities: str) -> bool:
        """Whether a factor names any of these."""
        own = [factor for factor in self.OFFERS if getattr(type(self), factor) is not if_seen]
        return any(self.bound(factor).uses(*quantities) for factor in own)


NO_REPLAY = Scheme()  #: stands in where nothing is replayed
