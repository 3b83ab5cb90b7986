"""A small world for SB3's algorithms, and one thread for torch."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Slips(gymnasium.Env):
    """Four states, one-hot. Action 0 pays 0.1; action 1 pays 1, or ``bad`` one time in ten. One step in ten ends it."""

    def __init__(self, kind="box", actions="discrete", bad=-1.0):
        box = spaces.Box(0.0, 1.0, (4,), np.float32)
        self.kind, self.bad = kind, bad
        self.observation_space = {
            "box": box,
            "dict": spaces.Dict({"where": box, "clock": spaces.Discrete(3)}),
            "discrete": spaces.Discrete(4),
        }[kind]
        self.action_space = spaces.Discrete(2) if actions == "discrete" else spaces.Box(-3.0, 5.0, (1,), np.float32)

    def _observe(self):
        where = np.eye(4, dtype=np.float32)[self.s]
        return {"box": where, "dict": {"where": where, "clock": self.s % 3}, "discrete": self.s}[self.kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s = int(self.np_random.integers(4))
        return self._observe(), {}

    def step(self, action):
        risky = np.ravel(action)[0] > 0.5
        slipped = bool(risky and self.np_random.random() < 0.1)
        reward = self.bad if slipped else (1.0 if risky else 0.1)
        self.s = int(self.np_random.integers(4))
        return self._observe(), reward, bool(self.np_random.random() < 0.1), False, {"unsafe": slipped}


@pytest.fixture
def slips():
    """Makes n of these worlds, with a time limit of 12 steps."""

    def make(n=1, **options):
        return DummyVecEnv([lambda: gymnasium.wrappers.TimeLimit(Slips(**options), 12)] * n)

    return make


@pytest.fixture
def parameters():
    """All the numbers that a model has learned."""

    def numbers(model):
        return np.concatenate([p.detach().numpy().ravel() for p in model.policy.parameters()])

    return numbers
