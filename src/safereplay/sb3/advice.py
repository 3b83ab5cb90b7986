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
from stable_baselines3 import DQN

from .._types import Ints
from ..keys.diagnosis import diagnose

if TYPE_CHECKING:
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

    from .buffers import ShapedReplayBuffer

REACH = 2.0  #: TD errors at which the Huber loss has lost half of its slope
LOOKED_AT = 100_000  #: slots, at most
ENOUGH = 5_000  #: slots, or a full buffer, before a key is judged
MOST_BYTES = 1 << 26  #: of observations that are looked at with a finer key


class ShapingWarning(UserWarning):
    """Shaped replay is set up so that it does less than one would expect."""


def advise(text: str) -> None:
    """One line, as a warning of ours."""
    warnings.warn(text, ShapingWarning, stacklevel=3)


def huber(model: OffPolicyAlgorithm, buffer: ShapedReplayBuffer) -> str | None:
    """What to say if this algorithm's loss hides rare rewards, or None."""
    if not has_huber_loss(model):
        return None
    spread = widest(buffer) * reward_scale(model)
    if spread <= REACH:
        return None
    return (
        f"rewards of one pair lie up to {spread:.3g} from their mean, but the Huber loss of {type(model).__name__} is linear "
        f"beyond 1 and hides rare ones; multiply rewards by {1.0 / spread:.2g}"
    )


def has_huber_loss(model: Any) -> bool:
    """Whether it trains with SB3's own loss for DQN or QR-DQN; a subclass may well have brought another."""
    contrib = sys.modules.get("sb3_contrib")  # a model of its classes has imported it
    own = [DQN.train] if contrib is None else [DQN.train, contrib.QRDQN.train]
    return type(model).train in own


def reward_scale(model: OffPolicyAlgorithm) -> float:
    """What VecNormalize multiplies rewards by."""
    env = model.get_vec_normalize_env()
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
    if not shaper.key.ready or held.size < min(ENOUGH, shaper.capacity - buffer.n_envs):
        return None
    found = diagnose(shaper.index.key_of(held), shaper.index.x_of(held))
    finer = shaper.key.finer()
    if finer is not None:
        slots = _some(held, max(MOST_BYTES // buffer.row_bytes, 1))
        closer = diagnose(shaper.index.key_of(slots), shaper.index.x_of(slots), finer(*buffer.seen(slots)))
        found = replace(found, invented=closer.invented)
    return found.warning


def _some(slots: Ints, at_most: int) -> Ints:
    """Every so-manieth slot."""
    return slots[:: max(-(-slots.size // at_most), 1)]
