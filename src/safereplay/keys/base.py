"""Keys: which transitions belong to the same pair (s,a). The base class, the exact key, and a key from a function.

Observations and actions are converted to rows of numbers, for any shape.

An array [n, ...] becomes [n, d]; Discrete observations of shape [n] and [n, 1] are the same. A dict of arrays becomes its
parts in the order of their names, for any insertion order. Nested dicts are flattened too.

A key is a function that maps each transition to a 64-bit word, which identifies its pair (s,a).

Replay is shaped per pair, so it must know which transitions belong to the same pair. For discrete states this is given;
for arrays the user must decide which states are the same. A key is that decision:

    key(observation [n, ...], action [n, ...])  →  uint64 [n]

Equal words mean the same pair. A key that is too fine gives each transition a pair of its own, and there is nothing to choose
from; one that is too coarse merges different states, and takes their difference for risk. :func:`.diagnose` detects both.

Keys are frozen values: they can be compared, printed and pickled, and give the same words in every process. Some learn bounds
from the first data, which gives a new key. A custom key:

>>> import numpy as np, safereplay as sr
>>> from dataclasses import dataclass
>>> from safereplay.keys.base import PairKey
>>> @dataclass(frozen=True, repr=False)
... class FirstKey(PairKey):
...     '''The first k numbers of an observation, and the action.'''
...     k: int = 2
...     def __call__(self, observation, action):
...         return sr.ExactKey()(observation[:, :self.k], action)
>>> words = FirstKey()(np.array([[0.0, 1.0, 5.0], [0.0, 1.0, 7.0]]), np.array([3, 3]))
>>> bool(words[0] == words[1]), FirstKey(3)
(True, FirstKey(k=3))

The exact key: pairs are the same if all their numbers are equal.

It suits worlds with few states: grids, one-hot rows, Discrete and MultiDiscrete spaces, small pictures.

The function key: a user's function of observations and actions that returns whole numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, Self, cast

import numpy as np

from .. import _checks
from .._config import Config
from .._types import AnyArray
from ..kernels import hashing

#: Types that kernels read directly.
NATIVE = frozenset(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)) | {
    np.dtype(np.float32),
    np.dtype(np.float64),
}


def rows(argument: str, values: Any) -> AnyArray:
    """An array [n, ...] as [n, d], in a type that kernels can read."""
    array = np.asarray(values)
    if array.dtype not in NATIVE:
        _checks.require(array.dtype.kind in "biuf", argument, "be an array of numbers", values)
        array = array.astype({"b": np.uint8, "f": np.float64}.get(array.dtype.kind, array.dtype.newbyteorder("=")))
    if array.ndim != 2:
        _checks.require(array.ndim > 0, argument, "have a first axis of transitions", values, "a batch of one is [x]")
        array = array.reshape(len(array), prod(array.shape[1:]))
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def parts(observation: Any, name: str = "observation") -> list[AnyArray]:
    """The rows of an observation: one array, or one per part of a dict in the order of their names."""
    if not isinstance(observation, Mapping):
        return [rows(name, observation)]
    found = [part for key in sorted(observation) for part in parts(observation[key], f"{name}[{key!r}]")]
    _checks.require(bool(found), name, "have at least one part", observation)
    return found


def pairs(observation: Any, action: Any, least: int = 0) -> tuple[list[AnyArray], AnyArray]:
    """The parts of observations, and the actions' rows; checked to be of equal length, at least ``least``."""
    found, acted = parts(observation), rows("action", action)
    for part in found:
        if len(part) != len(acted):
            _checks.fail("observation and action", "have as many rows", (len(part), len(acted)))
    if len(acted) < least:
        _checks.fail("first data", f"have at least {least} transition", len(acted))
    return found, acted


def is_whole(part: AnyArray) -> bool:
    """Whether the numbers have an integer type."""
    return part.dtype.kind in "iu"


def columns(found: list[AnyArray]) -> AnyArray:
    """All parts side by side [n, d], as floats."""
    return np.concatenate([part.astype(np.float64) for part in found], axis=1)


SHOWN = 8  # numbers of a long row shown in a repr


@dataclass(frozen=True, repr=False)
class PairKey(Config):
    """The base class of all keys. A custom key needs ``__call__``, or only ``_fold``; the other methods have defaults."""

    def __call__(self, observation: Any, action: Any) -> AnyArray:
        """The words of n transitions, uint64 [n]."""
        found, acted = pairs(observation, action)
        out = np.empty(len(acted), np.uint64)
        out.fill(hashing.START)
        self._fold(found, acted, out)
        return out

    def _fold(self, found: list[AnyArray], acted: AnyArray, out: AnyArray) -> None:
        """Absorb the observations' parts and the actions into the words."""
        raise NotImplementedError(f"{type(self).__name__} has no __call__")

    @property
    def ready(self) -> bool:
        """Whether the key can be called. If not, call :meth:`prepared`, then :meth:`learn`."""
        return True

    def prepared(self, observation_space: Any, action_space: Any) -> PairKey:
        """The key with the bounds of Gymnasium spaces; None for a missing space."""
        return self

    def learn(self, observation: Any, action: Any) -> PairKey:
        """The key, ready, with missing parameters learned from the first data (``warm_up`` transitions are enough)."""
        return self

    def finer(self) -> PairKey | None:
        """A finer key, for the diagnosis; None if there is none."""
        return None

    def _put(self, **values: Any) -> None:
        """Set fields to their checked values: plain numbers, and tuples of those."""
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def changed(self, **values: Any) -> Self:
        """The key with other values in some fields."""
        return replace(self, **values)

    def state_dict(self) -> dict[str, Any]:
        """The key as numbers, strings, arrays and dicts of those; fields that are None are left out."""
        state: dict[str, Any] = {"kind": type(self).__name__}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, PairKey):
                value = value.state_dict()
            if value is not None:
                state[field.name] = np.array(value) if isinstance(value, tuple) else value
        return state

    @staticmethod
    def from_state(state: dict[str, Any], function: Callable[..., Any] | None = None) -> PairKey:
        """The inverse of :meth:`state_dict`. A :class:`FunctionKey` needs its function, since files must not run code."""
        kind = _checks.choice("kind of key", state.get("kind"), _kinds(PairKey))
        return cast(PairKey, Config.from_dict({**state, **_kinds(PairKey)[kind]._given(state, function)}))

    @classmethod
    def _given(cls, state: dict[str, Any], function: Callable[..., Any] | None) -> dict[str, Any]:
        """Fields that the caller must supply for a saved state."""
        return {}

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def __repr__(self) -> str:
        values = ((field, getattr(self, field.name)) for field in fields(self))
        return f"{type(self).__name__}({', '.join(f'{f.name}={shown(v)}' for f, v in values if v != f.default)})"


def shown(value: Any) -> str:
    """A field's value in a repr: functions by name, numbers short, long rows cut."""
    if isinstance(value, tuple):
        cut = [*map(shown, value[:SHOWN]), f"... {len(value)} numbers"] if len(value) > SHOWN else [*map(shown, value)]
        return f"({', '.join(cut)}{',' if len(cut) == 1 else ''})"
    return f"{value:.6g}" if isinstance(value, float) else getattr(value, "__qualname__", None) or repr(value)


def numbers(argument: str, values: Any, unknown: float) -> float | tuple[float, ...] | None:
    """One number for all columns, or one per column; ``unknown`` replaces None and infinity. None: all unknown."""
    if values is None or isinstance(values, str) or not np.ndim(values):
        return None if values is None else _checks.real(argument, values)
    return tuple(unknown if x is None or x in (np.inf, -np.inf) else _checks.real(argument, x) for x in values)


def counts(argument: str, values: Any, least: int) -> int | tuple[int, ...]:
    """One whole number for all columns, or one per column."""
    if isinstance(values, str) or not np.ndim(values):
        return _checks.whole(argument, values, least, bits=31)
    return tuple(_checks.whole(argument, x, least, bits=31) for x in values)


def _kinds(cls: type[PairKey]) -> dict[str, type[PairKey]]:
    """All keys by name."""
    below = {name: kind for sub in cls.__subclasses__() for name, kind in _kinds(sub).items()}
    return {**below, cls.__name__: cls}


@dataclass(frozen=True, repr=False)
class ExactKey(PairKey):
    """Pairs are the same if all numbers of observation and action are equal. (−0.0 is 0.0; 1 is 1.0.)

    For states that repeat exactly. If observations repeat but actions do not, use ``TileKey(tiles=0)``.

    >>> import numpy as np, safereplay as sr
    >>> rooms, moves = np.eye(3)[[0, 2, 0]], np.array([1, 1, 1])
    >>> words = sr.ExactKey()(rooms, moves)
    >>> bool(words[0] == words[2]), bool(words[0] == words[1])
    (True, False)
    """

    def _fold(self, found: list[AnyArray], acted: AnyArray, out: AnyArray) -> None:
        for part in found:
            fold_exactly(part, out)
        fold_exactly(acted, out)


def fold_exactly(part: AnyArray, out: AnyArray) -> None:
    """Absorb rows as they are."""
    fold = hashing.fold_whole if part.dtype.itemsize == 8 and is_whole(part) else hashing.fold
    fold(part, out)


def companions(words: AnyArray) -> float:
    """The share of transitions that share their pair with another."""
    _, pair, n = np.unique(words, return_inverse=True, return_counts=True)
    return float(np.mean(n[pair] > 1)) if words.size else 0.0


NAMED = "be a function that a module holds by its name, since saving a replay buffer pickles it"
HINT = "define it with def at the top of a module, not as a lambda, a closure or a method"


@dataclass(frozen=True, repr=False)
class FunctionKey(PairKey):
    """Pairs are the same if ``function(observation, action)`` gives the same whole number, or the same row of them.

    The function gets whole batches, [n, ...], and returns [n] or [n, k]. It must be importable by name. A saved key stores only
    that name; loading needs the function itself: ``PairKey.from_state(state, function=...)``.

    >>> import numpy as np, safereplay as sr
    >>> words = sr.FunctionKey(np.maximum)(np.array([3, 1, 2]), np.array([1, 3, 1]))  # the larger of the two is all that counts
    >>> bool(words[0] == words[1]), bool(words[0] == words[2])
    (True, False)
    """

    function: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        _checks.require(callable(self.function), "function", "be a function of (observation, action)", self.function)
        _checks.require(_found_by_name(self.function), "function", NAMED, self.function, HINT)

    @property
    def name(self) -> str:
        """The function as 'module:name'."""
        return _name(self.function)

    def __call__(self, observation: Any, action: Any) -> AnyArray:
        """The words of n transitions, uint64 [n]."""
        numbers = np.asarray(self.function(observation, action))
        good = numbers.dtype.kind in "biu" and numbers.ndim in (1, 2) and len(numbers) == len(action)
        if not good:
            wanted = f"give whole numbers of shape [{len(action)}] or [{len(action)}, k]"
            _checks.fail("function", wanted, f"{numbers.dtype} {list(numbers.shape)}")
        out = np.full(len(numbers), hashing.START)
        fold_exactly(rows("function", numbers), out)
        return out

    def to_dict(self) -> dict[str, Any]:
        """The kind, and the function's name."""
        return {"kind": type(self).__name__, "function": self.name}

    def state_dict(self) -> dict[str, Any]:
        """The kind, and the function's name."""
        return self.to_dict()

    @classmethod
    def _given(cls, state: dict[str, Any], function: Callable[..., Any] | None) -> dict[str, Any]:
        wanted = str(state.get("function"))
        _checks.require(function is not None, "function", f"be given to load this key: {wanted}", None)
        _checks.require(_name(function) == wanted, "function", f"be the one that was saved: {wanted}", function)
        return {"function": function}


def _name(function: Any) -> str:
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}:{getattr(function, '__qualname__', getattr(function, '__name__', '?'))}"


def _found_by_name(function: Any) -> bool:
    """Whether its module holds this function under its name."""
    module, _, path = _name(function).partition(":")
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is function
