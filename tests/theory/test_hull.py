"""Ceilings under P(unsafe): the Lagrangian hull beside a linear program, what it proves, and how its work grows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

import safereplay as sr
from safereplay.theory import occupancy as hull
from safereplay.theory.constrained import Ceilings, ceiling
from safereplay.theory.occupancy import Limit, mixed


def edge(n, **options):
    """An n×n map: start and goal at the two ends of a cliff."""
    text = "\n".join(["." * n] * (n - 1) + ["S" + "X" * (n - 2) + "G"])
    return sr.grids.from_map(text, **{"slip": 0.1, "goal": 4.0 * n, "gamma": 0.99, "start": "S", **options})


def risky_model(seed, n_states=6, n_actions=3):
    """Steps cost, ends pay or harm: every pair may end, and no loop gains."""
    generator = np.random.default_rng(seed)
    rows = []
    for s in range(n_states - 1):
        for a in range(n_actions):
            p = generator.dirichlet(np.ones(3))
            on, harm = int(generator.integers(n_states - 1)), bool(generator.random() < 0.5)
            rows += [(s, a, p[0], on, -float(generator.integers(1, 4)), False, False)]
            rows += [(s, a, p[1], n_states - 1, float(generator.integers(-3, 10)), True, False)]
            rows += [(s, a, p[2], n_states - 1, float(generator.integers(-3, 10)), True, harm)]
    return sr.TabularMDP.from_outcomes(n_states, n_actions, rows, gamma=0.9)


def by_linear_program(mdp, limit, gamma=1.0):
    """The ceiling as the value of a linear program over occupancies, where harm ends the episode."""
    on, S, n = ~mdp.terminal, mdp.n_states, mdp.n_pairs
    enter = sparse.csr_array((gamma * mdp.p[on], (mdp.s_next[on], mdp.pair[on])), shape=(S, n))
    leave = sparse.csr_array((np.ones(n), (np.arange(n) // mdp.n_actions, np.arange(n))), shape=(S, n))
    use = np.repeat(~mdp.is_terminal, mdp.n_actions)
    gain, harm = mdp.expect(mdp.r).ravel()[use], mdp.expect(mdp.unsafe.astype(float)).ravel()[use]
    states = ~mdp.is_terminal
    flow = sparse.csr_array(leave - enter)[states][:, use]
    found = linprog(-gain, harm[None, :], [limit], flow, mdp.start[states], bounds=(0, None), method="highs")
    assert found.status == 0
    return -found.fun


# -- beside a linear program ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mdp",
    [
        sr.grids.cliff(),
        sr.grids.cliff(slip=0.3),
        edge(9),
        edge(13, slip=0.2),
        sr.TabularMDP.from_gymnasium("FrozenLake-v1", gamma=0.95, is_slippery=True),
        *(risky_model(seed) for seed in range(8)),
    ],
    ids=lambda mdp: f"{mdp.name}-{mdp.n_states}",
)
def test_the_hull_has_the_value_of_the_linear_program(mdp):
    ceilings = Ceilings(mdp, Limit("max_p_unsafe", 0.0))
    for extra in (0.001, 0.01, 0.05, 0.2):
        limit = min(1.0, ceilings.best + extra)
        found = ceilings.at(limit)
        assert found.status == "optimal"
        assert found.value == pytest.approx(by_linear_program(mdp, limit), rel=1e-7, abs=1e-7)
        discounted = by_linear_program(mdp, limit, mdp.gamma)
        assert found.value_discounted == pytest.approx(discounted, rel=1e-7, abs=1e-7)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.floats(0.0, 1.0), st.sampled_from([1e-9, 1.0, 1e9]))
def test_the_bound_is_attained_by_a_policy_within_the_limit_in_any_unit(seed, share, unit):
    mdp = risky_model(seed)
    mdp = sr.TabularMDP(mdp.n_states, mdp.n_actions, mdp.row, mdp.p, mdp.s_next, unit * mdp.r, *_rest(mdp))
    ceilings = Ceilings(mdp, Limit("max_p_unsafe", 0.0))
    limit = ceilings.best + share * (1.0 - ceilings.best)
    found = ceilings.at(limit)
    assert found.attained == found.profile.mean
    assert abs(found.value - found.attained) <= 1e-8 * 10.0 * unit
    assert found.profile.p_unsafe <= limit + 1e-9
    assert found.value == pytest.approx(unit * ceiling(risky_model(seed), max_p_unsafe=limit).value, rel=1e-8)


def _rest(mdp):
    return mdp.terminal, mdp.unsafe, mdp.start, mdp.gamma


# -- what is proved ---------------------------------------------------------------------------------------------------


def test_a_search_that_is_cut_short_gives_an_upper_bound_and_claims_no_policy(monkeypatch):
    mdp = edge(9)
    ceilings = Ceilings(mdp, Limit("max_p_unsafe", 0.0))
    limit = ceilings.best + 0.001
    best = ceilings.at(limit)
    monkeypatch.setattr(hull, "MAX_LINES", 0)
    short = ceiling(mdp, max_p_unsafe=limit)
    assert short.value > best.value + 1e-3
    assert short.reason.startswith("an upper bound: the best policy found has a mean of ")
    assert short.policy is None
    assert math.isnan(short.attained)
    assert short.to_dict()["attained"] is None
    assert best.to_dict()["attained"] == pytest.approx(best.value, rel=1e-9)


def test_a_lottery_is_between_the_neighbours_on_the_hull():
    value, slope, shares = mixed([(0.0, 0.0), (1.0, 4.0), (0.5, 3.0), (0.25, 0.5)], 0.75)
    assert (value, slope) == (3.5, 2.0)
    assert shares == ((0.5, 2), (0.5, 1))
    assert mixed([(0.5, 1.0)], 0.25) == (-math.inf, 0.0, ())


# -- how the work grows -----------------------------------------------------------------------------------------------


def counted(monkeypatch, work):
    """How many policies were evaluated, and how many λ were solved for."""
    counts = {"means": 0, "line": 0}
    for name in counts:
        plain = getattr(hull.Game, name)

        def once(self, *args, name=name, plain=plain):
            counts[name] += 1
            return plain(self, *args)

        monkeypatch.setattr(hull.Game, name, once)
    work()
    return counts


def test_sixteen_times_the_states_take_hardly_more_policies(monkeypatch):
    work = {}
    for n in (8, 32):
        with monkeypatch.context() as patch:
            work[n] = counted(patch, lambda n=n: ceiling(edge(n), max_p_unsafe=0.05))
    assert work[32]["line"] <= 16
    assert work[32]["means"] <= 4 * work[8]["means"]


def test_the_policies_of_one_limit_serve_the_others(monkeypatch):
    limits = np.linspace(0.03, 0.3, 13)

    def one_by_one():
        for limit in limits:
            ceiling(edge(12), max_p_unsafe=float(limit))

    def together():
        assert len(Ceilings(edge(12), Limit("max_p_unsafe", 0.0)).frontier(limits)) == 13

    with monkeypatch.context() as patch:
        alone = counted(patch, one_by_one)
    with monkeypatch.context() as patch:
        shared = counted(patch, together)
    assert shared["line"] < alone["line"] / 3
    assert shared["means"] < alone["means"] / 3


@pytest.mark.parametrize("mdp", [edge(8), risky_model(3), sr.grids.cliff(fall_ends=False)])
def test_improving_a_policy_several_times_changes_no_ceiling(mdp, monkeypatch):
    limits = np.linspace(0.05, 0.3, 5)

    def values():
        return [(x.value, x.value_discounted) for x in Ceilings(mdp, Limit("max_p_unsafe", 0.0)).frontier(limits)]

    many = values()
    monkeypatch.setattr(hull, "AHEAD", 1)
    np.testing.assert_allclose(many, values(), rtol=2e-9)


def test_improving_a_policy_several_times_needs_fewer_solutions(monkeypatch):
    work = {}
    for ahead in (1, hull.AHEAD):
        with monkeypatch.context() as patch:
            patch.setattr(hull, "AHEAD", ahead)
            work[ahead] = counted(patch, lambda: ceiling(edge(24), max_p_unsafe=0.05))["means"]
    assert work[hull.AHEAD] < work[1]


def test_a_frontier_has_the_values_of_its_ceilings_without_their_policies(monkeypatch):
    mdp, limits = edge(8), [0.03, 0.05, 0.2]
    whole = [Ceilings(mdp, Limit("max_p_unsafe", 0.0)).at(limit) for limit in limits]
    monkeypatch.setattr(hull.Occupancy, "policy", lambda *_: pytest.fail("a policy was computed"))
    points = Ceilings(mdp, Limit("max_p_unsafe", 0.0)).frontier(limits)
    np.testing.assert_allclose([x.value for x in points], [x.value for x in whole], rtol=2e-9)
    np.testing.assert_allclose([x.value_discounted for x in points], [x.value_discounted for x in whole], rtol=2e-9)
