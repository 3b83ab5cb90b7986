"""A cheetah that is fined for speed, at random: MuJoCo's HalfCheetah, where running fast pays more and is risky.

In a step with a forward speed above ``limit``, a catastrophe happens with a fixed ``probability`` and costs ``fine``.
Below it nothing is random but the start. So the risk is avoided by running more slowly, and the price is the speed that
is given up.

This kind of world is that of Urpí, Curi & Krause (2021), *Risk-averse offline reinforcement learning*. The settings in
their code (github.com/nuria95/O-RAAC, ``Params_cheetah_medium.json``) are −70 with probability 0.05 above 4 m/s, and
episodes of 200 steps. Their data come from trained agents. Here an agent learns from nothing in about two minutes on
one core and is slower, so the limit is lower. The fine is smaller: at −70 a step above the limit costs 3.5 on average,
more than speed earns, and then the best mean return is safe, too.
"""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from safereplay import _checks
from safereplay.point import Vector


class Fined(gymnasium.Wrapper[Vector, Any, Any, Any]):
    """Fines for speed on a MuJoCo body; ``info`` has ``unsafe``, whether the step was fined, and the ``speed`` in m/s.

    The chance is drawn in every step, fast or slow, from the generator that ``reset(seed=...)`` seeds. So the
    chances of an episode do not depend on its actions. Observations are float32.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], limit: float, probability: float, fine: float) -> None:
        super().__init__(env)
        self._limit = _checks.real("limit", limit)
        self._probability = _checks.between("probability", probability, "[0, 1]")
        self._fine = _checks.between("fine", fine, "[0, inf)")
        shape = env.observation_space.shape
        self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        """A new episode."""
        seen, info = self.env.reset(seed=seed, options=options)
        return np.asarray(seen, np.float32), info

    def step(self, action: Any) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """One step, and perhaps a fine."""
        seen, reward, terminated, truncated, info = self.env.step(np.asarray(action))
        speed, chance = float(info["x_velocity"]), self.np_random.random()
        unsafe = bool(speed > self._limit and chance < self._probability)
        told = {"unsafe": unsafe, "speed": speed}
        return np.asarray(seen, np.float32), float(reward) - self._fine * unsafe, terminated, truncated, told
