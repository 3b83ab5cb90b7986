"""Schedules: the step sizes α_t(s,a) and exploration rates.

A step size is a function of n, the number of updates of the pair including this one and including replays. This is
the paper's t, since its convergence conditions Σα = ∞, Σα² < ∞ are per pair. An exploration rate is a function of n,
the visits of the state including this one. Both are plain functions of named arguments, as a scheme's factors are:

>>> import safereplay as sr
>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Harmonic(sr.StepSize):
...     offset: float = 10.0
...     @staticmethod
...     def alpha(n, offset): return (offset + 1.0) / (offset + n)
>>> Harmonic().values(3).round(3)
array([1.   , 0.917, 0.846])

The conditions for convergence depend on how fast a schedule falls. With x_n ~ n^−power·(ln n)^−logs,

    Σ x_n = ∞   if and only if   power < 1, or power = 1 and logs ≤ 1        (Bertrand's series).

The power of a named schedule is known. That of a custom schedule is measured on its values, and marked as measured.

Ref: Szlak & Shamir (2021), Theorem 1, Section 5.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import inf, log, log2
from typing import Any, ClassVar, NamedTuple

import numpy as np

from . import _checks
from ._checks import Floats
from ._config import Config, dial
from .kernels.compile import MOST_NAMES, Bound, bind, digest_of, parameters, specialise, trouble

TABLE_SIZE = 1 << 16  # schedules are tabulated up to this n
MARGIN = 0.02  # of a measured exponent: within this distance of the limit of convergence nothing is concluded ...
EXACT = 1e-3  # ... unless it is this near, as for smooth values: then it is the limit itself
OCTAVES = (20, 30, 40)  # log2 of the counts at which a custom schedule is measured
WINDOW = 256  # counts averaged at each, so that fluctuations are not taken for decay


class Decay(NamedTuple):
    """How fast a schedule falls: x_n ~ n^−power·(ln n)^−logs, up to a factor.

    >>> Decay(0.6, 0.0, True).summable(), Decay(0.6, 0.0, True).summable(2)
    (False, True)
    """

    power: float  #: inf if it falls faster than any power; nan if the values follow no such law
    logs: float
    proved: bool  #: known from the formula, not measured on values

    def summable(self, exponent: float = 1.0) -> bool | None:
        """Whether Σ x_n^exponent is finite; None if a measured power is too near to the limit of convergence."""
        for turns in (self.power * exponent, self.logs * exponent):
            if self.proved and turns != 1.0:
                return turns > 1.0
            if not self.proved and not abs(turns - 1.0) <= EXACT:
                return turns > 1.0 if abs(turns - 1.0) > MARGIN else None
        return False if self.proved else None

    @property
    def vanishes(self) -> bool | None:
        """Whether x_n → 0; None if a measured decay is too slow to tell."""
        if self.power != self.power:
            return None
        if self.power > (0.0 if self.proved else MARGIN) or self.logs > (0.0 if self.proved else 5 * MARGIN):
            return True
        return False if self.proved or max(abs(self.power), abs(self.logs)) <= EXACT else None


class Sums(NamedTuple):
    """The behaviour of Σα and Σα² over infinitely many updates of a pair."""

    diverges: bool | None  #: Σα = ∞
    squares_converge: bool | None  #: Σα² < ∞
    decay: Decay
    partial: tuple[float, float]  #: both sums over the first 65,535 updates


class Glie(NamedTuple):
    """The two parts of 'greedy in the limit with infinite exploration'."""

    explores: bool | None  #: every action of a state that is visited infinitely often is taken infinitely often
    greedy: bool | None  #: the probability of an action that is not greedy goes to 0
    decay: Decay  #: of the rate
    reason: str


@dataclass(frozen=True)
class Schedule(Config):
    """A number that changes with a count n = 1, 2, ..."""

    FUNCTION: ClassVar[str]

    def __post_init__(self) -> None:
        self.check_dials()
        kind = type(self)
        own = getattr(kind, getattr(kind, "FUNCTION", ""), None)
        _checks.require(own is not None, kind.__name__, "be subclassed with a function of its own", "none")
        for name in self.params_names():
            _checks.real(name, getattr(self, name))
        _checks.own_names(kind.__name__, self.params_names(), ("n",))
        names = parameters(getattr(kind, kind.FUNCTION)), ("n", *self.params_names())
        _checks.arguments(f"{kind.__name__}.{kind.FUNCTION}", *names, MOST_NAMES)

    def bound(self) -> Bound:
        """The schedule's function, compiled; raises an error if numba cannot compile it.

        It names ``n`` only if the values depend on n; visits are not counted for a constant rate.
        """
        function = getattr(type(self), self.FUNCTION)
        if function in _CONSTANTS and _POWERS[function](self) == 0.0:
            function = _CONSTANTS[function]
        found = bind(function, ("n", *self.params_names()))
        where, reason = f"{self.FUNCTION} of {type(self).__name__}", trouble(found)
        _checks.require(reason is None, where, "be code that numba can compile", reason)
        return found

    def table(self, size: int = TABLE_SIZE) -> Floats:
        """The values at n = 0, 1, 2, ...; the entry for n = 0 is the value at n = 1."""
        return _table(self.bound(), self.params(), size)

    def values(self, count: int) -> Floats:
        """The values at n = 1, ..., count.

        Parameters
        ----------
        count : int; number of values

        Returns
        -------
        array [count]
        """
        return self.table(count + 1)[1:]

    def decay(self) -> Decay:
        """The decay of the values: known for the schedules of this package, measured for others.

        >>> import safereplay as sr
        >>> sr.PowerStep(0.7).decay()
        Decay(power=0.7, logs=0.0, proved=True)
        """
        known = _POWERS.get(getattr(type(self), self.FUNCTION))
        return _measured(self) if known is None else Decay(known(self), 0.0, True)


@lru_cache(maxsize=64)
def _tabulate(bound: Bound) -> Callable[[Floats, Any], None]:
    """The function that fills a table with a schedule's values."""
    value_of = bound.call

    def tabulate(table: Floats, params: Any) -> None:
        for n in range(table.size):
            table[n] = value_of((float(max(n, 1)), *params))

    return specialise(tabulate, digest_of([bound]))


@lru_cache(maxsize=64)
def _table(bound: Bound, params: tuple[float, ...], size: int) -> Floats:
    table = np.empty(size)
    _tabulate(bound)(table, params)
    table.setflags(write=False)  # shared by all users of the same schedule
    return table


def _measured(schedule: Schedule) -> Decay:
    """The decay of a schedule's values, measured at n = 2^20, 2^30 and 2^40.

    Between n and 2n the local exponent of n^−power·(ln n)^−logs is power + logs·log2(1 + 1/log2 n). Two of them give
    both unknowns; if the third does not fit, the values follow no such law.
    """
    value_of, params = schedule.bound().call, schedule.params()

    def level(octave: int) -> float:
        return sum(value_of((2.0**octave + k, *params)) for k in range(WINDOW)) / WINDOW

    levels = [(level(octave), level(octave + 1)) for octave in OCTAVES]
    near, middle, far = (log2(x / twice) if x > 0.0 and twice > 0.0 else inf for x, twice in levels)
    if far == inf:  # all zero there: either a decay, or these counts lie between two pulses
        quarter, half = (float(schedule.table()[n // 2 : n].max()) for n in (TABLE_SIZE // 2, TABLE_SIZE))
        return Decay(inf, 0.0, False) if half <= quarter / 8.0 else Decay(float("nan"), float("nan"), False)
    slope_near, slope_middle, slope_far = (log2(1.0 + 1.0 / octave) for octave in OCTAVES)
    logs = (near - far) / (slope_near - slope_far)
    power = far - logs * slope_far
    fits = abs(power + logs * slope_middle - middle) <= MARGIN
    return Decay(power, logs, False) if fits else Decay(float("nan"), float("nan"), False)


def one_over(n: float) -> float:
    """1/n: the plain average of all updates."""
    return 1.0 / n


@dataclass(frozen=True)
class StepSize(Schedule):
    """α_t(s,a) as a function of n. Subclass it with a custom ``alpha``; values must lie in (0, 1]."""

    FUNCTION: ClassVar[str] = "alpha"

    alpha: ClassVar[Callable[..., float]] = staticmethod(one_over)

    def table(self, size: int = TABLE_SIZE) -> Floats:
        """The values at n = 0, 1, 2, ..., each checked to lie in (0, 1]."""
        table = super().table(size)
        bad = ~((table > 0.0) & (table <= 1.0))
        if bad.any():
            n = int(np.argmax(bad))
            _checks.fail(f"alpha of {type(self).__name__} at n={n}", "be in (0, 1]", float(table[n]))
        return table

    def sums(self) -> Sums:
        """Whether Σα = ∞, so that Q can reach any value, and Σα² < ∞, so that it converges.

        scale·n^−power satisfies both for powers in (½, 1]; a constant α has Σα² = ∞.

        >>> import safereplay as sr
        >>> [(s.sums().diverges, s.sums().squares_converge) for s in (sr.PowerStep(0.6), sr.PowerStep(0.5))]
        [(True, True), (True, False)]

        Ref: Szlak & Shamir (2021), Theorem 1.
        """
        decay, values = self.decay(), self.table()[1:]
        finite = decay.summable()
        partial = float(values.sum()), float((values**2).sum())
        return Sums(None if finite is None else not finite, decay.summable(2.0), decay, partial)


@dataclass(frozen=True)
class PowerStep(StepSize):
    """α = scale · n^−power. The paper's is n^−0.6; Σα = ∞ and Σα² < ∞ for powers in (½, 1].

    Parameters
    ----------
    power : float in [0, 1]
    scale : float in (0, 1]

    >>> import safereplay as sr
    >>> sr.PowerStep(0.5).values(4).round(3)
    array([1.   , 0.707, 0.577, 0.5  ])

    Ref: Szlak & Shamir (2021), Section 5.
    """

    power: float = dial(0.6, "[0, 1]")
    scale: float = dial(1.0, "(0, 1]")

    @staticmethod
    def alpha(n: float, power: float, scale: float) -> float:
        """scale · n^−power."""
        return float(scale * n**-power)


@dataclass(frozen=True)
class ConstantStep(StepSize):
    """α = size, constant: tracks a moving target, and does not converge.

    Parameters
    ----------
    size : float in (0, 1]

    >>> import safereplay as sr
    >>> sr.ConstantStep(0.1).values(2)
    array([0.1, 0.1])
    """

    size: float = dial(0.1, "(0, 1]")

    @staticmethod
    def alpha(size: float) -> float:
        """size."""
        return size


@dataclass(frozen=True)
class Exploration(Schedule):
    """The choice of actions, with a rate that may fall with the visits n of the state."""

    FUNCTION: ClassVar[str] = "rate"
    SOFTMAX: ClassVar[bool]

    @property
    def limit_rate(self) -> float:
        """The rate as n → ∞; for a custom schedule, the last tabulated value."""
        known = _POWERS.get(getattr(type(self), self.FUNCTION))
        return 0.0 if known is not None and known(self) > 0.0 else float(self.table()[-1])

    def glie(self) -> Glie:
        """Whether every action is taken infinitely often, and whether the policy becomes greedy.

        At the n-th visit of a state any one action has probability at least c_n, and it is taken infinitely often when
        Σ c_n = ∞ (conditional Borel–Cantelli lemma).

            ε-greedy   c_n = ε_n/|A|, so falling as n^−power still explores, for powers up to 1;
            softmax    c_n ~ e^{−Δ/T_n}, with Δ how far the action's value is below the best. T constant explores.
                       T_n = T·n^−power gives Σ e^{−Δ·n^power/T} < ∞: at some time the action is taken last.
                       The fastest cooling that explores is T_n = Δ/ln n.

        >>> import safereplay as sr
        >>> [(e.glie().explores, e.glie().greedy) for e in (sr.EpsilonGreedy(0.1, 0.5), sr.Softmax(1.0, 0.5))]
        [(True, True), (False, True)]

        Ref: Szlak & Shamir (2021), Theorem 1 (GLIE).
        """
        decay = self.decay()
        if self.SOFTMAX:
            return _cooling(self, decay)
        if not self.table().any() and decay.proved:
            return Glie(False, True, decay, "ε = 0: an action that is not greedy is never taken")
        summable = decay.summable()
        said = {
            False: "Σε = ∞ over the visits of a state",
            True: "Σε < ∞ over the visits of a state: sooner or later only the greedy action is taken",
            None: "unknown whether Σε = ∞: the values of ε do not decide it",
        }[summable]
        falls = {True: "ε → 0", False: "ε stays above 0", None: "unknown whether ε → 0"}
        explores = None if summable is None else not summable
        return Glie(explores, decay.vanishes, decay, f"{said}; {falls[decay.vanishes]}")


def _cooling(exploration: Exploration, decay: Decay) -> Glie:
    """Both parts of GLIE for softmax; the boundary of Σ e^{−Δ/T_n} < ∞ is T_n·ln n → a positive constant."""
    if decay.vanishes is False:
        return Glie(True, False, decay, "T stays above 0: every action keeps a chance")
    if decay.vanishes and (decay.power > MARGIN or (decay.proved and decay.power > 0.0) or decay.logs > 1.0 + MARGIN):
        return Glie(False, True, decay, "T falls so fast that Σ e^{−Δ/T} < ∞: worse actions are given up for good")
    if decay.vanishes and decay.logs < 1.0 - MARGIN:
        return Glie(True, True, decay, "T falls slower than 1/ln n: Σ e^{−Δ/T} = ∞")
    n = exploration.table().size - 1
    gap = float(exploration.table()[-1]) * log(n)
    return Glie(None, decay.vanishes, decay, f"T·ln n is {gap:.3g} at n = {n}: explores actions that are worse by less")


@dataclass(frozen=True)
class EpsilonGreedy(Exploration):
    """With probability ε·n(s)^−power a random action, else the greedy one.

    Parameters
    ----------
    epsilon : float in [0, 1]; ε
    power : float in [0, 1]; 0 is constant ε, any other is GLIE, ½ being the usual choice

    >>> import safereplay as sr
    >>> sr.EpsilonGreedy(0.1, power=0.5).values(4).round(3)
    array([0.1  , 0.071, 0.058, 0.05 ])

    Ref: Szlak & Shamir (2021), Theorem 1 (GLIE).
    """

    SOFTMAX: ClassVar[bool] = False
    epsilon: float = dial(0.1, "[0, 1]")
    power: float = dial(0.0, "[0, 1]")

    @staticmethod
    def rate(n: float, epsilon: float, power: float) -> float:
        """ε · n^−power."""
        return float(epsilon * n**-power)


@dataclass(frozen=True)
class Softmax(Exploration):
    """An action with probability ∝ e^{Q(s,a)/T}, at temperature T = temperature · n(s)^−power.

    Parameters
    ----------
    temperature : float > 0; T, in reward
    power : float in [0, 1]

    >>> import safereplay as sr
    >>> sr.Softmax(2.0).values(2)
    array([2., 2.])
    """

    SOFTMAX: ClassVar[bool] = True
    temperature: float = dial(1.0, "(0, inf)")
    power: float = dial(0.0, "[0, 1]")

    @staticmethod
    def rate(n: float, temperature: float, power: float) -> float:
        """temperature · n^−power."""
        return float(temperature * n**-power)


#: The power of each schedule function of this package, given its schedule. Keyed by function: a subclass that overrides
#: the function is measured, one that inherits it has the known power.
_POWERS: dict[Callable[..., float], Callable[[Any], float]] = {
    one_over: lambda schedule: 1.0,
    PowerStep.alpha: lambda schedule: float(schedule.power),
    ConstantStep.alpha: lambda schedule: 0.0,
    EpsilonGreedy.rate: lambda schedule: float(schedule.power),
    Softmax.rate: lambda schedule: float(schedule.power),
}

#: The schedule functions of this package whose power may be 0, without n^−power.
_CONSTANTS: dict[Callable[..., float], Callable[..., float]] = {
    PowerStep.alpha: lambda scale: scale,
    EpsilonGreedy.rate: lambda epsilon: epsilon,
    Softmax.rate: lambda temperature: temperature,
}
