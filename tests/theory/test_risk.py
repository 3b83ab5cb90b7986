import math

import numpy as np
import pytest

import safereplay as sr
from safereplay.errors import BadInput

COIN = [(0, 0, 0.25, 0, -1.0, False, True), (0, 0, 0.75, 1, 2.0, True, False)]


def coin():
    """Stay for −1 with probability ¼, else end for 2: a geometric number of losses."""
    return sr.TabularMDP.from_outcomes(2, 1, COIN, gamma=0.9)


def sampled(mdp, policy, episodes, seed):
    """Returns and whether anything unsafe happened, by plain simulation."""
    generator = np.random.default_rng(seed)
    returns, unsafe = np.zeros(episodes), np.zeros(episodes, bool)
    for e in range(episodes):
        s, done = int(generator.choice(mdp.n_states, p=mdp.start)), False
        while not done:
            o = mdp.outcomes(s, int(policy[s]))
            k = int(generator.choice(o.p.size, p=o.p))
            returns[e] += o.r[k]
            unsafe[e] |= o.unsafe[k]
            s, done = int(o.s_next[k]), bool(o.terminal[k])
    return returns, unsafe


def test_a_geometric_chain_has_its_closed_forms():
    risk = sr.evaluate(coin(), [0, 0], start=0)
    q, p = 0.25, 0.75
    assert risk.mean == pytest.approx(2 - q / p, abs=1e-12)
    assert risk.std == pytest.approx(math.sqrt(q) / p, abs=1e-12)
    assert risk.p_unsafe == pytest.approx(q, abs=1e-12)
    assert risk.length == pytest.approx(1 / p, abs=1e-12)
    assert risk.p_never == 0.0
    assert risk.distribution.exact
    np.testing.assert_allclose(risk.distribution.probabilities[::-1][:5], p * q ** np.arange(5), rtol=1e-9)
    np.testing.assert_allclose(risk.distribution.returns[::-1][:5], 2.0 - np.arange(5))


def test_a_discounted_chain_has_its_closed_form():
    risk = sr.evaluate(coin(), [0, 0], start=0, discounted=True)
    # m = ¼(−1 + γm) + ¾·2
    assert risk.mean == pytest.approx((0.75 * 2 - 0.25) / (1 - 0.25 * 0.9), abs=1e-12)
    sample = risk.distribution
    assert not sample.exact
    assert float(sample.returns @ sample.probabilities) == pytest.approx(risk.mean, abs=0.02)


def test_quantiles_and_cvar_of_three_gambles_by_hand():
    mdp = sr.grids.volatile()
    risk = sr.evaluate(mdp, [1] * 20, start=mdp.origin)
    np.testing.assert_allclose(risk.distribution.returns, [-150, 50, 250, 450])
    np.testing.assert_allclose(risk.distribution.probabilities, [0.064, 0.288, 0.432, 0.216], atol=1e-12)
    assert risk.p_unsafe == pytest.approx(1 - 0.6**3, abs=1e-12)
    assert risk.cvar(0.1) == pytest.approx((0.064 * -150 + 0.036 * 50) / 0.1)
    assert risk.cvar(1.0) == pytest.approx(210.0)
    assert [risk.quantile(q) for q in (0.05, 0.064, 0.3, 0.5, 1.0)] == [-150, -150, 50, 250, 450]


@pytest.mark.parametrize(
    "make", [sr.grids.cliff, lambda: sr.grids.from_map("S..\n.X.\n..G", slip=0.3), lambda: sr.grids.volatile(slip=0.2)]
)
def test_mean_spread_and_chance_of_harm_agree_with_simulation(make):
    """Seed 1, 4,000 episodes: within 4 standard errors."""
    mdp = make()
    policy = sr.exact(mdp, sr.QLearning()).argmax(1)
    risk = sr.evaluate(mdp, policy)
    returns, unsafe = sampled(mdp, policy, 4_000, seed=1)
    assert abs(returns.mean() - risk.mean) < 4 * risk.std / math.sqrt(4_000)
    assert abs(returns.std() - risk.std) < 0.15 * risk.std
    assert abs(unsafe.mean() - risk.p_unsafe) < 4 * math.sqrt(0.25 / 4_000)


def test_the_distribution_has_the_moments_of_the_equations():
    mdp = sr.grids.cliff()
    risk = sr.evaluate(mdp, sr.exact(mdp, sr.QLearning()).argmax(1), start=mdp.origin)
    x, p, exact = risk.distribution
    assert exact
    assert float(x @ p) == pytest.approx(risk.mean, abs=1e-9)
    assert math.sqrt(float((x - risk.mean) ** 2 @ p)) == pytest.approx(risk.std, abs=1e-7)


def test_a_policy_that_never_ends_is_answered():
    mdp = sr.grids.volatile()
    risk = sr.evaluate(mdp, [3] * 20, start=mdp.origin)  # left, against the wall
    assert (risk.p_never, risk.mean, risk.length, risk.cvar(0.1)) == (1.0, -math.inf, math.inf, -math.inf)
    assert risk.to_dict()["mean"] is None
    assert math.isfinite(sr.evaluate(mdp, [3] * 20, start=mdp.origin, discounted=True).mean)


def test_a_policy_that_may_never_end_gives_the_probability():
    rows = [(0, 0, 0.3, 1, 0.0, True, False), (0, 0, 0.7, 2, 0.0, False, False), (2, 0, 1.0, 2, -1.0, False, False)]
    risk = sr.evaluate(sr.TabularMDP.from_outcomes(3, 1, rows), [0, 0, 0], start=0)
    assert risk.p_never == pytest.approx(0.7, abs=1e-12)
    assert risk.mean == -math.inf


def test_rewards_without_a_common_unit_are_sampled_and_said_to_be():
    rows = [(0, 0, 0.5, 1, math.sqrt(2.0), True, False), (0, 0, 0.5, 1, 1.0, True, False)]
    risk = sr.evaluate(sr.TabularMDP.from_outcomes(2, 1, rows), [0, 0], start=0)
    assert not risk.distribution.exact
    assert risk.to_dict()["exact"] is False
    assert risk.cvar(0.4) == pytest.approx(1.0)


def test_bad_arguments_are_named():
    risk = sr.evaluate(coin(), [0, 0], start=0)
    with pytest.raises(BadInput, match=r"alpha must be in \(0, 1\], got 0"):
        risk.cvar(0.0)
    with pytest.raises(BadInput, match=r"q must be in \(0, 1\], got 2"):
        risk.quantile(2.0)
    with pytest.raises(BadInput, match=r"policy must have shape \(2,\), got \(3,\)"):
        sr.evaluate(coin(), [0, 0, 0])
    with pytest.raises(BadInput, match=r"policy must be actions in 0\.\.0, got \[0, 1\]"):
        sr.evaluate(coin(), [0, 1])


def test_a_policy_that_never_ends_for_nothing_returns_what_it_had():
    """Half of the episodes end with 1, half walk to and fro for 0 forever."""
    rows = [(0, 0, 0.5, 1, 1.0, True, False), (0, 0, 0.5, 2, 0.0, False, False), (2, 0, 1.0, 2, 0.0, False, False)]
    risk = sr.evaluate(sr.TabularMDP.from_outcomes(3, 1, rows), [0, 0, 0], start=0)
    assert (risk.mean, risk.p_never, risk.length) == (0.5, 0.5, math.inf)
    assert risk.std == pytest.approx(0.5)
    assert risk.cvar(0.5) == 0.0
    np.testing.assert_allclose(risk.distribution.returns, [0.0, 1.0])
    np.testing.assert_allclose(risk.distribution.probabilities, [0.5, 0.5])


def test_what_the_start_cannot_reach_does_not_count():
    rows = [(0, 0, 1.0, 1, 1.0, True, False), (2, 0, 1.0, 2, -1.0, False, False)]
    risk = sr.evaluate(sr.TabularMDP.from_outcomes(3, 1, rows), [0, 0, 0], start=0)
    assert (risk.mean, risk.p_never, risk.length) == (1.0, 0.0, 1.0)


def test_a_discounted_return_without_end_has_a_cvar():
    mdp = sr.grids.volatile()
    risk = sr.evaluate(mdp, [3] * 20, start=mdp.origin, discounted=True)
    assert risk.cvar(0.1) == pytest.approx(risk.mean, abs=1e-6) == pytest.approx(-10.0)


def test_only_a_model_can_be_evaluated():
    with pytest.raises(BadInput, match="mdp must be a TabularMDP, got 5"):
        sr.evaluate(5, [0])
