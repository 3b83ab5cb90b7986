"""The lava world against an exact solution of the table that its steps make."""

import itertools

import numpy as np
import pytest

import safereplay as sr
from studies.deep import lava

START = ((1, 4), 0)


class Fixed:
    """A generator whose next two numbers are known."""

    def __init__(self, *numbers):
        self.numbers = np.array(numbers)

    def random(self, n):
        return self.numbers[:n]


def table(slip):
    """The world as a TabularMDP, by trying every place, direction, action and slip; and the number of each state."""
    env = lava.LavaBridge(slip)
    env.reset(seed=0)
    cells = [(x, y) for y, line in enumerate(lava.MAP) for x, c in enumerate(line) if c != "#"]
    number = {state: i for i, state in enumerate(itertools.product(cells, range(4)))}
    rows = []
    for (place, heading), s in number.items():
        if lava.MAP[place[1]][place[0]] in "LG":
            continue
        for a in range(3):
            for p, draw in ((1 - slip, (1.0, 0.0)), (slip / 2, (0.0, 0.2)), (slip / 2, (0.0, 0.8))):
                env.agent_pos, env.agent_dir, env._np_random = place, heading, Fixed(*draw)
                _, r, terminated, _, info = env.step(a)
                there = (tuple(int(x) for x in env.agent_pos), env.agent_dir)
                rows.append((s, a, p, number[there], r, terminated, info["unsafe"]))
    mdp = sr.TabularMDP.from_outcomes(len(number), 3, rows, gamma=0.98, start=None)
    return mdp.with_start(number[START]), number


def test_the_best_mean_return_crosses_the_bridge_and_the_way_around_is_safe_and_nearly_as_good(monkeypatch):
    mdp, number = table(0.1)
    neutral = sr.exact(mdp, sr.QLearning()).argmax(1)
    profile = sr.evaluate(mdp, neutral)
    assert neutral[number[START]] == lava.FORWARD
    assert 0.1 < profile.p_unsafe < 0.2
    assert profile.mean == pytest.approx(6.93, abs=0.01)
    monkeypatch.setattr(lava, "BURN", -400.0)
    around = sr.evaluate(mdp, sr.exact(table(0.1)[0], sr.QLearning()).argmax(1))
    assert around.p_unsafe == 0
    assert 2.0 < profile.mean - around.mean < 5.0


def test_without_slip_the_bridge_takes_six_steps():
    env = lava.LavaBridge(slip=0.0)
    env.reset(seed=0)
    steps = [env.step(lava.FORWARD) for _ in range(6)]
    assert [r for _, r, *_ in steps] == [-1.0] * 5 + [19.0]
    assert [terminated for _, _, terminated, *_ in steps] == [False] * 5 + [True]
    assert steps[-1][-1] == {"unsafe": False, "goal": True}


def test_a_slip_goes_to_the_side_and_keeps_the_heading():
    env = lava.LavaBridge(slip=1.0)
    env.reset(seed=0)
    env._np_random = Fixed(0.0, 0.8)
    observation, r, terminated, _, info = env.step(lava.FORWARD)  # north of the start is free ground
    assert (env.agent_pos, env.agent_dir, r, terminated, info["unsafe"]) == ((1, 3), 0, -1.0, False, False)
    assert np.flatnonzero(observation).tolist() == [1, 9 + 3, 15 + 0]
    env.agent_pos = (3, 4)
    _, r, terminated, _, info = env.step(lava.FORWARD)  # north of the bridge is lava
    assert (r, terminated, info["unsafe"]) == (-26.0, True, True)


def test_a_turn_never_slips():
    env = lava.LavaBridge(slip=1.0)
    env.reset(seed=0)
    env.step(lava.LEFT)
    assert (env.agent_pos, env.agent_dir) == ((1, 4), 3)


def test_an_episode_can_start_anywhere_that_is_free():
    env = lava.LavaBridge(anywhere=True)
    starts = set()
    for seed in range(400):
        env.reset(seed=seed)
        starts.add((env.agent_pos, env.agent_dir))
    assert {place for place, _ in starts} == set(lava.FREE)
    assert {heading for _, heading in starts} == {0, 1, 2, 3}
    assert len(lava.FREE) == 17


def test_a_bad_slip_is_refused():
    with pytest.raises(sr.BadInput, match=r"slip must be in \[0, 1\], got 2"):
        lava.LavaBridge(slip=2)
