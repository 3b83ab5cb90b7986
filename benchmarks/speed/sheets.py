"""What the parts of the benchmark share: sizes, alternating rounds, and tables of results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from rich.table import Table


class Effort(NamedTuple):
    """The sizes of the measurements."""

    episodes: int  #: per run in the comparison with plain Python
    seeds: int  #: runs of safereplay per run of plain.py
    rounds: int  #: the best one counts
    pairs: tuple[int, ...]  #: sizes of the models of the costs by size
    warm_up: float  #: MDP iterations per pair before that
    states: tuple[int, ...]  #: of the models that are solved
    entries: tuple[int, ...]  #: of the sum trees
    draws: int  #: rounds of a sum tree; the median counts
    runs: int  #: distributed over the threads
    run_episodes: int  #: of each of these runs
    sweep_seeds: int  #: of the small sweep on each engine
    sweep_episodes: int
    steps: int  #: of MushroomRL
    slots: int  #: of both replay buffers
    dqn_steps: int  #: of SB3's DQN with either buffer


PAIRS = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
FULL = Effort(
    episodes=20_000,
    seeds=50,
    rounds=5,
    pairs=PAIRS,
    warm_up=4.0,
    states=(10_000, 100_000),
    entries=(100_000, 1_000_000),
    draws=400,
    runs=64,
    run_episodes=50_000,
    sweep_seeds=500,
    sweep_episodes=2_000,
    steps=30_000,
    slots=1_000_000,
    dqn_steps=20_000,
)
QUICK = FULL._replace(
    episodes=5_000,
    rounds=2,
    pairs=PAIRS[:4],
    warm_up=2.0,
    states=(10_000,),
    draws=100,
    run_episodes=10_000,
    sweep_seeds=100,
    steps=5_000,
    slots=100_000,
    dqn_steps=5_000,
)

Rows: TypeAlias = Sequence[Any]


class Sheet(NamedTuple):
    """A table of results, for the terminal and for a page."""

    title: str
    said: str  #: a description in a sentence or two
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    reading: str  #: the result in one line
    words: int = 1  #: leading columns that are words, not numbers

    def shown(self) -> Table:
        """The table for the terminal."""
        from rich.box import SIMPLE_HEAD

        from safereplay.views.document import FittingTable

        table = FittingTable(
            title=self.title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True
        )
        for k, column in enumerate(self.header):
            table.add_column(column, justify="left" if k < self.words else "right")
        for row in self.rows:
            table.add_row(*row)
        return table


class Task(NamedTuple):
    """One step of a part: its label, and a function that measures and returns rows."""

    label: str
    measure: Callable[[], Rows]


class Part(NamedTuple):
    """A part of the benchmark."""

    name: str
    tasks: Callable[[Effort], list[Task]]
    sheet: Callable[[Rows], Sheet]


def span(values: Iterable[float], digits: int = 0) -> str:
    """The range of some numbers.

    >>> span([51.2, 162.4]), span([0.93, 0.97], 2), span([2016.0])
    ('51 to 162', '0.93 to 0.97', '2,016')
    """
    found = sorted(values)
    ends = dict.fromkeys(f"{x:,.{digits}f}" for x in (found[0], found[-1]))
    return " to ".join(ends)


def seconds_of(work: Callable[[], Any]) -> float:
    """Wall-clock seconds."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def in_turns(works: Sequence[Callable[[], float]], rounds: int) -> list[list[float]]:
    """The results of each, in alternating rounds, so that a busy moment affects all."""
    turns = [[work() for work in works] for _ in range(rounds)]
    return [list(times) for times in zip(*turns, strict=True)]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def microseconds(seconds: float) -> str:
    """Seconds as text, in µs."""
    return f"{seconds * 1e6:,.1f}"
