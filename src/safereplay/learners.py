"""Learners: Algorithm 1 and its rivals, each a few hyper-parameters and one update.

A learner says how a transition (s, a, r, s') changes Q(s,a). Its ``update`` is a plain function that names what it
needs, and one compiled loop runs them all:

    q, r                 Q(s,a) before, and the reward
    best, worst          max_b Q(s',b) and min_b Q(s',b); both 0 where the episode ended
    worst_state                min over the next states seen from (s,a) of mean reward there + γ·max_b Q(s',b)
    alpha, gamma         α_t(s,a) and γ

With a scheme, a learner replays as well. ``mixing`` says how much of a pair's updates are replays, ρ(s,a):

    literal   the paper's Algorithm 1: each iteration replays with probability v, a pair drawn from w_t.
              Then ρ = v·W / ((1−v)·d + v·W), with d(s,a) the share of MDP iterations that visit the pair.
    matched   after each visit of a pair, replay that same pair v·W(s,a)/(1−v) times on average.
              Then ρ = v·W / ((1−v) + v·W), whatever is visited: the mapping that the paper analyses.

A learner of one's own, here one that trusts the newest target only as far as it is bad news:

>>> import safereplay as sr
>>> from dataclasses import dataclass
>>> @dataclass(frozen=True)
... class Wary(sr.Learner):
...     LABEL = "wary"
...     DIALS = ("trust",)
...     trust: float = 0.5
...     @staticmethod
...     def update(q, r, best, alpha, gamma, trust):
...         target = r + gamma * best
...         return q + alpha * (target - q) * (1.0 if target < q else trust)
>>> sr.learn(sr.grids.volatile(), Wary(0.2), episodes=2_000, seeds=2).verdicts
['safe', 'safe']

Ref: Szlak & Shamir (2021), Algorithm 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol, TypeAlias

from . import _checks
from ._config import Config, dial
from .kernels import step
from .kernels.compile import MOST_NAMES, bind, parameters
from .mdp import TabularMDP
from .schedules import Exploration, StepSize
from .schemes import NO_REPLAY, Scheme, VarianceReplay, check_compiles, check_tabular


class Family(Protocol):
    """What a run's compiled code is built from, for learners that Algorithm 1's loop does not run. Equal ones build the
    same code.
    """

    def __hash__(self) -> int: ...

    def digest(self) -> str | None:
        """What the compiled code is made from; None if it must not be kept on disk."""

    def make(self) -> Callable[..., None]:
        """The compiled loop, of the arguments of the one in :mod:`safereplay.kernels.loop`."""

    def room(self, mdp: TabularMDP) -> Any:
        """The arrays, beside Q and the counts, that one run fills."""


Recipe: TypeAlias = step.Recipe | Family
MIXINGS = {"literal": step.LITERAL, "matched": step.MATCHED}
MOST_V = 0.999999  # where v decides on every iteration: a million replays come between two steps of the MDP


def towards_target(q: float, r: float, best: float, alpha: float, gamma: float) -> float:
    """Q(s,a) after a transition: (1−α)·Q(s,a) + α·(r + γ·max_b Q(s',b))."""
    return (1.0 - alpha) * q + alpha * (r + gamma * best)


def replay_chance(v: float) -> float:
    """The chance v that an iteration is a replay; one that leaves next to no steps of the MDP is refused."""
    v = _checks.between("v", v, "[0, 1)")
    hint = f"1/(1 - v) = {1.0 / (1.0 - v):.2g} iterations for each step of the MDP take too long"
    _checks.require(v <= MOST_V, "v", f"be at most {MOST_V:g} where it decides on every iteration", v, hint)
    return v


@dataclass(frozen=True, kw_only=True)
class Learner(Config):
    """What every learner has: the initial value c0 of Q, and T0 iterations that only explore."""

    c0: float | None = 0.0
    T0: int = 1

    #: The learner's own dials that its update may name.
    DIALS: ClassVar[tuple[str, ...]] = ()
    #: What reports call it.
    LABEL: ClassVar[str] = "learner"
    #: The field that a comparison turns, and its settings from no effect to most; "" where there is none.
    DIAL: ClassVar[str] = ""
    SETTINGS: ClassVar[tuple[float, ...]] = ()
    #: Whether what is replayed settles, as Theorem 1 asks of w_t (None: that depends on the model), and why.
    SETTLES: ClassVar[bool | None] = None
    WHY: ClassVar[str] = ""
    #: Other fields that a comparison sets, where the defaults are the source's but not its best.
    COMPARED: ClassVar[dict[str, float]] = {}
    #: What it takes from the model beside its own experience, at its defaults; "" for nothing.
    GIVEN: ClassVar[str] = ""

    def __post_init__(self) -> None:
        _checks.real("c0", 0.0 if self.c0 is None else self.c0)
        _checks.whole("T0", self.T0, 1)
        self.check_dials()
        _checks.own_names(type(self).__name__, self.DIALS, step.UPDATE_OFFERS)
        offered = (*step.UPDATE_OFFERS, *self.DIALS)
        _checks.arguments(f"{type(self).__name__}.update", parameters(type(self).update), offered, MOST_NAMES)

    update: ClassVar[Callable[..., float]] = staticmethod(towards_target)

    def initial_value(self, r_max: float, gamma: float) -> float:
        """What Q starts from, in a world whose rewards are at most r_max."""
        return 0.0 if self.c0 is None else self.c0

    @property
    def replay(self) -> tuple[Scheme, float, str] | None:
        """(scheme, v, mixing), or None for a learner that does not replay."""
        return None

    def training_model(self, mdp: TabularMDP) -> TabularMDP:
        """The model that the learner is run on: mdp, unless it needs more states than that has."""
        return mdp

    def judging_model(self, mdp: TabularMDP) -> TabularMDP:
        """The model that its policy is judged on: the states of :meth:`training_model`, the rewards of mdp."""
        return mdp

    def update_params(self) -> tuple[float, ...]:
        """The values of the learner's own dials."""
        return tuple(float(getattr(self, name)) for name in self.DIALS)

    def recipe(self, exploration: Exploration, step_size: StepSize) -> Recipe:
        """What the compiled loop is built from."""
        return self.algorithm_1(exploration, step_size, "sr.learn")

    def algorithm_1(self, exploration: Exploration, step_size: StepSize, where: str) -> step.Recipe:
        """The same, for those who have only Algorithm 1's loop."""
        own = type(self).recipe is not Learner.recipe or (
            type(self).training_model is not Learner.training_model and where != "sr.learn"
        )
        _checks.require(not own, "learner", f"be one of Algorithm 1's family in {where}", self.describe())
        scheme, _, mixing = self.replay or (NO_REPLAY, 0.0, "literal")
        update = bind(type(self).update, (*step.UPDATE_OFFERS, *self.DIALS))
        alpha, rate = step_size.bound(), exploration.bound()
        check_compiles(step_size, alpha=alpha)
        check_compiles(exploration, rate=rate)
        check_compiles(self, update=update)
        replays = self.replay is not None
        return step.Recipe(alpha, rate, update, *scheme.factors(), exploration.SOFTMAX, replays, MIXINGS[mixing])

    @property
    def uses_unsafe(self) -> bool:
        """Whether the learner looks at which outcomes are marked unsafe."""
        return self.replay is not None and self.replay[0].names("harm", "unsafe")

    def describe(self) -> str:
        """One short line for tables and legends."""
        own = [f"{f.name}={getattr(self, f.name):g}" for f in fields(self) if f.name in self.DIALS]
        return f"{self.LABEL}({', '.join(own)})" if own else self.LABEL


@dataclass(frozen=True)
class QLearning(Learner):
    """Q-learning (Watkins 1989): Q(s,a) ← (1−α)·Q(s,a) + α·(r + γ·max_b Q(s',b)).

    **Limit.** Q*, the best discounted mean. **When it fails.** It counts averages alone: on both of the paper's grids it
    takes the risky way, and on the cliff it falls in 11.9 % of episodes from the start.

    >>> import safereplay as sr
    >>> sr.QLearning().describe()
    'Q-learning'

    Ref: Szlak & Shamir (2021), Algorithm 1 with v = 0.
    """

    LABEL: ClassVar[str] = "Q-learning"


@dataclass(frozen=True)
class ReplayQLearning(Learner):
    """Q-learning whose updates are replayed transitions with probability v, drawn from the scheme's w_t.

    Each iteration is a replay with probability v (``mixing="literal"``), or each visit of a pair is followed by replays of that
    pair, v·W/(1−v) on average (``"matched"``).

    **Limit.** The fixed point of H with p̃ = (1−ρ)·q + ρ·ŵ (:mod:`safereplay.theory.operator`). Matched: one, the paper's
    mapping. Literal: with d(s,a) of what is visited; there may be several, and the seed decides.
    **When it fails.** Where the scheme does not see the danger (paid for later, never paid for, never met); where noise is no
    danger; and where every way has a bad outcome, too much of it keeps an agent from moving: on the cliff at γ = 0.8 half of
    the literal runs with v ≥ 0.5 are stuck.

    >>> import safereplay as sr
    >>> sr.ReplayQLearning(sr.VarianceReplay(beta=5.0), v=0.5).describe()
    'replay(v=0.5, beta=5)'

    Ref: Szlak & Shamir (2021), Algorithm 1.
    """

    LABEL: ClassVar[str] = "replay"
    DIAL: ClassVar[str] = "v"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
    scheme: Scheme = field(default_factory=VarianceReplay)
    v: float = dial(0.5, "[0, 1)", "replay", "share of updates that are replays", (0.0, 0.95, 0.01))
    mixing: str = "literal"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_tabular(self.scheme)
        if _checks.choice("mixing", self.mixing, MIXINGS) == "literal":
            replay_chance(self.v)

    @property
    def replay(self) -> tuple[Scheme, float, str] | None:
        """(scheme, v, mixing)."""
        return self.scheme, self.v, self.mixing

    def describe(self) -> str:
        """One short line for tables and legends."""
        dials = [
            f"v={self.v:g}",
            *(f"{n}={x:g}" for n, x in zip(self.scheme.params_names(), self.scheme.params(), strict=True)),
        ]
        return f"{self.LABEL}({', '.join(dials)}{', matched' if self.mixing == 'matched' else ''})"


@dataclass(frozen=True)
class RiskSensitive(Learner):
    """Mihatsch & Neuneier (2002): positive TD errors count (1−κ), negative ones (1+κ).

        δ = r + γ·max_b Q(s',b) − Q(s,a);    Q(s,a) ← Q(s,a) + α·(1 − κ·sign δ)·δ

    κ in (−1, 1): > 0 averse to risk, < 0 fond of it.

    **Limit.** E[(1 − κ·sign δ)·δ] = 0 makes Q(s,a) an expectile of r + γ·max_b Q(s',b). **When it fails.** One κ serves all
    pairs. On the cliff it is safe from 0.42 to 0.86 only and risky at 0.87 and 0.88; from 0.89 on every step looks so bad that
    it jumps off to end it.

    >>> import safereplay as sr
    >>> sr.RiskSensitive().describe()
    'Mihatsch–Neuneier(kappa=0.6)'

    Ref: Szlak & Shamir (2021), Section 5.
    """

    LABEL: ClassVar[str] = "Mihatsch–Neuneier"
    DIALS: ClassVar[tuple[str, ...]] = ("kappa",)
    DIAL: ClassVar[str] = "kappa"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    kappa: float = dial(0.6, "(-1, 1)", "aversion", "how much more bad surprises count", (-0.99, 0.99, 0.01))

    @staticmethod
    def update(q: float, r: float, best: float, alpha: float, gamma: float, kappa: float) -> float:
        """Q(s,a) + α·(1 − κ·sign δ)·δ."""
        delta = r + gamma * best - q
        return q + alpha * delta * ((1.0 - kappa) if delta > 0.0 else (1.0 + kappa))


@dataclass(frozen=True)
class Pessimistic(Learner):
    """Gaskett's β-pessimistic Q-learning (2003): the next action may be the best or the worst.

        Q(s,a) ← (1−α)·Q(s,a) + α·(r + γ·[(1−β)·max_b Q(s',b) + β·min_b Q(s',b)]),    β in [0, 1]

    **Limit.** The fixed point of that target, a γ-contraction. **When it fails.** It fears what the agent itself might do next,
    not what the world does: volatile rewards leave it unmoved (risky on the first grid for every β), and on the cliff it is safe
    for β from 0.03 to 0.35, risky at 0.36, and jumps off from 0.37 on.

    >>> import safereplay as sr
    >>> sr.Pessimistic().describe()
    'Gaskett(beta=0.2)'

    Ref: Szlak & Shamir (2021), Section 5.
    """

    LABEL: ClassVar[str] = "Gaskett"
    DIALS: ClassVar[tuple[str, ...]] = ("beta",)
    DIAL: ClassVar[str] = "beta"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0)
    beta: float = dial(0.2, "[0, 1]", "pessimism", "how much the worst next action counts", (0.0, 1.0, 0.01))

    @staticmethod
    def update(q: float, r: float, best: float, worst: float, alpha: float, gamma: float, beta: float) -> float:
        """Towards a next action that is the worst one with probability β."""
        return (1.0 - alpha) * q + alpha * (r + gamma * ((1.0 - beta) * best + beta * worst))


@dataclass(frozen=True)
class WorstCase(Learner):
    """Heger's Q̂-learning (1994): the worst reward and the worst next state that were ever seen.

        Q̂(s,a) ← min(Q̂(s,a), r + γ·max_b Q̂(s',b))

    Values only fall, so they must start above every return; c0 = None starts from r_max/(1−γ), or 0 if that is lower.

    **Limit.** The best worst case over outcomes of any probability. **When it fails.** Where every way has a bad outcome, however
    rare, all ways are alike: on the cliff it does not move. One event that was a fluke is never forgotten.

    >>> import safereplay as sr
    >>> sr.WorstCase().initial_value(r_max=150.0, gamma=0.9).__round__(6)
    1500.0

    Ref: Szlak & Shamir (2021), Section 2.
    """

    LABEL: ClassVar[str] = "worst case"
    GIVEN: ClassVar[str] = "the largest reward"
    c0: float | None = None

    @staticmethod
    def update(q: float, r: float, best: float, gamma: float) -> float:
        """min(Q̂(s,a), r + γ·max_b Q̂(s',b))."""
        return min(q, r + gamma * best)

    def initial_value(self, r_max: float, gamma: float) -> float:
        """c0, or a value that no return exceeds."""
        return max(0.0, r_max / (1.0 - gamma)) if self.c0 is None else self.c0


@dataclass(frozen=True)
class WorstTransition(Learner):
    """The worst case as the paper writes it: the worst trajectory, at its mean reward.

        Q(s,a) ← (1−α)·Q(s,a) + α·min_{s' seen} [ mean r(s,a,s') + γ·max_b Q(s',b) ]

    Where transitions are certain this is Q-learning, however volatile the rewards.

    **Limit.** The best worst trajectory at mean rewards. **When it fails.** It does not see volatile rewards: risky on the first
    grid; and on the cliff, as Heger's, it does not move.

    >>> import safereplay as sr
    >>> sr.WorstTransition().describe()
    'worst transition'

    Ref: Szlak & Shamir (2021), Section 2.
    """

    LABEL: ClassVar[str] = "worst transition"

    @staticmethod
    def update(q: float, worst_state: float, alpha: float) -> float:
        """Towards the worst_state_value next state seen."""
        return (1.0 - alpha) * q + alpha * worst_state
