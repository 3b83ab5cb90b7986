import diary
import numpy as np
import pytest
from fork import FORK, learned
from plain_values import plain_values

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.kernels import rng
from safereplay.rivals.replaying import RecentReplay


def test_ages_are_drawn_from_the_most_recent_c_k():
    """The rule as a plain list has it, which the compiled one equals bit for bit (see tests/kernels/test_history.py): N = 60,
    η = 0.97, K = 20, c_min = 4, seed 0, 16,000 iterations, so about 400 cycles. At each k no age reaches c_k, and their mean is
    within 5·c_k/√(12·400) of (c_k − 1)/2."""
    words, options = rng.seeded(0), {"window": 60, "v": 0.5, "alpha": lambda n: 1 / n}
    told = diary.kept(sr.grids.cliff(), words, diary.recent(0.97, 4, 20), 16_000, **options)
    ages = np.array(told.ages[200 : 200 + 20 * 380]).reshape(380, 20)
    for k in range(1, 21):
        c = int(max(60 * 0.97 ** (k * 1000 / 20), 4))
        assert ages[:, k - 1].max() < c
        assert abs(ages[:, k - 1].mean() - (c - 1) / 2) < 5 * c / np.sqrt(12 * 380)
    assert ages[:, 0].max() > 8
    assert ages[:, 19].max() == 3


def test_its_limit_is_that_of_q_learning():
    mdp = sr.grids.cliff()
    assert sr.exact(mdp, RecentReplay()) == pytest.approx(plain_values(mdp), abs=1e-9)


def test_it_learns_its_limit():
    """The fork, seeds 0–7, 100,000 steps explored at random, v = 0.6, mostly the last 20 transitions: within 0.06 of Q*."""
    learner = RecentReplay(0.6, eta=0.98, least=20, cycle=200, window=2_000)
    assert learned(learner) == pytest.approx(sr.exact(FORK, learner), abs=0.06)


def test_it_goes_to_json_and_back_and_every_setting_can_be_had():
    learner = RecentReplay(0.3, eta=0.99)
    assert sr.Learner.from_dict(learner.to_dict()) == learner
    for setting in RecentReplay.SETTINGS:
        assert RecentReplay(eta=setting).eta == setting


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"eta": 0.0}, r"eta must be in \(0, 1\], got 0"),
        ({"least": 0}, "least must be at least 1, got 0"),
        ({"cycle": 0}, "cycle must be at least 1, got 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(values, said):
    with pytest.raises(BadInput, match=said):
        RecentReplay(**values)
