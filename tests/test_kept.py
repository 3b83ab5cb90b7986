"""What later releases must give again: numbers of runs, a saved agent and a sweep folder of earlier releases.

After a change that is meant to change numbers, ``python tests/test_kept.py`` writes ``kept/runs.json`` anew.
"""

import json
import shutil
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import safereplay as sr
from safereplay import catalog

KEPT = Path(__file__).parent / "kept"
RUNS = json.loads((KEPT / "runs.json").read_text())


def summary(name):
    """Visits, replays, and the sums of Q and |Q|, after 300 episodes of a learner or scheme of the catalog, seeds 0 and 1."""
    kind, _, which = name.partition(" ")
    learner = catalog.learner(which)() if kind == "learner" else sr.ReplayQLearning(catalog.scheme(which)(), v=0.5)
    mdp = catalog.world("goal_room")() if which == "hindsight" else sr.grids.cliff()
    runs = sr.learn(mdp, learner, 300, seeds=2, quiet=True)
    return [int(runs.visits.sum()), int(runs.replays.sum()), float(runs.Q.sum()), float(np.abs(runs.Q).sum())]


def names():
    return [f"learner {name}" for name in catalog.LEARNERS] + [f"scheme {name}" for name in catalog.SCHEMES]


def test_every_learner_and_scheme_of_the_catalog_is_kept():
    assert set(RUNS) == set(names())


@pytest.mark.parametrize("name", RUNS)
def test_a_run_gives_the_numbers_that_it_gave(name):
    assert summary(name) == pytest.approx(RUNS[name], rel=1e-9)


def test_an_agent_that_release_0_1_saved_goes_on(tmp_path):
    """As the same agent does that is saved today: 2,000 steps, then 1,000 more."""

    def environment():
        return gymnasium.make("safereplay/Cliff-v0")

    agent = sr.Agent(environment(), sr.ReplayQLearning(), seed=0)
    agent.learn(steps=2_000)
    agent.save(tmp_path / "agent.npz")
    today, before = (sr.Agent.load(path, environment()) for path in (tmp_path / "agent.npz", KEPT / "agent-0.1.npz"))
    assert np.array_equal(before.Q, agent.Q)
    for one in (today, before):
        one.learn(steps=1_000)
    assert np.array_equal(before.Q, today.Q)
    assert not np.array_equal(before.Q, agent.Q)


def test_a_sweep_that_release_0_1_began_is_finished(tmp_path):
    shutil.copytree(KEPT / "sweep", tmp_path / "sweep")
    found = sr.sweep(KEPT / "sweep" / "spec.toml", tmp_path / "sweep", quiet=True)
    fresh = sr.sweep(KEPT / "sweep" / "spec.toml", tmp_path / "fresh", quiet=True)
    assert (found.already > 0, found.already + found.done, fresh.done) == (True, 45, 45)
    for name in ("id", "policy", "verdict", "p_unsafe"):
        assert found.table()[name].to_pylist() == fresh.table()[name].to_pylist()


if __name__ == "__main__":
    (KEPT / "runs.json").write_text(json.dumps({name: summary(name) for name in names()}, indent=1) + "\n")
