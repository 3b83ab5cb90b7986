"""What a practitioner should hear once: settings under which shaped replay cannot do what was asked of it.

The Huber loss of DQN and QR-DQN is linear beyond a TD error of 1: there it fits medians, not means. A rare disaster does not
move a median, however it is replayed, so where the rewards of one pair lie further than that from their mean the dial
seems to be stuck. Scaling the rewards brings them back into the loss's round part.

A key that is too fine leaves nothing to choose from, and one that is too coarse invents variance: :mod:`safereplay.keys`
knows which.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.vec_env import VecNormalize

from .._advice import ShapingWarning as ShapingWarning
from .._types import Ints
from ..keys.diagnosis import diagnose

if TYPE_CHECKING:
    from .buffers import ShapedReplayBuffer

REACH = 2.0  #: TD errors at which the Huber loss has lost half of its slope
LOOKED_AT = 100_000  #: slots, at most
ENOUGH = 5_000  #: slots, or a full buffer, before a key is judged
MOST_BYTES = 1 << 26  #: of observations that are looked at with a finer key


def advise(text: str) -> None:
    """One line, as a warning of ours."""
    warnings.warn(text, ShapingWarning, stacklevel=3)


def look(buffer: ShapedReplayBuffer, env: VecNormalize | None) -> None:
    """Say once each what makes the dial useless: a loss that hides rare rewards, a key that does not fit."""
    once = buffer.shaper.once
    once.advise("huber", huber(buffer, env))
    once.advise("key_fits", key(buffer))


def huber(buffer: ShapedReplayBuffer, env: VecNormalize | None) -> str | None:
    """What to say if the loss hides rare rewards, or None. A buffer with discrete actions is taken for DQN's or QR-DQN's until a callback knows."""
    has_huber = (
        isinstance(buffer.action_space, spaces.Discrete) if buffer.has_huber_loss is None else buffer.has_huber_loss
    )
    spread = widest(buffer) * reward_scale(env) if has_huber else 0.0
    if spread <= REACH:
        return None
    return (
        f"rewards of one pair lie up to {spread:.3g} from their mean, but the Huber loss of DQN and QR-DQN is linear beyond 1 and hides "
        f"rare ones; multiply rewards by {1.0 / spread:.2g}"
    )


def has_huber_loss(model: Any) -> bool:
    """Whether it trains with SB3's own loss for DQN or QR-DQN; a subclass may well have brought another."""
    contrib = sys.modules.get("sb3_contrib")  # a model of its classes has imported it
    own = [DQN.train] if contrib is None else [DQN.train, contrib.QRDQN.train]
    return type(model).train in own


def reward_scale(env: VecNormalize | None) -> float:
    """What VecNormalize multiplies rewards by."""
    return 1.0 if env is None or not env.norm_reward else float(1.0 / np.sqrt(env.ret_rms.var + env.epsilon))


def widest(buffer: ShapedReplayBuffer) -> float:
    """How far a reward lies from the mean of its pair, at most, where pairs are shaped."""
    index, slots = buffer.shaper.index, _some(buffer.held(), LOOKED_AT)
    slots = slots[index.rho(slots) > 0.0]
    if not slots.size:
        return 0.0
    x = buffer.rewards.take(slots).astype(np.float64)
    pairs, pair = np.unique(index.key_of(slots), return_inverse=True)
    mean = np.bincount(pair, x, pairs.size) / np.bincount(pair, minlength=pairs.size)
    return float(np.abs(x - mean[pair]).max())


def key(buffer: ShapedReplayBuffer) -> str | None:
    """What to say of a key that does not fit what is stored, or None."""
    shaper, held = buffer.shaper, buffer.held()
    if not shaper.key.ready:
        return None
    found = diagnose(shaper.index.key_of(held), shaper.index.x_of(held))
    if held.size < min(ENOUGH, shaper.capacity - buffer.n_envs):
        found = replace(found, repeated=1.0)  # pairs may still come back
    finer = shaper.key.finer()
    if finer is not None:
        slots = _some(held, max(MOST_BYTES // buffer.row_bytes, 1))
        closer = diagnose(shaper.index.key_of(slots), shaper.index.x_of(slots), finer(*buffer.seen(slots)))
        found = replace(found, invented=closer.invented)
    return found.warning


def _some(slots: Ints, at_most: int) -> Ints:
    """Every n-th slot, so that there are at most so many."""
    return slots[:: max(-(-slots.size // at_most), 1)]
