"""Access to what SB3 stores, as arrays [positions, environments, ...] or dicts of them, and warnings about it.

A warning is shown once, for settings under which shaped replay has no effect:

- The Huber loss of DQN and QR-DQN is linear beyond a TD error of 1: there it fits medians, not means. A rare disaster does
  not move a median, however often it is replayed. So if rewards of one pair are further than 1 from their mean, v and β
  have little effect. Scaling the rewards brings them back into the quadratic part of the loss.
- A key that is too fine leaves nothing to choose from, and one that is too coarse adds variance (:mod:`safereplay.keys`).
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecNormalize

from .. import _checks
from .._checks import AnyArray, Ints
from ..errors import ShapingWarning as ShapingWarning
from ..keys import diagnose

if TYPE_CHECKING:
    from .buffers import ShapedReplayBuffer

Stored = AnyArray | dict[str, AnyArray]
LARGEST = float(np.finfo(np.float32).max)  #: SB3 stores rewards as float32


def is_stored(x: Any, shape: tuple[int, int]) -> bool:
    """Whether this is an array [positions, environments, ...], or a dict of them."""
    if isinstance(x, dict):
        return bool(x) and all(is_stored(y, shape) for y in x.values())
    return isinstance(x, np.ndarray) and x.shape[:2] == shape


def column(x: Any, e: int) -> Any:
    """Column ``e`` of an array, or of a dict of arrays."""
    return {k: column(y, e) for k, y in x.items()} if isinstance(x, dict) else x[:, e : e + 1]


def merged(parts: list[Any], order: th.Tensor) -> Any:
    """Batches joined into one, in this order: tuples and dicts of tensors; None stays None."""
    first = parts[0]
    if first is None:
        return None
    if isinstance(first, dict):
        return {k: merged([part[k] for part in parts], order) for k in first}
    if isinstance(first, tuple):
        make: Any = getattr(type(first), "_make", tuple)
        return make(merged(list(column), order) for column in zip(*parts, strict=True))
    return th.cat(parts)[order]


def rows(stored: Stored, slots: Ints) -> Any:
    """Rows of an array [positions, environments, ...], or of a dict of them."""
    if isinstance(stored, dict):
        return {k: rows(x, slots) for k, x in stored.items()}
    return stored.reshape((-1, *stored.shape[2:])).take(slots, axis=0)


def unsafe_flags(infos: Any) -> Any:
    """The flags ``unsafe`` of each environment, from a list of infos or from Gymnasium's dict of arrays."""
    if isinstance(infos, list) and len(infos) == 1:  # the usual case, and faster than a list
        return infos[0].get("unsafe", False)
    if infos is None or isinstance(infos, list | tuple):
        return [info.get("unsafe", False) for info in infos or ()] or False
    last = infos.get("final_info")  # for episodes that ended in this step
    flags = last.get("unsafe", False) if isinstance(last, dict) else False
    return np.logical_or(infos.get("unsafe", False), flags)


def check_rewards(reward: Any) -> None:
    """Refuse a reward that the buffer cannot hold as a finite number."""
    numbers = reward if isinstance(reward, np.ndarray) and reward.ndim == 1 else np.ravel(reward)
    for x in numbers.tolist():  # one number per environment: faster than numpy
        if not -LARGEST <= x <= LARGEST:
            _checks.fail("reward", "be finite as float32", x, "nothing was stored")


def as_stored(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """The space of stored actions: SB3 scales continuous ones to [−1, 1]."""
    return spaces.Box(-1.0, 1.0, space.shape, np.float32) if isinstance(space, spaces.Box) else space


REACH = 2.0  #: the TD error at which the Huber loss has half the slope of a squared loss
LOOKED_AT = 100_000  #: the largest number of slots that are checked
ENOUGH = 5_000  #: slots, or a full buffer, before a key is checked
MOST_BYTES = 1 << 26  #: of observations that are checked with a finer key


def advise(text: str) -> None:
    """Warn with one line."""
    warnings.warn(text, ShapingWarning, stacklevel=3)


def give_advice(buffer: ShapedReplayBuffer, env: VecNormalize | None) -> None:
    """Warn once each about a loss that hides rare rewards and a key that does not fit."""
    once = buffer.shaper.once
    once.advise("huber", huber(buffer, env))
    once.advise("key_fits", key(buffer))


def huber(buffer: ShapedReplayBuffer, env: VecNormalize | None) -> str | None:
    """The warning if the loss hides rare rewards, or None. Without a callback, discrete actions are taken for DQN's or QR-DQN's."""
    has_huber = buffer.has_huber_loss
    if has_huber is None:
        has_huber = isinstance(buffer.action_space, spaces.Discrete)
    spread = widest(buffer) if has_huber else 0.0
    if spread and env is not None and env.norm_reward:  # VecNormalize's factor of rewards
        spread *= float(1.0 / np.sqrt(env.ret_rms.var + env.epsilon))
    if spread <= REACH:
        return None
    return (
        f"rewards of one pair lie up to {spread:.3g} from their mean, but the Huber loss of DQN and QR-DQN is linear beyond 1 and hides "
        f"rare ones; multiply rewards by {1.0 / spread:.2g}"
    )


def widest(buffer: ShapedReplayBuffer) -> float:
    """The largest distance of a reward from the mean of its pair, over shaped pairs."""
    index, slots = buffer.shaper.index, _some(buffer.held(), LOOKED_AT)
    slots = slots[index.rho(slots) > 0.0]
    if not slots.size:
        return 0.0
    x = buffer.rewards.take(slots).astype(np.float64)
    pairs, pair = np.unique(index.key_of(slots), return_inverse=True)
    mean = np.bincount(pair, x, pairs.size) / np.bincount(pair, minlength=pairs.size)
    return float(np.abs(x - mean[pair]).max())


def key(buffer: ShapedReplayBuffer) -> str | None:
    """The warning if the key does not fit the stored transitions, or None."""
    shaper, held = buffer.shaper, buffer.held()
    if not shaper.key.ready:
        return None
    found = diagnose(shaper.index.key_of(held), shaper.index.x_of(held))
    if held.size < min(ENOUGH, shaper.capacity - buffer.n_envs):
        found = replace(found, repeated=1.0)  # pairs may still be repeated later
    finer = shaper.key.finer()
    if finer is not None:
        stored: Stored = buffer.observations
        row_bytes = sum(x[0, 0].nbytes for x in (stored.values() if isinstance(stored, dict) else [stored]))
        slots = _some(held, max(MOST_BYTES // row_bytes, 1))
        closer = diagnose(shaper.index.key_of(slots), shaper.index.x_of(slots), finer(*buffer.seen(slots)))
        found = replace(found, invented=closer.invented)
    return found.warning


def _some(slots: Ints, at_most: int) -> Ints:
    """Every n-th slot, with n such that there are at most ``at_most``."""
    return slots[:: max(-(-slots.size // at_most), 1)]
