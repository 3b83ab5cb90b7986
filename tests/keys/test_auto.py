import re

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import safereplay as sr
from safereplay.keys import companions


def walk(env, n, seed=0):
    """n transitions of uniformly random actions: observations and actions."""
    env.action_space.seed(seed)
    seen, done = [], []
    observation, _ = env.reset(seed=seed)
    for _ in range(n):
        seen.append(observation)
        done.append(env.action_space.sample())
        observation, _, terminated, truncated, _ = env.step(done[-1])
        if terminated or truncated:
            observation, _ = env.reset()
    return np.array(seen), np.array(done)


def chosen(env, n=1000):
    seen, done = walk(env, n)
    key = sr.AutoKey().prepared(env.observation_space, env.action_space)
    assert not key.ready
    key = key.learn(seen, done)
    assert key.ready
    assert key(seen, done).tolist() == key.chosen(seen, done).tolist()
    return key.chosen, companions(key(seen, done))


def test_a_one_hot_grid_gets_the_exact_key():
    rng = np.random.default_rng(0)
    key = sr.AutoKey().learn(np.eye(48, dtype=np.float32)[rng.integers(48, size=1000)], rng.integers(4, size=1000))
    assert key.chosen == sr.ExactKey()


def test_discrete_states_and_actions_need_no_first_data():
    key = sr.AutoKey().prepared(spaces.Discrete(48), spaces.Discrete(4))
    assert key.chosen == sr.ExactKey()
    assert key.learn(np.zeros((9, 5)), np.zeros(9)) is key
    assert key.prepared(spaces.Box(0, 1, (2,)), spaces.Discrete(2)) is key


def test_exact_states_with_continuous_actions_get_exact_states_and_tiled_actions():
    rng = np.random.default_rng(0)
    seen, push = np.eye(5)[rng.integers(5, size=1000)], rng.uniform(-1, 1, (1000, 1)).astype(np.float32)
    key = sr.AutoKey().prepared(spaces.Box(0, 1, (5,)), spaces.Box(-1, 1, (1,))).learn(seen, push)
    assert isinstance(key.chosen, sr.TileKey)
    assert len(set(key(seen, push).tolist())) == 25


def test_a_cart_pole_gets_tiles():
    key, share = chosen(gymnasium.make("CartPole-v1"))
    assert isinstance(key, sr.TileKey)
    assert set(key.tiles) == {16}
    assert (key.low[0], key.high[0]) == pytest.approx((-4.8, 4.8))  # from the space; its speeds have no bounds
    assert np.isfinite(key.low).all()
    assert share >= 0.5


def test_a_pendulum_gets_tiles_for_its_pushes_too():
    key, _ = chosen(gymnasium.make("Pendulum-v1"))
    assert isinstance(key, sr.TileKey)
    assert key.tiles == (8, 8, 8)
    assert key.action_tiles == (5,)
    assert key.action_high == (2.0,)


def test_a_lunar_lander_gets_tiles_and_keeps_its_legs():
    pytest.importorskip("Box2D")
    key, share = chosen(gymnasium.make("LunarLander-v3"))
    assert isinstance(key, sr.TileKey)
    assert set(key.tiles) == {16}
    assert share >= 0.5
    flying = np.zeros((2, 8))
    flying[1, 6] = 1.0
    assert len(set(key(flying, [0, 0]).tolist())) == 2


def test_the_views_of_a_minigrid_get_the_exact_key():
    minigrid = pytest.importorskip("minigrid")
    env = minigrid.wrappers.ImgObsWrapper(gymnasium.make("MiniGrid-LavaGapS7-v0"))
    key, share = chosen(env)
    assert key == sr.ExactKey()
    assert share > 0.5


def test_pictures_get_simhash():
    """84×84 bytes: a spot on a fixed background at 1000 places of a random walk, seed 0."""
    rng = np.random.default_rng(0)
    background = rng.integers(0, 120, (84, 84))
    place = np.clip(np.cumsum(rng.normal(size=(1000, 2)), 0) % 64, 0, 64) + 10
    y, x = np.mgrid[:84, :84]
    spot = np.exp(-((x - place[:, :1, None]) ** 2 + (y - place[:, 1:, None]) ** 2) / 72)
    seen = (background + (255 - background) * spot).astype(np.uint8)
    key = sr.AutoKey().prepared(spaces.Box(0, 255, (84, 84), np.uint8), spaces.Discrete(4))
    key = key.learn(seen, rng.integers(4, size=1000))
    assert isinstance(key.chosen, sr.SimHashKey)
    assert key.chosen.bits >= 16


def test_columns_that_never_change_do_not_count_as_dimensions():
    rng = np.random.default_rng(0)
    seen = np.zeros((1000, 50))
    seen[:, [3, 40]] = rng.random((1000, 2))
    assert isinstance(sr.AutoKey().learn(seen, np.zeros(1000, int)).chosen, sr.TileKey)


def test_more_dimensions_get_fewer_tiles_and_at_last_simhash():
    """1000 uniform points of the cube, seed 0: the most tiles with which half of them meet another, by hand."""
    rng = np.random.default_rng(0)
    none = np.zeros(1000, int)
    found = [sr.AutoKey().learn(rng.random((1000, d)), none).chosen for d in (2, 3, 4, 6, 9, 16, 40)]
    tiles = [key.tiles[0] if isinstance(key, sr.TileKey) else None for key in found]
    assert tiles == [16, 8, 6, 3, 2, None, None]
    assert [key.bits for key in found[-2:]] == [16, 16]


def test_the_draft_says_what_is_known_before():
    rng = np.random.default_rng(0)
    x, push = rng.random((1000, 2)), rng.uniform(-1, 1, (1000, 1))
    draft = sr.TileKey(low=-1.0, high=3.0, action_tiles=2)
    key = sr.AutoKey(draft=draft).learn(x, push)
    assert key.chosen.action_tiles == (2,)
    assert key.chosen.low == -1.0
    left_out = sr.AutoKey(draft=sr.TileKey(tiles=(8, 1))).learn(x, np.zeros(1000, int)).chosen
    assert left_out.tiles == (16, 1)


def test_a_finer_key_is_finer_than_the_one_chosen():
    key = sr.AutoKey()
    assert key.finer() is None
    x = np.random.default_rng(0).random((1000, 2))
    key = key.learn(x, np.zeros(1000, int))
    assert key.finer() == key.chosen.finer()


def test_bad_arguments_are_told_in_a_line():
    with pytest.raises(sr.BadInput, match=re.escape("warm_up must be at least 1, got 0")):
        sr.AutoKey(warm_up=0)
    with pytest.raises(sr.BadInput, match=re.escape("draft must be a TileKey, got ExactKey()")):
        sr.AutoKey(draft=sr.ExactKey())
    with pytest.raises(sr.BadInput, match=re.escape("key must be ready, got 'no choice yet'; call key = key.learn(")):
        sr.AutoKey()(np.zeros((1, 1)), [0])
