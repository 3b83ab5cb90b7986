"""The engine of one machine: a pool of threads. The compiled loop holds no lock, so they run side by side."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice

from .. import _checks
from .._interrupts import ctrl_c_afterwards
from ..footprints import of_runs, refuse_what_does_not_fit
from .identity import table_digest
from .work import Chunk, Done, Terms, perform_until

AHEAD = 2  # chunks a worker, one of them waiting
GLANCE = 0.2  # seconds between two looks at Ctrl-C: other libraries may take the signal without waking us


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
        """Do the chunks; on Ctrl-C yield the runs that are finished, then raise KeyboardInterrupt."""
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
                stop.set()  # whatever ended the wait: nobody runs on

    def _weighed(self, chunks: Iterator[Chunk], terms: Terms) -> Iterator[Chunk]:
        """The chunks; refused where the runs of all workers would not fit into memory side by side."""
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
        """Nothing to give back: the pool ends with :meth:`finish`."""


def _results(futures: set[Future[Done | None]]) -> Iterator[Done]:
    for future in futures:
        done = future.result()
        if done is not None:
            yield done


def _one(chunk: Chunk, terms: Terms, stop: threading.Event) -> Done | None:
    """A chunk, or what is finished of it when told to stop; None if nothing is."""
    if stop.is_set():
        return None
    began = time.perf_counter()
    runs, table = perform_until(chunk, terms, stop)
    return None if table is None else Done(runs, table, time.perf_counter() - began)
