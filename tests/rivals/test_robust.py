"""Robust Q-learning: its inner problem by linear programs, the whole by enumerating the adversary, and what is learned."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_models import random_model
from scipy.optimize import linprog

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.rivals.criteria import Robust, robust
from safereplay.theory.solver import optimal


def test_a_coin_loses_delta_of_what_it_is_above_its_worst():
    coin = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 0.25, 1, 8.0, True), (0, 0, 0.75, 1, -4.0, True)])
    for delta in (0.0, 0.3, 1.0):
        assert sr.exact(coin, Robust(delta))[0, 0] == pytest.approx((1 - delta) * -1.0 + delta * -4.0)


def test_a_walk_is_feared_at_every_step():
    """Forward with chance 1−s, else it costs 9 and ends: V_n = (1−δ)·((1−s)·γ·V_{n−1} − 9s) + δ·(−9), as −9 is worst."""
    gamma, slip, delta = 0.9, 0.1, 0.2
    rows = [row for n in range(1, 6) for row in ((n, 0, 1 - slip, n - 1, 0.0, n == 1), (n, 0, slip, 0, -9.0, True))]
    mdp = sr.TabularMDP.from_outcomes(6, 1, rows, gamma)
    V = 0.0
    for n in range(1, 6):
        V = (1 - delta) * ((1 - slip) * gamma * V - 9.0 * slip) - 9.0 * delta
        assert sr.exact(mdp, Robust(delta))[n, 0] == pytest.approx(V)


@pytest.mark.parametrize("delta", [0.05, 0.3, 0.9])
def test_no_distribution_of_the_set_is_worse(delta):
    """The set written otherwise: all p with Σp = 1 and p ≥ (1−δ)·q. Each pair of ten random models by a linear program."""
    for seed in range(10):
        mdp = random_model(seed, n_states=4, n_actions=2)
        Q = sr.exact(mdp, Robust(delta))
        for s, a in product(range(3), range(2)):
            p, s_next, r, ends, _ = mdp.outcomes(s, a)
            y = r + mdp.gamma * np.where(ends, 0.0, Q[s_next].max(1))
            bounds = [((1 - delta) * x, None) for x in p]
            worst = linprog(y, A_eq=np.ones((1, y.size)), b_eq=[1.0], bounds=bounds)
            assert Q[s, a] == pytest.approx(worst.fun, abs=1e-7)


@pytest.mark.parametrize("delta", [0.1, 0.6])
def test_no_adversary_of_all_that_there_are_does_worse(delta):
    """An adversary picks an outcome a pair. Each makes an ordinary model; the worst of their best values is the robust one."""
    for seed in range(4):
        mdp = random_model(seed, n_states=3, n_actions=2)
        rows = [np.arange(i, j) for i, j in zip(mdp.row[:-1], mdp.row[1:], strict=True) if j > i]
        values = []
        for picked in product(*rows):
            p = (1 - delta) * mdp.p
            p[list(picked)] += delta
            values.append(optimal(mdp, p).max(1))
        assert np.allclose(np.min(values, axis=0), sr.exact(mdp, Robust(delta)).max(1), atol=1e-7)


def test_its_ends_are_q_learning_and_the_worst_case():
    for seed in range(5):
        mdp = random_model(seed)
        assert np.allclose(sr.exact(mdp, Robust(0.0)), sr.exact(mdp, sr.QLearning()), atol=1e-7)
        assert np.allclose(sr.exact(mdp, Robust(1.0)), sr.exact(mdp, sr.WorstCase()), atol=1e-7)


@given(st.integers(0, 30), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_more_of_delta_is_never_better(seed, one, other):
    mdp = random_model(seed, n_states=4, n_actions=2)
    low, high = (robust(mdp, delta) for delta in (max(one, other), min(one, other)))
    assert (low <= high + 1e-7).all()


def test_delta_0_is_q_learning_to_the_last_bit():
    mdp = sr.grids.cliff()
    plain, none = (sr.learn(mdp, x, 200, 2, quiet=True).Q for x in (sr.QLearning(), Robust(0.0)))
    assert np.array_equal(plain, none)


@pytest.mark.parametrize("delta", [0.2, 0.5, 1.0])
def test_what_is_learned_comes_to_the_limit_and_not_to_that_of_q_learning(delta):
    """Random model 1, ε = 1, seeds 0–3, 20,000 episodes: the mean of four runs, as a share of Q's range."""
    mdp, learner = random_model(1), Robust(delta)
    runs = sr.learn(mdp, learner, 20_000, 4, sr.EpsilonGreedy(1.0), sr.PowerStep(0.8), quiet=True)
    limit, plain = sr.exact(mdp, learner), sr.exact(mdp, sr.QLearning())
    assert np.abs(runs.Q.mean(0) - limit)[:-1].max() / np.ptp(limit) < 0.03
    assert np.abs(plain - limit)[:-1].max() / np.ptp(limit) > 0.5


def test_unlike_hegers_it_takes_back_a_value_that_was_too_low():
    """Both begin at −50, and the worst case is −21 at worst: only the one that averages comes up to it."""
    mdp = random_model(1)
    limit = sr.exact(mdp, sr.WorstCase())
    args = (20_000, 1, sr.EpsilonGreedy(1.0), sr.PowerStep(0.8))
    heger, ours = (sr.learn(mdp, x, *args, quiet=True).Q[0] for x in (sr.WorstCase(c0=-50.0), Robust(1.0, c0=-50.0)))
    assert (heger <= -50.0).all()
    assert np.abs(ours - limit)[:-1].max() / np.ptp(limit) < 0.05


def test_the_limits_are_safe_between_too_little_and_too_much():
    bands = {sr.grids.cliff: (0.02, 0.03, 0.37, 0.39, 1.0), sr.grids.volatile: (0.24, 0.25, 0.37, 0.39, 1.0)}
    verdicts = {
        grid: [sr.verdict(m := grid(), robust(m, d).argmax(1)) for d in deltas] for grid, deltas in bands.items()
    }
    assert verdicts[sr.grids.cliff] == ["risky", "safe", "safe", "jumps", "stuck"]
    assert verdicts[sr.grids.volatile] == ["risky", "safe", "safe", "safe", "safe"]


def test_delta_is_a_chance():
    with pytest.raises(BadInput, match=r"delta must be in \[0, 1\], got 1.5"):
        Robust(1.5)
