import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_models import random_model

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.theory import risk as risks
from safereplay.theory.chain import chain_of
from safereplay.theory.occupancy import Limit

INF = math.inf
COIN = [(0, 0, 0.25, 0, -1.0, False, True), (0, 0, 0.75, 1, 2.0, True, False)]
#: Laps 0 → 1 → 0 of total −1 and probability 1/6; ends with 0 from state 0 (unsafe), with 1 + 3 from state 1.
LAPS = [
    (0, 0, 1 / 2, 2, 0.0, True, True),
    (0, 0, 1 / 2, 1, 1.0, False, False),
    (1, 0, 1 / 3, 0, -2.0, False, False),
    (1, 0, 2 / 3, 2, 3.0, True, False),
]
SCALARS = ("mean", "std", "p_unsafe", "p_never", "length", "worst")


def model(n_states, rows, gamma=0.9):
    return sr.TabularMDP.from_outcomes(n_states, 1, rows, gamma=gamma)


def coin():
    """Stay for −1 with probability ¼, else end for 2: a geometric number of losses."""
    return model(2, COIN)


def greedy(mdp):
    return sr.exact(mdp, sr.QLearning()).argmax(1)


def frozen_lake(size="4x4"):
    return sr.TabularMDP.from_gymnasium("FrozenLake-v1", gamma=0.95, map_name=size, is_slippery=True)


def sample_returns(mdp, policy, episodes, start=None, *, discounted=False, seed=0, max_steps=10_000):
    """Episodes of a policy, sampled."""
    begin = (mdp if start is None else mdp.with_start(start)).start
    return chain_of(mdp, policy).play(begin, mdp.gamma if discounted else 1.0, episodes, max_steps, seed, None, True)


def tail_mean(returns, probabilities, alpha):
    """CVaR as in the textbook: take from the lowest return upwards until α is used up."""
    left, total = alpha, 0.0
    for p, x in sorted(zip(probabilities, returns, strict=True), key=lambda pair: pair[1]):
        total += min(p, left) * x
        left -= min(p, left)
    return total / alpha


# -- closed forms -----------------------------------------------------------------------------------------------------


def test_a_geometric_chain_has_its_closed_forms():
    """G = 2 − n with n geometric; CVaR at 0.1 is all of n ≥ 2 and a part of n = 1."""
    risk = sr.evaluate(coin(), [0, 0], start=0)
    q, p = 0.25, 0.75
    assert risk.mean == pytest.approx(2 - q / p, abs=1e-12)
    assert risk.std == pytest.approx(math.sqrt(q) / p, abs=1e-12)
    assert risk.p_unsafe == pytest.approx(q, abs=1e-12)
    assert risk.length == pytest.approx(1 / p, abs=1e-12)
    assert (risk.p_never, risk.worst) == (0.0, -INF)
    below = 2 * q**2 - q**2 * (2 + q / p)
    assert risk.cvar(0.1) == pytest.approx((below + (0.1 - q**2) * 1.0) / 0.1, abs=1e-12)
    assert [risk.quantile(x) for x in (q**3, q**2, q**2 + 1e-6, q, 0.5, 1.0)] == [-1.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert risk.distribution.exact
    np.testing.assert_allclose(risk.distribution.probabilities[::-1][:12], p * q ** np.arange(12), rtol=1e-9)
    np.testing.assert_array_equal(risk.distribution.returns[::-1][:12], 2.0 - np.arange(12))


def test_a_discounted_chain_has_its_closed_forms():
    """G = a + b·γⁿ with n geometric, a = −1/(1−γ), b = 2 − a."""
    risk = sr.evaluate(coin(), [0, 0], start=0, discounted=True)
    q, p, gamma = 0.25, 0.75, 0.9
    a, b = -1 / (1 - gamma), 2 + 1 / (1 - gamma)
    power, square = p / (1 - q * gamma), p / (1 - q * gamma**2)  # E[γⁿ], E[γ²ⁿ]
    assert risk.mean == pytest.approx(a + b * power, abs=1e-12)
    assert risk.std == pytest.approx(b * math.sqrt(square - power**2), abs=1e-12)
    assert risk.worst == pytest.approx(a, abs=1e-12)
    assert (risk.p_never, risk.p_unsafe) == (0.0, pytest.approx(q, abs=1e-12))
    assert risk.length == pytest.approx(1 / p, abs=1e-12)
    below = a * q**2 + b * p * (q * gamma) ** 2 / (1 - q * gamma)
    assert risk.distribution.exact
    assert risk.cvar(0.1) == pytest.approx((below + (0.1 - q**2) * (a + b * gamma)) / 0.1, abs=1e-12)
    for x, n in ((q**3, 3), (q**2, 2), (q, 1), (0.3, 0), (1.0, 0)):
        assert risk.quantile(x) == pytest.approx(a + b * gamma**n, abs=1e-12)


@pytest.mark.parametrize("discounted", [False, True])
def test_a_chain_of_three_states_has_its_closed_forms(discounted):
    """n laps and an end at 0 or at 1: returns and their probabilities as series, cut off after 60 laps (1e-47)."""
    gamma = 0.9 if discounted else 1.0
    risk = sr.evaluate(model(3, LAPS), [0, 0, 0], start=0, discounted=discounted)
    n = np.arange(60)
    lap = (1 - 2 * gamma) * np.cumsum(np.concatenate(([0.0], gamma ** (2 * n[:-1]))))
    returns = np.concatenate((lap, lap + gamma ** (2 * n) * (1 + 3 * gamma)))
    probabilities = np.concatenate(((1 / 6) ** n / 2, (1 / 6) ** n / 3))
    mean = float(returns @ probabilities)
    assert risk.mean == pytest.approx(mean, abs=1e-12)
    assert risk.std == pytest.approx(math.sqrt((returns - mean) ** 2 @ probabilities), abs=1e-12)
    assert risk.p_unsafe == pytest.approx(3 / 5, abs=1e-12)
    assert risk.length == pytest.approx(9 / 5, abs=1e-12)
    assert risk.p_never == 0.0
    assert risk.worst == (pytest.approx(-0.8 / 0.19, abs=1e-12) if discounted else -INF)
    assert risk.distribution.exact
    for alpha in (0.01, 0.1, 0.5, 0.9, 1.0):
        assert risk.cvar(alpha) == pytest.approx(tail_mean(returns, probabilities, alpha), abs=1e-12)
        order = np.argsort(returns)
        k = np.searchsorted(np.cumsum(probabilities[order]), alpha - 1e-12)
        assert risk.quantile(alpha) == pytest.approx(returns[order][min(k, 119)], abs=1e-12)


def test_the_moments_of_three_states_by_hand():
    """Laps are geometric with ratio 1/6, and the end is independent of them: 0 with 3/5, 4 with 2/5."""
    risk = sr.evaluate(model(3, LAPS), [0, 0, 0], start=0)
    assert risk.mean == pytest.approx(-1 / 5 + 8 / 5, abs=1e-12)
    assert risk.std**2 == pytest.approx((1 / 6) / (25 / 36) + 16 * 6 / 25, abs=1e-12)


def test_quantiles_and_cvar_of_three_gambles_by_hand():
    mdp = sr.grids.volatile()
    risk = sr.evaluate(mdp, [1] * 20, start=mdp.origin)
    np.testing.assert_allclose(risk.distribution.returns, [-150, 50, 250, 450])
    np.testing.assert_allclose(risk.distribution.probabilities, [0.064, 0.288, 0.432, 0.216], atol=1e-12)
    assert risk.p_unsafe == pytest.approx(1 - 0.6**3, abs=1e-12)
    assert risk.cvar(0.1) == pytest.approx((0.064 * -150 + 0.036 * 50) / 0.1)
    assert risk.cvar(1.0) == pytest.approx(210.0)
    assert [risk.quantile(q) for q in (0.05, 0.064, 0.3, 0.5, 1.0)] == [-150, -150, 50, 250, 450]
    assert (risk.worst, risk.cvar_error(0.1), risk.distribution.error) == (-150.0, 0.0, 0.0)


def test_a_mixed_policy_has_the_risk_of_its_mixture():
    """A sure 1, or a gamble for ±2, tossed for with ¾ and ¼; then it is over."""
    rows = [(0, 0, 1.0, 1, 1.0, True), (0, 1, 0.5, 1, 2.0, True), (0, 1, 0.5, 1, -2.0, True, True)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, rows)
    risk = sr.evaluate(mdp, [[0.75, 0.25], [0.0, 0.0]])
    assert risk.mean == pytest.approx(0.75, abs=1e-12)
    assert risk.std == pytest.approx(math.sqrt(0.75 + 0.25 * 4 - 0.75**2), abs=1e-12)
    assert (risk.p_unsafe, risk.worst) == (pytest.approx(0.125, abs=1e-12), -2.0)
    np.testing.assert_allclose(risk.distribution.probabilities, [0.125, 0.75, 0.125], atol=1e-14)
    assert sr.evaluate(mdp, [[1.0, 0.0], [1.0, 0.0]]).worst == 1.0


def test_a_small_spread_around_a_large_mean_is_not_lost_to_rounding():
    rows = [(0, 0, 0.5, 1, 1e9 + 0.25, True), (0, 0, 0.5, 1, 1e9 - 0.25, True)]
    assert sr.evaluate(model(2, rows), [0, 0]).std == 0.25


def test_a_chance_too_small_to_matter_is_still_not_none():
    """Harm, and no end, each once in 1e15 episodes."""
    rows = [(0, 0, 1.0 - 2e-15, 1, 0.0, True), (0, 0, 1e-15, 1, 0.0, True, True), (0, 0, 1e-15, 2, 0.0, False)]
    risk = sr.evaluate(model(3, [*rows, (2, 0, 1.0, 2, 0.0, False)]), [0, 0, 0], start=0)
    assert risk.p_unsafe == pytest.approx(1e-15, rel=1e-6)
    assert risk.p_never == pytest.approx(1e-15, rel=1e-6)
    assert risk.length == INF


# -- by simulation ----------------------------------------------------------------------------------------------------

GRIDS = {
    "volatile": sr.grids.volatile,
    "cliff": sr.grids.cliff,
    "FrozenLake": frozen_lake,
    "own": lambda: sr.grids.from_map("S.>..\n.#X.^\n..v.G", slip=0.3, slip_to="others", fall_ends=False, step=-0.5),
}


def assert_within_four_standard_errors(risk, returns, lengths, unsafe):
    n = returns.size
    spread = (returns - risk.mean) ** 2
    assert abs(returns.mean() - risk.mean) <= 4 * risk.std / math.sqrt(n)
    assert abs(spread.mean() - risk.std**2) <= 4 * spread.std() / math.sqrt(n)
    assert abs(unsafe.mean() - risk.p_unsafe) <= 4 * math.sqrt(risk.p_unsafe * (1 - risk.p_unsafe) / n)
    assert abs(lengths.mean() - risk.length) <= 4 * lengths.std() / math.sqrt(n)


@pytest.mark.parametrize("discounted", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", GRIDS)
def test_a_million_sampled_episodes_agree_with_the_equations(name, discounted):
    """Seed 1, 1,000,000 episodes: mean, variance, P(unsafe) and length within 4 standard errors."""
    mdp = GRIDS[name]()
    policy = greedy(mdp)
    played = sample_returns(mdp, policy, 1_000_000, discounted=discounted, seed=1, max_steps=100_000)
    assert played.ended.all()
    risk = sr.evaluate(mdp, policy, discounted=discounted)
    assert_within_four_standard_errors(risk, played.returns, played.lengths, played.unsafe)


def played_in_numpy(mdp, pi, episodes, seed):
    """Whole episodes side by side: an action from π, an outcome from its row, until all have ended."""
    generator = np.random.default_rng(seed)
    s = generator.choice(mdp.n_states, episodes, p=mdp.start)
    alive, returns = np.arange(episodes), np.zeros(episodes)
    lengths, unsafe = np.zeros(episodes, int), np.zeros(episodes, bool)
    behind = np.concatenate(([0.0], np.cumsum(mdp.p)))
    while alive.size:
        a = (generator.random(s.size)[:, None] > np.cumsum(pi[s], 1)[:, :-1]).sum(1)
        i = s * mdp.n_actions + a
        low, high = mdp.row[i], mdp.row[i + 1]
        k = np.searchsorted(behind, behind[low] + generator.random(s.size), side="right") - 1
        k = np.clip(k, low, high - 1)
        returns[alive] += mdp.r[k]
        lengths[alive] += 1
        unsafe[alive] |= mdp.unsafe[k]
        alive, s = alive[~mdp.terminal[k]], mdp.s_next[k][~mdp.terminal[k]]
    return returns, lengths, unsafe


@pytest.mark.parametrize("mixed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_million_episodes_of_another_sampler_agree_with_the_equations(mixed):
    """Plain numpy on the cliff, seed 2, 1,000,000 episodes: within 4 standard errors; sure and mixed policies."""
    mdp = sr.grids.cliff()
    pi = np.eye(4)[greedy(mdp)]
    pi = 0.7 * pi + 0.3 / 4 if mixed else pi
    assert_within_four_standard_errors(sr.evaluate(mdp, pi), *played_in_numpy(mdp, pi, 1_000_000, seed=2))


def storm_unsafe(mdp, policy):
    """P(an unsafe outcome ever happens) by state, by the model checker Storm: unsafe outcomes lead to a state of their own."""
    stormpy = pytest.importorskip("stormpy", reason="the model checker Storm is not installed")
    n, ended, harmed = mdp.n_states + 2, mdp.n_states, mdp.n_states + 1
    P = np.zeros((n, n))
    for s in np.flatnonzero(~mdp.is_terminal):
        outcomes = mdp.outcomes(int(s), int(policy[s]))
        np.add.at(
            P[s], np.where(outcomes.unsafe, harmed, np.where(outcomes.terminal, ended, outcomes.s_next)), outcomes.p
        )
    stays = np.flatnonzero(P.sum(1) == 0)
    P[stays, stays] = 1.0
    builder = stormpy.SparseMatrixBuilder(n, n)
    for i, j in np.argwhere(P > 0):
        builder.add_next_value(int(i), int(j), float(P[i, j]))
    labels = stormpy.StateLabeling(n)
    for label, s in (("init", 0), ("unsafe", harmed)):
        labels.add_label(label)
        labels.add_label_to_state(label, s)
    chain = stormpy.SparseDtmc(stormpy.SparseModelComponents(builder.build(), labels))
    environment = stormpy.Environment()  # a direct solver: Storm's default stops iterating at 1e-6
    environment.solver_environment.set_linear_equation_solver_type(stormpy.EquationSolverType.eigen)
    formula = stormpy.parse_properties('P=? [F "unsafe"]')[0]
    return np.array(stormpy.model_checking(chain, formula, environment=environment).get_values())[:-2]


@pytest.mark.parametrize("make", [lambda: frozen_lake("8x8"), sr.grids.volatile, sr.grids.cliff])
def test_the_chance_of_harm_is_that_of_a_model_checker(make):
    mdp = make()
    for policy in (greedy(mdp), np.ones(mdp.n_states, int)):
        found = sr.evaluate(mdp, policy)
        expected = storm_unsafe(mdp, policy)
        assert expected.max() > 0.1
        np.testing.assert_allclose(found.per_state.p_unsafe, expected, atol=1e-8)
        assert found.p_unsafe == pytest.approx(float(mdp.start @ expected), abs=1e-8)


@pytest.mark.slow
def test_a_hundred_thousand_states_are_no_trouble():
    """A 316×316 grid with slip 0.2, down and right in turn: seed 1, 40,000 episodes, within 4 standard errors."""
    n = 316
    lines = [list("." * n) for _ in range(n)]
    lines[0][0], lines[-1][-1], lines[n // 2][n // 2] = "S", "G", "X"
    mdp = sr.grids.from_map("\n".join("".join(line) for line in lines), slip=0.2, start="S")
    row, column = np.array(mdp.layout.cells).T
    policy = np.where(column == n - 1, 2, np.where(row == n - 1, 1, np.where((row + column) % 2, 2, 1)))
    risk = sr.evaluate(mdp, policy)
    played = sample_returns(mdp, policy, 40_000, seed=1)
    assert_within_four_standard_errors(risk, played.returns, played.lengths, played.unsafe)
    assert (risk.worst, risk.p_never) == (-INF, 0.0)
    assert sr.evaluate(mdp, policy, discounted=True).worst == pytest.approx(-10.0, abs=1e-9)


# -- by state ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("discounted", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_values_by_state_are_those_of_starting_there(seed, discounted):
    mdp = random_model(seed)
    policy = np.random.default_rng(seed).integers(0, 3, 6)
    by_state = sr.evaluate(mdp, policy, discounted=discounted).per_state
    for s in range(5):
        risk = sr.evaluate(mdp, policy, start=s, discounted=discounted)
        for name in SCALARS:
            assert getattr(by_state, name)[s] == pytest.approx(getattr(risk, name), abs=1e-12, nan_ok=True)
    assert [getattr(by_state, name)[5] for name in SCALARS] == [0.0] * 6
    assert repr(by_state) == "PerState(mean, std, p_unsafe, p_never, length, worst of 6 states)"


def test_a_start_in_many_states_mixes_what_they_give():
    mdp = sr.grids.cliff()
    risk = sr.evaluate(mdp, greedy(mdp))
    by_state = risk.per_state
    assert risk.mean == pytest.approx(float(mdp.start @ by_state.mean), abs=1e-12)
    second = float(mdp.start @ (by_state.std**2 + by_state.mean**2))
    assert risk.std == pytest.approx(math.sqrt(second - risk.mean**2), abs=1e-9)
    assert risk.worst == by_state.worst[mdp.start > 0].min()


# -- never ending -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "action"), [(sr.grids.volatile, 3), (lambda: sr.grids.cliff(slip=0.0), 0)])
def test_a_policy_that_never_ends_is_answered_on_both_grids(make, action):
    """Against the wall for ever, for −1 per step: nothing is left to sample."""
    mdp = make()
    risk = sr.evaluate(mdp, [action] * mdp.n_states, start=mdp.origin)
    assert (risk.p_never, risk.mean, risk.length, risk.worst, risk.cvar(0.1)) == (1.0, -INF, INF, -INF, -INF)
    assert math.isnan(risk.std)
    assert (risk.quantile(0.5), risk.p_unsafe) == (-INF, 0.0)
    assert risk.distribution.exact
    assert risk.to_dict()["mean"] is None
    discounted = sr.evaluate(mdp, [action] * mdp.n_states, start=mdp.origin, discounted=True)
    forever = -1.0 / (1.0 - mdp.gamma)
    for value in (discounted.mean, discounted.worst, discounted.cvar(0.1), discounted.quantile(0.5)):
        assert value == pytest.approx(forever, abs=1e-10)
    assert discounted.distribution.exact


def test_a_policy_that_hardly_ever_ends_is_answered():
    """Up against the wall on a cliff with slip 0.3: every episode ends, after some 2,000 steps; exact, and seed 1, n = 4,000."""
    mdp = sr.grids.cliff(slip=0.3)
    risk = sr.evaluate(mdp, [0] * 24, start=mdp.origin)
    assert risk.p_never == 0.0
    assert 1_000 < risk.length < 10_000
    played = sample_returns(mdp, [0] * 24, 4_000, start=mdp.origin, seed=1, max_steps=1_000_000)
    assert_within_four_standard_errors(risk, played.returns, played.lengths, played.unsafe)
    found = risk.distribution
    assert found.exact
    assert float(found.returns @ found.probabilities) == pytest.approx(risk.mean, rel=1e-9)
    low = np.sort(played.returns)[:400]
    assert (
        abs(low.mean() - risk.cvar(0.1)) < 4 * low.std() / math.sqrt(400) * 2
    )  # twice: the quantile is sampled as well


def test_a_policy_that_may_never_end_gives_the_probability():
    rows = [(0, 0, 0.3, 1, 0.0, True, False), (0, 0, 0.7, 2, 0.0, False, False), (2, 0, 1.0, 2, -1.0, False, False)]
    risk = sr.evaluate(model(3, rows), [0, 0, 0], start=0)
    assert risk.p_never == pytest.approx(0.7, abs=1e-12)
    assert (risk.mean, risk.worst) == (-INF, -INF)
    np.testing.assert_array_equal(risk.distribution.returns, [-INF, 0.0])
    np.testing.assert_allclose(risk.distribution.probabilities, [0.7, 0.3], atol=1e-12)
    assert [risk.quantile(q) for q in (0.1, 0.7, 0.71)] == [-INF, -INF, 0.0]
    assert (risk.cvar(0.1), risk.cvar_error(0.1)) == (-INF, 0.0)


def test_a_policy_that_gains_for_ever_has_a_tail_that_does_not():
    rows = [(0, 0, 0.3, 1, 4.0, True, False), (0, 0, 0.7, 2, 0.0, False, False), (2, 0, 1.0, 2, 1.0, False, False)]
    risk = sr.evaluate(model(3, rows), [0, 0, 0], start=0)
    assert (risk.mean, risk.worst, risk.cvar(0.3), risk.cvar(0.4), risk.quantile(0.3)) == (INF, 4.0, 4.0, INF, 4.0)


def test_sums_that_go_up_and_down_for_ever_have_no_mean():
    rows = [(0, 0, 1.0, 1, 1.0, False), (1, 0, 1.0, 0, -1.0, False)]
    risk = sr.evaluate(model(2, rows), [0, 0], start=0)
    for value in (risk.mean, risk.std, risk.cvar(0.1), risk.quantile(0.5), risk.cvar_error(0.1)):
        assert math.isnan(value)
    assert (risk.worst, risk.p_never) == (0.0, 1.0)
    assert risk.to_dict()["cvar10"] is None


def test_gains_and_losses_for_ever_have_no_mean_together():
    rows = [
        (0, 0, 0.5, 1, 0.0, False),
        (0, 0, 0.5, 2, 0.0, False),
        (1, 0, 1.0, 1, 1.0, False),
        (2, 0, 1.0, 2, -1.0, False),
    ]
    risk = sr.evaluate(model(3, rows), [0, 0, 0], start=0)
    assert math.isnan(risk.mean)
    assert (risk.cvar(0.1), risk.quantile(0.5), risk.quantile(0.6)) == (-INF, -INF, INF)
    assert math.isnan(sr.evaluate(model(3, rows), [0, 0, 0], start=[0.0, 0.5, 0.5]).mean)


def test_a_policy_that_never_ends_for_nothing_returns_what_it_had():
    """Half of the episodes end with 1, half pay 5 once and then walk to and fro for 0 forever."""
    rows = [
        (0, 0, 0.5, 1, 1.0, True),
        (0, 0, 0.5, 2, 0.0, False),
        (2, 0, 1.0, 3, -5.0, False),
        (3, 0, 1.0, 3, 0.0, False),
    ]
    risk = sr.evaluate(model(4, rows), [0] * 4, start=0)
    assert (risk.mean, risk.p_never, risk.length, risk.worst) == (-2.0, 0.5, INF, -5.0)
    assert risk.std == pytest.approx(3.0)
    assert risk.cvar(0.5) == -5.0
    np.testing.assert_allclose(risk.distribution.returns, [-5.0, 1.0])
    np.testing.assert_allclose(risk.distribution.probabilities, [0.5, 0.5])


def test_what_the_start_cannot_reach_does_not_count():
    rows = [(0, 0, 1.0, 1, 1.0, True, False), (2, 0, 1.0, 2, -1.0, False, False)]
    risk = sr.evaluate(model(3, rows), [0, 0, 0], start=0)
    assert (risk.mean, risk.p_never, risk.length, risk.worst) == (1.0, 0.0, 1.0, 1.0)


# -- the distribution -------------------------------------------------------------------------------------------------


@st.composite
def small_models(draw):
    """Two to five states with one to three outcomes each, rewards on a lattice or not; state 0 is the start."""
    n = draw(st.integers(2, 5))
    reward = draw(
        st.sampled_from([st.integers(-3, 3), st.sampled_from([-0.1, 0.25, 1 / 3]), st.sampled_from([-1, 2**0.5])])
    )
    outcome = st.tuples(st.integers(1, 4), st.integers(0, n - 1), reward, st.booleans(), st.booleans())
    rows = []
    for s in range(n):
        outcomes = draw(st.lists(outcome, min_size=1, max_size=3))
        total = sum(weight for weight, *_ in outcomes)
        rows += [(s, 0, weight / total, t, float(r), end, bad) for weight, t, r, end, bad in outcomes]
    return model(n, rows, gamma=draw(st.sampled_from([0.5, 0.8])))


@given(small_models(), st.booleans())
def test_a_distribution_sums_to_one_and_has_the_moments_of_the_equations(mdp, discounted):
    risk = sr.evaluate(mdp, [0] * mdp.n_states, start=0, discounted=discounted)
    x, p = risk.distribution[:2]
    assert float(p.sum()) == pytest.approx(1.0, abs=1e-12)
    assert (p > 0).all()
    if not np.isnan(x).any():
        assert (np.diff(x) > 0).all()
        quantiles = [risk.quantile(q) for q in (0.01, 0.1, 0.5, 0.9, 1.0)]
        assert quantiles == sorted(quantiles)
        tails = [risk.cvar(alpha) for alpha in (0.01, 0.1, 0.5, 1.0)]
        slack = 1e-9 if risk.distribution.exact else 4 * risk.std / math.sqrt(max(1, risk.distribution.samples)) + 1e-9
        assert all(a <= b + 1e-9 for a, b in pairwise(tails))
        assert tails[-1] <= risk.mean + slack or math.isnan(risk.mean)
        assert risk.worst <= quantiles[0] + 1e-9
    if risk.distribution.exact and math.isfinite(risk.mean):
        assert float(x @ p) == pytest.approx(risk.mean, abs=1e-9)
        assert float((x - risk.mean) ** 2 @ p) == pytest.approx(risk.std**2, abs=1e-8)


@pytest.mark.parametrize("make", [sr.grids.cliff, frozen_lake, lambda: sr.grids.volatile(slip=0.2)])
def test_the_distribution_has_the_moments_of_the_equations(make):
    mdp = make()
    risk = sr.evaluate(mdp, greedy(mdp))
    x, p, exact, error, samples, cut, rest = risk.distribution
    assert (exact, error, samples, rest) == (True, 0.0, 0, 0.0)
    assert 0.0 <= cut <= 1e-14
    assert float(x @ p) == pytest.approx(risk.mean, abs=1e-9)
    assert math.sqrt(float((x - risk.mean) ** 2 @ p)) == pytest.approx(risk.std, abs=1e-7)


def test_both_exact_ways_give_the_same(monkeypatch):
    """On the cliff: carried over a lattice, and enumerated when that is forbidden."""
    mdp = sr.grids.cliff()
    carried = sr.evaluate(mdp, greedy(mdp)).distribution
    monkeypatch.setattr(risks, "MAX_WORK", 0.0)
    listed = sr.evaluate(mdp, greedy(mdp)).distribution
    assert carried.exact
    assert listed.exact
    seen = np.searchsorted(listed.returns, carried.returns[carried.probabilities > 1e-14])
    np.testing.assert_allclose(listed.returns[seen], carried.returns[carried.probabilities > 1e-14], atol=1e-9)
    np.testing.assert_allclose(
        listed.probabilities[seen], carried.probabilities[carried.probabilities > 1e-14], atol=1e-13
    )


@pytest.mark.parametrize("fall_ends", [True, False])
def test_where_every_step_has_one_reward_the_distribution_by_length_is_the_one_carried(monkeypatch, fall_ends):
    """14×14; a fall that does not end the episode is a step with another reward, which only the lattice can follow."""
    mdp = sr.grids.cliff(layout="\n".join(["." * 14] * 13 + ["S" + "X" * 12 + "G"]), fall_ends=fall_ends)
    policy = sr.exact(mdp, sr.QLearning()).argmax(1)
    tried, by_length = [], risks._by_length
    monkeypatch.setattr(risks, "_by_length", lambda *a: tried.append(by_length(*a)) or tried[-1])
    first = sr.evaluate(mdp, policy).distribution
    assert (tried[0] is not None) == fall_ends
    monkeypatch.setattr(risks, "_by_length", lambda *_: None)
    second = sr.evaluate(mdp, policy).distribution
    assert first.exact
    np.testing.assert_array_equal(first.returns, second.returns)
    np.testing.assert_allclose(first.probabilities, second.probabilities, rtol=1e-10, atol=1e-17)
    assert first.cut <= risks.RESIDUE


def test_rewards_without_a_common_unit_are_enumerated_while_they_are_few():
    rows = [(0, 0, 0.5, 1, math.sqrt(2.0), True, False), (0, 0, 0.5, 1, 1.0, True, False)]
    risk = sr.evaluate(model(2, rows), [0, 0], start=0)
    assert risk.distribution.exact
    assert risk.distribution.returns.tolist() == [1.0, math.sqrt(2.0)]
    assert risk.cvar(0.4) == 1.0


def test_a_reward_too_large_for_a_lattice_is_no_trouble():
    rows = [(0, 0, 0.5, 0, 1e100, False), (0, 0, 0.25, 1, 1 / 997, True), (0, 0, 0.25, 1, 1 / 991, True)]
    found = sr.evaluate(model(2, rows), [0, 0], start=0).distribution
    assert found.exact
    np.testing.assert_allclose(found.returns[:3], [1 / 997, 1 / 991, 1e100])


def gaussian():
    """A random model whose rewards share no unit, with too many returns to list."""
    mdp, generator = random_model(3), np.random.default_rng(0)
    s, a = np.divmod(mdp.pair, mdp.n_actions)
    r = mdp.r + generator.normal(size=mdp.r.size)
    return sr.TabularMDP.from_outcomes(6, 3, np.column_stack([s, a, mdp.p, mdp.s_next, r, mdp.terminal, mdp.unsafe]))


@pytest.mark.parametrize("discounted", [False, True])
def test_what_cannot_be_listed_is_sampled_and_said_to_be(discounted):
    risk = sr.evaluate(gaussian(), [0] * 6, start=0, discounted=discounted)
    found = risk.distribution
    assert not found.exact
    assert found.samples >= 100_000
    assert found.error == pytest.approx(math.sqrt(math.log(2_000.0) / (2 * found.samples)), rel=1e-12)
    assert found.cut == 0.0
    assert float(found.returns @ found.probabilities) == pytest.approx(
        risk.mean, abs=4 * risk.std / math.sqrt(found.samples)
    )
    shown = risk.to_dict()
    assert shown["exact"] is False
    assert shown["error"] == found.error
    assert shown["cvar_error"] == risk.cvar_error(0.1) > 0.0


@pytest.fixture
def only_sampled(monkeypatch):
    """Forbid both exact ways, and make samples few."""
    for name, value in (("MAX_WORK", 0.0), ("MAX_PAIRS", 0), ("MAX_SAMPLES", 20_000)):
        monkeypatch.setattr(risks, name, value)


def test_a_sampled_distribution_is_within_its_error_of_the_exact_one(only_sampled, monkeypatch):
    """The cliff, seeds 0 to 49 with 20,000 episodes each: every one inside the 99.9 % band, and most of it is used."""
    mdp = sr.grids.cliff()
    sampled = [sr.evaluate(mdp, greedy(mdp), seed=seed).distribution for seed in range(50)]
    monkeypatch.undo()
    exact = sr.evaluate(mdp, greedy(mdp)).distribution
    assert exact.exact
    gaps = []
    for found in sampled:
        assert not found.exact
        below = np.concatenate(([0.0], np.cumsum(found.probabilities)))
        at = below[np.searchsorted(found.returns, exact.returns + 1e-9, side="right")]
        gaps.append(float(np.abs(at - np.cumsum(exact.probabilities)).max()))
    assert max(gaps) <= sampled[0].error
    assert max(gaps) >= 0.3 * sampled[0].error


def test_the_standard_error_of_cvar_is_how_far_it_spreads_over_seeds(only_sampled, monkeypatch):
    """The cliff, seeds 0 to 99, 20,000 episodes each: the spread of 100 estimates is known to 7 %, asked to 25 %."""
    mdp = sr.grids.cliff()
    sampled = [sr.evaluate(mdp, greedy(mdp), seed=seed) for seed in range(100)]
    values, errors = [risk.cvar(0.2) for risk in sampled], [risk.cvar_error(0.2) for risk in sampled]
    monkeypatch.undo()
    exact = sr.evaluate(mdp, greedy(mdp))
    assert np.mean(errors) == pytest.approx(np.std(values, ddof=1), rel=0.25)
    assert np.mean(values) == pytest.approx(exact.cvar(0.2), abs=4 * np.mean(errors) / math.sqrt(100))
    assert exact.cvar_error(0.2) == 0.0


def test_a_sample_keeps_the_true_chance_of_what_is_not_finite(only_sampled):
    rows = [
        (0, 0, 0.3, 1, 0.0, True),
        (0, 0, 0.3, 1, 1.0, True),
        (0, 0, 0.4, 2, 0.0, False),
        (2, 0, 1.0, 2, -1.0, False),
    ]
    found = sr.evaluate(model(3, rows), [0, 0, 0], start=0).distribution
    assert not found.exact
    np.testing.assert_array_equal(found.returns, [-INF, 0.0, 1.0])
    assert found.probabilities[0] == pytest.approx(0.4, abs=1e-12)
    assert found.probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.samples < 20_000
    assert found.error == pytest.approx(0.6 * math.sqrt(math.log(2_000.0) / (2 * found.samples)), rel=1e-9)


def test_what_a_step_limit_cuts_off_is_stated(only_sampled, monkeypatch):
    """The coin, cut off after 2 steps: 1/16 of episodes are longer (20,000 of them, 4 standard errors)."""
    monkeypatch.setattr(risks, "MAX_LENGTH", 2)
    found = sr.evaluate(coin(), [0, 0], start=0).distribution
    assert found.cut == pytest.approx(1 / 16, abs=4 * math.sqrt(1 / 16 * 15 / 16 / 20_000))
    np.testing.assert_allclose(
        found.returns, [-2.0 + 5 / 3, 1.0, 2.0], rtol=1e-12
    )  # what it had, and the mean from there
    assert found.rest == pytest.approx(math.sqrt(found.cut) * math.sqrt(0.25) / 0.75, rel=1e-12)
    assert found.error == pytest.approx(found.cut + math.sqrt(math.log(2_000.0) / (2 * 20_000)), rel=1e-12)
    risk = sr.evaluate(coin(), [0, 0], start=0, discounted=True)
    assert risk.distribution.cut > 0.0
    assert risk.to_dict()["cut"] == risk.distribution.cut


@pytest.mark.parametrize("discounted", [False, True])
def test_the_cvar_of_episodes_cut_off_is_within_its_error_of_the_exact_one(only_sampled, monkeypatch, discounted):
    """The coin, cut off after 2 steps (20,000 episodes, seeds 0 to 9): too high, by some of the bound and not more."""
    monkeypatch.setattr(risks, "MAX_LENGTH", 2)
    cut_off = [sr.evaluate(coin(), [0, 0], start=0, discounted=discounted, seed=seed) for seed in range(10)]
    values, errors = [risk.cvar(0.05) for risk in cut_off], [risk.cvar_error(0.05) for risk in cut_off]
    assert all(0.0 < risk.distribution.unseen < risks.UNSEEN for risk in cut_off)
    monkeypatch.undo()
    exact = sr.evaluate(coin(), [0, 0], start=0, discounted=discounted).cvar(0.05)
    assert all(exact < value <= exact + error for value, error in zip(values, errors, strict=True))


def test_what_depends_on_what_was_cut_off_is_not_told(only_sampled, monkeypatch):
    """A loss of 1 with an end once in 1,000 steps, cut off after 1,000: 37 % are, and the tail is among them."""
    monkeypatch.setattr(risks, "MAX_LENGTH", 1_000)
    mdp = model(2, [(0, 0, 0.999, 0, -1.0, False), (0, 0, 0.001, 1, 0.0, True)])
    risk = sr.evaluate(mdp, [0, 0], start=0)
    assert risk.distribution.cut == pytest.approx(0.999**1_000, abs=4 * 0.5 / math.sqrt(20_000))
    assert (math.isnan(risk.cvar(0.1)), math.isnan(risk.quantile(0.1)), risk.cvar_error(0.1)) == (True, True, INF)
    shown = risk.to_dict()
    assert (shown["cvar10"], shown["cvar_error"], shown["exact"]) == (None, None, False)
    assert shown["error"] > shown["cut"] > 0.3
    for limit in (-1e9, 0.0):
        assert not Limit.one_of(min_cvar=limit).met_by(risk)
    assert Limit.one_of(max_p_unsafe=0.5).met_by(risk)


def test_nothing_is_told_of_episodes_cut_off_that_may_have_no_finite_return(only_sampled, monkeypatch):
    monkeypatch.setattr(risks, "MAX_LENGTH", 10)
    rows = [(0, 0, 0.8, 0, -1.0, False), (0, 0, 0.1, 1, 0.0, True), (0, 0, 0.1, 2, 0.0, False)]
    risk = sr.evaluate(model(3, [*rows, (2, 0, 1.0, 2, 1.0, False)]), [0, 0, 0], start=0)
    assert risk.distribution.cut > 0.05
    assert (math.isnan(risk.cvar(0.1)), risk.cvar_error(0.1), risk.distribution.unseen) == (True, INF, 1.0)


def test_a_discounted_tail_cut_off_keeps_the_mean_and_most_of_the_tail(monkeypatch):
    """±1 at random for ever with γ = 0.9995: nearly normal, σ² = 1/(1−γ²), CVaR = −φ(z)/α·σ; seed 0, 5,000 episodes."""
    for name, value in (("MAX_LENGTH", 2_000), ("MAX_SAMPLES", 5_000)):
        monkeypatch.setattr(risks, name, value)
    mdp = model(1, [(0, 0, 0.5, 0, -1.0, False), (0, 0, 0.5, 0, 1.0, False)], gamma=0.9995)
    risk = sr.evaluate(mdp, [0], discounted=True)
    sigma = 1.0 / math.sqrt(1.0 - 0.9995**2)
    expected = -0.17549833 / 0.1 * sigma
    assert risk.distribution.cut == 1.0
    assert risk.distribution.error == 1.0
    assert risk.distribution.rest == pytest.approx(0.9995**2_000 * sigma, rel=1e-9)
    assert abs(risk.cvar(0.1) - expected) <= risk.cvar_error(0.1) < 0.75 * abs(expected)


def test_a_sure_discounted_return_is_its_mean_however_long_it_takes():
    """A reward of 1 for ever, and one of 1 wherever chance leads, with γ = 1 − 1e-6."""
    gamma = 1.0 - 1e-6
    there = [(0, 0, 0.5, 0, 1.0, False), (0, 0, 0.5, 1, 1.0, False), (1, 0, 1.0, 0, 1.0, False)]
    for n, rows in ((1, [(0, 0, 1.0, 0, 1.0, False)]), (2, there)):
        risk = sr.evaluate(model(n, rows, gamma), [0] * n, start=0, discounted=True)
        assert risk.distribution.exact
        assert risk.worst <= risk.cvar(0.1) <= risk.mean == pytest.approx(1e6, rel=1e-9)
        assert (risk.quantile(0.5), risk.cvar_error(0.1), risk.distribution.cut) == (risk.mean, 0.0, 0.0)


@given(small_models(), st.booleans(), st.floats(0.001, 1.0))
def test_cvar_lies_between_the_worst_and_the_mean_to_the_last_bit(mdp, discounted, alpha):
    risk = sr.evaluate(mdp, [0] * mdp.n_states, start=0, discounted=discounted)
    value = risk.cvar(alpha)
    if not math.isnan(value):
        assert risk.worst <= value
        assert value <= risk.mean or math.isnan(risk.mean)


def test_a_sure_loss_is_no_worse_than_itself_by_rounding():
    """(mass·−3) / mass is −3.0000000000000004 for some α."""
    rows = [(0, 0, 0.7, 1, -3.0, True), (0, 0, 0.3, 1, 1.0, True)]
    risk = sr.evaluate(model(2, rows), [0, 0], start=0)
    assert {risk.cvar(alpha) for alpha in np.linspace(0.001, 0.69, 1_000)} == {-3.0}


def test_the_same_seed_gives_the_same_sample_for_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(risks, "MAX_SAMPLES", 50_000)
    one, two = (sr.evaluate(gaussian(), [0] * 6, seed=5, threads=threads).distribution for threads in (1, 2))
    assert one.returns.tobytes() == two.returns.tobytes()
    assert one.probabilities.tobytes() == two.probabilities.tobytes()
    other = sr.evaluate(gaussian(), [0] * 6, seed=6).distribution
    assert not np.array_equal(one.returns, other.returns)


# -- playing ----------------------------------------------------------------------------------------------------------


def test_episodes_are_cut_off_and_say_so():
    played = sample_returns(sr.grids.volatile(), [3] * 20, 100, max_steps=30)
    assert not played.ended.any()
    assert (played.lengths == 30).all()
    assert (played.returns == -30.0).all()
    assert played.returns.shape == played.unsafe.shape == (100,)


def test_a_sure_episode_is_discounted_step_by_step():
    rows = [(0, 0, 1.0, 1, 1.0, False), (1, 0, 1.0, 2, 10.0, False, True), (2, 0, 1.0, 3, 100.0, True)]
    played = sample_returns(model(4, rows), [0] * 4, 3, start=0, discounted=True)
    np.testing.assert_allclose(played.returns, 1.0 + 9.0 + 81.0, rtol=1e-15)
    assert (played.lengths.tolist(), played.unsafe.tolist(), played.ended.all()) == ([3] * 3, [True] * 3, True)


# -- words and files --------------------------------------------------------------------------------------------------


def test_the_numbers_go_to_json():
    mdp = sr.grids.volatile()
    shown = json.loads(json.dumps(sr.evaluate(mdp, [1] * 20, start=mdp.origin).to_dict()))
    names = {"mean", "std", "p_unsafe", "p_never", "length", "worst", "cvar10", "cvar_error", "error", "cut", "exact"}
    assert set(shown) == names
    assert (shown["worst"], shown["cvar_error"], shown["error"], shown["exact"]) == (-150.0, 0.0, 0.0, True)


def test_bad_arguments_are_named():
    risk = sr.evaluate(coin(), [0, 0], start=0)
    with pytest.raises(BadInput, match=r"alpha must be in \(0, 1\], got 0"):
        risk.cvar(0.0)
    with pytest.raises(BadInput, match=r"alpha must be in \(0, 1\], got 2"):
        risk.cvar_error(2.0)
    with pytest.raises(BadInput, match=r"q must be in \(0, 1\], got 2"):
        risk.quantile(2.0)
    with pytest.raises(BadInput, match=r"policy must have shape \(2,\), got \(3,\)"):
        sr.evaluate(coin(), [0, 0, 0])
    with pytest.raises(BadInput, match=r"policy must be actions in 0\.\.0, got \[0, 1\]"):
        sr.evaluate(coin(), [0, 1])
    with pytest.raises(BadInput, match=r"policy of s=0 must sum to 1, got 0\.9"):
        sr.evaluate(coin(), [[0.9], [1.0]])
    with pytest.raises(BadInput, match=r"discounted must be True or False, got 0\.9"):
        sr.evaluate(coin(), [0, 0], discounted=0.9)
    with pytest.raises(BadInput, match="seed must be at least 0, got -1"):
        sr.evaluate(coin(), [0, 0], seed=-1)
    with pytest.raises(BadInput, match="threads must be at least 1, got 0"):
        sr.evaluate(coin(), [0, 0], threads=0)


@pytest.mark.parametrize("policy", [[[1, 2], [3]], [0, [1]]])
def test_a_ragged_policy_is_refused_in_one_line(policy):
    with pytest.raises(
        BadInput, match=r"^policy must be actions \[S\] or probabilities \[S, A\], got \[.*\]; its rows"
    ):
        sr.evaluate(coin(), policy)


def test_an_end_that_rounding_cannot_tell_from_never_is_named():
    rows = [(0, 0, 1.0, 0, -1.0, False), (0, 0, 1e-17, 1, 0.0, True)]
    with pytest.raises(
        BadInput, match=r"^outcomes of s=0 must lead to an end with a probability .*, got 1e-17; the least"
    ):
        sr.evaluate(model(2, rows), [0, 0], start=0)
    rows[1] = (0, 0, 1e-12, 1, 0.0, True)
    rows[0] = (0, 0, 1.0 - 1e-12, 0, -1.0, False)
    assert sr.evaluate(model(2, rows), [0, 0], start=0).length == pytest.approx(1e12, rel=1e-3)


def test_only_a_model_can_be_evaluated():
    with pytest.raises(BadInput, match="mdp must be a TabularMDP, got 5"):
        sr.evaluate(5, [0])
