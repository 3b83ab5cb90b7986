"""Replay by standard score: the paper's scheme without a unit."""

from dataclasses import dataclass

from .. import _checks
from .base import Scheme


@dataclass(frozen=True)
class ScoreReplay(Scheme):
    """Every volatile pair alike, its rewards by standard score: a dial without a unit, for rewards of any size.

        W(s,a) = 1 where σ(s,a) > floor, else 0          tilt(r | s,a) ∝ e^{−β·(r − r̄(s,a)) / σ(s,a)}

    with r̄ and σ the pair's mean and standard deviation. At β = 1 a reward one standard deviation below its pair's mean is replayed
    e times as often as the mean. A pair without noise is left alone: one with σ = 0, or so small beside r̄ that it is the
    rounding of one reward. ``floor``, in units of reward, leaves alone more of them. This is what deep agents replay by
    (:class:`~safereplay.Shaper`).

    >>> import safereplay as sr
    >>> sr.ScoreReplay(beta=2.0)
    ScoreReplay(beta=2.0, floor=0.0)
    """

    beta: float = 1.0
    floor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.between("floor", self.floor, "[0, inf)")

    @staticmethod
    def pair_weight(mean: float, var: float, floor: float) -> float:
        """1 where the standard deviation is above the floor, and above rounding: 0.3 and 0.1 + 0.2 are one reward."""
        least = max(floor, 1e-14 * abs(mean))
        return 1.0 if var > least * least else 0.0

    @staticmethod
    def log_tilt(r: float, mean: float, var: float, beta: float) -> float:
        """−β·(r − r̄)/σ; 0 without noise."""
        return -beta * (r - mean) / var**0.5 if var > 0.0 else 0.0
