"""What everybody can use and see: names, roles, contrast, focus, widths, light and dark; and the README's picture."""

import os
from pathlib import Path

import pytest
from matplotlib.image import imread

PICTURE = Path(__file__).parents[3] / "docs" / "img" / "playground.png"
SIZES = {
    "desk": {"width": 1280, "height": 800},
    "projector": {"width": 1024, "height": 768},
    "phone": {"width": 390, "height": 844},
    "zoomed": {"width": 320, "height": 640},  # a desk at 400 %
}
TABS = ("lessons", "learners", "world", "learn", "charts", "tune")
#: Boards, their numbers and Play: what is not wholly on the screen.
CUT = """() => ["left-board", "right-board", "left-unsafe", "right-unsafe", "left-mean", "right-mean", "run"].filter((id) => {
    const box = document.getElementById(id).getBoundingClientRect();
    return box.top < 0 || box.left < 0 || box.bottom > innerHeight || box.right > innerWidth || !box.height;
})"""
NAMED = {
    "button", "checkbox", "combobox", "tab", "tabpanel", "dialog", "grid", "gridcell", "image", "img", "link", "progressbar", "radio",
    "radiogroup", "region", "slider", "spinbutton", "textbox",
}  # fmt: skip

#: Every text that can be seen: its contrast with what lies behind it, where that is too little.
FAINT = """() => {
    const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const rgba = (colour) => {
        pen.clearRect(0, 0, 1, 1);
        pen.fillStyle = colour;
        pen.fillRect(0, 0, 1, 1);
        return [...pen.getImageData(0, 0, 1, 1).data].map((x) => x / 255);
    };
    const over = ([r, g, b, a], under) => [r, g, b].map((x, i) => a * x + (1 - a) * under[i]);
    const behind = (node) => {
        if (!node) return [1, 1, 1];
        const colour = rgba(getComputedStyle(node).backgroundColor);
        return colour[3] > 0.99 ? colour.slice(0, 3) : over(colour, behind(node.parentElement));
    };
    const light = (rgb) => {
        const [r, g, b] = rgb.map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const faint = [];
    let seen = 0;
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const node = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || node.closest("svg, :disabled, option, noscript, script")) continue;
        if (!node.checkVisibility({ opacityProperty: true, visibilityProperty: true })) continue;
        const ground = behind(node);
        const [a, b] = [light(over(rgba(getComputedStyle(node).color), ground)), light(ground)].sort((x, y) => y - x);
        const contrast = (a + 0.05) / (b + 0.05);
        seen++;
        if (contrast < 4.5) faint.push(`${contrast.toFixed(2)} ${node.tagName}#${node.id}.${node.className}: ${node.textContent.slice(0, 40)}`);
    }
    return [seen, faint];
}"""

#: What reaches beyond the right edge.
WIDE = """(width) => [...document.querySelectorAll("main *")]
    .filter((node) => node.getBoundingClientRect().right > width + 1 && !node.closest("svg, .tabs, .play-more, [hidden]"))
    .map((node) => node.outerHTML.slice(0, 80))"""

#: Whether what has the focus shows it.
RINGED = """() => {
    const node = document.activeElement;
    const lined = (x) => getComputedStyle(x).outlineStyle !== "none" && parseFloat(getComputedStyle(x).outlineWidth) >= 2;
    const ring = node.querySelector?.(".ring");
    const near = [node, node.parentElement].some(lined);
    return near || (ring && parseFloat(getComputedStyle(ring).strokeWidth) >= 4 && getComputedStyle(ring).strokeOpacity === "1");
}"""
#: What has the focus; null once it has come round.
WHO = """() => {
    const node = document.activeElement;
    if (node === document.body || node.seenBefore) return null;
    node.seenBefore = true;
    return node.outerHTML.slice(0, 120);
}"""


def named_nodes(page):
    """(role, name) of everything in the accessibility tree that has to have a name."""
    session = page.page.context.new_cdp_session(page.page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    of = lambda node, what: node.get(what, {}).get("value", "")  # noqa: E731
    return [(of(node, "role"), of(node, "name")) for node in nodes if not node["ignored"] and of(node, "role") in NAMED]


def busy(page):
    """A page with all it can have at once: a lesson's words, a run of several seeds, a cell that is chosen, a notice."""
    page.page.locator(".lesson-list button").nth(1).click()
    page.page.wait_for_function("() => window.safereplay.state.world.name === 'volatile'")
    page.settled()
    page.type("seeds", 3)
    for _ in range(2):
        page.press("step-one")
        page.learning("paused")
    page.page.locator("#right-multiples figure").nth(2).wait_for()
    page.page.locator('#right-board [data-cell="1,0"]').focus()
    page.press("export-map")
    page.page.locator("#notice").get_by_text("Saved").wait_for()
    page.page.evaluate("document.getElementById('share').open = false")
    return page


def tabs(page):
    """Every tab in turn."""
    for name in TABS:
        page.page.evaluate("(name) => window.safereplay.tabs.show(name)", name)
        yield name
        page.painted()


def test_everything_has_a_role_and_a_name(visit):
    page = busy(visit())
    found = [one for _ in tabs(page) for one in named_nodes(page)]
    assert {role for role, _ in found} > {
        "button",
        "combobox",
        "grid",
        "gridcell",
        "radio",
        "slider",
        "spinbutton",
        "tab",
    }
    assert [(role, name) for role, name in found if not name.strip()] == []
    label = page.page.locator('#left-board [data-cell="1,0"]').get_attribute("aria-label")
    assert label.startswith("row 2, column 1, volatile right. Policy: ")
    for name in ("learn-status", "tune-status", "lesson-text"):
        assert page.page.locator(f"#{name}").get_attribute("aria-live") == "polite"
    assert page.page.locator("#notice").get_attribute("role") in ("status", "alert")
    assert page.page.locator("html").get_attribute("lang") == "en"
    assert page.page.locator("h1").count() == 1


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation_in_any_tab(visit, size, scheme):
    axe = pytest.importorskip("axe_core_python").__path__[0]
    page = busy(visit(viewport=SIZES[size], color_scheme=scheme, reduced_motion="reduce"))
    page.page.evaluate((Path(axe) / "axe.min.js").read_text(encoding="utf-8") + "; undefined")
    for name in tabs(page):
        found = page.page.evaluate("() => axe.run().then(({ violations }) => violations)")
        said = [(one["id"], [node["html"][:100] for node in one["nodes"]]) for one in found]
        assert said == [], name
    page.page.evaluate("document.getElementById('lecture').click()")
    assert page.page.evaluate("() => axe.run().then(({ violations }) => violations.map(({ id }) => id))") == []


@pytest.mark.parametrize("size", ["desk", "projector", "phone"])
@pytest.mark.parametrize("world", ["cliff", "volatile", "frozen_lake", "bridge", "blank"])
def test_boards_numbers_and_play_are_on_the_first_screen(visit, size, world):
    page = visit(f"world={world}", viewport=SIZES[size])
    for name in tabs(page):
        assert page.page.evaluate(CUT) == [], name


def test_whatever_has_the_focus_shows_it(visit):
    page, seen = visit(), 0
    for _ in tabs(page):
        page.page.evaluate("document.activeElement.blur()")
        page.page.keyboard.press("Tab")
        while who := page.page.evaluate(WHO):
            assert page.page.evaluate(RINGED), who
            page.page.keyboard.press("Tab")
            seen += 1
        page.page.evaluate("document.querySelectorAll('*').forEach((node) => delete node.seenBefore)")
    assert seen > 100


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_and_nothing_is_wider_than_the_screen(visit, tmp_path_factory, size, scheme):
    page = busy(visit(viewport=SIZES[size], color_scheme=scheme))
    folder = Path(os.environ.get("SAFEREPLAY_SHOTS") or tmp_path_factory.mktemp("shots"))
    folder.mkdir(parents=True, exist_ok=True)
    width = SIZES[size]["width"]
    for name in tabs(page):
        seen, faint = page.page.evaluate(FAINT)
        assert seen > 20
        assert faint == [], name
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width, name
        assert page.page.evaluate(WIDE, width) == [], name
        page.page.evaluate("window.scrollTo({ top: 0, behavior: 'instant' })")
        page.painted().page.screenshot(path=folder / f"{size}-{scheme}-{name}.png")
        assert imread(folder / f"{size}-{scheme}-{name}.png").shape[1] == width


@pytest.mark.parametrize(("scheme", "other"), [("light", "dark"), ("dark", "light")])
def test_the_theme_can_be_turned_round(visit, scheme, other):
    page = visit(color_scheme=scheme, reduced_motion="reduce")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.page.evaluate(ground)
    page.press("theme")
    assert page.page.locator("html").get_attribute("data-theme") == other
    assert page.painted().page.evaluate(ground) != before
    assert page.page.evaluate(FAINT)[1] == []


def test_a_board_keeps_its_size_whatever_is_written_under_it(visit):
    page = visit("world=blank&right=replay,v:0.5,beta:5,mixing:matched")
    boxes = "() => [...document.querySelectorAll('svg.board')].map((board) => board.getBoundingClientRect().width)"
    before = page.page.evaluate(boxes)
    page.open(
        "world=blank&map=3W4/3W4/3W4/3W1X2/8/S6G&right=replay,v:0.5,beta:5,mixing:matched"
    )  # tiny risks, long numbers
    assert page.page.evaluate(boxes) == before


def test_fingers_find_what_they_reach_for(visit):
    page = visit(viewport=SIZES["phone"])
    small = """() => [...document.querySelectorAll("button, select, input:not([type=radio], [type=checkbox])")]
        .filter((x) => x.checkVisibility() && x.getBoundingClientRect().height < 31).map((x) => x.id || x.outerHTML)"""
    assert page.page.evaluate(small) == []


def test_nothing_moves_where_nothing_should(visit):
    still = visit(reduced_motion="reduce")
    styles = "() => [getComputedStyle(document.querySelector('.arrow')), getComputedStyle(document.documentElement)]"
    read = f"() => {{ const [arrow, root] = ({styles})(); return [arrow.transitionProperty, root.scrollBehavior]; }}"
    assert still.page.evaluate(read) == ["none", "auto"]
    assert visit().page.evaluate(read)[0] != "none"


#: Waits for the transitions that have begun.
MOVED = "() => Promise.allSettled(document.getAnimations().filter((x) => x.transitionProperty).map((x) => x.finished)).then(() => 0)"
#: The pictures of the docs: the link, what is done there, and the size of the screen.
PICTURES = {
    "playground": ("world=cliff&right=replay,v:0.5,beta:5,mixing:matched", ["walks"], "desk"),
    "playground-play": ("world=volatile&right=replay,v:0.5,beta:5,mixing:literal", ["run"], "desk"),
    "playground-lesson": ("lesson=1.4", [], "projector"),
    "playground-lecture": ("lesson=3.2&lecture=1", [], "projector"),
    "playground-design": ("world=bridge&left=q&right=design", ["learners"], "desk"),
    "playground-phone": ("lesson=2.3", [], "phone"),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_docs_are_the_page(visit, tmp_path, name):
    link, done, size = PICTURES[name]
    page = visit(link, viewport=SIZES[size])
    if "walks" in done:
        page.page.locator("#speed").fill("5")
        page.page.wait_for_function("() => document.getElementById('right-tally').dataset.n > 300")
    if "run" in done:
        page.press("run")
        page.iterations(6_000)
    if "learners" in done:
        page.reveal("right-dials")
    page.page.mouse.move(0, 0)
    page.page.evaluate("document.activeElement.blur()")
    page.page.wait_for_load_state("networkidle")  # a lesson has set its boards
    page.painted().page.evaluate(MOVED)
    wanted = os.environ.get("SAFEREPLAY_PICTURES") == "1"
    path = PICTURE.with_stem(name) if wanted else tmp_path / f"{name}.png"
    page.painted().page.screenshot(path=path)
    assert imread(path).shape == imread(PICTURE.with_stem(name)).shape
    assert imread(path).shape[:2] == (SIZES[size]["height"], SIZES[size]["width"])
