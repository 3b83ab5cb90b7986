"""The point task: a point walks to a goal, past a pit that gusts can push it into, or the long way around.

        y
      1 ┌───────────────────────────┐       The point lives in [0,1]² and steps 0.05 in one of eight directions, plus
        │                           │       Gaussian noise (σ = 0.01) on both axes.
        │                           │
   0.55 │       ┌┄┄┄┄┄┄┄┄┄┄┄┐       │       In the dotted region a gust comes with a small probability and pushes
        │       ┊   gusts   ┊       │       the point down by U(0, 0.4).
        │   S   ┊     ↓     ┊   G   │
    0.2 │       ┌───────────┐       │       Below it is the pit: a large negative reward, and the end.
        │       │    pit    │       │
      0 └───────┴───────────┴───────┘
        0      0.3         0.7      1  x

Each step costs 1; the goal, a disc, pays a bonus. The straight line from S to G is the shortest way and has the best
mean return, but ends in the pit in about one episode of seven. A path above the gusts is a few steps longer and safe.

Episodes start at S, or ``anywhere`` outside the pit and the goal: a learner that explores from S alone rarely reaches
the goal, and learns to end in the pit early instead.
"""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from . import _checks
from ._checks import Floats

Vector = npt.NDArray[np.float32]

N_ACTIONS = 8
STEP = 0.05
NOISE = 0.01
START, JITTER = (0.1, 0.3), 0.02  #: episodes start uniformly within JITTER of START, along each axis
GOAL, REACH = (0.9, 0.3), 0.06
PIT = (0.3, 0.7, 0.2)  #: left, right, top; the bottom is the lower edge
GUSTY = (0.3, 0.7, 0.2, 0.55)  #: left, right, bottom, top
GUST, FARTHEST = 0.035, 0.4  #: probability per step, and the largest displacement
COST, BONUS, FALL = -1.0, 15.0, -18.0

ANGLES = 2 * np.pi * np.arange(N_ACTIONS) / N_ACTIONS
MOVES: Floats = STEP * np.column_stack([np.cos(ANGLES), np.sin(ANGLES)])  #: [8, 2], from east counter-clockwise


# In these functions ``xp`` is the module of the arrays: numpy, or jax.numpy.


def in_gusts(position: Any) -> Any:
    """Whether a gust may come at positions [..., 2]."""
    x, y = position[..., 0], position[..., 1]
    left, right, bottom, top = GUSTY
    return (x > left) & (x < right) & (y >= bottom) & (y < top)


def in_pit(position: Any) -> Any:
    """Whether positions [..., 2] are in the pit."""
    x, y = position[..., 0], position[..., 1]
    left, right, top = PIT
    return (x > left) & (x < right) & (y < top)


def at_goal(position: Any, xp: Any = np) -> Any:
    """Whether positions [..., 2] have reached the goal."""
    return xp.hypot(position[..., 0] - GOAL[0], position[..., 1] - GOAL[1]) < REACH


def moved(position: Any, action: Any, noise: Any, gust: Any, xp: Any = np) -> Any:
    """The positions after a step, [..., 2]: the move, noise [..., 2], a gust's displacement [...], then the walls."""
    down = xp.stack([xp.zeros_like(gust), gust], -1)
    return xp.clip(position + xp.asarray(MOVES)[action] + noise - down, 0.0, 1.0)


def paid(fell: Any, arrived: Any) -> Any:
    """The reward of a step, from whether it ends in the pit or at the goal."""
    return COST + FALL * fell + BONUS * arrived


class PointEnv(gymnasium.Env[Vector, int]):
    """The task as an environment: ``safereplay/Point-v0``. Observations are positions, ``info`` has ``unsafe``.

    >>> import gymnasium, safereplay
    >>> env = gymnasium.make("safereplay/Point-v0")
    >>> env.reset(seed=0)[0].round(2)
    array([0.11, 0.29], dtype=float32)
    >>> env.step(0)[1:]
    (-1.0, False, False, {'unsafe': False, 'goal': False})
    """

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own form)

    def __init__(self, anywhere: bool = False, render_mode: str | None = None) -> None:
        _checks.require(render_mode is None, "render_mode", "be None", render_mode)
        self.render_mode = None
        self.anywhere = _checks.flag("anywhere", anywhere)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(N_ACTIONS)  # type: ignore[assignment]  # of np.int64
        self._position: Floats | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Vector, dict[str, Any]]:
        """Begin near the start, or anywhere, or at ``options["position"]``."""
        super().reset(seed=seed)
        for name in options or {}:
            _checks.choice("option of reset", name, ("position",))
        if options:
            self._position = _checks.finite_array("position", options["position"], (2,)).clip(0.0, 1.0)
        elif self.anywhere:
            self._position = self.np_random.random(2)
            while in_pit(self._position) or at_goal(self._position):
                self._position = self.np_random.random(2)
        else:
            self._position = np.array(START) + self.np_random.uniform(-JITTER, JITTER, 2)
        return self._position.astype(np.float32), {}

    def step(self, action: int) -> tuple[Vector, float, bool, bool, dict[str, Any]]:
        """Move, with noise and gusts: (position, r, terminated, False, {"unsafe", "goal"})."""
        if self._position is None:
            _checks.fail("env", "be reset before a step", "no episode")
        if not self.action_space.contains(action):
            _checks.fail("action", f"be a whole number in 0..{N_ACTIONS - 1}", action)
        noise = NOISE * self.np_random.standard_normal(2)
        comes, strength = self.np_random.random(2)  # both always, so that a gust does not shift later draws
        gust = np.float64(strength * FARTHEST if comes < GUST and in_gusts(self._position) else 0.0)
        here = moved(self._position, int(action), noise, gust)
        fell, arrived = bool(in_pit(here)), bool(at_goal(here))
        self._position = None if fell or arrived else here
        return here.astype(np.float32), paid(fell, arrived), fell or arrived, False, {"unsafe": fell, "goal": arrived}
