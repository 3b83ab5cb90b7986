"""Functions for a FunctionKey: it wants them in a module, by name."""

import numpy as np


def room(observation, action):
    """Which tenth of the first number, and the action."""
    return np.column_stack([np.floor(10 * observation[:, 0].astype(float)).astype(int), action])


def parity(observation, action):
    return action % 2


def halves(observation, action):
    return observation[:, 0] / 2


def too_few(observation, action):
    return action[:-1]
