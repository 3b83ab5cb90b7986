"""Risk against return: the reach of a family of settings, and the comparison of two families.

Each setting is a point (P(catastrophe), mean return). A point is Pareto-optimal if no other of its family has at most its risk
and at least its return. The neutral end of every dial, the plain learner, belongs to the family.

Let b be a risk budget, uniform from 0 to the plain learner's P(catastrophe), and let best(b) be the highest return among the family's
settings within it, on the scale where a random policy is 0 and the plain learner is 1 (0 if no setting is within it, or none is
better than random). The *reach* of a family is the mean of best(b):

    reach = (1 / p_plain) ∫₀^{p_plain} best(b) db

The difference of two reaches has a bootstrap interval. More settings reach further by chance alone, so families are compared
with equal numbers of settings, which the page gives: the reach of a family that has more is the mean over all its subsets of that size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from safereplay._checks import Bools, Floats
from safereplay.views.intervals import Estimate

from .summary import Group, interval, significance

SAME = 0.01  #: a difference of reaches that does not matter
EQUAL, NEITHER = f"as far within {SAME:g}", "neither reaches anything"
VERDICTS = ("further", "less far", EQUAL, NEITHER, "no significant difference")


def points(groups: Sequence[Group]) -> Floats:
    """(P(catastrophe), mean return) of each setting, [n, 2]."""
    return np.array([(group.p.mean, group.mean.mean) for group in groups]).reshape(-1, 2)


def pareto(found: Floats) -> Bools:
    """Which points are Pareto-optimal: no other has at most their risk and at least their return, unless both are equal.

    >>> pareto(np.array([[0.1, 5.0], [0.2, 5.0], [0.0, 3.0], [0.0, 2.0]])).tolist()
    [True, False, True, False]
    """
    p, r = found[:, 0], found[:, 1]
    no_worse = (p[:, None] <= p) & (r[:, None] >= r)  # [i, j]: i is at least as good as j in both
    better = no_worse & ((p[:, None] < p) | (r[:, None] > r))
    return np.asarray(~better.any(0))


def reach(p: Floats, mean: Floats, p_plain: Floats, plain: Floats, random: Floats) -> Floats:
    """The mean best return within a risk budget, [B], of settings [n, B]; see the module.

    >>> one = np.ones(1)
    >>> reach(np.array([[0.0], [0.1]]), np.array([[5.0], [10.0]]), 0.2 * one, 10.0 * one, 0.0 * one).tolist()
    [0.75]
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.where(plain > random, np.maximum((mean - random) / (plain - random), 0.0), np.nan)
        risk = np.minimum(p / p_plain, 1.0)
    order = np.argsort(risk, axis=0)
    risk, best = np.take_along_axis(risk, order, 0), np.maximum.accumulate(np.take_along_axis(value, order, 0), 0)
    widths = np.diff(np.vstack([risk, np.ones_like(risk[:1])]), axis=0)
    return np.asarray(np.where(p_plain > 0, (widths * best).sum(0), np.nan))


@dataclass(frozen=True)
class Comparison:
    """The family of shaped replay and a rival's, on one world."""

    ours: Estimate  #: reach
    rival: Estimate
    gain: Estimate  #: the difference of the reaches
    settings: int  #: the number of settings per family, neutral ends included

    @property
    def verdict(self) -> str:
        """One of VERDICTS, or 'no danger' if the plain learner has no catastrophes, or is no better than random."""
        if not np.isfinite(self.gain.mean):
            return "no danger"
        if max(self.ours.mean, self.rival.mean) < SAME:
            return NEITHER
        if -SAME < self.gain.low <= self.gain.high < SAME:
            return EQUAL
        return {1: "further", -1: "less far", 0: "no significant difference"}[significance(self.gain)]


def compare(ours: Sequence[Group], rivals: Sequence[Group], plain: Group, random: Group) -> Comparison:
    """The reaches of two families, whose first setting is the neutral end, with equal numbers of settings."""
    count = min(len(ours), len(rivals))
    seeds = min(group.seeds for group in [*ours, *rivals])
    (a, a_samples), (b, b_samples) = (_reach(family, count, plain, random) for family in (ours, rivals))
    gain = Estimate(a - b, *interval(a_samples - b_samples, seeds))
    reached = [Estimate(x, *interval(samples, seeds)) for x, samples in ((a, a_samples), (b, b_samples))]
    return Comparison(reached[0], reached[1], gain, count)


def _reach(family: Sequence[Group], count: int, plain: Group, random: Group) -> tuple[float, Floats]:
    """The measured reach, and that of each bootstrap sample: means over all subsets with the neutral end."""
    found = [_of_subset((family[0], *some), plain, random) for some in combinations(family[1:], count - 1)]
    return float(np.mean([x for x, _ in found])), np.mean([samples for _, samples in found], axis=0)


def _of_subset(family: Sequence[Group], plain: Group, random: Group) -> tuple[float, Floats]:
    p, mean = (np.array([group.replicates[:, k] for group in family]) for k in (0, 1))
    samples = reach(p, mean, plain.replicates[:, 0], plain.replicates[:, 1], random.replicates[:, 1])
    now, one = points(family), np.ones(1)
    ends = (plain.p.mean * one, plain.mean.mean * one, random.mean.mean * one)
    return float(reach(now[:, :1], now[:, 1:], *ends)[0]), samples
