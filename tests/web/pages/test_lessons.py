"""The lessons: what they say is what the page shows."""

import re

import pytest

import safereplay as sr

NUMBERS = ("left-unsafe", "left-mean", "right-unsafe", "right-mean")
WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.fixture
def page(visit):
    return visit()


def set_by(page, button):
    """Press a button that sets the whole page, and wait until it has."""
    with page.page.expect_response(lambda response: "/api/state" in response.url) as found:
        button.click()
    same = "(text) => JSON.stringify(window.safereplay.state) === JSON.stringify(JSON.parse(text))"
    page.page.wait_for_function(same, arg=found.value.text())
    page.settled()


def begin(page, lesson):
    """Go to a lesson; its words."""
    set_by(page, page.page.locator(".lesson-step").nth(lesson - 1))
    text = page.text("lesson-text")
    assert text.startswith(f"{lesson}. ")
    return text


def show(page):
    """Let the page do what the lesson asks for; what it says then."""
    set_by(page, page.page.locator("#lesson-show"))
    return page.text("lesson-text .then")


def verdicts(page):
    return [page.page.locator(f"#{side}-verdict").get_attribute("data-verdict") for side in ("left", "right")]


def numbers(pattern, text):
    """The numbers of a sentence that has to be there."""
    found = re.search(pattern, text)
    assert found, f"no {pattern!r} in {text!r}"
    return [float(x.replace(",", "")) for x in found.groups()]


def test_the_first_lesson_is_on_the_edge(page):
    text = begin(page, 1)
    assert verdicts(page) == ["risky", "safe"]
    for name in NUMBERS:
        assert page.text(name) in text
    steps = [
        page.page.evaluate("(side) => window.safereplay.answers.get(side).path.length - 1", s)
        for s in ("left", "right")
    ]
    assert numbers(r"(\d+) steps instead of (\d+)", text) == steps
    then = show(page)
    slip = page.state["world"]["slip"]
    assert numbers(r"slip of (\d+) %", then) == [pytest.approx(100 * slip)]
    assert verdicts(page)[0] == "safe"
    assert page.text("left-unsafe") in then
    page.slide("slip", round(slip - 0.01, 2))
    assert verdicts(page)[0] == "risky"


def test_the_second_lesson_walks_round_the_gambles(page):
    text = begin(page, 2)
    for name in ("left-unsafe", "left-mean", "right-mean"):
        assert page.text(name) in text
    assert page.value("right-unsafe") == 0.0
    assert "never a loss" in text
    # Each of three gambles alike has a third of the replays: v/(1-v)/3 of them a visit, all of which are losses.
    lost, replayed = 0.4, 0.5 / (1 - 0.5) / 3
    seen = (lost + replayed) / (1 + replayed)
    assert numbers(r"lost in (\d+) % of cases; in what the agent learns from, in (\d+) %", text) == [
        40,
        round(100 * seen),
    ]
    assert numbers(r"worth \+(\d+) on average looks like −(\d+)", text) == [20, round(200 * seen - 100)]
    mdp, learner = sr.grids.volatile(), sr.ReplayQLearning(sr.VarianceReplay(5.0), 0.5, mixing="matched")
    Q, s = sr.exact(mdp, learner), mdp.layout.state_at(1, 0)
    assert Q[s, 1] - mdp.gamma * Q[s + 1].max() == pytest.approx(100 - 200 * seen, abs=1e-6)


def test_the_third_lesson_is_stuck_when_it_is_bold(page):
    text = begin(page, 3)
    assert verdicts(page) == ["safe", "stuck"]
    then = show(page)
    assert page.text("right-unsafe") in then
    (beta,) = numbers(r"β = (0\.\d+)", then)
    page.open(f"world=volatile&right=replay,v:0.5,beta:{beta},mixing:matched")
    assert page.value("right-unsafe") == 0.0
    page.open("world=cliff&right=replay,v:0.4,beta:5,mixing:matched")
    assert f"from {page.text('left-unsafe')} to {page.text('right-unsafe')}" in text
    before = page.text("right-mean")
    page.slide("right-v", 0.9)
    assert page.text("right-unsafe") in text
    assert f"from {before} to {page.text('right-mean')}" in text


def test_the_fourth_lesson_jumps(page):
    text = begin(page, 4)
    assert verdicts(page) == ["jumps", "safe"]
    assert page.text("left-unsafe") in text
    assert page.text("right-unsafe") in text
    first, last, jumps = numbers(
        r"From κ = ([\d.]+) to ([\d.]+) it goes round and is safe; from ([\d.]+) on it jumps", text
    )
    for kappa, expected in ((first - 0.01, "risky"), (first, "safe"), (last, "safe"), (jumps, "jumps")):
        page.slide("left-kappa", round(kappa, 2))
        assert verdicts(page)[0] == expected
    (jumps,) = numbers(r"Gaskett's agent jumps from β = ([\d.]+\d)", text)
    for beta, expected in ((jumps - 0.01, False), (jumps, True)):
        page.slide("right-beta", round(beta, 2))
        assert (verdicts(page)[1] == "jumps") == expected
    mdp = sr.grids.cliff()
    for v in numbers(r"for any v from ([\d.]+) to ([\d.]+\d)", text):
        assert sr.verdict(mdp, sr.fixed_point(mdp, sr.VarianceReplay(5.0), v).argmax(1)) == "safe"
    then = show(page)
    assert page.value("left-unsafe") == 0.0
    assert page.text("right-unsafe") in then


def tune(page):
    """Press the button; what the server found, and its summary by name."""
    with page.page.expect_response(lambda response: "/api/tune" in response.url) as found:
        page.press("tune-go")
    answer = found.value.json()
    page.page.locator("#tune-table button").first.click()
    page.settled()
    return answer, dict(answer["summary"])


def test_the_fifth_lesson_finds_what_safety_costs(page):
    text = begin(page, 5)
    assert page.page.locator("#limit").input_value() == "5"
    _, summary = tune(page)
    for name in ("left-mean", "right-mean", "right-unsafe"):
        assert page.text(name) in text
    cost, best, own, ours = numbers(
        r"safety costs ([\d.]+\d)\. .* a mean of ([\d.]+\d)\. So ([\d.]+) is the price of safety itself, and only ([\d.]+)",
        text,
    )
    assert cost == pytest.approx(page.value("left-mean") - page.value("right-mean"), abs=0.005)
    assert numbers(r"mean ([\d.]+) at best", summary["any policy"]) == [pytest.approx(best, abs=0.005)]
    prices = numbers(r"at least ([\d.]+) of the mean for any policy, ([\d.]+) more", summary["price of safety"])
    assert prices == [pytest.approx(own, abs=5e-4), pytest.approx(ours, abs=5e-4)]


@pytest.mark.slow
def test_the_fifth_lesson_asks_for_what_nobody_can_keep(page):
    begin(page, 5)
    then = show(page)
    assert page.page.locator("#limit").input_value() == "1"
    answer, summary = tune(page)
    assert not answer["meets"]
    (least,) = numbers(r"no policy can keep it; .* P\(unsafe\) ([\d.]+)%", summary["any policy"])
    assert numbers(r"still falls in ([\d.]+) %", then) == [pytest.approx(least, abs=0.005)]


def test_the_seventh_lesson_names_the_risk(page):
    text = begin(page, 7)
    limit = page.state["right"]["limit"]
    assert numbers(r"at most ([\d.]+) % of all walks", text) == [pytest.approx(100 * limit)]
    assert f"falls in {page.text('right-unsafe')} of walks, mean {page.text('right-mean')}" in text
    mdp = sr.grids.cliff()
    plan = sr.design(mdp, max_p_unsafe=limit, start=mdp.origin, quiet=True)
    assert f"{len(plan.replays)} moves with v = {plan.v:.3g}" in text
    assert numbers(r"from ([\d.]+) %, the least risk", text) == [
        pytest.approx(100 * plan.price.ceiling.best, abs=0.005)
    ]
    assert f"to {page.text('left-unsafe')}, that of Q-learning" in text
    then = show(page)
    assert f"a loss in {page.text('right-unsafe')} of walks, mean {page.text('right-mean')}" in then
    replays = page.page.evaluate("() => window.safereplay.answers.get('right').design.replays.length")
    assert numbers(r"Only the (\d) other gambles", then) == [replays]
    assert page.value("left-unsafe") == 0.0
    mdp = sr.grids.volatile()
    for v in (0.1, 0.3, 0.5, 0.7, 0.9):  # all three gambles or none
        policy = sr.fixed_point(mdp, sr.VarianceReplay(5.0), v).argmax(1)
        assert sr.evaluate(mdp, policy, start=mdp.origin).p_unsafe in (0.0, pytest.approx(0.784))


def test_the_sixth_lesson_tells_the_formula_from_the_algorithm(page):
    text = begin(page, 6)
    assert [page.state[side]["mixing"] for side in ("left", "right")] == ["matched", "literal"]
    assert f"still gambles, {page.text('left-unsafe')}" in text
    assert f"goes round, {page.text('right-unsafe')}" in text
    then = show(page)
    assert page.page.locator("#seeds").input_value() == "9"
    (until,) = numbers(r"After ([\d,]+) iterations", then)
    page.page.locator("#learn-until").select_option(str(round(until)))
    page.page.locator("#speed").fill("13")
    page.press("run")
    page.learning("done")
    boards = page.page.locator("#multiples figure").all_inner_texts()
    safe, stuck = (sum(word in board for board in boards) for word in ("safe", "stuck"))
    assert f"{WORDS[safe]} of the nine seeds are safe, and {WORDS[stuck]} refuse to move" in then
