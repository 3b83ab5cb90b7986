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

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _checks
from .mdp import Layout, TabularMDP

ACTIONS = ("up", "right", "down", "left")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
ARROWS = "^>v<"
SYMBOLS = ".#SGX" + ARROWS
VOLATILE_REWARDS = ((0.6, 100.0), (0.4, -100.0))

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
    rows = [outcome for s in range(len(world.cells)) for a in range(4) for outcome in world.outcomes(s, a)]
    starts = _start_states(world, start)
    _check_reachable(world, starts)
    layout = Layout("\n".join(lines), tuple(world.cells), world.origin(starts))
    distribution = np.bincount(starts, minlength=len(world.cells)) / len(starts)
    return TabularMDP.from_outcomes(len(world.cells), 4, rows, gamma, distribution, layout=layout, name=name)


#: The grids that can be asked for by name.
NAMED: dict[str, Callable[..., TabularMDP]] = {"volatile": volatile, "cliff": cliff}


class _World:
    """A checked map and its dynamics; a state is a cell that is not a wall."""

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
        self.lines = lines
        self.cells = [(i, j) for i, line in enumerate(lines) for j, c in enumerate(line) if c != "#"]
        self.state = {cell: s for s, cell in enumerate(self.cells)}
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
        self.goals = self._goal_rewards(goal)
        marked = self.where("S")
        self.home = self.state[marked[0]] if marked else 0
        if not fall_ends and self.where("X"):
            _checks.require(bool(marked), "text", "mark a start S when fall_ends is false", "none")

    def where(self, symbols: str) -> list[tuple[int, int]]:
        return [(i, j) for i, j in self.cells if self.lines[i][j] in symbols]

    def _goal_rewards(self, goal: Any) -> dict[tuple[int, int], float]:
        cells = self.where("G")
        _checks.require(bool(cells), "text", "have a goal G", "none")
        if not isinstance(goal, Mapping):
            return dict.fromkeys(cells, _checks.real("goal", goal))
        for cell in goal:
            _checks.require(cell in cells, "goal", "name cells marked G", cell)
        missing = [c for c in cells if c not in goal]
        _checks.require(not missing, "goal", "give a reward for every cell marked G", missing)
        return {cell: _checks.real(f"goal at {cell}", r) for cell, r in goal.items()}

    def neighbour(self, s: int, a: int) -> int:
        i, j = self.cells[s]
        return self.state.get((i + MOVES[a][0], j + MOVES[a][1]), s)

    def ends(self, s: int) -> bool:
        i, j = self.cells[s]
        return (i, j) in self.goals or self.lines[i][j] == "X"

    def directions(self, s: int, a: int) -> list[tuple[float, int]]:
        """(probability, direction that is really taken)."""
        into_goal = self.cells[self.neighbour(s, a)] in self.goals
        if self.slip == 0 or (into_goal and not self.goal_slips):
            return [(1.0, a)]
        strays = range(4) if self.slip_to == "any" else [b for b in range(4) if b != a]
        return [(1.0 - self.slip, a), *((self.slip / len(strays), b) for b in strays)]

    def outcomes(self, s: int, a: int) -> list[tuple[int, int, float, int, float, bool, bool]]:
        if self.ends(s):
            return []
        return [(s, a, p * q, *rest) for p, b in self.directions(s, a) for q, *rest in self.landing(s, b)]  # type: ignore[misc]

    def landing(self, s: int, b: int) -> list[tuple[float, int, float, bool, bool]]:
        """(probability, s_next, r, terminal, unsafe) of going direction b."""
        s_next = self.neighbour(s, b)
        i, j = self.cells[s_next]
        if (i, j) in self.goals:
            return [(1.0, s_next, self.goals[i, j], True, False)]
        if self.lines[i][j] == "X":
            return [(1.0, s_next if self.fall_ends else self.home, self.hazard, self.fall_ends, True)]
        here = self.cells[s]
        if self.lines[here[0]][here[1]] == ARROWS[b]:
            return [(p, s_next, r, False, r < 0) for p, r in self.volatile]
        return [(1.0, s_next, self.step, False, False)]

    def origin(self, starts: list[int]) -> int:
        """S if the map has one; else the first volatile cell, where the short way begins; else the first start."""
        for symbols in ("S", ARROWS):
            cells = self.where(symbols)
            if cells:
                longest = max(cells, key=lambda c: (self._run(c), -c[0], -c[1]))
                return self.state[longest if symbols == ARROWS else cells[0]]
        return starts[0]

    def _run(self, cell: tuple[int, int]) -> int:
        """How many volatile moves in a row begin at a cell."""
        count, seen = 0, set()
        while cell in self.state and cell not in seen and self.lines[cell[0]][cell[1]] in ARROWS:
            seen.add(cell)
            move = MOVES[ARROWS.index(self.lines[cell[0]][cell[1]])]
            cell, count = (cell[0] + move[0], cell[1] + move[1]), count + 1
        return count


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
        for j, symbol in enumerate(line):
            _checks.require(symbol in SYMBOLS, f"cell ({i}, {j}) of the map", f"be one of {SYMBOLS}", symbol)
    return lines


def _start_states(world: _World, start: Any) -> list[int]:
    if isinstance(start, str):
        kind = _checks.choice("start", start, ("uniform", "S"))
        cells = world.where("S") if kind == "S" else [c for s, c in enumerate(world.cells) if not world.ends(s)]
        _checks.require(bool(cells), "text", "have a cell to start from", "none")
    else:
        try:
            cells = [(int(row), int(column)) for row, column in start]
        except (TypeError, ValueError):
            _checks.fail("start", "be 'uniform', 'S' or a list of cells", start)
        _checks.require(bool(cells), "start", "name at least one cell", cells)
        for cell in cells:
            free = cell in world.state and not world.ends(world.state[cell])
            _checks.require(free, "start", "name free cells", cell)
    return [world.state[cell] for cell in cells]


def _check_reachable(world: _World, starts: list[int]) -> None:
    """Every goal can be reached from some start, and every start can reach some goal."""
    onward = {s: {world.landing(s, a)[0][1] for a in range(4) if not world.ends(s)} for s in range(len(world.cells))}
    back: dict[int, set[int]] = {s: set() for s in onward}
    for s, ahead in onward.items():
        for t in ahead:
            back[t].add(s)
    goals = [world.state[cell] for cell in world.goals]
    reached, leading = _closure(starts, onward), _closure(goals, back)
    for goal in goals:
        _checks.require(goal in reached, f"goal at {world.cells[goal]}", "be reachable from a start", "no way to it")
    for s in starts:
        _checks.require(s in leading, f"start at {world.cells[s]}", "have a way to a goal", "none")


def _closure(seeds: list[int], edges: dict[int, set[int]]) -> set[int]:
    seen, todo = set(seeds), list(seeds)
    while todo:
        for t in edges[todo.pop()] - seen:
            seen.add(t)
            todo.append(t)
    return seen
