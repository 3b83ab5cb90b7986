"""Gymnasium environments with integer states and actions 0, 1, 2, ..., and episodes that can be repeated.

A :class:`Codec` reads an element of a discrete space as the digits of one number in mixed radix, last digit fastest:

    Discrete(n)          one digit, counted from the space's start
    MultiDiscrete(nvec)  one digit per entry, in C order
    MultiBinary(shape)   the same, each of radix 2
    Tuple, Dict          the numbers of their parts, as digits; parts may be nested

A :class:`World` is an environment that is stepped by such numbers. It stores the state of the environment's generator
``np_random`` from before the episode, and the actions since. Another copy of the environment can then be brought to the
same state. This is how a saved agent continues within an episode, without pickling the environment.

>>> from gymnasium.spaces import Discrete, Tuple
>>> hand = codec("observation", Tuple((Discrete(32), Discrete(11), Discrete(2))))
>>> hand.n, hand.encode((14, 10, 0)), hand.decode(328)
(704, 328, (np.int64(14), np.int64(10), np.int64(0)))
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Sequence
from math import isfinite, nan, prod
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import gymnasium
import numpy as np
from gymnasium import spaces

from . import _checks
from ._checks import Ints
from .errors import BadFile
from .kernels.step import NO_STATE

Env: TypeAlias = "gymnasium.Env[Any, Any]"

MAX_PAIRS = 1 << 27
GIVEN = "be given to load this agent"


class Codec(NamedTuple):
    """A discrete space as the numbers 0, ..., n − 1."""

    n: int  #: number of elements
    encode: Callable[[Any], int]  #: the number of an element; raises BadInput outside the space
    decode: Callable[[int], Any]  #: the element with a number, of the type that the space samples
    text: str  #: what the codec was built from; codecs with equal text are equal


def codec(name: str, space: Any, where: str = "") -> Codec:
    """The codec of a space; messages refer to its elements as ``name``, and to a part of one as ``name[where]``.

    >>> from gymnasium.spaces import Discrete
    >>> codec("action", Discrete(3, start=-1)).decode(0)
    np.int64(-1)
    """
    if isinstance(space, spaces.Discrete):
        n, start, kind = int(space.n), int(space.start), space.dtype.type

        def number(value: Any) -> int:
            digit = int(value) - start
            return digit if 0 <= digit < n and digit + start == value else -1

        encode = _guarded(name + where, space, number)
        return Codec(n, encode, lambda index: kind(start + index), f"Discrete({n}, start={start})")
    if isinstance(space, spaces.MultiDiscrete):
        text = f"MultiDiscrete({space.nvec.tolist()}, start={space.start.tolist()})"
        return _digits(name + where, space, space.nvec, space.start, text)
    if isinstance(space, spaces.MultiBinary):
        low = np.zeros(space.shape, np.int64)
        return _digits(name + where, space, low + 2, low, f"MultiBinary({list(space.shape)})")
    if isinstance(space, spaces.Tuple | spaces.Dict):
        return _parts(name, space, where)
    condition = "be discrete (Discrete, MultiDiscrete, MultiBinary, or a Tuple or Dict of those)"
    return _checks.fail(f"{name}_space{where}", condition, space)


def _guarded(label: str, space: spaces.Space[Any], number: Callable[[Any], int]) -> Callable[[Any], int]:
    """``number``, which is negative or raises an error outside the space, as an ``encode``."""

    def encode(value: Any) -> int:
        try:
            index = number(value)
        except (TypeError, ValueError, OverflowError):
            index = -1
        if index < 0:
            _checks.fail(label, f"be in {space}", value)
        return index

    return encode


def _digits(label: str, space: spaces.Space[Any], radix: Any, start: Any, text: str) -> Codec:
    """An array of digits: each entry counts from its start and has its own radix."""
    shape, kind = radix.shape, space.dtype
    sizes, lows = radix.ravel().tolist(), start.ravel().tolist()

    def number(value: Any) -> int:
        index, array = 0, np.asarray(value)
        inside = array.shape == shape
        for entry, low, size in zip(array.ravel().tolist(), lows, sizes, strict=False):
            digit = int(entry) - low
            inside = inside and 0 <= digit < size and digit + low == entry
            index = index * size + digit
        return index if inside else -1

    def decode(index: int) -> Any:
        entries = [digit + low for digit, low in zip(_split(index, sizes), lows, strict=True)]
        return np.array(entries, kind).reshape(shape)

    return Codec(prod(sizes), _guarded(label, space, number), decode, text)


def _parts(name: str, space: spaces.Tuple[Any] | spaces.Dict, where: str) -> Codec:
    """A tuple or a dict: the numbers of its parts are the digits."""
    named = isinstance(space, spaces.Dict)
    items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    parts: dict[Any, Codec] = {key: codec(name, part, f"{where}[{key!r}]") for key, part in items}
    sizes = [part.n for part in parts.values()]
    kind = f"dict with keys {', '.join(map(repr, parts))}" if named else f"tuple of {len(parts)}"

    def encode(value: Any) -> int:
        if named:
            fits = isinstance(value, dict) and value.keys() == parts.keys()
        else:
            fits = isinstance(value, tuple | list) and len(value) == len(parts)
        if not fits:
            _checks.fail(name + where, f"be a {kind}", value)
        index = 0
        for key, part in parts.items():
            index = index * part.n + part.encode(value[key])
        return index

    def decode(index: int) -> Any:
        digits = zip(parts.items(), _split(index, sizes), strict=True)
        elements = {key: part.decode(digit) for (key, part), digit in digits}
        return elements if named else tuple(elements.values())

    texts = [f"{key!r}: {part.text}" if named else part.text for key, part in parts.items()]
    return Codec(prod(sizes), encode, decode, f"{'Dict' if named else 'Tuple'}({', '.join(texts)})")


def _split(index: int, sizes: Sequence[int]) -> list[int]:
    """The digits of a number in mixed radix, last digit fastest."""
    digits = []
    for size in reversed(sizes):
        index, digit = divmod(index, size)
        digits.append(digit)
    return digits[::-1]


class World:
    """An environment stepped by numbers, with a record of its current episode and the returns of those before.

    >>> world = World("CliffWalking-v1", seed=0)
    >>> world.here(), world.step(0), world.s
    (36, (-1.0, 24, False), 24)
    """

    def __init__(self, env: Env | str, seed: int) -> None:
        hint = ""
        if isinstance(env, str):
            try:
                env = gymnasium.make(env)
            except (gymnasium.error.Error, ImportError) as error:
                hint = " ".join(str(error).split())
        _checks.require(isinstance(env, gymnasium.Env), "env", "be a Gymnasium environment or the id of one", env, hint)
        self.env, self.seed = cast(Env, env), seed
        self.states = codec("observation", getattr(self.env, "observation_space", None))
        self.actions = codec("action", getattr(self.env, "action_space", None))
        pairs = float(min(self.states.n * self.actions.n, 10**300))
        _checks.require(pairs <= MAX_PAIRS, "observation_space × action_space", "have at most 2**27 pairs", pairs)
        self.begun = False  # whether the first reset, the one with the seed, was done
        self.s = NO_STATE
        self.returns = array("d")
        self._origin: Any = None  # of the current episode
        self._taken = self._trail = array("B")  # its actions, and the states that they led through
        self._total = 0.0  # its return so far

    def here(self) -> int:
        """The state to act in; starts a new episode if none is running."""
        return self.reset() if self.s == NO_STATE else self.s

    def reset(self) -> int:
        """Begin an episode; returns its first state."""
        self.s = NO_STATE
        self._origin = self._next_origin()
        observation, _ = self.env.reset(seed=None if self.begun else self.seed)
        self.begun = True
        s = self.states.encode(observation)
        self._taken, self._trail, self._total = _counters(self.actions.n, []), _counters(self.states.n, [s]), 0.0
        self.s = s  # last, so that a failed reset leaves no episode
        return s

    def step(self, a: int) -> tuple[float, int, bool]:
        """Take an action; returns the reward, the next state, and whether the episode terminated (not: was truncated).

        Afterwards ``s`` is that state, or NO_STATE when the episode is over or the environment failed.
        """
        self.s = NO_STATE
        observation, reward, terminated, truncated, _ = self.env.step(self.actions.decode(a))
        try:
            r = float(reward) + 0.0  # −0 and 0 are the same reward
        except (TypeError, ValueError):
            r = nan
        if not isfinite(r):
            where = f"step {len(self._taken) + 1} of episode {len(self.returns) + 1}"
            _checks.fail(f"reward at {where}", "be finite", reward)
        s_next = self.states.encode(observation)
        self._taken.append(a)
        self._trail.append(s_next)
        self._total += r
        if terminated or truncated:
            self.returns.append(self._total)
        else:
            self.s = s_next
        return r, s_next, bool(terminated)

    def _next_origin(self) -> Any:
        """The origin of the next episode: the seed for the first one, then the state of the environment's generator."""
        return getattr(self._generator, "state", None) if self.begun else self.seed

    @property
    def _generator(self) -> Any:
        return getattr(getattr(self.env.unwrapped, "np_random", None), "bit_generator", None)

    def whereabouts(self) -> tuple[Any, float, Ints, Ints]:
        """(origin, return, actions, states) of the current episode; between episodes, the next origin and no states."""
        if self.s == NO_STATE:
            return self._next_origin(), 0.0, np.zeros(0, np.int64), np.zeros(0, np.int64)
        return self._origin, self._total, np.array(self._taken, np.int64), np.array(self._trail, np.int64)

    def go_to(self, origin: Any, total: float, actions: Ints, states: Ints) -> bool:
        """Repeat an episode, which leads to the same state; if it does not, False, and no episode is running."""
        self.begun = origin != self.seed
        if self.begun:
            try:
                self._generator.state = origin
            except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
                return False
        if not states.size:
            return True
        finished, self.returns = self.returns, array("d")  # an episode that ends early here does not count
        self.reset()
        for a, s in zip(actions.tolist(), states.tolist(), strict=False):
            if self.s != s:
                break
            self.step(a)
        arrived = bool(self.s == states[-1]) and len(self._taken) == actions.size and self._total == total
        self.s, self.returns = self.s if arrived else NO_STATE, finished
        return arrived

    @property
    def address(self) -> dict[str, Any] | None:
        """The arguments of :func:`gymnasium.make` for this environment; None if it cannot be made again."""
        spec = self.env.spec
        try:
            if spec is None or json.loads(json.dumps(spec.kwargs)) != spec.kwargs:
                return None
        except (TypeError, ValueError):  # not JSON
            return None
        limit = -1 if spec.max_episode_steps is None else spec.max_episode_steps
        return {"id": spec.id, "kwargs": spec.kwargs, "max_episode_steps": limit, "wrapped": str(self.env)}


def made_again(path: str | Path, address: Any) -> Env:
    """Make the environment that a file names, if it is registered; nothing else from the file is run."""
    _checks.require(address is not None, "env", GIVEN, None, "its own has no id, or arguments that JSON does not know")
    try:
        name, kwargs, limit, wrapped = (address[key] for key in ("id", "kwargs", "max_episode_steps", "wrapped"))
        env = gymnasium.make(name, max_episode_steps=limit, **kwargs) if name in gymnasium.registry else None
    except Exception as error:  # a constructor may raise anything
        raise BadFile(
            f"{path} must name an environment that can be made, got: {' '.join(str(error).split())}"
        ) from None
    _checks.require(env is not None, "env", GIVEN, None, f"nothing is registered as '{name}'")
    _checks.require(str(env) == wrapped, "env", GIVEN, None, f"it was wrapped as {wrapped}")
    return cast(Env, env)


def _counters(n: int, values: Iterable[int]) -> array[int]:
    """An array of numbers below n, in the smallest integer type, since an episode may be long."""
    return array("B" if n <= 1 << 8 else "H" if n <= 1 << 16 else "I", values)
