"""The notebooks, run from the first cell to the last in a kernel of their own; what they show is what is stored."""

import importlib.util
from pathlib import Path

import nbformat
import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
QUICK = ("design", "world")
FILES = sorted((DOCS / "notebooks").glob("*.ipynb"))


@pytest.fixture(scope="module")
def running():
    spec = importlib.util.spec_from_file_location("running", DOCS / "running.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_four():
    assert [file.stem for file in FILES] == ["cliff", "design", "rivals", "world"]


@pytest.mark.parametrize(
    "file",
    [pytest.param(file, marks=[] if file.stem in QUICK else pytest.mark.slow, id=file.stem) for file in FILES],
)
def test_it_runs_top_to_bottom_and_shows_what_is_stored(running, file):
    stored = nbformat.read(file, as_version=4)
    assert running.shown(running.run(file)) == running.shown(stored), "run `make docs`"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_is_stored_without_what_changes_from_run_to_run(running, file, tmp_path):
    running.save(nbformat.read(file, as_version=4), tmp_path / file.name)
    assert (tmp_path / file.name).read_text() == file.read_text()
