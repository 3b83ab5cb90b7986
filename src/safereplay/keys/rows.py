"""Observations and actions as rows of numbers, whatever their shape.

An array [n, ...] becomes [n, d]; Discrete observations of shape [n] and [n, 1] are the same. A dict of arrays becomes its
parts in the order of their names, so how it was built does not matter. Dicts in dicts are taken apart too.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from .. import _checks
from .._types import AnyArray

#: What kernels read as it is.
NATIVE = frozenset(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)) | {
    np.dtype(np.float32),
    np.dtype(np.float64),
}


def rows(argument: str, values: Any) -> AnyArray:
    """An array [n, ...] as [n, d], in a type that kernels read."""
    array = np.asarray(values)
    if array.dtype not in NATIVE:
        _checks.require(array.dtype.kind in "biuf", argument, "be an array of numbers", values)
        array = array.astype({"b": np.uint8, "f": np.float64}.get(array.dtype.kind, array.dtype.newbyteorder("=")))
    if array.ndim != 2:
        _checks.require(array.ndim > 0, argument, "have a first axis of transitions", values, "a batch of one is [x]")
        array = array.reshape(len(array), prod(array.shape[1:]))
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def parts(observation: Any, name: str = "observation") -> list[AnyArray]:
    """The rows of an observation: one array, or one for each part of a dict in the order of their names."""
    if not isinstance(observation, Mapping):
        return [rows(name, observation)]
    found = [part for key in sorted(observation) for part in parts(observation[key], f"{name}[{key!r}]")]
    _checks.require(bool(found), name, "have at least one part", observation)
    return found


def pairs(observation: Any, action: Any, least: int = 0) -> tuple[list[AnyArray], AnyArray]:
    """The parts of observations, and the actions' rows; as many of each, and at least so many."""
    found, acted = parts(observation), rows("action", action)
    for part in found:
        if len(part) != len(acted):
            _checks.fail("observation and action", "have as many rows", (len(part), len(acted)))
    if len(acted) < least:
        _checks.fail("first data", f"have at least {least} transition", len(acted))
    return found, acted


def is_whole(part: AnyArray) -> bool:
    """Whether the numbers are whole by their type."""
    return part.dtype.kind in "iu"


def columns(found: list[AnyArray]) -> AnyArray:
    """All parts side by side [n, d], as floats."""
    return np.concatenate([part.astype(np.float64) for part in found], axis=1)
