"""The shapes of the server's replies, for its OpenAPI description."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Number = float | None  #: None where there is no finite number


class Shape(BaseModel):
    """A reply, with these fields and no others."""

    model_config = ConfigDict(extra="forbid")


class Problem(Shape):
    """Why a request was refused, in one sentence."""

    detail: str


class QuietProblem(Shape):
    """The same, where it was asked for with quiet."""

    problem: str
    status: int


class WorldShape(Shape):
    """A world as the page holds it; cells are written 'row,column'."""

    name: str
    rows: list[str]
    goal: float
    goals: dict[str, float]
    step: float
    hazard: float
    volatile: list[tuple[float, float]]
    volatiles: dict[str, list[tuple[float, float]]]
    slip: float
    slip_to: str
    fall_ends: bool
    goal_slips: bool
    start: str
    gamma: float


class SideShape(Shape):
    """A learner and those dials that it has."""

    kind: str
    v: float | None = None
    beta: float | None = None
    kappa: float | None = None
    mixing: str | None = None
    scheme: str | None = None


class StateShape(Shape):
    """The whole state of the page."""

    world: WorldShape
    left: SideShape
    right: SideShape
    epsilon: float
    seeds: int
    limit: float


class Preset(Shape):
    """A world to begin from."""

    name: str
    title: str
    about: str
    world: WorldShape


class RiskShape(Shape):
    """The risk of a policy, from where episodes are judged."""

    mean: Number
    std: Number
    p_unsafe: Number
    p_never: Number
    length: Number
    cvar10: Number


class DistributionShape(Shape):
    """The distribution of the return, in a few bars."""

    returns: list[float]
    probabilities: list[float]
    exact: bool


class Solved(Shape):
    """The exact limit of a learner; a state is a place in ``cells``, actions are 0 up, 1 right, 2 down, 3 left."""

    cells: list[tuple[int, int]]
    terminal: list[bool]
    start: list[int]
    origin: int
    Q: list[list[float]]
    policy: list[int]
    path: list[int]
    end: str
    verdict: str
    risk: RiskShape
    distribution: DistributionShape | None
    label: str
    limits: int
    note: str


class Switched(Shape):
    """Where the action of each state first changes as a dial is turned up, and to what."""

    dial: str
    first: list[Number]
    to: list[int]


class Point(Shape):
    """A replay and its exact risk."""

    v: Number
    beta: Number
    mean: Number
    p_unsafe: Number
    pareto: bool


class Best(Shape):
    """The best mean that any policy has at a risk."""

    risk: float
    mean: Number


class Tuned(Shape):
    """The gentlest replay under a limit, and what else there is."""

    meets: bool
    confirmed: bool
    learner: SideShape
    v_smallest: float
    summary: list[tuple[str, str]]
    plain: Point
    plan: Point
    frontier: list[Point]
    ceiling: list[Best]
