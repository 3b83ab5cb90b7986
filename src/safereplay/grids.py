"""Grid worlds: a text map and its model, and some maps by name.

A map has one character per cell:

    .  free            #  wall               S  free, the origin of the drawn path
    G  goal            X  hazard (a cliff)   ^ > v <  free, and moving that way is volatile

Actions are 0 up, 1 right, 2 down, 3 left. A move off the map or into a wall leaves the agent where it is. With
probability ``slip`` an action goes in one of the directions of ``slip_to``:

    any      one of the four directions, the chosen one included
    others   one of the other three
    sides    one of the two at right angles to the chosen one
    up, right, down, left    always this one, like a wind

A move into a goal never slips (the paper's rule; an option).

A map file is a map, and under it the options of :func:`from_map` as TOML; they may be absent:

    ......
    SXXXXG

    goal = 10.0
    goals = { "1,5" = 50.0 }      # cells are written "row,column"

The named grids are the paper's two, and some where caution pays. The paper does not specify γ, the layouts, whether a fall
ends the episode, or where a slip goes. Each of these is an option here; the default is the reading that fits the
paper's results.

Ref: Szlak & Shamir (2021), Section 5, Figure 1, Figure 2.
"""

import inspect
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from operator import index
from typing import Any, TypeAlias, TypeVar

import numpy as np

from . import _checks
from ._checks import Bools, Floats, Ints
from .mdp import Layout, TabularMDP, reached

T = TypeVar("T")
ByCell: TypeAlias = Mapping[tuple[int, int], T] | Mapping[str, T]  #: cells as (row, column) or "row,column"
Draws: TypeAlias = Sequence[tuple[float, float]]  #: (probability, reward) of a volatile move

ACTIONS = ("up", "right", "down", "left")
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
ARROWS = "^>v<"
ARROW_CODES = np.frombuffer(ARROWS.encode("ascii"), np.uint8)
SYMBOLS = ".#SGX" + ARROWS
VOLATILE_REWARDS = ((0.6, 100.0), (0.4, -100.0))
PIECE = 1 << 10  # states processed at a time: few enough for the processor's cache

#: For each ``slip_to``, the directions that action a may go instead.
STRAYS = {
    "any": tuple((0, 1, 2, 3) for a in range(4)),
    "others": tuple(tuple(b for b in range(4) if b != a) for a in range(4)),
    "sides": tuple(tuple(b for b in range(4) if (b - a) % 2) for a in range(4)),
    **{way: ((b,),) * 4 for b, way in enumerate(ACTIONS)},
}


def from_map(
    text: str,
    *,
    gamma: float = 0.9,
    goal: float | ByCell[float] = 10.0,
    goals: ByCell[float] | None = None,
    step: float = -1.0,
    hazard: float = -10.0,
    volatile: Draws = VOLATILE_REWARDS,
    volatiles: ByCell[Draws] | None = None,
    slip: float = 0.0,
    slip_to: str = "any",
    fall_ends: bool = True,
    goal_slips: bool = False,
    start: str | Sequence[tuple[int, int]] = "uniform",
    name: str = "map",
) -> TabularMDP:
    """A text map as a model.

    A fall into a hazard is unsafe, and so is a negative reward of a volatile move.

    Parameters
    ----------
    text : str; the map, one line per row
    gamma : float in (0, 1); discount γ
    goal : float or dict; reward of every goal, or one per cell: ``{(0, 4): 10.0, (3, 4): 50.0}``
    step, hazard : float; reward of a step, and of a fall
    volatile : sequence of pairs; the (probability, reward) of a volatile move
    goals, volatiles : dict, optional; other values of these for single cells
    slip : float in [0, 1]; probability that an action fails
    slip_to : {"any", "others", "sides", "up", "right", "down", "left"}; where it goes then
    fall_ends : bool; whether a fall ends the episode; otherwise it returns the agent to the first S
    goal_slips : bool; whether a move into a goal can fail, too
    start : "uniform", "S" or list of cells; uniform over the free cells, or over the cells marked S
    name : str; name of the model

    Returns
    -------
    TabularMDP : a state per cell that is not a wall, in reading order; actions up, right, down and left

    Raises
    ------
    BadInput : an option is invalid, or a goal cannot be reached

    >>> import safereplay as sr
    >>> world = sr.grids.from_map("S>>G", volatile=[(0.9, 1.0), (0.1, -9.0)], volatiles={(0, 2): [(1.0, 4.0)]})
    >>> world.n_states, world.outcomes(1, 1).r
    (4, array([-9.,  1.]))
    >>> sr.grids.from_map("G.SG", goal=5.0, goals={"0,3": 50.0}).outcomes(2, 1).r
    array([50.])
    """
    rules = locals()
    lines = _lines(text)
    world = _World(lines, rules)
    starts = _start_states(world, start)
    free = np.flatnonzero(~world.ends)
    here, there = np.repeat(free, 4), world.landing[free].ravel()
    found = reached(world.cell.size, starts, here, there)
    leading = reached(world.cell.size, world.goals, there, here)
    for end in world.goals[~found[world.goals]][:1]:
        _checks.fail(f"goal at {world.place(end)}", "be reachable from a start", "no way to it")
    for s in starts[~leading[starts]][:1]:
        _checks.fail(f"start at {world.place(s)}", "have a way to a goal", "none")
    cells = zip(*(each.tolist() for each in np.divmod(world.cell, world.width)), strict=True)
    layout = Layout("\n".join(lines), tuple(cells), world.origin(starts))
    distribution = np.bincount(starts, minlength=world.cell.size) / starts.size
    return TabularMDP.from_pieces(world.cell.size, 4, world.rows(), gamma, distribution, layout=layout, name=name)


class _World:
    """A checked map and its dynamics, for all cells at once; a state is a cell that is not a wall, in reading order."""

    def __init__(self, lines: list[str], rules: Mapping[str, Any]) -> None:
        whole = np.frombuffer("".join(lines).encode("ascii"), np.uint8)
        self.height, self.width = len(lines), len(lines[0])
        self.cell = np.flatnonzero(whole != ord("#"))  #: [S] index of each state's cell in the map, read line by line
        self.state = np.full(whole.size, -1)  #: the state of each cell, −1 for a wall
        self.state[self.cell] = np.arange(self.cell.size)
        self.symbol = whole[self.cell]  #: [S]
        self.step, self.hazard = (_checks.real(name, rules[name]) for name in ("step", "hazard"))
        self.slip = _checks.between("slip", rules["slip"], "[0, 1]")
        self.slip_to = _checks.choice("slip_to", rules["slip_to"], STRAYS)
        self.fall_ends, self.goal_slips = (_checks.flag(name, rules[name]) for name in ("fall_ends", "goal_slips"))
        draws = draws_of("volatile", rules["volatile"])
        self.first, self.count = np.zeros(self.cell.size, np.int64), np.full(self.cell.size, len(draws))
        for s, given in self._by_cell("volatiles", rules["volatiles"], ARROWS, f"marked by one of {ARROWS}").items():
            own = draws_of(f"volatile at {self.place(s)}", given)
            self.first[s], self.count[s] = len(draws), len(own)  # of each state: its first draw, its number of draws
            draws += own
        self.draws = np.array(draws)  #: [n, 2] all (probability, reward) draws
        self.goals, self.goal_reward = self._goal_rewards(rules["goal"], rules["goals"])
        self.ends = self.marked("GX")
        starts = np.flatnonzero(self.marked("S"))
        self.home = int(starts[0]) if starts.size else 0
        if not self.fall_ends and self.marked("X").any():
            _checks.require(bool(starts.size), "text", "mark a start S when fall_ends is false", "none")
        targets = []
        for down, right in MOVES:
            row, column = (self.cell // self.width) + down, (self.cell % self.width) + right
            inside = (row >= 0) & (row < self.height) & (column >= 0) & (column < self.width)
            there = self.state[np.where(inside, row * self.width + column, self.cell)]
            targets.append(np.where(there >= 0, there, np.arange(self.cell.size)))
        self.neighbour = np.column_stack(targets)  #: [S, 4] the target of a move that does not slip
        falls = self.marked("X")[self.neighbour] & (not self.fall_ends)
        self.landing = np.where(falls, self.home, self.neighbour)  #: [S, 4] the state after the move

    def marked(self, symbols: str) -> Bools:
        """Which states have one of these symbols, [S]."""
        return np.isin(self.symbol, np.frombuffer(symbols.encode("ascii"), np.uint8))

    def place(self, s: int) -> tuple[int, int]:
        """The (row, column) of a state."""
        return divmod(int(self.cell[s]), self.width)

    def state_at(self, row: int, column: int) -> int:
        """The state of a cell, −1 if there is none."""
        inside = 0 <= row < self.height and 0 <= column < self.width
        return int(self.state[row * self.width + column]) if inside else -1

    def _by_cell(self, argument: str, given: Any, symbols: str, called: str) -> dict[int, Any]:
        """A mapping by cell as a mapping by state; the cells must have one of these symbols."""
        given = {} if given is None else given
        _checks.require(isinstance(given, Mapping), argument, "map cells to values", given)
        found: dict[int, Any] = {}
        for key, value in given.items():
            s = self.state_at(*_cell(argument, key))
            _checks.require(s >= 0 and chr(self.symbol[s]) in symbols, argument, f"name cells {called}", key)
            _checks.require(s not in found, argument, "name each cell once", key)
            found[s] = value
        return found

    def _goal_rewards(self, goal: Any, goals: Any) -> tuple[Ints, Floats]:
        """The goals' states in the order given, and the reward of each goal state, [S]."""
        marked = np.flatnonzero(self.marked("G"))
        rewards = np.zeros(self.cell.size)
        _checks.require(bool(marked.size), "text", "have a goal G", "none")
        known: dict[int, Any] = {}
        if isinstance(goal, Mapping):
            known = self._by_cell("goal", goal, "G", "marked G")
            missing = [self.place(s) for s in marked.tolist() if s not in known]
            _checks.require(not missing, "goal", "give a reward for every cell marked G", missing)
            marked = np.array(list(known))
        else:
            rewards[marked] = _checks.real("goal", goal)
        for s, r in (known | self._by_cell("goals", goals, "G", "marked G")).items():
            rewards[s] = _checks.real(f"goal at {self.place(s)}", r)
        return marked, rewards

    def rows(self) -> Iterator[Floats]:
        """Rows (s, a, p, s_next, r, terminal, unsafe) in pieces [m, 7]: by state, action, direction, volatile reward."""
        ways, chance = np.arange(4)[:, None], np.ones(1)  # directions of action a [4, D], and their probabilities [D]
        if self.slip > 0:
            strays = STRAYS[self.slip_to]
            share = self.slip / len(strays[0])
            ways, chance = np.column_stack((ways, strays)), np.array([1.0 - self.slip] + [share] * len(strays[0]))
        states = np.flatnonzero(~self.ends)
        for k in range(0, states.size, PIECE):
            free = states[k : k + PIECE]
            sure = (self.symbol[self.neighbour[free]] == ord("G")) & (not self.goal_slips)
            f, a, way = np.nonzero(~sure[:, :, None] | (np.arange(chance.size) == 0))
            s, b = free[f], ways[a, way]
            p = np.where(sure[f, a], 1.0, chance[way])
            into = self.neighbour[s, b]
            goal, fall = self.symbol[into] == ord("G"), self.symbol[into] == ord("X")
            r = np.where(goal, self.goal_reward[into], np.where(fall, self.hazard, self.step))
            volatile = (self.symbol[s] == ARROW_CODES[b]) & ~(goal | fall)
            columns = [s, a, p, self.landing[s, b], r, goal | (fall & self.fall_ends), fall]
            if volatile.any():  # repeat each volatile row once per possible reward
                times = np.where(volatile, self.count[s], 1)
                turn = np.arange(times.sum()) - np.repeat(np.cumsum(times) - times, times)
                columns = [np.repeat(column, times) for column in columns]
                row = np.flatnonzero(np.repeat(volatile, times))
                odds, reward = self.draws[self.first[columns[0][row]] + turn[row]].T
                columns[2][row] *= odds
                columns[4][row], columns[6][row] = reward, reward < 0
            yield np.stack(columns).T

    def origin(self, starts: Ints) -> int:
        """S if the map has one; else the first volatile cell; else the first start."""
        if self.marked("S").any():
            return self.home
        if self.marked(ARROWS).any():
            return int(self._runs().argmax())
        return int(starts[0])

    def _runs(self) -> Ints:
        """The number of consecutive volatile moves that begin at each state, [S]; each cell of a ring counts once.

        Arrows form paths. Paths of 2, 4, 8, ... arrows are composed of two of half the length, until every path has
        reached its end: a ring, a cell without an arrow, or a move that stays (state n stands for the end of a path).
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


def _lines(text: str) -> list[str]:
    _checks.require(isinstance(text, str), "text", "be a map as text", text)
    lines = [line.strip() for line in text.strip().splitlines()]
    _checks.require(bool(lines) and bool(lines[0]), "text", "be a map of at least one cell", text)
    for i, line in enumerate(lines):
        _checks.require(len(line) == len(lines[0]), f"row {i} of the map", f"have {len(lines[0])} cells", len(line))
        for symbol in sorted(set(line) - set(SYMBOLS), key=line.index)[:1]:
            _checks.fail(f"cell ({i}, {line.index(symbol)}) of the map", f"be one of {SYMBOLS}", symbol)
    return lines


def _cell(argument: str, key: Any) -> tuple[int, int]:
    """The (row, column) of a key, given as a tuple or as text: "3,5"."""
    try:
        row, column = (int(part) for part in key.split(",")) if isinstance(key, str) else (index(part) for part in key)
    except (TypeError, ValueError):
        _checks.fail(argument, "name cells as (row, column) or 'row,column'", key)
    return row, column


def draws_of(argument: str, given: Any) -> list[tuple[float, float]]:
    """Pairs (probability, reward), checked; the probabilities must sum to 1.

    >>> draws_of("bond", [[0.5, 2], [0.5, -3]])
    [(0.5, 2.0), (0.5, -3.0)]
    """
    try:
        pairs = [(p, r) for p, r in given]
    except (TypeError, ValueError):
        _checks.fail(argument, "list pairs (probability, reward)", given)
    draws = [(_checks.between(f"p of {argument}", p, "[0, 1]"), _checks.real(argument, r)) for p, r in pairs]
    _checks.distribution(f"p of {argument}", [p for p, _ in draws], len(draws))
    return draws


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


#: from_map's options, with their defaults.
OPTIONS = {name: each.default for name, each in inspect.signature(from_map).parameters.items() if name != "text"}


def map_file(text: str, **options: Any) -> str:
    """The content of a map file: the map, and the checked options of :func:`from_map` that do not have their default.

    Parameters
    ----------
    text : str; the map
    **options : options of :func:`from_map`

    Returns
    -------
    str : the map, an empty line, and the options as TOML

    Raises
    ------
    BadInput : an option is unknown or invalid, or a goal cannot be reached

    >>> print(map_file("S..G", slip=0.1, slip_to="sides", step=-1.0), end="")
    S..G
    <BLANKLINE>
    slip = 0.1
    slip_to = "sides"
    """
    for name in options:
        _checks.choice("option", name, OPTIONS)
    layout = from_map(text, **options).layout
    assert layout is not None  # every map has a layout
    lines = [f"{name} = {_toml(options[name])}" for name in OPTIONS if options.get(name) is not None]
    kept = [line for line in lines if line not in DEFAULTS]
    return "\n".join([layout.text, *([""] if kept else []), *kept, ""])


def parsed(content: str) -> tuple[str, dict[str, Any]]:
    """The map of a map file, and its options.

    >>> parsed("S..G\\n\\ngoal = 50.0\\n")
    ('S..G', {'goal': 50.0})
    """
    lines = content.splitlines(keepends=True)
    first = next((k for k, line in enumerate(lines) if line.strip()), len(lines))
    end = next((k for k in range(first, len(lines)) if not lines[k].strip() or "=" in lines[k]), len(lines))
    if first == end < len(lines):
        _checks.fail("a map file", "begin with its map", lines[first].strip())
    try:  # blank lines in place of the map, so that an error has the line number of the file
        options = tomllib.loads("\n" * end + "".join(lines[end:]))
    except (ValueError, RecursionError) as error:
        _checks.fail("the part below the map", "be lines of name = value, as TOML has them", str(error))
    for name in options:
        _checks.choice("option of the map", name, OPTIONS)
    return "".join(lines[first:end]).strip(), options


def _toml(value: Any) -> str:
    """A value as TOML that reads back as the same option."""
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, str):  # TOML strings are JSON strings, but also escape the character that JSON does not
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        cells = ((key if isinstance(key, str) else f"{key[0]},{key[1]}", each) for key, each in value.items())
        return "{ " + ", ".join(f"{_toml(cell)} = {_toml(each)}" for cell, each in cells) + " }"
    if np.iterable(value):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    return str(int(value)) if isinstance(value, Integral) else repr(float(value))


#: Lines that only state a default.
DEFAULTS = {f"{name} = {_toml(default)}" for name, default in OPTIONS.items() if default is not None}

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

    The paper's moves are certain.

    Parameters
    ----------
    layout : str; one of VOLATILE_LAYOUTS, or a map
    rewards : sequence of pairs; the (probability, reward) of a volatile move
    gamma, goal, step, slip, slip_to : as in :func:`from_map`

    >>> import safereplay as sr
    >>> sr.grids.volatile()
    TabularMDP(4×5 grid, 20 states × 4 actions, 79 outcomes, gamma=0.9, rewards -100 to 150, 1 terminal state, \
3 unsafe outcomes)

    Ref: Szlak & Shamir (2021), Section 5, Figure 1.
    """
    options = locals()
    text = _named_map(options.pop("layout"), VOLATILE_LAYOUTS)
    return from_map(text, volatile=options.pop("rewards"), **options, name="volatile")


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

    Parameters
    ----------
    layout : str; one of CLIFF_LAYOUTS, or a map
    gamma, slip, slip_to, goal, step, hazard, fall_ends, goal_slips : as in :func:`from_map`

    >>> import safereplay as sr
    >>> sr.grids.cliff().outcomes(12, 1).p.round(3)      # 'right' from the cell above the start
    array([0.025, 0.025, 0.925, 0.025])

    Ref: Szlak & Shamir (2021), Section 5, Figure 2.
    """
    options = locals()
    return from_map(_named_map(options.pop("layout"), CLIFF_LAYOUTS), **options, name="cliff")


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

    Parameters
    ----------
    gamma, slip, slip_to, goal, step, hazard, fall_ends : as in :func:`from_map`

    >>> import safereplay as sr
    >>> mdp = sr.grids.bridge()
    >>> limits = sr.exact(mdp, sr.QLearning()), sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5)
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.178, 0.004]
    """
    return from_map("........\n........\n..XXXX..\nS......G\n..XXXX..", **locals(), name="bridge")


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

    Parameters
    ----------
    rewards : sequence of pairs; the (probability, reward) of a ticket
    gamma, goal, step, slip, slip_to : as in :func:`from_map`

    >>> import safereplay as sr
    >>> mdp = sr.grids.lottery()
    >>> limits = sr.exact(mdp, sr.QLearning()), sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5)
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.344, 0.0]
    """
    options = locals()
    text = "........\n.######.\nS.>>>>.G\n.######.\n........"
    return from_map(text, volatile=options.pop("rewards"), **options, name="lottery")


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

    Parameters
    ----------
    gamma, slip, slip_to, goal, step, hazard, fall_ends : as in :func:`from_map`

    >>> import safereplay as sr
    >>> mdp = sr.grids.ledge()
    >>> limits = [sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v) for v in (0.0, 0.3, 0.9)]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.226, 0.033, 0.015]
    """
    return from_map("........\n........\n........\n........\nS......G\n#XXXXXX#", **locals(), name="ledge")


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

    Parameters
    ----------
    gamma, slip, slip_to, goal, step, hazard, goal_slips : as in :func:`from_map`

    >>> import safereplay as sr
    >>> sr.grids.frozen_lake().outcomes(14, 1).r.round(3)       # 'right', beside the goal
    array([0., 0., 1.])
    """
    return from_map("S...\n.X.X\n...X\nX..G", **locals(), start="S", name="frozen_lake")


def delayed(mdp: TabularMDP, meanwhile: float = 0.0) -> TabularMDP:
    """The same model, but with every unsafe end one step later.

    A step that would end unsafely pays ``meanwhile`` and leads to a new *falling* state. The next step, with any action,
    has the reward of the fall and ends the episode as unsafe. There is one such state for each (s', r) of an unsafe end,
    after the states of ``mdp``. No policy's risk changes, nor, at ``meanwhile`` = 0, its undiscounted return. With the
    usual step cost as ``meanwhile``, rewards do not show whether a step slipped, so a method that uses rewards alone
    cannot detect the danger.

    Parameters
    ----------
    mdp : TabularMDP
    meanwhile : float; reward of the step before the fall

    >>> import safereplay as sr
    >>> late = sr.grids.delayed(sr.grids.cliff(slip=0.0))
    >>> late.n_states, late.outcomes(18, 1).r, late.outcomes(late.outcomes(18, 1).s_next[0], 0).r
    (28, array([0.]), array([-12.]))
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    S, A = mdp.n_states, mdp.n_actions
    fatal = mdp.terminal & mdp.unsafe
    falls, which = np.unique(np.column_stack([mdp.s_next, mdp.r])[fatal], axis=0, return_inverse=True)
    rows = mdp.rows()
    rows[fatal, 3], rows[fatal, 4:] = S + which.ravel(), (_checks.real("meanwhile", meanwhile), 0.0, 0.0)
    k, a = (index.ravel() for index in np.mgrid[: len(falls), :A])
    landings = np.column_stack([S + k, a, np.ones(k.size), falls[k], np.ones((k.size, 2))])
    layout = mdp.layout
    if layout is not None:  # a falling agent is drawn in the cell where it will land
        layout = replace(layout, cells=layout.cells + tuple(layout.cells[int(s)] for s in falls[:, 0]))
    start, rows = np.append(mdp.start, np.zeros(len(falls))), np.concatenate([rows, landings])
    name = f"delayed {mdp.name}"
    return TabularMDP.from_outcomes(S + len(falls), A, rows, mdp.gamma, start, layout=layout, name=name)


#: The paper's grids, and all named grids.
PAPER: dict[str, Callable[..., TabularMDP]] = {"volatile": volatile, "cliff": cliff}
NAMED = {**PAPER, **{each.__name__: each for each in (bridge, lottery, ledge, frozen_lake)}}


def _named_map(layout: str, known: dict[str, str]) -> str:
    _checks.require(isinstance(layout, str), "layout", "be a name or a map", layout)
    if layout not in known and set(layout) <= {*SYMBOLS, "\n"}:
        return layout
    return known[_checks.choice("layout", layout, known)]
