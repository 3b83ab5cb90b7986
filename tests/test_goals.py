import re
from collections import deque
from copy import deepcopy

import numpy as np
import pytest

import safereplay as sr
from safereplay import goals
from safereplay.goals import GoalMDP, bit_flip, goal_cliff, goal_map, goal_mdp, goal_room

UP, RIGHT, DOWN, LEFT = range(4)


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


def value_at(distance, gamma):
    """Q* of a pair whose best way takes so many steps: −1 each but the last, which pays 0."""
    return -(1 - gamma ** (distance - 1)) / (1 - gamma)


def distances(text, goal):
    """Steps from every free cell of a map to a cell, by breadth first search over the text."""
    lines = text.split("\n")
    free = {(i, j) for i, line in enumerate(lines) for j, c in enumerate(line) if c not in "#X"}
    found, queue = {goal: 0}, deque([goal])
    while queue:
        i, j = queue.popleft()
        for cell in ((i - 1, j), (i + 1, j), (i, j - 1), (i, j + 1)):
            if cell in free and cell not in found:
                found[cell] = found[i, j] + 1
                queue.append(cell)
    return found


def moves(mdp, s, a, size):
    """p(s'|s,a) as a row [size], whatever the rewards."""
    found = mdp.outcomes(s, a)
    return np.bincount(found.s_next % size, weights=found.p, minlength=size)


# -- the model, by hand ------------------------------------------------------------------------------------------------


def test_a_step_costs_one_and_the_step_that_reaches_the_goal_costs_nothing_and_ends():
    world = goal_map("S..", goals=[(0, 2)])
    assert [world.outcomes(0, RIGHT).r.tolist(), world.outcomes(1, RIGHT).r.tolist()] == [[-1.0], [0.0]]
    assert [world.outcomes(0, RIGHT).terminal.tolist(), world.outcomes(1, RIGHT).terminal.tolist()] == [[False], [True]]
    assert world.is_terminal.tolist() == [False, False, True]


def test_a_fall_ends_unsafe_at_its_own_reward_whatever_the_goal():
    world = goal_map("S.\nX.", hazard=-7.0)
    assert world.goals.tolist() == [0, 1, 3]
    for goal in range(3):
        s = world.state(0, goal) if goal != 0 else world.state(3, goal)
        fall = world.outcomes(s, DOWN if goal != 0 else LEFT)
        assert [x.tolist() for x in (fall.r, fall.terminal, fall.unsafe)] == [[-7.0], [True], [True]]


def test_a_fall_that_does_not_end_puts_back_to_the_start_at_its_reward():
    world = goal_map("S..\nX..", hazard=-7.0, fall_ends=False, goals=[(0, 2), (0, 0)])
    fall = world.outcomes(0, DOWN)
    assert [x.tolist() for x in (fall.s_next, fall.r, fall.terminal, fall.unsafe)] == [[0], [-7.0], [False], [True]]
    home = world.outcomes(world.state(world.layout.state_at(1, 1), 1), LEFT)  # falls to the goal: there, at that price
    assert [x.tolist() for x in (home.r, home.terminal, home.unsafe)] == [[-7.0], [True], [True]]


def test_another_end_of_the_base_is_a_wall():
    base = sr.grids.from_map("G.S.G")
    world = goal_mdp(base, goals=[(0, 4)])
    bump = world.outcomes(1, LEFT)
    assert [x.tolist() for x in (bump.s_next, bump.r, bump.terminal)] == [[1], [-1.0], [False]]
    assert world.outcomes(3, RIGHT).terminal.tolist() == [True]


def test_rewards_are_options():
    world = goal_map("S..", goals=[2], step=-0.5, reward=3.0)
    assert (world.outcomes(0, RIGHT).r.tolist(), world.outcomes(1, RIGHT).r.tolist()) == ([-0.5], [3.0])
    assert (world.step, world.reward) == (-0.5, 3.0)


# -- what makes relabelling true: moves do not know the goal -----------------------------------------------------------


@pytest.mark.parametrize("world", [goal_cliff(), goal_room(slip=0.3, slip_to="sides"), bit_flip(3)])
def test_moves_are_the_same_under_every_goal(world):
    size = world.n_cells
    known = {}
    for state in range(world.n_states):
        if not world.is_terminal[state]:
            for a in range(world.n_actions):
                row = moves(world, state, a, size).tolist()
                assert known.setdefault((state % size, a), row) == pytest.approx(row, abs=1e-15)


def test_a_map_has_the_moves_of_the_grid_it_is_drawn_like():
    """Against from_map, at every cell that is no end there; and the cell of its goal against numbers by hand."""
    base = sr.grids.cliff(goal_slips=True)
    world = goal_cliff()
    for s in np.flatnonzero(~base.is_terminal):
        for a in range(4):
            sheet = 0 if world.goals[0] != s else 1
            assert moves(world, world.state(int(s), sheet), a, 24) == pytest.approx(
                moves(base, int(s), a, 24), abs=1e-12
            )
    at_goal = world.outcomes(
        world.state(23, 1), LEFT
    )  # under another goal the cell G is a cell: left of it is the cliff
    assert dict(zip(at_goal.s_next % 24, at_goal.p.round(9), strict=True)) == {22: 0.925, 17: 0.025, 23: 0.05}
    assert at_goal.unsafe.tolist() == [True, False, False]


# -- Q* by another method ----------------------------------------------------------------------------------------------


def test_q_star_of_a_room_is_the_distance_by_breadth_first_search():
    world = goal_room()
    V = sr.exact(world, sr.QLearning()).max(1)
    for number, goal in enumerate(world.goals):
        steps = distances(goals.ROOM, world.layout.cells[int(goal)])
        for s in range(world.n_cells):
            d = steps[world.layout.cells[s]]
            assert V[world.state(s, number)] == pytest.approx(value_at(d, 0.95) if d else 0.0, abs=1e-8)


def test_q_star_of_bits_is_the_number_of_bits_that_differ():
    world = bit_flip(4, gamma=0.9)
    Q = sr.exact(world, sr.QLearning())
    for state in np.flatnonzero(~world.is_terminal):
        goal, pattern = divmod(int(state), 16)
        for a in range(4):
            left = (goal ^ pattern ^ (1 << a)).bit_count()
            assert Q[state, a] == pytest.approx(value_at(left + 1, 0.9), abs=1e-9)


# -- starts, goals, and the path a reader follows ----------------------------------------------------------------------


def test_an_episode_asks_for_every_goal_alike_and_never_for_the_cell_it_starts_in():
    world = goal_map("S.S\n...", start="S")
    sheets = world.start.reshape(world.goals.size, world.n_cells)
    assert sheets.sum(1) == pytest.approx(np.full(6, 1 / 6))
    assert sheets[np.arange(6), world.goals].tolist() == [0.0] * 6
    assert sheets[0, 2] == pytest.approx(1 / 6)  # goal 0 is one of two starts: the other it is


def test_a_goal_that_is_the_only_start_is_not_asked_for():
    world = goal_map("S..")
    sheets = world.start.reshape(3, 3)
    assert sheets.tolist() == [[0.0, 0.0, 0.0], [0.5, 0.0, 0.0], [0.5, 0.0, 0.0]]


def test_goals_are_every_free_cell_that_can_be_reached_the_marked_ones_first():
    world = goal_map("S.#.\n.X#.\n..#.\n.G#.")
    assert [world.layout.cells[g] for g in world.goals] == [(3, 1), (0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (3, 0)]
    assert world.origin == 0  # the start, under the first goal
    assert sr.path(world, sr.exact(world, sr.QLearning()).argmax(1)).end == "goal"


def test_the_origin_is_not_at_its_goal():
    world = goal_map("S..", goals=[0, 2])
    assert (world.origin, world.is_terminal[world.origin]) == (3, False)
    assert not any(w.is_terminal[w.origin] for w in (goal_room(), goal_cliff(), bit_flip(2)))


def test_where_caution_pays_q_star_goes_round_the_edge():
    """P(fall) of Q* from the origin, solved exactly: the dearer a fall, the farther from the edge."""
    risks = []
    for hazard in (-12.0, -30.0):
        world = goal_cliff(hazard=hazard)
        risks.append(sr.evaluate(world, sr.exact(world, sr.QLearning()).argmax(1), start=world.origin).p_unsafe)
    assert risks == pytest.approx([0.1196, 0.0326], abs=1e-4)


# -- the object --------------------------------------------------------------------------------------------------------


def test_a_goal_model_stays_one_and_frozen():
    world = goal_map("S..")
    for same in (deepcopy(world), world.with_gamma(0.5), world.with_start(1), world.reachable_part()):
        assert isinstance(same, GoalMDP)
        assert same.goals.tolist() == [0, 1, 2]
        with pytest.raises(ValueError, match="read-only"):
            same.goals[0] = 1
    assert repr(world).startswith("GoalMDP(3 goals, 1×3 grid, 9 states")


def test_a_saved_one_is_the_table_without_goals(tmp_path):
    world = goal_map("S..")
    kept = sr.TabularMDP.load(world.save(tmp_path / "world.npz"))
    assert kept == world
    assert not isinstance(kept, GoalMDP)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: goal_mdp("S.."), "base must be a TabularMDP, got 'S..'"),
        (lambda: goal_map("S..", goals=[]), "goals must name at least one state, got []"),
        (lambda: goal_map("S..", goals=3), "goals must list states or cells, got 3"),
        (lambda: goal_map("S..", goals=[1, 1]), "goals must name each state once, got [1, 1]"),
        (lambda: goal_map("S..", goals=[0]), "goals must leave one that is not the only start, got [0]"),
        (lambda: goal_map("S..", goals=[9]), "goals must name states that are not an unsafe end, got 9"),
        (lambda: goal_map("S..X", goals=[3]), "goals must name states that are not an unsafe end, got 3"),
        (lambda: goal_map("S..#.#", goals=[3]), "goals must be reachable from the start, got 3"),
        (lambda: goal_map("S.."[::-1], goals=[(1, 1)]), "cell must be a free cell of the 1×3 map, got (1, 1)"),
        (lambda: goal_map(3), "text must be a map as text, got 3"),
        (lambda: goal_map("S."), "text must have two free cells, marked . or G, beside others, got 1"),
        (lambda: goal_map("..."), "text must mark a start S, got 'none'"),
        (lambda: goal_map("S..?"), "cell (0, 3) of the map must be one of .#SGX^>v<, got '?'"),
        (lambda: goal_map("S..", start="s"), "unknown start 's'; did you mean 'S'?"),
        (lambda: bit_flip(10), "n must be at most 9, got 10; the table has 4ⁿ states"),
        (lambda: bit_flip(0), "n must be at least 1, got 0"),
        (lambda: goal_map("S..").state(3, 0), "cell must be below 3, got 3"),
        (lambda: goal_map("S..").state(0, 3), "goal must be below 3, got 3"),
        (
            lambda: goal_mdp(sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 1.0, 0, 1.0, True, True)])),
            "unsafe ends of base must lead to states without outcomes, got [0]",
        ),
        (
            lambda: goal_mdp(sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 1.0, 0, 1.0)]), goals=[(0, 0)]),
            "goals must be states where the base has no layout, got (0, 0)",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(make, message):
    with fails(message):
        make()
