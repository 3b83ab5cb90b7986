import re

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import safereplay as sr

RNG = np.random.default_rng(0)
NONE = np.zeros(1000, int)


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


def same(words):
    return [[bool(a == b) for b in words] for a in words]


@given(st.lists(st.floats(-0.5, 1.5), min_size=2, max_size=6), st.integers(1, 9))
def test_words_are_equal_if_and_only_if_the_tiles_are(x, tiles):
    key = sr.TileKey(tiles, low=0.0, high=1.0, action_tiles=0)
    place = np.clip(np.floor((np.array(x) - 0.0) * (tiles / 1.0)), 0, tiles - 1)
    assert same(key(np.array(x)[:, None], np.zeros(len(x), int))) == same(place)


def test_each_dimension_has_its_own_tiles_and_bounds():
    key = sr.TileKey(tiles=(2, 1, 0), low=(0, 0, 0), high=(1, 1, 1), action_tiles=0)
    x = np.array([[0.1, 0.1, 0.5], [0.4, 0.9, 0.5], [0.6, 0.1, 0.5], [0.1, 0.1, 0.51]])
    words = key(x, np.zeros(4, int))
    assert words[0] == words[1]  # one tile: the dimension does not count
    assert words[0] != words[2]
    assert words[0] != words[3]  # no tiles: its value does


def test_bounds_come_from_the_user_then_from_the_space_then_from_the_data():
    x = RNG.normal(size=(1000, 3))
    space = spaces.Box(np.array([-4, -5, -np.inf], np.float32), np.array([4, 5, 3.4e38], np.float32))
    key = sr.TileKey(low=(-1, None, None)).prepared(space, spaces.Discrete(4))
    assert not key.ready
    assert key.low == (-1.0, -5.0, -np.inf)
    assert key.high == (4.0, 5.0, np.inf)
    key = key.learn(x, NONE)
    assert key.ready
    assert key.low[:2] == (-1.0, -5.0)
    assert key.high[:2] == (4.0, 5.0)
    assert (key.low[2], key.high[2]) == pytest.approx(tuple(np.quantile(x[:, 2], [0.01, 0.99])))
    assert key.learn(10 * x, NONE) == key  # what is known is not learned again


def test_what_lies_outside_the_learned_bounds_is_in_the_outer_tiles():
    x = RNG.normal(size=(1000, 1))
    x[0], x[1] = -1e6, 1e6  # two freaks do not stretch the tiles
    key = sr.TileKey(tiles=8).learn(x, NONE)
    assert -3 < key.low[0] < key.high[0] < 3
    words = key(np.array([[-1e6], [key.low[0]], [key.high[0]], [1e6], [0.0]]), NONE[:5])
    assert words[0] == words[1]
    assert words[2] == words[3]
    assert len(set(words.tolist())) == 3
    assert len(set(key(x, NONE).tolist())) == 8


def test_a_flag_that_is_rarely_set_keeps_its_two_values():
    """Set in 3 of 1000: outside the quantiles, as a lander's legs are among its first steps."""
    x = np.column_stack([RNG.random(1000), np.zeros(1000)])
    x[:3, 1] = 1.0
    key = sr.TileKey(tiles=2).learn(x, NONE)
    assert len(set(key(x, NONE).tolist())) == 4


def test_a_dimension_without_spread_gets_one_tile():
    x = np.column_stack([RNG.random(1000), np.full(1000, 7.0)])
    key = sr.TileKey(tiles=4).learn(x, NONE)
    assert len(set(key(x, NONE).tolist())) == 4
    assert len(set(key(x + np.array([0, 3]), NONE).tolist())) == 4


def test_discrete_spaces_are_exact_and_boxes_of_actions_are_tiled():
    key = sr.TileKey().prepared(spaces.Discrete(500), spaces.MultiDiscrete([50, 60]))
    assert key.ready
    states, one, two = RNG.integers(500, size=1000), RNG.integers(50, size=1000), RNG.integers(60, size=1000)
    distinct = len(set(zip(states.tolist(), one.tolist(), two.tolist(), strict=True)))
    assert len(set(key(states, np.column_stack([one, two])).tolist())) == distinct
    box = sr.TileKey().prepared(spaces.MultiBinary(3), spaces.Box(-2, 2, (2,)))
    push = np.array([[-2.0, 0.0], [-1.3, 0.3], [-1.1, 0.0], [2.0, 0.0], [5.0, 0.0]])
    assert same(box(np.zeros((5, 3)), push)) == same([0, 0, 1, 2, 2])
    assert box.action_tiles == (5, 5)


def test_without_spaces_whole_actions_are_exact_and_others_are_tiled_by_the_data():
    x = RNG.random((1000, 2))
    moves, pushes = RNG.integers(100, size=(1000, 2)), RNG.normal(size=(1000, 1))
    assert len(set(sr.TileKey(1).learn(x, moves)(x, moves).tolist())) == len(np.unique(moves, axis=0))
    assert len(set(sr.TileKey(1, action_tiles=6).learn(x, pushes)(x, pushes).tolist())) == 6


def test_dicts_are_taken_as_their_parts_side_by_side_with_labels_exact():
    space = spaces.Dict(z=spaces.Box(0, 1, (2,)), label=spaces.Discrete(9, start=-3), a=spaces.Box(-1, 1, (1,)))
    key = sr.TileKey(tiles=4).prepared(space, spaces.Discrete(2))
    assert key.tiles == (4, 0, 4, 4)
    assert key.low == (-1.0, 0.0, 0.0, 0.0)
    z, label, a = RNG.random((1000, 2)), RNG.integers(-3, 6, 1000), RNG.uniform(-1, 1, (1000, 1))
    expected = np.column_stack([np.floor(2 * (a + 1)), label, np.floor(4 * z)])
    assert len(set(key({"z": z, "label": label, "a": a}, NONE).tolist())) == len(np.unique(expected, axis=0))
    learned = sr.TileKey(tiles=4).learn({"z": z, "label": label, "a": a}, NONE)
    assert learned.tiles == (4, 0, 4, 4)


def test_a_finer_key_has_twice_the_tiles_and_parts_only_what_was_together():
    x, a = RNG.random((1000, 2)), RNG.uniform(-1, 1, (1000, 1))
    key = sr.TileKey(tiles=(4, 1), action_tiles=3).learn(x, a)
    finer = key.finer()
    assert finer.tiles == (8, 1)
    assert finer.action_tiles == (6,)
    words, more = key(x, a), finer(x, a)
    assert len({*zip(words.tolist(), more.tolist(), strict=True)}) == len(set(more.tolist())) > len(set(words.tolist()))
    assert sr.TileKey(8).finer() == sr.TileKey(16, action_tiles=10)


def test_bad_arguments_are_told_in_a_line():
    with fails("tiles must be at least 0, got -1"):
        sr.TileKey(-1)
    with fails("tiles must be a whole number, got 2.5"):
        sr.TileKey((2, 2.5))
    with fails("low must be a number, got 'x'"):
        sr.TileKey(low="x")
    with fails("low must be finite, got nan"):
        sr.TileKey(low=(0.0, float("nan")))
    with fails("low must be at most high, got 2; in column 1"):
        sr.TileKey(low=(0.0, 2.0), high=1.0)
    with fails("tiles and low must have one number per column, got [2, 3]"):
        sr.TileKey((8, 8), low=(0, 0, 0))
    with fails("action_tiles must be at least 0, got -5"):
        sr.TileKey(action_tiles=-5)
    with fails("warm_up must be at least 1, got 0"):
        sr.TileKey(warm_up=0)
    with fails("low must have 3 numbers, one per column, got 2"):
        sr.TileKey(low=(0, 0)).prepared(spaces.Box(0, 1, (3,)), spaces.Discrete(2))
    with fails("observation space['mission'] must be a Box, Discrete, MultiDiscrete, MultiBinary, or a Dict of those"):
        sr.TileKey().prepared(spaces.Dict(mission=spaces.Text(5)), spaces.Discrete(2))
    with fails("key must be ready, got 'no low and high'; key = key.prepared("):
        sr.TileKey()(np.zeros((1, 2)), [0])


def test_rows_of_another_length_than_the_key_was_made_for_are_refused():
    key = sr.TileKey(low=(0, 0), high=(1, 1), action_tiles=0)
    for n in (1, 3, 5000):
        with fails(f"observation must have 2 numbers per row, as the key was made for, got {n}"):
            key(np.zeros((1, n)), [0])
    one = sr.TileKey().prepared(spaces.Box(0, 1, (1,)), spaces.Discrete(2))
    with fails("observation must have 1 numbers per row, as the key was made for, got 2"):
        one(np.zeros((1, 2)), [0])
    key = sr.TileKey().prepared(spaces.Box(0, 1, (2,)), spaces.Box(-1, 1, (3,)))
    with fails("action must have 3 numbers per row, as the key was made for, got 2"):
        key(np.zeros((1, 2)), np.zeros((1, 2)))
