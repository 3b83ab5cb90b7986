from studies.deep.training import Setting
from studies.deep.tuning import TRIED
from studies.deep.worlds import WORLDS


def test_what_was_tried_is_never_what_the_study_uses():
    assert all(trial.seed >= 1000 for trial in TRIED)
    assert {trial.world for trial in TRIED} == set(WORLDS)
    assert {trial.algorithm for trial in TRIED} == {"dqn", "qrdqn", "sac", "static", "lagrangian"}


def test_what_a_trial_differs_in_is_told_by_names_that_exist():
    known = {"anywhere", "burn", "cost", "reward", "rate", "road", "speed_limit", "wind", *Setting.__dataclass_fields__}
    for trial in TRIED:
        alpha = trial.differs.get("alpha", 1.0)
        parameters = Setting(trial.world, trial.algorithm, alpha=alpha).hyper_parameters()
        assert set(trial.differs) <= known | set(parameters), trial
