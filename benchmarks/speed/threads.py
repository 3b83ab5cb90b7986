"""Scaling with threads: the same runs of the cliff on 1, 2, ... threads, up to the machine's cores.

Runs share only the model, and the compiled loop holds no lock. So n threads should be nearly n times as fast as one,
except for Python's share of the work and waiting for memory. For comparison, a bare compiled loop that uses only registers
is distributed in the same way: it shows what the machine allows at that moment. Wall-clock seconds, the best of alternating
rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from safereplay.grids import cliff
from safereplay.kernels import rng
from safereplay.kernels.compile import Array, kernel
from safereplay.learners import ReplayQLearning
from safereplay.runs import learn

from .sheets import Effort, Part, Rows, Sheet, Task, cores, in_turns, seconds_of

WORDS = 2_000_000  # drawn by a bare loop per run


@dataclass(frozen=True)
class Threads:
    """The time of all runs on a number of threads."""

    threads: int
    runs: int
    episodes: int
    seconds: float
    speedup: float  #: over one thread
    ceiling: float  #: the speed-up of a bare loop


def counts(most: int) -> list[int]:
    """1, 2, 4, ... and ``most``.

    >>> counts(6)
    [1, 2, 4, 6]
    """
    return [*(1 << k for k in range(most.bit_length()) if 1 << k < most), most]


@kernel
def spin(generator: Array, words: int) -> None:
    """Draw random words and discard them."""
    for _ in range(words):
        rng.next_word(generator)


def bare_loop(runs: int, threads: int) -> None:
    """A bare loop for each run, on a number of threads."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda seed: spin(rng.seeded(seed), WORDS), range(runs)))


def measure_threads(runs: int, episodes: int, rounds: int) -> list[Threads]:
    """Replay with v = ½ on the cliff, by the number of threads."""
    mdp, learner, numbers = cliff(), ReplayQLearning(v=0.5), counts(cores())
    learn(mdp, learner, 1, 1, threads=1, quiet=True).whole()  # compiles
    spin(rng.seeded(0), 1)

    def learning(threads: int) -> Callable[[], float]:
        return lambda: seconds_of(lambda: learn(mdp, learner, episodes, runs, threads=threads, quiet=True).whole())

    def spinning(threads: int) -> Callable[[], float]:
        return lambda: seconds_of(lambda: bare_loop(runs, threads))

    works = [work(n) for work in (learning, spinning) for n in numbers]
    best = [min(times) for times in in_turns(works, rounds)]
    learned, spun = best[: len(numbers)], best[len(numbers) :]
    return [
        Threads(n, runs, episodes, t, learned[0] / t, spun[0] / bare)
        for n, t, bare in zip(numbers, learned, spun, strict=True)
    ]


def tasks(effort: Effort) -> list[Task]:
    """One task: the numbers of threads alternate."""
    measure = partial(measure_threads, effort.runs, effort.run_episodes, effort.rounds)
    return [Task(f"threads: {effort.runs} runs of the cliff", measure)]


def sheet(rows: Rows) -> Sheet:
    """The times, as a table."""
    what = f"{rows[0].runs} runs of {rows[0].episodes:,} episodes on the cliff, replay with v = ½"
    return Sheet(
        "thread scaling",
        f"{what}, wall-clock seconds, the best round. The ceiling is the speed-up of a bare compiled loop here.",
        ("threads", "seconds", "speed-up", "ceiling"),
        [(str(row.threads), f"{row.seconds:.2f}", f"{row.speedup:.2f}×", f"{row.ceiling:.2f}×") for row in rows],
        f"{rows[-1].threads} threads are {rows[-1].speedup:.2f} times as fast as one; a bare loop {rows[-1].ceiling:.2f} times.",
        words=0,
    )


PART = Part("threads", tasks, sheet)
