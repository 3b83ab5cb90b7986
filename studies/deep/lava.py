"""A lava world of MiniGrid objects with slip: a bridge along the lava, or a long way behind the wall.

    #########        The agent turns left, turns right or goes forward, as in MiniGrid. With a small probability a step
    #.......#        forward goes one cell to the side instead, where it may meet lava (−, and the end), a wall (it stays)
    #.#####.#        or free ground. Each step costs 1, the goal pays a bonus.
    #.#LLL#.#
    #>.....G#        The bridge is six steps, and three of them can slip into the lava.
    #########        The way around is fifteen, and no slip on it does harm.

An observation is column, row and direction, each one-hot. An episode starts at the mark, facing the bridge, or
on any free cell (``anywhere``).
"""

from typing import Any

import numpy as np
from gymnasium import spaces
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Goal, Lava, Wall
from minigrid.minigrid_env import MiniGridEnv

from safereplay import _checks
from safereplay.point import Vector

MAP = ("#########", "#.......#", "#.#####.#", "#.#LLL#.#", "#>.....G#", "#########")
WIDTH, HEIGHT = len(MAP[0]), len(MAP)
FREE = [(x, y) for y, line in enumerate(MAP) for x, symbol in enumerate(line) if symbol in ".>"]
START = (1, 4)
OBJECTS = {"#": Wall, "L": Lava, "G": Goal}
LEFT, RIGHT, FORWARD = range(3)  #: MiniGrid's numbers
COST, BONUS, BURN = -1.0, 20.0, -25.0


class LavaBridge(MiniGridEnv):
    """The world as an environment; ``info["unsafe"]`` is true when the agent steps into lava."""

    def __init__(self, slip: float = 0.1, anywhere: bool = False, render_mode: str | None = None) -> None:
        self.slip = _checks.between("slip", slip, "[0, 1]")
        self.anywhere = _checks.flag("anywhere", anywhere)
        mission = MissionSpace(mission_func=lambda: "cross the bridge or walk around it")
        super().__init__(mission, width=WIDTH, height=HEIGHT, max_steps=10**9, render_mode=render_mode)
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(0.0, 1.0, (WIDTH + HEIGHT + 4,), np.float32)

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        for y, line in enumerate(MAP):
            for x, symbol in enumerate(line):
                if symbol in OBJECTS:
                    self.grid.set(x, y, OBJECTS[symbol]())
        self.agent_pos, self.agent_dir = START, 0
        if self.anywhere:
            self.agent_pos = FREE[self.np_random.integers(len(FREE))]
            self.agent_dir = int(self.np_random.integers(4))

    def gen_obs(self) -> Vector:
        """Column, row and direction, each one-hot: the full state."""
        seen = np.zeros(WIDTH + HEIGHT + 4, np.float32)
        seen[[self.agent_pos[0], WIDTH + self.agent_pos[1], WIDTH + HEIGHT + self.agent_dir]] = 1.0
        return seen

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Turn, or go forward and perhaps slip."""
        slips, side = self.np_random.random(2)  # both are always drawn, so that a slip does not change later draws
        if action == FORWARD and slips < self.slip:
            heading = self.agent_dir
            self.agent_dir = (heading + (1 if side < 0.5 else 3)) % 4
            _, _, terminated, _, _ = super().step(FORWARD)
            self.agent_dir = heading
        else:
            _, _, terminated, _, _ = super().step(action)
        cell = self.grid.get(*self.agent_pos)
        burned, arrived = isinstance(cell, Lava), isinstance(cell, Goal)
        reward = COST + (BURN if burned else BONUS if arrived else 0.0)
        return self.gen_obs(), reward, bool(terminated), False, {"unsafe": burned, "goal": arrived}
