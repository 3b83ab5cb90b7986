"""The paper's scheme, and with β < 0 its bold twin: replay by the variance of the reward."""

from dataclasses import dataclass
from typing import ClassVar

from .base import Scheme


@dataclass(frozen=True)
class VarianceReplay(Scheme):
    """The paper's scheme: volatile pairs more, their worst rewards most.

        w_t(s,a,s',r) = var_t(r(s,a)) / Σ var_t  ·  e^{−βr} / Σ_{r' ∈ M_t(s,a)} e^{−βr'}  ·  1 / |L_t(s,a,r)|

    β > 0 is cautious, β = 0 replays the rewards of a pair alike, β < 0 is bold.

    **Breaks** order: with β = 5 and v = 0.9 a coin for 0 or 0.25 is valued 0.080, one for 0 or 0.5 only 0.064, since e^{−βr} at one fixed β
    turns from the better prize faster than the prize grows. **Breaks** rarity: each distinct reward counts once, so a loss of probability
    0.001 is replayed as often as one of 0.5.

    >>> import safereplay as sr
    >>> sr.VarianceReplay(beta=5.0)
    VarianceReplay(beta=5.0)

    Ref: Szlak & Shamir (2021), Lemma 4.
    """

    UNIT: ClassVar[str] = "1/reward"

    beta: float = 5.0

    @staticmethod
    def pair_weight(var: float) -> float:
        """var_t(r(s,a))."""
        return var

    @staticmethod
    def log_tilt(r: float, beta: float) -> float:
        """−βr."""
        return -beta * r
