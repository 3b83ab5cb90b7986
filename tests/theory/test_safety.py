from dataclasses import dataclass, replace
from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_models import random_model

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.theory import safety
from safereplay.theory.operator import limit_weights, operator
from safereplay.theory.safety import assumption_1, critical_share, theorem_2

STEEP = sr.VarianceReplay(beta=800.0)  # rewards 1 apart: all of the tilt is on the worst, but for e^−800


@dataclass(frozen=True)
class Worst(sr.Scheme):
    """The limit that the paper's proof works with: pairs by variance, and only their worst reward."""

    @staticmethod
    def pair_weight(var):
        return var

    @staticmethod
    def log_tilt(r, r_min):
        return 0.0 if r == r_min else -np.inf


@dataclass(frozen=True)
class Often(sr.Scheme):
    """Pairs alike, rewards from low to high, next states by how often they were seen."""

    @staticmethod
    def log_tilt(r):
        return -0.1 * r

    @staticmethod
    def next_weight(count):
        return count


def one_step(*actions, gamma=0.9):
    """One state; each action is a dict {reward: probability, or {next state: probability}}, and ends the episode."""
    rows = []
    for a, rewards in enumerate(actions):
        for r, p in rewards.items():
            for s_next, q in (p if isinstance(p, dict) else {1: p}).items():
                rows.append((0, a, q, s_next, float(r), True))
    n_states = 1 + max(row[3] for row in rows)
    return sr.TabularMDP.from_outcomes(n_states, len(actions), rows, gamma=gamma, start=0)


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


# -- Theorem 2 --------------------------------------------------------------------------------------------------------

GAMBLE = [(0, 0, 0.5, 1, 20, True), (0, 0, 0.5, 1, 0, True)]  # worth 10, and 10·(1 − ρ) with replay
WAIT = sr.TabularMDP.from_outcomes(2, 2, [*GAMBLE, (0, 1, 1, 0, 0)], gamma=0.9, start=0)
TAKE_6 = sr.TabularMDP.from_outcomes(2, 2, [*GAMBLE, (0, 1, 1, 1, 6, True)], gamma=0.9, start=0)


@pytest.mark.parametrize("scheme", [STEEP, Worst()], ids=str)
def test_theorem_2_is_false_where_the_other_action_waits(scheme):
    """γ = 0.9: waiting is worth 9 of 10 without replay. At v = ½ the gamble falls to 5, and waiting with it, to 4.5.

    Gap 1, bound 5, so that a switch is promised; but 0.9·Q* never exceeds Q*. Worst() even meets Assumption 1 in full.
    """
    found = theorem_2(WAIT, scheme, v=0.5)
    (state,) = found.states
    assert (state.a, state.b, state.unique, state.share, state.way_back) == (0, 1, True, 1.0, True)
    assert state.w_worst == pytest.approx(1.0)
    assert (state.gap, state.bound, state.fall, state.needed) == pytest.approx((1.0, 5.0, 4.5, 5.5))
    assert (state.predicted, state.corrected, state.switched, state.broken) == (True, False, False, True)
    assert state.v_switch is None
    assert (found.holds, found.premise, found.v_exact) == (False, 0, inf)
    assert found.reason == "state 0: gap 1 < bound 5, yet the action stays"


def test_the_counterexample_meets_assumption_1_and_has_the_values_of_value_iteration():
    assert assumption_1(WAIT, Worst()).holds
    H = operator(WAIT, Worst(), 0.5)
    Q = np.zeros((2, 2))
    for _ in range(500):
        Q = H(Q)
    assert Q[0] == pytest.approx([5.0, 4.5])


def test_theorem_2_is_true_where_the_other_action_ends():
    """Q*(s,a) = 10·(1 − v) falls below 6 at v = 0.4."""
    for v, predicted in ((0.39, False), (0.41, True)):
        found = theorem_2(TAKE_6, STEEP, v)
        (state,) = found.states
        assert (state.gap, state.bound) == pytest.approx((4.0, 10 * v))
        assert state.predicted == state.corrected == state.switched == predicted
        assert not state.way_back
        assert state.v_switch == pytest.approx(0.4, abs=1.01e-6)
        assert state.v_switch > 0.4
        assert found.v_exact == pytest.approx(0.4)
        assert found.holds is (True if predicted else None)


def test_under_literal_mixing_the_inequality_is_not_necessary_and_with_rho_for_v_it_is():
    """d(s,a) = ½: at v = 0.3, ρ = 0.3/(0.35 + 0.3) = 6/13, so Q* = 10·7/13 < 6; yet v·10 = 3 is below the gap of 4."""
    d = np.array([[0.5, 0.5], [0.0, 0.0]])
    found = theorem_2(TAKE_6, STEEP, 0.3, d)
    (state,) = found.states
    assert (state.rho, state.bound, state.bound_rho) == pytest.approx((6 / 13, 3.0, 60 / 13))
    assert (state.predicted, state.corrected, state.switched) == (False, True, True)
    assert state.v_switch == pytest.approx(0.25, abs=1.01e-6)  # ρ = v/(½(1−v) + v) = 0.4
    assert found.v_exact == pytest.approx(0.25)


def test_under_literal_mixing_waiting_is_a_counterexample_too():
    """Uniform exploration: half of all iterations gamble, half wait. ρ = ⅔: the gamble falls to 10/3, waiting to 3."""
    (state,) = theorem_2(WAIT, STEEP, 0.5, uniform_visitation(WAIT)).states
    assert state.rho == pytest.approx(2 / 3)
    assert (state.gap, state.bound, state.needed) == pytest.approx((1.0, 5.0, 7.0))
    assert (state.predicted, state.broken, state.corrected, state.switched) == (True, True, False, False)


def test_with_two_volatile_pairs_alike_the_bound_is_too_generous():
    """Share ½ each: ρ = v·½/(1 − v + v·½) = ⅓ at v = ½, so the gamble falls to 6⅔ only, and 6 stays worse."""
    rows = [*GAMBLE, (0, 1, 1, 1, 6, True)] + [(2, *row[1:]) for row in [*GAMBLE, (0, 1, 1, 1, 6, True)]]
    found = theorem_2(sr.TabularMDP.from_outcomes(3, 2, rows, gamma=0.9), STEEP, 0.5)
    assert found.holds is None
    assert found.reason == "says nothing here: of all variance, no state's best action has more than 50%"
    for state in found.states:
        assert (state.share, state.rho, state.bound, state.bound_rho) == pytest.approx((0.5, 1 / 3, 5.0, 10 / 3))
        assert (state.predicted, state.corrected, state.switched, state.broken) == (True, False, False, True)
        assert state.v_switch == pytest.approx(4 / 7, abs=1.01e-6)  # ρ = 0.4


def volatile_choice(seed, back):
    """State 0 has one volatile action; all else is certain in its reward, not in where it leads.

    With ``back`` any state may lead anywhere. Without, no state leads to a lower one, and only the volatile action may
    lead back to state 0.
    """
    generator = np.random.default_rng(seed)
    S, A = 6, 3
    rows = []
    for s in range(S - 1):
        for a in range(A):
            r = float(generator.integers(-5, 6))
            low = 0 if back or (s, a) == (0, 0) else s + 1
            for p in generator.dirichlet(np.ones(3)):
                s_next = int(generator.integers(low, S))
                gain = float(generator.integers(-8, 16)) if (s, a) == (0, 0) else r
                rows.append((s, a, p, s_next, gain, s_next == S - 1, False))
    return sr.TabularMDP.from_outcomes(S, A, rows, gamma=float(generator.uniform(0.6, 0.95)))


def quick(mdp, v, d=None):
    """Theorem 2 without the search for the smallest v, which takes most of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safety, "_first_switch", lambda mdp, *_: np.full(mdp.n_states, np.nan))
        return theorem_2(mdp, STEEP, v, d)


def premises(count, back, judge=quick):
    """(state 0's row, theorem) of ``count`` models that meet the premise, v from 0.05 to 0.95."""
    found, seed = [], 0
    while len(found) < count:
        v = float(np.random.default_rng(10_000 + seed).uniform(0.05, 0.95))
        theorem = judge(volatile_choice(seed, back), v=v)
        if theorem.premise == 0:
            found.append((theorem.states[0], theorem))
        seed += 1
    return found


def test_without_a_way_back_inequality_and_switch_agree_on_300_random_models():
    found = premises(300, back=False)
    assert {x.way_back for x, _ in found} == {False}
    assert 60 < sum(x.switched for x, _ in found) < 240  # both outcomes, many times
    for x, theorem in found:
        assert x.predicted == x.corrected == x.switched == (theorem.v > theorem.v_exact)
        assert not x.broken
        assert theorem.holds is (True if x.switched else None)


def test_with_ways_back_only_the_corrected_inequality_agrees_on_300_random_models():
    found = premises(300, back=True)
    assert sum(x.way_back for x, _ in found) > 200
    assert all(x.corrected == x.switched == (theorem.v > theorem.v_exact) for x, theorem in found)
    assert sum(x.switched for x, _ in found) > 40
    broken = [x for x, _ in found if x.broken]
    assert len(broken) > 20  # the theorem, as it stands, is false here
    assert all(x.way_back and x.fall > 0 for x in broken)


@pytest.mark.parametrize("back", [False, True])
def test_the_smallest_v_found_by_search_is_the_closed_form(back):
    """20 random models; 1e-6 is the tolerance of the search."""
    searched = 0
    for x, theorem in premises(20, back, judge=lambda mdp, v: theorem_2(mdp, STEEP, v)):
        if x.v_switch is None:
            assert theorem.v_exact > 1 - 2e-6
        else:
            assert 0 <= x.v_switch - theorem.v_exact < 1.1e-6
            searched += 1
    assert searched > 5


def test_the_corrected_inequality_needs_no_premise_on_share():
    """Any number of volatile pairs, any v: where all of ŵ is on the worst reward, gap + fall < bound(ρ) is the switch."""
    seen = {True: 0, False: 0}
    for seed in range(90):
        mdp = random_model(seed)
        d = None if seed % 2 else uniform_visitation(mdp)
        for x in quick(mdp, 0.05 + 0.01 * seed, d).states:
            assert x.corrected == x.switched
            seen[x.switched] += 1
    assert min(seen.values()) > 30


def uniform_visitation(mdp, greedy=None, epsilon=1.0):
    """d(s,a) of ε-greedy exploration, by the balance of expected visits an episode: x = start + Pᵀ·x."""
    pi = np.full((mdp.n_states, mdp.n_actions), epsilon / mdp.n_actions)
    if greedy is not None:
        pi[np.arange(mdp.n_states), greedy] += 1.0 - epsilon
    P = np.zeros((mdp.n_states, mdp.n_states))
    s, a = np.divmod(mdp.pair, mdp.n_actions)
    np.add.at(P, (s, mdp.s_next), np.where(mdp.terminal, 0.0, mdp.p * pi[s, a]))
    x = np.linalg.solve(np.eye(mdp.n_states) - P.T, mdp.start)
    d = x[:, None] * pi
    return d / d.sum()


@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_under_literal_mixing_there_is_no_counterexample_without_a_way_back_and_some_with(epsilon):
    """300 random models each way, d(s,a) of ε-greedy exploration of Q₀, by a linear solve.

    ρ ≥ v there, as d ≤ 1: so the bound is at most the true fall of Q(s,a), and the implication keeps its sense.
    """
    broken = {}
    for back in (False, True):
        counts = []
        for seed in range(300):
            mdp = volatile_choice(seed, back)
            greedy = sr.exact(mdp, sr.QLearning()).argmax(1)
            if greedy[0] != 0:
                continue
            d = uniform_visitation(mdp, greedy, epsilon)
            x = quick(mdp, 0.3, d).states[0]
            assert x.corrected == x.switched
            counts.append((x.predicted, x.broken))
        assert sum(predicted for predicted, _ in counts) > 20
        broken[back] = sum(b for _, b in counts)
    assert broken[False] == 0
    assert broken[True] > 0


def test_the_papers_grids_are_far_from_the_premise_and_the_inequality_promises_too_much_there():
    found = {g.name: theorem_2(g, sr.VarianceReplay(5.0), 0.5) for g in (sr.grids.volatile(), sr.grids.cliff())}
    counts = {name: [x.count(k) for k in ("predicted", "corrected", "switched")] for name, x in found.items()}
    assert counts == {"volatile": [12, 7, 7], "cliff": [13, 1, 1]}
    assert {name: x.holds for name, x in found.items()} == {"volatile": None, "cliff": None}
    assert max(x.share for x in found["cliff"].states) < 0.04


def test_the_smallest_v_of_every_state_is_where_the_fixed_points_policy_changes():
    """An independent look: just below each reported v the policy still has a, at it no longer."""
    mdp, scheme = sr.grids.cliff(), sr.VarianceReplay(5.0)
    states = [x for x in theorem_2(mdp, scheme, 0.5).states if x.v_switch is not None]
    assert len(states) == 4
    for x in states:
        before, after = (sr.fixed_point(mdp, scheme, v)[x.s] for v in (x.v_switch - 2e-6, x.v_switch + 1e-8))
        assert before.argmax() == x.a
        assert after.argmax() != x.a


def test_the_first_switch_is_found_where_it_is_undone_later():
    """Two random models: the policy leaves a at the v found, and is back with it at v = 0.9."""
    scheme = sr.VarianceReplay(0.5)
    for seed, s, a, v in ((33, 1, 1, 0.378725), (39, 4, 0, 0.793659)):
        mdp = random_model(seed)
        (x,) = [x for x in theorem_2(mdp, scheme, 0.9).states if x.s == s]
        assert (x.a, x.switched) == (a, False)
        assert x.v_switch == pytest.approx(v, abs=2e-6)
        assert sr.fixed_point(mdp, scheme, x.v_switch - 2e-6)[s].argmax() == a
        assert sr.fixed_point(mdp, scheme, x.v_switch + 1e-6)[s].argmax() != a


def test_ties_are_not_unique_and_a_tied_action_leaves_at_once():
    rows = [*GAMBLE, (0, 1, 1, 1, 10, True)]
    (state,) = theorem_2(sr.TabularMDP.from_outcomes(2, 2, rows, start=0), STEEP, 0.5).states
    assert (state.unique, state.gap, state.switched) == (False, 0.0, True)
    assert 0 < state.v_switch < 2e-6


def test_a_tilt_that_leaves_the_worst_reward_is_no_premise():
    found = theorem_2(TAKE_6, sr.VarianceReplay(0.01), 0.5)
    assert found.states[0].share == 1.0
    assert (found.holds, found.premise) == (None, None)
    assert found.reason == "says nothing here: too little of w is on the worst reward of the volatile pair"


def test_the_critical_share_of_actions_never_left_and_never_taken():
    assert critical_share(WAIT, 0, 0) == inf
    assert critical_share(TAKE_6, 0, 0) == pytest.approx(0.4)
    assert critical_share(TAKE_6, 0, 1) == 0.0
    certain = sr.TabularMDP.from_outcomes(2, 2, [(0, 0, 1, 1, 9, True), (0, 1, 1, 1, 6, True)], start=0)
    assert critical_share(certain, 0, 0) == inf  # it has no worse reward than its own


def test_a_model_of_one_action_has_nothing_to_switch_to():
    found = theorem_2(one_step({0: 0.5, 1: 0.5}), STEEP, 0.5)
    assert (found.holds, found.states) == (None, ())


def test_outcomes_alike_but_for_their_flag_are_one_next_state():
    rows = [(0, 0, 0.3, 1, 0.0, True, True), (0, 0, 0.2, 1, 0.0, True, False), (0, 0, 0.5, 1, 20.0, True)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, [*rows, (0, 1, 1, 1, 6, True)], start=0)
    assert theorem_2(mdp, STEEP, 0.5).states[0].bound == pytest.approx(5.0)
    assert assumption_1(mdp, Worst()).points[2].holds


def test_parts_go_to_plain_json():
    import json

    found = theorem_2(WAIT, STEEP, 0.5).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["v_exact"] is None
    assert found["states"][0]["bound"] == pytest.approx(5.0)
    point = assumption_1(WAIT, STEEP).to_dict()["points"][2]
    assert point["readings"][0]["witness"]["pairs"] == [[0, 0]]
    assert replace(theorem_2(WAIT, STEEP, 0.5), v_exact=0.5).to_dict()["v_exact"] == 0.5
