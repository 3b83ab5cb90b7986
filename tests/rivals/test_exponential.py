"""Exponential utility: the episode as a whole against closed forms, enumeration, a linear program and eigenvalues; the
learner against the definition of its update and its nested limit."""

from itertools import product
from math import exp, inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_models import random_model
from scipy.optimize import linprog
from scipy.special import logsumexp

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.rivals.criteria import ExponentialUtility
from safereplay.theory.criteria import SLIGHT, entropic, exponential_utility
from safereplay.theory.occupancy import Program


def geometric(p, cost, *others):
    """Pay ``cost`` each step and go on with chance p; or, with other actions, pay one of ``others`` and be done."""
    rows = [(0, 0, p, 0, -cost, False), (0, 0, 1.0 - p, 1, -cost, True)]
    rows += [(0, a + 1, 1.0, 1, -x, True) for a, x in enumerate(others)]
    return sr.TabularMDP.from_outcomes(2, 1 + len(others), rows, start=0)


def of_policy(mdp, theta, actions):
    """The certainty equivalent of one policy by (I − A)·W = b, infinite where A's powers do not vanish."""
    A, b = np.zeros((mdp.n_states, mdp.n_states)), np.zeros(mdp.n_states)
    for s in np.flatnonzero(~mdp.is_terminal):
        for p, s_next, r, ends, _ in zip(*mdp.outcomes(int(s), int(actions[s])), strict=True):
            if ends:
                b[s] += p * exp(-theta * r)
            else:
                A[s, s_next] += p * exp(-theta * r)
    if np.abs(np.linalg.eigvals(A)).max() >= 1.0:
        return -inf if theta > 0 else inf
    W = mdp.start @ np.linalg.solve(np.eye(mdp.n_states) - A, b)
    return -log(W) / theta if W > 0.0 else inf * theta  # W is 0 where nothing ends, and every round weighs less


# -- the episode as a whole -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("theta", [-0.5, 0.01, 0.1, 0.3, 0.6])
def test_geometric_costs_have_a_closed_form(theta):
    """Σ_n (1−p)·p^{n−1}·e^{θcn} = (1−p)·e^{θc} / (1 − p·e^{θc})."""
    p, cost = 0.5, 1.0
    W = (1 - p) * exp(theta * cost) / (1 - p * exp(theta * cost))
    assert exponential_utility(geometric(p, cost), theta).value == pytest.approx(-log(W) / theta, rel=1e-10)


def test_geometric_costs_are_infinite_from_log_2_on():
    assert exponential_utility(geometric(0.5, 1.0), log(2.0) - 1e-6).value > -25.0
    assert exponential_utility(geometric(0.5, 1.0), log(2.0) + 1e-6).value == -inf
    assert exponential_utility(geometric(0.5, 1.0), 400.0).value == -inf


def test_a_sure_cost_is_taken_instead_of_an_infinite_one():
    mdp = geometric(0.5, 1.0, 50.0)
    finite, infinite = exponential_utility(mdp, 0.6), exponential_utility(mdp, 1.0)
    assert (finite.policy[0], infinite.policy[0]) == (0, 1)
    assert infinite.value == pytest.approx(-50.0)


def test_what_leads_only_to_infinite_costs_is_infinite_and_the_rest_is_not():
    """From state 2 a coin leads to the endless payer or to the end; from state 3 one can also walk away."""
    rows = [(0, a, p, s, -1.0, s == 1) for a in range(2) for p, s in ((0.5, 0), (0.5, 1))]
    rows += [(2, a, 0.5, 0, 0.0, False) for a in range(2)] + [(2, a, 0.5, 1, 0.0, True) for a in range(2)]
    rows += [(3, 0, 1.0, 2, 0.0, False), (3, 1, 1.0, 1, -7.0, True)]
    mdp = sr.TabularMDP.from_outcomes(4, 2, rows, start=3)
    found = exponential_utility(mdp, 1.0)
    assert found.values.tolist() == [-inf, 0.0, -inf, pytest.approx(-7.0)]
    assert found.value == pytest.approx(-7.0)


def test_the_best_of_all_policies_is_found_on_random_models():
    """60 models of 4 states to leave and 2 actions, six θ: every one of the 16 policies by a linear solve."""
    kinds = set()
    for seed in range(60):
        mdp = random_model(seed, n_states=5, n_actions=2)
        for theta in (-0.1, -0.02, 0.02, 0.05, 0.1, 0.3):
            best = max(of_policy(mdp, theta, [*actions, 0]) for actions in product(range(2), repeat=4))
            found = exponential_utility(mdp, theta)
            assert found.value == pytest.approx(best, rel=1e-8)
            kinds.add((theta > 0, best == inf, best == -inf))
            if np.isfinite(best):
                assert of_policy(mdp, theta, found.policy) == pytest.approx(best, rel=1e-8)
    assert kinds == {*product((True, False), (True, False), (False,)), (True, False, True)}


@pytest.mark.parametrize("theta", [-0.3, 0.03, 0.1, 0.3])
def test_on_the_cliff_a_linear_program_over_multiplied_occupancies_agrees(theta):
    """Optimise Σ y·b over y ≥ 0 with Σ_a y(s',a) − Σ p·e^{−θr}·y(s,a) = start(s')."""
    mdp = sr.grids.cliff()
    w = mdp.p * np.exp(-theta * mdp.r)
    balance = np.kron(np.eye(mdp.n_states), np.ones(mdp.n_actions))
    on = ~mdp.terminal
    np.subtract.at(balance, (mdp.s_next[on], mdp.pair[on]), w[on])
    b = np.bincount(mdp.pair, weights=w * mdp.terminal, minlength=mdp.n_pairs)
    live = ~mdp.is_terminal
    use = np.repeat(live, mdp.n_actions)
    solved = linprog(np.sign(theta) * b[use], A_eq=balance[live][:, use], b_eq=mdp.start[live])
    value = -log(np.sign(theta) * solved.fun) / theta
    assert exponential_utility(mdp, theta).value == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize("theta", [-0.2, 0.1, 0.3])
def test_on_the_cliff_the_whole_distribution_of_the_return_agrees(theta):
    mdp = sr.grids.cliff()
    found = exponential_utility(mdp, theta, start=mdp.origin)
    returns, p, *_ = sr.evaluate(mdp, found.policy, start=mdp.origin).distribution
    assert found.value == pytest.approx(-logsumexp(-theta * returns, b=p) / theta, abs=1e-8)
    assert found.values[mdp.origin] == pytest.approx(found.value, rel=1e-12)


def test_for_small_theta_it_is_the_mean_less_half_theta_times_the_variance():
    """Halving θ makes what is left a quarter: it is of order θ²."""
    mdp = random_model(4, n_actions=1)
    risk = sr.evaluate(mdp, np.zeros(mdp.n_states, int))
    left = [
        exponential_utility(mdp, theta).value - (risk.mean - theta / 2.0 * risk.std**2) for theta in (2e-3, 1e-3, 5e-4)
    ]
    assert left[0] / left[1] == pytest.approx(4.0, rel=0.1)
    assert left[1] / left[2] == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("theta", [1e-9, 1e-12, 1e-13, 1e-15, 1e-20, 1e-100, 5e-324])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_as_theta_goes_to_zero_it_goes_to_the_best_mean_without_loss(theta, sign):
    """|θ| below 1e-12 used to give any policy that ends, with a value that was rounding alone."""
    for mdp in (sr.grids.cliff(), random_model(4)):
        best = Program(mdp, 1.0).unlimited()
        found = exponential_utility(mdp, sign * theta)
        risk = sr.evaluate(mdp, found.policy)
        assert risk.mean == pytest.approx(best, rel=1e-9)
        assert found.value == pytest.approx(risk.mean - sign * theta / 2.0 * risk.std**2, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("theta", [1e-3, 1e-9, 1e-14, 1e-100, -1e-3, -1e-9, -1e-14, -1e-100])
def test_a_loop_that_gains_for_ever_is_found_for_any_small_theta(theta):
    assert exponential_utility(sr.grids.volatile(), theta, start=5).value == inf


def test_small_and_large_theta_agree_where_one_method_hands_over_to_the_other():
    mdp = random_model(4)
    size = float(np.abs(exponential_utility(mdp, 1e-9).values[:-1]).max())
    for sign in (1.0, -1.0):
        thetas = sign * SLIGHT / size * np.array([0.998, 0.999, 1.001, 1.002])
        values = np.array([exponential_utility(mdp, theta).value for theta in thetas])
        slopes = np.diff(values) / np.diff(thetas)
        np.testing.assert_allclose(slopes, slopes[0], rtol=1e-3)


# -- Howard & Matheson's gain ---------------------------------------------------------------------------------------------

TOYMAKER_P = np.array([[[0.5, 0.5], [0.8, 0.2]], [[0.4, 0.6], [0.7, 0.3]]])  # [state, action, next]
TOYMAKER_R = np.array([[[9.0, 3.0], [4.0, 4.0]], [[3.0, -7.0], [1.0, -19.0]]])


def gain(theta, actions):
    """−(1/θ)·log of the largest eigenvalue of (p·e^{−θr}): the certain equivalent gain of a policy."""
    P, R = (table[range(2), actions] for table in (TOYMAKER_P, TOYMAKER_R))
    return -log(np.abs(np.linalg.eigvals(P * np.exp(-theta * R))).max()) / theta


def cycle(g):
    """The toymaker from success to the next success, with g less a step."""
    rows = [(s, a, TOYMAKER_P[s, a, n], n, TOYMAKER_R[s, a, n] - g, n == 0) for s, a, n in product(range(2), repeat=3)]
    return sr.TabularMDP.from_outcomes(2, 2, rows, start=0)


def test_the_toymakers_gains_are_those_of_the_book():
    """Howard (1960), Dynamic Programming and Markov Processes, chapters 2 to 4: 1 a week, and 2 at best."""
    assert gain(1e-7, [0, 0]) == pytest.approx(1.0, abs=1e-4)
    assert gain(1e-7, [1, 1]) == pytest.approx(2.0, abs=1e-4)


@pytest.mark.parametrize("theta", [-0.1, -0.01, 0.01, 0.1, 0.3])
def test_with_the_best_gain_taken_off_a_step_a_cycle_is_worth_nothing(theta):
    """The largest eigenvalue over all four policies, which is what Howard & Matheson's policy iteration finds."""
    best = max(product(range(2), repeat=2), key=lambda actions: gain(theta, actions))
    found = exponential_utility(cycle(gain(theta, best)), theta)
    assert found.value == pytest.approx(0.0, abs=1e-7)
    assert tuple(found.policy) == best


def test_averse_to_risk_the_toymaker_gives_up_the_policy_with_the_best_mean():
    assert max(product(range(2), repeat=2), key=lambda actions: gain(0.01, actions)) == (1, 1)
    assert max(product(range(2), repeat=2), key=lambda actions: gain(0.1, actions)) == (1, 0)


# -- large, endless, refused ----------------------------------------------------------------------------------------------


def test_large_theta_does_no_harm():
    mdp = sr.grids.from_map("S" + "." * 60 + "G", goal=10.0)
    assert exponential_utility(mdp, 1e3, start=0).value == pytest.approx(-50.0)
    assert exponential_utility(mdp, -1e3, start=0).value == pytest.approx(-50.0)


def test_a_loop_that_gains_for_ever_is_worth_everything_while_theta_is_small():
    mdp = sr.grids.volatile()
    assert [exponential_utility(mdp, t, start=mdp.origin).value for t in (-0.1, 0.001)] == [inf, inf]
    assert exponential_utility(mdp, 0.01, start=mdp.origin).value == pytest.approx(145.0)


def test_on_the_cliff_too_much_of_theta_jumps_and_more_of_it_finds_every_policy_infinitely_bad():
    mdp = sr.grids.cliff()
    found = [exponential_utility(mdp, theta, start=mdp.origin) for theta in (0.03, 0.1, 1.0, 3.0)]
    assert [sr.verdict(mdp, one.policy) for one in found[:3]] == ["risky", "safe", "jumps"]
    assert found[3].value == -inf


def test_theta_0_and_models_without_an_end_are_refused():
    with pytest.raises(BadInput, match="theta must differ from 0, got 0; at 0 it is the mean"):
        exponential_utility(sr.grids.cliff(), 0.0)
    forever = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 1.0, 0, 1.0, False)])
    with pytest.raises(BadInput, match="mdp must have a policy that surely ends"):
        exponential_utility(forever, 1.0)
    with pytest.raises(BadInput, match="theta must be finite, got inf"):
        ExponentialUtility(inf)


# -- the learner ----------------------------------------------------------------------------------------------------------

update = ExponentialUtility.update
amounts = st.floats(-50.0, 50.0)


@given(amounts, amounts, st.floats(0.01, 0.99), st.floats(-0.5, 0.5).filter(lambda x: abs(x) > 1e-3))
def test_an_update_averages_exponentials(q, r, alpha, theta):
    after = update(q, r, 0.0, alpha, 0.9, theta)
    assert after == pytest.approx(-log((1 - alpha) * exp(-theta * q) + alpha * exp(-theta * r)) / theta, abs=1e-7)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats(1e-6, 1.0), st.floats(-1e3, 1e3))
def test_an_update_never_leaves_what_is_between_the_old_value_and_the_target(q, r, alpha, theta):
    slack = 1e-9 * max(abs(q), abs(r))
    assert min(q, r) - slack <= update(q, r, 0.0, alpha, 0.9, theta) <= max(q, r) + slack


def test_theta_0_is_q_learning_to_the_last_bit():
    mdp = sr.grids.cliff()
    plain, none = (sr.learn(mdp, x, 200, 2, quiet=True).Q for x in (sr.QLearning(), ExponentialUtility(0.0)))
    assert np.array_equal(plain, none)


@pytest.mark.parametrize("theta", [-2.0, -0.1, 1e-9, 0.1, 2.0, 1e4])
def test_the_limit_solves_its_equation(theta):
    for seed in range(5):
        mdp = random_model(seed)
        Q = sr.exact(mdp, ExponentialUtility(theta))
        for s, a in product(range(mdp.n_states - 1), range(mdp.n_actions)):
            p, s_next, r, ends, _ = mdp.outcomes(s, a)
            y = r + mdp.gamma * np.where(ends, 0.0, Q[s_next].max(1))
            value = p @ y if abs(theta) < 1e-6 else -logsumexp(-theta * y, b=p) / theta
            assert Q[s, a] == pytest.approx(value, abs=1e-6)


def test_the_limit_goes_from_q_learning_to_the_worst_case():
    mdp = random_model(7)
    near, far = sr.exact(mdp, ExponentialUtility(1e-9)), sr.exact(mdp, ExponentialUtility(1e8))
    assert np.allclose(near, sr.exact(mdp, sr.QLearning()), atol=1e-4)
    assert np.allclose(far, sr.exact(mdp, sr.WorstCase()), atol=1e-4)
    assert np.array_equal(sr.exact(mdp, ExponentialUtility(0.0)).argmax(1), sr.exact(mdp, sr.QLearning()).argmax(1))


@pytest.mark.parametrize("theta", [5e-324, -1e-320, 1e-300, 1e-100, -1e-17, 1e-14])
def test_a_theta_that_is_next_to_nothing_is_nothing(theta):
    """θ·y is then not a number with many digits, or 0: neither the limit nor an update may show it."""
    mdp = sr.grids.cliff()
    assert sr.exact(mdp, ExponentialUtility(theta)) == pytest.approx(sr.exact(mdp, ExponentialUtility(0.0)), abs=1e-9)
    assert update(3.0, -7.0, 10.0, 0.3, 0.9, theta) == pytest.approx(0.7 * 3.0 + 0.3 * 2.0, rel=1e-12)
    assert update(3.0, 7.0, 10.0, 0.3, 0.9, theta) == pytest.approx(0.7 * 3.0 + 0.3 * 16.0, rel=1e-12)


def test_a_theta_that_overflows_is_the_worst_case():
    mdp = random_model(7)
    assert np.allclose(sr.exact(mdp, ExponentialUtility(1e308)), sr.exact(mdp, sr.WorstCase()), atol=1e-9)


@pytest.mark.parametrize("theta", [-0.05, 0.1, 0.3])
def test_as_gamma_goes_to_1_the_nested_limit_goes_to_the_utility_of_the_whole_episode(theta):
    """On the cliff, at every state: ten times nearer for each ten of 1/(1−γ), so that the way is linear in 1 − γ."""
    whole = exponential_utility(sr.grids.cliff(), theta).values
    off = []
    for left in (1e-3, 1e-4, 1e-5):
        V = sr.exact(sr.grids.cliff(gamma=1.0 - left), ExponentialUtility(theta)).max(1)
        off.append(np.abs(V - whole).max())
    assert off[0] < 0.15
    assert off[0] / off[1] == pytest.approx(10.0, rel=0.05)
    assert off[1] / off[2] == pytest.approx(10.0, rel=0.05)


def test_the_figures_of_the_cliff_are_those_that_are_told():
    values = [sr.exact(sr.grids.cliff(gamma=g), ExponentialUtility(0.1)).max(1) for g in (0.95, 0.999, 0.99999)]
    mdp = sr.grids.cliff()
    assert [V[mdp.origin] for V in values] == pytest.approx([-1.753, -0.0004, 0.0457], abs=6e-4)
    assert exponential_utility(mdp, 0.1, start=mdp.origin).value == pytest.approx(0.0462, abs=6e-5)


def test_a_coin_has_its_certainty_equivalent():
    coin = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 0.5, 1, 4.0, True), (0, 0, 0.5, 1, 0.0, True)])
    assert sr.exact(coin, ExponentialUtility(0.5))[0, 0] == pytest.approx(-2.0 * log((1 + exp(-2.0)) / 2))
    assert entropic(coin, coin.r, -0.5)[0, 0] == pytest.approx(2.0 * log((1 + exp(2.0)) / 2))


@pytest.mark.parametrize(("theta", "within"), [(-0.05, 0.03), (0.1, 0.04), (0.3, 0.04)])
def test_what_is_learned_comes_to_the_limit_and_not_to_that_of_q_learning(theta, within):
    """Random model 1, ε = 1, seeds 0–3, 20,000 episodes: the mean of four runs, as a share of Q's range."""
    mdp, learner = random_model(1), ExponentialUtility(theta)
    runs = sr.learn(mdp, learner, 20_000, 4, sr.EpsilonGreedy(1.0), sr.PowerStep(0.8), quiet=True)
    limit, plain = sr.exact(mdp, learner), sr.exact(mdp, sr.QLearning())
    error = np.abs(runs.Q.mean(0) - limit)[:-1].max() / np.ptp(limit)
    assert error < within
    assert np.abs(plain - limit)[:-1].max() / np.ptp(limit) > 3.0 * within


def test_at_a_gamma_near_1_what_is_learned_is_near_the_utility_of_the_whole_episode():
    """The cliff at γ = 0.999 and θ = 0.1, ε = 1, seeds 0–7, 60,000 episodes: within 0.3 at every state, of which γ makes 0.05;
    the mean return is up to 1.98 away."""
    mdp, learner = sr.grids.cliff(gamma=0.999), ExponentialUtility(0.1)
    runs = sr.learn(mdp, learner, 60_000, 8, sr.EpsilonGreedy(1.0), sr.PowerStep(0.8), quiet=True)
    live, whole = mdp.is_reachable & ~mdp.is_terminal, exponential_utility(mdp, 0.1).values
    assert np.abs(runs.Q.mean(0).max(1) - whole)[live].max() < 0.3
    assert np.abs(sr.exact(mdp, sr.QLearning()).max(1) - whole)[live].max() > 1.5


def test_the_limits_are_safe_between_too_little_and_too_much():
    bands = {sr.grids.cliff: (0.0663, 0.0665, 1.489, 1.491), sr.grids.volatile: (0.00594, 0.00596, 1.4, 1.7)}
    bands[sr.grids.lottery] = (0.0426, 0.0428, 1.4, 1.7)
    verdicts = {}
    for grid, thetas in bands.items():
        mdp = grid()
        limits = [sr.exact(mdp, ExponentialUtility(theta)) for theta in thetas]
        verdicts[grid] = [sr.verdict(mdp, Q.argmax(1)) for Q in limits]
    assert verdicts[sr.grids.cliff] == ["risky", "safe", "safe", "jumps"]
    assert verdicts[sr.grids.volatile] == verdicts[sr.grids.lottery] == ["risky", "safe", "safe", "safe"]
