import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from random_models import random_model

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.theory import chain as chains
from safereplay.theory.chain import chain_of

INF = math.inf


def chain(n_states, rows, gamma=0.9):
    """The chain of a model with one action, from rows (s, p, s_next, r, terminal)."""
    rows = [(s, 0, *rest) for s, *rest in rows]
    return chain_of(sr.TabularMDP.from_outcomes(n_states, 1, rows, gamma), [0] * n_states)


@st.composite
def small_chains(draw):
    """Two to five states, one to three outcomes each, whole rewards from −2 to 2; any of them may end the episode."""
    n = draw(st.integers(2, 5))
    outcome = st.tuples(st.integers(0, n - 1), st.integers(-2, 2), st.sampled_from([False, False, True]))
    rows = []
    for s in range(n):
        outcomes = draw(st.lists(outcome, min_size=1, max_size=3))
        rows += [(s, 1.0 / len(outcomes), t, float(r), end) for t, r, end in outcomes]
    return chain(n, rows)


# -- the policy -----------------------------------------------------------------------------------------------------------


def test_a_policy_of_actions_is_the_one_that_is_sure_of_them():
    mdp = random_model(0)
    policy = np.array([0, 2, 1, 1, 0, 2])
    one, other = chain_of(mdp, policy), chain_of(mdp, np.eye(3)[policy])
    for name in ("s", "p", "s_next", "r", "terminal", "unsafe", "row"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_a_mixed_policy_mixes_the_outcomes():
    mdp = random_model(1)
    pi = np.random.default_rng(0).dirichlet(np.ones(3), 6)
    found = chain_of(mdp, pi)
    P = np.zeros((6, 6))
    np.add.at(P, (found.s, found.s_next), found.p)
    expected = sum(
        pi[s, a] * p for s in range(5) for a in range(3) for p, t in zip(*mdp.outcomes(s, a)[:2], strict=True) if t == 2
    )
    assert P[:, 2].sum() == pytest.approx(expected, abs=1e-14)
    np.testing.assert_allclose(P[:5].sum(1), 1.0, atol=1e-14)


def test_the_row_of_a_terminal_state_is_not_looked_at():
    mdp = random_model(1)
    pi = np.full((6, 3), 1.0 / 3.0)
    pi[5] = 0.0
    assert chain_of(mdp, pi).s.max() == 4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda pi: pi[:, :2], r"policy must have shape \(6, 3\), got \(6, 2\)"),
        (lambda pi: pi * 0.5, r"policy of s=0 must sum to 1, got 0\.5"),
        (lambda pi: np.where(np.eye(6, 3, -1) > 0, pi - 1.0, pi + 0.5), r"policy of s=1 must have no negative entry"),
        (lambda pi: pi * math.nan, r"policy must be finite, got nan"),
        (lambda pi: pi[None], r"policy must have shape \(6,\), got \(1, 6, 3\)"),
    ],
)
def test_a_policy_that_is_none_is_refused(change, message):
    with pytest.raises(BadInput, match=message):
        chain_of(random_model(1), change(np.full((6, 3), 1.0 / 3.0)))


# -- possibility ----------------------------------------------------------------------------------------------------------


@given(small_chains())
def test_what_can_be_reached_is_what_powers_of_the_moves_say(found):
    n = found.n_states
    step = np.zeros((n, n), bool)
    step[found.s[~found.terminal], found.s_next[~found.terminal]] = True
    leads = np.linalg.matrix_power(np.eye(n) + step, n) > 0
    start = np.eye(n)[0]
    np.testing.assert_array_equal(found.reached(start), leads[0])
    holds = np.bincount(found.s, weights=found.terminal, minlength=n) > 0
    np.testing.assert_array_equal(found.ends, (leads & holds).any(1))
    together = leads & leads.T
    np.testing.assert_array_equal(found.classes[:, None] == found.classes, together)
    closed = ~(leads & ~together).any(1)
    np.testing.assert_array_equal(found.endless, closed & ~found.ends)


def test_a_restricted_chain_is_the_same_without_what_is_never_met():
    rows = [(0, 1.0, 2, 1.0, False), (1, 1.0, 1, 5.0, False), (2, 0.5, 3, 2.0, True), (2, 0.5, 0, 3.0, False)]
    small, start = chain(4, rows).restricted(np.array([1.0, 0.0, 0.0, 0.0]))
    assert (small.n_states, small.s.tolist(), start.tolist()) == (2, [0, 1, 1], [1.0, 0.0])
    assert sorted(zip(small.r.tolist(), small.s_next.tolist(), strict=True)) == [(1.0, 1), (2.0, 0), (3.0, 0)]


# -- fate -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rewards", "fate"),
    [
        ([0.0, 0.0], 0.0),
        ([-1.0, 0.0], -INF),
        ([0.0, 2.0], INF),
        ([3.0, -2.0], INF),
        ([2.0, -3.0], -INF),
        ([1.5, -1.5], math.nan),
    ],
)
def test_the_fate_of_a_loop_without_end_is_the_sign_of_a_lap(rewards, fate):
    found = chain(3, [(0, 1.0, 1, rewards[0], False), (1, 1.0, 0, rewards[1], False), (2, 1.0, 0, 7.0, False)])
    np.testing.assert_array_equal(found.fate, [fate, fate, 0.0])
    settled = found.settled()
    np.testing.assert_array_equal(settled.r, [fate, fate, 7.0])
    np.testing.assert_array_equal(settled.terminal, [True, True, False])


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("gain", [1e-10, -1e-10, 0.0])
def test_a_lap_that_gains_little_still_gains_whatever_the_size_of_its_rewards(scale, gain):
    """The fate and the worst say the same of it: ±inf for a share of 1e-10, no limit and 0 for none."""
    found = chain(2, [(0, 1.0, 1, scale * (1.0 + gain), False), (1, 1.0, 0, -scale, False)])
    fate = math.copysign(INF, gain) if gain else math.nan
    np.testing.assert_array_equal(found.fate, [fate, fate])
    assert found.worst()[0] == (math.copysign(INF, gain) if gain else 0.0)


@pytest.mark.parametrize(("n", "seed"), [(50, 0), (400, 1), (2_000, 2)])
def test_rounding_does_not_make_a_balanced_lap_gain(n, seed):
    """A ring walked at random with r = h(s') − h(s): long laps, and every one of them has total 0."""
    generator = np.random.default_rng(seed)
    h, p, s = generator.normal(size=n), generator.uniform(0.2, 0.8, n), np.arange(n)
    ways = [(p, (s + 1) % n), (1.0 - p, (s - 1) % n)]
    rows = np.vstack([np.column_stack([s, 0 * s, q, t, h[t] - h[s], 0 * s, 0 * s]) for q, t in ways])
    found = chain_of(sr.TabularMDP.from_outcomes(n, 1, rows), np.zeros(n, int))
    assert np.isnan(found.fate).all()


@pytest.mark.parametrize("n", [2, 400])
def test_a_way_out_that_rounding_loses_is_named(n):
    """A state that leads on once in 1e17 steps, in a small (dense) and a large (sparse) system."""
    rows = [(0, 1.0, 0, -1.0, False), (0, 1e-17, 1, 0.0, False)]
    found = chain(n + 1, [*rows, *((s, 1.0, s + 1, 0.0, s == n - 1) for s in range(1, n))])
    with pytest.raises(
        BadInput, match=r"^outcomes of s=0 must lead to an end with a probability .*, got 1e-17; the least"
    ):
        found.solve(np.ones(found.p.size), ~found.terminal, found.active)


def test_two_rare_moves_in_a_row_are_as_rare_as_their_product():
    rows = [
        (0, 1 - 1e-9, 0, -1.0, False),
        (0, 1e-9, 1, 0.0, False),
        (1, 1 - 1e-9, 0, 0.0, False),
        (1, 1e-9, 2, 0.0, True),
    ]
    found = chain(3, rows)
    with pytest.raises(BadInput, match="must lead to an end with a probability above rounding, got 1e-09"):
        found.solve(np.ones(4), ~found.terminal, found.active)


@pytest.mark.parametrize("seed", range(8))
def test_the_drift_is_that_of_the_stationary_distribution(seed):
    """By hand: μ = μP, and the sign of Σ μ·p·r."""
    generator, n = np.random.default_rng(seed), 5
    P, r = generator.dirichlet(np.ones(n), n), generator.normal(size=(n, n))
    rows = [(s, P[s, t], t, r[s, t], False) for s in range(n) for t in range(n)]
    mu = np.linalg.lstsq(np.vstack([P.T - np.eye(n), np.ones(n)]), np.append(np.zeros(n), 1.0), rcond=None)[0]
    drift = float(mu @ (P * r).sum(1))
    np.testing.assert_array_equal(chain(n, rows).fate, np.full(n, math.copysign(INF, drift)))


# -- the worst case -------------------------------------------------------------------------------------------------------


def by_sweeps(found, gamma, sweeps):
    """min (r + γ·x'), over and over; undiscounted, what still falls after many sweeps falls for ever."""
    n = found.n_states

    def sweep(x):
        after = np.full(n, INF)
        np.minimum.at(after, found.s, found.r + gamma * np.where(found.terminal, 0.0, x[found.s_next]))
        return after

    x = np.full(n, INF if gamma == 1.0 else 0.0)
    for _ in range(sweeps):
        x = sweep(x)
    if gamma == 1.0:
        falling = np.zeros(n, bool)
        before = x
        for _ in range(sweeps):
            x = np.minimum(x, sweep(x))
            falling |= x < before - 1e-9
        x[falling] = -INF
    return x


@given(small_chains(), st.sampled_from([0.5, 0.9, 0.97]))
def test_the_discounted_worst_case_is_that_of_sweeps(found, gamma):
    np.testing.assert_allclose(found.worst(gamma), by_sweeps(found, gamma, 1_300), atol=1e-12 / (1.0 - gamma))


@given(small_chains())
def test_the_worst_case_of_episodes_that_end_is_that_of_sweeps(found):
    """Bellman–Ford as in the textbook; where nothing is endless that is all there is to it."""
    assume(not found.endless.any())
    np.testing.assert_array_equal(found.worst(), by_sweeps(found, 1.0, 40))


def test_a_loop_that_costs_nothing_does_not_count_unless_the_episode_stays_there():
    loop = [(0, 0.5, 0, 0.0, False), (0, 0.5, 1, 5.0, True)]
    assert chain(2, loop).worst()[0] == 5.0
    assert chain(2, [(0, 1.0, 0, 0.0, False)]).worst()[0] == 0.0
    assert chain(3, [(0, 1.0, 1, -5.0, False), (1, 1.0, 1, 0.0, False)]).worst()[0] == -5.0


@pytest.mark.parametrize(
    ("rewards", "worst"),
    [
        ([-1.0, 0.0], [-INF, -INF]),
        ([5.0, -6.0], [-INF, -INF]),
        ([0.0, 2.0], [INF, INF]),
        ([1.0, -1.0], [0.0, -1.0]),
        ([-6.0, 7.0], [INF, INF]),
    ],
)
def test_the_worst_of_a_loop_without_end_is_the_lowest_that_it_comes_back_to(rewards, worst):
    found = chain(2, [(0, 1.0, 1, rewards[0], False), (1, 1.0, 0, rewards[1], False)])
    np.testing.assert_array_equal(found.worst(), worst)


def test_a_loop_of_negative_total_among_gains_is_found():
    """There and back gains 3, the way round loses 1: 0 → 1 → 2 → 0."""
    rows = [(0, 1.0, 1, 2.0, False), (1, 0.5, 0, 1.0, False), (1, 0.5, 2, 2.0, False)]
    rows += [(2, 0.5, 0, -5.0, False), (2, 0.5, 3, 9.0, True), (4, 1.0, 0, 100.0, False), (5, 1.0, 3, -4.0, True)]
    np.testing.assert_array_equal(chain(6, rows).worst(), [-INF, -INF, -INF, 0.0, -INF, -4.0])
    rows[3] = (2, 0.5, 0, -4.0, False)  # now the way round is free
    np.testing.assert_array_equal(chain(6, rows).worst(), [13.0, 11.0, 9.0, 0.0, 113.0, -4.0])


@pytest.mark.parametrize("tenths", [[1, 2, -3], [-8, -9, 17], [-8, 7, -9, 10], [7, -8, 8, 1, -8]])
def test_rounding_does_not_make_a_loop_lose(tenths):
    """Sums of tenths that are 0 are not 0 in floats; going round, the error would add up without end."""
    n, rewards = len(tenths), np.array(tenths) / 10.0
    rows = [(s, 0.5, (s + 1) % n, r, False) for s, r in enumerate(rewards)] + [(s, 0.5, n, 1.0, True) for s in range(n)]
    for s, found in enumerate(chain(n + 1, rows).worst()[:-1]):
        assert found == pytest.approx(1.0 + min(0.0, np.cumsum(np.roll(rewards, -s)).min()), abs=1e-12)


def test_a_large_reward_elsewhere_does_not_hide_a_small_loss():
    rows = [(0, 0.4, 0, -1e-3, False), (0, 0.3, 1, 1e9, False), (0, 0.3, 2, 0.0, True), (1, 1.0, 0, 0.0, False)]
    np.testing.assert_array_equal(chain(3, rows).worst(), [-INF, -INF, 0.0])


def test_a_long_corridor_takes_no_longer_than_its_length():
    """20,000 states in a row: sweeps over all of them would be 400 million steps in Python."""
    n = 20_000
    s = np.arange(n)
    rows = np.column_stack([s, 0 * s, np.ones(n), s + 1, np.where(s % 2, 3.0, -4.0), s == n - 1, 0 * s])
    found = chain_of(sr.TabularMDP.from_outcomes(n + 1, 1, rows, 0.999), np.zeros(n + 1, int))
    expected = np.append(np.cumsum(rows[::-1, 4])[::-1], 0.0)
    np.testing.assert_array_equal(found.worst(), expected)
    assert found.ends[:-1].all()
    assert found.reached(np.eye(1, n + 1, 10_000)[0]).sum() == n - 10_000
    x = 0.0
    for r in rows[::-1, 4]:
        x = r + 0.999 * x
    assert found.worst(0.999)[0] == pytest.approx(x, abs=1e-9)


def test_potentials_on_a_large_ring_leave_no_loop_and_one_broken_edge_makes_one():
    """r = h(s') − h(s): every loop has total 0, so the worst is h(end) − h(s), over 3,000 states of both signs."""
    n, generator = 3_000, np.random.default_rng(0)
    h = generator.integers(-50, 50, n + 1).astype(float)
    s = np.arange(n)
    ways = [(0.5, (s + 1) % n), (0.4, (s - 1) % n), (0.1, np.full(n, n))]
    rows = np.vstack([np.column_stack([s, 0 * s, 0 * s + p, t, h[t] - h[s], t == n, 0 * s]) for p, t in ways])
    policy = np.zeros(n + 1, int)
    np.testing.assert_array_equal(
        chain_of(sr.TabularMDP.from_outcomes(n + 1, 1, rows), policy).worst(), np.append(h[n] - h[:n], 0.0)
    )
    rows[1_234, 4] -= 1.0
    assert (chain_of(sr.TabularMDP.from_outcomes(n + 1, 1, rows), policy).worst()[:n] == -INF).all()


# -- chance ---------------------------------------------------------------------------------------------------------------


def test_an_episode_says_where_it_was_left():
    played = chain(3, [(0, 1.0, 1, 1.0, False), (1, 1.0, 0, 1.0, False)]).play(np.eye(3)[0], 1.0, 5, 3, 0, None, True)
    assert (played.last.tolist(), played.returns.tolist(), played.ended.any()) == ([1] * 5, [3.0] * 5, False)


def test_threads_and_chunks_leave_every_bit_as_it_is():
    mdp = sr.grids.cliff()
    found = chain_of(mdp, sr.exact(mdp, sr.QLearning()).argmax(1))
    one, two = (found.play(mdp.start, 0.9, 5_000, 100, 7, threads, True) for threads in (1, 2))
    fewer = found.play(mdp.start, 0.9, 2_500, 100, 7, 2, True)
    for a, b, c in zip(one, two, fewer, strict=True):
        assert a.tobytes() == b.tobytes()
        assert a[:2_048].tobytes() == c[:2_048].tobytes()
    other = found.play(mdp.start, 0.9, 5_000, 100, 8, None, True)
    assert not np.array_equal(one.returns, other.returns)
    assert not np.array_equal(one.returns[:1_000], one.returns[1_024:2_024])  # chunks have streams of their own


@pytest.mark.whole
def test_the_compiled_kernels_do_what_their_source_says(in_new_process):
    script = """
import warnings; warnings.filterwarnings('ignore', 'overflow encountered', RuntimeWarning)  # random words wrap around
import numpy as np
import safereplay as sr
from safereplay.theory.chain import chain_of
mdp = sr.grids.cliff()
policy = np.full((mdp.n_states, 4), 0.25)
played = chain_of(mdp, policy).play(mdp.start, mdp.gamma, 300, 10_000, 3, None, True)
print([x.hex() for x in played.returns.tolist()], played.lengths.tolist(), played.unsafe.tolist(), played.ended.tolist())
risk = sr.evaluate(mdp, [1] * 24, discounted=True)
print([x.hex() for x in risk.per_state.worst.tolist()])
mixed = sr.grids.volatile(slip=0.2)
print(sr.evaluate(mixed, [1] * 20).per_state.worst.tolist())
found = sr.evaluate(sr.grids.volatile(), [1] * 20, start=5).distribution
print(found.returns.tolist(), [x.hex() for x in found.probabilities.tolist()])
"""
    plain, compiled = in_new_process(script, NUMBA_DISABLE_JIT="1"), in_new_process(script)
    assert plain == compiled
    assert "-inf" in compiled


def test_progress_is_told_and_can_be_kept_quiet(monkeypatch):
    told = []

    class Bar:
        def __init__(self, label, total, quiet):
            told.append((label, total, quiet))

        def __enter__(self):
            return self

        def __exit__(self, *error):
            told.append(error[0])

        def update(self, done):
            told.append(done)

    monkeypatch.setattr(chains, "Bar", Bar)
    found = chain(2, [(0, 1.0, 1, 1.0, True)])
    found.play(np.array([1.0, 0.0]), 1.0, 2_500, 10, 0, None, True)
    assert told[0] == ("sampling episodes", 2_500, True)
    assert told[-2:] == [2_500, None]
    assert told[1:-1] == sorted(told[1:-1])


def test_episodes_are_the_same_however_few_are_played_at_a_time(monkeypatch):
    mdp = sr.grids.cliff()
    found = chain_of(mdp, np.full((24, 4), 0.25))
    one = found.play(mdp.start, 0.9, 1_500, 1_000, 7, 2, True)
    monkeypatch.setattr(chains, "SHORT", 3_000)
    for here, there in zip(one, found.play(mdp.start, 0.9, 1_500, 1_000, 7, 2, True), strict=True):
        assert here.tobytes() == there.tobytes()


def test_an_error_while_playing_ends_the_wait(monkeypatch):
    class Interrupted:
        def __init__(self, *_):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def update(self, done):
            raise KeyboardInterrupt

    monkeypatch.setattr(chains, "Bar", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        chain(1, [(0, 1.0, 0, 1.0, False)]).play(
            np.ones(1), 1.0, 100_000, 1_000_000, 0, None, False
        )  # would take hours
