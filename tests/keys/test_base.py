"""What all keys have in common."""

import pickle
import re
from dataclasses import dataclass

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from pair_functions import parity, room

import safereplay as sr

RNG = np.random.default_rng(0)
DATA, MOVES = RNG.normal(size=(1000, 4)), RNG.integers(3, size=1000)
PUSHES = RNG.uniform(-1, 1, (1000, 2)).astype(np.float32)
KEYS = [
    sr.ExactKey(),
    sr.TileKey(low=-2.0, high=2.0, action_tiles=0),
    sr.TileKey(tiles=(4, 1, 0, 9), low=(0, None, None, -1), high=(1, None, None, None)).learn(DATA, MOVES),
    sr.TileKey().learn(DATA, MOVES),
    sr.SimHashKey(bits=24, seed=3).learn(DATA, MOVES),
    sr.SimHashKey(bits=64, mean=0.0, std=1.0, action_tiles=0),
    sr.FunctionKey(room),
    sr.AutoKey().learn(DATA, MOVES),
    sr.AutoKey(warm_up=5).learn(np.eye(4)[MOVES], MOVES),
]
UNREADY = [sr.TileKey(), sr.TileKey(low=(None, 0.0), high=(3, None)), sr.SimHashKey(), sr.AutoKey(warm_up=7)]
UNREADY += [sr.AutoKey().prepared(spaces.Box(-1, np.inf, (4,)), spaces.Box(-1, 1, (2,)))]

each_key = pytest.mark.parametrize("key", KEYS, ids=repr)
batches = hnp.arrays(np.float64, st.tuples(st.integers(1, 9), st.just(4)), elements=st.floats(-3, 3, width=32))


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


@each_key
@settings(max_examples=30)
@given(observation=batches, data=st.data())
def test_a_batch_has_the_words_of_its_rows_alone_and_equal_rows_have_equal_words(key, observation, data):
    action = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(observation), max_size=len(observation))))
    together = key(observation, action)
    alone = [int(key(observation[i : i + 1], action[i : i + 1])[0]) for i in range(len(action))]
    assert together.dtype == np.uint64
    assert together.tolist() == alone == key(observation.copy(), action.copy()).tolist()


@each_key
def test_the_words_do_not_depend_on_types_or_on_how_memory_is_laid_out(key):
    observation, action = np.round(DATA[:50], 1).astype(np.float32), MOVES[:50]
    words = key(observation, action).tolist()
    assert key(np.asfortranarray(observation), action).tolist() == words
    frozen = observation.copy()
    frozen.flags.writeable = False
    assert key(frozen, action).tolist() == words
    assert key(observation.astype(np.float64), action.astype(np.int32)).tolist() == words
    assert key(observation.astype(">f4"), action.astype(np.uint8)).tolist() == words
    assert (
        key(np.repeat(observation, 2, 0)[::2], action[:, None] if not hasattr(key, "function") else action).tolist()
        == words
    )


@each_key
def test_zero_has_one_sign_and_what_is_not_a_number_does_no_harm(key):
    zeros = np.zeros((2, 4))
    zeros[1] = -0.0
    words = key(zeros, np.zeros(2, int))
    assert words[0] == words[1]
    if not hasattr(key, "function"):
        strange = np.array([[np.nan] * 4, [np.inf] * 4, [-np.inf, 0, np.nan, 1e300]])
        assert key(strange, np.zeros(3, int)).shape == (3,)


@each_key
def test_no_transitions_have_no_words(key):
    words = key(np.zeros((0, 4)), np.zeros(0, int))
    assert words.shape == (0,)
    assert words.dtype == np.uint64


@pytest.mark.parametrize("key", KEYS + UNREADY, ids=repr)
def test_a_key_is_the_same_after_a_pickle_and_after_its_state_went_to_a_file(key, tmp_path):
    state = key.state_dict()
    assert_plain(state)
    function = getattr(key, "function", None)
    for other in (pickle.loads(pickle.dumps(key)), sr.PairKey.from_state(state, function)):  # noqa: S301
        assert other == key
        assert hash(other) == hash(key)
        assert repr(other) == repr(key)
        assert other.ready == key.ready
        if key.ready:
            assert other(DATA, MOVES).tolist() == key(DATA, MOVES).tolist()
    if function is None:
        assert type(key).from_dict(key.to_dict()) == key  # by way of JSON's types too
    np.savez(
        tmp_path / "key.npz", **{name: x for name, x in state.items() if isinstance(x, np.ndarray)}, allow_pickle=False
    )


def assert_plain(state):
    for value in state.values():
        if isinstance(value, dict):
            assert_plain(value)
        else:
            assert type(value) in (int, float, str) or (isinstance(value, np.ndarray) and value.dtype.kind in "if")


SCRIPT = """
import numpy as np, safereplay as sr
from pair_functions import room
rng = np.random.default_rng(0)
x, a = rng.normal(size=(400, 4)), rng.integers(3, size=400)
for key in (sr.ExactKey(), sr.TileKey().learn(x, a), sr.SimHashKey().learn(x, a), sr.FunctionKey(room), sr.AutoKey().learn(x, a)):
    print(key(x, a)[:20].tolist())
    print(key({"b": x, "a": a}, a)[:20].tolist() if isinstance(key, sr.ExactKey) else "")
"""


def test_words_are_the_same_in_every_process(in_new_process, capsys):
    exec(SCRIPT, {})  # noqa: S102
    here = capsys.readouterr().out
    assert in_new_process(SCRIPT, PYTHONHASHSEED="1") == here
    assert len(set(here.split())) > 100


def test_the_order_of_a_dicts_keys_does_not_matter_but_their_names_do():
    place, flag = DATA[:, :2], MOVES
    for key in (sr.ExactKey(), sr.TileKey(), sr.SimHashKey(), sr.AutoKey()):
        ready = key.learn({"place": place, "flag": flag, "more": DATA}, MOVES)
        words = ready({"place": place, "flag": flag, "more": DATA}, MOVES)
        assert words.tolist() == ready({"more": DATA, "flag": flag[:, None], "place": place}, MOVES).tolist()
    exact = sr.ExactKey()
    swapped = exact({"place": DATA[:, 2:], "more": place}, MOVES)
    assert not np.any(exact({"place": place, "more": DATA[:, 2:]}, MOVES) == swapped)
    nested = exact({"a": {"x": place, "w": flag}, "b": DATA}, MOVES)
    assert nested.tolist() == exact({"b": DATA, "a": {"w": flag, "x": place}}, MOVES).tolist()


def test_the_shape_of_an_observation_does_not_matter():
    for key in (sr.ExactKey(), sr.TileKey(low=-2, high=2, action_tiles=0)):
        assert key(DATA.reshape(1000, 2, 2), MOVES).tolist() == key(DATA, MOVES).tolist()
        assert key(MOVES, MOVES).tolist() == key(MOVES[:, None], MOVES[:, None]).tolist()  # Discrete: [n] and [n, 1]


def test_wrong_arrays_are_told_in_a_line():
    with fails("observation and action must have as many rows, got (2, 3)"):
        sr.ExactKey()(np.zeros((2, 1)), np.zeros(3))
    with fails("observation must have a first axis of transitions, got 3; a batch of one is [x]"):
        sr.ExactKey()(3.0, [1])
    with fails("observation['name'] must be an array of numbers, got array(['a'], dtype='<U1')"):
        sr.ExactKey()({"name": np.array(["a"])}, [1])
    with fails("observation must have at least one part, got {}"):
        sr.ExactKey()({}, [1])
    for key in (sr.TileKey(), sr.SimHashKey(), sr.AutoKey()):
        with fails("first data must have at least 1 transition, got 0"):
            key.learn(np.zeros((0, 2)), np.zeros(0))
        with fails("key must be ready, got"):
            key(DATA, MOVES)


def test_a_saved_key_of_no_kind_that_is_known_is_told_in_a_line():
    with fails("unknown kind of key 'TyleKey'; did you mean 'TileKey'?"):
        sr.PairKey.from_state({"kind": "TyleKey"})
    with fails("unknown kind of key 'VarianceReplay'"):
        sr.PairKey.from_state({"kind": "VarianceReplay"})
    with fails("unknown field of TileKey 'tyles'; did you mean 'tiles'?"):
        sr.PairKey.from_state({"kind": "TileKey", "tyles": 3})


def test_a_key_of_ones_own_needs_only_to_be_called():
    @dataclass(frozen=True, repr=False)
    class ActionKey(sr.PairKey):
        modulus: int = 2

        def __call__(self, observation, action):
            return (np.asarray(action) % self.modulus).astype(np.uint64)

    key = ActionKey(3)
    assert repr(key) == "ActionKey(modulus=3)"
    assert key.ready
    assert key.prepared(None, None) is key.learn(DATA, MOVES) is key
    assert key.finer() is None
    assert sr.PairKey.from_state(key.state_dict()) == key
    with pytest.raises(NotImplementedError, match="PairKey has no __call__"):
        sr.PairKey()(DATA, MOVES)


def test_a_repr_is_short_whatever_was_learned():
    assert repr(sr.TileKey()) == "TileKey()"
    assert repr(sr.TileKey(4, low=0, high=(1, 2))) == "TileKey(tiles=4, low=0, high=(1, 2))"
    assert repr(sr.FunctionKey(parity)) == "FunctionKey(function=parity)"
    wide = sr.SimHashKey().learn(np.zeros((3, 5000)), MOVES[:3])
    assert "... 5000 numbers)" in repr(wide)
    assert len(repr(wide)) < 250


@pytest.mark.parametrize(
    ("key", "module"), [(sr.ExactKey(), "base"), (sr.FunctionKey(parity), "base"), (sr.AutoKey(), "auto")]
)
def test_keys_that_earlier_versions_pickled_are_read(key, module):
    now, before = f"c{type(key).__module__}\n", f"csafereplay.keys.{module}\n"
    text = pickle.dumps(key, protocol=0)
    assert now.encode() in text
    assert pickle.loads(text.replace(now.encode(), before.encode())) == key  # noqa: S301
