from dataclasses import replace
from math import inf

import numpy as np
import pytest
from gambles import GAMBLE, STEEP, TAKE_6, WAIT, Worst, one_step
from random_models import random_model

import safereplay as sr
from safereplay.theory import theorem2
from safereplay.theory.chain import chain_of
from safereplay.theory.operator import operator
from safereplay.theory.theorem2 import assumption_1, critical_share, theorem_2


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
    assert (found.holds, found.premise, found.v_limit) == (False, 0, inf)
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
        assert found.v_limit == pytest.approx(0.4)
        assert found.holds is (True if predicted else None)


def test_under_literal_mixing_the_inequality_is_not_necessary_and_with_rho_for_v_it_is():
    """d(s,a) = ½: at v = 0.3, ρ = 0.3/(0.35 + 0.3) = 6/13, so Q* = 10·7/13 < 6; yet v·10 = 3 is below the gap of 4."""
    d = np.array([[0.5, 0.5], [0.0, 0.0]])
    found = theorem_2(TAKE_6, STEEP, 0.3, d)
    (state,) = found.states
    assert (state.rho, state.bound, state.bound_rho) == pytest.approx((6 / 13, 3.0, 60 / 13))
    assert (state.predicted, state.corrected, state.switched) == (False, True, True)
    assert state.v_switch == pytest.approx(0.25, abs=1.01e-6)  # ρ = v/(½(1−v) + v) = 0.4
    assert found.v_limit == pytest.approx(0.25)


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
    assert found.reason == "says nothing here: of all variance, no state's best action has more than 50.0%"
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
        patch.setattr(theorem2, "_first_switch", lambda mdp, *_: np.full(mdp.n_states, np.nan))
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
        assert x.predicted == x.corrected == x.switched == (theorem.v > theorem.v_limit)
        assert not x.broken
        assert theorem.holds is (True if x.switched else None)


def test_with_ways_back_only_the_corrected_inequality_agrees_on_300_random_models():
    found = premises(300, back=True)
    assert sum(x.way_back for x, _ in found) > 200
    assert all(x.corrected == x.switched == (theorem.v > theorem.v_limit) for x, theorem in found)
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
            assert theorem.v_limit > 1 - 2e-6
        else:
            assert 0 <= x.v_switch - theorem.v_limit < 1.1e-6
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
            chain = chain_of(mdp, np.full((mdp.n_states, mdp.n_actions), 1.0 / mdp.n_actions))
            if greedy[0] != 0 or not chain.ends[chain.active].all():  # without an end d has no equation
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
    assert found["v_limit"] is None
    assert found["states"][0]["bound"] == pytest.approx(5.0)
    point = assumption_1(WAIT, STEEP).to_dict()["points"][2]
    assert point["readings"][0]["witness"]["pairs"] == [[0, 0]]
    assert replace(theorem_2(WAIT, STEEP, 0.5), v_limit=0.5).to_dict()["v_limit"] == 0.5


def test_a_share_that_is_not_quite_1_refutes_nothing():
    """A sure 5.01 that ends, and 0.8 % of the variance elsewhere: gap 4.99 < bound 5, but ρ is a little below v = ½."""
    other = (2 * 100 * 0.008 / 0.992) ** 0.5 / 2**0.5
    rows = [*GAMBLE, (0, 1, 1.0, 1, 5.01, True), (2, 0, 0.5, 1, other, True), (2, 0, 0.5, 1, -other, True)]
    mdp = sr.TabularMDP.from_outcomes(3, 2, [*rows, (2, 1, 1.0, 1, -50.0, True)], gamma=0.9)
    found = theorem_2(mdp, sr.VarianceReplay(50.0), 0.5)
    x = found.states[0]
    assert (x.predicted, x.switched, x.way_back) == (True, False, False)
    assert found.holds is None
    assert "too near to call" in found.reason


def test_states_that_no_episode_comes_to_do_not_count():
    """State 2 gambles for more than state 0, but the start does not lead there."""
    rows = [*GAMBLE, (0, 1, 1.0, 1, 6.0, True), (2, 0, 0.5, 1, 900.0, True), (2, 0, 0.5, 1, -900.0, True)]
    mdp = sr.TabularMDP.from_outcomes(3, 2, [*rows, (2, 1, 1.0, 1, 0.0, True)], gamma=0.9, start=0)
    found = theorem_2(mdp, STEEP, 0.5)
    assert [x.s for x in found.states] == [0]
    assert (found.states[0].share, found.premise, found.holds) == (1.0, 0, True)
    assert assumption_1(mdp, STEEP).points[2].readings[0].compared == 1
