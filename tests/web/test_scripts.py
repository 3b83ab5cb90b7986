import subprocess
import sys

import pytest
from models import same_model
from waiting import END

import safereplay as sr
from safereplay.sources import model_from
from safereplay.web import answers
from safereplay.web.state import TITLES, StateLink, WorldLink

DRAWN = {"map": "S2r/1XGS/4", "goals": "1.2~50", "volatiles": "0.3~0.9:4,0.1:-60", "slip": 0.2, "start": "S"}


@pytest.mark.parametrize(
    "link",
    [
        StateLink(seeds=2),
        StateLink(**DRAWN, left="mihatsch,kappa:0.3", right="replay,v:0.4,beta:0.1,mixing:matched,scheme:score"),
    ],
    ids=["the cliff", "a world of one's own"],
)
def test_an_exported_script_runs_and_says_what_the_page_says(link, tmp_path):
    file = tmp_path / "study.py"
    file.write_text(answers.script(link))
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, timeout=END, check=True)
    lines = done.stdout.splitlines()
    world = {name: getattr(link, name) for name in WorldLink.model_fields}
    for line, side in zip(lines, (link.left, link.right), strict=False):
        found = answers.solve({**world, "learner": side, "epsilon": link.epsilon})
        risk = found["risk"]
        numbers = f"P(unsafe) {risk['p_unsafe']:.6f}, mean {risk['mean']:.6f}"
        assert line == f"{found['label']}: exact limit {found['verdict']}, {numbers}"
    assert len(lines) == 4
    assert lines[3].count("safe") + lines[3].count("risky") >= link.seeds


@pytest.mark.parametrize("link", [*({"world": name} for name in TITLES), DRAWN], ids=[*TITLES, "drawn"])
def test_an_exported_map_is_the_same_world(link, tmp_path):
    world = WorldLink(**link).to_world()
    file = tmp_path / "world.map"
    file.write_text(answers.world_file(world))
    assert same_model(model_from(str(file)), world.mdp())


def test_a_script_holds_nothing_that_was_not_checked():
    code = answers.script(StateLink(**DRAWN))
    compile(code, "study.py", "exec")
    assert "goals={(1, 2): 50.0}" in code
    assert "sr.QLearning()" in code
    with pytest.raises(sr.BadInput):
        answers.script(StateLink(map="S1W/3", right="replay"))
