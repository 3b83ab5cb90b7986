"""DQN for static CVaR: a place has the amount that is still owed. :mod:`studies.deep.static` has the theory; this is the same learner.

What differs: the window of owed amounts is not widened during training. It is known before, from random episodes, which training begins with too.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from safereplay.jax.worlds import World

from .buffers import Array, Transition
from .loop import Dials, Learner, Tree, chosen, huber, outputs

TARGETS = 129  #: values of b among which b* is chosen
MEAN = 0.1  #: the weight of the mean return, which decides where nothing is owed
STEPS = 20_000  #: of random actions, for the window


class Place(NamedTuple):
    """A place, and what is owed there."""

    place: Array
    owed: Array


class OwedWorld(World):
    """A world whose places have the owed amount c, in the learner's unit: c ← (c − r)/γ. Episodes begin with c uniform over the window."""

    def __init__(self, world: World, gamma: float, scale: float, window: tuple[float, float]) -> None:
        super().__init__(world.time_limit)
        self._world, self._gamma, self._scale, self.window = world, gamma, scale, window
        self.num_actions = world.num_actions

    def start(self, key: Array) -> Place:
        """The world's, and some c."""
        of_place, of_owed = jax.random.split(key)
        low, high = self.window
        return Place(self._world.start(of_place), jax.random.uniform(of_owed, minval=low, maxval=high))

    def moved(self, key: Array, place: Place, action: Array) -> tuple[Place, Array, Array, Array]:
        """The world's, and the next c, kept near the window: outside it c has no effect."""
        there, reward, terminated, unsafe = self._world.moved(key, place.place, action)
        owed = (place.owed - reward / self._scale) / self._gamma
        width = self.window[1] - self.window[0]
        return Place(there, jnp.clip(owed, self.window[0] - width, self.window[1] + width)), reward, terminated, unsafe

    def observe(self, place: Place) -> Array:
        """The world's observation, and c."""
        return jnp.concatenate([self._world.observe(place.place), place.owed[..., None]], -1)


def window(world: World, gamma: float, scale: float, seed: int = 0) -> tuple[float, float]:
    """The least and the greatest return from any step of random episodes, and 0, in the learner's unit."""

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        state, key = carry
        key, of_action, of_step = jax.random.split(key, 3)
        action = jax.random.randint(of_action, (), 0, world.num_actions)
        _, state, reward, done, _info = world.step(of_step, state, action)
        return (state, key), (reward, done)

    of_reset, key = jax.random.split(jax.random.key(seed))
    _, (rewards, ends) = jax.lax.scan(step, (world.reset(of_reset)[1], key), None, STEPS)
    ahead, low, high = 0.0, 0.0, 0.0
    for r, done in zip(np.asarray(rewards, float)[::-1] / scale, np.asarray(ends)[::-1], strict=True):
        ahead = r + gamma * (0.0 if done else ahead)
        low, high = min(low, ahead), max(high, ahead)
    return low, high


def static(world: World, gamma: float, scale: float) -> tuple[Learner, OwedWorld]:
    """The learner and its world; ``dials.alpha`` is the share of the worst episodes, and is only used to judge."""
    low, high = window(world, gamma, scale)

    def values(params: Tree, observation: Array) -> Array:
        return outputs(params, observation.at[..., -1].set(jnp.clip(observation[..., -1], low, high)))

    def act(params: Tree, observation: Array, dials: Dials) -> Array:
        return values(params, observation).argmax(-1)

    def loss(params: Tree, target: Tree, batch: Transition, discount: float, dials: Dials, key: Array) -> Array:
        c = jax.random.uniform(key, batch.reward.shape, minval=low, maxval=high)
        left = c - batch.reward
        best = values(target, batch.after.at[:, -1].set(left / discount)).max(-1)
        gain = jax.nn.relu(c) - jax.nn.relu(left) + MEAN * batch.reward
        wanted = gain + discount * jnp.where(batch.terminated, 0.0, best)
        taken = chosen(values(params, batch.place.at[:, -1].set(c)), batch.action)
        return huber(jax.lax.stop_gradient(wanted) - taken)

    owing = OwedWorld(world, gamma, scale, (low, high))

    def begin(params: Tree, place: Place, dials: Dials) -> Place:
        """b* = argmax_b b − (b⁺ − max_a Q(s₀, b, a))/α."""
        b = jnp.linspace(low, high, TARGETS)
        seen = jax.vmap(lambda one: owing.observe(place._replace(owed=one)))(b)
        best = values(params, seen).max(-1)
        return place._replace(owed=b[(b - (jax.nn.relu(b) - best) / dials.alpha).argmax()])

    return Learner(lambda actions: actions, act, loss, begin=begin), owing
