import numpy as np
import pytest
from ledger_worlds import one_choice, random_world

import safereplay as sr
from safereplay.rivals.lagrangian import LagrangianQ, bracket
from safereplay.rivals.ledgers import ErrorStates, audit, diary, settled
from safereplay.theory.constrained import ceiling

#: To stop pays nothing; to go pays 1.25 four times in five, and harms once: a mean of 1 for a risk of 0.2.
FORK = one_choice([(0.2, True, 0.0, True), (0.8, True, 1.25, False)])
CLIFF = sr.grids.cliff().with_start(sr.grids.cliff().origin)


def dual(mdp, limit, width=1e-3):
    """The price of the linear program: how fast its best mean rises with the limit, by differences."""
    above, below = (ceiling(mdp, max_p_unsafe=limit + d).value for d in (width, -width))
    return (above - below) / (2.0 * width)


# -- the price on a known model ---------------------------------------------------------------------------------------


def test_the_price_of_the_fork_is_its_mean_over_its_risk():
    """At λ = 1/0.2 = 5 both actions are worth 0; any limit below 0.2 costs that, and 0.1 is a coin for each."""
    found = bracket(FORK, 0.1)
    assert found.price == pytest.approx(5.0, rel=1e-6)
    assert dual(FORK, 0.1) == pytest.approx(5.0, rel=1e-6)
    assert (found.within.harm, found.beyond.harm, found.share(0.1)) == pytest.approx((0.0, 0.2, 0.5))
    assert ceiling(FORK, max_p_unsafe=0.1).value == pytest.approx(0.5)


@pytest.mark.parametrize("limit", [0.05, 0.1])
def test_undiscounted_the_price_on_the_cliff_is_that_of_the_linear_program(limit):
    """γ = 1 − 10⁻⁶: the price within 0.1 % of the program's, and a lottery of both policies has its best mean."""
    mdp = CLIFF.with_gamma(1.0 - 1e-6)
    found = bracket(mdp, limit)
    assert found.price == pytest.approx(dual(mdp, limit), rel=1e-3)
    means = [sr.evaluate(mdp, book.policy).mean for book in (found.within.book, found.beyond.book)]
    share = found.share(limit)
    assert (1.0 - share) * means[0] + share * means[1] == pytest.approx(
        ceiling(mdp, max_p_unsafe=limit).value, abs=1e-6
    )


@pytest.mark.parametrize("seed", range(4))
def test_undiscounted_it_is_so_on_random_worlds_where_harm_ends(seed):
    mdp = random_world(seed, ends=True, gamma=1.0 - 1e-7)
    free, least = (settled(mdp, ErrorStates(weight)) for weight in (0.0, 1.0 - 1e-9))
    harms = [sr.evaluate(mdp, book.policy).p_unsafe for book in (least, free)]
    assert harms[0] < harms[1]
    limit = 0.37 * harms[0] + 0.63 * harms[1]
    found = bracket(mdp, limit)
    assert found.price == pytest.approx(dual(mdp, limit, 1e-6), rel=1e-3)
    assert found.beyond.price == pytest.approx(found.price, rel=2e-3)  # at the price itself there may be no equilibrium


def test_where_no_equilibrium_is_in_between_the_two_prices_differ():
    """To go pays 1 and harms with 0.01: for ever X = 9.17, M = 1, which pays up to 9.17; one step alone, up to 100."""
    mdp = one_choice([(0.01, True, 1.0, True), (0.99, False, 1.0, False)])
    found = bracket(mdp, 0.5)
    assert (found.beyond.harm, found.within.harm) == pytest.approx((1.0, 0.0))
    assert found.beyond.price <= 1.0 / 0.109
    assert found.price >= 100.0


def test_the_more_is_discounted_the_higher_the_price_for_the_same_limit():
    """The goal fades, harm does not."""
    prices = [bracket(CLIFF.with_gamma(gamma), 0.05).price for gamma in (0.9, 0.95, 0.99)]
    assert prices == pytest.approx([13.157, 11.427, 7.286], abs=1e-3)
    assert dual(CLIFF, 0.05) == pytest.approx(5.7305, abs=1e-3)


def test_a_limit_that_is_kept_anyway_costs_nothing_and_one_that_nobody_can_keep_is_refused():
    assert bracket(FORK, 0.2).price == 0.0
    assert bracket(FORK, 0.2).beyond is None
    with pytest.raises(sr.BadInput, match=r"limit must be kept at a price below 1.2e\+10, got 0.01"):
        bracket(CLIFF, 0.01)


# -- the price that is learned ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("trust", [0.0, 1.0])
def test_on_the_fork_the_price_and_the_average_are_those_of_the_program(trust):
    """Seeds 0–19, 50,000 episodes: prices on average within 0.5 of 5, harm in the second half within 0.01 of the limit.

    The price is a little low (4.7 and 4.9): it is a noisy table that has to tie.
    """
    books = [diary(FORK, LagrangianQ(0.1, trust=trust), [25_000, 50_000], seed) for seed in range(20)]
    assert np.mean([late.price for _, late in books]) == pytest.approx(5.0, abs=0.5)
    assert np.mean([(late.harms - early.harms) / 25_000 for early, late in books]) == pytest.approx(0.1, abs=0.01)


def test_the_last_policy_sits_on_either_side_of_a_limit_that_needs_a_coin():
    """Seeds 0–19, 50,000 episodes: half the last policies keep it; by tossing coins 4 to 16, but for 1 in 200."""
    kept = sum(audit(FORK, LagrangianQ(0.1), 50_000, seed).policy[0] == 0 for seed in range(20))
    assert 4 <= kept <= 16


def average(gamma, seeds, episodes, **learner):
    """Greedy policies of each run's second half: mean price, P(unsafe) and return; how many of the last keep 5 %."""
    mdp, points = CLIFF.with_gamma(gamma), [episodes // 2 + k * episodes // 40 for k in range(1, 21)]
    runs = [diary(mdp, LagrangianQ(0.05, **learner), points, seed) for seed in range(seeds)]
    risks = [[sr.evaluate(mdp, book.policy) for book in run] for run in runs]
    harm, mean = (np.mean([[getattr(x, name) for x in row] for row in risks]) for name in ("p_unsafe", "mean"))
    behaved = np.mean([(run[-1].harms - run[0].harms) / (points[-1] - points[0]) for run in runs])
    price = np.mean([book.price for run in runs for book in run])
    return price, harm, mean, behaved, sum(row[-1].p_unsafe <= 0.05 for row in risks)


@pytest.mark.slow
@pytest.mark.parametrize(("gamma", "price"), [(0.999, 5.90), (0.95, 11.43)])
def test_on_the_cliff_the_average_over_time_is_near_the_program(gamma, price):
    """20 seeds of 200,000 episodes, trust = 1: mean price within 0.6 of the bracket's, harm within 0.5 points of the
    limit, and the mean return below the program's at that harm, but by no more than 0.05. The last policies keep the
    limit in most runs (18 of 20), not in all.
    """
    found, harm, mean, _, kept = average(gamma, 20, 200_000, trust=1.0)
    assert found == pytest.approx(price, abs=0.6)
    assert harm == pytest.approx(0.05, abs=0.005)
    best = ceiling(CLIFF, max_p_unsafe=harm).value
    assert best - 0.05 < mean < best + 1e-9
    assert 12 <= kept < 20


def test_a_mixture_over_time_is_never_above_the_program_and_not_far_below():
    """5 seeds of 50,000 episodes at γ = 0.95: harm within 1.5 points of the limit; plain Q-learning has 11.9 %."""
    _, harm, mean, _, _ = average(0.95, 5, 50_000, trust=1.0)
    best = ceiling(CLIFF, max_p_unsafe=harm).value
    assert harm == pytest.approx(0.05, abs=0.015)
    assert best - 0.1 < mean < best + 1e-9


def test_exploring_is_charged_for_and_a_limit_below_it_drives_the_price_up_for_ever():
    """10 seeds, ε = 0.1: behaviour is harmed in 7 % of episodes, above the limit of 5 %, though every greedy policy
    keeps it with 3.1 %. So the price is many times the 11.4 that would do, and still rising.
    """
    (price, harm, _, behaved, kept), later = average(0.95, 10, 25_000), average(0.95, 10, 50_000)
    assert 0.06 < behaved < 0.08
    assert harm < 0.035
    assert kept == 10
    assert later[0] > price + 5.0 > 50.0


def test_on_the_cliff_a_limit_of_nothing_is_the_safest_there_is():
    """Seeds 0–2, 20,000 episodes: P(unsafe) within 0.5 points of the least that any policy has, 2.8 %."""
    least = ceiling(CLIFF, max_p_unsafe=1.0).best
    learned = sr.learn(CLIFF, LagrangianQ(0.0), 20_000, seeds=3)
    assert max(sr.evaluate(CLIFF, policy).p_unsafe for policy in learned.policy) < least + 0.005


# -- the exact limit --------------------------------------------------------------------------------------------------


def test_there_is_an_exact_limit_only_where_harm_costs_nothing_in_the_end():
    plain = sr.exact(CLIFF, sr.QLearning())
    for learner in (LagrangianQ(1.0), LagrangianQ(0.2, trust=1.0)):
        np.testing.assert_allclose(sr.exact(CLIFF, learner), plain, atol=1e-9)
    for learner in (LagrangianQ(0.2), LagrangianQ(0.05, trust=1.0)):
        with pytest.raises(sr.BadInput, match=r"limit must be one that surely costs nothing.*see bracket"):
            sr.exact(CLIFF, learner)


def test_the_dials_are_checked():
    for dials, match in [
        ({"limit": -0.1}, r"limit must be in \[0, 1\], got -0.1"),
        ({"rate": 0.0}, r"rate must be in \(0, inf\), got 0"),
        ({"power": 1.5}, r"power must be in \[0, 1\], got 1.5"),
        ({"trust": 2.0}, r"trust must be in \[0, 1\], got 2"),
    ]:
        with pytest.raises(sr.BadInput, match=match):
            LagrangianQ(**dials)
