"""The limit of replay by transitions, against sums by hand and against the sampling core itself."""

import numpy as np
import pytest

import safereplay as sr
from safereplay.theory.shaped import drawn, pooled_unit
from safereplay.theory.solver import optimal, targets

GAMBLE = [  # one state, two actions: a sure 1, or 2 with a 10 % chance of −6
    (0, 0, 1.0, 1, 1.0, True, False),
    (0, 1, 0.9, 1, 2.0, True, False),
    (0, 1, 0.1, 1, -6.0, True, True),
]


@pytest.fixture
def gamble():
    return sr.TabularMDP.from_outcomes(2, 2, GAMBLE, gamma=0.9, start=[1.0, 0.0])


def test_one_gamble_by_hand(gamble):
    """x̄ = 1.2, σ = 2.4: ŵ(−6) = 0.1·e^{β·3} / (0.1·e^{3β} + 0.9·e^{−β/3})."""
    beta, v = 1.5, 0.4
    low, high = 0.1 * np.exp(beta * 7.2 / 2.4), 0.9 * np.exp(-beta * 0.8 / 2.4)
    p_low = (1 - v) * 0.1 + v * low / (low + high)
    Q = sr.shaped_limit(gamble, sr.ScoreReplay(beta), v)
    assert Q[0] == pytest.approx([1.0, -6.0 * p_low + 2.0 * (1 - p_low)])


@pytest.mark.parametrize("beta", [-3.0, 0.5, 2.0, 40.0])
@pytest.mark.parametrize("tilt_on", ["reward", "target"])
def test_the_mean_of_what_entropic_replay_draws_is_the_entropic_risk(beta, tilt_on):
    """E_ŵ[x] = −(u/β)·log Σ q·e^{−βx/u} at every pair of both grids: the integral over slopes against its closed form."""
    for mdp in (sr.grids.cliff(), sr.grids.volatile()):
        x = mdp.r if tilt_on == "reward" else targets(mdp, optimal(mdp, mdp.p).max(1))
        u = pooled_unit(mdp, x)
        top = (-beta * x / u).max()
        with np.errstate(divide="ignore"):
            risk = -u / beta * (np.log(mdp.expect(np.exp(-beta * x / u - top))) + top)
        used = mdp.expect(np.ones_like(x)) > 0.5
        found = mdp.expect(x, drawn(mdp, sr.EntropicReplay(beta), 1.0, x)[0])
        np.testing.assert_allclose(found[used], risk[used], rtol=1e-9, atol=1e-9 * u)


def test_the_unit_is_half_the_distance_of_two_outcomes_however_rare_the_bad_one_is():
    for p in (1e-6, 0.01, 0.5, 0.99):
        rows = [(0, 0, p, 1, -7.0, True, True), (0, 0, 1 - p, 1, 3.0, True, False), (0, 1, 1.0, 1, 2.0, True, False)]
        mdp = sr.TabularMDP.from_outcomes(2, 2, rows, start=0)
        assert pooled_unit(mdp, mdp.r) == pytest.approx(5.0)


def test_a_given_unit_takes_the_place_of_the_models(gamble):
    """u = 4 is the gamble's own: half of 8."""
    own, twice = sr.shaped_limit(gamble), sr.shaped_limit(gamble, sr.EntropicReplay(4.0), unit=8.0)
    np.testing.assert_allclose(own, sr.shaped_limit(gamble, unit=4.0))
    np.testing.assert_allclose(own, twice)


def test_without_replay_or_without_noise_it_is_the_best_policys_q(gamble):
    for mdp in (gamble, sr.grids.cliff(), sr.grids.volatile()):
        np.testing.assert_allclose(sr.shaped_limit(mdp, v=0.0), optimal(mdp, mdp.p))
    calm = sr.grids.from_map("S..G", step=-1.0, goal=8.0)
    np.testing.assert_allclose(sr.shaped_limit(calm, sr.ScoreReplay(9.0), 0.9), optimal(calm, calm.p))


def test_a_bolder_dial_makes_the_gamble_look_better(gamble):
    value = [sr.shaped_limit(gamble, sr.ScoreReplay(beta), 0.5)[0, 1] for beta in (2.0, 1.0, 0.0, -1.0, -2.0)]
    assert value == sorted(value)
    assert value[2] == pytest.approx(1.2)


@pytest.mark.parametrize("grid", [sr.grids.cliff, sr.grids.volatile])
def test_it_is_what_the_sampling_core_draws_from_a_memory_in_true_proportions(grid):
    """A memory that holds each outcome as often as its probability says (to 1 in 2,000) draws p̃ to within 1 %."""
    mdp, v = grid(), 0.5
    copies = np.maximum(np.round(2000 * mdp.p), 1).astype(int)
    outcome = np.repeat(np.arange(mdp.p.size), copies)
    for scheme in (sr.ScoreReplay(1.0), sr.EntropicReplay(2.0)):
        index = sr.PairIndex(outcome.size, scheme, v)
        index.put(np.arange(outcome.size), mdp.pair[outcome], mdp.r[outcome])
        p = np.bincount(outcome, index.distribution(), mdp.p.size)
        p /= np.bincount(mdp.pair, p, mdp.n_pairs)[mdp.pair]
        np.testing.assert_allclose(p, drawn(mdp, scheme, v, mdp.r)[0], atol=0.01)


def test_q_learning_on_the_cores_draws_comes_to_it(gamble):
    """Tabular Q-learning with step 1/n on 200,000 draws from a memory of 20,000 steps; seed 0, bound 0.03 (q̂ against q)."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, 20_000)
    reward = np.where(action == 0, 1.0, np.where(rng.random(20_000) < 0.1, -6.0, 2.0))
    shaper = sr.Shaper(20_000, 0.5, key=sr.ExactKey())
    shaper.add(np.arange(20_000), np.zeros((20_000, 1)), action, reward, np.ones(20_000, bool))
    batch = shaper.draw(200_000)
    learned = [reward[batch][action[batch] == a].mean() for a in (0, 1)]
    assert learned == pytest.approx(sr.shaped_limit(gamble)[0].tolist(), abs=0.06)


def test_a_target_tilt_sees_danger_that_comes_later_and_fits_itself():
    mdp = sr.grids.delayed(sr.grids.cliff(), meanwhile=-1.0)
    plain, blind, seeing = optimal(mdp, mdp.p), sr.shaped_limit(mdp), sr.shaped_limit(mdp, tilt_on="target")
    risk = [sr.evaluate(mdp, Q.argmax(1)).p_unsafe for Q in (plain, blind, seeing)]
    assert risk[1] == risk[0] > 1.8 * risk[2]
    x = targets(mdp, seeing.max(1))
    np.testing.assert_allclose(mdp.expect(x, drawn(mdp, sr.EntropicReplay(), 0.5, x)[0]), seeing, atol=1e-8)


def test_bad_arguments_get_one_line():
    mdp = sr.grids.cliff()
    for match, options in {
        r"v must be in \[0, 1\], got 2": {"v": 2},
        r"unknown tilt_on 'return'; choose from reward, target": {"tilt_on": "return"},
        r"scheme must be a Scheme, got 1": {"scheme": 1},
        r"unit must be in \(0, inf\), got 0": {"unit": 0},
    }.items():
        with pytest.raises(sr.BadInput, match=match):
            sr.shaped_limit(mdp, **options)
