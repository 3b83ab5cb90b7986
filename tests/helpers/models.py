"""Comparing models."""

import numpy as np

import safereplay as sr


def same_model(one: sr.TabularMDP, other: sr.TabularMDP) -> bool:
    """Whether two models are alike to the last bit, but for their names."""
    columns = ("p", "s_next", "r", "terminal", "unsafe", "row", "start")
    alike = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)
    return alike and one.gamma == other.gamma and one.origin == other.origin
