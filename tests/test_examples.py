"""The examples, run for real."""

import ast
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import safereplay as sr

EXAMPLES = Path(__file__).parent.parent / "examples"
SMALL = ["--steps", "300", "--learn-after", "100", "--episodes", "5", "--hidden", "16", "--capacity", "400"]


@pytest.fixture(scope="module")
def dqn():
    spec = importlib.util.spec_from_file_location("dqn_example", EXAMPLES / "dqn.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["dqn_example"] = module  # its dataclass looks its own module up
    spec.loader.exec_module(module)
    torch.set_num_threads(1)
    yield module
    del sys.modules["dqn_example"]


def table(text):
    """The rows of what the example prints, as numbers."""
    return [[float(number) for number in line.split()] for line in text.splitlines()[2:]]


def test_the_dqn_is_one_file_of_less_than_250_lines_that_imports_little():
    text = (EXAMPLES / "dqn.py").read_text()
    assert len(text.splitlines()) < 250
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported - sys.stdlib_module_names == {"torch", "gymnasium", "numpy", "safereplay"}


def test_it_runs_from_the_command_line_plain_and_shaped(in_new_process):
    printed = in_new_process(EXAMPLES / "dqn.py", *SMALL, "--v", "0", "0.5", "--seed", "1")
    assert printed.startswith("safereplay/Cliff-v0: 300 steps, 5 episodes of evaluation\n    v  seed   return")
    plain, shaped = table(printed)
    assert [plain[:2], shaped[:2]] == [[0.0, 1.0], [0.5, 1.0]]
    assert plain[5] == 0.0  # nothing is tilted


@pytest.mark.parametrize("tilt_on", ["reward", "return", "target"])
def test_whatever_it_tilts_on_the_same_seed_gives_the_same_network(dqn, tilt_on):
    settings = dqn.Settings(steps=300, learn_after=100, capacity=200, hidden=8, tilt_on=tilt_on)
    (one, shaper, _), (two, _, _) = dqn.train(settings), dqn.train(settings)
    assert len(shaper) == 200
    for a, b in zip(one.online.parameters(), two.online.parameters(), strict=True):
        assert torch.equal(a, b)


def test_any_environment_with_discrete_actions_will_do(dqn, capsys):
    dqn.main([*SMALL, "--env", "CartPole-v1", "--v", "0.5", "--catastrophe", "1.0"])
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

    plain, shaped = p_unsafe(0.0), p_unsafe(0.5)
    assert (shaped < plain).all()
    assert shaped.mean() < 0.6 * plain.mean()
