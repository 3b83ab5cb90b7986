"""Grid worlds by name: the paper's two, and some where caution pays.

Each is a map (see :mod:`safereplay.maps`) with its rewards. The paper does not specify γ, the layouts, whether a fall
ends the episode, or where a slip goes. Each of these is an option here; the default is the reading that fits the
paper's results.

Ref: Szlak & Shamir (2021), Section 5, Figure 1, Figure 2.
"""

from collections.abc import Callable, Sequence

import numpy as np

from . import _checks
from .maps import ACTIONS as ACTIONS
from .maps import ARROWS as ARROWS
from .maps import MOVES as MOVES
from .maps import SYMBOLS, VOLATILE_REWARDS
from .maps import from_map as from_map
from .maps import map_file as map_file
from .mdp import Layout, TabularMDP

LOTTERY_REWARDS = ((0.9, 4.0), (0.1, -30.0))

#: Readings of Figure 1: the position of the goal, and the volatile moves.
VOLATILE_LAYOUTS = {
    "row": ".....\n>>>.G\n.....\n.....",
    "row-of-two": ".....\n.>>.G\n.....\n.....",
    "top": ">>>.G\n.....\n.....\n.....",
    "low": ".....\n.....\n>>>.G\n.....",
    "band": ">>...\n>>>.G\n>>...\n.....",
    "full": ".....\n>>>>G\n.....\n.....",
}

#: Readings of Figure 2: the positions of start, goal and cliff.
CLIFF_LAYOUTS = {
    "between": "......\n......\n......\nSXXXXG",
    "gap": "......\n......\n......\nS.XX.G",
    "below": "......\n......\n......\nS....G\n#XXXX#",
    "tall": "....\n....\n....\n....\n....\nSXXG",
    "raised": "......\n......\nS....G\nXXXXXX",
    "long": "......\n......\n.....G\nSXXXXX",
}


def volatile(
    gamma: float = 0.9,
    *,
    layout: str = "row",
    goal: float = 150.0,
    step: float = -1.0,
    rewards: Sequence[tuple[float, float]] = VOLATILE_REWARDS,
    slip: float = 0.0,
    slip_to: str = "any",
) -> TabularMDP:
    """The paper's first grid, 4×5: the short way to the goal pays +100 or −100 per step.

    ``layout`` is one of VOLATILE_LAYOUTS, or a map. The paper's moves are certain; ``slip`` and ``slip_to`` are those of
    :func:`cliff`.

    >>> import safereplay as sr
    >>> sr.grids.volatile()
    TabularMDP(4×5 grid, 20 states × 4 actions, 79 outcomes, gamma=0.9, rewards -100 to 150, 1 terminal state, \
3 unsafe outcomes)

    Ref: Szlak & Shamir (2021), Section 5, Figure 1.
    """
    text = _named_map(layout, VOLATILE_LAYOUTS)
    return from_map(
        text, gamma=gamma, goal=goal, step=step, volatile=rewards, slip=slip, slip_to=slip_to, name="volatile"
    )


def cliff(
    gamma: float = 0.95,
    *,
    layout: str = "between",
    slip: float = 0.1,
    slip_to: str = "any",
    goal: float = 10.0,
    step: float = -1.0,
    hazard: float = -12.0,
    fall_ends: bool = True,
    goal_slips: bool = False,
) -> TabularMDP:
    """The paper's second grid, 4×6: the short way to the goal runs along the edge of a cliff.

    ``layout`` is one of CLIFF_LAYOUTS, or a map. ``slip_to`` is where a failed action goes: ``"any"`` of the four
    directions (the chosen one included), one of the three ``"others"`` or of the two ``"sides"``, or always ``"up"``,
    ``"right"``, ``"down"`` or ``"left"``, like a wind. ``fall_ends``: a fall ends the episode; otherwise it returns the
    agent to the start. ``goal_slips``: whether a move into the goal can fail too.

    >>> import safereplay as sr
    >>> sr.grids.cliff().outcomes(12, 1).p.round(3)      # 'right' from the cell above the start
    array([0.025, 0.025, 0.925, 0.025])

    Ref: Szlak & Shamir (2021), Section 5, Figure 2.
    """
    return from_map(
        _named_map(layout, CLIFF_LAYOUTS),
        gamma=gamma,
        goal=goal,
        step=step,
        hazard=hazard,
        slip=slip,
        slip_to=slip_to,
        fall_ends=fall_ends,
        goal_slips=goal_slips,
        name="cliff",
    )


def bridge(
    gamma: float = 0.99,
    *,
    slip: float = 0.05,
    slip_to: str = "sides",
    goal: float = 20.0,
    step: float = -1.0,
    hazard: float = -15.0,
    fall_ends: bool = True,
) -> TabularMDP:
    """A narrow bridge, 5×8: the short way over a chasm, where a slip to either side is a fall.

    The way round is six steps longer and rarely leads to a fall. Plain Q-learning crosses the bridge; with replay of low
    rewards the agent goes round.

    >>> import safereplay as sr
    >>> mdp = sr.grids.bridge()
    >>> limits = sr.exact(mdp, sr.QLearning()), sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5)
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.178, 0.004]
    """
    return from_map(
        "........\n........\n..XXXX..\nS......G\n..XXXX..",
        gamma=gamma,
        goal=goal,
        step=step,
        hazard=hazard,
        slip=slip,
        slip_to=slip_to,
        fall_ends=fall_ends,
        name="bridge",
    )


def lottery(
    gamma: float = 0.95,
    *,
    goal: float = 20.0,
    step: float = -1.0,
    rewards: Sequence[tuple[float, float]] = LOTTERY_REWARDS,
    slip: float = 0.0,
    slip_to: str = "any",
) -> TabularMDP:
    """A tunnel of lotteries, 5×8: each of its four moves usually wins a little, and loses much one time in ten.

    A ticket has a higher mean than a step, so plain Q-learning buys all four and loses at least once in 34 % of its
    episodes. The ways round are four steps longer and certain. These are the paper's volatile moves, with better odds.

    >>> import safereplay as sr
    >>> mdp = sr.grids.lottery()
    >>> limits = sr.exact(mdp, sr.QLearning()), sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5)
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.344, 0.0]
    """
    return from_map(
        "........\n.######.\nS.>>>>.G\n.######.\n........",
        gamma=gamma,
        goal=goal,
        step=step,
        volatile=rewards,
        slip=slip,
        slip_to=slip_to,
        name="lottery",
    )


def ledge(
    gamma: float = 0.99,
    *,
    slip: float = 0.05,
    slip_to: str = "down",
    goal: float = 10.0,
    step: float = -1.0,
    hazard: float = -4.0,
    fall_ends: bool = True,
) -> TabularMDP:
    """A windy ledge, 6×8: gusts blow towards the abyss, so cells farther from the edge are safer.

    Only at the start and at the goal does a wall prevent a fall. Walking one row up costs two steps, and a fall then
    takes one more gust. Plain Q-learning walks along the edge; a little replay of low rewards moves the path one row
    up, and more of it returns there sooner after a gust.

    >>> import safereplay as sr
    >>> mdp = sr.grids.ledge()
    >>> limits = [sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v) for v in (0.0, 0.3, 0.9)]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.226, 0.033, 0.015]
    """
    return from_map(
        "........\n........\n........\n........\nS......G\n#XXXXXX#",
        gamma=gamma,
        goal=goal,
        step=step,
        hazard=hazard,
        slip=slip,
        slip_to=slip_to,
        fall_ends=fall_ends,
        name="ledge",
    )


def frozen_lake(
    gamma: float = 0.95,
    *,
    slip: float = 2 / 3,
    slip_to: str = "sides",
    goal: float = 1.0,
    step: float = 0.0,
    hazard: float = 0.0,
    goal_slips: bool = True,
) -> TabularMDP:
    """Gymnasium's FrozenLake-v1, 4×4: two moves in three slip to a side, and only the goal has a reward.

    A hole ends the episode but has the reward of a step, so no reward shows that it is bad. The only rewards that vary
    are those beside the goal, and every path to the goal passes there. So replay by the variance of rewards scales
    every Q(s,a) by the same factor, and no policy changes.

    >>> import safereplay as sr
    >>> sr.grids.frozen_lake().outcomes(14, 1).r.round(3)       # 'right', beside the goal
    array([0., 0., 1.])
    """
    return from_map(
        "S...\n.X.X\n...X\nX..G",
        gamma=gamma,
        goal=goal,
        step=step,
        hazard=hazard,
        slip=slip,
        slip_to=slip_to,
        goal_slips=goal_slips,
        start="S",
        name="frozen_lake",
    )


def delayed(mdp: TabularMDP, meanwhile: float = 0.0) -> TabularMDP:
    """The same model, but with every unsafe end one step later.

    A step that would end unsafely pays ``meanwhile`` and leads to a new *falling* state. The next step, with any action,
    has the reward of the fall and ends the episode as unsafe. There is one such state for each (s', r) of an unsafe end,
    after the states of ``mdp``. No policy's risk changes, nor, at ``meanwhile`` = 0, its undiscounted return. With the
    usual step cost as ``meanwhile``, rewards do not show whether a step slipped, so a method that uses rewards alone
    cannot detect the danger.

    >>> import safereplay as sr
    >>> late = sr.grids.delayed(sr.grids.cliff(slip=0.0))
    >>> late.n_states, late.outcomes(18, 1).r, late.outcomes(late.outcomes(18, 1).s_next[0], 0).r
    (28, array([0.]), array([-12.]))
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    S, A = mdp.n_states, mdp.n_actions
    fatal = mdp.terminal & mdp.unsafe
    falls, which = np.unique(np.column_stack([mdp.s_next, mdp.r])[fatal], axis=0, return_inverse=True)
    rows = np.column_stack([mdp.pair // A, mdp.pair % A, mdp.p, mdp.s_next, mdp.r, mdp.terminal, mdp.unsafe])
    rows[fatal, 3:] = np.column_stack(
        [S + which.ravel(), np.tile([_checks.real("meanwhile", meanwhile), 0.0, 0.0], (which.size, 1))]
    )
    k, a = (index.ravel() for index in np.mgrid[: len(falls), :A])
    landings = np.column_stack([S + k, a, np.ones(k.size), falls[k], np.ones((k.size, 2))])
    layout = mdp.layout
    if layout is not None:  # a falling agent is drawn in the cell where it will land
        cells = layout.cells + tuple(layout.cells[int(s)] for s in falls[:, 0])
        layout = Layout(layout.text, cells, layout.origin)
    start = np.append(mdp.start, np.zeros(len(falls)))
    rows = np.concatenate([rows, landings])
    name = f"delayed {mdp.name}"
    return TabularMDP.from_outcomes(S + len(falls), A, rows, mdp.gamma, start, layout=layout, name=name)


#: The paper's grids, and all named grids.
PAPER: dict[str, Callable[..., TabularMDP]] = {"volatile": volatile, "cliff": cliff}
NAMED: dict[str, Callable[..., TabularMDP]] = {
    **PAPER,
    "bridge": bridge,
    "lottery": lottery,
    "ledge": ledge,
    "frozen_lake": frozen_lake,
}


def _named_map(layout: str, known: dict[str, str]) -> str:
    _checks.require(isinstance(layout, str), "layout", "be a name or a map", layout)
    if layout not in known and set(layout) <= {*SYMBOLS, "\n"}:
        return layout
    return known[_checks.choice("layout", layout, known)]
