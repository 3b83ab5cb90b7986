"""The best deterministic policy under a limit: branch and bound against enumeration."""

from itertools import product

import numpy as np
import pytest

import safereplay as sr
from safereplay.theory.deterministic import best_policy
from safereplay.theory.occupancy import Limit, Program

A, S = 2, 4


def random_world(seed):
    """States 0 to 3 with random outcomes, each of which may end the episode."""
    rng, rows = np.random.default_rng(seed), []
    for s, a in product(range(S), range(A)):
        for p in rng.dirichlet(np.ones(3)):
            ends = bool(rng.random() < 0.5)
            rows.append((s, a, p, int(rng.integers(S)), float(rng.integers(-3, 4)), ends, bool(rng.random() < 0.3)))
    return sr.TabularMDP.from_outcomes(S, A, rows, 0.9, start=0)


def enumerated(mdp, limit, accept=lambda policy: True):
    """The mean, discounted if it is unbounded, of the best of all deterministic policies that keeps the limit; None if none does."""
    best, discounted = None, Program(mdp, 0.1).unlimited() == np.inf  # some loop gains for ever
    for choice in product(range(A), repeat=S):
        profile = sr.evaluate(mdp, np.array(choice), quiet=True)
        mean = sr.evaluate(mdp, np.array(choice), discounted=discounted, quiet=True).mean
        if limit.met_by(profile) and accept(np.array(choice)) and (best is None or mean > best):
            best = mean
    return best


def limits(mdp):
    """One limit of each kind that some policies keep and others do not."""
    profiles = [sr.evaluate(mdp, np.array(choice), quiet=True) for choice in product(range(A), repeat=S)]
    profiles = [profile for profile in profiles if profile.p_never == 0.0]
    if not profiles:
        return []
    middle = {name: float(np.median([f(x) for x in profiles])) for name, f in KINDS.items()}
    return [Limit.one_of(**{name: value}) for name, value in middle.items()]


KINDS = {"max_p_unsafe": lambda x: x.p_unsafe, "min_cvar": lambda x: x.cvar(0.1), "max_std": lambda x: x.std}


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(s, marks=pytest.mark.slow) for s in range(6, 60))])
def test_branch_and_bound_finds_what_enumeration_finds(seed):
    mdp = random_world(seed)
    for limit in limits(mdp):
        expected, found = enumerated(mdp, limit), best_policy(mdp, limit)
        assert found is not None
        assert found.value == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert found.gap <= 1e-8 * max(1.0, abs(found.value))
        assert limit.met_by(found.profile)


@pytest.mark.parametrize("seed", range(4))
def test_a_policy_that_is_not_accepted_is_not_taken(seed):
    mdp, limit = random_world(seed), Limit.one_of(max_p_unsafe=1.0)
    first = best_policy(mdp, limit)

    def accept(policy):
        """All but the first one, in the states that it meets."""
        met = first.policy >= 0
        return not np.array_equal(policy[met], first.policy[met])

    found = best_policy(mdp, limit, accept)
    assert found.value == pytest.approx(enumerated(mdp, limit, accept), rel=1e-9)


def test_a_limit_that_no_policy_keeps_has_none():
    mdp = sr.grids.cliff()
    assert best_policy(mdp.with_start(mdp.origin), Limit.one_of(max_p_unsafe=0.001)) is None
