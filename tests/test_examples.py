"""The examples, run for real."""

import ast
import importlib.util
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import minari
import numpy as np
import pytest
import torch
from stable_baselines3 import DQN, SAC

import safereplay as sr
from safereplay.sb3 import ShapedReplayBuffer

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = ["--steps", "300", "--learn-after", "100", "--episodes", "5", "--hidden", "16", "--capacity", "400"]


def imported(name):
    """An example as a module."""
    spec = importlib.util.spec_from_file_location(f"{name}_example", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclass looks its own module up
    spec.loader.exec_module(module)
    torch.set_num_threads(1)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def dqn():
    yield from imported("dqn")


@pytest.fixture(scope="module")
def cleanrl():
    yield from imported("cleanrl_dqn")


@pytest.fixture(scope="module")
def offline():
    yield from imported("offline")


def table(text):
    """The rows of what the example prints, as numbers."""
    return [[float(number) for number in line.split()] for line in text.splitlines()[2:]]


@pytest.mark.parametrize(("name", "lines"), [("dqn", 220), ("cleanrl_dqn", 150)])
def test_a_dqn_is_one_short_file_that_imports_little(name, lines):
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) < lines
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported - sys.stdlib_module_names == {"torch", "gymnasium", "numpy", "safereplay"}


def test_it_runs_from_the_command_line_plain_and_shaped(in_new_process):
    printed = in_new_process(EXAMPLES / "dqn.py", *SMALL, "--v", "0", "0.8", "--seed", "1")
    assert printed.startswith("safereplay/Cliff-v0: 300 steps, 5 episodes of evaluation\n    v  seed   return")
    plain, shaped = table(printed)
    assert [plain[:2], shaped[:2]] == [[0.0, 1.0], [0.8, 1.0]]
    assert plain[5] == 0.0  # nothing is drawn by its surprise
    assert 0.0 < shaped[5] < 0.8


def are_equal(one, two):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_the_same_seed_gives_the_same_network_and_shaping_another(dqn):
    shaped = dqn.Settings(steps=300, learn_after=100, capacity=200, hidden=8)
    one, two, plain = (dqn.train(settings)[0].online for settings in (shaped, shaped, replace(shaped, v=0.0)))
    assert are_equal(one, two)
    assert not are_equal(one, plain)


def test_any_environment_with_discrete_actions_will_do(dqn, capsys):
    dqn.main([*SMALL, "--env", "CartPole-v1", "--v", "0.8", "--catastrophe", "1.0"])
    ((_, _, mean, bad, in_training, _, _),) = table(capsys.readouterr().out)
    assert mean >= 1.0
    assert bad == in_training == 1.0  # every reward of CartPole is 1, which was said to be a catastrophe


def test_continuous_actions_are_refused_in_one_line(dqn):
    with pytest.raises(SystemExit, match="env must have discrete actions, got Box"):
        dqn.main(["--env", "Pendulum-v1"])


@pytest.mark.slow
def test_shaped_replay_falls_off_the_cliff_less_often_than_plain(dqn):
    """Seeds 0 to 2, 10,000 steps each; the greedy policies' risk is computed exactly, so only training is random."""
    mdp = sr.grids.cliff()

    def p_unsafe(v):
        policies = [dqn.train(dqn.Settings(v=v, seed=seed, steps=10_000))[0].online(torch.eye(24)) for seed in range(3)]
        return np.array([sr.evaluate(mdp, Q.argmax(1).numpy()).p_unsafe for Q in policies])

    plain, shaped = p_unsafe(0.0), p_unsafe(0.8)
    assert (shaped < plain).all()
    assert shaped.mean() < 0.6 * plain.mean()


def test_a_script_of_the_style_of_cleanrl_runs_from_the_command_line(in_new_process):
    few = ["--total-timesteps", 300, "--learning-starts", 100, "--eval-episodes", 3, "--eval-steps", 20]
    printed = in_new_process(EXAMPLES / "cleanrl_dqn.py", *few)
    assert printed.startswith("safereplay/Cliff-v0, v = 0.8, seed 1: mean return ")


@pytest.mark.parametrize("v", [0.0, 0.8])
def test_a_script_of_the_style_of_cleanrl_repeats_itself(cleanrl, v):
    args = cleanrl.Args(v=v, total_timesteps=300, learning_starts=100, buffer_size=200)
    assert are_equal(cleanrl.train(args), cleanrl.train(args))


def test_a_script_of_the_style_of_cleanrl_takes_other_environments(cleanrl):
    args = cleanrl.Args("CartPole-v1", total_timesteps=200, learning_starts=100, num_envs=3, eval_episodes=2)
    mean, unsafe = cleanrl.evaluate(cleanrl.train(args), args)
    assert mean >= 1.0
    assert unsafe == 0.0


FEW = ["--steps", "100", "--episodes", "3", "--longest", "20"]


def rows_of(printed):
    """What the offline example prints for each run, as numbers."""
    lines = printed.splitlines()[2:]
    return [
        [float(number.rstrip("%")) for number in line.split()] for line in lines if line.split()[0] in ("0.00", "0.80")
    ]


def test_offline_learning_makes_and_loads_a_minari_dataset(in_new_process):
    printed = in_new_process(EXAMPLES / "offline.py", *FEW, "--collect", "500")
    assert re.match(r"5\d\d transitions, \d+.\d% unsafe; 100 gradient steps\n", printed)
    plain, shaped = rows_of(printed)
    assert len(plain) == 4
    _, _, _, _, surprising, surprising_drawn, unsafe, unsafe_drawn = shaped
    assert surprising_drawn > surprising
    assert unsafe_drawn > unsafe > 0.0
    assert "drawn  reward  TD error  observation and action" in printed


def test_a_minari_dataset_is_stored_as_its_episodes_were(offline, tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    offline.collect("cliff/small-v0", "safereplay/Cliff-v0", 200, seed=0)
    dataset = minari.load_dataset("cliff/small-v0")
    buffer = offline.from_minari(dataset, v=0.5)
    assert buffer.full
    assert buffer.buffer_size == dataset.total_steps >= 200
    assert buffer.unsafe.any()
    episodes = list(dataset.iterate_episodes())
    np.testing.assert_array_equal(buffer.rewards[:, 0], np.concatenate([x.rewards for x in episodes]))
    np.testing.assert_array_equal(buffer.unsafe[:, 0], np.concatenate([x.infos["unsafe"][1:] for x in episodes]))
    np.testing.assert_array_equal(
        buffer.next_observations[:, 0, 0], np.concatenate([x.observations[1:] for x in episodes])
    )
    np.testing.assert_array_equal(np.flatnonzero(buffer.dones), np.cumsum([len(x) for x in episodes]) - 1)
    assert not buffer.timeouts.any()


def test_offline_learning_takes_a_buffer_that_sb3_saved(offline, tmp_path, capsys):
    model = DQN("MlpPolicy", "CartPole-v1", learning_starts=1_000, buffer_size=300, seed=0).learn(250)
    model.save_replay_buffer(tmp_path / "plain.pkl")
    offline.main([*FEW, "--buffer", str(tmp_path / "plain.pkl"), "--env", "CartPole-v1", "--unsafe", "1.0"])
    printed = capsys.readouterr().out
    assert printed.startswith("252 transitions, 100.0% unsafe; 100 gradient steps\n")
    assert [row[:2] for row in rows_of(printed)] == [[0.0, 0.0], [0.8, 0.0]]


def test_offline_learning_refuses_what_it_cannot_use_in_one_line(offline, tmp_path):
    (tmp_path / "other.pkl").write_bytes(pickle.dumps([1, 2]))
    with pytest.raises(SystemExit, match=r"other.pkl must hold an SB3 replay buffer, got list"):
        offline.main(["--buffer", str(tmp_path / "other.pkl")])
    buffer = SAC("MlpPolicy", "Pendulum-v1", buffer_size=10)
    buffer.save_replay_buffer(tmp_path / "continuous.pkl")
    with pytest.raises(SystemExit, match="env must have discrete actions, got Box"):
        offline.main(["--buffer", str(tmp_path / "continuous.pkl"), "--env", "Pendulum-v1"])


@pytest.mark.slow
def test_offline_too_shaped_replay_falls_off_the_cliff_less_often(offline, tmp_path, monkeypatch):
    """20,000 random steps, 8,000 gradient steps, seeds 0 to 2; the greedy policies' risk is computed exactly."""
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    offline.collect("cliff/random-v0", "safereplay/Cliff-v0", 20_000, seed=0)
    data, env = offline.from_minari(minari.load_dataset("cliff/random-v0")), gymnasium.make("safereplay/Cliff-v0")

    def p_unsafe(v, seed):
        buffer = ShapedReplayBuffer.from_buffer(data, v=v, seed=seed)
        model = offline.train(env, buffer, SimpleNamespace(gamma=0.95, steps=8_000), seed)
        policy, _ = model.predict(np.arange(24), deterministic=True)
        return sr.evaluate(sr.grids.cliff(), policy).p_unsafe

    plain, shaped = (np.array([p_unsafe(v, seed) for seed in range(3)]) for v in (0.0, 0.8))
    assert (shaped < plain).all()
    assert shaped.mean() < 0.6 * plain.mean()
