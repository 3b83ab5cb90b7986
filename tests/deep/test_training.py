"""One run: settings that go to JSON and back, results that do, and the same bits from the same setting."""

import json
import re

import numpy as np
import pytest
import torch

import safereplay as sr
from studies.deep import training
from studies.deep.training import SEEDS, SPLITS, Setting, evaluate, train
from studies.deep.worlds import WORLDS

SHORT = {"learning_starts": 100, "net_arch": [16], "target_update_interval": 100, "train_freq": 8, "n_quantiles": 8}


def short(world="cliff", **options):
    return Setting(world, steps=600, episodes=20, overrides=SHORT, **options)


def without_time(result):
    return {key: value for key, value in result.items() if key != "seconds"}


class Always:
    """Takes one action, and keeps what it saw."""

    def __init__(self, action):
        self.action, self.batches = action, []

    def predict(self, seen, deterministic):
        assert deterministic
        self.batches.append(len(seen))
        return np.full(len(seen), self.action), None


@pytest.mark.parametrize(
    "options", [{}, {"v": 0.5}, {"v": 0.5, "tilt_on": "target"}, {"algorithm": "qrdqn", "alpha": 0.25}]
)
def test_the_same_setting_gives_the_same_result_bit_for_bit(options):
    first, again = train(short(**options)), train(short(**options))
    assert without_time(first) == without_time(again)
    assert json.loads(json.dumps(first)) == first
    if not options:
        assert train(short(seed=1))["curve"] != first["curve"]


def test_a_result_says_what_the_head_of_the_module_promises():
    result = train(short(every=200))
    assert set(result) == {"setting", "seconds", "evaluation", "checks", "curve", "greedy", "replay", "versions"}
    assert Setting.from_dict(result["setting"]) == short(every=200)
    evaluation = result["evaluation"]
    assert evaluation["episodes"] == len(evaluation["returns"]) == len(evaluation["unsafe"]) == 20
    assert evaluation["goals"] + evaluation["timeouts"] + evaluation["catastrophes"] == 20
    assert np.mean(evaluation["returns"]) == pytest.approx(evaluation["mean_return"], abs=1e-3)
    assert [check["step"] for check in result["checks"]] == [200, 400, 600]
    assert {key: value for key, value in result["checks"][0].items() if key != "step"}.keys() == evaluation.keys()
    curve = result["curve"]
    assert len(curve["step"]) == len(curve["return"]) == len(curve["catastrophe"])
    assert curve["step"] == sorted(curve["step"])
    assert curve["step"][-1] <= 600
    assert len(result["greedy"]) == 24
    assert result["replay"] is None
    assert result["versions"]["torch"] == torch.__version__


def test_a_shaped_run_tells_what_its_buffer_holds():
    result = train(short(v=0.5))
    assert 24 <= result["replay"]["pairs"] <= 96
    assert 0 < result["replay"]["shaped_pairs"] < 0.7  # the pairs whose reward varies
    assert result["curve"] != train(short())["curve"]


def test_what_is_collected_before_learning_starts_does_not_depend_on_the_dial():
    """Before learning starts, what is replayed cannot matter."""
    plain, shaped = train(short()), train(short(v=0.5))
    first = [sum(step < 100 for step in result["curve"]["step"]) for result in (plain, shaped)]
    assert first[0] == first[1]
    assert plain["curve"]["return"][: first[0]] == shaped["curve"]["return"][: first[0]]


def test_a_key_can_be_named():
    assert train(short(v=0.5, key="TileKey"))["replay"]["pairs"] >= 24


def test_looking_on_the_way_does_not_change_what_is_learned():
    looked, plain = train(short(every=150)), train(short())
    assert looked["evaluation"] == plain["evaluation"]
    assert looked["curve"] == plain["curve"]


@pytest.mark.parametrize("world", WORLDS)
def test_every_world_can_be_trained_in(world):
    result = train(short(world))
    assert np.isfinite(result["evaluation"]["mean_return"])
    assert (result["greedy"] is None) == (WORLDS[world].mdp is None)


def test_the_steps_are_the_worlds_own_unless_told():
    assert Setting("cliff").total_steps == WORLDS["cliff"].steps
    assert Setting("cliff", steps=7).total_steps == 7


def test_overrides_take_the_place_of_the_worlds_hyper_parameters():
    chosen = Setting("cliff", overrides={"learning_rate": 0.5, "net_arch": [8]}).hyper_parameters()
    assert (chosen["learning_rate"], chosen["net_arch"]) == (0.5, [8])
    assert chosen["batch_size"] == WORLDS["cliff"].dqn["batch_size"]


@pytest.mark.parametrize("world", WORLDS)
def test_qr_dqn_has_a_scale_of_its_own_that_leaves_errors_above_one(world):
    plain, quantiles = (Setting(world, algorithm).hyper_parameters() for algorithm in ("dqn", "qrdqn"))
    assert plain["reward_scale"] == WORLDS[world].reward_scale
    assert quantiles["reward_scale"] < plain["reward_scale"]


def test_returns_are_in_the_worlds_own_unit_and_undiscounted():
    """Always right from the start of the volatile row: three rewards of ±100, and the goal's 150."""
    result = evaluate(Always(1), WORLDS["volatile"], 50)
    assert set(result["returns"]) <= {-150.0, 50.0, 250.0, 450.0}
    assert result["goals"] == 50
    assert 0 < result["catastrophes"] == sum(r < 450.0 for r in result["returns"])


def test_episodes_are_stepped_together_and_leave_when_they_end():
    model = Always(1)
    result = evaluate(model, WORLDS["cliff"], 30)
    assert model.batches[0] == 30
    assert sum(model.batches) == pytest.approx(result["mean_steps"] * 30)
    walking = evaluate(Always(0), WORLDS["volatile"], 3)
    assert (walking["timeouts"], walking["mean_steps"], walking["mean_return"]) == (3, 100.0, -100.0)


def test_evaluation_meets_the_same_luck_in_every_run_and_validation_another():
    luck = [evaluate(Always(1), WORLDS["volatile"], 30, split)["returns"] for split in ("test", "test", "validation")]
    assert luck[0] == luck[1] != luck[2]
    assert min(SPLITS.values()) > SEEDS
    assert abs(SPLITS["test"] - SPLITS["validation"]) > SEEDS


def test_torch_has_its_threads_back_afterwards():
    before = torch.get_num_threads()
    with training.one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_a_missing_package_is_named_with_the_command_that_installs_it():
    with pytest.raises(sr.MissingExtra, match=r"training needs nosuch; .*pip install 'safereplay\[deep\]'"):
        training._imported("nosuch.module")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"world": "clif"}, "unknown world 'clif'; did you mean 'cliff'"),
        ({"algorithm": "sac"}, "unknown algorithm 'sac'; choose from dqn, qrdqn"),
        ({"v": 1.0}, "v must be in [0, 1), got 1"),
        ({"beta": "much"}, "beta must be a number, got 'much'"),
        ({"alpha": 0.0}, "alpha must be in (0, 1], got 0"),
        ({"alpha": 0.5}, "alpha must be 1 for dqn, which has no quantiles, got 0.5"),
        ({"cvar_target": 1}, "cvar_target must be True or False, got 1"),
        ({"tilt_on": "rewards"}, "unknown tilt_on 'rewards'; did you mean 'reward'"),
        ({"mixing": "both"}, "unknown mixing 'both'; choose from literal, matched"),
        ({"seed": 10**6}, "seed must be below 1000000, got 1000000; evaluation uses larger ones"),
        ({"steps": -1}, "steps must be at least 0, got -1"),
        ({"episodes": 0}, "episodes must be at least 1, got 0"),
        ({"split": "train"}, "unknown split 'train'; choose from test, validation"),
        ({"every": 0.5}, "every must be a whole number, got 0.5"),
    ],
)
def test_a_bad_setting_is_refused(options, message):
    with pytest.raises(sr.BadInput, match=re.escape(message)):
        Setting(**{"world": "cliff", **options})


def test_only_a_setting_can_be_trained():
    with pytest.raises(sr.BadInput, match="setting must be a Setting, got 'cliff'"):
        train("cliff")
