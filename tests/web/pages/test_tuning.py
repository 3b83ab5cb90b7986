"""Tuning: a limit, the frontier, and a click that sets the dials."""

import re

import pytest

import safereplay as sr


def points(page):
    """The points that are offered: v, β, and what the button says."""
    found = page.page.locator("#tune-table button")
    return found.evaluate_all(
        "(all) => all.map((x) => [Number(x.dataset.v), Number(x.dataset.beta), x.innerText.replace(/\\s/g, ' ')])"
    )


def check_dials(page, v, beta, text):
    """The right pane has these dials, and risks what the button says."""
    right = page.settled().state["right"]
    assert right == {"kind": "replay", "scheme": "variance", "v": v, "beta": beta, "mixing": "matched"}
    assert page.text("right-unsafe") in text
    assert f"mean {page.text('right-mean')}" in text


def press_star(page):
    """Press the answer in the picture of the frontier."""
    box = page.still(page.page.locator("#frontier .scatterlayer .trace").last.locator(".point"))
    page.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
    page.page.wait_for_function("() => document.querySelector('#frontier .hoverlayer').textContent")
    page.page.mouse.down()
    page.page.mouse.up()


def test_the_answer_keeps_the_limit_and_a_click_on_any_point_sets_the_dials(visit):
    page = visit("world=cliff&right=replay,v:0.1,beta:1,mixing:matched&limit=0.2")
    page.type("limit", 5)
    assert page.state["limit"] == 0.05
    page.press("tune-go")
    page.page.wait_for_function("() => document.querySelector('#frontier .point')")
    offered = points(page)
    press_star(page)
    page.page.wait_for_function("() => window.safereplay.state.right.v !== 0.1")
    check_dials(page, *offered[0])
    (v, beta, _), mdp = offered[0], sr.grids.cliff()
    risk = sr.evaluate(mdp, sr.fixed_point(mdp, sr.VarianceReplay(beta), v).argmax(1), start=mdp.origin)
    assert page.value("right-unsafe") == pytest.approx(risk.p_unsafe)
    assert risk.p_unsafe <= 0.05 < page.value("left-unsafe")
    assert page.text("right-unsafe") in page.text("tune-status")
    smallest = float(re.search(r"exact limit keeps it from v = ([0-9.]+) on", page.text("tune-status"))[1])
    policies = [sr.fixed_point(mdp, sr.VarianceReplay(beta), smallest + by).argmax(1) for by in (-0.001, 0.001)]
    before, after = (sr.evaluate(mdp, policy, start=mdp.origin).p_unsafe for policy in policies)
    assert after <= 0.05 < before
    assert [v for v, _, _ in offered].count(0) == 1  # plain Q-learning is one of them
    buttons = page.page.locator("#tune-table button")
    for k, point in enumerate(offered):
        buttons.nth(k).click()
        check_dials(page, *point)
        assert buttons.nth(k).get_attribute("aria-pressed") == "true"
    page.choose("preset", "volatile")  # an answer belongs to its world
    assert page.page.locator("#tune-table button:visible").count() == 0


def test_a_search_can_be_stopped(visit):
    page = visit("world=blank&right=replay,mixing:matched&map=S9/10/10/10/10/10/10/9G")
    page.page.route("**/api/tune*", lambda route: None)  # the answer never comes
    page.press("tune-go")
    page.page.locator("#tune-go").get_by_text("Stop").wait_for()
    page.press("tune-go")
    page.page.locator("#tune-status").get_by_text("Stopped").wait_for()
