"""Replay by entropic risk, in one unit for all pairs: what large memories replay by."""

from dataclasses import dataclass
from typing import ClassVar

from .base import Scheme


@dataclass(frozen=True)
class EntropicReplay(Scheme):
    """Every pair whose outcomes vary, its low outcomes more often, by a slope that each replay draws anew.

        ŵ(x | s,a)  =  E_b[ q(x)·e^{−b·x/u} / Σ_{x'} q(x')·e^{−b·x'/u} ],          b uniform on (0, β)

    with q how often the outcome happens at the pair and u the **unit**, one for the whole memory:

        u  =  Σ d² / Σ |d|          over all transitions, d = x − x̄(s,a)

    For pairs of two outcomes u is half the distance between them, however rare the bad one is; for normal noise it is 1.25 standard
    deviations. Pairs without noise do not count, however many they are. So β has no unit.

    **What it gives.** The mean of ŵ is the entropic risk of the pair, −(u/β)·log Σ q·e^{−β·x/u}, since the derivative of log Σ q·e^{−b·x/u}
    is minus the mean under the slope b. A draw is from p̃ = (1−v)·q + v·ŵ, so a pair is valued (1−v)·mean + v·entropic risk. Both are
    monotone, so all four properties of a sound tilt hold: order, direction, units and rarity. A single slope β, as in
    :class:`~safereplay.ScoreReplay`, is not monotone: there a better prize can make a pair look worse.

    **When it fails.** The tilt sees x alone. Where x is the reward and the danger lies in the next state, the order of pairs is that of their
    rewards; tilt on the target then. One freak reward enlarges the unit, and the dial is weak until it is overwritten.

    It needs the unit of a memory of transitions, so it works in :class:`~safereplay.Shaper` and the adapters. On tables,
    :func:`~safereplay.shaped_limit` gives its exact limit, and :class:`~safereplay.ExponentialUtility` learns the same risk.

    >>> import safereplay as sr
    >>> roads = [(0, 0, 0.99, 1, 0.95, True, False), (0, 0, 0.01, 1, -9.0, True, True),
    ...          (0, 1, 0.88, 1, 1.00, True, False), (0, 1, 0.12, 1, -9.0, True, True)]
    >>> mdp = sr.TabularMDP.from_outcomes(2, 2, roads, start=0)      # crashes: 1 % of the first road, 12 % of the second
    >>> [sr.shaped_limit(mdp, scheme, v=0.5)[0].argmax().item() for scheme in (sr.ScoreReplay(), sr.EntropicReplay())]
    [1, 0]

    Ref: Howard & Matheson (1972); Osogami (2012).
    """

    POOLED: ClassVar[bool] = True

    beta: float = 2.0

    @staticmethod
    def pair_weight(var: float) -> float:
        """1 where outcomes vary."""
        return 1.0 if var > 0.0 else 0.0

    @staticmethod
    def log_tilt(r: float, mean: float, beta: float) -> float:
        """−β·(r − r̄), at the steepest slope, in units of u."""
        return -beta * (r - mean)
