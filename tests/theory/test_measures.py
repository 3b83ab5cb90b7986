"""Risk measures as replay schemes: their exact limits against solvers written here, and learned Q against the limits."""

import numpy as np
import pytest
from random_models import random_model

import safereplay as sr
from safereplay.theory.operator import limit_table, limit_weights, taken_apart

QUICK, ALL = 4, 200  # random models in the default suite, and in the slow one
GAMMAS = (0.5, 0.9, 0.99)


def cvar(y, q, alpha):
    """The mean of the worst share α, by sorting."""
    part = np.diff(np.minimum(np.cumsum(q, 1), alpha), axis=1, prepend=0.0)
    return (part * y).sum(1) / alpha


def spectral(y, q, beta):
    """Σ y·(Φ(F⁺) − Φ(F⁻)), by sorting."""
    phi = (1 - np.exp(-beta * np.cumsum(q, 1))) / (1 - np.exp(-beta))
    return (np.diff(phi, axis=1, prepend=0.0) * y).sum(1)


def expectile(y, q, kappa):
    """The x with Σ q·(1 − κ·sign(y − x))·(y − x) = 0, by bisection."""
    low, high = y.min(1), y.max(1)
    for _ in range(60):
        x = (low + high) / 2
        d = y - x[:, None]
        rising = (q * (1 - kappa * np.sign(d)) * d).sum(1) > 0
        low, high = np.where(rising, x, low), np.where(rising, high, x)
    return (low + high) / 2


def entropic(y, q, beta):
    """−(1/β)·log Σ q·e^{−βy}."""
    shift = (y if beta > 0 else -y).min(1)[:, None] * np.sign(beta)
    return shift[:, 0] - np.log((q * np.exp(-beta * (y - shift))).sum(1)) / beta


MEASURES = {
    "cvar": (cvar, sr.CVaRReplay, (0.05, 0.3, 0.9)),
    "spectral": (spectral, sr.SpectralReplay, (0.5, 3.0, -2.0)),
    "expectile": (expectile, sr.ExpectileReplay, (0.3, 0.9, -0.5)),
    "entropic": (entropic, sr.EntropicReplay, (0.1, 2.0, -0.5)),
}


def nested(mdp, measure, dial, v, Q):
    """Value iteration from Q with (1−v)·mean + v·measure of each pair's targets, sorted; it contracts by γ, so the error is below 1e-10."""
    used, width = np.flatnonzero(np.diff(mdp.row)), np.diff(mdp.row).max()
    k = np.minimum(mdp.row[used, None] + np.arange(width), mdp.row[used + 1, None] - 1)
    q = np.where(mdp.row[used, None] + np.arange(width) < mdp.row[used + 1, None], mdp.p[k], 0.0)
    while True:
        y = (mdp.r + mdp.gamma * np.where(mdp.terminal, 0.0, Q.max(1)[mdp.s_next]))[k]
        order = np.argsort(y, axis=1)
        y, p = np.take_along_axis(y, order, 1), np.take_along_axis(q, order, 1)
        after = np.zeros_like(Q)
        after.flat[used] = (1 - v) * (y * p).sum(1) + v * measure(y, p, dial)
        if np.abs(after - Q).max() <= 1e-11 * (1 - mdp.gamma) + 2e-15 * np.abs(Q).max():
            return after
        Q = after


def compared(name, seed):
    """The largest difference between the library's limit and value iteration, on one random model."""
    measure, scheme, dials = MEASURES[name]
    mdp = random_model(seed).with_gamma(GAMMAS[seed % 3])
    v = 1.0 if name == "expectile" or seed % 2 else 0.6
    dial = dials[seed % len(dials)]
    Q = sr.fixed_point(mdp, scheme(dial), v, mixing="anchored")
    learner = sr.ReplayQLearning(scheme(dial), v=v, mixing="anchored")
    assert np.array_equal(Q, sr.exact(mdp, learner))
    return np.abs(Q - nested(mdp, measure, dial, v, Q))[mdp.is_reachable].max()


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("seed", range(QUICK))
def test_the_limit_is_value_iteration_with_the_measure(name, seed):
    assert compared(name, seed) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURES)
def test_the_limit_is_value_iteration_with_the_measure_on_200_models(name):
    assert max(compared(name, seed) for seed in range(ALL)) < 1e-9


@pytest.mark.parametrize("world", [sr.grids.cliff, sr.grids.volatile])
def test_the_limits_are_those_of_the_learners_of_the_same_risk(world):
    mdp = world()
    for kappa in (-0.5, 0.6, 0.95):
        Q = sr.fixed_point(mdp, sr.ExpectileReplay(kappa), v=1.0, mixing="anchored")
        np.testing.assert_allclose(Q, sr.exact(mdp, sr.RiskSensitive(kappa)), rtol=0, atol=1e-9)
    for beta in (-0.01, 0.01, 0.1):
        Q = sr.fixed_point(mdp, sr.EntropicReplay(beta), v=1.0, mixing="anchored")
        np.testing.assert_allclose(Q, sr.exact(mdp, sr.ExponentialUtility(beta)), rtol=1e-9)


def test_no_replay_and_neutral_dials_are_q_learning():
    mdp = random_model(3)
    plain = sr.exact(mdp, sr.QLearning())
    neutral = (sr.CVaRReplay(1.0), sr.SpectralReplay(0.0), sr.ExpectileReplay(0.0), sr.EntropicReplay(0.0))
    for scheme, v in [(sr.CVaRReplay(), 0.0), *((scheme, 1.0) for scheme in neutral)]:
        np.testing.assert_allclose(sr.fixed_point(mdp, scheme, v, mixing="anchored"), plain, atol=1e-10)


def test_targets_that_tie_share_the_tail_in_the_order_of_their_slots():
    """Four outcomes of y = 0 with probability ¼ each, α = ½: the first two make up the worst half."""
    rows = [(0, 0, 0.25, s_next, 0.0, True, False) for s_next in (1, 2, 3, 4)]
    mdp = sr.TabularMDP.from_outcomes(5, 1, rows, start=0)
    w = limit_weights(mdp, sr.CVaRReplay(0.5), np.zeros((5, 1)))
    assert w.tolist() == pytest.approx([0.5, 0.5, 0.0, 0.0])


def gamble(gamma=0.9):
    """One state: 4, 1 or −7 with probabilities 0.5, 0.3, 0.2, then it ends."""
    rows = [(0, 0, p, 1, r, True, False) for p, r in ((0.5, 4.0), (0.3, 1.0), (0.2, -7.0))]
    return sr.TabularMDP.from_outcomes(2, 1, rows, gamma=gamma, start=0)


@pytest.mark.parametrize("name", MEASURES)
def test_the_weights_of_a_run_are_the_measures_weights_of_what_was_seen(name):
    """Here y is r, so w_t follows from the counts and Q: Σ w·r is the measure of the frequencies, 2,000 visits, seed 0."""
    measure, scheme, dials = MEASURES[name]
    mdp = gamble()
    runs = sr.learn(mdp, sr.ReplayQLearning(scheme(dials[1]), v=0.5, mixing="anchored"), 2_000, seeds=1, quiet=True)
    q, w, Q = runs.seen[0] / runs.seen[0].sum(), runs.w[0], runs.Q[0, 0, 0]
    assert w.sum() == pytest.approx(1.0)
    if name == "expectile":
        expected = q * np.where(mdp.r > Q, 1 - dials[1], 1 + dials[1])
        assert w == pytest.approx(expected / expected.sum())
    elif name == "entropic":  # a run reports w_t at luck = ½
        expected = q * np.exp(-dials[1] / 2 * mdp.r)
        assert w == pytest.approx(expected / expected.sum())
    else:
        assert float(w @ mdp.r) == pytest.approx(measure(mdp.r[None], q[None], dials[1])[0])


@pytest.mark.parametrize("name", MEASURES)
def test_weights_by_factor_are_those_of_the_operator(name):
    """taken_apart evaluates the same factors on limit_table; at luck = ½ for a tilt that draws it, so that one is left out."""
    if name == "entropic":
        return
    mdp, scheme = random_model(5), MEASURES[name][1]()
    Q = sr.exact(mdp, sr.QLearning())
    found = taken_apart(scheme, limit_table(mdp, Q)).outcomes
    np.testing.assert_allclose(np.exp(found.within), of_pairs(mdp, limit_weights(mdp, scheme, Q)), atol=1e-12)


def of_pairs(mdp, w):
    """The share of each outcome in its pair's weight."""
    return w / np.bincount(mdp.pair, weights=w)[mdp.pair]


# -- learning -------------------------------------------------------------------------------------------------------------


def learned_error(name, seed, episodes):
    """The largest |Q − limit| as a share of the limit's range, median of 3 seeds; ε = 1, so that all pairs are visited."""
    mdp = random_model(seed, n_states=4, n_actions=2).with_gamma(0.6)
    learner = sr.ReplayQLearning(MEASURES[name][1](), v=1.0, mixing="anchored")
    limit = sr.exact(mdp, learner)
    runs = sr.learn(
        mdp, learner, episodes, seeds=3, exploration=sr.EpsilonGreedy(1.0), step_size=sr.PowerStep(0.8), quiet=True
    )
    on = ~mdp.is_terminal & mdp.is_reachable
    return np.median([np.abs(Q - limit)[on].max() / np.ptp(limit[on]) for Q in runs.Q])


def test_learned_values_come_to_the_limit():
    """CVaR of the worst quarter, 3 seeds, 20,000 episodes; the limit of Q-learning is 90 % away."""
    assert learned_error("cvar", 2, 20_000) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize(("seed", "episodes"), [*((seed, 300_000) for seed in range(4)), (4, 3_000_000)])
def test_learned_values_come_to_the_limit_on_more_models(name, seed, episodes):
    """3 seeds. Model 4 converges more slowly: for CVaR the distance is 1.3 % after 300,000 episodes, 0.5 % after 3,000,000."""
    assert learned_error(name, seed, episodes) < 0.01
