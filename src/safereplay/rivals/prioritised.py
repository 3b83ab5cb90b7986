"""Prioritised replay: transitions by the size of their TD error (Schaul, Quan, Antonoglou & Silver 2016).

    P(i) = p_i^α / Σ p^α,    p_i = |δ_i| + ε  (proportional)   or   p_i = 1/rank(i)  (rank, by |δ_i| in falling order)
    w_i = (N·P(i))^−β / max_j (N·P(j))^−β,    Q(s,a) ← Q(s,a) + α_t·w_i·δ_i

δ_i is the TD error at the last replay; a new transition has the largest priority so far. In code α is ``priority``, β
``importance``, ε ``floor``; before the first replay |δ| is ``first``, 1 in the source. Both are in units of reward. Ranks are positions in a binary heap, sorted every ``window`` steps, as in the source.

**Limit.** With β = 1, as the window grows, Q*: importance weights cancel the sampling probabilities. (In a small
window max_j depends on the few transitions it holds, and Q stays biased: ``sr.exact`` gives the limit of a long window
for every window.) With α = 0 it is uniform replay, Q* as well. With β = 0 it is biased permanently: at Q a pair's outcomes
have errors δ_k = y_k − Q(s,a) that do not vanish, and the larger ones are replayed more.
For proportional priorities in a long window N the limit can be computed. Let c = v/(1−v) be the replays per step, P_k =
(|δ_k| + ε)^α, P̄ its mean over the steps of the MDP, M the largest priority so far, and x the number of draws of a
transition that stayed at M all its life. Until its first replay it is drawn at the rate x/N, then at x·P_k/(M·N):

        n_k = (1 − e^−x) + (x − 1 + e^−x)·P_k/M        mean number of replays of a transition with outcome k
        c   = (1 − e^−x) + (x − 1 + e^−x)·P̄/M          the mean over all of them; one x ≥ 0 solves it
        0   = Σ_k q_k·(1 + n_k)·δ_k                    the fixed point at each pair, the 1 for the fresh update

The visits of a pair cancel in the last line; visits matter only through P̄. As δ·(A + B·(|δ| + ε)^α) rises with
δ there is one Q(s,a) for given targets. It is monotone in them and shifts with them, so for given A and B this is
a γ-contraction. :func:`prioritised_limit` solves it. Two extremes: where M is far above all P_k and v ≤ 1/2, P_k does not
matter and the limit is Q*: every transition is replayed at most once, while new. Where x is large, Σ q_k·|δ_k|^α·δ_k = 0: the
centre of the outcomes in the norm of order 2 + α, between their mean (α = 0) and the middle of their range (α → ∞).

**w_t does not converge**: it follows the errors of the single transitions in the window.

**When it fails.** Q is biased towards the longer tail of the targets: cautious with a rare catastrophe, bold with a rare
win, and neither can be chosen. Ranks have no simple limit: the ranks of outcomes with equal errors depend on the order
of the heap.
Measured on the cliff (20 seeds, 10⁶ steps each, ε = 0.1, α_t = n^−0.6), where Q-learning falls with probability 0.119. Mean over
the learned greedy policies, ± a standard error:

    v = 0.5    α = 0.6: 0.119 (all seeds)    α = 1: 0.060 ± 0.009    α = 2: 0.033    by rank, α = 0.7: 0.119 (all seeds)
    v = 0.8    α = 0.6: 0.033                α = 1: 0.031            α = 2: 0.031    by rank, α = 0.7: 0.034
    v = 0.8, α = 0.6    β = 0.4: 0.090 ± 0.009    β = 1: 0.119 (all seeds), by rank as well

So here it happens to be safe, except with full importance weights. The limit agrees: at v = 0.8,
α = 1 it is within 0.34 of the learned values at pairs visited 2,000 times, where Q* is up to 4.6 away, and falls with 0.032.

Ref: Schaul, Quan, Antonoglou & Silver (2016), Prioritized experience replay.
Ref: Fujimoto, Meger & Precup (2020), An equivalence between loss functions and non-uniform sampling in experience replay.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log10
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import brentq

from .. import _checks
from .._checks import Floats
from .._config import dial
from ..kernels import history
from ..mdp import TabularMDP
from ..schedules import Exploration, StepSize
from ..theory.limits import limit_of
from ..theory.solver import TOLERANCE, optimal, slack, targets
from .replaying import HistoryLearner

KINDS = {"error": "proportional", "rank": "rank"}
MANY = 100_000  # sweeps; a γ-contraction needs log(1e-12)/log γ
NEWTON = 50  # Newton steps for a pair's root; each stays inside the known bracket


@dataclass(frozen=True)
class PrioritisedReplay(HistoryLearner):
    """Replay by the size of the last TD error, with importance weights of exponent ``importance`` (0: without).

    Parameters
    ----------
    priority, importance, floor : float; α in [0, 10], β in [0, 1], ε > 0
    v, window : as in :class:`WindowReplay`
    by : {"error", "rank"}
    first : float; |δ| before the first replay

    >>> import safereplay as sr
    >>> sr.PrioritisedReplay(0.6, importance=0.4, by="rank").describe()
    'rank(v=0.5, priority=0.6, importance=0.4, floor=0.01, window=10000)'
    """

    LABEL: ClassVar[str] = "prioritised"
    DIALS: ClassVar[tuple[str, ...]] = ("v", "priority", "importance", "floor")
    DIAL: ClassVar[str] = "priority"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0)
    WHY: ClassVar[str] = "w_t follows the TD errors of the transitions in the window, one by one"
    priority: float = dial(0.6, "[0, 10]", "priority", "how much large errors are preferred", (0.0, 2.0, 0.05))
    v: float = dial(0.5, "[0, 1)", "replay", "share of updates that are replays", (0.0, 0.99, 0.01))
    importance: float = dial(
        0.0, "[0, 1]", "correction", "how much this preference is undone; 1: fully", (0.0, 1.0, 0.05)
    )
    by: str = "error"
    floor: float = 0.01
    window: int = dial(10_000, "(-inf, inf)", "window", "how many transitions are kept", (100, 20_000, 100))
    first: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.choice("by", self.by, KINDS)
        for name in ("floor", "first"):
            size = _checks.between(name, getattr(self, name), "(0, inf)")
            exponent = self.priority * log10(size)
            usable = self.by == "rank" or -300.0 <= exponent <= 290.0  # a priority of 0 or inf would make Q nan
            condition, hint = f"have {name}**priority from 1e-300 to 1e290", f"that is 1e{exponent:+.0f}"
            _checks.require(usable, name, condition, size, hint)

    def recipe(self, exploration: Exploration, step_size: StepSize) -> history.Recipe:
        """The recipe that the compiled loop is built from."""
        rule = KINDS[self.by] + (" weighed" if self.importance > 0.0 else "")
        top = self.first if self.by == "rank" else float(self.first**self.priority)  # ranks use |δ| itself
        return super().recipe(exploration, step_size)._replace(rule=rule, top=top)

    def describe(self) -> str:
        """One short line for tables and legends."""
        dials = ", ".join(f"{name}={getattr(self, name):g}" for name in (*self.DIALS, "window"))
        return f"{'rank' if self.by == 'rank' else self.LABEL}({dials})"


@limit_of.register
def _(learner: PrioritisedReplay, mdp: TabularMDP) -> Floats:
    even = learner.v == 0.0 or learner.priority == 0.0 or learner.importance == 1.0
    hint = "otherwise the limit depends on the visitation: see safereplay.rivals.prioritised.prioritised_limit"
    _checks.require(even, "importance", "be 1", learner.importance, hint)
    return optimal(mdp, mdp.p)


def prioritised_limit(mdp: TabularMDP, learner: PrioritisedReplay, visitation: Any, top: float | None = None) -> Floats:
    """The limit of proportional priorities without importance weights, for a long window, [S, A].

    ``visitation`` is d(s,a) [S, A], as in ``runs.visitation``; ``top`` is the largest priority so far, None for the largest
    at the limit.

    >>> import numpy as np, safereplay as sr
    >>> rows = [(0, 0, 0.9, 0, 1.0, True), (0, 0, 0.1, 0, -9.0, True)]
    >>> coin = sr.TabularMDP.from_outcomes(1, 1, rows)
    >>> [float(prioritised_limit(coin, sr.PrioritisedReplay(a, v=0.8), [[1.0]])[0, 0].round(3)) for a in (0.0, 0.6, 2.0)]
    [0.0, -0.726, -1.855]
    """
    plain = learner.by == "error" and learner.importance == 0.0
    _checks.require(plain, "learner", "have proportional priorities and no importance weights", learner.describe())
    shape = (mdp.n_states, mdp.n_actions)
    d = _checks.finite_array("visitation", visitation, shape)
    _checks.require(bool((d >= 0).all() and d.sum() > 0), "visitation", "be shares of visits", float(d.min()))
    step = (d / d.sum()).ravel()[mdp.pair] * mdp.p  # the share of steps with each outcome
    Q = optimal(mdp, mdp.p)
    for _ in range(MANY):
        y = targets(mdp, Q.max(1))
        P = (np.abs(y - Q.ravel()[mdp.pair]) + learner.floor) ** learner.priority
        largest = float(P[step > 0].max())
        A, B = replays_of(learner.v, float(step @ P), largest if top is None else max(float(top), largest))
        after = centre(mdp, y, learner, A, B)
        change, Q = float(np.abs(after - Q).max()), after
        if change * mdp.gamma / (1.0 - mdp.gamma) <= slack(TOLERANCE, Q, mdp.r):
            break
    return Q


def replays_of(v: float, mean: float, top: float) -> tuple[float, float]:
    """A and B, where an outcome of priority P_k has A + B·P_k updates per visit; P_k has mean ``mean``, maximum ``top``.

    >>> A, B = replays_of(v=0.5, mean=2.0, top=4.0)
    >>> round(A + B * 2.0, 12)      # one fresh update and v/(1−v) = 1 replay
    2.0
    """
    c, ratio = v / (1.0 - v), mean / top

    def surplus(x: float) -> float:
        return 1.0 - exp(-x) + (x - 1.0 + exp(-x)) * ratio - c

    x = float(brentq(surplus, 0.0, (c + 1.0) / ratio + 1.0, xtol=1e-14, rtol=1e-14)) if c > 0.0 else 0.0
    return 2.0 - exp(-x), (x - 1.0 + exp(-x)) / top


def centre(mdp: TabularMDP, y: Floats, learner: PrioritisedReplay, A: float, B: float) -> Floats:
    """The Q(s,a) with Σ q_k·(A + B·(|δ_k| + ε)^α)·δ_k = 0, δ_k = y_k − Q(s,a), at every pair, [S, A].

    By Newton's method; each step stays between points where the sum is positive and negative.

    >>> import safereplay as sr
    >>> coin = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 0.75, 0, 0.0, True), (0, 0, 0.25, 0, 4.0, True)])
    >>> centre(coin, coin.r, sr.PrioritisedReplay(1.0, floor=1e-12), A=0.0, B=1.0).round(4)      # 3·x² = (4 − x)²
    array([[1.4641]])
    """
    alpha, floor = learner.priority, learner.floor
    Q = mdp.expect(y)
    low, high = np.full(mdp.n_pairs, np.inf), np.full(mdp.n_pairs, -np.inf)
    np.minimum.at(low, mdp.pair, y)
    np.maximum.at(high, mdp.pair, y)
    shape, known = Q.shape, np.isfinite(low).reshape(Q.shape)
    low, high = np.where(known, low.reshape(shape), 0.0), np.where(known, high.reshape(shape), 0.0)
    for _ in range(NEWTON):
        delta = y - Q.ravel()[mdp.pair]
        size = np.abs(delta) + floor
        pull = mdp.expect((A + B * size**alpha) * delta)
        slope = mdp.expect(A + B * size**alpha + B * alpha * size ** (alpha - 1.0) * np.abs(delta))
        low, high = np.where(pull > 0, Q, low), np.where(pull < 0, Q, high)
        after = Q + np.divide(pull, slope, out=np.zeros_like(pull), where=slope > 0)
        after = np.where((after < low) | (after > high), (low + high) / 2.0, after)
        change, Q = float(np.abs(after - Q).max()), after
        if change <= slack(TOLERANCE * 1e-3, Q, y):
            break
    return Q
