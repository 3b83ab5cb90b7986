"""The point task against dynamic programming on a fine grid, and against policies made by hand."""

import re

import gymnasium
import numpy as np
import pytest
from scipy.sparse import csr_array

import safereplay as sr
from safereplay import point

EAST, NORTH_EAST = 0, 1


def toward(position, target):
    """Of the eight directions, the one nearest to a target's."""
    away = np.asarray(target) - position
    return np.rint(np.arctan2(away[:, 1], away[:, 0]) / (np.pi / 4)).astype(int) % 8


def straight(position):
    return toward(position, point.GOAL)


def around(position):
    """Up beside the gusts, along above them, and down to the goal."""
    x, y = position.T
    top = point.GUSTY[3]
    rising = np.where(y < top + 0.02, toward(position, (0.3, top + 0.04)), EAST)
    crossing = np.where(y < top + 0.01, NORTH_EAST, EAST)
    return np.where(x < 0.3, rising, np.where(x < 0.69, crossing, straight(position)))


def played(policy, n=4_000, seed=0, limit=100):
    """Mean return, its standard error and P(fall) of n episodes, all walked together."""
    rng = np.random.default_rng(seed)
    position = np.array(point.START) + rng.uniform(-point.JITTER, point.JITTER, (n, 2))
    returns, fallen, walking = np.zeros(n), np.zeros(n, bool), np.ones(n, bool)
    for _ in range(limit):
        comes = (rng.random(n) < point.GUST) & point.in_gusts(position)
        gust = np.where(comes, point.FARTHEST * rng.random(n), 0.0)
        noise = point.NOISE * rng.standard_normal((n, 2))
        there = point.moved(position.copy(), policy(position), noise, gust)
        fell, arrived = point.in_pit(there) & walking, point.at_goal(there) & walking
        returns += walking * point.COST + fell * point.FALL + arrived * point.BONUS
        fallen |= fell
        walking &= ~(fell | arrived)
        position = np.where(walking[:, None], there, position)
    return returns.mean(), returns.std() / np.sqrt(n), fallen.mean()


def solved(n=61, gamma=0.99, throws=12):
    """Q [n, n, 8] by value iteration on an n × n grid: bilinear between its points, noise as its two-point rule."""
    axis = np.linspace(0, 1, n)
    here = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    gusty = point.in_gusts(here)
    gusts = [(0.0, np.where(gusty, 1 - point.GUST, 1.0))]
    gusts += [(point.FARTHEST * (k + 0.5) / throws, gusty * point.GUST / throws) for k in range(throws)]
    shakes = point.NOISE * np.array([(x, y) for x in (-1, 1) for y in (-1, 1)])
    rewards, matrices = [], []
    for a in range(8):
        r, entries = np.zeros(n * n), []
        for gust, chance in gusts:
            for shake in shakes:
                p = chance / len(shakes)
                there = point.moved(here.copy(), a, shake, gust)
                fell, arrived = point.in_pit(there), point.at_goal(there)
                r += p * (point.COST + point.FALL * fell + point.BONUS * arrived)
                on = np.flatnonzero(~(fell | arrived) & (p > 0))
                corner = np.minimum((there * (n - 1)).astype(int), n - 2)
                share = there * (n - 1) - corner
                for i in (0, 1):
                    for j in (0, 1):
                        weight = p * np.abs(1 - i - share[:, 0]) * np.abs(1 - j - share[:, 1])
                        entries.append((weight[on], on, ((corner[:, 0] + i) * n + corner[:, 1] + j)[on]))
        value, row, column = (np.concatenate(part) for part in zip(*entries, strict=True))
        rewards.append(r)
        matrices.append(csr_array((value, (row, column)), shape=(n * n, n * n)))
    V = np.zeros(n * n)
    for _ in range(400):
        Q = np.stack([r + gamma * (T @ V) for r, T in zip(rewards, matrices, strict=True)], 1)
        V = Q.max(1)
    return Q.reshape(n, n, 8)


def test_the_best_mean_return_takes_the_risk_and_the_way_around_is_safe_and_nearly_as_good():
    """4,000 episodes each, seed 0: standard errors are 0.15 in return and 0.006 in P(fall)."""
    best = solved().argmax(2)
    optimal = played(lambda x: best[tuple(np.rint(x * 60).astype(int).T)])
    risky, safe = played(straight), played(around)
    assert 0.1 < optimal[2] < 0.2
    assert 0.1 < risky[2] < 0.2
    assert safe[2] < 0.002
    assert optimal[0] > risky[0] - 0.3
    assert 1.5 < optimal[0] - safe[0] < 4.0
    random = played(lambda x: np.random.default_rng(x.tobytes()[0]).integers(0, 8, len(x)))
    assert optimal[0] - random[0] > 60


def test_episodes_stepped_one_by_one_are_those_walked_together():
    """600 episodes of the straight line: P(fall) within 4 standard errors (0.06) of 4,000 walked together."""
    env = gymnasium.make("safereplay/Point-v0")
    falls, total = 0, 0.0
    for seed in range(600):
        position, _ = env.reset(seed=seed)
        ends = False
        while not ends:
            action = int(straight(position[None].astype(float))[0])
            position, r, terminated, truncated, info = env.step(action)
            ends = terminated or truncated
            total += r
            falls += info["unsafe"]
    mean, _, p = played(straight)
    assert falls / 600 == pytest.approx(p, abs=0.06)
    assert total / 600 == pytest.approx(mean, abs=1.7)


def test_the_same_seed_gives_the_same_walk():
    def walk():
        env = point.PointEnv()
        seen = [env.reset(seed=3)[0]]
        seen += [env.step(k % 2)[0] for k in range(5)]
        return np.stack(seen)

    assert np.array_equal(walk(), walk())


def test_a_fall_ends_unsafely_and_the_goal_ends_well():
    env = point.PointEnv()
    env.reset(seed=0, options={"position": [0.5, 0.21]})
    _, r, terminated, _, info = env.step(6)
    assert (r, terminated, info) == (point.COST + point.FALL, True, {"unsafe": True, "goal": False})
    env.reset(seed=0, options={"position": [0.82, 0.3]})
    _, r, terminated, _, info = env.step(EAST)
    assert (r, terminated, info) == (point.COST + point.BONUS, True, {"unsafe": False, "goal": True})
    with pytest.raises(sr.BadInput, match="env must be reset before a step, got 'no episode'"):
        env.step(EAST)


def test_an_episode_can_start_anywhere_but_in_the_pit_or_at_the_goal():
    env = point.PointEnv(anywhere=True)
    starts = np.stack([env.reset(seed=i)[0] for i in range(300)]).astype(float)
    assert not (point.in_pit(starts) | point.at_goal(starts)).any()
    assert starts.min() < 0.05
    assert starts.max() > 0.95


def test_the_point_stays_in_the_square():
    env = point.PointEnv()
    env.reset(seed=0, options={"position": [0.99, 0.99]})
    for _ in range(20):
        position = env.step(NORTH_EAST)[0]
        assert env.observation_space.contains(position)
    assert position.min() > 0.9


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda env: env.reset(options={"place": 1}), "unknown option of reset 'place'; choose from position"),
        (lambda env: env.reset(options={"position": [1.0]}), "position must have shape (2,), got (1,)"),
        (lambda env: env.step(8), "action must be a whole number in 0..7, got 8"),
        (lambda env: point.PointEnv(render_mode="human"), "render_mode must be None, got 'human'"),
    ],
)
def test_a_bad_argument_is_refused(call, message):
    env = point.PointEnv()
    env.reset(seed=0)
    with pytest.raises(sr.BadInput, match=re.escape(message)):
        call(env)
