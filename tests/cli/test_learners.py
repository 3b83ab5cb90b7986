"""Every learner and scheme of the catalog on the command line."""

import json

import pytest

from safereplay import catalog
from safereplay.cli import run

SHORT = ["--episodes", "200", "--seeds", "1"]


def told(capsys, *arguments):
    assert run(list(arguments)) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments):
    assert run(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


@pytest.mark.parametrize("name", [name for name in catalog.LEARNERS if name != "hindsight"])
def test_every_learner_learns_by_its_name(name, capsys):
    found = told(capsys, "learn", "cliff", "--learner", name, *SHORT, "--json")
    assert found["learner"]["kind"] == catalog.learner(name).__name__


def test_hindsight_learns_where_there_are_goals(capsys):
    found = told(capsys, "learn", "goal_room", "--learner", "hindsight", "--dial", "k=2", *SHORT, "--json")
    assert found["learner"]["k"] == 2
    assert "mdp must have goals" in refused(capsys, "learn", "cliff", "--learner", "hindsight", *SHORT)


@pytest.mark.parametrize("name", catalog.SCHEMES)
def test_every_scheme_replays_by_its_name(name, capsys):
    found = told(capsys, "learn", "cliff", "--scheme", name, *SHORT, "--json")
    assert found["learner"]["scheme"]["kind"] == catalog.scheme(name).__name__


def test_options_reach_whoever_has_them(capsys):
    for v in ("0.1", "0.9"):
        assert told(capsys, "learn", "cliff", "--learner", "window", "--v", v, *SHORT, "--json")["learner"][
            "v"
        ] == float(v)
    found = told(capsys, "learn", "cliff", "--learner", "backward", "--beta", "0", *SHORT, "--json")
    assert found["learner"]["beta"] == 0.0
    assert told(capsys, "learn", "cliff", "--learner", "mihatsch", *SHORT, "--json")["learner"]["kappa"] == 0.6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--learner", "robust", "--beta", "1"], "--beta must be left out with --learner robust, got 1"),
        (["--learner", "q", "--v", "0.3"], "--v must be left out with --learner q, got 0.3"),
        (["--learner", "replay", "--kappa", "0.3"], "--kappa must be left out with --learner replay, got 0.3"),
        (["--learner", "q", "--scheme", "return"], "--scheme must go with --learner replay, got 'return'"),
        (["--learner", "q", "--mixing", "matched"], "--mixing must go with --learner replay, got 'matched'"),
        (["--scheme", "retrun"], "unknown scheme 'retrun'; did you mean 'return'?"),
        (["--learner", "window", "--dial", "windo=3"], "unknown dial of WindowReplay 'windo'; did you mean 'window'?"),
        (["--scheme", "uniform", "--dial", "x=3"], "dial of UniformReplay must be left out: it has none, got 'x'"),
        (["--dial", "beta"], "--dial must be KEY=VALUE, got 'beta'"),
        (["--learner", "exponential", "--dial", "theta=x"], "theta must be a number, got 'x'"),
    ],
)
def test_an_option_that_nobody_has_is_refused(arguments, message, capsys):
    assert message in refused(capsys, "learn", "cliff", *arguments, *SHORT)


def test_a_learner_on_states_of_its_own_is_solved_and_drawn_by_its_path(capsys):
    found = told(capsys, "solve", "cliff", "--learner", "cvar", "--json")
    assert len(found["limits"][1]["policy"]) > 24
    assert run(["solve", "cliff", "--learner", "cvar"]) == 0
    drawn = capsys.readouterr().out.split("CVaR(alpha=0.1)")[-1]
    assert drawn.count("⬆") + drawn.count("➡") + drawn.count("⬇") + drawn.count("⬅") >= 7
    assert not set("↑→↓←") & set(drawn)


@pytest.mark.parametrize(("name", "settles"), [("prioritised", False), ("window", False), ("dyna", None), ("q", True)])
def test_check_says_whether_what_a_learner_replays_settles(name, settles, capsys):
    found = told(capsys, "check", "cliff", "--learner", name, "--json")
    assert found["settling"]["holds"] is settles
    assert found["settling"]["reason"]
    assert run(["check", "cliff", "--learner", name]) == 0
    assert "w_t settles" in capsys.readouterr().out
