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


#: Whole programs: pages in a browser, servers, processes that are killed, the reproduction, and the documentation.
WHOLE = {
    *("test_adding.py", "test_examples.py", "test_notebooks.py", "test_site.py"),
    *("test_checkpoints.py", "test_fuzz.py", "test_killed.py", "test_large.py", "test_ray.py", "test_reproduce.py"),
    *("test_roads.py", "test_scripts.py", "test_serving.py"),
}


def is_whole(path):
    return path.name in WHOLE or (path.suffix == ".py" and path.parent.name == "pages")


def pytest_ignore_collect(collection_path, config):
    """Do not even import what ``make test`` leaves out."""
    return True if "not whole" in config.option.markexpr and is_whole(collection_path) else None


def pytest_collection_modifyitems(items):
    """Mark the tests of whole programs: ``make test-whole``."""
    for item in items:
        if is_whole(item.path):
            item.add_marker(pytest.mark.whole)


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
