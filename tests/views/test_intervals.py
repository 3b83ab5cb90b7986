import numpy as np
import pytest
from scipy import stats

from safereplay.views import intervals
from safereplay.views.intervals import estimates


def test_one_group_gets_the_interval_that_scipy_gives():
    x = np.random.default_rng(1).exponential(size=15)
    found = estimates(x, np.zeros(15, int), np.arange(15), 1, seed=3)[0]
    plain = stats.bootstrap((x,), np.mean, n_resamples=999, rng=np.random.default_rng(3)).confidence_interval
    assert found.mean == pytest.approx(x.mean())
    assert (found.low, found.high) == pytest.approx((plain.low, plain.high), rel=0.1)


def test_intervals_cover_the_truth_about_as_often_as_they_say():
    """600 groups of 30 normal seeds: 95 % ± 4 %, where a bootstrap of so few is known to fall somewhat short."""
    groups, seeds = 600, 30
    x = np.random.default_rng(5).normal(size=groups * seeds)
    found = np.array(estimates(x, np.arange(x.size) // seeds, np.arange(x.size) % seeds, groups))
    assert 0.91 < ((found[:, 1] < 0) & (found[:, 2] > 0)).mean() < 0.99


def test_settings_count_as_given_and_only_seeds_are_resampled():
    """Two settings far apart, each the same for all seeds: other seeds would not move the mean."""
    settings, seeds = np.repeat([0.0, 10.0], 6), np.tile(np.arange(6), 2)
    assert estimates(settings, np.zeros(12, int), seeds, 1) == [(5.0, 5.0, 5.0)]


def test_seeds_with_more_runs_count_for_more():
    found = estimates(np.array([1.0, 1.0, 1.0, 0.0]), np.zeros(4, int), np.array([0, 0, 0, 1]), 1)[0]
    assert found.mean == 0.75
    assert found.low == 0.0
    assert found.high == 1.0


@pytest.mark.parametrize("n", [2, 7, 1000])
def test_where_all_are_equal_the_interval_is_the_point(n):
    assert estimates(np.full(n, 0.1), np.zeros(n, int), np.arange(n), 1) == [pytest.approx((0.1, 0.1, 0.1), rel=1e-12)]


def test_what_is_nearly_degenerate_has_finite_ends():
    """One seed of six differs: BCa cannot always be had, and nobody is warned."""
    x = np.tile([0.0, 0.0, 0.0, 0.0, 0.0, 1.0], 50)
    found = np.array(estimates(x, np.arange(300) // 6, np.arange(300) % 6, 50))
    assert np.isfinite(found).all()
    assert (found[:, 1] <= found[:, 0]).all()
    assert (found[:, 2] >= found[:, 0]).all()


def test_one_seed_has_no_interval_and_no_finite_value_no_mean():
    found = np.array(estimates(np.array([3.0, -np.inf, np.nan]), np.array([0, 1, 1]), np.zeros(3, int), 3))
    assert found[0, 0] == 3.0
    assert np.isnan(found[0, 1:]).all()
    assert np.isnan(found[1:]).all()
    assert intervals.Estimate(*found[1]).to_dict() == {"mean": None, "low": None, "high": None}


def test_many_seeds_are_resampled_in_blocks_to_the_same_width():
    """20,000 sorted seeds: the normal interval is 1.96·σ/√n either side, and blocks must come within 20 %."""
    x = np.sort(np.random.default_rng(2).normal(size=20_000))
    found = estimates(x, np.zeros(x.size, int), np.arange(x.size), 1)[0]
    assert found.high - found.low == pytest.approx(2 * 1.96 / np.sqrt(x.size), rel=0.2)
    assert found.low < x.mean() < found.high


def test_the_same_seed_gives_the_same_ends():
    x = np.random.default_rng(3).normal(size=40)
    one, two, other = (estimates(x, np.arange(40) // 20, np.arange(40) % 20, 2, seed) for seed in (0, 0, 1))
    assert one == two
    assert one != other
