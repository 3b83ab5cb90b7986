import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


# -- all cells at once --------------------------------------------------------------------------------------------------


class Slow:
    """A map's outcomes, cell by cell in plain loops: what the fast builder must give to the last bit."""

    def __init__(self, text, *, goal=10.0, step=-1.0, hazard=-10.0, volatile, slip, slip_to, fall_ends, goal_slips):
        self.lines = text.split("\n")
        self.cells = [(i, j) for i, line in enumerate(self.lines) for j, c in enumerate(line) if c != "#"]
        self.state = {cell: s for s, cell in enumerate(self.cells)}
        self.goals = {c: goal[c] if isinstance(goal, dict) else goal for c in self.where("G")}
        self.step, self.hazard, self.volatile = step, hazard, volatile
        self.slip, self.slip_to, self.fall_ends, self.goal_slips = slip, slip_to, fall_ends, goal_slips
        self.home = self.state[self.where("S")[0]] if self.where("S") else 0

    def where(self, symbols):
        return [(i, j) for i, j in self.cells if self.lines[i][j] in symbols]

    def ends(self, s):
        i, j = self.cells[s]
        return self.lines[i][j] in "GX"

    def neighbour(self, s, a):
        i, j = self.cells[s]
        return self.state.get((i + grids.MOVES[a][0], j + grids.MOVES[a][1]), s)

    def directions(self, s, a):
        into_goal = self.cells[self.neighbour(s, a)] in self.goals
        if self.slip == 0 or (into_goal and not self.goal_slips):
            return [(1.0, a)]
        strays = range(4) if self.slip_to == "any" else [b for b in range(4) if b != a]
        return [(1.0 - self.slip, a), *((self.slip / len(strays), b) for b in strays)]

    def landing(self, s, b):
        s_next = self.neighbour(s, b)
        i, j = self.cells[s_next]
        if (i, j) in self.goals:
            return [(1.0, s_next, self.goals[i, j], True, False)]
        if self.lines[i][j] == "X":
            return [(1.0, s_next if self.fall_ends else self.home, self.hazard, self.fall_ends, True)]
        here = self.cells[s]
        if self.lines[here[0]][here[1]] == grids.ARROWS[b]:
            return [(p, s_next, r, False, r < 0) for p, r in self.volatile]
        return [(1.0, s_next, self.step, False, False)]

    def rows(self):
        return [
            (s, a, p * q, *rest)
            for s in range(len(self.cells))
            for a in range(4)
            if not self.ends(s)
            for p, b in self.directions(s, a)
            for q, *rest in self.landing(s, b)
        ]

    def closure(self, seeds, backwards=False):
        onward = {s: {self.landing(s, a)[0][1] for a in range(4)} for s in range(len(self.cells)) if not self.ends(s)}
        edges = {(t, s) if backwards else (s, t) for s, ahead in onward.items() for t in ahead}
        seen = set(seeds)
        while new := {t for s, t in edges if s in seen} - seen:
            seen |= new
        return seen

    def trouble(self, starts):
        """What is said of a map whose goals and starts do not come together; None if they do."""
        reached, leading = self.closure(starts), self.closure([self.state[c] for c in self.goals], backwards=True)
        for cell in self.goals:
            if self.state[cell] not in reached:
                return f"goal at {cell} must be reachable from a start"
        for s in starts:
            if s not in leading:
                return f"start at {self.cells[s]} must have a way to a goal"
        return None

    def run(self, cell):
        count, seen = 0, set()
        while cell in self.state and cell not in seen and self.lines[cell[0]][cell[1]] in grids.ARROWS:
            seen.add(cell)
            move = grids.MOVES[grids.ARROWS.index(self.lines[cell[0]][cell[1]])]
            cell, count = (cell[0] + move[0], cell[1] + move[1]), count + 1
        return count

    def origin(self, starts):
        for symbols in ("S", grids.ARROWS):
            cells = self.where(symbols)
            if cells:
                longest = max(cells, key=lambda c: (self.run(c), -c[0], -c[1]))
                return self.state[longest if symbols == grids.ARROWS else cells[0]]
        return starts[0]


@st.composite
def maps(draw, symbols="....#SGX^>v<"):
    height, width = draw(st.integers(1, 6)), draw(st.integers(2, 7))
    cells = [[draw(st.sampled_from(symbols)) for _ in range(width)] for _ in range(height)]
    cells[draw(st.integers(0, height - 1))][0], cells[draw(st.integers(0, height - 1))][-1] = "SG"
    return "\n".join("".join(row) for row in cells)


OPTIONS = {
    "volatile": st.sampled_from([[(0.6, 100.0), (0.4, -100.0)], [(1.0, 3.0)], [(0.5, 0.0), (0.3, -1.0), (0.2, -2.0)]]),
    "slip": st.sampled_from([0.0, 0.1, 0.37, 1.0]),
    "slip_to": st.sampled_from(["any", "others"]),
    "fall_ends": st.booleans(),
    "goal_slips": st.booleans(),
    "step": st.sampled_from([-1.0, 0.0, 0.3]),
    "hazard": st.sampled_from([-10.0, -1.0]),
}


@settings(max_examples=300)
@given(maps(), st.fixed_dictionaries(OPTIONS), st.sampled_from(["uniform", "S"]), st.integers(1, 9), st.data())
def test_all_cells_at_once_are_the_same_model_as_one_by_one(text, options, start, piece, data):
    """To the last bit, with every option, whatever the size of the pieces; and refused in the same words."""
    slow = Slow(text, **options)
    if data.draw(st.booleans()):
        goals = data.draw(st.permutations(slow.where("G")))
        options["goal"] = {cell: 1.0 + i for i, cell in enumerate(goals)}
        slow.goals = options["goal"]
    starts = [
        s for s in range(len(slow.cells)) if (slow.lines[slow.cells[s][0]][slow.cells[s][1]] == "S" or start != "S")
    ]
    starts = [s for s in starts if not slow.ends(s)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grids, "PIECE", piece)
        if trouble := slow.trouble(starts):
            with fails(trouble):
                grids.from_map(text, start=start, **options)
            return
        mdp = grids.from_map(text, start=start, **options)
    p_start = np.bincount(starts, minlength=len(slow.cells)) / len(starts)
    again = sr.TabularMDP.from_outcomes(len(slow.cells), 4, slow.rows(), 0.9, p_start)
    for column in ("row", "p", "s_next", "r", "terminal", "unsafe", "start"):
        assert np.array_equal(getattr(mdp, column), getattr(again, column)), column
    assert mdp.layout.cells == tuple(slow.cells)
    assert mdp.layout.origin == slow.origin(starts)


@settings(max_examples=200)
@given(maps("^>v<.#"))
def test_the_longest_way_of_arrows_is_found_with_rings_and_walls(text):
    """Arrows everywhere: rings with ways into them, moves against walls. No S, so the arrows say where to begin."""
    text = text.replace("S", ".")
    slow = Slow(text, volatile=[], slip=0.0, slip_to="any", fall_ends=True, goal_slips=False)
    world = grids._World(slow.lines, 1.0, -1.0, -1.0, [(1.0, 1.0)], 0.0, "any", True, False)
    assert world._runs().tolist() == [slow.run(cell) for cell in slow.cells]
    assert world.origin(np.array([0])) == slow.origin([0])


def test_a_very_long_way_of_arrows_is_followed_in_no_time():
    """A snake of 250,000 arrows: each one's way counted on its own would take hours."""
    n = 500
    rows = [">" * (n - 1) + "v" if i % 2 == 0 else "v" + "<" * (n - 1) for i in range(n)]
    rows[-1] = "G" + rows[-1][1:]
    began = time.perf_counter()
    mdp = grids.from_map("\n".join(rows))
    assert mdp.layout.origin == 0
    assert time.perf_counter() - began < 30


def test_a_large_map_is_built_in_reasonable_time():
    """160,000 cells, 3.2 million slippery outcomes before merging: a second or two, not minutes."""
    n = 400
    text = "\n".join(["S" + "." * (n - 1)] + ["." * n] * (n - 2) + ["." * (n - 2) + "XG"])
    began = time.perf_counter()
    mdp = grids.from_map(text, slip=0.1)
    took = time.perf_counter() - began
    assert mdp.n_states == n * n
    assert mdp.layout.state_at(n - 1, n - 1) == n * n - 1
    assert took < 10
    runs = sr.learn(mdp, sr.QLearning(), episodes=2, seeds=1, max_steps=100)
    assert 0 < runs.visits.sum() <= 200


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
