"""The whole way on the paper's cliff, one-hot: what a buffer of four environments draws is what theory says."""

import gymnasium
import numpy as np
import pytest
from scipy import stats
from stable_baselines3.common.save_util import load_from_pkl, save_to_pkl
from stable_baselines3.common.vec_env import DummyVecEnv

import safereplay as sr
from safereplay.sb3 import ShapedReplayBuffer
from safereplay.theory.shaped import drawn
from studies.deep.wrappers import OneHot

SIZE, STEPS, V, BETA = 40_000, 15_000, 0.5, 4.0  # 60,000 transitions: the ring wraps


@pytest.fixture(scope="module")
def filled():
    mdp = sr.grids.cliff()
    envs = DummyVecEnv([lambda: OneHot(gymnasium.make("safereplay/Cliff-v0")) for _ in range(4)])
    buffer = ShapedReplayBuffer(
        SIZE, envs.observation_space, envs.action_space, n_envs=4, v=V, beta=BETA, key=sr.AutoKey(), seed=1
    )
    envs.seed(0)
    rng, seen = np.random.default_rng(0), envs.reset()
    for _ in range(STEPS):
        action = rng.integers(0, 4, 4)
        after, reward, done, infos = envs.step(action)
        true_after = np.stack([i.get("terminal_observation", a) for i, a in zip(infos, after, strict=True)])
        buffer.add(seen, true_after, action, reward, done, infos)
        seen = after
    return mdp, buffer


def outcomes(buffer, slots, mdp):
    """(pair, reward) of slots, as numbers."""
    obs, action = buffer.seen(slots)
    pair = obs.argmax(1) * mdp.n_actions + action.ravel()
    return pair, buffer.rewards.reshape(-1)[slots].astype(float)


def test_the_draws_are_the_exact_distribution_also_after_saving_and_loading(filled, tmp_path):
    """200,000 draws, seed 1, over cells of at least 20 expected: chi-squared does not reject at 0.1 %; uniform draws would be."""
    mdp, buffer = filled
    save_to_pkl(tmp_path / "buffer.pkl", buffer)
    loaded = load_from_pkl(tmp_path / "buffer.pkl")
    first = buffer.shaper.draw(200_000)
    assert (loaded.shaper.draw(200_000) == first).all()
    p = buffer.shaper.index.distribution()
    pair, reward = outcomes(buffer, np.arange(SIZE), mdp)
    cells = np.unique(np.column_stack([pair, reward]), axis=0, return_inverse=True)[1].ravel()
    expected = 200_000 * np.bincount(cells, p)
    found, uniform = np.bincount(cells[first], minlength=expected.size), 200_000 * np.bincount(cells) / SIZE
    large = np.minimum(expected, uniform) >= 20
    degrees = int(large.sum()) - 1
    assert stats.chi2.sf(((found - expected)[large] ** 2 / expected[large]).sum(), degrees) > 1e-3
    assert stats.chi2.sf(((found - uniform)[large] ** 2 / uniform[large]).sum(), degrees) < 1e-12


def test_with_many_transitions_it_is_p_tilde_of_the_model(filled):
    """Within each pair, the distribution over rewards; mean total variation over pairs: 0.02 (40,000 transitions have their own noise)."""
    mdp, buffer = filled
    theory, _ = drawn(mdp, sr.EntropicReplay(BETA), V, mdp.r)
    p = buffer.shaper.index.distribution()
    pair, reward = outcomes(buffer, np.arange(SIZE), mdp)
    apart, plain = [], []
    for i in np.unique(pair):
        mine, model = pair == i, mdp.pair == i
        rewards = np.unique(np.concatenate([reward[mine], mdp.r[model]]))
        held = np.array([p[mine & (reward == r)].sum() for r in rewards]) / p[mine].sum()
        for found, of in ((apart, theory), (plain, mdp.p)):
            known = np.array([of[model & (mdp.r == r)].sum() for r in rewards])
            found.append(0.5 * np.abs(held - known).sum())
    assert np.mean(apart) < 0.02
    assert np.mean(plain) > 2 * np.mean(apart)  # and not that of plain replay
