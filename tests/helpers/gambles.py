"""Small gambles, and schemes for them, that the tests of Assumption 1 and Theorem 2 share."""

from dataclasses import dataclass

import numpy as np

import safereplay as sr

STEEP = sr.VarianceReplay(beta=800.0)  # rewards 1 apart: all of the tilt is on the worst, but for e^−800


@dataclass(frozen=True)
class Worst(sr.Scheme):
    """The limit that the paper's proof works with: pairs by variance, and only their worst reward."""

    @staticmethod
    def pair_weight(var):
        return var

    @staticmethod
    def log_tilt(r, r_min):
        return 0.0 if r == r_min else -np.inf


@dataclass(frozen=True)
class Often(sr.Scheme):
    """Pairs alike, rewards from low to high, next states by how often they were seen."""

    @staticmethod
    def log_tilt(r):
        return -0.1 * r

    @staticmethod
    def next_weight(count):
        return count


def one_step(*actions, gamma=0.9):
    """One state; each action is a dict {reward: probability, or {next state: probability}}, and ends the episode."""
    rows = []
    for a, rewards in enumerate(actions):
        for r, p in rewards.items():
            for s_next, q in (p if isinstance(p, dict) else {1: p}).items():
                rows.append((0, a, q, s_next, float(r), True))
    n_states = 1 + max(row[3] for row in rows)
    return sr.TabularMDP.from_outcomes(n_states, len(actions), rows, gamma=gamma, start=0)


GAMBLE = [(0, 0, 0.5, 1, 20, True), (0, 0, 0.5, 1, 0, True)]  # worth 10, and 10·(1 − ρ) with replay
WAIT = sr.TabularMDP.from_outcomes(2, 2, [*GAMBLE, (0, 1, 1, 0, 0)], gamma=0.9, start=0)
TAKE_6 = sr.TabularMDP.from_outcomes(2, 2, [*GAMBLE, (0, 1, 1, 1, 6, True)], gamma=0.9, start=0)
