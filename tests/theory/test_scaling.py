"""The unit of the rewards does not matter: with every reward c times as large, values are c times as large and nothing
else changes. Powers of two scale without rounding, so there the bits must be the same; other c are compared to 1e-9.
"""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from units import scaled

import safereplay as sr
from safereplay import catalog
from safereplay.goals import goal_room
from safereplay.rivals.lagrangian import bracket
from safereplay.rivals.prioritised import prioritised_limit
from safereplay.theory.conditions import check
from safereplay.theory.constrained import ceiling
from safereplay.theory.criteria import best_cvar, exponential_utility
from safereplay.theory.risk import lattice
from safereplay.theory.theorem2 import assumption_1, critical_share, theorem_2

SCALES = (1e-12, 1e-10, 1e-8, 1e-3, 1e3, 1e8, 1e12)
POWERS = (2.0**-40, 2.0**40)
VARIANCE = sr.VarianceReplay(0.5)


def model(seed, whole=True):
    """Four states and an end, where every pair may end; three outcomes per pair, a third of them unsafe."""
    generator = np.random.default_rng(seed)
    rows = []
    for s in range(4):
        for a in range(3):
            for p, s_next in zip(generator.dirichlet(np.ones(3)), (4, *generator.integers(5, size=2)), strict=True):
                r = float(generator.integers(-4, 5)) if whole else float(generator.normal())
                rows.append((s, a, p, s_next, r, s_next == 4, generator.random() < 0.3))
    return sr.TabularMDP.from_outcomes(5, 3, rows, gamma=0.9, start=0)


def learners():
    """Every learner of the catalog, every scheme of the catalog with either mixing of the paper, and anchored risk measures."""
    made = [catalog.learner(name)() for name in catalog.LEARNERS if name != "hindsight"]
    schemes = [catalog.scheme(name)() for name in catalog.SCHEMES]
    made += [sr.ReplayQLearning(scheme, mixing=mixing) for scheme in schemes for mixing in ("literal", "matched")]
    measures = sr.CVaRReplay(), sr.SpectralReplay(), sr.ExpectileReplay(), sr.EntropicReplay()
    made += [sr.ReplayQLearning(scheme, v=0.8, mixing="anchored") for scheme in measures]
    made += [sr.RiskSensitive(-0.5), sr.QLearning(c0=3.0), sr.ErrorStates(0.3, scale=2.0), sr.Robust(0.0)]
    made += [sr.Pessimistic(0.0), sr.ExponentialUtility(0.0), sr.ExponentialUtility(-0.5)]
    made += [sr.PrioritisedReplay(0.0), sr.PrioritisedReplay(1.0, importance=1.0, by="rank")]
    made += [sr.LagrangianQ(1.0), sr.LagrangianQ(0.9, trust=1.0)]
    return {repr(one): one for one in made}


LEARNERS = learners()


# -- exact limits ---------------------------------------------------------------------------------------------------------


@cache
def limit(name, c=1.0):
    """The exact limit in units of c, or None where it is refused."""
    try:
        return sr.exact(scaled(model(0), c), scaled(LEARNERS[name], c)) / c
    except sr.BadInput:
        return None


def test_most_learners_have_an_exact_limit_to_compare():
    assert sum(limit(name) is not None for name in LEARNERS) >= 25


@pytest.mark.parametrize("name", [name for name in LEARNERS if "literal" not in name])
def test_exact_limits_scale_with_the_rewards(name):
    Q = limit(name)
    for c in SCALES:
        found = limit(name, c)
        assert (found is None) == (Q is None)
        if Q is not None:
            np.testing.assert_allclose(found, Q, rtol=0, atol=1e-9 * np.abs(Q).max(), err_msg=f"at {c:g}")
    for c in POWERS:
        np.testing.assert_array_equal(limit(name, c), Q, err_msg=f"at {c:g}")


# -- everything else that is exact ------------------------------------------------------------------------------------------


def of_the_rewards(values, c):
    return [np.asarray(x, np.float64) / c for x in values]


def switches_of(mdp, c):
    found = (
        sr.switches(mdp, sr.RiskSensitive()),
        sr.switches(mdp, sr.ReplayQLearning(scaled(VARIANCE, c), mixing="matched"), steps=8, tight=0.05),
    )
    return [x for one in found for x in (one.at, one.to, one.before)]


def theorem_of(mdp, c):
    found = theorem_2(mdp, scaled(VARIANCE, c), 0.6)
    values = [[x.gap, x.bound, x.needed, x.bound_rho, x.fall] for x in found.states]
    rest = [[x.predicted, x.corrected, x.switched, x.broken, x.unique, x.share, x.rho] for x in found.states]
    at = [np.nan if x.v_switch is None else x.v_switch for x in found.states]
    return [*of_the_rewards(values, c), *rest, at, critical_share(mdp, 0, int(found.states[0].a))]


def assumption_of(mdp, c):
    found = [assumption_1(mdp, scaled(scheme, c)) for scheme in (VARIANCE, sr.ScoreReplay(), sr.ReturnReplay(0.5))]
    return [[x.holds, x.compared, x.broken] for one in found for point in one.points for x in point.readings]


def contraction_of(mdp, c):
    found = check(mdp, scaled(VARIANCE, c), mixing="matched", episodes=20, seeds=1, quiet=True).contraction
    return [found.measured, found.reached, found.holds]


def self_of(mdp, c):
    found = sr.fixed_point(mdp, scaled(VARIANCE, c), 0.5, "self", seeds=0, starts=8)
    return [x for one in found for x in (one.Q / c, one.d, one.policy, one.settled)]


def risks_of(mdp, c):
    found = [sr.evaluate(mdp, [0, 1, 2, 0, 0], discounted=discounted) for discounted in (False, True)]
    values = [(x.mean, x.std, x.quantile(0.5), x.cvar(0.1), x.per_state.mean) for x in found]
    rest = [(x.p_unsafe, x.p_never, x.length, x.distribution.exact) for x in found]
    return [*of_the_rewards([y for x in values for y in x], c), *(y for x in rest for y in x)]


def ceilings_of(mdp, c):
    limits = ({"max_p_unsafe": 0.5}, {"min_cvar": 0.0}, {"min_cvar": -2.0 * c, "alpha": 0.5}, {"max_std": 2.0 * c})
    found = [ceiling(mdp, **one) for one in limits]
    return [
        *of_the_rewards([y for x in found for y in (x.value, x.value_discounted)], c),
        [len(x.status) for x in found],
    ]


def utility_of(mdp, c):
    found = [exponential_utility(mdp, theta / c) for theta in (-1e-2, -1e-13, 1e-13, 1e-6, 0.2)]
    return [*of_the_rewards([x.value for x in found], c), *(x.policy for x in found)]


def cvar_of(mdp, c):
    found = best_cvar(mdp, 0.3)
    return [*of_the_rewards([found.value, found.bound, found.target], c), found.policy]


def prices_of(mdp, c):
    least, free = (ceiling(mdp, max_p_unsafe=x) for x in (0.0, 1.0))
    limit = 0.7 * least.best + 0.3 * free.profile.p_unsafe
    found = bracket(mdp, limit)
    return [found.price / c, found.within.harm]


EXACT = {
    "the fixed point with visits": lambda mdp, c: [
        sr.fixed_point(mdp, scaled(scheme, c), 0.5, np.arange(1.0, 16.0).reshape(5, 3)) / c
        for scheme in (VARIANCE, sr.DownsideReplay(), sr.ScoreReplay(), sr.ReturnReplay(0.5), sr.ErrorReplay())
    ],
    "self-consistent limits": self_of,
    "switches": switches_of,
    "Theorem 2": theorem_of,
    "Assumption 1": assumption_of,
    "the contraction": contraction_of,
    "the risk of a policy": risks_of,
    "ceilings": ceilings_of,
    "the shaped limit": lambda mdp, c: [sr.shaped_limit(mdp, v=0.5, tilt_on=x) / c for x in ("reward", "target")],
    "exponential utility": utility_of,
    "the best CVaR": cvar_of,
    "prices of harm": prices_of,
    "the limit of priorities": lambda mdp, c: [
        prioritised_limit(mdp, scaled(sr.PrioritisedReplay(0.8, v=0.7), c), np.ones((5, 3))) / c
    ],
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_functions_scale_with_the_rewards(name):
    mdp = model(3)
    plain = EXACT[name](mdp, 1.0)
    for c in SCALES:
        for x, y in zip(EXACT[name](scaled(mdp, c), c), plain, strict=True):
            size = (2e-7 if name == "prices of harm" else 1e-9) * np.nanmax(np.abs(y), initial=1.0)
            np.testing.assert_allclose(x, y, rtol=0, atol=size, err_msg=f"at {c:g}")
    for c in POWERS:
        for x, y in zip(EXACT[name](scaled(mdp, c), c), plain, strict=True):
            same = np.testing.assert_array_equal if name != "the limit of priorities" else np.testing.assert_allclose
            same(x, y, err_msg=f"at {c:g}")


@given(st.integers(0, 10_000), st.integers(-40, 40), st.booleans())
@examples(max_examples=25)
def test_policies_and_values_keep_their_bits_in_any_unit_that_is_a_power_of_two(seed, power, whole):
    mdp, c = model(seed, whole), 2.0**power
    other = scaled(mdp, c)
    for learner in (sr.QLearning(), sr.RiskSensitive(0.4), sr.Pessimistic(0.0), sr.Robust(0.0), sr.WorstCase()):
        np.testing.assert_array_equal(sr.exact(other, learner) / c, sr.exact(mdp, learner))
    for scheme in (VARIANCE, sr.ScoreReplay(), sr.DownsideReplay()):
        limits = sr.fixed_point(other, scaled(scheme, c), 0.5) / c, sr.fixed_point(mdp, scheme, 0.5)
        np.testing.assert_array_equal(*limits)
    one, two = (sr.switches(x, sr.Pessimistic(), steps=4, tight=0.2) for x in (mdp, other))
    np.testing.assert_array_equal(one.at, two.at)


def plan(mdp, c, **limit):
    how = {"betas": [0.0, 0.5 / c], "episodes": 50, "seeds": 2, "quiet": True}
    return sr.tune(scaled(mdp, c), scaled(VARIANCE, c), **limit, **how)


@pytest.mark.parametrize(("seed", "c"), [(3, 1e-12), (5, 1e8)])
def test_a_plan_is_the_same_in_another_unit(seed, c):
    mdp = model(seed)
    for unit, limit in ((1.0, {"max_p_unsafe": 0.4}), (c, {"min_cvar": 0.0}), (c, {"max_std": 2.0})):
        other = {name: value * unit for name, value in limit.items()}
        one, two = plan(mdp, 1.0, **limit), plan(mdp, c, **other)
        assert two.v_smallest == pytest.approx(one.v_smallest, rel=1e-9)
        assert (two.meets, two.v) == (one.meets, one.v)
        assert [x.pareto for x in two.frontier] == [x.pareto for x in one.frontier]
        np.testing.assert_array_equal(two.policies, one.policies)
        prices = [[x.price.safety, x.price.replay, x.ceiling.value] for x in (one, two)]
        np.testing.assert_allclose(np.array(prices[1]) / c, prices[0], rtol=1e-7, atol=1e-8)


# -- learners -------------------------------------------------------------------------------------------------------------


def learned(mdp, learner, c, **how):
    return sr.learn(scaled(mdp, c), scaled(learner, c), 60, seeds=2, max_steps=50, quiet=True, **how).Q / c


#: Schemes differ in what they weigh, and mixings in how often they replay: each scheme is compared under the first.
MATCHED = [name for name in LEARNERS if "matched" in name and "VarianceReplay" not in name]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in MATCHED)) for name in LEARNERS]
)
def test_learners_scale_with_the_rewards(name):
    mdp, learner = model(1, whole="CVaR" in name), LEARNERS[name]
    Q = learned(mdp, learner, 1.0)
    for c in () if getattr(learner, "by", "") == "rank" else SCALES:  # errors of 0 but for rounding have any rank
        np.testing.assert_allclose(
            learned(mdp, learner, c), Q, rtol=0, atol=1e-9 * np.abs(Q).max(), err_msg=f"at {c:g}"
        )
    for c in POWERS:
        found, rounds = learned(mdp, learner, c), isinstance(learner, sr.PrioritisedReplay)  # c**0.6 is rounded
        np.testing.assert_allclose(found, Q, rtol=1e-12 if rounds else 0, err_msg=f"at {c:g}")


def test_hindsight_scales_with_the_rewards():
    Q = learned(goal_room(), sr.HindsightQLearning(), 1.0)
    for c in POWERS:
        np.testing.assert_array_equal(learned(goal_room(), sr.HindsightQLearning(), c), Q)


def test_softmax_scales_with_the_rewards_where_its_temperature_does():
    mdp = model(1, whole=False)
    Q = learned(mdp, sr.QLearning(), 1.0, exploration=sr.Softmax(0.3))
    for c in SCALES:
        found = learned(mdp, sr.QLearning(), c, exploration=scaled(sr.Softmax(0.3), c))
        np.testing.assert_allclose(found, Q, rtol=0, atol=1e-9 * np.abs(Q).max())


# -- what broke it --------------------------------------------------------------------------------------------------------


def test_score_replay_is_safe_on_the_cliff_at_any_scale():
    for c in (1.0, *SCALES):
        mdp = scaled(sr.grids.cliff(), c)
        assert sr.verdict(mdp, sr.fixed_point(mdp, sr.ScoreReplay(), v=0.9).argmax(1)) == "safe"


def test_score_replay_takes_rewards_that_differ_by_rounding_for_one():
    """Else what looks the worst of two equal rewards would be replayed more, with where it leads."""
    rows = [(0, 0, 0.5, 1, 0.3, False), (0, 0, 0.5, 2, 0.1 + 0.2, True), (1, 0, 1.0, 2, 5.0, True)]
    mdp = sr.TabularMDP.from_outcomes(3, 1, rows, start=0)
    assert mdp.reward_variance[0, 0] > 0.0
    np.testing.assert_array_equal(sr.fixed_point(mdp, sr.ScoreReplay(), v=0.9), sr.exact(mdp, sr.QLearning()))


@pytest.mark.parametrize("c", SCALES)
def test_rewards_have_the_same_lattice_in_any_unit(c):
    for rewards in ([-12.0, 0.1, 10.0], [0.7, 0.3, 0.0], [-100.0, 150.0], [1.0], [0.0], [1 / 3, 1.0]):
        unit, steps = lattice(np.array(rewards))
        other, same = lattice(np.array(rewards) * c)
        assert other / c == pytest.approx(unit, rel=1e-12) or rewards == [0.0]
        np.testing.assert_array_equal(same, steps)
        np.testing.assert_allclose(unit * steps, rewards, rtol=1e-12)
    assert lattice(np.array([1.0, 2.0**0.5]) * c) is None
