"""The training loop of all learners, as one compiled program: act, store, replay, descend.

    train(world, learner, terms, watch, key, dials)  →  the trained network, and what was seen during training

It has the order and the hyper-parameters of Stable-Baselines3's DQN: random actions first; then, after every second step, a
gradient step on a batch with Adam and clipped gradients; the target network is a copy that is renewed at intervals;
the learning rate and the rate of exploration fall linearly. All of it is ``lax.scan``, without conditions, so that ``vmap`` over keys and dials
trains many networks at once:

    jax.jit(jax.vmap(partial(train, world, learner, terms, watch)))(keys, dials)

A buffer stores places, and observations are computed when they are needed (:mod:`safereplay.jax.worlds`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from safereplay.errors import MissingExtra
from safereplay.jax import make_shaped_buffer
from safereplay.jax.worlds import State, World

from .buffers import Array, Transition, make_count_buffer

try:
    import optax
except ImportError:
    raise MissingExtra("the study in JAX needs optax; install it with: pip install optax") from None

Tree = Any

MAX_NORM = 10.0  #: gradients are clipped to this norm
REPLAYS = ("plain", "shaped", "keyed")


class Terms(NamedTuple):
    """What all networks of a program share; the defaults are those of the study with Stable-Baselines3."""

    steps: int = 20_000
    gamma: float = 0.95
    reward_scale: float = 20.0  #: rewards are divided by it
    layers: tuple[int, ...] = (64, 64)
    rates: tuple[float, float] = (1e-3, 1e-4)  #: learning rate, from the first step to the last
    batch: int = 64
    buffer: int = 50_000
    first: int = 500  #: steps before the first gradient step
    every: int = 2  #: steps per gradient step
    target_every: int = 250  #: steps between copies of the network
    explored: float = 0.5  #: share of training during which exploration falls from 1 ...
    least: float = 0.1  #: ... to this
    replay: str = "plain"


class Dials(NamedTuple):
    """What may differ between the networks of a program."""

    v: Array = 0.0
    beta: Array = 1.0
    alpha: Array = 1.0


class Learner(NamedTuple):
    """What differs between learners. ``batch`` has observations in the place of places."""

    outputs: Callable[[int], int]  #: number of outputs of the network, from the number of actions
    act: Callable[[Tree, Array, Dials], Array]  #: (parameters, observation, dials) → the greedy action
    loss: Callable[..., Array]  #: (parameters, target's parameters, batch, gamma, dials, key) → number
    td_errors: Callable[..., Array] | None = (
        None  #: (parameters, target's, batch, gamma, dials) → [batch], for shaped replay
    )
    reach: float = 1.0  #: the TD error beyond which the loss is linear
    begin: Callable[[Tree, Array, Dials], Array] = lambda params, place, dials: (
        place
    )  #: the first place of a judged episode


# -- networks ----------------------------------------------------------------------------------------------------------


def network(key: Array, sizes: Sequence[int]) -> Tree:
    """The parameters of a network of linear layers; initialised as torch.nn.Linear is."""
    parts = []
    for k, (n, m) in enumerate(pairwise(sizes)):
        keys = jax.random.split(jax.random.fold_in(key, k))
        shapes = ((n, m), (m,))
        parts.append(
            tuple(
                jax.random.uniform(a, shape, minval=-(n**-0.5), maxval=n**-0.5)
                for a, shape in zip(keys, shapes, strict=True)
            )
        )
    return parts


def outputs(params: Tree, x: Array) -> Array:
    """The network's outputs, with rectified linear units between its layers."""
    for weights, bias in params[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    return x @ params[-1][0] + params[-1][1]


def chosen(values: Array, action: Array) -> Array:
    """values[..., a] or values[..., a, :] for a batch of actions. A sum over all actions: its gradient needs no scatter, which is slow on a GPU."""
    mask = action[:, None] == jnp.arange(values.shape[1])
    return jnp.where(mask.reshape(*mask.shape, *(1,) * (values.ndim - 2)), values, 0.0).sum(1)


def huber(errors: Array) -> Array:
    """The mean Huber loss."""
    return optax.huber_loss(errors).mean()


# -- training ----------------------------------------------------------------------------------------------------------


class Trail(NamedTuple):
    """What is seen during training, once per copy of the target network."""

    reward: Array  #: mean per step, with exploration, in the world's unit
    unsafe: Array  #: number of unsafe steps
    ends: Array  #: number of finished episodes
    seen: Tree  #: what ``watch`` gives


class Trained(NamedTuple):
    """A trained network."""

    params: Tree
    trail: Trail


def train(
    world: World,
    learner: Learner,
    terms: Terms,
    watch: Callable[[Tree, Dials], Tree],
    key: Array,
    dials: Dials,
) -> Trained:
    """Train one network. ``watch`` is a function of its parameters, and is called when the target network is renewed."""
    of_network, of_world, key = jax.random.split(key, 3)
    observation, state = world.reset(of_world)
    params = network(of_network, (observation.shape[-1], *terms.layers, learner.outputs(world.num_actions)))
    buffer = _buffer(world, terms, learner.reach)
    descent = optax.chain(optax.clip_by_global_norm(MAX_NORM), optax.scale_by_adam())

    def collect(carry: tuple[Any, Any, Any, Array], step: Array) -> tuple[Any, tuple[Array, Array, Array]]:
        """One step of the world, stored."""
        state, memory, params, key = carry
        key, of_action, of_chance, of_step = jax.random.split(key, 4)
        rate = jnp.maximum(1.0 - (1.0 - terms.least) * step / (terms.explored * terms.steps), terms.least)
        rate = jnp.where(step < terms.first, 1.0, rate)
        random = jax.random.randint(of_action, (), 0, world.num_actions)
        greedy = learner.act(params, world.observe(state.place), dials)
        action = jnp.where(jax.random.uniform(of_chance) < rate, random, greedy).astype(jnp.int32)
        of_step, of_reset = jax.random.split(of_step)
        _, after, reward, done, info = world.step_env(of_step, state, action)
        seen = Transition(state.place, action, reward / terms.reward_scale, after.place, info["terminated"])
        fresh = world.reset(of_reset)[1]
        state = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, after)
        return (state, buffer.add(memory, seen), params, key), (reward, info["unsafe"], done)

    def descend(carry: Any, step: Array) -> tuple[Any, tuple[Array, Array, Array]]:
        """Some steps of the world, then a gradient step."""
        state, memory, params, target, moments, key = carry
        steps = step + jnp.arange(terms.every)
        (state, memory, _, key), lived = jax.lax.scan(collect, (state, memory, params, key), steps)
        key, of_look, of_batch, of_loss = jax.random.split(key, 4)
        if terms.replay == "shaped":
            td_errors = learner.td_errors
            assert td_errors is not None

            def errors(batch: Transition) -> Array:
                return td_errors(params, target, _seen(world, batch), terms.gamma, dials)

            memory = buffer.update(memory, of_look, errors)
        v = 0.0 if terms.replay == "plain" else dials.v
        batch = _seen(world, buffer.sample(memory, of_batch, v, dials.beta).experience)
        slope = jax.grad(learner.loss)(params, target, batch, terms.gamma, dials, of_loss)
        moves, moments = descent.update(slope, moments)
        left = 1.0 - (step + terms.every) / terms.steps
        rate = terms.rates[1] + (terms.rates[0] - terms.rates[1]) * left
        params = jax.tree.map(lambda x, move: x - rate * move, params, moves)
        return (state, memory, params, target, moments, key), lived

    def between_copies(carry: Any, start: Array) -> tuple[Any, Trail]:
        """Train until the target network is renewed."""
        state, memory, params, _, moments, key = carry
        steps = start + terms.every * jnp.arange(terms.target_every // terms.every)
        carry, (reward, unsafe, done) = jax.lax.scan(descend, (state, memory, params, params, moments, key), steps)
        return carry, Trail(reward.mean(), unsafe.sum(), done.sum(), watch(carry[2], dials))

    memory = buffer.init(Transition(state.place, jnp.int32(0), jnp.float32(0), state.place, jnp.bool_(False)))
    (state, memory, _, key), _ = jax.lax.scan(collect, (state, memory, params, key), jnp.arange(terms.first))
    starts = jnp.arange(terms.first, terms.steps, terms.target_every)
    carry, trail = jax.lax.scan(between_copies, (state, memory, params, params, descent.init(params), key), starts)
    return Trained(carry[2], trail)


def _buffer(world: Any, terms: Terms, reach: float) -> Any:
    size = min(terms.buffer, terms.steps)
    if terms.replay == "keyed":
        return make_count_buffer(world, terms.batch, terms.reward_scale)
    return make_shaped_buffer(
        size, sample_batch_size=terms.batch, reach=reach if terms.replay == "shaped" else float("inf")
    )


def _seen(world: World, batch: Transition) -> Transition:
    """The batch with observations in the place of places."""
    return batch._replace(place=world.observe(batch.place), after=world.observe(batch.after))


# -- evaluation --------------------------------------------------------------------------------------------------------


class Judged(NamedTuple):
    """Greedy episodes of one network."""

    p_unsafe: Array
    mean: Array
    steps: Array


def judge(world: World, learner: Learner, params: Tree, key: Array, dials: Dials, episodes: int = 300) -> Judged:
    """Simulate greedy episodes, up to the world's time limit."""

    def step(carry: Any, _: None) -> tuple[Any, None]:
        state, key, running, total, unsafe, count = carry
        key, of_step = jax.random.split(key)
        action = learner.act(params, world.observe(state.place), dials)
        _, state, reward, done, info = world.step_env(of_step, state, action)
        total, unsafe = total + running * reward, unsafe | (running & info["unsafe"])
        return (state, key, running & ~done, total, unsafe, count + running), None

    def episode(key: Array, place: Array) -> tuple[Array, Array, Array]:
        start = (State(place, jnp.int32(0)), key, jnp.bool_(True), jnp.float32(0), jnp.bool_(False), jnp.int32(0))
        (_, _, _, total, unsafe, count), _ = jax.lax.scan(step, start, None, world.time_limit)
        return total, unsafe, count

    keys = jax.vmap(jax.random.split)(jax.random.split(key, episodes))  # of the first place, and of the steps
    places = jax.vmap(lambda key: world.reset(key)[1].place)(keys[:, 0])
    places = jax.lax.map(lambda place: learner.begin(params, place, dials), places)  # in turn: it may need much memory
    total, unsafe, count = jax.vmap(episode)(keys[:, 1], places)
    return Judged(unsafe.mean(), total.mean(), count.mean())
