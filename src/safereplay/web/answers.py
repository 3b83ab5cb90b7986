"""Answers to the page's requests: results of the public API as JSON, streams of running learners, and exports.

A job takes the parameters of a link and returns plain JSON types. It runs in a worker process that can be stopped
(:mod:`safereplay.web.workers`). Exports are a study as a Python script, and a world as a map file.

A stream is a running learner as events: over a web socket, or as server-sent events. A run is a pure function of its
seed, so a stream needs no session. A request gives the number of iterations that the client has seen, and gets the next
ones, from any server. To pause, the client closes the stream; to continue, it requests it again. The server keeps the
latest few runs in a small cache. All streams share one budget of frames, so each one is slower if there are more.

The page uses a web socket: browsers allow six HTTP connections to a server for all tabs together, and six streams of
server-sent events would leave none for other requests. Web sockets do not count.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import lru_cache
from math import inf, isfinite
from typing import Any, NamedTuple

import numpy as np
from anyio import CancelScope, CapacityLimiter, create_task_group, to_thread
from starlette.websockets import WebSocket, WebSocketDisconnect

import safereplay as sr

from .. import _checks
from .._checks import Floats, Ints
from .._config import Config, plain
from ..errors import SafeReplayError
from ..theory.solver import greedy
from ..verdicts import JUMPS, NO_PATH, RISKY, SAFE, STUCK
from .kinds import Side
from .learners import design_of, design_shown, learner_of
from .state import LearnerLink, LearnLink, StateLink, TuneLink, World, WorldLink

EPISODES = 20_000  # of the run that is shown where there is no exact limit
SEARCH: dict[str, Any] = {"starts": 5, "solves": 60, "seeds": 0}  # for limits of literal mixing
LONG = 500.0  # expected steps of an episode: the distribution of longer ones is not computed
TIGHT = 5e-3  # precision of the dial at which an action changes
BARS = 120  # the most bars of a distribution
NEAR = 1e-3  # of Q's range: an average this close to a limit counts as one
TRACE = 1e-9  # probabilities up to this are not mentioned
RISKS = ("mean", "std", "p_unsafe", "p_never")
TUNING: dict[str, Any] = {"episodes": 20_000, "seeds": 20}
TRACED = 40  # the last iterations of a frame, which are shown one by one
SHARE = 0.025  # the least seconds between two frames, over all streams
KEPT = 16  # cached runs of paused streams
ABREAST = 2  # threads that learn
CHUNK = 200_000  # iterations between two checks whether the client is still connected
SEVERAL = "Literal mixing has several limits here ({} were found): the seed decides which one a run ends at."
CUT = "The search was stopped before it converged. The values shown are within {:.1%} of Q's range of a limit."
ONE_RUN = f"There is no exact limit for this learner here: the values are those of one run of {EPISODES:,} episodes."
IN_TURN = "Learning does not settle on one policy here: it alternates between several. Their mean is shown."
ENDLESS = "Under this policy an episode may never end."
UNKNOWN = "Episodes are too unlikely to end under this policy: its risk cannot be computed."
ALL_STARTS = "The line starts at the first S; the numbers are means over all S."
ROUND = "The line follows the likeliest outcome of each step, which is a loop here; episodes do end."
NO_LINE = "No path is drawn: some actions have several next states that are equally likely."
REPLAYED = "{} {} replayed, marked with red bars; v = {:.3g}."
NO_REPLAY = "No replay is needed for this limit."
GAP = "The search was stopped: another policy that keeps the limit may have a mean up to {:.3g} higher."
TOO_LONG = "The distribution of the return is not drawn: episodes are too long under this policy."


class Limits(NamedTuple):
    """The limit that is shown, and how it was found."""

    Q: Floats  #: [S, A]
    found: int = 1  #: how many limits were found
    settled: bool = True  #: whether it is the limit of a single policy
    residual: float = 0.0  #: its distance from a limit, as a share of Q's range
    exact: bool = True  #: False if it is the result of one run


@lru_cache(maxsize=512)
def limits_of(world: World, side: Side, epsilon: float) -> Limits:
    """The limit of a learner; without an exact one, the values of one run."""
    mdp, learner, exploration = world.mdp(), learner_of(world, side), sr.EpsilonGreedy(epsilon)
    try:
        if not isinstance(learner, sr.ReplayQLearning) or learner.mixing != "literal" or learner.v == 0.0:
            return Limits(sr.exact(mdp, learner))
        found = sr.fixed_point(mdp, learner.scheme, learner.v, "self", exploration, **SEARCH)
        if found:
            return Limits(found[0].Q, len(found), found[0].settled, found[0].residual)
    except sr.BadInput:  # it has no exact limit here
        pass
    runs = sr.learn(mdp, learner, EPISODES, 1, exploration, threads=1, quiet=True)
    return Limits(runs.Q[0], exact=False)


@lru_cache(maxsize=512)
def risk_of(world: World, policy: tuple[int, ...]) -> sr.RiskProfile | None:
    """The risk of a policy from the start cells; None if rounding hides the end of its episodes."""
    try:
        return sr.evaluate(world.mdp(), np.array(policy), start=world.start_distribution(), quiet=True)
    except sr.BadInput:  # the policy is valid, so this is the only possible reason
        return None


def solve(parameters: dict[str, Any]) -> dict[str, Any]:
    """The exact limit of one learner, its path, and its risk."""
    link = LearnerLink.model_validate(parameters)
    world, side = link.to_world(), link.to_side()
    mdp = world.mdp()
    limits = limits_of(world, side, link.epsilon)
    policy = greedy(limits.Q, mdp.r)
    risk = risk_of(world, tuple(policy.tolist()))
    short = risk is not None and isfinite(risk.length) and risk.length <= LONG
    tail = plain(risk.cvar(0.1)) if risk is not None and short else None
    drawn = route(mdp, policy)
    return {
        "cells": mdp.layout.cells if mdp.layout is not None else (),
        "terminal": mdp.is_terminal.tolist(),
        "start": world.judged(),
        "origin": mdp.origin,
        "Q": rounded(limits.Q),
        "policy": shown(mdp, policy),
        **drawn,
        "way": way_of(world, drawn, risk),
        "exact": limits.exact,
        "risk": {**numbers(risk, *RISKS, "length"), "cvar10": tail},
        "distribution": _bars(risk) if risk is not None and short else None,
        "label": learner_of(world, side).describe(),
        "limits": limits.found,
        "design": design_shown(world, side.dials()["limit"]) if side.kind == "design" else None,
        "note": " ".join([*_designed(world, side), *_notes(limits, risk, short, drawn["end"], len(world.judged()))]),
    }


def _designed(world: World, side: Side) -> list[str]:
    """Notes about a designed replay."""
    if side.kind != "design":
        return []
    plan = design_of(world, side.dials()["limit"])
    n, gap = len({(one.state, one.action) for one in plan.replays}), plan.price.found.gap if plan.price else 0.0
    notes = {
        NO_REPLAY: n == 0,
        REPLAYED.format(n, "move is" if n == 1 else "moves are", plan.v): n > 0,
        GAP.format(gap): gap > TRACE,
    }
    return [note for note, said in notes.items() if said]


def _notes(limits: Limits, risk: sr.RiskProfile | None, short: bool, end: str, starts: int) -> list[str]:
    """Notes about the numbers."""
    endless = risk is not None and risk.p_never > TRACE
    notes = {
        ONE_RUN: not limits.exact,
        SEVERAL.format(limits.found): limits.found > 1,
        IN_TURN: not limits.settled and limits.residual <= NEAR,
        CUT.format(limits.residual): not limits.settled and limits.residual > NEAR,
        UNKNOWN: risk is None,
        ENDLESS: endless,
        TOO_LONG: risk is not None and not short and not endless,
        ROUND: short and end == "loop",
        NO_LINE: not end,
        ALL_STARTS: starts > 1,
    }
    return [note for note, said in notes.items() if said]


def model(parameters: dict[str, Any]) -> dict[str, Any]:
    """The model of a world: outcomes ``first[k]`` to ``first[k + 1]`` are those of pair k = 4·s + a."""
    world = WorldLink.model_validate(parameters).to_world()
    mdp = world.mdp()
    flags = {"terminal": mdp.terminal, "unsafe": mdp.unsafe, "ends": mdp.is_terminal}
    numbers = {"first": mdp.row, "s_next": mdp.s_next, "r": mdp.r, "p": mdp.p}
    ones = {name: flag.astype(int).tolist() for name, flag in flags.items()}
    return {**{name: x.tolist() for name, x in numbers.items()}, **ones, "start": world.judged()}


def switches(parameters: dict[str, Any]) -> dict[str, Any]:
    """The smallest dial at which each state's action changes."""
    link = LearnerLink.model_validate(parameters)
    search = {name: SEARCH[name] for name in ("starts", "solves")} | {"exploration": sr.EpsilonGreedy(link.epsilon)}
    world = link.to_world()
    found = sr.switches(world.mdp(), learner_of(world, link.to_side()), tight=TIGHT, **search)
    return {"dial": found.dial, "first": plain(found.at), "to": found.to.tolist()}


def tune(parameters: dict[str, Any]) -> dict[str, Any]:
    """The gentlest replay that keeps a limit, and the frontier."""
    link = TuneLink.model_validate(parameters)
    world, side = link.to_world(), link.to_side()
    _checks.require(side.kind == "replay", "learner", "be a replay", side.text)
    learner: Any = learner_of(world, side)
    plan = sr.tune(
        world.mdp(),
        learner.scheme,
        max_p_unsafe=link.limit,
        start=world.start_distribution(),
        mixing=learner.mixing,
        exploration=sr.EpsilonGreedy(link.epsilon),
        quiet=True,
        **TUNING,
    )
    points = [
        {**numbers(point, "v", "beta", "mean", "p_unsafe"), "pareto": point.pareto}
        for point in (plan.plain, *plan.frontier)
    ]
    return {
        "meets": plan.meets,
        "confirmed": plan.confirmed,
        "learner": {**side.to_dict(), "v": plan.v, "beta": plan.beta},
        "v_smallest": plan.v_smallest,
        "summary": [("answer", plan.answer), *plan.rows],
        "plain": points[0],
        "plan": {"v": plan.v, "beta": plan.beta, "pareto": True, **numbers(plan.profile, "mean", "p_unsafe")},
        "frontier": points[1:],
        "ceiling": [{"risk": point.limit, "mean": plain(point.value)} for point in plan.ceiling_frontier],
    }


def study(parameters: dict[str, Any]) -> dict[str, Any]:
    """The script of a link. A worker writes it, since a designed replay takes time."""
    return {"text": script(StateLink.model_validate(parameters))}


def prepare(parameters: dict[str, Any]) -> dict[str, Any]:
    """Compile the loop of a learner by a few iterations of it, so that the server, which streams it, only loads the code."""
    link = LearnLink(**parameters)
    Runs(link, Target(learner_of(link.to_world(), link.to_side()), None)).next_frame(2 * TRACED)
    return {}


#: The jobs of the workers.
JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    job.__name__: job for job in (solve, model, switches, tune, study, prepare)
}


def route(mdp: sr.TabularMDP, policy: Ints) -> dict[str, Any]:
    """The path of a policy, and its verdict; an empty path if the model has none."""
    drawn, verdict = sr.path(mdp, policy), sr.verdict(mdp, policy)
    states, end = ((), "") if verdict == NO_PATH else (drawn.states, drawn.end)
    return {"path": states, "end": end, "verdict": verdict}


def way_of(world: World, drawn: dict[str, Any], risk: sr.RiskProfile | None) -> str:
    """How a policy gets to the goal, in a word: edge, gambles, detour, jumps, loop or stays; "" for none of them."""
    verdict = drawn["verdict"]
    if verdict == RISKY:
        return "edge" if "X" in "".join(world.rows) else "gambles"
    if verdict == SAFE:
        return "detour" if len(drawn["path"]) - 1 > _shortest(world) else ""
    if verdict == STUCK:  # slips may end it all the same
        return "loop" if risk is not None and risk.p_never > TRACE else "stays"
    return "jumps" if verdict == JUMPS else ""


@lru_cache(maxsize=64)
def _shortest(world: World) -> float:
    """The fewest steps from the origin to a goal, round walls and hazards; inf if there is no way."""
    mdp = world.mdp()
    cells = mdp.layout.cells if mdp.layout is not None else ()
    here, seen, steps = {cells[mdp.origin]}, set[tuple[int, int]](), 0
    while here:
        if any(world.rows[i][j] == "G" for i, j in here):
            return steps
        seen |= here
        next_to = {(i + di, j + dj) for i, j in here for di, dj in sr.grids.MOVES} & set(cells)
        here, steps = {(i, j) for i, j in next_to - seen if world.rows[i][j] != "X"}, steps + 1
    return inf


def shown(mdp: sr.TabularMDP, policy: Ints) -> list[int]:
    """A policy as arrows; −1 in terminal states."""
    return np.where(mdp.is_terminal, -1, policy).tolist()  # type: ignore[no-any-return]


def rounded(Q: Floats) -> list[list[float]]:
    """Action values, rounded for display."""
    return [[float(f"{x:.6g}") for x in row] for row in Q]


def numbers(risk: Any, *names: str) -> dict[str, float | None]:
    """Numbers of a profile or a point; None if not finite, or if there is no profile."""
    return {name: plain(getattr(risk, name, None)) for name in names}


def _bars(risk: sr.RiskProfile) -> dict[str, Any]:
    """The distribution of the return in at most :data:`BARS` bars."""
    found = risk.distribution
    k = np.isfinite(found.returns)
    returns, chances = found.returns[k], found.probabilities[k]
    if returns.size > BARS:
        chances, edges = np.histogram(returns, BARS, weights=chances)
        returns = 0.5 * (edges[1:] + edges[:-1])
    keep = chances > TRACE
    return {
        "returns": [float(f"{x:.6g}") for x in returns[keep]],
        "probabilities": [float(f"{x:.6g}") for x in chances[keep]],
        "exact": found.exact,
    }


SCRIPT = '''\
"""{title}

A study from the playground of safereplay: the exact limits of two learners, their risk, and the learned policies.
Written by safereplay {version}, which is all it needs: python study.py
"""

import safereplay as sr

world = sr.grids.from_map(
    """
{rows}
    """,
{options}
)
start = {start}  # the start of the judged episodes
exploration = sr.EpsilonGreedy({epsilon!r})
learners = [
    {left},
    {right},
]


def limit(learner):
    """The learner's limit, Q [S, A], and what it is."""
    try:
        if not isinstance(learner, sr.ReplayQLearning) or learner.mixing != "literal" or learner.v == 0:
            return sr.exact(world, learner), "exact limit"
        # Limits of Algorithm 1 depend on which pairs it visits, and there may be several. The first one found is used.
        found = sr.fixed_point(world, learner.scheme, learner.v, "self", exploration, {search})
        if found:
            return found[0].Q, "exact limit"
    except sr.BadInput:  # it has no exact limit here
        pass
    return sr.learn(world, learner, {episodes:_}, 1, exploration).Q[0], "one run"


for learner in learners:
    Q, found = limit(learner)
    policy = Q.argmax(1)
    risk = sr.evaluate(world, policy, start=start)
    verdict = sr.verdict(world, policy)
    print(f"{{learner.describe()}}: {{found}} {{verdict}}, P(unsafe) {{risk.p_unsafe:.6f}}, mean {{risk.mean:.6f}}")

for learner in learners:
    runs = sr.learn(world, learner, episodes={episodes:_}, seeds={seeds}, exploration=exploration)
    risks = [sr.evaluate(world, policy, start=start).p_unsafe for policy in runs.policy]
    verdicts = ", ".join(runs.verdicts)
    print(f"{{learner.describe()}}: learned {{verdicts}}, P(unsafe) {{sum(risks) / len(risks):.6f}}")
'''


def script(link: StateLink) -> str:
    """The study of a link as a script."""
    world = link.to_world()
    layout = world.mdp().layout
    left, right = Side.parse(link.left), Side.parse(link.right)
    cells = [layout.cells[s] for s in world.judged()] if layout else []
    if len(cells) == 1:
        start = f"world.layout.state_at{cells[0]}"
    else:
        start = f"[{1 / len(cells)!r} if cell in {cells} else 0.0 for cell in world.layout.cells]"
    return SCRIPT.format(
        title=f"{learner_of(world, left).describe()} and {learner_of(world, right).describe()} on {world.name}.",
        version=sr.__version__,
        rows="\n".join(f"    {row}" for row in world.rows),
        options="\n".join(
            f'    {name}="{value}",' if isinstance(value, str) else f"    {name}={value!r},"
            for name, value in _different(world).items()
        ),
        start=start,
        epsilon=link.epsilon,
        left=_call(world, left),
        right=_call(world, right),
        search=", ".join(f"{name}={value!r}" for name, value in SEARCH.items()),
        seeds=link.seeds,
        episodes=EPISODES,
    )


def world_file(world: World) -> str:
    """The world as a map file, with its rewards."""
    world.mdp()
    return sr.grids.map_file("\n".join(world.rows), **_different(world))


def _different(world: World) -> dict[str, Any]:
    """The arguments of ``from_map`` that are not its defaults; γ always."""
    defaults = {p.name: p.default for p in inspect.signature(sr.grids.from_map).parameters.values()}
    return {
        name: value
        for name, value in world.options().items()
        if name == "gamma" or (value != defaults[name] and not (value == {} and defaults[name] is None))
    }


def _call(world: World, side: Side) -> str:
    """Code for a learner."""
    dials = side.dials()
    if side.kind == "design":
        limit = design_shown(world, dials["limit"])["limit"]
        return f"sr.design(world, max_p_unsafe={limit!r}, start=start, quiet=True).learner"
    learner, scheme = learner_of(world, side), ""
    if isinstance(learner, sr.ReplayQLearning):
        own = {name: dials.pop(name) for name in (dials.pop("scheme") and learner.scheme.dials())}
        scheme = f"sr.{type(learner.scheme).__name__}({_arguments(own)}), "
    return f"sr.{type(learner).__name__}({scheme}{_arguments(dials)})"


def _arguments(dials: dict[str, Any]) -> str:
    """Dials as arguments in code."""
    return ", ".join(f'{name}="{x}"' if isinstance(x, str) else f"{name}={x!r}" for name, x in dials.items())


class Event(NamedTuple):
    """An event: its name, its content, and its iteration."""

    name: str
    content: dict[str, Any]
    t: int | None = None

    def sent(self) -> bytes:
        """The event as a server-sent event.

        >>> Event("done", {"t": 3}, 3).sent()
        b'id: 3\\nevent: done\\ndata: {"t":3}\\n\\n'
        """
        number = f"id: {self.t}\n" if self.t is not None else ""
        return f"{number}event: {self.name}\ndata: {_json(self.content)}\n\n".encode()

    def message(self) -> str:
        """The event as a message of a web socket: the name and the content."""
        return _json([self.name, self.content])


def _json(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


class Target(NamedTuple):
    """A learner and its exact limit."""

    learner: sr.Learner
    Q: Floats | None  #: [S, A]; None if it has no exact limit

    @classmethod
    def of(cls, link: LearnLink, answer: dict[str, Any]) -> Target:
        """From an answer of :func:`solve`, so that the server itself designs no replay."""
        design = answer["design"]
        learner: Any = Config.from_dict(design["learner"]) if design else learner_of(link.to_world(), link.to_side())
        return cls(learner, np.array(answer["Q"]) if answer["exact"] else None)


class Untraced(sr.Stepper):
    """A run of a learner outside Algorithm 1's family: it counts iterations in the same way, and is not traced."""

    def _check_learner(self) -> None:
        """Any learner will do."""

    def trace(self, iterations: int) -> list[Any]:
        """Run, and record nothing."""
        self.run(iterations)
        return []

    @property
    def state(self) -> int | None:
        """Not known."""
        return None


class Runs:
    """The runs of one stream, for all seeds."""

    def __init__(self, link: LearnLink, target: Target) -> None:
        self.link, self.limit, self.world = link, target.Q, link.to_world()
        self.mdp, exploration = self.world.mdp(), sr.EpsilonGreedy(link.epsilon)
        kind = sr.Stepper if type(target.learner).recipe is sr.Learner.recipe else Untraced
        self.steppers = [kind(self.mdp, target.learner, seed, exploration) for seed in range(link.seeds)]

    @property
    def t(self) -> int:
        """Iterations done."""
        return self.steppers[0].iterations

    def advance(self, t: int) -> list[Any]:
        """Continue to iteration t; return the last iterations of the first seed one by one."""
        first, *others = self.steppers
        first.run(max(0, t - TRACED - first.iterations))
        events = first.trace(t - first.iterations)
        for stepper in others:
            stepper.run(t - stepper.iterations)
        return events

    def next_frame(self, t: int) -> dict[str, Any]:
        """Continue to iteration t; return the content of its frame."""
        events, first, mdp = self.advance(t), self.steppers[0], self.mdp
        seeds = []
        for stepper in self.steppers:
            gap = float("nan") if self.limit is None else stepper.gap(self.limit)
            own = {"policy": shown(mdp, stepper.policy), "gap": None if gap != gap else float(f"{gap:.5g}")}
            drawn = route(mdp, stepper.policy)
            risk = risk_of(self.world, tuple(stepper.policy.tolist())) if drawn["verdict"] == STUCK else None
            seeds.append({**own, **drawn, "way": way_of(self.world, drawn, risk)})
        return {
            "t": self.t,
            "episodes": first.episodes,
            "Q": rounded(first.Q),
            "policy": shown(mdp, first.policy),
            "trace": [[e.s, e.a, e.r, e.s_next, int(e.terminal), int(e.replayed)] for e in events],
            "at": first.state,
            "risk": numbers(risk_of(self.world, tuple(first.policy.tolist())), *RISKS),
            "seeds": seeds,
        }


class Store:
    """A cache of paused runs; the oldest are dropped. Thread-safe."""

    def __init__(self, most: int = KEPT) -> None:
        self._most, self._lock = most, threading.Lock()
        self._runs: OrderedDict[tuple[Any, int], Runs] = OrderedDict()

    def take(self, link: LearnLink) -> Runs | None:
        """The cached runs of this request at exactly this iteration, if there are any."""
        with self._lock:
            return self._runs.pop((_question(link), link.since), None)

    def keep(self, runs: Runs) -> None:
        """Cache runs, to be continued later."""
        with self._lock:
            self._runs[_question(runs.link), runs.t] = runs
            while len(self._runs) > self._most:
                self._runs.popitem(last=False)


def _question(link: LearnLink) -> Any:
    """The parameters that determine the runs, without those of the display."""
    return link.to_world(), link.to_side(), link.epsilon, link.seeds


class Streams:
    """All streams of a server. ``target`` returns the learner of a link and the exact limit to compare runs with."""

    def __init__(self, target: Callable[[LearnLink], Awaitable[Target]]) -> None:
        self.open, self.store, self._target, self._limiter = 0, Store(), target, CapacityLimiter(ABREAST)

    async def frames(self, link: LearnLink) -> AsyncIterator[Event]:
        """The events of one stream, until its end, or until the client disconnects."""
        self.open += 1
        runs: Runs | None = None
        try:
            yield Event("preparing", {})
            found = self.store.take(link)
            if found is None:
                found = await self._threaded(Runs, link, await self._target(link))
            while found.t < link.since:
                await self._threaded(found.advance, min(link.since, found.t + CHUNK))
            runs = found  # from here on, it is kept when the stream ends
            for _ in range(link.frames):
                if runs.t >= link.until:
                    break
                beginning = asyncio.get_running_loop().time()
                frame = await self._threaded(runs.next_frame, min(link.until, runs.t + link.by))
                yield Event("frame", frame, runs.t)
                pause = max(link.pace / 1000.0, SHARE * self.open)
                await asyncio.sleep(max(0.0, beginning + pause - asyncio.get_running_loop().time()))
            yield Event("done" if runs.t >= link.until else "paused", {"t": runs.t}, runs.t)
        except SafeReplayError as error:
            yield Event("problem", {"detail": str(error)})
        finally:
            self.open -= 1
            if runs is not None:
                self.store.keep(runs)

    async def _threaded(self, function: Any, *arguments: Any) -> Any:
        job = asyncio.ensure_future(to_thread.run_sync(function, *arguments, limiter=self._limiter))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:  # the thread still runs: its runs must not be used before it ends
            with CancelScope(shield=True):
                await asyncio.wait([job])
            raise


async def as_sent(events: AsyncIterator[Event]) -> AsyncIterator[bytes]:
    """The events of a stream as server-sent events."""
    async with aclosing(events) as open_events:  # type: ignore[type-var]
        async for event in open_events:
            yield event.sent()


async def over_socket(events: AsyncIterator[Event], socket: WebSocket) -> None:
    """Send the events of a stream over an accepted socket, until its end or until the client disconnects."""
    async with create_task_group() as group:

        async def until_it_leaves() -> None:
            while (await socket.receive())["type"] != "websocket.disconnect":
                pass  # messages from the client are ignored
            group.cancel_scope.cancel()

        group.start_soon(until_it_leaves)
        with suppress(WebSocketDisconnect):  # disconnected during a message
            async with aclosing(events) as open_events:  # type: ignore[type-var]
                async for event in open_events:
                    await socket.send_text(event.message())
            await socket.close()
        group.cancel_scope.cancel()
