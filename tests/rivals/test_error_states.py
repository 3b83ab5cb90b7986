from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_worlds import Survey, Tables, one_choice, random_world

import safereplay as sr
from safereplay.rivals.ledgers import ErrorStates, audit, followed, settled

ONE_MORE = ((0.01, True, 1.0, True), (0.99, False, 1.0, False))  # pays 1 per step, and harms one time in a hundred


def survey(mdp, weight):
    """All policies by (1 − weight)·mean − 100·weight·P(harm), from linear equations and by doubling."""
    tables = Tables(mdp)
    return Survey(mdp, lambda pi: (1.0 - weight) * tables.mean(pi)[1] - 100.0 * weight * tables.harm(pi))


def ruin(n, p):
    """A gambler who wins 1 with probability p, until there are n (the end) or none (harm)."""
    rows = []
    for i in range(1, n):
        rows.append((i, 0, p, i + 1, 1.0, i + 1 == n, False))
        rows.append((i, 0, 1.0 - p, i - 1, -1.0, i == 1, i == 1))
    return sr.TabularMDP.from_outcomes(n + 1, 1, rows, gamma=0.9)


# -- a policy that is given -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [0.5, 0.4, 0.7])
def test_the_second_table_is_the_gamblers_ruin(p):
    """P(ruin | i of n) = (xⁱ − xⁿ)/(1 − xⁿ), x = (1−p)/p, and 1 − i/n for x = 1: Feller (1968), XIV.2."""
    mdp, x, i = ruin(6, p), (1.0 - p) / p, np.arange(1, 6)
    closed = 1.0 - i / 6 if p == 0.5 else (x**i - x**6) / (1.0 - x**6)
    assert followed(mdp, ErrorStates(), np.zeros(7, int)).M[1:6, 0] == pytest.approx(closed, abs=1e-12)


def test_the_gamblers_ruin_is_learned_undiscounted():
    """Seed 0, 100,000 games, p = 0.4, α = n^−0.8: each chance within 0.02. By 0.9 discounted, 0.2 lower."""
    x, i = 1.5, np.arange(1, 6)
    learned = audit(ruin(6, 0.4), ErrorStates(), 100_000, step_size=sr.PowerStep(0.8)).M[1:6, 0]
    assert learned == pytest.approx((x**i - x**6) / (1.0 - x**6), abs=0.02)


@given(st.integers(0, 10_000), st.integers(0, 15), st.booleans())
@settings(max_examples=40)
def test_the_exact_chance_of_harm_is_the_sum_over_all_times_of_the_first(seed, number, ends):
    mdp, policy = random_world(seed, ends=ends), np.array([*map(int, f"{number:04b}"), 0])
    np.testing.assert_allclose(followed(mdp, ErrorStates(), policy).M, Tables(mdp).harm(policy), atol=1e-9)


def test_on_the_grids_it_is_what_the_risk_profile_says():
    for mdp in (sr.grids.cliff(), sr.grids.volatile(), sr.grids.bridge()):
        policy = sr.exact(mdp, sr.QLearning()).argmax(1)
        book = followed(mdp, ErrorStates(), policy)
        harm = sr.evaluate(mdp, policy, start=mdp.origin).p_unsafe
        assert book.M[mdp.origin, policy[mdp.origin]] == pytest.approx(harm, abs=1e-12)


# -- the weight -------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000), st.floats(0.01, 1.0), st.floats(1.0, 1_000.0))
@settings(max_examples=40)
def test_actions_are_ordered_as_by_the_sources_xi(seed, weight, scale):
    X, M = np.random.default_rng(seed).normal(size=(2, 6, 4))
    xi = (1.0 - weight) / (weight * scale)
    assert ErrorStates(weight, scale).scores(X, M).argmax(1).tolist() == (xi * X - M).argmax(1).tolist()


def test_without_weight_the_limit_is_that_of_q_learning():
    for mdp in (sr.grids.cliff(), sr.grids.volatile(), random_world(3)):
        np.testing.assert_allclose(sr.exact(mdp, ErrorStates(0.0)), sr.exact(mdp, sr.QLearning()), atol=1e-9)


# -- what it settles at -----------------------------------------------------------------------------------------------


def count(weight, **kind):
    """Of 100 random worlds, against all 16 policies by brute force."""
    counts = dict.fromkeys(("none", "several", "refused", "best from the first", "best", "nobody is"), 0)
    for seed in range(100):
        mdp = random_world(seed, **kind)
        every, slack = survey(mdp, weight), 1e-9
        counts["none"] += not len(every.equilibria)
        counts["several"] += len(every.equilibria) > 1
        tight = slack * np.maximum(1.0, np.abs(every.best))
        counts["nobody is"] += not (every.own >= every.best - tight).all(1).any()
        try:
            book = settled(mdp, ErrorStates(weight))
        except sr.BadInput:
            counts["refused"] += 1
            continue
        assert every.holds(np.where(mdp.is_terminal, 0, book.policy))
        short = every.falls_short(book.score.max(1)) <= slack * max(1.0, np.abs(every.best).max())
        counts["best from the first"] += bool(short[0])
        counts["best"] += bool(short.all())
    return tuple(counts.values())


def test_with_one_discount_and_harm_that_ends_the_only_equilibrium_is_the_best_policy():
    assert count(0.1, ends=True, gamma=1.0 - 1e-9) == (0, 0, 0, 100, 100, 0)


def test_with_two_discounts_it_often_is_not_and_there_may_be_none():
    assert count(0.1, ends=True) == (4, 1, 4, 88, 79, 18)


def test_where_harm_does_not_end_the_episode_it_is_the_best_still_less_often():
    assert count(0.1) == (2, 7, 2, 78, 67, 26)


def test_one_step_more_may_always_pay_and_going_on_for_ever_never():
    """At a price of 50. One step more: X = 1, M = 0.01. For ever: X = 1/(1 − 0.9·0.99), M = 1."""
    mdp, learner = one_choice(ONE_MORE), ErrorStates(1 / 3)
    stops, goes = (followed(mdp, learner, [a, 0]) for a in (0, 1))
    assert (stops.X[0, 1], stops.M[0, 1]) == pytest.approx((1.0, 0.01))
    assert (goes.X[0, 1], goes.M[0, 1]) == pytest.approx((1.0 / 0.109, 1.0))
    assert stops.score[0, 1] > 0.0 > goes.score[0, 1]
    assert not len(survey(mdp, 1 / 3).equilibria)
    with pytest.raises(sr.BadInput, match=r"learner must have an equilibrium on this model.*policy iteration cycles"):
        sr.exact(mdp, learner)


def test_there_the_learner_rests_at_a_tie():
    """Going on with probability θ: X = 1/(1 − 0.891·θ), M = 0.01/(1 − 0.99·θ), X = 50·M: X = 5.5, M = 0.11.

    Seeds 0–7, 100,000 episodes, α = n^−0.8: means within 10 %; either policy is 5 times or 8 times off.
    """
    theta = 0.5 / (0.99 - 0.5 * 0.891)
    X, M = 1.0 / (1.0 - 0.891 * theta), 0.01 / (1.0 - 0.99 * theta)
    assert pytest.approx((5.5, 0.11)) == (X, M)
    learned = [
        audit(one_choice(ONE_MORE), ErrorStates(1 / 3), 100_000, seed, step_size=sr.PowerStep(0.8)) for seed in range(8)
    ]
    assert np.mean([book.X[0, 1] for book in learned]) == pytest.approx(X, rel=0.1)
    assert np.mean([book.M[0, 1] for book in learned]) == pytest.approx(M, rel=0.1)


# -- on the grids -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["cliff", "bridge", "ledge", "lottery", "volatile"])
def test_more_weight_is_never_more_harm_on_the_grids(name):
    mdp = getattr(sr.grids, name)()
    policies = [sr.exact(mdp, ErrorStates(weight)).argmax(1) for weight in ErrorStates.SETTINGS]
    harms = [sr.evaluate(mdp, policy, start=mdp.origin).p_unsafe for policy in policies]
    assert all(after <= before + 1e-12 for before, after in pairwise(harms))
    assert harms[-1] < 0.3 * harms[0]


def test_where_only_time_costs_anything_never_to_end_is_safest():
    mdp = sr.grids.frozen_lake()
    ends = [sr.evaluate(mdp, sr.exact(mdp, ErrorStates(weight)).argmax(1)).p_never for weight in (0.01, 0.03)]
    assert ends == [0.0, 1.0]


def test_the_limit_is_learned_on_the_cliff():
    """Seeds 0–3, 50,000 episodes at ε = 1, α = n^−0.8, weight = 0.2: every score within 1 of the limit; all go the safe
    way, as none does at weight = 0.
    """
    mdp, learner = sr.grids.cliff(), ErrorStates(0.2)
    limit = sr.exact(mdp, learner)
    learned = sr.learn(mdp, learner, 50_000, 4, sr.EpsilonGreedy(1.0), sr.PowerStep(0.8))
    assert np.abs(learned.Q - limit).max() < 1.0
    assert learned.verdicts == ["safe"] * 4
    assert sr.learn(mdp, learner, 50_000, 4).verdicts == ["safe"] * 4
    assert sr.learn(mdp, ErrorStates(0.0), 50_000, 4).verdicts == ["risky"] * 4


def test_the_dials_are_checked():
    with pytest.raises(sr.BadInput, match=r"weight must be in \[0, 1\], got 1.5"):
        ErrorStates(1.5)
    with pytest.raises(sr.BadInput, match=r"scale must be in \(0, inf\), got 0"):
        ErrorStates(0.5, scale=0.0)
    assert ErrorStates(0.5).describe() == "error states(weight=0.5, scale=100)"
