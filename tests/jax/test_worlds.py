"""Worlds in JAX have the distributions of their Gymnasium twins."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.jax import PointWorld, TabularWorld
from safereplay.jax.worlds import State
from safereplay.point import PointEnv


@pytest.mark.parametrize("name", ["cliff", "volatile", "betting_game", "frozen_lake"])
def test_every_pair_has_the_models_outcomes(name):
    """4,000 draws of each pair, a chi-square test of each: 1e-4 over the number of pairs."""
    mdp = sr.catalog.world(name)()
    world = TabularWorld(mdp)
    live = np.flatnonzero(~mdp.is_terminal)
    pairs = [(s, a) for s in live for a in range(mdp.n_actions)]
    keys = jax.random.split(jax.random.key(0), 4_000)
    step = jax.jit(jax.vmap(world.moved, (0, None, None)))
    for s, a in pairs[:: max(len(pairs) // 30, 1)]:
        found = [np.asarray(x) for x in step(keys, jnp.int32(s), jnp.int32(a))]
        q = mdp.outcomes(s, a)
        rows = [tuple(row) for row in zip(q.s_next, q.r.astype(np.float32), q.terminal, q.unsafe, strict=True)]
        distinct = sorted(set(rows))
        expected = [sum(p for p, row in zip(q.p, rows, strict=True) if row == one) for one in distinct]
        seen = list(zip(*(x.tolist() for x in found), strict=True))
        counts = [seen.count(tuple(np.asarray(x).item() for x in one)) for one in distinct]
        assert sum(counts) == 4_000
        if len(distinct) > 1:
            assert stats.chisquare(counts, np.array(expected) * 4_000).pvalue > 1e-4 / len(pairs)


def test_episodes_begin_in_the_start_distribution():
    mdp = sr.grids.cliff()
    places = jax.vmap(TabularWorld(mdp).start)(jax.random.split(jax.random.key(0), 20_000))
    counts = np.bincount(np.asarray(places), minlength=mdp.n_states)
    on = mdp.start > 0
    assert counts[~on].sum() == 0
    assert stats.chisquare(counts[on], mdp.start[on] * counts.sum()).pvalue > 1e-4
    origin = mdp.with_start(mdp.origin)
    assert int(TabularWorld(origin).start(jax.random.key(0))) == int(np.flatnonzero(origin.start)[0])


def test_an_observation_is_the_unit_vector_of_its_state():
    world = TabularWorld(sr.grids.cliff())
    np.testing.assert_array_equal(world.observe(jnp.arange(24)), np.eye(24, dtype=np.float32))


def test_episodes_end_by_the_model_or_by_the_time_limit_and_begin_anew():
    mdp = sr.grids.from_map("S..G", start="S")
    world = TabularWorld(mdp, time_limit=2)
    _, state = world.reset(jax.random.key(0))
    right = int(np.argmax([mdp.outcomes(int(state.place), a).s_next[0] for a in range(4)]))
    _, state, _, done, info = world.step(jax.random.key(1), state, right)
    assert not done
    observation, after, _, done, info = world.step_env(jax.random.key(2), state, right)
    assert done
    assert info["truncated"]
    assert not info["terminated"]
    observation, fresh, _, done, _ = world.step(jax.random.key(2), state, right)
    assert done
    assert (int(fresh.time), int(fresh.place)) == (0, int(world.reset(jax.random.key(3))[1].place))
    np.testing.assert_array_equal(observation, world.observe(fresh.place))
    long = TabularWorld(mdp, time_limit=3)
    _, after, _, done, info = long.step_env(jax.random.key(2), after._replace(time=jnp.int32(2)), right)
    assert done
    assert info["terminated"]
    assert not info["truncated"]  # as in Gymnasium, the end of the model comes first here


def test_the_point_moves_as_its_gymnasium_twin():
    """3,000 steps of each from five places: two-sample tests of both coordinates, rewards and ends, at 1e-4."""
    env, world = PointEnv(), PointWorld()
    step = jax.jit(jax.vmap(world.moved, (0, None, None)))
    env.reset(seed=0)
    for place, action in [((0.1, 0.3), 0), ((0.5, 0.3), 0), ((0.5, 0.22), 6), ((0.86, 0.3), 0), ((0.02, 0.98), 3)]:
        keys = jax.random.split(jax.random.key(1), 3_000)
        there, reward, ended, unsafe = (np.asarray(x) for x in step(keys, jnp.array(place), jnp.int32(action)))
        theirs = []
        for _ in range(3_000):
            env.reset(options={"position": place})
            here, r, over, _, info = env.step(action)
            theirs.append((*here, r, over, info["unsafe"]))
        theirs = np.array(theirs)
        for k in range(2):
            assert stats.ks_2samp(there[:, k], theirs[:, k]).pvalue > 1e-4
        for ours, column in ((reward, 2), (ended, 3), (unsafe, 4)):
            values = np.union1d(ours, theirs[:, column])
            counts = [[(x == value).sum() for value in values] for x in (ours, theirs[:, column])]
            assert len(values) == 1 or stats.chi2_contingency(counts).pvalue > 1e-4


def test_the_point_begins_at_s_or_anywhere_that_is_allowed():
    keys = jax.random.split(jax.random.key(0), 2_000)
    near = np.asarray(jax.vmap(PointWorld().start)(keys))
    assert np.abs(near - (0.1, 0.3)).max() <= 0.02 + 1e-6
    far = np.asarray(jax.vmap(PointWorld(anywhere=True).start)(keys))
    env = PointEnv(anywhere=True)
    env.reset(seed=0)
    theirs = np.array([env.reset()[0] for _ in range(2_000)])
    for k in range(2):
        assert stats.ks_2samp(far[:, k], theirs[:, k]).pvalue > 1e-4


def test_a_time_limit_is_at_least_one_step():
    with pytest.raises(BadInput, match="time_limit must be at least 1, got 0"):
        TabularWorld(sr.grids.cliff(), time_limit=0)


def test_params_are_there_for_gymnax():
    world = PointWorld()
    observation, state = world.reset(jax.random.key(0), None)
    assert world.step(jax.random.key(0), state, 0, None)[0].shape == observation.shape
    assert isinstance(state, State)


def test_spaces_are_there_for_gymnax():
    for world, shape, actions in ((TabularWorld(sr.grids.cliff()), (24,), 4), (PointWorld(), (2,), 8)):
        assert world.observation_space(world.default_params).shape == shape
        assert world.action_space(world.default_params).n == world.num_actions == actions


def test_another_thing_than_a_model_is_refused():
    with pytest.raises(BadInput, match="mdp must be a TabularMDP, got 'cliff'"):
        TabularWorld("cliff")
