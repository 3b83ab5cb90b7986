import re

import numpy as np
import pytest

import safereplay as sr

KEY = sr.TileKey(8, low=0.0, high=1.0, action_tiles=0)
N, SEEDS = 3000, range(40)

CHANCE = {
    "normal": lambda place, rng: rng.normal(size=len(place)),
    "a rare disaster": lambda place, rng: np.where(rng.random(len(place)) < 0.03, -18.0, -1.0),
    "more of it to the right": lambda place, rng: rng.normal(size=len(place)) * np.exp(3 * place[:, 0]),
}


def diagnosed(reward, seed, n=N, key=KEY):
    rng = np.random.default_rng(seed)
    place, action = rng.random((n, 2)), rng.integers(4, size=n)
    x = reward(place, rng)
    finer = key.finer()
    return sr.diagnose(key(place, action), x, None if finer is None else finer(place, action))


@pytest.mark.parametrize("reward", CHANCE.values(), ids=CHANCE)
def test_pure_chance_is_not_invented_and_not_warned_of(reward):
    """40 seeds, 3000 transitions, 256 pairs of 4 finer groups each: the mean within 4 of its standard errors of 0."""
    found = [diagnosed(reward, seed) for seed in SEEDS]
    share = np.array([d.invented for d in found])
    assert abs(share.mean()) < 4 * share.std(ddof=1) / np.sqrt(len(share))
    assert share.std() < 0.1  # so that the line above can fail
    assert all(d.warning is None for d in found)


def test_the_error_is_that_of_the_share():
    found = [diagnosed(CHANCE["normal"], seed) for seed in SEEDS]
    assert np.mean([d.error for d in found]) == pytest.approx(np.std([d.invented for d in found]), rel=0.3)


def test_a_reward_that_varies_with_position_is_invented_variance():
    """x = −5·place: in a tile of width w its variance is (5w)²/12, of which halves keep a quarter."""
    for seed in range(5):
        found = diagnosed(lambda place, rng: -5.0 * place[:, 0], seed)
        assert found.invented == pytest.approx(0.75, abs=0.03)
        assert found.invented_std == pytest.approx(np.sqrt(0.75 / 12) * 5 / 8, rel=0.05)
        assert found.warning.startswith("the key is too coarse: a finer one explains 7")
        told = "use more tiles or bits, an exact key, or no dial"
        assert told in found.warning
        assert "\n" not in found.warning


@pytest.mark.parametrize(("noise", "share", "warned"), [(0.5, 0.6, True), (1.0, 0.375, True), (2.0, 0.15, False)])
def test_true_noise_and_invented_variance_are_told_apart(noise, share, warned):
    """Noise of so many times the standard deviation within a tile: 3/4 of 1/(1 + noise²) vanishes. 30,000 transitions."""
    within = 5 / 8 / np.sqrt(12)
    for seed in range(3):
        found = diagnosed(
            lambda place, rng: -5.0 * place[:, 0] + noise * within * rng.normal(size=len(place)), seed, 30_000
        )
        assert found.invented == pytest.approx(share, abs=0.02)
        assert (found.warning is not None) == warned


def test_a_finer_key_that_is_not_nested_counts_within_pairs_too():
    rng = np.random.default_rng(0)
    place, action = rng.random((N, 2)), rng.integers(4, size=N)
    other = sr.TileKey(11, low=-0.1, high=1.3, action_tiles=0)
    assert sr.diagnose(KEY(place, action), -place[:, 0], other(place, action)).invented > 0.3
    assert sr.diagnose(KEY(place, action), rng.normal(size=N), other(place, action)).warning is None


def test_continuous_states_with_an_exact_key_are_too_fine():
    found = diagnosed(CHANCE["normal"], 0, key=sr.ExactKey())
    assert found.repeated == 0.0
    assert found.pairs == N
    assert found.invented is None
    assert found.warning.startswith("the key is too fine: only 0% of 3000 transitions share their pair with another")
    assert diagnosed(CHANCE["normal"], 0, key=KEY.changed(tiles=200)).warning.startswith("the key is too fine")


def test_a_key_is_too_fine_when_fewer_than_one_in_five_have_a_companion():
    for together, warned in ((180, True), (220, False)):
        keys = np.arange(1000)
        keys[:together] //= 2
        keys[together:] += 10_000
        found = sr.diagnose(keys, np.zeros(1000))
        assert found.repeated == together / 1000
        assert (found.warning is not None) == warned


def test_of_little_data_nothing_is_said():
    for n in (0, 1, 50, 99):
        found = diagnosed(lambda place, rng: -place[:, 0], 0, n)
        assert found.n == n
        assert found.invented is None
        assert found.warning is None
    certain = diagnosed(lambda place, rng: np.full(len(place), -1.0), 0)
    assert certain.invented is None  # nothing varies
    assert certain.warning is None


def test_values_not_known_yet_are_in_no_statistic():
    rng = np.random.default_rng(0)
    keys, finer = rng.integers(20, size=N), rng.integers(100, size=N)
    x = rng.normal(size=N)
    some = rng.random(N) < 0.5
    with_gaps = sr.diagnose(keys, np.where(some, x, np.nan), finer)
    assert with_gaps.invented == sr.diagnose(keys[some], x[some], finer[some]).invented
    assert with_gaps.n == N


def test_rows_of_different_lengths_are_told_in_a_line():
    with pytest.raises(sr.BadInput, match=re.escape("keys and x must have the same length, got ((3,), (2,))")):
        sr.diagnose(np.arange(3), np.zeros(2))
    with pytest.raises(sr.BadInput, match=re.escape("finer_keys must have the length of keys, got (2,)")):
        sr.diagnose(np.arange(3), np.zeros(3), np.arange(2))
