"""The exported site, from the file server of Python: the same page, without any server of ours."""

import functools
import json
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browsing import LISTEN, Faults, Playground, context_of

from safereplay.web import app, export

LESSONS = json.loads((Path(app.__file__).parent / "page" / "lessons.json").read_text(encoding="utf-8"))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of an exported site."""
    folder = tmp_path_factory.mktemp("export") / "site"
    export.export(folder, quiet=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def still(browser, site):
    """The exported page in a browser, without a fault."""
    context = context_of(browser, viewport={"width": 1280, "height": 800})
    context.add_init_script(LISTEN)
    faults = Faults(context, site)
    yield Playground(context.new_page(), site)
    context.close()
    assert not faults


def test_the_boards_dials_and_worlds_answer_without_a_server(still):
    page = still.open()
    assert page.text("right-unsafe") == "3.52 %"
    for v in (0, 0.4, 0.95):
        page.slide("right-v", v)
    assert page.text("right-unsafe") == "3.02 %"
    for name in page.page.locator("#preset option").evaluate_all("(all) => all.map((x) => x.value)"):
        page.choose("preset", name)
        assert page.arrows("right")
        assert page.page.locator("#notice").is_hidden()
    for kind in page.page.locator("#right-kind option").evaluate_all("(all) => all.map((x) => x.value)"):
        page.open("world=cliff")
        page.choose("right-kind", kind)
        assert page.page.locator("#notice").is_hidden(), kind


def test_a_recorded_run_plays_and_walks_are_counted(still):
    page = still.open("world=volatile")
    page.press("run")
    page.learning("running")
    page.press("run")
    page.learning("paused")
    page.press("run")
    page.learning("done")
    assert "50,000" in page.text("learn-status")
    page.page.locator("#speed").fill("6")
    page.page.wait_for_function("() => document.getElementById('left-tally').dataset.n > 100")


def test_all_lessons_work(still):
    for i, lesson in enumerate(LESSONS, 1):
        for k, step in enumerate((step for step in lesson["steps"] if not step.get("live")), 1):
            page = still.open(f"lesson={i}.{k}")
            assert step["text"][:12].replace("*", "") in page.text("lesson-text")
            if "do" in step:
                page.page.locator("#lesson-do").click()
                page.settled()
            assert page.page.locator("#notice").is_hidden(), f"{i}.{k}"
