import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import safereplay as sr
from safereplay.keys import companions


def test_all_pairs_of_a_one_hot_grid_differ():
    states, actions = np.divmod(np.arange(48 * 4), 4)
    for kind in (np.float32, np.float64, np.uint8, bool):
        words = sr.ExactKey()(np.eye(48, dtype=kind)[states], actions)
        assert len(set(words.tolist())) == 48 * 4


def test_all_pairs_of_a_large_discrete_space_differ():
    states, actions = np.divmod(np.arange(100_000 * 4), 4)
    assert len(np.unique(sr.ExactKey()(states, actions))) == 400_000


@given(st.lists(st.integers(0, 3), min_size=3, max_size=3), st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_words_are_equal_if_and_only_if_the_numbers_are(first, second):
    words = sr.ExactKey()(np.array([first[:2], second[:2]]), np.array([first[2], second[2]]))
    assert (words[0] == words[1]) == (first == second)


def test_multi_discrete_and_continuous_actions_count_number_by_number():
    place = np.zeros((4, 1))
    assert len(set(sr.ExactKey()(place, np.array([[0, 1], [1, 0], [1, 1], [0, 0]])).tolist())) == 4
    assert len(set(sr.ExactKey()(place, np.array([[0.1], [0.2], [0.1], [0.3]])).tolist())) == 3


def test_companions_is_the_share_that_is_not_alone():
    assert companions(np.array([1, 1, 2, 3, 3, 3, 4, 5], np.uint64)) == 5 / 8
    assert companions(np.zeros(0, np.uint64)) == 0.0
