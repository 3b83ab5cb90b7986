"""The unit of the rewards does not matter: with every reward c times as large, values are c times as large and nothing
else changes. Powers of two scale without rounding, so there the bits must be the same; other c are compared to 1e-8.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from units import scaled

import safereplay as sr
from safereplay import catalog
from safereplay.rivals.lagrangian import bracket
from safereplay.rivals.prioritised import prioritised_limit
from safereplay.theory.assumption1 import assumption_1
from safereplay.theory.augmented import best_cvar
from safereplay.theory.constrained import ceiling
from safereplay.theory.theorem2 import critical_share, theorem_2
from safereplay.theory.utility import exponential_utility

SCALES = (1e-12, 1e-10, 1e-8, 1e-3, 1e3, 1e8, 1e12)


def model(seed, rewards=lambda generator: float(generator.normal())):
    """Four states and an end, where every pair may end, three outcomes each, a third of them unsafe."""
    generator = np.random.default_rng(seed)
    rows = []
    for s in range(4):
        for a in range(3):
            for p, s_next in zip(generator.dirichlet(np.ones(3)), (4, *generator.integers(5, size=2)), strict=True):
                rows.append((s, a, p, s_next, rewards(generator), s_next == 4, generator.random() < 0.3))
    return sr.TabularMDP.from_outcomes(5, 3, rows, gamma=0.9, start=0)


def whole(generator):
    return float(generator.integers(-4, 4))


def learners():
    """Every learner of the catalog, and every scheme of the catalog with either mixing."""
    made = [catalog.learner(name)() for name in catalog.LEARNERS if name not in ("replay", "hindsight")]
    schemes = [catalog.scheme(name)() for name in catalog.SCHEMES]
    made += [sr.ReplayQLearning(scheme, mixing=mixing) for scheme in schemes for mixing in ("literal", "matched")]
    made += [sr.RiskSensitive(-0.5), sr.QLearning(c0=3.0), sr.ErrorStates(0.3, scale=2.0), sr.Robust(0.0)]
    made += [sr.Pessimistic(0.0), sr.ExponentialUtility(0.0), sr.ExponentialUtility(-0.5)]
    made += [
        sr.PrioritisedReplay(by="rank"),
        sr.PrioritisedReplay(1.0),
        sr.LagrangianQ(1.0),
        sr.LagrangianQ(0.5, trust=1.0),
    ]
    return {repr(one): one for one in made}


LEARNERS = learners()


def exact_or_none(mdp, learner):
    try:
        return sr.exact(mdp, learner)
    except sr.BadInput:
        return None


@pytest.fixture(scope="module")
def limits():
    return {name: exact_or_none(model(0, whole), learner) for name, learner in LEARNERS.items()}


def test_most_learners_have_an_exact_limit_to_compare(limits):
    assert sum(Q is not None for Q in limits.values()) >= 22


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("c", SCALES)
def test_exact_limits_scale_with_the_rewards(limits, name, c):
    Q, learner = limits[name], scaled(LEARNERS[name], c)
    found = exact_or_none(scaled(model(0, whole), c), learner)
    assert (found is None) == (Q is None)
    if Q is not None:
        np.testing.assert_allclose(found / c, Q, rtol=0, atol=1e-9 * np.abs(Q).max())


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("c", (2.0**-40, 2.0**-27, 2.0**40))
def test_exact_limits_have_the_same_bits_in_a_unit_that_is_a_power_of_two(limits, name, c):
    Q = limits[name]
    found = exact_or_none(scaled(model(0, whole), c), scaled(LEARNERS[name], c))
    assert (found is None) == (Q is None)
    if Q is not None:
        np.testing.assert_array_equal(found / c, Q)
