"""Running a comparison: one record per world, contestant and setting.

What a run of the arena keeps: one small file for each (world, contestant, setting), named by its content.

    OUT/runs/ID.npz     what the seeds' policies were at each look, and the exact limit where there is one
    OUT/.lock           held while a comparison is at work

    ID = H( format | world | γ | learner | steps | steps of an episode | looks | ε | seeds )

A file is written whole or not at all. So a comparison that was killed goes on where it was, two comparisons in one folder
share what they have in common, and the page, which is made from these files alone, is the same to the last bit.

Doing it: every setting of every contestant on every world, the same experience for all, and each policy judged exactly.

A run takes exactly ``world.steps`` steps of the MDP, whatever the learner does with them. Its greedy policy is looked at
after an eighth, a quarter, half and all of them. Learning takes all cores; the policies of one setting are judged while
the next is learned.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, Self

import numpy as np

from .. import _checks, _files
from .._progress import Bar
from .._types import AnyArray, Floats, Ints
from ..engines.identity import config_digest, digest, table_digest
from ..errors import BadFile, BadInput
from ..learners import Learner
from ..runs import Runs, learn
from ..schedules import EpsilonGreedy
from ..theory.limits import exact
from .plan import Contestant, World

KIND, FORMAT = "arena run", 1
ARRAYS = ("value", "p_unsafe", "p_never", "updates", "limit")
NO_LIMIT = (nan, nan, nan)


@dataclass(frozen=True, eq=False)
class Record:
    """One setting of one contestant on one world; of one who does not apply, only why."""

    value: Floats  #: [seeds, looks] the return of the greedy policy
    p_unsafe: Floats  #: [seeds, looks]
    p_never: Floats  #: [seeds, looks]
    updates: Ints  #: [seeds] fresh and replayed
    limit: Floats  #: (return, P(unsafe), P(never ends)) of the exact limit; nan where there is none
    refused: str | None = None  #: why the learner does not run on this world

    @classmethod
    def not_run(cls, why: str) -> Self:
        """The record of a learner that does not run on a world.

        >>> Record.not_run("goals must be there, got none").value.shape
        (0, 0)
        """
        none = np.zeros((0, 0))
        return cls(none, none, none, np.zeros(0, np.int64), np.array(NO_LIMIT), why)


@dataclass(frozen=True)
class Job:
    """A learner on a world over seeds.

    >>> import safereplay as sr
    >>> from .plan import worlds
    >>> cliff = worlds(["cliff"], steps=100)[0]
    >>> Job(cliff, sr.RiskSensitive(0.5), 20).id == Job(cliff, sr.RiskSensitive(0.6), 20).id
    False
    """

    world: World
    learner: Learner
    seeds: int

    @property
    def id(self) -> str:
        """32 hex digits from its content."""
        world = self.world
        what = [FORMAT, table_digest(world.mdp), world.mdp.gamma, config_digest(self.learner)]
        return digest([*what, world.steps, world.max_steps, world.looks.tolist(), world.epsilon, self.seeds])


class Store:
    """A folder of records that one comparison writes to at a time."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = _files.make_folder(folder)
        self._lock = _files.Lock(self.folder)
        self._runs = _files.make_folder(self.folder / "runs")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def get(self, job: Job) -> Record | None:
        """What is known of a job; None where nothing is, or a disk damaged it."""
        try:
            meta, arrays = _files.load_arrays(self._file(job), KIND, FORMAT)
            return Record(refused=meta["refused"], **{name: arrays[name] for name in ARRAYS})
        except (BadFile, KeyError):
            return None

    def put(self, job: Job, record: Record) -> None:
        """Keep what a job found."""
        about: dict[str, Any] = {"world": job.world.title, "learner": job.learner.describe(), "refused": record.refused}
        arrays: dict[str, AnyArray] = {name: getattr(record, name) for name in ARRAYS}
        _files.save_arrays(self._file(job), KIND, FORMAT, about, arrays)

    def _file(self, job: Job) -> Path:
        return self._runs / f"{job.id}.npz"


AHEAD = 2  # settings that may be learned and not yet judged
LARGE = 1_000  # pairs: of a larger model the exact limits are not worked out


@dataclass(frozen=True)
class Plan:
    """Who meets where, over how many seeds."""

    worlds: tuple[World, ...]
    contestants: tuple[Contestant, ...]
    seeds: int

    def jobs(self) -> Iterator[tuple[str, Job]]:
        """Everything that is to be done, with what to call it; what two contestants share comes once."""
        seen: set[str] = set()
        for world in self.worlds:
            for one in self.contestants:
                for learner in one.learners:
                    job = Job(world, learner, self.seeds)
                    if job.id not in seen:
                        seen.add(job.id)
                        yield f"{world.title}: {one.label}", job


def run(plan: Plan, store: Store, quiet: bool = False, threads: int | None = None) -> None:
    """Do what the store lacks. On Ctrl-C what is finished stays."""
    jobs = list(plan.jobs())
    todo = [(label, job) for label, job in jobs if store.get(job) is None]
    there = len(jobs) - len(todo)
    waiting: deque[Future[None]] = deque()
    done = 0
    with Bar("comparing", len(jobs), quiet) as bar, ThreadPoolExecutor(1) as judges:
        for label, job in todo:
            bar.update(there + done, label)
            waiting.append(judges.submit(_finish, store, job, _learned(job, threads)))
            while len(waiting) > AHEAD:
                waiting.popleft().result()
                done += 1
        for one in waiting:
            one.result()


def _learned(job: Job, threads: int | None) -> Runs | str:
    """What the seeds learned, or why the learner does not run here."""
    world = job.world
    try:
        return learn(
            world.mdp,
            job.learner,
            seeds=job.seeds,
            exploration=EpsilonGreedy(world.epsilon),
            steps=world.steps,
            max_steps=world.max_steps,
            snapshots=world.looks.tolist(),
            threads=threads,
            quiet=True,
        ).whole()
    except BadInput as error:
        return str(error)


def _finish(store: Store, job: Job, runs: Runs | str) -> None:
    """Judge what was learned, and keep it."""
    store.put(job, Record.not_run(runs) if isinstance(runs, str) else judged(job, runs))


def judged(job: Job, runs: Runs) -> Record:
    """The record of what the seeds learned."""
    world, model = job.world, job.learner.judging_model(job.world.mdp)
    steps = runs.visits.sum((1, 2))
    _checks.require(bool((steps == world.steps).all()), "steps of a run", f"be {world.steps}", steps.tolist())
    assert runs.snapshots is not None
    policies = runs.snapshots.policy  # [seeds, looks, S]
    found = np.array([[world.judged(model, policy) for policy in run] for run in policies])
    updates = steps + runs.replays.sum((1, 2))
    return Record(found[..., 0], found[..., 1], found[..., 2], updates, _limit(job))


def _limit(job: Job) -> Floats:
    """What the learner converges to, judged; nan where it has no exact limit, or the model is large."""
    world, model = job.world, job.learner.judging_model(job.world.mdp)
    if model.n_pairs > LARGE:
        return np.array(NO_LIMIT)
    try:
        return np.array(world.judged(model, exact(world.mdp, job.learner).argmax(1)))
    except BadInput:
        return np.array(NO_LIMIT)
