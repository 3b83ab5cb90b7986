import re

import numpy as np
import pytest
from drawn import OPTIONS, outcomes, random_maps
from effort import in_lines
from hypothesis import given, settings
from hypothesis import strategies as st

import safereplay as sr
from safereplay import grids as maps
from safereplay.grids import from_map

UP, RIGHT, DOWN, LEFT = range(4)


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


def test_walls_are_not_states_and_stop_a_move():
    mdp = from_map("S#G\n...")
    assert mdp.n_states == 5
    assert mdp.layout.cells == ((0, 0), (0, 2), (1, 0), (1, 1), (1, 2))
    assert outcomes(mdp, (0, 0), RIGHT) == {((0, 0), -1.0, False, False): 1.0}
    assert outcomes(mdp, (1, 1), UP) == {((1, 1), -1.0, False, False): 1.0}
    assert outcomes(mdp, (1, 2), UP) == {((0, 2), 10.0, True, False): 1.0}


@pytest.mark.parametrize(
    ("arrow", "a", "cell"), [("^", UP, (0, 1)), (">", RIGHT, (1, 2)), ("v", DOWN, (2, 1)), ("<", LEFT, (1, 0))]
)
def test_each_arrow_makes_the_move_that_way_volatile_and_no_other(arrow, a, cell):
    mdp = from_map(f"..G\n.{arrow}.\n...", volatile=[(0.9, 2.0), (0.1, -7.0)])
    for b in range(4):
        found = outcomes(mdp, (1, 1), b)
        if b == a:
            assert found == {(cell, 2.0, False, False): 0.9, (cell, -7.0, False, True): pytest.approx(0.1)}
        else:
            assert [key[1:] for key in found] == [(-1.0, False, False)]


def test_a_volatile_move_into_the_goal_pays_the_goal():
    assert outcomes(from_map("S>G"), (0, 1), RIGHT) == {((0, 2), 10.0, True, False): 1.0}


def test_several_goals_have_rewards_of_their_own():
    mdp = from_map("G.S.G", goal={(0, 0): 3.0, (0, 4): 50.0})
    assert outcomes(mdp, (0, 1), LEFT) == {((0, 0), 3.0, True, False): 1.0}
    assert outcomes(mdp, (0, 3), RIGHT) == {((0, 4), 50.0, True, False): 1.0}
    assert {-1.0, 4.0} == set(from_map("G.S.G", goal=4.0).r.tolist())


def test_a_goal_that_differs_from_the_others_is_named_by_its_cell():
    for key in ((0, 4), "0,4", " 0, 4", (np.int64(0), np.int64(4))):
        mdp = from_map("G.S.G", goal=4.0, goals={key: 50.0})
        assert outcomes(mdp, (0, 1), LEFT) == {((0, 0), 4.0, True, False): 1.0}
        assert outcomes(mdp, (0, 3), RIGHT) == {((0, 4), 50.0, True, False): 1.0}
    both = from_map("G.S.G", goal={(0, 0): 3.0, (0, 4): 5.0}, goals={(0, 4): 50.0})
    assert both == from_map("G.S.G", goal={(0, 0): 3.0, (0, 4): 50.0})


def test_a_volatile_move_that_differs_from_the_others_is_named_by_its_cell():
    usual, own = [(0.6, 9.0), (0.4, -9.0)], [(0.7, 4.0), (0.2, 0.0), (0.1, -60.0)]
    mdp = from_map("S>>>.G", volatile=usual, volatiles={"0,2": own})
    for column in (1, 3):
        assert outcomes(mdp, (0, column), RIGHT) == {
            ((0, column + 1), 9.0, False, False): 0.6,
            ((0, column + 1), -9.0, False, True): 0.4,
        }
    assert outcomes(mdp, (0, 2), RIGHT) == {
        ((0, 3), 4.0, False, False): 0.7,
        ((0, 3), 0.0, False, False): 0.2,
        ((0, 3), -60.0, False, True): 0.1,
    }


def test_no_cell_that_differs_is_the_same_as_none_named():
    assert from_map("S>.G", goals={}, volatiles={}) == from_map("S>.G", goals=None, volatiles=None)


def test_a_slip_to_the_sides_never_goes_back():
    mdp = from_map("...\n.S.\n..G", slip=0.2, slip_to="sides")
    assert outcomes(mdp, (1, 1), UP) == {
        ((0, 1), -1.0, False, False): pytest.approx(0.8),
        ((1, 0), -1.0, False, False): pytest.approx(0.1),
        ((1, 2), -1.0, False, False): pytest.approx(0.1),
    }
    assert outcomes(mdp, (1, 1), LEFT) == {
        ((1, 0), -1.0, False, False): pytest.approx(0.8),
        ((0, 1), -1.0, False, False): pytest.approx(0.1),
        ((2, 1), -1.0, False, False): pytest.approx(0.1),
    }


@pytest.mark.parametrize(("way", "b"), [("up", UP), ("right", RIGHT), ("down", DOWN), ("left", LEFT)])
def test_a_wind_carries_every_move_its_way(way, b):
    mdp = from_map("....\n.S..\n....\n...G", slip=0.2, slip_to=way)
    cells = [(0, 1), (1, 2), (2, 1), (1, 0)]
    for a in range(4):
        wanted = {cells[b]: 1.0} if a == b else {cells[a]: 0.8, cells[b]: 0.2}
        assert {key[0]: p for key, p in outcomes(mdp, (1, 1), a).items()} == pytest.approx(wanted)


def test_a_wind_does_not_touch_a_move_into_the_goal_unless_asked_to():
    sure, not_sure = (from_map("SG\n.X", slip=0.2, slip_to="down", goal_slips=slips) for slips in (False, True))
    assert outcomes(sure, (0, 0), RIGHT) == {((0, 1), 10.0, True, False): 1.0}
    assert outcomes(not_sure, (0, 0), RIGHT) == {
        ((0, 1), 10.0, True, False): pytest.approx(0.8),
        ((1, 0), -1.0, False, False): pytest.approx(0.2),
    }


def test_starts_are_uniform_or_marked_or_listed():
    text = "S.X\n.#G\nS.."
    assert from_map(text).start.tolist() == pytest.approx([1 / 6, 1 / 6, 0, 1 / 6, 0, 1 / 6, 1 / 6, 1 / 6])
    assert from_map(text, start="S").start.tolist() == [0.5, 0, 0, 0, 0, 0.5, 0, 0]
    assert from_map(text, start=[(0, 1), (2, 2)]).start.tolist() == [0, 0.5, 0, 0, 0, 0, 0, 0.5]
    assert from_map(text, start=[[0, 1]]).start.tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    assert from_map(text, start="S").origin == 0


def test_the_origin_is_s_or_the_longest_volatile_way_or_the_first_start():
    assert from_map(">>.\n.S.\n..G").layout.origin == 4
    assert from_map("...\n>..\n>>G").layout.origin == 6
    assert from_map("...\n..G", start=[(0, 2)]).layout.origin == 2


def test_a_ring_of_arrows_has_an_end():
    assert from_map(">v.\n^<G").layout.origin == 0


def test_blank_space_around_a_map_does_not_matter():
    assert from_map("\n   S.\n   .G  \n") == from_map("S.\n.G")


def test_a_goal_behind_a_fall_that_leads_home_can_be_reached():
    """From the right-hand cell the only way is to fall, which puts the agent on S, beside the goal."""
    mdp = from_map("GS#X.", fall_ends=False)
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
        ("S.G", {"goal": {(0, 2): 1.0, "0,2": 2.0}}, "goal must name each cell once, got '0,2'"),
        ("S.G", {"goals": {(0, 1): 5.0}}, "goals must name cells marked G, got (0, 1)"),
        ("S#G", {"goals": {"0,1": 5.0}}, "goals must name cells marked G, got '0,1'"),
        ("S.G", {"goals": {(0, -1): 5.0}}, "goals must name cells marked G, got (0, -1)"),
        ("S.G", {"goals": {(0, 2): "x"}}, "goal at (0, 2) must be a number, got 'x'"),
        ("S.G", {"goals": {2: 5.0}}, "goals must name cells as (row, column) or 'row,column', got 2"),
        ("S.G", {"goals": {"0;2": 5.0}}, "goals must name cells as (row, column) or 'row,column', got '0;2'"),
        ("S.G", {"goals": {(0, 2.5): 5.0}}, "goals must name cells as (row, column) or 'row,column', got (0, 2.5)"),
        ("S.G", {"goals": 5.0}, "goals must map cells to values, got 5"),
        ("S>.G", {"volatiles": {(0, 2): [(1.0, 1.0)]}}, "volatiles must name cells marked by one of ^>v<, got (0, 2)"),
        ("S>.G", {"volatiles": {(0, 1): [(0.5, 1.0)]}}, "p of volatile at (0, 1) must sum to 1, got 0.5"),
        ("S>.G", {"volatiles": {(0, 1): 3.0}}, "volatile at (0, 1) must list pairs (probability, reward), got 3"),
        ("S>.G", {"volatiles": [(1.0, 1.0)]}, "volatiles must map cells to values, got [(1.0, 1.0)]"),
        ("S.G", {"slip_to": "side"}, "unknown slip_to 'side'; did you mean 'sides'?"),
        ("S.G", {"slip_to": "north"}, "unknown slip_to 'north'; choose from any, down, left, others, right, sides, up"),
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
        from_map(text, **options)


# -- all cells at once --------------------------------------------------------------------------------------------------


class Slow:
    """A map's outcomes, cell by cell in plain loops: what the fast builder must give to the last bit."""

    def __init__(self, text, *, goal=10.0, step=-1.0, hazard=-10.0, volatile, slip, slip_to, fall_ends, goal_slips):
        self.lines = text.split("\n")
        self.cells = [(i, j) for i, line in enumerate(self.lines) for j, c in enumerate(line) if c != "#"]
        self.state = {cell: s for s, cell in enumerate(self.cells)}
        self.goals = {c: goal[c] if isinstance(goal, dict) else goal for c in self.where("G")}
        self.step, self.hazard = step, hazard
        self.volatiles = dict.fromkeys(self.cells, volatile)
        self.slip, self.slip_to, self.fall_ends, self.goal_slips = slip, slip_to, fall_ends, goal_slips
        self.home = self.state[self.where("S")[0]] if self.where("S") else 0

    def where(self, symbols):
        return [(i, j) for i, j in self.cells if self.lines[i][j] in symbols]

    def ends(self, s):
        i, j = self.cells[s]
        return self.lines[i][j] in "GX"

    def neighbour(self, s, a):
        i, j = self.cells[s]
        return self.state.get((i + maps.MOVES[a][0], j + maps.MOVES[a][1]), s)

    def directions(self, s, a):
        into_goal = self.cells[self.neighbour(s, a)] in self.goals
        if self.slip == 0 or (into_goal and not self.goal_slips):
            return [(1.0, a)]
        i, j = maps.MOVES[a]
        strays = {
            "any": [0, 1, 2, 3],
            "others": [b for b in range(4) if b != a],
            "sides": [b for b in range(4) if maps.MOVES[b] in ((j, i), (-j, -i))],
        }.get(self.slip_to) or [("up", "right", "down", "left").index(self.slip_to)]
        return [(1.0 - self.slip, a), *((self.slip / len(strays), b) for b in strays)]

    def landing(self, s, b):
        s_next = self.neighbour(s, b)
        i, j = self.cells[s_next]
        if (i, j) in self.goals:
            return [(1.0, s_next, self.goals[i, j], True, False)]
        if self.lines[i][j] == "X":
            return [(1.0, s_next if self.fall_ends else self.home, self.hazard, self.fall_ends, True)]
        here = self.cells[s]
        if self.lines[here[0]][here[1]] == maps.ARROWS[b]:
            return [(p, s_next, r, False, r < 0) for p, r in self.volatiles[here]]
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
        while cell in self.state and cell not in seen and self.lines[cell[0]][cell[1]] in maps.ARROWS:
            seen.add(cell)
            move = maps.MOVES[maps.ARROWS.index(self.lines[cell[0]][cell[1]])]
            cell, count = (cell[0] + move[0], cell[1] + move[1]), count + 1
        return count

    def origin(self, starts):
        for symbols in ("S", maps.ARROWS):
            cells = self.where(symbols)
            if cells:
                longest = max(cells, key=lambda c: (self.run(c), -c[0], -c[1]))
                return self.state[longest if symbols == maps.ARROWS else cells[0]]
        return starts[0]


@settings(max_examples=300)
@given(random_maps(), st.fixed_dictionaries(OPTIONS), st.sampled_from(["uniform", "S"]), st.integers(1, 9), st.data())
def test_all_cells_at_once_are_the_same_model_as_one_by_one(text, options, start, piece, data):
    """To the last bit, with every option, whatever the size of the pieces; and refused in the same words."""
    slow = Slow(text, **options)
    if data.draw(st.booleans()):
        goals = data.draw(st.permutations(slow.where("G")))
        options["goal"] = {cell: 1.0 + i for i, cell in enumerate(goals)}
        slow.goals = options["goal"]
    arrows = slow.where("^>v<")
    if arrows and data.draw(st.booleans()):
        own = data.draw(st.dictionaries(st.sampled_from(arrows), OPTIONS["volatile"]))
        slow.volatiles |= own
        options["volatiles"] = {f"{i},{j}": draws for (i, j), draws in own.items()}
    if data.draw(st.booleans()):
        options["goals"] = data.draw(st.dictionaries(st.sampled_from(slow.where("G")), st.just(77.0)))
        slow.goals = slow.goals | options["goals"]
    starts = [
        s for s in range(len(slow.cells)) if (slow.lines[slow.cells[s][0]][slow.cells[s][1]] == "S" or start != "S")
    ]
    starts = [s for s in starts if not slow.ends(s)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "PIECE", piece)
        if trouble := slow.trouble(starts):
            with fails(trouble):
                from_map(text, start=start, **options)
            return
        mdp = from_map(text, start=start, **options)
    p_start = np.bincount(starts, minlength=len(slow.cells)) / len(starts)
    again = sr.TabularMDP.from_outcomes(len(slow.cells), 4, slow.rows(), 0.9, p_start)
    for column in ("row", "p", "s_next", "r", "terminal", "unsafe", "start"):
        assert np.array_equal(getattr(mdp, column), getattr(again, column)), column
    assert mdp.layout.cells == tuple(slow.cells)
    assert mdp.layout.origin == slow.origin(starts)


@settings(max_examples=200)
@given(random_maps("^>v<.#"))
def test_the_longest_way_of_arrows_is_found_with_rings_and_walls(text):
    """Arrows everywhere: rings with ways into them, moves against walls. No S, so the arrows say where to begin."""
    text = text.replace("S", ".")
    slow = Slow(text, volatile=[], slip=0.0, slip_to="any", fall_ends=True, goal_slips=False)
    rules = {"goal": 1.0, "goals": None, "step": -1.0, "hazard": -1.0, "volatile": [(1.0, 1.0)], "volatiles": None}
    world = maps._World(slow.lines, rules | {"slip": 0.0, "slip_to": "any", "fall_ends": True, "goal_slips": False})
    assert world._runs().tolist() == [slow.run(cell) for cell in slow.cells]
    assert world.origin(np.array([0])) == slow.origin([0])


def test_a_very_long_way_of_arrows_is_followed_once():
    """A snake of 250,000 arrows: each one's way counted on its own would take hours. Here each takes a few lines."""
    n = 500
    rows = [">" * (n - 1) + "v" if i % 2 == 0 else "v" + "<" * (n - 1) for i in range(n)]
    rows[-1] = "G" + rows[-1][1:]
    mdp = in_lines(4 * n * n, lambda: from_map("\n".join(rows)))
    assert mdp.layout.origin == 0


def test_a_large_map_is_built_in_fewer_lines_than_it_has_cells():
    """160,000 cells, 3.2 million slippery outcomes before merging: a second or two, not minutes."""
    n = 400
    text = "\n".join(["S" + "." * (n - 1)] + ["." * n] * (n - 2) + ["." * (n - 2) + "XG"])
    mdp = in_lines(n * n, lambda: from_map(text, slip=0.1))
    assert mdp.n_states == n * n
    assert mdp.layout.state_at(n - 1, n - 1) == n * n - 1
    runs = sr.learn(mdp, sr.QLearning(), episodes=2, seeds=1, max_steps=100)
    assert 0 < runs.visits.sum() <= 200
