"""The playground's server: it parses links (:mod:`safereplay.web.state`), calls the public API, and returns JSON."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response, StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ConfigDict, ValidationError

from .. import __version__
from ..errors import SafeReplayError
from . import recorded
from .kinds import learner_dials
from .recorded import PAGE
from .state import LearnerLink, LearnLink, OpenLink, StateLink, TuneLink, WorldLink, menu
from .workers import Unanswered, WorkerPool

if TYPE_CHECKING:
    from .answers import Streams, Target

Number = float | None  #: None if it is not finite
Dials = dict[str, float | str | None]  #: of a learner, and its kind


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
    left: Dials
    right: Dials
    epsilon: float
    seeds: int
    limit: float


class Preset(Shape):
    """A world to start from."""

    name: str
    title: str
    about: str
    group: str
    world: WorldShape


class SliderShape(Shape):
    """The slider of one dial."""

    symbol: str
    label: str
    hint: str
    min: float
    max: float
    step: float


class ChoiceShape(Shape):
    """A value of a dial that is a word; a scheme has a formula and dials of its own."""

    value: str
    title: str
    about: str
    formula: str | None = None
    dials: dict[str, float] | None = None
    sliders: dict[str, SliderShape] | None = None


class LearnerShape(Shape):
    """A kind of learner: its texts, the defaults and sliders of its dials, and the values of those that are words."""

    title: str
    group: str
    about: str
    formula: str
    defaults: Dials
    sliders: dict[str, SliderShape]
    choices: dict[str, list[ChoiceShape]]


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


class Modelled(Shape):
    """A model: outcomes ``first[k]`` to ``first[k + 1]`` are those of pair k = 4·s + a; flags are 0 or 1."""

    first: list[int]
    s_next: list[int]
    r: list[float]
    p: list[float]
    terminal: list[int]
    unsafe: list[int]
    ends: list[int]
    start: list[int]


class Solved(Shape):
    """The limit of a learner, exact unless ``exact`` is false; a state is a place in ``cells``, actions are 0 up, 1 right, 2 down, 3 left."""

    cells: list[tuple[int, int]]
    terminal: list[bool]
    start: list[int]
    origin: int
    Q: list[list[float]]
    policy: list[int]
    path: list[int]
    end: str
    verdict: str
    way: str
    exact: bool
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
    learner: Dials
    v_smallest: float
    summary: list[tuple[str, str]]
    plain: Point
    plan: Point
    frontier: list[Point]
    ceiling: list[Best]


SOON, LATER = 10.0, 60.0  # seconds that an answer and a tuning may take
LOADING = 1.0  # seconds in which a browser can load the page and its recorded answers before workers need the processor
#: Requests that workers answer in advance, while they are idle: one of each family of learners, and a large world.
WARM_UPS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    *((job, learner, {}) for learner in ("q", "replay,mixing:matched") for job in ("prepare", "solve")),
    *(("solve", learner, {}) for learner in ("replay", "design", "mihatsch", "gaskett")),
    *(("solve", learner, {}) for learner in ("error-states", "lagrangian", "prioritised", "backward", "dyna")),
    ("solve", "replay,mixing:matched", {"world": "blank", "map": "/".join(["20"] * 18 + ["9XX9", "S18G"])}),
)
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
    """Start the workers once the server is listening."""
    quick, slow = WorkerPool(max(2, os.cpu_count() or 1)), WorkerPool(SLOW)
    app.state.quick, app.state.slow, app.state.streams = quick, slow, None
    starting = asyncio.ensure_future(_start(app))
    try:
        yield
    finally:
        starting.cancel()
        quick.close()
        slow.close()


async def _start(app: FastAPI) -> None:
    """Start the workers, those of sliders first, and import here what streams need."""
    quick: WorkerPool = app.state.quick
    for job, learner, world in WARM_UPS:
        quick.warm(job, LearnerLink(learner=learner, **world).model_dump())
    await quick.start_soon(LOADING)
    await quick.ready()
    app.state.slow.start()
    await asyncio.to_thread(import_module, ".answers", __package__)


def _streams(app: FastAPI) -> Streams:
    """The streams of the server."""
    from . import answers

    async def target(link: LearnLink) -> Target:
        asked = LearnerLink(**{name: getattr(link, name) for name in LearnerLink.model_fields})
        return answers.Target.of(link, json.loads(await _answer(app.state.quick, "solve", asked, SOON)))

    app.state.streams = app.state.streams or answers.Streams(target)
    found: Streams = app.state.streams
    return found


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
    return JSONResponse(menu())


@router.get("/api/learners", response_model=dict[str, LearnerShape], tags=["worlds"])
def list_learners() -> Any:
    """The dials of each kind of learner."""
    return JSONResponse(learner_dials())


@router.get("/api/state", response_model=StateShape | QuietProblem, tags=["worlds"])
def read_link(link: Annotated[OpenLink, Query()]) -> Any:
    """The whole state of the page for a link. Unknown parameters are ignored, and the world may be unfinished."""
    return JSONResponse(link.to_state())


@router.get("/api/solve", response_model=Solved | QuietProblem, tags=["limits"])
async def solve(request: Request, link: Annotated[LearnerLink, Query()]) -> Any:
    """The limit of a learner, its path, and its risk."""
    return await _asked(request.app.state.quick, "solve", link, SOON)


@router.get("/api/model", response_model=Modelled | QuietProblem, tags=["worlds"])
async def model(request: Request, link: Annotated[WorldLink, Query()]) -> Any:
    """The model of a world: the outcomes of every move."""
    return await _asked(request.app.state.quick, "model", link, SOON)


@router.get("/api/switches", response_model=Switched | QuietProblem, tags=["limits"])
async def switches(request: Request, link: Annotated[LearnerLink, Query()]) -> Any:
    """The smallest dial at which each state's action changes."""
    return await _asked(request.app.state.slow, "switches", link, LATER)


@router.get("/api/tune", response_model=Tuned | QuietProblem, tags=["limits"])
async def tune(request: Request, link: Annotated[TuneLink, Query()]) -> Any:
    """The gentlest replay that keeps a limit on P(unsafe)."""
    return await _asked(request.app.state.slow, "tune", link, LATER)


async def _asked(pool: WorkerPool, name: str, link: WorldLink, seconds: float) -> Response:
    """The answer to job ``name``, as JSON."""
    return Response(await _answer(pool, name, link, seconds), media_type="application/json")


async def _answer(pool: WorkerPool, name: str, link: WorldLink, seconds: float) -> bytes:
    """The recorded answer to job ``name``, or that of a worker."""
    found = recorded.answer_to(name, link)
    return await pool.call(name, link.model_dump(), seconds) if found is None else found


EVENTS = _text("text/event-stream", {"type": "object"})


@router.get("/api/learn", response_class=StreamingResponse, responses=EVENTS, tags=["learning"])
async def learn(request: Request, link: Annotated[LearnLink, Query()]) -> Response:
    """A running learner, as server-sent events: preparing, frame, paused, done, problem."""
    seen = request.headers.get("last-event-id", "")
    if seen.isascii() and seen.isdigit() and len(seen) <= 7:
        link = link.model_copy(update={"since": min(int(seen), link.until)})
    link.check()
    from . import answers

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    events = answers.as_sent(_streams(request.app).frames(link))
    return StreamingResponse(events, media_type="text/event-stream", headers=headers)


@router.websocket("/api/learn")
async def learn_over_socket(socket: WebSocket) -> None:
    """The same over a web socket."""
    from . import answers

    await socket.accept()
    try:
        link = LearnLink.model_validate(dict(socket.query_params))
        link.check()
    except (ValidationError, SafeReplayError) as error:
        await socket.send_text(answers.Event("problem", {"detail": reason(error)}).message())
        await socket.close()
    else:
        await answers.over_socket(_streams(socket.app).frames(link), socket)


@router.get("/api/script", response_class=Response, responses=_text("text/x-python"), tags=["export"])
async def script(request: Request, link: Annotated[StateLink, Query()]) -> Response:
    """The study as a Python script."""
    found = json.loads(await request.app.state.quick.call("study", link.model_dump(), SOON))
    return _attachment(found["text"], "study.py", "text/x-python")


@router.get("/api/map", response_class=Response, responses=_text("text/plain"), tags=["export"])
def map_of_world(link: Annotated[WorldLink, Query()]) -> Response:
    """The world as a map file that ``safereplay solve`` reads."""
    from . import answers

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
    return FileResponse(plotly_file(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})


def plotly_file() -> Path:
    """The file of Plotly in its package, which is not imported."""
    package = find_spec("plotly")
    return Path(str(package and package.origin)).parent / "package_data" / "plotly.min.js"
