"""Learners of a criterion other than the mean: the worst distribution, exponential utility, and CVaR."""

from __future__ import annotations

from dataclasses import dataclass
from math import expm1, log1p
from typing import ClassVar

import numpy as np

from .. import _checks
from .._checks import Floats
from .._config import dial
from ..learners import Learner, QLearning
from ..mdp import TabularMDP
from ..theory.constrained import Tail
from ..theory.criteria import Augmented, augmented, entropic, least_shortfall
from ..theory.limits import exact, limit_of
from ..theory.risk import evaluate
from ..theory.solver import iterate, targets


@dataclass(frozen=True)
class Robust(Learner):
    """Robust Q-learning under contamination: with probability δ an adversary draws the outcome, the worst one seen.

    A robust MDP does not trust its probabilities. For each pair it has a set 𝒫(s,a) of distributions, and values an action
    by the worst of them, for each pair and step independently (a *rectangular* set):

        Q(s,a)  =  min_{p ∈ 𝒫(s,a)}  Σ p·(r + γ·max_b Q(s',b)).

    Here the set is contamination, q the true probabilities and f any distribution on the outcomes of the pair:

        𝒫(s,a)  =  { (1−δ)·q + δ·f },    which makes    Q  =  (1−δ)·E[y] + δ·min y,    y = r + γ·max_b Q(s',b),

    since the worst f puts all its mass on the worst outcome. The learner's update is

        Q(s,a) ← (1−α)·Q(s,a) + α·[(1−δ)·(r + γ·max_b Q(s',b)) + δ·min_{(r',s'') seen} (r' + γ·max_b Q(s'',b))]

    δ = 0 is Q-learning. δ = 1 has the limit of Heger's Q̂-learning. That one only decreases Q, and cannot correct a value
    that was too low; this one can.

    **Limit.** The fixed point of the equation, a γ-contraction.

    **Sources.** Iyengar and Nilim & El Ghaoui show that dynamic programming solves any rectangular set, and derive
    likelihood, entropy, interval and ellipsoid sets. Tamar, Xu & Mannor learn with function approximation: their set is any
    closed rectangular one around nominal transitions, given by its support function min_{p∈𝒫} p·v, with known rewards;
    they scale up the number of states. Contamination is one such set, with a support function in closed form;
    Wang & Zou learn it online, with f on all states. Two points differ here: f is on the outcomes seen, so outcomes that
    never happen do not count, and the reward belongs to the outcome, so the worst reward counts as well.

    **When it fails.** The adversary acts at every step, so the effect grows with the length of a path: with a large δ every
    path is too long. In the limit the cliff is safe for δ from 0.03 to 0.37, and jumped off from 0.39 on, since that
    is better than a later push; at δ = 1 nothing moves. On the volatile grid, where moves are certain, the safe range is
    δ from 0.25 to 1. So a δ for both lies between 0.25 and 0.37. An outcome seen once counts forever: δ does
    not depend on how likely the worst outcome is.

    Parameters
    ----------
    delta : float in [0, 1]; probability of the adversary

    Ref: Iyengar (2005), Robust dynamic programming; Nilim & El Ghaoui (2005), Robust control of Markov decision processes
    with uncertain transition matrices; Tamar, Xu & Mannor (2013), Scaling up robust MDPs by reinforcement learning; Wang &
    Zou (2021), Online robust reinforcement learning with model uncertainty.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> [sr.verdict(mdp, sr.exact(mdp, sr.Robust(delta)).argmax(1)) for delta in (0.0, 0.2, 0.6)]
    ['risky', 'safe', 'jumps']
    """

    LABEL: ClassVar[str] = "robust"
    DIALS: ClassVar[tuple[str, ...]] = ("delta",)
    DIAL: ClassVar[str] = "delta"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    delta: float = dial(0.2, "[0, 1]", "distrust", "how often the worst outcome seen is assumed", (0.0, 1.0, 0.01))

    @staticmethod
    def update(
        q: float, r: float, best: float, worst_outcome: float, alpha: float, gamma: float, delta: float
    ) -> float:
        """Towards an outcome that is the worst one seen with probability δ."""
        return (1.0 - alpha) * q + alpha * ((1.0 - delta) * (r + gamma * best) + delta * worst_outcome)


@limit_of.register
def _(learner: Robust, mdp: TabularMDP) -> Floats:
    return robust(mdp, learner.delta)


def robust(mdp: TabularMDP, delta: float) -> Floats:
    """Q of the best policy if each outcome is the worst of its pair with probability δ, [S, A].

    >>> import safereplay as sr
    >>> coin = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 0.5, 1, 8.0, True), (0, 0, 0.5, 1, 0.0, True)])
    >>> [float(robust(coin, delta)[0, 0]) for delta in (0.0, 0.25, 1.0)]
    [4.0, 3.0, 0.0]

    Ref: Iyengar (2005), Robust dynamic programming.
    """
    delta = _checks.between("delta", delta, "[0, 1]")
    full = np.flatnonzero(np.diff(mdp.row) > 0)  # pairs with outcomes

    def H(Q: Floats) -> Floats:  # noqa: N802
        y = targets(mdp, Q.max(1))
        worst = np.zeros(mdp.n_pairs)
        worst[full] = np.minimum.reduceat(y, mdp.row[full])
        return (1.0 - delta) * mdp.expect(y) + delta * worst.reshape(mdp.n_states, mdp.n_actions)

    return iterate(H, mdp)


@dataclass(frozen=True)
class ExponentialUtility(Learner):
    """Q-learning of certainty equivalents under exponential utility; θ > 0 is risk-averse, θ < 0 risk-seeking.

    A random amount y has the certainty equivalent CE(y) = −(1/θ)·log E e^{−θy}: E[y] − (θ/2)·var y + …, less than the mean
    for θ > 0, more for θ < 0. The learner averages e^{−θy} where Q-learning averages y:

        e^{−θQ(s,a)}  ←  (1−α)·e^{−θQ(s,a)} + α·e^{−θ(r + γ·max_b Q(s',b))},

    computed as Q + (−1/θ)·log(1 + α·(e^{−θδ} − 1)) with δ = r + γ·max_b Q(s',b) − Q(s,a), in a form in which no
    exponential can overflow. θ = 0 is Q-learning.

    **Limit.** Q(s,a) = −(1/θ)·log E e^{−θ(r + γ·max_b Q(s',b))}: a γ-contraction, since CE(y + c) = CE(y) + c and CE is
    monotone. This is the risk of a single step, nested; because of discounting it is not the exponential utility of the
    discounted return. Howard & Matheson's criterion, the utility of the whole episode without discounting, is solved
    exactly by :func:`safereplay.theory.criteria.exponential_utility`; as γ → 1 the nested limit tends to it. From the
    start of the cliff at θ = 0.1 it is −1.753 for γ = 0.95, −0.0004 for 0.999, 0.0457 for 0.99999, and 0.0462 without γ.

    **Sources.** Borkar learns the product form, as a table, for the average cost of a process that never ends, with a
    reference state that keeps it bounded; here γ < 1 does so. Basu et al. use linear function approximation.

    **When it fails.** θ has the unit 1/reward, so one value does not suit all worlds. In the
    limit the path on the cliff (rewards −12 to 10) is safe for θ from 0.0664 to 1.490 and jumps off beyond; the volatile
    grid (−100 to 150) is safe from θ = 0.00595 on, the lottery from 0.0427. A large θ learns slowly from below: a bad draw
    lowers Q at once by its full amount, a good one raises it by at most −log(1−α)/θ. On the volatile grid after 20,000
    episodes (ε = 0.1, c0 = 0) Q of pairs visited 500 times is too low by up to 0.4 of its range at θ = 0.3 and by 1.8 at
    θ = 3; from c0 = 1500, above every return, it is right to 1e-4. The path is safe either way.

    Parameters
    ----------
    theta : float, in 1/reward

    Ref: Howard & Matheson (1972), Risk-sensitive Markov decision processes; Borkar (2002), Q-learning for risk-sensitive
    control; Basu, Bhattacharyya & Borkar (2008), A learning algorithm for risk-sensitive cost.

    >>> import safereplay as sr
    >>> mdp = sr.grids.cliff()
    >>> [sr.verdict(mdp, sr.exact(mdp, sr.ExponentialUtility(theta)).argmax(1)) for theta in (0.0, 0.3, 3.0)]
    ['risky', 'safe', 'jumps']
    """

    LABEL: ClassVar[str] = "exponential utility"
    DIALS: ClassVar[tuple[str, ...]] = ("theta",)
    DIAL: ClassVar[str] = "theta"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    theta: float = dial(0.1, "(-inf, inf)", "aversion", "how much losses outweigh gains", (-1.0, 3.0, 0.01))

    @staticmethod
    def update(q: float, r: float, best: float, alpha: float, gamma: float, theta: float) -> float:
        """The certainty equivalent of Q(s,a) with probability 1−α and the new target with probability α."""
        target = r + gamma * best
        x = -theta * (target - q)
        if abs(x) < 1e-16 or alpha == 1.0:  # the two differ by less than rounding
            return (1.0 - alpha) * q + alpha * target
        if x > 0.0:
            return target - log1p((1.0 - alpha) * expm1(-x)) / theta
        return q - log1p(alpha * expm1(x)) / theta


@limit_of.register
def _(learner: ExponentialUtility, mdp: TabularMDP) -> Floats:
    return iterate(lambda Q: entropic(mdp, targets(mdp, Q.max(1)), learner.theta), mdp)


@dataclass(frozen=True)
class CVaRQLearning(Learner):
    """CVaR of the return: Q-learning that minimises the expected shortfall, on the state and the remaining target.

    CVaR_α is the mean return of the worst share α of episodes. A policy that maximises it may depend on the return so far:
    after gains it can take a risk, after large losses there is nothing left to protect. With a target y₀,

        CVaR_α(G)  =  max_{y₀}  y₀ − E[(y₀ − G)⁺] / α,

    and the learner is plain Q-learning on states (s, y), y = y₀ − return so far, with rewards y⁺ − (y − r)⁺ that add up to
    y₀⁺ − (y₀ − G)⁺ (see :mod:`safereplay.theory.criteria`). It learns on ``training_model``; its policy is evaluated on
    ``judging_model``, which has the same states and the real rewards.

    **The target.** The outer maximum is not learned. ``target=None`` uses the best y₀ for α, computed from the model. If
    a loop gains forever there is none, and the α-quantile of the best discounted policy's return is used.

    **Limit.** That of Q-learning on the augmented model: the least expected shortfall of any policy, with or without memory.
    With the best y₀ its CVaR is the maximum: see :func:`safereplay.theory.criteria.best_cvar`.

    **When it fails.** The table grows: at α = 0.1 from 24 states to 99 on the cliff, from 20 to 3,848 on the volatile grid, from
    28 to 1,516 on the lottery, from 40 to 275 on the bridge. For small α the relevant episodes are rare: on the
    cliff after 100,000 episodes five runs are within 0.14 of the best CVaR at α = 0.1 (−0.40; after 20,000 within 1.3), and
    within 1.4 at α = 0.02 (−6.15; after 20,000 within 3.5; Q-learning's limit is 8.3 below). Only the shortfall counts: if
    the tail cannot reach a target above 0, as on frozen_lake at α = 0.1, never moving is as good as any policy. Where a
    loop gains forever, as on the volatile grid, a high target repeats it: α = 0.9 has the target 349 where 145 is certain, and
    64 % of episodes have an unsafe outcome; from α = 0.5 down none has. And a disaster rarer than α is averaged with
    moderate losses.

    Parameters
    ----------
    alpha : float in (0, 1); share of the worst episodes
    target : float, optional; y₀; default: the best for alpha

    Ref: Bäuerle & Ott (2011), Markov decision processes with Average-Value-at-Risk criteria; Rockafellar & Uryasev (2000),
    Optimization of conditional value-at-risk.

    >>> import safereplay as sr
    >>> mdp, learner = sr.grids.cliff(), sr.CVaRQLearning(0.1)
    >>> policy = sr.exact(mdp, learner).argmax(1)
    >>> plain = sr.exact(mdp, sr.QLearning()).argmax(1)
    >>> [round(sr.evaluate(*x).cvar(0.1), 3) for x in ((learner.judging_model(mdp), policy), (mdp, plain))]
    [-0.405, -2.392]
    """

    LABEL: ClassVar[str] = "CVaR"
    GIVEN: ClassVar[str] = "the best target for its α"
    DIAL: ClassVar[str] = "alpha"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02)
    alpha: float = dial(0.1, "(0, 1)")
    target: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.real("target", 0.0 if self.target is None else self.target)

    def target_on(self, mdp: TabularMDP) -> float:
        """The target used for learning."""
        if self.target is not None:
            return self.target
        found = Tail(mdp, self.alpha)
        if not found.trouble:
            return found.target
        quantile = evaluate(mdp, exact(mdp, QLearning()).argmax(1), quiet=True).quantile(self.alpha)
        return _checks.real("target that is worked out", quantile)

    def augmented(self, mdp: TabularMDP) -> Augmented:
        """The model with the remaining target in its state."""
        return augmented(mdp, self.target_on(mdp))

    def training_model(self, mdp: TabularMDP) -> TabularMDP:
        """The model it learns on: a reward is the decrease of the shortfall."""
        return self.augmented(mdp).training_model

    def judging_model(self, mdp: TabularMDP) -> TabularMDP:
        """The model for evaluating its policy: the rewards are the original ones."""
        return self.augmented(mdp).judging_model

    def describe(self) -> str:
        """One short line for tables and legends."""
        return f"{self.LABEL}({f'alpha={self.alpha:g}' if self.target is None else f'target={self.target:g}'})"


@limit_of.register
def _(learner: CVaRQLearning, mdp: TabularMDP) -> Floats:
    """On the states of ``training_model(mdp)``: [N, A]."""
    return least_shortfall(learner.training_model(mdp))
