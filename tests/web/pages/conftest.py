"""The page in a headless Chromium. Whatever a test does there: no complaint, no failure, no other host."""

import pytest
from browsing import LISTEN, NONE, Faults, Playground, chromium, context_of, executable

pytest.importorskip("playwright", reason=NONE)

DESK = {"viewport": {"width": 1280, "height": 900}}


@pytest.fixture(scope="module")  # while Playwright is open no other test can run an event loop of its own
def browser():
    if executable() is None:
        pytest.skip(NONE)
    with chromium() as browser:
        yield browser


class Visits:
    """Browsers that tests have opened. A test's first tab of the usual size is the last test's, emptied: that is faster."""

    def __init__(self, browser, server):
        self.browser, self.server, self.shared, self.fresh = browser, server, None, []

    def _context(self, options):
        context = context_of(self.browser, **DESK | options)
        context.add_init_script(LISTEN)
        return context, Faults(context, self.server)

    def open(self, query, options, first):
        if options or not first:
            self.fresh.append(self._context(options))
            return Playground(self.fresh[-1][0].new_page(), self.server).open(query)
        if self.shared is None:
            context, faults = self._context({})
            self.shared = context.new_page(), faults
        page = self.shared[0]
        page.mouse.move(0, 0)
        return Playground(page, self.server).open(query)

    def close(self):
        """End a test: what went wrong in it."""
        faults = [fault for _, found in self.fresh for fault in found]
        for context, _ in self.fresh:
            context.close()
        self.fresh.clear()
        if self.shared is not None:
            page, found = self.shared
            faults += found
            found.clear()
            for other in page.context.pages[1:]:
                other.close()
            page.unroute_all()
            page.evaluate("localStorage.clear(); sessionStorage.clear()")
        return faults


@pytest.fixture(scope="module")
def visits(browser, server):
    return Visits(browser, server)


@pytest.fixture
def visit(visits):
    """``visit(query, **options of the context)``: the page in a browser without a past, which ends the test without a fault."""
    opened = []

    def start(query="", **options):
        opened.append(query)
        return visits.open(query, options, first=len(opened) == 1)

    yield start
    assert not visits.close()
