"""The sum tree compared with cpprb's, doing the same work.

cpprb's tree cannot be called on its own from Python, so prioritised sampling is compared, with the same work on both
sides. Both hold the same priorities and one column of numbers:

    sample   a batch of indices, one from each part of the total, with their importance weights (p_min/p_i)^β, where p_min
             is the least of all priorities (from a tree of minima), and the column's entries
    update   a batch of priorities at given indices, p_i = (priority + ε)^α, in the tree of sums and the tree of minima

``alone`` is safereplay's sum tree only: :func:`draw_many` and ``put_many``. Times are medians of many alternating rounds, in
wall-clock seconds. cpprb has 32-bit floats, safereplay 64-bit ones. cpprb's tree alone is timed in C++ by
``benchmarks/cpprb_tree.cpp``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

from safereplay._checks import Floats, Ints
from safereplay.kernels import rng, tree
from safereplay.kernels.compile import Array, at, jit, kernel

from .sheets import Effort, Part, Rows, Sheet, Task, in_turns, microseconds, seconds_of, span

ALPHA, BETA, EPSILON = 0.6, 0.4, 1e-4  # cpprb's defaults
BATCHES = (32, 256, 1024)
TOGETHER = 16  # searches in parallel: enough to hide the latency of memory


@kernel
def find_many(tree: Array, x: Array, things: Array) -> None:
    """The entries at positions x, as in :func:`safereplay.kernels.tree.find`; x is overwritten."""
    n_leaves = tree.size >> 1
    for first in range(0, x.size, TOGETHER):
        after = min(first + TOGETHER, x.size)
        for k in range(first, after):
            things[k] = 1
        level = 1
        while level < n_leaves:
            for k in range(first, after):
                j = 2 * things[k]
                left = tree[at(j)]
                right = (not x[k] < left) & (tree[at(j + 1)] > 0.0)  # branch-free: it cannot be predicted
                x[k] -= left if right else 0.0
                things[k] = j + right
            level *= 2
        for k in range(first, after):
            things[k] -= n_leaves


@jit
def _least(left: float, right: float) -> float:
    return min(left, right)


put_many_least = tree.putting(_least)  #: ``put_many`` for a tree of minima, which holds +∞ in empty entries


@kernel
def draw_many(sums: Array, generator: Array, x: Array, things: Array) -> None:
    """A batch of n indices: one from each n-th of the total, so that a batch is spread evenly. x [n] is scratch memory.

    Index i is expected n·weight/total times, as with n independent draws. The total must be positive.
    """
    for k in range(x.size):
        x[k] = (k + rng.uniform(generator)) / x.size * sums[1]
    find_many(sums, x, things)


@dataclass(frozen=True)
class Batch:
    """The times of a batch, in seconds."""

    entries: int
    batch: int
    work: str  #: sample or update
    ours: float
    alone: float  #: the sum tree's part
    cpprb: float | None  #: None if it is not installed

    @property
    def ratio(self) -> float | None:
        """cpprb's time relative to safereplay's."""
        return None if self.cpprb is None else self.cpprb / self.ours


class Priorities:
    """Prioritised sampling as in cpprb, on safereplay's tree.

    >>> made = Priorities(np.array([0.0, 3.0, 1.0]), np.array([10.0, 20.0, 30.0]))
    >>> made.update(np.array([1]), np.array([0.0]))
    >>> made.sample(4)["x"]
    array([30., 30., 30., 30.])
    """

    def __init__(self, priorities: Floats, column: Floats) -> None:
        self.sums = tree.allocate(len(priorities))
        self.minima = np.full_like(self.sums, np.inf)
        self.column, self.generator = column, rng.seeded(0)
        self.update(np.arange(len(priorities)), priorities)

    def sample(self, batch: int) -> dict[str, Any]:
        """A batch: indices, importance weights, and entries of the column."""
        things = np.empty(batch, np.int64)
        draw_many(self.sums, self.generator, np.empty(batch), things)
        p = self.sums[(self.sums.size >> 1) + things]
        return {"indexes": things, "weights": (self.minima[1] / p) ** BETA, "x": self.column[things]}

    def update(self, things: Ints, priorities: Floats) -> None:
        """Set new priorities at some indices."""
        p = (priorities + EPSILON) ** ALPHA
        tree.put_many(self.sums, things, p)
        put_many_least(self.minima, things, p)


def cpprb_buffer(priorities: Floats, column: Floats) -> Any:
    """cpprb's buffer with the same priorities and one column."""
    from cpprb import PrioritizedReplayBuffer

    buffer = PrioritizedReplayBuffer(len(column), {"x": {}}, alpha=ALPHA, eps=EPSILON)
    buffer.add(x=column.astype(np.float32), priorities=priorities.astype(np.float32))
    return buffer


def measure_tree(entries: int, rounds: int) -> list[Batch]:
    """All batch sizes at one number of entries, alternating."""
    generator = np.random.default_rng(0)
    priorities, column = generator.exponential(size=entries), np.arange(float(entries))
    ours = Priorities(priorities, column)
    theirs = cpprb_buffer(priorities, column) if find_spec("cpprb") else None
    rows: list[Batch] = []
    for batch in BATCHES:
        for name, works in _works(ours, theirs, batch, generator).items():
            times = [median(each) for each in in_turns(works, rounds)]
            rows.append(Batch(entries, batch, name, times[0], times[1], times[2] if theirs else None))
    return rows


def _works(
    ours: Priorities, theirs: Any, batch: int, generator: np.random.Generator
) -> dict[str, list[Callable[[], float]]]:
    """The timed work: safereplay, its tree alone, and cpprb."""
    x, found, n = np.empty(batch), np.empty(batch, np.int64), ours.column.size

    def fresh() -> tuple[Ints, Floats]:
        return generator.integers(0, n, batch), generator.exponential(size=batch)

    def draw_alone() -> float:
        return seconds_of(lambda: draw_many(ours.sums, ours.generator, x, found))

    def put_alone() -> float:
        things, p = fresh()
        return seconds_of(lambda: tree.put_many(ours.sums, things, p))

    def update() -> float:
        things, priorities = fresh()
        return seconds_of(lambda: ours.update(things, priorities))

    def their_update() -> float:
        things, priorities = fresh()
        given = things.astype(np.uint64), priorities.astype(np.float32)  # cpprb's types, so that nothing is converted
        return seconds_of(lambda: theirs.update_priorities(*given))

    sample = [lambda: seconds_of(lambda: ours.sample(batch)), draw_alone]
    updates = [update, put_alone]
    if theirs is not None:
        sample.append(lambda: seconds_of(lambda: theirs.sample(batch, BETA)))
        updates.append(their_update)
    return {"sample": sample, "update": updates}


def tasks(effort: Effort) -> list[Task]:
    """Every number of entries."""
    return [Task(f"sum tree: {n:,} entries", partial(measure_tree, n, effort.draws)) for n in effort.entries]


def sheet(rows: Rows) -> Sheet:
    """The times of a batch, as a table."""
    beside = [row.ratio for row in rows if row.ratio is not None]
    return Sheet(
        "prioritised sampling, µs per batch",
        "The same work on both sides. Sampling: indices spread over the total, importance weights relative to the smallest of all "
        "priorities, one column. Updating: (priority + ε)^α into a tree of sums and one of minima. 'tree alone' is "
        "safereplay's sum tree only. Median of alternating rounds.",
        ("work", "entries", "batch", "safereplay", "tree alone", "cpprb", "speed-up"),
        [
            (
                row.work,
                f"{row.entries:,}",
                f"{row.batch:,}",
                microseconds(row.ours),
                microseconds(row.alone),
                "–" if row.cpprb is None else microseconds(row.cpprb),
                "–" if row.ratio is None else f"{row.ratio:.1f}×",
            )
            for row in sorted(rows, key=lambda row: row.work)
        ],
        f"cpprb takes {span(beside, 1)} times as long." if beside else "cpprb was not measured.",
    )


PART = Part("tree", tasks, sheet)
