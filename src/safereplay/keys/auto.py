"""Choosing a key: a diagnosis of whether one fits the data, and a key that chooses by itself.

A key that is too fine finds no repeated pairs; one that is too coarse adds variance.

**Too fine.** A transition can be replaced only by another one of its pair. If few pairs have another, there is little to choose.

**Too coarse.** Let x be the tilted quantity. Its variance within a pair should be chance. The part that a finer key explains
is due to position, which the agent could observe. With pair p cut into finer groups g, and sums of squares about their means,

    s²(p) = SS(p) / (n_p − 1),   f²(p) = Σ_g SS(g) / m_p,   m_p = Σ_g (n_g − 1),   invented = 1 − Σ m_p·f²(p) / Σ m_p·s²(p)

Both are unbiased for the same variance if the finer groups have no effect, in each pair, for any variances of the pairs;
so pure chance gives 0 on average. A pair without a finer group of two has no information (m_p = 0). A warning needs two standard
errors on top, so a single disaster does not cause one.

:class:`AutoKey` chooses by the first data:

1. Exact, if at least a quarter of the first transitions share their exact pair with another one.
2. Else tiles, up to 16 dimensions: the most of 16, 12, 8, 6, 4, 3 or 2 per dimension for which half of them share their pair.
3. Else SimHash, with the most of 64, 48, 32, 24 or 16 bits for which half of them share their pair, and 16 if none does.

Half of the first thousand is a low threshold: a buffer of many thousands then has several transitions per pair. The threshold for
an exact key is lower, since it never takes position for risk, and continuous states hardly ever repeat exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from .. import _checks
from .._types import AnyArray, Floats
from ..kernels import hashing
from .base import ExactKey, PairKey, companions, is_whole, pairs
from .spatial import SimHashKey, TileKey

LEAST = 100  #: number of transitions, and degrees of freedom of the finer key, below which there is no diagnosis
TOO_FINE = 0.2  #: share of transitions that share their pair with another, below which a key is too fine
TOO_COARSE = 1 / 3  #: share of the variance within pairs that a finer key explains, above which a key is too coarse


@dataclass(frozen=True)
class Diagnosis:
    """The result of :func:`diagnose`. ``warning`` is one line, or None.

    >>> import numpy as np, safereplay as sr
    >>> sr.diagnose(np.array([7, 7, 8]), np.array([0.0, 1.0, 0.0]))
    Diagnosis(n=3, pairs=2, repeated=0.6666666666666666, invented=None, error=0.0, invented_std=0.0)
    """

    n: int  #: number of transitions
    pairs: int  #: number of different pairs
    repeated: float  #: share of transitions that share their pair with another
    invented: float | None  #: share of the variance within pairs that the finer key explains; None if unknown
    error: float = 0.0  #: standard error of that share
    invented_std: float = 0.0  #: the explained part as a standard deviation, in the unit of x

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
    """How well pairs named by ``keys`` [n] fit the values ``x`` [n] that are tilted; NaN marks an unknown value.

    ``finer_keys`` [n] are the words of the same transitions by a finer key (``key.finer()``).

    >>> import numpy as np, safereplay as sr
    >>> place = np.random.default_rng(0).random((5000, 1))
    >>> key, stay = sr.TileKey(tiles=4, low=0.0, high=1.0, action_tiles=0), np.zeros(5000, int)
    >>> found = sr.diagnose(key(place, stay), -place[:, 0], key.finer()(place, stay))  # no chance at all in this reward
    >>> f"{found.repeated:.0%} {found.invented:.0%}"
    '100% 75%'
    """
    words, values = np.asarray(keys, np.uint64), np.asarray(x, np.float64)
    _checks.require(
        words.shape == values.shape and words.ndim == 1,
        "keys and x",
        "have the same length",
        (words.shape, values.shape),
    )
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


ENOUGH = 0.5  #: share of the first transitions that must share their pair
ENOUGH_EXACTLY = 0.25  #: the same for the exact key
MOST_DIMENSIONS = 16  #: for tiles; constant columns do not count
TILES = (16, 12, 8, 6, 4, 3, 2)
BITS = (64, 48, 32, 24, 16)


@dataclass(frozen=True, repr=False)
class AutoKey(PairKey):
    """Chooses a key by the first ``warm_up`` transitions: exact if pairs repeat, else tiles, else SimHash.

    ``draft`` has what is known in advance: bounds, and the tiles of actions. ``chosen`` is the chosen key.

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
        """The key after choosing by the first data."""
        if self.chosen is not None:
            return self
        return self.changed(chosen=_choice(self.draft, observation, action))

    def finer(self) -> PairKey | None:
        """A finer key than the chosen one."""
        return None if self.chosen is None else self.chosen.finer()


def _choice(draft: TileKey, observation: Any, action: Any) -> PairKey:
    """The finest key for which enough of the data repeats."""
    found, acted = pairs(observation, action, least=1)
    exact: PairKey = ExactKey()
    if not is_whole(acted):
        exact = draft.changed(tiles=0, low=None, high=None).learn(observation, action)
    if companions(exact(observation, action)) >= ENOUGH_EXACTLY:
        return exact
    moving = sum(int(np.any(part != part[:1], axis=0).sum()) for part in found)
    for tiles in TILES if moving <= MOST_DIMENSIONS else ():
        key = _cut(draft, tiles).learn(observation, action)
        if companions(key(observation, action)) >= ENOUGH:
            return key
    return _hashed(draft, observation, action)


def _cut(draft: TileKey, tiles: int) -> TileKey:
    """The draft with this many tiles on each dimension that is cut."""
    if isinstance(draft.tiles, int):
        return draft.changed(tiles=tiles)
    return draft.changed(tiles=tuple(tiles if n > 1 else n for n in draft.tiles))


def _hashed(draft: TileKey, observation: Any, action: Any) -> SimHashKey:
    """The SimHash key with the most bits for which enough of the data repeats."""
    actions = {name: getattr(draft, name) for name in ("action_tiles", "action_low", "action_high")}
    learned = SimHashKey(max(BITS), **actions).learn(observation, action)
    for bits in BITS:
        key = learned.changed(bits=bits)
        if companions(key(observation, action)) >= ENOUGH:
            break
    return key
