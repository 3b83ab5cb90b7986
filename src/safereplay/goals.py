"""Goal-conditioned worlds: one model of the moves, and a goal that changes from episode to episode.

A grid gives the moves q(s'|s,a). A *goal-conditioned* model has the pairs (s, g) as its states: the agent's cell and
the goal of the episode. The goal does not change during an episode and does not affect the moves,

    q((s', g) | (s, g), a) = q(s'|s,a),      r = 0 and the episode ends if s' = g,  else r = −1,

the sparse reward of Andrychowicz et al. (2017). Hazards do not depend on the goal: their outcomes keep their reward and
their unsafe flag, and a fall that ends the grid's episode ends this one. Any other end of the grid that is not the
current goal acts as a wall: the agent stays where it is. An episode begins in (s, g) with g uniform over the goals, and
s from the grid's start distribution without g.

:class:`GoalMDP` is such a model: a TabularMDP with S·G states, and the data that relabelling a transition needs. State
g·S + s is the agent in cell s under goal number g. Since moves do not depend on the goal, a transition made under one
goal is valid under any other: hindsight replay uses this (:mod:`safereplay.rivals.hindsight`).

**When it fails.** A table over (s, g) shares nothing between goals: with every cell a goal it has S² states. Here a
move into a goal must slip like any other, or moves would depend on the goal. :meth:`TabularMDP.save` keeps the table
without its goals.

Ref: Andrychowicz et al. (2017), Hindsight Experience Replay, Sections 2.4 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from . import _checks
from ._checks import Floats, Ints
from .grids import MOVES, from_map
from .mdp import Layout, TabularMDP, reached

#: The maps of the named worlds. Every free cell is a goal; cells marked G come first.
ROOM = "S..#...\n...#...\n.......\n...#...\n...#..G"
CLIFF = "......\n......\n......\nSXXXXG"
MOST_BITS = 9


@dataclass(frozen=True, eq=False, repr=False)
class GoalMDP(TabularMDP):
    """A model over (cell, goal): state g·S + s is cell s under goal number g.

    Build one with :func:`goal_mdp`, :func:`goal_map` or a named world.

    >>> world = goal_map("S..", goals=[(0, 2)])
    >>> world.n_cells, world.goals, world.outcomes(1, 1).r      # right from the middle: there
    (3, array([2]), array([0.]))
    """

    goals: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  #: [G] the cell of each goal
    step: float = -1.0  #: reward of a step that reaches no goal
    reward: float = 0.0  #: reward of the step that reaches the goal

    @property
    def n_cells(self) -> int:
        """S, the number of grid cells (states of the base model)."""
        return self.n_states // self.goals.size

    def state(self, cell: int, goal: int) -> int:
        """The state of being in base state ``cell`` under goal number ``goal``.

        >>> goal_map("S..").state(cell=1, goal=2)
        7
        """
        _checks.require(_checks.whole("cell", cell, 0) < self.n_cells, "cell", f"be below {self.n_cells}", cell)
        _checks.require(_checks.whole("goal", goal, 0) < self.goals.size, "goal", f"be below {self.goals.size}", goal)
        return goal * self.n_cells + cell

    def __repr__(self) -> str:
        return super().__repr__().replace("TabularMDP(", f"GoalMDP({self.goals.size} goals, ", 1)


def goal_mdp(
    base: TabularMDP,
    goals: Iterable[Any] | None = None,
    *,
    step: float = -1.0,
    reward: float = 0.0,
    name: str | None = None,
) -> GoalMDP:
    """The goal-conditioned model of a base model's moves.

    A goal that is the only start of the base is never drawn, but still has its states in the table.

    Parameters
    ----------
    base : TabularMDP; the model whose moves are used
    goals : iterable, optional; states of the base, or cells (row, column) of its layout; default: every state that can be
        reached from the start and is not an unsafe end
    step, reward : float; reward of a step, and of the step that reaches the goal
    name : str, optional; name of the model

    >>> import safereplay as sr
    >>> world = goal_mdp(sr.grids.cliff(), goals=[(3, 5), (0, 0)])
    >>> world
    GoalMDP(2 goals, 4×6 grid, 48 states × 4 actions, 563 outcomes, gamma=0.95, rewards -12 to 0, 11 terminal states, \
40 unsafe outcomes)
    """
    _checks.require(isinstance(base, TabularMDP), "base", "be a TabularMDP", base)
    step, reward = _checks.real("step", step), _checks.real("reward", reward)
    unsafe_ends = base.s_next[base.terminal & base.unsafe]
    lost = unsafe_ends[~base.is_terminal[unsafe_ends]]
    _checks.require(lost.size == 0, "unsafe ends of base", "lead to states without outcomes", lost[:1].tolist())
    chosen = _goal_states(base, goals)
    S = base.n_states
    sheets = [_rows(base, int(g), j * S, step, reward) for j, g in enumerate(chosen)]
    starts = np.tile(base.start, (chosen.size, 1))  # uniform over goals that are not the only start; then as the base
    starts[np.arange(chosen.size), chosen] = 0.0
    sums = starts.sum(1, keepdims=True)
    _checks.require(bool((sums > 0).any()), "goals", "leave one that is not the only start", chosen.tolist())
    starts = np.divide(starts, sums, out=np.zeros_like(starts), where=sums > 0)
    start = np.asarray(starts.ravel() / (sums > 0).sum())
    layout = base.layout
    if layout is not None:  # the base's map, repeated for each goal; the drawn path goes to the first goal
        at_goal = chosen == layout.origin
        sheet = int(np.argmin(at_goal))
        origin = sheet * S + layout.origin if not at_goal[sheet] else int(np.argmax(start))
        layout = Layout(layout.text, layout.cells * chosen.size, origin)
    name = name or f"goals of {base.name}"
    made = GoalMDP.from_pieces(S * chosen.size, base.n_actions, sheets, base.gamma, start, layout=layout, name=name)
    return replace(made, goals=chosen, step=step, reward=reward)


def goal_map(
    text: str,
    goals: Iterable[Any] | None = None,
    *,
    gamma: float = 0.95,
    step: float = -1.0,
    reward: float = 0.0,
    hazard: float = -10.0,
    slip: float = 0.0,
    slip_to: str = "any",
    fall_ends: bool = True,
    start: str = "S",
    name: str = "goal map",
) -> GoalMDP:
    """A text map (see :mod:`safereplay.grids`) as a goal-conditioned model; it needs no G.

    Every cell that is neither wall nor hazard is free, including those marked G, which come first among the goals.
    ``start`` is ``"S"``, the cells marked S, or ``"uniform"`` over the free cells.

    >>> goal_map("S..\\n.X.").goals
    array([0, 1, 2, 3, 5])
    """
    kind = _checks.choice("start", start, ("S", "uniform"))
    rules = {"gamma": gamma, "hazard": hazard, "slip": slip, "slip_to": slip_to, "fall_ends": fall_ends}
    return goal_mdp(_endless(text, rules, kind), goals, step=step, reward=reward, name=name)


def goal_room(gamma: float = 0.95, *, slip: float = 0.0, slip_to: str = "any", start: str = "S") -> GoalMDP:
    """Two rooms and a door, 5×7, without danger: any of the 31 cells may be the goal. Moves are certain by default.

    >>> import safereplay as sr
    >>> world = goal_room()
    >>> sr.exact(world, sr.QLearning()).max(1)[world.origin].round(3)       # 10 steps away: −(1 − γ⁹)/(1 − γ)
    np.float64(-7.395)
    """
    return goal_map(ROOM, gamma=gamma, slip=slip, slip_to=slip_to, start=start, name="goal_room")


def goal_cliff(
    gamma: float = 0.95, *, slip: float = 0.1, slip_to: str = "any", hazard: float = -30.0, start: str = "uniform"
) -> GoalMDP:
    """The paper's slippery cliff, 4×6, where any of the 20 free cells may be the goal. A fall ends the episode.

    >>> import safereplay as sr
    >>> world = goal_cliff()
    >>> world.n_states, sr.verdict(world, sr.exact(world, sr.QLearning()).argmax(1))
    (480, 'safe')

    Ref: Szlak & Shamir (2021), Figure 2.
    """
    return goal_map(CLIFF, gamma=gamma, slip=slip, slip_to=slip_to, hazard=hazard, start=start, name="goal_cliff")


def bit_flip(n: int = 5, gamma: float = 0.98) -> GoalMDP:
    """n bits; each action flips one; start and goal are different patterns drawn uniformly.

    The reward is fully sparse: a random walk finds one pattern of 2ⁿ, and a step towards it pays like a step away.

    >>> world = bit_flip(3)
    >>> world.n_cells, world.goals.size, world.outcomes(world.state(0b101, goal=0b111), 1).r    # flips the middle bit
    (8, 8, array([0.]))

    Ref: Andrychowicz et al. (2017), Section 3.1, Figure 1.
    """
    n = _checks.whole("n", n, 1)
    _checks.require(n <= MOST_BITS, "n", f"be at most {MOST_BITS}", n, "the table has 4ⁿ states")
    s, a = (index.ravel() for index in np.mgrid[: 1 << n, :n])
    rest = np.zeros(s.size)
    rows = np.column_stack([s, a, np.ones(s.size), s ^ (1 << a), rest, rest, rest])
    return goal_mdp(TabularMDP.from_outcomes(1 << n, n, rows, gamma), name="bit_flip")


def _goal_states(base: TabularMDP, goals: Iterable[Any] | None) -> Ints:
    """The base states of the goals, checked: none is an unsafe end, and each can be reached."""
    fatal = np.isin(np.arange(base.n_states), base.s_next[base.terminal & base.unsafe])
    found = reached(base.n_states, np.flatnonzero(base.start > 0), base.pair // base.n_actions, base.s_next)
    if goals is None:
        free = np.flatnonzero(found & ~fatal)
        marked = np.zeros(base.n_states, bool)
        if base.layout is not None:
            marked = np.array([base.layout.rows[row][column] == "G" for row, column in base.layout.cells])
        return np.asarray(free[np.argsort(~marked[free], kind="stable")], np.int64)
    listed: list[int] = []
    try:
        for goal in goals:
            if isinstance(goal, int | np.integer):
                listed.append(_checks.whole("goal", goal, 0))
                continue
            if base.layout is None:
                _checks.fail("goals", "be states where the base has no layout", goal)
            row, column = goal
            listed.append(base.layout.state_at(row, column))
    except TypeError:
        _checks.fail("goals", "list states or cells", goals)
    _checks.require(bool(listed), "goals", "name at least one state", listed)
    _checks.require(len(set(listed)) == len(listed), "goals", "name each state once", listed)
    for g in listed:
        _checks.require(0 <= g < base.n_states and not fatal[g], "goals", "name states that are not an unsafe end", g)
        _checks.require(bool(found[g]), "goals", "be reachable from the start", g)
    return np.array(listed, np.int64)


def _rows(base: TabularMDP, goal: int, first: int, step: float, reward: float) -> Floats:
    """The rows of one goal's part of the table, whose states begin at ``first``, [m, 7]; the goal itself has none."""
    k = np.flatnonzero(base.pair // base.n_actions != goal)
    s, a = np.divmod(base.pair[k], base.n_actions)
    there, unsafe = base.s_next[k], base.unsafe[k]
    there = np.where(base.terminal[k] & ~unsafe & (there != goal), s, there)  # another end of the grid acts as a wall
    ends = (there == goal) | (base.terminal[k] & unsafe)
    r = np.where(unsafe, base.r[k], np.where(there == goal, reward, step))
    return np.column_stack([first + s, a, base.p[k], first + there, r, ends, unsafe])


def _endless(text: str, rules: dict[str, Any], start: str) -> TabularMDP:
    """A map's moves with every free cell an ordinary one.

    A map must have a goal, and a goal ends the episode. Where moves into a goal slip like others, moves do not depend
    on where the goal is: the outcomes missing for one position of the goal are taken from another.
    """
    _checks.require(isinstance(text, str), "text", "be a map as text", text)
    lines = [line.strip() for line in text.strip().splitlines()]
    plain = [line.replace("G", ".") for line in lines]
    free = {(i, j): c for i, line in enumerate(plain) for j, c in enumerate(line) if c not in "#X"}
    worlds, places = [], []  # plain free cells, each with its free neighbours
    for (i, j), symbol in free.items():
        near = [(i + down, j + right) for down, right in MOVES if (i + down, j + right) in free]
        if symbol == "." and near:
            places.append((i, j, near[:1]))
    _checks.require(len(places) > 1, "text", "have two free cells, marked . or G, beside others", len(places))
    for i, j, near in places[-2:]:
        marked = "\n".join([*plain[:i], plain[i][:j] + "G" + plain[i][j + 1 :], *plain[i + 1 :]])
        worlds.append(from_map(marked, goal_slips=True, start=near, **rules))
    one, other = worlds
    rows = []
    for world, take in ((one, ~one.is_terminal), (other, one.is_terminal)):
        taken = world.rows()[take[world.pair // world.n_actions]]
        taken[:, 5] *= taken[:, 6]  # only a fall ends the episode
        rows.append(taken)
    assert one.layout is not None
    begins = np.array([lines[row][column] == "S" for row, column in one.layout.cells])
    _checks.require(start == "uniform" or bool(begins.any()), "text", "mark a start S", "none")
    origin = int(np.argmax(begins)) if begins.any() else one.layout.origin
    layout = replace(one.layout, text="\n".join(lines), origin=origin)
    first = None if start == "uniform" else begins / begins.sum()
    return TabularMDP.from_outcomes(one.n_states, 4, np.concatenate(rows), one.gamma, first, layout=layout)
