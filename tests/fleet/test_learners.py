"""The learners in JAX: their parts beside those of torch, and what they learn on worlds whose answers are known."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from sb3_contrib.common.utils import quantile_huber_loss
from scipy import stats

import safereplay as sr
from safereplay.jax import TabularWorld, make_keyed_buffer
from studies.deep import rivals
from studies.fleet import loop, qrdqn
from studies.fleet.buffers import Transition, make_count_buffer
from studies.fleet.dqn import DQN, td_errors
from studies.fleet.static import OwedWorld, static

#: One step: action 0 pays 1 or −3 (mean 0.6), action 1 pays 0.4 for sure.
GAMBLE = sr.TabularMDP.from_outcomes(
    2,
    2,
    [(0, 0, 0.9, 1, 1.0, True, False), (0, 0, 0.1, 1, -3.0, True, True), (0, 1, 1.0, 1, 0.4, True, False)],
)
SHORT = loop.Terms(steps=4_000, gamma=0.9, reward_scale=4.0, layers=(16,), batch=32)


def dials(n, v=0.0, beta=1.0, alpha=1.0):
    return loop.Dials(*(jnp.full(n, x) for x in (v, beta, alpha)))


def trained(world, learner, terms, found, n=8, seed=0):
    keys = jax.random.split(jax.random.key(seed), n)
    return jax.jit(jax.vmap(partial(loop.train, world, learner, terms, lambda params, _: 0)))(keys, found)


# -- parts -------------------------------------------------------------------------------------------------------------


def test_a_network_begins_as_one_of_torch_does():
    params = loop.network(jax.random.key(0), (100, 64, 3))
    assert [tuple(x.shape) for layer in params for x in layer] == [(100, 64), (64,), (64, 3), (3,)]
    for weights, bias in params:
        edge = weights.shape[0] ** -0.5
        assert 0.9 * edge < float(jnp.abs(weights).max()) <= edge
        assert float(jnp.abs(bias).max()) <= edge


def test_td_errors_by_hand():
    params = [(jnp.array([[1.0, 2.0], [3.0, -1.0]]), jnp.zeros(2))]  # Q(0,·) = (1, 2), Q(1,·) = (3, −1)
    seen = jnp.eye(2)
    batch = loop.Transition(
        seen[jnp.array([0, 1])],
        jnp.array([1, 0]),
        jnp.array([5.0, 7.0]),
        seen[jnp.array([1, 0])],
        jnp.array([False, True]),
    )
    np.testing.assert_allclose(td_errors(params, params, batch, 0.5, None), [5 + 0.5 * 3 - 2, 7 - 3])


@pytest.mark.parametrize("alpha", [1.0, 0.5, 0.25, 0.05])
def test_cvar_is_that_of_the_study_with_torch(alpha):
    theta = np.random.default_rng(0).normal(size=(5, qrdqn.N)).astype(np.float32)
    np.testing.assert_allclose(
        qrdqn.cvar(jnp.asarray(theta), alpha), rivals.cvar(torch.as_tensor(theta), alpha), rtol=1e-4, atol=1e-5
    )


def test_the_quantile_loss_is_that_of_sb3_contrib():
    rng = np.random.default_rng(1)
    outputs, after = (rng.normal(size=(6, 2 * qrdqn.N)).astype(np.float32) for _ in range(2))
    batch = loop.Transition(
        jnp.asarray(np.eye(6, dtype=np.float32)),
        jnp.array([0, 1, 1, 0, 1, 0]),
        jnp.asarray(rng.normal(size=6).astype(np.float32)),
        jnp.asarray(np.eye(6, dtype=np.float32)),
        jnp.array([False, False, True, False, False, True]),
    )
    params, target = ([(jnp.asarray(x), jnp.zeros(2 * qrdqn.N))] for x in (outputs, after))
    value = partial(qrdqn.loss, target=target, batch=batch, gamma=0.9, dials=loop.Dials(alpha=1.0), key=None)
    found, slope = jax.value_and_grad(value)(params)
    theta, theta_after = (x.reshape(6, 2, qrdqn.N) for x in (outputs, after))
    chosen = theta_after[np.arange(6), theta_after.mean(-1).argmax(-1)]
    wanted = np.asarray(batch.reward)[:, None] + 0.9 * np.where(np.asarray(batch.terminated)[:, None], 0.0, chosen)
    current = theta[np.arange(6), np.asarray(batch.action)]
    now = torch.tensor(current, requires_grad=True)
    theirs = quantile_huber_loss(now, torch.as_tensor(wanted.astype(np.float32)), sum_over_quantiles=True)
    theirs.backward()
    assert float(found) == pytest.approx(theirs.item(), rel=1e-5)
    ours = np.asarray(slope[0][0]).reshape(6, 2, qrdqn.N)[np.arange(6), np.asarray(batch.action)]
    np.testing.assert_allclose(ours, now.grad.numpy(), rtol=1e-5, atol=1e-7)


def test_what_is_owed_follows_the_rewards():
    world = OwedWorld(TabularWorld(GAMBLE), gamma=0.5, scale=2.0, window=(-2.0, 1.0))
    place = world.start(jax.random.key(0))
    assert -2.0 <= float(place.owed) <= 1.0
    after, reward, ended, _ = world.moved(jax.random.key(1), place._replace(owed=jnp.float32(0.5)), 1)
    assert float(after.owed) == pytest.approx((0.5 - 0.4 / 2.0) / 0.5)
    assert float(reward) == pytest.approx(0.4)
    assert ended
    np.testing.assert_allclose(world.observe(after), [0.0, 1.0, 0.6], rtol=1e-6)


@pytest.mark.parametrize(("v", "beta"), [(0.0, 2.0), (0.7, 2.0), (1.0, -3.0)])
def test_counts_of_outcomes_give_the_draws_of_the_buffer_with_keys(v, beta):
    """600 random transitions of the volatile grid: the shares of 400,000 draws, by a chi-square test of their equality at 0.001."""
    mdp = sr.grids.volatile()
    world = TabularWorld(mdp)
    rng = np.random.default_rng(0)
    pair = rng.choice(np.flatnonzero(np.diff(mdp.row)), 600)
    k = (mdp.row[pair] + rng.integers(1 << 30, size=600) % np.diff(mdp.row)[pair]).astype(int)
    columns = pair // 4, pair % 4, (mdp.r[k] / 7.0).astype(np.float32), mdp.s_next[k], mdp.terminal[k]
    stored = Transition(*(jnp.asarray(x) for x in columns))
    one = jax.tree.map(lambda x: x[0], stored)
    keyed = make_keyed_buffer(
        600,
        sample_batch_size=64,
        n_pairs=mdp.n_pairs,
        pair=lambda t: t.place * 4 + t.action,
        x=lambda t: t.reward,
        add_batches=True,
    )
    counted = make_count_buffer(world, 64, 7.0)
    memories = (
        keyed.add(keyed.init(one), stored),
        jax.lax.scan(lambda m, t: (counted.add(m, t), None), counted.init(one), stored)[0],
    )
    keys = jax.random.split(jax.random.key(1), 6_250)
    found = []
    for buffer, memory in zip((keyed, counted), memories, strict=True):
        drawn = jax.jit(jax.vmap(lambda key, m=memory, b=buffer: b.sample(m, key, v, beta)))(keys)
        t = jax.tree.map(np.asarray, drawn.experience)
        names = (
            np.stack([t.place, t.action, np.round(1e3 * t.reward), t.after, t.terminated], -1)
            .reshape(-1, 5)
            .astype(int)
        )
        found.append((names, drawn.tilted.mean()))
    (a, tilted), (b, as_often) = found
    distinct, which = np.unique(np.concatenate([a, b]), axis=0, return_inverse=True)
    table = np.stack(
        [np.bincount(which[: len(a)], minlength=len(distinct)), np.bincount(which[len(a) :], minlength=len(distinct))]
    )
    assert stats.chi2_contingency(table).pvalue > 0.001
    assert abs(float(tilted) - float(as_often)) < 0.005


# -- learning ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learner", "replay", "found", "action"),
    [
        (DQN, "plain", dials(8), 0),
        (DQN, "shaped", dials(8, v=0.8), 1),
        (DQN, "keyed", dials(8, v=0.9, beta=4.0), 1),
        (qrdqn.QRDQN, "plain", dials(8), 0),
        (qrdqn.QRDQN, "plain", dials(8, alpha=0.25), 1),
    ],
)
def test_eight_networks_learn_the_gamble_or_avoid_it(learner, replay, found, action):
    """The mean prefers the gamble, by 0.2; every cautious learner refuses it. All 8 seeds agree."""
    world = TabularWorld(GAMBLE)
    scale = 0.4 if learner is qrdqn.QRDQN else 4.0
    made = trained(world, learner, SHORT._replace(replay=replay, reward_scale=scale), found)
    chosen = jax.vmap(lambda params, d: learner.act(params, jnp.eye(2)[0], d))(made.params, found)
    assert chosen.tolist() == [action] * 8


@pytest.mark.slow
def test_static_cvar_is_told_by_alpha_after_training():
    """One training serves all α: at least 7 of 8 networks take the gamble at α = 0.95, whose CVaR is 0.58, and refuse it at 0.25, where it is −0.6."""
    learner, world = static(TabularWorld(GAMBLE), SHORT.gamma, 4.0)
    made = trained(world, learner, SHORT._replace(layers=(64, 64), steps=8_000), dials(8))
    for alpha, action in ((0.95, 0), (0.25, 1)):

        def first(params, d):
            place = learner.begin(params, world.start(jax.random.key(0)), d)
            return learner.act(params, world.observe(place), d)

        chosen = jax.vmap(first)(made.params, dials(8, alpha=alpha))
        assert (chosen == action).sum() >= 7


@pytest.mark.slow
def test_judged_episodes_have_the_exact_risk():
    """300 episodes of 16 networks each: P(unsafe) and the mean return within 4 standard errors of sr.evaluate."""
    mdp = sr.grids.cliff()
    world, judged = TabularWorld(mdp), TabularWorld(mdp.with_start(mdp.origin))
    terms = loop.Terms(steps=8_000)
    made = trained(world, DQN, terms, dials(16), n=16)
    found = jax.vmap(partial(loop.judge, judged, DQN))(made.params, jax.random.split(jax.random.key(1), 16), dials(16))
    policies = jax.vmap(lambda params: DQN.act(params, jnp.eye(24), None))(made.params)
    for k, policy in enumerate(np.asarray(policies)):
        exact = sr.evaluate(mdp, policy, start=mdp.origin, quiet=True)
        if exact.p_never == 0.0:
            se = np.sqrt(exact.p_unsafe * (1 - exact.p_unsafe) / 300)
            assert abs(float(found.p_unsafe[k]) - exact.p_unsafe) <= 4 * se + 1e-9
            assert abs(float(found.mean[k]) - exact.mean) <= 4 * exact.std / np.sqrt(300)


@pytest.mark.slow
def test_the_trail_has_what_happened_between_copies():
    terms = SHORT._replace(target_every=500)
    made = trained(TabularWorld(GAMBLE), DQN, terms, dials(2), n=2)
    trail = jax.tree.map(np.asarray, made.trail)
    assert trail.reward.shape == (2, 7)
    assert (trail.ends == 500).all()  # every step ends an episode
    assert -3.0 < trail.reward.min() < trail.reward.max() < 1.0
    assert trail.unsafe.sum() > 0
