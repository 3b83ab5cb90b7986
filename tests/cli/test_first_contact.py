"""What somebody meets who has just installed it: help, completion, exit codes, narrow terminals and old encodings."""

import os
import re
import subprocess
import sys

import pytest
from waiting import END

import safereplay as sr
from safereplay.cli import run
from safereplay.cli.common import ORDER


def called(*arguments, **environment):
    """``python -m safereplay`` in a process of its own."""
    paths = os.pathsep.join(path for path in sys.path if path)
    return subprocess.run(
        [sys.executable, "-m", "safereplay", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        timeout=END,
    )


def test_python_dash_m_is_the_command():
    shown = called("--version")
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert shown.stdout.startswith(b"safereplay ")


def test_without_a_command_help_is_shown_and_nothing_is_wrong(capsys):
    assert run([]) == 0
    alone = capsys.readouterr()
    assert run(["--help"]) == 0
    assert alone == capsys.readouterr()
    assert "Usage: safereplay" in alone.out
    assert alone.err == ""


@pytest.mark.parametrize("command", ["", *ORDER])
def test_help_has_no_types_for_flags_and_no_lists(command, capsys):
    assert run([*command.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert not re.search(r"bool|list\[", shown, re.IGNORECASE)
    assert "--help" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete(shell):
    shown = called(_SAFEREPLAY_COMPLETE=f"source_{shell}")
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"_SAFEREPLAY_COMPLETE" in shown.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("safereplay tu", {"tune"}),
        ("safereplay de", {"design"}),
        ("safereplay design cliff --least la", {"largest"}),
        ("safereplay learn cli", {"cliff", "cliff_walking"}),
        ("safereplay learn cliff --learner mi", {"mihatsch"}),
        ("safereplay tune cliff --scheme var", {"variance"}),
        ("safereplay compare --world ta", {"taxi"}),
    ],
)
def test_commands_and_the_names_of_the_catalog_are_completed(typed, offered):
    words = len(typed.split()) - 1
    how = {"_SAFEREPLAY_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(words)}
    assert set(called(**how).stdout.decode().split()) == offered


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_limit_that_nothing_keeps_is_exit_code_1_and_shown_all_the_same(form, capsys):
    assert run(["tune", "cliff", "--max-p-unsafe", "0.00001", *form]) == 1
    shown = capsys.readouterr()
    assert shown.err.strip().splitlines()[-1] == "safereplay: no replay setting keeps P(unsafe) ≤ 0.001%"
    assert "0.0081" in shown.out or "0.8127%" in shown.out


def test_a_limit_that_is_kept_is_exit_code_0(capsys):
    few = ["--episodes", "20000", "--seeds", "2"]
    assert run(["tune", "volatile", "--max-p-unsafe", "0.5", *few]) == 0


NUMBERS = re.compile(r"-?\d+\.\d+%?")


@pytest.mark.parametrize(
    "arguments",
    [
        ["learn", "cliff", "--episodes", "500", "--seeds", "2"],
        ["solve", "cliff", "--mixing", "matched"],
        ["tune", "cliff", "--max-p-unsafe", "0.00001"],
    ],
)
def test_on_40_columns_no_number_is_cut_off(arguments, monkeypatch, capsys):
    seen = []
    for columns in (200, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        run(arguments)
        seen.append(capsys.readouterr().out)
    wide, narrow = seen
    assert sorted(NUMBERS.findall(wide)) == sorted(NUMBERS.findall(narrow))
    assert "…" not in narrow
    table = narrow.partition("\n\n")[0] if arguments[0] != "tune" else narrow[narrow.index("from v") :]
    assert max(map(len, table.splitlines())) <= 40


@pytest.mark.parametrize("command", ["", *ORDER])
def test_on_40_columns_help_fits_and_has_the_whole_name_of_every_option(command, monkeypatch, capsys):
    shown = {}
    for columns in (100, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run([*command.split(), "--help"]) == 0
        shown[columns] = capsys.readouterr().out
    assert max(map(len, shown[40].splitlines())) <= 40
    names = set(re.findall(r"(?<![\w-])--[\w-]+", shown[100]))
    assert names <= set(re.findall(r"(?<![\w-])--[\w-]+", shown[40]))


@pytest.mark.whole
@pytest.mark.parametrize("encoding", ["cp1252", "ascii"])
def test_what_an_encoding_lacks_is_spelled(encoding, tmp_path):
    shown = called("solve", "volatile", "--mixing", "matched", "--out", tmp_path, PYTHONIOENCODING=encoding)
    text = shown.stdout.decode(encoding)
    assert shown.returncode == 0
    assert "gamma = 0.9" in text
    assert "CVaR10" in text
    assert "> > > > G" in text
    assert "CVaR₁₀" in (tmp_path / "report.md").read_text(encoding="utf-8")


@pytest.mark.whole
def test_what_goes_wrong_is_spelled_too():
    shown = called("tune", "cliff", "--max-p-unsafe", "0.00001", PYTHONIOENCODING="cp1252")
    assert shown.returncode == 1
    assert shown.stderr.decode("cp1252").strip().endswith("keeps P(unsafe) <= 0.001%")


@pytest.mark.whole
def test_utf8_is_left_as_it_is():
    assert "γ = 0.9".encode() in called("solve", "volatile", "--mixing", "matched", PYTHONIOENCODING="utf-8").stdout


def test_help_names_the_defaults_of_the_classes(capsys):
    assert run(["learn", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for name, default in (("v", sr.ReplayQLearning().v), ("kappa", sr.RiskSensitive().kappa)):
        assert re.search(rf"--{name} .*?default {default:g}\.", shown), name
    assert f"Gaskett's β (default {sr.Pessimistic().beta:g})" in shown


def test_compile_refuses_to_compile_what_is_not_kept():
    done = called("compile", NUMBA_DISABLE_JIT="1")  # as where no folder can be written to
    assert done.returncode == 2
    assert done.stderr.startswith(b"safereplay: compiled code must be kept on disk, got no cache: set NUMBA_CACHE_DIR")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.whole
def test_after_compile_the_first_runs_on_the_papers_grids_compile_nothing(tmp_path):
    done = called("compile", NUMBA_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0
    assert b"compiling Q-learning" in done.stderr
    compiled = set(tmp_path.rglob("*.nbc"))
    assert len(compiled) > 10
    small = ("--episodes", 100, "--seeds", 2)
    for command in (["learn", "cliff", *small], ["learn", "volatile", *small, "--learner", "q"], ["solve", "cliff"]):
        assert called(*command, NUMBA_CACHE_DIR=str(tmp_path)).returncode == 0
    assert set(tmp_path.rglob("*.nbc")) == compiled
