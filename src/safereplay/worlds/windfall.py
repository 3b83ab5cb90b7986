"""Tickets and loans, in turn: good surprises and bad ones, and the good ones vary more.

    ticket   −3 four times in five, +22 once       mean 2, variance 100, of which below the mean 20 = 0.8·5²
    loan     +4 nine times in ten, −11 once        mean 2.5, variance 20.25, of which below the mean 18.2 = 0.1·13.5²

Either may be passed for 0. Only the loan's −11 is unsafe, so the right caution passes the loans and buys the tickets.

With all of the tilt on the worst reward l, a gamble of mean m looks worse than 0 once ρ/(1−ρ) > m/|l|, which is

    v/(1−v)  >  m / (|l|·W),      W = the pair's share of all weight.

Over n rounds of both, by variance: W = 100/120.25n and 20.25/120.25n, so tickets go at v/(1−v) = 0.80·n and loans only
at 1.35·n. No v passes the loans and buys the tickets, and in between, as at n = 1 and v = 0.5, the scheme does the very
opposite. By the variance below the mean: W = 20/38.2n and 18.2/38.2n, so loans go at 0.48·n and tickets at 1.27·n:
:class:`~safereplay.DownsideReplay` is right from v = 0.32 to 0.56, and for β = 1 from 0.43 to 0.77.

A tilt that is not all on the worst helps the paper's scheme too: −3 is what a ticket pays four times in five anyway.
For β ≤ 0.1 it is right for some v above 0.64, which at β = 0.1 is a band of 0.04.
"""

from .. import _checks
from ..mdp import TabularMDP

TICKET = ((0.8, -3.0), (0.2, 22.0))
LOAN = ((0.9, 4.0), (0.1, -11.0))


def windfall(gamma: float = 0.95, *, rounds: int = 1) -> TabularMDP:
    """Caution is wrong where it fears good news: what varies most is a ticket that wins, what harms is a loan.

    Actions are 0 pass, 1 play; even states offer tickets, odd ones loans.

    >>> import safereplay as sr
    >>> from safereplay.worlds.windfall import windfall
    >>> Q = sr.fixed_point(windfall(), sr.VarianceReplay(beta=5.0), v=0.5)
    >>> Q.argmax(1)[:2]                                                         # no ticket, but the loan
    array([0, 1])
    """
    n = 2 * _checks.whole("rounds", rounds, 1)
    rows = []
    for s in range(n):
        rows.append((s, 0, 1.0, s + 1, 0.0, s == n - 1, False))
        rows += [(s, 1, p, s + 1, r, s == n - 1, s % 2 == 1 and r < 0) for p, r in (TICKET, LOAN)[s % 2]]
    return TabularMDP.from_outcomes(n + 1, 2, rows, gamma, start=0, name="windfall")
