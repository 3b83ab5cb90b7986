"""DQN: the target is r + γ·max_a Q⁻(s',a), and the loss is Huber's.

Ref: Mnih et al. (2015), Human-level control through deep reinforcement learning.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from .buffers import Array, Transition
from .loop import Dials, Learner, Tree, chosen, huber, outputs


def act(params: Tree, observation: Array, dials: Dials) -> Array:
    """argmax_a Q(s,a)."""
    return outputs(params, observation).argmax(-1)


def td_errors(params: Tree, target: Tree, batch: Transition, gamma: float, dials: Dials) -> Array:
    """δ = r + γ·max_a Q⁻(s',a) − Q(s,a), [batch]."""
    best = jnp.where(batch.terminated, 0.0, outputs(target, batch.after).max(-1))
    return jax.lax.stop_gradient(batch.reward + gamma * best) - chosen(outputs(params, batch.place), batch.action)


def loss(params: Tree, target: Tree, batch: Transition, gamma: float, dials: Dials, key: Array) -> Array:
    """The Huber loss of δ."""
    return huber(td_errors(params, target, batch, gamma, dials))


DQN = Learner(lambda actions: actions, act, loss, td_errors)
