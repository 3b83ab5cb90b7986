import re
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safereplay as sr
from safereplay.kernels import step


def fails(message):
    return pytest.raises(sr.BadInput, match=re.escape(message))


@given(st.floats(0, 1), st.floats(0.001, 1))
def test_a_power_step_is_scale_times_n_to_the_minus_power(power, scale):
    n = np.arange(1, 200)
    assert sr.PowerStep(power, scale).values(199) == pytest.approx(scale * n**-power, rel=1e-14)


@given(st.floats(0, 1), st.floats(0, 1))
def test_an_epsilon_falls_with_the_visits_of_the_state(epsilon, power):
    n = np.arange(1, 100)
    assert sr.EpsilonGreedy(epsilon, power).values(99) == pytest.approx(epsilon * n**-power, rel=1e-14)


def test_the_papers_defaults():
    assert sr.PowerStep().values(3) == pytest.approx([1.0, 2**-0.6, 3**-0.6])
    assert sr.EpsilonGreedy().values(3).tolist() == [0.1] * 3
    assert sr.ConstantStep(0.25).values(3).tolist() == [0.25] * 3
    assert sr.Softmax(4.0, 0.5).values(4) == pytest.approx([4.0, 4 / 2**0.5, 4 / 3**0.5, 2.0])
    assert sr.StepSize().values(4).tolist() == [1.0, 1 / 2, 1 / 3, 1 / 4]


def test_a_table_has_n_of_zero_stand_for_one_and_is_long_enough_for_the_loop():
    table = sr.PowerStep(0.5).table()
    assert table.size == step.TABLE_SIZE == 65536
    assert table[0] == table[1] == 1.0
    assert table[-1] == pytest.approx(65535**-0.5)
    assert sr.PowerStep(0.5).values(0).size == 0


def test_schedules_are_compiled_once_and_a_dial_is_not_compiled_in():
    assert sr.PowerStep(0.5).bound() is sr.PowerStep(0.7).bound()
    assert sr.EpsilonGreedy(0.1).SOFTMAX is False
    assert sr.Softmax().SOFTMAX is True


def test_a_step_size_of_ones_own_works_in_the_loop():
    @dataclass(frozen=True)
    class HalvingStep(sr.StepSize):
        first: float = 1.0

        @staticmethod
        def alpha(n, first):
            return first / n

    mdp = sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 0.5, 0, 1.0, True), (0, 0, 0.5, 0, 3.0, True)])
    learned = sr.learn(mdp, sr.QLearning(), 1000, 1, step_size=HalvingStep())
    same = sr.learn(mdp, sr.QLearning(), 1000, 1, step_size=sr.StepSize())
    assert learned.Q.tolist() == same.Q.tolist()
    assert learned.Q[0, 0, 0] == pytest.approx(2.0, abs=0.2)  # the mean of 1,000 draws, σ = 1/√1000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: sr.PowerStep(1.5), "power must be in [0, 1], got 1.5"),
        (lambda: sr.PowerStep(-0.1), "power must be in [0, 1], got -0.1"),
        (lambda: sr.PowerStep(0.5, 0.0), "scale must be in (0, 1], got 0"),
        (lambda: sr.PowerStep(0.5, 2), "scale must be in (0, 1], got 2"),
        (lambda: sr.PowerStep("0.6"), "power must be a number, got '0.6'"),
        (lambda: sr.ConstantStep(0.0), "size must be in (0, 1], got 0"),
        (lambda: sr.ConstantStep(float("nan")), "size must be finite, got nan"),
        (lambda: sr.EpsilonGreedy(1.1), "epsilon must be in [0, 1], got 1.1"),
        (lambda: sr.EpsilonGreedy(-0.1), "epsilon must be in [0, 1], got -0.1"),
        (lambda: sr.EpsilonGreedy(0.1, 2.0), "power must be in [0, 1], got 2"),
        (lambda: sr.Softmax(0.0), "temperature must be in (0, inf), got 0"),
        (lambda: sr.Softmax(float("inf")), "temperature must be finite, got inf"),
        (lambda: sr.Softmax(1.0, -1.0), "power must be in [0, 1], got -1"),
    ],
)
def test_a_dial_outside_its_interval_is_refused(make, message):
    with fails(message):
        make()


def schedule(base, name, function, **dials):
    space = {"__annotations__": dict.fromkeys(dials, float), base.FUNCTION: staticmethod(function), **dials}
    return dataclass(frozen=True)(type(name, (base,), space))


@pytest.mark.parametrize(
    ("base", "function", "message"),
    [
        (sr.StepSize, lambda m: m, "unknown argument of OddSchedule.alpha 'm'; choose from n, offset"),
        (sr.StepSize, lambda ofset: 1.0, "unknown argument of OddSchedule.alpha 'ofset'; did you mean 'offset'?"),
        (sr.EpsilonGreedy, lambda n, eps: 1.0, "unknown argument of OddSchedule.rate 'eps'; did you mean 'epsilon'?"),
    ],
)
def test_a_schedule_that_names_what_is_not_on_offer_is_refused(base, function, message):
    with fails(message):
        schedule(base, "OddSchedule", function, offset=1.0)()


def test_a_schedule_written_as_a_method_is_refused_with_the_same_message():
    @dataclass(frozen=True)
    class MethodStep(sr.StepSize):
        def alpha(self, n):
            return 1.0 / n

    with fails("unknown argument of MethodStep.alpha 'self'"):
        MethodStep()


def test_a_dial_may_not_be_called_n():
    with fails("name of HidingStep's dial must differ from what the loop offers, got 'n'"):
        schedule(sr.StepSize, "HidingStep", lambda n: 1.0 / n, n=5.0)()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda n: n, "alpha of WrongStep at n=2 must be in (0, 1], got 2"),
        (lambda n: 1.0 - 0.25 * n, "alpha of WrongStep at n=4 must be in (0, 1], got 0"),
        (lambda n: 0.0 / (n - n), "alpha of WrongStep at n=0 must be in (0, 1], got nan"),
    ],
)
def test_a_step_size_outside_zero_to_one_is_refused_before_anything_is_learned(function, message):
    wrong = schedule(sr.StepSize, "WrongStep", function)()
    with fails(message):
        sr.learn(sr.grids.cliff(), sr.QLearning(), 10, 1, step_size=wrong)
    with fails(message):
        wrong.values(100)


def test_a_bare_exploration_says_that_it_must_be_subclassed():
    with pytest.raises(sr.BadInput, match="Exploration"):
        sr.Exploration()
