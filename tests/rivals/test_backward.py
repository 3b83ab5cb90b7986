import numpy as np
import pytest
from fork import FORK, learned

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.rivals.replaying import BackwardReplay

CORRIDOR = "S.......G"


def test_one_replayed_episode_carries_the_goal_back_to_the_start():
    """A corridor of eight steps, α = 1, β = 1, walked at random: an episode gone through backwards gives the exact value at its
    start. Two episodes of Q-learning carry it two steps back."""
    mdp = sr.grids.from_map(CORRIDOR, gamma=0.5, step=0.0, goal=1.0, start="S")
    settings = {"seeds": 5, "step_size": sr.ConstantStep(1.0), "exploration": sr.EpsilonGreedy(1.0)}
    runs = sr.learn(mdp, BackwardReplay(0.97, 1.0), episodes=2, **settings)
    assert runs.Q.max(2)[:, 0] == pytest.approx(0.5**7)
    fresh = sr.learn(mdp, sr.QLearning(), episodes=2, **settings)
    assert fresh.Q.max(2)[:, 0].max() < 0.5**7


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_where_the_world_is_certain_it_learns_q_star(beta):
    """The cliff without slips, explored at random, seeds 0–1, 3,000 episodes, α = 1: exactly Q*."""
    mdp, learner = sr.grids.cliff(slip=0.0), BackwardReplay(0.6, beta, 1_000)
    settings = {"exploration": sr.EpsilonGreedy(1.0), "step_size": sr.ConstantStep(1.0)}
    for Q in sr.learn(mdp, learner, episodes=3_000, seeds=2, **settings).Q:
        assert Q[mdp.is_reachable] == pytest.approx(sr.exact(mdp, learner)[mdp.is_reachable])


def test_without_diffusion_it_learns_q_star_in_a_random_world_from_a_long_window_only():
    """The fork, seeds 0–7, 100,000 steps explored at random, v = 0.6: within 0.06 of Q* from a window of 10,000. From one of 20,
    in which short episodes crowd out long ones, off by more than 0.12."""
    limit = sr.exact(FORK, BackwardReplay(0.6, 0.0))
    assert learned(BackwardReplay(0.6, 0.0)) == pytest.approx(limit, abs=0.06)
    assert np.abs(learned(BackwardReplay(0.6, 0.0, 20)) - limit).max() > 0.12


def test_with_diffusion_luck_makes_it_too_hopeful_by_what_the_maximum_adds():
    """One state, then a choice of a coin (+1 or −1) and nothing (0), where both are explored alike. With β = 1 the target of
    the first step is γ·E max(coin, 0) = γ/2 after the coin and γ·max(E coin, 0) = 0 after nothing: γ/4 on average, where Q* is
    0. Fresh updates have 0: v·γ/4 in all. Seed 0, 100,000 steps, v = 0.5, α = 1/n: within 0.02."""
    rows = [(0, 0, 1.0, 1, 0.0), (0, 1, 1.0, 1, 0.0), (1, 1, 1.0, 0, 0.0, True)]
    rows += [(1, 0, 0.5, 0, 1.0, True), (1, 0, 0.5, 0, -1.0, True)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, rows, gamma=0.9, start=[1.0, 0.0])
    settings = {"exploration": sr.EpsilonGreedy(1.0), "step_size": sr.PowerStep(1.0), "steps": 100_000, "seeds": 1}
    hopeful = sr.learn(mdp, BackwardReplay(0.5, 1.0), **settings).Q[0]
    sober = sr.learn(mdp, BackwardReplay(0.5, 0.0), **settings).Q[0]
    assert hopeful[0] == pytest.approx(0.5 * 0.9 / 4, abs=0.02)
    assert sober[0] == pytest.approx(0.0, abs=0.02)


def test_with_diffusion_luck_averages_out_where_no_other_action_caps_a_loss():
    """Two steps, one action, the second pays +10 or −10. β = 1, seed 0, 100,000 steps, v = 0.5, α = 1/n: within 0.3 of 0, five
    standard errors; with an action that pays 0 beside it, v·γ·E max(±10, 0)/2 = 1.1 (see above)."""
    rows = [(0, 0, 1.0, 1, 0.0), (1, 0, 0.5, 0, 10.0, True), (1, 0, 0.5, 0, -10.0, True)]
    mdp = sr.TabularMDP.from_outcomes(2, 1, rows, gamma=0.9, start=[1.0, 0.0])
    Q = sr.learn(mdp, BackwardReplay(0.5, 1.0), steps=100_000, seeds=1, step_size=sr.PowerStep(1.0)).Q[0]
    assert np.abs(Q).max() < 0.3


def test_it_has_no_limit_to_tell_where_luck_plays_a_part():
    with pytest.raises(BadInput, match=r"beta must be 0 where outcomes are random, got 0\.5; in a random world"):
        sr.exact(sr.grids.cliff(), BackwardReplay())
    sure = sr.grids.cliff(slip=0.0)
    assert np.array_equal(sr.exact(sure, BackwardReplay()), sr.exact(sure, sr.QLearning()))


def test_it_goes_to_json_and_back_and_every_setting_can_be_had():
    learner = BackwardReplay(0.3, 0.2, 99)
    assert sr.Learner.from_dict(learner.to_dict()) == learner
    for setting in BackwardReplay.SETTINGS:
        assert BackwardReplay(beta=setting).beta == setting


def test_a_diffusion_above_one_is_refused():
    with pytest.raises(BadInput, match=r"beta must be in \[0, 1\], got 1.1"):
        BackwardReplay(beta=1.1)
