"""The page with a keyboard alone: not one event of a mouse."""

import pytest
from browsing import arrows, model

import safereplay as sr
from safereplay.theory.solver import greedy

COUNT = """window.touched = 0;
for (const name of ["pointerdown", "pointermove", "pointerover", "mousedown", "mousemove", "touchstart", "wheel"])
    window.addEventListener(name, () => window.touched++, true);"""
DRAWN = ["........", "..#.....", "..XG....", "..^.....", "........", "S......G"]


class Keys:
    """A reader who has no mouse."""

    def __init__(self, page):
        self.page, self.on = page, page.page.keyboard

    def to(self, selector, most=150):
        """Tab on until something is focused."""
        for _ in range(most):
            self.on.press("Tab")
            if self.page.page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return self
        raise AssertionError(f"Tab never comes to {selector}")

    def press(self, *keys):
        for key in keys:
            self.on.press(key)
        return self

    def until(self, key, condition, most=30):
        """Press a key again and again until a condition of the page holds."""
        for _ in range(most):
            if self.page.page.evaluate(condition):
                return self
            self.on.press(key)
        raise AssertionError(f"{key} never makes {condition}")


@pytest.fixture
def keys(visit):
    page = visit("world=cliff&right=replay,v:0.5,beta:5,mixing:matched")
    page.page.evaluate(COUNT)
    yield Keys(page)
    assert page.page.evaluate("window.touched") == 0


def test_a_world_is_drawn_and_taken_back_with_keys(keys):
    keys.page.reveal("tools")
    keys.to("#preset").until("ArrowDown", "document.getElementById('preset').value === 'blank'")
    keys.page.settled()
    keys.to("#left-board [role=gridcell]")
    keys.press(
        "ArrowDown", "ArrowRight", "ArrowRight", "w", "ArrowDown", "x", "ArrowRight", "g", "ArrowDown", "ArrowLeft"
    )
    keys.press("Shift+ArrowUp")
    assert keys.page.settled().rows() == DRAWN
    mdp = model(keys.page.state["world"])
    assert keys.page.arrows("left") == arrows(mdp, greedy(sr.exact(mdp, sr.QLearning()), mdp.r))
    focused = keys.page.page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert focused.startswith("row 4, column 3, volatile up.")
    keys.press("Control+z", "Control+z")
    assert keys.page.rows()[2:4] == ["..X.....", "........"]
    keys.press("Control+y", "Control+Shift+Z")
    assert keys.page.settled().rows() == DRAWN
    keys.press("Delete", "v", ".", "#", ">", "<", "^")
    assert keys.page.settled().rows() == DRAWN


def test_the_chosen_tool_draws_with_enter_and_space(keys):
    keys.page.reveal("tools")
    keys.to("#tools input").until("ArrowRight", "document.querySelector('#tools input:checked').value === 'hazard'")
    keys.to("#left-board [role=gridcell]").press("ArrowRight", "Enter", "ArrowRight", "ArrowRight", "Space")
    assert keys.page.settled().rows()[0] == ".X.X.."


def test_the_focus_stays_within_the_board_and_tab_leaves_it(keys):
    keys.to("#right-board [role=gridcell]").press("ArrowUp", "ArrowLeft", *["ArrowDown"] * 9, *["ArrowRight"] * 9)
    assert keys.page.page.evaluate("document.activeElement.dataset.cell") == "3,5"
    keys.press("Tab")
    assert not keys.page.page.evaluate("document.activeElement.matches('[role=gridcell]')")
    keys.press("Shift+Tab")
    assert keys.page.page.evaluate("document.activeElement.dataset.cell") == "3,5"
    assert keys.page.page.locator("#right-board [role=gridcell][tabindex='0']").count() == 1


def test_v_is_turned_and_a_learner_runs_with_keys(keys):
    keys.to("#tab-lessons").press("ArrowRight")
    keys.to("#right-v").press(*["ArrowLeft"] * 15)
    state = keys.page.settled().state
    assert state["right"]["v"] == pytest.approx(0.35)
    mdp = sr.grids.cliff()
    assert keys.page.arrows("right") == arrows(mdp, greedy(sr.fixed_point(mdp, sr.VarianceReplay(5.0), 0.35), mdp.r))
    keys.to("#run").press("Enter")
    keys.page.learning("running")
    keys.page.iterations(1)
    keys.press("Space")
    keys.page.learning("paused")


def test_the_lessons_are_gone_through_with_keys(keys):
    keys.to("#lesson-next")
    for step in range(1, 8):
        keys.press("Enter")
        lesson = "1" if step <= 6 else "2"
        keys.page.page.locator("#lesson-text h2").get_by_text(f"{lesson}. ").wait_for()
        keys.page.settled()
        assert keys.page.page.evaluate("document.activeElement.id") == "lesson-next"
    keys.page.page.wait_for_function("() => window.safereplay.state.world.name === 'volatile'")


def test_a_question_mark_shows_the_keys_and_escape_hides_them(keys):
    keys.to("#left-board [role=gridcell]").press("?")
    dialog = keys.page.page.get_by_role("dialog")
    dialog.wait_for()
    assert "Ctrl" in dialog.inner_text()
    keys.press("Escape")
    dialog.wait_for(state="hidden")
    assert keys.page.page.evaluate("document.activeElement.matches('[role=gridcell]')")
