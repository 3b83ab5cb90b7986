"""Equivalent losses: closed forms, the way back, and the same limits as the losses have by themselves."""

from dataclasses import dataclass
from math import log

import numpy as np
import pytest
from random_models import random_model

import safereplay as sr
from safereplay.views.drawing import loss_figure

DELTA = np.array([-4.0, -1.0, -0.25, 0.0, 0.5, 3.0])


@dataclass(frozen=True)
class PriorityReplay(sr.Scheme):
    """Outcomes by |δ|^priority."""

    priority: float = 1.0

    @staticmethod
    def log_tilt(freq, y, value, priority):
        """log q + priority·log |δ|."""
        return log(freq) + priority * log(abs(y - value) + 1e-300)


LOSSES = {
    "squared": (sr.DynaReplay(), lambda x: x**2 / 2, lambda x: x),
    "asymmetric squared": (
        sr.ExpectileReplay(0.6),
        lambda x: (1 - 0.6 * np.sign(x)) * x**2 / 2,
        lambda x: (1 - 0.6 * np.sign(x)) * x,
    ),
    "LINEX": (sr.EntropicReplay(0.5), lambda x: (np.exp(-x / 2) + x / 2 - 1) * 4, lambda x: (1 - np.exp(-x / 2)) * 2),
    "cubic": (PriorityReplay(1.0), lambda x: np.abs(x) ** 3 / 3, lambda x: np.abs(x) * x),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_and_its_gradient_are_the_closed_forms(name):
    scheme, loss, gradient = LOSSES[name]
    found = sr.equivalent_loss(scheme)
    assert found.scheme is scheme
    np.testing.assert_allclose(found.gradient(DELTA), gradient(DELTA), atol=1e-12)
    np.testing.assert_allclose(found.loss(DELTA), loss(DELTA), atol=1e-12)


def minimised(mdp, gradient):
    """Value iteration where Q(s,a) solves E[L'(y − Q)] = 0 by bisection: the limit of uniform replay with the loss L."""
    Q = np.zeros((mdp.n_states, mdp.n_actions))
    while True:
        y = mdp.r + mdp.gamma * np.where(mdp.terminal, 0.0, Q.max(1)[mdp.s_next])
        low, high = np.full(mdp.n_pairs, y.min()), np.full(mdp.n_pairs, y.max())
        for _ in range(60):
            x = (low + high) / 2
            rising = np.bincount(mdp.pair, mdp.p * gradient(y - x[mdp.pair]), mdp.n_pairs) > 0
            low, high = np.where(rising, x, low), np.where(rising, high, x)
        after = np.where(np.diff(mdp.row) > 0, (low + high) / 2, 0.0).reshape(Q.shape)
        if np.abs(after - Q).max() < 1e-12:
            return after
        Q = after


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", range(3))
def test_uniform_replay_with_the_loss_has_the_limit_of_the_scheme(name, seed):
    scheme, _, gradient = LOSSES[name]
    mdp = random_model(seed)
    on = mdp.is_reachable
    limit = minimised(mdp, gradient)
    np.testing.assert_allclose(sr.fixed_point(mdp, scheme, v=1.0, mixing="anchored")[on], limit[on], atol=1e-8)


def test_the_scheme_of_a_loss_has_that_loss_and_learns_its_limit():
    """Huber's loss: δ²/2 up to 1, then |δ| − ½. 30,000 episodes, seed 0, bound 0.15 for values of up to 9."""
    huber = sr.equivalent_scheme(lambda delta: max(-1.0, min(1.0, delta)))
    found = sr.equivalent_loss(huber)
    np.testing.assert_allclose(found.gradient(DELTA), np.clip(DELTA, -1.0, 1.0), atol=1e-12)
    rows = [(0, 0, p, 1, r, True, False) for p, r in ((0.45, 4.0), (0.35, 1.0), (0.2, -9.0))]
    mdp = sr.TabularMDP.from_outcomes(2, 1, rows, start=0)
    limit = minimised(mdp, lambda x: np.clip(x, -1.0, 1.0))[0, 0]
    assert limit == pytest.approx(sr.fixed_point(mdp, huber, v=1.0, mixing="anchored")[0, 0], abs=1e-8)
    learner = sr.ReplayQLearning(huber, v=1.0, mixing="anchored")
    learned = sr.learn(mdp, learner, 30_000, seeds=1, step_size=sr.PowerStep(0.8), quiet=True).Q[0, 0, 0]
    assert learned == pytest.approx(limit, abs=0.15)
    assert abs(limit - mdp.expect(mdp.r)[0, 0]) > 0.5


def test_schemes_without_one_say_so_in_one_line():
    for scheme in (sr.CVaRReplay(), sr.SpectralReplay(), sr.VarianceReplay(), sr.ReturnReplay()):
        with pytest.raises(
            sr.BadInput, match=f"scheme must weight outcomes by their TD error, .*, got {type(scheme).__name__}"
        ):
            sr.equivalent_loss(scheme)
    with pytest.raises(sr.BadInput, match="scheme must be a Scheme, got 1"):
        sr.equivalent_loss(1)
    with pytest.raises(sr.BadInput, match=r"gradient\(-30\) must be finite, with the sign of its argument, got 30"):
        sr.equivalent_scheme(lambda delta: -delta)


def test_the_picture_shows_the_weights_and_both_losses():
    found = sr.equivalent_loss(sr.ExpectileReplay(0.5))
    left, right = loss_figure(found, reach=2.0).axes
    x, g = left.lines[0].get_data()
    np.testing.assert_array_equal(g, np.where(x > 0, 0.5, 1.5))
    np.testing.assert_allclose(right.lines[0].get_ydata(), found.loss(x))
    np.testing.assert_allclose(right.lines[1].get_ydata(), x**2 / 2)
