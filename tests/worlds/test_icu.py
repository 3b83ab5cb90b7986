"""ICU-Sepsis: the loader on a small copy of the package's files, and on the package itself where it is installed."""

from importlib.util import find_spec

import numpy as np
import pytest

import safereplay as sr
from safereplay.errors import MissingExtra
from safereplay.worlds import icu_sepsis
from studies import icu

TINY = "icu_sepsis"


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A package with the same files: two patients' states, then death, survival, the absorbing end; two actions."""
    p, r = np.zeros((5, 2, 5)), np.zeros((5, 2, 5))
    p[0, 0, [0, 2, 3]] = 0.5, 0.3, 0.2
    p[0, 1, [1, 2]] = 0.9, 0.1
    p[1, 0, [2, 3]] = 0.5, 0.5
    p[1, 1, [2, 3]] = 0.2, 0.8
    p[2:, :, 4] = 1.0
    r[:2, :, 3] = 1.0
    assets = tmp_path / TINY / "envs" / "assets"
    assets.mkdir(parents=True)
    np.savez(assets / "dynamics.npz", tx_mat=p, r_mat=r, d_0=np.array([0.75, 0.25, 0.0, 0.0, 0.0]))
    (tmp_path / TINY / "__init__.py").write_text("raise ImportError('it must not be imported')")
    monkeypatch.syspath_prepend(tmp_path)  # before a package that is installed


def test_death_is_unsafe_survival_pays_and_episodes_start_as_in_the_data(tiny):
    mdp = icu_sepsis()
    assert (mdp.n_states, mdp.n_actions, mdp.start.tolist()) == (5, 2, [0.75, 0.25, 0.0, 0.0, 0.0])
    assert mdp.is_terminal.tolist() == [False, False, True, True, True]
    assert np.array_equal(mdp.unsafe, mdp.s_next == 2)
    assert np.array_equal(mdp.r, (mdp.s_next == 3).astype(float))
    first, second = sr.evaluate(mdp, [0] * 5), sr.evaluate(mdp, [1] * 5)
    assert first.p_unsafe == pytest.approx(0.75 * 0.3 / 0.5 + 0.25 * 0.5)
    assert first.mean == pytest.approx(1.0 - first.p_unsafe)
    assert second.p_unsafe == pytest.approx(0.75 * (0.1 + 0.9 * 0.2) + 0.25 * 0.2)


def test_without_the_package_one_line_names_the_extra(monkeypatch):
    monkeypatch.setattr("safereplay.worlds.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"^icu_sepsis needs .* pip install 'safereplay\[icu\]'$"):
        icu_sepsis()


def test_a_package_without_the_table_is_no_such_package(tiny, tmp_path):
    (tmp_path / TINY / "envs" / "assets" / "dynamics.npz").unlink()
    with pytest.raises(MissingExtra, match="icu_sepsis needs"):
        icu_sepsis()


@pytest.mark.skipif(find_spec("icu_sepsis") is None, reason="the extra icu is not installed")
def test_the_baselines_of_the_package_are_found_again():
    """Its README: mean return 0.78 of a random policy and 0.88 of the best."""
    mdp = icu_sepsis()
    alike = np.full((mdp.n_states, mdp.n_actions), 1 / mdp.n_actions)
    best = sr.exact(mdp, sr.QLearning()).argmax(1)
    assert [round(sr.evaluate(mdp, policy).mean, 2) for policy in (alike, best)] == [0.78, 0.88]


def test_the_study_has_a_row_per_learner_and_evaluates_exactly(tiny, monkeypatch, capsys):
    monkeypatch.setattr(icu, "SCHEMES", {"variance": sr.VarianceReplay()})
    assert icu.run(["--seeds", "5", "--episodes", "2000", "--episodes", "10"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:3] == ["always the first action: P(death) = 57.50%", "best: P(death) = 26.00%"]
    rows = [line.split(" | ") for line in shown if line.startswith("| ")]
    assert rows[0][1:4] == ["P(death), 10 episodes", "minus Q-learning", "P(death), 2,000 episodes"]
    assert [row[0] for row in rows[2:]] == ["| Q-learning", "| variance replay", "| variance replay (matched)"]
    assert {row[3] for row in rows[2:]} == {"26.00 % [26.00, 26.00]"}  # all have learned the best policy
    assert rows[3][4].startswith("0.00 points")


def test_the_study_answers_bad_input_in_one_line(monkeypatch, capsys):
    assert icu.run(["--seeds", "1"]) == 2
    assert capsys.readouterr().err == "safereplay: seeds must be at least 2, got 1\n"
    monkeypatch.setattr("safereplay.worlds.find_spec", lambda name: None)
    assert icu.run([]) == 2
    assert "pip install 'safereplay[icu]'" in capsys.readouterr().err
