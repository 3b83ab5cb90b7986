"""A running learner as a stream of events: over a web socket, or as server-sent events.

A run is a pure function of its seed, so a stream needs no session. A request gives the number of iterations that the
client has seen, and gets the next ones, from any server. To pause, the client closes the stream; to continue, it
requests it again. The server keeps the latest few runs in a small cache.

The page uses a web socket: browsers allow six HTTP connections to a server for all tabs together, and six streams of
server-sent events would leave none for other requests. Web sockets do not count.

Frames are paced. All streams share one budget, so each one is slower if there are more.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from typing import Any, NamedTuple

from anyio import CancelScope, CapacityLimiter, create_task_group, to_thread
from starlette.websockets import WebSocket, WebSocketDisconnect

import safereplay as sr

from .._types import Floats
from ..errors import SafeReplayError
from .answers import numbers, risk_of, rounded, route, shown
from .state import LearnLink

TRACED = 40  # the last iterations of a frame, which are shown one by one
SHARE = 0.025  # the least seconds between two frames, over all streams
KEPT = 16  # cached runs of paused streams
ABREAST = 2  # threads that learn
CHUNK = 200_000  # iterations between two checks whether the client is still connected


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


class Runs:
    """The runs of one stream, for all seeds."""

    def __init__(self, link: LearnLink, limit: Floats) -> None:
        self.link, self.limit, self.world = link, limit, link.to_world()
        self.mdp = self.world.mdp()
        learner, exploration = link.to_side().learner(), sr.EpsilonGreedy(link.epsilon)
        self.steppers = [sr.Stepper(self.mdp, learner, seed, exploration) for seed in range(link.seeds)]

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

    def frame(self, events: list[Any]) -> dict[str, Any]:
        """The content of a frame."""
        first, mdp = self.steppers[0], self.mdp
        return {
            "t": self.t,
            "episodes": first.episodes,
            "Q": rounded(first.Q),
            "policy": shown(mdp, first.policy),
            "trace": [[e.s, e.a, e.r, e.s_next, int(e.terminal), int(e.replayed)] for e in events],
            "at": first.state,
            "risk": numbers(risk_of(self.world, tuple(first.policy.tolist())), "mean", "p_unsafe", "p_never"),
            "seeds": [self._seed(stepper) for stepper in self.steppers],
        }

    def _seed(self, stepper: sr.Stepper) -> dict[str, Any]:
        drawn = route(self.mdp, stepper.policy)
        gap = stepper.gap(self.limit)
        own = {"policy": shown(self.mdp, stepper.policy), "gap": None if gap != gap else float(f"{gap:.5g}")}
        return {**own, **drawn}


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
    """All streams of a server. ``limit`` returns the exact limit to compare runs with, [S, A]."""

    def __init__(self, limit: Callable[[LearnLink], Awaitable[Floats]]) -> None:
        self.open, self.store, self._limit = 0, Store(), limit
        self._limiter: CapacityLimiter | None = None

    async def frames(self, link: LearnLink) -> AsyncIterator[Event]:
        """The events of one stream, until its end, or until the client disconnects."""
        self.open += 1
        runs: Runs | None = None
        try:
            yield Event("preparing", {})
            runs = await self._ready(link)
            for _ in range(link.frames):
                if runs.t >= link.until:
                    break
                beginning = asyncio.get_running_loop().time()
                frame = await self._threaded(self._next, runs, min(link.until, runs.t + link.by))
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

    async def _ready(self, link: LearnLink) -> Runs:
        """The runs up to the iteration that the client has seen, from the cache or computed again."""
        runs = self.store.take(link)
        if runs is None:
            runs = await self._threaded(Runs, link, await self._limit(link))
        while runs.t < link.since:
            await self._threaded(runs.advance, min(link.since, runs.t + CHUNK))
        return runs

    @staticmethod
    def _next(runs: Runs, t: int) -> dict[str, Any]:
        return runs.frame(runs.advance(t))

    async def _threaded(self, function: Any, *arguments: Any) -> Any:
        if self._limiter is None:
            self._limiter = CapacityLimiter(ABREAST)
        job = asyncio.ensure_future(to_thread.run_sync(partial(function, *arguments), limiter=self._limiter))
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
