"""Intervals of means over groups of runs, by ``scipy.stats.bootstrap``, and how numbers are written in reports.

Seeds are resampled, and settings are fixed: the interval covers the variation over seeds. Let x_i be the sum of a number
over the runs of seed i, and n_i the number of these runs. A group's mean is Σx_i / Σn_i. Its 95 % interval is a bootstrap
over i: BCa, or percentiles where BCa is undefined.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from .._checks import Floats, Ints

RESAMPLES = 999
UNITS = 200  # more seeds than this are resampled in blocks
WORK = 20_000_000  # numbers drawn at a time, to limit memory


class Estimate(NamedTuple):
    """A mean with its interval; the ends are nan if there is too little data."""

    mean: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """Plain JSON types; numbers that are not finite become None."""
        return {name: x if isfinite(x) else None for name, x in self._asdict().items()}


def estimates(values: Floats, group: Ints, unit: Ints, count: int, seed: int = 0) -> list[Estimate]:
    """The mean of the finite values of each group 0..count−1, and its interval over units (seeds).

    >>> found = estimates(np.array([0.0, 1.0, 2.0, 3.0, 7.0, 7.0]), np.array([0, 0, 0, 0, 1, 1]), np.arange(6), 2)
    >>> [f"{x.mean:.1f} in [{x.low:.1f}, {x.high:.1f}]" for x in found]
    ['1.5 in [0.5, 2.5]', '7.0 in [7.0, 7.0]']
    """
    use = np.isfinite(values)
    values, group, unit = values[use], group[use], unit[use]
    key, inverse = np.unique(group * (int(unit.max(initial=0)) + 1) + unit, return_inverse=True)
    owner = key // (int(unit.max(initial=0)) + 1)
    x, n = np.bincount(inverse, values, key.size), np.bincount(inverse, minlength=key.size).astype(float)
    total, runs = np.bincount(owner, x, count), np.bincount(owner, n, count)
    mean = np.divide(total, runs, out=np.full(count, np.nan), where=runs > 0)
    most = int(np.clip(WORK // (RESAMPLES * max(count, 1)) * 4, 40, UNITS))
    low, high = np.full(count, np.nan), np.full(count, np.nan)
    sizes = np.bincount(owner, minlength=count)
    starts = np.cumsum(sizes) - sizes
    for size in np.unique(sizes[sizes > 1]):
        chosen = np.flatnonzero(sizes == size)
        at = starts[chosen][:, None] + np.arange(size)
        low[chosen], high[chosen] = _intervals(*_blocks(x[at], n[at], most, seed), mean[chosen], seed)
    return [Estimate(*map(float, row)) for row in zip(mean, low, high, strict=True)]


def _blocks(x: Floats, n: Floats, most: int, seed: int) -> tuple[Floats, Floats]:
    """Sums over blocks of units if there are many: their mean has the same spread, and is cheaper to resample."""
    size = x.shape[1]
    if size <= most:
        return x, n
    first = np.linspace(0, size, most, endpoint=False).astype(int)
    mixed = np.random.default_rng(seed).permutation(size)  # neighbours may be correlated
    x, n = x[:, mixed], n[:, mixed]
    return np.add.reduceat(x, first, axis=1), np.add.reduceat(n, first, axis=1)


def _intervals(x: Floats, n: Floats, mean: Floats, seed: int) -> tuple[Floats, Floats]:
    """Ends of the intervals of Σx / Σn, for groups [G] with equal numbers of units [G, U]; the mean if all are equal."""
    low, high = mean.copy(), mean.copy()
    rate = x / n
    spread = np.ptp(rate, axis=1) > 1e-12 * np.abs(rate).max(axis=1)
    options: Any = {"paired": True, "vectorized": True, "axis": -1, "n_resamples": RESAMPLES}
    for method in ("BCa", "percentile"):
        left = np.flatnonzero(spread)
        step = max(1, WORK // (RESAMPLES * x.shape[1]))
        for some in (left[k : k + step] for k in range(0, left.size, step)):
            data, rng = (x[some], n[some]), np.random.default_rng(seed)
            options |= {"method": method, "batch": max(1, WORK // data[0].size), "rng": rng}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an undefined BCa interval is nan
                found = stats.bootstrap(data, lambda x, n, axis: x.sum(axis) / n.sum(axis), **options)
            low[some], high[some] = found.confidence_interval
        spread &= ~(np.isfinite(low) & np.isfinite(high))
    return low, high


def percent(x: float, digits: int = 0) -> str:
    """A share in percent.

    >>> percent(0.974), percent(0.0123, 1), percent(float("nan"))
    ('97 %', '1.2 %', '—')
    """
    return f"{100 * x:.{digits}f} %".replace("-", "−") if isfinite(x) else "—"


def number(x: float) -> str:
    """A return.

    >>> number(-3.854), number(208.4)
    ('−3.85', '208')
    """
    if not isfinite(x):
        return "—"
    return (f"{x:.2f}" if abs(x) < 10 else f"{x:.1f}" if abs(x) < 100 else f"{x:.0f}").replace("-", "−")


def within(found: Estimate, digits: int = 0) -> str:
    """A share with its interval.

    >>> within(Estimate(0.5, 0.4, 0.6))
    '50 % [40, 60]'
    """
    if not isfinite(found.low):
        return percent(found.mean, digits)
    ends = f"[{percent(found.low, digits)}, {percent(found.high, digits)}]".replace(" %", "")
    return f"{percent(found.mean, digits)} {ends}"


def points(found: Estimate, digits: int = 1) -> str:
    """A difference of two shares, in percentage points, with its interval.

    >>> points(Estimate(0.097, 0.006, 0.15))
    '9.7 points [0.6, 15.0]'
    """
    shown = [f"{round(100 * x, digits) + 0.0:.{digits}f}".replace("-", "−") for x in found]
    return f"{shown[0]} points" + (f" [{shown[1]}, {shown[2]}]" if isfinite(found.low) else "")


def listed(names: Sequence[str], most: int | None = None) -> str:
    """Names as a list in a sentence; beyond ``most`` they are counted.

    >>> listed(["a", "b", "c"]), listed(["a", "b", "c", "d"], 2)
    ('a, b and c', 'a, b and 2 more')
    """
    names = list(names)
    if most is not None and len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} more"]
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
