"""Grid worlds: the paper's two, and any that can be drawn as text.

A map has one character a cell:

    .  free            #  wall               S  free, where a reader follows the path from
    G  goal            X  hazard (a cliff)   ^ > v <  free, and moving that way is volatile

Actions are 0 up, 1 right, 2 down, 3 left. A move off the map or into a wall stays where it is. With probability
``slip`` an action goes a random way instead; a move into a goal never slips (the paper's rule; an option).

The paper leaves much open: γ, the layouts, whether a fall ends the episode, where a slip goes. Each of these is an
option here, with the reading that fits what the paper reports as the default.

Ref: Szlak & Shamir (2021), Section 5, Figure 1, Figure 2.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from . import _checks
from ._types import Bools, Floats, Ints
from .mdp import Layout, TabularMDP, reached

ACTIONS = ("up", "right", "down", "left")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
ARROWS = "^>v<"
ARROW_CODES = np.frombuffer(ARROWS.encode("ascii"), np.uint8)
SYMBOLS = ".#SGX" + ARROWS
VOLATILE_REWARDS = ((0.6, 100.0), (0.4, -100.0))
PIECE = 1 << 10  # states whose rows are made at a time: few enough for the processor's cache

#: Readings of Figure 1: where the goal is, and which moves are volatile.
VOLATILE_LAYOUTS = {
    "row": ".....\n>>>.G\n.....\n.....",
    "row-of-two": ".....\n.>>.G\n.....\n.....",
    "top": ">>>.G\n.....\n.....\n.....",
    "low": ".....\n.....\n>>>.G\n.....",
    "band": ">>...\n>>>.G\n>>...\n.....",
    "full": ".....\n>>>>G\n.....\n.....",
}

#: Readings of Figure 2: where the start, the goal and the cliff are.
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
    """The paper's first grid, 4×5: the short way to the goal pays +100 or −100 a step.

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
    directions (the chosen one included) or one of the three ``"others"``. ``fall_ends``: falling ends the episode, or
    puts the agent back to the start. ``goal_slips``: whether a move into the goal can fail too.

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


def from_map(
    text: str,
    *,
    gamma: float = 0.9,
    goal: float | Mapping[tuple[int, int], float] = 10.0,
    step: float = -1.0,
    hazard: float = -10.0,
    volatile: Sequence[tuple[float, float]] = VOLATILE_REWARDS,
    slip: float = 0.0,
    slip_to: str = "any",
    fall_ends: bool = True,
    goal_slips: bool = False,
    start: str | Sequence[tuple[int, int]] = "uniform",
    name: str = "map",
) -> TabularMDP:
    """A text map as a model.

    ``goal`` is the reward of every goal, or one a cell: ``{(0, 4): 10.0, (3, 4): 50.0}``. ``volatile`` lists the
    (probability, reward) of a volatile move. ``start`` is ``"uniform"`` over the free cells, ``"S"`` for the cells
    marked S, or a list of cells. Falling into a hazard is unsafe, and so is a volatile move's negative reward.

    >>> import safereplay as sr
    >>> sr.grids.from_map("S>.G", volatile=[(0.9, 1.0), (0.1, -9.0)]).n_states
    4
    """
    lines = _lines(text)
    world = _World(lines, goal, step, hazard, volatile, slip, slip_to, fall_ends, goal_slips)
    starts = _start_states(world, start)
    _check_reachable(world, starts)
    cells = zip(*(index.tolist() for index in np.divmod(world.cell, world.width)), strict=True)
    layout = Layout("\n".join(lines), tuple(cells), world.origin(starts))
    distribution = np.bincount(starts, minlength=world.cell.size) / starts.size
    return TabularMDP.from_pieces(world.cell.size, 4, world.rows(), gamma, distribution, layout=layout, name=name)


def delayed(mdp: TabularMDP, meanwhile: float = 0.0) -> TabularMDP:
    """The same model, but every unsafe end comes one step later.

    A step that would end unsafely pays ``meanwhile`` and leads to a new state of *falling*; the next step, whatever the
    action, pays what the fall pays and ends the episode, unsafe. There is one such state for each (s', r) of an unsafe
    end, after the states of ``mdp``. No policy's risk changes, nor, at ``meanwhile`` = 0, its undiscounted return. With
    the cost of a usual step as ``meanwhile``, the reward of a step does not tell whether it slipped: caution that looks
    at rewards alone does not see the danger.

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
    if layout is not None:  # a falling agent is drawn where it will land
        cells = layout.cells + tuple(layout.cells[int(s)] for s in falls[:, 0])
        layout = Layout(layout.text, cells, layout.origin)
    start = np.append(mdp.start, np.zeros(len(falls)))
    rows = np.concatenate([rows, landings])
    name = f"delayed {mdp.name}"
    return TabularMDP.from_outcomes(S + len(falls), A, rows, mdp.gamma, start, layout=layout, name=name)


#: The grids that can be asked for by name.
NAMED: dict[str, Callable[..., TabularMDP]] = {"volatile": volatile, "cliff": cliff}


class _World:
    """A checked map and its dynamics, all cells at once; a state is a cell that is not a wall, in reading order."""

    def __init__(
        self,
        lines: list[str],
        goal: float | Mapping[tuple[int, int], float],
        step: float,
        hazard: float,
        volatile: Sequence[tuple[float, float]],
        slip: float,
        slip_to: str,
        fall_ends: bool,
        goal_slips: bool,
    ) -> None:
        whole = np.frombuffer("".join(lines).encode("ascii"), np.uint8)
        self.height, self.width = len(lines), len(lines[0])
        self.cell = np.flatnonzero(whole != ord("#"))  #: [S] place of each state in the map, read line by line
        self.state = np.full(whole.size, -1)  #: the state at each place, −1 for a wall
        self.state[self.cell] = np.arange(self.cell.size)
        self.symbol = whole[self.cell]  #: [S]
        self.step, self.hazard = _checks.real("step", step), _checks.real("hazard", hazard)
        self.slip = _checks.between("slip", slip, "[0, 1]")
        self.slip_to = _checks.choice("slip_to", slip_to, ("any", "others"))
        self.fall_ends, self.goal_slips = _checks.flag("fall_ends", fall_ends), _checks.flag("goal_slips", goal_slips)
        try:
            pairs = [(p, r) for p, r in volatile]
        except (TypeError, ValueError):
            _checks.fail("volatile", "list pairs (probability, reward)", volatile)
        self.volatile = [(_checks.between("p of volatile", p, "[0, 1]"), _checks.real("volatile", r)) for p, r in pairs]
        _checks.distribution("p of volatile", [p for p, _ in self.volatile], len(self.volatile))
        self.goals, self.goal_reward = self._goal_rewards(goal)
        self.ends = self.marked("GX")
        starts = np.flatnonzero(self.marked("S"))
        self.home = int(starts[0]) if starts.size else 0
        if not fall_ends and self.marked("X").any():
            _checks.require(bool(starts.size), "text", "mark a start S when fall_ends is false", "none")
        self.neighbour = self._neighbours()  #: [S, 4] where a move leads if it does not slip
        self.landing = self._landings()  #: [S, 4] the state the agent is in afterwards

    def marked(self, symbols: str) -> Bools:
        """Which states have one of these symbols, [S]."""
        return np.isin(self.symbol, np.frombuffer(symbols.encode("ascii"), np.uint8))

    def place(self, s: int) -> tuple[int, int]:
        """The (row, column) of a state."""
        return divmod(int(self.cell[s]), self.width)

    def state_at(self, row: int, column: int) -> int:
        """The state of a cell, −1 where there is none."""
        inside = 0 <= row < self.height and 0 <= column < self.width
        return int(self.state[row * self.width + column]) if inside else -1

    def _goal_rewards(self, goal: Any) -> tuple[Ints, Floats]:
        """The goals' states in the order they are given in, and the reward of every state that is one, [S]."""
        goals = np.flatnonzero(self.marked("G"))
        rewards = np.zeros(self.cell.size)
        _checks.require(bool(goals.size), "text", "have a goal G", "none")
        if not isinstance(goal, Mapping):
            rewards[goals] = _checks.real("goal", goal)
            return goals, rewards
        known = {self.place(s): s for s in goals.tolist()}
        for cell in goal:
            _checks.require(cell in known, "goal", "name cells marked G", cell)
        missing = [cell for cell in known if cell not in goal]
        _checks.require(not missing, "goal", "give a reward for every cell marked G", missing)
        for cell, r in goal.items():
            rewards[known[cell]] = _checks.real(f"goal at {cell}", r)
        return np.array([known[cell] for cell in goal]), rewards

    def _neighbours(self) -> Ints:
        i, j = np.divmod(self.cell, self.width)
        here = np.arange(self.cell.size)
        found = []
        for down, right in MOVES:
            row, column = i + down, j + right
            inside = (row >= 0) & (row < self.height) & (column >= 0) & (column < self.width)
            there = self.state[np.where(inside, row * self.width + column, self.cell)]
            found.append(np.where(there >= 0, there, here))
        return np.column_stack(found)

    def _landings(self) -> Ints:
        falls = self.marked("X")[self.neighbour] & (not self.fall_ends)
        return np.where(falls, self.home, self.neighbour)

    def _ways(self) -> tuple[Ints, Floats]:
        """Directions that action a may really take, [4, D], and their probabilities [D] unless the move is sure."""
        if self.slip == 0:
            return np.arange(4)[:, None], np.ones(1)
        strays = [[b for b in range(4) if self.slip_to == "any" or b != a] for a in range(4)]
        share = self.slip / len(strays[0])
        return np.column_stack((np.arange(4), strays)), np.array([1.0 - self.slip] + [share] * len(strays[0]))

    def rows(self) -> Iterator[Floats]:
        """Rows (s, a, p, s_next, r, terminal, unsafe) in pieces [m, 7]: by state, action, direction, volatile reward."""
        free = np.flatnonzero(~self.ends)
        return (self._rows_of(free[k : k + PIECE]).T for k in range(0, free.size, PIECE))

    def _rows_of(self, free: Ints) -> Floats:
        """The rows of some states, as columns [7, m]."""
        ways, chance = self._ways()
        sure = (self.symbol[self.neighbour[free]] == ord("G")) & (not self.goal_slips)
        f, a, way = np.nonzero(~sure[:, :, None] | (np.arange(chance.size) == 0))
        s, b = free[f], ways[a, way]
        p = np.where(sure[f, a], 1.0, chance[way])
        into = self.neighbour[s, b]
        goal, fall = self.symbol[into] == ord("G"), self.symbol[into] == ord("X")
        r = np.where(goal, self.goal_reward[into], np.where(fall, self.hazard, self.step))
        volatile = (self.symbol[s] == ARROW_CODES[b]) & ~(goal | fall)
        columns = [s, a, p, self.landing[s, b], r, goal | (fall & self.fall_ends), fall]
        return np.stack(columns if not volatile.any() else self._with_volatile(columns, volatile))

    def _with_volatile(self, columns: list[Any], volatile: Bools) -> list[Any]:
        """Each volatile row once for every reward it may have."""
        times = np.where(volatile, len(self.volatile), 1)
        turn = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
        s, a, p, s_next, r, ends, unsafe = (np.repeat(column, times) for column in columns)
        k = np.flatnonzero(np.repeat(volatile, times))
        chance, reward = np.array(self.volatile).T
        p[k] *= chance[turn[k]]
        r[k] = reward[turn[k]]
        unsafe[k] = r[k] < 0
        return [s, a, p, s_next, r, ends, unsafe]

    def origin(self, starts: Ints) -> int:
        """S if the map has one; else the first volatile cell, where the short way begins; else the first start."""
        if self.marked("S").any():
            return self.home
        if self.marked(ARROWS).any():
            return int(self._runs().argmax())
        return int(starts[0])

    def _runs(self) -> Ints:
        """How many volatile moves in a row begin at each state, [S]; the cells of a ring count once each.

        Arrows form paths. Those of 2, 4, 8, ... arrows are put together from two of half the length, until every path
        has come to its end: a ring, a cell without an arrow, or a move that stays (state n stands for what is after).
        """
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        n = self.cell.size
        here, direction = np.nonzero(self.symbol[:, None] == ARROW_CODES)
        there = self.neighbour[here, direction]
        _, ring = connected_components(csr_array((np.ones(here.size), (here, there)), (n, n)), connection="strong")
        size = np.append(np.bincount(ring)[ring], 1)
        after, count = np.arange(n + 1), np.zeros(n + 1, np.int64)
        path = size[here] == 1
        after[here[path]], count[here[path]] = np.where(there == here, n, there)[path], 1
        while count[after].any():
            count, after = count + count[after], after[after]
        return np.asarray(count + np.where(size > 1, size, 0)[after])[:n]


def _named_map(layout: str, known: dict[str, str]) -> str:
    _checks.require(isinstance(layout, str), "layout", "be a name or a map", layout)
    if layout not in known and set(layout) <= {*SYMBOLS, "\n"}:
        return layout
    return known[_checks.choice("layout", layout, known)]


def _lines(text: str) -> list[str]:
    _checks.require(isinstance(text, str), "text", "be a map as text", text)
    lines = [line.strip() for line in text.strip().splitlines()]
    _checks.require(bool(lines) and bool(lines[0]), "text", "be a map of at least one cell", text)
    for i, line in enumerate(lines):
        _checks.require(len(line) == len(lines[0]), f"row {i} of the map", f"have {len(lines[0])} cells", len(line))
        for symbol in sorted(set(line) - set(SYMBOLS), key=line.index)[:1]:
            _checks.fail(f"cell ({i}, {line.index(symbol)}) of the map", f"be one of {SYMBOLS}", symbol)
    return lines


def _start_states(world: _World, start: Any) -> Ints:
    if isinstance(start, str):
        kind = _checks.choice("start", start, ("uniform", "S"))
        states = np.flatnonzero(world.marked("S") if kind == "S" else ~world.ends)
        _checks.require(bool(states.size), "text", "have a cell to start from", "none")
        return states
    try:
        cells = [(int(row), int(column)) for row, column in start]
    except (TypeError, ValueError):
        _checks.fail("start", "be 'uniform', 'S' or a list of cells", start)
    _checks.require(bool(cells), "start", "name at least one cell", cells)
    listed = [world.state_at(*cell) for cell in cells]
    for cell, s in zip(cells, listed, strict=True):
        _checks.require(s >= 0 and not world.ends[s], "start", "name free cells", cell)
    return np.array(listed)


def _check_reachable(world: _World, starts: Ints) -> None:
    """Every goal can be reached from some start, and every start can reach some goal."""
    free = np.flatnonzero(~world.ends)
    here, there = np.repeat(free, 4), world.landing[free].ravel()
    found = reached(world.cell.size, starts, here, there)
    leading = reached(world.cell.size, world.goals, there, here)
    for goal in world.goals[~found[world.goals]][:1]:
        _checks.fail(f"goal at {world.place(goal)}", "be reachable from a start", "no way to it")
    for s in starts[~leading[starts]][:1]:
        _checks.fail(f"start at {world.place(s)}", "have a way to a goal", "none")
