"""Schedules: the step sizes α_t(s,a) and how much a learner explores.

A step size is a function of n, the number of updates of the pair so far with this one, replayed ones included: that is
the paper's t, since its convergence conditions Σα = ∞, Σα² < ∞ are per pair. An exploration rate is a function of n,
the visits of the state so far with this one. Both are plain functions that name what they need, as a scheme's factors do:

>>> import safereplay as sr
>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Harmonic(sr.StepSize):
...     offset: float = 10.0
...     @staticmethod
...     def alpha(n, offset): return (offset + 1.0) / (offset + n)
>>> Harmonic().values(3).round(3)
array([1.   , 0.917, 0.846])

Ref: Szlak & Shamir (2021), Theorem 1, Section 5.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from . import _checks
from ._config import Config
from ._types import Floats
from .kernels import step
from .kernels.compile import MOST_NAMES, Bound, bind, parameters


@dataclass(frozen=True)
class Schedule(Config):
    """A number that changes with a count n = 1, 2, ..."""

    FUNCTION: ClassVar[str]

    def __post_init__(self) -> None:
        kind, names = type(self), (*self.params_names(), "n")
        own = getattr(kind, getattr(kind, "FUNCTION", ""), None)
        _checks.require(own is not None, kind.__name__, "be subclassed with a function of its own", "none")
        _checks.own_names(kind.__name__, self.params_names(), ("n",))
        for name in self.params_names():
            _checks.real(name, getattr(self, name))
        asked = parameters(getattr(kind, kind.FUNCTION))
        _checks.arguments(f"{kind.__name__}.{kind.FUNCTION}", asked, names, MOST_NAMES)

    @classmethod
    def params_names(cls) -> tuple[str, ...]:
        """The names of the schedule's dials."""
        return tuple(f.name for f in fields(cls))

    def params(self) -> tuple[float, ...]:
        """The dials' values, in order."""
        return tuple(float(getattr(self, name)) for name in self.params_names())

    def bound(self) -> Bound:
        """The schedule's function, compiled."""
        return bind(getattr(type(self), self.FUNCTION), ("n", *self.params_names()))

    def table(self, size: int = step.TABLE_SIZE) -> Floats:
        """The values at n = 0, 1, 2, ..., where n = 0 stands for n = 1."""
        return _table(self.bound(), self.params(), size)

    def values(self, count: int) -> Floats:
        """The values at n = 1, ..., count."""
        return self.table(count + 1)[1:]


@lru_cache(maxsize=64)
def _tabulate(bound: Bound) -> Callable[[Floats, Any], None]:
    return step.make_tabulate(bound)


@lru_cache(maxsize=64)
def _table(bound: Bound, params: tuple[float, ...], size: int) -> Floats:
    table = np.empty(size)
    _tabulate(bound)(table, params)
    table.setflags(write=False)  # shared by everybody who asks for the same schedule
    return table


def one_over(n: float) -> float:
    """1/n: the plain average of everything seen."""
    return 1.0 / n


@dataclass(frozen=True)
class StepSize(Schedule):
    """α_t(s,a) as a function of n. Subclass it with an ``alpha`` of your own; values must lie in (0, 1]."""

    FUNCTION: ClassVar[str] = "alpha"

    alpha: ClassVar[Callable[..., float]] = staticmethod(one_over)

    def table(self, size: int = step.TABLE_SIZE) -> Floats:
        """The values at n = 0, 1, 2, ..., each checked to lie in (0, 1]."""
        table = super().table(size)
        bad = ~((table > 0.0) & (table <= 1.0))
        if bad.any():
            n = int(np.argmax(bad))
            _checks.fail(f"alpha of {type(self).__name__} at n={n}", "be in (0, 1]", float(table[n]))
        return table


@dataclass(frozen=True)
class PowerStep(StepSize):
    """α = scale · n^−power. The paper's is n^−0.6; Σα = ∞ and Σα² < ∞ for powers in (½, 1].

    >>> import safereplay as sr
    >>> sr.PowerStep(0.5).values(4).round(3)
    array([1.   , 0.707, 0.577, 0.5  ])

    Ref: Szlak & Shamir (2021), Section 5.
    """

    power: float = 0.6
    scale: float = 1.0

    def __post_init__(self) -> None:
        _checks.between("power", self.power, "[0, 1]")
        _checks.between("scale", self.scale, "(0, 1]")
        super().__post_init__()

    @staticmethod
    def alpha(n: float, power: float, scale: float) -> float:
        """scale · n^−power."""
        return float(scale * n**-power)


@dataclass(frozen=True)
class ConstantStep(StepSize):
    """α = size, always: follows a moving target, and never settles.

    >>> import safereplay as sr
    >>> sr.ConstantStep(0.1).values(2)
    array([0.1, 0.1])
    """

    size: float = 0.1

    def __post_init__(self) -> None:
        _checks.between("size", self.size, "(0, 1]")
        super().__post_init__()

    @staticmethod
    def alpha(size: float) -> float:
        """size."""
        return size


@dataclass(frozen=True)
class Exploration(Schedule):
    """How an action is chosen, with a rate that may fall with the visits n of the state."""

    FUNCTION: ClassVar[str] = "rate"
    SOFTMAX: ClassVar[bool]

    @property
    def limit_rate(self) -> float:
        """The rate after endless visits; for a schedule of one's own, the last that is tabulated."""
        return float(self.table()[-1])


@dataclass(frozen=True)
class EpsilonGreedy(Exploration):
    """With probability ε·n(s)^−power a random action, else the greedy one.

    power = 0 is constant ε; any power in (0, 1] is GLIE, ε/√n(s) being the usual choice.

    >>> import safereplay as sr
    >>> sr.EpsilonGreedy(0.1, power=0.5).values(4).round(3)
    array([0.1  , 0.071, 0.058, 0.05 ])

    Ref: Szlak & Shamir (2021), Theorem 1 (GLIE).
    """

    SOFTMAX: ClassVar[bool] = False
    epsilon: float = 0.1
    power: float = 0.0

    def __post_init__(self) -> None:
        _checks.between("epsilon", self.epsilon, "[0, 1]")
        _checks.between("power", self.power, "[0, 1]")
        super().__post_init__()

    @property
    def limit_rate(self) -> float:
        """ε where it stays, 0 where it falls."""
        return self.epsilon if self.power == 0.0 else 0.0

    @staticmethod
    def rate(n: float, epsilon: float, power: float) -> float:
        """ε · n^−power."""
        return float(epsilon * n**-power)


@dataclass(frozen=True)
class Softmax(Exploration):
    """An action with probability ∝ e^{Q(s,a)/T}, at temperature T = temperature · n(s)^−power.

    >>> import safereplay as sr
    >>> sr.Softmax(2.0).values(2)
    array([2., 2.])
    """

    SOFTMAX: ClassVar[bool] = True
    temperature: float = 1.0
    power: float = 0.0

    def __post_init__(self) -> None:
        _checks.between("temperature", self.temperature, "(0, inf)")
        _checks.between("power", self.power, "[0, 1]")
        super().__post_init__()

    @property
    def limit_rate(self) -> float:
        """The temperature where it stays, 0 where it falls."""
        return self.temperature if self.power == 0.0 else 0.0

    @staticmethod
    def rate(n: float, temperature: float, power: float) -> float:
        """temperature · n^−power."""
        return float(temperature * n**-power)
