"""Base class of learners that replay from a history of transitions.

The last ``window`` transitions are kept. Each iteration is a replay with probability v, else a step of the MDP, whose
transition is learned from and stored. This is as in Algorithm 1, so v has the same meaning for all learners. Batches and
episodes are processed one replay per iteration.

**Why most of them converge to Q***. Let m_j be the mean number of replays of a transition while it is j steps old. For
rules that use age alone, it does not depend on the transition's outcome. So each transition is replayed
M = Σ_j m_j times on average, and each outcome has a share q(s',r|s,a) of the updates of its pair (s,a), fresh or
replayed. The mean of the target at (s,a) is then Σ q(s',r|s,a)·(r + γ·max_b Q(s',b)), as in
Q-learning, whose limit is Q*. Replay changes the speed of learning, not its limit. The argument does not apply to rules
that use TD errors or later events; these are biased in general.

Ref: Lin (1992), Self-improving reactive agents based on reinforcement learning, planning and teaching.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.sparse.csgraph import connected_components

from .. import _checks
from .._checks import Floats
from .._config import dial
from ..kernels import history
from ..learners import Learner, replay_chance
from ..mdp import TabularMDP, reached
from ..schedules import Exploration, StepSize
from ..theory.limits import limit_of
from ..theory.solver import optimal

MODELS = {"last": "dyna", "counts": "dyna counted"}  # of DynaQ, with their rules
TIES = ("first", "random")


@dataclass(frozen=True)
class HistoryLearner(Learner):
    """The base class of learners that replay from a history; a subclass defines its rule and how much is kept."""

    SETTLES: ClassVar[bool | None] = False
    #: The rule of :mod:`safereplay.kernels.history` that it replays by.
    RULE: ClassVar[str] = ""
    #: Fields that are whole numbers of at least 1.
    COUNTS: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        replay_chance(getattr(self, "v", 0.0))
        window = getattr(self, "window", 1)
        if isinstance(window, float) and window.is_integer():  # a sweep may pass all numbers as floats
            window = int(window)
            object.__setattr__(self, "window", window)
        _checks.whole("window", window, 1, bits=24)
        for name in self.COUNTS:
            _checks.whole(name, getattr(self, name), 1, bits=32)
        super().__post_init__()

    def recipe(self, exploration: Exploration, step_size: StepSize) -> history.Recipe:
        """The recipe that the compiled loop is built from."""
        schedules = step_size.bound(), exploration.bound(), exploration.SOFTMAX
        return history.Recipe(*schedules, self.RULE, int(getattr(self, "window", 1)))

    def describe(self) -> str:
        """One short line for tables and legends."""
        window = getattr(self, "window", None)
        return super().describe().replace(")", ")" if window is None else f", window={window:g})")


@dataclass(frozen=True)
class WindowReplay(HistoryLearner):
    """Uniform replay from the last ``window`` transitions: the experience replay of Lin (1992).

        with probability v:    (s, a, r, s') uniformly from the last N transitions;    Q(s,a) ← (1−α)·Q(s,a) + α·y
        y = r + γ·max_b Q(s',b)

    **Limit.** Q*, for every window N and every v < 1. A transition stays in the window for N steps. In each of them it is
    replayed v/(1−v)·1/N times on average, for any outcome: v/(1−v) times in all. So each outcome has a share q(s',r|s,a) of the
    updates of its pair, and the mean target is Q-learning's (see :mod:`safereplay.rivals.replaying`). Only the speed
    changes: α falls with the number of updates, and replays are updates.

    **w_t does not converge.** An outcome's share of N transitions keeps varying by about √(p·(1−p)/N). Theorem 1 does
    not cover it; the argument above, on averages, does. Only for N → ∞ does w_t converge, to d(s,a)·q(s',r|s,a), if d does.

    **When it fails.** Liu & Zou: a window that is too small replays what was just learned, one that is too large replays
    transitions of old policies, and both learn more slowly. It is risk-neutral: it learns Q-learning's policy.
    Measured on the cliff (20 seeds, 10⁶ steps each, ε = 0.1, α = n^−0.6): windows of 1, 100 and 10,000 at v = 0.5 and one of
    10,000 at v = 0.8 all learn the policy of Q-learning on every seed, which falls with probability 0.119.

    Parameters
    ----------
    v : float in [0, 1); share of iterations that are replays
    window : int; transitions kept

    Ref: Lin (1992), Self-improving reactive agents based on reinforcement learning, planning and teaching.
    Ref: Liu & Zou (2017), The effects of memory replay in reinforcement learning.

    >>> import safereplay as sr
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> sr.learn(mdp, sr.WindowReplay(v=0.5, window=100), episodes=2_000, seeds=1).Q[0].max(1).round(3)
    array([2., 4., 8., 0.])
    """

    LABEL: ClassVar[str] = "uniform"
    RULE: ClassVar[str] = "uniform"
    DIALS: ClassVar[tuple[str, ...]] = ("v",)
    DIAL: ClassVar[str] = "window"
    SETTINGS: ClassVar[tuple[float, ...]] = (1, 10, 100, 1_000, 10_000, 100_000)
    WHY: ClassVar[str] = "an outcome's share of a window of N transitions keeps varying by about 1/√N"
    v: float = dial(0.5, "[0, 1)", "replay", "share of updates that are replays", (0.0, 0.99, 0.01))
    window: int = dial(10_000, "(-inf, inf)", "window", "how many transitions are kept", (100, 20_000, 100))


@dataclass(frozen=True)
class CombinedReplay(HistoryLearner):
    """Combined replay: each batch of replays includes the newest transition (Zhang & Sutton 2017).

        a batch of n replays:    the newest transition, then n − 1 drawn uniformly from the last N

    The source corrects a drawback of large windows: a new transition may wait long for its first replay. The batch size does
    not change. Here a batch is spread over n replays. Algorithm 1's own step already learns from the newest transition once;
    combined replay does so again. n = 1 replays only the newest, n → ∞ is uniform replay.

    **Limit.** Q*: whether a transition is replayed as the newest depends on when it happened, not on its outcome; later
    it is drawn like all others (see :mod:`safereplay.rivals.replaying`).

    **w_t does not converge**: a share 1/n of it lies on the newest transition, which changes with each step.

    **When it fails.** With small n, the same outcome is learned from twice in a row: this moves Q as far as a step size of
    1 − (1−α)² would, and Q varies more around its mean. It is risk-neutral.
    Measured on the cliff (20 seeds, 10⁶ steps each, ε = 0.1, α = n^−0.6): batches of 1 and 8 at v = 0.5 learn the policy of
    Q-learning on every seed, which falls with probability 0.119.

    Parameters
    ----------
    v, window : as in :class:`WindowReplay`
    batch : int; replays per batch, n

    Ref: Zhang & Sutton (2017), A deeper look at experience replay.

    >>> import safereplay as sr
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> sr.learn(mdp, sr.CombinedReplay(v=0.5, batch=4), episodes=2_000, seeds=1).Q[0].max(1).round(3)
    array([2., 4., 8., 0.])
    """

    LABEL: ClassVar[str] = "combined"
    RULE: ClassVar[str] = "combined"
    COUNTS: ClassVar[tuple[str, ...]] = ("batch",)
    DIALS: ClassVar[tuple[str, ...]] = ("v", "batch")
    DIAL: ClassVar[str] = "batch"
    SETTINGS: ClassVar[tuple[float, ...]] = (64, 32, 16, 8, 4, 2, 1)
    WHY: ClassVar[str] = "a share 1/batch of the replays lies on the newest transition, which changes with each step"
    v: float = dial(0.5, "[0, 1)", "replay", "share of updates that are replays", (0.0, 0.99, 0.01))
    batch: int = dial(8, "(-inf, inf)", "batch", "replays for each newest transition", (1, 64, 1))
    window: int = dial(10_000, "(-inf, inf)", "window", "how many transitions are kept", (100, 20_000, 100))


@dataclass(frozen=True)
class RecentReplay(HistoryLearner):
    """Emphasising recent experience: later updates of a cycle replay more recent transitions (Wang & Ross 2019).

        the k-th of K replays:    a transition uniformly from the c_k most recent,    c_k = max(N·η^(k·1000/K), c_min)

    η = 1 is uniform replay from the window N; a smaller η favours recent transitions. The order matters as well: old
    transitions come first in a cycle, so that they do not overwrite the updates of the recent ones.

    **Online.** The source makes its K updates after an episode of K steps. Here a replay happens with probability v at any
    time, so the cycle is independent of episodes: k = 1, ..., K over the replays, then again from 1, for a given K (``cycle``).
    With the source's cycle, k would depend on the time since the last episode ended. Outcomes that end an episode would
    then be replayed at another age than others of the same pair: a bias for or against ends, which is not intended.

    **Limit.** Q*: the number of replays at each age depends on k and c_k alone, not on the outcome (see
    :mod:`safereplay.rivals.replaying`). While fewer than c_k transitions are stored, all of them are drawn from.

    **w_t does not converge**: it cycles with k, and changes with each new transition.

    **When it fails.** If rare outcomes matter: a small c_k forgets a rare outcome soon after it happened, and learns from it
    many times just before. The mean stays right, but Q varies more around it. It is risk-neutral.
    Measured on the cliff (20 seeds, 10⁶ steps each, ε = 0.1, α = n^−0.6): η = 0.996 at v = 0.5 and η = 0.98 at v = 0.8 learn the
    policy of Q-learning on every seed, which falls with probability 0.119.

    Parameters
    ----------
    v, window : as in :class:`WindowReplay`
    eta : float in (0, 1]; 1 is uniform
    least : int; c_min
    cycle : int; K

    Ref: Wang & Ross (2019), Boosting soft actor-critic: emphasizing recent experience without forgetting the past.

    >>> import safereplay as sr
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> learner = sr.RecentReplay(v=0.5, eta=0.99, least=10, window=1_000)
    >>> sr.learn(mdp, learner, episodes=2_000, seeds=1).Q[0].max(1).round(3)
    array([2., 4., 8., 0.])
    """

    LABEL: ClassVar[str] = "recent"
    RULE: ClassVar[str] = "recent"
    COUNTS: ClassVar[tuple[str, ...]] = ("least", "cycle")
    DIALS: ClassVar[tuple[str, ...]] = ("v", "eta", "least", "cycle")
    DIAL: ClassVar[str] = "eta"
    SETTINGS: ClassVar[tuple[float, ...]] = (1.0, 0.9998, 0.9995, 0.999, 0.998, 0.996, 0.99, 0.98)
    WHY: ClassVar[str] = "w_t cycles with k, and an outcome's share of c_k transitions keeps varying by about 1/√c_k"
    v: float = dial(0.5, "[0, 1)", "replay", "share of updates that are replays", (0.0, 0.99, 0.01))
    eta: float = dial(
        0.996, "(0, 1]", "recency", "smaller values prefer newer transitions; 1 is uniform", (0.98, 1.0, 0.0005)
    )
    least: int = 50
    cycle: int = 1_000
    window: int = dial(10_000, "(-inf, inf)", "window", "how many transitions are kept", (100, 20_000, 100))


@limit_of.register
def _(learner: WindowReplay | CombinedReplay | RecentReplay, mdp: TabularMDP) -> Floats:
    return optimal(mdp, mdp.p)


@dataclass(frozen=True)
class BackwardReplay(HistoryLearner):
    """Episodic backward update: replay of a whole episode from its end to its start (Lee, Choi & Chung 2019).

    With the episode's transitions (s_k, a_k, r_k, s_{k+1}), k = 1, ..., T, and a diffusion factor β,

        y_T = r_T + γ·max_b Q(s_{T+1}, b)          (r_T alone where the episode ended)
        Q̃(s_{k+1}, a_{k+1}) = β·y_{k+1} + (1−β)·Q(s_{k+1}, a_{k+1}),    Q̃ = Q for the other actions
        y_k = r_k + γ·max_b Q̃(s_{k+1}, b),    k = T−1, ..., 1

    and Q(s_k,a_k) moves towards y_k. β = 1 carries a reward back through the whole episode at once; β = 0 is Q-learning's
    update in backward order. The source uses a target network for Q; a table needs none, so Q is the current
    one. An episode is drawn uniformly from those that lie fully in the window, and processed one replay at a time. The target
    of the last step of a truncated episode still includes γ·max_b Q.

    **Limit.** Where each pair has one outcome, Q*, for every β: y_T is off by at most γ·‖Q − Q*‖, and with y_{k+1} and Q both off
    by at most ‖Q − Q*‖ so is their mixture, hence y_k by at most γ·‖Q − Q*‖: a γ-contraction towards Q*. With β = 0 the limit
    is Q* in stochastic worlds as well, as the window grows. (A small window holds more episodes when they are short, so the outcomes
    of a pair before short and long episodes are drawn with different probabilities. ``sr.exact`` gives the limit of a
    long window for every window.) With β > 0 in a stochastic world there is **no such limit** in general: y_{k+1} is a single
    sample. The mean of a maximum over it is at least the maximum of its mean: a low sample of a_{k+1} is replaced by the next
    best action, a high one is not. So Q is too high where chance decides whether y_{k+1} or another action is better, by an
    amount that depends on the exploration. Where chance does not decide that, or there is no other action, the samples
    average out.

    **w_t does not converge**: after (s_k,a_k) the transition before it is replayed with certainty.

    **When it fails.** In stochastic worlds with β near 1, by the bias above: it underestimates danger, since the loss after
    a bad outcome is replaced by the next best action's value. Measured on the cliff (20 seeds, 10⁶ steps each, ε = 0.1, α =
    n^−0.6, v = 0.5): the value of the start, right for β = 0 (−0.35), is 0.3 too high for β = 0.5 and 1.1 too high for β =
    1. The greedy policy is still that of Q-learning on every seed: it falls with probability 0.119.

    Parameters
    ----------
    v, window : as in :class:`WindowReplay`
    beta : float in [0, 1]; diffusion factor

    Ref: Lee, Choi & Chung (2019), Sample-efficient deep reinforcement learning via episodic backward update.

    >>> import safereplay as sr
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> sr.learn(mdp, sr.BackwardReplay(v=0.5, beta=1.0), episodes=2_000, seeds=1).Q[0].max(1).round(3)
    array([2., 4., 8., 0.])
    """

    LABEL: ClassVar[str] = "backward"
    RULE: ClassVar[str] = "backward"
    DIALS: ClassVar[tuple[str, ...]] = ("v", "beta")
    DIAL: ClassVar[str] = "beta"
    SETTINGS: ClassVar[tuple[float, ...]] = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
    WHY: ClassVar[str] = "the next replay is the transition before this one, so that w_t jumps from one to the other"
    v: float = dial(0.5, "[0, 1)", "replay", "share of updates that are replays", (0.0, 0.99, 0.01))
    beta: float = dial(0.5, "[0, 1]", "diffusion", "how far one episode carries rewards back", (0.0, 1.0, 0.01))
    window: int = dial(10_000, "(-inf, inf)", "window", "how many transitions are kept", (100, 20_000, 100))


@limit_of.register
def _(learner: BackwardReplay, mdp: TabularMDP) -> Floats:
    certain = learner.beta == 0.0 or learner.v == 0.0 or int(np.diff(mdp.row).max()) <= 1
    hint = "in a random world its target is a maximum over what happened once, which has no limit of its own"
    _checks.require(certain, "beta", "be 0 where outcomes are random", learner.beta, hint)
    return optimal(mdp, mdp.p)


@dataclass(frozen=True)
class DynaQ(HistoryLearner):
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

    Parameters
    ----------
    planning : int; planning steps after each step
    model : {"last", "counts"}
    ties : {"first", "random"}; the greedy action among equals; "random" in the textbook

    Ref: Sutton (1990), Integrated architectures for learning, planning, and reacting based on approximating dynamic programming.
    Ref: van Seijen & Sutton (2015), A deeper look at planning as learning from replay.
    Ref: Sutton & Barto (2018), Reinforcement learning: an introduction, 2nd edition, Section 8.2.

    >>> import safereplay as sr
    >>> mdp = sr.grids.from_map("S..G", step=0.0, goal=8.0, gamma=0.5)
    >>> sr.learn(mdp, sr.DynaQ(10), episodes=200, seeds=1).Q[0].max(1).round(3)
    array([2., 4., 8., 0.])
    """

    LABEL: ClassVar[str] = "Dyna-Q"
    DIALS: ClassVar[tuple[str, ...]] = ("planning",)
    DIAL: ClassVar[str] = "planning"
    SETTINGS: ClassVar[tuple[float, ...]] = (0, 1, 2, 5, 10, 20, 50)
    SETTLES: ClassVar[bool | None] = None
    WHY: ClassVar[str] = "with counts w_t goes to q over the pairs tried; with the last outcome it jumps each visit"
    planning: int = dial(5, "(-inf, inf)", "planning", "replays after each step", (0, 50, 1))
    model: str = "last"
    ties: str = "first"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.whole("planning", self.planning, 0, bits=32)
        _checks.choice("model", self.model, MODELS)
        _checks.choice("ties", self.ties, TIES)

    def recipe(self, exploration: Exploration, step_size: StepSize) -> history.Recipe:
        """The recipe that the compiled loop is built from."""
        rule, shuffles = MODELS[self.model], self.ties == "random"
        return super().recipe(exploration, step_size)._replace(rule=rule, shuffles=shuffles)

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
    >>> rows = [(0, 0, 0.5, 1, 1.0), (0, 0, 0.5, 0, -1.0, True), (1, 0, 1.0, 0, 0.0, True)]
    >>> fork = sr.TabularMDP.from_outcomes(2, 1, rows, start=[1.0, 0.0])
    >>> last_outcome_limit(fork, sr.DynaQ(1000), np.ones((2, 1)))[0].round(3)      # +1 is remembered for two steps, −1 for one
    array([0.333])
    """
    shape = (mdp.n_states, mdp.n_actions)
    pi = _checks.finite_array("behaviour", behaviour, shape)
    even = bool((pi >= 0).all() and np.allclose(pi.sum(1), 1.0, atol=1e-9))
    _checks.require(even, "behaviour", "give each state probabilities that sum to 1", pi.sum(1).tolist())
    onward = np.zeros((mdp.n_pairs, mdp.n_states))  # next states of each pair; an end leads to a start
    np.add.at(onward, (mdp.pair, mdp.s_next), np.where(mdp.terminal, 0.0, mdp.p))
    ends = np.bincount(mdp.pair, weights=np.where(mdp.terminal, mdp.p, 0.0), minlength=mdp.n_pairs)
    onward += ends[:, None] * mdp.start
    moves = np.einsum("sa,sat->st", pi, onward.reshape(*shape, -1)) > 0
    seen = reached(mdp.n_states, np.flatnonzero(mdp.start > 0), *np.nonzero(moves))  # states that are visited
    classes = connected_components(moves[np.ix_(seen, seen)], connection="strong")[0]
    hint = "it must return to every state that it visits"
    _checks.require(classes == 1, "classes of states under the behaviour", "number 1", classes, hint)
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
