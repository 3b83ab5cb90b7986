"""The runs of a sweep, and how they are done.

A *model* is a TabularMDP, a *point* is (model, learner, exploration, step size), a *run* is a point and a seed. A
*chunk* is a tuple of runs that are done and written together.

    Q, visits, ... of a chunk   learned by the code of :func:`safereplay.learn`              (:func:`learn_here`)
    one row per run             its kept results: policy, verdict, risk, curves, ...         (:func:`rows`)

A row is a pure function of its run. It has no time, machine or speed, so any engine writes the same rows, however often
it was stopped.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from .. import runs as single
from .._types import Floats, Ints
from ..arrays import sampling_model
from ..errors import BadInput
from ..kernels import rng, step
from ..learners import Learner, Recipe
from ..mdp import TabularMDP
from ..schedules import Exploration, StepSize
from .identity import run_id, table_digest
from .judging import Judged, judge_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Chunk", "Done", "Engine", "Learned", "Point", "Run", "Terms", "run_id"]

#: What ``keep`` may name, and its columns.
KEEPS: dict[str, tuple[str, ...]] = {
    "policy": ("policy",),
    "Q": ("Q",),
    "visits": ("visits", "replayed"),
    "verdict": ("verdict",),
    "risk": ("mean", "std", "p_unsafe", "p_never", "cvar10"),
    "curves": ("curve_episodes", "curve_value", "curve_p_unsafe", "curve_mean", "curve_verdict"),
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
    key: tuple[str, type, Recipe] | None = None
    last: Point | None = None
    for run in chunk:
        point = run.point
        if key is None or point is not last:
            key = table_digest(point.mdp), type(point.learner), point.learner.recipe(point.exploration, point.step_size)
            last = point
        found.setdefault(key, []).append(run)
    return list(found.values())


def learn_here(runs: Sequence[Run], terms: Terms, stop: threading.Event | None = None) -> Learned:
    """Do runs of one group on this thread, with the same bits as :func:`safereplay.learn`.

    Once ``stop`` is set, no further run is started or finished: only the runs finished by then are returned.
    """
    mdp, stop = runs[0].point.mdp, stop or threading.Event()
    points, model = terms.points, _sampling(mdp)
    finished: list[single.Finished] = []
    plan: single.Plan | None = None
    last: Point | None = None
    for run in runs:
        if plan is None or run.point is not last:
            plan, last = _plan(run.point, terms, points), run.point
        try:
            one = single.OneRun(plan, model, run.seed).finish(stop, _unheard)
        except BadInput as error:
            where = f"{run.point.learner.describe()} on {run.point.model} with seed {run.seed}"
            raise BadInput(f"{error}; in {where}") from None
        if one is None:
            break
        finished.append(one)
    return _learned(mdp, len(points), finished)


def _unheard(episodes: int) -> None:
    pass


def _plan(point: Point, terms: Terms, points: Ints) -> single.Plan:
    mdp = point.mdp
    program = single.make_program(point.learner, point.exploration, point.step_size, mdp.gamma, mdp.n_actions)
    return single.Plan(mdp, point.learner, terms.episodes, terms.max_steps, points, program)


_models: dict[str, rng.Model] = {}


def _sampling(mdp: TabularMDP) -> rng.Model:
    """The model in the form that the loop samples from; the latest few are cached."""
    key = table_digest(mdp)
    model = _models.get(key)
    if model is None:
        model = sampling_model(mdp)
        for old in list(_models)[: max(0, len(_models) - 7)]:
            _models.pop(old, None)
        _models[key] = model
    return model


def _learned(mdp: TabularMDP, m: int, finished: list[single.Finished]) -> Learned:
    shape = (len(finished), mdp.n_states, mdp.n_actions)
    Q, visits, replays = np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int64)
    snapshots = np.empty((shape[0], m, *shape[1:])) if m else None
    for k, one in enumerate(finished):
        counts = one.tables.counts
        Q[k].flat, visits[k].flat, replays[k].flat = one.tables.Q, counts[:, step.VISITS], counts[:, step.REPLAYS]
        if snapshots is not None and one.kept.shots is not None:
            snapshots[k].flat = one.kept.shots.ravel()
    return Learned(Q, visits, replays, snapshots)


def rows(runs: Sequence[Run], terms: Terms, learned: Learned) -> pa.Table:
    """One row per run of a group, with what is kept."""
    import pyarrow as pa

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
    import pyarrow as pa

    kinds = {type(x) for x in values if x is not None}
    kind = pa.string() if str in kinds else pa.bool_() if bool in kinds else pa.float64()
    return pa.array(values, kind if kinds else pa.null())


def _kept(mdp: TabularMDP, terms: Terms, learned: Learned) -> dict[str, pa.Array]:
    """The kept columns, in the order of :data:`KEEPS`."""
    import pyarrow as pa

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
    import pyarrow as pa

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
    import pyarrow as pa

    n, k = values.shape
    return pa.ListArray.from_arrays(pa.array(np.arange(n + 1, dtype=np.int32) * k), pa.array(values.ravel()))


def perform(chunk: Sequence[Run], terms: Terms) -> pa.Table:
    """Do a chunk on this thread; return its rows, group by group."""
    return perform_until(chunk, terms)[1]


def perform_until(
    chunk: Sequence[Run], terms: Terms, stop: threading.Event | None = None
) -> tuple[Chunk, pa.Table | None]:
    """Do a chunk until it ends or ``stop`` is set; return the finished runs, and their rows if there are any."""
    import pyarrow as pa

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
