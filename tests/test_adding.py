"""Adding a scheme, a learner or a world: CONTRIBUTING's own steps, taken in a copy."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
FILES = dict(re.findall(r'^```py title="(.+?)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL))
LINES = dict(re.findall(r'^```text title="(.+?)"\n(.*?)^```', PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The package and its layers, with the three pieces of code and the three lines added."""
    root = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "src", root / "src")
    for name in ("CONTRIBUTING.md", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, root)
    (root / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "test_house.py", root / "tests")
    for name, text in FILES.items():
        with (root / name).open("a") as file:
            file.write(f"\n\n{text}")
    catalog = root / "src" / "safereplay" / "catalog.py"
    text = catalog.read_text()
    for table, line in LINES.items():
        assert len(line.strip().splitlines()) == 1
        text, added = re.subn(rf"^({table}: .* = {{)$", rf"\1\n    {line.strip()}", text, flags=re.MULTILINE)
        assert added == 1
    catalog.write_text(text)
    return root


def module(file):
    """As in the ids of its doctests: safereplay.worlds of src/safereplay/worlds.py."""
    return ".".join(Path(file).with_suffix("").parts[1:])


def ran(copy, *command):
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    done = subprocess.run([sys.executable, *command], cwd=copy, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_steps_are_three_pieces_of_code_and_three_lines():
    assert len(FILES) == 3
    assert set(LINES) == {"SCHEMES", "LEARNERS", "WORLDS"}


USED = """
import safereplay as sr
from safereplay import catalog
from safereplay.cli import run
mdp = catalog.world("gorge")()
assert sr.__file__.startswith("COPY")
print(len(sr.learn(mdp, sr.ReplayQLearning(sr.ShortfallReplay(5.0), v=0.5), episodes=500, seeds=2, quiet=True).verdicts))
limit = sr.exact(mdp, sr.Frugal(0.2))
print(abs(limit - sr.exact(mdp.with_gamma(0.8 * mdp.gamma), sr.QLearning())).max() < 1e-9)
print(sr.Frugal.from_dict(sr.Frugal(0.2).to_dict()) == sr.Frugal(0.2))
options = ["--episodes", "500", "--seeds", "2", "--json"]
run(["learn", "gorge", "--learner", "frugal", "--dial", "care=0.25", *options])
run(["learn", "gorge", "--scheme", "shortfall", *options])
"""


def test_what_was_added_is_used_like_what_was_there_by_python_and_by_the_command_line(copy):
    verdicts, same_limit, same_settings, *told = ran(copy, "-c", USED.replace("COPY", str(copy))).splitlines()
    assert (verdicts, same_limit, same_settings) == ("2", "True", "True")
    frugal, shortfall = (json.loads(text) for text in "\n".join(told).replace("}\n{", "}\0{").split("\0"))
    assert frugal["learner"]["kind"] == "Frugal"
    assert frugal["learner"]["care"] == 0.25
    assert shortfall["learner"]["scheme"]["kind"] == "ShortfallReplay"


@pytest.mark.slow
def test_a_comparison_takes_them_in(copy, tmp_path):
    cli = ("-c", "from safereplay.cli import main; main()")
    names = ("--world", "gorge", "--learner", "frugal", "--scheme", "shortfall", "--learner", "q")
    ran(copy, *cli, "compare", *names, "--steps", "2000", "--out", str(tmp_path / "compared"))
    page = (tmp_path / "compared" / "report.md").read_text()
    assert "frugal" in page
    assert "shortfall" in page
    assert "gorge" in page


def test_they_belong_to_a_layer_and_have_examples_that_hold(copy):
    names = ("every_module", "imports_go", "public_name", "type_checkers", "has_an_example", *map(module, FILES))
    options = ("-q", "-p", "no:cacheprovider", "--doctest-modules", "-k", " or ".join(names))
    ran(copy, "-m", "pytest", *options, "tests/test_house.py", *FILES)
