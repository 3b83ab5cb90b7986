"""Sharing: a link opens the same page anywhere, and what is exported says what the page says."""

import re
from xml.etree import ElementTree

import numpy as np
from browsing import model
from matplotlib.image import imread
from models import same_model

from safereplay.sources import model_from

SVG = "{http://www.w3.org/2000/svg}"
LINK = "world=bridge&gamma=0.9&right=replay,v:0.4,beta:3,mixing:matched,scheme:score&epsilon=0.2&seeds=3&limit=0.07"


def saved(page, name, folder):
    with page.page.expect_download() as found:
        page.press(name)
    path = folder / found.value.suggested_filename
    found.value.save_as(path)
    return path


def test_a_copied_link_opens_the_same_page_in_a_fresh_browser(visit):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.choose("preset", "lottery")
    page.tool("wall")
    page.draw((0, 1), (0, 2))
    page.tool("down")
    page.draw((1, 1))
    page.type("cell-p", 0.75)
    page.tool("goal")
    page.draw((1, 2))
    page.type("cell-goal", 33.5)
    page.slide("gamma", 0.87)
    page.slide("slip", 0.3)
    page.choose("slip-to", "left")
    page.choose("left-kind", "mihatsch")
    page.slide("left-kappa", -0.4)
    page.slide("right-v", 0.35)
    page.slide("right-beta", -1.5)
    page.choose("right-scheme", "score")
    page.slide("epsilon", 0.25)
    page.type("seeds", 5)
    page.type("limit", 2.5)
    page.settled()
    page.press("copy-link")
    page.page.locator("#notice").get_by_text("clipboard").wait_for()
    link = page.page.evaluate("navigator.clipboard.readText()")
    assert link.startswith(f"{page.server}/?world=lottery&")
    assert len(link) < 500
    page.page.wait_for_function("(link) => location.href === link", arg=link)
    other = visit(link.split("?", 1)[1])
    assert other.state == page.state
    for side in ("left", "right"):
        assert other.arrows(side) == page.arrows(side)
        assert other.value(f"{side}-unsafe") == page.value(f"{side}-unsafe")
        assert other.value(f"{side}-mean") == page.value(f"{side}-mean")


def test_a_malformed_link_says_so_and_shows_the_first_world(visit):
    page = visit()
    for link in ("world=atlantis", "map=S2/XX", "right=replay,v:2", "slip=nan", "gamma=0.9999"):
        page.open(link)
        notice = page.page.locator("#notice")
        notice.get_by_text("This link cannot be read").wait_for()
        assert notice.get_attribute("role") == "alert"
        assert page.state["world"]["name"] == "cliff"
        assert len(page.arrows("right")) == 19
        notice.locator("button").click()
        notice.wait_for(state="hidden")


def test_the_script_prints_what_the_page_shows(visit, tmp_path, in_new_process):
    page = visit("world=cliff&slip=0.2&right=replay,v:0.45,beta:4&epsilon=0.2")
    said = in_new_process(saved(page, "export-script", tmp_path))
    limits = re.findall(r"exact limit (\w+), P\(unsafe\) ([\d.]+), mean (-?[\d.]+)", said)
    for side, (verdict, unsafe, mean) in zip(("left", "right"), limits, strict=True):
        assert page.page.evaluate("(side) => window.safereplay.answers.get(side).verdict", side) == verdict
        assert f"{page.value(f'{side}-unsafe'):.6f}" == unsafe
        assert f"{page.value(f'{side}-mean'):.6f}" == mean


def test_the_map_file_is_the_world(visit, tmp_path):
    page = visit(LINK)
    page.tool("wall")
    page.draw((0, 0))
    file = saved(page, "export-map", tmp_path)
    assert same_model(model_from(str(file)), model(page.state["world"]))


def drawn_arrows(root, shape):
    """{(row, column): action} of each board of a picture: arrows of this shape that can be seen."""
    boards = [group for group in root.findall(f"{SVG}g") if "scale(" in group.get("transform", "")]
    return [dict(_arrows_of(board, shape)) for board in boards]


def _arrows_of(board, shape):
    for group in board.iter(f"{SVG}g"):
        for arrow in group.findall(f"{SVG}path"):
            if arrow.get("d") == shape and "hidden" not in (arrow.get("visibility"), group.get("visibility")):
                x, y = map(float, re.fullmatch(r"translate\((\S+) (\S+)\)", group.get("transform")).groups())
                turn = float(re.fullmatch(r"rotate\((\S+)\)", arrow.get("transform"))[1])
                yield (round((y - 50) / 100), round((x - 50) / 100)), round(turn / 90) % 4


def test_the_pictures_show_the_arrows_and_need_nothing_else(visit, tmp_path):
    page = visit("world=cliff&map=6/1W4/6/SXXXXG&right=replay,v:0.5,beta:5")
    text = saved(page, "export-svg", tmp_path).read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)  # noqa: S314 our own file
    shape = page.page.locator("#left-board .arrow").first.get_attribute("d")
    assert drawn_arrows(root, shape) == [page.arrows("left"), page.arrows("right")]
    assert {node.tag.removeprefix(SVG) for node in root.iter()}.isdisjoint({"script", "style", "image", "use"})
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    own = {node.get("id") for node in root.iter()}
    assert {found.strip("\"'") for found in re.findall(r"url\((.*?)\)", text)} <= {f"#{name}" for name in own}
    assert "left-hatch" in own
    png = saved(page, "export-png", tmp_path)
    assert png.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    pixels = imread(png)
    assert pixels.shape[:2] == tuple(round(2 * float(root.get(side))) for side in ("height", "width"))
    assert len(np.unique(pixels.reshape(-1, pixels.shape[-1])[::97], axis=0)) > 20


def test_a_map_without_an_answer_shows_no_old_numbers_and_gives_no_picture(visit):
    page = visit("world=cliff")
    assert page.text("right-unsafe").startswith("3.5")
    downloads = []
    page.page.on("download", lambda download: downloads.append(download))
    page.page.evaluate("window.safereplay.store.setWorld({ rows: ['.#....', '#.....', '......', 'SXXXXG'] })")
    page.page.wait_for_selector("#right.stale, .stale #right, #boards.stale")
    said = page.text("notice")
    assert "row 1, column 1" in said  # the cell that is walled in, as the page counts
    assert page.text("right-unsafe").startswith("–")
    page.press("export-svg")
    page.painted()
    assert downloads == []
    assert "row 1, column 1" in page.text("notice")
    page.page.evaluate("window.safereplay.store.undo()")
    page.settled()
    assert page.text("right-unsafe").startswith("3.5")


def test_a_question_that_the_server_could_not_take_is_asked_again(visit):
    page = visit("world=cliff&right=replay,v:0.5,beta:5,mixing:matched")
    busy = []

    def refuse(route):
        busy.append(route.request.url)
        route.fulfill(
            status=200, json={"problem": "64 requests are waiting already; try again in a moment", "status": 429}
        )

    page.page.route("**/api/solve*", refuse)
    page.slide("right-v", "0.9")
    page.page.wait_for_selector("#right.stale, .stale #right, #boards.stale")
    assert len(busy) >= 1
    page.page.unroute("**/api/solve*")
    page.settled()
    page.page.wait_for_selector("#right-unsafe:has-text('3.02')")
    assert "requests are waiting" not in page.text("notice")
