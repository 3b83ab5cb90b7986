import numpy as np

from benchmarks.speed import QUICK, pairs


def test_the_random_model_has_a_random_reward_at_every_pair():
    mdp = pairs.random_model(400)
    assert (mdp.n_pairs, mdp.r.size) == (400, 800)
    assert mdp.reward_variance.min() > 0.0
    assert mdp == pairs.random_model(400)


def test_scaling_is_measured_with_weights_in_the_tree():
    row = pairs.measure_scaling(400, warm_up=10.0, rounds=1)
    assert row.pairs == 400
    assert row.nanoseconds > 0.0
    assert row.visited == row.weighted == 1.0
    assert row.solve.seconds > 0.0
    assert row.judge.seconds > 0.0


def test_every_size_is_a_task_and_costs_are_shown_by_pair():
    assert [task.label for task in pairs.tasks(QUICK._replace(pairs=(40, 4_000)))] == ["40 pairs", "4,000 pairs"]
    solve, judge = pairs.Cost(2.5, 2e8), pairs.Cost(0.25, None)
    rows = [pairs.Scaling(n, 75.0, 0.9, 0.8, 145.0, solve, judge) for n in (1_000, 1_000_000)]
    small, large = pairs.sheet(rows).rows
    assert small[2] == small[7] == "–"  # the peak is not that of the model
    assert large == ("1,000,000", "75", "145", "90%", "80%", "2.5", "2,500", "200", "0.2500", "250", "–")


def test_a_models_pieces_make_no_difference(monkeypatch):
    whole = pairs.random_model(400)
    monkeypatch.setattr(pairs, "PIECE", 7)
    assert pairs.random_model(400) == whole


def test_the_peak_of_memory_is_that_of_the_work():
    cost = pairs.measured(lambda: np.ones(1 << 24).sum())
    assert cost.peak is None or 0.9 * 2**27 < cost.peak < 2**28


def test_where_the_peak_cannot_be_reset_there_is_none(monkeypatch, tmp_path):
    monkeypatch.setattr(pairs, "CLEAR", tmp_path / "none" / "there")
    assert pairs.measured(lambda: None, 3).peak is None
