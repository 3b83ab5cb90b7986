"""How fast the page is, measured in the browser. The medians are printed; run with -s to see them."""

import statistics

import pytest
from waiting import wait_until

#: A 20 × 20 world with walls, hazards and gambles.
LARGE = "/".join(
    ["S19", *["2W5X5r5"] * 4, "20", *["6XX4WWW5"] * 3, "20", *["3d8WX6"] * 4, "20", *["9XXXX7"] * 3, "20", "19G"]
)
#: From the event of a slider to the frame in which its board has the answer: [milliseconds, ...].
MOVES = """async ([id, side, values]) => {
    const slider = document.getElementById(id);
    const board = document.getElementById(`${side}-board`);
    const painted = () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    const answered = (seq) => new Promise((done) => {
        const look = () => Number(board.dataset.seq) > seq && board.dataset.ready === "1" && (watch.disconnect(), done());
        const watch = new MutationObserver(look);
        watch.observe(board, { attributeFilter: ["data-seq", "data-ready"] });
        look();
    });
    const times = [];
    for (const value of values) {
        await painted();
        const [seq, began] = [Number(board.dataset.seq), performance.now()];
        slider.value = value;
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        await answered(seq);
        await painted();
        times.push(performance.now() - began);
    }
    return times;
}"""

#: The same to the chart of the return, which rests a tenth of a second between two drawings.
CHARTED = """async ([id, values]) => {
    const slider = document.getElementById(id);
    const chart = document.querySelector("#charts [data-drawn]");
    const times = [];
    for (const value of values) {
        await new Promise((done) => setTimeout(done, 150));
        const [drawn, began] = [Number(chart.dataset.drawn), performance.now()];
        slider.value = value;
        slider.dispatchEvent(new Event("input", { bubbles: true }));
        await new Promise((done) => {
            const look = () => Number(chart.dataset.drawn) > drawn && (watch.disconnect(), done());
            const watch = new MutationObserver(look);
            watch.observe(chart, { attributeFilter: ["data-drawn"] });
            look();
        });
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        times.push(performance.now() - began);
    }
    return times;
}"""


def medians(page, moves):
    """The median over so many moves of v, in milliseconds; no value twice, so that nothing is known already."""
    values = [round(0.05 + 0.85 * ((k * 37) % moves) / moves, 3) for k in range(moves)]
    page.reveal("right-v").evaluate("(slider) => (slider.step = 'any')")
    return statistics.median(page.page.evaluate(MOVES, ["right-v", "right", values]))


@pytest.mark.slow
@pytest.mark.parametrize("mixing", ["matched", "literal"])
@pytest.mark.parametrize(
    ("world", "limit"), [("world=cliff", 100), ("world=volatile", 100), (f"world=blank&map={LARGE}", 500)]
)
def test_a_slider_is_on_the_screen_in_time(visit, world, mixing, limit):
    page = visit(f"{world}&right=replay,v:0.3,beta:5,mixing:{mixing}")
    assert len(page.states("right")) > (300 if limit == 500 else 19)
    medians(page, 3)
    found = medians(page, 50)
    print(f"\n{world[:20]} {mixing}: {found:.0f} ms from the slider to the screen (median of 50)")
    assert found < limit


@pytest.mark.slow
@pytest.mark.parametrize("world", ["cliff", "volatile"])
def test_the_chart_of_the_return_follows_in_time(visit, world):
    page = visit(f"world={world}&right=replay,v:0.3,beta:5,mixing:matched")
    page.reveal("right-v").evaluate("(slider) => (slider.step = 'any')")
    page.reveal("returns")
    page.page.wait_for_selector("#charts [data-drawn]")
    values = [round(0.05 + 0.85 * ((k * 37) % 50) / 50, 3) for k in range(50)]
    found = statistics.median(page.page.evaluate(CHARTED, ["right-v", values]))
    print(f"\n{world}: {found:.0f} ms from the slider to the chart (median of 50)")
    assert found < 100


@pytest.mark.slow
def test_twenty_tabs_that_learn_at_once_leave_the_slider_quick(visit):
    first = visit("world=cliff&right=replay,v:0.5,beta:5&epsilon=0.11")
    tabs = [first] + [
        first.another(f"world=cliff&right=replay,v:0.5,beta:5&epsilon={0.12 + k / 100}") for k in range(19)
    ]
    for tab in tabs:
        tab.reveal("learn-until").select_option("1000000")
        tab.page.evaluate("document.getElementById('run').click()")
    wait_until(lambda: all(tab.page.evaluate("window.frames.right.length > 1") for tab in tabs))
    before = [tab.page.evaluate("window.frames.right.length") for tab in tabs]
    first.page.bring_to_front()
    found = medians(first, 10)
    print(f"\n20 tabs that learn: {found:.0f} ms from the slider to the screen (median of 10)")
    assert all(
        tab.page.evaluate("(n) => window.frames.right.length > n", n) for tab, n in zip(tabs, before, strict=True)
    )
    assert found < 1_000
