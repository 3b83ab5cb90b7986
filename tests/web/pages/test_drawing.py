"""Drawing a world with the mouse."""

import pytest
from browsing import arrows, judged, limit, model

import safereplay as sr
from safereplay.theory.solver import greedy

DRAWN = """
...#....
...#....
...#.G..
...#.XX.
........
S......G
"""


def rows_of(text):
    return text.split()


@pytest.fixture
def blank(visit):
    return visit("world=blank&right=replay,v:0.5,beta:5,mixing:matched")


def test_a_drawn_world_has_the_arrows_of_its_exact_limits(blank):
    blank.tool("wall")
    blank.draw((0, 3), (3, 3))
    blank.tool("hazard")
    blank.draw((3, 5), (3, 6), side="right")
    blank.tool("goal")
    blank.draw((2, 5))
    assert blank.rows() == rows_of(DRAWN)
    mdp = sr.grids.from_map(DRAWN, slip=0.1, gamma=0.95)
    learners = {"left": sr.QLearning(), "right": sr.ReplayQLearning(sr.VarianceReplay(5.0), 0.5, mixing="matched")}
    for side, learner in learners.items():
        policy = greedy(limit(mdp, learner), mdp.r)
        assert blank.arrows(side) == arrows(mdp, policy)
        risk = sr.evaluate(mdp, policy, start=judged(mdp, rows_of(DRAWN)))
        assert blank.value(f"{side}-unsafe") == pytest.approx(risk.p_unsafe, abs=1e-12)
        assert blank.value(f"{side}-mean") == pytest.approx(risk.mean)


def test_a_stroke_is_one_step_back_and_one_forth(blank):
    before = blank.rows()
    blank.tool("wall")
    blank.draw((1, 1), (1, 5), (3, 5))
    drawn = blank.rows()
    assert [row.count("#") for row in drawn] == [0, 5, 1, 1, 0, 0]
    blank.tool("free")
    blank.draw((1, 3))
    blank.press("undo")
    assert blank.rows() == drawn
    blank.press("undo")
    assert blank.settled().rows() == before
    assert blank.page.locator("#undo").is_disabled()
    blank.press("redo")
    blank.press("redo")
    assert blank.settled().rows()[1] == ".##.##.."
    assert blank.page.locator("#redo").is_disabled()


def test_a_quick_hand_leaves_no_gaps(blank):
    blank.tool("wall")
    blank.page.mouse.move(*blank.middle((0, 0)))
    blank.page.mouse.down()
    blank.page.mouse.move(*blank.middle((0, 7)))
    blank.page.mouse.up()
    assert blank.settled().rows()[0] == "########"


def test_a_cell_of_its_own_pays_what_its_form_says(blank):
    blank.tool("right")
    blank.draw((5, 3), (5, 4))
    blank.type("cell-good", 4)
    blank.type("cell-p", 0.9)
    blank.type("cell-bad", -60)
    blank.tool("select")
    blank.draw((5, 7))
    blank.type("cell-goal", 50)
    world = blank.settled().state["world"]
    own = list(world["volatiles"])
    assert own in (["5,3"], ["5,4"])
    assert world["volatiles"][own[0]] == [[0.9, 4], [0.1, -60]]
    assert world["goals"] == {"5,7": 50}
    mdp = model(world)
    assert blank.arrows("left") == arrows(mdp, greedy(sr.exact(mdp, sr.QLearning()), mdp.r))
    row, column = map(int, own[0].split(","))
    assert 4.0 in mdp.outcomes(mdp.layout.state_at(row, column), 1).r


def test_the_size_grows_and_shrinks_and_comes_back(blank):
    before = blank.rows()
    blank.type("rows-count", 3)
    blank.type("columns-count", 20)
    assert [len(row) for row in blank.rows()] == [20, 20, 20]
    assert blank.page.locator("#left-board [role=gridcell]").count() == 60
    for _ in range(2):
        blank.press("undo")
    assert blank.settled().rows() == before


def test_a_world_without_a_goal_is_told_what_it_lacks_and_recovers(visit):
    cliff = visit("world=cliff")
    cliff.tool("free")
    cliff.draw((3, 5))
    notice = cliff.page.locator("#notice")
    notice.get_by_text("A world needs a goal").wait_for()
    assert notice.get_attribute("role") == "alert"
    cliff.press("undo")
    cliff.settled()
    notice.wait_for(state="hidden")


def test_every_world_of_the_menu_shows_the_limit_of_plain_q_learning(blank):
    names = blank.page.locator("#preset option").evaluate_all("(options) => options.map((option) => option.value)")
    assert set(names) > {"cliff", "volatile", "frozen_lake"}
    for name in names:
        blank.choose("preset", name)
        world = blank.state["world"]
        assert world["name"] == name
        mdp = model(world)
        assert blank.arrows("left") == arrows(mdp, greedy(sr.exact(mdp, sr.QLearning()), mdp.r))
