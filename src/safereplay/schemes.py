"""Schemes: a replay probability function w_t, as three small factors.

    w_t(s,a,s',r)  =  W(s,a)  ·  tilt(r | s,a)  ·  next(s' | s,a,r)

W is the pair's weight as a share of all pairs' weights. The tilt is a softmax over the distinct rewards seen at the
pair. The last factor divides a reward's share among the next states seen with it. Each factor is one plain function
whose arguments *name* the quantities it needs; it is compiled into the learner's loop:

    pair_weight(...)  ≥ 0, of the pair's statistics
    log_tilt(r, ...)  of a reward, and optionally of the pair's statistics
    next_weight(...)  ≥ 0, of ``count``, how often that outcome was seen

Statistics of a pair: ``n`` visits, ``mean`` and ``var`` of its reward, ``r_min``, ``r_max``; ``td``, the TD error of its
last update; ``down``, the part of the variance that lies below the mean, E[min(r − mean, 0)²]; ``harm``, the share of its
visits that were unsafe; ``spread``, the variance of y = r + γ·max_b Q(s',b); ``pair``, its number s·|A| + a; ``value``, its
Q(s,a). A scheme's own fields can be named too.

A tilt may also name quantities of one outcome: ``count``, ``y``, ``unsafe`` (1 or 0), ``s_next`` and ``ends`` (1 or 0);
``freq``, its share of the pair's visits; ``below``, the share of the pair's visits with a lower y (of equal ones, those stored
earlier, so that an outcome covers the interval from below to below + freq); ``luck``, a uniform number on (0, 1) that is drawn
for each replay. It is then a softmax over the distinct outcomes seen, not over rewards, times next_weight.

The names tell the loop when a factor can have changed, so nothing is computed twice, and w_t is exact at every step.
Only the quantities that depend on Q (``td``, ``y``, ``spread``, ``below``, ``value``) date from the pair's last update. If a tilt
names ``luck``, the w_t that a run reports is the one at luck = ½.

A custom scheme:

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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import expm1, inf, isfinite, log, sqrt
from typing import Any, ClassVar

import numpy as np

from . import _checks
from ._config import Config, dial
from .kernels.compile import MOST_NAMES, Bound, bind, parameters, trouble
from .kernels.memory import FOLLOW_Q, MIDDLE, OF_OUTCOME, STATISTICS, Memory, statistics
from .kernels.rng import pick
from .mdp import TabularMDP


def if_seen(n: float) -> float:
    """The weight of a pair: 1 once it was visited."""
    return 1.0 if n > 0.0 else 0.0


def no_tilt() -> float:
    """The logarithm of a reward's weight within its pair: the same for each reward."""
    return 0.0


def alike() -> float:
    """The weight of a next state among those seen with the same reward: the same for each."""
    return 1.0


def check_arguments(owner: type, function: str, offered: Sequence[str], dials: tuple[str, ...]) -> None:
    """Check that a function of ``owner`` names only offered quantities and dials, and that their names differ."""
    _checks.own_names(owner.__name__, dials, offered)
    names = parameters(getattr(owner, function))
    _checks.arguments(f"{owner.__name__}.{function}", names, (*offered, *dials), MOST_NAMES)


def check_compiles(owner: object, **functions: Bound) -> None:
    """Raise an error if numba cannot compile a function of ``owner``."""
    for name, function in functions.items():
        reason = trouble(function)
        _checks.require(reason is None, f"{name} of {type(owner).__name__}", "be code that numba can compile", reason)


@dataclass(frozen=True)
class Scheme(Config):
    """A replay probability function. Subclass it with your own factors; its numeric fields are their dials.

    The default factors replay each pair seen equally often, and each distinct reward of a pair equally often.
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
        self.check_fields()
        for factor, offered in self.OFFERS.items():
            check_arguments(type(self), factor, offered, self.params_names())

    def check_fields(self) -> None:
        """Raise an error for an invalid field."""
        for name in self.params_names():
            _checks.real(name, getattr(self, name))
        self.check_dials()

    def check_model(self, mdp: TabularMDP) -> None:
        """Raise an error if it cannot be used on a model; a scheme that names no state can be used on all."""

    def describe(self) -> str:
        """Its dials, for tables and legends."""
        return ", ".join(f"{name}={x:g}" for name, x in zip(self.params_names(), self.params(), strict=True))

    def bound(self, factor: str) -> Bound:
        """A factor, compiled."""
        return bind(getattr(type(self), factor), (*self.OFFERS[factor], *self.params_names()))

    def factors(self) -> tuple[Bound, Bound, Bound]:
        """pair_weight, log_tilt and next_weight, compiled; raises an error if numba cannot compile them."""
        found = self.bound("pair_weight"), self.bound("log_tilt"), self.bound("next_weight")
        check_compiles(self, **dict(zip(self.OFFERS, found, strict=True)))
        return found

    def refuse(self, memory: Memory, Q: Any, i: int, n: float) -> None:
        """Raise an error that names the invalid factor at pair i of a memory after n visits, with values Q [P]."""
        stats, params, name = statistics(memory, Q, i, n), self.params(), type(self).__name__
        counts = memory.count[memory.first[i] : memory.first[i] + memory.used[i]]
        weight = self.bound("pair_weight").call((*stats, *params))
        _checks.require(0.0 <= weight < inf, f"pair_weight of {name}", "be finite and at least 0", weight)
        for k in range(memory.first[i], memory.first[i] + memory.used[i]):
            if memory.count[k] > 0:
                weight = self.bound("next_weight").call((memory.count[k], *params))
                _checks.require(0.0 <= weight < inf, f"next_weight of {name}", "be finite and at least 0", weight)
                unsafe, place = float(memory.unsafe.size > k and memory.unsafe[k]), (memory.s_next[k], memory.ends[k])
                freq = memory.count[k] / counts.sum()
                of_outcome = (memory.count[k], memory.r[k], unsafe, *map(float, place), freq, MIDDLE, MIDDLE)
                tilt = self.bound("log_tilt").call((memory.r[k], *stats, *of_outcome, *params))
                where = f"log_tilt of {name} at r={memory.r[k]:g}"
                _checks.require(tilt < inf, where, "be a number below infinity", tilt)
        _checks.fail(f"factors of {name}", "give the same result for the same arguments", "different results")

    #: Whether replayed outcomes of a pair are distributed as real ones, ŵ = q. Then p̃ = q for every v and mixing,
    #: and learning converges to Q* for any pair weights.
    FAITHFUL: ClassVar[bool] = False

    #: The mixing that it is made for, of those whose limit does not depend on visits.
    MIXING: ClassVar[str] = "matched"

    #: For comparisons of a risk measure: its dials over v, and a dial with its settings at v = 1.
    COMPARED: ClassVar[dict[str, float]] = {}
    DIAL: ClassVar[str] = ""
    SETTINGS: ClassVar[tuple[float, ...]] = ()

    #: The unit of β; empty where it has none.
    UNIT: ClassVar[str] = ""

    #: Whether a memory of transitions (:class:`~safereplay.PairIndex`) measures x in a unit of the whole memory, and each replay
    #: draws its slope uniformly between 0 and the tilt's at luck = 1. On tables the unit is 1, and ``luck`` draws the slope.
    POOLED: ClassVar[bool] = False

    #: g(δ) of (delta, *dials) such that ŵ ∝ q·g(δ) has the same limit under anchored mixing at v = 1; None if the tilt itself is a
    #: function of the TD error, or if there is none. See :func:`~safereplay.equivalent_loss`.
    error_weight: ClassVar[Callable[..., float] | None] = None

    @property
    def has_limit(self) -> bool:
        """Whether w_t depends on the outcomes alone, so that it converges as their statistics do (w^∞ exists).

        TD errors and targets depend on Q, visits on exploration; only whether a pair was seen at all does not matter.
        """
        return not self.names("n", *FOLLOW_Q)

    @property
    def follows_values(self) -> bool:
        """Whether w_t depends on Q: a limit is then a fixed point in Q and w together."""
        return self.names(*FOLLOW_Q) and not self.names("td", "n")

    def names(self, *quantities: str) -> bool:
        """Whether a factor names any of these quantities."""
        own = [factor for factor in self.OFFERS if getattr(type(self), factor) is not if_seen]
        return any(self.bound(factor).uses(*quantities) for factor in own)


NO_REPLAY = Scheme()  #: placeholder for learners that do not replay


def check_tabular(scheme: Scheme) -> None:
    """Raise an error for an object that is not a scheme."""
    _checks.require(isinstance(scheme, Scheme), "scheme", "be a Scheme", scheme)


@dataclass(frozen=True)
class VarianceReplay(Scheme):
    """The paper's scheme: volatile pairs are replayed more, and of their rewards the worst most.

        w_t(s,a,s',r) = var_t(r(s,a)) / Σ var_t  ·  e^{−βr} / Σ_{r' ∈ M_t(s,a)} e^{−βr'}  ·  1 / |L_t(s,a,r)|

    **Breaks** order: with β = 5 and v = 0.9 a coin for 0 or 0.25 is valued 0.080, one for 0 or 0.5 only 0.064, since at fixed β the weight
    e^{−βr} of the better prize falls faster than the prize grows. **Breaks** rarity: each distinct reward counts once, so a loss of
    probability 0.001 is replayed as often as one of 0.5.

    Parameters
    ----------
    beta : float, in 1/reward; > 0 is cautious, 0 replays the rewards of a pair equally, < 0 is bold

    >>> import safereplay as sr
    >>> sr.VarianceReplay(beta=5.0)
    VarianceReplay(beta=5.0)

    Ref: Szlak & Shamir (2021), Lemma 4.
    """

    UNIT: ClassVar[str] = "1/reward"

    beta: float = dial(5.0, "(-inf, inf)", "caution", "how much the worst rewards are preferred", (-5.0, 10.0, 0.05))

    @staticmethod
    def pair_weight(var: float) -> float:
        """var_t(r(s,a))."""
        return var

    @staticmethod
    def log_tilt(r: float, beta: float) -> float:
        """−βr."""
        return -beta * r


@dataclass(frozen=True)
class BoldReplay(VarianceReplay):
    """Volatile pairs are replayed more, and their *best* rewards most: the paper's scheme with β < 0, for a bold agent.

        w_t(s,a,s',r) = var_t(r(s,a)) / Σ var_t  ·  e^{|β|r} / Σ_{r' ∈ M_t(s,a)} e^{|β|r'}  ·  1 / |L_t(s,a,r)|

    **Limit.** w^∞ exists, as for VarianceReplay. **Assumption 1.** Points 2 and 3 fail by design: higher rewards
    have more weight.

    **Breaks** direction, by design: a gamble is valued above its mean. **Breaks** rarity, as VarianceReplay does, and in a memory of
    transitions **Breaks** order too.

    **When it fails.** Under literal mixing it also replays harmless next states that follow a good reward. On the cliff,
    where no slip has a good reward, it changes little. It does not seek risk as such: a gamble without an upside is not
    taken.

    Parameters
    ----------
    beta : float ≤ 0, in 1/reward

    >>> import safereplay as sr
    >>> rows = [(0, 0, 1.0, 1, 1.0, True, False), (0, 1, 0.5, 1, -9.0, True, False), (0, 1, 0.5, 1, 9.0, True, False)]
    >>> gamble = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)        # a sure 1, or a coin of ±9
    >>> [int(sr.fixed_point(gamble, scheme, v=0.5)[0].argmax()) for scheme in (sr.VarianceReplay(), sr.BoldReplay())]
    [0, 1]
    """

    beta: float = dial(-5.0, "(-inf, 0]", "boldness", "how much the best rewards are preferred", (-10.0, 0.0, 0.05))


@dataclass(frozen=True)
class ScoreReplay(Scheme):
    """All volatile pairs equally, their rewards by standard score: β has no unit and suits rewards of any size.

        W(s,a) = 1 where σ(s,a) > floor, else 0          tilt(r | s,a) ∝ e^{−β·(r − r̄(s,a)) / σ(s,a)}

    with r̄ and σ the pair's mean and standard deviation. At β = 1 a reward one standard deviation below its pair's mean is replayed
    e times as often as the mean. Pairs without noise are not replayed: those with σ = 0, or with σ so small relative to r̄ that it
    is rounding.

    **Breaks** order and **Breaks** rarity: σ is the pair's own, so a rare loss lies many σ below the mean. In a memory of transitions with v = 0.5
    and β = 1, a loss of probability 0.001 makes up 0.50 of the draws, one of probability 0.1 only 0.43. Of two roads that crash with 1 % and
    12 % it takes the second. :class:`~safereplay.EntropicReplay` has one unit for all pairs instead.

    Parameters
    ----------
    beta : float; tilt per standard deviation
    floor : float ≥ 0, in reward; pairs with a smaller σ are not replayed

    >>> import safereplay as sr
    >>> sr.ScoreReplay(beta=2.0)
    ScoreReplay(beta=2.0, floor=0.0)
    """

    beta: float = dial(1.0, "(-inf, inf)", "caution", "how much low scores are preferred", (-5.0, 10.0, 0.05))
    floor: float = dial(0.0, "[0, inf)", "floor", "pairs with less spread are not replayed", (0.0, 20.0, 0.1))

    @staticmethod
    def pair_weight(mean: float, var: float, floor: float) -> float:
        """1 where the standard deviation is above the floor, and above rounding: 0.3 and 0.1 + 0.2 are one reward."""
        least = max(floor, 1e-14 * abs(mean))
        return 1.0 if var > least * least else 0.0

    @staticmethod
    def log_tilt(r: float, mean: float, var: float, beta: float) -> float:
        """−β·(r − r̄)/σ; 0 without noise."""
        return -beta * (r - mean) / var**0.5 if var > 0.0 else 0.0


@dataclass(frozen=True)
class EntropicReplay(Scheme):
    """Replays every pair with varying outcomes, low outcomes more often, with a slope drawn anew for each replay.

        ŵ(x | s,a)  =  E_b[ q(x)·e^{−b·x/u} / Σ_{x'} q(x')·e^{−b·x'/u} ],          b uniform on (0, β)

    with q the outcome's frequency at the pair and u the **unit**. **On tables** x is the target y = r + γ·max_b Q(s',b) and u = 1, so
    that β has the unit 1/reward. In a memory of transitions x is the reward or the target, and u is one number for the whole memory:

        u  =  Σ d² / Σ |d|          over all transitions, d = x − x̄(s,a)

    For pairs of two outcomes u is half the distance between them, however rare the bad one is; for normal noise it is 1.25 standard
    deviations. Pairs without noise do not affect u. So β has no unit there.

    **What it gives.** The mean of ŵ is the entropic risk of the pair, −(u/β)·log Σ q·e^{−β·x/u}, since the derivative of log Σ q·e^{−b·x/u}
    is minus the mean under the slope b. With anchored mixing, and in a memory of transitions, a draw is from p̃ = (1−v)·q + v·ŵ, so a pair is
    valued (1−v)·mean + v·entropic risk. At v = 1 on tables this is the limit of :class:`~safereplay.ExponentialUtility` with θ = β. Both parts are
    monotone, so all four properties of a sound tilt hold: order, direction, units and rarity. A single slope β, as in
    :class:`~safereplay.ScoreReplay`, is not monotone: a better prize can then lower the value of a pair.

    **When it fails.** The tilt uses x alone. If x is the reward and the danger lies in the next state, pairs are ordered by their
    rewards only; tilt on the target then. One extreme reward enlarges the unit, and the tilt is weak until it is overwritten.

    :func:`~safereplay.shaped_limit` gives its exact limit in a memory of transitions.

    Parameters
    ----------
    beta : float; the largest slope, per unit u; in 1/reward on tables

    >>> import safereplay as sr
    >>> roads = [(0, 0, 0.99, 1, 0.95, True, False), (0, 0, 0.01, 1, -9.0, True, True),
    ...          (0, 1, 0.88, 1, 1.00, True, False), (0, 1, 0.12, 1, -9.0, True, True)]
    >>> mdp = sr.TabularMDP.from_outcomes(2, 2, roads, start=0)      # crashes: 1 % of the first road, 12 % of the second
    >>> [sr.shaped_limit(mdp, scheme, v=0.5)[0].argmax().item() for scheme in (sr.ScoreReplay(), sr.EntropicReplay())]
    [1, 0]

    Ref: Howard & Matheson (1972); Osogami (2012).
    """

    MIXING: ClassVar[str] = "anchored"
    COMPARED: ClassVar[dict[str, float]] = {"beta": 1.0}
    DIAL: ClassVar[str] = "beta"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    POOLED: ClassVar[bool] = True

    beta: float = dial(2.0, "(-inf, inf)", "caution", "how much low targets are preferred", (-5.0, 10.0, 0.05))

    @staticmethod
    def pair_weight(var: float, spread: float) -> float:
        """1 where outcomes vary."""
        return 1.0 if var > 0.0 or spread > 0.0 else 0.0

    @staticmethod
    def log_tilt(y: float, mean: float, freq: float, luck: float, beta: float) -> float:
        """log q − β·luck·y, in units of u. Subtracting the mean changes no share, but keeps the exponent small."""
        return log(freq) - beta * luck * (y - mean)

    @staticmethod
    def error_weight(delta: float, beta: float) -> float:
        """(1 − e^{−βδ})/(βδ): weights with the same limit, those of the LINEX loss."""
        return -expm1(-beta * delta) / (beta * delta) if beta * delta != 0.0 else 1.0


@dataclass(frozen=True)
class ReturnReplay(Scheme):
    """The paper's scheme with the target y = r + γ·max_b Q(s',b) of an outcome in place of its reward.

        w_t(s,a,s',r) = var_t(y(s,a)) / Σ var_t(y)  ·  e^{−βy} / Σ_{outcomes seen at (s,a)} e^{−βy'}

    If a slip has the reward of a safe step and turns out to be a fall only later, its reward has no variance, and the paper's
    scheme does not replay it. The variance of y is the right one by the law of total variance: the variance of the return
    from (s,a) is var(y | s,a) + γ²·E[variance of the return from s'] (Sobel 1982). So var(y) is the part that depends on
    which outcome happens *here*, and only this part changes when the outcomes of this pair are replayed.

    **Limit.** w depends on Q, so a limit satisfies Q = H_{w(Q)} Q. :func:`safereplay.fixed_point` iterates Q ← H_{w(Q)} Q and
    reports if that does not converge. H_{w(Q)} need not be a contraction, so neither existence nor uniqueness is guaranteed;
    on all worlds of this package a limit was found.
    **Assumption 1** is stated for the variance of the reward, which this scheme does not use. With y for r, and per outcome,
    it holds as for VarianceReplay: outcomes of equal y count separately, where the paper counts equal rewards
    once. **w_t** depends on Q and converges only if Q does: Theorem 1 does not cover it.

    **Breaks** order and **Breaks** rarity, with y for r as VarianceReplay does: a better prize can look worse, and a rare loss is replayed as
    often as a common one.

    **When it fails.** If y varies without danger: a slip that costs a detour is avoided like a small fall.

    Parameters
    ----------
    beta : float, in 1/reward

    >>> import safereplay as sr
    >>> mdp = sr.grids.delayed(sr.grids.cliff(), meanwhile=-1.0)         # one falls a step after the slip
    >>> schemes = sr.VarianceReplay(beta=5.0), sr.ReturnReplay(beta=5.0)
    >>> limits = [sr.fixed_point(mdp, scheme, v=0.5) for scheme in schemes]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.119, 0.032]
    """

    UNIT: ClassVar[str] = "1/reward"

    beta: float = dial(5.0, "(-inf, inf)", "caution", "how much the worst targets are preferred", (-5.0, 10.0, 0.05))

    @staticmethod
    def pair_weight(spread: float) -> float:
        """var_t(y(s,a))."""
        return spread

    @staticmethod
    def log_tilt(y: float, beta: float) -> float:
        """−βy."""
        return -beta * y


@dataclass(frozen=True)
class DownsideReplay(Scheme):
    """Pairs by the downside variance of their rewards; outcomes below the mean more often, the lower the more.

        W(s,a) ∝ σ₋²,    σ₋² = E[min(r − r̄, 0)²]          ŵ(s',r | s,a) ∝ q̂(s',r | s,a) · e^{−β·min(r − r̄, 0)/σ₋}

    with r̄ the pair's mean and σ₋² the part of its variance that lies below it (Markowitz 1959, semivariance). Variance
    does not distinguish a rare prize from a rare disaster. Depth in units of σ₋ does: a loss of probability p lies
    1/√p below the mean, so a rare disaster is tilted to strongly, and the usual small price of a rare prize hardly. β has no
    unit, and 0 is neutral.

    **Limit.** w^∞ exists: the factors are continuous in mean, downside and counts. The fixed point of H with it.
    **Assumption 1.** Point 1 fails by design where a pair varies more but has less downside. Point 2 is not
    guaranteed: the frequency of a reward counts, and rewards above the mean get equal tilts (on the cliff it holds).

    **Breaks** order and **Breaks** rarity: depth is measured in the pair's own σ₋, which is small where a loss is rare. With β = 1 and v = 0.99 a
    loss of probability 0.01 has p̃ = 0.91, one of probability 0.1 only 0.72.

    **When it fails.** If the danger is not in the immediate reward, as for the paper's scheme.

    Parameters
    ----------
    beta : float; tilt per σ₋; 0 is neutral

    >>> import safereplay as sr
    >>> rows = [(0, 0, 1.0, 1, 1.0, True, False), (0, 1, 0.9, 1, -1.0, True, False), (0, 1, 0.1, 1, 30.0, True, False)]
    >>> prize = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)     # a sure 1, or a ticket at 1 that wins one time in ten
    >>> [int(sr.fixed_point(prize, scheme, v=0.5)[0].argmax()) for scheme in (sr.VarianceReplay(), sr.DownsideReplay())]
    [0, 1]
    """

    beta: float = dial(
        1.0, "(-inf, inf)", "caution", "how much rewards below the mean are preferred", (-5.0, 10.0, 0.05)
    )

    @staticmethod
    def pair_weight(down: float) -> float:
        """E[min(r − r̄, 0)²]."""
        return down

    @staticmethod
    def log_tilt(r: float, mean: float, down: float, count: float, beta: float) -> float:
        """log n − β·min(r − r̄, 0)/σ₋."""
        return log(count) - (beta * min(r - mean, 0.0) / sqrt(down) if down > 0.0 else 0.0)


@dataclass(frozen=True)
class ErrorReplay(Scheme):
    """Pairs by how uncertain it is whether they do harm; their unsafe outcomes e^β times as often.

        W(s,a) ∝ h·(1 − h),    h = P(unsafe | s,a)          ŵ(s',r | s,a) ∝ q̂(s',r | s,a) · e^{β·[unsafe]}

    This is the paper's idea with the indicator of an error state (Geibel & Wysotzki 2005) in place of the reward: h(1−h)
    is its variance. Rewards are not used: a noisy but harmless reward has no effect, and a harm that pays well still
    counts.

    **Limit.** w^∞ exists: the fixed point of H with it. Where an unsafe outcome of probability h is replayed, its odds there
    are e^β·h/(1−h). **Assumption 1** is stated in rewards: in general it fails, since neither the variance
    nor the worst reward is used.

    **Breaks** direction where harm pays: a pair whose unsafe outcome has the higher reward is valued above its mean.

    **When it fails.** It needs the unsafe flags. Outcomes that differ only in that flag are the same to the learner,
    and count as unsafe if any of them is. It changes the probabilities in Q, not the rewards: where harm costs no reward,
    only the future that it ends, it has little effect unless v is near 1. On the slippery 4×4 lake (β = 3) P(unsafe) stays at
    0.220 up to v = 0.95 and is 0.176, the minimum, from 0.97 on; on the 8×8 one it goes from 0.1062 to 0.1056 at
    v = 0.97. And where harm comes later than the step that decides it, that step has h = 0.

    Parameters
    ----------
    beta : float; log of how much more often unsafe outcomes are replayed

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> [sr.verdict(mdp, sr.fixed_point(mdp, sr.ErrorReplay(beta), v=0.9).argmax(1)) for beta in (0.0, 3.0)]
    ['risky', 'safe']
    """

    beta: float = dial(3.0, "(-inf, inf)", "caution", "how much unsafe outcomes are preferred", (-5.0, 10.0, 0.05))

    @staticmethod
    def pair_weight(harm: float) -> float:
        """h·(1 − h)."""
        return harm * (1.0 - harm)

    @staticmethod
    def log_tilt(count: float, unsafe: float, beta: float) -> float:
        """log n + β where the outcome is unsafe."""
        return log(count) + beta * unsafe


@dataclass(frozen=True)
class UniformReplay(Scheme):
    """All transitions so far equally (Lin 1992, with an unbounded memory).

        w_t(s,a,s',r) = n_t(s,a,s',r) / t

    **Limit.** Q*, by ŵ = q. **Assumption 1** fails: neither volatile pairs nor bad rewards are replayed more. **w_t** follows
    the visitation and converges if that does; the limit does not depend on it. For a bounded memory, see
    :class:`~safereplay.WindowReplay`.

    All four properties of a sound tilt hold, since p̃ = q.

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
    """Replay as planning: all pairs seen equally often, with outcomes drawn from a learned model.

        w_t(s,a,s',r) = 1 / |pairs seen|  ·  n_t(s,a,s',r) / n_t(s,a)

    This is Dyna-Q (Sutton 1990) with a model of counts instead of the last outcome. Van Seijen & Sutton (2015) show that
    planning and replay can be equivalent, exactly for a method of policy evaluation. See :class:`~safereplay.DynaQ` for
    the textbook's form.

    **Limit.** Q*, by ŵ = q. **Assumption 1** fails. **w_t** converges: its factors are continuous in the counts.

    All four properties of a sound tilt hold, since p̃ = q.

    **When it fails.** As a means to safety, always. As a means to speed, if many pairs no longer matter: they
    get the same share of planning.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> bool(abs(sr.fixed_point(mdp, sr.DynaReplay(), v=0.9) - sr.exact(mdp, sr.QLearning())).max() < 1e-9)
    True
    """

    FAITHFUL: ClassVar[bool] = True

    log_tilt: ClassVar[Callable[..., float]] = staticmethod(UniformReplay.log_tilt)


@dataclass(frozen=True)
class DesignedReplay(Scheme):
    """Replay by a table: only the outcomes listed are replayed, each with its own weight.

        w(s,a,s',r)  ∝  the weight of its entry;  0 for outcomes without one

    So it can give any p̃ = (1−ρ)·q + ρ·ŵ that replay can give. :func:`safereplay.design` computes the table for a policy or a limit on
    risk: with matched mixing, weights ρ/(1−ρ)·ŵ and v/(1−v) = Σ ρ/(1−ρ) give exactly these ρ and ŵ.

    **Limit.** w^∞ is the table. **w_t** is the table as soon as each outcome in it was seen. **Assumption 1** does not apply: the table does not
    depend on rewards.

    Parameters
    ----------
    table : entries (pair, s_next, ends, r, weight), with pair = s·|A| + a

    >>> import safereplay as sr
    >>> rows = [(0, 0, 1.0, 1, 1.0, True, False), (0, 1, 0.9, 1, 2.0, True, False), (0, 1, 0.1, 1, -6.0, True, True)]
    >>> mdp = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)        # a sure 1, or 1.2 on average
    >>> scheme = sr.DesignedReplay([(1, 1, True, -6.0, 1.0)])         # replay the loss of action 1
    >>> [int(sr.fixed_point(mdp, scheme, v)[0].argmax()) for v in (0.0, 0.1)]
    [1, 0]
    """

    table: tuple[tuple[float, ...], ...] = ()

    def check_fields(self) -> None:
        """Raise an error for an invalid table; sort its entries by pair."""
        try:
            entries = sorted(tuple(float(x) for x in entry) for entry in self.table)
        except (TypeError, ValueError):
            _checks.fail("table", "have entries of five numbers: pair, s_next, ends, r, weight", self.table)
        for entry in entries:
            _checks.require(len(entry) == 5, "entry of table", "be pair, s_next, ends, r, weight", entry)
            _checks.require(all(map(isfinite, entry)), "entry of table", "be finite", entry)
            pair, s_next, ends, _, weight = entry
            whole = min(pair, s_next) >= 0 and pair % 1.0 == s_next % 1.0 == 0.0 and ends in (0.0, 1.0)
            _checks.require(whole, "pair, s_next and ends", "be whole numbers of at least 0, and 0 or 1", entry)
            _checks.require(weight > 0.0, "weight", "be above 0", entry)
        places = {entry[:4] for entry in entries}
        _checks.require(len(places) == len(entries), "table", "have one entry per outcome", self.table)
        object.__setattr__(self, "table", tuple(entries))

    def check_model(self, mdp: TabularMDP) -> None:
        """Raise an error if an entry is not an outcome of the model."""
        for entry in self.table:
            pair, s_next, ends, r, _ = entry
            here = slice(*mdp.row[[int(pair), int(pair) + 1]]) if pair < mdp.n_pairs else slice(0)
            found = (mdp.s_next[here] == s_next) & (mdp.terminal[here] == ends) & (mdp.r[here] == r)
            hint = "it may have been designed for another model"
            _checks.require(bool(found.any()), "table", "list outcomes of the model", entry, hint)

    @classmethod
    def params_names(cls) -> tuple[str, ...]:
        """The pairs of the entries, and the table."""
        return "pairs", "table"

    def params(self) -> tuple[Any, ...]:
        """Their values, [n] and [n, 5]."""
        table = np.array(self.table, np.float64).reshape(-1, 5)
        return table[:, 0].copy(), table

    def describe(self) -> str:
        """The number of pairs that are replayed."""
        n = len({entry[0] for entry in self.table})
        return f"{n} pair{'s' * (n != 1)}"

    @staticmethod
    def pair_weight(pair: float, pairs: Any, table: Any) -> float:
        """The sum of the pair's weights."""
        k, total = pick(pairs, 0, len(pairs), pair - 0.5), 0.0
        while k < len(pairs) and pairs[k] == pair:
            total += table[k, 4]
            k += 1
        return total

    @staticmethod
    def log_tilt(r: float, pair: float, s_next: float, ends: float, pairs: Any, table: Any) -> float:
        """The logarithm of the outcome's weight."""
        k = pick(pairs, 0, len(pairs), pair - 0.5)
        while k < len(pairs) and pairs[k] == pair:
            if table[k, 1] == s_next and table[k, 2] == ends and table[k, 3] == r:
                return log(table[k, 4])
            k += 1
        return -inf


@dataclass(frozen=True)
class CVaRReplay(Scheme):
    """Replays the worst share α of a pair's targets: a pair is valued by its conditional value at risk.

        ŵ(s',r | s,a)  =  ( min(F⁺, α) − min(F⁻, α) ) / α

    F⁻ is the probability of a target below this one, F⁺ that of this one or a lower one, with y = r + γ·max_b Q(s',b). So an outcome that lies
    across the quantile α is replayed with the part of its probability below it, and Σ ŵ·y = CVaR_α(y).

    **Limit.** With anchored mixing a pair is valued (1−v)·mean + v·CVaR_α of its targets. Both are monotone and shift with constants, so H is a
    γ-contraction with one fixed point. At v = 1 this is the nested CVaR, a coherent risk measure of each step (Ruszczyński 2010), not the CVaR of
    the return: :func:`~safereplay.best_cvar` computes that. It is the robust value if an adversary may raise each probability by a
    factor of up to 1/α. **Assumption 1** is stated in rewards and does not apply.

    **Breaks** rarity: among losses with a probability of at least α, all have ŵ = 1.

    **When it fails.** Nested, a small α is very cautious: each step is expected to go as badly as its worst α-share.

    Parameters
    ----------
    alpha : float in (0, 1]; the share of the worst outcomes; 1 is neutral

    >>> import safereplay as sr
    >>> rows = [(0, 0, 1.0, 1, 1.0, True, False), (0, 1, 0.9, 1, 2.0, True, False), (0, 1, 0.1, 1, -6.0, True, True)]
    >>> mdp = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)        # a sure 1, or 1.2 on average; its worst fifth is −2
    >>> sr.fixed_point(mdp, sr.CVaRReplay(0.2), v=1.0, mixing="anchored")[0].round(12).tolist()
    [1.0, -2.0]

    Ref: Rockafellar & Uryasev (2000); Ruszczyński (2010), Risk-averse dynamic programming for Markov decision processes.
    """

    MIXING: ClassVar[str] = "anchored"
    COMPARED: ClassVar[dict[str, float]] = {"alpha": 0.05}
    DIAL: ClassVar[str] = "alpha"
    SETTINGS: ClassVar[tuple[float, ...]] = (1.0, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05)

    alpha: float = dial(0.25, "(0, 1]", "tail", "the share of the worst outcomes", (0.01, 1.0, 0.01))

    @staticmethod
    def log_tilt(freq: float, below: float, alpha: float) -> float:
        """The logarithm of the part of the outcome's probability that lies in the worst share α."""
        part = min(freq, alpha - below)
        return log(part) if part > 0.0 else -inf


@dataclass(frozen=True)
class SpectralReplay(Scheme):
    """Replays a pair's targets by their rank, low ones more: a pair is valued by a spectral risk measure.

        ŵ(s',r | s,a)  =  Φ(F⁺) − Φ(F⁻),          Φ(p) = (1 − e^{−βp}) / (1 − e^{−β})

    with F⁻ and F⁺ as in :class:`CVaRReplay`. Φ increases from 0 to 1 and is concave for β > 0, so lower ranks count more: the exponential spectrum.
    β → 0 is the mean. Any other Φ is a subclass with its own tilt; if it is concave, the measure is coherent (Acerbi 2002). ``CVaRReplay`` is
    Φ(p) = min(p/α, 1).

    **Limit.** With anchored mixing a pair is valued (1−v)·mean + v·Σ ŵ·y of its targets, monotone and shifting with constants for every
    increasing Φ: H is a γ-contraction with one fixed point. **Assumption 1** is stated in rewards and does not apply.

    All four properties of a sound tilt hold: Φ(p) grows with p, and β has no unit, since ranks have none.

    **When it fails.** Ranks do not see sizes: a loss of 10 and one of 1000 with the same rank are replayed equally often.

    Parameters
    ----------
    beta : float; > 0 is cautious, < 0 bold

    >>> import safereplay as sr
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class HazardReplay(sr.SpectralReplay):
    ...     '''Φ(p) = p^{1/β}, the proportional hazard (Wang 1995).'''
    ...     @staticmethod
    ...     def log_tilt(freq, below, beta): return math.log((below + freq) ** (1 / beta) - below ** (1 / beta))
    >>> import math
    >>> coin = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 0.5, 1, r, True, False) for r in (0.0, 1.0)], start=0)
    >>> [float(sr.fixed_point(coin, x, v=1.0, mixing="anchored")[0, 0].round(4)) for x in (HazardReplay(2.0), sr.SpectralReplay(2.0))]
    [0.2929, 0.2689]

    Ref: Acerbi (2002), Spectral measures of risk; Cotter & Dowd (2006).
    """

    MIXING: ClassVar[str] = "anchored"
    COMPARED: ClassVar[dict[str, float]] = {"beta": 16.0}
    DIAL: ClassVar[str] = "beta"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)

    beta: float = dial(2.0, "(-inf, inf)", "caution", "how much low ranks are preferred", (-5.0, 10.0, 0.05))

    @staticmethod
    def log_tilt(freq: float, below: float, beta: float) -> float:
        """log(Φ(F⁺) − Φ(F⁻)), up to a constant: e^{−βF⁻}·(1 − e^{−β·freq}), over β."""
        return -beta * below + log(freq if beta == 0.0 else -expm1(-beta * freq) / beta)


@dataclass(frozen=True)
class ExpectileReplay(Scheme):
    """Replays targets below Q(s,a) more often than those above: at v = 1 the limit of Mihatsch & Neuneier's learner.

        ŵ(s',r | s,a)  ∝  q·(1 + κ)  if y ≤ Q(s,a),      q·(1 − κ)  if y > Q(s,a)

    **Limit.** With anchored mixing at v = 1 the expected update is E[(1 − κ·sign δ)·δ] / Z, with δ = y − Q(s,a) and Z > 0 the sum of
    the weights. It is 0 where :class:`~safereplay.RiskSensitive` with the same κ stands still: Q(s,a) is an expectile of its targets, which is monotone
    and shifts with constants, so H is a γ-contraction with one fixed point. At v < 1 the mixture (1−v)·δ + v·(…)/Z may have several roots, because Z
    jumps where Q(s,a) passes a target. **Assumption 1** is stated in rewards and does not apply.

    All four properties of a sound tilt hold.

    **When it fails.** As Mihatsch & Neuneier's learner: one κ applies to all pairs.

    Parameters
    ----------
    kappa : float in (−1, 1); > 0 is risk-averse, < 0 risk-seeking

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> Q = sr.fixed_point(mdp, sr.ExpectileReplay(0.6), v=1.0, mixing="anchored")
    >>> bool(abs(Q - sr.exact(mdp, sr.RiskSensitive(0.6))).max() < 1e-9)
    True

    Ref: Mihatsch & Neuneier (2002); Newey & Powell (1987).
    """

    MIXING: ClassVar[str] = "anchored"
    COMPARED: ClassVar[dict[str, float]] = {"kappa": 0.9}
    DIAL: ClassVar[str] = "kappa"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95)

    kappa: float = dial(0.6, "(-1, 1)", "aversion", "how much more bad surprises count", (-0.99, 0.99, 0.01))

    @staticmethod
    def log_tilt(freq: float, y: float, value: float, kappa: float) -> float:
        """log q + log(1 ± κ). A target that equals Q(s,a) up to rounding is not above it."""
        return log(freq * (1.0 - kappa if y - value > 1e-12 * abs(value) else 1.0 + kappa))


@dataclass(frozen=True)
class SurpriseReplay(Scheme):
    """Replays targets that are lower than Q(s,a) more often, the lower the more, up to a largest factor: shaped replay without keys, on tables.

        ŵ(s',r | s,a)  ∝  q·((1 − κ) + κ·h(δ)),          h(δ) = min(1, β·max(−δ, 0)),     δ = y − Q(s,a)

    An outcome that is worse than expected by 1/β or more is replayed 1/(1 − κ) times as often as one that is not. β has the unit 1/reward here. In
    a memory of transitions (:class:`~safereplay.SurpriseSampler`) κ is called v, and β is in units of the memory's TD errors, so it has no unit.

    **Limit.** With anchored mixing at v = 1 the expected update has the sign of E[δ·((1 − κ) + κ·h(δ))]. This is increasing in δ, so the value of a pair is monotone in its
    targets and shifts with constants: H is a γ-contraction with one fixed point. β → ∞ is an expectile (:class:`ExpectileReplay`) with 1 − κ = (1 − κ')/(1 + κ'). As a loss
    it is quadratic with a cubic part below 0 (:func:`~safereplay.equivalent_loss`): prioritised replay for bad surprises alone. **Assumption 1** is stated in rewards and does not apply.

    All four properties of a sound tilt hold.

    **When it fails.** Where every step has a chance of a loss, a large κ makes each look bad: on the cliff the limit at κ = 0.95 ends the risk at once, by a jump.

    Parameters
    ----------
    kappa : float in [0, 1); 0 is neutral
    beta : float; a target lower than Q by 1/β counts in full; < 0 replays higher targets more often

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> Q = [sr.fixed_point(mdp, sr.SurpriseReplay(kappa), v=1.0, mixing="anchored") for kappa in (0.0, 0.8)]
    >>> [sr.verdict(mdp, q.argmax(1)) for q in Q]
    ['risky', 'safe']

    Ref: Mihatsch & Neuneier (2002); Föllmer & Schied (2002), shortfall risk; Pan et al. (2022), the cubic loss.
    """

    MIXING: ClassVar[str] = "anchored"
    COMPARED: ClassVar[dict[str, float]] = {"kappa": 0.8}
    DIAL: ClassVar[str] = "kappa"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.25, 0.5, 0.67, 0.8, 0.9, 0.95)
    UNIT: ClassVar[str] = "1/reward"

    kappa: float = dial(0.8, "[0, 1)")
    beta: float = 1.0

    @staticmethod
    def log_tilt(freq: float, y: float, value: float, kappa: float, beta: float) -> float:
        """log q + log((1 − κ) + κ·h)."""
        return log(freq * (1.0 - kappa + kappa * min(1.0, max(-beta * (y - value), 0.0))))
