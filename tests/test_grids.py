import re
import time

import numpy as np
import pytest

import safereplay as sr
from safereplay import grids

UP, RIGHT, DOWN, LEFT = range(4)


def outcomes(mdp, cell, a):
    """{(cell, r, terminal, unsafe): p} of taking an action in a cell."""
    o = mdp.outcomes(mdp.layout.state_at(*cell), a)
    keys = [
        (mdp.layout.cells[t], r, bool(e), bool(u))
        for t, r, e, u in zip(o.s_next, o.r, o.terminal, o.unsafe, strict=True)
    ]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, o.p.tolist(), strict=True))


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
@pytest.mark.parametrize("slip_to", ["any", "others"])
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


# -- maps ---------------------------------------------------------------------------------------------------------------


def test_walls_are_not_states_and_stop_a_move():
    mdp = grids.from_map("S#G\n...")
    assert mdp.n_states == 5
    assert mdp.layout.cells == ((0, 0), (0, 2), (1, 0), (1, 1), (1, 2))
    assert outcomes(mdp, (0, 0), RIGHT) == {((0, 0), -1.0, False, False): 1.0}
    assert outcomes(mdp, (1, 1), UP) == {((1, 1), -1.0, False, False): 1.0}
    assert outcomes(mdp, (1, 2), UP) == {((0, 2), 10.0, True, False): 1.0}


@pytest.mark.parametrize(
    ("arrow", "a", "cell"), [("^", UP, (0, 1)), (">", RIGHT, (1, 2)), ("v", DOWN, (2, 1)), ("<", LEFT, (1, 0))]
)
def test_each_arrow_makes_the_move_that_way_volatile_and_no_other(arrow, a, cell):
    mdp = grids.from_map(f"..G\n.{arrow}.\n...", volatile=[(0.9, 2.0), (0.1, -7.0)])
    for b in range(4):
        found = outcomes(mdp, (1, 1), b)
        if b == a:
            assert found == {(cell, 2.0, False, False): 0.9, (cell, -7.0, False, True): pytest.approx(0.1)}
        else:
            assert [key[1:] for key in found] == [(-1.0, False, False)]


def test_a_volatile_move_into_the_goal_pays_the_goal():
    assert outcomes(grids.from_map("S>G"), (0, 1), RIGHT) == {((0, 2), 10.0, True, False): 1.0}


def test_several_goals_have_rewards_of_their_own():
    mdp = grids.from_map("G.S.G", goal={(0, 0): 3.0, (0, 4): 50.0})
    assert outcomes(mdp, (0, 1), LEFT) == {((0, 0), 3.0, True, False): 1.0}
    assert outcomes(mdp, (0, 3), RIGHT) == {((0, 4), 50.0, True, False): 1.0}
    assert {-1.0, 4.0} == set(grids.from_map("G.S.G", goal=4.0).r.tolist())


def test_starts_are_uniform_or_marked_or_listed():
    text = "S.X\n.#G\nS.."
    assert grids.from_map(text).start.tolist() == pytest.approx([1 / 6, 1 / 6, 0, 1 / 6, 0, 1 / 6, 1 / 6, 1 / 6])
    assert grids.from_map(text, start="S").start.tolist() == [0.5, 0, 0, 0, 0, 0.5, 0, 0]
    assert grids.from_map(text, start=[(0, 1), (2, 2)]).start.tolist() == [0, 0.5, 0, 0, 0, 0, 0, 0.5]
    assert grids.from_map(text, start=[[0, 1]]).start.tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    assert grids.from_map(text, start="S").origin == 0


def test_the_origin_is_s_or_the_longest_volatile_way_or_the_first_start():
    assert grids.from_map(">>.\n.S.\n..G").layout.origin == 4
    assert grids.from_map("...\n>..\n>>G").layout.origin == 6
    assert grids.from_map("...\n..G", start=[(0, 2)]).layout.origin == 2


def test_a_ring_of_arrows_has_an_end():
    assert grids.from_map(">v.\n^<G").layout.origin == 0


def test_blank_space_around_a_map_does_not_matter():
    assert grids.from_map("\n   S.\n   .G  \n") == grids.from_map("S.\n.G")


def test_a_goal_behind_a_fall_that_leads_home_can_be_reached():
    """From the right-hand cell the only way is to fall, which puts the agent on S, beside the goal."""
    mdp = grids.from_map("GS#X.", fall_ends=False)
    assert outcomes(mdp, (0, 4), LEFT) == {((0, 1), -10.0, False, True): 1.0}


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "text must be a map of at least one cell, got ''"),
        ("  \n ", {}, "text must be a map of at least one cell, got "),
        ("S.\n...G", {}, "row 1 of the map must have 2 cells, got 4"),
        ("S.\n?G", {}, "cell (1, 0) of the map must be one of .#SGX^>v<, got '?'"),
        ("S.\ns.", {}, "cell (1, 0) of the map must be one of .#SGX^>v<, got 's'"),
        ("S...", {}, "text must have a goal G, got 'none'"),
        ("####", {}, "text must have a goal G, got 'none'"),
        ("G", {}, "text must have a cell to start from, got 'none'"),
        ("S.#G", {}, "goal at (0, 3) must be reachable from a start, got 'no way to it'"),
        ("SXG", {}, "goal at (0, 2) must be reachable from a start, got 'no way to it'"),
        ("S.G#G", {}, "goal at (0, 4) must be reachable from a start, got 'no way to it'"),
        ("SG#.", {}, "start at (0, 3) must have a way to a goal, got 'none'"),
        (".G", {"start": "S"}, "text must have a cell to start from, got 'none'"),
        ("S.G", {"start": "s"}, "unknown start 's'; did you mean 'S'?"),
        ("S.G", {"start": "unform"}, "unknown start 'unform'; did you mean 'uniform'?"),
        ("S#.G", {"start": [(0, 1)]}, "start must name free cells, got (0, 1)"),
        ("S.G", {"start": [(5, 5)]}, "start must name free cells, got (5, 5)"),
        ("S.G", {"start": [(0, 2)]}, "start must"),
        ("S.G", {"start": []}, "start must"),
        ("S.G", {"start": 5}, "start must"),
        (".XG\n...", {"fall_ends": False}, "text must mark a start S when fall_ends is false, got 'none'"),
        ("S.G", {"slip": 1.1}, "slip must be in [0, 1], got 1.1"),
        ("S.G", {"slip_to": "other"}, "unknown slip_to 'other'; did you mean 'others'?"),
        ("S.G", {"gamma": 1.0}, "gamma must be in (0, 1), got 1"),
        ("S.G", {"step": "x"}, "step must be a number, got 'x'"),
        ("S.G", {"hazard": float("nan")}, "hazard must be finite, got nan"),
        ("S.G", {"goal": float("inf")}, "goal must be finite, got inf"),
        ("S.G", {"goal": {(0, 1): 5.0}}, "goal must name cells marked G, got (0, 1)"),
        ("GSG", {"goal": {(0, 0): 5.0}}, "goal must give a reward for every cell marked G, got [(0, 2)]"),
        ("S.G", {"goal": {(0, 2): None}}, "goal at (0, 2) must be a number, got None"),
        ("S>.G", {"volatile": [(0.5, 1.0), (0.4, -1.0)]}, "p of volatile must sum to 1, got 0.9"),
        ("S>.G", {"volatile": [(1.5, 1.0), (-0.5, -1.0)]}, "p of volatile must be in [0, 1], got 1.5"),
        ("S>.G", {"volatile": [(1.0, float("nan"))]}, "volatile must be finite, got nan"),
        ("S>.G", {"volatile": []}, "p of volatile must sum to 1, got 0"),
        ("S>.G", {"volatile": [1.0, 2.0]}, "volatile must"),
        (5, {}, "text must"),
    ],
)
def test_what_is_not_a_map_is_refused_with_the_place_and_the_value(text, options, message):
    with fails(message):
        grids.from_map(text, **options)


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


def test_a_large_map_is_built_in_reasonable_time():
    """14,400 cells, 288,000 slippery outcomes before merging: a second or two, not minutes."""
    n = 120
    text = "\n".join(["S" + "." * (n - 1)] + ["." * n] * (n - 2) + ["." * (n - 2) + "XG"])
    began = time.perf_counter()
    mdp = grids.from_map(text, slip=0.1)
    took = time.perf_counter() - began
    assert mdp.n_states == n * n
    assert mdp.layout.state_at(n - 1, n - 1) == n * n - 1
    assert took < 10
    runs = sr.learn(mdp, sr.QLearning(), episodes=2, seeds=1, max_steps=100)
    assert 0 < runs.visits.sum() <= 200
