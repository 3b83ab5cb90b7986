"""Runs: one learner on one model, over many seeds, on all cores.

A run is a pure function of (model, learner, schedules, episodes, seed). Its random numbers come from its own seed, and
its compiled loop holds no lock, so threads share nothing but the read-only model: the same seed gives the same bits
for any number of threads and any grouping of seeds.

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
from math import inf
from typing import NamedTuple

import numpy as np

from . import _checks
from ._progress import Bar
from ._types import AnyArray, Floats, Ints
from .kernels import loop, rng, step
from .kernels import memory as mem
from .learners import Learner
from .mdp import TabularMDP
from .schedules import EpsilonGreedy, Exploration, PowerStep, StepSize
from .schemes import Scheme
from .verdicts import verdict

CHUNK = 1 << 21  # iterations between two looks at the clock and at Ctrl-C


@dataclass(frozen=True, eq=False)
class Snapshots:
    """What the runs knew along the way, at the same m numbers of episodes."""

    mdp: TabularMDP = field(repr=False)
    episodes: Ints  #: [m]
    Q: Floats = field(repr=False)  #: [n_seeds, m, S, A]
    w: Floats | None = field(repr=False)  #: [n_seeds, m, K]: w_t of each outcome; None where nothing is replayed
    visits: Ints = field(repr=False)  #: [n_seeds, m, S, A]

    @property
    def policy(self) -> Ints:
        """The greedy policies, [n_seeds, m, S]."""
        return np.asarray(self.Q.argmax(-1), np.int64)

    @cached_property
    def verdicts(self) -> list[list[str]]:
        """The verdict on each policy, by seed, then by time."""
        return [[verdict(self.mdp, policy) for policy in run] for run in self.policy]


@dataclass(frozen=True, eq=False)
class Runs:
    """What a learner learned, one run a seed.

    ``w``, ``seen`` and ``replayed`` follow the model's outcomes. Those alike in all but their unsafe flag are one to the
    learner: what belongs to all of them stands at the first (see :func:`slots_of`).
    """

    mdp: TabularMDP = field(repr=False)
    learner: Learner
    exploration: Exploration
    step_size: StepSize
    seeds: tuple[int, ...]
    episodes: int
    Q: Floats = field(repr=False)  #: [n_seeds, S, A]
    visits: Ints = field(repr=False)  #: [n_seeds, S, A] MDP iterations of each pair
    replays: Ints = field(repr=False)  #: [n_seeds, S, A] replays of each pair
    w: Floats | None = field(repr=False)  #: [n_seeds, K] final w_t of each outcome; None where nothing is replayed
    seen: Ints | None = field(repr=False)  #: [n_seeds, K] times each outcome happened; None where none is remembered
    replayed: Ints | None = field(repr=False)  #: [n_seeds, K] times each was replayed; None where nothing is replayed
    snapshots: Snapshots | None = field(repr=False, default=None)
    interrupted: bool = False  #: stopped by Ctrl-C: only the seeds that had finished are here

    @property
    def policy(self) -> Ints:
        """The greedy policies, [n_seeds, S]; the first of equal actions."""
        return np.asarray(self.Q.argmax(-1), np.int64)

    @cached_property
    def verdicts(self) -> list[str]:
        """Which way each run's policy takes (see :func:`safereplay.verdict`)."""
        return [verdict(self.mdp, policy) for policy in self.policy]

    @property
    def visitation(self) -> Floats:
        """d(s,a): the share of each run's MDP iterations that visited (s,a), [n_seeds, S, A]."""
        return np.asarray(self.visits / self.visits.sum((1, 2), keepdims=True))


def learn(
    mdp: TabularMDP,
    learner: Learner,
    episodes: int = 50_000,
    seeds: Iterable[int] | int = 20,
    exploration: Exploration | None = None,
    step_size: StepSize | None = None,
    *,
    max_steps: int = 1_000,
    snapshots: int | Sequence[int] = 0,
    threads: int | None = None,
    quiet: bool = False,
) -> Runs:
    """Run a learner on a model, once a seed.

    ``seeds`` lists the seeds, or says how many (0, 1, ...). ``exploration`` defaults to ε-greedy with ε = 0.1,
    ``step_size`` to n^−0.6. An episode is cut off after ``max_steps`` steps, which does not count as an end: the last
    step still looks ahead. ``snapshots`` lists episodes, or says how many, evenly spaced. Ctrl-C returns the runs that
    are finished; with none finished it stops.

    Ref: Szlak & Shamir (2021), Algorithm 1.
    """
    _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
    _checks.require(isinstance(learner, Learner), "learner", "be a Learner", learner)
    exploration = EpsilonGreedy() if exploration is None else exploration
    step_size = PowerStep() if step_size is None else step_size
    _checks.require(isinstance(exploration, Exploration), "exploration", "be an Exploration", exploration)
    _checks.require(isinstance(step_size, StepSize), "step_size", "be a StepSize", step_size)
    plan = Plan(
        mdp,
        learner,
        _checks.whole("episodes", episodes, 1),
        _checks.whole("max_steps", max_steps, 1),
        _snapshot_points(snapshots, episodes),
        make_program(learner, exploration, step_size, mdp.gamma, mdp.n_actions),
    )
    listed = seed_list(seeds)
    workers = _checks.whole("threads", os.cpu_count() if threads is None else threads, 1)
    done, interrupted = _run_all(plan, listed, workers, quiet)
    return _gather(plan, done, exploration, step_size, interrupted)


class Program(NamedTuple):
    """A compiled loop and the numbers it runs with."""

    run: Callable[..., None]
    recipe: step.Recipe  #: what the loop was built from
    dials: step.Dials


def make_program(
    learner: Learner, exploration: Exploration, step_size: StepSize, gamma: float, n_actions: int
) -> Program:
    """Compile what a learner and its schedules amount to, or find it compiled."""
    scheme, v, _ = learner.replay or (None, 0.0, "")
    recipe = learner.recipe(exploration, step_size)
    dials = step.Dials(
        gamma,
        float(v),
        learner.T0,
        n_actions,
        step_size.table(),
        exploration.table(),
        step_size.params(),
        exploration.params(),
        learner.update_params(),
        scheme.params() if scheme is not None else (),
    )
    return Program(compiled_loop(recipe), recipe, dials)


@lru_cache(maxsize=256)
def compiled_loop(recipe: step.Recipe) -> Callable[..., None]:
    """The loop for a recipe, built once a process."""
    return loop.make(recipe)


class Plan(NamedTuple):
    """What every seed of a call has in common."""

    mdp: TabularMDP
    learner: Learner
    episodes: int
    max_steps: int
    points: Ints  #: episodes to take a snapshot at
    program: Program


class Finished(NamedTuple):
    """One seed's results."""

    seed: int
    tables: step.Tables
    w: Floats | None
    seen: Ints | None
    replayed: Ints | None
    shots: list[tuple[Floats, Floats | None, Ints]]


def sampling_model(mdp: TabularMDP) -> loop.Model:
    """The model's outcome table as the loop samples it."""
    p_cum = _running_sums(mdp.p, mdp.row)
    start_state = np.flatnonzero(mdp.start > 0)
    start_cum = np.cumsum(mdp.start[start_state])
    start_cum[-1] = 1.0
    return loop.Model(mdp.row, p_cum, mdp.s_next, mdp.r, mdp.terminal, slots_of(mdp), start_state, start_cum)


def slots_of(mdp: TabularMDP) -> Ints:
    """The first outcome that is alike in pair, reward, next state and end, [K]: what the memory counts."""
    columns = (mdp.pair, mdp.r, mdp.s_next, mdp.terminal)
    new = np.ones(mdp.r.size, bool)
    new[1:] = np.any([c[1:] != c[:-1] for c in columns], axis=0)
    return np.asarray(np.flatnonzero(new)[np.cumsum(new) - 1], np.int64)


def _running_sums(p: Floats, row: Ints) -> Floats:
    """Running sums of p within each row; exactly 1 at its end."""
    sums, size = np.array(p), np.diff(row)
    for k in range(1, int(size.max())):  # row by row, so that what came before a row cannot round it
        here = row[:-1][size > k] + k
        sums[here] += sums[here - 1]
    sums[row[1:][size > 0] - 1] = 1.0
    return sums


def model_memory(mdp: TabularMDP, remembers: bool = True) -> mem.Memory:
    """An empty memory whose slots are the model's outcomes; next to nothing for a learner that does not remember."""
    if not remembers:
        none, flag = np.zeros(1, np.int64), np.zeros(1, bool)
        return mem.allocate(none, none, np.zeros(1), none, flag, 1)
    return mem.allocate(mdp.row[:-1], np.diff(mdp.row), mdp.r, mdp.s_next, mdp.terminal, mdp.n_pairs)


def weights_of(memory: mem.Memory) -> Floats:
    """w_t of each slot, [K]."""
    w = np.zeros(memory.r.size)
    mem.weights(memory, w)
    return w


def check_weights(learner: Learner, tables: step.Tables, memory: mem.Memory) -> None:
    """Refuse a scheme whose factors gave numbers that cannot be used; the loop only marks where."""
    if tables.clock[step.WRONG] and learner.replay is not None:
        i = int(tables.clock[step.WRONG]) - 1
        refuse_scheme(learner.replay[0], memory, i, int(tables.counts[i, step.VISITS]))


def refuse_scheme(scheme: Scheme, memory: mem.Memory, i: int, n: float) -> None:
    """Say which factor of a scheme is wrong at pair i after n visits."""
    stats, params, name = mem.statistics(memory, i, n), scheme.params(), type(scheme).__name__
    weight = scheme.bound("pair_weight").call((*stats, *params))
    _checks.require(0.0 <= weight < inf, f"pair_weight of {name}", "be finite and at least 0", weight)
    for k in range(memory.first[i], memory.first[i] + memory.used[i]):
        if memory.count[k] > 0:
            weight = scheme.bound("next_weight").call((memory.count[k], *params))
            _checks.require(0.0 <= weight < inf, f"next_weight of {name}", "be finite and at least 0", weight)
            tilt = scheme.bound("log_tilt").call((memory.r[k], *stats, *params))
            _checks.require(tilt < inf, f"log_tilt of {name} at r={memory.r[k]:g}", "be a number below infinity", tilt)
    _checks.fail(f"factors of {name}", "give the same for the same", "something else each time")


class _Run:
    """One seed: its own arrays, run in chunks until done or told to stop."""

    def __init__(self, plan: Plan, model: loop.Model, seed: int) -> None:
        self.plan, self.model, self.seed = plan, model, seed
        mdp, learner = plan.mdp, plan.learner
        c0 = learner.initial_value(float(mdp.r.max()), mdp.gamma)
        self.tables = step.allocate(mdp.n_states, mdp.n_actions, c0, rng.seeded(seed))
        self.memory = model_memory(mdp, plan.program.recipe.remembers)
        self.shots: list[tuple[Floats, Floats | None, Ints]] = []

    def finish(self, stop: threading.Event, report: Callable[[int], None]) -> Finished | None:
        """Run to the end; None when stopped before it."""
        for point in [*self.plan.points, self.plan.episodes]:
            while self.tables.clock[step.EPISODE] < point:
                if stop.is_set():
                    return None
                before = int(self.tables.clock[step.EPISODE])
                limits = (int(point), self.plan.max_steps, CHUNK)
                self.plan.program.run(self.model, self.memory, self.tables, self.plan.program.dials, *limits)
                check_weights(self.plan.learner, self.tables, self.memory)
                report(int(self.tables.clock[step.EPISODE]) - before)
            if len(self.shots) < len(self.plan.points):
                visits = self.tables.counts[:, step.VISITS].copy()
                self.shots.append((self.tables.Q.copy(), self._w(), visits))
        seen = np.asarray(self.memory.count, np.int64) if self.plan.program.recipe.remembers else None
        replayed = None if self.plan.learner.replay is None else self.memory.replayed
        return Finished(self.seed, self.tables, self._w(), seen, replayed, self.shots)

    def _w(self) -> Floats | None:
        return None if self.plan.learner.replay is None else weights_of(self.memory)


def _run_all(plan: Plan, seeds: list[int], workers: int, quiet: bool) -> tuple[list[Finished], bool]:
    """Run every seed; whatever is finished, in the order of the seeds, and whether Ctrl-C cut it short."""
    model, stop = sampling_model(plan.mdp), threading.Event()
    done_episodes, lock = [0], threading.Lock()

    def report(episodes: int) -> None:
        with lock:
            done_episodes[0] += episodes

    def one(seed: int) -> Finished | None:
        return None if stop.is_set() else _Run(plan, model, seed).finish(stop, report)

    interrupted = False
    label = f"learning {plan.learner.describe()}"
    with Bar(label, plan.episodes * len(seeds), quiet) as bar, ThreadPoolExecutor(min(workers, len(seeds))) as pool:
        futures: list[Future[Finished | None]] = []
        try:
            futures += [pool.submit(one, seed) for seed in seeds]
            _watch(futures, lambda: bar.update(done_episodes[0]))
        except KeyboardInterrupt:
            interrupted = True
        finally:
            stop.set()  # whatever ended the wait: nobody runs on
            wait(futures)
    finished = [f.result() for f in futures]
    done = [f for f in finished if f is not None]
    if not done:
        raise KeyboardInterrupt
    return done, interrupted


def _watch(futures: list[Future[Finished | None]], tick: Callable[[], None]) -> None:
    """Wait for all, looking up a few times a second; the first error ends the wait."""
    left: set[Future[Finished | None]] = set(futures)
    while left:
        ready, left = wait(left, timeout=0.2, return_when=FIRST_EXCEPTION)
        for future in ready:
            future.result()
        tick()


def _gather(plan: Plan, done: list[Finished], exploration: Exploration, step_size: StepSize, interrupted: bool) -> Runs:
    shape = (len(done), plan.mdp.n_states, plan.mdp.n_actions)
    counts = np.stack([f.tables.counts for f in done])
    return Runs(
        plan.mdp,
        plan.learner,
        exploration,
        step_size,
        tuple(f.seed for f in done),
        plan.episodes,
        np.stack([f.tables.Q for f in done]).reshape(shape),
        counts[:, :, step.VISITS].reshape(shape),
        counts[:, :, step.REPLAYS].reshape(shape),
        _stack([f.w for f in done]),
        _stack([f.seen for f in done]),
        _stack([f.replayed for f in done]),
        _gather_snapshots(plan, done),
        interrupted,
    )


def _gather_snapshots(plan: Plan, done: list[Finished]) -> Snapshots | None:
    if not len(plan.points):
        return None
    shape = (len(done), len(plan.points), plan.mdp.n_states, plan.mdp.n_actions)
    Q = np.stack([shot[0] for f in done for shot in f.shots]).reshape(shape)
    visits = np.stack([shot[2] for f in done for shot in f.shots]).reshape(shape)
    w = _stack([shot[1] for f in done for shot in f.shots])
    return Snapshots(plan.mdp, plan.points, Q, None if w is None else w.reshape(*shape[:2], -1), visits)


def _stack(arrays: Sequence[AnyArray | None]) -> AnyArray | None:
    present = [a for a in arrays if a is not None]
    return np.stack(present) if present else None


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


def _snapshot_points(snapshots: int | Sequence[int], episodes: int) -> Ints:
    if isinstance(snapshots, int | np.integer):
        count = _checks.whole("snapshots", snapshots, 0)
        _checks.require(count <= episodes, "snapshots", f"be at most {episodes} (episodes)", count)
        return np.linspace(0, episodes, count + 1)[1:].astype(np.int64)
    try:
        points = np.array([_checks.whole("snapshot", point, 0) for point in snapshots], dtype=np.int64)
    except TypeError:
        _checks.fail("snapshots", "be a number of snapshots or a list of episodes", snapshots)
    rising = bool((np.diff(points) > 0).all()) and (points.size == 0 or points[-1] <= episodes)
    _checks.require(rising, "snapshots", f"rise, and stay within {episodes} episodes", list(snapshots))
    return points
