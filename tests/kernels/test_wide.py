"""The wide sum tree: what it holds, what it finds, and that it never finds nothing."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from safereplay.kernels import tree, wide

SIZES = st.integers(1, 700)
#: Weights over more than thirty orders of magnitude, with zeros among them.
WEIGHTS = st.one_of(st.just(0.0), st.floats(-18, 18).map(lambda e: 10.0**e), st.sampled_from([5e-324, 1e300]))


def filled(n, puts):
    made, weights = wide.allocate(n), np.zeros(n)
    for i, weight in puts:
        wide.put(made, i % n, weight)
        weights[i % n] = weight
    return made, weights


@given(SIZES, st.lists(st.tuples(st.integers(0, 10_000), WEIGHTS), max_size=60))
def test_it_holds_what_was_put_and_its_total_is_their_sum(n, puts):
    made, weights = filled(n, puts)
    assert [wide.leaf(made, i) for i in range(n)] == weights.tolist()
    assert wide.total(made) == pytest.approx(weights.sum(), rel=1e-12)


@given(SIZES, st.lists(st.tuples(st.integers(0, 10_000), WEIGHTS), min_size=1, max_size=60), st.floats(0, 1))
@example(64, [(63, 1.0), (0, 1e18)], 1.0)
@example(9, [(8, 5e-324)], 0.0)
def test_what_it_finds_has_weight_whatever_the_rounding(n, puts, u):
    made, weights = filled(n, puts)
    total = wide.total(made)
    if total == 0.0:
        return
    for x in (u * total, np.nextafter(total, 0.0), total, 0.0):
        assert weights[wide.find(made, float(x))] > 0.0


@given(SIZES, st.data())
def test_it_finds_what_the_binary_tree_finds(n, data):
    """Whole numbers add up without rounding, so both must agree exactly."""
    weights = data.draw(st.lists(st.integers(0, 5), min_size=n, max_size=n))
    made, binary = wide.allocate(n), tree.allocate(n)
    for i, weight in enumerate(weights):
        wide.put(made, i, float(weight))
        tree.put(binary, i, float(weight))
    for x in range(sum(weights)):
        assert wide.find(made, x + 0.5) == tree.find(binary, x + 0.5)


def test_after_a_long_history_the_sums_are_those_of_a_fresh_tree():
    generator, n = np.random.default_rng(0), 300
    puts = [(int(generator.integers(n)), float(10.0 ** generator.uniform(-15, 15))) for _ in range(20_000)]
    made, weights = filled(n, puts)
    assert np.array_equal(made, filled(n, enumerate(weights))[0])
