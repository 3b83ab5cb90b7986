"""Worlds that differ in where the danger comes from.

The table includes those of :mod:`safereplay.grids`. Returns are undiscounted and from the origin; P is the probability of
an unsafe outcome in an episode. *Best*: the highest mean of any policy (∞: some loop gains forever). Q*: the best policy
for the world's γ. *Safest*: the policy with the highest mean among those with the least P. *Replay*: the limit of the
paper's scheme, β = 5 and v = 0.5 with matched mixing.

    world          danger        states       best         Q*        P     safest        P     replay        P
    volatile       reward            20          ∞    210.000    0.784    145.000    0.000    145.000    0.000
    cliff          transition        24      1.175      1.175    0.119     -1.391    0.028      0.695    0.035
    bridge         transition        40      7.818      7.818    0.178      7.151    0.000      7.288    0.004
    lottery        reward            28     20.400     20.400    0.344     10.000    0.000     10.000    0.000
    ledge          transition        46      1.482      1.482    0.226     -4.944    0.000      1.447    0.025
    frozen_lake    transition        16      0.824      0.780    0.220      0.824    0.176      0.780    0.220
    lake           transition        64      1.000      0.894    0.106      1.000    0.000      0.894    0.106
    cliff_walking  exploration       48    -13.000    -13.000    0.000    -13.000    0.000    -13.000    0.000
    taxi           none             500     11.000     11.000    0.000     11.000    0.000     11.000    0.000
    market         reward             9     19.200     19.200    0.832      8.000    0.000     14.000    0.337
    two_gambles    reward             3      5.800      5.800    0.100      0.400    0.000      0.400    0.000
    river          transition        28      2.552      2.552    0.147     -2.396    0.001      2.009    0.136
    late_cliff     delayed           28      1.056      1.056    0.119     -1.419    0.028      1.056    0.119
    insurance      rare              11     -1.956     -1.956    0.049    -10.000    0.000    -10.000    0.000
    fog            none              18      6.000      6.000    0.000      6.000    0.000      4.000    0.000
    flood          caution           18      4.435      4.435    0.185      4.435    0.185      2.053    0.265
    windfall       caution            3      4.500      4.500    0.100      2.000    0.000      2.500    0.100
    betting_game   transition        68     12.148     12.148    0.363     10.628    0.000     12.148    0.363
    guarded_maze   reward            29      7.800      7.800    0.050      3.000    0.000      3.000    0.000

The danger is in *rewards* where transitions are certain, in *transitions* where moves slip, *delayed* where a slip
has the reward of a step and the harm comes later, *rare* where it comes once in hundreds of episodes, in *exploration*
where only a learner meets it. *None* are controls. In the two worlds of *caution*, avoiding variance does harm: the
paper's scheme is worse there than Q-learning.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from . import _checks
from .errors import MissingExtra
from .grids import Draws, cliff, delayed, draws_of, from_map
from .mdp import Layout, TabularMDP


def late_cliff(
    gamma: float = 0.95,
    *,
    delay: int = 1,
    layout: str = "between",
    slip: float = 0.1,
    goal: float = 10.0,
    step: float = -1.0,
    hazard: float = -12.0,
) -> TabularMDP:
    """Danger that comes late: a slip has the reward of every step, and the loss follows one or more steps later.

    The paper's cliff, but a slip off the edge has the reward of a step; the −12 comes ``delay`` steps later, for any action.
    A method that uses rewards alone cannot detect it: at the edge

        var(r|s,a) = 0,    while    var(r + γ·max_b Q(s',b)) > 0,

    and the paper's scheme, which replays by var(r|s,a), replays nothing there: its limit keeps the risky path for every v
    and every β. Replay by the variance of the *return* detects the danger through Q(s') and takes the safe way. The drawn
    path does not show it either: :func:`safereplay.verdict` counts a step as exposed only if its own outcome may be unsafe.
    Use :func:`safereplay.evaluate`.

    The other options are those of :func:`safereplay.grids.cliff`.

    >>> import safereplay as sr
    >>> from safereplay.worlds import late_cliff
    >>> mdp = late_cliff()
    >>> limits = [sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v) for v in (0.0, 0.5, 0.9)]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.119, 0.119, 0.119]
    """
    mdp = cliff(gamma, layout=layout, slip=slip, goal=goal, step=step, hazard=hazard)
    for _ in range(_checks.whole("delay", delay, 1)):
        mdp = delayed(mdp, meanwhile=step)
    return replace(mdp, name="late cliff")


def lake(gamma: float = 0.99, *, size: str = "8x8", slippery: bool = True) -> TabularMDP:
    """Danger from transitions that no reward shows: two moves in three slip to a side, and a hole has reward 0.

    FrozenLake, 8×8 or 4×4: Gymnasium's own table, with the actions of a map. Gymnasium numbers them left, down, right, up; a
    :class:`~safereplay.mdp.Layout` up, right, down, left. Ours is 3 minus theirs, and nothing else changes: the 4×4 lake is
    identical to :func:`safereplay.grids.frozen_lake`. ``size`` is ``"8x8"`` or ``"4x4"``.

    A hole ends the episode and has the reward of a step. So var(r|s,a) is 0 except beside the goal, and replay by the
    variance of rewards ignores holes: it only lowers the value of the goal. On the large lake some policy never falls: it
    reaches the goal with probability 1, by moving against walls. The best policy for γ = 0.99 does not, since that takes longer.

    **Learning.** There is no reward before the goal is first reached. From Q = 0 and with ε = 0.1 a greedy learner keeps to
    the first action and does not reach the goal in 20,000 steps, on either lake. From c0 = 1, above every return, it learns
    the best policy of the small one; on the large one it reaches the goal about half the time, after 200,000 steps 85 %.

    Source: Gymnasium's ``FrozenLake-v1``, after OpenAI Gym (Brockman et al. 2016).

    >>> import safereplay as sr
    >>> from safereplay.worlds import lake
    >>> mdp = lake()
    >>> mdp.n_states, round(sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1)).p_unsafe, 3)
    (64, 0.106)
    """
    from gymnasium.envs.toy_text.frozen_lake import MAPS, FrozenLakeEnv

    text = MAPS[_checks.choice("size", size, MAPS)]
    env = FrozenLakeEnv(map_name=size, is_slippery=_checks.flag("slippery", slippery))
    table = TabularMDP.from_gymnasium(env, gamma)
    rows = table.rows()
    rows[:, 1] = 3 - rows[:, 1]
    cells = tuple(divmod(place, len(text[0])) for place in range(table.n_states))
    drawn = Layout("\n".join(text).replace("F", ".").replace("H", "X"), cells, table.origin)
    name = f"lake {size}"
    return TabularMDP.from_outcomes(table.n_states, 4, rows, gamma, table.start, layout=drawn, name=name)


def cliff_walking(gamma: float = 0.99, *, slippery: bool = False) -> TabularMDP:
    """Danger from exploring alone: one wrong step on the edge costs 100, and the best policy never takes it.

    CliffWalking: Gymnasium's own table. A fall costs −100 and puts the agent back to the start. Whether or not moves slip, the
    best policy never falls, so it is the safest too: all danger is in learning. Where moves are certain it walks along the
    edge, 13 steps. Where two in three go to a side, it moves against walls so that no slip can lead to a fall: from the start
    it moves *left*, and waits to slip up. So a cautious limit has no advantage here; learners differ in how often they fall
    before they have learned.

    Source: Sutton & Barto (2018), *Reinforcement Learning*, Example 6.6; Gymnasium's ``CliffWalking-v1``.

    >>> import safereplay as sr
    >>> from safereplay.worlds import cliff_walking
    >>> mdp = cliff_walking()
    >>> best = sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=mdp.origin)
    >>> best.mean, best.p_unsafe
    (-13.0, 0.0)
    """
    from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv

    env = CliffWalkingEnv(is_slippery=_checks.flag("slippery", slippery))
    table = TabularMDP.from_gymnasium(env, gamma, unsafe=lambda s, a, s_next, r, terminal: r == -100.0)
    return replace(table, name="cliff walking")


def taxi(gamma: float = 0.99) -> TabularMDP:
    """No danger to a good policy: an illegal action always costs 10, so no good policy takes it.

    Taxi: Gymnasium's own table, a control. Unsafe are outcomes that cost 10: a pick-up without a passenger, or a drop-off at
    the wrong place. Moves are certain, and so is every reward: var(r|s,a) = 0 for all pairs. Replay by the variance of
    rewards has nothing to replay here, and every learner that is cautious only about randomness has the limit of Q-learning.
    A learner that differs from it here does so for another reason than danger. 500 states, 300 of them equally likely
    starts; the drawn path begins at the first of these.

    Source: Dietterich (2000), *Hierarchical reinforcement learning with the MAXQ value function decomposition*; Gymnasium's
    ``Taxi``.

    >>> import safereplay as sr
    >>> from safereplay.worlds import taxi
    >>> mdp = taxi()
    >>> mdp.n_states, float(mdp.reward_variance.max()), int(mdp.unsafe.sum())
    (500, 0.0, 968)
    """
    from gymnasium.envs.toy_text.taxi import TaxiEnv

    table = TabularMDP.from_gymnasium(TaxiEnv(), gamma, unsafe=lambda s, a, s_next, r, terminal: r == -10.0)
    return replace(table, name="taxi")


PASS = ((1.0, 0.0),)  #: a certain 0


def _in_a_row(
    stages: Sequence[Sequence[Draws]], gamma: float, name: str, unsafe: Callable[[int, float], bool]
) -> TabularMDP:
    """State s offers ``stages[s]``, the (probability, reward) draws of each action; any action leads to the next state."""
    n = len(stages)
    rows = [
        (s, a, p, s + 1, r, s == n - 1, unsafe(s, r))
        for s, actions in enumerate(stages)
        for a, draws in enumerate(actions)
        for p, r in draws
    ]
    return TabularMDP.from_outcomes(n + 1, len(stages[0]), rows, gamma, start=0, name=name)


BOND = ((0.95, 2.0), (0.05, -3.0))
STOCK = ((0.8, 5.0), (0.2, -8.0))


def market(
    gamma: float = 0.95, *, days: int = 8, cash: float = 1.0, bond: Draws = BOND, stock: Draws = STOCK
) -> TabularMDP:
    """Danger from rewards: transitions are certain, rewards are not, and the best-paying action loses most often.

    A market: on each day, invest in cash, a bond or a stock (actions 0, 1, 2). Time advances with any action. The days are
    independent, so the best policy, the risk of any policy and the limit of every learner can be computed by hand, one day
    at a time: a policy that holds the stock on k days and the bond on j loses at least once with probability
    1 − (1 − q_stock)^k·(1 − q_bond)^j. ``bond`` and ``stock`` list (probability, reward). A loss is unsafe.

    >>> import safereplay as sr
    >>> from safereplay.worlds import market
    >>> mdp = market()
    >>> [round(sr.evaluate(mdp, [a] * 9).p_unsafe, 3) for a in range(3)]       # 1 − 0.95⁸ and 1 − 0.8⁸
    [0.0, 0.337, 0.832]
    """
    days = _checks.whole("days", days, 1)
    funds = (((1.0, _checks.real("cash", cash)),), draws_of("bond", bond), draws_of("stock", stock))
    return _in_a_row([funds] * days, gamma, "market", lambda day, r: r < 0)


LARGE = ((0.9, 7.0), (0.1, -9.0))
SMALL = ((0.6, 2.0), (0.4, -2.0))
HUGE = ((0.9, 40.0), (0.1, -160.0))  #: in place of LARGE: 99.9 % of all variance


def two_gambles(gamma: float = 0.9, *, large: Draws = LARGE, small: Draws = SMALL) -> TabularMDP:
    """Danger from rewards, at two pairs that need different caution: no κ passes the large gamble and takes the small one.

    Two gambles in a row, which replay and a bias of the TD error rank in opposite order. First comes the large one, then the
    small one; each may be passed for a certain 0 instead:

        large    +7 with probability 0.9, −9 with 0.1       mean 5.4, variance 23.04
        small    +2 with probability 0.6, −2 with 0.4       mean 0.4, variance 3.84

    **One gamble.** It wins u or, with probability q, loses d. For each learner below it has an effective probability of
    losing q̃, and it is passed when q̃ is above break-even, q° = u/(u+d): 7/16 for the large one, 1/2 for the small
    one. The value of the next state is the same for both actions and changes nothing.

    **κ** (Mihatsch & Neuneier 2002). The limit is an expectile, (1−κ)(1−q)(u−x) = (1+κ)·q·(x+d), so

        q̃/(1−q̃)  =  q/(1−q) · (1+κ)/(1−κ):

    the odds of losing grow by the same factor at every pair, whatever its size. The gamble is passed once (1+κ)/(1−κ) > Λ,

        Λ  =  [q°/(1−q°)] / [q/(1−q)]  =  u(1−q) / (d·q),       κ°  =  (Λ−1)/(Λ+1):     7 and 3/4 for the large one,
                                                                                     3/2 and 1/5 for the small one.

    So along κ policies form a chain: all gambles with Λ below some value are passed. For n gambles it contains n + 1 of the
    2ⁿ policies, and none passes the large gamble here and takes the small one.

    **Replay** by variance, with matched mixing: q̃ = (1−ρ)·q + ρ·t, where t = 1/(1 + e^{−β(u+d)}) is the share of a pair's
    replays that lose and ρ/(1−ρ) = W·v/(1−v), with W the pair's share of all variance: 6/7 and 1/7. For large β, t = 1, and
    the gamble is passed once

        v/(1−v)  >  (q° − q) / ((1 − q°)·W)  =  mean/(d·W):      7/10 for the large one, 7/5 for the small one.

    For v in (7/17, 7/12) replay passes the large gamble and takes the small one. This is also a chain, but a different one.

    **The other way round**, to pass the small gamble and take the large one: all κ in (1/5, 3/4) do. No β and v of this
    scheme do. With t and t' the shares of the small and the large one: passing the small one needs t > 1/2, so β > 0 and t'
    ≥ t, and v/(7(1−v)) > 0.1/(t − 0.5). Then ρ' > 0.6/(t + 0.1) at the large one, which therefore seems to lose with
    probability above 0.1 + 0.6·(t − 0.1)/(t + 0.1) ≥ 0.1 + 0.4 > 7/16. So neither family has the other's policies.

    **Exponential utility** (Howard & Matheson 1972) passes a gamble once (1−q)·e^{−λu} + q·e^{λd} > 1: at λ = 0.2346 for
    the large one, at ln(3/2)/2 = 0.2027 for the small one; a penalty on variance, mean − λ·var, at 0.2344 and 0.1042. Both
    pass the small one first. Size matters to them, but not as to replay: to first order replay divides by d once more.
    **Gaskett's** min is over actions, and the state after a gamble does not depend on its outcome: no β passes any gamble.
    The **worst case** passes both.

    **When it fails.** Literal mixing replays a pair more the less it is visited: ρ/(1−ρ) = W·v/((1−v)·d(s,a)). A gamble
    that is passed is visited less, and stays passed. At v = 0.2 all four policies are limits for ε = 0.1 and the seed
    decides; for ε = 0.8 there is one, to pass the large one and take the small one. With a still larger gamble,
    ``large=HUGE``, literal mixing has this one limit at ε = 0.1 and v = 0.5 as well; but exponential utility then has
    it too.

    Ref: Szlak & Shamir (2021), Section 5.

    ``large`` and ``small`` list (probability, reward). Actions are 0 pass, 1 gamble. The large gamble's loss is unsafe.

    >>> import safereplay as sr
    >>> from safereplay.worlds import two_gambles
    >>> mdp = two_gambles()
    >>> sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v=0.5).argmax(1)[:2]       # pass the large, take the small
    array([0, 1])
    >>> [sr.exact(mdp, sr.RiskSensitive(k)).argmax(1)[:2].tolist() for k in (0.1, 0.5, 0.9)]
    [[1, 1], [1, 0], [0, 0]]
    """
    gambles = [draws_of("large", large), draws_of("small", small)]
    return _in_a_row([[PASS, gamble] for gamble in gambles], gamma, "two gambles", lambda s, r: s == 0 and r < 0)


RIVER = ".....\n.....\n.....\n.....\nS...G\n#XXX#"


def river(
    gamma: float = 0.99, *, current: float = 0.2, goal: float = 10.0, step: float = -1.0, hazard: float = -5.0
) -> TabularMDP:
    """Danger from transitions in one part of the world: on land moves are certain, in the water they are not.

    A river above a waterfall: a stroke fails with probability ``current``, and the swimmer moves one row down instead. An
    agent that walks h − 1 rows up the bank before swimming straight across w columns of water falls if h strokes fail before
    w succeed:

        P(fall)  =  P( Bin(h + w − 1, current) ≥ h ).

    Every row up costs two steps, one on each bank, so the trade-off is how far up to walk.

    >>> import safereplay as sr
    >>> from safereplay.worlds import river
    >>> mdp = river()
    >>> straight = [1, 1, 1, 1, 2] * 5 + [0] * 3                               # swim, and walk down the far bank
    >>> round(sr.evaluate(mdp, straight, start=mdp.origin).p_unsafe, 3)        # 1 − 0.8³
    0.488
    """
    _checks.between("current", current, "[0, 1]")
    models = [
        from_map(RIVER, gamma=gamma, goal=goal, step=step, hazard=hazard, slip=slip, slip_to="down", goal_slips=True)
        for slip in (0.0, current)
    ]
    layout = models[0].layout
    wet = np.array([0 < cell[1] < 4 for cell in layout.cells]) if layout else np.zeros(0, bool)
    rows = [mdp.rows()[kept[mdp.pair // 4]] for mdp, kept in zip(models, (~wet, wet), strict=True)]
    start = models[0].start
    return TabularMDP.from_outcomes(wet.size, 4, np.concatenate(rows), gamma, start, layout=layout, name="river")


def insurance(
    gamma: float = 0.95, *, years: int = 10, p: float = 0.005, ruin: float = -40.0, premium: float = 1.0
) -> TabularMDP:
    """Danger that is rare: ruin has probability 0.005 per year, and insurance costs five times the mean cost of ruin.

    Uninsured (action 1), a year costs 0, or with probability p ruin, which ends the episode. Insured (action 0), it costs the
    premium. With a premium above p·|ruin| a risk-neutral agent does not insure, and over n years ruin has probability
    1 − (1−p)ⁿ. A learner meets ruin about once in 1/p visits of a pair. Before the first one, no reward varies. Just after
    one, Q of the pair is too low, and a greedy learner insures until exploration has corrected it.

    >>> import safereplay as sr
    >>> from safereplay.worlds import insurance
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


def fog(gamma: float = 0.95, *, goal: float = 10.0, step: float = -1.0, noise: float = 4.0) -> TabularMDP:
    """No danger at all: the short way has noisy rewards, and nothing is unsafe.

    A control for methods that treat noise as danger. The short way pays step ± ``noise`` with even odds, the long way pays
    step for certain. A risk-neutral agent takes the short way. A cautious one takes the long way: it pays two steps for a
    smaller spread of the return, and makes nothing safer.

    >>> import safereplay as sr
    >>> from safereplay.worlds import fog
    >>> mdp = fog()
    >>> limits = [sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v) for v in (0.0, 0.5)]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).mean, 3) for Q in limits]
    [6.0, 4.0]
    """
    return _noisy_way(gamma, goal, step, noise, "fog")


def _noisy_way(gamma: float, goal: float, step: float, noise: float, name: str) -> TabularMDP:
    """A short way that pays step ± noise, a quiet one around it, and no unsafe outcome."""
    step, noise = _checks.real("step", step), _checks.real("noise", noise)
    draws = [(0.5, step + noise), (0.5, step - noise)]
    mdp = from_map("......\nS>>>.G\n......", gamma=gamma, goal=goal, step=step, volatile=draws, name=name)
    return replace(mdp, unsafe=np.zeros(mdp.p.size, bool))


def flood(
    gamma: float = 0.95, *, rate: float = 0.05, goal: float = 10.0, step: float = -1.0, noise: float = 5.0
) -> TabularMDP:
    """Caution is wrong: the volatile way is the safest, since the danger is being late, and no reward shows it.

    Every move except the one into the goal is overtaken by the flood with probability ``rate``: it has the reward of a step
    and ends the episode. The short way takes k moves and the long way n > k, so their probabilities of drowning are

        1 − (1 − rate)^(k−1)    and    1 − (1 − rate)^(n−1).

    The short way also has tolls, step ± ``noise``: the only rewards that vary, and harmless. A scheme that avoids them
    drowns *more* often and earns less. The flood has the reward of a step, so no variance of rewards shows it.

    >>> import safereplay as sr
    >>> from safereplay.worlds import flood
    >>> mdp = flood()
    >>> limits = [sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v) for v in (0.0, 0.5)]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).p_unsafe, 3) for Q in limits]
    [0.185, 0.265]
    """
    rate = _checks.between("rate", rate, "[0, 1)")
    dry = _noisy_way(gamma, goal, step, noise, "flood")
    rows, on = dry.rows(), ~dry.terminal
    drowned = rows[on]
    rows[on, 2] *= 1.0 - rate
    drowned[:, 2] *= rate
    drowned[:, 4:] = step, 1.0, 1.0
    rows = np.concatenate([rows, drowned]) if rate > 0 else rows
    return TabularMDP.from_outcomes(dry.n_states, 4, rows, gamma, dry.start, layout=dry.layout, name=dry.name)


TICKET = ((0.8, -3.0), (0.2, 22.0))
LOAN = ((0.9, 4.0), (0.1, -11.0))


def windfall(gamma: float = 0.95, *, rounds: int = 1) -> TabularMDP:
    """Caution is wrong if it avoids gains: a winning ticket varies most, a loan does the harm.

    Even states offer tickets, odd ones loans. Actions are 0 pass, 1 play.

        ticket   −3 four times in five, +22 once       mean 2, variance 100, of which below the mean 20 = 0.8·5²
        loan     +4 nine times in ten, −11 once        mean 2.5, variance 20.25, of which below the mean 18.2 = 0.1·13.5²

    Either may be passed for 0. Only the loan's −11 is unsafe, so the right caution passes the loans and buys the tickets.

    With all of the tilt on the worst reward l, a gamble of mean m looks worse than 0 once ρ/(1−ρ) > m/|l|, which is

        v/(1−v)  >  m / (|l|·W),      W = the pair's share of all weights.

    Over n rounds of both, by variance: W = 100/120.25n and 20.25/120.25n. Tickets are passed from v/(1−v) = 0.80·n,
    loans only from 1.35·n. No v passes the loans and buys the tickets; in between, as at n = 1 and v = 0.5, the scheme does
    the opposite. By the variance below the mean: W = 20/38.2n and 18.2/38.2n. Loans are passed from 0.48·n, tickets from
    1.27·n: :class:`~safereplay.DownsideReplay` is right from v = 0.32 to 0.56, for β = 1 from 0.43 to 0.77.

    A tilt that is not all on the worst reward also helps the paper's scheme: a ticket pays −3 four times in five anyway.
    For β ≤ 0.1 it is right for some v above 0.64; at β = 0.1 this range of v has width 0.04.

    >>> import safereplay as sr
    >>> from safereplay.worlds import windfall
    >>> Q = sr.fixed_point(windfall(), sr.VarianceReplay(beta=5.0), v=0.5)
    >>> Q.argmax(1)[:2]                                                         # no ticket, but the loan
    array([0, 1])
    """
    stages = [[PASS, TICKET], [PASS, LOAN]] * _checks.whole("rounds", rounds, 1)
    return _in_a_row(stages, gamma, "windfall", lambda s, r: s % 2 == 1 and r < 0)


BETS = (0, 1, 2, 5, 10)


def betting_game(gamma: float = 0.99, *, stages: int = 4, money: int = 10, win: float = 0.7) -> TabularMDP:
    """Danger from transitions: a lost bet leaves less to bet with, and a player who has lost everything is out.

    The betting game, a standard world for learning with CVaR. The player has some ``money``. At each stage he bets 0, 1, 2, 5
    or 10 (actions 0 to 4). With probability ``win`` he gains the bet, else he loses it. A bet above his money counts as 0.
    The reward is the gain, so the return is the final money minus the initial money. A state is a stage and an amount of
    money. Ruin, to have no money left, is unsafe and ends the game.

    Each bet is worth 2·win − 1 of its size. So the best mean return bets as much as possible at every stage, and is ruined
    in 36 % of games. A player who never bets everything is never ruined and loses an eighth of this mean. The return is a
    function of the state, so the largest CVaR is a dynamic program over stages and money:

        max_π CVaR_α(R)  =  max_η  η − min_π E[(η − R)⁺] / α:       0 for α ≤ 0.1, 0.082 for α = 0.2, 1.557 for α = 0.5.

    **Where it differs from its sources.** The initial money and the bets are those of Rigter et al., where ``win`` is not
    known to the player and has a prior. In the code of Mead et al. the player starts with 16, bets eighths of his money in six
    stages, wins with probability 0.88, and stops at 256. Here ``win`` is 0.7, and there are four stages,
    for which :func:`safereplay.theory.constrained.ceiling` is exact under a limit on CVaR; for six it has too many variables.

    Sources: Rigter, Lacerda & Hawes (2021), *Risk-averse Bayes-adaptive reinforcement learning*; Mead, Costen, Lacerda & Hawes (2025),
    *Return capping: sample efficient CVaR policy gradient optimisation*. An earlier example of the kind is the repeated casino game
    of Bäuerle & Ott (2011), *Markov decision processes with average-value-at-risk criteria*.

    >>> import safereplay as sr
    >>> from safereplay.worlds import betting_game
    >>> mdp = betting_game()
    >>> bold = sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=0)
    >>> round(bold.mean, 3), round(bold.p_unsafe, 3)
    (12.148, 0.363)
    """
    stages, money = _checks.whole("stages", stages, 1), _checks.whole("money", money, 1, bits=16)
    win = _checks.between("win", win, "(0, 1)")
    state: dict[tuple[int, int], int] = {}
    amounts = {money}
    for stage in range(stages):
        state |= {(stage, m): len(state) + k for k, m in enumerate(sorted(amounts))}
        amounts = {m + sign * bet for m in amounts for bet in BETS if bet <= m for sign in (1, -1)} - {0}
    rows = []
    for (stage, m), s in state.items():
        for a, bet in enumerate(BETS):
            for p, gain in ((win, bet), (1.0 - win, -bet)) if bet <= m else ((1.0, 0),):
                ends = stage == stages - 1 or m + gain == 0
                s_next = len(state) if ends else state[stage + 1, m + gain]
                rows.append((s, a, p, s_next, float(gain), ends, m + gain == 0))
    return TabularMDP.from_outcomes(len(state) + 1, len(BETS), rows, gamma, start=0, name="betting game")


MAZE = "......\n.####.\n....#.\n....#.\n....#G\nS..>.."


def guarded_maze(
    gamma: float = 0.99, *, p: float = 0.05, fee: float = 64.0, goal: float = 16.0, step: float = -1.0
) -> TabularMDP:
    """Danger from rewards at one place: the short way passes a guard, who seldom takes a large fee.

    The guarded maze, another standard world for learning with CVaR. The short way to the goal takes 6 moves and passes the
    guard, who takes ``fee`` with probability ``p``; that is unsafe. The long way takes 14 moves and is safe. The goal pays
    ``goal``, every other move costs a step:

        short    11, or −53 with probability 0.05       mean 7.8       CVaR_α = 11 − 3.2/α for α ≥ 0.05
        long     3                                      mean 3         CVaR_α = 3

    So the mean favours the short way, and CVaR_α the long way for α below 0.4. The guard has the only random reward, and so
    all of the variance. With matched mixing and a large β, the paper's scheme counts the fee with probability p + (1 − p)·v,
    and takes the long way from v = 0.092 on (0.079 for γ → 1).

    **Where it differs from its sources.** Greenberg et al. introduced it. The fee of 64, its probability and the goal of 16 are
    the defaults of their code. There the agent moves in continuous space with noise, starts anywhere unless told otherwise, is
    checked by the guard once per episode, and the fee may be drawn from an exponential distribution. The map is that of Mead et al.,
    whose own version has no noise, a goal of 10 (minus the step), and a guard who adds a normal reward of mean 0 and
    standard deviation 30. In both, steps are free after the first 32. Here every step costs, moves are exact, and the fee is
    drawn at each move to the right past the guard.

    Sources: Greenberg, Chow, Ghavamzadeh & Mannor (2022), *Efficient risk-averse reinforcement learning*; Mead, Costen, Lacerda & Hawes
    (2025), *Return capping: sample efficient CVaR policy gradient optimisation*.

    >>> import safereplay as sr
    >>> from safereplay.worlds import guarded_maze
    >>> mdp = guarded_maze()
    >>> limits = [sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v) for v in (0.0, 0.5)]
    >>> [round(sr.evaluate(mdp, Q.argmax(1), start=mdp.origin).mean, 3) for Q in limits]
    [7.8, 3.0]
    """
    p, fee, step = (
        _checks.between("p", p, "[0, 1]"),
        _checks.between("fee", fee, "(0, inf)"),
        _checks.real("step", step),
    )
    guard = [(1.0 - p, step), (p, step - fee)]
    mdp = from_map(MAZE, gamma=gamma, goal=goal, step=step, volatile=guard, name="guarded maze")
    return replace(mdp, unsafe=mdp.r == step - fee)


def icu_sepsis(gamma: float = 0.999) -> TabularMDP:
    """Danger from transitions, estimated from real data: the treatment of sepsis in intensive care. Death is unsafe.

    ICU-Sepsis (package ``icu-sepsis``, extra ``icu``): 713 states of a patient, then death, survival and an absorbing end. 25
    actions: 5 doses of fluids × 5 of vasopressors. Survival pays 1, everything else 0, so the mean return is the
    probability of survival. An episode starts in a state drawn from the patients of the data. Of each state, the data have
    enough cases for some actions only (usually 1 to 7). The package gives the others the mean of these: all 25 can be taken.

    The package sets γ = 1, and a :class:`~safereplay.TabularMDP` needs γ < 1. With the default, the patient dies in 12.494 %
    of episodes under the best policy; with γ = 1, in 12.486 %. Under a uniformly random policy it is 21.99 %.

    Only the tables of the package are read; it is not imported. This is research data, from which nothing follows
    for the treatment of patients. It is not in the catalog, since it needs the extra; ``icu_sepsis().save("icu.npz")``
    makes a file that every command accepts.

    Source: Choudhary, Gupta & Thomas (2024), *ICU-Sepsis: a benchmark MDP built from real medical data*, from MIMIC-III.

    Raises
    ------
    MissingExtra : the package is not installed

    >>> icu_sepsis()                                                            # doctest: +SKIP
    TabularMDP(716 states × 25 actions, 1528525 outcomes, gamma=0.999, rewards 0 to 1, 3 terminal states, 16485 unsafe outcomes)
    """
    package = find_spec("icu_sepsis")  # not imported: it imports gym, which is no longer maintained
    folders = (package and package.submodule_search_locations) or ()
    file = next((f for folder in folders if (f := Path(folder, "envs", "assets", "dynamics.npz")).is_file()), None)
    if file is None:
        raise MissingExtra("icu_sepsis needs the package icu-sepsis; install it with: pip install 'safereplay[icu]'")
    with np.load(file, allow_pickle=False) as tables:
        p, r, start = (tables[name] for name in ("tx_mat", "r_mat", "d_0"))
    n, actions, _ = p.shape
    death = n - 3  # followed by survival and the absorbing end
    s, a, s_next = np.nonzero(p[:death])
    columns = (s, a, p[s, a, s_next], s_next, r[s, a, s_next], s_next >= death, s_next == death)
    return TabularMDP.from_outcomes(n, actions, np.column_stack(columns), gamma, start, name="ICU-Sepsis")
