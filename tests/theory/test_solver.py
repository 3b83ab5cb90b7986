"""Exact solving: closed forms, then policy iteration and quantecon, then what the theory of sweeps promises.

``by_sweeps`` is what ``optimal`` does beyond 300 states; here it is called on small models as well.
"""

from functools import partial
from math import inf

import numpy as np
import pytest
from effort import in_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from random_models import random_model
from scipy import sparse

import safereplay as sr
from safereplay.kernels import sweep
from safereplay.theory import solver
from safereplay.theory.operator import operator
from safereplay.theory.solver import by_policies, by_sweeps, greedy, optimal, targets

GRIDS = {"volatile": sr.grids.volatile, "cliff": sr.grids.cliff}


def residual(mdp, Q, p=None):
    """‖HQ − Q‖ / (1 − γ), which is at least the error of Q."""
    return np.abs(mdp.expect(targets(mdp, Q.max(1)), p) - Q).max() / (1.0 - mdp.gamma)


def ring(n, reward, gamma, first=0):
    """Rows of n states in a ring, each of which pays ``reward``; two actions, of which one stays for less."""
    rows = [(first + s, 0, 1.0, first + (s + 1) % n, reward) for s in range(n)]
    return rows + [(first + s, 1, 1.0, first + s, reward - 1.0) for s in range(n)]


def endless(n_states, gamma, seed=0, n_actions=3):
    """Two to four outcomes a pair, next states uniform, no end anywhere."""
    generator = np.random.default_rng(seed)
    pair = np.repeat(np.arange(n_states * n_actions), generator.integers(2, 5, n_states * n_actions))
    p = generator.exponential(size=pair.size)
    p /= np.bincount(pair, weights=p)[pair]
    s_next, r = generator.integers(n_states, size=pair.size), generator.normal(size=pair.size)
    rows = np.column_stack((pair // n_actions, pair % n_actions, p, s_next, r, 0 * p, 0 * p))
    return sr.TabularMDP.from_outcomes(n_states, n_actions, rows, gamma)


def slippery(n, gamma=0.99, marks=()):
    """An n×n map, a tenth of the moves slipping, the goal in a corner."""
    cells = np.full((n, n), ".")
    for i, j, symbol in marks:
        cells[i, j] = symbol
    cells[0, 0], cells[-1, -1] = "S", "G"
    return sr.grids.from_map("\n".join("".join(row) for row in cells), slip=0.1, gamma=gamma)


# -- closed forms -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [0.3, 0.9, 0.999])
def test_a_corridor_is_a_geometric_sum(gamma):
    """d steps of −1 and then the goal: V = γ^(d−1)·10 − (1 − γ^(d−1)) / (1 − γ)."""
    n = 1_000
    mdp = sr.grids.from_map("S" + "." * (n - 1) + "G", gamma=gamma)
    steps = np.arange(n, 0, -1) - 1.0
    exact = gamma**steps * 10.0 - (1.0 - gamma**steps) / (1.0 - gamma)
    stay = -1.0 / (1.0 - gamma)
    assert optimal(mdp, mdp.p).max(1) == pytest.approx([*np.maximum(exact, stay), 0.0], rel=1e-9)


@pytest.mark.parametrize("gamma", [0.5, 0.99, 0.9999])
def test_rings_that_never_end_are_worth_their_reward_for_ever(gamma):
    """Two rings, 1 and 5 per step: no one shift is right for both, yet both are found."""
    rows = ring(200, 1.0, gamma) + ring(200, 5.0, gamma, first=200)
    Q = optimal(mdp := sr.TabularMDP.from_outcomes(400, 2, rows, gamma), mdp.p)
    best = np.repeat([1.0, 5.0], 200) / (1.0 - gamma)
    assert Q[:, 0] == pytest.approx(best, rel=1e-9)
    assert Q[:, 1] == pytest.approx(best * gamma + np.repeat([0.0, 4.0], 200), rel=1e-9)


def test_to_stay_for_ever_is_worth_what_staying_pays():
    rows = [(0, 0, 1.0, 0, 2.0), (0, 1, 1.0, 1, 5.0, True), (1, 0, 1.0, 1, 0.0, True), (1, 1, 1.0, 0, -1.0)]
    mdp = sr.TabularMDP.from_outcomes(2, 2, rows, 0.9)
    assert by_sweeps(mdp, mdp.p) == pytest.approx(np.array([[20.0, 5.0], [0.0, 17.0]]))


def test_where_nothing_is_paid_nothing_is_worth_anything():
    mdp = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 0.5, 0, 0.0), (0, 0, 0.5, 1, 0.0, True)])
    assert by_sweeps(mdp, mdp.p).tolist() == [[0.0], [0.0]]


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
@pytest.mark.parametrize("model", [sr.grids.volatile, partial(slippery, 5)], ids=["volatile", "slippery"])
def test_the_greedy_policy_does_not_depend_on_the_last_bits_of_values(model, scale):
    mdp = model()
    Q = scale * sr.exact(mdp, sr.QLearning())
    rng = np.random.default_rng(0)
    nearby = [Q * (1.0 + 1e-14 * rng.uniform(-1.0, 1.0, Q.shape)) for _ in range(20)]
    assert len({q.argmax(1).tobytes() for q in nearby}) > 1
    assert {greedy(q, scale * mdp.r).tobytes() for q in nearby} == {greedy(Q, scale * mdp.r).tobytes()}
    assert np.isclose(np.take_along_axis(Q, greedy(Q, scale * mdp.r)[:, None], 1)[:, 0], Q.max(1), atol=0.0).all()


def test_outcomes_given_no_chance_count_for_nothing():
    rows = [(0, 0, 0.5, 0, 1.0), (0, 0, 0.5, 1, 100.0, True), (1, 0, 1.0, 0, -1.0)]
    mdp = sr.TabularMDP.from_outcomes(2, 1, rows, 0.5)
    p = np.array([1.0, 0.0, 1.0])
    assert by_sweeps(mdp, p) == pytest.approx(np.array([[2.0], [0.0]]))
    assert by_policies(mdp, p) == pytest.approx(by_sweeps(mdp, p))


def test_states_come_by_their_likeliest_steps_to_an_end_and_the_rest_last():
    """A goal at the right; a pit that is never left comes last, in the order it had."""
    rows = [(s, 0, 1.0, s + 1, -1.0, s == 3) for s in range(4)] + [(s, 0, 1.0, 11 - s, -1.0) for s in (5, 6)]
    rows += [(0, 1, 0.6, 5, -1.0), (0, 1, 0.4, 4, 0.0, True)] + [(s, 1, 1.0, s, -1.0) for s in (1, 2, 3, 5, 6)]
    mdp = sr.TabularMDP.from_outcomes(7, 2, rows)
    assert solver.made_ready(mdp, mdp.p)[2].tolist() == [3, 4, 2, 1, 0, 5, 6]


# -- against other methods ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_sweeps_end_where_policy_iteration_does(seed):
    mdp = random_model(seed, n_states=40, n_actions=4)
    np.testing.assert_allclose(by_sweeps(mdp, mdp.p), by_policies(mdp, mdp.p), rtol=0, atol=1e-9)


@pytest.mark.parametrize("gamma", [0.5, 0.99, 0.9999])
@pytest.mark.parametrize("seed", range(3))
def test_sweeps_end_where_policy_iteration_does_without_an_end(seed, gamma):
    mdp = endless(60, gamma, seed)
    exact = by_policies(mdp, mdp.p)
    np.testing.assert_allclose(by_sweeps(mdp, mdp.p), exact, rtol=0, atol=1e-9 * max(1.0, np.abs(exact).max()))


@pytest.mark.parametrize("grid", [*GRIDS, "fall home", "maze"])
def test_sweeps_end_where_policy_iteration_does_on_grids(grid):
    marks = [(i, j, "#X>."[(3 * i + j) % 4]) for i in range(2, 18, 2) for j in range(2, 18, 2)]
    made = {"fall home": lambda: sr.grids.cliff(fall_ends=False), "maze": lambda: slippery(20, marks=marks)}
    mdp = (GRIDS | made)[grid]()
    np.testing.assert_allclose(by_sweeps(mdp, mdp.p, 1e-9), by_policies(mdp, mdp.p), rtol=0, atol=1e-9)


def quantecon_values(mdp, p):
    """V of quantecon's policy iteration, with the end as one more state that is never left."""
    markov = pytest.importorskip("quantecon").markov
    S, A = mdp.n_states, mdp.n_actions
    P, R = np.zeros((S + 1, A, S + 1)), np.zeros((S + 1, A))
    np.add.at(P, (mdp.pair // A, mdp.pair % A, np.where(mdp.terminal, S, mdp.s_next)), p)
    R[:S] = mdp.expect(mdp.r, p)
    P[P.sum(2) == 0.0, S] = 1.0
    return markov.DiscreteDP(R, P, mdp.gamma).solve("policy_iteration").v[:S]


@pytest.mark.parametrize("scheme", [sr.VarianceReplay(0.2), sr.VarianceReplay(-0.4), sr.Scheme()], ids=repr)
@pytest.mark.parametrize("visited", [False, True], ids=["d = 1", "d(s,a)"])
@pytest.mark.parametrize("model", [*GRIDS, *range(6)])
def test_quantecon_finds_the_same_values_of_the_reshaped_model(model, visited, scheme):
    mdp = GRIDS[model]() if model in GRIDS else random_model(model, n_states=30)
    shares = np.random.default_rng(0).dirichlet(np.ones(mdp.n_pairs)).reshape(mdp.n_states, mdp.n_actions)
    H = operator(mdp, scheme, 0.6, shares if visited else None)
    assert np.abs(H.p - mdp.p).max() > 1e-4
    theirs = quantecon_values(mdp, H.p)
    np.testing.assert_allclose(H.fixed_point().max(1), theirs, rtol=0, atol=1e-9)
    np.testing.assert_allclose(by_sweeps(mdp, H.p, 1e-9).max(1), theirs, rtol=0, atol=1e-9)


# -- what is promised ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: slippery(18), lambda: endless(250, 0.98), lambda: random_model(5, 250)])
def test_the_error_is_within_the_tolerance_and_no_work_is_done_beyond_it(make):
    mdp = make()
    exact = by_policies(mdp, mdp.p)
    errors = [np.abs(by_sweeps(mdp, mdp.p, tolerance) - exact).max() for tolerance in (1.0, 1e-3, 1e-6, 1e-9)]
    assert (np.array(errors) <= [1.0, 1e-3, 1e-6, 1e-9]).all()
    assert errors[0] > 1e-7  # a tolerance that were not read would give what the last one gives
    assert errors[-1] < 1e-9 < errors[0]


@pytest.mark.parametrize("make", [lambda: slippery(18, 0.9), lambda: endless(200, 0.9), lambda: random_model(7, 200)])
def test_the_default_is_one_part_in_1e10_of_the_largest_value(make):
    mdp = make()
    exact = by_policies(mdp, mdp.p)
    assert np.abs(by_sweeps(mdp, mdp.p) - exact).max() <= 1e-10 * np.abs(exact).max()


@pytest.mark.parametrize("gamma", [0.9999, 0.999999, 1.0 - 1e-9])
@pytest.mark.parametrize("tolerance", [None, 1e-300])
def test_a_discount_near_one_and_a_tolerance_out_of_reach_still_end(gamma, tolerance):
    """What rounding leaves is about 10⁻¹⁵/(1−γ) of the largest value; a hundred times that is allowed."""
    for mdp in (endless(400, gamma), slippery(20, gamma)):
        Q = in_lines(5_000, lambda mdp=mdp: by_sweeps(mdp, mdp.p, tolerance))
        assert residual(mdp, Q) <= 1e-13 / (1.0 - gamma) * np.abs(Q).max()


def test_small_models_are_solved_by_policies_and_larger_ones_by_sweeps():
    mdp = endless(solver.SMALL, 0.9)
    assert np.array_equal(optimal(mdp, mdp.p), by_policies(mdp, mdp.p))
    larger = endless(solver.SMALL + 1, 0.9)
    assert np.array_equal(optimal(larger, larger.p), by_sweeps(larger, larger.p))
    assert not np.array_equal(optimal(larger, larger.p), by_policies(larger, larger.p))


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from([0.5, 0.9, 0.99]), st.booleans())
def test_every_sweep_and_shift_raises_values_and_none_passes_the_best(seed, gamma, ends):
    """The theory of the kernels, step by step, on random models with and without an end."""
    mdp = random_model(seed, n_states=12).with_gamma(gamma) if ends else endless(12, gamma, seed)
    model, chain, order = solver.made_ready(mdp, mdp.p)
    best = by_policies(mdp, mdp.p).max(1)[order]
    V = np.full(mdp.n_states, min(0.0, model.reward.min()) / (1.0 - gamma))
    rounding = 1e-11 * (1.0 + np.abs(V).max())
    changes = []
    for _ in range(4):
        before = V.copy()
        changes.append(sweep.improve(model, chain, V)[0])
        assert changes[-1] == np.abs(V - before).max()
        assert (before - rounding <= V).all()
        assert np.abs(V - best).max() <= gamma / (1.0 - gamma) * changes[-1] + rounding
        sweep.fade(chain, 1e-9)
        for _ in range(3):
            before = V.copy()
            change, alpha = sweep.evaluate(chain, V, 0.0)
            assert change == np.abs(V - before).max()
            assert (before - rounding <= V).all()
            if 0.0 < alpha < inf:
                sweep.shift(chain, V, alpha)
                after = V.copy()
                sweep.evaluate(chain, after, 0.0)
                assert (after >= V - rounding).all()
            assert (best + rounding >= V).all()


def test_a_shift_spares_sweeps_where_episodes_are_long(monkeypatch):
    """Without one, 0.9999 takes about 10⁴·ln(1/tolerance) sweeps."""
    mdp, counts = endless(400, 0.9999), []
    evaluate = sweep.evaluate
    monkeypatch.setattr(sweep, "evaluate", lambda *rest: counts.append(1) or evaluate(*rest))
    by_sweeps(mdp, mdp.p, 1e-6)
    assert 10 < len(counts) < 500
    with_shift = len(counts)
    monkeypatch.setattr(sweep, "shift", lambda *rest: None)
    by_sweeps(mdp, mdp.p, 1e-6)
    assert len(counts) - with_shift > 10_000


def test_one_sweep_carries_the_goal_over_the_whole_map_whatever_its_cells_are_called():
    """Without slips the first sweep is right everywhere, wherever the goal is; a second one confirms it."""
    for corner in ("S", "G"), ("G", "S"):
        n = 40
        cells = np.full((n, n), ".")
        cells[0, 0], cells[-1, -1] = corner
        mdp = sr.grids.from_map("\n".join("".join(row) for row in cells), gamma=0.999)
        model, chain, _ = solver.made_ready(mdp, mdp.p)
        V = np.full(mdp.n_states, min(0.0, model.reward.min()) / (1.0 - mdp.gamma))
        assert sweep.improve(model, chain, V)[0] > 1.0
        assert sweep.improve(model, chain, V)[0] == 0.0


PLAIN = """
import safereplay as sr
from random_models import random_model
from scipy import sparse
from safereplay.theory.solver import by_sweeps
models = [sr.grids.cliff(), sr.grids.volatile(slip=0.2), *(random_model(seed) for seed in range(4))]
print(b"".join(by_sweeps(mdp, mdp.p).tobytes() for mdp in models).hex())
"""


def test_the_plain_form_of_the_kernels_gives_the_same_bits(in_new_process):
    compiled, plain = (in_new_process(PLAIN, NUMBA_DISABLE_JIT=off) for off in "01")
    assert compiled == plain
    assert len(compiled) > 1_000


# -- the linear equation ------------------------------------------------------------------------------------------------


def far_steps(n, seed=0):
    """Three steps a state to anywhere, each row summing to 0.98."""
    generator = np.random.default_rng(seed)
    row, p = np.repeat(np.arange(n), 3), 0.98 * generator.dirichlet(np.ones(3), n).ravel()
    return sparse.csr_array((p, (row, generator.integers(n, size=3 * n))), shape=(n, n))


def near_steps(n):
    """A walk along a line, as likely up as down, that ends at both ends."""
    half = np.full(n - 1, 0.5)
    return sparse.csr_array(sparse.diags_array([half, half], offsets=[-1, 1]))


@pytest.mark.parametrize("n", [3, 299, 301, solver.ELIMINATED, solver.ELIMINATED + 1, 20_000])
def test_the_linear_equation_is_solved_at_every_size(n):
    """x is chosen, b follows. Far steps beyond ELIMINATED states would take elimination minutes, products take less than a
    second; a walk along a line is the other way round."""
    x = np.random.default_rng(n).normal(size=n)
    makes = [far_steps, near_steps] if n != solver.ELIMINATED else [near_steps]
    for P in (make(n) for make in makes):
        b = x - P @ x
        found = solver.solve(P, b)
        np.testing.assert_allclose(found - P @ found, b, rtol=0, atol=1e-13)
    if n > solver.ELIMINATED:
        np.testing.assert_allclose(solver.by_products(far_steps(n), x - far_steps(n) @ x), x, atol=1e-11)
        assert solver.by_products(near_steps(n), np.ones(n)) is None


def test_the_steps_of_a_walk_are_its_closed_form():
    """A walk on 1, ..., n that ends at 0 and n + 1 takes s·(n + 1 − s) steps."""
    n = solver.ELIMINATED + 1
    s = np.arange(1.0, n + 1)
    np.testing.assert_allclose(solver.solve(near_steps(n), np.ones(n)), s * (n + 1 - s), rtol=1e-8)


def test_products_are_tried_only_where_steps_lead_far(monkeypatch):
    """Eliminating a chain of near steps is fast, and products would not converge."""
    n, tried = solver.ELIMINATED + 1, []
    monkeypatch.setattr(solver, "by_products", lambda P, b: tried.append(b.size) or b)
    solver.solve(near_steps(n), np.ones(n))
    assert not tried
    solver.solve(far_steps(n), np.ones(n))
    assert tried == [n]


def cube_steps(side):
    """A walk in a cube, which ends in one corner: complete factors have ten times as many entries on 20³ cells as on 10³."""
    n = side**3
    s = np.arange(n)
    x = np.stack(np.unravel_index(s, (side,) * 3))
    steps = np.zeros((6, n), np.int64)
    for k in range(6):
        y = x.copy()
        y[k // 2] = np.clip(y[k // 2] + 2 * (k % 2) - 1, 0, side - 1)
        steps[k] = np.ravel_multi_index(tuple(y), (side,) * 3)
    on = steps.ravel() != n - 1
    return sparse.csr_array((np.full(on.sum(), 1 / 6), (np.tile(s, 6)[on], steps.ravel()[on])), shape=(n, n))


@pytest.mark.parametrize("P", [far_steps(6_000), near_steps(6_000), cube_steps(20)], ids=["far", "near", "cube"])
def test_large_equations_are_solved_with_incomplete_factors(P, monkeypatch):
    n = P.shape[0]
    wanted = solver.solve(P, np.ones(n))
    monkeypatch.setattr(solver, "LARGE", 1_000)
    equation = solver.Equation(P)
    for b in (np.ones(n), np.arange(n) / n):
        x = equation.solve(b)
        assert np.abs(b + P @ x - x).max() <= solver.ROUNDING * np.abs(x).max()
    np.testing.assert_allclose(equation.solve(np.ones(n)), wanted, rtol=1e-7)


def test_incomplete_factors_have_a_limited_number_of_entries(monkeypatch):
    """In a cube complete factors have 60 times as many entries as P."""
    P, kept, incomplete = cube_steps(20), [], solver.spilu
    monkeypatch.setattr(solver, "spilu", lambda *a, **k: kept.append(incomplete(*a, **k)) or kept[-1])
    complete = solver.splu(solver.Equation(P)._matrix, permc_spec="MMD_AT_PLUS_A")
    assert complete.nnz > 40 * P.nnz
    monkeypatch.setattr(solver, "LARGE", 1_000)
    for ways in (solver.WAYS, solver.WAYS[-1:]):
        monkeypatch.setattr(solver, "WAYS", ways)
        solver.solve(P, np.ones(P.shape[0]))
    assert len(kept) == 2
    assert all(factors.nnz <= 25 * P.nnz for factors in kept)


def test_a_way_that_failed_is_not_tried_again(monkeypatch):
    monkeypatch.setattr(solver, "LARGE", 1_000)
    monkeypatch.setattr(solver, "WAYS", ((None, 0.0, 60), (0.9, 1.0, 1), (0.0, 20.0, 60)))
    made, incomplete = [], solver.spilu
    monkeypatch.setattr(solver, "spilu", lambda *a, **k: made.append(k["drop_tol"]) or incomplete(*a, **k))
    equation, b = solver.Equation(near_steps(2_000)), np.ones(2_000)
    assert np.array_equal(equation.solve(b), equation.solve(b))
    assert made == [0.9, 0.0]


def test_where_no_way_is_left_the_error_is_one_line(monkeypatch):
    monkeypatch.setattr(solver, "LARGE", 1_000)
    monkeypatch.setattr(solver, "WAYS", ((0.9, 1.0, 1),))
    with pytest.raises(sr.BadInput, match=r"^equations of 2,000 states must be solved within bounded memory, got") as e:
        solver.solve(near_steps(2_000), np.ones(2_000))
    assert "\n" not in str(e.value)


def test_a_large_singular_equation_has_no_solution(monkeypatch):
    monkeypatch.setattr(solver, "LARGE", 1_000)
    assert np.isnan(solver.solve(sparse.csr_array(sparse.eye_array(2_000)), np.ones(2_000))).all()


# -- a million states ---------------------------------------------------------------------------------------------------

MILLION = """
import resource
import numpy as np
import safereplay as sr
from safereplay.theory.solver import by_sweeps, targets
n = 1_000
text = "\\n".join(["S" + "." * (n - 1)] + ["." * n] * (n - 2) + ["." * (n - 2) + "XG"])
mdp = sr.grids.from_map(text, slip=0.1, gamma=0.99)
Q = by_sweeps(mdp, mdp.p, 1e-6)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
error = np.abs(mdp.expect(targets(mdp, Q.max(1))) - Q).max() / (1.0 - mdp.gamma)
print(mdp.n_states, Q.shape[0] * Q.shape[1], error, peak)
"""


@pytest.mark.slow
def test_a_million_states_are_solved_to_1e_6_in_a_few_gigabytes(in_new_process):
    """The error by Bellman's equation, and the peak of memory in GiB."""
    states, pairs, error, peak = map(float, in_new_process(MILLION).split())
    assert (states, pairs) == (1e6, 4e6)
    assert error <= 1e-6
    assert peak < 6.0


def one_state(gamma=0.9):
    return sr.TabularMDP.from_outcomes(1, 1, [(0, 0, 1.0, 0, 1.0, True)], gamma)


def test_values_that_overflow_or_never_settle_are_refused_in_one_line():
    """Neither would come to an end: inf − inf is not a number, and a map that turns round is no contraction."""
    with pytest.raises(sr.BadInput, match="values must stay finite, got inf; rewards or dials are too large"):
        solver.iterate(lambda Q: np.full((1, 1), inf), one_state())
    with pytest.raises(sr.BadInput, match="values must stay finite, got nan"):
        solver.iterate(lambda Q: Q * np.nan, one_state())
    with pytest.raises(sr.BadInput, match="values must converge, got 1; they still change by that much per round"):
        solver.iterate(lambda Q: 1.0 - Q, one_state())


def test_values_settle_as_far_as_rounding_lets_them():
    """γ = 0.999 asks for changes of 1e-13 of the value: what turns round by 1e-12 for ever is let go."""
    turns = iter(range(1 << 40))
    Q = solver.iterate(lambda Q: np.full((1, 1), 3.0 + 3e-12 * (next(turns) % 2)), one_state(0.999))
    assert Q[0, 0] == pytest.approx(3.0)
