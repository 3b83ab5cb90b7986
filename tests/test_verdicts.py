import itertools
import re

import numpy as np
import pytest

import safereplay as sr
from safereplay import catalog, verdicts

UP, RIGHT, DOWN, LEFT = range(4)
ARROWS = {"^": UP, ">": RIGHT, "v": DOWN, "<": LEFT}


def drawn(mdp, picture):
    """A policy from a picture of arrows; any other character is 'up'."""
    rows = picture.split()
    return [ARROWS.get(rows[i][j], UP) for i, j in mdp.layout.cells]


CLIFF, VOLATILE = sr.grids.cliff(), sr.grids.volatile()
EDGE = drawn(CLIFF, "...... ...... >>>>>v ^.....")
MIDDLE = drawn(CLIFF, "...... >>>>>v ^....v ^.....")
OVER_THE_TOP = drawn(CLIFF, ">>>>>v ^....v ^....v ^.....")


def test_the_papers_paths_on_the_cliff_are_told_apart():
    assert sr.verdict(CLIFF, EDGE) == "risky"
    assert sr.verdict(CLIFF, MIDDLE) == sr.verdict(CLIFF, OVER_THE_TOP) == "safe"
    assert sr.verdict(CLIFF, drawn(CLIFF, "...... ...... ...... >.....")) == "jumps"
    assert sr.verdict(CLIFF, [LEFT] * 24) == "stuck"
    assert sr.verdict(CLIFF, drawn(CLIFF, "...... v..... ^..... ^.....")) == "stuck"


def test_the_papers_paths_on_the_volatile_grid_are_told_apart():
    assert sr.verdict(VOLATILE, [RIGHT] * 20) == "risky"
    assert sr.verdict(VOLATILE, drawn(VOLATILE, ">>>>v ^.... ..... .....")) == "safe"
    assert sr.verdict(VOLATILE, drawn(VOLATILE, "..... v.... >>>>^ .....")) == "safe"
    assert sr.verdict(VOLATILE, drawn(VOLATILE, ".>>>v >^... ..... .....")) == "risky"  # one volatile move is enough


def test_a_path_has_its_states_its_exposed_steps_and_its_end():
    path = sr.path(CLIFF, EDGE)
    assert path.states == (18, 12, 13, 14, 15, 16, 17, 23)
    assert path.exposed == 5  # the start's own, and four along the edge
    assert path.end == "goal"
    assert sr.path(CLIFF, MIDDLE).exposed == 1
    assert sr.path(CLIFF, [LEFT] * 24) == ((18, 18), 1, "loop")
    assert sr.path(CLIFF, [RIGHT] * 24) == ((18, 19), 1, "unsafe")
    assert sr.path(CLIFF, EDGE, origin=17) == ((17, 23), 0, "goal")


def test_the_verdict_is_relative_to_the_origin():
    assert sr.verdict(CLIFF, EDGE, origin=17) == "safe"
    assert sr.verdict(CLIFF, EDGE, origin=16) == "safe"  # one exposed step, and no way without it
    assert sr.verdict(CLIFF, EDGE, origin=15) == "risky"
    assert verdicts.fewest_exposed(CLIFF, 16) == verdicts.fewest_exposed(CLIFF, 15) == 1
    assert verdicts.fewest_exposed(CLIFF, 17) == 0


def test_the_likeliest_outcome_is_followed_even_when_it_is_a_slip():
    rows = [(0, 0, 0.4, 1, 0.0), (0, 0, 0.6, 2, 0.0), (1, 0, 1.0, 1, 0.0, True), (2, 0, 1.0, 0, 0.0, True)]
    assert sr.path(sr.TabularMDP.from_outcomes(3, 1, rows, start=0), [0, 0, 0]) == ((0, 2, 0), 0, "goal")


def test_slippery_frozen_lake_has_no_path_though_its_episodes_all_end():
    """The best policy presses against the wall at the start and waits to slip: its likeliest step stays where it is."""
    lake = sr.grids.frozen_lake(gamma=0.99)
    policy = sr.exact(lake, sr.QLearning()).argmax(1)
    risk = sr.evaluate(lake, policy, start=lake.origin)
    assert risk.p_never == 0.0
    assert risk.p_unsafe < 0.2
    assert sr.path(lake, policy).end == "loop"
    assert sr.verdict(lake, policy) == verdicts.NO_PATH == "no path"


@pytest.mark.parametrize(
    ("env", "options", "paths"),
    [
        ("FrozenLake-v1", {}, False),
        ("FrozenLake-v1", {"is_slippery": False}, True),
        ("CliffWalking-v1", {"is_slippery": True}, False),
        ("CliffWalking-v1", {}, True),
    ],
)
def test_what_gymnasium_calls_slippery_has_no_paths(env, options, paths):
    assert verdicts.has_paths(sr.TabularMDP.from_gymnasium(env, gamma=0.9, **options)) == paths


def test_of_the_catalog_only_the_slippery_lakes_have_no_paths():
    without = {name for name in catalog.WORLDS if not verdicts.has_paths(catalog.world(name)())}
    assert without == {"frozen_lake", "lake"}


@pytest.mark.parametrize(
    ("outcomes", "paths"),
    [
        ([(0.5, 1), (0.5, 2)], False),
        ([(0.50001, 1), (0.49999, 2)], True),
        ([(0.3, 1), (0.4, 2), (0.3, 1)], True),  # state 1 has 0.6
        ([(0.25, 1), (0.5, 2), (0.25, 1)], False),
        ([(0.6, 0), (0.2, 1), (0.2, 2)], True),  # the tie is not for the first place
        ([(0.1 + 0.2, 0), (0.3, 1), (0.4 - 1e-16, 2)], True),
        ([(1 / 3, 0), (1 / 3, 1), (1 - 2 / 3, 2)], False),  # but for rounding
        ([(1.0, 2)], True),
    ],
)
def test_a_model_has_paths_where_one_next_state_of_each_pair_is_likeliest(outcomes, paths):
    rows = [(0, 0, p, s, 0.0) for p, s in outcomes]
    rows += [(1, 0, 1.0, 2, 0.0), (2, 0, 1.0, 0, 0.0, True)]
    assert verdicts.has_paths(sr.TabularMDP.from_outcomes(3, 1, rows, start=0)) == paths


def brute_force(mdp, origin):
    """The fewest exposed steps over all policies, each drawn."""
    paths = [sr.path(mdp, policy, origin) for policy in itertools.product(range(mdp.n_actions), repeat=mdp.n_states)]
    return min((p.exposed for p in paths if p.end == "goal"), default=mdp.n_pairs)


@pytest.mark.parametrize("seed", range(12))
def test_the_fewest_exposed_steps_equal_those_of_the_best_of_all_policies(seed):
    """Random models of 5 states and 2 actions: 32 policies each."""
    random = np.random.default_rng(seed)
    rows = []
    for s, a in itertools.product(range(5), range(2)):
        for p in random.dirichlet(np.ones(2)):
            rows.append((s, a, p, random.integers(5), random.normal(), random.random() < 0.25, random.random() < 0.3))
    mdp = sr.TabularMDP.from_outcomes(5, 2, rows)
    for origin in range(5):
        best = brute_force(mdp, origin)
        assert verdicts.fewest_exposed(mdp, origin) == best
        for policy in itertools.product(range(2), repeat=5):
            path = sr.path(mdp, policy, origin)
            expected = {"loop": "stuck", "unsafe": "jumps", "goal": "safe" if path.exposed == best else "risky"}[
                path.end
            ]
            assert sr.verdict(mdp, policy, origin) == expected


def test_runs_have_the_verdicts_of_their_policies():
    learned = sr.learn(VOLATILE, sr.QLearning(), episodes=50, seeds=3)
    assert learned.verdicts == [sr.verdict(VOLATILE, policy) for policy in learned.policy]
    assert set(learned.verdicts) <= set(verdicts.VERDICTS)


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ([0] * 19, "policy must have shape (20,), got (19,)"),
        ([[0] * 20], "policy must have shape (20,), got (1, 20)"),
        (3, "policy must have shape (20,), got ()"),
        ([0] * 19 + [4], "policy must be actions in 0..3, got [0, 0,"),
        ([-1] * 20, "policy must be actions in 0..3, got [-1,"),
        ([0.0] * 20, "policy must be actions in 0..3, got [0.0,"),
        ([True] * 20, "policy must be actions in 0..3, got [True,"),
    ],
)
def test_what_is_not_a_policy_is_refused(policy, message):
    with pytest.raises(sr.BadInput, match=re.escape(message)):
        sr.verdict(VOLATILE, policy)


@pytest.mark.parametrize("origin", [-1, 20, 0.5, "S"])
def test_an_origin_that_is_not_a_state_is_refused(origin):
    for function in (sr.path, sr.verdict):
        with pytest.raises(sr.BadInput, match="origin must be"):
            function(VOLATILE, [0] * 20, origin)


def test_a_path_cannot_begin_where_nothing_can_be_done():
    """A terminal state has no outcomes: there is no step to draw."""
    goal = VOLATILE.layout.state_at(1, 4)
    with pytest.raises(sr.BadInput, match=f"origin must be a state that is not terminal, got {goal}"):
        sr.path(VOLATILE, [0] * 20, goal)
