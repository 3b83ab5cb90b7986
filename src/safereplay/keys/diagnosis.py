"""Whether a key fits the data: too fine, and no pair repeats; too coarse, and it invents variance.

**Too fine.** Only a transition whose pair has another one can be replaced by something else. Few of those, little to choose.

**Too coarse.** Let x be what is tilted. Within a pair its variance should be chance; what a finer key explains of it is
position, which the agent could have known. With pair p cut into finer groups g, and sums of squares about their means,

    s²(p) = SS(p) / (n_p − 1),   f²(p) = Σ_g SS(g) / m_p,   m_p = Σ_g (n_g − 1),   invented = 1 − Σ m_p·f²(p) / Σ m_p·s²(p)

Both are unbiased for the same variance if the finer groups mean nothing, in each pair, however different the pairs' variances
are; so pure chance gives 0 on average. A pair with no finer group of two says nothing (m_p = 0). A warning needs two standard
errors on top: a single disaster explains nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _checks
from .._types import AnyArray, Floats
from ..kernels import hashing
from .exact import companions

LEAST = 100  #: transitions, and degrees of freedom of the finer key, below which nothing is said
TOO_FINE = 0.2  #: share of transitions with a companion, below which a key is too fine
TOO_COARSE = 1 / 3  #: share of the variance within pairs that a finer key explains, above which a key is too coarse


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`diagnose` found. ``warning`` is a line, or None.

    >>> import numpy as np, safereplay as sr
    >>> sr.diagnose(np.array([7, 7, 8]), np.array([0.0, 1.0, 0.0]))
    Diagnosis(n=3, pairs=2, repeated=0.6666666666666666, invented=None, error=0.0, invented_std=0.0)
    """

    n: int  #: transitions
    pairs: int  #: different pairs among them
    repeated: float  #: share of transitions whose pair another transition has too
    invented: float | None  #: share of the variance within pairs that the finer key explains; None if nobody can say
    error: float = 0.0  #: standard error of that share
    invented_std: float = 0.0  #: what is invented as a standard deviation, in the unit of x

    @property
    def warning(self) -> str | None:
        """What is wrong and what to do, in a line; None if nothing is, or there is too little data to say."""
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
    """How well pairs named by ``keys`` [n] fit the values ``x`` [n] that are tilted; NaN is a value not known yet.

    ``finer_keys`` [n] are the same transitions' words by a finer key (``key.finer()``).

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
        "be rows of one length",
        (words.shape, values.shape),
    )
    found: tuple[float | None, float, float] = (None, 0.0, 0.0)
    if finer_keys is not None:
        finer = np.asarray(finer_keys, np.uint64)
        _checks.require(finer.shape == words.shape, "finer_keys", "be as many as keys", finer.shape)
        known = np.isfinite(values)
        found = _invented(words[known], values[known], finer[known])
    return Diagnosis(len(words), len(np.unique(words)), companions(words), *found)


def _invented(words: AnyArray, values: Floats, finer: AnyArray) -> tuple[float | None, float, float]:
    """invented, its standard error with pairs as the sample, and √(Σ m·(s² − f²) / Σ m); or that nobody can say."""
    _, pair = np.unique(words, return_inverse=True)
    both = np.full(
        words.size, hashing.START
    )  # finer groups within a pair, also where the finer key is not nested in it
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
    """How many are in each group, and their sum of squares about its mean."""
    n = np.bincount(group).astype(np.float64)
    mean = np.bincount(group, weights=values) / np.maximum(n, 1.0)
    return n, np.asarray(np.bincount(group, weights=(values - mean[group]) ** 2), np.float64)
