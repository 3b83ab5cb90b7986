"""What everybody can use and see: names, roles, contrast, focus, widths, light and dark; and the README's picture."""

import os
from pathlib import Path

import pytest
from matplotlib.image import imread

PICTURE = Path(__file__).parents[3] / "docs" / "img" / "playground.png"
SIZES = {"desk": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
NAMED = {
    "button", "checkbox", "combobox", "dialog", "grid", "gridcell", "image", "img", "link", "progressbar", "radio",
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
    .filter((node) => node.getBoundingClientRect().right > width + 1 && !node.closest("svg"))
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
    page.page.locator(".lesson-step").nth(1).click()
    page.page.wait_for_function("() => window.safereplay.state.world.name === 'volatile'")
    page.settled()
    page.page.locator("#seeds").fill("3")
    page.page.locator("#seeds").blur()
    for _ in range(2):
        page.press("step-one")
        page.learning("paused")
    page.page.locator("#multiples figure").nth(2).wait_for()
    page.page.locator('#right-board [data-cell="1,0"]').focus()
    page.press("export-map")
    page.page.locator("#notice").get_by_text("Saved").wait_for()
    return page


def test_everything_has_a_role_and_a_name(visit):
    page = busy(visit())
    found = named_nodes(page)
    assert {role for role, _ in found} > {"button", "combobox", "grid", "gridcell", "radio", "slider", "spinbutton"}
    assert [(role, name) for role, name in found if not name.strip()] == []
    assert sum(role == "gridcell" for role, _ in found) == 40
    assert sum(role == "grid" for role, _ in found) == 2
    label = page.page.locator('#left-board [data-cell="1,0"]').get_attribute("aria-label")
    assert label.startswith("row 2, column 1, volatile right. Policy: right. Q up ")
    for name in ("learn-status", "tune-status", "lesson-text"):
        assert page.page.locator(f"#{name}").get_attribute("aria-live") == "polite"
    assert page.page.locator("#notice").get_attribute("role") in ("status", "alert")
    assert page.page.locator("html").get_attribute("lang") == "en"
    assert page.page.locator("h1").count() == 1


def test_whatever_has_the_focus_shows_it(visit):
    page = visit()
    page.page.keyboard.press("Tab")
    seen = 0
    while who := page.page.evaluate(WHO):
        assert page.page.evaluate(RINGED), who
        page.page.keyboard.press("Tab")
        seen += 1
    assert seen > 40


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_and_nothing_is_wider_than_the_screen(visit, tmp_path_factory, size, scheme):
    page = busy(visit(viewport=SIZES[size], color_scheme=scheme))
    seen, faint = page.page.evaluate(FAINT)
    assert seen > 60
    assert faint == []
    width = SIZES[size]["width"]
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.page.evaluate(WIDE, width) == []
    folder = Path(os.environ.get("SAFEREPLAY_SHOTS") or tmp_path_factory.mktemp("shots"))
    folder.mkdir(parents=True, exist_ok=True)
    page.page.evaluate("window.scrollTo({ top: 0, behavior: 'instant' })")
    page.painted().page.screenshot(path=folder / f"{size}-{scheme}.png", full_page=True)
    assert imread(folder / f"{size}-{scheme}.png").shape[1] == width


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
        .filter((x) => x.checkVisibility() && x.getBoundingClientRect().height < 32).map((x) => x.id || x.outerHTML)"""
    assert page.page.evaluate(small) == []


def test_nothing_moves_where_nothing_should(visit):
    still = visit(reduced_motion="reduce")
    styles = "() => [getComputedStyle(document.querySelector('.arrow')), getComputedStyle(document.documentElement)]"
    read = f"() => {{ const [arrow, root] = ({styles})(); return [arrow.transitionProperty, root.scrollBehavior]; }}"
    assert still.page.evaluate(read) == ["none", "auto"]
    assert visit().page.evaluate(read)[0] != "none"


def test_the_picture_of_the_readme_is_the_page(visit, tmp_path):
    page = visit("world=cliff&right=replay,v:0.5,beta:5,mixing:matched")
    page.page.wait_for_function("() => document.querySelector('#returns .bars')")
    page.page.mouse.move(0, 0)
    wanted = os.environ.get("SAFEREPLAY_PICTURES") == "1"
    path = PICTURE if wanted else tmp_path / PICTURE.name
    page.painted().page.screenshot(path=path, animations="disabled")
    assert imread(path).shape == imread(PICTURE).shape == (900, 1280, 3)
