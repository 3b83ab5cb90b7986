"""The plain loop that the benchmark runs beside learns the same as ours.

Speeds are not checked here: they say as much about the machine's load as about the code.
"""

import runpy
import statistics

import numpy as np
import pytest

import safereplay as sr
from benchmarks.speed import QUICK, learning

PLAIN = learning.plain
TINY = QUICK._replace(episodes=20, seeds=2, rounds=1)
CONTESTS = {contest.learner.describe(): contest for contest in learning.contests()}


def plain_runs(grid, contest, episodes, seeds, epsilon=0.1):
    """Q of some runs of the plain loop [n, S, A], and their updates [n]."""
    dials = {**learning.plain_model(getattr(sr.grids, grid)()), **contest.dials(), "epsilon": epsilon}
    runs = [PLAIN.run(**dials, episodes=episodes, seed=seed) for seed in range(seeds)]
    return np.array([Q for Q, _ in runs]), np.array([updates for _, updates in runs])


def our_runs(grid, contest, episodes, seeds, epsilon):
    """The same of ours, and which pairs every run visited 30 times [S, A]."""
    mdp = getattr(sr.grids, grid)()
    runs = sr.learn(mdp, contest.learner, episodes, seeds, sr.EpsilonGreedy(epsilon), quiet=True)
    return runs.Q, (runs.visits + runs.replays).sum((1, 2)), runs.visits.min(0) >= 30


def errors_apart(few, many):
    """By how many standard errors the means of two samples differ, if both are spread as the larger one is."""
    spread = many.std(0) * (1.0 / len(few) + 1.0 / len(many)) ** 0.5
    return np.abs(few.mean(0) - many.mean(0)) / (spread + 1e-9)


# 10 runs of the plain loop against 200 of ours, 1,000 episodes each, ε = ½ so that many pairs are visited often. A mean of
# 10 is nearly normal: 6 standard errors leave room for the tails of 16 cases of up to 76 pairs.
SAMPLE = {"episodes": 1_000, "epsilon": 0.5}


@pytest.mark.parametrize("name", CONTESTS)
@pytest.mark.parametrize("grid", learning.GRIDS)
def test_the_plain_loop_learns_the_same_values(grid, name):
    Q, updates = plain_runs(grid, CONTESTS[name], seeds=10, **SAMPLE)
    our_Q, our_updates, often = our_runs(grid, CONTESTS[name], seeds=200, **SAMPLE)
    assert often.sum() >= 10
    assert errors_apart(Q, our_Q)[often].max() < 6.0
    assert errors_apart(updates, our_updates) < 6.0


@pytest.mark.parametrize("grid", learning.GRIDS)
def test_the_comparison_of_values_sees_another_learner(grid):
    Q, _ = plain_runs(grid, CONTESTS["Q-learning"], seeds=10, **SAMPLE)
    our_Q, _, often = our_runs(grid, CONTESTS["replay(v=0.5, beta=5)"], seeds=200, **SAMPLE)
    assert errors_apart(Q, our_Q)[often].max() > 12.0


@pytest.mark.parametrize(("name", "verdict"), [("Q-learning", "risky"), ("replay(v=0.5, beta=5)", "safe")])
@pytest.mark.parametrize("grid", learning.GRIDS)
def test_the_plain_loop_takes_the_papers_ways(grid, name, verdict):
    # Of three runs most agree: on the cliff some of Q-learning's end on the safe way too, ours as well.
    Q, _ = plain_runs(grid, CONTESTS[name], 5_000, 3)
    verdicts = [sr.verdict(getattr(sr.grids, grid)(), q.argmax(1)) for q in Q]
    assert statistics.mode(verdicts) == verdict


def test_a_row_has_both_speeds_and_their_ratio():
    row = learning.measure_speed("cliff", CONTESTS["Q-learning"], TINY)
    assert (row.grid, row.learner, row.episodes) == ("cliff", "Q-learning", 20)
    assert row.plain > 0.0
    assert row.ratio == row.ours / row.plain


def test_an_unknown_grid_is_named():
    with pytest.raises(sr.BadInput, match="unknown grid 'clif'; did you mean 'cliff'"):
        learning.measure_speed("clif", CONTESTS["Q-learning"], TINY)


def test_plain_model_refuses_a_start_that_is_not_uniform():
    start = np.zeros(20)
    start[:2] = 0.9, 0.1
    with pytest.raises(sr.BadInput, match="start must be uniform"):
        learning.plain_model(sr.grids.volatile().with_start(start))


def test_the_plain_loop_imports_nothing_of_ours_and_runs_as_a_script(capsys):
    with open(PLAIN.__file__, encoding="utf-8") as file:
        source = file.read()
    assert "safereplay" not in source
    assert source.count("\n") < 120
    runpy.run_path(PLAIN.__file__, run_name="__main__")
    assert capsys.readouterr().out.count("updates per second") == len(PLAIN.KINDS)


def test_every_learner_has_a_task_on_both_grids():
    labels = [task.label for task in learning.tasks(TINY)]
    assert labels == [f"{grid}: {name}" for grid in learning.GRIDS for name in CONTESTS]
