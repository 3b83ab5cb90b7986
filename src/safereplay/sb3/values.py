"""Targets and TD errors of stored transitions, by the networks of an SB3 model.

The target of a transition is r + γ(1 − done)·V(s'), by the target networks, and its TD error is that minus Q(s,a), by the online networks:

              V(s')                                                                Q(s,a)
    DQN       max_a Q(s',a)                                                        Q(s,a)
    QR-DQN    max_a of the quantiles' mean                                         the quantiles' mean
    SAC, TD3  the smallest target critic at the actor's action                     the critics' mean
    TQC       the mean of the target critics' quantiles there, without the         the mean of all quantiles
              highest ones that TQC drops

For SAC and TQC, V(s') in a TD error has the entropy bonus −α·log π(a'|s') of a sampled action a', as in the algorithm's own target; a target by itself, which
keys are tilted on, uses the actor's mean action without it. Rewards and observations are normalised as in training: Q is in those units.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch as th
from stable_baselines3 import DQN
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from .. import _checks
from .._checks import Floats, Ints

if TYPE_CHECKING:
    from .buffers import ShapedReplayBuffer

NETWORKS = ("q_net_target", "quantile_net_target", "critic_target")


def targets(model: OffPolicyAlgorithm, buffer: ShapedReplayBuffer, slots: Ints) -> Floats:
    """r + γ(1 − done)·V(s') of the transitions in these slots."""
    batch = buffer.transitions(slots, model.get_vec_normalize_env())
    with th.no_grad():
        return _numbers(_target(model, batch, next_values(model, batch.next_observations)))


def td_errors(model: Any, buffer: ShapedReplayBuffer, slots: Ints) -> Floats:
    """Targets minus values of the transitions in these slots, as the model would compute them in a gradient step."""
    batch = buffer.transitions(slots, model.get_vec_normalize_env())
    policy, before = model.policy, model.policy.training
    policy.set_training_mode(False)  # so that running statistics of a network's layers do not change
    with th.no_grad():
        found = _target(model, batch, next_values(model, batch.next_observations, soft=True))
        found = found - values(model, batch.observations, batch.actions).reshape(-1, 1)
    policy.set_training_mode(before)
    return _numbers(found)


def _target(model: Any, batch: Any, after: th.Tensor) -> th.Tensor:
    discounts = model.gamma if batch.discounts is None else batch.discounts  # given for n-step targets
    found: th.Tensor = batch.rewards + discounts * (1.0 - batch.dones) * after.reshape(-1, 1)
    return found


def _numbers(x: th.Tensor) -> Floats:
    return np.asarray(x.cpu().numpy(), np.float64).ravel()


def next_values(model: Any, obs: Any, soft: bool = False) -> th.Tensor:
    """V of a batch of observations; ``soft`` adds the entropy bonus of SAC and TQC."""
    check_model(model)
    if hasattr(model, "q_net_target"):
        Q: th.Tensor = model.q_net_target(obs)
        return Q.max(dim=1).values
    if hasattr(model, "quantile_net_target"):
        Q = model.quantile_net_target(obs).mean(dim=1)
        return Q.max(dim=1).values
    bonus: Any = 0.0
    if hasattr(model, "actor_target"):
        actions = model.actor_target(obs)
    elif soft:
        actions, log_prob = model.actor.action_log_prob(obs)
        alpha = model.ent_coef_tensor if model.log_ent_coef is None else model.log_ent_coef.exp()
        bonus = -alpha * log_prob
    else:
        actions = model.actor(obs, deterministic=True)
    found = model.critic_target(obs, actions)
    if isinstance(found, th.Tensor):  # quantiles [n, critics, quantiles]
        dropped = model.top_quantiles_to_drop_per_net * found.shape[1]
        quantiles = found.flatten(1).sort(dim=1).values
        worth: th.Tensor = quantiles[:, : quantiles.shape[1] - dropped].mean(dim=1) + bonus
    else:
        worth = th.cat(found, dim=1).min(dim=1).values + bonus
    return worth


def values(model: Any, obs: Any, actions: th.Tensor) -> th.Tensor:
    """Q of a batch of observations and actions."""
    if hasattr(model, "q_net"):
        return _taken(model.q_net(obs), actions)
    if hasattr(model, "quantile_net"):
        return _taken(model.quantile_net(obs).mean(dim=1), actions)
    found = model.critic(obs, actions)
    every = found.flatten(1) if isinstance(found, th.Tensor) else th.cat(found, dim=1)
    return every.mean(dim=1)


def _taken(Q: th.Tensor, actions: th.Tensor) -> th.Tensor:
    return Q.gather(1, actions.long().reshape(-1, 1)).ravel()


def check_model(model: Any) -> None:
    """Refuse an algorithm whose target networks are not supported."""
    known = any(hasattr(model, name) for name in NETWORKS)
    _checks.require(
        known, "model", "have target networks", type(model).__name__, "DQN, QRDQN, SAC, TD3, DDPG and TQC do"
    )


def has_huber_loss(model: Any) -> bool:
    """Whether the model trains with SB3's loss for DQN or QR-DQN; a subclass may have another one."""
    contrib = sys.modules.get("sb3_contrib")  # imported already if the model is one of its classes
    own = [DQN.train] if contrib is None else [DQN.train, contrib.QRDQN.train]
    return type(model).train in own


def reach(model: Any) -> float:
    """The TD error beyond which the model's loss is linear: that of DQN is Huber's."""
    return 1.0 if type(model).train is DQN.train else float("inf")
