"""What an algorithm would learn from a transition now: r + γ(1 − done)·V(s'), by its target networks.

Where danger comes later than the step that invites it, the reward of that step is the same every time and there is
nothing to tilt; the target differs, since V(s') knows. V(s') is

    DQN      max_a Q(s',a)
    QR-DQN   max_a of the quantiles' mean
    SAC, TD3 the smallest target critic at the actor's action, without noise or entropy
    TQC      the mean of the target critics' quantiles there, without the highest ones that TQC drops

Rewards and observations are normalised here as for learning: Q is in those units.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch as th

from .. import _checks
from .._types import Floats, Ints

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

    from .buffers import ShapedReplayBuffer

CHUNK = 4096  #: transitions that go through the networks at once


def refresh(model: OffPolicyAlgorithm, buffer: ShapedReplayBuffer, at_most: int) -> int:
    """Compute the targets of up to so many slots, those first that have none; how many it were."""
    slots = buffer.shaper.due(at_most)
    for first in range(0, len(slots), CHUNK):
        part = slots[first : first + CHUNK]
        buffer.shaper.value(part, targets(model, buffer, part))
    return len(slots)


def targets(model: OffPolicyAlgorithm, buffer: ShapedReplayBuffer, slots: Ints) -> Floats:
    """r + γ(1 − done)·V(s') of the transitions in these slots."""
    batch = buffer.transitions(slots, model.get_vec_normalize_env())
    with th.no_grad():
        values = next_values(model, batch.next_observations).reshape(-1, 1)
        discounts = model.gamma if batch.discounts is None else batch.discounts  # given for n-step targets
        found = batch.rewards + discounts * (1.0 - batch.dones) * values
    return np.asarray(found.cpu().numpy(), np.float64).ravel()


def next_values(model: Any, obs: Any) -> th.Tensor:
    """V of a batch of observations."""
    check_model(model)
    if hasattr(model, "q_net_target"):
        Q: th.Tensor = model.q_net_target(obs)
    elif hasattr(model, "quantile_net_target"):
        Q = model.quantile_net_target(obs).mean(dim=1)
    else:
        actions = model.actor_target(obs) if hasattr(model, "actor_target") else model.actor(obs, deterministic=True)
        found = model.critic_target(obs, actions)
        if isinstance(found, th.Tensor):  # quantiles [n, critics, quantiles]
            dropped = model.top_quantiles_to_drop_per_net * found.shape[1]
            quantiles = found.flatten(1).sort(dim=1).values
            return quantiles[:, : quantiles.shape[1] - dropped].mean(dim=1)
        return th.cat(found, dim=1).min(dim=1).values
    return Q.max(dim=1).values


def check_model(model: Any) -> None:
    """Refuse an algorithm without target networks that we know."""
    known = any(hasattr(model, name) for name in ("q_net_target", "quantile_net_target", "critic_target"))
    _checks.require(
        known,
        "model",
        'have target networks for tilt_on="target"',
        type(model).__name__,
        "DQN, QRDQN, SAC, TD3 and TQC do",
    )
