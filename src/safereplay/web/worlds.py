"""Worlds of the playground: a map, its rewards and its winds, and the model they make.

A link writes a map as chess players write a board: rows are separated by ``/``, a number stands for so many free cells,
W is a wall, S G X as on any map, and u r d l a volatile move up, right, down, left. ``6/6/6/SXXXXG`` is the cliff.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

import safereplay as sr

from .. import _checks
from .sides import number

Cell = tuple[int, int]
Lottery = tuple[tuple[float, float], ...]

MOST = 20  # rows, and columns
LARGEST = 1e6  # reward
DRAWS = 2  # rewards of a volatile move: as many as the page has fields for
LETTERS = {"W": "#", "S": "S", "G": "G", "X": "X", "u": "^", "r": ">", "d": "v", "l": "<"}
RENAMED = {"rewards": "volatile"}  # what a named grid calls it -> what a map does

#: The worlds to begin from, in the menu's order: title, and what there is to see.
TITLES = {
    "cliff": (
        "The cliff",
        "The paper's second grid: the short way to the goal runs along an edge, and steps may slip.",
    ),
    "volatile": ("The volatile row", "The paper's first grid: the short way pays +100 or −100 a step."),
    "frozen_lake": ("FrozenLake", "Gymnasium's slippery lake: two of three steps go sideways."),
    "bridge": ("The bridge", "A narrow bridge is short, and one slip from the chasm. The way round is long."),
    "lottery": ("The lottery", "A shortcut through cells that mostly pay a little and sometimes cost a lot."),
    "ledge": ("The windy ledge", "The wind blows towards the drop: the nearer the edge, the shorter the way."),
    "blank": ("An empty field", "Draw your own."),
}
BLANK = "\n".join(["........"] * 5 + ["S......G"])


@dataclass(frozen=True)
class World:
    """A map and everything that ``sr.grids.from_map`` wants to know of it."""

    name: str
    rows: tuple[str, ...]
    goal: float = 10.0
    goals: tuple[tuple[Cell, float], ...] = ()
    step: float = -1.0
    hazard: float = -10.0
    volatile: Lottery = ((0.6, 100.0), (0.4, -100.0))
    volatiles: tuple[tuple[Cell, Lottery], ...] = ()
    slip: float = 0.0
    slip_to: str = "any"
    fall_ends: bool = True
    goal_slips: bool = False
    start: str = "uniform"
    gamma: float = 0.9

    def to_dict(self) -> dict[str, Any]:
        """As the page holds it."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["goals"] = {f"{i},{j}": r for (i, j), r in self.goals}
        values["volatiles"] = {f"{i},{j}": draws for (i, j), draws in self.volatiles}
        return values

    def options(self) -> dict[str, Any]:
        """The arguments of ``sr.grids.from_map``, but for the map."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("name", "rows")}
        return {**values, "goals": dict(self.goals), "volatiles": dict(self.volatiles)}

    def mdp(self) -> sr.TabularMDP:
        """The model."""
        return _model(self)

    def judged(self) -> list[int]:
        """The states that episodes are judged from: the cells marked S, else where a reader's eye begins."""
        mdp = self.mdp()
        layout = mdp.layout
        marked = [s for s, (i, j) in enumerate(layout.cells) if self.rows[i][j] == "S"] if layout else []
        return marked or [mdp.origin]

    def start_distribution(self) -> Any:
        """The same as ``sr.evaluate`` takes it: a state, or probabilities [S]."""
        states = self.judged()
        if len(states) == 1:
            return states[0]
        return np.bincount(states, minlength=self.mdp().n_states) / len(states)


@lru_cache(maxsize=64)
def _model(world: World) -> sr.TabularMDP:
    return sr.grids.from_map("\n".join(world.rows), name=world.name, **world.options())


@lru_cache(maxsize=1)
def presets() -> dict[str, World]:
    """The worlds to begin from, by name: what the library's own grids are made of."""
    return {name: _preset(name) for name in TITLES}


def _preset(name: str) -> World:
    if name == "blank":
        return World(name, tuple(BLANK.split("\n")), slip=0.1, gamma=0.95)
    build = sr.grids.NAMED[name]
    known = {f.name for f in fields(World)}
    settings = {RENAMED.get(p.name, p.name): p.default for p in inspect.signature(build).parameters.values()}
    chosen = {key: value for key, value in settings.items() if key in known}
    if "volatile" in chosen:
        chosen["volatile"] = tuple((float(p), float(r)) for p, r in chosen["volatile"])
    mdp = build()
    rows = tuple(mdp.layout.rows if mdp.layout is not None else ())
    marked = "".join(rows).count("S")
    return World(name, rows, **{**chosen, "start": "S" if np.count_nonzero(mdp.start) == marked else "uniform"})


def changed(world: World, parts: dict[str, Any]) -> World:
    """The world with what a link changes in it; each value as the link writes it."""
    given = {name: value for name, value in parts.items() if value is not None}
    if "map" in given:
        world = replace(world, rows=parse_map(given.pop("map")), goals=(), volatiles=())
    readers: dict[str, Callable[[str], Any]] = {"goals": _goals, "volatiles": _lotteries, "volatile": _lottery}
    return replace(world, **{name: readers[name](x) if name in readers else x for name, x in given.items()})


def parse_map(text: str) -> tuple[str, ...]:
    """The rows of a map as a link writes it.

    >>> parse_map("3/rW1/SXG")
    ('...', '>#.', 'SXG')
    """
    lines = text.split("/")
    _checks.require(len(lines) <= MOST, "map", f"have at most {MOST} rows", len(lines))
    rows = [_row(line) for line in lines]
    _checks.require(len({len(row) for row in rows}) == 1, "map", "have rows of one length", [len(row) for row in rows])
    return tuple(rows)


def _row(line: str) -> str:
    cells = ""
    for part in re.findall(r"[0-9]+|.", line):
        free = part.isascii() and part.isdigit()
        _checks.require(free or part in LETTERS, "map", f"be numbers and letters of {''.join(LETTERS)}", line)
        size = (int(part) if len(part) < 3 else MOST + 1) if free else 1
        _checks.require(len(cells) + size <= MOST, "map", f"have at most {MOST} columns", line)
        cells += "." * size if free else LETTERS[part]
    _checks.require(bool(cells), "map", "have no empty row", line)
    return cells


def _goals(text: str) -> tuple[tuple[Cell, float], ...]:
    return tuple((cell, reward("goals", value)) for cell, value in _by_cell("goals", text))


def _lotteries(text: str) -> tuple[tuple[Cell, Lottery], ...]:
    return tuple((cell, _lottery(value)) for cell, value in _by_cell("volatiles", text))


def _by_cell(name: str, text: str) -> list[tuple[Cell, str]]:
    """``3.5~x;0.1~y`` as cells and their texts, each cell once."""
    found: dict[Cell, str] = {}
    for part in text.split(";") if text else ():
        cell, tilde, value = part.partition("~")
        place = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})", cell, re.ASCII)
        if not tilde or place is None:
            _checks.fail(name, "be ROW.COLUMN~VALUE, separated by ';'", part)
        found[int(place[1]), int(place[2])] = value
    return sorted(found.items())


def _lottery(text: str) -> Lottery:
    """``0.6:100,0.4:-100`` as (probability, reward) pairs."""
    parts = text.split(",")
    _checks.require(len(parts) == DRAWS, "volatile", "have two rewards", len(parts))
    pairs = [part.partition(":") for part in parts]
    return tuple((number("p of volatile", p), reward("volatile", r)) for p, _, r in pairs)


def reward(name: str, text: str) -> float:
    """A reward from text."""
    return _checks.between(name, number(name, text), f"[-{LARGEST:g}, {LARGEST:g}]")
