"""The columns of rows cut into tiles: how many on each column, from where to where.

Columns get their bounds from whoever knows them best: the user, then a bounded space, then the first data, of which the
1 % and 99 % quantiles count. What lies outside is in the outermost tile. Columns of Discrete, MultiDiscrete and MultiBinary
spaces are not cut (0 tiles): each of their values is its own. A column with one tile is as good as not there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from .. import _checks
from .._types import AnyArray, Floats
from ..kernels import hashing
from .base import counts, numbers
from .exact import fold_exactly
from .rows import is_whole

QUANTILES = (0.01, 0.99)  #: of the first data, as bounds
HINT = (
    "key = key.prepared(observation_space, action_space), then key.learn(observation, action) if it is still not ready"
)
FAR = 1e10  #: a space's bound as large as this is none


class Column(NamedTuple):
    """What a space says of one number: whether its values are all it can be, and between what it lies."""

    whole: bool
    low: float
    high: float


@dataclass(frozen=True)
class Axes:
    """Tiles of the columns of an array: one value for all columns or one a column; infinite bounds are not known yet."""

    name: str  #: before the names of the fields: '' or 'action_'
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
        _checks.require(
            len(set(sizes.values())) < 2, " and ".join(sizes), "have one number a column", [*sizes.values()]
        )
        low, high = self._row("low", -np.inf), self._row("high", np.inf)
        wrong = np.flatnonzero(~(low <= high))
        if wrong.size:
            _checks.fail(f"{self.name}low", "be at most high", float(low[wrong[0]]), f"in column {wrong[0]}")

    def fields(self) -> dict[str, Any]:
        """The three values, by the names that a key has for them."""
        return {f"{self.name}{name}": getattr(self, name) for name in ("tiles", "low", "high")}

    @property
    def _what(self) -> str:
        return self.name.rstrip("_") or "observation"

    @cached_property
    def _columns(self) -> int:
        """How many columns there are; 0 if nobody says."""
        return max(len(v) if isinstance(v, tuple) else 0 for v in (self.tiles, self.low, self.high))

    @cached_property
    def ready(self) -> bool:
        """Whether each column that is cut has its bounds."""
        cut = self._row("tiles", 0) > 1
        return not (cut & ~_both_known(self._row("low", -np.inf), self._row("high", np.inf))).any()

    def _row(self, name: str, unknown: float) -> Floats:
        """A field as an array: of one number if it is the same everywhere, and nobody says how many columns there are."""
        value = getattr(self, name)
        values = np.atleast_1d(np.asarray(unknown if value is None else value, np.float64))
        return np.repeat(values, max(1, self._columns)) if len(values) == 1 else values

    def _spread(self, n: int) -> tuple[Floats, Floats, Floats]:
        """tiles, low and high of n columns."""
        for name, value in self.fields().items():
            if isinstance(value, tuple):
                _checks.require(len(value) == n, name, f"have {n} numbers, one a column", len(value))
        rows = (self._row(*field) for field in (("tiles", 0), ("low", -np.inf), ("high", np.inf)))
        tiles, low, high = (np.resize(row, n) for row in rows)
        return tiles, low, high

    def prepared(self, space: Any) -> Axes:
        """With the bounds of a space, where it has some and the user gave none."""
        if space is None:
            return self
        known = space_columns(f"{self._what} space", space)
        tiles, low, high = self._spread(len(known))
        whole = np.array([column.whole for column in known]) & (not isinstance(self.tiles, tuple))
        tiles[whole] = 0
        low = np.where(np.isfinite(low), low, [column.low for column in known])
        high = np.where(np.isfinite(high), high, [column.high for column in known])
        return self._with(tiles, low, high)

    def learned(self, found: list[AnyArray]) -> Axes:
        """With bounds from data for what is still open. Whole numbers are left whole: actions, and parts that are one number."""
        if self.ready:
            return self
        tiles, low, high = self._spread(sum(part.shape[1] for part in found))
        column = 0
        for part in found:
            whole = is_whole(part) and (bool(self.name) or part.shape[1] == 1) and not isinstance(self.tiles, tuple)
            for values in part.T:
                if whole and not _both_known(low[column], high[column]):
                    tiles[column] = 0
                if tiles[column] > 1:
                    least, most = data_bounds(values, int(tiles[column]))
                    low[column] = low[column] if np.isfinite(low[column]) else min(least, high[column])
                    high[column] = high[column] if np.isfinite(high[column]) else max(most, low[column])
                column += 1
        return self._with(tiles, low, high)

    def _with(self, tiles: Floats, low: Floats, high: Floats) -> Axes:
        cut = tiles > 1  # the others need no bounds
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
        """(low, tiles a unit, tiles) of each column [d, 3], as kernels read it; one row if it is the same everywhere."""
        tiles, low, high = self._row("tiles", 0), self._row("low", -np.inf), self._row("high", np.inf)
        if not self.ready:
            _checks.fail("key", "be ready", f"no {self.name}low and {self.name}high", HINT)
        cut = (tiles > 1) & (high > low)
        width = np.where(cut, high - low, 1.0)
        return np.column_stack([np.where(cut, low, 0.0), np.where(cut, tiles / width, 0.0), tiles])

    def fold(self, found: list[AnyArray], out: AnyArray) -> None:
        """Absorb the tiles of rows into words."""
        table = self.table
        if len(table) == 1 and not table[0, 2]:  # nothing is cut
            for part in found:
                fold_exactly(part, out)
            return
        given = 0
        for part in found:
            given += part.shape[1]
        if self._columns and given != self._columns:
            _checks.fail(self._what, f"have {self._columns} numbers a row, as the key was made for", given)
        first = 0
        for part in found:
            hashing.fold_tiles(part, table, first, out)
            first += part.shape[1]


def _both_known(low: Any, high: Any) -> Any:
    return np.isfinite(low) & np.isfinite(high)


def data_bounds(values: AnyArray, tiles: int) -> tuple[float, float]:
    """Between what the bulk of the values lies; all of them if they are few different ones, such as a flag that is rarely 1."""
    finite = values[np.isfinite(values)].astype(np.float64)
    if not finite.size:
        return 0.0, 0.0
    distinct = np.unique(finite)
    low, high = distinct[[0, -1]] if len(distinct) <= tiles else np.quantile(finite, QUANTILES)
    return float(low), float(high)


def space_columns(name: str, space: Any) -> list[Column]:
    """What a space says of each number of its elements' rows; the parts of a Dict in the order of their names."""
    if isinstance(space, spaces.Dict):
        return [c for key in sorted(space.spaces) for c in space_columns(f"{name}[{key!r}]", space.spaces[key])]
    if isinstance(space, spaces.Box):
        low, high = (np.asarray(end, np.float64).ravel() for end in (space.low, space.high))
        ends = zip(
            np.where(low > -FAR, low, -np.inf).tolist(), np.where(high < FAR, high, np.inf).tolist(), strict=True
        )
        return [Column(False, *pair) for pair in ends]
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        radix = {spaces.Discrete: "n", spaces.MultiDiscrete: "nvec"}.get(type(space))
        n = np.resize(2 if radix is None else getattr(space, radix), prod(space.shape or ()))
        start = np.resize(getattr(space, "start", 0), n.size)
        return [Column(True, float(a), float(a + b - 1)) for a, b in zip(start, n, strict=True)]
    return _checks.fail(name, "be a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of those", space)
