"""solve, check and tune on the command line."""

import json
import re

import numpy as np
import pytest
from strikes import RUN, interrupted

import safereplay as sr
from safereplay.cli import run


def shown_as_json(capsys, *arguments):
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def complaint(capsys, *arguments):
    code = run(list(arguments))
    return code, capsys.readouterr().err.strip().splitlines()


def test_solve_of_matched_mixing_is_the_fixed_point(capsys):
    found = shown_as_json(capsys, "solve", "cliff", "--mixing", "matched", "--v", "0.8", "--beta", "2")
    plain, shaped = found["limits"]
    Q = sr.fixed_point(sr.grids.cliff(), sr.VarianceReplay(2.0), 0.8)
    np.testing.assert_allclose(shaped["Q"], Q)
    np.testing.assert_allclose(plain["Q"], sr.exact(sr.grids.cliff(), sr.QLearning()))
    risk = sr.evaluate(sr.grids.cliff(), Q.argmax(1), start=sr.grids.cliff().origin)
    assert shaped["risk"]["p_unsafe"] == pytest.approx(risk.p_unsafe)


def test_solve_of_algorithm_1_lists_its_limits_by_the_way_they_take(capsys):
    found = shown_as_json(capsys, "solve", "cliff", "--gamma", "0.9", "--epsilon", "0.05", "--episodes", "20000")
    names = [limit["name"] for limit in found["limits"]]
    assert names[0] == "Q-learning"
    assert names[-1] == "the paper's mapping"
    safe, stuck = found["limits"][1:-1]
    assert re.fullmatch(r"Algorithm 1: \d+ of \d+ limits, safe", safe["name"])
    assert re.fullmatch(r"Algorithm 1: \d+ of \d+ limits, stuck", stuck["name"])
    assert safe["learned"] > stuck["learned"] > 0.0


@pytest.mark.parametrize("learner", ["q", "mihatsch", "gaskett", "worst-case", "worst-transition"])
def test_solve_knows_every_rival(learner, capsys):
    assert run(["solve", "volatile", "--learner", learner]) == 0
    assert "P(unsafe)" in capsys.readouterr().out


def test_solve_writes_a_page_with_its_pictures(tmp_path, capsys):
    assert run(["solve", "volatile", "--mixing", "matched", "--out", str(tmp_path / "page")]) == 0
    assert capsys.readouterr().out.strip().endswith("report.html")
    page = (tmp_path / "page" / "report.html").read_text()
    assert page.count("<img") == 2
    assert {p.name for p in (tmp_path / "page" / "figures").glob("*.png")} == {"values.png", "returns.png"}


def test_check_says_what_check_says(tmp_path, capsys):
    few = ("--episodes", "2000", "--seeds", "2")
    found = shown_as_json(capsys, "check", "volatile", *few)
    report = sr.check(sr.grids.volatile(), sr.VarianceReplay(5.0), episodes=2_000, seeds=2, quiet=True)
    assert found["assumption"]["holds"] is report.assumption.holds is False
    assert found["conditions_hold"] is report.conditions_hold
    assert run(["check", "volatile", *few, "--out", str(tmp_path)]) == 0
    assert "Assumption 1" in capsys.readouterr().out
    assert (tmp_path / "report.html").read_text().count("<img") == 2


def test_check_of_a_falling_temperature_says_that_it_stops_exploring(capsys):
    few = ("--episodes", "500", "--seeds", "1")
    found = shown_as_json(capsys, "check", "volatile", *few, "--temperature", "1", "--epsilon-power", "0.5")
    assert found["exploring"]["holds"] is False


def test_tune_finds_the_plan_that_tune_finds(tmp_path, capsys):
    few = ("--episodes", "20000", "--seeds", "20")
    found = shown_as_json(capsys, "tune", "cliff", "--max-p-unsafe", "0.02", *few)
    plan = sr.tune(sr.grids.cliff(), sr.VarianceReplay(5.0), max_p_unsafe=0.02, episodes=20_000, quiet=True)
    assert (found["v"], found["beta"], found["confirmed"]) == (plan.v, plan.beta, plan.confirmed)
    assert found["profile"]["p_unsafe"] <= 0.02
    assert found["ceiling"]["value"] >= found["profile"]["mean"]
    assert run(["tune", "cliff", "--max-p-unsafe", "0.02", *few, "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "price of safety" in shown
    assert "the frontier" in shown
    assert (tmp_path / "figures" / "frontier.png").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["solve", "clif"], "unknown model 'clif'; did you mean 'cliff'?"),
        (["solve", "cliff", "--v", "1"], "v must be in [0, 1), got 1"),
        (["check", "cliff", "--v", "-0.1"], "v must be in [0, 1), got -0.1"),
        (["check", "cliff", "--mixing", "litral"], "unknown mixing 'litral'; did you mean 'literal'?"),
        (["tune", "cliff"], "limit must be exactly one of max_p_unsafe, min_cvar, max_std, got None"),
        (["tune", "cliff", "--max-p-unsafe", "1.5"], "max_p_unsafe must be in [0, 1], got 1.5"),
        (["tune", "cliff", "--max-p-unsafe", "0.1", "--alpha", "0"], "alpha must be in (0, 1], got 0"),
    ],
)
def test_bad_input_gets_one_line_and_exit_code_2(arguments, said, capsys):
    code, lines = complaint(capsys, *arguments)
    assert code == 2
    assert lines == [f"safereplay: {said}"]


def test_a_folder_that_cannot_be_written_gets_one_line_and_nothing_is_left(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    code, lines = complaint(capsys, "solve", "volatile", "--mixing", "matched", "--out", str(tmp_path / "file"))
    assert code == 2
    assert len(lines) == 1
    assert "must be a folder that can be written to" in lines[0]


def test_a_page_that_cannot_be_written_is_refused_before_the_pictures(tmp_path, capsys):
    (tmp_path / "report.md").mkdir()
    code, lines = complaint(capsys, "solve", "volatile", "--mixing", "matched", "--out", str(tmp_path))
    assert (code, len(lines)) == (2, 1)
    assert "report.md must be a regular file or a new one, got a folder" in lines[0]
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]


def test_an_xray_of_a_learner_that_does_not_replay_is_refused_before_it_learns(capsys):
    code, lines = complaint(capsys, "learn", "volatile", "--learner", "q", "--xray")
    assert code == 2
    assert lines == ["safereplay: --xray must go with a learner that replays, got 'q'"]


@pytest.mark.whole
def test_ctrl_c_stops_with_one_line():
    out, err, code = interrupted(RUN, 1, "tune", "cliff", "--max-p-unsafe", 0.01, "--episodes", 5_000_000)
    assert (code, out) == (1, "")
    assert err.strip().splitlines()[-1].startswith("safereplay: stopped: ")


def test_an_xray_comes_with_learning_when_asked_for(capsys):
    assert run(["learn", "volatile", "--episodes", "2000", "--seeds", "2", "--xray"]) == 0
    assert "replayed most" in capsys.readouterr().out
    found = shown_as_json(capsys, "learn", "volatile", "--episodes", "2000", "--seeds", "2", "--xray")
    assert found["xray"]["unsafe_share"]["replayed"] > 0.9
