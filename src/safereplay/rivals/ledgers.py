"""Base classes of learners with a second table, and their limits.

For each pair there is a mean value X(s,a) and a second quantity M(s,a), a variance or a probability of harm; actions
are compared by a score of both (see :mod:`safereplay.kernels.ledger` for the loop). All targets use the same next
action, b* = argmax_b score(s',b), so X and M belong to the same policy:

    X(s,a) = Σ p·( r + γ·X(s',b*) ),        M(s,a) = Σ p·( gain + pass·M(s',b*) ).

**Their limit** is a policy π that is greedy for the score of its own X and M:

    π(s) = argmax_a score( X^π(s,a), M^π(s,a) ).

This is an *equilibrium*: no change of a single action helps if everything after it stays the same. It need not be the
best policy by the score of the whole return, since a score of two tables does not satisfy Bellman's equation. There may
be several, and there may be none: policy iteration then cycles. An equilibrium without ties is attracting:
near it the greedy actions are fixed, and the rest is evaluation, a contraction.

:func:`settled` follows the expected updates from the learner's initial values, then iterates policies: all states at
once and, if that cycles, one state at a time. If that cycles too, it raises an error.

Ref: Björk & Murgoci (2010), A general theory of Markovian time inconsistent stochastic control problems.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, log
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import _checks
from .._checks import Floats, Ints
from .._config import dial
from ..arrays import sampling_model
from ..kernels import ledger, rng, step
from ..kernels.compile import bind, parameters
from ..learners import Learner, towards_target
from ..mdp import TabularMDP
from ..runs import NO_LOG, make_program, resolved
from ..schedules import Exploration, StepSize
from ..schemes import check_arguments, check_compiles
from ..theory.chain import chain_of
from ..theory.limits import limit_of
from ..theory.solver import MAX_ROUNDS, finite, largest, slack, targets

TIE = 1e-11  # scores that differ by less than this share of the largest are equal
MOST_SWEEPS = 2_000
PARTS = {
    "value": ledger.UPDATE_OFFERS,
    "second": ledger.UPDATE_OFFERS,
    "score": ledger.SCORE_OFFERS,
    "reprice": ledger.REPRICE_OFFERS,
}


@dataclass(frozen=True, kw_only=True)
class LedgerLearner(Learner):
    """A learner with two tables. A subclass defines the update of the second one, and the score of both.

    ``gain`` and ``passing`` define the same update as ``second``, for whole arrays of outcomes [K]; the exact limit is
    computed from them.

    >>> import safereplay as sr
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Hasty(LedgerLearner):                   # M is the expected number of steps to go
    ...     LABEL, DIALS, cost = "hasty", ("cost",), 0.5
    ...     second = staticmethod(lambda m, ahead, alpha: m + alpha * (1.0 + ahead - m))
    ...     score = staticmethod(lambda q, m, cost: q - cost * m)
    >>> book = audit(sr.grids.cliff(slip=0.0), Hasty(), episodes=2_000)
    >>> round(float(book.M[18, book.policy[18]]), 2)  # seven steps from the start to the goal, round the cliff
    7.0
    """

    value: ClassVar[Callable[..., float]] = staticmethod(towards_target)
    second: ClassVar[Callable[..., float]] = staticmethod(lambda m: m)
    score: ClassVar[Callable[..., float]] = staticmethod(lambda q: q)
    reprice: ClassVar[Callable[..., float]] = staticmethod(lambda price: price)

    def __post_init__(self) -> None:
        super().__post_init__()
        for part, offered in PARTS.items():
            check_arguments(type(self), part, offered, self.DIALS)

    def recipe(self, exploration: Exploration, step_size: StepSize) -> ledger.Recipe:
        """The recipe that the compiled loop is built from."""
        own = {part: bind(getattr(type(self), part), (*offered, *self.DIALS)) for part, offered in PARTS.items()}
        check_compiles(self, **own)
        return ledger.Recipe(step_size.bound(), exploration.bound(), **own, softmax=exploration.SOFTMAX)

    @property
    def uses_unsafe(self) -> bool:
        """Whether either table's update names ``unsafe``."""
        return any("unsafe" in parameters(getattr(type(self), part)) for part in ("value", "second"))

    def gain(self, mdp: TabularMDP, error: Floats) -> Floats:
        """The amount that an outcome adds to M, [K], given its error r + γ·X(s',b*) − X(s,a)."""
        _checks.fail("learner", "define gain, to have an exact limit", self)

    def passing(self, mdp: TabularMDP) -> Floats:
        """The factor of M(s',b*) in M(s,a), per outcome, [K]."""
        _checks.fail("learner", "define passing, to have an exact limit", self)

    def scores(self, X: Any, M: Any, price: float = 0.0) -> Floats:
        """The scores of whole tables at a price; raises an error if they overflow."""
        offered = {"q": X, "m": M, "price": price, **{name: getattr(self, name) for name in self.DIALS}}
        names = parameters(type(self).score)
        with np.errstate(over="ignore", invalid="ignore"):
            return finite(np.asarray(type(self).score(*(offered[name] for name in names)), np.float64))


@dataclass(frozen=True, kw_only=True)
class HarmLedger(LedgerLearner):
    """A learner whose second table is the probability of ever meeting an unsafe outcome.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> Q = sr.exact(mdp, sr.QLearning())
    >>> book = followed(mdp, sr.ErrorStates(0.5), Q.argmax(1))
    >>> bool(np.isclose(book.M[mdp.origin].min(), sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe))
    True
    """

    @staticmethod
    def second(m: float, ahead: float, unsafe: float, alpha: float) -> float:
        """Towards 1 after harm, else towards M(s',b*)."""
        return m + alpha * ((1.0 if unsafe > 0.0 else ahead) - m)

    def gain(self, mdp: TabularMDP, error: Floats) -> Floats:
        """1 for harm."""
        return mdp.unsafe.astype(np.float64)

    def passing(self, mdp: TabularMDP) -> Floats:
        """1, but 0 after harm or at the end of the episode."""
        return np.where(mdp.terminal | mdp.unsafe, 0.0, 1.0)


class Ledger(NamedTuple):
    """Both tables of a learner, their score, and its greedy policy."""

    X: Floats  #: [S, A]
    M: Floats  #: [S, A]
    score: Floats  #: [S, A]
    price: float = 0.0
    harms: int = 0  #: episodes with harm; 0 for a limit

    @property
    def policy(self) -> Ints:
        """The greedy policy, [S]; ties go to the first action."""
        return np.asarray(self.score.argmax(1), np.int64)


def audit(mdp: TabularMDP, learner: LedgerLearner, episodes: int = 50_000, seed: int = 0, **options: Any) -> Ledger:
    """The same run as :func:`safereplay.learn` with this seed, with access to both tables and the price.

    ``options`` are those of :func:`diary`.

    >>> import safereplay as sr
    >>> book = audit(sr.grids.cliff(), sr.ErrorStates(0.5), episodes=5_000)
    >>> bool((book.score == sr.learn(sr.grids.cliff(), sr.ErrorStates(0.5), 5_000, seeds=1).Q[0]).all())
    True
    """
    return diary(mdp, learner, [episodes], seed, **options)[0]


def diary(
    mdp: TabularMDP,
    learner: LedgerLearner,
    episodes: list[int],
    seed: int = 0,
    exploration: Exploration | None = None,
    step_size: StepSize | None = None,
    *,
    max_steps: int = 1_000,
) -> list[Ledger]:
    """One run, with its state after each of these numbers of episodes.

    >>> import safereplay as sr
    >>> early, late = diary(sr.grids.cliff(), sr.LagrangianQ(0.01), [10, 1_000])
    >>> early.price < late.price, early.harms < late.harms
    (True, True)
    """
    exploration, step_size = resolved(mdp, learner, exploration, step_size)
    program = make_program(learner, exploration, step_size, mdp.gamma, mdp.n_actions)
    c0 = learner.initial_value(float(mdp.r.max()), mdp.gamma)
    tables = step.allocate(mdp.n_states, mdp.n_actions, c0, rng.seeded(_checks.whole("seed", seed, 0, 64)))
    memory: ledger.Memory = program.recipe.room(mdp)  # type: ignore[union-attr]
    model, shape, books = sampling_model(mdp), (mdp.n_states, mdp.n_actions), []
    for point in episodes:
        limits = _checks.whole("episodes", point, 1), _checks.whole("max_steps", max_steps, 1), 1 << 62
        program.run(model, memory, tables, program.dials, *limits, NO_LOG)
        X, M, Q = (x.reshape(shape).copy() for x in (memory.X, memory.M, tables.Q))
        books.append(Ledger(X, M, finite(Q), float(memory.book[ledger.PRICE]), int(memory.book[ledger.HARMS])))
    return books


def ahead(mdp: TabularMDP, learner: LedgerLearner, x: Floats, m: Floats, price: float = 0.0) -> Ledger:
    """X and M of every pair if s' has value x(s') [S] and second quantity m(s') [S]: one expected update, α = 1."""
    y = targets(mdp, x)
    X = mdp.expect(y)
    M = mdp.expect(learner.gain(mdp, y - X.ravel()[mdp.pair]) + learner.passing(mdp) * m[mdp.s_next])
    return Ledger(X, M, learner.scores(X, M, price), price)


def followed(mdp: TabularMDP, learner: LedgerLearner, policy: Ints, price: float = 0.0) -> Ledger:
    """X and M of every pair if a policy [S] is followed afterwards.

    M is the least nonnegative solution; it is not unique if some loops never end.

    >>> import safereplay as sr
    >>> book = followed(sr.grids.volatile(), sr.MeanVariance(0.01), [1] * 20)     # right: three gambles, then the goal
    >>> round(float(book.M[5, 1]), 2), round(9600 * (1 + 0.9**2 + 0.9**4), 2)     # each of variance 200²·0.6·0.4
    (23674.56, 23674.56)
    """
    chain, policy = chain_of(mdp, policy), np.asarray(policy)
    chosen = policy[mdp.pair // mdp.n_actions] == mdp.pair % mdp.n_actions
    x = chain.solve(chain.r, np.where(chain.terminal, 0.0, mdp.gamma), chain.active)
    error = targets(mdp, x) - x[mdp.pair // mdp.n_actions]
    gain = learner.gain(mdp, error)[chosen]
    m = chain.solve(gain, learner.passing(mdp)[chosen], chain.can_reach(gain > 0.0))
    return ahead(mdp, learner, x, m, price)


def settled(mdp: TabularMDP, learner: LedgerLearner, price: float = 0.0) -> Ledger:
    """The equilibrium that expected updates from X = c0, M = 0 lead to; raises an error if policies cycle.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> [sr.verdict(mdp, settled(mdp, sr.ErrorStates(weight)).policy) for weight in (0.0, 0.5)]
    ['risky', 'safe']
    """
    found = equilibrium(mdp, learner, price)
    if found is None:
        hint = "policy iteration cycles"
        _checks.fail("learner", "have an equilibrium on this model, to have an exact limit", learner.describe(), hint)
    return found


def equilibrium(mdp: TabularMDP, learner: LedgerLearner, price: float = 0.0) -> Ledger | None:
    """The same, or None if policies cycle.

    >>> import safereplay as sr
    >>> rows = [(0, 0, 1.0, 1, 0.0, True), (0, 1, 0.9, 0, 10.0), (0, 1, 0.1, 1, 0.0, True)]        # stop, or go on
    >>> print(equilibrium(sr.TabularMDP.from_outcomes(2, 2, rows), sr.MeanVariance(0.3)))
    None
    """
    x = np.where(mdp.is_terminal, 0.0, learner.initial_value(float(mdp.r.max()), mdp.gamma))
    m, states = np.zeros(mdp.n_states), np.arange(mdp.n_states)
    for _ in range(min(MOST_SWEEPS, ceil(log(1e-9) / log(mdp.gamma)))):  # as many as a γ-contraction needs to converge
        before, book = (x, m), ahead(mdp, learner, x, m, price)
        x, m = book.X[states, book.policy], book.M[states, book.policy]
        if all(np.abs(a - b).max() <= 1e-12 * largest(b) for a, b in zip(before, (x, m), strict=True)):
            break
    tries = (iterated(mdp, learner, book.policy, price, at_once=at_once) for at_once in (True, False))
    return next((found for found in tries if found is not None), None)


def iterated(
    mdp: TabularMDP, learner: LedgerLearner, policy: Ints, price: float = 0.0, *, at_once: bool = True
) -> Ledger | None:
    """Policy iteration from a policy [S], for all states at once or one at a time; None if it cycles.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> sr.verdict(mdp, iterated(mdp, sr.MeanVariance(0.0), [0] * 24).policy)
    'risky'
    """
    policy, states, seen = np.array(policy), np.arange(mdp.n_states), set()
    for _ in range(MAX_ROUNDS):
        if policy.tobytes() in seen:
            return None
        seen.add(policy.tobytes())
        book = followed(mdp, learner, policy, price)
        lead = book.score.max(1) - book.score[states, policy]
        better = lead > slack(TIE, book.score, mdp.r)
        if not better.any():
            return book
        if not at_once:
            better &= states == int(np.argmax(better))
        policy = np.where(better, book.score.argmax(1), policy)
    return None


@dataclass(frozen=True)
class MeanVariance(LedgerLearner):
    """Sato, Kimura & Kobayashi (2001), value-based: score = mean − risk·variance of the discounted return.

    The variance of the discounted return satisfies an equation like that of its mean. Sobel (1982), *The variance of
    discounted Markov decision processes*, gives it for a fixed policy; Sato, Kimura & Kobayashi (2001), *TD algorithm for
    the variance of return and mean-variance reinforcement learning*, learn it from the TD error δ = r + γ·X(s',b*) −
    X(s,a):

        X(s,a) ← X(s,a) + α·δ,        M(s,a) ← M(s,a) + α·( δ² + γ²·M(s',b*) − M(s,a) ),        score = X − risk·M

    They compute M for a given policy, and improve the policy by the gradient of the score in its parameters. The form
    here is value-based: take the action with the best score.

    **Limit.** For a fixed policy, mean and variance: the second equation is Sobel's, and a γ²-contraction once X has
    converged. For the greedy policy, an equilibrium (see :mod:`safereplay.rivals.ledgers`): each action is best if
    all later actions stay the same.

    **When it fails.** (1) The equilibrium is not the best policy. The variance of the whole return is the variance *within*
    branches plus that *between* their means. The score at s' includes only the first, and a price paid there for certainty
    may increase the second. Finding the best policy is NP-hard in general, and it may depend on the return so
    far: Mannor & Tsitsiklis (2011), *Mean-variance optimization in Markov decision processes*. Of 100 random worlds of
    four states, at risk = 0.1, the equilibrium found had the best score of all 16 policies from the first
    state in 77, and from all states in 58; in 39 no policy is best from all states. (2) There may be none: in 4 of these
    worlds, and in a streak that continues with probability 0.9 and pays 10 per step, at risk = 0.3: one more step is worth
    its variance, a whole streak is not. ``sr.exact`` then raises an error. The learner still converges, to a tie where each
    action is taken some of the time; its tables are then those of no greedy policy. (3) There
    may be several: in 6 of these worlds. Which one is learned depends on the initial Q. (4) A larger risk can be worse:
    variance above the mean counts as much as below. On the cliff the limit at risk = 0.3 takes the safe way, and that at
    risk = 1 jumps: a fall has the least variance. (5) δ² includes the error of X as well, so a pair with few visits
    looks risky, is avoided, and keeps few visits. On the cliff at risk = 0.3 and ε = 0.1, where the limit takes
    the safe way, all runs of 50,000 episodes still jump; runs of ten times as many take the safe way, and so do runs of
    50,000 that always explore.

    Parameters
    ----------
    risk : float ≥ 0, in 1/reward; the price, in reward, of one (reward)² of variance

    >>> import safereplay as sr
    >>> mdp = sr.grids.volatile()
    >>> [sr.verdict(mdp, sr.exact(mdp, sr.MeanVariance(risk)).argmax(1)) for risk in (0.0, 0.01)]
    ['risky', 'safe']
    """

    LABEL: ClassVar[str] = "mean–variance"
    DIALS: ClassVar[tuple[str, ...]] = ("risk",)
    DIAL: ClassVar[str] = "risk"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
    risk: float = dial(0.03, "[0, inf)", "price", "the price of variance", (0.0, 1.0, 0.005))

    @staticmethod
    def second(q: float, m: float, r: float, best: float, ahead: float, alpha: float, gamma: float) -> float:
        """M(s,a) + α·(δ² + γ²·M(s',b*) − M(s,a))."""
        delta = r + gamma * best - q
        return m + alpha * (delta * delta + gamma * gamma * ahead - m)

    @staticmethod
    def score(q: float, m: float, risk: float) -> float:
        """X − risk·M."""
        return q - risk * m

    def gain(self, mdp: TabularMDP, error: Floats) -> Floats:
        """δ²."""
        return error**2

    def passing(self, mdp: TabularMDP) -> Floats:
        """γ²; 0 at the end of the episode."""
        return np.where(mdp.terminal, 0.0, mdp.gamma**2)


@dataclass(frozen=True)
class ErrorStates(HarmLedger):
    """Geibel & Wysotzki (2005): score = (1 − weight)·value − weight·scale·P(ever unsafe).

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

    Parameters
    ----------
    weight : float in [0, 1]; weight of harm
    scale : float; price of a harm, in reward, at weight = 1/2

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
    weight: float = dial(0.5, "[0, 1]", "weight", "how much P(unsafe) counts beside the value", (0.0, 1.0, 0.01))
    scale: float = dial(100.0, "(0, inf)", "scale", "the price of harm at equal weights", (1.0, 200.0, 1.0))

    @staticmethod
    def score(q: float, m: float, weight: float, scale: float) -> float:
        """(1 − weight)·X − weight·scale·M."""
        return (1.0 - weight) * q - weight * scale * m


@limit_of.register
def _(learner: MeanVariance | ErrorStates, mdp: TabularMDP) -> Floats:
    return settled(mdp, learner).score
