import gymnasium
import numpy as np
import pytest

import safereplay as sr
from studies.deep.wrappers import Crash, Diary, OneHot, Scaled


class Script(gymnasium.Env):
    """Plays (reward, terminated, truncated, unsafe) as told."""

    observation_space = gymnasium.spaces.Discrete(2)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *steps):
        self.steps = list(steps)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        r, terminated, truncated, unsafe = self.steps.pop(0)
        return 1, r, terminated, truncated, {"unsafe": unsafe}


def test_a_state_becomes_its_unit_vector():
    env = OneHot(sr.TabularEnv(sr.grids.cliff()))
    seen, _ = env.reset(seed=0, options={"state": 7})
    assert seen.dtype == np.float32
    assert np.flatnonzero(seen).tolist() == [7]
    assert env.observation_space.contains(seen)
    seen[:] = 5.0  # what a caller does with it is nobody else's matter
    assert env.reset(options={"state": 7})[0].max() == 1.0


def test_only_states_become_unit_vectors():
    with pytest.raises(sr.BadInput, match=r"observations of env must be states 0\.\.n−1, got Box"):
        OneHot(gymnasium.make("CartPole-v1"))


def test_a_crash_is_an_end_with_the_crashs_reward():
    env = Crash(Script((-100.0, False, False, False), (5.0, True, False, False), (-100, True, False, False)), -100.0)
    assert [env.step(0)[-1]["unsafe"] for _ in range(3)] == [False, False, True]


def test_a_diary_holds_every_episode_that_ends_in_the_worlds_own_unit():
    steps = [(1.0, False, False, False), (2.0, True, False, True), (4.0, False, True, False), (8.0, False, False, True)]
    diary = Diary(Script(*steps, (16.0, True, False, False)))
    env = Scaled(diary, 2.0)
    env.reset()
    assert [env.step(0)[1] for _ in range(2)] == [0.5, 1.0]
    env.reset()
    env.step(0)
    env.reset()
    env.step(0)
    env.reset()  # the episode with 8 is left unfinished
    env.step(0)
    assert (diary.ends, diary.returns, diary.unsafe) == ([2, 3, 5], [3.0, 4.0, 16.0], [True, False, False])


def test_a_scale_is_above_zero():
    with pytest.raises(sr.BadInput, match=r"scale must be in \(0, inf\), got 0"):
        Scaled(Script(), 0)
