"""Robust Q-learning: with probability δ an adversary draws the outcome.

A robust MDP does not trust its probabilities. For each pair it has a set 𝒫(s,a) of distributions, and values an action
by the worst of them, for each pair and step independently (a *rectangular* set):

    Q(s,a)  =  min_{p ∈ 𝒫(s,a)}  Σ p·(r + γ·max_b Q(s',b)).

Here the set is contamination, q the true probabilities and f any distribution on the outcomes of the pair:

    𝒫(s,a)  =  { (1−δ)·q + δ·f },    which makes    Q  =  (1−δ)·E[y] + δ·min y,    y = r + γ·max_b Q(s',b),

since the worst f puts all its mass on the worst outcome. The learner moves Q(s,a) towards

    (1−δ)·(r + γ·max_b Q(s',b)) + δ·min over the outcomes seen from (s,a) of (r' + γ·max_b Q(s'',b)).

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

Ref: Iyengar (2005), Robust dynamic programming; Nilim & El Ghaoui (2005), Robust control of Markov decision processes
with uncertain transition matrices; Tamar, Xu & Mannor (2013), Scaling up robust MDPs by reinforcement learning; Wang &
Zou (2021), Online robust reinforcement learning with model uncertainty.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .. import _checks
from .._config import dial
from .._types import Floats
from ..learners import Learner
from ..mdp import TabularMDP
from ..theory.limits import limit_of
from ..theory.solver import iterate, targets


@dataclass(frozen=True)
class Robust(Learner):
    """Robust Q-learning under contamination: with probability δ the outcome is the worst one seen.

        Q(s,a) ← (1−α)·Q(s,a) + α·[(1−δ)·(r + γ·max_b Q(s',b)) + δ·min_{(r',s'') seen} (r' + γ·max_b Q(s'',b))]

    >>> import safereplay as sr
    >>> from safereplay.rivals.robust import Robust
    >>> mdp = sr.grids.cliff()
    >>> [sr.verdict(mdp, sr.exact(mdp, Robust(delta)).argmax(1)) for delta in (0.0, 0.2, 0.6)]
    ['risky', 'safe', 'jumps']
    """

    LABEL: ClassVar[str] = "robust"
    DIALS: ClassVar[tuple[str, ...]] = ("delta",)
    DIAL: ClassVar[str] = "delta"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
    delta: float = dial(0.2, "[0, 1]")

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
