"""Replay by the downside alone: good surprises are not punished."""

from dataclasses import dataclass
from math import log, sqrt

from .base import Scheme


@dataclass(frozen=True)
class DownsideReplay(Scheme):
    """Pairs by how far their rewards fall below the mean; of their outcomes those below it more often, the deeper the more.

        W(s,a) ∝ σ₋²,    σ₋² = E[min(r − r̄, 0)²]          ŵ(s',r | s,a) ∝ q̂(s',r | s,a) · e^{−β·min(r − r̄, 0)/σ₋}

    with r̄ the pair's mean and σ₋² the part of its variance that lies below it (Markowitz 1959, semivariance). Variance
    counts a rare prize as it counts a rare disaster. Depth in units of σ₋ tells them apart: a loss of probability p lies
    1/√p below the mean, so that a rare disaster is tilted to hard, and the usual small price of a rare prize hardly. β has no
    unit, and 0 is neutral.

    **Limit.** w^∞ exists: the factors are continuous in mean, downside and counts. The fixed point of H with it.
    **Assumption 1.** Point 1 fails where a pair varies more but falls less: that is the purpose. Point 2 is not
    promised: how often a reward happens counts, and rewards above the mean are not told apart (on the cliff it holds).

    **Breaks** order and **Breaks** rarity: depth is measured in the pair's own σ₋, which is small where a loss is rare. With β = 1 and v = 0.99 a
    loss of probability 0.01 has p̃ = 0.91, one of probability 0.1 only 0.72.

    **When it fails.** Where the danger is not in the immediate reward, as the paper's own scheme.

    >>> import safereplay as sr
    >>> rows = [(0, 0, 1.0, 1, 1.0, True, False), (0, 1, 0.9, 1, -1.0, True, False), (0, 1, 0.1, 1, 30.0, True, False)]
    >>> prize = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)     # a sure 1, or a ticket at 1 that wins one time in ten
    >>> [int(sr.fixed_point(prize, scheme, v=0.5)[0].argmax()) for scheme in (sr.VarianceReplay(), sr.DownsideReplay())]
    [0, 1]
    """

    beta: float = 1.0

    @staticmethod
    def pair_weight(down: float) -> float:
        """E[min(r − r̄, 0)²]."""
        return down

    @staticmethod
    def log_tilt(r: float, mean: float, down: float, count: float, beta: float) -> float:
        """log n − β·min(r − r̄, 0)/σ₋."""
        return log(count) - (beta * min(r - mean, 0.0) / sqrt(down) if down > 0.0 else 0.0)
