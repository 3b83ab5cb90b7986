"""The benchmark's rows are complete and sane, and the plain loop that it runs beside learns the same as ours.

Speeds are not checked here: they say as much about the machine's load as about the code.
"""

import io
import json
import runpy
import statistics

import numpy as np
import pytest
from rich.console import Console

import safereplay as sr
from safereplay import bench

PLAIN = bench.load_plain()
TINY = bench.Effort(episodes=20, seeds=2, rounds=1, warm_up=1.0, pairs=(40, 400), states=(400,))
CONTESTS = {contest.learner.describe(): contest for contest in bench.contests()}


def plain_runs(grid, contest, episodes, seeds, epsilon=0.1):
    """Q of some runs of the plain loop [n, S, A], and their updates [n]."""
    dials = {**bench.plain_model(getattr(sr.grids, grid)()), **contest.dials(), "epsilon": epsilon}
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
@pytest.mark.parametrize("grid", bench.GRIDS)
def test_the_plain_loop_learns_the_same_values(grid, name):
    Q, updates = plain_runs(grid, CONTESTS[name], seeds=10, **SAMPLE)
    our_Q, our_updates, often = our_runs(grid, CONTESTS[name], seeds=200, **SAMPLE)
    assert often.sum() >= 10
    assert errors_apart(Q, our_Q)[often].max() < 6.0
    assert errors_apart(updates, our_updates) < 6.0


@pytest.mark.parametrize("grid", bench.GRIDS)
def test_the_comparison_of_values_sees_another_learner(grid):
    Q, _ = plain_runs(grid, CONTESTS["Q-learning"], seeds=10, **SAMPLE)
    our_Q, _, often = our_runs(grid, CONTESTS["replay(v=0.5, beta=5)"], seeds=200, **SAMPLE)
    assert errors_apart(Q, our_Q)[often].max() > 12.0


@pytest.mark.parametrize(("name", "verdict"), [("Q-learning", "risky"), ("replay(v=0.5, beta=5)", "safe")])
@pytest.mark.parametrize("grid", bench.GRIDS)
def test_the_plain_loop_takes_the_papers_ways(grid, name, verdict):
    # Of three runs most agree: on the cliff some of Q-learning's end on the safe way too, ours as well.
    Q, _ = plain_runs(grid, CONTESTS[name], 5_000, 3)
    verdicts = [sr.verdict(getattr(sr.grids, grid)(), q.argmax(1)) for q in Q]
    assert statistics.mode(verdicts) == verdict


def test_a_row_has_both_speeds_and_their_ratio():
    row = bench.measure_speed("cliff", CONTESTS["Q-learning"], TINY)
    assert (row.grid, row.learner, row.episodes) == ("cliff", "Q-learning", 20)
    assert row.plain > 0.0
    assert row.ratio == row.ours / row.plain


def test_an_unknown_grid_is_named():
    with pytest.raises(sr.BadInput, match="unknown grid 'clif'; did you mean 'cliff'"):
        bench.measure_speed("clif", CONTESTS["Q-learning"], TINY)


def test_the_random_model_has_a_random_reward_at_every_pair():
    mdp = bench.random_model(400)
    assert (mdp.n_pairs, mdp.r.size) == (400, 800)
    assert mdp.reward_variance.min() > 0.0
    assert mdp == bench.random_model(400)


def test_scaling_is_measured_with_weights_in_the_tree():
    row = bench.measure_scaling(400, warm_up=10.0, rounds=1)
    assert row.pairs == 400
    assert row.nanoseconds > 0.0
    assert row.visited == row.weighted == 1.0


def test_a_report_holds_every_learner_on_both_grids_and_goes_to_json(monkeypatch):
    monkeypatch.setattr(bench, "QUICK", TINY)
    monkeypatch.setattr("safereplay.peers.missing", lambda: ["mdpsolver"])
    told = []
    report = bench.run_bench(quick=True, progress=lambda share, label: told.append((share, label)))
    assert [(row.grid, row.learner) for row in report.rows] == [(g, name) for g in bench.GRIDS for name in CONTESTS]
    assert [row.pairs for row in report.scaling] == [40, 400]
    assert [share for share, _ in told] == sorted(share for share, _ in told)
    assert told[-1] == (1.0, "done")
    assert len(told) == 2 * len(CONTESTS) + 2 + 2 + 1
    assert {row.model for row in report.solving} == set(bench.MODELS)
    data = json.loads(report.to_json())
    assert data == report.to_dict()
    assert data["rows"][0]["ratio"] == report.rows[0].ratio
    assert {"cpu", "cores", "python", "numba", "numpy"} <= set(data["machine"])


def test_tables_show_every_row():
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(bench.table([bench.Speed("cliff", "Q-learning", 10, 5e5, 2.5e7)]))
    console.print(bench.scaling_table([bench.Scaling(100, 50.0, 1.0, 1.0), bench.Scaling(1_000, 75.0, 0.9, 0.8)]))
    console.print(bench.solving_table([bench.Solving("random", 10_000, "quantecon, VI", 0.5, 1e-7, 4.0)]))
    text = console.export_text()
    assert "4.0×" in text
    assert "25,000,000" in text
    assert "50×" in text
    assert "1.5×" in text


def test_plain_model_refuses_a_start_that_is_not_uniform():
    start = np.zeros(20)
    start[:2] = 0.9, 0.1
    with pytest.raises(sr.BadInput, match="start must be uniform"):
        bench.plain_model(sr.grids.volatile().with_start(start))


def test_the_plain_loop_imports_nothing_of_ours_and_runs_as_a_script(capsys):
    with open(PLAIN.__file__, encoding="utf-8") as file:
        source = file.read()
    assert "safereplay" not in source
    assert source.count("\n") < 120
    runpy.run_path(PLAIN.__file__, run_name="__main__")
    assert capsys.readouterr().out.count("updates per second") == len(PLAIN.KINDS)
