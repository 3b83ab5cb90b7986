"""The command ``design``: the same numbers as the library, its page, and its exit codes."""

import json

import numpy as np
import pytest

import safereplay as sr
from safereplay.cli import run
from safereplay.views.designs import PAIRS, Shown, design_page

LIMIT = ["design", "cliff", "--max-p-unsafe", "0.035"]
SURE = [(0, 0, 1.0, 1, 1.0, True, False)]  # action 0: a sure 1
GAMBLE = [(0, 1, 0.9, 1, 3.0, True, False), (0, 1, 0.1, 1, -6.0, True, True)]  # action 1: 2.1 on average


def saved(tmp_path, rows):
    return str(sr.TabularMDP.from_outcomes(2, 2, rows, start=0).save(tmp_path / "model.npz"))


def policy_file(tmp_path, actions):
    (tmp_path / "policy.json").write_text(json.dumps(actions))
    return str(tmp_path / "policy.json")


def as_json(capsys, *arguments):
    assert run([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_it_finds_the_design_of_the_library_from_the_marked_start(capsys):
    found, mdp = as_json(capsys, *LIMIT), sr.grids.cliff()
    plan = sr.design(mdp, max_p_unsafe=0.035, start=mdp.origin, quiet=True)
    assert found["profile"]["p_unsafe"] == pytest.approx(0.0319, abs=5e-5)
    assert (found["v"], found["policy"]) == (plan.v, plan.policy.tolist())
    assert found["plain"]["p_unsafe"] == pytest.approx(0.119, abs=5e-4)
    assert found["learned"] is None
    assert as_json(capsys, *LIMIT, "--start", "18")["v"] == plan.v


def test_the_start_can_be_the_models_own(capsys):
    found = as_json(capsys, *LIMIT, "--start", "model")
    assert found["plain"]["p_unsafe"] == pytest.approx(0.0256, abs=5e-5)  # keeps the limit already


def test_the_table_and_the_page_have_a_row_per_replayed_pair(tmp_path, monkeypatch, capsys):
    """By hand: the gamble varies by 2.7, so the margin is 0.27. It must look worth 0.73: (1 − ρ)·2.1 − ρ·6 = 0.73 for ρ = 1.37/8.1."""
    monkeypatch.setenv("COLUMNS", "120")
    model = saved(tmp_path, SURE + GAMBLE)
    assert run(["design", model, "--max-p-unsafe", "0", "--out", str(tmp_path / "page")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "state 0 action 1 r = -6, to state 1, unsafe 16.91% 10.00% 25.22% 2.100 0.730" in shown
    assert "plain Q-learning 10.00% 2.100 designed replay 0.00% 1.000" in shown
    page = (tmp_path / "page" / "report.html").read_text()
    assert page.count("<img") == 2
    assert "state\u00a00\u00a0action\u00a01" in page


def test_a_policy_of_a_file_is_designed_and_its_free_states_stay_free(tmp_path, capsys):
    file = policy_file(tmp_path, [0 if s == 12 else -1 for s in range(24)])  # up, away from the edge
    found = as_json(capsys, "design", "cliff", "--policy", file)
    assert found["policy"][12] == 0
    assert "limit" not in found
    assert run(["design", "cliff", "--policy", file]) == 0
    shown = capsys.readouterr().out
    assert "a given policy on cliff" in shown
    assert "(2, 0) →" in shown


@pytest.mark.parametrize("given", [["--max-p-unsafe", "0"], ["--policy"]])
def test_learning_confirms_it(given, tmp_path, capsys):
    """At a margin of 3, above the rewards' spread at the end: all 4 seeds learn it in 5,000 episodes, and none without replay."""
    model = saved(tmp_path, SURE + GAMBLE)
    given = [*given, policy_file(tmp_path, [0, -1])] if given == ["--policy"] else given
    found = as_json(capsys, "design", model, *given, "--margin", "3", "--seeds", "4", "--episodes", "5000")
    assert found["learned"] == {"met": 4, "seeds": 4, "episodes": 5_000}
    plain = sr.learn(sr.TabularMDP.load(model), sr.QLearning(), episodes=5_000, seeds=4, quiet=True)
    assert (plain.policy[:, 0] == 1).all()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cliff", "--max-p-unsafe", "0.01"], "max_p_unsafe must be a limit that"),
        (["cliff", "--policy", "left.json"], "policy must be one that replay can give"),
    ],
)
def test_what_no_replay_gives_is_one_line_and_exit_code_1(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "left.json").write_text(json.dumps([3] * 24))
    assert run(["design", *arguments, "--out", "page"]) == 1
    assert not (tmp_path / "page").exists()
    shown = capsys.readouterr()
    assert (shown.out, shown.err.splitlines()[-1][: 12 + len(said)]) == ("", f"safereplay: {said}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["cliff"], "policy must be given, or a limit, got None"),
        (["cliff", "--max-p-unsafe", "2"], "max_p_unsafe must be in [0, 1], got 2"),
        (["cliff", "--max-std", "3", "--policy", "short.json"], "policy must come without a limit, got 'max_std'"),
        (["cliff", "--policy", "short.json"], "policy must have shape (24,), an action per state, got (2,)"),
        (
            ["cliff", "--policy", "no.json"],
            "--policy must be a .json file that can be read, got 'no.json'; No such file or directory",
        ),
        (["cliff", "--policy", "word.json"], "--policy must hold a list of actions, one per state, got 'up'"),
        (["cliff", "--max-std", "3", "--start", "99"], "start must be a state in 0..23, got 99"),
        (["cliff", "--max-std", "3", "--start", "here"], "--start must be a state or 'model', got 'here'"),
        (["cliff", "--max-std", "3", "--seeds", "-1"], "seeds must be at least 0, got -1"),
        (["cliff", "--max-std", "3", "--margin", "0"], "margin must be in (0, inf), got 0"),
        (["cliff", "--max-std", "3", "--margin", "nan"], "margin must be finite, got nan"),
        (["cliff", "--max-std", "3", "--margin", "inf"], "margin must be finite, got inf"),
        (["cliff", "--max-std", "3", "--least", "most"], "unknown least 'most'; choose from largest, total"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.json").write_text("[0, 1]")
    (tmp_path / "word.json").write_text('"up"')
    assert run(["design", *arguments, "--out", "deep/page"]) == 2
    assert capsys.readouterr().err.splitlines() == [f"safereplay: {said}"]
    assert not (tmp_path / "deep").exists()


def test_a_world_without_unsafe_outcomes_has_no_limit_on_them(tmp_path, capsys):
    assert run(["design", saved(tmp_path, [*SURE, (0, 1, 1.0, 1, 2.0, True, False)]), "--max-p-unsafe", "0.1"]) == 2
    assert "mdp must have unsafe outcomes, for a limit on them" in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_to_is_refused_before_any_work(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert run([*LIMIT, "--out", str(tmp_path / "file")]) == 2
    assert "must be a folder that can be written to, got 'File exists'" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == ""


def test_learn_solve_sweep_and_show_take_the_learner_that_it_wrote(tmp_path, capsys):
    model = saved(tmp_path, SURE + GAMBLE)
    assert run(["design", model, "--max-p-unsafe", "0", "--margin", "3", "--out", str(tmp_path / "page")]) == 0
    file = str(tmp_path / "page" / "learner.json")
    plan = sr.design(sr.TabularMDP.load(model), max_p_unsafe=0.0, margin=3.0, quiet=True)
    capsys.readouterr()
    found = as_json(capsys, "learn", model, "--learner", file, "--episodes", "5000", "--seeds", "4")
    assert sr.ReplayQLearning.from_dict(found["learner"]) == plan.learner
    assert as_json(capsys, "solve", model, "--learner", file)["learner"] == found["learner"]
    spec = 'episodes = 5_000\nseeds = 4\n[models.gamble]\nsource = "model.npz"\n'
    (tmp_path / "study.toml").write_text(spec + '[learners.designed]\nsource = "page/learner.json"\n')
    assert run(["sweep", str(tmp_path / "study.toml"), "--out", str(tmp_path / "sweep")]) == 0
    assert {tuple(row["policy"]) for row in sr.read_sweep(tmp_path / "sweep").to_pylist()} == {(0, 0)}
    capsys.readouterr()
    assert run(["show", str(tmp_path / "sweep")]) == 0
    assert "designed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("[1]", [], "--learner must hold a learner, got [1]"),
        ('{"kind": "EpsilonGreedy"}', [], "--learner must hold a learner, got EpsilonGreedy(epsilon=0.1, power=0.0)"),
        ("{}", ["--v", "0.3"], "--v must be left out with a file of a learner, got 0.3"),
        ("{}", ["--mixing", "matched"], "--mixing must be left out with a file of a learner, got 'matched'"),
        ("{}", ["--T0", "5"], "--T0 must be left out with a file of a learner, got 5"),
        ("{", [], "--learner must be a .json file that can be read, got 'learner.json'; "),
        (None, [], "--learner must be a .json file that can be read, got 'learner.json'; No such file or directory"),
    ],
)
def test_a_file_that_holds_no_learner_is_one_line(text, more, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "learner.json").write_text(text)
    assert run(["learn", "cliff", "--learner", "learner.json", *more]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"safereplay: {said}")


@pytest.fixture(scope="module")
def shown():
    mdp = sr.grids.cliff()
    return Shown(sr.design(mdp, max_p_unsafe=0.035, start=mdp.origin, quiet=True), mdp.with_start(mdp.origin))


def test_the_page_tells_it_in_three_sentences_and_marks_each_pair(shown):
    page = design_page(shown)
    text = page.blocks[0].text
    assert text.count(". ") == 2
    assert "P(unsafe) 11.90% from (3, 0)" in text
    assert "P(unsafe) 3.19% and a mean return of 0.653" in text
    bars = [p for p in page.figures["designed"].axes[0].patches if p.get_zorder() == 4]
    assert len(bars) == len(shown.plan.replays) == len(shown.pairs())
    assert all(len(row) == len(PAIRS) for row in shown.pairs())


def test_the_price_compares_four_policies_and_the_limit(shown):
    header, rows = shown.prices()
    assert header == ["", "P(unsafe)", "mean return"]
    assert [row[0] for row in rows] == [
        "plain Q-learning",
        "designed replay",
        "best deterministic policy",
        "best of all policies",
    ]
    drawn = {line.get_label(): line.get_xydata()[0] for line in design_page(shown).figures["price"].axes[0].lines}
    assert set(drawn) == {row[0] for row in rows} | {"P(unsafe) ≤ 3.5%"}
    np.testing.assert_allclose(drawn["designed replay"], [0.0319, 0.6534], atol=1e-4)


def test_plain_q_learning_keeps_a_loose_limit_and_nothing_is_replayed(tmp_path, capsys):
    model = saved(tmp_path, SURE + GAMBLE)
    assert run(["design", model, "--max-p-unsafe", "0.5", "--out", str(tmp_path / "page")]) == 0
    assert "Nothing needs to be replayed: v = 0" in capsys.readouterr().out
    assert "nothing needs to be replayed" in (tmp_path / "page" / "report.html").read_text()
