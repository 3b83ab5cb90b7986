import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safereplay as sr
from safereplay import learners

NUMBER = st.floats(-1e3, 1e3)
RATE = st.floats(0.01, 1)


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


# -- the updates, against their equations ---------------------------------------------------------------------------------


@given(NUMBER, NUMBER, NUMBER, RATE, RATE)
def test_q_learning_moves_towards_the_target(q, r, best, alpha, gamma):
    expected = pytest.approx(q + alpha * (r + gamma * best - q), abs=1e-9)
    assert learners.towards_target(q, r, best, alpha, gamma) == expected
    assert sr.QLearning.update is sr.ReplayQLearning.update is learners.towards_target


@given(NUMBER, NUMBER, NUMBER, RATE, RATE, st.floats(-0.99, 0.99))
def test_mihatsch_neuneier_weighs_the_td_error_by_its_sign(q, r, best, alpha, gamma, kappa):
    delta = r + gamma * best - q
    sign = (delta > 0) - (delta < 0)
    expected = pytest.approx(q + alpha * (1 - kappa * sign) * delta, abs=1e-9)
    assert sr.RiskSensitive.update(q, r, best, alpha, gamma, kappa) == expected


@given(NUMBER, NUMBER, NUMBER, NUMBER, RATE, RATE, st.floats(0, 1))
def test_gaskett_mixes_the_best_and_the_worst_next_action(q, r, x, y, alpha, gamma, beta):
    best, worst = max(x, y), min(x, y)
    expected = (1 - alpha) * q + alpha * (r + gamma * ((1 - beta) * best + beta * worst))
    assert sr.Pessimistic.update(q, r, best, worst, alpha, gamma, beta) == pytest.approx(expected, abs=1e-9)


@given(NUMBER, NUMBER, NUMBER, RATE)
def test_the_worst_case_only_falls(q, r, best, gamma):
    assert sr.WorstCase.update(q, r, best, gamma) == min(q, r + gamma * best) <= q


@given(NUMBER, NUMBER, RATE)
def test_the_worst_transition_moves_towards_the_bleakest(q, worst_state, alpha):
    assert sr.WorstTransition.update(q, worst_state, alpha) == pytest.approx(
        (1 - alpha) * q + alpha * worst_state, abs=1e-9
    )


@pytest.mark.parametrize("learner", [sr.RiskSensitive(0.0), sr.Pessimistic(0.0)])
def test_a_rival_without_caution_is_q_learning(learner):
    mdp = sr.grids.cliff()
    plain = sr.learn(mdp, sr.QLearning(), 300, 3)
    rival = sr.learn(mdp, learner, 300, 3)
    assert rival.visits.tolist() == plain.visits.tolist()
    assert rival.Q.ravel().tolist() == pytest.approx(plain.Q.ravel().tolist(), abs=1e-9)


def test_the_worst_transition_is_q_learning_at_the_mean_reward_where_moves_are_certain():
    """One pair, ±: the target is the mean of what was seen, so Q settles on it; Heger's settles on the worst."""
    mdp = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 0.6, 0, 100.0, True), (0, 0, 0.4, 0, -100.0, True)])
    found = {x: sr.learn(mdp, x, 20_000, 1).Q[0, 0, 0] for x in (sr.WorstTransition(), sr.WorstCase())}
    assert found[sr.WorstTransition()] == pytest.approx(20.0, abs=5.0)  # σ of the mean: 98/√20000 = 0.7
    assert found[sr.WorstCase()] == -100.0


def test_heger_finds_the_worst_case_of_the_best_action():
    """Action 0 pays 5 or −5, action 1 pays −1 for sure: the best worst case is −1."""
    mdp = sr.TabularMDP.from_outcomes(
        1, 2, [(0, 0, 0.9, 0, 5.0, True), (0, 0, 0.1, 0, -5.0, True), (0, 1, 1.0, 0, -1.0, True)]
    )
    learned = sr.learn(mdp, sr.WorstCase(), 2000, 3, sr.EpsilonGreedy(0.5))
    assert learned.Q[:, 0].tolist() == [[-5.0, -1.0]] * 3


@pytest.mark.parametrize(("r_max", "gamma", "expected"), [(150.0, 0.9, 1500.0), (-1.0, 0.5, 0.0), (0.0, 0.9, 0.0)])
def test_the_worst_case_starts_no_lower_than_any_return(r_max, gamma, expected):
    assert sr.WorstCase().initial_value(r_max, gamma) == pytest.approx(expected)
    assert sr.WorstCase(c0=7.0).initial_value(r_max, gamma) == 7.0
    assert sr.QLearning(c0=3.0).initial_value(r_max, gamma) == 3.0


# -- configuration ----------------------------------------------------------------------------------------------------------


def test_learners_describe_themselves_in_one_short_line():
    assert sr.QLearning().describe() == "Q-learning"
    assert sr.ReplayQLearning().describe() == "replay(v=0.5, beta=5)"
    assert sr.ReplayQLearning(sr.VarianceReplay(0.1), 0.25, "matched").describe() == "replay(v=0.25, beta=0.1, matched)"
    assert sr.ReplayQLearning(sr.Scheme()).describe() == "replay(v=0.5)"
    assert sr.RiskSensitive(-0.5).describe() == "Mihatsch–Neuneier(kappa=-0.5)"
    assert sr.Pessimistic(0.3).describe() == "Gaskett(beta=0.3)"
    assert sr.WorstCase().describe() == "worst case"
    assert sr.WorstTransition().describe() == "worst transition"


def test_only_learners_that_need_a_memory_have_one():
    def remembers(learner):
        return learner.recipe(sr.EpsilonGreedy(), sr.PowerStep()).remembers

    forgetful = (sr.QLearning(), sr.RiskSensitive(), sr.Pessimistic(), sr.WorstCase())
    assert [remembers(learner) for learner in forgetful] == [False] * 4
    assert remembers(sr.ReplayQLearning())
    assert remembers(sr.WorstTransition())
    assert sr.QLearning().replay is None
    assert sr.ReplayQLearning(v=0.25).replay == (sr.VarianceReplay(5.0), 0.25, "literal")


@pytest.mark.parametrize(
    "kind", [sr.QLearning, sr.ReplayQLearning, sr.RiskSensitive, sr.Pessimistic, sr.WorstCase, sr.WorstTransition]
)
@pytest.mark.parametrize(
    ("dials", "message"),
    [
        ({"T0": 0}, "T0 must be at least 1, got 0"),
        ({"T0": -3}, "T0 must be at least 1, got -3"),
        ({"T0": 1.5}, "T0 must be a whole number, got 1.5"),
        ({"T0": True}, "T0 must be a whole number, got True"),
        ({"c0": "0"}, "c0 must be a number, got '0'"),
        ({"c0": float("nan")}, "c0 must be finite, got nan"),
        ({"c0": float("inf")}, "c0 must be finite, got inf"),
    ],
)
def test_every_learner_checks_c0_and_t0(kind, dials, message):
    with fails(message):
        kind(**dials)


def test_v_may_be_as_near_to_1_as_one_likes_where_it_needs_no_more_replays():
    """Matched mixing makes v·W/(1−v) replays per visit, which is little where W is; exact limits make none."""
    assert sr.ReplayQLearning(v=1.0 - 1e-12, mixing="matched").v < 1.0
    limits = [sr.fixed_point(sr.grids.cliff(), sr.VarianceReplay(), v=1.0 - x) for x in (1e-9, 1e-12)]
    assert np.abs(limits[0] - limits[1]).max() < 1e-6
    assert sr.fixed_point(sr.grids.volatile(), sr.VarianceReplay(), 1.0 - 1e-9, "self", seeds=0, starts=3)


@pytest.mark.parametrize("learner", [sr.MeanVariance(1e308), sr.LagrangianQ(rate=1e308)])
def test_values_that_overflow_are_refused_in_one_line(learner):
    said = r"learned values must stay finite, got (inf|nan); rewards, or the dials of .*, are too large"
    with pytest.raises(sr.BadInput, match=said):
        sr.learn(sr.grids.cliff(), learner, episodes=200, seeds=1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sr.ReplayQLearning(v=1.0), "v must be in [0, 1), got 1"),
        (
            lambda: sr.ReplayQLearning(v=0.9999999),
            "v must be at most 0.999999 where it decides on every iteration, got 0.9999999; "
            "1/(1 - v) = 1e+07 iterations for each step of the MDP take too long",
        ),
        (lambda: sr.WindowReplay(v=0.99999999), "v must be at most 0.999999 where it decides on every iteration"),
        (lambda: sr.ReplayQLearning(v=-0.1), "v must be in [0, 1), got -0.1"),
        (lambda: sr.ReplayQLearning(v=float("nan")), "v must be finite, got nan"),
        (lambda: sr.ReplayQLearning(v="half"), "v must be a number, got 'half'"),
        (lambda: sr.ReplayQLearning(scheme="variance"), "scheme must be a Scheme, got 'variance'"),
        (lambda: sr.ReplayQLearning(scheme=sr.VarianceReplay), "scheme must be a Scheme, got <class"),
        (lambda: sr.ReplayQLearning(mixing="litteral"), "unknown mixing 'litteral'; did you mean 'literal'?"),
        (lambda: sr.ReplayQLearning(mixing=1), "unknown mixing 1; choose from anchored, literal, matched"),
        (lambda: sr.RiskSensitive(1.0), "kappa must be in (-1, 1), got 1"),
        (lambda: sr.RiskSensitive(-1.0), "kappa must be in (-1, 1), got -1"),
        (lambda: sr.RiskSensitive(float("nan")), "kappa must be finite, got nan"),
        (lambda: sr.Pessimistic(1.1), "beta must be in [0, 1], got 1.1"),
        (lambda: sr.Pessimistic(-0.1), "beta must be in [0, 1], got -0.1"),
    ],
)
def test_a_dial_outside_its_interval_is_refused(make, message):
    with fails(message):
        make()


def test_a_t0_that_no_clock_can_hold_is_refused():
    with fails("T0 must be below 2**63, got 1000000000000000000000000000000"):
        sr.QLearning(T0=10**30)


# -- a learner of one's own -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClippedLearning(sr.Learner):
    """A learner of one's own: the TD error is clipped."""

    LABEL: ClassVar[str] = "clipped"
    DIALS: ClassVar[tuple[str, ...]] = ("limit",)
    limit: float = 1.0

    @staticmethod
    def update(q, r, best, alpha, gamma, limit):
        return q + alpha * max(-limit, min(limit, r + gamma * best - q))


def test_a_learner_of_ones_own_is_a_few_lines():
    mdp = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 1.0, 0, 100.0, True)])
    learned = sr.learn(mdp, ClippedLearning(limit=2.0), 10, 1, step_size=sr.ConstantStep(1.0))
    assert learned.Q[0, 0, 0] == 20.0
    assert ClippedLearning(limit=2.0).describe() == "clipped(limit=2)"


def test_an_update_that_names_what_is_not_on_offer_is_refused_with_a_hint():
    @dataclass(frozen=True)
    class MisspeltLearner(sr.Learner):
        @staticmethod
        def update(q, r, bets, alpha):
            return q

    with fails("unknown argument of MisspeltLearner.update 'bets'; did you mean 'best'?"):
        MisspeltLearner()


def test_an_update_written_as_a_method_is_refused_with_the_same_message():
    @dataclass(frozen=True)
    class MethodLearner(sr.Learner):
        def update(self, q):
            return q

    with fails("unknown argument of MethodLearner.update 'self'"):
        MethodLearner()


def test_a_dial_may_not_hide_a_quantity_of_the_loop():
    @dataclass(frozen=True)
    class HidingLearner(sr.Learner):
        DIALS: ClassVar[tuple[str, ...]] = ("gamma",)
        gamma: float = 0.5

    with fails("name of HidingLearner's dial must differ from the quantities that the loop offers, got 'gamma'"):
        HidingLearner()
