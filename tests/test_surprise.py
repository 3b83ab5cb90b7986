"""Replay without keys: bad surprises are drawn more often, by exactly the stated weights."""

import numpy as np
import pytest

import safereplay as sr
from safereplay.surprise import BATCHES, surprise
from safereplay.theory.shaped import error_unit, judge, measure

ERRORS = np.array([-4.0, -1.0, -0.3, 0.0, 0.5, 3.0])


def counted(sampler, errors, batches=8_000, batch=64):
    """How often each of these transitions is drawn, as shares."""
    counts = np.zeros(len(errors))
    for _ in range(batches):
        np.add.at(counts, sampler.draw(len(errors), batch, lambda slots: errors[slots]), 1)
    return counts / counts.sum()


def weights(errors, v, beta, reach=np.inf):
    """The stated weights, computed plainly."""
    unit = (errors**2).sum() / np.abs(errors).sum()
    h = [min(1.0, max(-beta * x / unit, 0.0)) for x in errors]
    w = np.array([(1 - v) + v * x for x in h]) * np.maximum(np.abs(errors) / reach, 1.0)
    return w / w.sum()


@pytest.mark.parametrize(
    ("v", "beta", "reach"), [(0.75, 1.0, np.inf), (0.5, 4.0, np.inf), (0.75, -1.0, np.inf), (0.75, 1.0, 1.0)]
)
def test_draws_have_the_stated_weights(v, beta, reach):
    """Seed 3, 512,000 draws: a share's standard error is below 0.001 with the noise of pools, and uniform is off by more than 0.05."""
    found = counted(sr.SurpriseSampler(v, beta, reach=reach, seed=3), ERRORS)
    np.testing.assert_allclose(found, weights(ERRORS, v, beta, reach), atol=0.006)
    assert np.abs(found - 1 / 6).max() > 0.05


def test_at_v_0_draws_are_uniform_and_no_error_is_computed():
    def never(slots):
        raise AssertionError

    found = np.concatenate([sr.SurpriseSampler(0.0, seed=s).draw(6, 64, never) for s in range(500)])
    np.testing.assert_allclose(np.bincount(found) / found.size, 1 / 6, atol=0.01)


def test_no_transition_is_drawn_more_than_1_over_1_minus_v_times_as_often_however_bad():
    rng = np.random.default_rng(0)
    errors = rng.normal(size=2_000)
    errors[7] = -1e6
    sampler = sr.SurpriseSampler(0.75, seed=0)
    for _ in range(50):
        sampler.draw(2_000, 64, lambda slots: errors[slots])
    assert sampler.pool[2].max() <= 4.0
    assert sampler.pool[2].min() >= 1.0


def test_the_unit_of_rewards_does_not_matter():
    draws = [[], []]
    for scale, out in zip((1.0, 1e-9), draws, strict=True):
        sampler = sr.SurpriseSampler(seed=5)
        out.extend(sampler.draw(6, 32, lambda slots, scale=scale: scale * ERRORS[slots]) for _ in range(40))
    np.testing.assert_array_equal(*draws)


def test_errors_are_computed_once_for_eight_batches():
    seen = []
    sampler = sr.SurpriseSampler(seed=0)
    for _ in range(2 * BATCHES):
        sampler.draw(100, 32, lambda slots: seen.append(slots.size) or np.ones(slots.size))
    assert seen == [BATCHES * 32] * 2
    seldom = sr.SurpriseSampler(every=32, seed=0)
    for _ in range(33):
        seldom.draw(100, 32, lambda slots: seen.append(slots.size) or np.ones(slots.size))
    assert seen == [BATCHES * 32] * 4


def test_without_errors_nothing_is_tilted():
    sampler = sr.SurpriseSampler(seed=0)
    assert not any((sampler.draw(100, 32, lambda s: np.zeros(s.size)), sampler.tilted.any())[1] for _ in range(20))
    assert sampler.unit == 0.0


def test_slots_may_be_numbered_otherwise():
    sampler = sr.SurpriseSampler(seed=0)
    drawn = sampler.draw(5, 500, lambda slots: np.where(slots == 13, -1.0, 0.1), slots=lambda k: k + 10)
    assert set(drawn) == {10, 11, 12, 13, 14}
    assert (drawn == 13).mean() > 0.3


@pytest.mark.parametrize("after", [0, 3, 8])
def test_a_saved_sampler_goes_on_with_the_same_draws(after):
    def some(sampler, n):
        return [sampler.draw(6, 33, lambda slots: ERRORS[slots]) for _ in range(n)]

    one = sr.SurpriseSampler(0.6, 2.0, reach=1.0, seed=4)
    some(one, after)
    other = sr.SurpriseSampler(seed=99)
    other.load_state_dict(one.state_dict())
    assert (other.v, other.beta, other.reach) == (0.6, 2.0, 1.0)
    np.testing.assert_array_equal(some(one, 20), some(other, 20))


def test_a_state_that_is_none_changes_nothing():
    sampler = sr.SurpriseSampler(seed=4)
    good, before = sampler.state_dict(), sampler.state_dict()
    for name, value, message in [
        ("v", 1.0, r"v must be in \[0, 1\), got 1"),
        ("errors", np.zeros(3), "state must have one TD error per slot of the pool"),
        ("generator", np.zeros(2, np.uint64), "state must have 6 words and 2 sums"),
    ]:
        with pytest.raises(sr.BadInput, match=message):
            sampler.load_state_dict({**good, name: value})
    with pytest.raises(sr.BadInput, match="state must have the entry 'v'"):
        sampler.load_state_dict({})
    for name, value in sampler.state_dict().items():
        np.testing.assert_array_equal(value, before[name])


BAD = [
    ({"v": 1.0}, r"v must be in \[0, 1\), got 1"),
    ({"v": "half"}, "v must be a number, got 'half'"),
    ({"beta": float("nan")}, "beta must be finite, got nan"),
    ({"reach": 0.0}, r"reach must be in \(0, inf\), got 0"),
    ({"seed": -1}, "seed must be at least 0, got -1"),
    ({"every": 0}, "every must be at least 1, got 0"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_a_bad_argument_gets_one_line(options, message):
    with pytest.raises(sr.BadInput, match=message):
        sr.SurpriseSampler(**options)


def test_bad_draws_get_one_line():
    sampler = sr.SurpriseSampler()
    with pytest.raises(sr.BadInput, match="size must be at least 1, got 0; store a transition before the first draw"):
        sampler.draw(0, 32, lambda slots: slots)
    with pytest.raises(sr.BadInput, match=r"TD errors must be finite, got nan; at index \(0,\)"):
        sampler.draw(5, 32, lambda slots: np.full(slots.size, np.nan))
    with pytest.raises(sr.BadInput, match="TD errors must have one number per slot, 256, got 3"):
        sampler.draw(5, 32, lambda slots: np.zeros(3))


# -- the limit ---------------------------------------------------------------------------------------------------------


def test_the_tilt_is_sound_and_its_measure_monotone():
    assert judge(sr.SurpriseReplay(), "table").broken == ()
    assert measure(sr.SurpriseReplay()).broken == ()


def test_the_limit_makes_the_tilted_error_of_every_pair_0():
    mdp = sr.grids.cliff()
    Q = sr.shaped_limit(mdp, sr.SurpriseReplay(), v=0.8)
    y = mdp.r + mdp.gamma * np.where(mdp.terminal, 0.0, Q.max(1)[mdp.s_next])
    d = y - Q.ravel()[mdp.pair]
    u = error_unit(mdp, Q)
    residue = np.bincount(mdp.pair, mdp.p * d * (0.2 + 0.8 * surprise(d, u, 1.0)))
    assert np.abs(residue).max() < 1e-6
    assert 2.0 < u < 6.0


def test_a_large_beta_is_the_expectile_of_mihatsch_and_neuneier():
    mdp = sr.grids.cliff()
    kappa = 0.6  # 1 − v = (1 − κ)/(1 + κ)
    v = 1.0 - (1.0 - kappa) / (1.0 + kappa)
    Q = sr.shaped_limit(mdp, sr.SurpriseReplay(beta=1e9), v=v, unit=1.0)
    np.testing.assert_allclose(Q, sr.exact(mdp, sr.RiskSensitive(kappa)), atol=1e-5)


def test_a_memory_of_transitions_comes_to_the_limit():
    """Q-learning from 100,000 random steps on the cliff, by batches of 64 and a small step size; seed 0. Plain replay comes to another policy."""
    mdp = sr.grids.cliff()
    rng = np.random.default_rng(0)
    pairs = np.flatnonzero(np.diff(mdp.row) > 0)
    pair = rng.choice(pairs, 100_000)
    cumulated = np.cumsum(mdp.p)
    before = np.concatenate([[0.0], cumulated])[mdp.row[pair]]
    k = np.minimum(np.searchsorted(cumulated, before + rng.random(pair.size), side="right"), mdp.row[pair + 1] - 1)
    r, after, ends = mdp.r[k], mdp.s_next[k], mdp.terminal[k]
    policies = {}
    for v in (0.0, 0.8):
        Q, sampler = np.zeros(mdp.n_pairs), sr.SurpriseSampler(v, seed=1)

        def errors(slots, Q=Q):
            worth = Q.reshape(mdp.n_states, -1).max(1)[after[slots]]
            return r[slots] + mdp.gamma * np.where(ends[slots], 0.0, worth) - Q[pair[slots]]

        for t in range(20_000):
            b = sampler.draw(pair.size, 64, errors)
            np.add.at(Q, pair[b], 0.3 * (1 - t / 20_001) * errors(b))
        limit = sr.shaped_limit(mdp, sr.SurpriseReplay(), v, unit=sampler.unit or None)
        off = np.abs(Q - limit.ravel())[pairs].max()
        assert off < 0.1 * np.ptp(limit)
        policies[v] = sr.verdict(mdp, Q.reshape(mdp.n_states, -1).argmax(1))
    assert policies == {0.0: "risky", 0.8: "safe"}
