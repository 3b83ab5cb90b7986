"""The limit of replay by transitions, against sums by hand and against the sampling core itself."""

import numpy as np
import pytest

import safereplay as sr
from safereplay.theory.shaped import drawn
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
    index = sr.PairIndex(outcome.size, sr.ScoreReplay(1.0), v)
    index.put(np.arange(outcome.size), mdp.pair[outcome], mdp.r[outcome])
    p = np.bincount(outcome, index.distribution(), mdp.p.size)
    p /= np.bincount(mdp.pair, p, mdp.n_pairs)[mdp.pair]
    np.testing.assert_allclose(p, drawn(mdp, sr.ScoreReplay(1.0), v, mdp.r).p, atol=0.01)


def test_q_learning_on_the_cores_draws_comes_to_it(gamble):
    """Tabular Q-learning with step 1/n on 200,000 draws from a memory of 20,000 steps; seed 0, bound 0.03 (q̂ against q)."""
    rng = np.random.default_rng(0)
    action = rng.integers(0, 2, 20_000)
    reward = np.where(action == 0, 1.0, np.where(rng.random(20_000) < 0.1, -6.0, 2.0))
    shaper = sr.Shaper(20_000, 0.5, 1.0, key=sr.ExactKey())
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
    np.testing.assert_allclose(mdp.expect(x, drawn(mdp, sr.ScoreReplay(), 0.5, x).p), seeing, atol=1e-8)


def test_bad_arguments_get_one_line():
    mdp = sr.grids.cliff()
    for match, options in {
        r"v must be in \[0, 1\], got 2": {"v": 2},
        r"unknown tilt_on 'return'; choose from reward, target": {"tilt_on": "return"},
        r"scheme must be a Scheme, got 1": {"scheme": 1},
    }.items():
        with pytest.raises(sr.BadInput, match=match):
            sr.shaped_limit(mdp, **options)
