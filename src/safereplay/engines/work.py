"""The runs of a sweep, and how they are done.

A *model* is a TabularMDP, a *point* is (model, learner, exploration, step size), a *run* is a point and a seed. A
*chunk* is a tuple of runs that are done and written together.

    Q, visits, ... of a chunk   learned by the code of :func:`safereplay.learn`              (:func:`learn_here`)
    one row per run             its kept results: policy, verdict, risk, curves, ...         (:func:`rows`)

A row is a pure function of its run. It has no time, machine or speed, so any engine writes the same rows, however often
it was stopped.

:class:`ThreadsEngine` does chunks on all cores of one machine. The size of a chunk depends on the measured cost of its runs. A run of a point takes about  c·u  seconds on one worker,
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
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import groupby, islice
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from .. import _checks
from .. import runs as single
from .._checks import Floats, Ints
from .._progress import ctrl_c_afterwards
from ..arrays import sampling_model
from ..errors import BadInput
from ..footprints import of_runs, refuse_what_does_not_fit
from ..kernels import rng, step
from ..learners import Learner, Recipe
from ..mdp import TabularMDP
from ..schedules import Exploration, StepSize
from .identity import Judged, Latest, judge_of, table_digest

#: What ``keep`` may name, its columns, and their types; [] is a list.
KEEPS: dict[str, dict[str, str]] = {
    "policy": {"policy": "int32[]"},
    "Q": {"Q": "double[]"},
    "visits": dict.fromkeys(("visits", "replayed"), "int64[]"),
    "verdict": {"verdict": "string"},
    "risk": dict.fromkeys(("mean", "std", "p_unsafe", "p_never", "cvar10"), "double"),
    "curves": {
        "curve_episodes": "int64[]",
        **dict.fromkeys(("curve_value", "curve_p_unsafe", "curve_mean"), "double[]"),
        "curve_verdict": "string[]",
    },
}


class Point(NamedTuple):
    """Everything about a run except its seed."""

    model: str  #: the model's name in the spec
    mdp: TabularMDP
    learner: Learner
    exploration: Exploration
    step_size: StepSize
    columns: dict[str, Any]  #: its columns in the dataset, in order


class Terms(NamedTuple):
    """The settings that all runs of a sweep share."""

    episodes: int
    max_steps: int
    keep: tuple[str, ...]
    curves: int  #: number of snapshots; 0 unless curves are kept

    @property
    def points(self) -> Ints:
        """The episodes after which a snapshot is taken, [m]."""
        return single.snapshot_points(self.curves, self.episodes)


class Run(NamedTuple):
    """A point and a seed."""

    id: str  #: 32 hex digits, computed from the content
    point: Point
    seed: int


Chunk: TypeAlias = tuple[Run, ...]


class Learned(NamedTuple):
    """The results of n runs of one model and one compiled program."""

    Q: Floats  #: [n, S, A]
    visits: Ints  #: [n, S, A] MDP iterations of each pair
    replays: Ints  #: [n, S, A]
    snapshots: Floats | None  #: [n, m, S, A] Q during the run


class Done(NamedTuple):
    """A finished chunk, and its seconds on one worker."""

    chunk: Chunk
    table: pa.Table
    seconds: float


class Engine(Protocol):
    """The interface of engines.

    ``finish`` takes about two chunks per worker at a time, and yields finished chunks in any order. On Ctrl-C it may
    yield finished chunks before it raises KeyboardInterrupt. A caller that stops iterating early must close it.
    """

    name: str
    seconds: float  #: target duration of a chunk
    least: int  #: runs per chunk
    most: int
    workers: int

    def finish(self, chunks: Iterator[Chunk], terms: Terms) -> Iterator[Done]:
        """Do the chunks."""
        ...

    def close(self) -> None:
        """Release the engine's resources."""
        ...


def groups(chunk: Sequence[Run]) -> list[list[Run]]:
    """The runs of a chunk, grouped by model (except γ) and compiled program; dials may differ."""
    found: dict[tuple[str, type, Recipe], list[Run]] = {}
    for _, same in groupby(chunk, lambda run: id(run.point)):
        runs = list(same)
        point = runs[0].point
        recipe = point.learner.recipe(point.exploration, point.step_size)
        found.setdefault((table_digest(point.mdp), type(point.learner), recipe), []).extend(runs)
    return list(found.values())


_models: Latest[str, rng.Model] = Latest(
    8, lambda model: sum(x.nbytes for x in model)
)  # in the form that the loop samples from


def learn_here(runs: Sequence[Run], terms: Terms, stop: threading.Event | None = None) -> Learned:
    """Do runs of one group on this thread, with the same bits as :func:`safereplay.learn`.

    Once ``stop`` is set, no further run is started or finished: only the runs finished by then are returned.
    """
    mdp, stop = runs[0].point.mdp, stop or threading.Event()
    points, model = terms.points, _models.get(table_digest(mdp), lambda: sampling_model(mdp))
    shape, m = (len(runs), mdp.n_states, mdp.n_actions), len(points)
    Q, visits, replays = np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int64)
    snapshots = np.empty((shape[0], m, *shape[1:])) if m else None
    n, plan, last = 0, None, None
    for run in runs:
        point = run.point
        if plan is None or point is not last:
            parts = point.learner, point.exploration, point.step_size
            program = single.make_program(*parts, point.mdp.gamma, mdp.n_actions)
            plan = single.Plan(point.mdp, point.learner, terms.episodes, terms.max_steps, points, program)
            last = point
        try:
            one = single.OneRun(plan, model, run.seed).finish(stop, lambda episodes: None)
        except BadInput as error:
            where = f"{point.learner.describe()} on {point.model} with seed {run.seed}"
            raise BadInput(f"{error}; in {where}") from None
        if one is None:
            break
        counts = one.tables.counts
        Q[n].flat, visits[n].flat, replays[n].flat = one.tables.Q, counts[:, step.VISITS], counts[:, step.REPLAYS]
        if snapshots is not None and one.kept.shots is not None:
            snapshots[n].flat = one.kept.shots.ravel()
        n += 1
    return Learned(Q[:n], visits[:n], replays[:n], None if snapshots is None else snapshots[:n])


def rows(runs: Sequence[Run], terms: Terms, learned: Learned) -> pa.Table:
    """One row per run of a group, with what is kept."""
    points = {id(run.point): run.point for run in runs}
    place = {key: k for k, key in enumerate(points)}
    which = pa.array([place[id(run.point)] for run in runs], pa.int32())
    names = dict.fromkeys(name for point in points.values() for name in point.columns)
    columns: dict[str, Any] = {"id": pa.array([run.id for run in runs], pa.string())}
    columns |= {name: _said([p.columns.get(name) for p in points.values()]).take(which) for name in names}
    visits, replays = learned.visits.sum((1, 2)), learned.replays.sum((1, 2))
    columns["episodes"] = pa.array(np.full(len(runs), terms.episodes, np.int64))
    columns["seed"] = pa.array([run.seed for run in runs], pa.uint64())
    columns["updates"], columns["replays"] = pa.array(visits + replays), pa.array(replays)
    return pa.table(columns | _kept(runs[0].point.mdp, terms, learned))


def _said(values: list[Any]) -> pa.Array:
    """Values of points as a column of text, flags or numbers."""
    kinds = {type(x) for x in values if x is not None}
    kind = pa.string() if str in kinds else pa.bool_() if bool in kinds else pa.float64()
    return pa.array(values, kind if kinds else pa.null())


def _kept(mdp: TabularMDP, terms: Terms, learned: Learned) -> dict[str, pa.Array]:
    """The kept columns, in the order of :data:`KEEPS`."""
    n, policies = len(learned.Q), learned.Q.argmax(-1)
    judge, columns = judge_of(mdp), {}
    judged = [judge.of(policy) for policy in policies] if {"verdict", "risk"} & set(terms.keep) else []
    if "policy" in terms.keep:
        columns["policy"] = _lists(policies.astype(np.int32))
    if "Q" in terms.keep:
        columns["Q"] = _lists(learned.Q.reshape(n, -1))
    if "visits" in terms.keep:
        columns["visits"] = _lists(learned.visits.reshape(n, -1))
        columns["replayed"] = _lists(learned.replays.reshape(n, -1))
    if "verdict" in terms.keep:
        columns["verdict"] = pa.array([one.verdict for one in judged], pa.string())
    if "risk" in terms.keep:
        numbers = np.array([one.risk for one in judged], np.float64).reshape(n, -1)
        columns |= {name: pa.array(column) for name, column in zip(KEEPS["risk"], numbers.T, strict=True)}
    return columns | (_curves(mdp, terms, learned) if "curves" in terms.keep else {})


def _curves(mdp: TabularMDP, terms: Terms, learned: Learned) -> dict[str, pa.Array]:
    """Value, risk and verdict of the greedy policies during the runs."""
    assert learned.snapshots is not None
    judge, points, (n, m) = judge_of(mdp), terms.points, learned.snapshots.shape[:2]
    policies = learned.snapshots.argmax(-1)
    judged: list[Judged] = [judge.of(policy) for policy in policies.reshape(n * m, -1)]
    moments = np.array([one.moments for one in judged], np.float64).reshape(n, m, 4)
    verdicts = pa.array([one.verdict for one in judged], pa.string())
    columns = (
        _lists(np.tile(points, (n, 1))),
        _lists(np.ascontiguousarray(learned.snapshots[:, :, mdp.origin].max(-1))),
        _lists(np.ascontiguousarray(moments[:, :, 2])),
        _lists(np.ascontiguousarray(moments[:, :, 0])),
        pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * m), verdicts),
    )
    return dict(zip(KEEPS["curves"], columns, strict=True))


def _lists(values: Floats | Ints) -> pa.Array:
    """An array [n, k] as n lists."""
    n, k = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * k), pa.array(values.ravel()))


def perform(chunk: Sequence[Run], terms: Terms) -> pa.Table:
    """Do a chunk on this thread; return its rows, group by group."""
    return perform_until(chunk, terms)[1]


def perform_until(
    chunk: Sequence[Run], terms: Terms, stop: threading.Event | None = None
) -> tuple[Chunk, pa.Table | None]:
    """Do a chunk until it ends or ``stop`` is set; return the finished runs, and their rows if there are any."""
    done: list[Run] = []
    tables = []
    for group in groups(chunk):
        learned = learn_here(group, terms, stop)
        finished = group[: len(learned.Q)]
        if finished:
            done += finished
            tables.append(rows(finished, terms, learned))
        if len(finished) < len(group):
            break
    return tuple(done), pa.concat_tables(tables, promote_options="default") if tables else None


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
        group, units, seconds, size = self._share(run.point)
        first, target, chunk, spent, room = group, -1.0, [run], seconds, size  # the smallest chunk if no rate is known
        if self._costs.rate(first) is not None:
            ahead = sum((self._costs.rate(g) or 0.0) * u for g, u in self._left.items())
            share = ahead / (SHARES * self._engine.workers)
            target = min(self._engine.seconds, max(share, SHORTEST))
            target = target if self._costs.known(first) else target / 4.0
        self._left[first] -= units
        for run in self._runs:
            if run.point is not chunk[-1].point:
                group, units, seconds, size = self._share(run.point)
            spent, room = spent + seconds, room + size
            small = len(chunk) < self._engine.least or (spent <= target and len(chunk) < self._engine.most)
            guess = not self._costs.known(first) and group != first
            if not small or guess or room > ROOM:
                self._spare = run
                break
            chunk.append(run)
            self._left[group] -= units
        return tuple(chunk)

    def _share(self, point: Point) -> tuple[Hashable, float, float, int]:
        """What one run of a point adds to a chunk: its group, units, seconds and bytes."""
        group, units = self._costs.group(point), self._costs.units(point)
        return group, units, (self._costs.rate(group) or 0.0) * units, room_of(point, self._terms)


def room_of(point: Point, terms: Terms) -> int:
    """The bytes of the results of a run of a point."""
    return 8 * point.mdp.n_pairs * (ARRAYS + terms.curves)


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
