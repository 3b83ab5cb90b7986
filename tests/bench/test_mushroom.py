import json
import sys

import numpy as np
import pytest

import safereplay as sr
from benchmarks.speed import QUICK, mushroom

STANDS_IN = """
import json, sys
task = json.load(sys.stdin)
assert len(task["p"]) == 24 and abs(sum(task["p"][0][0]) - 1) < 1e-12
print("a line of its own")
print(json.dumps({"version": "9", "updates": task["steps"], "seconds": 0.5, "Q": []}))
"""


@pytest.fixture
def stands_in(tmp_path, monkeypatch):
    """A script in the place of benchmarks/mushroom.py."""
    file = tmp_path / "mushroom.py"
    monkeypatch.setattr(mushroom, "SCRIPT", file)
    return file


def test_the_cliff_as_tables_has_its_outcomes_and_its_ends():
    mdp = sr.grids.cliff()
    told = mushroom.finite_mdp(mdp)
    p, r = np.array(told["p"]), np.array(told["r"])
    assert p.shape == r.shape == (mdp.n_states, mdp.n_actions, mdp.n_states)
    np.testing.assert_allclose(p.sum(2), np.where(mdp.is_terminal, 0.0, 1.0)[:, None] * np.ones(4))
    np.testing.assert_allclose((p * r).sum(2), mdp.expect(mdp.r).reshape(mdp.n_states, 4))
    assert json.loads(json.dumps(told)) == told


def test_a_model_whose_reward_is_random_is_refused():
    with pytest.raises(sr.BadInput, match=r"model must have one reward for each \(s, a, s'\)"):
        mushroom.finite_mdp(sr.grids.volatile())


def test_both_speeds_are_updates_a_second(stands_in):
    stands_in.write_text(STANDS_IN)
    effort = QUICK._replace(steps=50, episodes=10, rounds=2)
    row = mushroom.measure_mushroom(sys.executable, effort)[0]
    assert (row.grid, row.version, row.theirs) == ("cliff", "9", 100.0)
    assert row.ratio == row.ours / 100.0
    assert len(mushroom.tasks(effort, sys.executable)) == 1


def test_a_python_without_it_says_what_to_do(stands_in):
    stands_in.write_text("import a_package_that_is_not_there")
    with pytest.raises(sr.SafeReplayError, match=r"No module named 'a_package.*own environment"):
        mushroom.run_theirs(sys.executable, sr.grids.cliff(), 10, 0)


def test_a_python_that_is_not_there_is_named():
    with pytest.raises(sr.BadInput, match="mushroom must be a Python with mushroom_rl, got 'nowhere/python'"):
        mushroom.interpreter("nowhere/python")


def test_without_it_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(mushroom, "find_spec", lambda name: None)
    assert mushroom.tasks(QUICK) == []


def test_it_learns_the_values_that_ours_learns():
    """Seed 0, 60,000 steps, against 200 runs of ours of as many: visited pairs agree to 6 standard deviations of a run."""
    pytest.importorskip("mushroom_rl", reason="MushroomRL is not installed here")
    mdp = sr.grids.cliff()
    Q = np.array(mushroom.run_theirs(sys.executable, mdp, 60_000, 0)["Q"])
    runs = sr.learn(mdp, sr.QLearning(), 10_600, 200, quiet=True)
    often = runs.visits.min(0) >= 100
    assert often.sum() >= 10
    assert (np.abs(Q - runs.Q.mean(0)) / (runs.Q.std(0) + 1e-9))[often].max() < 6.0
