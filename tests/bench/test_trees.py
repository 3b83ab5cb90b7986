import numpy as np
import pytest

from benchmarks.speed import trees


def test_importance_weights_and_the_column_are_those_of_the_indices():
    priorities, column = np.array([0.5, 4.0, 1.0, 2.0]), np.array([10.0, 11.0, 12.0, 13.0])
    batch = trees.Priorities(priorities, column).sample(64)
    p = (priorities + trees.EPSILON) ** trees.ALPHA
    np.testing.assert_allclose(
        batch["weights"], ((p / p.sum() * 4) / (p / p.sum() * 4).min())[batch["indexes"]] ** -0.4
    )
    np.testing.assert_array_equal(batch["x"], column[batch["indexes"]])
    assert batch["weights"].max() == 1.0


def test_an_update_moves_what_is_sampled():
    made = trees.Priorities(np.ones(8), np.arange(8.0))
    made.update(np.array([3, 5]), np.array([1e9, 1e9]))
    assert set(made.sample(100)["indexes"]) == {3, 5}


def test_both_sides_sample_alike():
    """Seed 0, 400 batches of 256 from 50 entries: expected shares differ by less than 0.01 in total variation.

    Each batch takes one thing from each part of the total, so shares hardly vary. Importance weights agree to 32 bits.
    """
    pytest.importorskip("cpprb", reason="cpprb is not installed")
    priorities, column = np.random.default_rng(0).exponential(size=50), np.arange(50.0)
    ours, theirs = trees.Priorities(priorities, column), trees.cpprb_buffer(priorities, column)
    shares, weights = [], []
    for sample in (lambda: ours.sample(256), lambda: theirs.sample(256, trees.BETA)):
        batches = [{k: np.array(v) for k, v in sample().items()} for _ in range(400)]  # cpprb uses its arrays again
        indexes = np.concatenate([b["indexes"] for b in batches]).astype(int)
        shares.append(np.bincount(indexes, minlength=50) / indexes.size)
        found = np.full(50, np.nan)
        found[indexes] = np.concatenate([b["weights"] for b in batches])
        weights.append(found)
        assert np.array_equal(np.concatenate([b["x"].ravel() for b in batches]), column[indexes])
    assert np.abs(shares[0] - shares[1]).sum() / 2 < 0.01
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-4)


def test_a_row_a_batch_size_and_work_with_its_ratio():
    rows = trees.measure_tree(1_000, rounds=3)
    assert [(row.batch, row.work) for row in rows] == [(b, w) for b in trees.BATCHES for w in ("sample", "update")]
    assert all(row.alone > 0.0 for row in rows)
    assert trees.Batch(10, 32, "sample", 1e-5, 5e-6, 4e-5).ratio == pytest.approx(4.0)


def test_without_cpprb_ours_is_measured_alone(monkeypatch):
    monkeypatch.setattr(trees, "find_spec", lambda name: None)
    rows = trees.measure_tree(100, rounds=2)
    assert all(row.cpprb is row.ratio is None for row in rows)
    assert trees.sheet(rows).rows[0][-2:] == ("–", "–")


@pytest.mark.slow
@pytest.mark.parametrize("entries", [100_000, 1_000_000])
def test_ours_is_at_least_as_fast_as_cpprb(entries):
    """The median of 100 rounds in turns, every batch size, sampling and updating; some three times as fast when measured."""
    pytest.importorskip("cpprb", reason="cpprb is not installed")
    assert min(row.ratio for row in trees.measure_tree(entries, rounds=100)) >= 1.0
