"""The rivals: closed forms first, then tiny worlds whose answers are known, files, and bad arguments."""

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sb3_contrib import QRDQN

import safereplay as sr
from studies.deep.implicit import IQN, IQNPolicy
from studies.deep.lagrangian import CostReplayBuffer, LagrangianDQN, LagrangianPolicy
from studies.deep.rivals import CVaRPolicy, CVaRQRDQN, cvar
from studies.deep.static import FAR, Owed, StaticCVaRDQN
from studies.deep.wrappers import OneHot, Penalised, Scaled

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


#: A loss of 3 or nothing, then a gamble with mean 0.8 or nothing: only those who lost should gamble, at α = 0.75.
RECOVER = sr.TabularMDP.from_outcomes(
    3,
    2,
    [
        *[(0, a, 0.5, 1, r, False, False) for a in (0, 1) for r in (-3.0, 0.0)],
        (1, 0, 1.0, 2, 0.0, True, False),
        (1, 1, 0.6, 2, 2.0, True, False),
        (1, 1, 0.4, 2, -1.0, True, True),
    ],
    start=[1.0, 0.0, 0.0],
)

FIRST = np.eye(3, dtype=np.float32)[0]
LEARNING = {
    "learning_rate": 1e-2,
    "learning_starts": 100,
    "train_freq": 4,
    "batch_size": 64,
    "target_update_interval": 100,
    "exploration_fraction": 1.0,
    "exploration_final_eps": 0.3,
    "device": "cpu",
}


def trained(kind, mdp, alpha, seed=0, steps=1_500):
    torch.set_num_threads(1)
    policy = {"net_arch": [32], "n_quantiles": 10, "alpha": alpha}
    env = OneHot(sr.TabularEnv(mdp))
    model = kind(CVaRPolicy, env, gamma=mdp.gamma, policy_kwargs=policy, seed=seed, **LEARNING)
    return model.learn(steps, log_interval=10**9)


def implicit(mdp, alpha, seed=0, steps=1_500):
    torch.set_num_threads(1)
    policy = {"net_arch": [32, 32], "alpha": alpha}
    env = OneHot(sr.TabularEnv(mdp))
    model = IQN(IQNPolicy, env, gamma=mdp.gamma, policy_kwargs=policy, seed=seed, **LEARNING)
    return model.learn(steps, log_interval=10**9)


def static(env, gamma, alpha, seed=0, steps=4_000, scale=5.0):
    """Rewards are scaled, so that the Huber loss fits means."""
    torch.set_num_threads(1)
    arguments = {**LEARNING, "train_freq": 2, "learning_rate": 5e-3, "policy_kwargs": {"net_arch": [32]}}
    env = Scaled(Owed(env, gamma, scale=scale), scale)
    model = StaticCVaRDQN("MlpPolicy", env, gamma=gamma, alpha=alpha, scale=scale, seed=seed, **arguments)
    return model.learn(steps, log_interval=10**9)


def lagrangian(limit, seed=0, steps=2_000, rate=1e-2):
    torch.set_num_threads(1)
    env = Scaled(OneHot(sr.TabularEnv(GAMBLE.with_start([1.0, 0.0]))), 5.0)  # so that the Huber loss fits means
    policy = {"net_arch": [32]}
    model = LagrangianDQN(
        LagrangianPolicy, env, gamma=0.9, limit=limit, rate=rate, policy_kwargs=policy, seed=seed, **LEARNING
    )
    return model.learn(steps, log_interval=10**9)


def first_action(model, n):
    return model.predict(np.eye(n, dtype=np.float32)[:1], deterministic=True)[0].tolist()


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


# -- IQN --------------------------------------------------------------------------------------------------------------


def network(alpha, n_quantiles=32):
    box, two = gymnasium.spaces.Box(0, 1, (2,), np.float32), gymnasium.spaces.Discrete(2)
    policy = IQNPolicy(box, two, lambda _: 1e-3, net_arch=[8, 8], alpha=alpha, n_quantiles=n_quantiles)
    return policy.quantile_net


@pytest.mark.parametrize("alpha", [0.1, 0.25, 1.0])
def test_shares_for_acting_lie_below_alpha_and_their_mean_quantile_is_cvar(alpha):
    """Quantiles τ² have CVaR_α = α²/3. Midpoints are off by α²/(12·K²); 20,000 random shares by about 3·α²/√N."""
    net = network(alpha)
    middle, drawn = net.middle_shares(), net.random_shares(625)
    assert middle.shape == (1, 32)
    assert drawn.shape == (625, 32)
    assert float(drawn.min()) >= 0
    assert float(drawn.max()) <= alpha
    assert float((middle**2).mean()) == pytest.approx(alpha**2 / 3, abs=alpha**2 / (12 * 32**2) + 1e-6)
    assert float((drawn**2).mean()) == pytest.approx(alpha**2 / 3, abs=3 * alpha**2 / 20_000**0.5)


def test_the_embedding_of_a_share_has_the_cosines_of_the_paper():
    net = network(1.0)
    assert net.share_net[0].in_features == 64
    assert torch.allclose(net.frequencies[:3], torch.tensor([0.0, np.pi, 2 * np.pi]))
    seen, shares = torch.rand(5, 2), torch.rand(5, 7)
    whole = net(seen, shares)
    assert whole.shape == (5, 7, 2)
    assert torch.allclose(whole[:, 3:4], net(seen, shares[:, 3:4]), atol=1e-6)  # each quantile on its own
    assert torch.allclose(net(seen, shares[:1]), net(seen, shares[:1].expand(5, -1)), atol=1e-6)


def test_iqn_learns_the_tail_of_a_distribution():
    """0, 10, 20 or 30, equally likely: CVaR_½ is 5, the mean 15. Seed 0, 2,000 steps; the bound is 1.5."""
    outcomes = [(0, 0, 0.25, 1, 10.0 * k, True, False) for k in range(4)]
    model = implicit(sr.TabularMDP.from_outcomes(2, 1, outcomes, start=[1.0, 0.0]), 0.5, steps=2_000)
    with torch.no_grad():
        seen, shares = torch.eye(2)[:1], torch.linspace(0.005, 0.995, 100)[None]
        learned = model.quantile_net(seen, shares)[0, :, 0]
    assert float(learned[:50].mean()) == pytest.approx(5.0, abs=1.5)
    assert float(learned.mean()) == pytest.approx(15.0, abs=1.5)


@pytest.mark.parametrize(("alpha", "action"), [(1.0, 0), (0.25, 1)])
@pytest.mark.parametrize(("before", "steps"), [(False, 2_000), (True, 4_000)])
def test_iqn_takes_a_gamble_by_the_mean_and_leaves_it_by_cvar(before, steps, alpha, action):
    """3 (0.8) or −3 (0.2), at once or a step ahead, or 0 for sure: the mean is 1.8, and CVaR_¼ is −1.8."""
    pairs = [(1, 0), (1, 1)] if before else [(0, 0)]
    gamble = [(s, a, p, 2, r, True, r < 0) for s, a in pairs for p, r in ((0.8, 3.0), (0.2, -3.0))]
    walk = [(0, 0, 1.0, 1, 0.0, False, False)] if before else [(1, a, 1.0, 2, 0.0, True, False) for a in (0, 1)]
    rows = [*gamble, *walk, (0, 1, 1.0, 2, 0.0, True, False)]
    mdp = sr.TabularMDP.from_outcomes(3, 2, rows, gamma=0.99, start=[1.0, 0.0, 0.0])
    assert first_action(implicit(mdp, alpha, steps=steps), 3) == [action]


def test_iqn_is_the_same_with_the_same_seed_and_after_saving(tmp_path):
    model, again, other = (implicit(GAMBLE, 0.25, seed, steps=300) for seed in (0, 0, 1))
    model.save(tmp_path / "model.zip")
    loaded = IQN.load(tmp_path / "model.zip", device="cpu")
    assert (loaded.policy.alpha, loaded.quantile_net.alpha, loaded.n, loaded.n_next) == (0.25, 0.25, 16, 16)
    ours, same, saved, others = (
        torch.cat([x.flatten() for x in m.policy.parameters()]) for m in (model, again, loaded, other)
    )
    assert torch.equal(ours, same)
    assert torch.equal(ours, saved)
    assert not torch.equal(ours, others)


# -- static CVaR ------------------------------------------------------------------------------------------------------


class Paid(gymnasium.Env):
    """Pays given rewards one after the other; the last one ends the episode. A step that pays less than −5 is unsafe."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, *rewards):
        self.rewards = rewards

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        r = self.rewards[self.t - 1]
        return np.zeros(1, np.float32), r, self.t == len(self.rewards), False, {"unsafe": r < -5}


def played(env):
    """What is owed at each step, and the rewards."""
    owed, rewards, over = [float(env.reset()[0][-1])], [], False
    while not over:
        seen, r, terminated, truncated, _ = env.step(0)
        owed.append(float(seen[-1]))
        rewards.append(r)
        over = terminated or truncated
    return np.array(owed), rewards


@given(
    st.lists(st.floats(-10, 10), min_size=1, max_size=6),
    st.floats(-10, 10),
    st.sampled_from([0.5, 0.9, 1.0]),
    st.booleans(),
)
def test_what_is_owed_at_the_end_is_the_target_less_the_discounted_return(rewards, b, gamma, cut):
    """γᵀ·c_T = b − G, also if the episode is truncated; and the rewards of the task sum to b⁺ − (b − G)⁺."""
    env = Paid(*rewards, *[0.0] * cut)
    env = gymnasium.wrappers.TimeLimit(env, len(rewards)) if cut else env
    c, paid = played(Owed(env, gamma).chosen_by(lambda _: b))
    powers = gamma ** np.arange(len(rewards) + 1)
    G = powers[:-1] @ np.array(paid)
    assert paid == rewards
    assert powers[-1] * c[-1] == pytest.approx(b - G, abs=1e-4)
    gains = np.maximum(c[:-1], 0) - np.maximum(c[:-1] - paid, 0)
    assert powers[:-1] @ gains == pytest.approx(max(b, 0) - max(b - G, 0), abs=1e-4)


def test_what_is_owed_is_in_the_learners_unit_and_bounded():
    env = Owed(Paid(4.0, -8.0), gamma=0.5, scale=2.0, penalty=6.0).chosen_by(lambda _: 1.0)
    assert played(env)[0].tolist() == [1.0, (1.0 - 2.0) / 0.5, (-2.0 + 7.0) / 0.5]
    assert played(env)[1] == [4.0, -8.0]
    long = Owed(Paid(*[-1.0] * 60), gamma=0.5)
    assert played(long)[0][-1] == FAR


def test_the_window_covers_the_returns_from_every_step_and_nothing():
    model = StaticCVaRDQN("MlpPolicy", Owed(Paid(1.0), 0.5), gamma=0.5, device="cpu")
    model._widen([2.0, -4.0, 8.0])
    assert (model.low, model.high) == (0.0, 8.0)  # the returns are 2, 0 and 8
    model._widen([1.0, -3.0])
    assert (model.low, model.high) == (-3.0, 8.0)
    model.policy.predict = lambda seen, *_: (seen[:, -1], None)
    assert model.predict(np.array([[0.0, 9.0], [0.0, -9.0], [0.0, 1.0]]), deterministic=True)[0].tolist() == [8, -3, 1]


@pytest.mark.parametrize(("alpha", "target"), [(0.05, -4.0), (0.15, -4.0), (0.3, 0.0), (0.6, 2.0)])
def test_the_target_is_the_quantile_of_the_return(alpha, target):
    """G is −4 (0.2), 0 (0.3) or 2 (0.5): b* is the α-quantile, up to half a step of the grid."""
    model = StaticCVaRDQN("MlpPolicy", Owed(Paid(1.0), 0.5), gamma=0.5, alpha=alpha, device="cpu")
    model.low, model.high = -6.4, 6.4
    G, p = torch.tensor([-4.0, 0.0, 2.0]), torch.tensor([0.2, 0.3, 0.5])
    model.q_net = lambda seen: (
        (seen[:, 1:].relu() - ((seen[:, 1:] - G).relu() * p).sum(1, keepdim=True)) - torch.tensor([0, 1])
    )
    assert model.target(np.zeros(1, np.float32)) == pytest.approx(target, abs=0.051)


def exact_cvar(model, mdp, alpha):
    """The exact CVaR of a model's greedy policy on an episodic table, by all outcomes from state 0, without discount."""
    rows = np.eye(mdp.n_states, dtype=np.float32)
    found = []

    def follow(s, owed, p, total):
        action = int(model.predict(np.append(rows[s], owed).astype(np.float32), deterministic=True)[0])
        for chance, after, r, terminal, _ in zip(*mdp.outcomes(s, action), strict=True):
            if terminal:
                found.append((total + r, p * chance))
            else:
                follow(after, owed - r / model.scale, p * chance, total + r)

    follow(0, model.target(rows[0]), 1.0, 0.0)
    left, mean = alpha, 0.0
    for value, p in sorted(found):
        mean += value * min(p, left)
        left -= min(p, left)
    return mean / alpha


def test_the_learned_cvar_is_the_exact_optimum_and_needs_the_memory():
    """Only those who lost gamble: CVaR_¾ = (−4·0.2 − 1·0.3 + 0·0.25)/0.75; no policy of the state alone has above −1.6."""
    best = sr.best_cvar(RECOVER, 0.75).value
    assert best == pytest.approx(-1.1 / 0.75)
    model = static(OneHot(sr.TabularEnv(RECOVER)), 1.0, 0.75)
    assert exact_cvar(model, RECOVER, 0.75) == pytest.approx(best)
    second = np.array([[0, 1, 0, 0.6], [0, 1, 0, 0]], np.float32)
    assert model.predict(second, deterministic=True)[0].tolist() == [1, 0]


def test_one_static_model_serves_every_alpha():
    """1 (0.9) or −3 (0.1), or 0 for sure: the gamble's CVaR_α, 1 − 0.4/α, is above 0 from α = 0.4 on."""
    sure = [(0, 0, 0.9, 1, 1.0, True, False), (0, 0, 0.1, 1, -3.0, True, True), (0, 1, 1.0, 1, 0.0, True, False)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, sure, start=[1.0, 0.0])
    model = static(OneHot(sr.TabularEnv(mdp)), 1.0, 0.5, steps=3_000)
    for alpha in (0.05, 0.1, 0.2, 0.8, 0.95):
        model.alpha = alpha
        assert exact_cvar(model, mdp, alpha) == pytest.approx(sr.best_cvar(mdp, alpha).value)
        assert sr.best_cvar(mdp, alpha).value == pytest.approx(max(1 - 0.4 / alpha, 0.0))


def test_a_time_limit_is_not_the_end_of_the_task():
    """−1 forever at γ = ½, cut after 5 steps: the value is −2. If the cut were the end, it would be above −1.94."""
    loop = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 1.0, 0, -1.0, False, False)])
    env = gymnasium.wrappers.TimeLimit(OneHot(sr.TabularEnv(loop)), 5)
    model = static(env, 0.5, 0.5, steps=3_000, scale=1.0)
    assert (model.low, model.high) == (pytest.approx(-1.9375), 0.0)
    with torch.no_grad():
        assert float(model.q_net(torch.tensor([[1.0, 0.0]]))) == pytest.approx(-2.0, abs=0.03)


def test_a_static_model_is_the_same_with_the_same_seed_and_after_saving(tmp_path):
    env = OneHot(sr.TabularEnv(RECOVER))
    model, again, other = (static(env, 1.0, 0.75, seed, steps=400) for seed in (0, 0, 1))
    model.save(tmp_path / "model.zip")
    loaded = StaticCVaRDQN.load(tmp_path / "model.zip", device="cpu")
    assert (loaded.alpha, loaded.low, loaded.high) == (0.75, model.low, model.high)
    assert (model.low, model.high) == pytest.approx((-4.0 / 5.0, 2.0 / 5.0))
    assert model.target(FIRST) == again.target(FIRST) == loaded.target(FIRST) != other.target(FIRST)
    grid = [[0, 1, 0, c] for c in np.linspace(-0.8, 0.4, 20)]
    assert np.array_equal(model.predict(grid, deterministic=True)[0], loaded.predict(grid, deterministic=True)[0])


def test_evaluation_owes_the_best_target_at_the_start_of_each_episode():
    model = static(OneHot(sr.TabularEnv(RECOVER)), 1.0, 0.75, steps=300)
    env = model.judged(OneHot(sr.TabularEnv(RECOVER)))
    for seed in range(3):
        assert env.reset(seed=seed)[0][-1] == np.float32(model.target(FIRST))
        env.step(0)


# -- Lagrangian DQN ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("harms", "limit", "change"), [(3, 0.1, 0.2), (1, 0.1, 0.0), (0, 0.1, -0.1), (10, 0.0, 1.0)])
def test_the_multiplier_rises_while_harm_is_above_the_limit_and_falls_below_it(harms, limit, change):
    model = lagrangian(limit, steps=150, rate=0.01)
    model.recent.clear()
    model.recent.extend([True] * harms + [False] * (10 - harms))
    model.policy.multiplier.fill_(2.0)
    model.train(gradient_steps=3, batch_size=8)
    assert model.multiplier == pytest.approx(2.0 + 3 * 0.01 * change)
    model.policy.multiplier.fill_(0.0)
    model.train(gradient_steps=3, batch_size=8)
    assert model.multiplier == pytest.approx(max(0.03 * change, 0.0))


def test_the_policy_is_greedy_on_reward_less_the_price_of_harm():
    model = lagrangian(0.0, steps=10)
    reward, cost = torch.tensor([[1.0, 0.4]]), torch.tensor([[0.1, 0.0]])
    for price, action in ((0.0, 0), (5.9, 0), (6.1, 1)):
        model.policy.multiplier.fill_(price)
        assert model.policy.greedy(reward, cost).tolist() == [[action]]


def test_costs_are_stored_with_their_transitions():
    box, two = gymnasium.spaces.Box(0, 99, (1,), np.float32), gymnasium.spaces.Discrete(2)
    buffer = CostReplayBuffer(4, box, two, device="cpu")
    for k in range(6):  # two more than it holds
        seen = np.full((1, 1), k, np.float32)
        buffer.add(seen, seen, np.zeros(1), np.zeros(1), np.zeros(1), [{"unsafe": k % 3 == 0}])
    batch = buffer.sample(50)
    assert torch.equal(batch.costs, (batch.observations % 3 == 0).float())
    assert set(batch.observations.flatten().tolist()) == {2, 3, 4, 5}


@pytest.mark.parametrize(("limit", "action"), [(1.0, 0), (0.01, 1)])
def test_a_gamble_is_taken_if_its_harm_is_within_the_limit(limit, action):
    """The gamble harms with probability 0.1, and pays 0.2/5 more: it is worth it while λ < 0.4."""
    model = lagrangian(limit, rate=0.1)
    assert first_action(model, 2) == [action]
    assert (model.multiplier > 0.4) == (action == 1)
    with torch.no_grad():
        assert float(model.policy.cost_net(torch.eye(2)[:1])[0, 0]) == pytest.approx(0.1, abs=0.06)


def test_episodes_with_harm_are_counted_once():
    model = lagrangian(0.0, steps=150)
    assert len(model.recent) == 100  # the last ones: each episode is one step
    assert 0 < sum(model.recent) < 30


def test_a_lagrangian_model_is_the_same_with_the_same_seed_and_after_saving(tmp_path):
    model, again, other = (lagrangian(0.0, seed, steps=300) for seed in (0, 0, 1))
    model.save(tmp_path / "model.zip")
    loaded = LagrangianDQN.load(tmp_path / "model.zip", device="cpu")
    assert loaded.multiplier == model.multiplier == again.multiplier != other.multiplier
    assert loaded.limit == 0.0
    for a, b, c in zip(*(m.policy.parameters() for m in (model, again, loaded)), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


# -- reward shaping, and bad arguments --------------------------------------------------------------------------------


def test_a_penalty_is_taken_from_unsafe_steps_only():
    assert played(Penalised(Paid(4.0, -8.0, 1.0), 6.0))[1] == [4.0, -14.0, 1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda env: IQN(IQNPolicy, env, n=0), "n must be at least 1, got 0"),
        (lambda env: IQN(IQNPolicy, env, n_next=1.5), "n_next must be a whole number, got 1.5"),
        (lambda env: IQN(IQNPolicy, env, policy_kwargs={"n_quantiles": 0}), "n_quantiles must be at least 1, got 0"),
        (
            lambda env: IQN(IQNPolicy, env, policy_kwargs={"net_arch": []}),
            r"net_arch must have a hidden layer, got \[\]",
        ),
        (lambda env: IQN(IQNPolicy, env, policy_kwargs={"alpha": 2}), r"alpha must be in \(0, 1\], got 2"),
        (lambda env: StaticCVaRDQN("MlpPolicy", env, alpha=1.0), r"alpha must be in \(0, 1\), got 1"),
        (lambda env: StaticCVaRDQN("MlpPolicy", env, mean=-1), r"mean must be in \[0, inf\), got -1"),
        (lambda env: StaticCVaRDQN("MlpPolicy", env, scale=0), r"scale must be in \(0, inf\), got 0"),
        (lambda env: Owed(env, 0.0), r"gamma must be in \(0, 1\], got 0"),
        (lambda env: Owed(sr.TabularEnv(GAMBLE), 0.9), "observations of env must be vectors, got Discrete"),
        (lambda env: LagrangianDQN(LagrangianPolicy, env, limit=2), r"limit must be in \[0, 1\], got 2"),
        (lambda env: LagrangianDQN(LagrangianPolicy, env, rate=-1), r"rate must be in \[0, inf\), got -1"),
        (lambda env: Penalised(env, -1.0), r"penalty must be in \[0, inf\), got -1"),
    ],
)
def test_a_bad_argument_is_refused_in_one_line(make, message):
    with pytest.raises(sr.BadInput, match=message):
        make(Paid(1.0))


def test_costs_are_for_one_environment():
    box, two = gymnasium.spaces.Box(0, 1, (1,), np.float32), gymnasium.spaces.Discrete(2)
    with pytest.raises(sr.BadInput, match="n_envs must be 1, got 2; costs are stored for one environment"):
        CostReplayBuffer(4, box, two, n_envs=2)
