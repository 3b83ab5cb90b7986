"""Keys for arrays of numbers: tiles, SimHash, and a key that chooses by itself.

**Tiles** suit few dimensions: points, carts, landers. The number of boxes grows exponentially with the columns, but only boxes
that are visited count, and these are often few. Bounds come from the user, then from a bounded space, then from the 1 % and
99 % quantiles of the first data. Values outside are in the outermost tile. Columns of Discrete, MultiDiscrete and MultiBinary
spaces are not cut (0 tiles): each value is its own tile. A column with one tile has no effect.

**SimHash** (Charikar 2002): the probability that a plane separates two points is the angle between them over π, seen from the
centre of the data. So similar pictures get the same word, for any number of pixels. In few dimensions angles carry little
information (in one dimension there are two), and tiles are far better; below 16 bits different states are merged in any dimension.

:class:`AutoKey` chooses by the first data:

1. Exact, if at least a quarter of the first transitions share their exact pair with another one.
2. Else tiles, up to 16 dimensions: the most of 16, 12, 8, 6, 4, 3 or 2 per dimension for which half of them share their pair.
3. Else SimHash, with the most of 64, 48, 32, 24 or 16 bits for which half of them share their pair, and 16 if none does.

Half of the first thousand is a low threshold: a buffer of many thousands then has several transitions per pair. The threshold for
an exact key is lower, since it never takes position for risk, and continuous states hardly ever repeat exactly.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from gymnasium import spaces
from scipy.special import ndtri

from .. import _checks
from .._checks import AnyArray, Floats
from ..kernels import hashing
from . import ExactKey, PairKey, companions, counts, fold_exactly, is_whole, numbers, pairs

sys.modules[f"{__package__}.auto"] = sys.modules[__name__]  # the module of AutoKey in pickles of earlier versions

QUANTILES = (0.01, 0.99)  #: of the first data, used as bounds
HINT = (
    "key = key.prepared(observation_space, action_space), then key.learn(observation, action) if it is still not ready"
)
FAR = 1e10  #: a space's bound from this size on counts as none


@dataclass(frozen=True)
class Axes:
    """Tiles of the columns of an array: one value for all columns or one per column; infinite bounds are unknown."""

    name: str  #: prefix of the field names: '' or 'action_'
    tiles: Any
    low: Any
    high: Any

    def __post_init__(self) -> None:
        fixed = {
            "tiles": counts(f"{self.name}tiles", self.tiles, 0),
            "low": numbers(f"{self.name}low", self.low, -np.inf),
            "high": numbers(f"{self.name}high", self.high, np.inf),
        }
        for name, value in fixed.items():
            object.__setattr__(self, name, value)
        sizes = {f"{self.name}{name}": len(value) for name, value in fixed.items() if isinstance(value, tuple)}
        lengths = [*sizes.values()]
        _checks.require(len(set(lengths)) < 2, " and ".join(sizes), "have one number per column", lengths)
        low, high = self._row("low", -np.inf), self._row("high", np.inf)
        wrong = np.flatnonzero(~(low <= high))
        if wrong.size:
            _checks.fail(f"{self.name}low", "be at most high", float(low[wrong[0]]), f"in column {wrong[0]}")

    def fields(self) -> dict[str, Any]:
        """The three values, by the key's field names."""
        return {f"{self.name}{name}": getattr(self, name) for name in ("tiles", "low", "high")}

    @property
    def _what(self) -> str:
        return self.name.rstrip("_") or "observation"

    @cached_property
    def _columns(self) -> int:
        """The number of columns; 0 if unknown."""
        return max(len(v) if isinstance(v, tuple) else 0 for v in (self.tiles, self.low, self.high))

    @cached_property
    def ready(self) -> bool:
        """Whether all columns that are cut have bounds."""
        known = np.isfinite(self._row("low", -np.inf)) & np.isfinite(self._row("high", np.inf))
        return not ((self._row("tiles", 0) > 1) & ~known).any()

    def _row(self, name: str, unknown: float) -> Floats:
        """A field as an array; of length one if it is the same for all columns and their number is unknown."""
        value = getattr(self, name)
        values = np.atleast_1d(np.asarray(unknown if value is None else value, np.float64))
        return np.repeat(values, max(1, self._columns)) if len(values) == 1 else values

    def _spread(self, n: int) -> tuple[Floats, Floats, Floats]:
        """tiles, low and high of n columns."""
        for name, value in self.fields().items():
            if isinstance(value, tuple):
                _checks.require(len(value) == n, name, f"have {n} numbers, one per column", len(value))
        low, high = self._row("low", -np.inf), self._row("high", np.inf)
        return np.resize(self._row("tiles", 0), n), np.resize(low, n), np.resize(high, n)

    def prepared(self, space: Any) -> Axes:
        """The axes with the bounds of a space, where the user gave none."""
        if space is None:
            return self
        known = space_columns(f"{self._what} space", space)
        tiles, low, high = self._spread(len(known))
        whole, least, most = np.reshape(known, (-1, 3)).T
        tiles[(whole > 0) & (not isinstance(self.tiles, tuple))] = 0
        low, high = np.where(np.isfinite(low), low, least), np.where(np.isfinite(high), high, most)
        return self._with(tiles, low, high)

    def learned(self, found: list[AnyArray]) -> Axes:
        """The axes with missing bounds from data. Whole numbers are not cut: actions, and parts that are one number."""
        if self.ready:
            return self
        tiles, low, high = self._spread(sum(part.shape[1] for part in found))
        column = 0
        for part in found:
            whole = is_whole(part) and (bool(self.name) or part.shape[1] == 1) and not isinstance(self.tiles, tuple)
            for values in part.T:
                if whole and not (np.isfinite(low[column]) and np.isfinite(high[column])):
                    tiles[column] = 0
                if tiles[column] > 1:
                    least, most = data_bounds(values, int(tiles[column]))
                    low[column] = low[column] if np.isfinite(low[column]) else min(least, high[column])
                    high[column] = high[column] if np.isfinite(high[column]) else max(most, low[column])
                column += 1
        return self._with(tiles, low, high)

    def _with(self, tiles: Floats, low: Floats, high: Floats) -> Axes:
        cut = tiles > 1  # other columns need no bounds
        return replace(
            self,
            tiles=tuple(tiles.astype(int).tolist()),
            low=tuple(np.where(cut, low, 0.0).tolist()),
            high=tuple(np.where(cut, high, 0.0).tolist()),
        )

    def finer(self) -> Axes:
        """Twice as many tiles on each column that is cut."""
        doubled = np.where(self._row("tiles", 0) > 1, 2, 1) * self._row("tiles", 0)
        many = tuple(doubled.astype(int).tolist())
        return replace(self, tiles=many if isinstance(self.tiles, tuple) else many[0])

    @cached_property
    def table(self) -> Floats:
        """(low, tiles per unit, tiles) of each column [d, 3], as kernels read it; one row if all columns are the same."""
        tiles, low, high = self._row("tiles", 0), self._row("low", -np.inf), self._row("high", np.inf)
        if not self.ready:
            _checks.fail("key", "be ready", f"no {self.name}low and {self.name}high", HINT)
        cut = (tiles > 1) & (high > low)
        width = np.where(cut, high - low, 1.0)
        return np.column_stack([np.where(cut, low, 0.0), np.where(cut, tiles / width, 0.0), tiles])

    def fold(self, found: list[AnyArray], out: AnyArray) -> None:
        """Absorb the tiles of rows into the words."""
        table = self.table
        if len(table) == 1 and not table[0, 2]:  # no column is cut
            for part in found:
                fold_exactly(part, out)
            return
        given = sum(part.shape[1] for part in found)
        if self._columns and given != self._columns:
            _checks.fail(self._what, f"have {self._columns} numbers per row, as the key was made for", given)
        first = 0
        for part in found:
            hashing.fold_tiles(part, table, first, out)
            first += part.shape[1]


def data_bounds(values: AnyArray, tiles: int) -> tuple[float, float]:
    """Bounds of the bulk of the values; of all if there are few different ones, such as a flag that is rarely 1."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if not finite.size:
        return 0.0, 0.0
    distinct = np.unique(finite)
    low, high = distinct[[0, -1]] if len(distinct) <= tiles else np.quantile(finite, QUANTILES)
    return float(low), float(high)


def space_columns(name: str, space: Any) -> list[tuple[bool, float, float]]:
    """(whether it is discrete, low, high) of each number of a row; the parts of a Dict in the order of their names."""
    if isinstance(space, spaces.Dict):
        return [c for key in sorted(space.spaces) for c in space_columns(f"{name}[{key!r}]", space.spaces[key])]
    if isinstance(space, spaces.Box):
        low, high = (np.asarray(end, np.float64).ravel() for end in (space.low, space.high))
        low, high = np.where(low > -FAR, low, -np.inf), np.where(high < FAR, high, np.inf)
        return [(False, *ends) for ends in zip(low.tolist(), high.tolist(), strict=True)]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        radix = {spaces.Discrete: "n", spaces.MultiDiscrete: "nvec"}.get(type(space))
        n = np.resize(2 if radix is None else getattr(space, radix), prod(space.shape or ()))
        start = np.resize(getattr(space, "start", 0), n.size)
        return [(True, float(a), float(a + b - 1)) for a, b in zip(start, n, strict=True)]
    return _checks.fail(name, "be a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of those", space)


ACTION_TILES = 5  #: default for each dimension of a Box of actions


@dataclass(frozen=True, repr=False)
class TileKey(PairKey):
    """Pairs are the same if all their numbers lie in the same tile: ``tiles`` between ``low`` and ``high``.

    Each of the three is one number for all dimensions of the flat observation, or one per dimension. Whole-number actions
    are exact.

    Parameters
    ----------
    tiles : int, or one per dimension; number of tiles, default 8: 1 tile ignores a dimension, 0 tiles use its exact values
    low, high : float, or one per dimension, optional; default: the space's bounds, else learned from the first data
    action_tiles, action_low, action_high : the same for actions, default 5 tiles
    warm_up : int; number of transitions to learn from

    >>> import numpy as np, safereplay as sr
    >>> key = sr.TileKey(tiles=4, low=0.0, high=1.0, action_tiles=0)
    >>> words = key(np.array([[0.10, 0.60], [0.20, 0.70], [0.30, 0.70]]), np.array([1, 1, 1]))
    >>> bool(words[0] == words[1]), bool(words[1] == words[2])
    (True, False)
    """

    tiles: int | Sequence[int] = 8
    low: float | Sequence[float | None] | None = None
    high: float | Sequence[float | None] | None = None
    action_tiles: int | Sequence[int] = ACTION_TILES
    action_low: float | Sequence[float | None] | None = None
    action_high: float | Sequence[float | None] | None = None
    warm_up: int = 1000

    def __post_init__(self) -> None:
        self._put(warm_up=_checks.whole("warm_up", self.warm_up, 1), **self._seen.fields(), **self._done.fields())

    @cached_property
    def _seen(self) -> Axes:
        return Axes("", self.tiles, self.low, self.high)

    @cached_property
    def _done(self) -> Axes:
        return Axes("action_", self.action_tiles, self.action_low, self.action_high)

    def _fold(self, found: list[AnyArray], acted: AnyArray, out: AnyArray) -> None:
        self._seen.fold(found, out)
        self._done.fold([acted], out)

    @property
    def ready(self) -> bool:
        """Whether all bounds are known."""
        return self._seen.ready and self._done.ready

    def prepared(self, observation_space: Any, action_space: Any) -> TileKey:
        """The key with the bounds of the spaces, where none are given."""
        seen, done = self._seen.prepared(observation_space), self._done.prepared(action_space)
        return self.changed(**seen.fields(), **done.fields())

    def learn(self, observation: Any, action: Any) -> TileKey:
        """The key with bounds from the first data, where none are known."""
        found, acted = pairs(observation, action, least=1)
        return self.changed(**self._seen.learned(found).fields(), **self._done.learned([acted]).fields())

    def finer(self) -> TileKey:
        """Twice as many tiles on each dimension."""
        return self.changed(**self._seen.finer().fields(), **self._done.finer().fields())


MOST_BITS = 64  #: of a word
LEAST_SPREAD = 0.1  #: least standard deviation of a dimension, as a share of the root mean square of all
STEPS = 32.0  #: planes are stored as integers, in units of 1/STEPS of a standard deviation: a quarter of the memory


@dataclass(frozen=True, repr=False)
class SimHashKey(PairKey):
    """Pairs are the same if their observations lie on the same sides of ``bits`` random planes, and their actions are equal.

    The planes go through the mean of the data, whose dimensions are scaled by their standard deviations. Use more than about
    16 dimensions. Parts of an observation that are one whole number count exactly.

    Parameters
    ----------
    bits : int; number of planes, up to 64: use 16 or more
    seed : int; seed of the planes
    mean, std : sequence of float, optional; of each dimension; default: learned from the first data
    action_tiles, action_low, action_high, warm_up : as in :class:`TileKey`

    >>> import numpy as np, safereplay as sr
    >>> pictures = np.random.default_rng(0).integers(0, 256, (100, 20, 20), np.uint8)
    >>> key = sr.SimHashKey(bits=16).learn(pictures, np.zeros(100, int))
    >>> almost = pictures.copy()
    >>> almost[:, 0, 0] += 1
    >>> bool(np.mean(key(pictures, np.zeros(100, int)) == key(almost, np.zeros(100, int))) > 0.9)
    True
    """

    bits: int = 32
    seed: int = 0
    mean: float | Sequence[float] | None = None
    std: float | Sequence[float] | None = None
    action_tiles: int | Sequence[int] = ACTION_TILES
    action_low: float | Sequence[float | None] | None = None
    action_high: float | Sequence[float | None] | None = None
    warm_up: int = 1000

    def __post_init__(self) -> None:
        bits = _checks.whole("bits", self.bits, 1)
        _checks.require(bits <= MOST_BITS, "bits", f"be at most {MOST_BITS}", bits)
        mean, std = numbers("mean", self.mean, 0.0), numbers("std", self.std, 0.0)
        alike = np.shape(mean or 0.0) == np.shape(std or 0.0) and (mean is None) == (std is None)
        _checks.require(alike, "mean and std", "be given together and have the same length", (mean, std))
        least = float(np.min(std or 0.0))
        _checks.require(least >= 0.0, "std", "be at least 0", least)
        self._put(bits=bits, seed=_checks.whole("seed", self.seed, 0), mean=mean, std=std)
        self._put(warm_up=_checks.whole("warm_up", self.warm_up, 1), **self._done.fields())

    @cached_property
    def _done(self) -> Axes:
        return Axes("action_", self.action_tiles, self.action_low, self.action_high)

    def _fold(self, found: list[AnyArray], acted: AnyArray, out: AnyArray) -> None:
        sums = np.zeros((len(out), self.bits), np.float32)
        wide = [part for part in found if not _is_label(part)]
        scaling, planes = self._tables(sum(part.shape[1] for part in wide))
        first = 0
        for part in wide:
            hashing.project(part, first, scaling, planes, sums)
            first += part.shape[1]
        hashing.fold_signs(sums, out)
        for part in found:
            if _is_label(part):
                fold_exactly(part, out)
        self._done.fold([acted], out)

    def _tables(self, n: int) -> tuple[Floats, AnyArray]:
        """(mean, 1/std) of n dimensions [n, 2], and the planes [n, bits]; computed once."""
        tables: tuple[Floats, AnyArray] | None = self.__dict__.get("_made")
        if tables is None or len(tables[0]) != n:
            _checks.require(self.mean is not None, "key", "be ready", "no mean and std", HINT)
            mean, std = (np.atleast_1d(np.asarray(x, np.float64)) for x in (self.mean, self.std))
            made_for = not isinstance(self.mean, tuple) or len(mean) == n
            _checks.require(made_for, "observation", f"have {len(mean)} numbers per row, as the key was made for", n)
            scale = np.divide(1.0, std, out=np.zeros(len(std)), where=std > 0.0)
            tables = np.resize(np.column_stack([mean, scale]), (n, 2)), _planes(self.seed, n, self.bits)
            self.__dict__["_made"] = tables
        return tables

    @property
    def ready(self) -> bool:
        """Whether the mean and std of the data are known, and the bounds of actions."""
        return self.mean is not None and self._done.ready

    def prepared(self, observation_space: Any, action_space: Any) -> SimHashKey:
        """The key with the bounds of the action space. The mean is always learned: the centre of a space of pictures is no use."""
        return self.changed(**self._done.prepared(action_space).fields())

    def learn(self, observation: Any, action: Any) -> SimHashKey:
        """The key with the mean and standard deviation of the first data, where none are given."""
        found, acted = pairs(observation, action, least=1)
        actions = self._done.learned([acted]).fields()
        if self.mean is not None:
            return self.changed(**actions)
        wide = [part for part in found if not _is_label(part)]
        data = np.concatenate([part.astype(np.float64) for part in wide], axis=1) if wide else np.zeros((1, 0))
        data = np.nan_to_num(data, nan=0.0, posinf=0.0, neginf=0.0)
        std = data.std(0)
        rms = float(np.sqrt(np.mean(std**2))) if std.size else 0.0
        std = np.maximum(std, LEAST_SPREAD * rms) if rms else np.ones_like(std)  # constant so far, but may change
        return self.changed(mean=tuple(data.mean(0).tolist()), std=tuple(std.tolist()), **actions)

    def finer(self) -> SimHashKey | None:
        """Twice as many planes, up to 64; actions in twice as many tiles."""
        bits = min(MOST_BITS, 2 * self.bits)
        return None if bits == self.bits else self.changed(bits=bits, **self._done.finer().fields())


def _is_label(part: AnyArray) -> bool:
    """Whether a part of an observation is one whole number, that is, a label rather than a quantity."""
    return part.shape[1] == 1 and is_whole(part)


def _planes(seed: int, n: int, bits: int) -> AnyArray:
    """Normal vectors of the planes, int8 [n, bits], from a generator that does not depend on numpy's version.

    For the same seed, fewer planes are the first of more: a key with more bits is strictly finer.
    """
    words = np.empty(n * MOST_BITS, np.uint64)
    hashing.stream(seed, words)
    normal = ndtri(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
    planes = np.clip(np.rint(normal * STEPS), -127, 127).astype(np.int8).reshape(n, MOST_BITS)
    return np.ascontiguousarray(planes[:, :bits])


ENOUGH = 0.5  #: share of the first transitions that must share their pair
ENOUGH_EXACTLY = 0.25  #: the same for the exact key
MOST_DIMENSIONS = 16  #: for tiles; constant columns do not count
TILES = (16, 12, 8, 6, 4, 3, 2)
BITS = (64, 48, 32, 24, 16)


@dataclass(frozen=True, repr=False)
class AutoKey(PairKey):
    """Chooses a key by the first transitions: exact if pairs repeat, else tiles, else SimHash.

    Parameters
    ----------
    warm_up : int; number of transitions to choose by
    draft : TileKey; what is known in advance: bounds, and the tiles of actions
    chosen : PairKey or None; the chosen key; None before the choice

    >>> import numpy as np, safereplay as sr
    >>> rng = np.random.default_rng(0)
    >>> sr.AutoKey().learn(np.eye(48)[rng.integers(48, size=1000)], rng.integers(4, size=1000)).chosen
    ExactKey()
    >>> sr.AutoKey().learn(rng.random((1000, 2)), rng.integers(4, size=1000)).chosen.tiles
    (16, 16)
    >>> sr.AutoKey().learn(rng.random((1000, 100)), rng.integers(4, size=1000)).chosen.bits
    16
    """

    warm_up: int = 1000
    draft: TileKey = TileKey()
    chosen: PairKey | None = None

    def __post_init__(self) -> None:
        self._put(warm_up=_checks.whole("warm_up", self.warm_up, 1))
        _checks.require(isinstance(self.draft, TileKey), "draft", "be a TileKey", self.draft)

    def __call__(self, observation: Any, action: Any) -> AnyArray:
        """The words of n transitions, uint64 [n], by the chosen key."""
        if self.chosen is None:
            _checks.fail(
                "key", "be ready", "no choice yet", "call key = key.learn(observation, action) with the first data"
            )
        return self.chosen(observation, action)

    @property
    def ready(self) -> bool:
        """Whether a key was chosen."""
        return self.chosen is not None

    def prepared(self, observation_space: Any, action_space: Any) -> AutoKey:
        """The key with the spaces' bounds; ready at once if states and actions are Discrete."""
        if self.chosen is not None:
            return self
        draft = self.draft.prepared(observation_space, action_space)
        plain = isinstance(observation_space, spaces.Discrete) and isinstance(action_space, spaces.Discrete)
        return self.changed(draft=draft, chosen=ExactKey() if plain else None)

    def learn(self, observation: Any, action: Any) -> AutoKey:
        """The key after choosing by the first data: the finest for which enough of it repeats."""
        if self.ready:
            return self
        draft, (found, acted) = self.draft, pairs(observation, action, least=1)
        key: PairKey = ExactKey()
        if not is_whole(acted):
            key = draft.changed(tiles=0, low=None, high=None).learn(observation, action)
        if companions(key(observation, action)) >= ENOUGH_EXACTLY:
            return self.changed(chosen=key)
        moving = sum(int(np.any(part != part[:1], axis=0).sum()) for part in found)
        for n in TILES if moving <= MOST_DIMENSIONS else ():
            tiles = n if isinstance(draft.tiles, int) else tuple(n if old > 1 else old for old in draft.tiles)
            key = draft.changed(tiles=tiles).learn(observation, action)
            if companions(key(observation, action)) >= ENOUGH:
                return self.changed(chosen=key)
        actions = {name: getattr(draft, name) for name in ("action_tiles", "action_low", "action_high")}
        hashed = SimHashKey(max(BITS), **actions).learn(observation, action)
        for bits in BITS:
            key = hashed.changed(bits=bits)
            if companions(key(observation, action)) >= ENOUGH:
                break
        return self.changed(chosen=key)

    def finer(self) -> PairKey | None:
        """A finer key than the chosen one."""
        return None if self.chosen is None else self.chosen.finer()
