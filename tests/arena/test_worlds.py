import numpy as np
import pytest

import safereplay as sr
from safereplay.arena.plan import worlds
from safereplay.arena.report import designed
from safereplay.errors import BadInput
from safereplay.theory.constrained import ceiling


@pytest.fixture(scope="module")
def cliff():
    return worlds(["cliff"], 800)[0]


def test_the_range_goes_from_the_least_risk_there_is_to_that_of_what_q_learning_converges_to(cliff):
    mdp = cliff.mdp
    bold = sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=mdp.origin)
    assert cliff.plain == pytest.approx((bold.mean, bold.p_unsafe, 0.0))
    assert cliff.scale.risks[0] == pytest.approx(ceiling(mdp, max_p_unsafe=0.0, start=mdp.origin).best, abs=1e-8)
    assert cliff.scale.risks[-1] == pytest.approx(bold.p_unsafe)
    assert cliff.scale.limit == pytest.approx((cliff.scale.risks[0] + bold.p_unsafe) / 2)


def test_the_ceiling_is_the_linear_programs(cliff):
    for k in (5, 20, -1):
        best = ceiling(cliff.mdp, max_p_unsafe=float(cliff.scale.risks[k]), start=cliff.mdp.origin)
        assert cliff.scale.top[k] == pytest.approx(best.value)


def test_no_policy_of_an_exact_limit_is_above_the_ceiling(cliff):
    for kappa in np.linspace(0.0, 0.8, 9):
        value, p, _ = cliff.judged(cliff.mdp, sr.exact(cliff.mdp, sr.RiskSensitive(float(kappa))).argmax(1))
        assert (
            value <= np.interp(p, cliff.scale.risks, cliff.scale.top) + 2e-3
        )  # between its points the ceiling is joined by straight lines


def test_a_return_without_a_bound_is_judged_discounted():
    volatile = worlds(["volatile"], 800)[0]
    assert volatile.discounted
    value, p, never = volatile.judged(volatile.mdp, np.ones(20, np.int64))
    found = sr.evaluate(volatile.mdp, [1] * 20, start=volatile.mdp.origin, discounted=True)
    assert (value, p, never) == pytest.approx((found.mean, 0.784, 0.0))
    assert np.isfinite(volatile.scale.top).all()


def test_what_never_ends_counts_as_the_worst_return_that_matters(cliff):
    value, _, never = cliff.judged(cliff.mdp, np.zeros(24, np.int64))  # up, for ever; slips may end it
    assert never == 0.0 or value == -np.inf
    assert cliff.counted(np.array([-np.inf, np.nan, 1.0])).tolist() == [cliff.scale.low, cliff.scale.low, 1.0]


def test_the_safest_policy_is_worth_something_on_every_world():
    for world in worlds(["market", "two_gambles", "insurance", "cliff"], 800):
        assert world.scale.low < world.scale.top[0]


def test_where_a_random_walk_seldom_ends_well_everyone_explores_more_and_longer():
    lake, cliff = worlds(["lake", "cliff"])
    assert lake.epsilon > cliff.epsilon
    assert lake.steps > cliff.steps


def test_a_world_can_be_a_map_file_or_a_gymnasium_id(tmp_path):
    (tmp_path / "hall.txt").write_text("S..G\n.XX.\n")
    hall, lake = worlds([str(tmp_path / "hall.txt"), "FrozenLake-v1"], 800)
    assert hall.title == "hall"
    assert lake.title == "FrozenLake-v1"
    assert lake.mdp.n_states == 16


def test_an_unknown_world_is_answered():
    with pytest.raises(BadInput, match="did you mean 'cliff'"):
        worlds(["clif"])


def test_a_world_is_dangerous_if_an_outcome_that_can_be_reached_is_unsafe(cliff):
    assert cliff.dangerous
    assert not worlds(["fog"], 800)[0].dangerous


def test_designed_replay_is_given_in_the_worlds_own_return(cliff):
    points = designed(cliff)
    assert (np.diff(points, axis=0) > 0).all()  # from the least risk on
    assert points[0] == pytest.approx([0.0278, -1.39], abs=0.01)
    assert points[-1] == pytest.approx([0.119, 1.18], abs=0.01)
    volatile = worlds(["volatile"], 800)[0]
    assert designed(volatile)[-1] == pytest.approx([volatile.plain[1], volatile.plain[0]])  # discounted there


def test_no_replay_is_designed_for_a_large_world():
    assert designed(worlds(["taxi"], 800)[0]).shape == (0, 2)
