"""Training that was stopped goes on as if it had not been."""

import runpy
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, PPO, SAC, TD3
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import SubprocVecEnv, VecNormalize

import safereplay as sr
from safereplay.sb3 import (
    ShapedReplayBuffer,
    ShapingCallback,
    ShapingWarning,
    TrainingCheckpoint,
    load_training,
    save_training,
)
from safereplay.sb3.callbacks import LATEST

SMALL = {"learning_starts": 50, "batch_size": 16, "buffer_size": 300, "train_freq": 4, "seed": 5}


def made(env, algorithm=DQN, v=0.5, tilt_on="reward", **options):
    kwargs = {"v": v, "tilt_on": tilt_on, "key": sr.AutoKey(warm_up=120)}
    net = {"net_arch": [16]}
    more = {
        **SMALL,
        "replay_buffer_class": ShapedReplayBuffer,
        "replay_buffer_kwargs": kwargs,
        "policy_kwargs": net,
        **options,
    }
    return algorithm("MlpPolicy", env, **more)


IN_TWO = """
import sys
import torch
import safereplay as sr
from stable_baselines3 import DQN
from safereplay.sb3 import ShapedReplayBuffer, load_training, save_training
torch.set_num_threads(1)
folder, part = sys.argv[1:]
if part == "first":
    options = dict(learning_starts=100, buffer_size=400, target_update_interval=100, seed=1, device="cpu")
    kwargs = dict(v=0.5, beta=1.0, key=sr.AutoKey(warm_up=300))
    model = DQN("MlpPolicy", "CartPole-v1", replay_buffer_class=ShapedReplayBuffer, replay_buffer_kwargs=kwargs, **options)
    model.learn(600)
    save_training(model, folder)
else:
    model = load_training(DQN, folder, "CartPole-v1", device="cpu")
model.learn(600, reset_num_timesteps=False)
print(model.num_timesteps, [float(p.detach().double().sum()).hex() for p in model.policy.parameters()])
"""


def test_dqn_resumed_in_a_fresh_process_has_the_same_parameters_bit_for_bit(
    in_new_process, tmp_path, monkeypatch, capsys
):
    """600 steps of CartPole, a checkpoint, 600 more: in one process, and in another one after the first has ended."""
    script, folder = tmp_path / "two.py", tmp_path / "kept"
    script.write_text(IN_TWO)
    monkeypatch.setattr(sys, "argv", [str(script), str(folder), "first"])
    runpy.run_path(str(script))
    uninterrupted = capsys.readouterr().out
    assert uninterrupted.startswith("1200 [")
    assert in_new_process(script, folder, "second") == uninterrupted


def cases():
    yield "dqn", {}, 1
    yield "dqn at v = 0", {"v": 0.0}, 2
    yield "dqn with targets", {"tilt_on": "target"}, 2
    yield "dqn with returns", {"tilt_on": "return"}, 2
    yield "sac", {"algorithm": SAC}, 2
    yield "td3", {"algorithm": TD3, "action_noise": NormalActionNoise(np.zeros(1), np.full(1, 0.1))}, 2


@pytest.mark.parametrize(("options", "n"), [case[1:] for case in cases()], ids=[case[0] for case in cases()])
def test_a_run_that_was_killed_after_a_checkpoint_ends_with_the_same_parameters(
    slips, parameters, tmp_path, options, n
):
    """400 steps with a checkpoint every 150, against the same from the checkpoint at 300 on, with all generators astray."""
    actions = "discrete" if options.get("algorithm", DQN) is DQN else "box"

    def env():
        return VecNormalize(slips(n, actions=actions))

    def watchers():
        return [TrainingCheckpoint(tmp_path, every=150), ShapingCallback(log_every=100, refresh_every=40)]

    whole = made(env(), **options).learn(400, callback=watchers())
    np.random.seed(99)  # noqa: NPY002
    torch.manual_seed(99)
    again = load_training(type(whole), tmp_path, env())
    assert 300 <= again.num_timesteps < 310
    again.learn(400 - again.num_timesteps, reset_num_timesteps=False, callback=watchers())
    assert again.num_timesteps == whole.num_timesteps
    np.testing.assert_array_equal(parameters(again), parameters(whole))
    np.testing.assert_array_equal(again.replay_buffer.rewards, whole.replay_buffer.rewards)
    assert again.get_vec_normalize_env().ret_rms.var == whole.get_vec_normalize_env().ret_rms.var


def test_without_the_generators_it_would_have_been_another_run(slips, parameters, tmp_path):
    """The test above can fail: SB3's own save and load do not give the same run."""
    model = made(slips()).learn(200)
    save_training(model, tmp_path)
    (place,) = tmp_path.glob("step-*")
    model.learn(100, reset_num_timesteps=False)
    other = DQN.load(place / "model", env=slips())
    other.load_replay_buffer(place / "buffer")
    other.learn(100, reset_num_timesteps=False)
    assert not np.array_equal(parameters(other), parameters(model))


@pytest.mark.slow
def test_environments_in_other_processes_are_resumed_too(parameters, tmp_path):
    def env():
        return make_vec_env("CartPole-v1", 2, vec_env_cls=SubprocVecEnv)

    whole = made(env()).learn(200, callback=TrainingCheckpoint(tmp_path, every=150))
    whole.env.close()
    again = load_training(DQN, tmp_path, env())
    again.learn(200 - again.num_timesteps, reset_num_timesteps=False)
    again.env.close()
    np.testing.assert_array_equal(parameters(again), parameters(whole))


def test_one_checkpoint_is_kept_and_a_kill_while_saving_leaves_the_last(slips, tmp_path, monkeypatch):
    model = made(slips()).learn(60)
    first = save_training(model, tmp_path)
    model.learn(60, reset_num_timesteps=False)
    second = save_training(model, tmp_path)
    assert sorted(tmp_path.iterdir()) == [tmp_path / LATEST, second]
    assert first != second

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "save_replay_buffer", killed)
    model.learn(60, reset_num_timesteps=False)
    with pytest.raises(KeyboardInterrupt):
        save_training(model, tmp_path)
    assert load_training(DQN, tmp_path, slips()).num_timesteps == 120


def test_a_relative_folder_keeps_its_checkpoint(slips, tmp_path, monkeypatch):
    """From Python 3.12 on mkdtemp gives an absolute path."""
    make = tempfile.mkdtemp
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "mkdtemp", lambda **options: str(Path(make(**options)).absolute()))
    save_training(made(slips()).learn(60), "checkpoints")
    assert load_training(DQN, "checkpoints", slips()).num_timesteps == 60


def test_folders_that_hold_no_checkpoint_are_refused(slips, tmp_path):
    with pytest.raises(sr.BadFile, match=r"must be a folder that save_training wrote, got no readable latest.json"):
        load_training(DQN, tmp_path, slips())
    for name in ("step-9", "../elsewhere"):
        (tmp_path / LATEST).write_text(f'{{"checkpoint": "{name}"}}')
        with pytest.raises(sr.BadFile, match=r"must hold the checkpoint that latest.json names, got no '"):
            load_training(DQN, tmp_path, slips())


def test_the_environment_must_be_as_it_was(slips, tmp_path):
    save_training(made(slips(2)).learn(60), tmp_path)
    with pytest.raises(sr.BadInput, match="env must be 2 environments as saved, got 3"):
        load_training(DQN, tmp_path, slips(3))
    with pytest.raises(sr.BadInput, match="env must not be in a VecNormalize as saved"):
        load_training(DQN, tmp_path, VecNormalize(slips(2)))
    save_training(made(VecNormalize(slips(2))).learn(60), tmp_path)
    with pytest.raises(sr.BadInput, match="env must be in a VecNormalize as saved, got None"):
        load_training(DQN, tmp_path, slips(2))


def test_an_environment_with_a_generator_of_its_own_is_warned_of(slips, tmp_path):
    env = slips()
    env.get_attr = lambda name, indices=None: [].missing
    with pytest.warns(ShapingWarning, match="the environment has no np_random"):
        save_training(made(env).learn(10), tmp_path)
    load_training(DQN, tmp_path, slips()).learn(10, reset_num_timesteps=False)


def test_models_that_have_no_training_to_save_are_refused(slips, tmp_path):
    with pytest.raises(sr.BadInput, match="model must be of an off-policy algorithm, got 'PPO'"):
        save_training(PPO("MlpPolicy", slips()), tmp_path)
    made(slips()).save(tmp_path / "model")
    with pytest.raises(sr.BadInput, match="model must have an environment, got None"):
        save_training(DQN.load(tmp_path / "model"), tmp_path)


def test_bad_arguments_of_the_callback_get_one_line(slips, tmp_path):
    with pytest.raises(sr.BadInput, match="every must be at least 1, got 0"):
        TrainingCheckpoint(tmp_path, every=0)
    model = made(slips(actions="box"), SAC, use_sde=True)
    with pytest.raises(
        sr.BadInput, match="use_sde must be False with TrainingCheckpoint, got True; save_training between"
    ):
        model.learn(10, callback=TrainingCheckpoint(tmp_path))
