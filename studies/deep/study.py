"""The study as data, and how it is run: one file per setting and seed.

    plan  →  jobs, longest first  →  a process each  →  DIR/runs/<digest of its content>.json

A file is written whole or not at all, and a run that has a file is not repeated. So a killed study continues where it stopped,
and runs of other machines are merged by copying their files.

**What is compared.** On every world: the plain learner, DQN or SAC; shaped replay without keys, at its default and at two other v; shaped replay with the world's
key at one setting; shaped replay under a named limit on P(catastrophe), about half of the plain learner's; an extra penalty on harm; QR-DQN and IQN that are greedy on CVaR; static CVaR; a Lagrangian with a cost critic. Each family with a
dial has three settings. All use the world's network, learning rate and budget. A random policy is the return's 0. On continuous actions only replay and penalties are compared.

The default of shaped replay comes first, then the named limit, then its other settings, then rivals, each by seed: a stopped study has some seeds of the main comparison complete.
Once a world's settings have their first seeds, the rule chooses among them, and only the chosen ones get the further seeds (:func:`further`).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from safereplay import _checks
from safereplay._files import make_folder
from safereplay.errors import MissingExtra, stopping

from .records import Job, Perform, perform, write_record
from .summary import CVAR, IQN, KEYED, LAGRANGIAN, LIMITED, OURS, PENALTY, PLAIN, RANDOM, STATIC, Chapter
from .training import Setting
from .worlds import WORLDS, world_named

VS = (0.8, 0.75, 0.65)  #: without keys, the default first; β is 1
SET_ON = ("cliff", "volatile", "delayed", "point", "betting", "maze")  #: the worlds that the default v was set with
KEY = {"key": "world", "v": 0.5, "beta": 2.0}  #: the defaults with keys
PENALTIES = (1.0, 2.0, 4.0)  #: as multiples of what a catastrophe costs already
ALPHAS = (0.25, 0.1, 0.5)
LIMITS = (
    0.5,
    0.25,
    0.0,
)  #: of the Lagrangian, on the share of training episodes with harm, as shares of the plain learner's
RISE = 4.0  #: the multiplier that the Lagrangian has at the end if harm stays as common as without it, in multiples of the harm
LATE = ("delayed",)  #: worlds with harm one step after its cause: keys are tilted on the target
#: The relative cost of a step, roughly.
COSTS = {"random": 0.05, "dqn": 1.0, "static": 1.2, "lagrangian": 1.6, "qrdqn": 2.5, "iqn": 2.9, "sac": 8.0}
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

ENDED = "its process, or another one of the pool, was killed; try again"

Tell = Callable[[int, str], None]  #: called with the number of finished runs, and the last one


# -- the plan ----------------------------------------------------------------------------------------------------------


class Preset(NamedTuple):
    """The size of a study."""

    worlds: tuple[str, ...]
    seeds: int = 20  #: of the plain learner, of the default of shaped replay, and of a named limit
    fewer: int = 5  #: of all other settings; those that the rule chooses get as many as the plain learner
    steps: int = 0  #: 0 for each world's default
    episodes: int = 300  #: evaluation episodes
    selection: int = 100  #: selection episodes
    small: bool = False  #: one setting per family, and learning starts early

    def checked(self) -> Preset:
        """The same, after checks."""
        _checks.require(len(self.worlds) > 0, "worlds", f"name some of {', '.join(WORLDS)}", self.worlds)
        _checks.whole("seeds", self.seeds, 1)
        return self._replace(worlds=tuple(dict.fromkeys(world_named(name).name for name in self.worlds)))


FULL = Preset(
    tuple(name for name in WORLDS if name != "lander")
)  #: no budget here lets DQN land in nine of ten episodes
SMOKE = Preset(("cliff", "point"), seeds=2, steps=300, episodes=20, selection=10, small=True)
EARLY = {"learning_starts": 100}  # else a smoke run would hardly learn


def families(world: str, small: bool = False) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(family, dial, what differs from the plain learner) of every setting on a world, defaults first."""
    n = 1 if small else None
    yield RANDOM, "", {"algorithm": "random"}
    yield PLAIN, "", {}
    for v in VS[:n]:
        yield OURS, f"v = {v:g}", {"v": v}
    if (most := world_named(world).named_limit) and not small:  # its evaluations would take most of the time
        yield LIMITED, f"P ≤ {100 * most:g} %", {"v": VS[0], "limit": most}
    late: dict[str, Any] = {"tilt_on": "target"} if world in LATE else {}
    yield KEYED, f"v = {KEY['v']:g}, β = {KEY['beta']:g}", {**KEY, **late}
    for k in PENALTIES[:n]:
        yield PENALTY, f"{k:g} × harm", _penalised(world, k)
    if _plain(world) == "sac":
        return
    for family, algorithm in ((CVAR, "qrdqn"), (IQN, "iqn"), (STATIC, "static")):
        for alpha in ALPHAS[:n]:
            yield family, f"α = {alpha:g}", {"algorithm": algorithm, "alpha": alpha}
    for share in LIMITS[:n]:
        yield LAGRANGIAN, f"d = {share:g} of plain's", _lagrangian(world, share)


def _penalised(world: str, k: float) -> dict[str, Any]:
    """Harm costs 1 + k times as much. DQN's rewards are scaled down by as much: beyond an error of 1 its loss does not see how large harm is."""
    spec = world_named(world)
    scaled = {"overrides": {"reward_scale": (1.0 + k) * spec.reward_scale}} if spec.learner == "dqn" else {}
    return {"penalty": k * spec.harm, **scaled}


def _lagrangian(world: str, share: float) -> dict[str, Any]:
    """The limit d as a share of the harm in the plain learner's training; η so that the multiplier has time to rise."""
    spec = world_named(world)
    updates = spec.steps / spec.dqn["train_freq"]
    rate = RISE * spec.harm / spec.reward_scale / (updates * spec.harm_in_training)
    limit = round(share * spec.harm_in_training, 4)
    return {"algorithm": "lagrangian", "limit": limit, "overrides": {"rate": float(f"{rate:.2g}")}}


def plan(preset: Preset) -> list[Job]:
    """All runs of a study: the default of shaped replay first, then named limits, its dial, and rivals, each by seed, and long runs first."""
    jobs = [
        Job(family, dial, _setting(preset, world, seed, changes), preset.selection)
        for world in preset.worlds
        for seed in range(preset.seeds)
        for family, dial, changes in families(world, preset.small)
        if seed < preset.fewer or family == LIMITED or _is_main(family, changes)
    ]
    return sorted(jobs, key=lambda job: (_stage(job), job.setting["seed"], -_cost(job.setting)))


def further(preset: Preset, jobs: Sequence[Job], chapters: Sequence[Chapter]) -> list[Job]:
    """The further seeds of the settings in the table of results, on worlds where the plan's runs are complete."""
    found = []
    for chapter in chapters:
        mine = [job for job in jobs if job.setting["world"] == chapter.world]
        there = {(group.family, group.dial, run.seed) for group in chapter.groups for run in group.runs}
        if any((job.family, job.dial, job.setting["seed"]) not in there for job in mine):
            continue
        chosen = [*chapter.contestants.values(), *(choice.group for choice in chapter.choices.values())]
        shown = {(group.family, group.dial) for group in chosen}
        settings = [job for job in mine if job.setting["seed"] == 0 and (job.family, job.dial) in shown]
        for seed in range(preset.fewer, preset.seeds):
            again = [job._replace(setting={**job.setting, "seed": seed}) for job in settings]
            found += [job for job in again if job not in mine]
    return found


def _is_main(family: str, changes: dict[str, Any]) -> bool:
    """Whether a setting belongs to the main comparison: plain, random, and the default of shaped replay."""
    return family in (RANDOM, PLAIN) or (family == OURS and changes["v"] == VS[0])


def _stage(job: Job) -> int:
    """When a run's turn comes."""
    if _is_main(job.family, job.setting):
        return 0
    return {LIMITED: 1, OURS: 2, KEYED: 2, PENALTY: 2}.get(job.family, 3)


def _setting(preset: Preset, world: str, seed: int, changes: dict[str, Any]) -> dict[str, Any]:
    """A setting as a dict, with its steps; 'random' is not an algorithm of Setting, so it is set last."""
    learner = {"algorithm": _plain(world), **{key: x for key, x in changes.items() if x != "random"}}
    learner["overrides"] = {**changes.get("overrides", {}), **(EARLY if preset.small else {})}
    steps = preset.steps or world_named(world).steps
    made = Setting(world, seed=seed, episodes=preset.episodes, steps=steps, **learner).to_dict()
    return {**made, "algorithm": changes.get("algorithm", made["algorithm"])}


def _plain(world: str) -> str:
    """The learner of a world without shaped replay: DQN, or SAC for continuous actions."""
    return str(getattr(world_named(world), "learner", "dqn"))


def _cost(setting: dict[str, Any]) -> float:
    late = 1.3 if setting["tilt_on"] == "target" else 1.0
    return float(setting["steps"] * COSTS[setting["algorithm"]] * late)


# -- running it --------------------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """The outcome of the jobs."""

    done: int
    kept: int  #: done before
    failed: tuple[str, ...]  #: a line each
    left: int  #: not started within the budget


def run_jobs(
    jobs: Sequence[Job],
    folder: str | Path,
    workers: int = 1,
    budget: float | None = None,
    tell: Tell = lambda done, line: None,
    work: Perform | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Do all jobs that have no file yet. After ``budget`` seconds no new one is started; running ones are finished.

    A failed job is reported in a line and does not stop the others; a missing package stops all.
    """
    _checks.whole("jobs", workers, 1)
    if budget is not None:
        _checks.between("budget", budget, "[0, inf)")
    runs = make_folder(Path(folder) / "runs")
    missing = [job for job in jobs if not (runs / job.file).exists()]
    kept, done, failed = len(jobs) - len(missing), 0, []
    end = float("inf") if budget is None else clock() + budget
    queue = iter(missing)

    def open_jobs() -> Job | None:
        return next(queue, None) if clock() < end else None

    run_all = _here if workers == 1 else partial(_elsewhere, workers=workers)
    with stopping(lambda: _kept(jobs, runs)):
        for job, result in run_all(open_jobs, work or perform):
            if isinstance(result, MissingExtra):
                raise result
            if isinstance(result, Exception):
                failed.append(f"{job.line}: {type(result).__name__}: {' '.join(str(result).split())}")
            else:
                write_record(runs, job, result)
                done += 1
            tell(kept + done + len(failed), job.line)
    return Outcome(done, kept, tuple(failed), len(missing) - done - len(failed))


def _kept(jobs: Sequence[Job], runs: Path) -> str:
    """What a stopped study has done."""
    there = sum((runs / job.file).exists() for job in jobs)
    return f"{there} of {len(jobs)} runs are finished; run the same command to continue"


Finished = Iterator[tuple[Job, dict[str, Any] | Exception]]


def _here(take: Callable[[], Job | None], work: Perform) -> Finished:
    while (job := take()) is not None:
        yield job, _tried(work, job)


def _tried(work: Perform, job: Job) -> dict[str, Any] | Exception:
    try:
        return work(job.setting, job.selection)
    except Exception as error:  # an error concerns only this run
        return error


def _elsewhere(take: Callable[[], Job | None], work: Perform, workers: int) -> Finished:
    """Run jobs in a pool of workers. If a process dies, the running jobs fail, and the others get a new pool."""
    with _one_thread_each():
        pool = _pool(workers)
        running: dict[Future[Any], Job] = {}
        try:
            while True:
                while len(running) < workers and (job := take()) is not None:
                    running[_submitted(pool, work, job)] = job
                if not running:
                    break
                ready = wait(running, return_when=FIRST_COMPLETED).done
                broken = any(isinstance(future.exception(), BrokenProcessPool) for future in ready)
                for future in list(running) if broken else ready:
                    yield running.pop(future), _answer(future)
                if broken:
                    pool.shutdown(wait=True)
                    pool = _pool(workers)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _submitted(pool: ProcessPoolExecutor, work: Perform, job: Job) -> Future[Any]:
    try:
        return pool.submit(work, job.setting, job.selection)
    except BrokenProcessPool as error:  # it has just broken
        lost: Future[Any] = Future()
        lost.set_exception(error)
        return lost


def _answer(future: Future[Any]) -> dict[str, Any] | Exception:
    error = future.exception()  # waits if needed
    if isinstance(error, BrokenProcessPool):
        return RuntimeError(ENDED)
    if isinstance(error, Exception):
        return error
    found: dict[str, Any] = future.result()
    return found


def _pool(workers: int) -> ProcessPoolExecutor:
    """Processes that Ctrl-C ends at once and silently: the parent process reports what is finished."""
    quietly = (signal.SIGINT, signal.SIG_DFL)
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), signal.signal, quietly)


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Limit processes that are started inside to one thread each, since more would compete for cores."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
