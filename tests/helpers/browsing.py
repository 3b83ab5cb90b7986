"""A real browser before the playground: what a reader does there, what is to be seen, and what must never happen."""

import shutil
from contextlib import contextmanager

import numpy as np
from waiting import END

import safereplay as sr

NONE = "no Chromium can be had here: the page's tests are skipped"
NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
SETTLED = """() => document.body.dataset.started === "1"
    && ["left", "right"].every((side) => document.getElementById(`${side}-board`)?.dataset.ready === "1")"""
#: Keeps what the streams of both sides send; and what goes away by itself after a while stays.
LISTEN = """window.frames = { left: [], right: [] };
const later = window.setTimeout;
window.setTimeout = (work, ms, ...rest) => later(work, ms >= 5000 ? 1000 * ms : ms, ...rest);
const Socket = window.WebSocket;
let opened = 0;
window.WebSocket = class extends Socket {
    constructor(...how) {
        super(...how);
        const side = ["left", "right"][opened++ % 2]; // the page opens both, the left one first
        this.addEventListener("message", ({ data }) => {
            const [name, content] = JSON.parse(data);
            if (name === "frame" && this.readyState === Socket.OPEN) window.frames[side].push(content);
        });
    }
};"""
CELLS = """(board) => [...board.querySelectorAll("[role=gridcell]")].map((cell) =>
    [cell.dataset.cell, Number(cell.dataset.action), Number(cell.dataset.state), cell.classList.contains("differs")])"""


def executable():
    """Where a Chromium is, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def chromium():
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=QUIET)
        try:
            yield browser
        finally:
            browser.close()


def context_of(browser, **options):
    """A fresh browser, in which waiting ends only where something hangs."""
    context = browser.new_context(**options)
    context.set_default_timeout(1000 * END)
    return context


class Faults(list):
    """What must not happen in any page of a context: complaints, errors, failures, and requests to somebody else."""

    def __init__(self, context, server):
        super().__init__()
        self.server = server
        context.on("console", self._said)
        context.on("weberror", lambda error: self.append(f"error: {error.error}"))
        context.on("request", lambda request: self._asked(request.url))
        context.on("page", lambda page: page.on("websocket", lambda socket: self._asked(socket.url)))
        context.on("requestfailed", self._failed)
        context.on("response", self._answered)

    def _said(self, message):
        if message.type in ("error", "warning"):
            self.append(f"console {message.type}: {message.text}")

    def _asked(self, url):
        if not url.startswith((f"{self.server}/", f"{self.server}/".replace("http", "ws"), "data:", "blob:")):
            self.append(f"a request to {url}")

    def _failed(self, request):
        if request.failure != "net::ERR_ABORTED":  # which is what the page itself breaks off, or leaves behind
            self.append(f"{request.failure}: {request.url}")

    def _answered(self, response):
        if response.status >= 400:
            self.append(f"{response.status}: {response.url}")


class Playground:
    """The page in a tab: the hands and the eyes of a reader."""

    def __init__(self, page, server):
        self.page, self.server = page, server

    def open(self, query=""):
        self.page.goto(f"{self.server}/?{query}")
        return self.settled()

    def another(self, query=""):
        """A tab beside this one."""
        return Playground(self.page.context.new_page(), self.server).open(query)

    def settled(self):
        """Wait until both boards show the answer to the present state."""
        self.page.wait_for_function(SETTLED)
        return self

    # -- eyes -----------------------------------------------------------------------------------------------------------

    @property
    def state(self):
        return self.page.evaluate("window.safereplay.state")

    def rows(self):
        return self.state["world"]["rows"]

    def arrows(self, side):
        """{(row, column): action} of the cells where there is something to do."""
        return {at: action for at, action, _, _ in self._cells(side) if action >= 0}

    def states(self, side):
        """{(row, column): state} of the cells that are one."""
        return {at: state for at, _, state, _ in self._cells(side) if state >= 0}

    def marked(self, side):
        """The cells that are marked as different."""
        return {at for at, _, _, differs in self._cells(side) if differs}

    def _cells(self, side):
        found = self.page.locator(f"#{side}-board").evaluate(CELLS)
        return [(tuple(map(int, cell.split(","))), *rest) for cell, *rest in found]

    def value(self, name):
        """A number that the page shows, in full; None where it shows none."""
        text = self.page.locator(f"#{name}").get_attribute("data-value")
        return float(text) if text else None

    def text(self, name):
        """What can be read there, with plain spaces."""
        return self.page.locator(f"#{name}").inner_text().replace("\xa0", " ")

    def frame(self, side="right"):
        """The last frame of learning that came."""
        return self.page.evaluate("(side) => window.frames[side].at(-1)", side)

    def learning(self, *phases):
        """Wait until learning is in one of these phases, and drawn."""
        self.page.wait_for_function("(phases) => phases.includes(document.body.dataset.learning)", arg=phases)
        return self.painted()

    def iterations(self, least):
        """Wait until both sides have sent a frame of so many iterations at least."""
        enough = "(t) => ['left', 'right'].every((side) => window.frames[side].at(-1)?.t >= t)"
        self.page.wait_for_function(enough, arg=least)

    def painted(self):
        """Wait until what the page has decided is on the screen."""
        self.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self

    # -- hands ----------------------------------------------------------------------------------------------------------

    def reveal(self, name):
        """Show the tab, or open the menu, that an element is in."""
        self.page.evaluate(
            """(name) => {
                const node = document.getElementById(name);
                window.safereplay.tabs.reveal(node);
                node.closest("details")?.setAttribute("open", "");
            }""",
            name,
        )
        return self.page.locator(f"#{name}")

    def type(self, name, text):
        """Type a number into a field, and leave it."""
        field = self.reveal(name)
        field.fill(str(text))
        field.blur()

    def cell(self, at, side="left"):
        return self.page.locator(f'#{side}-board [data-cell="{at[0]},{at[1]}"]')

    def middle(self, at, side="left"):
        box = self.cell(at, side).locator(".ground").bounding_box()
        return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def tool(self, name):
        self.reveal("tools")
        self.page.locator(f'#tools label:has(input[value="{name}"])').click()

    def still(self, locator):
        """The box of an element on the screen, once it moves no more."""
        locator.scroll_into_view_if_needed()
        before, box = None, locator.bounding_box()
        while box != before:
            self.painted()
            before, box = box, locator.bounding_box()
        return box

    def draw(self, *cells, side="left"):
        """One stroke through these cells."""
        self.still(self.cell(cells[0], side))
        first, *others = [self.middle(at, side) for at in cells]
        self.page.mouse.move(*first)
        self.page.mouse.down()
        for point in others:
            self.page.mouse.move(*point, steps=4)
        self.page.mouse.up()
        self.settled()

    def slide(self, name, value):
        """Set a slider."""
        self.reveal(name).fill(str(value))
        self.settled()

    def choose(self, name, value):
        self.reveal(name).select_option(value)
        self.settled()

    def press(self, name):
        """Press a button that can be pressed. The mouse could miss one that a growing page moves between down and up."""
        button = self.reveal(name)
        button.click(trial=True)
        button.focus()
        button.dispatch_event("click")

    @contextmanager
    def held(self, name):
        """The thumb of a slider, held with the mouse: a function that drags it to a share of its range."""
        slider = self.reveal(name)
        box = self.still(slider)
        half = 11  # of the thumb, in pixels
        low, high, now = (float(slider.evaluate(f"(x) => x.{part}")) for part in ("min", "max", "value"))

        def place(share):
            return box["x"] + half + share * (box["width"] - 2 * half), box["y"] + box["height"] / 2

        def drag(share):
            self.page.mouse.move(*place(share), steps=5)
            self.settled()
            return float(slider.input_value())

        self.page.mouse.move(*place((now - low) / (high - low)))
        self.page.mouse.down()
        yield drag
        self.page.mouse.up()
        self.settled()


# -- the same in Python ---------------------------------------------------------------------------------------------------


def model(world):
    """The model of a state's world."""
    options = {name: value for name, value in world.items() if name not in ("name", "rows")}
    return sr.grids.from_map("\n".join(world["rows"]), **options)


def judged(mdp, rows):
    """Where episodes are judged from: the cells marked S, or the model's origin."""
    marked = np.array([rows[i][j] == "S" for i, j in mdp.layout.cells], float)
    return marked / marked.sum() if marked.any() else mdp.origin


def limit(mdp, learner, epsilon=0.1):
    """The exact limit that a board shows, Q [S, A]."""
    if isinstance(learner, sr.ReplayQLearning) and learner.mixing == "literal":
        how = {"visitation": "self", "starts": 5, "seeds": 0, "exploration": sr.EpsilonGreedy(epsilon)}
        return sr.fixed_point(mdp, learner.scheme, learner.v, **how)[0].Q
    return sr.exact(mdp, learner)


def arrows(mdp, policy):
    """A policy as :meth:`Playground.arrows` reads it."""
    return {mdp.layout.cells[s]: int(a) for s, a in enumerate(policy) if not mdp.is_terminal[s]}
