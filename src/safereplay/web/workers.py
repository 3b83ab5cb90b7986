"""Worker processes that answer requests, each with a time limit.

A solver cannot be interrupted, but a process can be killed. So every request goes to one of a few worker processes. If
it is late, the process is killed and replaced; the event loop never blocks. All limits use the event loop's clock, so
that tests can control them.

A request is the JSON of a job's name and its arguments. A message from a worker is one byte (ready, compiling, compiled,
answered, refused or failed) and the text: the JSON of the answer, the sentence for the client, or a traceback for the log.

Time limits do not count compilation: the alarm of a request is stopped while its worker compiles, for at most
:data:`WARMING`. Warm-ups run in one idle worker at a time, while another one stays idle for requests.
"""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any

from .._progress import on_compiling
from ..errors import SafeReplayError

JOBS = "safereplay.web.answers:JOBS"
QUEUE = 64  # requests that may wait for a worker
GRACE = 0.5  # seconds from its start that a request may continue after its client has disconnected
WARMING = 300.0  # seconds for a warm-up, and for compiling during a request
STARTING = 300.0  # seconds that a request may wait for the first worker, before its time limit starts
LONGEST_REST = 30.0  # the longest pause between tries if workers die before they are ready
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

READY, COMPILING, COMPILED, ANSWERED, REFUSED, FAILED = b"*<>+-!"

log = logging.getLogger("safereplay.web")
spawn = multiprocessing.get_context("spawn")


class Unanswered(SafeReplayError):
    """A request without an answer: the HTTP status and the sentence for the client."""

    status = 500


class Busy(Unanswered):
    """All workers were busy for as long as this request could wait."""

    status = 429


class TooSlow(Unanswered):
    """The answer takes longer than its limit."""

    status = 422  # the request would fail again; browsers repeat after 408, and 413 is for the size of a body


class Refused(Unanswered):
    """The request is invalid: a SafeReplayError."""

    status = 422


class Failed(Unanswered):
    """The answer failed with an unexpected error; the worker continues."""


class Lost(Unanswered):
    """The worker died during the request, or was shut down."""

    status = 503


def work(pipe: Connection, registry: str) -> None:
    """Answer requests until the pipe ends. Heavy modules are imported here, after BLAS is limited to one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the server handles it
    os.environ.update(dict.fromkeys(THREADS, "1"))
    threading.Thread(target=_exit_with_the_server, daemon=True).start()
    module, _, name = registry.partition(":")
    jobs = getattr(import_module(module), name)
    if "numba" in sys.modules:  # whatever compiles has imported it

        def tell(kind: int) -> None:
            with suppress(OSError):
                pipe.send_bytes(bytes([kind]))

        on_compiling(lambda: tell(COMPILING), lambda: tell(COMPILED))
    with suppress(EOFError, OSError):
        pipe.send_bytes(bytes([READY]))
        while True:
            pipe.send_bytes(_answer(jobs, pipe.recv_bytes()))


def _answer(jobs: dict[str, Callable[[dict[str, Any]], dict[str, Any]]], question: bytes) -> bytes:
    name, arguments = json.loads(question)
    try:
        text = json.dumps(jobs[name](arguments), allow_nan=False, separators=(",", ":"))
        return bytes([ANSWERED]) + text.encode()
    except SafeReplayError as error:
        return bytes([REFUSED]) + " ".join(str(error).split()).encode(errors="replace")
    except Exception:
        return bytes([FAILED]) + traceback.format_exc().encode(errors="replace")


def _exit_with_the_server() -> None:
    """Exit at once when the server has ended, even during an answer."""
    server = multiprocessing.parent_process()
    if server is not None:
        wait([server.sentinel])
        os._exit(1)


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C while a process starts: it inherits the parent's signal mask."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # now, since its start unblocks interrupts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Worker:
    """One process, its pipe, and the thread that reads it. Everything else runs in the event loop.

    ``heard`` is called with this worker whenever it becomes free, and once when it is ``gone``.
    """

    def __init__(self, registry: str, heard: Callable[[Worker], None]) -> None:
        self.ready, self.killed, self.gone = False, False, False
        self.warmed = 0  # how many of the pool's warm-up requests it got
        self._heard, self._loop = heard, asyncio.get_running_loop()
        self._answer: asyncio.Future[bytes] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._asked_at, self._limit = 0.0, 0.0  # compilation is not counted
        self._ring: Callable[[], None] = self.kill  # at the end of the limit
        self._compiling_since: float | None = None
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=work, args=(theirs, registry), daemon=True)
        with _interrupts_held_back(), theirs:
            self._process.start()
        self.pid = self._process.pid
        self.listener = threading.Thread(target=self._listen, daemon=True)
        self.listener.start()

    def ask(self, question: bytes, seconds: float) -> asyncio.Future[bytes]:
        """A future of the answer; the process is killed if it takes more than ``seconds``."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._answer, self._asked_at = answer, self._loop.time()
        self._limit, self._ring = seconds, lambda: self._time_out(seconds)
        self._set_alarm()
        try:
            self._pipe.send_bytes(question)
        except OSError:  # it has just died; the reading thread does the rest
            self._settle(Lost("the worker process died; try again"))
        return answer

    def abandon(self, answer: asyncio.Future[bytes], grace: float) -> None:
        """The client has disconnected: let the answer finish within ``grace``, else kill the process."""
        if answer is self._answer and self._alarm is not None:
            self._limit, self._ring = grace, self.kill
            self._set_alarm()

    @property
    def compiling(self) -> bool:
        """Whether the process is compiling."""
        return self._compiling_since is not None and not self.gone

    def _set_alarm(self) -> None:
        """Set the alarm to the end of the limit or, while the process compiles, of :data:`WARMING`."""
        if self._alarm is not None:
            self._alarm.cancel()
        since = self._compiling_since
        end = self._asked_at + self._limit if since is None else since + max(WARMING, self._limit)
        self._alarm = self._loop.call_at(end, self._ring)

    def _on_compiling(self, begins: bool) -> None:
        """Compilation begins or ends: hold the alarm, or let it run on with the time that was left."""
        now = self._loop.time()
        if self._compiling_since is not None:
            self._asked_at += now - self._compiling_since
        self._compiling_since = now if begins else None
        if self._alarm is not None:
            self._set_alarm()

    def kill(self) -> None:
        """Kill the process; ``heard`` is called when it is gone."""
        self.killed = True
        if not self.gone:
            self._process.kill()

    def _time_out(self, seconds: float) -> None:
        self.kill()
        self._settle(TooSlow(f"the answer takes longer than the limit of {seconds:g} s; try a smaller problem"))

    def _listen(self) -> None:
        """The thread: pass on messages from the pipe, until it ends."""
        with suppress(RuntimeError):  # the event loop is closed
            try:
                while True:
                    self._loop.call_soon_threadsafe(self._on_message, self._pipe.recv_bytes())
            except (EOFError, OSError):
                self._process.join()
                self._loop.call_soon_threadsafe(self._on_end)

    def _on_message(self, message: bytes) -> None:
        kind, content = message[0], message[1:]
        if kind in (COMPILING, COMPILED):
            self._on_compiling(kind == COMPILING)
            return
        if kind == READY:
            self.ready = True
        elif kind == ANSWERED:
            self._settle(content)
        elif kind == REFUSED:
            self._settle(Refused(content.decode()))
        else:
            log.error("a request failed:\n%s", content.decode().rstrip())
            self._settle(Failed("unexpected error in the server; its log has the traceback"))
        self._heard(self)

    def _on_end(self) -> None:
        self.gone = True
        self._pipe.close()
        self._settle(Lost("the worker process died; try again, or try a smaller problem"))
        self._heard(self)

    def _settle(self, outcome: bytes | Unanswered) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        answer, self._answer, self._alarm = self._answer, None, None
        if answer is None or answer.done():
            return
        if isinstance(outcome, bytes):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)


class WorkerPool:
    """A few workers and a queue of requests. It belongs to one event loop, from :meth:`start` to :meth:`close`.

    ``registry`` is 'module:NAME' of a dict of functions from a dict to a JSON-compatible dict; only workers import it.
    """

    def __init__(self, size: int, registry: str = JOBS, queue: int = QUEUE, grace: float = GRACE) -> None:
        self.size, self.registry, self.queue, self.grace = size, registry, queue, grace
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._waiting: deque[asyncio.Future[Worker]] = deque()
        self._warm_ups: list[bytes] = []
        self._warming: Worker | None = None  # the one that warms up
        self._rests: set[asyncio.TimerHandle] = set()
        self._asked = asyncio.Event()  # set by the first request
        self._up = asyncio.Event()  # set when a worker is ready
        self._stillborn = 0  # workers in a row that died before they were ready
        self._open = False

    def start(self) -> None:
        """Start the first process, which is ready sooner if it starts alone; the others follow it."""
        self._open = True
        self._start_worker()

    async def start_soon(self, seconds: float) -> None:
        """Start at the first request, or after ``seconds`` without one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._asked.wait()
        self.start()

    async def ready(self) -> None:
        """Return when a worker is ready."""
        await self._up.wait()

    def close(self) -> None:
        """Kill all workers, and wait until no process is left; waiting requests get :class:`Lost`."""
        self._open = False
        self._up.set()
        for rest in self._rests:
            rest.cancel()
        for place in self._waiting:
            if not place.done():
                place.set_exception(Lost("the server is shutting down"))
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.listener.join()  # it ends after its process

    async def __aenter__(self) -> WorkerPool:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def warm(self, name: str, arguments: dict[str, Any]) -> None:
        """Let every worker, current and future, answer this once while it is idle, so that its code is compiled."""
        self._warm_ups.append(json.dumps([name, arguments]).encode())
        self._warm_up()

    @property
    def compiling(self) -> bool:
        """Whether some worker is compiling."""
        return any(worker.compiling for worker in self._workers)

    async def call(self, name: str, arguments: dict[str, Any], seconds: float) -> bytes:
        """The JSON of ``registry[name](arguments)``, within ``seconds``; else raise an :class:`Unanswered`.

        Waiting for a worker may take another ``seconds``; the start of the first worker and compiling do not count.
        If the caller is cancelled, the work stops after the grace time.
        """
        self._asked.set()
        try:
            async with asyncio.timeout(STARTING):
                await self.ready()
        except TimeoutError:
            raise Busy("the server is still starting; try again in a moment") from None
        question = json.dumps([name, arguments]).encode()
        worker = await self._within(seconds)
        answer = worker.ask(question, seconds)
        try:
            return await answer
        except asyncio.CancelledError:
            worker.abandon(answer, self.grace)
            raise

    async def _within(self, seconds: float) -> Worker:
        """A free worker within ``seconds``, or within :data:`WARMING` if one compiles or warms up meanwhile."""
        last = asyncio.get_running_loop().time() + WARMING
        while True:
            try:
                async with asyncio.timeout(seconds):
                    return await self._free()
            except TimeoutError:
                held_up = self.compiling or self._warming in self._workers
                if not held_up or asyncio.get_running_loop().time() >= last:
                    raise Busy(f"all workers were busy for {seconds:g} s; try again in a moment") from None

    async def _free(self) -> Worker:
        if not self._open:
            raise Lost("the server is shutting down")
        if self._idle:
            return self._idle.pop()
        if len(self._waiting) >= self.queue:
            raise Busy(f"{self.queue} requests are waiting already; try again in a moment")
        place: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._offer(place.result())  # it came just as the caller gave up
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(place)

    def _start_worker(self) -> None:
        try:
            self._workers.add(Worker(self.registry, self._heard))
        except OSError as error:  # out of memory, file descriptors or processes
            log.error("a worker could not be started: %s", error)
            self._rest()

    def _rest(self) -> None:
        """Start a worker later: what killed the last one at its start would kill the next one too."""
        self._stillborn += 1
        seconds = min(LONGEST_REST, 0.1 * 2.0**self._stillborn)

        def start() -> None:
            self._rests.discard(rest)
            self._start_worker()

        rest = asyncio.get_running_loop().call_later(seconds, start)
        self._rests.add(rest)

    def _heard(self, worker: Worker) -> None:
        if not worker.gone:
            self._stillborn = 0
            for _ in range(len(self._workers) + len(self._rests), self.size):
                self._start_worker()
            self._offer(worker)
            return
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if self._open and worker.ready:
            self._start_worker()
        elif self._open:
            log.error("a worker died before it was ready")
            self._rest()

    def _offer(self, worker: Worker) -> None:
        """Give a free worker to the oldest waiting request, else to the idle list or a warm-up."""
        if worker is self._warming:
            self._warming = None
        if worker.killed or worker.gone or not self._open:
            return
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(worker)
                return
        self._idle.append(worker)
        self._up.set()
        self._warm_up()

    def _warm_up(self) -> None:
        """Let an idle worker warm up, if no other one does, and another one stays idle."""
        cold = [worker for worker in self._idle if worker.warmed < len(self._warm_ups)]
        if cold and self._warming not in self._workers and len(self._idle) > min(1, self.size - 1):
            worker = self._warming = cold[0]
            self._idle.remove(worker)
            answer = worker.ask(self._warm_ups[worker.warmed], WARMING)
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # a failure is logged
            worker.warmed += 1
