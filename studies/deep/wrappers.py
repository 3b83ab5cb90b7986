"""Wrappers that make any environment a world of the study.

A world's ``info["unsafe"]`` is true if a catastrophe happened in the step, and its observations are float32 vectors.
Rewards are scaled only for the learner: all records are in the world's unit.
"""

from typing import Any

import gymnasium
import numpy as np

from safereplay import _checks
from safereplay.point import Vector


class OneHot(gymnasium.ObservationWrapper[Vector, Any, int]):
    """State s of n as the s-th unit vector.

    >>> import safereplay as sr
    >>> env = OneHot(sr.TabularEnv(sr.grids.from_map("S.G", start="S")))
    >>> env.reset(seed=0)[0]
    array([1., 0., 0.], dtype=float32)
    """

    def __init__(self, env: gymnasium.Env[int, Any]) -> None:
        super().__init__(env)
        space = env.observation_space
        if not isinstance(space, gymnasium.spaces.Discrete):
            _checks.fail("observations of env", "be states 0..n−1", space)
        self._rows = np.eye(int(space.n), dtype=np.float32)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (int(space.n),), np.float32)

    def observation(self, observation: int) -> Vector:
        """The unit vector of a state, as a copy."""
        row: Vector = self._rows[observation].copy()
        return row


class Crash(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Marks the step that ends an episode with a reward of at most ``reward`` as unsafe."""

    def __init__(self, env: gymnasium.Env[Any, Any], reward: float) -> None:
        super().__init__(env)
        self._reward = _checks.real("reward", reward)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step, and whether it was a crash."""
        observation, r, terminated, truncated, info = self.env.step(action)
        reward = float(r)
        unsafe = bool(terminated and reward <= self._reward)
        return observation, reward, terminated, truncated, {**info, "unsafe": unsafe}


class Diary(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Records every finished episode: its last step, its return, and whether a catastrophe happened in it.

    It is placed below the scaling of rewards, so its returns are in the world's unit.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.steps = 0
        self.ends: list[int] = []
        self.returns: list[float] = []
        self.unsafe: list[bool] = []
        self._begin()

    def _begin(self) -> None:
        self._return, self._unsafe = 0.0, False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start a new episode; an unfinished one is not recorded."""
        self._begin()
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step, recorded."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        self._return += float(reward)
        self._unsafe |= bool(info["unsafe"])
        if terminated or truncated:
            self.ends.append(self.steps)
            self.returns.append(self._return)
            self.unsafe.append(self._unsafe)
        return observation, float(reward), terminated, truncated, info


class Penalised(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Reward shaping: an unsafe step costs ``penalty`` more, in the world's unit."""

    def __init__(self, env: gymnasium.Env[Any, Any], penalty: float) -> None:
        super().__init__(env)
        self._penalty = _checks.between("penalty", penalty, "[0, inf)")

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step: r − penalty·unsafe."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward) - self._penalty * bool(info["unsafe"]), terminated, truncated, info


class Scaled(gymnasium.RewardWrapper[Any, Any]):
    """Rewards divided by a constant, so that the Huber loss does not clip rare disasters."""

    def __init__(self, env: gymnasium.Env[Any, Any], scale: float) -> None:
        super().__init__(env)
        self._scale = _checks.between("scale", scale, "(0, inf)")

    def reward(self, reward: Any) -> float:
        """r / scale."""
        return float(reward) / self._scale
