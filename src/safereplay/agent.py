"""Agent: Algorithm 1 in a discrete Gymnasium environment.

Where :func:`safereplay.learn` draws outcomes from a known table, an agent steps its environment:

    1  replay until an iteration of the MDP is due; choose its action       (compiled)
    2  env.step(action)                                                     (the environment's Python)
    3  find the outcome in the memory or add it; store it; update Q         (compiled, one call with the next 1)

An episode that *terminates* ends: the target of its last step is r. One that is *truncated* does not: the target of its
last step still includes γ·max_b Q(s',b). Either way a new episode starts.

**The memory is bounded.** Each pair (s,a) has a row of slots, one for each distinct outcome (r, s', ends) seen. w_t is
exact while there are at most ``max_outcomes`` of them. From then on, each new outcome first merges two slots of the pair:
those with the nearest rewards among slots with the same s' and end. The merged slot has their mean r̄ and stands for m
distinct rewards. Where the exact tilt has Σ e^{−βr}, w_t then has m·e^{−βr̄}, which is lower by a factor of about
1 + (βσ)²/2, with σ their standard deviation. (A reward that returns after it was merged counts as a new one.) If no two
slots have the same s' and end, the outcome replayed least is dropped instead. The mean and variance of a pair, and so the
pair weights, are always those of all its rewards.

**Files.** A saved agent continues bit for bit, also within an episode, if its environment draws all its randomness from
``np_random`` (see :mod:`safereplay.spaces`).

Ref: Szlak & Shamir (2021), Algorithm 1.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import inf, isfinite
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from . import _checks, _files, arrays, runs
from ._checks import AnyArray, Bools, Floats, Ints
from ._config import Config
from ._progress import Bar
from .errors import BadFile, BadInput
from .kernels import memory as mem
from .kernels import rng, step, tree
from .kernels.compile import Array, specialise
from .learners import Learner
from .schedules import EpsilonGreedy, Exploration, PowerStep, StepSize
from .spaces import World, made_again

FORMAT = 1
CHUNK = 1 << 12  # steps between two updates of the progress bar
FIRST_ROOM = 4  # slots of a pair on its first visit
FIRST_POOL = 1 << 10  # slots of all pairs at the start

NOTHING = -1  # a turn without an outcome to learn from, or without an action to choose
NO_ROOM = -2  # returned by a turn, which then has done nothing, when the pair's row must grow first


class Remembered(NamedTuple):
    """The outcomes in an agent's memory: one entry per distinct outcome, sorted by pair."""

    s: Ints
    a: Ints
    r: Floats
    s_next: Ints
    terminal: Bools
    seen: Ints  #: times it happened
    replayed: Ints  #: times it was replayed
    w: Floats  #: w_t: the probability that a literal replay would draw it now


class Slots(NamedTuple):
    """A memory with rows that can grow."""

    memory: mem.Memory
    room: Array  #: [P] slots in each pair's row
    max_outcomes: int  #: maximum length of a row


@lru_cache(maxsize=64)
def compiled_turn(recipe: step.Recipe) -> Callable[..., int]:
    """Learn from the outcome (i, r, s', ends) of pair i, then choose the action in s; NOTHING for i or s skips that part.

    One call does both, since nearly all of a call's few microseconds go into passing the arrays.
    """
    recall, choose, learn = step.make(recipe)
    remembers = recipe.remembers

    def turn(
        tables: step.Tables, slots: Slots, dials: step.Dials, outcome: tuple[int, float, int, bool], s: int
    ) -> int:
        memory, (i, r, s_next, ends) = slots.memory, outcome
        if i != NOTHING:
            slot, moved = 0, False
            if remembers:
                slot = mem.locate(memory, i, r, s_next, ends)
                if slot < 0 and memory.used[i] == slots.room[i]:
                    if slots.room[i] < slots.max_outcomes:
                        return NO_ROOM
                    mem.squeeze(memory, i)
                    moved = True
                    slot = mem.locate(memory, i, r, s_next, ends)
                if slot < 0:
                    slot = -1 - slot
                    mem.insert(memory, i, slot, r, s_next, ends)
            learn(tables, memory, (i, i, slot), (r, s_next, ends), True, moved, dials)
        while s != NOTHING or tables.clock[step.DUE] > 0:
            i = recall(tables, memory, dials)
            if i == mem.NO_ROW:
                return choose(tables, s, mem.greedy(tables.Q, s, dials.n_actions), dials)
            k = mem.draw(memory, i, rng.uniform(tables.generator))
            learn(tables, memory, (i, i, k), (memory.r[k], memory.s_next[k], memory.ends[k]), False, False, dials)
        return NOTHING

    return specialise(turn, recipe.digest())


@dataclass(frozen=True)
class AgentSettings(Config):
    """The settings of an agent, except its environment."""

    learner: Learner
    seed: int
    gamma: float
    exploration: Exploration
    step_size: StepSize
    max_outcomes: int

    def __post_init__(self) -> None:
        _checks.require(isinstance(self.learner, Learner), "learner", "be a Learner", self.learner)
        _checks.require(isinstance(self.exploration, Exploration), "exploration", "be an Exploration", self.exploration)
        _checks.require(isinstance(self.step_size, StepSize), "step_size", "be a StepSize", self.step_size)
        _checks.whole("seed", self.seed, 0, 64)
        object.__setattr__(self, "seed", int(self.seed))  # numpy scalars to Python's, which compiled code expects
        object.__setattr__(self, "gamma", _checks.between("gamma", self.gamma, "(0, 1)"))
        object.__setattr__(self, "max_outcomes", _checks.whole("max_outcomes", self.max_outcomes, 2))
        known = isfinite(self.learner.initial_value(inf, self.gamma))
        hint = "an environment does not say how large its rewards are: choose a c0 that no return exceeds"
        _checks.require(known, f"c0 of {type(self.learner).__name__}", "be given", None, hint)


class Agent(runs.Learned):
    """A learner in a discrete Gymnasium environment, given as an object or by its id.

    The agent owns its environment: to evaluate the policy, step another one.

    Parameters
    ----------
    env : gymnasium.Env or str; an environment with discrete spaces, or its id
    learner, exploration, step_size : as in :func:`safereplay.learn`
    seed : int; of the agent's generator and of the environment's first reset: the same seed gives the same bits
    gamma : float in (0, 1); discount γ
    max_outcomes : int; distinct outcomes kept per pair (s,a): up to that many w_t is exact, beyond it rewards are merged

    >>> import safereplay as sr
    >>> agent = sr.Agent("CliffWalking-v1", sr.QLearning(), seed=1).learn(steps=20_000)
    >>> agent
    Agent(CliffWalking-v1, Q-learning, 48 states × 4 actions, 20000 steps, ... episodes)
    >>> agent.Q.shape, agent.act(36)
    ((48, 4), np.int64(0))

    Ref: Szlak & Shamir (2021), Algorithm 1.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any] | str,
        learner: Learner,
        seed: int = 0,
        gamma: float = 0.99,
        exploration: Exploration | None = None,
        step_size: StepSize | None = None,
        max_outcomes: int = 64,
    ) -> None:
        exploration = EpsilonGreedy() if exploration is None else exploration
        step_size = PowerStep() if step_size is None else step_size
        self.settings = AgentSettings(learner, seed, gamma, exploration, step_size, max_outcomes)
        self._world = World(env, self.settings.seed)
        self.env = self._world.env
        n_states, n_actions = self._shape = self._world.states.n, self._world.actions.n
        recipe = learner.algorithm_1(exploration, step_size, "an Agent")
        hint = "an environment does not say what is unsafe"
        _checks.require(not recipe.weighs("harm", "unsafe"), "scheme", "not name harm or unsafe here", learner, hint)
        program = runs.make_program(learner, exploration, step_size, self.settings.gamma, n_actions)
        self._turn, self._dials = compiled_turn(recipe), program.dials
        c0, generator = learner.initial_value(inf, gamma), rng.seeded(self.settings.seed)
        self._tables = step.allocate(n_states, n_actions, c0, generator)
        self._pool = _Pool(n_states * n_actions if recipe.remembers else 1, self.settings.max_outcomes)

    def learn(self, steps: int = 10_000, *, quiet: bool = False) -> Agent:
        """Take this many steps in the environment, continuing from the last call.

        Ctrl-C or an error in the environment loses at most one step; everything learned before is kept.

        Parameters
        ----------
        steps : int; steps to learn for
        quiet : bool; without a progress bar

        Returns
        -------
        Agent : itself
        """
        steps = _checks.whole("steps", steps, 1)
        with Bar(f"learning {self.settings.learner.describe()}", steps, quiet) as bar:
            world, turn, tables, slots, dials = self._world, self._turn, self._tables, self._pool.slots, self._dials
            for done in range(0, steps, CHUNK):
                bar.update(done)
                s, n_actions = world.here(), world.actions.n
                a = turn(tables, slots, dials, (NOTHING, 0.0, 0, False), s)
                for left in range(min(CHUNK, steps - done) - 1, -1, -1):
                    outcome = (s * n_actions + a, *world.step(a))
                    s = world.here() if left else NOTHING
                    a = turn(tables, slots, dials, outcome, s)
                    if a == NO_ROOM:
                        slots = self._pool.grow(outcome[0])
                        a = turn(tables, slots, dials, outcome, s)
                runs.check_weights(self.settings.learner, tables, slots.memory)
        return self

    @property
    def steps(self) -> int:
        """Steps taken in the environment, that is, MDP iterations."""
        return int(self._tables.counts[:, step.VISITS].sum())

    @property
    def episodes(self) -> int:
        """Episodes finished, whether terminated or truncated."""
        return len(self._world.returns)

    @property
    def returns(self) -> Floats:
        """The undiscounted return of each finished episode, [episodes]."""
        return np.array(self._world.returns)

    @property
    def remembered(self) -> Remembered:
        """The outcomes in the agent's memory; empty if the learner needs no memory.

        The counts of merged outcomes are added up; dropped outcomes are not counted.

        >>> import safereplay as sr
        >>> agent = sr.Agent("Blackjack-v1", sr.ReplayQLearning(), seed=1).learn(steps=2_000)
        >>> int(agent.remembered.seen.sum()), int(agent.remembered.replayed.sum()) == int(agent.replays.sum()) > 1_000
        (2000, True)
        """
        memory = self._pool.slots.memory
        pair = np.repeat(np.arange(memory.used.size), memory.used)
        k = (memory.first - np.cumsum(memory.used) + memory.used)[pair] + np.arange(pair.size)
        outcome = memory.r[k], memory.s_next[k], memory.ends[k]
        counts = memory.count[k].astype(np.int64), memory.replayed[k]
        return Remembered(*np.divmod(pair, self._shape[1]), *outcome, *counts, arrays.weights_of(memory)[k])

    def state_of(self, observation: Any) -> int:
        """The index of an observation: its row of Q.

        Parameters
        ----------
        observation : element of the observation space

        Returns
        -------
        int

        >>> import safereplay as sr
        >>> sr.Agent("Blackjack-v1", sr.QLearning()).state_of((14, 10, 0))
        328
        """
        return self._world.states.encode(observation)

    def act(self, observation: Any) -> Any:
        """The greedy action.

        Parameters
        ----------
        observation : element of the observation space

        Returns
        -------
        element of the action space
        """
        s, n = self.state_of(observation), self._world.actions.n
        return self._world.actions.decode(int(self._tables.Q[s * n : (s + 1) * n].argmax()))

    def __repr__(self) -> str:
        name = type(self.env.unwrapped).__name__ if self.env.spec is None else self.env.spec.id
        what = f"{name}, {self.settings.learner.describe()}, {self._shape[0]} states × {self._shape[1]} actions"
        return f"Agent({what}, {self.steps} steps, {self.episodes} episodes)"

    def save(self, path: str | Path) -> Path:
        """Write the agent to one file, without pickle: its tables, its memory and its position in the episode.

        Parameters
        ----------
        path : str or Path; file to write

        Returns
        -------
        Path
        """
        origin, total, actions, states = self._world.whereabouts()
        meta = {
            "settings": self.settings.to_dict(),
            "observation_space": self._world.states.text,
            "action_space": self._world.actions.text,
            "env": self._world.address,
            "origin": origin,
            "total": total,
        }
        meta = json.loads(json.dumps(meta, default=lambda x: x.tolist()))  # numpy scalars and arrays
        arrays = {"returns": self.returns, "actions": actions, "states": states, **self._learned()}
        return _files.save_arrays(path, "Agent", FORMAT, meta, {**arrays, **self._pool.arrays()})

    @classmethod
    def load(cls, path: str | Path, env: gymnasium.Env[Any, Any] | str | None = None) -> Agent:
        """Read an agent that :meth:`save` wrote, and continue from there.

        If replaying the actions does not lead to the same states, because the environment draws random numbers
        from elsewhere than ``np_random``, a warning is issued and a new episode starts.

        Parameters
        ----------
        path : str or Path; file that :meth:`save` wrote
        env : gymnasium.Env or str, optional; default: made from the saved id and arguments; needed if not registered, or wrapped

        Returns
        -------
        Agent

        Raises
        ------
        BadFile : the file is not a saved agent, or damaged
        BadInput : the environment cannot be made, or has other spaces
        """
        file = _File(path, *_files.load_arrays(path, "Agent", FORMAT))
        try:
            settings = Config.from_dict(file.get("settings", dict))
        except (BadInput, TypeError) as error:
            raise BadFile(f"{path} must be a saved Agent that can be built here, got: {error}") from None
        file.require(isinstance(settings, AgentSettings), "settings")
        agent = cls(made_again(path, file.meta.get("env")) if env is None else env, **vars(settings))
        for name, found in (("observation_space", agent._world.states), ("action_space", agent._world.actions)):
            saved = file.get(name, str)
            _checks.require(found.text == saved, f"env.{name}", f"be {saved} as saved", getattr(agent.env, name))
        agent._restore(file)
        return agent

    def _learned(self) -> dict[str, AnyArray]:
        """The tables, for a file. No replay is due between two steps."""
        return {**self._tables._asdict(), "clock": self._tables.clock[: step.AT_REST]}

    def _restore(self, file: _File) -> None:
        """Restore the tables of a file; everything that compiled code uses as an index is checked."""
        world, (n_states, n_actions) = self._world, self._shape
        for name, mine in self._learned().items():
            mine[...] = file.array(name, mine.shape, mine.dtype, 0 if name in ("counts", "visited") else None)
        file.require(bool(self._tables.generator.any()), "generator")
        self._pool.restore(file, n_states)
        actions = file.array("actions", None, np.int64, 0, n_actions)
        states = file.array("states", None, np.int64, 0, n_states)
        file.require(states.size == actions.size + 1 or states.size == actions.size == 0, "states")
        world.returns.extend(file.array("returns", None, np.float64).tolist())
        if not world.go_to(file.get("origin", object), file.get("total", float), actions, states):
            why = "it must draw all its randomness from np_random"
            warnings.warn(f"the environment does not go the same way again ({why}); a new episode begins", stacklevel=3)


class _Pool:
    """A memory of outcomes that are not known in advance: a pair's row of slots grows by moving to the end of the pool."""

    COLUMNS = ("r", "s_next", "ends", "count", "replayed", "distinct", "share")

    def __init__(self, n_pairs: int, max_outcomes: int) -> None:
        r, s_next, ends = np.zeros(FIRST_POOL), np.zeros(FIRST_POOL, np.int64), np.zeros(FIRST_POOL, bool)
        first, used, room = np.zeros((3, n_pairs), np.int64)
        self.slots = Slots(mem.allocate(first, used, r, s_next, ends, n_pairs), room, max_outcomes)
        self.top = 0  # start of the next row

    def grow(self, i: int) -> Slots:
        """Double the row of pair i; returns the slots to use from now on."""
        size = min(max(2 * int(self.slots.room[i]), FIRST_ROOM), self.slots.max_outcomes)
        self._reserve(self.top + size)
        memory, room, _ = self.slots
        old, new, used = int(memory.first[i]), self.top, int(memory.used[i])
        self.top += size
        for name in self.COLUMNS:
            column = getattr(memory, name)
            column[new : new + used] = column[old : old + used]
        memory.first[i], room[i] = new, size
        return self.slots

    def _reserve(self, size: int) -> None:
        columns = {name: getattr(self.slots.memory, name) for name in self.COLUMNS}
        capacity = columns["r"].size
        while capacity < size:
            capacity *= 2
        extra = capacity - columns["r"].size
        if extra:
            longer = {name: np.append(x, np.zeros(extra, x.dtype)) for name, x in columns.items()}
            self.slots = self.slots._replace(memory=self.slots.memory._replace(**longer))

    def arrays(self) -> dict[str, AnyArray]:
        """All arrays, for a file; of the sum tree only the leaves, which are the pair weights."""
        memory, room, _ = self.slots
        columns = {name: getattr(memory, name)[: self.top] for name in self.COLUMNS}
        weight = memory.tree[memory.tree.size >> 1 :][: room.size]
        rows = {"first": memory.first, "used": memory.used, "room": room, "stats": memory.stats, "weight": weight}
        return {**columns, **rows}

    def restore(self, file: _File, n_states: int) -> None:
        """Restore the arrays of a file, after checking that all indices are in range."""
        self.top = file.array("r", None, np.float64).size
        self._reserve(self.top)
        memory, room, max_outcomes = self.slots
        file.arrays.setdefault("replayed", np.zeros(self.top, np.int64))  # older files have no counts of replays
        stats = file.array("stats", None, np.float64) if "stats" not in file.arrays else file.arrays["stats"]
        if stats.ndim == 2 and stats.shape[1] < mem.N_STATS:  # or no surveyed statistics
            file.arrays["stats"] = np.pad(stats, ((0, 0), (0, mem.N_STATS - stats.shape[1])))
        lowest = {"s_next": 0, "replayed": 0, "first": 0, "used": 0, "room": 0, "weight": 0}
        highest = {"s_next": n_states, "first": self.top + 1, "room": max_outcomes + 1}
        for name, mine in self.arrays().items():
            mine[...] = file.array(name, mine.shape, mine.dtype, lowest.get(name), highest.get(name, inf))
        weight = self.arrays()["weight"]
        file.require(bool((memory.used <= room).all() and (memory.first + room <= self.top).all()), "room")
        file.require(bool((memory.used[weight > 0] > 0).all()), "weight")
        tree.put_many(memory.tree, np.arange(weight.size), weight)


class _File:
    """The contents of a saved agent, checked for type and shape."""

    def __init__(self, path: str | Path, meta: Any, arrays: dict[str, AnyArray]) -> None:
        self.path, self.meta, self.arrays = path, meta, arrays

    def require(self, ok: bool, name: str) -> None:
        """Raise an error about the named part unless ``ok``."""
        if not ok:
            raise BadFile(f"{self.path} must be a saved Agent, got one whose '{name}' is missing or does not fit")

    def get(self, name: str, kind: type) -> Any:
        """An entry of the header."""
        value = self.meta.get(name) if isinstance(self.meta, dict) else None
        self.require(isinstance(value, kind), name)
        return value

    def array(
        self, name: str, shape: tuple[int, ...] | None, dtype: Any, low: float | None = None, high: float = inf
    ) -> AnyArray:
        """An array of this type and shape (None: one axis), with entries in [``low``, ``high``)."""
        found = self.arrays.get(name, np.zeros(()))
        self.require(found.dtype == dtype and (found.ndim == 1 if shape is None else found.shape == shape), name)
        self.require(low is None or bool(((found >= low) & (found < high)).all()), name)
        return found
