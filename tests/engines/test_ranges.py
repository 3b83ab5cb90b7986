import numpy as np
import pytest

import safereplay as sr
from safereplay.engines.spec import variants


def made(table, path="learners.x", seed=0):
    return list(variants(table, path, seed))


def test_lists_and_grids_make_their_product_in_order():
    found = made({"v": [0.1, 0.2], "kappa": {"from": 0, "to": 1, "points": 3}, "mixing": "literal"})
    assert [(x["v"], x["kappa"]) for x in found] == [(v, k) for v in (0.1, 0.2) for k in (0.0, 0.5, 1.0)]
    assert {x["mixing"] for x in found} == {"literal"}


def test_a_grid_has_the_numbers_one_would_type():
    assert [x["v"] for x in made({"v": {"from": 0.0, "to": 0.9, "points": 10}})] == [k / 10 for k in range(10)]


def test_a_grid_around_zero_has_zero_in_it():
    middle = [x["v"] for x in made({"v": {"from": -0.9, "to": 0.9, "points": 7}})][3]
    assert (middle, str(middle)) == (0.0, "0.0")


def test_a_grid_keeps_its_ends_exactly_and_whole_numbers_whole():
    third = 1.0 / 3.0
    assert [x["v"] for x in made({"v": {"from": third, "to": 1.0, "points": 2}})] == [third, 1.0]
    whole = [x["T0"] for x in made({"T0": {"from": 1, "to": 100, "points": 12}})]
    assert whole[:3] == [1, 10, 19]
    assert all(isinstance(x, int) for x in whole)


def test_a_grid_on_a_log_scale_has_equal_ratios():
    values = [x["b"] for x in made({"b": {"from": 0.1, "to": 10.0, "points": 5, "scale": "log"}})]
    np.testing.assert_allclose(np.diff(np.log(values)), np.log(10.0) / 2.0, rtol=1e-10)


def test_nested_tables_and_lists_of_tables_are_ranges_too():
    schemes = [{"kind": "A"}, {"kind": "B", "beta": [1.0, 2.0]}]
    found = made({"v": 0.5, "scheme": schemes})
    assert [x["scheme"] for x in found] == [{"kind": "A"}, {"kind": "B", "beta": 1.0}, {"kind": "B", "beta": 2.0}]


def test_a_list_in_a_list_is_one_value():
    assert [x["goal"] for x in made({"goal": [[1, 2], [3, 4]]})] == [[1, 2], [3, 4]]


def test_random_values_are_drawn_together_and_more_samples_keep_the_earlier():
    table = {"samples": 40, "v": {"random": [0.0, 0.5]}, "scheme": {"beta": {"random": [0.01, 100.0], "scale": "log"}}}
    few, more = made({**table, "samples": 10}), made(table)
    assert few == more[:10]
    assert len(more) == 40
    assert made(table, seed=1) != more
    assert made(table, path="learners.y") != more
    v, beta = np.array([(x["v"], x["scheme"]["beta"]) for x in more]).T
    assert 0.0 <= v.min() < v.max() <= 0.5
    assert 0.01 <= beta.min() < 0.1 < 10.0 < beta.max() <= 100.0
    assert abs(np.corrcoef(v, np.log(beta))[0, 1]) < 0.5


def test_random_values_are_uniform_within_sampling_error():
    draws = np.array([x["v"] for x in made({"samples": 4000, "v": {"random": [2.0, 6.0]}})])
    assert abs(draws.mean() - 4.0) < 4.0 * 4.0 / np.sqrt(12 * 4000)
    assert np.histogram(draws, 8, (2.0, 6.0))[0].min() > 400


def test_lists_are_multiplied_with_draws():
    found = made({"samples": 3, "v": {"random": [0.0, 1.0]}, "mixing": ["literal", "matched"]})
    assert [x["mixing"] for x in found] == ["literal", "matched"] * 3
    assert [x["v"] for x in found[::2]] == [x["v"] for x in found[1::2]]


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"v": []}, r"learners.x.v must list at least one value, got \[\]"),
        ({"v": {"from": 0.0, "points": 3}}, "learners.x.v.to must be given for a grid, got 'nothing'"),
        ({"v": {"from": 0.0, "to": 1.0, "points": 1}}, "learners.x.v.points must be at least 2, got 1"),
        ({"v": {"from": 0.0, "to": 1.0, "poinst": 3}}, "unknown key of learners.x.v 'poinst'; did you mean 'points'?"),
        (
            {"v": {"from": 0.0, "to": 1.0, "points": 3, "scale": "log"}},
            'learners.x.v must lie above 0 for scale = "log"',
        ),
        (
            {"v": {"from": 0, "to": 1, "points": 3, "scale": "lg"}},
            "unknown learners.x.v.scale 'lg'; did you mean 'log'?",
        ),
        ({"v": {"from": "a", "to": 1, "points": 3}}, "learners.x.v.from must be a number, got 'a'"),
        ({"v": {"random": [0.0, 1.0]}}, "learners.x.samples must be given, as a value there is random"),
        ({"samples": 3, "v": 0.5}, "learners.x.samples must go with a value that is random, got 3"),
        ({"samples": 3, "v": {"random": 1.0}}, r"learners.x.v.random must be \[low, high\], got 1"),
        ({"samples": 3, "v": {"random": [1.0, 0.0]}}, "low < high"),
        ({"samples": 3, "v": {"random": [0.0, 1.0], "points": 3}}, "unknown key of learners.x.v 'points'"),
    ],
)
def test_a_range_that_is_none_says_where(table, said):
    with pytest.raises(sr.BadInput, match=said):
        made(table)
