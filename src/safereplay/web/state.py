"""The state of the playground: sides, worlds and links.

A *side* is one learner and its dials, as the page and its links write them. Dials that are left out have their defaults.

    q        replay,v:0.5,beta:5,mixing:matched,scheme:variance        mihatsch,kappa:0.6        gaskett,beta:0.2
    design,limit:0.035

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
from math import isfinite
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

import safereplay as sr

from .. import _checks, catalog
from .._config import SYMBOLS, Dial

SCHEMES: dict[str, type[sr.Scheme]] = {"variance": sr.VarianceReplay, "score": sr.ScoreReplay}
#: The numeric dials of each kind of learner, with their defaults.
DIALS: dict[str, dict[str, tuple[Dial, Any]]] = {
    kind: catalog.learner(kind).dials()
    for kind in ("q", "replay", "mihatsch", "gaskett", "worst-case", "worst-transition")
}
DIALS["replay"] |= sr.VarianceReplay.dials()
LIMIT = Dial("[0, 1]", "on risk", "the largest P(unsafe)", (0.0, 1.0, 0.001))
DIALS["design"] = {"limit": (LIMIT, None)}  # None: a limit that depends on the world
#: All dials of each kind of learner, with their defaults.
KINDS: dict[str, dict[str, Any]] = {
    kind: {name: default for name, (_, default) in found.items()} for kind, found in DIALS.items()
}
KINDS["replay"] |= {"mixing": sr.ReplayQLearning.mixing, "scheme": "variance"}
BOUNDS = {"v": "[0, 0.9999]", "kappa": "[-0.99, 0.99]", "limit": LIMIT.interval}
BETAS = {"replay": "[-100, 100]", "gaskett": "[0, 1]"}
WORDS = {"mixing": ("literal", "matched"), "scheme": tuple(SCHEMES)}


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Side:
    """A learner's kind and its dials; None for dials that it does not have, and for a limit that depends on the world."""

    kind: str
    v: float | None = None
    beta: float | None = None
    kappa: float | None = None
    mixing: str | None = None
    scheme: str | None = None
    limit: float | None = None

    @staticmethod
    def parse(text: str) -> Side:
        """A side from its text.

        >>> Side.parse("replay,v:0.3,mixing:matched").to_dict()
        {'kind': 'replay', 'v': 0.3, 'beta': 5.0, 'mixing': 'matched', 'scheme': 'variance'}
        """
        kind, *parts = text.split(",")
        dials = dict(KINDS[_checks.choice("learner", kind, KINDS)])
        for part in parts:
            name, _, value = part.partition(":")
            _checks.require(name in dials, f"dial of {kind}", f"be one of {', '.join(dials) or 'none'}", name)
            if name in WORDS:
                dials[name] = _checks.choice(name, value, WORDS[name])
            else:
                bounds = BETAS[kind] if name == "beta" else BOUNDS[name]
                dials[name] = _checks.between(name, number(name, value), bounds)
        return Side(kind, **dials)

    @property
    def text(self) -> str:
        """The text that :meth:`parse` reads."""
        given = {name: x for name, x in self.dials().items() if x is not None}
        dials = {name: x if isinstance(x, str) else f"{x:.10g}" for name, x in given.items()}
        return ",".join([self.kind, *(f"{name}:{x}" for name, x in dials.items())])

    def to_dict(self) -> dict[str, Any]:
        """The form that the page uses."""
        return {"kind": self.kind, **self.dials()}

    def dials(self) -> dict[str, Any]:
        """The dials of this learner."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: values[name] for name in KINDS[self.kind]}


def learner_dials() -> dict[str, Any]:
    """The defaults and sliders of each kind of learner."""
    dials: dict[str, Any] = {kind: {"defaults": defaults, "sliders": {}} for kind, defaults in KINDS.items()}
    for kind, found in DIALS.items():
        for name, (about, _) in found.items():
            if about.slider:
                ends = dict(zip(("min", "max", "step"), about.slider, strict=True))
                text = {"symbol": SYMBOLS.get(name, name), "label": about.label, "hint": about.hint}
                dials[kind]["sliders"][name] = text | ends
    return dials


def number(name: str, text: str) -> float:
    """A finite number from text.

    >>> number("goal", "-1.5")
    -1.5
    """
    try:
        value = float(text) if text.isascii() and "_" not in text else float("nan")
    except ValueError:
        value = float("nan")
    _checks.require(isfinite(value), name, "be a number", text)
    return value


Cell = tuple[int, int]
Lottery = tuple[tuple[float, float], ...]

MOST = 20  # rows, and columns
LARGEST = 1e6  # the largest |reward|
DRAWS = 2  # rewards of a volatile move: the page has two fields
LETTERS = {"W": "#", "S": "S", "G": "G", "X": "X", "u": "^", "r": ">", "d": "v", "l": "<"}
RENAMED = {"rewards": "volatile"}  # name in a named grid -> name in a map

#: The preset worlds, in the menu's order: title and description.
TITLES = {
    "cliff": (
        "The cliff",
        "The paper's second grid: the short way to the goal runs along an edge, and steps may slip.",
    ),
    "volatile": ("The volatile row", "The paper's first grid: the short way pays +100 or −100 per step."),
    "frozen_lake": ("FrozenLake", "Gymnasium's slippery lake: two of three steps go sideways."),
    "bridge": ("The bridge", "A narrow bridge is short, and one slip from the chasm. The way round is long."),
    "lottery": ("The lottery", "A shortcut through cells that mostly pay a little and sometimes cost a lot."),
    "ledge": ("The windy ledge", "The wind blows towards the drop: the nearer the edge, the shorter the way."),
    "blank": ("An empty field", "Draw your own."),
}


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
    """The preset worlds by name: the library's grids, and an empty field."""
    known, found = {f.name for f in fields(World)}, {}
    for name in (name for name in TITLES if name != "blank"):
        build = sr.grids.NAMED[name]
        settings = {RENAMED.get(p.name, p.name): p.default for p in inspect.signature(build).parameters.values()}
        chosen = {key: value for key, value in settings.items() if key in known}
        if "volatile" in chosen:
            chosen["volatile"] = tuple((float(p), float(r)) for p, r in chosen["volatile"])
        mdp = build()
        rows = tuple(mdp.layout.rows if mdp.layout is not None else ())
        marked = "".join(rows).count("S")
        chosen["start"] = "S" if np.count_nonzero(mdp.start) == marked else "uniform"
        found[name] = World(name, rows, **chosen)
    return found | {"blank": World("blank", ("........",) * 5 + ("S......G",), slip=0.1, gamma=0.95)}


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
SideText = Annotated[str, Field(max_length=120, examples=["replay,v:0.5,beta:5,mixing:literal,scheme:variance"])]
Name = Literal["cliff", "volatile", "frozen_lake", "bridge", "lottery", "ledge", "blank"]
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
    gamma: float | None = Field(default=None, ge=0.0, le=0.999, allow_inf_nan=False, description="The discount γ.")

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
        """The form that the page uses, after all checks."""
        world = self.to_world()
        sides = {name: Side.parse(getattr(self, name)) for name in ("left", "right")}
        world.mdp()
        return {
            "world": world.to_dict(),
            **{name: side.to_dict() for name, side in sides.items()},
            **{name: getattr(self, name) for name in ("epsilon", "seeds", "limit")},
        }
