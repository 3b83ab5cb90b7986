import json
import os
import subprocess
import sys

import pytest
from strikes import RUN, interrupted

import safereplay as sr
from safereplay.cli import run

FEW = ["--episodes", "2000", "--seeds", "3"]


def complaint(capsys, *arguments):
    """The exit code and the lines on standard error."""
    code = run(list(arguments))
    return code, capsys.readouterr().err.strip().splitlines()


def test_learn_shows_the_path_and_its_risk(capsys):
    assert run(["learn", "cliff", *FEW]) == 0
    shown = capsys.readouterr().out
    assert "replay(v=0.5, beta=5)" in shown
    assert "P(unsafe)" in shown
    assert "X X X X" in shown


def test_a_slippery_lake_has_no_path_and_no_heavy_arrows(capsys):
    assert run(["learn", "frozen_lake", *FEW]) == 0
    shown = capsys.readouterr().out
    assert "no path  3 of 3" in shown
    assert "stuck" not in shown
    assert not set("⬆➡⬇⬅") & set(shown)
    assert set("↑→↓←") & set(shown)


def test_learn_as_json_is_what_learn_in_python_gives(capsys):
    assert run(["learn", "volatile", "--learner", "q", "--gamma", "0.8", "--json", *FEW]) == 0
    found = json.loads(capsys.readouterr().out)
    runs = sr.learn(sr.grids.volatile(gamma=0.8), sr.QLearning(), episodes=2000, seeds=3)
    risk = sr.evaluate(runs.mdp, runs.policy[0], start=runs.mdp.origin)
    assert [r["policy"] for r in found["runs"]] == runs.policy.tolist()
    assert [r["verdict"] for r in found["runs"]] == runs.verdicts
    assert found["runs"][0]["risk"]["p_unsafe"] == pytest.approx(risk.p_unsafe)
    assert sr.Learner.from_dict(found["learner"]) == sr.QLearning()


@pytest.mark.parametrize("name", ["replay", "q", "mihatsch", "gaskett", "worst-case", "worst-transition"])
def test_every_learner_has_a_name(name, capsys):
    assert run(["learn", "volatile", "--learner", name, "--episodes", "20", "--seeds", "1"]) == 0


def test_a_map_a_saved_model_and_a_gymnasium_id_serve_as_models(tmp_path, capsys):
    (tmp_path / "world.txt").write_text("S.X.G\n.....\n")
    sr.grids.cliff().save(tmp_path / "cliff.npz")
    for model in (str(tmp_path / "world.txt"), str(tmp_path / "cliff.npz"), "FrozenLake-v1"):
        assert run(["learn", model, "--json", "--episodes", "50", "--seeds", "1"]) == 0
        assert json.loads(capsys.readouterr().out)["model"] == model


def test_options_reach_the_model(capsys):
    assert run(["learn", "cliff", "-o", "slip=0.0", "-o", "layout=tall", "--json", *FEW]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["risk"]["std"] == 0.0


@pytest.mark.parametrize("word", ["False", "false"])
def test_false_means_false(word, capsys):
    assert run(["learn", "FrozenLake-v1", "-o", f"is_slippery={word}", "--json", *FEW]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["risk"]["std"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["learn", "clif"], "unknown model 'clif'; did you mean 'cliff'?"),
        (["learn", "cliff", "--learner", "replya"], "unknown learner 'replya'; did you mean 'replay'?"),
        (["learn", "cliff", "--v", "1"], "v must be in [0, 1), got 1"),
        (["learn", "cliff", "--v", "nan"], "v must be finite, got nan"),
        (["learn", "cliff", "--gamma", "1.5"], "gamma must be in (0, 1), got 1.5"),
        (["learn", "cliff", "--learner", "mihatsch", "--kappa", "1"], "kappa must be in (-1, 1), got 1"),
        (["learn", "cliff", "--T0", "0"], "T0 must be at least 1, got 0"),
        (["learn", "cliff", "--seeds", "0"], "seeds must be at least 1, got 0"),
        (["learn", "cliff", "--episodes", "0"], "episodes must be at least 1, got 0"),
        (["learn", "cliff", "--mixing", "litral"], "unknown mixing 'litral'; did you mean 'literal'?"),
        (["learn", "cliff", "-o", "slipp=0.1"], "unknown option 'slipp'; did you mean 'slip'?"),
        (["learn", "cliff", "-o", "slip"], "--option must be KEY=VALUE, got 'slip'"),
        (["learn", "cliff", "-o", "fall_ends=no"], "fall_ends must be True or False, got 'no'"),
        (["learn", "cliff", "-o", "layout=5"], "layout must be a name or a map, got 5"),
        (["learn", "cliff", "-o", "hazard=-1e200"], "must lie within ±1e+100, got -1e+200"),
        (["learn", "cliff", "--v", "3"], "v must be in [0, 1), got 3"),
        (["learn", "cliff", "--learner", "q", "--v", "3"], "--v must be left out with --learner q, got 3"),
        (["learn", "cliff", "--seeds", "10000000000"], "seeds must be below 2**24, got 10000000000"),
        (["learn", "missing.txt"], "model must be an existing file, got 'missing.txt'"),
        (["learn", "cliff", "--episodes", "many"], "Invalid value for '--episodes': "),
        (["learn", "Pendulum-v1"], "observation_space of env must be Discrete"),
        (["lern", "cliff"], "No such command 'lern'."),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, said, capsys):
    code, lines = complaint(capsys, *arguments)
    assert code == 2
    assert len(lines) == 1
    assert said in lines[0]


def test_a_folder_that_cannot_be_written_gets_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, lines = complaint(capsys, "reproduce", "--out", str(tmp_path / "file" / "x"))
    assert (code, len(lines)) == (2, 1)
    assert "must be a folder that can be written to, got 'Not a directory'" in lines[0]


def test_a_truncated_model_gets_one_line(tmp_path, capsys):
    saved = sr.grids.cliff().save(tmp_path / "cliff.npz")
    saved.write_bytes(saved.read_bytes()[:200])
    code, lines = complaint(capsys, "learn", str(saved))
    assert (code, len(lines)) == (2, 1)
    assert "got a file that is truncated or not one of ours" in lines[0]


def test_an_error_of_ours_is_exit_code_1_without_a_traceback(monkeypatch, capsys):
    def broken(*_, **__):
        raise RuntimeError("disk\non fire")

    monkeypatch.setattr("safereplay.runs.learn", broken)
    code, lines = complaint(capsys, "learn", "cliff")
    assert (code, lines) == (1, ["safereplay: RuntimeError: disk on fire"])


@pytest.mark.whole
def test_ctrl_c_shows_the_seeds_that_are_finished():
    out, err, code = interrupted(
        RUN, 4 + (os.cpu_count() or 1), "learn", "cliff", "--episodes", 20, "--seeds", 2000, "--json"
    )
    assert code == 1
    assert "seeds are finished and shown" in err
    found = json.loads(out)
    assert found["interrupted"] is True
    assert 4 <= len(found["runs"]) < 2000


def test_help_answers_without_loading_anything_heavy():
    code = (
        "import sys; sys.argv = ['safereplay', '--help']\n"
        "from safereplay.cli import run\n"
        "assert run(['--help']) == 0\n"
        "print([m for m in ('numba', 'numpy', 'scipy', 'matplotlib', 'gymnasium') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip().endswith("[]")


def test_version_is_shown(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"safereplay {sr.__version__}\n"


def test_the_installed_command_runs():
    beside = os.path.join(os.path.dirname(sys.executable), "safereplay")
    assert subprocess.run([beside, "--version"], capture_output=True, text=True, check=True).stdout.startswith(
        "safereplay"
    )
