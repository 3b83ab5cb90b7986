"""Hindsight experience replay (Andrychowicz et al. 2017): reached states are replayed as if they were the goal.

In a goal-conditioned model (:mod:`safereplay.goals`) an episode under goal g gives transitions (s_t, a_t, s_{t+1}),
t < T. Each is learned at once, for g, as in Q-learning. After the episode each is learned again for goals g' that the
episode reached,

    Q((s_t,g'),a_t) ← (1−α)·Q((s_t,g'),a_t) + α·(r' + γ·max_b Q((s_{t+1},g'),b)),
    r' = 0 and the end if s_{t+1} = g', else r' = −1;

    future   k times, with g' the cell of a time drawn from t+1, ..., T
    final    once, with g' the cell of time T
    none     not at all: plain Q-learning, bit for bit

The source stores these transitions in a buffer and draws batches for a deep network; here each is learned once.

**Limit.** Where moves are certain, the relabelled transition is what would have happened under g': all updates agree on
the target and the limit is Q*, −(1−γ^{d−1})/(1−γ) at distance d. Where they are not, the choice of g' depends on what
happened later. The relabelled transitions of ((s,g'),a) come from q(s'| s, a, g' is reached later), not from q(s'|s,a):
the limit is that of a world where moves succeed more often, by how much depends on the policy. In two examples it does
not:

*A slippery step.* From cell 0 a move reaches cell 1 with probability p, else it stays. An episode of T steps
gives T fresh transitions, of which one succeeds. Draws that stay in cell 0 begin at their goal and are skipped;
transition t draws cell 1 with probability 1/(T−t), so k·Σ 1/(T−t) = k·H_T relabelled ones are learned, of which k
succeed. T is geometric, E T = 1/p and E H_T = −ln p/(1−p), hence

    p̃ = (1 + k) / (1/p + k·(−ln p)/(1−p)) > p,      Q = −(1−p̃) / (1 − γ·(1−p̃)).

*A leap.* It reaches the goal with probability p, else falls at reward −c, which ends the episode. A fall reaches no
goal, so it is never relabelled; a success is, k times. The share of falls among the updates and the limit are

    p̃_fall = (1−p) / (1 + k·p),      Q = −c·p̃_fall      instead of Q* = −c·(1−p).

**When it fails.** It underestimates danger, the more the larger k is: no relabelled transition is ever the fall that
ended its episode. On :func:`safereplay.goals.goal_cliff`, after 10⁶ steps and over 20 seeds, P(unsafe) from the start
to the far end is 0.033 for Q-learning, as for Q*, and 0.094 with k = 4, 0.120 with k = 8: the policy changes from the
way round to the edge. (On the bias in deep learning: Lanka & Wu (2018), ARCHER.) It has little effect if exploration is
good for another reason: in a table that starts from Q = 0, above every return, actions that were tried look worse than
untried ones. With :func:`safereplay.goals.bit_flip` of 7 bits and 256,000 steps hindsight raises the share of goals
found from 0.20 to 0.98 when Q starts from the value of never arriving, and leaves it at 0.55 when Q starts from 0.

Ref: Andrychowicz et al. (2017), Hindsight Experience Replay, Algorithm 1.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .. import _checks
from .._checks import Floats
from ..goals import GoalMDP
from ..kernels import hindsight
from ..learners import Learner
from ..mdp import TabularMDP
from ..schedules import Exploration, StepSize
from ..theory.limits import limit_of
from ..theory.solver import optimal

STRATEGIES = {"none": hindsight.NONE, "future": hindsight.FUTURE, "final": hindsight.FINAL}


@dataclass(frozen=True)
class HindsightQLearning(Learner):
    """Q-learning that learns each transition again for ``k`` goals that its episode reached.

    Parameters
    ----------
    strategy : {"future", "final", "none"}; "final" has one goal for any k ≥ 1
    k : int from 0 to 1000; goals per transition
    window : int; transitions kept of an episode: of a longer one only the latest are learned again

    >>> import safereplay as sr
    >>> from safereplay.goals import goal_room
    >>> learners = sr.QLearning(), HindsightQLearning("future", k=4)
    >>> runs = [sr.learn(goal_room(), x, steps=30_000, seeds=5, max_steps=50) for x in learners]
    >>> [x.verdicts.count("safe") for x in runs]      # seeds that know the way from one corner to the other
    [1, 5]

    Ref: Andrychowicz et al. (2017), Algorithm 1.
    """

    LABEL: ClassVar[str] = "hindsight"
    GIVEN: ClassVar[str] = "the rewards under other goals"
    DIALS: ClassVar[tuple[str, ...]] = ("k",)
    DIAL: ClassVar[str] = "k"
    SETTINGS: ClassVar[tuple[float, ...]] = (0, 1, 2, 4, 8, 16)
    SETTLES: ClassVar[bool | None] = False
    WHY: ClassVar[str] = "there is no w_t: an episode is replayed once, for goals that depend on where the policy led"
    strategy: str = "future"
    k: float = 4
    window: int = 1_000

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.choice("strategy", self.strategy, STRATEGIES)
        k = _checks.between("k", self.k, "[0, 1000]")
        _checks.require(k.is_integer(), "k", "be a whole number", self.k)
        _checks.whole("window", self.window, 1, bits=31)

    @property
    def relabels(self) -> bool:
        """Whether transitions are relabelled."""
        return self.strategy != "none" and self.k > 0

    def training_model(self, mdp: TabularMDP) -> TabularMDP:
        """The model itself, which must have goals."""
        return checked(mdp)

    def recipe(self, exploration: Exploration, step_size: StepSize) -> hindsight.Recipe:
        """The recipe that the compiled loop is built from."""
        strategy = STRATEGIES[self.strategy] if self.relabels else hindsight.NONE
        return hindsight.Recipe(step_size.bound(), exploration.bound(), exploration.SOFTMAX, strategy, self.window)

    def describe(self) -> str:
        """One short line for tables and legends."""
        return f"{self.LABEL}({self.strategy}{f', k={self.k:g}' if self.strategy == 'future' else ''})"


def checked(mdp: TabularMDP) -> GoalMDP:
    """The model, checked to have goals."""
    if not isinstance(mdp, GoalMDP) or mdp.goals.size == 0:
        name = mdp.name if isinstance(mdp, TabularMDP) else mdp
        _checks.fail("mdp", "have goals to learn in hindsight", name, "make one with safereplay.goals.goal_mdp(mdp)")
    return mdp


@limit_of.register
def _(learner: HindsightQLearning, mdp: TabularMDP) -> Floats:
    """Q* where moves are certain; otherwise known only if nothing is relabelled."""
    model = checked(mdp)
    sure = int(np.diff(model.row).max()) <= 1
    hint = "relabelled transitions are chosen by what came later, so their limit depends on the policy"
    _checks.require(sure or not learner.relabels, "moves of mdp", "be certain for a limit that is known", "slips", hint)
    return optimal(model, model.p)
