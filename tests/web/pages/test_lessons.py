"""The lessons: what they say is what the page shows, and what they speak of is on the screen with their words."""

import json
import re
from pathlib import Path

import pytest

import safereplay as sr
from safereplay.web import app

LESSONS = json.loads((Path(app.__file__).parent / "page" / "lessons.json").read_text(encoding="utf-8"))
STEPS = [f"{i}.{k}" for i, lesson in enumerate(LESSONS, 1) for k in range(1, len(lesson["steps"]) + 1)]
WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
SIZES = {"desk": (1280, 800), "projector": (1024, 768), "phone": (390, 844)}
#: What a step says, what it marks, and its dials: whatever is not fully on the screen, or covered by something else.
UNSEEN = """() => {
    const named = [".lesson-words", ".spoken-of", "#lesson-dials .slider", ".lesson-bar > *", "#run", "#left-unsafe", "#right-unsafe", "#left-mean", "#right-mean"];
    const marked = [...document.querySelectorAll(".at.pointed .pointer-ring")];
    const all = [...named.flatMap((name) => [...document.querySelectorAll(name)]), ...marked];
    return all.filter((node) => {
        const box = node.getBoundingClientRect();
        const inside = box.top >= -1 && box.left >= -1 && box.bottom <= innerHeight + 1 && box.right <= innerWidth + 1;
        if (!inside) return true;
        const card = node.closest(".pane, #side, #play")?.getBoundingClientRect() ?? box;
        if (box.left < card.left || box.right > card.right) return true; // it sticks out of its card
        const hit = document.elementFromPoint((box.left + box.right) / 2, (box.top + box.bottom) / 2);
        const board = node.closest("svg.board");
        return !(node.contains(hit) || hit?.contains(node) || (board && board.contains(hit)));
    }).map((node) => `${node.id || node.className.baseVal || node.className} ${JSON.stringify(node.getBoundingClientRect())}`);
}"""


@pytest.fixture
def page(visit):
    return visit()


def step(page, name, mode=""):
    """Open a step by its link; its words."""
    page.open(f"lesson={name}{mode}")
    link = next((one["link"] for one in reversed(_until(name)) if "link" in one), "")
    wait_for_link(page, link)
    return page.text("lesson-text .lesson-words")


def _until(name):
    lesson, k = map(int, name.split("."))
    return LESSONS[lesson - 1]["steps"][:k]


def wait_for_link(page, link):
    """Wait until the page shows what a link says."""
    wanted = page.page.request.get(f"{page.server}/api/state?{link}").text()
    same = "(text) => JSON.stringify(window.safereplay.state) === JSON.stringify(JSON.parse(text))"
    page.page.wait_for_function(same, arg=wanted)
    page.settled()


def do(page, name):
    """Press the button of a step; what it says then."""
    page.page.locator("#lesson-do").click()
    wait_for_link(page, _until(name)[-1]["do"]["link"])
    return page.text("lesson-text .then")


def verdicts(page):
    return [
        page.page.evaluate("(side) => window.safereplay.answers.get(side).verdict", side) for side in ("left", "right")
    ]


def numbers(pattern, text):
    """The numbers of a sentence that has to be there."""
    found = re.search(pattern, text)
    assert found, f"no {pattern!r} in {text!r}"
    return [float(x.replace(",", "")) for x in found.groups()]


def shown(page, text, *names):
    """These numbers of the page are in the text."""
    for name in names:
        assert page.text(name) in text, name


def test_lessons_are_short_steps():
    assert len(LESSONS) == 7
    for lesson in LESSONS:
        assert 3 <= len(lesson["steps"]) <= 6
        assert all(len(one["text"].split()) <= 46 for one in lesson["steps"])
        assert "link" in lesson["steps"][0]


@pytest.mark.parametrize(("size", "mode"), [(size, mode) for size in SIZES for mode in ("", "&lecture=1")])
def test_the_words_of_a_step_and_what_it_speaks_of_are_on_one_screen(visit, size, mode):
    width, height = SIZES[size]
    page = visit(viewport={"width": width, "height": height}, reduced_motion="reduce")
    for name in STEPS:
        step(page, name, mode)
        assert page.painted().page.evaluate(UNSEEN) == [], name


def test_the_first_lesson_is_on_the_edge(page):
    text = step(page, "1.2")
    assert verdicts(page) == ["risky", "safe"]
    steps = [
        page.page.evaluate("(side) => window.safereplay.answers.get(side).path.length - 1", s)
        for s in ("left", "right")
    ]
    assert numbers(r"(\d+) steps instead of (\d+)", text) == steps
    shown(page, step(page, "1.3"), "left-unsafe")
    shown(page, step(page, "1.4"), "right-unsafe", "right-mean", "left-mean")
    step(page, "1.5")
    then = do(page, "1.5")
    slip = page.state["world"]["slip"]
    assert numbers(r"slip of (\d+) %", then) == [pytest.approx(100 * slip)]
    assert verdicts(page)[0] == "safe"
    shown(page, then, "left-unsafe")
    page.slide("lesson-slip", round(slip - 0.01, 2))
    assert verdicts(page)[0] == "risky"


def test_the_second_lesson_walks_round_the_gambles(page):
    shown(page, step(page, "2.1"), "left-unsafe", "left-mean")
    text = step(page, "2.3")
    shown(page, text, "right-mean")
    assert page.value("right-unsafe") == 0.0
    assert "never a loss" in text
    # Each of three gambles alike has a third of the replays: v/(1-v)/3 of them a visit, all of which are losses.
    lost, replayed = 0.4, 0.5 / (1 - 0.5) / 3
    seen = (lost + replayed) / (1 + replayed)
    found = numbers(r"lost in (\d+) % of cases; in what this agent learns from, in (\d+) %", text)
    assert found == [40, round(100 * seen)]
    assert numbers(r"worth \+(\d+) looks like −(\d+)", text) == [20, round(200 * seen - 100)]
    mdp, learner = sr.grids.volatile(), sr.ReplayQLearning(sr.VarianceReplay(5.0), 0.5, mixing="matched")
    Q, s = sr.exact(mdp, learner), mdp.layout.state_at(1, 0)
    assert Q[s, 1] - mdp.gamma * Q[s + 1].max() == pytest.approx(100 - 200 * seen, abs=1e-6)


def test_the_third_lesson_is_stuck_when_it_is_bold(page):
    step(page, "3.2")
    assert verdicts(page) == ["safe", "stuck"]
    assert page.page.locator("#right-way").get_attribute("data-way") == "loop"
    step(page, "3.3")
    then = do(page, "3.3")
    shown(page, then, "right-unsafe")
    (beta,) = numbers(r"β = (0\.\d+)", then)
    page.slide("lesson-right-beta", beta)
    assert page.value("right-unsafe") == 0.0
    text = step(page, "3.4")
    shown(page, text, "left-unsafe", "right-unsafe")
    assert f"from {page.text('left-mean')} to {page.text('right-mean')}" in text
    page.slide("right-v", 0)
    assert f"falls from {page.text('right-unsafe')}" in text


def test_the_fourth_lesson_jumps(page):
    text = step(page, "4.2")
    assert verdicts(page) == ["jumps", "safe"]
    shown(page, text, "left-unsafe", "right-unsafe")
    text = step(page, "4.3")
    first, last, jumps = numbers(r"From κ = ([\d.]+) to ([\d.]+) it goes round; from ([\d.]+) on it jumps", text)
    for kappa, expected in ((first - 0.01, "risky"), (first, "safe"), (last, "safe"), (jumps, "jumps")):
        page.slide("lesson-left-kappa", round(kappa, 2))
        assert verdicts(page)[0] == expected
    (jumps,) = numbers(r"Gaskett's agent jumps from β = ([\d.]+\d)", text)
    for beta, expected in ((jumps - 0.01, False), (jumps, True)):
        page.slide("lesson-right-beta", round(beta, 2))
        assert (verdicts(page)[1] == "jumps") == expected
    mdp = sr.grids.cliff()
    for v in numbers(r"for any v from ([\d.]+) to ([\d.]+\d)", text):
        assert sr.verdict(mdp, sr.fixed_point(mdp, sr.VarianceReplay(5.0), v).argmax(1)) == "safe"
    text = step(page, "4.4")
    assert page.value("left-unsafe") == 0.0
    shown(page, text, "right-unsafe")


def tune(page):
    """Press the button; what the server found, and its summary by name."""
    with page.page.expect_response(lambda response: "/api/tune" in response.url) as found:
        page.press("tune-go")
    answer = found.value.json()
    return answer, dict(answer["summary"])


def test_the_fifth_lesson_finds_what_safety_costs(page):
    step(page, "5.1")
    then = do(page, "5.1")
    shown(page, then, "right-unsafe")
    text = step(page, "5.2")
    shown(page, text, "left-mean", "right-mean")
    assert page.reveal("limit").input_value() == "5"
    answer, summary = tune(page)
    assert answer["learner"]["v"] == page.state["right"]["v"]
    assert numbers(r"from v = ([\d.]+) on, .* at v = ([\d.]+\d)", then) == [
        pytest.approx(answer["v_smallest"], abs=0.005),
        answer["learner"]["v"],
    ]
    cost, best, own, ours = numbers(
        r"safety costs ([\d.]+\d)\. .* has ([\d.]+\d)\. So ([\d.]+) is the price of safety itself, and ([\d.]+) the",
        text,
    )
    assert cost == pytest.approx(page.value("left-mean") - page.value("right-mean"), abs=0.005)
    assert numbers(r"mean ([\d.]+) at best", summary["any policy"]) == [pytest.approx(best, abs=0.005)]
    prices = numbers(r"at least ([\d.]+) of the mean for any policy, ([\d.]+) more", summary["price of safety"])
    assert prices == [pytest.approx(own, abs=5e-4), pytest.approx(ours, abs=5e-4)]


@pytest.mark.slow
def test_the_fifth_lesson_speaks_of_a_limit_that_nobody_can_keep(page):
    text = step(page, "5.3")
    step(page, "5.4")
    page.page.locator("#lesson-do").click()
    page.type("limit", 1)
    answer, summary = tune(page)
    assert not answer["meets"]
    (least,) = numbers(r"no policy can keep it; .* P\(unsafe\) ([\d.]+)%", summary["any policy"])
    assert numbers(r"of all falls in ([\d.]+) %", text) == [pytest.approx(least, abs=0.005)]


def test_the_sixth_lesson_tells_the_formula_from_the_algorithm(page):
    text = step(page, "6.1")
    assert [page.state[side]["mixing"] for side in ("left", "right")] == ["matched", "literal"]
    assert f"the left one gambles, {page.text('left-unsafe')}" in text
    assert f"goes round, {page.text('right-unsafe')}" in text
    text = step(page, "6.4")
    page.page.locator("#lesson-do").click()
    page.learning("done")
    assert page.frame()["t"] == 200_000
    boards = page.page.locator("#right-multiples figure").all_inner_texts()
    safe, stuck = (sum(word in board for board in boards) for word in ("takes a detour", "stays away"))
    assert f"{WORDS[safe]} take the detour, and {WORDS[stuck]} stay away" in text


def test_the_seventh_lesson_names_the_risk(page):
    text = step(page, "7.1")
    limit = page.state["right"]["limit"]
    assert numbers(r"at most ([\d.]+) % of all walks", text) == [pytest.approx(100 * limit)]
    text = step(page, "7.2")
    assert f"falls in {page.text('right-unsafe')} of walks, mean {page.text('right-mean')}" in text
    mdp = sr.grids.cliff()
    plan = sr.design(mdp, max_p_unsafe=limit, start=mdp.origin, quiet=True)
    assert f"{len(plan.replays)} moves with v = {plan.v:.3g}" in text
    cells = {plan.mdp.layout.cells[one.state] for one in plan.replays}
    assert page.page.locator("#right-board .at.pointed").count() == len(cells)
    text = step(page, "7.3")
    least = pytest.approx(100 * plan.price.ceiling.best, abs=0.005)
    assert numbers(r"from ([\d.]+) %, the least risk .* Below ([\d.]+) %", text) == [least, least]
    assert f"to {page.text('left-unsafe')}, the risk of Q-learning" in text
    text = step(page, "7.4")
    assert f"a loss in {page.text('right-unsafe')} of walks, mean {page.text('right-mean')}" in text
    assert page.value("left-unsafe") == 0.0
    mdp = sr.grids.volatile()
    for v in (0.1, 0.3, 0.5, 0.7, 0.9):  # all three gambles or none
        policy = sr.fixed_point(mdp, sr.VarianceReplay(5.0), v).argmax(1)
        assert sr.evaluate(mdp, policy, start=mdp.origin).p_unsafe in (0.0, pytest.approx(0.784))


def test_a_step_plays(page):
    step(page, "1.6")
    page.page.locator("#lesson-do").click()
    page.learning("running")
    page.iterations(200)


def test_a_lecture_is_gone_through_with_arrow_keys(visit):
    page = visit(viewport={"width": 1024, "height": 768})
    page.press("lecture")
    for name in STEPS[1:8]:
        page.page.keyboard.press("ArrowRight")
        page.page.wait_for_function("(name) => new URLSearchParams(location.search).get('lesson') === name", arg=name)
    assert page.page.locator("#lesson-text h2").inner_text().startswith("2. ")
    page.page.keyboard.press("Space")  # goes on too, though the button was pressed last
    page.page.wait_for_function("() => location.search.includes('lesson=2.3')")
    for name in ("2.2", "2.1"):
        page.page.keyboard.press("PageUp")
        page.page.wait_for_function("(name) => new URLSearchParams(location.search).get('lesson') === name", arg=name)
    assert "lecture=1" in page.page.evaluate("location.search")
    size = "parseFloat(getComputedStyle(document.querySelector('.lesson-words')).fontSize)"
    assert page.page.evaluate(size) >= 20
    page.page.keyboard.press("Escape")
    assert page.page.evaluate(size) < 20


def test_a_link_to_a_step_keeps_the_dials_that_it_names(page):
    page.open("lesson=3.1&world=cliff&right=replay,v:0.2,beta:5,mixing:matched")
    assert page.state["right"]["v"] == 0.2
    assert page.text("lesson-text h2").startswith("3. ")
    assert page.page.locator("#lesson-right-v").input_value() == "0.2"
