"""The SimHash key: a pair is the same if it lies on the same sides of many random planes.

Charikar (2002): the chance that a plane parts two points is the angle between them over π, seen from the centre of the data.
So near-by pictures get the same word, however many numbers they have. In few dimensions angles say little (in one dimension
there are two of them), and tiles are far better there; below 16 bits different states fall together in any dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri

from .. import _checks
from .._types import AnyArray, Floats
from ..kernels import hashing
from .axes import HINT, Axes
from .base import PairKey, numbers
from .exact import fold_exactly
from .rows import columns, is_whole, pairs
from .tiles import ACTION_TILES

MOST_BITS = 64  #: of a word
LEAST_SPREAD = (
    0.1  #: a dimension's standard deviation counts as at least this share of all dimensions' root mean square
)
STEPS = 32.0  #: planes are kept as whole numbers, this many to a standard deviation: a quarter of the memory


@dataclass(frozen=True, repr=False)
class SimHashKey(PairKey):
    """A pair is the same if its observation lies on the same sides of ``bits`` random planes, and its action is the same.

    The planes go through the ``mean`` of the data, whose dimensions are scaled by their ``std``; both are learned from the
    first ``warm_up`` transitions unless given. Use 16 bits or more, and more than about 16 dimensions. Parts of an observation that
    are one whole number count exactly; actions as in :class:`TileKey`.

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
        _checks.require(alike, "mean and std", "be given together, as many of one as of the other", (mean, std))
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
        """(mean, 1/std) of n dimensions [n, 2], and the planes [n, bits]; made once."""
        tables: tuple[Floats, AnyArray] | None = self.__dict__.get("_made")
        if tables is None or len(tables[0]) != n:
            _checks.require(self.mean is not None, "key", "be ready", "no mean and std", HINT)
            mean, std = (np.atleast_1d(np.asarray(x, np.float64)) for x in (self.mean, self.std))
            made_for = not isinstance(self.mean, tuple) or len(mean) == n
            _checks.require(made_for, "observation", f"have {len(mean)} numbers a row, as the key was made for", n)
            scale = np.divide(1.0, std, out=np.zeros(len(std)), where=std > 0.0)
            tables = np.resize(np.column_stack([mean, scale]), (n, 2)), _planes(self.seed, n, self.bits)
            self.__dict__["_made"] = tables
        return tables

    @property
    def ready(self) -> bool:
        """Whether the centre and the scale of the data are known, and the bounds of actions."""
        return self.mean is not None and self._done.ready

    def prepared(self, observation_space: Any, action_space: Any) -> SimHashKey:
        """With the bounds of the action space. The centre of a space of pictures is no centre of its pictures: it is learned."""
        return self.changed(**self._done.prepared(action_space).fields())

    def learn(self, observation: Any, action: Any) -> SimHashKey:
        """With the mean and standard deviation of the first data, where none are given."""
        found, acted = pairs(observation, action, least=1)
        actions = self._done.learned([acted]).fields()
        if self.mean is not None:
            return self.changed(**actions)
        wide = [part for part in found if not _is_label(part)]
        data = columns(wide) if wide else np.zeros((1, 0))
        data = np.nan_to_num(data, nan=0.0, posinf=0.0, neginf=0.0)
        std = data.std(0)
        rms = float(np.sqrt(np.mean(std**2))) if std.size else 0.0
        std = np.maximum(std, LEAST_SPREAD * rms) if rms else np.ones_like(std)  # what never moved so far may yet
        return self.changed(mean=tuple(data.mean(0).tolist()), std=tuple(std.tolist()), **actions)

    def finer(self) -> SimHashKey | None:
        """Twice as many planes, up to 64; actions in twice as many tiles."""
        bits = min(MOST_BITS, 2 * self.bits)
        return None if bits == self.bits else self.changed(bits=bits, **self._done.finer().fields())


def _is_label(part: AnyArray) -> bool:
    """Whether a part of an observation is one whole number: which of some things, and not how much."""
    return part.shape[1] == 1 and is_whole(part)


def _planes(seed: int, n: int, bits: int) -> AnyArray:
    """Normal directions of the planes, int8 [n, bits]: from a generator whose words no version of numpy changes.

    Of the same seed, fewer planes are the first of more: more bits tell strictly more apart.
    """
    words = np.empty(n * MOST_BITS, np.uint64)
    hashing.stream(seed, words)
    normal = ndtri(((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53)
    planes = np.clip(np.rint(normal * STEPS), -127, 127).astype(np.int8).reshape(n, MOST_BITS)
    return np.ascontiguousarray(planes[:, :bits])
