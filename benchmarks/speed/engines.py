"""The overhead of engines: the same small sweep by each engine that can run here.

    start     seconds to make the engine and to finish a first sweep of one run of one episode
    bare      seconds of :func:`safereplay.learn` for the same runs on the same number of threads
    seconds   of the sweep by a started engine, with files, verdicts and risks
    beyond    seconds − bare: communication, judging, writing; per run, and per chunk

All times are wall-clock, the best of alternating rounds. A GPU has no bare time, since its learning code is different.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from typing import Any

from safereplay.engines.spec import load_spec
from safereplay.engines.sweeps import sweep
from safereplay.engines.work import Chunk, Done, Engine, Terms, ThreadsEngine
from safereplay.grids import cliff
from safereplay.learners import ReplayQLearning
from safereplay.runs import learn

from .sheets import Effort, Part, Rows, Sheet, Task, cores, in_turns, seconds_of

V = (0.3, 0.6)


@dataclass(frozen=True)
class Overhead:
    """The times of a sweep on one engine."""

    engine: str
    workers: int
    runs: int
    chunks: int
    bare: float | None  #: seconds; None for a GPU
    start: float
    seconds: float

    @property
    def beyond(self) -> float | None:
        """Seconds beyond learning."""
        return None if self.bare is None else self.seconds - self.bare


class Lasting:
    """An engine that stays open after a sweep, and counts its chunks."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.chunks = engine, 0
        self.name, self.workers = engine.name, engine.workers
        self.seconds, self.least, self.most = engine.seconds, engine.least, engine.most

    def finish(self, chunks: Iterator[Chunk], terms: Terms) -> Iterator[Done]:
        """Do the chunks."""
        self.chunks = 0
        for done in self.engine.finish(chunks, terms):
            self.chunks += 1
            yield done

    def close(self) -> None:
        """Do nothing: the next sweep needs the engine."""


def engines() -> dict[str, Callable[[], Engine]]:
    """The engines that can run here, by name."""
    found: dict[str, Callable[[], Engine]] = {"threads": lambda: ThreadsEngine(cores())}
    if find_spec("ray"):
        from safereplay.engines.ray import RayEngine

        found["ray"] = lambda: RayEngine(workers=cores())
    from safereplay.engines.cuda import CudaEngine, available

    if available() is None:
        found["cuda"] = CudaEngine
    return found


def small_sweep(seeds: int, episodes: int) -> dict[str, Any]:
    """Replay on the cliff, two values of v."""
    return {
        "episodes": episodes,
        "seeds": seeds,
        "keep": ["policy", "verdict", "risk"],
        "models": {"cliff": {}},
        "learners": {"replay": {"kind": "ReplayQLearning", "v": list(V)}},
    }


def sweep_by(engine: Engine, spec: dict[str, Any]) -> None:
    """A sweep into a temporary folder."""
    with TemporaryDirectory() as folder:
        if sweep(load_spec(spec), folder, engine, quiet=True).interrupted:
            raise KeyboardInterrupt


def learn_bare(seeds: int, episodes: int) -> None:
    """The same runs with :func:`safereplay.learn`, on all cores."""
    for v in V:
        learn(cliff(), ReplayQLearning(v=v), episodes, seeds, threads=cores(), quiet=True).whole()


def measure_engine(name: str, seeds: int, episodes: int, rounds: int) -> list[Overhead]:
    """One engine: its start, then alternating bare learning and sweeps, after one that compiles."""
    whole, one = small_sweep(seeds, episodes), small_sweep(1, 1)
    sweep_by(ThreadsEngine(1), one)  # loading and compiling do not count as the engine's start
    began = time.perf_counter()
    engine = Lasting(engines()[name]())
    try:
        sweep_by(engine, one)
        start = time.perf_counter() - began
        sweep_by(engine, whole)
        works = [
            lambda: seconds_of(lambda: learn_bare(seeds, episodes)),
            lambda: seconds_of(lambda: sweep_by(engine, whole)),
        ]
        bare, seconds = (min(times) for times in in_turns(works, rounds))
    finally:
        engine.engine.close()
    known = None if name == "cuda" else bare
    return [Overhead(name, engine.workers, seeds * len(V), engine.chunks, known, start, seconds)]


def tasks(effort: Effort) -> list[Task]:
    """Every engine that can run here."""
    sizes = (effort.sweep_seeds, effort.sweep_episodes, min(effort.rounds, 3))
    return [Task(f"engine: {name}", partial(measure_engine, name, *sizes)) for name in engines()]


def sheet(rows: Rows) -> Sheet:
    """The times of each engine, as a table."""
    return Sheet(
        "engine overhead",
        "One small sweep of replay on the cliff by each engine, with policies, verdicts and risks kept. 'Start' ends with a first "
        "sweep of one run, 'bare' is `learn` on as many threads. The overhead of a sweep is communication, judging and writing, "
        "given per run and per chunk.",
        ("engine", "workers", "runs", "chunks", "start s", "bare s", "sweep s", "ms per run", "ms per chunk"),
        [
            (
                row.engine,
                str(row.workers),
                f"{row.runs:,}",
                f"{row.chunks:,}",
                f"{row.start:.2f}",
                _or_dash(row.bare),
                f"{row.seconds:.2f}",
                _or_dash(row.beyond, 1e3 / row.runs),
                _or_dash(row.beyond, 1e3 / row.chunks),
            )
            for row in rows
        ],
        "Beyond `learn`, a run takes "
        + ", ".join(f"{1e3 * row.beyond / row.runs:.2f} ms on {row.engine}" for row in rows if row.beyond is not None)
        + ".",
    )


def _or_dash(value: float | None, scale: float = 1.0) -> str:
    return "–" if value is None else f"{value * scale:.2f}"


PART = Part("engines", tasks, sheet)
