"""The loop in C that the benchmark runs beside gives the same bits as ours."""

import numpy as np
import pytest

import safereplay as sr
from benchmarks.speed import QUICK, native

TINY = QUICK._replace(episodes=200, seeds=2, rounds=1)
GCC = native.compiler()
needs_gcc = pytest.mark.skipif(GCC is None, reason="gcc is not installed here")
LEARNERS = {learner.describe(): learner for learner in native.learners()}


@needs_gcc
@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("grid", native.GRIDS)
def test_c_learns_the_same_bits(grid, name):
    mdp, learner = sr.grids.PAPER[grid](), LEARNERS[name]
    in_c = native.InC(GCC, mdp, learner)
    assert native.differing(in_c, mdp, learner, episodes=3_000, seeds=4) == []


@needs_gcc
def test_the_comparison_of_bits_sees_another_learner():
    mdp = sr.grids.cliff()
    in_c = native.InC(GCC, mdp, sr.ReplayQLearning(sr.VarianceReplay(native.BETA), v=0.4))
    assert native.differing(in_c, mdp, LEARNERS["replay(v=0.5, beta=5)"], episodes=50, seeds=2) == [0, 1]


@needs_gcc
def test_the_same_bits_after_the_tabulated_step_sizes():
    mdp, learner = sr.grids.volatile(), LEARNERS["replay(v=0.5, beta=5)"]
    in_c = native.InC(GCC, mdp, learner)
    assert in_c(60_000, 0)[1].max() > 1 << 16
    assert native.differing(in_c, mdp, learner, episodes=60_000, seeds=1) == []


@needs_gcc
def test_a_row_has_both_speeds_and_their_ratio():
    (row,) = native.measure_c(GCC, "cliff", LEARNERS["Q-learning"], TINY)
    assert (row.grid, row.learner) == ("cliff", "Q-learning")
    assert row.ratio == row.ours / row.c > 0.0


@needs_gcc
def test_what_differs_is_named_and_not_timed(monkeypatch):
    monkeypatch.setattr(native, "differing", lambda *_: [1])
    with pytest.raises(sr.BadInput, match=r"plain\.c must learn the same Q for every seed, got \[1\]"):
        native.measure_c(GCC, "cliff", LEARNERS["Q-learning"], TINY)


def test_prepared_runs_do_the_updates_of_learn():
    mdp, learner = sr.grids.cliff(), LEARNERS["replay(v=0.5, beta=5)"]
    runs = sr.learn(mdp, learner, 50, 2, quiet=True)
    assert native.prepared(mdp, learner, 50, 2)(0) == np.sum(runs.visits + runs.replays)


def test_without_a_compiler_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(native, "which", lambda name: None)
    assert native.tasks(QUICK) == []


def test_every_learner_has_a_task_on_both_grids(monkeypatch):
    monkeypatch.setattr(native, "which", lambda name: "gcc")
    assert [task.label for task in native.tasks(QUICK)] == [
        f"C, {grid}: {x}" for grid in native.GRIDS for x in LEARNERS
    ]
