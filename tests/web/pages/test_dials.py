"""Turning the dials: the boards follow the exact limit, and say where it switches."""

import re

import pytest
from browsing import arrows, judged, limit, model

import safereplay as sr
from safereplay.theory.solver import greedy

ARROWS = "↑→↓←"


def check_against(page, learner, epsilon=0.1):
    """The right board, its numbers and the marks of both are those of the limit that Python finds."""
    world = page.state["world"]
    mdp = model(world)
    policy = greedy(limit(mdp, learner, epsilon), mdp.r)
    plain = arrows(mdp, greedy(sr.exact(mdp, sr.QLearning()), mdp.r))
    shaped = arrows(mdp, policy)
    assert page.arrows("right") == shaped
    assert page.arrows("left") == plain
    risk = sr.evaluate(mdp, policy, start=judged(mdp, world["rows"]), quiet=True)
    assert page.value("right-unsafe") == pytest.approx(risk.p_unsafe, abs=1e-12)
    assert page.value("right-mean") == pytest.approx(risk.mean)
    different = {at for at in plain if plain[at] != shaped[at]}
    assert page.marked("right") == page.marked("left") == different
    return different


@pytest.mark.parametrize("world", ["cliff", "volatile"])
@pytest.mark.parametrize("mixing", ["matched", "literal"])
def test_a_dragged_v_shows_the_fixed_point_wherever_it_stops(visit, world, mixing):
    page = visit(f"world={world}&right=replay,v:0,beta:5,mixing:{mixing}")
    seen = []
    with page.held("right-v") as drag:
        for share in (0.0, 0.08, 0.35, 0.55, 0.9):
            v = drag(share)
            assert v == pytest.approx(0.99 * share, abs=0.03)
            learner = sr.ReplayQLearning(sr.VarianceReplay(5.0), v, mixing=mixing)
            seen.append(check_against(page, learner))
    assert len(set(map(frozenset, seen))) > 1  # the drag went past a switch


def test_every_dial_of_every_learner_sets_what_it_says(visit):
    page = visit("world=cliff")
    page.slide("right-beta", 2.5)
    page.choose("right-scheme", "score")
    page.choose("right-mixing", "matched")
    page.slide("right-v", 0.7)
    check_against(page, sr.ReplayQLearning(sr.ScoreReplay(2.5), 0.7, mixing="matched"))
    page.choose("right-kind", "mihatsch")
    assert page.page.locator("#right-v").count() == 0
    page.slide("right-kappa", 0.95)
    check_against(page, sr.RiskSensitive(0.95))
    page.choose("right-kind", "gaskett")
    page.slide("right-beta", 0.4)
    check_against(page, sr.Pessimistic(0.4))
    page.choose("right-kind", "worst-case")
    assert page.page.locator("#right-beta").count() == 0
    check_against(page, sr.WorstCase())
    page.choose("right-kind", "worst-transition")
    check_against(page, sr.WorstTransition())


def test_every_dial_of_the_world_sets_what_it_says(visit):
    page = visit("world=cliff&right=replay,v:0.5,beta:5")
    page.slide("gamma", 0.9)
    page.slide("epsilon", 0.3)
    page.slide("slip", 0.25)
    page.choose("slip-to", "sides")
    page.choose("start", "S")
    page.page.locator("#fall-ends").uncheck()
    page.type("goal", 20)
    page.type("step", -0.5)
    page.type("hazard", -30)
    world = page.settled().state["world"]
    said = {name: world[name] for name in ("gamma", "slip", "slip_to", "start", "fall_ends", "goal", "step", "hazard")}
    assert list(said.values()) == [0.9, 0.25, "sides", "S", False, 20, -0.5, -30]
    check_against(page, sr.ReplayQLearning(sr.VarianceReplay(5.0), 0.5), epsilon=0.3)


def test_a_volatile_world_sets_what_its_gambles_pay(visit):
    page = visit("world=volatile&right=replay,v:0.2,beta:5,mixing:matched")
    page.type("volatile-p", 0.9)
    page.type("volatile-good", 10)
    page.type("volatile-bad", -200)
    assert page.settled().state["world"]["volatile"] == [[0.9, 10], [0.1, -200]]
    check_against(page, sr.ReplayQLearning(sr.VarianceReplay(5.0), 0.2, mixing="matched"))


def said_of(page, way, at):
    """What the line under the right board says of a cell: its four values and where it switches."""
    line = page.page.locator("#right-detail")
    getattr(page.cell(at, "right"), way)()
    line.get_by_text(f"Row {at[0] + 1}, column {at[1] + 1}:").wait_for()
    page.page.wait_for_function("() => !document.getElementById('right-detail').textContent.includes('…')")
    text = line.inner_text().replace("−", "-")
    values = [float(x) for x in re.findall(r"[↑→↓←]\s+(-?[\d.e-]+)", text.split("Q", 1)[1])[:4]]
    switch = re.search(r"switches to ([↑→↓←]) at v = ([\d.]+)", text)
    return values, switch and (ARROWS.index(switch[1]), float(switch[2]))


def test_a_cell_that_is_pointed_at_shows_its_values_and_its_switch(visit, server):
    page = visit("world=cliff&right=replay,v:0.6,beta:5,mixing:matched")
    mdp = sr.grids.cliff()
    answer = page.page.request.get(
        f"{server}/api/switches", params={"world": "cliff", "learner": "replay,v:0.5,beta:5,mixing:matched"}
    ).json()
    Q = limit(mdp, sr.ReplayQLearning(sr.VarianceReplay(5.0), 0.6, mixing="matched"))
    before = greedy(sr.exact(mdp, sr.QLearning()), mdp.r)
    for at, way in (((2, 1), "hover"), ((0, 3), "hover"), ((2, 2), "focus")):
        s = mdp.layout.state_at(*at)
        values, switch = said_of(page, way, at)
        assert values == pytest.approx(Q[s], rel=6e-3)
        first = answer["first"][s]
        assert (switch is None) == (first is None)
        if switch is None:
            continue
        assert switch == (answer["to"][s], pytest.approx(first, rel=0.06))
        for v, action in ((0.0, before[s]), (first - 0.01, before[s]), (first, answer["to"][s])):
            found = greedy(sr.fixed_point(mdp, sr.VarianceReplay(5.0), v), mdp.r)
            assert found[s] == action  # an independent look: the limit itself, on both sides of the switch


@pytest.mark.parametrize("width", [1280, 1024, 390])
def test_the_values_of_a_cell_are_read_in_full(visit, width):
    page = visit("world=cliff", viewport={"width": width, "height": 844})
    for side in ("left", "right"):
        page.cell((2, 1), side).focus()
        line = page.page.locator(f"#{side}-detail")
        line.get_by_text("Row 3, column 2").wait_for()
        if side == "right":
            line.get_by_text("v = 0").wait_for()  # where it switches
        out = line.evaluate("""(line) => [...line.children].map((x) => x.getBoundingClientRect()).filter((box) => {
            const room = line.getBoundingClientRect();
            return box.right > room.right + 1 || box.bottom > room.bottom + 1;
        }).length""")
        assert (out, "←" in line.inner_text()) == (0, True)


def test_a_board_says_which_dials_its_learner_has_and_whether_it_is_one_run(visit):
    page = visit("world=cliff&left=dyna&right=replay,v:0.3,beta:2,mixing:matched")
    assert "one run of 20,000 episodes" in page.text("left-detail")
    assert page.text("right-detail").startswith("v = 0.3, β = 2; after each visit")


def test_a_learner_that_is_chosen_again_has_its_dials_again(visit):
    page = visit("world=cliff&right=replay,v:0.3,beta:2,mixing:matched")
    before = page.state["right"]
    page.choose("right-kind", "q")
    page.choose("right-kind", "replay")
    assert page.state["right"] == before
    page.choose("left-kind", "replay")
    assert page.state["left"]["mixing"] == "matched"  # as in every link of the page's own
