"""One run: settings that go to JSON and back, results that do, and the same bits from the same setting."""

import json
import re

import gymnasium
import numpy as np
import pytest
import torch

import safereplay as sr
from studies.deep import training
from studies.deep.training import SEEDS, SPLITS, Setting, evaluate, train
from studies.deep.worlds import WORLDS, World

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
    "options",
    [
        {},
        {"v": 0.5},
        {"v": 0.5, "tilt_on": "target"},
        {"algorithm": "qrdqn", "alpha": 0.25},
        {"algorithm": "iqn", "alpha": 0.25},
        {"algorithm": "static", "alpha": 0.25},
        {"algorithm": "lagrangian", "limit": 0.1},
        {"penalty": 20.0},
        {"v": 0.8, "limit": 0.5},
    ],
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


def test_a_run_with_keys_tells_what_its_buffer_holds_and_one_without_has_no_pairs():
    without = train(short(v=0.5))
    assert without["replay"] is None
    result = train(short(v=0.5, key="world"))
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


@pytest.mark.parametrize(("algorithm", "alpha"), [("dqn", 1.0), ("iqn", 0.25), ("static", 0.25), ("lagrangian", 1.0)])
def test_looking_on_the_way_does_not_change_what_is_learned(algorithm, alpha):
    looked, plain = (train(short(algorithm=algorithm, alpha=alpha, every=every)) for every in (150, 0))
    assert looked["evaluation"] == plain["evaluation"]
    assert looked["curve"] == plain["curve"]


@pytest.mark.parametrize("world", WORLDS)
def test_every_world_can_be_trained_in(world):
    result = train(short(world, algorithm=WORLDS[world].learner))
    assert np.isfinite(result["evaluation"]["mean_return"])
    assert (result["greedy"] is None) == (WORLDS[world].mdp is None)


def test_the_steps_are_the_worlds_own_unless_told():
    assert Setting("cliff").total_steps == WORLDS["cliff"].steps
    assert Setting("cliff", steps=7).total_steps == 7


def test_overrides_take_the_place_of_the_worlds_hyper_parameters():
    chosen = Setting("cliff", overrides={"learning_rate": 0.5, "net_arch": [8]}).hyper_parameters()
    assert (chosen["learning_rate"], chosen["net_arch"]) == (0.5, [8])
    assert chosen["batch_size"] == WORLDS["cliff"].dqn["batch_size"]


def test_a_rival_has_the_hyper_parameters_of_dqn_or_qr_dqn():
    for algorithm, like, alpha in (("iqn", "qrdqn", 1.0), ("static", "dqn", 0.5), ("lagrangian", "dqn", 1.0)):
        ours = Setting("cliff", algorithm, alpha=alpha).hyper_parameters()
        assert ours == Setting("cliff", like).hyper_parameters()
    with training.one_thread():
        model = training.fit(Setting("cliff", "static", alpha=0.5, steps=10, overrides={"mean": 0.3})).model
    assert (model.mean, model.scale, model.gamma) == (0.3, 20.0, 0.95)


def test_a_penalty_is_learned_from_and_not_reported():
    plain, shaped = (training.fit(short(penalty=penalty)) for penalty in (0.0, 100.0))
    first = np.array(shaped.diary.ends) < 100  # before learning starts
    assert shaped.diary.returns[: first.sum()] == plain.diary.returns[: first.sum()]
    stored, harm = shaped.model.replay_buffer.rewards[:600, 0], plain.model.replay_buffer.rewards[:600, 0]
    assert stored.min() == pytest.approx(harm.min() - 100.0 / 20.0)


def test_a_penalty_changes_what_is_owed_also_in_evaluation():
    """One step per unit of return: what is owed falls by the learner's reward, in training and when judged."""
    model = training.fit(short(algorithm="static", alpha=0.5, penalty=8.0)).model
    env = training.judged(model, WORLDS["cliff"])
    seen = env.reset(seed=0)[0]
    for _ in range(20):
        before = env.owed
        seen, r, terminated, _, info = env.step(1)
        paid = (r - 8.0 * info["unsafe"]) / 20.0
        assert env.owed == pytest.approx((before - paid) / 0.95)
        assert seen[-1] == np.float32(env.owed)
        if terminated:
            break
    assert evaluate(model, WORLDS["cliff"], 5)["episodes"] == 5


class Steer(gymnasium.Env):
    """Two continuous actions; the reward is their sum, for three steps."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        assert action.shape == (2,)
        return np.zeros(1, np.float32), float(action.sum()), self.t == 3, False, {"unsafe": bool(action[0] > 0.9)}


@pytest.fixture
def steering(monkeypatch):
    arguments = {"learning_starts": 50, "batch_size": 16, "learning_rate": 3e-3}
    world = World("steering", "", "", lambda judged: Steer(), 1.0, 10, 0.9, 1.0, 400, 0.0, learner="sac", sac=arguments)
    monkeypatch.setitem(WORLDS, "steering", world)
    return world


def test_sac_learns_and_is_judged_with_continuous_actions(steering):
    result = train(Setting("steering", "sac", episodes=4, overrides={"net_arch": [16]}))
    assert result["evaluation"]["mean_return"] > 3.0  # of 6; random actions have 0
    assert result["evaluation"]["goals"] + result["evaluation"]["catastrophes"] >= 4


def test_random_continuous_actions_lie_in_the_space(steering):
    from studies.deep.records import RandomPolicy

    policy = RandomPolicy(Steer.action_space, 0)
    assert policy.predict(np.zeros(1))[0].shape == (2,)
    actions = policy.predict(np.zeros((500, 1)))[0]
    assert actions.shape == (500, 2)
    assert Steer.action_space.contains(actions[0])
    assert np.abs(actions.mean(0)).max() < 0.1  # 4 standard errors of U(−1, 1)
    assert abs(evaluate(RandomPolicy(Steer.action_space, 0), steering, 100)["mean_return"]) < 0.6


@pytest.mark.parametrize("world", [name for name, world in WORLDS.items() if world.learner == "dqn"])
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
        ({"algorithm": "a2c"}, "unknown algorithm 'a2c'; did you mean 'sac'"),
        ({"algorithm": "sac"}, "algorithm must fit the actions of cliff, got 'sac'; its learner is dqn"),
        ({"algorithm": "static"}, "alpha must be below 1 for static, got 1"),
        ({"algorithm": "lagrangian", "alpha": 0.5}, "alpha must be 1 for lagrangian, which has no quantiles, got 0.5"),
        ({"algorithm": "lagrangian", "v": 0.5}, "v must be 0 for lagrangian, whose replay cannot be shaped, got 0.5"),
        ({"algorithm": "lagrangian", "limit": 1.5}, "limit must be in [0, 1], got 1.5"),
        ({"limit": 0.5}, "limit must be 0 for dqn, unless replay is shaped without a key, got 0.5"),
        ({"limit": 0.5, "v": 0.5, "key": "world"}, "limit must be 0 for dqn, unless replay is shaped"),
        ({"penalty": -1}, "penalty must be in [0, inf), got -1"),
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
