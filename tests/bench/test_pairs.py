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
    assert 100 < row.bytes < 400


def test_every_size_is_a_task_and_costs_are_shown_to_the_first():
    assert [task.label for task in pairs.tasks(QUICK._replace(pairs=(40, 4_000)))] == ["40 pairs", "4,000 pairs"]
    rows = [pairs.Scaling(100, 50.0, 1.0, 1.0, 144.0), pairs.Scaling(1_000, 75.0, 0.9, 0.8, 145.0)]
    assert pairs.sheet(rows).rows[1] == ("1,000", "75", "1.5×", "145", "90%", "80%")
