import pytest

from safereplay.deep.training import Setting, fit
from safereplay.deep.tuning import LANDER_DQN, LANDER_QRDQN, TRIED
from safereplay.deep.worlds import WORLDS


def test_what_was_tried_is_never_what_the_study_uses():
    assert all(trial.seed >= 1000 for trial in TRIED)
    assert {trial.world for trial in TRIED} == set(WORLDS) - {"lander"}
    assert {trial.algorithm for trial in TRIED} == {"dqn", "qrdqn"}


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [*(("dqn", name) for name in LANDER_DQN), *(("qrdqn", name) for name in LANDER_QRDQN)],
)
def test_every_candidate_for_the_lander_is_a_setting_that_runs(algorithm, name):
    chosen = {"dqn": LANDER_DQN, "qrdqn": LANDER_QRDQN}[algorithm][name]
    short = {"learning_starts": 50, "gradient_steps": 1, "batch_size": 8, "net_arch": [8]}
    run = fit(Setting("lander", algorithm, steps=300, overrides={**chosen, **short}))
    assert run.diary.steps >= 300
