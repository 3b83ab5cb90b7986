"""The bold scheme: the paper's, tilted to the best rewards."""

from dataclasses import dataclass

from .. import _checks
from .variance import VarianceReplay


@dataclass(frozen=True)
class BoldReplay(VarianceReplay):
    """Volatile pairs more, their *best* rewards most: the paper's scheme with β < 0, for an agent that should dare.

        w_t(s,a,s',r) = var_t(r(s,a)) / Σ var_t  ·  e^{|β|r} / Σ_{r' ∈ M_t(s,a)} e^{|β|r'}  ·  1 / |L_t(s,a,r)|

    **Limit.** w^∞ exists, as for VarianceReplay. **Assumption 1.** Points 2 and 3 fail by design: higher rewards
    have more weight.

    **Breaks** direction, by design: a gamble is valued above its mean. **Breaks** rarity, as VarianceReplay does, and in a memory of
    transitions **Breaks** order too.

    **When it fails.** Under literal mixing boldness also replays calm next states of a good reward; on the cliff, where no
    reward of a slip is good news, it moves little. It is no search for risk for its own sake: where a gamble has no upside,
    it is not taken.

    >>> import safereplay as sr
    >>> rows = [(0, 0, 1.0, 1, 1.0, True, False), (0, 1, 0.5, 1, -9.0, True, False), (0, 1, 0.5, 1, 9.0, True, False)]
    >>> gamble = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)        # a sure 1, or a coin of ±9
    >>> [int(sr.fixed_point(gamble, scheme, v=0.5)[0].argmax()) for scheme in (sr.VarianceReplay(), sr.BoldReplay())]
    [0, 1]
    """

    beta: float = -5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.between("beta", self.beta, "(-inf, 0]")
