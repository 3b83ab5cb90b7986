"""Runs: one learner on one model, over many seeds, on all cores.

A run is a pure function of (model, learner, schedules, episodes, seed). Its random numbers come from its own seed, and
its compiled loop releases Python's global lock. Threads share only the read-only model, so the same seed gives the same
bits for any number of threads and any grouping of seeds.

>>> import safereplay as sr
>>> runs = sr.learn(sr.grids.volatile(), sr.ReplayQLearning(v=0.5), episodes=2_000, seeds=range(3))
>>> runs.Q.shape, runs.verdicts
((3, 20, 4), ['safe', 'safe', 'safe'])

Ref: Szlak & Shamir (2021), Algorithm 1 and Section 5.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from . import _checks, footprints
from ._checks import Floats, Ints
from ._progress import Bar, ctrl_c_afterwards
from .arrays import model_memory, sampling_model
from .errors import Stopped
from .footprints import Kept
from .kernels import loop, rng, step
from .kernels import memory as mem
from .learners import Learner, Recipe
from .mdp import TabularMDP
from .schedules import EpsilonGreedy, Exploration, PowerStep, StepSize
from .verdicts import verdict

CHUNK = 1 << 19  # iterations between two checks for progress and Ctrl-C
ENDLESS = (1 << 63) - 1  # episodes, for runs that count steps
NO_LOG = np.zeros(0, np.int64)  # iterations are not logged (see loop.make_advance)


@dataclass(frozen=True, eq=False)
class Snapshots:
    """The state of the runs at m numbers of episodes."""

    mdp: TabularMDP = field(repr=False)
    episodes: Ints  #: [m]; steps where the runs were given steps
    Q: Floats = field(repr=False)  #: [n_seeds, m, S, A]
    w: Floats | None = field(repr=False)  #: [n_seeds, m, K]: w_t of each outcome; None without replay
    visits: Ints = field(repr=False)  #: [n_seeds, m, S, A]

    @property
    def policy(self) -> Ints:
        """The greedy policies, [n_seeds, m, S]."""
        return np.asarray(self.Q.argmax(-1), np.int64)

    @cached_property
    def verdicts(self) -> list[list[str]]:
        """The verdict on each policy, by seed, then by snapshot."""
        return [[verdict(self.mdp, policy) for policy in run] for run in self.policy]


@dataclass(frozen=True, eq=False)
class Runs:
    """The results of a learner, one run per seed.

    ``w``, ``seen`` and ``replayed`` are indexed by the model's outcomes. Outcomes that differ only in their unsafe flag are
    the same to the learner; their values are stored at the first of them (see :func:`~safereplay.arrays.slots_of`).

    Parameters
    ----------
    mdp, learner, exploration, step_size, seeds : what was run
    episodes, steps : int; length of each run; 0 episodes if steps were given, else None steps
    Q, visits, replays : array [n_seeds, S, A]; action values, and MDP iterations and replays of each pair
    w : array [n_seeds, K] or None; final w_t of each outcome; None without replay
    seen, replayed : array [n_seeds, K] or None; times each outcome happened and was replayed; None if not counted
    snapshots : Snapshots or None; None if none were asked for
    world : TabularMDP; the model given, if the learner runs on another
    interrupted, missing : bool, int; whether Ctrl-C stopped the runs, and the number of seeds not included for that reason
    """

    mdp: TabularMDP = field(repr=False)
    learner: Learner
    exploration: Exploration
    step_size: StepSize
    seeds: tuple[int, ...]
    episodes: int
    Q: Floats = field(repr=False)
    visits: Ints = field(repr=False)
    replays: Ints = field(repr=False)
    w: Floats | None = field(repr=False)
    seen: Ints | None = field(repr=False)
    replayed: Ints | None = field(repr=False)
    snapshots: Snapshots | None = field(repr=False, default=None)
    world: TabularMDP | None = field(repr=False, default=None)
    steps: int | None = None
    interrupted: bool = False
    missing: int = 0

    @property
    def policy(self) -> Ints:
        """The greedy policies, [n_seeds, S]; ties go to the first action."""
        return np.asarray(self.Q.argmax(-1), np.int64)

    @cached_property
    def verdicts(self) -> list[str]:
        """The verdict on each run's policy (see :func:`safereplay.verdict`)."""
        return [verdict(self.judged_on, policy) for policy in self.policy]

    @cached_property
    def judged_on(self) -> TabularMDP:
        """The model for evaluating the policies: the states of ``mdp``, the rewards of the world."""
        return self.mdp if self.world is None else self.learner.judging_model(self.world)

    @property
    def visitation(self) -> Floats:
        """d(s,a): the share of each run's MDP iterations that visited (s,a), [n_seeds, S, A]."""
        return np.asarray(self.visits / self.visits.sum((1, 2), keepdims=True))

    def whole(self) -> Runs:
        """These runs, if all are there, so that results from some seeds are not taken for all.

        Raises
        ------
        Stopped : Ctrl-C cut the runs short
        """
        if self.interrupted:
            done, of = len(self.seeds), len(self.seeds) + self.missing
            raise Stopped(f"{done} of {of} seeds of {self.learner.describe()} are finished, but not the answer")
        return self


def learn(
    mdp: TabularMDP,
    learner: Learner,
    episodes: int = 50_000,
    seeds: Iterable[int] | int = 20,
    exploration: Exploration | None = None,
    step_size: StepSize | None = None,
    *,
    steps: int | None = None,
    max_steps: int = 1_000,
    snapshots: int | Sequence[int] = 0,
    threads: int | None = None,
    quiet: bool = False,
) -> Runs:
    """Run a learner on a model, once per seed.

    Parameters
    ----------
    mdp : TabularMDP
    learner : Learner
    episodes : int; episodes per run; ignored if ``steps`` is given
    seeds : iterable of int, or int; the seeds, or their number n for 0, ..., n − 1
    exploration : Exploration, optional; default: ε-greedy with ε = 0.1
    step_size : StepSize, optional; default: n^−0.6
    steps : int, optional; steps of the MDP per run, for any number of episodes, so that every learner has the same experience
    max_steps : int; steps after which an episode is truncated; the target of its last step still includes γ·max_b Q(s',b)
    snapshots : sequence of int, or int; episodes (steps, if ``steps`` is given) of the snapshots, or their number, evenly spaced
    threads : int, optional; default: one per core
    quiet : bool; without a progress bar

    Returns
    -------
    Runs : one row per seed. Ctrl-C returns the finished ones, marked ``interrupted``

    Raises
    ------
    BadInput : an argument is invalid, or the runs do not fit into the free memory (see :func:`safereplay.footprint`)
    Stopped : a KeyboardInterrupt, before any run was finished

    Ref: Szlak & Shamir (2021), Algorithm 1.
    """
    exploration, step_size = resolved(mdp, learner, exploration, step_size)
    world, mdp = mdp, learner.training_model(mdp)
    if learner.replay is not None:
        learner.replay[0].check_model(mdp)
    goal = _checks.whole("episodes", episodes, 1) if steps is None else _checks.whole("steps", steps, 1)
    max_steps, by_steps = _checks.whole("max_steps", max_steps, 1), steps is not None
    points = snapshot_points(snapshots, goal, "steps" if by_steps else "episodes")
    program = make_program(learner, exploration, step_size, mdp.gamma, mdp.n_actions)
    plan = Plan(mdp, learner, goal, max_steps, points, program, by_steps)
    listed = seed_list(seeds)
    workers = _checks.whole("threads", os.cpu_count() if threads is None else threads, 1)
    sizes = len(listed), len(points)
    footprints.refuse_what_does_not_fit(footprints.of_runs(mdp, program.recipe, *sizes, workers))
    kept = footprints.make_room(mdp, program.recipe, *sizes)
    done, interrupted = _run_all(plan, listed, kept, workers, quiet)
    kept, finished = kept.only(done), tuple(listed[k] for k in done)
    shape = (len(done), mdp.n_states, mdp.n_actions)
    shots = None
    if kept.shots is not None and kept.shot_visits is not None:
        each = (*kept.shots.shape[:2], *shape[1:])
        shots = Snapshots(mdp, points, kept.shots.reshape(each), kept.shot_w, kept.shot_visits.reshape(each))
    return Runs(
        *(mdp, learner, exploration, step_size, finished, 0 if by_steps else goal),
        Q=kept.Q.reshape(shape),
        visits=kept.counts[..., step.VISITS].reshape(shape),
        replays=kept.counts[..., step.REPLAYS].reshape(shape),
        w=kept.w,
        seen=kept.seen,
        replayed=kept.replayed,
        snapshots=shots,
        world=None if mdp is world else world,
        steps=goal if by_steps else None,
        interrupted=interrupted,
        missing=len(listed) - len(done),
    )


def resolved(
    mdp: TabularMDP, learner: Learner, exploration: Exploration | None, step_size: StepSize | None
) -> tuple[Exploration, StepSize]:
    """The schedules of a learner, with defaults filled in; invalid arguments raise an error."""
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    _checks.require(isinstance(learner, Learner), "learner", "be a Learner", learner)
    exploration = EpsilonGreedy() if exploration is None else exploration
    step_size = PowerStep() if step_size is None else step_size
    _checks.require(isinstance(exploration, Exploration), "exploration", "be an Exploration", exploration)
    _checks.require(isinstance(step_size, StepSize), "step_size", "be a StepSize", step_size)
    return exploration, step_size


class Program(NamedTuple):
    """A compiled loop and its parameters."""

    run: Callable[..., None]
    recipe: Recipe  #: the source of the loop
    dials: step.Dials

    def advance(self, model: rng.Model, memory: Any, tables: step.Tables, *limits: int, log: Ints = NO_LOG) -> None:
        """Run for ``budget`` iterations, or until ``episodes`` are over and no replay is due. ``limits`` are episodes,
        max_steps and budget."""
        self.run(model, memory, tables, self.dials, *limits, log)


def make_program(
    learner: Learner, exploration: Exploration, step_size: StepSize, gamma: float, n_actions: int
) -> Program:
    """Compile the loop of a learner and its schedules, or load it from the cache."""
    scheme, v, _ = learner.replay or (None, 0.0, "")
    recipe = learner.recipe(exploration, step_size)
    tables, of_scheme = (step_size.table(), exploration.table()), () if scheme is None else scheme.params()
    params = step_size.params(), exploration.params(), learner.params(), of_scheme
    return Program(compiled_loop(recipe), recipe, step.Dials(gamma, float(v), learner.T0, n_actions, *tables, *params))


@lru_cache(maxsize=256)
def compiled_loop(recipe: Recipe) -> Callable[..., None]:
    """The loop for a recipe, built once per process."""
    if isinstance(recipe, step.Recipe):
        return loop.compiled(loop.make_iterate(recipe), recipe.digest())
    return recipe.make()


class Plan(NamedTuple):
    """The settings that all seeds of a call share."""

    mdp: TabularMDP
    learner: Learner
    goal: int  #: episodes, or steps of the MDP
    max_steps: int
    points: Ints  #: positions of the snapshots, in the same unit
    program: Program
    by_steps: bool = False


class Learned:
    """What a single run has learned so far."""

    _tables: step.Tables
    _shape: tuple[int, int]

    @property
    def Q(self) -> Floats:  # noqa: N802
        """The current action values, [S, A]."""
        return np.array(self._tables.Q.reshape(self._shape))

    @property
    def policy(self) -> Ints:
        """The greedy policy, [S]; ties go to the first action."""
        return np.asarray(self.Q.argmax(-1), np.int64)

    @property
    def visits(self) -> Ints:
        """MDP iterations of each pair, [S, A]."""
        return np.array(self._tables.counts[:, step.VISITS].reshape(self._shape))

    @property
    def replays(self) -> Ints:
        """Replays of each pair, [S, A]."""
        return np.array(self._tables.counts[:, step.REPLAYS].reshape(self._shape))


def check_weights(learner: Learner, tables: step.Tables, memory: mem.Memory) -> None:
    """Raise an error if the scheme's factors gave invalid numbers; the loop only records at which pair."""
    if tables.clock[step.WRONG] and learner.replay is not None:
        i = int(tables.clock[step.WRONG]) - 1
        learner.replay[0].refuse(memory, tables.Q, i, int(tables.counts[i, step.VISITS]))


class OneRun:
    """One seed, run in chunks until done or stopped. It writes into ``kept``, a row of the result arrays."""

    def __init__(
        self, plan: Plan, model: rng.Model, seed: int, kept: Kept | None = None, used: Ints | None = None
    ) -> None:
        self.plan, self.model, self.seed = plan, model, seed
        mdp, recipe = plan.mdp, plan.program.recipe
        self.kept = footprints.make_room(mdp, recipe, 1, len(plan.points)).row(0) if kept is None else kept
        c0 = plan.learner.initial_value(float(mdp.r.max()), mdp.gamma)
        self.tables = step.allocate(mdp.n_states, mdp.n_actions, c0, rng.seeded(seed), self.kept.Q, self.kept.counts)
        if not isinstance(recipe, step.Recipe):
            self.memory = recipe.room(mdp)
            return
        seen, replayed, w = self.kept.seen, self.kept.replayed, self.kept.w
        columns = None
        if seen is not None:  # the memory counts in the result arrays, in ``seen`` as floats; others are made here
            replayed = np.zeros(seen.size, np.int64) if replayed is None else replayed
            columns = seen.view(np.float64), replayed, np.zeros(seen.size) if w is None else w
        self.memory = model_memory(mdp, recipe.remembers, columns, used, recipe)

    def finish(self, stop: threading.Event, report: Callable[[int], None]) -> OneRun | None:
        """Run to the end; None if stopped before. An iteration is at most one step, so no point is passed."""
        plan, tables, kept = self.plan, self.tables, self.kept
        for m, point in enumerate([*plan.points.tolist(), plan.goal]):
            while (done := self._done()) < point or tables.clock[step.DUE] > 0:
                if stop.is_set():
                    return None
                if plan.by_steps:
                    self.advance(ENDLESS, min(CHUNK, max(point - done, int(tables.clock[step.DUE]))))
                else:
                    self.advance(point, CHUNK)
                report(self._done() - done)
            if m < len(plan.points) and kept.shots is not None and kept.shot_visits is not None:
                kept.shots[m], kept.shot_visits[m] = tables.Q, tables.counts[:, step.VISITS]
                if kept.shot_w is not None:
                    mem.weights(self.memory, kept.shot_w[m])
        size = float(np.abs(tables.Q).max())
        hint = f"rewards, or the dials of {plan.learner.describe()}, are too large"
        _checks.require(isfinite(size), "learned values", "stay finite", size, hint)
        if kept.w is not None:
            mem.weights(self.memory, kept.w)
        if kept.seen is not None:
            footprints.make_whole(kept.seen)
        return self

    def _done(self) -> int:
        """The number of episodes, or steps of the MDP, so far."""
        if self.plan.by_steps:
            return int(self.tables.counts[:, step.VISITS].sum())
        return int(self.tables.clock[step.EPISODE])

    def advance(self, episodes: int, budget: int, log: Ints = NO_LOG) -> None:
        """Run for ``budget`` iterations, or until ``episodes`` are over and no replay is due."""
        limits = episodes, self.plan.max_steps, budget
        self.plan.program.advance(self.model, self.memory, self.tables, *limits, log=log)
        check_weights(self.plan.learner, self.tables, self.memory)


def _run_all(plan: Plan, seeds: list[int], kept: Kept, workers: int, quiet: bool) -> tuple[list[int], bool]:
    """Run every seed, each into its row; returns the finished rows, and whether Ctrl-C stopped it."""
    model, stop = sampling_model(plan.mdp), threading.Event()
    used = np.diff(plan.mdp.row) if footprints.memory_kept(plan.program.recipe)[0] else None
    done_so_far, lock, interrupted = [0], threading.Lock(), False

    def report(more: int) -> None:
        with lock:
            done_so_far[0] += more

    def one(k: int) -> bool:
        return not stop.is_set() and OneRun(plan, model, seeds[k], kept.row(k), used).finish(stop, report) is not None

    label = f"learning {plan.learner.describe()}"
    with Bar(label, plan.goal * len(seeds), quiet) as bar, ThreadPoolExecutor(min(workers, len(seeds))) as pool:
        futures: list[Future[bool]] = []
        try:
            with ctrl_c_afterwards():
                futures += [pool.submit(one, k) for k in range(len(seeds))]
            _watch(futures, lambda: bar.update(done_so_far[0]))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            stop.set()  # stop the other runs, whatever ended the wait
            wait(futures)
    done = [k for k, future in enumerate(futures) if future.result()]
    if not done:
        raise Stopped(f"none of {len(seeds)} seeds of {plan.learner.describe()} is finished")
    return done, interrupted


def _watch(futures: list[Future[bool]], tick: Callable[[], None]) -> None:
    """Wait for all futures, polling a few times per second; the first error ends the wait."""
    left: set[Future[bool]] = set(futures)
    while left:
        with ctrl_c_afterwards():
            ready, left = wait(left, timeout=0.2, return_when=FIRST_EXCEPTION)
            for future in ready:
                future.result()
        tick()


def seed_list(seeds: Iterable[int] | int) -> list[int]:
    """The seeds as a list: a number n means 0 to n − 1.

    >>> seed_list(3), seed_list([7, 5])
    ([0, 1, 2], [7, 5])
    """
    if isinstance(seeds, int | np.integer) and not isinstance(seeds, bool):
        return list(range(_checks.whole("seeds", seeds, 1, bits=24)))
    try:
        listed = [_checks.whole("seed", seed, 0, 64) for seed in seeds]  # type: ignore[union-attr]
    except TypeError:
        _checks.fail("seeds", "be a number of seeds or a list of them", seeds)
    _checks.require(bool(listed), "seeds", "name at least one seed", listed)
    return listed


def snapshot_points(snapshots: int | Sequence[int], episodes: int, unit: str = "episodes") -> Ints:
    """The episodes (or steps) of the snapshots, listed or evenly spaced up to the end.

    >>> snapshot_points(4, 100)
    array([ 25,  50,  75, 100])
    """
    if isinstance(snapshots, int | np.integer):
        count = _checks.whole("snapshots", snapshots, 0)
        _checks.require(count <= episodes, "snapshots", f"be at most {episodes} ({unit})", count)
        return np.linspace(0, episodes, count + 1)[1:].astype(np.int64)
    try:
        points = np.array([_checks.whole("snapshot", point, 0) for point in snapshots], dtype=np.int64)
    except TypeError:
        _checks.fail("snapshots", "be a number of snapshots or a list of episodes", snapshots)
    rising = bool((np.diff(points) > 0).all()) and (points.size == 0 or points[-1] <= episodes)
    _checks.require(rising, "snapshots", f"rise, and stay within {episodes} {unit}", list(snapshots))
    return points
