import functools
import re

import numpy as np
import pytest
from pair_functions import halves, parity, room, too_few

import safereplay as sr

X, A = np.random.default_rng(0).random((500, 2)), np.random.default_rng(1).integers(4, size=500)


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


def test_words_are_equal_if_and_only_if_the_functions_numbers_are():
    words = sr.FunctionKey(room)(X, A)
    rows = room(X, A)
    assert (
        len(set(words.tolist()))
        == len(np.unique(rows, axis=0))
        == len(np.unique(np.c_[rows, words.view(np.int64)], axis=0))
    )
    assert len(set(sr.FunctionKey(parity)(X, A).tolist())) == 2
    assert sr.FunctionKey(parity).name == "pair_functions:parity"


class Methods:
    def method(self, observation, action):
        return action


def closure():
    return lambda observation, action: action


@pytest.mark.parametrize(
    "function", [lambda observation, action: action, closure(), functools.partial(parity), Methods().method]
)
def test_a_function_that_cannot_be_found_by_name_is_refused_with_what_to_do(function):
    with fails(
        "function must be a function that a module holds by its name, since saving a replay buffer pickles it, got "
    ):
        sr.FunctionKey(function)
    with fails("define it with def at the top of a module, not as a lambda, a closure or a method"):
        sr.FunctionKey(function)


def test_what_a_function_gives_is_checked():
    with fails("function must be a function of (observation, action), got 3"):
        sr.FunctionKey(3)
    with fails("function must give whole numbers of shape [500] or [500, k], got 'float64 [500]'"):
        sr.FunctionKey(halves)(X, A)
    with fails("function must give whole numbers of shape [500] or [500, k], got 'int64 [499]'"):
        sr.FunctionKey(too_few)(X, A)


def test_a_saved_key_names_its_function_but_never_imports_it():
    state = sr.FunctionKey(room).state_dict()
    assert state == {"kind": "FunctionKey", "function": "pair_functions:room"}
    assert sr.PairKey.from_state(state, function=room) == sr.FunctionKey(room)
    with fails("function must be given to load this key: pair_functions:room, got None"):
        sr.PairKey.from_state(state)
    with fails("function must be the one that was saved: pair_functions:room, got "):
        sr.PairKey.from_state(state, function=parity)
