"""The site: it builds strictly and without a warning, every page has its place, and nothing comes from elsewhere."""

import functools
import importlib.util
import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin

import pytest
from browsing import NONE, Faults, chromium, context_of, executable
from waiting import END

import safereplay
from safereplay import catalog
from safereplay.paper.claims import CLAIMS

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
#: What a page loads by itself, and from which attribute; links to click may lead anywhere.
LOADS = {
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "link": "href",
    "video": "src",
    "object": "data",
}


class Page(HTMLParser):
    """What a page loads, links and calls its places."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.links, self.names = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if given.get(LOADS.get(tag, "")):
            self.loads.append(given[LOADS[tag]])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The site, built as `make site` builds it but into another folder, and what the build said."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=END, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stderr


@pytest.fixture(scope="module")
def pages(built):
    folder, _ = built
    return {file.relative_to(folder).as_posix(): Page(file.read_text()) for file in folder.rglob("*.html")}


@pytest.fixture(scope="module")
def tools():
    """The modules beside the pages, which make some of them."""
    sys.path.insert(0, str(DOCS))

    def load(name):
        spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    sys.path.remove(str(DOCS))


def test_the_strict_build_says_nothing_but_that_it_is_done(built):
    assert not re.findall(r"WARNING|ERROR|Traceback", built[1])


def test_every_page_of_docs_is_in_the_navigation(pages):
    listed = re.findall(r"^ +- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert len(set(listed)) == len(listed)
    assert {f"{name.removesuffix('.md')}.html" for name in listed} == set(pages) - {"404.html"}
    assert {file.name for file in DOCS.glob("*.md")} <= set(listed)


def test_every_link_within_the_site_leads_to_a_page_and_a_place_on_it(built, pages):
    folder, _ = built
    for name, page in pages.items():
        for link in page.links:
            if name == "404.html" or re.match(r"[a-z]+:", link):
                continue
            target, place = urldefrag(unquote(urljoin(f"/{name}", link)))
            target = target.removeprefix("/")
            assert (folder / target).is_file() or (folder / target / "index.html").is_file(), f"{name} links {link}"
            if place and target in pages and place != "__skip":
                assert place in pages[target].names, f"{name} links {link}"


def test_no_page_loads_anything_from_another_host(built, pages):
    folder, _ = built
    for name, page in pages.items():
        for load in page.loads:
            assert not re.match(r"(https?:)?//", load), f"{name} loads {load}"
    for sheet in folder.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet.name


def test_every_learner_scheme_and_world_has_its_section(pages):
    for page, names in (
        ("learners", catalog.LEARNERS),
        ("catalog-schemes", catalog.SCHEMES),
        ("catalog-worlds", catalog.WORLDS),
    ):
        assert set(names) <= pages[f"{page}.html"].names


@pytest.mark.parametrize(
    ("page", "make"),
    [("learners", "learners_page"), ("catalog-schemes", "schemes_page"), ("catalog-worlds", "worlds_page")],
)
def test_the_pages_of_the_catalog_are_up_to_date(tools, page, make):
    assert (DOCS / f"{page}.md").read_text() == getattr(tools("catalogs"), make)(), "run `make docs`"


def test_every_public_name_is_in_the_api_reference(built):
    folder, _ = built
    text = "".join(file.read_text() for file in (folder / "api").glob("*.html"))
    for name, home in safereplay._HOMES.items():
        assert re.search(
            rf'id="safereplay\.{home}(\.\w+)?\.{name}"' if name != home else f'id="safereplay.{home}"', text
        ), name


def test_the_search_index_knows_every_page(built, pages):
    folder, _ = built
    found = {
        entry["location"].split("#")[0]
        for entry in json.loads((folder / "search" / "search_index.json").read_text())["docs"]
    }
    assert set(pages) - {"404.html"} <= found


def test_docstrings_become_markdown(tools):
    text = """Adds a and b, as Q*(s,a) does.

        x = a + b

        y = x

    See :func:`~safereplay.learn` and P[s][a].

    >>> 1 + 1
    2

    When it fails: never.

    Parameters
    ----------
    a, b : numbers, of any
        size; see :func:`learn`

    Returns
    -------
    Their sum
    """
    done = tools("docstrings").to_markdown(text).split("\n\n")
    assert done[0] == r"Adds a and b, as Q\*(s,a) does."
    assert done[1:3] == ["```text\nx = a + b", "y = x\n```"]
    assert done[3:] == [
        r"See `safereplay.learn` and P[s]\[a].",
        "```python-console\n>>> 1 + 1\n2\n```",
        "**When it fails:** never.",
        "**Parameters**",
        "- `a, b`: numbers, of any size; see `learn`",
        "**Returns**",
        "- Their sum",
    ]


def test_every_equation_of_a_page_is_drawn(built):
    folder, _ = built
    shown = {file.stem: file.read_text().count("```math") for file in DOCS.glob("*.md")}
    assert min(shown[page] for page in ("index", "theory", "schemes", "mapping")) > 0
    for page, equations in shown.items():
        text = (folder / f"{page}.html").read_text()
        assert text.count('<div class="equation"><math') == equations, page
        assert not re.search(r"<mi>(&<|&amp;|\\)", text), f"{page}: a command that is not understood"


def test_messages_in_troubleshooting_are_those_of_the_package():
    source = "".join(file.read_text() for file in (ROOT / "src").rglob("*.py"))
    messages = re.findall(r"^### `(.+)`$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    assert len(messages) > 10
    for message in messages:
        for piece in re.split(r"[…;'():\d]+| must |, got", message):
            assert piece.strip() in source, f"{message!r}: {piece!r}"


def test_claims_are_told_with_their_evidence(tools, tmp_path):
    one = {
        "id": "x",
        "claim": "It flies",
        "grid": "cliff",
        "expected": "up",
        "observed": "down",
        "holds": False,
        "evidence": "It fell",
    }
    (tmp_path / "claims.json").write_text(json.dumps([one]))
    text = tools("generate").claims(tmp_path)
    assert "0 of 1 claims" in text
    assert "| 1 | It flies | cliff | up | down | **does not hold** |" in text
    assert "1. *It flies* (cliff): **does not hold**. It fell." in text


def test_the_page_of_claims_has_those_that_are_judged():
    told = re.findall(r"^\d+\. \*(.+?)\* \((.+?)\): ", (DOCS / "claims.md").read_text(), re.MULTILINE)
    assert told == [(claim.claim, claim.grid) for claim in CLAIMS], "run `make reproduce`, then `make docs`"


# -- in a browser ---------------------------------------------------------------------------------------------------------


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def served(built):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(built[0]))) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def search(page, word):
    """Type until there is an answer, as a person would: what is typed before the page listens is lost."""
    from playwright.sync_api import TimeoutError as TooLate

    query, answer = page.locator("[data-md-component=search-query]"), page.locator(".md-search-result__item").first
    for _ in range(200):
        query.fill(word, force=True)
        query.dispatch_event("keyup")  # which is what the page listens to
        try:
            return answer.wait_for(state="attached", timeout=3_000)
        except TooLate:
            continue
    pytest.fail(f"no answer to {word!r}")


@pytest.mark.slow
def test_no_page_is_longer_than_a_dozen_screens(served, pages):
    pytest.importorskip("playwright", reason=NONE)
    if executable() is None:
        pytest.skip(NONE)
    with chromium() as browser:
        page = context_of(browser, viewport={"width": 1280, "height": 900}).new_page()
        for name in sorted(set(pages) - {"404.html"}):
            page.goto(f"{served}/{name}")
            screens = page.evaluate("document.documentElement.scrollHeight") / 900
            assert screens < 14, f"{name}: {screens:.1f} screens; fold or split it"  # 12, and room for other fonts


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_pages_fit_the_screen_ask_nobody_else_and_complain_of_nothing(served, width, scheme):
    pytest.importorskip("playwright", reason=NONE)
    if executable() is None:
        pytest.skip(NONE)
    with chromium() as browser:
        context = context_of(browser, viewport={"width": width, "height": 800}, color_scheme=scheme)
        faults, page = Faults(context, served), context.new_page()
        for name in ("index", "choose", "learners", "mapping", "claims", "notebooks/cliff", "api/theory", "cli"):
            page.goto(f"{served}/{name}.html")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name
            assert page.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)"), (
                name
            )
        page.goto(f"{served}/index.html")
        search(page, "matched")
        dark = page.evaluate("document.body.getAttribute('data-md-color-scheme')") == "slate"
        assert dark == (scheme == "dark")
        assert not faults
