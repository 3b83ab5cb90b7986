"""The tile key: space is cut into boxes, and a pair is the same if it lies in the same box.

For few dimensions: points, carts, landers. The boxes are per column, so the number of pairs grows with the power of the
columns; but only boxes that are visited count, and what is visited is often thin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .. import _checks
from .._types import AnyArray
from .axes import Axes
from .base import PairKey
from .rows import pairs

ACTION_TILES = 5  #: on each dimension of a Box of actions, unless told


@dataclass(frozen=True, repr=False)
class TileKey(PairKey):
    """A pair is the same if each number of it lies in the same tile: ``tiles`` between ``low`` and ``high``.

    Each of the three is one number for all dimensions of the flat observation, or one a dimension; 1 tile leaves a dimension out,
    0 tiles take its values exactly. Bounds that are None come from the space where it has some, else from the first
    ``warm_up`` transitions (:meth:`learn`). Whole-number actions are exact, others have ``action_tiles``.

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
        """With the bounds of the spaces, where they have some and none are given."""
        seen, done = self._seen.prepared(observation_space), self._done.prepared(action_space)
        return self.changed(**seen.fields(), **done.fields())

    def learn(self, observation: Any, action: Any) -> TileKey:
        """With bounds between which the first data lies, where none are known."""
        found, acted = pairs(observation, action, least=1)
        return self.changed(**self._seen.learned(found).fields(), **self._done.learned([acted]).fields())

    def finer(self) -> TileKey:
        """Twice as many tiles on each dimension."""
        return self.changed(**self._seen.finer().fields(), **self._done.finer().fields())
