"""What a run of the arena keeps: one small file for each (world, contestant, setting), named by its content.

    OUT/runs/ID.npz     what the seeds' policies were at each look, and the exact limit where there is one
    OUT/.lock           held while a comparison is at work

    ID = H( format | world | γ | learner | steps | steps of an episode | looks | ε | seeds )

A file is written whole or not at all. So a comparison that was killed goes on where it was, two comparisons in one folder
share what they have in common, and the page, which is made from these files alone, is the same to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Any, Self

import numpy as np

from .. import _files
from .._types import AnyArray, Floats, Ints
from ..engines.identity import config_digest, digest, table_digest
from ..engines.locks import Lock
from ..errors import BadFile
from ..learners import Learner
from .worlds import World

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
    >>> from .worlds import worlds
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
        self._lock = Lock(self.folder)
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
