"""Worker processes that answer questions, each within its time.

A solver cannot be asked to stop half-way, but a process can be killed. So every question goes to one of a few worker
processes; one that is late is killed and another takes its place, while the event loop only ever waits. The loop's
clock is the only one, so whoever holds it can test every limit.

A worker is one process, one pipe and one thread that listens to the pipe. What goes through the pipe is JSON: the
question as an object, the answer as one letter (answered, refused, failed) and the text that the client gets unparsed.

Every question that is not answered ends in an :class:`Unanswered`, which knows its HTTP status and its sentence.
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

from ..errors import SafeReplayError

JOBS = "safereplay.web.answers:JOBS"
QUEUE = 64  # questions that may wait for a worker
GRACE = 0.5  # seconds from its start that a question may run on when nobody waits for its answer any more
WARMING = 300.0  # seconds for what is compiled ahead
STARTING = 300.0  # seconds that a question may wait for the first worker, before its own time begins
LONGEST_REST = 30.0  # seconds before another try, when workers die before they are ready
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")

READY, ANSWERED, REFUSED, FAILED = b"*+-!"

log = logging.getLogger("safereplay.web")
spawn = multiprocessing.get_context("spawn")


class Unanswered(SafeReplayError):
    """A question without an answer: the status and the sentence that its client gets."""

    status = 500


class Busy(Unanswered):
    """All workers are taken, and were for as long as this question could wait."""

    status = 429


class TooSlow(Unanswered):
    """The answer takes longer than it may.

    422, for the question was understood and asking it again would end the same way: 408 speaks of a client that is
    slow to ask (browsers repeat such a request by themselves), 413 of the size of a body.
    """

    status = 422


class Refused(Unanswered):
    """The question itself is wrong: a SafeReplayError."""

    status = 422


class Failed(Unanswered):
    """The answer failed in a way that we did not foresee; the worker lives on."""


class Lost(Unanswered):
    """The worker died over the question, or was shut down."""

    status = 503


# -- in the worker ----------------------------------------------------------------------------------------------------


def work(pipe: Connection, registry: str) -> None:
    """Answer questions until the pipe ends. Everything heavy is imported here, after BLAS was told to use one thread."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of a terminal; the server decides
    os.environ.update(dict.fromkeys(THREADS, "1"))
    threading.Thread(target=_leave_with_the_server, daemon=True).start()
    module, _, name = registry.partition(":")
    jobs = getattr(import_module(module), name)
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


def _leave_with_the_server() -> None:
    """End at once when the server is gone, also amid an answer that nobody would read."""
    server = multiprocessing.parent_process()
    if server is not None:
        wait([server.sentinel])
        os._exit(1)


# -- in the server ----------------------------------------------------------------------------------------------------


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """A process inherits what its parent holds back, so a Ctrl-C while it starts cannot strike it."""
    if sys.platform == "win32":
        yield
        return
    resource_tracker.ensure_running()  # now, for as it starts it lets interrupts through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Worker:
    """One process, its pipe, and the thread that listens. All but the listening happens in the event loop.

    ``heard`` is called with this worker whenever it becomes free, and once when it is ``gone``.
    """

    def __init__(self, registry: str, heard: Callable[[Worker], None]) -> None:
        self.ready, self.killed, self.gone = False, False, False
        self.warmed = 0  # how many of the pool's warm-up questions it was asked
        self._heard, self._loop = heard, asyncio.get_running_loop()
        self._answer: asyncio.Future[bytes] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._asked_at = 0.0
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=work, args=(theirs, registry), daemon=True)
        with _interrupts_held_back(), theirs:
            self._process.start()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    @property
    def pid(self) -> int | None:
        """The process's number."""
        return self._process.pid

    def ask(self, question: bytes, seconds: float, limit: float) -> asyncio.Future[bytes]:
        """The answer, some time; when it is not here in ``seconds`` the process is killed."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        self._answer, self._asked_at = answer, self._loop.time()
        self._alarm = self._loop.call_later(seconds, self._ring, limit)
        try:
            self._pipe.send_bytes(question)
        except OSError:  # it has just died; the listener tells the rest
            self._settle(Lost("the worker that had the question died; ask again"))
        return answer

    def abandon(self, answer: asyncio.Future[bytes], grace: float) -> None:
        """Nobody waits any more: what is nearly done may end, so that the worker is not lost; the rest is killed."""
        if answer is self._answer and self._alarm is not None:
            self._alarm.cancel()
            self._alarm = self._loop.call_at(self._asked_at + grace, self.kill)

    def kill(self) -> None:
        """End the process now; ``heard`` is called when it is gone."""
        self.killed = True
        if not self.gone:
            self._process.kill()

    def join(self) -> None:
        """Wait until the process and its listener are gone; after :meth:`kill`."""
        self._listener.join()

    def _ring(self, limit: float) -> None:
        self.kill()
        self._settle(TooSlow(f"an answer may take {limit:g} s, and this one takes longer; ask for less at a time"))

    def _listen(self) -> None:
        """The thread: pass on what the pipe says, until it ends."""
        with suppress(RuntimeError):  # the loop is closed, so nobody is left to tell
            try:
                while True:
                    self._loop.call_soon_threadsafe(self._on_message, self._pipe.recv_bytes())
            except (EOFError, OSError):
                self._process.join()
                self._loop.call_soon_threadsafe(self._on_end)

    def _on_message(self, message: bytes) -> None:
        kind, content = message[0], message[1:]
        if kind == READY:
            self.ready = True
        elif kind == ANSWERED:
            self._settle(content)
        elif kind == REFUSED:
            self._settle(Refused(content.decode()))
        else:
            log.error("a question failed:\n%s", content.decode().rstrip())
            self._settle(Failed("this could not be answered: the server met an error that it did not expect"))
        self._heard(self)

    def _on_end(self) -> None:
        self.gone = True
        self._pipe.close()
        self._settle(Lost("the worker that had the question died; ask again, or for less at a time"))
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
    """A few workers and the questions that wait for them. Lives in one event loop, from :meth:`start` to :meth:`close`.

    ``registry`` is 'module:NAME' of a dict of functions, from a dict to a dict that JSON can hold; only the workers
    import it.
    """

    def __init__(self, size: int, registry: str = JOBS, queue: int = QUEUE, grace: float = GRACE) -> None:
        self.size, self.registry, self.queue, self.grace = size, registry, queue, grace
        self._workers: set[Worker] = set()
        self._idle: list[Worker] = []
        self._waiting: deque[asyncio.Future[Worker]] = deque()
        self._warm_ups: list[bytes] = []
        self._rests: set[asyncio.TimerHandle] = set()
        self._warm = asyncio.Event()  # set once a worker has nothing more to compile
        self._stillborn = 0  # workers in a row that died before they were ready
        self._open = False

    def start(self) -> None:
        """Start the processes; they become ready by and by."""
        self._open = True
        for _ in range(self.size):
            self._hire()

    def close(self) -> None:
        """Kill every worker, and wait until no process is left; whoever still waits gets :class:`Lost`."""
        self._open = False
        self._warm.set()
        for rest in self._rests:
            rest.cancel()
        for place in self._waiting:
            if not place.done():
                place.set_exception(Lost("the server is shutting down"))
        for worker in self._workers:
            worker.kill()
        for worker in self._workers:
            worker.join()

    async def __aenter__(self) -> WorkerPool:
        self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def warm(self, name: str, arguments: dict[str, Any]) -> None:
        """Have every worker, now and later, answer this once while nobody needs it, so that it has compiled its part."""
        self._warm_ups.append(_question(name, arguments))
        idle, self._idle = self._idle, []
        for worker in idle:
            self._offer(worker)

    async def call(self, name: str, arguments: dict[str, Any], seconds: float) -> bytes:
        """The JSON that ``registry[name](arguments)`` gives, within ``seconds``; else an :class:`Unanswered`.

        Waiting for a worker may take as long again, and what the first one takes to start and to compile does not
        count. When the caller is cancelled the work stops too.
        """
        await self._started()
        question = _question(name, arguments)
        try:
            async with asyncio.timeout(seconds):
                worker = await self._free()
        except TimeoutError:
            raise Busy(f"every worker was busy for {seconds:g} s; ask again in a moment") from None
        answer = worker.ask(question, seconds, seconds)
        try:
            return await answer
        except asyncio.CancelledError:
            worker.abandon(answer, self.grace)
            raise

    async def _started(self) -> None:
        try:
            async with asyncio.timeout(STARTING):
                await self._warm.wait()
        except TimeoutError:
            raise Busy("the server is still starting; ask again in a moment") from None

    async def _free(self) -> Worker:
        if not self._open:
            raise Lost("the server is shutting down")
        if self._idle:
            return self._idle.pop()
        if len(self._waiting) >= self.queue:
            raise Busy(f"{self.queue} questions wait already; ask again in a moment")
        place: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            return await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._offer(place.result())  # it came in the very moment that the caller gave up
            raise
        finally:
            with suppress(ValueError):
                self._waiting.remove(place)

    def _hire(self) -> None:
        try:
            self._workers.add(Worker(self.registry, self._heard))
        except OSError as error:  # no memory, no file descriptor, no process to be had now
            log.error("a worker could not be started: %s", error)
            self._rest()

    def _rest(self) -> None:
        """Hire later: whatever kills a worker at its start would kill the next one too."""
        self._stillborn += 1
        seconds = min(LONGEST_REST, 0.1 * 2.0**self._stillborn)

        def hire() -> None:
            self._rests.discard(rest)
            self._hire()

        rest = asyncio.get_running_loop().call_later(seconds, hire)
        self._rests.add(rest)

    def _heard(self, worker: Worker) -> None:
        if not worker.gone:
            self._stillborn = 0
            self._offer(worker)
            return
        self._workers.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        if self._open and worker.ready:
            self._hire()
        elif self._open:
            log.error("a worker died before it was ready")
            self._rest()

    def _offer(self, worker: Worker) -> None:
        """A free worker goes to whoever waits longest, else to what is still to be warmed, else it rests."""
        if worker.killed or worker.gone or not self._open:
            return
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(worker)
                return
        if worker.warmed < len(self._warm_ups):
            answer = worker.ask(self._warm_ups[worker.warmed], WARMING, WARMING)
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # a failure is in the log
            worker.warmed += 1
        else:
            self._idle.append(worker)
            self._warm.set()


def _question(name: str, arguments: dict[str, Any]) -> bytes:
    return json.dumps([name, arguments]).encode()
