"""A market: every day put the money into cash, a bond or a stock. Time goes on whatever is done.

The days do not depend on each other, so the best policy, the risk of any and the limit of every learner can be worked
out by hand, a day at a time: a policy that holds the stock on k days and the bond on j loses at least once with
probability 1 − (1 − q_stock)^k·(1 − q_bond)^j.
"""

from collections.abc import Sequence

from .. import _checks
from ..maps import draws_of
from ..mdp import TabularMDP

BOND = ((0.95, 2.0), (0.05, -3.0))
STOCK = ((0.8, 5.0), (0.2, -8.0))


def market(
    gamma: float = 0.95,
    *,
    days: int = 8,
    cash: float = 1.0,
    bond: Sequence[tuple[float, float]] = BOND,
    stock: Sequence[tuple[float, float]] = STOCK,
) -> TabularMDP:
    """Danger from rewards: where a day leads is certain, what it pays is not, and what pays best loses most often.

    ``bond`` and ``stock`` list (probability, reward). Actions are 0 cash, 1 bond, 2 stock. A loss is unsafe.

    >>> import safereplay as sr
    >>> from safereplay.worlds.market import market
    >>> mdp = market()
    >>> [round(sr.evaluate(mdp, [a] * 9).p_unsafe, 3) for a in range(3)]       # 1 − 0.95⁸ and 1 − 0.8⁸
    [0.0, 0.337, 0.832]
    """
    days = _checks.whole("days", days, 1)
    funds = (((1.0, _checks.real("cash", cash)),), draws_of("bond", bond), draws_of("stock", stock))
    rows = [
        (day, a, p, day + 1, r, day == days - 1, r < 0)
        for day in range(days)
        for a, draws in enumerate(funds)
        for p, r in draws
    ]
    return TabularMDP.from_outcomes(days + 1, 3, rows, gamma, start=0, name="market")
