"""Insurance: a disaster that almost never comes, and that a sure premium keeps away.

Uninsured, a year costs 0, or ruin with probability p and the end. Insured, it costs the premium. With a premium above
p·|ruin| nobody who is neutral to risk insures, and over n years ruin comes with probability 1 − (1−p)ⁿ.

A learner meets ruin about once in 1/p visits of a pair. Before the first it has seen nothing that varies; just after
one, Q of the pair is too low, and a greedy learner insures until exploration has made up for it.
"""

from .. import _checks
from ..mdp import TabularMDP


def insurance(
    gamma: float = 0.95, *, years: int = 10, p: float = 0.005, ruin: float = -40.0, premium: float = 1.0
) -> TabularMDP:
    """Danger that is rare: ruin has probability 0.005 a year, and insurance costs five times what ruin does on average.

    Actions are 0 insure, 1 do not.

    >>> import safereplay as sr
    >>> from safereplay.worlds.insurance import insurance
    >>> mdp = insurance()
    >>> round(sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=0).p_unsafe, 4)      # 1 − 0.995¹⁰
    0.0489
    """
    years = _checks.whole("years", years, 1)
    p, ruin = _checks.between("p", p, "(0, 1)"), _checks.real("ruin", ruin)
    rows = []
    for year in range(years):
        last = year == years - 1
        rows += [
            (year, 0, 1.0, year + 1, -_checks.real("premium", premium), last, False),
            (year, 1, 1.0 - p, year + 1, 0.0, last, False),
            (year, 1, p, years, ruin, True, True),
        ]
    return TabularMDP.from_outcomes(years + 1, 2, rows, gamma, start=0, name="insurance")
