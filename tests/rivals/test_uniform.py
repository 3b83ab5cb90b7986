import numpy as np
import pytest
from fork import FORK, learned
from plain_values import plain_values

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.rivals.replaying import WindowReplay


def test_its_limit_is_that_of_q_learning():
    mdp = sr.grids.cliff()
    assert sr.exact(mdp, WindowReplay(0.8, 10)) == pytest.approx(plain_values(mdp), abs=1e-9)


@pytest.mark.parametrize("window", [1, 10, 1_000])
def test_it_learns_its_limit_whatever_the_window(window):
    """The fork, seeds 0–7, 100,000 steps explored at random, v = 0.6: within 0.06 of Q*, four standard errors. Replay by the
    largest errors is off by 0.27 there (see test_prioritised.py)."""
    assert learned(WindowReplay(0.6, window)) == pytest.approx(sr.exact(FORK, WindowReplay()), abs=0.06)


def test_each_outcome_of_a_pair_is_replayed_as_often_as_it_happens():
    """One state, outcomes of 0.9, 0.1; one that ends the episode and one that does not. Seed 0, 200,000 steps, window 5,
    α = 1/n: Q is the mean of all targets. Fresh and replayed shares are 0.1 each within 5·√(0.09·3/n), so Q is within 0.01."""
    rows = [(0, 0, 0.9, 0, 0.0, True), (0, 0, 0.1, 0, -1.0, False)]
    mdp = sr.TabularMDP.from_outcomes(1, 1, rows, gamma=1e-9)
    Q = sr.learn(mdp, WindowReplay(0.5, 5), seeds=1, steps=200_000, step_size=sr.PowerStep(1.0)).Q[0, 0, 0]
    assert abs(Q + 0.1) < 5 * np.sqrt(0.09 * 3 / 400_000)


def test_its_policies_on_the_cliff_are_those_of_q_learning():
    """Seeds 0–4, 300,000 steps: the risk of every greedy policy is that of the optimal one, 0.119."""
    mdp = sr.grids.cliff()
    runs = sr.learn(mdp, WindowReplay(), seeds=5, steps=300_000)
    assert {round(sr.evaluate(mdp, policy, start=mdp.origin).p_unsafe, 3) for policy in runs.policy} == {0.119}


def test_it_goes_to_json_and_back_and_says_what_it_is():
    learner = WindowReplay(0.3, 50)
    assert sr.Learner.from_dict(learner.to_dict()) == learner
    assert learner.describe() == "uniform(v=0.3, window=50)"


def test_a_window_that_is_whole_is_kept_as_a_whole_number():
    learner = WindowReplay(window=1_000.0)
    assert learner == WindowReplay(window=1_000)
    assert type(learner.window) is type(learner.to_dict()["window"]) is int


def test_every_setting_of_its_dial_can_be_had():
    for setting in WindowReplay.SETTINGS:
        assert getattr(WindowReplay(**{WindowReplay.DIAL: setting}), WindowReplay.DIAL) == setting


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"window": 0}, "window must be at least 1, got 0"),
        ({"window": 2.5}, "window must be a whole number, got 2.5"),
        ({"window": float("inf")}, "window must be a whole number, got inf"),
        ({"window": "9"}, "window must be a whole number, got '9'"),
        ({"window": True}, "window must be a whole number, got True"),
        ({"v": 1.0}, r"v must be in \[0, 1\), got 1"),
        ({"v": -0.1}, r"v must be in \[0, 1\), got -0.1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values, said):
    with pytest.raises(BadInput, match=said):
        WindowReplay(**values)
