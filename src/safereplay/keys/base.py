"""What a key is: a function that names the pair (s,a) of each transition by a word of 64 bits.

Replay is shaped pair by pair, so it must know which transitions are of the same pair. Where states are numbers they say so
themselves; where they are arrays somebody must decide how near is the same. A key is that decision:

    key(observation [n, ...], action [n, ...])  →  uint64 [n]

Equal words, same pair. A key that is too fine gives each transition a pair of its own, and there is nothing to choose from;
one that is too coarse calls different states the same, and takes their difference for risk. :mod:`.diagnosis` tells.

Keys are frozen values: they compare, print, pickle, and give the same words in every process. Some learn bounds from the
first data; that gives a new key. A key of one's own:

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
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast

import numpy as np

from .. import _checks
from .._config import Config
from .._types import AnyArray
from ..kernels import hashing
from .rows import pairs

SHOWN = 8  # numbers of a long row that a repr shows


@dataclass(frozen=True, repr=False)
class PairKey(Config):
    """The base of all keys. One of your own needs ``__call__``, or only ``_fold``; the rest has an answer that may do."""

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
        """Whether the key can be called. If not: :meth:`prepared`, then :meth:`learn`."""
        return True

    def prepared(self, observation_space: Any, action_space: Any) -> PairKey:
        """The key with what Gymnasium spaces say about bounds; None where there is no space."""
        return self

    def learn(self, observation: Any, action: Any) -> PairKey:
        """The key, ready, with what it still had to know taken from the first data (``warm_up`` transitions are enough)."""
        return self

    def finer(self) -> PairKey | None:
        """A key that tells more apart, to see what this one misses; None if there is none."""
        return None

    def _put(self, **values: Any) -> None:
        """Set fields to what checks made of them: plain numbers, and tuples of those."""
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
        """The inverse of :meth:`state_dict`. A :class:`FunctionKey` needs its function: a file's word does not run code."""
        kind = _checks.choice("kind of key", state.get("kind"), _kinds(PairKey))
        return cast(PairKey, Config.from_dict({**state, **_kinds(PairKey)[kind]._given(state, function)}))

    @classmethod
    def _given(cls, state: dict[str, Any], function: Callable[..., Any] | None) -> dict[str, Any]:
        """What a saved state must get from the caller."""
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
    """One number for all columns, or one a column; ``unknown`` for those that are None or infinite. None: all unknown."""
    if values is None or isinstance(values, str) or not np.ndim(values):
        return None if values is None else _checks.real(argument, values)
    return tuple(unknown if x is None or x in (np.inf, -np.inf) else _checks.real(argument, x) for x in values)


def counts(argument: str, values: Any, least: int) -> int | tuple[int, ...]:
    """One whole number for all columns, or one a column."""
    if isinstance(values, str) or not np.ndim(values):
        return _checks.whole(argument, values, least, bits=31)
    return tuple(_checks.whole(argument, x, least, bits=31) for x in values)


def _kinds(cls: type[PairKey]) -> dict[str, type[PairKey]]:
    """All keys by name."""
    below = {name: kind for sub in cls.__subclasses__() for name, kind in _kinds(sub).items()}
    return {**below, cls.__name__: cls}
