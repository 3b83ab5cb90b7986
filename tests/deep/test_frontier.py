"""Pareto-optimal settings, and which of two families reaches further."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_study import steady

from safereplay.views.intervals import Estimate
from studies.deep.frontier import Comparison, compare, pareto, reach

PLAIN, RANDOM = steady("plain", 0.2, 10.0), steady("random", 0.5, 0.0)
POINTS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8).map(
    lambda x: np.array(x, float)
)


@given(POINTS)
def test_pareto_optimal_is_what_nobody_beats(points):
    def beats(a, b):
        return a[0] <= b[0] and a[1] >= b[1] and (a != b).any()

    assert pareto(points).tolist() == [not any(beats(a, b) for a in points) for b in points]


@given(POINTS)
def test_reach_is_the_mean_best_return_over_budgets(points):
    """Against budgets one by one: plain has P = 5 and return 5, random return 1; points lie between budgets, so exactly."""
    budgets = (np.arange(50) + 0.5) / 10
    best = [max([0.0, *((r - 1.0) / 4.0 for p, r in points if p <= b)]) for b in budgets]
    found = reach(points[:, :1], points[:, 1:], np.array([5.0]), np.array([5.0]), np.array([1.0]))
    assert found[0] == pytest.approx(np.mean(best), abs=1e-12)


def test_the_family_that_reaches_further_is_told_in_both_directions():
    near, far = [PLAIN, steady("near", 0.15, 9.0)], [PLAIN, steady("far", 0.01, 9.5)]
    assert compare(far, near, PLAIN, RANDOM).verdict == "further"
    assert compare(near, far, PLAIN, RANDOM).verdict == "less far"
    assert compare(far, far, PLAIN, RANDOM).verdict == "as far within 0.01"
    found = compare(far, near, PLAIN, RANDOM)
    assert found.ours.mean == pytest.approx(0.95 * 0.95)
    assert found.rival.mean == pytest.approx(0.25 * 0.9)
    assert found.gain.mean == pytest.approx(found.ours.mean - found.rival.mean)
    assert found.gain.low < found.gain.mean < found.gain.high


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (0.001, 0.004, "as far within 0.01"),
        (-0.009, 0.009, "as far within 0.01"),
        (0.001, 0.02, "further"),
        (-0.02, -0.001, "less far"),
        (-0.02, 0.009, "no significant difference"),
    ],
)
def test_reaches_are_equal_if_the_whole_interval_is_small(low, high, verdict):
    reached = Estimate(0.5, 0.4, 0.6)
    assert Comparison(reached, reached, Estimate((low + high) / 2, low, high), 4).verdict == verdict


def test_where_plain_meets_no_catastrophe_there_is_nothing_to_reach():
    calm = steady("plain", 0.0, 10.0)
    assert compare([calm], [calm], calm, RANDOM).verdict == "no danger"


def test_families_are_compared_with_equally_many_settings():
    """The rival has one setting besides the neutral end: ours reach 0.45 with the one, 1 with the other."""
    ours = [PLAIN, steady("ours", 0.1, 9.0), steady("ours", 0.0, 10.0, dial="best")]
    rivals = [PLAIN, steady("rival", 0.05, 9.5)]
    found = compare(ours, rivals, PLAIN, RANDOM)
    assert found.settings == 2
    assert found.ours.mean == pytest.approx((0.5 * 0.9 + 1.0) / 2)


def test_where_no_setting_is_better_than_random_neither_reaches_anything():
    worse = [PLAIN, steady("worse", 0.1, -5.0)]
    reached = Estimate(0.004, 0.0, 0.008)
    assert Comparison(reached, reached, Estimate(0.0, -0.02, 0.02), 4).verdict == "neither reaches anything"
    assert compare(worse, worse, PLAIN, RANDOM).verdict == "neither reaches anything"
