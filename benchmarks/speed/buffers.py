"""The cost of shaped replay in SB3: the shaped buffer compared with SB3's, doing the same work.

    add      one transition of one environment
    sample   a batch of 256, right after 4 additions, as in DQN, which trains every fourth step. The shaped buffer indexes
             new transitions at the next batch, so this is included.
    runs     whole runs in wall-clock seconds: DQN on CartPole-v1, without a key and with one; SAC on Pendulum-v1; DQN with a convolutional network on
             images of 84×84×4, which are noise

and the bytes per transition in addition to SB3's. Buffers are full; observations have 8 numbers, and the key is tiles of them;
rewards are noise. Times are medians of many alternating rounds; for whole runs the best.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import gymnasium
import numpy as np

from safereplay.errors import ShapingWarning

from .sheets import Effort, Part, Rows, Sheet, Task, in_turns, microseconds, seconds_of, span

LONG = 0.1  # seconds: whole runs take longer
BATCH, EVERY, NUMBERS, ACTIONS = 256, 4, 8, 4
DIALS: dict[str, Any] = {"v": 0.5, "beta": 2.0}
SPREAD = 0.12  # of an observation's numbers, with tiles of size 1: a few thousand pairs


@dataclass(frozen=True)
class Cost:
    """Seconds of SB3's buffer and of the shaped one; or additional bytes of the shaped one."""

    work: str
    size: int  #: transitions in the buffer, or steps of the run
    sb3: float | None
    ours: float
    unit: str = "s"

    @property
    def ratio(self) -> float | None:
        """The shaped buffer's time relative to SB3's."""
        return None if self.sb3 is None else self.ours / self.sb3


def filled(kind: Callable[..., Any], size: int, **options: Any) -> Any:
    """A full buffer of random transitions."""
    from gymnasium.spaces import Box, Discrete

    rng = np.random.default_rng(0)
    buffer = kind(size, Box(-2.0, 2.0, (NUMBERS,), np.float32), Discrete(ACTIONS), device="cpu", **options)
    buffer.observations[:] = rng.normal(scale=SPREAD, size=buffer.observations.shape) + 0.5 * (
        rng.random(buffer.observations.shape) < 0.3
    )
    buffer.next_observations[:] = buffer.observations
    buffer.actions[:] = rng.integers(0, ACTIONS, buffer.actions.shape)
    buffer.rewards[:] = rng.normal(scale=0.3, size=buffer.rewards.shape)
    buffer.full = True
    return buffer


def ours(size: int) -> Any:
    """The shaped buffer, full and indexed."""
    from safereplay.keys.spatial import TileKey
    from safereplay.sb3.buffers import ShapedReplayBuffer

    buffer = filled(ShapedReplayBuffer, size, v=0.0, beta=DIALS["beta"], seed=0, key=TileKey(tiles=4))
    buffer.v = DIALS["v"]  # this indexes its content
    return buffer


def measure_buffer(size: int, rounds: int) -> list[Cost]:
    """The costs of one addition and of one batch, and the memory."""
    if find_spec("stable_baselines3") is None:
        return []
    from stable_baselines3.common.buffers import ReplayBuffer

    buffers = [filled(ReplayBuffer, size), ours(size)]
    rng = np.random.default_rng(1)
    obs = rng.normal(scale=SPREAD, size=(1, NUMBERS)).astype(np.float32)
    step: Any = (obs, obs, np.array([1]), np.array([0.5]), np.array([False]), [{}])

    def adding(buffer: Any) -> Callable[[], float]:
        return lambda: seconds_of(lambda: buffer.add(*step))

    def sampling(buffer: Any) -> Callable[[], float]:
        def work() -> float:
            for _ in range(EVERY):
                buffer.add(*step)
            return seconds_of(lambda: buffer.sample(BATCH))

        return work

    for buffer in buffers:
        sampling(buffer)()
    theirs, mine = (median(times) for times in in_turns([sampling(b) for b in buffers], rounds))
    their_add, my_add = (median(times) for times in in_turns([adding(b) for b in buffers], 10 * rounds))
    on_top = (buffers[1].shaper.index.nbytes + buffers[1].unsafe.nbytes) / size
    return [
        Cost(f"sample {BATCH}", size, theirs, mine),
        Cost("add", size, their_add, my_add),
        Cost("bytes per transition on top", size, None, on_top, "bytes"),
    ]


class Noise(gymnasium.Env[Any, Any]):
    """Images of noise, as large as Atari's, and a reward of noise."""

    observation_space, action_space = gymnasium.spaces.Box(0, 255, (84, 84, 4), np.uint8), gymnasium.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        super().reset(seed=seed)
        self._images = self.np_random.integers(256, size=(16, 84, 84, 4), dtype=np.uint8)
        return self._images[0], {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """The next image."""
        k, over = self.np_random.integers(16), self.np_random.random() < 0.02
        return self._images[k], float(self.np_random.normal()), bool(over), False, {}


def measure_run(steps: int, rounds: int) -> list[Cost]:
    """The wall-clock time of whole runs, plain and shaped, in turns."""
    if find_spec("stable_baselines3") is None:
        return []
    import torch
    from stable_baselines3 import DQN, SAC

    from safereplay.keys.spatial import AutoKey
    from safereplay.sb3.buffers import ShapedReplayBuffer

    shaped = {"replay_buffer_class": ShapedReplayBuffer}
    images = {"buffer_size": 2_000, "learning_starts": 100}
    runs: list[tuple[str, Any, str, Any, int, dict[str, Any]]] = [
        ("DQN on CartPole", DQN, "MlpPolicy", "CartPole-v1", steps, {"learning_starts": 1_000}),
        ("SAC on Pendulum", SAC, "MlpPolicy", "Pendulum-v1", steps // 10, {}),
        ("DQN on images", DQN, "CnnPolicy", Noise(), steps // 10, images),
    ]

    def learning(kind: Any, policy: str, env: Any, n: int, **options: Any) -> Callable[[], float]:
        def work() -> float:
            model = kind(policy, env, seed=0, device="cpu", **options)
            return seconds_of(lambda: model.learn(n))

        return work

    found = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShapingWarning)  # CartPole's reward never varies: only the time matters
            for name, kind, policy, env, n, options in runs:
                ways = [learning(kind, policy, env, n, **options, **more) for more in ({}, shaped)]
                if name.endswith("CartPole"):
                    keyed = {**shaped, "replay_buffer_kwargs": {**DIALS, "key": AutoKey()}}
                    ways.append(learning(kind, policy, env, n, **options, **keyed))
                theirs, *mine = (min(t[1:]) for t in in_turns(ways, rounds + 1))  # the first compiles
                found += [Cost(name + key, n, theirs, t) for key, t in zip(("", ", with a key"), mine, strict=False)]
    finally:
        torch.set_num_threads(threads)
    return found


def tasks(effort: Effort) -> list[Task]:
    """The buffer, then whole runs."""
    return [
        Task(f"SB3 buffer: {effort.slots:,} transitions", partial(measure_buffer, effort.slots, effort.draws)),
        Task(f"SB3 runs: {effort.dqn_steps:,} steps", partial(measure_run, effort.dqn_steps, effort.rounds)),
    ]


def sheet(rows: Rows) -> Sheet:
    """The costs, as a table."""
    whole = [row.ratio for row in rows if row.ratio is not None and row.sb3 >= LONG and "key" not in row.work]
    return Sheet(
        "shaped replay in SB3",
        f"The shaped replay buffer and SB3's. The first rows have a key (v = ½, β = 2, tiles): a batch of {BATCH} is drawn right after {EVERY} additions, which the shaped "
        "buffer then indexes. Whole runs have none, unless it says so, and are wall-clock seconds on one thread, the best of alternating rounds; the others the median.",
        ("work", "transitions or steps", "SB3", "safereplay", "relative time"),
        [(row.work, f"{row.size:,}", *_shown(row)) for row in rows],
        f"Whole runs take {span(whole, 2)} times as long as with SB3's buffer."
        if whole
        else "No whole run was measured.",
    )


def _shown(row: Cost) -> tuple[str, str, str]:
    if row.sb3 is None:
        return "–", f"{row.ours:.1f}", "–"
    text = microseconds if row.sb3 < LONG else lambda seconds: f"{seconds:.2f} s"
    unit = " µs" if row.sb3 < LONG else ""
    return text(row.sb3) + unit, text(row.ours) + unit, f"{row.ratio:.2f}×"


PART = Part("sb3", tasks, sheet)
