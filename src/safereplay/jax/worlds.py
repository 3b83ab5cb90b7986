"""Worlds in JAX, with gymnax's calls: pure functions of a key and a state.

    observation, state = world.reset(key)
    observation, state, reward, done, info = world.step(key, state, action)         # a new episode begins when one is done
    observation, state, reward, done, info = world.step_env(key, state, action)     # it does not

``info`` has ``unsafe``, ``terminated`` and ``truncated``, as in Gymnasium: ``done`` is either of the two, and only a terminated episode has no next value.
``state.place`` is enough to see a state again: ``world.observe(state.place)``. So a buffer can store places, which are smaller than observations.

>>> import jax, safereplay as sr
>>> from safereplay.jax import TabularWorld
>>> world = TabularWorld(sr.grids.cliff(), time_limit=100)
>>> observation, state = world.reset(jax.random.key(0))
>>> observation.shape, world.num_actions
((24,), 4)
>>> _, state, reward, done, info = world.step(jax.random.key(1), state, 0)
>>> float(reward)
-1.0
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from .. import _checks, point
from ..mdp import TabularMDP

Array = Any  #: a jax.Array, or a traced one


class State(NamedTuple):
    """Where an episode is, and its number of steps so far."""

    place: Array
    time: Array


class World:
    """What all worlds share: the time limit, and gymnax's calls. A subclass has ``start``, ``moved`` and ``observe``."""

    num_actions: int

    def __init__(self, time_limit: int) -> None:
        self.time_limit = _checks.whole("time_limit", time_limit, 1)

    default_params: Any = None

    def action_space(self, params: Any = None) -> spaces.Discrete:
        """The actions."""
        return spaces.Discrete(self.num_actions)

    def observation_space(self, params: Any = None) -> spaces.Box:
        """The shape of observations."""
        return spaces.Box(-np.inf, np.inf, jax.eval_shape(self.reset, jax.random.key(0))[0].shape)

    def start(self, key: Array) -> Array:
        """The place at which an episode begins."""
        raise NotImplementedError

    def moved(self, key: Array, place: Array, action: Array) -> tuple[Array, Array, Array, Array]:
        """(place, reward, terminated, unsafe) after a step."""
        raise NotImplementedError

    def observe(self, place: Array) -> Array:
        """The observation of places [...]: float32 [..., n]."""
        raise NotImplementedError

    def reset(self, key: Array, params: Any = None) -> tuple[Array, State]:
        """Begin an episode; ``params`` is ignored, and there for gymnax's sake."""
        place = self.start(key)
        return self.observe(place), State(place, jnp.int32(0))

    def step_env(
        self, key: Array, state: State, action: Array, params: Any = None
    ) -> tuple[Array, State, Array, Array, dict[str, Array]]:
        """One step."""
        place, reward, terminated, unsafe = self.moved(key, state.place, action)
        time = state.time + 1
        truncated = ~terminated & (time >= self.time_limit)
        info = {"unsafe": unsafe, "terminated": terminated, "truncated": truncated}
        return self.observe(place), State(place, time), reward, terminated | truncated, info

    def step(
        self, key: Array, state: State, action: Array, params: Any = None
    ) -> tuple[Array, State, Array, Array, dict[str, Array]]:
        """One step; if it ends the episode, the observation and the state are those of a new one."""
        of_step, of_reset = jax.random.split(key)
        _, after, reward, done, info = self.step_env(of_step, state, action)
        _, fresh = self.reset(of_reset)
        state = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, after)
        return self.observe(state.place), state, reward, done, info


class TabularWorld(World):
    """A model as a world. A place is the number of a state, its observation the unit vector.

    Parameters
    ----------
    mdp : TabularMDP; episodes begin in its start distribution
    time_limit : int; steps after which an episode is truncated
    """

    def __init__(self, mdp: TabularMDP, time_limit: int = 100) -> None:
        super().__init__(time_limit)
        _checks.require(isinstance(mdp, TabularMDP), "mdp", "be a TabularMDP", mdp)
        self.mdp = mdp
        self.num_actions = mdp.n_actions
        first, counts = mdp.row[:-1], np.diff(mdp.row)
        cdf = np.full((mdp.n_pairs, max(int(counts.max()), 1)), 2.0)  # the last outcome's stays above all draws
        for i in np.flatnonzero(counts):
            cdf[i, : counts[i] - 1] = np.cumsum(mdp.p[first[i] : first[i] + counts[i] - 1])
        self._cdf, self._first = jnp.asarray(cdf, jnp.float32), jnp.asarray(first, jnp.int32)
        self._next, self._r = jnp.asarray(mdp.s_next, jnp.int32), jnp.asarray(mdp.r, jnp.float32)
        self._terminal, self._unsafe = jnp.asarray(mdp.terminal), jnp.asarray(mdp.unsafe)
        states = np.flatnonzero(mdp.start)
        self._starts = jnp.asarray(states, jnp.int32)
        self._start_cdf = jnp.asarray(np.append(np.cumsum(mdp.start[states])[:-1], 2.0), jnp.float32)

    def start(self, key: Array) -> Array:
        """A state of the start distribution."""
        return self._starts[(self._start_cdf <= jax.random.uniform(key)).sum()]

    def moved(self, key: Array, place: Array, action: Array) -> tuple[Array, Array, Array, Array]:
        """An outcome of (s,a)."""
        row = place * self.num_actions + action
        k = self._first[row] + (self._cdf[row] <= jax.random.uniform(key)).sum()
        return self._next[k], self._r[k], self._terminal[k], self._unsafe[k]

    def observe(self, place: Array) -> Array:
        """Unit vectors."""
        return jax.nn.one_hot(place, self.mdp.n_states)


class PointWorld(World):
    """The point task (:mod:`safereplay.point`). A place is a position, and its own observation.

    Parameters
    ----------
    anywhere : bool; whether episodes begin anywhere outside the pit and the goal, or at S
    time_limit : int
    """

    num_actions = point.N_ACTIONS

    def __init__(self, anywhere: bool = False, time_limit: int = 100) -> None:
        super().__init__(time_limit)
        self.anywhere = _checks.flag("anywhere", anywhere)

    def start(self, key: Array) -> Array:
        """S with a little noise, or anywhere."""
        if not self.anywhere:
            return jnp.asarray(point.START) + jax.random.uniform(key, (2,), minval=-point.JITTER, maxval=point.JITTER)

        def again(found: tuple[Array, Array]) -> tuple[Array, Array]:
            key, of_place = jax.random.split(found[0])
            return key, jax.random.uniform(of_place, (2,))

        def unfit(found: tuple[Array, Array]) -> Array:
            return point.in_pit(found[1]) | point.at_goal(found[1], jnp)

        place: Array = jax.lax.while_loop(unfit, again, again((key, jnp.zeros(2))))[1]
        return place

    def moved(self, key: Array, place: Array, action: Array) -> tuple[Array, Array, Array, Array]:
        """A move with noise and gusts."""
        of_noise, of_gust = jax.random.split(key)
        comes, strength = jax.random.uniform(of_gust, (2,))
        gust = jnp.where((comes < point.GUST) & point.in_gusts(place), strength * point.FARTHEST, 0.0)
        there = point.moved(place, action, point.NOISE * jax.random.normal(of_noise, (2,)), gust, jnp)
        fell, arrived = point.in_pit(there), point.at_goal(there, jnp)
        return there, point.paid(fell, arrived), fell | arrived, fell

    def observe(self, place: Array) -> Array:
        """The position."""
        return place
