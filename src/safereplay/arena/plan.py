"""The plan of a comparison: contestants, worlds, and the records of their runs.

**Contestants.** A contestant is a learner of the catalog over its dial, or a scheme of the catalog as replay over v, in
both mixings. A learner's class names its dial (``DIAL``) and settings (``SETTINGS``). A scheme is run as ReplayQLearning
over :data:`SHARES`. At v = 0 nothing is replayed: every scheme is Q-learning there, which is run once. A scheme that is a
risk measure is run with anchored mixing, once over v at a cautious dial (``COMPARED``) and once over its dial at v = 1.

**The return** is undiscounted, from the world's origin. Where some loop gains for ever, the ceiling of that is unbounded;
there the return is discounted, and the ceiling is the bound of :mod:`safereplay.theory.constrained` (which discounts the
cost as well, so that no policy reaches it).

**The risk range** goes from x₀, the lowest P(unsafe) of any policy that ends, to x₁, that of Q-learning's limit: a larger
risk needs no safe learner. It is at least :data:`measures.WIDTH` wide. Where the ceiling is flat there is no trade-off,
and it is at least :data:`measures.FLAT_WIDTH` wide.

**The return that counts as 0** is that of a uniformly random policy, within two bounds. It is at least top(x₁) minus the
range of a single reward, max r − min r, or minus |top(x₁)| if that is more. It is at least as far below top(x₀) as top(x₁)
is above it, so that the safest policy always counts for something:

    low  =  min( max(random, top(x₁) − max(max r − min r, |top(x₁)|)),  2·top(x₀) − top(x₁) )

A policy that may never end, at a cost per step, has a return of −∞, and counts as 0.

**Experience.** All runs take the same number of steps and explore with the same ε. Where a random walk seldom ends well,
ε is higher and the runs are longer, since learners would hardly reach the goal.

**The limit** of the useful band is half-way from x₀ to P(unsafe) of Q-learning's limit, and at least a point above x₀.

**Records**: one small file for each (world, contestant, setting), named by its content.

    OUT/runs/ID.npz     risk and return of the seeds' policies at each look, and of the exact limit if there is one
    OUT/.lock           held while a comparison runs

    ID = H( format | world | γ | learner | steps | steps of an episode | looks | ε | seeds )

A file is written whole or not at all. So a killed comparison continues where it stopped, two comparisons in one folder
share their common runs, and the page, which is made from these files only, is the same to the last bit.

**Runs.** Every setting of every contestant runs on every world. A run takes exactly ``world.steps`` steps of the MDP, for any learner. Its greedy policy is judged exactly after an eighth,
a quarter, half and all of them. Learning uses all cores; the policies of one setting are judged while the next one learns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from math import isfinite, nan
from pathlib import Path
from typing import Any, Self

import numpy as np

from .. import _checks, _files, catalog
from .._checks import AnyArray, Floats, Ints
from .._config import SYMBOLS
from .._progress import Bar
from ..engines.identity import config_digest, digest, judge_of, table_digest
from ..errors import BadFile, BadInput
from ..learners import Learner, QLearning, ReplayQLearning
from ..mdp import TabularMDP
from ..runs import Runs, learn
from ..schedules import EpsilonGreedy
from ..schemes import Scheme
from ..sources import model_from
from ..theory.constrained import Ceilings
from ..theory.limits import exact
from ..theory.occupancy import Limit
from ..theory.risk import RiskProfile, evaluate
from .measures import FLAT_WIDTH, WIDTH, Scale

REPLAY = "replay"  #: the learner of the catalog that needs a scheme
OURS = "variance"  #: the paper's scheme
SHARES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85)
ANCHORED_SHARES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)  #: of risk measures: at v = 1 a pair is valued by the measure
MIXINGS = ("literal", "matched")


@dataclass(frozen=True)
class Contestant:
    """A contestant: its label on the page, its dial, and the learner at each setting.

    >>> [one.label for one in contestants(["mihatsch"], ["variance"])]
    ['Mihatsch–Neuneier', 'variance replay', 'variance replay (matched)']
    """

    name: str  #: its name in the catalog
    label: str
    dial: str  #: "" if there is none
    settings: tuple[float, ...]
    learners: tuple[Learner, ...]
    replays: bool = False  #: a scheme of replay

    @property
    def ours(self) -> bool:
        """Whether it is the paper's scheme."""
        return self.replays and self.name == OURS

    def shown(self, setting: float) -> str:
        """A setting as text.

        >>> contestants(["mihatsch"], [])[0].shown(0.5)
        'κ = 0.5'
        """
        return f"{SYMBOLS.get(self.dial, self.dial)} = {setting:g}" if self.dial else "—"


def contestants(learners: Iterable[str], schemes: Iterable[str]) -> tuple[Contestant, ...]:
    """The contestants for names of the catalog; Algorithm 1 without a scheme is the paper's."""
    learners, schemes = list(dict.fromkeys(learners)), list(dict.fromkeys(schemes))
    if REPLAY in learners:
        learners.remove(REPLAY)
        schemes = list(dict.fromkeys([OURS, *schemes]))
    found = []
    for name in learners:
        kind = catalog.learner(name)
        dial, settings = kind.DIAL, tuple(float(x) for x in kind.SETTINGS)
        if not dial or not settings:
            found.append(Contestant(name, kind.LABEL, "", (0.0,), (kind(),)))
            continue
        defaults = [f.default for f in fields(kind) if f.name == dial]
        typed: Any = int if any(isinstance(x, int) and not isinstance(x, bool) for x in defaults) else float
        turned = tuple(kind(**{**kind.COMPARED, dial: typed(x)}) for x in settings)
        found.append(Contestant(name, kind.LABEL, dial, settings, turned))
    for name in schemes:
        found += _risk_measure(name) if catalog.scheme(name).DIAL else [_scheme(name, mixing) for mixing in MIXINGS]
    return tuple(found)


def _scheme(name: str, mixing: str) -> Contestant:
    label = f"{name} replay{' (matched)' * (mixing == 'matched')}"
    return _over_v(name, label, catalog.scheme(name)(), mixing, SHARES)


def _risk_measure(name: str) -> list[Contestant]:
    kind = catalog.scheme(name)
    whole = [ReplayQLearning(kind(**{kind.DIAL: x}), v=1.0, mixing=kind.MIXING) for x in kind.SETTINGS]
    over_v = _over_v(name, f"{name} replay", kind(**kind.COMPARED), kind.MIXING, ANCHORED_SHARES)
    return [over_v, Contestant(name, f"{name} replay (v = 1)", kind.DIAL, kind.SETTINGS, tuple(whole), replays=True)]


def _over_v(name: str, label: str, scheme: Scheme, mixing: str, shares: tuple[float, ...]) -> Contestant:
    learners = [QLearning() if v == 0.0 else ReplayQLearning(scheme, v=v, mixing=mixing) for v in shares]
    return Contestant(name, label, "v", shares, tuple(learners), replays=True)


LIMITS = 49  # points of the ceiling that are computed
SAFEST = 1e-9  # added to x₀, which may be infeasible by rounding
POINT = 0.01
FLAT = 0.01  # of max r − min r: a ceiling that rises by less is flat
STEPS, STEPS_A_PAIR = 40_000, 25  # of experience, at least; the second per pair
MAX_STEPS, MAX_STEPS_A_STATE, MOST_STEPS = 200, 2, 1_000  # of an episode; the second per state
EXPLORES = 0.3  # ε of all contestants
SELDOM = 0.02  # if a random walk ends well less often than this ...
LOST, LONGER = 0.7, 4  # ... ε is the first, and the steps are multiplied by the second


@dataclass(frozen=True, eq=False)
class World:
    """A world of the comparison.

    >>> cliff = worlds(["cliff"])[0]
    >>> cliff.danger, cliff.steps, cliff.scale.risks[[0, -1]].round(4).tolist()
    ('transition', 40000, [0.0278, 0.119])
    """

    name: str  #: as the user gave it
    mdp: TabularMDP
    danger: str  #: where its danger comes from; "" if it is not in the catalog
    steps: int  #: of the MDP, the same for every run
    max_steps: int  #: per episode
    epsilon: float = EXPLORES  #: of the ε-greedy exploration

    @property
    def title(self) -> str:
        """Its title on the page."""
        return Path(self.name).stem if Path(self.name).suffix in (".txt", ".map", ".npz") else self.name

    @cached_property
    def looks(self) -> Ints:
        """The steps after which policies are evaluated: 1/8, 1/4, 1/2 and all of them."""
        return np.asarray(self.steps // np.array([8, 4, 2, 1]), np.int64)

    @cached_property
    def dangerous(self) -> bool:
        """Whether an outcome that can be reached from its origin is unsafe."""
        return bool(self.mdp.with_start(self.mdp.origin).reachable_part().unsafe.any())

    @cached_property
    def _ceilings(self) -> Ceilings:
        return Ceilings(self.mdp, Limit("max_p_unsafe", 1.0), self.mdp.origin)

    @cached_property
    def discounted(self) -> bool:
        """Whether its return is discounted: the undiscounted one is unbounded, or rounding hides the end of episodes."""
        return not isfinite(self._ceilings.at(1.0).value)

    @cached_property
    def plain(self) -> tuple[float, float, float]:
        """The return, P(unsafe) and P(never ends) of Q-learning's limit."""
        return self.judged(self.mdp, exact(self.mdp, QLearning()).argmax(1))

    @cached_property
    def scale(self) -> Scale:
        """The scale of results."""
        least, bold = self._ceilings.best, self.plain[1]
        risks, top = self._frontier(least, max(bold, least + WIDTH))
        if np.ptp(top) <= FLAT * np.ptp(self.mdp.r):
            risks, top = self._frontier(least, max(bold, least + FLAT_WIDTH))
        first, last = float(top[0]), float(top[-1])
        random = _random(self.mdp, self.mdp.origin, self.discounted).mean
        lower = last - max(float(np.ptp(self.mdp.r)), abs(last))
        low = min(max(random, lower) if isfinite(random) else lower, 2.0 * first - last)
        return Scale(low, risks, top, least + max(0.5 * (bold - least), POINT))

    def _frontier(self, first: float, last: float) -> tuple[Floats, Floats]:
        """The ceiling over a range of limits, with more points at low risk, where it bends most."""
        spaced = np.linspace(0.0, 1.0, LIMITS) ** 2
        points = self._ceilings.frontier(first + SAFEST + (last - first - SAFEST) * spaced)
        top = [point.value_discounted if self.discounted else point.value for point in points]
        return np.array([point.limit for point in points]), np.array(top)

    def judged(self, model: TabularMDP, policy: Ints) -> tuple[float, float, float]:
        """The return, P(unsafe) and P(never ends) of a policy on ``model``, from its origin; nan where undefined."""
        found = judge_of(model).of(policy)
        mean, _, p_unsafe, p_never = found.moments
        return found.discounted(self.mdp.gamma) if self.discounted else mean, p_unsafe, p_never

    def counted(self, value: Floats) -> Floats:
        """Returns, but none below the one that counts as 0."""
        return np.asarray(np.maximum(np.nan_to_num(value, nan=-np.inf), self.scale.low))


def worlds(names: Iterable[str], steps: int | None = None) -> tuple[World, ...]:
    """The worlds for names of the catalog, map files, saved models or Gymnasium ids, each with its budget."""
    found = []
    for name in dict.fromkeys(names):
        mdp = catalog.world(name)() if name in catalog.WORLDS else model_from(name)
        danger = catalog.WORLDS[name].danger if name in catalog.WORLDS else ""
        walk = _random(replace(mdp, unsafe=mdp.unsafe & mdp.terminal), None)
        lost = 1.0 - walk.p_unsafe - walk.p_never < SELDOM
        usual = max(STEPS, STEPS_A_PAIR * mdp.n_pairs) * (LONGER if lost else 1)
        longest = min(max(MAX_STEPS, MAX_STEPS_A_STATE * mdp.n_states), MOST_STEPS)
        epsilon = LOST if lost else EXPLORES
        found.append(World(name, mdp, danger, usual if steps is None else steps, longest, epsilon))
    return tuple(found)


def _random(mdp: TabularMDP, start: int | None, discounted: bool = False) -> RiskProfile:
    """The risk of a uniformly random policy, from a state or the model's start."""
    alike = np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)
    return evaluate(mdp, alike, start=start, discounted=discounted, quiet=True)


KIND, FORMAT = "arena run", 1
FRONTIER = "arena frontier"
ARRAYS = ("value", "p_unsafe", "p_never", "updates", "limit")
NO_LIMIT = (nan, nan, nan)


@dataclass(frozen=True, eq=False)
class Record:
    """One setting of one contestant on one world; if it does not apply, only the reason."""

    value: Floats  #: [seeds, looks] the return of the greedy policy
    p_unsafe: Floats  #: [seeds, looks]
    p_never: Floats  #: [seeds, looks]
    updates: Ints  #: [seeds] fresh and replayed
    limit: Floats  #: (return, P(unsafe), P(never ends)) of the exact limit; nan if there is none
    refused: str | None = None  #: why the learner does not run on this world


@dataclass(frozen=True)
class Job:
    """A learner on a world over seeds.

    >>> import safereplay as sr
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
        self._frontiers = _files.make_folder(self.folder / "frontiers")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def get(self, job: Job) -> Record | None:
        """The record of a job; None if it is missing or damaged."""
        try:
            meta, arrays = _files.load_arrays(self._file(job), KIND, FORMAT)
            return Record(refused=meta["refused"], **{name: arrays[name] for name in ARRAYS})
        except (BadFile, KeyError):
            return None

    def put(self, job: Job, record: Record) -> None:
        """Save the record of a job."""
        about: dict[str, Any] = {"world": job.world.title, "learner": job.learner.describe(), "refused": record.refused}
        arrays: dict[str, AnyArray] = {name: getattr(record, name) for name in ARRAYS}
        _files.save_arrays(self._file(job), KIND, FORMAT, about, arrays)

    def frontier(self, world: World) -> Floats | None:
        """The points of designed replay on a world; None if they are missing or damaged."""
        try:
            return _files.load_arrays(self._frontier_file(world), FRONTIER, FORMAT)[1]["points"]
        except (BadFile, KeyError):
            return None

    def put_frontier(self, world: World, points: Floats) -> None:
        """Save the points of designed replay on a world."""
        _files.save_arrays(self._frontier_file(world), FRONTIER, FORMAT, {"world": world.title}, {"points": points})

    def _file(self, job: Job) -> Path:
        return self._runs / f"{job.id}.npz"

    def _frontier_file(self, world: World) -> Path:
        return self._frontiers / f"{digest([FORMAT, table_digest(world.mdp), world.mdp.gamma])}.npz"


@dataclass(frozen=True)
class Plan:
    """Contestants, worlds and seeds."""

    worlds: tuple[World, ...]
    contestants: tuple[Contestant, ...]
    seeds: int

    def jobs(self) -> Iterator[tuple[str, Job]]:
        """All jobs with their labels; a job that two contestants share occurs once."""
        seen: set[str] = set()
        for world, one in product(self.worlds, self.contestants):
            for learner in one.learners:
                job = Job(world, learner, self.seeds)
                if job.id not in seen:
                    seen.add(job.id)
                    yield f"{world.title}: {one.label}", job


AHEAD = 2  # settings that may wait to be judged
LARGE = 1_000  # pairs: exact limits of larger models are not computed


def run(plan: Plan, store: Store, quiet: bool = False, threads: int | None = None) -> None:
    """Do the jobs that the store lacks. Ctrl-C keeps finished jobs."""
    jobs = list(plan.jobs())
    todo = [(label, job) for label, job in jobs if store.get(job) is None]
    done, waiting = len(jobs) - len(todo), deque[Future[None]]()
    with Bar("comparing", len(jobs), quiet) as bar, ThreadPoolExecutor(1) as judges:
        for label, job in todo:
            bar.update(done, label)
            waiting.append(judges.submit(_finish, store, job, _learned(job, threads)))
            while len(waiting) > AHEAD:
                waiting.popleft().result()
                done += 1
        for one in waiting:
            one.result()


def _learned(job: Job, threads: int | None) -> Runs | str:
    """The runs of all seeds, or the reason why the learner does not run on this world."""
    world = job.world
    try:
        sizes: dict[str, Any] = {"seeds": job.seeds, "steps": world.steps, "max_steps": world.max_steps}
        how: dict[str, Any] = {"exploration": EpsilonGreedy(world.epsilon), "snapshots": world.looks.tolist()}
        return learn(world.mdp, job.learner, **sizes, **how, threads=threads, quiet=True).whole()
    except BadInput as error:
        return str(error)


def _finish(store: Store, job: Job, runs: Runs | str) -> None:
    """Judge the runs, and save the record."""
    if isinstance(runs, str):
        none = np.zeros((0, 0))
        store.put(job, Record(none, none, none, np.zeros(0, np.int64), np.array(NO_LIMIT), runs))
    else:
        store.put(job, judged(job, runs))


def judged(job: Job, runs: Runs) -> Record:
    """The record of the runs of all seeds; no limit if the learner has no exact one, or the model is large."""
    world, model = job.world, job.learner.judging_model(job.world.mdp)
    steps = runs.visits.sum((1, 2))
    _checks.require(bool((steps == world.steps).all()), "steps of a run", f"be {world.steps}", steps.tolist())
    assert runs.snapshots is not None
    policies = runs.snapshots.policy  # [seeds, looks, S]
    found = np.array([[world.judged(model, policy) for policy in run] for run in policies])
    updates, limit = steps + runs.replays.sum((1, 2)), NO_LIMIT
    if model.n_pairs <= LARGE:
        with suppress(BadInput):
            limit = world.judged(model, exact(world.mdp, job.learner).argmax(1))
    return Record(found[..., 0], found[..., 1], found[..., 2], updates, np.array(limit))
