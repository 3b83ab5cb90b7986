"""Gymnasium in both directions: a model from an environment's table, and any model as an environment.

**In.** The toy-text environments keep their dynamics in a table ``P[s][a] = [(p, s_next, r, terminated), ...]``. It
also lists outcomes of states where no action is ever taken, because the episode ended on entering them. Three rules
turn it into a :class:`~safereplay.TabularMDP`; none changes a return:

        a state that every action leaves unchanged, with reward 0, has no outcomes: a step into it ends the episode;
        a state that is entered only by ending the episode has none either, if ``initial_state_distrib`` gives it 0;
    probabilities that sum to 1 only as float32 does (to 1e-6) are scaled to sum to 1.

Only the table is read: wrappers of the environment, including its time limit, are not part of the model.

**Out.** :class:`TabularEnv` draws its steps from a model's outcomes. The ids ``safereplay/Volatile-v0`` and
``safereplay/Cliff-v0`` make the paper's grids; ``gymnasium.make("safereplay.gym:safereplay/Cliff-v0")`` works without
importing safereplay.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache, cached_property
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv

from . import _checks, grids
from ._checks import AnyArray, Bools, Floats
from .errors import BadInput
from .mdp import Layout, TabularMDP

Unsafe: TypeAlias = Callable[[int, int, int, float, bool], bool]

HINT = "use sr.Agent to learn by stepping it"
FLOAT32_SLACK = 1e-6
DEAR = 5.0  #: an outcome that costs this many times the usual cost is unsafe
CLIFF_WALKING_MAP = "............\n............\n............\nSXXXXXXXXXXG"


def table_of(env: Any, gamma: float, unsafe: Unsafe | None, make_kwargs: Mapping[str, Any]) -> TabularMDP:
    """The model of an environment, given as an object or by its id; see :meth:`safereplay.TabularMDP.from_gymnasium`.

    >>> lake = table_of("FrozenLake-v1", 0.95, None, {"is_slippery": False})
    >>> lake.outcomes(4, 2)                                                # right, into the first hole
    Outcomes(p=array([1.]), s_next=array([5]), r=array([0.]), terminal=array([ True]), unsafe=array([ True]))
    """
    _checks.require(unsafe is None or callable(unsafe), "unsafe", "be a function or None", unsafe)
    if isinstance(env, str):
        with closing(_made(env, make_kwargs)) as made:
            return _table(made, gamma, unsafe)
    _checks.require(isinstance(env, gymnasium.Env), "env", "be a Gymnasium environment or its id", env)
    _checks.require(not make_kwargs, "options", "be given with an id, not an environment", sorted(make_kwargs))
    return _table(env, gamma, unsafe)


def _made(env_id: str, make_kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    env, problem = None, ""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            env = gymnasium.make(env_id, **make_kwargs)
        except gymnasium.error.Error as error:
            problem = str(error)
        except BadInput:  # an error of our own grids, already worded
            raise
        except (ImportError, KeyError, TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
    if env is None:  # the warnings of make() would only repeat the error
        _checks.fail("env", "be the id of an environment that Gymnasium can make", env_id, " ".join(problem.split()))
    for warning in said:
        warnings.warn(warning.message, warning.category, stacklevel=4)
    return env


def _table(env: gymnasium.Env[Any, Any], gamma: float, unsafe: Unsafe | None) -> TabularMDP:
    inner: Any = env.unwrapped
    if isinstance(inner, TabularEnv):
        mdp = inner.mdp.with_gamma(gamma)
        if unsafe is None:
            return mdp
        rows, rest = mdp.rows(), (mdp.gamma, mdp.start)
        rows[:, 6] = _unsafe_by(unsafe, rows[:, :6])
        return TabularMDP.from_outcomes(mdp.n_states, mdp.n_actions, rows, *rest, layout=mdp.layout, name=mdp.name)
    name = inner.spec.id if inner.spec is not None else type(inner).__name__
    S, A = _size(inner, "observation_space"), _size(inner, "action_space")
    _checks.require(hasattr(inner, "P"), "env", "expose its table P", name, HINT)
    if getattr(inner, "fickle_passenger", False):  # Taxi then redraws the destination in step(), not in P
        _checks.fail("env", "keep all its dynamics in P", name, "leave out fickle_passenger")
    start = None
    if hasattr(inner, "initial_state_distrib"):
        start = _checks.finite_array("initial_state_distrib of env", inner.initial_state_distrib, (S,))
        total = float(start.sum())
        start = start / total if abs(total - 1.0) <= FLOAT32_SLACK else start  # else the model raises the error
    columns = _columns(inner.P, S, A)
    s, s_next = columns[:, 0].astype(np.int64), columns[:, 3].astype(np.int64)
    others = s_next != s
    moves = np.bincount(s[others | (columns[:, 4] != 0)], minlength=S) > 0  # the first two rules of this module
    terminal = (columns[:, 5] != 0) | ~moves[s_next]
    ended = np.bincount(s_next[others & terminal], minlength=S) > 0
    entered = np.bincount(s_next[others & ~terminal], minlength=S) > 0
    acts = moves if start is None else (moves & ~ended) | entered | (start > 0)
    columns = np.column_stack([columns[:, :5], terminal])[acts[s]]
    _checks.require(bool(columns.size), "P of env", "have a state that an action leaves or is rewarded in", inner.P)
    layout = None
    if isinstance(inner, CliffWalkingEnv):  # FrozenLake has a map too, but numbers its actions differently
        layout = Layout(CLIFF_WALKING_MAP, tuple((s // 12, s % 12) for s in range(S)), int(inner.start_state_index))
    if unsafe is None:  # outcomes that end with less than the best final reward, or cost DEAR times the median cost
        r, ends = columns[:, 4], columns[:, 5] != 0
        costs = -r[r < 0]
        dear = DEAR * np.median(costs) if costs.size else np.inf
        marks = np.asarray((ends & (r < r[ends].max(initial=-np.inf))) | (-r >= dear))
    else:
        marks = _unsafe_by(unsafe, columns)
    rows = np.column_stack([columns, marks])
    return TabularMDP.from_outcomes(S, A, rows, gamma, start, layout=layout, name=name)


def _size(env: gymnasium.Env[Any, Any], which: str) -> int:
    space = getattr(env, which, None)
    if not isinstance(space, gymnasium.spaces.Discrete) or space.start != 0:
        hint = "" if isinstance(space, gymnasium.spaces.Box) else HINT
        _checks.fail(f"{which} of env", "be Discrete and count from 0", space, hint)
    return int(space.n)


def _columns(P: Any, S: int, A: int) -> Floats:
    """P as columns s, a, p, s_next, r, terminal; a state or action missing from P has no outcomes."""

    def at(table: Any, key: int) -> Any:
        return table.get(key, ()) if isinstance(table, Mapping) else table[key]

    try:
        states = [(s, at(P, s)) for s in range(S)]
        pairs = [(s, a, at(actions, a)) for s, actions in states if len(actions) for a in range(A)]
        rows = [(s, a, *outcome) for s, a, outcomes in pairs for outcome in outcomes]
        columns: Floats | None = np.array(rows, np.float64).reshape(len(rows), 6)
    except (IndexError, TypeError, ValueError):
        columns = None
    if columns is None:  # outside the handler, so that the error has no chained traceback
        _checks.fail("P of env", "list (p, s_next, r, terminated) for each state and action", P)
    for stray in columns[~np.isin(columns[:, 3], np.arange(S)), 3]:
        _checks.fail("s_next in P of env", f"be a state in 0..{S - 1}", float(stray))
    columns = columns[columns[:, 2] != 0]
    pair = (columns[:, 0] * A + columns[:, 1]).astype(np.int64)
    sums = np.bincount(pair, weights=columns[:, 2], minlength=S * A)
    sums[np.abs(sums - 1.0) > FLOAT32_SLACK] = 1.0  # the model raises the error
    columns[:, 2] /= sums[pair]
    return columns


def _unsafe_by(unsafe: Unsafe, columns: Floats) -> Bools:
    marks = [unsafe(int(s), int(a), int(s_next), r, bool(end)) for s, a, _, s_next, r, end in columns.tolist()]
    return np.array(marks, bool)


class TabularEnv(gymnasium.Env[int, int]):
    """A model as an environment: observations are states, and a step draws one outcome of (s,a) from q(s',r|s,a).

    ``info`` has the outcome's probability ``p`` and whether it is ``unsafe``.

    Parameters
    ----------
    mdp : TabularMDP
    render_mode : {"ansi", "rgb_array"}, optional; text, or a picture [H, W, 3]

    >>> import safereplay as sr
    >>> env = sr.TabularEnv(sr.grids.cliff(slip=0.0), render_mode="ansi")
    >>> env.reset(seed=0, options={"state": 18})
    (18, {'p': 1.0})
    >>> print(env.render())
     .  .  .  .  .  .
     .  .  .  .  .  .
     .  .  .  .  .  .
    [S] X  X  X  X  G
    >>> env.step(1)                                                        # right, off the cliff
    (19, -12.0, True, False, {'p': 1.0, 'unsafe': True})
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(self, mdp: TabularMDP, render_mode: str | None = None) -> None:
        _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
        if render_mode is not None:
            _checks.choice("render_mode", render_mode, self.metadata["render_modes"])
        self.mdp = mdp
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Discrete(mdp.n_states)  # type: ignore[assignment]  # of np.int64
        self.action_space = gymnasium.spaces.Discrete(mdp.n_actions)  # type: ignore[assignment]
        self._s: int | None = None
        self._over = False

    @cached_property
    def P(self) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:  # noqa: N802  (Gymnasium's name)
        """The table in Gymnasium's form, P[s][a] = [(p, s_next, r, terminated), ...]; it cannot hold unsafe marks."""

        def listed(s: int, a: int) -> list[tuple[float, int, float, bool]]:
            columns = (column.tolist() for column in self.mdp.outcomes(s, a)[:4])
            return list(zip(*columns, strict=True)) or [(1.0, s, 0.0, True)]

        return {s: {a: listed(s, a) for a in range(self.mdp.n_actions)} for s in range(self.mdp.n_states)}

    @property
    def initial_state_distrib(self) -> Floats:
        """The start distribution, under Gymnasium's name for it."""
        return self.mdp.start

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Begin an episode, in a state drawn from the start distribution or in ``options["state"]``: (state, {"p": its probability})."""
        super().reset(seed=seed)
        for name in options or {}:
            _checks.choice("option of reset", name, ("state",))
        self._over = False
        if options and options.get("state") is not None:
            s, S = _checks.whole("state", options["state"], 0), self.mdp.n_states
            _checks.require(s < S and not self.mdp.is_terminal[s], "state", f"be in 0..{S - 1} and not terminal", s)
            self._s = s
            return s, {"p": 1.0}
        states = np.flatnonzero(self.mdp.start)
        self._s = int(states[self._draw(self.mdp.start[states])])
        return self._s, {"p": float(self.mdp.start[self._s])}

    def _draw(self, p: Floats) -> int:
        # if rounding leaves the cumulative sum below the draw, take the last outcome; Gymnasium's own argmax takes the first
        return min(int(np.searchsorted(np.cumsum(p), self.np_random.random(), side="right")), p.size - 1)

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Draw an outcome of (s, action) in a running episode: (s_next, r, terminated, False, {"p", "unsafe"})."""
        if self._s is None or self._over:
            episode = "no episode" if self._s is None else "an episode that is over"
            _checks.fail("env", "be reset before a step", episode)
        if not self.action_space.contains(action):
            _checks.fail("action", f"be a whole number in 0..{self.mdp.n_actions - 1}", action)
        q = self.mdp.outcomes(self._s, int(action))
        k = self._draw(q.p)
        self._s, self._over = int(q.s_next[k]), bool(q.terminal[k])
        return self._s, float(q.r[k]), self._over, False, {"p": float(q.p[k]), "unsafe": bool(q.unsafe[k])}

    def render(self) -> Any:
        """The current position: text for ``"ansi"``, a picture for ``"rgb_array"``."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() shows nothing without a render_mode; choose from ansi, rgb_array")
            return None
        mdp, s = self.mdp, self._s
        if self.render_mode == "ansi":
            if mdp.layout is None:
                return f"{mdp.name}: {'no episode' if s is None else f'state {s}'}, of {mdp.n_states} states"
            here, lines = None if s is None else mdp.layout.cells[s], []
            for i, row in enumerate(mdp.layout.rows):
                cells = (f"[{symbol}]" if (i, j) == here else f" {symbol} " for j, symbol in enumerate(row))
                lines.append("".join(cells).rstrip())
            return "\n".join(lines)
        layout, board = self._board
        image = board.copy()
        if s is not None:
            _paint(image, layout.cells[s], "rim", PAGE)
            _paint(image, layout.cells[s], "agent", AGENT)
        return image.round().astype(np.uint8)

    @cached_property
    def _board(self) -> tuple[Layout, Floats]:
        """The layout, and its picture without the agent, [H, W, 3]."""
        mdp, layout = self.mdp, self.mdp.layout
        if layout is None:  # states in a near-square, marked G or X for good or bad ends, S for starts
            columns = math.ceil(math.sqrt(mdp.n_states))
            symbols = np.full(columns * math.ceil(mdp.n_states / columns), " ")
            symbols[: mdp.n_states] = "."
            if np.count_nonzero(mdp.start) < np.count_nonzero(~mdp.is_terminal):
                symbols[np.flatnonzero(mdp.start)] = "S"
            symbols[mdp.s_next[mdp.terminal & mdp.unsafe]] = "X"
            symbols[mdp.s_next[mdp.terminal & ~mdp.unsafe]] = "G"
            text = "\n".join("".join(row) for row in symbols.reshape(-1, columns))
            layout = Layout(text, tuple(divmod(s, columns) for s in range(mdp.n_states)), mdp.origin)
        image = np.empty((layout.shape[0] * CELL, layout.shape[1] * CELL, 3))
        image[:] = PAGE
        for i, line in enumerate(layout.rows):
            for j, symbol in enumerate(line):
                if symbol != " ":
                    _paint(image, (i, j), "tile", TILES.get(symbol, TILES["."]))
                if symbol in MARKS:
                    _paint(image, (i, j), symbol, MARKS[symbol])
        return layout, image


def make_grid_env(grid: str, render_mode: str | None = None, **options: Any) -> TabularEnv:
    """One of the paper's grids as an environment; ``options`` are those of :mod:`safereplay.grids`.

    >>> import gymnasium
    >>> gymnasium.make("safereplay/Cliff-v0", slip=0.2).observation_space
    Discrete(24)
    """
    maker = grids.NAMED[_checks.choice("grid", grid, grids.NAMED)]
    for name in options:
        _checks.choice("option", name, inspect.signature(maker).parameters)
    return TabularEnv(maker(**options), render_mode)


# gymnasium.make reads the modes that it can add by wrapping here: "human" and "rgb_array_list".
make_grid_env.__dict__["metadata"] = TabularEnv.metadata

CELL = 48  #: pixels per cell
PAGE, AGENT, RED = (255, 255, 255), (44, 62, 96), (214, 69, 65)
TILES = {".": (236, 239, 243), "#": (92, 101, 115), "S": (196, 217, 241), "G": (126, 192, 141), "X": (230, 146, 132)}
MARKS = {"G": PAGE, "X": PAGE, **dict.fromkeys(grids.ARROWS, RED)}  #: so that cells do not differ by colour alone


@cache
def _masks() -> dict[str, Floats]:
    """How much of each pixel of a cell a shape covers, [CELL, CELL]; a cell spans −1 to 1 both ways."""
    fine = 4
    axis = (np.arange(CELL * fine) + 0.5) / (CELL * fine) * 2 - 1
    y, x = np.meshgrid(axis, axis, indexing="ij")

    def coverage(inside: AnyArray) -> Floats:
        return np.asarray(inside.reshape(CELL, fine, CELL, fine).mean((1, 3)), np.float64)

    side, corner = 0.95, 0.2
    outside = np.hypot(np.maximum(abs(x) - side + corner, 0), np.maximum(abs(y) - side + corner, 0))
    up = coverage((y > -0.86) & (y < -0.56) & (abs(x) < (y + 0.86) * 0.8))
    turned = {arrow: np.rot90(up, -k) for k, arrow in enumerate(grids.ARROWS)}
    pole = (abs(x + 0.22) < 0.05) & (abs(y) < 0.42)
    flag = (x >= -0.22) & (y > -0.42) & (y < 0.12) & (x + 0.22 < 0.56 - 2 * abs(y + 0.15))
    cross = (np.maximum(abs(x), abs(y)) < 0.28) & (np.minimum(abs(x - y), abs(x + y)) < 0.11)
    return {
        "tile": coverage(outside < corner),
        "rim": coverage(np.hypot(x, y) < 0.5),
        "agent": coverage(np.hypot(x, y) < 0.42),
        "G": coverage(pole | flag),
        "X": coverage(cross),
        **turned,
    }


def _paint(image: Floats, cell: tuple[int, int], shape: str, colour: tuple[int, int, int]) -> None:
    part = image[cell[0] * CELL :, cell[1] * CELL :][:CELL, :CELL]
    part += _masks()[shape][:, :, None] * (np.array(colour) - part)
