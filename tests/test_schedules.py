import re
from dataclasses import dataclass
from math import log, sin

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import safereplay as sr
from safereplay.schedules import TABLE_SIZE


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
    assert table.size == TABLE_SIZE == 65536
    assert table[0] == table[1] == 1.0
    assert table[-1] == pytest.approx(65535**-0.5)
    assert sr.PowerStep(0.5).values(0).size == 0


def test_schedules_are_compiled_once_and_a_dial_is_not_compiled_in():
    assert sr.PowerStep(0.5).bound() is sr.PowerStep(0.7).bound()
    assert sr.EpsilonGreedy(0.1).SOFTMAX is False
    assert sr.Softmax().SOFTMAX is True


@dataclass(frozen=True)
class CountedStep(sr.PowerStep):
    @staticmethod
    def alpha(n, power, scale):
        return scale * n**-power


@dataclass(frozen=True)
class CountedGreedy(sr.EpsilonGreedy):
    @staticmethod
    def rate(n, epsilon, power):
        return epsilon * n**-power


@dataclass(frozen=True)
class CountedSoftmax(sr.Softmax):
    @staticmethod
    def rate(n, temperature, power):
        return temperature * n**-power


@pytest.mark.parametrize(
    ("schedule", "counted", "dials"),
    [
        (sr.PowerStep, CountedStep, {"scale": 0.1}),
        (sr.EpsilonGreedy, CountedGreedy, {"epsilon": 0.2}),
        (sr.Softmax, CountedSoftmax, {"temperature": 3.0}),
    ],
)
def test_a_constant_schedule_needs_no_count_and_gives_the_same_bits(schedule, counted, dials):
    constant, falling = schedule(power=0.0, **dials), schedule(power=0.5, **dials)
    assert [s.bound().uses("n") for s in (constant, falling, counted(power=0.0, **dials))] == [False, True, True]
    role = "step_size" if issubclass(schedule, sr.StepSize) else "exploration"
    found = [
        sr.learn(sr.grids.cliff(), sr.ReplayQLearning(v=0.5), 300, seeds=2, quiet=True, **{role: chosen}).Q
        for chosen in (constant, counted(power=0.0, **dials))
    ]
    assert np.array_equal(*found)


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
    with fails("name of HidingStep's dial must differ from the quantities that the loop offers, got 'n'"):
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


# -- what convergence asks of a schedule ------------------------------------------------------------------------------


@given(st.floats(0, 1), st.floats(0.001, 1))
def test_the_sums_of_a_power_step_follow_from_its_power(power, scale):
    sums = sr.PowerStep(power, scale).sums()
    assert sums.decay == (power, 0.0, True)
    assert sums.diverges is True  # powers go up to 1
    assert sums.squares_converge is (power > 0.5)


def test_partial_sums_are_sums_of_the_values():
    values = np.arange(1, 65536) ** -0.7
    assert sr.PowerStep(0.7).sums().partial == pytest.approx((values.sum(), (values**2).sum()))


def test_the_harmonic_step_and_the_constant_one_are_known():
    assert sr.StepSize().sums()[:2] == (True, True)
    assert sr.ConstantStep(0.01).sums()[:2] == (True, False)
    assert sr.StepSize().decay() == (1.0, 0.0, True)


@pytest.mark.parametrize(
    ("name", "alpha", "diverges", "squares"),
    [
        ("Shifted", lambda n: 11.0 / (10.0 + n), True, True),
        ("Bertrand", lambda n: 1.0 / ((n + 1.0) * log(n + 2.0) ** 2), False, True),
        ("OnTheEdge", lambda n: 1.0 / ((n + 1.0) * log(n + 2.0)), None, True),
        ("Geometric", lambda n: 0.999**n, False, True),
        ("Wobbling", lambda n: (2.0 + sin(n)) / (3.0 * n**0.8), True, True),
        ("Floored", lambda n: max(0.01, n**-0.6), True, False),
        ("HalfWithLog", lambda n: 1.0 / (n**0.5 * log(n + 2.0)), True, True),
        ("Half", lambda n: n**-0.5, True, False),
        ("JustAbove", lambda n: n**-1.01, None, True),
        ("Sawtooth", lambda n: 1.0 / (1.0 + n % 1000.0), None, None),
    ],
)
def test_a_step_size_of_ones_own_is_judged_by_its_values_or_not_at_all(name, alpha, diverges, squares):
    """The truth of each is known: only at the edges, and where there is no power at all, is the answer None."""
    sums = schedule(sr.StepSize, name, alpha)().sums()
    assert sums.decay.proved is False
    assert (sums.diverges, sums.squares_converge) == (diverges, squares)


def test_a_measured_power_is_near_the_true_one():
    @dataclass(frozen=True)
    class Late(sr.PowerStep):
        @staticmethod
        def alpha(n, power, scale):
            return scale * (n + 5.0) ** -power

    @dataclass(frozen=True)
    class Same(sr.PowerStep):
        pass

    assert Late(0.73).decay().power == pytest.approx(0.73, abs=1e-3)
    assert not Late(0.73).decay().proved
    assert Same(0.73).decay() == (0.73, 0.0, True)  # it inherits the function, and what is known of it


@pytest.mark.parametrize(
    ("exploration", "explores", "greedy"),
    [
        (sr.EpsilonGreedy(0.1), True, False),
        (sr.EpsilonGreedy(0.1, 0.5), True, True),
        (sr.EpsilonGreedy(0.1, 1.0), True, True),
        (sr.EpsilonGreedy(0.0), False, True),
        (sr.EpsilonGreedy(0.0, 1.0), False, True),
        (sr.Softmax(3.0), True, False),
        (sr.Softmax(3.0, 0.001), False, True),
        (sr.Softmax(3.0, 1.0), False, True),
    ],
)
def test_named_explorations_are_judged_by_proof(exploration, explores, greedy):
    glie = exploration.glie()
    assert (glie.explores, glie.greedy, glie.decay.proved) == (explores, greedy, True)


def test_cooling_by_a_power_gives_worse_actions_up_and_constant_heat_does_not():
    """The expected number of times that an action worse by 1 is taken from visit 10^3 on, out of two: Σ 1/(1 + e^{1/T})."""
    n = np.arange(1_000, 65_536)
    cooled, kept = (1.0 / (1.0 + np.exp(1.0 / e.table()[n])) for e in (sr.Softmax(1.0, 0.5), sr.Softmax(1.0)))
    assert cooled.sum() < 1e-9
    assert kept.sum() == pytest.approx(n.size / (1 + np.e))


@pytest.mark.parametrize(
    ("base", "rate", "explores", "greedy"),
    [
        (sr.EpsilonGreedy, lambda n: 1.0 / n**1.5, False, True),
        (sr.EpsilonGreedy, lambda n: 1.0 / log(n + 2.0), True, True),
        (sr.EpsilonGreedy, lambda n: 0.0 * n, False, True),
        (sr.EpsilonGreedy, lambda n: 0.3 + 0.0 * n, True, False),
        (sr.EpsilonGreedy, lambda n: 1.0 / ((n + 1.0) * log(n + 2.0)), None, True),
        (sr.Softmax, lambda n: 3.0 / log(n + 1.0), None, True),
        (sr.Softmax, lambda n: 3.0 / log(n + 1.0) ** 0.5, True, True),
        (sr.Softmax, lambda n: 3.0 / log(n + 1.0) ** 2, False, True),
        (sr.Softmax, lambda n: n**-0.3, False, True),
        (sr.Softmax, lambda n: 2.0 + 0.0 * n, True, False),
    ],
)
def test_an_exploration_of_ones_own_is_judged_by_its_values(base, rate, explores, greedy):
    glie = schedule(base, "OwnExploration", rate)().glie()
    assert (glie.explores, glie.greedy, glie.decay.proved) == (explores, greedy, False)


def test_at_the_slowest_cooling_that_explores_the_reason_names_the_gap():
    glie = schedule(sr.Softmax, "LogCooling", lambda n: 3.0 / log(n + 1.0))().glie()
    assert glie.reason == "T·ln n is 3 at n = 65535: explores actions that are worse by less"


@dataclass(frozen=True)
class Creeping(sr.Softmax):
    """A temperature that falls, but so slowly that it hardly shows."""

    @staticmethod
    def rate(n):
        return (n + 1.0) ** -0.01


@dataclass(frozen=True)
class Pulses(sr.EpsilonGreedy):
    """ε = 0.1 at every thousandth visit, else 0."""

    @staticmethod
    def rate(n):
        return 0.1 if n % 1000.0 == 0.0 else 0.0


@dataclass(frozen=True)
class Steady(sr.EpsilonGreedy):
    @staticmethod
    def rate(n):
        return 0.1


def test_what_cannot_be_told_from_values_is_not_told():
    assert Creeping().glie().explores is None
    assert Pulses().glie().explores is None
    assert (Steady().glie().explores, Steady().glie().greedy) == (True, False)
