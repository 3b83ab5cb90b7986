"""Dyna-Q: after each step of the MDP, n planning steps from a learned model (Sutton 1990, 1991).

    n times:    s ← a state seen before,  a ← an action tried there,  (r, s') ← Model(s,a)
                Q(s,a) ← (1−α)·Q(s,a) + α·(r + γ·max_b Q(s',b))

Model(s,a) is the last outcome of the pair (``model="last"``: the textbook's, which assumes a deterministic world), or one
drawn in proportion to its count (``model="counts"``). The latter is replay as planning. Van Seijen & Sutton show for a method
of policy evaluation that replay and planning with a learned model find exactly the same values; for Q-learning only the
limit is the same. There are n replays per step, so v = n/(n+1).

**Limit.** With counts, Q*: each pair's outcomes are used in the proportions in which they were seen, which tend to
q(s',r|s,a), so the mean target is Q-learning's. With the last outcome, Q* where each pair has one outcome. In a stochastic
world an outcome is used until the pair is visited again, so outcomes followed by a longer wait count more. With
τ_k the mean number of steps from a visit with outcome k to the next visit, and φ the probability that the pair is drawn,

    p̃(k|s,a)  ∝  q(k|s,a)·(1 + n·φ(s,a)·τ_k(s,a))

are the effective probabilities. τ depends on the exploration. For a given behaviour and a decreasing step size
:func:`last_outcome_limit` computes the limit. **No limit** is determined by the world alone, and with a constant step size
there is none: Q follows the last outcome. The source and the textbook assume a deterministic world.

**w_t converges** with counts, to φ(s,a)·q(k|s,a). With the last outcome it jumps with each visit.

**When it fails.** ``last``, in stochastic worlds. A pair that is rarely visited is used many times between two visits: α must
fall below one over that number before its outcomes average out. Until then Q of a risky pair reflects its last
outcome, and a greedy policy takes the risky way after good outcomes.
Measured on the cliff (20 seeds, 10⁶ steps each, ε = 0.1, α = n^−0.6): with the last outcome the value of the start is 0.25 too
high for n = 5 and 0.38 for n = 50; with counts it is right to 0.01 for n = 50. The greedy policy is that of Q-learning in all
of them, on every seed: it falls with probability 0.119.

Ref: Sutton (1990), Integrated architectures for learning, planning, and reacting based on approximating dynamic programming.
Ref: van Seijen & Sutton (2015), A deeper look at planning as learning from replay.
Ref: Sutton & Barto (2018), Reinforcement learning: an introduction, 2nd edition, Section 8.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse.csgraph import connected_components

from .. import _checks
from .._types import Bools, Floats
from ..mdp import TabularMDP, reached
from ..theory.limits import limit_of
from ..theory.solver import optimal
from .histories import HistoryLearner

MODELS = {"last": "dyna", "counts": "dyna counted"}
TIES = ("first", "random")


@dataclass(frozen=True)
class DynaQ(HistoryLearner):
    """Dyna-Q with ``planning`` steps after each step; ``ties`` between greedy actions go to the first, or any (textbook).

    >>> import safereplay as sr
    >>> from safereplay.rivals.dyna import DynaQ
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> sr.learn(mdp, DynaQ(10), episodes=200, seeds=1).Q[0].max(1).round(3)
    array([2., 4., 8., 0.])
    """

    LABEL: ClassVar[str] = "Dyna-Q"
    DIALS: ClassVar[tuple[str, ...]] = ("planning",)
    DIAL: ClassVar[str] = "planning"
    SETTINGS: ClassVar[tuple[float, ...]] = (0, 1, 2, 5, 10, 20, 50)
    WHY: ClassVar[str] = (
        "with counts w_t goes to q over the pairs tried; with the last outcome it jumps with each visit"
    )
    planning: int = 5
    model: str = "last"
    ties: str = "first"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.whole("planning", self.planning, 0, bits=32)
        _checks.choice("model", self.model, MODELS)
        _checks.choice("ties", self.ties, TIES)

    @property
    def rule(self) -> str:
        """From the last outcomes, or from the counts."""
        return MODELS[self.model]

    def _shuffles(self) -> bool:
        return self.ties == "random"

    def describe(self) -> str:
        """One short line for tables and legends."""
        return super().describe().replace(")", ", counts)") if self.model == "counts" else super().describe()


@limit_of.register
def _(learner: DynaQ, mdp: TabularMDP) -> Floats:
    certain = learner.model == "counts" or learner.planning == 0 or int(np.diff(mdp.row).max()) <= 1
    hint = "with the last outcome the limit depends on how the world is explored: see last_outcome_limit"
    _checks.require(certain, "model", "be 'counts' where outcomes are random", learner.model, hint)
    return optimal(mdp, mdp.p)


def last_outcome_limit(mdp: TabularMDP, learner: DynaQ, behaviour: Any) -> Floats:
    """The limit of planning with last outcomes under a behaviour π(a|s) [S, A], for a decreasing α, [S, A].

    Episodes must terminate: truncation makes τ shorter.

    >>> import numpy as np, safereplay as sr
    >>> from safereplay.rivals.dyna import DynaQ, last_outcome_limit
    >>> rows = [(0, 0, 0.5, 1, 1.0), (0, 0, 0.5, 0, -1.0, True), (1, 0, 1.0, 0, 0.0, True)]
    >>> fork = sr.TabularMDP.from_outcomes(2, 1, rows, start=[1.0, 0.0])
    >>> last_outcome_limit(fork, DynaQ(1000), np.ones((2, 1)))[0].round(3)      # +1 is remembered for two steps, −1 for one
    array([0.333])
    """
    shape = (mdp.n_states, mdp.n_actions)
    pi = _checks.finite_array("behaviour", behaviour, shape)
    even = bool((pi >= 0).all() and np.allclose(pi.sum(1), 1.0, atol=1e-9))
    _checks.require(even, "behaviour", "give each state probabilities that sum to 1", pi.sum(1).tolist())
    onward = np.zeros((mdp.n_pairs, mdp.n_states))  # next states of each pair; an end leads to a start
    np.add.at(onward, (mdp.pair, mdp.s_next), np.where(mdp.terminal, 0.0, mdp.p))
    onward += (
        np.bincount(mdp.pair, weights=np.where(mdp.terminal, mdp.p, 0.0), minlength=mdp.n_pairs)[:, None] * mdp.start
    )
    seen = _seen(mdp, pi, onward)
    tried = (pi > 0) & seen[:, None]
    p = mdp.p.copy()
    for i in np.flatnonzero(tried.ravel()):
        s, a = divmod(int(i), mdp.n_actions)
        k = slice(mdp.row[i], mdp.row[i + 1])
        go = pi.copy()
        go[s, a] = 0.0  # stop when the pair is visited
        chain = np.einsum("sa,sat->st", go, onward.reshape(*shape, -1))[np.ix_(seen, seen)]
        wait = np.zeros(mdp.n_states)
        wait[seen] = np.linalg.solve(np.eye(int(seen.sum())) - chain, go.sum(1)[seen])
        tau = 1.0 + np.where(mdp.terminal[k], mdp.start @ wait, wait[mdp.s_next[k]])
        weight = mdp.p[k] * (1.0 + learner.planning * tau / (seen.sum() * tried[s].sum()))
        p[k] = weight / weight.sum()
    return optimal(mdp, p)


def _seen(mdp: TabularMDP, pi: Floats, onward: Floats) -> Bools:
    """The states that the behaviour visits, [S]; it must return to each of them infinitely often."""
    chain = np.einsum("sa,sat->st", pi, onward.reshape(*pi.shape, -1)) > 0
    seen = reached(mdp.n_states, np.flatnonzero(mdp.start > 0), *np.nonzero(chain))
    classes = connected_components(chain[np.ix_(seen, seen)], connection="strong")[0]
    hint = "it must return to every state that it visits"
    _checks.require(classes == 1, "classes of states under the behaviour", "number 1", classes, hint)
    return np.asarray(seen, np.bool_)
