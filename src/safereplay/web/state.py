"""The state of the playground: worlds and links; learners are in :mod:`safereplay.web.kinds`.

A *world* is a map, its rewards and its winds. A link writes a map like a chess position (FEN): rows are separated by
``/``, a number is a run of free cells, W is a wall, S G X are as on any map, and u r d l are volatile moves up, right,
down and left. ``6/6/6/SXXXXG`` is the cliff.

A *link* is the whole state as query parameters. To be short, it has only what differs from a preset world. Each field
has its bounds here, so that invalid values never reach the solvers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

import safereplay as sr

from .. import _checks
from .kinds import Side, number

Cell = tuple[int, int]
Lottery = tuple[tuple[float, float], ...]

MOST = 20  # rows, and columns
LARGEST = 1e6  # the largest |reward|
DRAWS = 2  # rewards of a volatile move: the page has two fields
LETTERS = {"W": "#", "S": "S", "G": "G", "X": "X", "u": "^", "r": ">", "d": "v", "l": "<"}
RENAMED = {"rewards": "volatile"}  # name in a named grid -> name in a map

PAPER, SLIPPERY, GAMBLES, OWN = "The paper's grids", "Slippery ground", "Gambles", "Your own"


class Title(NamedTuple):
    """The texts of a preset world."""

    title: str
    about: str
    group: str


#: The preset worlds, in the menu's order.
TITLES = {
    "cliff": Title(
        "The cliff",
        "The paper's second grid: the short way to the goal runs along an edge, and steps may slip.",
        PAPER,
    ),
    "volatile": Title("The volatile row", "The paper's first grid: the short way pays +100 or −100 per step.", PAPER),
    "bridge": Title(
        "The bridge", "A narrow bridge is short, and one slip from the chasm. The way round is long.", SLIPPERY
    ),
    "ledge": Title(
        "The windy ledge", "The wind blows towards the drop: the nearer the edge, the shorter the way.", SLIPPERY
    ),
    "frozen_lake": Title("FrozenLake", "Gymnasium's slippery lake: two of three steps go sideways.", SLIPPERY),
    "lake": Title("FrozenLake, large", "The same lake with 8×8 cells: a patient agent never falls.", SLIPPERY),
    "lottery": Title(
        "The lottery", "A shortcut through cells that mostly pay a little and sometimes cost a lot.", GAMBLES
    ),
    "blank": Title("An empty field", "Draw your own.", OWN),
}
LAKE = ("S.......", "........", "...X....", ".....X..", "...X....", ".XX...X.", ".X..X.X.", "...X...G")


@dataclass(frozen=True)
class World:
    """A map and all arguments of ``sr.grids.from_map``."""

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
        """The form that the page uses."""
        named = {key: {f"{i},{j}": x for (i, j), x in getattr(self, key)} for key in ("goals", "volatiles")}
        return {f.name: getattr(self, f.name) for f in fields(self)} | named

    def options(self) -> dict[str, Any]:
        """The arguments of ``sr.grids.from_map``, except the map."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("name", "rows")}
        return {**values, "goals": dict(self.goals), "volatiles": dict(self.volatiles)}

    def mdp(self) -> sr.TabularMDP:
        """The model."""
        return _model(self)

    def judged(self) -> list[int]:
        """The start states of judged episodes: the cells marked S, else the model's origin."""
        mdp = self.mdp()
        layout = mdp.layout
        marked = [s for s, (i, j) in enumerate(layout.cells) if self.rows[i][j] == "S"] if layout else []
        return marked or [mdp.origin]

    def start_distribution(self) -> Any:
        """The same as an argument of ``sr.evaluate``: a state, or probabilities [S]."""
        states = self.judged()
        if len(states) == 1:
            return states[0]
        return np.bincount(states, minlength=self.mdp().n_states) / len(states)


@lru_cache(maxsize=64)
def _model(world: World) -> sr.TabularMDP:
    return sr.grids.from_map("\n".join(world.rows), name=world.name, **world.options())


@lru_cache(maxsize=1)
def presets() -> dict[str, World]:
    """The preset worlds by name: the library's grids, its large lake, and an empty field."""
    known, grids = {f.name for f in fields(World)}, {}
    for name, build in sr.grids.NAMED.items():
        settings = {RENAMED.get(p.name, p.name): p.default for p in inspect.signature(build).parameters.values()}
        chosen = {key: value for key, value in settings.items() if key in known}
        if "volatile" in chosen:
            chosen["volatile"] = tuple((float(p), float(r)) for p, r in chosen["volatile"])
        mdp = build()
        rows = tuple(mdp.layout.rows if mdp.layout is not None else ())
        marked = "".join(rows).count("S")
        chosen["start"] = "S" if np.count_nonzero(mdp.start) == marked else "uniform"
        grids[name] = World(name, rows, **chosen)
    grids["lake"] = replace(grids["frozen_lake"], name="lake", rows=LAKE, gamma=0.99)
    grids["blank"] = World("blank", ("........",) * 5 + ("S......G",), slip=0.1, gamma=0.95)
    return {name: grids[name] for name in TITLES}


def menu() -> list[dict[str, Any]]:
    """The preset worlds and their texts, as the page gets them."""
    return [{"name": name, **TITLES[name]._asdict(), "world": world.to_dict()} for name, world in presets().items()]


def changed(world: World, parts: dict[str, Any]) -> World:
    """The world with the changes of a link; each value as the link writes it."""
    given = {name: value for name, value in parts.items() if value is not None}
    if "map" in given:
        world = replace(world, rows=parse_map(given.pop("map")), goals=(), volatiles=())
    readers: dict[str, Callable[[str], Any]] = {
        "goals": lambda text: tuple((cell, _reward("goals", x)) for cell, x in _by_cell("goals", text)),
        "volatiles": lambda text: tuple((cell, _lottery(x)) for cell, x in _by_cell("volatiles", text)),
        "volatile": _lottery,
    }
    return replace(world, **{name: readers[name](x) if name in readers else x for name, x in given.items()})


def parse_map(text: str) -> tuple[str, ...]:
    """The rows of a map as a link writes it.

    >>> parse_map("3/rW1/SXG")
    ('...', '>#.', 'SXG')
    """
    lines = text.split("/")
    _checks.require(len(lines) <= MOST, "map", f"have at most {MOST} rows", len(lines))
    rows = tuple(_row(line) for line in lines)
    lengths = [len(row) for row in rows]
    _checks.require(len(set(lengths)) == 1, "map", "have rows of equal length", lengths)
    return rows


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
    return tuple((number("p of volatile", p), _reward("volatile", r)) for p, _, r in pairs)


def _reward(name: str, text: str) -> float:
    return _checks.between(name, number(name, text), f"[-{LARGEST:g}, {LARGEST:g}]")


Reward = Annotated[float, Field(ge=-LARGEST, le=LARGEST, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=4_000)]
SideText = Annotated[str, Field(max_length=200, examples=["replay,v:0.5,beta:5,mixing:literal,scheme:variance"])]
Name = Literal["cliff", "volatile", "bridge", "ledge", "frozen_lake", "lake", "lottery", "blank"]
SlipTo = Literal["any", "others", "sides", "up", "right", "down", "left"]


class WorldLink(BaseModel):
    """A world: a preset, and the changes to it; and the parameter ``quiet`` of every request."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    quiet: bool = Field(
        default=False, description='Answer a refused request with status 200 and {"problem", "status"}.'
    )
    world: Name = Field(default="cliff", description="The preset world.")
    map: Text | None = Field(
        default=None, description="Rows separated by /; numbers are free cells, W S G X u r d l other cells."
    )
    goal: Reward | None = Field(default=None, description="The reward of a goal.")
    goals: Text | None = Field(default=None, description="Rewards of single goals: 3.5~50;0.1~20.")
    step: Reward | None = Field(default=None, description="The reward of a step.")
    hazard: Reward | None = Field(default=None, description="The reward of a fall.")
    volatile: Text | None = Field(default=None, description="Probability:reward of a volatile move: 0.6:100,0.4:-100.")
    volatiles: Text | None = Field(default=None, description="Rewards of single volatile cells: 1.0~0.9:4,0.1:-60.")
    slip: Share | None = Field(default=None, description="The probability that a step slips.")
    slip_to: SlipTo | None = Field(default=None, description="Where a slip goes; a direction is a wind.")
    fall_ends: bool | None = Field(
        default=None, description="Whether a fall ends the episode; else it leads back to the start."
    )
    goal_slips: bool | None = Field(default=None, description="Whether a step into a goal can slip.")
    start: Literal["uniform", "S"] | None = Field(
        default=None, description="Where training episodes start: anywhere, or at S."
    )
    gamma: float | None = Field(default=None, gt=0.0, le=0.999, allow_inf_nan=False, description="The discount γ.")

    def to_world(self) -> World:
        """The world of the link."""
        own = {name: getattr(self, name) for name in WorldLink.model_fields if name not in ("quiet", "world")}
        return changed(presets()[self.world], own)


class LearnerLink(WorldLink):
    """A request about one learner in a world."""

    learner: SideText = Field(default="q", description="A learner and its dials.")
    epsilon: Share = Field(default=0.1, description="ε of the exploration.")

    def to_side(self) -> Side:
        """The learner of the link."""
        return Side.parse(self.learner)

    def check(self) -> None:
        """Refuse an invalid world or learner."""
        self.to_world().mdp()
        self.to_side()


class LearnLink(LearnerLink):
    """A stream of a running learner."""

    seeds: int = Field(default=1, ge=1, le=9, description="The number of parallel runs.")
    since: int = Field(default=0, ge=0, le=2_000_000, description="The number of iterations that the client has seen.")
    by: int = Field(default=200, ge=1, le=50_000, description="Iterations per frame.")
    until: int = Field(default=200_000, ge=1, le=2_000_000, description="The last iteration.")
    frames: int = Field(default=100_000, ge=1, le=100_000, description="Frames after which the stream pauses.")
    pace: int = Field(
        default=100, ge=40, le=5_000, description="The smallest time between two frames, in milliseconds."
    )


class TuneLink(LearnerLink):
    """The gentlest replay under a limit."""

    learner: SideText = Field(default="replay,mixing:matched", description="The replay to tune.")
    limit: Share = Field(default=0.04, description="The largest P(unsafe).")


class StateLink(WorldLink):
    """The whole state of the page."""

    left: SideText = Field(default="q", description="The learner of the left pane.")
    right: SideText = Field(default="replay,mixing:matched", description="The learner of the right pane.")
    epsilon: Share = Field(default=0.1, description="ε of the exploration.")
    seeds: int = Field(default=1, ge=1, le=9, description="The number of parallel runs when learning.")
    limit: Share = Field(default=0.04, description="The limit on P(unsafe) when tuning.")

    def to_state(self) -> dict[str, Any]:
        """The form that the page uses. The world may be unfinished: only requests about a model build one."""
        sides = {name: Side.parse(getattr(self, name)) for name in ("left", "right")}
        return {
            "world": self.to_world().to_dict(),
            **{name: side.to_dict() for name, side in sides.items()},
            **{name: getattr(self, name) for name in ("epsilon", "seeds", "limit")},
        }


class OpenLink(StateLink):
    """The same, with parameters of other programs, which are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)
