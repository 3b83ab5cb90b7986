"""FrozenLake, CliffWalking and Taxi: Gymnasium's tables, against what is known of them."""

import itertools

import numpy as np
import pytest
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv
from gymnasium.envs.toy_text.taxi import TaxiEnv

import safereplay as sr
from safereplay.theory.constrained import ceiling
from safereplay.worlds import cliff_walking, lake, taxi


def bold(mdp):
    return sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=mdp.origin)


# -- FrozenLake -------------------------------------------------------------------------------------------------------


def test_the_small_lake_is_the_grid_of_that_name():
    ours, theirs = sr.grids.frozen_lake(), lake(0.95, size="4x4")
    for column in ("row", "s_next", "r", "terminal", "unsafe", "start"):
        np.testing.assert_array_equal(getattr(ours, column), getattr(theirs, column), err_msg=column)
    np.testing.assert_allclose(ours.p, theirs.p, rtol=1e-12)
    assert ours.layout == theirs.layout


def test_on_the_small_lake_nobody_falls_less_often_than_3_times_in_17():
    """The 0.82 that solvers of this lake are known to level off at is 14/17."""
    assert ceiling(lake(size="4x4"), max_p_unsafe=0.0).best == pytest.approx(3 / 17)


def test_the_large_lake_is_that_of_gymnasium():
    """Value iteration on Gymnasium's own table, with its own actions."""
    env, gamma = FrozenLakeEnv(map_name="8x8", is_slippery=True), 0.99
    nothing = [(0.0, 0, 0.0, True)] * 2  # where the episode is over, P has one outcome of three
    table = [[(env.P[s][a] + nothing)[:3] for a in range(4)] for s in range(64)]
    p, to, r, end = np.array(table).transpose(3, 0, 1, 2)
    V = np.zeros(64)
    for _ in range(3_000):
        means = (p * (r + gamma * V[to.astype(int)] * (1.0 - end))).sum(2)
        V = means.max(1)
    Q = sr.exact(lake(), sr.QLearning())
    np.testing.assert_allclose(Q, means[:, ::-1], atol=1e-9)


def test_on_the_large_lake_somebody_patient_never_falls():
    safest = ceiling(lake(), max_p_unsafe=0.0)
    assert safest.status == "optimal"
    assert safest.value == pytest.approx(1.0)


def test_replay_by_the_variance_of_rewards_changes_nothing_on_either_lake():
    for size, v in itertools.product(("4x4", "8x8"), (0.25, 0.5, 0.9)):
        mdp = lake(size=size)
        replayed = sr.fixed_point(mdp, sr.VarianceReplay(beta=5.0), v).argmax(1)
        found = sr.evaluate(mdp, replayed, start=mdp.origin)
        assert found.p_unsafe == pytest.approx(bold(mdp).p_unsafe, abs=1e-9)


def test_a_lake_that_is_not_slippery_has_no_danger_for_who_knows_it():
    assert bold(lake(slippery=False)).p_unsafe == 0.0


# -- CliffWalking -----------------------------------------------------------------------------------------------------


def test_the_best_walk_is_thirteen_steps_along_the_edge():
    """Sutton & Barto (2018), Example 6.6: up, eleven to the right, down."""
    mdp = cliff_walking()
    found = sr.path(mdp, sr.exact(mdp, sr.QLearning()).argmax(1))
    assert found.states == (36, *range(24, 36), 47)
    assert bold(mdp).mean == -13.0
    assert mdp.layout is not None


def test_where_moves_slip_the_best_policy_bumps_into_walls_and_never_falls():
    mdp = cliff_walking(slippery=True)
    Q = sr.exact(mdp, sr.QLearning())
    assert Q[36].argmax() == 3, "left, into the wall: a slip goes up, or down, and stays"
    assert bold(mdp).p_unsafe == ceiling(mdp, max_p_unsafe=0.0, start=36).best == 0.0
    assert bold(mdp).mean == pytest.approx(-64.709, abs=5e-4)


def test_a_fall_costs_a_hundred_and_goes_back_to_the_start():
    q = cliff_walking().outcomes(36, 1)
    assert (q.r[0], q.s_next[0], q.terminal[0], q.unsafe[0]) == (-100.0, 36, False, True)


# -- Taxi -------------------------------------------------------------------------------------------------------------


def distances():
    """Steps between the 25 cells of Taxi's map, by search over its walls alone."""
    lines = ["|R: | : :G|", "| : | : : |", "| : : : : |", "| | : | : |", "|Y| : |B: |"]
    steps = np.full((25, 25), np.inf)
    for i, j in itertools.product(range(5), range(5)):
        steps[5 * i + j, 5 * i + j] = 0
        if i < 4:
            steps[5 * i + j, 5 * i + j + 5] = steps[5 * i + j + 5, 5 * i + j] = 1
        if j < 4 and lines[i][2 * j + 2] == ":":
            steps[5 * i + j, 5 * i + j + 1] = steps[5 * i + j + 1, 5 * i + j] = 1
    for k in range(25):
        steps = np.minimum(steps, steps[:, [k]] + steps[[k]])
    return steps


def test_the_best_fares_are_those_of_shortest_ways():
    """A fare is 20 − 1 a move − 1 for picking up: 21 − (moves there + moves to the destination + 2)."""
    mdp, steps = taxi(), distances()
    stands = [0, 4, 20, 23]
    Q, env = sr.exact(mdp, sr.QLearning()), TaxiEnv()
    total = []
    for s in np.flatnonzero(mdp.start):
        i, j, passenger, destination = env.decode(int(s))
        fare = 19.0 - steps[5 * i + j, stands[passenger]] - steps[stands[passenger], stands[destination]]
        assert sr.evaluate(mdp, Q.argmax(1), start=int(s)).mean == pytest.approx(fare)
        total.append(fare)
    assert len(total) == 300
    assert sr.evaluate(mdp, Q.argmax(1)).mean == pytest.approx(np.mean(total))
    assert np.mean(total) == pytest.approx(7.93, abs=5e-3)


def test_nothing_varies_so_cautious_limits_are_those_of_q_learning():
    mdp = taxi()
    Q = sr.exact(mdp, sr.QLearning())
    for cautious in (sr.fixed_point(mdp, sr.VarianceReplay(), 0.9), sr.exact(mdp, sr.RiskSensitive(0.9))):
        np.testing.assert_allclose(cautious, Q, atol=1e-8)
    assert sr.evaluate(mdp, Q.argmax(1)).p_unsafe == 0.0


def test_illegal_orders_are_what_is_unsafe():
    """Setting down nobody (400), or not at a stand (84); picking up where nobody waits (384), or twice (100)."""
    mdp = taxi()
    assert mdp.unsafe.sum() == 400 + 84 + 384 + 100
    assert set(mdp.r[mdp.unsafe]) == {-10.0}
    assert set(mdp.pair[mdp.unsafe] % 6) == {4, 5}
