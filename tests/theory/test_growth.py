"""How the work of exact functions grows: counted in solves, sweeps and runs, never in seconds."""

import numpy as np
import pytest

import safereplay as sr
from safereplay.theory import operator, solver, theorem2, tuning, visits
from safereplay.theory.occupancy import Limit
from safereplay.theory.operator import Along
from safereplay.theory.switching import Tracer

SCHEME = sr.VarianceReplay(beta=0.5)
SMALL, LARGE = 9, 20  # cells along an edge: by policy iteration, and by sweeps


def edge(n):
    """An n×n map: start and goal at the two ends of a cliff."""
    text = "\n".join(["." * n] * (n - 1) + ["S" + "X" * (n - 2) + "G"])
    return sr.grids.from_map(text, slip=0.1, goal=4.0 * n, gamma=0.95, start="S")


def counter(monkeypatch, module, name):
    """A list that gets an entry for each call of a function of a module."""
    calls, plain = [], getattr(module, name)

    def once(*args, **options):
        calls.append(name)
        return plain(*args, **options)

    monkeypatch.setattr(module, name, once)
    return calls


# -- along v ----------------------------------------------------------------------------------------------------------


def test_w_is_worked_out_once_along_v(monkeypatch):
    calls = counter(monkeypatch, operator, "limit_weights")
    tracer = Tracer(sr.grids.cliff(), Limit("max_p_unsafe", 0.02), None, "matched", sr.EpsilonGreedy())
    assert len(tracer.stretches(sr.VarianceReplay(beta=5.0))) > 2
    assert len(calls) == 1
    sr.switches(sr.grids.cliff(), sr.ReplayQLearning(SCHEME, mixing="matched"))
    assert len(calls) == 2


def test_theorem_2_works_w_out_once_however_many_v_it_looks_at(monkeypatch):
    calls = counter(monkeypatch, operator, "limit_weights")
    looks = counter(monkeypatch, Along, "__call__")
    theorem2.theorem_2(sr.grids.cliff(), sr.VarianceReplay(beta=5.0))
    assert len(looks) > 32
    assert len(calls) == 1


@pytest.mark.parametrize("n", [SMALL, LARGE])
def test_a_limit_begun_near_another_is_the_same_fixed_point(n):
    mdp = edge(n)
    assert (mdp.n_states <= solver.SMALL) == (n == SMALL)
    along = Along(mdp, SCHEME)
    for v in (0.0, 0.3, 0.31, 0.9, 0.1, 0.5):
        Q, alone = along(v), sr.fixed_point(mdp, SCHEME, v)
        size = np.abs(alone).max()
        np.testing.assert_allclose(Q, alone, rtol=0.0, atol=1e-9 * size)
        np.testing.assert_allclose(operator.operator(mdp, SCHEME, v)(Q), Q, rtol=0.0, atol=1e-9 * size)


def test_policy_iteration_begun_near_a_limit_solves_for_fewer_policies(monkeypatch):
    cold, near = _along_and_alone(monkeypatch, edge(SMALL), solver, "solve")
    assert near < 0.7 * cold


def test_sweeps_begun_near_a_limit_are_fewer(monkeypatch):
    for work, share in (("improve", 0.5), ("evaluate", 0.8)):
        cold, near = _along_and_alone(monkeypatch, edge(LARGE), solver.sweep, work)
        assert near < share * cold


def _along_and_alone(monkeypatch, mdp, module, work):
    """How often a function is called for eleven limits, each alone and one after another."""
    values = np.linspace(0.4, 0.5, 11).tolist()
    calls, along = counter(monkeypatch, module, work), Along(mdp, SCHEME)
    for v in values:
        sr.fixed_point(mdp, SCHEME, v)
    cold = len(calls)
    for v in values:
        along(v)
    return cold, len(calls) - cold


@pytest.mark.parametrize("unit", [1e-9, 1.0, 1e9])
def test_values_far_from_those_looked_for_do_no_harm(unit):
    for n in (SMALL, LARGE):
        mdp, generator = edge(n), np.random.default_rng(0)
        mdp = sr.TabularMDP(
            mdp.n_states,
            mdp.n_actions,
            mdp.row,
            mdp.p,
            mdp.s_next,
            unit * mdp.r,
            mdp.terminal,
            mdp.unsafe,
            mdp.start,
            0.95,
        )
        exact = solver.optimal(mdp, mdp.p)
        near = np.where(mdp.is_terminal, 0.0, generator.normal(scale=1e3 * unit, size=mdp.n_states))
        found = solver.optimal(mdp, mdp.p, near=near)
        np.testing.assert_allclose(found, exact, rtol=0.0, atol=1e-9 * np.abs(exact).max())


def test_sweeps_from_values_that_lead_nowhere_begin_anew(monkeypatch):
    monkeypatch.setattr(solver, "NEAR_ROUNDS", 1)
    mdp = edge(LARGE)
    exact = solver.optimal(mdp, mdp.p)
    found = solver.optimal(mdp, mdp.p, near=exact.max(1) + 1e3 * ~mdp.is_terminal)
    np.testing.assert_array_equal(found, exact)


# -- evaluate ---------------------------------------------------------------------------------------------------------


def test_one_elimination_serves_mean_spread_length_and_risk(monkeypatch):
    mdp = edge(LARGE)
    calls, policy = counter(monkeypatch, solver, "splu"), sr.exact(mdp, sr.QLearning()).argmax(1)
    profile = sr.evaluate(mdp, policy, quiet=True)
    assert (profile.p_unsafe > 0.0, profile.std > 0.0) == (True, True)
    assert len(calls) == 1
    assert not profile.source.chain._last  # its factors are large, and a profile is kept


# -- tune -------------------------------------------------------------------------------------------------------------


def test_no_learner_is_trained_for_a_limit_that_no_replay_keeps(monkeypatch):
    calls = counter(monkeypatch, tuning, "learn")
    mdp = sr.grids.cliff()
    plan = sr.tune(mdp, SCHEME, max_p_unsafe=0.01, start=mdp.origin, betas=[1.0], quiet=True)
    assert not calls
    assert (plan.meets, plan.confirmed, plan.confirmation) == (False, False, ())
    assert plan.v >= plan.v_smallest
    assert plan.profile.p_unsafe == min(point.p_unsafe for point in plan.frontier)
    assert "no replay setting keeps it. Best found: replay(" in str(plan)
    assert "no learner was trained" in str(plan)
    assert "not confirmed" not in str(plan)


def test_a_limit_that_a_replay_keeps_is_still_confirmed_by_learning(monkeypatch):
    calls = counter(monkeypatch, tuning, "learn")
    plan = sr.tune(sr.grids.cliff(), SCHEME, max_p_unsafe=0.05, betas=[1.0], episodes=2_000, seeds=2, quiet=True)
    assert plan.meets
    assert len(calls) >= len(plan.confirmation) > 0


# -- 'self' -----------------------------------------------------------------------------------------------------------


def test_each_limit_of_literal_replay_is_taken_apart_once(monkeypatch):
    """64 starts: what limits are compared by is worked out 64 times, not for each pair of them."""
    calls, plain = [], visits._Search.best
    monkeypatch.setattr(visits._Search, "best", lambda self, one: calls.append(one.settled) or plain(self, one))
    found = sr.fixed_point(sr.grids.cliff(0.9), sr.VarianceReplay(5.0), 0.5, "self", sr.EpsilonGreedy(0.05), seeds=0)
    assert len(found) > 10
    assert sum(calls) <= 64


# -- threads ----------------------------------------------------------------------------------------------------------


def test_no_solve_is_large_enough_for_blas_to_start_threads():
    """OpenBLAS solves n equations on one thread while n² < 40,000."""
    assert solver.DENSE**2 < 40_000


def test_the_krylov_method_takes_no_product_of_blas(monkeypatch):
    def never(*args, **options):
        raise AssertionError("a product of BLAS")

    generator, n = np.random.default_rng(1), 6_000
    P = solver.sparse.csr_array((np.full(5 * n, 0.19), (np.repeat(np.arange(n), 5), generator.integers(n, size=5 * n))))
    b = generator.normal(size=(n, 2))
    for name in ("dot", "vdot", "inner"):
        monkeypatch.setattr(np, name, never)
    monkeypatch.setattr(np.linalg, "norm", never)
    x = solver.solve(P, b)
    np.testing.assert_allclose(x - P @ x, b, rtol=0.0, atol=1e-12)


def test_a_singular_equation_has_no_solution_dense_or_sparse():
    for n in (3, solver.DENSE + 1):
        assert np.isnan(solver.solve(solver.sparse.eye_array(n, format="csr"), np.ones(n))).all()
