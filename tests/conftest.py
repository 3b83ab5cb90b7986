"""What several test modules share: the reference implementations, and a way to run Python in a process of its own."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

HELPERS = Path(__file__).parent / "helpers"
sys.path.insert(0, str(HELPERS))

# A shell without job control starts commands in the background with Ctrl-C ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Compiling happens inside the first example, so no deadline; the same examples every time, so no surprise on release day.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None, max_examples=25)
settings.register_profile("thorough", deadline=None, derandomize=True, database=None, max_examples=200)
settings.load_profile("repeatable")


DOCS = {"test_adding.py", "test_examples.py", "test_notebooks.py", "test_site.py"}


def pytest_collection_modifyitems(items):
    """Mark the tests that run or build the documentation: ``make test-docs``."""
    for item in items:
        if item.path.name in DOCS or getattr(item, "originalname", "") == "test_the_python_of_a_page_runs_as_shown":
            item.add_marker(pytest.mark.docs)


@pytest.fixture
def in_new_process():
    """Run Python source (or a script's path) in a fresh interpreter; what it printed."""

    from waiting import END

    def run(source, *arguments, **environment):
        head = ["-c", source] if isinstance(source, str) else [str(source)]
        paths = os.pathsep.join(x for x in (environment.pop("PYTHONPATH", ""), str(HELPERS)) if x)
        done = subprocess.run(
            [sys.executable, "-W", "error", *head, *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": paths, **environment},
            capture_output=True,
            text=True,
            timeout=END,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
