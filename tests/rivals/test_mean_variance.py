import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_worlds import Survey, Tables, one_choice, random_world
from scipy.optimize import brentq

import safereplay as sr
from safereplay.rivals.ledgers import MeanVariance, audit, followed, iterated, settled

STREAK = ((0.1, True, 0.0, False), (0.9, False, 10.0, False))


def survey(mdp, risk):
    """All policies by mean − risk·variance, from the moments of their returns."""
    tables = Tables(mdp)
    return Survey(mdp, lambda policy: tables.mean(policy)[1] - risk * tables.variance(policy))


def walk(seed):
    """A world with one action: nothing to choose."""
    generator, rows = np.random.default_rng(seed), []
    for s in range(5):
        for p in generator.dirichlet(np.ones(3)):
            t = int(generator.integers(6))
            rows.append((s, 0, p, t, float(generator.integers(-9, 10)), t == 5, False))
    return sr.TabularMDP.from_outcomes(6, 1, rows, gamma=0.9)


# -- a policy that is given -------------------------------------------------------------------------------------------


def test_the_variance_of_a_chain_of_gambles_is_the_sum_of_theirs_discounted_twice():
    """Three gambles of ±100 at 0.6 : 0.4, variance 200²·0.24 each, then the goal: Sobel (1982) by hand."""
    book = followed(sr.grids.volatile(), MeanVariance(), np.ones(20, int))
    assert book.M[5, 1] == pytest.approx(9_600 * (1 + 0.9**2 + 0.9**4), rel=1e-12)
    assert book.M[8, 1] == pytest.approx(0.0, abs=1e-9)


@given(st.integers(0, 10_000), st.integers(0, 15))
@settings(max_examples=40)
def test_the_exact_variance_is_the_second_moment_less_the_squared_mean(seed, number):
    mdp, policy = random_world(seed), np.array([*map(int, f"{number:04b}"), 0])
    tables, book = Tables(mdp), followed(mdp, MeanVariance(0.1), policy)
    scale = np.abs(tables.variance(policy)).max()
    np.testing.assert_allclose(book.X, tables.mean(policy)[1], atol=1e-9 * max(1.0, scale))
    np.testing.assert_allclose(book.M, tables.variance(policy), atol=1e-9 * max(1.0, scale))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_nothing_to_choose_the_variance_of_the_return_is_learned(seed):
    """Seed 0, 100,000 episodes of at most 50 steps, α = n^−0.8: M within 5 % of the closed form, means within 0.3."""
    mdp = walk(seed)
    tables = Tables(mdp)
    book = audit(mdp, MeanVariance(0.1), 100_000, step_size=sr.PowerStep(0.8), max_steps=50)
    np.testing.assert_allclose(book.X[:5], tables.mean(np.zeros(6, int))[1][:5], atol=0.3)
    np.testing.assert_allclose(book.M[:5], tables.variance(np.zeros(6, int))[:5], rtol=0.05)
    assert tables.variance(np.zeros(6, int)).max() > 10.0


# -- what the greedy one settles at -----------------------------------------------------------------------------------


def test_without_risk_the_limit_is_that_of_q_learning():
    for mdp in (sr.grids.cliff(), sr.grids.volatile(), random_world(3)):
        np.testing.assert_allclose(sr.exact(mdp, MeanVariance(0.0)), sr.exact(mdp, sr.QLearning()), atol=1e-9)


def test_against_all_policies_the_limit_is_an_equilibrium_and_often_not_the_best():
    """100 random worlds, risk = 0.1, all 16 policies by brute force: the counts that the module states."""
    counts = dict.fromkeys(("none", "several", "refused", "best from the first", "best", "nobody is"), 0)
    for seed in range(100):
        mdp = random_world(seed)
        every, slack = survey(mdp, 0.1), 1e-9
        counts["none"] += not len(every.equilibria)
        counts["several"] += len(every.equilibria) > 1
        tight = slack * np.maximum(1.0, np.abs(every.best))
        counts["nobody is"] += not (every.own >= every.best - tight).all(1).any()
        try:
            book = settled(mdp, MeanVariance(0.1))
        except sr.BadInput:
            counts["refused"] += 1
            continue
        assert every.holds(np.where(mdp.is_terminal, 0, book.policy))
        short = every.falls_short(book.score.max(1)) <= slack * max(1.0, np.abs(every.best).max())
        counts["best from the first"] += bool(short[0])
        counts["best"] += bool(short.all())
    assert counts == {
        "none": 4,
        "several": 6,
        "refused": 4,
        "best from the first": 77,
        "best": 58,
        "nobody is": 39,
    }


def tie(theta, p=0.1, r=10.0, gamma=0.9):
    """X and M of going on with the streak when that is done with probability θ each time; stopping is worth 0."""
    X = (1 - p) * r / (1 - gamma * (1 - p) * theta)
    on, off = (r + gamma * X - X) ** 2, (r - X) ** 2
    return X, (p * X**2 + (1 - p) * (theta * on + (1 - theta) * off)) / (1 - gamma**2 * (1 - p) * theta)


def test_one_step_of_a_streak_is_worth_its_variance_and_a_whole_one_is_not():
    """Stop after one: X = 9, M = 9. Never stop: y = 10/(1 − 0.81), X = 0.9·y, M = 0.09·y²/(1 − 0.729)."""
    mdp, y = one_choice(STREAK), 10.0 / 0.19
    stops, goes = (followed(mdp, MeanVariance(0.3), [a, 0]) for a in (0, 1))
    assert (stops.X[0, 1], stops.M[0, 1]) == pytest.approx((9.0, 9.0))
    assert (goes.X[0, 1], goes.M[0, 1]) == pytest.approx((0.9 * y, 0.09 * y**2 / 0.271))
    assert stops.score[0, 1] > 0.0 > goes.score[0, 1]
    assert not len(survey(mdp, 0.3).equilibria)
    with pytest.raises(sr.BadInput, match=r"learner must have an equilibrium on this model.*policy iteration cycles"):
        sr.exact(mdp, MeanVariance(0.3))


def test_where_there_is_no_equilibrium_the_learner_rests_at_a_tie():
    """Seeds 0–7, 20,000 episodes, α = n^−0.8. At the tie X = risk·M: 11.20 and 37.3; means within 3 %.

    Neither policy has these tables: stopping after one step has (9, 9), going on for ever (47.4, 920).
    """
    X, M = tie(brentq(lambda theta: tie(theta)[0] - 0.3 * tie(theta)[1], 0.0, 1.0))
    books = [audit(one_choice(STREAK), MeanVariance(0.3), 20_000, s, step_size=sr.PowerStep(0.8)) for s in range(8)]
    assert np.mean([book.X[0, 1] for book in books]) == pytest.approx(X, rel=0.03)
    assert np.mean([book.M[0, 1] for book in books]) == pytest.approx(M, rel=0.03)
    assert pytest.approx((11.2, 37.33), abs=0.01) == (X, M)


def test_of_two_equilibria_the_one_is_learned_that_q_starts_nearer_to():
    """To go on for ever at 1 ± 3: after one step X = 1, M = 9; for ever X = 10, M = 9/0.19. Both hold for risk in
    (1/9, 1.9/9). Seeds 0–4, 300 episodes of up to 200 steps.
    """
    mdp = one_choice([(0.5, False, 4.0, False), (0.5, False, -2.0, False)])
    assert survey(mdp, 0.15).equilibria[:, 0].tolist() == [0, 1]
    assert [len(survey(mdp, risk).equilibria) for risk in (0.11, 0.112, 0.21, 0.212)] == [1, 2, 2, 1]
    for c0, action in ((0.0, 0), (50.0, 1)):
        learner = MeanVariance(0.15, c0=c0)
        assert settled(mdp, learner).policy[0] == action
        assert sum(audit(mdp, learner, 300, s, max_steps=200).policy[0] == action for s in range(5)) >= 4


def test_one_state_at_a_time_gets_out_of_some_circles():
    found = 0
    for seed in range(30):
        mdp = random_world(seed)
        start = np.zeros(mdp.n_states, int)
        if iterated(mdp, MeanVariance(0.3), start) is None:
            book = iterated(mdp, MeanVariance(0.3), start, at_once=False)
            found += book is not None
            assert book is None or survey(mdp, 0.3).holds(np.where(mdp.is_terminal, 0, book.policy))
    assert found > 0


# -- on the grids -----------------------------------------------------------------------------------------------------


def test_more_risk_aversion_is_safer_until_it_jumps_off_the_cliff():
    mdp = sr.grids.cliff()
    verdicts = [sr.verdict(mdp, sr.exact(mdp, MeanVariance(risk)).argmax(1)) for risk in MeanVariance.SETTINGS]
    assert verdicts == ["risky"] * 5 + ["safe", "safe", "jumps"]


def test_the_limit_is_learned_on_the_cliff_by_who_tries_everything():
    """Seeds 0–3, 50,000 episodes at ε = 1, α = n^−0.8, risk = 0.3: every score within 1 of the limit, which is over
    5 away from what plain Q-learning settles at.
    """
    mdp, learner = sr.grids.cliff(), MeanVariance(0.3)
    limit = sr.exact(mdp, learner)
    learned = sr.learn(mdp, learner, 50_000, 4, sr.EpsilonGreedy(1.0), sr.PowerStep(0.8))
    assert np.abs(learned.Q - limit).max() < 1.0
    assert np.abs(sr.exact(mdp, sr.QLearning()) - limit).max() > 5.0
    assert learned.verdicts == ["safe"] * 4


def test_errors_of_the_mean_count_as_variance_and_keep_the_learner_from_finding_out():
    """The same at ε = 0.1 and α = n^−0.6: after 50,000 episodes all four seeds jump, their M still 50 too large."""
    mdp, learner = sr.grids.cliff(), MeanVariance(0.3)
    learned = [audit(mdp, learner, 50_000, seed) for seed in range(4)]
    assert [sr.verdict(mdp, book.policy) for book in learned] == ["jumps"] * 4
    assert min((book.M - settled(mdp, learner).M).max() for book in learned) > 50.0


def test_a_risk_at_which_the_score_overflows_is_refused():
    with pytest.raises(sr.BadInput, match="values must stay finite, got inf; rewards or dials are too large"):
        sr.exact(sr.grids.cliff(), MeanVariance(1e308))
    with pytest.raises(sr.BadInput, match="values must stay finite, got"):
        audit(sr.grids.cliff(), MeanVariance(1e308), episodes=100)


def test_the_dial_is_checked():
    with pytest.raises(sr.BadInput, match=r"risk must be in \[0, inf\), got -1"):
        MeanVariance(-1.0)
    assert MeanVariance(0.1).describe() == "mean–variance(risk=0.1)"
    assert MeanVariance.from_dict(MeanVariance(0.1).to_dict()) == MeanVariance(0.1)
