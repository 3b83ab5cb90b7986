"""The plan of a comparison: contestants, worlds, and the records of what they did there.

Who takes part: a learner of the catalog over its dial, or a scheme of the catalog as replay over v, in both mixings.

A learner says itself what a comparison turns (``DIAL``) and where (``SETTINGS``). A scheme is run as ReplayQLearning over
:data:`SHARES`. At v = 0 nothing is replayed, whatever the scheme: that is Q-learning, and is run once for all.

Where they meet: a world, how much experience everyone gets on it, and what results are measured by.

**The return** is undiscounted, from the world's origin. Where some loop gains for ever the ceiling of that has no bound;
there the return is the discounted one, and the ceiling the bound of :mod:`safereplay.theory.constrained` (with the cost
discounted alike, so that nobody reaches it).

**The risk range** goes from x₀, the lowest P(unsafe) of any policy that ends, to x₁, that of the policy which Q-learning
converges to: who needs more risk than that needs none of this. It is at least :data:`measures.WIDTH` wide. Where the
ceiling is flat there is nothing to trade, and all that risk says is how far from the safest one is: there it is at least
:data:`measures.FLAT_WIDTH` wide.

**The worst return that matters** is what a uniformly random policy gets; where that is very bad, top(x₁) less the whole range
of a single reward, max r − min r, or less |top(x₁)| if that is more; where it is very good, as far below top(x₀) as top(x₁)
is above it, so that the safest policy is worth something everywhere:

    low  =  min( max(random, top(x₁) − max(max r − min r, |top(x₁)|)),  2·top(x₀) − top(x₁) )

A policy that may never end, at a cost a step, has a return of −∞, and counts as this.

**Experience.** Everyone takes the same number of steps, and explores by the same ε. Where a random walk seldom ends well,
ε is higher and the experience longer: there nobody would find anything to learn from.

**The limit** of the useful band is half-way from x₀ to what Q-learning's limit risks, and at least a point above x₀.

**Records**: one small file for each (world, contestant, setting), named by its content.

    OUT/runs/ID.npz     what the seeds' policies were at each look, and the exact limit where there is one
    OUT/.lock           held while a comparison is at work

    ID = H( format | world | γ | learner | steps | steps of an episode | looks | ε | seeds )

A file is written whole or not at all. So a comparison that was killed goes on where it was, two comparisons in one folder
share what they have in common, and the page, which is made from these files alone, is the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import isfinite, nan
from pathlib import Path
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np

from .. import _files, catalog
from .._config import SYMBOLS
from .._types import AnyArray, Floats, Ints
from ..engines.identity import config_digest, digest, table_digest
from ..engines.judging import Judged, judge_of
from ..errors import BadFile
from ..learners import Learner, QLearning, ReplayQLearning
from ..mdp import TabularMDP
from ..sources import model_from
from ..theory.constrained import Ceilings
from ..theory.limits import exact
from ..theory.occupancy import Limit
from ..theory.risk import RiskProfile, evaluate
from .measures import FLAT_WIDTH, WIDTH, Scale

PLAIN = "q"
REPLAY = "replay"  #: of the catalog's learners the one that needs a scheme
OURS = "variance"  #: the paper's scheme
SHARES = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85)
MIXINGS = ("literal", "matched")


@dataclass(frozen=True)
class Contestant:
    """One who takes part: what the page calls it, what its dial is, and the learner at each setting.

    >>> [one.label for one in contestants(["mihatsch"], ["variance"])]
    ['Mihatsch–Neuneier', 'variance replay', 'variance replay (matched)']
    """

    name: str  #: the catalog's
    label: str
    dial: str  #: "" where there is none
    settings: tuple[float, ...]
    learners: tuple[Learner, ...]
    replays: bool = False  #: a scheme of replay

    @property
    def ours(self) -> bool:
        """Whether it is the paper's own."""
        return self.replays and self.name == OURS

    @property
    def given(self) -> str:
        """What it takes from the model beside its own experience."""
        return self.learners[-1].GIVEN

    def shown(self, setting: float) -> str:
        """A setting in words.

        >>> contestants(["mihatsch"], [])[0].shown(0.5)
        'κ = 0.5'
        """
        return f"{SYMBOLS.get(self.dial, self.dial)} = {setting:g}" if self.dial else "—"


def contestants(learners: Iterable[str], schemes: Iterable[str]) -> tuple[Contestant, ...]:
    """Those that the catalog's names stand for; Algorithm 1 without a scheme is the paper's."""
    learners, schemes = list(dict.fromkeys(learners)), list(dict.fromkeys(schemes))
    if REPLAY in learners:
        learners.remove(REPLAY)
        schemes = list(dict.fromkeys([OURS, *schemes]))
    found = [_learner(name) for name in learners]
    return (*found, *(_scheme(name, mixing) for name in schemes for mixing in MIXINGS))


def _learner(name: str) -> Contestant:
    kind = catalog.learner(name)
    dial, settings = kind.DIAL, tuple(float(x) for x in kind.SETTINGS)
    if not dial or not settings:
        return Contestant(name, kind.LABEL, "", (0.0,), (kind(),))
    return Contestant(name, kind.LABEL, dial, settings, tuple(_turned(kind, dial, x) for x in settings))


def _turned(kind: type[Learner], dial: str, setting: float) -> Learner:
    """A learner at a setting of its dial; whole numbers stay whole where the dial's default is one."""
    whole = any(f.name == dial and isinstance(f.default, int) and not isinstance(f.default, bool) for f in fields(kind))
    value: Any = int(setting) if whole else setting
    return kind(**{**kind.COMPARED, dial: value})


def _scheme(name: str, mixing: str) -> Contestant:
    scheme = catalog.scheme(name)()
    replay = [QLearning() if v == 0.0 else ReplayQLearning(scheme, v=v, mixing=mixing) for v in SHARES]
    label = f"{name} replay" + (" (matched)" if mixing == "matched" else "")
    return Contestant(name, label, "v", SHARES, tuple(replay), replays=True)


LIMITS = 49  # of the ceiling that are worked out
SAFEST = 1e-9  # above x₀, where rounding may call it out of reach
POINT = 0.01
FLAT = 0.01  # of max r − min r: a ceiling that rises by less is flat
STEPS, STEPS_A_PAIR = 40_000, 25  # of experience: at least so many
MAX_STEPS, MAX_STEPS_A_STATE, MOST_STEPS = 200, 2, 1_000  # of an episode
EXPLORES = 0.3  # ε, for everyone
SELDOM = 0.02  # a random walk that ends well less often finds so little ...
LOST, LONGER = 0.7, 4  # ... that ε is this, and the experience so many times as much


@dataclass(frozen=True, eq=False)
class World:
    """A world of the comparison.

    >>> cliff = worlds(["cliff"])[0]
    >>> cliff.danger, cliff.steps, cliff.scale.risks[[0, -1]].round(4).tolist()
    ('transition', 40000, [0.0278, 0.119])
    """

    name: str  #: as it was asked for
    mdp: TabularMDP
    danger: str  #: where its danger comes from, as the catalog has it; "" elsewhere
    steps: int  #: of the MDP that every run takes
    max_steps: int  #: of an episode
    epsilon: float = EXPLORES  #: of everyone's ε-greedy exploration

    @property
    def title(self) -> str:
        """What the page calls it."""
        return Path(self.name).stem if Path(self.name).suffix in (".txt", ".map", ".npz") else self.name

    @cached_property
    def looks(self) -> Ints:
        """The steps at which policies are looked at: an eighth, a quarter, half, all."""
        return np.asarray(self.steps // np.array([8, 4, 2, 1]), np.int64)

    @cached_property
    def _ceilings(self) -> Ceilings:
        return Ceilings(self.mdp, Limit("max_p_unsafe", 1.0), self.mdp.origin)

    @cached_property
    def discounted(self) -> bool:
        """Whether its return is the discounted one: the other has no bound, or ends cannot be told from loops."""
        return not isfinite(self._ceilings.at(1.0).value)

    @cached_property
    def plain(self) -> tuple[float, float, float]:
        """The return, P(unsafe) and P(never ends) of what Q-learning converges to."""
        return self.judged(self.mdp, exact(self.mdp, QLearning()).argmax(1))

    @cached_property
    def scale(self) -> Scale:
        """What results are measured by."""
        least, bold = self._ceilings.best, self.plain[1]
        risks, top = self._frontier(least, max(bold, least + WIDTH))
        if np.ptp(top) <= FLAT * np.ptp(self.mdp.r):
            risks, top = self._frontier(least, max(bold, least + FLAT_WIDTH))
        return Scale(self._low(top), risks, top, least + max(0.5 * (bold - least), POINT))

    def _frontier(self, first: float, last: float) -> tuple[Floats, Floats]:
        """The ceiling over a range of limits, closer where risk is less: there it bends most."""
        spaced = np.linspace(0.0, 1.0, LIMITS) ** 2
        points = self._ceilings.frontier(first + SAFEST + (last - first - SAFEST) * spaced)
        top = [point.value_discounted if self.discounted else point.value for point in points]
        return np.array([point.limit for point in points]), np.array(top)

    def _low(self, top: Floats) -> float:
        first, last = float(top[0]), float(top[-1])
        random = _random(self.mdp, self.mdp.origin, self.discounted).mean
        lower = last - max(float(np.ptp(self.mdp.r)), abs(last))
        return min(max(random, lower) if isfinite(random) else lower, 2.0 * first - last)

    def judged(self, model: TabularMDP, policy: Ints) -> tuple[float, float, float]:
        """The return, P(unsafe) and P(never ends) of a policy on ``model``, from its origin; nan where that cannot be told."""
        judged = judge_of(model).of(policy)
        mean, _, p_unsafe, p_never = judged.moments
        return self._discounted(judged, model, policy) if self.discounted else mean, p_unsafe, p_never

    @cached_property
    def _means(self) -> WeakKeyDictionary[Judged, float]:
        return WeakKeyDictionary()

    def _discounted(self, judged: Judged, model: TabularMDP, policy: Ints) -> float:
        """The discounted return of a policy, worked out once, on the states that it comes to."""
        if judged not in self._means:
            part = judged.part().with_gamma(self.mdp.gamma)
            found = evaluate(part, policy, start=model.origin, discounted=True, threads=1, quiet=True)
            self._means[judged] = found.mean
        return self._means[judged]

    def counted(self, value: Floats) -> Floats:
        """Returns as they count: none below the worst that matters."""
        return np.asarray(np.maximum(np.nan_to_num(value, nan=-np.inf), self.scale.low))


def worlds(names: Iterable[str], steps: int | None = None) -> tuple[World, ...]:
    """The worlds of some names: the catalog's, map files, saved models, Gymnasium ids; each with its budget."""
    found = []
    for name in dict.fromkeys(names):
        mdp = catalog.world(name)() if name in catalog.WORLDS else model_from(name)
        danger = catalog.WORLDS[name].danger if name in catalog.WORLDS else ""
        lost = _ends_well(mdp) < SELDOM
        usual = max(STEPS, STEPS_A_PAIR * mdp.n_pairs) * (LONGER if lost else 1)
        longest = min(max(MAX_STEPS, MAX_STEPS_A_STATE * mdp.n_states), MOST_STEPS)
        epsilon = LOST if lost else EXPLORES
        found.append(World(name, mdp, danger, usual if steps is None else steps, longest, epsilon))
    return tuple(found)


def _random(mdp: TabularMDP, start: int | None, discounted: bool = False) -> RiskProfile:
    """What a uniformly random policy risks, from a state or the model's own start."""
    alike = np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions)
    return evaluate(mdp, alike, start=start, discounted=discounted, quiet=True)


def _ends_well(mdp: TabularMDP) -> float:
    """The chance that a random walk ends, and not unsafely."""
    risk = _random(replace(mdp, unsafe=mdp.unsafe & mdp.terminal), None)
    return 1.0 - risk.p_unsafe - risk.p_never


# -- records -----------------------------------------------------------------------------------------------------------

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


@dataclass(frozen=True)
class Plan:
    """Who meets where, over how many seeds."""

    worlds: tuple[World, ...]
    contestants: tuple[Contestant, ...]
    seeds: int

    def jobs(self) -> Iterator[tuple[str, Job]]:
        """Everything that is to be done, with what to call it; what two contestants share comes once."""
        seen: set[str] = set()
        for world in self.worlds:
            for one in self.contestants:
                for learner in one.learners:
                    job = Job(world, learner, self.seeds)
                    if job.id not in seen:
                        seen.add(job.id)
                        yield f"{world.title}: {one.label}", job
