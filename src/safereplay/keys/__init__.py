"""Keys: which transitions belong to the same pair (s,a) if states are arrays, and whether a key fits the data.

Replay is shaped per pair, so it must know which transitions belong to the same pair. For discrete states this is given;
for arrays the user must decide which states are the same. A key is that decision, a 64-bit word per transition:

    key(observation [n, ...], action [n, ...])  →  uint64 [n]

Equal words mean the same pair. Arrays [n, ...] are read as rows [n, d]; Discrete observations of shape [n] and [n, 1] are the
same. A dict of arrays is read as its parts in the order of their names, for any insertion order; nested dicts too.

Keys are frozen values: they can be compared, printed and pickled, and give the same words in every process. Some learn bounds
from the first data, which gives a new key. A custom key:

>>> import numpy as np, safereplay as sr
>>> from dataclasses import dataclass
>>> @dataclass(frozen=True, repr=False)
... class FirstKey(sr.PairKey):
...     '''The first k numbers of an observation, and the action.'''
...     k: int = 2
...     def __call__(self, observation, action):
...         return sr.ExactKey()(observation[:, :self.k], action)
>>> words = FirstKey()(np.array([[0.0, 1.0, 5.0], [0.0, 1.0, 7.0]]), np.array([3, 3]))
>>> bool(words[0] == words[1]), FirstKey(3)
(True, FirstKey(k=3))

Whether a key fits the data is the question of :func:`diagnose`.

**Too fine.** A transition can be replaced only by another one of its pair. If few pairs have another, there is little to choose.

**Too coarse.** Different states are merged, and their difference is taken for risk. Let x be the tilted quantity. Its variance
within a pair should be chance. The part that a finer key explains is due to position, which the agent could observe. With pair
p cut into finer groups g, and sums of squares about their means,

    s²(p) = SS(p) / (n_p − 1),   f²(p) = Σ_g SS(g) / m_p,   m_p = Σ_g (n_g − 1),   invented = 1 − Σ m_p·f²(p) / Σ m_p·s²(p)

Both are unbiased for the same variance if the finer groups have no effect, in each pair, for any variances of the pairs;
so pure chance gives 0 on average. A pair without a finer group of two has no information (m_p = 0). A warning needs two standard
errors on top, so a single disaster does not cause one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any, Self, cast

import numpy as np

from .. import _checks
from .._checks import AnyArray, Floats
from .._config import Config
from ..kernels import hashing

sys.modules[f"{__name__}.base"] = sys.modules[__name__]  # the module of these keys in pickles of earlier versions

#: Types that kernels read directly.
NATIVE = frozenset(map(np.dtype, ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")))


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


SHOWN = 8  # numbers of a long row shown in a repr


@dataclass(frozen=True, repr=False)
class PairKey(Config):
    """The base class of all keys. A custom key needs ``__call__``, or only ``_fold``; the other methods have defaults."""

    def __call__(self, observation: Any, action: Any) -> AnyArray:
        """The words of n transitions.

        Parameters
        ----------
        observation, action : array [n, ...]; observations may be a dict of such

        Returns
        -------
        uint64 [n] : equal words mean the same pair

        Raises
        ------
        BadInput : the key is not ready, or the arrays do not fit it
        """
        found, acted = pairs(observation, action)
        out = np.full(len(acted), hashing.START, np.uint64)
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
        """The key with the bounds of Gymnasium spaces; None is a missing one."""
        return self

    def learn(self, observation: Any, action: Any) -> PairKey:
        """The key, ready, with missing parameters learned from the first data; ``warm_up`` transitions are enough."""
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
        """The inverse of :meth:`state_dict`; ``function`` is that of a :class:`FunctionKey`, since files must not run code.

        Raises
        ------
        BadInput : the kind is unknown, a field is wrong, or it is another function than the saved one
        """
        kinds = [name for name, kind in Config._known.items() if issubclass(kind, PairKey)]
        if issubclass(Config._known[_checks.choice("kind of key", state.get("kind"), kinds)], FunctionKey):
            wanted = str(state.get("function"))
            _checks.require(function is not None, "function", f"be given to load this key: {wanted}", None)
            _checks.require(_name(function) == wanted, "function", f"be the one that was saved: {wanted}", function)
            state = {**state, "function": function}
        return cast(PairKey, Config.from_dict(state))

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


@dataclass(frozen=True, repr=False)
class ExactKey(PairKey):
    """Pairs are the same if all numbers of observation and action are equal. (−0.0 is 0.0; 1 is 1.0.)

    For states that repeat exactly: grids, one-hot rows, Discrete and MultiDiscrete spaces, small pictures. If observations
    repeat but actions do not, use ``TileKey(tiles=0)``.

    >>> import numpy as np, safereplay as sr
    >>> rooms, moves = np.eye(3)[[0, 2, 0]], np.array([1, 1, 1])
    >>> words = sr.ExactKey()(rooms, moves)
    >>> bool(words[0] == words[2]), bool(words[0] == words[1])
    (True, False)
    """

    def _fold(self, found: list[AnyArray], acted: AnyArray, out: AnyArray) -> None:
        for part in (*found, acted):
            fold_exactly(part, out)


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

    A saved key stores only the name of the function; loading needs the function itself:
    ``PairKey.from_state(state, function=...)``.

    Parameters
    ----------
    function : callable; importable by name: gets whole batches, [n, ...], and returns whole numbers [n] or [n, k]

    >>> import numpy as np, safereplay as sr
    >>> words = sr.FunctionKey(np.maximum)(np.array([3, 1, 2]), np.array([1, 3, 1]))  # the larger of the two is all that counts
    >>> bool(words[0] == words[1]), bool(words[0] == words[2])
    (True, False)
    """

    function: Callable[[Any, Any], Any]

    def __post_init__(self) -> None:
        _checks.require(callable(self.function), "function", "be a function of (observation, action)", self.function)
        module, _, path = self.name.partition(":")
        found: Any = sys.modules.get(module)
        for name in path.split("."):
            found = getattr(found, name, None)
        _checks.require(found is self.function, "function", NAMED, self.function, HINT)

    @property
    def name(self) -> str:
        """The function as 'module:name'."""
        return _name(self.function)

    def __call__(self, observation: Any, action: Any) -> AnyArray:
        """The words of n transitions, uint64 [n]."""
        numbers = np.asarray(self.function(observation, action))
        if not (numbers.dtype.kind in "biu" and numbers.ndim in (1, 2) and len(numbers) == len(action)):
            wanted = f"give whole numbers of shape [{len(action)}] or [{len(action)}, k]"
            _checks.fail("function", wanted, f"{numbers.dtype} {list(numbers.shape)}")
        out = np.full(len(numbers), hashing.START)
        fold_exactly(rows("function", numbers), out)
        return out

    def to_dict(self) -> dict[str, Any]:
        """The kind, and the function's name."""
        return {"kind": type(self).__name__, "function": self.name}

    state_dict = to_dict


def _name(function: Any) -> str:
    module = getattr(function, "__module__", None) or type(function).__module__
    return f"{module}:{getattr(function, '__qualname__', getattr(function, '__name__', '?'))}"


LEAST = 100  #: number of transitions, and degrees of freedom of the finer key, below which there is no diagnosis
TOO_FINE = 0.2  #: share of transitions that share their pair with another, below which a key is too fine
TOO_COARSE = 1 / 3  #: share of the variance within pairs that a finer key explains, above which a key is too coarse


@dataclass(frozen=True)
class Diagnosis:
    """The result of :func:`diagnose`.

    Parameters
    ----------
    n : int; number of transitions
    pairs : int; number of different pairs
    repeated : float; share of transitions that share their pair with another
    invented : float or None; share of the variance within pairs that the finer key explains; None if unknown
    error : float; standard error of that share
    invented_std : float; the explained part as a standard deviation, in the unit of x

    >>> import numpy as np, safereplay as sr
    >>> sr.diagnose(np.array([7, 7, 8]), np.array([0.0, 1.0, 0.0]))
    Diagnosis(n=3, pairs=2, repeated=0.6666666666666666, invented=None, error=0.0, invented_std=0.0)
    """

    n: int
    pairs: int
    repeated: float
    invented: float | None
    error: float = 0.0
    invented_std: float = 0.0

    @property
    def warning(self) -> str | None:
        """The problem and a suggestion, in one line; None if there is none, or too little data."""
        if self.n >= LEAST and self.repeated < TOO_FINE:
            return (
                f"the key is too fine: only {self.repeated:.0%} of {self.n} transitions share their pair with another, so there is "
                "little to choose from; use fewer tiles or bits, or leave dimensions out"
            )
        if self.invented is not None and self.invented - 2.0 * self.error > TOO_COARSE:
            return (
                f"the key is too coarse: a finer one explains {self.invented:.0%} of the variance within pairs, which would be "
                "taken for risk; use more tiles or bits, an exact key, or no dial (v=0) where rewards follow from the state alone"
            )
        return None


def diagnose(keys: Any, x: Any, finer_keys: Any = None) -> Diagnosis:
    """How well a key fits the values that are tilted.

    Parameters
    ----------
    keys : uint64 [n]; the words of n transitions
    x : float [n]; the values that are tilted; NaN marks an unknown value
    finer_keys : uint64 [n], optional; the words of the same transitions by a finer key (``key.finer()``)

    Returns
    -------
    Diagnosis : its ``warning`` says whether the key is too fine or too coarse

    Raises
    ------
    BadInput : the lengths differ

    >>> import numpy as np, safereplay as sr
    >>> place = np.random.default_rng(0).random((5000, 1))
    >>> key, stay = sr.TileKey(tiles=4, low=0.0, high=1.0, action_tiles=0), np.zeros(5000, int)
    >>> found = sr.diagnose(key(place, stay), -place[:, 0], key.finer()(place, stay))  # no chance at all in this reward
    >>> f"{found.repeated:.0%} {found.invented:.0%}"
    '100% 75%'
    """
    words, values = np.asarray(keys, np.uint64), np.asarray(x, np.float64)
    alike = words.shape == values.shape and words.ndim == 1
    _checks.require(alike, "keys and x", "have the same length", (words.shape, values.shape))
    found: tuple[float | None, float, float] = (None, 0.0, 0.0)
    if finer_keys is not None:
        finer = np.asarray(finer_keys, np.uint64)
        _checks.require(finer.shape == words.shape, "finer_keys", "have the length of keys", finer.shape)
        known = np.isfinite(values)
        found = _invented(words[known], values[known], finer[known])
    return Diagnosis(len(words), len(np.unique(words)), companions(words), *found)


def _invented(words: AnyArray, values: Floats, finer: AnyArray) -> tuple[float | None, float, float]:
    """invented, its standard error with pairs as the sample, and √(Σ m·(s² − f²) / Σ m); None if unknown."""
    _, pair = np.unique(words, return_inverse=True)
    both = np.full(words.size, hashing.START)  # finer groups within a pair, even if the finer key is not nested in it
    hashing.fold_whole(np.column_stack([words, finer]), both)
    _, first, group = np.unique(both, return_index=True, return_inverse=True)
    n, ss = _spread(pair, values)
    n_group, ss_group = _spread(group, values)
    m = np.bincount(pair[first], weights=n_group - 1.0, minlength=n.size)
    left = np.bincount(pair[first], weights=ss_group, minlength=n.size)
    within = m * ss / np.maximum(n - 1.0, 1.0)
    total = float(within.sum())
    if m.sum() < LEAST or total <= 0.0:
        return None, 0.0, 0.0
    ratio = float(left.sum()) / total
    error = float(np.sqrt(np.sum((left - ratio * within) ** 2))) / total
    return 1.0 - ratio, error, float(np.sqrt(max(0.0, 1.0 - ratio) * total / m.sum()))


def _spread(group: AnyArray, values: Floats) -> tuple[Floats, Floats]:
    """The size of each group, and its sum of squares about the mean."""
    n = np.bincount(group).astype(np.float64)
    mean = np.bincount(group, weights=values) / np.maximum(n, 1.0)
    return n, np.asarray(np.bincount(group, weights=(values - mean[group]) ** 2), np.float64)
