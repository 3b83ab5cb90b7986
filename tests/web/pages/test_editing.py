"""Forgiving editing: numbers, unfinished drawings, Back and Forward, the theme, and links from elsewhere."""

import pytest


def test_a_number_is_taken_on_enter_or_when_it_is_left_and_kept_within_its_bounds(visit):
    page = visit("world=cliff")
    rows = page.reveal("rows-count")
    rows.focus()
    rows.press("Control+a")
    page.page.keyboard.type("21")
    assert len(page.rows()) == 4  # nothing happens while it is typed
    page.page.keyboard.press("Enter")
    assert len(page.settled().rows()) == 20
    assert rows.input_value() == "20"
    page.type("goal", "1e7")
    assert page.state["world"]["goal"] == 1e6
    page.type("volatile-p", "1.5")
    assert page.state["world"]["volatile"][0][0] == 1
    page.type("step", "")
    assert page.state["world"]["step"] == -1
    assert page.page.locator("#step").input_value() == "-1"


def test_an_unfinished_drawing_survives_a_reload(visit):
    page = visit("world=cliff")
    page.tool("free")
    page.draw((3, 5))
    page.page.wait_for_function("() => location.search.includes('map=')")
    page.page.reload()
    page.page.locator("#notice").get_by_text("A world needs a goal").wait_for()
    assert page.rows()[3] == "SXXXX."
    page.tool("goal")
    page.draw((3, 4))
    assert page.page.locator("#notice").is_hidden()


def test_back_and_forward_go_through_the_steps(visit):
    page = visit("world=cliff")
    page.choose("preset", "volatile")
    page.page.wait_for_function("() => location.search.includes('world=volatile')")
    page.choose("right-kind", "gaskett")
    page.page.wait_for_function("() => location.search.includes('gaskett')")
    page.page.go_back()
    page.page.wait_for_function("() => window.safereplay.state.right.kind === 'replay'")
    assert page.settled().state["world"]["name"] == "volatile"
    page.page.go_back()
    page.page.wait_for_function("() => window.safereplay.state.world.name === 'cliff'")
    page.page.go_forward()
    page.page.wait_for_function("() => window.safereplay.state.world.name === 'volatile'")
    page.settled()


def test_back_goes_through_the_steps_of_a_lesson(visit):
    page = visit()
    for name in ("1.1", "1.2"):
        page.press("lesson-next")
        page.page.wait_for_function("(name) => location.search.includes(`lesson=${name}`)", arg=name)
    words = page.text("lesson-text .lesson-words")
    page.page.go_back()
    page.page.wait_for_function("() => location.search.includes('lesson=1.1')")
    assert page.text("lesson-text .lesson-words") != words


def test_the_theme_is_remembered(visit):
    page = visit(color_scheme="light")
    page.press("theme")
    page.page.reload()
    assert page.settled().page.locator("html").get_attribute("data-theme") == "dark"


@pytest.mark.parametrize("extra", ["fbclid=abc", "utm_source=x&colour=red", "lesson=99.1", "lesson=x"])
def test_parameters_from_elsewhere_are_ignored(visit, extra):
    page = visit(f"world=volatile&{extra}")
    assert page.state["world"]["name"] == "volatile"
    assert page.page.locator("#notice").is_hidden()


def test_an_interval_is_no_cell(visit):
    page = visit()
    page.open("world=cliff&gamma=1.5")
    said = page.text("notice")
    assert "cannot be read" in said
    assert "row" not in said


def test_dials_reach_what_lessons_name_and_links_may_go_beyond(visit):
    page = visit("world=cliff&right=replay,v:0.995,beta:25,mixing:matched")
    assert page.reveal("right-beta").input_value() == "25"
    page.page.locator("#right-beta").press("ArrowLeft")
    assert page.settled().state["right"]["beta"] == pytest.approx(24.95)
    page.page.locator("#right-v").press("ArrowLeft")
    assert page.settled().state["right"]["v"] == pytest.approx(0.985)
    page.slide("right-beta", 0.05)
    assert page.state["right"]["beta"] == 0.05


def test_a_board_does_not_move_when_it_is_pointed_at(visit):
    page = visit("world=cliff")
    box = "document.getElementById('play').getBoundingClientRect().top"
    before = page.page.evaluate(box)
    page.cell((2, 1), "right").hover()
    page.page.locator("#right-detail").get_by_text("Row 3, column 2").wait_for()
    assert page.page.evaluate(box) == before


def test_a_lesson_that_is_opened_while_the_server_is_away_is_set_later(visit):
    page = visit("world=volatile")
    page.page.route("**/api/state*", lambda route: route.fulfill(status=200, json={"problem": "busy", "status": 429}))
    page.press("lesson-next")
    page.page.locator("#notice").get_by_text("Busy").wait_for()
    page.page.unroute("**/api/state*")
    page.page.wait_for_function("() => window.safereplay.state.world.name === 'cliff'")
    page.settled()


def test_every_learner_scheme_and_world_of_the_catalog_can_be_chosen(visit, server):
    page = visit("world=cliff")
    kinds = page.page.request.get(f"{server}/api/learners").json()
    for kind, about in kinds.items():
        page.choose("right-kind", kind)
        assert page.arrows("right"), kind
        assert page.page.locator("#notice").is_hidden(), kind
        page.reveal("right-dials")
        assert about["about"] in page.text("right-dials")
        assert page.page.locator("#right-dials input[type=range]").count() == len(
            about["sliders"] if kind != "replay" else ["v", "beta"]
        )
    page.choose("right-kind", "replay")
    for scheme in kinds["replay"]["choices"]["scheme"]:
        page.choose("right-scheme", scheme["value"])
        assert page.page.locator("#notice").is_hidden(), scheme["value"]
        assert page.page.locator("#right-dials .formula").text_content() == scheme["formula"]
        dials = page.page.locator("#right-dials input[type=range]").evaluate_all("(all) => all.map((x) => x.id)")
        assert dials == ["right-v", *(f"right-{name}" for name in scheme["dials"])]


def test_a_cut_map_has_no_path_beyond_its_edge(visit):
    page = visit("world=cliff")
    page.type("columns-count", 3)  # without its goal
    page.page.wait_for_function("() => document.getElementById('left').classList.contains('stale')")
    width = "(side) => { const b = document.getElementById(`${side}-board`); return [b.querySelector('.over').getBBox().width, b.viewBox.baseVal.width]; }"
    for side in ("left", "right"):
        drawn, room = page.page.evaluate(width, side)
        assert drawn <= room
