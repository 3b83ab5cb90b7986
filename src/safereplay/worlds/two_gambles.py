"""Two gambles in a row, which replay ranks one way and a bias of the TD error the other.

First comes the large gamble, then the small one; each may be passed for a sure 0 instead:

    large    +7 with probability 0.9, −9 with 0.1       mean 5.4, variance 23.04
    small    +2 with probability 0.6, −2 with 0.4       mean 0.4, variance 3.84

**One gamble.** It wins u or, with probability q, loses d. To any learner below it seems to lose with some probability
q̃, and it is passed when q̃ is above break-even, q° = u/(u+d): 7/16 for the large one, 1/2 for the small one. What a
sure next value adds to both actions alike changes nothing.

**κ** (Mihatsch & Neuneier 2002). The limit is an expectile, (1−κ)(1−q)(u−x) = (1+κ)·q·(x+d), so

    q̃/(1−q̃)  =  q/(1−q) · (1+κ)/(1−κ):

the odds of losing grow by the same factor at every pair, whatever its size. The gamble is passed once (1+κ)/(1−κ) > Λ,

    Λ  =  [q°/(1−q°)] / [q/(1−q)]  =  u(1−q) / (d·q),       κ°  =  (Λ−1)/(Λ+1):     7 and 3/4 for the large one,
                                                                                 3/2 and 1/5 for the small one.

So along κ policies form a chain: all gambles with Λ below some value are passed. Of n gambles it has n + 1 of the 2ⁿ
policies, and none passes the large gamble here and takes the small one.

**Replay** by variance, with matched mixing: q̃ = (1−ρ)·q + ρ·t, where t = 1/(1 + e^{−β(u+d)}) is the share of a pair's
replays that lose and ρ/(1−ρ) = W·v/(1−v), with W the pair's share of all variance: 6/7 and 1/7. For large β, t = 1, and
the gamble is passed once

    v/(1−v)  >  (q° − q) / ((1 − q°)·W)  =  mean/(d·W):      7/10 for the large one, 7/5 for the small one.

For v in (7/17, 7/12) replay passes the large gamble and takes the small one. That is also a chain, but another one.

**The other way round**, to pass the small gamble and take the large one: all κ in (1/5, 3/4) do. No β and v of this
scheme do. With t and t' the shares of the small and the large one: passing the small one needs t > 1/2, so β > 0 and t'
≥ t, and v/(7(1−v)) > 0.1/(t − 0.5). Then ρ' > 0.6/(t + 0.1) at the large one, which therefore seems to lose with
probability above 0.1 + 0.6·(t − 0.1)/(t + 0.1) ≥ 0.1 + 0.4 > 7/16. So neither family has the other's policies.

**Exponential utility** (Howard & Matheson 1972) passes a gamble once (1−q)·e^{−λu} + q·e^{λd} > 1: at λ = 0.2346 for
the large one, at ln(3/2)/2 = 0.2027 for the small one; a penalty on variance, mean − λ·var, at 0.2344 and 0.1042. Both
pass the small one first. They do weigh size, but not as replay does: to first order replay divides by d once more.
**Gaskett's** min is over actions, and the state after a gamble does not depend on how it went: no β passes any gamble.
The **worst case** passes both.

**When it fails.** Literal mixing replays a pair the more, the less it is visited: ρ/(1−ρ) = W·v/((1−v)·d(s,a)). What is
passed is visited less, and stays passed. At v = 0.2 all four policies are limits for ε = 0.1 and the seed decides; for
ε = 0.8 there is one, to pass the large one and take the small one. With a large gamble that is larger still, as
``large=HUGE``, literal mixing has this one limit at ε = 0.1 and v = 0.5 as well; but exponential utility then has it
too.

Ref: Szlak & Shamir (2021), Section 5.
"""

from collections.abc import Sequence

from ..maps import draws_of
from ..mdp import TabularMDP

LARGE = ((0.9, 7.0), (0.1, -9.0))
SMALL = ((0.6, 2.0), (0.4, -2.0))
HUGE = ((0.9, 40.0), (0.1, -160.0))  #: in place of LARGE: 99.9 % of all variance


def two_gambles(
    gamma: float = 0.9,
    *,
    large: Sequence[tuple[float, float]] = LARGE,
    small: Sequence[tuple[float, float]] = SMALL,
) -> TabularMDP:
    """Danger from rewards, at two pairs that want different caution: no κ passes one gamble and takes the other.

    ``large`` and ``small`` list (probability, reward). Actions are 0 pass, 1 gamble. The large gamble's loss is unsafe.

    >>> import safereplay as sr
    >>> from safereplay.worlds.two_gambles import two_gambles
    >>> mdp = two_gambles()
    >>> sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5).argmax(1)[:2]       # pass the large, take the small
    array([0, 1])
    >>> [sr.exact(mdp, sr.RiskSensitive(k)).argmax(1)[:2].tolist() for k in (0.1, 0.5, 0.9)]
    [[1, 1], [1, 0], [0, 0]]
    """
    rows = []
    for s, draws in enumerate((draws_of("large", large), draws_of("small", small))):
        rows.append((s, 0, 1.0, s + 1, 0.0, s == 1, False))
        rows += [(s, 1, p, s + 1, r, s == 1, s == 0 and r < 0) for p, r in draws]
    return TabularMDP.from_outcomes(3, 2, rows, gamma, start=0, name="two gambles")
