from dataclasses import dataclass
from math import exp, inf, log

import numpy as np
import pytest
from gambles import Often, Worst, one_step
from hypothesis import given
from hypothesis import strategies as st
from random_models import random_model

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.theory.operator import limit_weights
from safereplay.theory.theorem2 import assumption_1, theorem_2


def reading(point, name):
    (found,) = [x for x in point.readings if x.name.startswith(name)]
    return found


# -- Assumption 1, point 1 --------------------------------------------------------------------------------------------

BEST_OF_ONE_WORST_OF_THE_OTHER = one_step({-10: 0.5, 0: 0.5}, {0: 0.5, 4: 0.5})  # variances 25 and 4


def test_variance_replay_fails_point_1_where_a_reward_is_the_best_of_a_volatile_pair_and_the_worst_of_a_calm_one():
    point = assumption_1(BEST_OF_ONE_WORST_OF_THE_OTHER, sr.VarianceReplay(beta=1.0)).points[0]
    witness = point.readings[0].witness
    assert point.holds is False
    assert witness.pairs == ((0, 0), (0, 1))
    assert witness.rewards == (0.0,)
    assert witness.w == pytest.approx((25 / 29 / (1 + exp(10)), 4 / 29 / (1 + exp(-4))), rel=1e-9)
    assert "(s=0, a=0) varies more than (s=0, a=1), 25 > 4, but w(·, r=0) is 3.91e-05 there" in witness.text
    assert reading(point, "summed over rewards").holds  # W = var/Σvar itself is in order


def test_a_gentle_tilt_keeps_point_1_on_the_same_model():
    """25/4·(1 + e^−4β)/(1 + e^10β) is above 1 for β < 0.2022…, where both sides meet."""
    ratio = {beta: 25 / 4 * (1 + exp(-4 * beta)) / (1 + exp(10 * beta)) for beta in (0.0, 0.1, 0.2, 0.21)}
    assert {beta: r > 1 for beta, r in ratio.items()} == {0.0: True, 0.1: True, 0.2: True, 0.21: False}
    for beta, r in ratio.items():
        point = assumption_1(BEST_OF_ONE_WORST_OF_THE_OTHER, sr.VarianceReplay(beta)).points[0]
        assert point.holds == (r > 1)


def test_without_a_tilt_point_1_fails_where_the_volatile_pair_has_more_rewards():
    quarter = {-3: 0.25, -1: 0.25, 1: 0.25, 3: 0.25}  # variance 5, against 4
    point = assumption_1(one_step(quarter, {-1: 0.5, 3: 0.5}), sr.VarianceReplay(beta=0.0)).points[0]
    assert point.holds is False
    assert point.readings[0].broken == 2  # at r = −1 and at r = 3
    assert point.readings[0].witness.w == pytest.approx((5 / 9 / 4, 4 / 9 / 2))


def test_pairs_of_equal_variance_are_not_compared_even_when_rounding_tells_them_apart():
    equal = one_step({-1: 0.5, 1: 0.5}, {1: 0.5, 3: 0.5})
    assert assumption_1(equal, sr.VarianceReplay(beta=9.0)).points[0].readings[0].compared == 0
    mdp = one_step({-12: 0.025, -1: 0.975}, {-1: 0.975, 10: 0.025})  # both vary by 121·0.025·0.975
    assert np.unique(mdp.reward_variance[0]).size == 2
    point = assumption_1(mdp, sr.VarianceReplay(beta=9.0)).points[0]
    assert [x.compared for x in point.readings] == [0, 0, 0, 0]
    assert point.holds


def test_no_scheme_meets_point_1_at_every_reward_once_a_calm_pair_has_one_of_its_own():
    mdp = one_step({-9: 0.5, 9: 0.5}, {1: 1.0})
    for scheme in (sr.VarianceReplay(beta=1.0), sr.Scheme(), Worst()):
        point = assumption_1(mdp, scheme).points[0]
        every = reading(point, "at each reward that either")
        assert point.holds
        assert not every.holds
        assert every.witness.pairs == ((0, 0), (0, 1))
        assert every.witness.rewards == (1.0,)
        assert every.witness.log_w[0] == -inf


def test_next_states_can_break_point_1_one_by_one_where_the_sum_is_in_order():
    mdp = one_step({-3: {1: 0.25, 2: 0.25}, 3: {1: 0.5}}, {-3: {1: 0.5}, 2: {1: 0.5}})  # variances 9 and 6.25
    point = assumption_1(mdp, sr.VarianceReplay(beta=1.0)).points[0]
    assert point.holds
    each = reading(point, "at each reward and next state")
    assert not each.holds
    assert (each.witness.rewards, each.witness.s_next) == ((-3.0,), (1,))
    assert each.witness.w == pytest.approx((9 / 15.25 / (1 + exp(-6)) / 2, 6.25 / 15.25 / (1 + exp(-5))))


def test_equal_weights_are_not_higher_weights():
    point = assumption_1(one_step({-3: 0.5, 3: 0.5}, {-3: 0.9, 3: 0.1}), sr.Scheme()).points[0]
    assert not point.holds
    assert not reading(point, "summed over rewards").holds


# -- Assumption 1, point 2 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("beta", "holds"), [(2.0, True), (1e-12, True), (0.0, False), (-1.0, False)])
def test_point_2_holds_for_a_positive_beta_only(beta, holds):
    point = assumption_1(one_step({-1: 0.5, 1: 0.5}, {0: 1.0}), sr.VarianceReplay(beta)).points[1]
    assert point.holds is holds
    if not holds:
        low, high = exp(beta), exp(-beta)
        assert point.readings[0].witness.rewards == (-1.0, 1.0)
        assert point.readings[0].witness.w == pytest.approx((low / (low + high), high / (low + high)))


@pytest.mark.parametrize(("beta", "holds"), [(0.69, False), (0.70, True)])
def test_point_2_outcome_by_outcome_depends_on_how_many_next_states_a_reward_has(beta, holds):
    """Reward 0 leads to two states, 1 to one of them: e^0/2 against e^−β, which meet at β = ln 2 = 0.6931…"""
    point = assumption_1(one_step({0: {1: 0.25, 2: 0.25}, 1: {1: 0.5}}), sr.VarianceReplay(beta)).points[1]
    assert point.holds
    assert reading(point, "for each next state").holds is holds
    assert reading(point, "for any two outcomes").holds is holds


def test_any_two_outcomes_is_more_than_each_next_state():
    point = assumption_1(one_step({0: {1: 0.25, 2: 0.25}, 1: {3: 0.5}}), sr.VarianceReplay(0.5)).points[1]
    assert reading(point, "for each next state").compared == 0
    found = reading(point, "for any two outcomes")
    assert (found.holds, found.witness.s_next) == (False, (1, 3))


def test_a_tie_by_underflow_is_not_a_tie():
    mdp = one_step({0: 0.4, 500: 0.3, 600: 0.3})
    w = limit_weights(mdp, sr.VarianceReplay(beta=5.0))
    assert w[1] == w[2] == 0.0
    assert assumption_1(mdp, sr.VarianceReplay(beta=5.0)).points[1].holds


# -- Assumption 1, point 3 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beta", [0.5, 5.0, 1000.0])
def test_variance_replay_fails_point_3_for_every_finite_beta(beta):
    """What is missing is the softmax share of the better reward: e^−β/(1 + e^−β), which 1 − w cannot even show."""
    point = assumption_1(one_step({0: 0.5, 1: 0.5}, {0: 0.9, 1: 0.1}), sr.VarianceReplay(beta)).points[2]
    witness = point.readings[0].witness
    assert point.holds is False
    assert point.readings[0].broken == 2
    assert witness.w == pytest.approx((1 / (1 + exp(-beta)), 1.0))
    missing = float(witness.text.rsplit(" by ", 1)[1].replace("10^", "1e"))
    assert missing == pytest.approx(
        10 ** (-beta / log(10)) / (1 + exp(-beta)) if beta < 700 else 1e-434, rel=0.01, abs=0
    )


def test_variance_replay_meets_point_3_as_a_pairs_own_rewards_spread():
    mdp = one_step({0: 0.5, 1: 0.5}, {0: 0.9, 900: 0.1})
    for beta, holds in ((0.01, True), (0.0, False), (-0.01, False)):
        point = assumption_1(mdp, sr.VarianceReplay(beta)).points[2]
        assert reading(point, "as the pair's own rewards spread").holds is holds


def test_a_scheme_of_the_worst_reward_alone_meets_point_3_and_with_two_rewards_a_pair_all_of_assumption_1():
    two = one_step({-10: {1: 0.25, 2: 0.25}, 0: 0.5}, {1: 0.5, 4: 0.5})
    assert assumption_1(two, Worst()).holds
    three = one_step({-10: 0.5, 0: 0.25, 5: 0.25})
    assert [p.holds for p in assumption_1(three, Worst()).points] == [True, False, True]  # 0 and 5 both weigh nothing


def test_a_scheme_that_replays_calm_pairs_fails_point_3_by_what_they_take():
    point = assumption_1(one_step({0: 0.5, 1: 0.5}, {5: 1.0}, {6: 1.0}), sr.Scheme()).points[2]
    assert point.readings[0].witness.w == pytest.approx((1 / 3 * 1 / 2, 1.0))


def brute_force(mdp, scheme):
    """Points 1 to 3 by loops over all pairs of everything, in plain floats; what holds, and how often it does not."""
    w, var = limit_weights(mdp, scheme), mdp.reward_variance.ravel()
    pairs = [i for i in range(mdp.n_pairs) if mdp.row[i] < mdp.row[i + 1]]
    of = {i: {} for i in pairs}
    by_place = {i: {} for i in pairs}
    for k in range(mdp.r.size):
        i, r, place = int(mdp.pair[k]), float(mdp.r[k]), (float(mdp.r[k]), int(mdp.s_next[k]), bool(mdp.terminal[k]))
        of[i][r] = of[i].get(r, 0.0) + w[k]
        by_place[i][place] = by_place[i].get(place, 0.0) + w[k]

    def point_1(weights):
        worse = {
            (i, x) for i in pairs for j in pairs if var[i] > var[j] * (1 + 1e-9) for x in weights[i]
            if x in weights[j] and not weights[i][x] > weights[j][x] * (1 + 1e-9)
        }  # fmt: skip
        return len(worse)

    rising = [not of[i][r] > of[i][r2] for i in pairs for r, r2 in zip(sorted(of[i]), sorted(of[i])[1:], strict=False)]
    any_two = [
        not by_place[i][x] > by_place[i][y] for i in pairs for x in by_place[i] for y in by_place[i] if x[0] < y[0]
    ]
    each = [
        not by_place[i][x] > by_place[i][y] for i in pairs for x in by_place[i] for y in by_place[i]
        if x[0] < y[0] and x[1:] == y[1:]
    ]  # fmt: skip
    return point_1(of), point_1(by_place), sum(rising), any(each), any(any_two)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scheme", [sr.VarianceReplay(0.1), sr.VarianceReplay(-0.2), sr.Scheme(), Often()], ids=str)
def test_points_1_and_2_agree_with_loops_over_all_pairs_of_pairs(seed, scheme):
    mdp = random_model(seed, n_states=7, n_actions=3)
    found = assumption_1(mdp, scheme)
    first, second = found.points[:2]
    shared, per_place, rising, each, any_two = brute_force(mdp, scheme)
    assert (first.readings[0].broken, first.readings[1].broken) == (shared, per_place)
    assert second.readings[0].broken == rising
    assert second.readings[1].holds == (not each)
    assert second.readings[2].holds == (not any_two)


def calmed(mdp, i):
    """The model with every pair but i giving its mean reward for sure."""
    mean = mdp.expect(mdp.r).ravel()
    r = np.where(mdp.pair == i, mdp.r, mean[mdp.pair])
    rows = np.column_stack([*np.divmod(mdp.pair, mdp.n_actions), mdp.p, mdp.s_next, r, mdp.terminal, mdp.unsafe])
    return sr.TabularMDP.from_outcomes(mdp.n_states, mdp.n_actions, rows, mdp.gamma)


@pytest.mark.parametrize("scheme", [sr.VarianceReplay(0.1), sr.Scheme(), Often()], ids=str)
def test_point_3_agrees_with_models_rebuilt_pair_by_pair(scheme):
    """The least w(s,a,s',r_min)·|S_rmin| over all volatile pairs and s', on six random models."""
    for seed in range(6):
        mdp = random_model(seed, n_states=5, n_actions=2)
        least = inf
        for i in np.flatnonzero(mdp.reward_variance.ravel() > 0):
            calm = calmed(mdp, i)
            w = limit_weights(calm, scheme)
            worst = (calm.pair == i) & (calm.r == calm.r[calm.pair == i].min())
            least = min(least, float(w[worst].min() * worst.sum()))
        witness = assumption_1(mdp, scheme).points[2].readings[0].witness
        assert witness.w[0] / witness.w[1] == pytest.approx(least, rel=1e-6)


@given(st.floats(0.01, 50), st.integers(0, 40))
def test_variance_replay_with_a_positive_beta_always_meets_point_2_and_never_point_3(beta, seed):
    found = assumption_1(random_model(seed, n_states=4, n_actions=2), sr.VarianceReplay(beta))
    assert found.points[1].holds
    assert not found.points[2].holds
    assert not found.holds


def test_the_papers_own_grids_do_not_meet_assumption_1():
    failed = {
        grid.name: [
            k for k, point in enumerate(assumption_1(grid, sr.VarianceReplay(5.0)).points, 1) if not point.holds
        ]
        for grid in (sr.grids.volatile(), sr.grids.cliff())
    }
    assert failed == {"volatile": [3], "cliff": [1, 3]}


def test_ten_thousand_pairs_are_no_trouble():
    """3,600 states, 14,400 pairs, 7 rewards shared by most: all pairs of pairs would be 10^8 comparisons a reward."""
    generator = np.random.default_rng(0)
    s, a, _ = (x.ravel() for x in np.meshgrid(np.arange(3600), np.arange(4), np.arange(3), indexing="ij"))
    p = generator.dirichlet(np.ones(3), 3600 * 4).ravel()
    rows = np.column_stack(
        [s, a, p, generator.integers(0, 3600, s.size), generator.integers(-3, 4, s.size), 0 * s, 0 * s]
    )
    mdp = sr.TabularMDP.from_outcomes(3600, 4, rows)
    found = assumption_1(mdp, sr.VarianceReplay(0.1))
    assert found.points[0].readings[0].compared > 10_000
    assert [p.holds for p in found.points] == [False, True, False]


def test_a_scheme_without_a_limit_and_bad_arguments_are_named():
    @dataclass(frozen=True)
    class Surprise(sr.Scheme):
        @staticmethod
        def pair_weight(td):
            return abs(td)

    with pytest.raises(BadInput, match="scheme must depend neither on TD errors nor on visits, to have a limit"):
        assumption_1(sr.grids.cliff(), Surprise())
    with pytest.raises(BadInput, match="scheme must be a Scheme, got 'variance'"):
        assumption_1(sr.grids.cliff(), "variance")
    with pytest.raises(BadInput, match="mdp must be a TabularMDP, got 'cliff'"):
        assumption_1("cliff", sr.VarianceReplay())
    with pytest.raises(BadInput, match=r"v must be in \[0, 1\), got 1"):
        theorem_2(sr.grids.cliff(), sr.VarianceReplay(), 1.0)
