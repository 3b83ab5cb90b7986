"""CVaR of quantiles against numpy, and QR-DQN that acts on it."""

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sb3_contrib import QRDQN

import safereplay as sr
from studies.deep.rivals import CVaRPolicy, CVaRQRDQN, cvar
from studies.deep.wrappers import OneHot

#: One step: action 0 pays 1 or −3 (mean 0.6), action 1 pays 0.4 for sure.
GAMBLE = sr.TabularMDP.from_outcomes(
    2,
    2,
    [(0, 0, 0.9, 1, 1.0, True, False), (0, 0, 0.1, 1, -3.0, True, True), (0, 1, 1.0, 1, 0.4, True, False)],
)

#: The gamble is a step away, and can be avoided only before: its state has one way on. Action 1 pays 0.4 and ends.
CHOICE_BEFORE = sr.TabularMDP.from_outcomes(
    3,
    2,
    [
        (0, 0, 1.0, 1, 0.0, False, False),
        (0, 1, 1.0, 2, 0.4, True, False),
        *[(1, a, p, 2, r, True, r < 0) for a in (0, 1) for p, r in ((0.9, 1.0), (0.1, -3.0))],
    ],
    gamma=0.99,
    start=[1.0, 0.0, 0.0],
)


def trained(kind, mdp, alpha, seed=0, steps=1_500):
    torch.set_num_threads(1)
    policy = {"net_arch": [32], "n_quantiles": 10, "alpha": alpha}
    model = kind(
        CVaRPolicy,
        OneHot(sr.TabularEnv(mdp)),
        learning_rate=1e-2,
        learning_starts=100,
        train_freq=4,
        batch_size=64,
        target_update_interval=100,
        exploration_fraction=1.0,
        exploration_final_eps=0.3,
        gamma=mdp.gamma,
        policy_kwargs=policy,
        seed=seed,
        device="cpu",
    )
    return model.learn(steps, log_interval=10**9)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30), st.floats(0.01, 1.0))
def test_cvar_is_the_integral_of_the_quantile_function_up_to_alpha(values, alpha):
    n = len(values)
    edges = np.unique(np.append(np.arange(n + 1) / n, alpha))
    edges = edges[edges <= alpha + 1e-12]
    middle = (edges[1:] + edges[:-1]) / 2
    steps = np.sort(np.array(values, float))[np.minimum((middle * n).astype(int), n - 1)]
    expected = np.sum(np.diff(edges) * steps) / alpha
    assert float(cvar(torch.tensor([values], dtype=torch.float64), alpha)[0]) == pytest.approx(expected, abs=1e-9)


def test_cvar_of_all_is_the_mean_and_of_the_least_is_the_worst():
    values = torch.randn(5, 20, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(cvar(values, 1.0), values.mean(1))
    assert torch.allclose(cvar(values, 1 / 20), values.min(1).values)
    assert torch.allclose(cvar(values, 0.999999), values.mean(1), atol=1e-4)


def test_the_policy_takes_the_action_with_the_best_cvar():
    env = OneHot(sr.TabularEnv(GAMBLE))
    policy = CVaRPolicy(env.observation_space, env.action_space, lambda _: 1e-3, n_quantiles=4, net_arch=[], alpha=0.25)
    last = policy.quantile_net.quantile_net[-1]
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(torch.tensor([[-3.0, 0.4], [1.0, 0.4], [1.0, 0.4], [5.0, 0.4]]).flatten())
    seen = np.eye(2, dtype=np.float32)[:1]
    assert policy.predict(seen)[0].tolist() == [1]
    policy.quantile_net.alpha = 1.0
    assert policy.predict(seen)[0].tolist() == [0]


@pytest.mark.parametrize(("kind", "alpha", "action"), [(QRDQN, 1.0, 0), (QRDQN, 0.25, 1), (CVaRQRDQN, 0.25, 1)])
def test_a_gamble_is_taken_by_the_mean_and_left_by_cvar(kind, alpha, action):
    model = trained(kind, GAMBLE, alpha)
    assert model.predict(np.eye(2, dtype=np.float32)[:1], deterministic=True)[0].tolist() == [action]


def test_a_target_that_is_greedy_on_cvar_of_all_is_qr_dqns_own():
    theirs, ours = trained(QRDQN, CHOICE_BEFORE, 1.0, steps=400), trained(CVaRQRDQN, CHOICE_BEFORE, 1.0, steps=400)
    for a, b in zip(theirs.policy.parameters(), ours.policy.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_danger_a_step_ahead_is_seen_by_cvar():
    model = trained(CVaRQRDQN, CHOICE_BEFORE, 0.25, steps=2_000)
    assert model.predict(np.eye(3, dtype=np.float32)[:1], deterministic=True)[0].tolist() == [1]


def test_a_model_is_saved_and_loaded_with_its_alpha(tmp_path):
    model = trained(CVaRQRDQN, GAMBLE, 0.25, steps=200)
    model.save(tmp_path / "model.zip")
    again = CVaRQRDQN.load(tmp_path / "model.zip", device="cpu")
    assert again.policy.alpha == again.quantile_net.alpha == 0.25


def test_alpha_is_a_share():
    box, two = gymnasium.spaces.Box(0, 1, (2,), np.float32), gymnasium.spaces.Discrete(2)
    with pytest.raises(sr.BadInput, match=r"alpha must be in \(0, 1\], got 0"):
        CVaRPolicy(box, two, lambda _: 1e-3, alpha=0)
