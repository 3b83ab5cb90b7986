"""Play: both learners learn side by side, and walks show what they have learned."""

import numpy as np
import pytest
from browsing import arrows, limit

import safereplay as sr
from safereplay.theory.solver import greedy

SHORT = 50_000
FAST, SLOW = 5, 2  # of the slider: 5,000 and 20 iterations per frame; so slowly that it takes minutes
LEARNERS = {"left": sr.QLearning(), "right": sr.ReplayQLearning(sr.VarianceReplay(5.0), 0.5)}
NUMBERS = """() => Object.fromEntries(["left", "right"].map((side) => [side, [
    document.getElementById(`${side}-way`).dataset.way,
    Number(document.getElementById(`${side}-unsafe`).dataset.value),
]]))"""
TALLY = """(side) => ["n", "unsafe", "endless"].map((name) =>
    Number(document.getElementById(`${side}-tally`).dataset[name]))"""


@pytest.fixture
def cliff(visit):
    """The cliff, where learning ends soon."""
    page = visit("world=cliff&right=replay,v:0.5,beta:5")
    page.page.locator("#speed").fill(str(FAST))
    return page


def run_in_python(t, side="right", seed=0, learner=None):
    return sr.Stepper(sr.grids.cliff(), learner or LEARNERS[side], seed, sr.EpsilonGreedy(0.1)).run(t)


def check_frame(page, side="right", learner=None):
    """The last frame of a side, its arrows and its numbers are those of the run in Python."""
    frame = page.frame(side)
    run = run_in_python(frame["t"], side, learner=learner)
    assert (frame["episodes"], frame["at"]) == (run.episodes, run.state)
    np.testing.assert_allclose(frame["Q"], run.Q, rtol=1e-5, atol=1e-6)
    assert page.arrows(side) == arrows(run.mdp, run.policy)
    way, unsafe = page.page.evaluate(NUMBERS)[side]
    risk = sr.evaluate(run.mdp, run.policy, start=run.mdp.origin, quiet=True)
    assert unsafe == pytest.approx(risk.p_unsafe)
    assert way == {"risky": "edge", "safe": "detour", "jumps": "jumps"}.get(sr.verdict(run.mdp, run.policy), way)


def test_both_learn_and_end_where_python_ends(cliff):
    cliff.page.locator("#speed").fill(str(SLOW))
    cliff.press("run")
    assert cliff.page.locator("#run").get_attribute("aria-pressed") == "true"
    cliff.iterations(200)
    cliff.press("run")
    cliff.learning("paused")
    assert cliff.page.locator("#run").get_attribute("aria-pressed") == "false"
    for side in LEARNERS:
        assert 200 <= cliff.frame(side)["t"] < SHORT
        check_frame(cliff, side)
    cliff.press("run")
    cliff.iterations(cliff.frame()["t"] + 100)
    cliff.page.locator("#speed").fill(str(FAST))  # while it runs
    cliff.learning("done")
    for side in LEARNERS:
        assert cliff.frame(side)["t"] == SHORT
        check_frame(cliff, side)
        seen = [frame["t"] for frame in cliff.page.evaluate("(side) => window.frames[side]", side)]
        assert seen == sorted(set(seen))  # nothing twice, nothing again from the start
    assert "50,000" in cliff.text("learn-status")
    assert cliff.reveal("curve").is_visible()


def test_steps_go_one_iteration_at_a_time(cliff):
    before = cliff.arrows("right")
    for t in (1, 2, 3):
        cliff.press("step-one")
        cliff.iterations(t)
        cliff.learning("paused")
    for side in LEARNERS:
        check_frame(cliff, side)
        event = run_in_python(2, side).trace(1)[0]
        last = [event.s, event.a, event.r, event.s_next, int(event.terminal), int(event.replayed)]
        assert cliff.frame(side)["trace"] == [last]
    cliff.press("restart")
    cliff.learning("idle")
    assert cliff.arrows("right") == before


def test_presses_of_step_in_a_row_all_count(cliff):
    cliff.page.evaluate("for (let i = 0; i < 4; i++) document.getElementById('step-one').click()")
    cliff.iterations(4)
    cliff.learning("paused")
    for side in LEARNERS:
        assert [frame["t"] for frame in cliff.page.evaluate("(side) => window.frames[side]", side)] == [1, 2, 3, 4]
        check_frame(cliff, side)


def test_a_run_that_is_discarded_before_it_is_connected_ends_without_a_warning(cliff):
    cliff.page.evaluate(
        "['run', 'restart', 'run', 'step-one'].forEach((name) => document.getElementById(name).click())"
    )
    cliff.iterations(1)
    cliff.learning("paused")
    assert [cliff.frame(side)["t"] for side in LEARNERS] == [1, 1]


def test_several_seeds_are_small_boards_with_their_own_ends(cliff):
    cliff.type("seeds", 4)
    assert cliff.state["seeds"] == 4
    cliff.press("run")
    cliff.learning("done")
    check_frame(cliff)
    boards = cliff.page.locator("#right-multiples figure")
    assert boards.count() == cliff.page.locator("#left-multiples figure").count() == 4
    mdp = sr.grids.cliff()
    for seed in range(4):
        policy = run_in_python(SHORT, seed=seed).policy
        assert boards.nth(seed).get_attribute("data-verdict") == sr.verdict(mdp, policy)
        assert cliff.frame()["seeds"][seed]["policy"] == np.where(mdp.is_terminal, -1, policy).tolist()


def test_another_dial_begins_anew_and_so_does_restart(cliff):
    cliff.page.locator("#speed").fill(str(SLOW))
    cliff.press("run")
    cliff.iterations(100)
    cliff.press("restart")  # goes on, from the first iteration
    cliff.page.wait_for_function("() => window.frames.right.filter(({ t }) => t === 20).length === 2")
    cliff.learning("running")
    cliff.slide("right-v", 0.2)
    cliff.learning("idle")
    mdp, learner = sr.grids.cliff(), sr.ReplayQLearning(v=0.2)
    assert cliff.arrows("right") == arrows(mdp, greedy(limit(mdp, learner), mdp.r))
    cliff.page.locator("#speed").fill(str(FAST))
    cliff.press("run")
    cliff.learning("done")
    check_frame(cliff, learner=learner)


@pytest.mark.parametrize("kind", ["mean-variance", "lagrangian", "dyna"])
def test_learners_of_other_families_play_too(visit, kind):
    page = visit(f"world=cliff&right={kind}")
    page.page.locator("#speed").fill(str(FAST))
    page.press("run")
    page.learning("done")
    assert page.arrows("right")
    assert page.frame()["t"] > 0


def tally(page, side):
    return page.page.evaluate(TALLY, side)


def test_the_tally_of_walks_agrees_with_the_exact_number_in_every_world(visit):
    page = visit("world=cliff")
    page.page.locator("#speed").fill("6")
    names = page.page.locator("#preset option").evaluate_all("(options) => options.map((option) => option.value)")
    for name in names:
        page.choose("preset", name)
        enough = "() => ['left', 'right'].every((x) => document.getElementById(`${x}-tally`).dataset.n >= 2000)"
        page.page.wait_for_function(enough)
        for side in ("left", "right"):
            n, unsafe, endless = tally(page, side)
            p = page.value(f"{side}-unsafe")
            assert endless == 0
            assert abs(unsafe / n - p) <= 4 * np.sqrt(max(p * (1 - p), 1e-12) / n) + 1e-9, (name, side)


def test_one_episode_has_the_same_luck_on_both_boards(visit):
    page = visit("world=cliff&right=q")  # the same policy, so the same walk
    page.press("one-episode")
    page.page.locator("#learn-status").get_by_text("Right").wait_for()
    left, right = page.text("learn-status").split("Right")
    assert left.removeprefix("Left").strip() == right.strip()
    assert sum(tally(page, side)[0] for side in ("left", "right")) >= 2


def test_one_episode_begins_when_the_model_is_known_and_again_when_a_policy_changes(visit):
    page, asked = visit("world=cliff"), []
    page.page.route("**/api/model*", lambda route: asked.append(route))
    page.choose("preset", "bridge")
    page.press("one-episode")
    page.painted()
    assert "Right" not in page.text("learn-status")
    asked[0].continue_()
    page.page.wait_for_function("() => document.querySelector('#left-board .walk-trail').getAttribute('d')")
    page.slide("right-v", 0)  # while it walks
    page.page.locator("#learn-status").get_by_text("Right").wait_for()
    left, right = page.text("learn-status").split("Right")
    assert left.removeprefix("Left").strip() == right.strip()  # both policies are the same now


def test_one_episode_that_never_ends_is_cut_off_and_not_counted(visit):
    page = visit("lesson=3.2")  # on the right the agent steps back and forth
    page.page.wait_for_function("() => document.getElementById('right-way').dataset.way === 'loop'")
    page.press("one-episode")
    page.page.locator("#learn-status").get_by_text("Right is still walking after 200 steps").wait_for()
    assert tally(page, "right")[0] == 0


def test_walks_start_again_when_the_policy_changes_and_stop_when_they_are_told_to(visit):
    page = visit("world=cliff")
    page.page.locator("#speed").fill("6")
    page.page.wait_for_function("() => document.getElementById('right-tally').dataset.n > 500")
    page.press("walk")
    before = tally(page, "right")[0]
    page.slide("right-v", 0)
    assert tally(page.painted(), "right")[0] < before
    assert page.page.locator("#right-board .walker:not([hidden])").count() == 0


def test_nothing_walks_by_itself_where_motion_is_unwanted(visit):
    page = visit("world=cliff", reduced_motion="reduce")
    assert page.page.locator("#walk").get_attribute("aria-pressed") == "false"
    page.press("one-episode")  # drawn at once
    page.page.locator("#learn-status").get_by_text("Right").wait_for()
    assert page.page.locator("#left-board .walk-trail").get_attribute("d")
