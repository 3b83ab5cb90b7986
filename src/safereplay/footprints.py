"""The memory that runs need, computed before they start.

With S states, P pairs and K outcomes, the runs of one call of :func:`safereplay.learn` need, in bytes,

    kept      results per seed: Q 8·P, visits and replays 16·P; seen 8·K where outcomes are remembered; replayed
              and w 16·K where they are replayed; per snapshot Q and visits 16·P, and w 8·K
    working   additional, during a run: visits of states 8·S; statistics of pairs where outcomes are remembered, 16·P, or
              64·P if more than mean and variance are used; the sum tree 16·P where they are replayed; unsafe flags K
              if they are used
    shared    by all runs: the sampling tables 12·K + 16·S; outcomes per pair 8·P where outcomes are remembered; the
              model itself is not copied

and about 1 MiB of schedules. A run writes directly into its row of the result arrays, so nothing is copied at the end:
w overwrites the running sums that it is computed from, and the integers ``seen`` overwrite the float counts.
Counts have 64 bits each: one pair can be updated 2³² times within minutes.

>>> import safereplay as sr
>>> print(sr.footprint(sr.grids.cliff(), sr.QLearning(), seeds=20, threads=2))
49.1 KiB: 24 B per pair kept × 20 seeds, 8 B per state working × 2 runs at a time, 12 B per outcome + 16 B per state shared
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from . import _checks
from ._checks import AnyArray, Floats, Ints
from ._config import plain
from .errors import BadInput
from .kernels import step
from .learners import Learner, Recipe
from .mdp import TabularMDP
from .schedules import EpsilonGreedy, PowerStep

WORD = 8  # bytes of a float, a count, an index
GAP = 128 // WORD  # words between two rows: processors fetch two cache lines of 64 bytes at once
PIECE = 1 << 16  # counts converted to integers at a time
MATTERS = 1 << 26  # requests below this many bytes are not compared with the free memory
MEMINFO, CGROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


class Part(NamedTuple):
    """Bytes per pair, per outcome and per state."""

    pair: int = 0
    outcome: int = 0
    state: int = 0

    def __str__(self) -> str:
        return " + ".join(f"{n} B per {name}" for name, n in self._asdict().items() if n) or "nothing"


@dataclass(frozen=True)
class Footprint:
    """The memory that a call of :func:`safereplay.learn` needs, by part; see :mod:`safereplay.footprints`.

    Parameters
    ----------
    n_pairs, n_outcomes, n_states : int; size of the model
    seeds : int; number of runs
    at_once : int; runs in parallel
    kept, working, shared : Part; bytes per seed, per run in parallel, and of all runs together
    """

    n_pairs: int
    n_outcomes: int
    n_states: int
    seeds: int
    at_once: int
    kept: Part
    working: Part
    shared: Part

    def bytes_of(self, part: Part) -> int:
        """A part's bytes in this model."""
        return part.pair * self.n_pairs + part.outcome * self.n_outcomes + part.state * self.n_states

    @property
    def total(self) -> int:
        """The peak number of bytes."""
        each = self.seeds * self.bytes_of(self.kept) + self.at_once * self.bytes_of(self.working)
        return each + self.bytes_of(self.shared)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        parts = {name: getattr(self, name)._asdict() for name in ("kept", "working", "shared")}
        return {**plain(self), **parts, "total": self.total}

    def __str__(self) -> str:
        kept = f"{self.kept} kept" + f" × {self.seeds} seeds" * (self.seeds > 1)
        working = f"{self.working} working" + f" × {self.at_once} runs at a time" * (self.at_once > 1)
        return f"{amount(self.total)}: {kept}, {working}, {self.shared} shared"


def footprint(
    mdp: TabularMDP, learner: Learner, seeds: int = 1, snapshots: int = 0, threads: int | None = None
) -> Footprint:
    """The memory that :func:`safereplay.learn` will need, computed before it starts.

    Parameters
    ----------
    mdp, learner : as in :func:`safereplay.learn`
    seeds, snapshots : int; their numbers
    threads : int, optional; runs in parallel; default: all CPUs

    Returns
    -------
    Footprint : ``total`` is the peak number of bytes

    >>> import safereplay as sr
    >>> sr.footprint(sr.grids.cliff(), sr.ReplayQLearning(), snapshots=10).kept
    Part(pair=184, outcome=104, state=0)
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    _checks.require(isinstance(learner, Learner), "learner", "be a Learner", learner)
    seeds, snapshots = _checks.whole("seeds", seeds, 1), _checks.whole("snapshots", snapshots, 0)
    workers = _checks.whole("threads", os.cpu_count() if threads is None else threads, 1)
    return of_runs(mdp, learner.recipe(EpsilonGreedy(), PowerStep()), seeds, snapshots, workers)


def of_runs(mdp: TabularMDP, recipe: Recipe, seeds: int, snapshots: int, workers: int) -> Footprint:
    """The memory of runs whose arguments have been checked."""
    remembers, replays = memory_kept(recipe)
    n_stats = recipe.n_stats if isinstance(recipe, step.Recipe) else 0
    marked = isinstance(recipe, step.Recipe) and recipe.weighs("harm", "unsafe")
    return Footprint(
        *(mdp.n_pairs, mdp.r.size, mdp.n_states, seeds, min(seeds, workers)),
        kept=Part(WORD * (3 + 2 * snapshots), WORD * (remembers + (2 + snapshots) * replays)),
        working=Part(WORD * (n_stats * remembers + 2 * replays), int(marked), WORD),
        shared=Part(WORD * remembers, WORD + 4, 2 * WORD),
    )


def memory_kept(recipe: Recipe) -> tuple[bool, bool]:
    """Whether runs count the distinct outcomes they saw, and whether they have a w_t over those."""
    return (recipe.remembers, recipe.replays) if isinstance(recipe, step.Recipe) else (False, False)


def refuse_what_does_not_fit(need: Footprint) -> None:
    """Raise an error if runs clearly need more memory than is free; do nothing if that is not known."""
    free = free_memory() if need.total > MATTERS else None
    if free is None or need.total <= free:
        return
    ways = {"threads": need.at_once > 1, "seeds": need.seeds > 1, "snapshots": need.kept.pair > 3 * WORD}
    less = [f"fewer {way}" for way, helps in ways.items() if helps]
    hint = f"; try {' or '.join(less)}" if less else ""
    raise BadInput(f"runs must fit into the {amount(free)} of memory that are free, got {need}{hint}")


def free_memory() -> int | None:
    """Bytes available without swapping, if the system reports it; otherwise None."""
    try:
        lines = dict(line.split(":") for line in MEMINFO.read_text(encoding="ascii").splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:
        return min(free, int(CGROUP.read_text(encoding="ascii")))
    except (OSError, ValueError):  # no such limit
        return free


def amount(size: int) -> str:
    """Bytes as text."""
    unit = next((k for k in (30, 20) if size >= 1 << k), 10)
    return f"{size / 2**unit:.1f} {'KMG'[unit // 10 - 1]}iB"


class Kept(NamedTuple):
    """The results of runs, one row per seed; a run writes into its row, which is a Kept with one axis less."""

    Q: Floats  #: [n, P]
    counts: Ints  #: [n, P, 2] as in ``Tables.counts``
    seen: Ints | None  #: [n, K]; during a run, its counts as floats
    replayed: Ints | None  #: [n, K]
    w: Floats | None  #: [n, K]; during a run, its running sums
    shots: Floats | None  #: [n, m, P]
    shot_visits: Ints | None  #: [n, m, P]
    shot_w: Floats | None  #: [n, m, K]

    def row(self, k: int) -> Kept:
        """The row that run k writes to."""
        return Kept(*(None if x is None else x[k] for x in self))  # type: ignore[arg-type]

    def only(self, rows: Sequence[int]) -> Kept:
        """Keep some rows, in rising order; they are moved to the front, not copied."""
        for to, k in enumerate(rows):
            for x in self if to != k else ():
                if x is not None:
                    x[to] = x[k]
        return Kept(*(None if x is None else x[: len(rows)] for x in self))  # type: ignore[arg-type]


def make_room(mdp: TabularMDP, recipe: Recipe, n: int, shots: int) -> Kept:
    """Zero arrays for n runs and their snapshots; the system allocates the memory at the first write."""
    P, K = mdp.n_pairs, mdp.r.size
    remembers, replays = memory_kept(recipe)
    return Kept(
        _rows(n, P, np.float64),
        _rows(n, 2 * P, np.int64).reshape(n, P, 2),
        _rows(n, K, np.int64) if remembers else None,
        _rows(n, K, np.int64) if replays else None,
        _rows(n, K, np.float64) if replays else None,
        np.zeros((n, shots, P)) if shots else None,
        np.zeros((n, shots, P), np.int64) if shots else None,
        np.zeros((n, shots, K)) if shots and replays else None,
    )


def _rows(n: int, size: int, dtype: Any) -> AnyArray:
    """Zeros [n, size] whose rows share no cache line, so that threads on neighbouring rows do not slow each other down."""
    return np.zeros((n, size + GAP if n > 1 else size), dtype)[:, :size]


def make_whole(counts: Ints) -> None:
    """Convert floats stored in an integer array to integers, in place."""
    floats = counts.view(np.float64)
    for k in range(0, counts.size, PIECE):
        counts[k : k + PIECE] = floats[k : k + PIECE]
