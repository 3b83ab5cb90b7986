import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safereplay.kernels import tree


def filled(weights):
    made = tree.allocate(len(weights))
    for i, weight in enumerate(weights):
        tree.put(made, i, weight)
    return made


def slow_find(weights, x):
    """The first thing whose running sum exceeds x."""
    return int(np.searchsorted(np.cumsum(weights), x, side="right"))


def assert_each_parent_is_the_sum_of_its_children(made):
    leaves = made.size // 2
    parents = np.arange(1, leaves)
    assert np.array_equal(made[parents], made[2 * parents] + made[2 * parents + 1])


@pytest.mark.parametrize(("n", "size"), [(1, 2), (2, 4), (3, 8), (4, 8), (5, 16), (80, 256), (1024, 2048)])
def test_a_tree_has_the_next_power_of_two_leaves_and_starts_empty(n, size):
    made = tree.allocate(n)
    assert made.size == size
    assert not made.any()


def test_a_tree_of_one_thing_is_its_root():
    made = tree.allocate(1)
    tree.put(made, 0, 2.5)
    assert made[1] == tree.leaf(made, 0) == 2.5
    assert tree.find(made, 0.0) == tree.find(made, math.nextafter(2.5, 0)) == 0


def test_positions_are_found_by_hand():
    made = filled([1.0, 0.0, 2.0, 0.5])
    assert made[1] == 3.5
    assert [tree.find(made, x) for x in (0.0, 0.99, 1.0, 2.99, 3.0, 3.49)] == [0, 0, 2, 2, 3, 3]


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 5)), max_size=60),
    st.randoms(use_true_random=False),
)
def test_fast_equals_slow_under_random_updates(start, changes, random):
    """Whole weights add exactly, so the tree and the plain running sum must agree on every position."""
    weights = [float(x) for x in start]
    made = filled(weights)
    for i, weight in changes:
        weights[i % len(weights)] = float(weight)
        tree.put(made, i % len(weights), float(weight))
    assert made[1] == sum(weights)
    assert_each_parent_is_the_sum_of_its_children(made)
    if sum(weights) > 0:
        for x in [0.0, math.nextafter(sum(weights), 0), *(random.random() * sum(weights) for _ in range(20))]:
            assert tree.find(made, x) == slow_find(weights, x)


@given(
    st.lists(st.one_of(st.just(0.0), st.floats(-15, 15).map(lambda e: 10.0**e)), min_size=1, max_size=70),
    st.lists(st.floats(0, 1, exclude_max=True), max_size=20),
)
def test_a_thing_without_weight_is_never_found_though_weights_span_thirty_orders(weights, positions):
    made = filled(weights)
    total = made[1]
    if total == 0.0:
        return
    edges = np.cumsum(weights)
    edges = [y for x in edges for y in (math.nextafter(x, 0), x, math.nextafter(x, math.inf)) if y < total]
    for x in [0.0, math.nextafter(total, 0), *(u * total for u in positions), *edges]:
        assert weights[tree.find(made, x)] > 0.0


@pytest.mark.parametrize("weights", [[5e-324], [5e-324, 0.0, 5e-324], [0.0, 1e-310, 0.0, 1e-320, 0.0]])
def test_weights_below_the_normal_range_are_found_too(weights):
    made = filled(weights)
    for u in (0.0, 0.3, 0.5, 1.0 - 2.0**-53):
        assert weights[tree.find(made, u * made[1])] > 0.0


def test_things_are_drawn_in_proportion_to_their_weights():
    """Seed 2, n = 100,000, weights 0..7: χ² with 6 degrees of freedom below 6 + 5·√12."""
    weights, n = np.arange(8.0), 100_000
    made, random = filled(weights), np.random.default_rng(2)
    counts = np.bincount([tree.find(made, u * made[1]) for u in random.random(n)], minlength=8)
    assert counts[0] == 0
    expected = n * weights[1:] / weights.sum()
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 6 + 5 * math.sqrt(12)


def test_nothing_drifts_after_a_hundred_thousand_updates():
    """Every parent is still the sum of its children to the last bit, and an emptied tree is exactly empty."""
    random, n = np.random.default_rng(4), 100
    made = tree.allocate(n)
    things, weights = random.integers(0, n, 100_000), 10.0 ** random.uniform(-12, 12, 100_000)
    for i, weight in zip(things.tolist(), weights.tolist(), strict=True):
        tree.put(made, i, weight)
    assert_each_parent_is_the_sum_of_its_children(made)
    assert made[1] == pytest.approx(math.fsum(made[made.size // 2 :]), rel=1e-14)
    for i in range(n):
        tree.put(made, i, 0.0)
    assert not made.any()
