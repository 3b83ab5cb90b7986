import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safereplay.arena.measures import Scale, area, band, draws, interval, settled, useful

FLAT = Scale(0.0, np.array([0.0, 1.0]), np.array([1.0, 1.0]), 0.5)
RAMP = Scale(-1.0, np.array([0.1, 0.3]), np.array([0.0, 2.0]), 0.2)


def column(*values):
    return np.array(values, dtype=float)[:, None]


@pytest.mark.parametrize(
    ("p", "value", "share"),
    [
        ([0.0], [1.0], 1.0),  # the ceiling itself
        ([0.25], [1.0], 0.75),  # nothing is kept below 0.25
        ([0.0], [0.4], 0.4),
        ([0.0, 0.5], [0.4, 1.0], 0.5 * 0.4 + 0.5 * 1.0),
        ([0.5, 0.0], [1.0, 0.4], 0.7),  # in any order
        ([0.0, 0.5], [0.9, 0.2], 0.9),  # more risk for less return is never chosen
        ([1.0], [1.0], 0.0),  # only at the end of the range
        ([1.5], [5.0], 0.0),  # beyond it
        ([0.0], [-3.0], 0.0),  # below what counts as nothing
    ],
)
def test_areas_worked_out_by_hand_under_a_flat_ceiling(p, value, share):
    assert area(column(*p), column(*value), FLAT)[0] == pytest.approx(share, abs=1e-12)


def test_an_area_worked_out_by_hand_under_a_ramp():
    # The ceiling less low goes from 1 to 3 over 0.2: area 0.4. Settings (0.15, 0.5) and (0.2, 1): 0.05·1.5 + 0.1·2.
    found = area(column(0.15, 0.2), column(0.5, 1.0), RAMP)[0]
    assert found == pytest.approx((0.05 * 1.5 + 0.1 * 2.0) / 0.4)


def test_an_area_equals_the_mean_of_best_over_limits_drawn_at_random():
    rng = np.random.default_rng(3)
    p, value = rng.random(6), rng.random(6)
    limits = rng.random(200_000)
    best = np.array([max([v for q, v in zip(p, value, strict=True) if q <= x], default=0.0) for x in limits])
    assert area(p[:, None], value[:, None], FLAT)[0] == pytest.approx(best.mean(), abs=0.004)  # 5σ is 0.0056 at most


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8), st.floats(0, 1), st.floats(0, 1))
def test_one_more_setting_never_makes_an_area_smaller_nor_takes_it_above_the_ceiling(points, p, value):
    before, after = (
        area(column(*(x for x, _ in some)), column(*(y for _, y in some)), FLAT)[0]
        for some in (points, [*points, (p, value)])
    )
    assert before - 1e-12 <= after <= 1.0 + 1e-12


def test_what_is_useful_keeps_the_limit_ends_and_has_half_of_the_ceilings_return():
    p = np.array([0.2, 0.2, 0.2, 0.21, 0.0])
    value = np.array([0.0, -0.01, 0.5, 0.5, 0.5])  # half-way from −1 to the ceiling's 1 at 0.2 is 0
    never = np.array([0.0, 0.0, 0.02, 0.0, 0.01])
    assert useful(p, value, never, RAMP).tolist() == [True, False, False, False, True]


@pytest.mark.parametrize(
    ("settings", "good", "share", "text"),
    [
        ([0.0, 0.5, 1.0], [False, True, False], 0.5, "0.5 (50 %)"),
        ([0.0, 0.5, 1.0], [True, True, True], 1.0, "0–1 (100 %)"),
        ([0.0, 0.5, 1.0], [False, False, False], 0.0, "none"),
        ([1.0, 0.0, 0.2], [True, False, False], 0.4, "1 (40 %)"),  # sorted first: the cell of 1 begins at 0.6
        ([0.0, 1.0, 10.0], [True, False, True], 0.5 / 10 + 4.5 / 10, "0–10 (50 %)"),
        ([3.0], [True], 1.0, "3 (100 %)"),
        ([1.0, 10.0, 100.0], [False, False, True], 0.25, "100 (25 %)"),  # in powers: 2 wide, of which the last half
        ([0.0, 0.01, 0.1, 1.0], [True, False, False, False], 1 / 6, "0 (17 %)"),  # 0 is one power below 0.01
    ],
)
def test_bands_worked_out_by_hand(settings, good, share, text):
    found = band(settings, good)
    assert found.share == pytest.approx(share)
    assert str(found) == text
    assert found.of == len(settings)


def test_a_run_settles_at_the_look_from_which_it_stays():
    looks = np.array([10, 20, 40, 80])
    p = np.array([[0.5, 0.5, 0.1, 0.1], [0.1, 0.5, 0.1, 0.1], [0.1, 0.105, 0.1, 0.1], [0.4, 0.3, 0.2, 0.1]])
    assert settled(p, np.zeros((4, 4)), looks, FLAT).tolist() == [40, 40, 10, 80]
    value = np.array([[0.0, 1.0, 0.97, 1.0]])  # within a twentieth of the scale
    assert settled(np.zeros((1, 4)), value, looks, FLAT).tolist() == [20]


def test_resamples_are_of_seeds_and_the_same_every_time():
    weights = draws(20)
    assert weights.shape == (20, 999)
    assert np.allclose(weights.sum(0), 1.0)
    assert np.array_equal(weights, draws(20))
    assert weights.mean() == pytest.approx(1 / 20)


def test_intervals_of_a_mean_cover_it_19_times_in_20():
    """400 samples of 20 numbers each, seed 5: of intervals that cover in 95 % at least 368 do, at 2.5σ."""
    rng, weights = np.random.default_rng(5), draws(20)
    samples = rng.normal(size=(400, 20))
    found = [interval(float(x.mean()), x @ weights, 20) for x in samples]
    covered = sum(x.low <= 0.0 <= x.high for x in found)
    assert 368 <= covered <= 395


def test_an_interval_needs_two_seeds():
    assert np.isnan(interval(1.0, np.ones(9), 1).low)
