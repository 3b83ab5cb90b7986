"""The page in a headless Chromium. Whatever a test does there: no complaint, no failure, no other host."""

import pytest
from browsing import LISTEN, NONE, Faults, Playground, chromium, context_of, executable

pytest.importorskip("playwright", reason=NONE)


@pytest.fixture(scope="module")  # while Playwright is open no other test can run an event loop of its own
def browser():
    if executable() is None:
        pytest.skip(NONE)
    with chromium() as browser:
        yield browser


@pytest.fixture
def visit(browser, server):
    """``visit(query, **options of the context)``: the page in a fresh browser, which ends the test without a fault."""
    visits = []

    def start(query="", **options):
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        context = context_of(browser, **options)
        context.add_init_script(LISTEN)
        visits.append((context, Faults(context, server)))
        return Playground(context.new_page(), server).open(query)

    yield start
    faults = [fault for _, found in visits for fault in found]
    for context, _ in visits:
        context.close()
    assert not faults
