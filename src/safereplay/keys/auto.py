"""The key that looks at the first data and chooses.

1. Exact, if at least a quarter of the first transitions meet another one with exactly the same pair.
2. Else tiles, up to 16 dimensions: the most of 16, 12, 8, 6, 4, 3 or 2 a dimension with which half of them meet another.
3. Else SimHash, with the most of 64, 48, 32, 24 or 16 bits with which half of them meet another, and 16 if none does.

Half of the first thousand is a modest demand: a buffer of many thousands then has several transitions a pair. An exact key
is asked for less, since it never takes position for risk; and continuous states hardly ever come back exactly at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from .. import _checks
from .._types import AnyArray
from .base import PairKey
from .exact import ExactKey, companions
from .rows import is_whole, pairs
from .simhash import SimHashKey
from .tiles import TileKey

ENOUGH = 0.5  #: of the first transitions must meet another of their pair
ENOUGH_EXACTLY = 0.25  #: the same for the exact key
MOST_DIMENSIONS = 16  #: for tiles; columns that never change do not count
TILES = (16, 12, 8, 6, 4, 3, 2)
BITS = (64, 48, 32, 24, 16)


@dataclass(frozen=True, repr=False)
class AutoKey(PairKey):
    """Chooses a key by the first ``warm_up`` transitions: exact if pairs come back, else tiles, else SimHash.

    ``draft`` says what is known before: bounds, and how actions are cut. What was chosen is ``chosen``.

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
        """Whether it has chosen."""
        return self.chosen is not None

    def prepared(self, observation_space: Any, action_space: Any) -> AutoKey:
        """With the spaces' bounds. Where states and actions are Discrete, there is nothing to wait for."""
        if self.chosen is not None:
            return self
        draft = self.draft.prepared(observation_space, action_space)
        plain = isinstance(observation_space, spaces.Discrete) and isinstance(action_space, spaces.Discrete)
        return self.changed(draft=draft, chosen=ExactKey() if plain else None)

    def learn(self, observation: Any, action: Any) -> AutoKey:
        """With a key chosen by the first data."""
        if self.chosen is not None:
            return self
        return self.changed(chosen=_choice(self.draft, observation, action))

    def finer(self) -> PairKey | None:
        """What is finer than the chosen key."""
        return None if self.chosen is None else self.chosen.finer()


def _choice(draft: TileKey, observation: Any, action: Any) -> PairKey:
    """The finest key with which enough of the data repeats."""
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
    """The draft with so many tiles on each dimension that is cut."""
    if isinstance(draft.tiles, int):
        return draft.changed(tiles=tiles)
    return draft.changed(tiles=tuple(tiles if n > 1 else n for n in draft.tiles))


def _hashed(draft: TileKey, observation: Any, action: Any) -> SimHashKey:
    """The SimHash key with the most bits with which enough of the data repeats."""
    actions = {name: getattr(draft, name) for name in ("action_tiles", "action_low", "action_high")}
    learned = SimHashKey(max(BITS), **actions).learn(observation, action)
    for bits in BITS:
        key = learned.changed(bits=bits)
        if companions(key(observation, action)) >= ENOUGH:
            break
    return key
