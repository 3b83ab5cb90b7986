"""The engine of one machine, a pool of threads, and how work is cut into chunks.

The size of a chunk depends on the measured cost of its runs. A run of a point takes about  c·u  seconds on one worker,
with

    u = episodes / (1 − v)     its work in units, since a share v of all updates are replays,
    c                          seconds per unit, measured for each (model, learner) on finished chunks.

The first chunks are as small as possible. Later ones aim at the engine's ``seconds``, or, towards the end, at an even
share of the remaining work, so that all workers finish together. A chunk takes at most :data:`ROOM` bytes, unless it is
a single run. The compiled loop releases the interpreter lock, so the threads run in parallel.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Hashable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import NamedTuple

from .. import _checks
from .._progress import ctrl_c_afterwards
from ..footprints import of_runs, refuse_what_does_not_fit
from .identity import table_digest
from .work import Chunk, Done, Engine, Point, Run, Terms, perform_until

ROOM = 1 << 28  # bytes that the runs of a chunk may take together
ARRAYS = 3  # results of a run with one number per pair each; snapshots come on top
SHORTEST = 0.2  # seconds: smaller chunks cost more overhead than they balance
SHARES = 2.0  # chunks per worker that the remaining work is cut into
WEIGHT = 0.5  # of a measurement slower than expected; a faster one counts in full (first runs compile)


class Costs:
    """The seconds that runs take, estimated from finished chunks."""

    def __init__(self, terms: Terms) -> None:
        self._episodes = terms.episodes
        self._rates: dict[Hashable, float] = {}

    def group(self, point: Point) -> Hashable:
        """The key of points whose units cost the same."""
        return table_digest(point.mdp), point.columns.get("learner"), type(point.learner)

    def units(self, point: Point) -> float:
        """The work in a run of a point."""
        replay = point.learner.replay
        return self._episodes / (1.0 - (0.0 if replay is None else replay[1]))

    def known(self, group: Hashable) -> bool:
        """Whether a chunk of this group was measured."""
        return group in self._rates

    def rate(self, group: Hashable) -> float | None:
        """Seconds per unit; an unmeasured group gets the largest known rate. None if no rate is known."""
        return self._rates.get(group, max(self._rates.values(), default=None))

    def learn(self, chunk: Chunk, seconds: float) -> None:
        """Update the estimate with the seconds of a chunk."""
        units: dict[Hashable, float] = {}
        for run in chunk:
            group = self.group(run.point)
            units[group] = units.get(group, 0.0) + self.units(run.point)
        expected = sum((self.rate(group) or 0.0) * u for group, u in units.items())
        total = sum(units.values())
        for group in units:
            measured = (self.rate(group) or 0.0) * seconds / expected if expected > 0.0 else seconds / total
            before = self._rates.get(group, measured)
            weight = WEIGHT if measured > before else 1.0
            self._rates[group] = max(before + weight * (measured - before), 1e-15)


class _Share(NamedTuple):
    """The cost that one run of a point adds to a chunk."""

    group: Hashable
    units: float
    seconds: float
    room: int  #: bytes


class Chunks(Iterator[Chunk]):
    """The runs as chunks, generated on demand."""

    def __init__(
        self, runs: Iterator[Run], left: dict[Hashable, float], terms: Terms, engine: Engine, costs: Costs
    ) -> None:
        self._runs, self._left, self._terms, self._engine, self._costs = runs, left, terms, engine, costs
        self._spare: Run | None = None  # read already, and kept for the next chunk

    def __next__(self) -> Chunk:
        run = next(self._runs) if self._spare is None else self._spare
        self._spare = None
        share = first = self._share(run.point)
        target, chunk, spent, room = self._target(first.group), [run], first.seconds, first.room
        self._left[first.group] -= first.units
        for run in self._runs:
            share = share if run.point is chunk[-1].point else self._share(run.point)
            spent, room = spent + share.seconds, room + share.room
            small = len(chunk) < self._engine.least or (spent <= target and len(chunk) < self._engine.most)
            guess = not self._costs.known(first.group) and share.group != first.group
            if not small or guess or room > ROOM:
                self._spare = run
                break
            chunk.append(run)
            self._left[share.group] -= share.units
        return tuple(chunk)

    def _share(self, point: Point) -> _Share:
        group, units = self._costs.group(point), self._costs.units(point)
        room = 8 * point.mdp.n_pairs * (ARRAYS + self._terms.curves)
        return _Share(group, units, (self._costs.rate(group) or 0.0) * units, room)

    def _target(self, group: Hashable) -> float:
        """The seconds that the next chunk should take; −1, for the smallest chunk, if no rate is known."""
        if self._costs.rate(group) is None:
            return -1.0
        ahead = sum((self._costs.rate(g) or 0.0) * units for g, units in self._left.items())
        share = ahead / (SHARES * self._engine.workers)
        seconds = min(self._engine.seconds, max(share, SHORTEST))
        return seconds if self._costs.known(group) else seconds / 4.0


AHEAD = 2  # chunks per worker, one of them waiting
GLANCE = 0.2  # seconds between two checks for Ctrl-C: other libraries may catch the signal without waking this thread


class ThreadsEngine:
    """Runs on all cores of this machine.

    >>> ThreadsEngine(2).workers
    2
    """

    name = "threads"
    seconds = 5.0
    least = 1
    most = 10_000

    def __init__(self, workers: int | None = None) -> None:
        self.workers = _checks.whole("threads", os.cpu_count() if workers is None else workers, 1)

    def finish(self, chunks: Iterator[Chunk], terms: Terms) -> Iterator[Done]:
        """Do the chunks; on Ctrl-C yield the finished runs, then raise KeyboardInterrupt."""
        chunks, stop = self._weighed(chunks, terms), threading.Event()
        pending: set[Future[Done | None]] = set()
        with ThreadPoolExecutor(self.workers) as pool:
            try:
                while True:
                    with ctrl_c_afterwards():
                        room = AHEAD * self.workers - len(pending)
                        pending |= {pool.submit(_one, chunk, terms, stop) for chunk in islice(chunks, room)}
                    if not pending:
                        return
                    with ctrl_c_afterwards():
                        ready, _ = wait(pending, timeout=GLANCE, return_when=FIRST_COMPLETED)
                    pending -= ready
                    yield from _results(ready)
            except KeyboardInterrupt:
                stop.set()
                yield from _results(pending)
                raise
            finally:
                stop.set()  # end all workers, whatever ended the wait

    def _weighed(self, chunks: Iterator[Chunk], terms: Terms) -> Iterator[Chunk]:
        """The chunks; raise an error if the parallel runs of all workers would not fit into memory."""
        fits: set[tuple[str, type]] = set()
        for chunk in chunks:
            point = chunk[0].point
            kind = table_digest(point.mdp), type(point.learner)
            if kind not in fits:
                recipe = point.learner.recipe(point.exploration, point.step_size)
                refuse_what_does_not_fit(of_runs(point.mdp, recipe, self.workers, terms.curves, self.workers))
                fits.add(kind)
            yield chunk

    def close(self) -> None:
        """Do nothing: the pool ends with :meth:`finish`."""


def _results(futures: set[Future[Done | None]]) -> Iterator[Done]:
    for future in futures:
        done = future.result()
        if done is not None:
            yield done


def _one(chunk: Chunk, terms: Terms, stop: threading.Event) -> Done | None:
    """The result of a chunk, or of its finished runs once ``stop`` is set; None if there are none."""
    if stop.is_set():
        return None
    began = time.perf_counter()
    runs, table = perform_until(chunk, terms, stop)
    return None if table is None else Done(runs, table, time.perf_counter() - began)
