import json
import re
from pathlib import Path

import pytest
from small_sweeps import ids, stamps
from strikes import interrupted

import safereplay as sr
from safereplay.cli import run

TOML = "episodes = 100\nseeds = 2\n[models.cliff]\n[learners.q]\n[learners.replay]\nv = [0.3, 0.6]\n"
EXAMPLES = sorted((Path(__file__).parent.parent.parent / "docs" / "sweeps").glob("*.toml"))


@pytest.fixture
def study(tmp_path):
    (tmp_path / "study.toml").write_text(TOML)
    return tmp_path / "study.toml"


def sweep(*arguments):
    return run(["sweep", *map(str, arguments)])


def test_a_sweep_says_what_it_did_and_the_same_command_finds_it_done(study, capsys, monkeypatch):
    monkeypatch.chdir(study.parent)
    assert sweep("study.toml") == 0
    assert capsys.readouterr().out == "6 runs done: sweeps/study\n"
    assert sweep("study.toml") == 0
    assert capsys.readouterr().out == "0 runs done, 6 were done before: sweeps/study\n"
    assert len(ids(study.parent / "sweeps" / "study")) == 6


def test_what_it_did_can_be_had_as_json(study, tmp_path, capsys):
    assert sweep(study, "--out", tmp_path / "out", "--threads", 1, "--json") == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found.pop("seconds") > 0.0
    assert found == {"folder": str(tmp_path / "out"), "runs": 6, "done": 6, "already": 0, "interrupted": False}
    assert shown.err == ""


def test_a_spec_that_changed_needs_extend(study, tmp_path, capsys):
    assert sweep(study, "--out", tmp_path / "out") == 0
    before = stamps(tmp_path / "out")
    study.write_text(TOML.replace("seeds = 2", "seeds = 3"))
    capsys.readouterr()
    assert sweep(study, "--out", tmp_path / "out") == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert "seeds changed; choose another folder, or --extend" in lines[0]
    assert sweep(study, "--out", tmp_path / "out", "--extend") == 0
    assert capsys.readouterr().out.startswith("3 runs done, 6 were done before")
    assert before.items() <= stamps(tmp_path / "out").items()
    kept = list((tmp_path / "out" / "specs").iterdir())
    assert [file.read_text() for file in kept] == [TOML]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TOML.replace("0.6", "1.5"), "learners.replay.v must be in [0, 1), got 1.5"),
        (TOML.replace("episodes", "epsodes"), "unknown key of the spec 'epsodes'; did you mean 'episodes'?"),
        (TOML + "v = 3\n", "study.toml must be TOML, got: Cannot overwrite a value (at line 7, column "),
        ("", "models must name at least one, as in [models.NAME], got {}"),
    ],
)
def test_a_bad_spec_gets_one_line_and_exit_code_2(study, text, said, capsys):
    study.write_text(text)
    assert sweep(study, "--out", study.parent / "out") == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]
    assert not (study.parent / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "thread"], "unknown engine 'thread'; did you mean 'threads'?"),
        (["--threads", "0"], "threads must be at least 1, got 0"),
        (["--address", "auto"], "address must go with the engine ray, got 'auto'"),
    ],
)
def test_bad_options_get_one_line(study, arguments, said, capsys):
    assert sweep(study, *arguments) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1
    assert said in lines[0]


def test_a_missing_spec_gets_one_line(tmp_path, capsys):
    assert sweep(tmp_path / "none.toml") == 2
    assert "spec must be an existing file" in capsys.readouterr().err


@pytest.mark.whole
def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(tmp_path):
    (tmp_path / "study.toml").write_text(
        TOML.replace("episodes = 100", "episodes = 20_000").replace("seeds = 2", "seeds = 5_000")
    )
    arguments = ["sweep", tmp_path / "study.toml", "--out", tmp_path / "out", "--threads", "2"]
    out, err, code = interrupted("safereplay.engines.sweeps:Store.add", 4, *arguments)
    assert code == 1
    done = int(re.match(r"([\d,]+) runs done: ", out)[1].replace(",", ""))
    assert done == len(ids(tmp_path / "out")) >= 3
    assert err == f"safereplay: stopped: {15_000 - done:,} of 15,000 runs are left; run the same command to continue\n"


@pytest.mark.parametrize("spec", EXAMPLES, ids=lambda file: file.stem)
def test_the_specs_of_the_docs_can_be_read(spec):
    from safereplay.engines.spec import load_spec

    assert len(load_spec(spec)) > 0


def test_the_first_example_of_the_docs_runs_in_seconds(tmp_path):
    first = next(spec for spec in EXAMPLES if spec.stem == "first")
    found = sr.sweep(first, tmp_path, quiet=True)
    assert (found.done, found.interrupted) == (90, False)
