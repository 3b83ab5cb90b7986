"""Worlds whose numbers can be worked out by hand, each shown to do what it is for."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

import safereplay as sr
from safereplay.theory.constrained import ceiling
from safereplay.theory.operator import weighted
from safereplay.theory.solver import optimal, targets
from safereplay.worlds import (
    BETS,
    betting_game,
    flood,
    fog,
    guarded_maze,
    insurance,
    late_cliff,
    market,
    river,
    windfall,
)


def judged(mdp, Q):
    return sr.evaluate(mdp, Q.argmax(1), start=mdp.origin)


def replayed(mdp, v=0.5, beta=5.0):
    return judged(mdp, sr.fixed_point(mdp, sr.VarianceReplay(beta=beta), v))


def by_weights(mdp, weights, v, beta=5.0, values=None):
    """The limit of a replay that weighs pairs [S, A] as given and tilts by e^{−β·value}; matched mixing."""
    values = mdp.r if values is None else values
    lowest = np.full(mdp.n_pairs, np.inf)
    np.minimum.at(lowest, mdp.pair, values)
    tilt = np.exp(-beta * (values - lowest[mdp.pair]))
    tilt /= np.bincount(mdp.pair, weights=tilt, minlength=mdp.n_pairs)[mdp.pair]
    w = (weights / weights.sum()).ravel()[mdp.pair] * tilt
    return optimal(mdp, weighted(mdp, w, v, np.ones_like(weights)).p)


def variance(mdp, y, below=False):
    """var(y) of each pair, or what of it lies below the mean, [S, A]."""
    away = y - mdp.expect(y).ravel()[mdp.pair]
    return mdp.expect(np.minimum(away, 0.0) ** 2 if below else away**2)


def by_return(mdp, v, beta=5.0):
    """The limit of a replay by var(y), tilted by y, with y = r + γ·max_b Q(s',b): Q and its weights made to fit."""
    Q = optimal(mdp, mdp.p)
    for _ in range(500):
        y = targets(mdp, Q.max(1))
        after = by_weights(mdp, variance(mdp, y), v, beta, y)
        if np.abs(after - Q).max() < 1e-10:
            return after
        Q = after
    raise AssertionError("no limit found")


# -- reward -----------------------------------------------------------------------------------------------------------


def test_the_market_pays_by_the_day():
    mdp = market()
    means = (1.0, 0.95 * 2 - 0.05 * 3, 0.8 * 5 - 0.2 * 8)
    losses = (0.0, 1 - 0.95**8, 1 - 0.8**8)
    for a, mean, p in zip(range(3), means, losses, strict=True):
        found = sr.evaluate(mdp, [a] * 9, start=0)
        assert (found.mean, found.p_unsafe) == (pytest.approx(8 * mean), pytest.approx(p))


def test_the_market_has_three_degrees_of_caution_along_v():
    """The stock has 96 % of all variance, so it is sold first, for the bond; the bond is sold at a much larger v."""
    mdp = market()
    var = (0.16 * 13**2, 0.0475 * 5**2)
    np.testing.assert_allclose(mdp.reward_variance[0], [0.0, var[1], var[0]])
    assert judged(mdp, sr.exact(mdp, sr.QLearning())).mean == pytest.approx(19.2)
    assert replayed(mdp, 0.5).mean == pytest.approx(14.0)
    share = var[1] / sum(var) / 8
    odds = (1.75 - 1.0) / (1.0 + 3.0)  # ρ/(1−ρ) at which the bond, 1.75 and at worst −3, seems worth 1
    at = odds / share / (1 + odds / share)
    assert (replayed(mdp, at - 0.001).mean, replayed(mdp, at + 0.001).mean) == (pytest.approx(14.0), pytest.approx(8.0))


# -- transition -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows_up", range(5))
@pytest.mark.parametrize("current", [0.1, 0.2, 0.5])
def test_who_swims_straight_across_falls_as_a_binomial_says(rows_up, current):
    mdp = river(current=current)
    policy = np.array([1, 1, 1, 1, 2] * 5 + [0] * 3)  # to the right, and down the far bank to the goal
    policy[[5 * i for i in range(5 - rows_up, 5)]] = 0  # up the near bank first
    found = sr.evaluate(mdp, policy, start=mdp.origin)
    h = rows_up + 1
    assert found.p_unsafe == pytest.approx(binom.sf(h - 1, h + 2, current))


def test_the_current_is_in_the_water_only():
    mdp = river()
    for s, (row, column) in enumerate(mdp.layout.cells):
        if row < 5:
            slips = {len(mdp.outcomes(s, a).p) for a in (0, 1, 3)}
            assert (max(slips) > 1) == (0 < column < 4) or mdp.is_terminal[s]


def test_the_best_swimmer_runs_a_risk_that_a_longer_walk_avoids():
    mdp = river()
    bold = judged(mdp, sr.exact(mdp, sr.QLearning()))
    limits = [ceiling(mdp, max_p_unsafe=p, start=mdp.origin) for p in (0.05, 0.01)]
    assert bold.p_unsafe > 0.1
    assert bold.mean > limits[0].value > limits[1].value
    assert all(limit.status == "optimal" for limit in limits)


# -- delayed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [1, 2, 3])
def test_at_the_edge_rewards_do_not_vary_but_returns_do(delay):
    mdp = late_cliff(delay=delay)
    edge = [mdp.layout.state_at(2, column) for column in range(1, 5)]
    assert mdp.reward_variance[edge].max() == 0.0
    Q = sr.exact(mdp, sr.QLearning())
    assert variance(mdp, targets(mdp, Q.max(1)))[edge, 1].min() > 1.0


@pytest.mark.parametrize("delay", [1, 2])
def test_no_beta_and_v_of_the_papers_scheme_see_a_danger_that_comes_late(delay):
    mdp = late_cliff(delay=delay)
    risky = judged(mdp, sr.exact(mdp, sr.QLearning())).p_unsafe
    assert risky == pytest.approx(0.119, abs=5e-4)
    for beta in (-5.0, 0.0, 0.1, 1.0, 5.0):
        for v in (0.1, 0.5, 0.9, 0.99, 0.999):
            assert replayed(mdp, v, beta).p_unsafe >= risky - 1e-9


@pytest.mark.parametrize("delay", [1, 2])
def test_a_replay_by_the_variance_of_the_return_goes_the_safe_way(delay):
    """0.119 without, about 0.03 with it: what the paper's scheme does where the fall is paid for at once."""
    mdp, at_once = late_cliff(delay=delay), sr.grids.cliff()
    for v in (0.5, 0.75, 0.9):
        Q = by_return(mdp, v)
        np.testing.assert_allclose(sr.fixed_point(mdp, sr.ReturnReplay(beta=5.0), v), Q, atol=1e-6)
        assert judged(mdp, Q).p_unsafe < 0.036
        assert replayed(at_once, v).p_unsafe < 0.036


def test_a_fall_is_paid_for_as_many_steps_later_as_asked():
    mdp = late_cliff(delay=2, slip=0.0)
    s = mdp.origin
    paid = []
    for action in (1, 0, 3):  # right, off the cliff; then whatever
        q = mdp.outcomes(s, action)
        paid.append((float(q.r[0]), bool(q.terminal[0]), bool(q.unsafe[0])))
        s = int(q.s_next[0])
    assert paid == [(-1.0, False, False), (-1.0, False, False), (-12.0, True, True)]


# -- rare -------------------------------------------------------------------------------------------------------------


def test_nobody_neutral_insures_and_ruin_is_rare():
    mdp = insurance()
    bold = judged(mdp, sr.exact(mdp, sr.QLearning()))
    ruined = 1 - 0.995**10
    assert (bold.p_unsafe, bold.mean) == (pytest.approx(ruined), pytest.approx(-40 * ruined))
    insured = sr.evaluate(mdp, [0] * 11, start=0)
    assert (insured.p_unsafe, insured.mean) == (0.0, -10.0)


def test_who_does_not_learn_long_has_not_met_the_danger():
    """20 seeds. After 20 episodes of ten years most have seen no ruin, and insure nothing; after 20,000 they insure."""
    mdp = insurance(p=0.001, ruin=-500.0)
    learner = sr.ReplayQLearning(sr.VarianceReplay(beta=5.0), v=0.5, mixing="matched")
    short, long = (sr.learn(mdp, learner, episodes=n, seeds=20) for n in (20, 20_000))
    insured = [(runs.Q.argmax(2)[:, :10] == 0).mean() for runs in (short, long)]
    assert insured[1] > 0.95
    assert insured[0] < 0.6


# -- none -------------------------------------------------------------------------------------------------------------


def test_in_the_fog_caution_buys_a_smaller_spread_and_no_safety():
    mdp = fog()
    bold, wary = judged(mdp, sr.exact(mdp, sr.QLearning())), replayed(mdp)
    assert (bold.mean, bold.std) == (pytest.approx(10 - 4), pytest.approx(4 * np.sqrt(3)))
    assert (wary.mean, wary.std) == (pytest.approx(10 - 6), pytest.approx(0.0, abs=1e-6))
    assert not mdp.unsafe.any()


# -- caution is wrong -------------------------------------------------------------------------------------------------


def test_who_goes_round_is_overtaken_by_the_flood_more_often():
    mdp = flood()
    bold, wary = judged(mdp, sr.exact(mdp, sr.QLearning())), replayed(mdp)
    assert bold.p_unsafe == pytest.approx(1 - 0.95**4)  # five moves, the last into the goal
    assert wary.p_unsafe == pytest.approx(1 - 0.95**6)  # seven
    means = [10 * 0.95**n - sum(0.95**k for k in range(n)) for n in (4, 6)]
    assert [bold.mean, wary.mean] == pytest.approx(means)
    assert ceiling(mdp, max_p_unsafe=0.0, start=mdp.origin).best == pytest.approx(bold.p_unsafe)


def test_without_tolls_nobody_goes_round():
    mdp = flood(noise=0.0)
    assert mdp.reward_variance.max() == 0.0
    assert replayed(mdp).p_unsafe == pytest.approx(1 - 0.95**4)


def test_tickets_and_loans_vary_as_said():
    mdp = windfall(rounds=3)
    np.testing.assert_allclose(mdp.expect(mdp.r)[:6, 1], [2.0, 2.5] * 3)
    np.testing.assert_allclose(mdp.reward_variance[:6, 1], [100.0, 20.25] * 3)
    np.testing.assert_allclose(variance(mdp, mdp.r, below=True)[:6, 1], [20.0, 18.225] * 3)


@pytest.mark.parametrize("rounds", [1, 2, 3])
def test_by_variance_good_surprises_are_shunned_first_and_no_v_is_right(rounds):
    """Tickets go at v/(1−v) = n·(2/3)·(120.25/100), loans at n·(2.5/11)·(120.25/20.25)."""
    mdp = windfall(rounds=rounds)
    switched = sr.switches(mdp, sr.ReplayQLearning(sr.VarianceReplay(beta=5.0), mixing="matched"), tight=1e-6)
    odds = np.array([2 / 3 * 1.2025, 2.5 / 11 * 120.25 / 20.25] * rounds) * rounds
    np.testing.assert_allclose(switched.at[:-1], odds / (1 + odds), atol=3e-6)


def test_a_gentle_tilt_by_variance_is_right_in_a_narrow_band():
    mdp = windfall()
    grid = np.linspace(0.0, 0.99, 199)
    for beta, widest in ((0.1, 0.05), (0.15, 0.0), (0.5, 0.0), (5.0, 0.0)):
        limits = [sr.fixed_point(mdp, sr.VarianceReplay(beta=beta), float(v)) for v in grid]
        right = grid[[Q.argmax(1)[:2].tolist() == [1, 0] for Q in limits]]
        assert (right.size > 0) == (widest > 0)
        assert np.ptp(right) <= widest if right.size else True


def test_by_the_variance_below_the_mean_loans_are_passed_and_tickets_bought():
    mdp = windfall()
    below = variance(mdp, mdp.r, below=True)
    for v, wanted in ((0.3, [1, 1]), (0.35, [1, 0]), (0.5, [1, 0]), (0.55, [1, 0]), (0.58, [0, 0])):
        assert by_weights(mdp, below, v).argmax(1)[:2].tolist() == wanted, v
    right, wrong = judged(mdp, by_weights(mdp, below, 0.5)), replayed(mdp)
    np.testing.assert_allclose(sr.fixed_point(mdp, sr.DownsideReplay(beta=50.0), 0.5), by_weights(mdp, below, 0.5))
    for beta in (1.0, 5.0):
        assert sr.fixed_point(mdp, sr.DownsideReplay(beta=beta), 0.5).argmax(1)[:2].tolist() == [1, 0]
    assert (right.mean, right.p_unsafe) == (pytest.approx(2.0), 0.0)
    assert (wrong.mean, wrong.p_unsafe) == (pytest.approx(2.5), pytest.approx(0.1))


# -- learned ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "measure", "least"),
    [
        (market, "p_unsafe", 0.08),
        (river, "p_unsafe", 0.02),
        (insurance, "p_unsafe", 0.02),
        (flood, "p_unsafe", -0.02),
        (fog, "mean", 1.0),
        (windfall, "p_unsafe", 0.03),
        (late_cliff, "p_unsafe", 0.0),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_after_twenty_thousand_steps_replay_already_differs_from_q_learning_as_its_limit_does(world, measure, least):
    """20 seeds each, ε = 0.1: by how much more Q-learning's policies risk, or earn, on average."""
    mdp = world()
    found = []
    for learner in (sr.QLearning(), sr.ReplayQLearning(sr.VarianceReplay(beta=5.0), v=0.5, mixing="matched")):
        runs = sr.learn(mdp, learner, steps=20_000, seeds=20)
        found.append(np.mean([getattr(judged(mdp, Q), measure) for Q in runs.Q]))
    difference = found[0] - found[1]
    if least == 0.0:
        assert abs(difference) < 0.02
    else:
        assert difference / least > 1.0


def test_learned_replay_by_return_walks_round_where_the_papers_walks_the_edge():
    """20 seeds, 20,000 episodes, v = 0.5: P of the learned policies is 0.119 on the edge and below 0.04 a row up."""
    mdp = late_cliff()
    risks = []
    for scheme in (sr.VarianceReplay(beta=5.0), sr.ReturnReplay(beta=5.0)):
        runs = sr.learn(mdp, sr.ReplayQLearning(scheme, v=0.5, mixing="matched"), episodes=20_000, seeds=20)
        risks.append(np.array([judged(mdp, Q).p_unsafe for Q in runs.Q]))
    assert risks[0].min() > 0.1
    assert risks[1].max() < 0.04


# -- worlds of the literature on CVaR ---------------------------------------------------------------------------------


def best_play(final, stages, money=10, win=0.7, choose=max):
    """The best E[final(money)] of the betting game, by a dynamic program over stages and money that uses no model."""

    @cache
    def value(stage, m):
        if stage == stages:
            return float(final(m))
        return choose(win * value(stage + 1, m + b) + (1 - win) * value(stage + 1, m - b) for b in BETS if b <= m)

    return value(0, money)


@pytest.mark.parametrize("stages", [1, 4, 6])
def test_the_best_gambler_has_the_mean_of_a_dynamic_program(stages):
    mdp = betting_game(stages=stages)
    best, safest = (ceiling(mdp, max_p_unsafe=limit, start=mdp.origin) for limit in (1.0, 0.0))
    assert best.value == pytest.approx(best_play(lambda m: m - 10, stages))
    assert safest.best == pytest.approx(best_play(lambda m: m == 0, stages, choose=min), abs=1e-9)
    ruined = -1e9  # so large a loss that no best play runs the risk
    assert safest.value == pytest.approx(best_play(lambda m: m - 10 if m else ruined, stages))


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.5])
def test_the_largest_cvar_of_the_betting_game_is_that_of_a_dynamic_program(alpha):
    etas = range(-10, 51)  # every return of four stages: the best η is one of them
    cvar = max(eta - best_play(lambda m, eta=eta: max(eta - (m - 10), 0), 4, choose=min) / alpha for eta in etas)
    found = ceiling(betting_game(), min_cvar=-10.0, alpha=alpha, start=0)
    assert found.status == "optimal"
    assert found.best == pytest.approx(cvar)
    assert cvar == pytest.approx({0.1: 0.0, 0.2: 0.082, 0.5: 1.5566}[alpha])


def test_a_bet_that_the_player_cannot_pay_counts_as_none():
    mdp = betting_game(stages=2)
    poorest = mdp.outcomes(0, 3).s_next[0]  # after a loss of 5
    assert mdp.outcomes(0, 3).r.tolist() == [-5.0, 5.0]
    assert mdp.outcomes(poorest, 4).r.tolist() == [0.0]
    assert mdp.outcomes(poorest, 3).unsafe.tolist() == [True, False]


def test_the_two_ways_of_the_guarded_maze():
    mdp = guarded_maze()
    bold, careful = replayed(mdp, 0.0), replayed(mdp, 0.5)
    assert (bold.mean, bold.p_unsafe) == (pytest.approx(-5 + 16 - 0.05 * 64), pytest.approx(0.05))
    assert (careful.mean, careful.p_unsafe) == (pytest.approx(-13 + 16), 0.0)


@pytest.mark.parametrize("alpha", [0.04, 0.1, 0.39, 0.41, 0.6])
def test_the_largest_cvar_of_the_guarded_maze_is_that_of_the_better_way(alpha):
    """Of a lottery: 11, or −53 with probability 0.05; of a certain 3."""
    short = (min(alpha, 0.05) * -53 + max(alpha - 0.05, 0.0) * 11) / alpha
    mdp = guarded_maze()
    found = ceiling(mdp, min_cvar=-60.0, alpha=alpha, start=mdp.origin)
    assert found.status == "optimal"
    assert found.best == pytest.approx(max(short, 3.0))


def test_the_share_of_replay_from_which_the_guard_is_avoided():
    mdp = guarded_maze()
    short, long = (16 * 0.99**n - sum(0.99**k for k in range(n)) for n in (5, 13))
    seen = (short - long) / (64 * 0.99**3)  # the probability of the fee, after three moves, that makes them equal
    v = (seen - 0.05) / 0.95
    assert v == pytest.approx(0.092, abs=5e-4)
    assert [replayed(mdp, v + d).p_unsafe for d in (-0.001, 0.001)] == [pytest.approx(0.05), 0.0]
