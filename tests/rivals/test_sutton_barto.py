"""Published figures: Sutton & Barto (2018), Reinforcement learning: an introduction, 2nd edition.

Example 6.6, cliff walking: Q-learning with ε = 0.1 learns the path along the edge, 13 steps, and falls off it now and then for
exploring: the rewards of an episode sum to about −50 late in learning (the figure beside the example).

Example 8.1 and Figure 8.2, the Dyna maze: 47 states, α = 0.1, γ = 0.95, ε = 0.1, averaged over 30 runs. The shortest way takes 14
steps. Learning is near its best after about 25 episodes with n = 0 planning steps, about five with n = 5, about three with
n = 50. The book's first episode takes about 1,700 steps, the same for all n. That is *not* what we find. Q is 0 everywhere until the
goal is reached and the book breaks ties at random, so that the first episode is an even random walk; its mean length in this
maze is 868.7 steps, by linear equations, about half of that.
"""

import numpy as np
import pytest

import safereplay as sr
from safereplay.rivals.replaying import DynaQ

CLIFF = "............\n............\n............\nSXXXXXXXXXXG"
MAZE = ".......#G\n..#....#.\nS.#....#.\n..#......\n.....#...\n........."
EXPLORING = sr.EpsilonGreedy(0.1)
ENDLESS = 1_000_000


def cliff():
    """As near to undiscounted as a model allows; the cliff sends back to the start."""
    rewards = {"step": -1.0, "goal": -1.0, "hazard": -100.0}
    return sr.grids.from_map(CLIFF, gamma=1 - 1e-9, fall_ends=False, start="S", **rewards)


def maze():
    return sr.grids.from_map(MAZE, gamma=0.95, goal=1.0, step=0.0, start="S")


def steps_to_the_end(mdp, policy):
    s, steps = mdp.origin, 0
    while steps < 100:
        k = mdp.row[s * mdp.n_actions + policy[s]]
        s, steps = int(mdp.s_next[k]), steps + 1
        if mdp.terminal[k]:
            break
    return steps


@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_example_6_6_q_learning_walks_along_the_edge_and_earns_about_minus_fifty(alpha):
    """50 runs, seeds 0–49, 500 episodes; rewards over the last 200. Their standard error is below 1, so within 5 of −50."""
    mdp = cliff()
    settings = {"exploration": EXPLORING, "step_size": sr.ConstantStep(alpha), "max_steps": ENDLESS}
    runs = sr.learn(mdp, sr.QLearning(), episodes=500, seeds=50, snapshots=[300, 500], **settings)
    assert {steps_to_the_end(mdp, policy) for policy in runs.policy} == {13}
    earned = (runs.snapshots.visits * mdp.expect(mdp.r)).sum((2, 3))  # moves are certain: visits times rewards
    assert np.mean(earned[:, 1] - earned[:, 0]) / 200 == pytest.approx(-50.0, abs=5.0)


def steps_by_episode(planning):
    """[30, 50] steps of each episode of each run."""
    settings = {"exploration": EXPLORING, "step_size": sr.ConstantStep(0.1), "max_steps": ENDLESS}
    learner = DynaQ(planning, ties="random")
    runs = sr.learn(maze(), learner, episodes=50, seeds=30, snapshots=list(range(1, 51)), **settings)
    return np.diff(runs.snapshots.visits.sum((2, 3)), axis=1, prepend=0)


def first_good_episode(planning):
    """The first whose mean length is within a quarter of what it is at last, over the last twenty episodes."""
    mean = steps_by_episode(planning).mean(0)
    return int(np.argmax(mean <= 1.25 * mean[30:].mean())) + 1


def test_figure_8_2_is_a_maze_of_47_states_and_14_steps():
    mdp = maze()
    assert mdp.n_states == 47
    assert steps_to_the_end(mdp, sr.exact(mdp, sr.QLearning()).argmax(1)) == 14


@pytest.mark.parametrize(("planning", "low", "high"), [(0, 20, 30), (5, 4, 7), (50, 2, 4)])
def test_figure_8_2_planning_learns_in_25_5_and_3_episodes(planning, low, high):
    """Seeds 0–29: 25, 6 and 3."""
    assert low <= first_good_episode(planning) <= high


def test_the_first_episode_is_a_random_walk_whose_mean_is_known():
    """Mean of the first episode over 30 runs within 5 standard errors of 868.7, whatever n; the book's 1,700 is not."""
    mdp = maze()
    onward = np.zeros((mdp.n_states, mdp.n_states))
    np.add.at(onward, (mdp.pair // 4, mdp.s_next), np.where(mdp.terminal, 0.0, 0.25))
    inside = onward.sum(1) > 0
    times = np.zeros(mdp.n_states)
    times[inside] = np.linalg.solve(np.eye(inside.sum()) - onward[np.ix_(inside, inside)], np.ones(inside.sum()))
    expected = times[mdp.origin]
    assert expected == pytest.approx(868.7, abs=0.1)
    for planning in (0, 5):
        first = steps_by_episode(planning)[:, 0]
        error = first.std(ddof=1) / np.sqrt(30)
        assert abs(first.mean() - expected) < 5 * error
        assert abs(first.mean() - 1_700) > 3 * error
