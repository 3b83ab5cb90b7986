from dataclasses import dataclass

import numpy as np
import pytest
from random_models import random_model

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.theory.operator import limit_weights, operator
from safereplay.theory.solver import targets

GRIDS = {"volatile": sr.grids.volatile, "cliff": sr.grids.cliff}
SCHEME = sr.VarianceReplay(beta=5.0)


def gamble(beta_gap=1.0):
    """One state, two actions: 0 pays 1 or −1 evenly, 1 pays 0; both end."""
    rows = [
        (0, 0, 0.5, 1, beta_gap, True, False),
        (0, 0, 0.5, 1, -beta_gap, True, True),
        (0, 1, 1.0, 1, 0.0, True, False),
    ]
    return sr.TabularMDP.from_outcomes(2, 2, rows, gamma=0.9)


def value_iteration(mdp, p, sweeps=4000):
    """An independent solver: loops and nothing else."""
    V = np.zeros(mdp.n_states)
    for _ in range(sweeps):
        Q = np.zeros((mdp.n_states, mdp.n_actions))
        for i in range(mdp.n_pairs):
            for k in range(mdp.row[i], mdp.row[i + 1]):
                ahead = 0.0 if mdp.terminal[k] else mdp.gamma * V[mdp.s_next[k]]
                Q[divmod(i, mdp.n_actions)] += p[k] * (mdp.r[k] + ahead)
        if np.abs(Q.max(1) - V).max() < 1e-13:
            break
        V = Q.max(1)
    return Q


def test_w_limit_of_a_gamble_is_lemma_4_by_hand():
    w = limit_weights(gamble(), sr.VarianceReplay(beta=0.7))
    bad, good = np.exp(0.7), np.exp(-0.7)
    np.testing.assert_allclose(w, [bad / (bad + good), good / (bad + good), 0.0], rtol=1e-12)


def test_w_limit_survives_rewards_whose_exponential_overflows():
    w = limit_weights(gamble(500.0), sr.VarianceReplay(beta=5.0))
    np.testing.assert_allclose(w, [1.0, 0.0, 0.0], atol=1e-300)


def test_the_papers_fixed_point_of_a_gamble_is_equations_1_to_4_by_hand():
    v = 0.5
    w_bad = np.exp(0.7) / (np.exp(0.7) + np.exp(-0.7))
    total = (1 - v) + v  # W = 1: the only volatile pair
    p_bad = ((1 - v) * 0.5 + v * w_bad) / total
    Q = sr.fixed_point(gamble(), sr.VarianceReplay(beta=0.7), v)
    np.testing.assert_allclose(Q[0], [1.0 - 2.0 * p_bad, 0.0], rtol=1e-12)


def test_with_visitation_the_share_of_replays_follows_what_is_visited():
    d = np.array([[0.2, 0.8], [0.0, 0.0]])
    H = operator(gamble(), SCHEME, 0.5, d)
    np.testing.assert_allclose(H.rho[0], [0.5 / (0.5 * 0.2 + 0.5), 0.0])


def test_a_pair_never_visited_is_all_replay():
    H = operator(gamble(), SCHEME, 0.5, np.array([[0.0, 1.0], [0.0, 0.0]]))
    assert H.rho[0, 0] == 1.0
    np.testing.assert_allclose(H.p[:2].sum(), 1.0)


@pytest.mark.parametrize("seed", range(8))
def test_the_fixed_point_is_value_iteration_on_the_reshaped_model(seed):
    mdp = random_model(seed)
    H = operator(mdp, sr.VarianceReplay(beta=0.3), 0.6)
    np.testing.assert_allclose(H.fixed_point(), value_iteration(mdp, H.p), rtol=0, atol=1e-9)


@dataclass(frozen=True)
class GapReplay(sr.Scheme):
    """Of our own making: pairs by how far their worst reward lies below the mean, next states by their count."""

    slope: float = 0.4

    @staticmethod
    def pair_weight(mean, r_min):
        return mean - r_min

    @staticmethod
    def log_tilt(r, mean, slope):
        return -slope * (r - mean)

    @staticmethod
    def next_weight(count):
        return count


SCHEMES = [
    sr.Scheme(),
    sr.VarianceReplay(5.0),
    sr.VarianceReplay(0.0),
    sr.VarianceReplay(-0.5),
    GapReplay(),
]


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@pytest.mark.parametrize("visited", [False, True], ids=["d = 1", "d(s,a)"])
def test_h_is_a_contraction_with_factor_gamma_to_machine_precision(scheme, visited):
    """Lemma 2 on 8 models × 20 random pairs of Q, and on pairs that differ by a constant, which reach the factor."""
    for seed in range(8):
        mdp = random_model(seed)
        generator = np.random.default_rng(seed)
        d = generator.dirichlet(np.ones(mdp.n_pairs)).reshape(mdp.n_states, -1) if visited else None
        H = operator(mdp, scheme, 0.8, d)
        for _ in range(20):
            P, Q = generator.normal(size=(2, mdp.n_states, mdp.n_actions)) * 100
            assert np.abs(H(P) - H(Q)).max() <= mdp.gamma * np.abs(P - Q).max() * (1 + 4e-15)
        going_on = mdp.expect((~mdp.terminal).astype(float), H.p).max()
        shift = np.abs(H(Q + 7.0) - H(Q)).max()
        assert shift == pytest.approx(mdp.gamma * 7.0 * going_on, rel=1e-13)


@pytest.mark.parametrize("scheme", SCHEMES, ids=repr)
@pytest.mark.parametrize("seed", range(3))
def test_phi_p_and_r_are_equations_1_to_4_written_as_loops(scheme, seed):
    """Σ over next states and rewards, dictionary by dictionary, with d(s,a) and with the paper's d = 1."""
    mdp, v = random_model(seed), 0.35
    w = limit_weights(mdp, scheme)
    for d in (
        np.ones((mdp.n_states, mdp.n_actions)),
        np.random.default_rng(seed).random((mdp.n_states, mdp.n_actions)),
    ):
        H = operator(mdp, scheme, v, d)
        p, pr = {}, {}
        for i in range(mdp.n_pairs):
            outcomes = range(mdp.row[i], mdp.row[i + 1])
            total = sum((1 - v) * d.ravel()[i] * mdp.p[k] + v * w[k] for k in outcomes)
            for k in outcomes:
                phi1, phi2 = d.ravel()[i] * mdp.p[k] / total, w[k] / total
                assert H.phi1[k] == pytest.approx(phi1, rel=1e-12)
                assert H.phi2[k] == pytest.approx(phi2, rel=1e-12, abs=1e-300)
                here = (i, mdp.s_next[k], mdp.terminal[k])
                p[here] = p.get(here, 0.0) + (1 - v) * phi1 + v * phi2
                pr[here] = pr.get(here, 0.0) + mdp.r[k] * ((1 - v) * phi1 + v * phi2)
        by_place = H.transitions()
        assert len(p) == by_place.p.size
        for i, s_next, terminal, p_tilde, R_tilde in zip(*by_place, strict=True):
            assert p_tilde == pytest.approx(p[i, s_next, terminal], rel=1e-12)
            assert R_tilde == pytest.approx(pr[i, s_next, terminal] / p_tilde, rel=1e-9, abs=1e-12)
        Q = np.random.default_rng(1).normal(size=(mdp.n_states, mdp.n_actions))
        onward = np.where(by_place.terminal, 0.0, Q.max(1)[by_place.s_next])
        HQ = np.bincount(by_place.pair, by_place.p * (by_place.R + mdp.gamma * onward), mdp.n_pairs)
        np.testing.assert_allclose(H(Q).ravel(), HQ, atol=1e-12)


def test_a_pair_neither_visited_nor_replayed_keeps_its_own_outcomes():
    mdp = gamble()
    H = operator(mdp, SCHEME, 0.5, np.zeros((2, 2)))
    assert H.p[2] == mdp.p[2]
    assert H.rho[0].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("grid", GRIDS)
def test_learning_ends_at_the_limit_with_visitation_and_not_at_the_papers(grid):
    """Seed 0, 500,000 episodes, pairs visited more than 500 times: within 2 % of Q's range, the paper's above 20 %.

    One seed: on the cliff 2 of 20 seeds lie a little above 2 % (the worst at 2.14 %), which the report shows.
    """
    mdp = GRIDS[grid]()
    runs = sr.learn(mdp, sr.ReplayQLearning(SCHEME, v=0.5), episodes=500_000, seeds=[0])
    seen = runs.visits[0] > 500
    width = np.ptp(runs.Q[0][seen])
    visited = sr.fixed_point(mdp, SCHEME, 0.5, runs.visitation[0])
    paper = sr.fixed_point(mdp, SCHEME, 0.5)
    assert seen.sum() > 50
    assert np.abs(runs.Q[0] - visited)[seen].max() < 0.02 * width
    assert np.abs(runs.Q[0] - paper)[seen].max() > 0.2 * width


@pytest.mark.parametrize("grid", GRIDS)
def test_matched_mixing_ends_at_the_papers_limit(grid):
    """Seed 0, 500,000 episodes at ε = 0.3: nearer to the paper's limit than a tenth of the way to the one with d."""
    mdp = GRIDS[grid]()
    learner = sr.ReplayQLearning(SCHEME, v=0.5, mixing="matched")
    runs = sr.learn(mdp, learner, episodes=500_000, seeds=[0], exploration=sr.EpsilonGreedy(0.3))
    seen = runs.visits[0] > 500
    to_paper = np.abs(runs.Q[0] - sr.fixed_point(mdp, SCHEME, 0.5))[seen].max()
    to_visited = np.abs(runs.Q[0] - sr.fixed_point(mdp, SCHEME, 0.5, runs.visitation[0]))[seen].max()
    assert to_paper < 0.1 * to_visited


def test_exact_of_q_learning_is_value_iteration():
    for mdp in (sr.grids.volatile(), sr.grids.cliff(), random_model(3)):
        np.testing.assert_allclose(sr.exact(mdp, sr.QLearning()), value_iteration(mdp, mdp.p), atol=1e-9)


@pytest.mark.parametrize("kappa", [-0.7, 0.0, 0.3, 0.9])
def test_exact_of_risk_sensitive_balances_its_td_errors(kappa):
    """The fixed point's defining equation, pair by pair: E[(1 − κ·sign δ)·δ] = 0."""
    for mdp in (sr.grids.cliff(), random_model(5)):
        Q = sr.exact(mdp, sr.RiskSensitive(kappa))
        delta = targets(mdp, Q.max(1)) - Q.ravel()[mdp.pair]
        balance = mdp.expect((1.0 - kappa * np.sign(delta)) * delta)
        np.testing.assert_allclose(balance, 0.0, atol=1e-8)


def test_exact_of_the_pessimist_meets_its_equation():
    mdp = sr.grids.cliff()
    Q = sr.exact(mdp, sr.Pessimistic(0.3))
    np.testing.assert_allclose(Q, mdp.expect(targets(mdp, 0.7 * Q.max(1) + 0.3 * Q.min(1))), atol=1e-8)


def test_worst_cases_of_a_gamble_by_hand():
    np.testing.assert_allclose(sr.exact(gamble(), sr.WorstCase())[0], [-1.0, 0.0])
    np.testing.assert_allclose(sr.exact(gamble(), sr.WorstTransition())[0], [0.0, 0.0])


@pytest.mark.parametrize(
    "learner", [sr.RiskSensitive(0.5), sr.Pessimistic(0.3), sr.WorstCase(), sr.WorstTransition()], ids=str
)
def test_rivals_learn_their_exact_limits(learner):
    """Seed 0, 1,000,000 episodes, ε = 0.5, α = n^−0.8: within 2 % of Q's range on pairs visited more than 2000 times."""
    mdp = sr.grids.volatile()
    runs = sr.learn(mdp, learner, 1_000_000, [0], sr.EpsilonGreedy(0.5), sr.PowerStep(0.8))
    limit = sr.exact(mdp, learner)
    seen = runs.visits[0] > 2000
    assert seen.sum() == 76
    assert np.abs(runs.Q[0] - limit)[seen].max() < 0.02 * np.ptp(limit)


def test_the_band_of_kappa_that_is_safe_on_the_cliff():
    mdp = sr.grids.cliff(gamma=0.95)
    verdicts = {
        k: sr.verdict(mdp, sr.exact(mdp, sr.RiskSensitive(k)).argmax(1))
        for k in (0.0, 0.41, 0.42, 0.6, 0.86, 0.87, 0.95)
    }
    assert verdicts == {
        0.0: "risky",
        0.41: "risky",
        0.42: "safe",
        0.6: "safe",
        0.86: "safe",
        0.87: "risky",
        0.95: "jumps",
    }


def test_literal_mixing_has_no_limit_without_visitation():
    with pytest.raises(
        BadInput, match="mixing must be 'matched' or 'anchored', got 'literal'; the limit of literal mixing depends"
    ):
        sr.exact(sr.grids.cliff(), sr.ReplayQLearning(SCHEME, v=0.5))


def test_bad_visitation_is_named():
    mdp = sr.grids.cliff()
    with pytest.raises(BadInput, match=r"visitation must have shape \(24, 4\), got \(3,\)"):
        sr.fixed_point(mdp, SCHEME, 0.5, [1, 2, 3])
    with pytest.raises(BadInput, match="visitation must have no negative entry, got -1"):
        sr.fixed_point(mdp, SCHEME, 0.5, -np.ones((24, 4)))
    with pytest.raises(BadInput, match=r"v must be in \[0, 1\), got 1"):
        sr.fixed_point(mdp, SCHEME, 1.0)
    with pytest.raises(BadInput, match="scheme must be a Scheme, got 'variance'"):
        sr.fixed_point(mdp, "variance", 0.5)


def test_certain_rewards_have_exactly_no_weight():
    mdp = sr.grids.cliff(slip=0.2)
    certain = np.array([np.unique(mdp.r[a:b]).size < 2 for a, b in zip(mdp.row[:-1], mdp.row[1:], strict=True)])
    assert certain.sum() > 20
    assert (mdp.reward_variance.ravel()[certain] == 0.0).all()
    assert (operator(mdp, SCHEME, 0.5).rho.ravel()[certain] == 0.0).all()


@dataclass(frozen=True)
class Frequent(sr.Scheme):
    @staticmethod
    def pair_weight(n, var):
        return n * var


@dataclass(frozen=True)
class Broken(sr.Scheme):
    where: float = 0.0

    @staticmethod
    def log_tilt(r, where):
        return np.nan if where == 1.0 else 0.0

    @staticmethod
    def next_weight(where):
        return -1.0 if where == 2.0 else 1.0


def test_a_scheme_that_follows_visits_has_no_limit():
    with pytest.raises(BadInput, match="scheme must depend neither on TD errors nor on visits, to have a limit"):
        sr.fixed_point(sr.grids.cliff(), Frequent())


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (1.0, "log_tilt of Broken at r=.* must be a number below infinity, got nan"),
        (2.0, "next_weight of Broken must be finite and at least 0, got -1"),
    ],
)
def test_factors_that_give_no_usable_number_are_refused_by_name(where, said):
    with pytest.raises(BadInput, match=said):
        limit_weights(sr.grids.volatile(), Broken(where))
    with pytest.raises(BadInput, match=said):
        sr.learn(sr.grids.volatile(), sr.ReplayQLearning(Broken(where)), episodes=50, seeds=1)


def test_a_pair_that_no_episode_comes_to_has_no_weight_and_takes_none():
    """State 2 gambles for more than state 0 does, but the start never leads there."""
    rows = [
        (0, 0, 0.5, 1, 1.0, True),
        (0, 0, 0.5, 1, -1.0, True),
        (2, 0, 0.5, 1, 9.0, True),
        (2, 0, 0.5, 1, -9.0, True),
    ]
    mdp = sr.TabularMDP.from_outcomes(3, 1, rows, start=0)
    w = limit_weights(mdp, sr.VarianceReplay(0.0))
    assert w.tolist() == [0.5, 0.5, 0.0, 0.0]
    runs = sr.learn(mdp, sr.ReplayQLearning(sr.VarianceReplay(0.0)), episodes=2_000, seeds=1)
    np.testing.assert_allclose(runs.w[0], w, atol=1e-12)
