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
from math import inf, log, sqrt
from typing import ClassVar

from . import _checks
from ._config import Config, dial
from .kernels.compile import MOST_NAMES, Bound, bind, parameters, trouble
from .kernels.memory import OF_OUTCOME, STATISTICS, Memory, statistics


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
        self.check_dials()
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

    def factors(self) -> tuple[Bound, Bound, Bound]:
        """pair_weight, log_tilt and next_weight, compiled; code that numba cannot compile is refused."""
        found = self.bound("pair_weight"), self.bound("log_tilt"), self.bound("next_weight")
        check_compiles(self, **dict(zip(self.OFFERS, found, strict=True)))
        return found

    def refuse(self, memory: Memory, i: int, n: float) -> None:
        """Raise the error that says which factor is wrong at pair i of a memory after n visits."""
        stats, params, name = statistics(memory, i, n), self.params(), type(self).__name__
        weight = self.bound("pair_weight").call((*stats, *params))
        _checks.require(0.0 <= weight < inf, f"pair_weight of {name}", "be finite and at least 0", weight)
        for k in range(memory.first[i], memory.first[i] + memory.used[i]):
            if memory.count[k] > 0:
                weight = self.bound("next_weight").call((memory.count[k], *params))
                _checks.require(0.0 <= weight < inf, f"next_weight of {name}", "be finite and at least 0", weight)
                of_outcome = memory.count[k], memory.r[k], float(memory.unsafe.size > k and memory.unsafe[k])
                tilt = self.bound("log_tilt").call((memory.r[k], *stats, *of_outcome, *params))
                _checks.require(
                    tilt < inf, f"log_tilt of {name} at r={memory.r[k]:g}", "be a number below infinity", tilt
                )
        _checks.fail(f"factors of {name}", "give the same for the same", "something else each time")

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


def check_compiles(owner: object, **functions: Bound) -> None:
    """Refuse functions of ``owner`` that numba cannot compile."""
    for name, function in functions.items():
        reason = trouble(function)
        _checks.require(reason is None, f"{name} of {type(owner).__name__}", "be code that numba can compile", reason)


def check_tabular(scheme: Scheme) -> None:
    """Refuse what is no scheme, and a scheme that needs the unit of a memory of transitions."""
    _checks.require(isinstance(scheme, Scheme), "scheme", "be a Scheme", scheme)
    hint = "it is for memories of transitions: sr.Shaper; on tables ExponentialUtility learns the same risk"
    _checks.require(not scheme.POOLED, "scheme", "need no unit of a whole memory", scheme, hint)


@dataclass(frozen=True)
class VarianceReplay(Scheme):
    """The paper's scheme: volatile pairs more, their worst rewards most.

        w_t(s,a,s',r) = var_t(r(s,a)) / Σ var_t  ·  e^{−βr} / Σ_{r' ∈ M_t(s,a)} e^{−βr'}  ·  1 / |L_t(s,a,r)|

    β > 0 is cautious, β = 0 replays the rewards of a pair alike, β < 0 is bold.

    **Breaks** order: with β = 5 and v = 0.9 a coin for 0 or 0.25 is valued 0.080, one for 0 or 0.5 only 0.064, since e^{−βr} at one fixed β
    turns from the better prize faster than the prize grows. **Breaks** rarity: each distinct reward counts once, so a loss of probability
    0.001 is replayed as often as one of 0.5.

    >>> import safereplay as sr
    >>> sr.VarianceReplay(beta=5.0)
    VarianceReplay(beta=5.0)

    Ref: Szlak & Shamir (2021), Lemma 4.
    """

    UNIT: ClassVar[str] = "1/reward"

    beta: float = dial(5.0, "(-inf, inf)", "caution", "how much the worst rewards are preferred", (-5.0, 10.0, 0.1))

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
    """Volatile pairs more, their *best* rewards most: the paper's scheme with β < 0, for an agent that should dare.

        w_t(s,a,s',r) = var_t(r(s,a)) / Σ var_t  ·  e^{|β|r} / Σ_{r' ∈ M_t(s,a)} e^{|β|r'}  ·  1 / |L_t(s,a,r)|

    **Limit.** w^∞ exists, as for VarianceReplay. **Assumption 1.** Points 2 and 3 fail by design: higher rewards
    have more weight.

    **Breaks** direction, by design: a gamble is valued above its mean. **Breaks** rarity, as VarianceReplay does, and in a memory of
    transitions **Breaks** order too.

    **When it fails.** Under literal mixing boldness also replays calm next states of a good reward; on the cliff, where no
    reward of a slip is good news, it moves little. It is no search for risk for its own sake: where a gamble has no upside,
    it is not taken.

    >>> import safereplay as sr
    >>> rows = [(0, 0, 1.0, 1, 1.0, True, False), (0, 1, 0.5, 1, -9.0, True, False), (0, 1, 0.5, 1, 9.0, True, False)]
    >>> gamble = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)        # a sure 1, or a coin of ±9
    >>> [int(sr.fixed_point(gamble, scheme, v=0.5)[0].argmax()) for scheme in (sr.VarianceReplay(), sr.BoldReplay())]
    [0, 1]
    """

    beta: float = dial(-5.0, "(-inf, 0]")


@dataclass(frozen=True)
class ScoreReplay(Scheme):
    """Every volatile pair alike, its rewards by standard score: a dial without a unit, for rewards of any size.

        W(s,a) = 1 where σ(s,a) > floor, else 0          tilt(r | s,a) ∝ e^{−β·(r − r̄(s,a)) / σ(s,a)}

    with r̄ and σ the pair's mean and standard deviation. At β = 1 a reward one standard deviation below its pair's mean is replayed
    e times as often as the mean. A pair without noise is left alone: one with σ = 0, or so small beside r̄ that it is the
    rounding of one reward. ``floor``, in units of reward, leaves alone more of them.

    **Breaks** order and **Breaks** rarity: σ is the pair's own, so a rare loss lies many σ below the mean. In a memory of transitions with v = 0.5
    and β = 1, a loss of probability 0.001 makes up 0.50 of what is drawn, one of probability 0.1 only 0.43. Of two roads that crash with 1 % and
    12 % it takes the second. :class:`~safereplay.EntropicReplay` has one unit for all pairs instead.

    >>> import safereplay as sr
    >>> sr.ScoreReplay(beta=2.0)
    ScoreReplay(beta=2.0, floor=0.0)
    """

    beta: float = 1.0
    floor: float = dial(0.0, "[0, inf)")

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
    """Every pair whose outcomes vary, its low outcomes more often, by a slope that each replay draws anew.

        ŵ(x | s,a)  =  E_b[ q(x)·e^{−b·x/u} / Σ_{x'} q(x')·e^{−b·x'/u} ],          b uniform on (0, β)

    with q how often the outcome happens at the pair and u the **unit**, one for the whole memory:

        u  =  Σ d² / Σ |d|          over all transitions, d = x − x̄(s,a)

    For pairs of two outcomes u is half the distance between them, however rare the bad one is; for normal noise it is 1.25 standard
    deviations. Pairs without noise do not count, however many they are. So β has no unit.

    **What it gives.** The mean of ŵ is the entropic risk of the pair, −(u/β)·log Σ q·e^{−β·x/u}, since the derivative of log Σ q·e^{−b·x/u}
    is minus the mean under the slope b. A draw is from p̃ = (1−v)·q + v·ŵ, so a pair is valued (1−v)·mean + v·entropic risk. Both are
    monotone, so all four properties of a sound tilt hold: order, direction, units and rarity. A single slope β, as in
    :class:`~safereplay.ScoreReplay`, is not monotone: there a better prize can make a pair look worse.

    **When it fails.** The tilt sees x alone. Where x is the reward and the danger lies in the next state, the order of pairs is that of their
    rewards; tilt on the target then. One freak reward enlarges the unit, and the dial is weak until it is overwritten.

    It needs the unit of a memory of transitions, so it works in :class:`~safereplay.Shaper` and the adapters. On tables,
    :func:`~safereplay.shaped_limit` gives its exact limit, and :class:`~safereplay.ExponentialUtility` learns the same risk.

    >>> import safereplay as sr
    >>> roads = [(0, 0, 0.99, 1, 0.95, True, False), (0, 0, 0.01, 1, -9.0, True, True),
    ...          (0, 1, 0.88, 1, 1.00, True, False), (0, 1, 0.12, 1, -9.0, True, True)]
    >>> mdp = sr.TabularMDP.from_outcomes(2, 2, roads, start=0)      # crashes: 1 % of the first road, 12 % of the second
    >>> [sr.shaped_limit(mdp, scheme, v=0.5)[0].argmax().item() for scheme in (sr.ScoreReplay(), sr.EntropicReplay())]
    [1, 0]

    Ref: Howard & Matheson (1972); Osogami (2012).
    """

    POOLED: ClassVar[bool] = True

    beta: float = 2.0

    @staticmethod
    def pair_weight(var: float) -> float:
        """1 where outcomes vary."""
        return 1.0 if var > 0.0 else 0.0

    @staticmethod
    def log_tilt(r: float, mean: float, beta: float) -> float:
        """−β·(r − r̄), at the steepest slope, in units of u."""
        return -beta * (r - mean)


@dataclass(frozen=True)
class ReturnReplay(Scheme):
    """The paper's scheme with what an outcome leads to, y = r + γ·max_b Q(s',b), in place of its reward.

        w_t(s,a,s',r) = var_t(y(s,a)) / Σ var_t(y)  ·  e^{−βy} / Σ_{outcomes seen at (s,a)} e^{−βy'}

    A slip that pays as much as a safe step, and only later turns out to be a fall, has no variance of reward: the paper's
    scheme does not see it. Why the variance of y is the right one: by the law of total variance, the variance of the return
    from (s,a) is var(y | s,a) + γ²·E[variance of the return from s'] (Sobel 1982), so var(y) is the part that is decided
    *here*, by which outcome happens: the only part that replaying the outcomes of this pair can change.

    **Limit.** w depends on Q, so limits are pairs of Q and w that make each other: Q = H_{w(Q)} Q. :func:`safereplay.fixed_point`
    iterates Q ← H_{w(Q)} Q and says so if that comes to no end. H_{w(Q)} need not be a contraction, so neither one limit nor
    any is promised; none was missing on the worlds of this package.
    **Assumption 1** is stated in the variance of the reward, which this scheme does not look at; in y for r, and outcome by
    outcome, it holds as VarianceReplay's does: outcomes of equal y count one by one, where the paper counts equal rewards
    once. **w_t** looks at Q and settles only if Q does: Theorem 1 does not cover it.

    **Breaks** order and **Breaks** rarity, with y for r as VarianceReplay does: a better prize can look worse, and a rare loss is replayed as
    often as a common one.

    **When it fails.** Where what differs in y is not danger: a slip that costs a detour is shunned as a small fall is.

    >>> import safereplay as sr
    >>> mdp = sr.grids.delayed(sr.grids.cliff(), meanwhile=-1.0)         # one falls a step after the slip
    >>> schemes = sr.VarianceReplay(beta=5.0), sr.ReturnReplay(beta=5.0)
    >>> limits = [sr.fixed_point(mdp, scheme, v=0.5) for scheme in schemes]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.119, 0.032]
    """

    UNIT: ClassVar[str] = "1/reward"

    beta: float = 5.0

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
    """Pairs by how far their rewards fall below the mean; of their outcomes those below it more often, the deeper the more.

        W(s,a) ∝ σ₋²,    σ₋² = E[min(r − r̄, 0)²]          ŵ(s',r | s,a) ∝ q̂(s',r | s,a) · e^{−β·min(r − r̄, 0)/σ₋}

    with r̄ the pair's mean and σ₋² the part of its variance that lies below it (Markowitz 1959, semivariance). Variance
    counts a rare prize as it counts a rare disaster. Depth in units of σ₋ tells them apart: a loss of probability p lies
    1/√p below the mean, so that a rare disaster is tilted to hard, and the usual small price of a rare prize hardly. β has no
    unit, and 0 is neutral.

    **Limit.** w^∞ exists: the factors are continuous in mean, downside and counts. The fixed point of H with it.
    **Assumption 1.** Point 1 fails where a pair varies more but falls less: that is the purpose. Point 2 is not
    promised: how often a reward happens counts, and rewards above the mean are not told apart (on the cliff it holds).

    **Breaks** order and **Breaks** rarity: depth is measured in the pair's own σ₋, which is small where a loss is rare. With β = 1 and v = 0.99 a
    loss of probability 0.01 has p̃ = 0.91, one of probability 0.1 only 0.72.

    **When it fails.** Where the danger is not in the immediate reward, as the paper's own scheme.

    >>> import safereplay as sr
    >>> rows = [(0, 0, 1.0, 1, 1.0, True, False), (0, 1, 0.9, 1, -1.0, True, False), (0, 1, 0.1, 1, 30.0, True, False)]
    >>> prize = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)     # a sure 1, or a ticket at 1 that wins one time in ten
    >>> [int(sr.fixed_point(prize, scheme, v=0.5)[0].argmax()) for scheme in (sr.VarianceReplay(), sr.DownsideReplay())]
    [0, 1]
    """

    beta: float = 1.0

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
    """Pairs by how uncertain it is whether they do harm; of their outcomes the unsafe ones e^β times as often.

        W(s,a) ∝ h·(1 − h),    h = P(unsafe | s,a)          ŵ(s',r | s,a) ∝ q̂(s',r | s,a) · e^{β·[unsafe]}

    This is the paper's idea with the indicator of an error state (Geibel & Wysotzki 2005) in the place of the reward: h(1−h)
    is its variance. Rewards play no part, so that a noisy reward which harms nobody is left alone, and a harm that pays well
    is not.

    **Limit.** w^∞ exists: the fixed point of H with it. An unsafe outcome of probability h seems to have the odds
    e^β·h/(1−h) where it is replayed. **Assumption 1** is stated in rewards: in general it fails, since neither the variance
    nor the worst reward plays a part.

    **Breaks** direction where harm pays: a pair whose unsafe outcome has the higher reward is valued above its mean.

    **When it fails.** It needs to be told what is unsafe; outcomes alike in all but that flag are one to the learner,
    and count as unsafe if any of them is. It moves what Q *expects*, not what Q *counts*: where harm costs no reward,
    only the future that it ends, it does little unless v is near 1. On the slippery 4×4 lake (β = 3) P(unsafe) stays at
    0.220 up to v = 0.95 and is 0.176, the least there is, from 0.97 on; on the 8×8 one it goes from 0.1062 to 0.1056 at
    v = 0.97. And where harm comes later than the step that decides it, that step has h = 0.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> [sr.verdict(mdp, sr.fixed_point(mdp, sr.ErrorReplay(beta), v=0.9).argmax(1)) for beta in (0.0, 3.0)]
    ['risky', 'safe']
    """

    beta: float = 3.0

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
