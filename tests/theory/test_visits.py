import json
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest
from random_models import random_model
from scipy.optimize import brentq

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.theory import visits
from safereplay.theory.operator import operator
from safereplay.theory.visits import behaviour, self_consistent, visitation

GRIDS = {"volatile": sr.grids.volatile, "cliff": sr.grids.cliff}
SCHEME = sr.VarianceReplay(beta=5.0)


def loop(q):
    """State 0 leads to 1; state 1 ends with probability q, else leads back to 0."""
    rows = [(0, 0, 1.0, 1, 0.0), (1, 0, q, 2, 0.0, True), (1, 0, 1.0 - q, 0, 0.0)]
    return sr.TabularMDP.from_outcomes(3, 1, rows, start=[1.0, 0.0, 0.0])


def gamble(certain):
    """One state: action 0 pays 1 or −1 evenly, action 1 pays ``certain``; both end. W of action 0 is 1."""
    rows = [(0, 0, 0.5, 1, 1.0, True), (0, 0, 0.5, 1, -1.0, True), (0, 1, 1.0, 1, certain, True)]
    return sr.TabularMDP.from_outcomes(2, 2, rows, gamma=0.9)


def gamble_value(d, v, beta):
    """Q of action 0 when it is a share d of what is visited: ρ times the mean of ŵ, since q has mean 0."""
    return -np.tanh(beta) * v / ((1.0 - v) * d + v)


# -- behaviour ----------------------------------------------------------------------------------------------------------


def test_an_epsilon_greedy_behaviour_explores_all_actions_alike():
    np.testing.assert_allclose(behaviour([[1.0, 3.0], [0.0, -1.0]], sr.EpsilonGreedy(0.2)), [[0.1, 0.9], [0.9, 0.1]])
    np.testing.assert_allclose(behaviour([[1.0, 3.0]]), [[0.05, 0.95]])


def test_the_first_of_equal_actions_is_greedy():
    np.testing.assert_allclose(behaviour([[2.0, 5.0, 5.0]], sr.EpsilonGreedy(0.0)), [[0.0, 1.0, 0.0]])


@pytest.mark.parametrize("exploration", [sr.EpsilonGreedy(0.5, power=0.5), sr.Softmax(3.0, power=0.2)])
def test_exploration_that_falls_ends_greedy(exploration):
    np.testing.assert_allclose(behaviour([[0.0, 1.0]], exploration), [[0.0, 1.0]])


def test_a_softmax_behaviour_survives_large_values():
    b = behaviour([[1000.0, 1001.0], [-1e6, 1e6]], sr.Softmax(2.0))
    np.testing.assert_allclose(b, [[1.0 / (1.0 + np.exp(0.5)), 1.0 / (1.0 + np.exp(-0.5))], [0.0, 1.0]])


# -- visitation ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("q", [0.3, 0.0])
@pytest.mark.parametrize("T", [1, 2, 7, 64, 1000])
def test_the_visits_of_a_loop_are_geometric_sums(q, T):
    """State 0 is visited at t = 0, 2, 4, ... and state 1 at 1, 3, 5, ..., each as long as the episode lasts."""
    visits_0 = sum((1.0 - q) ** k for k in range((T + 1) // 2))
    visits_1 = sum((1.0 - q) ** k for k in range(T // 2))
    total = visits_0 + visits_1
    d = visitation(loop(q), np.ones((3, 1)), T)
    np.testing.assert_allclose(d.ravel(), [visits_0 / total, visits_1 / total, 0.0], rtol=1e-12)


def test_a_behaviour_that_never_ends_has_the_visits_of_its_cut_off_episodes():
    """On the cliff, up and only up, from anywhere: no episode ends but by a slip. Against plain steps of the chain."""
    mdp = sr.grids.cliff(slip=0.0)
    up = np.eye(4)[np.zeros(24, int)]
    d, x, total = visitation(mdp, up, 500), mdp.start, np.zeros(24)
    for _ in range(500):
        total += x
        x = np.array([x[s] * (s < 6) + (x[s + 6] if s < 18 else 0.0) for s in range(24)])
    np.testing.assert_allclose(d[:, 0], total / total.sum(), rtol=1e-12)
    assert (d[:, 1:] == 0.0).all()
    assert d[:6].sum() > 0.99


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("T", [1, 3, 100, 1000])
def test_doubling_is_stepping(seed, T, monkeypatch):
    mdp = random_model(seed)
    b = np.random.default_rng(seed).dirichlet(np.ones(3), 6)
    doubled = visitation(mdp, b, T)
    monkeypatch.setattr(visits, "DENSE", 0)
    np.testing.assert_allclose(visitation(mdp, b, T), doubled, rtol=1e-10, atol=1e-15)
    assert doubled.sum() == pytest.approx(1.0)


def test_visits_solve_their_linear_equation_where_every_episode_ends():
    """x = start + x·P, by a dense solve: no cut-off matters in 10,000 steps."""
    mdp = random_model(1)
    b = np.full((6, 3), 1.0 / 3.0)
    P = np.zeros((6, 6))
    for i in range(mdp.n_pairs):
        for k in range(mdp.row[i], mdp.row[i + 1]):
            P[i // 3, mdp.s_next[k]] += 0.0 if mdp.terminal[k] else mdp.p[k] / 3.0
    x = np.linalg.solve(np.eye(6) - P.T, mdp.start)
    np.testing.assert_allclose(visitation(mdp, b, 10_000), x[:, None] * b / x.sum(), rtol=1e-10, atol=1e-15)


@dataclass(frozen=True)
class Deaf(sr.Learner):
    """Explores and learns nothing: its greedy action is the first."""

    @staticmethod
    def update(q):
        return q


@pytest.mark.parametrize("exploration", [sr.EpsilonGreedy(0.3), sr.Softmax(1.0)], ids=str)
@pytest.mark.parametrize("max_steps", [7, 60])
@pytest.mark.parametrize("grid", GRIDS)
def test_a_learner_that_learns_nothing_visits_what_is_said(grid, max_steps, exploration):
    """Seeds 0–19, 4,000 episodes: the mean share of each pair within 5 standard errors of d."""
    mdp = GRIDS[grid]()
    runs = sr.learn(mdp, Deaf(), 4_000, 20, exploration, max_steps=max_steps, quiet=True)
    d = visitation(mdp, behaviour(np.zeros((mdp.n_states, 4)), exploration), max_steps)
    error = runs.visitation.std(0, ddof=1) / np.sqrt(20)
    assert (np.abs(runs.visitation.mean(0) - d) <= 5.0 * error).all()
    assert error.max() < 0.1 * d.max()


@pytest.mark.parametrize("grid", GRIDS)
def test_a_long_run_of_q_learning_visits_what_its_q_says_along_the_way(grid):
    """Seed 0, ε = 0.3, the second half of 200,000 episodes, d averaged over 100 snapshots: total variation below 1 %."""
    mdp, exploration = GRIDS[grid](), sr.EpsilonGreedy(0.3)
    shots = sr.learn(mdp, sr.QLearning(), 200_000, [0], exploration, snapshots=200, quiet=True).snapshots
    late = shots.visits[0, 199] - shots.visits[0, 99]
    d = np.mean([visitation(mdp, behaviour(Q, exploration)) for Q in shots.Q[0, 100:]], 0)
    assert 0.5 * np.abs(late / late.sum() - d).sum() < 0.01


# -- self-consistent limits ---------------------------------------------------------------------------------------------


def test_a_gamble_that_is_feared_unless_it_is_a_habit_has_two_limits():
    """β = 2, v = 0.5, ε = 0.2: greedy, the gamble is worth −tanh(2)·0.5/0.95; else −tanh(2)·0.5/0.55.

    A certain −0.7 lies between, so taking the gamble and refusing it both confirm themselves.
    """
    taken, refused = gamble_value(0.9, 0.5, 2.0), gamble_value(0.1, 0.5, 2.0)
    assert refused < -0.7 < taken
    found = self_consistent(gamble(-0.7), sr.VarianceReplay(2.0), 0.5, sr.EpsilonGreedy(0.2), seeds=0)
    assert [one.settled for one in found] == [True, True]
    by_action = {int(one.policy[0]): one for one in found}
    np.testing.assert_allclose(by_action[0].Q[0], [taken, -0.7], rtol=1e-12)
    np.testing.assert_allclose(by_action[1].Q[0], [refused, -0.7], rtol=1e-12)
    np.testing.assert_allclose(by_action[0].d[0], [0.9, 0.1], rtol=1e-12)
    assert sum(one.starts for one in found) == 64


def test_a_gamble_that_is_liked_until_it_is_a_habit_ends_at_a_tie():
    """β = −2, v = 0.5, ε = 0.2: a habit of it is worth too little, none too much; the tie is where ρ·tanh(2) = 0.7."""
    rho = 0.7 / np.tanh(2.0)
    d_tie = (1.0 - rho) / rho
    assert 0.1 < d_tie < 0.9
    (only,) = self_consistent(gamble(0.7), sr.VarianceReplay(-2.0), 0.5, sr.EpsilonGreedy(0.2), seeds=0)
    assert not only.settled
    assert only.residual < 1e-9
    np.testing.assert_allclose(only.Q[0], [0.7, 0.7], rtol=1e-8)
    np.testing.assert_allclose(only.d[0], [d_tie, 1.0 - d_tie], rtol=1e-7)
    assert only.starts == 64


def test_learning_chatters_around_that_tie():
    """Seeds 0–7, 50,000 episodes: d within 0.02 of the mixture's, where either policy alone has 0.1 or 0.9."""
    mdp, scheme, exploration = gamble(0.7), sr.VarianceReplay(-2.0), sr.EpsilonGreedy(0.2)
    (only,) = self_consistent(mdp, scheme, 0.5, exploration, seeds=8)
    assert only.learned == 1.0
    assert only.distance < 0.1
    runs = sr.learn(mdp, sr.ReplayQLearning(scheme, 0.5), 50_000, 8, exploration, quiet=True)
    assert np.abs(runs.visitation[:, 0, 0] - only.d[0, 0]).max() < 0.02


def test_a_softmax_limit_of_a_gamble_is_the_root_of_one_equation():
    """d = σ((Q(d) − c)/T), by bisection. β = −2: Q falls with d, so there is one root."""
    scheme, T = sr.VarianceReplay(-2.0), 0.1
    root = brentq(lambda d: 1.0 / (1.0 + np.exp(-(gamble_value(d, 0.5, -2.0) - 0.7) / T)) - d, 0.0, 1.0, xtol=1e-14)
    (only,) = self_consistent(gamble(0.7), scheme, 0.5, sr.Softmax(T), starts=8, seeds=0)
    assert only.settled
    np.testing.assert_allclose(only.d[0, 0], root, rtol=1e-7)
    np.testing.assert_allclose(only.Q[0, 0], gamble_value(root, 0.5, -2.0), rtol=1e-7)


def test_softmax_exploration_that_is_nearly_greedy_has_both_limits_of_a_habit():
    found = self_consistent(gamble(-0.7), sr.VarianceReplay(2.0), 0.5, sr.Softmax(0.02), starts=16, seeds=0)
    assert sorted(int(one.policy[0]) for one in found) == [0, 1]
    for one in found:
        odds = np.exp((one.Q[0, 0] - one.Q[0, 1]) / 0.02)
        np.testing.assert_allclose(one.d[0, 0], odds / (1.0 + odds), rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("seed", range(10))
def test_every_limit_is_one(seed):
    """Q is the fixed point of H with d; d is the visits of exploring by a policy that is greedy for Q, or mixes them."""
    mdp, exploration = random_model(seed), sr.EpsilonGreedy(0.1)
    scheme, v = sr.VarianceReplay((-0.3, 0.3)[seed % 2]), 0.6
    found = self_consistent(mdp, scheme, v, exploration, starts=16, seeds=0, max_steps=300)
    assert sum(one.starts for one in found) == 16
    for one in found:
        np.testing.assert_allclose(operator(mdp, scheme, v, one.d)(one.Q), one.Q, rtol=1e-9, atol=1e-9)
        short = one.Q.max(1) - one.Q[np.arange(6), one.policy]
        assert short.max() <= 1e-6 * np.ptp(one.Q)
        assert one.d.sum() == pytest.approx(1.0)
        if one.settled:
            own = visitation(mdp, behaviour(np.eye(3)[one.policy], exploration), 300)
            np.testing.assert_allclose(one.d, own, rtol=1e-12)
        else:
            ties = np.sort(one.Q, 1)
            assert ((ties[:, -1] - ties[:, -2])[:5] <= 1e-6 * np.ptp(one.Q)).any()


def test_policies_that_differ_only_in_ties_are_one_limit():
    """On the volatile grid many ways are equally short; 64 starts come to different ones."""
    (only,) = self_consistent(sr.grids.volatile(), SCHEME, 0.5, seeds=0)
    assert only.settled
    assert only.starts == 64


def test_without_replay_the_only_limit_is_the_optimum():
    mdp = sr.grids.cliff()
    (only,) = self_consistent(mdp, SCHEME, 0.0, seeds=0, starts=20)
    np.testing.assert_allclose(only.Q, sr.exact(mdp, sr.QLearning()), atol=1e-10)


def test_a_falling_epsilon_leaves_pure_replay_where_it_does_not_go():
    """GLIE: d = 0 off the greedy path, so a volatile pair there has ρ = 1 and is worth what is replayed of it."""
    found = self_consistent(gamble(-0.7), sr.VarianceReplay(2.0), 0.5, sr.EpsilonGreedy(0.2, power=0.5), seeds=0)
    refused = next(one for one in found if one.policy[0] == 1)
    np.testing.assert_allclose(refused.Q[0, 0], -np.tanh(2.0), rtol=1e-12)
    np.testing.assert_allclose(refused.d[0], [0.0, 1.0])


def test_the_cliff_at_its_defaults_has_many_limits_that_differ_on_the_edge():
    """64 starts find more than 20; all take the safe path, and they differ only in the four cells above the cliff."""
    mdp = sr.grids.cliff()
    found = self_consistent(mdp, SCHEME, 0.5, seeds=0)
    policies = np.array([one.policy for one in found])
    assert len(found) > 20
    assert {sr.verdict(mdp, policy) for policy in policies} == {"safe"}
    assert set(np.flatnonzero(np.ptp(policies, 0))) == {13, 14, 15, 16}


def test_the_same_seed_finds_the_same():
    mdp = random_model(2)
    one, two = (self_consistent(mdp, SCHEME, 0.5, starts=12, seeds=2, episodes=500, seed=5) for _ in range(2))
    assert repr(one) == repr(two)
    for x, y in zip(one, two, strict=True):
        np.testing.assert_array_equal(x.Q, y.Q)


def test_limits_come_with_the_most_learned_first():
    """Seeds 0–9, 200,000 episodes of one step: the two values lie so near each other that fewer leave too much noise."""
    mdp, scheme, exploration = gamble(-0.7), sr.VarianceReplay(2.0), sr.EpsilonGreedy(0.2)
    found = self_consistent(mdp, scheme, 0.5, exploration, seeds=10, episodes=200_000)
    learned = [one.learned for one in found]
    assert learned == sorted(learned, reverse=True)
    assert sum(learned) == pytest.approx(1.0)
    assert all((one.distance is None) == (one.learned == 0.0) for one in found)


def test_runs_that_are_near_no_limit_count_for_none():
    """Two episodes from c0 = 0 on the volatile grid learn nothing yet."""
    found = self_consistent(sr.grids.volatile(), SCHEME, 0.5, starts=4, seeds=3, episodes=2)
    assert sum(one.learned for one in found) == 0.0


def test_a_limit_reads_well_and_goes_to_json():
    (one,) = self_consistent(gamble(0.7), sr.VarianceReplay(-2.0), 0.5, sr.EpsilonGreedy(0.2), starts=3, seeds=0)
    assert repr(one).startswith("SelfConsistent(Q from 0 to 0.7, starts=3, mixture, residual=")
    plain = json.loads(json.dumps(one.to_dict()))
    assert plain["settled"] is False
    assert plain["learned"] is None
    np.testing.assert_allclose(plain["d"], one.d)


def test_a_large_model_is_searched_too():
    """A corridor of 400 cells, volatile in the middle: more states than a dense solve is for."""
    mdp = sr.grids.from_map("." * 200 + ">" + "." * 198 + "G", start=[(0, 190)], gamma=0.99)
    (one,) = self_consistent(mdp, sr.VarianceReplay(0.01), 0.2, starts=2, seeds=0)
    assert one.settled
    assert one.d.sum() == pytest.approx(1.0)


# -- what is refused ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Frequent(sr.Scheme):
    @staticmethod
    def pair_weight(n, var):
        return n * var


def test_bad_arguments_are_named():
    mdp = sr.grids.cliff()
    with pytest.raises(BadInput, match="starts must be at least 1, got 0"):
        self_consistent(mdp, SCHEME, 0.5, starts=0)
    with pytest.raises(BadInput, match="seeds must be at least 0, got -1"):
        self_consistent(mdp, SCHEME, 0.5, seeds=-1)
    with pytest.raises(BadInput, match="max_steps must be at least 1, got 0"):
        self_consistent(mdp, SCHEME, 0.5, max_steps=0)
    with pytest.raises(BadInput, match=r"exploration must be an Exploration, got 0\.1"):
        self_consistent(mdp, SCHEME, 0.5, 0.1)
    with pytest.raises(BadInput, match="mdp must be a TabularMDP, got 'cliff'"):
        self_consistent("cliff", SCHEME, 0.5)
    with pytest.raises(BadInput, match="scheme must be a Scheme, got 'variance'"):
        self_consistent(mdp, "variance", 0.5)
    with pytest.raises(BadInput, match=r"v must be in \[0, 1\), got 1"):
        self_consistent(mdp, SCHEME, 1.0)
    with pytest.raises(BadInput, match="scheme must depend neither on TD errors nor on visits, to have a limit"):
        self_consistent(mdp, Frequent(), 0.5)


def test_episodes_cut_off_before_they_see_all_that_is_replayed_are_refused():
    """A gamble, one step away."""
    rows = [(0, 0, 1.0, 1, 0.0, False), *((1, 0, 0.5, 2, r, True) for r in (-1.0, 1.0))]
    mdp = sr.TabularMDP.from_outcomes(3, 1, rows, start=0)
    with pytest.raises(BadInput, match="start must lead to every pair that is replayed, got '1 that cannot be reached"):
        self_consistent(mdp, SCHEME, 0.5, max_steps=1)
    assert len(self_consistent(mdp, SCHEME, 0.5, max_steps=2, seeds=0)) == 1


def test_a_gamble_that_the_start_does_not_lead_to_does_not_count():
    rows = [(s, 0, 0.5, 2, r, True) for s in (0, 1) for r in (-1.0, 1.0)]
    mdp = sr.TabularMDP.from_outcomes(3, 1, rows, start=0)
    (found,) = self_consistent(mdp, sr.VarianceReplay(0.7), 0.5, seeds=0)
    assert found.Q[0, 0] == pytest.approx(0.5 * (np.exp(-0.7) - np.exp(0.7)) / (np.exp(-0.7) + np.exp(0.7)))


def test_behaviours_that_are_none_are_refused():
    mdp = sr.grids.cliff()
    with pytest.raises(BadInput, match=r"behaviour must have shape \(24, 4\), got \(2, 4\)"):
        visitation(mdp, np.ones((2, 4)))
    with pytest.raises(BadInput, match="behaviour must be probabilities that sum to 1 in each state"):
        visitation(mdp, np.ones((24, 4)))
    with pytest.raises(BadInput, match=r"Q must have shape \(states, actions\), got \(3,\)"):
        behaviour([1.0, 2.0, 3.0])
    with pytest.raises(BadInput, match="exploration must be an Exploration, got 'greedy'"):
        behaviour([[1.0]], "greedy")


def test_verdicts_on_the_cliff_depend_on_where_learning_began():
    """γ = 0.9, ε = 0.05, 64 starts: some limits walk the safe path, some never leave."""
    mdp = sr.grids.cliff(0.9)
    found = self_consistent(mdp, SCHEME, 0.5, sr.EpsilonGreedy(0.05), seeds=0)
    counts = Counter(sr.verdict(mdp, one.policy) for one in found)
    assert counts["safe"] >= 5
    assert counts["stuck"] >= 5


def test_a_bounded_search_finds_the_same_where_it_can_and_says_how_far_it_came_where_not():
    cliff = sr.grids.cliff()
    free = sr.fixed_point(cliff, sr.VarianceReplay(5.0), 0.5, "self", seeds=0, starts=3)
    bounded = sr.fixed_point(cliff, sr.VarianceReplay(5.0), 0.5, "self", seeds=0, starts=3, solves=1_000)
    assert [one.Q.tolist() for one in free] == [one.Q.tolist() for one in bounded]
    wide = sr.grids.from_map("\n".join(["." * 12] * 7 + ["S" + "X" * 10 + "G"]), slip=0.1, gamma=0.95, hazard=-12.0)
    for v in (0.05, 0.08, 0.11, 0.3):
        (found, *_) = sr.fixed_point(wide, sr.VarianceReplay(5.0), v, "self", seeds=0, starts=5, solves=8)
        exact = sr.fixed_point(wide, sr.VarianceReplay(5.0), v, found.d)
        np.testing.assert_allclose(found.Q, exact, atol=1e-9)
        short = (found.Q.max(1) - found.Q[np.arange(found.policy.size), found.policy]).max()
        assert short <= (found.residual + 1e-9) * np.ptp(found.Q[~wide.is_terminal]) + 1e-9


def test_a_bounded_search_solves_no_more_than_it_may(monkeypatch):
    solved = []
    weighted = visits.weighted

    def counted(*arguments):
        solved.append(1)
        return weighted(*arguments)

    monkeypatch.setattr(visits, "weighted", counted)
    wide = sr.grids.from_map("\n".join(["." * 12] * 7 + ["S" + "X" * 10 + "G"]), slip=0.1, gamma=0.95, hazard=-12.0)
    sr.fixed_point(wide, sr.VarianceReplay(5.0), 0.08, "self", seeds=0, starts=5, solves=20)
    assert len(solved) <= 20 + 3  # the look at what is replayed, a last round, and what it averages to


def test_the_bound_on_a_search_is_a_whole_number():
    with pytest.raises(sr.BadInput, match="solves must be at least 1, got 0"):
        sr.fixed_point(sr.grids.cliff(), sr.VarianceReplay(), 0.5, "self", seeds=0, solves=0)
