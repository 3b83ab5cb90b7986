"""Designed replay on the page: its dial, its marks, its line, its refusal, and learning."""

import pytest
from browsing import arrows

import safereplay as sr


@pytest.fixture(scope="module")
def plan():
    mdp = sr.grids.cliff()
    return sr.design(mdp, max_p_unsafe=0.035, start=mdp.origin, quiet=True)


def bars(page, side="right"):
    """The number of marked moves by cell."""
    found = page.page.locator(f"#{side}-board [data-cell]").evaluate_all(
        "(all) => all.map((x) => [x.dataset.cell, x.querySelectorAll('.replayed').length])"
    )
    return {tuple(map(int, cell.split(","))): n for cell, n in found if n}


def test_the_limit_is_a_dial_like_any_other(visit, plan):
    page = visit("world=cliff")
    page.choose("right-kind", "design")
    assert page.state["right"] == {"kind": "design", "limit": None}  # it depends on the world
    dial = page.page.locator("#right-limit")
    ends = [float(dial.get_attribute(name)) for name in ("min", "max")]
    assert ends[0] < float(dial.input_value()) < ends[1]
    page.slide("right-limit", 0.035)
    assert page.arrows("right") == arrows(plan.mdp, plan.policy)
    assert page.value("right-unsafe") == pytest.approx(plan.price.profile.p_unsafe)
    cells = [plan.mdp.layout.cells[one.state] for one in plan.replays]
    assert bars(page) == {cell: cells.count(cell) for cell in cells}
    assert bars(page, "left") == {}
    page.reveal("right-note")
    assert f"v = {plan.v:.3g}" in page.text("right-note")
    most = plan.replays[0]
    page.cell(plan.mdp.layout.cells[most.state], "right").hover()
    page.page.locator("#right-detail").get_by_text(f"ρ = {most.rho:.2g}").wait_for()
    page.page.wait_for_function("() => location.search.includes('right=design,limit:0.035')")
    page.open("world=cliff&right=design,limit:0.035")
    assert page.state["right"] == {"kind": "design", "limit": 0.035}
    page.choose("right-kind", "replay")
    assert bars(page) == {}


def test_a_limit_that_no_policy_keeps_is_one_line_and_the_dial_stays(visit):
    page = visit("world=cliff&right=design,limit:0.01")
    page.page.locator("#notice").get_by_text("at best a policy has P(unsafe) 2.781%").wait_for()
    assert bars(page) == {}
    page.slide("right-limit", 0.05)
    assert page.page.locator("#notice").is_hidden()
    assert 0 < page.value("right-unsafe") <= 0.05


def test_a_designed_replay_learns(visit, plan):
    page = visit("world=cliff&right=design,limit:0.035")
    page.press("step-one")
    page.iterations(1)
    page.page.locator("#speed").fill("6")
    page.press("run")
    page.learning("done")
    run = sr.Stepper(plan.mdp, plan.learner, 0, sr.EpsilonGreedy(0.1)).run(page.frame()["t"])
    assert page.arrows("right") == arrows(plan.mdp, run.policy)
    assert sum(bars(page).values()) == len(plan.replays)
