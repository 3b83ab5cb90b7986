import numpy as np
import pytest
from fork import FORK, learned

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.rivals.replaying import DynaQ, last_outcome_limit


def test_with_counts_it_learns_q_star_in_a_random_world():
    """The fork, seeds 0–7, 100,000 steps explored at random, five planning steps each: within 0.06 of Q*."""
    learner = DynaQ(5, "counts")
    assert np.array_equal(sr.exact(FORK, learner), sr.exact(FORK, sr.QLearning()))
    assert learned(learner) == pytest.approx(sr.exact(FORK, learner), abs=0.06)


def test_with_the_last_outcome_it_learns_its_own_limit():
    """The fork, seeds 0–7, 100,000 steps explored at random, a planning step each: within 0.04 of the limit; Q* is 0.08 away."""
    limit = last_outcome_limit(FORK, DynaQ(1), np.full((2, 2), 0.5))
    assert np.abs(limit - sr.exact(FORK, sr.QLearning())).max() == pytest.approx(0.083, abs=0.001)
    assert learned(DynaQ(1)) == pytest.approx(limit, abs=0.04)


def test_how_long_an_outcome_is_remembered_is_how_long_a_walk_takes_to_come_back():
    """τ of each outcome of the fork's first pair by walking at random: seed 0, 60,000 steps, within 5 standard errors. For
    n → ∞ the limit's p̃ is q·τ over its sum, and at γ → 0 Q(0,0) is its mean reward."""
    random, steps = np.random.default_rng(0), 60_000
    s, waits, since, outcome = 0, {0: [], 1: []}, None, None
    for turn, u in zip(random.integers(2, size=steps).tolist(), random.random(steps).tolist(), strict=True):
        i = 2 * s + turn
        low, high = int(FORK.row[i]), int(FORK.row[i + 1])
        k = low if high - low == 1 or u < FORK.p[low] else low + 1
        if i == 0:
            if since is not None:
                waits[outcome].append(since)
            since, outcome = 0, k
        if since is not None:
            since += 1
        s = 0 if FORK.terminal[k] else int(FORK.s_next[k])
    tau = np.array([np.mean(waits[k]) for k in (0, 1)])
    error = np.array([np.std(waits[k]) / np.sqrt(len(waits[k])) for k in (0, 1)])
    found = last_outcome_limit(FORK.with_gamma(1e-12), DynaQ(1_000_000), np.full((2, 2), 0.5))[0, 0]
    around = [tau + 5 * error * np.array(sign) for sign in ([1, -1], [-1, 1])]
    low, high = sorted(float(one @ FORK.r[:2] / one.sum()) for one in around)
    assert low < found < high
    assert high - low < 0.1


def test_where_the_world_is_certain_its_limits_are_q_star():
    sure = sr.grids.cliff(slip=0.0)
    even = np.full((sure.n_states, 4), 0.25)
    expected = sr.exact(sure, sr.QLearning())
    assert np.array_equal(sr.exact(sure, DynaQ()), expected)
    assert last_outcome_limit(sure, DynaQ(), even) == pytest.approx(expected)


def test_in_a_random_world_the_last_outcome_has_no_limit_of_its_own():
    with pytest.raises(BadInput, match="model must be 'counts' where outcomes are random, got 'last'; with the last"):
        sr.exact(FORK, DynaQ())


def test_it_goes_to_json_and_back_and_every_setting_can_be_had():
    learner = DynaQ(7, "counts", "random")
    assert sr.Learner.from_dict(learner.to_dict()) == learner
    assert learner.describe() == "Dyna-Q(planning=7, counts)"
    for setting in DynaQ.SETTINGS:
        assert DynaQ(setting).planning == setting


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"planning": -1}, "planning must be at least 0, got -1"),
        ({"model": "count"}, "unknown model 'count'; did you mean 'counts'"),
        ({"ties": "any"}, "unknown ties 'any'; choose from first, random"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values, said):
    with pytest.raises(BadInput, match=said):
        DynaQ(**values)


def test_a_behaviour_that_does_not_come_back_has_no_limit():
    """State 0 leads to 1, which is never left: how long 0 is remembered has no end."""
    once = sr.TabularMDP.from_outcomes(2, 1, [(0, 0, 1.0, 1, 0.0), (1, 0, 1.0, 1, 1.0)], start=0)
    with pytest.raises(
        BadInput, match="classes of states under the behaviour must number 1, got 2; it must return to every state"
    ):
        last_outcome_limit(once, DynaQ(), np.ones((2, 1)))


def test_a_behaviour_must_be_one():
    with pytest.raises(BadInput, match="behaviour must give each state probabilities that sum to 1"):
        last_outcome_limit(FORK, DynaQ(), np.ones((2, 2)))
