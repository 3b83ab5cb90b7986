import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.speed.trees import draw_many, find_many, put_many_least
from safereplay.kernels import rng, tree


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


# -- a batch at a time -------------------------------------------------------------------------------------------------

#: Weights over thirty orders of magnitude with zeros in between, and some below the normal range.
WEIGHT = st.one_of(
    st.just(0.0), st.floats(-15, 15).map(lambda e: 10.0**e), st.sampled_from([5e-324, 1e-320, 2.2e-308, 1e300])
)


def filled_at_once(weights):
    made = tree.allocate(len(weights))
    tree.put_many(made, np.arange(len(weights)), np.array(weights))
    return made


def found(made, positions):
    things = np.full(len(positions), -1)
    find_many(made, np.array(positions), things)
    return things.tolist()


def edges(weights, total):
    """Where one thing's part of the running sum ends and the next one's begins, and one step to either side."""
    steps = [y for x in np.cumsum(weights) for y in (math.nextafter(x, 0), x, math.nextafter(x, math.inf))]
    return [0.0, 5e-324, math.nextafter(total, 0), *(x for x in steps if x < total)]


batches = st.lists(st.lists(st.tuples(st.integers(0, 69), WEIGHT), max_size=90), max_size=4)


@given(st.integers(1, 70), batches)
def test_batches_of_updates_leave_the_same_bits_as_one_at_a_time(n, batches):
    slow, fast = tree.allocate(n), tree.allocate(n)
    for batch in batches:
        things, weights = np.array([i % n for i, _ in batch], np.int64), np.array([w for _, w in batch])
        for i, weight in zip(things, weights, strict=True):
            tree.put(slow, i, weight)
        tree.put_many(fast, things, weights)
        assert slow.tobytes() == fast.tobytes()
        assert_each_parent_is_the_sum_of_its_children(fast)


@given(st.lists(WEIGHT, min_size=1, max_size=70), st.lists(st.floats(0, 1, exclude_max=True), max_size=40))
def test_a_batch_finds_what_each_search_finds_and_never_a_thing_without_weight(weights, positions):
    made = filled_at_once(weights)
    total = made[1]
    if total == 0.0:
        return
    x = [*edges(weights, total), *(u * total for u in positions)]
    things = found(made, x)
    assert things == [tree.find(made, y) for y in x]
    assert all(weights[i] > 0.0 for i in things)


@given(st.lists(WEIGHT, min_size=1, max_size=70))
def test_not_even_a_position_at_or_beyond_the_total_leads_to_a_thing_without_weight(weights):
    made = filled_at_once(weights)
    if made[1] > 0.0:
        for x in (made[1], math.nextafter(made[1], math.inf), 2.0 * made[1], math.inf, math.nan):
            assert weights[tree.find(made, x)] > 0.0
            assert weights[found(made, [x])[0]] > 0.0


@given(st.lists(WEIGHT, min_size=1, max_size=70), st.integers(1, 50), st.integers(0, 2**32))
def test_a_drawn_batch_never_holds_a_thing_without_weight(weights, n, seed):
    made, things = filled_at_once(weights), np.full(n, -1)
    if made[1] > 0.0:
        draw_many(made, rng.seeded(seed), np.empty(n), things)
        assert all(weights[i] > 0.0 for i in things)
        assert sorted(things) == list(things)  # one from each part of the running sum, in order


def test_a_total_beyond_the_largest_number_leads_to_no_thing_without_weight_either():
    weights = [1e308, 1e308, 0.0, 1.0, 0.0]
    made, things = filled_at_once(weights), np.empty(9, np.int64)
    assert made[1] == math.inf
    draw_many(made, rng.seeded(0), np.empty(9), things)
    assert all(weights[i] > 0.0 for i in [*things, tree.find(made, 1.0), tree.find(made, math.inf)])


def test_a_batch_is_spread_evenly():
    """Each thing of eight equal ones comes up exactly n/8 times: every eighth of the total has its share of draws."""
    made, things = filled_at_once([1.0] * 8), np.empty(64, np.int64)
    draw_many(made, rng.seeded(0), np.empty(64), things)
    assert np.bincount(things).tolist() == [8] * 8


@pytest.mark.parametrize("n", [1, 7, 256])
def test_batches_are_drawn_in_proportion_to_the_weights(n):
    """Seed 3, 200,000 draws in batches of n, weights over 1 to 40 with every fifth zero.

    Total variation of the draws from the weights is below √(things/draws)/2, the mean of draws made alone, by 3 times;
    a tree whose weights were all alike would be at 0.24.
    """
    weights = np.where(np.arange(40) % 5 == 0, 0.0, np.arange(40.0))
    made, generator, draws = filled_at_once(weights), rng.seeded(3), 200_000 // n
    counts, x, things = np.zeros(40), np.empty(n), np.empty(n, np.int64)
    for _ in range(draws):
        draw_many(made, generator, x, things)
        np.add.at(counts, things, 1)
    apart = np.abs(counts / counts.sum() - weights / weights.sum()).sum() / 2
    assert apart < 3 * math.sqrt(40 / (n * draws)) / 2
    assert np.abs(1 / 40 - weights / weights.sum()).sum() / 2 > 0.2


def test_nothing_drifts_after_a_thousand_batches():
    random, n = np.random.default_rng(5), 1_000
    made = tree.allocate(n)
    for _ in range(1_000):
        size = int(random.integers(1, 300))
        tree.put_many(made, random.integers(0, n, size), 10.0 ** random.uniform(-15, 15, size))
    assert_each_parent_is_the_sum_of_its_children(made)
    tree.put_many(made, np.arange(n), np.zeros(n))
    assert not made.any()


@given(st.integers(1, 70), batches)
def test_a_tree_of_minima_knows_the_least(n, batches):
    made = np.full_like(tree.allocate(n), math.inf)
    weights = np.full(n, math.inf)
    for batch in batches:
        for i, weight in batch:
            weights[i % n] = weight
        put_many_least(made, np.array([i % n for i, _ in batch], np.int64), np.array([w for _, w in batch]))
        assert made[1] == weights.min()


def test_an_empty_batch_changes_and_finds_nothing():
    made = filled_at_once([1.0, 2.0, 3.0])
    before = made.copy()
    tree.put_many(made, np.empty(0, np.int64), np.empty(0))
    assert np.array_equal(made, before)
    assert found(made, []) == []


def test_compiled_and_plain_batches_agree():
    random = np.random.default_rng(6)
    things, weights = random.integers(0, 50, 80), random.random(80)
    plain, fast = tree.allocate(50), tree.allocate(50)
    tree.put_many(fast, things, weights)
    tree.put_many.py_func(plain, things, weights)
    assert plain.tobytes() == fast.tobytes()
    x = random.random(33) * fast[1]
    found_plain = np.empty(33, np.int64)
    find_many.py_func(fast, x.copy(), found_plain)
    assert found(fast, x) == found_plain.tolist()
