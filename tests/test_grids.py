import re
from itertools import pairwise

import numpy as np
import pytest
from drawn import outcomes

import safereplay as sr
from safereplay import grids

UP, RIGHT, DOWN, LEFT = range(4)


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


# -- the paper's grids, by hand -----------------------------------------------------------------------------------------


def test_the_volatile_grid_is_the_papers():
    mdp = grids.volatile()
    assert (mdp.n_states, mdp.n_actions, mdp.gamma, mdp.layout.shape, mdp.name) == (20, 4, 0.9, (4, 5), "volatile")
    for column in range(3):
        assert outcomes(mdp, (1, column), RIGHT) == {
            ((1, column + 1), 100.0, False, False): pytest.approx(0.6),
            ((1, column + 1), -100.0, False, True): pytest.approx(0.4),
        }
    for cell, a in [((1, 3), RIGHT), ((0, 4), DOWN), ((2, 4), UP)]:
        assert outcomes(mdp, cell, a) == {((1, 4), 150.0, True, False): 1.0}
    assert outcomes(mdp, (1, 1), LEFT) == {((1, 0), -1.0, False, False): 1.0}
    assert outcomes(mdp, (0, 0), UP) == {((0, 0), -1.0, False, False): 1.0}
    assert np.flatnonzero(mdp.is_terminal).tolist() == [mdp.layout.state_at(1, 4)]
    assert mdp.layout.cells[mdp.origin] == (1, 0)
    assert mdp.start.tolist() == pytest.approx([0 if s == 9 else 1 / 19 for s in range(20)])
    assert mdp.unsafe.sum() == 3


def test_the_cliff_is_the_papers():
    mdp = grids.cliff()
    assert (mdp.n_states, mdp.gamma, mdp.layout.shape, mdp.name) == (24, 0.95, (4, 6), "cliff")
    # in the open, 'right': 0.9 + 0.1/4 that way, 0.1/4 each other way
    assert outcomes(mdp, (1, 2), RIGHT) == {
        ((0, 2), -1.0, False, False): pytest.approx(0.025),
        ((1, 3), -1.0, False, False): pytest.approx(0.925),
        ((2, 2), -1.0, False, False): pytest.approx(0.025),
        ((1, 1), -1.0, False, False): pytest.approx(0.025),
    }
    # at the start, 'up': a slip to the right falls; left and down stay
    assert outcomes(mdp, (3, 0), UP) == {
        ((2, 0), -1.0, False, False): pytest.approx(0.925),
        ((3, 1), -12.0, True, True): pytest.approx(0.025),
        ((3, 0), -1.0, False, False): pytest.approx(0.05),
    }
    # along the edge a slip down falls
    assert outcomes(mdp, (2, 3), RIGHT)[(3, 3), -12.0, True, True] == pytest.approx(0.025)
    # a move into the goal never slips; a slip may still find it
    assert outcomes(mdp, (2, 5), DOWN) == {((3, 5), 10.0, True, False): 1.0}
    assert outcomes(mdp, (2, 5), LEFT)[(3, 5), 10.0, True, False] == pytest.approx(0.025)
    assert mdp.layout.cells[mdp.origin] == (3, 0)
    assert mdp.is_terminal.sum() == 5


def test_a_slip_to_one_of_the_others_leaves_the_chosen_way_its_nine_tenths():
    assert outcomes(grids.cliff(slip_to="others"), (1, 2), RIGHT) == {
        ((0, 2), -1.0, False, False): pytest.approx(0.1 / 3),
        ((1, 3), -1.0, False, False): pytest.approx(0.9),
        ((2, 2), -1.0, False, False): pytest.approx(0.1 / 3),
        ((1, 1), -1.0, False, False): pytest.approx(0.1 / 3),
    }


def test_a_move_into_the_goal_can_slip_when_asked_to():
    found = outcomes(grids.cliff(goal_slips=True), (2, 5), DOWN)
    assert found == {
        ((3, 5), 10.0, True, False): pytest.approx(0.925),
        ((1, 5), -1.0, False, False): pytest.approx(0.025),
        ((2, 5), -1.0, False, False): pytest.approx(0.025),
        ((2, 4), -1.0, False, False): pytest.approx(0.025),
    }


def test_a_fall_can_put_the_agent_back_to_the_start():
    mdp = grids.cliff(fall_ends=False)
    assert outcomes(mdp, (2, 3), DOWN)[(3, 0), -12.0, False, True] == pytest.approx(0.925)
    assert outcomes(mdp, (3, 0), RIGHT) == {
        ((3, 0), -12.0, False, True): pytest.approx(0.925),
        ((2, 0), -1.0, False, False): pytest.approx(0.025),
        ((3, 0), -1.0, False, False): pytest.approx(0.05),
    }
    assert not mdp.terminal[mdp.unsafe].any()


def test_rewards_and_slip_are_options():
    mdp = grids.cliff(goal=7.0, step=-2.0, hazard=-50.0, slip=0.4)
    assert set(mdp.r.tolist()) == {7.0, -2.0, -50.0}
    assert outcomes(mdp, (1, 2), UP)[(0, 2), -2.0, False, False] == pytest.approx(0.7)
    mdp = grids.volatile(rewards=[(0.5, 9.0), (0.25, 0.0), (0.25, -9.0)], goal=1.0, step=0.0)
    assert outcomes(mdp, (1, 0), RIGHT) == {
        ((1, 1), 9.0, False, False): 0.5,
        ((1, 1), 0.0, False, False): 0.25,
        ((1, 1), -9.0, False, True): 0.25,
    }


def test_a_volatile_grid_can_slip_too():
    found = outcomes(grids.volatile(slip=0.2), (1, 1), RIGHT)
    assert found[(1, 2), 100.0, False, False] == pytest.approx(0.85 * 0.6)
    assert found[(1, 2), -100.0, False, True] == pytest.approx(0.85 * 0.4)
    assert found[(0, 1), -1.0, False, False] == pytest.approx(0.05)
    assert outcomes(grids.volatile(slip=0.2), (0, 1), LEFT)[(0, 2), -1.0, False, False] == pytest.approx(0.05)


@pytest.mark.parametrize("name", grids.VOLATILE_LAYOUTS)
def test_every_reading_of_the_first_figure_is_a_model_whose_right_hand_way_is_risky(name):
    mdp = grids.volatile(layout=name)
    assert mdp.layout.shape == (4, 5)
    assert mdp.n_states == 20
    assert sr.verdict(mdp, [RIGHT] * 20) == "risky"
    assert mdp.layout.text[mdp.layout.text.index(">") :][0] == ">"
    i, j = mdp.layout.cells[mdp.origin]
    assert mdp.layout.rows[i][j] == ">"


@pytest.mark.parametrize("name", grids.CLIFF_LAYOUTS)
@pytest.mark.parametrize("fall_ends", [True, False])
@pytest.mark.parametrize("slip_to", ["any", "others", "sides", "down"])
def test_every_reading_of_the_second_figure_is_a_model(name, fall_ends, slip_to):
    mdp = grids.cliff(layout=name, fall_ends=fall_ends, slip_to=slip_to)
    i, j = mdp.layout.cells[mdp.origin]
    assert mdp.layout.rows[i][j] == "S"
    assert mdp.n_states == sum(c != "#" for row in mdp.layout.rows for c in row)
    assert (mdp.terminal & mdp.unsafe).any() == fall_ends
    assert {-12.0, -1.0, 10.0} == set(mdp.r.tolist())


def test_a_layout_can_be_a_map_of_ones_own():
    assert grids.cliff(layout="...\nSXG").layout.text == "...\nSXG"
    assert grids.volatile(layout="...\n>.G").n_states == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: grids.cliff(layout="betwen"), "unknown layout 'betwen'; did you mean 'between'?"),
        (
            lambda: grids.volatile(layout="cliff"),
            "unknown layout 'cliff'; choose from band, full, low, row, row-of-two, top",
        ),
        (lambda: grids.volatile(layout="rows"), "unknown layout 'rows'; did you mean 'row'?"),
        (lambda: grids.volatile(gamma=0.0), "gamma must be in (0, 1), got 0"),
        (lambda: grids.cliff(slip=-0.1), "slip must be in [0, 1], got -0.1"),
    ],
)
def test_a_bad_option_of_the_papers_grids_is_refused(make, message):
    with fails(message):
        make()


# -- where caution pays -------------------------------------------------------------------------------------------------

ALGORITHM_1 = {"visitation": "self", "seeds": 0, "starts": 4}


def judged(mdp, Q):
    """P(unsafe), the mean return and P(never ending) of a greedy policy from where a reader begins."""
    risk = sr.evaluate(mdp, Q.argmax(1), start=mdp.origin)
    return risk.p_unsafe, risk.mean, risk.p_never


@pytest.mark.parametrize(
    ("name", "plain", "shaped"),
    [
        ("bridge", (0.178, 7.82), (0.0040, 7.29)),
        ("lottery", (0.344, 20.40), (0.0, 10.0)),
        ("ledge", (0.226, 1.48), (0.0252, 1.45)),
    ],
)
def test_plain_learning_takes_the_risk_and_a_replay_of_bad_draws_pays_not_to(name, plain, shaped):
    """Each world's point, and in numbers: what the dial costs in return, it takes off the risk many times over."""
    mdp = grids.NAMED[name]()
    assert mdp.name == name
    before, after = judged(mdp, sr.exact(mdp, sr.QLearning())), judged(mdp, sr.fixed_point(mdp, sr.VarianceReplay(5.0)))
    assert before == pytest.approx((*plain, 0.0), abs=0.005)
    assert after == pytest.approx((*shaped, 0.0), abs=0.005)
    assert before[0] > 0.05
    assert after[0] < before[0] / 3
    assert after[1] < before[1]


@pytest.mark.parametrize("name", ["bridge", "lottery", "ledge"])
def test_every_limit_of_algorithm_1_is_as_careful_there(name):
    mdp = grids.NAMED[name]()
    risky = judged(mdp, sr.exact(mdp, sr.QLearning()))[0]
    limits = sr.fixed_point(mdp, sr.VarianceReplay(5.0), 0.5, **ALGORITHM_1)
    assert limits
    for limit in limits:
        p_unsafe, _, p_never = judged(mdp, limit.Q)
        assert p_unsafe < risky / 3
        assert p_never == 0.0


def test_the_odds_of_the_lottery_are_four_tickets():
    """Each wins with 0.9 and is worth 0.6 on average; two steps lead to them, and the goal pays 20."""
    mdp = grids.lottery()
    p_unsafe, mean, _ = judged(mdp, np.eye(4)[[RIGHT] * mdp.n_states])
    assert p_unsafe == pytest.approx(1 - 0.9**4)
    assert mean == pytest.approx(4 * 0.6 - 2 + 20)


def test_the_bridge_falls_to_either_side_and_the_way_round_only_by_turning_to_the_chasm():
    mdp = grids.bridge()
    assert outcomes(mdp, (3, 3), RIGHT) == {
        ((3, 4), -1.0, False, False): pytest.approx(0.95),
        ((2, 3), -15.0, True, True): pytest.approx(0.025),
        ((4, 3), -15.0, True, True): pytest.approx(0.025),
    }
    assert judged(mdp, np.eye(4)[[RIGHT] * mdp.n_states])[0] > 1 - 0.95**4 - 0.01
    sure = sr.fixed_point(mdp, sr.VarianceReplay(5.0), 0.9)
    assert judged(mdp, sure)[0] == pytest.approx(0.0, abs=1e-4)


def test_on_the_ledge_more_of_the_dial_is_less_of_the_risk():
    mdp = grids.ledge()
    risks = [judged(mdp, sr.fixed_point(mdp, sr.VarianceReplay(5.0), v))[0] for v in (0.0, 0.3, 0.5, 0.7, 0.9)]
    assert risks[0] == pytest.approx(1 - 0.95**5, abs=1e-3)  # it walks the edge; from the last cell the goal is sure
    assert all(later < earlier for earlier, later in pairwise(risks))


def test_one_gust_more_is_needed_from_every_row_up():
    """Straight right along row k above the edge: risk falls with k."""
    mdp = grids.ledge()
    right = [RIGHT] * mdp.n_states
    for row in range(4):
        right[mdp.layout.state_at(row, 7)] = DOWN
    risks = [sr.evaluate(mdp, right, start=mdp.layout.state_at(row, 0)).p_unsafe for row in (4, 3, 2, 1, 0)]
    assert all(higher < lower / 4 for lower, higher in pairwise(risks))


def test_the_frozen_lake_is_gymnasiums_outcome_by_outcome():
    """Gymnasium's actions are left, down, right, up: ours read backwards."""
    ours, theirs = grids.frozen_lake(), sr.TabularMDP.from_gymnasium("FrozenLake-v1", gamma=0.95, is_slippery=True)
    assert (ours.n_states, ours.n_actions, ours.gamma) == (theirs.n_states, theirs.n_actions, theirs.gamma)
    assert ours.start.tolist() == theirs.start.tolist()
    assert ours.is_terminal.tolist() == theirs.is_terminal.tolist()
    for s in range(16):
        for a in range(4):
            mine, other = ours.outcomes(s, a), theirs.outcomes(s, 3 - a)
            assert mine.p == pytest.approx(other.p)
            for mark in ("s_next", "r", "terminal"):
                assert getattr(mine, mark).tolist() == getattr(other, mark).tolist()


@pytest.mark.parametrize("beta", [-5.0, 1.0, 5.0])
@pytest.mark.parametrize("v", [0.5, 0.9])
def test_on_the_frozen_lake_the_dial_scales_every_value_alike(beta, v):
    """Holes pay nothing, so only the moves beside the goal have a reward that varies: all value comes through them."""
    mdp = grids.frozen_lake()
    Q, shaped = sr.exact(mdp, sr.QLearning()), sr.fixed_point(mdp, sr.VarianceReplay(beta), v)
    worth = Q.max(1) > 0
    factor = shaped.max(1)[worth] / Q.max(1)[worth]
    assert np.ptp(factor) < 1e-9
    assert factor[0] != pytest.approx(1.0, abs=0.01)
    assert shaped.argmax(1).tolist() == Q.argmax(1).tolist()


def test_the_papers_grids_are_two_of_those_that_have_a_name():
    assert list(grids.PAPER) == ["volatile", "cliff"]
    assert list(grids.NAMED) == ["volatile", "cliff", "bridge", "lottery", "ledge", "frozen_lake"]
    assert all(make().name == name for name, make in grids.NAMED.items())


# -- danger that comes later --------------------------------------------------------------------------------------------


def test_a_delayed_fall_pays_and_ends_one_step_after_the_slip_whatever_is_done():
    cliff = grids.cliff()
    late = grids.delayed(cliff, meanwhile=-1.0)
    assert (late.n_states, late.gamma, late.name) == (28, 0.95, "delayed cliff")  # four cells of cliff
    at_edge = cliff.layout.state_at(2, 1)
    slip, fall = late.outcomes(at_edge, RIGHT), cliff.outcomes(at_edge, RIGHT)
    falling = int(slip.s_next.max())
    assert falling >= 24
    assert slip.p[slip.s_next == falling].sum() == pytest.approx(fall.p[fall.unsafe].sum())
    assert not slip.unsafe.any()
    assert not slip.terminal.any()
    assert late.layout.cells[falling] == (3, 1)
    for a in range(4):
        landing = late.outcomes(falling, a)
        assert (landing.p.tolist(), landing.r.tolist()) == ([1.0], [-12.0])
        assert landing.terminal.all()
        assert landing.unsafe.all()
    assert late.start[24:].sum() == 0
    assert late.start[:24].tolist() == cliff.start.tolist()


def test_the_reward_of_a_step_does_not_tell_of_a_delayed_slip_if_it_costs_what_steps_cost():
    cliff = grids.cliff()
    late = grids.delayed(cliff, meanwhile=-1.0)
    edge = [cliff.layout.state_at(2, column) for column in range(1, 5)]
    assert cliff.reward_variance[edge, RIGHT].min() > 1.0
    assert late.reward_variance[edge, RIGHT].max() == 0.0


def test_a_delay_changes_neither_the_risk_nor_the_return_of_a_policy():
    cliff = grids.cliff().with_start(18)
    late = grids.delayed(cliff)
    policy = sr.exact(cliff, sr.QLearning()).argmax(1)
    now, then = sr.evaluate(cliff, policy), sr.evaluate(late, np.append(policy, np.zeros(4, int)))
    assert now.p_unsafe == pytest.approx(then.p_unsafe, abs=1e-12)
    assert now.p_unsafe == pytest.approx(0.119, abs=0.001)
    assert now.mean == pytest.approx(then.mean, abs=1e-9)


def test_what_does_not_end_unsafely_is_not_delayed():
    assert grids.delayed(grids.volatile()) == grids.volatile()


def test_only_a_model_can_be_delayed():
    with fails("mdp must be a TabularMDP, got 'cliff'"):
        grids.delayed("cliff")
    with fails("meanwhile must be finite, got inf"):
        grids.delayed(grids.cliff(), meanwhile=np.inf)
