"""The cost of shaped replay in SB3: the shaped buffer compared with SB3's, doing the same work.

    add      one transition of one environment
    sample   a batch of 256, right after 4 additions, as in DQN, which trains every fourth step. The shaped buffer indexes
             new transitions at the next batch, so this is included.
    DQN      whole runs on CartPole-v1, in wall-clock seconds

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

import numpy as np

from safereplay.errors import ShapingWarning

from .sheets import Effort, Part, Rows, Sheet, Task, in_turns, microseconds, seconds_of

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


def measure_run(steps: int, rounds: int) -> list[Cost]:
    """The wall-clock time of DQN on CartPole, plain and shaped."""
    if find_spec("stable_baselines3") is None:
        return []
    import torch
    from stable_baselines3 import DQN

    from safereplay.sb3.buffers import ShapedReplayBuffer

    def learning(**options: Any) -> Callable[[], float]:
        def work() -> float:
            model = DQN("MlpPolicy", "CartPole-v1", learning_starts=1_000, seed=0, device="cpu", **options)
            return seconds_of(lambda: model.learn(steps))

        return work

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        shaped = learning(replay_buffer_class=ShapedReplayBuffer, replay_buffer_kwargs=DIALS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShapingWarning)  # CartPole's reward never varies: only the time matters
            times = in_turns([learning(), shaped], rounds + 1)
    finally:
        torch.set_num_threads(threads)
    theirs, mine = (min(t[1:]) for t in times)  # the first compiles
    return [Cost("DQN on CartPole", steps, theirs, mine)]


def tasks(effort: Effort) -> list[Task]:
    """The buffer, then whole runs."""
    return [
        Task(f"SB3 buffer: {effort.slots:,} transitions", partial(measure_buffer, effort.slots, effort.draws)),
        Task(f"SB3 DQN: {effort.dqn_steps:,} steps", partial(measure_run, effort.dqn_steps, effort.rounds)),
    ]


def sheet(rows: Rows) -> Sheet:
    """The costs, as a table."""
    return Sheet(
        "shaped replay in SB3",
        f"The shaped replay buffer (v = ½, β = 2, tiles) and SB3's. A batch of {BATCH} is drawn right after {EVERY} additions, which the shaped "
        "buffer then indexes. Whole runs are wall-clock seconds on one thread, the best of alternating rounds; the others the median.",
        ("work", "transitions or steps", "SB3", "safereplay", "relative time"),
        [(row.work, f"{row.size:,}", *_shown(row)) for row in rows],
    )


def _shown(row: Cost) -> tuple[str, str, str]:
    if row.sb3 is None:
        return "–", f"{row.ours:.1f}", "–"
    text = microseconds if row.sb3 < 0.1 else lambda seconds: f"{seconds:.2f} s"
    unit = " µs" if row.sb3 < 0.1 else ""
    return text(row.sb3) + unit, text(row.ours) + unit, f"{row.ratio:.2f}×"


PART = Part("sb3", tasks, sheet)
