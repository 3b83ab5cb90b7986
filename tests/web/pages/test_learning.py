"""Watching a learner: run, pause, step, restart, and several at once."""

import numpy as np
import pytest
from browsing import arrows, limit

import safereplay as sr

SHORT = 50_000
FAST, SLOW = 10, 5  # of the slider: 2,000 and 50 iterations a frame; so slowly that it takes minutes


@pytest.fixture
def cliff(visit):
    """The cliff, where learning ends soon."""
    page = visit("world=cliff&right=replay,v:0.5,beta:5")
    page.choose("learn-until", str(SHORT))
    page.page.locator("#speed").fill(str(FAST))
    return page


def run_in_python(t, seed=0, v=0.5):
    mdp, learner = sr.grids.cliff(), sr.ReplayQLearning(sr.VarianceReplay(5.0), v)
    return sr.Stepper(mdp, learner, seed, sr.EpsilonGreedy(0.1)).run(t)


def check_frame(page, t, v=0.5):
    """The frame that is shown, and its arrows, are those of the run in Python."""
    run, frame = run_in_python(t, v=v), page.frame()
    assert (frame["t"], frame["episodes"], frame["at"]) == (t, run.episodes, run.state)
    np.testing.assert_allclose(frame["Q"], run.Q, rtol=1e-5, atol=1e-6)
    assert page.arrows("right") == arrows(run.mdp, run.policy)


def test_a_run_that_was_paused_ends_where_python_ends(cliff):
    cliff.page.locator("#speed").fill(str(SLOW))
    cliff.press("run")
    assert cliff.page.locator("#run").get_attribute("aria-pressed") == "true"
    cliff.iterations(600)
    cliff.press("run")
    cliff.learning("paused")
    assert cliff.page.locator("#run").get_attribute("aria-pressed") == "false"
    paused = cliff.frame()["t"]
    assert 600 <= paused < SHORT
    check_frame(cliff, paused)
    cliff.press("run")
    cliff.iterations(paused + 200)
    cliff.page.locator("#speed").fill(str(FAST))  # while it runs
    cliff.learning("done")
    check_frame(cliff, SHORT)
    seen = [frame["t"] for frame in cliff.page.evaluate("window.frames")]
    assert seen == sorted(set(seen))  # nothing twice, nothing again from the start
    status = cliff.text("learn-status")
    assert "50,000" in status
    assert "safe" in status
    assert cliff.page.locator("#curve").is_visible()


def test_steps_go_one_iteration_at_a_time(cliff):
    limit = cliff.arrows("right")
    for t in (1, 2, 3):
        cliff.press("step-one")
        cliff.iterations(t)
        cliff.learning("paused")
    check_frame(cliff, 3)
    event = run_in_python(2).trace(1)[0]
    last = [event.s, event.a, event.r, event.s_next, int(event.terminal), int(event.replayed)]
    assert cliff.frame()["trace"] == [last]
    cliff.press("restart")
    cliff.learning("idle")
    assert cliff.arrows("right") == limit


def test_several_seeds_are_small_boards_with_their_own_ends(cliff):
    cliff.page.locator("#seeds").fill("4")
    cliff.page.locator("#seeds").blur()
    assert cliff.state["seeds"] == 4
    cliff.press("run")
    cliff.learning("done")
    check_frame(cliff, SHORT)
    boards = cliff.page.locator("#multiples figure")
    assert boards.count() == 4
    mdp = sr.grids.cliff()
    policies = [run_in_python(SHORT, seed).policy for seed in range(4)]
    for seed, policy in enumerate(policies):
        assert sr.verdict(mdp, policy) in boards.nth(seed).inner_text()
        assert cliff.frame()["seeds"][seed]["policy"] == np.where(mdp.is_terminal, -1, policy).tolist()


def test_another_dial_begins_anew_and_so_does_restart(cliff):
    cliff.page.locator("#speed").fill(str(SLOW))
    cliff.press("run")
    cliff.iterations(400)
    cliff.press("restart")  # goes on, from the first iteration
    cliff.page.wait_for_function("() => window.frames.filter(({ t }) => t === 200).length === 2")
    cliff.learning("running")
    cliff.slide("right-v", 0.2)
    cliff.learning("idle")
    mdp = sr.grids.cliff()
    assert cliff.arrows("right") == arrows(mdp, limit(mdp, sr.ReplayQLearning(v=0.2)).argmax(1))
    cliff.page.locator("#speed").fill(str(FAST))
    cliff.press("run")
    cliff.learning("done")
    check_frame(cliff, SHORT, v=0.2)


def test_the_left_learner_learns_on_the_left_board(cliff):
    before = cliff.arrows("left"), cliff.arrows("right")
    cliff.page.locator("#learn-side").select_option("left")
    cliff.press("step-one")
    cliff.iterations(1)
    cliff.learning("paused")
    mdp = sr.grids.cliff()
    run = sr.Stepper(mdp, sr.QLearning(), 0, sr.EpsilonGreedy(0.1)).run(1)
    assert (cliff.arrows("left"), cliff.arrows("right")) == (arrows(mdp, run.policy), before[1])
    cliff.page.locator("#learn-side").select_option("right")
    cliff.learning("idle")
    assert cliff.arrows("left") == before[0]
