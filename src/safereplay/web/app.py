"""The playground's server: it parses links (:mod:`safereplay.web.state`), calls the public API, and returns JSON."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import plotly
from fastapi import APIRouter, FastAPI, Query, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, ValidationError

from .. import __version__
from ..errors import SafeReplayError
from . import answers
from .state import TITLES, LearnerLink, LearnLink, Side, StateLink, TuneLink, WorldLink, learner_dials, presets
from .workers import Unanswered, WorkerPool

Number = float | None  #: None if it is not finite


class Shape(BaseModel):
    """A response with exactly these fields."""

    model_config = ConfigDict(extra="forbid")


class Problem(Shape):
    """Why a request was refused, in one sentence."""

    detail: str


class QuietProblem(Shape):
    """The same, if the request has ``quiet``."""

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


class StateShape(Shape):
    """The whole state of the page."""

    world: WorldShape
    left: Side
    right: Side
    epsilon: float
    seeds: int
    limit: float


class Preset(Shape):
    """A world to start from."""

    name: str
    title: str
    about: str
    world: WorldShape


class SliderShape(Shape):
    """The slider of one dial."""

    symbol: str
    label: str
    hint: str
    min: float
    max: float
    step: float


class LearnerShape(Shape):
    """The defaults of a kind of learner, and the sliders of its dials."""

    defaults: dict[str, float | str | None]
    sliders: dict[str, SliderShape]


class RiskShape(Shape):
    """The risk of a policy, from the start cells."""

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


class ReplayedShape(Shape):
    """A move that is replayed: ρ, the share of its updates that are replays, and the outcome that is replayed."""

    state: int
    action: int
    rho: float
    s_next: int
    r: float
    p: float
    p_shaped: float
    value: float
    value_shaped: float


class DesignShape(Shape):
    """A designed replay: its limit on P(unsafe) and the range of it, its learner, and the moves that are replayed."""

    limit: float
    min: float
    max: float
    step: float
    learner: dict[str, Any]
    replays: list[ReplayedShape]


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
    design: DesignShape | None
    note: str


class Switched(Shape):
    """The smallest dial at which the action of each state changes, and the new action."""

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
    """The best mean of all policies at a risk."""

    risk: float
    mean: Number


class Tuned(Shape):
    """The gentlest replay under a limit, and the frontier."""

    meets: bool
    confirmed: bool
    learner: Side
    v_smallest: float
    summary: list[tuple[str, str]]
    plain: Point
    plan: Point
    frontier: list[Point]
    ceiling: list[Best]


PAGE = Path(__file__).parent / "page"
SOON, LATER = 10.0, 60.0  # seconds that an answer and a tuning may take
SLOW = 2  # workers for tuning and for switches, so that sliders never wait for them
ABOUT = (
    "Every request is a GET with the parameters of a link to the page. Exact answers have a time limit; learning "
    "is a stream of server-sent events. A refused request gets a 4xx and one sentence."
)
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": description}
    for status, description in {
        403: "Origin or Host is not this server's",
        405: "Neither GET nor HEAD",
        408: "The request took too long to arrive",
        413: "The body is too large",
        414: "The address is too long",
        422: "Invalid; one sentence says why",
        429: "Too many requests are waiting",
        503: "Too many requests at a time, or a worker was lost",
    }.items()
}
router = APIRouter()


def create_app() -> FastAPI:
    """The server, without the guard around it (:mod:`safereplay.web.serving`)."""
    app = FastAPI(
        title="safereplay playground",
        version=__version__,
        description=ABOUT,
        lifespan=_lifespan,
        docs_url=None,
        redoc_url=None,
        responses=REFUSALS,
        exception_handlers={RequestValidationError: _refuse, SafeReplayError: _refuse},
    )
    app.include_router(router)
    app.mount("/page", StaticFiles(directory=PAGE), name="page")
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Start the workers with the server, and prepare what the first request needs."""
    presets()
    app.openapi()
    async with WorkerPool(max(2, os.cpu_count() or 1)) as quick, WorkerPool(SLOW) as slow:
        quick.warm("solve", LearnerLink(learner="replay").model_dump())

        async def target(link: LearnLink) -> answers.Target:
            parameters = {name: getattr(link, name) for name in LearnerLink.model_fields}
            return answers.Target.of(link, json.loads(await quick.call("solve", parameters, SOON)))

        app.state.quick, app.state.slow, app.state.streams = quick, slow, answers.Streams(target)
        yield


async def _refuse(request: Request, error: Any) -> Response:
    """A refusal, quiet if the request says so."""
    status = error.status if isinstance(error, Unanswered) else 422
    sentence = " ".join(reason(error).split())
    if request.query_params.get("quiet") in ("1", "true"):
        return JSONResponse({"problem": sentence, "status": status})
    return JSONResponse({"detail": sentence}, status)


def reason(error: Any) -> str:
    """The message of an error; of parameters, their first error in the form of this package's messages."""
    if isinstance(error, SafeReplayError):
        return str(error)
    fault = error.errors()[0]
    name = fault["loc"][-1] if fault["loc"] else "request"
    if fault["type"] == "extra_forbidden":
        return f"unknown parameter '{str(name)[:40]}'"
    condition = fault["msg"].removeprefix("Input should ").removeprefix("String should ")
    condition = "be text" if condition == fault["msg"] else condition
    return f"{name} must {condition}, got {str(fault.get('input'))[:40]!r}"


def _text(kind: str, schema: dict[str, Any] | None = None) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI description of a text response, or of a quiet refusal."""
    quiet = {"application/json": {"schema": QuietProblem.model_json_schema()}}
    return {200: {"content": {kind: {"schema": schema or {"type": "string"}}, **quiet}, "description": "Text"}}


@router.get("/api/presets", response_model=list[Preset], tags=["worlds"])
def list_presets() -> Any:
    """The worlds to start from."""
    worlds = {name: world.to_dict() for name, world in presets().items()}
    return JSONResponse([{"name": n, "title": t, "about": a, "world": worlds[n]} for n, (t, a) in TITLES.items()])


@router.get("/api/learners", response_model=dict[str, LearnerShape], tags=["worlds"])
def list_learners() -> Any:
    """The dials of each kind of learner."""
    return JSONResponse(learner_dials())


@router.get("/api/state", response_model=StateShape | QuietProblem, tags=["worlds"])
def read_link(link: Annotated[StateLink, Query()]) -> Any:
    """The whole state of the page for a link."""
    return JSONResponse(link.to_state())


@router.get("/api/solve", response_model=Solved | QuietProblem, tags=["limits"])
async def solve(request: Request, link: Annotated[LearnerLink, Query()]) -> Any:
    """The exact limit of a learner, its path, and its risk."""
    return await _asked(request.app.state.quick, "solve", link, SOON)


@router.get("/api/switches", response_model=Switched | QuietProblem, tags=["limits"])
async def switches(request: Request, link: Annotated[LearnerLink, Query()]) -> Any:
    """The smallest dial at which each state's action changes."""
    return await _asked(request.app.state.slow, "switches", link, LATER)


@router.get("/api/tune", response_model=Tuned | QuietProblem, tags=["limits"])
async def tune(request: Request, link: Annotated[TuneLink, Query()]) -> Any:
    """The gentlest replay that keeps a limit on P(unsafe)."""
    return await _asked(request.app.state.slow, "tune", link, LATER)


async def _asked(pool: WorkerPool, name: str, link: LearnerLink, seconds: float) -> Response:
    """The answer of a worker to job ``name``, as JSON."""
    return Response(await pool.call(name, link.model_dump(), seconds), media_type="application/json")


EVENTS = _text("text/event-stream", {"type": "object"})


@router.get("/api/learn", response_class=StreamingResponse, responses=EVENTS, tags=["learning"])
async def learn(request: Request, link: Annotated[LearnLink, Query()]) -> Response:
    """A running learner, as server-sent events: preparing, frame, paused, done, problem."""
    seen = request.headers.get("last-event-id", "")
    if seen.isascii() and seen.isdigit() and len(seen) <= 7:
        link = link.model_copy(update={"since": min(int(seen), link.until)})
    link.check()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    events = answers.as_sent(request.app.state.streams.frames(link))
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


@router.websocket("/api/learn")
async def learn_over_socket(socket: WebSocket) -> None:
    """The same over a web socket."""
    await socket.accept()
    try:
        link = LearnLink.model_validate(dict(socket.query_params))
        link.check()
    except (ValidationError, SafeReplayError) as error:
        await socket.send_text(answers.Event("problem", {"detail": reason(error)}).message())
        await socket.close()
    else:
        await answers.over_socket(socket.app.state.streams.frames(link), socket)


@router.get("/api/script", response_class=Response, responses=_text("text/x-python"), tags=["export"])
async def script(request: Request, link: Annotated[StateLink, Query()]) -> Response:
    """The study as a Python script."""
    found = json.loads(await request.app.state.quick.call("study", link.model_dump(), SOON))
    return _attachment(found["text"], "study.py", "text/x-python")


@router.get("/api/map", response_class=Response, responses=_text("text/plain"), tags=["export"])
def map_of_world(link: Annotated[WorldLink, Query()]) -> Response:
    """The world as a map file that ``safereplay solve`` reads."""
    world = link.to_world()
    return _attachment(answers.world_file(world), f"{world.name}.map", "text/plain")


def _attachment(text: str, name: str, kind: str) -> Response:
    return Response(text, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


@router.get("/", include_in_schema=False)
def page() -> FileResponse:
    """The page."""
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})


@router.get("/docs", include_in_schema=False)
def docs() -> FileResponse:
    """The page about the API."""
    return FileResponse(PAGE / "docs.html", headers={"Cache-Control": "no-cache"})


@router.get("/plotly.js", include_in_schema=False)
def charts() -> FileResponse:
    """Plotly, from its package."""
    bundle = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return FileResponse(bundle, media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})
