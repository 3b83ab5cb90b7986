import math
import re

import numpy as np
import pytest
from gymnasium import spaces

import safereplay as sr

NONE = np.zeros(1000, int)


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


@pytest.mark.parametrize("angle", [0.02, 0.1, 0.5])
def test_a_plane_parts_two_points_with_the_chance_of_their_angle_over_pi(angle):
    """Charikar (2002). Dimension 50, 16 bits, 2000 points beside one at that angle, 100 seeds of planes, of which the words stay the
    same with probability (1 − angle/π)¹⁶: within 4·√(p(1 − p)/100), the error of 100 sets of planes fully alike.
    """
    rng = np.random.default_rng(0)
    x = rng.normal(size=50)
    x /= np.linalg.norm(x)
    aside = rng.normal(size=(2000, 50))
    aside -= np.outer(aside @ x, x)
    aside /= np.linalg.norm(aside, axis=1)[:, None]
    near = math.cos(angle) * x + math.sin(angle) * aside
    same = [
        np.mean(key(near, np.zeros(2000, int)) == key(x[None], [0]))
        for key in (sr.SimHashKey(16, seed=s, mean=0.0, std=1.0, action_tiles=0) for s in range(100))
    ]
    p = (1 - angle / math.pi) ** 16
    assert abs(np.mean(same) - p) < 4 * math.sqrt(p * (1 - p) / 100)


def pictures(n, rng, background):
    """A soft spot on a fixed background, [n, 24, 24], and where it is."""
    place = rng.uniform(4, 20, (n, 2))
    y, x = np.mgrid[:24, :24]
    spot = np.exp(-((x - place[:, :1, None]) ** 2 + (y - place[:, 1:, None]) ** 2) / 8)
    return (background + (255 - background) * spot).astype(np.uint8), place


def spread(words, place):
    """The standard deviation of places within pairs, as a share of that over all."""
    _, pair, n = np.unique(words, return_inverse=True, return_counts=True)
    mean = np.stack([np.bincount(pair, place[:, i]) / n for i in range(place.shape[1])], 1)
    return math.sqrt(((place - mean[pair]) ** 2).sum() / (n - 1).sum() / place.shape[1]) / place.std()


def test_sixteen_bits_know_where_a_spot_in_a_picture_is_and_eight_do_not():
    """4000 pictures of 576 numbers, seed 0; the spread of the spot's place within pairs against its spread over all."""
    rng = np.random.default_rng(0)
    seen, place = pictures(4000, rng, rng.integers(0, 120, (24, 24)))
    alike = np.zeros(4000, int)
    key = sr.SimHashKey(64).learn(seen[:1000], alike[:1000])
    eight, sixteen, more = (spread(key.changed(bits=bits)(seen, alike), place) for bits in (8, 16, 32))
    assert eight > 0.25
    assert sixteen < 0.2
    assert more < sixteen


def test_in_the_plane_no_number_of_bits_helps_and_tiles_are_better():
    """Angles say nothing of how far a point is from the centre: of a uniform point of the square, whose angle is known exactly, the
    spread left is 1/3 (its variance is ∫R⁴/∫R²/18 = 2/27 with R = sec θ, against 2/3), and in one of k² tiles 1/k.
    4000 points, seed 1.
    """
    place = np.random.default_rng(1).random((4000, 2))
    alike = np.zeros(4000, int)
    hashed = [spread(sr.SimHashKey(bits).learn(place, alike)(place, alike), place) for bits in (16, 32, 64)]
    assert min(hashed) > 0.98 / 3
    assert hashed[-1] == pytest.approx(1 / 3, rel=0.05)
    tiled = spread(sr.TileKey(16, low=0, high=1, action_tiles=0)(place, alike), place)
    assert tiled == pytest.approx(1 / 16, rel=0.05)


def test_more_bits_of_the_same_seed_tell_strictly_more_apart():
    x = np.random.default_rng(2).normal(size=(1000, 30))
    key = sr.SimHashKey(6).learn(x, NONE)
    finer = key.finer()
    assert finer.bits == 12
    words, more = key(x, NONE).tolist(), finer(x, NONE).tolist()
    assert len(set(zip(words, more, strict=True))) == len(set(more)) > len(set(words))
    assert sr.SimHashKey(40).finer().bits == 64
    assert sr.SimHashKey(64).finer() is None
    assert key(x, NONE).tolist() != key.changed(seed=1)(x, NONE).tolist()


def test_the_unit_and_the_origin_of_a_dimension_do_not_matter():
    x = np.random.default_rng(3).normal(size=(1000, 30))
    unit, origin = 2.0 ** np.random.default_rng(4).integers(-9, 9, 30), np.arange(30.0)
    words = sr.SimHashKey(24).learn(x, NONE)(x, NONE)
    scaled = sr.SimHashKey(24, mean=x.mean(0) * unit, std=x.std(0) * unit, action_tiles=0)
    assert np.mean(scaled(x * unit, NONE) == words) > 0.99  # all but what rounding puts on the other side
    shifted = x + origin
    assert np.mean(sr.SimHashKey(24).learn(shifted, NONE)(shifted, NONE) == words) > 0.99


def test_a_dimension_that_never_moved_counts_when_it_does_but_not_more_than_others():
    x = np.random.default_rng(5).normal(size=(1000, 20))
    x[:, 0] = 3.0
    key = sr.SimHashKey(32).learn(x, NONE)
    assert 0.0 < key.std[0] < min(key.std[1:])
    moved = x.copy()
    moved[:, 0] = 8.0
    assert np.mean(key(x, NONE) == key(moved, NONE)) < 0.2
    assert sr.SimHashKey().learn(np.ones((9, 3)), NONE[:9]).std == (1.0, 1.0, 1.0)


def test_labels_and_actions_are_exact_and_boxes_of_actions_are_tiled():
    x = np.tile(np.random.default_rng(6).normal(size=(1, 20)), (1000, 1))
    label, moves = np.arange(1000) % 7, np.arange(1000) % 5
    both = {"x": x, "label": label}
    key = sr.SimHashKey(16).prepared(None, spaces.Discrete(5)).learn(both, moves)
    assert len(set(key(both, moves).tolist())) == 35
    push = np.linspace(-1, 1, 1000)[:, None]
    key = sr.SimHashKey(16, action_tiles=4).prepared(None, spaces.Box(-1, 1, (1,))).learn(x, push)
    assert len(set(key(x, push).tolist())) == 4
    only = sr.SimHashKey(16).learn(label, moves)
    assert len(set(only(label, moves).tolist())) == 35


def test_what_is_not_a_number_in_the_first_data_does_no_harm():
    x = np.random.default_rng(7).normal(size=(100, 20))
    x[3, 4], x[5, 6] = np.nan, np.inf
    assert np.isfinite(sr.SimHashKey().learn(x, NONE[:100]).std).all()


def test_bad_arguments_are_told_in_a_line():
    with fails("bits must be at least 1, got 0"):
        sr.SimHashKey(0)
    with fails("bits must be at most 64, got 65"):
        sr.SimHashKey(65)
    with fails("seed must be at least 0, got -1"):
        sr.SimHashKey(seed=-1)
    with fails("mean and std must be given together and have the same length, got (0.0, None)"):
        sr.SimHashKey(mean=0.0)
    with fails("mean and std must be given together and have the same length, got ((0.0, 1.0), (1.0,))"):
        sr.SimHashKey(mean=(0, 1), std=(1,))
    with fails("std must be at least 0, got -1"):
        sr.SimHashKey(mean=0, std=-1)
    with fails("warm_up must be at least 1, got 0"):
        sr.SimHashKey(warm_up=0)
    with fails("key must be ready, got 'no mean and std'"):
        sr.SimHashKey()(np.zeros((1, 3)), [0])
    with fails("observation must have 3 numbers per row, as the key was made for, got 4"):
        sr.SimHashKey(mean=(0, 0, 0), std=(1, 1, 1), action_tiles=0)(np.zeros((1, 4)), [0])
