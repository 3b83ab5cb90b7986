import diary
import numpy as np
import pytest
from fork import FORK, learned
from plain_values import plain_values

import safereplay as sr
from safereplay.errors import BadInput
from safereplay.kernels import rng
from safereplay.rivals.replaying import CombinedReplay


def test_the_newest_is_the_first_of_each_batch_and_the_others_are_uniform():
    """The rule as a plain list has it, which the compiled one equals bit for bit (see tests/kernels/test_history.py): N = 20,
    batches of 4, seed 0, 8,000 iterations. Of the ages of the others each share within 5·√(0.05·0.95/n)."""
    words, options = rng.seeded(0), {"window": 20, "v": 0.5, "alpha": lambda n: 1 / n}
    told = diary.kept(sr.grids.cliff(), words, diary.combined(4), 8_000, **options)
    ages = np.array(told.ages[100:])  # the first hundred are from before the window was full
    newest = np.arange(100, len(told.ages)) % 4 == 0
    assert not ages[newest].any()
    others = ages[~newest]
    shares = np.bincount(others, minlength=20) / others.size
    assert shares.size == 20
    assert (np.abs(shares - 0.05) < 5 * np.sqrt(0.05 * 0.95 / others.size)).all()


def test_its_limit_is_that_of_q_learning():
    mdp = sr.grids.cliff()
    assert sr.exact(mdp, CombinedReplay()) == pytest.approx(plain_values(mdp), abs=1e-9)


@pytest.mark.parametrize("batch", [1, 4])
def test_it_learns_its_limit(batch):
    """The fork, seeds 0–7, 100,000 steps explored at random, v = 0.6: within 0.08 of Q*, three standard errors at batch 1."""
    assert learned(CombinedReplay(0.6, batch)) == pytest.approx(sr.exact(FORK, CombinedReplay()), abs=0.08)


def test_it_goes_to_json_and_back_and_every_setting_can_be_had():
    learner = CombinedReplay(0.3, batch=2)
    assert sr.Learner.from_dict(learner.to_dict()) == learner
    for setting in CombinedReplay.SETTINGS:
        assert CombinedReplay(batch=setting).batch == setting


def test_a_batch_of_none_is_refused():
    with pytest.raises(BadInput, match="batch must be at least 1, got 0"):
        CombinedReplay(batch=0)
