"""Replay buffers in JAX: the distribution of their draws, the ring, and what is refused."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.jax import make_keyed_buffer, make_shaped_buffer
from safereplay.surprise import BATCHES, weight

ERRORS = np.array([-4.0, -1.0, -0.3, 0.0, 0.5, 3.0], np.float32)
ITEM = {"x": jnp.float32(0), "n": jnp.int32(0)}


def filled(buffer, xs, first=0):
    """A buffer with these numbers, one by one."""

    def add(state, item):
        return buffer.add(state, item), None

    xs = jnp.asarray(xs, jnp.float32)
    items = {"x": xs, "n": first + jnp.arange(len(xs), dtype=jnp.int32)}
    return jax.lax.scan(add, buffer.init(ITEM), items)[0]


def looked(buffer, state, times=BATCHES, seed=1, errors=lambda t: t["x"]):
    for key in jax.random.split(jax.random.key(seed), times):
        state = buffer.update(state, key, errors)
    return state


# -- without keys ------------------------------------------------------------------------------------------------------


def drawn(buffer, state, pools, seed=0, **dials):
    """One draw of each of many pools: independent."""

    def one(key):
        of_sample, *of_looks = jax.random.split(key, 1 + BATCHES)
        here = state
        for of_look in of_looks:
            here = buffer.update(here, of_look, lambda t: t["x"])
        return buffer.sample(here, of_sample, **dials).indices[0]

    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(seed), pools)))


@pytest.mark.parametrize(
    ("v", "beta", "reach"), [(0.75, 1.0, np.inf), (0.5, 4.0, np.inf), (0.75, -1.0, np.inf), (0.75, 1.0, 1.0)]
)
def test_draws_are_those_of_the_numpy_sampler(v, beta, reach):
    """20,000 independent draws of each: a chi-square test at 1e-4, seeds fixed; uniform draws are refused by the same test."""
    buffer = make_shaped_buffer(6, sample_batch_size=6, reach=reach)
    ours = np.bincount(drawn(buffer, filled(buffer, ERRORS), 20_000, v=v, beta=beta), minlength=6)
    theirs = np.zeros(6)
    for seed in range(20_000):
        sampler = sr.SurpriseSampler(v, beta, reach=reach, seed=seed)
        theirs[sampler.draw(6, 6, lambda slots: ERRORS[slots])[0]] += 1
    uniform = np.full(6, 20_000 / 6)
    assert stats.chi2_contingency([ours, theirs]).pvalue > 1e-4
    assert stats.chisquare(ours, uniform).pvalue < 1e-9


def test_draws_have_the_stated_weights():
    """A pool of 8·512 entries is nearly the memory itself: 51,200 draws, a chi-square test at 1e-4."""
    xs = np.tile(ERRORS, 100)
    buffer = make_shaped_buffer(600, sample_batch_size=512, looks=512)
    state = looked(buffer, filled(buffer, xs), times=64)
    keys = jax.random.split(jax.random.key(2), 100)
    slots = jax.vmap(lambda key: buffer.sample(state, key, 0.8, 1.0).indices)(keys)
    unit = float(state.sums[1] / state.sums[0])
    pool = np.asarray(state.pool) % 6
    extra = np.bincount(pool, weight(ERRORS[pool], unit, 0.8, 1.0) - 1.0, minlength=6)
    wanted = (extra + pool.size / 6) / (extra.sum() + pool.size)
    found = np.bincount(np.asarray(slots).ravel() % 6, minlength=6)
    assert stats.chisquare(found, wanted * found.sum()).pvalue > 1e-4
    ideal = weight(ERRORS, (ERRORS**2).sum() / np.abs(ERRORS).sum(), 0.8, 1.0)
    np.testing.assert_allclose(wanted, ideal / ideal.sum(), atol=0.01)


def test_at_v_0_and_before_the_first_look_draws_are_uniform():
    buffer = make_shaped_buffer(6, sample_batch_size=6)
    state = filled(buffer, ERRORS)
    keys = jax.random.split(jax.random.key(0), 2_000)
    for here, v in ((state, 0.8), (looked(buffer, state), 0.0)):
        sample = jax.vmap(lambda key, here=here, v=v: buffer.sample(here, key, v))(keys)
        counts = np.bincount(np.asarray(sample.indices).ravel(), minlength=6)
        assert stats.chisquare(counts).pvalue > 1e-4
        assert not sample.tilted.any()


def test_tilted_draws_are_marked_and_what_was_overwritten_is_not_among_them():
    buffer = make_shaped_buffer(8, sample_batch_size=8)
    state = looked(buffer, filled(buffer, [-9.0, *[0.0] * 7]))  # only number 0 is a bad surprise
    keys = jax.random.split(jax.random.key(0), 200)
    before = jax.vmap(lambda key: buffer.sample(state, key, 0.9))(keys)
    assert before.tilted.any()
    assert set(np.asarray(before.experience["n"])[np.asarray(before.tilted)]) == {0}
    state = buffer.add(state, {"x": jnp.float32(0), "n": jnp.int32(8)})  # in its slot
    after = jax.vmap(lambda key: buffer.sample(state, key, 0.9))(keys)
    assert not after.tilted.any()
    assert set(np.asarray(after.experience["n"]).ravel()) == set(range(1, 9))


def test_the_pool_has_the_last_eight_looks():
    buffer = make_shaped_buffer(100, sample_batch_size=4)
    state = filled(buffer, np.zeros(100))
    for k in range(20):
        state = buffer.update(state, jax.random.key(k), lambda t, k=k: jnp.full(4, float(k)))
    assert sorted(set(np.asarray(state.errors))) == list(range(12, 20))


def test_one_program_serves_a_whole_dial():
    buffer = make_shaped_buffer(6, sample_batch_size=6)
    state = looked(buffer, filled(buffer, ERRORS))
    keys = jax.random.split(jax.random.key(0), 500)
    share = jax.jit(lambda v: jax.vmap(lambda key: buffer.sample(state, key, v).tilted)(keys).mean())
    found = jax.vmap(share)(jnp.array([0.0, 0.5, 0.8, 0.95]))
    assert np.all(np.diff(found) > 0.05)
    assert found[0] == 0.0


def test_networks_have_buffers_of_their_own_under_vmap():
    buffer = make_shaped_buffer(6, sample_batch_size=6)
    batch = jax.vmap(lambda x: filled(buffer, x))(jnp.stack([jnp.asarray(ERRORS), -jnp.asarray(ERRORS)]))
    keys = jax.random.split(jax.random.key(3), 2)
    together = jax.vmap(lambda s, k: buffer.sample(buffer.update(s, k, lambda t: t["x"]), k, 0.8))(batch, keys)
    for i in range(2):
        alone = jax.tree.map(lambda leaf, i=i: leaf[i], batch)
        alone = buffer.sample(buffer.update(alone, keys[i], lambda t: t["x"]), keys[i], 0.8)
        np.testing.assert_array_equal(together.indices[i], alone.indices)


def test_the_same_key_gives_the_same_batch():
    buffer = make_shaped_buffer(6, sample_batch_size=6)
    runs = [buffer.sample(looked(buffer, filled(buffer, ERRORS)), jax.random.key(5), 0.8) for _ in range(2)]
    np.testing.assert_array_equal(runs[0].indices, runs[1].indices)


# -- with keys ---------------------------------------------------------------------------------------------------------

PAIRS = [0, 0, 0, 1, 1, 2, 2, 2, 2, 0]
XS = [1.0, 1.0, -5.0, 3.0, 3.0, -1.0, 0.0, 0.5, 0.5, 2.0]


def keyed(size=10, batch=1):
    return make_keyed_buffer(
        size, sample_batch_size=batch, n_pairs=3, pair=lambda t: t["pair"], x=lambda t: t["r"], add_batches=True
    )


def of_pairs(buffer, pairs=PAIRS, xs=XS):
    start = buffer.init({"pair": jnp.int32(0), "r": jnp.float32(0)})
    return buffer.add(start, {"pair": jnp.array(pairs, jnp.int32), "r": jnp.array(xs, jnp.float32)})


@pytest.mark.parametrize(("v", "beta"), [(0.9, 2.0), (0.5, 1.0), (1.0, 5.0), (0.7, -2.0)])
def test_keyed_draws_have_the_exact_distribution_of_the_pair_index(v, beta):
    """40,000 batches of one draw, so that each has its own slope: a chi-square test at 1e-4."""
    index = sr.PairIndex(10, sr.EntropicReplay(beta), v=v)
    index.put(range(10), PAIRS, XS)
    buffer = keyed()
    state = of_pairs(buffer)
    keys = jax.random.split(jax.random.key(0), 40_000)
    slots = jax.jit(jax.vmap(lambda key: buffer.sample(state, key, v, beta).indices[0]))(keys)
    counts = np.bincount(np.asarray(slots), minlength=10)
    assert stats.chisquare(counts, index.distribution() * counts.sum()).pvalue > 1e-4
    assert stats.chisquare(counts).pvalue < 1e-9


def test_keyed_draws_are_uniform_at_v_0_and_never_from_empty_slots():
    buffer = keyed(size=20)
    state = of_pairs(buffer)
    keys = jax.random.split(jax.random.key(0), 5_000)
    sample = jax.vmap(lambda key: buffer.sample(state, key, 0.0))(keys)
    assert stats.chisquare(np.bincount(np.asarray(sample.indices).ravel())).pvalue > 1e-4
    assert not sample.tilted.any()
    sample = jax.vmap(lambda key: buffer.sample(state, key, 0.9))(keys)
    assert int(sample.indices.max()) == 9
    assert not np.asarray(sample.tilted)[np.isin(sample.indices, (3, 4))].any()  # the pair without noise


def test_a_keyed_buffer_of_equal_numbers_is_uniform():
    buffer = keyed()
    state = of_pairs(buffer, xs=[0.1] * 10)
    sample = jax.vmap(lambda key: buffer.sample(state, key, 0.9))(jax.random.split(jax.random.key(0), 5_000))
    assert stats.chisquare(np.bincount(np.asarray(sample.indices).ravel())).pvalue > 1e-4


# -- the ring ----------------------------------------------------------------------------------------------------------


def test_the_oldest_are_overwritten_one_by_one_and_in_batches():
    single, many = (
        make_shaped_buffer(5, sample_batch_size=1),
        make_shaped_buffer(5, sample_batch_size=1, add_batches=True),
    )
    one = filled(single, np.arange(7.0))
    two = many.add(many.init(ITEM), {"x": jnp.arange(4.0), "n": jnp.arange(4)})
    two = many.add(two, {"x": jnp.arange(4.0, 7.0), "n": jnp.arange(4, 7)})
    for state in (one, two):
        assert np.asarray(state.experience["n"]).tolist() == [5, 6, 2, 3, 4]
        assert int(state.added) == 7


def test_a_stack_of_buffers_can_be_asked_at_once():
    buffer = make_shaped_buffer(10, sample_batch_size=4)
    stack = jax.vmap(lambda x: buffer.init({"x": x, "n": jnp.int32(0)}))(jnp.zeros(3))
    counts = jnp.array([3, 4, 30], jnp.int32)
    assert buffer.can_sample(stack._replace(added=counts)).tolist() == [False, True, True]


def test_64_bit_mode_makes_the_same_draws():
    def drawn():
        buffer = make_shaped_buffer(100, sample_batch_size=16)
        state = filled(buffer, np.arange(20.0))
        state = buffer.update(state, jax.random.key(1), lambda t: 5.0 - t["x"].ravel().astype(jnp.float32))
        return np.asarray(buffer.sample(state, jax.random.key(2), v=0.8).indices)

    usual = drawn()
    with jax.enable_x64(True):
        wide = drawn()
    assert usual.max() < 20
    np.testing.assert_array_equal(usual, wide)


def test_td_errors_that_are_not_finite_are_refused_or_left_out():
    buffer = make_shaped_buffer(100, sample_batch_size=8)
    state = filled(buffer, np.arange(20.0))

    def update(state, key, bad):
        return buffer.update(state, key, lambda t: jnp.where(jnp.arange(8) == 3, bad, 5.0 - t["x"].ravel()))

    with pytest.raises(BadInput, match="td_errors must be numbers below 1e\\+15, got"):
        update(state, jax.random.key(0), jnp.nan)
    for bad in (jnp.nan, jnp.inf, 1e30, 2e18):
        after = jax.jit(update)(state, jax.random.key(0), bad)
        assert np.isfinite(np.asarray(after.sums)).all()
        assert (np.asarray(after.pool[:8]) == -1).sum() == 1
        assert float(after.sums[1]) > 0.0


def test_can_sample_once_there_is_enough():
    buffer = make_shaped_buffer(10, sample_batch_size=2, min_length=4)
    assert [bool(buffer.can_sample(filled(buffer, np.zeros(n)))) for n in (1, 3, 4, 30)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_length": 0}, "max_length must be at least 1, got 0"),
        ({"sample_batch_size": 11}, "sample_batch_size must be at most max_length, 10, got 11"),
        ({"min_length": 12}, "min_length must be at most max_length, 10, got 12"),
        ({"looks": 0}, "looks must be at least 1, got 0"),
        ({"reach": -1.0}, r"reach must be in \(0, inf\), got -1"),
    ],
)
def test_wrong_sizes_are_refused(arguments, message):
    with pytest.raises(BadInput, match=message):
        make_shaped_buffer(**{"max_length": 10, "sample_batch_size": 4, **arguments})


def test_a_transition_of_another_kind_is_refused_also_inside_jit():
    buffer = make_shaped_buffer(4, sample_batch_size=1)
    state = buffer.init(ITEM)
    with pytest.raises(BadInput, match=r"transition must have the structure given to init, .*'n'.*, got .*'x'"):
        buffer.add(state, {"x": jnp.float32(0)})
    with pytest.raises(BadInput, match=r"transition\['x'\] must have shape \(1,\), got \(1, 2\)"):
        jax.jit(buffer.add)(state, {"x": jnp.zeros(2), "n": jnp.int32(0)})
    with pytest.raises(BadInput, match=r"transition\['n'\] must have type int32, got 'float32'"):
        buffer.add(state, {"x": jnp.float32(0), "n": jnp.float32(0)})
    with pytest.raises(BadInput, match="transition must have at least one array, got "):
        buffer.init({})
    many = make_shaped_buffer(4, sample_batch_size=1, add_batches=True)
    with pytest.raises(BadInput, match="transitions must be at most max_length, 4, got 5"):
        many.add(state, {"x": jnp.zeros(5), "n": jnp.zeros(5, jnp.int32)})


def test_a_batch_larger_than_what_is_stored_is_refused():
    buffer = make_shaped_buffer(10, sample_batch_size=4)
    state = filled(buffer, np.zeros(3))
    with pytest.raises(BadInput, match="state must hold at least 4 transitions, got 3"):
        buffer.sample(state, jax.random.key(0))
    with pytest.raises(BadInput, match="state must hold at least 1 transitions, got 0"):
        buffer.update(buffer.init(ITEM), jax.random.key(0), lambda t: t["x"])


def test_without_jax_one_line_names_the_extra():
    code = "import sys; sys.modules['jax'] = None; import safereplay.jax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip().endswith("safereplay.jax needs jax; install it with: pip install 'safereplay[jax]'")


def test_wrong_dials_and_td_errors_are_refused():
    buffer = make_shaped_buffer(4, sample_batch_size=4)
    state = filled(buffer, np.zeros(4))
    for v in (1.0, jnp.float32(1.0)):
        with pytest.raises(BadInput, match=r"v must be in \[0, 1\), got 1"):
            buffer.sample(state, jax.random.key(0), v=v)
    with pytest.raises(BadInput, match="v must be a number, got 'much'"):
        buffer.sample(state, jax.random.key(0), v="much")
    with pytest.raises(BadInput, match="beta must be finite, got nan"):
        buffer.sample(state, jax.random.key(0), beta=float("nan"))
    with pytest.raises(BadInput, match="td_errors must give one number per transition, 4, got "):
        buffer.update(state, jax.random.key(0), lambda t: t["x"].sum())


def test_what_describes_a_transition_with_keys_is_checked():
    def sample(n_pairs, pair, x, v=0.5):
        buffer = make_keyed_buffer(4, sample_batch_size=4, n_pairs=n_pairs, pair=pair, x=x, add_batches=True)
        state = buffer.add(buffer.init(ITEM), {"x": jnp.zeros(4), "n": jnp.arange(4)})
        return buffer.sample(state, jax.random.key(0), v=v)

    usual = {"n_pairs": 4, "pair": lambda t: t["n"], "x": lambda t: t["x"]}
    assert sample(**usual).indices.shape == (4,)
    for change, message in [
        ({"x": lambda t: t["x"][:, None]}, r"x must give one number per transition, 4, got \(4, 1\)"),
        ({"pair": lambda t: t["x"]}, "pair must give whole numbers, got 'float32'"),
        ({"n_pairs": 3}, "pair must give numbers from 0 to n_pairs - 1, 2, got 3"),
        ({"v": jnp.array([0.1, 0.2])}, "v must be one number, got"),
    ]:
        with pytest.raises(BadInput, match=message):
            sample(**{**usual, **change})


def test_a_plain_number_takes_the_type_of_the_memory():
    buffer = make_shaped_buffer(4, sample_batch_size=1)
    state = buffer.add(buffer.init({"a": jnp.uint8(0)}), {"a": 3})
    assert int(state.experience["a"][0]) == 3
    with pytest.raises(BadInput, match=r"transition\['a'\] must have type uint8, got 'float32'"):
        buffer.add(state, {"a": 1.5})
