"""What SB3 stores, as arrays [positions, environments, ...] or dicts of them: parts of it, and what may go in."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces

from .. import _checks
from .._types import AnyArray, Ints

Stored = AnyArray | dict[str, AnyArray]
LARGEST = float(np.finfo(np.float32).max)  #: SB3 stores rewards as float32


def is_stored(x: Any, shape: tuple[int, int]) -> bool:
    """Whether this is an array [positions, environments, ...], or a dict of them."""
    if isinstance(x, dict):
        return bool(x) and all(is_stored(y, shape) for y in x.values())
    return isinstance(x, np.ndarray) and x.shape[:2] == shape


def column(x: Any, e: int) -> Any:
    """Column ``e`` of what is stored."""
    return {k: column(y, e) for k, y in x.items()} if isinstance(x, dict) else x[:, e : e + 1]


def merged(parts: list[Any], order: th.Tensor) -> Any:
    """Batches as one, in this order: tuples and dicts of tensors; None stays None."""
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
    """Which environments said ``unsafe``: in a list of infos, one each, or in Gymnasium's dict of arrays."""
    if infos is None or isinstance(infos, list | tuple):
        return [info.get("unsafe", False) for info in infos or ()] or False
    last = infos.get("final_info")  # of episodes that ended in this step
    flags = last.get("unsafe", False) if isinstance(last, dict) else False
    return np.logical_or(infos.get("unsafe", False), flags)


def check_rewards(reward: Any) -> None:
    """Refuse a reward that the buffer cannot hold as a finite number."""
    numbers = reward if isinstance(reward, np.ndarray) else np.asarray(reward)
    for x in numbers.ravel().tolist():  # a few numbers, one per environment: faster so than by numpy
        if not -LARGEST <= x <= LARGEST:
            _checks.fail("reward", "be finite as float32", x, "nothing was stored")


def as_stored(space: spaces.Space[Any]) -> spaces.Space[Any]:
    """The space of stored actions: SB3 scales continuous ones to [−1, 1]."""
    return spaces.Box(-1.0, 1.0, space.shape, np.float32) if isinstance(space, spaces.Box) else space
