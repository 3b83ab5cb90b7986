"""One car in traffic, on a highway or at a merge: EnvPool's compiled versions of highway-env, as Gymnasium environments.

An observation is the rows (presence, x, y, vx, vy) of the driven car and of the four nearest ones, one after the other,
scaled into [−1, 1]. The actions are lane left, idle, lane right, faster and slower. A step is a second, and its reward
is

    (speed − 20 m/s) / (10 m/s)  −  cost · [the car crashed]

where the car's targets are 20, 25 and 30 m/s. A crash ends the episode; so does the end of the road behind a merge.
EnvPool's own reward is not used: it is positive at every step, and at a merge a slow car has more steps, so the best
car drives slowly and is safe. Here a second that is lost costs return, and so does a crash.

EnvPool takes a seed only when a pool is made. So every episode has a new pool with one car, which takes about half a
millisecond, and is a function of the generator that ``reset(seed=...)`` seeds. EnvPool restarts a finished episode by
itself in the next step, and ignores that step's action; here a finished pool is never stepped again, so no action is
lost and the last observation of an episode is its own. The time limit is the world's: a pool has none.
"""

from typing import Any

import envpool
import gymnasium
import numpy as np
from gymnasium import spaces

from safereplay import _checks
from safereplay.point import Vector

ROADS = {"highway": "HighwayFast-v0", "merge": "Merge-v0"}  #: EnvPool's names
FOREVER = 10**6  #: steps and seconds that a pool allows, so that only the world's time limit ends an episode
SLOW, RANGE = 20.0, 10.0  #: m/s
LEFT, IDLE, RIGHT, FASTER, SLOWER = range(5)


class Traffic(gymnasium.Env[Vector, int]):
    """A road as an environment; ``info`` has ``unsafe``, whether the car crashed in the step, and its ``speed`` in m/s.

    >>> env = Traffic("merge", cost=5.0)
    >>> env.reset(seed=0)[0].shape
    (25,)
    >>> env.step(IDLE)[4]
    {'unsafe': False, 'speed': 30.0}
    """

    def __init__(self, road: str, cost: float) -> None:
        self._task = ROADS[_checks.choice("road", road, ROADS)]
        self._cost = _checks.between("cost", cost, "[0, inf)")
        spec = envpool.make_spec(self._task)
        size = int(np.prod(spec.observation_space.shape))
        self.observation_space = spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.action_space = spaces.Discrete(int(spec.action_space.n))  # type: ignore[assignment]  # of np.int64
        self._pool: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        """A new pool, with a seed drawn from this environment's generator."""
        super().reset(seed=seed)
        self.close()
        chosen = int(self.np_random.integers(2**31))
        self._pool = envpool.make_gymnasium(
            self._task, num_envs=1, num_threads=1, seed=chosen, max_episode_steps=FOREVER, duration=FOREVER
        )
        seen, info = self._pool.reset()
        return _flat(seen), _told(info)

    def step(self, action: int) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Drive for a second."""
        _checks.require(self._pool is not None, "step", "come after reset, in an episode that has not ended", action)
        seen, _, terminated, truncated, info = self._pool.step(np.array([action], np.int32))
        told = _told(info)
        ended, cut = bool(terminated[0]), bool(truncated[0])
        if ended or cut:
            self.close()
        reward = (told["speed"] - SLOW) / RANGE - (self._cost if told["unsafe"] else 0.0)
        return _flat(seen), reward, ended, cut, told

    def close(self) -> None:
        """End the pool, and its thread."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def _flat(seen: Any) -> Vector:
    """The observation of the only car, as a copy: EnvPool may use its memory again."""
    flat: Vector = np.array(seen, np.float32).reshape(-1)
    return flat


def _told(info: dict[str, Any]) -> dict[str, Any]:
    return {"unsafe": bool(info["crashed"][0]), "speed": float(info["speed"][0])}
