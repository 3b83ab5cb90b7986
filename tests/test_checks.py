import math
import re
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from safereplay import _checks, errors
from safereplay.errors import BadInput


def fails(message):
    return pytest.raises(BadInput, match="^" + re.escape(message) + "$")


def test_every_error_is_one_of_ours_and_of_the_builtin_kind_a_caller_would_expect():
    for kind in (errors.BadInput, errors.BadFile, errors.CannotWrite, errors.MissingExtra):
        assert issubclass(kind, errors.SafeReplayError)
    assert issubclass(errors.BadInput, ValueError)
    assert issubclass(errors.BadFile, errors.BadInput)
    assert issubclass(errors.CannotWrite, OSError)
    assert issubclass(errors.MissingExtra, ImportError)
    assert str(errors.CannotWrite("one line")) == "one line"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.97, "0.97"),
        (1 / 3, "0.3333333333"),
        (np.float64(0.5), "0.5"),
        (math.nan, "nan"),
        (7, "7"),
        ("two\nlines", "'two\\nlines'"),
        ([1, 2], "[1, 2]"),
        (np.eye(2), "array([[1., 0.], [0., 1.]])"),
    ],
)
def test_a_value_is_shown_on_one_line(value, text):
    assert _checks.shown(value) == text


def test_a_long_value_is_cut():
    assert _checks.shown("x" * 500) == "'" + "x" * 76 + "..."
    assert len(_checks.shown(list(range(1000)))) == 80


def test_a_failure_names_argument_condition_value_and_hint():
    with fails("v must be in [0, 1), got 1.5"):
        _checks.fail("v", "be in [0, 1)", 1.5)
    with fails("v must be small, got 9; try less"):
        _checks.require(False, "v", "be small", 9, "try less")
    _checks.require(True, "v", "be small", 9)


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.int16(3), Fraction(3), np.float64(3)])
def test_any_real_number_serves(value):
    assert _checks.real("x", value) == 3.0
    assert type(_checks.real("x", value)) is float


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("3", "'3'"),
        (None, "None"),
        (True, "True"),
        (3j, "3j"),
        ([3], "[3]"),
        (np.True_, "np.True_"),
        (np.ones(1), "array([1.])"),
    ],
)
def test_what_is_not_a_number_is_refused(value, shown):
    with fails(f"x must be a number, got {shown}"):
        _checks.real("x", value)


@pytest.mark.parametrize(("value", "shown"), [(math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")])
def test_what_is_not_finite_is_refused(value, shown):
    with fails(f"x must be finite, got {shown}"):
        _checks.real("x", value)


def test_a_whole_number_too_large_for_a_float_is_refused_like_infinity():
    with pytest.raises(BadInput, match="x must be finite, got 1000"):
        _checks.real("x", 10**400)


@pytest.mark.parametrize(
    ("interval", "inside", "outside"),
    [
        ("(0, 1)", [1e-300, 0.5, math.nextafter(1, 0)], [0, 1, -1, 2]),
        ("[0, 1)", [0, 0.5], [1, math.nextafter(0, -1)]),
        ("(0, 1]", [1, 0.5], [0, math.nextafter(1, 2)]),
        ("[0, 1]", [0, 1], [math.nextafter(0, -1), math.nextafter(1, 2)]),
        ("(-1, 1)", [-0.999, 0, 0.999], [-1, 1]),
        ("(0, inf)", [1e-300, 1e300], [0, -5]),
    ],
)
def test_intervals_are_open_and_closed_as_written(interval, inside, outside):
    for value in inside:
        assert _checks.between("x", value, interval) == value
    for value in outside:
        with pytest.raises(BadInput, match=re.escape(f"x must be in {interval}, got ")):
            _checks.between("x", value, interval)


def test_whole_numbers_are_whole_and_large_enough():
    assert _checks.whole("n", np.uint8(4), 1) == 4
    assert type(_checks.whole("n", np.int64(4), 1)) is int
    with fails("n must be at least 1, got 0"):
        _checks.whole("n", 0, 1)
    for value, shown in [(1.0, "1"), (True, "True"), ("1", "'1'"), (None, "None")]:
        with fails(f"n must be a whole number, got {shown}"):
            _checks.whole("n", value, 0)


def test_an_unknown_name_is_answered_with_the_nearest_or_with_all():
    assert _checks.choice("scheme", "variance", ["variance", "uniform"]) == "variance"
    with fails("unknown scheme 'varince'; did you mean 'variance'?"):
        _checks.choice("scheme", "varince", ["variance", "uniform"])
    with fails("unknown kind 'qlearning'; did you mean 'QLearning'?"):
        _checks.choice("kind", "qlearning", ["QLearning", "Softmax"])
    with fails("unknown scheme 'xyz'; choose from uniform, variance"):
        _checks.choice("scheme", "xyz", ["variance", "uniform"])
    with fails("unknown scheme None; choose from uniform, variance"):
        _checks.choice("scheme", None, ["variance", "uniform"])
    with fails("unknown scheme ['variance']; did you mean 'variance'?"):
        _checks.choice("scheme", ["variance"], ["variance", "uniform"])


def test_arrays_are_finite_and_of_the_right_shape():
    assert _checks.finite_array("Q", [[1, 2]]).dtype == np.float64
    with fails("Q must be an array of numbers, got 'abc'"):
        _checks.finite_array("Q", "abc")
    with fails("Q must be an array of numbers, got [[1], [1, 2]]"):
        _checks.finite_array("Q", [[1], [1, 2]])
    with fails("Q must have shape (2, 2), got (3,)"):
        _checks.finite_array("Q", [1, 2, 3], (2, 2))
    with fails("Q must be finite, got nan; at index (1, 0)"):
        _checks.finite_array("Q", [[1, 2], [math.nan, math.inf]])


def test_a_distribution_sums_to_one_and_has_no_negative_entry():
    with fails("start must sum to 1, got 0.97"):
        _checks.distribution("start", [0.5, 0.47], 2)
    with fails("start must have no negative entry, got -0.5"):
        _checks.distribution("start", [1.5, -0.5], 2)
    with fails("start must have shape (3,), got (2,)"):
        _checks.distribution("start", [0.5, 0.5], 3)
    with fails("start must be finite, got nan; at index (0,)"):
        _checks.distribution("start", [math.nan, 1], 2)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20).filter(lambda x: sum(x) > 1e-3))
def test_a_distribution_that_was_scaled_once_is_left_as_it_is_the_second_time(weights):
    """Else a model would change a little each time that it is saved and loaded."""
    p = np.array(weights) / sum(weights)
    once = _checks.distribution("p", p, p.size)
    assert once.sum() == pytest.approx(1.0, abs=1e-15 * p.size)
    assert _checks.distribution("p", once, p.size).tolist() == once.tolist()
