"""The exact key: a pair is the same if every number of it is.

For worlds with few states: grids, one-hot rows, Discrete and MultiDiscrete spaces, small pictures.
"""

from dataclasses import dataclass

import numpy as np

from .._types import AnyArray
from ..kernels import hashing
from .base import PairKey
from .rows import is_whole


@dataclass(frozen=True, repr=False)
class ExactKey(PairKey):
    """A pair is the same if every number of its observation and of its action is. (−0.0 is 0.0; 1 is 1.0.)

    For states that come back exactly. Observations that do, with actions that do not: ``TileKey(tiles=0)``.

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
    """The share of transitions whose pair another one has too."""
    _, pair, n = np.unique(words, return_inverse=True, return_counts=True)
    return float(np.mean(n[pair] > 1)) if words.size else 0.0
